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

"""One SQLite file for all processes of a run, a connection for each of them, and its failures.

Two transactions overlap as on a server: while one process is within its own, others begin and
commit theirs. A reader sees one state throughout (MariaDB), or each statement sees the newest
one (PostgreSQL), as the run draws. Whoever would write beside a writer is refused at once, where
the real file makes it wait for thirty seconds.
"""

from collections.abc import Callable
import functools
import os
import sqlite3
from typing import Any, TYPE_CHECKING

from oslo_db import exception as db_exception
import sqlalchemy as sa
import sqlalchemy.event

from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from tests.fixtures import stores
from tests.simulation.world import outages
from tests.simulation.world import settings

if TYPE_CHECKING:
    from tests.simulation.world import processes
    from tests.simulation.world import run as runs

START = 1_000_000_000.0


def path() -> str:
    """The file of this process of the tests."""
    return os.path.join(settings.directory().name, f'world-{os.getpid()}.db')


@functools.cache
def engine(number: int) -> sa.Engine:
    """The database engine of a process: what SQLAlchemy has compiled is kept with it."""
    new_engine = database.from_url(f'sqlite:///{path()}', connection_recycle_time=-1)
    # A connection for each transaction would take half of the time of a run.
    new_engine.pool = sa.pool.QueuePool(
        new_engine.pool._creator, pool_size=2, dialect=new_engine.dialect,
        _dispatch=new_engine.pool.dispatch)

    @sqlalchemy.event.listens_for(new_engine, 'connect')
    def hurry(connection: Any, _record: Any) -> None:
        connection.execute('PRAGMA busy_timeout = 0')
        connection.execute('PRAGMA synchronous = OFF')
    return new_engine


@functools.cache
def _looking() -> sqlite3.Connection:
    connection = sqlite3.connect(path(), isolation_level=None, check_same_thread=False)
    connection.execute('PRAGMA synchronous = OFF')
    return connection


def fresh(scopes: tuple[str, ...]) -> sqlite3.Connection:
    """Empty the file but for a plan of each scope a moment ago; return a connection to look."""
    stores.renew_file(path())
    connection = _looking()
    # The first engine of a process would set it later, and that counts as a commit.
    connection.execute('PRAGMA journal_mode = WAL')
    connection.executemany(
        'INSERT INTO lease (scope, owner, epoch, until, policy_hash, planned_at) '
        "VALUES (?, 'earlier', 1, 0, '', ?)", [(scope, START - 60) for scope in scopes])
    return connection


def version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when another connection has committed."""
    number: int = connection.execute('PRAGMA data_version').fetchone()[0]
    return number


def _lost() -> db_exception.DBConnectionError:
    return db_exception.DBConnectionError(Exception('server has gone away'))


class _Cut:
    """A connection that breaks at its n-th statement."""

    def __init__(self, connection: sa.Connection, left: int) -> None:
        self._connection, self._left = connection, left

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._connection, name)
        if name not in ('execute', 'scalar', 'scalars'):
            return method

        def call(*args: Any, **kw: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise _lost()
            return method(*args, **kw)
        return call


class _Overlapped:
    """A connection before whose n-th statement other processes have a turn.

    :param committed: each statement sees what the others have committed before it.
    """

    def __init__(self, connection: sa.Connection, left: int, meanwhile: Callable[[], None],
                 committed: bool) -> None:
        self._connection, self._left = connection, left
        self._meanwhile, self._committed = meanwhile, committed

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._connection, name)
        if name not in ('execute', 'scalar', 'scalars'):
            return method

        def call(*args: Any, **kw: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._meanwhile()
            if self._left <= 0 and self._committed:
                self._connection.exec_driver_sql('COMMIT')
                self._connection.exec_driver_sql('BEGIN')
            return method(*args, **kw)
        return call


class Store(api.Store):
    """One process's view: the real store on a database that fails."""

    def __init__(self, run: 'runs.Run', process: 'processes.Process') -> None:
        super().__init__(engine=engine(run.number_of(process)), clock=lambda: run.now)
        self._world, self._process = run, process

    def close(self) -> None:
        """The database outlives its users."""

    def _overlapped(self, step: Callable[[sa.Connection], Any],
                    begin: str) -> Callable[[sa.Connection], Any]:
        """The step, with turns of other processes within its transaction."""
        process, run = self._process, self._world
        if run.current is not process or not run.faults.hit(
                'transactions overlap' if begin else 'a read overlaps with transactions'):
            return step

        def meanwhile() -> None:
            for other in run.executors:
                other.wake()
            run.stand_still(process, run.rng.uniform(1, 10))

        def overlapped(connection: sa.Connection) -> Any:
            return step(_Overlapped(  # type: ignore[arg-type]
                connection, run.rng.randint(1, 6), meanwhile,
                committed=run.reads_committed
                and not connection.get_execution_options().get('kronos_begin')))
        return overlapped

    def _run(self, step: Callable[[sa.Connection], Any], *, begin: str = 'IMMEDIATE') -> Any:
        process, run = self._process, self._world
        process.may_freeze()
        step = self._overlapped(step, begin)
        outage = run.outage.meet_database(process)
        if outage in (outages.HANGS, outages.FAILS_OVER):
            return super()._run(_refuse, begin=begin)
        if outage and begin:
            return super()._run(lambda c: _with_pragma(c, step, 'query_only', 'ON', 'OFF'),
                                begin=begin)
        if not run.faults.active:
            answer = super()._run(step, begin=begin)
        elif begin:
            answer = self._write(step)
        else:
            answer = super()._run(self._away(step), begin=begin)
        if begin:
            run.committed(process)
        return answer

    def _away(self, step: Callable[[sa.Connection], Any]) -> Callable[[sa.Connection], Any]:
        if not self._world.faults.hit('database is away'):
            return step

        return _refuse

    def _write(self, step: Callable[[sa.Connection], Any]) -> Any:
        process, run, hit = self._process, self._world, self._world.faults.hit
        kind = process.kind
        dies = hit(f'{kind} crashes before a commit')
        deadlocks = [None] if hit('database sees a deadlock') else []

        def faulty(connection: sa.Connection) -> Any:
            if hit('database is read-only'):
                return _with_pragma(connection, step, 'query_only', 'ON', 'OFF')
            if hit('database has a full disk'):
                pages = connection.exec_driver_sql('PRAGMA page_count').scalar()
                return _with_pragma(connection, step, 'max_page_count', str(pages),
                                    str(2 ** 30))
            if hit('database fails over within a transaction'):
                step(_Cut(connection, run.rng.randint(1, 5)))  # type: ignore[arg-type]
                raise _lost()
            step_answer = step(connection)
            if deadlocks:
                deadlocks.pop()
                raise db_exception.DBDeadlock(Exception('deadlock'))
            if dies:
                process.crash()
            if run.campaigns is not None:
                run.campaigns.strike(process, after=False)
            return step_answer

        before = version(run.raw)
        answer = super()._run(self._away(faulty))
        if version(run.raw) == before:
            return answer
        run.committed(process)
        if hit(f'{kind} crashes after a commit'):
            process.crash()
        if run.campaigns is not None:
            run.campaigns.strike(process, after=True)
        if hit('database fails over after the commit'):
            with database.explain_errors(self.engine):
                raise _lost()
        process.may_freeze()
        return answer


def _refuse(_connection: sa.Connection) -> Any:
    raise _lost()


def _with_pragma(connection: sa.Connection, step: Callable[[sa.Connection], Any], name: str,
                 value: str, normal: str) -> Any:
    connection.exec_driver_sql(f'PRAGMA {name}={value}')
    try:
        return step(connection)
    finally:
        connection.exec_driver_sql(f'PRAGMA {name}={normal}')
