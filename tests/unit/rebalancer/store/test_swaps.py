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

"""What every backend must do about swaps; see :mod:`cases`."""

import dataclasses
import json

import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import lease_of
from tests.unit.rebalancer.store.cases import make_task
from tests.unit.rebalancer.store.cases import new_id
from tests.unit.rebalancer.store.cases import NOW
from tests.unit.rebalancer.store.test_exact_changes import changed

SAID = plan_decisions.OperatorDecision('me@here', 'closer to its users')
CAPS = {'per_scope': 9, 'total': 9, 'claim_seconds': 60}


def begun(store, parking=None, **kw):
    """Instances a on h1 and b on h2 are to change places."""
    plan_id = new_id()
    kw = {'phase': model.Phase.REQUESTED, 'alternates': ()} | kw
    a = make_task(plan_id, to_host=parking or 'h2', **kw)
    b = make_task(plan_id, **{**kw, 'from_host': 'h2', 'to_host': 'h1', 'wave': 1,
                              'requires': (a.instance_uuid,)})
    plan = model.Plan('blue', tuple(model.Move(
        t.instance_uuid, t.from_host, t.to_host, t.phase, wave=t.wave, requires=t.requires)
        for t in (a, b)), swaps=(model.Swap(a.instance_uuid, b.instance_uuid, parking),))
    store.plans.save_requested_plan(store.plans.read_live_work(), plan, [a, b], plan_id=plan_id,
                                    now=NOW,
                                    instance_cooldown=900, decision=SAID, verb='swapped')
    return plan_id, a, b


def ended(store, task, state=TaskState.COMPLETED, now=NOW + 60, **kw):
    """Claimed and over."""
    row = store.tasks.claim_task('w', None, now, **CAPS)
    assert row is not None and row.task.task_id == task.task_id
    return over(store, row, state, now, **kw)


def over(store, row, state=TaskState.COMPLETED, now=NOW + 60, quarantine=None):
    task = row.task
    ok = state is TaskState.COMPLETED
    return store.tasks.finish_task(
        task, model.TaskResult(task.task_id, task.plan_id, 'blue', task.instance_uuid,
                               task.from_host, task.to_host, success=ok,
                               error=None if ok else 'no room', error_type=None if ok else 'E'),
        state, now, worker='w', instance_cooldown=900, quarantine_seconds=quarantine)


def follower(store, task):
    """The one live task of the instance."""
    found = [row
             for row in store.tasks.list_tasks_in_states([s for s in TaskState
                                                          if not s.is_terminal])
             if row.task.instance_uuid == task.instance_uuid]
    assert len(found) == 1
    return found[0].task


def state_of(store, plan_id):
    swap, = store.tasks.list_swaps(plan_id)
    return swap.state


def test_a_swap_ends_with_both_halves_and_success_needs_no_notice(store):
    plan_id, a, b = begun(store)
    assert ended(store, a) == [] and state_of(store, plan_id) == swaps.GOING
    assert ended(store, b) == []
    assert state_of(store, plan_id) == swaps.SWAPPED and store.tasks.list_in_flight_moves() == ()
    assert store.tasks.settle_swaps(NOW) == []
    assert [d.verb for d in store.approvals.list_decisions(plan_id)] == ['swapped']
    assert store.plans.find_plan(plan_id).plan.swaps == (
        model.Swap(a.instance_uuid, b.instance_uuid),)


def test_the_first_one_goes_back_when_the_second_one_fails(store):
    plan_id, a, b = begun(store)
    ended(store, a)
    assert ended(store, b, TaskState.FAILED, NOW + 90, quarantine=3600) == []
    back = follower(store, a)
    assert (back.from_host, back.to_host, back.phase) == ('h2', 'h1', model.Phase.REQUESTED)
    assert back.priority < 1 and back.not_before == 0.0 and back.alternates == ()
    assert back.plan_id != plan_id, 'a plan has one move of each instance'
    assert back.plan_id in store.approvals.list_decisions(plan_id)[-1].reason
    assert plan_id in store.plans.find_plan(back.plan_id).plan.warnings[0]
    rows_by_id = {row.task.task_id: row for row in store.tasks.list_tasks_of_plans(
        [plan_id, back.plan_id])}
    assert [store.tasks.is_way_back(rows_by_id[task.task_id]) for task in (a, b, back)] == [
        False, False, True]
    swap, = store.tasks.settle_swaps(NOW)
    assert (swap.state, swap.undos) == (swaps.UNDOING, (back.plan_id,))
    assert store.tasks.settle_swaps(NOW) == [], 'told once'
    ended(store, back, now=NOW + 120)
    swap, = store.tasks.settle_swaps(NOW)
    assert swap.state == swaps.UNDONE and not swap.members_away
    assert store.tasks.list_in_flight_moves() == ()
    assert [d.verb for d in store.approvals.list_decisions(plan_id)][1:] == ['undoing', 'undone']
    assert b.instance_uuid in {q.name for q in store.quarantine.list_quarantines(NOW + 91)}


def test_the_way_back_comes_before_all_that_waits(store):
    _, a, b = begun(store)
    ended(store, a)
    row = store.tasks.claim_task('w', None, NOW + 60, **CAPS)
    cases.save(store, 5, now=NOW + 70)
    over(store, row, TaskState.FAILED, NOW + 90)
    assert row.task.task_id == b.task_id
    assert store.tasks.claim_task('w', None, NOW + 500,
                                  **CAPS | {'total': 1}).task == dataclasses.replace(
                                      follower(store, a), state=TaskState.CLAIMED)


def test_a_failed_undo_is_stored_with_the_place_of_each_instance(store):
    plan_id, a, b = begun(store)
    ended(store, a)
    ended(store, b, TaskState.CANCELLED)
    ended(store, follower(store, a), TaskState.FAILED, NOW + 90)
    swap, = store.tasks.settle_swaps(NOW)
    assert swap.state == swaps.STUCK and [m.instance_uuid for m in swap.members_away] == [
        a.instance_uuid]
    said = store.approvals.list_decisions(plan_id)[-1]
    assert said.verb == 'stuck' and f'{a.instance_uuid} is on h2, was on h1' in said.reason
    assert store.tasks.list_in_flight_moves() == () and store.tasks.claim_task('w', None, NOW + 99,
                                                                               **CAPS) is None


def test_decisions_of_one_pass_keep_their_order(store):
    for _ in range(8):
        plan_id, a, b = begun(store)
        ended(store, a, now=NOW)
        ended(store, b, TaskState.FAILED, NOW)
        ended(store, follower(store, a), TaskState.FAILED, NOW)
        assert [d.verb for d in store.approvals.list_decisions(plan_id)] == ['swapped', 'undoing',
                                                                             'stuck']


def test_nothing_is_undone_when_the_first_one_fails(store):
    plan_id, a, b = begun(store)
    cancelled = ended(store, a, TaskState.FAILED)
    assert [t.task_id for t in cancelled] == [b.task_id]
    assert state_of(store, plan_id) == swaps.CALLED_OFF and store.tasks.list_in_flight_moves() == ()
    assert store.tasks.settle_swaps(NOW) == [] and len(store.approvals.list_decisions(plan_id)) == 1


def test_cancelling_one_half_before_the_start_calls_off_the_swap(store):
    plan_id, a, b = begun(store)
    gone = store.tasks.cancel_task(b.task_id, NOW, cancelled_by='me', reason='no',
                                   instance_cooldown=0)
    assert {t.task_id for t in gone} == {a.task_id, b.task_id}
    assert state_of(store, plan_id) == swaps.CALLED_OFF and store.tasks.list_in_flight_moves() == ()


def test_one_that_has_begun_is_waited_for_and_goes_back(store):
    plan_id, a, b = begun(store)
    row = store.tasks.claim_task('w', None, NOW, **CAPS)
    store.tasks.update_state(row.task.task_id, 'w', [TaskState.CLAIMED], TaskState.SUBMITTING, NOW)
    assert [t.task_id for t in store.tasks.cancel_task(
        b.task_id, NOW, cancelled_by='me', reason='no', instance_cooldown=0)] == [b.task_id]
    assert state_of(store, plan_id) == swaps.GOING
    over(store, row)
    assert follower(store, a).to_host == 'h1' and state_of(store, plan_id) == swaps.UNDOING


def test_a_parked_one_goes_on_when_the_other_has_moved(store):
    plan_id, a, b = begun(store, parking='h3')
    ended(store, a)
    assert state_of(store, plan_id) == swaps.GOING
    ended(store, b)
    on = follower(store, a)
    assert (on.from_host, on.to_host) == ('h3', 'h2')
    assert store.tasks.settle_swaps(NOW) == [], 'nothing went wrong'
    ended(store, on)
    assert state_of(store, plan_id) == swaps.SWAPPED


def test_the_undo_of_a_parked_swap_moves_the_last_instance_first(store):
    plan_id, a, b = begun(store, parking='h3')
    ended(store, a, now=NOW + 10)
    ended(store, b, now=NOW + 20)
    ended(store, follower(store, a), TaskState.FAILED, now=NOW + 30, quarantine=-1)
    first = follower(store, b)
    assert (first.from_host, first.to_host) == ('h1', 'h2')
    assert len(store.tasks.list_tasks_in_states([TaskState.QUEUED])) == 1
    ended(store, first, now=NOW + 40)
    last = follower(store, a)
    assert (last.from_host, last.to_host) == ('h3', 'h1')
    assert store.quarantine.list_quarantines(NOW + 50) == [], 'it would stay where it should not'
    ended(store, last, now=NOW + 50)
    swap, = store.tasks.list_swaps(plan_id)
    assert swap.state == swaps.UNDONE and len(swap.undos) == 2


def test_the_way_on_from_a_parking_host_is_no_way_back(store):
    plan_id, a, b = begun(store, parking='h3')
    ended(store, a)
    ended(store, b)
    onward = follower(store, a)
    row, = store.tasks.list_tasks_of_plans([onward.plan_id])
    assert row.swap_id is not None and not store.tasks.is_way_back(row)


def test_a_parked_one_goes_back_when_the_other_fails(store):
    plan_id, a, b = begun(store, parking='h3')
    ended(store, a)
    ended(store, b, TaskState.FAILED)
    back = follower(store, a)
    assert (back.from_host, back.to_host) == ('h3', 'h1')
    ended(store, back)
    assert state_of(store, plan_id) == swaps.UNDONE


def test_until_it_is_over_both_places_of_both_are_held(store):
    def ends():
        return {f.instance_uuid: {f.from_host, f.to_host, *f.alternates}
                for f in store.tasks.list_in_flight_moves()}

    plan_id, a, b = begun(store, parking='h3')
    one, other = a.instance_uuid, b.instance_uuid
    assert ends() == {one: {'h1', 'h3', 'h2'}, other: {'h2', 'h1'}}
    ended(store, a)
    assert ends() == {one: {'h3', 'h1', 'h2'}, other: {'h2', 'h1'}}
    assert {f.scope for f in store.tasks.list_in_flight_moves()} == {
        a.aggregate}, 'also of whom no task moves now'
    assert next(f for f in store.tasks.list_in_flight_moves()
                if f.instance_uuid == one).from_host == 'h3'
    ended(store, b)
    assert ends() == {one: {'h3', 'h1', 'h2'}, other: {'h1', 'h2'}}
    ended(store, follower(store, a))
    assert ends() == {}
    assert all(len({f.from_host, f.to_host, *f.alternates}) == 2 + len(f.alternates)
               for f in store.tasks.list_in_flight_moves())


def test_settle_swaps_settles_swaps_that_ended_tasks_left(store):
    """As a daemon of the release before leaves it, or two that end both halves at once."""
    plan_id, a, b = begun(store)
    ended(store, a)
    row = store.tasks.claim_task('w', None, NOW + 60, **CAPS)
    cases.save(store, 1, scope='green')
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).values(
            state='failed', active_instance=None, completed_at=NOW + 70).where(
            tables.task.c.task_id == row.task.task_id))
    held = {f.instance_uuid for f in store.tasks.list_in_flight_moves() if f.scope == 'blue'}
    assert held == {a.instance_uuid}, 'it is held'
    swap, = store.tasks.settle_swaps(NOW + 80)
    assert swap.state == swaps.UNDOING and follower(store, a).to_host == 'h1'


def test_an_undo_waits_for_another_move_of_its_instance(store):
    plan_id, a, b = begun(store)
    ended(store, a)
    other = make_task(new_id(), instance_uuid=a.instance_uuid, from_host='h2', to_host='h9',
                      not_before=NOW + 999)
    plan = model.Plan('blue', (model.Move(a.instance_uuid, 'h2', 'h9', other.phase),))
    store.plans.save_plan(lease_of(store), plan, [other], plan_id=other.plan_id, now=NOW,
                          dry_run=False, cooldown=1, instance_cooldown=1)
    row = store.tasks.claim_task('w', None, NOW + 60, **CAPS)
    over(store, row, TaskState.FAILED)
    assert state_of(store, plan_id) == swaps.GOING and store.tasks.settle_swaps(NOW) == []
    store.tasks.cancel_task(other.task_id, NOW, cancelled_by='me', reason='no', instance_cooldown=0)
    assert store.tasks.settle_swaps(NOW)[0].state == swaps.UNDOING


def test_a_swap_that_is_not_over_is_kept_with_its_plans_however_old(store):
    plan_id, a, b = begun(store)
    ended(store, a)
    ended(store, b, TaskState.FAILED)
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).values(updated_at=0.0))
        connection.execute(sa.update(tables.plan).values(created_at=0.0))
    assert store.history.purge_records(NOW + 9e6) == 0 and state_of(store, plan_id) == swaps.UNDOING
    ended(store, follower(store, a))
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).values(updated_at=0.0))
    assert store.history.purge_records(NOW + 9e6) == 2 and store.tasks.list_swaps(plan_id) == []


def test_one_half_is_not_approved_without_the_other(store):
    plan_id = new_id()
    pending = {'state': TaskState.PENDING, 'deadline': NOW + 3600, 'alternates': ()}
    a = make_task(plan_id, **pending)
    b = make_task(plan_id, from_host='h2', to_host='h1', requires=(a.instance_uuid,), wave=1,
                  **pending)
    plan = model.Plan('blue', tuple(model.Move(
        t.instance_uuid, t.from_host, t.to_host, t.phase, wave=t.wave, requires=t.requires)
        for t in (a, b)), swaps=(model.Swap(a.instance_uuid, b.instance_uuid),))
    store.plans.save_plan(lease_of(store), plan, [a, b], plan_id=plan_id, now=NOW, dry_run=False,
                          cooldown=1, instance_cooldown=1)
    how = {'begin_within': {}, 'cooldown': 1, 'instance_cooldown': 1,
           'approve_task': cases.count_one_approval}
    with pytest.raises(exception.StoreError, match='or not at all'):
        store.approvals.approve_plan(plan_id, NOW,
                                     dataclasses.replace(SAID, instances=[a.instance_uuid]), **how)
    how['begin_within'] = {model.Phase.SPREAD: 60.0}
    assert len(store.approvals.approve_plan(plan_id, NOW, SAID, **how).tasks) == 2
    assert state_of(store, plan_id) == swaps.GOING
    ends = [store.tasks.find_task(t.task_id).task.deadline - NOW for t in (a, b)]
    assert ends == [60.0, rows.BEGIN_WITHIN], 'the first one would have to go back'


def test_a_dry_run_begins_none(store):
    plan_id = new_id()
    plan = model.Plan('blue', (model.Move('a', 'h1', 'h2', model.Phase.SPREAD),
                               model.Move('b', 'h2', 'h1', model.Phase.SPREAD)),
                      swaps=(model.Swap('a', 'b'),))
    store.plans.save_plan(None, plan, [], plan_id=plan_id, now=NOW, dry_run=True, cooldown=1,
                          instance_cooldown=1)
    assert store.tasks.list_swaps(plan_id) == [] and store.plans.find_plan(
        plan_id).plan.swaps == plan.swaps


def test_a_pair_of_moves_between_other_hosts_goes_back_in_the_same_way(store):
    """As spread plans it: each to a host of its own."""
    plan_id = new_id()
    a = make_task(plan_id, alternates=())
    b = make_task(plan_id, from_host='h4', to_host='h3', requires=(a.instance_uuid,), wave=1,
                  alternates=())
    plan = model.Plan('blue', tuple(model.Move(
        t.instance_uuid, t.from_host, t.to_host, t.phase, wave=t.wave, requires=t.requires)
        for t in (a, b)), swaps=(model.Swap(a.instance_uuid, b.instance_uuid),))
    store.plans.save_plan(lease_of(store), plan, [a, b], plan_id=plan_id, now=NOW, dry_run=False,
                          cooldown=1, instance_cooldown=1)
    swap, = store.tasks.list_swaps(plan_id)
    assert swap.noun == 'pair' and [m.target for m in swap.members] == ['h2', 'h3']
    ended(store, a)
    assert {f.instance_uuid: {f.from_host, f.to_host, *f.alternates}
            for f in store.tasks.list_in_flight_moves()}[a.instance_uuid] == {'h1', 'h2'}
    ended(store, b, TaskState.FAILED)
    back = follower(store, a)
    assert (back.from_host, back.to_host) == ('h2', 'h1')
    said = store.approvals.list_decisions(plan_id)[-1]
    assert said.verb == swaps.UNDOING and 'the pair failed' in said.reason
    ended(store, back)
    assert state_of(store, plan_id) == swaps.UNDONE


def test_a_plan_of_an_earlier_release_has_no_swaps(store):
    plan_id, a, b = begun(store)
    with store.engine.begin() as connection:
        document = json.loads(connection.scalar(sa.select(tables.plan.c.document)))
        del document['swaps']
        connection.execute(sa.update(tables.plan).values(document=json.dumps(document)))
    assert store.plans.find_plan(plan_id).plan.swaps == ()


def two_at_once(store):
    """The swaps of two plans, of which no task has ended."""
    return begun(store), begun(store, not_before=NOW + 999)


def test_calling_off_a_swap_cancels_the_other_half_alone(store):
    (plan_id, a, b), (other, _, _) = two_at_once(store)
    _, found = changed(store, lambda: store.tasks.cancel_task(
        b.task_id, NOW + 5, cancelled_by='me', reason='no', instance_cooldown=0))
    assert found.keys() == {a.task_id, b.task_id}
    assert found[a.task_id] == {
        'state': 'cancelled', 'active_instance': None, 'updated_at': NOW + 5,
        'completed_at': NOW + 5, 'error_type': 'RequirementFailed',
        'error': 'The other half of its swap did not succeed.'}
    with store.engine.connect() as connection:
        passes = {row.plan_id: row.passes for row in connection.execute(sa.select(tables.swap))}
    assert passes == {plan_id: passes[plan_id], other: 0} and passes[plan_id] > 0


def test_the_way_back_is_a_plan_and_a_task_of_their_own(store):
    """Of what the task before it was, its instance is left."""
    plan_id, a, b = begun(
        store, parking='h3', phase=model.Phase.SPREAD, alternates=('h7',), improvement=0.5,
        alternate_improvements=(0.25,), priority=7, deadline=NOW + 500, retry_count=2,
        memory_mb=2048, trees=(model.TreeDigest('h1', 'shape', 3),), policy_names=('cpu',))
    ended(store, a, now=NOW + 10)
    ended(store, b, now=NOW + 20)
    ended(store, follower(store, a), TaskState.FAILED, now=NOW + 30)
    back = follower(store, b)
    before = store.tasks.find_task(b.task_id).task
    assert (before.wave, before.requires) == (1, (a.instance_uuid,))
    assert back == dataclasses.replace(
        before, task_id=back.task_id, plan_id=back.plan_id, from_host='h1', to_host='h2',
        alternates=(), alternate_improvements=(), improvement=0.0, phase=model.Phase.REQUESTED,
        priority=0, wave=0, requires=(), retry_count=0, not_before=0.0, created_at=NOW + 30,
        deadline=NOW + 30 + rows.BEGIN_WITHIN, state=TaskState.QUEUED, trees=())
    row = store.plans.find_plan(back.plan_id)
    assert (row.epoch, row.dry_run, row.created_at) == (0, False, NOW + 30), 'of no engine'
    assert ('blue', back.instance_uuid) in {
        (flight.scope, flight.instance_uuid) for flight in store.tasks.list_in_flight_moves()}
    assert store.plans.find_plan(back.plan_id).plan == model.Plan(
        'blue', (model.Move(b.instance_uuid, 'h1', 'h2', model.Phase.REQUESTED),),
        warnings=(f'instance {b.instance_uuid} undoes the swap of plan {plan_id}',))
    assert store.approvals.list_decisions(plan_id)[-1].reason == (
        f'the swap failed; plan {back.plan_id} moves instance {b.instance_uuid} back to h2')


def test_a_retry_says_where_it_comes_from_and_its_end_that_all_is_as_before(store):
    plan_id, a, b = begun(store, parking='h3')
    ended(store, a, now=NOW + 10)
    ended(store, b, now=NOW + 20)
    on = follower(store, a)
    assert store.plans.find_plan(on.plan_id).plan.warnings == (
        f'instance {a.instance_uuid} goes on from its parking host in the swap of plan '
        f'{plan_id}',)
    ended(store, on, TaskState.FAILED, now=NOW + 30)
    ended(store, follower(store, b), now=NOW + 40)
    ended(store, follower(store, a), now=NOW + 50)
    said = store.approvals.list_decisions(plan_id)[-1]
    assert (said.verb, said.reason) == ('undone', 'all are back where they were')


def test_a_stuck_swap_names_every_instance_that_is_away(store):
    plan_id, a, b = begun(store, parking='h3')
    ended(store, a, now=NOW + 10)
    ended(store, b, now=NOW + 20)
    ended(store, follower(store, a), TaskState.FAILED, now=NOW + 30)
    ended(store, follower(store, b), TaskState.FAILED, now=NOW + 40)
    assert store.approvals.list_decisions(plan_id)[-1].reason == (
        f'the swap failed, and so did its undo: {b.instance_uuid} is on h1, was on h2, '
        f'{a.instance_uuid} is on h3, was on h1')


def test_swaps_are_ordered_by_start_and_their_tasks_by_end(store):
    _, (plan_id, a, b) = two_at_once(store)
    with store.engine.begin() as connection:
        for key, at in (('0', 3.0), ('1', 1.0), ('2', 2.0), ('3', 2.0)):
            connection.execute(sa.insert(tables.swap).values(
                swap_id=key, plan_id=plan_id, scope='blue', created_at=at, state=swaps.SWAPPED,
                members='[["x", "h1", "h2"], ["y", "h2", "h1"]]', undos='[]', passes=0))
        for task, at in ((a, 50.0), (b, 20.0)):
            connection.execute(sa.update(tables.task).where(
                tables.task.c.task_id == task.task_id).values(
                    completed_at=at, state='completed'))
    *made, swap = store.tasks.list_swaps(plan_id)
    assert [one.swap_id for one in made] == ['1', '2', '3', '0']
    assert [row.task.task_id for row in swap.tasks] == [b.task_id, a.task_id]
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.task).where(
            tables.task.c.task_id == b.task_id).values(completed_at=None, state='submitted'))
    assert [row.task.task_id for row in store.tasks.list_swaps(plan_id)[-1].tasks] == [
        a.task_id, b.task_id], 'who lives is last'


def test_when_the_second_is_too_late_the_first_goes_back_from_then_on(store):
    plan_id, a, b = begun(store, deadline=NOW + 500)
    ended(store, a)
    assert [t.task_id for t in store.tasks.expire_tasks(None, NOW + 500, 60)] == [b.task_id]
    back = follower(store, a)
    assert (back.to_host, back.created_at) == ('h1', NOW + 500)
    assert state_of(store, plan_id) == swaps.UNDOING


def test_each_of_several_stuck_swaps_is_reported_once(store):
    for plan_id, _, _ in (begun(store), begun(store)):
        with store.engine.begin() as connection:
            connection.execute(sa.update(tables.swap).where(
                tables.swap.c.plan_id == plan_id).values(state=swaps.STUCK))
    assert len(store.tasks.settle_swaps(NOW)) == 2
    assert store.tasks.settle_swaps(NOW) == []


def test_an_idle_instance_of_a_swap_counts_as_in_flight(store):
    _, a, b = begun(store, parking='h3')
    assert model.InFlightMove(
        b.instance_uuid, 'h2', 'h1', 'task', (), 'blue') in store.tasks.list_in_flight_moves()
    ended(store, a)
    assert store.tasks.list_in_flight_moves()[-1] == model.InFlightMove(
        a.instance_uuid, 'h3', 'h2', 'task', ('h1',), 'blue')
