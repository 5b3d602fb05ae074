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


"""SSH probes: a silent server delays no other server."""

import threading
import time
import types

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.conf import permits
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.migfra import power
from kronos_nova.rebalancer.migfra import probes
from kronos_nova.rebalancer.migfra import task_reader
from kronos_nova.rebalancer.store import requests

NOW = 1_800_000_000.0


class Servers:
    """Servers by address: some answer, others stay silent until the test lets them answer."""

    def __init__(self):
        self.ready = set()
        self.asked = []
        self.speak = threading.Event()

    def __call__(self, address):
        self.asked.append(address)
        if address.startswith('silent'):
            self.speak.wait(30)
        return address in self.ready


@pytest.fixture
def servers():
    found = Servers()
    yield found
    found.speak.set()


@pytest.fixture
def made(servers):
    found = probes.ServerProbes(servers)
    yield found
    servers.speak.set()
    found.close()


def known(made, uuid, *addresses, seconds=30):
    """Wait for the result of a probe and return it."""
    until = time.monotonic() + seconds
    while (found := made.has_answered(uuid, addresses)) is None:
        assert time.monotonic() < until, 'nothing is known'
        time.sleep(0.005)
    return found


def test_a_silent_server_delays_no_other_server(made, servers):
    servers.ready.add('b')
    began = time.monotonic()
    for number in range(probes.THREADS - 1):
        assert made.has_answered(f's{number}', ['silent']) is None
    assert known(made, 'u', 'a', 'b') is True
    assert made.has_answered('s0', ['silent']) is None
    assert time.monotonic() - began < 20
    assert servers.asked.count('silent') == probes.THREADS - 1, 'each is asked once at a time'


def test_concurrent_probes_are_limited(made, servers):
    servers.ready.add('a')
    for number in range(probes.THREADS + 5):
        made.has_answered(f's{number}', ['silent'])
    assert made.has_answered('u', ['a']) is None
    time.sleep(0.1)
    assert len(servers.asked) == probes.THREADS
    servers.speak.set()
    assert known(made, 'u', 'a') is True


def test_an_unanswered_probe_is_repeated(made, servers):
    assert known(made, 'u', 'a') is False
    servers.ready.add('a')
    assert known(made, 'u', 'a') in (True, False)
    assert known(made, 'u', 'a') is True


def test_an_answer_counts_once(made, servers):
    servers.ready.add('a')
    assert known(made, 'u', 'a') is True
    servers.ready.clear()
    assert known(made, 'u', 'a') is False


def test_an_old_uncollected_answer_is_dropped(servers):
    now = [0.0]
    made = probes.ServerProbes(servers, lambda: now[0])
    servers.ready.add('a')
    assert made.has_answered('u', ['a']) is None
    while not made._running_probes['u'].ended_at == 0.0:
        time.sleep(0.005)
    servers.ready.clear()
    now[0] += probes.BELIEVED + 1
    assert made.has_answered('u', ['a']) is None
    assert known(made, 'u', 'a') is False
    now[0] += probes.BELIEVED + 1
    while made._running_probes['u'].ended_at is None:
        time.sleep(0.005)
    now[0] += probes.BELIEVED + 1
    made.has_answered('v', ['a'])
    assert set(made._running_probes) == {'v'}, 'nothing is remembered for ever'
    made.close()


def test_the_end_waits_for_nobodys_turn(made, servers):
    for number in range(probes.THREADS + 5):
        made.has_answered(f's{number}', ['silent'])
    made.close()
    servers.speak.set()
    time.sleep(0.1)
    assert len(servers.asked) <= probes.THREADS


class Nova:
    """Servers by UUID that are ACTIVE at an address."""

    def __init__(self, addresses):
        self._addresses = addresses

    def list_servers_on(self, host):
        return {uuid: nova_api.Server(model.Instance(uuid, host, project_id='p'), (),
                                      addresses=(address,))
                for uuid, address in self._addresses.items()}


UUIDS = [f'00000000-0000-4000-8000-{n:012}' for n in range(30)]
SILENT, WELL = '192.0.2.1', '192.0.2.2'


@pytest.fixture
def handler(servers):
    """Of a start, where all servers but the last are silent."""
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('allow', [permits.PermitType()('*:*:*')], 'migfra')
    conf.set_override('ssh_probe', True, 'migfra')
    conf.set_override('ssh_probe_networks', ['192.0.2.0/24'], 'migfra')
    addresses = dict.fromkeys(UUIDS, SILENT) | {UUIDS[-1]: WELL}
    servers.ready.add(WELL)
    found = power.PowerHandler(
        conf, Nova(addresses), types.SimpleNamespace(find_scope=lambda host: 'rack'),
        lambda request, progress: request.progress.update(progress),
        answers=lambda address: servers('silent' if address == SILENT else address))
    yield found
    servers.speak.set()
    found.close()


def start(*uuids):
    task = task_reader.parse_task(('task: start vm\nid: x\nvm-configurations:\n' + ''.join(
        f'- vm-name: {uuid}\n' for uuid in uuids)).encode(), 'node1')
    return requests.MigfraRequest('x', 'node1', task.task.value, task.model_dump_json(
        by_alias=True, exclude_none=True), '', NOW)


def test_a_start_of_many_silent_servers_holds_up_no_other_request(handler, servers):
    silent = start(*UUIDS[:probes.THREADS - 1])
    began = time.monotonic()
    assert handler.continue_request(silent, NOW) is None
    other = start(UUIDS[-1])
    while (found := handler.continue_request(other, NOW)) is None:
        assert handler.continue_request(silent, NOW) is None
        assert time.monotonic() - began < 20
    assert not found.failed and 'success' in found.reply


def test_an_unprobed_server_is_not_given_up(handler, servers):
    """Its turn has not come."""
    request = start(*UUIDS[:probes.THREADS + 5])
    assert handler.continue_request(request, NOW) is None
    assert handler.continue_request(request, NOW + 10_000) is None
    servers.speak.set()
    until = time.monotonic() + 30
    while (found := handler.continue_request(request, NOW + 10_000)) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert found.failed and 'its SSH does not answer at 192.0.2.1' in found.reply


def test_an_ssh_probe_without_networks_stops_the_start():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('ssh_probe', True, 'migfra')
    with pytest.raises(exception.ConfigError, match=r'\[migfra\] ssh_probe_networks.*no network'):
        power.PowerHandler(conf, Nova({}), types.SimpleNamespace(), lambda request, progress: None)


def test_only_servers_in_allowed_networks_are_probed(handler, servers):
    """A tenant's server shows loopback and a neighbour's network; neither is probed."""
    handler._nova._addresses[UUIDS[0]] = '::ffff:127.0.0.1'
    handler._nova._addresses[UUIDS[1]] = '10.0.0.9'
    found = handler.continue_request(start(UUIDS[0], UUIDS[1]), NOW)
    assert found is not None and not found.failed
    assert servers.asked == []
