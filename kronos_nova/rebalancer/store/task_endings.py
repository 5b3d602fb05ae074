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

"""Ends of tasks: a result, too late, cancelled; and what follows for dependent tasks and swaps."""

from collections.abc import Collection
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import notices
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import tasks

_task = tables.task
#: ``error_type`` and text of tasks that did not begin, or were not approved, in time.
EXPIRED_TYPE = 'TaskExpired'

LAPSED = 'No operator approved it in time.'


def finish_task(connection: sa.Connection, task: model.Task, result: model.TaskResult,
                state: TaskState,
                now: float, *, worker: str, instance_cooldown: float,
                quarantine_seconds: float | None) -> list[model.Task] | None:
    ended = connection.execute(
        sa.update(_task)
        .where(_task.c.task_id == task.task_id, _task.c.worker == worker,
               tasks.match_states(rows.IN_FLIGHT))
        .values(state=state.value, active_instance=None, updated_at=now, completed_at=now,
                error=result.error, error_type=result.error_type,
                retry_count=result.retry_count,
                **tasks.build_attempts_column(result.attempts or None)))
    if ended.rowcount != 1:
        return None
    plans.extend_cooldown(connection, plans.INSTANCE, task.instance_uuid, now + instance_cooldown)
    if quarantine_seconds is not None:
        quarantine.begin_quarantine(connection, plans.INSTANCE, task.instance_uuid, now,
                                    quarantine_seconds, f'{result.error_type}: {result.error}')
    if state is TaskState.COMPLETED:
        notices.use_notice(connection, task.instance_uuid, now)
        quarantine.clear_refusals(connection, task.to_host, now)
        return _settle_task_swaps(connection, [task.task_id], now)
    cancelled = _cancel_dependents(connection, task.plan_id, {task.instance_uuid}, now)
    return [*cancelled, *_settle_task_swaps(
        connection, [task.task_id, *(t.task_id for t in cancelled)], now)]


def match_late_tasks(scopes: Collection[str] | None, now: float,
                     silent_since: float) -> ColumnElement[bool]:
    """Match tasks that should have begun before now and have not."""
    idle = sa.or_(tasks.match_states([TaskState.PENDING, TaskState.QUEUED]),
                  sa.and_(tasks.match_states([TaskState.CLAIMED]),
                          tasks.match_silent_worker(silent_since)))
    return sa.and_(idle, _task.c.expires_at <= now, tasks.match_scopes(scopes))


def expire_tasks(connection: sa.Connection, scopes: Collection[str] | None, now: float,
                 claim_seconds: float) -> list[model.Task]:
    still = match_late_tasks(scopes, now, now - claim_seconds)
    waited = sa.and_(still, tasks.match_states([TaskState.PENDING]))
    return [*cancel_where(connection, waited, now, EXPIRED_TYPE, LAPSED),
            *cancel_where(connection, still, now, EXPIRED_TYPE,
                          'It was not begun in time: the plan is too old.')]


def cancel_where(connection: sa.Connection, still: ColumnElement[bool], now: float,
                 error_type: str, error: str) -> list[model.Task]:
    """Cancel tasks that still match ``still``, and the tasks that require them."""
    matching_rows = connection.execute(
        sa.select(_task).where(still).order_by(_task.c.task_id)).mappings().all()
    cancelled = []
    for row in matching_rows:
        if _set_cancelled(connection, row['task_id'], now, error_type, error, still):
            cancelled.append(rows.task_row(row).task)
            cancelled += _cancel_dependents(
                connection, row['plan_id'], {row['instance_uuid']}, now)
    return [*cancelled, *_settle_task_swaps(connection, [task.task_id for task in cancelled], now)]


def cancel_task(connection: sa.Connection, task_id: str, now: float, *, error_type: str, error: str,
                instance_cooldown: float) -> list[model.Task] | None:
    """Cancel a task and the tasks that require it; return all of the cancelled.

    :returns: None: it may be in Nova, has ended or does not exist; nothing was written.
    """
    unbegun = tasks.match_states(rows.NOT_IN_NOVA)
    if not _set_cancelled(connection, task_id, now, error_type, error, unbegun):
        return None
    task = tasks.get_task(connection, task_id).task
    plans.extend_cooldown(connection, plans.INSTANCE, task.instance_uuid, now + instance_cooldown)
    ended = [task, *_cancel_dependents(connection, task.plan_id, {task.instance_uuid}, now)]
    return [*ended, *_settle_task_swaps(connection, [task.task_id for task in ended], now)]


def _set_cancelled(connection: sa.Connection, task_id: str, now: float, error_type: str, error: str,
                   still: ColumnElement[bool]) -> bool:
    return connection.execute(
        sa.update(_task).where(_task.c.task_id == task_id, still)
        .values(state=TaskState.CANCELLED.value, active_instance=None, updated_at=now,
                completed_at=now, error=error, error_type=error_type)).rowcount == 1


def _cancel_dependents(connection: sa.Connection, plan_id: str, failed: set[str],
                       now: float) -> list[model.Task]:
    """Cancel tasks that can no longer happen, and the tasks that depend on those."""
    waiting = [rows.task_row(row).task for row in connection.execute(
        sa.select(_task).where(_task.c.plan_id == plan_id,
                               tasks.match_states([TaskState.PENDING, TaskState.QUEUED]))
        .order_by(_task.c.wave, _task.c.task_id)).mappings()]
    cancelled: list[model.Task] = []
    again = True
    while again:
        again = False
        for task in list(waiting):
            missing = failed.intersection(task.requires)
            if missing:
                waiting.remove(task)
                if _set_cancelled(connection, task.task_id, now, 'RequirementFailed',
                                  f'The move of instance {min(missing)}, which must come first, '
                                  'did not succeed.',
                                  tasks.match_states([TaskState.PENDING, TaskState.QUEUED])):
                    cancelled.append(task)
                    failed.add(task.instance_uuid)
                    again = True
    return cancelled


def _settle_task_swaps(connection: sa.Connection, task_ids: Sequence[str],
                       now: float) -> list[model.Task]:
    """Do the next step of the swaps to which the ended tasks belong.

    :returns: tasks that were cancelled by that.
    """
    cancelled_tasks: list[model.Task] = []
    ended = list(task_ids)
    while ended:
        swap_ids = sorted(set(connection.scalars(sa.select(_task.c.swap_id).where(
            _task.c.task_id.in_(ended), _task.c.swap_id.is_not(None)))))
        called_off = [task for swap_id in swap_ids
                      for task in swaps.settle_swap(connection, swap_id, now)]
        more = [other for task in called_off for other in _cancel_dependents(
            connection, task.plan_id, {task.instance_uuid}, now)]
        cancelled_tasks += [*called_off, *more]
        ended = [task.task_id for task in more]
    return cancelled_tasks


def settle_swaps(connection: sa.Connection, now: float) -> list[swaps.StoredSwap]:
    """Settle swaps that no end of a task has settled; return the swaps to log."""
    for swap_id in swaps.list_unsettled_swaps(connection):
        swaps.settle_swap(connection, swap_id, now)
    return swaps.pop_unlogged_swaps(connection)
