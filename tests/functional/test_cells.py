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


"""Cells, which no API of Nova shows: named by the operator, or learnt from Nova."""

import dataclasses
import time
from typing import Any, cast

from nova import context as nova_context
from nova import objects
from nova.tests import fixtures as nova_fixtures
from oslo_utils import uuidutils

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.planning import planner
from tests import marks
from tests.functional import test_collector
from tests.functional import test_nova_executor

KEY = 'kronos:cell'


class TwoCellsTestCase(test_collector.CollectorCase, test_nova_executor.ExecutorCase):
    """host1 and host2 are in one cell, host3 and host4 are in another."""

    NUMBER_OF_CELLS = 2
    hosts = ('host1', 'host2', 'host3', 'host4')

    def _start_compute(self, host: str, cell_name: str | None = None) -> object:
        return super()._start_compute(host, 'cell2' if host > 'host2' else 'cell1')

    def setUp(self) -> None:
        super().setUp()
        self.store = self.new_store()
        self.mixed = self.aggregate('mixed', *self.hosts)

    def name_cells(self) -> None:
        self.near = self.aggregate('near', 'host1', 'host2', **{KEY: 'cell1'})
        self.aggregate('far', 'host3', 'host4', **{KEY: 'cell2'})

    def carry_out(self, *moves: tuple[dict[str, Any], str, tuple[str, ...]]) -> None:
        """One plan of moves, each an instance, its destination and alternates."""
        lease = self.store.leases.acquire_lease('mixed', 'engine', 1e6, 'hash')
        tasks = [dataclasses.replace(
            self.task(server, to_host, aggregate='mixed'), from_host=self.host_of(server),
            task_id=uuidutils.generate_uuid(), plan_id=uuidutils.generate_uuid(),
            alternates=alternates, created_at=time.time()) for server, to_host, alternates in moves]
        for task in tasks:
            plan = model.Plan('mixed', (model.Move(
                task.instance_uuid, task.from_host, task.to_host, task.phase),))
            self.store.plans.save_plan(lease, plan, [task], plan_id=task.plan_id, now=time.time(),
                                       dry_run=False, cooldown=0.0, instance_cooldown=0.0)
        carrier = worker.Worker(self.store, self.executor, dataclasses.replace(
            retry.build_settings(self.conf), look_interval=0.1, host_refusals=1, begin=True,
            instance_cooldown=0.0))

        def idle() -> bool:
            carrier.run_once(carrier._clock())
            return not self.store.tasks.list_in_flight_moves()

        self.wait_for(idle, 'the end of the tasks')

    def verdict(self, cluster: model.Cluster, server: dict[str, Any], to_host: str) -> str | None:
        """What an engine and an executor say to a move now."""
        move = model.Move(server['id'], self.host_of(server), to_host, model.Phase.SPREAD)
        no = constraints.judge_move(cluster_view.ClusterView(
            cluster.replace_scope('mixed'), model.PlanningOptions(dry_run=False),
            self.store.history.read_history('mixed', time.time())), move, constraints.PRE_FLIGHT)
        return None if no is None else no.rule

    def requests(self, server: dict[str, Any]) -> int:
        """How often Nova was asked to move it."""
        return self.nova_api.door.requests.count(
            ('POST', f'/v2.1/servers/{server["id"]}/action'))

    def assert_no_host_is_charged(self) -> None:
        history = self.store.history.read_history('mixed', time.time())
        self.assertEqual((frozenset(), {}), (history.quarantined_hosts, history.quarantined))

    @marks.turns(3)
    def test_moves_stay_in_named_cells_without_nova_requests(self) -> None:
        self.name_cells()
        near, far = self.boot(host='host1'), self.boot(host='host3')
        cluster = self.collect()
        self.assertEqual({'host1': 'cell1', 'host2': 'cell1', 'host3': 'cell2', 'host4': 'cell2'},
                         {name: h.cell for name, h in cluster.hosts.items()})
        for server, other, same in ((near, 'host3', 'host2'), (far, 'host1', 'host4')):
            self.assertEqual('cell-differs', self.verdict(cluster, server, other))
            self.assertIsNone(self.verdict(cluster, server, same))
        self.carry_out((near, 'host3', ('host2',)), (far, 'host2', ('host4',)))
        self.assertEqual(('host2', 'host4'), (self.host_of(near), self.host_of(far)))
        self.assertEqual([1, 1], [self.requests(s) for s in (near, far)], 'no request was wasted')
        self.assert_no_host_is_charged()

        # A host in aggregates of two cells is an error, for engine and executor.
        self.admin_api.post_aggregate_action(
            self.mixed['id'], {'set_metadata': {'metadata': {KEY: 'cell2'}}})
        error = self.assertRaises(exception.NovaClientError, self.pre_flight,
                                  self.task(near, 'host1', aggregate='mixed'))
        for text in (str(self.not_collected()), str(error)):
            self.assertRegex(text, 'cell of host host1.*mixed says cell2.*near says cell1')
        self.conf.set_override('cell_metadata_key', '', 'engine')
        self.assertEqual({None}, {h.cell for h in self.collect().hosts.values()})

    @marks.long
    def test_refusal_between_unnamed_cells_is_learnt_and_uncharged(self) -> None:
        server = self.boot(host='host1')
        cluster = self.collect()
        self.assertEqual({None}, {h.cell for h in cluster.hosts.values()}, 'Nova does not tell')
        self.assertEqual(set(self.hosts), set(cluster.hosts), 'of both cells')
        self.assertIsNone(self.verdict(cluster, server, 'host3'))
        self.carry_out((server, 'host3', ('host2',)))
        self.assertEqual('host2', self.host_of(server))
        self.assertEqual(['completed'], [m['status'] for m in self.migrations(server)],
                         'the other one was refused at once: HTTP 400')
        self.assert_no_host_is_charged()
        history = self.store.history.read_history('mixed', time.time())
        self.assertEqual({('host1', 'host3')}, history.other_cells)

        # Back, and once more there: neither engine nor executor tries it again.
        self.carry_out((server, 'host1', ()))
        self.assertEqual('cell-differs', self.verdict(self.collect(), server, 'host3'))
        asked = self.requests(server)
        self.carry_out((server, 'host3', ()))
        self.assertEqual(asked, self.requests(server))

        # Names that come later are told about; wrong ones make it try again no sooner.
        self.aggregate('some', 'host1', 'host3', **{KEY: 'cell1'})
        with self.assertLogs(collector.LOG.logger, 'WARNING') as logged:
            cluster = self.collect()
        self.assertRegex(str(logged.output), r'not of 2 \(host2, host4\)')
        self.assertEqual('cell-differs', self.verdict(cluster, server, 'host3'))
        self.carry_out((server, 'host3', ()))
        self.assertEqual(asked, self.requests(server))

        # It goes on receiving what is of its own cell.
        other = self.boot(host='host4')
        self.carry_out((other, 'host3', ()))
        self.assertEqual('host3', self.host_of(other))
        self.assert_no_host_is_charged()

        # The refusal of a cold migration says the same.
        self.admin_api.post_server_action(server['id'], {'os-stop': None})
        self._wait_for_state_change(server, 'SHUTOFF')
        task = dataclasses.replace(self.task(server, 'host3'), method=model.MoveMethod.COLD)
        error = self.assertRaises(exception.OtherCell, self.executor.submit, task)
        self.assertIn('HTTP 400: Compute host host3 could not be found', str(error))

    @marks.long
    def test_down_cell_stops_every_scope_with_unnamed_cells(self) -> None:
        """Its server groups' members and its moves in flight are not known."""
        with nova_fixtures.DownCellFixture([self.cell_mappings['cell2']]):
            self.assertRegex(str(self.not_collected()),
                             'host3.*its cell does not answer Nova.*names the cells of all hosts')
        self.assertIn('mixed', self.collect().aggregates)

    def holds(self, cluster: model.Cluster, scope: str) -> str | None:
        """Say why nothing of the scope moves."""
        return planner.scope_hold(planner.PlanningInput(
            cluster.replace_scope(scope), model.ClusterScores({}), cast(policies.PolicySet, None),
            (), model.MoveHistory(), model.PlanningOptions(), budget=1))

    @marks.turns(12)
    def test_down_named_cell_stops_only_scopes_with_its_hosts(self) -> None:
        self.name_cells()
        alone, there = self.boot(host='host1'), self.boot(host='host3')
        grouped, whole = (self.server_group(policy, policy)['id']
                          for policy in ('affinity', 'soft-anti-affinity'))
        here = self.boot(host='host1', hints={'group': grouped})
        self.add_member(grouped, there)
        mate = self.boot(host='host2', hints={'group': whole})
        engine = collector.CloudCollector(self.conf, self.connection)
        dark = nova_fixtures.DownCellFixture([self.cell_mappings['cell2']])
        with dark:
            self.assertRegex(str(self.not_collected()), 'hypervisors from Nova: HTTP 500',
                             'none was read before')
        engine.collect_cluster(time.time())
        self.pre_flight(self.task(alone, 'host2', aggregate='near'))
        with dark, self.assertLogs(collector.LOG.logger, 'WARNING') as logged:
            cluster = engine.collect_cluster(time.time())
            self.assertRegex(str(logged.output), r'Cell cell2 does not answer Nova: no scope is '
                                                 r'planned that has one of its hosts \(2: host3')
            self.assertEqual({'host1', 'host2'}, cluster.hosts.keys())
            self.assertEqual({'host1', 'host2'}, cluster.replace_scope('near').scope_hosts)
            self.assertIsNone(self.holds(cluster, 'near'))
            for scope in ('far', 'mixed'):
                self.assertRegex(str(self.holds(cluster, scope)),
                                 r'the cell of 2 of its hosts \(host3, host4\) does not answer')
            self.assertEqual({whole}, {group.uuid for group in cluster.groups})
            pinned = {uuid: cluster.instances[uuid].pinned
                      for uuid in (alone['id'], here['id'], mate['id'])}
            self.assertRegex(str(pinned.pop(here['id'])), '^group-unreadable: ')
            self.assertEqual({None}, set(pinned.values()))
            self.assertNotIn(there['id'], cluster.instances)

            # An executor refuses a task that was planned before, and no other one.
            error = self.assertRaises(exception.NovaClientError, self.pre_flight,
                                      self.task(here, 'host2', aggregate='near'))
            self.assertIn('in a cell that does not answer', str(error))
            self.assertNotIsInstance(error, exception.ServiceUnavailable)
            self.pre_flight(self.task(alone, 'host2', aggregate='near'))

            # A host without a name may be in any cell.
            self.admin_api.post_aggregate_action(
                self.near['id'], {'remove_host': {'host': 'host2'}})
            self.assertRegex(str(self.holds(engine.collect_cluster(time.time()), 'mixed')),
                             'the cell of 3 of its')
            self.admin_api.post_aggregate_action(self.near['id'], {'add_host': {'host': 'host2'}})
        cluster = engine.collect_cluster(time.time())
        self.assertEqual([None, None], [self.holds(cluster, s) for s in ('far', 'mixed')])
        self.assertIsNone(cluster.instances[here['id']].pinned)
        self.assertIn(there['id'], cluster.instances, 'the servers of the cell are listed again')

    def add_member(self, group: str, server: dict[str, Any]) -> None:
        """Make a server of another cell a member, as a scheduler without the filter does."""
        objects.InstanceGroup.add_members(
            nova_context.get_admin_context(), group, [server['id']])
