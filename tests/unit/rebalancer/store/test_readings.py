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
"""Readings of the cloud: whole versions, one newest reading of each scope."""

import dataclasses

import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova.rebalancer.store import readings
from kronos_nova.rebalancer.store import tables

ONE, TWO = '1' * 36, '2' * 36
PARTS = {'hosts/1': b'one', 'hosts/2': b'\x00\xff' * 200_000, 'header': b''}


def publish(store, reading_id=ONE, version=1, changed=PARTS, names=None, taken_at=100.0,
            scopes=('blue',)):
    return store.readings.publish_reading(readings.Publication(
        reading_id, 'engine', version, '1', taken_at, changed.keys() if names is None else names,
        changed, scopes))


def read_owners(store):
    return {version.scope: version.reading_id for version in store.readings.list_versions()}


def test_reading_that_no_engine_published_is_not_found(store):
    assert store.readings.list_versions() == []
    assert store.readings.load_reading(ONE) is None


def test_parts_of_any_size_and_byte_come_back(store):
    assert publish(store)
    (version,) = store.readings.list_versions()
    assert (version.scope, version.reading_id, version.version) == ('blue', ONE, 1)
    assert version.taken_at == 100.0 and version.published_at > 1_600_000_000
    stored = store.readings.load_reading(ONE)
    assert dict(stored.parts) == PARTS and set(stored.versions.values()) == {1}
    with store.engine.connect() as connection:
        sizes = list(connection.scalars(sa.select(sa.func.length(tables.reading_part.c.data))))
    assert len(sizes) == 4 and max(sizes) <= readings.CHUNK_BYTES


def test_later_version_brings_changed_parts_alone(store):
    publish(store)
    known = store.readings.load_reading(ONE).versions
    assert publish(store, version=2, changed={'header': b'new', 'hosts/3': b'three'},
                   names={'header', 'hosts/1', 'hosts/3'}, taken_at=160.0)
    later = store.readings.load_reading(ONE, known)
    assert later.versions == {'hosts/1': 1, 'header': 2, 'hosts/3': 2}
    assert later.parts == {'header': b'new', 'hosts/3': b'three'}
    whole = store.readings.load_reading(ONE)
    assert whole.parts == {'header': b'new', 'hosts/1': b'one', 'hosts/3': b'three'}


def test_version_without_the_one_before_is_not_written(store):
    assert not publish(store, version=2)
    publish(store)
    assert not publish(store, version=3) and not publish(store, TWO, version=2)
    assert store.readings.load_reading(ONE).version == 1


def test_scope_goes_to_the_later_reading_and_the_unused_one_is_deleted(store):
    publish(store, scopes=('blue', 'red'))
    publish(store, TWO, taken_at=130.0, scopes=('blue',))
    assert read_owners(store) == {'blue': TWO, 'red': ONE}
    assert publish(store, ONE, version=2, taken_at=160.0, scopes=('blue', 'red'))
    assert read_owners(store) == {'blue': ONE, 'red': ONE}
    assert store.readings.load_reading(TWO) is None


def test_engine_that_wakes_up_late_takes_no_scope_back(store):
    publish(store, taken_at=100.0)
    publish(store, TWO, taken_at=130.0)
    publish(store, ONE, taken_at=99.0)
    assert read_owners(store) == {'blue': TWO}


def test_scope_that_its_engine_gives_up_has_no_reading(store):
    publish(store, scopes=('blue', 'red'))
    publish(store, version=2, changed={'header': b'x'}, names=PARTS.keys(), scopes=('red',))
    assert read_owners(store) == {'red': ONE}


def test_reading_of_an_engine_that_is_gone_is_deleted_after_days(store):
    publish(store)
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.reading).values(
            published_at=store.now() - readings.KEEP_SECONDS - 1))
    publish(store, TWO, scopes=('red',))
    assert read_owners(store) == {'red': TWO}
    with store.engine.connect() as connection:
        assert set(connection.scalars(sa.select(tables.reading_part.c.reading_id))) == {TWO}


def test_parts_of_another_version_are_never_taken(store):
    publish(store)
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.reading_part).where(
            tables.reading_part.c.name == 'hosts/1').values(version=7))
    with pytest.raises(exception.StoreError, match='do not fit together'):
        store.readings.load_reading(ONE)
    stored = store.readings.load_reading(ONE, {'hosts/1': 1})
    assert stored.parts.keys() == PARTS.keys() - {'hosts/1'}


def test_reader_takes_the_version_that_replaces_the_one_it_began_with(store):
    """On PostgreSQL each statement sees the newest version."""
    publish(store)
    real, begun = store.readings._runner, []

    class Runner:
        def run_read(self, step):
            if not begun:
                begun.append(True)
                raise readings._PartsReplaced
            return real.run_read(step)

    stored = readings.ReadingRepository(Runner()).load_reading(ONE)
    assert begun and dataclasses.asdict(stored)['version'] == 1
