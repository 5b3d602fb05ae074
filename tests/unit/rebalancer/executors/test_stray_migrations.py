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

"""A request for a migration that comes too late: not sent, or its migration is aborted."""

import dataclasses

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from tests.unit.rebalancer.executors import benches
from tests.unit.rebalancer.store import cases

REFERENCE = '6c6c5d80-9b43-4d5c-8f43-0d7bb8a3d201'


@pytest.fixture
def bench():
    return benches.Bench()


def stand_still(bench, passes, answer='req-1'):
    """The first request takes so long that another executor takes over."""
    other = bench.new_worker('w2')

    def submit(_task):
        bench.driver.answers['submit'] = ['req-2']
        bench.now += 70
        bench.passes(passes, seconds=20, by=other)
        bench.driver.answers['read_progress'] = [base.MigrationProgress(
            base.MigrationStage.RUNNING, 'running', REFERENCE)]
        return answer
    bench.driver.answers |= {'submit': [submit], 'read_progress': [base.MigrationStage.ABSENT]}


@pytest.mark.parametrize('answer', ['req-1', benches.error(exception.AmbiguousSubmit)])
def test_a_late_migration_of_a_task_that_has_ended_is_aborted(bench, answer, caplog):
    stand_still(bench, 8, answer)
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    bench.passes()
    assert bench.state is TaskState.FAILED
    assert 'came too late: the task became failed meanwhile' in caplog.text
    bench.passes(3)
    assert bench.steps('abort') == ['h2'], 'once it was accepted it is not repeated'
    bench.driver.answers['read_progress'] = [base.MigrationProgress(base.MigrationStage.CANCELLED,
                                                                    'aborted', REFERENCE)]
    looks = len(bench.steps('read_progress'))
    bench.passes(3)
    assert len(bench.steps('read_progress')) == looks + 1
    assert f'its late migration {REFERENCE} has ended: aborted' in caplog.text
    assert [event for event, _ in bench.told] == ['migration.failed']


def test_a_late_migration_is_aborted_after_a_database_that_failed(bench, monkeypatch, caplog):
    stand_still(bench, 8)
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    real = bench.store.tasks.update_state

    def mark(task_id, worker, states, state, *args, **fields):
        if state is TaskState.SUBMITTED:
            raise exception.StoreError(problem='is read-only', remedy='')
        return real(task_id, worker, states, state, *args, **fields)
    monkeypatch.setattr(bench.store.tasks, 'update_state', mark)
    with pytest.raises(exception.StoreError):
        bench.passes()
    assert bench.steps('abort') == []
    monkeypatch.undo()
    bench.passes(2)
    assert bench.steps('abort') == ['h2']
    assert caplog.text.count('came too late: the task became failed meanwhile') == 1


def test_a_late_migration_is_aborted_when_the_task_goes_on_elsewhere(bench, caplog):
    stand_still(bench, 1)
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=('h3',), max_retries=3))
    bench.driver.answers['read_progress'] = [base.MigrationProgress(base.MigrationStage.FAILED,
                                                                    'no CPU')]
    bench.passes(2)
    assert bench.steps('submit')[:2] == ['h2', 'h3']
    assert 'came too late: the task went on to h3 meanwhile' in caplog.text
    assert bench.steps('abort') == ['h2']


def test_a_late_migration_that_the_successor_watches_is_left_to_it(bench):
    stand_still(bench, 1)
    bench.plan(cases.make_task)
    bench.passes(3)
    assert bench.steps('abort') == []
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    bench.passes(3, by=bench.new_worker('w2'))
    assert bench.state is TaskState.COMPLETED


def test_late_migration_is_aborted_when_the_successor_followed_an_earlier_one(bench, caplog):
    """An operator ended the successor's migration, and Nova accepted the late request then."""
    late_reference = '0d2a3d5e-3f4b-4f0c-9d53-5c1a1a7d2f10'
    other = bench.new_worker('w2')

    def submit(_task):
        bench.driver.answers['submit'] = ['req-2']
        bench.now += 70
        bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT]
        bench.passes(6, seconds=20, by=other)
        bench.driver.answers['read_progress'] = [base.MigrationProgress(
            base.MigrationStage.RUNNING, 'running', REFERENCE)]
        bench.passes(2, seconds=20, by=other)
        bench.driver.answers['read_progress'] = [base.MigrationProgress(
            base.MigrationStage.RUNNING, 'running', late_reference)]
        return 'req-1'
    bench.driver.answers |= {'submit': [submit]}
    bench.plan(cases.make_task)
    bench.passes()
    assert (bench.state, bench.row().reference) == (TaskState.SUBMITTED, REFERENCE)
    bench.passes()
    assert f'came too late: the task followed migration {REFERENCE} meanwhile' in caplog.text
    assert bench.steps('abort') == ['h2']


def test_late_migration_that_its_successor_takes_for_its_own_is_left_to_it(bench, caplog):
    stand_still(bench, 1)
    bench.plan(cases.make_task)
    bench.passes()
    assert bench.row().reference is None
    bench.passes(1, by=bench.new_worker('w2'))
    assert bench.row().reference == REFERENCE
    bench.passes()
    assert bench.steps('abort') == [] and 'came too late' not in caplog.text
    looks = len(bench.steps('read_progress'))
    bench.passes()
    assert len(
        bench.steps('read_progress')) == looks, 'a request that the successor watches is forgotten'


def test_a_late_request_that_began_nothing_is_forgotten(bench):
    stand_still(bench, 8, benches.error(exception.AmbiguousSubmit))
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    bench.passes()
    bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT]
    bench.passes(20)
    looks = len(bench.steps('read_progress'))
    bench.passes(5)
    assert len(bench.steps('read_progress')) == looks
    assert bench.steps('abort') == []


@pytest.mark.parametrize(('stage', 'said'), [
    (base.MigrationStage.COMPLETED, 'has moved the instance to h2 before it could be aborted'),
    (base.MigrationStage.UNCONFIRMED, 'Revert it: openstack server resize revert')])
def test_a_late_migration_that_cannot_be_aborted_is_logged_once(bench, stage, said, caplog):
    stand_still(bench, 8)
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    bench.passes()
    bench.driver.answers['read_progress'] = [base.MigrationProgress(stage, '', REFERENCE)]
    bench.passes(3)
    assert caplog.text.count(said) == 1


def test_a_failed_abort_of_a_late_migration_is_repeated(bench):
    stand_still(bench, 8)
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    bench.driver.answers['abort'] = [benches.error(exception.NovaClientError), False, True]
    bench.passes(6)
    assert bench.steps('abort') == ['h2'] * 3


def test_an_executor_delayed_before_the_request_does_not_send_it(bench):
    """Between the commit and the request: no retry is used up."""
    real = bench.store.tasks.update_state

    def mark(*args, **fields):
        kept = real(*args, **fields)
        if args[3] is TaskState.SUBMITTING and not bench.steps('submit'):
            bench.now += 31
            bench.store.tasks.update_state = real
        return kept
    bench.store.tasks.update_state = mark
    bench.plan(cases.make_task)
    bench.passes()
    row = bench.row()
    assert bench.steps('submit') == []
    assert (row.task.state, row.task.retry_count, row.attempts) == (TaskState.QUEUED, 0, ())
    bench.passes(6)
    assert bench.state is TaskState.COMPLETED and bench.told[0][0] == 'migration.completed'


def test_a_login_that_fails_comes_before_submitting(bench):
    seen = []
    down = exception.ServiceUnavailable(
        instance_uuid='i', service='Keystone', problem='no answer in time')

    def log_in(_task):
        seen.append(bench.state)
        return down
    bench.driver.answers['log_in'] = [log_in, None]
    bench.plan(cases.make_task)
    bench.passes()
    assert seen == [TaskState.CLAIMED] and bench.steps('submit') == []
    assert (bench.state, bench.row().task.retry_count) == (TaskState.QUEUED, 0)
    bench.passes(6)
    assert bench.state is TaskState.COMPLETED


def test_the_driver_learns_when_the_time_for_a_request_has_passed(bench):
    """The driver asks once more when it has logged in."""
    told = []
    real = bench.driver.submit

    def submit(task, may_send):
        told.append(may_send())
        bench.now += 31
        told.append(may_send())
        return real(task)
    bench.driver.submit = submit
    bench.plan(cases.make_task)
    bench.passes()
    assert told == [True, False]


def late(bench, **fields):
    """A late request of a task that has failed meanwhile."""
    stand_still(bench, 8)
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0, **fields))
    bench.passes()
    assert bench.state is TaskState.FAILED


def test_late_migration_is_looked_for_wherever_it_comes_from(bench):
    traced = []

    def trace(task, marker, known):
        traced.append((marker, known))
        return dataclasses.replace(task, from_host='h7')
    bench.driver.trace_late_request = trace
    real, looked = bench.driver.read_progress, []

    def look(task, marker):
        looked.append(task.from_host)
        return real(task, marker)
    late(bench)
    bench.driver.read_progress = look
    bench.passes(2)
    assert traced == [('marker', set())] * 2 and looked == ['h7'] * 2


def test_late_migration_is_aborted_after_a_database_outage(bench, caplog):
    real = bench.store.tasks.update_state

    def mark(*args, **fields):
        if args[3] is TaskState.SUBMITTED and args[1] == 'w1':
            bench.store.tasks.update_state = real
            raise exception.StoreError(problem='gone', remedy='none')
        return real(*args, **fields)
    bench.store.tasks.update_state = mark
    stand_still(bench, 8)
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    with pytest.raises(exception.StoreError):
        bench.passes()
    assert bench.steps('abort') == []
    bench.passes(2)
    assert bench.steps('abort') == ['h2']
    assert caplog.text.count('came too late: the task became failed meanwhile') == 1


def test_database_that_was_away_leaves_an_own_task_to_its_executor(bench):
    real = bench.store.tasks.update_state

    def mark(*args, **fields):
        if args[3] is TaskState.SUBMITTED:
            bench.store.tasks.update_state = real
            raise exception.StoreError(problem='gone', remedy='none')
        return real(*args, **fields)
    bench.store.tasks.update_state = mark
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING,
                                             base.MigrationStage.COMPLETED]
    bench.plan(cases.make_task)
    with pytest.raises(exception.StoreError):
        bench.passes()
    bench.now += 10
    bench.passes(3)
    assert bench.state is TaskState.COMPLETED and bench.steps('abort') == []


def test_migration_that_a_task_tells_of_is_not_aborted(bench):
    late(bench)
    attempt = model.Attempt(to_host='h2', started_at=0.0, ended_at=1.0, error_type=None, error=None,
                            migration_uuid=REFERENCE)
    row = dataclasses.replace(bench.row(), attempts=(attempt,))
    bench.store.tasks.list_instance_tasks = lambda uuid, limit: [row]
    bench.passes(3)
    assert bench.steps('abort') == []


def test_migration_that_another_task_watches_is_not_aborted(bench):
    late(bench)
    row = dataclasses.replace(bench.row(), task=dataclasses.replace(
        bench.row().task, task_id='another', state=TaskState.SUBMITTED))
    bench.store.tasks.list_instance_tasks = lambda uuid, limit: [row]
    bench.passes(3)
    assert bench.steps('abort') == []


def test_defect_of_a_driver_does_not_end_the_passes_of_an_executor(bench, caplog):
    late(bench)
    bench.driver.answers['read_progress'] = [KeyError('id')]
    bench.passes(3)
    assert caplog.text.count('is not watched any more') == 1


@pytest.mark.parametrize('reset', [False, True])
def test_an_instance_in_error_after_an_abort_is_reset_or_logged(bench, reset, caplog):
    bench.worker = bench.new_worker('w1', dataclasses.replace(
        benches.SETTINGS, reset_state_after_abort=reset))
    bench.driver.reset_state = lambda task: True
    late(bench)
    bench.passes()
    bench.driver.answers['read_progress'] = [base.MigrationProgress(
        base.MigrationStage.CANCELLED, 'aborted', REFERENCE, patience=30.0), base.MigrationProgress(
        base.MigrationStage.FAILED, 'error', REFERENCE, broken=True, aborted=True, place='h1')]
    bench.passes(2)
    assert ('openstack server set --state active' in caplog.text) is not reset
    assert ('has ended: error' in caplog.text) is reset


def test_contradiction_is_no_end_of_a_late_migration_before_it_has_lasted(bench, caplog):
    late(bench)
    bench.driver.answers['read_progress'] = [
        base.MigrationProgress(base.MigrationStage.LEFT, 'Nova left it', REFERENCE, patience=300.0),
        base.MigrationProgress(base.MigrationStage.RUNNING, 'running', REFERENCE)]
    bench.passes(2)
    assert bench.steps('abort') == ['h2'] and 'has ended' not in caplog.text


def test_a_stopping_executor_names_late_migrations_that_it_leaves(bench, caplog):
    late(bench)
    bench.driver.answers['abort'] = [False]
    bench.worker.close()
    assert 'this executor stops before it could abort a late migration to h2' in caplog.text
