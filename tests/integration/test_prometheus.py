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


"""The source against a real Prometheus and a real exporter."""

import subprocess
import time

from oslo_config import cfg
import pytest

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.conf import opts
from kronos_nova.conf import prometheus as prometheus_conf
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.sources import prometheus
from tests.fixtures import prometheus_server
from tests.fixtures import stores
from tests.unit.rebalancer.planning import test_quiet_hours

LOADS = '''load{host="cn1"} 0.25
load{host="cn2"} 0.75
load{host="cn3"} NaN
load{other="x"} 1
twice{host="cn1",cpu="0"} 1
twice{host="cn1",cpu="1"} 2
twice{host="cn2",cpu="0"} 3
cores{host="cn1"} 8
cores{host="cn2"} 16
used{uuid="u-1"} 1.5
'''


@pytest.fixture(scope='module')
def exporter():
    made = prometheus_server.Exporter()
    made.text = LOADS
    yield made
    made.stop()


@pytest.fixture(scope='module')
def url(exporter, tmp_path_factory):
    with prometheus_server.running(tmp_path_factory.mktemp('prometheus'), [exporter.address],
                                   prefix='/metrics/api') as found:
        yield found


def source_of(url, **options):
    conf = cfg.ConfigOpts()
    conf.register_opts(prometheus_conf.OPTS, group='prometheus')
    conf([])
    options = {'timeout': 20.0, 'max_retries': 1, 'retry_backoff': 0.01, 'url': url, **options}
    for name, value in options.items():
        conf.set_override(name, value, 'prometheus')
    return prometheus.PrometheusSource(conf)


@pytest.fixture
def source(url):
    found = source_of(url)
    wait_for(lambda: answered(found, 'load', 'host').series)
    yield found
    found.close()


def wait_for(condition, patience=60.0):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError('waited in vain')


def answered(source, query, label):
    """The answer; an error ends the wait, for it would not go away."""
    result = source.fetch_query(query, label)
    assert result.error is None, result.error
    return result


def policy_of(**fields):
    return policies.Policy(**{'name': 'load', 'weight': 1, 'imbalance_query': 'load', **fields})


def test_query_maps_values_by_label_and_reports_missing_labels(source):
    result = source.fetch_query('load', 'host')
    assert result.series == {'cn1': 0.25, 'cn2': 0.75}
    assert result.health is model.SourceHealth.PARTIAL and result.error is None
    assert len(result.missing_labels) == 1
    assert any('cn3' in warning for warning in result.warnings)


def test_duplicate_series_of_host_give_no_value(source):
    result = source.fetch_query('twice', 'host')
    assert result.duplicates == ('cn1',)
    assert result.series == {'cn2': 3.0}


def test_label_absent_from_all_series_is_error(source):
    result = source.fetch_query('cores', 'nodename')
    assert 'nodename' in result.error and not result.series


def test_fetch_runs_every_query_of_policy(source):
    samples = source.fetch(policy_of(
        imbalance_query='load{host=~"cn[12]"}', age_query='time() - timestamp(load)',
        host_capacity_query='cores', vm_profile_query='used', vm_profile_label='uuid',
        vm_profile_label_type='nova_instance_uuid', vm_profile_unit='absolute'))
    assert samples.imbalance.health is model.SourceHealth.HEALTHY
    assert samples.host_capacity.series == {'cn1': 8.0, 'cn2': 16.0}
    assert samples.profile.series == {'u-1': 1.5}
    assert 0.0 <= samples.age < 30.0
    assert abs(samples.taken_at - time.time()) < 60.0


def test_fetch_without_profile_skips_instance_query(source):
    assert source.fetch(policy_of(vm_profile_query='used'), profile=False).profile is None


def test_age_query_without_label_covers_all_hosts(source):
    samples = source.fetch(policy_of(imbalance_query='load{host=~"cn[12]"}',
                                     age_query='max(time() - timestamp(load)) * 0 + 7'))
    assert samples.age == 7.0
    assert set(samples.imbalance.series) == {'cn1', 'cn2'}


def test_parse_error_quotes_prometheus(source):
    result = source.fetch_query('sum by (', 'host')
    assert 'parse error' in result.error and '400' in result.error
    assert result.health is model.SourceHealth.PARTIAL


@pytest.mark.parametrize('query', ['1', 'load[1m]', '"text"'])
def test_query_accepts_only_instant_vectors(source, query):
    result = source.fetch_query(query, 'host')
    assert 'not an instant vector' in result.error


def test_many_to_many_join_is_error_not_empty_answer(source):
    result = source.fetch_query('twice * on (host) twice', 'host')
    assert '422' in result.error


def test_join_on_missing_label_is_empty(source):
    result = source.fetch_query('load * on (nothing) group_left () cores{host="none"}', 'host')
    assert result.error is None and not result.series


def test_health_comes_from_server(source, url):
    health, text = source.health()
    assert health is model.SourceHealth.HEALTHY and url in text


def test_answer_above_series_or_byte_limit_is_refused(url, source):
    assert 'max_series' in source_of(url, max_series=2).fetch_query('load', 'host').error
    big = 'label_replace(load{host=~"cn[12]"}, "x", "' + 'y' * 2000 + '", "", "")'
    assert 'max_body_bytes' in source_of(url, max_body_bytes=1024).fetch_query(big, 'host').error


def test_wrong_path_prefix_is_error(url):
    result = source_of(url.removesuffix('/metrics/api')).fetch_query('load', 'host')
    assert result.error and not result.series


def test_defect_10_dead_exporter_ages_out_only_its_host(exporter, tmp_path):
    """Two exporters, one dies: its host is left out while look-back hides it."""
    dying = prometheus_server.Exporter()
    dying.text = 'heat{host="cn9"} 0.5\n'
    exporter.text = LOADS + 'heat{host="cn1"} 0.1\n'
    with prometheus_server.running(tmp_path, [exporter.address, dying.address]) as url:
        source = source_of(url, staleness_threshold=3)
        policy = policy_of(
            imbalance_query='max by (host) (max_over_time(heat[1h]))',
            age_query='time() - max by (host) (max_over_time(timestamp(heat)[1h:1s]))')
        wait_for(lambda: set(source.fetch(policy).imbalance.series) == {'cn1', 'cn9'})
        dying.stop()
        samples = wait_for(lambda: (s := source.fetch(policy)).imbalance.warnings and s)
        assert set(samples.imbalance.series) == {'cn1'}
        assert samples.imbalance.health is model.SourceHealth.PARTIAL
        assert any('cn9' in warning for warning in samples.imbalance.warnings)
        assert samples.age < 3.0


def test_source_connects_with_tls_and_basic_auth(exporter, tmp_path):
    cert, key = _certificate(tmp_path)
    web = (f'tls_server_config:\n  cert_file: {cert}\n  key_file: {key}\n'
           f'basic_auth_users:\n  kronos: {_BCRYPT_OF_TEST}\n')
    with prometheus_server.running(tmp_path, [exporter.address], web_config=web,
                                   auth=('kronos', 'test'), verify=str(cert)) as url:
        good = source_of(url, ca_cert=str(cert), username='kronos', password='test')
        wait_for(lambda: answered(good, 'cores', 'host').series)
        assert good.health()[0] is model.SourceHealth.HEALTHY
        in_url = url.replace('https://', 'https://kronos:test@')
        assert source_of(in_url, ca_cert=str(cert)).fetch_query('cores', 'host').series
        assert source_of(url, verify_ssl=False, username='kronos',
                         password='test').fetch_query('cores', 'host').series
        wrong = source_of(url, ca_cert=str(cert), username='kronos',
                          password='canary-pw').fetch_query('cores', 'host')
        assert '401' in wrong.error and 'canary' not in wrong.error
        assert wrong.health is model.SourceHealth.UNREACHABLE
        unknown_ca = source_of(url, username='kronos', password='test').fetch_query('cores', 'host')
        assert 'TLS' in unknown_ca.error and not unknown_ca.series


#: From Prometheus's own documentation of web.yml: the password is "test".
_BCRYPT_OF_TEST = '$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay'


def _certificate(directory):
    cert, key = directory / 'cert.pem', directory / 'key.pem'
    subprocess.run(
        ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1',
         '-nodes', '-keyout', str(key), '-out', str(cert), '-days', '2', '-subj', '/CN=test',
         '-addext', 'subjectAltName=IP:127.0.0.1'], check=True, capture_output=True)
    return cert, key


def test_past_write_rates_of_named_instances_come_in_hours(source):
    """The expression has samples at all times, also before this server began."""
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    conf.set_override('drain_quiet_wait', 7200, 'engine')
    rates = ' or '.join(f'label_replace({rate}, "uuid", "{uuid}", "", "")'
                        for uuid, rate in (('i0', 'hour() * 1e5 + minute()'),
                                           ('i1', 'vector(1e9)')))
    policy_set = policies.parse_policies({'policies': [{
        'name': 'load', 'weight': 1.0, 'imbalance_query': 'load', 'vm_profile_query': 'used',
        'vm_dirty_rate_query': f'{rates} # a comment', 'vm_profile_label': 'uuid',
        'vm_profile_label_type': 'nova_instance_uuid'}]}, 'test')
    request = test_quiet_hours.cloud(None, count=2)
    now = time.time()
    questions = write_rates.RateQuestions(conf, source, stores.in_memory(), policy_set, now)
    history = questions.add_rates(request.cluster, ['i0'], request.history)
    assert list(history.hourly_write_rates) == ['i0'], 'the query names i0 alone'
    begin = quiet_hours.begin_hour(now)
    assert history.hourly_write_rates['i0'] == tuple(
        (at, at // 3600 % 24 * 1e5 + 45.0)
        for at in (begin - 86400 + 3600 * n for n in range(24)))
