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
"""Events: each plan, change of a task and command once, also by clocks that differ."""

import threading
import time

from kronos_nova import model
from kronos_nova.api import application
from kronos_nova.api import values
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.operations import events
from tests.unit.api import conftest
from tests.unit.api import test_requests
from tests.unit.rebalancer.store import cases


def ask(client, marker, **query):
    """Return (the events, the next marker)."""
    status, document = client.send('GET', '/v1/events', query_string={'since': marker, **query})
    assert status == 200, document
    return document['events'], document['marker']


def begin(client):
    status, document = client.send('GET', '/v1/events')
    assert status == 200 and document['events'] == []
    return document['marker']


def test_plan_its_tasks_and_a_decision_are_events_once(client, store):
    marker = begin(client)
    assert ask(client, marker)[0] == []
    plan_id, tasks = test_requests.save_waiting_plan(store)
    found, marker = ask(client, marker)
    assert sorted(event['kind'] for event in found) == ['plan', 'task', 'task']
    (plan,) = [event['plan'] for event in found if event['kind'] == 'plan']
    assert plan == {'id': plan_id, 'scope': 'blue', 'dry_run': False, 'move_count': 2,
                    'reason': None}
    assert ask(client, marker)[0] == []
    client.send('POST', f'/v1/plans/{plan_id}/approve', json={
        'instances': [tasks[0].instance_uuid]})
    found, marker = ask(client, marker)
    (command,) = [event['command'] for event in found if event['kind'] == 'command']
    assert command['command'] == 'approved' and command['given_by'].startswith('keystone:')
    (task,) = [event['task'] for event in found if event['kind'] == 'task']
    assert (task['id'], task['state']) == (tasks[0].task_id, 'queued')
    client.send('POST', '/v1/pauses', json={'scope': None, 'reason': 'storm'})
    (pause,) = ask(client, marker)[0]
    assert pause['command']['command'] == 'paused' and pause['command']['reason'] == 'storm'


def test_events_come_in_parts_of_the_limit(client, store):
    marker = begin(client)
    for _plan in range(3):
        test_requests.save_waiting_plan(store, 3)
    found = []
    for _request in range(20):
        part, marker = ask(client, marker, limit=5)
        assert len(part) <= 5
        found += part
        if not part:
            break
    ids = [event['id'] for event in found]
    assert len(ids) == len(set(ids)) == 12


def test_first_marker_leaves_out_earlier_events(client, store):
    test_requests.save_waiting_plan(store)
    marker = begin(client)
    assert ask(client, marker)[0] == []
    late = cases.save(store, 0, now=store.now() - 5, reason='a clock that is behind')[0]
    assert [event['plan']['id'] for event in ask(client, marker)[0]] == [late]


def test_events_since_a_time(client, store):
    now = store.now()
    first, second = (cases.save(store, 0, now=now - ago, reason=f'{ago}')[0]
                     for ago in (7200, 1800))
    for ago, plans in ((86400, [first, second]), (3600, [second]), (60, [])):
        status, page = client.send('GET', '/v1/events', query_string={
            'changes-since': values.make_time(now - ago).isoformat()})
        assert status == 200 and [event['plan']['id'] for event in page['events']] == plans
        assert ask(client, page['marker'])[0] == []
    status, detail = client.fail('GET', '/v1/events?changes-since=2026-01-01T00:00:00')
    assert status == 400 and 'query changes-since: ' in detail


def test_change_by_a_clock_that_is_behind_or_ahead_is_not_lost(client, store):
    marker = begin(client)
    for ahead in (20.0, -30.0, 45.0, 0.0, -10.0):
        plan_id = cases.save(store, 0, now=store.now() + ahead, reason=f'clock {ahead}')[0]
        found, marker = ask(client, marker)
        assert [event['plan']['id'] for event in found] == [plan_id], ahead


def test_request_waits_for_an_event(client, store):
    marker = begin(client)
    began = time.monotonic()
    assert ask(client, marker, wait_seconds=0.2)[0] == []
    assert time.monotonic() - began >= 0.2
    timer = threading.Timer(0.3, lambda: test_requests.save_waiting_plan(store, 1))
    timer.start()
    found, _marker = ask(client, marker, wait_seconds=20)
    timer.join()
    assert len(found) in (1, 2) and time.monotonic() - began < 15


def test_task_that_ends_is_an_event(client, store):
    cases.save(store, 1, now=store.now())
    row = cases.claim(store, now=store.now() + 60)
    marker = begin(client)
    cases.end(store, row, TaskState.FAILED, store.now(), error_type='MigrationFailed',
              quarantine_seconds=None)
    (event,) = [event for event in ask(client, marker)[0]
                if event['kind'] == 'task' and event['task']['state'] == 'failed']
    assert event['task']['error_type'] == 'MigrationFailed'


def test_requests_above_the_limit_do_not_wait(conf, store):
    conf.set_override('max_waiting', 1, group='kronos_api')
    client = conftest.Client(application.make_routes(conf))
    marker, answers = begin(client), []

    def wait():
        answers.append(client.send('GET', '/v1/events', query_string={
            'since': marker, 'wait_seconds': 3})[1])

    threads = [threading.Thread(target=wait) for _number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answer['waited'] for answer in answers) == [False, False, True]
    assert client.send('GET', '/v1/events', query_string={
        'since': marker, 'wait_seconds': 0.1})[1]['waited'], 'the place is free again'


def test_wrong_marker_and_wait_are_refused_by_their_name(client, store):
    for query, words in (('since=x', 'query since: '), ('since=1.0', 'query since: '),
                         ('wait_seconds=31', 'query wait_seconds: '),
                         ('wait_seconds=-1', 'query wait_seconds: ')):
        status, detail = client.fail('GET', f'/v1/events?{query}')
        assert status == 400 and words in detail


def test_marker_of_many_events_stays_short(client, store):
    marker = begin(client)
    for _plan in range(2):
        test_requests.save_waiting_plan(store, 450)
    found = []
    for _request in range(10):
        part, marker = ask(client, marker, limit=150)
        assert len(marker) <= 60 + 8 * events.MARKED
        found += [event['id'] for event in part]
        if not part:
            break
    assert not part and len(found) == len(set(found)) == 902


def test_more_changes_than_a_call_reads_are_passed(client, store, monkeypatch):
    monkeypatch.setattr(events, 'READ', 4)
    marker = begin(client)
    test_requests.save_waiting_plan(store, 9)
    for _request in range(20):
        found, marker = ask(client, marker, limit=3)
        if not found:
            break
    cases.save(store, 0, now=store.now() + 1, reason='later')
    plans = []
    for _request in range(5):
        found, marker = ask(client, marker)
        plans += [event for event in found if event['kind'] == 'plan']
    assert [event['plan']['reason'] for event in plans] == ['later']


def test_late_transaction_is_an_event_although_many_others_have_passed(client, store):
    marker = begin(client)
    now = store.now()
    for _plan in range(20):
        cases.save(store, 0, now=now, reason=f'{_plan}')
    _found, marker = ask(client, marker)
    late = cases.save(store, 0, now=now - 5, reason='late')[0]
    assert [event['plan']['id'] for event in ask(client, marker)[0]] == [late]


def test_a_notice_to_an_owner_is_an_event_once(client, store):
    marker = begin(client)
    # A second ahead of the database, which puts an earlier one off.
    now = store.now() + 1
    store.notices.record_notices(cases.lease_of(store), [model.MoveNotice(
        'u1', 'p', 'h1', model.NoticeReason.DRAIN, now, 1793491200.0, 1793577600.0)])
    ((event,), marker) = ask(client, marker)
    assert event['kind'] == 'notice' and event['notice'] == {
        'scope': 'blue', 'instance_id': 'u1', 'project_id': 'p', 'from_host': 'h1',
        'reason': 'drain', 'movable_from': '2026-11-01T00:00:00Z',
        'valid_until': '2026-11-02T00:00:00Z', 'may_shut_down': False}
    assert ask(client, marker)[0] == []
