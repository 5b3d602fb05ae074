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


"""A worker on a real store, with a driver that returns scripted answers."""

from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.store import database_clock
from tests.fixtures import stores
from tests.unit.rebalancer.store import cases

SETTINGS = retry.RetrySettings(look_interval=10, poll_interval=0.1, claim_seconds=60,
                               migration_timeout=600)


def error(kind, problem='it said no'):
    return kind(instance_uuid='i', problem=problem)


def elsewhere(plan_id, scope):
    """A task that shares no host with another one."""
    return cases.make_task(plan_id, scope, from_host='h8', to_host='h9')


class Driver(base.Executor):
    """Each step gives the next of its answers; the last one stays."""

    def __init__(self):
        self.answers = {'pre_flight': ['marker'], 'submit': ['req-1'],
                        'read_progress': [base.MigrationStage.COMPLETED], 'post_flight': [None],
                        'confirm': [None], 'abort': [True], 'log_in': [None]}
        self.calls, self.measures, self.seconds = [], [], {}

    def _next(self, step, task):
        self.calls.append((step, task.to_host))
        answers = self.answers[step]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer = answer(task)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def pre_flight(self, task, known):
        self.known = known
        return self._next('pre_flight', task)

    def log_in(self, task):
        self._next('log_in', task)

    def submit(self, task, may_send=lambda: True):
        return self._next('submit', task)

    def read_progress(self, task, marker):
        assert marker == 'marker'
        progress_or_stage = self._next('read_progress', task)
        return (progress_or_stage if isinstance(progress_or_stage, base.MigrationProgress)
                else base.MigrationProgress(progress_or_stage, 'detail', 'migration-uuid'))

    def confirm(self, task, marker):
        assert marker == 'marker'
        self._next('confirm', task)

    def abort(self, task, marker):
        assert marker == 'marker'
        return self._next('abort', task)

    def read_phase_seconds(self, task, reference):
        self.measures.append(reference)
        answer = self.seconds
        if isinstance(answer, Exception):
            raise answer
        return answer

    def post_flight(self, task):
        self._next('post_flight', task)


class Bench:
    """Time, store, driver and one worker."""

    def __init__(self):
        self.now = cases.NOW
        self.store = stores.in_memory(lambda: self.now)
        self.driver = Driver()
        self.told = []
        self.tally = tallies.DaemonTally()
        self.announced = []
        self.worker = self.new_worker('w1')

    def new_worker(self, name, settings=SETTINGS):
        return worker.Worker(self.store, self.driver, settings,
                             lambda event, result: self.told.append((event, result)),
                             clock=lambda: self.now, monotonic=lambda: self.now, name=name,
                             tally=self.tally,
                             announce=lambda *event: self.announced.append(event))

    def counted(self, what):
        """Return the counts above zero by their labels."""
        return {key: n for key, n in self.tally.copy_tally().counts[what].items() if n}

    def plan(self, *makers):
        self.plan_id, self.tasks, _ = cases.save(
            self.store, list(makers or [cases.make_task]), now=self.now)

    def passes(self, count=1, seconds=10.0, by=None):
        for _ in range(count):
            (by or self.worker).run_once(self.now)
            self.now += seconds

    def row(self, index=0):
        return self.store.tasks.find_task(self.tasks[index].task_id)

    @property
    def state(self):
        return self.row().task.state

    def steps(self, step):
        return [host for name, host in self.driver.calls if name == step]

    def quarantined(self):
        return self.store.history.read_history('blue', self.now).quarantined


class Clocks:
    """An executor whose machine's clock, and the database's, may be wrong."""

    def __init__(self, bench, settings=SETTINGS):
        self.bench, self.machine, self.steady, self.database = bench, 0.0, 0.0, 0.0
        bench.store._clock = lambda: bench.now + self.database
        self.worker = worker.Worker(
            bench.store, bench.driver, settings, name='w1', monotonic=lambda: bench.now,
            clock=database_clock.DatabaseClock(
                bench.store.now, lambda: bench.now + self.machine + self.database,
                lambda: bench.now))

    def passes(self, count=1, seconds=10.0):
        for _ in range(count):
            self.worker.run_once(self.worker.read_clock())
            self.bench.now += seconds
