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


"""A set of moves, applied in an order in which every rule permits each."""

from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim


def apply_in_order(simulation: sim.Simulation,
                   wanted: Sequence[tuple[int, int]]) -> list[model.Move]:
    """Apply the moves in an order in which every rule permits each; return the applied ones.

    Moves off the hottest hosts come first: they have the largest effect if a later move is
    cut off or fails. A move that must wait for room is tried again after the others; a move
    that stays illegal is left out. If any is left out, the order of ``wanted`` is tried
    too.

    :param wanted: (instance number, host number).
    """
    hottest = sorted(wanted, key=lambda pair: (
        -float((simulation.weights * simulation.score[:, simulation.place[pair[0]]]).sum()), pair))
    applied = _apply(simulation, hottest)
    if len(applied) == len(wanted) or len(wanted) <= 2 or simulation.is_cut_off():
        return applied
    _undo(simulation, applied)
    other = _apply(simulation, wanted)
    if len(other) > len(applied):
        return other
    _undo(simulation, other)
    return _apply(simulation, hottest)


def _undo(simulation: sim.Simulation, moves: Sequence[model.Move]) -> None:
    for move in reversed(moves):
        simulation.undo_move(move)


def _apply(simulation: sim.Simulation, wanted: Sequence[tuple[int, int]]) -> list[model.Move]:
    """Apply each move when it is legal, those that must wait after the others."""
    applied: list[model.Move] = []
    waiting = list(wanted)
    while waiting:
        still_waiting = []
        for n, h in waiting:
            if simulation.is_cut_off():
                return applied
            if simulation.undoes_repair(simulation.build_move(n, h, model.Phase.SPREAD)):
                continue
            move = apply_move(simulation, n, h)
            if move is None:
                still_waiting.append((n, h))
            else:
                applied.append(move)
        if len(still_waiting) == len(waiting):
            break
        waiting = still_waiting
    return applied


def apply_move(simulation: sim.Simulation, n: int, h: int,
               phase: model.Phase = model.Phase.SPREAD) -> model.Move | None:
    """Apply the move; return it with the fall in combined imbalance, or None if it is illegal."""
    move = simulation.build_move(n, h, phase)
    if simulation.judge_move(move) is not None:
        return None
    before = simulation.compute_combined()
    simulation.apply_move(move)
    return dataclasses.replace(move, improvement=before - simulation.compute_combined())
