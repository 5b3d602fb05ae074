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


"""Anonymised snapshots, to be given away: same numbers, same structure, no names.

Only fields with a rule below are copied. Free texts (reasons, errors, warnings) are not renamed
but replaced: they may contain anything.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import math
import os
import re
from typing import Any

from kronos_nova import exception
from kronos_nova import labels
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.model import contracts as agreements
from kronos_nova.model import movement_hours
from kronos_nova.rebalancer.snapshots import names as naming
from kronos_nova.rebalancer.snapshots import pins
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.sources import snapshot
from kronos_nova.sources import snapshot_files as files

REMOVED = 'removed by anonymisation'

#: What an instance's ``pinned`` may begin with, and libvirt's disabled_reason.
_CODE = re.compile(r'(?:host-not-planned|no-provider|no-allocations|nested-allocations|'
                   r'other-allocations|providers-changing|group-unreadable|AUTO): ?')
_BY_INSTANCE = frozenset({'vm_profile', 'vm_mean', 'vm_deviation', 'vm_dirty_rate'})

Rule = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class AnonymisedSnapshot:
    """An anonymised snapshot: ``documents`` by path. ``ordered``: identifiers sort as they did."""

    documents: Mapping[str, Any]
    policies: Mapping[str, Any] | None
    ordered: bool


def anonymise_snapshot(directory: str, salt: bytes, *, keep_order: bool = False,
                       policy_set: policies.PolicySet | None = None) -> AnonymisedSnapshot:
    """Return the snapshot in a directory, anonymised.

    :raises SnapshotError: it is no snapshot, or one of its files is wrong.
    """
    recorded = reader.read_snapshot(directory)  # refuses incomplete snapshots
    cluster = recorded.cluster
    uuids = {*cluster.instances, *(g.uuid for g in cluster.groups),
             *(m for g in cluster.groups for m in g.members),
             *(f.instance_uuid for f in cluster.flights),
             *(m.instance_uuid for h in recorded.histories.values() for m, _at in h.completed),
             *(m.instance_uuid for h in recorded.histories.values() for m in h.measured),
             *(uuid for h in recorded.histories.values() for uuid in (
                 *h.move_times, *h.notices, *h.hourly_write_rates, *h.last_write_rates,
                 *h.awaited_write_rates)),
             *cluster.sharing}
    hosts = {*cluster.hosts, *cluster.services, *(i.host for i in cluster.instances.values())}
    names = (naming.AnonymousNames(salt, uuids, hosts) if keep_order
             else naming.AnonymousNames(salt))
    work = _SnapshotAnonymiser(directory, names, cluster, policy_set)
    documents = work.render_documents()
    ordered = all(
        sorted(identifiers) == sorted(identifiers, key=rename)
        for identifiers, rename in ((uuids, names.rename_identifier), (hosts, names.rename_host)))
    return AnonymisedSnapshot(documents, work.render_policies(), ordered)


class _SnapshotAnonymiser:
    """The rules, for one snapshot."""

    def __init__(self, directory: str, names: naming.AnonymousNames, cluster: model.Cluster,
                 policy_set: policies.PolicySet | None) -> None:
        self._directory = directory
        self._names = names
        self._policies = policy_set
        ident, host, scope = names.rename_identifier, names.rename_host, names.rename_scope
        pinning = pins.ConstraintAnonymiser(names, cluster.aggregate_metadata.values())
        self._hostnames = {
            p.name: labels.HostNames({h.name: h.hypervisor_hostname
                                      for h in cluster.hosts.values()}, p.host_regex)
            for p in (policy_set.policies if policy_set is not None else ()) if p.host_regex}
        self._completed = _map_fields(
            instance_uuid=ident, from_host=host, to_host=host, phase=_keep_value,
            completed_at=_keep_value)
        self._measured = _map_fields(
            instance_uuid=ident, memory_mb=_keep_value, disk_gb=_keep_value, running=_keep_value,
            other=_keep_value,
            arrived=_keep_value, late=_keep_value)
        self._instance = _map_fields(
            uuid=ident, name=ident, internal_name=ident, host=_map_optional(host),
            flavor_vcpus=_keep_value, flavor_ram_mb=_keep_value, flavor_disk_gb=_keep_value,
            status=_keep_value,
            server_groups=_map_list(ident), task_state=_keep_value, locked=_keep_value,
            pinned=_replace_reason,
            pinned_zone=_map_optional(scope), project_id=ident, local_disk_gb=_keep_value,
            launched_at=_keep_value,
            extra_specs=_map_optional(pinning.rename_extra_specs),
            image_properties=_map_optional(pinning.rename_image_properties),
            scheduler_hints=_map_items(_keep_value, _map_list(ident)), power_state=_keep_value,
            opted_out=_replace_reason, contracts=_map_list(_map_fields(
                source=_keep_value, disruption=_keep_value, hours=_keep_hours,
                max_moves=_keep_quota, notify=_keep_notice, release=_keep_value,
                unreadable=_keep_value, ineffective=_keep_value)),
            spread=_map_list(pinning.rename_domain))
        amounts = _map_items(names.rename_custom_name, _keep_value)
        inventory = _map_fields(total=_keep_value, reserved=_keep_value,
                                allocation_ratio=_keep_value, min_unit=_keep_value,
                                max_unit=_keep_value, step_size=_keep_value)
        provider: dict[str, Rule] = {
            'uuid': ident, 'generation': _keep_value, 'used': amounts,
            'inventories': _map_items(names.rename_custom_name, inventory), 'name': ident,
            'parent_uuid': ident, 'traits': _map_list(names.rename_custom_name),
            'aggregates': _map_list(ident)}
        self._rules: dict[str, Rule] = {
            schema.NODES: _map_list(_map_fields(
                host=host, hypervisor_hostname=host, uuid=ident, hypervisor_type=_keep_value,
                zone=scope, cell=_map_optional(ident), hypervisor_version=_keep_value)),
            schema.AGGREGATES: _map_items(scope, _map_list(host)),
            schema.AGGREGATE_METADATA: _map_items(scope, pinning.rename_metadata),
            schema.INSTANCES: _map_items(host, _map_list(self._instance)),
            schema.GROUPS: _map_list(_map_fields(
                id=ident, name=ident, policy=_keep_value, policies=_keep_value,
                members=_map_list(ident),
                rules=_map_optional(_map_fields(max_server_per_host=_keep_value)))),
            schema.SERVICES: _map_list(_map_fields(
                host=host, binary=_keep_value, state=_keep_value, status=_keep_value,
                zone=_map_optional(scope),
                disabled_reason=_replace_disabled_reason, forced_down=_keep_value)),
            schema.MIGRATIONS: _map_list(_map_fields(
                instance_uuid=ident, from_host=host, to_host=_map_optional(host),
                source=_keep_value,
                alternates=_map_list(host), scope=_map_optional(scope), slotless=_keep_value)),
            schema.PROVIDERS: _map_items(host, _map_optional(_map_fields(
                **provider, nested=_map_list(_map_fields(**provider)), sharing=_map_list(ident)))),
            schema.SHARING: _map_list(_map_fields(**provider)),
            schema.ALLOCATIONS: _map_items(ident, amounts),
            schema.BY_PROVIDER: _map_items(ident, _map_items(ident, amounts)),
            schema.TRAITS: _map_items(host, _map_list(names.rename_custom_name)),
            schema.COOLDOWNS: _map_fields(
                aggregate_cooldowns=_map_items(scope, _keep_value),
                instance_cooldowns=_map_items(ident, _keep_value),
                instance_quarantines=_map_items(ident, _keep_value),
                host_quarantines=_map_list(host),
                local_disk_hosts=_map_list(host), other_cells=_map_list(_map_list(host)),
                placement_refused=_map_items(ident, _map_list(host)),
                placement_refused_everywhere=_map_list(ident), late_drains=_map_items(ident, host),
                draining=_map_items(scope, _map_list(host)),
                campaign_hosts=_map_items(scope, _map_list(host)),
                paused=_map_items(scope, _replace_reason),
                waiting=_map_items(scope, _replace_reason),
                completed=_map_list(self._completed), measured=_map_list(self._measured),
                move_times=_map_items(ident, _keep_value),
                notices=_map_list(_map_fields(
                    instance_uuid=ident, project_id=ident, host=host, reason=_keep_value,
                    noticed_at=_keep_value, movable_from=_keep_value, valid_until=_keep_value,
                    may_shut_down=_keep_value)),
                quiet_hours=_map_fields(
                    hourly_write_rates=_map_items(ident, _keep_value), freezes=_keep_value,
                    awaited_write_rates=_map_items(ident, _keep_value),
                    last_write_rates=_map_items(ident, _keep_value),
                    drain_begins=_map_items(host, _keep_value),
                    window_ends=_map_items(host, _keep_value),
                    drain_deadlines=_map_items(host, _map_fields(
                        at=_keep_value, disabled_reason=_replace_disabled_reason))))}

    def render_documents(self) -> dict[str, Any]:
        """Return every file by its path.

        The queries come last, as they need all words that were renamed.
        """
        out: dict[str, Any] = {}
        for path, rule in self._rules.items():
            if files.has_file(self._directory, path):
                data = files.load_document(self._directory, path)
                out[path] = files.make_placeholder(REMOVED) if _is_unknown(data) else rule(data)
        for name in snapshot.list_answer_files(self._directory):
            prefix, policy = _parse_answer_name(name)
            if prefix is not None:
                out[f'prometheus/{name}'] = self._rename_answer(name, prefix, policy)
        self._names.freeze_words()
        for path, data in out.items():
            if path.startswith('prometheus/'):
                data['query'] = self._names.rename_query(data['query'])
        meta = files.load_document(self._directory, 'meta.json')
        out['meta.json'] = {
            'recorded_at': meta['recorded_at'], 'policy_names': meta.get('policy_names', []),
            'aggregates': [self._names.rename_scope(a) for a in meta.get('aggregates', [])],
            'files': sorted(out)}
        return out

    def render_policies(self) -> dict[str, Any] | None:
        """Return the policy file that fits the answers.

        It has no regular expression for hosts, since their labels have been resolved.
        """
        if self._policies is None:
            return None
        data = self._policies.model_dump(mode='json', exclude_defaults=True,
                                         include={'policies', 'aggregates'})
        for policy in data['policies']:
            policy.pop('host_regex', None)
            if 'host_capacity' in policy:
                policy['host_capacity'] = self._names.rename_custom_name(policy['host_capacity'])
            for field in snapshot.PREFIXES:
                if policy.get(field):
                    policy[field] = self._names.rename_query(policy[field])
        if 'aggregates' in data:
            data['aggregates'] = [self._names.rename_scope(a) for a in data['aggregates']]
        return data

    def _rename_answer(self, name: str, prefix: str, policy: str) -> dict[str, Any]:
        answer = snapshot.read_answer(self._directory, name)
        rename = (self._names.rename_identifier if prefix in _BY_INSTANCE
                  else self._make_label_rename(policy, [*answer.series, *answer.duplicates]))
        finite = {k: v for k, v in answer.series.items() if math.isfinite(v)}
        out: dict[str, Any] = {
            'query': answer.query, 'health': answer.health,
            'series': {rename(k): v for k, v in finite.items()},
            'missing_labels': [REMOVED] * len(answer.missing_labels),
            'warnings': [REMOVED] * (len(answer.warnings) + len(answer.series) - len(finite)),
            'duplicates': [rename(k) for k in answer.duplicates]}
        if len(finite) < len(answer.series) and answer.health.upper() == 'HEALTHY':
            out['health'] = 'partial'
        for field in ('label', 'age', 'taken_at'):
            if getattr(answer, field) is not None:
                out[field] = getattr(answer, field)
        if answer.unknown:
            out['unknown'] = True
        if answer.error is not None:
            out['error'] = REMOVED
        return out

    def _make_label_rename(self, policy: str, known: list[str]) -> Callable[[str], str]:
        """Return a function that renames labels of hosts.

        A label that only the policy's regular expression leads to a host is renamed as that host.
        """
        if policy not in self._hostnames:
            return self._names.rename_host
        find = self._hostnames[policy].find_service_host
        hosts = [find(label) for label in known]

        def rename_label(label: str) -> str:
            host = find(label)
            self._names.seen.add(label)
            return self._names.rename_host(label if host is None or hosts.count(host) > 1 else host)
        return rename_label


def _is_unknown(data: Any) -> bool:
    return isinstance(data, dict) and data.get('unknown') is True


def _parse_answer_name(name: str) -> tuple[str | None, str]:
    """Return the kind of an answer and its policy, from a file's name."""
    for prefix in sorted(snapshot.PREFIXES.values(), key=len, reverse=True):
        match = re.fullmatch(rf'{prefix}_([a-z][a-z0-9_-]*)\.json', name)
        if match:
            return prefix, match[1]
    return None, ''


def _keep_value(value: Any) -> Any:
    return value


def _keep_hours(text: str | None) -> str | None:
    try:
        return None if text is None else str(movement_hours.parse_hours(text))
    except ValueError:
        return REMOVED


def _keep_quota(text: str | None) -> str | None:
    try:
        return None if text is None else str(agreements.parse_quota(text))
    except ValueError:
        return REMOVED


def _keep_notice(text: str | None) -> str | None:
    try:
        return None if text is None else str(agreements.parse_notice(text))
    except ValueError:
        return REMOVED


def _replace_reason(text: Any) -> Any:
    """Replace a reason, but keep its kind; without a reason return it unchanged."""
    if not text:
        return text
    code = _CODE.match(str(text))
    return (code[0] if code else '') + REMOVED


def _replace_disabled_reason(text: Any) -> Any:
    """Replace the reason of a service; that of a campaign stays one."""
    replaced = _replace_reason(text)
    return (f'{replaced} {model.CAMPAIGN_MARK}{REMOVED}]'
            if text and model.CAMPAIGN_MARK in str(text) else replaced)


def _map_optional(rule: Rule) -> Rule:
    return lambda value: None if value is None else rule(value)


def _map_list(rule: Rule) -> Rule:
    return lambda values: [rule(value) for value in values]


def _map_items(key: Rule, rule: Rule) -> Rule:
    return lambda items: {key(k): rule(v) for k, v in items.items()}


def _map_fields(**rules: Rule) -> Rule:
    """Return a rule that keeps the fields that have a rule, and no others."""
    return lambda data: {name: rule(data[name]) for name, rule in rules.items() if name in data}


def salt_of(path: str) -> bytes:
    """Return the bytes of a salt file, unchanged.

    :raises SnapshotError: it cannot be read, or is shorter than 16 bytes.
    """
    remedy = 'Make one with: openssl rand -out FILE 32, and keep it to yourself.'
    try:
        with open(path, 'rb') as f:
            salt = f.read(4096)
    except OSError as e:
        raise exception.SnapshotError(
            path=path, problem=f'the salt cannot be read ({os.strerror(e.errno or 0)})',
            remedy=remedy) from None
    if len(salt) < 16:
        raise exception.SnapshotError(
            path=path, problem=f'a salt of {len(salt)} bytes can be guessed', remedy=remedy)
    return salt
