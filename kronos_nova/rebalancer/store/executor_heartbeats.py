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


"""Heartbeats: the executors that run, and the scopes that they serve."""

from collections.abc import Collection
import json

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions
from kronos_nova.rebalancer.store import worker_todo

#: Seconds between two heartbeats of an executor; one that misses three does not run any more.
BEAT = 60.0
SILENT = 3 * BEAT
#: An executor that was silent for so long (seconds) is deleted.
FORGOTTEN = 86400.0

_executor = tables.executor


def record_heartbeat(connection: sa.Connection, clock: ColumnElement[float], name: str,
                     scopes: Collection[str] | None) -> None:
    """Record that an executor runs, and the scopes that it serves (None: all).

    A new executor also deletes those that were silent for :data:`FORGOTTEN`.
    """
    values = {'scopes': None if scopes is None else json.dumps(sorted(scopes)), 'seen_at': clock}
    done = connection.execute(
        sa.update(_executor).where(_executor.c.name == name).values(values))
    if not done.rowcount:
        connection.execute(sa.insert(_executor).values(name=name, **values))
        connection.execute(sa.delete(_executor).where(
            _executor.c.seen_at < clock - FORGOTTEN))


def remove_executor(connection: sa.Connection, name: str) -> None:
    """Remove an executor that stops."""
    connection.execute(sa.delete(_executor).where(_executor.c.name == name))


def list_running_executors(
        connection: sa.Connection, now: float) -> dict[str, frozenset[str] | None]:
    """Return the executors that run, and the scopes that each serves (None: all)."""
    return {row.name: None if row.scopes is None else frozenset(json.loads(row.scopes))
            for row in connection.execute(
                sa.select(_executor).where(_executor.c.seen_at > now - SILENT))}


class ExecutorRepository(transactions.Repository):
    """Executors that run, and the work that each finds."""

    def record_heartbeat(self, name: str, scopes: Collection[str] | None) -> None:
        """Record that an executor runs, and the scopes that it serves (None: all)."""
        self._runner.run_transaction(
            lambda c: record_heartbeat(c, self._runner.build_now_clause(), name,
                                       scopes))

    def remove_executor(self, name: str) -> None:
        """Remove an executor that stops."""
        self._runner.run_transaction(lambda c: remove_executor(c, name))

    def read_todo(self, worker: str, scopes: Collection[str] | None, now: float,
                  claim_seconds: float) -> worker_todo.WorkerTodo:
        """Return the kinds of work that an executor finds, in one statement that writes nothing.

        :param claim_seconds: a worker that is silent for so long has lost its tasks.
        """
        return self._runner.run_read(
            lambda c: worker_todo.read_todo(c, worker, scopes, now, claim_seconds))
