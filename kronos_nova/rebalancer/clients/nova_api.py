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

"""Calls of Nova's API; :mod:`nova_records` reads the answers.

All reads use microversion 2.72 (Stein), the first to list unreachable cells
and to show a server's groups; below 2.88 os-hypervisors does not call every
nova-compute for its uptime. Only servers are read with more, when offered:
2.96 for the zone that an instance is pinned to, 2.98 for the properties of its
image, 2.100 for its hints to the scheduler.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
import re
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import records
from kronos_nova.rebalancer.clients import server_constraints
from kronos_nova.rebalancer.clients import server_group_pages

BASE = (2, 72)
#: Microversions for servers, the newest first; the first that Nova offers is used.
SERVERS = ((2, 100), (2, 98), (2, 96), BASE)
#: The first microversion whose events say why they failed.
DETAILS = (2, 84)

#: The statuses that Nova 34 gives to migrations that are not over.
UNDER_WAY = ('accepted', 'queued', 'preparing', 'pre-migrating', 'running',
             'running (post-copy)', 'migrating', 'post-migrating', 'finished',
             'confirming', 'reverting')

#: Types of migrations; those of live ones are also the name of their action.
LIVE_MIGRATION = 'live-migration'
MIGRATION = 'migration'
#: The action that asks for a cold migration.
MIGRATE = 'migrate'
#: The action that aborts a live migration.
ABORT = 'live_migration_cancel'
#: A name that means the same as a regular expression.
_PLAIN = re.compile(r'[A-Za-z0-9_-]+')
_POLICY = nova_records.POLICY

#: The records that the calls return.
Hypervisor = nova_records.Hypervisor
Aggregate = nova_records.Aggregate
Migration = nova_records.Migration
Server = nova_records.Server


@dataclasses.dataclass(frozen=True, slots=True)
class ListedServers:
    """An answer of the list of servers.

    :ivar instances: by UUID.
    :ivar deleted: UUIDs of servers that are deleted, or wait to be.
    :ivar has_unknown: whether Nova left out servers because their cell does not answer.
    """

    instances: Mapping[str, model.Instance]
    deleted: frozenset[str]
    has_unknown: bool


class NovaApi:
    """Reads of Nova, and its live and cold migrations.

    Every method raises ApiError, and returns all or nothing.

    :param connection: an openstacksdk connection.
    :param disruption: where owners and the operator state what may be done to instances.
    """

    def __init__(self, connection: Any, disruption: server_constraints.DisruptionSettings =
                 server_constraints.NOWHERE) -> None:
        self._api = api.ServiceApi(connection, 'Nova', 'compute')
        self._disruption = disruption
        self._server_version: str | None = None
        self._details_version = _format_version(BASE)

    @property
    def api(self) -> api.ServiceApi:
        return self._api

    def negotiate_microversions(self) -> None:
        """Agree on microversions, once.

        :raises ApiError: Nova is older than 2.72.
        """
        if self._server_version is not None:
            return
        offered = self._api.read_newest_microversion()
        if offered < BASE:
            raise api.ApiError('Nova', 'supported API versions',
                               f'it offers microversion {_format_version(offered)}, '
                               f'{_format_version(BASE)} (Stein) or newer is needed')
        self._details_version = _format_version(DETAILS if offered >= DETAILS else BASE)
        self._server_version = _format_version(next(v for v in SERVERS if offered >= v))

    def read_services(self, host: str | None = None) -> dict[str, model.Service]:
        """Return the nova-compute services by host.

        :raises ApiError: also when a cell does not answer.
        """
        what = 'compute services'
        params = {'binary': 'nova-compute'} | ({} if host is None else {'host': host})
        body = self._get('/os-services', what, 'os-services:list', params)
        services = [nova_records.parse_service(r)
                    for r in self._api.read_records(body, 'services', what)]
        return {s.host: s for s in services}

    def services_of_all_cells(self) -> dict[str, model.Service]:
        """List the nova-compute services by host.

        Those in a cell that does not answer have the status model.UNKNOWN.
        """
        what = 'compute services'
        body = self._get('/os-services', what, 'os-services:list', {'binary': 'nova-compute'})
        services = [nova_records.parse_service_of_any_cell(r)
                    for r in self._api.read_records(body, 'services', what)]
        return {s.host: s for s in services}

    def read_hypervisors(self) -> list[Hypervisor]:
        return [nova_records.parse_hypervisor(r) for r in self._api.read_pages(
            '/os-hypervisors/detail', 'hypervisors', 'hypervisors',
            _POLICY + 'os-hypervisors:list-detail', _format_version(BASE))]

    def hypervisors_of(self, host: str) -> list[Hypervisor]:
        """Return the hypervisors of one service host.

        A hypervisor's name mostly begins with its host's: the search by name spares Nova the whole
        list.
        """
        body: Mapping[str, Any] = {'hypervisors': []}
        try:
            body = self._get('/os-hypervisors/detail', f'hypervisor of {host}',
                             'os-hypervisors:list-detail', {'hypervisor_hostname_pattern': host})
        except api.ApiError as exc:
            if exc.status != 404:
                raise
        hypervisors = [nova_records.parse_hypervisor(r)
                       for r in self._api.read_records(body, 'hypervisors', 'hypervisors')]
        if all(h.host != host for h in hypervisors):
            hypervisors = self.read_hypervisors()
        return [h for h in hypervisors if h.host == host]

    def read_aggregates(self) -> dict[str, Aggregate]:
        """Return the aggregates by name, which Nova keeps unique."""
        what = 'aggregates'
        body = self._get('/os-aggregates', what, 'os-aggregates:index')
        return dict(nova_records.parse_aggregate(r)
                    for r in self._api.read_records(body, 'aggregates', what))

    def list_servers(self, since: float | None = None,
                     shared: server_constraints.SharedMappings | None = None) -> ListedServers:
        """List the servers of all projects, also those on no host.

        :param since: epoch seconds: list only those that Nova wrote since, or deleted after it had
            written them since.
        :param shared: mappings of servers that were listed before.
        """
        shared = shared or server_constraints.SharedMappings()
        params = {} if since is None else {'changes-since': _format_time(since)}
        instances, deleted, has_unknown = {}, set(), False
        for data in self._list_servers('servers', params):
            if data.get('status') == model.UNKNOWN:
                has_unknown = True
            elif nova_records.is_deleted(data):
                deleted.add(records.JsonRecord('Nova', 'server', data).read_identity('id'))
            else:
                instance = nova_records.parse_instance(data, self._disruption, shared)
                instances[instance.uuid] = instance
        return ListedServers(instances, frozenset(deleted), has_unknown)

    def read_server(self, uuid: str) -> Server:
        """Return one server.

        Nova also answers 404 for another project's server to a user who is no administrator: a
        server is gone only if it is not listed either.

        :raises ApiError: with status 404 when Nova has no such server.
        """
        self.negotiate_microversions()
        assert self._server_version is not None
        what = f'server {uuid}'
        try:
            body = self._api.get(f'/servers/{uuid}', what, _POLICY + 'servers:show',
                                 self._server_version)
        except api.ApiError as exc:
            if exc.status == 404 and self._is_listed_server(uuid):
                raise api.ApiError(
                    'Nova', what, 'Nova lists it but denies it; the user of [nova] needs a role '
                                  'that policy context_is_admin allows') from None
            raise
        record = records.JsonRecord('Nova', 'answer for server', body | {'id': uuid})
        return nova_records.parse_server(record.read_mapping('server'), self._disruption)

    def servers_named(self, name: str) -> list[model.Instance]:
        """List the servers of all projects with exactly this display name."""
        # Nova takes the name for a regular expression of its database's kind.
        narrowed = {'name': f'^{name}$'} if _PLAIN.fullmatch(name) else {}
        return [nova_records.parse_instance(r, self._disruption)
                for r in self._list_servers('servers', narrowed) if r.get('name') == name]

    def list_servers_of_project(self, project_id: str) -> dict[str, model.Instance]:
        """Return the servers of a project by UUID, also those on no host.

        :raises ApiError: also when a cell does not answer.
        """
        return {instance.uuid: instance for instance in (
            nova_records.parse_instance(data, self._disruption) for data in self._list_servers(
                f'servers of project {api.format_printable(project_id)}',
                {'project_id': project_id}))}

    def list_servers_on(self, host: str) -> dict[str, Server]:
        """Return the servers of all projects on a host by UUID, without their groups.

        Leave out a record that cannot be read, such as one of a cell that does not answer: reading
        that server alone says why.
        """
        servers: dict[str, Server] = {}
        for data in self._list_servers(f'servers on {api.format_printable(host)}',
                                       {'host': host}):
            if data.get(nova_records.HOST) == host:
                with contextlib.suppress(api.ApiError):
                    server = nova_records.parse_listed_server(data, self._disruption)
                    servers[server.instance.uuid] = server
        return servers

    def _list_servers(self, what: str, params: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Read the servers of all projects, with the newest microversion for servers."""
        self.negotiate_microversions()
        assert self._server_version is not None
        return self._api.read_pages(
            '/servers/detail', 'servers', what, _POLICY + 'servers:detail:get_all_tenants',
            self._server_version, {'all_tenants': '1', **params})

    def _is_listed_server(self, uuid: str) -> bool:
        return any(r.get('id') == uuid for r in self._api.read_pages(
            '/servers/detail', 'servers', 'servers',
            _POLICY + 'servers:detail:get_all_tenants', _format_version(BASE),
            {'all_tenants': '1', 'uuid': uuid}))

    def server_groups(self) -> list[model.ServerGroup]:
        """List the server groups of all projects.

        :raises ApiError: with status 409 when the list changed while it was read.
        """
        return server_group_pages.list_groups(self._read_group_page)

    def readable_server_groups(self) -> server_group_pages.ReadableGroups:
        """List the server groups while a cell does not answer.

        :raises ApiError: with status 409 when the list changed while it was read.
        """
        return server_group_pages.list_readable_groups(self._read_group_page)

    def _read_group_page(self, offset: int, limit: int | None) -> Sequence[Mapping[str, Any]]:
        what = 'server groups'
        params = {'all_projects': 'true', 'offset': str(offset)}
        body = self._get('/os-server-groups', what, 'os-server-groups:index:all_projects',
                         params if limit is None else params | {'limit': str(limit)})
        return self._api.read_records(body, 'server_groups', what)

    def server_group(self, uuid: str) -> model.ServerGroup | None:
        """Return a server group, as :func:`nova_records.parse_server_group` reads it.

        :raises ApiError: with status 404 when it was deleted.
        """
        what = f'server group {uuid}'
        body = self._get(f'/os-server-groups/{uuid}', what, 'os-server-groups:show')
        record = records.JsonRecord('Nova', 'answer for server group', body | {'id': uuid})
        return nova_records.parse_server_group(record.read_mapping('server_group'))

    def list_migrations(self, instance_uuid: str) -> list[Migration]:
        """List every migration of an instance, by id."""
        migrations = self._list_migrations({'instance_uuid': instance_uuid})
        return sorted(migrations, key=lambda m: m.id)

    def migrations_under_way(self, now: float, window: float = 86400.0) -> list[Migration]:
        """List migrations that are not over, of any kind, by id.

        Nova has no query for "not over", and keeps the history of years. So this queries each
        status that Nova is known to use, and everything that changed within the window, which finds
        unknown statuses.
        """
        queries: list[dict[str, str]] = [{'status': status} for status in UNDER_WAY]
        queries.append({'changes-since': _format_time(now - window)})
        migrations_by_id = {m.id: m for query in queries for m in self._list_migrations(query)}
        return [m for _id, m in sorted(migrations_by_id.items()) if not m.has_ended]

    def migrations_of_host(self, host: str, now: float,
                           window: float = 86400.0) -> list[Migration]:
        """List migrations from or to the host that Nova wrote within the window, by id.

        That is all that run, because Nova writes their records all the time, and the last ended.
        """
        migrations = self._list_migrations(
            {'host': host, 'changes-since': _format_time(now - window)})
        return sorted(migrations, key=lambda m: m.id)

    def live_migrate(self, instance_uuid: str, host: str, *, copy_disks: bool,
                     may_send: Callable[[], bool] = lambda: True) -> Any:
        """Request once a live migration to a host that the scheduler must admit.

        :param copy_disks: disks are copied where storage is not shared; else Nova refuses the
            migration there.
        :param may_send: called directly before the request is sent.
        :returns: the response with any status.
        :raises TooLate: ``may_send`` returned False.
        :raises ApiError: no answer; ``sent`` tells whether the request may be at work.
        """
        return self._api.post(
            f'/servers/{instance_uuid}/action', f'live migration of {instance_uuid}',
            _format_version(BASE), {'os-migrateLive': {
                'host': host, 'block_migration': 'auto' if copy_disks else False}}, may_send)

    def abort_live_migration(self, instance_uuid: str, migration_id: int) -> Any:
        """Request once the abort of a live migration; see :meth:`live_migrate`."""
        return self._api.delete(
            f'/servers/{instance_uuid}/migrations/{migration_id}',
            f'abort of the live migration of {instance_uuid}', _format_version(BASE))

    def cold_migrate(self, instance_uuid: str, host: str,
                     may_send: Callable[[], bool] = lambda: True) -> Any:
        """Request once a cold migration to an admitted host (2.56); see :meth:`live_migrate`."""
        return self._api.post(
            f'/servers/{instance_uuid}/action', f'cold migration of {instance_uuid}',
            _format_version(BASE), {'migrate': {'host': host}}, may_send)

    def confirm_resize(self, instance_uuid: str) -> Any:
        """Confirm a cold migration; see :meth:`live_migrate`."""
        return self._api.post(
            f'/servers/{instance_uuid}/action', f'confirmation of {instance_uuid}',
            _format_version(BASE), {'confirmResize': None})

    def reset_state(self, instance_uuid: str) -> Any:
        """Set the state of an instance to active; see :meth:`live_migrate`."""
        return self._api.post(
            f'/servers/{instance_uuid}/action', f'reset of the state of {instance_uuid}',
            _format_version(BASE), {'os-resetState': {'state': 'active'}})

    def user_id(self) -> str | None:
        """Return the id of our user; None where Keystone does not say.

        :raises ApiError: Keystone did not answer.
        """
        return self._api.user_id()

    def list_actions(self, instance_uuid: str) -> list[dict[str, Any]]:
        """List the instance's newest actions, newest first."""
        what = f'actions of instance {instance_uuid}'
        body = self._get(f'/servers/{instance_uuid}/os-instance-actions', what,
                         'os-instance-actions:list', {'limit': '20'})
        return self._api.read_records(body, 'instanceActions', what)

    def action_events(self, instance_uuid: str, request_id: str) -> list[dict[str, Any]]:
        """List the events of one action."""
        what = f'action {request_id} of instance {instance_uuid}'
        self.negotiate_microversions()
        body = self._api.get(
            f'/servers/{instance_uuid}/os-instance-actions/{request_id}', what,
            _POLICY + 'os-instance-actions:show', self._details_version)
        record = records.JsonRecord('Nova', 'action', body | {'id': request_id})
        return self._api.read_records(record.read_mapping('instanceAction'), 'events', what)

    def _list_migrations(self, params: Mapping[str, str]) -> list[Migration]:
        return [nova_records.parse_migration(r) for r in self._api.read_pages(
            '/os-migrations', 'migrations', 'migrations',
            _POLICY + 'os-migrations:index:all_projects', _format_version(BASE), params)]

    def _get(self, path: str, what: str, policy: str,
             params: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self._api.get(path, what, _POLICY + policy, _format_version(BASE), params)


def _format_version(version: tuple[int, ...]) -> str:
    return '.'.join(str(part) for part in version)


def _format_time(at: float) -> str:
    """Return epoch seconds as Nova's queries take them."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
