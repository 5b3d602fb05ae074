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


"""What every step changes, to the column, among rows that are not its business.

Each function takes a store with an upgraded, empty database, as in :mod:`cases`.
"""

import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW

IDLE = (TaskState.QUEUED, TaskState.PENDING)
MAYBE = rows.MAYBE_IN_NOVA


def table_of_tasks(store):
    with store.engine.connect() as connection:
        return {row['task_id']: dict(row) for row in
                connection.execute(sa.select(tables.task)).mappings()}


def changed(store, step):
    """What ``step`` returned, and {task_id: {column: new value}}."""
    before = table_of_tasks(store)
    found = step()
    after = table_of_tasks(store)
    assert before.keys() == after.keys()
    return found, {task_id: {name: value for name, value in row.items()
                             if before[task_id][name] != value}
                   for task_id, row in after.items() if before[task_id] != row}


def crowd(store, worker='w', heard=NOW, deadline=None):
    """A task in each state and scope, all of one worker; ids by (scope, state)."""
    found = {}
    for scope in ('blue', 'green'):
        for state in TaskState:
            _, (task,), _ = cases.save(store, [lambda p, s: cases.make_task(
                p, s, deadline=deadline)], scope=scope)
            found[scope, state] = task.task_id
            values = {'state': state.value}
            if state not in IDLE:
                values.update(worker=worker, heartbeat_at=heard)
            if state.is_terminal:
                values.update(active_instance=None)
            with store.engine.begin() as connection:
                connection.execute(sa.update(tables.task).where(
                    tables.task.c.task_id == task.task_id).values(**values))
    return found


def test_a_mark_changes_its_task_alone(store):
    ids = crowd(store)
    mine = ids['blue', TaskState.CLAIMED]
    for worker, states in (('other', [TaskState.CLAIMED]), ('w', [TaskState.SUBMITTED])):
        assert changed(store, lambda w=worker, s=states: store.tasks.update_state(
            mine, w, s, TaskState.SUBMITTING, NOW + 1)) == (False, {})
    assert changed(store, lambda: store.tasks.update_state(
        mine, 'w', [TaskState.CLAIMED, TaskState.SUBMITTED], TaskState.SUBMITTING, NOW + 1,
        marker='m')) == (True, {mine: {
            'state': 'submitting', 'marker': 'm', 'heartbeat_at': NOW + 1,
            'updated_at': NOW + 1}})


def test_a_requeue_changes_its_task_alone(store):
    ids = crowd(store)
    mine = ids['blue', TaskState.SUBMITTING]
    store.tasks.update_state(
        mine, 'w', list(TaskState), TaskState.SUBMITTING, NOW, marker='m', reference='r',
                             submitted_at=NOW, deadline=NOW + 9, doubt_since=NOW, doubt='absent',
                             timings='[["pre_check", 5.0]]')
    for state in (*IDLE, TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED):
        assert changed(store, lambda s=state: store.tasks.requeue_task(
            ids['blue', s], 'w', NOW, not_before=NOW, retry_count=0, attempt=0)) == (False, {})
    assert changed(store, lambda: store.tasks.requeue_task(
        mine, 'w', NOW + 1, not_before=NOW + 30, retry_count=2, attempt=1, error='no',
        error_type='MigrationFailed')) == (True, {mine: {
            'state': 'queued', 'worker': None, 'heartbeat_at': None, 'marker': None,
            'reference': None, 'submitted_at': None, 'deadline': None, 'doubt_since': None,
            'timings': None, 'doubt': None, 'updated_at': NOW + 1, 'not_before': NOW + 30,
            'retry_count': 2, 'attempt': 1, 'to_host': 'h3', 'error': 'no',
            'error_type': 'MigrationFailed'}})


def test_a_requeued_task_keeps_the_given_marks(store):
    ids = crowd(store)
    marks = (('queue', NOW), ('pre_flight', NOW + 1))
    assert store.tasks.requeue_task(
        ids['blue', TaskState.CLAIMED], 'w', NOW, not_before=NOW, retry_count=0,
                                    attempt=0, marks=marks)
    assert store.tasks.find_task(ids['blue', TaskState.CLAIMED]).marks == marks


def test_a_missing_task_is_not_requeued_and_not_found(store):
    assert store.tasks.find_task('nobody') is None
    assert store.tasks.requeue_task(
        'nobody', 'w', NOW, not_before=NOW, retry_count=0, attempt=0) is False


def test_states_that_no_mark_may_set_are_named(store):
    ids = crowd(store)
    mine = ids['blue', TaskState.CLAIMED]
    for state, fields, words in (
            (TaskState.FAILED, {}, 'mark() cannot set failed'),
            (TaskState.SUBMITTED, {'scope': 'x', 'plan_id': 'y'},
             "mark() cannot set ['plan_id', 'scope']")):
        with pytest.raises(ValueError) as error:
            store.tasks.update_state(mine, 'w', [TaskState.CLAIMED], state, NOW, **fields)
        assert str(error.value) == words


def test_tasks_are_found_by_state_scope_and_worker(store):
    mine, theirs = crowd(store), crowd(store, 'other')

    def found(*asked, **kw):
        return {row.task.task_id for row in store.tasks.list_tasks_in_states(*asked, **kw)}

    claimed = [TaskState.CLAIMED]
    assert found(claimed, worker='w') == {
        mine[scope, TaskState.CLAIMED] for scope in ('blue', 'green')}
    assert found(claimed, ['blue']) == {
        ids['blue', TaskState.CLAIMED] for ids in (mine, theirs)}
    assert found(claimed, ['blue'], worker='other') == {theirs['blue', TaskState.CLAIMED]}
    assert found([TaskState.QUEUED, TaskState.CLAIMED], [], worker='w') == set()
    assert len(found([TaskState.QUEUED, TaskState.CLAIMED])) == 8


def test_how_many_have_ended_and_when_the_last_did(store):
    assert store.tasks.count_newest_ended() == (0, 0.0)
    for at in (NOW + 20, NOW + 90):
        cases.save(store)
        cases.end(store, cases.claim(store, now=NOW + 900), TaskState.COMPLETED, at)
    cases.save(store)
    assert store.tasks.count_newest_ended() == (2, NOW + 90)


def test_a_task_can_be_claimed_until_its_deadline_if_it_has_one(store):
    """A row of an earlier release has none."""
    cases.save(store, [lambda p, s: cases.make_task(p, s, deadline=NOW + 10)])
    assert cases.claim(store, now=NOW + 10) is None
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).values(expires_at=None))
    assert cases.claim(store, now=NOW + 10) is not None


def test_an_end_changes_its_task_alone(store):
    ids = crowd(store)
    mine = ids['blue', TaskState.SUBMITTED]
    for state in (*IDLE, TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED):
        row = store.tasks.find_task(ids['blue', state])
        assert changed(store, lambda r=row: cases.end(store, r)) == (None, {})
    row = store.tasks.find_task(mine)
    assert changed(store, lambda: cases.end(
        store, row, TaskState.FAILED, NOW + 1, error_type='X')) == ([], {mine: {
            'state': 'failed', 'active_instance': None, 'updated_at': NOW + 1,
            'completed_at': NOW + 1, 'error': 'because', 'error_type': 'X'}})


def test_a_heartbeat_covers_all_tasks_in_flight(store):
    ids = crowd(store)
    _, found = changed(store, lambda: store.tasks.renew_task_claim('w', NOW + 7))
    assert found == {ids[scope, state]: {'heartbeat_at': NOW + 7}
                     for scope in ('blue', 'green') for state in rows.IN_FLIGHT}
    assert changed(store, lambda: store.tasks.renew_task_claim('other', NOW + 9)) == (None, {})


def test_claims_that_are_given_back_are_ours_alone(store):
    ids = crowd(store)
    assert changed(store, lambda: store.tasks.release_task_claims('other')) == (None, {})
    _, found = changed(store, lambda: store.tasks.release_task_claims('w'))
    assert found == {ids[scope, state]: {'heartbeat_at': None}
                     for scope in ('blue', 'green') for state in rows.IN_FLIGHT}


def test_an_adoption_is_of_silent_tasks_that_nova_may_know(store):
    ids = crowd(store)
    assert changed(store, lambda: store.tasks.adopt_tasks('new', None, NOW + 59, 60)) == ([], {})
    assert changed(store, lambda: store.tasks.adopt_tasks('new', ['red'], NOW + 60, 60)) == ([], {})
    adopted, found = changed(store, lambda: store.tasks.adopt_tasks('new', ['blue'], NOW + 60, 60))
    assert found == {ids['blue', state]: {'worker': 'new', 'heartbeat_at': NOW + 60}
                     for state in MAYBE}
    assert {(row.task.task_id, row.worker) for row in adopted} == {
        (task_id, 'new') for task_id in found}
    _, found = changed(store, lambda: store.tasks.adopt_tasks('new', None, NOW + 60, 60))
    assert found.keys() == {ids['green', state] for state in MAYBE}


def test_one_silent_worker_is_adopted_from_and_not_its_neighbour(store):
    silent, lively = crowd(store, 'old'), crowd(store, 'lively', heard=NOW + 50)
    _, found = changed(store, lambda: store.tasks.adopt_tasks('new', None, NOW + 60, 60))
    assert found.keys() == {silent[scope, state] for scope in ('blue', 'green')
                            for state in MAYBE}
    assert not found.keys() & set(lively.values())


def test_late_tasks_are_cancelled_in_the_given_scope_alone(store):
    ids = crowd(store, deadline=NOW + 10)
    assert changed(store, lambda: store.tasks.expire_tasks(None, NOW + 9, 60)) == ([], {})
    gone, found = changed(store, lambda: store.tasks.expire_tasks(['blue'], NOW + 10, 60))
    errors = {TaskState.PENDING: 'No operator approved it in time.',
              TaskState.QUEUED: 'It was not begun in time: the plan is too old.'}
    ended = {'state': 'cancelled', 'active_instance': None, 'updated_at': NOW + 10,
             'completed_at': NOW + 10, 'error_type': 'TaskExpired'}
    assert found == {ids['blue', state]: {**ended, 'error': errors[state]} for state in IDLE}
    assert sorted(task.task_id for task in gone) == sorted(found)
    gone, found = changed(store, lambda: store.tasks.expire_tasks(['blue'], NOW + 60, 60))
    assert found.keys() == {ids['blue', TaskState.CLAIMED]}, 'its worker has gone silent'
    _, found = changed(store, lambda: store.tasks.expire_tasks(None, NOW + 60, 60))
    assert found.keys() == {ids['green', state] for state in (*IDLE, TaskState.CLAIMED)}


def test_a_claim_changes_its_task_alone(store):
    ids = crowd(store)
    row, found = changed(store, lambda: cases.claim(
        store, 'new', now=NOW + 1, scopes={'blue'}, per_scope=99, total=99))
    mine = ids['blue', TaskState.QUEUED]
    assert row.task.task_id == mine and found == {mine: {
        'state': 'claimed', 'worker': 'new', 'heartbeat_at': NOW + 1, 'updated_at': NOW + 1,
        'timings': f'[["queue", {NOW}], ["pre_flight", {NOW + 1}]]'}}


def test_quarantines_are_separate_and_only_ever_lengthened(store):
    def add(name, now, seconds, reason, kind='host'):
        with store.engine.begin() as connection:
            quarantine.begin_quarantine(connection, kind, name, now, seconds, reason)

    def at(now):
        return [(q.kind, q.name, q.since, q.until, q.reason)
                for q in store.quarantine.list_quarantines(now)]

    add('b', NOW, 60, 'first')
    add('a', NOW, 60, 'second')
    add('b', NOW, 90, 'third', kind='disks')
    assert at(NOW + 59) == [('disks', 'b', NOW, NOW + 90, 'third'),
                            ('host', 'a', NOW, NOW + 60, 'second'),
                            ('host', 'b', NOW, NOW + 60, 'first')]
    assert [q[:2] for q in at(NOW + 60)] == [('disks', 'b')]
    add('a', NOW + 5, 10, 'shorter')
    assert at(NOW)[1] == ('host', 'a', NOW + 5, NOW + 60, 'shorter')
    add('a', NOW + 5, 100, 'longer')
    assert at(NOW)[1][3] == NOW + 105
    add('a', NOW + 6, -1, 'for ever')
    add('a', NOW + 7, 10, 'again')
    assert at(NOW + 10**9) == [('host', 'a', NOW + 7, None, 'again')]
    add('c', NOW, 0, 'for no time')
    assert 'c' not in [q[1] for q in at(NOW)]
    assert store.quarantine.lift_quarantine(
        'host', 'b', NOW) and not store.quarantine.lift_quarantine('host', 'b', NOW)
    assert [q[:2] for q in at(NOW)] == [('disks', 'b'), ('host', 'a')]


def test_a_completed_move_is_remembered_by_its_instance_hosts_and_phase(store):
    first = cases.new_id()
    _, tasks, _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, instance_uuid=first),
        lambda p, s: cases.make_task(p, s, requires=(first,), wave=2, improvement=0.25,
                                     phase=model.Phase.AFFINITY, from_host='h7', to_host='h8')])
    cases.end(store, cases.claim(store))
    cases.end(store, cases.claim(store), now=NOW + 1)
    assert store.history.read_history('blue', NOW + 2).completed[1] == (
        model.Move(tasks[1].instance_uuid, 'h7', 'h8', model.Phase.AFFINITY), NOW + 1)


def test_a_repeated_reason_is_dropped_per_scope_and_mode(store):
    for scope, dry_run in (('blue', False), ('green', False), ('blue', True)):
        cases.save(store, 0, scope=scope, reason='balanced', dry_run=dry_run, now=NOW)
    assert len(store.plans.list_plans()) == 3
    cases.save(store, 0, reason='balanced', now=NOW + 1)
    assert len(store.plans.list_plans()) == 3
    cases.save(store, 0, reason=None, now=NOW + 2)
    cases.save(store, 0, reason=None, now=NOW + 3)
    assert len(store.plans.list_plans()) == 4


def test_resuming_tells_whether_that_very_pause_lasted(store):
    store.pauses.pause_scope('blue', NOW, seconds=10, paused_by='me', reason='why')
    assert not store.pauses.resume_scope('green', NOW) and not store.pauses.resume_scope(None, NOW)
    assert store.pauses.find_pause('blue', NOW)
    assert not store.pauses.resume_scope('blue', NOW + 10), 'it was over'
    store.pauses.pause_scope('blue', NOW, seconds=10, paused_by='me', reason='why')
    assert store.pauses.resume_scope('blue', NOW + 9) and store.pauses.list_pauses(NOW) == []


def test_the_newest_plan_of_the_scope_is_judged(store):
    cases.spread(store, NOW)
    second = cases.spread(store, NOW + 1)
    green = store.leases.acquire_lease('green', 'engine', 30, 'hash')
    assert store.outcomes.record_outcome(green, 0.3, NOW + 60) is None
    came = store.outcomes.record_outcome(cases.lease_of(store), 0.3, NOW + 60)
    assert came.plan_id == second
    assert [o.plan_id for o in store.outcomes.list_outcomes('blue', 9)] == [second]


# What is read, among rows that are not asked for.

def test_a_lease_that_is_ours_again_is_that_of_its_scope(store):
    old = {scope: store.leases.acquire_lease(scope, 'engine', 30, 'hash')
           for scope in ('blue', 'green')}
    store.leases.release_lease(old['blue'])
    store.leases.release_lease(old['green'])
    assert store.leases.acquire_lease('blue', 'other', 30, 'hash')
    new = store.leases.acquire_lease('green', 'engine', 30, 'hash')
    assert store.leases.retake_lease(old['blue'], 30) is None
    assert store.leases.retake_lease(old['green'], 30) == new


def test_whether_a_scope_is_free_is_of_that_scope_now(store):
    assert store.leases.has_free_scope(['blue'])
    lease = store.leases.acquire_lease('blue', 'engine', 30, 'hash')
    store.leases.acquire_lease('green', 'engine', 30, 'hash')
    assert not store.leases.has_free_scope(['blue']) and not store.leases.has_free_scope(
        ['green', 'blue'])
    assert store.leases.has_free_scope(['blue', 'red'])
    store.leases.release_lease(lease)
    assert store.leases.has_free_scope(['blue']) and not store.leases.has_free_scope(['green'])


def test_moves_under_way_count_for_the_scope_of_their_plan(store):
    cases.save(store, 2)
    cases.save(store, 3, scope='green')
    assert cases.count_moves(store) == {'blue': 2, 'green': 3}


def test_the_newest_plan_of_each_scope(store):
    for at in (NOW, NOW + 9, NOW + 5):
        last = {scope: cases.save(store, 1, scope=scope, now=at + shift)[0]
                for scope, shift in (('blue', 0), ('green', -4))}
        if at == NOW + 9:
            newest = last
    assert {scope: row.plan_id for scope, row in store.plans.list_newest_plans().items()} == newest
    # As old as the newest of another scope.
    other, _, _ = cases.save(store, 1, scope='red', now=NOW + 5)
    assert store.plans.list_newest_plans()['red'].plan_id == other
    assert store.plans.list_newest_plans()['green'].plan_id == newest['green']


def test_realised_values_are_returned_for_the_given_plans(store):
    ids = [cases.save(store, 1)[0] for _ in range(4)]
    with store.engine.begin() as connection:
        for plan_id, realised in zip(ids, (0.2, 0.3, None, 0.1), strict=True):
            connection.execute(sa.insert(tables.outcome).values(
                plan_id=plan_id, scope='blue', planned_at=NOW, combined_before=0.5,
                combined_foreseen=0.1, combined_realised=realised, realised_at=NOW + 60))
    assert store.outcomes.find_measured_imbalances(ids[:3]) == {ids[0]: 0.2, ids[1]: 0.3}


def test_only_late_waiting_tasks_of_the_scope_lapse(store):
    lease = cases.lease_of(store)
    for deadline in (NOW + 10, NOW + 20):
        cases.save(store, [lambda p, s, at=deadline: cases.make_task(
            p, s, state=TaskState.PENDING, deadline=at)], lease=lease)
    assert len(store.approvals.cancel_lapsed_tasks(lease, NOW + 10)) == 1
    assert len(store.approvals.cancel_lapsed_tasks(lease, NOW + 15)) == 0
    assert len(store.approvals.cancel_lapsed_tasks(lease, NOW + 20)) == 1


def test_pending_hooks_of_a_task_are_listed_by_attempt_and_time(store):
    cases.save(store, 1)
    row = cases.claim(store)
    for key, number, at in (('c', 0, NOW + 5), ('a', 1, NOW), ('b', 0, NOW), ('d', 1, NOW + 5)):
        assert store.hooks.record_hook(
            pending_hooks.PendingHook(key, row.task, number, model.TaskHook('x'), '',
                                      at),
                                       'w', NOW,
                                       ())
    assert [one.owed_id for one in store.hooks.list_task_hooks(row.task.task_id)] == ['b', 'a', 'c',
                                                                                      'd']


def test_lifting_a_quarantine_of_an_unknown_kind_raises(store):
    with pytest.raises(exception.StoreError) as error:
        store.quarantine.lift_quarantine('colour', 'blue', NOW)
    assert error.value.kwargs == {'problem': "has no quarantine for 'colour'",
                                  'remedy': 'Say instance, host, disks or cells.'}
