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


"""Rows of tasks: read, change their state, requeue; every step is one compare-and-swap.

Claims are in :mod:`task_claims`, ends in :mod:`task_endings`.
"""

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
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables

_task = tables.task

#: The newest ended tasks are those within so many seconds before the newest end.
COUNTED_SECONDS = 3600.0

#: Columns that a change of state may set besides the state.
_FIELDS = frozenset({'marker', 'reference', 'error', 'error_type', 'deadline', 'not_before',
                     'retry_count', 'submitted_at', 'doubt_since', 'doubt', 'timings',
                     'escalation'})
#: Columns of an attempt that has not begun.
_FRESH: dict[str, Any] = {
    'worker': None, 'heartbeat_at': None, 'marker': None, 'reference': None,
    'submitted_at': None, 'deadline': None, 'doubt_since': None, 'doubt': None,
    'timings': None}


def match_states(states: Iterable[TaskState]) -> ColumnElement[bool]:
    # With a plain list SQLAlchemy would render the parameters again at each execution.
    return _task.c.state.in_([sa.literal(state.value) for state in states])


def match_scopes(scopes: Collection[str] | None) -> ColumnElement[bool]:
    return sa.true() if scopes is None else _task.c.scope.in_(sorted(scopes))


def freeze_scopes(scopes: Collection[str] | None) -> tuple[str, ...] | None:
    return None if scopes is None else tuple(sorted(scopes))


def match_silent_worker(since: float) -> ColumnElement[bool]:
    return sa.or_(_task.c.heartbeat_at.is_(None), _task.c.heartbeat_at <= since)


def update_state(connection: sa.Connection, task_id: str, worker: str,
                 from_states: Iterable[TaskState],
                 to_state: TaskState, now: float, **fields: Any) -> bool:
    unknown = fields.keys() - _FIELDS
    if unknown or to_state.is_terminal or to_state not in rows.LIVE:
        raise ValueError(f'mark() cannot set {sorted(unknown) or to_state}')
    statement, parameters = _build_state_update(task_id, worker, tuple(from_states), now)
    return connection.execute(
        statement, {'state': to_state.value, **fields, **parameters}).rowcount == 1


@statements.build_once
def _build_state_update(task_id: str, worker: str, from_states: tuple[TaskState, ...],
                        now: float) -> sa.Update:
    """Build the update of a task; it is executed with the new state."""
    return (sa.update(_task)
            .where(_task.c.task_id == task_id, _task.c.worker == worker, match_states(from_states))
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
        .where(_task.c.task_id == task_id, _task.c.worker == worker, match_states(rows.IN_FLIGHT))
        .values(state=TaskState.QUEUED.value, updated_at=now, not_before=not_before,
                retry_count=retry_count, attempt=attempt,
                to_host=json.loads(row.destinations)[attempt], error=error,
                error_type=error_type, **_FRESH | {
                    'timings': attempt_phases.format_phase_starts(marks) if marks else None},
                **build_attempts_column(attempts))).rowcount == 1


def build_attempts_column(attempts: Sequence[model.Attempt] | None) -> dict[str, Any]:
    return {} if attempts is None else {'attempts': rows.attempts_text(attempts)}


def get_task(connection: sa.Connection, task_id: str) -> rows.TaskRow:
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
    return _parse_task_rows(connection.execute(*_in_states(tuple(states), freeze_scopes(scopes),
                                                           worker)))


@statements.build_once
def _in_states(states: tuple[TaskState, ...], scopes: tuple[str, ...] | None,
               worker: str | None) -> sa.Select[Any]:
    mine = sa.true() if worker is None else _task.c.worker == worker
    return _select_tasks(match_states(states), match_scopes(scopes), mine)
