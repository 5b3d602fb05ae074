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


"""A convex stand-in for max - min that has no plateaus.

t log(sum exp(x / t)) is the maximum of x rounded off at the scale t, and the
minimum likewise: every host near an extreme has its share in it, so relieving
one of several that are equally hot is progress. For t -> 0 it is max - min,
for large t it tends to the spread of all hosts around their mean.

A move changes two terms of each sum. Terms are relative to the extreme; t is
at least 1/30 of the imbalance, so that what is left after a subtraction keeps
three digits.
"""

import math

import numpy as np

from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import board as boards
from kronos_nova.rebalancer.search import measure

#: Scales are rounded to powers of this: what depends on the scale alone is
#: kept for each.
STEP = 1.4
#: Largest imbalance in units of the scale.
SHARPEST = 30.0
#: Larger exponents are never looked at: they cannot win.
CAP = 200.0
TINY = 1e-300
#: So many scales are kept.
KEPT = 12


class Smooth:
    """Smooth values of all candidates on one board."""

    def __init__(self, board: boards.Board) -> None:
        self._board = board
        self._scales: dict[int, tuple[sim.Floats, ...]] = {}

    def scale(self, wanted: float) -> tuple[float, tuple[sim.Floats, ...]]:
        """The scale at or above ``wanted`` and exp(+-usage / scale) - 1."""
        power = math.ceil(math.log(max(wanted, 1e-9)) / math.log(STEP))
        scale = STEP ** power
        if power not in self._scales:
            if len(self._scales) >= KEPT:
                del self._scales[next(iter(self._scales))]
            share, leaving = self._board.share / scale, self._board.leaving / scale
            self._scales[power] = (
                np.expm1(np.minimum(share, CAP)), np.expm1(-share), np.expm1(-leaving),
                np.expm1(np.minimum(leaving, CAP)))
        return scale, self._scales[power]

    def best(self, wanted: float, rows: sim.Ints | slice) -> tuple[int, int] | None:
        """Row and column of the addition that leaves the smallest value;
        None: nothing may be added.

        :param wanted: the scale, in units of a score.
        :param rows: those to look at.
        """
        board = self._board
        total = board.bias[rows].copy()
        if board.tight:
            total[~board.fits(rows)] = np.inf
        score, weights = board.score, board.measure.weights
        high = np.where(board.givers, score, -np.inf).max(axis=1, keepdims=True)
        low = np.where(board.takers, score, np.inf).min(axis=1, keepdims=True)
        scale, (up, down, off, back) = self.scale(
            max(wanted, float((high - low).max()) / SHARPEST))
        near_high = np.where(board.givers, np.exp(np.minimum((score - high) / scale, 0.0)), 0.0)
        near_low = np.where(board.takers, np.exp(np.minimum((low - score) / scale, 0.0)), 0.0)
        source, columns = board.source[rows], board.columns
        for p, weight in enumerate(weights):
            upper = near_high[p].sum() + near_high[p, source] * off[p, rows]
            lower = near_low[p].sum() + near_low[p, source] * back[p, rows]
            x = up[p, rows] * near_high[p, columns]
            x += upper[:, None]
            y = down[p, rows] * near_low[p, columns]
            y += lower[:, None]
            x *= y
            np.log(np.maximum(x, TINY, out=x), out=x)
            x *= scale
            x += float(high[p, 0] - low[p, 0])
            # weight x (BELOW x + (1 - BELOW) max(x - threshold, 0)), as two lines
            np.multiply(x, weight * measure.BELOW, out=y)
            x -= (1.0 - measure.BELOW) * board.measure.thresholds[p]
            x *= weight
            total += np.maximum(x, y, out=x)
        best = int(total.argmin())
        row, column = divmod(best, len(columns))
        if not total[row, column] < np.inf:
            return None
        return (row if isinstance(rows, slice) else int(rows[row])), column
