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

"""migfra's messages as the protocol has them, over a real broker, to a real Nova."""

import dataclasses
import os
import pathlib
import queue
import threading
import time
from typing import Any

import fixtures
from nova import exception as nova_exception
from paho.mqtt import client as paho
from paho.mqtt import enums
import sqlalchemy as sa
import yaml

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import permits
from kronos_nova.conf import policies
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.executors import hook_catalogue
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.executors import nova as nova_executor
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.migfra import assembly
from kronos_nova.rebalancer.migfra import cloud_cache
from kronos_nova.rebalancer.store import tables
from kronos_nova.sources import prometheus
from tests import marks
from tests.functional import test_first_light
from tests.integration import servers

ID = '8d7e6f7a-0000-4000-8000-00000000000'


class Scheduler:
    """Who asks, and hears the results."""

    def __init__(self, port: int) -> None:
        self.results: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._client = paho.Client(enums.CallbackAPIVersion.VERSION2, client_id='scheduler',
                                   clean_session=False)
        self._client.on_message = self._heard
        self._client.on_connect = lambda client, *rest: client.subscribe('fast/migfra/+/result', 1)
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *rest: subscribed.set()
        self._client.connect('127.0.0.1', port)
        self._client.loop_start()
        assert subscribed.wait(30)

    def _heard(self, client: Any, userdata: Any, message: Any) -> None:
        self.results.put((message.topic.split('/')[2], yaml.safe_load(message.payload)))

    def ask(self, host: str, text: str, retain: bool = False) -> None:
        self._client.publish(f'fast/migfra/{host}/task', text.encode(), 1,
                             retain).wait_for_publish(30)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Counted(collector.CloudCollector):
    """How often it was asked."""

    count = 0

    def collect_cluster(self, now: float) -> Any:
        self.count += 1
        return super().collect_cluster(now)


class MigfraCase(test_first_light.RebalancedTestCase):
    allow = ('*:*:*',)
    protocol = '3.1.1'

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.broker = servers.Mosquitto(self.directory)
        self.addCleanup(self.broker.close)
        self.broker.start()
        for group, name, value in (
                ('mqtt', 'host', '127.0.0.1'), ('mqtt', 'port', self.broker.port),
                ('mqtt', 'protocol', self.protocol), ('migfra', 'poll_interval', 0.1),
                ('migfra', 'allow', [permits.PermitType()(text) for text in self.allow])):
            self.conf.set_override(name, value, group)
        self.load({'host1': 0.5, 'host2': 0.4, 'host3': 0.3}, {})
        self.answering: set[str] | None = None
        self.useFixture(fixtures.MonkeyPatch(
            'kronos_nova.rebalancer.clients.power.answers_ssh',
            lambda address: self.answering is None or address in self.answering))
        self.service = self.new_service('one')
        self.scheduler = Scheduler(self.broker.port)
        self.addCleanup(self.scheduler.close)

    def new_service(self, name: str, wait: bool = True) -> Any:
        read = self.read = Counted(self.conf, self.connection)
        source = prometheus.PrometheusSource(self.conf)

        service = assembly.build_service(
            self.conf, lambda: policies.load_policies(self.policies_file), self.connection,
            self.store,
            cloud_cache.CloudCache(self.conf, self.store, read, source), name, 'machine')
        thread = threading.Thread(target=service.run)
        thread.start()

        def stop() -> None:
            service.stop()
            thread.join()

        self.addCleanup(stop)
        service.ended = stop
        if wait:
            self.assertTrue(service._broker.hearing.wait(60))
        return service

    def asked(self, text: str, host: str = 'host1') -> dict[str, Any]:
        """Publish a task, and wait for its result while executors work."""
        self.scheduler.ask(host, text)
        return self.result(host)

    def result(self, host: str = 'host1') -> dict[str, Any]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            self.worker.run_once(self.worker._clock())
            try:
                found = self.scheduler.results.get(timeout=0.1)
            except queue.Empty:
                continue
            self.assertEqual(host, found[0])
            return dict(found[1])
        raise AssertionError('no result came')

    def named(self, server: dict[str, Any], name: str) -> dict[str, Any]:
        self.admin_api.put_server(server['id'], {'server': {'name': name}})
        return server

    def status(self, server: dict[str, Any]) -> str:
        return str(self.admin_api.get_server(server['id'])['status'])


class TestSignedRequests(MigfraCase):
    """With keys a request needs the signature of the process that has heard its message."""

    def setUp(self) -> None:
        keys = os.path.join(self.useFixture(fixtures.TempDir()).path, 'keys')
        key_repository.create_keys(keys)
        self.keys = keys
        super().setUp()

    def new_service(self, name: str, wait: bool = True) -> Any:
        self.conf.set_override('key_repository', self.keys, 'signing')
        return super().new_service(name, wait)

    def test_request_that_was_written_by_hand_stops_no_server(self) -> None:
        one, two = (self.named(self.boot(host='host1'), name) for name in ('vm-1', 'vm-2'))
        text = f'host: host1\ntask: stop vm\nid: {ID}1\nlist:\n- vm-name: vm-1\n'
        self.assertEqual('success', self.asked(text)['list'][0]['status'])
        self.assertEqual('SHUTOFF', self.status(one))
        table = tables.request
        with self.store.engine.begin() as connection:
            row = dict(connection.execute(sa.select(table)).mappings().one())
            connection.execute(sa.insert(table).values(row | {
                'request_id': f'host1/{ID}2',
                'document': row['document'].replace('vm-1', 'vm-2').replace(f'{ID}1', f'{ID}2'),
                **dict.fromkeys(('progress', 'plan_id', 'worker', 'heartbeat_at', 'reply',
                                 'failed', 'ended_at', 'told_at'))}))
        (refused,) = self.result()['list']
        self.assertEqual('error', refused['status'])
        self.assertIn('it is not authorized: its row differs', refused['details'])
        self.assertEqual('ACTIVE', self.status(two))


class TestServers(MigfraCase):

    @marks.turns(12)
    def test_servers_stop_start_suspend_and_resume_by_protocol(self) -> None:
        one, two = (self.named(self.boot(host='host1'), name) for name in ('vm-1', 'vm-2'))
        self.assertEqual({
            'scheduler': 'global', 'result': 'vm stopped', 'id': f'{ID}1', 'list': [
                {'vm-name': 'vm-1', 'status': 'success', 'details': ''},
                {'vm-name': two['id'], 'status': 'success', 'details': ''}]}, self.asked(f'''\
host: host1
task: stop vm
id: {ID}1
list:
- vm-name: vm-1
- vm-name: {two['id']}
  force: true
  undefine: false
'''))
        self.assertEqual(['SHUTOFF'] * 2, [self.status(s) for s in (one, two)])
        flavor = self.flavor
        self.assertEqual({
            'scheduler': 'global', 'result': 'vm started', 'id': f'{ID}2', 'list': [
                {'vm-name': 'vm-1', 'status': 'success', 'details': '', 'process-id': None},
                {'vm-name': '', 'status': 'error', 'process-id': None, 'details':
                 'xml: Nova makes the domains of its servers itself; create the server with its '
                 'flavor and image, and name it'},
                {'vm-name': 'vm-2', 'status': 'error', 'process-id': None, 'details':
                 f'memory: its flavor has {flavor["ram"] * 1024} KiB, not 1; resize it in Nova'},
            ]}, self.asked(f'''\
host: host1
task: start vm
id: {ID}2
vm-configurations:
- vm-name: vm-1
  memory: {flavor['ram'] * 1024}
  vcpus: {flavor['vcpus']}
- xml: <domain/>
  pci-ids:
  - vendor: 0x15b3
    device: 0x1004
  transient: true
- vm-name: vm-2
  memory: 1
'''))
        self.assertEqual(['ACTIVE', 'SHUTOFF'], [self.status(s) for s in (one, two)])
        self.assertEqual({
            'scheduler': 'global', 'result': 'vm suspended', 'id': f'{ID}3', 'list': [
                {'vm-name': 'vm-1', 'status': 'success', 'details': ''},
                {'vm-name': 'vm-2', 'status': 'error', 'details':
                 'it is SHUTOFF: suspend vm is for servers that are ACTIVE'}]}, self.asked(f'''\
host: host1
task: suspend vm
id: {ID}3
list:
- vm-name: vm-1
- vm-name: vm-2
'''))
        self.assertEqual('PAUSED', self.status(one))
        self.assertEqual({
            'scheduler': 'global', 'result': 'vm resumed', 'id': f'{ID}4', 'list': [
                {'vm-name': 'vm-1', 'status': 'success', 'details': ''}]}, self.asked(f'''\
host: host1
task: resume vm
id: {ID}4
list:
- vm-name: vm-1
'''))
        self.assertEqual('ACTIVE', self.status(one))

    @marks.long
    def test_server_in_error_can_be_stopped(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        self.admin_api.post_server_action(server['id'], {'os-resetState': {'state': 'error'}})
        self.assertEqual('ERROR', self.status(server))
        found = self.asked(f'task: stop vm\nid: {ID}1\nlist: [{{vm-name: vm-1}}]\n')
        self.assertEqual([('success', '')], [(one['status'], one['details'])
                                             for one in found['list']])
        self.assertEqual('SHUTOFF', self.status(server))


class TestMoves(MigfraCase):

    def test_migrate_vm_moves_server_to_named_destination(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        found = self.asked(f'''\
host: host1
task: migrate vm
id: {ID}1
vm-name: vm-1
destination: host3
parameter:
  retry-counter: 2
  migration-type: live
  rdma-migration: false
''')
        self.assertEqual({
            'scheduler': 'global', 'result': 'vm migrated', 'id': f'{ID}1', 'vm-name': 'vm-1',
            'status': 'success', 'details': '0', 'process-id': None}, found)
        self.assertEqual('host3', self.host_of(server))

    @marks.long
    def test_expired_request_begins_no_more_moves(self) -> None:
        moved, left = (self.named(self.boot(host='host1'), f'vm-{n}') for n in range(2))
        self.scheduler.ask('host1', f'task: evacuate node\nid: {ID}1\ndestinations: [host3]\n')
        self.until(
            lambda: len(self.store.tasks.list_tasks_in_states([model.TaskState.QUEUED])) == 2)
        self.worker.run_once(self.worker._clock())
        row, = self.store.tasks.list_tasks_in_states([model.TaskState.SUBMITTED])
        if row.task.instance_uuid != moved['id']:
            moved, left = left, moved
        # It came long ago.
        self.store.run_transaction(lambda c: c.execute(
            sa.update(tables.request).values(received_at=0.0)))
        _, found = self.scheduler.results.get(timeout=60)
        self.assertEqual('error', found['status'])
        self.assertIn('given up after 86400 s: its moves have not ended', found['details'])
        states = {r.task.instance_uuid: str(r.task.state) for r in self.store.tasks.list_plan_tasks(
            row.task.plan_id)}
        self.assertEqual({moved['id']: 'submitted', left['id']: 'cancelled'}, states)
        for _ in range(5):
            self.worker.run_once(self.worker._clock())
        self.until(lambda: not self.store.tasks.list_tasks_in_states([model.TaskState.SUBMITTED]) or
                   self.worker.run_once(self.worker._clock()) is None)
        self.assertEqual(('host3', 'host1'), (self.host_of(moved), self.host_of(left)))

    @marks.long
    def test_simultaneous_requests_share_one_cloud_read(self) -> None:
        self.conf.set_override('look_seconds', 60.0, 'migfra')
        servers = [self.named(self.boot(host='host1'), f'vm-{n}') for n in range(3)]
        # No executor works meanwhile, so nothing ends.
        for n in range(3):
            self.scheduler.ask('host1', f'task: migrate vm\nid: {ID}{n}\nvm-name: vm-{n}\n'
                                        'destination: host3\n')
        self.until(
            lambda: len(self.store.tasks.list_tasks_in_states([model.TaskState.QUEUED])) == 3)
        self.assertEqual(1, self.read.count)
        late = self.named(self.boot(host='host1'), 'vm-9')
        self.scheduler.ask('host1', f'task: migrate vm\nid: {ID}9\nvm-name: vm-9\n'
                                    'destination: host2\n')
        self.until(
            lambda: len(self.store.tasks.list_tasks_in_states([model.TaskState.QUEUED])) == 4)
        self.assertEqual(2, self.read.count, 'who was not there then is looked for')
        found = sorted(self.result()['status'] for _ in range(4))
        self.assertEqual((['success'] * 4, ['host3'] * 3, 'host2'), (
            found, [self.host_of(server) for server in servers], self.host_of(late)))
        back = self.asked(f'task: migrate vm\nid: {ID}8\nvm-name: vm-9\ndestination: host3\n',
                          'host2')
        self.assertIn('cools down', back['details'])
        self.assertGreater(self.read.count, 2, 'moves have ended since')

    def until(self, there: Any) -> None:
        end = time.monotonic() + 60
        while not there():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    @marks.turns(12)
    def test_evacuate_node_uses_only_named_destinations(self) -> None:
        moved = [self.named(self.boot(host='host1'), f'vm-{n}') for n in range(2)]
        found = self.asked(f'''\
host: host1
task: evacuate node
id: {ID}1
time-measurement: true
destinations:
- host2
- host3
parameter:
  retry-counter: 1
  mode: scatter
  migration-type: live
  rdma-migration: false
  overbooking: false
''')
        self.assertEqual(('node evacuated', [('vm-0', 'success', '0'), ('vm-1', 'success', '0')]), (
            found['result'], sorted((one['vm-name'], one['status'], one['details'])
                                    for one in found['list'])))
        self.assertEqual({'host2', 'host3'}, {self.host_of(s) for s in moved})
        self.assertIn('total', found['time-measurement'][0])


    @marks.long
    def test_retry_counter_bounds_attempts_of_each_instance(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise nova_exception.MigrationPreCheckError(reason='no destination takes it')

        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.fake.FakeDriver.check_can_live_migrate_destination', refuse))
        self.worker = worker.Worker(
            self.store, nova_executor.NovaExecutor(self.conf, self.connection),
            dataclasses.replace(retry.build_settings(self.conf), retry_backoff=0.1,
                                host_refusals=99))
        for number in (0, 1, 4):
            before = len(self.migrations(server))
            found = self.asked(f'''\
task: evacuate node
id: {ID}{number}
destinations: [host2, host3]
parameter: {{retry-counter: {number}}}
''')
            self.assertEqual(['error'], [one['status'] for one in found['list']], found)
            self.assertEqual(1 + number, len(self.migrations(server)) - before, found)
            with self.store.engine.begin() as connection:
                for name in ('quarantine', 'cooldown'):
                    connection.execute(sa.delete(getattr(tables, name)))

    @marks.long
    def test_offline_migration_restarts_active_server(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        found = self.asked(f'''\
task: migrate vm
id: {ID}1
vm-name: vm-1
destination: host2
time-measurement: true
parameter:
  migration-type: offline
''')
        self.assertEqual(('success', '0'), (found['status'], found['details']))
        self.assertEqual(('ACTIVE', 'host2', 'confirmed'), (
            self.status(server), self.host_of(server), self.migrations(server)[0]['status']))
        tags = {tag: seconds for one in found['time-measurement'] for tag, seconds in one.items()}
        self.assertLessEqual({'queue', 'pre_flight', 'pre_check', 'post_flight',
                              'total'}, tags.keys())
        self.assertLessEqual(sum(tags.values()) - tags['total'], tags['total'] + 1.0)

    @marks.long
    def test_refused_move_is_answered_with_reason(self) -> None:
        group = self.server_group('pair', 'anti-affinity')
        one, two = (self.named(self.boot(host=host, hints={'group': group['id']}), name)
                    for host, name in (('host1', 'vm-1'), ('host2', 'vm-2')))
        found = self.asked(f'task: migrate vm\nid: {ID}1\nvm-name: vm-1\ndestination: host2\n')
        self.assertEqual(('error', 'anti-affinity: '),
                         (found['status'], found['details'][:15]), found)
        found = self.asked(f'task: migrate vm\nid: {ID}2\nvm-name: vm-1\ndestination: host9\n')
        self.assertEqual('destination: host9 is no host of scope _unassigned_, which instances do '
                         'not leave', found['details'])
        found = self.asked(f'task: migrate vm\nid: {ID}3\nvm-name: vm-1\ndestination: host3\n'
                           'parameter: {rdma-migration: true}\n')
        self.assertEqual('rdma-migration: ', found['details'][:16])
        third = self.named(self.boot(host='host1'), 'vm-3')
        found = self.asked(f'task: evacuate node\nid: {ID}4\ndestinations: [host2]\n')
        self.assertEqual({'vm-1': 'error', 'vm-3': 'success'},
                         {o['vm-name']: o['status'] for o in found['list']})
        self.assertEqual(['host1', 'host2', 'host2'],
                         [self.host_of(s) for s in (one, two, third)])
        # It was moved a moment ago; who asks again has to wait, or the operator says otherwise.
        again = 'task: migrate vm\nid: {}\nvm-name: vm-3\ndestination: host3\n'
        found = self.asked(again.format(f'{ID}5'), 'host2')
        self.assertRegex(found['details'], r'cools down for another \d+ s$')
        self.conf.set_override('ignore_cooldowns', True, 'migfra')
        self.assertEqual('success', self.asked(again.format(f'{ID}6'), 'host2')['status'])


class TestSwap(MigfraCase):

    @marks.turns(12)
    def test_swap_with_exchanges_two_servers(self) -> None:
        one = self.named(self.boot(host='host1'), 'vm-1')
        two = self.named(self.boot(host='host2'), 'vm-2')
        found = self.asked(f'''\
host: host1
task: migrate vm
id: {ID}1
vm-name: vm-1
destination: host2
parameter:
  migration-type: live
  swap-with:
    vm-name: vm-2
''')
        self.assertEqual(('vm-1', 'success', '0'),
                         (found['vm-name'], found['status'], found['details']), found)
        self.assertEqual(['host2', 'host1'], [self.host_of(s) for s in (one, two)])

    @marks.long
    def test_swap_partner_on_other_host_is_refused(self) -> None:
        self.named(self.boot(host='host1'), 'vm-1')
        self.named(self.boot(host='host3'), 'vm-2')
        found = self.asked(f'task: migrate vm\nid: {ID}1\nvm-name: vm-1\ndestination: host2\n'
                           'parameter: {swap-with: {vm-name: vm-2}}\n')
        self.assertEqual(('error', 'swap-with: it is on host3, not on host2'),
                         (found['status'], found['details']))


class TestPins(MigfraCase):
    allow = ('repin-vm,migrate-vm:*:*',)

    def setUp(self) -> None:
        super().setUp()
        self.pinned: list[Any] = []
        self.problem: Exception | None = None

        def repin(driver: Any, *what: Any) -> None:
            if self.problem is not None:
                raise self.problem
            self.pinned.append(what)

        self.repin = repin

    @marks.turns(12)
    def test_repin_without_driver_is_refused_and_moves_nothing(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        found = self.asked(f'task: repin vm\nid: {ID}1\nvm-name: vm-1\n'
                           'vcpu-map: [[4],[5],[6],[7]]\n')
        self.assertEqual(('vm repinned', 'error'), (found['result'], found['status']))
        self.assertIn('repin is not enabled. Set [repin] uri', found['details'])
        found = self.asked(f'task: migrate vm\nid: {ID}2\nvm-name: vm-1\ndestination: host2\n'
                           'parameter: {vcpu-map: [[4]]}\n')
        self.assertEqual('vcpu-map: Nova has no call for it, and [repin] is not enabled',
                         found['details'])
        self.assertEqual('host1', self.host_of(server))

    @marks.long
    def test_repin_calls_driver_on_host_of_server(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'kronos_nova.rebalancer.migfra.vcpu_pinning.VcpuPinning.pin_vcpus', self.repin))
        self.service.ended()
        self.conf.set_override('uri', 'test:///{host}', 'repin')
        self.new_service('two')
        one = self.named(self.boot(host='host1'), 'vm-1')
        two = self.named(self.boot(host='host2'), 'vm-2')
        found = self.asked(f'task: repin vm\nid: {ID}1\nvm-name: vm-1\nvcpu-map: [[4],[5]]\n')
        self.assertEqual({'scheduler': 'global', 'result': 'vm repinned', 'id': f'{ID}1',
                          'vm-name': 'vm-1', 'status': 'success', 'details': ''}, found)
        self.assertEqual([('host1', one['id'], ((4,), (5,)), None)], self.pinned)
        self.pinned.clear()
        found = self.asked(f'task: migrate vm\nid: {ID}2\nvm-name: vm-1\ndestination: host2\n'
                           'parameter: {vcpu-map: [[6]], swap-with: '
                           '{vm-name: vm-2, vcpu-map: [[7]]}}\n')
        self.assertEqual('success', found['status'], found)
        self.assertEqual([('host1', two['id'], ((7,),), None), ('host2', one['id'], ((6,),), None)],
                         sorted(self.pinned))
        # It has moved, and its processors are not where they were to be: that is told.
        self.problem = exception.RepinUnsupported(
            what='repin', problem='is away', remedy='Look.')
        self.conf.set_override('ignore_cooldowns', True, 'migfra')
        found = self.asked(f'task: migrate vm\nid: {ID}3\nvm-name: vm-1\ndestination: host3\n'
                           'parameter: {vcpu-map: [[6]]}\n', 'host2')
        self.assertEqual(('error', 'it was migrated; vcpu-map: repin is away. Look.'),
                         (found['status'], found['details']))
        self.assertEqual('host3', self.host_of(one))


class TestHooks(MigfraCase):
    """Steps beside Nova, by an executor with its hooks."""

    def setUp(self) -> None:
        super().setUp()
        self.conf.set_override('deadline', 10.0, 'hooks')
        self.conf.set_override('on_request', ['pause', 'pscom'], 'hooks')
        catalogue = hook_catalogue.HookCatalogue.load_hooks(self.conf, lambda: self.connection)
        self.addCleanup(catalogue.close)
        self.worker = worker.Worker(
            self.store, nova_executor.NovaExecutor(self.conf, self.connection),
            retry.build_settings(self.conf),
            hooks=(catalogue, hook_runner.build_settings(self.conf)))
        self.heard: list[tuple[str, str]] = []

    def process(self, guest: str, number: str) -> None:
        """A process with pscom: it says that it has closed its connections."""
        client = paho.Client(enums.CallbackAPIVersion.VERSION2)

        def on_message(_client: Any, _userdata: Any, message: Any) -> None:
            _fast, _pscom, where, _all, _end = message.topic.split('/')
            found = yaml.safe_load(message.payload)['task']
            self.heard.append((where, found))
            if found == 'suspend':
                client.publish(f'fast/pscom/{where}/{number}/response', 'closed', 1)

        client.on_message = on_message
        subscribed = threading.Event()
        client.on_subscribe = lambda *rest: subscribed.set()
        client.connect('127.0.0.1', self.broker.port)
        client.loop_start()
        client.subscribe(f'fast/pscom/{guest}/any_proc/request', 1)
        assert subscribed.wait(30)
        self.addCleanup(client.loop_stop)
        self.addCleanup(client.disconnect)

    def actions(self, server: dict[str, Any]) -> list[str]:
        found = self.admin_api.get_instance_actions(server['id'])
        return [a['action'] for a in reversed(found)]

    @marks.turns(12)
    def test_warm_migration_pauses_server_during_live_migration(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        text = (f'task: migrate vm\nid: {ID}1\nvm-name: vm-1\ndestination: host2\n'
                'time-measurement: true\nparameter: {migration-type: warm}\n')
        found = self.asked(text)
        self.assertEqual('success', found['status'], found)
        self.assertEqual('ACTIVE', self.status(server), 'it runs when that is told')
        self.assertEqual((['create', 'pause', 'live-migration', 'unpause'], 'host2'),
                         (self.actions(server), self.host_of(server)))
        self.assertIn('hooks', {tag for one in found['time-measurement'] for tag in one})

    @marks.long
    def test_warm_migration_keeps_paused_server_paused(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        self.admin_api.post_server_action(server['id'], {'pause': None})
        self._wait_for_state_change(server, 'PAUSED')
        found = self.asked(f'task: migrate vm\nid: {ID}1\nvm-name: vm-1\ndestination: host2\n'
                           'parameter: {migration-type: warm}\n')
        self.assertEqual('success', found['status'], found)
        for _ in range(3):
            self.worker.run_once(time.time())
        self.assertEqual(('PAUSED', 'host2'), (self.status(server), self.host_of(server)))

    @marks.long
    def test_pscom_processes_are_suspended_during_migration(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        for number in ('11', '12'):
            self.process('vm-1', number)
        text = ('task: migrate vm\nid: {}\nvm-name: vm-1\ndestination: {}\n'
                'parameter: {{pscom-hook-procs: {}, retry-counter: 0}}\n')
        found = self.asked(text.format(f'{ID}1', 'host2', 2))
        self.assertEqual('success', found['status'], found)
        self.wait_for(lambda: self.worker.run_once(time.time()) or
                      sum(task == 'resume' for _, task in self.heard) >= 2, 'the resumes')
        self.assertEqual([('vm-1', 'suspend')] * 2 + [('vm-1', 'resume')] * 2, self.heard)
        self.assertEqual('host2', self.host_of(server))
        # More are to answer than are there: nothing is moved.
        self.conf.set_override('ignore_cooldowns', True, 'migfra')
        self.scheduler.ask('host2', text.format(f'{ID}2', 'host3', 3))
        found = self.result('host2')
        self.assertEqual('error', found['status'])
        self.assertIn('took longer than 10 s', found['details'])
        self.assertEqual('host2', self.host_of(server))


class TestRefused(MigfraCase):
    allow = ('migrate-vm:*:other', 'stop-vm:nobody:*', 'suspend-vm:*:*')

    def test_invalid_or_denied_task_is_answered_but_not_done(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        wrong = [
            ('{', {'result': 'error', 'id': None}, 'line 1: '),
            (f'task: quit\nid: {ID}1\n', {'result': 'error', 'id': f'{ID}1'},
             'task: must be one of '),
            (f'task: suspend vm\nid: {ID}2\nhost: host2\nlist: [{{vm-name: vm-1}}]\n',
             {'result': 'vm suspended', 'id': f'{ID}2', 'list': [
                 {'vm-name': 'vm-1', 'status': 'error',
                  'details': 'host: the task came on the topic of host1'}]},
             'host: the task came on the topic of host1'),
            (f'task: migrate vm\nid: {ID}3\nvm-name: vm-1\ndestination: host2\n',
             {'result': 'vm migrated', 'id': f'{ID}3', 'vm-name': 'vm-1', 'process-id': None},
             'migrate vm is not allowed in scope _unassigned_'),
            (f'task: migrate vm\nid: {ID}4\nvm-name: vm-1\n',
             {'result': 'vm migrated', 'id': f'{ID}4', 'vm-name': 'vm-1', 'process-id': None},
             'destination: it is missing')]
        for text, expected, why in wrong:
            found = self.asked(text)
            self.assertEqual('error', found['status'])
            self.assertEqual(why, found['details'][:len(why)])
            self.assertEqual({**expected, 'scheduler': 'global'}, {
                name: value for name, value in found.items()
                if name not in ('status', 'details')})
        # Of another project's server nothing is told, not even that it is there.
        found = self.asked(f'task: stop vm\nid: {ID}5\nlist: [{{vm-name: {server["id"]}}}, '
                           '{vm-name: vm-1}, {vm-name: vm-2}]\n')
        self.assertEqual(['no such server in a project that may be asked for'] * 3,
                         [one['details'] for one in found['list']])
        # In a dry run nothing is done for anybody.
        self.conf.set_override('dry_run', True, 'engine')
        found = self.asked(f'task: suspend vm\nid: {ID}6\nlist: [{{vm-name: vm-1}}]\n')
        self.assertEqual('[engine] dry_run is set, and then nothing is done', found['details'])
        self.assertEqual(('ACTIVE', 'host1'), (self.status(server), self.host_of(server)))

    @marks.long
    def test_ambiguous_name_and_server_on_other_host_are_refused(self) -> None:
        for host in ('host1', 'host2'):
            self.named(self.boot(host=host), 'vm-1')
        self.named(self.boot(host='host2'), 'vm-2')
        found = self.asked(f'task: suspend vm\nid: {ID}1\nlist: [{{vm-name: vm-1}}, '
                           '{vm-name: vm-2}]\n')
        self.assertEqual(['2 servers bear the name; give the UUID of one',
                          'it is on host2, not on host1'],
                         [one['details'] for one in found['list']])


@marks.long
class TestOtherZone(MigfraCase):
    def test_servers_on_hosts_of_another_zone_are_refused(self) -> None:
        self.aggregate('far', 'host1', availability_zone='elsewhere')
        for group, name, value in (('engine', 'aggregates', ['far']),
                                   ('engine', 'availability_zone', 'nova')):
            self.conf.set_override(name, value, group)
        self.service.ended()
        self.new_service('two')
        servers_of = {host: self.named(self.boot(host=host), f'vm-{host}')
                      for host in ('host1', 'host2')}
        answers = [self.asked(f'task: suspend vm\nid: {ID}{host[-1]}\n'
                              f'list: [{{vm-name: vm-{host}}}]\n', host)['list'][0]
                   for host in servers_of]
        self.assertEqual([('error', 'host host1 is in no scope that is served here'),
                          ('success', '')], [(a['status'], a['details']) for a in answers])
        self.assertEqual(['ACTIVE', 'PAUSED'], [self.status(s) for s in servers_of.values()])


class TestDelivery(MigfraCase):
    protocol = '5'

    def test_repeated_task_is_done_once(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        text = f'task: migrate vm\nid: {ID}1\nvm-name: vm-1\ndestination: host2\n'
        for _ in range(3):
            self.scheduler.ask('host1', text)
        first = self.result()
        self.assertEqual(('success', 'host2'), (first['status'], self.host_of(server)))
        # It is over, and so the result comes again; nothing else does.
        self.assertEqual(first, self.asked(text))
        self.assertEqual(1, len(self.migrations(server)))
        # The same number for something else is a mistake of who asks.
        found = self.asked(text.replace('host2', 'host3'))
        self.assertEqual('id: another task had it; each needs one of its own', found['details'])
        self.assertEqual('host2', self.host_of(server))

    @marks.long
    def test_retained_task_is_ignored(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        self.service.ended()
        self.scheduler.ask('host1', f'task: suspend vm\nid: {ID}1\nlist: [{{vm-name: vm-1}}]\n',
                           retain=True)
        self.conf.set_override('client_id', 'another', 'migfra')
        self.new_service('two')
        found = self.asked(f'task: suspend vm\nid: {ID}2\nlist: [{{vm-name: {ID}9}}]\n')
        self.assertEqual(f'{ID}2', found['id'])
        self.assertEqual('ACTIVE', self.status(server))

    @marks.long
    def test_evacuation_survives_loss_of_broker_and_service(self) -> None:
        moved = [self.named(self.boot(host='host1'), f'vm-{n}') for n in range(2)]
        self.scheduler.ask('host1', f'task: evacuate node\nid: {ID}1\n'
                                    'destinations: [host2, host3]\n')
        self.wait_for(self.store.tasks.list_in_flight_moves, 'the plan')
        self.service.ended()
        self.broker.stop()
        self.work()
        # Whoever went silent is waited for, then another goes on.
        self.conf.set_override('claim_seconds', 10, 'migfra')
        self.new_service('two', wait=False)
        self.wait_for(lambda: all(self.host_of(s) != 'host1' for s in moved), 'the moves')
        self.broker.start()
        found = self.result()
        self.assertEqual((f'{ID}1', ['success'] * 2),
                         (found['id'], [one['status'] for one in found['list']]))
        self.assertEqual([1, 1], [len(self.migrations(s)) for s in moved])

    @marks.long
    def test_task_sent_while_service_is_down_is_done_later(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        self.asked(f'task: suspend vm\nid: {ID}1\nlist: [{{vm-name: none}}]\n')
        self.service.ended()
        self.scheduler.ask('host1', f'task: suspend vm\nid: {ID}2\nlist: [{{vm-name: vm-1}}]\n')
        self.assertEqual('ACTIVE', self.status(server))
        self.new_service('two')
        self.assertEqual(f'{ID}2', self.result()['id'])
        self.assertEqual('PAUSED', self.status(server))


@marks.long
class TestStarted(MigfraCase):

    def test_start_waits_until_ssh_answers(self) -> None:
        server = self.named(self.boot(host='host1'), 'vm-1')
        self.useFixture(fixtures.MonkeyPatch(
            'kronos_nova.rebalancer.clients.nova_records.parse_addresses',
            lambda data: ('127.0.0.1', '192.0.2.7')))
        self.answering = set()
        self.conf.set_override('ssh_probe', True, 'migfra')
        self.conf.set_override('ssh_probe_networks', ['127.0.0.0/8', '192.0.2.0/24'], 'migfra')
        self.scheduler.ask('host1', f'task: start vm\nid: {ID}1\n'
                                    'vm-configurations: [{vm-name: vm-1}]\n')
        time.sleep(1)
        self.assertTrue(self.scheduler.results.empty())
        # An address of this machine's own is never believed.
        self.answering.update({'127.0.0.1'})
        time.sleep(1)
        self.assertTrue(self.scheduler.results.empty())
        self.answering.add('192.0.2.7')
        self.assertEqual('success', self.result()['list'][0]['status'])
        self.conf.set_override('start_seconds', 10, 'migfra')
        self.answering.clear()
        found = self.asked(f'task: start vm\nid: {ID}2\nvm-configurations: [{{vm-name: vm-1}}]\n')
        self.assertEqual('it is ACTIVE, but its SSH does not answer at 127.0.0.1, 192.0.2.7; it '
                         'was waited for 10 s', found['list'][0]['details'])
        self.assertEqual('ACTIVE', self.status(server))
