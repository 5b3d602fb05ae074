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

"""Of a plan's spread moves, which are both or none.

Two moves between the same hosts in opposite directions are a swap where the first of them
alone would leave the cloud worse than it is: when the second one fails, the first one goes back.
Where the first one alone does good it stays, and nothing is bound.
"""

from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base

_BACK = tuple(rule for rule in constraints.RULES
              if rule not in (metrics.scored, metrics.ceiling))


def paired(simulation: sim.Simulation, view: cluster_view.ClusterView,
           moves: tuple[model.Move, ...],
           ) -> tuple[tuple[model.Move, ...], tuple[model.Swap, ...]]:
    """The moves, those of a swap without alternates and one after the other; and the swaps.

    :param simulation: with all of them applied.
    :param view: the cluster before the plan.
    :param moves: in waves.
    """
    opposite = list(_opposite(moves))
    if not opposite:
        return moves, ()
    alone = _alone(simulation, moves, {m for pair in opposite for m in pair})
    found = {m.instance_uuid: m for m in moves}
    swaps: list[model.Swap] = []
    taken: set[str] = set()
    for one, other in opposite:
        first, second = _in_turn(one, other, alone, found)
        uuids = {first.instance_uuid, second.instance_uuid}
        if (alone[first.instance_uuid] <= base.EPSILON or not taken.isdisjoint(uuids)
                or not _may_go_back(view, first) or _counted_on(first, second, found)):
            continue
        taken |= uuids
        _bind(first.instance_uuid, second.instance_uuid, found)
        swaps.append(model.Swap(first.instance_uuid, second.instance_uuid))
    if not swaps:
        return moves, ()
    return tuple(sorted(_waves(found), key=lambda m: m.wave)), tuple(swaps)


def _opposite(moves: Sequence[model.Move]) -> Iterator[tuple[model.Move, model.Move]]:
    """Spread moves between two hosts, there and back."""
    by_ends: dict[tuple[str, str], list[model.Move]] = defaultdict(list)
    for move in moves:
        if move.phase is model.Phase.SPREAD:
            for other in by_ends[move.to_host, move.from_host]:
                yield other, move
            by_ends[move.from_host, move.to_host].append(move)


def _alone(simulation: sim.Simulation, moves: Sequence[model.Move],
           some: set[model.Move]) -> dict[str, float]:
    """By instance UUID, how much larger the combined imbalance is after this move alone."""
    for move in reversed(moves):
        simulation.undo(move)
    before, found = simulation.combined(), {}
    for move in moves:
        if move in some:
            simulation.apply(move)
            found[move.instance_uuid] = simulation.combined() - before
            simulation.undo(move)
    for move in moves:
        simulation.apply(move)
    return found


def _in_turn(one: model.Move, other: model.Move, alone: dict[str, float],
             found: dict[str, model.Move]) -> tuple[model.Move, model.Move]:
    """Whoever the other one requires goes first, else whose move alone is the lesser evil."""
    if one.instance_uuid in _needs(other.instance_uuid, found):
        return one, other
    if other.instance_uuid in _needs(one.instance_uuid, found):
        return other, one
    return ((one, other) if alone[one.instance_uuid] <= alone[other.instance_uuid]
            else (other, one))


def _needs(uuid: str, found: dict[str, model.Move]) -> set[str]:
    """All that must have completed before, to the end of the chain."""
    return {need for u in found[uuid].requires for need in (u, *_needs(u, found))}


def _may_go_back(view: cluster_view.ClusterView, move: model.Move) -> bool:
    back = dataclasses.replace(move, from_host=move.to_host, to_host=move.from_host)
    if constraints.check(view, move, _BACK) is not None:
        return False  # only after others have moved: what holds then is not known here
    view.land(move)
    try:
        return constraints.check(view, back, _BACK) is None
    finally:
        view.undo(move)


def _counted_on(first: model.Move, second: model.Move, found: dict[str, model.Move]) -> bool:
    """Somebody else begins when the first one has left, whatever the second one does."""
    return any(first.instance_uuid in m.requires and second.instance_uuid
               not in (uuid, *m.requires) for uuid, m in found.items())


def _bind(first: str, second: str, found: dict[str, model.Move]) -> None:
    needs = {first, *found[second].requires, *_needs(first, found)}
    found[second] = dataclasses.replace(found[second], requires=tuple(sorted(needs)))
    for uuid in (first, second):
        found[uuid] = dataclasses.replace(found[uuid], alternates=(), alternate_improvements=())


def _waves(found: dict[str, model.Move]) -> Iterator[model.Move]:
    """Each after all that it requires."""
    waves: dict[str, int] = {}

    def wave(uuid: str) -> int:
        if uuid not in waves:
            move = found[uuid]
            waves[uuid] = max([move.wave, *(wave(u) + 1 for u in move.requires)])
        return waves[uuid]

    for uuid, move in found.items():
        yield dataclasses.replace(move, wave=wave(uuid))
