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

"""Decisions of operators on plans, tasks, pauses and quarantines; the database keeps each one."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer.operations import scope_liveness
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.rebalancer.planning import tasks as planned_tasks
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import rows


@dataclasses.dataclass(frozen=True, slots=True)
class ApprovalResult:
    """The effect of an approval.

    ``tasks`` may begin now, and ``waiting`` ones when ``missing`` more people have approved them.
    ``scope_without_executor``: the scope of the tasks if no live executor serves it, else None.
    """

    tasks: list[model.Task]
    waiting: list[model.Task]
    missing: int
    scope_without_executor: str | None


def approve_plan(session: sessions.DatabaseSession, plan_id: str, *, reason: str = '',
                 instances: Sequence[str] = ()) -> ApprovalResult:
    """Approve a plan that waits for approval, or only the moves of some instances.

    :param instances: UUIDs; empty: all.
    :raises KronosException: the plan has no such move, or this person has approved it already.
    """
    conf, store = session.conf, session.existing_store
    decision = _check_moves(session, plan_id, reason, instances)
    # Use the clock of the database, as executors and engines do.
    now = store.now()

    def approve_task(task: model.Task, begin_by: float) -> plan_approvals.TaskApproval | None:
        authorization = session.signer.approve_task(task, session.person, now, begin_by)
        return None if authorization is None else plan_approvals.TaskApproval(
            authorization.format_text(), authorization.missing)

    approval = store.approvals.approve_plan(
        plan_id, now, decision, approve_task=approve_task,
        begin_within=planned_tasks.begin_within(conf.engine.cooldown),
        cooldown=conf.engine.cooldown, instance_cooldown=conf.engine.instance_cooldown)
    if not (approval.tasks or approval.waiting):
        raise _make_no_task_error(session, plan_id, 'waits for approval')
    row = store.plans.find_plan(plan_id)
    unserved = row is not None and not scope_liveness.has_executor(store.statistics.read_census(),
                                                                   row.plan.scope)
    return ApprovalResult(approval.tasks, approval.waiting, approval.missing,
                          row.plan.scope if row is not None and unserved else None)


def reject_plan(session: sessions.DatabaseSession, plan_id: str, *, reason: str,
                instances: Sequence[str] = ()) -> list[model.Task]:
    """Drop a plan that waits for approval, or only the moves of some instances.

    :returns: the rejected tasks.
    :raises KronosException: the plan has no such move.
    """
    store = session.existing_store
    decision = _check_moves(session, plan_id, reason, instances)
    tasks = store.approvals.reject_plan(plan_id, store.now(), decision,
                                        session.conf.engine.instance_cooldown)
    if not tasks:
        raise _make_no_task_error(session, plan_id, 'waits for approval')
    return tasks


def cancel_plan(session: sessions.DatabaseSession, plan_id: str, *, reason: str,
                instances: Sequence[str] = ()) -> list[model.Task]:
    """End the tasks of a plan that have not begun, or only those of some instances.

    :returns: the cancelled tasks.
    :raises KronosException: the plan has no such task.
    """
    store = session.existing_store
    decision = _check_moves(session, plan_id, reason, instances)
    tasks = store.approvals.cancel_plan(plan_id, store.now(), decision,
                                        session.conf.engine.instance_cooldown)
    if not tasks:
        raise _make_no_task_error(session, plan_id, 'can be cancelled')
    return tasks


def _check_moves(session: sessions.DatabaseSession, plan_id: str, reason: str,
                 instances: Sequence[str]) -> plan_decisions.OperatorDecision:
    """Return the decision on the moves of the instances.

    :raises NotFoundError: the plan has moves, but does not move one of the instances.
    """
    known = {row.task.instance_uuid for row in session.store.tasks.list_plan_tasks(plan_id)}
    for uuid in instances:
        if known and uuid not in known:
            raise stored_views.make_not_found_error(
                uuid, f'plan {plan_id} has no move of such an instance',
                'kronos plan show lists them.')
    return plan_decisions.OperatorDecision(session.operator, reason, instances or None)


def _make_no_task_error(session: sessions.DatabaseSession, plan_id: str,
                        about: str) -> exception.ConfigError:
    """Return the error for a plan without a task to decide on, with the reason."""
    store = session.store
    row = store.plans.find_plan(plan_id)
    waiting = '; '.join(f'{w.plan_id} ({plurals.count_noun(w.moves, "move")})'
                        for w in store.approvals.list_waiting_plans(store.now()))
    remedy = f'For approval wait: {waiting or "none"}. kronos plan list shows the newest plans.'
    if row is None:
        return stored_views.make_not_found_error(plan_id, 'no such plan', remedy)
    if row.dry_run:
        return stored_views.make_conflict_error(
            plan_id, 'it was made in a dry run, of which nothing is carried out', remedy)
    counts = stored_views.count_plan_tasks(store.tasks.list_plan_tasks(plan_id)).get(plan_id)
    return stored_views.make_conflict_error(
        plan_id, 'it has no moves' if counts is None else f'it has no move that {about}; its '
        f'tasks are: {stored_views.format_task_states(counts)}', remedy)


def cancel_task(session: sessions.DatabaseSession, task_id: str, *,
                reason: str) -> list[model.Task]:
    """End a task that has not begun, and the tasks that require it.

    :returns: the tasks that ended.
    :raises KronosException: the task does not exist, or it has begun.
    """
    store = session.existing_store
    ended = store.tasks.cancel_task(task_id, store.now(), reason=reason,
                                    cancelled_by=session.operator,
                                    instance_cooldown=session.conf.engine.instance_cooldown)
    if ended is None:
        row = store.tasks.find_task(task_id)
        raise _make_task_error(
            task_id, row, lambda state: f'it is {state}',
            'kronos task list shows tasks that are not over. Abort a migration that Nova has begun '
            'in Nova: openstack server migration abort. When Nova refuses that, kronos task show '
            'has the next step')
    return ended


def resolve_task(session: sessions.DatabaseSession, task_id: str, state: model.TaskState, *,
                 reason: str) -> list[model.Task]:
    """End a task that Nova was asked for and never finishes.

    :param state: completed if the instance is on its destination, else failed.
    :returns: the tasks that are cancelled because they required it.
    :raises KronosException: the task does not exist, or Nova was not asked for it.
    """
    store = session.existing_store
    cancelled = store.tasks.resolve_task(
        task_id, state, store.now(), plan_decisions.OperatorDecision(session.operator, reason),
        session.conf.engine.instance_cooldown)
    if cancelled is None:
        row = store.tasks.find_task(task_id)
        raise _make_task_error(
            task_id, row, lambda state: f'it is {state}, not submitted or unknown',
            'kronos task list shows the states of tasks; kronos task cancel ends a task that has '
            'not begun')
    return cancelled


def _make_task_error(task_id: str, row: rows.TaskRow | None, describe: Callable[[str], str],
                     remedy: str) -> exception.ConfigError:
    """Return the error for a task that does not exist, or whose state forbids the request."""
    if row is None:
        return stored_views.make_not_found_error(task_id, 'no such task', remedy)
    return stored_views.make_conflict_error(task_id, describe(str(row.task.state)), remedy)


def pause_scope(session: sessions.DatabaseSession, scope: str | None, *, reason: str,
                seconds: float | None = None) -> pauses.PauseRecord:
    """Plan and begin nothing more in a scope.

    :param scope: None: everywhere.
    :param seconds: None: until :func:`resume_scope`.
    :raises KronosException: no engine has planned the scope.
    """
    store = session.existing_store
    if scope is not None:
        stored_views.check_scope(session, scope)
    return store.pauses.pause_scope(scope, store.now(), seconds=seconds,
                                    paused_by=session.operator[:255],
                                    reason=reason)


def resume_scope(session: sessions.DatabaseSession, scope: str | None) -> list[pauses.PauseRecord]:
    """End the pause of a scope, or for None the pause of everything.

    :returns: the pauses that still hold some scope.
    :raises KronosException: it is not paused.
    """
    store = session.existing_store
    now = store.now()
    if not store.pauses.resume_scope(scope, now, session.operator):
        paused = ', '.join(format_paused(p.scope)
                           for p in store.pauses.list_pauses(now)) or 'nothing'
        raise stored_views.make_not_found_error('--scope', f'{format_paused(scope)} is not paused',
                                                f'Paused is: {paused}')
    return [p for p in store.pauses.list_pauses(now) if p.scope is None or scope is None]


def format_paused(scope: str | None) -> str:
    return 'Everything' if scope is None else f'Scope {scope}'


def lift_quarantine(session: sessions.DatabaseSession, kind: str, name: str) -> None:
    """End a quarantine: the next cycle may plan with the instance or host again.

    :raises KronosException: it is not in quarantine.
    """
    store = session.existing_store
    if not store.quarantine.lift_quarantine(kind, name, store.now(), session.operator):
        raise stored_views.make_not_found_error(f'{kind} {name}', 'it is not in quarantine',
                                                'kronos quarantine list shows those that are')

