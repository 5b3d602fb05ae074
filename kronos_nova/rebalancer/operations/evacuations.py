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

"""Plans that empty a whole host now, at an operator's request, onto named hosts. Pure.

Their moves are judged, ordered and checked as all requested moves are (:mod:`requested_moves`).
Other instances do not make room. The host stays enabled: an operator who wants it to stay empty
disables it.
"""

from collections import Counter
from collections.abc import Sequence
import dataclasses

import numpy as np

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.search import batch
from kronos_nova.rebalancer.search import bin_packing
from kronos_nova.rebalancer.strategies import base


def plan_evacuation(request: planner.PlanningInput, host: str,
                    destinations: Sequence[str] | None = None,
                    mode: model.DrainMode = model.DrainMode.AUTO, *,
                    overbooking: bool = False,
                    certificate: failover.FailoverCertificate | None = None,
                    ) -> requested_moves.RequestedPlan:
    """Plan the moves of all instances on the host, and refuse those that the rules keep there.

    :param request: for the host's scope; its strategies and budget are ignored.
    :param destinations: hosts for the moves and their alternates; None: any host of the scope.
    :param overbooking: the policies' ceilings do not hold; claims and rules do.
    :param certificate: the last one of the scope, which saves searches.
    :raises ConfigError: the host or a destination is not in the scope.
    :raises PlanRefused: the checker found a rule broken; nothing may be done.
    """
    known = request.cluster.scope_hosts
    _in_scope(request.cluster.scope, 'host', [host], known)
    if destinations is not None:
        _in_scope(request.cluster.scope, 'destinations', destinations, known)
    here = sorted(i.uuid for i in request.cluster.instances.values() if i.host == host)
    request = requested_moves.remove_delays(dataclasses.replace(request,
                                                                options=dataclasses.replace(
        request.options, overbooking=overbooking)), len(here))
    hold = planner.scope_hold(request)
    if hold is not None:
        return requested_moves.refuse_all_moves(request, hold, here)
    state = requested_moves.MoveState(request, certificate)
    simulation = state.simulation
    closed = host in simulation.view.draining
    simulation.begin_drain(host)  # else no destination may count as better
    hosts = np.array([h for h, name in enumerate(simulation.hosts)
                      if destinations is None or name in destinations], dtype=np.intp)
    moves = _place_instances(simulation, host, hosts, mode)
    refused = {simulation.uuids[n]: _explain_refusal(simulation, int(n), hosts)
               for n in simulation.list_on_host(host)}
    if not closed:
        simulation.undo_drain(host)
    return state.build_answer(moves, refused, max_alternates=request.options.max_alternates,
                              among=None if destinations is None else frozenset(destinations))


def _in_scope(scope: str, field: str, hosts: Sequence[str], known: frozenset[str]) -> None:
    for host in hosts:
        if host not in known:
            raise exception.ConfigError(
                path='the request', field=field,
                problem=f'host {host!r} is not in scope {scope}, which moves do not leave',
                remedy='Name compute hosts of one scope.')


def _place_instances(simulation: sim.Simulation, host: str, hosts: sim.Ints,
                     mode: model.DrainMode) -> list[model.Move]:
    """Place as many instances as possible, and return their moves.

    Instances are placed by the mode first, then one by one where there is room. If some are left,
    all are placed together instead.
    """
    numbers = np.array([n for n in sorted(map(int, simulation.list_on_host(host)),
                                          key=lambda n: (-simulation.size[n], n))
                        if simulation.drainable[n]], dtype=np.intp)
    moves = []
    if mode != model.DrainMode.AUTO:
        moves = bin_packing.place_by_mode(simulation, numbers, mode, model.Phase.REQUESTED, hosts)
    unplaced = [int(n) for n in numbers if simulation.drainable[n]]
    while unplaced:
        next_moves = [move for n in unplaced
                      if (move := _apply_best_move(simulation, n, hosts)) is not None]
        moves += next_moves
        if not next_moves:
            break
        unplaced = [n for n in unplaced if simulation.drainable[n]]
    return _place_together(simulation, numbers, hosts, moves) if unplaced else moves


def _apply_best_move(simulation: sim.Simulation, n: int, hosts: sim.Ints) -> model.Move | None:
    """Apply and return the instance's best move, None: no host may take it."""
    move = base.best_place(simulation, np.array([n]), model.Phase.REQUESTED, hosts)
    if move is not None:
        simulation.apply_move(move)
    return move


def _place_together(simulation: sim.Simulation, numbers: sim.Ints, hosts: sim.Ints,
                    moves: list[model.Move]) -> list[model.Move]:
    """Place all instances that any host may take, by closest fit; else restore ``moves``."""
    for move in reversed(moves):
        simulation.undo_move(move)
    possible = numbers[batch.may_take(simulation, numbers, hosts).any(axis=1)]
    if len(possible) > len(moves):
        placed_moves, _ = batch.place_on(simulation, possible, hosts, model.Phase.REQUESTED,
                                         batch.TRIED)
        if placed_moves is not None:
            return placed_moves
    for move in moves:
        simulation.apply_move(move)
    return moves


def _explain_refusal(simulation: sim.Simulation, n: int, hosts: sim.Ints) -> model.Rejection:
    """Return the instance's own rejection, that of the one host, or each host's first one."""
    uuid = simulation.uuids[n]
    moves = [simulation.build_move(n, int(h), model.Phase.REQUESTED) for h in hosts
             if h != simulation.place[n]]
    probe = simulation.build_move(n, int(simulation.place[n]), model.Phase.REQUESTED)
    own = constraints.check_alone(simulation.view, probe)
    if own is not None:
        return own
    rejections = [rejection for m in moves
                  if (rejection := constraints.judge_move(simulation.view, m)) is not None]
    if len(rejections) < len(moves):
        return model.Rejection('no-order', f'instance {uuid}: planning was cut off after '
                                           f'{simulation.steps} steps')
    if len(rejections) == 1:
        return rejections[0]
    rules = Counter(rejection.rule for rejection in rejections)
    counts = ', '.join(f'{rule} ({plurals.count_noun(count, "host")})'
                     for rule, count in sorted(rules.items()))
    return model.Rejection('no-destination', f'instance {uuid}: no host may take it: '
                                             f'{counts or "no other host is named"}')
