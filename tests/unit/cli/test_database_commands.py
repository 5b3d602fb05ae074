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


"""``kronos pause``, ``resume`` and ``quarantine``, run as an operator runs them."""

import dataclasses
import json
import subprocess
import sys
import time

from oslo_config import cfg
from oslo_utils import uuidutils
import pytest

from kronos_nova import model
from kronos_nova.cli import plan_text
from kronos_nova.cli import task as task_commands
from kronos_nova.cli import what_if
from kronos_nova.conf import opts
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.operations import plan_comparisons
from kronos_nova.rebalancer.operations import scope_liveness
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import rows
from kronos_nova.text import times
from tests import commands
from tests.fixtures import stores
from tests.unit.rebalancer.store import cases

pytestmark = pytest.mark.turns(3)


@pytest.fixture
def run(tmp_path):
    """Runs a command; (exit status, output, last error line)."""
    conf = tmp_path / 'kronos.conf'
    conf.write_text(f'[database]\nconnection = sqlite:///{tmp_path}/kronos.sqlite\n'
                    '[engine]\naggregates = blue\ninclude_unassigned_hosts = false\n')

    def run(*args):
        done = commands.main('kronos_nova.cli.app', *args, '--config-file', conf)
        assert 'Traceback' not in done.stdout + done.stderr
        return done.returncode, done.stdout, (done.stderr.splitlines() or [''])[-1]

    return run


@pytest.fixture
def store(tmp_path):
    store = stores.in_file(tmp_path / 'kronos.sqlite')
    yield store
    store.close()


def test_a_pause_shows_operator_reason_and_end(run, store):
    status, out, error = run('pause', '--scope', 'blue', '--reason', 'a\tstorm\n\x1b[31m')
    assert (status, out) == (0, 'Scope blue is paused until kronos resume.\n'), error
    status, out, error = run('pause', '--for', '2h', '--reason', 'holidays')
    assert status == 0 and out.startswith('Everything is paused until 2'), error
    everything, blue = json.loads(run('pause', 'list', '-f', 'json')[1])
    assert everything['Scope'] == 'everything' and everything['Reason'] == 'holidays'
    assert blue['Until'] == '' and blue['Reason'] == 'a storm ?[31m' and '@' in blue['By']


def test_resume_prints_the_reason_of_another_pause_as_one_line_of_text(run, store):
    store.pauses.pause_scope('blue', store.now(), seconds=None, paused_by='mallory\x1b[2J',
                             reason='done\nScope ssd goes on.')
    store.pauses.pause_scope(None, store.now(), seconds=None, paused_by='alice', reason='holidays')
    assert run('resume')[1] == ('Everything goes on.\nScope blue is still paused by mallory?[2J: '
                                'done?Scope ssd goes on.\n')


def test_a_closed_standard_error_puts_no_notice_into_the_output(tmp_path):
    path = tmp_path / 'kronos.conf'
    path.write_text(f'[database]\nconnection = sqlite:///{tmp_path}/missing.sqlite\n')
    done = subprocess.run(
        ['sh', '-c', 'exec "$0" "$@" 2>&-', sys.executable, '-W', 'ignore', '-c',
         'import sys; from kronos_nova.cli.app import main; sys.exit(main())', 'plan', 'list',
         '-f', 'json', '--config-file', path], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, '[]')


#: kronos on a workstation whose clock is seven hours ahead.
AHEAD = ('import sys, time; real = time.time; time.time = lambda: real() + 25200; '
         'from kronos_nova.cli.app import main; sys.exit(main())')


def test_times_are_those_of_the_database_and_not_of_the_workstation(run, store, tmp_path):
    plan_id, (task,), _ = cases.save(store, now=time.time())
    where = ('--config-file', tmp_path / 'kronos.conf')
    before = store.now()
    assert commands.run(AHEAD, 'pause', '--for', '2h', '--reason', 'why', *where).returncode == 0
    pause, = store.pauses.list_pauses(store.now())
    assert before <= pause.since <= store.now()
    assert pause.until == pytest.approx(pause.since + 7200)
    done = commands.run(AHEAD, 'pause', 'list', '-f', 'value', *where)
    assert 'everything' in done.stdout, 'for it the pause would be over'
    done = commands.run(AHEAD, 'task', 'cancel', task.task_id, '--reason', 'why', *where)
    assert done.returncode == 0, done.stderr
    assert before <= store.tasks.find_task(task.task_id).completed_at <= store.now()


def test_resume_ends_one_pause_and_says_what_still_holds(run, store):
    for args in (('--scope', 'blue'), ()):
        assert run('pause', *args, '--reason', 'why')[0] == 0
    status, out, _ = run('resume', '--scope', 'blue')
    assert status == 0 and 'Scope blue goes on.' in out and 'Everything is still paused' in out
    assert run('resume')[:2] == (0, 'Everything goes on.\n')
    status, _, error = run('resume')
    assert status == 1 and 'Everything is not paused. Paused is: nothing' in error


def test_pausing_an_unknown_scope_is_refused(run, store):
    store.leases.acquire_lease('red', 'engine', 30, 'hash')
    status, _, error = run('pause', '--scope', 'bleu', '--reason', 'why')
    assert status == 1 and "'bleu'" in error and '_unassigned_, blue, red' in error
    assert not store.pauses.list_pauses(0)
    for known in ('blue', 'red', '_unassigned_'):
        assert run('pause', '--scope', known, '--reason', 'why')[0] == 0


@pytest.mark.parametrize('given', ['a while', '99999999w', '9' * 400 + 's'])
def test_an_invalid_duration_is_refused(run, store, given):
    status, _, error = run('pause', '--for', given, '--reason', 'why')
    assert status == 1 and '--for' in error and not store.pauses.list_pauses(0)


def test_a_pause_needs_a_reason(run, store):
    assert run('pause')[0] == 2 and not store.pauses.list_pauses(0)


def test_pausing_creates_no_database(run, tmp_path):
    status, _, error = run('pause', '--reason', 'why')
    assert status == 1 and 'does not exist' in error
    assert not (tmp_path / 'kronos.sqlite').exists()


def test_a_quarantine_is_listed_with_its_reason_and_lifted(run, store):
    now = time.time()
    store.quarantine.record_local_disks('h2', now, 3600, 'no shared storage')
    for _ in range(2):
        store.quarantine.count_refusal('h1', now, limit=2, seconds=3600,
                                       reason='No valid host\x1b[31m')
    disks, host = json.loads(run('quarantine', 'list', '-f', 'json')[1])
    assert (disks['Kind'], disks['Name']) == ('disks', 'h2') and disks['Until']
    assert (host['Name'], host['Reason']) == ('h1', 'No valid host?[31m')
    assert run('quarantine', 'lift', 'host', 'h1')[:2] == (0, 'host h1 is free again.\n')
    assert not store.history.read_history('blue', now).quarantined_hosts
    status, _, error = run('quarantine', 'lift', 'host', 'h1')
    assert status == 1 and 'not in quarantine' in error
    assert run('quarantine', 'lift', 'disks', 'h2')[0] == 0
    assert json.loads(run('quarantine', 'list', '-f', 'json')[1]) == []


def test_a_quarantine_that_has_lapsed_is_not_lifted(run, store):
    store.quarantine.record_local_disks('h2', store.now() - 100, 60, 'Nova said so')
    status, _, error = run('quarantine', 'lift', 'disks', 'h2')
    assert status == 1 and 'not in quarantine' in error
    assert store.audit.list_newest_entries(9) == []


def test_tasks_are_listed_and_what_nova_was_asked_for_is_not_cancelled(run, store):
    now = time.time()
    _, (first, second), _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, from_host='h1', not_before=now),
        lambda p, s: cases.make_task(p, s, from_host='h5', not_before=now)], now=now)
    begun = cases.claim(store, now=now).task
    store.tasks.update_state(begun.task_id, 'w', [begun.state], model.TaskState.SUBMITTING, now)
    waits = second if begun.task_id == first.task_id else first
    listed = {row['Task']: row for row in json.loads(run('task', 'list', '-f', 'json')[1])}
    assert {i: listed[i]['State'] for i in listed} == {
        begun.task_id: 'submitting', waits.task_id: 'queued'}
    assert listed[waits.task_id]['Method'] == 'live'
    status, out, error = run('task', 'cancel', waits.task_id, '--reason', 'a\tchange\x1b[31m')
    assert (status, out) == (0, f'Task {waits.task_id} of instance {waits.instance_uuid} is '
                                'cancelled.\n'), error
    row = store.tasks.find_task(waits.task_id)
    assert (row.task.state, row.error_type) == (model.TaskState.CANCELLED, 'MigrationCancelled')
    assert row.error.startswith('Cancelled by ') and 'a change' in row.error
    everything = json.loads(run('task', 'list', '--all', '-f', 'json')[1])
    assert [(row['Task'], row['State']) for row in everything] == [
        (begun.task_id, 'submitting'), (waits.task_id, 'cancelled')]
    assert len(json.loads(run('task', 'list', '-f', 'json')[1])) == 1
    for other, why in ((waits.task_id, 'it is cancelled'), (begun.task_id, 'it is submitting'),
                       ('nobody', 'no such task')):
        status, _, error = run('task', 'cancel', other, '--reason', 'why')
        assert status == 1 and why in error and 'openstack server migration abort' in error
    assert store.tasks.find_task(begun.task_id).task.state is model.TaskState.SUBMITTING


@pytest.mark.parametrize(('fields', 'said'), [
    ({'error_type': 'MigrationTimeout', 'error': 'late'}, 'openstack server migration abort '),
    ({'doubt': rows.note_unchanged(1000.0, '1', 100.0), 'doubt_since': 1000.0},
     'Nova does not change the migration: kronos task resolve '),
    ({}, '')])
def test_task_show_has_novas_migration_and_the_next_step(run, store, fields, said):
    now, migration = time.time(), uuidutils.generate_uuid()
    cases.save(store, [lambda p, s: cases.make_task(p, s, not_before=now)], now=now)
    task = cases.claim(store, now=now).task
    store.tasks.update_state(task.task_id, 'w', [task.state], model.TaskState.UNKNOWN, now,
                             reference=migration, **fields)
    shown = listed(run, 'task', 'show', task.task_id)
    assert shown['Nova migration'] == migration
    assert said in shown['Next step'] and bool(said) == bool(shown['Next step'])
    if said:
        assert f'kronos task resolve {task.task_id} --as completed' in shown['Next step']


def test_task_show_says_how_to_go_on_after_a_failure(run, store):
    now = time.time()
    cases.save(store, [lambda p, s: cases.make_task(p, s, not_before=now)], now=now)
    row = cases.claim(store, now=now)
    task = row.task
    cases.end(store, row, model.TaskState.FAILED, now)
    step = listed(run, 'task', 'show', task.task_id)['Next step']
    retry = step[step.index('kronos plan retry'):].replace('TEXT', 'repaired').split()
    assert retry[3:6] == [task.plan_id, '--move', task.instance_uuid]
    assert f'openstack server event list {task.instance_uuid}' in step
    assert store.tasks.find_task(task.task_id).task.state is model.TaskState.FAILED
    assert run(*retry[1:])[0] == 1, 'Nova is away, and the arguments exist'
    assert run(*retry[1:], '--tomorrow')[0] == 2


def test_task_show_leads_from_an_unexpected_error_to_the_traceback(run, store):
    now = time.time()
    cases.save(store, [lambda p, s: cases.make_task(p, s, not_before=now)], now=now)
    row = cases.claim(store, now=now)
    cases.end(store, row, model.TaskState.FAILED, now, error_type='UnexpectedError')
    step = listed(run, 'task', 'show', row.task.task_id)['Next step']
    assert step.startswith('the traceback in the log of kronos-executor; report it; when')
    assert f'kronos plan retry {row.task.plan_id}' in step and 'server event' not in step


def test_resolve_ends_a_task_that_nova_never_finishes(run, store):
    now = time.time()
    plan_id, (task, waits), _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, not_before=now, instance_uuid='first'),
        lambda p, s: cases.make_task(p, s, from_host='h5', requires=('first',))], now=now)
    how = ('task', 'resolve', task.task_id, '--as', 'failed', '--reason', 'host\tlost\x1b[31m')
    status, _, error = run(*how)
    assert status == 1 and 'it is queued, not submitted or unknown' in error
    begun = cases.claim(store, now=now).task
    store.tasks.update_state(begun.task_id, 'w', [begun.state], model.TaskState.UNKNOWN, now)
    assert run(*how)[:2] == (0, f'Task {task.task_id} is resolved as failed.\n'
                                f'Task {waits.task_id} of instance {waits.instance_uuid} is '
                                'cancelled.\n')
    row = store.tasks.find_task(task.task_id)
    assert (row.task.state, row.error_type) == (model.TaskState.FAILED, 'MigrationResolved')
    (said,) = listed(run, 'plan', 'show', plan_id)['Decisions']
    assert said['verb'] == 'resolved' and task.task_id in said['reason']
    status, _, error = run('task', 'resolve', 'nobody', '--as', 'failed', '--reason', 'why')
    assert status == 1 and 'no such task' in error


@pytest.mark.parametrize(('kept', 'said'), [
    ('absent', 'Nova shows no migration of this instance'),
    ('settling', 'its migration failed, and not all that it had taken is given back'),
    ('untold', 'its migration failed, and Nova has not said why'),
    ('untold@1', 'what Nova shows contradicts it'), (None, 'what Nova shows contradicts it')])
@pytest.mark.parametrize('error', [None, 'It is late.'])
def test_a_task_in_doubt_is_shown_with_the_doubt_and_its_start(run, store, kept, said, error):
    now = time.time()
    cases.save(store, [lambda p, s: cases.make_task(p, s, not_before=now)], now=now)
    task = cases.claim(store, now=now).task

    def shown():
        listed, = json.loads(run('task', 'list', '-f', 'json')[1])
        assert listed['State'] == 'submitted'
        return listed['Error'], json.loads(run('task', 'show', task.task_id, '-f', 'json')[1])

    assert store.tasks.update_state(task.task_id, 'w', [task.state], model.TaskState.SUBMITTED, now,
                                    error=error)
    errors, whole = shown()
    assert (errors, whole['Doubt']) == (error or '', '')
    doubt = f'{kept}@{now - 90:.0f}' if kept in list(base.MigrationStage) else kept
    assert store.tasks.update_state(task.task_id, 'w', [model.TaskState.SUBMITTED],
                                    model.TaskState.SUBMITTED,
                                    now, doubt_since=now - 90, doubt=doubt)
    errors, whole = shown()
    said = f'{said}, since {times.format_time(now - 90)}'
    assert whole['Doubt'] == said and whole['Error'] == (error or '')
    assert errors == (said if error is None else f'{error}; {said}')


def test_nothing_is_doubted_of_a_task_that_is_over(run, store):
    now = time.time()
    cases.save(store, [lambda p, s: cases.make_task(p, s, not_before=now)], now=now)
    row = cases.claim(store, now=now)
    task = row.task
    assert store.tasks.update_state(task.task_id, 'w', [task.state], model.TaskState.SUBMITTED, now,
                                    doubt_since=now, doubt=f'untold@{now:.0f}')
    cases.end(store, row, model.TaskState.FAILED, now, error_type='MigrationFailed')
    assert store.tasks.find_task(task.task_id).task.state is model.TaskState.FAILED
    assert json.loads(run('task', 'show', task.task_id, '-f', 'json')[1])['Doubt'] == ''


def test_a_task_is_shown_with_its_alternates_and_every_attempt(run, store):
    now = time.time()
    _, (task,), _ = cases.save(store, [lambda p, s: cases.make_task(
        p, s, improvement=0.3, alternates=('h3', 'h4', 'h5'), not_before=now,
        alternate_improvements=(0.2, 0.1, -0.05))], now=now)
    mine = cases.claim(store, now=now)
    refused = model.Attempt('h2', now - 60, now - 30, 'MigrationFailed', 'no\x1b[31m CPU',
                            '6c6c5d80-9b43-4d5c-8f43-0d7bb8a3d201',
                            {'queue': 2.0, 'running': 11.25})
    assert store.tasks.requeue_task(task.task_id, 'w', now, not_before=now, retry_count=0,
                                    attempt=1,
                                    attempts=[refused]), mine
    shown = json.loads(run('task', 'show', task.task_id, '-f', 'json')[1])
    assert (shown['To'], shown['Improvement']) == ('h3', 0.2)
    assert shown['Alternates'] == [
        {'host': 'h4', 'improvement': 0.1}, {'host': 'h5', 'improvement': -0.05}]
    attempt, = shown['Attempts']
    assert attempt['to_host'] == 'h2' and attempt['error'] == 'no?[31m CPU'
    assert attempt['migration_uuid'] == refused.migration_uuid
    assert attempt['phases'] == {'queue': 2.0, 'running': 11.25}
    values = task_commands._render_task(store.tasks.find_task(task.task_id), nested=False)[1]
    assert 'h4 (0.1000)\nh5 (-0.0500)' in values
    assert f'migration {refused.migration_uuid}: MigrationFailed: no?[31m CPU\n' in values[-1]
    assert values[-1].endswith('\n  queue 2 s, running 11 s')
    status, _, error = run('task', 'show', 'nobody')
    assert status == 1 and 'no such task' in error


def test_a_task_shows_the_hooks_that_are_owed(run, store):
    now = time.time()
    cases.save(store, [lambda p, s: cases.make_task(p, s, not_before=now)], now=now)
    row = cases.claim(store, now=now)
    what = pending_hooks.PendingHook(cases.new_id(), row.task, 0, model.TaskHook('pscom\x1b[31m'),
                                     '', now)
    assert store.hooks.record_hook(what, 'w', now, ())
    task_id = row.task.task_id
    shown = json.loads(run('task', 'show', task_id, '-f', 'json')[1])
    assert shown['Owed hooks'] == [f'pscom?[31m for h2, since {times.format_time(now)}']
    store.hooks.postpone_hook(dataclasses.replace(what, tries=2, error='is away'), 'w')
    out = run('task', 'show', task_id, '-f', 'value', '-c', 'Owed hooks')[1]
    assert out == f'pscom?[31m for h2, since {times.format_time(now)}, tried 2 times: is away\n'


def test_a_task_shows_the_steps_against_its_migration(run, store):
    now = time.time()
    cases.save(store, [lambda p, s: cases.make_task(p, s, not_before=now)], now=now)
    task = cases.claim(store, now=now).task
    forced = model.EscalationStep(model.EscalationKind.FORCE_COMPLETE, now, 'it writes')
    for step, line in (
            (forced, 'no answer is known'),
            (dataclasses.replace(forced, answer='Nova refused: no\x1b[31m'),
             'Nova refused: no?[31m'),
            (dataclasses.replace(forced, answer='accepted', seconds=4.0, expected_seconds=5.0),
             'accepted; it had arrived about 4 s later; 5 s were expected for a pause')):
        assert store.tasks.update_state(
            task.task_id, 'w', [task.state], task.state, now,
            escalation=rows.format_escalation([step]))
        out = run('task', 'show', task.task_id, '-f', 'value', '-c', 'Escalation')[1]
        assert out == f'force-complete, {times.format_time(now)}: it writes: {line}\n'
    shown = json.loads(run('task', 'show', task.task_id, '-f', 'json')[1])
    assert shown['Escalation'] == [{
        'kind': 'force-complete', 'at': times.format_time(now), 'reason': 'it writes',
        'answer': 'accepted', 'seconds': 4.0, 'expected_seconds': 5.0}]


def listed(run, *args):
    status, out, error = run(*args, '-f', 'json')
    assert status == 0, error
    return json.loads(out)


def test_the_status_tells_of_each_scope_who_plans_it_and_what_holds_it(run, store, tmp_path):
    now = time.time()
    assert [(r['Scope'], r['Engine'], r['Moves']) for r in listed(run, 'status')] == [
        ('blue', '', None)], 'what is configured and was never planned'
    plan = model.Plan('blue', reason='a first look')
    store.plans.save_plan(None, plan, [], plan_id='dry', now=now - 3600, dry_run=True, cooldown=0,
                          instance_cooldown=0)
    (blue,) = listed(run, 'status')
    assert (blue['Engine'], blue['Dry run'], blue['Reason']) == ('', True, 'a first look')
    assert blue['Planned at'] == times.format_time(now - 3600)
    _, (first, _second), _ = cases.save(store, 2, now=now - 60, draining=['h1'])
    claimed = cases.claim(store, 'ctl1:executor', now=now)
    cases.save(store, 0, 'red\x1b[31m', now=now, reason='nothing to gain')
    store.leases.release_lease(cases.lease_of(store, 'red\x1b[31m'))
    store.pauses.pause_scope('blue', now, seconds=None, paused_by='me', reason='a change')
    store.executors.record_heartbeat('idle', None)
    store.executors.record_heartbeat('elsewhere', ['green'])
    blue, red = listed(run, 'status')
    assert (blue['Engine'], blue['Moves'], blue['Dry run'], blue['Draining']) == (
        'engine', 2, False, 1)
    assert blue['Policies'] == [{
        'name': 'cpu', 'imbalance_measured': 0.4, 'imbalance_before': 0.4,
        'imbalance_after': 0.1, 'threshold': 0.15, 'skipped': False, 'reason': None,
        'age_seconds': None}]
    assert blue['Tasks'] == {'claimed': 1, 'queued': 1} and blue['Overdue'] == 0
    assert blue['Executors'] == {'ctl1:executor': 1, 'idle': 0} and claimed.task.task_id
    assert red['Executors'] == {'idle': 0}
    assert 'a change' in blue['Paused'] and 'me' in blue['Paused']
    assert (red['Scope'], red['Engine'], red['Reason'], red['Paused']) == (
        'red?[31m', '', 'nothing to gain', '')
    status, table, error = run('status', '--wide')
    assert (status, '\x1b' in table) == (0, False), error
    assert 'cpu: measured 0.4000 (threshold 0.1500), planned 0.1000' in table
    assert '1 claimed, 1 queued' in table
    assert '1 ctl1:executor, 0 idle' in table


def test_status_counts_executors_apart_whose_names_print_alike(run, store):
    cases.save(store, 1, now=time.time() - 60)
    cases.claim(store, 'ctl\x1b', now=time.time())
    store.executors.record_heartbeat('ctl\x07', None)
    (blue,) = listed(run, 'status')
    assert blue['Executors'] == {'ctl\x1b': 1, 'ctl\x07': 0}
    status, table, error = run('status')
    assert (status, '\x1b' in table, '\x07' in table) == (0, False, False), error
    assert '0 ctl?, 1 ctl?' in ' '.join(table.split())
    for form in ('json', 'yaml', 'csv', 'value'):
        assert not {'\x1b', '\x07'} & set(run('status', '-f', form)[1]), form


def test_the_status_has_what_the_last_cycle_found_and_why_later_ones_fail(run, store):
    now = time.time()
    lease = store.leases.acquire_lease('blue', 'engine', 30, 'hash')

    def cycle(at, imbalance):
        store.plans.save_plan(lease, model.Plan('blue', reason='enough', policies=(
            model.PolicyReport('cpu', imbalance, imbalance, 0.15),)), [], plan_id=f'at {at}',
            now=at, dry_run=False, cooldown=0, instance_cooldown=0)

    cycle(now - 90, 0.02)
    cycle(now - 60, 0.1)
    (blue,) = listed(run, 'status')
    assert blue['Policies'][0]['imbalance_before'] == 0.1, 'that of now, not of the first such'
    assert (blue['Planned at'], blue['Failing']) == (times.format_time(now - 60), '')
    store.plans.record_failed_cycle(lease, 'Nova is away\x1b[31m', now)
    (blue,) = listed(run, 'status')
    assert blue['Failing'] == f'{times.format_time(now)}: Nova is away?[31m'
    assert (blue['Planned at'], blue['Reason'], blue['Moves']) == (
        times.format_time(now - 60), 'enough', 0)
    store.plans.save_plan(None, model.Plan('blue', reason='a dry run'), [], plan_id='dry',
                          now=now + 1,
                          dry_run=True, cooldown=0, instance_cooldown=0)
    (blue,) = listed(run, 'status')
    assert blue['Reason'] == 'a dry run'


def test_plans_are_listed_newest_first_with_the_states_of_their_tasks(run, store):
    now = time.time()
    older, _, _ = cases.save(store, 1, now=now - 60)
    row = cases.claim(store, now=now)
    cases.end(store, row, now=now)
    newer, _, _ = cases.save(store, 0, 'red', now=now, reason='a\tpause\x1b[31m')
    first, second = listed(run, 'plan', 'list')
    assert (first['Plan'], first['Moves'], first['Tasks'], first['Reason']) == (
        newer, 0, '', 'a?pause?[31m')
    assert (second['Plan'], second['Scope'], second['Tasks'], second['Dry run']) == (
        older, 'blue', '1 completed', False)
    assert [r['Plan'] for r in listed(run, 'plan', 'list', '--limit', '1')] == [newer]
    assert [r['Plan'] for r in listed(run, 'plan', 'list', '--scope', 'blue')] == [older]
    status, _, error = run('plan', 'list', '--scope', 'bleu')
    assert status == 1 and 'no engine has planned' in error and 'blue, red' in error
    status, _, error = run('plan', 'list', '--limit', '0')
    assert status == 2 and 'is no number of rows' in error


def test_plan_list_names_the_requester_and_not_the_decider(run, store):
    now = time.time()
    engines, _, _ = cases.save(store, 1, now=now - 60)
    store.approvals.cancel_plan(engines, now, plan_decisions.OperatorDecision('me@here'), 900.0)
    asked, _, _ = cases.save(store, 1, now=now)
    store.run_transaction(lambda c: plan_decisions.record_decision(
        c, asked, now, 'asked', plan_decisions.OperatorDecision('migfra\x1b[31m', 'migrate vm'), 1))
    store.approvals.cancel_plan(asked, now, plan_decisions.OperatorDecision('me@here'), 900.0)
    assert {row['Plan']: row['Asked by'] for row in listed(run, 'plan', 'list')} == {
        asked: 'migfra?[31m', engines: ''}


def test_plan_show_has_moves_tasks_and_the_outcome(run, store):
    now = time.time()
    plan_id, (task,), _ = cases.save(store, 1, now=now)
    shown = listed(run, 'plan', 'show', plan_id)
    (move,) = shown['Moves']
    assert (move['instance_uuid'], move['from_host'], move['to_host'], move['state']) == (
        task.instance_uuid, 'h1', 'h2', 'queued')
    assert (move['task_id'], move['alternates']) == (task.task_id, ['h3'])
    assert shown['Rejections'] == {'claims': 3} and shown['Warnings'] == ['w']
    assert shown['Imbalance realised'] is None and shown['Policies'][0]['name'] == 'cpu'
    status, table, error = run('plan', 'show', plan_id)
    assert status == 0, error
    assert f'{task.instance_uuid} h1 to h2: spread, wave 0' in ' '.join(table.split())
    assert move['method'] == 'live'
    status, _, error = run('plan', 'show', 'nobody')
    assert status == 1 and 'no such plan' in error and 'keep_days' in error


def test_plan_show_names_the_moves_that_shut_a_guest_down(run, store):
    """Operators read it before they approve the plan."""
    plan_id, (task,), _ = cases.save(store, [lambda p, s: cases.make_task(
        p, s, phase=model.Phase.EVACUATE, method=model.MoveMethod.OFFLINE)], now=time.time())
    assert listed(run, 'plan', 'show', plan_id)['Moves'][0]['method'] == 'offline'
    _status, table, _error = run('plan', 'show', plan_id)
    assert (f'{task.instance_uuid} h1 to h2: evacuate, offline (shut down, moved cold and started '
            'again), wave 0') in ' '.join(table.replace('|', ' ').split())


def test_the_pairs_of_a_dry_run_are_shown_as_planned(run, store):
    plan = model.Plan('blue', (model.Move('a', 'h1', 'h2', model.Phase.SPREAD),
                               model.Move('b', 'h2', 'h1', model.Phase.SPREAD)),
                      swaps=(model.Swap('a', 'b'),))
    plan_id = cases.new_id()
    store.plans.save_plan(
        None, plan, [], plan_id=plan_id, now=time.time(), dry_run=True, cooldown=1,
                          instance_cooldown=1)
    assert listed(run, 'plan', 'show', plan_id)['Swaps'] == [
        {'instances': ['a', 'b'], 'state': 'planned', 'undos': []}]
    assert 'a and b: planned' in ' '.join(run('plan', 'show', plan_id)[1].split())


def test_a_move_is_explained_by_what_its_plan_found_and_foresaw(run, store, tmp_path):
    now = time.time()
    (tmp_path / 'policies.yaml').write_text(
        'policies: [{name: cpu, weight: 1.0, imbalance_query: cpu}]\n')
    conf = (tmp_path / 'kronos.conf').read_text()
    (tmp_path / 'kronos.conf').write_text(
        f'{conf}policies_file = {tmp_path}/policies.yaml\n')
    first = cases.new_id()
    plan_id, (_, task), _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, instance_uuid=first, not_before=now),
        lambda p, s: cases.make_task(
            p, s, improvement=0.3, alternates=('h3', 'h4'), alternate_improvements=(0.2, 0.1),
            requires=(first,), wave=1, not_before=now, from_host='h5')], now=now)
    found = {row['What']: (row['Verdict'], row['Detail'])
             for row in listed(run, 'explain', 'move', task.task_id, '--stored')}
    assert found['move'] == ('spread', f'instance {task.instance_uuid} from h5 to h2, wave 1 of '
                                       f'plan {plan_id}')
    assert found['planned'][1] == 'to lower the imbalance of the scope'
    assert found['policy cpu'] == ('then', 'imbalance 0.4000 to 0.1000 by the whole plan '
                                           '(threshold 0.1500)')
    assert found['alternate h3'][0] == '0.2000' and found['alternate h4'][0] == '0.1000'
    assert first in found['requires'][1] and found['state'] == ('queued', '')
    status, _, error = run('explain', 'move', 'nobody', '--stored')
    assert status == 1 and 'no such task' in error


def test_policy_text_has_the_age_of_samples_if_known():
    reports = [model.PolicyReport('cpu', 0.4, 0.1, 0.15, age=42.4),
               model.PolicyReport('mem', None, None, 0.15, True, 'too old', age=900.0)]
    assert plan_text.format_policies(reports, nested=False) == (
        'cpu: 0.4000 to 0.1000 (threshold 0.1500), samples 42 s old\n'
        'mem: too old, samples 900 s old')
    nested = plan_text.format_policies(reports, nested=True)
    assert [p['age_seconds'] for p in nested] == [42.4, 900.0]


def test_every_phase_can_be_explained():
    from kronos_nova.cli import explain
    assert explain._WHY.keys() == {str(phase) for phase in model.Phase}


def waiting_plan(store, now):
    first = cases.new_id()
    return cases.save(store, [
        lambda p, s: cases.make_task(p, s, instance_uuid=first, state=model.TaskState.PENDING,
                                     created_at=now, not_before=now, deadline=now + 3600),
        lambda p, s: cases.make_task(p, s, state=model.TaskState.PENDING, created_at=now,
                                     not_before=now, deadline=now + 3600, wave=1, from_host='h5',
                                     requires=(first,))], now=now)


def test_a_plan_is_approved_by_its_moves_and_names_the_operator(run, store):
    now = time.time()
    plan_id, (first, second), _ = waiting_plan(store, now)
    status, _, error = run('plan', 'approve', plan_id, '--move', second.instance_uuid)
    assert status == 1 and first.instance_uuid in error and 'approve these, too' in error
    status, out, error = run('plan', 'approve', plan_id, '--move', first.instance_uuid)
    assert (status, out) == (0, f'Task {first.task_id} of instance {first.instance_uuid} is '
                                'approved.\n'), error
    row = store.tasks.find_task(first.task_id).task
    assert row.state is model.TaskState.QUEUED and 1100 < row.deadline - now < 1300
    status, out, error = run('plan', 'reject', plan_id, '--reason', 'not\tnow\x1b[31m')
    assert status == 0 and f'{second.instance_uuid} is rejected' in out, error
    shown = listed(run, 'plan', 'show', plan_id)
    assert [(d['verb'], d['tasks'], d['reason']) for d in shown['Decisions']] == [
        ('approved', 1, ''), ('rejected', 1, 'not now?[31m')]
    assert '@' in shown['Decisions'][0]['decided_by']
    status, table, _ = run('plan', 'show', plan_id)
    assert status == 0 and '1 rejected by' in table and '\x1b' not in table
    status, out, _ = run('plan', 'cancel', plan_id, '--reason', 'why')
    assert status == 0 and f'{first.instance_uuid} is cancelled' in out


def test_a_plan_for_two_people_waits_for_the_second_and_says_so(run, store):
    now = time.time()
    needed = task_authorization.TaskAuthorization(2).format_text()
    plan_id, (task,), _ = cases.save(store, [lambda p, s: cases.make_task(
        p, s, state=model.TaskState.PENDING, created_at=now, not_before=now, deadline=now + 3600,
        authorization=needed)], now=now)
    status, out, error = run('plan', 'approve', plan_id)
    assert (status, out) == (0, f'Task {task.task_id} of instance {task.instance_uuid} has your '
                                'approval and waits for that of 1 other person.\n'), error
    status, out, error = run('plan', 'approve', plan_id)
    assert (status, out) == (1, '') and 'Another person must approve' in error
    decision, = listed(run, 'plan', 'show', plan_id)['Decisions']
    assert decision['verb'] == 'co-approved' and decision['decided_by'].startswith('local:')


@pytest.mark.parametrize('command', [('status',), ('plan', 'list'), ('task', 'list')])
def test_missing_sqlite_file_is_an_empty_database_for_readers(run, tmp_path, command):
    status, out, error = run(*command, '-f', 'json')
    assert status == 0
    assert error.splitlines() == [
        f'The database file {tmp_path}/kronos.sqlite does not exist, and is shown as an empty '
        'database. The first daemon makes it; if one runs, correct [database] connection.']
    assert all(row['Moves'] is None for row in json.loads(out))
    assert not (tmp_path / 'kronos.sqlite').exists()


def test_approval_without_a_live_executor_warns(run, store):
    plan_id, _, _ = waiting_plan(store, time.time())
    status, out, error = run('plan', 'approve', plan_id)
    assert status == 0 and out.count('is approved.') == 2
    assert 'warning: no live executor: none that serves scope blue was seen' in error


def test_approval_with_a_live_executor_warns_of_nothing(run, store):
    plan_id, _, _ = waiting_plan(store, time.time())
    store.executors.record_heartbeat('executor', None)
    assert run('plan', 'approve', plan_id)[2] == ''


def test_scopes_without_engine_or_executor_have_these_causes(store):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], default_config_files=[])

    def names(dry_run=False):
        conf.set_override('dry_run', dry_run, 'engine')
        found = scope_liveness.list_causes(conf, store, ['blue'])['blue']
        return [text.partition(':')[0] for text in found]

    assert names(dry_run=True) == ['dry run']
    assert names() == ['no live engine', 'no live executor']
    store.executors.record_heartbeat('elsewhere', ['green'])
    lease = store.leases.acquire_lease('blue', 'engine', 30, 'hash')
    assert names() == ['no live executor']
    store.executors.record_heartbeat('executor', None)
    assert names() == []
    store.leases.release_lease(lease)
    assert names() == ['no live engine']


def test_why_nothing_leads_with_causes_and_promises_no_move():
    plan = model.Plan('blue', (model.Move('i', 'a', 'b', model.Phase.SPREAD),))
    side = plan_comparisons.ScopePlan(None, plan)
    causes = 'dry run: it is set', 'no live executor: none was seen'
    first, second, *_, last = what_if._render_reason_rows(
        plan_comparisons.ScopeComparison('blue', side, causes=causes))
    assert (first, second) == (('cause', causes[0]), ('cause', causes[1]))
    assert last == ('conclusion',
                    'nothing: dry run, no live executor; a cycle would plan 1 move')
    assert list(what_if._render_reason_rows(plan_comparisons.ScopeComparison('blue',
                                                                             side)))[-1] == (
        'conclusion', 'the next cycle would make 1 move')


def test_status_without_an_engine_says_when_the_last_plan_was_made(run, store):
    cases.save(store, 0, now=time.time() - 130, reason='nothing to gain')
    assert 'engine' in run('status')[1]
    store.leases.release_lease(cases.lease_of(store, 'blue'))
    assert 'none (last plan 2 min ago)' in run('status')[1]


def test_error_about_an_undecidable_plan_names_cause_and_waiting_plans(run, store):
    now = time.time()
    plan_id, tasks, _ = waiting_plan(store, now)
    done, _, _ = cases.save(store, [lambda p, s: cases.make_task(p, s, from_host='h8')], now=now)
    dry, _, _ = cases.save(store, 0, dry_run=True, now=now, reason='a look')
    for args, why in (
            (('approve', 'nobody'), 'no such plan'),
            (('approve', done), 'it has no move that waits for approval; its tasks are: 1 queued'),
            (('reject', done, '--reason', 'x'), 'waits for approval; its tasks are: 1 queued'),
            (('approve', dry), 'it was made in a dry run')):
        status, _, error = run('plan', *args)
        assert status == 1 and why in error, error
        assert f'For approval wait: {plan_id} (2 moves)' in error
    status, _, error = run('plan', 'approve', plan_id, '--move', 'nobody')
    assert status == 1 and 'has no move of such an instance' in error
    assert run('plan', 'reject', plan_id)[0] == 2, 'a rejection has a reason'
    assert {str(store.tasks.find_task(t.task_id).task.state) for t in tasks} == {'pending'}
