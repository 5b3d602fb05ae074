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

"""Claims of tasks: which task an executor takes next, keeps, adopts and gives back."""

import collections
from collections.abc import Collection
import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import tasks

_task = tables.task


def has_claimable(connection: sa.Connection, scopes: Collection[str] | None, now: float,
                  claim_seconds: float) -> bool:
    """Return whether a task may be claimable; the answer may be a wrong yes.

    The check is cheap: it spares passes that claim nothing the write lock.
    """
    statement, parameters = _select_claimable(tasks.freeze_scopes(scopes), now, now - claim_seconds)
    return connection.execute(statement, parameters).first() is not None


@statements.build_once
def _select_claimable(scopes: tuple[str, ...] | None, now: float,
                      silent_since: float) -> sa.Select[Any]:
    return sa.select(_task.c.task_id).where(match_claimable_tasks(scopes, now,
                                                                  silent_since)).limit(1)


def match_claimable_tasks(scopes: tuple[str, ...] | None, now: float,
                          silent_since: float) -> ColumnElement[bool]:
    """Match tasks that may be claimable; the claim itself checks whose turn it is."""
    due = sa.and_(tasks.match_states([TaskState.QUEUED]), _task.c.not_before <= now)
    lost = sa.and_(tasks.match_states([TaskState.CLAIMED]), tasks.match_silent_worker(silent_since))
    return sa.and_(sa.or_(due, lost), tasks.match_scopes(scopes))


def claim_task(connection: sa.Connection, worker: str, scopes: Collection[str] | None, now: float,
               *, per_scope: int, total: int, claim_seconds: float, per_source: int,
               per_destination: int) -> rows.TaskRow | None:
    # First of all, so that the rows read below stay valid until the commit.
    connection.execute(*build_gate_update())
    paused_scopes = {pause.scope for pause in pauses.list_pauses(connection, now)}
    if None in paused_scopes:
        return None
    served = tasks.freeze_scopes(scopes), tuple(sorted(name for name in paused_scopes
                                                       if name is not None))
    lost = connection.execute(*_select_lost_claim(*served, now, now - claim_seconds)).first()
    chosen = lost.task_id if lost else _choose_queued_task(
        connection, served, now, per_scope, total, per_source, per_destination)
    if chosen is None:
        return None
    claim = connection.execute(
        sa.update(_task)
        .where(_task.c.task_id == chosen, sa.or_(
            tasks.match_states([TaskState.QUEUED]),
            sa.and_(tasks.match_states([TaskState.CLAIMED]),
                    tasks.match_silent_worker(now - claim_seconds))))
        .values(state=TaskState.CLAIMED.value, worker=worker, heartbeat_at=now, updated_at=now,
                **_claimed_now(connection, chosen, now)))
    return tasks.get_task(connection, chosen) if claim.rowcount == 1 else None


@statements.build_once
def build_gate_update() -> sa.Update:
    """Build the update with which a transaction waits for others that have it as well.

    These begin or approve tasks, start campaigns, or ask Nova to change hosts of campaigns.
    """
    return sa.update(tables.gate).where(tables.gate.c.name == 'claim').values(
        passes=tables.gate.c.passes + 1)


@statements.build_once
def _select_lost_claim(scopes: tuple[str, ...] | None, paused_scopes: tuple[str, ...], now: float,
                       silent_since: float) -> sa.Select[Any]:
    return (sa.select(_task.c.task_id)
            .where(tasks.match_states([TaskState.CLAIMED]), tasks.match_silent_worker(silent_since),
                   tasks.match_scopes(scopes),
                   _match_unpaused_scopes(paused_scopes), _match_unexpired(now))
            .order_by(_task.c.not_before, _task.c.priority, _task.c.task_id).limit(1))


def _claimed_now(connection: sa.Connection, task_id: str, now: float) -> dict[str, str]:
    """Return the columns of a claim: the queue phase ends, and pre-flight begins.

    The queue phase began when the task could be claimed; waiting time before an earlier claim that
    was given back counts.
    """
    row = tasks.get_task(connection, task_id)
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
        tasks.match_states(rows.IN_FLIGHT))


@statements.build_once
def _select_queued(scopes: tuple[str, ...] | None, paused_scopes: tuple[str, ...],
                   now: float) -> sa.Select[Any]:
    return (sa.select(_task.c.task_id, _task.c.plan_id, _task.c.scope, _task.c.requires,
                      _task.c.from_host, _task.c.to_host)
            .where(tasks.match_states([TaskState.QUEUED]), _task.c.not_before <= now,
                   tasks.match_scopes(scopes),
                   _match_unpaused_scopes(paused_scopes), _match_unexpired(now),
                   pending_hooks.match_tasks_without_hook())
            .order_by(_task.c.not_before, _task.c.priority, _task.c.task_id))


def match_abandoned_tasks(scopes: Collection[str] | None,
                          silent_since: float) -> ColumnElement[bool]:
    """Match tasks that may have reached Nova and whose worker is silent."""
    return sa.and_(tasks.match_states(rows.MAYBE_IN_NOVA), tasks.match_silent_worker(silent_since),
                   tasks.match_scopes(scopes))


def adopt_tasks(connection: sa.Connection, worker: str, scopes: Collection[str] | None, now: float,
                claim_seconds: float) -> list[rows.TaskRow]:
    still = match_abandoned_tasks(scopes, now - claim_seconds)
    adopted = []
    for row in connection.execute(sa.select(_task.c.task_id).where(still)).all():
        adoption = connection.execute(
            sa.update(_task).where(_task.c.task_id == row.task_id, still)
            .values(worker=worker, heartbeat_at=now))
        if adoption.rowcount == 1:
            adopted.append(tasks.get_task(connection, row.task_id))
    return adopted


def renew_task_claim(connection: sa.Connection, worker: str, now: float) -> None:
    connection.execute(*_build_heartbeat_update(worker, now))


@statements.build_once
def _build_heartbeat_update(worker: str, now: float) -> sa.Update:
    return sa.update(_task).where(held_by(worker)).values(heartbeat_at=now)


def release_task_claims(connection: sa.Connection, worker: str) -> None:
    connection.execute(sa.update(_task).where(held_by(worker)).values(heartbeat_at=None))
    pending_hooks.release_hooks(connection, worker)


def held_by(worker: str) -> ColumnElement[bool]:
    return sa.and_(_task.c.worker == worker, tasks.match_states(rows.IN_FLIGHT))


def _match_unpaused_scopes(paused_scopes: tuple[str, ...]) -> ColumnElement[bool]:
    return _task.c.scope.not_in(paused_scopes) if paused_scopes else sa.true()


def _match_unexpired(now: float) -> ColumnElement[bool]:
    return sa.or_(_task.c.expires_at.is_(None), _task.c.expires_at > now)
