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

"""The collector against a real Nova and a real Placement."""

import time
from typing import Any
from unittest import mock

from nova.db.main import api as main_api
from nova.tests import fixtures as nova_fixtures
from oslo_db import exception as db_exception
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import api as client_api
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import hidden_servers
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import placement_api
from tests import marks
from tests.functional import api
from tests.functional import placement_writer

#: Tenants choose names: this one means nothing to anybody.
HOSTILE = '%(name)s {0} <script>$(reboot)</script> "\'; DROP TABLE task --'


class CollectorCase(api.ApiTestCase):

    def collect(self, connection: Any = None) -> model.Cluster:
        return collector.CloudCollector(self.conf,
                                        connection or self.connection).collect_cluster(time.time())

    def not_collected(self, connection: Any = None) -> exception.CollectError:
        error: exception.CollectError = self.assertRaises(
            exception.CollectError, self.collect, connection)
        return error


class CloudTestCase(CollectorCase):

    def test_collect_reads_whole_cloud(self) -> None:
        self.aggregate('rack1', 'host1', 'host2', availability_zone='az1')
        group = self.server_group('g', 'anti-affinity', max_server_per_host=2)
        first = self.boot(host='host1', hints={'group': group['id']})
        second = self.boot(host='host1', hints={'group': group['id']})
        self.admin_api.put_server(first['id'], {'server': {'name': HOSTILE}})
        self.admin_api.post_server_action(second['id'], {'lock': {}})
        self.admin_api.post_server_action(second['id'], {'os-stop': None})
        self._wait_for_state_change(second, 'SHUTOFF')
        services = {s['host']: s['id'] for s in self.admin_api.get_services(
            binary='nova-compute')}
        self.admin_api.put_service(services['host2'], {
            'status': 'disabled', 'disabled_reason': 'maintenance'})
        self.admin_api.put_service_force_down(services['host3'], True)

        cluster = self.collect()

        self.assertEqual({'host1', 'host2', 'host3'}, set(cluster.hosts))
        self.assertEqual({'rack1': ('host1', 'host2')}, dict(cluster.aggregates))
        self.assertEqual({'host3'}, set(cluster.replace_scope(model.UNASSIGNED).scope_hosts))
        self.conf.set_override('availability_zone', 'az1', 'engine')
        zoned = self.collect()
        self.assertEqual(cluster.hosts.keys(), zoned.hosts.keys())
        self.assertEqual({'host1', 'host2'}, set(zoned.replace_scope('rack1').scope_hosts))
        self.assertEqual(set(), set(zoned.replace_scope(model.UNASSIGNED).scope_hosts))
        self.assertEqual(
            model.Service('host2', status='disabled', disabled_reason='maintenance', zone='az1'),
            cluster.services['host2'])
        self.assertTrue(cluster.services['host3'].forced_down)
        self.assertFalse(cluster.services['host3'].up)
        self.assertEqual({'host1', 'host2', 'host3'}, set(cluster.services), 'nova-compute only')

        one, two = cluster.instances[first['id']], cluster.instances[second['id']]
        self.assertEqual((HOSTILE, 'host1', 'ACTIVE', False, None),
                         (one.name, one.host, one.status, one.locked, one.task_state))
        self.assertRegex(one.internal_name, '^instance-')
        self.assertEqual(('SHUTOFF', True), (two.status, two.locked))
        self.assertEqual((1, 512), (one.vcpus, one.memory_mb))
        self.assertEqual({'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}, one.claims)
        self.assertIsNone(one.pinned)

        host = cluster.hosts['host1']
        self.assertEqual(self._get_provider_uuid_by_host('host1'), host.uuid)
        self.assertEqual(('az1', 'host1'), (host.zone, host.hypervisor_hostname))
        self.assertEqual({'VCPU': 2, 'MEMORY_MB': 1024, 'DISK_GB': 2}, host.provider.used)
        self.assertEqual(self._get_provider_inventory(host.uuid)['MEMORY_MB']['total'],
                         host.provider.inventories['MEMORY_MB'].total)
        self.assertEqual(self.placement.get(f'/resource_providers/{host.uuid}').body['generation'],
                         host.provider.generation)
        self.assertEqual((model.ServerGroup(
            group['id'], model.GroupPolicy.ANTI_AFFINITY, frozenset([one.uuid, two.uuid]), 2,
            'g'),), cluster.groups)
        self.assertEqual((), cluster.flights)
        self.assertEqual(frozenset(self._get_provider_traits(host.uuid)), host.traits)

        self.conf.set_override('hypervisor_types', ['QEMU', 'KVM'], 'engine')
        cluster = self.collect()
        self.assertEqual({}, cluster.hosts, 'other hypervisors are not planned')
        self.assertRegex(cluster.instances[first['id']].pinned, 'host-not-planned')
        self.assertEqual('host1', cluster.instances[first['id']].host, 'but it counts')

    @marks.long
    def test_collect_reads_every_page_of_every_list(self) -> None:
        servers = [self.boot(host='host1') for _ in range(5)]
        groups = [self.server_group(f'g{i}', 'soft-affinity') for i in range(5)]
        for server in servers[:3]:
            self.live_migrate(server, 'host2')
        self.flags(max_limit=2, group='api')
        cluster = self.collect()
        self.assertEqual({s['id'] for s in servers}, set(cluster.instances))
        self.assertEqual({g['id'] for g in groups}, {g.uuid for g in cluster.groups})
        self.assertEqual(5, len(cluster.groups))
        self.assertEqual(3, len(cluster.hosts))
        since = collector.nova_api.NovaApi(self.connection)._list_migrations({})
        self.assertEqual(3, len(since))

    @marks.turns(12)
    def test_instance_without_host_counts_only_as_group_member(self) -> None:
        group = self.server_group('g', 'affinity')
        server = self.boot(host='host1', hints={'group': group['id']})
        self.flags(shelved_offload_time=0)
        self.admin_api.post_server_action(server['id'], {'shelve': {}})
        self._wait_for_state_change(server, 'SHELVED_OFFLOADED')
        cluster = self.collect()
        self.assertEqual({}, cluster.instances)
        self.assertEqual({server['id']}, cluster.groups[0].members)

    @marks.turns(3)
    def test_allocations_on_nested_and_sharing_providers_are_claims(self) -> None:
        writer = placement_writer.Writer(self.connection)
        root = self._get_provider_uuid_by_host('host1')
        nested = writer.create('nested', root, SRIOV_NET_VF=8)
        shared, other = (writer.create(name, DISK_GB=100) for name in ('shared', 'other'))
        aggregate = uuidutils.generate_uuid()
        writer.tell(shared, 'MISC_SHARES_VIA_AGGREGATE')
        for uuid in (shared, root):
            writer.join(uuid, aggregate)
        basic = {'VCPU': 1, 'MEMORY_MB': 512}
        wanted: list[dict[str, dict[str, int]]] = [
            {root: basic, nested: {'SRIOV_NET_VF': 2}, shared: {'DISK_GB': 1}},
            {root: basic, other: {'DISK_GB': 1}}, {}]
        whole, elsewhere, without = (self.boot(host='host1')['id'] for _ in wanted)
        for uuid, allocations in zip((whole, elsewhere, without), wanted, strict=True):
            writer.allocate(uuid, allocations)
        cluster = self.collect()
        found = cluster.instances
        self.assertIsNone(found[whole].pinned)
        self.assertEqual(wanted[0], found[whole].allocations)
        self.assertEqual({**basic, 'SRIOV_NET_VF': 2, 'DISK_GB': 1}, found[whole].claims)
        self.assertRegex(found[elsewhere].pinned, f'^other-allocations: .*{other}')
        self.assertEqual(basic, found[elsewhere].claims)
        self.assertRegex(found[without].pinned, '^no-allocations: ')
        self.assertEqual({}, found[without].claims)
        host = cluster.hosts['host1']
        self.assertEqual([nested], [p.uuid for p in host.nested])
        self.assertEqual(({shared}, {shared}), (host.sharing, set(cluster.sharing)))
        self.assertEqual({'DISK_GB': 1}, cluster.sharing[shared].used)
        self.assertEqual(frozenset(), cluster.hosts['host2'].sharing)

    @marks.turns(12)
    def test_host_without_resource_provider_is_logged(self) -> None:
        uuid = self._get_provider_uuid_by_host('host3')
        self.assertEqual(204, self.placement.delete(f'/resource_providers/{uuid}').status)
        cluster = self.collect()
        self.assertIsNone(cluster.hosts['host3'].provider)
        self.assertTrue(cluster.placement_known)
        self.assertIn('receives no instance', self.stdlog.logger.output)

    @marks.turns(12)
    def test_unconfirmed_resize_is_in_flight(self) -> None:
        server = self.boot(host='host1')
        flavor = self._create_flavor(memory_mb=1024, vcpu=1, disk=1, ephemeral=0, swap=0)
        self.admin_api.post_server_action(server['id'], {'resize': {'flavorRef': flavor}})
        server = self._wait_for_state_change(server, 'VERIFY_RESIZE')
        host = server['OS-EXT-SRV-ATTR:host']
        cluster = self.collect()
        self.assertEqual((model.InFlightMove(server['id'], 'host1', host),), cluster.flights)
        self.assertEqual({'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1},
                         cluster.hosts['host1'].provider.used, 'held by the migration')


class FaultsTestCase(CollectorCase):

    def test_unreadable_service_stops_cycle(self) -> None:
        server = self.boot(host='host1')
        with self.subTest('Placement does not listen'):
            error = self.not_collected(self.connect(self.closed_port()))
            self.assertRegex(str(error), 'from Placement: the endpoint cannot be reached')
        with self.subTest('Placement fails'):
            self.placement_api.door.answers.append(
                (lambda method, path: path.endswith(('/usages', '/allocation_candidates')),
                 '500 Internal Server Error',
                 b'{"errors": [{"detail": "no database"}]}'))
            error = self.not_collected()
            self.assertRegex(str(error), 'from Placement: HTTP 500: no database')
            self.placement_api.door.answers.clear()
        with (self.subTest('a cell does not answer'),
              nova_fixtures.DownCellFixture([self.cell_mappings['cell1']])):
            error = self.not_collected()
            self.assertRegex(str(error), 'Nova: its cell does not answer Nova')
        with self.subTest('policy forbids'):
            self.policy.set_rules(
                {'os_compute_api:os-services:list': '!'}, overwrite=False)
            error = self.not_collected()
            self.assertRegex(str(error), 'compute services from Nova: HTTP 403.*policy '
                                         'os_compute_api:os-services:list')
            self.policy.set_rules(
                {'os_compute_api:os-services:list': '@',
                 'os_compute_api:os-extended-server-attributes': '!'}, overwrite=False)
            error = self.not_collected()
            self.assertRegex(str(error), f'server {server["id"]} from Nova: its host is not shown.*'
                                         'os_compute_api:os-extended-server-attributes')
            self.policy.set_rules(
                {'os_compute_api:os-extended-server-attributes': '@'}, overwrite=False)
        with self.subTest('an answer is no JSON'):
            self.nova_api.door.answers.append(
                (lambda method, path: path.endswith('/os-aggregates'), '200 OK', b'<html>'))
            self.assertRegex(str(self.not_collected()), 'aggregates from Nova: the answer is not')
            self.nova_api.door.answers.clear()
        with self.subTest('Nova is too old'):
            self.nova_api.door.answers.append((
                lambda method, path: path.strip('/') == 'v2.1', '200 OK',
                b'{"version": {"id": "v2.1", "status": "CURRENT", "version": "2.53", '
                b'"min_version": "2.1", "links": [{"rel": "self", "href": "%s/"}]}}'
                % self.nova_api.url.encode()))
            self.assertRegex(str(self.not_collected(self.connect())),
                             'Nova: it offers microversion 2.53, 2.72')
            self.nova_api.door.answers.clear()
        self.assertIn(server['id'], self.collect().instances, 'and it recovers')


class HiddenServerTestCase(CollectorCase):

    def test_query_that_fails_in_its_cell_is_no_empty_cloud(self) -> None:
        server = self.boot(host='host1')
        listed = main_api.instance_get_all_by_filters_sort

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise db_exception.DBError()

        with mock.patch.object(main_api, 'instance_get_all_by_filters_sort', fail):
            [shown] = self.admin_api.api_get('/servers/detail?all_tenants=1').body['servers']
            self.assertEqual('UNKNOWN', shown['status'], 'Nova answers 200')
            self.assertEqual({}, self.collect().instances, 'it has just been launched')
            with mock.patch.object(hidden_servers, 'YOUNG_SECONDS', 0.0):
                self.assertIn(f'its list lacks server {server["id"]}, which is on host1',
                              str(self.not_collected()))
            with self.assertRaisesRegex(client_api.ApiError, f'lacks server {server["id"]}'):
                self.refuse_hidden('host1')
            self.refuse_hidden('host2')
        self.assertIs(listed, main_api.instance_get_all_by_filters_sort)
        self.assertEqual({server['id']}, set(self.collect().instances))

    def refuse_hidden(self, host: str) -> None:
        hidden_servers.refuse_hidden_servers(
            nova_api.NovaApi(self.connection), placement_api.PlacementApi(self.connection), host,
            [self._get_provider_uuid_by_host(host)])


class FlightTestCase(CollectorCase):
    compute_driver = 'fake.FakeLiveMigrateDriver'
    hosts = ('host1', 'host2')

    @marks.turns(3)
    def test_running_live_migration_is_charged_at_both_ends(self) -> None:
        server = self.boot(host='host1')
        self.admin_api.post_server_action(
            server['id'], {'os-migrateLive': {'host': 'host2', 'block_migration': 'auto'}})
        self.wait_for(lambda: [m for m in self.migrations(server) if m['status'] == 'running'],
                      'a running migration')
        cluster = self.collect()
        self.assertEqual((model.InFlightMove(server['id'], 'host1', 'host2'),), cluster.flights)
        for host in ('host1', 'host2'):
            self.assertEqual({'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1},
                             cluster.hosts[host].provider.used)
        instance = cluster.instances[server['id']]
        self.assertEqual(('host1', 'migrating', None),
                         (instance.host, instance.task_state, instance.pinned))
        self.assertEqual({cluster.hosts['host1'].uuid: {
            'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}}, instance.allocations, 'claimed once')
        self.abort(server)
        self.assertEqual((), self.collect().flights)
