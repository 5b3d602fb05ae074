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


"""A worker, the nova executor and a task with alternates, against a real Nova and a
real Placement."""

from collections.abc import Callable
import dataclasses
import time
from typing import Any

import fixtures
from nova import context
from nova import exception as nova_exception
from nova import objects
from nova.compute import power_state

from kronos_nova import model
from kronos_nova.rebalancer.executors import outcomes
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.store import rows
from tests import marks
from tests.functional import test_nova_executor


class AlternatesCase(test_nova_executor.ExecutorCase):
    hosts = ('host1', 'host2', 'host3', 'host4', 'host5')

    def setUp(self) -> None:
        super().setUp()
        self.conf.set_override('max_alternates', 3, 'engine')
        self.store = self.new_store()
        self.told: list[tuple[str, model.TaskResult]] = []
        settings = dataclasses.replace(retry.build_settings(self.conf), look_interval=0.0,
                                       begin=True)
        self.worker = worker.Worker(
            self.store, self.executor, settings,
            lambda event, result: self.told.append((event, result)))
        #: Destination and all that is allocated, when Nova was asked.
        self.asked: list[tuple[str, dict[str, dict[str, Any]]]] = []
        self.before_asking: dict[str, Callable[[], Any]] = {}
        really = self.executor.submit

        def submit(task: model.Task, *may_send: Any) -> str | None:
            self.asked.append((task.to_host, self.held(task.instance_uuid)))
            self.before_asking.get(task.to_host, lambda: None)()
            return really(task, *may_send)

        self.useFixture(fixtures.MockPatchObject(self.executor, 'submit', submit))

    def held(self, uuid: str) -> dict[str, dict[str, Any]]:
        """Allocations of the instance and of all its migrations, by consumer,
        then by host."""
        names = {self._get_provider_uuid_by_host(host): host for host in self.hosts}
        consumers = [uuid] + [m['uuid'] for m in self.migrations({'id': uuid})]
        found = {}
        for consumer in consumers:
            allocations = self.placement.get(f'/allocations/{consumer}').body['allocations']
            found[consumer] = {names[p]: a['resources'] for p, a in allocations.items()}
        return {consumer: by_host for consumer, by_host in found.items() if by_host}

    def queue(self, server: dict[str, Any], *hosts: str) -> model.Task:
        """A stored task of the server with these destinations."""
        task = dataclasses.replace(self.task(server, hosts[0]), alternates=hosts[1:])
        lease = self.store.leases.acquire_lease(task.aggregate, 'engine', 30, 'hash')
        assert lease is not None
        self.store.plans.save_plan(
            lease, model.Plan(task.aggregate, (model.Move(
                task.instance_uuid, task.from_host, task.to_host, task.phase,
                alternates=task.alternates),)), [task], plan_id=task.plan_id,
            now=time.time(), dry_run=False, cooldown=0, instance_cooldown=0)
        return task

    def carried_out(self, task: model.Task) -> rows.TaskRow:
        """What the task's row says when it has ended."""
        def ended() -> rows.TaskRow | None:
            self.worker.run_once(self.worker._clock())
            row = self.store.tasks.find_task(task.task_id)
            assert row is not None
            return row if row.task.state.is_terminal else None
        found: rows.TaskRow = self.wait_for(ended, 'the end of the task')
        return found

    def refuse_at_its_compute(self, host: str) -> None:
        def refuse(*args: Any, **kwargs: Any) -> None:
            raise nova_exception.MigrationPreCheckError(reason='the host has no room for it')
        self.useFixture(fixtures.MockPatchObject(
            self.computes[host].driver, 'check_can_live_migrate_destination', refuse))

    def fail_on_the_way(self, host: str) -> None:
        """The hypervisor of host1 gives up: nova-compute rolls back."""
        driver = self.computes['host1'].driver
        really = driver.live_migration

        def live_migration(context: Any, instance: Any, dest: str, post_method: Any,
                           recover_method: Any, block_migration: bool = False,
                           migrate_data: Any = None) -> None:
            if dest == host:
                return recover_method(context, instance, dest, migrate_data)
            return really(context, instance, dest, post_method, recover_method,
                          block_migration, migrate_data)
        self.useFixture(fixtures.MockPatchObject(driver, 'live_migration', live_migration))


class RefusedTestCase(AlternatesCase):

    def test_task_completes_on_last_alternate(self) -> None:
        """Refused by the scheduler, by the destination's compute, and failed
        on its way: each leaves what Placement has as it was."""
        server = self.boot(host='host1')
        before = self.held(server['id'])
        self.assertEqual(['host1'], list(before[server['id']]))
        self.before_asking['host2'] = lambda: self.admin_api.put_service(
            self.service_id('host2'), {'status': 'disabled'})
        self.refuse_at_its_compute('host3')
        self.fail_on_the_way('host4')
        task = self.queue(server, 'host2', 'host3', 'host4', 'host5')
        row = self.carried_out(task)

        self.assertIs(model.TaskState.COMPLETED, row.task.state, row.error)
        self.assertEqual('host5', self.host_of(server))
        self.assertEqual(
            [(host, before) for host in ('host2', 'host3', 'host4', 'host5')], self.asked,
            'whenever Nova was asked, the instance alone had its allocation on host1 alone')
        self.assertEqual({server['id']: {'host5': before[server['id']]['host1']}},
                         self.held(server['id']))
        migrations = sorted(self.migrations(server), key=lambda m: int(m['id']))
        self.assertEqual(['error', 'error', 'failed', 'completed'],
                         [m['status'] for m in migrations])
        self.assertEqual(
            [('host2', 'MigrationFailed'), ('host3', 'MigrationFailed'),
             ('host4', 'MigrationFailed'), ('host5', None)],
            [(a.to_host, a.error_type) for a in row.attempts])
        self.assertEqual([m['uuid'] for m in migrations],
                         [a.migration_uuid for a in row.attempts])
        no_host, no_room, _failed, _done = (a.error for a in row.attempts)
        self.assertIn('No valid host', str(no_host))
        self.assertIn('the host has no room for it', str(no_room))
        (event, result), = self.told
        self.assertEqual((outcomes.COMPLETED, row.attempts), (event, result.attempts))
        self.assertEqual(
            {}, dict(self.store.history.read_history(task.aggregate, time.time()).quarantined))

    @marks.long
    def test_next_alternate_waits_for_leftover_allocation(self) -> None:
        server = self.boot(host='host1')
        self.refuse_at_its_compute('host2')
        task = self.queue(server, 'host2', 'host3')
        self.worker.run_once(self.worker._clock())
        migration, = self.wait_for(
            lambda: [m for m in self.migrations(server) if m['status'] == 'error'],
            'the refusal')
        self._wait_for_server_parameter(server, {'OS-EXT-STS:task_state': None})
        # As after a crash of nova-conductor between two of its steps.
        own = self.placement.get(f'/allocations/{server["id"]}', version='1.38').body
        own['consumer_type'] = 'INSTANCE'
        held = {'allocations': {self._get_provider_uuid_by_host('host2'): {
                    'resources': {'VCPU': 1}}},
                'project_id': own['project_id'], 'user_id': own['user_id'],
                'consumer_generation': None, 'consumer_type': 'MIGRATION'}
        for consumer in (migration['uuid'], server['id']):
            if consumer == server['id']:
                held = {**own, 'allocations': {
                    p: {'resources': a['resources']} for p, a in (
                        *own['allocations'].items(), *held['allocations'].items())}}
            answer = self.placement.put(f'/allocations/{consumer}', held, version='1.38')
            self.assertEqual(204, answer.status, answer.body)
            for _ in range(3):
                self.worker.run_once(self.worker._clock())
            self.assertEqual(['host2'], [host for host, _ in self.asked])
            row = self.store.tasks.find_task(task.task_id)
            assert row is not None
            self.assertIsNotNone(row.doubt_since)
            self.assertEqual((), row.attempts, 'it is not over yet')
            if consumer == migration['uuid']:
                self.assertEqual(204, self.placement.delete(f'/allocations/{consumer}').status)
        own['consumer_generation'] = self.placement.get(
            f'/allocations/{server["id"]}', version='1.38').body['consumer_generation']
        self.assertEqual(204, self.placement.put(
            f'/allocations/{server["id"]}', own, version='1.38').status)
        row = self.carried_out(task)
        self.assertIs(model.TaskState.COMPLETED, row.task.state, row.error)
        self.assertEqual(['host2', 'host3'], [a.to_host for a in row.attempts])
        self.assertEqual('host3', self.host_of(server))

    @marks.long
    def test_unmovable_instance_is_tried_on_one_host_only(self) -> None:
        server = self.boot(host='host1')

        def shut_down() -> None:
            # From within, after pre-flight; and Nova still calls it ACTIVE.
            instance = objects.Instance.get_by_uuid(context.get_admin_context(), server['id'])
            instance.power_state = power_state.SHUTDOWN
            instance.save()

        self.before_asking['host2'] = shut_down
        task = self.queue(server, 'host2', 'host3')
        row = self.carried_out(task)
        self.assertIs(model.TaskState.FAILED, row.task.state)
        self.assertEqual(['host2'], [host for host, _ in self.asked])
        self.assertIn('Cannot live migrate while the instance is in this state', str(row.error))
        self.assertIn(
            server['id'], self.store.history.read_history(task.aggregate, time.time()).quarantined)
