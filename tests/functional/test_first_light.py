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

"""The whole idea on a real Nova: boot by scores, plan, move, terminal row."""

import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.engine import engine
from kronos_nova.rebalancer.executors import nova as nova_executor
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.sources import prometheus
from tests import marks
from tests.functional import api
from tests.functional import scores


class RebalancedTestCase(scores.ScoredTestCase, api.ApiTestCase):
    """Nova with our plug-ins, an engine and an executor on one database.

    Both doors read the same policy file and the same Prometheus API.
    """

    plugins = True
    fields = {'vm_profile_query': 'vm', 'vm_profile_label': 'host',
              'vm_profile_label_type': 'nova_instance_uuid', 'max_migrations_per_cycle': 5}

    def setUp(self) -> None:
        super().setUp()
        self.store = self.new_store()
        for name, value in {'policies_file': self.policies_file, 'dry_run': False,
                            'settle_seconds': 0, 'cooldown': 0}.items():
            self.conf.set_override(name, value, 'engine')
        self.conf.set_override('stagger_seconds', 0, 'executor')
        self.conf.set_override('migration_poll_interval', 1, 'executor')
        self.conf.set_override('url', self.prometheus.url, 'prometheus')
        self.results: list[tuple[str, model.TaskResult]] = []
        self.worker = worker.Worker(
            self.store, nova_executor.NovaExecutor(self.conf, self.connection),
            # What has just booted may move; what has just moved may not.
            dataclasses.replace(retry.build_settings(self.conf), instance_cooldown=900.0),
            lambda event, result: self.results.append((event, result)))
        self.engine = engine.Engine(
            self.conf, collector=collector.CloudCollector(self.conf, self.connection),
            source=prometheus.PrometheusSource(self.conf), store=self.store)

    def load(self, hosts: dict[str, float], instances: dict[str, float]) -> None:
        """What Prometheus says from now on: host scores, instance shares."""
        self.prometheus.series = {'cpu': hosts, 'vm': instances}

    def plan(self) -> dict:
        """One cycle; the report of the only scope."""
        rows = self.engine.run_cycle()
        self.assertEqual([model.UNASSIGNED], [row['name'] for row in rows])
        return rows[0]

    def work(self) -> None:
        """Run the executor until no task is live."""
        def idle() -> bool:
            self.worker.run_once(self.worker._clock())
            return not self.store.tasks.list_in_flight_moves()

        self.wait_for(idle, 'every task to end')


class TestFirstLight(RebalancedTestCase):

    def test_boot_follows_load_and_move_follows_changed_load(self) -> None:
        self.wait_for_scores(**self.scores)
        servers = [self.boot() for _ in range(2)]
        self.assertEqual(['host1', 'host1'], [self.host_of(s) for s in servers])

        one, two = (s['id'] for s in servers)
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {one: 0.35, two: 0.3})
        row = self.plan()
        self.assertEqual([(one, 'host1', 'host3', 'spread')],
                         [(m['instance_uuid'], m['from_host'], m['to_host'], m['phase'])
                          for m in row['moves']])
        self.work()

        self.assertEqual('host3', self.host_of(servers[0]))
        self.assertEqual('host1', self.host_of(servers[1]))
        plan = self.store.plans.list_plans()[0]
        rows = self.store.tasks.list_plan_tasks(plan.plan_id)
        self.assertEqual([model.TaskState.COMPLETED], [r.task.state for r in rows])
        migration = self.migrations(servers[0])[0]
        self.assertEqual(('completed', 'live-migration', 'host3'),
                         (migration['status'], migration['migration_type'],
                          migration['dest_compute']))
        self.assertEqual(['migration.completed'], [event for event, _ in self.results])
        self.assertIn(
            one, self.store.history.read_history(model.UNASSIGNED, self.worker._clock()).cooling)

    def test_dry_run_plans_but_moves_nothing(self) -> None:
        server = self.boot(host='host1')
        self.conf.set_override('dry_run', True, 'engine')
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        self.assertEqual(1, len(self.plan()['moves']))
        self.assertEqual((), self.store.tasks.list_in_flight_moves())
        self.assertFalse(self.worker.run_once(self.worker._clock()))
        self.assertEqual([], self.migrations(server))
        self.assertEqual(
            {}, self.store.history.read_history(model.UNASSIGNED, self.worker._clock()).cooling)


class TestEachPhase(RebalancedTestCase):
    """A live migration of each phase by real Nova through a real executor."""

    def one_move(self, server: dict, phase: str, to_host: str) -> None:
        row = self.plan()
        self.assertEqual([(server['id'], phase, to_host)],
                         [(m['instance_uuid'], m['phase'], m['to_host']) for m in row['moves']],
                         row)
        self.work()
        self.assertEqual(to_host, self.host_of(server))

    @marks.turns(3)
    def test_evacuate_drains_disabled_host(self) -> None:
        server = self.boot(host='host1')
        self.conf.set_override('evacuate_disabled_hosts', True, 'engine')
        self.load({'host1': 0.2, 'host2': 0.2, 'host3': 0.1}, {server['id']: 0.2})
        with self.disabled('host1'):
            self.one_move(server, 'evacuate', 'host3')

    def test_affinity_repairs_violated_group(self) -> None:
        group = self.server_group('pair', 'anti-affinity', max_server_per_host=2)
        servers = [self.boot(host='host1', hints={'group': group['id']}) for _ in range(2)]
        self.tighten(group['id'])
        self.conf.set_override('enforce_hard_affinity', True, 'engine')
        self.load({'host1': 0.3, 'host2': 0.3, 'host3': 0.2}, {s['id']: 0.1 for s in servers})
        self.one_move(min(servers, key=lambda s: s['id']), 'affinity', 'host3')

    def tighten(self, group_uuid: str) -> None:
        """Violate the group in the database, as a race between two boots would.

        The API has no call to change the rules of a group.
        """
        from nova import context
        from nova.db.api import api as db_api
        from nova.db.api import models

        with db_api.context_manager.writer.using(context.get_admin_context()) as session:
            found = session.query(models.InstanceGroup).filter_by(uuid=group_uuid).one()
            session.query(models.InstanceGroupPolicy).filter_by(
                group_id=found.id).update({'rules': '{"max_server_per_host": 1}'})

    @marks.turns(3)
    def test_pack_empties_host(self) -> None:
        servers = [self.boot(host=h) for h in ('host1', 'host2')]
        self.write_policies(mode='pack', capacity_query='cpu', capacity_threshold=0.8)
        self.load({'host1': 0.2, 'host2': 0.4, 'host3': 0.0},
                  {servers[0]['id']: 0.2, servers[1]['id']: 0.4})
        self.one_move(servers[0], 'pack', 'host2')
