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
"""Readings of the cloud, which engines publish in parts that change separately.

A publication is one transaction: readers see all parts of one version, or of the one before. A
scope has one reading, the newest one. This module does not know what the parts mean.
"""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import json
from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_reading, _part, _scope = tables.reading, tables.reading_part, tables.reading_scope

#: Bytes of a row: a statement with one row, each byte escaped, stays below 1 MiB, the smallest
#: default of max_allowed_packet.
CHUNK_BYTES = 256 * 1024
#: Seconds after which a reading that is not published again is deleted.
KEEP_SECONDS = 7 * 86400.0
#: Versions that a reader tries when each is replaced while its parts are read.
_LOADS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class ReadingVersion:
    """The newest reading of a scope. ``taken_at`` and ``published_at`` in epoch seconds."""

    scope: str
    reading_id: str
    version: int
    taken_at: float
    published_at: float


@dataclasses.dataclass(frozen=True, slots=True)
class Publication:
    """One version of a reading.

    ``version`` is 1 for the first one, which has all parts. ``names`` are those of all parts;
    ``changed`` has the bytes of the parts that are new or changed since the version before.
    ``scopes`` are the scopes that the reading is for.
    """

    reading_id: str
    engine: str
    version: int
    format: str
    taken_at: float
    names: Collection[str]
    changed: Mapping[str, bytes]
    scopes: Collection[str]


@dataclasses.dataclass(frozen=True, slots=True)
class StoredReading:
    """A reading in the database.

    ``versions``: by part, the version that changed it. ``parts`` has the bytes of the parts that
    the reader lacked.
    """

    reading_id: str
    engine: str
    version: int
    format: str
    taken_at: float
    published_at: float
    versions: Mapping[str, int]
    parts: Mapping[str, bytes]


class _PartsReplaced(Exception):
    """The parts do not belong to the row of the reading: another version came between."""


def write_publication(connection: sa.Connection, publication: Publication, now: float) -> bool:
    """Write the version; return False, and write nothing, where the one before is not there.

    :param now: time of the database.
    """
    mine = _reading.c.reading_id == publication.reading_id
    stored = connection.execute(sa.select(_reading.c.version, _reading.c.parts).where(mine)
                                .with_for_update()).first()
    if publication.version > 1 and (stored is None or stored.version != publication.version - 1):
        return False
    before: dict[str, int] = {} if stored is None else json.loads(stored.parts)
    versions = {name: before.get(name, publication.version) for name in publication.names}
    versions.update(dict.fromkeys(publication.changed, publication.version))
    _delete_parts(connection, publication.reading_id,
                  [*(before.keys() - versions.keys()), *publication.changed])
    rows = [{'reading_id': publication.reading_id, 'name': name, 'number': number,
             'version': publication.version, 'data': data[begin:begin + CHUNK_BYTES]}
            for name, data in publication.changed.items()
            for number, begin in enumerate(range(0, max(1, len(data)), CHUNK_BYTES))]
    if rows:
        connection.execute(sa.insert(_part), rows)
    values = {'engine': publication.engine[:tables.NAME_LENGTH], 'version': publication.version,
              'format': publication.format, 'taken_at': publication.taken_at,
              'published_at': now,
              'parts': json.dumps(versions, separators=(',', ':'))}
    if stored is None:
        connection.execute(sa.insert(_reading).values(
            reading_id=publication.reading_id, **values))
    else:
        connection.execute(sa.update(_reading).where(mine).values(values))
    _point_scopes(connection, publication)
    _delete_unused(connection, publication.reading_id, now)
    return True


def _point_scopes(connection: sa.Connection, publication: Publication) -> None:
    """Make the reading that of its scopes, but for scopes with a later one of another engine."""
    connection.execute(sa.delete(_scope).where(
        _scope.c.reading_id == publication.reading_id,
        _scope.c.scope.not_in(sorted(publication.scopes))))
    others = {row.scope: row for row in connection.execute(
        sa.select(_scope.c.scope, _scope.c.reading_id, _reading.c.taken_at)
        .join_from(_scope, _reading, _scope.c.reading_id == _reading.c.reading_id, isouter=True)
        .where(_scope.c.scope.in_(sorted(publication.scopes))))}
    for scope in sorted(publication.scopes):
        other = others.get(scope)
        if other is None:
            connection.execute(sa.insert(_scope).values(
                scope=scope, reading_id=publication.reading_id))
        elif other.reading_id != publication.reading_id and (
                other.taken_at is None or other.taken_at <= publication.taken_at):
            connection.execute(sa.update(_scope).where(_scope.c.scope == scope).values(
                reading_id=publication.reading_id))


def _delete_unused(connection: sa.Connection, kept: str, now: float) -> None:
    """Delete readings of other engines that no scope has, and old ones with their scopes."""
    unused = list(connection.scalars(
        sa.select(_reading.c.reading_id).where(_reading.c.reading_id != kept, sa.or_(
            _reading.c.published_at < now - KEEP_SECONDS,
            _reading.c.reading_id.not_in(sa.select(_scope.c.reading_id))))))
    if not unused:
        return
    for table in (_scope, _part, _reading):
        connection.execute(sa.delete(table).where(table.c.reading_id.in_(unused)))


def _delete_parts(connection: sa.Connection, reading_id: str, names: Collection[str]) -> None:
    if names:
        connection.execute(sa.delete(_part).where(
            _part.c.reading_id == reading_id, _part.c.name.in_(sorted(names))))


def list_versions(connection: sa.Connection) -> list[ReadingVersion]:
    """Return the newest reading of each scope, by scope."""
    return [ReadingVersion(row.scope, row.reading_id, row.version, row.taken_at, row.published_at)
            for row in connection.execute(_VERSIONS)]


_VERSIONS: sa.Select[Any] = sa.select(
    _scope.c.scope, _reading.c.reading_id, _reading.c.version, _reading.c.taken_at,
    _reading.c.published_at).join_from(
        _scope, _reading, _scope.c.reading_id == _reading.c.reading_id).order_by(_scope.c.scope)


def load_reading(connection: sa.Connection, reading_id: str,
                 known: Mapping[str, int]) -> StoredReading | None:
    """Return the reading with the parts that are not known; None: it was deleted.

    :param known: versions of the parts that the caller has, by name.
    :raises _PartsReplaced: another version was written meanwhile.
    """
    row = connection.execute(
        sa.select(_reading).where(_reading.c.reading_id == reading_id)).first()
    if row is None:
        return None
    versions: dict[str, int] = json.loads(row.parts)
    missing = sorted(name for name, version in versions.items() if known.get(name) != version)
    chunks: dict[str, list[bytes]] = {}
    found: dict[str, int] = {}
    for part in connection.execute(
            sa.select(_part.c.name, _part.c.version, _part.c.data)
            .where(_part.c.reading_id == reading_id, _part.c.name.in_(missing))
            .order_by(_part.c.name, _part.c.number)) if missing else ():
        chunks.setdefault(part.name, []).append(bytes(part.data))
        found[part.name] = part.version
    if found != {name: versions[name] for name in missing}:
        raise _PartsReplaced
    return StoredReading(row.reading_id, row.engine, row.version, row.format, row.taken_at,
                         row.published_at, versions,
                         {name: b''.join(data) for name, data in chunks.items()})


class ReadingRepository(transactions.Repository):
    """Readings of the cloud by engines."""

    def publish_reading(self, publication: Publication) -> bool:
        """Write a version of a reading; return False where the version before is not there.

        Then nothing is written, and the caller publishes all parts as version 1 of a reading.
        """
        def write(connection: sa.Connection) -> bool:
            now = float(connection.execute(sa.select(self._runner.build_now_clause())).scalar_one())
            return write_publication(connection, publication, now)
        return self._runner.run_transaction(write)

    def list_versions(self) -> list[ReadingVersion]:
        """Return the newest reading of each scope, by scope."""
        return self._runner.run_read(list_versions)

    def load_reading(self, reading_id: str,
                     known: Mapping[str, int] | None = None) -> StoredReading | None:
        """Return a reading with the parts that are not known; None: it was deleted.

        :param known: versions of the parts that the caller has, by name.
        :raises StoreError: its parts do not fit together, at each try.
        """
        for _try in range(_LOADS):
            try:
                return self._runner.run_read(lambda c: load_reading(c, reading_id, known or {}))
            except _PartsReplaced:
                continue
        raise exception.StoreError(
            problem=f'has a reading of the cloud whose parts do not fit together ({reading_id})',
            remedy='The engine writes all parts when it is started again.')
