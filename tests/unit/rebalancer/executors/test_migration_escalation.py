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
from kronos_nova.rebalancer.executors import claim_keeper
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import task_repository
from tests.unit.rebalancer.executors import benches
from tests.unit.rebalancer.executors import copied_guests
from tests.unit.rebalancer.store import cases

(FORCE,) = model.EscalationKind
FORCES = dataclasses.replace(
    benches.SETTINGS, reset_state_after_abort=True,
    escalation_limits=escalation.EscalationLimits((FORCE,), 120.0, 60.0))
MIGRATION = '11111111-2222-3333-4444-555555555555'
RUNNING = base.MigrationProgress(base.MigrationStage.RUNNING, 'running', MIGRATION,
                                 phase=attempt_phases.RUNNING)
FAILED = base.MigrationProgress(base.MigrationStage.FAILED, 'no', MIGRATION)
COMPLETED = base.MigrationProgress(base.MigrationStage.COMPLETED, 'arrived', MIGRATION)
CANCELLED = base.MigrationProgress(base.MigrationStage.CANCELLED, 'aborted', MIGRATION)
POSTCOPY = escalation.CopySample(0.0, 0, 0, is_postcopy=True)


class Crash(BaseException):
    pass


class Driver(benches.Driver):
    """The guest writes 500 MiB again and again, faster than the network sends."""

    def __init__(self, bench):
        super().__init__()
        self.bench, self.looked_at, self.forced_seconds = bench, bench.now, 4.0
        self.guest = copied_guests.Guest(1000.0, 500.0, 1000.0, 100.0)
        self.answers |= {'force_completion': [None], 'find_shutdown_obstacle': [None],
                         'reset_state': [True], 'read_copy': [self.copy],
                         'read_progress': [RUNNING]}

    def copy(self, task):
        while self.looked_at < self.bench.now:
            self.guest.pass_second()
            self.looked_at += 1.0
        return self.guest.sample(self.looked_at + 5000)

    def read_copy(self, task, marker):
        return self._next('read_copy', task)

    def force_completion(self, task, marker, may_send):
        if not may_send():
            raise exception.HeldUp(instance_uuid='i', problem='too late')
        return self._next('force_completion', task)

    def find_shutdown_obstacle(self, task, now):
        assert now == self.bench.now
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


def plan(bench, phase=model.Phase.EVACUATE, draining=('h1',), **fields):
    bench.driver = Driver(bench)
    bench.plan_id, bench.tasks, _ = cases.save(
        bench.store, [lambda p, s: drained(p, s, phase=phase, **fields)], now=bench.now,
        draining=draining)
    assert bench.tasks[0].from_host == 'h1'


@pytest.fixture
def writing(bench):
    """A bench whose drain does not converge."""
    plan(bench)
    return bench


def steps(bench):
    return [(step.kind, step.answer) for step in bench.row().escalation]


def force(bench, name='one', settings=FORCES):
    """Watch the migration until it is forced; return the worker."""
    by = bench.new_worker(name, settings)
    for _ in range(20):
        bench.passes(1, by=by)
        if bench.steps('force_completion'):
            return by
    pytest.fail('it was not forced')


def test_step_is_committed_before_its_request_and_comes_once(writing):
    seen = []
    writing.driver.answers['force_completion'] = [lambda task: seen.append(writing.row())]
    began_at, one = writing.now, force(writing)
    assert writing.now - began_at > 40, 'two counts come first'
    (row,) = seen
    assert (row.task.state, [s.answer for s in row.escalation]) == (TaskState.SUBMITTED, [None])
    assert steps(writing) == [(FORCE, 'accepted')]
    (step,) = writing.row().escalation
    assert 'does not arrive within 120 s: its guest writes' in step.reason
    assert step.migration_uuid == MIGRATION
    writing.passes(5, by=one)
    assert writing.steps('force_completion') == ['h2']


def test_claims_are_renewed_while_a_request_follows_slow_reads(writing):
    """The reads before the request and the request are two steps: the worker does not hang."""
    renewed, one = [], writing.new_worker('one', FORCES)

    def read_slowly(task):
        writing.now += claim_keeper.HUNG_SECONDS - 1

    def force_slowly(task):
        writing.now += 2
        renewed.append(one.keeper.renew_task_claims())

    writing.driver.answers |= {'find_shutdown_obstacle': [read_slowly],
                               'force_completion': [force_slowly]}
    for _ in range(20):
        writing.passes(1, by=one)
        if renewed:
            break
    assert renewed == [True]


def test_arrival_is_recorded_with_the_seconds_of_the_step(writing):
    one = force(writing)
    writing.driver.answers['read_progress'] = [COMPLETED]
    writing.passes(1, by=one)
    assert writing.state is TaskState.COMPLETED
    assert [step.seconds for step in writing.row().escalation] == [4.0]


def record_slowest(history, now):
    """Record an arrival that makes the one before the median."""
    history.record_arrival(1e6, 0.0, now)


@pytest.mark.parametrize(('answer', 'seconds', 'learnt'), [
    (None, 30.0, True), (None, None, False), (None, KeyError('start_time'), False),
    (model.ACCEPTED_POSTCOPY, 30.0, False)])
def test_next_step_expects_the_handover_that_this_one_took(writing, answer, seconds, learnt):
    writing.driver.forced_seconds = seconds
    writing.driver.answers['force_completion'] = [answer]
    one = force(writing)
    expected = writing.row().escalation[0].expected_seconds
    writing.now += 30
    writing.driver.answers['read_progress'] = [COMPLETED]
    writing.passes(1, by=one)
    assert writing.state is TaskState.COMPLETED
    handover, history = escalation.HANDOVER, one._watch._escalation._handovers
    if learnt:
        handover = 30.0 - (expected - handover)
    record_slowest(history, writing.now)
    assert history.expect_handover(writing.now) == pytest.approx(handover)
    assert history.expect_handover(writing.now + 3700.0) == escalation.HANDOVER


def test_times_of_clocks_that_differ_teach_no_more_seconds_than_have_passed(writing):
    """Nova's API writes the begin, and a compute node the end."""
    one, forced_at = force(writing), writing.now
    writing.driver.forced_seconds = 3000.0
    writing.now += 40
    writing.driver.answers['read_progress'] = [COMPLETED]
    writing.passes(1, by=one)
    (step,) = writing.row().escalation
    assert (writing.state, step.seconds) == (TaskState.COMPLETED, 3000.0)
    seconds = writing.now - forced_at - (step.expected_seconds - escalation.HANDOVER)
    history = one._watch._escalation._handovers
    record_slowest(history, writing.now)
    assert history.expect_handover(writing.now) == pytest.approx(seconds, abs=2)


def test_learnt_handover_reaches_the_choice_of_a_step(writing, monkeypatch):
    seen, one = [], writing.new_worker('one', FORCES)
    monkeypatch.setattr(escalation, 'choose_step', lambda found, *_: seen.append(found.handover))
    writing.passes(3, by=one)
    history = one._watch._escalation._handovers
    history.record_arrival(30.0, 10.0, writing.now)
    record_slowest(history, writing.now)
    writing.passes(1, by=one)
    assert seen[0] == escalation.HANDOVER and seen[-1] == 20.0


def test_successor_learns_nothing_from_seconds_that_another_expected(writing):
    force(writing)
    writing.now += 61
    writing.driver.forced_seconds = 30.0
    writing.driver.answers['read_progress'] = [COMPLETED]
    two = writing.new_worker('two', FORCES)
    writing.passes(2, by=two)
    assert [step.seconds for step in writing.row().escalation] == [30.0]
    assert two._watch._escalation._handovers.expect_handover(writing.now) == escalation.HANDOVER


@pytest.mark.parametrize('seconds', [None, KeyError('start_time')])
def test_unknown_seconds_stay_unknown_and_end_the_task(writing, seconds):
    writing.driver.forced_seconds = seconds
    one = force(writing)
    writing.driver.answers['read_progress'] = [COMPLETED]
    writing.passes(1, by=one)
    assert writing.state is TaskState.COMPLETED
    assert [step.seconds for step in writing.row().escalation] == [None]


def test_without_the_option_nothing_is_read_or_sent(writing):
    writing.passes(70)
    assert writing.steps('read_copy') == [] and steps(writing) == []


@pytest.mark.parametrize('phase', sorted(set(model.Phase) - {model.Phase.EVACUATE}))
def test_only_drains_are_forced(bench, phase):
    plan(bench, phase)
    bench.passes(40, by=bench.new_worker('one', FORCES))
    assert bench.steps('read_copy') == [] and bench.state is TaskState.SUBMITTED


@pytest.mark.parametrize('method', [model.MoveMethod.COLD, model.MoveMethod.OFFLINE])
def test_cold_migrations_of_drains_are_not_forced(bench, method):
    plan(bench, method=method)
    bench.passes(40, by=bench.new_worker('one', FORCES))
    assert bench.steps('read_copy') == [] and bench.state is TaskState.SUBMITTED


def test_migration_whose_amounts_are_unknown_runs_on(writing):
    writing.driver.answers['read_copy'] = [None]
    writing.passes(40, by=writing.new_worker('one', FORCES))
    assert steps(writing) == [] and writing.steps('force_completion') == []


def test_stalled_migration_is_not_forced(writing):
    """Nova writes no amounts that have not changed."""
    frozen = []

    def stall(task):
        if not frozen or writing.now < 40 + cases.NOW:
            frozen[:] = [writing.driver.copy(task)]
        return frozen[0]
    limits = dataclasses.replace(FORCES.escalation_limits, arrival_seconds=300.0)
    writing.driver.answers['read_copy'] = [stall]
    writing.passes(60, by=writing.new_worker(
        'one', dataclasses.replace(FORCES, escalation_limits=limits)))
    assert len(writing.steps('read_copy')) > 40 and steps(writing) == []


@pytest.mark.parametrize('problem', [benches.error(exception.NovaClientError), KeyError('id')])
def test_look_at_the_amounts_that_fails_is_repeated(writing, problem):
    writing.driver.answers['read_copy'] = [problem, problem, writing.driver.copy]
    force(writing)
    assert steps(writing) == [(FORCE, 'accepted')]


@pytest.mark.parametrize(('answer', 'stored'), [
    ('Nova refused: HTTP 403', 'Nova refused: HTTP 403'),
    (benches.error(exception.NovaClientError, 'timeout'), None), (KeyError('id'), None)])
def test_step_without_success_is_not_repeated(writing, answer, stored):
    writing.driver.answers['force_completion'] = [answer]
    one = force(writing)
    writing.passes(5, by=one)
    assert steps(writing) == [(FORCE, stored)]
    assert len(writing.steps('force_completion')) == 1


def test_refused_step_aborts_nothing_and_the_deadline_counts_on(writing):
    writing.driver.answers['force_completion'] = ['Nova refused: HTTP 403']
    writing.passes(60, by=force(writing))
    assert (writing.state, writing.row().error) == (TaskState.UNKNOWN, migration_deadlines.LATE)
    assert writing.steps('abort') == []


def test_request_that_was_not_sent_is_sent_later(writing):
    writing.driver.answers['force_completion'] = [
        benches.error(exception.HeldUp), lambda task: seen.append(steps(writing))]
    seen = []
    one = force(writing)
    assert steps(writing) == []
    writing.passes(4, by=one)
    assert seen == [[(FORCE, None)]] and steps(writing) == [(FORCE, 'accepted')]


def test_executor_that_stood_still_after_its_commit_sends_nothing(writing):
    one, slow = writing.new_worker('one', FORCES), []
    update = one._outcomes.update_task

    def stand_still(row, state, states, **fields):
        done = update(row, state, states, **fields)
        if '"answer": null' in str(fields.get('escalation')):
            slow.append(1)
            writing.now += 31.0
        return done
    one._outcomes.update_task = stand_still
    writing.passes(20, by=one)
    assert slow and writing.steps('force_completion') == [] and steps(writing) == []


@pytest.mark.parametrize('obstacle', [
    'offline: its contract says disruption live', benches.error(exception.NovaClientError),
    KeyError('id')])
def test_obstacle_leaves_the_step_for_later(writing, obstacle):
    writing.driver.answers['find_shutdown_obstacle'] = [obstacle]
    one = writing.new_worker('one', FORCES)
    writing.passes(20, by=one)
    assert writing.steps('find_shutdown_obstacle') and steps(writing) == []
    writing.driver.answers['find_shutdown_obstacle'] = [None]
    writing.passes(5, by=one)
    assert steps(writing) == [(FORCE, 'accepted')]


def test_dry_run_takes_no_step(writing):
    writing.passes(2, by=writing.new_worker('one', FORCES))
    writing.passes(20, by=writing.new_worker('one', dataclasses.replace(FORCES, begin=False)))
    assert steps(writing) == [] and writing.steps('force_completion') == []


def test_freeze_takes_no_step(writing):
    writing.passes(2, by=writing.new_worker('one', FORCES))
    frozen = dataclasses.replace(FORCES, frozen=lambda now: 'freeze window')
    writing.passes(20, by=writing.new_worker('one', frozen))
    assert steps(writing) == [] and writing.steps('force_completion') == []


def test_pause_takes_no_step(writing):
    one = writing.new_worker('one', FORCES)
    writing.passes(2, by=one)
    writing.store.pauses.pause_scope('blue', writing.now, seconds=None, paused_by='admin',
                                     reason='work on the network')
    writing.passes(20, by=one)
    assert steps(writing) == [] and writing.steps('force_completion') == []


def test_drain_that_was_stopped_takes_no_step(bench):
    plan(bench, draining=())
    bench.passes(20, by=bench.new_worker('one', FORCES))
    assert steps(bench) == [] and bench.steps('force_completion') == []


def test_successor_does_not_repeat_a_step_and_ends_the_task(writing):
    writing.driver.answers['force_completion'] = [Crash()]
    with pytest.raises(Crash):
        force(writing)
    assert steps(writing) == [(FORCE, None)]
    writing.now += 61
    two = writing.new_worker('two', FORCES)
    writing.passes(2, by=two)
    assert len(writing.steps('force_completion')) == 1 and steps(writing) == [(FORCE, None)]
    writing.driver.answers['read_progress'] = [COMPLETED]
    writing.passes(1, by=two)
    assert writing.state is TaskState.COMPLETED
    assert [step.seconds for step in writing.row().escalation] == [None], 'perhaps never asked'


def test_executor_that_lost_its_task_sends_nothing(writing):
    """Another one has taken it over between the look and the step."""
    def steal(task):
        writing.store.tasks.adopt_tasks('two', None, writing.now + 1e6, FORCES.claim_seconds)
    writing.driver.answers['find_shutdown_obstacle'] = [steal]
    writing.passes(15, by=writing.new_worker('one', FORCES))
    assert writing.row().worker == 'two'
    assert steps(writing) == [] and writing.steps('force_completion') == []


def test_next_attempt_forces_nothing_again_and_measures_nothing(writing):
    """Its migration failed after the step, perhaps by the pause."""
    one = force(writing)
    writing.driver.answers['read_progress'] = [FAILED, dataclasses.replace(
        RUNNING, reference='another')]
    writing.passes(20, by=one)
    assert len(writing.steps('submit')) == 2 and writing.steps('abort') == []
    assert len(writing.steps('force_completion')) == 1
    writing.driver.answers['read_progress'] = [dataclasses.replace(COMPLETED, reference='another')]
    writing.passes(1, by=one)
    assert writing.state is TaskState.COMPLETED
    assert [step.seconds for step in writing.row().escalation] == [None]


def test_forced_migration_that_does_not_arrive_is_aborted(writing):
    seen = []
    writing.driver.answers['abort'] = [lambda task: seen.append(writing.row()) or True]
    one = force(writing)
    writing.passes(10, by=one)
    assert writing.steps('abort') == [], '60 s, times 1.5, and two looks'
    writing.passes(3, by=one)
    (row,) = seen
    assert (row.task.state, row.error) == (
        TaskState.UNKNOWN, migration_deadlines.ABORTING_FORCED)
    writing.driver.answers['read_progress'] = [CANCELLED]
    writing.passes(3, by=one)
    row = writing.row()
    assert (row.task.state, row.error_type) == (TaskState.FAILED, 'MigrationTimeout')
    assert 'did not arrive in time after its completion by force' in row.error
    assert len(writing.steps('abort')) == 1 and len(writing.steps('submit')) == 1
    assert writing.tasks[0].instance_uuid in writing.quarantined()


@pytest.mark.parametrize('settings', [
    FORCES, dataclasses.replace(FORCES, begin=False),
    dataclasses.replace(FORCES, escalation_limits=escalation.EscalationLimits())])
@pytest.mark.parametrize('answer', [None, Crash()])
def test_successor_with_other_options_aborts_a_forced_migration(writing, settings, answer):
    writing.driver.answers['force_completion'] = [answer]
    try:
        force(writing)
    except Crash:
        pass
    writing.now += 200
    writing.passes(1, by=writing.new_worker('two', settings))
    assert len(writing.steps('abort')) == 1
    assert writing.row().error == migration_deadlines.ABORTING_FORCED


def test_successor_goes_on_with_the_abort(writing):
    writing.driver.answers['abort'] = [Crash(), True]
    one = force(writing)
    with pytest.raises(Crash):
        writing.passes(15, by=one)
    assert writing.row().error == migration_deadlines.ABORTING_FORCED
    writing.now += 61
    two = writing.new_worker('two', benches.SETTINGS)
    writing.passes(2, by=two)
    assert len(writing.steps('abort')) == 2, 'Nova refuses a second one'
    writing.driver.answers['read_progress'] = [CANCELLED]
    writing.passes(3, by=two)
    assert writing.state is TaskState.FAILED


def test_post_copy_that_another_user_began_uses_no_step_up(writing):
    one = writing.new_worker('one', FORCES)
    # Right before the step would come.
    while len(writing.driver.answers['read_copy']) == 1 and writing.now < 10**9:
        writing.passes(1, by=one)
        if len(writing.steps('read_copy')) >= 8:
            break
    writing.driver.answers['read_copy'] = [POSTCOPY]
    writing.passes(40, by=one)
    assert steps(writing) == [] and writing.steps('force_completion') == []


def test_postcopy_is_recorded_and_not_aborted(writing):
    one = force(writing)
    writing.driver.answers['read_copy'] = [POSTCOPY]
    writing.passes(40, by=one)
    assert steps(writing) == [(FORCE, 'accepted, by post-copy')] and writing.steps('abort') == []
    writing.driver.answers['read_progress'] = [COMPLETED]
    writing.passes(1, by=one)
    assert [step.seconds for step in writing.row().escalation] == [4.0]


def test_forced_migration_that_arrives_before_its_abort_is_completed(writing):
    one = force(writing)
    writing.passes(12, by=one)
    writing.driver.answers['read_progress'] = [COMPLETED]
    writing.passes(1, by=one)
    assert writing.state is TaskState.COMPLETED


@pytest.mark.parametrize('reset', [True, False])
def test_instance_that_the_abort_left_in_error_is_reset(writing, reset):
    writing.driver.answers['reset_state'] = [reset]
    one = force(writing)
    writing.passes(12, by=one)
    broken = base.MigrationProgress(
        base.MigrationStage.FAILED, 'operation aborted', MIGRATION, broken=True,
        place='h1', aborted=True)
    writing.driver.answers['read_progress'] = [broken]
    writing.passes(3, by=one)
    assert writing.state is TaskState.FAILED
    assert ('its state was reset to active' in writing.row().error) == reset


def test_step_that_a_later_release_has_stored_is_kept(writing):
    later = {'kind': 'cold', 'at': 2.0, 'reason': 'it writes', 'colour': 'red'}
    one = writing.new_worker('one', FORCES)
    writing.passes(1, by=one)
    task = writing.row().task
    assert writing.store.tasks.update_state(
        task.task_id, 'one', [task.state], task.state, writing.now,
        escalation=json.dumps([later]))
    assert writing.row().escalation == () and writing.row().later_steps == (later,)
    force(writing)
    assert steps(writing) == [(FORCE, 'accepted')]
    assert writing.row().later_steps == (later,)
    assert rows.parse_escalation(None) == rows.parse_later_steps(None) == ()


def test_deadline_of_the_drain_is_shared_with_the_moves_that_wait(bench):
    def deadline(plan_id, scope):
        return drained(plan_id, scope, arrive_by=cases.NOW + 300)
    bench.driver = Driver(bench)
    bench.plan_id, bench.tasks, _ = cases.save(bench.store, [
        deadline, *[lambda p, s: drained(p, s, not_before=cases.NOW + 9e5)] * 2,
        lambda p, s: drained(p, s, not_before=cases.NOW + 9e5, phase=model.Phase.REQUESTED),
        lambda p, s: drained(p, s, not_before=cases.NOW + 9e5, from_host='h7')],
        now=bench.now, draining=('h1',))
    force(bench)
    (step,) = bench.row().escalation
    # The copying begins some seconds after the claim; two of the moves wait on the same host.
    seconds = float(step.reason.split(' within ')[1].split(' s')[0])
    assert 80 < seconds <= 300 / 3


@pytest.mark.parametrize(('limits', 'parallel'), [
    ({'per_source': 2, 'per_scope': 3}, 2), ({'per_source': 9, 'per_scope': 1}, 1),
    ({'per_source': 9, 'per_scope': 9, 'total': 1}, 1)])
def test_the_smallest_limit_says_how_many_moves_leave_at_a_time(
        bench, monkeypatch, limits, parallel):
    plan(bench, arrive_by=cases.NOW + 500)
    monkeypatch.setattr(task_repository.TaskRepository, 'count_waiting_moves',
                        lambda *_args: 6)
    worker = bench.new_worker('one', dataclasses.replace(FORCES, **limits))
    found = worker._watch._escalation._share_deadline(bench.row().task, cases.NOW)
    assert found.arrival_seconds == pytest.approx(min(120.0, 500.0 / (1 + 6 / parallel)))


@pytest.mark.parametrize('arrive_by', [cases.NOW + 300, None])
def test_moves_that_wait_are_counted_once_rates_are_known(bench, monkeypatch, arrive_by):
    counted, count = [], task_repository.TaskRepository.count_waiting_moves

    def count_moves(*args):
        counted.append(bench.now - cases.NOW)
        return count(*args)

    monkeypatch.setattr(task_repository.TaskRepository, 'count_waiting_moves', count_moves)
    plan(bench, arrive_by=arrive_by)
    force(bench)
    assert bool(counted) == (arrive_by is not None)
    assert all(at > 15 for at in counted), 'rates need samples over 15 s'


@pytest.mark.parametrize(('limits', 'answer'), [
    (escalation.EscalationLimits((), 120.0, 60.0), None),
    (FORCES.escalation_limits, 'contract: live')])
def test_past_deadline_forces_nothing_that_is_not_allowed(bench, limits, answer):
    plan(bench, arrive_by=cases.NOW - 60)
    bench.driver.answers['find_shutdown_obstacle'] = [answer]
    bench.passes(40, by=bench.new_worker('one', dataclasses.replace(
        FORCES, escalation_limits=limits)))
    assert steps(bench) == [] and bench.steps('force_completion') == []
    assert bool(bench.steps('find_shutdown_obstacle')) == bool(answer)
