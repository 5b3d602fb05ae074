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

"""Each command of openstack rebalance, by OpenStackClient, on the real routes of kronos-api."""

import csv
import json
import re
import sys

import pytest

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.osc import task as task_commands
from kronos_nova.osc import waits
from tests.unit.api import test_requests
from tests.unit.rebalancer.store import cases

pytestmark = pytest.mark.turns(3)

signing = test_requests.signing


def read_json(openstack, *arguments):
    return json.loads(openstack.read(*arguments, '-f', 'json'))


def submit(store, claimed):
    for before, after in ((TaskState.CLAIMED, TaskState.SUBMITTING),
                          (TaskState.SUBMITTING, TaskState.SUBMITTED)):
        store.tasks.update_state(claimed.task.task_id, 'w', [before], after, store.now())


def test_plan_is_listed_shown_and_approved(openstack, store, server):
    plan_id, tasks = test_requests.save_waiting_plan(store)
    (listed,) = read_json(openstack, 'plan', 'list')
    assert listed == {
        'ID': plan_id, 'Scope': 'blue', 'Created At': listed['Created At'],
        'Tasks': {'pending': 2}, 'Moves': 2, 'Dry Run': False, 'Imbalance Measured': None,
        'Imbalance Predicted': listed['Imbalance Predicted'], 'Requested By': None,
        'Reason': None}
    assert re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z', listed['Created At'])
    shown = read_json(openstack, 'plan', 'show', plan_id)
    assert shown['id'] == plan_id and shown['policies'][0]['imbalance_measured'] == 0.4
    assert [move['task']['id'] for move in shown['moves']] == [task.task_id for task in tasks]
    approved = read_json(openstack, 'plan', 'approve', plan_id, '--reason', 'night\nshift')
    assert {(row['ID'], row['State']) for row in approved} == {
        (task.task_id, 'queued') for task in tasks}
    (decision,) = read_json(openstack, 'plan', 'show', '--latest')['decisions']
    assert decision['reason'] == 'night shift' and decision['decided_by'].endswith('(alice)')
    assert {request[3] for request in server.requests} == {'rebalance 1.0'}


def test_approval_without_executor_warns(openstack, store):
    plan_id, _tasks = test_requests.save_waiting_plan(store)
    status, output, error = openstack.run('plan', 'approve', plan_id)
    assert status == 0 and 'queued' in output
    assert error.startswith('warning: no live executor') and 'scope blue' in error


def test_approval_that_another_person_must_confirm_says_so(signing, openstack, store, server):
    plan_id, _tasks = test_requests.save_plan_for_two(store, signing)
    status, output, error = openstack.run('plan', 'approve', plan_id, '-f', 'json')
    assert status == 0 and [row['State'] for row in json.loads(output)] == ['pending'] * 2
    assert error.splitlines()[0] == (
        '2 tasks have your approval and wait for that of 1 other person.')
    assert 'Another person must approve' in openstack.fail('plan', 'approve', plan_id)
    server.user = 'b' * 32
    assert [row['State'] for row in read_json(openstack, 'plan', 'approve', plan_id)] == [
        'queued'] * 2


@pytest.mark.parametrize('verb', ['approve', 'reject', 'cancel'])
def test_decision_can_concern_some_moves(openstack, store, verb):
    plan_id, tasks = test_requests.save_waiting_plan(store)
    for chosen in (tasks[1].instance_uuid.upper(), tasks[0].instance_uuid[:9]):
        (row,) = read_json(openstack, 'plan', verb, plan_id, '--instance', chosen,
                           '--reason', 'its owner asked')
        assert row['Instance ID'].startswith(chosen.lower())
        assert row['State'] == ('queued' if verb == 'approve' else 'cancelled')
    assert openstack.fail('plan', verb, plan_id, '--instance', '0000', '--reason', 'x') == (
        '<instance>: no instance begins with 0000; see openstack rebalance plan show '
        f'{plan_id}')


@pytest.mark.parametrize(('verb', 'state'), [('approve', TaskState.PENDING),
                                             ('reject', TaskState.PENDING),
                                             ('cancel', TaskState.QUEUED)])
def test_latest_is_the_newest_plan_that_the_decision_can_concern(openstack, store, verb, state):
    make = [lambda plan_id, scope: cases.make_task(plan_id, scope, state=state)]
    now = store.now()
    cases.save(store, make, now=now - 20)
    wanted, _tasks, _plan = cases.save(store, make, now=now - 10)
    newest, _tasks, _plan = cases.save(store, 1, now=now, dry_run=True)
    assert read_json(openstack, 'plan', 'show', '--latest')['id'] == newest
    (row,) = read_json(openstack, 'plan', verb, '--latest', '--long', '--reason', 'x')
    assert row['Plan'] == wanted
    assert openstack.fail('plan', verb, '--latest', '--scope', 'red', '--reason', 'x').startswith(
        '--latest: no plan of scope red has a task that is pending')


def test_plan_has_a_name_or_is_the_latest(openstack, store):
    plan_id, _tasks = test_requests.save_waiting_plan(store)
    assert openstack.fail('plan', 'show', plan_id, '--scope', 'blue').startswith('--scope: ')
    assert read_json(openstack, 'plan', 'show', '--latest', '--scope', 'blue')['id'] == plan_id
    assert openstack.fail('plan', 'show', '--latest', '--scope', 'red') == (
        '--latest: no plan of scope red exists; see openstack rebalance scope list')
    for arguments in (('plan', 'show'), ('plan', 'show', plan_id, '--latest')):
        status, output, error = openstack.run(*arguments)
        assert (status, output) == (2, '') and '--latest' in error.splitlines()[-1]


def test_beginning_of_a_uuid_names_one_plan_or_task(openstack, store):
    now, ids = store.now(), ['abcd1234-0000-4000-8000-000000000000',
                             'abcd1234-0000-4000-8000-000000000001',
                             'abcd5678-0000-4000-8000-000000000000']
    for number, plan_id in enumerate(ids):
        task = cases.make_task(plan_id, task_id=f'{plan_id[:-3]}fff')
        plan = model.Plan('blue', (model.Move(task.instance_uuid, 'h1', 'h2', task.phase),))
        store.plans.save_plan(cases.lease_of(store), plan, [task] if number else [],
                              plan_id=plan_id, now=now + number, dry_run=False, cooldown=0,
                              instance_cooldown=0)
    assert read_json(openstack, 'plan', 'show', 'ABCD5')['id'] == ids[2]
    assert read_json(openstack, 'task', 'show', 'abcd5')['plan_id'] == ids[2]
    assert [row['ID'] for row in read_json(openstack, 'task', 'list', '--plan', 'abcd5')] == [
        'abcd5678-0000-4000-8000-000000000fff']
    assert openstack.fail('plan', 'show', 'abcd1') == (
        f'<plan>: abcd1 is the beginning of {ids[1]} and of {ids[0]}; write more characters')
    assert openstack.fail('task', 'cancel', 'bbbb', '--reason', 'x') == (
        '<task>: no task begins with bbbb; see openstack rebalance task list')
    for text in ('abc', 'web-1', '', 'abcd-', 'abcd12340', 'abcd1234-0000-4000-8000-0000000000000'):
        assert openstack.fail('plan', 'show', text).startswith(f"<plan>: '{text}' is no UUID")


def test_service_searches_the_beginning_and_limit_bounds_the_rows(openstack, store, conf, server):
    conf.set_override('max_limit', 2, group='kronos_api')
    made = [cases.save(store, 1, now=store.now() + number)[0] for number in range(5)]
    assert [row['ID'] for row in read_json(openstack, 'plan', 'list')] == made[::-1]
    server.requests.clear()
    assert read_json(openstack, 'plan', 'show', made[0][:18])['id'] == made[0]
    assert [request[1:3] for request in server.requests] == [
        ('/v1/plans', f'id_prefix={made[0][:18]}&limit=2'), (f'/v1/plans/{made[0]}', '')]
    status, output, error = openstack.run('plan', 'list', '--limit', '3')
    assert status == 0 and output.count(' blue ') == 3
    assert error == 'Only 3 plans are shown; --limit shows more.\n'
    assert openstack.run('plan', 'list', '--limit', '3', '-f', 'value', '-c', 'ID') == (
        0, ''.join(f'{plan_id}\n' for plan_id in made[:1:-1]), '')
    assert openstack.run('plan', 'list', '--limit', '5')[2] == ''


def test_closed_standard_error_stops_no_command(openstack, store, monkeypatch):
    for number in range(2):
        cases.save(store, 1, now=store.now() + number)
    monkeypatch.setattr(sys, 'stderr', None)
    status, output, _error = openstack.run('plan', 'list', '--limit', '1')
    assert status == 0 and output.count(' blue ') == 1


def test_lists_have_filters(openstack, store):
    old, _tasks, _plan = cases.save(store, 1, now=store.now() - 7200)
    new, _tasks, _plan = cases.save(store, 1, scope='red', now=store.now())
    for arguments, ids in (((), [new, old]), (('--scope', 'blue'), [old]),
                           (('--changes-since=-1h',), [new]),
                           (('--changes-since', '2026-01-01T00:00:00Z'), [new, old])):
        assert [row['ID'] for row in read_json(openstack, 'plan', 'list', *arguments)] == ids
    claimed = cases.claim(store, scopes={'red'}, now=store.now() + 60)
    for arguments, plans in (((), [new, old]), (('--state', 'claimed'), [new]),
                             (('--state', 'queued', '--state', 'claimed'), [new, old]),
                             (('--instance', claimed.task.instance_uuid), [new]),
                             (('--scope', 'blue'), [old])):
        rows = read_json(openstack, 'task', 'list', '--long', *arguments)
        assert [row['Plan'] for row in rows] == plans
    cases.end(store, claimed)
    assert len(read_json(openstack, 'task', 'list')) == 1
    assert len(read_json(openstack, 'task', 'list', '--all')) == 2


def test_states_are_those_of_the_model():
    assert set(task_commands.STATES) == {state.value for state in model.TaskState}
    assert set(waits.TERMINAL) == {
        state.value for state in model.TaskState if state.is_terminal}


def test_task_is_shown_cancelled_and_resolved(openstack, store):
    cases.save(store, 2, now=store.now())
    claimed = cases.claim(store, now=store.now() + 60)
    submit(store, claimed)
    shown = read_json(openstack, 'task', 'show', claimed.task.task_id)
    assert shown['state'] == 'submitted' and shown['retries'] == 0
    assert shown['alternates'] == [{'host': 'h3', 'improvement': None}]
    assert '| retries       | 0 of 3 ' in openstack.read('task', 'show', claimed.task.task_id)
    (queued,) = read_json(openstack, 'task', 'list', '--state', 'queued')
    (cancelled,) = read_json(openstack, 'task', 'cancel', queued['ID'], '--reason', 'x')
    assert (cancelled['ID'], cancelled['State']) == (queued['ID'], 'cancelled')
    assert read_json(openstack, 'task', 'resolve', claimed.task.task_id, '--state', 'failed',
                     '--reason', 'compute-07 is lost') == []
    assert store.tasks.find_task(claimed.task.task_id).task.state is TaskState.FAILED


def test_attempts_and_hooks_are_lines_for_people(openstack, store):
    cases.save(store, 1, now=store.now())
    claimed = cases.claim(store, now=store.now() + 60)
    cases.end(store, claimed, TaskState.FAILED, now=store.now() + 90, error_type='NoValidHost')
    text = openstack.read('task', 'show', claimed.task.task_id)
    assert 'NoValidHost' in text and '| state         | failed ' in text
    assert read_json(openstack, 'task', 'show', claimed.task.task_id)['error_type'] == 'NoValidHost'


def test_pause_is_created_listed_and_deleted(openstack, store):
    save = test_requests.save_waiting_plan
    save(store)
    pause = read_json(openstack, 'pause', 'create', '--scope', 'blue', '--duration', '2h',
                      '--reason', 'storm')
    assert (pause['scope'], pause['reason']) == ('blue', 'storm')
    assert 'alice' in pause['paused_by'] and pause['until'] > pause['since']
    everything = read_json(openstack, 'pause', 'create', '--all', '--reason', 'all')
    assert everything['scope'] is None and everything['until'] is None
    assert [row['Scope'] for row in read_json(openstack, 'pause', 'list')] == [None, 'blue']
    assert '| everything | ' in openstack.read('pause', 'list')
    status, output, error = openstack.run('pause', 'delete', '--all')
    assert (status, output) == (0, '')
    assert error.startswith('Scope blue is still paused by keystone:') and 'storm' in error
    assert openstack.run('pause', 'delete', '--scope', 'blue') == (0, '', '')
    assert openstack.fail('pause', 'delete', '--scope', 'blue').startswith('scope: ')


@pytest.mark.parametrize('arguments', [
    ('create', '--reason', 'x'), ('create', '--all', '--scope', 'blue', '--reason', 'x'),
    ('delete',)])
def test_pause_of_everything_is_never_an_accident(openstack, store, arguments):
    status, output, error = openstack.run('pause', *arguments)
    assert (status, output) == (2, '') and '--scope' in error and '--all' in error
    assert store.pauses.list_pauses(store.now()) == []


def test_quarantine_is_listed_and_lifted(openstack, store):
    store.quarantine.count_refusal('h1', store.now(), limit=1, seconds=60, reason='full')
    (row,) = read_json(openstack, 'quarantine', 'list', '--long')
    assert (row['Kind'], row['Name'], row['Reason']) == ('host', 'h1', 'full')
    assert openstack.run('quarantine', 'lift', 'host', 'h1') == (0, '', '')
    assert 'h1' in openstack.fail('quarantine', 'lift', 'host', 'h1')


def test_scope_is_listed_and_shown(openstack, store):
    test_requests.save_waiting_plan(store)
    store.pauses.pause_scope('blue', store.now(), seconds=None, paused_by='me', reason='storm')
    row = next(row for row in read_json(openstack, 'scope', 'list') if row['Name'] == 'blue')
    assert (row['Engine'], row['Tasks'], row['Paused']) == ('engine', {'pending': 2}, True)
    scope = read_json(openstack, 'scope', 'show', 'blue')
    assert scope['pause']['reason'] == 'storm' and scope['move_count'] == 2
    text = openstack.read('scope', 'show', 'blue')
    assert 'cpu: measured 0.4000 (threshold 0.1500), planned 0.1000' in text
    assert openstack.fail('scope', 'show', 'red').startswith('<scope>: no engine has planned a '
                                                             'scope red within a day')


def test_every_format_of_cliff_takes_the_cells(openstack, store):
    test_requests.save_waiting_plan(store)
    for command in (('plan', 'list'), ('task', 'list'), ('scope', 'list')):
        for form in ('table', 'json', 'yaml', 'csv', 'value'):
            assert openstack.read(*command, '--long', '-f', form)
    rows = list(csv.DictReader(openstack.read('task', 'list', '-f', 'csv').splitlines()))
    assert [row['State'] for row in rows] == ['pending', 'pending']
    assert 'id="' in openstack.read('plan', 'show', '--latest', '-f', 'shell')
    # Cells without a value do not stop the order.
    assert openstack.run('task', 'list', '--long', '--sort-column', 'Submitted At',
                         '--sort-column', 'Error')[2] == ''


def test_answer_of_another_release_is_one_line(openstack, server):
    def send_strange_plan(environ, start_response):
        start_response('200 OK', [('Content-Type', 'application/json')])
        return [b'{"plans": [{"id": "x"}], "next": null}']

    server.answer = send_strange_plan
    assert openstack.fail('plan', 'list').startswith(
        "the answer of kronos-api does not fit this client (KeyError: 'scope')")
