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


"""What an executor finds to do, asked at once.

Each function takes a store with an upgraded, empty database, as in :mod:`cases`.
"""

from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import worker_todo
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store import test_pending_hooks
from tests.unit.rebalancer.store import test_swaps
from tests.unit.rebalancer.store.cases import NOW


def found(store, now=NOW, scopes=None, worker='w'):
    """The names of what there is."""
    agenda = store.executors.read_todo(worker, scopes, now, 60)
    assert set(agenda) <= {True, False}
    return {name for name,
            there in zip(worker_todo.WorkerTodo._fields, agenda, strict=True) if there}


def in_state(store, state, **kw):
    cases.save(store, [lambda p, s: cases.make_task(p, s, **kw)])
    row = cases.claim(store)
    if state is not TaskState.CLAIMED:
        assert store.tasks.update_state(row.task.task_id, 'w', [TaskState.CLAIMED], state, NOW)
    return row


def test_nothing_is_to_be_done_where_nothing_is(store):
    for scopes in (None, [], ['blue']):
        assert found(store, scopes=scopes) == set()
    cases.end(store, in_state(store, TaskState.SUBMITTED))
    assert found(store, NOW + 1e6) == set(), 'what has ended is no work'


def test_a_task_is_claimable_from_its_time_on_for_executors_of_its_scope(store):
    cases.save(store, [lambda p, s: cases.make_task(p, s, not_before=NOW + 5)])
    assert found(store, NOW + 4.9) == set()
    assert found(store, NOW + 5) == {'claimable'}
    assert found(store, NOW + 5, ['red', 'blue']) == {'claimable'}
    assert found(store, NOW + 5, ['blue', 'azure']) == {'claimable'}
    assert found(store, NOW + 5, ['red']) == found(store, NOW + 5, []) == set()


def test_a_worker_owns_its_task_until_it_is_silent_too_long(store):
    in_state(store, TaskState.CLAIMED)
    assert found(store, NOW + 59) == {'mine'} == found(store, NOW + 59, ['red'])
    assert found(store, NOW + 59, worker='other') == set()
    assert found(store, NOW + 60, worker='other') == {'claimable'}
    assert found(store, NOW + 60, ['red'], 'other') == set()


def test_tasks_in_nova_are_abandoned_by_silent_executors(store):
    for state in rows.MAYBE_IN_NOVA:
        row = in_state(store, state)
        assert found(store, NOW + 59, worker='other') == set(), state
        assert found(store, NOW + 60, ['blue'], 'other') == {'abandoned'}, state
        assert found(store, NOW + 60, ['red'], 'other') == set(), state
        assert found(store, NOW + 60) == {'abandoned', 'mine'}, state
        assert store.tasks.adopt_tasks('other', None, NOW + 60, 60), state
        assert found(store, NOW + 60, worker='other') == {'mine'}, state
        cases.end(store, row, worker='other')


def test_an_idle_task_past_its_deadline_is_late(store):
    for state in (TaskState.PENDING, TaskState.QUEUED):
        cases.save(store, [lambda p, s, state=state: cases.make_task(
            p, s, state=state, deadline=NOW + 10)])
        assert 'late' not in found(store, NOW + 9.9), state
        assert 'late' in found(store, NOW + 10, ['blue']), state
        assert 'late' not in found(store, NOW + 10, ['red']), state
        assert len(store.tasks.expire_tasks(None, NOW + 10, 60)) == 1, state
        assert found(store, NOW + 10) == set(), state


def test_a_claimed_task_is_late_when_its_executor_is_silent(store):
    row = in_state(store, TaskState.CLAIMED, deadline=NOW + 10)
    assert found(store, NOW + 59) == {'mine'} and store.tasks.expire_tasks(None, NOW + 59, 60) == []
    assert 'late' in found(store, NOW + 60)
    assert store.tasks.update_state(row.task.task_id, 'w', [TaskState.CLAIMED], TaskState.SUBMITTED,
                                    NOW)
    assert found(store, NOW + 60) == {'mine', 'abandoned'}
    assert store.tasks.expire_tasks(None, NOW + 60, 60) == []


def test_hooks_pass_from_a_silent_executor_to_all_of_the_scope(store):
    row = test_pending_hooks.claimed(store)
    test_pending_hooks.owe(store, test_pending_hooks.owing(row))
    assert 'owed' not in found(store, NOW + 1e6), 'the attempt goes on'
    cases.end(store, row)
    assert found(store) == {'owed'} == found(store, scopes=['red'])
    assert found(store, NOW + 59, worker='other') == set()
    assert found(store, NOW + 60, ['blue'], 'other') == {'owed'}
    assert found(store, NOW + 60, ['red'], 'other') == set()
    assert test_pending_hooks.taken(store, 'other', NOW + 60)
    assert found(store, NOW + 60) == set(), "it is the other's now"


def test_an_ended_swap_is_due_for_settling_once(store):
    _, a, b = test_swaps.begun(store)
    assert found(store) == {'claimable'}
    test_swaps.ended(store, a)
    test_swaps.ended(store, b, TaskState.FAILED)
    assert 'swaps' in found(store) and store.tasks.settle_swaps(NOW)
    assert 'swaps' not in found(store)


def test_a_pair_that_has_no_task_any_more_waits_to_be_settled(store):
    plan_id, a, b = test_swaps.begun(store)
    with store.engine.begin() as connection:
        connection.execute(tables.task.update().values(
            state=TaskState.COMPLETED.value, active_instance=None, completed_at=NOW))
    assert found(store) == {'swaps'}
    store.tasks.settle_swaps(NOW)
    assert found(store) == set() and test_swaps.state_of(store, plan_id) == 'swapped'


def test_an_undo_that_has_no_task_any_more_waits_to_be_settled(store):
    plan_id, a, b = test_swaps.begun(store)
    test_swaps.ended(store, a)
    test_swaps.ended(store, b, TaskState.FAILED)
    store.tasks.settle_swaps(NOW)
    with store.engine.begin() as connection:
        connection.execute(tables.task.update().where(
            tables.task.c.task_id == test_swaps.follower(store, a).task_id).values(
            state=TaskState.COMPLETED.value, active_instance=None, completed_at=NOW + 200))
    assert found(store) == {'swaps'}
    store.tasks.settle_swaps(NOW)
    assert (found(store), test_swaps.state_of(store, plan_id)) == (set(), 'undone')
