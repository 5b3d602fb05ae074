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


"""Pauses of a scope or of the cloud: engines plan nothing there, and no task begins."""

import dataclasses
import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_pause = tables.pause
SCOPE = 'scope'
CLOUD = 'cloud'
#: 9999-12-31, the last that a calendar can show.
_LAST = 253402214400.0


@dataclasses.dataclass(frozen=True, slots=True)
class PauseRecord:
    """A pause: ``scope`` None is the whole cloud; ``until`` None is until resumed."""

    scope: str | None
    since: float
    until: float | None
    paused_by: str
    reason: str

    def __str__(self) -> str:
        what = 'everything' if self.scope is None else f'scope {self.scope}'
        how = 'kronos resume' + ('' if self.scope is None else ' --scope ...')
        until = '' if self.until is None else ' until ' + datetime.datetime.fromtimestamp(
            min(self.until, _LAST), datetime.UTC).isoformat(timespec='minutes')
        return f'{what} was paused by {self.paused_by}{until}: {self.reason} ({how} ends it)'


def _build_key(scope: str | None) -> tuple[str, str]:
    return (CLOUD, '') if scope is None else (SCOPE, scope)


def _match_scope(scope: str | None) -> ColumnElement[bool]:
    kind, name = _build_key(scope)
    return sa.and_(_pause.c.kind == kind, _pause.c.name == name)


def _match_lasting(now: float) -> ColumnElement[bool]:
    return sa.or_(_pause.c.until.is_(None), _pause.c.until > now)


def record_pause(connection: sa.Connection, pause: PauseRecord) -> None:
    """Write the pause in the place of an earlier one of the same scope."""
    kind, name = _build_key(pause.scope)
    values = {'since': pause.since, 'until': pause.until, 'paused_by': pause.paused_by,
              'reason': pause.reason}
    updated = connection.execute(
        sa.update(_pause).where(_match_scope(pause.scope)).values(values))
    if updated.rowcount == 0:
        connection.execute(sa.insert(_pause).values(kind=kind, name=name, **values))


def has_longer_pause(connection: sa.Connection, pause: PauseRecord) -> bool:
    """Return whether a stored pause of the same scope lasts at least as long."""
    last = connection.execute(
        sa.select(_pause.c.until).where(_match_scope(pause.scope),
                                        _match_lasting(pause.since))).first()
    return last is not None and (last.until is None or (
        pause.until is not None and last.until >= pause.until))


def end_pause(connection: sa.Connection, scope: str | None, now: float) -> bool:
    """Delete the pause of the scope; return whether this ended one that was in force.

    Of two transactions that end the same pause, one ends it.
    """
    lasted = connection.execute(sa.select(_pause.c.since).where(_match_scope(scope),
                                                                _match_lasting(now))).first()
    ended = connection.execute(sa.delete(_pause).where(_match_scope(scope))).rowcount
    return lasted is not None and ended == 1


def list_pauses(connection: sa.Connection, now: float) -> list[PauseRecord]:
    """Return the pauses in force; that of the cloud first, then by scope."""
    return [PauseRecord(row.name if row.kind == SCOPE else None, row.since, row.until,
                        row.paused_by,
                        row.reason)
            for row in connection.execute(*_select_pauses(now))]


@statements.build_once
def _select_pauses(now: float) -> sa.Select[Any]:
    return sa.select(_pause).where(_match_lasting(now)).order_by(_pause.c.kind, _pause.c.name)


def find_pause(connection: sa.Connection, scope: str, now: float) -> PauseRecord | None:
    """Return the pause that holds a scope: the cloud's before its own."""
    return next((p for p in list_pauses(connection, now) if p.scope in (None, scope)), None)


class PauseRepository(transactions.Repository):
    """Pauses of scopes and of the cloud."""

    def pause_scope(self, scope: str | None, now: float, *, seconds: float | None, paused_by: str,
                    reason: str) -> PauseRecord:
        """Pause the scope (None: the cloud): engines plan nothing, and no task begins.

        :param seconds: for how long; None: until :meth:`resume_scope`.
        """
        pause = PauseRecord(scope, now, None if seconds is None else now + seconds, paused_by,
                            reason)

        def write_pause(connection: sa.Connection) -> None:
            record_pause(connection, pause)
            audits.add_audit(connection,
                             audits.AuditEntry(now, paused_by, 'paused', _scope_name(scope),
                                               reason))
        self._runner.run_transaction(write_pause)
        return pause

    def resume_scope(self, scope: str | None, now: float, by: str = audits.UNNAMED) -> bool:
        """End the pause of the scope, or the cloud's; return False when there was none."""
        def end_and_audit(connection: sa.Connection) -> bool:
            scope_pauses = [pause for pause in list_pauses(connection, now) if pause.scope == scope]
            if not end_pause(connection, scope, now):
                return False
            for pause in scope_pauses:
                audits.add_audit(connection, audits.AuditEntry(
                    now, by, 'resumed', _scope_name(scope),
                    f'paused by {pause.paused_by}: {pause.reason}'))
            return True
        return self._runner.run_transaction(end_and_audit)

    def list_pauses(self, now: float) -> list[PauseRecord]:
        """Return the pauses in force; that of the cloud first."""
        return self._runner.run_read(lambda c: list_pauses(c, now))

    def find_pause(self, scope: str, now: float) -> PauseRecord | None:
        """Return the pause that holds the scope: the cloud's or its own."""
        return self._runner.run_read(lambda c: find_pause(c, scope, now))


def _scope_name(scope: str | None) -> str:
    return 'everything' if scope is None else f'scope {scope}'
