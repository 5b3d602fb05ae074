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

"""Operators' requests for moves: repeat or revert moves of a stored plan, and store the result.

Today's rules judge every move. Executors carry the stored plan out like any other plan.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_utils import uuidutils
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.conf import engine as engine_conf
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import requested_moves
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.rebalancer.planning import tasks as planned_tasks
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import rows as store_rows


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatRow:
    """An instance, its requested move and the verdict; ``task_id`` is '' without a stored task."""

    instance_uuid: str
    from_host: str
    to_host: str
    verdict: str
    task_id: str = ''


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatResult:
    """The verdicts on the requested moves; ``plan_id`` is '' without a stored plan.

    ``approvals_missing``: how many other people must approve the plan before it begins.
    ``warnings``: those of the plan.
    """

    rows: tuple[RepeatRow, ...]
    plan_id: str = ''
    approvals_missing: int = 0
    warnings: tuple[str, ...] = ()


def retry_plan(session: cloud_state.Session, plan_id: str, *, reason: str,
               instances: Sequence[str] = (), partly: bool = False,
               dry_run: bool = False) -> RepeatResult:
    """Try the moves of a plan again that failed or were cancelled.

    :param reason: stored with the new plan, as the operator's name is.
    :param instances: UUIDs; only their moves are tried again. Empty: all moves.
    :param partly: store the allowed moves even if the rules refuse others.
    :param dry_run: store nothing.
    :raises KronosException: an input cannot be read, or the plan has no such move.
    """
    return _request_moves(session, plan_id, build_retry_move, 'retried', reason, instances, partly,
                          dry_run)


def revert_plan(session: cloud_state.Session, plan_id: str, *, reason: str,
                instances: Sequence[str] = (), partly: bool = False,
                dry_run: bool = False) -> RepeatResult:
    """Move back the instances that a plan has moved; the parameters are those of ``retry_plan``.

    :raises KronosException: an input cannot be read, or the plan has no such move.
    """
    return _request_moves(session, plan_id, build_revert_move, 'reverted', reason, instances,
                          partly, dry_run)


def build_revert_move(row: Any) -> requested_moves.RequestedMove | None:
    """Return a completed move's way back to its source host; None unless it is completed."""
    return (requested_moves.RequestedMove(row.task.instance_uuid, row.task.to_host,
                                          (row.task.from_host,))
            if row.task.state is TaskState.COMPLETED else None)


def build_retry_move(row: Any) -> requested_moves.RequestedMove | None:
    """Return a failed or cancelled move with its destinations, else None.

    Hosts that were tried already come last.
    """
    task = row.task
    if task.state not in (TaskState.FAILED, TaskState.CANCELLED):
        return None
    tried = [attempt.to_host for attempt in row.attempts]
    hosts = dict.fromkeys((task.to_host, *task.alternates, *tried))
    return requested_moves.RequestedMove(task.instance_uuid, task.from_host,
                                         tuple(sorted(hosts, key=lambda host: host in tried)))


def _request_moves(session: cloud_state.Session, plan_id: str,
                   build_move: Callable[[Any], requested_moves.RequestedMove | None], verb: str,
                   reason: str, instances: Sequence[str], partly: bool,
                   dry_run: bool) -> RepeatResult:
    """Plan the requested moves and store them, unless this is a dry run or the rules refuse.

    :param build_move: returns the requested move for a task's row; None where the task has none.
    :param verb: the operator's action, which is stored with the plan.
    """
    if not dry_run:
        refuse_dry_run(session, 'command line')
        session.forget_cloud()
    store = session.existing_store
    mark, stored, tasks = store.plans.read_live_work(), store.plans.find_plan(
        plan_id), store.tasks.list_plan_tasks(
            plan_id)
    cloud = session.cloud_for_requests
    if stored is None:
        raise stored_views.make_not_found_error(plan_id, 'no such plan',
                                                'kronos plan list shows the newest.')
    scope = stored.plan.scope
    wishes = _list_requested_moves(plan_id, instances, tasks, build_move)
    cluster = cloud.map_clusters().get(scope)
    if cluster is None:
        raise stored_views.make_conflict_error(
            plan_id, f'scope {scope} is not planned any more',
            'Only what [engine] aggregates and include_unassigned_hosts name is.')
    answer = requested_moves.plan_requested_moves(session.build_request(cluster, cloud), wishes)
    if answer.plan.reason is not None:
        raise stored_views.make_conflict_error(scope, answer.plan.reason,
                                               'Ask again when that is over.')
    if dry_run or not answer.plan.moves or (answer.refused and not partly):
        return _build_result(answer, wishes, cluster, [])
    return _build_result(answer, wishes, cluster, store_requested_plan(
        session.conf, session.policies, store, answer.plan, cluster, mark,
        plan_decisions.OperatorDecision(session.operator, f'plan {plan_id}: {reason}'), verb,
        signer=session.signer, person=session.person,
        needed=session.count_needed_approvals(scope)))


def refuse_dry_run(session: cloud_state.Session, path: str) -> None:
    """Refuse a request that no executor would carry out.

    :raises ConfigError: the configuration is that of a dry run.
    """
    if session.conf.engine.dry_run:
        raise exception.ConflictError(
            path=path, field='[engine] dry_run', problem='it is set, and then nothing is moved',
            remedy='Ask with --dry-run, or unset it.')


def _list_requested_moves(plan_id: str, instances: Sequence[str], rows: Sequence[Any],
                          build_move: Callable[[Any], requested_moves.RequestedMove | None],
                          ) -> list[requested_moves.RequestedMove]:
    known = {row.task.instance_uuid: row for row in rows}
    for uuid in instances:
        if uuid not in known:
            raise stored_views.make_not_found_error(
                uuid, f'plan {plan_id} has no move of such an instance',
                'kronos plan show lists them.')
        if build_move(known[uuid]) is None:
            raise stored_views.make_conflict_error(
                uuid, f'its task is {known[uuid].task.state}',
                'Completed moves are reverted, failed and cancelled ones retried, and moves that '
                'have not begun are cancelled.')
    moves = [w for row in rows if (w := build_move(row)) is not None
             and (not instances or w.instance_uuid in instances)]
    if not moves:
        raise stored_views.make_conflict_error(
            plan_id, 'it has no move of which that could be asked',
            'Completed moves are reverted, failed and cancelled ones retried; kronos plan show has '
            'their states.')
    return moves


def _build_result(answer: requested_moves.RequestedPlan,
                  wishes: Sequence[requested_moves.RequestedMove],
                  cluster: model.Cluster, tasks: Sequence[model.Task]) -> RepeatResult:
    moves = {m.instance_uuid: m for m in answer.plan.moves}
    of = {t.instance_uuid: t for t in tasks}
    rows = []
    for w in wishes:
        uuid = w.instance_uuid
        instance, move, rejection = (cluster.instances.get(uuid), moves.get(uuid),
                                     answer.refused.get(uuid))
        rows.append(RepeatRow(
            uuid, '' if instance is None else instance.host,
            ', '.join(w.hosts) if move is None else move.to_host,
            f'{rejection.rule}: {rejection.detail}' if rejection is not None else
            f'wave {move.wave}' if move is not None else '',
            of[uuid].task_id if uuid in of else ''))
    return RepeatResult(tuple(rows), tasks[0].plan_id if tasks else '', count_missing(tasks),
                        answer.plan.warnings)


def count_missing(tasks: Sequence[model.Task]) -> int:
    """Return how many other people must approve the tasks of a requested plan."""
    return max((task_authorization.parse_authorization(task).missing for task in tasks), default=0)


def store_requested_plan(conf: cfg.ConfigOpts, policy_set: policy.PolicySet, store: api.Store,
                         plan: model.Plan,
                         cluster: model.Cluster, mark: plans.LiveWork,
                         decision: plan_decisions.OperatorDecision,
                         verb: str, *, signer: task_authorization.TaskSigner,
                         person: str | None, needed: int,
                         history: model.MoveHistory | None = None,
                         adjust: Callable[[model.Task], model.Task] = lambda task: task,
                         also: Callable[[sa.Connection, str], None] = lambda connection,
                         plan_id: None,
                         before: Callable[[sa.Connection], None] = lambda connection: None,
                         ) -> list[model.Task]:
    """Store a plan with its tasks, beside those of the scope's engine.

    Executors carry them out as any other plan.

    :param mark: state of the database before the cloud was read.
    :param person: the operator; where the scope wants several approvals, the request is one of
        them, and the tasks wait for the others. None: a program with permits of its own.
    :param needed: how many people must approve the plan; 0 for such a program.
    :param history: of a drain: it says which instances are shut down.
    :param adjust: turns a task into the requested form.
    :param also: writes more in the same transaction; gets its connection and the plan's UUID.
    :param before: the same, before the plan is written.
    :raises StoreError: another plan was stored since, or an instance is being moved; nothing was
        written.
    """
    now, plan_id = store.now(), uuidutils.generate_uuid()
    waits = needed > 1
    rows = [adjust(task) for task in planned_tasks.from_plan(
        plan, cluster, tuple(p.name for p in policy_set.enabled_policies), plan_id=plan_id, now=now,
        stagger_seconds=conf.executor.stagger_seconds, max_retries=conf.executor.max_retries,
        new_id=uuidutils.generate_uuid, options=engine_conf.build_options(conf), history=history,
        approval_seconds=conf.engine.approval_seconds if waits else None)]
    rows = signer.grant_tasks(rows, plan.swaps, person or decision.by, now,
                              needed=needed if waits else 0, approved_by=person,
                              begin_within=store_rows.BEGIN_WITHIN)
    store.plans.save_requested_plan(mark, plan, rows, plan_id=plan_id, now=now,
                                    instance_cooldown=conf.engine.instance_cooldown,
                                    decision=decision, verb=verb, before=before,
                                    also=lambda connection: also(connection, plan_id))
    return rows
