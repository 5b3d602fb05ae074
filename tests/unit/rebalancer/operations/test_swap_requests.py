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

"""Two instances change places, both or none: legal at every step, and on the way back."""

import dataclasses
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.rebalancer.operations import swap_requests
from kronos_nova.rebalancer.planning import planning_pipeline
from tests.unit import clouds
from tests.unit.rebalancer import brute
from tests.unit.rebalancer.planning import test_failover
from tests.unit.rebalancer.planning import test_failover_guard


def pair(request, rng):
    """Two instances of different hosts of the scope."""
    found = sorted(u for u, i in request.cluster.instances.items()
                   if i.host in request.cluster.scope_hosts)
    hypothesis.assume(len({request.cluster.instances[u].host for u in found}) > 1)
    one = rng.choice(found)
    return one, rng.choice([u for u in found if request.cluster.instances[u].host
                            != request.cluster.instances[one].host])


@clouds.examples(400)
@hypothesis.given(clouds.knobs(), st.randoms(use_true_random=False))
def test_each_requested_swap_is_planned_or_refused_with_a_reason(knobs, rng):
    """swapping.plan checks its own plan: an illegal one raises."""
    request = clouds.request(knobs)
    uuids = pair(request, rng)
    answer = swap_requests.plan_swap(request, uuids)
    if answer.refused:
        assert answer.refused.keys() == set(uuids) and not answer.plan.moves
        return
    one, other = answer.plan.moves
    swap, = answer.plan.swaps
    assert (one.instance_uuid, other.instance_uuid) == (swap.first, swap.second)
    assert other.to_host == one.from_host and other.requires == (swap.first,)
    assert one.to_host == (swap.parking or other.from_host)


@clouds.examples(300)
@hypothesis.given(clouds.knobs(tight=True, clean=True), st.randoms(use_true_random=False))
def test_no_state_on_the_way_or_on_the_way_back_breaks_a_rule(knobs, rng):
    request = clouds.request(knobs)
    answer = swap_requests.plan_swap(request, pair(request, rng))
    for swap in answer.plan.swaps:
        assert illegal_state(request, answer.plan, swap) is None


def illegal_state(request, plan, swap):
    """By enumeration, with no rule of ours."""
    judge = brute.Brute(request, plan, brute.ceilings_of(request))
    back = brute.Brute(request, plan, {})
    one, other = plan.moves
    onward = dataclasses.replace(one, from_host=one.to_host, to_host=other.from_host)
    parked, gone = ('landed', one.to_host), ('landed', other.to_host)
    steps = [(judge, one, {}), (judge, other, {swap.first: parked}),
             (back, reverse(one), {swap.first: parked})]
    if swap.parking is not None:
        both = {swap.first: parked, swap.second: gone}
        steps += [(judge, onward, both), (back, reverse(other), both)]
    return next((why for who, move, state in steps
                 if (why := who.illegal(move, move.to_host, state))), None)


def reverse(move):
    return dataclasses.replace(move, from_host=move.to_host, to_host=move.from_host)


@clouds.examples(300)
@hypothesis.given(clouds.knobs(tight=True), st.randoms(use_true_random=False))
def test_none_is_refused_that_some_order_or_parking_host_allows(knobs, rng):
    request = clouds.request(knobs)
    uuids = pair(request, rng)
    answer = swap_requests.plan_swap(request, uuids)
    hypothesis.assume(answer.refused and answer.plan.reason is None)
    asked = requested_moves.remove_delays(request, 2)
    view = sim.Simulation(asked.cluster, asked.scores, asked.policies, asked.history,
                          asked.options).view
    home = {uuid: request.cluster.instances[uuid].host for uuid in uuids}
    for first, second in (uuids, uuids[::-1]):
        for via in [home[second], *(request.cluster.scope_hosts - set(home.values()))]:
            assert not goes(view, home, first, second, via)


def goes(view, home, first, second, via):
    legs = [(first, home[first], via), (second, home[second], home[first])]
    if via != home[second]:
        legs.append((first, via, home[second]))
    done, good = [], True
    for n, (uuid, source, to_host) in enumerate(legs):
        move = model.Move(uuid, source, to_host, model.Phase.REQUESTED)
        good = good and constraints.judge_move(view, move) is None
        if good:
            view.land_move(move)
            done.append(move)
            good = n + 1 == len(legs) or constraints.judge_move(view, reverse(move), [
                r for r in constraints.RULES
                if r not in (metrics.CEILING_RULE, metrics.SCORED_RULE)]) is None
    for move in reversed(done):
        view.undo_landing(move)
    return good


def cloud(sizes, claims, at, groups=()):
    """Hosts with so many VCPU; instances i0, i1 ... with such claims on these hosts."""
    instances = {f'i{n}': model.Instance(f'i{n}', host, claims={'VCPU': amount},
                                         memory_mb=1024 * amount)
                 for n, (amount, host) in enumerate(zip(claims, at, strict=True))}
    hosts = {name: model.Host(name, uuid=name, provider=model.Provider(
        name, inventories={'VCPU': model.Inventory(size)}, used={'VCPU': sum(
            i.claims['VCPU'] for i in instances.values() if i.host == name)}))
        for name, size in sizes.items()}
    request = clouds.request(clouds.Knobs(seed=1, hosts=2, instances=2))
    cluster = model.Cluster(hosts, instances, {name: model.Service(name) for name in hosts},
                            scope='scope', scope_hosts=frozenset(hosts), groups=groups)
    scores = model.ClusterScores({p.name: model.PolicyScores(
        p.name, dict.fromkeys(hosts, 0.5), dict.fromkeys(hosts, 0.1), dict.fromkeys(hosts, 80.0),
        {u: float(i.claims['VCPU']) for u, i in instances.items()})
        for p in request.policies.enabled_policies})
    return dataclasses.replace(request, cluster=cluster, scores=scores,
                               options=model.PlanningOptions(),
                               history=model.MoveHistory())


def legs(answer):
    return [(m.instance_uuid, m.from_host, m.to_host, m.wave) for m in answer.plan.moves]


def test_the_one_begins_for_which_there_is_room():
    request = cloud({'a': 5, 'b': 4}, [4, 1], 'ab')
    answer = swap_requests.plan_swap(request, ('i0', 'i1'))
    assert legs(answer) == [('i1', 'b', 'a', 0), ('i0', 'a', 'b', 1)]
    assert answer.plan.swaps == (model.Swap('i1', 'i0'),)
    assert answer.plan.moves[1].requires == ('i1',)


def test_a_swap_of_full_hosts_parks_the_lighter_instance_elsewhere():
    request = cloud({'a': 4, 'b': 4, 'c': 8, 'd': 8}, [4, 3, 1, 1], 'abbc')
    answer = swap_requests.plan_swap(request, ('i0', 'i1'))
    assert answer.refused, 'i2 is in the way'
    request = cloud({'a': 4, 'b': 4, 'c': 8, 'd': 8}, [4, 3, 1], 'abc')
    request = dataclasses.replace(request, scores=model.ClusterScores({
        name: dataclasses.replace(found, fill={'a': 0.1, 'b': 0.1, 'c': 0.3, 'd': 0.2})
        for name, found in request.scores.policies.items()}))
    answer = swap_requests.plan_swap(request, ('i0', 'i1'))
    assert legs(answer) == [('i1', 'b', 'd', 0), ('i0', 'a', 'b', 1)]
    assert answer.plan.swaps == (model.Swap('i1', 'i0', 'd'),)
    assert legs(swap_requests.plan_swap(request, ('i0', 'i1'), 'c'))[0][2] == 'c'


def test_the_figures_afterwards_have_both_where_they_are_to_go():
    request = cloud({'a': 4, 'b': 4, 'c': 8}, [4, 3], 'ab')
    answer = swap_requests.plan_swap(request, ('i0', 'i1'))
    simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                request.history, request.options)
    before = simulation.compute_combined()
    simulation.apply_move(model.Move('i0', 'a', 'b', model.Phase.REQUESTED))
    simulation.apply_move(model.Move('i1', 'b', 'a', model.Phase.REQUESTED))
    assert answer.plan.combined_after == pytest.approx(simulation.compute_combined())
    assert sum(m.improvement for m in answer.plan.moves) == pytest.approx(
        before - simulation.compute_combined())


def test_members_of_an_anti_affinity_group_change_places_by_a_third_host():
    group = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset({'i0', 'i1'}))
    request = cloud({'a': 9, 'b': 9, 'c': 9}, [1, 1], 'ab', (group,))
    assert swap_requests.plan_swap(request,
                                   ('i0', 'i1')).plan.swaps == (model.Swap('i0', 'i1', 'c'),)
    alone = cloud({'a': 9, 'b': 9}, [1, 1], 'ab', (group,))
    refused = swap_requests.plan_swap(alone, ('i0', 'i1')).refused
    assert refused['i0'].rule == 'anti-affinity' and 'no third host' in refused['i1'].detail


def refuse_room(host, left, uuid, needed):
    return (f'no-room: resource provider {host} of host {host} has {left} VCPU left, '
            f'instance {uuid} needs {needed}')


def test_refusal_names_the_reason_against_each_order():
    no_third = swap_requests.plan_swap(cloud({'a': 4, 'b': 4}, [4, 3], 'ab'), ('i0', 'i1'))
    directly = (f'directly: instance i0 first: {refuse_room("b", 1, "i0", 4)}; '
                f'instance i1 first: {refuse_room("a", 0, "i1", 3)}')
    expected = model.Rejection('no-room', f'{directly}; no third host exists')
    assert no_third.refused == {'i0': expected, 'i1': expected}
    # i1 has less memory and would wait first; of parking hosts the last one is named.
    small = swap_requests.plan_swap(cloud({'a': 4, 'b': 4, 'c': 1, 'd': 2}, [4, 3], 'ab'),
                                    ('i0', 'i1'))
    assert small.refused['i1'].detail == (
        f'{directly}; by parking host d: instance i1 first: {refuse_room("d", 2, "i1", 3)}; '
        f'instance i0 first: {refuse_room("d", 2, "i0", 4)}')


def test_refusal_names_a_reason_once_that_holds_for_each_order():
    request = cloud({'a': 9, 'b': 9, 'c': 9}, [4, 3], 'ab')
    instances = dict(request.cluster.instances)
    instances['i0'] = dataclasses.replace(instances['i0'], locked=True)
    answer = swap_requests.plan_swap(dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances=instances)), ('i0', 'i1'))
    assert answer.refused['i0'] == model.Rejection(
        'locked', 'directly: locked: instance i0 is locked by its owner; by parking host c: '
                  'locked: instance i0 is locked by its owner')


def test_refusal_of_each_instance_has_the_rule_against_its_order():
    """Host b has no room for i0 before i1 is gone; the group of i1 has an instance on host a."""
    request = cloud({'a': 9, 'b': 4}, [4, 3], 'ab')
    group = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset({'i1', 'x'}))
    answer = swap_requests.plan_swap(dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, groups=(group,), instances={
            **request.cluster.instances, 'x': model.Instance('x', 'a')})), ('i0', 'i1'))
    assert {uuid: no.rule for uuid, no in answer.refused.items()} == {
        'i0': 'no-room', 'i1': 'anti-affinity'}
    details = {no.detail for no in answer.refused.values()}
    detail = details.pop()
    assert not details and 'i0 first: no-room: ' in detail and 'i1 first: anti-affinity: ' in detail


def test_an_instance_that_may_not_return_moves_last():
    """Of i0 no rule would let it onto its own host again."""
    request = cloud({'a': 9, 'b': 9, 'c': 9}, [1, 1], 'ab')
    group = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset({'i0', 'x'}))
    cluster = dataclasses.replace(request.cluster, groups=(group,), instances={
        **request.cluster.instances, 'x': model.Instance('x', 'a')})
    answer = swap_requests.plan_swap(dataclasses.replace(request, cluster=cluster), ('i0', 'i1'))
    assert answer.plan.swaps == (model.Swap('i1', 'i0'),), 'i0 moves last, and never back'


@pytest.mark.parametrize(('uuids', 'parking', 'said'), [
    (('i0', 'gone'), None, 'no such instance'),
    (('i0', 'i2'), None, 'they are on one host'),
    (('i0', 'i1'), 'b', 'it is no third host of scope scope'),
    (('i0', 'i1'), 'nowhere', 'it is no third host'),
    (('i0', 'out'), None, 'its host z is not in scope scope')])
def test_error_about_an_impossible_swap_names_the_cause(uuids, parking, said):
    request = cloud({'a': 9, 'b': 9}, [1, 1, 1], 'aba')
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances={**request.cluster.instances,
                                    'out': model.Instance('out', 'z')}))
    with pytest.raises(exception.ConfigError, match=said):
        swap_requests.plan_swap(request, uuids, parking)


def test_a_pause_holds_it_and_cooldowns_do_not():
    request = cloud({'a': 9, 'b': 9}, [1, 1], 'ab')
    held = dataclasses.replace(request, history=model.MoveHistory(paused='a change'))
    answer = swap_requests.plan_swap(held, ('i0', 'i1'))
    assert answer.plan.reason == 'a change' and answer.refused.keys() == {'i0', 'i1'}
    cooling = dataclasses.replace(request, history=model.MoveHistory(
        cooling={'i0': 600.0}, scope_cooling=300.0))
    assert swap_requests.plan_swap(cooling, ('i0', 'i1')).plan.swaps


# What the checker says of swaps that somebody else made.


def checked(request, moves, swaps):
    return {no.rule for no in checker.check(
        model.Plan('scope', tuple(moves), swaps=tuple(swaps)), request.cluster, request.options,
        request.history, request.scores, {}, 9)}


ONE = model.Move('i0', 'a', 'b', model.Phase.REQUESTED)
OTHER = model.Move('i1', 'b', 'a', model.Phase.REQUESTED, requires=('i0',), wave=1)


@pytest.mark.parametrize('broken', [
    ([ONE], [model.Swap('i0', 'i1')]),
    ([ONE, OTHER], [model.Swap('i0', 'i1'), model.Swap('i0', 'i1')]),
    ([ONE, dataclasses.replace(OTHER, requires=(), wave=0)], [model.Swap('i0', 'i1')]),
    ([dataclasses.replace(ONE, to_host='c'), OTHER], [model.Swap('i0', 'i1')]),
    ([ONE, dataclasses.replace(OTHER, to_host='c')], [model.Swap('i0', 'i1')]),
    ([ONE, OTHER], [model.Swap('i0', 'i1', 'c')]),
    ([dataclasses.replace(ONE, alternates=('c',)), OTHER], [model.Swap('i0', 'i1')]),
    ([dataclasses.replace(ONE, to_host='c'), OTHER, model.Move(
        'i2', 'c', 'd', model.Phase.REQUESTED)], [model.Swap('i0', 'i1', 'c')]),
    ([ONE, OTHER, model.Move('i2', 'c', 'a', model.Phase.REQUESTED, requires=('i0',), wave=1)],
     [model.Swap('i0', 'i1')])])
def test_the_checker_refuses_an_invalid_swap(broken):
    request = cloud(dict.fromkeys('abcd', 9), [1, 1, 1], 'abc')
    assert 'no-swap' in checked(request, *broken)
    assert checked(request, [ONE, OTHER], [model.Swap('i0', 'i1')]) == set()


def test_the_checker_replays_the_way_back_and_the_way_on():
    request = cloud(dict.fromkeys('abc', 9), [1, 1], 'ab')
    group = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY, frozenset({'i0', 'x'}))
    beside = {host: dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, groups=(group,), instances={
            **request.cluster.instances, 'x': model.Instance('x', host)})) for host in 'ab'}
    assert checked(beside['a'], [ONE, OTHER], []) == set()
    assert checked(beside['a'], [ONE, OTHER], [model.Swap('i0', 'i1')]) == {'anti-affinity'}
    parked = dataclasses.replace(ONE, to_host='c')
    assert checked(beside['b'], [parked, OTHER], []) == set()
    assert checked(beside['b'], [parked, OTHER], [model.Swap('i0', 'i1', 'c')]) == {
        'anti-affinity'}
    other = dataclasses.replace(group, members=frozenset({'i1', 'x'}))
    back = dataclasses.replace(beside['b'], cluster=dataclasses.replace(
        beside['b'].cluster, groups=(other,)))
    assert checked(back, [parked, OTHER], [model.Swap('i0', 'i1', 'c')]) == {'anti-affinity'}


@pytest.mark.parametrize('seed', range(clouds.many(200)))
def test_the_checker_and_enumeration_agree_on_swaps_at_random(seed):
    rng = random.Random(seed)
    request = brute.without_history(clouds.request(clouds.Knobs(
        seed=seed, hosts=rng.randint(3, 4), instances=rng.randint(6, 16),
        groups=rng.randint(0, 4), tight=rng.random() < 0.8, clean=True)))
    found = sorted(request.cluster.instances.values(), key=lambda i: i.uuid)
    one = rng.choice([i for i in found if any(i.host != other.host for other in found)])
    other = rng.choice([i for i in found if i.host != one.host])
    third = sorted(request.cluster.scope_hosts - {one.host, other.host})
    parking = rng.choice([None, *third])
    moves = [model.Move(one.uuid, one.host, parking or other.host, model.Phase.REQUESTED),
             model.Move(other.uuid, other.host, one.host, model.Phase.REQUESTED, wave=1,
                        requires=(one.uuid,))]
    swap = model.Swap(one.uuid, other.uuid, parking)
    plan = model.Plan(request.cluster.scope, tuple(moves), swaps=(swap,))
    wrong = checker.check(plan, request.cluster, request.options, request.history,
                          request.scores, brute.ceilings_of(request), 2)
    assert bool(wrong) == (illegal_state(request, plan, swap) is not None), wrong


def swap_under(mode):
    """Swap 3 vCPUs of h0 and 1 of h1; the 4 of h2 have their place beside the latter alone."""
    return swap_requests.plan_swap(test_failover_guard.with_mode(test_failover.small(3, [
        ('big', 'h0', 3), ('x', 'h0', 1), ('little', 'h1', 1), ('c', 'h2', 4)], capacity=5), mode),
        ('big', 'little'))


def test_swap_that_breaks_the_certificate_is_refused_for_both_or_warned_of():
    refused = swap_under(model.FailoverMode.ENFORCE)
    assert not refused.plan.moves and {
        uuid: r.rule for uuid, r in refused.refused.items()} == dict.fromkeys(
            ('big', 'little'), 'breaks-failover')
    warned = swap_under(model.FailoverMode.WARN)
    assert len(warned.plan.moves) == 2 and 'breaks-failover' in warned.plan.warnings[-1]
    unjudged = swap_under(model.FailoverMode.OFF)
    assert unjudged.plan == dataclasses.replace(warned.plan, warnings=())


def test_certificate_of_a_parked_swap_is_about_its_end(monkeypatch):
    judged = []

    def keep_failover(_request, plan, _certificate):
        judged.extend((m.instance_uuid, m.from_host, m.to_host) for m in plan.moves)
        return plan, None

    monkeypatch.setattr(planning_pipeline, 'keep_failover', keep_failover)
    answer = swap_requests.plan_swap(cloud({'a': 4, 'b': 4, 'c': 8}, [4, 3], 'ab'), ('i0', 'i1'))
    assert answer.plan.moves[0].to_host == 'c'
    assert judged == [('i1', 'b', 'a'), ('i0', 'a', 'b')]
