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

"""Workers and hosts that share a real memcached."""

import time

from oslo_config import cfg
import pytest

from kronos_nova.conf import opts
from kronos_nova.feed import feed_channel
from kronos_nova.feed import raw_cache
from kronos_nova.feed import worker_records
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.scheduler import shared_source
from kronos_nova.wiring import daemons
from tests.integration import servers
from tests.unit.scheduler import test_shared_source
from tests.unit.scheduler.test_shared_source import api as api
from tests.unit.scheduler.test_shared_source import POLICIES
from tests.unit.scheduler.test_shared_source import SCORES
from tests.unit.scheduler.test_shared_source import WORKERS

KEY = 'k' * 32
BACKENDS = ('dogpile.cache.pymemcache', 'oslo_cache.memcache_pool')


def conf_of(tmp_path, url, port, backend=BACKENDS[0], **kwargs):
    conf = test_shared_source.conf_of(str(tmp_path), url, **kwargs)
    for name, value in {'enabled': True, 'backend': backend,
                        'memcache_servers': [f'127.0.0.1:{port}'],
                        'memcache_dead_retry': 0}.items():
        conf.set_override(name, value, 'cache')
    conf.set_override('directory', None, 'kronos_channel')
    conf.set_override('hmac_keys', [KEY], 'kronos_channel')
    return conf


def asked(api):
    return sorted(form['query'] for _, _, _, form in api.requests)


@pytest.mark.parametrize('backend', BACKENDS)
def test_workers_of_host_query_each_policy_once_per_interval(api, tmp_path, backend):
    with servers.memcached(tmp_path) as port, test_shared_source.workers(
            conf_of(tmp_path, api.url, port, backend)) as some:
        for interval in (1, 2):
            for _ in range(2):
                assert test_shared_source.tell(some, 'refresh') == [SCORES] * WORKERS
            assert asked(api) == sorted(POLICIES * interval)
            test_shared_source.tell(some, test_shared_source.INTERVAL + 1)


def test_each_worker_queries_only_while_memcached_is_down(api, tmp_path):
    with servers.memcached(tmp_path) as port:
        pass
    with test_shared_source.workers(conf_of(tmp_path, api.url, port, BACKENDS[1])) as some:
        assert test_shared_source.tell(some, 'refresh') == [SCORES] * WORKERS
        assert asked(api) == sorted(POLICIES * WORKERS)
        with servers.memcached(tmp_path, port):
            test_shared_source.tell(some, test_shared_source.INTERVAL + 1)
            assert test_shared_source.tell(some, 'refresh') == [SCORES] * WORKERS
            assert asked(api) == sorted(POLICIES * (WORKERS + 1))


@pytest.mark.parametrize('backend', BACKENDS)
def test_oversized_answer_is_logged_and_blocks_no_worker(tmp_path, caplog, backend):
    hosts = {f'compute-{number:05}.example.org': 0.123456789012345 for number in range(30000)}

    class Source(test_shared_source.Source):
        def fetch(self, policy, *, profile=True):
            self.asked += 1
            return shared_source.model.PolicySamples(policy.name, shared_source.model.QueryResult(
                policy.imbalance_query, shared_source.model.SourceHealth.HEALTHY, series=hosts))

    with servers.memcached(tmp_path) as port:
        conf = conf_of(tmp_path, 'http://127.0.0.1:1', port, backend)
        conf.set_override('max_series', 30000, 'prometheus')
        own = Source()
        sources = [shared_source.SharedMetricsSource(conf, own) for _ in range(2)]
        for count in (1, 2):
            for source in sources:
                found = source.fetch(test_shared_source.policy_of(), profile=False)
                assert found.imbalance.series == hosts
                # Else the others would wait for this one until it runs out.
                lease = shared_source._build_lease_key(
                    source._build_cache_key(test_shared_source.policy_of()))
                assert source._cache.get(lease) is None
            assert own.asked == 2 * count
    told = [record.getMessage() for record in caplog.records if 'share_scores' in record.message]
    assert len(told) == 2
    assert all('memcached -I' in text or 'too large' in text for text in told)


@pytest.mark.parametrize('backend', BACKENDS)
def test_second_engine_process_reads_published_state(tmp_path, backend):
    with servers.memcached(tmp_path) as port:
        conf = conf_of(tmp_path, 'http://127.0.0.1:1', port, backend)
        now = time.time()
        notice = feed_channel.PublishedState(draining=frozenset({'cn1'}), quarantined=frozenset(),
                                             flights=(), written_at=now, expires_at=now + 600)
        feed_channel.FeedChannel(conf).write(notice)
        assert feed_channel.FeedChannel(conf).read() == notice


def test_engine_metrics_show_records_of_all_workers(tmp_path, monkeypatch):
    """Of workers that hash alike, through a server that forgets old records."""
    monkeypatch.setattr(worker_records.zlib, 'crc32', lambda text: 255)
    conf = cfg.ConfigOpts()
    opts.register(conf)
    raw_cache.register(conf)
    conf([], default_config_files=[])
    conf.set_override('hmac_keys', [KEY], 'kronos_channel')
    conf.set_override('timeout', 0.5, 'kronos_channel')
    conf.set_override('engine_port', 1, 'monitoring')
    conf.set_override('connection', f'sqlite:///{tmp_path}/kronos.sqlite', 'database')

    def show():
        page = daemons.make_metrics_page(conf,
                                         healths.DaemonHealth(daemon='kronos-engine',
                                                              dry_run=False),
                                         tallies.DaemonTally(), 'engine_port')
        return [line for line in page('')[1].decode().splitlines()
                if line.startswith('kronos_scheduler_')]

    with servers.memcached(tmp_path) as port:
        conf.set_override('servers', [f'127.0.0.1:{port}'], 'kronos_channel')
        slots = [worker_records.RecordSlot(raw_cache.RawCache(conf)) for _ in range(3)]
        for _ in range(2):
            for pid, slot in enumerate(slots):
                now = time.time()
                slot.write(worker_records.WorkerRecord(
                    'one', pid, 1.0, now, (worker_records.FileState('p.yaml', pid, 1.0),)))
        found = show()
        assert 'kronos_scheduler_workers 3.0' in found
        for worker, hosts in ((255, 0), (0, 1), (1, 2)):
            assert (f'kronos_scheduler_scored_hosts{{policies_file="p.yaml",scheduler="one",'
                    f'worker="{worker}"}} {hosts}.0') in found
        monkeypatch.setattr(worker_records, 'MAX_AGE', 1.0)
        slots[0].write(worker_records.WorkerRecord('one', 0, 1.0, time.time()))
        cache = raw_cache.RawCache(conf)
        end = time.monotonic() + 60
        while cache.get(f'{worker_records.KEY}255') is not None:
            assert time.monotonic() < end, 'memcached keeps the record'
            time.sleep(0.1)
    assert show() == ['kronos_scheduler_channel_up 0.0']
