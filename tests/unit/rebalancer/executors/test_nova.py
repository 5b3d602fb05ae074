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

import dataclasses
from typing import Any

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import nova
from tests.unit.rebalancer.clients import answers

TASK = model.Task(task_id='t1', plan_id='p1', aggregate=model.UNASSIGNED, instance_uuid='vm',
                  from_host='host1', to_host='host2', phase=model.Phase.SPREAD)
MARKER = '{"migration_id": 5, "time": 0.0}'
GONE = answers.Response({'itemNotFound': {'message': 'gone', 'code': 404}}, 404)


@pytest.fixture
def cloud() -> answers.Answers:
    return answers.Answers()


def look(cloud: answers.Answers, migrations: Any, server: Any,
         task: model.Task = TASK) -> base.Progress:
    """``migrations``: lists given in turn to those who ask."""
    cloud.answers['/os-migrations'] = [{'migrations': m} for m in migrations]
    cloud.answers['/servers/vm'] = [
        server if isinstance(server, answers.Response) else {'server': server}]
    cloud.answers['/servers/detail'] = [{'servers': []}]
    cloud.answers.setdefault('/servers/vm/os-instance-actions', [{'instanceActions': []}])
    cloud.answers.setdefault('/allocations/m6', [{'allocations': {}}])
    cloud.answers.setdefault('/allocations/vm', [{'allocations': {
        'node1': {'resources': {'VCPU': 2}}}}])
    cloud.answers['/os-hypervisors/detail'] = [{'hypervisors': [
        {'id': 'node2', 'hypervisor_hostname': 'host2.example.org', 'hypervisor_type': 'QEMU',
         'service': {'host': 'host2'}}]}]
    cloud.answers['/resource_providers'] = [{'resource_providers': [
        {'uuid': uuid, 'name': uuid, 'root_provider_uuid': 'node2',
         'parent_provider_uuid': parent, 'generation': 1}
        for uuid, parent in (('node2', None), ('numa2', 'node2'))]}]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    return nova.NovaExecutor(conf, cloud).look(task, MARKER)


@pytest.mark.parametrize(('status', 'stage'), [
    ('accepted', base.Stage.WAITING), ('queued', base.Stage.WAITING),
    ('preparing', base.Stage.WAITING), ('running', base.Stage.RUNNING),
    ('running (post-copy)', base.Stage.RUNNING), ('post-migrating', base.Stage.RUNNING),
    ('a status of tomorrow', base.Stage.RUNNING), ('completed', base.Stage.COMPLETED),
    ('failed', base.Stage.FAILED), ('error', base.Stage.FAILED),
    ('cancelled', base.Stage.CANCELLED)])
def test_every_status_has_a_stage(cloud: answers.Answers, status: str,
                                  stage: base.Stage) -> None:
    found = look(cloud, [[answers.migration(6, status=status)]], answers.server('vm'))
    assert (found.stage, found.reference) == (stage, 'm6')


@pytest.mark.parametrize('fields', [
    {'id': 5}, {'id': 4}, {'source_compute': 'host3'}, {'dest_compute': 'host3'},
    {'migration_type': 'evacuation'}])
def test_migrations_of_others_are_not_ours(cloud: answers.Answers, fields: dict[str, Any]) -> None:
    found = look(cloud, [[answers.migration(6) | fields]], answers.server('vm'))
    assert found.stage is base.Stage.ABSENT


def test_ours_may_have_no_destination_yet(cloud: answers.Answers) -> None:
    found = look(cloud, [[answers.migration(6, status='accepted', dest_compute=None)]],
                 answers.server('vm'))
    assert found.stage is base.Stage.WAITING


def test_of_several_the_newest_is_ours(cloud: answers.Answers) -> None:
    found = look(cloud, [[answers.migration(7), answers.migration(6, status='error')]],
                 answers.server('vm'))
    assert (found.stage, found.reference) == (base.Stage.RUNNING, 'm7')


def test_accepted_but_not_recorded_yet_is_waiting(cloud: answers.Answers) -> None:
    found = look(cloud, [[]], answers.server('vm', **{'OS-EXT-STS:task_state': 'migrating'}))
    assert found.stage is base.Stage.WAITING


def test_migrating_for_somebody_else_is_absent(cloud: answers.Answers) -> None:
    found = look(cloud, [[answers.migration(6, dest_compute='host3')]],
                 answers.server('vm', **{'OS-EXT-STS:task_state': 'migrating'}))
    assert found.stage is base.Stage.ABSENT
    assert 'm6' in found.detail


def test_one_that_comes_and_ends_between_two_readings_is_found(cloud: answers.Answers) -> None:
    found = look(cloud, [[], [answers.migration(6, status='completed')]], answers.server('vm'))
    assert found.stage is base.Stage.COMPLETED


def test_an_error_after_the_instance_has_moved_is_a_move(cloud: answers.Answers) -> None:
    found = look(cloud, [[answers.migration(6, status='error')]], answers.server('vm', 'host2'))
    assert found.stage is base.Stage.COMPLETED
    assert 'on host2' in found.detail


EVENTS = [
    {'event': 'compute_live_migration', 'start_time': '2026-11-20T10:00:04.000000',
     'finish_time': '2026-11-20T10:00:04.000000'},
    {'event': 'compute_post_live_migration_at_destination',
     'start_time': '2026-11-20T10:01:30.000000', 'finish_time': '2026-11-20T10:01:33.000000'},
    {'event': 'compute_pre_live_migration', 'start_time': '2026-11-20T10:00:05.000000',
     'finish_time': '2026-11-20T10:00:12.000000'}]


def measured(cloud: answers.Answers, events: list[dict[str, Any]], *, status: str = 'completed',
             reference: str = 'm6', action: dict[str, Any] | None = None,
             task: model.Task = TASK) -> Any:
    path = '/servers/vm/os-instance-actions'
    record = answers.migration(6, status=status) | {'updated_at': '2026-11-20T10:01:35.000000'}
    cloud.answers['/os-migrations'] = [{'migrations': [record]}]
    cloud.answers[path] = [{'instanceActions': [
        {'action': 'reboot', 'request_id': 'req-2'},
        {'action': 'live-migration', 'request_id': 'req-1',
         'start_time': '2026-11-20T10:00:00.000000'} | (action or {})]}]
    cloud.answers[f'{path}/req-1'] = [{'instanceAction': {'events': events}}]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    return nova.NovaExecutor(conf, cloud).measured(task, reference)


def test_novas_events_tell_how_long_the_phases_took(cloud: answers.Answers) -> None:
    assert measured(cloud, EVENTS) == {
        'pre_check': 5, 'preparing': 7, 'running': 78, 'post_migrating': 5}


def test_what_nova_has_not_come_to_is_part_of_the_phase_before(cloud: answers.Answers) -> None:
    unfinished = [event | {'finish_time': None} for event in EVENTS if 'pre' in event['event']]
    assert measured(cloud, [], status='error') == {'pre_check': 95}
    assert measured(cloud, unfinished, status='failed') == {'pre_check': 5, 'preparing': 90}


@pytest.mark.parametrize('strange', [
    {'status': 'running'}, {'reference': 'm7'}, {'action': {'action': 'reboot'}},
    {'action': {'start_time': None}}, {'action': {'start_time': '2026-11-20T10:00:30'}},
    {'task': dataclasses.replace(TASK, method=model.Method.COLD)}])
def test_times_that_are_not_there_or_run_backwards_measure_nothing(
        cloud: answers.Answers, strange: dict[str, Any]) -> None:
    assert measured(cloud, EVENTS, **strange) == {}


def test_a_measure_that_cannot_be_read_is_said_to_be_unread(cloud: answers.Answers) -> None:
    with pytest.raises(exception.NovaClientError, match='could not read'):
        measured(cloud, [EVENTS[0] | {'event': 'compute_pre_live_migration', 'start_time': 'x'}])


@pytest.mark.parametrize(('status', 'phase'), [
    ('accepted', 'pre_check'), ('queued', 'pre_check'), ('preparing', 'preparing'),
    ('running', 'running'), ('running (post-copy)', 'running'),
    ('post-migrating', 'post_migrating'), ('something new', None)])
def test_a_status_of_nova_is_a_phase(cloud: answers.Answers, status: str,
                                     phase: str | None) -> None:
    found = look(cloud, [[answers.migration(6, status=status)]],
                 answers.server('vm', task_state='migrating'))
    assert found.phase == phase


def test_a_failure_quotes_what_nova_recorded(cloud: answers.Answers) -> None:
    actions = '/servers/vm/os-instance-actions'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': 'reboot', 'request_id': 'req-2'},
        {'action': 'live-migration', 'request_id': 'req-1', 'message': 'Error'}]}]
    cloud.answers[f'{actions}/req-1'] = [{'instanceAction': {'events': [
        {'event': 'check', 'details': None}, {'event': 'migrate', 'details': 'no\npage left'}]}}]
    found = look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'))
    assert found == base.Progress(base.Stage.FAILED, 'Nova: migration error: no page left', 'm6')


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
    task = dataclasses.replace(TASK, phase=model.Phase(phase))
    found = look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'), task)
    assert (found.stage, found.rule) == (base.Stage.FAILED, rule)
    assert ('[engine] allow_disk_copy' in found.detail) == (rule is not None)


@pytest.mark.parametrize('method', ['live', 'cold'])
@pytest.mark.parametrize(('answer', 'stage'), [
    (answers.Response({}, 500), 'untold'), (answers.Response({}, 503), 'untold'),
    (answers.Response({}, 429), 'untold'), (b'no JSON', 'untold'),
    (answers.Response({}, 403), 'failed'), (answers.Response({}, 404), 'failed')])
@pytest.mark.parametrize('where', ['', '/req-1'])
def test_why_it_failed_is_asked_again_unless_nova_refuses_to_say(
        cloud: answers.Answers, method: str, where: str, answer: Any, stage: str) -> None:
    actions = '/servers/vm/os-instance-actions'
    cloud.answers[actions] = [{'instanceActions': [
        {'action': 'live-migration' if method == 'live' else 'migrate', 'request_id': 'req-1'}]}]
    cloud.answers[f'{actions}/req-1'] = [{'instanceAction': {'events': []}}]
    cloud.answers[actions + where] = [answer]
    if method == 'live':
        found = look(cloud, [[answers.migration(6, status='failed')]], answers.server('vm'))
    else:
        found = look(cloud, [[cold(status='error')]], stopped(), COLD)
    assert (found.stage, found.reference) == (stage, 'm6')


RUNNING = {'event': 'conductor', 'finish_time': None, 'result': None, 'details': None}
ENDED = RUNNING | {'event': 'check', 'finish_time': '2026-11-22T10:00:00.0', 'result': 'Error'}


@pytest.mark.parametrize('method', ['live', 'cold'])
@pytest.mark.parametrize(('events', 'stage', 'text'), [
    ([RUNNING], 'untold', ''), ([ENDED, RUNNING], 'untold', ''), ([RUNNING, ENDED], 'untold', ''),
    ([ENDED], 'failed', ': Error'), ([RUNNING | {'result': 'Error'}], 'failed', ': Error'),
    ([RUNNING | {'finish_time': '2026-11-22T10:00:00.0'}], 'failed', ': Error'),
    ([ENDED | {'details': 'no CPU'}, RUNNING], 'failed', ': no CPU'), ([], 'failed', ': Error')])
def test_why_it_failed_is_not_known_before_novas_events_of_it_have_ended(
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
        found = look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'))
    else:
        found = look(cloud, [[cold(status='error')]], stopped(), COLD)
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
        found = look(cloud, [[answers.migration(6, status='failed')]], answers.server('vm'))
    else:
        found = look(cloud, [[cold(status='error')]], stopped(), COLD)
    assert found.stage is (base.Stage.SETTLING if said else base.Stage.FAILED)
    assert found.reference == 'm6' and (said is None or said in found.detail)


def test_an_instance_that_nova_calls_migrating_has_not_settled(cloud: answers.Answers) -> None:
    found = look(cloud, [[answers.migration(6, status='error')]],
                 answers.server('vm', **{'OS-EXT-STS:task_state': 'migrating'}))
    assert found.stage is base.Stage.SETTLING


def test_what_a_later_migration_of_somebody_else_holds_is_not_waited_for(
        cloud: answers.Answers) -> None:
    cloud.answers['/allocations/vm'] = [{'allocations': {
        'node2': {'resources': {'VCPU': 2}}}}]
    later = answers.migration(7, dest_compute='host3')
    found = look(cloud, [[answers.migration(6, status='error'), later]],
                 answers.server('vm', **{'OS-EXT-STS:task_state': 'migrating'}))
    assert found.stage is base.Stage.FAILED


@pytest.mark.parametrize('method', ['live', 'cold'])
def test_a_later_migration_does_not_lay_the_failure_to_the_host_before_nova_says_why(
        cloud: answers.Answers, method: str) -> None:
    cloud.answers['/servers/vm/os-instance-actions'] = [answers.Response({}, 503)]
    cloud.answers['/allocations/m6'] = [{'allocations': {'node1': {'resources': {'VCPU': 2}}}}]
    if method == 'live':
        later = answers.migration(7, dest_compute='host3')
        found = look(cloud, [[answers.migration(6, status='error'), later]], answers.server('vm'))
    else:
        later = cold(7, status='migrating', dest_compute='host3')
        found = look(cloud, [[cold(status='error'), later]], stopped(), COLD)
    assert (found.stage, found.reference) == (base.Stage.UNTOLD, 'm6')


def test_that_placement_cannot_be_read_is_no_end(cloud: answers.Answers) -> None:
    cloud.answers['/allocations/m6'] = [answers.Response({}, 503)]
    with pytest.raises(exception.NovaClientError, match='HTTP 503'):
        look(cloud, [[answers.migration(6, status='error')]], answers.server('vm'))


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
    (409, 'something else', exception.MigrationFailed)])
def test_whom_nova_refuses_at_once(cloud: answers.Answers, status: int, said: str,
                                   kind: type[Exception]) -> None:
    cloud.answers['/servers/vm'] = [{'server': answers.server('vm')}]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    refused = answers.Response({'badRequest': {'message': said, 'code': status}}, status)
    found = nova.NovaExecutor(conf, cloud)._refused(TASK, refused)
    assert type(found) is kind and said in str(found)


NOT_FOUND = answers.Response(
    {'badRequest': {'message': 'Compute host host2 could not be found.', 'code': 400}}, 400)


def looked_for(cloud: answers.Answers, service: Any, hypervisors: list[Any],
               task: model.Task = TASK) -> exception.MigrationError:
    """What it means that Nova does not find host2."""
    cloud.answers['/os-services'] = [service]
    cloud.answers['/os-hypervisors/detail'] = [{'hypervisors': hypervisors}]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    return nova.NovaExecutor(conf, cloud)._refused(task, NOT_FOUND)


def services(**fields: Any) -> dict[str, Any]:
    return {'services': [{
        'host': 'host2', 'binary': 'nova-compute', 'status': 'enabled', 'state': 'up',
        'forced_down': False, 'disabled_reason': None, 'zone': 'nova'} | fields]}


HYPERVISOR = {'id': 'node2', 'hypervisor_hostname': 'host2.example.org',
              'hypervisor_type': 'QEMU', 'service': {'host': 'host2'}}


@pytest.mark.parametrize('method', model.Method)
def test_a_host_that_is_up_and_that_nova_does_not_find_is_in_another_cell(
        cloud: answers.Answers, method: model.Method) -> None:
    found = looked_for(cloud, services(), [HYPERVISOR], dataclasses.replace(TASK, method=method))
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


def test_a_host_of_which_nothing_can_be_read_is_asked_for_again(cloud: answers.Answers) -> None:
    for service in (services(status='UNKNOWN'), answers.Response({}, 503)):
        found = looked_for(cloud, service, [HYPERVISOR])
        assert type(found) is exception.NovaClientError


def test_an_instance_deleted_on_its_way_ends_the_task(cloud: answers.Answers) -> None:
    found = look(cloud, [[answers.migration(6)]], GONE)
    assert found.stage is base.Stage.CANCELLED


def test_an_unreachable_cell_is_no_end(cloud: answers.Answers) -> None:
    with pytest.raises(exception.NovaClientError, match='its cell does not answer Nova'):
        look(cloud, [[answers.migration(6)]], {'id': 'vm', 'status': 'UNKNOWN'})


@pytest.mark.parametrize('marker', ['', '{}', '[]', '{"migration_id": null}', 'x'])
def test_an_unreadable_marker_is_not_guessed(cloud: answers.Answers, marker: str) -> None:
    conf = cfg.ConfigOpts()
    opts.register(conf)
    with pytest.raises(exception.NovaClientError, match='marker of task t1 is unreadable'):
        nova.NovaExecutor(conf, cloud).look(TASK, marker)


@pytest.mark.parametrize(('fields', 'kind'), [
    ({'OS-EXT-STS:task_state': 'rebooting'}, exception.PreFlightError),
    ({'status': 'PAUSED'}, exception.PreFlightError),
    ({'locked': True}, exception.PreFlightError),
    ({'OS-EXT-STS:task_state': 'migrating'}, exception.AmbiguousSubmit),
    ({}, exception.MigrationFailed)])
def test_a_conflict_is_the_destinations_fault_only_if_the_instance_is_well(
        cloud: answers.Answers, fields: dict[str, Any], kind: type[Exception]) -> None:
    cloud.answers['/servers/vm'] = [{'server': answers.server('vm', **fields)}]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    refused = answers.Response({'conflictingRequest': {'message': 'no', 'code': 409}}, 409)
    assert type(nova.NovaExecutor(conf, cloud)._refused(TASK, refused)) is kind


COLD = dataclasses.replace(TASK, phase=model.Phase.EVACUATE, method=model.Method.COLD)


def cold(number: int = 6, **fields: Any) -> dict[str, Any]:
    return answers.migration(number, migration_type='migration', **fields)


def stopped(status: str = 'SHUTOFF', task_state: str | None = None,
            host: str = 'host1') -> dict[str, Any]:
    return answers.server('vm', host, status=status, **{'OS-EXT-STS:task_state': task_state})


@pytest.mark.parametrize(('status', 'server', 'stage'), [
    ('pre-migrating', stopped('RESIZE', 'resize_prep'), base.Stage.WAITING),
    ('migrating', stopped('RESIZE', 'resize_migrating'), base.Stage.RUNNING),
    ('post-migrating', stopped('RESIZE', 'resize_migrated', 'host2'), base.Stage.RUNNING),
    ('a status of tomorrow', stopped('RESIZE', 'resize_migrating'), base.Stage.RUNNING),
    ('finished', stopped('RESIZE', 'resize_finish', 'host2'), base.Stage.RUNNING),
    ('finished', stopped('VERIFY_RESIZE', None, 'host2'), base.Stage.UNCONFIRMED),
    ('finished', stopped('SHUTOFF', None, 'host2'), base.Stage.RUNNING),
    ('confirming', stopped('VERIFY_RESIZE', None, 'host2'), base.Stage.RUNNING),
    ('confirmed', stopped('SHUTOFF', None, 'host2'), base.Stage.COMPLETED),
    ('confirmed', stopped('ERROR', None, 'host2'), base.Stage.COMPLETED),
    ('reverting', stopped('REVERT_RESIZE', 'resize_reverting', 'host2'), base.Stage.RUNNING),
    ('reverted', stopped(), base.Stage.CANCELLED),
    ('error', stopped(), base.Stage.FAILED),
    ('error', stopped('RESIZE', 'resize_prep'), base.Stage.RUNNING),
    ('error', stopped('ERROR', None, 'host2'), base.Stage.FAILED),
    ('migrating', stopped('ERROR'), base.Stage.FAILED),
    ('error', stopped('SHUTOFF', None, 'host2'), base.Stage.COMPLETED)])
def test_every_status_of_a_cold_migration_has_a_stage(
        cloud: answers.Answers, status: str, server: dict[str, Any], stage: base.Stage) -> None:
    found = look(cloud, [[cold(status=status)]], server, COLD)
    assert (found.stage, found.reference) == (stage, 'm6')
    assert found.broken == (stage is base.Stage.FAILED and server['status'] == 'ERROR')


@pytest.mark.parametrize('fields', [
    {'id': 5}, {'source_compute': 'host3'}, {'dest_compute': 'host3'},
    {'migration_type': 'resize'}, {'migration_type': 'live-migration'}])
def test_cold_migrations_and_resizes_of_others_are_not_ours(
        cloud: answers.Answers, fields: dict[str, Any]) -> None:
    found = look(cloud, [[cold(status='finished') | fields]],
                 stopped('VERIFY_RESIZE', None, 'host2'), COLD)
    assert found.stage is base.Stage.ABSENT


@pytest.mark.parametrize(('actions', 'stage'), [
    ([{'action': 'migrate', 'user_id': 'kronos'}], base.Stage.UNCONFIRMED),
    ([{'action': 'lock', 'user_id': 'admin'}, {'action': 'migrate', 'user_id': 'kronos'},
      {'action': 'migrate', 'user_id': 'admin'}], base.Stage.UNCONFIRMED),
    ([{'action': 'migrate', 'user_id': 'admin'}, {'action': 'migrate', 'user_id': 'kronos'}],
     base.Stage.ABSENT),
    ([{'action': 'migrate', 'user_id': None}], base.Stage.UNCONFIRMED),
    ([], base.Stage.UNCONFIRMED)])
def test_what_another_user_asked_for_is_not_confirmed(
        cloud: answers.Answers, actions: list[dict[str, Any]], stage: base.Stage) -> None:
    cloud.user = 'kronos'
    cloud.answers['/servers/vm/os-instance-actions'] = [{'instanceActions': actions}]
    found = look(cloud, [[cold(status='finished')]], stopped('VERIFY_RESIZE', None, 'host2'), COLD)
    assert found.stage is stage


def test_a_cold_migration_that_is_not_recorded_yet_is_waiting(cloud: answers.Answers) -> None:
    found = look(cloud, [[]], stopped('RESIZE', 'resize_prep'), COLD)
    assert found.stage is base.Stage.WAITING


@pytest.mark.parametrize('status', ['accepted', 'pre-migrating', 'running (post-copy)',
                                    'post-migrating', 'completed', 'cancelled'])
def test_a_live_migration_that_cannot_be_aborted_is_not(cloud: answers.Answers,
                                                       status: str) -> None:
    cloud.answers['/os-migrations'] = [{'migrations': [answers.migration(6, status=status)]}]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    driver = nova.NovaExecutor(conf, cloud)
    assert not driver.abort(TASK, MARKER)
    assert not driver.abort(COLD, MARKER)


@pytest.mark.parametrize(('status', 'outcome'), [
    (202, True), (400, False), (404, False), (409, False), (403, None), (503, None)])
def test_only_ours_is_aborted_and_what_has_ended_meanwhile_is_no_error(
        cloud: answers.Answers, status: int, outcome: bool | None) -> None:
    cloud.answers['/os-migrations'] = [{'migrations': [
        answers.migration(6), answers.migration(7, dest_compute='host3')]}]
    cloud.answers['DELETE /servers/vm/migrations/6'] = [answers.Response({}, status)]
    conf = cfg.ConfigOpts()
    opts.register(conf)
    driver = nova.NovaExecutor(conf, cloud)
    if outcome is None:
        with pytest.raises(exception.NovaClientError, match=f'refused to abort.*HTTP {status}'):
            driver.abort(TASK, MARKER)
    else:
        assert driver.abort(TASK, MARKER) is outcome


def test_an_abort_that_breaks_the_instance_is_no_cancellation(cloud: answers.Answers) -> None:
    found = look(cloud, [[answers.migration(6, status='cancelled')]],
                 answers.server('vm', status='ERROR'))
    assert (found.stage, found.broken) == (base.Stage.FAILED, True)


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
    driver = nova.NovaExecutor(conf, cloud)
    named = driver._named(dataclasses.replace(TASK, aggregate='blue'),
                          base.Known(scopes=frozenset(leased)))
    assert named[:named.index('blue')] == expected if named else expected == []
    cluster = model.Cluster({h: model.Host(h) for h in 'ab'}, {}, {},
                            aggregates={'blue': ('a', 'b'), 'green': ('b',)})
    assert cluster.scoped('blue', named).scope_hosts == ({'a'} if expected else {'a', 'b'})
