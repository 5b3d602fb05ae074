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


"""The parts of the search, each against the plain way to do it."""

import dataclasses
import itertools
import math
import random

import hypothesis
import numpy as np
import pytest

from kronos_nova import model
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.search import board as boards
from kronos_nova.rebalancer.search import choice
from kronos_nova.rebalancer.search import measure
from kronos_nova.rebalancer.search import portfolio
from kronos_nova.rebalancer.search import replay
from kronos_nova.rebalancer.search import ruin_recreate
from kronos_nova.rebalancer.search import soft_extremes
from kronos_nova.rebalancer.search import swaps
from tests.unit import clouds
from tests.unit.rebalancer.search import laid

SPREAD = {'mode': 'spread', 'drains': False, 'objective': 'balanced'}


def simulation(knobs, **options):
    request = clouds.request(knobs)
    return sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                          dataclasses.replace(request.options, **options))


def board(state, budget=5):
    return boards.SearchBoard(state, *choice.choose_candidates(state, budget), budget)


def legal_on(tried):
    """Rows and columns that the board would add."""
    return [(int(r), int(c)) for c, r in np.argwhere(np.isfinite(tried.bias))
            if tried.has_room(int(r), int(c))]


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(**SPREAD))
@hypothesis.example(knobs=clouds.Knobs(seed=307, hosts=3, instances=25, groups=2, policies=1,
                                       budget=5, clean=False))
def test_a_board_follows_the_simulation(knobs):
    """A board does not know ceilings: replay refuses moves above one."""
    state = simulation(knobs)
    if not state.trusted or not state.takers.any():
        return
    tried, rng = board(state), random.Random(knobs.seed)
    for _ in range(3):
        may = [(r, c) for r, c in legal_on(tried)
               if not state.mark_overfilling(tried.rows[[r]], tried.columns[[c]]).any()]
        if not may:
            break
        row, column = rng.choice(may)
        tried.place_row(row, column)
        moves = replay.apply_in_order(state, [(int(tried.rows[row]), int(tried.columns[column]))])
        assert len(moves) == 1, state.rejections
        assert np.allclose(tried.score, state.score)
        assert np.allclose(tried.measure.compute_imbalances(tried.score),
                           state.compute_imbalances())


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(**SPREAD))
def test_taking_moves_back_leaves_nothing(knobs):
    state = simulation(knobs)
    if not state.trusted or not state.takers.any():
        return
    tried, rng = board(state), random.Random(knobs.seed)
    before = tried.score.copy(), tried.bias.copy(), tried.compute_value()
    plans = [{}]
    for _ in range(4):
        may = legal_on(tried)
        if may:
            tried.place_row(*rng.choice(may))
        plans.append(dict(tried.plan))
    for plan in reversed(plans):
        tried.replace_plan(plan)
        assert tried.plan == plan
    assert np.allclose(tried.score, before[0])
    assert np.array_equal(tried.bias, before[1])
    assert math.isclose(tried.compute_value(), before[2], abs_tol=1e-9)


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(**{**SPREAD, 'tight': True}))
def test_the_predicted_overflow_of_an_addition_equals_the_later_one(knobs):
    state = simulation(knobs)
    if not state.trusted or not state.takers.any():
        return
    tried, rng = board(state), random.Random(knobs.seed)
    for _ in range(4):
        may = [(int(r), int(c)) for c, r in np.argwhere(np.isfinite(tried.bias))]
        if not may or not tried.tight:
            break
        foreseen, before = tried.compute_overflow_changes(slice(None)), tried.compute_overflow()
        row, column = rng.choice(may)
        fits, crowded = tried.has_room(row, column), tried.is_crowded()
        tried.place_row(row, column)
        change = tried.compute_overflow() - before
        assert math.isclose(change, foreseen[column, row], abs_tol=1e-4)
        if fits and not crowded:
            assert change <= 0.0 and not tried.is_crowded()
        if change > 0.0:
            assert tried.is_crowded()


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(**{**SPREAD, 'tight': True, 'groups': 0}))
def test_an_order_that_the_board_finds_has_room_at_every_step(knobs):
    state = simulation(knobs)
    if not state.trusted or not state.takers.any():
        return
    tried, rng = board(state), random.Random(knobs.seed)
    for _ in range(5):
        may = [(int(r), int(c)) for c, r in np.argwhere(np.isfinite(tried.bias))]
        if may:
            tried.place_row(*rng.choice(may))
    plan, order = dict(tried.plan), tried.order_rows()
    if order is None or not tried.scarce:
        return
    assert sorted(order) == sorted(plan) and not tried.is_crowded()
    tried.replace_plan({})
    for row in order:
        assert tried.has_room(row, plan[row])
        tried.place_row(row, plan[row])


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(**{**SPREAD, 'groups': 4}))
def test_of_a_group_at_most_one_member_is_offered(knobs):
    state = simulation(knobs)
    if not state.trusted or not state.takers.any():
        return
    tried = board(state)
    may = [(r, c) for r, c in legal_on(tried) if state.grouped[tried.rows[r]]]
    if not may:
        return
    row, column = may[knobs.seed % len(may)]
    tried.place_row(row, column)
    uuid = state.uuids[tried.rows[row]]
    mates = {u for g in state.view.list_groups_of(uuid) for u in g.members}
    assert not mates & {state.uuids[tried.rows[r]] for r, _ in legal_on(tried)}


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(**SPREAD))
def test_the_best_addition_is_the_smallest_smooth_value(knobs):
    state = simulation(knobs)
    if not state.trusted or not state.takers.any():
        return
    tried = board(state)
    found = soft_extremes.SmoothValues(tried).choose_addition(0.2, slice(None))
    may = legal_on(tried)
    assert (found is None) == (not may)
    if found is not None:
        scale, _ = soft_extremes.SmoothValues(tried).compute_scale(
            max(0.2, float(tried.measure.compute_imbalances(tried.score).max())
                / soft_extremes.SHARPEST))
        best = min(laid.smooth_value(tried, [pair], scale) for pair in may)
        assert laid.smooth_value(tried, [found], scale) <= best + 1e-4


@clouds.examples(30)
@hypothesis.given(knobs=clouds.knobs(**{**SPREAD, 'groups': 0}))
def test_a_window_gives_the_same_as_all_rows(knobs):
    state = simulation(knobs)
    if not state.trusted or not state.takers.any():
        return
    tried = board(state)
    every = soft_extremes.SmoothValues(tried).choose_addition(0.2, slice(None))
    order = np.random.default_rng(knobs.seed).permutation(len(tried.rows))
    picked = soft_extremes.SmoothValues(tried).choose_addition(0.2, order)
    assert (every is None) == (picked is None)
    if every is not None:
        assert laid.smooth_value(tried, [picked], 0.3) == pytest.approx(
            laid.smooth_value(tried, [every], 0.3), abs=1e-3)


def two_hosts(usages, scores, threshold=0.1, memory=1024):
    """Instances by host in a cloud of hosts with one policy; big claims."""
    k = clouds.Knobs(seed=1, hosts=len(scores), instances=sum(map(len, usages)), groups=0,
                     clean=True)
    request = clouds.request(k)
    hosts = sorted(request.cluster.scope_hosts)
    uuids = iter(sorted(request.cluster.instances))
    instances, profile = {}, {}
    for host, values in zip(hosts, usages, strict=True):
        for value in values:
            uuid = next(uuids)
            instances[uuid] = dataclasses.replace(
                request.cluster.instances[uuid], host=host, claims={}, memory_mb=memory)
            profile[uuid] = value
    values = {n: dataclasses.replace(
        p, hosts=dict(zip(hosts, scores, strict=True)), usages=profile,
        capacity=dict.fromkeys(hosts, 1.0)) for n, p in request.scores.policies.items()}
    policies = request.policies.model_copy(update={'policies': tuple(
        p.model_copy(update={'threshold': threshold}) for p in request.policies.policies)})
    return dataclasses.replace(
        request, cluster=dataclasses.replace(request.cluster, instances=instances),
        scores=model.ClusterScores(values, clouds.NOW), policies=policies,
        options=dataclasses.replace(request.options, enforce_placement_claims=False))


def state_of(request):
    return sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                          request.options)


def test_the_best_of_all_swaps_is_found():
    request = two_hosts([[0.5, 0.35], [0.3, 0.05]], [0.85, 0.35], threshold=0.05)
    state = state_of(request)
    moves = swaps.best_swap(state)
    assert sorted(float(state.usage[0, state.index[m.instance_uuid]]) for m in moves) == [
        0.05, 0.35] or state.compute_combined() == pytest.approx(0.1)
    best = min(abs((0.85 - a + b) - (0.35 + a - b))
               for a, b in itertools.product([0.5, 0.35], [0.3, 0.05]))
    assert state.compute_combined() == pytest.approx(best)


def test_a_swap_that_does_not_earn_its_price_is_left():
    request = two_hosts([[0.5], [0.49]], [0.6, 0.5], threshold=0.05, memory=1024 * 1024)
    assert swaps.best_swap(state_of(request)) is None
    free = dataclasses.replace(request, options=dataclasses.replace(
        request.options, minimum_gain=0.0))
    assert swaps.best_swap(state_of(free))


def test_the_plan_with_fewest_moves_that_reaches_the_threshold_wins():
    request = two_hosts([[0.4, 0.2, 0.1, 0.1], [0.05]], [0.85, 0.05], threshold=0.1)
    plan = planner.plan(dataclasses.replace(request, budget=4))
    assert [m.improvement > 0 for m in plan.moves] == [True]
    assert plan.combined_after <= 0.1


def test_three_tied_hot_hosts_are_levelled_within_one_budget():
    request = two_hosts([[0.2] * 4, [0.2] * 4, [0.2] * 4, [0.05], [0.05], [0.05]],
                        [0.85, 0.85, 0.85, 0.05, 0.05, 0.05], threshold=0.05)
    plan = planner.plan(dataclasses.replace(request, budget=6))
    assert len(plan.moves) == 6
    assert plan.combined_after == pytest.approx(0.0)


def test_only_the_excess_over_the_thresholds_counts_fully():
    start = measure.StateMeasure(simulation(clouds.Knobs(seed=3, policies=1)))
    start.weights, start.thresholds = np.array([1.0]), np.array([0.2])
    level = np.full((1, 4), 0.5)
    above, below = level.copy(), level.copy()
    above[0, 0], below[0, 0] = 0.8, 0.6
    assert start.compute_excess(below) == 0.0 and start.compute_excess(above) == pytest.approx(0.1)
    assert start.compute_value(below) == pytest.approx(measure.BELOW * 0.1)


@clouds.examples(30)
@hypothesis.given(knobs=clouds.knobs(**SPREAD))
def test_a_search_uses_its_share_of_the_steps_at_most(knobs):
    state = simulation(knobs, max_steps=2000)
    if not state.trusted:
        return
    start = measure.StateMeasure(state) if state.takers.any() else None
    if start is not None:
        portfolio.improve_plan(state, start, [], 8)
        assert state.steps <= 2000 and not state.truncated


def test_a_stopped_search_gives_the_best_so_far():
    request = two_hosts([[0.2] * 4, [0.2] * 4, [0.05], [0.05]], [0.85, 0.85, 0.05, 0.05])
    tried = board(state_of(request))
    assert ruin_recreate.RuinRecreateSearch(tried, 4, 0, 1000, lambda: True).run()


def test_the_seed_decides_and_nothing_else():
    request = clouds.request(clouds.Knobs(seed=9, hosts=7, instances=26, policies=3, budget=8))
    plans = [planner.plan(dataclasses.replace(request, seed=seed)) for seed in (1, 1, 2)]
    assert plans[0] == plans[1]
    assert plans[2].combined_after <= plans[2].combined_before


def test_a_large_cluster_is_planned_at_its_ends(monkeypatch):
    monkeypatch.setattr(portfolio, 'LARGE', 10)
    monkeypatch.setattr(choice, 'CELLS', 60)
    monkeypatch.setattr(choice, 'ENDS', 2)
    request = two_hosts([[0.2] * 4, [0.2] * 4, [0.2] * 4, [0.05], [0.05], [0.05]],
                        [0.85, 0.85, 0.85, 0.05, 0.05, 0.05], threshold=0.1)
    state = state_of(request)
    rows, columns = choice.choose_candidates(state, 1)
    assert set(columns) == {3, 4} and set(state.place[rows]) <= {0, 1}
    monkeypatch.setattr(choice, 'CELLS', 72)
    plan = planner.plan(dataclasses.replace(request, budget=6))
    assert plan.combined_after <= 0.1 + 1e-9


def test_masks_but_claims_are_in_the_bias_from_the_start():
    state = simulation(clouds.Knobs(seed=4, hosts=5, instances=20, clean=False))
    tried = board(state)
    allowed = masks.mark_permitted(state, tried.rows, tried.columns)
    assert np.isfinite(tried.bias).T[allowed].all()
