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

"""Pack: empty whole hosts, or leave them alone; relieve the overfull.

Fill is what a policy's ``capacity_query`` says, its ceiling is
``capacity_threshold``. A drain is a transaction: either every instance of the
host finds a place on a host that is in use already, or nothing moves.
"""

import math

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base


class Pack(base.Strategy):
    imbalance = True
    continues = True

    def enabled(self, options: model.Options, policy_set: policies.PolicySet) -> bool:
        return policy_set.mode == 'pack'

    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        cooling = simulation.history.scope_cooling > 0
        moves = [] if cooling else _relieve(simulation, budget)
        moves += _empty_hosts(simulation, budget - len(moves))
        if not moves:
            simulation.notes.append('no host is over its ceiling and none can be emptied')
        return moves


def _over(simulation: sim.Simulation, host: str) -> float:
    """How far the host's fill is above a ceiling, at most, without what is
    leaving it already; <= 0: not over."""
    return max((fill - simulation.view.leaving(name, host) - simulation.ceilings[name]
                for name, fill in simulation.view.fills(host).items()), default=0.0)


def _in_use(simulation: sim.Simulation) -> list[str]:
    """Hosts that may take and hold an instance already."""
    return [h for i, h in enumerate(simulation.hosts)
            if simulation.takers[i] and simulation.on_host(h).size]


def _relieve(simulation: sim.Simulation, budget: int) -> list[model.Move]:
    """From hosts over a ceiling, the worst first; an empty host only when no
    host in use has room."""
    moves: list[model.Move] = []
    stuck: set[str] = set()
    while len(moves) < budget and not simulation.stop():
        over = sorted((-_over(simulation, h), h) for i, h in enumerate(simulation.hosts)
                      if simulation.givers[i] and h not in stuck)
        if not over or -over[0][0] <= metrics.ROUNDING:
            break
        excess, host = -over[0][0], over[0][1]
        move = (_relief(simulation, host, excess, _in_use(simulation))
                or _relief(simulation, host, excess, simulation.hosts))
        if move is None:
            stuck.add(host)
            simulation.warnings.append(f'host {host} is over its ceiling by {excess:.2f} and no '
                                       'instance on it has a legal destination')
            continue
        simulation.apply(move)
        moves.append(move)
    return moves


def _relief(simulation: sim.Simulation, host: str, excess: float,
            targets: list[str] | tuple[str, ...]) -> model.Move | None:
    """The cheapest instance that alone ends the excess, else the largest."""
    numbers = [n for n in simulation.on_host(host)
               if simulation.movable[n] and simulation.profiled[n]]

    def share(n: int) -> float:
        return max(simulation.view.ratio(p.name, simulation.uuids[n], host)
                   for p in simulation.policies)

    ranked = sorted(numbers, key=lambda n: (
        share(n) < excess, simulation.cost[n] if share(n) >= excess else -share(n), n))
    for n in ranked:
        if share(n) <= metrics.ROUNDING or simulation.stop():
            continue
        move = _fullest_place(simulation, int(n), targets)
        if move is not None:
            return move
    return None


def _empty_hosts(simulation: sim.Simulation, budget: int) -> list[model.Move]:
    """Hosts whose drain has begun, then those with the fewest instances."""
    moves: list[model.Move] = []
    begun = simulation.history.draining
    receiving = {f.to_host for f in simulation.cluster.flights}

    def order(host: str) -> tuple[bool, int, float, str]:
        fills = simulation.view.fills(host).values()
        return host not in begun, len(simulation.on_host(host)), math.fsum(fills), host

    tried: set[str] = set()
    while len(moves) < budget and not simulation.stop():
        hosts = [h for i, h in enumerate(simulation.hosts)
                 if simulation.givers[i] and h not in tried and simulation.on_host(h).size
                 and (h in begun or (simulation.history.scope_cooling <= 0
                                     and h not in receiving))]
        if not hosts:
            break
        host = min(hosts, key=order)
        tried.add(host)
        left = budget - len(moves)
        count = len(simulation.on_host(host))
        if count > left and moves and host not in begun:
            break
        taken = _drain(simulation, host)
        if taken is None:
            continue
        for extra in reversed(taken[left:]):
            simulation.undo(extra)
        moves += taken[:left]
    return moves


def _drain(simulation: sim.Simulation, host: str) -> list[model.Move] | None:
    """Moves that empty the host, applied; or None and nothing is changed.

    A drain that began earlier does not wait for those who are leaving, and is
    not called off for those who cool down: they follow.
    """
    numbers = [int(n) for n in simulation.on_host(host)]
    if host in simulation.history.draining:
        numbers = [n for n in numbers if not _follows(simulation, simulation.uuids[n])]
    if not all(simulation.movable[n] and simulation.profiled[n] for n in numbers):
        _give_up(simulation, host)
        return None
    begun = host in simulation.view.draining
    simulation.drain(host)
    targets = _in_use(simulation)
    taken: list[model.Move] = []
    for n in sorted(numbers, key=lambda n: (-_size(simulation, n, host), n)):
        move = _fullest_place(simulation, n, targets, settled=True)
        if move is None:
            for done in reversed(taken):
                simulation.undo(done)
            if begun:
                _give_up(simulation, host)
            else:
                simulation.reopen(host)
            return None
        simulation.apply(move)
        taken.append(move)
    return taken


def _follows(simulation: sim.Simulation, uuid: str) -> bool:
    """It is under way, or may be moved in a later cycle."""
    history = simulation.history
    return simulation.view.in_flight(uuid) or (
        uuid in history.cooling and uuid not in history.quarantined)


def _give_up(simulation: sim.Simulation, host: str) -> None:
    """A drain that began earlier and cannot be finished is called off."""
    if host in simulation.view.draining:
        simulation.reopen(host)
        simulation.warnings.append(f'the drain of host {host} is called off: what is left on it '
                                   'has no legal destination')


def _size(simulation: sim.Simulation, n: int, host: str) -> float:
    return max(simulation.view.ratio(p.name, simulation.uuids[n], host)
               for p in simulation.policies)


def _fullest_place(simulation: sim.Simulation, n: int, targets: list[str] | tuple[str, ...],
                   settled: bool = False) -> model.Move | None:
    """Best fit: the legal destination that is fullest already, ties by name.

    :param settled: not where it undoes what repair does.
    """
    uuid = simulation.uuids[n]
    source = simulation.place[n]
    before = simulation.combined()

    def fill(host: str) -> float:
        return max(simulation.view.fills(host).values(), default=0.0)

    ranked = sorted((simulation.host_index[h] for h in targets
                     if simulation.host_index[h] != source
                     and not (settled and simulation.undoes_repair(
                         simulation.move(n, simulation.host_index[h], model.Phase.PACK)))),
                    key=lambda h: (-fill(simulation.hosts[h]), h))
    move = sim.first_legal(simulation, [(n, h) for h in ranked], model.Phase.PACK,
                           lambda n, h: 0.0)
    if move is None:
        return None
    simulation.apply(move)
    gain = before - simulation.combined()
    simulation.undo(move)
    return model.Move(uuid, move.from_host, move.to_host, move.phase, improvement=gain)
