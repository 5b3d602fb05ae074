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

"""A warning names each task before the database says that it is unknown, also if a write fails."""

import logging

import pytest

from kronos_nova import exception
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.store import tasks
from tests.unit.rebalancer.executors import benches

#: The n-th write fails, of so many: each scenario has fewer until its task is unknown.
WRITES = 6
RUNNING, ABSENT = base.MigrationStage.RUNNING, base.MigrationStage.ABSENT


class WatchedWrites:
    """The store of a bench, one of whose writes fails; judges each state that it commits.

    :param answer_is_lost: the write is committed, and its answer does not come.
    """

    def __init__(self, bench, caplog, failing, answer_is_lost):
        self.bench, self.caplog = bench, caplog
        self.left, self.answer_is_lost = failing, answer_is_lost
        self.state, self.read, self.named = None, 0, []
        self.run, bench.store._run = bench.store._run, self.run_step

    def run_step(self, step, *, begin='IMMEDIATE'):
        self.left -= bool(begin)
        fails = begin and self.left == -1
        if fails and not self.answer_is_lost:
            raise exception.StoreError(problem='is away', remedy='Wait.')
        answer = self.run(step, begin=begin)
        self.judge_state()
        if fails:
            raise exception.StoreError(problem='gave no answer', remedy='Wait.')
        return answer

    def judge_state(self):
        task_id = self.bench.tasks[0].task_id
        state = self.run(lambda c: tasks.find_task(c, task_id), begin='').task.state
        if state is self.state:
            return
        records = self.caplog.records[self.read:]
        self.state, self.read = state, len(self.caplog.records)
        if state is TaskState.UNKNOWN:
            # No assertion here: the worker would catch it.
            self.named.append(any(task_id in record.getMessage() for record in records
                                  if record.levelno >= logging.WARNING
                                  and 'taken over' not in record.getMessage()))


def lose_answer_of_nova(driver):
    driver.answers['submit'] = [benches.error(exception.AmbiguousSubmit)]
    driver.answers['read_progress'] = [ABSENT, RUNNING]


def show_no_migration(driver):
    driver.answers['read_progress'] = [ABSENT]


def run_endlessly(driver):
    driver.answers['read_progress'] = [RUNNING]


def stop_answering(driver):
    driver.answers['read_progress'] = [benches.error(exception.NovaClientError)]


def work(bench, executor):
    try:
        bench.passes(1, 60.0, by=executor)
    except exception.StoreError:
        bench.now += 60.0


@pytest.mark.turns(4)
@pytest.mark.parametrize('answer_is_lost', [False, True])
@pytest.mark.parametrize(('prepare', 'always'), [
    (lose_answer_of_nova, False), (show_no_migration, False), (run_endlessly, True),
    (stop_answering, True)])
def test_warning_names_task_before_it_is_unknown(caplog, prepare, always, answer_is_lost):
    times = []
    for failing in range(WRITES):
        bench = benches.Bench()
        prepare(bench.driver)
        bench.plan()
        watched = WatchedWrites(bench, caplog, failing, answer_is_lost)
        work(bench, bench.worker)
        executor = bench.new_worker('w2') if failing % 2 else bench.worker
        for _pass in range(14):
            work(bench, executor)
        assert watched.left < -1, 'the write was reached'
        times.append(watched.named)
        bench.store.close()
    assert all(named for each in times for named in each), times
    assert all(times) if always else any(times)


def test_second_delay_of_a_task_is_logged_as_well(bench, caplog):
    """The row may keep the error of an earlier attempt."""
    run_endlessly(bench.driver)
    bench.plan()
    bench.passes(2)
    caplog.clear()
    bench.store.tasks.update_state(
        bench.tasks[0].task_id, 'w1', [TaskState.SUBMITTED], TaskState.SUBMITTED, bench.now,
        error_type=exception.MigrationTimeout.wire_type)
    bench.now += 86400
    bench.passes(2)
    assert bench.state is TaskState.UNKNOWN
    assert caplog.text.count('past its deadline') == 1
