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

"""Rules of every backend for plans that operators request; see :mod:`cases`."""

from unittest import mock

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.store import plan_decisions
from tests.unit.rebalancer.store.cases import claim
from tests.unit.rebalancer.store.cases import count_moves
from tests.unit.rebalancer.store.cases import dump
from tests.unit.rebalancer.store.cases import lease_of
from tests.unit.rebalancer.store.cases import make_task
from tests.unit.rebalancer.store.cases import new_id
from tests.unit.rebalancer.store.cases import NOW
from tests.unit.rebalancer.store.cases import save

SAID = plan_decisions.OperatorDecision('me@here', 'plan x: why not')


def ask(store, mark, scope='blue', **kw):
    plan_id = new_id()
    task = make_task(plan_id, scope, phase=model.Phase.REQUESTED, **kw)
    plan = model.Plan(scope, (model.Move(task.instance_uuid, 'h1', 'h2', task.phase),))
    store.plans.save_requested_plan(mark, plan, [task], plan_id=plan_id, now=NOW,
                                    instance_cooldown=900,
                                    decision=SAID, verb='reverted')
    return plan_id, task


def test_a_requested_plan_begins_and_leaves_the_scope_unchanged(store):
    save(store, 0, draining=['h4'])
    before = dump(store)
    plan_id, task = ask(store, store.plans.read_live_work())
    after = dump(store)
    assert {name for name in after if after[name] != before[name]} == {
        'plan', 'task', 'cooldown', 'audit', 'decision', 'lease'}
    history = store.history.read_history('blue', NOW)
    assert history.cooling == {task.instance_uuid: 900} and history.scope_cooling == 0
    assert history.draining == {'h4'}
    assert claim(store).task.task_id == task.task_id
    assert store.approvals.list_decisions(plan_id) == [
        plan_decisions.StoredDecision('reverted', NOW, 'me@here', 1, 'plan x: why not')]
    assert store.plans.find_plan(plan_id).plan.moves[0].phase is model.Phase.REQUESTED
    row = store.plans.find_plan(plan_id)
    assert (row.epoch, row.dry_run, row.created_at) == (2, False, NOW), 'the one after the engine'
    assert count_moves(store) == {'blue': 1}


def test_a_requested_plan_fences_the_engine_until_its_next_cycle(store):
    lease = lease_of(store)
    ask(store, store.plans.read_live_work())
    before = dump(store)
    with pytest.raises(exception.LeaseLost):
        save(store, lease=lease)
    assert not store.leases.renew_lease(lease, 30) and dump(store) == before
    again = store.leases.retake_lease(lease, 30)
    assert again.epoch == lease.epoch + 1, 'nobody else has had it'
    assert store.leases.renew_lease(again, 30) and lease_of(store) == again
    save(store, lease=again)
    assert store.leases.retake_lease(again, 30) is None, 'nothing came between'


def test_a_lease_that_was_overtaken_is_given_back_all_the_same(store):
    lease = lease_of(store)
    ask(store, store.plans.read_live_work())
    store.leases.release_lease(lease)
    assert store.leases.list_leased_scopes() == frozenset()
    again = store.leases.acquire_lease('blue', 'another', 30, 'hash')
    store.leases.release_lease(lease)
    assert store.leases.list_leased_scopes() == {
        'blue'} and again.epoch > lease.epoch, 'it is another one\'s now'


def test_a_lease_that_is_over_or_anothers_is_not_retaken(store):
    lease = store.leases.acquire_lease('blue', 'engine', 30, 'hash')
    ask(store, store.plans.read_live_work())
    later = store.now() + 31
    with mock.patch.object(store, '_clock', lambda: later):
        assert store.leases.retake_lease(lease, 30) is None
        store.leases.acquire_lease('blue', 'another', 30, 'other')
        assert store.leases.retake_lease(lease, 30) is None


def test_an_unplanned_scope_stays_free_after_a_requested_plan(store):
    ask(store, store.plans.read_live_work(), scope='green')
    assert store.leases.list_leased_scopes() == frozenset()
    assert store.leases.acquire_lease('green', 'engine', 30, 'hash').epoch == 2


def test_plans_made_meanwhile_in_any_scope_refuse_it(store):
    mark = store.plans.read_live_work()
    save(store, scope='red')
    before = dump(store)
    with pytest.raises(exception.StoreError, match='made while this one was judged.*ask again'):
        ask(store, mark)
    assert dump(store) == before
    ask(store, store.plans.read_live_work())


def test_drains_begun_meanwhile_refuse_it_and_such_as_ended_do_not(store):
    save(store, 0, draining=['h4'])
    mark = store.plans.read_live_work()
    save(store, 0, reason='over')
    ask(store, mark)
    mark = store.plans.read_live_work()
    save(store, 0, reason='again', draining=['h5'])
    with pytest.raises(exception.StoreError, match='ask again'):
        ask(store, mark)


def test_a_task_that_ended_meanwhile_is_no_reason(store):
    save(store, [make_task])
    mark = store.plans.read_live_work()
    row = claim(store)
    store.tasks.cancel_task(row.task.task_id, NOW, cancelled_by='me', reason='x',
                            instance_cooldown=0)
    ask(store, mark)


def test_a_busy_instance_refuses_the_whole(store):
    _, (task,), _ = save(store)
    before = dump(store)
    with pytest.raises(exception.StoreError, match=f'live task .*{task.instance_uuid}'):
        ask(store, store.plans.read_live_work(), instance_uuid=task.instance_uuid)
    assert dump(store) == before
