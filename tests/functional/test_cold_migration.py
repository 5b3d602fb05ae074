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

"""Stopped and paused instances on a drain, and aborted migrations, in a real Nova."""

from collections.abc import Callable
import dataclasses
import time
from typing import Any
from unittest import mock

import fixtures
from nova.virt import fake

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.executors import base as executors
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.executors import nova
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from tests import marks
from tests.functional import test_nova_executor

Stage = executors.MigrationStage


class Crash(BaseException):
    """The process is gone."""


class DrainCase(test_nova_executor.ExecutorCase):
    """host1 is disabled; tasks drain it to host2. Ours is user kronos; an
    operator is user admin."""

    hosts = ('host1', 'host2')
    user = 'kronos'

    def setUp(self) -> None:
        super().setUp()
        self.conf.set_override('cold_migrate_stopped', True, 'engine')
        self.collector = collector.CloudCollector(self.conf, self.connection)
        auth = self.connection.session.auth
        auth.get_user_id = lambda session, **kw: 'kronos'
        service = self.service_id('host1')
        self.enable = lambda enabled: self.admin_api.put_service(
            service, {'status': 'enabled' if enabled else 'disabled'})

    def drained(self, action: str | None = 'os-stop', status: str = 'SHUTOFF') -> dict[str, Any]:
        """An instance in this status on host1, which is disabled after that."""
        self.enable(True)
        server = self.boot(host='host1')
        if action is not None:
            self.admin_api.post_server_action(server['id'], {action: None})
        server = self._wait_for_state_change(server, status)
        self.enable(False)
        return dict(server)

    def task(self, server: dict[str, Any], to_host: str = 'host2',
             phase: model.Phase = model.Phase.EVACUATE, aggregate: str = model.UNASSIGNED,
             method: model.MoveMethod = model.MoveMethod.COLD) -> model.Task:
        return model.Task(
            task_id=server['id'], plan_id='p1', aggregate=aggregate, instance_uuid=server['id'],
            from_host='host1', to_host=to_host, phase=phase, method=method, memory_mb=2048)

    def reached(self, stage: Stage, task: model.Task, marker: str) -> executors.MigrationProgress:
        def found() -> executors.MigrationProgress | None:
            progress = self.executor.read_progress(task, marker)
            return progress if progress.stage is stage else None
        progress: executors.MigrationProgress = self.wait_for(found, f'stage {stage}')
        return progress

    def requested(self, task: model.Task) -> str:
        """The marker of a migration that Nova has carried out, unconfirmed."""
        marker = self.pre_flight(task)
        self.assertRegex(str(self.executor.submit(task)), '^req-')
        self.reached(Stage.UNCONFIRMED, task, marker)
        return marker

    def posts(self) -> int:
        return sum(1 for method, _path in self.nova_api.door.requests if method == 'POST')

    def allocations(self, consumer: str) -> dict[str, Any]:
        return dict(self.placement.get(f'/allocations/{consumer}').body['allocations'])


class ColdMigrationTestCase(DrainCase):

    def test_executor_confirms_only_own_cold_migration(self) -> None:
        server = self.drained()
        seen = self.collector.collect_cluster(time.time()).instances[server['id']]
        self.assertEqual(('SHUTOFF', 'host1'), (seen.status, seen.host))
        task = self.task(server)
        marker = self.pre_flight(task)
        self.assertIs(Stage.ABSENT, self.executor.read_progress(task, marker).stage)
        marker = self.requested(task)
        flight, = self.collector.collect_cluster(time.time()).flights
        self.assertEqual((server['id'], 'host1', 'host2'),
                         (flight.instance_uuid, flight.from_host, flight.to_host))
        error = self.assertRaises(exception.MigrationFailed, self.executor.post_flight, task)
        self.assertIn('but VERIFY_RESIZE', str(error))
        second = self.assertRaises(exception.AmbiguousSubmit, self.executor.submit, task)
        self.assertIn('migrating already', str(second))
        self.executor.confirm(task, marker)
        progress = self.watched(task, marker)
        self.assertIs(Stage.COMPLETED, progress.stage, progress)
        migration, = self.migrations(server)
        self.assertEqual((migration['uuid'], 'confirmed'),
                         (progress.reference, migration['status']))
        self._wait_for_state_change(server, 'SHUTOFF')
        self.wait_for(lambda: not self.allocations(migration['uuid']), 'freed allocations')
        self.executor.post_flight(task)
        self.assertEqual('host2', self.host_of(server))
        self.assertEqual([self._get_provider_uuid_by_host('host2')],
                         list(self.allocations(server['id'])))
        again = self.assertRaises(
            exception.NovaClientError, self.executor.confirm, task, marker)
        self.assertIn('HTTP 409', str(again))

        # What Nova leaves behind at the source is found.
        left = {self._get_provider_uuid_by_host('host1'): {'resources': {'VCPU': 1}}}
        self.placement.put(f'/allocations/{migration["uuid"]}', {
            'allocations': left, 'project_id': 'p', 'user_id': 'u',
            'consumer_generation': None, 'consumer_type': 'MIGRATION'}, version='1.38')
        error = self.assertRaises(exception.MigrationFailed, self.executor.post_flight, task)
        self.assertIn('still has an allocation for it on host1', str(error))

        # What others ask for is left to them, and what they do to ours respected.
        server = self.drained()
        task = self.task(server)
        marker = self.pre_flight(task)
        self.admin_api.post_server_action(server['id'], {'migrate': {'host': 'host2'}})
        self._wait_for_state_change(server, 'VERIFY_RESIZE')
        found = self.executor.read_progress(task, marker)
        self.assertEqual(Stage.ABSENT, found.stage, found)
        self.assertIn('asked for by user admin', found.detail)
        self.assert_refused('moved-away', task)
        self.assertRaises(exception.AmbiguousSubmit, self.executor.submit, task)
        self.assertIs(Stage.ABSENT, self.executor.read_progress(task, marker).stage)
        self.assertEqual(1, len(self.migrations(server)))

        server = self.drained()
        marker = self.requested(self.task(server))
        self.admin_api.post_server_action(server['id'], {'revertResize': None})
        progress = self.watched(self.task(server), marker)
        self.assertIs(Stage.CANCELLED, progress.stage)
        self.assertIn('reverted', progress.detail)
        self._wait_for_state_change(server, 'SHUTOFF')

        # As Nova's resize_confirm_window does.
        marker = self.requested(self.task(server))
        self.admin_api.post_server_action(server['id'], {'confirmResize': None})
        self.assertIs(Stage.COMPLETED, self.watched(self.task(server), marker).stage)

        # And its owner may start it at once.
        self._wait_for_state_change(server, 'SHUTOFF')
        self.admin_api.post_server_action(server['id'], {'os-start': None})
        self._wait_for_state_change(server, 'ACTIVE')
        self.executor.post_flight(self.task(server))

        server = self.drained()
        marker = self.requested(self.task(server))
        self._delete_server(server)
        self.assertIs(Stage.CANCELLED, self.watched(self.task(server), marker).stage)

    @marks.long
    def test_cold_migration_failures_and_changed_methods_are_reported(self) -> None:
        server = self.drained()
        task = self.task(server)
        marker = self.pre_flight(task)
        with self.disabled('host2'):
            self.executor.submit(task)
            progress = self.watched(task, marker)
        self.assertIs(Stage.FAILED, progress.stage, progress)
        self.assertFalse(progress.broken)
        # Nova writes the reason down a moment after the end.
        self.wait_for(lambda: 'No valid host' in self.executor.read_progress(task, marker).detail,
                      'the reason')
        self.assertEqual('SHUTOFF', self.admin_api.get_server(server['id'])['status'])

        marker = self.pre_flight(task)
        with mock.patch.object(self.computes['host2'].driver, 'finish_migration',
                               autospec=True, side_effect=RuntimeError('no disk')):
            self.executor.submit(task)
            progress = self.watched(task, marker)
        self.assertIs(Stage.FAILED, progress.stage, progress)
        self.assertTrue(progress.broken)
        self.assertIn('RuntimeError', progress.detail)
        unknown = self.assertRaises(
            exception.MigrationFailed, self.executor.submit, self.task(self.drained(), 'host9'))
        self.assertIn('HTTP 400', str(unknown))

        # How it is moved is judged as well.
        stopped = self.drained()
        self.pre_flight(self.task(stopped))
        self.assert_refused('method-changed', self.task(stopped, method=model.MoveMethod.LIVE))
        self.assert_refused('not-active', self.task(stopped, phase=model.Phase.SPREAD))
        self.admin_api.post_server_action(stopped['id'], {'lock': {}})
        self.assert_refused('locked', self.task(stopped))
        self.admin_api.post_server_action(stopped['id'], {'unlock': {}})
        self.conf.set_override('cold_migrate_stopped', False, 'engine')
        self.assert_refused('not-active', self.task(stopped))
        self.conf.set_override('cold_migrate_stopped', True, 'engine')
        self.admin_api.post_server_action(stopped['id'], {'os-start': None})
        self._wait_for_state_change(stopped, 'ACTIVE')
        self.assert_refused('method-changed', self.task(stopped))

        # A paused one is live-migrated, and still paused.
        server = self.drained('pause', 'PAUSED')
        self.assert_refused('not-active', self.task(
            server, phase=model.Phase.SPREAD, method=model.MoveMethod.LIVE))
        task = self.task(server, method=model.MoveMethod.LIVE)
        marker = self.pre_flight(task)
        self.executor.submit(task)
        self.assertIs(Stage.COMPLETED, self.watched(task, marker).stage)
        self._wait_for_server_parameter(server, {'OS-EXT-STS:task_state': None})
        self.executor.post_flight(task)
        self.assertEqual('PAUSED', self.admin_api.get_server(server['id'])['status'])


class WorkerCase(DrainCase):
    """A worker on a store of its own, whose time a test moves."""

    settings = retry.RetrySettings(look_interval=0.0, claim_seconds=60.0, migration_timeout=600.0)

    def setUp(self) -> None:
        super().setUp()
        self.now = 1_700_000_000.0
        self.store = self.new_store(clock=lambda: self.now)

    def new_worker(self, driver: executors.Executor, name: str,
                   monotonic: Callable[[], float] = time.monotonic) -> worker.Worker:
        return worker.Worker(self.store, driver, self.settings, clock=lambda: self.now,
                             monotonic=monotonic, name=name)

    def save(self, task: model.Task) -> None:
        lease = self.store.leases.acquire_lease(model.UNASSIGNED, 'engine', 1e6, 'hash')
        plan = model.Plan(model.UNASSIGNED, (model.Move(
            task.instance_uuid, task.from_host, task.to_host, task.phase),))
        self.store.plans.save_plan(
            lease, plan, [task], plan_id=task.plan_id, now=self.now, dry_run=False, cooldown=0.0,
            instance_cooldown=0.0)

    def state(self, task: model.Task) -> TaskState:
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        return row.task.state

    def ended(self, by: worker.Worker, task: model.Task) -> TaskState:
        def step() -> bool:
            by.run_once(self.now)
            return self.state(task).is_terminal
        self.wait_for(step, 'the end of the task')
        return self.state(task)


class CrashTestCase(WorkerCase):

    def test_crash_at_any_step_leads_to_one_confirmed_move(self) -> None:
        for step, after in (('submit', True), ('confirm', True)):
            server = self.drained()
            task = self.task(server)
            task = model.Task(**{**{f: getattr(task, f) for f in task.__slots__},
                                 'plan_id': f'{step} {after}'})
            self.save(task)
            before = self.posts()
            dying = nova.NovaExecutor(self.conf, self.connection)

            def crash(*args: Any, step: str = step, after: bool = after,
                      dying: Any = dying) -> None:
                if after:
                    getattr(nova.NovaExecutor, step)(dying, *args)
                raise Crash()

            first = self.new_worker(dying, f'{step} {after} 1')
            with mock.patch.object(dying, step, crash):
                self.assertRaises(Crash, self.ended, first, task)
            self.assertFalse(self.state(task).is_terminal)
            self.now += 61
            successor = self.new_worker(self.executor, f'{step} {after} 2')
            self.assertIs(TaskState.COMPLETED, self.ended(successor, task), (step, after))
            self.assertEqual('host2', self.host_of(server))
            self.assertEqual('SHUTOFF', self.admin_api.get_server(server['id'])['status'])
            self.assertEqual(1, len(self.migrations(server)))
            # Nova refuses a confirmation that comes twice.
            self.assertLessEqual(self.posts() - before, 3 if (step, after) == ('confirm', True)
                                 else 2, (step, after))


class AbortTestCase(WorkerCase):
    compute_driver = 'fake.FakeLiveMigrateDriver'
    status, left_in = 'cancelled', 'ACTIVE'
    settings = retry.RetrySettings(look_interval=0.0, claim_seconds=1e6, migration_timeout=600.0,
                                   abort_at_deadline=True)

    @marks.turns(12)
    def test_live_migration_past_deadline_is_aborted_as_timeout(self) -> None:
        server = self.drained(None, 'ACTIVE')
        task = self.task(server, method=model.MoveMethod.LIVE)
        self.save(task)
        by = self.new_worker(self.executor, 'w')

        def running() -> bool:
            by.run_once(self.now)
            return any(m['status'] == 'running' for m in self.migrations(server))
        self.wait_for(running, 'a running migration')
        self.assertIs(TaskState.SUBMITTED, self.state(task))
        self.now += 600 + 2 * 800
        by.run_once(self.now)
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        self.assertEqual((TaskState.UNKNOWN, migration_deadlines.ABORTING),
                         (row.task.state, row.error))
        self.wait_for(lambda: self.migrations(server)[0]['status'] == self.status,
                      'the end of the migration')
        by.run_once(self.now)
        self.now += 31  # So long Nova may write ERROR after it wrote cancelled.
        self.assertIs(TaskState.FAILED, self.ended(by, task))
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        self.assertEqual('MigrationTimeout', row.error_type)
        self.assertIn('was aborted', str(row.error))
        [held] = self.store.quarantine.list_quarantines(self.now)
        self.assertEqual(server['id'], held.name)
        self.assertIsNotNone(held.until, 'no everlasting quarantine')
        self.assertEqual(self.left_in, self.admin_api.get_server(server['id'])['status'])
        self.assertEqual('host1', self.host_of(server))
        aborts = [r for r in self.nova_api.door.requests if r[0] == 'DELETE']
        self.assertEqual(1, len(aborts))
        self.assertFalse(self.executor.abort(task, str(row.marker)), 'it is over')


class RaisedAborts(fixtures.Fixture):
    """As on libvirt: the job's error is raised again after the rollback of an abort."""

    def _setUp(self) -> None:
        real = fake.FakeLiveMigrateDriver.live_migration

        def live_migration(driver: Any, *args: Any, **kw: Any) -> None:
            real(driver, *args, **kw)
            if driver._abort_migration:
                raise RuntimeError('operation aborted: migration out job: canceled by client')
        self.useFixture(fixtures.MonkeyPatch(
            'nova.virt.fake.FakeLiveMigrateDriver.live_migration', live_migration))


@marks.long
class AbortErrorTestCase(AbortTestCase):
    """Nova writes ERROR after the abort."""

    status, left_in = 'error', 'ERROR'

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(RaisedAborts())


class ResetStateTestCase(AbortErrorTestCase):
    left_in = 'ACTIVE'
    settings = dataclasses.replace(AbortTestCase.settings, reset_state_after_abort=True)


class RunningCase(WorkerCase):
    """Live migrations run until a test ends them."""

    compute_driver = 'fake.FakeLiveMigrateDriver'

    def running(self, server: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.wait_for(
            lambda: next((m for m in self.migrations(server) if m['status'] == 'running'), None),
            'a running migration')
        return found

    def broken(self, server: dict[str, Any]) -> None:
        """Nova records no fault of an abort."""
        self.wait_for(lambda: self.admin_api.get_server(server['id'])['status'] == 'ERROR',
                      'ERROR after an abort')

    def wait_for_status(self, migration: dict[str, Any], status: str) -> None:
        self.wait_for(lambda: any(
            m['uuid'] == migration['uuid'] and m['status'] == status
            for m in self.migrations({'id': migration['instance_uuid']})), f'status {status}')


class OperatorAbortTestCase(RunningCase):

    @marks.turns(12)
    def test_operator_abort_cancels_task_without_quarantine(self) -> None:
        self.useFixture(RaisedAborts())
        server = self.drained(None, 'ACTIVE')
        task = self.task(server, method=model.MoveMethod.LIVE)
        self.save(task)
        self.new_worker(self.executor, 'w1').run_once(self.now)
        running = self.running(server)
        self.admin_api.api_delete(f'/servers/{server["id"]}/migrations/{running["id"]}')
        self.broken(server)
        self.now += 61
        successor = self.new_worker(self.executor, 'w2')
        self.assertIs(TaskState.CANCELLED, self.ended(successor, task))
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        self.assertIn('aborted in Nova, by an operator', str(row.error))
        self.assertIn(f'openstack server set --state active {server["id"]}', str(row.error))
        self.assertEqual([], self.store.quarantine.list_quarantines(self.now))

    @marks.turns(12)
    def test_operator_abort_of_overdue_task_is_not_ours(self) -> None:
        """Nova refuses the executor's abort, and carries out the operator's later."""
        self.useFixture(RaisedAborts())
        self.settings = dataclasses.replace(self.settings, abort_at_deadline=True)
        server = self.drained(None, 'ACTIVE')
        task = self.task(server, method=model.MoveMethod.LIVE)
        self.save(task)
        by = self.new_worker(self.executor, 'w1')
        by.run_once(self.now)
        running = self.running(server)
        self.now += 600 + 2 * 800
        with mock.patch.object(self.executor, 'abort', autospec=True, return_value=False):
            by.run_once(self.now)
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        self.assertEqual(migration_deadlines.ABORTING, row.error)
        self.admin_api.api_delete(f'/servers/{server["id"]}/migrations/{running["id"]}')
        self.broken(server)
        self.assertIs(TaskState.CANCELLED, self.ended(by, task))
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        self.assertIn('aborted in Nova, by an operator', str(row.error))
        self.assertEqual([], self.store.quarantine.list_quarantines(self.now))

    @marks.turns(12)
    def test_successor_recognises_own_abort(self) -> None:
        """Nova records the abort request, but no event says why the migration failed."""
        self.useFixture(RaisedAborts())
        self.settings = dataclasses.replace(self.settings, abort_at_deadline=True)
        server = self.drained(None, 'ACTIVE')
        task = self.task(server, method=model.MoveMethod.LIVE)
        self.save(task)
        first = self.new_worker(self.executor, 'w1')
        first.run_once(self.now)
        self.running(server)
        self.now += 600 + 2 * 800
        first.run_once(self.now)
        self.broken(server)
        self.now += 61
        self.assertIs(TaskState.FAILED, self.ended(self.new_worker(self.executor, 'w2'), task))
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        self.assertEqual('MigrationTimeout', row.error_type)
        self.assertIn('our own abort', str(row.error))


class LateRequestTestCase(RunningCase):
    hosts = ('host1', 'host2', 'host3')

    def test_late_request_is_aborted_on_current_host(self) -> None:
        """Nova carries it out from host3, since the request names no source."""
        server = self.drained(None, 'ACTIVE')
        task = dataclasses.replace(
            self.task(server, method=model.MoveMethod.LIVE), max_retries=0)
        self.save(task)
        late = nova.NovaExecutor(self.conf, self.connection)
        real = late.submit

        def submit(*args: Any) -> str | None:
            """Stand still while another executor ends the task and an operator moves on."""
            nonlocal suspended
            other = self.new_worker(self.executor, 'w2', monotonic=lambda: self.now)
            for _ in range(2):
                self.now += 61
                suspended += 61
                other.run_once(self.now)
            self.assertIs(TaskState.FAILED, self.state(task))
            self.admin_api.post_server_action(
                server['id'], {'os-migrateLive': {'host': 'host3', 'block_migration': 'auto'}})
            by_hand = self.running(server)
            self.admin_api.api_post(
                f'/servers/{server["id"]}/migrations/{by_hand["id"]}/action',
                {'force_complete': None})
            self.wait_for_status(by_hand, 'completed')
            self._wait_for_server_parameter(server, {'OS-EXT-STS:task_state': None})
            return real(*args)

        # Monotonic time stands still where a machine is suspended.
        suspended = 0
        first = self.new_worker(late, 'w1', monotonic=lambda: self.now - suspended)
        with mock.patch.object(late, 'submit', submit):
            first.run_once(self.now)
        stray = self.running(server)
        self.assertEqual(('host3', 'host2'), (stray['source_compute'], stray['dest_compute']))
        first.run_once(self.now)
        self.wait_for_status(stray, 'cancelled')
        self._wait_for_server_parameter(server, {'OS-EXT-STS:task_state': None})
        self.assertEqual('host3', self.host_of(server))
        for _ in range(2):
            first.run_once(self.now)
            self.now += 31
        before = len(self.nova_api.door.requests)
        first.run_once(self.now)
        self.assertEqual(before, len(self.nova_api.door.requests), 'its end was seen')
