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

The hosts to empty are chosen before any move, so that no instance goes to a host that is
emptied next: the smallest hosts first, which leaves the most room per host, then those with
the fewest instances. A host with as many instances as a packed host is emptied
only if the targets still hold with a margin of ``fill_hysteresis``; a host with fewer
instances costs fewer migrations and needs a smaller margin.

All leaving instances are placed together, the largest first, each where the level stays
lowest: the overload of a host grows faster than its fill, and equally filled hosts overload
least. A few instances share their destinations while levels are not far apart: then fewer
hosts bear the work of receiving.
"""

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies.pack import fill_forecast as outlooks

#: Largest number of hosts to try in another's place.
ALTERNATIVES = 32
#: Advantage of a host that receives already over one that does not, in levels.
SHARED = 0.1


def empty_hosts(outlook: outlooks.FillForecast, budget: int) -> list[model.Move]:
    """Apply the moves of drains that go on and of new ones."""
    moves = _continue_drains(outlook, budget)
    simulation = outlook.simulation
    if simulation.history.scope_cooling > 0 or simulation.is_cut_off():
        return moves
    used = int(_in_use(outlook).sum())
    new = _close(outlook, budget - len(moves), begun=bool(moves))
    if not new:
        simulation.notes.append(f'none of {used} hosts in use can be spared at the mean fill '
                                'that is aimed at')
    return moves + new


def _in_use(outlook: outlooks.FillForecast) -> sim.Bools:
    """Return which hosts with a known fill hold instances and stay."""
    simulation = outlook.simulation
    closed = np.array([h in simulation.view.draining for h in simulation.hosts])
    return np.asarray(simulation.givers & (outlook.counts > 0) & ~closed)


def _continue_drains(outlook: outlooks.FillForecast, budget: int) -> list[model.Move]:
    """Apply the rest of drains that began in an earlier cycle.

    A drain does not wait for instances that are leaving, and instances that cool down do
    not call it off: they follow.
    """
    simulation = outlook.simulation
    moves: list[model.Move] = []
    begun = [simulation.host_index[h] for h in sorted(simulation.history.draining)
             if h in simulation.host_index]
    for h in sorted(begun, key=lambda h: (outlook.counts[h], h)):
        moves_left = budget - len(moves)
        if moves_left <= 0 or simulation.is_cut_off():
            break
        if not simulation.givers[h] or not outlook.counts[h]:
            continue
        numbers = [n for n in _list_instances(outlook, h) if not _can_follow_later(outlook, n)]
        drain_moves, stuck = _drain_hosts(outlook, {h: numbers}, levelled=True)
        if stuck and not outlook.foresees:
            drain_moves, stuck = _drain_hosts(outlook, {h: numbers}, levelled=False)
        if stuck and simulation.truncated:  # the search was cut short: keep the drain
            simulation.begin_drain(simulation.hosts[h])
            break
        if stuck:
            _give_up(outlook, h)
            continue
        for extra in reversed(drain_moves[moves_left:]):
            outlook.undo_move(extra)
        moves += drain_moves[:moves_left]
    return moves


def _sort_closable_hosts(outlook: outlooks.FillForecast) -> list[int]:
    """Return the hosts that could be emptied: the smallest, then the fewest instances."""
    simulation = outlook.simulation
    receiving = {f.to_host for f in simulation.cluster.flights}
    hosts = [int(h) for h in np.flatnonzero(_in_use(outlook))
             if simulation.hosts[h] not in receiving
             and all(simulation.movable[n] and simulation.profiled[n]
                     for n in _list_instances(outlook, int(h)))]
    largest = simulation.capacity.max(axis=1, keepdims=True)
    size = (simulation.capacity / largest).sum(axis=0).round(9)
    fill = np.nan_to_num(simulation.fill).sum(axis=0)
    return sorted(hosts, key=lambda h: (size[h], outlook.counts[h], fill[h], h))


def _close(outlook: outlooks.FillForecast, budget: int, begun: bool) -> list[model.Move]:
    """Apply new drains.

    When the cheapest choice of hosts cannot all be emptied, the one that leaves the most
    room is tried too: more hosts win, then fewer moves.

    :param begun: the plan has drained a host already: begin no new drain that the budget
        cannot finish.
    """
    draining = set(outlook.simulation.view.draining)
    moves, stuck = _drain_in_rounds(outlook, budget, begun, cheap=True)
    if not stuck or outlook.foresees or outlook.simulation.is_cut_off():
        return moves
    closed = sorted(outlook.simulation.view.draining - draining)
    for move in reversed(moves):
        outlook.undo_move(move)
    for host in closed:
        outlook.simulation.undo_drain(host)
    others, _stuck = _drain_in_rounds(outlook, budget, begun, cheap=False)
    opened = sorted(outlook.simulation.view.draining - draining)
    if (len(opened), -len(others)) >= (len(closed), -len(moves)):
        return others
    for move in reversed(others):
        outlook.undo_move(move)
    for host in opened:
        outlook.simulation.undo_drain(host)
    for host in closed:
        outlook.simulation.begin_drain(host)
    return [outlook.apply_move(move) for move in moves]


def _drain_in_rounds(outlook: outlooks.FillForecast, budget: int, begun: bool,
                     cheap: bool) -> tuple[list[model.Move], bool]:
    """Drain hosts round by round.

    A host that cannot be emptied is a destination in the next round, and others of the
    order take its turn.

    :returns: the moves, and whether a host could not be emptied.
    """
    simulation = outlook.simulation
    moves: list[model.Move] = []
    order = _sort_closable_hosts(outlook)
    per_host = outlook.instances_per_host(_in_use(outlook))
    failed: set[int] = set()
    for levelled in (True,) if outlook.foresees else (True, False):
        tried: set[int] = set()
        while not simulation.is_cut_off():
            chosen = _choose_hosts(outlook,
                                   [h for h in order if h not in tried and outlook.counts[h]],
                                   budget - len(moves), per_host, begun or bool(moves), cheap)
            if not chosen:
                break
            moves_left = budget - len(moves)
            drain_moves, stuck = _drain_hosts(outlook,
                                              {h: _list_instances(outlook, h) for h in chosen},
                                              levelled)
            tried |= stuck
            for extra in reversed(drain_moves[moves_left:]):
                outlook.undo_move(extra)
            moves += drain_moves[:moves_left]
            if not stuck:
                break
        failed |= tried
    return moves, bool(failed)


def _choose_hosts(outlook: outlooks.FillForecast, order: list[int], budget: int, per_host: float,
                  begun: bool, cheap: bool) -> list[int]:
    """Choose the first hosts of the order that the targets let go together, within the budget.

    A single drain may exceed the budget when the plan contains no other move.
    """
    simulation = outlook.simulation
    among = _in_use(outlook)
    emptied = np.zeros(len(among), dtype=np.bool_)
    chosen: list[int] = []
    for h in order:
        count = int(outlook.counts[h])
        if simulation.hosts[h] in simulation.view.draining:
            continue
        if count > budget and (chosen or begun or budget <= 0):
            break
        emptied[h] = True
        slack = outlook.hysteresis * min(1.0, count / per_host)
        if not outlook.can_take_all(emptied, among, 1.0 - slack):
            break
        chosen.append(h)
        budget -= count
    if not cheap:
        return chosen
    emptied[:] = False
    emptied[chosen] = True
    return _choose_cheaper_hosts(outlook, chosen, [h for h in order if h not in chosen], among,
                                 emptied)


def _choose_cheaper_hosts(outlook: outlooks.FillForecast, chosen: list[int], others: list[int],
                          among: sim.Bools,
                          emptied: sim.Bools) -> list[int]:
    """Replace hosts by others with fewer instances, while the remaining room allows it.

    The number of hosts stays; a larger host takes the place of a smaller one.
    """
    rest = sorted(others, key=lambda h: (outlook.counts[h], h))[:ALTERNATIVES]
    for i in sorted(range(len(chosen)), key=lambda i: -outlook.counts[chosen[i]])[:ALTERNATIVES]:
        for other in rest:
            if outlook.counts[other] >= outlook.counts[chosen[i]]:
                break
            emptied[chosen[i]], emptied[other] = False, True
            if outlook.can_take_all(emptied, among, 1.0):
                rest.remove(other)
                chosen[i] = other
                break
            emptied[chosen[i]], emptied[other] = True, False
    return chosen


def _list_instances(outlook: outlooks.FillForecast, h: int) -> list[int]:
    return [int(n) for n in outlook.simulation.list_on_host(outlook.simulation.hosts[h])]


def _drain_hosts(outlook: outlooks.FillForecast, leaving: dict[int, list[int]],
                 levelled: bool) -> tuple[list[model.Move], set[int]]:
    """Empty the hosts; return the applied moves, and the hosts that cannot be emptied.

    No instance of the latter hosts moves.

    :param leaving: the instances to move, by host.
    """
    simulation = outlook.simulation
    stuck: set[int] = set()
    for h, numbers in leaving.items():
        simulation.begin_drain(simulation.hosts[h])
        if not all(simulation.movable[n] and simulation.profiled[n] for n in numbers):
            stuck.add(h)
            simulation.undo_drain(simulation.hosts[h])
    applied: list[tuple[int, model.Move]] = []
    source = {n: h for h, numbers in leaving.items() for n in numbers if h not in stuck}
    receiving = np.zeros(len(outlook.counts), dtype=np.bool_)
    shares = levelled and len(source) <= int(outlook.in_use().sum())  # else all receive
    for n in sorted(source, key=lambda n: (-outlook.compute_size(n), n)):
        h = source[n]
        if h in stuck:
            continue
        move = _find_destination_move(outlook, n, np.flatnonzero(outlook.in_use()), levelled,
                                      receiving)
        if move is not None:
            receiving[simulation.host_index[move.to_host]] = shares
            applied.append((h, outlook.apply_move(move)))
            continue
        for done in reversed([move for h_, move in applied if h_ == h]):
            outlook.undo_move(done)
        applied = [(h_, move) for h_, move in applied if h_ != h]
        stuck.add(h)
        simulation.undo_drain(simulation.hosts[h])
    rank = {h: i for i, h in enumerate(leaving)}
    applied.sort(key=lambda pair: rank[pair[0]])
    return [move for _, move in applied], stuck


def _find_destination_move(outlook: outlooks.FillForecast, n: int, hosts: sim.Ints, levelled: bool,
                           receiving: sim.Bools) -> model.Move | None:
    """Return a move to the lowest or the highest legal destination below its ceiling.

    Hosts that receive already count as lower. Destinations where the move would undo a
    repair are left out.
    """
    simulation = outlook.simulation
    hosts = outlook.list_permitted(n, hosts)
    level = outlook.compute_loaded_levels(n, hosts)
    fits = level <= 1.0 + metrics.ROUNDING
    if not fits.any():
        nearest = hosts[np.argsort(level, kind='stable')[:1]]
        if nearest.size and outlook.first_legal(n, [int(nearest[0])]) is not None:
            simulation.rejections['foreseen-peak'] += 1
        return None
    hosts, level = hosts[fits], level[fits]
    level = level - SHARED * receiving[hosts]
    for i in np.lexsort((hosts, level if levelled else -level)):
        h = int(hosts[i])
        if simulation.grouped[n] and simulation.undoes_repair(
                simulation.build_move(n, h, model.Phase.PACK)):
            continue
        move = outlook.first_legal(n, [h])
        if move is not None:
            return move
    return None


def _can_follow_later(outlook: outlooks.FillForecast, n: int) -> bool:
    """Return whether the instance is under way, or may be moved in a later cycle."""
    simulation, history = outlook.simulation, outlook.simulation.history
    uuid = simulation.uuids[n]
    return simulation.view.is_in_flight(uuid) or (
        (uuid in history.cooling or uuid in history.fresh)
        and uuid not in history.quarantined)


def _give_up(outlook: outlooks.FillForecast, h: int) -> None:
    """Warn that a drain that began earlier cannot be finished and is called off."""
    host = outlook.simulation.hosts[h]
    outlook.simulation.warnings.append(
        f'the drain of host {host} is called off: its last instances have no legal destination')
