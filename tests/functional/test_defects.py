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


"""Defects of Kronos 0.2.0 that lie between it and Nova or Placement."""

import fixtures
from nova.virt import fake

from kronos_nova import exception
from kronos_nova import model
from tests import marks
from tests.functional import api
from tests.functional import test_collector
from tests.functional import test_first_light
from tests.functional import test_nova_executor


class NodeNamesDriver(fake.MediumFakeDriver):  # type: ignore[misc]
    """Its hypervisor has another name than nova-compute's host."""

    def init_host(self, host: str) -> None:
        super().init_host(host)
        self._set_nodes([f'node-of-{host}.example.org'])


class UnreadableTestCase(test_collector.CollectorCase, test_nova_executor.ExecutorCase):
    """What cannot be read is not empty: neither a plan nor a move goes on."""

    def fail(self, door: api.Door, part: str) -> None:
        door.answers.append((lambda method, path: part in path, '500 Internal Server Error',
                             b'{"computeFault": {"message": "no database"}}'))

    @marks.turns(12)
    def test_defect_04_unreadable_server_groups_stop_plan_and_move(self) -> None:
        group = self.server_group('g', 'anti-affinity')
        server = self.boot(host='host1', hints={'group': group['id']})
        task = self.task(server)
        self.pre_flight(task)
        self.fail(self.nova_api.door, '/os-server-groups')
        self.assertRegex(str(self.not_collected()), 'server groups from Nova: HTTP 500')
        error = self.assertRaises(exception.NovaClientError, self.pre_flight, task)
        self.assertIn('HTTP 500', str(error))
        self.nova_api.door.answers.clear()
        self.assertEqual(1, len(self.collect().groups))
        self.pre_flight(task)

    @marks.turns(12)
    def test_defect_06_unreadable_usages_stop_plan_and_move(self) -> None:
        server = self.boot(host='host1')
        task = self.task(server)
        self.pre_flight(task)
        for part in ('/usages', '/allocation_candidates'):
            self.fail(self.placement_api.door, part)
        self.assertRegex(str(self.not_collected()), 'from Placement: HTTP 500')
        error = self.assertRaises(exception.NovaClientError, self.pre_flight, task)
        self.assertIn('HTTP 500', str(error))


class TreeTestCase(test_first_light.RebalancedTestCase):
    """Providers are found by UUID, and a nested provider blocks no other host."""

    def nest(self, host: str) -> str:
        """A NUMA-like child with pinned CPUs; returns its uuid."""
        body = {'name': f'{host}-numa0', 'parent_provider_uuid':
                self._get_provider_uuid_by_host(host)}
        answer = self.placement.post('/resource_providers', body, version='1.20')
        self.assertEqual(200, answer.status, answer.body)
        child = answer.body
        self._update_inventory(child['uuid'], {
            'resource_provider_generation': child['generation'],
            'inventories': {'PCPU': {'total': 8}}})
        return str(child['uuid'])

    def rename(self, host: str) -> None:
        """Rename the provider of a host: its name need not be that of the host."""
        uuid = self._get_provider_uuid_by_host(host)
        answer = self.placement.put(f'/resource_providers/{uuid}', {'name': f'was-{host}'},
                                    version='1.37')
        self.assertEqual(200, answer.status, answer.body)

    @marks.turns(12)
    def test_defect_12_nested_inventory_and_other_names_block_no_move(self) -> None:
        server = self.boot(host='host1')
        for host in self.hosts:
            self.nest(host)
            self.rename(host)
        self.load({'host1': 0.8, 'host2': 0.5, 'host3': 0.1}, {server['id']: 0.35})
        moves = self.plan()['moves']
        self.assertEqual([(server['id'], 'host3')],
                         [(m['instance_uuid'], m['to_host']) for m in moves])
        self.work()
        self.assertEqual('host3', self.host_of(server))


class NodeNamesTestCase(test_first_light.RebalancedTestCase):

    def configure(self) -> None:
        super().configure()
        # Nova loads drivers from its own package only.
        self.useFixture(fixtures.MonkeyPatch('nova.virt.fake.MediumFakeDriver', NodeNamesDriver))

    @marks.turns(12)
    def test_defect_13_move_completes_with_other_hypervisor_name(self) -> None:
        server = self.boot(host='host1')
        self.load({'node-of-host1': 0.8, 'node-of-host2.example.org': 0.5, 'host3': 0.1},
                  {server['id']: 0.35})
        self.assertEqual(1, len(self.plan()['moves']))
        self.work()
        shown = self.admin_api.get_server(server['id'])
        self.assertEqual(
            ('host3', 'node-of-host3.example.org'),
            (shown['OS-EXT-SRV-ATTR:host'], shown['OS-EXT-SRV-ATTR:hypervisor_hostname']))
        self.assertEqual([('migration.completed', 'host3')],
                         [(event, result.to_host) for event, result in self.results])
        plan = self.store.plans.list_plans()[0]
        self.assertEqual([model.TaskState.COMPLETED],
                         [r.task.state for r in self.store.tasks.list_plan_tasks(plan.plan_id)])
