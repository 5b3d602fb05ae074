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

"""A drain is one batch: who could be placed is placed."""

import dataclasses
import random

import pytest

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import planner
from kronos_nova.rebalancer.search import batch
from tests.unit import clouds


def packing(seed, *, drained=3, kept=4, slack=0.0):
    """Drained hosts whose instances fill the others to the last vCPU and MiB,
    in a way that is known: each instance was drawn for one of those."""
    rng = random.Random(seed)
    instances, hosts, services = {}, {}, {}
    sources = [f'd{n}' for n in range(drained)]
    for target in (f'k{n}' for n in range(kept)):
        own, vcpus, memory = [], 0, 0
        for _ in range(rng.randint(2, 4)):
            uuid = clouds.uuid_of(f'{seed} {len(instances)}')
            claims = {'VCPU': rng.randint(1, 6), 'MEMORY_MB': 512 * rng.randint(1, 12)}
            instances[uuid] = model.Instance(uuid, rng.choice(sources), claims=claims,
                                             memory_mb=claims['MEMORY_MB'])
            own.append(uuid)
            vcpus, memory = vcpus + claims['VCPU'], memory + claims['MEMORY_MB']
        used = {'VCPU': rng.randint(0, 4), 'MEMORY_MB': 512 * rng.randint(0, 4)}
        hosts[target] = host(target, used['VCPU'] + int(vcpus * (1 + slack)),
                             used['MEMORY_MB'] + int(memory * (1 + slack)), used)
    for source in sources:
        here = [i.claims for i in instances.values() if i.host == source]
        used = {c: sum(claims[c] for claims in here) for c in ('VCPU', 'MEMORY_MB')}
        hosts[source] = host(source, used['VCPU'] + 1, used['MEMORY_MB'] + 512, used)
        services[source] = model.Service(source, status='disabled', disabled_reason='repair')
    services |= {h: model.Service(h) for h in hosts if h not in services}
    return model.Cluster(hosts, instances, services, scope_hosts=frozenset(hosts))


def host(name, vcpus, memory, used):
    return model.Host(name, provider=model.Provider(clouds.uuid_of(name), inventories={
        'VCPU': model.Inventory(vcpus), 'MEMORY_MB': model.Inventory(memory)}, used=used))


def request(cluster, budget=100):
    policies = policy.parse({'policies': [{
        'name': 'cpu', 'weight': 1.0, 'threshold': 0.9, 'imbalance_query': 'q'}]}, 'f')
    scores = model.Scores({'cpu': model.PolicyScores('cpu', untrusted='not measured here')})
    return planner.Request(
        cluster=cluster, scores=scores, policies=policies, strategies=clouds.STRATEGIES,
        history=model.History(), budget=budget, options=model.Options(
            dry_run=False, evacuate_disabled_hosts=True, max_drain_fraction=0.9))


def stranded(cluster, plan):
    """Instances that stay on a drained host."""
    gone = {m.instance_uuid for m in plan.moves}
    return [i.uuid for i in cluster.instances.values()
            if not cluster.services[i.host].enabled and i.uuid not in gone]


def after(cluster, plan):
    """The cluster when all of the plan has come about."""
    to = {m.instance_uuid: m.to_host for m in plan.moves}
    instances = {u: dataclasses.replace(i, host=to.get(u, i.host))
                 for u, i in cluster.instances.items()}
    hosts = {}
    for name, known in cluster.hosts.items():
        used = dict(known.provider.used)
        for uuid, target in to.items():
            i = cluster.instances[uuid]
            sign = (target == name) - (i.host == name)
            used = {c: amount + sign * i.claims[c] for c, amount in used.items()}
        hosts[name] = dataclasses.replace(
            known, provider=dataclasses.replace(known.provider, used=used))
    return dataclasses.replace(cluster, hosts=hosts, instances=instances)


@pytest.mark.parametrize('seed', range(clouds.many(20)))
def test_nobody_is_stranded_whom_an_assignment_places(seed):
    """What is left free is a sixteenth: one by one, nearly every such drain
    strands somebody."""
    cluster = packing(seed, slack=0.06)
    asked = request(cluster)
    plan = planner.plan(asked)
    assert stranded(cluster, plan) == [], plan.warnings
    assert checker.check(plan, cluster, asked.options, asked.history, asked.scores, {},
                         asked.budget) == ()
    assert plan == planner.plan(asked)


def test_one_by_one_strands_somebody(monkeypatch):
    """Else these packings would prove nothing."""
    monkeypatch.setattr(batch, 'place', lambda *args: None)
    clusters = [packing(seed, slack=0.06) for seed in range(20)]
    assert sum(bool(stranded(c, planner.plan(request(c)))) for c in clusters) > 15


@pytest.mark.parametrize('seed', range(clouds.many(8)))
def test_a_drain_of_several_cycles_leaves_room_for_its_rest(seed):
    cluster = packing(seed, slack=0.06)
    count = len(cluster.instances)
    for _ in range(count):
        plan = planner.plan(request(cluster, budget=3))
        assert len(plan.moves) <= 3
        if not plan.moves:
            break
        cluster = after(cluster, plan)
    assert stranded(cluster, model.Plan('')) == []


def test_who_can_go_nowhere_does_not_keep_the_others_from_being_packed():
    cluster = packing(3, slack=0.06)
    giant = model.Instance(clouds.uuid_of('giant'), 'd0', claims={'VCPU': 1000})
    cluster = dataclasses.replace(cluster, instances={**cluster.instances, giant.uuid: giant})
    plan = planner.plan(request(cluster))
    assert stranded(cluster, plan) == [giant.uuid]
    assert any(giant.uuid in w and 'no-room' in w for w in plan.warnings)


def test_groups_are_kept_while_all_are_placed():
    for seed in range(10):
        cluster = packing(seed, slack=0.06)
        uuids = sorted(cluster.instances)
        group = model.ServerGroup(clouds.uuid_of('g'), model.GroupPolicy.ANTI_AFFINITY,
                                  frozenset(uuids[:3]))
        cluster = dataclasses.replace(cluster, groups=(group,))
        plan = planner.plan(request(cluster))
        targets = [m.to_host for m in plan.moves if m.instance_uuid in group.members]
        assert len(targets) == len(set(targets))
