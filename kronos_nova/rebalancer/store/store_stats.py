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

"""Numbers of the database's live rows, for metrics; ended rows are never read."""

from collections import Counter
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova.rebalancer.planning import breakers
from kronos_nova.rebalancer.store import campaign_stats
from kronos_nova.rebalancer.store import executor_heartbeats
from kronos_nova.rebalancer.store import leases
from kronos_nova.rebalancer.store import outcomes
from kronos_nova.rebalancer.store import pauses as pausing
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import requests
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeStats:
    """A scope that some engine leases, or leased lately.

    ``leased``: an engine leases it now. ``epoch`` rises with each new lease. ``owner`` is the
    current or last holder; ``planned_at`` is when one last stored its decision, and ``cycle`` that
    decision. ``outcome`` is that of the newest plan whose outcome is known.
    """

    leased: bool
    epoch: int
    owner: str
    planned_at: float | None
    outcome: breakers.PlanOutcome | None = None
    realised_at: float | None = None
    draining: int = 0
    cycle: rows.CycleRecord = rows.CycleRecord()


@dataclasses.dataclass(frozen=True, slots=True)
class RowCensus:
    """Numbers of live rows.

    ``tasks``: live ones by scope, phase and state; ``ages``: seconds since the oldest was planned,
    by scope and state; ``overdue``: how many are past their deadline, by scope. ``quarantined``:
    by kind. ``executors``: those that run, and the scopes that they serve, None for all.
    ``requests``: open ones from outside, by kind, and the seconds since the oldest of a kind came.
    ``campaigns``: those that go on, by scope.
    """

    scopes: Mapping[str, ScopeStats]
    tasks: Mapping[tuple[str, str, str], int]
    ages: Mapping[tuple[str, str], float]
    overdue: Mapping[str, int]
    pauses: tuple[pausing.PauseRecord, ...]
    quarantined: Mapping[str, int]
    executors: Mapping[str, frozenset[str] | None]
    requests: Mapping[str, tuple[int, float]] = dataclasses.field(default_factory=dict)
    campaigns: Mapping[str, campaign_stats.CampaignNumbers] = dataclasses.field(
        default_factory=dict)


def read_census(connection: sa.Connection, clock: ColumnElement[float]) -> RowCensus:
    """Count the live rows, by the database's clock."""
    now = float(connection.execute(sa.select(clock)).scalar_one())
    tasks, ages, overdue = _count_tasks(connection, now)
    return RowCensus(
        scopes=_read_scopes(connection, now, {scope for scope, _ in ages}),
        tasks=tasks, ages=ages, overdue=overdue,
        pauses=tuple(pausing.list_pauses(connection, now)),
        quarantined=Counter(row.kind for row in quarantine.list_quarantines(connection, now)),
        executors=executor_heartbeats.list_running_executors(connection, now),
        requests={kind: (number, max(0.0, now - since))
                  for kind, number, since in requests.count_open_requests(connection)},
        campaigns=campaign_stats.count_campaign_hosts(connection))


def _read_scopes(connection: sa.Connection, now: float, busy: Collection[str]) -> dict[str,
                                                                                       ScopeStats]:
    """Return the scopes that engines plan or planned lately, and the busy ones.

    :param busy: scopes that have tasks.
    """
    lease, drain, outcome = tables.lease, tables.drain, tables.outcome
    draining = {row.scope: row.number for row in connection.execute(
        sa.select(drain.c.scope, sa.func.count().label('number')).group_by(drain.c.scope))}
    # Two steps: in one, SQLite would begin with all outcomes.
    newest = sa.select(outcome.c.plan_id).where(
        outcome.c.scope == lease.c.scope, outcome.c.realised_at.is_not(None),
        # Plans of mode pack are not to lower the imbalance.
        outcome.c.hosts_before.is_(None)).order_by(
            outcome.c.realised_at.desc(), outcome.c.planned_at.desc()).limit(1)
    judged = connection.scalars(sa.select(newest.correlate(lease).scalar_subquery())
                                .select_from(lease)).all()
    newest_outcomes = {row.scope: row for row in connection.execute(
        sa.select(outcome).where(outcome.c.plan_id.in_(judged)))}
    scope_stats = {}
    for row in connection.execute(sa.select(lease).where(
            sa.or_(leases.of_late(sa.literal(now)), lease.c.scope.in_(sorted(busy))))):
        last = newest_outcomes.get(row.scope)
        scope_stats[row.scope] = ScopeStats(
            leased=row.until > now, epoch=row.epoch, owner=row.owner,
            planned_at=row.planned_at, draining=draining.get(row.scope, 0),
            cycle=rows.parse_cycle(row.cycle),
            realised_at=None if last is None else last.realised_at,
            outcome=None if last is None else outcomes.of_row(last))
    return scope_stats


def _count_tasks(connection: sa.Connection, now: float) -> tuple[
        dict[tuple[str, str, str], int], dict[tuple[str, str], float], dict[str, int]]:
    task = tables.task
    limit = sa.func.coalesce(task.c.deadline, task.c.expires_at)
    tasks: dict[tuple[str, str, str], int] = {}
    ages: dict[tuple[str, str], float] = {}
    overdue: Counter[str] = Counter()
    for row in connection.execute(
            sa.select(task.c.scope, task.c.phase, task.c.state,
                      sa.func.count().label('number'),
                      sa.func.min(task.c.created_at).label('since'),
                      sa.func.sum(sa.case((limit <= now, 1), else_=0)).label('late'))
            .where(rows.is_live())
            .group_by(task.c.scope, task.c.phase, task.c.state)):
        tasks[row.scope, row.phase, row.state] = int(row.number)
        age = max(0.0, now - row.since)
        ages[row.scope, row.state] = max(age, ages.get((row.scope, row.state), 0.0))
        overdue[row.scope] += int(row.late)
    return tasks, ages, overdue


class StatisticsRepository(transactions.Repository):
    """Numbers of live rows, for metrics."""

    def read_census(self) -> RowCensus:
        """Return numbers of live rows, for metrics."""
        return self._runner.run_read(lambda c: read_census(c, self._runner.build_now_clause()))
