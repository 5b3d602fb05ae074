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


"""Quarantines: instances and hosts that are left alone for a time, or for ever."""

import dataclasses

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova import exception
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_table = tables.quarantine


@dataclasses.dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A quarantine, or another limit that ends in the same way.

    ``kind`` is ``instance``, ``host``, ``disks``, ``cells`` or ``service``; ``until`` None is for
    ever.
    """

    kind: str
    name: str
    since: float
    until: float | None
    reason: str


def begin_quarantine(connection: sa.Connection, kind: str, name: str, now: float, seconds: float,
                     reason: str) -> None:
    """Begin or lengthen a quarantine; ``seconds`` -1 is for ever."""
    until = None if seconds < 0 else now + seconds
    values = {'since': now, 'reason': reason}
    longer = until if until is None else sa.case(
        (_table.c.until.is_(None), None), (_table.c.until > until, _table.c.until), else_=until)
    changed = connection.execute(
        sa.update(_table).where(_table.c.kind == kind, _table.c.name == name)
        .values(until=longer, **values))
    if changed.rowcount == 0:
        connection.execute(sa.insert(_table).values(
            kind=kind, name=name, until=until, refusals=0, **values))


def count_refusal(connection: sa.Connection, host: str, now: float, *, limit: int, seconds: float,
                  reason: str) -> bool:
    """Count a destination's refusal; return True when the host is now quarantined.

    Refusals are counted from zero again after ``seconds`` without one.
    """
    key = (_table.c.kind == plans.HOST, _table.c.name == host)
    row = connection.execute(
        sa.select(_table).where(*key).with_for_update()).first()
    count = 1 if row is None or row.since <= now - seconds else row.refusals + 1
    values = {'since': now, 'refusals': count, 'reason': reason,
              'until': now + seconds if count >= limit else now}
    if row is None:
        connection.execute(sa.insert(_table).values(kind=plans.HOST, name=host, **values))
    elif row.until is not None:
        connection.execute(sa.update(_table).where(*key).values(**values))
    return count >= limit


def clear_refusals(connection: sa.Connection, host: str, now: float) -> None:
    """Delete a host's refusals: it took an instance."""
    connection.execute(sa.delete(_table).where(
        _table.c.kind == plans.HOST, _table.c.name == host, _table.c.until <= now))


def record_outage(connection: sa.Connection, service: str, now: float, seconds: float,
                  reason: str) -> bool:
    """Record that a service fails; return True when another outage begins.

    One that lapsed (no executor saw a failure within ``seconds``) or ended goes on if the service
    fails again within ``seconds``.
    """
    key = (_table.c.kind == plans.SERVICE, _table.c.name == service)
    row = connection.execute(sa.select(_table).where(*key).with_for_update()).first()
    begins = row is None or row.until <= now - seconds
    values = {'until': now + seconds, 'reason': reason, **({'since': now} if begins else {})}
    if row is None:
        connection.execute(sa.insert(_table).values(
            kind=plans.SERVICE, name=service, refusals=0, **values))
    else:
        connection.execute(sa.update(_table).where(*key).values(**values))
    return begins


def end_outage(connection: sa.Connection, service: str, now: float) -> None:
    connection.execute(
        sa.update(_table).where(_table.c.kind == plans.SERVICE, _table.c.name == service,
                                _table.c.until > now).values(until=now))


def _match_lasting(now: float) -> ColumnElement[bool]:
    return sa.or_(_table.c.until.is_(None), _table.c.until > now)


def list_quarantines(connection: sa.Connection, now: float) -> list[QuarantineEntry]:
    """Return the quarantines in force, by kind and name."""
    return [QuarantineEntry(row.kind, row.name, row.since, row.until, row.reason)
            for row in connection.execute(
                sa.select(_table).where(_match_lasting(now))
                .order_by(_table.c.kind, _table.c.name))]


def find_reason(connection: sa.Connection, kind: str, name: str, now: float) -> str | None:
    """Return the reason of a quarantine; None: it does not exist, or has lapsed."""
    return connection.scalar(sa.select(_table.c.reason).where(
        _table.c.kind == kind, _table.c.name == _stored_name(kind, name), _match_lasting(now)))


def _stored_name(kind: str, name: str) -> str:
    return ' '.join(sorted(name.split())) if kind == plans.CELLS else name


def lift_quarantine(connection: sa.Connection, kind: str, name: str) -> bool:
    name = _stored_name(kind, name)
    return connection.execute(
        sa.delete(_table).where(_table.c.kind == kind, _table.c.name == name)).rowcount == 1


class QuarantineRepository(transactions.Repository):
    """Quarantines, refusals and outages."""

    def count_refusal(self, host: str, now: float, *, limit: int, seconds: float,
                      reason: str) -> bool:
        """Count a destination's refusal; return True when the host is quarantined now."""
        return self._runner.run_transaction(lambda c: count_refusal(
            c, host, now, limit=limit, seconds=seconds, reason=reason))

    def record_local_disks(self, host: str, now: float, seconds: float, reason: str) -> None:
        """Record Nova's answer that the host shares no storage: History.local_disk_hosts."""
        self._runner.run_transaction(lambda c: begin_quarantine(c, plans.DISKS, host, now, seconds,
                                                                reason))

    def record_other_cells(self, host: str, other: str, now: float, seconds: float,
                           reason: str) -> None:
        """Record that Nova did not find the one host from the other: History.other_cells.

        Names that together are too long for the column are not kept: Nova reports it again.
        """
        name = ' '.join(sorted((host, other)))
        if len(name) <= tables.NAME_LENGTH:
            self._runner.run_transaction(lambda c: begin_quarantine(c, plans.CELLS, name, now,
                                                                    seconds, reason))

    def record_outage(self, service: str, now: float, seconds: float, reason: str) -> bool:
        """Record that a service fails; return True when another outage begins."""
        return self._runner.run_transaction(
            lambda c: record_outage(c, service, now, seconds, reason))

    def end_outage(self, service: str, now: float) -> None:
        """End an outage: the service works again."""
        self._runner.run_transaction(lambda c: end_outage(c, service, now))

    def list_quarantines(self, now: float) -> list[QuarantineEntry]:
        """Return the quarantines in force.

        These include hosts with local disks, pairs of hosts of different cells, and services that
        fail.
        """
        return self._runner.run_read(lambda c: list_quarantines(c, now))

    def lift_quarantine(self, kind: str, name: str, now: float, by: str = audits.UNNAMED) -> bool:
        """End the quarantine of an ``instance`` or ``host``; return False when none is in force.

        Kind ``disks`` forgets that the disks of a host are its own, and ``cells`` that two hosts
        are of different cells.
        """
        if kind not in (plans.INSTANCE, plans.HOST, plans.DISKS, plans.CELLS):
            raise exception.StoreError(problem=f'has no quarantine for {kind!r}',
                                       remedy='Say instance, host, disks or cells.')

        def lift_and_audit(connection: sa.Connection) -> bool:
            reason = find_reason(connection, kind, name, now)
            # Of two transactions that have read it, only one deletes the row.
            if reason is None or not lift_quarantine(connection, kind, name):
                return False
            audits.add_audit(connection,
                             audits.AuditEntry(now, by, audits.LIFTED, f'{kind} {name}', reason))
            return True
        return self._runner.run_transaction(lift_and_audit)
