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

"""Nova's API, as values of the model.

All reads use microversion 2.72 (Stein), the first to list unreachable cells
and to show a server's groups; below 2.88 os-hypervisors does not call every
nova-compute for its uptime. Only servers are read with more, when offered:
2.96 for the zone that an instance is pinned to, 2.98 for the properties of its
image, 2.100 for its hints to the scheduler.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
import re
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import records
from kronos_nova.rebalancer.clients import server_constraints

BASE = (2, 72)
#: Microversions for servers, the newest first; the first that Nova offers is used.
SERVERS = ((2, 100), (2, 98), (2, 96), BASE)
#: The first microversion whose events say why they failed.
DETAILS = (2, 84)

#: Statuses of migrations that are over. Any other status, known or unknown, is not.
#: Source: nova.db.main.api, migration_get_in_progress_by_host_and_node.
ENDED = frozenset({
    'completed', 'confirmed', 'reverted', 'failed', 'error', 'cancelled', 'done'})

#: The statuses that Nova 34 gives to migrations that are not over.
UNDER_WAY = ('accepted', 'queued', 'preparing', 'pre-migrating', 'running',
             'running (post-copy)', 'migrating', 'post-migrating', 'finished',
             'confirming', 'reverting')

#: A record that Nova has not changed for so long (seconds) takes no slot. While a live
#: migration copies, Nova writes to its record every few seconds.
UNCHANGED_SECONDS = 3000.0

#: Types of migrations; those of live ones are also the name of their action.
LIVE_MIGRATION = 'live-migration'
MIGRATION = 'migration'
#: The action that asks for a cold migration.
MIGRATE = 'migrate'
#: The action that aborts a live migration.
ABORT = 'live_migration_cancel'
#: A name that means the same as a regular expression.
_PLAIN = re.compile(r'[A-Za-z0-9_-]+')
_SINCE = '%Y-%m-%dT%H:%M:%SZ'

#: Server groups of a page while a cell does not answer: a power of two.
GROUP_PAGE = 64
#: No list has so many records.
BEYOND = 2**31 - 1
_ATTRIBUTES = 'OS-EXT-SRV-ATTR:'
_POLICY = 'os_compute_api:'


@dataclasses.dataclass(frozen=True, slots=True)
class Hypervisor:
    """A compute node; ``host`` is its service host."""

    uuid: str
    hostname: str
    host: str
    type: str
    version: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregate:
    """A host aggregate; ``hosts`` are service hosts, sorted."""

    hosts: tuple[str, ...]
    metadata: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """A record of os-migrations.

    ``to_host`` stays None until the migration is scheduled; ``updated_at`` is the time of Nova's
    last write, in epoch seconds.
    """

    id: int
    uuid: str
    instance_uuid: str
    type: str
    status: str
    from_host: str | None
    to_host: str | None
    updated_at: float = 0.0

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    def is_unchanged(self, now: float) -> bool:
        """Return whether the record is unchanged for UNCHANGED_SECONDS; False if unknown."""
        return 0.0 < self.updated_at <= now - UNCHANGED_SECONDS


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """One server as GET shows it: the instance, its groups' UUIDs and its addresses.

    ``instance.host`` is empty for an instance that is on no host.
    """

    instance: model.Instance
    group_uuids: tuple[str, ...]
    addresses: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ReadableGroups:
    """Server groups while a cell does not answer.

    ``groups`` bind their members; ``uuids`` are all groups that Nova shows; ``unreadable`` counts
    the groups that Nova cannot show.
    """

    groups: list[model.ServerGroup]
    uuids: frozenset[str]
    unreadable: int


class NovaApi:
    """Reads of Nova, and its live and cold migrations.

    Every method raises ApiError, and returns all or nothing.

    :param connection: an openstacksdk connection.
    :param opt_out: where owners may opt out of moves.
    """

    def __init__(self, connection: Any,
                 opt_out: server_constraints.OptOut = server_constraints.NOWHERE) -> None:
        self._api = api.ServiceApi(connection, 'Nova', 'compute')
        self._opt_out = opt_out
        self._server_version: str | None = None
        self._details_version = _format_version(BASE)

    @property
    def api(self) -> api.ServiceApi:
        return self._api

    def negotiate(self) -> None:
        """Agree on microversions, once.

        :raises ApiError: Nova is older than 2.72.
        """
        if self._server_version is not None:
            return
        offered = self._api.maximum()
        if offered < BASE:
            raise api.ApiError('Nova', 'supported API versions',
                               f'it offers microversion {_format_version(offered)}, '
                               f'{_format_version(BASE)} (Stein) or newer is needed')
        self._details_version = _format_version(DETAILS if offered >= DETAILS else BASE)
        self._server_version = _format_version(next(v for v in SERVERS if offered >= v))

    def services(self, host: str | None = None) -> dict[str, model.Service]:
        """Return the nova-compute services by host.

        :raises ApiError: also when a cell does not answer.
        """
        what = 'compute services'
        params = {'binary': 'nova-compute'} | ({} if host is None else {'host': host})
        body = self._get('/os-services', what, 'os-services:list', params)
        found = [parse_service(r) for r in self._api.records(body, 'services', what)]
        return {s.host: s for s in found}

    def services_of_all_cells(self) -> dict[str, model.Service]:
        """List the nova-compute services by host.

        Those in a cell that does not answer have the status model.UNKNOWN.
        """
        what = 'compute services'
        body = self._get('/os-services', what, 'os-services:list', {'binary': 'nova-compute'})
        found = [unreadable_service(r) if r.get('status') == model.UNKNOWN else parse_service(r)
                 for r in self._api.records(body, 'services', what)]
        return {s.host: s for s in found}

    def hypervisors(self) -> list[Hypervisor]:
        return [parse_hypervisor(r) for r in self._api.pages(
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
        found = [parse_hypervisor(r) for r in self._api.records(body, 'hypervisors', 'hypervisors')]
        if all(h.host != host for h in found):
            found = self.hypervisors()
        return [h for h in found if h.host == host]

    def aggregates(self) -> dict[str, Aggregate]:
        """Return the aggregates by name, which Nova keeps unique."""
        what = 'aggregates'
        body = self._get('/os-aggregates', what, 'os-aggregates:index')
        out = {}
        for data in self._api.records(body, 'aggregates', what):
            record = records.JsonRecord('Nova', 'aggregate', data)
            out[record.text('name')] = Aggregate(
                tuple(sorted(record.texts('hosts'))), record.texts_by_name('metadata'))
        return out

    def servers(self, skip_unknown: bool = False) -> list[model.Instance]:
        """List the servers of all projects, also those on no host.

        :param skip_unknown: leave out servers in cells that do not answer, else raise an error.
        """
        self.negotiate()
        assert self._server_version is not None
        shared = server_constraints.SharedMappings()
        return [parse_instance(r, self._opt_out, shared) for r in self._api.pages(
            '/servers/detail', 'servers', 'servers',
            _POLICY + 'servers:detail:get_all_tenants', self._server_version,
            {'all_tenants': '1'})
            if not (skip_unknown and r.get('status') == model.UNKNOWN)]

    def server(self, uuid: str) -> Server:
        """Return one server.

        Nova also answers 404 for another project's server to a user who is no administrator: a
        server is gone only if it is not listed either.

        :raises ApiError: with status 404 when Nova has no such server.
        """
        self.negotiate()
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
        data = record.mapping('server')
        found = parse_instance(data, self._opt_out)
        return Server(found, records.JsonRecord('Nova', 'server', data).texts('server_groups'),
                      _parse_addresses(data.get('addresses')))

    def servers_named(self, name: str) -> list[model.Instance]:
        """List the servers of all projects with exactly this display name."""
        self.negotiate()
        assert self._server_version is not None
        # Nova takes the name for a regular expression of its database's kind.
        narrowed = {'name': f'^{name}$'} if _PLAIN.fullmatch(name) else {}
        return [parse_instance(r, self._opt_out) for r in self._api.pages(
            '/servers/detail', 'servers', 'servers',
            _POLICY + 'servers:detail:get_all_tenants', self._server_version,
            {'all_tenants': '1', **narrowed}) if r.get('name') == name]

    def servers_on(self, host: str) -> dict[str, Server]:
        """Return the servers of all projects on a host by UUID, without their groups.

        Leave out a record that cannot be read, such as one of a cell that does not answer: reading
        that server alone says why.
        """
        self.negotiate()
        assert self._server_version is not None
        found: dict[str, Server] = {}
        for data in self._api.pages(
                '/servers/detail', 'servers', f'servers on {api.format_printable(host)}',
                _POLICY + 'servers:detail:get_all_tenants', self._server_version,
                {'all_tenants': '1', 'host': host}):
            if data.get(_ATTRIBUTES + 'host') == host:
                with contextlib.suppress(api.ApiError):
                    read = parse_instance(data, self._opt_out)
                    found[read.uuid] = Server(read, (), _parse_addresses(data.get('addresses')))
        return found

    def _is_listed_server(self, uuid: str) -> bool:
        return any(r.get('id') == uuid for r in self._api.pages(
            '/servers/detail', 'servers', 'servers',
            _POLICY + 'servers:detail:get_all_tenants', _format_version(BASE),
            {'all_tenants': '1', 'uuid': uuid}))

    def server_groups(self) -> list[model.ServerGroup]:
        """List the server groups of all projects.

        Nova pages this list by offset without saying so. Each page begins with the last record of
        the page before, so that a group deleted meanwhile cannot hide another.
        """
        what = 'server groups'
        found: list[tuple[str, Mapping[str, Any]]] = []
        while True:
            offset = max(len(found) - 1, 0)
            body = self._get('/os-server-groups', what, 'os-server-groups:index:all_projects',
                             {'all_projects': 'true', 'offset': str(offset)})
            page = [(records.JsonRecord('Nova', 'server group', r).identity('id'), r)
                    for r in self._api.records(body, 'server_groups', what)]
            if found:
                if not page or page[0][0] != found[-1][0]:
                    raise api.ApiError('Nova', what, 'the list changed while it was read', 409)
                page = page[1:]
            if not page:
                return [group for _uuid, r in found if (group := server_group(r)) is not None]
            found.extend(page)

    def readable_server_groups(self) -> ReadableGroups:
        """List the server groups while a cell does not answer.

        Nova fails a whole page for one group that has a member in such a cell. So a page that fails
        is read again in two halves, down to single groups. As pages cannot overlap here, the list
        is read twice.

        :raises ApiError: with status 409 when the list changed while it was read.
        """
        found = self._readable_groups()
        if [uuid for uuid, _ in found] != [uuid for uuid, _ in self._readable_groups()]:
            raise api.ApiError('Nova', 'server groups', 'the list changed while it was read', 409)
        return ReadableGroups(
            [group for _, r in found if r is not None and (group := server_group(r)) is not None],
            frozenset(uuid for uuid, _ in found if uuid is not None),
            sum(1 for uuid, _ in found if uuid is None))

    def _readable_groups(self) -> list[tuple[str | None, Mapping[str, Any] | None]]:
        """List groups by UUID, in Nova's order; None for one that Nova cannot show."""
        found: list[tuple[str | None, Mapping[str, Any] | None]] = []
        while True:
            page, ended = self._group_page(len(found), GROUP_PAGE)
            found.extend(page)
            if ended:
                return found
            if all(uuid is None for uuid, _ in page):
                # With a Nova that fails every request the list would not end.
                self._server_group_records(BEYOND, 1)

    def _server_group_records(self, offset: int, limit: int) -> Sequence[Mapping[str, Any]]:
        what = 'server groups'
        return self._api.records(self._get(
            '/os-server-groups', what, 'os-server-groups:index:all_projects',
            {'all_projects': 'true', 'offset': str(offset), 'limit': str(limit)}),
            'server_groups', what)

    def _group_page(self, offset: int, limit: int,
                    ) -> tuple[list[tuple[str | None, Mapping[str, Any] | None]], bool]:
        """Read one page; return its groups, and whether the list ends with it."""
        try:
            read = self._server_group_records(offset, limit)
        except api.ApiError as exc:
            if exc.status is None or exc.status < 500:
                raise
            if limit == 1:
                return [(None, None)], False
        else:
            page: list[tuple[str | None, Mapping[str, Any] | None]] = [
                (records.JsonRecord('Nova', 'server group', r).identity('id'), r) for r in read]
            return page, len(page) < limit
        half = limit // 2
        first, ended = self._group_page(offset, half)
        if ended:
            return first, True
        second, ended = self._group_page(offset + len(first), limit - half)
        return first + second, ended

    def server_group(self, uuid: str) -> model.ServerGroup | None:
        """Return a server group, as :func:`server_group` reads it.

        :raises ApiError: with status 404 when it was deleted.
        """
        what = f'server group {uuid}'
        body = self._get(f'/os-server-groups/{uuid}', what, 'os-server-groups:show')
        record = records.JsonRecord('Nova', 'answer for server group', body | {'id': uuid})
        return server_group(record.mapping('server_group'))

    def migrations(self, instance_uuid: str) -> list[Migration]:
        """List every migration of an instance, by id."""
        found = self._list_migrations({'instance_uuid': instance_uuid})
        return sorted(found, key=lambda m: m.id)

    def migrations_under_way(self, now: float, window: float = 86400.0) -> list[Migration]:
        """List migrations that are not over, of any kind, by id.

        Nova has no query for "not over", and keeps the history of years. So this queries each
        status that Nova is known to use, and everything that changed within the window, which finds
        unknown statuses.
        """
        since = datetime.datetime.fromtimestamp(now - window, datetime.UTC)
        queries: list[dict[str, str]] = [{'status': status} for status in UNDER_WAY]
        queries.append({'changes-since': since.strftime(_SINCE)})
        found = {m.id: m for query in queries for m in self._list_migrations(query)}
        return [m for _id, m in sorted(found.items()) if not m.ended]

    def migrations_of_host(self, host: str, now: float,
                           window: float = 86400.0) -> list[Migration]:
        """List migrations from or to the host that Nova wrote within the window, by id.

        That is all that run, because Nova writes their records all the time, and the last ended.
        """
        since = datetime.datetime.fromtimestamp(now - window, datetime.UTC)
        found = self._list_migrations({'host': host, 'changes-since': since.strftime(_SINCE)})
        return sorted(found, key=lambda m: m.id)

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

    def actions(self, instance_uuid: str) -> list[dict[str, Any]]:
        """List the instance's newest actions, newest first."""
        what = f'actions of instance {instance_uuid}'
        body = self._get(f'/servers/{instance_uuid}/os-instance-actions', what,
                         'os-instance-actions:list', {'limit': '20'})
        return self._api.records(body, 'instanceActions', what)

    def action_events(self, instance_uuid: str, request_id: str) -> list[dict[str, Any]]:
        """List the events of one action."""
        what = f'action {request_id} of instance {instance_uuid}'
        self.negotiate()
        body = self._api.get(
            f'/servers/{instance_uuid}/os-instance-actions/{request_id}', what,
            _POLICY + 'os-instance-actions:show', self._details_version)
        record = records.JsonRecord('Nova', 'action', body | {'id': request_id})
        return self._api.records(record.mapping('instanceAction'), 'events', what)

    def _list_migrations(self, params: Mapping[str, str]) -> list[Migration]:
        return [parse_migration(r) for r in self._api.pages(
            '/os-migrations', 'migrations', 'migrations',
            _POLICY + 'os-migrations:index:all_projects', _format_version(BASE), params)]

    def _get(self, path: str, what: str, policy: str,
             params: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self._api.get(path, what, _POLICY + policy, _format_version(BASE), params)


def _parse_addresses(data: Any) -> tuple[str, ...]:
    """Return all addresses that Nova shows; it omits those of ports that it cannot read."""
    if not isinstance(data, dict):
        return ()
    found = (entry.get('addr') for entries in data.values() if isinstance(entries, list)
             for entry in entries if isinstance(entry, dict))
    return tuple(dict.fromkeys(addr for addr in found if isinstance(addr, str)))


def _format_version(version: tuple[int, ...]) -> str:
    return '.'.join(str(part) for part in version)


def parse_service(data: Mapping[str, Any]) -> model.Service:
    """Read a nova-compute service.

    :raises ApiError: it is in a cell that Nova cannot reach.
    """
    record = records.JsonRecord('Nova', 'compute service on', data, identity='host')
    if data.get('status') == model.UNKNOWN:
        raise record.bad('its cell does not answer Nova')
    return model.Service(
        host=record.text('host'), binary=record.text('binary'), status=record.text('status'),
        state=record.text('state'), forced_down=record.flag('forced_down'),
        disabled_reason=record.optional_text('disabled_reason'),
        zone=record.optional_text('zone') or '')


def unreadable_service(data: Mapping[str, Any]) -> model.Service:
    """Read a service in a cell that Nova cannot reach: Nova knows its name alone."""
    record = records.JsonRecord('Nova', 'compute service on', data, identity='host')
    return model.Service(host=record.text('host'), binary=record.text('binary'),
                         status=model.UNKNOWN, state=model.UNKNOWN)


def parse_hypervisor(data: Mapping[str, Any]) -> Hypervisor:
    record = records.JsonRecord('Nova', 'hypervisor', data)
    return Hypervisor(uuid=record.identity('id'), hostname=record.text('hypervisor_hostname'),
                      host=record.part('service').text('host'),
                      type=record.text('hypervisor_type'),
                      version=record.optional_amount('hypervisor_version') or 0)


def server_group(data: Mapping[str, Any]) -> model.ServerGroup | None:
    """Read a server group.

    :returns: None for a group that binds no member: old databases have groups without a policy, and
        with Nova's own ``legacy``, which its filters and weighers ignore (nova.scheduler.utils,
        _get_group_details).
    :raises ApiError: also for a policy that is not known here.
    """
    record = records.JsonRecord('Nova', 'server group', data)
    named = record.optional_text('policy')
    if named in (None, 'legacy'):
        return None
    try:
        policy = model.GroupPolicy(str(named))
    except ValueError:
        named = api.format_printable(data['policy'])
        raise record.bad(f'its policy {named!r} is unknown') from None
    rules = record.part('rules')
    limit = rules.amount('max_server_per_host', 1) if rules.has('max_server_per_host') else 1
    return model.ServerGroup(
        uuid=record.identity('id'), policy=policy, members=frozenset(record.texts('members')),
        max_server_per_host=limit, name=record.optional_text('name') or '')


def parse_instance(data: Mapping[str, Any],
                   opt_out: server_constraints.OptOut = server_constraints.NOWHERE,
                   shared: server_constraints.SharedMappings | None = None) -> model.Instance:
    """Read a server of /servers; ``host`` is empty when it is on none.

    ``disk_gb`` is the flavor's disk on the host, as Nova computes DISK_GB for an instance that is
    not booted from a volume. ``local_disk_gb`` leaves out the root disk of an instance booted from
    a volume, and counts a config drive, and a root disk as large as its image, as 1.
    """
    record = records.JsonRecord('Nova', 'server', data)
    uuid, status = record.identity('id'), record.text('status')
    if status == model.UNKNOWN:
        raise record.bad('its cell does not answer Nova')
    if not record.has(_ATTRIBUTES + 'host'):
        raise record.bad(f'its host is not shown; the user of [nova] needs a role that policy '
                         f'{_POLICY}os-extended-server-attributes allows')
    flavor = record.part('flavor')
    pinned = 'pinned_availability_zone'
    own = (shared
           or server_constraints.SharedMappings()).of(server_constraints.read(record, opt_out))
    swap_gb = -(-flavor.amount('swap') // 1024)
    return model.Instance(
        uuid=uuid, status=status,
        host=record.optional_text(_ATTRIBUTES + 'host') or '',
        name=record.optional_text('name') or '',
        internal_name=record.optional_text(_ATTRIBUTES + 'instance_name') or '',
        vcpus=flavor.amount('vcpus'), memory_mb=flavor.amount('ram'),
        disk_gb=flavor.amount('disk') + flavor.amount('ephemeral') + swap_gb,
        local_disk_gb=(_root_gb(record, flavor) + flavor.amount('ephemeral') + swap_gb
                       + int(record.optional_text('config_drive') is not None)),
        task_state=record.optional_text('OS-EXT-STS:task_state'),
        locked=record.flag('locked'),
        pinned_zone=record.optional_text(pinned) if record.has(pinned) else None,
        project_id=record.optional_text('tenant_id') or '',
        launched_at=_parse_launch_time(data.get('OS-SRV-USG:launched_at')), **own)


def _parse_launch_time(value: Any) -> float | None:
    """Return epoch seconds of Nova's time, which is UTC without saying so."""
    try:
        at = datetime.datetime.fromisoformat(value).replace(tzinfo=datetime.UTC).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return at if at >= 0 else None


def _root_gb(record: records.JsonRecord, flavor: records.JsonRecord) -> int:
    """Return the local root disk in GB; 0 where the server boots from a volume (empty image)."""
    if record.has_value('image'):
        return max(1, flavor.amount('disk'))
    return 0


def parse_migration(data: Mapping[str, Any]) -> Migration:
    """Read a migration.

    :raises ApiError: also when policy hides the hosts.
    """
    record = records.JsonRecord('Nova', 'migration', data)
    found = Migration(
        id=record.amount('id'), uuid=record.identity('uuid'),
        instance_uuid=record.identity('instance_uuid'), type=record.text('migration_type'),
        status=record.text('status'), from_host=record.optional_text('source_compute'),
        to_host=record.optional_text('dest_compute'),
        updated_at=record.optional_time('updated_at') or record.optional_time('created_at')
        or 0.0)
    if found.from_host is None and not found.ended:
        raise record.bad(f'its source is not shown; the user of [nova] needs a role that policy '
                         f'{_POLICY}os-migrations:index:host allows')
    return found
