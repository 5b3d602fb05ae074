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

"""The checker says no to every plan that somebody has tampered with."""

import collections
import dataclasses
import os
import random

import hypothesis
import pytest

from kronos_nova import model
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import planner
from tests.unit import clouds
from tests.unit.rebalancer import brute


def verdict(request, plan, **changes):
    pack = request.policies.mode == 'pack'
    ceilings = {p.name: p.capacity_threshold if pack else 1.0 for p in request.policies.enabled}
    arguments = {'cluster': request.cluster, 'options': request.options,
                 'history': request.history, 'scores': request.scores, 'ceilings': ceilings,
                 'budget': request.budget} | changes
    return {no.rule for no in checker.check(plan, **arguments)}


def altered(plan, number=0, **changes):
    moves = list(plan.moves)
    moves[number] = dataclasses.replace(moves[number], **changes)
    return dataclasses.replace(plan, moves=tuple(moves))


@pytest.fixture(scope='module')
def good():
    """A request and its plan of several moves, which the checker passes."""
    for seed in range(200):
        request = clouds.request(clouds.Knobs(seed=seed, hosts=5, instances=20, budget=5))
        plan = planner.plan(request)
        if len(plan.moves) > 2 and all(m.alternates for m in plan.moves):
            assert verdict(request, plan) == set()
            return request, plan
    raise AssertionError('no cloud needs three moves')


def with_service(request, host, **changes):
    services = dict(request.cluster.services)
    services[host] = dataclasses.replace(services[host], **changes)
    return dataclasses.replace(request.cluster, services=services)


def with_instance(request, uuid, **changes):
    instances = dict(request.cluster.instances)
    instances[uuid] = dataclasses.replace(instances[uuid], **changes)
    return dataclasses.replace(request.cluster, instances=instances)


def test_more_moves_than_the_budget_are_refused(good):
    request, plan = good
    assert verdict(request, plan, budget=len(plan.moves) - 1) == {'over-budget'}


def test_an_instance_moved_twice_is_refused(good):
    request, plan = good
    twice = dataclasses.replace(plan, moves=(*plan.moves, plan.moves[0]))
    assert verdict(request, twice, budget=100) == {'moved-twice'}


def test_an_instance_that_nova_does_not_have_is_refused(good):
    request, plan = good
    assert verdict(request, altered(plan, instance_uuid=clouds.uuid_of('none'))) == {
        'no-such-instance'}


def test_a_move_from_where_the_instance_is_not_is_refused(good):
    request, plan = good
    other = next(h for h in request.cluster.hosts if h != plan.moves[0].from_host)
    assert verdict(request, altered(plan, from_host=other)) == {'moved-away'}


def test_a_move_to_the_same_host_is_refused(good):
    request, plan = good
    assert 'same-host' in verdict(request, altered(plan, to_host=plan.moves[0].from_host,
                                                   alternates=()))


def test_a_move_to_an_unknown_host_is_refused(good):
    request, plan = good
    assert {'out-of-scope', 'service-unknown'} <= verdict(request, altered(plan, to_host='nope'))


def test_a_move_out_of_the_scope_is_refused(good):
    request, plan = good
    cluster = dataclasses.replace(
        request.cluster, scope_hosts=request.cluster.scope_hosts - {plan.moves[0].to_host})
    assert 'out-of-scope' in verdict(request, plan, cluster=cluster)


@pytest.mark.parametrize('change, rule', [
    ({'state': 'down'}, 'service-down'), ({'forced_down': True}, 'service-down'),
    ({'status': 'disabled'}, 'service-disabled')])
def test_a_destination_whose_service_is_not_available_is_refused(good, change, rule):
    request, plan = good
    cluster = with_service(request, plan.moves[0].to_host, **change)
    assert rule in verdict(request, plan, cluster=cluster)


@pytest.mark.parametrize('change, rule', [
    ({'locked': True}, 'locked'), ({'status': 'SHUTOFF'}, 'not-active'),
    ({'task_state': 'rebooting'}, 'task-state'), ({'pinned': 'nested'}, 'pinned'),
    ({'pinned_zone': 'elsewhere'}, 'az-pinned'),
    ({'claims': {'VCPU': 100_000}}, 'no-room'), ({'claims': {'VGPU': 1}}, 'no-inventory')])
def test_an_instance_that_must_stay_is_refused(good, change, rule):
    request, plan = good
    cluster = with_instance(request, plan.moves[0].instance_uuid, **change)
    assert rule in verdict(request, plan, cluster=cluster)


def test_an_instance_in_flight_is_refused(good):
    request, plan = good
    move = plan.moves[0]
    flight = model.Flight(move.instance_uuid, move.from_host, None)
    cluster = dataclasses.replace(request.cluster, flights=(flight,))
    assert 'in-flight' in verdict(request, plan, cluster=cluster)


def test_cooling_quarantined_and_refusing_are_refused(good):
    request, plan = good
    move = plan.moves[0]
    for history, rule in (
            (model.History(cooling={move.instance_uuid: 1.0}), 'cooling'),
            (model.History(quarantined={move.instance_uuid: -1.0}), 'quarantined'),
            (model.History(quarantined_hosts=frozenset({move.to_host})), 'host-quarantined')):
        assert rule in verdict(request, plan, history=history)


def test_an_imbalance_move_on_untrusted_scores_is_refused(good):
    request, plan = good
    scores = model.Scores({n: dataclasses.replace(p, untrusted='old')
                           for n, p in request.scores.policies.items()})
    assert verdict(request, plan, scores=scores) == {'policy-untrusted'}


def filled(scores, **fills):
    return model.Scores({n: dataclasses.replace(p, fill={**p.fill, **fills})
                         for n, p in scores.policies.items()}, scores.taken_at)


def test_a_move_above_the_ceiling_is_refused_but_for_a_spread_from_where_it_is_worse(good):
    request, plan = good
    plan = dataclasses.replace(plan, moves=plan.moves[:1])
    low = {'cpu': 0.0}
    worse = filled(request.scores, **{plan.moves[0].from_host: 5.0})
    assert verdict(request, plan, ceilings=low, scores=worse) == set()
    better = filled(request.scores, **{plan.moves[0].from_host: 0.0})
    assert verdict(request, plan, ceilings=low, scores=better) == {'ceiling'}
    packed = altered(plan, phase=model.Phase.PACK)
    assert verdict(request, packed, ceilings=low, scores=worse) == {'ceiling'}


def test_a_move_to_a_host_being_drained_is_refused(good):
    request, plan = good
    drained = dataclasses.replace(plan, draining=frozenset({plan.moves[0].to_host}))
    assert 'host-draining' in verdict(request, drained)


def test_what_is_required_must_be_in_an_earlier_wave_of_the_plan(good):
    request, plan = good
    other = plan.moves[1].instance_uuid
    assert verdict(request, altered(plan, requires=(other,))) == {'wave-order'}
    assert verdict(request, altered(plan, requires=(clouds.uuid_of('none'),), wave=3)) == {
        'wave-order'}
    assert verdict(request, altered(plan, requires=(other,), wave=1)) == set()


def test_alternates_are_held_to_the_rules_too(good):
    request, plan = good
    assert 'same-host' in verdict(
        request, altered(plan, alternates=(plan.moves[0].from_host,)))
    host = plan.moves[0].alternates[0]
    cluster = with_service(request, host, status='disabled')
    assert 'service-disabled' in verdict(request, plan, cluster=cluster)


def test_two_members_of_a_group_at_once_are_refused(good):
    request, plan = good
    pair = frozenset(m.instance_uuid for m in plan.moves[:2])
    group = model.ServerGroup(clouds.uuid_of('g'), model.GroupPolicy.SOFT_AFFINITY, pair)
    cluster = dataclasses.replace(request.cluster, groups=(group,))
    assert verdict(request, plan, cluster=cluster) == {'group-in-flight'}


def test_anti_affinity_is_judged_with_everything_under_way(good):
    request, plan = good
    move = plan.moves[0]
    neighbour = next(u for u, i in request.cluster.instances.items()
                     if i.host == move.to_host
                     and u not in {m.instance_uuid for m in plan.moves})
    group = model.ServerGroup(clouds.uuid_of('g'), model.GroupPolicy.ANTI_AFFINITY,
                              frozenset({move.instance_uuid, neighbour}))
    cluster = dataclasses.replace(request.cluster, groups=(group,))
    assert verdict(request, plan, cluster=cluster) == {'anti-affinity'}


@clouds.examples(150)
@hypothesis.given(knobs=clouds.knobs(hard_repairs=True, soft_repairs=True, drains=True))
def test_a_plan_without_its_requirements_is_refused(knobs):
    """``requires`` is minimal: no move would be legal without its own."""
    request = clouds.request(knobs)
    plan = planner.plan(request)
    for number, move in enumerate(plan.moves):
        if move.requires:
            assert verdict(request, altered(plan, number, requires=())) != set()


@clouds.examples(100)
@hypothesis.given(knobs=clouds.knobs(tight=True))
def test_swapped_destinations_are_refused_when_a_rule_forbids_them(knobs):
    """Whatever the checker passes after tampering, brute force passes too."""
    request = clouds.request(knobs)
    plan = planner.plan(request)
    if len(plan.moves) < 2:
        return
    one, two = plan.moves[:2]
    swapped = altered(altered(plan, 0, to_host=two.to_host, alternates=()), 1,
                      to_host=one.to_host, alternates=())
    said = verdict(request, swapped)
    if two.to_host == one.from_host or one.to_host == two.from_host:
        assert 'same-host' in said
    if request.cluster.placement_known:
        for move in (m for m in swapped.moves[:2] if m.from_host != m.to_host):
            provider = request.cluster.hosts[move.to_host].provider
            need = request.cluster.instances[move.instance_uuid].claims['VCPU']
            inventory = provider.inventories['VCPU']
            if need + provider.used['VCPU'] > inventory.capacity and not move.requires:
                assert 'no-room' in said


def without_history(request):
    """What has just completed shifts the fill for a time; brute force does
    not model that."""
    return dataclasses.replace(
        request, history=dataclasses.replace(request.history, completed=()))


def shortened(plan, most=6, combinations=2500):
    """At most ``most`` moves that require nothing else, and fewer alternates
    until few enough combinations are left."""
    moves = list(plan.moves)[:most]
    for number in range(len(moves)):
        count = 1
        for m in moves:
            count *= 3 + 2 * len(m.alternates)
        if count > combinations:
            moves[number] = dataclasses.replace(moves[number], alternates=())
    return dataclasses.replace(plan, moves=tuple(moves))


def tampered(rng, request, plan):
    """A plan that somebody has changed in one or two places."""
    moves = list(plan.moves)
    hosts = sorted(request.cluster.scope_hosts)
    for _ in range(rng.choice([1, 1, 2])):
        n = rng.randrange(len(moves))
        kind = rng.choice(['swap', 'elsewhere', 'crowd', 'crowd', 'requires', 'wave', 'twice',
                           'alternate', 'alternate', 'other'])
        if kind == 'swap':
            o = rng.randrange(len(moves))
            moves[n], moves[o] = (
                dataclasses.replace(moves[n], to_host=moves[o].to_host, alternates=()),
                dataclasses.replace(moves[o], to_host=moves[n].to_host, alternates=()))
        elif kind == 'elsewhere':
            moves[n] = dataclasses.replace(moves[n], to_host=rng.choice(hosts), alternates=())
        elif kind == 'crowd':  # all to one host
            to = rng.choice(moves).to_host
            moves = [m if to == m.from_host else dataclasses.replace(m, to_host=to, alternates=())
                     for m in moves]
        elif kind == 'requires':
            bound = [m for m in moves if m.requires] or moves
            n = moves.index(rng.choice(bound))
            left = rng.sample(moves[n].requires, max(0, len(moves[n].requires) - 1))
            moves[n] = dataclasses.replace(moves[n], requires=tuple(left))
        elif kind == 'wave':
            bound = [m for m in moves if m.requires] or moves
            n = moves.index(rng.choice(bound))
            moves[n] = dataclasses.replace(moves[n], wave=0, requires=())
        elif kind == 'twice':
            moves.append(moves[n])
        elif kind == 'alternate':
            moves[n] = dataclasses.replace(moves[n], alternates=(rng.choice(hosts),))
        else:
            uuid = rng.choice(sorted(request.cluster.instances))
            host = request.cluster.instances[uuid].host
            if host in hosts:
                moves[n] = dataclasses.replace(moves[n], instance_uuid=uuid, from_host=host,
                                               alternates=())
    return dataclasses.replace(plan, moves=tuple(moves))


def ceilings_of(request):
    pack = request.policies.mode == 'pack'
    return {p.name: p.capacity_threshold if pack else 1.0 for p in request.policies.enabled}


def crowded(seed):
    """A small cloud without much room, with work to do."""
    rng = random.Random(seed)
    return without_history(clouds.request(clouds.Knobs(
        seed=seed, hosts=rng.randint(2, 4), instances=rng.randint(8, 22),
        groups=rng.randint(1, 5), policies=rng.randint(1, 2),
        mode=rng.choice(['spread', 'pack']), budget=6, drains=rng.random() < 0.5,
        hard_repairs=rng.random() < 0.7, soft_repairs=rng.random() < 0.3,
        clean=rng.random() < 0.7, tight=rng.random() < 0.8)))


def test_what_the_checker_passes_no_order_of_events_breaks():
    """The planner's own plans are passed and sound; tampered ones are refused
    at least when some state breaks a rule."""
    seen = collections.Counter()
    for seed in range(int(os.environ.get('KRONOS_TEST_EXAMPLES', '1')) * 300):
        request = crowded(seed)
        rng = random.Random(seed)
        plan = shortened(planner.plan(request), 5)
        if not plan.moves:
            continue
        assert verdict(request, plan) == set(), seed
        assert brute.Brute(request, plan, ceilings_of(request)).violation() is None, seed
        for _ in range(4):
            bad = shortened(tampered(rng, request, plan))
            limits = {n: c * rng.choice([1.0, 0.6]) for n, c in ceilings_of(request).items()}
            said = verdict(request, bad, budget=100, ceilings=limits)
            broken = brute.Brute(request, bad, limits).violation()
            assert said or not broken, (seed, broken)
            seen['refused' if said else 'passed'] += 1
            seen[(broken or 'sound').split(':')[0]] += 1
    assert seen['passed'] > 100, seen
    for why in ('anti-affinity', 'affinity', 'group in flight', 'no room', 'ceiling'):
        assert seen[why] >= 10, seen
