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

"""Drains on the real routes: started, followed and stopped by ``openstack rebalance``."""

import dataclasses
import json
import threading
import time

import pytest

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.osc import client
from kronos_nova.osc import drain
from kronos_nova.osc import drain_waits
from kronos_nova.osc import waits
from tests.unit.api import test_drains
from tests.unit.osc.test_commands import read_json
from tests.unit.rebalancer.store import cases

pytestmark = pytest.mark.turns(2)

nova = test_drains.nova
host_c = test_drains.host_c
publisher = test_drains.publisher


@pytest.fixture(autouse=True)
def short_interval(monkeypatch):
    monkeypatch.setattr(waits, 'POLL_INTERVAL', 0.05)
    monkeypatch.setattr(drain_waits, 'INTERVAL', 0.1)


@pytest.fixture
def openstack(openstack, nova, monkeypatch):
    """The commands of a user whose requests have a token for Nova."""
    monkeypatch.setattr('kronos_nova.api.calls.find_access', lambda environ: 'an access')
    monkeypatch.setattr('kronos_nova.rebalancer.clients.connection.make_user_connection',
                        lambda conf, access: nova.connection)
    return openstack


def set_host(publisher, status='disabled', empty=False):
    """Disable or enable host a for the engine, and let its instances leave; publish that."""
    cluster = publisher.collector.cluster
    publisher.collector.cluster = dataclasses.replace(
        cluster, services={**cluster.services, 'a': model.Service(
            'a', zone='nova', status=status,
            disabled_reason='new memory' if status == 'disabled' else None)},
        instances={uuid: dataclasses.replace(instance, host='b')
                   if empty and instance.host == 'a' else instance
                   for uuid, instance in cluster.instances.items()})
    publisher.run_cycle()


def end_tasks(store):
    """Complete each task of the database, also those that begin later."""
    while (claimed := cases.claim(store, now=store.now() + 600)) is not None:
        cases.end(store, claimed, TaskState.COMPLETED, now=store.now(), error_type=None)


def test_start_disables_the_host_and_names_the_approved_plan(
        conf, openstack, nova, store, publisher):
    test_drains.approving(conf, publisher, people=2)
    status, output, error = openstack.run(
        'drain', 'start', 'a', '--reason', 'new  memory', '--approve', '-f', 'json')
    drain = json.loads(output)
    assert status == 0 and drain['changed'] is True and drain['instance_count'] == 2
    (plan_id,) = drain['plan_ids']
    assert error.splitlines()[-1] == (
        f'Plan {plan_id} has your approval, and waits for that of 1 other person.')
    assert [asked[3] for asked in nova.asked if asked[0] == 'PUT'] == [
        {'status': 'disabled', 'disabled_reason': 'new memory'}]


def test_deadline_is_sent_shown_and_said_to_be_late(openstack, nova, store, publisher):
    before = int(store.now())
    drain = read_json(openstack, 'drain', 'start', 'a', '--reason', 'x', '--deadline', '2h')
    (due,) = cases.map_deadlines(store).values()
    assert before + 7200 <= due <= store.now() + 7200 and drain['deadline'] is not None
    check = read_json(openstack, 'drain', 'check', 'a', '--deadline', '1d')
    assert check['deadline'] > drain['deadline'] and check['late_instances'] == []
    set_host(publisher)
    cases.order_drain(store, 'a', 1793491200.0, 'new memory')
    end = time.monotonic() + 20
    while '(late)' not in (table := openstack.read('drain', 'list')):
        assert time.monotonic() < end, table
    assert '2026-11-01' in table
    _status, _output, error = openstack.run('drain', 'watch', 'a', '--timeout', '1s')
    assert 'The drain is late: its deadline was 2026-11-01T00:00:00+00:00.' in error
    for text in ('-2h', '90', 'tonight', '9' * 400):
        status, _output, error = openstack.run(
            'drain', 'start', 'a', '--reason', 'x', f'--deadline={text}')
        assert status == 2 and 'is no deadline; write a duration with' in error


def test_refusals_are_one_line(openstack, nova, publisher):
    nova.answers[test_drains.PUT] = [test_drains.FORBIDDEN]
    line = openstack.fail('drain', 'start', 'a', '--reason', 'x')
    assert 'os_compute_api:os-services:update' in line and 'kronos.nova.forbidden' in line
    line = openstack.fail('drain', 'start', 'c', '--reason', 'x')
    assert '1 instance would stay' in line and 'kronos.conflict' in line
    assert 'no scope that engines plan has a host' in openstack.fail('drain', 'watch', 'nowhere')


def test_stop_counts_cancelled_moves(conf, openstack, nova, store, publisher):
    test_drains.approving(conf, publisher)
    openstack.read('drain', 'start', 'a', '--reason', 'x', '--approve')
    nova.answers[test_drains.LIST] = [test_drains.disabled('x')]
    status, output, error = openstack.run('drain', 'stop', 'a', '--reason', 'too late', '-f',
                                          'json')
    assert status == 0 and len(json.loads(output)['cancelled_task_ids']) == 2
    assert error.splitlines()[-1] == (
        'Host a is enabled. 2 moves that had not begun are cancelled.')


@pytest.mark.parametrize('tasks', ['done', 'live'])
def test_wait_ends_when_the_host_is_empty_and_no_task_is_left(
        conf, openstack, nova, store, publisher, tasks):
    test_drains.approving(conf, publisher)

    def drain():
        while not nova.number('PUT'):
            time.sleep(0.02)
        time.sleep(1.0)
        set_host(publisher)
        if tasks == 'done':
            end_tasks(store)
        set_host(publisher, empty=True)

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        status, _output, error = openstack.run(
            'drain', 'start', 'a', '--reason', 'x', '--approve', '--wait', '--timeout',
            '30' if tasks == 'done' else '6')
    finally:
        thread.join(60)
    if tasks == 'done':
        assert (status, error.splitlines()[-1]) == (0, 'Host a is empty.')
    else:
        assert status == 1 and 'host a is not empty after 6 s; its drain goes on' in error


def test_watch_lists_the_tasks_and_names_the_hold(conf, openstack, nova, store, publisher):
    set_host(publisher)
    store.pauses.pause_scope('blue', store.now(), seconds=None, paused_by='me', reason='storm')

    def go_on():
        time.sleep(1.5)
        store.pauses.resume_scope('blue', store.now(), 'me')
        end_tasks(store)
        set_host(publisher, empty=True)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        status, output, error = openstack.run('drain', 'watch', 'a', '--timeout', '60', '-f',
                                              'json')
    finally:
        thread.join(60)
    assert status == 0, error
    assert {row['State'] for row in json.loads(output)} == {'completed'}
    assert len(json.loads(output)) == 2
    assert 'Nothing begins now: ' in error and 'storm' in error
    assert error.splitlines()[-1] == 'Host a is empty.'


def test_watch_of_a_host_that_is_enabled_again_is_exit_status_1(openstack, store, publisher):
    set_host(publisher)
    assert read_json(openstack, 'drain', 'list')
    thread = threading.Timer(1.0, lambda: set_host(publisher, 'enabled'))
    thread.start()
    try:
        status, _output, error = openstack.run('drain', 'watch', 'a', '--timeout', '60')
    finally:
        thread.join(60)
    assert status == 1
    assert error.splitlines()[-1] == (
        'Host a is enabled, and no drain empties it: 2 instances are on it.')


def test_older_service_without_deadlines_is_no_error(openstack, nova, publisher, monkeypatch):
    set_host(publisher)
    send = client.RebalanceClient.send

    def send_older(*args, **more):
        answer = send(*args, **more)
        for row in [answer, *answer.get('drains', ())]:
            for field in ('deadline', 'late', 'late_instances', 'arrival_seconds',
                          'deadline_change'):
                row.pop(field, None)
        return answer

    monkeypatch.setattr(client.RebalanceClient, 'send', send_older)
    assert 'new memory' in openstack.read('drain', 'list', '--long')
    for command in (('check', 'a'), ('start', 'a', '--reason', 'new memory', '--force')):
        assert read_json(openstack, 'drain', *command)['deadline'] is None
    _status, _output, error = openstack.run('drain', 'watch', 'a', '--timeout', '1s')
    assert 'deadline' not in error and 'KeyError' not in error


@pytest.mark.parametrize(('fields', 'text'), [
    ({}, ''), ({'wait_obstacle': None}, ''),
    ({'wait_obstacle': 'x'}, '; it waits for no quieter hour: x')])
def test_a_risk_says_why_the_instance_waits_for_no_quieter_hour(fields, text):
    """An older kronos-api does not say it."""
    assert drain._format_risk({'instance_id': 'i', 'probability': 0.8, **fields}) == (
        f'i may not converge: 80%{text}')
