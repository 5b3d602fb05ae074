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

"""How the executor reads answers about cold migrations."""

import dataclasses
from typing import Any

import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.executors import base
from tests.unit.rebalancer.clients import answers
from tests.unit.rebalancer.executors import novas


@pytest.fixture
def cloud() -> answers.Answers:
    return answers.Answers()


@pytest.mark.parametrize(('status', 'server', 'stage'), [
    ('pre-migrating', novas.stopped('RESIZE', 'resize_prep'), base.MigrationStage.WAITING),
    ('migrating', novas.stopped('RESIZE', 'resize_migrating'), base.MigrationStage.RUNNING),
    ('post-migrating', novas.stopped('RESIZE', 'resize_migrated', 'host2'),
     base.MigrationStage.RUNNING),
    ('a status of tomorrow', novas.stopped('RESIZE', 'resize_migrating'),
     base.MigrationStage.RUNNING),
    ('finished', novas.stopped('RESIZE', 'resize_finish', 'host2'), base.MigrationStage.RUNNING),
    ('finished', novas.stopped('VERIFY_RESIZE', None, 'host2'), base.MigrationStage.UNCONFIRMED),
    ('finished', novas.stopped('SHUTOFF', None, 'host2'), base.MigrationStage.LEFT),
    ('migrating', novas.stopped(), base.MigrationStage.LEFT),
    ('confirming', novas.stopped('VERIFY_RESIZE', None, 'host2'), base.MigrationStage.RUNNING),
    ('confirmed', novas.stopped('SHUTOFF', None, 'host2'), base.MigrationStage.COMPLETED),
    ('confirmed', novas.stopped('ERROR', None, 'host2'), base.MigrationStage.COMPLETED),
    ('reverting', novas.stopped('REVERT_RESIZE', 'resize_reverting', 'host2'),
     base.MigrationStage.RUNNING),
    ('reverted', novas.stopped(), base.MigrationStage.CANCELLED),
    ('error', novas.stopped(), base.MigrationStage.FAILED),
    ('error', novas.stopped('RESIZE', 'resize_prep'), base.MigrationStage.RUNNING),
    ('error', novas.stopped('ERROR', None, 'host2'), base.MigrationStage.FAILED),
    ('migrating', novas.stopped('ERROR'), base.MigrationStage.FAILED),
    ('error', novas.stopped('SHUTOFF', None, 'host2'), base.MigrationStage.COMPLETED)])
def test_every_status_of_a_cold_migration_has_a_stage(
        cloud: answers.Answers, status: str, server: dict[str, Any],
        stage: base.MigrationStage) -> None:
    found = novas.look(cloud, [[novas.cold(status=status)]], server, novas.COLD)
    assert (found.stage, found.reference) == (stage, 'm6')
    assert found.broken == (stage is base.MigrationStage.FAILED and server['status'] == 'ERROR')


@pytest.mark.parametrize('fields', [
    {'id': 5}, {'source_compute': 'host3'}, {'dest_compute': 'host3'},
    {'migration_type': 'resize'}, {'migration_type': 'live-migration'}])
def test_cold_migrations_and_resizes_of_others_are_not_ours(
        cloud: answers.Answers, fields: dict[str, Any]) -> None:
    found = novas.look(cloud, [[novas.cold(status='finished') | fields]],
                       novas.stopped('VERIFY_RESIZE', None, 'host2'), novas.COLD)
    assert found.stage is base.MigrationStage.ABSENT


@pytest.mark.parametrize(('actions', 'stage'), [
    ([{'action': 'migrate', 'user_id': 'kronos'}], base.MigrationStage.UNCONFIRMED),
    ([{'action': 'lock', 'user_id': 'admin'}, {'action': 'migrate', 'user_id': 'kronos'},
      {'action': 'migrate', 'user_id': 'admin'}], base.MigrationStage.UNCONFIRMED),
    ([{'action': 'migrate', 'user_id': 'admin'}, {'action': 'migrate', 'user_id': 'kronos'}],
     base.MigrationStage.ABSENT),
    ([{'action': 'migrate', 'user_id': None}], base.MigrationStage.UNCONFIRMED),
    ([], base.MigrationStage.UNCONFIRMED)])
def test_a_migration_that_another_user_requested_is_not_confirmed(
        cloud: answers.Answers, actions: list[dict[str, Any]], stage: base.MigrationStage) -> None:
    cloud.user = 'kronos'
    cloud.answers['/servers/vm/os-instance-actions'] = [{'instanceActions': actions}]
    found = novas.look(cloud, [[novas.cold(status='finished')]],
                       novas.stopped('VERIFY_RESIZE', None, 'host2'), novas.COLD)
    assert found.stage is stage


@pytest.mark.parametrize(('user', 'stage', 'source'), [
    ('kronos', base.MigrationStage.UNCONFIRMED, 'host3'),
    ('admin', base.MigrationStage.ABSENT, None),
    (None, base.MigrationStage.ABSENT, None)])
def test_our_request_for_an_evacuated_instance_is_confirmed(
        cloud: answers.Answers, user: str | None, stage: base.MigrationStage,
        source: str | None) -> None:
    cloud.user = 'kronos'
    cloud.answers['/servers/vm/os-instance-actions'] = [{'instanceActions': [
        {'action': 'migrate', 'user_id': user}]}]
    found = novas.look(cloud, [[novas.cold(status='finished', source_compute='host3')]],
                       novas.stopped('VERIFY_RESIZE', None, 'host2'), novas.COLD)
    assert (found.stage, found.source) == (stage, source)


def progress(cloud: answers.Answers, migrations: Any, server: Any) -> base.MigrationProgress:
    return novas.look(cloud, migrations, server, novas.COLD)


@pytest.mark.parametrize(('migrations', 'server', 'expected'), [
    ([[]], novas.GONE,
     base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted')),
    ([[]], novas.stopped(),
     base.MigrationProgress(base.MigrationStage.ABSENT, 'Nova has no migration of ours')),
    ([[]], novas.stopped('RESIZE', 'resize_prep'),
     base.MigrationProgress(base.MigrationStage.WAITING, 'accepted, not yet recorded')),
    ([[novas.cold(6, dest_compute='host3', status='migrating'),
       novas.cold(7, dest_compute='host4', status='migrating')]],
     novas.stopped('RESIZE', 'resize_prep'),
     base.MigrationProgress(base.MigrationStage.ABSENT,
                            'Nova carries out another migration of this instance, m7')),
    ([[novas.cold(5, dest_compute='host3', status='migrating'),
       novas.cold(7, dest_compute='host3', status='confirmed')]], novas.stopped(),
     base.MigrationProgress(base.MigrationStage.ABSENT, 'Nova has no migration of ours')),
    ([[], [novas.cold(status='confirmed')]], novas.stopped(host='host2'),
     base.MigrationProgress(base.MigrationStage.COMPLETED, '', 'm6')),
    ([[novas.cold(status='reverted')]], novas.stopped(),
     base.MigrationProgress(base.MigrationStage.CANCELLED, 'it was reverted in Nova', 'm6')),
    ([[novas.cold(status='cancelled')]], novas.GONE,
     base.MigrationProgress(base.MigrationStage.CANCELLED, 'it was cancelled in Nova', 'm6')),
    ([[novas.cold(status='migrating')]], novas.GONE,
     base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted', 'm6')),
    ([[novas.cold(status='pre-migrating')]], novas.stopped('RESIZE', 'resize_prep'),
     base.MigrationProgress(base.MigrationStage.WAITING, 'pre-migrating', 'm6', phase='pre_check')),
    ([[novas.cold(status='migrating')]], novas.stopped('RESIZE', 'resize_migrating'),
     base.MigrationProgress(base.MigrationStage.RUNNING, 'migrating', 'm6', phase='running')),
    ([[novas.cold(status='finished')]], novas.stopped('SHUTOFF', None, 'host2'),
     base.MigrationProgress(
        base.MigrationStage.LEFT,
        'Nova left migration m6 in status finished, and the instance is SHUTOFF '
                         'on host2', 'm6', ending=base.MigrationStage.COMPLETED, patience=300.0)),
    ([[novas.cold(status='migrating')]], novas.stopped('VERIFY_RESIZE', 'x', 'host2'),
     base.MigrationProgress(
        base.MigrationStage.LEFT, 'Nova left migration m6 in status migrating, and the instance is '
                         'VERIFY_RESIZE on host2', 'm6', ending=base.MigrationStage.FAILED,
        patience=600.0)),
    ([[novas.cold(status='finished')]], novas.stopped('VERIFY_RESIZE', None, 'host2'),
     base.MigrationProgress(base.MigrationStage.UNCONFIRMED, 'finished, not confirmed', 'm6',
                            phase='post_migrating')),
    ([[novas.cold(status='error')]], novas.stopped('SHUTOFF', None, 'host2'),
     base.MigrationProgress(base.MigrationStage.COMPLETED,
                            'the migration ended as error, but the instance is on '
                                         'host2', 'm6')),
    ([[novas.cold(status='error')]], novas.stopped(),
     base.MigrationProgress(base.MigrationStage.FAILED, 'Nova: migration error', 'm6')),
    ([[novas.cold(status='error')]], novas.stopped('ERROR', None, 'host2'),
     base.MigrationProgress(base.MigrationStage.FAILED, 'Nova: migration error', 'm6',
                            broken=True))])
def test_cold_migration_progress_follows_records_and_server(
        cloud: answers.Answers, migrations: Any, server: Any,
        expected: base.MigrationProgress) -> None:
    found = progress(cloud, migrations, server)
    assert dataclasses.replace(found, version=None) == expected


def test_a_request_that_nova_never_records_keeps_one_version(cloud: answers.Answers) -> None:
    found = [progress(cloud, [[]], novas.stopped('RESIZE', 'resize_prep')) for _ in range(2)]
    assert found[0].version is not None, 'its slot would be held for ever'
    assert found[0].version == found[1].version


def test_migrations_are_read_again_unless_nova_reports_a_resize(cloud: answers.Answers) -> None:
    twice = [[], [novas.cold(status='migrating')]]
    assert progress(cloud, twice, novas.stopped()).stage is base.MigrationStage.LEFT
    resizing = novas.stopped('RESIZE', 'resize_migrating')
    assert progress(cloud, twice, resizing).stage is base.MigrationStage.ABSENT


def test_unconfirmed_migration_of_another_user_names_the_user(cloud: answers.Answers) -> None:
    cloud.user = 'kronos'
    cloud.answers['/servers/vm/os-instance-actions'] = [{'instanceActions': [
        {'action': 'migrate', 'user_id': 'admin\nroot'}]}]
    assert progress(cloud, [[novas.cold(status='finished')]],
                    novas.stopped('VERIFY_RESIZE', None, 'host2')) == base.MigrationProgress(
        base.MigrationStage.ABSENT,
        'its migration m6 was asked for by user admin root; it is left to them')


CONFIRM = 'POST /servers/vm/action'


@pytest.mark.parametrize('migrations', [[[]], [[novas.cold(status='confirmed')]]])
def test_cold_migration_requests_filter_by_instance(cloud: answers.Answers,
                                                    migrations: Any) -> None:
    progress(cloud, migrations, novas.stopped())
    verify(cloud, novas.stopped('SHUTOFF', None, 'host2'))
    assert {params.get('instance_uuid') for path, params, _ in cloud.asked
            if path == '/os-migrations'} == {'vm'}


def test_failed_cold_migration_stays_failed_when_another_user_starts_one(
        cloud: answers.Answers) -> None:
    later = novas.cold(7, status='migrating', dest_compute='host3')
    assert progress(cloud, [[novas.cold(status='error'), later]], novas.stopped()) == (
        base.MigrationProgress(base.MigrationStage.FAILED, 'Nova: migration error', 'm6'))


def test_the_first_migration_of_a_cloud_may_be_ours(cloud: answers.Answers) -> None:
    first = novas.cold(1, status='confirmed') | {'uuid': 'm6'}
    with pytest.raises(exception.MigrationFailed, match='still has an allocation'):
        verify(cloud, novas.stopped('SHUTOFF', None, 'host2'), migration=('node1',),
               migrations={'migrations': [first]})


@pytest.mark.parametrize('status', [200, 204, 299])
def test_a_confirmation_sends_one_request(cloud: answers.Answers, status: int) -> None:
    cloud.answers[CONFIRM] = [answers.Response({}, status)]
    novas.driver(cloud).confirm(novas.COLD, novas.MARKER)
    assert [path for path, _, _ in cloud.asked] == [CONFIRM]


@pytest.mark.parametrize(('response', 'said'), [
    (answers.Response({}, 199), 'Nova did not confirm its migration: HTTP 199'),
    (answers.Response({}, 300), 'Nova did not confirm its migration: HTTP 300'),
    (answers.Response({'conflictingRequest': {'message': 'no', 'code': 409}}, 409),
     'Nova did not confirm its migration: HTTP 409: no'),
    (answers.Response({'forbidden': {'message': 'no', 'code': 403}}, 403),
     'Nova did not confirm its migration: .*os_compute_api:servers:confirm_resize')])
def test_a_refused_confirmation_raises_with_the_answer(cloud: answers.Answers, response: Any,
                                                       said: str) -> None:
    cloud.answers[CONFIRM] = [response]
    with pytest.raises(exception.NovaClientError, match=f'Instance vm: .*{said}'):
        novas.driver(cloud).confirm(novas.COLD, novas.MARKER)


def test_a_confirmation_without_an_answer_raises_with_the_cause(
        cloud: answers.Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = novas.driver(cloud)

    def lost(uuid: str) -> Any:
        raise api.ApiError('Nova', f'server {uuid}', 'nobody there')

    monkeypatch.setattr(driver._nova, 'confirm_resize', lost)
    with pytest.raises(exception.NovaClientError,
                       match='Instance vm: .*its migration could not be confirmed: nobody there'):
        driver.confirm(novas.COLD, novas.MARKER)


def verify(cloud: answers.Answers, server: Any, *, own: tuple[str, ...] = ('node2',),
           migration: tuple[str, ...] = (), migrations: Any = None) -> None:
    cloud.answers['/servers/vm'] = [
        server if isinstance(server, answers.Response) else {'server': server}]
    cloud.answers['/servers/detail'] = [{'servers': []}]
    cloud.answers['/os-migrations'] = [
        {'migrations': [novas.cold(status='confirmed')]} if migrations is None else migrations]
    for holder, providers in (('vm', own), ('m6', migration)):
        cloud.answers[f'/allocations/{holder}'] = [{'allocations': {
            provider: {'resources': {'VCPU': 2}} for provider in providers}}]
    novas.driver(cloud).post_flight(novas.COLD)


@pytest.mark.parametrize('status', ['SHUTOFF', 'ACTIVE'])
def test_it_may_be_stopped_or_started_where_it_has_come_to(cloud: answers.Answers,
                                                           status: str) -> None:
    verify(cloud, novas.stopped(status, None, 'host2'))
    verify(cloud, novas.stopped(status, None, 'host2'), own=())
    verify(cloud, novas.stopped(status, None, 'host2'), migrations={'migrations': []})


@pytest.mark.parametrize(('server', 'others', 'kind', 'said'), [
    (novas.stopped('PAUSED', None, 'host2'), {}, exception.MigrationFailed,
     'it is on host2 but PAUSED'),
    (novas.stopped('ERROR', None, 'host2'), {}, exception.InstanceInError, 'on host2'),
    (novas.stopped(), {}, exception.MigrationFailed, 'it is on host1 and not on host2'),
    (novas.GONE, {}, exception.PreFlightError, 'it was deleted'),
    (novas.stopped('SHUTOFF', None, 'host2'), {'own': ('node1', 'node2')},
     exception.MigrationFailed,
     'it is on host2, but Placement still has an allocation for it on host1; see nova-manage '
     'placement audit'),
    (novas.stopped('SHUTOFF', None, 'host2'), {'migration': ('node1',)},
     exception.MigrationFailed, 'still has an allocation for it on host1'),
    (novas.stopped('SHUTOFF', None, 'host2'), {'migrations': answers.Response({}, 503)},
     exception.ServiceUnavailable, 'could not read .*HTTP 503')])
def test_verify_raises_for_a_cold_migration_with_a_wrong_result(
        cloud: answers.Answers, server: Any, others: dict[str, Any], kind: type[Exception],
        said: str) -> None:
    with pytest.raises(kind, match=f'Instance vm.*{said}') as found:
        verify(cloud, server, **others)
    assert type(found.value) is kind
