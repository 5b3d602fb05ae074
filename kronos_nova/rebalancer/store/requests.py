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

"""Requests from outside, kept until their answers have arrived.

Each is written before its message is acknowledged; so it is neither lost nor done twice, however
often it is delivered. The worker of a request renews its heartbeat, and another worker takes over
from a silent one.
"""

from collections.abc import Collection
import dataclasses
import json
from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables

_request = tables.request
#: Longer than a broker keeps messages for an absent receiver.
KEPT_SECONDS = 30 * 86400.0


@dataclasses.dataclass(frozen=True, slots=True)
class MigfraRequest:
    """A request from outside.

    ``document`` is the task as received, ``progress`` the steps done so far; ``reply`` its result,
    ``failed`` whether that is an error. ``damaged``: the stored progress cannot be read, and
    counts as empty. ``authorization``: the proof that a process of ours has heard the message.
    """

    request_id: str
    host: str
    kind: str
    document: str
    digest: str
    received_at: float
    progress: dict[str, Any] = dataclasses.field(default_factory=dict)
    plan_id: str | None = None
    worker: str | None = None
    reply: str | None = None
    failed: bool | None = None
    ended_at: float | None = None
    told_at: float | None = None
    authorization: str | None = None
    damaged: bool = False


def record_request(connection: sa.Connection, request: MigfraRequest,
                   former: Collection[str] = ()) -> MigfraRequest | None:
    """Store a new request and return None; return the stored one when its ID is known.

    :param former: other keys under which the same host may have it.
    """
    stored_request = read_request(connection, request.request_id)
    for key in former:
        other = read_request(connection, key) if stored_request is None else None
        if other is not None and other.host == request.host:
            stored_request = other
    if stored_request is None:
        connection.execute(sa.insert(_request).values(
            request_id=request.request_id, host=request.host, kind=request.kind,
            document=request.document, digest=request.digest, received_at=request.received_at,
            authorization=request.authorization))
    return stored_request


def read_request(connection: sa.Connection, request_id: str) -> MigfraRequest | None:
    row = connection.execute(
        sa.select(_request).where(_request.c.request_id == request_id)).mappings().first()
    return None if row is None else _parse_request_row(row)


def claim_requests(connection: sa.Connection, worker: str, kinds: Collection[str], now: float,
                   claim_seconds: float, limit: int) -> list[MigfraRequest]:
    """Claim open requests that no live worker holds; return all of ours, oldest first.

    Requests that we hold already get a heartbeat.
    """
    renew_heartbeats(connection, worker, now)
    free = sa.and_(_request.c.ended_at.is_(None), sa.or_(
        _request.c.worker.is_(None), _request.c.heartbeat_at < now - claim_seconds))
    for request_id in connection.scalars(
            sa.select(_request.c.request_id)
            .where(free, _request.c.kind.in_(sorted(kinds)))
            .order_by(_request.c.received_at, _request.c.request_id).limit(limit)).all():
        connection.execute(sa.update(_request).where(_request.c.request_id == request_id, free)
                           .values(worker=worker, heartbeat_at=now))
    return [_parse_request_row(row) for row in connection.execute(
        sa.select(_request)
        .where(_request.c.worker == worker, _request.c.ended_at.is_(None),
               _request.c.kind.in_(sorted(kinds)))
        .order_by(_request.c.received_at, _request.c.request_id)).mappings()]


def renew_heartbeats(connection: sa.Connection, worker: str, now: float) -> None:
    """Renew the worker's heartbeat on its open requests."""
    connection.execute(sa.update(_request)
                       .where(_request.c.worker == worker, _request.c.ended_at.is_(None))
                       .values(heartbeat_at=now))


def release_requests(connection: sa.Connection, worker: str) -> None:
    """Give up the worker's open requests, so that any worker may claim them."""
    connection.execute(sa.update(_request)
                       .where(_request.c.worker == worker, _request.c.ended_at.is_(None))
                       .values(worker=None))


def record_progress(connection: sa.Connection, request_id: str, worker: str, now: float,
                    progress: dict[str, Any], plan_id: str | None = None) -> None:
    """Record the steps of a request that are done or about to begin.

    :raises StoreError: another worker has taken it over; nothing may be done.
    """
    values: dict[str, Any] = {'progress': json.dumps(progress), 'heartbeat_at': now}
    if plan_id is not None:
        values['plan_id'] = plan_id
    _update_own_request(connection, request_id, worker, values)


def record_reply(connection: sa.Connection, request_id: str, worker: str, now: float, reply: str,
                 failed: bool) -> None:
    """Record the reply of a request.

    :raises StoreError: another worker has taken it over.
    """
    _update_own_request(connection, request_id, worker,
                        {'reply': reply, 'failed': failed, 'ended_at': now})


def _update_own_request(connection: sa.Connection, request_id: str, worker: str,
                        values: dict[str, Any]) -> None:
    done = connection.execute(
        sa.update(_request)
        .where(_request.c.request_id == request_id, _request.c.worker == worker,
               _request.c.ended_at.is_(None))
        .values(**values))
    if not done.rowcount:
        raise exception.StoreError(
            problem=f'says that another process has taken over request {request_id}',
            remedy='This one leaves it alone.')


def list_undelivered_replies(connection: sa.Connection, workers: Collection[str], before: float,
                             limit: int, but: Collection[str] = ()) -> list[MigfraRequest]:
    """Return ended requests whose result has not arrived yet, oldest first.

    :param workers: include all requests that these workers ended.
    :param before: include requests of any worker that ended earlier.
    :param but: leave these requests out.
    """
    return [_parse_request_row(row) for row in connection.execute(
        sa.select(_request)
        .where(_request.c.ended_at.is_not(None), _request.c.told_at.is_(None), sa.or_(
            _request.c.worker.in_(sorted(workers)), _request.c.ended_at < before),
            _request.c.request_id.not_in(sorted(but)))
        .order_by(_request.c.ended_at, _request.c.request_id).limit(limit)).mappings()]


def record_reply_delivery(connection: sa.Connection, request_id: str, now: float | None) -> None:
    """Record that the result has arrived; ``now`` None: it must be sent once more."""
    connection.execute(sa.update(_request).where(
        _request.c.request_id == request_id, _request.c.ended_at.is_not(None))
        .values(told_at=now))


def list_newest_requests(connection: sa.Connection, limit: int) -> list[MigfraRequest]:
    """Return the newest requests, newest first."""
    return [_parse_request_row(row) for row in connection.execute(
        sa.select(_request).order_by(_request.c.received_at.desc(), _request.c.request_id)
        .limit(limit)).mappings()]


def count_open_requests(connection: sa.Connection) -> list[tuple[str, int, float]]:
    """Return for each kind the number of open requests, and when the oldest came."""
    return [(row.kind, int(row.number), float(row.since)) for row in connection.execute(
        sa.select(_request.c.kind, sa.func.count().label('number'),
                  sa.func.min(_request.c.received_at).label('since'))
        .where(_request.c.ended_at.is_(None)).group_by(_request.c.kind)
        .order_by(_request.c.kind))]


def purge_requests(connection: sa.Connection, older_than: float, now: float) -> bool:
    """Delete a batch of requests that were answered before; return whether more are left.

    Requests of the last :data:`KEPT_SECONDS` stay: a broker may deliver their messages once more.
    """
    return statements.delete_oldest(
        connection, _request.c.ended_at, min(older_than, now - KEPT_SECONDS),
        _request.c.told_at.is_not(None))


def _parse_request_row(row: sa.RowMapping) -> MigfraRequest:
    """Read a row; a damaged row must not hide the rows behind it."""
    values = {field.name: row[field.name] for field in dataclasses.fields(MigfraRequest)
              if field.name != 'damaged'}
    try:
        progress = json.loads(row['progress'] or '{}')
    except ValueError:
        progress = None
    damaged = not isinstance(progress, dict)
    return MigfraRequest(**values | {'progress': {} if damaged else progress, 'damaged': damaged})
