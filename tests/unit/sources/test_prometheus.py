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


"""What the source does with servers that misbehave; see tests/integration for
a real Prometheus."""

import base64
import contextlib
import socket
import threading
import time

from oslo_config import cfg
import pytest
import requests
import responses
import urllib3.connection

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.conf import prometheus as prometheus_conf
from kronos_nova.sources import prometheus
from tests.fixtures import prometheus_api

CANARY = 'canary-s3cret'


@pytest.fixture
def api():
    with prometheus_api.running() as found:
        found.series = {'load': {'cn1': 0.25, 'cn2': 0.75}}
        yield found


def source_of(url, **options):
    conf = cfg.ConfigOpts()
    conf.register_opts(prometheus_conf.OPTS, group='prometheus')
    conf([])
    for name, value in {'timeout': 10.0, 'max_retries': 0, 'retry_backoff': 0.01, 'url': url,
                        **options}.items():
        conf.set_override(name, value, 'prometheus')
    return prometheus.PrometheusSource(conf)


def policy_of(**fields):
    return policies.Policy(**{'name': 'load', 'weight': 1, 'imbalance_query': 'load', **fields})


def ask(url, **options):
    return source_of(url, **options).fetch_query('load', 'host')


def header(api, name):
    return api.requests[-1][2].get(name)


# The request.

def test_a_query_is_a_posted_form_below_the_path_prefix(api):
    result = ask(api.url + '/a/prefix/')
    assert result.series == {'cn1': 0.25, 'cn2': 0.75}
    method, path, headers, form = api.requests[-1]
    assert (method, path) == ('POST', '/a/prefix/api/v1/query')
    assert form['query'] == 'load' and form['timeout'].endswith('ms') and 'time' not in form
    assert headers['Accept-Encoding'] == 'identity' and 'Authorization' not in headers


def test_basic_auth_from_options_or_from_the_url_in_any_alphabet(api):
    expected = 'Basic ' + base64.b64encode('kronos:pä:ß'.encode()).decode()
    ask(api.url, username='kronos', password='pä:ß')
    assert header(api, 'Authorization') == expected
    ask(api.url.replace('//', '//kronos:p%C3%A4%3A%C3%9F@'))
    assert header(api, 'Authorization') == expected


def test_a_bearer_token_wins_over_basic_auth(api):
    ask(api.url, bearer_token='abc', username='u', password='p')
    assert header(api, 'Authorization') == 'Bearer abc'


def test_the_token_file_is_read_again_for_every_request(api, tmp_path):
    file = tmp_path / 'token'
    file.write_text('one\n')
    source = source_of(api.url, bearer_token_file=str(file))
    source.fetch_query('load', 'host')
    assert header(api, 'Authorization') == 'Bearer one'
    file.write_text('two\n')
    source.fetch_query('load', 'host')
    assert header(api, 'Authorization') == 'Bearer two'
    file.unlink()
    result = source.fetch_query('load', 'host')
    assert 'bearer_token_file cannot be read' in result.error
    assert len(api.requests) == 2
    file.write_text('')
    assert 'empty' in source.fetch_query('load', 'host').error


def test_neither_proxies_nor_netrc_of_the_environment_are_used(api, tmp_path, monkeypatch):
    (tmp_path / '.netrc').write_text('machine 127.0.0.1 login a password b\n')
    monkeypatch.setenv('NETRC', str(tmp_path / '.netrc'))
    monkeypatch.setenv('http_proxy', 'http://127.0.0.1:1')
    monkeypatch.delenv('no_proxy', raising=False)
    assert ask(api.url).error is None
    assert header(api, 'Authorization') is None


def test_a_connection_that_breaks_in_a_request_is_a_failed_attempt(api, monkeypatch):
    """urllib3 swallows this error, and raises AttributeError when it waits for the answer."""
    def break_pipe(connection):
        raise BrokenPipeError

    monkeypatch.setattr(urllib3.connection.HTTPConnection, 'connect', break_pipe)
    result = ask(api.url, max_retries=1, retry_backoff=0.01)
    assert result.health is model.SourceHealth.UNREACHABLE
    assert 'cannot be reached' in result.error


# The answer.

@pytest.mark.parametrize('status', [301, 302, 307, 308])
def test_redirects_are_not_followed(api, status):
    api.respond = lambda handler, form: api.send(
        handler, status, b'', Location=f'http://127.0.0.1:1/?token={CANARY}')
    result = ask(api.url, bearer_token=CANARY)
    assert 'final address' in result.error and CANARY not in result.error
    assert len(api.requests) == 1


@pytest.mark.parametrize(('status', 'health'), [
    (400, model.SourceHealth.PARTIAL), (422, model.SourceHealth.PARTIAL),
    (404, model.SourceHealth.PARTIAL),
    (401, model.SourceHealth.UNREACHABLE), (403, model.SourceHealth.UNREACHABLE)])
def test_a_refusal_is_not_retried_and_quotes_prometheus(api, status, health):
    api.respond = lambda handler, form: api.send(
        handler, status, {'status': 'error', 'error': 'line 1:\n\x1b[31m' + 'x' * 1000})
    result = ask(api.url, max_retries=3)
    assert str(status) in result.error and result.health is health
    assert '\n' not in result.error and '\x1b' not in result.error and len(result.error) < 500
    assert len(api.requests) == 1


@pytest.mark.parametrize('status', [429, 500, 502, 503])
def test_a_temporary_failure_is_retried(api, status):
    api.respond = lambda handler, form: (
        setattr(api, 'respond', None) if len(api.requests) == 2 else None,
        api.send(handler, status, {'status': 'error', 'error': 'busy'}))
    assert ask(api.url, max_retries=3).error is None
    assert len(api.requests) == 3


def test_a_lasting_failure_ends_with_its_reason(api):
    api.respond = lambda handler, form: api.send(handler, 503, {'status': 'error',
                                                                'error': 'no memory'})
    result = ask(api.url, max_retries=2)
    assert '503 (no memory)' in result.error
    assert result.health is model.SourceHealth.UNREACHABLE and len(api.requests) == 3


def test_a_retry_that_cannot_be_in_time_is_not_waited_for(api):
    api.respond = lambda handler, form: api.send(handler, 503, {'status': 'error'})
    result = ask(api.url, max_retries=10, retry_backoff=600.0, timeout=60.0)
    assert '503' in result.error
    assert len(api.requests) == 1


@pytest.mark.parametrize(('content_type', 'document', 'headers'), [
    ('text/html', b'<html>log in</html>', {}),
    ('application/json', b'\x1f\x8b', {'Content_Encoding': 'gzip'}),
    ('application/json', b'{"status": "succ', {}),
])
def test_a_page_that_is_no_answer_is_refused(api, content_type, document, headers):
    api.respond = lambda handler, form: api.send(handler, 200, document, content_type, **headers)
    result = ask(api.url)
    assert result.error and not result.series and result.health is model.SourceHealth.PARTIAL


def test_an_answer_is_read_no_further_than_its_cap(api):
    sent = []

    def endless(handler, form):
        handler.send_response(200)
        handler.send_header('Content-Type', 'application/json')
        handler.end_headers()
        with contextlib.suppress(OSError):
            while len(sent) < 10000:
                handler.wfile.write(b' ' * 65536)
                sent.append(1)

    api.respond = endless
    assert 'max_body_bytes' in ask(api.url, max_body_bytes=100000).error
    assert len(sent) < 1000


# Time.

@contextlib.contextmanager
def dripping(first, drop):
    """A server that sends a byte now and then, for ever."""
    stop = threading.Event()
    with socket.create_server(('127.0.0.1', 0)) as listener:
        def serve():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(first)
                    while not stop.wait(0.05):
                        connection.sendall(drop)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f'http://127.0.0.1:{listener.getsockname()[1]}'
        finally:
            stop.set()
            listener.close()


@pytest.mark.parametrize(('first', 'drop'), [
    (b'HTTP/1.1 200 OK\r\nX: ', b'y'),
    (b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n', b' '),
    (b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n', b' '),
    (b'', b'H'),
])
def test_a_server_that_drips_is_given_up_at_the_deadline(first, drop):
    with dripping(first, drop) as url:
        begin = time.monotonic()
        result = ask(url, timeout=0.5, max_retries=3)
        assert time.monotonic() - begin < 60
    assert result.error and result.health is model.SourceHealth.UNREACHABLE


def test_a_missing_server_is_reported_as_unreachable():
    with socket.create_server(('127.0.0.1', 0)) as listener:
        port = listener.getsockname()[1]
    result = ask(f'http://kronos:{CANARY}@127.0.0.1:{port}/p')
    assert f'127.0.0.1:{port}' in result.error and 'Connection refused' in result.error
    assert CANARY not in result.error and 'kronos' not in result.error
    assert result.health is model.SourceHealth.UNREACHABLE


def test_a_dead_server_gets_one_request_per_policy():
    with socket.create_server(('127.0.0.1', 0)) as listener:
        port = listener.getsockname()[1]
    samples = source_of(f'http://127.0.0.1:{port}').fetch(policy_of(
        age_query='a', capacity_query='c', host_capacity_query='h', vm_profile_query='p'))
    for result in (samples.imbalance, samples.capacity, samples.host_capacity, samples.profile):
        assert result.health is model.SourceHealth.UNREACHABLE and result.error
    assert samples.age is None


@responses.activate
@pytest.mark.parametrize(('error', 'words'), [
    (requests.exceptions.SSLError(Exception(f'https://u:{CANARY}@h/')), 'TLS failed'),
    (requests.exceptions.ChunkedEncodingError(f'{CANARY}'), 'cannot be reached'),
    (requests.exceptions.ReadTimeout(CANARY), 'did not answer'),
    (OSError(f'invalid path: {CANARY}'), 'ca_cert'),
])
def test_transport_errors_are_named_without_secrets(error, words):
    responses.post('http://p.example.org/api/v1/query', body=error)
    result = ask('http://p.example.org', bearer_token=CANARY)
    assert words in result.error and CANARY not in result.error


@pytest.mark.parametrize('token', [f'{CANARY}\nX: y', f'{CANARY}é', f'a {CANARY}'])
def test_a_token_that_no_header_can_carry_is_not_shown(api, token):
    result = ask(api.url, bearer_token=token)
    assert 'bearer_token' in result.error and CANARY not in result.error
    assert not api.requests


@pytest.mark.parametrize('url', ['http://h/?a=b', 'http://h/#f', 'http://h:99999'])
def test_a_url_that_is_no_base_is_refused_at_once(url):
    with pytest.raises(exception.ConfigError, match='url'):
        source_of(url)


def test_dirty_rates_are_fetched_with_the_profile_only(api):
    api.series |= {'dirty': {'vm1': 2048.0}}
    policy = policy_of(vm_dirty_rate_query='dirty', vm_profile_label='host')
    assert source_of(api.url).fetch(policy).dirty_rate.series == {'vm1': 2048.0}
    assert source_of(api.url).fetch(policy, profile=False).dirty_rate is None


def test_means_and_deviations_are_fetched_with_the_profile_only(api):
    api.series |= {'mean': {'vm1': 0.5}, 'deviation': {'vm1': 0.125}, 'now': {'vm1': 0.75}}
    policy = policy_of(vm_profile_query='now', vm_mean_query='mean', vm_profile_label='host',
                       vm_deviation_query='deviation')
    found = source_of(api.url).fetch(policy)
    assert found.mean.series == {'vm1': 0.5} and found.deviation.series == {'vm1': 0.125}
    found = source_of(api.url).fetch(policy, profile=False)
    assert found.mean is None and found.deviation is None


@pytest.mark.parametrize(('fields', 'asked'), [
    ({}, ['load']), ({'boot_ceiling': 0.8}, ['load', 'peak'])])
def test_the_scheduler_fetches_only_the_queries_that_it_uses(api, fields, asked):
    policy = policy_of(capacity_query='peak', host_capacity_query='cores', **fields)
    source_of(api.url).fetch(policy, profile=False)
    assert [form['query'] for _, _, _, form in api.requests] == asked
    source_of(api.url).fetch(policy)
    assert [form['query'] for _, _, _, form in api.requests][len(asked):] == [
        'load', 'peak', 'cores']


# Ages.

def ages(imbalance, old, staleness=300.0):
    return prometheus.apply_ages(
        model.QueryResult('q', model.SourceHealth.HEALTHY, series=imbalance),
        model.QueryResult('a', model.SourceHealth.HEALTHY, series=old), staleness)


def test_the_age_is_the_median_of_the_hosts_that_count():
    result, age = ages({'a': 0.1, 'b': 0.2, 'c': 0.3}, {'a': 10, 'b': 20, 'c': 90, 'x': 9999})
    assert set(result.series) == {'a', 'b', 'c'} and age == 20
    assert result.health is model.SourceHealth.HEALTHY


def test_a_stale_host_and_one_of_unknown_age_are_left_out():
    result, age = ages({'a': 0.1, 'b': 0.2, 'c': 0.3}, {'a': 10, 'b': 301})
    assert result.series == {'a': 0.1} and age == 10
    assert result.health is model.SourceHealth.PARTIAL and 'b, c' in result.warnings[-1]


def test_all_stale_is_a_stale_policy():
    result, age = ages({'a': 0.1, 'b': 0.2}, {'a': 400, 'b': 500})
    assert age == 400 and result.health is model.SourceHealth.STALE
    assert set(result.series) == {'a', 'b'}


def test_one_age_for_all():
    assert ages({'a': 0.1, 'b': 0.2}, {'': 12})[1] == 12
    assert ages({'a': 0.1, 'b': 0.2}, {'': 400})[0].health is model.SourceHealth.STALE


def test_a_clock_that_is_ahead_makes_nothing_younger_than_0():
    assert ages({'a': 0.1}, {'a': -30})[1] == 0.0


def test_ages_of_other_hosts_or_of_none_are_an_error():
    assert 'names no host' in ages({'a': 0.1}, {'b': 1})[0].error
    failed = model.QueryResult('a', model.SourceHealth.PARTIAL, error='boom')
    result, age = prometheus.apply_ages(
        model.QueryResult('q', model.SourceHealth.HEALTHY, series={'a': 0.1}), failed, 300)
    assert result.error == 'age_query: boom' and age is None and not result.series


# Health.

def test_health_without_runtimeinfo_asks_a_query(api):
    def thanos(handler, form):
        if handler.path.endswith('runtimeinfo'):
            api.send(handler, 404, b'not found', 'text/plain')
        else:
            api.send(handler, 200, {'status': 'success', 'data': {
                'resultType': 'vector', 'result': [{'metric': {}, 'value': [0, '1']}]}})

    api.respond = thanos
    assert source_of(api.url).health() == (
        model.SourceHealth.HEALTHY, f'Prometheus at {api.url} answers queries')


def test_health_names_the_problem(api):
    api.respond = lambda handler, form: api.send(handler, 200, {
        'status': 'success', 'data': {'reloadConfigSuccess': False}})
    assert 'reload failed' in source_of(api.url).health()[1]
    api.respond = lambda handler, form: api.send(handler, 200, b'{}')
    assert source_of(api.url).health()[0] is model.SourceHealth.PARTIAL
    api.stop()
    health, text = source_of(api.url).health()
    assert health is model.SourceHealth.UNREACHABLE and 'Connection refused' in text
