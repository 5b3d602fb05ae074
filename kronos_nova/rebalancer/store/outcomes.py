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


"""What came of plans: foreseen and realised imbalance, failures of late."""

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer import breakers
from kronos_nova.rebalancer.store import tables

_outcome = tables.outcome
#: Failures that say something of the cloud; what pre-flight refuses never began.
FAILURES = ('MigrationFailed', 'MigrationTimeout', 'UnexpectedError')


def foresee(connection: sa.Connection, plan: model.Plan, plan_id: str, now: float) -> None:
    """Remember what a plan that is to lower the imbalance promises."""
    before, after = plan.combined_before, plan.combined_after
    if (before is None or after is None or after >= before
            or not any(m.phase is model.Phase.SPREAD for m in plan.moves)):
        return
    connection.execute(sa.insert(_outcome).values(
        plan_id=plan_id, scope=plan.scope, planned_at=now, combined_before=before,
        combined_foreseen=after))


def realise(connection: sa.Connection, scope: str, combined: float, now: float) -> None:
    """The scope's newest plan has ended and scores show it: this came of it.

    Plans that moved nothing, and such as were overtaken before anybody could
    see what came of them, are forgotten.
    """
    open_ = list(connection.execute(
        sa.select(_outcome.c.plan_id)
        .where(_outcome.c.scope == scope, _outcome.c.realised_at.is_(None))
        .order_by(_outcome.c.planned_at.desc(), _outcome.c.plan_id)).scalars())
    if not open_:
        return
    task = tables.task
    moved = connection.execute(
        sa.select(task.c.task_id).where(task.c.plan_id == open_[0],
                                        task.c.state == TaskState.COMPLETED.value).limit(1)).first()
    if moved is not None:
        connection.execute(sa.update(_outcome).where(_outcome.c.plan_id == open_[0]).values(
            combined_realised=combined, realised_at=now))
        open_ = open_[1:]
    if open_:
        connection.execute(sa.delete(_outcome).where(_outcome.c.plan_id.in_(open_)))


def realised(connection: sa.Connection, scope: str, limit: int) -> list[breakers.Outcome]:
    """Newest first, since the breaker tripped last."""
    return [breakers.Outcome(row.plan_id, row.combined_before, row.combined_foreseen,
                             row.combined_realised)
            for row in connection.execute(
                sa.select(_outcome)
                .where(_outcome.c.scope == scope,
                       _outcome.c.realised_at > _tripped_at(connection, scope))
                .order_by(_outcome.c.realised_at.desc(), _outcome.c.planned_at.desc())
                .limit(limit))]


def failures(connection: sa.Connection, scope: str, since: float) -> tuple[int, int]:
    """(failed, ended) migrations of the scope since then and the last trip."""
    task = tables.task
    since = max(since, _tripped_at(connection, scope))
    ended = connection.execute(
        sa.select(task.c.state, task.c.error_type, sa.func.count().label('number'))
        .where(task.c.scope == scope, task.c.completed_at > since,
               task.c.state.in_([TaskState.COMPLETED.value, TaskState.FAILED.value]))
        .group_by(task.c.state, task.c.error_type)).all()
    failed = sum(row.number for row in ended if row.state == TaskState.FAILED.value
                 and row.error_type in FAILURES)
    return failed, failed + sum(
        row.number for row in ended if row.state == TaskState.COMPLETED.value)


def wish(connection: sa.Connection, scope: str, now: float) -> float:
    """Since when the scope has wanted to be balanced: from now on, if it is new."""
    table = tables.wish
    since = connection.scalar(sa.select(table.c.since).where(table.c.scope == scope))
    if since is None:
        connection.execute(sa.insert(table).values(scope=scope, since=now))
        return now
    return float(since)


def content(connection: sa.Connection, scope: str) -> None:
    """The scope wants nothing any more."""
    connection.execute(sa.delete(tables.wish).where(tables.wish.c.scope == scope))


def trip(connection: sa.Connection, scope: str, now: float) -> None:
    """What came before is not held against the scope again."""
    table = tables.breaker
    if connection.execute(sa.update(table).where(table.c.scope == scope)
                          .values(tripped_at=now)).rowcount == 0:
        connection.execute(sa.insert(table).values(scope=scope, tripped_at=now))


def _tripped_at(connection: sa.Connection, scope: str) -> float:
    table = tables.breaker
    found = connection.scalar(sa.select(table.c.tripped_at).where(table.c.scope == scope))
    return 0.0 if found is None else float(found)
