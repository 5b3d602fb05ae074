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


"""Executors that crash, freeze and compete for one table, seed by seed."""

import collections
import os

import pytest

from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import claim_keeper
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.store import database_clock
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import task_claims
from tests.simulation import executor_world

#: The whole rebalancer is in test_world: here only what a planner does not make.
SEEDS = int(os.environ.get('KRONOS_EXECUTOR_SEEDS', '24'))
#: What `tools/test long` adds.
LONG_SEEDS = 2000
CHUNK = 10


@pytest.mark.long
@pytest.mark.parametrize('first', range(SEEDS, SEEDS + LONG_SEEDS, CHUNK))
def test_every_task_ends_once_in_many_more_worlds(first):
    _run_all(range(first, first + CHUNK))


def _run_all(seeds):
    """Return how often each fault happened, and each state in which a task ended."""
    seen = collections.Counter()
    for seed in seeds:
        run = executor_world.Run(seed)
        try:
            run.go()
            seen.update(run.counts)
            seen.update(row.task.state.value for row in run.rows())
        except AssertionError as e:
            pytest.fail(f'seed {seed}: {e}')
        finally:
            run.store.close()
    return seen


def test_every_task_ends_once_and_every_fault_happens():
    seen = _run_all(range(SEEDS))
    for fault in ('network', 'refused', 'lost before', 'lost after', 'delayed', 'freeze',
                  'no room', 'driver bug', 'clock steps', 'clock drifts', 'completed', 'failed',
                  'cancelled'):
        assert seen[fault], fault
    assert sum(n for what, n in seen.items() if what.startswith('crash')) > 12


def test_same_seed_gives_same_run():
    def trace(seed):
        run = executor_world.Run(seed)
        run.go()
        run.store.close()
        return run.counts, run.now, run.told
    assert trace(7) == trace(7)


@pytest.mark.turns(3)
@pytest.mark.parametrize('seconds', [90, 130, 600])
def test_pre_flight_longer_than_claim_leads_to_migration(seconds):
    run = executor_world.Run(3)
    try:
        run.slow_pre_flight(seconds)
        assert run.counts['pre-flight'] == run.counts['request'] == len(run.rows())
        assert {row.task.state for row in run.rows()} == {TaskState.COMPLETED}
    finally:
        run.store.close()


def test_executor_hanging_in_pre_flight_loses_its_task():
    run = executor_world.Run(3)
    try:
        run.slow_pre_flight(claim_keeper.HUNG_SECONDS + 120, hangs=run.workers[0].name)
        assert {row.task.state for row in run.rows()} == {TaskState.COMPLETED}
        assert {row.worker for row in run.rows()} == {run.workers[1].name}
        assert run.counts['pre-flight'] == len(run.rows()) + 1
    finally:
        run.store.close()


@pytest.mark.turns(3)
def test_missing_claim_renewal_in_slow_pre_flight_is_caught(monkeypatch):
    monkeypatch.setattr(claim_keeper.TaskClaimKeeper, 'renew_task_claims', lambda self: True)
    with pytest.raises(AssertionError):
        test_pre_flight_longer_than_claim_leads_to_migration(90)


def _caught(seeds):
    for seed in seeds:
        run = executor_world.Run(seed)
        try:
            run.go()
        except AssertionError:
            return True
        finally:
            run.store.close()
    return False


@pytest.mark.turns(3)
def test_resubmitting_without_waiting_is_caught(monkeypatch):
    monkeypatch.setattr(retry.RetrySettings, 'absent_seconds', 0.0)
    # The first that catches it; a change of the world changes which.
    assert _caught([51, *range(60)])


@pytest.mark.turns(3)
def test_uncounted_caps_are_caught(monkeypatch):
    monkeypatch.setattr(rows, 'IN_FLIGHT', (TaskState.SUBMITTED,))
    assert _caught(range(10))


@pytest.mark.turns(3)
def test_missing_takeover_of_crashed_executor_is_caught(monkeypatch):
    monkeypatch.setattr(task_claims, 'adopt_tasks', lambda *args: [])
    assert _caught(range(10))


@pytest.mark.turns(3)
def test_executors_using_local_clock_are_caught(monkeypatch):
    monkeypatch.setattr(database_clock.DatabaseClock, '__call__', lambda self: self._wall())
    assert _caught(range(10))


@pytest.mark.turns(3)
def test_executors_starting_with_wrong_clock_are_caught(monkeypatch):
    monkeypatch.setattr(database_clock.DatabaseClock, 'find_problem', lambda self: None)
    assert _caught(range(20))
