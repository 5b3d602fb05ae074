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

"""Audit rows: who has changed the database by which command, and why."""

from collections import Counter
import dataclasses
from typing import Any

import sqlalchemy as sa

from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_audit = tables.audit
#: Command of the row that ``kronos drain start`` writes.
DRAIN_STARTED = 'drain started'
#: Command of the row that ``kronos drain stop`` writes.
DRAIN_STOPPED = 'drain stopped'
#: Command of the row that follows when the host could not be disabled.
DRAIN_FAILED = 'drain failed'
#: Command of the row that follows when Nova did not answer: the host may be disabled.
DRAIN_UNANSWERED = 'drain unanswered'
#: Command of the row of a deadline that a drain gets while it goes on.
DEADLINE_SET = 'drain deadline set'
#: Command of the row that ``kronos quarantine lift`` writes.
LIFTED = 'lifted'
#: The name of a program that gives none.
UNNAMED = 'unnamed'


@dataclasses.dataclass(frozen=True, slots=True)
class AuditEntry:
    """An audit row of one command. ``target`` is the plan, task, scope or host that it changed."""

    at: float
    by: str
    command: str
    target: str
    reason: str


def append_flags(reason: str, **flags: bool) -> str:
    """Return the reason of an audit row with the names of the flags that are set."""
    names = [name for name, is_set in flags.items() if is_set]
    return f'{reason} ({", ".join(names)})'.lstrip() if names else reason


def add_audit(connection: sa.Connection, entry: AuditEntry) -> None:
    """Write an audit row in the transaction of the change itself."""
    connection.execute(sa.insert(_audit).values(
        at=entry.at, by_name=entry.by[:tables.NAME_LENGTH], command=entry.command[:32],
        target=entry.target, reason=entry.reason))


def list_newest_entries(connection: sa.Connection, limit: int) -> list[AuditEntry]:
    """Return the newest entries, newest first."""
    return [AuditEntry(row.at, row.by_name, row.command, row.target, row.reason)
            for row in connection.execute(
                sa.select(_audit).order_by(_audit.c.at.desc(), _audit.c.number.desc())
                .limit(limit))]


def find_newest(connection: sa.Connection, command: str, target: str) -> float | None:
    """Return when the command was given for the target last."""
    newest: float | None = connection.scalar(sa.select(sa.func.max(_audit.c.at)).where(
        _audit.c.command == command, _audit.c.target == target))
    return newest


def map_newest_lifts(connection: sa.Connection, since: float) -> dict[str, float]:
    """Return by target when an operator lifted a quarantine last, since then."""
    return {row.target: row.at for row in connection.execute(
        sa.select(_audit.c.target, _audit.c.at)
        .where(_audit.c.at > since, _audit.c.command == LIFTED).order_by(_audit.c.at))}


def list_started_drains(connection: sa.Connection, since: float) -> set[str]:
    """Return the hosts whose drains have started since then, and neither failed nor stopped."""
    starts: Counter[str] = Counter()
    for row in connection.execute(
            sa.select(_audit.c.target, _audit.c.command)
            .where(_audit.c.at >= since,
                   _audit.c.command.in_((DRAIN_STARTED, DRAIN_FAILED, DRAIN_STOPPED)))
            .order_by(_audit.c.at, _audit.c.number)):
        host = row.target.removeprefix('host ')
        if row.command == DRAIN_STARTED:
            starts[host] += 1
        else:
            # A failure ends one of several starts, a stop ends all.
            starts[host] = max(0, starts[host] - 1) if row.command == DRAIN_FAILED else 0
    return set(+starts)


def get_purge_column() -> sa.Column[Any]:
    """Return the column by which rows are purged."""
    return _audit.c.at


class AuditRepository(transactions.Repository):
    """Audit rows of commands."""

    def record_command(self, by: str, command: str, target: str, reason: str = '') -> None:
        """Write an audit row for a command whose change no other method records."""
        def write_audit_row(connection: sa.Connection) -> None:
            now = float(connection.execute(sa.select(self._runner.build_now_clause())).scalar_one())
            add_audit(connection, AuditEntry(now, by, command, target, reason))
        self._runner.run_transaction(write_audit_row)

    def list_started_drains(self, since: float) -> set[str]:
        """Return the hosts whose drains have started since then, and neither failed nor stopped."""
        return self._runner.run_read(lambda c: list_started_drains(c, since))

    def list_newest_entries(self, limit: int) -> list[AuditEntry]:
        """Return the newest audit rows, newest first."""
        return self._runner.run_read(lambda c: list_newest_entries(c, limit))
