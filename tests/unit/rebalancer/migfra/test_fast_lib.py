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


"""Messages as the original fast-lib writes them, of all its releases."""

import pytest
import yaml

from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra import task_reader
from kronos_nova.rebalancer.migfra.protocol import MessageDialect
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind

#: Message -> fields of the task that is read.
ACCEPTED = [
    # Start: a defined machine, with all that is optional, and without.
    ('task: start vm\nvm-configurations:\n  - vm-name: vm1\n    vcpus: 8\n    memory: 8388608\n'
     '    pci-ids:\n      - vendor: 0x15b3\n        device: 0x1004\nconcurrent-execution: true\n',
     {'id': None, 'vm_configurations.0.memory': 8388608,
      'vm_configurations.0.pci_ids.0.vendor': 0x15b3}),
    ('task: start vm\nvm-configurations:\n  - vm-name: vm1\n    concurrent-execution: true\n'
     '    time-measurement: false\n    driver: qemu\nid: 42\n',
     {'id': 42, 'vm_configurations.0.vm_name': 'vm1'}),
    ('task: start vm\nvm-configurations:\n  - xml: "<xml>\\n</xml>"\n  - vm-name: vm1\n'
     '    vcpus: 2\n    memory: 2097152\nid: 42\n', {'vm_configurations.0.xml': '<xml>\n</xml>'}),
    ('task: start vm\nvm-configurations:\n  - vm-name: 17\n    xml: ~\n    memory: ~\n'
     '    transient: ~\n    ivshmem: ~\n', {'vm_configurations.0.vm_name': '17'}),
    # Stop: of today, and of the time before lists.
    ('task: stop vm\nlist:\n  - vm-name: vm1\n    force: false\n    undefine: true\nid: 42\n',
     {'list.0.force': False, 'list.0.undefine': True}),
    ('task: stop vm\nlist:\n  - vm-name: vm1\n  - vm-name: 2\n', {'list.1.vm_name': '2'}),
    ('task: stop vm\nvm-configurations:\n  - vm-name: vm1\n    force: true\n'
     'concurrent-execution: false\nid: ""\n'.replace('""', '~'), {'list.0.force': True}),
    # Suspend and resume.
    ('task: suspend vm\nlist:\n  - vm-name: vm1\n    concurrent-execution: false\n',
     {'list.0.vm_name': 'vm1'}),
    ('task: resume vm\nlist:\n  - vm-name: vm1\ntime-measurement: true\n',
     {'list.0.vm_name': 'vm1'}),
    # Migrate: of today, of the time of live-migration, swaps.
    ('task: migrate vm\nvm-name: vm1\ndestination: server-B\nparameter:\n'
     '  migration-type: warm\n  rdma-migration: true\n  pscom-hook-procs: 2\n'
     '  vcpu-map: [[0, 1, 2, 3], [0, 1, 2, 3]]\n',
     {'parameter.migration_type': 'warm', 'parameter.pscom_hook_procs': 2}),
    ('task: migrate vm\nvm-name: vm1\ndestination: desthost\ntime-measurement: true\n'
     'parameter:\n  migration-type: live\nid: 42\n', {'time_measurement': True}),
    ('task: migrate vm\nvm-name: 4\ndestination: 5\n', {'vm_name': '4', 'destination': '5'}),
    ('task: migrate vm\nvm-name: vm1\ndestination: b\nparameter: ~\n',
     {'parameter.retry_counter': None}),
    ('task: migrate vm\nvm-name: vm1\ndestination: b\nparameter:\n  pscom-hook-procs: "3"\n'
     '  transport: rdma\n  retry_counter: 2\n',
     {'parameter.pscom_hook_procs': 3, 'parameter.retry_counter': 2}),
    ('task: migrate vm\nvm-name: vm1\ndestination: b\ndriver: qemu\nparameter:\n'
     '  live-migration: true\n  rdma-migration: false\n  pscom-hook-procs: 0\n',
     {'parameter.migration_type': 'live'}),
    ('task: migrate vm\nvm-name: vm1\ndestination: b\nparameter:\n  live-migration: false\n',
     {'parameter.migration_type': 'warm'}),
    ('task: migrate vm\nvm-name: vm1\ndestination: b\nparameter:\n  swap-with: vm2\n',
     {'parameter.swap_with.vm_name': 'vm2'}),
    ('task: migrate vm\nvm-name: vm1\ndestination: b\nparameter:\n  swap-with:\n'
     '    vm-name: 9\n    pscom-hook-procs: "1"\n    vcpu-map: ~\n',
     {'parameter.swap_with.vm_name': '9', 'parameter.swap_with.pscom_hook_procs': 1}),
    # Evacuate and repin.
    ('task: evacuate node\ndestinations: [b, 7]\nparameter:\n  retry_counter: 3\n  mode: auto\n'
     '  overbooking: ~\nconcurrent-execution: true\n',
     {'destinations.1': '7', 'parameter.retry_counter': 3}),
    ('task: repin vm\nvm-name: vm1\nvcpu-map: [[0], [1], [2], [3]]\ntime-measurement: false\n',
     {'vm_name': 'vm1', 'vcpu_map.3.0': 3})]
#: Message -> field and a word of the reason.
REFUSED = [
    ('task: quit\n', 'task', 'stopped as a service'),
    ('task: start vm\nvm-configurations:\n  - vm-name: vm1\n    ivshmem: {size: 1, id: a}\n',
     'vm-configurations.0.ivshmem', 'Nova has no shared memory'),
    ('task: migrate vm\nvm-name: vm1\ndestination: b\nparameter:\n  pscom-hook-procs: auto\n',
     'parameter.pscom-hook-procs', 'Nova does not tell which processes'),
    ('task: migrate vm\nvm-name: vm1\ndestination: b\nparameter:\n'
     '  swap-with: {vm-name: vm2, pscom-hook-procs: auto}\n',
     'parameter.swap-with.pscom-hook-procs', 'Nova does not tell which processes')]


def read(text, dialect=MessageDialect.FAST_LIB):
    notes = []
    return task_reader.parse_task(text.encode(), 'node1', dialect, notes.append), notes


@pytest.mark.parametrize('text, fields', ACCEPTED)
def test_messages_of_fast_lib_are_read(text, fields):
    found, _ = read(text)
    for path, expected in fields.items():
        value = found
        for part in path.split('.'):
            value = value[int(part)] if part.isdecimal() else getattr(value, part)
        assert value == expected and type(value) is not bool or value is expected, path
    assert task_reader.parse_stored_task(request_handler.format_document(found)) == found


@pytest.mark.parametrize('text, field, reason', REFUSED)
def test_fields_without_an_equivalent_in_nova_are_refused_by_name(text, field, reason):
    with pytest.raises(task_reader.MessageRefused) as caught:
        read(text)
    assert caught.value.kwargs['field'] == field
    assert reason in caught.value.kwargs['problem']


@pytest.mark.parametrize('text, fields', ACCEPTED)
def test_the_strict_dialect_refuses_what_the_protocol_does_not_have(text, fields):
    with pytest.raises(task_reader.MessageRefused):
        read(text, MessageDialect.STRICT)


@pytest.mark.parametrize('name', [
    '010', '0x1F', '1_000', '12:30', '1.10', '1e3', '-0', '0b11', '2026-11-24', '7.', '0o7',
    '2026-11-24 10:00:00'])
def test_a_name_that_looks_like_a_number_is_the_text_that_was_written(name):
    """010 is not the server 8."""
    found, _ = read(f'task: migrate vm\nvm-name: {name}\ndestination: {name.partition(" ")[0]}\n'
                    f'id: {name}\nparameter: {{swap-with: {{vm-name: {name}}}}}\n')
    assert (found.vm_name, found.parameter.swap_with.vm_name, found.id) == (name, name, name)
    assert found.destination == name.partition(' ')[0]
    found, _ = read(f'task: stop vm\nlist: [{{vm-name: {name}}}]\n')
    assert found.list[0].vm_name == name
    found, _ = read(f'task: evacuate node\ndestinations:\n- {name.partition(" ")[0]}\n')
    assert found.destinations == (name.partition(' ')[0],)


def test_ignored_fields_give_notes():
    _, notes = read('task: migrate vm\nvm-name: a\ndestination: b\ndriver: qemu\n'
                    'concurrent-execution: true\nparameter: {transport: rdma}\n')
    assert sorted(note.partition(' ')[0] for note in notes) == [
        'concurrent-execution', 'driver', 'parameter.transport']


@pytest.mark.parametrize('text', [
    'task: migrate vm\nvm-name: a\ndestination: b\nparameter: {swap-wiht: c}\n',
    'task: migrate vm\nvm-name: a\ndestnation: b\n', 'task: stop vm\nlist: [3]\n',
    'task: migrate vm\nvm-name: true\ndestination: b\n', 'id: [1]\ntask: stop vm\n',
    'task: stop vm\nid: "a\\nb"\nlist: [{vm-name: a}]\n', 'task: [1]\n'])
def test_mistakes_are_refused_in_this_dialect_too(text):
    with pytest.raises(task_reader.MessageRefused):
        read(text)


def test_a_kind_of_task_is_among_the_examples():
    assert {yaml.safe_load(text)['task'] for text, _ in ACCEPTED} == set(MigfraRequestKind)
    assert len(ACCEPTED) + len(REFUSED) == 24
