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

"""Swaps: two instances change places at an operator's request, both or none. Pure.

They swap directly if one may come while the other is still there; else one waits on a parking host
until the other has moved. Each state on the way is legal, and so is each way back. Ceilings do not
hold for a way back, since the instance was there before.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline

Moves = tuple[model.Move, model.Move]


def plan_swap(request: planner.PlanningInput, uuids: tuple[str, str],
              parking: str | None = None,
              certificate: failover.FailoverCertificate | None = None,
              ) -> requested_moves.RequestedPlan:
    """Plan the swap, or refuse both instances with the reason.

    :param request: for the scope of both; its strategies and budget are ignored.
    :param parking: the only host where one may wait; None: any host of the scope.
    :param certificate: the last one of the scope, which saves searches.
    :raises ConfigError: the instances cannot change places at all, or a host does not exist.
    :raises PlanRefused: the checker found a rule broken; nothing may be done.
    """
    _check_swap_possible(request.cluster, uuids, parking)
    request = requested_moves.remove_delays(request, len(uuids))
    hold = planner.scope_hold(request)
    if hold is not None:
        return requested_moves.refuse_all_moves(request, hold, uuids)
    state = requested_moves.MoveState(request)
    swap_or_rejections = _find_swap(state.simulation.view, state.simulation.hosts, uuids, parking)
    if isinstance(swap_or_rejections, dict):
        return requested_moves.RequestedPlan(model.Plan(request.cluster.scope), swap_or_rejections)
    moves, swap = swap_or_rejections
    plan = state.build_checked_plan(_apply_swap(state, moves, swap), [swap])
    return _keep_failover(request, plan, swap, certificate)


def _keep_failover(request: planner.PlanningInput, plan: model.Plan,
                   swap: model.Swap, certificate: failover.FailoverCertificate | None,
                   ) -> requested_moves.RequestedPlan:
    """Refuse a swap in whose end instances have lost their places; warn by the option."""
    ends = _map_ends(plan.moves, swap)
    landed = dataclasses.replace(plan, moves=tuple(
        dataclasses.replace(move, to_host=ends[move.instance_uuid]) for move in plan.moves))
    kept, today = planning_pipeline.keep_failover(request, landed, certificate)
    refused = requested_moves.explain_breaks(landed, kept)
    plan = model.Plan(plan.scope) if refused else dataclasses.replace(plan, warnings=kept.warnings)
    return requested_moves.RequestedPlan(plan, refused, today)


def _check_swap_possible(cluster: model.Cluster, uuids: tuple[str, str],
                         parking: str | None) -> None:
    """Raise unless the instances and the parking host can form a swap.

    :raises ConfigError: the instances are one, on one host, or not both in the scope; or the
        parking host is no third host of the scope.
    """
    instances = [cluster.instances.get(uuid) for uuid in uuids]
    for uuid, instance in zip(uuids, instances, strict=True):
        if instance is None or instance.host not in cluster.scope_hosts:
            raise _make_config_error(uuid, 'no such instance' if instance is None else
                                     f'its host {instance.host} is not in scope {cluster.scope}',
                                     'Instances change places inside one scope.')
    if len({i.host for i in instances if i is not None}) == 1:
        raise _make_config_error(' '.join(uuids), 'they are on one host',
                                 'Name instances of two hosts.')
    if parking is not None and (parking not in cluster.scope_hosts or parking in {
            i.host for i in instances if i is not None}):
        raise _make_config_error(parking, f'it is no third host of scope {cluster.scope}',
                                 'Name another compute host of the scope, or none.')


def _make_config_error(field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='the swap', field=field, problem=problem, remedy=remedy)


def _find_swap(view: cluster_view.ClusterView, hosts: Sequence[str], uuids: tuple[str, str],
               parking: str | None,
               ) -> tuple[Moves, model.Swap] | dict[str, model.Rejection]:
    """Find a direct swap, else one by a parking host, else the refusal of each instance.

    The emptiest parking host is tried first, and the instance with less memory waits there. The
    rule of a refusal is the one against a direct swap in which this instance moves first; the
    detail names the rules against both orders.
    """
    direct: dict[str, model.Rejection] = {}
    for first, second in (uuids, uuids[::-1]):
        moves_or_rejection = _try_direct_swap(view, first, second)
        if not isinstance(moves_or_rejection, model.Rejection):
            return moves_or_rejection, model.Swap(first, second)
        direct[first] = moves_or_rejection
    ends = {view.find_host_of(uuid) for uuid in uuids}
    third = sorted((h for h in hosts if h not in ends and parking in (None, h)),
                   key=lambda h: (view.load.compute_fullness(h), h))
    lighter = sorted(uuids, key=lambda uuid: view.cluster.instances[uuid].memory_mb)
    parked: dict[str, model.Rejection] = {}  # against the last parking host
    for first, second in (lighter, lighter[::-1]):
        for host in third:
            moves_or_rejection = _try_parking_swap(view, first, second, host)
            if not isinstance(moves_or_rejection, model.Rejection):
                return moves_or_rejection, model.Swap(first, second, host)
            parked[first] = moves_or_rejection
    by_parking = (f'by parking host {third[-1]}: {_join_rejections(parked)}' if third
                  else 'no third host exists')
    detail = f'directly: {_join_rejections(direct)}; {by_parking}'
    return {uuid: model.Rejection(rejection.rule, detail) for uuid, rejection in direct.items()}


def _join_rejections(rejections: Mapping[str, model.Rejection]) -> str:
    """Join rules and reasons against both orders; name those once that hold for both.

    :param rejections: by the instance that moves first.
    """
    reasons = {first: f'{rejection.rule}: {rejection.detail}'
               for first, rejection in rejections.items()}
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return '; '.join(f'instance {first} first: {reason}' for first, reason in reasons.items())


def _try_direct_swap(view: cluster_view.ClusterView, first: str,
                     second: str) -> Moves | model.Rejection:
    first_move = _make_requested_move(view, first, str(view.find_host_of(second)))
    other = _order_after(first_move, _make_requested_move(view, second, first_move.from_host))
    return _find_rejection(view, [first_move, other]) or (first_move, other)


def _try_parking_swap(view: cluster_view.ClusterView, first: str, second: str,
                      host: str) -> Moves | model.Rejection:
    first_move = _make_requested_move(view, first, host)
    obstacle = contracts.find_parking_obstacle(view, first_move)
    if obstacle is not None:
        return obstacle
    other = _order_after(first_move, _make_requested_move(view, second, first_move.from_host))
    onward = dataclasses.replace(first_move, from_host=host, to_host=other.from_host)
    return _find_rejection(view, [first_move, other, onward]) or (first_move, other)


def _make_requested_move(view: cluster_view.ClusterView, uuid: str, to_host: str) -> model.Move:
    return model.Move(uuid, str(view.find_host_of(uuid)), to_host, model.Phase.REQUESTED)


def _order_after(earlier: model.Move, other: model.Move) -> model.Move:
    return dataclasses.replace(other, requires=(earlier.instance_uuid,), wave=earlier.wave + 1)


def _find_rejection(view: cluster_view.ClusterView,
                    moves: Sequence[model.Move]) -> model.Rejection | None:
    """Find the first rule that forbids one of the moves in turn, or its way back from there.

    The last move has no way back.
    """
    landed: list[model.Move] = []
    rejection = None
    for move in moves:
        rejection = constraints.judge_move(view, move)
        if rejection is None and move is not moves[-1]:
            view.land_move(move)
            landed.append(move)
            rejection = constraints.judge_move(view, _reverse_move(move), constraints.BACK)
        if rejection is not None:
            break
    for move in reversed(landed):
        view.undo_landing(move)
    return rejection


def _reverse_move(move: model.Move) -> model.Move:
    return dataclasses.replace(move, from_host=move.to_host, to_host=move.from_host)


def _map_ends(moves: Sequence[model.Move], swap: model.Swap) -> dict[str, str]:
    """Return the final host by instance UUID; the first may wait on a parking host before."""
    return {swap.first: moves[1].from_host, swap.second: moves[0].from_host}


def _apply_swap(state: requested_moves.MoveState, moves: Moves,
                swap: model.Swap) -> list[model.Move]:
    """Apply the swap, and return its moves with the improvement that each brings in the end.

    The simulation then has both instances on their final hosts.
    """
    simulation = state.simulation
    ends = _map_ends(moves, swap)
    swap_moves = []
    for move in moves:
        before = simulation.compute_combined()
        simulation.apply_move(dataclasses.replace(move, to_host=ends[move.instance_uuid]))
        swap_moves.append(dataclasses.replace(
            move, improvement=before - simulation.compute_combined()
            if simulation.trusted else 0.0))
    return swap_moves
