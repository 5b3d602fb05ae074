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

"""How the executor reads answers that a real Nova gives too rarely to wait for."""

from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_utils import uuidutils
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import live
from kronos_nova.rebalancer.executors import nova
from kronos_nova.rebalancer.executors import nova_error_classes
from kronos_nova.rebalancer.executors import preflight_check
from kronos_nova.rebalancer.executors import preflight_reader
from tests.unit.rebalancer.clients import answers
from tests.unit.rebalancer.executors import novas

MIGRATING = answers.server('vm', **{'OS-EXT-STS:task_state': 'migrating'})


@pytest.fixture
def cloud() -> answers.Answers:
    return answers.Answers()


@pytest.mark.parametrize(('status', 'stage'), [
    ('accepted', base.MigrationStage.WAITING), ('queued', base.MigrationStage.WAITING),
    ('preparing', base.MigrationStage.WAITING), ('running', base.MigrationStage.RUNNING),
    ('running (post-copy)', base.MigrationStage.RUNNING),
    ('post-migrating', base.MigrationStage.RUNNING),
    ('a status of tomorrow', base.MigrationStage.RUNNING),
    ('completed', base.MigrationStage.COMPLETED),
    ('failed', base.MigrationStage.FAILED), ('error', base.MigrationStage.FAILED),
    ('cancelled', base.MigrationStage.CANCELLED)])
def test_every_status_has_a_stage(cloud: answers.Answers, status: str,
                                  stage: base.MigrationStage) -> None:
    under_way = stage in (base.MigrationStage.WAITING, base.MigrationStage.RUNNING)
    found = novas.look(cloud, [[answers.migration(6, status=status)]],
                       MIGRATING if under_way else answers.server('vm'))
    assert (found.stage, found.reference) == (stage, 'm6')
    assert (found.version is not None) == under_way


@pytest.mark.parametrize('fields', [
    {'id': 5}, {'id': 4}, {'source_compute': 'host3'}, {'dest_compute': 'host3'},
    {'migration_type': 'evacuation'}])
def test_migrations_of_others_are_not_ours(cloud: answers.Answers, fields: dict[str, Any]) -> None:
    found = novas.look(cloud, [[answers.migration(6) | fields]], answers.server('vm'))
    assert found.stage is base.MigrationStage.ABSENT


def test_ours_may_have_no_destination_yet(cloud: answers.Answers) -> None:
    found = novas.look(cloud, [[answers.migration(6, status='accepted', dest_compute=None)]],
                       MIGRATING)
    assert found.stage is base.MigrationStage.WAITING


def test_of_several_the_newest_is_ours(cloud: answers.Answers) -> None:
    both = [answers.migration(7), answers.migration(6, status='error')]
    found = novas.look(cloud, [both], MIGRATING)
    assert (found.stage, found.reference) == (base.MigrationStage.RUNNING, 'm7')


def bound(uuid: str) -> str:
    return novas.driver(answers.Answers()).bind_marker(novas.MARKER, uuid)


def test_migration_by_hand_between_the_same_hosts_is_not_ours(cloud: answers.Answers) -> None:
    """Once a look has named ours, and before by who asked for it."""
    ours, by_hand = uuidutils.generate_uuid(), answers.migration(7, status='completed')
    both = [answers.migration(6, status='queued', uuid=ours), by_hand]
    arrived = answers.server('vm', 'host2')
    novas.look(cloud, [both], arrived)
    found = novas.driver(cloud).read_progress(novas.TASK, bound(ours))
    assert (found.stage, found.reference, found.ending) == (
        base.MigrationStage.LEFT, ours, base.MigrationStage.COMPLETED)
    cloud.user = 'kronos'
    for user, expected in (('admin', ours), ('kronos', 'm7'), (None, 'm7')):
        cloud.answers['/servers/vm/os-instance-actions'] = [{'instanceActions': [
            {'action': 'live-migration', 'request_id': 'r', 'user_id': user}]}]
        assert novas.look(cloud, [both], arrived).reference == expected
    cloud.answers['/servers/vm/os-instance-actions'][0]['instanceActions'][0]['user_id'] = 'admin'
    assert novas.look(cloud, [[answers.migration(7)]],
                      MIGRATING).stage is base.MigrationStage.ABSENT


@pytest.mark.parametrize(('migrations', 'host', 'expected'), [
    ([answers.migration(7, status='completed')], 'host2',
     (base.MigrationStage.LEFT, None, base.MigrationStage.COMPLETED)),
    ([answers.migration(7, status='completed')], 'host3', (base.MigrationStage.ABSENT, None, None)),
    ([answers.migration(7, status='error', dest_compute=None)], 'host1',
     (base.MigrationStage.ABSENT, None, None)),
    # The newest action belongs to the newest migration, and says nothing of ours.
    ([answers.migration(8, status='completed', dest_compute='host3'),
      answers.migration(7, status='completed')], 'host3',
     (base.MigrationStage.COMPLETED, 'm7', None)),
    ([answers.migration(8, status='completed', dest_compute='host3'),
      answers.migration(7, status='queued')], 'host3',
     (base.MigrationStage.LEFT, 'm7', base.MigrationStage.CANCELLED))])
def test_migration_by_hand_that_is_over_before_a_look_is_not_ours(
        cloud: answers.Answers, migrations: list[dict[str, Any]], host: str,
        expected: tuple[Any, ...]) -> None:
    cloud.user = 'kronos'
    cloud.answers['/servers/vm/os-instance-actions'] = [{'instanceActions': [
        {'action': 'live-migration', 'request_id': 'r', 'user_id': 'admin'}]}]
    found = novas.look(cloud, [migrations], answers.server('vm', host))
    assert (found.stage, found.reference, found.ending) == expected


def asked_by(cloud: answers.Answers, user: str | None, action: str = 'live-migration') -> None:
    cloud.user = 'kronos'
    cloud.answers['/servers/vm/os-instance-actions'] = [{'instanceActions': [
        {'action': action, 'request_id': 'r', 'user_id': user}]}]


@pytest.mark.parametrize(('fields', 'stage'), [
    ({}, base.MigrationStage.RUNNING),
    ({'dest_compute': None, 'status': 'accepted'}, base.MigrationStage.WAITING)])
def test_our_migration_of_an_evacuated_instance_keeps_its_new_source(
        cloud: answers.Answers, fields: dict[str, Any], stage: base.MigrationStage) -> None:
    asked_by(cloud, 'kronos')
    found = novas.look(cloud, [[answers.migration(6, source_compute='host3') | fields]],
                       answers.server('vm', 'host3', **{'OS-EXT-STS:task_state': 'migrating'}))
    assert (found.stage, found.reference, found.source) == (stage, 'm6', 'host3')


@pytest.mark.parametrize('fields', [
    {'id': 5}, {'dest_compute': 'host4'}, {'status': 'error'},
    {'migration_type': 'evacuation'}])
def test_other_migrations_of_an_evacuated_instance_are_not_ours(
        cloud: answers.Answers, fields: dict[str, Any]) -> None:
    asked_by(cloud, 'kronos')
    found = novas.look(cloud, [[answers.migration(6, source_compute='host3') | fields]],
                       answers.server('vm', 'host3'))
    assert (found.stage, found.source) == (base.MigrationStage.ABSENT, None)


@pytest.mark.parametrize('user', ['admin', None, answers.Response({}, 403)])
def test_migration_of_an_evacuated_instance_is_ours_only_if_nova_names_us(
        cloud: answers.Answers, user: Any) -> None:
    asked_by(cloud, user)
    if isinstance(user, answers.Response):
        cloud.answers['/servers/vm/os-instance-actions'] = [user]
    found = novas.look(cloud, [[answers.migration(6, source_compute='host3')]],
                       answers.server('vm', 'host3', **{'OS-EXT-STS:task_state': 'migrating'}))
    assert found.stage is base.MigrationStage.ABSENT


def test_migration_from_another_host_ends_and_is_aborted_as_ours(cloud: answers.Answers) -> None:
    ours = uuidutils.generate_uuid()
    by_hand = answers.migration(7, source_compute='host4')
    asked_by(cloud, 'kronos')
    cloud.answers[f'/allocations/{ours}'] = [{'allocations': {}}]
    for status, stage in (('running', base.MigrationStage.LEFT),
                          ('completed', base.MigrationStage.COMPLETED)):
        both = [by_hand, answers.migration(6, source_compute='host3', status=status, uuid=ours)]
        novas.look(cloud, [both], answers.server('vm', 'host3'))
        found = novas.driver(cloud).read_progress(novas.TASK, bound(ours))
        assert (found.stage, found.reference, found.source) == (stage, ours, 'host3')
    novas.look(cloud, [[by_hand]], MIGRATING)
    assert novas.driver(cloud).read_progress(novas.TASK,
                                             bound(ours)).stage is base.MigrationStage.ABSENT
    cloud.answers['/os-migrations'] = [{'migrations': [
        by_hand, answers.migration(6, source_compute='host3', uuid=ours)]}]
    cloud.answers['DELETE /servers/vm/migrations/6'] = [answers.Response({}, 202)]
    assert novas.driver(cloud).abort(novas.TASK, bound(ours))


@pytest.mark.parametrize(('marker', 'reference'), [
    ('no JSON', '29a03a48-e18a-4f82-9f8d-9f1c5686a6a5'),
    ('[]', '58675458-a2c7-4ce7-a9c7-d38fb6e93075'),
    (novas.MARKER, None), (novas.MARKER, 'req-1')])
def test_marker_without_a_migration_stays_as_it_is(marker: str, reference: str | None) -> None:
    assert novas.driver(answers.Answers()).bind_marker(marker, reference) == marker


@pytest.mark.parametrize('status', [
    'accepted', 'queued', 'preparing', 'pre-migrating', 'running', 'running (post-copy)',
    'post-migrating', 'a status of tomorrow'])
@pytest.mark.parametrize(('host', 'state', 'ending', 'broken'), [
    ('host2', 'ACTIVE', base.MigrationStage.COMPLETED, False),
    ('host2', 'PAUSED', base.MigrationStage.COMPLETED, False),
    ('host2', 'SHUTOFF', base.MigrationStage.FAILED, False),
    ('host2', 'ERROR', base.MigrationStage.FAILED, True),
    ('host1', 'ERROR', base.MigrationStage.FAILED, True),
    ('host1', 'ACTIVE', base.MigrationStage.FAILED, False),
    ('host1', 'SHUTOFF', base.MigrationStage.FAILED, False),
    ('host3', 'ACTIVE', base.MigrationStage.CANCELLED, False),
    ('host3', 'ERROR', base.MigrationStage.CANCELLED, False),
    (None, 'SHELVED_OFFLOADED', base.MigrationStage.CANCELLED, False),
    ('host1', 'SOFT_DELETED', base.MigrationStage.CANCELLED, False)])
@pytest.mark.parametrize('task_state', [None, 'rebuilding', 'powering-off'])
@pytest.mark.turns(3)
def test_record_that_nova_left_ends_by_where_the_instance_is(
        cloud: answers.Answers, status: str, host: str | None, state: str,
        ending: base.MigrationStage,
        broken: bool, task_state: str | None) -> None:
    server = answers.server('vm', host, status=state, **{'OS-EXT-STS:task_state': task_state})
    found = novas.look(cloud, [[answers.migration(6, status=status)]], server)
    assert (found.stage, found.ending, found.broken) == (base.MigrationStage.LEFT, ending, broken)
    assert found.patience == (300.0 if task_state is None else 600.0) <= 900.0
    assert status in found.detail and (host or 'no host') in found.detail


def test_record_left_with_its_allocations_names_them(cloud: answers.Answers) -> None:
    cloud.answers['/allocations/m6'] = [{'allocations': {'node1': {'resources': {'VCPU': 2}}}}]
    found = novas.look(cloud, [[answers.migration(6, status='queued')]], answers.server('vm'))
    assert found.held == 'migration m6 still has its allocation in Placement'


def test_abort_is_believed_once_the_events_of_its_action_have_ended(
        cloud: answers.Answers) -> None:
    actions = '/servers/vm/os-instance-actions'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': 'live-migration', 'request_id': 'r', 'message': None}]}]
    for finished, patience in ((None, 300.0), ('2026-11-20T10:00:00', 30.0)):
        cloud.answers[f'{actions}/r'] = [{'instanceAction': {'events': [
            {'event': 'compute_live_migration', 'finish_time': finished}]}}]
        found = novas.look(cloud, [[answers.migration(6, status='cancelled')]],
                           answers.server('vm'))
        assert (found.stage, found.patience) == (base.MigrationStage.CANCELLED, patience)


@pytest.mark.parametrize(('actions', 'aborted'), [
    (['live_migration_cancel', 'live-migration'], True),
    (['reboot', 'live_migration_cancel', 'live-migration'], True),
    (['live-migration', 'live_migration_cancel', 'live-migration'], False),
    (['live-migration'], False), ([], False), (None, None)])
def test_abort_is_known_by_the_actions_of_the_instance(
        cloud: answers.Answers, actions: list[str] | None, aborted: bool | None) -> None:
    path = '/servers/vm/os-instance-actions'
    cloud.answers[path] = [answers.Response({}, 403) if actions is None else {
        'instanceActions': [{'action': a, 'request_id': f'r{n}', 'message': None}
                            for n, a in enumerate(actions)]}]
    for number in range(3):
        cloud.answers[f'{path}/r{number}'] = [{'instanceAction': {'events': []}}]
    found = novas.look(cloud, [[answers.migration(6, status='error')]],
                       answers.server('vm', status='ERROR'))
    assert (found.broken, found.aborted) == (True, aborted)
    found = novas.look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'))
    assert (found.broken, found.aborted) == (False, bool(aborted))
    assert found.patience == (30.0 if aborted else 0.0)


@pytest.mark.parametrize(('user', 'named'), [
    ('admin', 'admin'), ('kronos', None), (None, None)])
@pytest.mark.parametrize('status', ['error', 'cancelled'])
def test_user_who_aborted_the_migration_is_named_unless_we_did(
        cloud: answers.Answers, status: str, user: str | None, named: str | None) -> None:
    path = '/servers/vm/os-instance-actions'
    cloud.user = 'kronos'
    cloud.answers[path] = [{'instanceActions': [
        {'action': 'live_migration_cancel', 'request_id': 'r0', 'message': None, 'user_id': user},
        {'action': 'live-migration', 'request_id': 'r1', 'message': None}]}]
    for number in range(2):
        cloud.answers[f'{path}/r{number}'] = [{'instanceAction': {'events': []}}]
    found = novas.look(cloud, [[answers.migration(6, status=status)]], answers.server('vm'))
    assert (found.aborted, found.aborted_by) == (True, named)


def test_an_unanswered_query_about_an_abort_raises_for_a_retry(cloud: answers.Answers) -> None:
    cloud.answers['/servers/vm/os-instance-actions'] = [answers.Response({}, 503)]
    with pytest.raises(exception.ServiceUnavailable):
        novas.look(cloud, [[answers.migration(6, status='error')]],
                   answers.server('vm', status='ERROR'))


@pytest.mark.parametrize(('migrations', 'source'), [
    ([], 'host1'),
    ([answers.migration(5, source_compute='host3')], 'host1'),
    ([answers.migration(6, source_compute='host3')], 'host3'),
    ([answers.migration(6, source_compute='host3', dest_compute='host4')], 'host1'),
    ([answers.migration(6, source_compute='host3', dest_compute=None)], 'host3'),
    ([answers.migration(6, source_compute='host3', migration_type='migration')], 'host1'),
    ([answers.migration(6, source_compute='host3', uuid='known')], 'host1'),
    ([answers.migration(6, source_compute='host3'),
      answers.migration(7, source_compute='host4', dest_compute=None, status='error')], 'host3')])
def test_late_request_is_traced_to_the_host_that_it_left(
        cloud: answers.Answers, migrations: list[dict[str, Any]], source: str) -> None:
    cloud.answers['/os-migrations'] = [{'migrations': migrations}]
    found = novas.driver(cloud).trace_late_request(novas.TASK, novas.MARKER, {'known'})
    assert found == dataclasses.replace(novas.TASK, from_host=source)


def test_late_request_is_traced_again_when_nova_does_not_answer(cloud: answers.Answers) -> None:
    cloud.answers['/os-migrations'] = [answers.Response({}, 503)]
    with pytest.raises(exception.ServiceUnavailable):
        novas.driver(cloud).trace_late_request(novas.TASK, novas.MARKER, ())


def reset(cloud: answers.Answers, answer: Any = None, **fields: Any) -> bool:
    cloud.answers['/servers/vm'] = [{'server': answers.server('vm', **{
        'status': 'ERROR', 'OS-EXT-STS:power_state': 1, **fields})}]
    cloud.answers['POST /servers/vm/action'] = [answer or answers.Response(None, 202)]
    return novas.driver(cloud).reset_state(novas.TASK)


def test_state_is_reset_where_the_guest_runs_on_its_source(cloud: answers.Answers) -> None:
    assert reset(cloud)
    for fields in ({'status': 'ACTIVE'}, {'host': 'host2'}, {'OS-EXT-STS:power_state': 4},
                   {'OS-EXT-STS:task_state': 'migrating'}):
        assert not reset(cloud, **fields)
    with pytest.raises(exception.NovaClientError, match='did not reset its state'):
        reset(cloud, answers.Response({'forbidden': {'message': 'no'}}, 403))


def test_completed_record_of_a_server_that_stays_migrating_is_left(
        cloud: answers.Answers) -> None:
    server = answers.server('vm', 'host2', **{'OS-EXT-STS:task_state': 'migrating'})
    found = novas.look(cloud, [[answers.migration(6, status='completed')]], server)
    assert (found.stage, found.ending) == (base.MigrationStage.LEFT, base.MigrationStage.COMPLETED)


EVENTS = [
    {'event': 'compute_live_migration', 'start_time': '2026-11-20T10:00:04.000000',
     'finish_time': '2026-11-20T10:00:04.000000'},
    {'event': 'compute_post_live_migration_at_destination',
     'start_time': '2026-11-20T10:01:30.000000', 'finish_time': '2026-11-20T10:01:33.000000'},
    {'event': 'compute_pre_live_migration', 'start_time': '2026-11-20T10:00:05.000000',
     'finish_time': '2026-11-20T10:00:12.000000'}]


def measured(cloud: answers.Answers, events: list[dict[str, Any]], *, status: str = 'completed',
             reference: str = 'm6', action: dict[str, Any] | None = None,
             task: model.Task = novas.TASK) -> Any:
    path = '/servers/vm/os-instance-actions'
    record = answers.migration(6, status=status) | {'updated_at': '2026-11-20T10:01:35.000000'}
    cloud.answers['/os-migrations'] = [{'migrations': [record]}]
    cloud.answers[path] = [{'instanceActions': [
        {'action': 'reboot', 'request_id': 'req-2'},
        {'action': 'live-migration', 'request_id': 'req-1',
         'start_time': '2026-11-20T10:00:00.000000'} | (action or {})]}]
    cloud.answers[f'{path}/req-1'] = [{'instanceAction': {'events': events}}]
    return novas.driver(cloud).read_phase_seconds(task, reference)


def test_novas_events_tell_how_long_the_phases_took(cloud: answers.Answers) -> None:
    assert measured(cloud, EVENTS) == {
        'pre_check': 5, 'preparing': 7, 'running': 78, 'post_migrating': 5}


def test_the_last_measured_phase_lasts_until_the_end(cloud: answers.Answers) -> None:
    unfinished = [event | {'finish_time': None} for event in EVENTS if 'pre' in event['event']]
    assert measured(cloud, [], status='error') == {'pre_check': 95}
    assert measured(cloud, unfinished, status='failed') == {'pre_check': 5, 'preparing': 90}


@pytest.mark.parametrize('strange', [
    {'status': 'running'}, {'reference': 'm7'}, {'action': {'action': 'reboot'}},
    {'action': {'start_time': None}}, {'action': {'start_time': '2026-11-20T10:00:30'}},
    {'task': dataclasses.replace(novas.TASK, method=model.MoveMethod.COLD)}])
def test_times_that_are_not_there_or_run_backwards_measure_nothing(
        cloud: answers.Answers, strange: dict[str, Any]) -> None:
    assert measured(cloud, EVENTS, **strange) == {}


def test_an_unreadable_event_time_raises_that_it_could_not_be_read(cloud: answers.Answers) -> None:
    with pytest.raises(exception.NovaClientError, match='could not read'):
        measured(cloud, [EVENTS[0] | {'event': 'compute_pre_live_migration', 'start_time': 'x'}])


@pytest.mark.parametrize(('status', 'phase'), [
    ('accepted', 'pre_check'), ('queued', 'pre_check'), ('preparing', 'preparing'),
    ('running', 'running'), ('running (post-copy)', 'running'),
    ('post-migrating', 'post_migrating'), ('something new', None)])
def test_a_status_of_nova_is_a_phase(cloud: answers.Answers, status: str,
                                     phase: str | None) -> None:
    found = novas.look(cloud, [[answers.migration(6, status=status)]],
                       MIGRATING)
    assert found.phase == phase


def test_a_failure_quotes_what_nova_recorded(cloud: answers.Answers) -> None:
    actions = '/servers/vm/os-instance-actions'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': 'reboot', 'request_id': 'req-2'},
        {'action': 'live-migration', 'request_id': 'req-1', 'message': 'Error'}]}]
    cloud.answers[f'{actions}/req-1'] = [{'instanceAction': {'events': [
        {'event': 'check', 'details': None}, {'event': 'migrate', 'details': 'no\npage left'}]}}]
    found = novas.look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'))
    assert found == base.MigrationProgress(base.MigrationStage.FAILED,
                                           'Nova: migration error: no page left', 'm6')


SHARED = ('/x is not on shared storage: Shared storage live-migration requires either shared '
          'storage or boot-from-volume with no local disks.')


@pytest.mark.parametrize(('event', 'phase', 'rule'), [
    ({'details': SHARED}, 'spread', 'copies-disk'), ({'details': SHARED}, 'pack', 'copies-disk'),
    ({'traceback': f'Traceback:\n  File x\nInvalidSharedStorage: {SHARED}\n'}, 'spread',
     'copies-disk'),
    ({'details': SHARED}, 'evacuate', None), ({'details': 'no room'}, 'spread', None)])
def test_novas_refusal_to_copy_disks_is_known_by_its_rule(
        cloud: answers.Answers, event: dict[str, Any], phase: str, rule: str | None) -> None:
    actions = '/servers/vm/os-instance-actions'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': 'live-migration', 'request_id': 'req-1', 'message': 'Error'}]}]
    cloud.answers[f'{actions}/req-1'] = [{'instanceAction': {'events': [
        {'event': 'check'} | event, {'event': 'conductor'}]}}]
    task = dataclasses.replace(novas.TASK, phase=model.Phase(phase))
    found = novas.look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'), task)
    assert (found.stage, found.rule) == (base.MigrationStage.FAILED, rule)
    assert ('[engine] allow_disk_copy' in found.detail) == (rule is not None)


@pytest.mark.parametrize('method', ['live', 'cold'])
@pytest.mark.parametrize(('answer', 'stage'), [
    (answers.Response({}, 500), 'untold'), (answers.Response({}, 503), 'untold'),
    (answers.Response({}, 429), 'untold'), (answers.Response({}, 408), 'untold'),
    (b'no JSON', 'untold'), (answers.Response({}, 400), 'failed'),
    (answers.Response({}, 403), 'failed'), (answers.Response({}, 404), 'failed'),
    (answers.Response({}, 409), 'failed')])
@pytest.mark.parametrize('where', ['', '/req-1'])
def test_the_failure_reason_is_requested_again_unless_nova_refuses_it(
        cloud: answers.Answers, method: str, where: str, answer: Any, stage: str) -> None:
    actions = '/servers/vm/os-instance-actions'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': 'live-migration' if method == 'live' else 'migrate', 'request_id': 'req-1'}]}]
    cloud.answers[f'{actions}/req-1'] = [{'instanceAction': {'events': []}}]
    cloud.answers[actions + where] = [answer]
    if method == 'live':
        found = novas.look(cloud, [[answers.migration(6, status='failed')]], answers.server('vm'))
    else:
        found = novas.look(cloud, [[novas.cold(status='error')]], novas.stopped(), novas.COLD)
    assert (found.stage, found.reference) == (stage, 'm6')


@pytest.mark.parametrize(('details', 'fault'), [
    ('Compute service of host1 is unavailable at this time.', nova_error_classes.FaultyPart.API),
    ('Compute service of host2 is unavailable at this time.',
     nova_error_classes.FaultyPart.DESTINATION),
    ('Feature not supported with instances that have accelerators.',
     nova_error_classes.FaultyPart.INSTANCE)])
def test_whose_fault_it_was_goes_with_the_failure(cloud: answers.Answers, details: str,
                                                  fault: nova_error_classes.FaultyPart) -> None:
    actions = '/servers/vm/os-instance-actions'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': 'live-migration', 'request_id': 'req-1'}]}]
    cloud.answers[f'{actions}/req-1'] = [{'instanceAction': {'events': [
        {'event': 'conductor', 'result': 'Error', 'details': details}]}}]
    found = novas.look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'))
    assert (found.stage, found.fault) == (base.MigrationStage.FAILED, fault)


def test_an_operators_later_error_is_not_our_failure_reason(cloud: answers.Answers) -> None:
    actions = '/servers/vm/os-instance-actions'
    cloud.user = 'kronos'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': 'live-migration', 'request_id': 'req-2', 'user_id': 'admin'},
        {'action': 'live-migration', 'request_id': 'req-1', 'user_id': 'kronos'}]}]
    for request, details in (('req-2', 'No valid host was found.'), (
            'req-1', 'Feature not supported with instances that have accelerators.')):
        cloud.answers[f'{actions}/{request}'] = [{'instanceAction': {'events': [
            {'event': 'conductor', 'result': 'Error', 'details': details}]}}]
    ours = uuidutils.generate_uuid()
    cloud.answers[f'/allocations/{ours}'] = [{'allocations': {}}]
    novas.look(cloud, [[answers.migration(6, status='error', uuid=ours),
                        answers.migration(7, status='error')]], answers.server('vm'))
    found = novas.driver(cloud).read_progress(novas.TASK, bound(ours))
    assert (found.reference, found.fault) == (ours, nova_error_classes.FaultyPart.INSTANCE)


RUNNING = {'event': 'conductor', 'finish_time': None, 'result': None, 'details': None}
ENDED = RUNNING | {'event': 'check', 'finish_time': '2026-11-22T10:00:00.0', 'result': 'Error'}


@pytest.mark.parametrize('method', ['live', 'cold'])
@pytest.mark.parametrize(('events', 'stage', 'text'), [
    ([RUNNING], 'untold', ''), ([ENDED, RUNNING], 'untold', ''), ([RUNNING, ENDED], 'untold', ''),
    ([ENDED], 'failed', ': Error'), ([RUNNING | {'result': 'Error'}], 'failed', ': Error'),
    ([RUNNING | {'finish_time': '2026-11-22T10:00:00.0'}], 'failed', ': Error'),
    ([ENDED | {'details': 'no CPU'}, RUNNING], 'failed', ': no CPU'), ([], 'failed', ': Error')])
def test_the_failure_reason_stays_pending_until_novas_events_have_ended(
        cloud: answers.Answers, method: str, events: list[dict[str, Any]], stage: str,
        text: str) -> None:
    """nova-conductor says that it failed first, and then why."""
    actions = '/servers/vm/os-instance-actions'
    name = 'live-migration' if method == 'live' else 'migrate'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': name, 'request_id': 'req-1', 'message': 'Error'},
        {'action': name, 'request_id': 'req-0', 'message': 'Error'}]}]
    cloud.answers[f'{actions}/req-1'] = [{'instanceAction': {'events': events}}]
    cloud.answers[f'{actions}/req-0'] = [{'instanceAction': {'events': [
        ENDED | {'details': 'an older one'}]}}]
    if method == 'live':
        found = novas.look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'))
    else:
        found = novas.look(cloud, [[novas.cold(status='error')]], novas.stopped(), novas.COLD)
    assert (found.stage, found.reference) == (stage, 'm6')
    assert found.detail.startswith(f'Nova: migration error{text}')


@pytest.mark.parametrize('method', ['live', 'cold'])
@pytest.mark.parametrize(('migration', 'instance', 'said'), [
    ({'node1': {'resources': {'VCPU': 2}}}, ['node2'], 'migration m6 still has'),
    ({}, ['node1', 'node2'], 'still has an allocation on resource provider node2, of host2'),
    ({}, ['numa2'], 'still has an allocation on resource provider numa2, of host2'),
    ({}, ['node1', 'shared'], None), ({}, [], None)])
def test_a_failed_migration_has_settled_when_its_allocations_are_gone(
        cloud: answers.Answers, method: str, migration: Any, instance: list[str],
        said: str | None) -> None:
    cloud.answers['/allocations/m6'] = [{'allocations': migration}]
    cloud.answers['/allocations/vm'] = [{'allocations': {
        provider: {'resources': {'VCPU': 2}} for provider in instance}}]
    if method == 'live':
        found = novas.look(cloud, [[answers.migration(6, status='failed')]], answers.server('vm'))
    else:
        found = novas.look(cloud, [[novas.cold(status='error')]], novas.stopped(), novas.COLD)
    assert found.stage is (base.MigrationStage.SETTLING if said else base.MigrationStage.FAILED)
    assert found.reference == 'm6' and (said is None or said in found.detail)


def test_allocations_of_another_users_later_migration_delay_nothing(cloud: answers.Answers) -> None:
    cloud.answers['/allocations/vm'] = [{'allocations': {
        'node2': {'resources': {'VCPU': 2}}}}]
    later = answers.migration(7, dest_compute='host3')
    found = novas.look(cloud, [[answers.migration(6, status='error'), later]],
                       answers.server('vm', **{'OS-EXT-STS:task_state': 'migrating'}))
    assert found.stage is base.MigrationStage.FAILED


@pytest.mark.parametrize('method', ['live', 'cold'])
def test_a_later_migration_keeps_an_unexplained_failure_pending(cloud: answers.Answers,
                                                                method: str) -> None:
    cloud.answers['/servers/vm/os-instance-actions'] = [answers.Response({}, 503)]
    cloud.answers['/allocations/m6'] = [{'allocations': {'node1': {'resources': {'VCPU': 2}}}}]
    if method == 'live':
        later = answers.migration(7, dest_compute='host3')
        found = novas.look(
            cloud, [[answers.migration(6, status='error'), later]], answers.server('vm'))
    else:
        later = novas.cold(7, status='migrating', dest_compute='host3')
        found = novas.look(
            cloud, [[novas.cold(status='error'), later]], novas.stopped(), novas.COLD)
    assert (found.stage, found.reference) == (base.MigrationStage.UNTOLD, 'm6')


def test_that_placement_cannot_be_read_is_no_end(cloud: answers.Answers) -> None:
    cloud.answers['/allocations/m6'] = [answers.Response({}, 503)]
    with pytest.raises(exception.NovaClientError, match='HTTP 503'):
        novas.look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'))


@pytest.mark.parametrize(('status', 'said', 'kind'), [
    (400, 'Compute host host3 could not be found.', exception.MigrationFailed),
    (400, 'Migration pre-check error: no.', exception.MigrationFailed),
    (400, 'vTPM live migration is not supported by old nova-compute services.',
     exception.InstanceRefused),
    (403, 'Feature not supported with instances that have accelerators.',
     exception.InstanceRefused),
    (403, 'Policy does not allow it', exception.NovaClientError),
    (409, "Operation 'live-migration' not supported for mem encryption enabled instance (vm).",
     exception.InstanceRefused),
    (409, 'something else', exception.MigrationFailed),
    (400, 'Compute service of host1 is unavailable at this time.', exception.MigrationFailed)])
def test_an_immediate_refusal_maps_status_and_text_to_an_error(
        cloud: answers.Answers, status: int, said: str, kind: type[Exception]) -> None:
    cloud.answers['/servers/vm'] = [{'server': answers.server('vm')}]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    refused = answers.Response({'badRequest': {'message': said, 'code': status}}, status)
    found = nova.NovaExecutor(conf, cloud)._judge_refusal(novas.TASK, refused)
    assert type(found) is kind and said in str(found)
    assert found.kwargs['instance_uuid'] == 'vm'


NOT_FOUND = answers.Response(
    {'badRequest': {'message': 'Compute host host2 could not be found.', 'code': 400}}, 400)


def looked_for(cloud: answers.Answers, service: Any, hypervisors: list[Any],
               task: model.Task = novas.TASK) -> exception.MigrationError:
    """Return the error for a request whose host2 Nova does not find."""
    cloud.answers['/os-services'] = [service]
    cloud.answers['/os-hypervisors/detail'] = [{'hypervisors': hypervisors}]
    return novas.driver(cloud)._judge_refusal(task, NOT_FOUND)


def services(**fields: Any) -> dict[str, Any]:
    return {'services': [{
        'host': 'host2', 'binary': 'nova-compute', 'status': 'enabled', 'state': 'up',
        'forced_down': False, 'disabled_reason': None, 'zone': 'nova'} | fields]}


HYPERVISOR = {'id': 'node2', 'hypervisor_hostname': 'host2.example.org',
              'hypervisor_type': 'QEMU', 'service': {'host': 'host2'}}


@pytest.mark.parametrize('method', model.MoveMethod)
def test_a_host_that_is_up_and_that_nova_does_not_find_is_in_another_cell(
        cloud: answers.Answers, method: model.MoveMethod) -> None:
    found = looked_for(
        cloud, services(), [HYPERVISOR], dataclasses.replace(novas.TASK, method=method))
    assert type(found) is exception.OtherCell and found.kwargs['rule'] == 'cell-differs'
    for word in ('vm', 'host1', 'host2', 'HTTP 400: Compute host host2 could not be found',
                 '[engine] cell_metadata_key'):
        assert word in str(found)


@pytest.mark.parametrize(('service', 'hypervisors'), [
    ({'services': []}, [HYPERVISOR]), (services(state='down'), [HYPERVISOR]),
    (services(forced_down=True), [HYPERVISOR]), (services(), [])])
def test_a_host_that_is_down_or_gone_has_refused(
        cloud: answers.Answers, service: Any, hypervisors: list[Any]) -> None:
    assert type(looked_for(cloud, service, hypervisors)) is exception.MigrationFailed


def test_a_host_whose_service_cannot_be_read_raises_for_a_retry(cloud: answers.Answers) -> None:
    for service in (services(status='UNKNOWN'), answers.Response({}, 503)):
        found = looked_for(cloud, service, [HYPERVISOR])
        assert type(found) is exception.NovaClientError


def test_an_unreachable_cell_is_no_end(cloud: answers.Answers) -> None:
    with pytest.raises(exception.NovaClientError, match='its cell does not answer Nova'):
        novas.look(cloud, [[answers.migration(6)]], {'id': 'vm', 'status': 'UNKNOWN'})


@pytest.mark.parametrize('marker', ['', '{}', '[]', '{"migration_id": null}', 'x'])
def test_an_unreadable_marker_is_not_guessed(cloud: answers.Answers, marker: str) -> None:
    conf = cfg.ConfigOpts()
    opts.register(conf)
    with pytest.raises(exception.NovaClientError, match='marker of task t1 is unreadable'):
        nova.NovaExecutor(conf, cloud).read_progress(novas.TASK, marker)


@pytest.mark.parametrize('status', ['accepted', 'pre-migrating', 'running (post-copy)',
                                    'post-migrating', 'completed', 'cancelled'])
def test_a_live_migration_that_cannot_be_aborted_is_not(cloud: answers.Answers,
                                                       status: str) -> None:
    cloud.answers['/os-migrations'] = [{'migrations': [answers.migration(6, status=status)]}]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    driver = nova.NovaExecutor(conf, cloud)
    assert not driver.abort(novas.TASK, novas.MARKER)
    assert not driver.abort(novas.COLD, novas.MARKER)


@pytest.mark.parametrize(('status', 'outcome'), [
    (202, True), (400, False), (404, False), (409, False), (403, None), (503, None)])
def test_abort_ends_our_migration_alone_and_accepts_one_that_has_ended(
        cloud: answers.Answers, status: int, outcome: bool | None) -> None:
    cloud.answers['/os-migrations'] = [{'migrations': [
        answers.migration(6), answers.migration(7, dest_compute='host3')]}]
    cloud.answers['DELETE /servers/vm/migrations/6'] = [answers.Response({}, status)]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    driver = nova.NovaExecutor(conf, cloud)
    if outcome is None:
        with pytest.raises(exception.NovaClientError, match=f'refused to abort.*HTTP {status}'):
            driver.abort(novas.TASK, novas.MARKER)
    else:
        assert driver.abort(novas.TASK, novas.MARKER) is outcome


def test_an_abort_that_breaks_the_instance_is_no_cancellation(cloud: answers.Answers) -> None:
    found = novas.look(cloud, [[answers.migration(6, status='cancelled')]],
                       answers.server('vm', status='ERROR'))
    assert (found.stage, found.broken) == (base.MigrationStage.FAILED, True)


@pytest.mark.parametrize(('configured', 'leased', 'expected'), [
    (['green', 'blue'], {'blue'}, []),  # nobody plans green
    (['green', 'blue'], {'green', 'blue'}, ['green']),
    (['blue', 'green'], {'green', 'blue'}, []),
    (['green', 'blue'], {'green'}, []),  # the engine of blue is gone
    (['green'], {'green', 'blue'}, []),  # the executor is not told about blue
])
def test_a_host_belongs_to_the_scope_that_the_engine_has_it_in(
        cloud: answers.Answers, configured: list[str], leased: set[str],
        expected: list[str]) -> None:
    """What owns hosts of blue before it."""
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf.set_override('aggregates', configured, 'engine')
    check = preflight_check.PreFlightCheck(conf, preflight_reader.FreshReader(conf, cloud))
    named = check._list_planned_aggregates(dataclasses.replace(novas.TASK, aggregate='blue'),
                                           base.StoredFacts(now=0.0, scopes=frozenset(leased)))
    assert named[:named.index('blue')] == expected if named else expected == []
    cluster = model.Cluster({h: model.Host(h) for h in 'ab'}, {}, {},
                            aggregates={'blue': ('a', 'b'), 'green': ('b',)})
    assert cluster.replace_scope('blue', named).scope_hosts == ({'a'} if expected else {'a', 'b'})


ELSEWHERE = [answers.migration(6, dest_compute='host3'), answers.migration(7, dest_compute='host4')]


@pytest.mark.parametrize(('migrations', 'server', 'expected'), [
    ([[]], novas.GONE,
     base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted')),
    ([[]], answers.server('vm'),
     base.MigrationProgress(base.MigrationStage.ABSENT, 'Nova has no migration of ours')),
    ([[]], MIGRATING,
     base.MigrationProgress(base.MigrationStage.WAITING, 'accepted, not yet recorded')),
    ([ELSEWHERE], MIGRATING,
     base.MigrationProgress(base.MigrationStage.ABSENT,
                            'Nova carries out another migration of this instance, m7')),
    ([ELSEWHERE], answers.server('vm'),
     base.MigrationProgress(base.MigrationStage.ABSENT, 'Nova has no migration of ours')),
    ([[answers.migration(5, dest_compute='host3'),
       answers.migration(8, dest_compute='host3', status='completed')]], MIGRATING,
     base.MigrationProgress(base.MigrationStage.WAITING, 'accepted, not yet recorded')),
    ([[], [answers.migration(6)]], MIGRATING,
     base.MigrationProgress(base.MigrationStage.WAITING, 'accepted, not yet recorded')),
    ([[], [answers.migration(6, status='completed')]], answers.server('vm'),
     base.MigrationProgress(base.MigrationStage.COMPLETED, '', 'm6')),
    ([[], [answers.migration(6, status='completed')]], novas.GONE,
     base.MigrationProgress(base.MigrationStage.COMPLETED, '', 'm6')),
    ([[answers.migration(6, status='cancelled')]], novas.GONE, base.MigrationProgress(
        base.MigrationStage.CANCELLED, 'aborted, or the nova-compute of its source was stopped',
        'm6')),
    ([[answers.migration(6, status='cancelled')]], answers.server('vm'), base.MigrationProgress(
        base.MigrationStage.CANCELLED, 'aborted, or the nova-compute of its source was stopped',
        'm6',
        patience=30.0)),
    ([[answers.migration(6)]], novas.GONE,
     base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted', 'm6')),
    ([[answers.migration(6, status='preparing')]], MIGRATING,
     base.MigrationProgress(base.MigrationStage.WAITING, 'preparing', 'm6', phase='preparing')),
    ([[answers.migration(6)]], MIGRATING,
     base.MigrationProgress(base.MigrationStage.RUNNING, 'running', 'm6', phase='running')),
    ([[answers.migration(6, status='failed')]], answers.server('vm', 'host2'),
     base.MigrationProgress(
        base.MigrationStage.COMPLETED,
        'the migration ended as failed, but the instance is on host2',
        'm6')),
    ([[answers.migration(6, status='failed')]], MIGRATING,
     base.MigrationProgress(base.MigrationStage.SETTLING, 'Nova still calls the instance migrating',
                            'm6')),
    ([[answers.migration(6, status='error')]], answers.server('vm', status='ERROR'),
     base.MigrationProgress(base.MigrationStage.FAILED, 'Nova: migration error', 'm6', broken=True,
                            place='host1'))])
def test_live_migration_progress_follows_records_and_server(
        cloud: answers.Answers, migrations: Any, server: Any,
        expected: base.MigrationProgress) -> None:
    found = novas.look(cloud, migrations, server)
    assert dataclasses.replace(found, version=None) == expected


def test_of_disks_that_are_not_copied_the_options_are_named(cloud: answers.Answers) -> None:
    actions = '/servers/vm/os-instance-actions'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': 'live-migration', 'request_id': 'req-1', 'message': 'Error'}]}]
    cloud.answers[f'{actions}/req-1'] = [{'instanceAction': {'events': [
        {'event': 'check', 'details': SHARED}]}}]
    assert novas.look(cloud, [[answers.migration(6, status='error')]],
                      answers.server('vm')) == base.MigrationProgress(
        base.MigrationStage.FAILED,
        'it has disks on host1 itself, which imbalance moves do not copy. Allow it with [engine] '
        'allow_disk_copy, or set instance_storage = local. Nova: migration error: ' + SHARED,
        'm6', 'copies-disk')


@pytest.mark.parametrize('later', [
    answers.migration(5, dest_compute='host3'), answers.migration(6, status='error'),
    answers.migration(7, dest_compute='host3', status='completed')])
def test_only_a_later_running_migration_takes_over_leftover_allocations(
        cloud: answers.Answers, later: dict[str, Any]) -> None:
    cloud.answers['/allocations/m6'] = [{'allocations': {'node1': {'resources': {'VCPU': 2}}}}]
    found = novas.look(cloud, [[answers.migration(6, status='error'), later]],
                       answers.server('vm'))
    assert found == base.MigrationProgress(
        base.MigrationStage.SETTLING, 'migration m6 still has its allocation in Placement', 'm6')


@pytest.mark.parametrize(('fields', 'task', 'kind', 'rule', 'said'), [
    ({'OS-EXT-STS:task_state': 'rebooting'}, novas.TASK, exception.PreFlightError, 'not-active',
     'it became rebooting in the last moment'),
    ({'status': 'PAUSED'}, novas.TASK, exception.PreFlightError, 'not-active',
     'it became PAUSED in the last moment'),
    ({'locked': True}, novas.TASK, exception.PreFlightError, 'locked',
     'it was locked in the last moment'),
    ({'OS-EXT-STS:task_state': 'migrating'}, novas.TASK, exception.AmbiguousSubmit, None,
     'it says that the instance is migrating already'),
    ({'OS-EXT-STS:task_state': 'resize_prep'}, novas.TASK, exception.AmbiguousSubmit, None,
     'it says that the instance is migrating already'),
    ({'status': 'VERIFY_RESIZE'}, novas.COLD, exception.AmbiguousSubmit, None,
     'it says that the instance is migrating already'),
    ({'status': 'SHUTOFF'}, novas.COLD, exception.PreFlightError, 'not-active',
     'it became SHUTOFF in the last moment'),
    ({'status': 'PAUSED'}, dataclasses.replace(novas.TASK, phase=model.Phase.EVACUATE),
     exception.MigrationFailed, None,
     'Nova refused the live migration to host2: HTTP 409: no'),
    ({}, novas.COLD, exception.PreFlightError, 'method-changed',
     'it is ACTIVE and a cold migration was planned; the next plan knows'),
    ({}, novas.TASK, exception.MigrationFailed, None,
     'Nova refused the live migration to host2: HTTP 409: no')])
def test_a_conflict_maps_the_server_state_to_kind_rule_and_problem(
        cloud: answers.Answers, fields: dict[str, Any], task: model.Task, kind: type[Exception],
        rule: str | None, said: str) -> None:
    cloud.answers['/servers/vm'] = [{'server': answers.server('vm', **fields)}]
    refused = answers.Response({'conflictingRequest': {'message': 'no', 'code': 409}}, 409)
    found = novas.driver(cloud)._judge_refusal(task, refused)
    assert type(found) is kind and found.kwargs['instance_uuid'] == 'vm'
    assert found.kwargs.get('rule') == rule and found.kwargs['problem'] == said


def test_a_conflict_over_a_stopped_instance_means_method_changed(cloud: answers.Answers) -> None:
    cloud.answers['/servers/vm'] = [{'server': answers.server('vm', status='SHUTOFF')}]
    driver = novas.driver(cloud)
    driver._conf.set_override('cold_migrate_stopped', True, 'engine')
    found = driver._judge_refusal(dataclasses.replace(novas.TASK, phase=model.Phase.EVACUATE),
                            answers.Response({}, 409))
    assert found.kwargs['rule'] == 'method-changed'


@pytest.mark.parametrize(('answer', 'kind', 'said'), [
    (novas.GONE, exception.PreFlightError, 'it was deleted; there is nothing left to move'),
    (answers.Response({}, 503), exception.NovaClientError,
     'could not read server vm from Nova: HTTP 503')])
def test_after_a_conflict_the_instance_may_be_gone_or_not_be_read(
        cloud: answers.Answers, answer: Any, kind: type[Exception], said: str) -> None:
    cloud.answers['/servers/vm'] = [answer]
    cloud.answers['/servers/detail'] = [{'servers': []}]
    found = novas.driver(cloud)._judge_refusal(novas.TASK, answers.Response({}, 409))
    assert type(found) is kind
    assert found.kwargs['instance_uuid'] == 'vm' and said in found.kwargs['problem']


@pytest.mark.parametrize(('task', 'status', 'kind', 'said'), [
    (novas.TASK, 500, exception.AmbiguousSubmit, 'HTTP 500: no'),
    (novas.TASK, 499, exception.NovaClientError,
     'Nova refused the live migration: HTTP 499: no'),
    (novas.COLD, 413, exception.NovaClientError,
     'Nova refused the cold migration: HTTP 413: no'),
    (novas.TASK, 400, exception.MigrationFailed,
     'Nova refused the live migration to host2: HTTP 400: no'),
    (novas.COLD, 400, exception.MigrationFailed,
     'Nova refused the cold migration to host2: HTTP 400: no'),
    (novas.TASK, 404, exception.PreFlightError,
     'it was deleted; there is nothing left to move')])
def test_an_error_status_maps_to_an_exception_with_its_text(
        cloud: answers.Answers, task: model.Task, status: int, kind: type[Exception],
        said: str) -> None:
    refused = answers.Response({'badRequest': {'message': 'no', 'code': status}}, status)
    found = novas.driver(cloud)._judge_refusal(task, refused)
    assert type(found) is kind
    assert (found.kwargs['instance_uuid'], found.kwargs['problem']) == ('vm', said)


@pytest.mark.parametrize(('task', 'policy'), [
    (novas.TASK, 'os_compute_api:os-migrate-server:migrate_live'),
    (novas.COLD, 'os_compute_api:os-migrate-server:migrate:host')])
def test_the_right_that_is_lacking_is_named(cloud: answers.Answers, task: model.Task,
                                            policy: str) -> None:
    refused = answers.Response({'forbidden': {'message': 'no', 'code': 403}}, 403)
    assert policy in str(novas.driver(cloud)._judge_refusal(task, refused))


def test_other_cell_error_names_both_hosts_after_one_service_query(cloud: answers.Answers) -> None:
    found = looked_for(cloud, services(), [HYPERVISOR])
    assert {name: found.kwargs[name] for name in ('instance_uuid', 'from_host', 'to_host')} == {
        'instance_uuid': 'vm', 'from_host': 'host1', 'to_host': 'host2'}
    assert [params.get('host') for path, params, _ in cloud.asked if path == '/os-services'] == [
        'host2']


ABORT = 'DELETE /servers/vm/migrations/6'


def test_a_failed_abort_raises_with_novas_reason_and_the_policy(
        cloud: answers.Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.answers['/os-migrations'] = [{'migrations': [answers.migration(6)]}]
    cloud.answers[ABORT] = [answers.Response({'forbidden': {'message': 'no', 'code': 403}}, 403)]
    driver = novas.driver(cloud)
    with pytest.raises(exception.NovaClientError) as error:
        driver.abort(novas.TASK, novas.MARKER)
    assert error.value.kwargs['instance_uuid'] == 'vm'
    assert error.value.kwargs['problem'].startswith(
        'Nova refused to abort its live migration: HTTP 403: no')
    assert live.ABORT_POLICY in error.value.kwargs['problem']
    cloud.answers['/os-migrations'] = [answers.Response({}, 503)]
    with pytest.raises(exception.NovaClientError) as error:
        driver.abort(novas.TASK, novas.MARKER)
    assert error.value.kwargs['instance_uuid'] == 'vm'
    assert error.value.kwargs['problem'].startswith(
        'its live migration could not be aborted: HTTP 503')


@pytest.mark.parametrize('status', [199, 300])
def test_an_error_status_on_abort_raises(cloud: answers.Answers, status: int) -> None:
    cloud.answers['/os-migrations'] = [{'migrations': [answers.migration(6)]}]
    cloud.answers[ABORT] = [answers.Response({}, status)]
    with pytest.raises(exception.NovaClientError):
        novas.driver(cloud).abort(novas.TASK, novas.MARKER)


def test_both_looks_for_a_migration_are_for_those_of_the_instance(
        cloud: answers.Answers) -> None:
    novas.look(cloud, [[], [answers.migration(6)]], answers.server('vm'))
    assert [params.get('instance_uuid') for path, params, _ in cloud.asked
            if path == '/os-migrations'] == ['vm', 'vm']


def test_measure_requests_migrations_of_its_instance_only(cloud: answers.Answers) -> None:
    measured(cloud, EVENTS)
    assert [params.get('instance_uuid') for path, params, _ in cloud.asked
            if path == '/os-migrations'] == ['vm']


@pytest.mark.parametrize(('action', 'events', 'said'), [
    ({'start_time': 'x'}, [],
     "could not read action req-1 from Nova: field 'start_time' is not a time"),
    ({}, [{'event': 'compute_pre_live_migration', 'start_time': 'x'}],
     "could not read event compute_pre_live_migration from Nova: field 'start_time' is not a "
     'time')])
def test_an_invalid_time_raises_with_its_record(cloud: answers.Answers, action: dict[str, Any],
                                                events: list[Any], said: str) -> None:
    with pytest.raises(exception.NovaClientError) as error:
        measured(cloud, events, action=action)
    assert error.value.kwargs['instance_uuid'] == 'vm'
    assert said in str(error.value)


@pytest.mark.parametrize(('server', 'kind', 'said'), [
    (answers.server('vm', 'host2'), None, ''),
    (answers.server('vm', 'host2', status='PAUSED'), None, ''),
    (answers.server('vm', 'host2', status='SHUTOFF'), exception.MigrationFailed,
     'it is on host2 but SHUTOFF'),
    (answers.server('vm', 'host2', **{'OS-EXT-STS:task_state': 'migrating'}),
     exception.NovaClientError, 'Nova has not finished its migration yet'),
    (answers.server('vm', 'host2', status='ERROR'), exception.InstanceInError,
     'since its migration to host2, on host2'),
    (answers.server('vm', None, status='ERROR'), exception.InstanceInError,
     'since its migration to host2, on no host'),
    (answers.server('vm'), exception.MigrationFailed, 'it is on host1 and not on host2'),
    (answers.server('vm', None), exception.MigrationFailed, 'it is on no host and not on host2'),
    (novas.GONE, exception.PreFlightError, 'it was deleted; there is nothing left to move'),
    (answers.Response({}, 503), exception.ServiceUnavailable,
     'could not read server vm from Nova: HTTP 503')])
def test_where_and_how_it_is_after_a_live_migration(
        cloud: answers.Answers, server: Any, kind: type[Exception] | None, said: str) -> None:
    cloud.answers['/servers/vm'] = [
        server if isinstance(server, answers.Response) else {'server': server}]
    cloud.answers['/servers/detail'] = [{'servers': []}]
    cloud.answers['/os-migrations'] = [{'migrations': [
        answers.migration(1, status='completed'),
        # Of before: host1 is where the instance began.
        answers.migration(0, source_compute='host2', dest_compute='host1')]}]
    driver = novas.driver(cloud)
    if kind is None:
        driver.post_flight(novas.TASK)
        return
    with pytest.raises(kind) as error:
        driver.post_flight(novas.TASK)
    assert type(error.value) is kind and error.value.kwargs['instance_uuid'] == 'vm'
    assert error.value.kwargs['problem'].startswith(said)


@pytest.mark.parametrize('cold', [False, True])
@pytest.mark.parametrize(('later', 'moved'), [
    (answers.migration(2, source_compute='host2', dest_compute='host3', status='finished',
                       migration_type='resize'), True),
    (answers.migration(2, source_compute='host1', dest_compute='host3'), False)])
def test_instance_that_its_user_moved_on_has_come_to_its_destination(
        cloud: answers.Answers, later: Any, moved: bool, cold: bool) -> None:
    cloud.answers['/servers/vm'] = [{'server': answers.server('vm', 'host3', status='RESIZE')}]
    cloud.answers['/os-migrations'] = [{'migrations': [
        answers.migration(1, status='completed'), later]}]
    task = dataclasses.replace(
        novas.TASK, method=model.MoveMethod.COLD if cold else model.MoveMethod.LIVE)
    with contextlib.nullcontext() if moved else pytest.raises(
            exception.MigrationFailed, match='it is on host3 and not on host2'):
        novas.driver(cloud).post_flight(task)


class Asked:
    """Stand in for NovaApi's two requests and record their arguments."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def live_migrate(self, uuid: str, host: str, *, copy_disks: bool,
                     may_send: Callable[[], bool]) -> Any:
        return self._given(('live', uuid, host, copy_disks))

    def cold_migrate(self, uuid: str, host: str, may_send: Callable[[], bool]) -> Any:
        return self._given(('cold', uuid, host))

    def _given(self, what: Any) -> Any:
        self.asked.append(what)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def submitted(cloud: answers.Answers, answer: Any, task: model.Task = novas.TASK,
              **options: Any) -> tuple[Asked, Any]:
    driver = novas.driver(cloud)
    for name, value in options.items():
        driver._conf.set_override(name, value, 'engine')
    asked = Asked(answer)
    asked.api = driver._nova.api  # type: ignore[attr-defined]
    driver._nova = asked  # type: ignore[assignment]
    return asked, driver.submit(task)


@pytest.mark.parametrize(('task', 'options', 'expected'), [
    (novas.TASK, {}, ('live', 'vm', 'host2', False)),
    (novas.TASK, {'allow_disk_copy': True}, ('live', 'vm', 'host2', True)),
    (dataclasses.replace(novas.TASK, phase=model.Phase.EVACUATE), {},
     ('live', 'vm', 'host2', True)),
    (novas.COLD, {}, ('cold', 'vm', 'host2'))])
def test_submit_sends_the_arguments_of_the_task_to_nova(
        cloud: answers.Answers, task: model.Task, options: dict[str, Any], expected: Any) -> None:
    asked, reference = submitted(cloud, answers.Response({}, 202), task, **options)
    assert asked.asked == [expected] and reference == 'req-1'


@pytest.mark.parametrize(('status', 'headers', 'reference'), [
    (200, {'x-openstack-request-id': 'req-7'}, 'req-7'), (299, {}, None),
    (202, {'x-openstack-request-id': ''}, None)])
def test_the_request_is_known_by_its_id(cloud: answers.Answers, status: int,
                                        headers: dict[str, str], reference: str | None) -> None:
    answer = answers.Response({}, status)
    answer.headers = headers
    assert submitted(cloud, answer)[1] == reference


@pytest.mark.parametrize('status', [199, 300])
def test_any_other_answer_is_no_success(cloud: answers.Answers, status: int) -> None:
    with pytest.raises(exception.NovaClientError, match=f'HTTP {status}'):
        submitted(cloud, answers.Response({}, status))


@pytest.mark.parametrize(('task', 'sent', 'kind', 'said'), [
    (novas.TASK, True, exception.AmbiguousSubmit, 'no answer within 60 s'),
    (novas.TASK, False, exception.NovaClientError,
     'the live migration could not be asked for: no answer within 60 s'),
    (novas.COLD, False, exception.NovaClientError,
     'the cold migration could not be asked for: no answer within 60 s')])
def test_an_unanswered_request_is_ambiguous_only_if_it_was_sent(
        cloud: answers.Answers, task: model.Task, sent: bool, kind: type[Exception],
        said: str) -> None:
    lost = api.ApiError('Nova', 'server vm', 'no answer within 60 s', sent=sent)
    with pytest.raises(kind) as error:
        submitted(cloud, lost, task)
    assert type(error.value) is kind
    assert (error.value.kwargs['instance_uuid'], error.value.kwargs['problem']) == ('vm', said)


def test_a_missing_instance_gives_the_rule_no_such_instance(cloud: answers.Answers) -> None:
    found = novas.driver(cloud)._judge_refusal(novas.TASK, answers.Response({}, 404))
    assert found.kwargs['rule'] == 'no-such-instance'


def test_abort_reads_its_instances_migrations_and_accepts_status_200(
        cloud: answers.Answers) -> None:
    cloud.answers['/os-migrations'] = [{'migrations': [answers.migration(6)]}]
    cloud.answers[ABORT] = [answers.Response({}, 200)]
    assert novas.driver(cloud).abort(novas.TASK, novas.MARKER)
    assert [params.get('instance_uuid') for path, params, _ in cloud.asked
            if path == '/os-migrations'] == ['vm']
    with pytest.raises(exception.NovaClientError) as error:
        novas.driver(cloud).abort(novas.TASK, 'no marker')
    assert error.value.kwargs['instance_uuid'] == 'vm'
