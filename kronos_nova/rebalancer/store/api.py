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
from collections.abc import Iterator
import contextlib
import functools
from typing import Any, TypeVar

from oslo_config import cfg
import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement
import tenacity

from kronos_nova import exception
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import campaigns
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import drain_orders
from kronos_nova.rebalancer.store import events
from kronos_nova.rebalancer.store import executor_heartbeats
from kronos_nova.rebalancer.store import history
from kronos_nova.rebalancer.store import leases
from kronos_nova.rebalancer.store import notices
from kronos_nova.rebalancer.store import outcomes
from kronos_nova.rebalancer.store import pages
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plan_repository
from kronos_nova.rebalancer.store import process_identity
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import readings
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import schema
from kronos_nova.rebalancer.store import store_stats
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import task_repository
from kronos_nova.rebalancer.store.rows import ScopeLease

# Methods of the class have the same names as some modules above.

_T = TypeVar('_T')
#: An executor with a heartbeat within so many seconds is running.
WRITER_SECONDS = 300.0


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
        self.approvals = plan_approvals.ApprovalRepository(self)
        self.quarantine = quarantine.QuarantineRepository(self)
        self.pauses = pauses.PauseRepository(self)
        self.audit = audits.AuditRepository(self)
        self.statistics = store_stats.StatisticsRepository(self)
        self.leases = leases.LeaseRepository(self)
        self.outcomes = outcomes.OutcomeRepository(self)
        self.executors = executor_heartbeats.ExecutorRepository(self)
        self.hooks = pending_hooks.HookRepository(self)
        self.plans = plan_repository.PlanRepository(self)
        self.pages = pages.PageRepository(self)
        self.history = history.HistoryRepository(self)
        self.tasks = task_repository.TaskRepository(self)
        self.events = events.EventRepository(self)
        self.notices = notices.NoticeRepository(self)
        self.drain_orders = drain_orders.DrainOrderRepository(self)
        self.campaigns = campaigns.CampaignRepository(self)
        self.readings = readings.ReadingRepository(self)

    @classmethod
    def from_url(cls, url: str, *, clock: Callable[[], float] | None = None) -> 'Store':
        """Return the store at a database URL.

        :raises StoreError: the URL cannot be used.
        """
        return cls(engine=database.from_url(url), clock=clock)

    def build_now_clause(self) -> ColumnElement[float]:
        """Return the time of the clock that decides when leases end, as SQL."""
        return database.EPOCH_NOW if self._clock is None else sa.literal(self._clock())

    @contextlib.contextmanager
    def open_long_runner(self) -> Iterator[Callable[..., Any]]:
        """Yield a function that runs transactions that may take minutes."""
        with self._long_engine() as engine:
            yield (self._run if engine is self.engine
                   else functools.partial(self._run_on, engine))

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

    def run_read(self, step: Callable[[sa.Connection], _T]) -> _T:
        """Run ``step``, which writes nothing."""
        return self._run(step, begin='')

    def run_transaction(self, step: Callable[[sa.Connection], _T]) -> _T:
        """Run ``step`` in one transaction; a deadlock or a lost race calls it again."""
        return self._run(step)

    def run_under_lease(self, lease: ScopeLease, step: Callable[[sa.Connection], _T]) -> _T:
        """Run ``step`` in a transaction that holds the lease.

        :raises LeaseLost: nothing was written.
        """
        def fence_and_run(connection: sa.Connection) -> _T:
            leases.fence_lease(connection, self.build_now_clause(), lease)
            return step(connection)
        return self.run_transaction(fence_and_run)

    # The schema.

    def upgrade(self) -> None:
        """Upgrade the schema to this release's revision; concurrent callers wait.

        :raises StoreError: unreachable, or at a revision that this release does not know.
        """
        with self._long_engine() as engine:
            schema.upgrade_schema(engine)

    def check(self) -> None:
        """Check that the database has this release's schema.

        :raises StoreError: unreachable, or not at this release's schema.
        """
        schema.refuse_other_revision(self.engine)

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
            now = float(connection.execute(sa.select(self.build_now_clause())).scalar_one())
            engines = connection.scalars(sa.select(lease.c.owner).where(lease.c.until > now))
            executors = connection.scalars(sa.select(task.c.worker).where(
                task.c.worker.is_not(None), rows.is_live(),
                task.c.heartbeat_at > now - WRITER_SECONDS))
            return [*engines, *executors]
        return self.run_read(read_writers)

    def close(self) -> None:
        self.engine.dispose()

    def now(self) -> float:
        """Return the time of the clock that decides when leases end."""
        return float(self.run_read(
            lambda c: c.execute(sa.select(self.build_now_clause())).scalar_one()))
