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


"""The loop of an executor: when it reads its tasks, and how it reports its state."""

import dataclasses
import logging
import threading

import pytest
import sqlalchemy

from kronos_nova import exception
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.store import database_clock
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import task_endings
from tests.unit.rebalancer.executors import benches
from tests.unit.rebalancer.executors.benches import elsewhere
from tests.unit.rebalancer.executors.benches import SETTINGS
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store import test_swaps


def test_an_idle_pass_sends_one_query_and_writes_nothing(bench):
    bench.plan()
    bench.passes(3)
    assert bench.state is TaskState.COMPLETED
    asked, before = [], cases.dump(bench.store)

    @sqlalchemy.event.listens_for(bench.store.engine, 'before_cursor_execute')
    def seen(connection, cursor, statement, *rest):
        asked.append(statement.split()[0])

    bench.passes(2)
    sqlalchemy.event.remove(bench.store.engine, 'before_cursor_execute', seen)
    assert asked == ['BEGIN', 'SELECT'] * 2
    assert cases.dump(bench.store) == before


def test_tasks_of_another_executor_are_no_work(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    bench.passes(2)
    asked = []

    @sqlalchemy.event.listens_for(bench.store.engine, 'before_cursor_execute')
    def seen(connection, cursor, statement, *rest):
        asked.append(statement.split()[0])

    bench.passes(1, by=bench.new_worker('w2'))
    sqlalchemy.event.remove(bench.store.engine, 'before_cursor_execute', seen)
    bench.plan()
    sqlalchemy.event.listen(bench.store.engine, 'before_cursor_execute', seen)
    bench.passes(1, by=bench.new_worker('w3', dataclasses.replace(
        SETTINGS, scopes=frozenset({'green'}))))
    sqlalchemy.event.remove(bench.store.engine, 'before_cursor_execute', seen)
    assert asked == ['BEGIN', 'SELECT'] * 2


def test_an_unapproved_task_lapses_when_no_task_can_begin(bench):
    bench.plan(lambda p, s: cases.make_task(p, s, state=TaskState.PENDING,
                                            deadline=bench.now + 50))
    bench.passes(5)
    assert bench.state is TaskState.PENDING
    bench.passes(1)
    assert (bench.state, bench.row().error) == (TaskState.CANCELLED, task_endings.LAPSED)


def test_a_busy_executor_adopts_tasks_of_another_one(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(cases.make_task, elsewhere)
    bench.passes(1, by=bench.new_worker('w2'))
    bench.passes(8)
    assert {row.worker
            for row in bench.store.tasks.list_tasks_in_states([TaskState.SUBMITTED])} == {'w1'}
    assert len(bench.steps('submit')) == 2


@pytest.mark.parametrize('silent', [False, True])
def test_a_failed_attempt_is_retried_elsewhere_in_the_same_pass(bench, silent):
    bench.driver.answers['read_progress'] = [base.MigrationStage.FAILED,
                                             base.MigrationStage.RUNNING]
    bench.plan()
    bench.passes(1)
    assert bench.steps('submit') == ['h2']
    if silent:
        bench.now += 100
    bench.passes(1, by=bench.new_worker('w2') if silent else None)
    assert bench.steps('submit') == ['h2', 'h3']


def test_an_expired_half_of_a_swap_is_undone_and_logged_in_the_same_pass(bench, caplog):
    plan_id, one, two = test_swaps.begun(bench.store, deadline=bench.now + 50)
    bench.passes(1)
    bench.store.pauses.pause_scope(None, bench.now, seconds=None, paused_by='me', reason='why')
    bench.passes(1)
    assert bench.store.tasks.find_task(one.task_id).task.state is TaskState.COMPLETED
    bench.now += 100
    bench.store.pauses.resume_scope(None, bench.now)
    bench.passes(1)
    assert bench.store.tasks.find_task(two.task_id).task.state is TaskState.CANCELLED
    assert len([r for r in caplog.records if 'is undone by plan' in r.getMessage()]) == 1
    assert bench.steps('submit') == ['h2', 'h1'], 'it is on its way back'


@pytest.mark.mutant
def test_an_idle_executor_logs_the_start_and_end_of_freeze_windows(bench, caplog):
    frozen = ['the window', None]
    idle = bench.new_worker('w', dataclasses.replace(SETTINGS, frozen=lambda now: frozen[0]))
    with caplog.at_level('INFO'):
        bench.passes(2, by=idle)
        frozen.pop(0)
        bench.passes(2, by=idle)
    assert [record.getMessage() for record in caplog.records] == [
        'Executor w: the window; no migration begins', 'Executor w: migrations begin again']


def test_run_wakes_up_survives_the_database_and_stops(bench):
    bench.plan()
    failing = threading.Event()
    agenda = bench.store.executors.read_todo

    def away_once(*args):
        if not failing.is_set():
            failing.set()
            raise exception.StoreError(problem='is away', remedy='Wait.')
        return agenda(*args)
    bench.store.executors.read_todo = away_once
    done = threading.Event()
    worker_ = bench.new_worker('w', retry.RetrySettings(poll_interval=60, look_interval=0))
    worker_._outcomes._notify = lambda event, result: done.set()
    thread = threading.Thread(target=worker_.run)
    thread.start()
    assert failing.wait(30)
    worker_.wake.set()
    assert done.wait(30), 'the wake-up was not heard'
    worker_.stop()
    thread.join(30)
    assert not thread.is_alive() and bench.state is TaskState.COMPLETED


def test_a_task_whose_wake_up_was_lost_is_found_by_looking(bench):
    """The executor reads the table although no wake-up is set."""
    done, looks = threading.Event(), []
    worker_ = bench.new_worker('w', retry.RetrySettings(poll_interval=0.1, look_interval=0))
    worker_._outcomes._notify = lambda event, result: done.set()
    agenda = bench.store.executors.read_todo

    def look(*args):
        looks.append(args)
        if len(looks) == 2:
            # The first look found nothing. By the worker's thread, as a
            # database in memory is for one at a time.
            bench.plan()
        return agenda(*args)

    bench.store.executors.read_todo = look
    thread = threading.Thread(target=worker_.run, daemon=True)
    thread.start()
    assert done.wait(60)
    worker_.stop()
    thread.join(60)
    assert not thread.is_alive() and bench.state is TaskState.COMPLETED


def test_a_defect_in_a_pass_does_not_end_the_loop(bench, monkeypatch):
    bench.plan(cases.make_task)
    passes = []

    def run_once(now):
        passes.append(now)
        if len(passes) == 1:
            raise KeyError('a defect')
        bench.worker.stop()
        return False

    monkeypatch.setattr(bench.worker, 'run_once', run_once)
    bench.worker.wake.set()
    bench.worker.run()
    assert len(passes) == 2


def test_passes_report_health_and_a_lost_database_makes_it_unready(bench, monkeypatch):
    health = healths.DaemonHealth()
    bench.worker.set_health_registry(health)
    assert health.find_unready_reason() == ['pass: it has not come round yet']
    errors = iter([exception.StoreError(problem='the database is away', remedy='wait'),
                   RuntimeError('boo')])
    seen = []

    def run_once(now):
        seen.append(health.find_unready_reason())
        if (error := next(errors, None)) is not None:
            raise error
        if len(seen) > 3:
            bench.worker.stop()
        return True
    monkeypatch.setattr(bench.worker, 'run_once', run_once)
    monkeypatch.setattr(bench.worker, '_compute_pause', lambda: 0.01)
    bench.worker.run()
    assert 'the database is away' in seen[1][0]
    assert seen[2] == ['pass: RuntimeError, a defect of ours; see the log']
    assert seen[3] == [] == health.find_restart_reason()


def test_an_executor_says_that_it_runs_from_time_to_time_and_that_it_ends(bench):
    said = []

    def present(there):
        said.append((there, bench.now))
        if len(said) == 2:
            raise exception.StoreError(problem='is away', remedy='Start it.')

    one = worker.Worker(bench.store, bench.driver, SETTINGS, clock=lambda: bench.now,
                        present=present)
    passes = []

    def run_once(now):
        passes.append(now)
        bench.now += 25
        if len(passes) == 7:
            one.stop()
        return True

    one.run_once = run_once
    one.run()
    begun = passes[0]
    assert said == [(True, begun), (True, begun + 75), (True, begun + 150), (False, begun + 175)]


class Wake:
    """Notes for how long the loop waits, and ends it after so many times."""

    def __init__(self, bench, times=1):
        self.bench, self.times, self.waited = bench, times, []

    def wait(self, seconds):
        self.waited.append(seconds)
        self.bench.now += seconds
        if len(self.waited) == self.times:
            self.bench.worker.stop()

    def clear(self):
        """Do nothing: only stopping an executor sets this event."""

    set = clear


@pytest.fixture
def wake(bench):
    bench.worker = bench.new_worker('w1', retry.RetrySettings(look_interval=8, poll_interval=15))
    bench.worker.wake = Wake(bench)
    return bench.worker.wake


def test_it_waits_only_where_nothing_was_begun(bench, wake):
    bench.plan(cases.make_task, elsewhere)
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.worker.run()
    assert len(bench.steps('submit')) == 2 and len(wake.waited) == 1


def test_it_waits_for_the_next_look_and_no_longer_than_it_polls(bench, wake):
    bench.worker.run()
    assert wake.waited == [15], 'nothing to look at'
    bench.worker = bench.new_worker('w2', retry.RetrySettings(look_interval=8, poll_interval=15))
    bench.worker.wake = wake = Wake(bench, 3)
    bench.plan()
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.worker.run()
    assert (len(bench.steps('read_progress')), wake.waited) == (2, [8, 8, 8])


@pytest.mark.parametrize(('failure', 'level', 'said'), [
    (exception.StoreError(problem='is away', remedy='Start it.'), 'ERROR',
     'Executor w1: The database is away. Start it. It is tried again.'),
    (KeyError('x'), 'ERROR', 'Executor w1: a pass failed for a reason that is a defect of ours; '
                             'the next one tries again.')])
def test_a_failed_pass_is_logged_and_followed_by_a_pause(bench, wake, caplog, monkeypatch, failure,
                                                         level, said):
    def run_once(now):
        raise failure

    monkeypatch.setattr(bench.worker, 'run_once', run_once)
    bench.worker.run()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [(level, said)]
    assert wake.waited == [15]


def test_health_registry_learns_the_pulse_and_its_interval(bench):
    told = []

    class Health(healths.DaemonHealth):
        def add_pulse(self, name, seconds):
            told.append((name, seconds))
            return super().add_pulse(name, seconds)

    bench.worker.set_health_registry(health := Health())
    assert told == [('passes', SETTINGS.poll_interval + worker.HUNG_SECONDS)]
    bench.now += 1
    beats = []
    bench.worker._pulse.record_beat = lambda: beats.append(bench.worker.stop())
    bench.worker.run()
    assert len(beats) == 1 and health.find_unready_reason() == []


def test_a_presence_that_cannot_be_written_is_logged_at_debug(bench, caplog):
    def present(there):
        raise exception.StoreError(problem='is away', remedy='Start it.')

    bench.worker = worker.Worker(bench.store, bench.driver, SETTINGS, clock=lambda: bench.now,
                                 name='w1', present=present)
    bench.worker.wake = Wake(bench)
    with caplog.at_level(logging.DEBUG):
        bench.worker.run()
    # When it begins and when it ends.
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ('DEBUG', 'Executor w1: The database is away. Start it.')] * 2


def test_an_executor_leaves_tasks_of_scopes_it_does_not_serve(bench):
    bench.plan(cases.make_task, elsewhere)
    _, (theirs,), _ = cases.save(bench.store, scope='green', now=bench.now - 1)
    one = bench.new_worker('one', dataclasses.replace(SETTINGS, scopes=frozenset({'blue'})))
    bench.passes(3, by=one)
    assert bench.state is bench.row(1).task.state is TaskState.COMPLETED
    assert bench.store.tasks.find_task(theirs.task_id).task.state is TaskState.QUEUED


def test_the_driver_knows_hosts_that_drain_in_any_scope(bench):
    cases.save(bench.store, 0, draining=['h7'], reason='drain')
    cases.save(bench.store, 0, scope='green', draining=['h8'], reason='drain')
    cases.save(bench.store, draining=['h7'], now=bench.now)
    bench.passes(1)
    assert bench.driver.known.draining == {'h7', 'h8'}
    assert bench.driver.known.history.draining == {'h7'}


def test_the_driver_gets_the_time_of_the_executors_clock(bench):
    bench.plan()
    benches.Clocks(bench).passes(1)
    assert bench.driver.known.now == cases.NOW, 'not that of this machine'


@pytest.mark.parametrize('ahead', [-86400, 7 * 3600, 86400])
def test_an_executor_with_a_wrong_clock_cancels_and_begins_nothing(bench, ahead, caplog):
    bench.plan(cases.make_task, elsewhere)
    clocks = benches.Clocks(bench)
    health = healths.DaemonHealth()
    clocks.worker.set_health_registry(health)
    clocks.machine = ahead
    clocks.passes(3)
    assert {row.task.state
            for row in bench.store.tasks.list_plan_tasks(bench.plan_id)} == {TaskState.QUEUED}
    assert bench.driver.calls == []
    assert sum('the clock of this machine is' in text for text in health.find_unready_reason()) == 1
    clocks.machine = 0.0
    clocks.passes(4)
    assert {row.task.state
            for row in bench.store.tasks.list_plan_tasks(bench.plan_id)} == {TaskState.COMPLETED}


def test_an_executor_without_a_clock_reads_the_databases_clock(bench):
    """That one is years behind the real one of this machine."""
    bench.plan()
    one = worker.Worker(bench.store, bench.driver, SETTINGS, name='w1')
    one.run_once(one.read_clock())
    assert bench.state is TaskState.QUEUED and bench.driver.calls == []
    assert one._clock() == pytest.approx(bench.now, abs=60)


def test_a_wrong_clock_aborts_no_healthy_migration(bench):
    bench.plan()
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    clocks = benches.Clocks(bench, dataclasses.replace(SETTINGS, abort_at_deadline=True))
    clocks.passes(2)
    clocks.machine = 86400.0
    clocks.passes(2)
    clocks.machine, clocks.database = 0.0, 86400.0  # SQLite: both are one clock
    clocks.passes(2)
    assert bench.steps('abort') == [] and bench.state is TaskState.SUBMITTED


@pytest.mark.parametrize('of', ['machine', 'database'])
def test_a_step_of_an_hour_repeats_no_request_whose_fate_is_not_known(bench, of):
    bench.plan()
    bench.driver.answers['submit'] = [benches.error(exception.AmbiguousSubmit)]
    bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT]
    clocks = benches.Clocks(bench)
    clocks.passes(3)
    setattr(clocks, of, 3600.0)
    clocks.passes(4)
    assert len(bench.steps('submit')) == 1 and bench.state is TaskState.UNKNOWN


#: Progress that ends a task once it has lasted for the seconds.
DOUBTS = {
    'absent': (base.MigrationStage.ABSENT, SETTINGS.absent_seconds),
    'settling': (base.MigrationProgress(base.MigrationStage.SETTLING, 'held', 'm'),
                 SETTINGS.settling_seconds),
    'untold': (base.MigrationProgress(base.MigrationStage.UNTOLD, 'error', 'm'),
               SETTINGS.settling_seconds),
    'left': (base.MigrationProgress(base.MigrationStage.LEFT, 'left', 'm', patience=300.0,
                                    ending=base.MigrationStage.FAILED), 300.0),
    'aborted': (base.MigrationProgress(base.MigrationStage.FAILED, 'error', 'm',
                                       aborted=True, place='h1', patience=30.0), 30.0)}


@pytest.mark.parametrize('step', [-3600.0, 3600.0])
@pytest.mark.parametrize('doubt', DOUBTS)
def test_a_step_of_the_databases_clock_neither_ends_nor_prolongs_a_wait(bench, doubt, step):
    progress, seconds = DOUBTS[doubt]
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=(), max_retries=0))
    clocks = benches.Clocks(bench)
    clocks.passes(2)
    clocks.database = step
    clocks.passes(29)
    bench.driver.answers['read_progress'] = [progress]
    clocks.passes(1)
    assert bench.row().doubt_since is not None and clocks.worker._clock.has_jumped()
    clocks.passes(int(seconds // 10))
    assert not clocks.worker._clock.has_jumped() or seconds < 100
    assert not bench.state.is_terminal
    clocks.passes(3)
    assert bench.state.is_terminal


@pytest.mark.parametrize('doubt', DOUBTS)
def test_a_successor_trusts_the_time_of_a_doubt_only_by_a_sound_clock(bench, doubt):
    progress, seconds = DOUBTS[doubt]
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING, progress]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=(), max_retries=0))
    clocks = benches.Clocks(bench)
    clocks.passes(3)
    clocks.worker.close()
    clocks = benches.Clocks(bench)
    clocks.database, clocks.machine = 3600.0, -3600.0
    clocks.passes(2)
    assert not bench.state.is_terminal, 'which clock is wrong is not known yet'
    clocks.worker.close()
    clocks = benches.Clocks(bench)
    bench.now += seconds
    clocks.passes(1)
    assert bench.state.is_terminal, 'a successor with sound clocks goes on'


def test_a_task_past_its_begin_limit_by_the_databases_clock_expires(bench):
    bench.plan()
    clocks = benches.Clocks(bench)
    clocks.machine = -86400.0
    bench.now += rows.BEGIN_WITHIN + 1
    clocks.passes()
    assert bench.state is TaskState.QUEUED, 'which clock is wrong is not known yet'
    bench.now += database_clock.JUMP_SECONDS
    clocks.passes()
    assert (bench.state, bench.row().error_type) == (TaskState.CANCELLED, 'TaskExpired')


def test_a_jump_of_the_databases_clock_cancels_tasks_only_when_it_lasts(bench):
    bench.plan()
    clocks = benches.Clocks(bench)
    clocks.worker.read_clock()
    clocks.database = 86400.0
    bench.now += database_clock.READ_SECONDS
    clocks.passes()
    assert bench.state is TaskState.QUEUED
    bench.now += database_clock.JUMP_SECONDS
    clocks.passes()
    assert bench.state is TaskState.CANCELLED


def test_starting_while_the_databases_clock_is_wrong_cancels_no_task(bench):
    bench.plan()
    clocks = benches.Clocks(bench)
    clocks.database, clocks.machine = 86400.0, -86400.0  # another machine's
    clocks.passes()
    assert bench.state is TaskState.QUEUED
    clocks.database = clocks.machine = 0.0
    bench.now += database_clock.READ_SECONDS
    clocks.passes()
    assert bench.state is TaskState.QUEUED


@pytest.mark.parametrize('state', [TaskState.CLAIMED, TaskState.SUBMITTED, TaskState.UNKNOWN])
def test_a_successor_adopts_tasks_at_once_after_an_orderly_stop(bench, state):
    bench.plan()
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.passes()
    bench.store.tasks.update_state(bench.tasks[0].task_id, 'w1', [TaskState.SUBMITTED],
                                   TaskState.UNKNOWN,
                                   bench.now)
    with bench.store.engine.begin() as connection:
        connection.execute(sqlalchemy.text('UPDATE task SET state = :state'),
                           {'state': state.value})
    bench.worker.stop()
    bench.worker.run()
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    bench.passes(2, seconds=11, by=bench.new_worker('w2'))
    assert bench.state is TaskState.COMPLETED and bench.row().worker == 'w2'


def test_claims_that_cannot_be_released_are_logged_with_their_expiry(bench, caplog, monkeypatch):
    def away(self, worker):
        raise exception.StoreError(problem='is away', remedy='Start it.')

    monkeypatch.setattr(type(bench.store.tasks), 'release_task_claims', away)
    bench.worker.stop()
    bench.worker.run()
    assert 'its claims are not given back and run out after 60 s: The database is away' in (
        caplog.text)
