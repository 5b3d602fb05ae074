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

COMPLETED = model.Attempt('h2', 1.0, 2.0)
FAILED = model.Attempt('h2', 1.0, 2.0, 'MigrationFailed', 'no')


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, 'it does not come'
        time.sleep(0.02)
    return found


class Processes:
    """pscom of some processes; those of ``deaf`` answer nothing."""

    def __init__(self, client, messages, names, deaf=()):
        self.client, self.messages, self.deaf = client, messages, set(deaf)
        self.heard = []
        client.on_message = self._heard
        client.subscribe('fast/pscom/+/+/request', qos=1)
        for host, process in names:
            client.publish(f'fast/pscom/{host}/{process}/response', b'task: hello', qos=1,
                           retain=True).wait_for_publish(20)

    def _heard(self, client, userdata, message):
        _fast, _pscom, host, process, _kind = message.topic.split('/')
        task = yaml.safe_load(message.payload)['task']
        self.heard.append((host, process, task))
        if process not in self.deaf:
            client.publish(message.topic.replace('request', 'response'), b'done', qos=1)


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    with programs.mosquitto(tmp_path_factory.mktemp('broker'),
                            users={'kronos': 'secret', 'pscom': 'other'}) as found:
        yield found


def conf_of(broker, processes=(), **values):
    options = {'host': '127.0.0.1', 'port': broker.port, 'username': 'kronos',
               'password': 'secret', **values}
    return servers.conf(pscom_processes=list(processes),
                        **{f'mqtt_{name}': value for name, value in options.items()})


@contextlib.contextmanager
def hook_of(broker, processes=(), **values):
    hook = pscom.PscomHook.create(conf_of(broker, processes, **values), None)
    try:
        until(lambda: hook.client.ready)
        yield hook
    finally:
        hook.close()


@contextlib.contextmanager
def processes_of(broker, names, deaf=()):
    with test_mosquitto.connected(broker.port, user=('pscom', 'other')) as (client, _r, messages):
        found = Processes(client, messages, names, deaf)
        try:
            yield found
        finally:
            for host, process in names:
                client.publish(f'fast/pscom/{host}/{process}/response', b'', qos=1,
                               retain=True).wait_for_publish(20)


def called(hook, when, call, ended=None):
    marked = dataclasses.replace(call, marker=call.marker or hook.marker(call), ended=ended)
    servers.ended(getattr(hook, when)(marked), 20)
    return marked


@pytest.mark.parametrize('protocol', ['3.1.1', '5'])
def test_all_processes_of_the_host_are_suspended_and_resumed_on_both_hosts(broker, protocol):
    names = [('h1', '11'), ('h1', '12'), ('h9', '13')]
    with (processes_of(broker, names) as there, hook_of(broker, protocol=protocol) as hook):
        until(lambda: len(hook.client.seen('h1')) == 2)
        call = called(hook, 'before', servers.call())
        assert sorted(there.heard) == [('h1', '11', 'suspend'), ('h1', '12', 'suspend')]
        there.heard.clear()
        called(hook, 'after', call, COMPLETED)
        assert sorted(until(lambda: len(there.heard) == 4 and there.heard)) == [
            (host, process, 'resume') for host in ('h1', 'h2') for process in ('11', '12')]


def test_after_a_failure_they_are_resumed_where_they_still_are(broker):
    with processes_of(broker, [('h1', '21')]) as there, hook_of(broker) as hook:
        until(lambda: hook.client.seen('h1'))
        call = called(hook, 'before', servers.call())
        called(hook, 'after', call, FAILED)
        until(lambda: len(there.heard) == 2)
        time.sleep(0.3)
        assert there.heard == [('h1', '21', 'suspend'), ('h1', '21', 'resume')]


def test_whoever_takes_over_resumes_without_having_seen_anything(broker):
    with processes_of(broker, [('h1', '31')]) as there, hook_of(broker) as hook:
        until(lambda: hook.client.seen('h1'))
        call = called(hook, 'before', servers.call())
        with hook_of(broker, processes=['h7/1']) as other:
            called(other, 'after', call)
        until(lambda: ('h2', '31', 'resume') in there.heard)
        assert ('h1', '31', 'resume') in there.heard


def test_one_that_does_not_answer_is_waited_for_and_as_many_as_announced_are_enough(broker):
    with processes_of(broker, [('h1', '41'), ('h1', '42')], deaf=['42']) as there:
        with hook_of(broker) as hook:
            until(lambda: len(hook.client.seen('h1')) == 2)
            call = servers.call()
            step = hook.before(dataclasses.replace(call, marker=hook.marker(call)))
            until(lambda: step.poll(0.0) or len(there.heard) == 2)
            time.sleep(0.5)
            assert step.poll(0.0) is False
            called(hook, 'before', servers.call(parameters={'processes': 1}))


def test_an_answer_that_came_before_the_question_is_none(broker):
    with processes_of(broker, [('h1', '51')], deaf=['51']) as there, hook_of(broker) as hook:
        until(lambda: hook.client.seen('h1'))
        there.client.publish('fast/pscom/h1/51/response', b'done', qos=1).wait_for_publish(20)
        until(lambda: hook.client.answers() == 1)
        call = servers.call()
        step = hook.before(dataclasses.replace(call, marker=hook.marker(call)))
        until(lambda: step.poll(0.0) or there.heard)
        time.sleep(0.3)
        assert step.poll(0.0) is False


def test_listed_processes_need_not_be_seen_and_are_all_that_there_are(broker):
    with processes_of(broker, [('h1', '61')]) as there:
        with hook_of(broker, processes=['h1/62', 'h1/63']) as hook:
            until(lambda: hook.client.seen('h1'))
            called(hook, 'before', servers.call())
            assert sorted(there.heard) == [('h1', '62', 'suspend'), ('h1', '63', 'suspend')]


def test_fewer_processes_than_announced_are_an_error_before_anything_is_asked(broker):
    with processes_of(broker, [('h1', '71')]) as there, hook_of(broker) as hook:
        until(lambda: hook.client.seen('h1'))
        with pytest.raises(base.Failed, match='knows 1 processes of h1, and 4 are to answer'):
            called(hook, 'before', servers.call(parameters={'processes': 4}))
        assert there.heard == []


def test_a_host_without_processes_has_nothing_to_suspend(broker):
    with hook_of(broker) as hook:
        call = called(hook, 'before', servers.call())
        called(hook, 'after', call, COMPLETED)
        assert json.loads(call.marker) == {'processes': [], 'expected': None}


def test_a_process_that_has_taken_back_what_it_left_is_not_there(broker):
    with processes_of(broker, [('h1', '81')]), hook_of(broker) as hook:
        until(lambda: hook.client.seen('h1') == {'81'})
    with hook_of(broker) as hook:
        assert hook.client.seen('h1') == set()


def test_the_broker_may_go_away_and_come_back_in_between(tmp_path):
    with programs.mosquitto(tmp_path, users={'kronos': 'secret', 'pscom': 'other'}) as own:
        with hook_of(own, processes=['h1/91']) as hook:
            call = servers.call()
            call = dataclasses.replace(call, marker=hook.marker(call))
            own.stop()
            until(lambda: not hook.client.ready)
            step = hook.after(call)
            assert step.poll(0.0) is False
            own.start()
            with processes_of(own, []) as there:
                servers.ended(step, 40)
                until(lambda: ('h1', '91', 'resume') in there.heard)


@pytest.mark.parametrize('host', ['h+', 'h#', 'a/b', 'a\x00', '', '$SYS', 'x' * 256, 'a\ud800'])
def test_a_host_that_would_change_the_topic_is_refused(broker, host):
    with hook_of(broker, processes=['h1/1']) as hook:
        task = dataclasses.replace(servers.TASK, from_host=host)
        with pytest.raises(base.Failed, match='topic'):
            hook.marker(servers.call(task=task))


@pytest.mark.parametrize('listed', ['h1', 'h1/', '/1', 'h1/a/b', 'h+/1', 'h1/#', 'h1/a\x00'])
def test_what_is_not_host_and_process_is_refused(listed):
    with pytest.raises(exception.ConfigError, match='HOST/PROCESS'):
        pscom.PscomHook.create(servers.conf(mqtt_host='x', pscom_processes=[listed]), None)


@pytest.mark.parametrize('number', [-1, 1.5, True, 'four', 10**9])
def test_a_number_of_processes_is_a_number(broker, number):
    with hook_of(broker) as hook:
        with pytest.raises(base.Failed, match='whole number'):
            hook.marker(servers.call(parameters={'processes': number}))


def test_a_refused_login_is_never_ready_and_is_said(broker, caplog):
    hook = pscom.PscomHook.create(conf_of(broker, password='wrong-password'), None)
    try:
        until(lambda: 'refuses us' in caplog.text)
        assert not hook.client.ready and 'wrong-password' not in caplog.text
    finally:
        hook.close()


def test_it_speaks_tls(tmp_path):
    authority = programs.Authority(tmp_path)
    with programs.mosquitto(tmp_path, tls=authority) as own:
        with hook_of(own, tls=True, ca_file=str(authority.ca)) as hook:
            assert hook.client.ready
    with pytest.raises(exception.ConfigError, match='cannot be used'):
        pscom.PscomHook.create(servers.conf(
            mqtt_host='x', mqtt_tls=True, mqtt_ca_file='/nowhere'), None)


def test_without_a_broker_it_says_where_one_is_named():
    with pytest.raises(exception.ConfigError, match=r'\[mqtt\] host'):
        pscom.PscomHook.create(servers.conf(), None)


def test_topics_have_the_prefix_of_the_broker(broker):
    with test_mosquitto.connected(broker.port, user=('pscom', 'other')) as (client, _r, heard):
        test_mosquitto.subscribe(client, 'slow/pscom/+/+/request')
        with hook_of(broker, ['h1/5'], prefix='slow') as hook:
            client.publish('fast/pscom/h1/4/response', b'x', qos=1).wait_for_publish(20)
            client.publish('slow/pscom/h2/7/response', b'x', qos=1).wait_for_publish(20)
            until(lambda: hook.client.seen('h2') == {'7'})
            assert hook.client.seen('h1') == set()
            call = servers.call()
            call = dataclasses.replace(call, marker=hook.marker(call))
            assert 'slow/pscom/HOST' in hook.remedy(call)
            hook.after(call).poll(0.0)
            assert heard.get(timeout=20) == ('slow/pscom/h1/5/request', b'task: resume\n')


def test_who_may_not_publish_learns_it(tmp_path):
    rights = ['user kronos', 'topic read fast/pscom/#']
    with programs.mosquitto(tmp_path, users={'kronos': 'secret'}, rights=rights) as own:
        with hook_of(own, ['h1/1'], protocol='5') as hook:
            step = hook.after(dataclasses.replace(
                servers.call(), marker=hook.marker(servers.call())))
            with pytest.raises(base.Failed, match='has not taken it; see its access control'):
                servers.ended(step, 20)
