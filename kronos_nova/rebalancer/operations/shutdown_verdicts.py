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

"""Verdicts on shutdowns: which instances a drain shuts down after a late live migration. Pure."""

from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import math

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.constraints import history_holds
from kronos_nova.constraints import instance as instance_rules
from kronos_nova.constraints import offline_drains
from kronos_nova.constraints import statuses
from kronos_nova.constraints import view as views
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.planning import planner
from kronos_nova.text import drain_lines

NOT_PLANNED = 'no move of the drain is planned now'
#: Rejections of an instance alone that end, or that a verdict names itself.
_NOT_KEEPING = frozenset({*contracts.CONTRACT_RULE.codes, *instance_rules.HISTORY_RULE.codes,
                          *blocked_instances.WAITING})


@dataclasses.dataclass(frozen=True, slots=True)
class ShutdownVerdict:
    """Whether a drain may shut an instance down, move it cold and start it again.

    ``is_late``: its live migration was late, and no other one comes before that; else the verdict
    counts once one is late. ``obstacle``: why it may not, with the ``remedy``; both None: it may.
    ``waits``: the obstacle passes, and then it may.
    """

    instance_uuid: str
    is_late: bool
    obstacle: str | None = None
    remedy: str | None = None
    waits: bool = False

    @property
    def text(self) -> str:
        return drain_lines.describe_shutdown(self.is_late, self.obstacle, self.remedy, self.waits)

    @property
    def is_next(self) -> bool:
        """Return whether the next move of the instance shuts it down."""
        return self.is_late and (self.waits or self.obstacle is None)


def judge_shutdown(view: views.CloudView, move: model.Move) -> ShutdownVerdict:
    """Judge the shutdown of an instance by a drain; other rules are left out.

    An instance that was late moves live once its quarantine is over, while an obstacle holds its
    shutdown alone.
    """
    obstacle = offline_drains.find_obstacle(view, move, suppose_late=True)
    is_late = offline_drains.is_late(view, move) and (
        obstacle is None or _holds_live_move(view, move, obstacle))
    return ShutdownVerdict(move.instance_uuid, is_late) if obstacle is None else ShutdownVerdict(
        move.instance_uuid, is_late, obstacle.detail, obstacle.remedy, obstacle.passes)


def _holds_live_move(view: views.CloudView, move: model.Move,
                     obstacle: offline_drains.ShutdownObstacle) -> bool:
    """Return whether a live migration is held for as long as the obstacle holds the shutdown.

    Contracts hold it, and its quarantine. An engine names the shutdown in a notice that it gives in
    the quarantine; later a notice that does not name it holds the shutdown alone.
    """
    quarantined_until = view.find_quarantine_end(move.instance_uuid)
    if quarantined_until is not None and (not obstacle.passes or obstacle.lacks_notice):
        return True
    if not obstacle.passes or (obstacle.lacks_notice
                               and contracts.has_notice(view, move.instance_uuid)):
        return False
    live = quarantined_until if quarantined_until == math.inf else contracts.find_movable_from(
        view, move, since=quarantined_until)
    offline = contracts.find_movable_from(
        view, move, options=contracts.count_in_full(view.options.contracts))
    return live is not None and offline is not None and offline <= live


def judge_refused_shutdown(view: views.CloudView, move: model.Move,
                           refused: Iterable[str]) -> ShutdownVerdict | None:
    """Judge the shutdown of an instance by a move, as rules have judged it.

    :param refused: names of the rejections of the move.
    :returns: None: drains shut no instance down, and this one was not late.
    """
    verdict = judge_shutdown(view, move)
    if not _is_worth_naming(view, verdict):
        return None
    others = [rule for rule in refused
              if rule != history_holds.QUARANTINED and rule not in contracts.PASSING]
    lasting = [rule for rule in others if rule not in _NOT_KEEPING]
    if not verdict.is_next or not (lasting or others and not verdict.waits):
        return verdict
    return ShutdownVerdict(move.instance_uuid, True, 'this move is refused by '
                           f'{", ".join(lasting or others)}', waits=not lasting)


def judge_shutdowns(request: planner.PlanningInput, host: str, check: drains.DrainCheck,
                    risky: Collection[str] | None) -> tuple[ShutdownVerdict, ...]:
    """Judge the instances on a host whose live migration was late, and those that risk it.

    Where drains shut no instance down, only those that stay as they were late are judged.

    :param risky: instances that may not converge; None: no risk is known, and each one may not.
    """
    late = {uuid for uuid, source in request.history.late_drains.items() if source == host}
    leaving = list_live_leaving(request.cluster, host, check)
    concerned = [uuid for uuid in sorted(late.union(
        leaving if risky is None else leaving.intersection(risky)))
        if (instance := request.cluster.instances.get(uuid)) is not None and instance.host == host]
    if not concerned:
        return ()
    view = cluster_view.ClusterView(request.cluster, request.options, request.history)
    blocked = {one.instance_uuid: one for one in check.blocked}
    verdicts = [_judge_planned(view, model.Move(uuid, host, '', model.Phase.EVACUATE), check,
                               blocked.get(uuid)) for uuid in concerned]
    return tuple(verdict for verdict in verdicts if _is_worth_naming(view, verdict))


def _is_worth_naming(view: views.CloudView, verdict: ShutdownVerdict) -> bool:
    """Return False where drains shut no instance down, unless a late one waits for that."""
    return verdict.is_late or view.options.drain_offline != model.OfflineDrains.NEVER


def list_live_leaving(cluster: model.Cluster, host: str, check: drains.DrainCheck) -> set[str]:
    """List the running instances that leave the host by live migration, now or later."""
    leaving = {move.instance_uuid for move in check.plan.moves}.union(
        blocked.instance_uuid for blocked in check.blocked if blocked.later)
    return {uuid for uuid in leaving
            if check.methods.get(uuid) in (None, model.MoveMethod.LIVE)
            and cluster.instances[uuid].host == host
            and cluster.instances[uuid].status == statuses.ACTIVE}


def _judge_planned(view: views.CloudView, probe: model.Move, check: drains.DrainCheck,
                   blocked: blocked_instances.BlockedInstance | None) -> ShutdownVerdict:
    """Judge the shutdown of an instance as the plan has it: only its moves shut one down."""
    uuid, verdict = probe.instance_uuid, judge_shutdown(view, probe)
    if not verdict.is_next or check.methods.get(uuid) is model.MoveMethod.OFFLINE:
        return verdict
    kept = next((rejection for rejection in constraints.list_rejections(
        view, probe, constraints.ALONE) if rejection.rule not in _NOT_KEEPING), None)
    if kept is not None:
        return ShutdownVerdict(uuid, True, f'{kept.rule}: {kept.detail}',
                               constraints.CODES[kept.rule].remedy)
    if blocked is not None and not blocked.later:
        return ShutdownVerdict(uuid, True, blocked.reason)
    if verdict.waits:
        return verdict
    return ShutdownVerdict(uuid, True, NOT_PLANNED if blocked is None else blocked.reason,
                           waits=True)


def count_shutdowns(verdicts: Iterable[ShutdownVerdict]) -> tuple[int, int, int]:
    """Count the instances that are shut down, that are later, and that are if they are late."""
    possible = [verdict for verdict in verdicts if verdict.waits or verdict.obstacle is None]
    late = [verdict for verdict in possible if verdict.is_next]
    waiting = sum(verdict.waits for verdict in late)
    return len(late) - waiting, waiting, len(possible) - len(late)
