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

"""Requests to kronos-api: their answers, and errors that name the field."""

import json

import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.api import application
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.store import tables
from tests.unit.api import conftest
from tests.unit.rebalancer.store import cases

NO_PLAN = '/v1/plans/00000000-0000-4000-8000-000000000000'


def save_waiting_plan(store, moves=2):
    """Store a plan that waits for approval; return (its UUID, its tasks)."""
    now = store.now()
    plan_id, tasks, _plan = cases.save(store, [
        lambda plan_id, scope: cases.make_task(
            plan_id, scope, state=TaskState.PENDING, created_at=now, not_before=now,
            deadline=now + 3600, instance_name='we\x1bb', memory_mb=2048)] * moves, now=now)
    return plan_id, tasks


def test_plan_has_typed_fields_and_its_tasks(client, store):
    plan_id, tasks = save_waiting_plan(store)
    status, page = client.send('GET', '/v1/plans')
    (listed,) = page['plans']
    assert status == 200 and page['next'] is None
    assert (listed['id'], listed['scope'], listed['move_count']) == (plan_id, 'blue', 2)
    assert listed['task_states'] == {'pending': 2} and listed['dry_run'] is False
    assert listed['created_at'].endswith('Z') and listed['requested_by'] is None
    status, plan = client.send('GET', f'/v1/plans/{plan_id}')
    assert status == 200 and {key: plan[key] for key in listed} == listed
    assert [move['task']['id'] for move in plan['moves']] == [task.task_id for task in tasks]
    assert plan['policies'][0]['imbalance_measured'] == 0.4
    assert plan['rejections'] == {'claims': 3} and plan['warnings'] == ['w']


def test_approval_is_kept_with_user_project_and_roles(client, store):
    plan_id, tasks = save_waiting_plan(store)
    status, answer = client.send(
        'POST', f'/v1/plans/{plan_id}/approve', roles='member,manager,reader',
        json={'instances': [tasks[0].instance_uuid], 'reason': 'night shift'})
    assert status == 200 and [task['id'] for task in answer['tasks']] == [tasks[0].task_id]
    assert answer['tasks'][0]['state'] == 'queued' and answer['scope_without_executor'] == 'blue'
    assert [store.tasks.find_task(task.task_id).task.state for task in tasks] == [
        TaskState.QUEUED, TaskState.PENDING]
    operator = f'keystone:{"a" * 32} project {"b0" * 16} roles manager,member,reader (alice)'
    (decision,) = client.send('GET', f'/v1/plans/{plan_id}')[1]['decisions']
    assert decision['decided_by'] == operator and decision['reason'] == 'night shift'
    assert store.audit.list_newest_entries(1)[0].by == operator
    status, detail = client.fail('POST', f'/v1/plans/{plan_id}/approve', json={
        'instances': [task.instance_uuid for task in tasks]})
    assert status == 409 and tasks[0].instance_uuid in detail


@pytest.mark.parametrize('verb', ['reject', 'cancel'])
def test_rejected_and_cancelled_tasks_end(client, store, verb):
    plan_id, tasks = save_waiting_plan(store)
    status, answer = client.send('POST', f'/v1/plans/{plan_id}/{verb}', json={'reason': 'no'})
    assert status == 200
    assert sorted(task['id'] for task in answer['tasks']) == sorted(
        task.task_id for task in tasks)
    assert {task['state'] for task in answer['tasks']} == {'cancelled'}
    status, detail = client.fail('POST', f'/v1/plans/{plan_id}/{verb}', json={'reason': 'no'})
    assert status == 409 and '2 cancelled' in detail and 'kronos ' not in detail


def test_task_is_shown_cancelled_and_resolved(client, store):
    plan_id, _tasks, _plan = cases.save(store, 2, now=store.now())
    claimed = cases.claim(store, now=store.now() + 60)
    status, page = client.send('GET', f'/v1/tasks?plan={plan_id}&state=queued&state=claimed')
    assert status == 200 and len(page['tasks']) == 2
    task = client.send('GET', f'/v1/tasks/{claimed.task.task_id}')[1]
    assert task['state'] == 'claimed' and task['alternates'] == [
        {'host': 'h3', 'improvement': None}]
    (queued,) = client.send('GET', '/v1/tasks?state=queued')[1]['tasks']
    status, answer = client.send('POST', f'/v1/tasks/{queued["id"]}/cancel', json={'reason': 'x'})
    assert status == 200 and [task['id'] for task in answer['tasks']] == [queued['id']]
    path = f'/v1/tasks/{claimed.task.task_id}/resolve'
    resolution = {'state': 'failed', 'reason': 'compute-07 is lost'}
    status, detail = client.fail('POST', path, json=resolution)
    assert status == 409 and 'claimed' in detail
    store.tasks.update_state(claimed.task.task_id, 'w', [TaskState.CLAIMED],
                             TaskState.SUBMITTING, store.now())
    store.tasks.update_state(claimed.task.task_id, 'w', [TaskState.SUBMITTING],
                             TaskState.SUBMITTED, store.now())
    assert client.send('POST', path, json=resolution) == (200, {'tasks': []})
    assert store.tasks.find_task(claimed.task.task_id).task.state is TaskState.FAILED


def test_pause_is_made_listed_and_ended(client, store):
    status, pause = client.send('POST', '/v1/pauses', json={
        'scope': 'blue', 'reason': 'storm', 'duration_seconds': 60})
    assert status == 200 and (pause['scope'], pause['reason']) == ('blue', 'storm')
    assert pause['paused_by'].startswith('keystone:') and pause['until'] > pause['since']
    client.send('POST', '/v1/pauses', json={'scope': None, 'reason': 'all'})
    assert [p['scope'] for p in client.send('GET', '/v1/pauses')[1]['pauses']] == [None, 'blue']
    status, rest = client.send('DELETE', '/v1/pauses?scope=blue')
    assert status == 200 and [p['scope'] for p in rest['pauses']] == [None]
    assert client.send('DELETE', '/v1/pauses') == (200, {'pauses': []})
    assert client.fail('DELETE', '/v1/pauses?scope=blue')[0] == 404
    status, detail = client.fail('POST', '/v1/pauses', json={'scope': 'bleu', 'reason': 'x'})
    assert status == 404 and detail.startswith('scope: ') and 'blue' in detail


def test_quarantine_is_listed_and_lifted(client, store):
    store.quarantine.count_refusal('h1', store.now(), limit=1, seconds=60, reason='full')
    (entry,) = client.send('GET', '/v1/quarantines')[1]['quarantines']
    assert (entry['kind'], entry['name'], entry['reason']) == ('host', 'h1', 'full')
    assert client.send('DELETE', '/v1/quarantines?kind=host&name=h1') == (204, None)
    assert client.fail('DELETE', '/v1/quarantines?kind=host&name=h1')[0] == 404
    assert store.audit.list_newest_entries(1)[0].command == 'lifted'


def test_scope_shows_its_last_cycle_tasks_and_pause(client, store):
    save_waiting_plan(store)
    store.pauses.pause_scope('blue', store.now(), seconds=None, paused_by='me', reason='storm')
    scope = next(scope for scope in client.send('GET', '/v1/scopes')[1]['scopes']
                 if scope['name'] == 'blue')
    assert scope['engine'] == 'engine' and scope['task_states'] == {'pending': 2}
    assert scope['last_cycle']['move_count'] == 2 and scope['pause']['reason'] == 'storm'
    assert scope['last_cycle']['policies'][0]['policy'] == 'cpu'


def test_next_page_keeps_the_filters(client, store):
    for number in range(5):
        cases.save(store, 1, now=store.now() + number)
    listed, address = [], '/v1/plans?scope=blue&limit=2&changes-since=2026-01-01T00:00:00%2B02:00'
    for _page in range(3):
        status, page = client.send('GET', address)
        assert status == 200, page
        listed += [plan['id'] for plan in page['plans']]
        address = page['next']
    assert address is None and len(set(listed)) == 5
    for since in ('0001-01-01T00:00:00Z', '1969-12-31T23:59:59-01:00'):
        assert len(client.send('GET', f'/v1/plans?changes-since={since}')[1]['plans']) == 5
    assert not client.send('GET', '/v1/plans?changes-since=9999-12-31T23:59:59Z')[1]['plans']
    tasks = client.send('GET', '/v1/tasks?state=queued&state=claimed&limit=3')[1]
    assert 'state=queued&state=claimed' in tasks['next']
    assert len(client.send('GET', tasks['next'])[1]['tasks']) == 2


def test_limit_is_bounded_by_the_configuration(client, conf, store):
    for _number in range(3):
        cases.save(store, 1, now=store.now())
    conf.set_override('max_limit', 2, group='kronos_api')
    for query in ('', '?limit=3'):
        page = client.send('GET', f'/v1/plans{query}')[1]
        assert len(page['plans']) == 2 and 'marker=' in page['next']


@pytest.mark.parametrize(('method', 'path', 'body', 'status', 'words'), [
    ('GET', '/v1/plans?limit=0', None, 400, 'query limit: '),
    ('GET', '/v1/plans?limit=1&limit=2', None, 400, 'query limit: it is there more than once'),
    ('GET', '/v1/plans?marker=x', None, 400, 'query marker: '),
    ('GET', f'/v1/plans?marker={NO_PLAN[-36:]}', None, 404, 'marker: 0000'),
    ('GET', '/v1/plans?changes-since=2026-01-01T00:00:00', None, 400, 'query changes-since: '),
    ('GET', '/v1/plans?id_prefix=abc', None, 400, 'query id_prefix: '),
    ('GET', '/v1/tasks?id_prefix=ABCD', None, 400, 'query id_prefix: '),
    ('GET', '/v1/tasks?id_prefix=abcd%25', None, 400, 'query id_prefix: '),
    ('GET', '/v1/plans?id_prefix=abcd-12', None, 400, 'query id_prefix: '),
    ('GET', '/v1/plans?changes_since=2026-01-01T00:00:00Z', None, 400, 'query changes_since: '),
    ('GET', '/v1/plans?scop=blue', None, 400, 'query scop: '),
    ('GET', '/v1/plans?scope=a%00b', None, 400, 'query scope: '),
    ('GET', '/v1/tasks?state=ended', None, 400, 'query state.0: '),
    ('GET', '/v1/scopes?name=blue', None, 400, 'query name: this address takes no parameters'),
    ('GET', '/v1/plans/%00', None, 404, 'plan_id: it is not a UUID'),
    ('GET', NO_PLAN.replace('-4000-', '-4ABC-'), None, 404, 'plan_id: it is not a UUID'),
    ('GET', NO_PLAN, None, 404, 'no such plan'),
    ('GET', '/v1/plan', None, 404, 'no such address'),
    ('PUT', '/v1/plans', None, 405, 'not allowed'),
    ('POST', f'{NO_PLAN}/approve', {}, 404, 'no such plan'),
    ('POST', f'{NO_PLAN}/reject', {}, 400, 'body reason: '),
    ('POST', f'{NO_PLAN}/reject', {'reason': ' '}, 400, 'body reason: '),
    ('POST', f'{NO_PLAN}/reject', {'reason': 'a\nb'}, 400, 'body reason: '),
    ('POST', f'{NO_PLAN}/reject', {'reason': '\ud800'}, 400, 'body'),
    ('POST', f'{NO_PLAN}/reject', {'reason': 'x', 'moves': []}, 400, 'body moves: '),
    ('POST', f'{NO_PLAN}/approve', {'instances': ['x']}, 400, 'body instances.0: '),
    ('POST', f'{NO_PLAN}/approve', [], 400, 'body: '),
    ('POST', '/v1/pauses', {'reason': 'x'}, 400, 'body scope: Field required'),
    ('POST', '/v1/pauses', {'reason': 'x', 'scope': None, 'duration_seconds': -1}, 400,
     'body duration_seconds: '),
    ('DELETE', '/v1/quarantines', None, 400, 'query kind: Field required; query name: '),
    ('DELETE', '/v1/quarantines?kind=service&name=nova', None, 400, 'query kind: '),
])
def test_bad_input_is_refused_by_the_name_of_its_field(client, method, path, body, status, words):
    more = {} if body is None else {
        'data': json.dumps(body), 'content_type': 'application/json'}
    answer = client.fail(method, path, **more)
    assert answer[0] == status and words in answer[1]


@pytest.mark.parametrize(('more', 'status'), [
    ({'data': '{', 'content_type': 'application/json'}, 400),
    ({'data': '{"reason": NaN}', 'content_type': 'application/json'}, 400),
    ({'data': '{}', 'content_type': 'text/plain'}, 415),
    ({'data': '"' + 'x' * 140_000 + '"', 'content_type': 'application/json'}, 413),
])
def test_body_that_is_not_small_json_is_refused(client, more, status):
    assert client.fail('POST', f'{NO_PLAN}/reject', **more)[0] == status


def test_missing_database_is_503_until_it_is_back(client, conf, store, tmp_path):
    file = tmp_path / 'kronos.sqlite'
    aside = file.rename(tmp_path / 'aside')
    status, detail = client.fail('GET', '/v1/plans')
    assert status == 503 and str(tmp_path) not in detail, 'paths belong into the log'
    aside.rename(file)
    assert client.send('GET', '/v1/plans')[0] == 200


def test_name_of_tenants_stays_data(client, store):
    plan_id, tasks = save_waiting_plan(store, 1)
    assert client.send('GET', f'/v1/tasks/{tasks[0].task_id}')[1]['instance_name'] == 'we\x1bb'
    name = f'mal\u2028lory\x07 project of all, roles admin) {"x" * 300}'
    client.send('POST', f'/v1/plans/{plan_id}/reject', json={'reason': 'x'},
                headers={'X-User-Name': name.encode().decode('latin-1')})
    by = store.audit.list_newest_entries(1)[0].by
    assert by.isprintable() and len(by) == 255
    assert by.startswith(f'keystone:{"a" * 32} project {"b0" * 16} roles admin (mal?lory? project')


def test_states_of_the_api_are_those_of_the_model(client):
    document = client.send('GET', '/v1/openapi.json')[1]
    assert set(document['components']['schemas']['TaskState']['enum']) == {
        state.value for state in model.TaskState}


@pytest.fixture
def signing(conf, tmp_path):
    """The directory of keys that the service uses."""
    directory = str(tmp_path / 'keys')
    key_repository.create_keys(directory)
    conf.set_override('key_repository', directory, 'signing')
    return directory


def save_plan_for_two(store, directory, moves=2):
    """Store a plan that two people must approve, as an engine does; return (its UUID, tasks)."""
    now = store.now()
    signer = task_authorization.TaskSigner(key_repository.KeyRepository(directory))

    def make_task(plan_id, scope):
        (task,) = signer.grant_tasks([cases.make_task(
            plan_id, scope, state=TaskState.PENDING, created_at=now, not_before=now,
            deadline=now + 3600)], (), 'kronos-engine', now, needed=2, begin_within=1)
        return task

    plan_id, tasks, _plan = cases.save(store, [make_task] * moves, now=now)
    return plan_id, tasks


def test_two_users_approve_and_executors_can_verify_both(signing, conf, store):
    client = conftest.Client(application.make_routes(conf))
    plan_id, tasks = save_plan_for_two(store, signing)
    path = f'/v1/plans/{plan_id}/approve'
    status, answer = client.send('POST', path, json={})
    assert status == 200 and answer['tasks'] == [] and answer['approvals_missing'] == 1
    assert [task['state'] for task in answer['waiting_tasks']] == ['pending'] * 2
    status, detail = client.fail('POST', path, json={})
    assert status == 409 and 'has your approval of 2 moves already' in detail
    # Another role, project or name is no other person.
    status, detail = client.fail('POST', path, json={}, roles='admin,manager', project='e' * 32,
                                 headers={'X-User-Name': 'bob'})
    assert status == 409
    status, answer = client.send('POST', path, json={}, headers={'X-User-Id': 'b' * 32})
    assert status == 200 and len(answer['tasks']) == 2
    assert (answer['waiting_tasks'], answer['approvals_missing']) == ([], 0)
    verifier = task_authorization.TaskVerifier(key_repository.KeyRepository(signing))
    for task in tasks:
        verifier.check_task(store.tasks.find_task(task.task_id).task, store.now())
    decisions = client.send('GET', f'/v1/plans/{plan_id}')[1]['decisions']
    assert [decision['verb'] for decision in decisions] == ['co-approved', 'approved']


def test_a_plan_that_was_changed_by_hand_cannot_be_approved(signing, conf, store):
    client = conftest.Client(application.make_routes(conf))
    plan_id, tasks = save_plan_for_two(store, signing)
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).values(destinations='["h9"]', to_host='h9').where(
            tables.task.c.task_id == tasks[1].task_id))
    status, detail = client.fail('POST', f'/v1/plans/{plan_id}/approve', json={})
    assert status == 409 and tasks[1].task_id in detail and 'differs from its grant' in detail
    assert {store.tasks.find_task(task.task_id).task.state for task in tasks} == {
        TaskState.PENDING}


def test_the_service_does_not_start_without_a_key_that_signs(conf, tmp_path):
    conf.set_override('key_repository', str(tmp_path / 'none'), 'signing')
    with pytest.raises(exception.SigningKeyError, match='none'):
        application.make_routes(conf)
