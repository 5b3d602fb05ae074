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


"""The hook alertmanager against a server that has its API."""

import dataclasses
import datetime
import json
import time

import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.hooks import alertmanager
from kronos_nova.rebalancer.hooks import base
from tests.unit.rebalancer.hooks import servers


@pytest.fixture
def server():
    with servers.Alertmanager() as found:
        yield found


def made(server, **values):
    return alertmanager.AlertmanagerHook.create(servers.conf(
        alertmanager_url=server.url + '/prefix/', alertmanager_timeout=2.0,
        **{f'alertmanager_{name}': value for name, value in values.items()}), None)


def active(server):
    return [s for s in server.silences.values() if s['status']['state'] == 'active']


def test_an_instance_is_silenced_before_and_not_after(server):
    hook = made(server, seconds=600)
    servers.ended(hook.before(servers.call()))
    silence, = active(server)
    assert silence['matchers'] == [{'name': 'instance_uuid', 'isRegex': False, 'isEqual': True,
                                    'value': servers.TASK.instance_uuid}]
    until = datetime.datetime.fromisoformat(silence['endsAt']).timestamp()
    assert 590 < until - time.time() <= 600, 'it ends by itself'
    assert 'tenant' not in json.dumps(silence)
    servers.ended(hook.after(servers.call()))
    assert active(server) == []


def test_only_the_silence_of_this_call_is_deleted(server):
    hook = made(server)
    servers.ended(hook.before(servers.call('k1')))
    servers.ended(hook.before(servers.call('k2')))
    servers.ended(hook.after(servers.call('k1')))
    assert [s['comment'] for s in active(server)] == [
        f'kronos-nova: migration of instance {servers.TASK.instance_uuid} (k2)']


def test_after_without_a_silence_has_nothing_to_do_and_may_come_twice(server):
    hook = made(server)
    servers.ended(hook.after(servers.call()))
    servers.ended(hook.before(servers.call()))
    for _ in range(2):
        servers.ended(hook.after(servers.call()))
    assert [m for m, *_rest in server.requests].count('DELETE') == 1


def test_matchers_use_the_operators_labels_and_no_tenants_names(server):
    hook = made(server, matchers={'host': 'from_host', 'uuid': 'instance_uuid'})
    task = dataclasses.replace(servers.TASK, from_host='h"1\\')
    servers.ended(hook.before(servers.call(task=task)))
    silence, = active(server)
    assert {m['name']: m['value'] for m in silence['matchers']} == {
        'host': 'h"1\\', 'uuid': task.instance_uuid}
    servers.ended(hook.after(servers.call(task=task)))
    assert 'filter=host%3D%22h%5C%221%5C%5C%22' in server.requests[1][1]


@pytest.mark.parametrize('matchers', [
    {}, {'a-b': 'from_host'}, {'name': 'instance_name'}, {'x': '.*'}])
def test_other_matchers_are_refused(server, matchers):
    with pytest.raises(exception.ConfigError, match='matchers'):
        made(server, matchers=matchers)


def test_an_address_is_needed():
    with pytest.raises(exception.ConfigError, match=r'\[hook_alertmanager\] url'):
        alertmanager.AlertmanagerHook.create(servers.conf(), None)


@pytest.mark.parametrize('answer', [
    (500, {}, b''), (302, {'Location': '/x'}, b''), (200, {}, b'no JSON'),
    (200, {}, b'[' * 10_000)])
def test_answers_that_are_none_fail(server, answer):
    hook = made(server)
    server.answer = lambda *args: answer
    with pytest.raises(base.StepFailed):
        servers.ended(hook.after(servers.call()))


def test_listed_silences_are_not_trusted(server):
    comment = f'kronos-nova: migration of instance {servers.TASK.instance_uuid} (k1)'
    listed = [None, {'comment': comment, 'id': '../status', 'status': {'state': 'active'}},
              {'comment': comment, 'id': 7}, {'comment': comment},
              {'comment': comment, 'id': 'ours', 'status': None}]
    server.answer = lambda method, *args: (
        (200, {}, json.dumps(listed).encode()) if method == 'GET' else (500, {}, b''))
    with pytest.raises(base.StepFailed, match=r'HTTP 500 by Alertmanager \(DELETE\)'):
        servers.ended(made(server).after(servers.call()))
    assert [path for method, path, *_rest in server.requests if method == 'DELETE'] == [
        '/prefix/api/v2/silence/ours']
