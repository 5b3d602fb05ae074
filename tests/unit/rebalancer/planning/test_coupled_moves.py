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

"""What follows from spread moves of which one alone does harm: others first, or both or none."""

import dataclasses

import hypothesis
import pytest

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import coupled_moves
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import waves
from tests.scenarios import loader
from tests.unit import clouds
from tests.unit.rebalancer import brute

SWAPS = 'spread_swaps_where_no_single_move_helps'
X, Y, Z = (loader.uuid_of(name) for name in 'xyz')
#: x goes to b, y leaves b; each alone leaves a larger imbalance.
CHAIN = """
policies:
  - {name: cpu, weight: 1.0, threshold: 0.1, imbalance_query: cpu, vm_profile_query: vm}
hosts: {a: , b: , c: , d: }
scores: {cpu: {a: 0.9, b: 0.5, c: 0.3, d: 0.5}}
instances:
  x: {at: a, usage: {cpu: 0.5}}
  y: {at: b, usage: {cpu: 0.4}}
  z: {at: d, usage: {cpu: 0.001}}
"""


def simulate(request):
    return sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                          request.options)


def harm(request, made, more):
    """What ``more`` does when these have been made: the rise of the combined imbalance, or of
    imbalances above their thresholds."""
    simulation = simulate(request)
    for move in made:
        simulation.apply_move(move)
    combined, limits = simulation.compute_combined(), simulation.compute_imbalances().clip(
        simulation.thresholds)
    for move in more:
        simulation.apply_move(move)
    above = (simulation.compute_imbalances() - limits).clip(0.0)
    return max(simulation.compute_combined() - combined, float(simulation.weights @ above))


def requested(tmp_path, text):
    path = tmp_path / 'scenario.yaml'
    path.write_text('title: t\nexpect: {}\n' + text)
    return loader.load(path).request


def move(uuid, from_host, to_host, phase=model.Phase.SPREAD):
    return model.Move(uuid, from_host, to_host, phase)


def paired(request, *moves, change=lambda move: move):
    """By instance, and the swaps."""
    simulation = simulate(request)
    for one in moves:
        simulation.apply_move(one)
    view = cluster_view.ClusterView(request.cluster, request.options, request.history,
                                    request.scores, simulation.ceilings)
    ordered = waves.order_moves(view, moves, max_alternates=1)
    assert not ordered.dropped
    before = simulation.score.copy()
    found, swaps = coupled_moves.pair_harmful_moves(simulation, view,
                                                    tuple(map(change, ordered.moves)))
    assert (simulation.score == before).all()
    plan = model.Plan(request.cluster.scope, found, swaps=swaps)
    assert checker.check(plan, request.cluster, request.options, request.history, request.scores,
                         simulation.ceilings, 9) == ()
    return {m.instance_uuid: m for m in found}, swaps


def test_two_that_do_harm_each_are_a_pair_and_the_lesser_evil_goes_first(tmp_path):
    request = requested(tmp_path, CHAIN)
    moves, swaps = paired(request, move(Y, 'b', 'c'), move(X, 'a', 'b'), move(Z, 'd', 'a'))
    assert swaps == (model.Swap(X, Y),)
    assert moves[Y].requires == (X,) and moves[X].requires == moves[Z].requires == ()
    assert [moves[u].wave for u in (X, Y, Z)] == [0, 1, 0]
    assert moves[X].alternates == moves[Y].alternates == ()


def test_one_that_does_harm_alone_waits_for_one_that_does_none(tmp_path):
    """When that fails it is cancelled; nothing has to go back."""
    request = requested(tmp_path, CHAIN.replace('b: 0.5', 'b: 0.65').replace(
        'cpu: 0.4', 'cpu: 0.3'))
    moves, swaps = paired(request, move(X, 'a', 'b'), move(Y, 'b', 'c'))
    assert swaps == () and moves[X].requires == (Y,) and moves[Y].requires == ()
    assert (moves[Y].wave, moves[X].wave) == (0, 1)
    assert moves[Y].alternates


def test_a_harm_that_scores_can_feign_binds_nothing(tmp_path):
    text = CHAIN
    for large, small in (('0.9', '0.309'), ('b: 0.5', 'b: 0.305'), ('c: 0.3', 'c: 0.303'),
                         ('d: 0.5', 'd: 0.305'), ('0.5}', '0.005}'), ('0.4}', '0.004}')):
        text = text.replace(large, small)
    request = requested(tmp_path, text)
    assert 0 < harm(request, [], [move(X, 'a', 'b')]) < coupled_moves.LEAST
    moves, swaps = paired(request, move(X, 'a', 'b'), move(Y, 'b', 'c'))
    assert swaps == () and not any(m.requires for m in moves.values())


def test_harm_is_what_a_single_move_is_refused_for_too(tmp_path):
    """The combined imbalance falls with each, but memory's rises above its threshold."""
    request = requested(tmp_path, """
policies:
  - {name: cpu, weight: 0.7, threshold: 0.1, imbalance_query: cpu, vm_profile_query: vm}
  - {name: memory, weight: 0.3, threshold: 0.1, imbalance_query: memory, vm_profile_query: vm}
hosts: {a: , b: }
scores: {cpu: {a: 0.6, b: 0.4}, memory: {a: 0.5, b: 0.5}}
instances:
  x: {at: a, usage: {cpu: 0.1, memory: 0.15}}
  y: {at: b, usage: {cpu: 0.01, memory: 0.15}}
""")
    simulation = simulate(request)
    before = simulation.compute_combined()
    simulation.apply_move(move(X, 'a', 'b'))
    assert simulation.compute_combined() < before
    _, swaps = paired(request, move(X, 'a', 'b'), move(Y, 'b', 'a'))
    assert swaps == (model.Swap(X, Y),)


def test_no_move_uses_the_first_ones_room_while_the_second_may_fail(tmp_path):
    request = requested(tmp_path, CHAIN)
    two = move(Y, 'b', 'c'), move(X, 'a', 'b'), move(Z, 'd', 'a')
    moves, swaps = paired(request, *two, change=lambda m: dataclasses.replace(
        m, requires=(X,), wave=1) if m.instance_uuid == Z else m)
    assert swaps == () and moves[Z].requires == (X,)


def test_a_move_that_requires_one_of_a_pair_requires_both():
    found = coupled_moves._MovePairing(None, [move(X, 'a', 'b'), dataclasses.replace(
        move(Y, 'b', 'c'), requires=(X,), wave=1)])
    assert found._collect_required_moves(X) == {X}
    found.swaps.append(model.Swap(X, Y))
    assert found._collect_required_moves(X) == found._collect_required_moves(Y) == {X, Y}


def test_a_move_without_a_legal_return_is_not_paired(tmp_path):
    """Its host has lost a trait that its flavor asks for."""
    text = CHAIN.replace('{a: , b: , c: , d: }', '{a: {traits: [T]}, b: {traits: [T, CUSTOM_A]}, '
                         'c: {traits: [T]}, d: }')
    there = text.replace('x: {at: a', 'x: {at: a, extra_specs: {"trait:CUSTOM_A": required}')
    assert paired(requested(tmp_path, text), move(X, 'a', 'b'), move(Y, 'b', 'c'))[1]
    moves, swaps = paired(requested(tmp_path, there), move(X, 'a', 'b'), move(Y, 'b', 'c'))
    assert swaps == () and not any(m.requires for m in moves.values())


def test_moves_that_are_not_for_balance_are_bound_to_nothing(tmp_path):
    request = requested(tmp_path, CHAIN)
    moves, swaps = paired(request, *(move(u, a, b, model.Phase.REQUESTED) for u, a, b in (
        (X, 'a', 'b'), (Y, 'b', 'c'))))
    assert swaps == () and not any(m.requires for m in moves.values())


def test_a_swap_where_no_single_move_helps_is_both_or_none():
    request = loader.load(loader.HERE / f'{SWAPS}.yaml').request
    plan = planner.plan(request)
    swap, = plan.swaps
    one, other = plan.moves
    assert {one.instance_uuid, other.instance_uuid} == {swap.first, swap.second}
    assert other.requires == (one.instance_uuid,) and (one.wave, other.wave) == (0, 1)
    assert one.alternates == other.alternates == ()
    assert 0 < harm(request, [], [one]) <= harm(request, [], [other])
    for dropped in (swap.first, swap.second):
        left = planner.drop_moves(request, plan, [dropped], 'why not')
        assert left.moves == () and left.swaps == ()


@pytest.mark.turns(2)
@clouds.examples(200)
@hypothesis.given(clouds.knobs(mode='spread', drains=False))
def test_pairs_are_legal_and_other_moves_stay_as_planned(knobs):
    """Held to the checker, and to the harm that a simulation shows."""
    request = clouds.request(knobs)
    plan = planner.plan(request)
    assert checker.check(plan, request.cluster, request.options, request.history, request.scores,
                         brute.ceilings_of(request), request.budget) == ()
    moves = {m.instance_uuid: m for m in plan.moves}
    first = [m for m in plan.moves if m.phase is not model.Phase.SPREAD]
    for swap in plan.swaps:
        one, other = moves[swap.first], moves[swap.second]
        made = first + [moves[u] for u in one.requires if moves[u] not in first]
        assert swap.parking is None and one.phase is other.phase is model.Phase.SPREAD
        assert harm(request, made, [one]) > coupled_moves.LEAST
        made += [moves[u] for u in other.requires if moves[u] not in [*made, one]]
        assert harm(request, made, [one, other]) <= coupled_moves.LEAST
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coupled_moves, 'pair_harmful_moves', lambda simulation, view,
                      moves: (moves, ()))
        alone = planner.plan(request)
    assert {(m.instance_uuid, m.to_host, m.phase) for m in alone.moves} == {
        (m.instance_uuid, m.to_host, m.phase) for m in plan.moves}
    assert alone.combined_after == plan.combined_after and alone.policies == plan.policies
    for m in alone.moves:
        assert set(m.requires) <= set(moves[m.instance_uuid].requires)


@pytest.mark.turns(2)
def test_of_moves_that_do_harm_no_other_one_would_spare_it():
    """No partner exists for a move outside a pair that its requirements do not make harmless."""
    harmful = bound = 0
    for seed in range(80):
        request = clouds.request(clouds.Knobs(seed=seed, hosts=5, instances=20, policies=2,
                                              budget=6))
        plan = planner.plan(request)
        moves = {m.instance_uuid: m for m in plan.moves}
        swapped = {u for s in plan.swaps for u in (s.first, s.second)}
        for one in plan.moves:
            made = [moves[u] for u in one.requires]
            alone = harm(request, [], [one]) > coupled_moves.LEAST
            harmful += alone
            if one.instance_uuid in swapped or harm(request, made, [one]) <= coupled_moves.LEAST:
                bound += alone
                continue
            for other in plan.moves:
                if other is one or one.instance_uuid in other.requires:
                    continue
                more = [moves[u] for u in {other.instance_uuid, *other.requires}
                        if moves[u] not in made]
                assert (not more or swapped & {m.instance_uuid for m in more}
                        or harm(request, made, more) > coupled_moves.LEAST
                        or harm(request, made + more, [one]) > coupled_moves.LEAST)
    assert harmful > 10 and bound > 0.7 * harmful


def test_the_objective_of_kronos_knows_no_pairs(tmp_path):
    request = requested(tmp_path, CHAIN)
    moves = (move(X, 'a', 'b'), move(Y, 'b', 'c'))
    assert paired(request, *moves)[1] == (model.Swap(X, Y),)
    found, swaps = paired(dataclasses.replace(request, options=dataclasses.replace(
        request.options, objective='kronos')), *moves)
    assert swaps == () and not any(m.requires for m in found.values())


def test_pairing_stops_at_its_limit_and_leaves_other_moves_unchanged(tmp_path, monkeypatch):
    request = requested(tmp_path, CHAIN)
    moves = (move(X, 'a', 'b'), move(Y, 'b', 'c'))
    monkeypatch.setattr(coupled_moves, 'MOST', 0)
    found, swaps = paired(request, *moves)
    assert swaps == () and not any(m.requires for m in found.values())


class Table:
    """Harm by table: each move does harm until one of the listed moves is made."""

    is_used_up = False

    def __init__(self, uuids, **remedies):
        self.list_instances, self.remedies = list(uuids), remedies

    def compute_harm(self, made, more):
        return sum(1.0 for u in more if u in self.remedies
                   and not self.remedies[u] & (made | more))

    def does_harm(self, made, more):
        return self.compute_harm(made, more) > 0


def made(phase=model.Phase.SPREAD, **needs):
    return [dataclasses.replace(move(u, 'a', 'b'), requires=tuple(found))
            for u, found in needs.items()]


def always(first, second, needs):
    return True


def test_requirements_of_drains_and_repairs_get_no_new_requirements():
    harm = Table('uv', u={'v'})
    free = coupled_moves._MovePairing(harm, made(v='', u='', w='u'))
    assert free.bind_move() and free.needs['w'] == {'u', 'v'}
    drain = dataclasses.replace(move('d', 'a', 'b', model.Phase.EVACUATE), requires=('u',))
    held = coupled_moves._MovePairing(harm, [*made(v='', u=''), drain])
    assert not held.bind_move() and not held.pair_moves(always) and held.needs['d'] == {'u'}


def test_the_first_of_a_pair_waits_for_the_requirements_of_the_second():
    harm = Table('xy', x={'y'}, y={'x'})
    found = coupled_moves._MovePairing(harm, made(z='', y='z', x=''))
    assert found.pair_moves(always)
    swap, = found.swaps
    assert {swap.first, swap.second} == {'x', 'y'}
    assert found.needs[swap.first] == {'z'} and found.needs[swap.second] == {'z', swap.first}


def test_the_return_check_gets_all_requirements_of_the_pair():
    harm = Table('xy', x={'y'}, y={'x'})
    found = coupled_moves._MovePairing(harm, made(z='', y='z', x=''))
    asked = []

    def never(first, second, needs):
        asked.append((set(needs[first]), set(needs[second]) - {first}))
        return False

    before = {uuid: set(needs) for uuid, needs in found.needs.items()}
    assert not found.pair_moves(never) and found.needs == before and found.swaps == []
    assert asked and all(first == second == {'z'} for first, second in asked)


def test_a_chain_of_waits_ends_somewhere():
    names = 'abcdefgh'
    harm = Table(names, **{u: {before} for before, u in zip(names, names[1:], strict=False)})
    found = coupled_moves._MovePairing(harm, made(**dict.fromkeys(names, '')))
    while found.bind_move():
        pass
    depths = found._count_chain_depths(found.needs)
    assert max(depths.values()) == coupled_moves.DEEPEST
    assert [u for u in names if found.needs[u]] == list('bcd'), 'the rest is as it was planned'
