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

"""One SQLite database in memory for all processes of a run, and its failures."""

from collections.abc import Callable
import sqlite3
from typing import Any, TYPE_CHECKING

from oslo_db import exception as db_exception
import sqlalchemy as sa

from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from tests.fixtures import stores

if TYPE_CHECKING:
    from tests.simulation.world import processes
    from tests.simulation.world import run as runs

START = 1_000_000_000.0


def fresh(scopes: tuple[str, ...]) -> sqlite3.Connection:
    """A database in which somebody has planned each scope a moment ago."""
    connection = stores.renew()
    connection.executemany(
        'INSERT INTO lease (scope, owner, epoch, until, policy_hash, planned_at) '
        "VALUES (?, 'earlier', 1, 0, '', ?)", [(scope, START - 60) for scope in scopes])
    connection.commit()
    return connection


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


class Store(api.Store):
    """One process's view: the real store on a database that fails."""

    def __init__(self, run: 'runs.Run', process: 'processes.Process') -> None:
        super().__init__(engine=stores.engine(), clock=lambda: run.now)
        self._world, self._process = run, process

    def close(self) -> None:
        """The database outlives its users."""

    def _run(self, step: Callable[[sa.Connection], Any], *, begin: str = 'IMMEDIATE') -> Any:
        process, run = self._process, self._world
        process.may_freeze()
        if not run.faults.active:
            found = super()._run(step, begin=begin)
        elif begin:
            found = self._write(step)
        else:
            found = super()._run(self._away(step), begin=begin)
        if begin:
            run.committed(process)
        return found

    def _away(self, step: Callable[[sa.Connection], Any]) -> Callable[[sa.Connection], Any]:
        if not self._world.faults.hit('database is away'):
            return step

        def lost(connection: sa.Connection) -> Any:
            raise _lost()
        return lost

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
            found = step(connection)
            if deadlocks:
                deadlocks.pop()
                raise db_exception.DBDeadlock(Exception('deadlock'))
            if dies:
                process.crash()
            return found

        before = run.raw.total_changes
        found = super()._run(self._away(faulty))
        if run.raw.total_changes == before:
            return found
        run.committed(process)
        if hit(f'{kind} crashes after a commit'):
            process.crash()
        if hit('database fails over after the commit'):
            with database.explained(self.engine):
                raise _lost()
        process.may_freeze()
        return found


def _with_pragma(connection: sa.Connection, step: Callable[[sa.Connection], Any], name: str,
                 value: str, normal: str) -> Any:
    connection.exec_driver_sql(f'PRAGMA {name}={value}')
    try:
        return step(connection)
    finally:
        connection.exec_driver_sql(f'PRAGMA {name}={normal}')
