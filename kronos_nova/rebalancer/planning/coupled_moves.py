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

"""Dependencies and pairs of spread moves of which one alone does harm.

A search finds moves that lower the imbalance together. Executors may begin them in any order, and
any move may fail: the result may then be worse than the state before. So a move that does harm

* waits for the move after which it does none, if that move alone does none either: when that move
  fails, the harmful one is not made;
* else makes a pair with the move that offsets its harm: both, or none. One is made after the other,
  and when the second one fails the first one goes back. Two instances that change places are the
  common case.

Harm is a rise that no error of the scores can feign: a rise of the combined imbalance, or of one
policy's imbalance above its threshold, for which a single move is refused. Smaller rises are not
worth a migration. Moves that need more than one other move to do no harm stay as they are.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import move_dependencies as boards
from kronos_nova.rebalancer.search import measure
from kronos_nova.rebalancer.strategies import spread

#: Largest rise of the combined imbalance that the errors of two scores can feign.
LEAST = 2 * spread.NOISE
#: Most computations of harm: counted work, so that a replay binds the same moves.
MOST = 50_000
#: Depth to which this module may lengthen a chain of moves that wait for each other.
DEEPEST = 3

Needs = Mapping[str, set[str]]


def pair_harmful_moves(simulation: sim.Simulation, view: cluster_view.ClusterView,
                       moves: tuple[model.Move, ...],
                       ) -> tuple[tuple[model.Move, ...], tuple[model.Swap, ...]]:
    """Return the moves in waves, with all that each waits for, and the pairs.

    Moves of a pair have no alternates.

    :param simulation: with all moves applied.
    :param view: the cluster before the plan; left unchanged.
    :param moves: in waves.
    """
    if (sum(m.phase is model.Phase.SPREAD for m in moves) < 2 or not simulation.trusted
            or simulation.options.objective == 'kronos'):
        return moves, ()
    pairing = _MovePairing(_SpreadHarm(simulation, moves), moves)
    with boards.MoveBoard(view, moves).recall_at_end() as board:
        board.adopt_moves(moves)
        while pairing.bind_move() or pairing.pair_moves(board.may_return):
            pass
    return tuple(sorted(pairing.list_ordered_moves(), key=lambda m: m.wave)), tuple(pairing.swaps)


class _SpreadHarm:
    """Effect of spread moves on imbalances; all other moves of the plan have been made."""

    def __init__(self, simulation: sim.Simulation, moves: Sequence[model.Move]) -> None:
        self._measure = measure.StateMeasure(simulation)
        #: By instance UUID: host numbers, and the changes of their scores, P each.
        self._change: dict[str, list[tuple[int, sim.Floats]]] = {}
        self._start = simulation.score.copy()
        for move in moves:
            if move.phase is model.Phase.SPREAD:
                usage = simulation.usage[:, simulation.index[move.instance_uuid]]
                self._change[move.instance_uuid] = [
                    (h, sign * usage / simulation.capacity[:, h]) for h, sign in (
                        (simulation.host_index[move.from_host], -1.0),
                        (simulation.host_index[move.to_host], 1.0))]
        for changes in self._change.values():
            for h, change in changes:
                self._start[:, h] -= change
        self._known: dict[frozenset[str], sim.Floats] = {}
        self._computations = 0

    @property
    def is_used_up(self) -> bool:
        return self._computations >= MOST

    @property
    def list_instances(self) -> list[str]:
        return list(self._change)

    def compute_harm(self, earlier: set[str], more: set[str]) -> float:
        """Compute the harm of ``more`` after the ``earlier`` moves; negative: an improvement."""
        self._computations += 1
        before, after = self._compute_imbalances(earlier), self._compute_imbalances(earlier | more)
        weights, limits = self._measure.weights, np.maximum(before, self._measure.thresholds)
        rise = float(weights @ (after - before))
        return max(rise, float(weights @ np.maximum(after - limits, 0.0)) or rise)

    def does_harm(self, earlier: set[str], more: set[str]) -> bool:
        return self.compute_harm(earlier, more) > LEAST

    def _compute_imbalances(self, earlier: set[str]) -> sim.Floats:
        key = frozenset(earlier & self._change.keys())
        if key not in self._known:
            score = self._start.copy()
            for uuid in sorted(key):
                for h, change in self._change[uuid]:
                    score[:, h] += change
            self._known[key] = self._measure.compute_imbalances(score)
        return self._known[key]


class _MovePairing:
    """Requirements of each move, while they grow.

    ``needs``: by instance UUID, all requirements to the end of the chain.
    """

    def __init__(self, harm: _SpreadHarm, moves: Sequence[model.Move]) -> None:
        self._harm = harm
        self._move_by_uuid = {m.instance_uuid: m for m in moves}
        self.needs: dict[str, set[str]] = {}
        for move in moves:
            self.needs[move.instance_uuid] = {
                need for u in move.requires for need in (u, *self.needs[u])}
        #: Requirements of drains and repairs: they get no requirements of their own here.
        self._fixed = {u for move in moves if move.phase is not model.Phase.SPREAD
                       for u in self.needs[move.instance_uuid]}
        self.swaps: list[model.Swap] = []

    def list_ordered_moves(self) -> Iterator[model.Move]:
        """Yield each move in a wave after all its requirements."""
        waves: dict[str, int] = {}
        for uuid, move in sorted(self._move_by_uuid.items(),
                                 key=lambda item: len(self.needs[item[0]])):
            waves[uuid] = max([move.wave, *(waves[u] + 1 for u in self.needs[uuid])])
        for uuid, move in self._move_by_uuid.items():
            yield dataclasses.replace(move, wave=waves[uuid],
                                      requires=tuple(sorted(self.needs[uuid])))

    def bind_move(self) -> bool:
        """Make one move wait for another one; return whether this was possible."""
        for uuid in self._list_harmful_moves():
            candidates = []
            for other in self._harm.list_instances if uuid not in self._fixed else ():
                if self._harm.is_used_up:
                    return False
                first = self._collect_required_moves(other)
                new = first - self.needs[uuid]
                if (uuid not in first and new and not self._harm.does_harm(self.needs[uuid], new)
                        and not self._harm.does_harm(self.needs[uuid] | first, {uuid})):
                    candidates.append((len(new), self._harm.compute_harm(
                        self.needs[uuid], {*new, uuid}), sorted(new)))
            for _, _, first_ones in sorted(candidates):
                if self._add_requirements({uuid: set(first_ones)}):
                    return True
        return False

    def pair_moves(self, may_return: Callable[[str, str, Needs], bool]) -> bool:
        """Make one pair; return whether this was possible.

        :param may_return: whether the first instance may go back when the second move has failed.
        """
        for uuid in self._list_harmful_moves():
            pairs = []
            for other in self._harm.list_instances:
                if self._harm.is_used_up:
                    return False
                if other == uuid or self._list_swapped_uuids() & {uuid, other}:
                    continue
                first, second = self._in_turn(uuid, other)
                rest = (self.needs[first] | self.needs[second]) - {first, second}
                if (not self._fixed & {first, second}
                        and not self._harm.does_harm(rest, {first, second})
                        and self._harm.does_harm(rest, {first})
                        and not self._counted_on(first, second)):
                    pairs.append((self._harm.compute_harm(rest, {first, second}), first, second,
                                  rest))
            for _, first, second, rest in sorted(pairs, key=lambda pair: pair[:3]):
                # The requirements of the second one are made before the first one leaves.
                before = self.needs
                if not self._add_requirements({first: rest, second: {first, *rest}}):
                    continue
                if not may_return(first, second, self.needs):
                    self.needs = before
                else:
                    for member in (first, second):
                        self._move_by_uuid[member] = dataclasses.replace(
                            self._move_by_uuid[member], alternates=(), alternate_improvements=())
                    self.swaps.append(model.Swap(first, second))
                    return True
        return False

    def _list_harmful_moves(self) -> list[str]:
        """List the moves that do harm when all their requirements have been made."""
        firsts = {swap.first for swap in self.swaps}
        return [u for u in self._harm.list_instances
                if u not in firsts and self._harm.does_harm(self.needs[u], {u})]

    def _list_swapped_uuids(self) -> set[str]:
        return {uuid for swap in self.swaps for uuid in (swap.first, swap.second)}

    def _collect_required_moves(self, uuid: str) -> set[str]:
        """Return the move with all its requirements; of a pair, both moves with theirs."""
        required = {uuid, *self.needs[uuid]}
        for swap in self.swaps:
            if swap.first in required:
                required |= {swap.second, *self.needs[swap.second]}
        return required

    def _in_turn(self, first: str, other: str) -> tuple[str, str]:
        """Put the move first that the other one requires, else the one with less harm alone."""
        if first in self.needs[other] or other in self.needs[first]:
            return (first, other) if first in self.needs[other] else (other, first)
        evil = {uuid: self._harm.compute_harm(self.needs[uuid], {uuid}) for uuid in (first, other)}
        return (first, other) if (evil[first], first) <= (evil[other], other) else (other, first)

    def _counted_on(self, first: str, second: str) -> bool:
        """Return whether a third move waits for the first one, but not for the second one."""
        return any(first in needs and second != uuid and second not in needs
                   for uuid, needs in self.needs.items())

    def _add_requirements(self, more: Mapping[str, set[str]]) -> bool:
        """Add requirements to moves, and to all moves that wait for these.

        :returns: False: the chain would be too long, and nothing has changed.
        """
        wanted = {}
        for uuid, needs in self.needs.items():
            added = {need for changed_uuid, new in more.items()
                     if changed_uuid == uuid or changed_uuid in needs
                     for need in new}
            if added - needs:
                wanted[uuid] = needs | added
        new_needs = {**self.needs, **wanted}
        before, after = self._count_chain_depths(self.needs), self._count_chain_depths(new_needs)
        if any(after[uuid] > max(before[uuid], DEEPEST) for uuid in wanted):
            return False
        self.needs = new_needs
        return True

    @staticmethod
    def _count_chain_depths(needs: Needs) -> dict[str, int]:
        """Count the moves in the longest chain that each move waits for."""
        depths: dict[str, int] = {}
        for uuid in sorted(needs, key=lambda u: len(needs[u])):
            depths[uuid] = max((depths[u] + 1 for u in needs[uuid]), default=0)
        return depths
