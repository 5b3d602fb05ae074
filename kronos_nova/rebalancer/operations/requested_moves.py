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

"""Moves that an operator requests by name: judged, ordered and checked as planned ones are.

They do not wait for cooldowns or scores, and need not lower any imbalance; every rule, ceiling and
claim holds for them, and so does the failover certificate.
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
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import move_gains
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import policy_reports
from kronos_nova.rebalancer.planning import waves


@dataclasses.dataclass(frozen=True, slots=True)
class RequestedMove:
    """An instance, its supposed host, and its possible destinations.

    The first destination that the rules allow is taken.
    """

    instance_uuid: str
    from_host: str
    hosts: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class RequestedPlan:
    """A plan of the possible moves, and by instance UUID why the others are ``refused``.

    ``certificate``: the failover certificate of today; None: none was made.
    """

    plan: model.Plan
    refused: dict[str, model.Rejection]
    certificate: failover.FailoverCertificate | None = None


def plan_requested_moves(request: planner.PlanningInput,
                         wishes: Sequence[RequestedMove],
                         certificate: failover.FailoverCertificate | None = None,
                         ) -> RequestedPlan:
    """Plan the wishes that are possible, in waves that stay legal however they end.

    :param request: its strategies and budget are ignored.
    :param certificate: the last one of the scope, which saves searches.
    :raises PlanRefused: the checker found a rule broken; nothing may be done.
    """
    request = remove_delays(request, len(wishes))
    hold = planner.scope_hold(request)
    if hold is not None:
        return refuse_all_moves(request, hold, [w.instance_uuid for w in wishes])
    state = MoveState(request, certificate)
    return state.build_answer(*_choose_legal_moves(state.simulation, wishes))


class MoveState:
    """The scope while moves are chosen: ``simulation``, and the measures before any move."""

    def __init__(self, request: planner.PlanningInput,
                 certificate: failover.FailoverCertificate | None = None) -> None:
        self._request = request
        self._certificate = certificate
        self.simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                         request.history, request.options, seed=request.seed,
                                         now=request.now)
        self._before = policy_reports.InitialImbalances.measure_simulation(self.simulation)

    def build_answer(self, moves: Sequence[model.Move], refused: dict[str, model.Rejection],
                     **alternates: Any) -> RequestedPlan:
        """Order and check the moves, and return them as a plan.

        :param moves: applied to ``simulation``.
        :param refused: takes up the moves that no order makes safe.
        :param alternates: arguments of :mod:`waves` for alternates; without them moves have none.
        :raises PlanRefused: the checker found a rule broken; nothing may be done.
        """
        simulation = self.simulation
        ordered = waves.order_moves(_build_present_plan(self._request, simulation, moves), moves,
                                    **alternates)
        ordered_uuids = {m.instance_uuid for m in ordered.moves}
        for move in reversed(moves):
            if move.instance_uuid not in ordered_uuids:
                simulation.undo_move(move)
                refused[move.instance_uuid] = model.Rejection(
                    'no-order', f'instance {move.instance_uuid}: no order of the moves is '
                                'safe')
        plan = self.build_checked_plan(ordered.moves)
        if not plan.moves:
            return RequestedPlan(plan, refused)  # a certificate takes long
        kept, certificate = planning_pipeline.keep_failover(self._request, plan, self._certificate)
        refused |= explain_breaks(plan, kept)
        if len(kept.moves) < len(plan.moves):
            planning_pipeline.check_plan(kept, self._request)
        return RequestedPlan(dataclasses.replace(kept, reason=None), refused, certificate)

    def build_checked_plan(self, moves: Sequence[model.Move],
                           swaps: Sequence[model.Swap] = ()) -> model.Plan:
        """Return the checked plan, with the imbalances that the moves leave in ``simulation``.

        :raises PlanRefused: the checker found a rule broken; nothing may be done.
        """
        request, simulation = self._request, self.simulation
        before = self._before
        known = simulation.trusted and before.comparable
        plan = model.Plan(
            scope=request.cluster.scope, swaps=tuple(swaps),
            # A swap may park its first instance: then the simulation is ahead of the moves.
            moves=tuple(moves) if swaps else move_gains.measure_gains(simulation, moves),
            policies=policy_reports.report_policies(request.policies, request.scores, before,
                                                    simulation.compute_imbalances()),
            combined_before=before.combined if known else None,
            combined_after=simulation.compute_combined() if known else None,
            combined_measured=before.combined_measured if known else None,
            draining=request.history.draining)
        wrong = checker.check(plan, request.cluster, request.options, request.history,
                              request.scores, simulation.ceilings, request.budget)
        if wrong:
            raise exception.PlanRefused(
                scope=plan.scope,
                problem='; '.join(f'{problem.rule}: {problem.detail}' for problem in wrong[:5]))
        return plan


def explain_breaks(plan: model.Plan, kept: model.Plan) -> dict[str, model.Rejection]:
    """Return a rejection for each instance whose move the rule ``breaks-failover`` left out."""
    remaining = {move.instance_uuid for move in kept.moves}
    return {move.instance_uuid: model.Rejection(
        'breaks-failover', f'instance {move.instance_uuid}: {kept.warnings[-1]}')
        for move in plan.moves if move.instance_uuid not in remaining}


def refuse_all_moves(request: planner.PlanningInput, hold: str,
                     uuids: Iterable[str]) -> RequestedPlan:
    """Refuse all instances, because their whole scope is held."""
    return RequestedPlan(model.Plan(request.cluster.scope, reason=hold),
                         {uuid: model.Rejection('held', hold) for uuid in uuids})


def remove_delays(request: planner.PlanningInput, moves: int) -> planner.PlanningInput:
    """Return the request without cooldowns and waiting times, with a budget for all moves.

    An operator who requests a move now knows which moves were made a moment ago.
    """
    begun = planner.prepare_planning_input(request)
    return dataclasses.replace(begun, budget=max(1, moves), history=dataclasses.replace(
        begun.history, cooling={}, scope_cooling=0.0, waiting=None))


def _choose_legal_moves(simulation: sim.Simulation, wishes: Sequence[RequestedMove],
                        ) -> tuple[list[model.Move], dict[str, model.Rejection]]:
    """Choose moves, each legal after those before it, and refuse the rest.

    A refused wish is tried again when others have left.
    """
    moves: list[model.Move] = []
    waiting, refused = list(wishes), {}
    while True:
        still_waiting = []
        for wish in waiting:
            move_or_rejection = _first_legal(simulation, wish)
            if isinstance(move_or_rejection, model.Rejection):
                still_waiting.append(wish)
                refused[wish.instance_uuid] = move_or_rejection
                continue
            combined = simulation.compute_combined()
            simulation.apply_move(move_or_rejection)
            moves.append(dataclasses.replace(
                move_or_rejection, improvement=combined - simulation.compute_combined()
                if simulation.trusted else 0.0))
            refused.pop(wish.instance_uuid, None)
        if not still_waiting or len(still_waiting) == len(waiting):
            return moves, refused
        waiting = still_waiting


def _first_legal(simulation: sim.Simulation, wish: RequestedMove) -> model.Move | model.Rejection:
    """Return the move to the first host that the rules allow, or the first host's rejection."""
    first: model.Rejection | None = None
    for host in wish.hosts:
        move = model.Move(wish.instance_uuid, wish.from_host, host, model.Phase.REQUESTED)
        rejection = constraints.judge_move(simulation.view, move)
        if rejection is None:
            return move
        first = first or rejection
    return first or model.Rejection('no-destination', f'instance {wish.instance_uuid}: no host '
                                                      'is known where it might go')


def _build_present_plan(request: planner.PlanningInput, simulation: sim.Simulation,
                        moves: Sequence[model.Move]) -> cluster_view.ClusterView:
    return cluster_view.ClusterView(
        relevant_cluster.reduce_cluster(request.cluster, moves, request.history), request.options,
        request.history, request.scores, simulation.ceilings,
        draining=request.history.draining)
