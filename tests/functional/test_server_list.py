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

"""A collector with a memory sees the cloud as a new one does, while Nova changes servers."""

import dataclasses
import datetime
import time
from typing import Any
from unittest import mock

from nova import context
from nova import objects
from nova.db.main import api as main_api
from nova.db.main import models

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import hidden_servers
from tests import marks
from tests.functional import test_collector


class ServerListCase(test_collector.CollectorCase):

    def setUp(self) -> None:
        super().setUp()
        self.conf.set_override('opt_out_metadata_key', 'stay', 'engine')
        self.conf.set_override('opt_out_tag', 'stays', 'engine')
        self.remembering = collector.CloudCollector(self.conf, self.connection)

    def read(self) -> model.Cluster:
        """Read the cloud with the memory."""
        return self.remembering.collect_cluster(time.time())

    def assert_seen(self, what: str) -> model.Cluster:
        """Assert that a collector without a memory sees the same cloud."""
        with self.subTest(what):
            cluster = self.read()
            self.assertEqual(dataclasses.replace(self.collect(), taken_at=0.0),
                             dataclasses.replace(cluster, taken_at=0.0))
        return cluster

    def age(self, *servers: dict[str, Any]) -> None:
        """Let Nova have written the servers' records long ago."""
        self.write_records(servers, updated_at=datetime.datetime(2001, 1, 1))

    def write_records(self, servers: Any, **values: Any) -> None:
        """Write fields of servers into the database of their cell, past Nova."""
        mapping = objects.InstanceMapping.get_by_instance_uuid(
            context.get_admin_context(), servers[0]['id'])
        with context.target_cell(context.get_admin_context(), mapping.cell_mapping) as cell, (
                main_api.get_context_manager(cell).writer.using(cell)) as session:
            for server in servers:
                session.execute(models.Instance.__table__.update().where(
                    models.Instance.uuid == server['id']).values(**values))

    def destroy(self, server: dict[str, Any]) -> None:
        """Delete a server and archive its records, as nova-manage does."""
        self.admin_api.delete_server(server['id'])
        self._wait_until_deleted(server)
        main_api.archive_deleted_rows(max_rows=1000)


class ChangesTestCase(ServerListCase):

    def test_each_change_is_seen_as_by_a_collector_without_memory(self) -> None:
        still, one, two = (self.boot(host=host) for host in ('host1', 'host1', 'host2'))
        self.assert_seen('all are listed')
        self.age(still, one, two)
        act = self.admin_api.post_server_action
        self.assertEqual({still['id'], one['id'], two['id']}, set(self.read().instances))

        act(one['id'], {'lock': {}})
        self.assert_seen('locked')
        act(one['id'], {'unlock': {}})
        act(two['id'], {'os-stop': None})
        self._wait_for_state_change(two, 'SHUTOFF')
        self.assert_seen('stopped')
        self.admin_api.put_server(one['id'], {'server': {'name': 'other'}})
        self.assert_seen('renamed')
        self._live_migrate(one, api=self.admin_api, host='host3')
        cluster = self.assert_seen('migrated live')
        self.assertEqual('host3', cluster.instances[one['id']].host)
        act(two['id'], {'migrate': {'host': 'host1'}})
        self._wait_for_state_change(two, 'VERIFY_RESIZE')
        self.assert_seen('migrated cold')
        act(two['id'], {'revertResize': None})
        self._wait_for_state_change(two, 'SHUTOFF')
        self.wait_for(lambda: len(self.allocations_of(two)) == 1, 'the end of the reversal')
        self.assert_seen('reverted')
        larger = self.api.post_flavor({'flavor': {
            'name': 'larger', 'ram': 1024, 'vcpus': 2, 'disk': 2, 'id': 'larger'}})
        act(two['id'], {'resize': {'flavorRef': larger['id']}})
        self._wait_for_state_change(two, 'VERIFY_RESIZE')
        act(two['id'], {'confirmResize': None})
        self._wait_for_state_change(two, 'SHUTOFF')
        cluster = self.assert_seen('resized')
        self.assertEqual(2, cluster.instances[two['id']].vcpus)
        act(two['id'], {'shelve': {}})
        self._wait_for_state_change(two, 'SHELVED_OFFLOADED')
        self.wait_for(lambda: not self.allocations_of(two), 'the end of the shelving')
        self.assertNotIn(two['id'], self.assert_seen('shelved').instances)
        act(two['id'], {'unshelve': None})
        self._wait_for_state_change(two, 'ACTIVE')
        self.assertIn(two['id'], self.assert_seen('unshelved').instances)
        three = self.boot(host='host2')
        self.assertIn(three['id'], self.assert_seen('booted').instances)
        for server in (one, two):
            self.admin_api.delete_server(server['id'])
            self._wait_until_deleted(server)
        self.assertEqual({still['id'], three['id']}, set(self.assert_seen('deleted').instances))

    def allocations_of(self, server: dict[str, Any]) -> Any:
        return self._get_allocations_by_server_uuid(server['id'])

    @marks.turns(12)
    def test_hypervisors_are_listed_when_hosts_differ_or_one_lacks_its_provider(self) -> None:
        def lists() -> int:
            return self.nova_api.door.ours.count(('GET', '/v2.1/os-hypervisors/detail'))

        self.read()
        self.read()
        self.assertEqual(1, lists())
        [service] = self.admin_api.get_services(host='host3', binary='nova-compute')
        self.admin_api.api_delete(f'/os-services/{service["id"]}')
        self.assertEqual({'host1', 'host2'}, set(self.read().hosts))
        self.assertEqual(2, lists())
        provider = self._get_provider_uuid_by_host('host2')
        self.placement.delete(f'/resource_providers/{provider}')
        for number in (2, 3):
            self.assertIsNone(self.read().hosts['host2'].provider)
            self.assertEqual(number, lists())

    @marks.turns(12)
    def test_unchanged_servers_are_listed_after_the_interval_only(self) -> None:
        """Nova writes a tag, or a deletion of metadata, without a change of the server's record."""
        tagged, freed = (self.boot(host='host1') for _ in range(2))
        path = f'/servers/{freed["id"]}/metadata'
        self.read()
        self.age(tagged, freed)
        self.admin_api.api_post(path, {'metadata': {'stay': 'yes'}})
        self.assertIsNotNone(self.assert_seen('metadata').instances[freed['id']].opted_out)
        self.age(tagged, freed)
        self.admin_api.api_put(f'/servers/{tagged["id"]}/tags/stays', {},
                               check_response_status=[201])
        self.admin_api.api_delete(f'{path}/stay')
        later = time.time() + self.conf.nova.full_list_interval
        for cluster, opted_out in (
                (self.read(), {tagged['id']: False, freed['id']: True}),
                (self.remembering.collect_cluster(later),
                 {tagged['id']: True, freed['id']: False})):
            self.assertEqual(opted_out, {
                uuid: instance.opted_out is not None
                for uuid, instance in cluster.instances.items()})


    @marks.turns(12)
    def test_changes_of_many_pages_are_read_past_deleted_servers(self) -> None:
        """The last server of a page, after which the next one begins, is deleted."""
        servers = [self.boot(host='host1') for _ in range(5)]
        self.read()
        for server in servers[:4]:
            self.admin_api.delete_server(server['id'])
            self._wait_until_deleted(server)
        self.flags(max_limit=1, group='api')
        requests = self.nova_api.door.ours
        requests.clear()
        self.assertEqual({servers[4]['id']}, set(self.read().instances))
        self.assertLessEqual(5, requests.count(('GET', '/v2.1/servers/detail')))


    @marks.turns(12)
    def test_server_that_waits_for_its_deletion_is_no_instance(self) -> None:
        """Its allocations stay; a list of all servers lacks it, a list of changes does not."""
        self.flags(reclaim_instance_interval=3600)
        kept, server = self.boot(host='host1'), self.boot(host='host1')
        self.read()
        self.admin_api.delete_server(server['id'])
        self._wait_for_state_change(server, 'SOFT_DELETED')
        self.write_records([server], launched_at=datetime.datetime(2001, 1, 1))
        cluster = self.assert_seen('soft-deleted')
        self.assertEqual({kept['id']}, set(cluster.instances))
        self.assertEqual(2, cluster.hosts['host1'].provider.used['VCPU'])
        self.admin_api.post_server_action(server['id'], {'restore': {}})
        self._wait_for_state_change(server, 'ACTIVE')
        self.assertEqual({kept['id'], server['id']}, set(self.assert_seen('restored').instances))


class MissedChangesTestCase(ServerListCase):
    """Changes that Nova's list of changes does not have."""

    @marks.turns(3)
    def test_server_whose_records_are_archived_is_gone(self) -> None:
        """Two servers: the memory and Nova's answer differ in one."""
        one, two = self.boot(host='host1'), self.boot(host='host1')
        self.read()
        self.destroy(one)
        self.age(two)
        self.assertEqual({two['id']}, set(self.assert_seen('archived').instances))

    @marks.turns(3)
    def test_move_that_no_list_of_changes_has_is_seen_by_its_allocations(self) -> None:
        server = self.boot(host='host1')
        self.read()
        self._live_migrate(server, api=self.admin_api, host='host2')
        self.age(server)
        cluster = self.assert_seen('missed')
        self.assertEqual('host2', cluster.instances[server['id']].host)
        self.age(server)
        self.assertEqual('host2', self.read().instances[server['id']].host)

    @marks.turns(12)
    def test_server_that_lost_its_allocations_is_looked_up_once(self) -> None:
        server = self.boot(host='host1')
        self.read()
        self.age(server)
        self._delete_server_allocations(server['id'])
        requests = self.nova_api.door.ours
        lookup = ('GET', f'/v2.1/servers/{server["id"]}')
        counts = []
        for _ in range(3):
            requests.clear()
            pinned = self.assert_seen('no allocations').instances[server['id']].pinned
            self.assertTrue(str(pinned).startswith('no-allocations: '))
            counts.append(requests.count(lookup))
        # The collector without a memory looks at one server, for the rights of its user.
        self.assertEqual([3, 2, 2], counts)

    @marks.turns(12)
    def test_list_that_was_refused_is_not_remembered(self) -> None:
        """Nova shows no UNKNOWN server when the query of a later page fails."""
        older, newer = self.boot(host='host1'), self.boot(host='host1')
        # Nova lists the newest first; both were created in one second.
        self.write_records([older], created_at=datetime.datetime(2001, 1, 1))
        self.age(older, newer)
        self.flags(max_limit=1, group='api')
        query = main_api.instance_get_all_by_filters_sort

        def fail_after_first_page(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get('marker') is not None:
                raise test_collector.db_exception.DBError()
            return query(*args, **kwargs)

        with mock.patch.object(
                main_api, 'instance_get_all_by_filters_sort', fail_after_first_page), (
                mock.patch.object(hidden_servers, 'YOUNG_SECONDS', 0.0)):
            error = self.assertRaises(exception.CollectError, self.read)
        self.assertIn(f'its list lacks server {older["id"]}', str(error))
        self.assertEqual({older['id'], newer['id']}, set(self.read().instances))

    @marks.turns(12)
    def test_query_that_fails_in_its_cell_hides_no_move_and_no_change_for_long(self) -> None:
        """Nova answers 200 then, with an empty list of changes."""
        still, moved, stopped = (self.boot(host='host1') for _ in range(3))
        self.read()
        self.age(still)
        self._live_migrate(moved, api=self.admin_api, host='host3')
        self.admin_api.post_server_action(stopped['id'], {'os-stop': None})
        self._wait_for_state_change(stopped, 'SHUTOFF')

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise test_collector.db_exception.DBError()

        with mock.patch.object(main_api, 'instance_get_all_by_filters_sort', fail):
            instances = self.read().instances
        self.assertEqual(3, len(instances))
        self.assertEqual('host3', instances[moved['id']].host)
        self.assertEqual('ACTIVE', instances[stopped['id']].status)
        self.assertEqual('SHUTOFF', self.assert_seen('after').instances[stopped['id']].status)
