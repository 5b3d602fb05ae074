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


"""The move that lowers combined imbalance most: Kronos's greedy, made exact.

Seed 000: of all moves that push no policy up and above its threshold, the one
with the largest fall; among equals the first, by source host, instance and
destination host. Tried one by one these are N x H moves. This module
looks only at those that can win (see
:mod:`kronos_nova.rebalancer.simulation.extremes`):

* Source in A, the policies' unique maxima. The state after a move off s is
  known without its destination d: the maximum is at least M = max(rest, x_s -
  u), and the minimum, unless d is in D, at most L = min(lowest, x_s - u). So
  the combined imbalance is at least the sum of w x max(M - L, 0), and exactly
  this on every host with room below M.
* Destination in D, the unique minima, source not in A. The maximum stays or
  grows, the minimum ends at most at min(second lowest, x_d + v), where v is
  at most the largest usage on the source.

Both bounds are computed by the expressions of the real thing, so they hold in
floating point. Candidates are taken by falling bound and then in the order of
the ties, in growing batches, until no remaining candidate can win.
"""

from collections.abc import Callable
import dataclasses
import functools

import numpy as np

from kronos_nova import model
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.masks import domains
from kronos_nova.rebalancer.masks import groups
from kronos_nova.rebalancer.strategies import base

#: Number of instances or source hosts in the first batch, and the factor by which
#: each later batch grows.
FIRST = 2
GROWTH = 4
#: Largest number of good but refused moves that the report names.
REPORTED = 64

Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _MoveCandidate:
    """A candidate; of equal gains the lower ``order`` (source, instance, destination) wins."""

    gain: float
    order: tuple[int, int, int]


def best_move(simulation: sim.Simulation) -> model.Move | None:
    """Return the legal move with the largest gain, or None after counting the reasons."""
    banned: set[Pair] = set()
    while not simulation.is_cut_off():
        search = GreedySearch(simulation, banned)
        candidate = search.choose_candidate()
        if candidate is None:
            search.explain_refusals()
            return None
        n, h, gain = candidate
        move = simulation.build_move(n, h, model.Phase.SPREAD, gain)
        if not simulation.undoes_repair(move) and simulation.judge_move(move) is None:
            return move
        banned.add((n, h))
    return None


class GreedySearch:
    """A search for the best candidate in one state of a simulation.

    :param banned: (instance, host) pairs that a rule has refused.
    """

    def __init__(self, simulation: sim.Simulation, banned: set[Pair]) -> None:
        self._simulation = simulation
        self._banned = banned
        extremes = self._extremes = simulation.extremes
        self._before = extremes.compute_imbalances()
        self._combined = simulation.compute_combined()
        self._weights: list[float] = simulation.weights.tolist()
        self._thresholds: list[float] = simulation.thresholds.tolist()
        self._best: _MoveCandidate | None = None
        self._candidates = simulation.movable & simulation.profiled
        count = range(len(self._weights))
        self._hot = sorted({extremes.only_highest(p) for p in count} - {-1})
        self._cold = sorted({extremes.only_lowest(p) for p in count} - {-1})
        self._takers = np.flatnonzero(simulation.takers)

    def choose_candidate(self) -> tuple[int, int, float] | None:
        """Return (instance, host, gain) of the best candidate, or None."""
        rows = self._list_candidates(self._hot)
        if rows.size and self._takers.size:
            self._judge_block(rows, np.array(self._cold, dtype=np.intp))
            self._by_bound(rows, self._bounds_without(rows), self._order_of,
                           lambda part: self._judge_block(part, self._takers))
        givers = np.flatnonzero(self._simulation.givers)
        for d in self._cold:
            if self._best is not None and self._limit_towards(d) < self._best.gain:
                continue
            sources = givers[~np.isin(givers, [*self._hot, d])]
            self._by_bound(sources, self._bounds_towards(sources, d), lambda host: (host,),
                           functools.partial(self._judge_destination, d))
        if self._best is None:
            return None
        _, n, h = self._best.order
        return n, h, self._best.gain

    def explain_refusals(self) -> None:
        """Name the rules behind the masks that refuse improving moves."""
        rows = self._list_candidates(self._hot)[:REPORTED]
        if not rows.size or not self._takers.size:
            return
        gains = self._compute_gains(rows, self._takers)
        allowed = masks.mark_permitted(self._simulation, rows, self._takers)
        r, c = np.nonzero((gains > base.EPSILON) & ~allowed)
        base.count_masked(self._simulation, rows[r[:REPORTED]], self._takers[c[:REPORTED]],
                          model.Phase.SPREAD)

    def _list_candidates(self, hosts: list[int]) -> sim.Ints:
        """Return the candidates on the hosts, in the order of the ties."""
        names = self._simulation.hosts
        here = [self._simulation.list_on_host(names[h]) for h in hosts]
        rows = np.concatenate(here) if here else np.zeros(0, dtype=np.intp)
        return rows[self._candidates[rows]]

    def _order_of(self, n: int) -> tuple[int, ...]:
        return int(self._simulation.place[n]), n

    def _by_bound(self, items: sim.Ints, bounds: sim.Floats,
                  order_of: Callable[[int], tuple[int, ...]],
                  look: Callable[[sim.Ints], None]) -> None:
        """Look at items by falling bound, in growing batches, while one can win.

        :param items: instances or source hosts, in the order of the ties.
        """
        ranked = np.argsort(-bounds, kind='stable')
        start, size = 0, FIRST
        while start < len(ranked):
            bound, item = float(bounds[ranked[start]]), int(items[ranked[start]])
            if bound <= base.EPSILON:
                return
            if self._best is not None:
                order = order_of(item)
                if (-bound, order) > (-self._best.gain, self._best.order[:len(order)]):
                    return
            look(items[ranked[start:start + size]])
            start, size = start + size, size * GROWTH

    # Bounds; each is the expression of _gains with more favourable arguments.

    def _bounds_without(self, rows: sim.Ints) -> sim.Floats:
        """Return the highest possible gain of each instance on a host that is not cold."""
        simulation = self._simulation
        source = simulation.place[rows]
        takes = simulation.takers[source]
        total = np.zeros(len(rows))
        vetoed = np.zeros(len(rows), dtype=np.bool_)
        for p, weight in enumerate(self._weights):
            source_score = simulation.score[p, source] - (simulation.usage[p, rows]
                                                          / simulation.capacity[p, source])
            high = np.maximum(self._extremes.high_but_each(p, source), source_score)
            low = np.minimum(self._extremes.find_lowest_without(p),
                             np.where(takes, source_score, np.inf))
            after = np.maximum(high - low, 0.0)
            vetoed |= (after > self._before[p]) & (after > self._thresholds[p])
            total += weight * after
        return np.where(vetoed, -np.inf, self._combined - total)

    def _limit_towards(self, d: int) -> float:
        """Return the highest possible gain of a move from any host that is not hot to d."""
        total = 0.0
        for p, weight in enumerate(self._weights):
            total += weight * max(self._extremes.find_highest_without(p)
                                  - self._extremes.find_lowest_without(p, d), 0.0)
        return self._combined - total

    def _bounds_towards(self, sources: sim.Ints, d: int) -> sim.Floats:
        """Return the highest possible gain of a move to d from each host that is not hot."""
        simulation = self._simulation
        total = np.zeros(len(sources))
        for p, weight in enumerate(self._weights):
            most = simulation.score[p, d] + simulation.peaks[p, sources] / simulation.capacity[p, d]
            low = np.minimum(self._extremes.find_lowest_without(p, d), most)
            total += weight * np.maximum(self._extremes.find_highest_without(p) - low, 0.0)
        return np.asarray(self._combined - total)

    # The real thing.

    def _compute_gains(self, rows: sim.Ints, columns: sim.Ints) -> sim.Floats:
        """Return the fall of combined imbalance by instance and host.

        It is -inf where a policy would rise and end above its threshold.
        """
        simulation = self._simulation
        source = simulation.place[rows]
        takes = simulation.takers[source]
        total = np.zeros((len(rows), len(columns)))
        vetoed = np.zeros(total.shape, dtype=np.bool_)
        for p, weight in enumerate(self._weights):
            usage = simulation.usage[p, rows]
            source_score = simulation.score[p, source] - usage / simulation.capacity[p, source]
            there = (simulation.score[p, columns][None, :]
                     + usage[:, None] / simulation.capacity[p, columns][None, :])
            high = np.maximum(self._extremes.high_but_each(p, source), source_score)[:, None]
            low = np.minimum(self._extremes.low_but_each(p, columns)[None, :],
                             np.where(takes, source_score, np.inf)[:, None])
            after = np.maximum(there, high)
            after -= np.minimum(there, low)  # never below 0: ``there`` is in both
            worse = after > max(self._before[p], self._thresholds[p])
            vetoed |= worse
            after *= weight
            total += after
        gains = self._combined - total
        gains[vetoed] = -np.inf
        return np.asarray(gains)

    def _judge_destination(self, d: int, sources: sim.Ints) -> None:
        self._judge_block(self._list_candidates(sources.tolist()), np.array([d], dtype=np.intp))

    def _judge_block(self, rows: sim.Ints, columns: sim.Ints) -> None:
        """Take the best legal candidate of a block, if it is the best so far."""
        if not rows.size or not columns.size:
            return
        simulation = self._simulation
        simulation.steps += 1 + len(rows) * len(columns) // base.PER_STEP
        allowed = masks.mark_permitted(simulation, rows, columns, masks.QUICK)
        some = allowed.any(axis=1)
        if not some.all():
            rows, allowed = rows[some], allowed[some]
            if not rows.size:
                return
        gains = self._compute_gains(rows, columns)
        simulation.rejections['would-worsen'] += int((allowed & (gains == -np.inf)).sum())
        gains[~allowed] = -np.inf
        self._exclude_banned(gains, rows, columns)
        floor = base.EPSILON if self._best is None else self._best.gain
        judged: set[int] = set()
        while True:
            gain = float(gains.max())
            if not gain > base.EPSILON or gain < floor:
                return
            order, r = min(
                ((int(simulation.place[rows[r]]), int(rows[r]), int(columns[c])), r)
                for r, c in self._first_columns(gains, gain))
            n = order[1]
            if n not in judged and simulation.grouped[n]:
                judged.add(n)
                gains[r, ~permitted_by_groups(simulation, n, columns)] = -np.inf
                continue
            if self._best is None or (-gain, order) < (-self._best.gain, self._best.order):
                self._best = _MoveCandidate(gain, order)
            return

    @staticmethod
    def _first_columns(gains: sim.Floats, gain: float) -> list[Pair]:
        """Return (row, column) of the first such gain in each row that has it."""
        hits = gains == gain
        return [(int(r), int(hits[r].argmax())) for r in np.flatnonzero(hits.any(axis=1))]

    def _exclude_banned(self, gains: sim.Floats, rows: sim.Ints, columns: sim.Ints) -> None:
        for n, h in self._banned:
            gains[np.ix_(rows == n, columns == h)] = -np.inf


def permitted_by_groups(simulation: sim.Simulation, n: int, columns: sim.Ints) -> sim.Bools:
    """Return the columns that the hard group masks and seed 000's group rule permit.

    Seed 000 lets soft rules veto, and gathers an affinity group only as a whole. Members in
    other scopes count for the hard rules alone, as in Nova.
    """
    allowed: sim.Bools = groups.mark_hard_groups(
        simulation, np.array([n], dtype=np.intp), columns)[0]
    allowed &= domains.mark_spread_kept(simulation, np.array([n], dtype=np.intp), columns)[0]
    uuid = simulation.uuids[n]
    column = groups.list_columns(simulation, columns)
    for group in simulation.view.list_groups_of(uuid):
        holding = [h for h, members in simulation.view.placement.map_members_by_host(group).items()
                   if len(members) > (uuid in members) and h in simulation.host_index]
        holding_columns = groups.list_known_columns(simulation, column, holding)
        if group.policy is model.GroupPolicy.SOFT_ANTI_AFFINITY:
            allowed[holding_columns] = False
        elif group.policy is not model.GroupPolicy.ANTI_AFFINITY and holding:
            legal = allowed[holding_columns] & (len(holding) == 1)
            allowed[:] = False
            allowed[holding_columns] = legal
    return allowed
