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

"""Servers are started and stopped with few requests to Nova, several at a time."""

import dataclasses
import threading
import types

from oslo_config import cfg
import pytest
import yaml

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.conf import permits
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.migfra import power
from kronos_nova.rebalancer.migfra import task_reader
from kronos_nova.rebalancer.store import requests

NOW = 1_800_000_000.0
UUIDS = [f'00000000-0000-4000-8000-{n:012}' for n in range(60)]


class Nova:
    """Servers of two hosts; notes each request, and takes actions as Nova does."""

    def __init__(self, count=60):
        self.asked = []
        self.at_once = self.most_at_once = 0
        self.refuse = {}
        self.lock = threading.Lock()
        #: So many requests have to be under way before one is answered.
        self.gate = None
        self.instances = {uuid: model.Instance(
            uuid, 'node1' if n % 2 else 'node2', name=f'vm-{n}', project_id='p')
            for n, uuid in enumerate(UUIDS[:count])}
        self.api = types.SimpleNamespace(post=self.post, describe_refusal=lambda response,
                                         policy: 'no')

    def _enter(self, *what):
        with self.lock:
            self.asked.append(what)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        if self.gate is not None:
            self.gate.wait(30)
        with self.lock:
            self.at_once -= 1

    def list_servers_on(self, host):
        self._enter('list', host)
        return {uuid: nova_api.Server(found, ()) for uuid, found in self.instances.items()
                if found.host == host}

    def servers_named(self, name):
        self._enter('name', name)
        return [found for found in self.instances.values() if found.name == name]

    def read_server(self, uuid):
        self._enter('show', uuid)
        if uuid not in self.instances:
            raise api.ApiError('Nova', f'server {uuid}', 'HTTP 404', 404)
        return nova_api.Server(self.instances[uuid], ())

    def post(self, path, what, version, body):
        _, _, uuid, _ = path.split('/')
        (action,) = body
        self._enter(action, uuid)
        status = self.refuse.get(uuid, 202)
        if status == 202:
            self.change(uuid, task_state='powering-off' if action == 'os-stop' else 'powering-on')
        return types.SimpleNamespace(status_code=status)

    def change(self, uuid, **values):
        self.instances[uuid] = dataclasses.replace(self.instances[uuid], **values)

    def settle(self, status):
        for uuid, found in self.instances.items():
            if found.task_state is not None:
                self.change(uuid, task_state=None, status=status)

    def count(self):
        found = {}
        for what, *_ in self.asked:
            found[what] = found.get(what, 0) + 1
        self.asked.clear()
        return found


class World:

    def __init__(self):
        self.conf = cfg.ConfigOpts()
        opts.register(self.conf)
        self.conf([], default_config_files=[])
        self.conf.set_override('allow', [permits.PermitType()('*:*:*')], 'migfra')
        self.nova = Nova()
        self.notes = 0
        self.handler = power.PowerHandler(
            self.conf, self.nova, types.SimpleNamespace(find_scope=lambda host: 'rack'), self.note)

    def note(self, request, progress):
        self.notes += 1
        request.progress.update(progress)

    def go_on(self, *due, now=NOW):
        """Run one pass and return the results of the requests that end."""
        self.handler.begin_pass(due)
        found = [self.handler.continue_request(request, now) for request in due]
        self.handler.end_pass()
        return [yaml.safe_load(one.reply)['list'] if one is not None else None for one in found]


@pytest.fixture
def world():
    found = World()
    yield found
    found.handler.close()


def ask(kind, *named, host='node1', number=0):
    items = 'vm-configurations' if kind == 'start vm' else 'list'
    task = task_reader.parse_task((f'task: {kind}\nid: r{number}\n{items}:\n' + ''.join(
        f'- vm-name: {name}\n' for name in named)).encode(), host)
    return requests.MigfraRequest(f'r{number}', host, task.task.value, task.model_dump_json(
        by_alias=True, exclude_none=True), '', NOW)


def test_nova_lists_a_host_once_in_a_pass_for_all_its_requests(world):
    stops = [ask('stop vm', uuid, host='node1' if n % 2 else 'node2', number=n)
             for n, uuid in enumerate(UUIDS)]
    assert world.go_on(*stops) == [None] * 60
    assert world.nova.count() == {'list': 2, 'os-stop': 60}
    assert world.go_on(*stops) == [None] * 60
    assert world.nova.count() == {'list': 2}
    world.nova.settle('SHUTOFF')
    assert [one[0]['status'] for one in world.go_on(*stops)] == ['success'] * 60
    assert world.nova.count() == {'list': 2}


def test_a_list_of_names_is_looked_up_once_and_noted_twice(world):
    stop = ask('stop vm', *(f'vm-{n}' for n in range(1, 60, 2)))
    assert world.go_on(stop) == [None]
    assert world.nova.count() == {'list': 1, 'name': 30, 'os-stop': 30}
    assert world.notes == 1
    world.nova.settle('SHUTOFF')
    (result,) = world.go_on(stop)
    assert world.nova.count() == {'list': 1} and world.notes == 2
    assert [one['vm-name'] for one in result] == [f'vm-{n}' for n in range(1, 60, 2)]


def test_requests_for_servers_run_in_a_limited_number_of_threads(world):
    world.nova.gate = threading.Barrier(power.THREADS)
    # The list of the host comes alone.
    world.nova.list_servers_on = lambda host: {
        uuid: nova_api.Server(found, ()) for uuid, found in world.nova.instances.items()}
    stops = [ask('stop vm', uuid, number=n) for n, uuid in enumerate(UUIDS[1:2 * power.THREADS:2])]
    stops += [ask('stop vm', uuid, number=100 + n)
              for n, uuid in enumerate(UUIDS[2 * power.THREADS + 1:4 * power.THREADS:2])]
    assert len(stops) == 2 * power.THREADS
    world.go_on(*stops)
    assert world.nova.most_at_once == power.THREADS


def test_a_later_request_of_a_pass_waits_for_an_earlier_one(world):
    """The list of the pass still shows the server as ACTIVE."""
    stop, start = ask('stop vm', UUIDS[1]), ask('start vm', UUIDS[1], number=1)
    assert world.go_on(stop, start) == [None, None]
    world.nova.settle('SHUTOFF')
    (stopped, started) = world.go_on(stop, start)
    assert stopped[0]['status'] == 'success' and started is None
    world.nova.settle('ACTIVE')
    assert world.go_on(start)[0][0]['status'] == 'success'
    assert [what for what, uuid in world.nova.asked if what != 'list'] == ['os-stop', 'os-start']


def test_a_server_listed_twice_is_requested_once(world):
    stop = ask('stop vm', UUIDS[1], 'vm-1')
    world.go_on(stop)
    assert world.nova.count()['os-stop'] == 1
    world.nova.settle('SHUTOFF')
    assert [one['status'] for one in world.go_on(stop)[0]] == ['success'] * 2


def test_progress_is_noted_before_the_request(world):
    stop = ask('stop vm', UUIDS[1])
    world.handler._note = lambda request, progress: (_ for _ in ()).throw(RuntimeError('gone'))
    world.handler.begin_pass([stop])
    with pytest.raises(RuntimeError):
        world.handler.continue_request(stop, NOW)
    world.handler.end_pass()
    assert world.nova.count() == {'list': 1}


@pytest.mark.parametrize(('status', 'ends'), [(403, True), (503, False), (409, False)])
def test_an_answer_of_nova_concerns_its_server_alone(world, status, ends):
    world.nova.refuse[UUIDS[3]] = status
    stop = ask('stop vm', UUIDS[1], UUIDS[3])
    world.go_on(stop)
    world.nova.settle('SHUTOFF')
    (found,) = world.go_on(stop)
    if ends:
        assert [one['status'] for one in found] == ['success', 'error']
        assert 'Nova refuses os-stop: no' in found[1]['details']
        return
    assert found is None
    world.nova.refuse.clear()
    world.nova.count()
    world.go_on(stop, now=NOW + power.AGAIN_SECONDS + 1)
    assert world.nova.count() == {'list': 1, 'os-stop': 1}
    world.nova.settle('SHUTOFF')
    (found,) = world.go_on(stop, now=NOW + power.AGAIN_SECONDS + 2)
    assert [one['status'] for one in found] == ['success', 'success']


def test_a_server_that_has_left_the_host_is_looked_up_alone(world):
    stop = ask('stop vm', UUIDS[1], UUIDS[3])
    world.go_on(stop)
    world.nova.change(UUIDS[1], host='node2', task_state=None)
    del world.nova.instances[UUIDS[3]]
    world.nova.count()
    (found,) = world.go_on(stop)
    assert [one['details'] for one in found] == [
        'it is on node2, not on node1',
        'no such server in a project that may be asked for']
    assert world.nova.count() == {'list': 1, 'show': 2, 'name': 1}


def test_a_list_does_not_show_servers_of_other_projects(world):
    world.conf.set_override('allow', [permits.PermitType()('*:mine:*')], 'migfra')
    world.nova.change(UUIDS[3], project_id='mine')
    stop = ask('stop vm', UUIDS[1], UUIDS[3])
    world.go_on(stop)
    world.nova.settle('SHUTOFF')
    (found,) = world.go_on(stop)
    assert [one['details'] for one in found] == [
        'no such server in a project that may be asked for', '']
    assert world.nova.count()['os-stop'] == 1


def test_a_request_that_cannot_be_understood_stops_no_other(world):
    damaged = dataclasses.replace(ask('stop vm', UUIDS[3], number=1), progress={'items': 5})
    stop = ask('stop vm', UUIDS[1])
    world.handler.begin_pass([damaged, stop])
    with pytest.raises(TypeError):
        world.handler.continue_request(damaged, NOW)
    assert world.handler.continue_request(stop, NOW) is None
    world.handler.end_pass()
    assert world.nova.count() == {'list': 1, 'os-stop': 1}


def test_a_host_that_cannot_be_listed_is_looked_at_again_until_it_is_late(world):
    def fail(host):
        raise api.ApiError('Nova', 'servers', 'no answer in time')

    servers_on, world.nova.list_servers_on = world.nova.list_servers_on, fail
    stop = ask('stop vm', UUIDS[1])
    assert world.go_on(stop) == [None]
    world.nova.list_servers_on = servers_on
    assert world.go_on(stop) == [None]
    world.nova.settle('SHUTOFF')
    assert world.go_on(stop)[0][0]['status'] == 'success'
    world.nova.list_servers_on = fail
    (found,) = world.go_on(ask('stop vm', UUIDS[3], number=2), now=NOW + 301)
    assert 'no answer in time; it was waited for 300 s' in found[0]['details']
