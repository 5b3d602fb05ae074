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

"""A host of a real Nova fails, and Nova evacuates its instances as the certificate promised."""

from kronos_nova import model
from kronos_nova.rebalancer.planning import failover
from tests.functional import test_first_light


class TestFailover(test_first_light.RebalancedTestCase):

    def certify(self, *, state: failover.FailureState, host: str) -> failover.FailureVerdict:
        """Run a cycle; return its verdict on the host."""
        self.plan()
        certificate = self.engine._scopes._certificates[model.UNASSIGNED]
        verdict = certificate.verdicts[host,]
        self.assertEqual(state, verdict.state, verdict)
        return verdict

    def fail(self, host: str) -> None:
        self.computes[host].stop()
        service = self.admin_api.get_services(host=host, binary='nova-compute')[0]
        self.admin_api.put_service(service['id'], {'forced_down': True})

    def test_nova_evacuates_each_instance_to_its_place(self) -> None:
        self.conf.set_override('failover', 'warn', 'engine')
        group = self.server_group('apart', 'anti-affinity')
        lost = [self.boot(host='host1', hints={'group': group['id']}), self.boot(host='host1'),
                self.boot(host='host1')]
        beside = self.boot(host='host2', hints={'group': group['id']})
        self._stop_server(lost[2])
        self.load({'host1': 0.3, 'host2': 0.3, 'host3': 0.3},
                  {server['id']: 0.1 for server in (*lost, beside)})
        verdict = self.certify(state=failover.FailureState.SAFE, host='host1')
        self.assertEqual({server['id'] for server in lost}, verdict.places.keys())
        self.assertEqual('host3', verdict.places[lost[0]['id']], 'its mate is on host2')

        self.fail('host1')
        for server in lost:
            to_host = verdict.places[server['id']]
            self._evacuate_server(server, {'host': to_host}, expected_host=to_host)
            self.assertEqual(to_host, self.host_of(server))

    def test_nova_evacuates_no_member_of_an_affinity_group_that_is_unsafe(self) -> None:
        self.conf.set_override('failover', 'warn', 'engine')
        group = self.server_group('together', 'affinity')
        members = [self.boot(host='host1', hints={'group': group['id']}) for _ in range(2)]
        self.load({'host1': 0.3, 'host2': 0.3, 'host3': 0.3}, {m['id']: 0.1 for m in members})
        verdict = self.certify(state=failover.FailureState.UNSAFE, host='host1')
        self.assertEqual({'affinity-unmovable'}, {r.rule for r in verdict.unplaced.values()})

        self.fail('host1')
        self._evacuate_server(members[0], {'host': 'host2'}, expected_host='host1',
                              expected_state='ERROR', expected_migration_status='error')
