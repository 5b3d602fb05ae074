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

"""Evacuate: move everything off hosts that an operator disabled.

Running or paused instances are live-migrated; stopped ones are migrated cold, if that is
allowed. A warning names each instance that cannot be moved, with the reason.
"""

import itertools

import numpy as np

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import quiet_hours
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import batch
from kronos_nova.rebalancer.search import bin_packing
from kronos_nova.rebalancer.search import ejection_chain
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies import drain_requests

#: Smallest number of instances to place together, also with a smaller budget.
AHEAD = 64
#: Rules that cease to apply with time: a later cycle drains the instance.
PASSING = frozenset({'cooling', 'in-flight', 'group-in-flight', 'hint-in-flight'})


class Evacuate(base.Strategy):
    """Fewest instances first, so that hosts become free one after another.

    All hosts are one batch: no host's instances take the room that only another host's
    instances could use.
    """

    continues = True

    def enabled(self, options: model.PlanningOptions, policy_set: policies.PolicySet) -> bool:
        return options.evacuate_disabled_hosts

    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        hosts = drain_requests.drained_hosts(simulation.cluster, simulation.options)
        if simulation.history.scope_cooling > 0:
            hosts = [h for h in hosts if h in simulation.history.draining]
        for host in hosts:
            simulation.begin_drain(host)
        if not hosts:
            simulation.notes.append('no disabled host to drain')
        return self._evacuate_instances(simulation, _choose_batch(simulation, hosts, budget),
                                        budget)

    def _evacuate_instances(self, simulation: sim.Simulation, numbers: list[int],
                            budget: int) -> list[model.Move]:
        """Place each instance by ``drain_mode``; return the applied moves within the budget.

        Host after host: when all others of the host are placed, instances elsewhere make room
        for those that no host has room for. If an instance is still stranded at the end, the
        strategy places all again where they fit closest, if that places more. It places all
        instances and moves only the first ``budget``: the rest finds its room in later cycles.
        """
        moves = _by_mode(simulation, numbers)
        placed = {simulation.index[m.instance_uuid] for m in moves}
        stranded: list[int] = []
        for _, group in itertools.groupby(
                numbers, lambda n: simulation.cluster.instances[simulation.uuids[n]].host):
            unplaced = _place_singly(simulation, [n for n in group if n not in placed], moves)
            stranded += [n for n in unplaced if not (
                simulation.drainable[n] and not simulation.truncated
                and ejection_chain.make_room(simulation, n, moves, max(1, budget - len(moves))))]
        if any(simulation.drainable[n] for n in stranded) and not simulation.truncated:
            moves = _place_all_together(simulation, numbers, moves)
            moved = {simulation.index[m.instance_uuid] for m in moves}
            stranded = [n for n in stranded if n not in moved]
        for n in stranded:
            self._warn_of_blocked_drain(simulation, n)
        return _keep_first_moves(simulation, moves, budget)

    def _warn_of_blocked_drain(self, simulation: sim.Simulation, n: int) -> None:
        """Warn of the reason that keeps the host from becoming empty."""
        uuid, host = simulation.uuids[n], simulation.hosts[simulation.place[n]]
        if _is_under_way(simulation, uuid):
            return
        probe = model.Move(uuid, host, '', model.Phase.EVACUATE)
        own = constraints.check_alone(simulation.view, probe)
        if own is not None:
            if own.rule in quiet_hours.QUIETER_HOUR_RULE.codes:
                simulation.warnings.append(f'the drain of host {host} waits, because '
                                           f'{own.detail} ({own.rule})')
            elif own.rule not in PASSING:
                simulation.warnings.append(f'host {host} is disabled, not drained, because '
                                           f'{own.detail} ({own.rule})')
            return
        rows, columns = base.choose_representatives(
            simulation, np.array([n]), np.arange(len(simulation.hosts)), model.Phase.EVACUATE)
        moves = [simulation.build_move(n, int(h), model.Phase.EVACUATE) for h in columns]
        reasons = {rejection.rule for move in moves
                   if (rejection := constraints.judge_move(simulation.view, move)) is not None}
        if reasons & PASSING:
            return
        why = ', '.join(sorted(reasons)) or 'the scope has no other host'
        simulation.warnings.append(
            f'host {host} is disabled, not drained, because no host may take instance {uuid} '
            f'({why})')


def _place_singly(simulation: sim.Simulation, numbers: list[int],
                  moves: list[model.Move]) -> list[int]:
    """Place each instance on its best host; return those that no host has room for.

    :param moves: gets the applied moves.
    """
    stranded: list[int] = []
    for n in numbers:
        if simulation.is_cut_off():
            break
        move = (base.best_place(simulation, np.array([n]), model.Phase.EVACUATE)
                if simulation.drainable[n] else None)
        if move is not None:
            simulation.apply_move(move)
            moves.append(move)
        elif simulation.truncated:
            break  # the search was cut short, so the instance may have a host
        else:
            stranded.append(n)
    return stranded


def _choose_batch(simulation: sim.Simulation, hosts: list[str], budget: int) -> list[int]:
    """Choose the instances to place together, largest first by host.

    Hosts with the fewest instances come first. The largest instances fit the fewest hosts.
    """
    chosen: list[int] = []
    for host in sorted(hosts, key=lambda h: (len(simulation.list_on_host(h)), h)):
        if len(chosen) >= max(budget, AHEAD):
            break
        chosen += sorted((int(n) for n in simulation.list_on_host(host)),
                         key=lambda n: (-simulation.size[n], n))
    return chosen


def _by_mode(simulation: sim.Simulation, numbers: list[int]) -> list[model.Move]:
    """Place the instances for which ``drain_mode`` finds a host.

    The mode auto places no instance here: it leaves all to the least imbalance.
    """
    mode = simulation.options.drain_mode
    if mode == model.DrainMode.AUTO:
        return []
    drainable = np.array([n for n in numbers if simulation.drainable[n]], dtype=np.intp)
    return bin_packing.place_by_mode(simulation, drainable, mode, model.Phase.EVACUATE)


def _place_all_together(simulation: sim.Simulation, numbers: list[int],
                        moves: list[model.Move]) -> list[model.Move]:
    """Place all instances at once, if that places more; else apply ``moves`` again.

    Instances that no host can take at all are left out.
    """
    for move in reversed(moves):
        simulation.undo_move(move)
    drainable = np.array([n for n in numbers if simulation.drainable[n]], dtype=np.intp)
    batch_moves = batch.place_together(simulation,
                                       batch.list_placeable_instances(simulation, drainable))
    if batch_moves is not None and len(batch_moves) > sum(
            1 for m in moves if m.phase is model.Phase.EVACUATE):
        order = {simulation.uuids[n]: position for position, n in enumerate(numbers)}
        return sorted(batch_moves, key=lambda m: order[m.instance_uuid])
    for move in reversed(batch_moves or ()):
        simulation.undo_move(move)
    for move in moves:
        simulation.apply_move(move)
    return moves


def _keep_first_moves(simulation: sim.Simulation, moves: list[model.Move],
                      budget: int) -> list[model.Move]:
    """Keep the first moves within the budget; undo the others.

    A move that makes room for an undone move is undone too.
    """
    first_moves = moves[:budget]
    while (first_moves and len(first_moves) < len(moves)
           and first_moves[-1].phase is not model.Phase.EVACUATE):
        first_moves.pop()
    for move in reversed(moves[len(first_moves):]):
        simulation.undo_move(move)
    return first_moves


def _is_under_way(simulation: sim.Simulation, uuid: str) -> bool:
    """Return whether the instance is leaving, or on its way.

    A resize that its owner has not confirmed may stay so for days: it does not count, so
    that a warning names it.
    """
    if not simulation.view.is_in_flight(uuid):
        return False
    return (simulation.cluster.instances[uuid].status != statuses.UNCONFIRMED
            or any(f.instance_uuid == uuid and f.source == 'task'
                   for f in simulation.cluster.flights))
