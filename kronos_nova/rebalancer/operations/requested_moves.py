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

"""Moves that somebody asks for by name: judged, ordered and checked as planned ones are.

They do not wait for cooldowns or scores, and need not lower any imbalance; every rule, ceiling
and claim holds for them.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import relevant_cluster
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import waves


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """An instance, where it is thought to be, and the hosts where it may go: the first one
    that the rules allow."""

    instance_uuid: str
    from_host: str
    hosts: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """``refused``: by instance UUID, why it cannot be had. ``plan`` has the others."""

    plan: model.Plan
    refused: dict[str, model.Rejection]


def plan(request: planner.Request, wishes: Sequence[Wish]) -> Answer:
    """What can be had of the wishes, in waves that stay legal however they end.

    :param request: its strategies and budget are not looked at.
    :raises PlanRefused: the checker found a rule broken; nothing may be done.
    """
    request = undelayed(request, len(wishes))
    held = planner.scope_hold(request)
    if held is not None:
        return refused_all(request, held, [w.instance_uuid for w in wishes])
    state = State(request)
    return state.answer(*_chosen(state.simulation, wishes))


class State:
    """The scope while moves are chosen: ``simulation``, and how it was before."""

    def __init__(self, request: planner.Request) -> None:
        self._request = request
        self.simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                         request.history, request.options, seed=request.seed,
                                         now=request.now)
        self._before = planner.Before.of(self.simulation)

    def answer(self, moves: Sequence[model.Move], refused: dict[str, model.Rejection],
               **alternates: Any) -> Answer:
        """In waves, and checked.

        :param moves: applied to ``simulation``.
        :param alternates: what :func:`ordering.order` is to know of them; else there are none.
        :raises PlanRefused: the checker found a rule broken; nothing may be done.
        """
        simulation = self.simulation
        ordered = waves.order(_as_it_is(self._request, simulation, moves), moves, **alternates)
        kept = {m.instance_uuid for m in ordered.moves}
        for move in reversed(moves):
            if move.instance_uuid not in kept:
                simulation.undo(move)
                refused[move.instance_uuid] = model.Rejection(
                    'no-order', f'instance {move.instance_uuid}: no order of these moves makes '
                                'it safe')
        return Answer(self.checked(ordered.moves), refused)

    def checked(self, moves: Sequence[model.Move],
                swaps: Sequence[model.Swap] = ()) -> model.Plan:
        """The plan, with what ``simulation`` has become by it.

        :raises PlanRefused: the checker found a rule broken; nothing may be done.
        """
        request, simulation = self._request, self.simulation
        before = self._before
        known = simulation.trusted and before.comparable
        found = model.Plan(
            scope=request.cluster.scope, swaps=tuple(swaps),
            # A swap may park its first instance: then the simulation is ahead of the moves.
            moves=tuple(moves) if swaps else planner.describe_effects(simulation, moves),
            policies=planner.policy_reports(request, before, simulation.imbalances()),
            combined_before=before.combined if known else None,
            combined_after=simulation.combined() if known else None,
            combined_measured=before.combined_measured if known else None,
            draining=request.history.draining)
        wrong = checker.check(found, request.cluster, request.options, request.history,
                              request.scores, simulation.ceilings, request.budget)
        if wrong:
            raise exception.PlanRefused(
                scope=found.scope,
                problem='; '.join(f'{no.rule}: {no.detail}' for no in wrong[:5]))
        return found


def refused_all(request: planner.Request, held: str, uuids: Iterable[str]) -> Answer:
    """Nothing is had: the whole scope is held."""
    return Answer(model.Plan(request.cluster.scope, reason=held),
                  {uuid: model.Rejection('held', held) for uuid in uuids})


def undelayed(request: planner.Request, moves: int) -> planner.Request:
    """Somebody asks for it now; whoever does knows what was moved a moment ago."""
    begun = planner.begun(request)
    return dataclasses.replace(begun, budget=max(1, moves), history=dataclasses.replace(
        begun.history, cooling={}, scope_cooling=0.0, waiting=None))


def _chosen(simulation: sim.Simulation, wishes: Sequence[Wish],
            ) -> tuple[list[model.Move], dict[str, model.Rejection]]:
    """Moves each legal after those before it; a no may become a yes when others have left."""
    moves: list[model.Move] = []
    waiting, refused = list(wishes), {}
    while True:
        left = []
        for wish in waiting:
            found = _first_legal(simulation, wish)
            if isinstance(found, model.Rejection):
                left.append(wish)
                refused[wish.instance_uuid] = found
                continue
            combined = simulation.combined()
            simulation.apply(found)
            moves.append(dataclasses.replace(
                found, improvement=combined - simulation.combined() if simulation.trusted
                else 0.0))
            refused.pop(wish.instance_uuid, None)
        if not left or len(left) == len(waiting):
            return moves, refused
        waiting = left


def _first_legal(simulation: sim.Simulation, wish: Wish) -> model.Move | model.Rejection:
    """The move to the first host that will have it, or why the first one will not."""
    first: model.Rejection | None = None
    for host in wish.hosts:
        move = model.Move(wish.instance_uuid, wish.from_host, host, model.Phase.REQUESTED)
        no = constraints.check(simulation.view, move)
        if no is None:
            return move
        first = first or no
    return first or model.Rejection('no-destination', f'instance {wish.instance_uuid}: no host '
                                                      'is known where it might go')


def _as_it_is(request: planner.Request, simulation: sim.Simulation,
              moves: Sequence[model.Move]) -> cluster_view.ClusterView:
    return cluster_view.ClusterView(
        relevant_cluster.involved(request.cluster, moves, request.history), request.options,
        request.history, request.scores, simulation.ceilings,
        draining=request.history.draining)
