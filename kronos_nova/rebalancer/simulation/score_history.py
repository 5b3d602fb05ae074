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

"""Changes of the hosts' scores by moves, so that each can be taken back to the last bit."""

from collections.abc import Mapping

from kronos_nova.rebalancer.simulation import arrays


class ScoreHistory:
    """The changes of scores, by host and in order.

    :param score: P x H, changed in place.
    :param usage: P x N.
    :param capacity: P x H.
    """

    def __init__(self, score: arrays.Floats, usage: arrays.Floats,
                 capacity: arrays.Floats) -> None:
        self._score = score
        self._usage = usage
        self._capacity = capacity
        #: By host, the instances that came (1) and left (-1) in order, with the score before.
        self._changes: list[list[tuple[int, int, arrays.Floats]]] = [
            [] for _ in range(score.shape[1])]

    def record_change(self, n: int, h: int, sign: int) -> None:
        """Add instance n to host h, or take it away."""
        self._changes[h].append((n, sign, self._score[:, h].copy()))
        self._score[:, h] += sign * self._usage[:, n] / self._capacity[:, h]

    def change_back(self, n: int, h: int) -> None:
        """Take back the last change of host h by instance n; later changes stay."""
        changes = self._changes[h]
        at = self._find_last_change(n, h)
        self._score[:, h] = changes[at][2]
        later = changes[at + 1:]
        del changes[at:]
        for other, sign, _ in later:
            self.record_change(other, h, sign)

    def find_scores_without(self, n: int, h: int) -> arrays.Floats:
        """Return the scores of host h, by policy, without its last change by instance n."""
        changes = self._changes[h]
        at = self._find_last_change(n, h)
        score = changes[at][2].copy()
        for other, sign, _ in changes[at + 1:]:
            score += sign * self._usage[:, other] / self._capacity[:, h]
        return score

    def reorder_changes(self, h: int, position: Mapping[int, int]) -> None:
        """Put the changes of host h in another order.

        :param position: that of each instance; changes by other instances stay before them.
        """
        changes = self._changes[h]
        wanted = sorted(changes, key=lambda change: position.get(change[0], -1))
        if [n for n, _, _ in wanted] != [n for n, _, _ in changes]:
            self._score[:, h] = changes[0][2]
            changes.clear()
            for n, sign, _ in wanted:
                self.record_change(n, h, sign)

    def find_last_change(self, n: int, h: int) -> tuple[arrays.Floats, arrays.Floats]:
        """Return the scores of host h just before and just after its last change by instance n."""
        changes = self._changes[h]
        at = self._find_last_change(n, h)
        after = changes[at + 1][2] if at + 1 < len(changes) else self._score[:, h]
        return changes[at][2], after

    def _find_last_change(self, n: int, h: int) -> int:
        changes = self._changes[h]
        return next(i for i in reversed(range(len(changes))) if changes[i][0] == n)
