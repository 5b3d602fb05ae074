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


"""Cycles at their times, leases between them."""

import threading
import time

import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.engine import daemon
from kronos_nova.rebalancer.engine import lease_keeper
from kronos_nova.rebalancer.monitoring import health as healths

PATIENCE = 60.0


class Engine:
    """Counts; what a beat does is handed in."""

    def __init__(self, beat=lambda: False):
        self.cycles = threading.Semaphore(0)
        self.beats = threading.Semaphore(0)
        self.stopped = threading.Event()
        self._beat = beat
        self.troubles = {}

    def run_safe_cycle(self):
        self.cycles.release()
        return self.troubles

    def keep_leases(self):
        self.beats.release()
        return self._beat()

    def stop(self):
        self.stopped.set()


def times(semaphore, count):
    return all(semaphore.acquire(timeout=PATIENCE) for _ in range(count))


@pytest.fixture
def serve():
    started = []

    def serve(built, **kwargs):
        started.append(daemon.EngineDaemon(built, **kwargs))
        started[-1].start()
        return started[-1]

    yield serve
    for one in started:
        one.stop()


def test_a_cycle_runs_each_interval_and_leases_are_kept_between(serve):
    built = Engine()
    serve(built, interval=0.05, beat=0.01)
    assert times(built.cycles, 3) and times(built.beats, 10)


def test_a_scope_that_became_free_is_not_waited_for_an_interval(serve):
    free = [False]
    built = Engine(lambda: free[0])
    serve(built, interval=3600, beat=0.01)
    assert times(built.cycles, 1)
    assert times(built.beats, 5) and not built.cycles.acquire(blocking=False)
    free[0] = True
    assert times(built.cycles, 1)


@pytest.mark.parametrize('error', [
    exception.StoreError(problem='is away', remedy='Wait.'), RuntimeError('a defect')])
def test_leases_are_renewed_again_after_any_error(serve, error, caplog):
    def beat():
        if len(failed) < 3:
            failed.append(error)
            raise error
        return False
    failed = []
    built = Engine(beat)
    serve(built, interval=3600, beat=0.01)
    assert times(built.beats, 5)
    told = [r for r in caplog.records if 'were not renewed' in r.message]
    assert len(told) == (1 if isinstance(error, exception.StoreError) else 3)


def test_stopping_waits_for_no_interval():
    built = Engine()
    one = daemon.EngineDaemon(built, interval=3600, beat=3600)
    one.start()
    assert times(built.cycles, 1)
    began = time.monotonic()
    one.stop()
    assert built.stopped.is_set() and time.monotonic() - began < PATIENCE


def test_a_dead_engine_s_scope_is_planned_again_within_a_minute():
    """Killed right after a beat; its heir had looked right before the lease ended."""
    assert lease_keeper.LEASE_SECONDS + daemon.BEAT_SECONDS <= 45, 'a cycle needs time, too'
    assert 3 * daemon.BEAT_SECONDS < lease_keeper.LEASE_SECONDS, 'two renewals may be lost'


def test_it_is_ready_when_a_cycle_has_succeeded_in_every_scope():
    built, health = Engine(), healths.DaemonHealth()
    built.troubles = {'blue': 'could not read servers from Nova'}
    one = daemon.EngineDaemon(built, interval=0.01, beat=0.01, health=health)
    assert health.find_unready_reason() == [
        'cycle: it has not come round yet'] and health.find_restart_reason() == []
    one.start()
    assert times(built.cycles, 2)
    assert health.find_unready_reason() == ['cycle: blue: could not read servers from Nova']
    assert health.find_restart_reason() == [], 'a restart would not help'
    built.troubles = {}
    assert times(built.cycles, 3)
    one.stop()
    assert health.find_unready_reason() == []


def test_unrenewed_leases_are_reported_to_the_health_registry(serve):
    errors = [exception.StoreError(problem='the database is away', remedy='wait')]

    def beat():
        if errors:
            raise errors[0]
        return False
    built, health = Engine(beat), healths.DaemonHealth()
    serve(built, interval=3600, beat=0.01, health=health)
    assert times(built.beats, 2)
    assert ['the database is away' in text for text in health.find_unready_reason()
            if 'leases' in text] == [True]
    errors.clear()
    assert times(built.beats,
                 3) and not any('leases' in text for text in health.find_unready_reason())
