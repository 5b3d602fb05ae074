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

"""A drain's live migration that does not converge, in a real Nova: completed by force."""

import dataclasses
import datetime
import threading
from typing import Any
from unittest import mock

from nova import context
from nova.db.main import api as nova_database
from nova.virt import fake

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.clients import live_copies
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.executors import nova
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import rows
from tests import marks
from tests.functional import test_cold_migration
from tests.unit.rebalancer.executors import copied_guests

MIB = 1024 * 1024
#: When nova-compute wrote the first amounts.
BEGAN_AT = datetime.datetime(2026, 11, 27, 10, 0)


class EscalationCase(test_cold_migration.RunningCase):

    def setUp(self) -> None:
        super().setUp()
        self.guest, self.copied_seconds = copied_guests.Guest(1000.0, 500.0, 1000.0, 100.0), 0
        self.settings = dataclasses.replace(
            self.settings, reset_state_after_abort=True,
            escalation_limits=escalation.EscalationLimits(
                (model.EscalationKind.FORCE_COMPLETE,), arrival_seconds=60.0))

    def copied(self, migration: dict[str, Any], seconds: int) -> None:
        """Write what nova-compute writes about a guest that writes faster than is sent."""
        while self.copied_seconds < seconds:
            self.guest.pass_second()
            self.copied_seconds += 1
        sample = self.guest.sample(0.0)
        nova_database.migration_update(context.get_admin_context(), migration['id'], {
            'memory_total': 1000 * MIB, 'memory_processed': sample.sent,
            'memory_remaining': sample.remaining,
            'updated_at': BEGAN_AT + datetime.timedelta(seconds=seconds)})

    def watch(self, by: Any, server: dict[str, Any], until: int) -> None:
        """Look every 10 s while the migration copies."""
        migration = self.running(server)
        for seconds in range(0, until + 1, 10):
            self.copied(migration, seconds)
            by.run_once(self.now)
            self.now += 10

    def begin(self, arrive_by: float | None = None) -> tuple[dict[str, Any], model.Task]:
        server = self.drained(None, 'ACTIVE')
        task = dataclasses.replace(self.task(server, method=model.MoveMethod.LIVE),
                                   arrive_by=arrive_by)
        self.save(task)
        self.drain_host()
        return server, task

    def drain_host(self) -> None:
        """Store the drain of host1, as an engine does."""
        self.store.plans._runner.run_transaction(
            lambda c: plans.set_draining(c, model.UNASSIGNED, ['host1'], self.now))

    def row(self, task: model.Task) -> rows.TaskRow:
        row = self.store.tasks.find_task(task.task_id)
        assert row is not None
        return row

    def forced(self) -> list[str]:
        return [path for method, path in self.nova_api.door.requests
                if method == 'POST' and path.endswith('/action') and '/migrations/' in path]


class ForceTestCase(EscalationCase):

    def test_migration_that_does_not_converge_is_completed_by_force(self) -> None:
        server, task = self.begin()
        by = self.new_worker(self.executor, 'w1')
        by.run_once(self.now)
        self.watch(by, server, 60)
        self.assertEqual(1, len(self.forced()))
        self.assertIs(TaskState.COMPLETED, self.ended(by, task))
        self.assertEqual('host2', self.host_of(server))
        (step,) = self.row(task).escalation
        self.assertEqual('accepted', step.answer)
        self.assertIn('MiB/s are sent', step.reason)
        assert step.seconds is not None
        self.assertTrue(0 <= step.seconds < 60, step.seconds)
        actions = [action['action'] for action in self.admin_api.api_get(
            f'/servers/{server["id"]}/os-instance-actions').body['instanceActions']]
        self.assertEqual(1, actions.count('live_migration_force_complete'))

    def test_deadline_of_the_drain_brings_the_step_forward(self) -> None:
        self.settings = dataclasses.replace(
            self.settings, escalation_limits=dataclasses.replace(
                self.settings.escalation_limits, arrival_seconds=600.0))
        server, task = self.begin(arrive_by=self.now + 65.0)
        by = self.new_worker(self.executor, 'w1')
        by.run_once(self.now)
        self.watch(by, server, 60)
        self.assertEqual(1, len(self.forced()))
        self.assertIs(TaskState.COMPLETED, self.ended(by, task))
        (step,) = self.row(task).escalation
        self.assertIn('the deadline of the drain', step.reason)

    @marks.turns(12)
    def test_postcopy_is_recorded_and_not_aborted(self) -> None:
        """Here the compute node has begun it, as with libvirt, when Nova answers."""
        server, task = self.begin()
        by = self.new_worker(self.executor, 'w1', monotonic=lambda: self.now)
        arrived = threading.Event()

        def migrate(driver: Any, ctxt: Any, instance: Any, dest: str, post_method: Any,
                    recover_method: Any, block_migration: bool = False,
                    migrate_data: Any = None) -> None:
            self.assertTrue(arrived.wait(timeout=120))
            post_method(ctxt, instance, dest, block_migration, migrate_data)

        def switch(*args: Any) -> None:
            nova_database.migration_update(
                context.get_admin_context(), self.migrations(server)[0]['id'],
                {'status': live_copies.POSTCOPY})

        driver = fake.FakeLiveMigrateDriver
        with (mock.patch.object(driver, 'live_migration', migrate),
              mock.patch.object(driver, 'live_migration_force_complete', switch)):
            by.run_once(self.now)
            self.watch(by, server, 60)
            self.wait_for(lambda: self.migrations(server)[0]['status'] == live_copies.POSTCOPY,
                          'post-copy')
            self.now += 200
            by.run_once(self.now)
            self.assertEqual([model.ACCEPTED_POSTCOPY],
                             [step.answer for step in self.row(task).escalation])
            arrived.set()
            self.assertIs(TaskState.COMPLETED, self.ended(by, task))
        self.assertEqual([], [path for method, path in self.nova_api.door.requests
                              if method == 'DELETE'])

    @marks.turns(12)
    def test_contract_of_the_instance_keeps_it_from_force(self) -> None:
        server, task = self.begin()
        by = self.new_worker(self.executor, 'w1')
        by.run_once(self.now)
        self.conf.set_override('opted_out_projects', [server['tenant_id']], 'engine')
        by = self.new_worker(nova.NovaExecutor(self.conf, self.connection), 'w1')
        self.watch(by, server, 60)
        self.assertEqual([], self.forced())
        self.assertIs(TaskState.COMPLETED, self.ended(by, task), 'the driver ends it by itself')
        self.assertEqual((), self.row(task).escalation, 'a later look may find it allowed')

    @marks.turns(3)
    def test_successor_of_an_executor_that_died_in_the_step_does_not_repeat_it(self) -> None:
        server, task = self.begin()
        first = self.new_worker(self.executor, 'w1')
        first.run_once(self.now)

        def crash(*args: Any) -> None:
            raise test_cold_migration.Crash
        with mock.patch.object(self.executor, 'force_completion', crash):
            self.assertRaises(test_cold_migration.Crash, self.watch, first, server, 60)
        self.assertEqual([None], [step.answer for step in self.row(task).escalation])
        self.now += 61
        self.assertIs(TaskState.COMPLETED,
                      self.ended(self.new_worker(self.executor, 'w2'), task))
        self.assertEqual([], self.forced())
        self.assertEqual([None], [step.answer for step in self.row(task).escalation])


class AbortTestCase(EscalationCase):

    @marks.turns(12)
    def test_forced_migration_that_does_not_arrive_is_aborted(self) -> None:
        """The fake compute node ends a migration by force at once: here it loses the request."""
        self.useFixture(test_cold_migration.RaisedAborts())
        server, task = self.begin()
        by = self.new_worker(self.executor, 'w1', monotonic=lambda: self.now)
        by.run_once(self.now)
        with mock.patch('nova.virt.fake.FakeLiveMigrateDriver.live_migration_force_complete',
                        autospec=True):
            self.watch(by, server, 60)
            self.assertEqual(['accepted'], [step.answer for step in self.row(task).escalation])
            self.now += 200
            by.run_once(self.now)
        self.assertEqual(migration_deadlines.ABORTING_FORCED, self.row(task).error)
        self.broken(server)
        by.run_once(self.now)
        self.now += 31  # So long Nova may write ERROR after it wrote cancelled.
        self.assertIs(TaskState.FAILED, self.ended(by, task))
        row = self.row(task)
        self.assertIn('did not arrive in time after its completion by force', str(row.error))
        self.assertEqual(('ACTIVE', 'host1'), (
            self.admin_api.get_server(server['id'])['status'], self.host_of(server)))
