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

"""Notices of moves to the owners of instances: one row for each instance, its newest notice."""

from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
from typing import Any

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_notice = tables.notice


class NoticeRepository(transactions.Repository):
    """Notices, which engines write under the lease of the scope."""

    def record_notices(self, lease: rows.ScopeLease, given: Sequence[model.MoveNotice],
                       extended: Sequence[model.MoveNotice] = ()) -> tuple[model.MoveNotice, ...]:
        """Write notices in place of earlier ones, and how long others are valid; return the former.

        :param given: each counts from the time of the database; one that names an earlier time is
            put off as a whole.
        :param extended: notices whose ``valid_until`` is later now, or whose reason is another one;
            one that was replaced or used up meanwhile stays as it is.
        :raises LeaseLost: nothing was written.
        """
        def write_notices(connection: sa.Connection) -> tuple[model.MoveNotice, ...]:
            now = float(connection.execute(sa.select(
                self._runner.build_now_clause())).scalar_one()) if given else 0.0
            stored = tuple(_postpone_notice(notice, now - notice.noticed_at)
                           for notice in sorted(given, key=lambda n: n.instance_uuid))
            for notice in stored:
                connection.execute(sa.delete(_notice).where(
                    _notice.c.instance_uuid == notice.instance_uuid))
                connection.execute(sa.insert(_notice).values(
                    scope=lease.scope, **{name: getattr(notice, name) for name in (
                        'instance_uuid', 'project_id', 'host', 'noticed_at', 'movable_from',
                        'valid_until', 'may_shut_down')}, reason=notice.reason.value,
                    used_at=None))
            for notice in sorted(extended, key=lambda n: n.instance_uuid):
                connection.execute(sa.update(_notice).where(
                    _notice.c.instance_uuid == notice.instance_uuid,
                    _notice.c.noticed_at == notice.noticed_at, _notice.c.used_at.is_(None),
                ).values(valid_until=notice.valid_until, reason=notice.reason.value))
            return stored
        return self._runner.run_under_lease(lease, write_notices) if given or extended else ()

    def list_unannounced_notices(self, scope: str, now: float) -> list[model.MoveNotice]:
        """Return the live notices of a scope that some listener lacks, the oldest first.

        :param now: seconds since the epoch.
        """
        return self._runner.run_read(lambda c: [build_notice(row) for row in c.execute(
            sa.select(_notice).where(
                _notice.c.scope == scope, _notice.c.announced_at.is_(None),
                _notice.c.used_at.is_(None), _notice.c.valid_until > now)
            .order_by(_notice.c.noticed_at, _notice.c.instance_uuid))])

    def record_announcements(self, lease: rows.ScopeLease,
                             announced: Sequence[model.MoveNotice]) -> None:
        """Write that all listeners have got notices.

        :raises LeaseLost: nothing was written.
        """
        def write_times(connection: sa.Connection) -> None:
            for notice in sorted(announced, key=lambda n: n.instance_uuid):
                connection.execute(sa.update(_notice).where(
                    _notice.c.instance_uuid == notice.instance_uuid,
                    _notice.c.noticed_at == notice.noticed_at,
                ).values(announced_at=self._runner.build_now_clause()))
        if announced:
            self._runner.run_under_lease(lease, write_times)

    def read_notices(self, now: float,
                     uuids: Collection[str] | None = None) -> dict[str, model.MoveNotice]:
        """Return the notices that have neither lapsed nor been used up, by instance UUID.

        :param now: seconds since the epoch.
        :param uuids: the wanted instances; None: all.
        """
        return self._runner.run_read(lambda c: list_live_notices(c, now, uuids))


def list_live_notices(connection: sa.Connection, now: float,
                      uuids: Collection[str] | None) -> dict[str, model.MoveNotice]:
    """Return the notices of :meth:`NoticeRepository.read_notices`."""
    live = sa.select(_notice).where(_notice.c.valid_until > now, _notice.c.used_at.is_(None))
    if uuids is None:
        queries = [live]
    else:
        wanted = sorted(uuids)
        queries = [live.where(_notice.c.instance_uuid.in_(wanted[first:first + statements.BATCH]))
                   for first in range(0, len(wanted), statements.BATCH)]
    return {row.instance_uuid: build_notice(row)
            for query in queries for row in connection.execute(query)}


def _postpone_notice(notice: model.MoveNotice, seconds: float) -> model.MoveNotice:
    """Return a notice that is given so many seconds later; it is never given earlier."""
    return notice if seconds <= 0 else dataclasses.replace(
        notice, noticed_at=notice.noticed_at + seconds,
        movable_from=notice.movable_from + seconds, valid_until=notice.valid_until + seconds)


def list_given_notices(connection: sa.Connection, since: float,
                       limit: int) -> list[tuple[str, model.MoveNotice]]:
    """Return the scope and the notice of the oldest notices given at the time or later."""
    return [(row.scope, build_notice(row)) for row in connection.execute(
        sa.select(_notice).where(_notice.c.noticed_at >= since)
        .order_by(_notice.c.noticed_at, _notice.c.instance_uuid).limit(limit))]


def use_notice(connection: sa.Connection, uuid: str, now: float) -> None:
    """Use up the notice of an instance, because a move of the instance has completed."""
    connection.execute(*_build_use_update(uuid, now))


@statements.build_once
def _build_use_update(uuid: str, now: float) -> sa.Update:
    return sa.update(_notice).where(
        _notice.c.instance_uuid == uuid, _notice.c.used_at.is_(None)).values(used_at=now)


def purge_lapsed_notices(connection: sa.Connection, limit: float) -> bool:
    """Delete a batch of notices that lapsed before ``limit``; return whether more are left."""
    return statements.delete_oldest(connection, _notice.c.valid_until, limit)


def build_notice(row: Any) -> model.MoveNotice:
    """Return the notice of a row."""
    return model.MoveNotice(
        row.instance_uuid, row.project_id, row.host, model.NoticeReason(row.reason),
        row.noticed_at, row.movable_from, row.valid_until, row.used_at, bool(row.may_shut_down))
