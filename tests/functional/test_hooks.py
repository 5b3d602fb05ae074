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


"""Hooks around real live migrations: a webhook and an Alertmanager on loopback."""

from collections.abc import Callable
import json
import os
import time
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.executors import hook_catalogue
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.executors import worker
from tests import marks
from tests.functional import test_alternates
from tests.unit.rebalancer.hooks import servers


class HooksTestCase(test_alternates.AlternatesCase):

    def setUp(self) -> None:
        super().setUp()
        self.program, self.alertmanager = servers.Server(), servers.Alertmanager()
        for server in (self.program, self.alertmanager):
            server.__enter__()  # type: ignore[no-untyped-call]
            self.addCleanup(server.__exit__)
        #: What was silenced when the program was told, and where the instance was.
        self.seen: list[tuple[str, int, str]] = []
        self.program.answer = self._told
        path = os.path.join(self.mkdtemp(), 'secret')
        with open(path, 'w') as f:
            f.write('correct horse battery staple')
        for group, option, value in (
                ('hooks', 'enabled', ['alertmanager', 'webhook']),
                ('hook_webhook', 'url', self.program.url),
                ('hook_webhook', 'secret_file', path),
                ('hook_alertmanager', 'url', f'{self.alertmanager.url}/prefix')):
            self.conf.set_override(option, value, group)
        self.worker = self.new_worker('w1')

    def mkdtemp(self) -> str:
        import fixtures

        return str(self.useFixture(fixtures.TempDir()).path)

    def new_worker(self, name: str, clock: Callable[[], float] | None = None) -> worker.Worker:
        return worker.Worker(
            self.store, self.executor, self.worker._settings,
            lambda event, result: self.told.append((event, result)), clock=clock, name=name,
            hooks=(hook_catalogue.HookCatalogue.load_hooks(self.conf, lambda: self.connection),
                   hook_runner.build_settings(self.conf)))

    def _told(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        found = json.loads(body)
        active = [s for s in self.alertmanager.silences.values()
                  if s['status']['state'] == 'active']
        self.seen.append((found['event'], len(active), found['to_host']))
        return 204, {}, b''

    def settled(self, task: model.Task) -> bool:
        self.worker.run_once(self.worker._clock())
        return not self.store.hooks.list_task_hooks(task.task_id)

    @marks.turns(3)
    def test_each_attempt_calls_its_hooks_despite_failure(self) -> None:
        server = self.boot(host='host1')
        self.fail_on_the_way('host2')
        task = self.queue(server, 'host2', 'host3')
        row = self.carried_out(task)
        self.wait_for(lambda: self.settled(task), 'the hooks after it')

        self.assertIs(model.TaskState.COMPLETED, row.task.state, row.error)
        self.assertEqual('host3', self.host_of(server))
        self.assertEqual([
            ('migration.before', 1, 'host2'), ('migration.after', 1, 'host2'),
            ('migration.before', 1, 'host3'), ('migration.after', 1, 'host3')], self.seen)
        self.assertEqual({'expired'}, {
            s['status']['state'] for s in self.alertmanager.silences.values()})
        ends = [json.loads(body)['success'] for _m, _p, _h, body in self.program.requests]
        self.assertEqual([None, False, None, True], ends)
        for attempt in row.attempts:
            self.assertLessEqual({'queue', 'pre_flight', 'hooks', 'pre_check', 'post_flight'},
                                 set(attempt.phases))

    def test_refusing_webhook_prevents_migration(self) -> None:
        server = self.boot(host='host1')
        self.conf.set_override('retry_backoff', 0.0, 'executor')
        self.program.answer = lambda *args: (500, {}, b'')
        task = self.queue(server, 'host2')
        self.wait_for(lambda: self.refused(task), 'the failure of its hook')
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        self.assertEqual('HookFailed', row.error_type)
        self.assertIn('hook webhook was answered HTTP 500', str(row.error))
        self.assertEqual([], self.asked)
        self.assertEqual('host1', self.host_of(server))
        self.assertEqual({}, dict(self.store.history.read_history('', time.time()).quarantined))

    def refused(self, task: model.Task) -> Any:
        self.worker.run_once(self.worker._clock())
        row = self.store.tasks.find_task(task.task_id)
        return row is not None and row.attempts

    def test_successor_calls_after_hooks_of_dead_executor(self) -> None:
        server = self.boot(host='host1')
        task = self.queue(server, 'host2')
        for _ in range(200):
            self.worker.run_once(self.worker._clock())
            if self.asked:
                break
            time.sleep(0.05)
        late = time.time() + self.worker._settings.claim_seconds + 1
        self.worker = self.new_worker('w2', lambda: late)
        row = self.carried_out(task)
        self.wait_for(lambda: self.settled(task), 'the hooks after it')
        self.assertIs(model.TaskState.COMPLETED, row.task.state, row.error)
        self.assertEqual(['migration.before', 'migration.after'],
                         [event for event, _n, _h in self.seen])
        self.assertEqual({'expired'}, {
            s['status']['state'] for s in self.alertmanager.silences.values()})
