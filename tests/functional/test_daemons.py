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
import signal
import subprocess
import sys
from typing import Any

import fixtures
from testtools import content

from kronos_nova import model
from tests.functional import test_first_light


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
    def daemon(self, name: str, farewell: signal.Signals = signal.SIGTERM) -> Any:
        """A daemon of ours; on leaving it must end well on ``farewell``."""
        log = os.path.join(self.directory, name + '.log')
        with open(log, 'w') as out:
            process = subprocess.Popen(
                [sys.executable, '-c', f'import sys; from kronos_nova.cmd import {name}; '
                                       f'sys.exit({name}.main())',
                 '--config-file', self.config],
                stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
            process.send_signal(farewell)
            self.assertEqual(0, process.wait(60), open(log).read()[-4000:])
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            with open(log) as f:
                self.addDetail(name, content.text_content(f.read()[-20000:]))

    def test_engine_and_executor_move_an_instance_and_leave_on_sigterm_and_sigint(self) -> None:
        server = self.boot(host='host1')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        with self.daemon('engine') as engine, self.daemon('executor', signal.SIGINT):
            self.wait_for(lambda: self.host_of(server) == 'host3', 'the move to host3')
            self.wait_for(lambda: not self.store.flights(), 'the task to end')
            rows = [r for p in self.store.plans() for r in self.store.tasks(p.plan_id)]
            self.assertEqual([model.TaskState.COMPLETED], [r.task.state for r in rows])
            engine.send_signal(signal.SIGUSR1)
            self.wait_for(lambda: os.path.isdir(self.snapshots) and os.listdir(self.snapshots),
                          'a snapshot')
            self.assertIsNone(engine.poll())
        name = os.listdir(self.snapshots)[0]
        self.assertRegex(name, r'^kronos-engine-snapshot-\d{8}T\d{6}Z$')
        with open(os.path.join(self.snapshots, name, 'nova', 'instances.json')) as f:
            self.assertIn(server['id'], f.read())

    def test_once_prints_the_report_of_one_cycle_as_json(self) -> None:
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
        self.assertEqual(1, len(self.store.flights()))

    def test_nova_away_is_one_clear_line_and_exit_status_1(self) -> None:
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
