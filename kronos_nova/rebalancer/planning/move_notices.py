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

The moves of a drain are announced at once, for all instances of the host. A move for balance is
announced when no other move is left that a contract allows, and the planner would make it now.
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.strategies import drain_requests

#: Notices of a plan, at most: further ones follow in the next cycles.
MOST = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class NeededNotices:
    """Notices to give, and those of drains that go on, with a later end."""

    given: tuple[model.MoveNotice, ...] = ()
    extended: tuple[model.MoveNotice, ...] = ()


def list_needed_notices(request: planner.PlanningInput, plan: model.Plan,
                        replan: Callable[[model.MoveHistory], model.Plan],
                        valid_for: float) -> NeededNotices:
    """Return the notices that the plan lacks.

    :param request: that of the plan.
    :param replan: returns the plan that another history would give.
    :param valid_for: seconds for which an instance may move once its time has come.
    """
    notified = contracts.list_notified_instances(request.cluster)
    if not notified or planner.scope_hold(request) is not None:
        return NeededNotices()
    view = cluster_view.ClusterView(request.cluster, request.options, request.history)
    drained = frozenset(drain_requests.list_waiting_hosts(request.cluster, request.options))
    under_way = {flight.instance_uuid for flight in request.cluster.flights}
    staying = sorted(notified - under_way)
    given = [notice for uuid in staying
             if request.cluster.instances[uuid].host in drained
             and (notice := _make_notice(view, uuid, model.Phase.EVACUATE,
                                         model.NoticeReason.DRAIN, valid_for)) is not None]
    given += _list_for_balance(request, plan, replan, view, staying, valid_for)
    return NeededNotices(tuple(given[:MOST]), tuple(
        dataclasses.replace(notice, valid_until=view.taken_at + valid_for)
        for uuid in staying
        if (notice := request.history.notices.get(uuid)) is not None
        and notice.reason is model.NoticeReason.DRAIN and notice.host in drained
        and notice.host == request.cluster.instances[uuid].host
        # Not in each cycle.
        and notice.valid_until < view.taken_at + valid_for / 2))


def _list_for_balance(request: planner.PlanningInput, plan: model.Plan,
                      replan: Callable[[model.MoveHistory], model.Plan],
                      view: cluster_view.ClusterView, staying: Iterable[str],
                      valid_for: float) -> list[model.MoveNotice]:
    """Return the notices of the moves that the planner would make if all owners had notice.

    There are none while other moves are left: these come first, and may be enough.
    """
    if plan.truncated or any(move.phase is not model.Phase.EVACUATE for move in plan.moves):
        return []
    supposed = {
        uuid: notice for uuid in staying
        if (notice := _suppose_notice(view, uuid)) is not None}
    if not supposed:
        return []
    wanted = replan(dataclasses.replace(
        request.history, notices={**request.history.notices, **supposed}))
    return [notice for move in wanted.moves
            if move.phase is not model.Phase.EVACUATE and move.instance_uuid in supposed
            and (notice := _make_notice(view, move.instance_uuid, move.phase,
                                        model.NoticeReason.BALANCE, valid_for)) is not None]


def _suppose_notice(view: cluster_view.ClusterView, uuid: str) -> model.MoveNotice | None:
    """Return a notice whose time has come; None: a move of the instance does not wait for one."""
    instance = view.cluster.instances[uuid]
    period = contracts.find_needed_notice(
        view, model.Move(uuid, instance.host, '', model.Phase.SPREAD))
    return None if period is None else model.MoveNotice(
        uuid, instance.project_id, instance.host, model.NoticeReason.BALANCE,
        view.taken_at - period, view.taken_at, view.taken_at + 1)


def _make_notice(view: cluster_view.ClusterView, uuid: str, phase: model.Phase,
                 reason: model.NoticeReason, valid_for: float) -> model.MoveNotice | None:
    """Return the notice that a move needs.

    None: it waits for no notice, one was given, or its contract forbids the move for good.
    """
    instance = view.cluster.instances[uuid]
    move = model.Move(uuid, instance.host, '', phase)
    if contracts.find_needed_notice(view, move) is None or contracts.has_notice(view, uuid):
        return None
    movable_from = contracts.find_movable_from(view, move)
    return None if movable_from is None else model.MoveNotice(
        uuid, instance.project_id, instance.host, reason, view.taken_at, movable_from,
        movable_from + valid_for)
