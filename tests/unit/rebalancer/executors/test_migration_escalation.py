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

"""Steps of a worker against migrations of drains that do not converge."""

import dataclasses
import json

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import rows
from tests.unit.rebalancer.executors import benches
from tests.unit.rebalancer.store import cases

MIB = 1024 * 1024
FORCE, COLD = model.EscalationKind
FORCES = dataclasses.replace(
    benches.SETTINGS, escalation_limits=escalation.EscalationLimits((FORCE,), 120.0, 60.0))
COLDS = dataclasses.replace(
    benches.SETTINGS, reset_state_after_abort=True,
    escalation_limits=escalation.EscalationLimits((COLD,), 120.0, 60.0))
CANCELLED = base.MigrationProgress(base.MigrationStage.CANCELLED, 'aborted', 'migration-uuid')
RUNNING = base.MigrationProgress(base.MigrationStage.RUNNING, 'running', 'migration-uuid',
                                 phase=attempt_phases.RUNNING)


class Crash(BaseException):
    pass


class Driver(benches.Driver):
    """The guest writes 120 MiB/s, 100 MiB/s are sent, and 1000 MiB remain in the end."""

    def __init__(self, bench):
        super().__init__()
        self.bench, self.began_at, self.forced_seconds = bench, bench.now, 4.0
        self.answers |= {'force_completion': [None], 'find_shutdown_obstacle': [None],
                         'reset_state': [True], 'read_copy': [self.copy],
                         'read_progress': [RUNNING]}

    def copy(self, task):
        seconds = self.bench.now - self.began_at
        return escalation.CopySample(5000 + seconds, int(100 * MIB * seconds), int(
            (1000 + 20 * (seconds - 100)) * MIB))

    def read_copy(self, task, marker):
        return self._next('read_copy', task)

    def force_completion(self, task, marker, now):
        assert now == self.bench.now
        return self._next('force_completion', task)

    def find_shutdown_obstacle(self, task, now):
        return self._next('find_shutdown_obstacle', task)

    def reset_state(self, task):
        return self._next('reset_state', task)

    def read_forced_seconds(self, task):
        answer = self.forced_seconds
        if isinstance(answer, Exception):
            raise answer
        return answer


def drained(plan_id, scope, **fields):
    return cases.make_task(plan_id, scope, **{'phase': model.Phase.EVACUATE} | fields)


@pytest.fixture
def writing(bench):
    """A bench whose drain does not converge."""
    bench.driver = Driver(bench)
    bench.plan(drained)
    return bench


def steps(bench):
    return [(step.kind, step.answer) for step in bench.row().escalation]


def test_step_is_committed_before_its_request_and_comes_once(writing):
    seen = []
    writing.driver.answers['force_completion'] = [lambda task: seen.append(writing.row())]
    one = writing.new_worker('one', FORCES)
    writing.passes(9, by=one)
    assert writing.steps('force_completion') == [], '10 s, times 1.5, and two looks are left'
    writing.passes(40, by=one)
    assert len(writing.steps('force_completion')) == 1
    (row,) = seen
    assert (row.task.state, [s.answer for s in row.escalation]) == (TaskState.SUBMITTED, [None])
    assert steps(writing) == [(FORCE, 'accepted')]
    (step,) = writing.row().escalation
    assert 'its guest writes 120.0 MiB/s, 100.0 MiB/s are sent' in step.reason
    assert writing.steps('read_copy') == ['h2'] * (len(writing.steps('read_copy')))


def test_nothing_more_is_read_once_all_steps_are_taken(writing):
    one = writing.new_worker('one', FORCES)
    writing.passes(20, by=one)
    looks = len(writing.steps('read_copy'))
    writing.passes(20, by=one)
    assert steps(writing) and len(writing.steps('read_copy')) == looks


def test_arrival_is_recorded_with_the_seconds_of_the_step(writing):
    one = writing.new_worker('one', FORCES)
    writing.passes(15, by=one)
    writing.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    writing.passes(1, by=one)
    assert writing.state is TaskState.COMPLETED
    assert [step.seconds for step in writing.row().escalation] == [4.0]


@pytest.mark.parametrize('seconds', [None, KeyError('start_time')])
def test_unknown_seconds_stay_unknown_and_end_the_task(writing, seconds):
    writing.driver.forced_seconds = seconds
    one = writing.new_worker('one', FORCES)
    writing.passes(15, by=one)
    writing.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    writing.passes(1, by=one)
    assert writing.state is TaskState.COMPLETED
    assert [step.seconds for step in writing.row().escalation] == [None]


def test_without_the_option_nothing_is_read_or_sent(writing):
    writing.passes(70)
    assert writing.steps('read_copy') == [] and steps(writing) == []


@pytest.mark.parametrize('phase', sorted(set(model.Phase) - {model.Phase.EVACUATE}))
def test_only_drains_are_forced(bench, phase):
    bench.driver = Driver(bench)
    bench.plan(lambda p, s: drained(p, s, phase=phase))
    bench.passes(40, by=bench.new_worker('one', FORCES))
    assert bench.steps('read_copy') == [] and bench.state is TaskState.SUBMITTED


def test_migration_whose_amounts_are_unknown_runs_on(writing):
    writing.driver.answers['read_copy'] = [None]
    writing.passes(40, by=writing.new_worker('one', FORCES))
    assert steps(writing) == [] and writing.steps('force_completion') == []


@pytest.mark.parametrize('problem', [benches.error(exception.NovaClientError), KeyError('id')])
def test_look_at_the_amounts_that_fails_is_repeated(writing, problem):
    writing.driver.answers['read_copy'] = [problem, problem, writing.driver.copy]
    writing.passes(40, by=writing.new_worker('one', FORCES))
    assert steps(writing) == [(FORCE, 'accepted')]


@pytest.mark.parametrize(('answer', 'stored'), [
    ('Nova refused: HTTP 403', 'Nova refused: HTTP 403'),
    (benches.error(exception.NovaClientError, 'timeout'), None), (KeyError('id'), None)])
def test_refused_step_is_not_repeated_and_the_deadline_counts_on(writing, answer, stored):
    writing.driver.answers['force_completion'] = [answer]
    writing.passes(70, by=writing.new_worker('one', FORCES))
    assert len(writing.steps('force_completion')) == 1
    assert steps(writing) == [(FORCE, stored)]
    assert (writing.state, writing.row().error_type) == (TaskState.UNKNOWN, 'MigrationTimeout')


def test_successor_does_not_repeat_a_step_and_ends_the_task(writing):
    writing.driver.answers['force_completion'] = [Crash()]
    with pytest.raises(Crash):
        writing.passes(40, by=writing.new_worker('one', FORCES))
    assert steps(writing) == [(FORCE, None)]
    writing.now += 61
    two = writing.new_worker('two', FORCES)
    writing.passes(30, by=two)
    assert len(writing.steps('force_completion')) == 1 and steps(writing) == [(FORCE, None)]
    writing.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    writing.passes(1, by=two)
    assert writing.state is TaskState.COMPLETED
    assert [step.seconds for step in writing.row().escalation] == [None], 'perhaps never asked'


def test_executor_that_lost_its_task_sends_nothing(writing):
    """Another one has taken it over between the look and the step."""
    one, stolen = writing.new_worker('one', FORCES), []

    def steal(task):
        if len(writing.steps('read_copy')) == 14 and not stolen:
            stolen.extend(writing.store.tasks.adopt_tasks(
                'two', None, writing.now + 1e6, FORCES.claim_seconds))
        return writing.driver.copy(task)
    limits = dataclasses.replace(FORCES.escalation_limits, arrival_seconds=165.0)
    one = writing.new_worker('one', dataclasses.replace(FORCES, escalation_limits=limits))
    writing.driver.answers['read_copy'] = [steal]
    writing.passes(15, by=one)
    assert stolen and writing.row().worker == 'two'
    assert steps(writing) == [] and writing.steps('force_completion') == []


def test_next_attempt_forces_nothing_again(writing):
    """Its migration failed after the step, perhaps by the pause."""
    one = writing.new_worker('one', FORCES)
    writing.passes(15, by=one)
    assert len(writing.steps('force_completion')) == 1
    writing.driver.answers['read_progress'] = [base.MigrationStage.FAILED, RUNNING]
    writing.passes(40, by=one)
    assert len(writing.steps('submit')) == 2
    assert len(writing.steps('force_completion')) == 1 and steps(writing) == [(FORCE, 'accepted')]


def test_cold_migration_follows_the_abort_of_the_live_one(writing):
    seen = []
    writing.driver.answers['abort'] = [lambda task: seen.append(writing.row()) or True]
    one = writing.new_worker('one', COLDS)
    writing.passes(13, by=one)
    assert steps(writing) == [], 'the time is not over'
    writing.passes(3, by=one)
    (row,) = seen
    assert (row.task.state, row.error) == (TaskState.UNKNOWN, migration_deadlines.ABORTING)
    assert [step.kind for step in row.escalation] == [COLD]
    writing.driver.answers['read_progress'] = [CANCELLED, base.MigrationStage.UNCONFIRMED,
                                               base.MigrationStage.COMPLETED]
    writing.passes(5, by=one)
    row = writing.row()
    assert (row.task.state, row.task.method) == (TaskState.COMPLETED, model.MoveMethod.OFFLINE)
    assert [attempt.error_type for attempt in row.attempts] == ['MigrationTimeout', None]
    assert (row.task.to_host, row.task.retry_count) == ('h2', 0)
    assert len(writing.steps('abort')) == 1 and len(writing.steps('submit')) == 2
    assert not writing.quarantined()


def test_contract_keeps_a_migration_from_being_aborted(writing):
    writing.driver.answers['find_shutdown_obstacle'] = ['offline: its contract says live']
    writing.passes(40, by=writing.new_worker('one', COLDS))
    assert steps(writing) == [(COLD, 'it may not be moved offline: its contract says live')]
    assert writing.steps('abort') == [] and writing.state is TaskState.SUBMITTED


def test_contract_that_cannot_be_read_is_read_again(writing):
    writing.driver.answers['find_shutdown_obstacle'] = [
        benches.error(exception.NovaClientError), KeyError('id'), None]
    writing.passes(40, by=writing.new_worker('one', COLDS))
    assert steps(writing) == [(COLD, None)] and len(writing.steps('abort')) == 1


def test_force_that_does_not_help_is_followed_by_a_cold_migration(writing):
    both = dataclasses.replace(COLDS, escalation_limits=escalation.EscalationLimits(
        (FORCE, COLD), 120.0, 60.0))
    writing.passes(60, by=writing.new_worker('one', both))
    assert steps(writing) == [(FORCE, 'accepted'), (COLD, None)]
    first, second = writing.row().escalation
    assert second.at - first.at >= 110, 'the force had 90 s, and two looks'


@pytest.mark.parametrize('reset', [True, False])
def test_instance_left_in_error_is_moved_cold_only_once_it_is_active(writing, reset):
    writing.driver.answers['reset_state'] = [reset]
    one = writing.new_worker('one', COLDS)
    writing.passes(16, by=one)
    broken = base.MigrationProgress(
        base.MigrationStage.FAILED, 'operation aborted', 'migration-uuid', broken=True,
        place='h1', aborted=True)
    writing.driver.answers['read_progress'] = [broken, base.MigrationStage.COMPLETED]
    writing.passes(4, by=one)
    assert writing.state is (TaskState.COMPLETED if reset else TaskState.FAILED)
    assert len(writing.steps('submit')) == (2 if reset else 1)
    assert (writing.tasks[0].instance_uuid in writing.quarantined()) != reset


def test_successor_goes_on_with_the_abort_and_moves_cold(writing):
    writing.driver.answers['abort'] = [Crash(), True]
    with pytest.raises(Crash):
        writing.passes(20, by=writing.new_worker('one', COLDS))
    assert steps(writing) == [(COLD, None)] and writing.state is TaskState.UNKNOWN
    writing.now += 61
    two = writing.new_worker('two', COLDS)
    writing.passes(2, by=two)
    assert len(writing.steps('abort')) == 2, 'Nova refuses a second one'
    writing.driver.answers['read_progress'] = [CANCELLED, base.MigrationStage.COMPLETED]
    writing.passes(5, by=two)
    assert (writing.state, writing.row().task.method) == (
        TaskState.COMPLETED, model.MoveMethod.OFFLINE)


def test_migration_that_arrives_before_its_abort_is_completed(writing):
    one = writing.new_worker('one', COLDS)
    writing.passes(16, by=one)
    writing.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    writing.passes(1, by=one)
    assert (writing.state, writing.row().task.method) == (
        TaskState.COMPLETED, model.MoveMethod.LIVE)


def test_abort_by_an_operator_ends_the_task(writing):
    one = writing.new_worker('one', COLDS)
    writing.driver.answers['abort'] = [False]
    writing.passes(16, by=one)
    writing.driver.answers['read_progress'] = [dataclasses.replace(CANCELLED, aborted=True,
                                                                   aborted_by='user admin')]
    writing.passes(1, by=one)
    assert (writing.state, writing.row().task.method) == (
        TaskState.CANCELLED, model.MoveMethod.LIVE)


def test_failure_before_the_abort_ends_the_task(writing):
    """A failure after the step ends the task, too, as after its deadline."""
    one = writing.new_worker('one', COLDS)
    writing.driver.answers['abort'] = [False]
    writing.passes(16, by=one)
    aborts = len(writing.steps('abort'))
    assert aborts and steps(writing) == [(COLD, None)]
    writing.driver.answers['read_progress'] = [base.MigrationProgress(
        base.MigrationStage.FAILED, 'no', 'migration-uuid'), RUNNING]
    writing.passes(40, by=one)
    assert (len(writing.steps('abort')), writing.state) == (aborts, TaskState.FAILED)


@pytest.mark.parametrize(('fields', 'pending'), [
    ({}, True), ({'submitted_at': 101.0}, False), ({'submitted_at': None}, False),
    ({'escalation': ()}, False),
    ({'escalation': (model.EscalationStep(COLD, 100.0, '', 'it may not be moved'),)}, False),
    ({'escalation': (model.EscalationStep(FORCE, 100.0, ''),)}, False)])
def test_abort_for_a_cold_migration_belongs_to_the_attempt_of_its_step(writing, fields, pending):
    row = dataclasses.replace(writing.row(), **{
        'submitted_at': 100.0, 'escalation': (model.EscalationStep(COLD, 100.0, ''),)} | fields)
    assert migration_deadlines.is_cold_pending(row) is pending
    offline = dataclasses.replace(row.task, method=model.MoveMethod.OFFLINE)
    assert not migration_deadlines.is_cold_pending(dataclasses.replace(row, task=offline))


def test_steps_of_a_later_release_are_ignored():
    later = [{'kind': 'postpone', 'at': 1.0, 'reason': ''},
             {'kind': 'cold', 'at': 2.0, 'reason': 'it writes', 'colour': 'red'}]
    assert rows.parse_escalation(json.dumps(later)) == (
        model.EscalationStep(COLD, 2.0, 'it writes'),)
