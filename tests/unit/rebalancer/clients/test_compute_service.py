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

"""A nova-compute service is disabled once, and the client never guesses the result."""

from typing import Any

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import compute_service
from tests.unit.rebalancer.clients import served
from tests.unit.rebalancer.clients.served import service

PUT, LIST, SERVERS = 'PUT /os-services/id-h1', 'GET /os-services', 'GET /servers/detail'


def listed(*found: dict[str, Any]) -> dict[str, Any]:
    return {'services': list(found)}


def disable(*answers: Any, then: Any = None) -> tuple[api.ApiError | None, served.Served]:
    """What a PUT that is answered so comes to, when the service is listed like that after it."""
    with served.serving({PUT: list(answers), LIST: [then]}) as nova:
        try:
            compute_service.ComputeService(nova.connection, 'h1').disable('id-h1', 'change 7')
        except api.ApiError as e:
            return e, nova
        return None, nova


def test_a_service_is_disabled_by_one_request_with_its_reason() -> None:
    error, nova = disable({'service': {}})
    assert error is None
    ((method, path, _query, body, version),) = nova.asked
    assert (method, path) == ('PUT', '/os-services/id-h1')
    assert body == {'status': 'disabled', 'disabled_reason': 'change 7'}
    assert version == 'compute 2.72'


@pytest.mark.parametrize(('answer', 'said'), [
    ((403, {'forbidden': {'message': 'No.'}}), 'HTTP 403: No.; the user of [nova] needs a role '
                                               f'that policy {compute_service.POLICY} allows'),
    ((404, {'itemNotFound': {'message': 'Gone.'}}), 'HTTP 404: Gone.'),
    ((400, b'<html>'), 'HTTP 400')])
def test_a_refusal_changes_nothing_and_says_why(answer: Any, said: str) -> None:
    error, nova = disable(answer)
    assert error is not None
    assert (error.problem, error.sent, error.status) == (said, False, answer[0])
    assert str(error).startswith('Nova: disable the service nova-compute on h1: ')
    assert len(nova.asked) == 1


@pytest.mark.parametrize('lost', [None, (502, b'<html>'), (500, {}), (504, b'')])
def test_after_a_lost_answer_a_host_that_is_disabled_now_is_done(lost: Any) -> None:
    error, nova = disable(lost, then=listed(service('h1', 'disabled', 'change 7')))
    assert error is None
    assert [asked[0] for asked in nova.asked] == ['PUT', 'GET'], 'sent once'


@pytest.mark.parametrize(('now', 'said'), [
    (service('h1'), 'the host is still enabled'),
    (service('h1', 'disabled', 'disk broken'), 'the host is still disabled for another reason')])
@pytest.mark.parametrize('lost', [None, (503, b'')])
def test_after_a_lost_answer_an_enabled_host_raises_with_its_state(lost: Any, now: Any,
                                                                   said: str) -> None:
    error, nova = disable(lost, then=listed(now))
    assert error is not None and error.sent and error.problem.endswith(said)
    assert ('the connection broke' if lost is None else 'HTTP 503') in error.problem
    assert nova.number('PUT') == 1


@pytest.mark.parametrize('then', [None, (503, b''), b'no JSON', listed()])
def test_after_a_lost_answer_an_unreadable_service_raises_as_unknown(then: Any) -> None:
    error, _nova = disable(None, then=then)
    assert error is not None and error.sent
    assert 'whether the host is disabled now cannot be looked up' in error.problem


def enable(*answers: Any, then: Any = None) -> tuple[api.ApiError | None, served.Served]:
    """What a PUT that enables comes to, when the service is listed like that after it."""
    with served.serving({PUT: list(answers), LIST: [then]}) as nova:
        try:
            compute_service.ComputeService(nova.connection, 'h1', 'your user').enable('id-h1')
        except api.ApiError as e:
            return e, nova
        return None, nova


def test_a_service_is_enabled_by_one_request() -> None:
    error, nova = enable({'service': {}})
    assert error is None
    ((method, _path, _query, body, _version),) = nova.asked
    assert (method, body) == ('PUT', {'status': 'enabled'})


def test_a_refusal_names_the_user_of_the_connection() -> None:
    error, _nova = enable((403, {'forbidden': {'message': 'No.'}}))
    assert error is not None
    assert error.problem == (f'HTTP 403: No.; your user needs a role that policy '
                             f'{compute_service.POLICY} allows')


@pytest.mark.parametrize('lost', [None, (502, b'<html>')])
def test_after_a_lost_answer_a_host_that_is_enabled_now_is_done(lost: Any) -> None:
    assert enable(lost, then=listed(service('h1')))[0] is None
    error, _nova = enable(lost, then=listed(service('h1', 'disabled', 'change 7')))
    assert error is not None and error.sent
    assert error.problem.endswith('the host is still disabled')


def test_a_request_that_never_left_is_not_looked_up() -> None:
    with served.serving({}) as nova:
        pass
    with pytest.raises(api.ApiError) as caught:
        compute_service.ComputeService(nova.connection, 'h1').disable('id-h1', 'change 7')
    assert not caught.value.sent and 'looked up' not in caught.value.problem


def test_a_look_is_at_the_one_host() -> None:
    with served.serving({LIST: [listed(service('h10'), service('h1', 'disabled', 'x'))]}) as nova:
        uuid, found = compute_service.ComputeService(nova.connection, 'h1').read_service()
    assert (uuid, found.enabled, found.disabled_reason) == ('id-h1', False, 'x')
    assert nova.asked[0][2] == {'binary': 'nova-compute', 'host': 'h1'}


def test_services_of_all_hosts_are_listed_also_those_of_a_silent_cell() -> None:
    silent = {'binary': 'nova-compute', 'host': 'h3', 'status': 'UNKNOWN'}
    with served.serving({LIST: [listed(service('h1'), service('h2', 'disabled', 'x'),
                                       silent)]}) as nova:
        services = compute_service.ComputeService(nova.connection, 'h1').list_services()
    assert {host: (s.status, s.up) for host, s in services.items()} == {
        'h1': ('enabled', True), 'h2': ('disabled', True), 'h3': ('UNKNOWN', False)}
    assert nova.asked[0][2] == {'binary': 'nova-compute'}


@pytest.mark.parametrize(('answer', 'said'), [
    (listed(service('h10')), 'it is not listed'),
    (listed({'binary': 'nova-compute', 'host': 'h1', 'status': 'UNKNOWN'}),
     'its cell does not answer Nova'),
    (listed({**service('h1'), 'id': None}), "field 'id'"),
    (b'<html>', 'the answer is not a JSON object'),
    ({'services': {}}, "the answer has no list 'services'"),
    ((403, {}), f'policy {compute_service.LISTED} allows')])
def test_a_look_that_shows_no_such_service_says_so(answer: Any, said: str) -> None:
    with served.serving({LIST: [answer]}) as nova, pytest.raises(api.ApiError) as caught:
        compute_service.ComputeService(nova.connection, 'h1').read_service()
    assert said in str(caught.value)


def page(*uuids: str, then: str | None = None) -> dict[str, Any]:
    links = [{'rel': 'next', 'href': f'http://elsewhere/servers/detail?{then}'}] if then else []
    return {'servers': [{'id': uuid} for uuid in uuids], 'servers_links': links}


def test_servers_left_on_a_host_come_from_all_pages_for_all_tenants() -> None:
    query = 'all_tenants=1&host=h1&marker='
    with served.serving({SERVERS: [page('c', 'a', then=query + 'a'), page('a', 'b', then=query),
                                   page()]}) as nova:
        service = compute_service.ComputeService(nova.connection, 'h1')
        assert service.list_left_servers() == ['a', 'b', 'c']
    assert [asked[2].get('host') for asked in nova.asked] == ['h1'] * 3
    assert {asked[2]['all_tenants'] for asked in nova.asked} == {'1'}
    assert {asked[4] for asked in nova.asked} == {'compute 2.72'}


@pytest.mark.parametrize('second', [(500, b''), None, b'[]', {'servers': [{}]}])
def test_a_page_that_cannot_be_read_is_no_empty_host(second: Any) -> None:
    with served.serving({SERVERS: [page('a', then='marker=a'), second]}) as nova:
        with pytest.raises(api.ApiError, match='servers on h1'):
            compute_service.ComputeService(nova.connection, 'h1').list_left_servers()


def test_error_about_listing_servers_names_the_missing_policy() -> None:
    with served.serving({SERVERS: [(403, {})]}) as nova:
        with pytest.raises(api.ApiError, match='os_compute_api:servers:detail:get_all_tenants'):
            compute_service.ComputeService(nova.connection, 'h1').list_left_servers()
