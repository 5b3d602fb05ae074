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


"""The store: each method is one transaction, which takes effect completely or not at all.

Deadlocks and lost races for a unique key are tried again; any other database error is a
StoreError. ``now`` and all times are epoch seconds UTC. Several processes may use one database;
every change of a task is a compare-and-swap on its state and worker.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import functools
import time
from typing import Any, TypeVar

from oslo_config import cfg
import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement
import tenacity

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import metric_lag
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.planning import breakers
from kronos_nova.rebalancer.planning import pack_prediction
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import executor_heartbeats
from kronos_nova.rebalancer.store import leases
from kronos_nova.rebalancer.store import outcomes
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import process_identity
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import requests
from kronos_nova.rebalancer.store import resolutions
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import schema
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import store_stats
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import tasks
from kronos_nova.rebalancer.store import worker_todo
from kronos_nova.rebalancer.store.audits import AuditEntry
from kronos_nova.rebalancer.store.pauses import PauseRecord
from kronos_nova.rebalancer.store.pending_hooks import PendingHook
from kronos_nova.rebalancer.store.plan_approvals import OperatorDecision
from kronos_nova.rebalancer.store.plan_approvals import StoredDecision
from kronos_nova.rebalancer.store.plan_approvals import WaitingPlan
from kronos_nova.rebalancer.store.plans import LiveWork
from kronos_nova.rebalancer.store.quarantine import QuarantineEntry
from kronos_nova.rebalancer.store.rows import PlanRow
from kronos_nova.rebalancer.store.rows import ScopeLease
from kronos_nova.rebalancer.store.rows import TaskRow
from kronos_nova.rebalancer.store.store_stats import RowCensus

# Methods of the class have the same names as some modules above.
from kronos_nova.rebalancer.store.worker_todo import WorkerTodo

_T = TypeVar('_T')
#: An executor with a heartbeat within so many seconds is running.
WRITER_SECONDS = 300.0
#: The longest rest between two batches of a purge (seconds).
PURGE_REST = 1.0
#: The audit's name for a program that gives none.
UNNAMED = 'unnamed'
#: No cap: more than any cloud migrates.
UNLIMITED = 2**31


class Store:
    """Plans, tasks, cooldowns, quarantine and leases.

    :param clock: for simulations; else leases use the database's clock.
    :param seconds: how long it waits for a server that does not answer.
    """

    def __init__(self, conf: cfg.ConfigOpts | None = None, *, engine: sa.Engine | None = None,
                 clock: Callable[[], float] | None = None,
                 seconds: int = database.COMMAND_SECONDS) -> None:
        if engine is None:
            if conf is None:
                raise TypeError('either conf or engine')
            engine = database.create_engine(conf, seconds=seconds)
        self.engine = engine
        self._conf = conf
        self._clock = clock

    @classmethod
    def from_url(cls, url: str, *, clock: Callable[[], float] | None = None) -> 'Store':
        """Return the store at a database URL.

        :raises StoreError: the URL cannot be used.
        """
        return cls(engine=database.from_url(url), clock=clock)

    def _build_now_clause(self) -> ColumnElement[float]:
        return database.EPOCH_NOW if self._clock is None else sa.literal(self._clock())

    @contextlib.contextmanager
    def _long_engine(self) -> Iterator[sa.Engine]:
        """Yield an engine for work that may take minutes, once the server is known to answer."""
        if self._conf is None or self.engine.dialect.name == 'sqlite':
            yield self.engine
            return
        with database.explain_errors(self.engine), self.engine.connect():
            pass
        engine = database.create_engine(self._conf, seconds=database.LONG_SECONDS)
        try:
            yield engine
        finally:
            engine.dispose()

    def _run(self, step: Callable[[sa.Connection], _T], *, begin: str = 'IMMEDIATE') -> _T:
        return self._run_on(self.engine, step, begin)

    @staticmethod
    def _run_on(engine: sa.Engine, step: Callable[[sa.Connection], _T],
                begin: str = 'IMMEDIATE') -> _T:
        with database.explain_errors(engine):
            for attempt in tenacity.Retrying(
                    retry=tenacity.retry_if_exception(database.is_race), reraise=True,
                    stop=tenacity.stop_after_attempt(8),
                    wait=tenacity.wait_random_exponential(0.02, max=1.0)):
                with attempt:
                    connection = engine.connect().execution_options(kronos_begin=begin)
                    with connection, connection.begin():
                        return step(connection)
        raise AssertionError('unreachable')

    def _read(self, step: Callable[[sa.Connection], _T]) -> _T:
        return self._run(step, begin='')

    def transaction(self, step: Callable[[sa.Connection], _T]) -> _T:
        """Run ``step`` in one transaction, for a module that has its own tables.

        A deadlock or a lost race calls ``step`` again.
        """
        return self._run(step)

    # The schema.

    def upgrade(self) -> None:
        """Upgrade the schema to this release's revision; concurrent callers wait.

        :raises StoreError: unreachable, or at a revision that this release does not know.
        """
        with self._long_engine() as engine:
            schema.upgrade(engine)

    def check(self) -> None:
        """Check that the database has this release's schema.

        :raises StoreError: unreachable, or not at this release's schema.
        """
        schema.check(self.engine)

    def refuse_other_machines(self, hosts: Collection[str] = ()) -> None:
        """Raise StoreError when the database is SQLite and another machine uses it.

        SQLite serves one machine. See :mod:`process_identity`.

        :param hosts: machines that run executors, as configured.
        :raises StoreError: the database is SQLite, and in memory, on a network file system, or
            used by another machine.
        """
        if self.engine.dialect.name != 'sqlite':
            return
        path = self.engine.url.database
        if path in (None, '', ':memory:'):
            raise exception.StoreError(
                problem='is SQLite in memory, which no other process sees',
                remedy='Give [database] connection a file, or use MariaDB or PostgreSQL.')
        problem = process_identity.find_sqlite_problem(path, hosts)
        if problem is None and (
                others := process_identity.list_other_machines(self._list_writers())):
            problem = f'file {path} is SQLite and in use on another machine: {", ".join(others)}'
        if problem is not None:
            raise exception.StoreError(problem=problem, remedy=process_identity.REMEDY)

    def _list_writers(self) -> list[str]:
        """Return the engines with a live lease and the executors with a fresh claim."""
        lease, task = tables.lease, tables.task

        def read_writers(connection: sa.Connection) -> list[str]:
            if not sa.inspect(connection).has_table(lease.name):
                return []
            now = float(connection.execute(sa.select(self._build_now_clause())).scalar_one())
            engines = connection.scalars(sa.select(lease.c.owner).where(lease.c.until > now))
            executors = connection.scalars(sa.select(task.c.worker).where(
                task.c.worker.is_not(None), rows.is_live(),
                task.c.heartbeat_at > now - WRITER_SECONDS))
            return [*engines, *executors]
        return self._read(read_writers)

    def unused(self) -> bool:
        """Return whether the database has no lease at all: no engine has ever written to it."""
        return self._read(lambda c: c.execute(
            sa.select(tables.lease.c.scope).limit(1)).first()) is None

    def close(self) -> None:
        self.engine.dispose()

    def now(self) -> float:
        """Return the time of the clock that decides when leases end."""
        return float(self._read(
            lambda c: c.execute(sa.select(self._build_now_clause())).scalar_one()))

    # Leases.

    def acquire_lease(self, scope: str, owner: str, seconds: float,
                      policy_hash: str) -> ScopeLease | None:
        """Lease the scope; return None while another engine holds it.

        The same owner gets its live lease again, for ``seconds`` from now.

        :raises StoreError: another engine holds it with other policies.
        """
        return self._run(lambda c: leases.acquire_lease(
            c, self._build_now_clause(), scope, owner, seconds, policy_hash))

    def renew(self, lease: ScopeLease, seconds: float) -> bool:
        """Extend the lease; return False when it has ended or its epoch has risen.

        After False, drop the decisions that were made under the lease.
        """
        return self._run(lambda c: leases.renew_lease(c, self._build_now_clause(), lease, seconds))

    def retake(self, lease: ScopeLease, seconds: float) -> ScopeLease | None:
        """Reacquire our lease after an operator's plan raised its epoch.

        :returns: the lease in its later epoch; None: it has ended, or another engine holds it.
        """
        return self._run(lambda c: leases.retake_lease(c, self._build_now_clause(), lease, seconds))

    def release(self, lease: ScopeLease) -> None:
        """Release the scope's lease; a lease that has ended stays as it is."""
        self._run(lambda c: leases.release_lease(c, self._build_now_clause(), lease))

    def has_free(self, scopes: Collection[str]) -> bool:
        """Return whether at least one of the scopes has no live lease."""
        lease = tables.lease
        held = self._read(lambda c: set(c.scalars(sa.select(lease.c.scope).where(
            lease.c.scope.in_(sorted(scopes)), lease.c.until > self._build_now_clause()))))
        return not held.issuperset(scopes)

    def leased(self) -> frozenset[str]:
        """Return the scopes that some engine plans now."""
        return self._read(lambda c: frozenset(
            c.scalars(*leases.select_leased_scopes(self._build_now_clause()))))

    def scopes(self) -> list[str]:
        """Return every scope that has ever had a lease."""
        return self._read(lambda c: list(c.scalars(
            sa.select(tables.lease.c.scope).order_by(tables.lease.c.scope))))

    # Plans.

    def save_plan(self, lease: ScopeLease | None, plan: model.Plan, tasks: Sequence[model.Task], *,
                  plan_id: str, now: float, dry_run: bool, cooldown: float,
                  instance_cooldown: float) -> frozenset[str]:
        """Write a plan with its tasks, cooldowns, budget and draining hosts, under the lease.

        A plan without moves is stored only when its reason differs from that of the scope's newest
        plan. Its draining hosts are always stored; but while a plan of the scope waits for
        approval, new ones are stored only with the approval. A dry run writes only the plan's row,
        and needs no lease. A task's ``deadline`` is the time by which it must have begun (None:
        rows.BEGIN_WITHIN from now).

        :returns: the hosts of the scope that are drained from now on.
        :raises LeaseLost: nothing was written.
        :raises StoreError: an instance has a live task already, or a task does not belong to this
            plan and scope; nothing was written.
        """
        def write_plan(connection: sa.Connection) -> frozenset[str]:
            if not dry_run:
                if lease is None:
                    raise TypeError('a plan that is carried out needs a lease')
                leases.fence_lease(connection, self._build_now_clause(), lease)
            drained = plans.save_plan(connection, lease, plan, tasks, plan_id=plan_id, now=now,
                                      dry_run=dry_run, cooldown=cooldown,
                                      instance_cooldown=instance_cooldown)
            if tasks and not dry_run:
                swaps.record_swaps(connection, plan, plan_id, now)
            return drained
        return self._run(write_plan)

    def seen(self) -> LiveWork:
        """Return the live tasks and drains, which :meth:`save_wanted` compares.

        Call this before anything else is read.
        """
        return self._read(plans.read_activity)

    def ended(self) -> tuple[int, float]:
        """Count the newest ended tasks; return the time of the newest end as well.

        A different answer later means that tasks have ended since.
        """
        return self._read(tasks.count_newest_ended)

    def present(self, name: str, scopes: Collection[str] | None) -> None:
        """Record that an executor runs, and the scopes that it serves (None: all)."""
        self._run(lambda c: executor_heartbeats.record_heartbeat(c, self._build_now_clause(), name,
                                                                 scopes))

    def leave(self, name: str) -> None:
        """Remove an executor that stops."""
        self._run(lambda c: executor_heartbeats.remove_executor(c, name))

    def fail(self, lease: ScopeLease, error: str, now: float) -> None:
        """Record that a cycle of the scope has failed.

        :raises LeaseLost: nothing was written.
        """
        self._run_under_lease(lease,
                              lambda c: plans.record_failed_cycle(c, lease.scope, error, now))

    def save_wanted(self, mark: LiveWork, plan: model.Plan, tasks: Sequence[model.Task], *,
                    plan_id: str, now: float, instance_cooldown: float, said: OperatorDecision,
                    verb: str,
                    also: Callable[[sa.Connection], None] = lambda connection: None) -> None:
        """Write a plan that an operator or ``migfra`` requested.

        Plans of the scope's engine stay. The lease's epoch rises: the engine's current cycle does
        not know this plan, and must not write its own decision.

        :param said: the requester and the reason; kept with the plan as ``verb``.
        :param also: writes more, in the same transaction.

        :raises StoreError: others have planned since ``mark``, or an instance has a live task;
            nothing was written.
        """
        def write_requested_plan(connection: sa.Connection) -> None:
            lease = leases.raise_epoch(connection, plan.scope)
            plans.refuse_overtaken(connection, mark)
            plans.save_wanted(connection, lease, plan, tasks, plan_id=plan_id, now=now,
                              instance_cooldown=instance_cooldown)
            swaps.record_swaps(connection, plan, plan_id, now)
            plan_approvals.record_decision(connection, plan_id, now, verb, said, len(tasks))
            also(connection)
        self._run(write_requested_plan)

    def history(self, scope: str, now: float,
                remembered: float = metric_lag.REMEMBERED) -> model.MoveHistory:
        """Return the scope's history; cooldowns, quarantine and completed moves are cloud-wide.

        :param remembered: seconds that completed moves go back.
        """
        return self._read(lambda c: plans.read_history(c, scope, now, remembered))

    def planned_at(self, scope: str) -> float | None:
        """Return when an engine last stored its decision for the scope, with moves or without."""
        lease = tables.lease
        return self._read(lambda c: c.scalar(
            sa.select(lease.c.planned_at).where(lease.c.scope == scope)))

    def draining(self) -> frozenset[str]:
        """Return the draining hosts of every scope that engines plan or planned lately."""
        drain, lease = tables.drain, tables.lease
        return self._read(lambda c: frozenset(c.scalars(
            sa.select(drain.c.host).join(lease, lease.c.scope == drain.c.scope)
            .where(leases.of_late(self._build_now_clause())))))

    def plan(self, plan_id: str) -> PlanRow | None:
        found = self._read_plan_rows(sa.select(tables.plan).where(tables.plan.c.plan_id == plan_id))
        return found[0] if found else None

    def plans(self, limit: int = 20, scope: str | None = None) -> list[PlanRow]:
        """Return the newest plans, of one scope or of all, newest first."""
        wanted = sa.true() if scope is None else tables.plan.c.scope == scope
        return self._read_plan_rows(sa.select(tables.plan).where(wanted).order_by(
            tables.plan.c.created_at.desc(), tables.plan.c.plan_id.desc()).limit(limit))

    def newest_plans(self) -> dict[str, PlanRow]:
        """Return the newest plan of each scope, also of a dry run."""
        return {row.plan.scope: row for row in self._read(
            lambda c: [rows.plan_row(found) for found in plans.list_newest_plans(c)])}

    def _read_plan_rows(self, query: sa.Select[Any]) -> list[PlanRow]:
        return self._read(lambda c: [
            rows.plan_row(row) for row in c.execute(query).mappings()])

    def purge(self, older_than: float, *, judged: int = 3,
              remembered: float = metric_lag.REMEMBERED, seconds: float | None = None,
              audited_before: float = 0.0) -> int:
        """Delete records that ended before ``older_than``; return the number of plans deleted.

        Always kept: live tasks, running cooldowns, quarantines and pauses, completions of the last
        hours, and the plans that circuit breakers need. Each batch is a transaction; after it,
        other writers have as long as it took.

        :param judged: number of plans of a scope by which its breaker decides.
        :param remembered: seconds that completed moves go back, as in :meth:`history`.
        :param audited_before: delete audit rows that are older.
        :param seconds: begin no batch after so long; the next purge continues. None: purge all.
        """
        with self._long_engine() as engine:
            run = (self._run if engine is self.engine
                   else functools.partial(self._run_on, engine))
            return self._purge_batches(run, older_than, judged, remembered, seconds, audited_before)

    def _purge_batches(self, run: Callable[..., Any], older_than: float, judged: int,
                       remembered: float,
                       seconds: float | None, audited_before: float) -> int:
        started = time.monotonic()
        now = self.now()
        limit = min(older_than, now - remembered, now - metric_lag.REMEMBERED)
        count, after = 0, plans.PlanPosition(-1.0, '')
        steps: list[Callable[[sa.Connection], bool]] = [
            functools.partial(requests.purge_requests, older_than=older_than, now=now),
            *(functools.partial(plans.purge_lapsed, table=table, limit=limit)
              for table in plans.LAPSING),
            lambda c: statements.delete_oldest(c, audits.get_purge_column(), audited_before)]
        while seconds is None or time.monotonic() < started + seconds:
            began = time.monotonic()
            batch = run(functools.partial(plans.list_oldest_plans, limit=limit, after=after),
                        begin='')
            if batch:
                after = batch[-1]
                count += run(functools.partial(
                    plans.purge_plans, batch=[plan.plan_id for plan in batch], limit=limit,
                    judged=judged))
            elif not steps:
                break
            elif not run(steps[0]):
                steps.pop(0)
            time.sleep(min(PURGE_REST, time.monotonic() - began))
        return count

    # Tasks.

    def flights(self, states: Sequence[TaskState] = rows.LIVE) -> tuple[model.InFlightMove, ...]:
        """Return every live task of the cloud as a move that may be under way.

        Moves for which open swaps keep capacity free are included.
        """
        def read_flights(connection: sa.Connection) -> tuple[model.InFlightMove, ...]:
            return swaps.add_held_hosts(connection, [
                model.InFlightMove(row.task.instance_uuid, row.task.from_host, row.task.to_host,
                                   'task', row.task.alternates, row.task.aggregate,
                                   rows.has_lost_slots(row.doubt, row.doubt_since))
                for row in tasks.in_states(connection, states, None, None)])
        return self._read(read_flights)

    def tasks(self, plan_id: str) -> list[TaskRow]:
        return self._read(lambda c: tasks.list_tasks(c, tables.task.c.plan_id == plan_id))

    def task(self, task_id: str) -> TaskRow | None:
        return self._read(lambda c: tasks.find_task(c, task_id))

    def tasks_of(self, plan_ids: Collection[str]) -> list[TaskRow]:
        """Return all tasks of the plans, live and ended."""
        return self._read(lambda c: tasks.list_tasks(c,
                                                     tables.task.c.plan_id.in_(sorted(plan_ids))))

    def tasks_from(self, host: str, since: float) -> list[TaskRow]:
        """Return tasks off a host that are live or have ended since ``since``, oldest first."""
        task = tables.task
        return self._read(lambda c: [rows.task_row(row) for row in c.execute(
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
        return self._read(read)

    def list_ended_tasks(self, limit: int) -> list[TaskRow]:
        """Return the tasks that ended last, newest first."""
        task = tables.task
        return self._read(lambda c: [rows.task_row(row) for row in c.execute(
            sa.select(task).where(task.c.completed_at.is_not(None))
            .order_by(task.c.completed_at.desc(), task.c.task_id).limit(limit)).mappings()])

    def tasks_of_instance(self, uuid: str, limit: int) -> list[TaskRow]:
        """Return the newest tasks of an instance, newest first."""
        task = tables.task
        return self._read(lambda c: [rows.task_row(row) for row in c.execute(
            sa.select(task).where(task.c.instance_uuid == uuid)
            .order_by(task.c.created_at.desc(), task.c.task_id).limit(limit)).mappings()])

    def doubt(self, task: model.Task) -> str | None:
        """Return why a received task does not match its row; None: it matches."""
        row = self.task(task.task_id)
        if row is None:
            return 'is not in the database'
        if row.task.state.terminal:
            return f'is of a task that has ended ({row.task.state})'
        ours, known = row.task, {row.task.to_host, *row.task.alternates}
        for field in ('plan_id', 'aggregate', 'instance_uuid', 'from_host'):
            if getattr(task, field) != getattr(ours, field):
                return f'is of a task with another {field}'
        return None if task.to_host in known else 'is of a task with another to_host'

    def in_states(self, states: Sequence[TaskState], scopes: Collection[str] | None = None, *,
                  worker: str | None = None) -> list[TaskRow]:
        """Return tasks in the given states and scopes (None: all), in the order of their turn."""
        return self._read(lambda c: tasks.in_states(c, states, scopes, worker))

    def agenda(self, worker: str, scopes: Collection[str] | None, now: float,
               claim_seconds: float) -> WorkerTodo:
        """Return the kinds of work that an executor finds, in one statement that writes nothing.

        :param claim_seconds: a worker that is silent for so long has lost its tasks.
        """
        return self._read(lambda c: worker_todo.read(c, worker, scopes, now, claim_seconds))

    def claim(self, worker: str, scopes: Collection[str] | None, now: float, *, per_scope: int,
              total: int, claim_seconds: float, per_source: int = UNLIMITED,
              per_destination: int = UNLIMITED) -> TaskRow | None:
        """Claim the next task that may begin: it is then ours, in state ``claimed``.

        The task is queued, due, not expired and not paused; everything that it requires is
        completed; its instance has no pending hook; and a slot is free: at most ``per_scope``
        tasks of its scope, ``per_source`` and ``per_destination`` of its hosts and ``total`` of
        the cloud are claimed, submitting, submitted or unknown. A claim whose worker has been
        silent for ``claim_seconds`` passes to us.
        """
        if not self._read(lambda c: tasks.has_claimable(c, scopes, now, claim_seconds)):
            return None
        return self._run(lambda c: tasks.claim(
            c, worker, scopes, now, per_scope=per_scope, total=total,
            claim_seconds=claim_seconds, per_source=per_source,
            per_destination=per_destination))

    def renew_claim(self, worker: str, now: float) -> None:
        """Record that we are alive: no executor takes our tasks for ``claim_seconds``."""
        self._run(lambda c: tasks.renew_claim(c, worker, now))

    def release_claims(self, worker: str) -> None:
        """Give up our tasks and hooks; any executor may take them at once."""
        self._run(lambda c: tasks.release_claims(c, worker))

    def adopt(self, worker: str, scopes: Collection[str] | None, now: float,
              claim_seconds: float) -> list[TaskRow]:
        """Take over tasks of silent workers that may have reached Nova."""
        return self._run(lambda c: tasks.adopt_tasks(c, worker, scopes, now, claim_seconds))

    def mark(self, task_id: str, worker: str, from_states: Iterable[TaskState],
             to_state: TaskState, now: float, **fields: Any) -> bool:
        """Move our task to another live state; return False when it is not ours.

        :param fields: marker, reference, error, error_type, deadline, not_before, retry_count,
            submitted_at, doubt_since, doubt, timings.
        """
        return self._run(lambda c: tasks.update_state(
            c, task_id, worker, from_states, to_state, now, **fields))

    def requeue(self, task_id: str, worker: str, now: float, *, not_before: float,
                retry_count: int, attempt: int, error: str | None = None,
                error_type: str | None = None,
                attempts: Sequence[model.Attempt] | None = None,
                marks: attempt_phases.Marks = ()) -> bool:
        """Move our task back to ``queued`` for destination number ``attempt``, unclaimed.

        :param attempts: all attempts that have ended so far; None: unchanged.
        :param marks: the phases of an attempt that continues; empty: another attempt begins.
        """
        return self._run(lambda c: tasks.requeue_task(
            c, task_id, worker, now, not_before=not_before, retry_count=retry_count,
            attempt=attempt, error=error, error_type=error_type, attempts=attempts,
            marks=marks))

    def finish(self, task: model.Task, result: model.TaskResult, state: TaskState, now: float, *,
               worker: str, instance_cooldown: float,
               quarantine_seconds: float | None = None) -> list[model.Task] | None:
        """End our task, start its instance's cooldown, and quarantine the instance when asked.

        :param quarantine_seconds: -1 is for ever, None is not at all.
        :returns: the tasks cancelled because they required it; None: it was not ours to end, and
            nothing was written.
        """
        if not state.terminal:
            raise ValueError(f'{state} does not end a task')
        return self._run(lambda c: tasks.finish_task(
            c, task, result, state, now, worker=worker, instance_cooldown=instance_cooldown,
            quarantine_seconds=quarantine_seconds))

    def cancel(self, task_id: str, now: float, *, cancelled_by: str, reason: str,
               instance_cooldown: float) -> list[model.Task] | None:
        """Cancel a task that Nova has not been asked for, on an operator's order.

        An executor that is checking the task notices this before it asks Nova.

        :returns: the task and those that required it; None: nothing was written, since Nova may
            have been asked, or the task has ended or is unknown.
        """
        def cancel_and_audit(connection: sa.Connection) -> list[model.Task] | None:
            ended = tasks.cancel_task(
                connection, task_id, now, error_type=rows.CANCELLED_TYPE,
                error=f'Cancelled by {cancelled_by}: {reason}',
                instance_cooldown=instance_cooldown)
            if ended is not None:
                audits.add(connection, AuditEntry(
                    now, cancelled_by, plan_approvals.CANCELLED, f'task {task_id}', reason))
            return ended
        return self._run(cancel_and_audit)

    def resolve_task(self, task_id: str, state: TaskState, now: float, said: OperatorDecision,
                     instance_cooldown: float) -> list[model.Task] | None:
        """End a submitted or unknown task as ``state``, on the word of an operator.

        :returns: the tasks cancelled because they required it; None: the task is in another state
            or does not exist, and nothing was written.
        """
        return self._run(lambda c: resolutions.resolve_task(
            c, task_id, state, now, said, instance_cooldown))

    # Pending hooks.

    def owe(self, what: PendingHook, worker: str, now: float, marks: attempt_phases.Marks) -> bool:
        """Record that a hook is about to be called for our claimed task, and the attempt's phases.

        :returns: False: the task is not ours any more, and nothing was written.
        """
        return self._run(lambda c: pending_hooks.record_hook(c, what, worker, now, marks))

    def take_owed(self, worker: str, scopes: Collection[str] | None, now: float,
                  claim_seconds: float) -> list[PendingHook]:
        """Take pending hooks of attempts that have ended: our own, and those of silent workers.

        A worker is silent after ``claim_seconds``. The hooks are ours from now on, for as long.
        """
        return self._run(lambda c: pending_hooks.take_due_hooks(c, worker, scopes, now,
                                                                claim_seconds))

    def put_off_owed(self, what: PendingHook, worker: str) -> bool:
        """Store a hook's ``tries``, ``not_before`` and ``error``; False: it is not ours."""
        return self._run(lambda c: pending_hooks.put_off(c, what, worker))

    def settle_owed(self, owed_id: str, worker: str) -> bool:
        """Delete a pending hook that has ended; return False when it was not ours."""
        return self._run(lambda c: pending_hooks.delete_hook(c, owed_id, worker))

    def owes(self, instance_uuid: str) -> bool:
        """Return whether a hook has begun for the instance and has not ended."""
        return self._read(lambda c: pending_hooks.is_owed(c, instance_uuid))

    def owed(self, task_id: str) -> list[PendingHook]:
        """Return the pending hooks of a task, in the order in which they began."""
        return self._read(lambda c: pending_hooks.list_task_hooks(c, task_id))

    # Operators' decisions on plans.

    def waiting(self, now: float, scope: str | None = None) -> list[WaitingPlan]:
        """Return plans that wait for approval, of one scope or of all, oldest first."""
        return self._read(lambda c: plan_approvals.list_waiting_plans(c, now, scope))

    def lapse(self, lease: ScopeLease, now: float) -> list[model.Task]:
        """Cancel tasks of the scope that were not approved in time.

        :raises LeaseLost: nothing was written.
        """
        late = self._read(lambda c: c.execute(
            sa.select(tables.task.c.task_id)
            .where(tables.task.c.scope == lease.scope, tables.task.c.expires_at <= now,
                   tables.task.c.state == TaskState.PENDING.value).limit(1)).first())
        if late is None:
            return []
        return self._run_under_lease(
            lease, lambda c: plan_approvals.cancel_lapsed_tasks(c, lease.scope, now))

    def approve(self, plan_id: str, now: float, said: OperatorDecision, *,
                begin_within: Mapping[model.Phase, float], cooldown: float,
                instance_cooldown: float) -> list[model.Task]:
        """Queue tasks of a plan that wait for approval. See :mod:`plan_approvals`.

        :raises StoreError: one requires another that still waits; nothing was written.
        """
        return self._run(lambda c: plan_approvals.approve_plan(
            c, plan_id, now, said, begin_within=begin_within, cooldown=cooldown,
            instance_cooldown=instance_cooldown))

    def reject(self, plan_id: str, now: float, said: OperatorDecision,
               instance_cooldown: float) -> list[model.Task]:
        """Cancel pending tasks, and the tasks that require them; the instances cool."""
        return self._run(lambda c: plan_approvals.cancel_plan_tasks(
            c, plan_id, now, said, plan_approvals.REJECTED, instance_cooldown))

    def cancel_plan(self, plan_id: str, now: float, said: OperatorDecision,
                    instance_cooldown: float) -> list[model.Task]:
        """Cancel all tasks of a plan that Nova has not been asked for; the instances cool."""
        return self._run(lambda c: plan_approvals.cancel_plan_tasks(
            c, plan_id, now, said, plan_approvals.CANCELLED, instance_cooldown))

    def tell(self, lease: ScopeLease) -> list[StoredDecision]:
        """Return decisions on the scope's plans that are not announced yet, oldest first.

        They are marked as announced: the caller must announce them.

        :raises LeaseLost: nothing was written.
        """
        if not self._read(lambda c: plan_approvals.list_unannounced_decisions(c, lease.scope)):
            return []
        return self._run_under_lease(
            lease, lambda c: plan_approvals.pop_unannounced_decisions(c, lease.scope))

    def decisions(self, plan_id: str) -> list[StoredDecision]:
        """Return the operators' decisions on a plan, oldest first."""
        return self._read(lambda c: plan_approvals.list_plan_decisions(c, plan_id))

    def asked_by(self, plan_ids: Collection[str]) -> dict[str, str]:
        """Return who requested each plan (an operator or ``migfra``); omit plans of engines."""
        return self._read(lambda c: plan_approvals.asked_by(c, plan_ids))

    def expire(self, scopes: Collection[str] | None, now: float,
               claim_seconds: float) -> list[model.Task]:
        """Cancel tasks that did not begin in time, and the tasks that require them."""
        return self._run(lambda c: tasks.expire_tasks(c, scopes, now, claim_seconds))

    # Swaps.

    def swaps_of(self, plan_id: str) -> list[swaps.StoredSwap]:
        """Return the swaps that a plan began, with their progress."""
        return self._read(lambda c: swaps.list_swaps(c, tables.swap.c.plan_id == plan_id))

    def settle_swaps(self, now: float) -> list[swaps.StoredSwap]:
        """Do the next step of swaps that the end of their last task did not settle; most do.

        :returns: swaps whose undo has begun or ended and is not logged yet: the caller must log
            them.
        """
        return self._run(lambda c: tasks.settle_swaps(c, now))

    # Pauses.

    def pause(self, scope: str | None, now: float, *, seconds: float | None, paused_by: str,
              reason: str) -> PauseRecord:
        """Pause the scope (None: the cloud): engines plan nothing, and no task begins.

        :param seconds: for how long; None: until :meth:`resume`.
        """
        found = PauseRecord(scope, now, None if seconds is None else now + seconds, paused_by,
                            reason)

        def write_pause(connection: sa.Connection) -> None:
            pauses.record_pause(connection, found)
            audits.add(connection, AuditEntry(now, paused_by, 'paused', _scope_name(scope), reason))
        self._run(write_pause)
        return found

    def resume(self, scope: str | None, now: float, by: str = UNNAMED) -> bool:
        """End the pause of the scope, or the cloud's; return False when there was none."""
        def end_and_audit(connection: sa.Connection) -> bool:
            held = [pause for pause in pauses.list_pauses(connection, now) if pause.scope == scope]
            if not pauses.end_pause(connection, scope, now):
                return False
            for pause in held:
                audits.add(connection, AuditEntry(
                    now, by, 'resumed', _scope_name(scope),
                    f'paused by {pause.paused_by}: {pause.reason}'))
            return True
        return self._run(end_and_audit)

    def pauses(self, now: float) -> list[PauseRecord]:
        """Return the pauses in force; that of the cloud first."""
        return self._read(lambda c: pauses.list_pauses(c, now))

    def paused(self, scope: str, now: float) -> PauseRecord | None:
        """Return the pause that holds the scope: the cloud's or its own."""
        return self._read(lambda c: pauses.find_pause(c, scope, now))

    # Outcomes of plans.

    def _run_under_lease(self, lease: ScopeLease, step: Callable[[sa.Connection], _T]) -> _T:
        """Run ``step`` in a transaction that holds the lease.

        :raises LeaseLost: nothing was written.
        """
        def fence_and_run(connection: sa.Connection) -> _T:
            leases.fence_lease(connection, self._build_now_clause(), lease)
            return step(connection)
        return self._run(fence_and_run)

    def realise(self, lease: ScopeLease, combined: float, now: float, *,
                load: float | None = None,
                measured: pack_prediction.ScopeMeasurement
                | None = None) -> breakers.PlanOutcome | None:
        """Record the outcome of the scope's newest plan; call this once scores show all its moves.

        :param combined: the scope's imbalance now.
        :param load: the weighted mean of the scope's scores now (Plan.load).
        :param measured: the scope's packing, in mode pack.
        :returns: the outcome of the newest plan, when it is known now.
        :raises LeaseLost: nothing was written.
        """
        waiting = self._read(lambda c: c.execute(
            sa.select(tables.outcome.c.plan_id)
            .where(tables.outcome.c.scope == lease.scope,
                   tables.outcome.c.realised_at.is_(None))
            .limit(1)).first())
        if waiting is None:
            return None
        return self._run_under_lease(lease, lambda c: outcomes.record_outcome(
            c, lease.scope, combined, load, now, measured))

    def outcomes(self, scope: str, limit: int) -> list[breakers.PlanOutcome]:
        """Return outcomes of the scope's plans since its breaker opened last, newest first."""
        return self._read(lambda c: outcomes.list_outcomes(c, scope, limit))

    def realised(self, plan_ids: Collection[str]) -> dict[str, float]:
        """Return the combined imbalance that scores showed after each of the plans.

        Plans without a known outcome, or that must not be judged, are left out.
        """
        outcome = tables.outcome
        return self._read(lambda c: {row.plan_id: row.combined_realised for row in c.execute(
            sa.select(outcome).where(outcome.c.plan_id.in_(sorted(plan_ids)),
                                     outcome.c.combined_realised.is_not(None)))})

    def wish(self, lease: ScopeLease, now: float) -> float:
        """Record that the scope needs balancing; return since when, without a break.

        :raises LeaseLost: nothing was written.
        """
        return self._run_under_lease(lease,
                                     lambda c: outcomes.record_imbalance_since(c, lease.scope, now))

    def wished(self) -> dict[str, float]:
        """Return since when each scope has needed balancing, without a break."""
        return self._read(lambda c: {
            row.scope: float(row.since) for row in c.execute(sa.select(tables.wish))})

    def content(self, lease: ScopeLease) -> None:
        """Record that the scope needs no balancing now.

        :raises LeaseLost: nothing was written.
        """
        self._run_under_lease(lease, lambda c: outcomes.clear_imbalance_since(c, lease.scope))

    def failures(self, scope: str, since: float) -> tuple[int, int]:
        """Count (failed, ended) migrations since ``since``, and since the breaker opened."""
        return self._read(lambda c: outcomes.count_failures(c, scope, since))

    def trip(self, lease: ScopeLease, now: float, *, seconds: float | None, paused_by: str,
             reason: str) -> PauseRecord:
        """Open the scope's breaker: pause the scope, and count its earlier results no more.

        A pause of the scope that lasts longer, such as an operator's, stays.

        :raises LeaseLost: nothing was written.
        """
        found = PauseRecord(lease.scope, now, None if seconds is None else now + seconds, paused_by,
                            reason)

        def open_breaker(connection: sa.Connection) -> None:
            outcomes.record_breaker_opening(connection, lease.scope, now)
            if not pauses.has_longer_pause(connection, found):
                pauses.record_pause(connection, found)
        self._run_under_lease(lease, open_breaker)
        return found

    # Metrics.

    def census(self) -> RowCensus:
        """Return numbers of live rows, for metrics."""
        return self._read(lambda c: store_stats.read_census(c, self._build_now_clause()))

    # Quarantine.

    def refused(self, host: str, now: float, *, limit: int, seconds: float,
                reason: str) -> bool:
        """Count a destination's refusal; return True when the host is quarantined now."""
        return self._run(lambda c: quarantine.count_refusal(
            c, host, now, limit=limit, seconds=seconds, reason=reason))

    def keeps_disks(self, host: str, now: float, seconds: float, reason: str) -> None:
        """Record Nova's answer that the host shares no storage: History.local_disk_hosts."""
        self._run(lambda c: quarantine.add(c, plans.DISKS, host, now, seconds, reason))

    def other_cells(self, one: str, other: str, now: float, seconds: float,
                    reason: str) -> None:
        """Record that Nova did not find the one host from the other: History.other_cells.

        Names that together are too long for the column are not kept: Nova reports it again.
        """
        name = ' '.join(sorted((one, other)))
        if len(name) <= tables.NAME_LENGTH:
            self._run(lambda c: quarantine.add(c, plans.CELLS, name, now, seconds, reason))

    def record_outage(self, service: str, now: float, seconds: float, reason: str) -> bool:
        """Record that a service fails; return True when no executor saw this within ``seconds``.
        """
        return self._run(lambda c: quarantine.record_outage(c, service, now, seconds, reason))

    def end_outage(self, service: str) -> None:
        """Delete an outage: the service works again."""
        self._run(lambda c: quarantine.lift_quarantine(c, plans.SERVICE, service))

    def quarantines(self, now: float) -> list[QuarantineEntry]:
        """Return the quarantines in force.

        These include hosts with local disks, pairs of hosts of different cells, and services that
        fail.
        """
        return self._read(lambda c: quarantine.list_quarantines(c, now))

    def lift(self, kind: str, name: str, now: float, by: str = UNNAMED) -> bool:
        """End the quarantine of an ``instance`` or ``host``; return False when none is in force.

        Kind ``disks`` forgets that the disks of a host are its own, and ``cells`` that two hosts
        are of different cells.
        """
        if kind not in (plans.INSTANCE, plans.HOST, plans.DISKS, plans.CELLS):
            raise exception.StoreError(problem=f'has no quarantine for {kind!r}',
                                       remedy='Say instance, host, disks or cells.')

        def lift_and_audit(connection: sa.Connection) -> bool:
            reason = quarantine.find_reason(connection, kind, name, now)
            # Of two transactions that have read it, only one deletes the row.
            if reason is None or not quarantine.lift_quarantine(connection, kind, name):
                return False
            audits.add(connection, AuditEntry(now, by, 'lifted', f'{kind} {name}', reason))
            return True
        return self._run(lift_and_audit)

    # The audit.

    def audit(self, by: str, command: str, target: str, reason: str = '') -> None:
        """Write an audit row for a command whose change no other method records."""
        def write_audit_row(connection: sa.Connection) -> None:
            now = float(connection.execute(sa.select(self._build_now_clause())).scalar_one())
            audits.add(connection, AuditEntry(now, by, command, target, reason))
        self._run(write_audit_row)

    def audited(self, limit: int) -> list[AuditEntry]:
        """Return the newest audit rows, newest first."""
        return self._read(lambda c: audits.list_newest_entries(c, limit))


def _scope_name(scope: str | None) -> str:
    return 'everything' if scope is None else f'scope {scope}'
