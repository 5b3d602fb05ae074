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


"""Pending hooks: hooks that have begun for an attempt and have not ended yet."""

from collections.abc import Collection
import dataclasses
import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_owed, _task = tables.owed_hook, tables.task


@dataclasses.dataclass(frozen=True, slots=True)
class PendingHook:
    """A pending hook.

    ``task`` has the fields that are known without its row, which may be gone, and the destination
    of this attempt. ``number`` counts the hooks of an attempt from 0.
    """

    owed_id: str
    task: model.Task
    number: int
    hook: model.TaskHook
    marker: str
    begun_at: float
    tries: int = 0
    not_before: float = 0.0
    error: str | None = None


def record_hook(connection: sa.Connection, owed: PendingHook, worker: str, now: float,
                marks: attempt_phases.Marks) -> bool:
    """Record a hook that begins.

    :returns: False: the worker has lost the task's claim, and nothing was written.
    """
    claim_renewal = connection.execute(
        sa.update(_task)
        .where(_task.c.task_id == owed.task.task_id, _task.c.worker == worker,
               _task.c.state == TaskState.CLAIMED.value)
        .values(heartbeat_at=now, timings=attempt_phases.format_phase_starts(marks)))
    if claim_renewal.rowcount != 1:
        return False
    task = owed.task
    connection.execute(sa.insert(_owed).values(
        owed_id=owed.owed_id, task_id=task.task_id, plan_id=task.plan_id, number=owed.number,
        scope=task.aggregate, instance_uuid=task.instance_uuid, from_host=task.from_host,
        to_host=task.to_host, phase=task.phase.value, method=task.method.value,
        hook=owed.hook.name, parameters=json.dumps(dict(owed.hook.parameters)),
        marker=owed.marker, begun_at=owed.begun_at, worker=worker, heartbeat_at=now,
        tries=owed.tries, not_before=owed.not_before, error=owed.error))
    return True


def _match_due_hooks() -> ColumnElement[bool]:
    """Match hooks whose attempt has ended: the task is not in flight any more, or gone."""
    return ~sa.exists().where(
        _task.c.task_id == _owed.c.task_id,
        _task.c.state.in_([sa.literal(state.value) for state in rows.IN_FLIGHT]))


def match_takable_hooks(worker: str, scopes: Collection[str] | None,
                        silent_since: float) -> ColumnElement[bool]:
    """Match due hooks of the worker, and those in its scopes that no live worker holds."""
    served = sa.true() if scopes is None else _owed.c.scope.in_(sorted(scopes))
    return sa.and_(
        _match_due_hooks(), sa.or_(_owed.c.worker == worker, sa.and_(served, sa.or_(
            _owed.c.worker.is_(None), _owed.c.heartbeat_at.is_(None),
            _owed.c.heartbeat_at <= silent_since))))


def take_due_hooks(connection: sa.Connection, worker: str, scopes: Collection[str] | None,
                   now: float,
                   claim_seconds: float) -> list[PendingHook]:
    """Take the due hooks that are ours or that no live worker holds, the last begun first."""
    still = match_takable_hooks(worker, scopes, now - claim_seconds)
    taken_hooks = []
    for row in connection.execute(
            sa.select(_owed).where(still)
            .order_by(_owed.c.task_id, _owed.c.number.desc(), _owed.c.owed_id)).mappings().all():
        hook_claim = connection.execute(
            sa.update(_owed).where(_owed.c.owed_id == row['owed_id'], still)
            .values(worker=worker, heartbeat_at=now))
        if hook_claim.rowcount == 1:
            taken_hooks.append(_read(row))
    return taken_hooks


def release_hooks(connection: sa.Connection, worker: str) -> None:
    connection.execute(
        sa.update(_owed).where(_owed.c.worker == worker).values(heartbeat_at=None))


def list_task_hooks(connection: sa.Connection, task_id: str) -> list[PendingHook]:
    return [_read(row) for row in connection.execute(
        sa.select(_owed).where(_owed.c.task_id == task_id)
        .order_by(_owed.c.begun_at, _owed.c.number)).mappings()]


def is_owed(connection: sa.Connection, instance_uuid: str) -> bool:
    return connection.execute(sa.select(_owed.c.owed_id).where(
        _owed.c.instance_uuid == instance_uuid).limit(1)).first() is not None


def put_off(connection: sa.Connection, owed: PendingHook, worker: str) -> bool:
    return connection.execute(
        sa.update(_owed).where(_owed.c.owed_id == owed.owed_id, _owed.c.worker == worker)
        .values(tries=owed.tries, not_before=owed.not_before, error=owed.error)).rowcount == 1


def delete_hook(connection: sa.Connection, owed_id: str, worker: str) -> bool:
    return connection.execute(sa.delete(_owed).where(
        _owed.c.owed_id == owed_id, _owed.c.worker == worker)).rowcount == 1


def match_tasks_without_hook() -> ColumnElement[bool]:
    """Match tasks whose instance has no pending hook."""
    return ~sa.exists().where(_owed.c.instance_uuid == _task.c.instance_uuid)


def _read(row: Any) -> PendingHook:
    task = model.Task(
        task_id=row['task_id'], plan_id=row['plan_id'], aggregate=row['scope'],
        instance_uuid=row['instance_uuid'], from_host=row['from_host'], to_host=row['to_host'],
        phase=model.Phase(row['phase']), method=model.MoveMethod(row['method']))
    return PendingHook(
        owed_id=row['owed_id'], task=task, number=row['number'],
        hook=model.TaskHook(row['hook'], json.loads(row['parameters'])), marker=row['marker'],
        begun_at=row['begun_at'], tries=row['tries'], not_before=row['not_before'],
        error=row['error'])


class HookRepository(transactions.Repository):
    """Pending hooks of tasks."""

    def record_hook(self, what: PendingHook, worker: str, now: float,
                    marks: attempt_phases.Marks) -> bool:
        """Record that a hook is about to be called for our claimed task, and the attempt's phases.

        :returns: False: the task is not ours any more, and nothing was written.
        """
        return self._runner.run_transaction(lambda c: record_hook(c, what, worker, now, marks))

    def take_due_hooks(self, worker: str, scopes: Collection[str] | None, now: float,
                       claim_seconds: float) -> list[PendingHook]:
        """Take pending hooks of attempts that have ended: our own, and those of silent workers.

        A worker is silent after ``claim_seconds``. The hooks are ours from now on, for as long.
        """
        return self._runner.run_transaction(lambda c: take_due_hooks(c, worker, scopes, now,
                                                                     claim_seconds))

    def postpone_hook(self, what: PendingHook, worker: str) -> bool:
        """Store a hook's ``tries``, ``not_before`` and ``error``; False: it is not ours."""
        return self._runner.run_transaction(lambda c: put_off(c, what, worker))

    def delete_hook(self, owed_id: str, worker: str) -> bool:
        """Delete a pending hook that has ended; return False when it was not ours."""
        return self._runner.run_transaction(lambda c: delete_hook(c, owed_id, worker))

    def has_pending_hook(self, instance_uuid: str) -> bool:
        """Return whether a hook has begun for the instance and has not ended."""
        return self._runner.run_read(lambda c: is_owed(c, instance_uuid))

    def list_task_hooks(self, task_id: str) -> list[PendingHook]:
        """Return the pending hooks of a task, in the order in which they began."""
        return self._runner.run_read(lambda c: list_task_hooks(c, task_id))
