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


"""Highest and lowest scores per policy, and how a move changes them.

Write x for scores now, s and d for a move's source and destination, u >= 0
for the load that leaves s and v >= 0 for the load that comes to d, G for the
hosts that may give and T for those that may take. Three facts carry the planner:

1.  *Only extremes improve.* A move lowers the maximum over G only if s is its
    one holder: any other holder e has x_e unchanged, and d only rises. It
    raises the minimum over T only if d is its one holder. So a move that
    lowers max - min of a policy has its source in A, the policies' unique
    maxima, or its destination in D, their unique minima; |A| and |D| are at most P.
2.  *One exclusion is enough.* After the move the maximum over G is
    max(rest, x_s - u, x_d + v), rest being without s and d. x_d <= x_d + v,
    so leaving d in the rest changes nothing when d is in G; only s must be
    left out, which the two highest answer in O(1). In the same way the
    minimum over T needs to leave out d only. Where either end may rise or
    fall (a swap), both are left out, which the three highest answer.
3.  *Bounds are exact in floating point.* IEEE 754 subtraction, addition,
    multiplication by w >= 0 and max are monotone in each argument: a bound
    that is computed by the same expression in the same order from arguments
    that are no smaller is no smaller, rounding included. Pruning by such a
    bound loses nothing, not even a tie.
"""

import numpy as np

from kronos_nova.rebalancer.simulation import arrays

DEPTH = 3


class ImbalanceExtremes:
    """The three highest givers and three lowest takers of each policy.

    They are searched again, in O(H) per policy, when first needed after a change.

    :param score: P x H, watched but not copied: call :meth:`drop_extremes` after a change of the
        scores, the givers or the takers.
    :param depth: count of hosts in place of three.
    """

    def __init__(self, score: arrays.Floats, givers: arrays.Bools, takers: arrays.Bools,
                 depth: int = DEPTH) -> None:
        self._score = score
        self._depth = depth
        self._who = givers, takers
        self._imbalances: list[float] | None = None
        self._extremes: list[list[tuple[list[float], list[int]] | None]] = [
            [None] * len(score), [None] * len(score)]

    def drop_extremes(self) -> None:
        self._imbalances = None
        for side in self._extremes:
            side[:] = [None] * len(side)

    def list_highest(self, p: int) -> tuple[list[float], list[int]]:
        """Return scores and hosts, highest first, ties by host; padded with -inf, -1."""
        return self._get_extremes(0, p)

    def list_lowest(self, p: int) -> tuple[list[float], list[int]]:
        """Return scores and hosts, lowest first, ties by host; padded with inf, -1."""
        return self._get_extremes(1, p)

    def _get_extremes(self, side: int, p: int) -> tuple[list[float], list[int]]:
        extremes = self._extremes[side][p]
        if extremes is None:
            extremes = self._extremes[side][p] = self._search_extremes(side, p)
        return extremes

    def _search_extremes(self, side: int, p: int) -> tuple[list[float], list[int]]:
        sign = -1.0 if side else 1.0
        remaining_scores = np.where(self._who[side], sign * self._score[p], -np.inf)
        values, hosts = [], []
        for _ in range(self._depth):
            best = int(remaining_scores.argmax()) if remaining_scores.size else -1
            if best < 0 or remaining_scores[best] == -np.inf:
                values.append(sign * -np.inf)
                hosts.append(-1)
                continue
            values.append(float(sign * remaining_scores[best]))
            hosts.append(best)
            remaining_scores[best] = -np.inf
        return values, hosts

    def find_highest_without(self, p: int, *but: int) -> float:
        """Return the maximum over givers without at most two hosts; -inf: no giver is left."""
        values, hosts = self.list_highest(p)
        for value, host in zip(values, hosts, strict=True):
            if host not in but:
                return value
        return -np.inf

    def find_lowest_without(self, p: int, *but: int) -> float:
        """Return the minimum over takers without at most two hosts; inf: no taker is left."""
        values, hosts = self.list_lowest(p)
        for value, host in zip(values, hosts, strict=True):
            if host not in but:
                return value
        return np.inf

    def compute_imbalances(self) -> list[float]:
        """Return per policy: highest giver - lowest taker, at least 0; 0 if either is lacking."""
        if self._imbalances is None:
            self._imbalances = [max(self.list_highest(p)[0][0] - self.list_lowest(p)[0][0], 0.0)
                                for p in range(len(self._score))]
        return self._imbalances

    def high_but_each(self, p: int, hosts: arrays.Ints) -> arrays.Floats:
        """Return :meth:`find_highest_without` without each of the hosts in turn, in their shape."""
        values, top = self.list_highest(p)
        return np.where(hosts == top[0], values[1], values[0])

    def low_but_each(self, p: int, hosts: arrays.Ints) -> arrays.Floats:
        """Return :meth:`find_lowest_without` without each of the hosts in turn, in their shape."""
        values, top = self.list_lowest(p)
        return np.where(hosts == top[0], values[1], values[0])

    def only_highest(self, p: int) -> int:
        """Return the one giver that holds the maximum, or -1: no giver, or a tie."""
        values, hosts = self.list_highest(p)
        return hosts[0] if values[0] > values[1] else -1

    def only_lowest(self, p: int) -> int:
        """Return the one taker that holds the minimum, or -1: no taker, or a tie."""
        values, hosts = self.list_lowest(p)
        return hosts[0] if values[0] < values[1] else -1
