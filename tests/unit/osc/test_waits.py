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

"""--wait and --watch end with the tasks, with the time, or when the operator stops."""

import io
import json
import re
import sys
import threading
import time

import pytest

from kronos_nova.model import TaskState
from kronos_nova.osc import waits
from tests.unit.api import test_requests
from tests.unit.rebalancer.store import cases

pytestmark = pytest.mark.turns(2)

DEADLINE = 60


@pytest.fixture(autouse=True)
def short_interval(monkeypatch):
    monkeypatch.setattr(waits, 'POLL_INTERVAL', 0.05)


class Executor(threading.Thread):
    """Ends each task that is approved, once the client has asked for it in each state."""

    def __init__(self, store, server, ends):
        super().__init__(daemon=True)
        self._store, self._server, self._ends = store, server, list(ends)

    def run(self):
        end = time.monotonic() + DEADLINE
        while self._ends and time.monotonic() < end:
            claimed = cases.claim(self._store, now=self._store.now())
            if claimed is None:
                time.sleep(0.02)
                continue
            self._wait_for_request()
            state = self._ends.pop(0)
            cases.end(self._store, claimed, state, now=self._store.now(),
                      error_type='NoValidHost' if state is TaskState.FAILED else None)
            if self._ends:
                self._wait_for_request()

    def _wait_for_request(self):
        """Wait for a whole question that begins after now."""
        asked, end = len(self._server.requests), time.monotonic() + DEADLINE
        while len(self._server.requests) < asked + 2 and time.monotonic() < end:
            time.sleep(0.02)


@pytest.mark.parametrize(('ends', 'status'), [
    ([TaskState.COMPLETED] * 2, 0), ([TaskState.COMPLETED, TaskState.FAILED], 1)])
def test_approval_waits_until_the_tasks_are_over(openstack, store, server, ends, status):
    plan_id, tasks = test_requests.save_waiting_plan(store)
    executor = Executor(store, server, ends)
    executor.start()
    result, output, error = openstack.run('plan', 'approve', plan_id, '--wait', '-f', 'json')
    executor.join(DEADLINE)
    assert result == status, error
    assert sorted(row['State'] for row in json.loads(output)) == sorted(
        str(state) for state in ends)
    # Nothing but the warning: standard error is no terminal.
    assert [line.partition(':')[0] for line in error.splitlines()] == ['warning']


def test_watch_writes_each_change(openstack, store, server):
    plan_id, tasks = test_requests.save_waiting_plan(store, moves=1)
    executor = Executor(store, server, [TaskState.COMPLETED])
    executor.start()
    status, _output, error = openstack.run('plan', 'approve', plan_id, '--watch')
    executor.join(DEADLINE)
    lines = error.splitlines()[1:]
    assert status == 0
    assert all(re.match(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ task ' + tasks[0].task_id, line)
               for line in lines)
    states = [line.rpartition(': ')[2] for line in lines]
    assert states in (['queued', 'queued to claimed', 'claimed to completed'],
                      ['claimed', 'claimed to completed'])
    assert 'we?b' in lines[0]


@pytest.mark.parametrize('kind', ['plan', 'task'])
def test_show_waits_for_work_of_others(openstack, store, server, kind):
    plan_id, tasks, _plan = cases.save(store, 1, now=store.now() - 60)
    executor = Executor(store, server, [TaskState.FAILED])
    executor.start()
    name = plan_id if kind == 'plan' else tasks[0].task_id
    status, output, _error = openstack.run(kind, 'show', name, '--wait', '-f', 'json')
    executor.join(DEADLINE)
    shown = json.loads(output)
    assert status == 1
    assert (shown['task_states'] == {'failed': 1} if kind == 'plan' else
            shown['state'] == 'failed')


def test_plan_without_tasks_is_over(openstack, store):
    plan_id, _tasks, _plan = cases.save(store, 1, now=store.now(), dry_run=True)
    assert plan_id in openstack.read('plan', 'show', plan_id, '--wait')


def test_time_is_limited(openstack, store):
    plan_id, _tasks = test_requests.save_waiting_plan(store)
    line = openstack.fail('plan', 'show', plan_id, '--wait', '--timeout', '1')
    assert line.startswith('--timeout: the tasks are not over after 1 s, and go on')


def test_wait_goes_on_while_the_service_restarts(openstack, store, server):
    plan_id, _tasks, _plan = cases.save(store, 1, now=store.now() - 60)
    failures = iter(range(3))

    def fail(environ, start_response):
        if next(failures, None) is None:
            server.answer = None
            cases.end(store, cases.claim(store, now=store.now()), now=store.now())
        start_response('503 Service Unavailable', [])
        return [b'']

    server.answer = fail
    assert 'completed' in openstack.read('plan', 'show', plan_id, '--wait')
    # It fails again, for good.
    failures = iter(range(1000))
    server.answer = fail
    line = openstack.fail('plan', 'show', plan_id, '--wait', '--timeout', '1')
    assert line.startswith('--timeout: ') and 'answered 503' in line


def test_operator_can_stop_waiting(openstack, store, monkeypatch):
    plan_id, _tasks = test_requests.save_waiting_plan(store)

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(waits.time, 'sleep', interrupt)
    assert openstack.fail('plan', 'show', plan_id, '--wait').startswith(
        'stopped waiting; the tasks go on')


class Terminal(io.StringIO):
    """A standard error that says that it is a terminal."""

    def isatty(self):
        return True


def test_bar_is_for_terminals(openstack, store, server, monkeypatch):
    plan_id, _tasks, _plan = cases.save(store, 2, now=store.now() - 60)
    executor = Executor(store, server, [TaskState.COMPLETED] * 2)
    executor.start()
    terminal = Terminal()
    monkeypatch.setattr(sys, 'stderr', terminal)
    openstack.read('plan', 'show', plan_id, '--wait')
    executor.join(DEADLINE)
    assert '50% 1 of 2 tasks over' in terminal.getvalue()
    assert terminal.getvalue().endswith('\r')
