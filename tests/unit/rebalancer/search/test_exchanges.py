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

"""Instances that change places, against the board and the smooth measure alone."""

import itertools
import random

import hypothesis
import numpy as np
import pytest

from benchmarks import clusters
from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.search import board as boards
from kronos_nova.rebalancer.search import choice
from kronos_nova.rebalancer.search import exchanges
from kronos_nova.rebalancer.search import ruin_recreate
from kronos_nova.rebalancer.search import soft_extremes
from kronos_nova.rebalancer.strategies import spread
from tests.unit import clouds
from tests.unit.rebalancer.search import laid

TIGHT = {'mode': 'spread', 'drains': False, 'objective': 'balanced', 'tight': True}


def trades(board):
    """Every exchange that may be made."""
    both = board.givers & board.takers
    column = {int(h): c for c, h in enumerate(board.columns)}
    for i, j in itertools.permutations(range(len(board.rows)), 2):
        s, d = int(board.source[i]), int(board.source[j])
        if (s == d or not both[s] or not both[d] or s not in column or d not in column
                or j in board.list_group_rows(i)):
            continue
        if np.isinf(board.bias[column[d], i] + board.bias[column[s], j]):
            continue
        lacks = False
        for need, left in zip(board.need, board.free, strict=True):
            lacks |= need[i] > 0 and need[i] - need[j] > left[d]
            lacks |= need[j] > 0 and need[j] - need[i] > left[s]
        if not lacks:
            yield i, column[d], j, column[s]


def value(board, exchange, scale):
    return laid.smooth_value(board, (exchange[:2], exchange[2:]), scale)


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(**TIGHT))
def test_the_best_exchange_has_the_smallest_smooth_value_of_all_allowed(knobs):
    board = laid.board(knobs, moves=2)
    if board is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchanges, 'ENDS', board.score.shape[1])
        patch.setattr(exchanges, 'TRIED', 10**6)
        found = exchanges.ExchangeSearch(board, random.Random(0)).choose_exchange(0.2)
    may = list(trades(board))
    assert (found is None) == (not may)
    if found is not None:
        scale = max(0.2,
                    float(board.measure.compute_imbalances(board.score).max())
                    / soft_extremes.SHARPEST)
        assert found in may
        best = min(value(board, each, scale) for each in may)
        assert value(board, found, scale) <= best + 1e-4


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(**TIGHT))
def test_an_exchange_swaps_two_sources_and_overflows_no_host(knobs):
    board = laid.board(knobs, moves=0)
    if board is None:
        return
    found = exchanges.ExchangeSearch(board, random.Random(0)).choose_exchange(0.2)
    if found is None:
        return
    (i, there, j, here), before = found, board.compute_overflow()
    assert board.columns[there] == board.source[j] and board.columns[here] == board.source[i]
    board.place_row(i, there)
    board.place_row(j, here)
    assert board.compute_overflow() <= before + 1e-9 and not board.is_crowded()


def test_of_many_instances_so_many_are_looked_at():
    knobs = clouds.Knobs(seed=5, hosts=3, instances=40, groups=0, tight=True)
    board = laid.board(knobs, moves=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchanges, 'MOST', 3)
        few = exchanges.ExchangeSearch(board, random.Random(0))
        shown = few._sample_rows(np.arange(board.score.shape[1])[few._both])
        found = few.choose_exchange(0.2)
    assert shown.shape[1] == 3 and all(len(set(rows)) == 3 for rows in shown.tolist())
    assert [set(board.source[rows].tolist()) for rows in shown] == [
        {int(h)} for h in np.flatnonzero(few._both)]
    assert found is None or found in set(trades(board))


@pytest.mark.long
def test_a_search_where_room_is_scarce_does_better_with_exchanges(monkeypatch):
    """In sum over clusters in which every host is nearly full of claims."""
    cases = [clusters.build(clusters.Spec('tight', hosts=16, instances=300, room=1.08), seed)
             for seed in range(9, 12)]

    def left():
        return sum(planner.plan(planner.PlanningInput(
            cluster=case.cluster, scores=case.scores, policies=case.policies,
            strategies=(spread.Spread(),), history=model.MoveHistory(), budget=40,
            options=model.PlanningOptions(dry_run=False, enforce_placement_disk=False),
        )).combined_after for case in cases)

    with_them = left()
    monkeypatch.setattr(ruin_recreate, 'EXCHANGES', 0.0)
    assert with_them < 0.95 * left()


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(**TIGHT))
def test_where_claims_are_scarce_a_board_has_room_for_what_ceilings_permit(knobs):
    """For single additions, beside claims; it permits more only where a source is
    itself above a ceiling."""
    request = clouds.request(knobs)
    state = sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                           request.options)
    if not state.trusted or not state.takers.any():
        return
    rows, columns = choice.choose_candidates(state, 6)
    board = boards.SearchBoard(state, rows, columns, 6)
    if not board.scarce:
        return
    claims = len(board.need) - len(state.policies)
    room = np.ones((len(columns), len(rows)), dtype=bool)
    for need, left in zip(board.need[claims:], board.free[claims:], strict=True):
        room &= (need[None, :] <= left[columns][:, None]) | (need[None, :] == 0.0)
    over = state.mark_overfilling(rows, columns).T
    assert not (over & room).any() or (state.fill[:, np.unique(board.source)] > 1.0).any()
    assert (room | over).all()


def test_a_plan_counts_on_nothing_that_a_ceiling_refuses():
    """A cluster whose best plan by claims alone loses three moves to a ceiling, and so
    was worth less than a greedy one."""
    case = clusters.build(clusters.Spec('tight', hosts=8, instances=120, room=1.15, mixed=True),
                          200)
    plan = planner.plan(planner.PlanningInput(
        cluster=case.cluster, scores=case.scores, policies=case.policies,
        strategies=(spread.Spread(),), history=model.MoveHistory(), budget=20,
        options=model.PlanningOptions(dry_run=False, enforce_placement_disk=False,
                                      minimum_gain=0.0001)))  # with others, other moves are best
    assert 'ceiling' not in plan.rejections
    assert plan.combined_after < 0.4 * plan.combined_before


def searched(seed=10, additions=600):
    """A search on a cluster in which every host is nearly full of claims."""
    case = clusters.build(clusters.Spec('tight', hosts=8, instances=100, room=1.08), seed)
    state = sim.Simulation(case.cluster, case.scores, case.policies, model.MoveHistory(),
                           model.PlanningOptions(dry_run=False, enforce_placement_disk=False))
    board = boards.SearchBoard(state, *choice.choose_candidates(state, 6), 6)
    assert board.scarce
    return ruin_recreate.RuinRecreateSearch(board, 6, 0, additions, lambda: False)


def test_no_exchange_makes_a_plan_larger_than_it_may_be(monkeypatch):
    monkeypatch.setattr(ruin_recreate, 'EXCHANGES', 1.0)
    search = searched()
    assert search._add_exchange(2, 0.2) and len(search._board.plan) == 2
    assert not search._add_exchange(3, 0.2) and len(search._board.plan) == 2
    assert search._add_exchange(4, 0.2) and len(search._board.plan) == 4


def test_an_exchange_costs_as_many_additions_as_it_takes_the_time_of(monkeypatch):
    monkeypatch.setattr(ruin_recreate, 'EXCHANGES', 1.0)
    search = searched()
    assert search._add_exchange(2, 0.2) and search.used_steps == ruin_recreate.EXCHANGE
    search._exchanges.possible = False
    assert not search._add_exchange(6, 0.2) and search.used_steps == ruin_recreate.EXCHANGE


def test_two_of_a_group_do_not_change_places():
    search = searched()
    found = search._exchanges.choose_exchange(0.2)
    mates = list(search._exchanges._mates)
    mates[found[0]] = frozenset({found[0], found[2]})
    search._exchanges._mates = mates
    other = search._exchanges.choose_exchange(0.2)
    assert other is not None and (other[0], other[2]) != (found[0], found[2])


def test_a_level_cluster_has_a_scale_all_the_same():
    search = searched()
    search._board.score[:] = 0.5
    with np.errstate(all='raise', under='ignore'):
        search._exchanges.choose_exchange(0.0)


def test_a_search_that_finds_nothing_better_goes_back_to_its_best_plan(monkeypatch):
    monkeypatch.setattr(ruin_recreate, 'BACK', 3)
    search = searched()
    begun = []
    real = ruin_recreate.RuinRecreateSearch._change_plan

    def change(self, size):
        begun.append(self._board.plan == self.best)
        real(self, size)

    monkeypatch.setattr(ruin_recreate.RuinRecreateSearch, '_change_plan', change)
    kept = []
    monkeypatch.setattr(ruin_recreate.RuinRecreateSearch, '_keep_if_best',
                        lambda self: kept.append(1) and False)
    search._build_greedy_starts(ruin_recreate.STARTS)
    search.best = dict(search._board.plan)
    search._search_single_plans()
    assert len(begun) > 9 and all(begun[::3]) and not all(begun)


def test_headroom_reaches_the_ceiling_or_the_load_of_the_worst_source():
    """As the rule ``ceiling``: a spread may go above it from a host that is worse off."""
    case = clusters.build(clusters.Spec('tight', hosts=4, instances=20, room=1.08), 0)
    state = sim.Simulation(case.cluster, case.scores, case.policies, model.MoveHistory(),
                           model.PlanningOptions(dry_run=False, enforce_placement_disk=False))
    state.fill[:] = 0.5
    state.fill[:, 0] = 1.4
    state.fill[:, 3] = np.nan
    assert np.allclose(state.compute_headroom(np.array([1, 3]))[:, 1], 0.5 * state.capacity[:, 1])
    assert np.allclose(state.compute_headroom(np.array([0, 1]))[:, 1], 0.9 * state.capacity[:, 1])
    assert np.isinf(state.compute_headroom(np.array([0, 1]))[:, 3]).all(), 'it is not known'
