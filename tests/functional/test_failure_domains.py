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
import time

from kronos_nova import model
from kronos_nova.constraints import failure_domains
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.executors import preflight_reader
from kronos_nova.scheduler import runtime
from tests import marks
from tests.functional import api
from tests.functional import base

KEY = failure_domains.KEY


class CollectorTestCase(api.ApiTestCase):
    """Administrators name domains, owners and flavors ask for a spread."""

    @marks.turns(3)
    def test_domains_and_requests_are_read_from_nova(self) -> None:
        self.aggregate('one', 'host1', 'host2', **{KEY: 'rack:r1,room:cellar'})
        self.aggregate('two', 'host3', **{KEY: 'Rack: r2'})
        self.aggregate('feed', 'host1', 'host3', **{KEY: 'pdu:a'})
        self.aggregate('wrong', 'host2', **{KEY: 'rack:r9'})
        asking = self.boot(host='host1')
        self.admin_api.api_post(f'/servers/{asking["id"]}/metadata',
                                {'metadata': {'kronos:spread': 'rack:web, pdu'}})
        self.admin_api.api_put(f'/servers/{asking["id"]}/tags/kronos:spread=room', {},
                               check_response_status=[201])
        flavored = self.boot(host='host2', flavor={'id': self._create_flavor(
            vcpu=1, memory_mb=64, disk=1, extra_spec={'kronos:spread': 'rack'})})
        wrong = self.boot(host='host3')
        self.admin_api.api_post(f'/servers/{wrong["id"]}/metadata',
                                {'metadata': {'kronos:spread': '%(x)s {0}'}})

        cluster = collector.CloudCollector(self.conf, self.connection).collect_cluster(time.time())

        domains = failure_domains.FailureDomains(cluster.aggregates, cluster.aggregate_metadata)
        self.assertEqual({'rack', 'room', 'pdu'}, set(domains.kinds))
        self.assertEqual({'host1', 'host3'}, domains.map_hosts('pdu')['a'])
        self.assertTrue(domains.is_unclear('rack', 'host2'))
        problem, = domains.problems
        self.assertIn('host host2: two domains of the kind rack (r1 by aggregate one; r9 by '
                      'aggregate wrong)', problem)
        request = spread_requests.SpreadRequest
        self.assertEqual((request('pdu'), request('rack', 'web'), request('room')),
                         cluster.instances[asking['id']].spread)
        self.assertEqual((request('rack'),), cluster.instances[flavored['id']].spread)
        self.assertEqual((spread_requests.UNREADABLE,), cluster.instances[wrong['id']].spread)

    @marks.turns(12)
    def test_other_members_are_read_before_a_move(self) -> None:
        mover, mate, bare = (self.boot(host=host) for host in ('host1', 'host2', 'host3'))
        for server in (mover, mate):
            self.admin_api.api_post(f'/servers/{server["id"]}/metadata',
                                    {'metadata': {'kronos:spread': 'rack'}})
        reader = preflight_reader.FreshReader(self.conf, self.connection)
        task = model.Task('t', 'p', model.UNASSIGNED, mover['id'], 'host1', 'host2',
                          model.Phase.SPREAD, created_at=time.time())
        cluster = reader.read(task, time.time()).cluster
        self.assertEqual({mover['id'], mate['id']}, set(cluster.instances))
        self.assertNotIn(bare['id'], cluster.instances)


class DomainWeigherTestCase(base.NovaTestCase):
    """host1 and host2 are in one rack, host3 in another; host3 has the most instances, so that
    stock Nova prefers host2."""

    multiplier = 100.0

    def configure(self) -> None:
        super().configure()
        runtime.close()
        self.addCleanup(runtime.close)
        self.flags(kronos_domain_weight_multiplier=self.multiplier, weight_classes=[
            'nova.scheduler.weights.all_weighers',
            'kronos_nova.weighers.failure_domains.KronosDomainWeigher'],
            group='filter_scheduler')

    def setUp(self) -> None:
        super().setUp()
        self.aggregate('one', 'host1', 'host2', **{KEY: 'rack:r1'})
        self.aggregate('two', 'host3', **{KEY: 'rack:r2'})
        self.spread = {'id': self._create_flavor(
            vcpu=1, memory_mb=512, disk=1, extra_spec={'kronos:spread': 'rack'})}
        self.group = self.server_group('g', 'soft-affinity')
        for _ in range(2):
            self.boot(host='host3')
        self.boot(host='host1', flavor=self.spread, hints={'group': self.group['id']})

    @marks.turns(3)
    def test_a_member_goes_to_the_rack_without_members(self) -> None:
        second = self.boot(flavor=self.spread, hints={'group': self.group['id']})
        self.assertEqual('host3', self.host_of(second))
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))

    @marks.turns(12)
    def test_an_instance_that_does_not_ask_goes_where_nova_likes(self) -> None:
        self.assertEqual('host2', self.host_of(self.boot()))


class DomainWeigherOffTestCase(DomainWeigherTestCase):

    multiplier = 0.0

    @marks.turns(3)
    def test_a_member_goes_to_the_rack_without_members(self) -> None:
        second = self.boot(flavor=self.spread, hints={'group': self.group['id']})
        self.assertEqual('host1', self.host_of(second), 'soft affinity decides alone')
