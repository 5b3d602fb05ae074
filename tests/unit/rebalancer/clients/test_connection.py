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

from keystoneauth1 import session
from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova.conf import nova
from kronos_nova.conf import opts
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import connection
from tests.unit.rebalancer.clients import served


def conf(tmp_path: object, text: str) -> cfg.ConfigOpts:
    path = f'{tmp_path}/kronos.conf'
    with open(path, 'w') as file:
        file.write(text)
    out = cfg.ConfigOpts()
    opts.register(out)
    out([], default_config_files=[path])
    return out


def test_a_password_login_is_made_of_the_options(tmp_path: object) -> None:
    found = connection.make_connection(conf(tmp_path, '''
[nova]
auth_type = password
auth_url = http://127.0.0.1:5/v3
username = kronos
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = north
interface = public
endpoint_override = http://127.0.0.1:6/v2.1
'''))
    assert found.config.get_region_name() == 'north'
    assert found.config.get_interface('placement') == 'public'
    assert found.config.get_endpoint('compute') == 'http://127.0.0.1:6/v2.1'
    assert found.session.timeout == nova.REQUEST_TIMEOUT


def test_interfaces_are_given_as_to_keystoneauth_too(tmp_path: object) -> None:
    found = connection.make_connection(conf(tmp_path, '''
[nova]
auth_type = none
endpoint_override = http://127.0.0.1:6/v2.1
interface = admin
valid_interfaces = internal, public
'''))
    assert found.config.get_interface('compute') == ['internal', 'public']


def test_interfaces_may_have_the_older_names(tmp_path: object) -> None:
    """``internalURL``, as files of Kronos 0.2.0 and keystoneauth's examples have it."""
    login = '[nova]\nauth_type = none\nendpoint_override = http://127.0.0.1:6/v2.1\n'
    found = connection.make_connection(conf(tmp_path, f'{login}interface = publicURL\n'))
    assert found.config.get_interface('compute') == 'public'
    found = connection.make_connection(conf(tmp_path,
                                            f'{login}valid_interfaces = internalURL, adminURL\n'))
    assert found.config.get_interface('compute') == ['internal', 'admin']


@pytest.mark.parametrize('text', ['', '[nova]\nauth_type = nonsense\n'])
def test_no_way_to_log_in_is_one_clear_error(tmp_path: object, text: str) -> None:
    with pytest.raises(exception.ConfigError, match=r'\[nova\]: auth_type: ') as caught:
        connection.make_connection(conf(tmp_path, text))
    assert '\n' not in str(caught.value)


VERSIONS = {'versions': [{
    'id': 'v2.1', 'status': 'CURRENT', 'version': '2.96', 'min_version': '2.1', 'updated': '',
    'links': [{'rel': 'self', 'href': ''}]}]}
SERVICES = '/os-services'


def served_by(tmp_path: object, nova: served.Served, more: str) -> api.ServiceApi:
    url = nova.connection.compute.endpoint_override
    return api.ServiceApi(connection.make_connection(conf(
        tmp_path, f'[nova]\nauth_type = none\nendpoint_override = {url}\n'
                  f'min_version = 2.1\n{more}')), 'Nova', 'compute')


@pytest.mark.parametrize(('retries', 'expected'), [(0, 1), (1, 2), (2, 3)])
def test_reads_are_repeated_as_often_as_asked_for(
        tmp_path: object, monkeypatch: pytest.MonkeyPatch, retries: int, expected: int) -> None:
    monkeypatch.setattr(session.time, 'sleep', lambda seconds: None)
    with served.serving({f'GET {SERVICES}': [(503, {}), (503, {}), {'services': []}],
                         f'PUT {SERVICES}': [(503, {})], 'GET /': [VERSIONS]}) as nova:
        found = served_by(tmp_path, nova, f'status_code_retries = {retries}\n')
        try:
            found.get(SERVICES, 'services', 'p', '2.72')
        except api.ApiError as exc:
            assert exc.status == 503 and retries < 2
        else:
            assert retries == 2
        asked = [path for method, path, *_ in nova.asked if method == 'GET'].count(SERVICES)
        assert asked == expected
        assert found.put(SERVICES, 'a service', '2.72', {}).status_code == 503
        assert nova.number('PUT') == 1, 'what changes something is never repeated'


def test_connections_are_tried_as_often_as_asked_for(
        tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(session.time, 'sleep', pauses.append)
    with served.serving({f'GET {SERVICES}': [None, None, {'services': []}],
                         'GET /': [VERSIONS]}) as nova:
        found = served_by(tmp_path, nova, 'connect_retries = 2\n')
        assert found.get(SERVICES, 'services', 'p', '2.72') == {'services': []}
        assert len(pauses) == 2


@pytest.mark.parametrize('retries', [0, 1])
def test_read_on_a_closed_connection_is_a_lost_connection(
        tmp_path: object, monkeypatch: pytest.MonkeyPatch, retries: int) -> None:
    monkeypatch.setattr(session.time, 'sleep', lambda seconds: None)
    with served.serving({f'GET {SERVICES}': [{'services': []}], 'GET /': [VERSIONS]}) as nova:
        found = served_by(tmp_path, nova, f'connect_retries = {retries}\n')
        found.get(SERVICES, 'services', 'p', '2.72')
        served.close_while_sending(monkeypatch, nova, 'GET')
        if retries:
            assert found.get(SERVICES, 'services', 'p', '2.72') == {'services': []}
        else:
            with pytest.raises(api.ApiError, match='the endpoint cannot be reached') as caught:
                found.get(SERVICES, 'services', 'p', '2.72')
            assert not caught.value.unreachable and caught.value.outage == 'Nova'
        asked = [path for method, path, *_ in nova.asked if path == SERVICES]
        assert len(asked) == 2 + retries


def test_post_on_a_closed_connection_may_have_arrived_and_is_sent_once(
        tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.time, 'sleep', lambda seconds: None)
    with served.serving({'POST /servers/vm/action': [(202, {})], 'GET /': [VERSIONS]}) as nova:
        found = served_by(tmp_path, nova, 'connect_retries = 3\nstatus_code_retries = 3\n')
        served.close_while_sending(monkeypatch, nova, 'POST')
        with pytest.raises(api.ApiError, match='the connection broke') as caught:
            found.post('/servers/vm/action', 'live migration of vm', '2.72', {'name': 'value'})
        assert caught.value.sent and nova.number('POST') == 1


@pytest.mark.parametrize('more', ['', 'tls_min_version = 1.3\ntls_ciphers = ECDHE+AESGCM\n'])
def test_connections_keep_the_socket_and_tls_options_of_keystoneauth(
        tmp_path: object, more: str) -> None:
    found = connection.make_connection(conf(
        tmp_path, f'[nova]\nauth_type = none\nendpoint_override = http://127.0.0.1:6/\n{more}'))
    for prefix in ('http://', 'https://'):
        adapter = found.session.session.get_adapter(prefix)
        assert isinstance(adapter, session.TCPKeepAliveAdapter)
        if hasattr(adapter, 'tls_min_version'):  # Our oldest keystoneauth1 has no such options.
            assert (adapter.tls_min_version, adapter.tls_ciphers) == (
                ('1.3', 'ECDHE+AESGCM') if more else (None, None))


def test_proxies_and_certificates_of_the_environment_count_for_nova(tmp_path: object) -> None:
    found = connection.make_connection(conf(
        tmp_path, '[nova]\nauth_type = none\nendpoint_override = http://127.0.0.1:6/\n'))
    assert found.session.session.trust_env


def test_the_service_is_found_by_its_type_and_name(tmp_path: object) -> None:
    found = connection.make_connection(conf(tmp_path, '''
[nova]
auth_type = none
endpoint_override = http://127.0.0.1:6/v2.1
service_type = compute-north
service_name = nova-north
min_version = 2.1
'''))
    assert found.config.get_service_type('compute') == 'compute-north'
    assert found.config.get_service_name('compute') == 'nova-north'
    assert found.config.get_service_type('placement') == 'placement'
    assert found.config.get_service_name('placement') is None
    assert found.config.get_api_version('compute') == '2.1'
