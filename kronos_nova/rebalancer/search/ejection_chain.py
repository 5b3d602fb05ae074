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


"""A search for room for an instance that must leave its host and fits nowhere.

An augmenting chain of two: another instance leaves a host for a third one, and the instance
takes its room. The search first tries instances that this plan itself has put on the host,
which costs no migration; then residents, which costs one, where imbalance moves need not
wait. The smallest instance that frees enough room goes first.
"""

from collections.abc import Iterator

import numpy as np

from kronos_nova import model
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import choice
from kronos_nova.rebalancer.search import replay

#: Largest number of chains to try for one instance.
TRIED = 64


def make_room(simulation: sim.Simulation, n: int, moves: list[model.Move], budget: int) -> bool:
    """Move instance n by a chain; return whether it moved.

    The simulation and ``moves`` then contain the moves.

    :param moves: of this plan, applied; all of the phase EVACUATE, or made here.
    :param budget: moves that may still be added.
    """
    if budget < 1:
        return False
    for tries, (host, other) in enumerate(_list_chains(simulation, n, moves, budget)):
        if tries >= TRIED or simulation.is_cut_off():
            return False
        if _try_chain(simulation, n, host, other, moves):
            return True
    return False


def _list_chains(simulation: sim.Simulation, n: int, moves: list[model.Move],
                 budget: int) -> Iterator[tuple[int, int]]:
    """Yield (host, instance to move off it) where enough room would become free."""
    every = np.arange(len(simulation.hosts))
    permitted = choice.compute_permitted_mask(simulation, np.array([n]), every)[0]
    placed = np.array([simulation.index[m.instance_uuid] for m in moves
                       if m.phase is model.Phase.EVACUATE], dtype=np.intp)
    resident = (np.flatnonzero(choice.may_move(simulation))
                if budget > 1 and not simulation.held and simulation.mode == 'spread'
                else placed[:0])
    for others in (placed, resident):
        others = others[permitted[simulation.place[others]]]
        others = others[_mark_sufficient(simulation, n, others)]
        for o in others[np.lexsort((others, simulation.cost[others]))]:
            yield int(simulation.place[o]), int(o)


def _mark_sufficient(simulation: sim.Simulation, n: int, others: sim.Ints) -> sim.Bools:
    """Return which of the instances leave enough room on their hosts for instance n."""
    room, hosts = simulation.room, simulation.place[others]
    need = simulation.claims[:, n, None]
    after = room.used[:, hosts] - simulation.claims[:, others]
    fits = (after + need <= room.limit[:, hosts]) | (need == 0.0)
    return np.asarray(fits[room.counted].all(axis=0))


def _try_chain(simulation: sim.Simulation, n: int, host: int, other: int,
               moves: list[model.Move]) -> bool:
    """Move the other instance elsewhere and instance n to its place; return whether both moved."""
    uuid = simulation.uuids[other]
    old = next((m for m in moves if m.instance_uuid == uuid), None)
    if old is not None:
        simulation.undo_move(old)
    for there in _list_other_destinations(simulation, other, host):
        first = replay.apply_move(simulation, other, there,
                                  old.phase if old else model.Phase.SPREAD)
        if first is None:
            continue
        second = replay.apply_move(simulation, n, host, model.Phase.EVACUATE)
        if second is not None:
            if old is not None:
                moves.remove(old)
            moves += [first, second]
            return True
        simulation.undo_move(first)
        break
    if old is not None:
        simulation.apply_move(old)
    return False


def _list_other_destinations(simulation: sim.Simulation, n: int, but: int) -> list[int]:
    """Return the hosts that may receive instance n, least loaded first."""
    every = np.arange(len(simulation.hosts))
    may = masks.mark_permitted(simulation, np.array([n]), every, masks.FILLING)[0]
    may[but] = False
    if simulation.trusted:
        may &= ~simulation.frozen
    load = (simulation.weights @ (simulation.score + simulation.usage[:, n, None]
                                  / simulation.capacity))
    hosts = every[may]
    return [int(h) for h in hosts[np.argsort(load[hosts], kind='stable')]]
