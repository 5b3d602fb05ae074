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


"""The hook pscom at a real broker, with processes that answer as pscom does."""

import contextlib
import dataclasses
import json
import time

import pytest
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.hooks import pscom
from tests.integration import servers as programs
from tests.integration import test_mosquitto
from tests.unit.rebalancer.hooks import servers

#: A request for each process, on topics of the compute host and the instance.
PER_PROCESS = {'pscom_request_topic': 'pscom/{host}/{name}/{process}/request',
               'pscom_response_topic': 'pscom/{host}/{name}/{process}/response'}
CALL = servers.call(task=dataclasses.replace(servers.TASK, instance_name='vm-1'))
COMPLETED = model.Attempt('h2', 1.0, 2.0)
FAILED = model.Attempt('h2', 1.0, 2.0, 'MigrationFailed', 'no')


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, 'it does not come'
        time.sleep(0.02)
    return found


class Processes:
    """pscom of guests: it listens under the guest's name and speaks only when asked."""

    def __init__(self, client, there, deaf=()):
        self.client, self.there, self.deaf = client, there, set(deaf)
        self.heard = []
        client.on_message = self._heard
        client.subscribe('fast/pscom/+/+/request', qos=1)

    def _heard(self, client, userdata, message):
        _fast, _pscom, guest, asked, _kind = message.topic.split('/')
        self.heard.append((guest, asked, yaml.safe_load(message.payload)['task']))
        for process in self.there.get(guest, ()):
            if asked in ('any_proc', process) and process not in self.deaf:
                client.publish(f'fast/pscom/{guest}/{process}/response', b'done', qos=1)

    def leave(self, guest, process, payload=b'here'):
        """Leave a retained message, as a start script of the guest may do."""
        self.client.publish(f'fast/pscom/{guest}/{process}/response', payload, qos=1,
                            retain=True).wait_for_publish(20)


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    with programs.mosquitto(tmp_path_factory.mktemp('broker'),
                            users={'kronos': 'secret', 'pscom': 'other'}) as found:
        yield found


def conf_of(broker, processes=(), **values):
    options = {'mqtt_host': '127.0.0.1', 'mqtt_port': broker.port, 'mqtt_username': 'kronos',
               'mqtt_password': 'secret', **values}
    return servers.conf(pscom_processes=list(processes), **options)


@contextlib.contextmanager
def hook_of(broker, processes=(), **values):
    hook = pscom.PscomHook.create(conf_of(broker, processes, **values), None)
    try:
        until(lambda: hook.client.is_ready)
        yield hook
    finally:
        hook.close()


@contextlib.contextmanager
def guests_of(broker, there, deaf=()):
    with test_mosquitto.connected(broker.port, user=('pscom', 'other')) as (client, _r, messages):
        yield Processes(client, there, deaf)


def call_of(name, number=None, **values):
    """The move of an instance of that name; so many processes are to answer."""
    task = dataclasses.replace(servers.TASK, instance_name=name, **values)
    return servers.call(task=task, parameters={} if number is None else {'processes': number})


def called(hook, when, call, ended=None):
    marked = dataclasses.replace(call, marker=call.marker or hook.marker(call), ended=ended)
    servers.ended(getattr(hook, when)(marked), 20)
    return marked


def begun(hook, call):
    return hook.before(dataclasses.replace(call, marker=hook.marker(call)))


def seen(hook, name='vm-1'):
    return hook.client.list_answering({'host': 'h1', 'name': name,
                                       'uuid': servers.TASK.instance_uuid})


@pytest.mark.parametrize('protocol', ['3.1.1', '5'])
def test_one_request_reaches_all_silent_processes_of_guest(broker, protocol):
    there = {'vm-1': ['11', '12'], 'vm-2': ['21', '22']}
    with guests_of(broker, there) as guests, hook_of(broker, mqtt_protocol=protocol) as hook:
        call = called(hook, 'before', call_of('vm-1', 2))
        assert guests.heard == [('vm-1', 'any_proc', 'suspend')]
        guests.heard.clear()
        # What is owed after a migration bears no name of a tenant.
        unnamed = dataclasses.replace(call, task=dataclasses.replace(call.task, instance_name=''))
        called(hook, 'after', unnamed, COMPLETED)
        assert until(lambda: guests.heard) == [('vm-1', 'any_proc', 'resume')]


def test_answers_of_other_instance_on_same_host_do_not_count(broker):
    there = {'vm-1': ['11'], 'vm-2': ['21']}
    with guests_of(broker, there, deaf=['11']) as guests, hook_of(broker) as hook:
        step = begun(hook, call_of('vm-1', 1))
        until(lambda: step.poll(0.0) or guests.heard)
        called(hook, 'before', call_of('vm-2', 1))
        assert seen(hook, 'vm-2') == {'21'}, 'the other one has answered by now'
        assert step.poll(0.0) is False
        guests.client.publish('fast/pscom/vm-1/11/response', b'done', qos=1)
        until(lambda: step.poll(0.0))


def test_uuid_topics_distinguish_instances_with_same_name(broker):
    topics = {'pscom_request_topic': 'pscom/{uuid}/any_proc/request',
              'pscom_response_topic': 'pscom/{uuid}/{process}/response'}
    one, two = servers.TASK.instance_uuid, '00000000-0000-4000-8000-000000000002'
    there = {one: ['1'], two: ['2']}
    with guests_of(broker, there) as guests, hook_of(broker, **topics) as hook:
        called(hook, 'before', call_of('web', 1))
        called(hook, 'before', call_of('web', 1, instance_uuid=two))
        assert [guest for guest, _, _ in guests.heard] == [one, two]


def test_payload_template_quotes_its_values(broker):
    values = {'pscom_suspend_payload': '{task: suspend, of: {name}, at: {host}, by: {uuid}}'}
    with test_mosquitto.connected(broker.port, user=('pscom', 'other')) as (client, _r, heard):
        test_mosquitto.subscribe(client, 'fast/pscom/+/any_proc/request')
        with hook_of(broker, **values) as hook:
            begun(hook, call_of('a, task: resume}', 1)).poll(0.0)
            _topic, payload = heard.get(timeout=20)
    assert yaml.safe_load(payload) == {'task': 'suspend', 'of': 'a, task: resume}', 'at': 'h1',
                                       'by': servers.TASK.instance_uuid}


def test_per_process_topics_reach_each_known_process(broker):
    topics = {'pscom_request_topic': 'pscom/{name}/{process}/request'}
    with guests_of(broker, {'vm-1': ['31', '32']}) as guests:
        guests.leave('vm-1', '31')
        guests.leave('vm-1', '32')
        guests.leave('vm-9', '33')
        with hook_of(broker, **topics) as hook:
            until(lambda: len(seen(hook)) == 2)
            call = called(hook, 'before', call_of('vm-1'))
            assert sorted(guests.heard) == [('vm-1', '31', 'suspend'), ('vm-1', '32', 'suspend')]
            with hook_of(broker, processes=['vm-7/1'], **topics) as other:
                called(other, 'after', call)
            until(lambda: ('vm-1', '32', 'resume') in guests.heard)
        for guest, process in (('vm-1', '31'), ('vm-1', '32'), ('vm-9', '33')):
            guests.leave(guest, process, b'')


@pytest.mark.parametrize('ended, hosts', [(COMPLETED, ['h1', 'h2']), (None, ['h1', 'h2']),
                                          (FAILED, ['h1'])])
def test_resume_reaches_every_possible_host_of_process(broker, ended, hosts):
    with test_mosquitto.connected(broker.port, user=('pscom', 'other')) as (client, _r, heard):
        test_mosquitto.subscribe(client, 'fast/pscom/+/+/+/request')
        with hook_of(broker, processes=['vm-1/41'], **PER_PROCESS) as hook:
            called(hook, 'after', CALL, ended)
            assert [heard.get(timeout=20)[0] for _ in hosts] == [
                f'fast/pscom/{host}/vm-1/41/request' for host in hosts]
            assert hook.client.is_ready and heard.empty()


def test_suspend_waits_for_announced_number_of_processes(broker):
    with guests_of(broker, {'vm-1': ['41', '42']}, deaf=['42']) as guests, hook_of(broker) as hook:
        step = begun(hook, call_of('vm-1', 2))
        until(lambda: step.poll(0.0) or seen(hook) == {'41'})
        assert step.poll(0.0) is False and len(guests.heard) == 1
        called(hook, 'before', call_of('vm-1', 1))


def test_answer_before_request_does_not_count(broker):
    with guests_of(broker, {}) as guests, hook_of(broker) as hook:
        guests.client.publish('fast/pscom/vm-1/51/response', b'done', qos=1).wait_for_publish(20)
        until(lambda: hook.client.count_answers() == 1)
        step = begun(hook, call_of('vm-1', 1))
        until(lambda: step.poll(0.0) or guests.heard)
        assert step.poll(0.0) is False


@pytest.mark.parametrize('instance', ['vm-1', servers.TASK.instance_uuid])
def test_listed_processes_replace_seen_processes(broker, instance):
    topics = {'pscom_request_topic': 'pscom/{name}/{process}/request'}
    listed = [f'{instance}/62', f'{instance}/63']
    with guests_of(broker, {'vm-1': ['61', '62', '63']}) as guests:
        guests.leave('vm-1', '61')
        with hook_of(broker, processes=listed, **topics) as hook:
            until(lambda: seen(hook))
            called(hook, 'before', call_of('vm-1'))
            assert sorted(guests.heard) == [('vm-1', '62', 'suspend'), ('vm-1', '63', 'suspend')]
        guests.leave('vm-1', '61', b'')


def test_missing_processes_fail_before_any_request(broker):
    with hook_of(broker, **PER_PROCESS) as hook:
        with pytest.raises(base.StepFailed,
                           match='knows 0 processes of the instance, and 4 are to'):
            called(hook, 'before', call_of('vm-1', 4))


@pytest.mark.parametrize('number', [None, 0])
def test_instance_without_processes_gets_no_suspend_request(broker, number):
    with guests_of(broker, {}) as guests, hook_of(broker) as hook:
        call = called(hook, 'before', call_of('vm-1', number))
        called(hook, 'after', call, COMPLETED)
        assert json.loads(call.marker) == {'processes': [], 'expected': number, 'name': 'vm-1'}
        assert guests.heard == []


def test_process_with_cleared_retained_message_is_gone(broker):
    with guests_of(broker, {}) as guests, hook_of(broker) as hook:
        guests.leave('vm-1', '81')
        until(lambda: seen(hook) == {'81'})
        guests.leave('vm-1', '81', b'')
    with hook_of(broker) as hook:
        assert seen(hook) == set()


def test_resume_succeeds_after_broker_restart(tmp_path):
    with programs.mosquitto(tmp_path, users={'kronos': 'secret', 'pscom': 'other'}) as own:
        with hook_of(own) as hook:
            call = call_of('vm-1', 1)
            call = dataclasses.replace(call, marker=hook.marker(call))
            own.stop()
            until(lambda: not hook.client.is_ready)
            step = hook.after(call)
            assert step.poll(0.0) is False
            own.start()
            with guests_of(own, {}) as guests:
                servers.ended(step, 40)
                until(lambda: ('vm-1', 'any_proc', 'resume') in guests.heard)


@pytest.mark.parametrize('name', ['h+', 'h#', 'a/b', 'a\x00', '', '$SYS', 'x' * 256, 'a\ud800'])
def test_unsafe_name_fails_only_moves_with_processes(broker, name):
    with hook_of(broker) as hook:
        with pytest.raises(base.StepFailed, match='topic'):
            hook.marker(call_of(name, 1))
        call = called(hook, 'before', call_of(name))
        called(hook, 'after', call, COMPLETED)


@pytest.mark.parametrize('listed', ['h1', 'h1/', '/1', 'h1/a/b', 'h+/1', 'h1/#', 'h1/a\x00'])
def test_malformed_listed_process_is_refused(listed):
    with pytest.raises(exception.ConfigError, match='INSTANCE/PROCESS'):
        pscom.PscomHook.create(servers.conf(mqtt_host='x', pscom_processes=[listed]), None)


@pytest.mark.parametrize('option, value, problem', [
    ('request_topic', 'pscom/{host}/request', 'another instance would count'),
    ('response_topic', 'pscom/{host}/{process}/response', 'another instance would count'),
    ('response_topic', 'pscom/{name}/response', 'answers cannot be counted'),
    ('request_topic', 'pscom/{name}-{process}', 'neither a plain level nor a placeholder'),
    ('request_topic', 'pscom/{name}/+', 'neither a plain level nor a placeholder'),
    ('request_topic', 'pscom//{name}', 'neither a plain level nor a placeholder'),
    ('request_topic', 'pscom/{name}/{guest}', 'unknown placeholder {guest}'),
    ('request_topic', 'pscom/{name}/{name}', 'stands there twice'),
    ('resume_payload', 'task: resume, {uid}', 'unknown placeholder {uid}')])
def test_invalid_template_is_refused_at_start(option, value, problem):
    with pytest.raises(exception.ConfigError) as caught:
        pscom.PscomHook.create(servers.conf(mqtt_host='x', **{f'pscom_{option}': value}), None)
    assert caught.value.kwargs['field'] == f'[hook_pscom] {option}'
    assert problem in caught.value.kwargs['problem']


@pytest.mark.parametrize('number', [-1, 1.5, True, 'four', 10**9])
def test_number_of_processes_must_be_whole_number(broker, number):
    with hook_of(broker) as hook:
        with pytest.raises(base.StepFailed, match='whole number'):
            hook.marker(call_of('vm-1', number))


def test_refused_login_is_logged_and_never_ready(broker, caplog):
    hook = pscom.PscomHook.create(conf_of(broker, mqtt_password='wrong-password'), None)
    try:
        until(lambda: 'refuses us' in caplog.text)
        assert not hook.client.is_ready and 'wrong-password' not in caplog.text
    finally:
        hook.close()


def test_hook_connects_with_tls(tmp_path):
    authority = programs.Authority(tmp_path)
    with programs.mosquitto(tmp_path, tls=authority) as own:
        with hook_of(own, mqtt_tls=True, mqtt_ca_file=str(authority.ca)) as hook:
            assert hook.client.is_ready
    with pytest.raises(exception.ConfigError, match='cannot be used'):
        pscom.PscomHook.create(servers.conf(
            mqtt_host='x', mqtt_tls=True, mqtt_ca_file='/nowhere'), None)


def test_hook_without_broker_names_missing_option():
    with pytest.raises(exception.ConfigError, match=r'\[mqtt\] host'):
        pscom.PscomHook.create(servers.conf(), None)


def test_topics_have_broker_prefix(broker):
    with test_mosquitto.connected(broker.port, user=('pscom', 'other')) as (client, _r, heard):
        test_mosquitto.subscribe(client, 'slow/pscom/+/+/request')
        with hook_of(broker, mqtt_prefix='slow') as hook:
            client.publish('fast/pscom/vm-1/4/response', b'x', qos=1).wait_for_publish(20)
            client.publish('slow/pscom/vm-1/7/response', b'x', qos=1).wait_for_publish(20)
            until(lambda: seen(hook) == {'7'})
            call = call_of('vm-1')
            call = dataclasses.replace(call, marker=hook.marker(call))
            assert 'slow/pscom/vm-1/any_proc/request' in hook.remedy(call)
            hook.after(call).poll(0.0)
            assert heard.get(timeout=20) == ('slow/pscom/vm-1/any_proc/request', b'task: resume\n')


def test_denied_publish_fails_step_with_reason(tmp_path):
    rights = ['user kronos', 'topic read fast/pscom/#']
    with programs.mosquitto(tmp_path, users={'kronos': 'secret'}, rights=rights) as own:
        with hook_of(own, mqtt_protocol='5') as hook:
            call = call_of('vm-1', 1)
            step = hook.after(dataclasses.replace(call, marker=hook.marker(call)))
            with pytest.raises(base.StepFailed, match='has not taken it; see its access control'):
                servers.ended(step, 20)
