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


"""Reader of snapshots, ours or Kronos 0.2.0's, into the model.

A snapshot of 0.2.0 knows its hosts by its aggregates only and has no Placement, migrations or
locks.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import os
from typing import Any, TypeVar

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.model import contracts as agreements
from kronos_nova.model import movement_hours
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.sources import snapshot
from kronos_nova.sources import snapshot_files as files

T = TypeVar('T')


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedSnapshot:
    """The content of a snapshot, except the answers of its score source.

    ``scopes`` are those that were planned when it was recorded. ``recorded_at`` in epoch seconds.
    ``traits_known``: the hosts' CPU traits were recorded. ``warnings`` name the parts that could
    not be read then.
    """

    cluster: model.Cluster
    histories: Mapping[str, model.MoveHistory]
    policy_names: tuple[str, ...]
    scopes: tuple[str, ...]
    recorded_at: float
    traits_known: bool
    warnings: tuple[str, ...] = ()

    def build_history(self, scope: str, *, cooldown: float,
                      instance_cooldown: float) -> model.MoveHistory:
        """Return a scope's past; cooldowns last no longer than configured (seconds)."""
        history = self.histories.get(scope, self.histories[''])
        return dataclasses.replace(
            history, scope_cooling=min(history.scope_cooling, cooldown),
            cooling={u: min(s, instance_cooldown) for u, s in history.cooling.items()})


def read_snapshot(directory: str) -> RecordedSnapshot:
    """Read the snapshot in a directory.

    :raises SnapshotError: it is incomplete, or one of its files is wrong.
    """
    return _SnapshotReader(directory).read_snapshot()


class _SnapshotReader:
    """A reader of one directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def read_snapshot(self) -> RecordedSnapshot:
        meta, recorded_at = snapshot.read_meta(self._directory)
        instances = self._read_instances()
        recorded = self._read_services()
        services = {s.host: s for s in recorded or ()}
        placement_known = files.has_file(self._directory, schema.PROVIDERS)
        if placement_known:
            instances = self._with_claims(instances)
        aggregates, hosts = self._read_hosts(instances, services)
        histories, warnings = self._read_histories()
        if recorded is None:
            services = {name: model.Service(name) for name in hosts}
            warnings += ('nova/services.json is missing: all hosts are taken as up and enabled, '
                         'in no zone',)
        return RecordedSnapshot(
            cluster=model.Cluster(
                hosts=hosts, instances=instances, services=services, groups=self._read_groups(),
                flights=self._read_flights(), aggregates=aggregates,
                aggregate_metadata=self._parse_optional(
                    schema.AGGREGATE_METADATA, dict[schema.Name, schema.Texts], {}),
                placement_known=placement_known, taken_at=recorded_at,
                sharing=self._read_sharing_providers(hosts)),
            histories=histories, policy_names=tuple(meta.policy_names),
            scopes=tuple(dict.fromkeys(meta.aggregates)), recorded_at=recorded_at,
            traits_known=files.has_file(self._directory, schema.TRAITS), warnings=warnings)

    def _parse_files(self, path: str, kind: Any) -> Any:
        return files.parse_file(self._directory, path, kind)

    def _parse_optional(self, path: str, kind: Any, default: T) -> Any | T:
        """Read a file that 0.2.0 does not write, or return the default.

        The list in meta.json shows when one of our files has been lost.
        """
        return self._parse_files(path, kind) if files.has_file(self._directory, path) else default

    def _make_error(self, path: str, problem: str) -> exception.SnapshotError:
        return files.make_error(os.path.join(self._directory, path), problem)

    def _refuse_duplicates(self, path: str, kind: str, names: Iterable[str]) -> None:
        earlier: set[str] = set()
        for name in names:
            if name in earlier:
                raise self._make_error(path,
                                       f'{kind} {files.clean_text(name, 80)} stands there twice')
            earlier.add(name)

    def _read_instances(self) -> dict[str, model.Instance]:
        by_host = self._parse_files(schema.INSTANCES, schema.Instances)
        out = {}
        for host, records in by_host.items():
            for record in records:
                if record.host not in (None, host):
                    raise self._make_error(schema.INSTANCES,
                                           f'[{files.clean_text(host, 64)}]: instance '
                                                      f'{record.uuid} is on another host')
                out[record.uuid] = _build_instance(record, host)
        self._refuse_duplicates(schema.INSTANCES, 'instance',
                                (r.uuid for rs in by_host.values() for r in rs))
        return out

    def _read_services(self) -> list[model.Service] | None:
        """Return the nova-compute services; None: early releases of Kronos recorded none."""
        service_records = self._parse_optional(schema.SERVICES, list[schema.ServiceRecord], None)
        if service_records is None:
            return None
        records = [r for r in service_records
                   if r.binary == 'nova-compute']
        self._refuse_duplicates(schema.SERVICES, 'the nova-compute of host',
                                (r.host for r in records))
        return [model.Service(**{**r.model_dump(), 'zone': r.zone or ''}) for r in records]

    def _read_groups(self) -> tuple[model.ServerGroup, ...]:
        records = self._parse_files(schema.GROUPS, list[schema.GroupRecord])
        self._refuse_duplicates(schema.GROUPS, 'server group', (r.id for r in records))
        return tuple(group for r in records if (group := self._build_group(r)) is not None)

    def _build_group(self, record: schema.GroupRecord) -> model.ServerGroup | None:
        named = dict.fromkeys([*([record.policy] if record.policy else []), *record.policies])
        where = f'server group {files.clean_text(record.id, 64)}'
        has_policy_field = not record.model_fields_set.isdisjoint({'policy', 'policies'})
        if list(named) == ['legacy'] or (has_policy_field and not named):
            return None  # it binds no instance, see nova_records.parse_server_group
        if len(named) != 1:
            count = plurals.count_noun(len(named), 'policy', 'policies')
            raise self._make_error(schema.GROUPS, f'{where} has {count}, not one')
        limit = (record.rules or {}).get('max_server_per_host', 1)
        if (isinstance(limit, bool) or not isinstance(limit, int)
                or not 1 <= limit < 2**63):
            raise self._make_error(schema.GROUPS,
                                   f'{where}: max_server_per_host is not a number above 0')
        try:
            policy = model.GroupPolicy(next(iter(named)))
        except ValueError:
            raise self._make_error(schema.GROUPS,
                                   f'{where}: its policy is unknown to Nova') from None
        return model.ServerGroup(uuid=record.id, policy=policy, name=record.name,
                                 members=frozenset(record.members), max_server_per_host=limit)

    def _read_flights(self) -> tuple[model.InFlightMove, ...]:
        return tuple(
            model.InFlightMove(r.instance_uuid, r.from_host, r.to_host, r.source,
                               tuple(r.alternates),
                               r.scope, r.slotless)
            for r in self._parse_optional(schema.MIGRATIONS, list[schema.MigrationRecord], []))

    def _with_claims(self, instances: dict[str, model.Instance]) -> dict[str, model.Instance]:
        """Return instances with their allocations, or the flavor's where none were recorded."""
        claims_by_uuid = self._parse_optional(
            schema.ALLOCATIONS, dict[schema.Name, schema.Amounts], None)
        if claims_by_uuid is None:
            return {u: dataclasses.replace(i, claims=_build_flavor_claims(i)) for u,
                    i in instances.items()}
        placed: Mapping[str, Any] = self._parse_optional(schema.BY_PROVIDER, dict[
            schema.Name, dict[schema.Name, schema.Amounts]], {})
        return {u: dataclasses.replace(i, claims=claims_by_uuid.get(u, {}),
                                       allocations=placed.get(u, {}))
                for u, i in instances.items()}

    def _read_sharing_providers(self, hosts: Mapping[str, model.Host]) -> dict[str, model.Provider]:
        records: list[Any] = self._parse_optional(schema.SHARING, list[schema.ProviderRecord], [])
        self._refuse_duplicates(schema.SHARING, 'resource provider', (r.uuid for r in records))
        sharing_providers = {r.uuid: _build_provider(r) for r in records}
        for host in hosts.values():
            unknown = sorted(host.sharing - sharing_providers.keys())
            if unknown:
                raise self._make_error(schema.PROVIDERS,
                                       f'host {files.clean_text(host.name, 64)}: sharing '
                                       f'provider {files.clean_text(unknown[0], 64)} is not in '
                                       f'{schema.SHARING}')
            known: set[str] = set()
            for provider in host.tree:
                parent = provider.parent_uuid
                if provider.uuid in known or (
                        parent is not None if provider is host.provider else parent not in known):
                    raise self._make_error(
                        schema.PROVIDERS, f'host {files.clean_text(host.name, 64)}: its resource '
                                          'providers are no tree, each once and after its parent')
                known.add(provider.uuid)
        return sharing_providers

    def _read_hosts(self, instances: Mapping[str, model.Instance],
                    services: Mapping[str, model.Service],
                    ) -> tuple[dict[str, tuple[str, ...]], dict[str, model.Host]]:
        """Read aggregates and hosts.

        A host that is in no aggregate and not in the pool gets an aggregate with the pool's name,
        which no engine can plan: so it stays out of the pool.
        """
        listed = {name: tuple(hosts) for name, hosts in self._parse_files(
            schema.AGGREGATES, schema.Aggregates).items()}
        nodes = self._parse_optional(schema.NODES, list[schema.NodeRecord], None)
        pool = listed.pop(model.UNASSIGNED, ())
        if nodes is None:
            known = {*pool, *(h for hosts in listed.values() for h in hosts),
                     *(i.host for i in instances.values())}
            nodes = [schema.NodeRecord(host=h, hypervisor_hostname=h,
                                       zone=services[h].zone if h in services else '')
                     for h in sorted(known)]
        self._refuse_duplicates(schema.NODES, 'host', (n.host for n in nodes))
        aggregate_hosts = {h for hosts in listed.values() for h in hosts}
        unassigned = tuple(n.host for n in nodes
                           if n.host not in aggregate_hosts and n.host not in pool)
        if unassigned:
            listed[model.UNASSIGNED] = unassigned
        providers: Mapping[str, Any] = self._parse_optional(
            schema.PROVIDERS, dict[schema.Name, schema.RootProviderRecord | None], {})
        traits: Mapping[str, Any] = self._parse_optional(
            schema.TRAITS, dict[schema.Name, list[schema.Name]], {})
        return listed, {n.host: _build_host(n, providers.get(n.host), traits.get(n.host, ()))
                        for n in nodes}

    def _read_histories(self) -> tuple[dict[str, model.MoveHistory], tuple[str, ...]]:
        """Read the histories by scope; '' is for a scope without records."""
        path = schema.COOLDOWNS
        if not files.has_file(self._directory, path):
            return {'': model.MoveHistory()}, ()
        data = files.load_document(self._directory, path)
        whole = os.path.join(self._directory, path)
        if isinstance(data, dict) and data.get('unknown') is True:
            unreadable = files.check_type(whole, files.UnreadableFile, data)
            return {'': model.MoveHistory()}, (
                'cooldowns and quarantine are not known and taken as none '
                f'({files.clean_text(unreadable.error)})',)
        cooldowns: schema.CooldownsRecord = files.check_type(whole, schema.CooldownsRecord, data)
        # Kronos 0.2.0 has its own name for the pool here, and here alone.
        scope_cooling = {model.UNASSIGNED if scope == '<unassigned>' else scope: seconds
                         for scope, seconds in cooldowns.aggregate_cooldowns.items()}
        quiet = cooldowns.quiet_hours
        common = model.MoveHistory(
            cooling=cooldowns.instance_cooldowns, quarantined=cooldowns.instance_quarantines,
            quarantined_hosts=frozenset(cooldowns.host_quarantines),
            local_disk_hosts=frozenset(cooldowns.local_disk_hosts),
            other_cells=frozenset((min(pair), max(pair)) for pair in cooldowns.other_cells),
            refused={uuid: frozenset(hosts) for uuid, hosts in cooldowns.placement_refused.items()},
            refused_everywhere=frozenset(cooldowns.placement_refused_everywhere),
            late_drains=dict(cooldowns.late_drains),
            awaited_write_rates=dict(quiet.awaited_write_rates),
            last_write_rates=dict(quiet.last_write_rates),
            drain_begins=dict(quiet.drain_begins), window_ends=dict(quiet.window_ends),
            freezes=tuple((begin, end) for begin, end in quiet.freezes),
            drain_deadlines={host: model.DrainDeadline(**deadline.model_dump())
                             for host, deadline in quiet.drain_deadlines.items()},
            hourly_write_rates={uuid: tuple((at, rate) for at, rate in hours)
                                for uuid, hours in quiet.hourly_write_rates.items()},
            completed=tuple((model.Move(c.instance_uuid, c.from_host, c.to_host,
                                        model.Phase(c.phase)), c.completed_at)
                            for c in sorted(cooldowns.completed, key=lambda c: c.completed_at)),
            measured=tuple(model.MeasuredAttempt(**m.model_dump()) for m in cooldowns.measured),
            move_times={uuid: tuple(sorted(at)) for uuid, at in cooldowns.move_times.items()},
            notices={record.instance_uuid: model.MoveNotice(**record.model_dump() | {
                'reason': model.NoticeReason(record.reason)}) for record in cooldowns.notices})
        scopes = {'', *scope_cooling, *cooldowns.draining, *cooldowns.paused,
                  *cooldowns.waiting, *cooldowns.campaign_hosts}
        return {scope: dataclasses.replace(
            common, scope_cooling=scope_cooling.get(scope, 0.0),
            draining=frozenset(cooldowns.draining.get(scope, ())),
            campaign_hosts=frozenset(cooldowns.campaign_hosts.get(scope, ())),
            paused=files.clean_text(cooldowns.paused[scope]) if scope in cooldowns.paused else None,
            waiting=files.clean_text(cooldowns.waiting[scope])
            if scope in cooldowns.waiting else None)
            for scope in sorted(scopes)}, ()


def _build_instance(record: schema.InstanceRecord, host: str) -> model.Instance:
    return model.Instance(
        uuid=record.uuid, host=host, name=record.name, internal_name=record.internal_name,
        vcpus=record.flavor_vcpus, memory_mb=record.flavor_ram_mb, disk_gb=record.flavor_disk_gb,
        status=record.status, task_state=record.task_state, locked=record.locked,
        pinned=record.pinned, pinned_zone=record.pinned_zone, project_id=record.project_id,
        local_disk_gb=record.local_disk_gb, launched_at=record.launched_at,
        extra_specs=record.extra_specs, image_properties=record.image_properties,
        scheduler_hints={name: tuple(u) for name, u in record.scheduler_hints.items()},
        power_state=record.power_state, opted_out=record.opted_out,
        contracts=tuple(map(_build_contract, record.contracts)),
        spread=tuple(request for text in record.spread for request in _read_spread(text)))


def _read_spread(text: str) -> tuple[spread_requests.SpreadRequest, ...]:
    """Return the request that a text holds; one that cannot be read stays unreadable."""
    try:
        return spread_requests.parse_spread(text)
    except ValueError:
        return (spread_requests.UNREADABLE,)


def _build_contract(record: schema.ContractRecord) -> model.Contract:
    """Return a contract; a value that this release cannot read counts as unreadable."""
    unreadable: set[str] = set(record.unreadable)
    hours = quota = notify = None
    try:
        hours = None if record.hours is None else movement_hours.parse_hours(record.hours)
    except ValueError:
        unreadable.add(agreements.HOURS)
    try:
        quota = None if record.max_moves is None else agreements.parse_quota(record.max_moves)
    except ValueError:
        unreadable.add(agreements.MAX_MOVES)
    try:
        notify = None if record.notify is None else agreements.parse_notice(record.notify)
    except ValueError:
        unreadable.add(agreements.NOTIFY)
    return model.Contract(
        model.ContractSource(record.source),
        None if record.disruption is None else model.Disruption(record.disruption), hours, quota,
        tuple(sorted(unreadable)), notify, record.release, record.ineffective)


def _build_flavor_claims(instance: model.Instance) -> dict[str, int]:
    claims = {'VCPU': instance.vcpus, 'MEMORY_MB': instance.memory_mb,
              'DISK_GB': instance.disk_gb}
    return {name: amount for name, amount in claims.items() if amount}


def _build_host(node: schema.NodeRecord, root: schema.RootProviderRecord | None,
                traits: Iterable[str]) -> model.Host:
    return model.Host(
        name=node.host, hypervisor_hostname=node.hypervisor_hostname, uuid=node.uuid,
        hypervisor_type=node.hypervisor_type, zone=node.zone, cell=node.cell,
        provider=None if root is None else _build_provider(root), traits=frozenset(traits),
        hypervisor_version=node.hypervisor_version,
        nested=() if root is None else tuple(map(_build_provider, root.nested)),
        sharing=frozenset(() if root is None else root.sharing))


def _build_provider(record: schema.ProviderRecord) -> model.Provider:
    return model.Provider(
        uuid=record.uuid, generation=record.generation, used=record.used,
        inventories={name: model.Inventory(**i.model_dump())
                     for name, i in record.inventories.items()},
        name=record.name, parent_uuid=record.parent_uuid, traits=frozenset(record.traits),
        aggregates=frozenset(record.aggregates))
