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


"""Arrays to try moves on, many thousand times a second.

A board holds n candidate instances (rows, in order of their source) and c candidate
destinations (columns). Its bias contains from the beginning the rules that the moves of one
plan cannot change; claims follow the moves. At most one member of each server group moves,
so the groups permit the same destinations during the whole plan.
"""

from collections import Counter
from collections.abc import Mapping
import math

import numpy as np
import numpy.typing as npt

from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import choice
from kronos_nova.rebalancer.search import measure

#: A limit above the size of any host; whole numbers of this size are still exact.
ENDLESS = 1e15
#: A plan: row -> column.
Plan = Mapping[int, int]


class SearchBoard:
    """One start state, and the moves applied to it.

    ``share``: P x c x n, the addition of a row to a column's score. ``leaving``: P x n, the
    reduction of the score of its source. ``bias``: c x n, the price of a move, infinite
    where the move is forbidden. Rows come last: NumPy is fastest where the longest axis is
    the innermost.
    """

    def __init__(self, simulation: sim.Simulation, rows: sim.Ints, columns: sim.Ints,
                 budget: int) -> None:
        self.rows, self.columns = rows, columns
        self.measure = measure.StateMeasure(simulation)
        self.source: sim.Ints = simulation.place[rows]
        self.givers, self.takers = simulation.givers, simulation.takers
        self.score: sim.Floats = simulation.score.copy()
        usage = simulation.usage[:, rows]
        self.usage: sim.Floats = usage
        self.capacity: sim.Floats = simulation.capacity
        self.leaving: sim.Floats = usage / simulation.capacity[:, self.source]
        self.share: sim.Floats = usage[:, None, :] / simulation.capacity[:, columns, None]
        self.plan: dict[int, int] = {}
        self._groups = _list_row_groups(simulation, rows)
        self._members: dict[str, list[int]] = {}
        for row, groups in self._groups.items():
            for group in groups:
                self._members.setdefault(group, []).append(row)
        self._movers: Counter[str] = Counter()
        self.price = _compute_bias(simulation, rows, columns)
        self.bias = self.price.copy()
        self.need, self.free = _build_claim_arrays(simulation, rows, columns, budget)
        #: Whether claims can forbid a move at all.
        self.tight = self.need.size > 0
        #: Whether a destination may lack room for even one instance.
        self.scarce = self.tight and bool(
            (self.free[:, columns].min(axis=1) < self.need.max(axis=1)).any())
        if self.scarce:
            # Instances that find no room for their claims go to hosts with little load
            # capacity left: the plan must not count on moves that a ceiling refuses.
            self.need = np.concatenate([self.need, usage])
            self.free = np.concatenate([self.free, np.minimum(
                simulation.compute_headroom(np.unique(self.source)), ENDLESS)])
        #: The shortage of hosts at the start, and below the usual need of an instance.
        self.lack: sim.Floats = np.minimum(self.free, 0.0)
        self._usual = _compute_usual_need(self.need, len(self.need) - len(usage) * self.scarce)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    def list_group_rows(self, row: int) -> sim.Ints:
        """Return the row and the other members of its groups."""
        groups = self._groups.get(row, ())
        return np.array(sorted({row}.union(*(self._members[g] for g in groups))), dtype=np.intp)

    def place_row(self, row: int, column: int) -> None:
        """Move the row to the column; forbid moves of the other members of its groups."""
        self.plan[row] = column
        self._shift_load(row, column, 1.0)
        self._update_bias(row, 1)

    def remove_row(self, row: int) -> int:
        """Take the row's move back; return the column it went to."""
        column = self.plan.pop(row)
        self._shift_load(row, column, -1.0)
        self._update_bias(row, -1)
        return column

    def replace_plan(self, plan: Plan) -> None:
        """Replace the plan by exactly these moves."""
        for row in [r for r, c in self.plan.items() if plan.get(r) != c]:
            self.remove_row(row)
        for row, column in plan.items():
            if row not in self.plan:
                self.place_row(row, column)

    def compute_value(self) -> float:
        """Return the value of the state, the moves' prices included."""
        return self.measure.compute_value(self.score) + self.sum_move_prices()

    def sum_move_prices(self) -> float:
        """Return the sum of the moves' prices."""
        return math.fsum(self.price[column, row] for row, column in self.plan.items())

    def has_room(self, row: int, column: int) -> bool:
        """Return whether the claims have room, and, where room is scarce, the ceilings."""
        if not self.tight:
            return True
        need, room_left = self.need[:, row], self.free[:, self.columns[column]]
        return bool(((need <= room_left) | (need == 0.0)).all())

    def mark_room(self, rows: sim.Ints | slice) -> sim.Bools:
        """Return :meth:`has_room` for columns x rows."""
        need, room_left = self.need[:, None, rows], self.free[:, self.columns, None]
        return np.asarray(((need <= room_left) | (need == 0.0)).all(axis=0))

    def is_crowded(self) -> bool:
        """Return whether a destination lacks room for its instances, all moves done."""
        if not self.tight:
            return False
        room_left = self.free[:, self.columns[list(self.plan.values())]]
        return bool(((room_left < 0.0) & (self.need[:, list(self.plan)] > 0.0)).any())

    def compute_overflow(self) -> float:
        """Return the room that hosts lack for their new instances, in usual instances."""
        if not self.tight:
            return 0.0
        return float((self._compute_shortage().sum(axis=1) / self._usual).sum())

    def compute_overflow_changes(self, rows: sim.Ints | slice) -> npt.NDArray[np.float32]:
        """Return the change of :meth:`compute_overflow` by each addition: columns x rows."""
        source = self.source[rows]
        beyond = (self.lack - self.free) / self._usual[:, None]
        need = self.need[:, rows] / self._usual[:, None]
        over = np.maximum(beyond, 0.0)
        here = (np.maximum(beyond[:, source] - need, 0.0) - over[:, source]).sum(axis=0)
        total = np.zeros((len(self.columns), len(source)), dtype=np.float32)
        for needed, short in zip(need.astype(np.float32), beyond[:, self.columns].astype(
                np.float32), strict=True):
            there = needed + short[:, None]
            total += np.maximum(there, 0.0, out=there)
        total += here.astype(np.float32)
        total -= over.sum(axis=0)[self.columns, None].astype(np.float32)
        return total

    def order_rows(self) -> list[int] | None:
        """Return the plan's rows in an order in which each finds room left by earlier moves.

        None if this one attempt finds no such order.
        """
        rows = sorted(self.plan)
        if not self.scarce:
            return rows
        needs = self.need[:, rows].T
        sources = self.source[rows]
        destinations = self.columns[[self.plan[row] for row in rows]]
        room_left = self.free.copy()
        for need, source, destination in zip(needs, sources, destinations, strict=True):
            room_left[:, source] -= need
            room_left[:, destination] += need
        ordered_rows: list[int] = []
        waiting = list(range(len(rows)))
        while waiting:
            later = []
            for i in waiting:
                room = room_left[:, destinations[i]]
                if ((needs[i] <= room) | (needs[i] == 0.0)).all():
                    room -= needs[i]
                    room_left[:, sources[i]] += needs[i]
                    ordered_rows.append(rows[i])
                else:
                    later.append(i)
            if len(later) == len(waiting):
                return None
            waiting = later
        return ordered_rows

    def _compute_shortage(self) -> sim.Floats:
        return np.asarray(np.maximum(self.lack - self.free, 0.0))

    def _shift_load(self, row: int, column: int, sign: float) -> None:
        source, destination = self.source[row], self.columns[column]
        self.score[:, source] -= sign * self.leaving[:, row]
        self.score[:, destination] += sign * self.share[:, column, row]
        if self.tight:
            self.free[:, source] += sign * self.need[:, row]
            self.free[:, destination] -= sign * self.need[:, row]

    def _update_bias(self, row: int, sign: int) -> None:
        self.bias[:, row] = np.inf if row in self.plan else self.price[:, row]
        for group in self._groups.get(row, ()):
            self._movers[group] += sign
        for other in {r for g in self._groups.get(row, ()) for r in self._members[g]}:
            blocked = any(self._movers[g] for g in self._groups[other])
            self.bias[:, other] = np.inf if blocked else self.price[:, other]


def _compute_usual_need(need: sim.Floats, claims: int) -> sim.Floats:
    """Return the mean need of an instance (R); at least 1 for the claims, which come first."""
    mean = need.mean(axis=1) if need.size else np.ones(len(need))
    mean[:claims] = np.maximum(mean[:claims], 1.0)
    return np.asarray(np.where(mean > 0.0, mean, 1.0))


def _list_row_groups(simulation: sim.Simulation, rows: sim.Ints) -> dict[int, tuple[str, ...]]:
    """Return the UUIDs of the server groups of each row that has any."""
    return {int(row): tuple(g.uuid for g in
                            simulation.view.list_groups_of(simulation.uuids[rows[row]]))
            for row in np.flatnonzero(simulation.grouped[rows])}


def _compute_bias(simulation: sim.Simulation, rows: sim.Ints, columns: sim.Ints) -> sim.Floats:
    """Compute the price of the memory and the cost of soft groups, by column and row.

    It is infinite where a mask forbids the move that no move of this plan can lift, or
    where the move would undo a repair. Mending a soft group earns nothing here: a spread
    would spend its budget on that instead of on the imbalance.
    """
    fixed = choice.compute_permitted_mask(simulation, rows, columns)
    price = measure.compute_price(simulation.options, simulation.cost[rows])
    bias: sim.Floats = np.ascontiguousarray(np.where(fixed, price[:, None], np.inf).T)
    for row in np.flatnonzero(simulation.grouped[rows]):
        hard, soft = simulation.group_changes(int(rows[row]), columns)
        bias[:, row] += np.maximum(soft, 0) * simulation.options.soft_affinity_weight
        bias[simulation.mark_repairing(-hard, -soft), row] = np.inf
    return bias


def _build_claim_arrays(simulation: sim.Simulation, rows: sim.Ints, columns: sim.Ints,
                        budget: int) -> tuple[sim.Floats, sim.Floats]:
    """Return the need of rows (R x n) and the room left on hosts (R x H).

    R are the resource classes that the rule ``claims`` counts and that can run short at
    all.
    """
    room_left = np.clip(simulation.room.limit - simulation.room.used, -ENDLESS, ENDLESS)
    need = simulation.claims[:, rows]
    short = [r for r in simulation.room.counted
             if room_left[r, columns].min() < np.sort(need[r])[-budget:].sum()]
    return need[short], room_left[short]
