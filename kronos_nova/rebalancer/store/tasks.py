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


"""Tasks: claims, changes of state, ends; every step is one compare-and-swap."""

import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import tables

_task = tables.task
#: ``error_type`` and text of tasks that did not begin, or were not approved, in time.
EXPIRED_TYPE = 'TaskExpired'
LAPSED = 'No operator approved it in time.'

#: The newest ended tasks are those within so many seconds before the newest end.
COUNTED_SECONDS = 3600.0

#: Columns that a change of state may set besides the state.
_FIELDS = frozenset({'marker', 'reference', 'error', 'error_type', 'deadline', 'not_before',
                     'retry_count', 'submitted_at', 'doubt_since', 'doubt', 'timings'})
#: Columns of an attempt that has not begun.
_FRESH: dict[str, Any] = {
    'worker': None, 'heartbeat_at': None, 'marker': None, 'reference': None,
    'submitted_at': None, 'deadline': None, 'doubt_since': None, 'doubt': None,
    'timings': None}


def _match_states(states: Iterable[TaskState]) -> ColumnElement[bool]:
    # With a plain list SQLAlchemy would render the parameters again at each execution.
    return _task.c.state.in_([sa.literal(state.value) for state in states])


def _match_scopes(scopes: Collection[str] | None) -> ColumnElement[bool]:
    return sa.true() if scopes is None else _task.c.scope.in_(sorted(scopes))


def _going_on(held: tuple[str, ...]) -> ColumnElement[bool]:
    return _task.c.scope.not_in(held) if held else sa.true()


def _freeze_scopes(scopes: Collection[str] | None) -> tuple[str, ...] | None:
    return None if scopes is None else tuple(sorted(scopes))


def _match_silent_worker(since: float) -> ColumnElement[bool]:
    return sa.or_(_task.c.heartbeat_at.is_(None), _task.c.heartbeat_at <= since)


def _match_unexpired(now: float) -> ColumnElement[bool]:
    return sa.or_(_task.c.expires_at.is_(None), _task.c.expires_at > now)


def has_claimable(connection: sa.Connection, scopes: Collection[str] | None, now: float,
                  claim_seconds: float) -> bool:
    """Return whether a task may be claimable; the answer may be a wrong yes.

    The check is cheap: it spares passes that claim nothing the write lock.
    """
    return connection.execute(
        *_select_claimable(_freeze_scopes(scopes), now, now - claim_seconds)).first() is not None


@statements.build_once
def _select_claimable(scopes: tuple[str, ...] | None, now: float,
                      silent_since: float) -> sa.Select[Any]:
    return sa.select(_task.c.task_id).where(match_claimable_tasks(scopes, now,
                                                                  silent_since)).limit(1)


def match_claimable_tasks(scopes: tuple[str, ...] | None, now: float,
                          silent_since: float) -> ColumnElement[bool]:
    """Match tasks that may be claimable; the claim itself checks whose turn it is."""
    due = sa.and_(_match_states([TaskState.QUEUED]), _task.c.not_before <= now)
    lost = sa.and_(_match_states([TaskState.CLAIMED]), _match_silent_worker(silent_since))
    return sa.and_(sa.or_(due, lost), _match_scopes(scopes))


def claim(connection: sa.Connection, worker: str, scopes: Collection[str] | None, now: float, *,
          per_scope: int, total: int, claim_seconds: float, per_source: int,
          per_destination: int) -> rows.TaskRow | None:
    # First of all, so that the rows read below stay valid until the commit.
    connection.execute(*_build_gate_update())
    held = {pause.scope for pause in pauses.list_pauses(connection, now)}
    if None in held:
        return None
    served = _freeze_scopes(scopes), tuple(sorted(name for name in held if name is not None))
    lost = connection.execute(*_select_lost_claim(*served, now, now - claim_seconds)).first()
    chosen = lost.task_id if lost else _choose_queued_task(
        connection, served, now, per_scope, total, per_source, per_destination)
    if chosen is None:
        return None
    taken = connection.execute(
        sa.update(_task)
        .where(_task.c.task_id == chosen, sa.or_(
            _match_states([TaskState.QUEUED]),
            sa.and_(_match_states([TaskState.CLAIMED]), _match_silent_worker(now - claim_seconds))))
        .values(state=TaskState.CLAIMED.value, worker=worker, heartbeat_at=now, updated_at=now,
                **_claimed_now(connection, chosen, now)))
    return get(connection, chosen) if taken.rowcount == 1 else None


@statements.build_once
def _build_gate_update() -> sa.Update:
    return sa.update(tables.gate).where(tables.gate.c.name == 'claim').values(
        passes=tables.gate.c.passes + 1)


@statements.build_once
def _select_lost_claim(scopes: tuple[str, ...] | None, held: tuple[str, ...], now: float,
                       silent_since: float) -> sa.Select[Any]:
    return (sa.select(_task.c.task_id)
            .where(_match_states([TaskState.CLAIMED]), _match_silent_worker(silent_since),
                   _match_scopes(scopes),
                   _going_on(held), _match_unexpired(now))
            .order_by(_task.c.not_before, _task.c.priority, _task.c.task_id).limit(1))


def _claimed_now(connection: sa.Connection, task_id: str, now: float) -> dict[str, str]:
    """Return the columns of a claim: the queue phase ends, and pre-flight begins.

    The queue phase began when the task could be claimed; waiting time before an earlier claim that
    was given back counts.
    """
    row = get(connection, task_id)
    marks = row.marks or ((attempt_phases.QUEUE, min(now, max(row.task.not_before,
                                                              row.task.created_at))),)
    begun = attempt_phases.begin_phase(marks, attempt_phases.PRE_FLIGHT, now)
    return {'timings': attempt_phases.format_phase_starts(begun)}


def _choose_queued_task(connection: sa.Connection,
                        served: tuple[tuple[str, ...] | None, tuple[str, ...]], now: float,
                        per_scope: int,
                        total: int, per_source: int, per_destination: int) -> str | None:
    """Return the first queued task whose turn, slots and requirements have come.

    :param served: the served scopes (None: all), and the paused ones.
    """
    flying = [row for row in connection.execute(*_select_in_flight()).all()
              if not rows.has_lost_slots(row.doubt, row.doubt_since)]
    if len(flying) >= total:
        return None
    scoped = collections.Counter(row.scope for row in flying)
    leaving = collections.Counter(row.from_host for row in flying)
    coming = collections.Counter(row.to_host for row in flying)
    queued = connection.execute(*_select_queued(*served, now)).all()
    # All tasks of the plans: by the state SQLite would look through all completed ones.
    completed = {
        (row.plan_id, row.instance_uuid) for row in connection.execute(
            sa.select(_task.c.plan_id, _task.c.instance_uuid, _task.c.state)
            .where(_task.c.plan_id.in_(sorted({row.plan_id for row in queued}))))
        if row.state == TaskState.COMPLETED.value}
    for row in queued:
        if (scoped[row.scope] < per_scope and leaving[row.from_host] < per_source
                and coming[row.to_host] < per_destination and completed.issuperset(
                    (row.plan_id, instance) for instance in json.loads(row.requires))):
            return str(row.task_id)
    return None


@statements.build_once
def _select_in_flight() -> sa.Select[Any]:
    return sa.select(_task.c.scope, _task.c.from_host, _task.c.to_host, _task.c.doubt,
                     _task.c.doubt_since).where(
        _match_states(rows.IN_FLIGHT))


@statements.build_once
def _select_queued(scopes: tuple[str, ...] | None, held: tuple[str, ...],
                   now: float) -> sa.Select[Any]:
    return (sa.select(_task.c.task_id, _task.c.plan_id, _task.c.scope, _task.c.requires,
                      _task.c.from_host, _task.c.to_host)
            .where(_match_states([TaskState.QUEUED]), _task.c.not_before <= now,
                   _match_scopes(scopes),
                   _going_on(held), _match_unexpired(now), pending_hooks.match_tasks_without_hook())
            .order_by(_task.c.not_before, _task.c.priority, _task.c.task_id))


def match_abandoned_tasks(scopes: Collection[str] | None,
                          silent_since: float) -> ColumnElement[bool]:
    """Match tasks that may have reached Nova and whose worker is silent."""
    return sa.and_(_match_states(rows.MAYBE_IN_NOVA), _match_silent_worker(silent_since),
                   _match_scopes(scopes))


def adopt_tasks(connection: sa.Connection, worker: str, scopes: Collection[str] | None, now: float,
                claim_seconds: float) -> list[rows.TaskRow]:
    still = match_abandoned_tasks(scopes, now - claim_seconds)
    adopted = []
    for row in connection.execute(sa.select(_task.c.task_id).where(still)).all():
        taken = connection.execute(
            sa.update(_task).where(_task.c.task_id == row.task_id, still)
            .values(worker=worker, heartbeat_at=now))
        if taken.rowcount == 1:
            adopted.append(get(connection, row.task_id))
    return adopted


def renew_claim(connection: sa.Connection, worker: str, now: float) -> None:
    connection.execute(*_build_heartbeat_update(worker, now))


@statements.build_once
def _build_heartbeat_update(worker: str, now: float) -> sa.Update:
    return sa.update(_task).where(held_by(worker)).values(heartbeat_at=now)


def release_claims(connection: sa.Connection, worker: str) -> None:
    connection.execute(sa.update(_task).where(held_by(worker)).values(heartbeat_at=None))
    pending_hooks.release_hooks(connection, worker)


def held_by(worker: str) -> ColumnElement[bool]:
    return sa.and_(_task.c.worker == worker, _match_states(rows.IN_FLIGHT))


def update_state(connection: sa.Connection, task_id: str, worker: str,
                 from_states: Iterable[TaskState],
                 to_state: TaskState, now: float, **fields: Any) -> bool:
    unknown = fields.keys() - _FIELDS
    if unknown or to_state.terminal or to_state not in rows.LIVE:
        raise ValueError(f'mark() cannot set {sorted(unknown) or to_state}')
    statement, given = _build_state_update(task_id, worker, tuple(from_states), now)
    return connection.execute(
        statement, {'state': to_state.value, **fields, **given}).rowcount == 1


@statements.build_once
def _build_state_update(task_id: str, worker: str, from_states: tuple[TaskState, ...],
                        now: float) -> sa.Update:
    """Build the update of a task; it is executed with the new state."""
    return (sa.update(_task)
            .where(_task.c.task_id == task_id, _task.c.worker == worker, _match_states(from_states))
            .values(heartbeat_at=now, updated_at=now))


def requeue_task(connection: sa.Connection, task_id: str, worker: str, now: float, *,
                 not_before: float, retry_count: int, attempt: int, error: str | None,
                 error_type: str | None, attempts: Sequence[model.Attempt] | None,
                 marks: attempt_phases.Marks) -> bool:
    row = connection.execute(
        sa.select(_task.c.destinations).where(_task.c.task_id == task_id)).first()
    if row is None:
        return False
    return connection.execute(
        sa.update(_task)
        .where(_task.c.task_id == task_id, _task.c.worker == worker, _match_states(rows.IN_FLIGHT))
        .values(state=TaskState.QUEUED.value, updated_at=now, not_before=not_before,
                retry_count=retry_count, attempt=attempt,
                to_host=json.loads(row.destinations)[attempt], error=error,
                error_type=error_type, **_FRESH | {
                    'timings': attempt_phases.format_phase_starts(marks) if marks else None},
                **_build_attempts_column(attempts))).rowcount == 1


def _build_attempts_column(attempts: Sequence[model.Attempt] | None) -> dict[str, Any]:
    return {} if attempts is None else {'attempts': rows.attempts_text(attempts)}


def finish_task(connection: sa.Connection, task: model.Task, result: model.TaskResult,
                state: TaskState,
                now: float, *, worker: str, instance_cooldown: float,
                quarantine_seconds: float | None) -> list[model.Task] | None:
    ended = connection.execute(
        sa.update(_task)
        .where(_task.c.task_id == task.task_id, _task.c.worker == worker,
               _match_states(rows.IN_FLIGHT))
        .values(state=state.value, active_instance=None, updated_at=now, completed_at=now,
                error=result.error, error_type=result.error_type,
                retry_count=result.retry_count, **_build_attempts_column(result.attempts or None)))
    if ended.rowcount != 1:
        return None
    plans.extend_cooldown(connection, plans.INSTANCE, task.instance_uuid, now + instance_cooldown)
    if quarantine_seconds is not None:
        quarantine.add(connection, plans.INSTANCE, task.instance_uuid, now, quarantine_seconds,
                       f'{result.error_type}: {result.error}')
    if state is TaskState.COMPLETED:
        quarantine.clear_refusals(connection, task.to_host, now)
        return _settle_task_swaps(connection, [task.task_id], now)
    cancelled = _cancel_dependents(connection, task.plan_id, {task.instance_uuid}, now)
    return [*cancelled, *_settle_task_swaps(
        connection, [task.task_id, *(t.task_id for t in cancelled)], now)]


def match_late_tasks(scopes: Collection[str] | None, now: float,
                     silent_since: float) -> ColumnElement[bool]:
    """Match tasks that should have begun before now and have not."""
    idle = sa.or_(_match_states([TaskState.PENDING, TaskState.QUEUED]),
                  sa.and_(_match_states([TaskState.CLAIMED]), _match_silent_worker(silent_since)))
    return sa.and_(idle, _task.c.expires_at <= now, _match_scopes(scopes))


def expire_tasks(connection: sa.Connection, scopes: Collection[str] | None, now: float,
                 claim_seconds: float) -> list[model.Task]:
    still = match_late_tasks(scopes, now, now - claim_seconds)
    waited = sa.and_(still, _match_states([TaskState.PENDING]))
    return [*cancel_where(connection, waited, now, EXPIRED_TYPE, LAPSED),
            *cancel_where(connection, still, now, EXPIRED_TYPE,
                          'It was not begun in time: the plan is too old.')]


def cancel_where(connection: sa.Connection, still: ColumnElement[bool], now: float,
                 error_type: str, error: str) -> list[model.Task]:
    """Cancel tasks that still match ``still``, and the tasks that require them."""
    found = connection.execute(
        sa.select(_task).where(still).order_by(_task.c.task_id)).mappings().all()
    cancelled = []
    for row in found:
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
    unbegun = _match_states(rows.NOT_IN_NOVA)
    if not _set_cancelled(connection, task_id, now, error_type, error, unbegun):
        return None
    task = get(connection, task_id).task
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
                               _match_states([TaskState.PENDING, TaskState.QUEUED]))
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
                                  _match_states([TaskState.PENDING, TaskState.QUEUED])):
                    cancelled.append(task)
                    failed.add(task.instance_uuid)
                    again = True
    return cancelled


def _settle_task_swaps(connection: sa.Connection, task_ids: Sequence[str],
                       now: float) -> list[model.Task]:
    """Do the next step of the swaps to which the ended tasks belong.

    :returns: tasks that were cancelled by that.
    """
    found: list[model.Task] = []
    ended = list(task_ids)
    while ended:
        swap_ids = sorted(set(connection.scalars(sa.select(_task.c.swap_id).where(
            _task.c.task_id.in_(ended), _task.c.swap_id.is_not(None)))))
        called_off = [task for swap_id in swap_ids
                      for task in swaps.settle_swap(connection, swap_id, now)]
        more = [other for task in called_off for other in _cancel_dependents(
            connection, task.plan_id, {task.instance_uuid}, now)]
        found += [*called_off, *more]
        ended = [task.task_id for task in more]
    return found


def settle_swaps(connection: sa.Connection, now: float) -> list[swaps.StoredSwap]:
    """Settle swaps that no end of a task has settled; return the swaps to log."""
    for swap_id in swaps.list_unsettled_swaps(connection):
        swaps.settle_swap(connection, swap_id, now)
    return swaps.pop_unlogged_swaps(connection)


def get(connection: sa.Connection, task_id: str) -> rows.TaskRow:
    return rows.task_row(connection.execute(*_select_task(task_id)).mappings().one())


def find_task(connection: sa.Connection, task_id: str) -> rows.TaskRow | None:
    row = connection.execute(*_select_task(task_id)).mappings().first()
    return None if row is None else rows.task_row(row)


@statements.build_once
def _select_task(task_id: str) -> sa.Select[Any]:
    return sa.select(_task).where(_task.c.task_id == task_id)


def list_tasks(connection: sa.Connection, *conditions: ColumnElement[bool]) -> list[rows.TaskRow]:
    return _parse_task_rows(connection.execute(_select_tasks(*conditions)))


def _select_tasks(*conditions: ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(_task).where(*conditions).order_by(
        _task.c.not_before, _task.c.priority, _task.c.task_id)


def _parse_task_rows(result: sa.CursorResult[Any]) -> list[rows.TaskRow]:
    return [rows.task_row(row) for row in result.mappings()]


def count_newest_ended(connection: sa.Connection) -> tuple[int, float]:
    """Count the tasks that ended in the last hour before the newest end; return it as well.

    A task whose executor's clock is behind still changes the count.
    """
    last = connection.scalar(sa.select(sa.func.max(_task.c.completed_at))) or 0.0
    count = connection.scalar(sa.select(sa.func.count()).where(
        _task.c.completed_at > last - COUNTED_SECONDS))
    return int(count or 0), last


def in_states(connection: sa.Connection, states: Sequence[TaskState],
              scopes: Collection[str] | None, worker: str | None) -> list[rows.TaskRow]:
    return _parse_task_rows(connection.execute(*_in_states(tuple(states), _freeze_scopes(scopes),
                                                           worker)))


@statements.build_once
def _in_states(states: tuple[TaskState, ...], scopes: tuple[str, ...] | None,
               worker: str | None) -> sa.Select[Any]:
    mine = sa.true() if worker is None else _task.c.worker == worker
    return _select_tasks(_match_states(states), _match_scopes(scopes), mine)
