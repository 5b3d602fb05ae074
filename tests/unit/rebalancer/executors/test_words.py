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


"""What an operator reads of a task: in its row, and in the log of the executor."""

import ast
import dataclasses
import logging
from pathlib import Path

import pytest

import kronos_nova
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.executors import nova_error_classes
from tests.unit.rebalancer.executors.benches import error
from tests.unit.rebalancer.executors.benches import SETTINGS
from tests.unit.rebalancer.store import cases

MIGRATION = '1d6f0a9c-2f4b-4c1e-8a37-5b9e0c2d7f61'


def said(caplog, *parts):
    """Return level and text of each record that contains one of the parts."""
    return [(r.levelname, text) for r in caplog.records
            if any(part in (text := r.getMessage()) for part in parts)]


def about(bench):
    task = bench.row().task
    return f'task {task.task_id} (instance {task.instance_uuid})'


def list_log_calls():
    """Return the message and the other arguments of each log call in the package."""
    for path in Path(kronos_nova.__file__).parent.rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(ast.Attribute(ast.Name('LOG')), [ast.Constant(str(text)), *args]):
                    yield text, args


def test_log_lines_about_a_task_take_its_ids_from_one_function():
    assert model.format_task(cases.make_task('p', task_id='t', instance_uuid='i')) == (
        'task t (instance i)')
    calls = list(list_log_calls())
    assert any('format_task' in ast.dump(arg) for _text, args in calls for arg in args)
    assert [text for text, args in calls if 'kronos task show %s' not in text and any(
        isinstance(arg, ast.Attribute) and arg.attr == 'task_id' for arg in args)] == []


@pytest.mark.mutant
def test_confirmations_are_logged_and_a_failed_one_is_repeated(bench, caplog):
    bench.driver.answers['read_progress'] = [
        *[base.MigrationStage.UNCONFIRMED] * 2, base.MigrationStage.COMPLETED]
    bench.driver.answers['confirm'] = [error(exception.NovaClientError), None]
    bench.plan()
    with caplog.at_level(logging.INFO, 'kronos_nova.rebalancer.executors'):
        bench.passes(4)
    said = [(r.levelname, r.getMessage()) for r in caplog.records if 'confirmed' in r.getMessage()
            or 'looked at' in r.getMessage()]
    assert said == [
        ('WARNING', f'{about(bench)}: {error(exception.NovaClientError)}. It is looked at again.'),
        ('INFO', f'{about(bench)}: its cold migration to h2 is confirmed')]


def test_error_about_a_driver_failure_names_instance_and_exception(bench):
    bench.driver.answers['pre_flight'] = [ZeroDivisionError('by nothing')]
    bench.plan()
    bench.passes(1)
    uuid = bench.tasks[0].instance_uuid
    assert bench.row().error == (
        f'Instance {uuid}: the executor failed unexpectedly (ZeroDivisionError: by nothing); '
        'report this with the log')
    assert uuid in bench.row().error


def test_a_failure_without_a_reason_names_instance_host_and_problem(bench):
    bench.driver.answers['read_progress'] = [base.MigrationProgress(base.MigrationStage.UNTOLD,
                                                                    'migration error', 'm')]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=(), max_retries=0))
    bench.passes(80)
    task = bench.row().task
    assert bench.state is TaskState.FAILED
    assert bench.row().error == str(exception.FailureUntold(
        instance_uuid=task.instance_uuid, to_host='h2', seconds='310',
        problem='migration error'))


def test_a_failed_post_flight_check_stores_the_observed_problem(bench):
    bench.driver.answers['post_flight'] = [error(exception.MigrationFailed, 'it is elsewhere')]
    bench.plan()
    bench.passes(40)
    assert bench.state is TaskState.FAILED
    assert bench.row().error == str(error(exception.MigrationFailed, 'it is elsewhere'))


def test_a_requeued_task_marks_a_new_queue_phase(bench):
    bench.driver.answers['pre_flight'] = [lambda task: bench.store.pauses.pause_scope(
        None, bench.now, seconds=None, paused_by='me', reason='why') and 'marker']
    bench.plan()
    began = bench.now
    bench.passes(1)
    assert bench.state is TaskState.QUEUED
    assert [name for name, _ in bench.row().marks] == ['queue', 'pre_flight', 'queue']
    assert bench.row().marks[-1] == ('queue', began)


@pytest.mark.mutant
def test_aborts_are_logged_and_a_failed_one_is_repeated(bench, caplog):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.driver.answers['abort'] = [error(exception.NovaClientError), True]
    bench.plan()
    one = bench.new_worker('one', dataclasses.replace(SETTINGS, abort_at_deadline=True))
    bench.passes(80, by=one)
    assert said(caplog, 'tried again', 'being aborted') == [
        ('WARNING', f'{about(bench)}: {error(exception.NovaClientError)}. It is tried again.'),
        ('WARNING', f'{about(bench)}: its live migration took longer than its deadline and is '
                    'being aborted')]


def test_an_unseen_request_is_watched_then_fails_with_a_warning(bench, caplog):
    bench.driver.answers['submit'] = [KeyboardInterrupt()]
    bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=(), max_retries=0))
    with pytest.raises(KeyboardInterrupt):
        bench.passes(1)
    bench.passes(2)
    uuid = bench.row().task.instance_uuid
    assert said(caplog, 'not known') == [
        ('WARNING', f'{about(bench)}: it is not known whether its migration was asked for, and '
                    f'Nova shows none; it is watched for {SETTINGS.absent_seconds:.0f} s')]
    bench.passes(30)
    assert (bench.state, bench.row().error) == (TaskState.FAILED, str(exception.NovaClientError(
        instance_uuid=uuid, problem='Nova shows no migration for our request')))


def test_leftover_allocations_fail_the_task_and_name_the_wait(bench):
    bench.driver.answers['read_progress'] = [base.MigrationProgress(
        base.MigrationStage.SETTLING, 'migration m still has its allocation in Placement',
        MIGRATION)]
    bench.plan()
    bench.passes(2)
    assert bench.row().reference == MIGRATION
    bench.passes(60)
    row = bench.row()
    assert row.task.state is TaskState.FAILED and row.attempts[-1].migration_uuid == MIGRATION
    assert row.error == str(exception.AllocationsLeft(
        instance_uuid=row.task.instance_uuid,
        problem='its migration to h2 failed, and 310 s later migration m still has its '
                'allocation in Placement'))


def test_a_migration_found_again_is_logged_and_clears_the_doubt(bench, caplog):
    bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT,
                                             base.MigrationStage.RUNNING]
    bench.driver.answers['submit'] = [error(exception.AmbiguousSubmit)]
    bench.plan()
    bench.passes(2)
    assert bench.state is TaskState.UNKNOWN and bench.row().doubt_since is not None
    with caplog.at_level(logging.INFO):
        bench.passes(1)
    assert said(caplog, 'found in Nova') == [
        ('INFO', f'{about(bench)}: its migration is found in Nova (running)')]
    row = bench.row()
    assert (row.task.state, row.reference, row.doubt_since, row.doubt, row.error,
            row.error_type) == (TaskState.SUBMITTED, 'migration-uuid', None, None, None, None)


def test_a_late_migration_found_again_stays_late_without_doubt(bench, caplog):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    bench.passes(70)
    assert said(caplog, 'deadline') == [
        ('WARNING', f'{about(bench)}: MigrationTimeout: it is past its deadline; it keeps its slot '
                    'and is watched until Nova says how it ended. See its migration in '
                    'Nova.')], 'once'
    assert (bench.state, bench.row().error) == (TaskState.UNKNOWN, migration_deadlines.LATE)
    bench.driver.answers['read_progress'] = [base.MigrationStage.ABSENT,
                                             base.MigrationStage.RUNNING]
    bench.passes(1)
    assert bench.row().doubt_since is not None
    bench.passes(1)
    row = bench.row()
    assert (row.task.state, row.doubt_since, row.doubt, row.error) == (
        TaskState.UNKNOWN, None, None, migration_deadlines.LATE)


@pytest.mark.parametrize(('fields', 'kind', 'problem'), [
    ({'rule': 'copies-disk', 'detail': 'it has disks'}, exception.PreFlightError, 'it has disks'),
    ({'broken': True, 'detail': 'migration error'}, exception.InstanceInError,
     'its migration from h1 to h2 failed (migration error)'),
    ({'detail': ''}, exception.MigrationFailed, 'the migration failed in Nova'),
    ({'fault': nova_error_classes.FaultyPart.INSTANCE, 'detail': 'no'}, exception.InstanceRefused,
     'no'),
    ({'fault': nova_error_classes.FaultyPart.API, 'detail': 'away'}, exception.NovaClientError,
     'away')])
def test_error_about_a_failed_migration_names_instance_and_reason(bench, fields, kind, problem):
    bench.driver.answers['read_progress'] = [base.MigrationProgress(
        base.MigrationStage.FAILED, reference='m', **fields)]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=(), max_retries=0))
    bench.passes(3)
    row = bench.row()
    assert (row.task.state, row.error_type) == (TaskState.FAILED, kind.wire_type)
    expected = kind(instance_uuid=row.task.instance_uuid, rule='copies-disk', problem=problem)
    assert row.error == str(expected)


def test_a_driver_failure_while_watching_names_the_task_and_is_retried(bench, caplog):
    bench.driver.answers['read_progress'] = [ZeroDivisionError('by nothing'),
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(3)
    task, = bench.tasks
    assert said(caplog, 'unexpectedly') == [('ERROR', f'{about(bench)}: UnexpectedError: ' + str(
        exception.UnexpectedError(instance_uuid=task.instance_uuid,
                                  problem='ZeroDivisionError: by nothing')))]
    assert bench.state is TaskState.COMPLETED


def test_repeated_post_flight_checks_count_in_the_post_flight_phase(bench):
    bench.driver.answers['post_flight'] = [error(exception.MigrationFailed)] * 2 + [None]
    bench.plan()
    bench.passes(5)
    assert bench.state is TaskState.COMPLETED
    assert bench.row().attempts[-1].phases['post_flight'] == 20


@pytest.mark.mutant
def test_a_nova_outage_while_watching_is_logged_with_the_task(bench, caplog):
    bench.driver.answers['read_progress'] = [error(exception.NovaClientError),
                                             base.MigrationStage.COMPLETED]
    bench.plan()
    bench.passes(3)
    assert said(caplog, 'looked at') == [
        ('WARNING', f'{about(bench)}: {error(exception.NovaClientError)}. It is looked at again.')]


@pytest.mark.parametrize('failure', [ZeroDivisionError('by nothing'),
                                     error(exception.NovaClientError)])
def test_an_unreadable_migration_is_late_at_its_deadline(bench, failure):
    bench.driver.answers['read_progress'] = [failure]
    bench.plan()
    bench.passes(70)
    assert (bench.state, bench.row().error) == (TaskState.UNKNOWN, migration_deadlines.LATE)


def test_an_abort_at_the_deadline_fails_with_instance_and_cause(bench):
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    one = bench.new_worker('one', dataclasses.replace(SETTINGS, abort_at_deadline=True))
    bench.passes(75, by=one)
    bench.driver.answers['read_progress'] = [base.MigrationStage.CANCELLED]
    bench.passes(2, by=one)
    assert (bench.state, bench.row().error) == (TaskState.FAILED, str(exception.MigrationTimeout(
        instance_uuid=bench.tasks[0].instance_uuid,
        problem='its migration took longer than its deadline and was aborted')))


@pytest.mark.mutant
def test_log_of_a_request_names_instance_hosts_and_ids(bench, caplog):
    bench.plan()
    with caplog.at_level(logging.INFO):
        bench.passes(1)
    assert said(caplog, 'requested') == [
        ('INFO', f'{about(bench)}: live migration from h1 to h2 requested (spread, request '
                 'req-1)')]


@pytest.mark.parametrize('failure', [error(exception.AmbiguousSubmit), OSError('broken pipe')])
def test_an_ambiguous_request_is_logged_and_stored_with_its_cause(bench, caplog, failure):
    bench.driver.answers['submit'] = [failure]
    bench.driver.answers['read_progress'] = [base.MigrationStage.RUNNING]
    bench.plan()
    bench.passes(1)
    task, row = bench.tasks[0], bench.row()
    expected = failure if isinstance(failure, exception.AmbiguousSubmit) else (
        exception.UnexpectedError(instance_uuid=task.instance_uuid,
                                  problem='OSError: broken pipe'))
    assert (row.task.state, row.error, row.error_type) == (
        TaskState.UNKNOWN, str(expected), expected.wire_type)
    assert said(caplog, str(expected)) == [
        ('WARNING' if expected is failure else 'ERROR',
         f'{about(bench)}: {expected.wire_type}: {expected}')]


@pytest.mark.mutant
def test_a_request_whose_task_was_taken_over_is_logged_as_lost(bench, caplog):
    def slow(task):
        bench.now += 61
        assert [row.task.task_id
                for row in bench.store.tasks.adopt_tasks('w2', None, bench.now, 60)]
        return 'req-1'
    bench.driver.answers['submit'] = [slow]
    bench.plan()
    bench.passes(1)
    assert said(caplog, 'taken over') == [
        ('WARNING', f'{about(bench)}: it was taken over by another executor, or cancelled')]


@pytest.mark.parametrize(('seconds', 'asked'), [(29, True), (31, False)])
def test_a_delay_of_half_a_claim_postpones_the_request_and_is_logged(bench, caplog, seconds, asked):
    real = bench.store.tasks.update_state

    def slow(task_id, *args, **kw):
        found = real(task_id, *args, **kw)
        bench.now += seconds
        return found
    bench.store.tasks.update_state = slow
    bench.plan()
    with caplog.at_level(logging.INFO):
        bench.worker.run_once(bench.now)
    assert (bench.steps('submit'), bench.state) == (
        (['h2'], TaskState.SUBMITTED) if asked else ([], TaskState.QUEUED))
    task = bench.tasks[0]
    assert said(caplog, 'stood still') == ([] if asked else [
        ('INFO', f'{about(bench)}: NovaClientError: Instance {task.instance_uuid}: this executor '
                 'stood still before it could ask for the migration: it waits for 30 s')])


@pytest.mark.parametrize('scope', ['blue', None])
def test_a_pause_before_the_request_requeues_the_task_and_is_logged(bench, caplog, scope):
    bench.driver.answers['pre_flight'] = [lambda task: bench.store.pauses.pause_scope(
        scope, bench.now, seconds=None, paused_by='me', reason='mine') and 'marker']
    bench.plan()
    with caplog.at_level(logging.INFO):
        bench.passes(1)
    assert (bench.state, bench.steps('submit')) == (TaskState.QUEUED, [])
    pause, = bench.store.pauses.list_pauses(bench.now)
    assert said(caplog, 'back to the queue') == [
        ('INFO', f'{about(bench)}: it goes back to the queue: {pause}')]


def test_a_freeze_that_begins_before_the_request_requeues_the_task(bench, caplog):
    def frozen(now):
        return 'frozen' if now >= cases.NOW + 5 else None

    def slow(task):
        bench.now += 5
        return 'marker'
    bench.driver.answers['pre_flight'] = [slow]
    bench.plan()
    one = bench.new_worker('one', dataclasses.replace(SETTINGS, frozen=frozen))
    with caplog.at_level(logging.INFO):
        bench.passes(1, by=one)
    assert said(caplog, 'back to the queue') == [
        ('INFO', f'{about(bench)}: it goes back to the queue: frozen')]


@pytest.mark.parametrize(('detail', 'text'), [
    ('by an operator', 'by an operator'), ('', 'The migration was cancelled in Nova.')])
def test_a_migration_cancelled_in_nova_cancels_the_task_with_its_text(bench, detail, text):
    bench.driver.answers['read_progress'] = [base.MigrationProgress(base.MigrationStage.CANCELLED,
                                                                    detail, MIGRATION)]
    bench.plan()
    bench.passes(2)
    assert (bench.state, bench.row().error, bench.row().error_type) == (
        TaskState.CANCELLED, text, 'MigrationCancelled')
