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

"""A real Prometheus scrapes a working engine and executor; its answers match their work."""

import subprocess
import threading
import time

import pytest
import requests

from kronos_nova.rebalancer.engine import daemon
from kronos_nova.rebalancer.executors import dry_run
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import http_server
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.wiring import daemons
from tests.fixtures import free_ports
from tests.fixtures import prometheus_server
from tests.unit import test_alerts
from tests.unit.rebalancer.engine import test_engine


def served(conf, health, tally, option):
    conf.set_override(option, free_ports.reserve_port(), 'monitoring')
    return http_server.start_monitor(conf, health, option,
                                     daemons.make_metrics_page(conf, health, tally, option))


@pytest.fixture
def cloud(tmp_path):
    """Run an engine that plans one of two moves and an executor that rehearses it; yield the
    addresses of their metrics pages."""
    world = test_engine.World(tmp_path)
    world.went_on()
    world.clock.now = time.time()
    world.conf.set_override('connection', f'sqlite:///{world.database}', 'database')
    world.conf.set_override('executor', 'dry_run', 'engine')
    world.conf.set_override('evaluation_interval', 3600, 'engine')
    health, tally = (healths.DaemonHealth(daemon='kronos-engine', dry_run=False),
                     tallies.DaemonTally())
    cycles = daemon.EngineDaemon(world.engine(tally=tally), 3600, health=health)
    told, counted = (healths.DaemonHealth(daemon='kronos-executor', dry_run=False),
                     tallies.DaemonTally())
    carrier = worker.Worker(
        world.store, dry_run.DryRunExecutor(),
        retry.RetrySettings(poll_interval=0.2, look_interval=0.2, claim_seconds=60), tally=counted,
        clock=time.time)
    carrier.set_health_registry(told)
    pages = [served(world.conf, known, counts, option) for known, counts, option in (
        (health, tally, 'engine_port'), (told, counted, 'executor_port'))]
    thread = threading.Thread(target=carrier.run)
    thread.start()
    cycles.start()
    yield [f'127.0.0.1:{page.port}' for page in pages]
    cycles.stop()
    carrier.stop()
    thread.join()
    for page in pages:
        page.stop()
    world.store.close()


def test_prometheus_has_daemon_metrics_and_answers_our_queries(cloud, tmp_path):
    with prometheus_server.running(tmp_path, cloud) as url:
        def ask(query):
            answer = requests.get(f'{url}/api/v1/query', params={'query': query}, timeout=60)
            assert answer.ok, (query, answer.text)
            return [(series['metric'], float(series['value'][1]))
                    for series in answer.json()['data']['result']]

        def value(query):
            (_, found), = ask(query) or [(None, None)]
            return found

        # Each is scraped in its own time, and may have been just before the end.
        end = time.monotonic() + 90
        while (value('sum(kronos_tasks_ended_total{result="completed"})'),
               value('sum(kronos_planned_moves_total)'), value('sum(kronos_tasks)'),
               value('sum(kronos_store_up)')) != (1, 1, None, 2):
            assert time.monotonic() < end, ask('{__name__=~"kronos_.+"}')
            time.sleep(0.2)
        assert sorted(labels['daemon'] for labels, _ in ask('kronos_build_info')) == [
            'kronos-engine', 'kronos-executor']
        assert value('min(up)') == 1
        assert value('sum(kronos_planned_moves_total{phase="spread", dry_run="false"})') == 1
        (labels, ended), = ask('kronos_tasks_ended_total > 0')
        assert (ended, labels['driver'], labels['phase']) == (1, 'dry_run', 'spread')
        assert value('max by (scope) (kronos_imbalance_ratio)') == pytest.approx(0.8)
        assert {labels['host']: score for labels, score in ask('kronos_host_score_ratio')} == {
            'a': 0.9, 'b': 0.1}
        assert value('sum(kronos_migration_seconds_count{result="completed"})') == 1
        assert value('max by (scope) (kronos_scope_leased)') == 1
        for query in test_alerts.queries():
            ask(query.replace('$__rate_interval', '1m').replace('$scope', '.+')
                .replace('$policy', '.+'))
        assert ask('ALERTS') == []
        kinds = requests.get(f'{url}/api/v1/targets/metadata',
                             params={'metric': 'kronos_migration_seconds'}, timeout=60).json()
        assert {found['type'] for found in kinds['data']} == {'histogram'}


def test_promtool_accepts_metrics_page(cloud):
    """Names, help and types, by Prometheus's own lint."""
    for address in cloud:
        text = requests.get(f'http://{address}/metrics', timeout=60).text
        done = subprocess.run([test_alerts.promtool(), 'check', 'metrics'], input=text,
                              capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, ''), done
