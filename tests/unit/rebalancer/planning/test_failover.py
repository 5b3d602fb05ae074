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

"""Failover certificates: safe is proven, and stays so where a later one keeps it."""

import dataclasses
import itertools
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.rebalancer import failover_checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planner
from tests.unit import clouds

SAFE, UNSAFE, UNKNOWN = failover.FailureState


def certify(request, count=1, previous=None, **more):
    return failover.certify_failures(
        request, itertools.islice(failover.list_failures(request.cluster, count), 60), previous,
        **more)


def list_faults(certificate, request):
    places = {v.hosts: v.places for v in certificate.list_verdicts(SAFE)}
    return failover_checker.check_places(
        places, request.cluster, request.options, request.history, request.scores,
        sim.compute_ceilings(request.policies, request.options))


def enforce(request):
    return dataclasses.replace(request, options=dataclasses.replace(
        request.options, enforce_placement_claims=True))


def small(hosts, instances, groups=(), capacity=4, **options):
    """A cloud of claims alone: ``hosts`` is a number, ``instances`` (name, host, VCPU)."""
    names = [f'h{n}' for n in range(hosts)]
    records = {name: model.Instance(name, host, vcpus=amount, claims={'VCPU': amount})
               for name, host, amount in instances}
    cluster = model.Cluster(
        hosts={h: model.Host(h, provider=model.Provider(
            f'rp-{h}', inventories={'VCPU': model.Inventory(capacity)},
            used={'VCPU': sum(i.claims['VCPU'] for i in records.values() if i.host == h)}))
            for h in names},
        instances=records, services={h: model.Service(h) for h in names}, groups=tuple(groups),
        aggregates={'scope': tuple(names)}, scope='scope', scope_hosts=frozenset(names))
    return planner.PlanningInput(
        cluster=cluster, scores=model.ClusterScores({'cpu': model.PolicyScores(
            policy='cpu', hosts={}, fill={}, capacity={}, usages={}, coverage={},
            untrusted='no samples')}),
        policies=policy.PolicySet(policies=(policy.Policy(
            name='cpu', weight=1.0, imbalance_query='q', vm_profile_unit='absolute',
            host_capacity='VCPU', threshold=0.1, max_migrations_per_cycle=10),)),
        strategies=(), history=model.MoveHistory(), options=model.PlanningOptions(**options),
        budget=0)


def replace_instance(request, uuid, **fields):
    return dataclasses.replace(request, cluster=dataclasses.replace(request.cluster, instances={
        **request.cluster.instances,
        uuid: dataclasses.replace(request.cluster.instances[uuid], **fields)}))


def change(request, rng):
    """Return a later reading: boots, deletions, moves, loads, services, claims and groups."""
    cluster = request.cluster
    instances, hosts = dict(cluster.instances), dict(cluster.hosts)
    services, groups = dict(cluster.services), list(cluster.groups)

    def charge(host, instance, sign):
        record = hosts.get(host)
        if record is None or record.provider is None or instance.allocations:
            return
        used = dict(record.provider.used)
        for name, amount in instance.claims.items():
            used[name] = max(0, used.get(name, 0) + sign * amount)
        hosts[host] = dataclasses.replace(record, provider=dataclasses.replace(
            record.provider, used=used))

    names = sorted(cluster.scope_hosts)
    for uuid in rng.sample(sorted(instances), min(len(instances), rng.randint(0, 3))):
        instance, kind = instances[uuid], rng.randrange(5)
        charge(instance.host, instance, -1)
        if kind == 0:
            del instances[uuid]
            continue
        if kind == 1:
            instance = dataclasses.replace(instance, host=rng.choice(names), allocations={})
        elif kind == 2:
            instance = dataclasses.replace(instance, allocations={}, claims={
                name: amount + 1 for name, amount in instance.claims.items()})
        elif kind == 3:
            instance = dataclasses.replace(instance, extra_specs={'hw:tpm_version': '2.0'})
        elif groups:
            group = groups.pop()
            groups.append(dataclasses.replace(group, members=group.members | {uuid}))
        instances[uuid] = instance
        charge(instance.host, instance, 1)
    if rng.random() < 0.3:
        host = rng.choice(names)
        services[host] = dataclasses.replace(services[host], status='disabled')
    scores = request.scores
    if rng.random() < 0.5:
        times = rng.choice((0.9, 1.1, 1.5))
        scores = model.ClusterScores({name: dataclasses.replace(
            p, fill={h: v * times for h, v in p.fill.items()},
            usages={u: v * times for u, v in p.usages.items()})
            for name, p in scores.policies.items()}, scores.taken_at)
    history = request.history
    if rng.random() < 0.2:
        history = dataclasses.replace(history, quarantined_hosts=frozenset({rng.choice(names)}))
    flights = cluster.flights
    if flights and rng.random() < 0.5:
        flights = flights[1:]
    return dataclasses.replace(request, scores=scores, history=history, cluster=dataclasses.replace(
        cluster, instances=instances, hosts=hosts, services=services, groups=tuple(groups),
        flights=flights))


@clouds.examples(200)
@hypothesis.given(st.one_of(clouds.knobs(), clouds.knobs(trees=True)), st.integers(1, 2))
def test_checker_accepts_all_places_of_safe_hosts(knobs, count):
    request = enforce(clouds.request(knobs))
    assert list_faults(certify(request, count), request) == {}


@clouds.examples(200)
@hypothesis.given(st.one_of(clouds.knobs(), clouds.knobs(trees=True)), st.integers(1, 2),
                  st.randoms(use_true_random=False))
def test_checker_accepts_places_that_a_later_certificate_keeps(knobs, count, rng):
    request = enforce(clouds.request(knobs))
    hypothesis.assume(request.cluster.scope_hosts <= request.cluster.services.keys())
    certificate = certify(request, count)
    for _ in range(3):
        request = change(request, rng)
        certificate = certify(request, count, certificate)
        assert list_faults(certificate, request) == {}


def test_later_certificate_searches_only_where_something_changed():
    request = small(4, [('a', 'h0', 2), ('b', 'h1', 2), ('c', 'h2', 1), ('d', 'h3', 1)])
    first = certify(request)
    assert certify(request, previous=first).kept == 4
    booted = model.Instance('e', 'h3', vcpus=1, claims={'VCPU': 1})
    hosts = dict(request.cluster.hosts)
    hosts['h3'] = dataclasses.replace(hosts['h3'], provider=dataclasses.replace(
        hosts['h3'].provider, used={'VCPU': 2}))
    later = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, hosts=hosts, instances={**request.cluster.instances, 'e': booted}))
    second = certify(later, previous=first)
    assert second.kept == 3 and second.verdicts['h3',].places.keys() == {'d', 'e'}


def test_full_neighbour_ends_a_kept_place():
    request = small(2, [('a', 'h0', 2)])
    first = certify(request)
    assert first.verdicts['h0',].places == {'a': 'h1'}
    full = small(2, [('a', 'h0', 2), ('b', 'h1', 3)])
    verdict = certify(full, previous=first).verdicts['h0',]
    assert verdict.state is UNSAFE and verdict.proven
    assert verdict.unplaced['a'].rule == 'no-destination'
    assert 'no-room (1 host)' in verdict.unplaced['a'].detail


def with_load(request, fill):
    scores = model.PolicyScores(
        policy='cpu', hosts=fill, fill=fill, capacity=dict.fromkeys(fill, 4.0), usages={'a': 1.0},
        coverage=dict.fromkeys(fill, 1.0))
    return dataclasses.replace(request, scores=model.ClusterScores({'cpu': scores}))


def test_load_of_a_neighbour_above_the_ceiling_ends_a_kept_place():
    request = small(2, [('a', 'h0', 2)])
    first = certify(with_load(request, {'h0': 0.3, 'h1': 0.7}))
    assert first.verdicts['h0',].state is SAFE and not first.by_claims_alone
    later = certify(with_load(request, {'h0': 0.3, 'h1': 0.8}), previous=first)
    assert later.verdicts['h0',].state is UNSAFE
    assert 'ceiling' in later.verdicts['h0',].unplaced['a'].detail


def test_neighbour_in_another_zone_ends_a_kept_place():
    request = small(2, [('a', 'h0', 2)], restrict_to_az=True)
    first = certify(request)
    assert first.verdicts['h0',].state is SAFE
    services = {**request.cluster.services, 'h1': model.Service('h1', zone='other')}
    later = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, services=services))
    assert certify(later, previous=first).verdicts['h0',].state is UNSAFE


def test_room_that_came_free_makes_every_host_safe_at_once():
    full = [(f'i{n}', f'h{n}', 3) for n in range(120)]
    request = small(121, [*full, ('j', 'h120', 3)])
    first = certify_all(request)
    assert len(first.list_verdicts(UNSAFE)) == 121
    later = certify_all(small(121, full), first)
    assert later.list_verdicts(UNSAFE) == []


def certify_all(request, previous=None):
    return failover.certify_failures(request, failover.list_failures(request.cluster, 1), previous)


def test_instance_in_flight_never_takes_room_that_another_one_leaves():
    instances = [('b', 'h1', 3), ('c', 'h2', 3), ('x', 'h3', 1)]
    request = small(4, instances)
    flights = tuple(model.InFlightMove(u, h, 'h0', source='task') for u, h, _ in instances[:2])
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, flights=flights))
    verdict = certify(request).verdicts['h0',]
    assert verdict.state is UNSAFE and len(verdict.unplaced) == 1
    assert set(verdict.places.values()) == {'h3'}
    faults = failover_checker.check_places(
        {('h0',): {'b': 'h3', 'c': 'h1'}}, request.cluster, request.options, request.history,
        request.scores, sim.compute_ceilings(request.policies, request.options))
    assert 'an instance in flight may not have left' in failover_checker.describe_faults(faults)


def test_two_hosts_that_fail_together_need_room_on_the_others():
    request = small(3, [('a', 'h0', 3), ('b', 'h1', 3)])
    assert {v.state for v in certify(request).verdicts.values()} == {SAFE}
    verdict = certify(request, 2).verdicts['h0', 'h1']
    assert verdict.state is UNSAFE and verdict.proven


def test_anti_affinity_keeps_members_off_the_survivors():
    group = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset('ab'))
    instances = [('a', 'h0', 1), ('b', 'h1', 1)]
    assert certify(small(2, instances)).verdicts['h0',].state is SAFE
    verdict = certify(small(2, instances, [group])).verdicts['h0',]
    assert verdict.state is UNSAFE and 'anti-affinity' in verdict.unplaced['a'].detail


def test_affinity_group_on_one_host_is_unsafe_since_nova_evacuates_it_nowhere():
    group = model.ServerGroup('g', model.GroupPolicy.AFFINITY, frozenset('ab'))
    verdict = certify(small(3, [('a', 'h0', 1), ('b', 'h0', 1)], [group])).verdicts['h0',]
    assert verdict.state is UNSAFE
    assert verdict.unplaced['a'].rule == 'affinity-unmovable'


def test_instance_that_cannot_be_judged_makes_its_host_unknown():
    request = small(2, [('a', 'h0', 1)])
    instances = {'a': dataclasses.replace(request.cluster.instances['a'], pinned='has a port')}
    verdict = certify(dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances=instances))).verdicts['h0',]
    assert verdict.state is UNKNOWN and verdict.unplaced['a'].rule == 'evacuation-unknown'


@pytest.mark.parametrize('field', [
    {'extra_specs': {'pci_passthrough:alias': 'gpu:1'}},
    {'extra_specs': {'hw:mem_page_size': '1GB'}},
    {'extra_specs': {'hw:numa_nodes': '2'}},
    {'extra_specs': {'hw:cpu_policy': 'dedicated'}},
    {'image_properties': {'trait:CUSTOM_X': 'required'}},
    {'image_properties': {'hw_numa_nodes': '2'}}])
def test_request_that_no_rule_judges_for_a_new_host_makes_it_unknown(field):
    request = small(2, [('a', 'h0', 1)])
    verdict = certify(replace_instance(request, 'a', **field)).verdicts['h0',]
    assert verdict.state is UNKNOWN
    assert verdict.unplaced['a'].rule == 'evacuation-unknown'


def test_locked_suspended_and_cooling_instances_find_places():
    request = small(2, [('a', 'h0', 1)])
    instances = {'a': dataclasses.replace(request.cluster.instances['a'], status='SUSPENDED',
                                          locked=True, opted_out='its metadata')}
    request = dataclasses.replace(
        request, history=model.MoveHistory(cooling={'a': 60.0}),
        cluster=dataclasses.replace(request.cluster, instances=instances))
    assert certify(request).verdicts['h0',].state is SAFE


def test_host_that_is_down_already_gives_and_receives_nothing():
    request = small(2, [('a', 'h0', 1), ('b', 'h1', 1)])
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, services={'h0': model.Service('h0', state='down'),
                                   'h1': model.Service('h1')}))
    verdicts = certify(request).verdicts
    assert verdicts['h0',].state is SAFE
    assert verdicts['h1',].state is UNSAFE


def test_certificate_needs_claims():
    certificate = certify(small(2, [('a', 'h0', 1)], enforce_placement_claims=False))
    assert certificate.hold is not None and not certificate.verdicts


def test_repair_moves_a_resident_so_that_all_find_places():
    request = small(3, [('a', 'h0', 3), ('b', 'h1', 2), ('c', 'h2', 2)])
    verdict = certify(request, repairs=1).verdicts['h0',]
    assert verdict.state is UNSAFE
    [move] = verdict.repair
    assert (move.instance_uuid, move.from_host, move.to_host) in (
        ('b', 'h1', 'h2'), ('c', 'h2', 'h1'))
    moved = small(3, [('a', 'h0', 3), *(
        (name, move.to_host, 2) for name in ('b', 'c'))])
    assert certify(moved).verdicts['h0',].state is SAFE


def test_repair_moves_no_instance_that_its_owner_locked():
    request = small(3, [('a', 'h0', 3), ('b', 'h1', 2), ('c', 'h2', 2)])
    locked = {u: dataclasses.replace(i, locked=True)
              for u, i in request.cluster.instances.items()}
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances=locked))
    assert certify(request, repairs=1).verdicts['h0',].repair == ()


def brute_force(request, hosts):
    """Try every place of every instance; return whether the checker accepts one."""
    cluster = request.cluster
    here = sorted(u for u, i in cluster.instances.items() if i.host in hosts)
    others = sorted(cluster.scope_hosts - set(hosts))
    ceilings = sim.compute_ceilings(request.policies, request.options)
    return any(failover_checker.check_places(
        {hosts: dict(zip(here, chosen, strict=True))}, cluster, request.options, request.history,
        request.scores, ceilings) == {}
        for chosen in itertools.product(others, repeat=len(here)))


def test_verdicts_agree_with_brute_force():
    """Search may miss places; here it misses none. A proof is never wrong."""
    states = dict.fromkeys(failover.FailureState, 0)
    for seed in range(clouds.many(150)):
        rng = random.Random(seed)
        names = [f'i{n}' for n in range(rng.randint(2, 7))]
        groups = [model.ServerGroup('g', rng.choice((
            model.GroupPolicy.ANTI_AFFINITY, model.GroupPolicy.AFFINITY)),
            frozenset(rng.sample(names, 2)))] if rng.random() < 0.5 else []
        request = small(3, [(n, f'h{rng.randrange(3)}', rng.randint(1, 3)) for n in names], groups,
                        capacity=rng.randint(6, 10))
        for verdict in certify(request).verdicts.values():
            states[verdict.state] += 1
            assert (verdict.state is SAFE) == brute_force(request, verdict.hosts), seed
    assert min(states[SAFE], states[UNSAFE]) > clouds.many(20)
