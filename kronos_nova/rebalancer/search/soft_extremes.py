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

t log(sum exp(x / t)) is the maximum of x rounded off at the scale t, and the minimum
likewise: every host near an extreme has its share in it, so relieving one of several that
are equally hot is progress. For t -> 0 it is max - min, for large t it tends to the spread
of all hosts around their mean.

A move changes two terms of each sum. Terms are relative to the extreme; t is at least 1/12
of the imbalance, so that the rest after a subtraction keeps two digits in single precision.
This only has to rank candidates, and single precision ranks twice as many; plans are judged
in double precision.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import board as boards
from kronos_nova.rebalancer.search import measure

#: Scales are rounded to powers of this: the tables that depend on the scale alone
#: are kept for each.
STEP = 1.4
#: Largest imbalance in units of the scale.
SHARPEST = 12.0
#: Cap of exponents: candidates with larger ones cannot win.
CAP = 40.0
#: Keeps sums positive where single precision leaves nothing; less than the
#: share of a host at the far end.
TINY = 1e-6
SINGLE = np.float32
Table = npt.NDArray[np.floating[Any]]
#: Number of candidates without room to try before all are checked for room.
TRIED = 4
#: Largest number of scales to keep.
KEPT = 12


class SmoothValues:
    """Smooth values of all candidates on one board.

    :param windows: most calls look at a few rows only.
    """

    def __init__(self, board: boards.SearchBoard, windows: bool = False) -> None:
        self._board, self._windows = board, windows
        self._scales: dict[int, tuple[Table, ...]] = {}

    def compute_scale(self, wanted: float) -> tuple[float, tuple[Table, ...]]:
        """Return the scale at or above ``wanted`` and exp(+-usage / scale) - 1."""
        power = math.ceil(math.log(max(wanted, 1e-9)) / math.log(STEP))
        scale = STEP ** power
        if power not in self._scales:
            if len(self._scales) >= KEPT:
                del self._scales[next(iter(self._scales))]
            share, leaving = self._board.share / scale, self._board.leaving / scale
            up = np.expm1(np.minimum(share, CAP)).astype(SINGLE)
            down = np.expm1(-share).astype(SINGLE)
            if self._windows:
                up, down = (np.ascontiguousarray(v.transpose(2, 0, 1)) for v in (up, down))
            self._scales[power] = (up, down, np.expm1(-leaving),
                                   np.expm1(np.minimum(leaving, CAP)))
        return scale, self._scales[power]

    def choose_addition(self, wanted: float, rows: sim.Ints | slice,
                        price: float | None = None) -> tuple[int, int] | None:
        """Return row and column of the addition that leaves the smallest value, or None.

        None if no move may be added.

        :param wanted: the scale, in units of a score.
        :param rows: the rows to look at.
        :param price: of one usual instance without room; None: all must have room.
        """
        board = self._board
        score, weights = board.score, board.measure.weights
        high = board.measure.compute_highest(score)[:, None]
        low = board.measure.compute_lowest(score)[:, None]
        scale, (up, down, off, back) = self.compute_scale(
            max(wanted, float((high - low).max()) / SHARPEST))
        near_high = np.exp(np.minimum((score - high) / scale, 0.0)) * board.givers
        near_low = np.exp(np.minimum((low - score) / scale, 0.0)) * board.takers
        source, columns = board.source[rows], board.columns
        # P x n: the sums without the load that leaves each row's source.
        upper = (near_high.sum(axis=1)[:, None]
                 + near_high.take(source, axis=1) * _take_last_axis(off, rows))
        lower = (near_low.sum(axis=1)[:, None]
                 + near_low.take(source, axis=1) * _take_last_axis(back, rows))
        # P x c x n: the sums with the load that comes to each column.
        x = (self._take_table_rows(up, rows)
             * near_high.take(columns, axis=1).astype(SINGLE)[:, :, None])
        x += (upper + TINY).astype(SINGLE)[:, None, :]
        y = (self._take_table_rows(down, rows)
             * near_low.take(columns, axis=1).astype(SINGLE)[:, :, None])
        y += (lower + TINY).astype(SINGLE)[:, None, :]
        x *= y
        np.log(x, out=x)
        # weight x (BELOW i + (1 - BELOW) max(i - threshold, 0)) of the imbalance
        # i = scale x + high - low, as the higher one of two lines
        weight = weights[:, None, None]
        span = (high - low)[:, :, None]
        part = (1.0 - measure.BELOW) * board.measure.thresholds[:, None, None]
        np.multiply(x, (weight * (measure.BELOW * scale)).astype(SINGLE), out=y)
        y += (weight * measure.BELOW * span).astype(SINGLE)
        x *= (weight * scale).astype(SINGLE)
        x += (weight * (span - part)).astype(SINGLE)
        total = np.maximum(x, y, out=x).sum(axis=0)
        total += _take_last_axis(board.bias, rows)
        if price is not None:
            lacking = board.compute_overflow_changes(rows)
            lacking *= price
            total += lacking
        for tries in range(total.size):
            column, row = divmod(int(total.argmin()), total.shape[1])
            if not total[column, row] < np.inf:
                break
            number = row if isinstance(rows, slice) else int(rows[row])
            if price is not None or board.has_room(number, column):
                return number, column
            if tries < TRIED:
                total[column, row] = np.inf
            else:
                total[~board.mark_room(rows)] = np.inf
        return None

    def _take_table_rows(self, values: Table, rows: sim.Ints | slice) -> Table:
        """Return these rows of a table, as P x c x rows.

        With ``windows`` the table has its rows first, because calls take few.
        """
        if not self._windows:
            return _take_last_axis(values, rows)
        few = values[rows] if isinstance(rows, slice) else values.take(rows, axis=0)
        return np.ascontiguousarray(few.transpose(1, 2, 0))


def _take_last_axis(values: Table, rows: sim.Ints | slice) -> Table:
    """Return the rows, which are the last axis.

    An index array would return them first in memory, and all later steps would be slow.
    """
    if isinstance(rows, slice):
        return np.asarray(values[..., rows])
    return np.asarray(values.take(rows, axis=-1))
