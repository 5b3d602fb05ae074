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


"""Threads start late, survive a fork and an error, and stop."""

import os
import signal
import threading
import time
from unittest import mock

from kronos_nova.feed import periodic


def wait_for(condition, patience=30.0):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.005)
    raise AssertionError('waited in vain')


def made(work, interval=0.01, **kwargs):
    faults = periodic.FaultCounters()
    return periodic.BackgroundRefresher('test', lambda: interval, work, faults, **kwargs), faults


def test_nothing_runs_before_the_first_ensure_and_nothing_after_stop():
    calls = []
    refresher, _ = made(lambda: calls.append(threading.current_thread()))
    time.sleep(0.03)
    assert not calls
    for _ in range(5):
        refresher.ensure_running()
    wait_for(lambda: len(calls) > 3)
    assert len(set(calls)) == 1 and calls[0].daemon
    refresher.stop()
    count = len(calls)
    refresher.ensure_running()
    time.sleep(0.03)
    assert len(calls) == count


def test_many_threads_start_one():
    calls, gate = set(), threading.Event()
    refresher, _ = made(lambda: (calls.add(threading.current_thread()), gate.wait()))
    callers = [threading.Thread(target=refresher.ensure_running) for _ in range(32)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    wait_for(lambda: calls)
    gate.set()
    assert len(calls) == 1
    refresher.stop()


def test_an_error_is_counted_logged_once_and_ends_nothing():
    def work():
        raise RuntimeError('boom')

    refresher, faults = made(work)
    with mock.patch.object(periodic.LOG, 'error', autospec=True) as error:
        refresher.ensure_running()
        wait_for(lambda: faults.counts['test: RuntimeError'] > 3)
    refresher.stop()
    assert error.call_count == 1


def test_wake_runs_the_wake_hook_without_other_work():
    work, woken = [], threading.Event()
    refresher, _ = made(lambda: work.append(1), interval=3600, on_wake=woken.set)
    refresher.ensure_running()
    wait_for(lambda: work)
    refresher.request_wake()
    assert woken.wait(30)
    refresher.stop()
    assert len(work) == 1


def test_a_forked_child_starts_its_own_thread():
    """Also when another thread of the parent held the lock at the fork."""
    calls = []
    refresher, _ = made(lambda: calls.append(os.getpid()))
    refresher.ensure_running()
    wait_for(lambda: calls)
    with refresher._lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                refresher.ensure_running()
                wait_for(lambda: os.getpid() in calls)
                code = 0
            finally:
                os._exit(code)
    try:
        _, status = wait_for(lambda: (r := os.waitpid(child, os.WNOHANG))[0] and r, 60)
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    assert os.waitstatus_to_exitcode(status) == 0
    refresher.stop()


def test_processes_that_start_together_do_not_work_together():
    """Their intervals are within a tenth, and differ after a fork too."""
    found = [periodic.jitter_interval(30.0) for _ in range(200)]
    assert all(27.0 <= interval <= 33.0 for interval in found)
    assert min(found) < 28.5 and max(found) > 31.5
    of_children = set()
    for _ in range(4):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, repr(periodic.jitter_interval(30.0)).encode())
            os._exit(0)
        os.close(writing)
        of_children.add(os.read(reading, 100))
        os.close(reading)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(of_children) == 4


def test_faults_keep_their_kinds_apart():
    faults = periodic.FaultCounters()
    with mock.patch.object(periodic.LOG, 'error', autospec=True) as error:
        for where, problem in (('a', ValueError('1')), ('a', ValueError('2')),
                               ('a', KeyError('3')), ('b', ValueError('4'))):
            faults.count_swallowed_error(where, problem)
    assert faults.counts == {'a: ValueError': 2, 'a: KeyError': 1, 'b: ValueError': 1}
    assert error.call_count == 3


def test_a_failing_interval_does_not_end_the_thread():
    calls, intervals = [], iter([ValueError('no interval')])
    faults = periodic.FaultCounters()

    def find_interval():
        for error in intervals:
            raise error
        return 0.01

    refresher = periodic.BackgroundRefresher(
        'test', find_interval, lambda: calls.append(threading.current_thread()), faults)
    with mock.patch.object(periodic, 'PAUSE_AFTER_ERROR', 0.01):
        refresher.ensure_running()
        wait_for(lambda: len(calls) > 2)
    refresher.stop()
    assert len(set(calls)) == 1 and faults.counts == {'test: ValueError': 1}
