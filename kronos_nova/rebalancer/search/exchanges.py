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

"""Exchanges of two instances, by the smooth measure (see :mod:`soft_extremes`).

Where claims leave little room, a busy instance can often go to a cold host only if an idle
one leaves it, and neither of the two moves helps alone. For the few hosts with the largest
shares in the smooth maxima, and as many with the largest in the minima, one step judges
every pair of instances.

A host's two terms of a sum are products: one factor for its own instance that leaves, one
for the instance that comes: exp((x - u + v) / t) = exp(x / t) exp(-u / t) exp(v / t).
So n + m exponentials judge n x m exchanges.
"""

import random

import numpy as np

from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import board as boards
from kronos_nova.rebalancer.search import measure
from kronos_nova.rebalancer.search import soft_extremes

#: Hosts to try at either end.
ENDS = 2
#: Largest number of instances of one host to try: all, mostly.
MOST = 64
#: Largest number of exchanges within one server group to pass over.
TRIED = 8
SINGLE = soft_extremes.SINGLE

#: Row and column of both additions.
Exchange = tuple[int, int, int, int]


class ExchangeSearch:
    """The exchanges on one board.

    Shapes: P policies, s hosts that are hot, d that are cold, n instances of each, padded.
    ``possible``: at least two hosts may both give and take; the board of a large cloud may
    lack such hosts.
    """

    def __init__(self, board: boards.SearchBoard, rng: random.Random) -> None:
        self._board, self._rng = board, rng
        hosts = board.score.shape[1]
        self._start = np.searchsorted(board.source, np.arange(hosts + 1))
        self._column = np.full(hosts, -1, dtype=np.intp)
        self._column[board.columns] = np.arange(len(board.columns))
        #: Hosts that may give one instance and take another.
        self._both = (board.givers & board.takers & (self._column >= 0)
                      & (np.diff(self._start) > 0))
        self.possible = int(self._both.sum()) >= 2
        self._ends = min(ENDS, int(self._both.sum()))
        self._mates = [frozenset(board.list_group_rows(row).tolist())
                       for row in range(len(board.rows))]

    def choose_exchange(self, wanted: float) -> Exchange | None:
        """Return the exchange that leaves the smallest value, or None.

        Both hosts must have room when both instances have moved.

        :param wanted: the scale, in units of a score.
        """
        if not self.possible:
            return None
        board, weights = self._board, self._board.measure.weights
        high = board.measure.compute_highest(board.score)[:, None]
        low = board.measure.compute_lowest(board.score)[:, None]
        scale = max(wanted, 1e-9, float((high - low).max()) / soft_extremes.SHARPEST)
        near_high = np.exp(np.minimum((board.score - high) / scale, 0.0)) * board.givers
        near_low = np.exp(np.minimum((low - board.score) / scale, 0.0)) * board.takers
        total_high, total_low = near_high.sum(axis=1), near_low.sum(axis=1)
        hot = self._choose_end_hosts(weights @ (near_high / total_high[:, None]))
        cold = self._choose_end_hosts(weights @ (near_low / total_low[:, None]))
        mine, others = self._sample_rows(hot), self._sample_rows(cold)
        # P x s x d x n: arriving and leaving load, in units of the scale.
        per_hot = 1.0 / (scale * board.capacity[:, hot, None, None])
        per_cold = 1.0 / (scale * board.capacity[:, None, cold, None])
        usage, other = board.usage[:, mine][:, :, None], board.usage[:, others][:, None]
        out, back, there, away = map(_compute_exponentials, (
            -usage * per_hot, other * per_hot, usage * per_cold, -other * per_cold))
        x = _sum_exponentials(near_high, total_high, hot, cold, (out, back), (there, away))
        x *= _sum_exponentials(near_low, total_low, hot, cold, (1.0 / out, 1.0 / back),
                               (1.0 / there, 1.0 / away))
        np.log(np.maximum(x, SINGLE(soft_extremes.TINY) ** 2, out=x), out=x)
        # the higher one of two lines, as in :mod:`soft_extremes`
        weight, span = (v.reshape(-1, 1, 1, 1, 1) for v in (weights, high - low))
        part = (1.0 - measure.BELOW) * board.measure.thresholds.reshape(-1, 1, 1, 1, 1)
        y = x * (weight * measure.BELOW * scale).astype(SINGLE)
        y += (weight * measure.BELOW * span).astype(SINGLE)
        x *= (weight * scale).astype(SINGLE)
        x += (weight * (span - part)).astype(SINGLE)
        total = np.maximum(x, y, out=x).sum(axis=0)  # s x d x n x n
        total += board.bias[self._column[cold][None, :, None], mine[:, None]][..., None]
        total += board.bias[self._column[hot][:, None, None], others[None]][..., None, :]
        total[hot[:, None] == cold] = np.inf
        self._without_room(total, hot, cold, mine, others)
        return self._choose_exchange(total, hot, cold, mine, others)

    def _choose_end_hosts(self, share: sim.Floats) -> sim.Ints:
        order = np.argsort(-np.where(self._both, share, -1.0), kind='stable')
        return np.asarray(order[:self._ends])

    def _sample_rows(self, hosts: sim.Ints) -> sim.Ints:
        """Return the rows of each host: hosts x n; one row is repeated where a host has fewer."""
        rows_by_host = []
        for host in hosts.tolist():
            first, end = int(self._start[host]), int(self._start[host + 1])
            rows_by_host.append(range(first, end) if end - first <= MOST
                                else self._rng.sample(range(first, end), MOST))
        width = max(len(rows) for rows in rows_by_host)
        return np.array([[*rows, *[rows[0]] * (width - len(rows))] for rows in rows_by_host],
                        dtype=np.intp)

    def _without_room(self, total: sim.Floats, hot: sim.Ints, cold: sim.Ints, mine: sim.Ints,
                      others: sim.Ints) -> None:
        """Set infinity where a host would lack room for the instance that it gets."""
        board = self._board
        for need, room_left in zip(board.need, board.free, strict=True):
            mine_needs = need[mine][:, None, :, None]
            other_needs = need[others][None, :, None, :]
            more = mine_needs - other_needs
            lacks = (more > room_left[cold][None, :, None, None]) & (mine_needs > 0.0)
            lacks |= ((-more > room_left[hot][:, None, None, None])
                      & (other_needs > 0.0))
            total[lacks] = np.inf

    def _choose_exchange(self, total: sim.Floats, hot: sim.Ints, cold: sim.Ints, mine: sim.Ints,
                         others: sim.Ints) -> Exchange | None:
        for _ in range(TRIED):
            place = int(total.argmin())
            if not total.flat[place] < np.inf:
                return None
            s, d, i, j = (int(k) for k in np.unravel_index(place, total.shape))
            row, other = int(mine[s, i]), int(others[d, j])
            if other not in self._mates[row]:
                return row, int(self._column[cold[d]]), other, int(self._column[hot[s]])
            total[s, d, i, j] = np.inf
        return None


def _compute_exponentials(values: sim.Floats) -> sim.Floats:
    return np.asarray(np.exp(np.clip(values, -soft_extremes.CAP, soft_extremes.CAP)))


def _sum_exponentials(near: sim.Floats, total: sim.Floats, hot: sim.Ints, cold: sim.Ints,
                      at_hot: tuple[sim.Floats, sim.Floats],
                      at_cold: tuple[sim.Floats, sim.Floats]) -> soft_extremes.Table:
    """Return a policy's sum of exponentials after each exchange: P x s x d x n x n."""
    here, there = near[:, hot, None, None], near[:, None, cold, None]
    exponentials = ((here * at_hot[0]).astype(SINGLE)[..., :, None]
                    * at_hot[1].astype(SINGLE)[..., None, :])
    exponentials += ((there * at_cold[0]).astype(SINGLE)[..., :, None]
                     * at_cold[1].astype(SINGLE)[..., None, :])
    rest = total[:, None, None, None] - here - there + soft_extremes.TINY
    exponentials += rest.astype(SINGLE)[..., None]
    return np.asarray(exponentials)
