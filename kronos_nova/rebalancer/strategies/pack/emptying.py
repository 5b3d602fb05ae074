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

"""Emptying: as many hosts as the mean fill targets allow, each whole or not.

What is to be closed is chosen before anything moves, so that no instance goes
to a host that is emptied next: the smallest hosts first, which leaves the most
room per host, then those with the fewest instances. Destinations are levelled,
because what overloads a host grows faster than its fill; where that leaves no
room for a large instance, the fullest that fits is taken.
"""

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies.pack import outlook as outlooks


def empty_hosts(outlook: outlooks.Outlook, budget: int) -> list[model.Move]:
    """Moves of drains that go on and of new ones, applied."""
    moves = _continue(outlook, budget)
    simulation = outlook.simulation
    if simulation.history.scope_cooling > 0 or simulation.stop():
        return moves
    order = _order(outlook)
    closing = _closing(outlook, order)
    used = int(_in_use(outlook).sum())
    if closing.sum() < max(1.0, outlook.hysteresis * used):
        simulation.notes.append(f'{int(closing.sum())} of {used} hosts in use could be spared at '
                                'the mean fill that is aimed at')
        return moves
    return moves + _close(outlook, order, closing, budget - len(moves), begun=bool(moves))


def _in_use(outlook: outlooks.Outlook) -> sim.Bools:
    """Hosts with a known fill that hold instances and stay."""
    simulation = outlook.simulation
    closed = np.array([h in simulation.view.draining for h in simulation.hosts])
    return np.asarray(simulation.givers & (outlook.counts > 0) & ~closed)


def _continue(outlook: outlooks.Outlook, budget: int) -> list[model.Move]:
    """The rest of drains that began in an earlier cycle.

    A drain does not wait for those who are leaving, and is not called off for
    those who cool down: they follow.
    """
    simulation = outlook.simulation
    moves: list[model.Move] = []
    begun = [simulation.host_index[h] for h in sorted(simulation.history.draining)
             if h in simulation.host_index]
    for h in sorted(begun, key=lambda h: (outlook.counts[h], h)):
        left = budget - len(moves)
        if left <= 0 or simulation.stop():
            break
        if not simulation.givers[h] or not outlook.counts[h]:
            continue
        numbers = [n for n in _residents(outlook, h) if not _follows(outlook, n)]
        taken = _drain(outlook, h, numbers, outlook.in_use())
        if taken is None:
            _give_up(outlook, h)
            continue
        for extra in reversed(taken[left:]):
            outlook.undo(extra)
        moves += taken[:left]
    return moves


def _order(outlook: outlooks.Outlook) -> list[int]:
    """Hosts that could be emptied: the smallest, then the fewest instances."""
    simulation = outlook.simulation
    receiving = {f.to_host for f in simulation.cluster.flights}
    hosts = [int(h) for h in np.flatnonzero(_in_use(outlook))
             if simulation.hosts[h] not in receiving
             and all(simulation.movable[n] and simulation.profiled[n]
                     for n in _residents(outlook, int(h)))]
    largest = simulation.capacity.max(axis=1, keepdims=True)
    size = (simulation.capacity / largest).sum(axis=0).round(9)
    fill = np.nan_to_num(simulation.fill).sum(axis=0)
    return sorted(hosts, key=lambda h: (size[h], outlook.counts[h], fill[h], h))


def _closing(outlook: outlooks.Outlook, order: list[int]) -> sim.Bools:
    """The first of the order that the targets let go together."""
    among = _in_use(outlook)
    closing = np.zeros(len(among), dtype=np.bool_)
    for h in order:
        closing[h] = True
        if not outlook.sustains(closing, among):
            closing[h] = False
            break
    return closing


def _close(outlook: outlooks.Outlook, order: list[int], closing: sim.Bools, budget: int,
           begun: bool) -> list[model.Move]:
    """Drains one host after the other; one that cannot be emptied becomes a
    destination again, and the next of the order takes its turn.

    :param begun: the plan has drained something already: no new drain is begun
        that the budget cannot finish.
    """
    simulation = outlook.simulation
    among = _in_use(outlook)
    moves: list[model.Move] = []
    for h in order:
        left = budget - len(moves)
        if left <= 0 or simulation.stop():
            break
        if not closing[h]:
            closing[h] = True
            if not outlook.sustains(closing, among):
                closing[h] = False
                continue
        if outlook.counts[h] > left and (moves or begun):
            break
        simulation.drain(simulation.hosts[h])
        taken = _drain(outlook, h, _residents(outlook, h), outlook.in_use() & ~closing)
        if taken is None:
            simulation.reopen(simulation.hosts[h])
            closing[h] = False
            continue
        for extra in reversed(taken[left:]):
            outlook.undo(extra)
        moves += taken[:left]
    return moves


def _residents(outlook: outlooks.Outlook, h: int) -> list[int]:
    return [int(n) for n in outlook.simulation.on_host(outlook.simulation.hosts[h])]


def _drain(outlook: outlooks.Outlook, h: int, numbers: list[int],
           targets: sim.Bools) -> list[model.Move] | None:
    """Moves that take the instances off the host, applied; or None and
    nothing is changed."""
    simulation = outlook.simulation
    if not all(simulation.movable[n] and simulation.profiled[n] for n in numbers):
        return None
    hosts = np.flatnonzero(targets)
    numbers = sorted(numbers, key=lambda n: (-outlook.size(n), n))
    for levelled in (True, False):
        taken: list[model.Move] = []
        for n in numbers:
            move = _place(outlook, n, hosts, levelled)
            if move is None:
                break
            taken.append(outlook.apply(move))
        if len(taken) == len(numbers):
            return taken
        for done in reversed(taken):
            outlook.undo(done)
    return None


def _place(outlook: outlooks.Outlook, n: int, hosts: sim.Ints,
           levelled: bool) -> model.Move | None:
    """The lowest or the highest legal destination below its ceiling; not where
    it undoes what repair does."""
    simulation = outlook.simulation
    hosts = outlook.permitted(n, hosts)
    level = outlook.loaded(n, hosts)
    fits = level <= 1.0 + metrics.ROUNDING
    if not fits.any():
        nearest = hosts[np.argsort(level, kind='stable')[:1]]
        if nearest.size and outlook.first_legal(n, [int(nearest[0])]) is not None:
            simulation.rejections['foreseen-peak'] += 1
        return None
    hosts, level = hosts[fits], level[fits]
    for i in np.lexsort((hosts, level if levelled else -level)):
        h = int(hosts[i])
        if simulation.grouped[n] and simulation.undoes_repair(
                simulation.move(n, h, model.Phase.PACK)):
            continue
        move = outlook.first_legal(n, [h])
        if move is not None:
            return move
    return None


def _follows(outlook: outlooks.Outlook, n: int) -> bool:
    """It is under way, or may be moved in a later cycle."""
    simulation, history = outlook.simulation, outlook.simulation.history
    uuid = simulation.uuids[n]
    return simulation.view.in_flight(uuid) or (
        uuid in history.cooling and uuid not in history.quarantined)


def _give_up(outlook: outlooks.Outlook, h: int) -> None:
    """A drain that began earlier and cannot be finished is called off."""
    host = outlook.simulation.hosts[h]
    outlook.simulation.reopen(host)
    outlook.simulation.warnings.append(
        f'the drain of host {host} is called off: what is left on it has no legal destination')
