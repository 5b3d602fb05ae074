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


"""Rows, counters, notifications and logs when a task ends or continues."""

import dataclasses
import logging
from pathlib import Path
import re

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import dry_run
from kronos_nova.rebalancer.executors import migration_uncertainty
from kronos_nova.rebalancer.executors import outcomes
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import swaps
from tests.unit.rebalancer.executors.benches import error
from tests.unit.rebalancer.store import cases

MIGRATION = '1d6f0a9c-2f4b-4c1e-8a37-5b9e0c2d7f61'


@pytest.fixture
def logged(caplog):
    """(level, text) of each record of a module, from INFO on."""
    caplog.set_level(logging.INFO)

    def read(module=outcomes):
        return [(r.levelname, r.getMessage()) for r in caplog.records
                if r.name == module.__name__]
    return read


def once(plan_id, scope):
    """Tried at one destination, and not again."""
    return cases.make_task(plan_id, scope, alternates=(), max_retries=0)


def refusing(kind, **kw):
    return lambda task: kind(instance_uuid=task.instance_uuid, from_host=task.from_host,
                             to_host=task.to_host, **{'problem': 'it said no', **kw})


# What an operator reads in the log.

@pytest.mark.mutant
def test_log_of_a_continued_task_names_its_next_step_and_time(bench, logged):
    bench.driver.answers['pre_flight'] = [
        refusing(exception.PreFlightError, rule='no-slot'),
        refusing(exception.MigrationFailed), refusing(exception.MigrationFailed), 'marker']
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=2))
    bench.passes(3, seconds=40)
    task, = bench.tasks
    about = f'task {task.task_id} (instance {task.instance_uuid})'
    waits = refusing(exception.PreFlightError, rule='no-slot')(task)
    refused, at_h3 = (refusing(exception.MigrationFailed)(t) for t in (
        task, dataclasses.replace(task, to_host='h3')))
    assert logged() == [
        ('INFO', f'{about}: PreFlightError: {waits}: it waits for 30 s'),
        ('INFO', f'{about}: live migration from h1 to h2 (no Nova migration known, attempt 1): '
                 f'MigrationFailed: {refused}: destination h2 is dropped, h3 is next'),
        ('INFO', f'{about}: live migration from h1 to h3 (no Nova migration known, attempt 2): '
                 f'MigrationFailed: {at_h3}: retry 1 of 2 in 30 s')]


def test_failed_migration_names_hosts_migration_attempt_and_next_command(bench, logged):
    bench.driver.answers['read_progress'] = [
        base.MigrationProgress(base.MigrationStage.FAILED, 'it failed', MIGRATION),
        base.MigrationProgress(base.MigrationStage.FAILED, 'it failed again',
                               MIGRATION[::-1].replace('-', ''))]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=('h3',), max_retries=0))
    bench.passes(4)
    task, = bench.tasks
    uuid = task.instance_uuid
    about = f'task {task.task_id} (instance {uuid})'
    first, second = (str(exception.MigrationFailed(instance_uuid=uuid, problem=problem))
                     for problem in ('it failed', 'it failed again'))
    assert logged() == [
        ('INFO', f'{about}: live migration from h1 to h2 (Nova migration {MIGRATION}, attempt 1): '
                 f'MigrationFailed: {first}: destination h2 is dropped, h3 is next'),
        ('WARNING', f'{about}: failed: live migration from h1 to h3 (Nova migration '
                    f'{MIGRATION[::-1].replace("-", "")}, attempt 2): MigrationFailed: {second}. '
                    f'It is quarantined. See: kronos task show {task.task_id}')]
    page = (Path(__file__).parents[4] / 'doc/source/admin/operations.rst').read_text()
    shown = ' '.join(re.findall(r'^ +(task TASK (?:.+\n)+)', page, re.MULTILINE)[0].split())
    assert re.fullmatch(re.sub(r'TASK|UUID|HOST', r'\\S+', re.escape(shown)).replace(
        r'\.\.\.', '.+'), logged()[-1][1]), 'as the page shows it'
    attempt = bench.row().attempts[-1]
    assert f': {attempt.error_type}: {attempt.error}' in logged()[-1][1], 'as its row has them'


@pytest.mark.mutant
def test_log_of_a_completed_move_names_hosts_and_duration(bench, logged):
    bench.plan()
    bench.passes(3, seconds=21)
    task, = bench.tasks
    assert logged() == [
        ('INFO', f'{model.format_task(task)}: moved from h1 to h2 in 21 s')]


@pytest.mark.mutant
@pytest.mark.parametrize(('kind', 'more'), [
    (exception.NovaClientError, ''), (exception.InstanceRefused, ' It is quarantined.')])
def test_log_of_a_failed_task_names_the_cause_and_any_quarantine(bench, logged, kind, more):
    bench.driver.answers['submit'] = [refusing(kind)]
    bench.plan(once)
    bench.passes(1)
    task, = bench.tasks
    assert logged() == [
        ('WARNING', f'{model.format_task(task)}: failed: live migration from h1 to h2 (no Nova '
                    f'migration known, attempt 1): {kind.wire_type}: '
                    f'{exception.format_sentence(refusing(kind)(task))}{more} See: kronos task '
                    f'show {task.task_id}')]


def test_the_end_of_a_task_whose_instance_is_in_error_is_an_error(bench, logged):
    bench.driver.answers['read_progress'] = [
        base.MigrationProgress(base.MigrationStage.COMPLETED, '', MIGRATION)]
    bench.driver.answers['post_flight'] = [refusing(exception.InstanceInError)]
    bench.plan(once)
    bench.passes(2)
    task, = bench.tasks
    text = str(refusing(exception.InstanceInError)(task))
    assert logged() == [
        ('ERROR', f'{model.format_task(task)}: failed: live migration from h1 to h2 (Nova '
                  f'migration {MIGRATION}, attempt 1): MigrationFailed: {text}. It is '
                  f'quarantined. See: kronos task show {task.task_id}')]


@pytest.mark.parametrize('maker', [once, cases.make_task], ids=['at its end', 'to go on'])
def test_a_failure_of_a_lost_task_is_logged_and_not_notified(bench, logged, maker):
    def overtaken(task):
        bench.now += 61
        assert cases.claim(bench.store, 'w2', now=bench.now)
        raise refusing(exception.MigrationFailed)(task)

    bench.driver.answers['pre_flight'] = [overtaken]
    bench.plan(maker)
    bench.passes(1)
    task, = bench.tasks
    assert logged() == [
        ('WARNING', f'{model.format_task(task)}: it was taken over by another executor, or '
                    'cancelled')]
    assert (bench.told, bench.counted('tasks_ended'), bench.counted('failed_attempts')) == (
        [], {}, {})


def test_a_claim_lost_before_the_request_is_logged_and_sends_nothing(bench, logged):
    def overtaken(task):
        bench.now += 61
        assert cases.claim(bench.store, 'w2', now=bench.now)
        return 'marker'
    bench.driver.answers['pre_flight'] = [overtaken]
    bench.plan()
    bench.passes(1)
    task, = bench.tasks
    assert (logged(), bench.steps('submit')) == ([
        ('WARNING', f'{model.format_task(task)}: it was taken over by another executor, or '
                    'cancelled')], [])


def test_a_dependent_tasks_cancellation_is_logged_counted_and_final(bench, logged):
    first = cases.new_id()
    bench.driver.answers['pre_flight'] = [refusing(exception.InstanceRefused)]
    bench.plan(lambda p, s: cases.make_task(p, s, instance_uuid=first, alternates=()),
               lambda p, s: cases.make_task(p, s, requires=(first,), max_retries=3))
    bench.passes(1)
    task, row = bench.tasks[1], bench.row(1)
    assert row.task.state is TaskState.CANCELLED
    assert logged()[-1] == (
        'WARNING', f'{model.format_task(task)}: cancelled: {row.error_type}: {row.error}')
    event, result = bench.told[-1]
    assert (event, result) == ('migration.failed', model.TaskResult(
        task.task_id, bench.plan_id, 'blue', task.instance_uuid, 'h1', 'h2', success=False,
        error=row.error, error_type=row.error_type, duration_seconds=0.0, retry_count=3,
        completed_at=cases.NOW))
    assert bench.counted('tasks_ended')['spread', 'live', 'cancelled'] == 1


def test_a_purged_task_is_counted_and_not_notified(bench, logged):
    bench.worker._outcomes.report_cancelled_task(cases.make_task('p'), bench.now)
    assert (logged(), bench.told) == ([], [])
    assert bench.counted('tasks_ended') == {('spread', 'live', 'cancelled'): 1}


def test_error_about_a_failed_notification_names_event_and_task(bench, logged):
    def broken(event, result):
        raise OSError('broker is away')
    bench.worker._outcomes._notify = broken
    bench.plan()
    bench.passes(2)
    task, = bench.tasks
    assert bench.state is TaskState.COMPLETED
    assert logged()[-1] == (
        'WARNING', f'{model.format_task(task)}: its migration.completed notification was not sent '
                   '(OSError: broker is away)')


def test_a_host_that_keeps_refusing_is_quarantined_with_its_last_reason(bench, logged):
    chosen = retry.RetrySettings(per_source=9, per_destination=9, host_refusals=2,
                                 host_quarantine_seconds=120)
    bench.driver.answers['submit'] = [refusing(exception.MigrationFailed)]
    bench.plan(once, once)
    bench.passes(2, by=bench.new_worker('w', chosen), seconds=0)
    found, = (q for q in bench.store.quarantine.list_quarantines(bench.now) if q.kind == 'host')
    assert (found.name, found.until) == ('h2', cases.NOW + 120)
    assert found.reason in {bench.row(n).error for n in (0, 1)}
    assert ('WARNING', 'Host h2 refused 2 migrations in a row: no more are sent to it for 120 s. '
                       'See its nova-compute log.') in logged()


def test_hosts_of_different_cells_are_logged_and_stored_with_the_reason(bench, logged):
    def other_cell(task):
        return exception.OtherCell(
            instance_uuid=task.instance_uuid, rule='cell-differs', problem='HTTP 400',
            from_host=task.from_host, to_host=task.to_host)
    bench.driver.answers['submit'] = [other_cell]
    bench.plan(once)
    chosen = retry.RetrySettings(other_cell_seconds=240)
    bench.passes(1, by=bench.new_worker('w', chosen))
    found, = bench.store.quarantine.list_quarantines(bench.now)
    assert (found.kind, found.name, found.until, found.reason) == (
        'cells', 'h1 h2', cases.NOW + 240, str(other_cell(bench.tasks[0])))
    assert ('WARNING', 'Hosts h1 and h2 are probably in different cells: for 240 s nothing is '
            'moved between them. Name the cells, or correct their names, in the metadata of '
            'aggregates; see [engine] cell_metadata_key.') in logged()


def test_disks_of_a_source_are_kept_with_the_reason_as_long_as_is_set(bench):
    bench.driver.answers['read_progress'] = [base.MigrationProgress(
        base.MigrationStage.FAILED, 'it has disks', 'm1', 'copies-disk')]
    bench.plan(once)
    bench.passes(2, by=bench.new_worker('w', retry.RetrySettings(local_disk_seconds=360)))
    found, = bench.store.quarantine.list_quarantines(bench.now)
    assert (found.kind, found.name, found.until, found.reason) == (
        'disks', 'h1', cases.NOW + 10 + 360, bench.row().error)


def test_own_refusal_of_local_disks_is_not_remembered_as_novas_answer(bench):
    bench.driver.answers['pre_flight'] = [
        refusing(exception.PreFlightError, rule='copies-disk')]
    bench.store.quarantine.record_local_disks('h1', bench.now - 100, 360, 'Nova said so')
    bench.plan(once, lambda p, s: cases.make_task(p, s, from_host='h7'))
    bench.passes(2, by=bench.new_worker('w', retry.RetrySettings(local_disk_seconds=360)))
    assert [bench.row(i).task.state for i in (0, 1)] == [TaskState.FAILED] * 2
    assert [(q.name, q.until, q.reason)
            for q in bench.store.quarantine.list_quarantines(bench.now)] == [
                ('h1', cases.NOW + 260, 'Nova said so')]


def swap(state, noun='swap', **kw):
    """'a' has moved to h2, 'b' was to come to h1 or, of a pair, to go to h3."""
    where = {'a': 'h2', 'b': 'h2'}
    target = 'h1' if noun == 'swap' else 'h3'
    done = rows.TaskRow(cases.make_task(
        'p', instance_uuid='a', state=TaskState.COMPLETED), completed_at=1.0)
    return swaps.StoredSwap(
        'id', 'plan', 'blue', state, (swaps.SwapMember('a', 'h1', 'h2'),
                                      swaps.SwapMember('b', 'h2', target)),
        undos=('undo-1', 'undo-2'), where=where, tasks=(done,), **kw)


@pytest.mark.parametrize(('found', 'level', 'text'), [
    (swap(swaps.STUCK), 'ERROR',
     'Swap of instances a and b (plan plan): it failed, and so did its undo. Instance a is on h2 '
     'and was on h1. Find out why (kronos plan show plan), then move them with kronos plan retry, '
     'or openstack server migrate --live-migration.'),
    pytest.param(swap(swaps.UNDONE, 'pair'), 'WARNING',
                 'Pair of instances a and b (plan plan): undone, both are where they were',
                 marks=pytest.mark.mutant),
    pytest.param(swap(swaps.UNDOING, 'pair'), 'WARNING',
                 'Pair of instances a and b (plan plan): it failed, and is undone by plan undo-2',
                 marks=pytest.mark.mutant)],
    ids=['stuck', 'undone', 'undoing'])
def test_log_of_a_failed_swap_names_its_instances(logged, found, level, text):
    outcomes.OutcomeWriter.log_swap_undo(found)
    assert logged() == [(level, text)]


def test_a_stuck_swap_names_displaced_instances_the_last_moved_first(logged):
    found = swap(swaps.STUCK)
    tasks = [rows.TaskRow(cases.make_task('p', instance_uuid=uuid, state=TaskState.COMPLETED),
                          completed_at=when) for when, uuid in enumerate('ab')]
    outcomes.OutcomeWriter.log_swap_undo(dataclasses.replace(
        found, where={'a': 'h2', 'b': 'h1'}, tasks=tuple(tasks)))
    assert 'Instance b is on h1 and was on h2; Instance a is on h2 and was on h1. ' in (
        logged()[0][1])


# What is written and told.

def test_a_result_tells_all_of_its_task_and_each_attempt(bench):
    bench.driver.answers['submit'] = [refusing(exception.MigrationFailed), 'req-1']
    bench.driver.answers['read_progress'] = [base.MigrationProgress(base.MigrationStage.RUNNING, '',
                                                                    MIGRATION),
                                             base.MigrationProgress(base.MigrationStage.COMPLETED,
                                                                    '', MIGRATION)]
    bench.plan()
    bench.passes(4)
    task, = bench.tasks
    (event, told), = bench.told
    row = bench.row()
    assert event == 'migration.completed'
    assert told == model.TaskResult(
        task.task_id, bench.plan_id, 'blue', task.instance_uuid, 'h1', 'h3', success=True,
        duration_seconds=20.0, completed_at=cases.NOW + 30, attempts=row.attempts)
    refused, done = row.attempts
    text = str(refusing(exception.MigrationFailed)(task))
    assert (refused.to_host, refused.started_at, refused.ended_at, refused.error,
            refused.error_type, refused.migration_uuid) == (
                'h2', cases.NOW, cases.NOW, text, 'MigrationFailed', None)
    assert (done.to_host, done.started_at, done.ended_at, done.error, done.error_type,
            done.migration_uuid) == ('h3', cases.NOW + 10, cases.NOW + 30, None, None, MIGRATION)


def test_an_attempt_without_a_request_begins_with_its_claim(bench):
    def slow(task):
        bench.now += 25
        raise refusing(exception.InstanceRefused)(task)
    bench.driver.answers['pre_flight'] = [slow]
    bench.plan(once)
    bench.passes(1)
    attempt, = bench.row().attempts
    (_, told), = bench.told
    assert (attempt.started_at, attempt.ended_at) == (cases.NOW, cases.NOW + 25)
    assert (told.duration_seconds, told.completed_at) == (0.0, cases.NOW + 25)


def test_a_clock_that_was_set_back_gives_no_negative_time(bench):
    bench.plan()
    bench.driver.answers['read_progress'] = [
        lambda task: setattr(bench, 'now', cases.NOW - 100) or base.MigrationStage.COMPLETED]
    bench.passes(2)
    (_, told), = bench.told
    assert told.success and told.duration_seconds == 0.0


def test_failure_events_tell_a_pending_retry_from_the_final_failure(bench):
    bench.driver.answers['submit'] = [refusing(exception.NovaClientError)]
    bench.plan(lambda p, s: cases.make_task(p, s, alternates=(), max_retries=1))
    bench.passes(2, seconds=60)
    (first, pending), (last, final) = bench.told
    task, = bench.tasks
    text = str(refusing(exception.NovaClientError)(task))
    assert (first, last) == ('migration.failed',) * 2
    assert (pending.retry_count, final.retry_count) == (0, 1)
    assert (pending.error, pending.error_type, pending.success, pending.completed_at) == (
        text, 'NovaClientError', False, cases.NOW)
    assert pending.attempts == bench.row().attempts[:1]
    assert [a.error for a in final.attempts] == [text] * 2


def test_an_end_that_is_not_retried_reads_as_final(bench):
    bench.driver.answers['submit'] = [refusing(exception.InstanceRefused)]
    bench.plan(lambda p, s: cases.make_task(p, s, max_retries=3))
    bench.passes(1)
    (_, told), = bench.told
    assert told.retry_count == 3


def test_a_refusal_that_goes_on_is_counted_with_its_time_by_phase(bench):
    bench.driver.answers['submit'] = [refusing(exception.MigrationFailed), 'req-1']
    bench.plan()
    bench.now += 7
    bench.passes(1)
    assert bench.counted('failed_attempts') == {('MigrationFailed',): 1}
    row = bench.row()
    assert (row.task.state, row.task.to_host, row.attempt) == (TaskState.QUEUED, 'h3', 1)
    assert row.marks == (), 'those of the next attempt begin with its claim'
    phases = bench.tally.copy_tally().durations['phases']
    assert phases['live', 'queue'].total == row.attempts[0].phases['queue'] == 7


def test_without_listeners_and_counters_a_task_ends_all_the_same(bench):
    alone = outcomes.OutcomeWriter(bench.store, retry.RetrySettings(), None, 'w1',
                                   lambda: bench.now)
    bench.plan()
    row = cases.claim(bench.store, 'w1', now=bench.now)
    assert alone.end_task(row, TaskState.CANCELLED, outcomes.CANCELLED_TYPE, 'by hand')
    assert (bench.state, bench.row().error, bench.row().error_type) == (
        TaskState.CANCELLED, 'by hand', 'MigrationCancelled')
    assert bench.row().attempts == (model.Attempt(
        'h2', cases.NOW, cases.NOW, 'MigrationCancelled', 'by hand',
        phases=bench.row().attempts[0].phases),)


def test_task_of_a_deleted_instance_is_cancelled_with_the_error(bench):
    gone = error(exception.PreFlightError)
    gone.kwargs['rule'] = retry.GONE
    bench.driver.answers['pre_flight'] = [gone]
    bench.plan()
    bench.passes(1)
    assert (bench.state, bench.row().error, bench.row().error_type) == (
        TaskState.CANCELLED, str(gone), 'MigrationCancelled')
    assert (bench.quarantined(), bench.counted('failed_attempts')) == ({}, {})


@pytest.mark.parametrize(('kind', 'seconds'), [
    (exception.InstanceRefused, 480), (exception.InstanceInError, None)])
def test_instance_quarantine_lasts_as_configured_or_forever_in_error(bench, kind, seconds):
    bench.driver.answers['submit'] = [refusing(kind)]
    bench.plan(once)
    bench.passes(1, by=bench.new_worker('w', retry.RetrySettings(instance_quarantine_seconds=480)))
    found, = bench.store.quarantine.list_quarantines(bench.now)
    assert (found.kind, found.name, found.until) == (
        'instance', bench.tasks[0].instance_uuid, seconds and cases.NOW + seconds)


# A rehearsal, and doubts.

def test_a_rehearsal_says_what_would_be_moved_and_asks_for_nothing(bench, logged):
    driver = dry_run.DryRunExecutor()
    task = cases.make_task('p')
    assert not driver.hooked
    assert (driver.pre_flight(task, None), driver.submit(task), driver.post_flight(task)) == (
        'dry-run', None, None)
    assert logged(dry_run) == [
        ('INFO', f'{model.format_task(task)}: dry run: would be moved (live) from h1 to h2 '
                 '(spread)')]
    assert driver.read_progress(task,
                                'dry-run') == base.MigrationProgress(base.MigrationStage.COMPLETED,
                                                                     'dry run')


@pytest.mark.parametrize('stage', migration_uncertainty.SAID)
def test_a_doubt_is_described_until_the_task_ends(stage):
    row = rows.TaskRow(cases.make_task('p', state=TaskState.SUBMITTED), doubt_since=1234.5,
                       doubt=migration_uncertainty.encode_doubt(stage, 1234.5))
    assert migration_uncertainty.find_doubt_since(row, stage) == 1234.5
    assert migration_uncertainty.describe_doubt(row) == migration_uncertainty.SAID[stage]
    assert {migration_uncertainty.find_doubt_since(row, other)
            for other in set(migration_uncertainty.SAID) - {stage}} == {None}
    for over in (dataclasses.replace(row, doubt_since=None),
                 dataclasses.replace(row, task=cases.make_task('p', state=TaskState.FAILED))):
        assert migration_uncertainty.describe_doubt(over) is None
    assert migration_uncertainty.describe_doubt(dataclasses.replace(row, doubt=None)) == (
        migration_uncertainty.UNNAMED), 'an older executor'
