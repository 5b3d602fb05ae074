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


"""Each worker of nova-scheduler has its own record, and the engine reads all records."""

import dataclasses
import json
import os
import time
from unittest import mock

from oslo_config import cfg
import pytest
import yaml

from kronos_nova import model
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.feed import feed_channel
from kronos_nova.feed import periodic
from kronos_nova.feed import raw_cache
from kronos_nova.feed import worker_records
from kronos_nova.scheduler import guard
from kronos_nova.scheduler import runtime
from kronos_nova.scheduler import score_cache
from kronos_nova.sources import base
from tests.unit import nova_fakes

NOW = 1e9
RECORD = worker_records.WorkerRecord(
    'controller1', 7, NOW - 100, NOW,
    (worker_records.FileState('/etc/kronos/policies.yaml', 3, 12.5),
     worker_records.FileState('/etc/kronos/gpu.yaml', 0, None, 'cpu: HTTP 503')),
    {'KronosWeigher': worker_records.PluginWork(5, 0.25),
     'KronosCapacityFilter': worker_records.PluginWork(5, 0.5, 2)},
    {('KronosWeigher', 'KeyError'): worker_records.FaultCount(3, NOW - 5)})


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    scheduler_conf.register(conf)
    raw_cache.register(conf)
    conf([], default_config_files=[])
    conf.set_override('directory', str(tmp_path), 'kronos_channel')
    conf.set_override('hmac_keys', ['k' * 32], 'kronos_channel')
    return conf


@pytest.fixture
def clock():
    with mock.patch.object(time, 'time', autospec=True, return_value=NOW) as found:
        yield found


def slot_of(conf):
    return worker_records.RecordSlot(raw_cache.RawCache(conf))


def read(conf):
    return worker_records.RecordReader(conf).read()


def test_the_engine_reads_the_record_that_a_worker_wrote(conf, clock):
    slot_of(conf).write(RECORD)
    reading = read(conf)
    assert list(reading.records.values()) == [RECORD] and reading.refused == 0


def test_workers_keep_records_of_their_own_though_they_hash_alike(conf, clock):
    with mock.patch.object(worker_records.zlib, 'crc32', autospec=True, return_value=255):
        slots = [(slot_of(conf), dataclasses.replace(RECORD, pid=pid)) for pid in range(1, 6)]
        for _ in range(2):
            for slot, record in slots:
                slot.write(record)
    reading = read(conf)
    assert sorted(record.pid for record in reading.records.values()) == [1, 2, 3, 4, 5]
    assert sorted(reading.records) == [0, 1, 2, 3, 255]


def test_of_two_workers_that_take_one_key_at_once_one_takes_another(conf, clock):
    slots = [(slot_of(conf), dataclasses.replace(RECORD, started_at=start)) for start in (1, 2)]
    with mock.patch.object(worker_records, 'read_record', autospec=True, return_value=None):
        for slot, record in slots:
            slot.write(record)
    assert len(read(conf).records) == 1
    for slot, record in slots:
        slot.write(record)
    assert {record.started_at for record in read(conf).records.values()} == {1, 2}


def test_an_old_record_is_absent_and_its_key_is_free(conf, clock):
    slot_of(conf).write(RECORD)
    clock.return_value = NOW + worker_records.MAX_AGE
    assert read(conf).records == {}
    successor = dataclasses.replace(RECORD, started_at=NOW, written_at=clock.return_value)
    slot_of(conf).write(successor)
    assert list(read(conf).records.values()) == [successor]


@pytest.mark.parametrize('ahead', [-121, 121, 1e9])
def test_a_clock_that_is_wrong_makes_no_record_eternal(conf, clock, ahead):
    slot_of(conf).write(dataclasses.replace(RECORD, written_at=NOW + ahead))
    assert read(conf).records == {}


def test_the_number_of_keys_is_bounded(conf, clock):
    with mock.patch.object(worker_records, 'MAX_WORKERS', 3):
        for pid in range(3):
            slot_of(conf).write(dataclasses.replace(RECORD, pid=pid))
        with pytest.raises(LookupError, match='3 workers'):
            slot_of(conf).write(dataclasses.replace(RECORD, pid=3))


def test_a_record_is_bounded_for_any_content():
    long = 'x\n' * 5000
    record = dataclasses.replace(
        RECORD, files=tuple(worker_records.FileState(f'{n}{long}', 0, 1.0, long)
                            for n in range(100)),
        plugins={f'{n}{long}': worker_records.PluginWork(1, 1.0) for n in range(100)},
        faults={(f'{n}{long}', long): worker_records.FaultCount(1, n) for n in range(1000)})
    text = worker_records.dump_record(record)
    assert len(text) < 32_000
    parsed = worker_records.parse_record(text)
    assert len(parsed.files) == worker_records.MAX_FILES
    # The newest faults are those that an operator looks for.
    assert {found.newest for found in parsed.faults.values()} == set(range(968, 1000))


def text_of(**fields):
    return json.dumps({**json.loads(worker_records.dump_record(RECORD)), **fields})


@pytest.mark.parametrize('text', [
    'nothing', '[]', '{}', '[' * 5000, text_of(version=2), text_of(host=None),
    text_of(host='x' * 300), text_of(pid=-1), text_of(pid=True), text_of(pid=10 ** 30),
    text_of(started_at='x'), text_of(written_at=float('nan')), text_of(written_at=[]),
    text_of(files=[['a', 1, None]]), text_of(files=[['a', 1, None, ''], ['a', 1, None, '']]),
    text_of(files=[['a', 1.5, None, '']]), text_of(files=[['a', 1, -1, '']]),
    text_of(files=[['a', 1, None, '']] * 17), text_of(files=1), text_of(plugins=[1]),
    text_of(plugins=[['x', 1, 'much', 0]]), text_of(faults=[['x', 1, 1, 1]]),
    text_of(faults=[[{}, 'x', 1, 1]]), text_of(faults=[['x', 'y', 1, 1]] * 33)])
def test_a_record_that_is_not_ours_is_refused_and_counted(conf, clock, text):
    cache = raw_cache.RawCache(conf)
    cache.set(f'{worker_records.KEY}0', text)
    reading = read(conf)
    assert (reading.records, reading.refused) == ({}, 1)
    # Its key is free.
    with mock.patch.object(worker_records.zlib, 'crc32', autospec=True, return_value=0):
        slot_of(conf).write(RECORD)
    assert read(conf).records == {0: RECORD}


def test_a_record_of_another_signer_is_refused(conf, clock):
    slot_of(conf).write(RECORD)
    conf.set_override('hmac_keys', ['z' * 32], 'kronos_channel')
    assert (read(conf).records, read(conf).refused) == ({}, 1)


def test_names_that_no_page_could_show_are_cleaned(conf):
    record = worker_records.parse_record(text_of(host='a\ud800\n\x00b'))
    assert record.host == 'a? ?b'


def test_a_forked_worker_is_another_worker(clock):
    identity = worker_records.WorkerIdentity()
    first = identity.make_record()
    clock.return_value += 5
    assert identity.make_record().owner == first.owner == (first.host, os.getpid(), NOW)
    with mock.patch.object(os, 'getpid', autospec=True, return_value=4242):
        assert identity.make_record().owner == (first.host, 4242, NOW + 5)


class Source(base.MetricsSource):
    answer = None

    def fetch(self, policy, *, profile=True):
        return model.PolicySamples(policy.name, self.answer or model.QueryResult(
            policy.imbalance_query, model.SourceHealth.HEALTHY, series={'cn1': 0.25}))

    def health(self):
        return model.SourceHealth.HEALTHY, 'fake'


@pytest.fixture
def world(conf, tmp_path):
    """A scoreboard and a notice board of one worker, without threads."""
    path = tmp_path / 'policies.yaml'
    path.write_text(yaml.safe_dump({'policies': [
        {'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu'}]}))
    conf.set_override('policies_file', [str(path)], 'kronos')
    faults, source = periodic.FaultCounters(), Source()
    with mock.patch.object(periodic.BackgroundRefresher, 'ensure_running', autospec=True), \
            mock.patch('kronos_nova.plugins.load_plugin', autospec=True,
                       return_value=lambda conf: source):
        scores = score_cache.ScoreCache(conf, faults)
        scores.group_scored_hosts([nova_fakes.HostState('cn1', 'cn1')])
        yield scores, runtime.NoticeBoard(conf, faults, scores), faults, source
    guard.ACTIVITY.clear()


def test_a_worker_publishes_its_scores_its_work_and_its_faults(conf, world):
    scores, notices, faults, _ = world
    guard.ACTIVITY.clear()

    class Filter:
        @guard.pass_hosts_on_error
        def filter_all(self, hosts, spec):
            return hosts[1 // spec:]

    assert Filter().filter_all('abc', 1) == ['b', 'c']
    assert Filter().filter_all('abc', 0) == ['a', 'b', 'c']
    faults.count_swallowed_error('KronosWeigher', KeyError('x'))
    scores.refresh_scores()
    notices.refresh_publication()
    record, = read(conf).records.values()
    file, = record.files
    assert (file.path, file.hosts, file.reason) == (
        conf.kronos.policies_file[0], 1, '') and file.age >= 0
    work = record.plugins['Filter']
    assert (work.requests, work.refused_hosts) == (2, 1) and work.seconds > 0
    assert record.faults['KronosWeigher', 'KeyError'].number == 1
    assert abs(record.faults['KronosWeigher', 'KeyError'].newest - time.time()) < 60


def test_a_worker_without_scores_says_why(conf, world):
    scores, notices, _, source = world
    notices.refresh_publication()
    assert next(iter(read(conf).records.values())).files == ()
    source.answer = model.QueryResult('cpu', model.SourceHealth.UNREACHABLE, error='it is away')
    scores.refresh_scores()
    notices._record_due = 0.0
    notices.refresh_publication()
    record, = read(conf).records.values()
    file, = record.files
    assert file.hosts == 0 and 'it is away' in file.reason


def test_a_cache_that_fails_costs_the_record_alone(conf, world):
    scores, notices, faults, _ = world
    now = time.time()
    notice = feed_channel.PublishedState(written_at=now, expires_at=now + 60)
    feed_channel.FeedChannel(conf).write(notice)
    with mock.patch.object(raw_cache.RawCache, 'set', autospec=True,
                           side_effect=ConnectionError):
        notices.refresh_publication()
    assert notices.read_publication() == notice
    assert faults.counts == {'the record for kronos-engine: ConnectionError': 1}
    with mock.patch.object(feed_channel.FeedChannel, 'read', autospec=True,
                           side_effect=ConnectionError):
        notices._record_due = 0.0
        with pytest.raises(ConnectionError):
            notices.refresh_publication()
    assert len(read(conf).records) == 1


def test_records_are_not_written_with_every_look_at_the_notices(conf, world):
    _, notices, _, _ = world
    with mock.patch.object(raw_cache.RawCache, 'set', autospec=True) as written:
        notices.refresh_publication()
        notices.refresh_publication()
    assert written.call_count == 1


def test_without_a_channel_nothing_is_published(conf, world):
    _, notices, faults, _ = world
    conf.set_override('directory', None, 'kronos_channel')
    notices.refresh_publication()
    assert not faults.counts
