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


"""What becomes of tasks in the hands of a worker."""

import dataclasses

from oslo_config import cfg
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.conf import secret_mask
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import dry_run
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.executors import nova_error_classes
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.store import rows
from tests.unit.rebalancer.executors.benches import elsewhere
from tests.unit.rebalancer.executors.benches import error
from tests.unit.rebalancer.executors.benches import SETTINGS
from tests.unit.rebalancer.store import cases


@pytest.mark.parametrize('step', ['pre_flight', 'submit'])
def test_errors_of_a_foreign_driver_are_stored_and_logged_without_secrets(bench, caplog, step):
    bench.plan()
    bench.driver.answers[step] = [RuntimeError(
        'POST http://u:c4n4ry@h X-Auth-Token: c4n4ry {"Authorization": "Bearer c4n4ry"} '
        'gAAAAABc4n4ryc4n4ryc4n4ryc4n4ry')]
    bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT]
    caplog.handler.setFormatter(secret_mask.MaskingFormatter(
        caplog.handler.formatter, secret_mask.SecretMask()))  # as in a daemon
    with caplog.at_level('DEBUG'):
        bench.passes(3, 700.0)
    rows = str([bench.row(), *bench.store.quarantine.list_quarantines(bench.now)])
    assert 'RuntimeError' in rows + str(bench.told) + caplog.text
    for text in (rows, str(bench.told), caplog.text):
        assert 'c4n4ry' not in text


def test_a_move_passes_all_states_and_notifies_after_its_commit(bench):
    seen = []
    bench.driver.answers['submit'] = [lambda task: seen.append(bench.row()) or 'req-1']
    bench.driver.answers['read_progress'] = [base.MigrationStage.WAITING,
                                             base.MigrationStage.RUNNING,
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.worker._outcomes._notify = lambda event, result: bench.told.append(
        (event, result, bench.state))
    bench.passes(1)
    assert [(r.task.state, r.marker) for r in seen] == [(TaskState.SUBMITTING, 'marker')]
    assert (bench.state, bench.row().reference) == (TaskState.SUBMITTED, 'req-1')
    bench.passes(1)
    assert bench.row().reference == 'migration-uuid'
    bench.passes(2)
    assert bench.state is TaskState.COMPLETED
    (event, result, state), = bench.told
    assert (event, state) == ('migration.completed', TaskState.COMPLETED)
    assert result.success and result.duration_seconds == 30 and result.error is None
    history = bench.store.history.read_history('blue', bench.now)
    assert history.cooling[bench.tasks[0].instance_uuid] == 890
    assert len(bench.steps('submit')) == 1


def test_ended_tasks_and_their_durations_are_counted(bench):
    """The first destination refuses the instance and the second accepts it; another task ends
    before its request to Nova, and so does the task that required it."""
    bench.driver.answers['read_progress'] = [base.MigrationStage.FAILED,
                                             base.MigrationStage.RUNNING,
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.now += 20
    bench.passes(8)
    assert bench.state is TaskState.COMPLETED
    assert bench.counted('tasks_ended') == {('spread', 'live', 'completed'): 1}
    assert bench.counted('failed_attempts') == {('MigrationFailed',): 1}
    durations = bench.tally.copy_tally().durations
    assert durations['waits']['spread',].total == 20
    assert sum(durations['waits']['spread',].counts) == 1, 'a second try has not waited'
    assert durations['migrations']['live', 'completed'].total == 20
    bench.driver.answers['pre_flight'] = [error(exception.PreFlightError)]
    first = cases.new_id()
    bench.now += 1000
    bench.plan(lambda p, s: cases.make_task(p, s, instance_uuid=first),
               lambda p, s: cases.make_task(p, s, requires=(first,)))
    bench.passes(3)
    assert bench.counted('tasks_ended') == {
        ('spread', 'live', 'completed'): 1, ('spread', 'live', 'failed'): 1,
        ('spread', 'live', 'cancelled'): 1}
    assert bench.counted('failed_attempts') == {('MigrationFailed',): 1, ('PreFlightError',): 1}
    assert sum(bench.tally.copy_tally().durations['migrations']['live', 'failed'].counts) == 0


def at(phase, stage=base.MigrationStage.RUNNING):
    return base.MigrationProgress(stage, 'detail', 'migration-uuid', phase=phase)


def slow(bench, seconds, answer='marker'):
    """A step that takes its time."""
    def step(task):
        bench.now += seconds
        return answer
    return step


def test_an_attempt_tells_how_long_each_of_its_phases_took(bench):
    bench.driver.answers['pre_flight'] = [slow(bench, 2)]
    bench.driver.answers['read_progress'] = [
        at('pre_check', base.MigrationStage.WAITING), at('preparing', base.MigrationStage.WAITING),
        at('running'),
        at('running'), at('post_migrating'), base.MigrationStage.COMPLETED]
    bench.driver.answers['post_flight'] = [error(exception.NovaClientError), None]
    bench.plan()
    bench.now += 7
    bench.passes(10)
    attempt, = bench.row().attempts
    assert attempt.phases == {'queue': 7, 'pre_flight': 2, 'pre_check': 20, 'preparing': 10,
                              'running': 20, 'post_migrating': 10, 'post_flight': 10}
    assert list(attempt.phases) == ['queue', 'pre_flight', 'pre_check', 'preparing', 'running',
                                    'post_migrating', 'post_flight']
    assert bench.told[-1][1].attempts == (attempt,)
    durations = bench.tally.copy_tally().durations['phases']
    assert durations['live', 'running'].total == 20
    assert {key for key, found in durations.items() if sum(found.counts)} == {
        ('live', phase) for phase in attempt.phases}


def test_a_successor_continues_the_phases_of_an_attempt(bench):
    bench.driver.answers['read_progress'] = [at('preparing'), at('running')]
    bench.plan()
    bench.passes(3)
    bench.now += 100
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    bench.passes(2, by=bench.new_worker('w2'))
    attempt, = bench.row().attempts
    assert attempt.phases == {'queue': 0, 'pre_flight': 0, 'pre_check': 10, 'preparing': 10,
                              'running': 110, 'post_flight': 0}


def test_an_older_reading_does_not_revert_a_phase(bench):
    bench.driver.answers['read_progress'] = [at('running'), at('preparing'), at(None),
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(6)
    attempt, = bench.row().attempts
    assert attempt.phases == {'queue': 0, 'pre_flight': 0, 'pre_check': 10, 'running': 30,
                              'post_flight': 0}


def test_phases_measured_by_nova_replace_observed_ones(bench):
    bench.driver.seconds = {'pre_check': 1.0, 'preparing': 2.0, 'running': 14.0}
    bench.driver.answers['read_progress'] = [at('running'), base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(4)
    attempt, = bench.row().attempts
    assert attempt.phases == {'queue': 0, 'pre_flight': 0, 'pre_check': 1, 'preparing': 2,
                              'running': 14, 'post_flight': 3}, '20 s since our request'
    assert bench.driver.measures == ['migration-uuid'], 'asked once, at the end'


@pytest.mark.parametrize('problem', [error(exception.NovaClientError), RuntimeError('a bug')])
def test_a_failed_measurement_delays_no_end_of_a_task(bench, problem):
    bench.driver.seconds = problem
    bench.plan()
    bench.passes(3)
    assert bench.state is TaskState.COMPLETED
    assert bench.row().attempts[0].phases['pre_check'] == 10


def test_each_attempt_has_own_phases_and_only_requested_ones_are_measured(bench):
    bench.driver.answers['pre_flight'] = [
        error(exception.PlacementRejected), slow(bench, 3)]
    bench.driver.answers['read_progress'] = [base.MigrationStage.FAILED]
    bench.plan()
    bench.passes(3)
    first, second = (attempt.phases for attempt in bench.row().attempts)
    assert first == {'queue': 0, 'pre_flight': 0} and bench.driver.measures == ['migration-uuid']
    assert second == {'queue': 10, 'pre_flight': 3, 'pre_check': 10, 'post_flight': 0}


def test_waiting_for_a_slot_is_waiting_in_the_queue(bench):
    refused = exception.PreFlightError(instance_uuid='i', rule='no-slot', problem='none is free')
    bench.driver.answers['pre_flight'] = [refused, refused, 'marker']
    bench.plan()
    bench.passes(12, seconds=30)
    attempt, = bench.row().attempts
    assert attempt.phases['queue'] == 60 and attempt.phases['pre_flight'] == 0


def test_the_wait_of_a_task_ends_with_its_first_request_to_nova(bench):
    bench.driver.answers['pre_flight'] = [
        error(exception.NovaClientError, 'Nova is away'), 'marker']
    bench.driver.answers['read_progress'] = [base.MigrationStage.FAILED,
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(12, seconds=60)
    assert bench.state is TaskState.COMPLETED and len(bench.row().attempts) == 3
    waits = bench.tally.copy_tally().durations['waits']['spread',]
    assert sum(waits.counts) == 1 and waits.total > 0


def test_a_pre_flight_refusal_is_final_and_quarantines(bench):
    bench.driver.answers['pre_flight'] = [error(exception.PreFlightError)]
    bench.plan()
    bench.passes(20, seconds=60)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'PreFlightError')
    assert list(bench.quarantined()) == [bench.tasks[0].instance_uuid]
    assert len(bench.steps('pre_flight')) == 1 and bench.steps('submit') == []
    # Kronos reads a smaller number as "a retry is pending".
    (event, result), = bench.told
    assert event == 'migration.failed' and result.retry_count >= bench.tasks[0].max_retries


def test_pre_flight_receives_flights_and_history_from_the_database(bench):
    """Only begun tasks count as flights: a queued task blocks no other one."""
    bench.plan(cases.make_task, lambda p, s: cases.make_task(
                   p, s, from_host='h4', not_before=bench.now + 1),
               lambda p, s: cases.make_task(p, s, not_before=bench.now + 1e6))
    bench.store.quarantine.count_refusal('h9', bench.now, limit=1, seconds=1000, reason='no')
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.passes(1)
    assert bench.driver.known.flights == ()
    assert bench.driver.known.history.quarantined_hosts == {'h9'}
    assert bench.driver.known.history.cooling == {}, 'its own planning has set one'
    bench.passes(1)
    first = bench.tasks[0]
    assert bench.driver.known.flights == (
        model.InFlightMove(first.instance_uuid, first.from_host, first.to_host, 'task', ('h3',),
                           first.aggregate),)
    assert bench.driver.known.draining == bench.store.plans.list_draining_hosts()
    assert bench.driver.known.scopes == bench.store.leases.list_leased_scopes() != frozenset()


def test_a_rule_from_nova_ends_the_task_and_is_stored_for_the_source(bench):
    bench.driver.answers['read_progress'] = [base.MigrationProgress(
        base.MigrationStage.FAILED, 'it has disks', 'm1', 'copies-disk')]
    bench.plan()
    bench.passes(20, seconds=60)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'PreFlightError')
    assert len(bench.steps('submit')) == 1, 'it cannot change, and no alternate differs'
    history = bench.store.history.read_history('blue', bench.now)
    assert history.local_disk_hosts == {'h1'}
    assert history.quarantined == {} and history.quarantined_hosts == frozenset()


def test_defect_15_a_deterministic_refusal_at_submit_is_not_retried(bench):
    bench.driver.answers['submit'] = [error(exception.PreFlightError)]
    bench.plan()
    bench.passes(20, seconds=100)
    assert bench.state is TaskState.FAILED and len(bench.steps('submit')) == 1


def test_defect_15_retry_backoff_starts_from_now(bench):
    bench.driver.answers['pre_flight'] = [error(exception.NovaClientError)]
    bench.plan()
    bench.now += 5000  # it lay in the queue
    bench.passes(1)
    assert bench.row().task.not_before == pytest.approx(bench.now - 10 + 30)
    assert bench.row().task.retry_count == 1


def test_a_task_without_a_slot_waits_without_a_notification(bench):
    full = exception.PreFlightError(instance_uuid='i', problem='p', rule='no-slot')
    bench.driver.answers['pre_flight'] = [full] * 6 + ['marker']
    bench.plan()
    bench.passes(5, seconds=40)
    assert bench.state is TaskState.QUEUED and bench.steps('submit') == []
    assert (bench.row().task.retry_count, bench.row().attempt, bench.told) == (0, 0, [])
    bench.passes(20, seconds=40)
    assert bench.steps('submit')[0] == 'h2'


def test_an_api_error_notifies_each_retry_and_ends_without_quarantine(bench):
    bench.driver.answers['pre_flight'] = [error(exception.NovaClientError)]
    bench.plan()
    bench.passes(60, seconds=10)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'NovaClientError')
    assert bench.quarantined() == {}
    assert bench.tasks[0].instance_uuid in bench.store.history.read_history(
        'blue', bench.now).cooling
    assert [result.retry_count for _, result in bench.told] == [0, 1, 2, 3]


def test_destinations_are_tried_in_order_then_again_then_quarantined(bench):
    bench.driver.answers['submit'] = [error(exception.MigrationFailed)]
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=1))
    bench.passes(20)
    assert bench.steps('submit') == ['h2', 'h3', 'h2', 'h3']
    assert bench.state is TaskState.FAILED
    assert bench.tasks[0].instance_uuid in bench.quarantined()


def test_the_alternate_that_accepted_the_instance_is_stored(bench):
    bench.driver.answers['submit'] = [error(exception.MigrationFailed), 'req-2']
    bench.plan()
    bench.passes(4)
    assert (bench.state, bench.row().task.to_host) == (TaskState.COMPLETED, 'h3')
    assert bench.told[-1][1].to_host == 'h3'
    assert bench.quarantined() == {}


def test_destinations_without_room_quarantine_no_instance(bench):
    bench.driver.answers['pre_flight'] = [error(exception.PlacementRejected)]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=('h3',), max_retries=1))
    bench.passes(10)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'PlacementRejected')
    assert bench.steps('pre_flight') == ['h2', 'h3', 'h2', 'h3']
    assert bench.quarantined() == {}


M = '6c6c5d80-9b43-4d5c-8f43-0d7bb8a3d2%02d'


def tried(row_or_result):
    return [(a.to_host, a.error_type, a.migration_uuid) for a in row_or_result.attempts]


def test_the_result_lists_every_attempt(bench):
    """The request, the compute host and pre-flight refuse, and no host accepts: the row and the
    notification have all attempts in order with their times."""
    bench.driver.answers['pre_flight'] = [
        'marker', 'marker', error(exception.PlacementRejected), 'marker']
    bench.driver.answers['submit'] = [error(exception.MigrationFailed), 'req-2']
    bench.driver.answers['read_progress'] = [
        base.MigrationProgress(base.MigrationStage.FAILED, 'no CPU', M % 1), base.MigrationProgress(
            base.MigrationStage.COMPLETED, '', M % 2)]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=('h3', 'h4', 'h5')))
    bench.worker = bench.new_worker('w1', dataclasses.replace(SETTINGS, max_attempts=4))
    start = bench.now
    bench.passes(6)
    assert bench.state is TaskState.COMPLETED
    assert tried(bench.row()) == [
        ('h2', 'MigrationFailed', None), ('h3', 'MigrationFailed', M % 1),
        ('h4', 'PlacementRejected', None), ('h5', None, M % 2)]
    first, second, third, last = bench.row().attempts
    assert first.started_at == first.ended_at == start
    assert (second.started_at, second.ended_at) == (start + 10, start + 20)
    assert third.started_at == third.ended_at and last.ended_at > last.started_at
    assert 'no CPU' in second.error and last.error is None
    (_, result), = bench.told
    assert result.attempts == bench.row().attempts


def test_attempts_are_listed_over_all_passes_and_are_bounded(bench):
    bench.driver.answers['submit'] = [error(exception.MigrationFailed)]
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=1))
    bench.passes(20)
    assert [host for host, _, _ in tried(bench.row())] == ['h2', 'h3', 'h2', 'h3']
    assert [len(result.attempts) for _, result in bench.told] == [2, 4]
    bench.now += 1e6
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=30))
    bench.passes(80, by=bench.new_worker('w2', dataclasses.replace(SETTINGS, retry_backoff=0)))
    kept = bench.row().attempts
    assert bench.state is TaskState.FAILED and len(kept) == rows.KEPT_ATTEMPTS
    assert kept[-1].ended_at == bench.row().completed_at, 'the newest are kept'
    assert bench.told[-1][1].attempts == kept


def test_waiting_for_a_slot_is_no_attempt(bench):
    full = exception.PreFlightError(instance_uuid='i', problem='p', rule='no-slot')
    bench.driver.answers['pre_flight'] = [full] * 3 + ['marker']
    bench.plan()
    bench.passes(30, seconds=40)
    assert tried(bench.row()) == [('h2', None, None)]


def test_attempts_tell_no_secret(bench):
    bench.driver.answers['submit'] = [exception.MigrationFailed(
        instance_uuid='i', problem='POST http://u:c4n4ry@h Authorization: Bearer c4n4ry\n' * 99)]
    bench.plan()
    bench.passes(20, seconds=60)
    attempts = bench.row().attempts
    assert len(attempts) > 1 and all(a.error and len(a.error) <= 300 for a in attempts)
    assert 'c4n4ry' not in str(attempts) + str([r.attempts for _, r in bench.told])


def test_notification_of_a_cancelled_task_lists_its_attempts(bench):
    bench.driver.answers['submit'] = [error(exception.MigrationFailed)]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=()),
               lambda p, s: elsewhere(p, s))
    bench.passes(1)
    # Equal tasks are begun in the order of their random UUIDs.
    task = next(t for n, t in enumerate(bench.tasks) if bench.row(n).attempts)
    assert bench.store.tasks.cancel_task(task.task_id, bench.now, cancelled_by='me', reason='r',
                                         instance_cooldown=9)
    bench.worker._outcomes.report_cancelled_task(task, bench.now)
    assert tried(bench.told[-1][1]) == [(task.to_host, 'MigrationFailed', None)]


def test_an_attempt_that_ends_at_the_first_reading_names_its_migration(bench):
    bench.driver.answers['read_progress'] = [base.MigrationProgress(base.MigrationStage.COMPLETED,
                                                                    '', M % 1)]
    bench.driver.answers['post_flight'] = [error(exception.InstanceInError)]
    bench.plan()
    bench.passes(2)
    assert tried(bench.row()) == [('h2', 'MigrationFailed', M % 1)]


def settling(detail='its allocation is still there'):
    return base.MigrationProgress(base.MigrationStage.SETTLING, detail, M % 1)


def test_the_next_destination_waits_until_the_failed_migration_has_settled(bench):
    bench.driver.answers['read_progress'] = [
        settling(), settling(), base.MigrationProgress(base.MigrationStage.FAILED, 'no', M % 1),
        base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(3)
    assert bench.steps('submit') == ['h2'] and bench.state is TaskState.SUBMITTED
    bench.passes(3)
    assert bench.steps('pre_flight') == bench.steps('submit') == ['h2', 'h3']
    assert bench.state is TaskState.COMPLETED
    assert tried(bench.row())[0] == ('h2', 'MigrationFailed', M % 1)


def untold():
    return base.MigrationProgress(base.MigrationStage.UNTOLD, 'Nova: migration error', M % 1)


def test_no_request_is_sent_until_nova_explains_the_failure(bench):
    bench.driver.answers['read_progress'] = [
        untold(), untold(),
        base.MigrationProgress(base.MigrationStage.FAILED, 'no', M % 1,
                               fault=nova_error_classes.FaultyPart.INSTANCE)]
    bench.plan()
    bench.passes(8)
    assert bench.steps('submit') == bench.steps('pre_flight') == ['h2']
    assert bench.state is TaskState.FAILED
    assert 'Nova does not migrate it to any host: no' in bench.row().error


def test_a_host_is_not_blamed_for_a_failure_that_nova_never_explains(bench):
    bench.driver.answers['read_progress'] = [untold()]
    for _ in range(3):  # as many refusals quarantine a host
        bench.plan(lambda p, s: cases.make_task(p, s, alternates=('h3',), max_retries=0))
        bench.passes(80)
        row = bench.row()
        assert [(host, kind) for host, kind, _ in tried(row)] == [
            ('h2', 'MigrationFailed'), ('h3', 'MigrationFailed')]
        assert row.attempts[0].ended_at - row.attempts[0].started_at >= SETTINGS.settling_seconds
        assert 'its migration to h3 failed, and Nova did not say why within 3' in row.error
    assert bench.steps('submit') == ['h2', 'h3'] * 3
    assert {q.kind
            for q in bench.store.quarantine.list_quarantines(row.completed_at)} == {'instance'}


def test_an_unexplained_failure_after_the_deadline_is_a_timeout(bench):
    bench.driver.answers['read_progress'] = [untold()]
    bench.plan()
    bench.passes(2)
    row = bench.row()
    assert bench.store.tasks.update_state(
        row.task.task_id, row.worker, [row.task.state], TaskState.UNKNOWN,
                                          bench.now, error='late', error_type='MigrationTimeout')
    bench.passes(60)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'MigrationTimeout')
    assert bench.steps('submit') == ['h2']


@pytest.mark.mutant
def test_a_failure_that_is_not_explained_yet_is_logged_in_words_of_its_own(bench, caplog):
    caplog.set_level('INFO')
    bench.driver.answers['read_progress'] = [untold(), untold(), settling(), untold()]
    bench.plan()
    bench.passes(6)
    said = [r.message for r in caplog.records if ' failed' in r.message]
    about = model.format_task(bench.tasks[0])
    assert said == [
        f'{about}: its migration to h2 failed (Nova: migration error), and Nova has not said why '
        'yet; repeating the question for up to 300 s',
        f'{about}: its migration to h2 failed; before anything else, its allocation is still there',
        said[0]]


def test_leftover_allocations_end_the_task_without_another_request(bench):
    bench.driver.answers['read_progress'] = [settling()]
    bench.plan()
    bench.passes(60)
    assert bench.steps('submit') == ['h2'] and bench.state is TaskState.FAILED
    row = bench.row()
    assert 'nova-manage placement audit' in row.error and 'still there' in row.error
    assert bench.tasks[0].instance_uuid in bench.quarantined()
    assert row.completed_at - row.submitted_at >= SETTINGS.settling_seconds
    assert bench.store.quarantine.list_quarantines(bench.now)[
        0].kind == 'instance', 'the host is not charged'


def test_a_successor_goes_on_waiting_and_loses_no_attempt(bench):
    bench.driver.answers['submit'] = [error(exception.MigrationFailed), 'req-1']
    bench.driver.answers['read_progress'] = [settling()]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=('h3', 'h4')))
    bench.passes(4)
    since = bench.row().doubt_since
    assert since is not None and bench.steps('submit') == ['h2', 'h3']
    bench.now += SETTINGS.claim_seconds + 1  # its executor died
    successor = bench.new_worker('w2')
    bench.passes(2, by=successor)
    assert bench.row().doubt_since == since, 'the time of its predecessor counts'
    bench.driver.answers['read_progress'] = [base.MigrationProgress(base.MigrationStage.FAILED,
                                                                    'no', M % 1),
                                             base.MigrationStage.COMPLETED]
    bench.passes(3, by=successor)
    assert bench.steps('submit') == ['h2', 'h3', 'h4']
    assert [host for host, _, _ in tried(bench.row())] == ['h2', 'h3', 'h4']


def test_a_doubt_with_another_cause_restarts_its_time(bench):
    """Nova showed no migration and was then away for longer than one may settle."""
    absent = base.MigrationProgress(base.MigrationStage.ABSENT)
    bench.driver.answers['read_progress'] = [absent, settling()]
    bench.plan()
    bench.passes(2)
    assert bench.driver.answers['read_progress'] == [settling()]
    bench.now += SETTINGS.settling_seconds + 1
    bench.passes(2)
    assert bench.state is TaskState.SUBMITTED and not bench.quarantined()
    bench.driver.answers['read_progress'] = [absent]
    bench.now += SETTINGS.absent_seconds + 1
    bench.passes(1)
    assert bench.state is TaskState.SUBMITTED, 'nor does a failed one that is gone end at once'
    bench.passes(8)
    assert bench.row().error_type == 'NovaClientError'


def test_a_doubt_from_the_previous_release_restarts_its_time(bench):
    """The previous release stores the time of a doubt and not its cause."""
    bench.driver.answers['read_progress'] = [settling()]
    bench.plan()
    bench.passes(2)
    row = bench.row()
    assert bench.store.tasks.update_state(
        row.task.task_id, row.worker, [row.task.state], row.task.state,
                                          bench.now, doubt_since=bench.now - 1)
    bench.now += SETTINGS.settling_seconds + 1
    bench.passes(2)
    assert bench.state is TaskState.SUBMITTED and not bench.quarantined()


def test_a_successor_reads_the_cause_of_a_doubt(bench):
    bench.driver.answers['read_progress'] = [base.MigrationProgress(base.MigrationStage.ABSENT)]
    bench.plan()
    bench.passes(2)
    bench.driver.answers['read_progress'] = [settling()]
    bench.now += SETTINGS.settling_seconds + 1  # its executor died
    bench.passes(2, by=bench.new_worker('w2'))
    assert bench.state is TaskState.SUBMITTED and not bench.quarantined()


@pytest.mark.parametrize(('fault', 'asked', 'kind', 'quarantined', 'charged'), [
    (nova_error_classes.FaultyPart.INSTANCE, ['h2'], 'MigrationFailed', True, False),
    (nova_error_classes.FaultyPart.API, ['h2'] * 4, 'NovaClientError', False, False),
    (nova_error_classes.FaultyPart.DESTINATION, ['h2', 'h3'] * 4, 'MigrationFailed', True, True)])
def test_a_failure_has_consequences_by_its_faulty_part(bench, fault, asked, kind, quarantined,
                                                       charged):
    bench.driver.answers['read_progress'] = [base.MigrationProgress(base.MigrationStage.FAILED,
                                                                    'no', M % 1, fault=fault)]
    bench.plan()
    bench.passes(200, seconds=30)
    assert bench.steps('submit') == asked
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, kind)
    found = {q.kind for q in bench.store.quarantine.list_quarantines(bench.row().completed_at)}
    assert ('instance' in found) == quarantined and ('host' in found) == charged


def other_cell(task):
    return exception.OtherCell(
        instance_uuid=task.instance_uuid, rule='cell-differs', problem='HTTP 400',
        from_host=task.from_host, to_host=task.to_host)


def test_a_host_of_another_cell_gives_way_and_is_not_charged(bench, caplog):
    bench.driver.answers['submit'] = [other_cell, 'req-1']
    bench.plan()
    bench.passes(3)
    assert bench.steps('submit') == ['h2', 'h3']
    assert [(a.to_host, a.error_type) for a in bench.row().attempts] == [
        ('h2', 'MigrationFailed'), ('h3', None)]
    history = bench.store.history.read_history('blue', bench.now)
    assert history.other_cells == {('h1', 'h2')}
    assert (history.quarantined_hosts, history.quarantined) == (frozenset(), {})
    assert bench.driver.known.history.other_cells == {('h1', 'h2')}, 'and not asked for again'
    assert 'Hosts h1 and h2 are probably in different cells' in caplog.text


def test_a_task_fails_without_quarantine_if_all_hosts_are_in_other_cells(bench):
    bench.driver.answers['submit'] = [other_cell]
    for _ in range(3):
        bench.plan()
        bench.passes(20, seconds=60)
    assert bench.state is TaskState.FAILED
    assert bench.steps('submit') == ['h2', 'h3'] * 3, 'no pass after the first'
    assert 'cell_metadata_key' in bench.row().error
    found = bench.store.quarantine.list_quarantines(bench.now)
    assert [(q.kind, q.name) for q in found] == [('cells', 'h1 h2'), ('cells', 'h1 h3')]


def test_an_instance_refused_at_once_stops(bench):
    bench.driver.answers['submit'] = [error(exception.InstanceRefused, 'it has accelerators')]
    bench.plan()
    bench.passes(20, seconds=60)
    assert bench.steps('submit') == ['h2'] and bench.state is TaskState.FAILED
    assert 'it has accelerators' in bench.row().error
    assert [q.kind
            for q in bench.store.quarantine.list_quarantines(bench.now - 1200)] == ['instance']


def test_the_improvement_is_that_of_the_destination_at_hand(bench):
    bench.driver.answers['submit'] = [error(exception.MigrationFailed), 'req-1']
    bench.plan(lambda p, s: cases.make_task(
        p, s, improvement=0.3, alternates=('h3', 'h4'), alternate_improvements=(0.2, 0.1)))
    task = bench.row().task
    assert (task.improvement, task.alternate_improvements) == (0.3, (0.2, 0.1))
    bench.passes(2)
    task = bench.row().task
    assert (task.to_host, task.improvement, task.alternate_improvements) == ('h3', 0.2, (0.1,))


def test_a_refusing_destination_is_quarantined_and_not_the_instances(bench):
    bench.driver.answers['submit'] = [
        lambda task: error(exception.MigrationFailed) if task.to_host == 'h2' else 'req']
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(*[cases.make_task] * 3)
    chosen = retry.RetrySettings(per_scope=9, per_source=9, per_destination=9)
    bench.passes(12, by=bench.new_worker('w', chosen))
    history = bench.store.history.read_history('blue', bench.now)
    assert history.quarantined_hosts == {'h2'} and history.quarantined == {}


@pytest.mark.parametrize('retries', [0, 3])
def test_an_executor_that_was_overtaken_counts_no_refusal(bench, retries):
    """It learns of a refusal after its claim has passed on."""
    def overtaken(task):
        bench.now += 61
        assert cases.claim(bench.store, 'w2', now=bench.now)
        raise exception.MigrationFailed(instance_uuid='i', problem='no')

    bench.driver.answers['pre_flight'] = [overtaken]
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=retries, alternates=()))
    bench.passes(1)
    assert bench.row().worker == 'w2' and bench.state is TaskState.CLAIMED
    assert bench.store.quarantine.list_quarantines(bench.now) == []
    assert not bench.store.quarantine.count_refusal('h2', bench.now, limit=2, seconds=60,
                                                    reason='the first')


def test_an_executor_that_was_overtaken_remembers_no_local_disks(bench):
    """It learns that the disks are local after its task has passed on."""
    def overtaken(task):
        bench.now += 61
        assert bench.store.tasks.adopt_tasks('w2', None, bench.now, 60)
        return base.MigrationProgress(base.MigrationStage.FAILED, 'it has disks', 'm1',
                                      'copies-disk')

    bench.driver.answers['read_progress'] = [overtaken]
    bench.plan()
    bench.passes(2)
    assert bench.row().worker == 'w2' and bench.state is TaskState.SUBMITTED
    assert bench.store.quarantine.list_quarantines(bench.now) == []


@pytest.mark.parametrize('found', ['read_progress', 'post_flight'])
def test_an_instance_in_error_is_quarantined_for_ever_and_alarmed(bench, caplog, found):
    if found == 'read_progress':
        bench.driver.answers['read_progress'] = [base.MigrationProgress(
            base.MigrationStage.FAILED, 'Nova: migration error', broken=True)]
    else:
        bench.driver.answers['post_flight'] = [error(exception.InstanceInError)]
    bench.plan()
    bench.passes(2)
    assert bench.state is TaskState.FAILED and bench.row().error_type == 'MigrationFailed'
    assert list(bench.quarantined().values()) == [-1]
    assert bench.steps('submit') == ['h2'], 'no other destination is tried'
    told, = [r.message for r in caplog.records if r.levelname == 'ERROR']
    assert 'is in ERROR' in told and 'kronos quarantine lift instance' in told


def test_defect_16_a_migration_that_fails_within_one_poll_fails_at_once(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.FAILED]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=(), max_retries=0))
    bench.passes(2)
    assert bench.state is TaskState.FAILED
    assert bench.row().completed_at <= cases.NOW + 10


def test_defect_16_a_migration_that_is_not_listed_has_not_disappeared(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING,
                                             *[base.MigrationStage.ABSENT] * 5,
                                             base.MigrationStage.RUNNING,
                                             *[base.MigrationStage.ABSENT] * 5,
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(14)
    assert bench.state is TaskState.COMPLETED and len(bench.steps('submit')) == 1


def test_defect_14_a_migration_past_its_deadline_keeps_its_slot(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(*[lambda p, s: cases.make_task(p, s, memory_mb=1024)] * 2)
    one = bench.new_worker('one', retry.RetrySettings(per_scope=1))
    bench.passes(3, by=one)
    bench.now = cases.NOW + 600 + 1600 + 1
    bench.passes(2, by=one)
    row = next(r for r in (bench.row(0), bench.row(1)) if r.worker)
    assert (row.task.state, row.error_type) == (TaskState.UNKNOWN, 'MigrationTimeout')
    assert len(bench.steps('submit')) == 1, 'the slot was given away'
    assert len(bench.store.tasks.list_in_flight_moves()) == 2 and bench.told == []
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    bench.passes(2, by=one)
    assert bench.store.tasks.find_task(row.task.task_id).task.state is TaskState.COMPLETED
    assert len(bench.steps('submit')) == 2


def test_a_migration_that_fails_after_its_deadline_is_a_timeout_and_final(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING,
                                             base.MigrationStage.FAILED]
    bench.plan()
    bench.passes(1)
    bench.now += 700
    bench.passes(2)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'MigrationTimeout')
    assert bench.tasks[0].instance_uuid in bench.quarantined()


def test_defect_17_a_task_that_no_executor_begins_in_time_expires(bench):
    bench.plan()
    bench.now += 7 * 3600
    bench.passes(1)
    assert (bench.state, bench.row().error_type) == (TaskState.CANCELLED, 'TaskExpired')
    assert bench.driver.calls == [] and bench.quarantined() == {}
    assert [(event, result.error_type) for event, result in bench.told] == [
        ('migration.failed', 'TaskExpired')]


def test_an_operators_cancel_is_respected(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.CANCELLED]
    bench.plan()
    bench.passes(20, seconds=60)
    assert (bench.state, bench.row().error_type) == (TaskState.CANCELLED, 'MigrationCancelled')
    assert len(bench.steps('submit')) == 1 and bench.quarantined() == {}


def test_an_ambiguous_request_that_took_effect_is_found_not_repeated(bench):
    bench.driver.answers['submit'] = [error(exception.AmbiguousSubmit)]
    bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT,
                                             base.MigrationStage.WAITING,
                                             base.MigrationStage.RUNNING,
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(1)
    assert bench.state is TaskState.UNKNOWN
    bench.passes(2)
    assert bench.state is TaskState.SUBMITTED
    bench.passes(3)
    assert bench.state is TaskState.COMPLETED and len(bench.steps('submit')) == 1


def test_an_ambiguous_request_that_left_no_trace_is_repeated_after_a_while(bench):
    bench.driver.answers['submit'] = [error(exception.AmbiguousSubmit), 'req-2']
    bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT]
    bench.plan()
    bench.passes(8)
    assert bench.state is TaskState.UNKNOWN and len(bench.steps('submit')) == 1
    bench.passes(1)
    assert (bench.state, bench.row().task.retry_count) == (TaskState.QUEUED, 1)
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    bench.passes(6)
    assert bench.state is TaskState.COMPLETED and len(bench.steps('submit')) == 2


def test_a_fault_of_the_driver_during_the_request_is_ambiguous(bench):
    bench.driver.answers['submit'] = [KeyError('id')]
    bench.plan()
    bench.passes(2)
    assert bench.state is TaskState.COMPLETED and len(bench.steps('submit')) == 1


@pytest.mark.parametrize('step', ['pre_flight', 'log_in'])
def test_a_driver_fault_before_the_request_is_retried_then_quarantined(bench, caplog, step):
    bench.driver.answers[step] = [KeyError('id')]
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=1))
    bench.passes(1)
    assert (bench.state, bench.row().task.retry_count) == (TaskState.QUEUED, 1)
    assert bench.row().task.not_before == cases.NOW + SETTINGS.retry_backoff
    bench.passes(10)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'UnexpectedError')
    assert bench.tasks[0].instance_uuid in bench.quarantined()
    assert len(bench.steps(step)) == 2 and bench.steps('submit') == []
    faults = [r for r in caplog.records if 'failed unexpectedly' in r.message and r.exc_info]
    assert len(faults) == 2 and all('KeyError' in r.exc_text for r in faults)


@pytest.mark.parametrize('step', ['pre_flight', 'log_in'])
def test_a_driver_fault_of_one_task_does_not_stop_another(bench, step):
    def fault(task):
        if task.to_host == 'h2':
            raise KeyError('id')
        return 'marker'
    bench.driver.answers[step] = [fault]
    bench.plan(cases.make_task, elsewhere)
    bench.passes(2, seconds=0)
    assert [bench.row(i).task.state for i in (0, 1)] == [TaskState.QUEUED, TaskState.SUBMITTED]


@pytest.mark.parametrize('step', ['abort', 'confirm'])
def test_a_driver_fault_after_the_request_is_repeated_and_stops_no_other_task(bench, step):
    stage = (base.MigrationStage.RUNNING if step == 'abort' else base.MigrationStage.UNCONFIRMED)
    bench.driver.answers |= {'read_progress': [stage],
                             step: [KeyError('id'), KeyError('id'), True]}
    bench.plan(cases.make_task, elsewhere)
    one = bench.new_worker('one', dataclasses.replace(SETTINGS, abort_at_deadline=True))
    bench.passes(80, by=one)
    looks = bench.steps('read_progress')
    assert abs(looks.count('h2') - looks.count('h9')) == 1, 'one began a pass before'
    assert sorted(set(bench.steps(step))) == ['h2', 'h9'] and len(bench.steps(step)) >= 4
    assert not any(bench.row(i).task.state.is_terminal for i in (0, 1)), 'Nova may still move it'


def test_a_defect_outside_the_driver_fails_its_task_alone(bench, caplog):
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=0), elsewhere)
    broken, real = bench.tasks[0].task_id, bench.worker._submission._read_known_facts

    def read(row):
        return {}['id'] if row.task.task_id == broken else real(row)
    bench.worker._submission._read_known_facts = read
    bench.passes(2, seconds=0)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'UnexpectedError')
    assert bench.row(1).task.state is TaskState.SUBMITTED
    assert 'Traceback' in caplog.text


def test_a_defect_in_a_look_leaves_the_task_to_the_next_look(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(cases.make_task, elsewhere)
    bench.passes(2, seconds=0)
    real = bench.worker._outcomes.update_task
    bench.worker._outcomes.update_task = lambda *args, **kw: {}['id']
    bench.passes(2)
    assert [bench.row(i).task.state for i in (0, 1)] == [TaskState.SUBMITTED] * 2
    bench.worker._outcomes.update_task = real
    bench.driver.answers['read_progress'] = [base.MigrationStage.COMPLETED]
    bench.passes(2)
    assert [bench.row(i).task.state for i in (0, 1)] == [TaskState.COMPLETED] * 2


class Crash(BaseException):
    pass


def stopped(plan_id, scope):
    return cases.make_task(plan_id, scope, phase=model.Phase.EVACUATE, method=model.MoveMethod.COLD,
                           memory_mb=65536)


def test_a_cold_migration_is_confirmed_and_then_verified(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING,
                                             base.MigrationStage.UNCONFIRMED,
                                             base.MigrationStage.RUNNING,
                                             base.MigrationStage.COMPLETED]
    bench.plan(stopped)
    bench.passes(6)
    assert bench.state is TaskState.COMPLETED
    assert [name for name, _ in bench.driver.calls if name != 'read_progress'] == [
        'pre_flight', 'log_in', 'submit', 'confirm', 'post_flight']


def test_a_refused_confirmation_is_repeated_and_the_task_keeps_its_slot(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.UNCONFIRMED]
    bench.driver.answers['confirm'] = [error(exception.NovaClientError)]
    bench.plan(stopped, stopped)
    one = bench.new_worker('one', dataclasses.replace(SETTINGS, per_scope=1))
    bench.passes(70, by=one)
    row = next(r for r in (bench.row(0), bench.row(1)) if r.worker)
    assert (row.task.state, row.error_type) == (TaskState.UNKNOWN, 'MigrationTimeout')
    assert len(bench.steps('confirm')) > 50 and len(bench.steps('submit')) == 1
    assert bench.steps('abort') == []
    bench.driver.answers['confirm'] = [None]
    bench.driver.answers['read_progress'] = [base.MigrationStage.UNCONFIRMED,
                                             base.MigrationStage.COMPLETED]
    bench.passes(2, by=one)
    assert bench.store.tasks.find_task(row.task.task_id).task.state is TaskState.COMPLETED


def test_a_successor_confirms_what_its_predecessor_asked_for(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.UNCONFIRMED]
    bench.driver.answers['confirm'] = [Crash(), None]
    bench.plan(stopped)
    with pytest.raises(Crash):
        bench.passes(3)
    bench.now += 60
    bench.driver.answers['read_progress'] = [base.MigrationStage.UNCONFIRMED,
                                             base.MigrationStage.COMPLETED]
    bench.passes(3, by=bench.new_worker('w2'))
    assert bench.state is TaskState.COMPLETED
    assert len(bench.steps('submit')) == 1 and len(bench.steps('confirm')) == 2


ABORTS = dataclasses.replace(SETTINGS, abort_at_deadline=True)


def test_a_late_migration_is_aborted_after_the_abort_is_committed(bench):
    seen = []
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.driver.answers['abort'] = [error(exception.NovaClientError), False,
                                     lambda task: seen.append(bench.row()) or True]
    bench.plan()
    one = bench.new_worker('one', ABORTS)
    bench.passes(60, by=one)
    assert bench.steps('abort') == []
    bench.passes(7, by=one)
    assert len(bench.steps('abort')) == 3, 'until it is accepted, and no longer'
    assert [(r.task.state, r.error) for r in seen] == [
        (TaskState.UNKNOWN, migration_deadlines.ABORTING)]
    assert bench.state is TaskState.UNKNOWN, 'it keeps its slot until Nova says how it ended'
    bench.driver.answers['read_progress'] = [base.MigrationStage.CANCELLED]
    bench.passes(20, by=one)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'MigrationTimeout')
    assert len(bench.steps('submit')) == 1
    assert bench.tasks[0].instance_uuid in bench.quarantined()


def test_a_successor_knows_that_the_abort_was_ours(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.driver.answers['abort'] = [Crash()]
    bench.plan()
    with pytest.raises(Crash):
        bench.passes(62, by=bench.new_worker('one', ABORTS))
    bench.now += 61
    bench.driver.answers['read_progress'] = [base.MigrationStage.CANCELLED]
    bench.passes(1, by=bench.new_worker('two', ABORTS))
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'MigrationTimeout')


def test_successor_without_abort_at_deadline_keeps_that_the_abort_was_ours(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    bench.passes(62, by=bench.new_worker('one', ABORTS))
    assert len(bench.steps('abort')) == 1
    bench.now += 61
    two = bench.new_worker('two', SETTINGS)
    bench.passes(3, by=two)
    row = bench.row()
    assert (row.worker, row.error) == ('two', migration_deadlines.ABORTING)
    assert len(bench.steps('abort')) == 1, 'the successor may not abort, and does not'
    bench.driver.answers['read_progress'] = [base.MigrationStage.CANCELLED]
    bench.passes(1, by=two)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'MigrationTimeout')


def test_executor_that_lost_its_task_does_not_abort_the_migration(bench):
    """Else the row does not tell a successor who aborted it, and ERROR looks like a fault."""
    one, two = bench.new_worker('one', ABORTS), bench.new_worker('two', ABORTS)

    def freeze(task):
        bench.now += 61
        assert bench.store.tasks.adopt_tasks(two.name, None, bench.now, 60)
        return base.MigrationStage.RUNNING

    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    bench.passes(58, by=one)
    assert bench.state is TaskState.SUBMITTED and bench.now < bench.row().task.deadline
    bench.driver.answers['read_progress'] = [freeze, base.MigrationStage.RUNNING]
    bench.passes(1, by=one)
    assert bench.now > bench.row().task.deadline and bench.row().worker == two.name
    assert bench.steps('abort') == [] and bench.row().error is None
    bench.passes(1, by=two)
    assert len(bench.steps('abort')) == 1 and bench.row().error == migration_deadlines.ABORTING


@pytest.mark.parametrize('settings', [SETTINGS, ABORTS])
def test_an_operators_abort_after_the_deadline_is_one(bench, settings):
    """Without the option nothing is aborted; a cold migration never is."""
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(stopped if settings is ABORTS else cases.make_task)
    one = bench.new_worker('one', settings)
    bench.passes(70, by=one)
    assert (bench.state, bench.row().error) == (TaskState.UNKNOWN, migration_deadlines.LATE)
    bench.driver.answers['read_progress'] = [base.MigrationStage.CANCELLED]
    bench.passes(2, by=one)
    assert (bench.state, bench.row().error_type) == (TaskState.CANCELLED, 'MigrationCancelled')
    assert bench.steps('abort') == [] and bench.quarantined() == {}


def gone():
    return exception.PreFlightError(instance_uuid='i', problem='deleted', rule='no-such-instance')


@pytest.mark.parametrize('step', ['pre_flight', 'submit', 'post_flight'])
def test_a_deleted_instance_ends_its_task_without_a_quarantine_or_a_retry(bench, step):
    bench.driver.answers[step] = [gone()]
    bench.plan()
    bench.passes(20)
    assert (bench.state, bench.row().error_type) == (TaskState.CANCELLED, 'MigrationCancelled')
    assert bench.quarantined() == {} and len(bench.steps(step)) == 1


def test_a_locked_instance_is_skipped(bench):
    bench.driver.answers['pre_flight'] = [exception.PreFlightError(
        instance_uuid='i', problem='locked', rule='locked')]
    bench.plan()
    bench.passes(20)
    assert bench.state is TaskState.FAILED and bench.quarantined() == {}
    assert bench.steps('submit') == [] and len(bench.steps('pre_flight')) == 1


@pytest.mark.parametrize('step', ['pre_flight', 'submit', 'read_progress', 'post_flight'])
def test_after_a_crash_the_successor_looks_before_it_asks(bench, step):
    bench.driver.answers[step] = [Crash(), bench.driver.answers[step][0]]
    bench.plan()
    with pytest.raises(Crash):
        bench.passes(2)
    successor = bench.new_worker('w2')
    bench.passes(1, by=successor)
    assert [name for name, _ in bench.driver.calls].count(step) == 1, 'taken over too soon'
    bench.now += 60
    bench.passes(3, by=successor)
    assert bench.state is TaskState.COMPLETED
    assert len(bench.steps('submit')) == 1


def test_a_task_in_doubt_after_a_lost_commit_is_spoken_of(bench, caplog):
    """The database fails over while it commits the submitting state: the executor cannot know
    whether it sent the request to Nova."""
    bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT]
    bench.plan()
    mark = bench.store.tasks.update_state

    def lost_answer(*args, **kw):
        mark(*args, **kw)
        raise exception.StoreError(problem='is away', remedy='Wait.')
    bench.store.tasks.update_state = lost_answer
    with pytest.raises(exception.StoreError):
        bench.passes(1)
    bench.store.tasks.update_state = mark
    bench.now += 10
    bench.passes(1)
    assert bench.state is TaskState.UNKNOWN and bench.steps('submit') == []
    said = [r.getMessage() for r in caplog.records if r.levelname == 'WARNING']
    assert any(bench.tasks[0].task_id in text and 'not known' in text for text in said)


def test_post_flight_may_be_late_but_not_for_ever(bench):
    bench.driver.answers['post_flight'] = [error(exception.MigrationFailed), None]
    bench.plan()
    bench.passes(3)
    assert bench.state is TaskState.COMPLETED
    bench.driver.answers['post_flight'] = [error(exception.MigrationFailed)]
    bench.plan()
    bench.passes(12)
    assert (bench.state, bench.row().error_type) == (TaskState.FAILED, 'MigrationFailed')
    assert bench.tasks[0].instance_uuid in bench.quarantined()
    assert len(bench.steps('submit')) == 2


def test_nova_being_away_while_watching_changes_nothing(bench):
    bench.driver.answers['read_progress'] = [error(exception.NovaClientError)] * 30 + [
        base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(33)
    assert bench.state is TaskState.COMPLETED and len(bench.steps('submit')) == 1


def test_a_failed_requirement_notifies_each_task_that_it_cancels(bench):
    first = cases.new_id()
    bench.driver.answers['pre_flight'] = [error(exception.PreFlightError)]
    bench.plan(lambda p, s: cases.make_task(p, s, instance_uuid=first),
               lambda p, s: cases.make_task(p, s, requires=(first,)))
    bench.passes(1)
    assert [result.error_type for _, result in bench.told] == [
        'PreFlightError', 'RequirementFailed']


def test_a_notification_that_fails_stops_nothing(bench):
    def broken(event, result):
        raise OSError('no broker')
    bench.worker._outcomes._notify = broken
    bench.plan()
    bench.passes(2)
    assert bench.state is TaskState.COMPLETED


def test_several_migrations_are_watched_by_one_loop(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(*[cases.make_task] * 4)
    worker_ = bench.new_worker('w', retry.RetrySettings(
        per_scope=4, per_source=4, per_destination=4, look_interval=10))
    for _ in range(4):
        assert worker_.run_once(bench.now)
    assert not worker_.run_once(bench.now) and bench.steps('read_progress') == []
    bench.now += 10
    worker_.run_once(bench.now)
    worker_.run_once(bench.now)
    assert len(bench.steps('read_progress')) == 4, 'each once per look_interval'


def test_a_stopping_worker_gives_its_claim_back_and_leaves_what_runs(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(cases.make_task, elsewhere)
    bench.passes(1)
    bench.driver.answers['pre_flight'] = [lambda task: bench.worker.stop() or 'marker']
    bench.passes(2)
    states = sorted(bench.row(i).task.state for i in (0, 1))
    assert states == [TaskState.QUEUED, TaskState.SUBMITTED]
    assert len(bench.steps('pre_flight')) == 2 and len(bench.steps('submit')) == 1


def test_a_pause_during_pre_flight_sends_nothing_and_what_runs_is_watched(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(cases.make_task, elsewhere)
    bench.passes(1)
    bench.driver.answers['pre_flight'] = [lambda task: bench.store.pauses.pause_scope(
        None, bench.now, seconds=None, paused_by='me', reason='why') and 'marker']
    bench.passes(3)
    states = sorted(bench.row(i).task.state for i in (0, 1))
    assert states == [TaskState.QUEUED, TaskState.SUBMITTED]
    assert len(bench.steps('pre_flight')) == 2 and len(bench.steps('submit')) == 1
    assert bench.steps('read_progress')
    bench.driver.answers['pre_flight'] = ['marker']
    bench.store.pauses.resume_scope(None, bench.now)
    bench.passes(1)
    assert len(bench.steps('submit')) == 2


def test_in_a_freeze_window_nothing_begins_and_what_runs_is_watched(bench, caplog):
    frozen = []
    settings = dataclasses.replace(
        SETTINGS, frozen=lambda now: frozen[0] if frozen else None)
    bench.worker = bench.new_worker('w1', settings)
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan(cases.make_task, elsewhere, elsewhere)
    bench.passes(1)
    bench.driver.answers['pre_flight'] = [lambda task: frozen.append('the window') or 'marker']
    with caplog.at_level('INFO'):
        bench.passes(3)
    assert len(bench.steps('pre_flight')) == 2 and len(bench.steps('submit')) == 1
    assert bench.steps('read_progress') and caplog.text.count('no migration begins') == 1
    bench.driver.answers['pre_flight'] = ['marker']
    frozen.clear()
    bench.passes(1)
    assert len(bench.steps('submit')) == 2


def test_a_request_that_was_begun_is_committed_though_the_worker_stops(bench):
    bench.driver.answers['submit'] = [lambda task: bench.worker.stop() or 'req-9']
    bench.plan()
    bench.passes(1)
    assert (bench.state, bench.row().reference) == (TaskState.SUBMITTED, 'req-9')


def test_the_dry_run_driver_completes_and_asks_nothing(bench):
    bench.driver = dry_run.DryRunExecutor()
    bench.plan()
    bench.passes(2, by=bench.new_worker('w'))
    assert bench.state is TaskState.COMPLETED


def test_settings_come_from_the_configuration():
    from oslo_config import cfg

    from kronos_nova.conf import opts
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])
    assert retry.build_settings(conf) == retry.RetrySettings(begin=False)
    conf.set_override('aggregates', ['blue', model.UNASSIGNED], 'executor')
    conf.set_override('abort_at_deadline', True, 'executor')
    found = retry.build_settings(conf)
    assert found.scopes == {'blue', model.UNASSIGNED} and found.abort_at_deadline


def test_without_begin_an_executor_only_finishes_running_migrations(bench):
    bench.plan(cases.make_task)
    idle = bench.new_worker('idle', retry.RetrySettings(begin=False, claim_seconds=60))
    bench.passes(3, by=idle)
    assert (bench.state, bench.driver.calls) == (TaskState.QUEUED, [])
    bench.passes(1)
    assert bench.state is TaskState.SUBMITTED
    bench.now += 100  # its executor is stopped
    bench.passes(3, by=idle)
    assert bench.state is TaskState.COMPLETED


def test_dry_run_begins_nothing():
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([])
    assert conf.engine.dry_run and not retry.build_settings(conf).begin
    conf.set_override('dry_run', False, 'engine')
    assert retry.build_settings(conf).begin
