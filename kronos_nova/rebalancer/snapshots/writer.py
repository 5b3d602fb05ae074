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


"""Writer of the engine's view into a directory: Kronos 0.2.0's layout and ours.

The directory appears complete or not at all, readable by its owner alone. A part that could not be
read is written as unknown, never as empty.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
import json
import math
import os
import shutil
import tempfile
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer.snapshots import quiet_hours_record
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.sources import snapshot
from kronos_nova.sources import snapshot_files as files

#: What the directory's name begins with, as in Kronos 0.2.0; for
#: kronos-record too.
SIGNALLED = 'kronos-engine-snapshot'


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotContent:
    """The content of a snapshot to be written.

    ``cluster`` with the flights of our own tasks; a text is the reason why it is not known.
    ``histories`` by scope; a text is the reason why they are not known.
    """

    now: float
    scopes: Sequence[str]
    policies: policies.PolicySet
    samples: Mapping[str, model.PolicySamples]
    cluster: model.Cluster | str
    histories: Mapping[str, model.MoveHistory] | str


def write_snapshot(parent: str, recording: SnapshotContent, prefix: str = SIGNALLED) -> str:
    """Write ``<parent>/<prefix>-<UTC time>`` and return its path.

    :raises SnapshotError: it could not be written; nothing is left behind.
    """
    return publish_directory(parent, build_documents(recording),
                             f'{prefix}-{_format_timestamp(recording.now)}')


def publish_directory(parent: str, contents: Mapping[str, Any], name: str,
                      policies_file: str | None = None) -> str:
    """Write ``<parent>/<name>`` and return its path.

    :param contents: JSON documents by path.
    :param policies_file: the text of a policies.yaml to go with them.
    :raises SnapshotError: it could not be written; nothing is left behind.
    """
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        with _make_work_directory(parent) as work:
            _write_documents(work, contents)
            if policies_file is not None:
                _write(os.path.join(work, 'policies.yaml'), policies_file)
            return _move_into_place(work, parent, name)
    except OSError as e:
        raise exception.SnapshotError(
            path=parent, problem=f'no snapshot can be written ({os.strerror(e.errno or 0)})',
            remedy='Name a directory that the user of this process may write to, with room '
                   'for it.') from None


def build_documents(recording: SnapshotContent) -> dict[str, Any]:
    """Return every file's content by its path in the snapshot."""
    out = _build_prometheus_files(recording)
    if isinstance(recording.cluster, str):
        unknown = files.make_placeholder(recording.cluster)
        out |= dict.fromkeys(
            (schema.NODES, schema.AGGREGATES, schema.AGGREGATE_METADATA, schema.INSTANCES,
             schema.GROUPS, schema.SERVICES, schema.MIGRATIONS, schema.PROVIDERS,
             schema.ALLOCATIONS), unknown)
    else:
        out |= _build_nova_files(recording.cluster) | _build_placement_files(recording.cluster)
    out[schema.COOLDOWNS] = (
        files.make_placeholder(recording.histories) if isinstance(recording.histories, str)
        else _build_cooldowns(recording.histories, recording.cluster))
    out['meta.json'] = {
        'recorded_at': datetime.datetime.fromtimestamp(recording.now, datetime.UTC).isoformat(),
        'policy_names': [p.name for p in recording.policies.enabled_policies],
        'aggregates': list(recording.scopes), 'files': sorted(out)}
    return out


def _build_prometheus_files(recording: SnapshotContent) -> dict[str, Any]:
    out = {}
    for policy in recording.policies.enabled_policies:
        samples = recording.samples[policy.name]
        results = {
            'imbalance_query': (samples.imbalance, policy.host_label),
            'vm_profile_query': (samples.profile, policy.vm_profile_label),
            'capacity_query': (samples.capacity, policy.host_label),
            'host_capacity_query': (samples.host_capacity, policy.host_label),
            'vm_mean_query': (samples.mean, policy.vm_profile_label),
            'vm_deviation_query': (samples.deviation, policy.vm_profile_label),
            'vm_dirty_rate_query': (samples.dirty_rate, policy.vm_profile_label)}
        if policy.age_query is not None:
            # The source has applied the ages: hosts that were stale are not
            # in the answer any more, and one age is left.
            results['age_query'] = (model.QueryResult(
                policy.age_query, model.SourceHealth.HEALTHY if samples.age is not None
                else model.SourceHealth.UNREACHABLE), policy.host_label)
        for field, (result, label) in results.items():
            if result is not None:
                name = f'prometheus/{snapshot.PREFIXES[field]}_{policy.name}.json'
                out[name] = _build_answer(result, label, samples.taken_at)
        if policy.age_query is not None:
            out[f'prometheus/age_{policy.name}.json']['age'] = samples.age
    return out


def _build_answer(result: model.QueryResult, label: str, taken_at: float) -> dict[str, Any]:
    # Finite is what a source promises; JSON has no other numbers.
    series = {k: v for k, v in result.series.items() if math.isfinite(v)}
    warnings = [*result.warnings, *(f'{k}: {v} is left out' for k, v in result.series.items()
                                    if k not in series)]
    document = {
        'query': result.query, 'health': result.health.lower(), 'series': series,
        'missing_labels': list(result.missing_labels), 'warnings': warnings,
        'label': label, 'duplicates': list(result.duplicates), 'taken_at': taken_at}
    if result.error is not None:
        document |= files.make_placeholder(result.error)
    return document


def _build_nova_files(cluster: model.Cluster) -> dict[str, Any]:
    pool = list(dataclasses.replace(cluster, planned_zone=None).list_hosts_of(model.UNASSIGNED))
    groups_of: dict[str, list[str]] = {}
    for group in cluster.groups:
        for uuid in group.members:
            groups_of.setdefault(uuid, []).append(group.uuid)
    instances: dict[str, list[Any]] = {host: [] for host in sorted(cluster.hosts)}
    for instance in cluster.instances.values():
        instances.setdefault(instance.host, []).append(
            _build_instance(instance, groups_of.get(instance.uuid, [])))
    return {
        schema.NODES: [{
            'host': h.name, 'hypervisor_hostname': h.hypervisor_hostname, 'uuid': h.uuid,
            'hypervisor_type': h.hypervisor_type, 'zone': h.zone, 'cell': h.cell,
            'hypervisor_version': h.hypervisor_version}
            for h in cluster.hosts.values()],
        schema.AGGREGATES: {name: list(hosts) for name, hosts in cluster.aggregates.items()}
        | {model.UNASSIGNED: pool},
        schema.AGGREGATE_METADATA: {
            name: dict(metadata) for name, metadata in cluster.aggregate_metadata.items()},
        schema.INSTANCES: instances,
        schema.GROUPS: [{
            'id': g.uuid, 'name': g.name, 'policy': str(g.policy), 'policies': [str(g.policy)],
            'members': sorted(g.members), 'rules': _build_group_rules(g)} for g in cluster.groups],
        schema.SERVICES: [{name: value for name, value in dataclasses.asdict(service).items()
                           if name != 'reported_at'} for service in cluster.services.values()],
        schema.MIGRATIONS: [dataclasses.asdict(f) for f in cluster.flights]}


def _build_instance(instance: model.Instance, groups: list[str]) -> dict[str, Any]:
    return {
        'uuid': instance.uuid, 'name': instance.name, 'internal_name': instance.internal_name,
        'host': instance.host, 'flavor_vcpus': instance.vcpus,
        'flavor_ram_mb': instance.memory_mb, 'flavor_disk_gb': instance.disk_gb,
        'status': instance.status, 'server_groups': sorted(groups),
        'task_state': instance.task_state, 'locked': instance.locked,
        'pinned': instance.pinned, 'pinned_zone': instance.pinned_zone,
        'project_id': instance.project_id, 'local_disk_gb': instance.local_disk_gb,
        'launched_at': instance.launched_at,
        'extra_specs': _copy_texts(instance.extra_specs),
        'image_properties': _copy_texts(instance.image_properties),
        'scheduler_hints': {name: list(u) for name, u in instance.scheduler_hints.items()},
        'power_state': instance.power_state, 'opted_out': instance.opted_out,
        # Most instances have none; a release before reads the file then as it was.
        **({'contracts': [_build_contract(stated) for stated in instance.contracts]}
           if instance.contracts else {}),
        **({'spread': list(map(str, instance.spread))} if instance.spread else {})}


def _build_contract(stated: model.Contract) -> dict[str, Any]:
    return {'source': str(stated.source),
            'disruption': None if stated.disruption is None else str(stated.disruption),
            'hours': None if stated.hours is None else str(stated.hours),
            'max_moves': None if stated.max_moves is None else str(stated.max_moves),
            'notify': None if stated.notify is None else str(stated.notify),
            'release': stated.release, 'ineffective': stated.ineffective,
            'unreadable': list(stated.unreadable)}


def _copy_texts(texts: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if texts is None else dict(texts)


def _build_group_rules(group: model.ServerGroup) -> dict[str, int]:
    if group.max_server_per_host == 1:
        return {}
    return {'max_server_per_host': group.max_server_per_host}


def _build_placement_files(cluster: model.Cluster) -> dict[str, Any]:
    """Return Placement's files; none for a cluster whose Placement was not read.

    Traits are written only where some were read: the collector reads them for
    require_cpu_compatibility. Sharing providers, and the allocations by provider, are written only
    where known.
    """
    if not cluster.placement_known:
        return {}
    out: dict[str, Any] = {
        schema.PROVIDERS: {h.name: _build_root_provider(h) for h in cluster.hosts.values()},
        schema.ALLOCATIONS: {i.uuid: dict(i.claims) for i in cluster.instances.values()}}
    if any(h.traits for h in cluster.hosts.values()):
        out[schema.TRAITS] = {h.name: sorted(h.traits) for h in cluster.hosts.values()}
    if cluster.sharing:
        out[schema.SHARING] = [_build_provider(p) for _, p in sorted(cluster.sharing.items())]
    by_provider = {i.uuid: {p: dict(resources) for p, resources in i.allocations.items()}
                   for i in cluster.instances.values() if i.allocations}
    if by_provider:
        out[schema.BY_PROVIDER] = by_provider
    return out


def _build_root_provider(host: model.Host) -> dict[str, Any] | None:
    if host.provider is None:
        return None
    record = _build_provider(host.provider)
    if host.nested:
        record['nested'] = [_build_provider(p) for p in host.nested]
    if host.sharing:
        record['sharing'] = sorted(host.sharing)
    return record


def _build_provider(provider: model.Provider) -> dict[str, Any]:
    """Return a provider's record; optional fields that are unknown or empty are left out."""
    record = {'uuid': provider.uuid, 'generation': provider.generation,
              'inventories': {c: dataclasses.asdict(i) for c, i in provider.inventories.items()},
              'used': dict(provider.used)}
    optional = {'name': provider.name, 'parent_uuid': provider.parent_uuid,
                'traits': sorted(provider.traits), 'aggregates': sorted(provider.aggregates)}
    return record | {name: value for name, value in optional.items() if value}


def _build_cooldowns(histories: Mapping[str, model.MoveHistory],
                     cluster: model.Cluster | str) -> dict[str, Any]:
    """Return the file of cooldowns.

    By scope: aggregate_cooldowns, paused, waiting, draining, campaign_hosts. The others are
    cloud-wide.
    """
    cooling: dict[str, float] = {}
    quarantined: dict[str, float] = {}
    hosts: set[str] = set()
    local: set[str] = set()
    apart: set[tuple[str, str]] = set()
    refused: dict[str, frozenset[str]] = {}
    everywhere: set[str] = set()
    late: dict[str, str] = {}
    completed: dict[tuple[str, float], Any] = {}
    measured: tuple[model.MeasuredAttempt, ...] = ()
    moved: dict[str, tuple[float, ...]] = {}
    noticed: dict[str, model.MoveNotice] = {}
    to_come = {scope: sorted(history.campaign_hosts) for scope, history in histories.items()
               if history.campaign_hosts}
    for history in histories.values():
        cooling |= history.cooling
        quarantined |= history.quarantined
        hosts |= history.quarantined_hosts
        local |= history.local_disk_hosts
        apart |= history.other_cells
        refused |= history.refused
        everywhere |= history.refused_everywhere
        late |= history.late_drains
        measured = measured or history.measured
        moved |= history.move_times
        noticed |= history.notices
        completed |= {(m.instance_uuid, at): {
            'instance_uuid': m.instance_uuid, 'from_host': m.from_host, 'to_host': m.to_host,
            'phase': str(m.phase), 'completed_at': at} for m, at in history.completed}
    quiet_hours = quiet_hours_record.build_record(histories, cluster)
    return {
        'aggregate_cooldowns': {s: h.scope_cooling for s, h in histories.items()
                                if h.scope_cooling > 0},
        'instance_cooldowns': cooling, 'instance_quarantines': quarantined,
        'host_quarantines': sorted(hosts), 'local_disk_hosts': sorted(local),
        'placement_refused': {uuid: sorted(host_names) for uuid, host_names in refused.items()},
        'placement_refused_everywhere': sorted(everywhere),
        'paused': {s: h.paused for s, h in histories.items() if h.paused is not None},
        'waiting': {s: h.waiting for s, h in histories.items() if h.waiting is not None},
        'draining': {s: sorted(h.draining) for s, h in histories.items() if h.draining},
        'completed': sorted(completed.values(),
                            key=lambda c: (c['completed_at'], c['instance_uuid'])),
        # Where there are none, readers that do not know them read the file.
        **({'other_cells': [list(pair) for pair in sorted(apart)]} if apart else {}),
        **({'measured': [dataclasses.asdict(m) for m in measured]} if measured else {}),
        **({'move_times': {uuid: list(at) for uuid, at in sorted(moved.items())}}
           if moved else {}),
        **({'notices': [_build_notice(notice) for _uuid, notice in sorted(noticed.items())]}
           if noticed else {}),
        **({'campaign_hosts': to_come} if to_come else {}),
        **({'late_drains': dict(sorted(late.items()))} if late else {}),
        **({'quiet_hours': quiet_hours} if quiet_hours else {})}


def _build_notice(notice: model.MoveNotice) -> dict[str, Any]:
    record = dataclasses.asdict(notice)
    del record['used_at']  # a history has none that is used up
    if not notice.may_shut_down:  # readers that do not know the field read the file
        del record['may_shut_down']
    return record | {'reason': notice.reason.value}


# Files.

@contextlib.contextmanager
def _make_work_directory(parent: str) -> Iterator[str]:
    work = tempfile.mkdtemp(prefix='.kronos-snapshot-', dir=parent)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_documents(work: str, contents: Mapping[str, Any]) -> None:
    for folder in ('nova', 'placement', 'prometheus'):
        os.mkdir(os.path.join(work, folder), mode=0o700)
    for name, data in contents.items():
        # In the order in which it was read: objective = kronos breaks ties by that.
        _write(os.path.join(work, name), json.dumps(data, indent=1, allow_nan=False) + '\n')


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, 'w', encoding='utf-8') as f:
        f.write(text)
        f.flush()
        os.fsync(descriptor)


def _move_into_place(work: str, parent: str, name: str) -> str:
    """Rename the directory into place; a second snapshot of the same second gets a number."""
    for number in range(1, 100):
        target = os.path.join(parent, name if number == 1 else f'{name}-{number}')
        if os.path.lexists(target):
            continue
        os.rename(work, target)
        return target
    raise exception.SnapshotError(
        path=os.path.join(parent, name), problem='it is there already, many times over',
        remedy='Wait a second.')


def _format_timestamp(now: float) -> str:
    return datetime.datetime.fromtimestamp(now, datetime.UTC).strftime('%Y%m%dT%H%M%SZ')
