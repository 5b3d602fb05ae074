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


"""Cells, which no API of Nova shows: what is left to Nova, and how it ends."""

import dataclasses
import time

from nova.tests import fixtures as nova_fixtures

from kronos_nova import model
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from tests.functional import test_collector
from tests.functional import test_nova_executor


class TwoCellsTestCase(test_collector.CollectorCase, test_nova_executor.ExecutorCase):
    """host1 and host2 are in one cell, host3 is in another."""

    NUMBER_OF_CELLS = 2

    def _start_compute(self, host: str, cell_name: str | None = None) -> object:
        return super()._start_compute(host, 'cell2' if host == 'host3' else 'cell1')

    def setUp(self) -> None:
        super().setUp()
        self.store = self.new_store()

    def carry_out(self, task: model.Task) -> None:
        lease = self.store.acquire_lease(model.UNASSIGNED, 'engine', 1e6, 'hash')
        plan = model.Plan(model.UNASSIGNED, (model.Move(
            task.instance_uuid, task.from_host, task.to_host, task.phase),))
        self.store.save_plan(lease, plan, [task], plan_id=task.plan_id, now=time.time(),
                             dry_run=False, cooldown=0.0, instance_cooldown=0.0)
        carrier = worker.Worker(self.store, self.executor, dataclasses.replace(
            retry.settings(self.conf), look_interval=0.1, host_refusals=1, begin=True))

        def idle() -> bool:
            carrier.run_once(carrier._clock())
            return not self.store.flights()

        self.wait_for(idle, 'the end of the task')

    def test_a_destination_in_another_cell_refuses_and_an_alternate_is_taken(self) -> None:
        server = self.boot(host='host1')
        cluster = self.collect()
        self.assertEqual({None}, {h.cell for h in cluster.hosts.values()}, 'Nova does not tell')
        self.assertEqual(set(self.hosts), set(cluster.hosts), 'of both cells')
        task = dataclasses.replace(self.task(server, to_host='host3'), alternates=('host2',),
                                   created_at=time.time())
        self.carry_out(task)
        self.assertEqual('host2', self.host_of(server))
        self.assertEqual(['completed'], [m['status'] for m in self.migrations(server)],
                         'the other one was refused at once: HTTP 400')
        history = self.store.history(model.UNASSIGNED, time.time())
        self.assertEqual({'host3'}, set(history.quarantined_hosts), 'charged to the host')
        self.assertEqual({}, history.quarantined, 'and not to the instance')

    def test_a_cell_that_is_down_stops_every_scope(self) -> None:
        """Its server groups' members and its moves in flight are not known."""
        self.aggregate('near', 'host1', 'host2')
        with nova_fixtures.DownCellFixture([self.cell_mappings['cell2']]):
            self.assertRegex(str(self.not_collected()), 'host3.*its cell does not answer Nova')
        self.assertIn('near', self.collect().aggregates)

