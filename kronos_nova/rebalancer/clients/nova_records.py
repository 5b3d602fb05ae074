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

"""Records of Nova's API, read as values of the model.

Each field is read with its type; an error names the record and the field. The reads are functions
over :class:`records.JsonRecord`, as for Placement: its errors are part of what operators see.
"""

from collections.abc import Mapping
import dataclasses
import datetime
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import records
from kronos_nova.rebalancer.clients import server_constraints

#: Statuses of migrations that are over. Any other status, known or unknown, is not.
#: Source: nova.db.main.api, migration_get_in_progress_by_host_and_node.
ENDED = frozenset({
    'completed', 'confirmed', 'reverted', 'failed', 'error', 'cancelled', 'done'})

#: A record that Nova has not changed for so long (seconds) takes no slot. While a live
#: migration copies, Nova writes to its record every few seconds.
UNCHANGED_SECONDS = 3000.0

#: The statuses of servers that are deleted, or wait to be. The list of all servers lacks those that
#: wait; a list of changes shows both.
DELETED = frozenset({'DELETED', 'SOFT_DELETED'})
#: The start of the names of Nova's policies.
POLICY = 'os_compute_api:'
#: The field of a server's host.
HOST = 'OS-EXT-SRV-ATTR:host'
_INTERNAL_NAME = 'OS-EXT-SRV-ATTR:instance_name'


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
    def has_ended(self) -> bool:
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


def parse_service(data: Mapping[str, Any]) -> model.Service:
    """Read a nova-compute service.

    :raises ApiError: it is in a cell that Nova cannot reach.
    """
    record = records.JsonRecord('Nova', 'compute service on', data, identity='host')
    if data.get('status') == model.UNKNOWN:
        raise record.make_error('its cell does not answer Nova')
    return model.Service(
        host=record.read_text('host'), binary=record.read_text('binary'),
        status=record.read_text('status'),
        state=record.read_text('state'), forced_down=record.read_flag('forced_down'),
        disabled_reason=record.optional_text('disabled_reason'),
        zone=record.optional_text('zone') or '',
        reported_at=record.optional_time('updated_at') if 'updated_at' in data else None)


def parse_service_of_any_cell(data: Mapping[str, Any]) -> model.Service:
    """Read a nova-compute service; of one in a cell that Nova cannot reach Nova knows the name."""
    if data.get('status') != model.UNKNOWN:
        return parse_service(data)
    record = records.JsonRecord('Nova', 'compute service on', data, identity='host')
    return model.Service(host=record.read_text('host'), binary=record.read_text('binary'),
                         status=model.UNKNOWN, state=model.UNKNOWN)


def parse_hypervisor(data: Mapping[str, Any]) -> Hypervisor:
    record = records.JsonRecord('Nova', 'hypervisor', data)
    return Hypervisor(uuid=record.read_identity('id'),
                      hostname=record.read_text('hypervisor_hostname'),
                      host=record.read_part('service').read_text('host'),
                      type=record.read_text('hypervisor_type'),
                      version=record.optional_amount('hypervisor_version') or 0)


def parse_aggregate(data: Mapping[str, Any]) -> tuple[str, Aggregate]:
    """Return an aggregate after its name."""
    record = records.JsonRecord('Nova', 'aggregate', data)
    return record.read_text('name'), Aggregate(
        tuple(sorted(record.read_texts('hosts'))), record.texts_by_name('metadata'))


def parse_group_uuid(data: Mapping[str, Any]) -> str:
    return records.JsonRecord('Nova', 'server group', data).read_identity('id')


def parse_server_group(data: Mapping[str, Any]) -> model.ServerGroup | None:
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
        raise record.make_error(f'its policy {named!r} is unknown') from None
    rules = record.read_part('rules')
    limit = rules.read_amount('max_server_per_host',
                              1) if rules.has_key('max_server_per_host') else 1
    return model.ServerGroup(
        uuid=record.read_identity('id'), policy=policy,
        members=frozenset(record.read_texts('members')),
        max_server_per_host=limit, name=record.optional_text('name') or '')


def is_deleted(data: Mapping[str, Any]) -> bool:
    """Return whether a server of /servers is deleted, as far as its status can be read."""
    status = data.get('status')
    return isinstance(status, str) and status in DELETED


def parse_instance(data: Mapping[str, Any],
                   disruption: server_constraints.DisruptionSettings = server_constraints.NOWHERE,
                   shared: server_constraints.SharedMappings | None = None) -> model.Instance:
    """Read a server of /servers; ``host`` is empty when it is on none.

    ``disk_gb`` is the flavor's disk on the host, as Nova computes DISK_GB for an instance that is
    not booted from a volume. ``local_disk_gb`` leaves out the root disk of an instance booted from
    a volume, and counts a config drive, and a root disk as large as its image, as 1.
    """
    record = records.JsonRecord('Nova', 'server', data)
    uuid, status = record.read_identity('id'), record.read_text('status')
    if status == model.UNKNOWN:
        raise record.make_error('its cell does not answer Nova')
    if not record.has_key(HOST):
        raise record.make_error(
            f'its host is not shown; the user of [nova] needs a role that policy '
            f'{POLICY}os-extended-server-attributes allows')
    flavor = record.read_part('flavor')
    pinned = 'pinned_availability_zone'
    shared = shared or server_constraints.SharedMappings()
    own = shared.share_mappings(
        server_constraints.read_constraints(record, disruption, shared.statements))
    swap_gb = -(-flavor.read_amount('swap') // 1024)
    return model.Instance(
        uuid=uuid, status=status,
        host=record.optional_text(HOST) or '',
        name=record.optional_text('name') or '',
        internal_name=record.optional_text(_INTERNAL_NAME) or '',
        vcpus=flavor.read_amount('vcpus'), memory_mb=flavor.read_amount('ram'),
        disk_gb=flavor.read_amount('disk') + flavor.read_amount('ephemeral') + swap_gb,
        local_disk_gb=(_root_gb(record, flavor) + flavor.read_amount('ephemeral') + swap_gb
                       + int(record.optional_text('config_drive') is not None)),
        task_state=record.optional_text('OS-EXT-STS:task_state'),
        locked=record.read_flag('locked'),
        pinned_zone=record.optional_text(pinned) if record.has_key(pinned) else None,
        project_id=record.optional_text('tenant_id') or '',
        launched_at=_parse_launch_time(data.get('OS-SRV-USG:launched_at')), **own)


def parse_server(data: Mapping[str, Any],
                 disruption: server_constraints.DisruptionSettings) -> Server:
    """Read a server that was read alone: lists do not show the groups."""
    instance = parse_instance(data, disruption)
    return Server(instance, records.JsonRecord('Nova', 'server', data).read_texts('server_groups'),
                  parse_addresses(data.get('addresses')))


def parse_listed_server(data: Mapping[str, Any],
                        disruption: server_constraints.DisruptionSettings) -> Server:
    """Read a server of a list, without its groups."""
    return Server(parse_instance(data, disruption), (), parse_addresses(data.get('addresses')))


def parse_addresses(data: Any) -> tuple[str, ...]:
    """Return all addresses that Nova shows; it omits those of ports that it cannot read."""
    if not isinstance(data, dict):
        return ()
    addresses = (entry.get('addr') for entries in data.values() if isinstance(entries, list)
                 for entry in entries if isinstance(entry, dict))
    return tuple(dict.fromkeys(addr for addr in addresses if isinstance(addr, str)))


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
        return max(1, flavor.read_amount('disk'))
    return 0


def parse_migration(data: Mapping[str, Any]) -> Migration:
    """Read a migration.

    :raises ApiError: also when policy hides the hosts.
    """
    record = records.JsonRecord('Nova', 'migration', data)
    migration = Migration(
        id=record.read_amount('id'), uuid=record.read_identity('uuid'),
        instance_uuid=record.read_identity('instance_uuid'),
        type=record.read_text('migration_type'),
        status=record.read_text('status'), from_host=record.optional_text('source_compute'),
        to_host=record.optional_text('dest_compute'),
        updated_at=record.optional_time('updated_at') or record.optional_time('created_at')
        or 0.0)
    if migration.from_host is None and not migration.has_ended:
        raise record.make_error(
            f'its source is not shown; the user of [nova] needs a role that policy '
            f'{POLICY}os-migrations:index:host allows')
    return migration
