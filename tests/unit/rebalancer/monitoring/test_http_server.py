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


"""The HTTP server reports the daemon's own health and metrics."""

from http import client as http_client
import json
import socket

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova.conf import opts
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import http_server


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return healths.DaemonHealth(clock, daemon='kronos-engine', dry_run=True)


@pytest.fixture(params=['127.0.0.1', '::1'])
def ask(request, health):
    """(status, JSON) of a page."""
    try:
        monitor = http_server.MonitoringServer(health, request.param, 0, 'engine_port').start()
    except exception.ConfigError:
        pytest.skip(f'{request.param} is not an address of this host')

    def ask(page, method='GET'):
        connection = http_client.HTTPConnection(request.param, monitor.port, timeout=60)
        connection.request(method, page)
        response = connection.getresponse()
        body = response.read()
        assert response.headers['Content-Type'] == 'application/json'
        assert int(response.headers['Content-Length']) == len(body) or method == 'HEAD'
        connection.close()
        return response.status, json.loads(body) if body else None

    yield ask
    monitor.stop()


def test_a_daemon_that_works_is_alive_and_ready(ask, health, clock):
    pulse = health.add_pulse('cycles', 60.0)
    health.record_part('cycle', {})
    clock.now += 59
    expected = {'status': 'ok', 'problems': [], 'daemon': 'kronos-engine', 'dry_run': True,
                'seconds_since': {'cycle': 59.0}}
    assert ask('/healthz') == ask('/readyz') == (200, expected)
    clock.now += 2
    status, body = ask('/healthz')
    assert status == 503 and body['status'] == 'failing'
    assert body['problems'] == ['cycles: silent for 61 s, at most 60 s are expected; restart the '
                                'daemon']
    pulse.record_beat()
    assert ask('/healthz')[0] == 200


def test_problems_of_a_cycle_make_the_daemon_unready_and_not_dead(ask, health):
    health.record_part('cycle', {'blue': 'could not read servers from Nova', '': 'at all'})
    assert ask('/healthz')[0] == 200
    status, body = ask('/readyz')
    assert status == 503
    assert body['problems'] == ['cycle: blue: could not read servers from Nova', 'cycle: at all']
    health.record_part('cycle', {})
    assert ask('/readyz')[0] == 200


def test_before_the_first_cycle_it_is_not_ready(ask, health):
    health.expect_part('cycle')
    assert ask('/healthz')[0] == 200 and ask('/readyz')[0] == 503


def test_secrets_in_a_problem_are_masked(ask, health):
    health.record_part('cycle', {'': 'https://kronos:canary@prometheus:9091 answers 401'})
    status, body = ask('/readyz')
    assert status == 503 and 'canary' not in json.dumps(body) and 'prometheus' in json.dumps(body)


def test_other_pages_and_methods_are_refused(ask):
    assert ask('/')[0] == ask('/healthz/..')[0] == 404
    assert ask('/healthz', 'POST')[0] == ask('/readyz', 'DELETE')[0] == 405
    assert ask('/healthz', 'HEAD') == (200, None)


def test_a_client_that_says_nothing_is_in_nobodys_way(ask, health):
    monitor = http_server.MonitoringServer(health, '127.0.0.1', 0, 'engine_port').start()
    with socket.create_connection(('127.0.0.1', monitor.port)):
        connection = http_client.HTTPConnection('127.0.0.1', monitor.port, timeout=60)
        connection.request('GET', '/healthz')
        assert connection.getresponse().status == 200
        connection.close()
    monitor.stop()


@pytest.fixture
def conf():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    return conf


def test_it_listens_only_when_a_port_is_configured(conf, health):
    assert http_server.start_monitor(conf, health, 'engine_port') is None


def test_error_about_a_used_port_names_its_option(conf, health):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        conf.set_override('executor_port', taken.getsockname()[1], 'monitoring')
        with pytest.raises(exception.ConfigError, match=r'\[monitoring\] executor_port'):
            http_server.start_monitor(conf, health, 'executor_port')
    monitor = http_server.start_monitor(conf, health, 'executor_port')
    assert monitor.port == conf.monitoring.executor_port
    monitor.stop()
