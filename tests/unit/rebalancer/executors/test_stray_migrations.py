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

import pytest

from kronos_nova import exception
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
        bench.driver.answers['look'] = [base.Progress(
            base.Stage.RUNNING, 'running', REFERENCE)]
        return answer
    bench.driver.answers |= {'submit': [submit], 'look': [base.Stage.ABSENT]}


@pytest.mark.parametrize('answer', ['req-1', benches.error(exception.AmbiguousSubmit)])
def test_a_late_migration_of_a_task_that_has_ended_is_aborted(bench, answer, caplog):
    stand_still(bench, 8, answer)
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    bench.passes()
    assert bench.state is TaskState.FAILED
    assert 'came too late: the task became failed meanwhile' in caplog.text
    bench.passes(3)
    assert bench.steps('abort') == ['h2'], 'once it was accepted it is not repeated'
    bench.driver.answers['look'] = [base.Progress(base.Stage.CANCELLED, 'aborted', REFERENCE)]
    looks = len(bench.steps('look'))
    bench.passes(3)
    assert len(bench.steps('look')) == looks + 1
    assert f'its late migration {REFERENCE} has ended: aborted' in caplog.text
    assert [event for event, _ in bench.told] == ['migration.failed']


def test_a_late_migration_is_aborted_when_the_task_goes_on_elsewhere(bench, caplog):
    stand_still(bench, 1)
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=('h3',), max_retries=3))
    bench.driver.answers['look'] = [base.Progress(base.Stage.FAILED, 'no CPU')]
    bench.passes(2)
    assert bench.steps('submit')[:2] == ['h2', 'h3']
    assert 'came too late: the task went on to h3 meanwhile' in caplog.text
    assert bench.steps('abort') == ['h2']


def test_a_late_migration_that_the_successor_watches_is_left_to_it(bench):
    stand_still(bench, 1)
    bench.plan(cases.make_task)
    bench.passes(3)
    assert bench.steps('abort') == []
    bench.driver.answers['look'] = [base.Stage.COMPLETED]
    bench.passes(3, by=bench.new_worker('w2'))
    assert bench.state is TaskState.COMPLETED


def test_a_late_request_that_began_nothing_is_forgotten(bench):
    stand_still(bench, 8, benches.error(exception.AmbiguousSubmit))
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    bench.passes()
    bench.driver.answers['look'] = [base.Stage.ABSENT]
    bench.passes(20)
    looks = len(bench.steps('look'))
    bench.passes(5)
    assert len(bench.steps('look')) == looks
    assert bench.steps('abort') == []


@pytest.mark.parametrize(('stage', 'said'), [
    (base.Stage.COMPLETED, 'has moved it to h2 before it could be aborted'),
    (base.Stage.UNCONFIRMED, 'Revert it: openstack server resize revert')])
def test_what_cannot_be_aborted_any_more_is_an_error_for_people(bench, stage, said, caplog):
    stand_still(bench, 8)
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    bench.passes()
    bench.driver.answers['look'] = [base.Progress(stage, '', REFERENCE)]
    bench.passes(3)
    assert caplog.text.count(said) == 1


def test_nova_that_does_not_answer_is_asked_again_about_a_late_migration(bench):
    stand_still(bench, 8)
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0))
    bench.driver.answers['abort'] = [benches.error(exception.NovaClientError), False, True]
    bench.passes(6)
    assert bench.steps('abort') == ['h2'] * 3


def test_one_who_stood_still_before_the_request_does_not_send_it(bench):
    """Between the commit and the request: no retry is used up."""
    real = bench.store.mark

    def mark(*args, **fields):
        kept = real(*args, **fields)
        if args[3] is TaskState.SUBMITTING and not bench.steps('submit'):
            bench.now += 31
            bench.store.mark = real
        return kept
    bench.store.mark = mark
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


def test_a_request_whose_time_has_passed_is_told_to_the_driver(bench):
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
