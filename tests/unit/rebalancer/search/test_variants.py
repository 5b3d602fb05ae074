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

"""Variants of a plan, each against the board and the smooth measure alone."""

import math
import random

import hypothesis
import numpy as np
import pytest

from kronos_nova.rebalancer.search import soft_extremes
from kronos_nova.rebalancer.search import variants
from tests.unit import clouds
from tests.unit.rebalancer.search import laid

SPREAD = {'mode': 'spread', 'drains': False, 'objective': 'balanced'}


def planned(knobs, moves=4):
    """A board with moves chosen at random, where there are any; None elsewhere."""
    board = laid.board(knobs, moves)
    return board if board is not None and board.plan and not board.is_crowded() else None


def outcomes(board, seed, size):
    rng = random.Random(seed)
    count = rng.randint(1, len(board.plan))
    ruins = [rng.sample(sorted(board.plan), count) for _ in range(5)]
    scales = np.array([rng.uniform(0.01, 0.3) for _ in ruins])
    return variants.PlanVariants(board).try_ruins(ruins, size, scales)


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(**SPREAD))
def test_a_variant_is_worth_what_the_board_says_of_its_plan(knobs):
    board = planned(knobs)
    if board is None:
        return
    for found in outcomes(board, knobs.seed, 6):
        assert len(found.plan) <= 6
        board.replace_plan(found.plan)
        if board.is_crowded():
            assert found.value == math.inf
            continue
        if found.value < math.inf:
            assert found.value == pytest.approx(board.compute_value(), abs=1e-9)
            score = board.score
            assert found.reached == (not board.measure.compute_excess(score)
                                     and not board.measure.mark_refused(score))


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(**{**SPREAD, 'groups': 4}))
def test_a_variant_adds_permitted_moves_and_one_of_each_group(knobs):
    board = planned(knobs)
    if board is None:
        return
    before = dict(board.plan)
    for found in outcomes(board, knobs.seed, 6):
        board.replace_plan({})
        for row, column in found.plan.items():
            assert np.isfinite(board.bias[column, row])
            board.place_row(row, column)
        board.replace_plan(before)


def read_value(board, kept, additions):
    board.replace_plan({**kept, **dict(additions)})
    return board.compute_value()


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(**SPREAD))
def test_one_addition_is_the_best_where_every_host_is_looked_at(knobs):
    board = planned(knobs)
    if board is None or board.score.shape[1] > variants.ENDS:
        return
    row = sorted(board.plan)[0]
    plan, size = dict(board.plan), len(board.plan)
    scale = soft_extremes.STEP ** round(math.log(0.5) / math.log(soft_extremes.STEP))
    found, = variants.PlanVariants(board).try_ruins([[row]], size, np.array([scale]))
    board.remove_row(row)
    best = soft_extremes.SmoothValues(board).choose_addition(scale * (1 - 1e-9), slice(None))
    kept = {r: c for r, c in plan.items() if r != row}
    new = [pair for pair in found.plan.items() if kept.get(pair[0]) != pair[1]]
    if best is None:
        assert not new
    elif [best] != new:  # two instances alike
        assert read_value(board, kept, new) == pytest.approx(
            read_value(board, kept, [best]), abs=1e-12)


def test_the_same_ruins_give_the_same_variants():
    board = planned(clouds.Knobs(seed=5, hosts=6, instances=30, groups=2, clean=True))
    assert board is not None
    once, again = (outcomes(board, 1, 6) for _ in range(2))
    assert once == again and any(found.plan != board.plan for found in once)
