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
"""Encoded readings: a decoded one equals the encoded one, and only changed parts are sent."""

import dataclasses

import hypothesis
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.snapshots import readings
from tests.unit import clouds


def make_reading(k=None, **cluster):
    request = clouds.request(k or clouds.Knobs(7, clean=False, trees=True, groups=2, policies=2))
    return readings.CloudReading(
        5.0, dataclasses.replace(request.cluster, taken_at=5.0, scope=model.UNASSIGNED,
                                 scope_hosts=frozenset(), unreadable_hosts=frozenset(), **cluster),
        ('blue',), request.policies, request.options, {
            'blue': readings.ScopeReading(request.scores, dataclasses.replace(
                request.history, fresh={}, completed=(), measured=(), move_times={},
                notices={}), 2)})


class Reader:
    """A decoder that receives each encoding of one encoder, as through the database."""

    def __init__(self):
        self.encoder, self.decoder = readings.ReadingEncoder(), readings.ReadingDecoder()
        self.versions, self.parts, self.version = {}, {}, 0

    def pass_on(self, reading):
        """Return (the decoded reading, the names of the parts that have changed)."""
        encoded = self.encoder.encode_reading(reading)
        self.version += 1
        self.versions = {name: self.version if name in encoded.changed else self.versions[name]
                         for name in encoded.names}
        self.parts.update(encoded.changed)
        missing = {name for name, version in self.versions.items()
                   if self.decoder.known.get(name) != version}
        decoded = self.decoder.decode_reading(readings.FORMAT, self.versions,
                                              {name: self.parts[name] for name in missing})
        return decoded, set(encoded.changed)


@clouds.examples(60)
@hypothesis.given(clouds.knobs(trees=True, devices=True))
def test_decoded_reading_equals_the_encoded_one(k):
    reading = make_reading(k)
    assert Reader().pass_on(reading)[0] == reading


def test_unchanged_parts_are_neither_sent_nor_decoded_again():
    reading, reader = make_reading(), Reader()
    first, changed = reader.pass_on(reading)
    assert 'cloud' in changed and any(name.startswith('hosts/') for name in changed)
    copied = dataclasses.replace(reading, taken_at=65.0, cluster=dataclasses.replace(
        reading.cluster, taken_at=65.0, instances={
            uuid: dataclasses.replace(instance)
            for uuid, instance in reading.cluster.instances.items()}))
    later, changed = reader.pass_on(copied)
    assert later == copied
    assert {name.partition('/')[0] for name in changed} == {'header', 'values'}
    uuid = min(reading.cluster.instances)
    assert later.cluster.instances[uuid] is first.cluster.instances[uuid]


def test_moved_and_deleted_instances_leave_their_part():
    reading, reader = make_reading(), Reader()
    reader.pass_on(reading)
    moved, deleted = sorted(reading.cluster.instances)[:2]
    other = max(host for host in reading.cluster.hosts
                if host != reading.cluster.instances[moved].host)
    instances = {**reading.cluster.instances, moved: dataclasses.replace(
        reading.cluster.instances[moved], host=other)}
    del instances[deleted]
    after = make_reading(instances=instances)
    assert reader.pass_on(after)[0] == after


def test_deleted_host_takes_its_part_away():
    reading, reader = make_reading(), Reader()
    reader.pass_on(reading)
    host = min(reading.cluster.hosts)
    after = make_reading(hosts={name: h for name, h in reading.cluster.hosts.items()
                                if name != host},
                         instances={uuid: i for uuid, i in reading.cluster.instances.items()
                                    if i.host != host})
    assert reader.pass_on(after)[0] == after


def test_instances_of_one_name_stay_two():
    uuids = sorted(make_reading().cluster.instances)[:2]
    instances = make_reading().cluster.instances
    reading = make_reading(instances={**instances, **{
        uuid: dataclasses.replace(instances[uuid], name='web {0} %s ../\x1b') for uuid in uuids}})
    decoded = Reader().pass_on(reading)[0]
    assert [decoded.cluster.instances[uuid].name for uuid in uuids] == ['web {0} %s ../\x1b'] * 2


def test_encoder_that_forgets_sends_all_parts():
    reading, reader = make_reading(), Reader()
    _decoded, first = reader.pass_on(reading)
    reader.encoder.forget_parts()
    assert reader.pass_on(reading)[1] == first


@pytest.mark.parametrize(('name', 'damage'), [
    ('hosts', lambda data: data[:-3]), ('hosts', lambda data: b'[]'),
    ('cloud', lambda data: data[::-1]), ('keys', lambda data: readings._dump(tuple[str, ...], ())),
    ('values', lambda data: data[:-8]), ('values', lambda data: data[:-1]),
    ('header', lambda data: readings._dump(dict[str, int], {'taken_at': 1}))])
def test_damaged_part_is_named_and_the_next_reading_is_decoded(name, damage):
    encoded = readings.ReadingEncoder().encode_reading(make_reading())
    part = min(part for part in encoded.names if part.startswith(name))
    decoder, versions = readings.ReadingDecoder(), dict.fromkeys(encoded.names, 1)
    with pytest.raises(exception.SnapshotError) as raised:
        decoder.decode_reading(readings.FORMAT, versions,
                               {**encoded.changed, part: damage(encoded.changed[part])})
    assert name in str(raised.value) or 'header' in str(raised.value)
    assert not decoder.known, 'all parts are read again'
    assert decoder.decode_reading(readings.FORMAT, versions, encoded.changed) == make_reading()


def test_missing_part_is_an_error():
    encoded = readings.ReadingEncoder().encode_reading(make_reading())
    for name in ('cloud', 'header', 'values/0', 'keys/0'):
        parts = {part: data for part, data in encoded.changed.items() if part != name}
        with pytest.raises(exception.SnapshotError):
            readings.ReadingDecoder().decode_reading(
                readings.FORMAT, dict.fromkeys(parts, 1), parts)


def test_part_that_would_fill_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(readings, 'MAX_BYTES', 100)
    encoded = readings.ReadingEncoder().encode_reading(make_reading())
    with pytest.raises(exception.SnapshotError, match='too large'):
        readings.ReadingDecoder().decode_reading(
            readings.FORMAT, dict.fromkeys(encoded.names, 1), encoded.changed)


def test_other_format_is_refused_by_its_name():
    with pytest.raises(exception.SnapshotError, match="has format '2', and this release reads '1'"):
        readings.ReadingDecoder().decode_reading('2', {}, {})


def test_fields_of_a_later_release_are_ignored():
    instance = model.Instance('u', 'h')
    text = readings._make_adapter(model.Instance).dump_json(instance)
    later = text[:-1] + b',"surprise":[1]}'
    assert readings._make_adapter(model.Instance).validate_json(later) == instance
