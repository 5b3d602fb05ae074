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

"""Faults on real sockets: which requests were sent, and which certainly were not."""

from collections.abc import Iterator
import contextlib
import socket
import threading
import types
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import session
from keystoneauth1 import token_endpoint
from keystoneauth1.identity import v3
import pytest

from kronos_nova.rebalancer.clients import api


@contextlib.contextmanager
def listening(answer: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """A server that reads a request and says ``answer``, or hangs up on
    b'', or keeps silent on None."""
    seen: list[bytes] = []
    held: list[socket.socket] = []
    with socket.create_server(('127.0.0.1', 0)) as server:
        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _peer = server.accept()
                    seen.append(connection.recv(65536))
                    if answer is None:
                        held.append(connection)
                        continue
                    connection.sendall(answer)
                    connection.close()
        threading.Thread(target=serve, daemon=True).start()
        yield f'http://127.0.0.1:{server.getsockname()[1]}', seen
        server.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


def client(url: str, timeout: float = 5.0) -> api.ServiceApi:
    ks = session.Session(auth=token_endpoint.Token(url, 'secret-token'), timeout=timeout)
    proxy = adapter.Adapter(ks, service_type='compute', endpoint_override=url)
    return api.ServiceApi(types.SimpleNamespace(compute=proxy, session=ks), 'Nova', 'compute')


def post(url: str, timeout: float = 5.0) -> api.ApiError:
    with pytest.raises(api.ApiError) as caught:
        client(url, timeout).post('/servers/u/action', 'the request', '2.72', {})
    return caught.value


def test_silence_after_a_post_may_have_an_effect() -> None:
    with listening(None) as (url, seen):
        error = post(url, timeout=0.3)
    assert (error.sent, error.problem) == (True, 'no answer in time')
    assert len(seen) == 1


def test_a_connection_that_breaks_after_a_post_may_have_an_effect() -> None:
    with listening(b'') as (url, seen):
        error = post(url)
    assert (error.sent, error.problem) == (True, 'the connection broke')
    assert len(seen) == 1, 'sent once'


def test_a_refused_connection_has_no_effect() -> None:
    with socket.create_server(('127.0.0.1', 0)) as server:
        url = f'http://127.0.0.1:{server.getsockname()[1]}'
    assert post(url).sent is False


def test_a_redirect_of_a_post_is_not_followed() -> None:
    answer = (b'HTTP/1.0 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\n'
              b'Content-Length: 0\r\n\r\n')
    with listening(answer) as (url, seen):
        response = client(url).post('/servers/u/action', 'the request', '2.72', {})
    assert (response.status_code, len(seen)) == (307, 1)


@pytest.mark.parametrize(('answer', 'problem'), [
    (b'HTTP/1.0 200 OK\r\n\r\n<html>', 'the answer is not a JSON object'),
    (b'HTTP/1.0 200 OK\r\n\r\n[]', 'the answer is not a JSON object'),
    (b'HTTP/1.0 204 No Content\r\n\r\n', 'HTTP 204'),
    (b'HTTP/1.0 502 Bad Gateway\r\n\r\n<html>', 'HTTP 502'),
    (b'HTTP/1.0 403 Forbidden\r\n\r\n{"forbidden": {"message": "No."}}',
     'HTTP 403: No.; the user of [nova] needs a role that policy the:policy allows'),
    (b'garbage', 'the endpoint cannot be reached')])
def test_error_of_a_get_names_the_problem_without_the_token(answer: bytes, problem: str) -> None:
    with listening(answer) as (url, _seen), pytest.raises(api.ApiError) as caught:
        client(url).get('/x', 'the thing', 'the:policy', '2.72')
    assert caught.value.problem == problem
    assert 'secret-token' not in str(caught.value)


def get(url: str) -> api.ApiError:
    with pytest.raises(api.ApiError) as caught:
        client(url, timeout=0.3).get('/x', 'x', 'rule', '2.72')
    return caught.value


@pytest.mark.parametrize('answer', [None, b'', b'HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n'])
def test_a_get_that_is_not_answered_well_may_fare_better_next_time(answer: bytes | None) -> None:
    with listening(answer) as (url, _seen):
        assert not get(url).unreachable


def test_a_closed_port_makes_the_service_unreachable() -> None:
    with listening(b'') as (url, _seen):
        pass
    assert get(url).unreachable


@pytest.mark.parametrize('error', [
    ks_exceptions.Unauthorized(), ks_exceptions.EndpointNotFound(), ks_exceptions.SSLError()])
def test_without_a_login_or_an_endpoint_no_get_fares_better(error: Exception) -> None:
    class Proxy:
        def get(self, *_args: Any, **_rest: Any) -> None:
            raise error

    logged_in = types.SimpleNamespace(get_auth_headers=dict)
    with pytest.raises(api.ApiError) as caught:
        api.ServiceApi(types.SimpleNamespace(placement=Proxy(), session=logged_in), 'Placement',
                       'placement').get(
            '/x', 'x', 'rule', '1.31')
    assert caught.value.unreachable


@pytest.mark.parametrize(('answer', 'outage'), [
    (b'HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n', 'Nova'),
    (b'HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n', 'Nova'),
    (b'HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n', 'Nova'), (b'', 'Nova'), (None, 'Nova'),
    (b'HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n', None),
    (b'HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n', None),
    (b'HTTP/1.0 200 OK\r\n\r\n<html>', None)])
def test_an_outage_differs_from_a_failed_request(answer: bytes | None, outage: str | None) -> None:
    with listening(answer) as (url, _seen):
        with pytest.raises(api.ApiError) as caught:
            client(url, 0.3).get('/x', 'x', 'rule', '2.72')
    assert caught.value.outage == outage


def test_a_request_whose_time_has_passed_is_not_sent() -> None:
    with listening(None) as (url, seen):
        with pytest.raises(api.TooLate) as caught:
            client(url).post('/x', 'x', '2.72', {}, lambda: False)
    assert (caught.value.sent, caught.value.outage, seen) == (False, None, [])


@pytest.mark.parametrize('answer', [
    b'HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n', b'', None,
    b'HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n'])
def test_an_outage_of_keystone_is_not_taken_for_one_of_nova(answer: bytes | None) -> None:
    """The client calls Keystone alone and never Nova, which would answer."""
    with listening(answer) as (url, _), listening(b'HTTP/1.0 200 OK\r\n\r\n{}') as (nova, asked):
        ks = session.Session(auth=v3.Password(
            f'{url}/v3', username='kronos', password='secret', user_domain_id='default',
            project_name='service', project_domain_id='default'), timeout=0.3)
        found = api.ServiceApi(types.SimpleNamespace(session=ks, compute=adapter.Adapter(
            ks, service_type='compute', endpoint_override=nova)), 'Nova', 'compute')
        for ask in (lambda: found.get('/x', 'x', 'rule', '2.72'),
                    lambda: found.post('/x', 'x', '2.72', {}), found.read_newest_microversion):
            with pytest.raises(api.ApiError) as caught:
                ask()
            assert (caught.value.outage, caught.value.sent) == ('Keystone', False)
            assert 'Keystone' in caught.value.problem
            assert 'secret' not in str(caught.value)
    assert asked == []
