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

"""Random clouds for property tests: from a few small knobs to a Request.

hypothesis draws and shrinks the knobs; a random generator that one knob
seeds fills in the rest. Nothing here uses a simulation, rule or planner.
"""

import dataclasses
import itertools
import os
import random
import uuid

import hypothesis
from hypothesis import strategies as st

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import failure_domains
from kronos_nova.constraints import hints
from kronos_nova.constraints import prefilters
from kronos_nova.model import movement_hours
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.strategies import evacuate
from kronos_nova.rebalancer.strategies import pack
from kronos_nova.rebalancer.strategies import repair
from kronos_nova.rebalancer.strategies import spread
from tests.unit import trees

NOW = 1_000_000.0
STRATEGIES = (evacuate.Evacuate(), repair.Repair(), spread.Spread(), pack.Pack())


def many(count):
    """KRONOS_TEST_EXAMPLES times ``count``: more for a longer search, a fraction
    where tests run once for every mutant."""
    return max(1, int(float(os.environ.get('KRONOS_TEST_EXAMPLES', '1')) * count))


def examples(count):
    """The same examples in every run, without a deadline: machines differ."""
    return hypothesis.settings(max_examples=many(count), derandomize=True, deadline=None,
                               database=None,
                               suppress_health_check=list(hypothesis.HealthCheck))


@dataclasses.dataclass(frozen=True)
class Knobs:
    """Knobs of a cloud. ``clean``: no history, flights, odd services, outsiders or gaps.
    ``trees``: hosts have nested and sharing providers. ``devices``: hosts have PCI devices,
    and some devices can be live-migrated. ``domains``: hosts have racks and power feeds, and
    instances are spread over them, some of which is written wrongly unless ``clean``."""

    seed: int
    hosts: int = 4
    instances: int = 8
    groups: int = 0
    policies: int = 1
    mode: str = 'spread'
    budget: int = 3
    drains: bool = False
    hard_repairs: bool = False
    soft_repairs: bool = False
    clean: bool = True
    tight: bool = False
    objective: str = 'balanced'
    # These change nothing else.
    trees: bool = dataclasses.field(default=False, repr=False)
    devices: bool = dataclasses.field(default=False, repr=False)
    domains: bool = dataclasses.field(default=False, repr=False)


def knobs(**fixed):
    drawn = {
        'seed': st.integers(0, 2**20), 'hosts': st.integers(2, 7),
        'instances': st.integers(1, 26), 'groups': st.integers(0, 5),
        'policies': st.integers(1, 3), 'mode': st.sampled_from(['spread', 'pack']),
        'budget': st.integers(1, 8), 'drains': st.booleans(),
        'hard_repairs': st.booleans(), 'soft_repairs': st.booleans(), 'clean': st.booleans(),
        'tight': st.booleans(), 'objective': st.sampled_from(['balanced', 'kronos'])}
    # Elsewhere the examples stay as they were.
    for name in fixed.keys() & {'trees', 'devices', 'domains'}:
        drawn[name] = st.just(fixed[name])
    return st.builds(Knobs, **{name: st.just(fixed[name]) if name in fixed else strategy
                               for name, strategy in drawn.items()})


def uuid_of(text):
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


def request(k):
    """The Request that the knobs stand for; equal knobs, equal request."""
    rng = random.Random(repr(k))
    hosts = [f'h{n}' for n in range(k.hosts)]
    outside = [] if k.clean or rng.random() < 0.5 else ['x0', 'x1']
    sizes = {h: rng.choice([8, 16, 16, 32]) for h in hosts + outside}
    instances = _instances(k, rng, hosts, outside)
    services = {h: _service(k, rng, h) for h in hosts + outside}
    flights = _flights(k, rng, instances, hosts)
    cluster = model.Cluster(
        hosts=_hosts(k, rng, sizes, instances, flights), instances=instances,
        services=services, groups=_groups(k, rng, sorted(instances)), flights=flights,
        aggregates={'scope': tuple(hosts)}, scope='scope', scope_hosts=frozenset(hosts),
        placement_known=k.clean or rng.random() < 0.85, taken_at=NOW)
    if k.trees:
        cluster = trees.grown(cluster, random.Random(repr(k)), tight=k.tight)
    policies = _policies(k, rng)
    cluster = _pinned(k, cluster)
    if k.devices:
        cluster = _with_devices(k, cluster)
    if k.domains:
        cluster = _with_domains(k, cluster)
    options = model.PlanningOptions(
        nova_enabled_filters=_some(k, 'filters', FILTERS),
        nova_prefilters=_some(k, 'prefilters', PREFILTERS),
        live_migratable_pci_aliases=frozenset({'card'}),
        dry_run=False, evacuate_disabled_hosts=k.drains, enforce_hard_affinity=k.hard_repairs,
        enforce_soft_affinity=k.soft_repairs, objective=k.objective,
        restrict_to_az=not k.clean and rng.random() < 0.2,
        enforce_placement_disk=rng.random() < 0.3,
        require_cpu_compatibility=not k.clean and rng.random() < 0.2,
        cold_migrate_stopped=k.instances % 3 == 0,
        instance_storage='local' if not k.clean and k.instances % 5 == 0 else 'auto',
        max_down_fraction=0.5, max_drain_fraction=0.5, max_steps=50_000,
        enforce_domain_spread=k.domains and k.soft_repairs,
        contracts=_contract_options(k))
    return planner.PlanningInput(
        cluster=cluster, scores=_scores(k, rng, cluster, policies, sizes), policies=policies,
        strategies=STRATEGIES, history=_history(k, rng, instances, hosts, services, options),
        options=options, budget=k.budget)


def _some(k, what, names):
    """Draw each name separately, so that no rule hides the inputs of another one."""
    rng = random.Random(f'{what} {k!r}')
    return frozenset(name for name in sorted(names) if not k.clean and rng.random() < 0.6)


def _pinned(k, cluster):
    """Add flavors, aggregates and hypervisors that do not suit every host, with a
    separate generator, so that the rest of the cloud does not change."""
    rng = random.Random(f'pinned {k!r}')
    if k.clean or rng.random() < 0.5:
        return cluster
    instances = {u: dataclasses.replace(
        i, extra_specs=rng.choice(EXTRA_SPECS), image_properties=rng.choice(IMAGES),
        project_id=rng.choice(['p', 'q']), power_state=rng.choice([None, 1, 1, 1, 3, 4]),
        opted_out='tag stay' if rng.random() < 0.05 else None, contracts=_contracts(k, u),
        scheduler_hints={'different_host': (rng.choice(sorted(cluster.instances)),)}
        if rng.random() < 0.2 else {}) for u, i in cluster.instances.items()}
    hosts = {name: dataclasses.replace(
        h, hypervisor_version=rng.choice([0, 8000000, 8002000, 8002000]),
        traits=h.traits | frozenset(t for t in ('CUSTOM_A', 'CUSTOM_B') if rng.random() < 0.6))
        for name, h in cluster.hosts.items()}
    metadata = {f'agg{n}': rng.choice(METADATA) for n in range(rng.randint(1, 3))}
    return dataclasses.replace(
        cluster, instances=instances, hosts=hosts, aggregate_metadata=metadata,
        aggregates={**cluster.aggregates, **{
            name: tuple(h for h in hosts if rng.random() < 0.5) for name in metadata}})


def _contracts(k, uuid):
    """Draw the contracts of an instance by themselves: most have none."""
    rng = random.Random(f'contracts {k!r} {uuid}')
    return tuple(model.Contract(
        source, rng.choice([None, *model.Disruption]),
        # The clock of the clouds is inside the first hours and outside the second ones.
        rng.choice([None, None, *map(movement_hours.parse_hours, ('* 13 * * *', '* 14 * * *'))]),
        rng.choice([None, None, model.MoveQuota(1, 86400), model.MoveQuota(2, 86400)]),
        rng.choice([(), (), (), ('hours',)]))
        for source in model.ContractSource if rng.random() < 0.05)


def _contract_options(k):
    rng = random.Random(f'contract options {k!r}')
    return model.ContractOptions(
        rng.choice(list(model.Disruption)), rng.choice([None, None, NOW - 1, NOW + 1]),
        rng.choice([model.Disruption.NEVER, model.Disruption.DRAIN_ONLY]))


def _with_devices(k, cluster):
    """Give hosts a device each; some of their instances have it."""
    rng = random.Random(f'devices {k!r}')
    hosts, instances = dict(cluster.hosts), dict(cluster.instances)
    for name, h in cluster.hosts.items():
        if h.provider is None or rng.random() < 0.2:
            continue
        device = uuid_of(f'device {name}')
        users = [i for i in cluster.instances.values() if i.host == name and rng.random() < 0.4]
        for i in users:
            instances[i.uuid] = dataclasses.replace(
                i, claims={**i.claims, 'CUSTOM_PCI': 1},
                allocations={**(i.allocations or {h.provider.uuid: i.claims}),
                             device: {'CUSTOM_PCI': 1}},
                extra_specs={**(i.extra_specs or {}), 'pci_passthrough:alias': 'card:1'})
        hosts[name] = dataclasses.replace(h, nested=(*h.nested, model.Provider(
            device, inventories={'CUSTOM_PCI': model.Inventory(len(users) + 2)},
            used={'CUSTOM_PCI': len(users)}, parent_uuid=h.provider.uuid,
            traits=frozenset(['HW_PCI_LIVE_MIGRATABLE'] if rng.random() < 0.6 else []))))
    return dataclasses.replace(cluster, instances=instances, hosts=hosts)


def _with_domains(k, cluster):
    """Put hosts into racks and feeds, and let most instances ask for a spread."""
    rng = random.Random(f'domains {k!r}')
    aggregates, metadata = dict(cluster.aggregates), dict(cluster.aggregate_metadata)
    for kind, count in (('rack', rng.randint(2, 4)), ('pdu', 2)):
        for n in range(count):
            metadata[f'{kind}{n}'] = {failure_domains.KEY: f'{kind}:{n}'}
            aggregates[f'{kind}{n}'] = ()
        for host in sorted(cluster.hosts):
            chosen = [rng.randrange(count)] if k.clean or rng.random() < 0.9 else rng.sample(
                range(count), rng.choice([0, 2]))
            for n in chosen:
                aggregates[f'{kind}{n}'] += (host,)
    if not k.clean and rng.random() < 0.1:
        metadata['pdu0'] = {failure_domains.KEY: 'pdu'}
    requests = [spread_requests.parse_spread(text)
                for text in ('rack', 'rack', 'rack:web', 'pdu,rack:web', 'pdu', 'room')]
    instances = {u: dataclasses.replace(
        i, project_id=i.project_id or rng.choice(['p', 'p', 'q']),
        spread=rng.choice(requests) if rng.random() < 0.8 else ())
        for u, i in cluster.instances.items()}
    return dataclasses.replace(cluster, aggregates=aggregates, aggregate_metadata=metadata,
                               instances=instances)


FILTERS = frozenset({aggregates.EXTRA_SPECS, aggregates.TENANTS, aggregates.IMAGES,
                     hints.DIFFERENT, hints.SAME})
PREFILTERS = frozenset({prefilters.TENANTS, prefilters.ISOLATED})
EXTRA_SPECS = (
    None, {}, {'hw:cpu_policy': 'shared'}, {'ssd': 'true'}, {'trait:CUSTOM_A': 'required'},
    {'trait:CUSTOM_B': 'forbidden'}, {'hw:mem_encryption': 'true'}, {'resources:VGPU': '1'})
IMAGES = (None, {}, {'os_distro': 'debian'}, {'hw_tpm_version': '2.0'})
METADATA = (
    {'ssd': 'true, false'}, {'filter_tenant_id': 'p'}, {'os_distro': 'windows'},
    {'trait:CUSTOM_A': 'required', 'ssd': 'true'}, {'availability_zone': 'az1'})


def _instances(k, rng, hosts, outside):
    instance_by_uuid = {}
    for n in range(k.instances):
        vcpus = rng.choice([1, 1, 2, 4])
        claims = {'VCPU': vcpus, 'MEMORY_MB': 1024 * rng.choice([1, 2, 4]),
                  'DISK_GB': rng.choice([1, 10])}
        odd = not k.clean and rng.random() < 0.15
        instance_by_uuid[uuid_of(f'i{n}')] = model.Instance(
            uuid=uuid_of(f'i{n}'), name=f'i{n}', vcpus=vcpus, memory_mb=claims['MEMORY_MB'],
            host=rng.choice(outside if outside and rng.random() < 0.1 else hosts),
            disk_gb=claims['DISK_GB'], claims=claims, local_disk_gb=(0, 0, 10, None)[n % 4],
            locked=odd and rng.random() < 0.3, task_state='resize_prep'
            if odd and rng.random() < 0.3 else None,
            status=('SHUTOFF' if n % 4 else 'PAUSED') if odd and rng.random() < 0.3
            else 'ACTIVE',
            pinned='nested allocation' if odd and rng.random() < 0.3 else None,
            pinned_zone='az1' if odd and rng.random() < 0.5 else None)
    return instance_by_uuid


def _service(k, rng, host):
    roll = rng.random()
    if k.drains and roll > 0.8:
        return model.Service(host, status='disabled', disabled_reason='maintenance', zone='az1')
    if k.clean or roll > 0.2:
        return model.Service(host, zone=rng.choice(['az1', 'az2']) if not k.clean else 'az1')
    return rng.choice([
        model.Service(host, state='down', zone='az1'),
        model.Service(host, forced_down=True, zone='az1'),
        model.Service(host, status='disabled', zone='az1', disabled_reason='AUTO: no libvirt'),
        model.Service(host, status='disabled', zone='az1', disabled_reason=None)])


def _flights(k, rng, instances, hosts):
    if k.clean:
        return ()
    flights = []
    for u in rng.sample(sorted(instances), min(len(instances), rng.randint(0, 3))):
        source = instances[u].host
        to = rng.choice([h for h in hosts if h != source] or [None])
        kind = rng.choice(['nova', 'task', 'both', 'unscheduled'])
        if kind in ('unscheduled', 'both'):
            flights.append(model.InFlightMove(u, source, None if kind == 'unscheduled'
                                              or rng.random() < 0.5 else to, 'nova'))
        if kind in ('nova', 'task', 'both'):
            flights.append(model.InFlightMove(u, source, to, 'task' if kind == 'both' else kind))
    return tuple(flights)


def _hosts(k, rng, sizes, instances, flights):
    host_by_name = {}
    ratio = 1.0 if k.tight else rng.choice([1.5, 4.0])
    for h, size in sizes.items():
        here = [i for i in instances.values() if i.host == h]
        here += [instances[u] for u in sorted({f.instance_uuid for f in flights
                                               if f.source == 'nova' and f.to_host == h})]
        used = {c: sum(i.claims[c] for i in here) for c in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
        inventories = {
            'VCPU': model.Inventory(size, allocation_ratio=ratio),
            'MEMORY_MB': model.Inventory(size * (2048 if k.tight else 8192), reserved=512),
            'DISK_GB': model.Inventory(size * 10)}
        if not k.clean and rng.random() < 0.05:
            del inventories['DISK_GB']
        provider = model.Provider(uuid_of(f'provider {h}'), inventories=inventories, used=used)
        if not k.clean and rng.random() < 0.03:
            provider = None
        host_by_name[h] = model.Host(
            h, hypervisor_hostname=f'{h}.example.org', provider=provider,
            cell=rng.choice(['c1', 'c1', 'c1', 'c2', None]) if not k.clean else None,
            traits=frozenset(t for t in ('HW_CPU_X86_AVX2', 'HW_CPU_X86_SVM')
                             if k.clean or rng.random() < 0.8))
    return host_by_name


def _groups(k, rng, uuids):
    groups = []
    for n in range(k.groups):
        chosen = model.GroupPolicy(rng.choice(list(model.GroupPolicy)))
        members = rng.sample(uuids, min(len(uuids), rng.randint(1, 5)))
        groups.append(model.ServerGroup(
            uuid_of(f'g{n}'), chosen, frozenset([*members, uuid_of('deleted')]),
            rng.choice([1, 1, 2]) if chosen is model.GroupPolicy.ANTI_AFFINITY else 1))
    return tuple(groups)


def _policies(k, rng):
    names = ['cpu', 'memory', 'net'][:k.policies]
    parts = [rng.randint(1, 4) for _ in names]
    return policy.PolicySet(policies=tuple(policy.Policy(
        name=name, mode=k.mode, weight=part / sum(parts), imbalance_query='q',
        capacity_query='q' if k.mode == 'pack' else None, host_capacity='VCPU',
        vm_profile_unit='absolute', threshold=rng.choice([0.05, 0.1, 0.2]),
        capacity_threshold=rng.choice([0.6, 0.8]), max_migrations_per_cycle=k.budget)
        for name, part in zip(names, parts, strict=True)))


def _scores(k, rng, cluster, policies, sizes):
    values = {}
    for p in policies.enabled_policies:
        usages = {u: rng.choice([0.0, 0.2, 0.5, 0.9]) * i.vcpus * rng.uniform(0.5, 1.0)
                  for u, i in cluster.instances.items() if i.host in cluster.scope_hosts}
        capacity = {h: float(sizes[h]) for h in sorted(cluster.scope_hosts)}
        base = {h: rng.choice([0.0, 0.02, 0.1]) for h in sorted(cluster.scope_hosts)}
        worst = max(base[h] + sum(v for u, v in usages.items()
                                  if cluster.instances[u].host == h) / capacity[h] for h in base)
        if worst > 1.0:
            usages = {u: v / worst * 0.85 for u, v in usages.items()}
        values[p.name] = at(cluster, model.PolicyScores(
            policy=p.name, hosts=base, fill=base, capacity=capacity, usages=usages))
        if not k.clean:
            values[p.name] = _gaps(rng, values[p.name])
    return model.ClusterScores(values, NOW)


def _gaps(rng, scores):
    missing = {h for h in sorted(scores.hosts) if rng.random() < 0.06}
    return dataclasses.replace(
        scores, missing=frozenset(missing),
        hosts={h: v for h, v in scores.hosts.items() if h not in missing},
        fill={h: v for h, v in scores.fill.items() if h not in missing},
        capacity={h: v for h, v in scores.capacity.items() if rng.random() > 0.02},
        usages={u: v for u, v in scores.usages.items() if rng.random() > 0.05},
        untrusted='samples are old' if rng.random() < 0.05 else None)


def hinted(request, rng, share):
    """The request with hints for about that share of the instances, which may be broken now."""
    uuids = sorted(request.cluster.instances)

    def hints():
        wanted = {'different_host': share, 'same_host': share / 2}
        return {name: tuple(rng.sample(uuids, min(len(uuids), rng.randint(1, 2))))
                for name, part in wanted.items() if rng.random() < part}

    return dataclasses.replace(
        request, cluster=dataclasses.replace(request.cluster, instances={
            u: dataclasses.replace(i, scheduler_hints=hints())
            for u, i in request.cluster.instances.items()}),
        options=dataclasses.replace(request.options, nova_enabled_filters=frozenset({
            *request.options.nova_enabled_filters, 'DifferentHostFilter', 'SameHostFilter'})))


def at(cluster, scores, before=None):
    """The scores that follow from where the instances are now.

    :param before: the cluster that ``scores`` belong to; None: they are the
        hosts' base loads.
    """
    def loads(where):
        out = dict.fromkeys(scores.capacity, 0.0)
        for u, usage in scores.usages.items():
            host = where.instances[u].host
            if host in out:
                out[host] += usage / scores.capacity[host]
        return out

    now, then = loads(cluster), loads(before) if before is not None else None

    def shifted(values):
        return {h: v + now.get(h, 0.0) - (then.get(h, 0.0) if then else 0.0)
                for h, v in values.items()}

    return dataclasses.replace(scores, hosts=shifted(scores.hosts), fill=shifted(scores.fill))


def _history(k, rng, instances, hosts, services, options):
    if k.clean:
        return model.MoveHistory()
    some = sorted(instances)
    # Of its own chance: what else is drawn does not hang on it.
    refusing = random.Random(f'refused {k!r}')
    return model.MoveHistory(
        refused={u: frozenset(h for h in hosts if refusing.random() < 0.3)
                 for u in some if refusing.random() < 0.2},
        cooling={u: 60.0 for u in some if rng.random() < 0.05},
        quarantined={u: -1.0 for u in some if rng.random() < 0.03},
        quarantined_hosts=frozenset(h for h in hosts if rng.random() < 0.05),
        local_disk_hosts=frozenset(hosts[:1]),
        other_cells=frozenset(pair for pair in itertools.combinations(sorted(hosts), 2)
                              if refusing.random() < 0.05),
        scope_cooling=rng.choice([0.0, 0.0, 0.0, 0.0, 100.0]),
        draining=frozenset(h for h in hosts if rng.random() < 0.08),
        move_times={u: (NOW - 100.0,) for u in some if refusing.random() < 0.3},
        completed=((model.Move(some[0], rng.choice(hosts), instances[some[0]].host,
                               model.Phase.SPREAD), NOW - 100.0),)
        if rng.random() < 0.1 else ())


def moved(request, plan):
    """The request of the next cycle: every move of the plan has completed."""
    target = {m.instance_uuid: m.to_host for m in plan.moves}
    old = request.cluster
    instances = {u: dataclasses.replace(i, host=target.get(u, i.host))
                 for u, i in old.instances.items()}
    hosts = {}
    for name, host in old.hosts.items():
        used = dict(host.provider.used)
        for m in plan.moves:
            sign = (m.to_host == name) - (m.from_host == name)
            for c, amount in old.instances[m.instance_uuid].claims.items():
                used[c] += sign * amount
        hosts[name] = dataclasses.replace(
            host, provider=dataclasses.replace(host.provider, used=used))
    cluster = dataclasses.replace(old, instances=instances, hosts=hosts)
    scores = {n: at(cluster, s, old) for n, s in request.scores.policies.items()}
    return dataclasses.replace(
        request, cluster=cluster, scores=model.ClusterScores(scores, NOW),
        history=dataclasses.replace(request.history, draining=plan.draining))
