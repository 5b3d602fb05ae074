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


"""Pending hooks in the database.

Each function takes a store with an upgraded, empty database, as in :mod:`cases`.
"""

import dataclasses

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW

MARKS = (('queue', NOW), ('pre_flight', NOW), ('hooks', NOW + 1))


def owing(row, number=0, key=None, **kw):
    return pending_hooks.PendingHook(key or cases.new_id(), row.task, number,
                                     model.TaskHook('pscom', {'processes': 4}), '{"a": "ä"}', NOW,
                                     **kw)


def owe(store, *what, worker='w', now=NOW):
    return [store.hooks.record_hook(one, worker, now, MARKS) for one in what]


def claimed(store, worker='w', scope='blue', **kw):
    cases.save(store, [lambda p, s: cases.make_task(
        p, s, from_host=f'{scope}1', to_host=f'{scope}2', **kw)], scope=scope)
    return cases.claim(store, worker, scopes={scope})


def taken(store, worker='w', now=NOW, scopes=None):
    return [one.owed_id for one in store.hooks.take_due_hooks(worker, scopes, now, 60)]


def test_a_pending_hook_is_stored_whole_with_the_marks_of_its_task(store):
    row = claimed(store, method=model.MoveMethod.COLD, phase=model.Phase.EVACUATE)
    assert owe(store, what := owing(row)) == [True]
    found, = store.hooks.list_task_hooks(row.task.task_id)
    ours = dataclasses.replace(what.task, **{
        name: getattr(found.task, name) for name in (
            'instance_name', 'alternates', 'not_before', 'created_at', 'deadline', 'state',
            'alternate_improvements')})
    assert found == dataclasses.replace(what, task=ours)
    assert store.tasks.find_task(row.task.task_id).marks == MARKS


def test_a_hook_that_is_owed_changes_alone(store):
    """The worker owes others as well."""
    blue, green = claimed(store), claimed(store, scope='green')
    before = store.tasks.find_task(green.task.task_id)
    ours = [owing(row, number) for row in (blue, green) for number in (0, 1)]
    assert owe(store, *ours[:2], now=NOW + 5) == [True, True]
    assert store.tasks.find_task(green.task.task_id) == before
    assert store.tasks.find_task(blue.task.task_id).heartbeat_at == NOW + 5
    owe(store, *ours[2:])
    for row in (blue, green):
        cases.end(store, row)
    assert taken(store) == [one.owed_id for one in sorted(
        ours, key=lambda one: (one.task.task_id, -one.number))], 'of one task after the other'
    later = dataclasses.replace(ours[0], tries=2, not_before=NOW + 5, error='no')
    assert store.hooks.postpone_hook(later, 'w')
    assert [one.tries for row in (blue, green)
            for one in store.hooks.list_task_hooks(row.task.task_id)] == [
                2, 0, 0, 0]
    assert store.hooks.delete_hook(ours[0].owed_id, 'w')
    assert [one.owed_id for row in (blue, green)
            for one in store.hooks.list_task_hooks(row.task.task_id)] == [
                one.owed_id for one in ours[1:]]


def test_only_the_executor_that_claimed_a_task_stores_its_hooks(store):
    row = claimed(store)
    assert owe(store, owing(row), worker='other') == [False]
    store.tasks.update_state(row.task.task_id, 'w', [TaskState.CLAIMED], TaskState.SUBMITTING, NOW)
    assert owe(store, owing(row)) == [False]
    assert store.hooks.list_task_hooks(row.task.task_id) == []


def test_nothing_is_due_before_the_attempt_has_ended(store):
    row = claimed(store)
    first, second = owing(row), owing(row, 1)
    assert owe(store, first, second) == [True, True]
    assert taken(store, now=NOW + 1e6) == []
    for state in (TaskState.SUBMITTING, TaskState.SUBMITTED, TaskState.UNKNOWN):
        store.tasks.update_state(row.task.task_id, 'w', list(rows.IN_FLIGHT), state, NOW)
        assert taken(store, now=NOW + 1e6) == [], state
    cases.end(store, row)
    assert taken(store) == [second.owed_id, first.owed_id], 'the last one first'


def test_a_hook_is_due_however_its_attempt_has_ended(store):
    def cancel(row):
        store.tasks.cancel_task(row.task.task_id, NOW, cancelled_by='me', reason='why',
                                instance_cooldown=900)

    def delete(row):
        with store.engine.begin() as connection:
            connection.execute(tables.task.delete().where(
                tables.task.c.task_id == row.task.task_id))
    for end in (lambda row: cases.end(store, row, TaskState.FAILED, error_type='X'),
                lambda row: cases.end(store, row, TaskState.CANCELLED, error_type='X'),
                lambda row: store.tasks.requeue_task(row.task.task_id, 'w', NOW, not_before=NOW + 9,
                                                     retry_count=1, attempt=0), cancel, delete):
        row = claimed(store)
        owe(store, what := owing(row))
        end(row)
        assert taken(store) == [what.owed_id]
        assert store.hooks.delete_hook(what.owed_id, 'w')


def test_a_due_hook_belongs_to_one_executor_at_a_time(store):
    row = claimed(store)
    owe(store, what := owing(row))
    cases.end(store, row)
    assert taken(store, 'other', NOW + 59) == []
    assert taken(store, 'other', NOW + 60, scopes={'green'}) == []
    assert taken(store, 'other', NOW + 60, scopes={'blue'}) == [what.owed_id]
    assert taken(store, 'w', NOW + 61) == [] == taken(store, 'third', NOW + 119)
    assert taken(store, 'other', NOW + 119, scopes={'green'}) == [what.owed_id], 'ours already'
    later = dataclasses.replace(what, tries=2, not_before=NOW + 5, error='no')
    assert not store.hooks.postpone_hook(later, 'w') and not store.hooks.delete_hook(
        what.owed_id, 'w')
    assert store.hooks.postpone_hook(later, 'other')
    found, = store.hooks.list_task_hooks(row.task.task_id)
    assert (found.tries, found.not_before, found.error) == (2, NOW + 5, 'no')
    assert store.hooks.delete_hook(what.owed_id, 'other')
    assert store.hooks.list_task_hooks(row.task.task_id) == [] and taken(store, now=NOW + 1e6) == []


def test_no_task_of_an_instance_begins_while_a_hook_is_owed_for_it(store):
    row = claimed(store)
    owe(store, what := owing(row))
    store.tasks.requeue_task(row.task.task_id, 'w', NOW, not_before=NOW, retry_count=1, attempt=0)
    green = claimed(store, scope='green')
    assert green is not None, 'those of others do'
    assert cases.claim(store, now=NOW + 1, scopes={'blue'}) is None
    taken(store)
    store.hooks.delete_hook(what.owed_id, 'w')
    assert cases.claim(store, now=NOW + 1, scopes={'blue'}).task.task_id == row.task.task_id


def test_a_task_keeps_the_hooks_that_it_brings(store):
    hooks = (model.TaskHook('pause'), model.TaskHook('pscom', {'processes': 2}))
    cases.save(store, [lambda p, s: cases.make_task(p, s, hooks=hooks), cases.make_task])
    found = sorted((row.task.hooks for row in store.tasks.list_tasks_in_states([TaskState.QUEUED])),
                   key=len)
    assert found == [(), hooks]
