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


"""The workers of one host fetch once for all, and alone when the cache fails."""

import contextlib
import dataclasses
import json
import math
import multiprocessing
import os
import signal
import time
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg
import pytest
import yaml

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.feed import periodic
from kronos_nova.feed import raw_cache
from kronos_nova.scheduler import score_cache
from kronos_nova.scheduler import shared_source
from kronos_nova.sources import answer
from kronos_nova.sources import base
from tests.fixtures import prometheus_api
from tests.unit import nova_fakes

WORKERS = 6
POLICIES = ('cpu', 'memory')
INTERVAL = 60.0
MAX_SERIES = 50


def policy_of(name='cpu', **fields):
    return policies.parse_policies({'policies': [
        {'name': name, 'weight': 1.0, 'imbalance_query': name, **fields}]}).policies[0]


def conf_of(directory, url='http://127.0.0.1:1', timeout=60.0):
    conf = cfg.ConfigOpts()
    scheduler_conf.register(conf)
    raw_cache.register(conf)
    conf([])
    for group, options in {
            'kronos': {'share_scores': True, 'refresh_interval': INTERVAL,
                       'policies_file': [os.path.join(directory, 'policies.yaml')]},
            'prometheus': {'url': url, 'timeout': timeout, 'max_retries': 0,
                           'max_series': MAX_SERIES},
            'kronos_channel': {'directory': directory}}.items():
        for name, value in options.items():
            conf.set_override(name, value, group)
    return conf


class Source(base.MetricsSource):
    """Answers at once, and counts."""

    def __init__(self, **fields):
        self.asked = 0
        self.fields = fields

    def fetch(self, policy, *, profile=True):
        self.asked += 1
        return model.PolicySamples(policy.name, model.QueryResult(
            policy.imbalance_query, model.SourceHealth.HEALTHY, series={'cn1': 0.25}),
                                   **self.fields)

    def health(self):
        return model.SourceHealth.HEALTHY, 'fake'


# Real processes and a real HTTP server that counts.


def worker(conf, pipe):
    """Obeys: ``refresh``, or a number of seconds by which the clock goes on."""
    real, ahead = time.monotonic, [0.0]
    with mock.patch('time.monotonic', lambda: real() + ahead[0]):
        board = score_cache.ScoreCache(conf, periodic.FaultCounters())
        hosts = nova_fakes.hosts('cn1', 'cn2')
        with mock.patch.object(periodic.BackgroundRefresher, 'ensure_running', autospec=True):
            board.group_scored_hosts(hosts)
            while (order := pipe.recv()) is not None:
                if order == 'refresh':
                    board.refresh_scores()
                else:
                    ahead[0] += order
                [group] = board.group_scored_hosts(hosts)
                pipe.send(group.reason or dict(group.snapshot.headroom))


@contextlib.contextmanager
def workers(conf, count=WORKERS):
    """(process, pipe) of each; ended afterwards."""
    fork = multiprocessing.get_context('fork')
    found = []
    try:
        for _ in range(count):
            ours, theirs = fork.Pipe()
            process = fork.Process(target=worker, args=(conf, theirs), daemon=True)
            process.start()
            found.append((process, ours))
        yield found
        for process, pipe in found:
            if process.is_alive():
                pipe.send(None)
                process.join(60)
    finally:
        for process, _ in found:
            if process.is_alive():
                process.kill()
                process.join(60)


def tell(some, order):
    """Give all the order at once; their answers."""
    for _, pipe in some:
        pipe.send(order)
    for _, pipe in some:
        assert pipe.poll(240)
    return [pipe.recv() for _, pipe in some]


@pytest.fixture
def api(tmp_path):
    (tmp_path / 'policies.yaml').write_text(yaml.safe_dump({'policies': [
        {'name': name, 'weight': 0.5, 'imbalance_query': name} for name in POLICIES]}))
    with prometheus_api.running() as found:
        found.series = {name: {'cn1': 0.25, 'cn2': 0.75} for name in POLICIES}
        yield found


SCORES = {'cn1': 0.75, 'cn2': 0.25}


def test_all_workers_of_a_host_ask_each_policy_once_per_interval(api, tmp_path):
    with workers(conf_of(str(tmp_path), api.url)) as all_of_them:
        for interval in (1, 2, 3):
            assert tell(all_of_them, 'refresh') == [SCORES] * WORKERS
            assert tell(all_of_them, 'refresh') == [SCORES] * WORKERS
            asked = [form['query'] for _, _, _, form in api.requests]
            assert sorted(asked) == sorted(POLICIES * interval)
            tell(all_of_them, INTERVAL + 1)


def test_another_worker_takes_over_when_the_one_that_asks_dies(api, tmp_path):
    with workers(conf_of(str(tmp_path), api.url, timeout=3.0), 3) as (first, *others):
        api.delay = 600.0
        first[1].send('refresh')
        end = time.monotonic() + 60
        while not api.requests and time.monotonic() < end:
            time.sleep(0.01)
        assert len(api.requests) == 1
        os.kill(first[0].pid, signal.SIGKILL)
        first[0].join(60)
        api.delay = 0.0
        assert tell(others, 'refresh') == [SCORES] * 2
        assert len(api.requests) >= 1 + len(POLICIES)


def test_a_broken_prometheus_is_not_asked_by_everyone(api, tmp_path):
    with workers(conf_of(str(tmp_path), api.url)) as all_of_them:
        api.extra = {'isPartial': True}
        answers = tell(all_of_them, 'refresh')
        assert len(set(answers)) == 1 and 'isPartial' in answers[0]
        assert len(api.requests) == len(POLICIES)


# What is in the cache.


def source_of(tmp_path, **fields):
    own = Source(**fields)
    return shared_source.SharedMetricsSource(conf_of(str(tmp_path)), own), own


@pytest.fixture
def clock():
    with mock.patch.object(shared_source.time, 'monotonic', autospec=True) as monotonic, \
            mock.patch.object(shared_source.time, 'sleep', autospec=True) as sleep:
        monotonic.return_value = 1000.0

        def slept(seconds):
            monotonic.return_value += seconds

        sleep.side_effect = slept
        yield monotonic


def test_an_answer_at_second_hand_is_as_old_as_it_is(tmp_path, clock):
    source_of(tmp_path, age=12.0)[0].fetch(policy_of(), profile=False)
    second, own = source_of(tmp_path)
    clock.return_value += 20.0
    found = second.fetch(policy_of(), profile=False)
    assert own.asked == 0
    assert (found.age, found.asked_ago) == (12.0, 20.0)
    clock.return_value += INTERVAL
    assert second.fetch(policy_of(), profile=False).asked_ago == 0.0
    assert own.asked == 1


def test_unverified_stays_unverified(tmp_path, clock):
    for _ in range(2):
        source, own = source_of(tmp_path)
        assert source.fetch(policy_of(), profile=False).age is None
    assert own.asked == 0


@pytest.mark.parametrize('change', [
    {'threshold': 0.3}, {'host_label': 'node'}, {'imbalance_query': 'other'}])
def test_another_policy_has_another_answer(tmp_path, clock, change):
    source_of(tmp_path)[0].fetch(policy_of(), profile=False)
    source, own = source_of(tmp_path)
    source.fetch(policy_of(**change), profile=False)
    assert own.asked == 1


def test_another_boot_or_host_has_other_answers(tmp_path, clock):
    source_of(tmp_path)[0].fetch(policy_of(), profile=False)
    source, own = source_of(tmp_path)
    source._boot = 'another'
    source.fetch(policy_of(), profile=False)
    assert own.asked == 1


def test_where_the_boot_is_not_known_each_asks(tmp_path):
    with mock.patch.object(shared_source, 'BOOT_ID', tmp_path / 'missing'):
        source, own = source_of(tmp_path)
    for count in (1, 2):
        source.fetch(policy_of(), profile=False)
        assert own.asked == count


def test_profiles_are_not_shared(tmp_path):
    source, own = source_of(tmp_path)
    for count in (1, 2):
        source.fetch(policy_of())
        assert own.asked == count


def good(asked_at=1000.0, **change):
    samples = Source().fetch(policy_of())
    return {**json.loads(shared_source.dump_samples(samples, asked_at)), **change}


def imbalance_of(**change):
    return good(imbalance={**good()['imbalance'], **change})


@pytest.mark.parametrize('value', [
    None, 7, b'x', 'nothing', '[]', '{}', '[' * 100000, json.dumps(good(version=2)),
    json.dumps(good(policy='other')), json.dumps(good(asked_at=1001.0)),
    json.dumps(good(asked_at=1000.0 - INTERVAL)), json.dumps(good(asked_at=math.nan)),
    json.dumps(good(asked_at=True)), json.dumps(good(imbalance=None)),
    json.dumps(good(imbalance=[])), json.dumps(good(capacity=3)),
    json.dumps(good(age='old')), json.dumps(good(age=-1e9)), json.dumps(good(age=10 ** 400)),
    json.dumps(good(age=math.inf)),
    json.dumps(imbalance_of(query='other')), json.dumps(imbalance_of(health='FINE')),
    json.dumps(imbalance_of(error=1)), json.dumps(imbalance_of(error='why')),
    json.dumps(imbalance_of(series=dict.fromkeys(map(str, range(MAX_SERIES + 1)), 0.5))),
    json.dumps(imbalance_of(series={'cn1': math.nan})),
    json.dumps(imbalance_of(series={'cn1': '0.5'})), json.dumps(imbalance_of(series=[1])),
    json.dumps(imbalance_of(warnings='w')), json.dumps(imbalance_of(duplicates=[1]))])
def test_foreign_and_outdated_records_are_ignored(tmp_path, clock, value):
    source, own = source_of(tmp_path)
    record = value if isinstance(value, bytes) else b'kronos-nova 1 \n' + str(value).encode()
    source._cache._store.set(source._build_cache_key(policy_of()), record)
    assert source.fetch(policy_of(), profile=False).imbalance.series == {'cn1': 0.25}
    assert own.asked == 1
    # And it is overwritten.
    source.fetch(policy_of(), profile=False)
    assert own.asked == 1


@pytest.mark.parametrize('lease', [
    'x', 'x y', 'x nan', 'x inf', 'x 999', 'x 99999', 'x -inf', ''])
def test_an_invalid_or_expired_lease_delays_no_worker(tmp_path, clock, lease):
    source, own = source_of(tmp_path)
    source._cache.set(shared_source._build_lease_key(source._build_cache_key(policy_of())), lease)
    source.fetch(policy_of(), profile=False)
    assert own.asked == 1 and clock.return_value == 1000.0 + shared_source.SETTLE


def test_a_lease_of_another_is_waited_for_until_it_ends(tmp_path, clock):
    source, own = source_of(tmp_path)
    lease = shared_source._build_lease_key(source._build_cache_key(policy_of()))
    source._cache.set(lease, 'x 1010')
    source.fetch(policy_of(), profile=False)
    assert own.asked == 1 and clock.return_value == pytest.approx(1010, abs=1)


def test_a_worker_with_a_late_lease_uses_the_answer_of_another_worker(tmp_path, clock):
    source, own = source_of(tmp_path)
    other, others_own = source_of(tmp_path)
    take = source._take_lease

    def late(key):
        other.fetch(policy_of(), profile=False)
        return take(key)

    with mock.patch.object(source, '_take_lease', autospec=True, side_effect=late):
        source.fetch(policy_of(), profile=False)
    assert (own.asked, others_own.asked) == (0, 1)


@pytest.mark.parametrize('broken', [{'directory': None}, {'directory': '/nowhere/at/all'}])
def test_without_a_cache_each_worker_fetches_alone_with_one_log_line(tmp_path, broken):
    conf, own = conf_of(str(tmp_path)), Source()
    for name, value in broken.items():
        conf.set_override(name, value, 'kronos_channel')
    with mock.patch.object(shared_source, 'SETTLE', 0.0), \
            mock.patch.object(shared_source.LOG, 'warning', autospec=True) as warning:
        source = shared_source.SharedMetricsSource(conf, own)
        for count in (1, 2):
            assert source.fetch(policy_of(), profile=False).imbalance.series == {'cn1': 0.25}
            assert own.asked == count
    assert warning.call_count == 1


def test_an_error_of_the_source_ends_the_lease(tmp_path, clock):
    source, own = source_of(tmp_path)
    with mock.patch.object(own, 'fetch', autospec=True, side_effect=RuntimeError('boom')), \
            pytest.raises(RuntimeError):
        source.fetch(policy_of(), profile=False)
    assert source._find_lease_holder(source._build_cache_key(policy_of())) is None


text = st.text('abc \u00e4', min_size=1, max_size=5).map(lambda t: answer.clean_text(t))
texts = st.lists(text, max_size=2).map(tuple)
results = st.builds(
    model.QueryResult, query=st.just('cpu'), health=st.sampled_from(model.SourceHealth),
    series=st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False)),
    error=st.none() | text, warnings=texts, missing_labels=texts,
    duplicates=texts).map(lambda r: r if r.error is None else dataclasses.replace(r, series={}))


@given(results, st.none() | results, st.none() | st.floats(0, 1e6), st.floats(0, INTERVAL - 1))
def test_samples_are_read_as_they_were_written(imbalance, capacity, age, passed):
    samples = model.PolicySamples('cpu', imbalance, capacity=capacity, age=age, taken_at=5.0)
    since = 1000.0 + passed
    found = shared_source.read_answer(shared_source.dump_samples(samples, 1000.0), policy_of(),
                                      since, since,
                                      INTERVAL,
                                      MAX_SERIES)
    assert found == model.PolicySamples('cpu', imbalance, capacity=capacity, age=age,
                                        taken_at=5.0, asked_ago=since - 1000.0)


def test_texts_of_the_cache_are_one_line_in_the_log():
    value = json.dumps(imbalance_of(series={}, error='a\nb' + 'x' * 2000, warnings=['c\x1b\nd']))
    found = shared_source.read_answer(value, policy_of(), 1000.0, 1000.0, INTERVAL, MAX_SERIES)
    assert found.imbalance.error.startswith('a bx')
    assert len(found.imbalance.error) == shared_source.MAX_TEXT
    assert found.imbalance.warnings == ('c? d',)
