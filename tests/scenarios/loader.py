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

"""A scenario: a small cloud and policies as YAML, and the expected plan.

``hosts``: name -> {vcpu, memory_mb, ratio, status, state, reason, zone, cell, traits,
hypervisor_hostname, hypervisor_version, hypervisor_type, down, root, nested,
sharing}; ``root``: class -> inventory, further classes, or null for none, ``nested``:
name -> {class -> inventory}, ``nested_traits``: name -> [trait]; an inventory is its total or
Placement's fields,
``sharing``: names in the ``sharing`` of the cloud, as nested; ``instances``: name ->
{at, vcpus, memory_mb, claims {class: amount}, allocations {root or name of a
provider: {class: amount}}, usage {policy: value}, mean, deviation and dirty_rate (as usage),
status, locked, task_state, pinned, local_disk_gb, project, extra_specs,
image_properties, power_state, opted_out, contracts {source: {key: text}}, spread (as
kronos:spread), hints {hint: [names]}}; names become UUIDs
with :func:`uuid_of`. ``aggregate_metadata``: aggregate -> {key: text}. ``scores``:
policy -> {host label: value}. ``waiting``: moves for which a plan waits for approval,
[{instance, from, to, phase, requires [names]}]; they cool their scope and instances, and a drain
goes before those for balance. ``expect`` is read by test_scenarios.py.
"""

import collections
from collections.abc import Iterable
import dataclasses
import pathlib
from typing import Any
import uuid

import yaml

from kronos_nova import model
from kronos_nova import plugins
from kronos_nova import policy
from kronos_nova import scoring
from kronos_nova.conf import contracts as contracts_conf
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer.engine import preconditions
from kronos_nova.rebalancer.planning import drain_precedence
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import quiet_hours

HERE = pathlib.Path(__file__).parent
NOW = 1_000_000.0
#: libyaml's, where PyYAML has it: a scenario takes longer to read than to plan.
LOADER = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)
#: Seconds; the default of instance_cooldown.
INSTANCE_COOLDOWN = 900.0


def uuid_of(name: str) -> str:
    """A stable UUID for a scenario's short name."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def files() -> list[pathlib.Path]:
    return sorted(HERE.glob('*.yaml'))


@dataclasses.dataclass
class Scenario:
    title: str
    request: planner.PlanningInput
    expect: dict[str, Any]
    names: dict[str, str]


def load(path: pathlib.Path) -> Scenario:
    data = yaml.load(path.read_text(), LOADER)
    names = {uuid_of(n): n for n in data.get('instances', {})}
    options = model.PlanningOptions(dry_run=False, **{
        name: frozenset(map(uuid_of, value)) if name == 'pinned_instances'
        else frozenset(value) if isinstance(value, list)
        else model.ContractOptions(**{'strongest_for_tenants': model.Disruption.NEVER} | {
            key: model.Disruption(text) for key, text in value.items()})
        if name == 'contracts' else value
        for name, value in data.get('options', {}).items()})
    policies = policy.parse_policies({'policies': data['policies']}, str(path))
    cluster = _cluster(data)
    values = {p.name: scoring.score_policy(p, _samples(p, data), cluster, now=NOW,
                                           staleness=300.0,
                                           max_missing_hosts=options.max_missing_hosts)
              for p in policies.enabled_policies}
    history = dataclasses.replace(
        _history(data.get('history', {})),
        fresh=planning_pipeline.just_booted(cluster, NOW, INSTANCE_COOLDOWN))
    scores = model.ClusterScores(values, NOW)
    history = dataclasses.replace(history, quiet_waits=quiet_hours.find_quiet_waits(
        cluster, scores, history, options, NOW, budget=policies.move_budget))
    if 'waiting' in data:
        cluster, history = _wait_for_approval(cluster, history, options, data['waiting'])
    return Scenario(
        title=data['title'], names=names, expect=data['expect'],
        request=planner.PlanningInput(
            cluster=cluster, scores=scores, policies=policies,
            strategies=strategies(), options=options, history=history,
            budget=data.get('budget', policies.move_budget)))


def _wait_for_approval(cluster: model.Cluster, history: model.MoveHistory,
                       options: model.PlanningOptions,
                       rows: list[dict[str, Any]]) -> tuple[model.Cluster, model.MoveHistory]:
    """Return what an engine plans with while a plan waits that was made a minute ago."""
    pending = [model.Task(
        f'task of {row["instance"]}', 'waiting', cluster.scope, uuid_of(row['instance']),
        row['from'], row['to'], model.Phase(row['phase']), created_at=NOW - 60,
        requires=tuple(map(uuid_of, row.get('requires', ())))) for row in rows]
    cluster = dataclasses.replace(cluster, flights=(*cluster.flights, *(
        model.InFlightMove(t.instance_uuid, t.from_host, t.to_host, 'task') for t in pending)))
    history = dataclasses.replace(
        history, scope_cooling=600.0 - 60,
        cooling={t.instance_uuid: INSTANCE_COOLDOWN - 60 for t in pending})
    overtaken = preconditions.find_overtaken_tasks(cluster, options, pending)
    if not overtaken:
        return cluster, dataclasses.replace(history, paused='plan waiting waits for approval')
    return (drain_precedence.drop_task_moves(cluster, {t.instance_uuid for t in overtaken}),
            preconditions.let_drain_overtake(history, overtaken, cooldown=600.0,
                                             instance_cooldown=INSTANCE_COOLDOWN, now=NOW))


def strategies() -> list[Any]:
    return [plugins.load_plugin(plugins.STRATEGIES, name)() for name in planner.ORDER]


def _contracts(rows: dict[str, dict[str, str]]) -> tuple[model.Contract, ...]:
    """Return the contracts of an instance: by source, its keys and their texts.

    A key with the text ``unreadable`` cannot be read.
    """
    return tuple(model.Contract(
        model.ContractSource(source),
        unreadable=tuple(key for key, text in row.items() if text == 'unreadable'),
        **{key: contracts_conf.parse_value(key, text, 30 * 86400) for key, text in row.items()
           if text != 'unreadable'}) for source, row in rows.items())


def _cluster(data: dict[str, Any]) -> model.Cluster:
    instances = {}
    for name, row in data.get('instances', {}).items():
        claims = {'VCPU': row.get('vcpus', 1), 'MEMORY_MB': row.get('memory_mb', 1024),
                  **row.get('claims', {})}
        allocations = {_provider_uuid(data, row['at'], p): held
                       for p, held in row.get('allocations', {}).items()}
        if allocations:
            claims = dict(sum((collections.Counter(held) for held in allocations.values()),
                              collections.Counter()))
        instances[uuid_of(name)] = model.Instance(
            uuid=uuid_of(name), host=row['at'], name=row.get('name', name),
            internal_name=row.get('internal_name', f'instance-{name}'),
            vcpus=row.get('vcpus', 1), memory_mb=row.get('memory_mb', 1024),
            status=row.get('status', 'ACTIVE'), locked=row.get('locked', False),
            task_state=row.get('task_state'), pinned=row.get('pinned'),
            pinned_zone=row.get('pinned_zone'), local_disk_gb=row.get('local_disk_gb'),
            claims=claims, allocations=allocations, project_id=row.get('project', ''),
            extra_specs=row.get('extra_specs'), image_properties=row.get('image_properties'),
            power_state=row.get('power_state'), opted_out=row.get('opted_out'),
            contracts=_contracts(row.get('contracts', {})),
            spread=spread_requests.parse_spread(row['spread']) if 'spread' in row else (),
            scheduler_hints={hint: tuple(uuid_of(n) for n in others)
                             for hint, others in row.get('hints', {}).items()},
            launched_at=NOW - row['launched_ago'] if 'launched_ago' in row else None)
    hosts, services = {}, {}
    used = _used(instances.values())
    for name, row in data['hosts'].items():
        row = row or {}
        uuid = uuid_of('host ' + name)
        inventories = {
            'VCPU': model.Inventory(row.get('vcpu', 64), allocation_ratio=row.get('ratio', 4.0)),
            'MEMORY_MB': model.Inventory(row.get('memory_mb', 262144)),
            **_inventories(row.get('root', {}))}
        provider = model.Provider(
            uuid=uuid, used={'VCPU': 0, 'MEMORY_MB': 0} | used.get(uuid, {}),
            inventories={c: i for c, i in inventories.items() if i is not None})
        if not data.get('placement', True) or not row.get('provider', True):
            provider = None
        hosts[name] = model.Host(
            name=name, hypervisor_hostname=row.get('hypervisor_hostname', name),
            uuid=uuid_of('host ' + name), provider=provider, cell=row.get('cell'),
            traits=frozenset(row.get('traits', ())),
            nested=tuple(model.Provider(
                uuid=(child := _provider_uuid(data, name, p)), parent_uuid=uuid, name=p,
                inventories=_inventories(held), used=used.get(child, {}),
                traits=frozenset(row.get('nested_traits', {}).get(p, ())))
                for p, held in row.get('nested', {}).items()),
            sharing=frozenset(_provider_uuid(data, name, p) for p in row.get('sharing', ())),
            hypervisor_version=row.get('hypervisor_version', 0),
            hypervisor_type=row.get('hypervisor_type', 'QEMU'))
        if not row.get('service', True):
            continue
        services[name] = model.Service(
            host=name, status=row.get('status', 'enabled'), state=row.get('state', 'up'),
            forced_down=row.get('forced_down', False), disabled_reason=row.get('reason'),
            zone=row.get('zone', 'nova'))
    groups = tuple(model.ServerGroup(
        uuid=uuid_of('group ' + name), name=name, policy=model.GroupPolicy(row['policy']),
        members=frozenset(uuid_of(m) for m in row['members']),
        max_server_per_host=row.get('max', 1)) for name, row in data.get('groups', {}).items())
    flights = tuple(model.InFlightMove(uuid_of(f['instance']), f['from'], f.get('to'),
                                       f.get('source', 'nova'), tuple(f.get('alternates', ())))
                    for f in data.get('flights', ()))
    cluster = model.Cluster(
        hosts=hosts, instances=instances, services=services, groups=groups, flights=flights,
        aggregates={a: tuple(h) for a, h in data.get('aggregates', {}).items()},
        aggregate_metadata=data.get('aggregate_metadata', {}),
        placement_known=data.get('placement', True), taken_at=NOW,
        sharing={(pool := uuid_of('sharing ' + p)): model.Provider(
            uuid=pool, name=p, inventories=_inventories(held), used=used.get(pool, {}))
            for p, held in data.get('sharing', {}).items()})
    return cluster.replace_scope(data.get('scope', model.UNASSIGNED))


def _provider_uuid(data: dict[str, Any], host: str, name: str) -> str:
    if name == 'root':
        return uuid_of('host ' + host)
    return uuid_of(f'sharing {name}' if name in data.get('sharing', {}) else f'{host} {name}')


def _inventories(rows: dict[str, Any]) -> dict[str, Any]:
    return {c: row if row is None else model.Inventory(**row) if isinstance(row, dict)
            else model.Inventory(row) for c, row in rows.items()}


def _used(instances: Iterable[model.Instance]) -> dict[str, dict[str, int]]:
    """Return the allocated amounts by provider and class."""
    used: dict[str, dict[str, int]] = {}
    for instance in instances:
        for provider, held in (instance.allocations
                               or {uuid_of('host ' + instance.host): instance.claims}).items():
            for c, amount in held.items():
                here = used.setdefault(provider, {})
                here[c] = here.get(c, 0) + amount
    return used


def _samples(p: policy.Policy, data: dict[str, Any]) -> model.PolicySamples:
    def answer(query: str | None, series: dict[str, float] | None) -> model.QueryResult | None:
        if query is None:
            return None
        if series is None:
            return model.QueryResult(query, model.SourceHealth.UNREACHABLE,
                                     error='connection refused')
        return model.QueryResult(query, model.SourceHealth.HEALTHY,
                                 {str(k): float(v) for k, v in series.items()})

    def measured(key: str) -> dict[str, float]:
        return {f'instance-{n}': row[key][p.name] for n, row in data.get('instances', {}).items()
                if p.name in (row.get(key) or {})}

    imbalance = answer(p.imbalance_query, data['scores'].get(p.name))
    assert imbalance is not None
    return model.PolicySamples(
        policy=p.name, imbalance=imbalance, profile=answer(p.vm_profile_query, measured('usage')),
        mean=answer(p.vm_mean_query, None if data.get('mean_error') else measured('mean')),
        deviation=answer(p.vm_deviation_query, measured('deviation')),
        dirty_rate=answer(p.vm_dirty_rate_query, measured('dirty_rate')),
        capacity=answer(p.capacity_query, data.get('fill', {}).get(p.name)),
        host_capacity=answer(p.host_capacity_query, data.get('capacity', {}).get(p.name)),
        age=data.get('age'), taken_at=NOW)


def _history(data: dict[str, Any]) -> model.MoveHistory:
    completed = tuple((model.Move(uuid_of(m['instance']), m['from'], m['to'],
                                  model.Phase(m.get('phase', 'spread'))),
                       NOW - m['ago']) for m in data.get('completed', ()))
    return model.MoveHistory(
        cooling={uuid_of(n): s for n, s in data.get('cooling', {}).items()},
        quarantined={uuid_of(n): s for n, s in data.get('quarantined', {}).items()},
        quarantined_hosts=frozenset(data.get('quarantined_hosts', ())),
        local_disk_hosts=frozenset(data.get('local_disk_hosts', ())),
        other_cells=frozenset(map(tuple, data.get('other_cells', ()))),
        refused={uuid_of(n): frozenset(h) for n, h in data.get('refused', {}).items()},
        refused_everywhere=frozenset(map(uuid_of, data.get('refused_everywhere', ()))),
        late_drains={uuid_of(n): host for n, host in data.get('late_drains', {}).items()},
        scope_cooling=data.get('scope_cooling', 0.0), paused=data.get('paused'),
        waiting=data.get('waiting'), campaign_hosts=frozenset(data.get('campaign_hosts', ())),
        draining=frozenset(data.get('draining', ())), completed=completed,
        drain_begins={host: NOW - ago for host, ago in data.get('drains_began_ago', {}).items()},
        drain_deadlines={host: model.DrainDeadline(NOW + row['in'], row['reason'])
                         for host, row in data.get('drain_deadlines', {}).items()},
        measured=tuple(model.MeasuredAttempt(f'measured {n}', 1024, 0, 1024 / rate)
                       for n, rate in enumerate(data.get('measured_mib_per_s', ()))),
        hourly_write_rates={uuid_of(n): tuple(
            (quiet_hours.begin_hour(NOW) - 86400.0 + 3600.0 * hour, rate)
            for hour, rate in rates.items()) for n, rates in data.get(
                'hourly_write_rates', {}).items()},
        move_times={uuid_of(n): tuple(NOW - ago for ago in agos)
                    for n, agos in data.get('move_times', {}).items()})
