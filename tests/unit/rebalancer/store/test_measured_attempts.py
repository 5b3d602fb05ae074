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

"""What costs are learned from, in the database."""

import dataclasses
import json

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import migration_samples
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW

PHASES = {'queue': 5.0, 'pre_flight': 1.0, 'pre_check': 2.0, 'preparing': 1.0, 'running': 30.0,
          'post_migrating': 3.0, 'post_flight': 1.5}
LATE = model.Attempt('h2', NOW, NOW + 9, 'MigrationTimeout', 'late', phases=PHASES)
GOOD = model.Attempt('h2', NOW, NOW + 9, phases={**PHASES, 'running': 10.0})
REFUSED = model.Attempt('h2', NOW, NOW + 9, 'MigrationFailed', 'no', phases={'pre_check': 3.0})


def _ended(store, state, attempts, at, **kw):
    """The instance."""
    fields = {'memory_mb': 2048, 'disk_gb': 7, **kw}
    cases.save(store, [lambda p, s: cases.make_task(p, s, **fields)], now=at)
    row = cases.claim(store, now=at)
    task = row.task
    store.tasks.update_state(task.task_id, 'w', [TaskState.CLAIMED], TaskState.SUBMITTED, at,
                             submitted_at=at)
    result = model.TaskResult(
        task.task_id, task.plan_id, task.aggregate, task.instance_uuid, task.from_host,
        task.to_host, state is TaskState.COMPLETED, attempts=tuple(attempts))
    assert store.tasks.finish_task(task, result, state, at + 20, worker='w',
                                   instance_cooldown=900) == []
    return task.instance_uuid


def _forget_last_phases(store, attempts):
    """Write the attempts of all tasks as a release before phases did, at least the last."""
    found = [dataclasses.asdict(attempt) for attempt in attempts]
    del found[-1]['phases']
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).values(attempts=json.dumps(found)))


def _known(store, now=NOW):
    return store.history.read_history('blue', now).measured


def test_attempts_are_measured_one_by_one_the_newest_first(store):
    first = _ended(store, TaskState.FAILED, [GOOD, LATE], NOW)
    second = _ended(store, TaskState.COMPLETED, [LATE, GOOD], NOW + 100)
    late = model.MeasuredAttempt(second, 2048, 7, 30.0, 7.5, False, True)
    good = model.MeasuredAttempt(second, 2048, 7, 10.0, 7.5)
    assert _known(store) == (
        good, late, dataclasses.replace(late, instance_uuid=first),
        dataclasses.replace(good, instance_uuid=first, arrived=False)), 'none arrived of it'
    assert store.history.read_history('green',
                                      NOW).measured == _known(store), 'those of the whole cloud'


def test_an_attempt_that_copied_nothing_is_not_measured(store):
    _ended(store, TaskState.FAILED, [REFUSED], NOW)
    assert _known(store) == ()
    uuid = _ended(store, TaskState.COMPLETED, [REFUSED, GOOD], NOW + 100)
    assert [(m.instance_uuid, m.running) for m in _known(store)] == [(uuid, 10.0)]


def test_an_attempt_cancelled_in_nova_is_stored_with_its_time(store):
    """Nova's own limit ends a migration as an operator does."""
    cancelled = dataclasses.replace(LATE, error_type='MigrationCancelled')
    uuid = _ended(store, TaskState.CANCELLED, [cancelled], NOW)
    assert _known(store) == (model.MeasuredAttempt(uuid, 2048, 7, 30.0, 7.5, False, False),)


def test_an_attempt_without_a_running_phase_copied_while_preparing(store):
    """Nova's times are not always known, and looks are seconds apart."""
    unseen = dataclasses.replace(GOOD, phases={'queue': 1.0, 'pre_check': 9.0, 'preparing': 2.0,
                                               'post_flight': 0.5})
    uuid = _ended(store, TaskState.COMPLETED, [unseen], NOW)
    assert _known(store) == (model.MeasuredAttempt(uuid, 2048, 7, 11.0, 0.5),)


def test_a_failed_attempt_is_measured_although_the_task_was_cancelled(store):
    cases.save(store, [lambda p, s: cases.make_task(p, s, memory_mb=2048, disk_gb=7)])
    row = cases.claim(store)
    task = row.task
    store.tasks.update_state(task.task_id, 'w', [TaskState.CLAIMED], TaskState.SUBMITTED, NOW,
                             submitted_at=NOW)
    assert store.tasks.requeue_task(task.task_id, 'w', NOW + 40, not_before=NOW + 40, retry_count=1,
                                    attempt=0, error='late', error_type='MigrationTimeout',
                                    attempts=(LATE,))
    assert store.tasks.cancel_task(task.task_id, NOW + 50, cancelled_by='me', reason='enough',
                                   instance_cooldown=900)
    assert _known(store) == (model.MeasuredAttempt(task.instance_uuid, 2048, 7, 30.0, 7.5, False,
                                                   True),)


def test_a_migration_of_one_that_was_paused_for_it_says_nothing(store):
    _ended(store, TaskState.COMPLETED, [GOOD], NOW, hooks=(model.TaskHook('pause'),))
    assert _known(store) == ()
    _ended(store, TaskState.COMPLETED, [GOOD], NOW + 50, hooks=(model.TaskHook('pscom'),))
    assert len(_known(store)) == 1


def test_the_newest_tasks_are_enough(store):
    known, migration_samples.TASKS = migration_samples.TASKS, 2
    try:
        uuids = [_ended(store, TaskState.COMPLETED, [GOOD], NOW + 50 * n) for n in range(3)]
        assert [m.instance_uuid for m in _known(store)] == uuids[:0:-1]
    finally:
        migration_samples.TASKS = known


def test_of_an_earlier_release_the_whole_time_counts_as_copying(store):
    uuid = _ended(store, TaskState.COMPLETED, [GOOD], NOW)
    _forget_last_phases(store, [GOOD])
    other = _ended(store, TaskState.COMPLETED, [], NOW + 100)
    assert _known(store) == (model.MeasuredAttempt(other, 2048, 7, 20.0),
                             model.MeasuredAttempt(uuid, 2048, 7, 20.0))


def test_attempts_of_less_than_a_second_are_measured(store):
    quick = dataclasses.replace(GOOD, phases={'pre_check': 0.25, 'running': 0.5})
    late = dataclasses.replace(quick, error_type='MigrationTimeout', error='late')
    uuid = _ended(store, TaskState.COMPLETED, [late, quick], NOW)
    assert _known(store) == (model.MeasuredAttempt(uuid, 2048, 7, 0.5, 0.25),
                             model.MeasuredAttempt(uuid, 2048, 7, 0.5, 0.25, False, True))


def test_of_an_earlier_release_only_the_last_attempt_is_not_known(store):
    """It counts by its task's times; those before it have theirs."""
    uuid = _ended(store, TaskState.COMPLETED, [LATE, GOOD], NOW)
    _forget_last_phases(store, [LATE, GOOD])
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).values(
            submitted_at=tables.task.c.completed_at + 0.5))
    assert _known(store) == (model.MeasuredAttempt(uuid, 2048, 7, 0.0),
                             model.MeasuredAttempt(uuid, 2048, 7, 30.0, 7.5, False, True))


def test_other_ways_than_live_are_not_measured(store):
    for method in (model.MoveMethod.COLD, model.MoveMethod.OFFLINE):
        _ended(store, TaskState.COMPLETED, [GOOD], NOW, method=method)
    assert _known(store) == ()
