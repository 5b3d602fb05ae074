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


"""A real Placement confirms the chosen moves, also by facts that no rule of ours reads."""

from kronos_nova.rebalancer.clients import candidates_api
from kronos_nova.rebalancer.engine import placement_check
from tests.functional import test_first_light

#: Nova makes a trait of it; no rule of ours does.
SPECS = {'os:secure_boot': 'required'}
TRAIT = 'COMPUTE_SECURITY_UEFI_SECURE_BOOT'


class ConfirmingTestCase(test_first_light.RebalancedTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.confirming = placement_check.PlanConfirmation(self.conf, self.connection)
        self.engine._scopes.confirming = self.confirming
        for host in ('host1', 'host2'):
            uuid = self._get_provider_uuid_by_host(host)
            self._set_provider_traits(uuid, [*self._get_provider_traits(uuid), TRAIT])
        flavor = self._create_flavor(vcpu=1, memory_mb=512, disk=1, extra_spec=SPECS)
        self.server = self.boot(host='host1', flavor={'id': flavor})
        # To level loads host3 is the best.
        self.load({'host1': 0.8, 'host2': 0.3, 'host3': 0.1}, {self.server['id']: 0.35})

    def planned(self) -> list[tuple[str, str]]:
        return [(m['instance_uuid'], m['to_host']) for m in self.plan()['moves']]

    def test_move_refused_by_placement_goes_to_other_host(self) -> None:
        uuid = self.server['id']
        self.conf.set_override('dry_run', True, 'engine')
        self.conf.set_override('confirm_moves', False, 'engine')
        self.assertEqual([(uuid, 'host3')], self.planned(), 'no rule knows better')
        self.conf.set_override('confirm_moves', True, 'engine')
        self.conf.set_override('dry_run', False, 'engine')
        self.assertEqual([(uuid, 'host2')], self.planned())
        self.assertEqual({uuid: frozenset({'host3'})},
                         self.confirming.refusals.map_refused_hosts(self.engine._clock()))
        task, = self.store.tasks.list_plan_tasks(self.store.plans.list_plans()[0].plan_id)
        self.assertNotIn('host3', task.task.alternates)
        self.work()
        self.assertEqual('host2', self.host_of(self.server))

    def test_unreachable_placement_stops_every_move(self) -> None:
        self.placement_api.door.answers = [
            (lambda method, path: path.endswith('/allocation_candidates'),
             '503 Service Unavailable', b'{}')]
        row = self.plan()
        self.assertEqual([], row['moves'])
        self.assertIn('Could not read allocation candidates from Placement: HTTP 503',
                      row['reason'])
        self.assertEqual((), self.store.tasks.list_in_flight_moves())
        self.placement_api.door.answers.clear()
        self.assertEqual([(self.server['id'], 'host2')], self.planned())

    def test_request_with_unknown_class_has_no_candidate(self) -> None:
        candidates = candidates_api.CandidatesApi(self.connection)
        root = self._get_provider_uuid_by_host('host2')
        nobody = ('required', 'CUSTOM_NOBODY_HAS')
        for query, own, found in (
                ([('resources', 'VCPU:1')], (), True),
                ([('resources', 'VCPU:100000')], (), False),
                ([('resources', 'VCPU:1'), nobody], ('CUSTOM_NOBODY_HAS',), False),
                ([('resources', 'VCPU:1'), nobody], (), True),
                ([('resources', 'VCPU:1'), ('root_required', '!CUSTOM_NOBODY_HAS')], (), True),
                ([('resources', 'NO_SUCH_CLASS:1')], (), False)):
            refusal = candidates.find_refusal([('in_tree', root), ('limit', '1'), *query], own)
            self.assertEqual(found, refusal is None, refusal)
