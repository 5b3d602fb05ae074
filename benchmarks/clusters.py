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


"""Seeded clusters to plan on: one Spec, one seed, one cluster.

Nothing here plans. Scores are what the placement and the usages say, plus a
base load that no instance explains; capacities are a host's vCPUs, its MiB
and its bytes/s.
"""

import dataclasses
import random
import uuid

from kronos_nova import model
from kronos_nova import policy

NAMES = ('cpu', 'memory', 'net')
#: vCPUs of a small host; ``sizes: mixed`` has hosts of once, twice and four times that.
SMALL = 32


@dataclasses.dataclass(frozen=True)
class Spec:
    """What kind of cluster.

    ``hot``: part of the hosts whose instances are three times as busy.
    ``idle``: part of the instances without any usage. ``grouped``: part of
    the instances in server groups of three. ``room``: how much more than is
    claimed a host can hold, 1.05 is tight. ``tied``: groups of four hosts
    hold the same. ``drains``: hosts that are disabled.
    """

    name: str
    hosts: int = 16
    instances: int = 300
    policies: int = 2
    mixed: bool = False
    hot: float = 0.0
    idle: float = 0.0
    grouped: float = 0.0
    room: float = 8.0
    tied: bool = False
    drains: int = 0
    threshold: float = 0.01


@dataclasses.dataclass(frozen=True)
class Case:
    """A cluster with all that a plan depends on but the budget."""

    spec: Spec
    seed: int
    cluster: model.Cluster
    scores: model.ClusterScores
    policies: policy.PolicySet


def uuid_of(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def build(spec: Spec, seed: int) -> Case:
    """The same case for the same arguments, on every Python."""
    rng = random.Random(f'{spec} {seed}')
    names = [f'host-{n:04d}' for n in range(spec.hosts)]
    size = {h: SMALL * (rng.choice((1, 1, 2, 4)) if spec.mixed else 1) for h in names}
    instances, busy = _instances(spec, rng, names, size)
    policies = _policies(spec)
    groups = _groups(spec, rng, instances)
    on: dict[str, list[model.Instance]] = {h: [] for h in names}
    for instance in instances.values():
        on[instance.host].append(instance)
    hosts = {h: _host(rng, h, on[h], spec.room) for h in names}
    drained = set(rng.sample(names, spec.drains))
    cluster = model.Cluster(
        hosts=hosts, instances=instances, groups=groups, taken_at=0.0,
        services={h: model.Service(h, zone='nova', status='disabled' if h in drained else
                                   'enabled') for h in names},
        aggregates={'scope': tuple(names)}, scope='scope', scope_hosts=frozenset(names))
    return Case(spec, seed, cluster, _scores(spec, rng, cluster, size, busy), policies)


def _instances(spec: Spec, rng: random.Random, names: list[str], size: dict[str, int],
               ) -> tuple[dict[str, model.Instance], dict[str, float]]:
    """Placed at random in proportion to size; ``busy`` is the part of its
    vCPUs that an instance uses."""
    weights = [size[h] for h in names]
    hot = set(rng.sample(names, round(spec.hot * spec.hosts)))
    instances, busy = {}, {}
    count = spec.instances // 4 if spec.tied else spec.instances
    for _ in range(count):
        vcpus = rng.choices((1, 2, 4, 8), (4, 4, 2, 1))[0]
        memory = vcpus * rng.choice((1024, 2048, 4096))
        active = 0.0 if rng.random() < spec.idle else rng.betavariate(1.2, 2.5)
        if spec.tied:
            quarter = rng.randrange(max(1, spec.hosts // 4))
            homes = [names[min(4 * quarter + i, spec.hosts - 1)] for i in range(4)]
        else:
            homes = rng.choices(names, weights)
        for home in homes:
            found = uuid_of(rng)
            instances[found] = model.Instance(
                uuid=found, host=home, name=found[:8], vcpus=vcpus, memory_mb=memory,
                disk_gb=20, claims={'VCPU': vcpus, 'MEMORY_MB': memory, 'DISK_GB': 20})
            busy[found] = min(1.0, 3.0 * active) if home in hot else active
    return instances, busy


def _host(rng: random.Random, name: str, here: list[model.Instance],
          room: float) -> model.Host:
    used = {c: sum(i.claims[c] for i in here)
            for c in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
    floor = {'VCPU': 8, 'MEMORY_MB': 8 * 1024, 'DISK_GB': 200}
    inventories = {c: model.Inventory(max(floor[c], int(u * room))) for c, u in used.items()}
    return model.Host(name, provider=model.Provider(uuid_of(rng), inventories=inventories,
                                                    used=used))


def _groups(spec: Spec, rng: random.Random,
            instances: dict[str, model.Instance]) -> tuple[model.ServerGroup, ...]:
    """Anti-affinity where the members are apart, affinity never: none is
    violated at the start."""
    chosen = rng.sample(sorted(instances), int(spec.grouped * len(instances)))
    found = []
    for first in range(0, len(chosen) - 2, 3):
        members = chosen[first:first + 3]
        apart = len({instances[u].host for u in members}) == len(members)
        found.append(model.ServerGroup(
            uuid_of(rng), model.GroupPolicy.ANTI_AFFINITY if apart
            else model.GroupPolicy.SOFT_ANTI_AFFINITY, frozenset(members)))
    return tuple(found)


def _policies(spec: Spec) -> policy.PolicySet:
    parts = {1: (1.0,), 2: (0.6, 0.4), 3: (0.5, 0.3, 0.2)}[spec.policies]
    return policy.PolicySet(policies=tuple(policy.Policy(
        name=name, weight=part, imbalance_query='q', vm_profile_unit='absolute',
        host_capacity='VCPU', threshold=spec.threshold, max_migrations_per_cycle=100)
        for name, part in zip(NAMES, parts, strict=False)))


def _scores(spec: Spec, rng: random.Random, cluster: model.Cluster, size: dict[str, int],
            busy: dict[str, float]) -> model.ClusterScores:
    """The fullest host is nearly full: a score is at most 1."""
    values = {}
    for p, name in enumerate(NAMES[:spec.policies]):
        unit = (1.0, 2048.0, 1e8)[p]
        capacity = {h: size[h] * unit for h in sorted(cluster.hosts)}
        usages = {}
        for u, i in cluster.instances.items():
            resident = 0.6 if spec.tied else rng.uniform(0.3, 1.0)
            traffic = 1.0 if spec.tied else rng.expovariate(3.0)
            usages[u] = (busy[u] * i.vcpus, i.memory_mb * resident * (busy[u] > 0.0),
                         busy[u] * i.vcpus * 1e8 * traffic)[p]
        base = {h: 0.02 if spec.tied else rng.uniform(0.0, 0.05) for h in capacity}
        load = dict.fromkeys(capacity, 0.0)
        for u, i in cluster.instances.items():
            load[i.host] += usages[u] / capacity[i.host]
        scale = 0.9 / max(load.values())
        usages = {u: v * scale for u, v in usages.items()}
        hosts = {h: base[h] + load[h] * scale for h in capacity}
        values[name] = model.PolicyScores(
            policy=name, hosts=hosts, fill=hosts, capacity=capacity, usages=usages,
            coverage=dict.fromkeys(hosts, 1.0))
    return model.ClusterScores(values, 0.0)
