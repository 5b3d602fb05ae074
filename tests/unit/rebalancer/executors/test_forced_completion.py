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

"""Completion by force: its requests to Nova, and the meaning of Nova's answers."""

import json
from typing import Any
from unittest import mock

import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import live_copies
from kronos_nova.rebalancer.executors import escalation
from tests.unit.rebalancer.clients import answers
from tests.unit.rebalancer.executors import novas

MARKER = json.dumps({'migration_id': 5, 'time': 0.0, 'migration_uuid': 'm6'})
COPIES = '/servers/vm/migrations'
FORCE = 'POST /servers/vm/migrations/6/action'
ACTIONS = '/servers/vm/os-instance-actions'


def copy(number: int = 6, **fields: Any) -> dict[str, Any]:
    return {'id': number, 'uuid': f'm{number}', 'server_uuid': 'vm', 'status': 'running',
            'updated_at': '1970-01-01T00:01:00.000000',
            'memory_total_bytes': 900, 'memory_processed_bytes': 500,
            'memory_remaining_bytes': 400, 'disk_total_bytes': 90, 'disk_processed_bytes': 50,
            'disk_remaining_bytes': 40} | fields


@pytest.fixture
def cloud() -> answers.Answers:
    found = answers.Answers()
    found.user = 'me'
    found.answers |= {'/servers/vm': [{'server': answers.server('vm', status='MIGRATING')}],
                      COPIES: [{'migrations': [copy(5), copy()]}],
                      '/os-migrations': [{'migrations': [answers.migration(6)]}],
                      FORCE: [answers.Response({}, 202)]}
    return found


@pytest.mark.parametrize(('copies', 'expected'), [
    ([copy()], escalation.CopySample(60.0, 550, 440)),
    ([copy(disk_processed_bytes=None, disk_remaining_bytes=None)],
     escalation.CopySample(60.0, 500, 400)),
    ([copy(memory_processed_bytes=None)], None), ([copy(memory_remaining_bytes=None)], None),
    ([copy(updated_at=None)], None),
    ([copy(status='preparing')], None), ([copy(7)], None), ([], None)])
def test_amounts_are_those_of_our_migration_while_it_copies(
        cloud: answers.Answers, copies: Any, expected: Any) -> None:
    cloud.answers[COPIES] = [{'migrations': copies}]
    assert novas.driver(cloud).read_copy(novas.TASK, MARKER) == expected


@pytest.mark.parametrize(('number', 'status', 'is_postcopy'), [
    (6, 'running (post-copy)', True), (7, 'running (post-copy)', False), (6, 'completed', False)])
def test_postcopy_shows_among_all_migrations_alone(
        cloud: answers.Answers, number: int, status: str, is_postcopy: bool) -> None:
    """Nova lists no migration in post-copy among those of the server under way."""
    cloud.answers[COPIES] = [{'migrations': []}]
    cloud.answers['/os-migrations'] = [{'migrations': [answers.migration(number, status=status)]}]
    sample = novas.driver(cloud).read_copy(novas.TASK, MARKER)
    assert sample == (escalation.CopySample(0.0, 0, 0, is_postcopy=True) if is_postcopy else None)


def test_migration_without_a_known_uuid_is_not_ours(cloud: answers.Answers) -> None:
    assert novas.driver(cloud).read_copy(novas.TASK, novas.MARKER) is None
    answer = novas.driver(cloud).force_completion(novas.TASK, novas.MARKER, lambda: True)
    assert answer == 'Nova was not asked: the migration is not under way any more'


def test_request_by_force_names_our_migration(cloud: answers.Answers) -> None:
    assert novas.driver(cloud).force_completion(novas.TASK, MARKER, lambda: True) is None
    assert [path for path, _, _ in cloud.asked if path.startswith('POST')] == [FORCE]


@pytest.mark.parametrize('status', [400, 403, 404, 409])
def test_refusal_has_novas_reason_and_the_policy(cloud: answers.Answers, status: int) -> None:
    cloud.answers[FORCE] = [answers.Response({'x': {'message': 'no', 'code': status}}, status)]
    answer = novas.driver(cloud).force_completion(novas.TASK, MARKER, lambda: True)
    assert answer is not None and answer.startswith(f'Nova refused: HTTP {status}: no')
    assert (live_copies.FORCE_POLICY in answer) == (status == 403)


def test_answer_of_a_service_that_does_not_work_is_not_known(cloud: answers.Answers) -> None:
    """Nova may have carried the request out behind a proxy that gave up."""
    cloud.answers[FORCE] = [answers.Response({}, 502)]
    with pytest.raises(exception.NovaClientError, match='could not be completed') as raised:
        novas.driver(cloud).force_completion(novas.TASK, MARKER, lambda: True)
    assert not isinstance(raised.value, exception.HeldUp)


@pytest.mark.parametrize('sent', [True, False])
def test_request_without_an_answer_is_held_up_only_if_it_was_not_sent(
        cloud: answers.Answers, sent: bool) -> None:
    error = api.ApiError('Nova', 'force', 'the connection broke', sent=sent)
    with mock.patch.object(live_copies, 'force_completion', autospec=True,
                           side_effect=error), pytest.raises(
            exception.NovaClientError, match='the connection broke') as raised:
        novas.driver(cloud).force_completion(novas.TASK, MARKER, lambda: True)
    assert isinstance(raised.value, exception.HeldUp) != sent


def test_request_that_comes_too_late_is_not_sent(cloud: answers.Answers) -> None:
    with pytest.raises(exception.HeldUp, match='stood still'):
        novas.driver(cloud).force_completion(novas.TASK, MARKER, lambda: False)
    assert not [path for path, _, _ in cloud.asked if path.startswith('POST')]


def test_migration_that_could_not_be_read_before_the_request_holds_it_up(
        cloud: answers.Answers) -> None:
    cloud.answers[COPIES] = [answers.Response({}, 503)]
    with pytest.raises(exception.HeldUp, match='could not be completed by force'):
        novas.driver(cloud).force_completion(novas.TASK, MARKER, lambda: True)
    assert not [path for path, _, _ in cloud.asked if path.startswith('POST')]


@pytest.mark.parametrize(('stated', 'allowed'), [
    ({}, True), ({'kronos:disruption': 'cold-ok'}, True),
    ({'kronos:disruption': 'poweroff-ok'}, True), ({'kronos:disruption': 'live'}, False),
    ({'kronos:disruption': 'drain-only'}, False), ({'kronos:disruption': 'never'}, False),
    ({'kronos:disruption': 'nonsense'}, False)])
@pytest.mark.parametrize('source', ['flavor', 'metadata', 'tags'])
def test_contract_that_forbids_a_shutdown_forbids_a_pause(
        cloud: answers.Answers, stated: dict[str, str], allowed: bool, source: str) -> None:
    """An owner's counts as well, also where the default cap lets the instance move."""
    fields: dict[str, Any] = {}
    match source:
        case 'flavor':
            fields['flavor'] = answers.server('vm')['flavor'] | {'extra_specs': stated}
        case 'metadata':
            fields['metadata'] = stated
        case 'tags':
            fields['tags'] = [f'{key}={value}' for key, value in stated.items()]
    cloud.answers['/servers/vm'] = [{'server': answers.server('vm', status='MIGRATING', **fields)}]
    obstacle = novas.driver(cloud).find_shutdown_obstacle(novas.TASK, 0.0)
    assert (obstacle is None) == allowed
    if obstacle is not None:
        assert 'its contract says disruption' in obstacle


def test_contract_that_cannot_be_read_is_not_known(cloud: answers.Answers) -> None:
    cloud.answers['/servers/vm'] = [answers.Response({}, 503)]
    with pytest.raises(exception.NovaClientError):
        novas.driver(cloud).find_shutdown_obstacle(novas.TASK, 0.0)


def test_unread_amounts_raise_for_a_retry(cloud: answers.Answers) -> None:
    cloud.answers[COPIES] = [answers.Response({}, 503)]
    with pytest.raises(exception.NovaClientError):
        novas.driver(cloud).read_copy(novas.TASK, MARKER)


def action(name: str, at: str | None, number: int = 1, user: str = 'me') -> dict[str, Any]:
    return {'action': name, 'start_time': at, 'request_id': f'req-{number}', 'user_id': user}


@pytest.mark.parametrize(('forced', 'arrived', 'expected'), [
    ('2026-11-27T10:00:00', '2026-11-27T10:00:07', 7.0), (None, '2026-11-27T10:00:07', None),
    ('2026-11-27T10:00:00', None, None), ('2026-11-27T10:00:08', '2026-11-27T10:00:07', None)])
def test_seconds_of_the_step_are_by_novas_records(
        cloud: answers.Answers, forced: str | None, arrived: str | None,
        expected: float | None) -> None:
    cloud.answers[ACTIONS] = [{'instanceActions': [
        action(live_copies.FORCE_COMPLETE, forced, 2),
        action('live-migration', '2026-11-27T09:00:00')]}]
    cloud.answers[f'{ACTIONS}/req-1'] = [{'instanceAction': {'events': [
        {'event': 'compute_live_migration', 'start_time': '2026-11-27T09:00:01'},
        {'event': 'compute_post_live_migration_at_destination', 'start_time': arrived}]}}]
    assert novas.driver(cloud).read_forced_seconds(novas.TASK) == expected


def test_no_action_gives_no_seconds(cloud: answers.Answers) -> None:
    cloud.answers[ACTIONS] = [{'instanceActions': [
        action('live-migration', '2026-11-27T09:00:00')]}]
    assert novas.driver(cloud).read_forced_seconds(novas.TASK) is None


@pytest.mark.parametrize('actions', [
    # Our step was against an earlier migration.
    [action('live-migration', '2026-11-27T10:00:00'),
     action(live_copies.FORCE_COMPLETE, '2026-11-27T09:00:00', 2)],
    [action(live_copies.FORCE_COMPLETE, '2026-11-27T10:00:00', 2, 'admin'),
     action('live-migration', '2026-11-27T09:00:00')],
    [action(live_copies.FORCE_COMPLETE, '2026-11-27T10:00:00', 2),
     action(live_copies.FORCE_COMPLETE, '2026-11-27T09:59:00', 3, 'admin'),
     action('live-migration', '2026-11-27T09:00:00')]])
def test_requests_of_other_migrations_or_users_give_no_seconds(
        cloud: answers.Answers, actions: list[dict[str, Any]]) -> None:
    cloud.answers[ACTIONS] = [{'instanceActions': actions}]
    cloud.answers[f'{ACTIONS}/req-1'] = [{'instanceAction': {'events': [
        {'event': 'compute_post_live_migration_at_destination',
         'start_time': '2026-11-27T10:05:00'}]}}]
    assert novas.driver(cloud).read_forced_seconds(novas.TASK) is None
