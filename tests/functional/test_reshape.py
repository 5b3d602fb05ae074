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


"""A real POST /reshaper between plan and execution, with live allocations."""

import time
from typing import Any

import fixtures
from nova.virt import fake

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.executors import base as executors
from kronos_nova.rebalancer.executors import nova as nova_executor
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.planning import tasks
from tests import marks
from tests.functional import api
from tests.functional import placement_writer

BASIC = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}


class ModernDriver(fake.MediumFakeDriver):  # type: ignore[misc]
    """A hypervisor that can live-migrate vGPUs."""

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        found: dict[str, Any] = super().get_available_resource(nodename)
        return {**found, 'hypervisor_version': 8002000}


class ReshapeTestCase(api.ApiTestCase):

    def setUp(self) -> None:
        self.useFixture(fixtures.MonkeyPatch('nova.virt.fake.MediumFakeDriver', ModernDriver))
        super().setUp()
        self.store = self.new_store()
        self.conf.set_override('dry_run', False, 'engine')
        self.conf.set_override('migration_poll_interval', 1, 'executor')
        self.later = 0.0
        self.executor = nova_executor.NovaExecutor(self.conf, self.connection)
        self.worker = worker.Worker(self.store, self.executor, retry.build_settings(self.conf),
                                    clock=self.now)
        self.collector = collector.CloudCollector(self.conf, self.connection)
        self.writer = placement_writer.Writer(self.connection)
        self.roots = {host: self._get_provider_uuid_by_host(host) for host in self.hosts}

    def now(self) -> float:
        return time.time() + self.later

    def classes(self, uuid: str, without: tuple[str, ...] = (), **added: int) -> dict[str, int]:
        """A provider's inventories for a reshape: less these, and others."""
        found = self.writer.done('GET', f'/resource_providers/{uuid}/inventories')['inventories']
        return {name: found[name]['total'] for name in found if name not in without} | added

    def planned(self, *uuids: str) -> list[model.Task]:
        """What an engine makes of moves to host2, or host3, one each ten minutes."""
        cluster = self.collector.collect_cluster(self.now())
        plan = model.Plan(model.UNASSIGNED, tuple(model.Move(
            uuid, 'host1', 'host2', model.Phase.SPREAD, alternates=('host3',)) for uuid in uuids))
        numbers = iter(range(99))
        return tasks.from_plan(
            plan, cluster, (), plan_id='plan-1', now=self.now(), stagger_seconds=600,
            max_retries=0, new_id=lambda: f'task-{next(numbers)}',
            options=engine_conf.build_options(self.conf))

    def assert_rule(self, rule: str, task: model.Task) -> None:
        error = self.assertRaises(exception.PreFlightError, self.executor.pre_flight, task,
                                  executors.StoredFacts(now=time.time()))
        self.assertEqual(rule, error.kwargs['rule'], str(error))

    def ended(self, task: model.Task) -> Any:
        """The row of a task, once the executor has ended it."""
        def look() -> Any:
            self.worker.run_once(self.now())
            row = self.store.tasks.find_task(task.task_id)
            return row if row is not None and row.task.state.is_terminal else None
        return self.wait_for(look, f'{task.task_id} to end')

    @marks.turns(3)
    def test_vgpus_move_to_children_between_plan_and_execution(self) -> None:
        writer, roots = self.writer, self.roots
        one, two = (self.boot(host='host1')['id'] for _ in range(2))
        writer.done('PUT', '/resource_classes/CUSTOM_FPGA')
        for root in roots.values():
            writer.reshape({root: self.classes(root, VGPU=4, CUSTOM_FPGA=4)}, {})
        for uuid in (one, two):
            writer.allocate(uuid, {roots['host1']: {**BASIC, 'VGPU': 1, 'CUSTOM_FPGA': 1}})
        first, second = rows = self.planned(one, two)
        plan = model.Plan(model.UNASSIGNED, tuple(model.Move(
            t.instance_uuid, t.from_host, t.to_host, t.phase, alternates=t.alternates)
            for t in rows))
        lease = self.store.leases.acquire_lease(model.UNASSIGNED, 'engine', 30, 'hash')
        assert lease is not None
        self.store.plans.save_plan(
            lease, plan, rows, plan_id='plan-1', now=self.now(), dry_run=False,
                                   cooldown=0, instance_cooldown=0)

        for host in ('host1', 'host2'):
            writer.tell(roots[host], 'CUSTOM_CHANGED')
        # Changed, judged again, and well.
        self.executor.pre_flight(first, executors.StoredFacts(now=time.time()))

        # The destination: another one is taken.
        child = writer.create('host2_gpu', roots['host2'])
        writer.reshape({roots['host2']: self.classes(roots['host2'], ('VGPU',)),
                        child: {'VGPU': 4}}, {})
        self.assert_rule('tree-reshaped', first)
        row = self.ended(first)
        self.assertEqual((model.TaskState.COMPLETED, 'host3', 1),
                         (row.task.state, row.task.to_host, row.attempt), row.error)
        self.assertEqual('host3', self.host_of({'id': one}))

        # The source, with a live allocation: it leaves the plan.
        child = writer.create('host1_gpu', roots['host1'])
        split = {roots['host1']: {**BASIC, 'CUSTOM_FPGA': 1}, child: {'VGPU': 1}}
        writer.reshape({roots['host1']: self.classes(roots['host1'], ('VGPU',)),
                        child: {'VGPU': 4}}, {two: split})
        self.later = 700
        row = self.ended(second)
        self.assertEqual((model.TaskState.FAILED, 'PreFlightError', 0),
                         (row.task.state, row.error_type, row.attempt))
        self.assertIn('source-reshaped', row.error)
        self.assertEqual([], self.migrations({'id': two}))
        history = self.store.history.read_history(model.UNASSIGNED, self.now())
        self.assertEqual(({}, frozenset()), (history.quarantined, history.quarantined_hosts))

        # The next cycle knows: nothing of the old tree is remembered.
        cluster = self.collector.collect_cluster(self.now())
        instance = cluster.instances[two]
        self.assertEqual((split, None), (instance.allocations, instance.pinned))
        self.assertEqual({**BASIC, 'CUSTOM_FPGA': 1, 'VGPU': 1}, instance.claims)
        self.assertEqual([child], [p.uuid for p in cluster.hosts['host1'].nested])
        self.executor.pre_flight(self.planned(two)[0], executors.StoredFacts(now=time.time()))

        # Other reshapes of nova-compute and of operators.
        task = self.planned(two)[0]
        writer.reshape({roots['host1']: self.classes(roots['host1'], ('CUSTOM_FPGA',), FPGA=4)}, {
            two: {roots['host1']: {**BASIC, 'FPGA': 1}, child: {'VGPU': 1}}})
        self.assert_rule('source-reshaped', task)
        task = self.planned(two)[0]
        node = writer.create('host1_numa0', roots['host1'])
        writer.reshape(
            {roots['host1']: self.classes(roots['host1'], ('VCPU', 'MEMORY_MB')),
             node: {'VCPU': 4, 'MEMORY_MB': 4096}},
            {two: {roots['host1']: {'DISK_GB': 1, 'FPGA': 1}, child: {'VGPU': 1},
                   node: {'VCPU': 1, 'MEMORY_MB': 512}}})
        self.assert_rule('source-reshaped', task)
        instance = self.collector.collect_cluster(self.now()).instances[two]
        self.assertEqual({**BASIC, 'FPGA': 1, 'VGPU': 1}, instance.claims)
        self.assertIsNone(instance.pinned)
