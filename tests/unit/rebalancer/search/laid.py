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

"""Boards of random clouds with moves on them, and the smooth measure written out."""

import math
import random

import numpy as np

from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import board as boards
from kronos_nova.rebalancer.search import choice
from kronos_nova.rebalancer.search import measure
from tests.unit import clouds


def board(knobs, moves):
    """A board with at most so many moves chosen at random; None where nothing may move."""
    request = clouds.request(knobs)
    state = sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                           request.options)
    if not state.trusted or not state.takers.any():
        return None
    search_board = boards.SearchBoard(state, *choice.choose_candidates(state, 6), 6)
    rng = random.Random(knobs.seed)
    for _ in range(moves):
        may = [(int(r), int(c)) for c, r in np.argwhere(np.isfinite(search_board.bias))
               if search_board.has_room(int(r), int(c))]
        if not may:
            break
        search_board.place_row(*rng.choice(may))
    return search_board


def smooth_value(tried, additions, scale):
    """Compute the value of :class:`smooth.Smooth` and similar classes after these additions
    (row, column)."""
    score, total = tried.score.copy(), 0.0
    for row, column in additions:
        score[:, tried.source[row]] -= tried.leaving[:, row]
        score[:, tried.columns[column]] += tried.share[:, column, row]
        total += float(tried.bias[column, row])
    for p, weight in enumerate(tried.measure.weights):
        high = scale * math.log(sum(math.exp(x / scale) for x in score[p][tried.givers]))
        low = -scale * math.log(sum(math.exp(-x / scale) for x in score[p][tried.takers]))
        above = max(0.0, high - low - tried.measure.thresholds[p])
        total += weight * (measure.BELOW * (high - low) + (1 - measure.BELOW) * above)
    return total
