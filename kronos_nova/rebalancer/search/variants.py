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

"""Several variants of one plan, computed at once.

Each variant takes some moves of the plan back and adds as many, each the best by the smooth
measure (see :mod:`soft_extremes`). NumPy takes as long to begin as to judge a thousand
candidates, so one call computes the same array for all variants.

Progress needs an instance that leaves a host near a maximum or goes to one near a minimum.
So this looks only at the few hosts with the largest shares in the smooth maxima as sources,
and at as many with the largest in the minima as destinations. Looking at all hosts finds no
better plans with as many additions.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import board as boards
from kronos_nova.rebalancer.search import measure
from kronos_nova.rebalancer.search import soft_extremes

#: Hosts to try as sources, and as destinations.
ENDS = 4
#: Fewest sources, where hosts hold many instances, and candidates of one variant then.
FEWEST = 2
CANDIDATES = 1500
SINGLE = soft_extremes.SINGLE


@dataclasses.dataclass
class VariantOutcome:
    """One variant: its value (see ``ruin_recreate.RuinRecreateSearch``), and its plan."""

    reached: bool
    value: float
    plan: dict[int, int]


class PlanVariants:
    """Variants of the plan that is laid on a board.

    Shapes: V variants, P policies, R resource classes, H hosts, n rows, c columns.
    """

    def __init__(self, board: boards.SearchBoard) -> None:
        self._board = board
        rows, columns = board.shape
        hosts = board.score.shape[1]
        counts = np.bincount(board.source, minlength=hosts)
        width = max(1, int(counts.max()))
        slot = np.arange(rows) - (np.cumsum(counts) - counts)[board.source]
        #: n + 1: place of a row in the arrays by host, H x the most rows of one
        #: host; the last place stands for no row.
        self._place = np.append(board.source * width + slot, hosts * width)
        #: H x most: rows, their usage, their need, and their prices by column.
        self._rows = self._by_host(np.arange(rows), width, 0)
        self._usage = self._by_host(board.usage, width, 0.0).swapaxes(0, 1).copy()
        self._need = self._by_host(board.need, width, 0.0)
        self._bias = self._by_host(board.price, width, np.inf).astype(SINGLE)
        self._wide = min(ENDS, columns)
        self._sources = min(hosts, max(FEWEST, min(ENDS, CANDIDATES // (width * self._wide))))
        self._per = 1.0 / board.capacity
        mates = [board.list_group_rows(row) for row in range(rows)]
        self._mates = np.full((rows, max(len(m) for m in mates)), rows, dtype=np.intp)
        for row, others in enumerate(mates):
            self._mates[row, :len(others)] = others
        self._mates = self._place[self._mates]

    def _by_host(self, values: npt.NDArray[Any], width: int, none: float) -> npt.NDArray[Any]:
        """Return values of shape ... x n as ... x H x width."""
        shape = (*values.shape[:-1], self._board.score.shape[1], width)
        host_values = np.full((*shape[:-2], shape[-2] * width), none, dtype=values.dtype)
        host_values[..., self._place[:-1]] = values
        return host_values.reshape(shape)

    def try_ruins(self, ruins: Sequence[list[int]], size: int,
                  scales: sim.Floats) -> list[VariantOutcome]:
        """Return the plan without the rows of each ruin, and with additions up to ``size``.

        :param ruins: V lists of rows of the plan, equally long.
        :param scales: V, in units of a score.
        """
        board, count = self._board, len(ruins)
        plans = [dict(board.plan) for _ in ruins]
        score = np.repeat(board.score[None], count, axis=0)
        room_left = np.repeat(board.free[None], count, axis=0)
        who = np.repeat(np.arange(count), [len(ruin) for ruin in ruins])
        rows = np.array([row for ruin in ruins for row in ruin], dtype=np.intp)
        columns = np.array([plans[v].pop(row) for v, row in zip(who.tolist(), rows.tolist(),
                                                                strict=True)], dtype=np.intp)
        hosts, width = self._rows.shape
        # V x (H x width + 1): how many moves of the plan forbid another one
        barred = np.repeat(np.bincount(self._mates[list(board.plan)].ravel(),
                                       minlength=hosts * width + 1)[None], count, axis=0)
        np.subtract.at(barred, (who[:, None], self._mates[rows]), 1)
        cost = np.full(count, board.sum_move_prices(), dtype=np.float64)
        np.subtract.at(cost, who, board.price[columns, rows])
        self._shift_loads(score, room_left, who, rows, columns, -1.0)
        for _ in range(size - len(plans[0])):
            who, rows, columns = self._find_best_additions(score, room_left, barred, scales)
            if not who.size:
                break
            self._shift_loads(score, room_left, who, rows, columns, 1.0)
            cost[who] += board.price[columns, rows]
            np.add.at(barred, (who[:, None], self._mates[rows]), 1)
            for v, row, column in zip(who.tolist(), rows.tolist(), columns.tolist(),
                                      strict=True):
                plans[v][row] = column
        reached, value = board.measure.mark_reached(score), board.measure.compute_values(
            score) + cost
        value[(room_left < board.lack).any(axis=(1, 2))] = np.inf
        return [VariantOutcome(bool(r), float(w), plan)
                for r, w, plan in zip(reached, value, plans, strict=True)]

    def _shift_loads(self, score: sim.Floats, room_left: sim.Floats, who: sim.Ints, rows: sim.Ints,
                     columns: sim.Ints, sign: float) -> None:
        board = self._board
        source, destination = board.source[rows], board.columns[columns]
        for p, values in enumerate(score.swapaxes(0, 1)):
            np.subtract.at(values, (who, source), sign * board.leaving[p, rows])
            np.add.at(values, (who, destination), sign * board.share[p, columns, rows])
        for r, values in enumerate(room_left.swapaxes(0, 1)) if board.tight else ():
            np.add.at(values, (who, source), sign * board.need[r, rows])
            np.subtract.at(values, (who, destination), sign * board.need[r, rows])

    def _find_best_additions(self, score: sim.Floats, room_left: sim.Floats, barred: sim.Ints,
                             scales: sim.Floats) -> tuple[sim.Ints, sim.Ints, sim.Ints]:
        """Return variant, row and column of the best addition of each variant that has one."""
        board, count = self._board, len(score)
        weights, thresholds = board.measure.weights, board.measure.thresholds
        high = board.measure.compute_highest(score)[:, :, None]
        low = board.measure.compute_lowest(score)[:, :, None]
        span = high - low  # V x P x 1
        scale = np.maximum(scales, span.max(axis=(1, 2)) / soft_extremes.SHARPEST)[:, None, None]
        near_high = np.exp(np.minimum((score - high) / scale, 0.0)) * board.givers
        near_low = np.exp(np.minimum((low - score) / scale, 0.0)) * board.takers
        total_high = near_high.sum(axis=2, keepdims=True)
        total_low = near_low.sum(axis=2, keepdims=True)
        hot = _choose_largest(weights @ (near_high / total_high), self._sources)
        column = _choose_largest((weights @ (near_low / total_low)).take(board.columns, axis=1),
                                 self._wide)
        cold = board.columns[column]
        usage = self._usage[hot].swapaxes(1, 2) / scale[..., None]  # V x P x sources x most
        outgoing = usage * _take_host_values(self._per[None], hot)[..., None]
        upper = np.expm1(-outgoing)
        lower = np.expm1(np.minimum(outgoing, soft_extremes.CAP, out=outgoing), out=outgoing)
        upper *= _take_host_values(near_high, hot)[..., None]
        lower *= _take_host_values(near_low, hot)[..., None]
        upper += (total_high + soft_extremes.TINY)[..., None]
        lower += (total_low + soft_extremes.TINY)[..., None]
        # V x P x destinations x candidates, in single precision from here on
        flat = (count, len(weights), 1, -1)
        come = (usage.astype(SINGLE).reshape(flat)
                * _take_host_values(self._per[None], cold).astype(SINGLE)[..., None])
        np.minimum(come, SINGLE(soft_extremes.CAP), out=come)
        x = np.expm1(come)
        x *= _take_host_values(near_high, cold).astype(SINGLE)[..., None]
        x += upper.astype(SINGLE).reshape(flat)
        y = np.expm1(np.negative(come, out=come), out=come)
        y *= _take_host_values(near_low, cold).astype(SINGLE)[..., None]
        y += lower.astype(SINGLE).reshape(flat)
        x *= y
        np.log(x, out=x)
        # the higher one of two lines, as in :mod:`soft_extremes`
        weight = weights[:, None]
        part = (1.0 - measure.BELOW) * thresholds[:, None]
        np.multiply(x, (weight * measure.BELOW * scale).astype(SINGLE)[..., None], out=y)
        y += (weight * measure.BELOW * span).astype(SINGLE)[..., None]
        x *= (weight * scale).astype(SINGLE)[..., None]
        x += (weight * (span - part)).astype(SINGLE)[..., None]
        total = np.maximum(x, y, out=x).sum(axis=1)
        total += self._bias[column[:, :, None], hot[:, None, :]].reshape(total.shape)
        v = np.arange(count)[:, None]
        hosts, width = self._rows.shape
        is_barred = barred[:, :-1].reshape(count, hosts, width)[v, hot].reshape(count, 1, -1) > 0
        np.copyto(total, SINGLE(np.inf), where=is_barred)
        for r, needs in enumerate(self._need):
            need = needs[hot].reshape(count, 1, -1)
            np.copyto(total, SINGLE(np.inf),
                      where=(need > room_left[v, r, cold][..., None]) & (need > 0.0))
        total = total.reshape(count, -1)
        best = total.argmin(axis=1)
        who = np.flatnonzero(total[v[:, 0], best] < np.inf)
        c, candidate = np.divmod(best[who], self._sources * width)
        s, w = np.divmod(candidate, width)
        return who, self._rows[hot[who, s], w], column[who, c]


def _take_host_values(values: sim.Floats, hosts: sim.Ints) -> sim.Floats:
    """Return the values (V or 1 x P x H) of each variant's hosts (V x k): V x P x k."""
    if len(values) == 1:
        return np.asarray(values[0].take(hosts, axis=1).swapaxes(0, 1))
    return np.take_along_axis(values, hosts[:, None, :], axis=2)


def _choose_largest(values: sim.Floats, count: int) -> sim.Ints:
    """Return the places of the largest values of each variant: V x count."""
    return np.asarray(np.argsort(-values, axis=1, kind='stable')[:, :count])
