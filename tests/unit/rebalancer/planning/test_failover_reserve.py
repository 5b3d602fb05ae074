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

"""The room that boots leave free keeps every place of the failover certificate."""

import dataclasses
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import model
from kronos_nova.filters import capacity
from kronos_nova.rebalancer import failover_checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import failover_reserve
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.search import failure_places
from tests.unit import clouds
from tests.unit import nova_fakes
from tests.unit.rebalancer.planning import test_failover
from tests.unit.rebalancer.planning import test_failover_guard

VCPU, MEMORY, DISK = failover_reserve.CLASSES


def certificate_of(request, *verdicts):
    """A certificate with these places, which no search has found."""
    return failover.FailoverCertificate({v.hosts: v for v in verdicts}, request)


def verdict_of(places, *hosts, state=failover.FailureState.SAFE, **fields):
    return failover.FailureVerdict(hosts, state, places, **fields)


def test_reserve_of_a_host_is_the_largest_sum_of_one_case():
    request = test_failover.small(4, [('a', 'h0', 2), ('b', 'h0', 1), ('c', 'h1', 2)])
    certificate = certificate_of(
        request, verdict_of({'a': 'h2', 'b': 'h2'}, 'h0'), verdict_of({'c': 'h2'}, 'h1'))
    assert failover_reserve.compute_reserve(certificate) == {'h2': {VCPU: 3}}
    assert failover_reserve.compute_boot_limits(certificate) == {'h2': model.BootLimit(vcpus=1)}


def test_hosts_that_fail_together_need_the_sum():
    request = test_failover.small(4, [('a', 'h0', 2), ('c', 'h1', 2)])
    certificate = certificate_of(request, verdict_of({'a': 'h2', 'c': 'h2'}, 'h0', 'h1'))
    assert failover_reserve.compute_reserve(certificate) == {'h2': {VCPU: 4}}


@pytest.mark.parametrize('verdict, kept', [
    (verdict_of({'a': 'h2'}, 'h0', state=failover.FailureState.UNSAFE,
                unplaced={'b': model.Rejection('no-destination', '')}), True),
    (verdict_of({'a': 'h2'}, 'h0', state=failover.FailureState.UNKNOWN,
                unplaced={'b': model.Rejection('evacuation-unknown', '')}), True),
    (verdict_of({}, 'h0', state=failover.FailureState.UNKNOWN), False),
    (verdict_of({}, 'h0', state=failover.FailureState.UNKNOWN, fault='no-room'), False)])
def test_places_reserve_room_under_each_verdict(verdict, kept):
    request = test_failover.small(3, [('a', 'h0', 2), ('b', 'h0', 1)])
    assert failover_reserve.compute_reserve(certificate_of(request, verdict)) == (
        {'h2': {VCPU: 2}} if kept else {})


def test_certificate_without_verdicts_limits_no_boot():
    request = test_failover.small(2, [('a', 'h0', 2)])
    held = failover.FailoverCertificate({}, request, 'a cell does not answer')
    assert failover_reserve.compute_boot_limits(held) == {}


def rich(**fields):
    """A host's provider with the amounts that nova-compute reserves."""
    return model.Provider('rp', **{'inventories': {
        VCPU: model.Inventory(8, reserved=1, allocation_ratio=2.0),
        MEMORY: model.Inventory(8192, reserved=512),
        DISK: model.Inventory(100, reserved=10)}, **fields})


def limit_of(host, claims, **options):
    request = test_failover.small(1, [], **options)
    instance = model.Instance('a', 'h0', claims=claims)
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, hosts={**request.cluster.hosts, 'h1': host}, instances={'a': instance}))
    return failover_reserve.compute_boot_limits(certificate_of(
        request, verdict_of({'a': 'h1'}, 'h0'))).get('h1')


CLAIMS = {VCPU: 3, MEMORY: 1024, DISK: 20}


def test_limit_counts_reserved_amounts_as_nova_compute_does():
    # (8 - 1) * 2 + 1 - 3; 8192 - 1024; 100 - 20.
    assert limit_of(model.Host('h1', provider=rich()), CLAIMS) == model.BootLimit(12, 7168, 80)


def test_classes_that_no_place_needs_have_no_limit():
    assert limit_of(model.Host('h1', provider=rich()), {MEMORY: 1024, DISK: 0}) == model.BootLimit(
        memory_mb=7168)


def test_disks_have_no_limit_where_they_are_not_enforced():
    assert limit_of(model.Host('h1', provider=rich()), CLAIMS, enforce_placement_disk=False) == (
        model.BootLimit(12, 7168))


@pytest.mark.parametrize('nested', [False, True])
def test_vcpus_have_no_limit_where_a_provider_has_dedicated_cpus(nested):
    """nova-compute reports both as one number, and a boot may ask for either."""
    dedicated = {'PCPU': model.Inventory(56)}
    host = (model.Host('h1', provider=rich(), nested=(model.Provider('n', inventories=dedicated),))
            if nested else
            model.Host('h1', provider=rich(inventories={**rich().inventories, **dedicated})))
    assert limit_of(host, CLAIMS) == model.BootLimit(memory_mb=7168, disk_gb=80)


def test_no_limit_is_negative():
    """An overcommitted host may have less than its reserve; a record refuses such a number."""
    claims = {VCPU: 90, MEMORY: 90_000, DISK: 900}
    assert limit_of(model.Host('h1', provider=rich()), claims) == model.BootLimit(0, 0, 0)


@pytest.mark.parametrize('host', [
    model.Host('h1'), model.Host('h1', provider=model.Provider('rp')),
    model.Host('h1', provider=rich(), nested=(model.Provider('rp-n', inventories={
        name: model.Inventory(1) for name in failover_reserve.CLASSES}),))])
def test_host_whose_root_does_not_serve_a_class_alone_has_no_limit(host):
    assert limit_of(host, CLAIMS) is None


def state_of(host):
    """HostState as nova-compute fills it."""
    root = host.provider

    def used(name):
        inventory = root.inventories.get(name)
        return 0 if inventory is None else inventory.reserved + root.used.get(name, 0)

    total = 1_000_000  # nova-compute's own: the limits do not depend on it
    return nova_fakes.HostState(
        host.name, vcpus_used=used(VCPU), total_usable_ram_mb=total,
        free_ram_mb=total - used(MEMORY), disk_mb_used=1024 * used(DISK))


def judge_with(limits):
    """Return the filter's judgement: the hosts that a boot with these claims may go to."""
    door = nova_fakes.FakeDoor(limits=limits, failover_reserve='keep')
    judge = capacity.KronosCapacityFilter().judge

    def list_passing(cluster, claims):
        states = [state_of(cluster.hosts[h]) for h in sorted(cluster.scope_hosts)
                  if cluster.hosts[h].provider is not None]
        spec = nova_fakes.spec(vcpus=claims[VCPU], memory_mb=claims[MEMORY], root_gb=claims[DISK])
        with door.opened():
            return [s.host for s in judge(states, spec, False)]

    return list_passing


def boot(cluster, name, host, claims):
    """Charge the root alone, as Placement does where it has all classes."""
    record = cluster.hosts[host]
    used = {c: record.provider.used.get(c, 0) + claims.get(c, 0)
            for c in record.provider.used.keys() | claims.keys()}
    instance = model.Instance(name, host, vcpus=claims[VCPU], memory_mb=claims[MEMORY],
                              claims=claims, allocations={record.provider.uuid: claims})
    return dataclasses.replace(
        cluster, instances={**cluster.instances, name: instance},
        hosts={**cluster.hosts, host: dataclasses.replace(
            record, provider=dataclasses.replace(record.provider, used=used))})


def has_room(host, claims):
    root = host.provider
    return all(name in root.inventories and root.used.get(name, 0) + amount
               <= root.inventories[name].capacity
               and not any(name in n.inventories for n in host.nested)
               for name, amount in claims.items())


def fill(cluster, limits, rng, count):
    """Boot instances of random sizes where Placement has room and the filter lets them pass."""
    booted, list_passing = 0, judge_with(limits)
    for n in range(count):
        claims = {VCPU: rng.choice([1, 2, 4]), MEMORY: 1024 * rng.choice([1, 2, 8]),
                  DISK: rng.choice([1, 10])}
        hosts = [h for h in list_passing(cluster, claims)
                 if has_room(cluster.hosts[h], claims)]
        if hosts:
            cluster, booted = boot(cluster, f'new{n}', rng.choice(hosts), claims), booted + 1
    return cluster, booted


def find_lost_places(certificate, cluster):
    """Let the checker replay all cases beside the booted instances, which need no place."""
    request, new = certificate.request, cluster.instances.keys() - (
        certificate.request.cluster.instances.keys())
    return failover_checker.check_places(
        {hosts: v.places for hosts, v in certificate.verdicts.items() if v.places},
        cluster, request.options, request.history, request.scores,
        sim.compute_ceilings(request.policies, request.options), excused=new.union(
            *(v.unplaced for v in certificate.verdicts.values())))


@pytest.mark.parametrize('source, alternates, h2, h3', [
    ('task', (), 1, 3), ('task', ('h3',), 1, 2), ('nova', (), 2, 3)])
def test_migrations_that_placement_does_not_charge_yet_keep_their_room(source, alternates, h2, h3):
    request = test_failover.small(4, [('a', 'h0', 2), ('b', 'h0', 1), ('c', 'h1', 1)])
    flight = model.InFlightMove('c', 'h1', 'h2', source=source, alternates=alternates)
    certificate = certificate_of(dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, flights=(flight,))), verdict_of({'a': 'h2', 'b': 'h3'}, 'h0'))
    assert failover_reserve.compute_boot_limits(certificate) == {
        'h2': model.BootLimit(vcpus=h2), 'h3': model.BootLimit(vcpus=h3)}


def test_alternates_of_a_task_keep_their_room_while_nova_migrates_to_its_destination():
    """Nova charges the destination alone; if the migration fails, the task tries an alternate."""
    request = test_failover.small(4, [('a', 'h0', 2), ('b', 'h0', 1), ('c', 'h1', 1)])
    flights = (model.InFlightMove('c', 'h1', 'h2'),
               model.InFlightMove('c', 'h1', 'h2', source='task', alternates=('h3',)))
    certificate = certificate_of(dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, flights=flights)), verdict_of({'a': 'h2', 'b': 'h3'}, 'h0'))
    assert failover_reserve.compute_boot_limits(certificate) == {
        'h2': model.BootLimit(vcpus=2), 'h3': model.BootLimit(vcpus=2)}


def test_moves_of_the_plan_keep_their_room_once():
    request = test_failover.small(3, [('a', 'h0', 1), ('b', 'h1', 1), ('c', 'h1', 1)])
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, flights=(model.InFlightMove('c', 'h1', 'h2', source='task'),)))
    certificate = certificate_of(request, verdict_of({'a': 'h2'}, 'h0'))
    moves = [model.Move(name, 'h1', 'h2', model.Phase.SPREAD) for name in ('b', 'c')]
    assert failover_reserve.compute_boot_limits(certificate, moves) == {
        'h2': model.BootLimit(vcpus=1)}


def test_limits_of_a_plan_are_those_of_its_tasks_in_the_next_cycle():
    request = test_failover.small(4, [('a', 'h0', 2), ('b', 'h0', 1), ('c', 'h1', 1)])
    verdict = verdict_of({'a': 'h2', 'b': 'h3'}, 'h0')
    move = model.Move('c', 'h1', 'h2', model.Phase.SPREAD, alternates=('h3',))
    planned = failover_reserve.compute_boot_limits(certificate_of(request, verdict), [move])
    under_way = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, flights=(model.InFlightMove('c', 'h1', 'h2', 'task', ('h3',)),)))
    assert planned == failover_reserve.compute_boot_limits(certificate_of(under_way, verdict))
    assert planned == {'h2': model.BootLimit(vcpus=1), 'h3': model.BootLimit(vcpus=2)}


def test_places_after_the_plan_keep_their_room_before_the_next_cycle():
    """Once b has left the drained h0, h2 must take b and d if h1 fails; today d alone."""
    request = test_failover_guard.with_mode(test_failover.small(3, [
        ('b', 'h0', 2), ('d', 'h1', 2)]), model.FailoverMode.ENFORCE)
    request = dataclasses.replace(request, history=dataclasses.replace(
        request.history, draining=frozenset({'h0'})))
    plan, certificate = planning_pipeline.keep_failover(
        request, test_failover_guard.plan_of(('b', 'h0', 'h1')))
    assert len(plan.moves) == 1
    assert failover_reserve.compute_boot_limits(certificate, plan.moves) == {
        'h2': model.BootLimit(vcpus=0)}


@clouds.examples(100)
@hypothesis.given(st.one_of(clouds.knobs(), clouds.knobs(trees=True)), st.integers(1, 2),
                  st.integers(0, 2**20))
@hypothesis.example(clouds.Knobs(0, hosts=2, instances=11, budget=7, hard_repairs=True,
                                clean=False, tight=True), 1, 0)
def test_boots_within_the_limits_take_no_place_away(knobs, count, seed):
    request = test_failover.enforce(clouds.request(knobs))
    certificate = test_failover.certify(request, count)
    hypothesis.assume(not find_lost_places(certificate, request.cluster))
    limits = failover_reserve.compute_boot_limits(certificate)
    cluster, _ = fill(request.cluster, limits, random.Random(seed), 20)
    assert find_lost_places(certificate, cluster) == {}


@pytest.mark.parametrize('seed', range(3))
def test_boots_without_the_limits_would_take_places_away(seed):
    request = test_failover.enforce(clouds.request(clouds.Knobs(1, hosts=5, instances=20)))
    certificate = test_failover.certify(request)
    limits = failover_reserve.compute_boot_limits(certificate)
    cluster, booted = fill(request.cluster, {}, random.Random(seed), 200)
    assert booted and find_lost_places(certificate, cluster)
    cluster, booted = fill(request.cluster, limits, random.Random(seed), 200)
    assert booted and find_lost_places(certificate, cluster) == {}


def test_one_unit_more_than_the_limit_takes_a_place():
    request = test_failover.small(2, [('a', 'h0', 2)])
    certificate = test_failover.certify(request)
    limits = failover_reserve.compute_boot_limits(certificate)
    assert limits == {'h1': model.BootLimit(vcpus=2)}
    for vcpus, passing in ((2, ['h0', 'h1']), (3, ['h0'])):
        claims = {VCPU: vcpus, MEMORY: 0, DISK: 0}
        assert judge_with(limits)(request.cluster, claims) == passing
        full = boot(request.cluster, 'new', 'h1', claims)
        assert bool(find_lost_places(certificate, full)) == (vcpus == 3)


def certify_and_fill(reserves):
    """Boot single vCPUs in rounds of one certificate each; return the reserved vCPUs by round.

    Three hosts of 10 have 6 in use each. The boots of the first round find a place each, and all
    three do not: then the hosts are unsafe.
    """
    request, found = test_failover.small(3, [
        (f'{h}{n}', h, 1) for h in ('h0', 'h1', 'h2') for n in range(6)], capacity=10), []
    for number in range(4):
        certificate = test_failover.certify(request)
        limits = failover_reserve.compute_boot_limits(reserves(certificate))
        cluster, list_passing = request.cluster, judge_with(limits)
        for n in range(12):
            claims = {VCPU: 1, MEMORY: 0, DISK: 0}
            hosts = [h for h in list_passing(cluster, claims)
                     if cluster.hosts[h].provider.used[VCPU] < 10]
            if hosts:
                host = min(hosts, key=lambda h: (cluster.hosts[h].provider.used[VCPU], h))
                cluster = boot(cluster, f'new{number}-{n}', host, claims)
        request = dataclasses.replace(request, cluster=cluster)
        found.append(sum(10 - h.provider.used[VCPU] for h in cluster.hosts.values()))
    return found


def test_unsafe_hosts_keep_their_reserve_else_boots_would_take_all():
    assert certify_and_fill(lambda c: c) == [9, 9, 9, 9]

    def only_safe(certificate):
        return dataclasses.replace(certificate, verdicts={
            v.hosts: v for v in certificate.list_verdicts(failover.FailureState.SAFE)})

    assert certify_and_fill(only_safe) == [9, 0, 0, 0]


def test_hosts_without_any_place_for_an_instance_have_no_say_in_the_limits():
    """An affinity group on one host has no place anywhere: its neighbours' places stay."""
    group = model.ServerGroup('g', model.GroupPolicy.AFFINITY, frozenset({'t1', 't2'}))
    request = test_failover.small(3, [('t1', 'h0', 1), ('t2', 'h0', 1), ('a', 'h0', 2)], [group])
    certificate = test_failover.certify(request)
    verdict = certificate.verdicts['h0',]
    assert verdict.unplaced.keys() == {'t1', 't2'} and {
        r.rule for r in verdict.unplaced.values()} <= failure_places.EVERYWHERE
    assert failover_reserve.compute_reserve(certificate) == {verdict.places['a']: {VCPU: 2}}
