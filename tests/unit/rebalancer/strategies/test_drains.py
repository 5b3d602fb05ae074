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
import sys

import numpy as np
import pytest

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.search import batch
from kronos_nova.rebalancer.search import ejection_chain
from tests.unit import clouds


def packing(seed, *, drained=3, kept=4, slack=0.0):
    """Build drained hosts whose instances fill the others to the last vCPU and MiB,
    with a known solution: each instance was drawn for one host among the others."""
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
    policies = policy.parse_policies({'policies': [{
        'name': 'cpu', 'weight': 1.0, 'threshold': 0.9, 'imbalance_query': 'q'}]}, 'f')
    scores = model.ClusterScores({'cpu': model.PolicyScores('cpu', untrusted='not measured here')})
    return planner.PlanningInput(
        cluster=cluster, scores=scores, policies=policies, strategies=clouds.STRATEGIES,
        history=model.MoveHistory(), budget=budget, options=model.PlanningOptions(
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
def test_a_drain_strands_no_instance_that_an_assignment_places(seed):
    """A sixteenth stays free: when instances are placed one by one, nearly every such drain
    strands an instance."""
    cluster = packing(seed, slack=0.06)
    asked = request(cluster)
    plan = planner.plan(asked)
    assert stranded(cluster, plan) == [], plan.warnings
    assert checker.check(plan, cluster, asked.options, asked.history, asked.scores, {},
                         asked.budget) == ()
    assert plan == planner.plan(asked)


def test_placing_one_by_one_strands_instances(monkeypatch):
    """Else these packings would prove nothing."""
    monkeypatch.setattr(batch, 'place_together', lambda *args: None)
    clusters = [packing(seed, slack=0.06) for seed in range(20)]
    assert sum(bool(stranded(c, planner.plan(request(c)))) for c in clusters) > 15


def test_making_room_strands_no_instance_that_had_a_place(monkeypatch):
    """A chain that runs before the others are placed takes the room of smaller instances."""
    clusters = [packing(seed, slack=-0.05) for seed in range(30)]
    counts = [len(stranded(c, planner.plan(request(c)))) for c in clusters]
    monkeypatch.setattr(ejection_chain, 'make_room', lambda *args: False)
    without = [len(stranded(c, planner.plan(request(c)))) for c in clusters]
    assert all(count <= least for count, least in zip(counts, without, strict=True))
    assert sum(counts) < sum(without)


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


def test_an_instance_without_a_destination_does_not_block_the_others():
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


def simulate(cluster):
    asked = request(cluster)
    simulation = sim.Simulation(asked.cluster, asked.scores, asked.policies, asked.history,
                                asked.options)
    for name, service in cluster.services.items():
        if not service.enabled:
            simulation.begin_drain(name)
    return simulation


def test_a_scope_of_many_hosts_is_one_batch_too():
    """Other instances do not count, although instances times hosts exceed the bound."""
    cluster = packing(3, slack=0.06)
    large = [model.Instance(clouds.uuid_of(f'large {n}'), 'd9', memory_mb=512,
                            claims={'VCPU': 50, 'MEMORY_MB': 512}) for n in range(54)]
    total = {'VCPU': 50 * len(large), 'MEMORY_MB': 512 * len(large)}
    added = {'d9': host('d9', *total.values(), total),
             'k9': host('k9', *total.values(), {'VCPU': 0, 'MEMORY_MB': 0})} | {
        name: host(name, 8, 4096, {'VCPU': 8, 'MEMORY_MB': 4096})
        for name in (f'full{n:04}' for n in range(1800))}
    hosts = {**cluster.hosts, **added}
    cluster = dataclasses.replace(
        cluster, hosts=hosts, scope_hosts=frozenset(hosts),
        instances={**cluster.instances, **{i.uuid: i for i in large}},
        services={**cluster.services, **{name: model.Service(name) for name in added},
                  'd9': model.Service('d9', status='disabled', disabled_reason='repair')})
    assert len(cluster.instances) * len(hosts) > batch.LARGEST
    plan = planner.plan(request(cluster))
    assert (stranded(cluster, plan), plan.warnings) == ([], ())


@pytest.mark.parametrize('seed', range(8))
def test_hosts_without_room_do_not_count_towards_the_bound(seed, monkeypatch):
    cluster = packing(seed, slack=0.06)
    monkeypatch.setattr(batch, 'LARGEST', 4 * len(cluster.instances))
    assert stranded(cluster, planner.plan(request(cluster))) == []


def test_a_failed_batch_says_that_it_tried_some_hosts_only(monkeypatch):
    cluster = packing(3, slack=0.06)
    count = len(cluster.instances)
    monkeypatch.setattr(batch, 'LARGEST', 2 * count)
    plan = planner.plan(request(cluster))
    assert stranded(cluster, plan)
    assert [w for w in plan.warnings if 'each one alone' in w] == [
        f'no room for {count} instances together on the 2 of 4 hosts that the planner tried: it '
        'placed each one alone; disable fewer hosts at once']


def test_of_the_hosts_that_are_looked_at_everybody_has_its_own(monkeypatch):
    """All fit on any of k0 ... k5; each has a fullest that it alone needs."""
    cluster = packing(3, kept=6, slack=0.5)
    simulation = simulate(cluster)
    numbers = batch.list_placeable_instances(simulation, np.flatnonzero(simulation.drainable))
    monkeypatch.setattr(batch, 'LARGEST', 3 * len(numbers))
    hosts, some = batch.choose_hosts_to_try(simulation, numbers)
    assert (len(hosts), some) == (3, 6) and list(hosts) == sorted(hosts)
    every = np.arange(len(simulation.hosts))
    allowed = batch.may_take(simulation, numbers, every)
    first = {int(np.flatnonzero(row)[batch._fullest_first(
        simulation, int(n), np.flatnonzero(row))[0]])
        for n, row in zip(numbers, allowed, strict=True)}
    assert first <= set(hosts) or set(hosts) <= first


def alike(count, hosts):
    """One host with ``count`` small instances, and others with room for all."""
    instances = {u: model.Instance(u, 'd', claims={'VCPU': 1}, memory_mb=1)
                 for u in (clouds.uuid_of(str(n)) for n in range(count))}
    sizes = {'d': host('d', count, 1, {'VCPU': count, 'MEMORY_MB': 0})} | {
        name: host(name, count, 1, {'VCPU': 0, 'MEMORY_MB': 0})
        for name in (f'k{n}' for n in range(hosts))}
    services = {name: model.Service(name) for name in sizes} | {
        'd': model.Service('d', status='disabled', disabled_reason='repair')}
    return model.Cluster(sizes, instances, services, scope_hosts=frozenset(sizes))


def test_of_hosts_that_are_alike_as_many_are_tried_as_there_are_instances():
    simulation = simulate(alike(3, 20))
    hosts, some = batch.choose_hosts_to_try(simulation, np.arange(3))
    assert [simulation.hosts[h] for h in hosts] == ['k0', 'k1', 'k10'] and some == 3


def test_a_host_of_a_thousand_instances_is_one_batch():
    """More than calls may be nested."""
    count = sys.getrecursionlimit() + 10
    simulation = simulate(alike(count, 2))
    found = batch.place_together(simulation, np.arange(count))
    assert found is not None and len({m.instance_uuid for m in found}) == count


def test_a_search_that_ends_without_a_place_leaves_everything_as_it_was(monkeypatch):
    monkeypatch.setattr(batch, 'TRIED', 5)
    simulation = simulate(packing(3, slack=0.0))
    before = simulation.place.copy(), simulation.room.used.copy()
    numbers = np.flatnonzero(simulation.drainable)
    assert len(numbers) > 5 and batch.place_together(simulation, numbers) is None
    assert (simulation.place == before[0]).all() and (simulation.room.used == before[1]).all()
