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

"""Tasks in the database: each change is a compare-and-swap on the state and the worker."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import resolutions
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import task_claims
from kronos_nova.rebalancer.store import task_endings
from kronos_nova.rebalancer.store import tasks
from kronos_nova.rebalancer.store import transactions

#: No cap: more than any cloud migrates.
UNLIMITED = 2**31


class TaskRepository(transactions.Repository):
    """Tasks, from their claim to their end, and swaps, which join the tasks of two instances."""

    def count_newest_ended(self) -> tuple[int, float]:
        """Count the newest ended tasks; return the time of the newest end as well.

        A different answer later means that tasks have ended since.
        """
        return self._runner.run_read(tasks.count_newest_ended)

    def list_in_flight_moves(self, states: Sequence[TaskState] = rows.LIVE
                             ) -> tuple[model.InFlightMove, ...]:
        """Return every live task of the cloud as a move that may be under way.

        Moves for which open swaps keep capacity free are included.
        """
        def read_flights(connection: sa.Connection) -> tuple[model.InFlightMove, ...]:
            return swaps.add_held_hosts(connection, [
                model.InFlightMove(row.task.instance_uuid, row.task.from_host, row.task.to_host,
                                   'task', row.task.alternates, row.task.aggregate,
                                   rows.has_lost_slots(row.doubt, row.doubt_since))
                for row in tasks.in_states(connection, states, None, None)])
        return self._runner.run_read(read_flights)

    def list_plan_tasks(self, plan_id: str) -> list[rows.TaskRow]:
        return self._runner.run_read(
            lambda c: tasks.list_tasks(c, tables.task.c.plan_id == plan_id))

    def count_waiting_moves(self, host: str, phase: model.Phase) -> int:
        """Return how many allowed moves off a host have not begun, for one reason for moves.

        Moves of a plan that waits for approval are no allowed ones.
        """
        task = tables.task
        return int(self._runner.run_read(lambda c: c.scalar(
            sa.select(sa.func.count()).select_from(task).where(
                task.c.from_host == host, task.c.phase == phase.value,
                tasks.match_states((TaskState.QUEUED, TaskState.CLAIMED))))) or 0)

    def find_task(self, task_id: str) -> rows.TaskRow | None:
        return self._runner.run_read(lambda c: tasks.find_task(c, task_id))

    def list_tasks_of_plans(self, plan_ids: Collection[str]) -> list[rows.TaskRow]:
        """Return all tasks of the plans, live and ended."""
        return self._runner.run_read(
            lambda c: tasks.list_tasks(c, tables.task.c.plan_id.in_(sorted(plan_ids))))

    def list_tasks_from_host(self, host: str, since: float) -> list[rows.TaskRow]:
        """Return tasks off a host that are live or have ended since ``since``, oldest first."""
        task = tables.task
        return self._runner.run_read(lambda c: [rows.task_row(row) for row in c.execute(
            sa.select(task).where(
                task.c.from_host == host,
                sa.or_(task.c.completed_at.is_(None), task.c.completed_at >= since))
            .order_by(task.c.created_at, task.c.task_id)).mappings()])

    def find_drain_begin(self, host: str, since: float) -> float:
        """Return when the current drain of a host began at the earliest, ``since`` or later.

        It began after the newest command that started a drain of the host, and after the last
        move to the host: no drained host takes an instance.
        """
        task = tables.task

        def read(connection: sa.Connection) -> float:
            arrived = connection.scalar(sa.select(sa.func.max(task.c.completed_at)).where(
                task.c.to_host == host, task.c.state == TaskState.COMPLETED.value,
                task.c.completed_at > since))
            started = audits.find_newest(connection, audits.DRAIN_STARTED, f'host {host}')
            return max(since, arrived or since, started or since)
        return self._runner.run_read(read)

    def list_ended_tasks(self, limit: int) -> list[rows.TaskRow]:
        """Return the tasks that ended last, newest first."""
        task = tables.task
        return self._runner.run_read(lambda c: [rows.task_row(row) for row in c.execute(
            sa.select(task).where(task.c.completed_at.is_not(None))
            .order_by(task.c.completed_at.desc(), task.c.task_id).limit(limit)).mappings()])

    def list_instance_tasks(self, uuid: str, limit: int) -> list[rows.TaskRow]:
        """Return the newest tasks of an instance, newest first."""
        task = tables.task
        return self._runner.run_read(lambda c: [rows.task_row(row) for row in c.execute(
            sa.select(task).where(task.c.instance_uuid == uuid)
            .order_by(task.c.created_at.desc(), task.c.task_id).limit(limit)).mappings()])

    def validate_cast(self, task: model.Task) -> str | None:
        """Return why a received task does not match its row; None: it matches."""
        row = self.find_task(task.task_id)
        if row is None:
            return 'is not in the database'
        if row.task.state.is_terminal:
            return f'is of a task that has ended ({row.task.state})'
        ours, known = row.task, {row.task.to_host, *row.task.alternates}
        for field in ('plan_id', 'aggregate', 'instance_uuid', 'from_host'):
            if getattr(task, field) != getattr(ours, field):
                return f'is of a task with another {field}'
        return None if task.to_host in known else 'is of a task with another to_host'

    def list_tasks_in_states(self, states: Sequence[TaskState],
                             scopes: Collection[str] | None = None, *,
                             worker: str | None = None) -> list[rows.TaskRow]:
        """Return tasks in the given states and scopes (None: all), in the order of their turn."""
        return self._runner.run_read(lambda c: tasks.in_states(c, states, scopes, worker))

    def claim_task(self, worker: str, scopes: Collection[str] | None, now: float, *, per_scope: int,
                   total: int, claim_seconds: float, per_source: int = UNLIMITED,
                   per_destination: int = UNLIMITED) -> rows.TaskRow | None:
        """Claim the next task that may begin: it is then ours, in state ``claimed``.

        The task is queued, due, not expired and not paused; everything that it requires is
        completed; its instance has no pending hook; and a slot is free: at most ``per_scope``
        tasks of its scope, ``per_source`` and ``per_destination`` of its hosts and ``total`` of
        the cloud are claimed, submitting, submitted or unknown. A claim whose worker has been
        silent for ``claim_seconds`` passes to us.
        """
        if not self._runner.run_read(
                lambda c: task_claims.has_claimable(c, scopes, now, claim_seconds)):
            return None
        return self._runner.run_transaction(lambda c: task_claims.claim_task(
            c, worker, scopes, now, per_scope=per_scope, total=total,
            claim_seconds=claim_seconds, per_source=per_source,
            per_destination=per_destination))

    def renew_task_claim(self, worker: str, now: float) -> None:
        """Record that we are alive: no executor takes our tasks for ``claim_seconds``."""
        self._runner.run_transaction(lambda c: task_claims.renew_task_claim(c, worker, now))

    def release_task_claims(self, worker: str) -> None:
        """Give up our tasks and hooks; any executor may take them at once."""
        self._runner.run_transaction(lambda c: task_claims.release_task_claims(c, worker))

    def adopt_tasks(self, worker: str, scopes: Collection[str] | None, now: float,
                    claim_seconds: float) -> list[rows.TaskRow]:
        """Take over tasks of silent workers that may have reached Nova."""
        return self._runner.run_transaction(
            lambda c: task_claims.adopt_tasks(c, worker, scopes, now, claim_seconds))

    def update_state(self, task_id: str, worker: str, from_states: Iterable[TaskState],
                     to_state: TaskState, now: float, **fields: Any) -> bool:
        """Move our task to another live state; return False when it is not ours.

        :param fields: marker, reference, error, error_type, deadline, not_before, retry_count,
            submitted_at, doubt_since, doubt, timings, escalation.
        """
        return self._runner.run_transaction(lambda c: tasks.update_state(
            c, task_id, worker, from_states, to_state, now, **fields))

    def requeue_task(self, task_id: str, worker: str, now: float, *, not_before: float,
                     retry_count: int, attempt: int, error: str | None = None,
                     error_type: str | None = None,
                     attempts: Sequence[model.Attempt] | None = None,
                     marks: attempt_phases.Marks = ()) -> bool:
        """Move our task back to ``queued`` for destination number ``attempt``, unclaimed.

        :param attempts: all attempts that have ended so far; None: unchanged.
        :param marks: the phases of an attempt that continues; empty: another attempt begins.
        """
        return self._runner.run_transaction(lambda c: tasks.requeue_task(
            c, task_id, worker, now, not_before=not_before, retry_count=retry_count,
            attempt=attempt, error=error, error_type=error_type, attempts=attempts,
            marks=marks))

    def finish_task(self, task: model.Task, result: model.TaskResult, state: TaskState, now: float,
                    *, worker: str, instance_cooldown: float,
                    quarantine_seconds: float | None = None) -> list[model.Task] | None:
        """End our task, start its instance's cooldown, and quarantine the instance when asked.

        :param quarantine_seconds: -1 is for ever, None is not at all.
        :returns: the tasks cancelled because they required it; None: it was not ours to end, and
            nothing was written.
        """
        if not state.is_terminal:
            raise ValueError(f'{state} does not end a task')
        return self._runner.run_transaction(lambda c: task_endings.finish_task(
            c, task, result, state, now, worker=worker, instance_cooldown=instance_cooldown,
            quarantine_seconds=quarantine_seconds))

    def cancel_task(self, task_id: str, now: float, *, cancelled_by: str, reason: str,
                    instance_cooldown: float) -> list[model.Task] | None:
        """Cancel a task that Nova has not been asked for, on an operator's order.

        An executor that is checking the task notices this before it asks Nova.

        :returns: the task and those that required it; None: nothing was written, since Nova may
            have been asked, or the task has ended or is unknown.
        """
        def cancel_and_audit(connection: sa.Connection) -> list[model.Task] | None:
            ended = task_endings.cancel_task(
                connection, task_id, now, error_type=rows.CANCELLED_TYPE,
                error=f'Cancelled by {cancelled_by}: {reason}',
                instance_cooldown=instance_cooldown)
            if ended is not None:
                audits.add_audit(connection, audits.AuditEntry(
                    now, cancelled_by, plan_decisions.CANCELLED, f'task {task_id}', reason))
            return ended
        return self._runner.run_transaction(cancel_and_audit)

    def resolve_task(self, task_id: str, state: TaskState, now: float,
                     decision: plan_decisions.OperatorDecision,
                     instance_cooldown: float) -> list[model.Task] | None:
        """End a submitted or unknown task as ``state``, on the word of an operator.

        :returns: the tasks cancelled because they required it; None: the task is in another state
            or does not exist, and nothing was written.
        """
        return self._runner.run_transaction(lambda c: resolutions.resolve_task(
            c, task_id, state, now, decision, instance_cooldown))

    def expire_tasks(self, scopes: Collection[str] | None, now: float,
                     claim_seconds: float) -> list[model.Task]:
        """Cancel tasks that did not begin in time, and the tasks that require them."""
        return self._runner.run_transaction(
            lambda c: task_endings.expire_tasks(c, scopes, now, claim_seconds))

    def list_swaps(self, plan_id: str) -> list[swaps.StoredSwap]:
        """Return the swaps that a plan began, with their progress."""
        return self._runner.run_read(
            lambda c: swaps.list_swaps(c, tables.swap.c.plan_id == plan_id))

    def is_way_back(self, row: rows.TaskRow) -> bool:
        """Return True for a task that takes an instance home, since its swap or pair failed."""
        return row.swap_id is not None and self._runner.run_read(
            lambda c: swaps.is_undo(c, row.swap_id, row.task.plan_id))

    def settle_swaps(self, now: float) -> list[swaps.StoredSwap]:
        """Do the next step of swaps that the end of their last task did not settle; most do.

        :returns: swaps whose undo has begun or ended and is not logged yet: the caller must log
            them.
        """
        return self._runner.run_transaction(lambda c: task_endings.settle_swaps(c, now))
