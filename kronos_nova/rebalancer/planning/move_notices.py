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

"""The notices that a plan needs: moves that only wait until the owners of instances had notice.

The moves of a drain are announced at once. A move for balance is announced when no other move is
left that a contract allows, the planner would make it now, and fewer notices than moves of a plan
wait for their time.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.constraints import history_holds
from kronos_nova.constraints import offline_drains
from kronos_nova.constraints import rules
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.strategies import drain_requests

#: Notices that a cycle gives for drains, at most: further ones follow in the next cycles.
MOST_NOTICES = 50
#: Reactions of executors to rejections of an instance that end by themselves.
_ENDING = frozenset({rules.RetryClass.PASSING, rules.RetryClass.NO_ROOM})


@dataclasses.dataclass(frozen=True, slots=True)
class WantedNotice:
    """A move that only waits until the owner of the instance had notice.

    ``is_shutdown``: its live migration was late, and the owner has no notice of the shutdown.
    """

    instance_uuid: str
    phase: model.Phase
    reason: model.NoticeReason
    is_shutdown: bool = False


def list_drain_notices(request: planner.PlanningInput) -> list[WantedNotice]:
    """Return the notices that drains lack, unless something holds the scope.

    An instance that another rule keeps on its host until a person acts gets none. One that is
    quarantined as its live migration was late gets a further notice, unless the first one has named
    the shutdown.
    """
    drained = _list_drained_hosts(request)
    if not drained or planner.scope_hold(request) is not None:
        return []
    leaving = _list_staying(request, frozenset(
        uuid for uuid in contracts.list_notified_instances(request.cluster)
        if request.cluster.instances[uuid].host in drained))
    view = _build_view(request)
    wanted = []
    for uuid in leaving:
        probe = _make_probe(view, uuid, model.Phase.EVACUATE)
        is_shutdown = _lacks_shutdown_notice(view, probe)
        if ((is_shutdown or not contracts.has_notice(view, uuid))
                and not _is_kept(view, probe, is_shutdown)):
            wanted.append(WantedNotice(uuid, model.Phase.EVACUATE, model.NoticeReason.DRAIN,
                                       is_shutdown))
    return wanted


def list_balance_notices(request: planner.PlanningInput, plan: model.Plan,
                         replan: Callable[[model.MoveHistory], model.Plan]) -> list[WantedNotice]:
    """Return the notices of the moves that the planner would make if all owners had notice.

    There are none while other moves are left: these come first, and may be enough. So do the moves
    that were announced and whose time has not come.

    :param request: that of the plan.
    :param replan: returns the plan that another history would give.
    """
    notified = contracts.list_notified_instances(request.cluster)
    if not notified or plan.truncated or _list_balance_moves(plan) or planner.scope_hold(
            request) is not None:
        return []
    view = _build_view(request)
    drained = _list_drained_hosts(request)
    room = request.policies.move_budget - sum(
        notice.reason is model.NoticeReason.BALANCE and contracts.has_notice(view, uuid)
        for uuid, notice in request.history.notices.items() if uuid in notified)
    supposed = {
        uuid: notice for uuid in _list_staying(request, notified)
        if request.cluster.instances[uuid].host not in drained
        and (notice := _suppose_notice(view, uuid)) is not None}
    announced = {uuid: notice for uuid, notice in supposed.items()
                 if contracts.has_notice(view, uuid)}
    if room <= 0 or len(supposed) == len(announced):
        return []

    def suppose(notices: dict[str, model.MoveNotice]) -> list[model.Move]:
        return _list_balance_moves(replan(dataclasses.replace(
            request.history, notices={**request.history.notices, **notices})))

    if announced and suppose(announced):
        return []
    return [WantedNotice(move.instance_uuid, move.phase, model.NoticeReason.BALANCE)
            for move in suppose(supposed)
            if move.instance_uuid in supposed.keys() - announced.keys()][:room]


def make_notices(request: planner.PlanningInput, wanted: Iterable[WantedNotice], now: float,
                 valid_for: float) -> tuple[model.MoveNotice, ...]:
    """Return the notices that are given now.

    A move that waits for no notice, or that its contract forbids at all times, has none.

    :param now: epoch seconds; the cloud may have been read a while before.
    :param valid_for: seconds for which an instance may move once its time has come.
    """
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, taken_at=max(now, request.cluster.taken_at)))
    views = {False: _build_view(request), True: _build_shutdown_view(request)}
    made = list[model.MoveNotice]()
    for notice in wanted:
        view = views[notice.is_shutdown]
        move = _make_probe(view, notice.instance_uuid, notice.phase)
        if contracts.find_needed_notice(view, move) is None:
            continue
        movable_from = contracts.find_movable_from(view, move)
        if movable_from is not None:
            made.append(model.MoveNotice(
                move.instance_uuid, request.cluster.instances[move.instance_uuid].project_id,
                move.from_host, notice.reason, view.taken_at, movable_from,
                movable_from + valid_for,
                may_shut_down=offline_drains.may_shut_down(view, move)))
        if len(made) == MOST_NOTICES:
            break
    return tuple(made)


def list_extended_notices(request: planner.PlanningInput,
                          valid_for: float) -> tuple[model.MoveNotice, ...]:
    """Return the notices whose moves go on, with a later end, also while the scope is held.

    These are the notices of instances on a host that is drained, which become notices of the drain,
    and those of instances with a task.
    """
    view = _build_view(request)
    drained = _list_drained_hosts(request)
    under_way = {flight.instance_uuid for flight in request.cluster.flights
                 if flight.source == 'task'}
    extended = []
    for uuid in sorted(contracts.list_notified_instances(request.cluster)):
        notice = request.history.notices.get(uuid)
        if notice is None or not contracts.has_notice(view, uuid):
            continue
        drains = notice.host in drained
        reason = model.NoticeReason.DRAIN if drains else notice.reason
        # Not in each cycle.
        if (drains or uuid in under_way) and (
                reason is not notice.reason
                or notice.valid_until < view.taken_at + valid_for / 2):
            extended.append(dataclasses.replace(notice, reason=reason, valid_until=max(
                notice.valid_until, view.taken_at + valid_for)))
    return tuple(extended)


def _build_view(request: planner.PlanningInput) -> cluster_view.ClusterView:
    return cluster_view.ClusterView(request.cluster, request.options, request.history)


def _build_shutdown_view(request: planner.PlanningInput) -> cluster_view.ClusterView:
    """Return a view without notices that name no shutdown; what owners say counts in full."""
    return _build_view(dataclasses.replace(
        request, options=dataclasses.replace(
            request.options, contracts=contracts.count_in_full(request.options.contracts)),
        history=dataclasses.replace(request.history, notices={
            uuid: notice for uuid, notice in request.history.notices.items()
            if notice.may_shut_down})))


def _lacks_shutdown_notice(view: cluster_view.ClusterView, probe: model.Move) -> bool:
    """Return whether only a notice is lacking for the shutdown of an instance that was late.

    Once its quarantine is over, the instance moves live: a new notice would hold that move.
    """
    if not offline_drains.is_quarantined(view, probe.instance_uuid):
        return False
    obstacle = offline_drains.find_obstacle(view, probe)
    return obstacle is not None and obstacle.lacks_notice


def _list_drained_hosts(request: planner.PlanningInput) -> frozenset[str]:
    return frozenset(drain_requests.list_waiting_hosts(request.cluster, request.options))


def _list_staying(request: planner.PlanningInput, notified: frozenset[str]) -> Sequence[str]:
    return sorted(notified - {flight.instance_uuid for flight in request.cluster.flights})


def _list_balance_moves(plan: model.Plan) -> list[model.Move]:
    return [move for move in plan.moves if move.phase is not model.Phase.EVACUATE]


def _make_probe(view: cluster_view.ClusterView, uuid: str, phase: model.Phase) -> model.Move:
    return model.Move(uuid, view.cluster.instances[uuid].host, '', phase)


def _is_kept(view: cluster_view.ClusterView, probe: model.Move, is_shutdown: bool) -> bool:
    """Return whether a rule other than the contract's keeps the instance, and not for a while.

    :param is_shutdown: the quarantine of the late migration does not hold the move.
    """
    return any(
        rejection.rule not in contracts.CONTRACT_RULE.codes
        and not (is_shutdown and rejection.rule == history_holds.QUARANTINED)
        and constraints.CODES[rejection.rule].retry not in _ENDING
        for rejection in constraints.list_rejections(view, probe, constraints.ALONE))


def _suppose_notice(view: cluster_view.ClusterView, uuid: str) -> model.MoveNotice | None:
    """Return a notice whose time has come; None: a move of the instance does not wait for one."""
    instance = view.cluster.instances[uuid]
    period = contracts.find_needed_notice(view, _make_probe(view, uuid, model.Phase.SPREAD))
    return None if period is None else model.MoveNotice(
        uuid, instance.project_id, instance.host, model.NoticeReason.BALANCE,
        view.taken_at - period, view.taken_at, view.taken_at + 1)
