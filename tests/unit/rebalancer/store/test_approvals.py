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

"""What every backend must do about approval; see :mod:`cases`."""

import threading
import time
from unittest import mock

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import rows
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import at_once
from tests.unit.rebalancer.store.cases import claim
from tests.unit.rebalancer.store.cases import dump
from tests.unit.rebalancer.store.cases import lease_of
from tests.unit.rebalancer.store.cases import make_task
from tests.unit.rebalancer.store.cases import NOW
from tests.unit.rebalancer.store.cases import save

LIMITS = {'begin_within': {model.Phase.SPREAD: 1200.0}, 'cooldown': 600,
          'instance_cooldown': 900, 'approve_task': cases.count_one_approval}
SAID = plan_decisions.OperatorDecision('me@here', 'why not')


def pending(**kw):
    return lambda p, s: make_task(
        p, s, **{'state': TaskState.PENDING, 'created_at': NOW, 'deadline': NOW + 3600, **kw})


def approve(store, plan_id, now):
    return store.approvals.approve_plan(plan_id, now, SAID, **LIMITS)


def chain(store):
    """Two moves, the second of which requires the first, and one that stands alone."""
    first = {}

    def one(p, s):
        first['task'] = pending(from_host='h1')(p, s)
        return first['task']

    return save(store, [
        one, lambda p, s: pending(from_host='h2', wave=1,
                                  requires=(first['task'].instance_uuid,))(p, s),
        pending(from_host='h4', not_before=NOW + 7)])


def states(store, tasks):
    return [str(store.tasks.find_task(t.task_id).task.state) for t in tasks]


def test_a_task_awaiting_approval_is_unclaimed_and_holds_its_instance(store):
    _, tasks, _ = save(store, [pending(), pending()])
    assert claim(store, now=NOW + 60) is None
    assert store.tasks.renew_task_claim('w', NOW) is None and states(store,
                                                                     tasks) == ['pending'] * 2
    assert {f.instance_uuid for f in store.tasks.list_in_flight_moves()} == {t.instance_uuid
                                                                             for t in tasks}
    with pytest.raises(exception.StoreError, match=tasks[0].instance_uuid):
        save(store, [lambda p, s: make_task(p, s, instance_uuid=tasks[0].instance_uuid)])


def test_an_approved_plan_keeps_its_stagger_from_the_approval_on(store):
    plan_id, tasks, _ = chain(store)
    then = NOW + 1000
    assert {t.task_id for t in approve(store, plan_id, then).tasks} == {t.task_id for t in tasks}
    assert [store.tasks.find_task(t.task_id).task.not_before - then for t in tasks] == [0, 0, 7]
    assert [store.tasks.find_task(t.task_id).task.deadline - then for t in tasks] == [1200] * 3
    assert claim(store, now=then).task.task_id == tasks[0].task_id
    assert claim(store, now=then) is None, 'one requires another, one waits for its time'
    assert claim(store, now=then + 7).task.task_id == tasks[2].task_id
    assert approve(store, plan_id, then) == plan_approvals.PlanApproval(), 'it is approved already'
    (said,) = store.approvals.list_decisions(plan_id)
    assert said == plan_decisions.StoredDecision('approved', then, 'me@here', 3, 'why not')


def test_a_phase_without_a_limit_has_as_long_as_any_task(store):
    plan_id, (task,), _ = save(store, [pending(phase=model.Phase.EVACUATE)])
    store.approvals.approve_plan(plan_id, NOW, SAID, **LIMITS)
    assert store.tasks.find_task(task.task_id).task.deadline == NOW + rows.BEGIN_WITHIN


def test_single_moves_are_approved_with_those_they_require_or_not_at_all(store):
    plan_id, (first, second, alone), _ = chain(store)
    before = dump(store)
    with pytest.raises(exception.StoreError, match=(
            f'{second.instance_uuid} requires those of {first.instance_uuid}.*approve these')):
        store.approvals.approve_plan(plan_id, NOW,
                                     plan_decisions.OperatorDecision(
                                         'me', '', [second.instance_uuid]), **LIMITS)
    assert dump(store) == before
    store.approvals.approve_plan(plan_id, NOW,
                                 plan_decisions.OperatorDecision('me', '', [first.instance_uuid]),
                                 **LIMITS)
    assert states(store, (first, second, alone)) == ['queued', 'pending', 'pending']
    store.approvals.approve_plan(plan_id, NOW,
                                 plan_decisions.OperatorDecision('me', '', [second.instance_uuid]),
                                 **LIMITS)
    assert states(store, (first, second, alone)) == ['queued', 'queued', 'pending']
    assert [d.tasks for d in store.approvals.list_decisions(plan_id)] == [1, 1]
    (waiting,) = store.approvals.list_waiting_plans(NOW)
    assert (waiting.moves, waiting.until) == (1, NOW + 3600)


def test_a_rejected_task_cancels_its_dependents_and_cools_down(store):
    plan_id, (first, second, alone), _ = chain(store)
    ended = store.approvals.reject_plan(plan_id, NOW + 600,
                                        plan_decisions.OperatorDecision('me', 'no',
                                                                        [first.instance_uuid]),
                                        900)
    assert {t.task_id for t in ended} == {first.task_id, second.task_id}
    assert states(store, (first, second, alone)) == ['cancelled', 'cancelled', 'pending']
    row = store.tasks.find_task(first.task_id)
    assert (row.error_type, row.error) == ('MigrationCancelled', 'Rejected by me: no')
    assert store.tasks.find_task(second.task_id).error_type == 'RequirementFailed'
    assert store.history.read_history('blue', NOW + 600).cooling[first.instance_uuid] == 900
    assert [(d.verb, d.tasks) for d in store.approvals.list_decisions(plan_id)] == [('rejected', 2)]


def test_of_a_rejected_plan_every_instance_cools(store):
    plan_id, tasks, _ = chain(store)
    assert len(store.approvals.reject_plan(plan_id, NOW + 600, SAID, 900)) == 3
    assert store.history.read_history('blue', NOW + 600).cooling == dict.fromkeys(
        (t.instance_uuid for t in tasks), 900.0)
    assert not store.approvals.list_waiting_plans(NOW) and not store.tasks.list_in_flight_moves()


def test_an_approved_plan_can_be_cancelled_and_not_rejected(store):
    plan_id, tasks, _ = chain(store)
    store.approvals.approve_plan(plan_id, NOW, SAID, **LIMITS)
    assert not store.approvals.reject_plan(plan_id, NOW, SAID,
                                           900) and states(store, tasks) == ['queued'] * 3
    begun = claim(store, now=NOW)
    store.tasks.update_state(begun.task.task_id, 'w', [begun.task.state], TaskState.SUBMITTING, NOW)
    assert len(store.approvals.cancel_plan(plan_id, NOW + 1, SAID, 900)) == 2
    assert states(store, tasks) == ['submitting', 'cancelled', 'cancelled']
    assert [d.verb for d in store.approvals.list_decisions(plan_id)] == ['approved', 'cancelled']


def test_an_unapproved_plan_lapses_for_every_reader(store):
    plan_id, tasks, _ = chain(store)
    (waiting,) = store.approvals.list_waiting_plans(NOW + 3599, 'blue')
    assert (waiting.plan_id, waiting.scope, waiting.since, waiting.until, waiting.moves) == (
        plan_id, 'blue', NOW, NOW + 3600, 3)
    assert f'plan {plan_id} waits for approval of 3 moves' in str(waiting)
    assert 'lapses at 2023-11-14T23:13' in str(waiting)
    assert store.approvals.list_waiting_plans(
        NOW, 'red') == [] == store.approvals.list_waiting_plans(NOW + 3600)
    assert store.approvals.cancel_lapsed_tasks(lease_of(store), NOW + 3599) == []
    assert approve(store, plan_id, NOW + 3600) == plan_approvals.PlanApproval()
    assert states(store, tasks) == ['pending'] * 3
    assert {t.task_id
            for t in store.approvals.cancel_lapsed_tasks(lease_of(store), NOW + 3600)} == {
                t.task_id for t in tasks}
    assert states(store, tasks) == ['cancelled'] * 3
    row = store.tasks.find_task(tasks[2].task_id)
    assert (row.error_type, row.error) == ('TaskExpired', 'No operator approved it in time.')


def test_the_requester_of_a_plan_differs_from_its_decider(store):
    plan_ids = [save(store, 1, scope=scope)[0] for scope in ('blue', 'green', 'red')]
    for plan_id, verb in ((plan_ids[0], 'asked'), (plan_ids[2], 'reverted')):
        store.run_transaction(lambda c, p=plan_id, v=verb: plan_decisions.record_decision(
            c, p, NOW, v, plan_decisions.OperatorDecision(v), 1))
    for plan_id in plan_ids:
        store.approvals.cancel_plan(plan_id, NOW, SAID, 900)
    assert store.approvals.find_requesters(plan_ids) == {plan_ids[0]: 'asked',
                                                         plan_ids[2]: 'reverted'}
    assert store.approvals.find_requesters(plan_ids[:1]) == {plan_ids[0]: 'asked'}
    assert store.approvals.find_requesters([]) == {}


def test_a_lapse_is_of_its_scope_and_of_what_waits_alone(store):
    _, (blue, queued), _ = save(store, [pending(), lambda p, s: make_task(
        p, s, deadline=NOW + 3600)])
    _, (red,), _ = save(store, [pending()], scope='red')
    store.approvals.cancel_lapsed_tasks(lease_of(store), NOW + 3600)
    assert states(store, (blue, queued, red)) == ['cancelled', 'queued', 'pending']


def test_a_zombie_lapses_nothing(store):
    _, tasks, _ = save(store, [pending()])
    old = lease_of(store)
    store.leases.release_lease(old)
    store.leases.acquire_lease('blue', 'another', 30, 'hash')
    with pytest.raises(exception.LeaseLost):
        store.approvals.cancel_lapsed_tasks(old, NOW + 3600)
    assert states(store, tasks) == ['pending']


def test_of_approving_and_rejecting_at_once_one_wins_each_task(store):
    plan_id, tasks, _ = save(store, [pending(from_host=f'h{n}') for n in range(5)])
    approved, rejected = at_once(2, lambda n: (
        approve(store, plan_id, NOW).tasks if n == 0
        else store.approvals.reject_plan(plan_id, NOW, SAID, 900)))
    assert not isinstance(approved, Exception) and not isinstance(rejected, Exception)
    assert sorted([len(approved), len(rejected)]) == [0, 5]
    assert set(states(store, tasks)) == {'queued' if approved else 'cancelled'}


def test_a_rejection_during_an_approval_leaves_the_approved_tasks(store):
    plan_id, tasks, _ = save(store, [pending(from_host=f'h{n}') for n in range(3)])
    approving, rejecting = threading.Event(), threading.Event()

    def approve_slowly(task, until):
        approving.set()
        assert rejecting.wait(30)
        time.sleep(0.2)
        return cases.count_one_approval(task, until)

    def decide(number):
        if number == 0:
            return store.approvals.approve_plan(
                plan_id, NOW, SAID, **{**LIMITS, 'approve_task': approve_slowly}).tasks
        assert approving.wait(30)
        rejecting.set()
        return store.approvals.reject_plan(plan_id, NOW, SAID, 900)

    approved, rejected = at_once(2, decide)
    assert (len(approved), rejected) == (3, [])
    assert states(store, tasks) == ['queued'] * 3


def test_a_purge_removes_decisions_with_their_plan(store):
    plan_id, _, _ = chain(store)
    store.approvals.reject_plan(plan_id, NOW, SAID, 0)
    later = NOW + 86400 * 400
    with mock.patch.object(store, '_clock', lambda: later):
        assert store.history.purge_records(later - 86400) == 1
    assert store.approvals.list_decisions(plan_id) == [] and store.plans.find_plan(plan_id) is None


def drains(store):
    with store.engine.connect() as connection:
        return plans.list_draining_hosts(connection, 'blue')


def test_a_plan_that_waits_begins_no_drain_and_ends_none_that_goes_on(store):
    save(store, 0, draining=['h7', 'h8'])
    plan_id, _, _ = save(store, [pending(from_host='h1', phase=model.Phase.PACK)],
                         draining=['h1', 'h7'])
    assert drains(store) == {'h7'}, 'h8 is not drained any more'
    store.approvals.reject_plan(plan_id, NOW, SAID, 900)
    assert drains(store) == {'h7'}


def test_an_approved_drain_holds_until_it_is_cancelled(store):
    plan_id, _, _ = save(store, [pending(from_host='h1', phase=model.Phase.PACK)],
                         draining=['h1'])
    store.approvals.approve_plan(plan_id, NOW, SAID, **LIMITS)
    assert drains(store) == {'h1'}
    store.approvals.cancel_plan(plan_id, NOW, SAID, 900)
    assert drains(store) == set()


def test_of_a_part_that_is_approved_only_its_hosts_are_drained(store):
    plan_id, (one, _two), _ = save(
        store, [pending(from_host=h, phase=model.Phase.PACK) for h in ('h1', 'h2')],
        draining=['h1', 'h2'])
    store.approvals.approve_plan(plan_id, NOW,
                                 plan_decisions.OperatorDecision('me', '', [one.instance_uuid]),
                                 **LIMITS)
    assert drains(store) == {'h1'}


def test_cooldowns_begin_when_a_plan_is_approved(store):
    plan_id, (task,), _ = save(store, [pending()])
    store.approvals.approve_plan(plan_id, NOW + 3500, SAID, **LIMITS)
    history = store.history.read_history('blue', NOW + 3500)
    assert history.scope_cooling == 600 and history.cooling == {task.instance_uuid: 900}


def supersede(store, tasks):
    return store.approvals.supersede_tasks(
        lease_of(store), [t.task_id for t in tasks], NOW + 60, SAID, cooldown=600,
        instance_cooldown=900)


def test_cooldowns_of_superseded_moves_end_and_others_last(store):
    _, (other,), _ = save(store, [pending()], scope='red')
    _, tasks, _ = chain(store)
    ended = supersede(store, tasks[:2])
    assert sorted(t.task_id for t in ended) == sorted(t.task_id for t in tasks[:2])
    history = store.history.read_history('blue', NOW + 60)
    assert history.scope_cooling == 0
    assert history.cooling == dict.fromkeys(
        (tasks[2].instance_uuid, other.instance_uuid), 840.0)
    assert store.history.read_history('red', NOW + 60).scope_cooling == 540


def test_a_superseded_move_keeps_a_cooldown_that_an_approval_has_begun(store):
    plan_id, (one, two), _ = save(store, [pending(), pending()])
    store.approvals.approve_plan(plan_id, NOW + 30, plan_decisions.OperatorDecision(
        'me', '', [one.instance_uuid]), **LIMITS)
    assert [t.task_id for t in supersede(store, (one, two))] == [two.task_id]
    history = store.history.read_history('blue', NOW + 60)
    assert history.scope_cooling == 570 and history.cooling == {one.instance_uuid: 870}


def test_a_move_that_waits_no_more_refuses_those_that_are_named_beside_it(store):
    plan_id, (first, _second, alone), _ = chain(store)
    store.approvals.reject_plan(plan_id, NOW,
                                plan_decisions.OperatorDecision('me', 'no', [alone.instance_uuid]),
                                900)
    before = dump(store)
    with pytest.raises(exception.StoreError, match=f'of the moves of {alone.instance_uuid}'):
        store.approvals.approve_plan(plan_id, NOW, plan_decisions.OperatorDecision(
            'me', '', [first.instance_uuid, alone.instance_uuid]), **LIMITS)
    assert dump(store) == before


def test_an_executor_stores_that_no_operator_approved_the_task(store):
    _, (waits, queued), _ = save(store, [pending(), lambda p, s: make_task(
        p, s, deadline=NOW + 3600)])
    assert len(store.tasks.expire_tasks(None, NOW + 3600, 60)) == 2
    assert store.tasks.find_task(waits.task_id).error == 'No operator approved it in time.'
    assert 'not begun in time' in store.tasks.find_task(queued.task_id).error


def test_the_name_of_an_operator_is_cut_to_its_column(store):
    plan_id, _, _ = save(store, [pending()])
    store.approvals.approve_plan(plan_id, NOW, plan_decisions.OperatorDecision('x' * 300, 'why'),
                                 **LIMITS)
    assert store.approvals.list_decisions(plan_id)[0].decided_by == 'x' * 255


def test_an_engines_older_plan_undoes_no_approval_and_no_cancelling(store):
    plan_id, _, _ = save(store, [pending(from_host='h1', phase=model.Phase.PACK)],
                         draining=['h1'])
    for decide in (lambda: store.approvals.approve_plan(plan_id, NOW, SAID, **LIMITS),
                   lambda: store.approvals.cancel_plan(plan_id, NOW, SAID, 900)):
        lease = lease_of(store)
        decide()
        known = drains(store)
        with pytest.raises(exception.LeaseLost):
            save(store, 0, lease=lease, reason='held', draining=['h9'])
        assert drains(store) == known


def test_cancelling_ends_no_drain_of_another_plan(store):
    save(store, [lambda p, s: make_task(p, s, from_host='h7', phase=model.Phase.PACK)],
         draining=['h7'])
    spread, _, _ = save(store, [lambda p, s: make_task(p, s, from_host='h7'),
                                lambda p, s: make_task(p, s, from_host='h2')], draining=['h7'])
    store.approvals.cancel_plan(spread, NOW, SAID, 900)
    assert drains(store) == {'h7'}


def test_the_holder_of_the_lease_gets_each_decision_once(store):
    plan_id, _, _ = chain(store)
    other, _, _ = save(store, [pending()], scope='red')
    store.approvals.approve_plan(plan_id, NOW, SAID, **LIMITS)
    store.approvals.reject_plan(other, NOW, SAID, 900)
    lease = lease_of(store)
    (said,) = store.approvals.pop_unannounced_decisions(lease)
    assert (said.verb, said.plan_id, said.tasks) == ('approved', plan_id, 3)
    assert store.approvals.pop_unannounced_decisions(lease) == []
    store.leases.release_lease(lease)
    store.approvals.cancel_plan(plan_id, NOW + 1, SAID, 900)
    late = store.leases.acquire_lease('blue', 'another', 30, 'hash')
    with pytest.raises(exception.LeaseLost):
        store.approvals.pop_unannounced_decisions(lease)
    assert [d.verb for d in store.approvals.pop_unannounced_decisions(late)] == ['cancelled']


def count_two(store, plan_id, person, instances=None, now=NOW):
    """Approve as a person where two must; without keys."""
    signer = task_authorization.TaskSigner(None)

    def approve_task(task, begin_by):
        authorization = signer.approve_task(task, person, now, begin_by)
        return None if authorization is None else plan_approvals.TaskApproval(
            authorization.format_text(), authorization.missing)

    return store.approvals.approve_plan(
        plan_id, now, plan_decisions.OperatorDecision(person, 'why', instances),
        **{**LIMITS, 'approve_task': approve_task})


def wait_for_two(number=2):
    needed = task_authorization.TaskAuthorization(2).format_text()
    return [pending(authorization=needed) for _ in range(number)]


def test_a_plan_that_two_people_must_approve_waits_for_the_second(store):
    plan_id, tasks, _ = save(store, wait_for_two())
    first = count_two(store, plan_id, 'ada')
    assert (first.tasks, {t.task_id for t in first.waiting}, first.missing) == (
        [], {t.task_id for t in tasks}, 1)
    assert states(store, tasks) == ['pending'] * 2 and claim(store, now=NOW + 60) is None
    assert [w.plan_id for w in store.approvals.list_waiting_plans(NOW)] == [plan_id]
    second = count_two(store, plan_id, 'bob')
    assert {t.task_id for t in second.tasks} == {t.task_id for t in tasks}
    assert (second.waiting, second.missing) == ([], 0)
    assert states(store, tasks) == ['queued'] * 2
    assert {(d.verb, d.decided_by, d.tasks) for d in store.approvals.list_decisions(plan_id)} == {
        ('co-approved', 'ada', 2), ('approved', 'bob', 2)}
    assert store.approvals.find_requesters([plan_id]) == {}


def test_one_person_does_not_approve_twice_and_nothing_is_written(store):
    plan_id, tasks, _ = save(store, wait_for_two())
    count_two(store, plan_id, 'ada', [tasks[0].instance_uuid])
    before = dump(store)
    with pytest.raises(exception.DecisionRefused, match='has your approval of 1 move already'):
        count_two(store, plan_id, 'ada', [tasks[0].instance_uuid])
    assert dump(store) == before
    rest = count_two(store, plan_id, 'ada')
    assert [t.task_id for t in rest.waiting] == [tasks[1].task_id], 'the moves that are left'
    assert len(count_two(store, plan_id, 'bob').tasks) == 2


def test_two_people_who_approve_at_once_both_count(store):
    plan_id, tasks, _ = save(store, wait_for_two(5))
    approvals = at_once(2, lambda n: count_two(store, plan_id, ('ada', 'bob')[n]))
    assert sorted(len(approval.tasks) for approval in approvals) == [0, 5]
    assert states(store, tasks) == ['queued'] * 5


def test_rejecting_ends_a_plan_that_one_person_has_approved(store):
    plan_id, tasks, _ = save(store, wait_for_two())
    count_two(store, plan_id, 'ada')
    store.approvals.reject_plan(plan_id, NOW, SAID, 900)
    assert states(store, tasks) == ['cancelled'] * 2


@pytest.mark.parametrize(('methods', 'shutdowns'), [
    (('live', 'cold'), 0), (('live', 'offline', 'offline'), 2)])
def test_a_plan_that_waits_says_how_many_instances_it_shuts_down(store, methods, shutdowns):
    save(store, [pending(method=model.MoveMethod(method)) for method in methods])
    (waiting,) = store.approvals.list_waiting_plans(NOW)
    assert (waiting.moves, waiting.shutdowns) == (len(methods), shutdowns)
    assert (f', {shutdowns} with a shutdown' in str(waiting)) == bool(shutdowns)
