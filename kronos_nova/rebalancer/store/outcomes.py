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


"""Outcomes of plans: predicted and measured imbalance, and recent failures."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import json
import types
from typing import Any

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.planning import breakers
from kronos_nova.rebalancer.planning import pack_prediction
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_outcome = tables.outcome
#: Failures that reflect the cloud; moves that pre-flight refuses never began.
FAILURES = ('MigrationFailed', 'MigrationTimeout', 'UnexpectedError')


def record_prediction(connection: sa.Connection, plan: model.Plan, plan_id: str,
                      now: float) -> None:
    """Record the prediction of a plan that is to lower the imbalance, or to pack hosts."""
    before, after = plan.combined_before, plan.combined_after
    phases = {m.phase for m in plan.moves}
    packs = model.Phase.PACK in phases
    if before is None or after is None or not (
            packs or (model.Phase.SPREAD in phases and after < before)):
        return
    was, foreseen = plan.packing_before, plan.packing_after
    promised: dict[str, float] = {}
    if packs:
        if was is None or foreseen is None:
            return
        promised = {
            'hosts_before': was.hosts_in_use, 'hosts_foreseen': foreseen.hosts_in_use,
            'overload_before': was.overload, 'overload_foreseen': foreseen.overload}
    connection.execute(sa.insert(_outcome).values(
        plan_id=plan_id, scope=plan.scope, planned_at=now, combined_before=before,
        combined_foreseen=after, **promised))


def record_outcome(connection: sa.Connection, scope: str, combined: float, load: float | None,
                   now: float,
                   measured: pack_prediction.ScopeMeasurement
                   | None = None) -> breakers.PlanOutcome | None:
    """Record the outcome of the scope's newest plan, once it has ended and scores show it.

    Plans that moved nothing, and plans that later ones overtook before their outcome was known,
    are deleted. Where the load of the whole scope has grown meanwhile, the plan's initial and
    predicted imbalance are scaled by the same factor; the plan's document keeps the original
    values. A plan of mode pack is judged by the packing in ``measured``, and deleted without
    that.
    """
    open_ = list(connection.execute(
        sa.select(_outcome)
        .where(_outcome.c.scope == scope, _outcome.c.realised_at.is_(None))
        .order_by(_outcome.c.planned_at.desc(), _outcome.c.plan_id)))
    outcome = None
    if open_ and _is_attributable(connection, open_[0]) and (
            open_[0].hosts_before is None or measured is not None):
        last = open_.pop(0)
        document = _read_plan_document(connection, last.plan_id)
        growth = _compute_growth(document, load)
        columns = {
            'combined_before': last.combined_before * growth,
            'combined_foreseen': last.combined_foreseen * growth, 'combined_realised': combined,
            'realised_at': now}
        if last.hosts_before is not None and measured is not None:
            packing = measured.select_packing(_list_touched_hosts(document), last.planned_at,
                                              growth)
            columns |= {'hosts_realised': packing.hosts_in_use,
                        'overload_realised': packing.overload,
                        'growth': growth}
        connection.execute(sa.update(_outcome).where(_outcome.c.plan_id == last.plan_id)
                           .values(**columns))
        outcome = of_row(types.SimpleNamespace(**{**last._mapping, **columns}))
    if open_:
        connection.execute(sa.delete(_outcome).where(
            _outcome.c.plan_id.in_([row.plan_id for row in open_])))
    return outcome


def _is_attributable(connection: sa.Connection, outcome: Any) -> bool:
    """Return whether the plan moved something and no later plan did.

    A drain or a repair after it has its own part in the scores.
    """
    task = tables.task
    completed = sa.and_(task.c.scope == outcome.scope,
                        task.c.state == TaskState.COMPLETED.value)
    # Selected by the plan alone: else SQLite would read all completed tasks of the scope.
    moved = TaskState.COMPLETED.value in connection.scalars(
        sa.select(task.c.state).where(task.c.plan_id == outcome.plan_id)).all()
    # Tasks made after the plan have also ended after it.
    overtaken = connection.execute(sa.select(task.c.task_id).where(
        completed, task.c.completed_at > outcome.planned_at,
        task.c.created_at > outcome.planned_at, task.c.plan_id != outcome.plan_id,
        ).limit(1)).first()
    return moved and overtaken is None


def _read_plan_document(connection: sa.Connection, plan_id: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(connection.scalar(
        sa.select(tables.plan.c.document).where(tables.plan.c.plan_id == plan_id)) or '{}')
    return document


def _list_touched_hosts(document: Mapping[str, Any]) -> set[str]:
    """Return the hosts that the plan moves instances from or to."""
    return {move[end] for move in document.get('moves', ()) for end in ('from_host', 'to_host')}


def _compute_growth(document: Mapping[str, Any], load: float | None) -> float:
    """Return the growth of the scope's load since it was planned; 1 without growth, or if unknown.
    """
    then = document.get('load')
    return max(1.0, load / then) if load and then else 1.0


def of_row(row: Any) -> breakers.PlanOutcome:
    """Return the outcome of a row that has been judged."""
    packed = None
    if row.hosts_before is not None:
        packed = breakers.PackOutcome(
            model.PackingDensity(row.hosts_before, row.overload_before),
            model.PackingDensity(row.hosts_foreseen, row.overload_foreseen),
            model.PackingDensity(row.hosts_realised, row.overload_realised), row.growth)
    return breakers.PlanOutcome(row.plan_id, row.combined_before, row.combined_foreseen,
                                row.combined_realised, packed)


def list_outcomes(connection: sa.Connection, scope: str, limit: int) -> list[breakers.PlanOutcome]:
    """Return outcomes since the breaker opened last, newest first."""
    return [of_row(row) for row in connection.execute(
        *_realised_since(scope, _tripped_at(connection, scope), limit))]


@statements.build_once
def _realised_since(scope: str, since: float, limit: int) -> sa.Select[Any]:
    return (sa.select(_outcome)
            .where(_outcome.c.scope == scope, _outcome.c.realised_at > since)
            .order_by(_outcome.c.realised_at.desc(), _outcome.c.planned_at.desc())
            .limit(limit))


def list_breaker_plans(connection: sa.Connection, limit: int, scopes: Iterable[str]) -> set[str]:
    """Return the plans by which breakers decide, now or later.

    These are each scope's newest ones since its breaker opened last, and the newest one without an
    outcome.
    """
    plan_ids: set[str] = set()
    for scope in scopes:
        plan_ids.update(outcome.plan_id for outcome in list_outcomes(connection, scope, limit))
        plan_ids.update(connection.scalars(
            sa.select(_outcome.c.plan_id)
            .where(_outcome.c.scope == scope, _outcome.c.realised_at.is_(None))
            .order_by(_outcome.c.planned_at.desc(), _outcome.c.plan_id).limit(1)))
    return plan_ids


def count_failures(connection: sa.Connection, scope: str, since: float) -> tuple[int, int]:
    """Count (failed, ended) migrations since ``since`` and the breaker's last opening."""
    since = max(since, _tripped_at(connection, scope))
    ended = connection.execute(*_select_ended_counts(scope, since)).all()
    failed = sum(row.number for row in ended if row.state == TaskState.FAILED.value
                 and row.error_type in FAILURES)
    return failed, failed + sum(
        row.number for row in ended if row.state == TaskState.COMPLETED.value)


@statements.build_once
def _select_ended_counts(scope: str, since: float) -> sa.Select[Any]:
    task = tables.task
    return (sa.select(task.c.state, task.c.error_type, sa.func.count().label('number'))
            .where(task.c.scope == scope, task.c.completed_at > since,
                   sa.or_(task.c.state == TaskState.COMPLETED.value,
                          task.c.state == TaskState.FAILED.value))
            .group_by(task.c.state, task.c.error_type))


def record_imbalance_since(connection: sa.Connection, scope: str, now: float) -> float:
    """Return since when the scope has needed balancing: from now on, if it is new."""
    table = tables.wish
    since = connection.scalar(sa.select(table.c.since).where(table.c.scope == scope))
    if since is None:
        connection.execute(sa.insert(table).values(scope=scope, since=now))
        return now
    return float(since)


def clear_imbalance_since(connection: sa.Connection, scope: str) -> None:
    """Record that the scope needs no balancing now."""
    connection.execute(sa.delete(tables.wish).where(tables.wish.c.scope == scope))


def record_breaker_opening(connection: sa.Connection, scope: str, now: float) -> None:
    """Record that the breaker opens: earlier results count no more against the scope."""
    table = tables.breaker
    if connection.execute(sa.update(table).where(table.c.scope == scope)
                          .values(tripped_at=now)).rowcount == 0:
        connection.execute(sa.insert(table).values(scope=scope, tripped_at=now))


def _tripped_at(connection: sa.Connection, scope: str) -> float:
    tripped_at = connection.scalar(*_select_tripped_at(scope))
    return 0.0 if tripped_at is None else float(tripped_at)


@statements.build_once
def _select_tripped_at(scope: str) -> sa.Select[Any]:
    return sa.select(tables.breaker.c.tripped_at).where(tables.breaker.c.scope == scope)


class OutcomeRepository(transactions.Repository):
    """Outcomes of plans, imbalance of scopes, and circuit breakers."""

    def record_outcome(self, lease: rows.ScopeLease, combined: float, now: float, *,
                       load: float | None = None,
                       measured: pack_prediction.ScopeMeasurement | None = None
                       ) -> breakers.PlanOutcome | None:
        """Record the outcome of the scope's newest plan; call this once scores show all its moves.

        :param combined: the scope's imbalance now.
        :param load: the weighted mean of the scope's scores now (Plan.load).
        :param measured: the scope's packing, in mode pack.
        :returns: the outcome of the newest plan, when it is known now.
        :raises LeaseLost: nothing was written.
        """
        waiting = self._runner.run_read(lambda c: c.execute(
            sa.select(tables.outcome.c.plan_id)
            .where(tables.outcome.c.scope == lease.scope,
                   tables.outcome.c.realised_at.is_(None))
            .limit(1)).first())
        if waiting is None:
            return None
        return self._runner.run_under_lease(lease, lambda c: record_outcome(
            c, lease.scope, combined, load, now, measured))

    def list_outcomes(self, scope: str, limit: int) -> list[breakers.PlanOutcome]:
        """Return outcomes of the scope's plans since its breaker opened last, newest first."""
        return self._runner.run_read(lambda c: list_outcomes(c, scope, limit))

    def find_measured_imbalances(self, plan_ids: Collection[str]) -> dict[str, float]:
        """Return the combined imbalance that scores showed after each of the plans.

        Plans without a known outcome, or that must not be judged, are left out.
        """
        outcome = tables.outcome
        return self._runner.run_read(
            lambda c: {row.plan_id: row.combined_realised for row in c.execute(
                sa.select(outcome).where(outcome.c.plan_id.in_(sorted(plan_ids)),
                                         outcome.c.combined_realised.is_not(None)))})

    def record_imbalance_since(self, lease: rows.ScopeLease, now: float) -> float:
        """Record that the scope needs balancing; return since when, without a break.

        :raises LeaseLost: nothing was written.
        """
        return self._runner.run_under_lease(
            lease, lambda c: record_imbalance_since(c, lease.scope, now))

    def list_imbalance_since(self) -> dict[str, float]:
        """Return since when each scope has needed balancing, without a break."""
        return self._runner.run_read(lambda c: {
            row.scope: float(row.since) for row in c.execute(sa.select(tables.wish))})

    def clear_imbalance_since(self, lease: rows.ScopeLease) -> None:
        """Record that the scope needs no balancing now.

        :raises LeaseLost: nothing was written.
        """
        self._runner.run_under_lease(lease, lambda c: clear_imbalance_since(c, lease.scope))

    def count_failures(self, scope: str, since: float) -> tuple[int, int]:
        """Count (failed, ended) migrations since ``since``, and since the breaker opened."""
        return self._runner.run_read(lambda c: count_failures(c, scope, since))

    def open_breaker(self, lease: rows.ScopeLease, now: float, *, seconds: float | None,
                     paused_by: str, reason: str) -> pauses.PauseRecord:
        """Open the scope's breaker: pause the scope, and count its earlier results no more.

        A pause of the scope that lasts longer, such as an operator's, stays.

        :raises LeaseLost: nothing was written.
        """
        pause = pauses.PauseRecord(lease.scope, now, None if seconds is None else now + seconds,
                                   paused_by, reason)

        def open_breaker(connection: sa.Connection) -> None:
            record_breaker_opening(connection, lease.scope, now)
            if not pauses.has_longer_pause(connection, pause):
                pauses.record_pause(connection, pause)
        self._runner.run_under_lease(lease, open_breaker)
        return pause
