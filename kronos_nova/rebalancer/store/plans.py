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


"""Plans and their effects: cooldowns, drains, history."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import re
from typing import Any, NamedTuple

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import metric_lag
from kronos_nova.rebalancer.store import campaign_stats
from kronos_nova.rebalancer.store import drain_orders
from kronos_nova.rebalancer.store import late_drains
from kronos_nova.rebalancer.store import migration_samples
from kronos_nova.rebalancer.store import outcomes
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables

INSTANCE = 'instance'
SCOPE = 'scope'
HOST = 'host'
DISKS = 'disks'
CELLS = 'cells'
SERVICE = 'service'
#: States of swaps that are not over.
UNSETTLED = ('going', 'undoing')
#: Tables whose rows end at a time.
LAPSING = (tables.cooldown, tables.quarantine, tables.pause)
_SECONDS = re.compile(r'\b\d+ s\b')


@dataclasses.dataclass(frozen=True, slots=True)
class LiveWork:
    """The live tasks and the drains at a time: task IDs, (scope, host) pairs."""

    tasks: frozenset[str]
    drains: frozenset[tuple[str, str]]


def read_activity(connection: sa.Connection) -> LiveWork:
    task, drain = tables.task, tables.drain
    return LiveWork(
        frozenset(connection.scalars(
            sa.select(task.c.task_id).where(rows.is_live()))),
        frozenset((row.scope, row.host) for row in connection.execute(
            sa.select(drain.c.scope, drain.c.host))))


def refuse_overtaken(connection: sa.Connection, known: LiveWork) -> None:
    """Raise StoreError when tasks or drains have begun that are not in ``known``.

    :raises StoreError: such tasks or drains have begun.
    """
    now = read_activity(connection)
    if now.tasks - known.tasks or now.drains - known.drains:
        raise exception.PlanConflict(
            problem='has plans that were made while this one was judged',
            remedy='Nothing was written; ask again.')


def save_plan(connection: sa.Connection, lease: rows.ScopeLease | None, plan: model.Plan,
              tasks: Sequence[model.Task], *, plan_id: str, now: float, dry_run: bool,
              cooldown: float, instance_cooldown: float) -> frozenset[str]:
    """Write all of a plan; the caller has fenced the lease (dry run: any).

    :returns: the hosts of the scope that are drained from now on.
    """
    if lease is not None:
        _refuse_unsound(lease, plan, tasks, plan_id)
    if plan.moves or tasks or _is_news(connection, plan, dry_run):
        _insert_plan(connection, lease, plan, plan_id, now, dry_run)
    if dry_run:
        return frozenset()
    if tasks:
        _insert_tasks(connection, tasks, now, instance_cooldown)
        outcomes.record_prediction(connection, plan, plan_id, now)
        if any(task.phase in metric_lag.FOLLOWING for task in tasks):
            # Drains and repairs come when they must: under rolling maintenance
            # they would hold everything else for ever.
            extend_cooldown(connection, SCOPE, plan.scope, now + cooldown)
    drained = plan.draining
    if _has_waiting_plan(connection, plan.scope, now):
        # No drain begins before an operator has approved the waiting plan.
        drained &= list_draining_hosts(connection, plan.scope)
    set_draining(connection, plan.scope, drained, now)
    connection.execute(sa.update(tables.lease).where(tables.lease.c.scope == plan.scope)
                       .values(planned_at=now, cycle=rows.cycle_document(rows.CycleRecord(
                           now, len(plan.moves), plan.reason, plan.policies))))
    return drained


def record_failed_cycle(connection: sa.Connection, scope: str, error: str, now: float) -> None:
    """Record that a cycle of the scope made no plan; keep the result of the last one that did."""
    lease = tables.lease
    known = rows.parse_cycle(connection.scalar(
        sa.select(lease.c.cycle).where(lease.c.scope == scope)))
    connection.execute(sa.update(lease).where(lease.c.scope == scope).values(
        cycle=rows.cycle_document(dataclasses.replace(known, error=error, failed_at=now))))


def _has_waiting_plan(connection: sa.Connection, scope: str, now: float) -> bool:
    """Return whether a plan of the scope waits for approval."""
    return connection.execute(*_select_waiting_task(scope, now)).first() is not None


@statements.build_once
def _select_waiting_task(scope: str, now: float) -> sa.Select[Any]:
    task = tables.task
    return sa.select(task.c.task_id).where(
        task.c.scope == scope, task.c.state == model.TaskState.PENDING.value,
        task.c.expires_at > now).limit(1)


def save_wanted(connection: sa.Connection, lease: rows.ScopeLease, plan: model.Plan,
                tasks: Sequence[model.Task], *, plan_id: str, now: float,
                instance_cooldown: float) -> None:
    """Write a requested plan; it changes nothing else of the scope."""
    _refuse_unsound(lease, plan, tasks, plan_id)
    _insert_plan(connection, lease, plan, plan_id, now, dry_run=False)
    _insert_tasks(connection, tasks, now, instance_cooldown)


def save_follow_up_plan(connection: sa.Connection, plan: model.Plan, task: model.Task,
                        now: float) -> None:
    """Write a plan that follows from how another one went.

    It sets no cooldown: the task that ends has cooled its instance, and this one will.
    """
    _insert_plan(connection, None, plan, task.plan_id, now, dry_run=False)
    connection.execute(sa.insert(tables.task), [rows.task_columns(task, now)])


def _insert_plan(connection: sa.Connection, lease: rows.ScopeLease | None, plan: model.Plan,
                 plan_id: str,
                 now: float, dry_run: bool) -> None:
    connection.execute(sa.insert(tables.plan).values(
        plan_id=plan_id, scope=plan.scope, epoch=0 if lease is None else lease.epoch,
        created_at=now, dry_run=dry_run, moves=len(plan.moves), reason=plan.reason,
        document=rows.plan_document(plan)))


def _insert_tasks(connection: sa.Connection, tasks: Sequence[model.Task], now: float,
                  instance_cooldown: float) -> None:
    """Write the tasks and their instances' cooldowns."""
    _refuse_busy(connection, tasks)
    connection.execute(sa.insert(tables.task),
                       [rows.task_columns(task, now) for task in tasks])
    for task in sorted(tasks, key=lambda task: task.instance_uuid):
        extend_cooldown(connection, INSTANCE, task.instance_uuid, now + instance_cooldown)


def _refuse_unsound(lease: rows.ScopeLease, plan: model.Plan, tasks: Sequence[model.Task],
                    plan_id: str) -> None:
    movers = {task.instance_uuid for task in tasks}
    for task in tasks:
        problem = None
        if (task.plan_id, task.aggregate) != (plan_id, lease.scope) or plan.scope != lease.scope:
            problem = 'belongs to another plan or scope'
        elif task.state not in (model.TaskState.PENDING, model.TaskState.QUEUED):
            problem = f'begins in state {task.state}'
        elif not movers.issuperset(task.requires):
            problem = 'requires a move that is not in the plan'
        if problem:
            raise exception.StoreError(
                problem=f'was handed a task for instance {task.instance_uuid} that {problem}',
                remedy='Nothing was written. This is a fault in the planner: report it.')


def _is_news(connection: sa.Connection, plan: model.Plan, dry_run: bool) -> bool:
    """Return whether an empty plan has a new reason and must be kept.

    Seconds that run down are not new. Dry runs are compared with dry runs, live engines with live
    engines.
    """
    last = connection.execute(
        sa.select(tables.plan.c.reason)
        .where(tables.plan.c.scope == plan.scope, tables.plan.c.dry_run == dry_run)
        .order_by(tables.plan.c.created_at.desc()).limit(1)).first()
    return last is None or (_SECONDS.sub('', last.reason or '')
                            != _SECONDS.sub('', plan.reason or ''))


def _refuse_busy(connection: sa.Connection, tasks: Sequence[model.Task]) -> None:
    """Raise StoreError, which names the instance, when an instance has a live task.

    Between racing writers the UNIQUE constraint decides.
    """
    busy = connection.execute(
        sa.select(tables.task.c.active_instance, tables.task.c.task_id)
        .where(tables.task.c.active_instance.in_([task.instance_uuid for task in tasks]))
        .order_by(tables.task.c.active_instance)).first()
    if busy is not None:
        raise exception.PlanConflict(
            problem=f'has a live task {busy.task_id} for instance {busy.active_instance} already',
            remedy='Nothing was written; the next cycle plans again.')


def extend_cooldown(connection: sa.Connection, kind: str, name: str, until: float) -> None:
    """Set a cooldown, or lengthen it; never shorten it."""
    if connection.execute(*_build_cooldown_update(kind, name, until)).rowcount == 0:
        connection.execute(sa.insert(tables.cooldown).values(kind=kind, name=name, until=until))


@statements.build_once
def _build_cooldown_update(kind: str, name: str, until: float) -> sa.Update:
    table = tables.cooldown
    return sa.update(table).where(table.c.kind == kind, table.c.name == name).values(
        until=sa.case((table.c.until > until, table.c.until), else_=until))


def list_draining_hosts(connection: sa.Connection, scope: str) -> set[str]:
    """Return the hosts of the scope that are being drained."""
    return {row.host for row in connection.execute(*_select_drains(scope))}


@statements.build_once
def _select_drains(scope: str) -> sa.Select[Any]:
    return sa.select(tables.drain.c.host, tables.drain.c.since).where(
        tables.drain.c.scope == scope)


def set_draining(connection: sa.Connection, scope: str, hosts: Iterable[str],
                 now: float) -> None:
    """Store exactly these hosts as drained in the scope; one that already is keeps its start."""
    table = tables.drain
    wanted, known = set(hosts), list_draining_hosts(connection, scope)
    if known - wanted:
        connection.execute(sa.delete(table).where(
            table.c.scope == scope, table.c.host.in_(sorted(known - wanted))))
    if wanted - known:
        connection.execute(sa.insert(table), [
            {'scope': scope, 'host': host, 'since': now} for host in sorted(wanted - known)])


def read_history(connection: sa.Connection, scope: str, now: float,
                 remembered: float, with_late_drains: bool) -> model.MoveHistory:
    cooling = connection.execute(*_select_cooldowns(now)).all()
    quarantines = connection.execute(*_select_quarantines(now)).all()
    completed = connection.execute(*_select_completed_moves(now - remembered)).all()
    begins = {row.host: row.since for row in connection.execute(*_select_drains(scope))}
    pause = pauses.find_pause(connection, scope, now)
    return model.MoveHistory(
        paused=None if pause is None else str(pause),
        cooling={row.name: row.until - now for row in cooling if row.kind == INSTANCE},
        quarantined={row.name: -1 if row.until is None else row.until - now
                     for row in quarantines if row.kind == INSTANCE},
        quarantined_hosts=frozenset(row.name for row in quarantines if row.kind == HOST),
        local_disk_hosts=frozenset(row.name for row in quarantines if row.kind == DISKS),
        other_cells=frozenset(_parse_host_pair(row.name) for row in quarantines
                              if row.kind == CELLS),
        scope_cooling=max((row.until - now for row in cooling
                           if row.kind == SCOPE and row.name == scope), default=0.0),
        draining=frozenset(begins),
        drain_begins=begins,
        late_drains={} if not with_late_drains else late_drains.map_late_drains(connection, now, {
            row.name: row.reason for row in quarantines if row.kind == INSTANCE}),
        drain_deadlines=drain_orders.map_deadlines(connection, now),
        campaign_hosts=campaign_stats.list_closed_hosts(connection, scope),
        # A day may have thousands: no more of each is read than planning and snapshots need.
        completed=tuple((model.Move(row.instance_uuid, row.from_host, row.to_host,
                                    model.Phase(row.phase)), row.completed_at)
                        for row in completed),
        measured=migration_samples.list_newest_samples(connection))


@statements.build_once
def _select_cooldowns(now: float) -> sa.Select[Any]:
    return sa.select(tables.cooldown).where(tables.cooldown.c.until > now)


@statements.build_once
def _select_quarantines(now: float) -> sa.Select[Any]:
    until = tables.quarantine.c.until
    return sa.select(tables.quarantine).where(sa.or_(until.is_(None), until > now))


@statements.build_once
def _select_completed_moves(since: float) -> sa.Select[Any]:
    # By the plain column SQLite would use the index of states and read all tasks that have ever
    # completed; no index serves an expression.
    task = tables.task
    return sa.select(
        task.c.instance_uuid, task.c.from_host, task.c.to_host, task.c.phase, task.c.completed_at,
        ).where(task.c.completed_at > since,
                sa.func.lower(task.c.state) == model.TaskState.COMPLETED.value,
        ).order_by(task.c.completed_at, task.c.task_id)


def _parse_host_pair(name: str) -> tuple[str, str]:
    first_host, _space, other = name.partition(' ')
    return first_host, other


class PlanPosition(NamedTuple):
    """A plan's position among all, the oldest first."""

    created_at: float
    plan_id: str


def list_oldest_plans(connection: sa.Connection, limit: float,
                      after: PlanPosition) -> list[PlanPosition]:
    """Return a batch of the plans made before ``limit``, the oldest after ``after`` first."""
    plan = tables.plan
    plan_rows = connection.execute(
        sa.select(plan.c.created_at, plan.c.plan_id, plan.c.moves)
        .where(plan.c.created_at < limit, plan.c.created_at >= after.created_at,
               sa.or_(plan.c.created_at > after.created_at, plan.c.plan_id > after.plan_id))
        .order_by(plan.c.created_at, plan.c.plan_id).limit(statements.BATCH // 2)).all()
    number = 0
    batch: list[PlanPosition] = []
    for row in plan_rows:
        number += 1 + row.moves
        if batch and number > statements.BATCH:
            break
        batch.append(PlanPosition(row.created_at, row.plan_id))
    return batch


def purge_plans(connection: sa.Connection, batch: Collection[str], limit: float,
                counted_since: float, judged: int) -> int:
    """Delete those of the plans that ended before ``limit``; return how many.

    Always kept: live tasks and their plans, leases, the rows that a history still reports, plans
    with a move that completed at ``counted_since`` or later, and those that circuit breakers need.
    """
    task, plan, swap = tables.task, tables.plan, tables.swap
    needed = sa.union(
        sa.select(task.c.plan_id).where(task.c.plan_id.in_(batch), sa.or_(
            rows.is_live(), task.c.updated_at >= limit, sa.and_(
                task.c.completed_at >= counted_since,
                task.c.state == model.TaskState.COMPLETED.value))),
        sa.select(task.c.plan_id).join(swap, swap.c.swap_id == task.c.swap_id).where(
            task.c.plan_id.in_(batch), swap.c.state.in_(UNSETTLED)),
        sa.select(swap.c.plan_id).where(
            swap.c.plan_id.in_(batch), swap.c.state.in_(UNSETTLED)))
    scopes = connection.scalars(
        sa.select(plan.c.scope).where(plan.c.plan_id.in_(batch)).distinct()).all()
    old = sorted(set(batch) - set(connection.scalars(needed))
                 - outcomes.list_breaker_plans(connection, judged, scopes))
    if not old:
        return 0
    for table in (task, tables.budget, tables.outcome, tables.decision, swap, plan):
        connection.execute(sa.delete(table).where(table.c.plan_id.in_(old)))
    return len(old)


def purge_lapsed(connection: sa.Connection, table: sa.Table, limit: float) -> bool:
    """Delete a batch of rows that lapsed before ``limit``; return whether more are left."""
    return statements.delete_oldest(connection, table.c.until, limit)


def list_newest_plans(connection: sa.Connection) -> Sequence[sa.RowMapping]:
    """Return the newest plan of each scope.

    Go from scope to scope in the index, by queries with constants: MAX() of each group would read
    all plans, and so does MariaDB where a column of another table bounds MIN() or MAX().
    """
    plan = tables.plan
    times: dict[str, float] = {}
    scope = connection.scalar(sa.select(sa.func.min(plan.c.scope)))
    while scope is not None:
        times[scope] = connection.scalar(*_newest_of(scope))
        scope = connection.scalar(*_next_scope(scope))
    if not times:
        return []
    return connection.execute(sa.select(plan).where(sa.or_(*(
        sa.and_(plan.c.scope == scope, plan.c.created_at == at)
        for scope, at in times.items()))).order_by(plan.c.plan_id)).mappings().all()


@statements.build_once
def _newest_of(scope: str) -> sa.Select[Any]:
    plan = tables.plan
    return sa.select(sa.func.max(plan.c.created_at)).where(plan.c.scope == scope)


@statements.build_once
def _next_scope(scope: str) -> sa.Select[Any]:
    plan = tables.plan
    return sa.select(sa.func.min(plan.c.scope)).where(plan.c.scope > scope)
