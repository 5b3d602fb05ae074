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

"""Destinations of a drain's instances by a mode other than the least imbalance.

Compact fills one destination after the other, so that it uses the fewest: first fit
decreasing from the fullest host and from the emptiest one, then fewer hosts tried together,
bounded by a count. Scatter gives each destination as many instances as any other, give or
take one. Between hosts that are equal in a mode, soft groups decide, then claims.
"""

from collections.abc import Iterator
import itertools

import numpy as np

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import batch
from kronos_nova.rebalancer.search import replay

#: Largest number of sets of fewer destinations to try, and of placements on all sets.
SETS = 200
TRIED = 4000
#: Largest number of sets of one size to check for room for all instances together.
LOOKED_AT = 1000


def place_by_mode(simulation: sim.Simulation, numbers: sim.Ints, mode: model.DrainMode,
                  phase: model.Phase, hosts: sim.Ints | None = None) -> list[model.Move]:
    """Place the instances that a host can take; return the moves in the order of ``numbers``.

    :param mode: compact or scatter.
    :param hosts: destinations, ascending; None: any of the scope.
    """
    if hosts is None:
        hosts = np.arange(len(simulation.hosts), dtype=np.intp)
    if mode == model.DrainMode.SCATTER:
        return _place_scattered(simulation, numbers, phase, hosts)
    order = {simulation.uuids[n]: at for at, n in enumerate(map(int, numbers))}
    return sorted(_place_compactly(simulation, numbers, phase, hosts),
                  key=lambda move: order[move.instance_uuid])


def _place_scattered(simulation: sim.Simulation, numbers: sim.Ints, phase: model.Phase,
                     hosts: sim.Ints) -> list[model.Move]:
    """Place each instance on the host that has received the fewest."""
    come = np.zeros(len(simulation.hosts))
    moves = []
    for n in map(int, numbers):
        allowed = hosts[batch.may_take(simulation, np.array([n]), hosts, phase)[0]]
        keys = (allowed, simulation.room.compute_fullest(n, allowed),
                _count_broken_soft_rules(simulation, n, allowed),
                come[allowed])
        move = _apply_first_legal(simulation, n, allowed[np.lexsort(keys)], phase)
        if move is not None:
            moves.append(move)
            come[simulation.host_index[move.to_host]] += 1
    return moves


def _place_compactly(simulation: sim.Simulation, numbers: sim.Ints, phase: model.Phase,
                     hosts: sim.Ints) -> list[model.Move]:
    """Place the instances by the better of two orders of opening hosts, or on fewer hosts."""
    numbers = numbers[np.argsort(-batch.compute_claim_shares(simulation, numbers), kind='stable')]
    best_moves: list[model.Move] = []
    for sign in (-1.0, 1.0):
        moves = _first_fit(simulation, numbers, phase, hosts, sign)
        _undo(simulation, moves)
        if not best_moves or (-len(moves), _count_destinations(moves)) < (
                -len(best_moves), _count_destinations(best_moves)):
            best_moves = moves
    placed = np.array([simulation.index[m.instance_uuid] for m in best_moves], dtype=np.intp)
    return (_place_on_fewer_hosts(simulation, placed, _count_destinations(best_moves), phase, hosts)
            or [_reapply_move(simulation, move) for move in best_moves])


def _first_fit(simulation: sim.Simulation, numbers: sim.Ints, phase: model.Phase,
               hosts: sim.Ints, sign: float) -> list[model.Move]:
    """Place each instance on the fullest host in use that can take it; else open another host.

    :param sign: -1: open the fullest, 1: the emptiest.
    """
    used = np.zeros(len(simulation.hosts), dtype=np.bool_)
    moves = []
    for n in map(int, numbers):
        allowed = hosts[batch.may_take(simulation, np.array([n]), hosts, phase)[0]]
        full = simulation.room.compute_fullest(n, allowed)
        taking = used[allowed]
        keys = (allowed, np.where(taking, -full, sign * full),
                _count_broken_soft_rules(simulation, n, allowed),
                ~taking)
        move = _apply_first_legal(simulation, n, allowed[np.lexsort(keys)], phase)
        if move is not None:
            moves.append(move)
            used[simulation.host_index[move.to_host]] = True
    return moves


def _place_on_fewer_hosts(simulation: sim.Simulation, numbers: sim.Ints, width: int,
                          phase: model.Phase,
                          hosts: sim.Ints) -> list[model.Move] | None:
    """Place all instances on fewer hosts than ``width``; return the applied moves, or None."""
    if width <= 1:
        return None
    allowed = batch.may_take(simulation, numbers, hosts, phase)
    hosts = hosts[allowed.any(axis=0)]
    tries_left = TRIED
    for some in itertools.islice(_list_host_sets(simulation, numbers, hosts, width), SETS):
        if tries_left <= 0 or simulation.is_cut_off():
            break
        moves, tried = batch.place_on(simulation, numbers, some, phase, tries_left)
        tries_left -= tried
        if moves is not None:
            return moves
    return None


def _list_host_sets(simulation: sim.Simulation, numbers: sim.Ints, hosts: sim.Ints,
                    width: int) -> Iterator[sim.Ints]:
    """Yield sets of fewer than ``width`` hosts with room for all instances together.

    The smallest sets come first, among equals the fullest.
    """
    room = simulation.room
    free = np.maximum((room.limit - room.used)[room.counted][:, hosts], 0.0)
    need = simulation.claims[room.counted][:, numbers].sum(axis=1)
    order = np.lexsort((hosts, free.sum(axis=0)))
    most = -np.sort(-free, axis=1)
    for size in range(1, width):
        if (most[:, :size].sum(axis=1) < need).any():
            continue
        tried = itertools.islice(itertools.combinations(order.tolist(), size), LOOKED_AT)
        for chosen in map(list, tried):
            if (free[:, chosen].sum(axis=1) >= need).all():
                yield np.sort(hosts[chosen])


def _apply_first_legal(simulation: sim.Simulation, n: int, hosts: sim.Ints,
                       phase: model.Phase) -> model.Move | None:
    """Move the instance to the first host that the rules allow; return the applied move."""
    for h in map(int, hosts):
        if simulation.is_cut_off():
            return None
        move = replay.apply_move(simulation, n, h, phase)
        if move is not None:
            return move
    return None


def _count_broken_soft_rules(simulation: sim.Simulation, n: int, hosts: sim.Ints) -> sim.Floats:
    """Count the soft rules and spreads that instance n would break on each host, less those mended.
    """
    if not simulation.grouped[n]:
        return np.zeros(len(hosts))
    return simulation.count_broken_preferences(n, hosts).astype(float)


def _count_destinations(moves: list[model.Move]) -> int:
    return len({m.to_host for m in moves})


def _undo(simulation: sim.Simulation, moves: list[model.Move]) -> None:
    for move in reversed(moves):
        simulation.undo_move(move)


def _reapply_move(simulation: sim.Simulation, move: model.Move) -> model.Move:
    simulation.apply_move(move)
    return move
