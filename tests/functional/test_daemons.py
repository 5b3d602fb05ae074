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

"""The daemons as processes, against a real Nova: cycles, moves, signals."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from typing import Any

import fixtures
from prometheus_client import parser
import requests
import sqlalchemy as sa
from testtools import content

from kronos_nova import model
from kronos_nova.rebalancer.store import tables
from tests import marks
from tests.fixtures import free_ports
from tests.functional import test_first_light
from tests.functional import test_migfra
from tests.integration import servers


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(('127.0.0.1', port)) == 0


def told(port: int, page: str) -> tuple[int, str, bool]:
    answer = requests.get(f'http://127.0.0.1:{port}/{page}', timeout=60)
    return answer.status_code, answer.json()['daemon'], answer.json()['dry_run']


def measured(port: int, name: str) -> dict[tuple[str, ...], float]:
    """Values of labels, in the order of their names -> value, of a sample of /metrics."""
    text = requests.get(f'http://127.0.0.1:{port}/metrics', timeout=60).text
    return {tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples if sample.name == name}


class TestDaemons(test_first_light.RebalancedTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.snapshots = os.path.join(self.directory, 'snapshots')
        self.config = os.path.join(self.directory, 'kronos.conf')
        with open(self.config, 'w') as f:
            f.write(f'''
[DEFAULT]
debug = true
[engine]
dry_run = false
policies_file = {self.policies_file}
evaluation_interval = 5
hypervisor_types = fake
snapshot_dir = {self.snapshots}
settle_seconds = 0
instance_cooldown = 0
[executor]
poll_interval = 0.5
migration_poll_interval = 1
stagger_seconds = 0
[prometheus]
url = {self.prometheus.url}
[database]
connection = {self.store.engine.url.render_as_string(hide_password=False)}
[nova]
auth_type = admin_token
endpoint = {self.nova_api.url}
token = fake
endpoint_override = {self.nova_api.url}
placement_endpoint_override = {self.placement_api.url}
''')

    @contextlib.contextmanager
    def daemon(self, name: str, farewell: signal.Signals = signal.SIGTERM,
               called: str | None = None) -> Any:
        """A daemon of ours; on leaving it must end well on ``farewell``."""
        log = os.path.join(self.directory, f'{called or name}.log')
        with open(log, 'w') as out:
            process = subprocess.Popen(
                [sys.executable, '-c', f'import sys; from kronos_nova.cmd import {name}; '
                                       f'sys.exit({name}.main())',
                 '--config-file', self.config],
                stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
            process.send_signal(farewell)
            expected = -farewell if farewell is signal.SIGKILL else 0
            self.assertEqual(expected, process.wait(60), open(log).read()[-4000:])
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            with open(log) as f:
                self.addDetail(called or name, content.text_content(f.read()[-20000:]))

    def test_daemons_move_instance_and_exit_on_sigterm_and_sigint(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        ports = {name: free_ports.reserve_port() for name in ('engine', 'executor')}
        self.edit('[prometheus]', '[monitoring]\n' + ''.join(
            f'{name}_port = {port}\n' for name, port in ports.items()) + '[prometheus]')
        with self.daemon('engine') as engine, self.daemon('executor', signal.SIGINT):
            self.wait_for(lambda: self.host_of(server) == 'host3', 'the move to host3')
            self.wait_for(lambda: not self.store.tasks.list_in_flight_moves(), 'the task to end')
            rows = [r for p in self.store.plans.list_plans()
                    for r in self.store.tasks.list_plan_tasks(p.plan_id)]
            self.assertEqual([model.TaskState.COMPLETED], [r.task.state for r in rows])
            for name, port in ports.items():
                for page in ('healthz', 'readyz'):
                    self.assertEqual((200, f'kronos-{name}', False), told(port, page))
            self.assertEqual(1, sum(measured(ports['engine'], 'kronos_planned_moves_total')
                                    .values()))
            self.wait_for(lambda: {labels for labels, number in measured(
                ports['executor'], 'kronos_tasks_ended_total').items() if number} == {
                    ('nova', 'live', 'spread', 'completed')}, 'the executor to tell of it')
            self.assertEqual({(): 1}, measured(ports['executor'], 'kronos_store_up'))
            engine.send_signal(signal.SIGUSR1)
            self.wait_for(lambda: os.path.isdir(self.snapshots) and os.listdir(self.snapshots),
                          'a snapshot')
            self.assertIsNone(engine.poll())
            self.assertEqual([None], list(self.store.statistics.read_census().executors.values()),
                             'it serves every scope')
        self.assertEqual(
            {}, dict(self.store.statistics.read_census().executors), 'it has said that it ends')
        name = os.listdir(self.snapshots)[0]
        self.assertRegex(name, r'^kronos-engine-snapshot-\d{8}T\d{6}Z$')
        with open(os.path.join(self.snapshots, name, 'nova', 'instances.json')) as f:
            self.assertIn(server['id'], f.read())

    @marks.long
    def test_second_migfra_continues_task_of_first(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 0.5, 'host2': 0.5, 'host3': 0.5}, {})
        broker = servers.Mosquitto(pathlib.Path(self.directory))
        self.addCleanup(broker.close)
        broker.start()
        port = free_ports.reserve_port()
        self.edit('[prometheus]', f'[mqtt]\nhost = 127.0.0.1\nport = {broker.port}\n'
                                  '[migfra]\nallow = *:*:*\npoll_interval = 0.2\n'
                                  f'[monitoring]\nmigfra_port = {port}\n[prometheus]')
        scheduler = test_migfra.Scheduler(broker.port)
        self.addCleanup(scheduler.close)
        number = '8d7e6f7a-0000-4000-8000-000000000001'
        with self.daemon('migfra') as service:
            self.wait_for(lambda: listens(port) and told(port, 'readyz') == (
                200, 'kronos-migfra', False), 'the service')
            scheduler.ask('host1', f'task: migrate vm\nid: {number}\nvm-name: {server["id"]}\n'
                                   'destination: host3\nparameter: {migration-type: warm}\n')
            self.wait_for(self.store.tasks.list_in_flight_moves, 'the plan')
            self.assertIsNone(service.poll())
        with self.daemon('executor'):
            self.wait_for(lambda: self.host_of(server) == 'host3', 'the move to host3')
            with self.daemon('migfra', signal.SIGINT, called='migfra-2'):
                host, found = scheduler.results.get(timeout=120)
        self.assertEqual(('host1', 'vm migrated', number, 'success'), (
            host, found['result'], found['id'], found['status']), found)
        self.assertEqual('ACTIVE', self.admin_api.get_server(server['id'])['status'])
        self.assertEqual(1, len(self.migrations(server)))

    @marks.long
    def test_dry_run_without_nova_is_not_ready(self) -> None:
        self.load({'host1': 0.5, 'host2': 0.5, 'host3': 0.5}, {})
        port = free_ports.reserve_port()
        self.edit('[prometheus]', f'[monitoring]\nengine_port = {port}\n[prometheus]')
        self.edit('dry_run = false', 'dry_run = true')
        with self.daemon('engine'):
            self.wait_for(lambda: listens(port) and told(port, 'readyz') == (
                200, 'kronos-engine', True), 'a cycle')
            self.nova_api.httpd.shutdown()
            self.nova_api.httpd.server_close()
            self.wait_for(lambda: told(port, 'readyz')[0] == 503, 'a cycle without Nova')
            self.assertEqual((200, 'kronos-engine', True), told(port, 'healthz'))

    def edit(self, old: str, new: str) -> None:
        with open(self.config) as f:
            text = f.read()
        self.assertIn(old, text)
        with open(self.config, 'w') as f:
            f.write(text.replace(old, new))

    def lease(self) -> Any:
        """Return the lease of the hosts of no aggregate, or None before the first plan."""
        with self.store.engine.connect() as connection:
            return connection.execute(sa.select(tables.lease)).first()

    def planned(self) -> Any:
        """The lease once something has been planned under it."""
        lease = self.lease()
        return lease if lease is not None and lease.planned_at is not None else None

    @marks.long
    def test_frozen_engine_is_replaced_and_writes_nothing_later(self) -> None:
        """Cycles are an hour apart; an engine that waits for a scope does not wait so long."""
        self.load({'host1': 0.5, 'host2': 0.5, 'host3': 0.5}, {})
        self.edit('evaluation_interval = 5', 'evaluation_interval = 3600')
        with self.daemon('engine', called='first') as first:
            held = self.wait_for(self.planned, 'the first engine to plan')
            with self.daemon('engine', called='second'):
                log = os.path.join(self.directory, 'second.log')
                self.wait_for(lambda: 'Another engine plans' in open(log).read(),
                              'the second engine to find the scope taken')
                first.send_signal(signal.SIGSTOP)
                taken = self.wait_for(
                    lambda: (now := self.lease()).epoch > held.epoch and now, 'the takeover')
                self.assertNotEqual(held.owner, taken.owner)
                self.wait_for(lambda: self.lease().planned_at > held.planned_at,
                              'the second engine to plan')
                first.send_signal(signal.SIGCONT)
                thawed = os.path.join(self.directory, 'first.log')
                self.wait_for(lambda: 'was over before it was renewed' in open(thawed).read(),
                              'the first engine to notice')
                now = self.lease()
                self.assertEqual((taken.owner, taken.epoch), (now.owner, now.epoch))

    @marks.long
    def test_killed_engine_is_replaced(self) -> None:
        self.load({'host1': 0.5, 'host2': 0.5, 'host3': 0.5}, {})
        self.edit('evaluation_interval = 5', 'evaluation_interval = 3600')
        with self.daemon('engine', called='second'):
            held = self.wait_for(self.planned, 'the engine to plan')
        # It gave its scope back; the next one is killed and cannot.
        with self.daemon('engine', signal.SIGKILL, called='killed'):
            self.wait_for(lambda: self.lease().epoch > held.epoch, 'the next engine to plan')
        killed_at = self.lease()
        with self.daemon('engine', called='heir'):
            taken = self.wait_for(
                lambda: (now := self.lease()).epoch > killed_at.epoch and now, 'the takeover')
        self.assertNotEqual(killed_at.owner, taken.owner)

    def test_once_prints_report_of_one_cycle_as_json(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        done = subprocess.run(
            [sys.executable, '-c', 'import sys; from kronos_nova.cmd import engine; '
                                   'sys.exit(engine.main())',
             '--config-file', self.config, '--once'],
            capture_output=True, text=True, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual([server['id']],
                         [m['instance_uuid'] for m in report['aggregates'][0]['moves']])
        self.assertEqual(1, len(self.store.tasks.list_in_flight_moves()))

    @marks.turns(12)
    def test_engine_without_nova_prints_error_and_exits_1(self) -> None:
        with open(self.config) as f:
            text = f.read().replace(self.nova_api.url, self.closed_port())
        with open(self.config, 'w') as f:
            f.write(text)
        done = subprocess.run(
            [sys.executable, '-c', 'import sys; from kronos_nova.cmd import engine; '
                                   'sys.exit(engine.main())',
             '--config-file', self.config, '--once'],
            capture_output=True, text=True, timeout=120)
        self.assertEqual(1, done.returncode)
        self.assertIn('Nothing is moved this cycle', done.stderr)
        self.assertNotIn('Traceback', done.stderr)
