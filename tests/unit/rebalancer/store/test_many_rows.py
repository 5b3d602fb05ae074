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


"""Counts and readings of many rows, and writes that must leave other rows unchanged.

Each function takes a store with an upgraded, empty database, as in :mod:`cases`.
"""

import collections
import dataclasses
import json

import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.planning import breakers
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import requests
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import store_stats
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store import test_pending_hooks
from tests.unit.rebalancer.store.cases import lease_of
from tests.unit.rebalancer.store.cases import make_task
from tests.unit.rebalancer.store.cases import NOW
from tests.unit.rebalancer.store.cases import save
from tests.unit.rebalancer.store.test_approvals import LIMITS
from tests.unit.rebalancer.store.test_approvals import pending
from tests.unit.rebalancer.store.test_approvals import SAID
from tests.unit.rebalancer.store.test_exact_changes import changed
from tests.unit.rebalancer.store.test_moves_by_operators import ask


def _insert(store, table, **values):
    with store.engine.begin() as connection:
        connection.execute(sa.insert(table).values(**values))


def _set(store, table, **values):
    with store.engine.begin() as connection:
        connection.execute(sa.update(table).values(**values))


def _all(store, table):
    with store.engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.select(table)).mappings()]


# Plans and cycles.

def test_rejections_are_stored_with_their_plan(store):
    no = model.Rejection('copies-disk', 'it has disks')
    plan = model.Plan('blue', held=(no,), undrained=(model.Rejection('locked', 'it is'),),
                      draining=frozenset({'h7'}), reason='nothing can be moved')
    lease = lease_of(store)
    plan_id = cases.new_id()
    store.plans.save_plan(lease, plan, [], plan_id=plan_id, now=NOW + 7, dry_run=False, cooldown=0,
                          instance_cooldown=0)
    assert store.plans.find_plan(plan_id) == rows.PlanRow(plan_id, NOW + 7, False, lease.epoch,
                                                          plan)


def test_a_plan_of_another_release_is_read_with_known_fields_and_defaults(store):
    """It knew nothing but moves, or more than is known here; names that its row has are not
    taken from the document."""
    move = {'instance_uuid': 'i', 'from_host': 'h1', 'to_host': 'h2', 'phase': 'spread'}
    plan_id, _, _ = save(store)
    _set(store, tables.plan, document=json.dumps(
        {'moves': [move], 'scope': 'green', 'reason': 'later', 'colour': 'red'}))
    assert store.plans.find_plan(plan_id).plan == model.Plan(
        'blue', (model.Move('i', 'h1', 'h2', model.Phase.SPREAD),))


def test_a_cycle_of_another_release_is_read_with_defaults(store):
    lease_of(store)
    assert store.statistics.read_census().scopes['blue'].cycle == rows.CycleRecord()
    _set(store, tables.lease, cycle='{"reason": "enough", "colour": "red"}')
    assert store.statistics.read_census().scopes['blue'].cycle == rows.CycleRecord(reason='enough')


# What is counted.

def test_each_scope_is_counted_separately(store):
    now = store.now()
    for scope, hosts, planned, before in (('blue', ('h1',), 60, 0.8), ('green', (), 50, 0.6),
                                          ('red', ('h2', 'h3', 'h4'), 40, 0.4)):
        save(store, 0, scope, now=now - planned, draining=hosts, reason='why')
        for n in (1, 0):
            plan_id = cases.new_id()
            _insert(store, tables.plan, plan_id=plan_id, scope=scope, epoch=1, created_at=now,
                    dry_run=False, moves=0, document='{"moves": []}')
            _insert(store, tables.outcome, plan_id=plan_id, scope=scope, planned_at=now,
                    combined_before=before, combined_foreseen=before / 2 + n,
                    combined_realised=0.1, realised_at=now - planned / 10 + n)
    _insert(store, tables.lease, scope='over', owner='gone', epoch=4, until=now,
            policy_hash='', planned_at=now)
    found = store.statistics.read_census().scopes
    assert {scope: (told.draining, told.planned_at, told.owner, told.realised_at)
            for scope, told in found.items()} == {
        'blue': (1, now - 60, 'engine', now - 5), 'green': (0, now - 50, 'engine', now - 4),
        'red': (3, now - 40, 'engine', now - 3), 'over': (0, now, 'gone', None)}
    for scope, before in (('blue', 0.8), ('green', 0.6), ('red', 0.4)):
        told = found[scope].outcome
        assert told == breakers.PlanOutcome(told.plan_id, before, before / 2 + 1, 0.1)
    assert not found['over'].leased


def test_live_tasks_are_counted_by_scope_phase_and_state(store):
    now = store.now()
    for scope, count, ago in (('blue', 1, 300), ('green', 2, 100)):
        save(store, [lambda p, s, ago=ago: make_task(p, s, created_at=now - ago)] * count, scope,
             now=now - ago)
        save(store, [lambda p, s, ago=ago: make_task(
            p, s, created_at=now - ago - 50, phase=model.Phase.EVACUATE)], scope, now=now - ago)
        row = cases.claim(store, now=now - ago, scopes={scope})
        # It was to begin long ago, and has; it may take a while yet.
        store.tasks.update_state(row.task.task_id, 'w', [TaskState.CLAIMED], TaskState.SUBMITTED,
                                 now,
                                 deadline=now + 3600)
        with store.engine.begin() as connection:
            connection.execute(sa.update(tables.task).values(expires_at=now - 1).where(
                tables.task.c.task_id == row.task.task_id))
    save(store, [lambda p, s: make_task(p, s, deadline=now - 1, created_at=now)], 'late')
    found = store.statistics.read_census()
    counts = collections.Counter()
    for (scope, _, state), number in found.tasks.items():
        counts[scope, state] += number
    assert counts == {('blue', 'queued'): 1, ('blue', 'submitted'): 1, ('green', 'queued'): 2,
                      ('green', 'submitted'): 1, ('late', 'queued'): 1}
    for scope, spread in (('blue', 1), ('green', 2)):
        assert [sum(n for (s, phase, _), n in found.tasks.items() if (s, phase) == (scope, each))
                for each in ('spread', 'evacuate')] == [spread, 1]
    assert found.overdue == {'blue': 0, 'green': 0, 'late': 1}
    assert 0 <= found.ages['late', 'queued'] < 60
    assert 100 <= found.ages['green', 'queued'] < 200
    assert 300 <= found.ages['blue', 'submitted'] < 400


def test_the_age_of_a_state_is_that_of_its_oldest_task_in_any_phase(store):
    now = store.now()
    for scope, spread, evacuate in (('blue', 100, 300), ('green', 300, 100)):
        for phase, ago in ((model.Phase.SPREAD, spread), (model.Phase.EVACUATE, evacuate)):
            save(store, [lambda p, s, phase=phase, ago=ago: make_task(
                p, s, created_at=now - ago, phase=phase)], scope)
    found = store.statistics.read_census()
    assert found.tasks == {(scope, phase, 'queued'): 1 for scope in ('blue', 'green')
                           for phase in ('spread', 'evacuate')}
    assert all(300 <= found.ages[scope, 'queued'] < 400 for scope in ('blue', 'green'))


def test_requests_are_counted_with_the_time_that_the_oldest_has_waited(store):
    now = store.now()
    for n, ago in enumerate((0, 200, 100)):
        store.run_transaction(lambda c, n=n,
                              ago=ago: requests.record_request(c, requests.MigfraRequest(
                                  f'r{n}', 'me', 'stop vm' if n else 'migrate vm', '{}', 'd' * 64,
                                  now - ago)))
    found = store.statistics.read_census().requests
    assert {kind: number for kind, (number, _) in found.items()} == {
        'stop vm': 2, 'migrate vm': 1}
    assert 200 <= found['stop vm'][1] < 260 and 0 <= found['migrate vm'][1] < 60


def test_times_to_come_are_no_ages(store):
    """A clock of another machine is ahead of the database's."""
    now = store.now() + 500
    save(store, [lambda p, s: make_task(p, s, created_at=now)])
    store.run_transaction(lambda c: requests.record_request(c, requests.MigfraRequest(
        'r', 'me', 'stop vm', '{}', 'd' * 64, now)))
    found = store.statistics.read_census()
    assert isinstance(found, store_stats.RowCensus)
    assert (found.ages, found.requests) == ({('blue', 'queued'): 0.0}, {'stop vm': (1, 0.0)})


# Pauses.

def test_pauses_are_listed_with_their_operator_and_reason(store):
    store.pauses.pause_scope('blue', NOW, seconds=None, paused_by='me', reason='mine')
    store.pauses.pause_scope(None, NOW + 1, seconds=90, paused_by='you', reason='yours')
    assert store.pauses.list_pauses(
        NOW + 2) == [pauses.PauseRecord(None, NOW + 1, NOW + 91, 'you', 'yours'),
                                     pauses.PauseRecord('blue', NOW, None, 'me', 'mine')]
    assert [str(pause) for pause in store.pauses.list_pauses(NOW + 2)] == [
        'everything was paused by you until 2023-11-14T22:14+00:00: yours (kronos resume ends it)',
        'scope blue was paused by me: mine (kronos resume --scope ... ends it)']


def test_a_breaker_gives_way_to_a_pause_of_its_scope_that_lasts_as_long(store):
    lease = lease_of(store)
    store.pauses.pause_scope('green', NOW, seconds=None, paused_by='me', reason='elsewhere')
    store.outcomes.open_breaker(lease, NOW, seconds=600, paused_by='breaker', reason='worse')
    assert store.pauses.find_pause(
        'blue', NOW).paused_by == 'breaker', 'of another scope says nothing'
    store.pauses.pause_scope('blue', NOW, seconds=600, paused_by='me', reason='mine')
    store.outcomes.open_breaker(lease, NOW, seconds=600, paused_by='breaker', reason='worse')
    assert store.pauses.find_pause('blue', NOW).paused_by == 'me'


# Decisions.

def test_a_waiting_plan_names_the_time_of_its_lapse(store):
    plan_id, _, _ = save(store, [pending(), pending(deadline=NOW + 60)])
    found, = store.approvals.list_waiting_plans(NOW)
    assert str(found) == (
        f'plan {plan_id} waits for approval of 2 moves (kronos plan approve, or reject); it '
        'lapses at 2023-11-14T22:14+00:00')


def test_approving_changes_its_tasks_alone_and_keeps_the_drains_of_others(store):
    save(store, 0, draining=['h8'], reason='drain')
    plan_id, (first, second), _ = save(store, [
        pending(not_before=NOW + 7), pending()], draining=['h1', 'h8'])
    assert store.history.read_history('blue', NOW).draining == {'h8'}, 'nothing has begun'
    _, found = changed(store, lambda: store.approvals.approve_plan(
        plan_id, NOW + 100, plan_decisions.OperatorDecision('me', '', [first.instance_uuid]),
        **LIMITS))
    assert found == {first.task_id: {'state': 'queued', 'updated_at': NOW + 100,
                                     'not_before': NOW + 107, 'expires_at': NOW + 1300}}
    store.approvals.approve_plan(plan_id, NOW + 200, SAID, **LIMITS)
    assert {row['host']: row['since'] for row in _all(store, tables.drain)} == {
        'h8': NOW, 'h1': NOW + 100}
    assert store.tasks.find_task(second.task_id).task.state is TaskState.QUEUED


def test_rejecting_a_plan_ends_no_drain_and_fences_no_engine(store):
    lease = lease_of(store)
    save(store, 0, draining=['h1'], reason='drain', lease=lease)
    plan_id, _, _ = save(store, [pending()], draining=['h1'], lease=lease)
    assert store.history.read_history('blue', NOW).draining == {'h1'}
    assert store.approvals.reject_plan(plan_id, NOW, SAID, 900)
    assert store.history.read_history('blue', NOW).draining == {'h1'} and store.leases.renew_lease(
        lease, 30)


def test_cancelling_ends_the_drains_that_it_began_and_no_others(store):
    save(store, 0, draining=['h8'], reason='drain', now=NOW - 9)
    plan_id, tasks, _ = save(store, draining=['h1', 'h8'])
    assert store.approvals.cancel_plan(plan_id, NOW + 9, SAID, 900)
    assert {row['host']: row['since'] for row in _all(store, tables.drain)} == {'h8': NOW - 9}


def test_moves_that_have_nothing_to_decide_are_all_named(store):
    plan_id, (task,), _ = save(store, [pending()])
    with pytest.raises(exception.StoreError) as error:
        store.approvals.approve_plan(plan_id, NOW,
                                     plan_decisions.OperatorDecision(
                                         'me', '', ['b', task.instance_uuid, 'a']),
                                     **LIMITS)
    assert 'has nothing to decide of the moves of a, b.' in str(error.value)
    assert str(error.value).endswith(
        'Nothing was written; leave them out. kronos plan show has their states.')


def test_moves_that_are_required_are_all_named(store):
    first, second = sorted(cases.new_id() for _ in range(2))
    plan_id, tasks, _ = save(store, [
        pending(instance_uuid=first), pending(instance_uuid=second),
        pending(requires=(second, first), wave=1)])
    with pytest.raises(exception.StoreError) as error:
        store.approvals.approve_plan(plan_id, NOW,
                                     plan_decisions.OperatorDecision('me', '',
                                                                     [tasks[2].instance_uuid]),
                                     **LIMITS)
    assert f'requires those of {first}, {second} first.' in str(error.value)
    assert str(error.value).endswith(' Nothing was approved; approve these, too.')


# Quarantine.

def test_a_completed_move_removes_the_refusals_of_its_host_alone(store):
    store.quarantine.record_local_disks('h2', NOW, 60, 'told')
    store.quarantine.count_refusal('h2', NOW, limit=2, seconds=60, reason='no')
    store.quarantine.count_refusal('h3', NOW, limit=2, seconds=60, reason='no')
    save(store)
    cases.end(store, cases.claim(store), TaskState.COMPLETED, NOW + 10)
    assert {(row['kind'], row['name']) for row in _all(store, tables.quarantine)} == {
        ('disks', 'h2'), ('host', 'h3')}
    assert store.quarantine.count_refusal('h3', NOW + 10, limit=2, seconds=60,
                                          reason='no'), 'the second in a row'


def test_a_completed_earlier_move_ends_no_quarantine_of_a_host(store):
    save(store)
    row = cases.claim(store)
    assert store.quarantine.count_refusal('h2', NOW, limit=1, seconds=60, reason='no')
    cases.end(store, row, TaskState.COMPLETED, NOW + 59)
    assert [q.name for q in store.quarantine.list_quarantines(NOW + 59)] == ['h2']
    save(store, now=NOW + 60)
    cases.end(store, cases.claim(store, now=NOW + 60), TaskState.COMPLETED, NOW + 60)
    assert _all(store, tables.quarantine) == [], 'it is over'


def test_a_host_that_is_quarantined_is_first_refused_again_after_it(store):
    """It is in quarantine for other reasons, with no refusal counted."""
    _insert(store, tables.quarantine, kind='host', name='h2', since=NOW, until=NOW + 10,
            refusals=0, reason='')
    assert not store.quarantine.count_refusal('h2', NOW + 20, limit=2, seconds=60, reason='no')
    assert store.quarantine.count_refusal('h2', NOW + 79, limit=2, seconds=60, reason='no')
    assert not store.quarantine.count_refusal('h2', NOW + 139, limit=2, seconds=60,
                                              reason='no'), 'long ago'


# Leases.

def test_an_operators_plan_leaves_an_unleased_scope_without_an_owner(store):
    """An operator's plan comes before any engine has planned the scope."""
    ask(store, store.plans.read_live_work())
    assert _all(store, tables.lease) == [{
        'scope': 'blue', 'owner': '', 'epoch': 1, 'until': 0.0, 'policy_hash': '',
        'planned_at': None, 'cycle': None}]
    assert store.leases.acquire_lease('blue', 'engine', 30, 'hash').epoch == 2


def test_releasing_ends_a_lease_that_lives_and_says_no_more(store):
    lease = lease_of(store)
    _set(store, tables.lease, until=7.0)
    store.leases.release_lease(lease)
    assert [row['until'] for row in _all(store, tables.lease)] == [7.0], 'over already'
    lease = lease_of(store)
    store.leases.release_lease(rows.ScopeLease('blue', 'other', lease.epoch))
    assert store.leases.list_leased_scopes() == {'blue'}
    store.leases.release_lease(lease)
    assert [row['until'] for row in _all(store, tables.lease)] == [0.0]


# What is asked of it.

def test_scopes_are_listed_with_their_time_of_planning(store):
    lease_of(store, 'green')
    save(store, 0, 'blue', now=NOW + 5, reason='why')
    assert store.leases.list_scopes() == ['blue', 'green']
    assert [store.leases.find_planned_at(scope) for scope in ('blue', 'green', 'red')] == [
        NOW + 5, None, None]
    assert store.leases.has_free_scope(['blue', 'red']) and not store.leases.has_free_scope(
        ['green', 'blue'])


def test_tasks_off_a_host_are_found_the_oldest_first(store):
    """Active tasks, and rows written since then."""
    def off(host, at, ended=None):
        _, (task,), _ = save(store, [lambda p, s: make_task(
            p, s, from_host=host, created_at=at)], now=at)
        if ended is not None:
            store.tasks.cancel_task(task.task_id, ended, cancelled_by='me', reason='',
                                    instance_cooldown=0)
        return task.task_id

    found = [(at, off('h1', NOW + at, ended)) for at, ended in (
        (9, NOW + 20), (3, None), (7, None), (5, NOW + 20), (1, None), (8, None))]
    off('h1', NOW, ended=NOW + 19.9)
    off('h7', NOW)
    assert [row.task.task_id for row in store.tasks.list_tasks_from_host('h1', NOW + 20)] == [
        task_id for _, task_id in sorted(found)]


def test_the_newest_tasks_of_an_instance_come_first(store):
    made = []
    for at in (NOW, NOW + 20, NOW + 10):
        _, (task,), _ = save(store, [lambda p, s, at=at: make_task(
            p, s, instance_uuid='i', created_at=at)], now=at)
        store.tasks.cancel_task(task.task_id, at, cancelled_by='me', reason='', instance_cooldown=0)
        made.append(task.task_id)
    save(store)
    first, last, middle = made
    assert [[row.task.task_id for row in store.tasks.list_instance_tasks('i', limit)]
            for limit in (9, 2)] == [[last, middle, first], [last, middle]]


def test_a_cast_that_differs_from_its_task_names_the_field(store):
    _, (task,), _ = save(store)
    assert store.tasks.validate_cast(task) is None
    assert store.tasks.validate_cast(
        dataclasses.replace(task, to_host='h3')) is None, 'an alternate'
    for name in ('plan_id', 'aggregate', 'instance_uuid', 'from_host', 'to_host'):
        assert store.tasks.validate_cast(dataclasses.replace(task, **{name: 'x'})) == (
            f'is of a task with another {name}')
    assert store.tasks.validate_cast(
        dataclasses.replace(task, task_id='x')) == 'is not in the database'
    store.tasks.cancel_task(task.task_id, NOW, cancelled_by='me', reason='', instance_cooldown=0)
    assert store.tasks.validate_cast(task) == 'is of a task that has ended (cancelled)'


def test_a_hook_is_owed_for_its_instance_until_it_is_settled(store):
    row = test_pending_hooks.claimed(store)
    other = test_pending_hooks.claimed(store, scope='green')
    test_pending_hooks.owe(store, what := test_pending_hooks.owing(row))
    assert store.hooks.has_pending_hook(
        row.task.instance_uuid) and not store.hooks.has_pending_hook(other.task.instance_uuid)
    store.hooks.delete_hook(what.owed_id, 'w')
    assert not store.hooks.has_pending_hook(row.task.instance_uuid)


def test_a_wish_lasts_from_its_beginning_until_its_scope_is_content(store):
    blue, green = lease_of(store), lease_of(store, 'green')
    assert store.outcomes.list_imbalance_since() == {}
    assert (store.outcomes.record_imbalance_since(blue, NOW),
            store.outcomes.record_imbalance_since(green, NOW + 1)) == (NOW, NOW + 1)
    assert store.outcomes.record_imbalance_since(blue, NOW + 60) == NOW
    store.outcomes.clear_imbalance_since(blue)
    assert store.outcomes.list_imbalance_since() == {'green': NOW + 1}
    assert store.outcomes.record_imbalance_since(blue, NOW + 90) == NOW + 90


def test_plans_of_another_scope_lapse_by_its_engine_alone(store):
    save(store, [pending(deadline=NOW + 60)], 'green')
    lease = lease_of(store)
    before = cases.dump(store)
    assert store.approvals.cancel_lapsed_tasks(lease,
                                               NOW + 60) == [] and cases.dump(store) == before
    task, = store.approvals.cancel_lapsed_tasks(lease_of(store, 'green'), NOW + 60)
    assert store.tasks.find_task(task.task_id).error_type == 'TaskExpired'


def test_a_cancelled_task_names_the_operator(store):
    _, (task,), _ = save(store)
    store.tasks.cancel_task(task.task_id, NOW, cancelled_by='me', reason='why not',
                            instance_cooldown=0)
    row = store.tasks.find_task(task.task_id)
    assert (row.error, row.error_type) == ('Cancelled by me: why not', 'MigrationCancelled')


def test_the_newest_plan_of_a_scope_is_its_own_though_another_s_is_as_old(store):
    old, _, _ = save(store, now=NOW, scope='green')
    blue, _, _ = save(store, now=NOW)
    green, _, _ = save(store, now=NOW + 5, scope='green')
    found = store.plans.list_newest_plans()
    assert {scope: row.plan_id for scope, row in found.items()} == {'blue': blue, 'green': green}


def test_a_silent_claim_passes_on_in_its_scope_and_its_time_and_in_order(store):
    made = {}
    for name, scope, kw in (('last', 'blue', {'not_before': NOW + 2}),
                            ('second', 'blue', {'not_before': NOW + 1, 'priority': 5}),
                            ('first', 'blue', {'not_before': NOW + 1, 'priority': 3}),
                            ('late', 'blue', {'deadline': NOW + 90}), ('other', 'green', {})):
        _, (task,), _ = save(store, [lambda p, s, kw=kw: make_task(p, s, **kw)], scope)
        made[task.task_id] = name
    for _ in made:
        assert cases.claim(store, 'w1', now=NOW + 5, per_scope=9, total=9)

    def claimed(scopes):
        row = cases.claim(store, 'w2', now=NOW + 100, scopes=scopes, per_scope=9, total=9)
        return row and made[row.task.task_id]
    assert [claimed({'blue'}) for _ in range(4)] == ['first', 'second', 'last', None]
    assert claimed({'blue', 'green'}) == 'other'


def test_a_scope_that_is_paused_waits_while_others_go_on(store):
    for scope in ('blue', 'green'):
        save(store, scope=scope)
    store.pauses.pause_scope('blue', NOW, seconds=None, paused_by='me', reason='mine')
    assert cases.claim(store).task.aggregate == 'green'
    assert cases.claim(store) is None


def test_completed_moves_are_remembered_in_order_without_others(store):
    ends = {}
    for at, state in ((40, TaskState.COMPLETED), (10, TaskState.COMPLETED),
                      (30, TaskState.FAILED), (20, TaskState.COMPLETED),
                      (50, TaskState.CANCELLED)):
        save(store)
        row = cases.claim(store)
        cases.end(store, row, state, NOW + at,
                  error_type=None if state is TaskState.COMPLETED else 'X')
        ends[row.task.instance_uuid] = at
    found = store.history.read_history('blue', NOW + 60).completed
    assert [(ends[move.instance_uuid], at - NOW) for move, at in found] == [
        (10, 10), (20, 20), (40, 40)]


def test_waiting_plans_are_listed_separately_the_oldest_first(store):
    made = [save(store, [pending(created_at=NOW - n)] * (1 + n % 2), scope, now=NOW - n)[0]
            for n, scope in enumerate(('blue', 'green', 'blue', 'red'))]
    assert [(w.plan_id, w.scope, w.moves, w.since)
            for w in store.approvals.list_waiting_plans(NOW)] == [
                (made[3], 'red', 2, NOW - 3), (made[2], 'blue', 1, NOW - 2),
                (made[1], 'green', 2, NOW - 1), (made[0], 'blue', 1, NOW)]


def test_outcomes_are_listed_by_planning_time_the_newest_first(store):
    for planned, realised in ((1, 30), (3, 10), (2, 20), (4, 20)):
        plan_id, _, _ = save(store)
        _insert(store, tables.outcome, plan_id=plan_id, scope='blue', planned_at=NOW + planned,
                combined_before=float(planned), combined_foreseen=0.3, combined_realised=0.6,
                realised_at=NOW + realised)
    assert [outcome.before for outcome in store.outcomes.list_outcomes('blue', 9)] == [1, 4, 2, 3]
    assert [outcome.before for outcome in store.outcomes.list_outcomes('blue', 2)] == [1, 4]


def test_rows_without_a_heartbeat_count_as_silent(store):
    """Rows of an earlier release, or of an executor that released its claims."""
    save(store)
    assert cases.claim(store, 'w1')
    _set(store, tables.task, heartbeat_at=None)
    assert cases.claim(store, 'w2').worker == 'w2'
    for let_go in ({'worker': None}, {'worker': 'w1', 'heartbeat_at': None}):
        row = test_pending_hooks.claimed(store, 'w1', 'green')
        test_pending_hooks.owe(store, what := test_pending_hooks.owing(row), worker='w1')
        cases.end(store, row, worker='w1')
        assert test_pending_hooks.taken(store, 'w2') == []
        _set(store, tables.owed_hook, **let_go)
        assert test_pending_hooks.taken(store, 'w2') == [what.owed_id]
        store.hooks.delete_hook(what.owed_id, 'w2')


def test_an_end_keeps_how_often_it_was_tried(store):
    save(store)
    row = cases.claim(store)
    task = row.task
    store.tasks.finish_task(task, model.TaskResult(
        task.task_id, task.plan_id, 'blue', task.instance_uuid, 'h1', 'h2', success=False,
        error='no', error_type='X', retry_count=3), TaskState.FAILED, NOW, worker='w',
        instance_cooldown=0)
    assert store.tasks.find_task(task.task_id).task.retry_count == 3


def test_a_lease_has_the_policies_of_its_present_owner(store):
    store.leases.release_lease(store.leases.acquire_lease('blue', 'e1', 30, 'old'))
    assert store.leases.acquire_lease('blue', 'e2', 30, 'new')
    assert store.leases.acquire_lease('blue', 'e3', 30, 'new') is None
    with pytest.raises(exception.StoreError, match='leased by engine e2.*policies file'):
        store.leases.acquire_lease('blue', 'e1', 30, 'old')


# What came of plans.

def test_only_the_newest_plan_of_a_scope_is_judged_and_older_ones_drop(store):
    """Another scope's wait for their own scores."""
    made = dict(zip(('old', 'mid', 'new'), sorted(
        save(store, now=NOW)[0] for _ in range(3)), strict=True))
    made['other'], _, _ = save(store, scope='green', now=NOW)
    for name, scope, at in (('mid', 'blue', 20), ('old', 'blue', 10), ('new', 'blue', 30),
                            ('other', 'green', 40)):
        _insert(store, tables.outcome, plan_id=made[name], scope=scope, planned_at=NOW + at,
                combined_before=0.5, combined_foreseen=0.3)
        with store.engine.begin() as connection:
            connection.execute(sa.update(tables.task).where(
                tables.task.c.plan_id == made[name]).values(
                    state='completed', active_instance=None, created_at=NOW + at,
                    completed_at=NOW + at + 5))
    assert store.outcomes.record_outcome(lease_of(store), 0.25, NOW + 100) == breakers.PlanOutcome(
        made['new'], 0.5, 0.3, 0.25)
    assert {row['plan_id']: row['realised_at'] for row in _all(store, tables.outcome)} == {
        made['new']: NOW + 100, made['other']: None}


def test_only_failures_that_say_something_of_the_cloud_count(store):
    for error_type, count in (('MigrationFailed', 1), ('PreFlightError', 2)):
        for _ in range(count):
            save(store)
            cases.end(store, cases.claim(store), TaskState.FAILED, NOW + 5,
                      error_type=error_type)
    save(store)
    cases.end(store, cases.claim(store), TaskState.COMPLETED, NOW + 5)
    assert store.outcomes.count_failures('blue', NOW) == (1, 2)
    assert store.outcomes.count_failures('green', NOW) == (0, 0)


def test_outcomes_of_a_scope_begin_after_its_own_last_trip(store):
    for scope in ('blue', 'green'):
        plan_id, _, _ = save(store, scope=scope)
        _insert(store, tables.outcome, plan_id=plan_id, scope=scope, planned_at=NOW,
                combined_before=0.5, combined_foreseen=0.3, combined_realised=0.6,
                realised_at=NOW + 9)
    store.outcomes.open_breaker(lease_of(store), NOW + 9, seconds=60, paused_by='breaker',
                                reason='worse')
    assert store.outcomes.list_outcomes('blue', 9) == [] and len(
        store.outcomes.list_outcomes('green', 9)) == 1
