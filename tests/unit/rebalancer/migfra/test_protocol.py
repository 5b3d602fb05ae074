# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


import random

import hypothesis
from hypothesis import strategies as st
import pytest
import yaml

from kronos_nova.conf import permits
from kronos_nova.rebalancer.migfra import replies
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra import task_reader
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind
from kronos_nova.rebalancer.store import requests
from tests.unit.fuzz import junk

ID = '8d7e6f7a-3e3b-4c8e-9f0a-1d2c3b4a5968'
#: As the protocol's own page has them, with values for its place holders.
TASKS = {
    MigfraRequestKind.START: f'''
host: node1
task: start vm
id: {ID}
vm-configurations:
  - vm-name: vm-1
    memory: 1048576
    vcpus: 2
  - xml: "<domain/>"
    pci-ids:
      - vendor: 0x15b3
        device: 0x1004
    transient: true
''', MigfraRequestKind.STOP: f'''
host: node1
task: stop vm
id: {ID}
list:
  - vm-name: vm-1
  - vm-name: vm-2
    force: true
    undefine: false
''', MigfraRequestKind.SUSPEND: f'''
host: node1
task: suspend vm
id: {ID}
list:
  - vm-name: vm-1
  - vm-name: vm-2
''', MigfraRequestKind.RESUME: f'''
host: node1
task: resume vm
id: {ID}
list:
  - vm-name: vm-1
''', MigfraRequestKind.MIGRATE: f'''
host: node1
task: migrate vm
id: {ID}
vm-name: vm-1
destination: node2
time-measurement: true
parameter:
  retry-counter: 3
  migration-type: live
  rdma-migration: false
  pscom-hook-procs: 2
  vcpu-map: [[4], [5, 6]]
  swap-with:
    vm-name: vm-2
    pscom-hook-procs: 1
    vcpu-map: [[7]]
''', MigfraRequestKind.EVACUATE: f'''
host: node1
task: evacuate node
id: {ID}
time-measurement: true
destinations:
  - node2
  - node3
parameter:
  retry-counter: 3
  mode: compact
  migration-type: warm
  rdma-migration: false
  overbooking: true
  pscom-hook-procs: 4
''', MigfraRequestKind.REPIN: f'''
task: repin vm
id: {ID}
vm-name: vm-1
vcpu-map: [[4,5,6,7],[4,5,6,7],[4,5,6,7],[4,5,6,7]]
'''}


def parse(text, host='node1'):
    return task_reader.parse_task(text.encode(), host)


@pytest.mark.parametrize('kind', MigfraRequestKind)
def test_each_task_is_read_with_every_field_of_its(kind):
    found = parse(TASKS[kind])
    assert (found.task, found.id) == (kind, ID)
    written = yaml.safe_load(TASKS[kind])

    def compare(wanted, got):
        if isinstance(wanted, dict):
            for name, value in wanted.items():
                compare(value, getattr(got, name.replace('-', '_')))
        elif isinstance(wanted, list):
            assert len(wanted) == len(got)
            for one, other in zip(wanted, got, strict=True):
                compare(one, other)
        else:
            assert wanted == got and type(wanted) is type(got if not isinstance(got, str)
                                                          else str(got))
    compare(written, found)


@pytest.mark.parametrize('kind', MigfraRequestKind)
def test_a_task_that_is_kept_is_read_as_it_came(kind):
    found = parse(TASKS[kind])
    kept = requests.MigfraRequest(ID, 'node1', kind, request_handler.format_document(found), '',
                                  0.0)
    assert request_handler.parse_task(kept) == found


def test_options_of_a_stop_apply_to_its_whole_list():
    found = parse(TASKS[MigfraRequestKind.SUSPEND].replace('suspend', 'stop') + 'force: true\n')
    assert (found.force, found.undefine, found.list[0].force) == (True, False, None)


@pytest.mark.parametrize('old, new, field, problem', [
    ('id: 8d7e6f7a', 'ID: 8d7e6f7a', 'ID', 'no such field'),
    (f'id: {ID}', 'id: [1]', 'id', 'should be a valid string'),
    (f'id: {ID}', 'id: a b', 'id', 'should match pattern'),
    (f'id: {ID}\n', '', 'id', 'it is missing'),
    ('host: node1', 'host: node2', 'host', 'the task came on the topic of node1'),
    ('host: node1', 'host: 1', 'host', 'should be a valid string'),
    ('task: migrate vm', 'task: migrate', 'task', 'must be one of start vm, stop vm'),
    ('task: migrate vm', 'task: {}', 'task', 'must be one of'),
    ('destination: node2', 'destination: "node/2"', 'destination', 'is no name of a host'),
    ('destination: node2', 'destination: "node+"', 'destination', 'is no name of a host'),
    ('destination: node2', 'destination: "node2\\n"', 'destination', 'is no name of a host'),
    ('destination: node2\n', '', 'destination', 'it is missing'),
    ('destination:', 'destnation:', 'destnation', 'no such field'),
    ('vm-name: vm-1', 'vm_name: vm-1', 'vm_name', 'no such field'),
    ('vm-name: vm-1', 'vm-name: 12', 'vm-name', 'should be a valid string'),
    ('vm-name: vm-1', 'vm-name: "a\\nb"', 'vm-name', 'cannot be printed'),
    ('vm-name: vm-1', 'vm-name: ""', 'vm-name', 'at least 1 character'),
    ('vm-name: vm-1', f'vm-name: {"a" * 256}', 'vm-name', 'at most 255 characters'),
    ('time-measurement: true', 'time-measurement: 1', 'time-measurement', 'valid boolean'),
    ('retry-counter: 3', 'retry-counter: -1', 'parameter.retry-counter', 'greater than or equal'),
    ('retry-counter: 3', 'retry-counter: 3.0', 'parameter.retry-counter', 'valid integer'),
    ('retry-counter: 3', 'retry-counter: 101', 'parameter.retry-counter', 'less than or equal'),
    ('retry-counter: 3', 'retry-counter: 2026-01-01', 'parameter.retry-counter', 'valid integer'),
    ('migration-type: live', 'migration-type: hot', 'parameter.migration-type',
     "should be 'live', 'warm' or 'offline'"),
    ('pscom-hook-procs: 2', 'pscom-hook-procs: many', 'parameter.pscom-hook-procs', 'integer'),
    ('[[4], [5, 6]]', '[[4], []]', 'parameter.vcpu-map.1', 'at least 1 item'),
    ('[[4], [5, 6]]', '[4, 5]', 'parameter.vcpu-map.0', 'valid array'),
    ('[[4], [5, 6]]', '[[-4]]', 'parameter.vcpu-map.0.0', 'greater than or equal'),
    ('parameter:', 'parameter: &a', 'line 8', 'anchors and aliases are not allowed'),
    ('destination: node2', 'destination: !!python/name:os.system node2', 'line 6',
     'tags are not allowed'),
    ('destination: node2', 'destination: node2\ndestination: node3', 'line 7',
     'is written twice'),
    ('destination: node2', 'destination: ' + '[' * 20 + ']' * 20, 'line 6', 'nested too deeply')])
def test_a_wrong_value_is_refused_with_its_field(old, new, field, problem):
    text = TASKS[MigfraRequestKind.MIGRATE]
    assert old in text
    with pytest.raises(task_reader.MessageRefused) as caught:
        parse(text.replace(old, new, 1))
    assert caught.value.kwargs['field'] == field, str(caught.value)
    assert problem in caught.value.kwargs['problem']


def test_a_refusal_bears_what_could_be_read():
    with pytest.raises(task_reader.MessageRefused) as caught:
        parse(TASKS[MigfraRequestKind.STOP] + 'more: 1\n')
    assert (caught.value.request_id, caught.value.kind) == (ID, MigfraRequestKind.STOP)
    with pytest.raises(task_reader.MessageRefused) as caught:
        parse(f'id: {ID}\ntask: quit\n')
    assert (caught.value.request_id, caught.value.kind) == (ID, None)


@pytest.mark.parametrize('written, said', [
    ('"<b>"', '<b>'), ('42', 42), ('0x10', '0x10'), ('010', '010'), ('1_0', '1_0'),
    ('12:30', '12:30'), ('2026-11-24', '2026-11-24'), ('-3', -3), ('"a b"', 'a b'),
    ('0x' + 'f' * 250, '0x' + 'f' * 250), ('[1]', None), ('true', None), ('1.5', '1.5'),
    ('1.50', '1.50'), ('"a\\nb"', None), ('9' * 30, '9' * 30), ('0x' + 'f' * 5000, None),
    ('0' + '7' * 5000, None), ('a' * 300, None)])
def test_a_refusal_repeats_an_id_that_is_a_number_or_printable(written, said):
    with pytest.raises(task_reader.MessageRefused) as caught:
        parse(f'id: {written}\ntask: stop vm\n')
    assert (caught.value.request_id, caught.value.kind) == (said, MigfraRequestKind.STOP)
    assert yaml.safe_load(refusal(caught.value))['id'] == said


def refusal(error):
    return replies.format_refusal(error.kind, error.request_id, 'global', str(error), error.named)


@pytest.mark.parametrize('kind', MigfraRequestKind)
def test_a_refusal_has_the_shape_of_the_results_of_its_kind(kind):
    with pytest.raises(task_reader.MessageRefused) as caught:
        parse(TASKS[kind] + 'more: 1\n')
    found = yaml.safe_load(refusal(caught.value))
    items = found.pop('list') if kind in replies.LISTS else [found]
    assert (found['result'], found['id'], found['status']) == (replies.RESULTS[kind], ID, 'error')
    names = {MigfraRequestKind.START: ['vm-1', ''], MigfraRequestKind.EVACUATE: [''],
             MigfraRequestKind.STOP: ['vm-1', 'vm-2'],
             MigfraRequestKind.SUSPEND: ['vm-1', 'vm-2']}.get(kind, ['vm-1'])
    assert [item['vm-name'] for item in items] == names
    for item in items:
        assert (item['status'], item['details']) == ('error', 'more: no such field')
        has_process = kind in (MigfraRequestKind.START, MigfraRequestKind.MIGRATE,
                               MigfraRequestKind.EVACUATE)
        assert ('process-id' in item) == has_process and item.get('process-id') is None


@pytest.mark.parametrize('items', ['', 'list: 3\n', 'list: []\n', 'list: [1, {vm-name: [2]}]\n',
                                   'list: {vm-name: a}\n'])
def test_a_refused_list_is_never_empty(items):
    with pytest.raises(task_reader.MessageRefused) as caught:
        parse(f'task: stop vm\nid: {ID}\n{items}')
    found = yaml.safe_load(refusal(caught.value))['list']
    assert found and all(one['status'] == 'error' and one['vm-name'] == '' for one in found)


@pytest.mark.parametrize('number', ['0x' + 'F' * 6000, '0b' + '1' * 20_000, '1' + ':59' * 5000])
@pytest.mark.parametrize('field', ['retry-counter: 3', 'destination: node2', 'id: ' + ID])
def test_a_number_of_thousands_of_digits_is_refused(number, field):
    text = TASKS[MigfraRequestKind.MIGRATE].replace(field, f'{field.partition(":")[0]}: {number}')
    with pytest.raises(task_reader.MessageRefused):
        parse(text)


def test_a_stored_document_may_exceed_the_message_limit():
    text = TASKS[MigfraRequestKind.START].replace('<domain/>', 'ä' * 100_000)
    found = parse(text)
    kept = requests.MigfraRequest(ID, 'node1', MigfraRequestKind.START,
                                  request_handler.format_document(found), '',
                                  0.0)
    assert request_handler.parse_task(kept) == found


@pytest.mark.parametrize('payload, problem', [
    (b'\xff\xfe', 'it is not UTF-8 text'), (b'', 'it is no mapping of fields'),
    (b'- 1', 'it is no mapping of fields'), (b'a' * (task_reader.MAX_BYTES + 1), 'longer than 256'),
    (b'x: [' + b'1,' * 21_000 + b'1]', 'holds more than 20000 values')])
def test_other_yaml_is_refused(payload, problem):
    with pytest.raises(task_reader.MessageRefused, match=problem):
        task_reader.parse_task(payload, 'node1')


def test_a_machine_to_start_has_a_name_or_a_domain():
    for item in ('{vm-name: a, xml: b}', '{memory: 1}'):
        with pytest.raises(task_reader.MessageRefused, match='needs vm-name or xml, not both'):
            parse(f'task: start vm\nid: {ID}\nvm-configurations: [{item}]\n')


@pytest.mark.parametrize('written, number', [('0x15b3', 0x15b3), ('"15b3"', 0x15b3),
                                             ('"0X15B3"', None), ('0x10000', None),
                                             ('15b3', 0x15b3), ('"8086"', 0x8086), ('10e8', 0x10e8),
                                             ('"mlx"', None), ('true', None), ('-0x1', None)])
def test_devices_are_hexadecimal_with_0x_and_in_quotes(written, number):
    text = TASKS[MigfraRequestKind.START].replace('0x15b3', written)
    if number is None:
        with pytest.raises(task_reader.MessageRefused, match='pci-ids'):
            parse(text)
    else:
        assert parse(text).vm_configurations[1].pci_ids[0].vendor == number


@pytest.mark.parametrize('written', ['8086', '5555', '0755', '65536', '-1', '0b11'])
@pytest.mark.parametrize('field', ['vendor: 0x15b3', 'device: 0x1004'])
def test_a_device_in_decimal_may_mean_two_and_is_refused(written, field):
    name = field.partition(':')[0]
    with pytest.raises(task_reader.MessageRefused) as refused:
        parse(TASKS[MigfraRequestKind.START].replace(field, f'{name}: {written}'))
    assert str(refused.value).startswith(f'vm-configurations.1.pci-ids.0.{name}: is hexadecimal')
    assert 'write it with 0x' in str(refused.value)
    assert refused.value.request_id == ID and refused.value.kind is MigfraRequestKind.START


@pytest.mark.parametrize('rest', ['[1, {a: 1}]', '{a: 1}', '[{pci-ids: 1}]', '[{pci-ids: [1]}]',
                                  '[{vm-name: a, pci-ids: [{"a\\nb": 1}]}]'])
def test_a_value_that_is_not_a_list_is_refused_in_one_line(rest):
    with pytest.raises(task_reader.MessageRefused) as refused:
        parse(f'task: start vm\nid: {ID}\nvm-configurations: {rest}\n')
    assert '\n' not in str(refused.value)


def test_other_numbers_may_be_written_as_they_like():
    text = TASKS[MigfraRequestKind.START].replace('vcpus: 2', 'vcpus: 0x2')
    assert parse(text).vm_configurations[0].vcpus == 2


@junk.examples(300)
@hypothesis.given(data=st.data())
def test_anything_is_a_task_or_refused(data):
    kind = data.draw(st.sampled_from(sorted(MigfraRequestKind)))
    document = data.draw(junk.spoiled(yaml.safe_load(TASKS[MigfraRequestKind(kind)])))
    try:
        text = yaml.dump(document, allow_unicode=True).encode('utf-8', 'replace')
    except (yaml.YAMLError, ValueError):
        hypothesis.reject()
    try:
        found = task_reader.parse_task(text, 'node1')
    except task_reader.MessageRefused as e:
        assert str(e).isprintable() and len(str(e)) < 500
        reply = yaml.safe_load(refusal(e))
        assert reply['status'] == 'error' and reply.get('list') != []
    else:
        assert task_reader.parse_stored_task(request_handler.format_document(found)) == found


@junk.examples(200)
@hypothesis.given(st.binary(max_size=200) | st.text(max_size=200).map(
    lambda text: text.encode('utf-8', 'replace')))
def test_any_bytes_are_refused_or_a_task(payload):
    try:
        task_reader.parse_task(payload, 'node1')
    except task_reader.MessageRefused as e:
        assert str(e).isprintable()


# Results.

def test_results_have_the_fields_of_the_protocol_in_its_order():
    one = replies.InstanceResult('vm-1', replies.SUCCESS, '2', {'running': 1.23456})
    text = replies.build_single_result(MigfraRequestKind.MIGRATE, ID, 'global', one)
    assert text == f'''\
scheduler: global
result: vm migrated
id: {ID}
vm-name: vm-1
status: success
details: '2'
process-id: null
time-measurement:
- running: 1.235
'''
    text = replies.build_list_result(MigfraRequestKind.EVACUATE, ID, 'batch', [one], {'total': 2.0})
    assert list(yaml.safe_load(text)) == ['scheduler', 'result', 'id', 'time-measurement', 'list']
    text = replies.build_list_result(MigfraRequestKind.STOP, ID, 'batch',
                                     [replies.InstanceResult('vm-1', replies.ERROR, 'why')])
    assert yaml.safe_load(text) == {
        'scheduler': 'batch', 'result': 'vm stopped', 'id': ID,
        'list': [{'vm-name': 'vm-1', 'status': 'error', 'details': 'why'}]}


def test_every_kind_of_task_has_a_result():
    assert set(replies.RESULTS) == set(MigfraRequestKind)
    assert len(set(replies.RESULTS.values())) == len(MigfraRequestKind)
    assert replies.LISTS < set(MigfraRequestKind)


@junk.examples(100)
@hypothesis.given(junk.texts, junk.texts)
def test_any_name_and_reason_is_text_in_yaml(name, details):
    hypothesis.assume('\ud800' not in name + details)
    found = yaml.safe_load(replies.build_single_result(
        MigfraRequestKind.REPIN, ID, 'global',
        replies.InstanceResult(name, replies.ERROR, details)))
    assert {k: v for k, v in found.items() if k in ('vm-name', 'details', 'status')} == {
        'vm-name': name, 'status': 'error', 'details': details}


# What may be asked for.

def test_operations_of_permits_are_those_of_the_protocol():
    assert tuple(kind.replace(' ', '-') for kind in MigfraRequestKind) == permits.OPERATIONS


@pytest.mark.parametrize('text, problem', [
    ('', 'permits nothing'), ('*', 'permits nothing'), ('*:*', 'permits nothing'),
    ('*:*:', 'permits nothing'), (':*:*', 'permits nothing'), ('*: , :*', 'permits nothing'),
    ('migrate vm:*:*', "'migrate vm' is no operation"), ('delete-vm:*:*', 'is no operation')])
def test_a_permit_that_means_nothing_is_refused(text, problem):
    with pytest.raises(ValueError, match=problem):
        permits.PermitType()(text)


def test_permits_are_operations_by_projects_by_scopes():
    found = [permits.PermitType()(text) for text in (
        'migrate-vm,stop-vm:p1,p2:rack-1', 'stop-vm:p3:rack-1', '*:*:lab:a', 'start-vm:p1:*')]
    asked = permits.list_permitted_projects
    assert asked(found, 'migrate-vm', 'rack-1') == {'p1', 'p2'}
    assert asked(found, 'stop-vm', 'rack-1') == {'p1', 'p2', 'p3'}
    assert asked(found, 'migrate-vm', 'rack-2') == frozenset()
    assert asked(found, 'repin-vm', 'lab:a') is None, 'a scope may have colons'
    assert asked(found, 'start-vm', 'anywhere') == {'p1'}
    assert asked([], 'start-vm', 'rack-1') == frozenset(), 'nothing, unless it is named'


def test_a_permit_is_written_as_it_is_read():
    read = permits.PermitType()
    pick = random.Random(1)
    for _ in range(50):
        parts = [pick.sample(permits.OPERATIONS, 2), ['p1', 'p2'], ['s', 'x']]
        text = ':'.join('*' if pick.random() < 0.3 else ','.join(sorted(p)) for p in parts)
        assert read(read._formatter(read(text))) == read(text)
