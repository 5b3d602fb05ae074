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

from typing import Any

import fixtures

from kronos_nova import model
from kronos_nova.feed import feed_channel
from kronos_nova.feed import raw_cache
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.engine import engine
from kronos_nova.rebalancer.planning import failover
from kronos_nova.scheduler import runtime
from kronos_nova.sources import prometheus
from kronos_nova.wiring import daemons
from tests import marks
from tests.functional import base
from tests.functional import test_first_light


class FailingTestCase(test_first_light.RebalancedTestCase):

    def fail(self, host: str) -> None:
        self.computes[host].stop()
        service = self.admin_api.get_services(host=host, binary='nova-compute')[0]
        self.admin_api.put_service(service['id'], {'forced_down': True})


class TestFailover(FailingTestCase):

    def certify(self, *, state: failover.FailureState, host: str) -> failover.FailureVerdict:
        """Run a cycle; return its verdict on the host."""
        self.plan()
        certificate = self.engine._scopes._certificates[model.UNASSIGNED]
        verdict = certificate.verdicts[host,]
        self.assertEqual(state, verdict.state, verdict)
        return verdict

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

    @marks.turns(12)
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


class TestBootReserve(FailingTestCase):
    """The engine certifies before each boot; each host has room for three instances."""

    def configure(self) -> None:
        super().configure()
        self.useFixture(fixtures.MonkeyPatch('kronos_nova.scheduler.runtime.NOTICE_INTERVAL', 0.1))
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.flags(directory=self.directory, group='kronos_channel')
        self.flags(kronos_weight_multiplier=0.0, group='filter_scheduler')

    def setUp(self) -> None:
        super().setUp()
        self.conf.set_override('failover', 'enforce', 'engine')
        raw_cache.register(self.conf)
        self.conf.set_override('directory', self.directory, 'kronos_channel')
        self.engine = engine.Engine(
            self.conf, collector=collector.CloudCollector(self.conf, self.connection),
            source=prometheus.PrometheusSource(self.conf), store=self.store,
            publish=daemons.make_publisher(self.conf),
            publish_limits=daemons.limit_publisher(self.conf))
        self.channel = feed_channel.FeedChannel(base.CONF)
        self.flavor = next(f for f in self.api.get_flavors() if f['ram'] == 2048)
        self.load({'host1': 0.3, 'host2': 0.3, 'host3': 0.3}, {})

    def certify(self) -> dict[str, failover.FailureState]:
        """Run a cycle, and wait until the scheduler knows its limits; return the verdicts."""
        self.plan()
        found = self.channel.read_boot_limits(model.UNASSIGNED)
        assert found is not None
        self.wait_for(lambda: runtime.get_runtime().notices._refresher.ensure_running()
                      or runtime.get_runtime().notices.read_boot_limits() == found[0],
                      f'the limits {found[0]}')
        certificate = self.engine._scopes._certificates[model.UNASSIGNED]
        return {hosts[0]: verdict.state for hosts, verdict in certificate.verdicts.items()}

    def fill(self, most: int = 9) -> list[dict[str, Any]]:
        """Boot until Nova finds no host; return the servers."""
        servers: list[dict[str, Any]] = []
        while len(servers) < most:
            self.certify()
            server = self.admin_api.post_server({'server': self._build_server(
                flavor_id=self.flavor['id'], networks='none')})
            status = self.wait_for(lambda server=server: {'BUILD': None}.get(
                status := self.admin_api.get_server(server['id'])['status'], status),
                'a boot to end')
            if status == 'ERROR':
                self.admin_api.delete_server(server['id'])
                self._wait_until_deleted(server)
                break
            servers.append(server)
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))
        return servers

    def list_on_fullest(self, servers: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
        by_host: dict[str, list[dict[str, Any]]] = {}
        for server in servers:
            by_host.setdefault(self.host_of(server), []).append(server)
        return max(by_host.items(), key=lambda item: (len(item[1]), item[0]))

    def test_boots_leave_the_room_that_the_evacuation_of_a_host_needs(self) -> None:
        self.flags(failover_reserve='keep', group='kronos')
        servers = self.fill()
        self.assertIn(len(servers), (5, 6), 'two hosts hold six')
        self.assertEqual({failover.FailureState.SAFE}, set(self.certify().values()))
        host, lost = self.list_on_fullest(servers)
        self.fail(host)
        for server in lost:
            self._evacuate_server(server)
            self.assertNotEqual(host, self.host_of(server))

    @marks.turns(12)
    def test_boots_that_ignore_the_reserve_leave_no_room_for_an_evacuation(self) -> None:
        self.flags(failover_reserve='ignore', group='kronos')
        servers = self.fill()
        self.assertEqual(9, len(servers))
        host, lost = self.list_on_fullest(servers)
        self.fail(host)
        self._evacuate_server(lost[0], expected_host=host, expected_state='ERROR',
                              expected_migration_status='error')

    @marks.turns(12)
    def test_boots_take_the_reserve_last_where_it_is_only_preferred(self) -> None:
        servers = self.fill(5)
        self.assertEqual({failover.FailureState.SAFE}, set(self.certify().values()))
        self.assertEqual(9, len(servers) + len(self.fill(4)))

    @marks.turns(12)
    def test_only_boots_leave_the_reserve(self) -> None:
        self.flags(failover_reserve='keep', group='kronos')
        server, stays, lost = (self.boot(host=h) for h in ('host1', 'host2', 'host3'))
        limits = dict.fromkeys(self.hosts, model.BootLimit(0.0))
        self.certify()
        _, until = self.channel.read_boot_limits(model.UNASSIGNED) or ({}, 0.0)
        self.channel.write_boot_limits(model.UNASSIGNED, limits, until - 1, until)
        self.wait_for(lambda: runtime.get_runtime().notices.read_boot_limits() == limits,
                      'limits that admit no boot')
        self.boot(expected_state='ERROR')
        self.boot(host='host2')
        self.live_migrate(server, 'host2')
        self.live_migrate(server)
        self._rebuild_server(stays, self.glance.auto_disk_config_enabled_image['id'])
        self.admin_api.post_server_action(stays['id'], {'shelve': None})
        self._wait_for_server_parameter(stays, {'status': 'SHELVED_OFFLOADED'})
        self.admin_api.post_server_action(stays['id'], {'unshelve': None})
        self._wait_for_server_parameter(stays, {'status': 'ACTIVE'})
        self._migrate_server(stays)
        self.fail('host3')
        self._evacuate_server(lost)
        self.assertNotEqual('host3', self.host_of(lost))
        self.assertEqual({}, dict(runtime.get_runtime().faults.counts))
