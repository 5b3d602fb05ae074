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


"""Plans, tasks, leases and heartbeats, on every backend."""

import collections
import dataclasses
import time

from alembic import autogenerate
from alembic import migration
import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import metric_lag
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.planning import breakers
from kronos_nova.rebalancer.planning import pack_prediction
from kronos_nova.rebalancer.store import executor_heartbeats
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables
from tests.unit.rebalancer.store import cases

NOW, CAPS = cases.NOW, cases.CAPS


def test_models_and_migration_agree(store):
    with store.engine.connect() as connection:
        context = migration.MigrationContext.configure(
            connection, opts={'compare_type': True, 'compare_server_default': True})
        assert autogenerate.compare_metadata(context, tables.metadata) == []


def test_concurrent_upgrades_are_safe(store):
    with store.engine.begin() as connection:
        tables.metadata.drop_all(connection)
        connection.execute(sa.text('DROP TABLE alembic_version'))
    with pytest.raises(exception.StoreError, match='none'):
        store.check()
    found = cases.at_once(4, lambda i: store.upgrade())
    assert found == [None] * 4, found
    store.check()


def test_a_newer_schema_is_refused(store):
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for step in (store.check, store.upgrade):
        with pytest.raises(exception.StoreError, match='9999.*Install the release'):
            step()


def test_a_pre_release_s_schema_is_refused_and_kept(store):
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0014'"))
    before = cases.dump(store)
    for step in (store.check, store.upgrade):
        with pytest.raises(exception.StoreError, match='0014 of a pre-release.*db sync of the'):
            step()
    assert cases.dump(store) == before


def test_its_clock_is_utc(store):
    before = time.time()
    now = store.now()
    assert before - 5 < now < time.time() + 5


def test_one_of_many_engines_gets_a_lease(store):
    got = cases.at_once(6, lambda i: store.leases.acquire_lease('blue', f'e{i}', 30, 'hash'))
    assert len([lease for lease in got if lease is not None]) == 1, got


def test_a_lease_passes_on_when_it_is_over(store):
    first = store.leases.acquire_lease('blue', 'e1', 0.5, 'hash')
    assert store.leases.acquire_lease('blue', 'e1', 0.5, 'hash') == first
    assert store.leases.renew_lease(first, 0.5)
    assert store.leases.acquire_lease('blue', 'e2', 30, 'hash') is None
    until = time.monotonic() + 30
    while (second := store.leases.acquire_lease('blue', 'e2', 30, 'hash')) is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert second.epoch == first.epoch + 1
    assert not store.leases.renew_lease(first, 30)
    store.leases.release_lease(first)
    assert store.leases.acquire_lease('blue', 'e1', 30, 'hash') is None
    store.leases.release_lease(second)
    assert store.leases.acquire_lease('blue', 'e1', 30, 'hash').epoch == second.epoch + 1


def test_another_policies_file_is_refused(store):
    store.leases.acquire_lease('blue', 'e1', 30, 'hash')
    with pytest.raises(exception.StoreError, match='uses another policies file'):
        store.leases.acquire_lease('blue', 'e2', 30, 'other')


def test_other_contracts_are_refused_and_named(store):
    store.leases.acquire_lease('blue', 'e1', 30, 'p' * 64 + 'c' * 64)
    with pytest.raises(exception.StoreError, match=r'other options of \[contracts\]'):
        store.leases.acquire_lease('blue', 'e2', 30, 'p' * 64 + 'd' * 64)
    with pytest.raises(exception.StoreError, match='uses another policies file'):
        store.leases.acquire_lease('blue', 'e2', 30, 'q' * 64 + 'd' * 64)


def test_settings_of_engines_are_those_of_live_leases(store):
    store.leases.acquire_lease('blue', 'e1', 30, 'p' * 64 + 'c' * 64)
    store.leases.acquire_lease('red', 'e1', 30, 'old')
    store.leases.release_lease(store.leases.acquire_lease('green', 'e1', 30, 'hash'))
    assert store.leases.list_engine_settings(None) == {
        'blue': ('p' * 64, 'c' * 64), 'red': ('old', '')}
    assert store.leases.list_engine_settings({'red', 'green'}) == {'red': ('old', '')}


def test_a_fenced_epoch_writes_nothing(store):
    old = store.leases.acquire_lease('blue', 'e1', 30, 'hash')
    store.leases.release_lease(old)
    store.leases.acquire_lease('blue', 'e2', 30, 'hash')
    with pytest.raises(exception.LeaseLost, match='Nothing was written'):
        cases.save(store, lease=old, draining=['h1'])
    assert store.plans.list_plans() == [] and store.tasks.list_in_flight_moves() == ()
    assert store.history.read_history('blue', NOW) == model.MoveHistory()


def test_a_plan_comes_back_as_it_was(store):
    plan_id, tasks, plan = cases.save(store, 2, scope='Größe 😀')
    row = store.plans.find_plan(plan_id)
    assert row.plan == plan and row.plan_id == plan_id and not row.dry_run
    assert [r.task.task_id for r in store.tasks.list_plan_tasks(plan_id)] == sorted(t.task_id
                                                                                    for t in tasks)
    assert {(f.instance_uuid, f.scope) for f in store.tasks.list_in_flight_moves()} == {
        (t.instance_uuid, 'Größe 😀') for t in tasks}
    assert cases.count_moves(store) == {'Größe 😀': 2}


def test_names_differ_by_case(store):
    cases.save(store, scope='blue')
    assert store.history.read_history('BLUE', NOW).scope_cooling == 0
    assert store.leases.acquire_lease('BLUE', 'e2', 30, 'hash').epoch == 1


def test_a_plan_leaves_cooldowns_and_drains(store):
    _, (task,), _ = cases.save(store, draining=['h4', 'h5'])
    history = store.history.read_history('blue', NOW + 100)
    assert history.cooling == {task.instance_uuid: 800}
    assert history.scope_cooling == 500
    assert history.draining == {'h4', 'h5'}
    assert store.history.read_history('green', NOW).scope_cooling == 0
    assert store.history.read_history('green', NOW).draining == frozenset()
    assert store.history.read_history('blue', NOW + 901).cooling == {}
    cases.save(store, 0, draining=['h5', 'h6'], reason='waiting')
    assert store.history.read_history('blue', NOW).draining == {'h5', 'h6'}


def test_dry_run_writes_the_plan_alone(store):
    plan_id, _, _ = cases.save(store, 2, dry_run=True, draining=['h4'])
    assert store.plans.find_plan(plan_id).dry_run
    assert store.tasks.list_in_flight_moves() == ()
    assert store.history.read_history('blue', NOW) == model.MoveHistory()


def test_an_empty_plan_is_stored_when_its_reason_is_new(store):
    lease = store.leases.acquire_lease('blue', 'engine', 30, 'hash')
    for number, reason in enumerate(['balanced', 'balanced', 'cooling', 'balanced']):
        cases.save(store, 0, lease=lease, reason=reason, now=NOW + number)
    assert [row.plan.reason
            for row in store.plans.list_plans()] == ['balanced', 'cooling', 'balanced']


def test_a_reason_in_which_only_the_seconds_run_down_is_not_new(store):
    lease = store.leases.acquire_lease('blue', 'engine', 30, 'hash')
    for number in range(3):
        cases.save(store, 0, lease=lease, now=NOW + number,
                   reason=f'cools down for {600 - number} s')
    cases.save(store, 0, lease=lease, reason='policy cpu2 s1', now=NOW + 3)
    cases.save(store, 0, lease=lease, reason='policy cpu3 s1', now=NOW + 4)
    assert [row.plan.reason for row in store.plans.list_plans()] == [
        'policy cpu3 s1', 'policy cpu2 s1', 'cools down for 600 s']


def test_a_busy_instance_stops_the_whole_plan(store):
    _, (first,), _ = cases.save(store)
    again = [cases.make_task, lambda plan, scope: cases.make_task(
        plan, scope, instance_uuid=first.instance_uuid)]
    with pytest.raises(exception.StoreError, match=first.instance_uuid):
        cases.save(store, again, scope='green')
    assert len(store.plans.list_plans()) == 1 and len(store.tasks.list_in_flight_moves()) == 1
    assert store.history.read_history('green', NOW).scope_cooling == 0


def test_one_of_many_plans_gets_an_instance(store):
    instance = cases.new_id()

    def plan(index):
        return cases.save(store, [lambda p, s: cases.make_task(p, s, instance_uuid=instance)],
                    scope=f's{index}')
    got = cases.at_once(4, plan)
    assert len([g for g in got if isinstance(g, tuple)]) == 1, got
    assert all(instance in str(g) for g in got if not isinstance(g, tuple)), got
    assert len(store.plans.list_plans()) == 1


def test_an_instance_can_move_again_after_its_task_ended(store):
    _, (task,), _ = cases.save(store)
    cases.end(store, cases.claim(store))
    cases.save(store, [lambda p, s: cases.make_task(p, s, instance_uuid=task.instance_uuid)])
    cases.end(store, cases.claim(store), TaskState.FAILED, error_type='MigrationFailed')
    cases.save(store, [lambda p, s: cases.make_task(p, s, instance_uuid=task.instance_uuid)])
    assert len(store.tasks.list_in_flight_moves()) == 1


def test_claims_are_ordered_by_time_then_priority(store):
    _, tasks, _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, not_before=NOW + 5, priority=1),
        lambda p, s: cases.make_task(p, s, not_before=NOW, priority=5),
        lambda p, s: cases.make_task(p, s, not_before=NOW, priority=2)])
    assert cases.claim(store, now=NOW - 1) is None
    order = [cases.claim(store, now=NOW + 5, per_scope=9).task.task_id for _ in range(3)]
    assert order == [tasks[2].task_id, tasks[1].task_id, tasks[0].task_id]


def test_claims_keep_to_scopes_and_caps(store):
    cases.save(store, 3, scope='blue')
    cases.save(store, 3, scope='green')
    assert cases.claim(store, scopes={'red'}) is None
    assert cases.claim(store, scopes={'green'}).task.aggregate == 'green'
    assert {cases.claim(store, scopes={'blue'}).task.aggregate for _ in range(2)} == {'blue'}
    assert cases.claim(store, scopes={'blue'}) is None
    assert cases.claim(store, total=3) is None
    assert cases.claim(store, total=4).task.aggregate == 'green'


def test_claims_keep_to_the_caps_of_each_host(store):
    def ends(number, from_host, to_host):
        return lambda p, s: cases.make_task(p, s, from_host=from_host, to_host=to_host,
                                      not_before=NOW + number)

    def claimed(**caps):
        row = cases.claim(store, now=NOW + 9, per_scope=9, **caps)
        return row and (row.task.from_host, row.task.to_host)

    cases.save(store, [ends(0, 'a', 'x'), ends(1, 'a', 'y'), ends(2, 'b', 'x'), ends(3, 'c', 'x')])
    assert claimed(per_source=1) == ('a', 'x')
    assert claimed(per_source=1, per_destination=2) == ('b', 'x')
    assert claimed(per_source=1, per_destination=2) is None
    assert claimed(per_source=2, per_destination=2) == ('a', 'y')
    assert claimed(per_source=1, per_destination=3) == ('c', 'x')


def test_an_unknown_task_keeps_its_slot(store):
    cases.save(store, 2)
    row = cases.claim(store)
    assert store.tasks.update_state(row.task.task_id, 'w', [TaskState.CLAIMED], TaskState.UNKNOWN,
                                    NOW)
    assert cases.claim(store, per_scope=1) is None
    assert row.task.instance_uuid in {f.instance_uuid for f in store.tasks.list_in_flight_moves()}


def test_racing_claims_give_each_task_once_within_the_caps(store):
    cases.save(store, 12)
    got = cases.at_once(8, lambda i: cases.claim(store, f'w{i}', per_scope=5))
    won = [row.task.task_id for row in got if row is not None]
    assert len(won) == len(set(won)) == 5, got


def test_racing_claims_keep_to_every_cap(store):
    """Each cap is the one that binds for some of the tasks; in the order of their priorities
    as many find room as may. (In one of 200 others only six do.)"""
    def ends(number):
        return lambda p, s: cases.make_task(p, s, from_host=f'from{number % 3}',
                                      to_host=f'to{number // 2 % 4}', priority=number)

    for scope in ('blue', 'green', 'red'):
        cases.save(store, [ends(n) for n in range(12)], scope=scope)
    caps = {'per_scope': 3, 'per_source': 3, 'per_destination': 2, 'total': 7}

    def greedy(index):
        won = []
        while (row := cases.claim(store, f'w{index}', **caps)) is not None:
            won.append(row.task)
        return won

    found = cases.at_once(6, greedy)
    assert all(isinstance(won, list) for won in found), found
    flying = [task for won in found for task in won]
    assert len({task.task_id for task in flying}) == len(flying) == caps['total']
    for cap, field in (('per_scope', 'aggregate'), ('per_source', 'from_host'),
                       ('per_destination', 'to_host')):
        most = max(collections.Counter(getattr(task, field) for task in flying).values())
        assert most <= caps[cap], (cap, flying)


def test_a_requirement_must_complete_first(store):
    first = cases.new_id()
    _, tasks, _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, instance_uuid=first),
        lambda p, s: cases.make_task(p, s, requires=(first,), not_before=NOW - 9)])
    row = cases.claim(store)
    assert row.task.instance_uuid == first and cases.claim(store) is None
    assert cases.end(store, row) == []
    assert cases.claim(store).task.task_id == tasks[1].task_id


def test_a_failed_requirement_cancels_all_that_hangs_on_it(store):
    first, second = cases.new_id(), cases.new_id()
    plan_id, tasks, _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, instance_uuid=first),
        lambda p, s: cases.make_task(p, s, instance_uuid=second, requires=(first,), wave=1),
        lambda p, s: cases.make_task(p, s, requires=(second,), wave=2),
        cases.make_task])
    row = next(r for r in (cases.claim(store), cases.claim(store)) if r.task.instance_uuid == first)
    cancelled = cases.end(store, row, TaskState.FAILED, error_type='PreFlightError')
    assert [t.task_id for t in cancelled] == [tasks[1].task_id, tasks[2].task_id]
    states = {r.task.task_id: r.task.state for r in store.tasks.list_plan_tasks(plan_id)}
    assert states[tasks[2].task_id] is TaskState.CANCELLED
    assert states[tasks[3].task_id] is TaskState.CLAIMED


def test_a_requirement_outside_the_plan_is_refused(store):
    with pytest.raises(exception.StoreError, match='not in the plan'):
        cases.save(store, [lambda p, s: cases.make_task(p, s, requires=(cases.new_id(),))])


def test_a_silent_claim_passes_on_and_its_worker_is_fenced(store):
    cases.save(store)
    row = cases.claim(store, 'w1')
    store.tasks.renew_task_claim('w1', NOW + 50)
    assert cases.claim(store, 'w2', NOW + 100) is None
    assert cases.claim(store, 'w2', NOW + 110, per_scope=1).task == row.task
    assert not store.tasks.update_state(row.task.task_id, 'w1', [TaskState.CLAIMED],
                                        TaskState.SUBMITTING, NOW)
    assert not store.tasks.requeue_task(row.task.task_id, 'w1', NOW, not_before=NOW, retry_count=0,
                                        attempt=0)
    assert cases.end(store, row, worker='w1') is None
    assert store.history.read_history('blue', NOW).completed == ()


def test_tasks_in_nova_are_adopted_from_silent_executors(store):
    cases.save(store)
    task_id = cases.claim(store, 'w1').task.task_id
    assert store.tasks.update_state(task_id, 'w1', [TaskState.CLAIMED], TaskState.SUBMITTING, NOW,
                                    marker='m')
    assert store.tasks.adopt_tasks('w2', None, NOW + 59, 60) == []
    (row,) = store.tasks.adopt_tasks('w2', ['blue'], NOW + 60, 60)
    assert (row.worker, row.marker, row.task.state) == ('w2', 'm', TaskState.SUBMITTING)
    assert store.tasks.adopt_tasks('w3', None, NOW + 60, 60) == []
    assert cases.claim(store, 'w3', NOW + 600) is None


def test_one_of_many_workers_adopts(store):
    cases.save(store)
    store.tasks.update_state(cases.claim(store).task.task_id, 'w', [TaskState.CLAIMED],
                             TaskState.SUBMITTED, NOW)
    got = cases.at_once(6, lambda i: store.tasks.adopt_tasks(f'w{i}', None, NOW + 99, 60))
    assert sum(len(adopted) for adopted in got) == 1, got


def test_a_requeued_task_goes_to_the_destination_asked_for(store):
    cases.save(store)
    row = cases.claim(store)
    store.tasks.update_state(row.task.task_id, 'w', [TaskState.CLAIMED], TaskState.SUBMITTING, NOW,
                             marker='m', submitted_at=NOW, deadline=NOW + 9)
    assert store.tasks.requeue_task(row.task.task_id, 'w', NOW, not_before=NOW + 7, retry_count=1,
                                    attempt=1, error='no', error_type='MigrationFailed')
    assert cases.claim(store, now=NOW + 6) is None
    again = cases.claim(store, now=NOW + 7)
    assert (again.task.to_host, again.task.alternates, again.task.retry_count) == ('h3', (), 1)
    assert (again.marker, again.submitted_at, again.error) == (None, None, 'no')
    assert again.task.deadline == NOW + 6 * 3600


def test_completion_is_history(store):
    cases.save(store)
    row = cases.claim(store)
    cases.end(store, row, now=NOW + 30)
    history = store.history.read_history('green', NOW + 40)
    assert history.cooling == {row.task.instance_uuid: 890}
    assert [(m.instance_uuid, m.to_host, at) for m, at in history.completed] == [
        (row.task.instance_uuid, 'h2', NOW + 30)]
    assert history.quarantined == {}
    assert store.history.read_history('blue', NOW + 10840).completed == ()


def test_quarantine_lasts_as_long_as_it_was_set(store):
    cases.save(store, 2)
    first, second = cases.claim(store), cases.claim(store)
    cases.end(store, first, TaskState.FAILED, error_type='PreFlightError', quarantine_seconds=60)
    cases.end(store, second, TaskState.FAILED, error_type='PreFlightError', quarantine_seconds=-1)
    ours, ever = first.task.instance_uuid, second.task.instance_uuid
    assert store.history.read_history('blue', NOW + 10).quarantined == {ours: 50, ever: -1}
    assert store.history.read_history('blue', NOW + 61).quarantined == {ever: -1}
    assert store.quarantine.lift_quarantine(
        'instance', ever, NOW) and not store.quarantine.lift_quarantine('instance', ever, NOW)
    assert store.history.read_history('blue', NOW + 61).quarantined == {}


def test_a_host_that_refuses_in_a_row_is_quarantined(store):
    def refuse(now):
        return store.quarantine.count_refusal('h2', now, limit=3, seconds=100, reason='no')
    assert [refuse(NOW + i) for i in range(2)] == [False, False]
    cases.save(store)
    cases.end(store, cases.claim(store), now=NOW + 5)  # it accepted one in between
    assert [refuse(NOW + 10 + i) for i in range(3)] == [False, False, True]
    assert store.history.read_history('blue', NOW + 50).quarantined_hosts == {'h2'}
    assert store.history.read_history('blue', NOW + 112).quarantined_hosts == frozenset()
    assert not refuse(NOW + 500)


def test_a_host_whose_disks_are_its_own_is_remembered_for_a_time(store):
    store.quarantine.record_local_disks('h1', NOW, 100, 'Nova said so')
    store.quarantine.record_local_disks('h1', NOW + 10, 100, 'Nova said so again')
    history = store.history.read_history('blue', NOW + 109)
    assert history.local_disk_hosts == {'h1'} and history.quarantined_hosts == frozenset()
    assert store.history.read_history('blue', NOW + 110).local_disk_hosts == frozenset()
    assert store.quarantine.lift_quarantine(
        'disks', 'h1', NOW) and not store.quarantine.lift_quarantine('disks', 'h1', NOW)
    assert store.history.read_history('blue', NOW).local_disk_hosts == frozenset()


def test_hosts_of_different_cells_are_remembered_for_a_time(store):
    store.quarantine.record_other_cells('h3', 'h1', NOW, 100, 'Nova did not find it')
    store.quarantine.record_other_cells('h1', 'h3', NOW + 10, 100, 'nor the other way round')
    store.quarantine.record_other_cells('h' * 200, 'g' * 200, NOW, 100, 'too long to be kept')
    history = store.history.read_history('blue', NOW + 109)
    assert history.other_cells == {('h1', 'h3')} and history.quarantined_hosts == frozenset()
    assert [(q.kind, q.name)
            for q in store.quarantine.list_quarantines(NOW)] == [('cells', 'h1 h3')]
    assert store.history.read_history('blue', NOW + 110).other_cells == frozenset()
    assert store.quarantine.lift_quarantine(
        'cells', 'h3 h1', NOW) and not store.quarantine.lift_quarantine('cells', 'h1 h3', NOW)
    assert store.history.read_history('blue', NOW).other_cells == frozenset()


def test_a_task_that_did_not_begin_in_time_is_cancelled(store):
    first = cases.new_id()
    plan_id, tasks, _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, instance_uuid=first, deadline=NOW + 10),
        lambda p, s: cases.make_task(p, s, requires=(first,)),
        lambda p, s: cases.make_task(p, s, deadline=NOW + 10, not_before=NOW - 1)])
    begun = cases.claim(store)
    assert begun.task.task_id == tasks[2].task_id
    assert store.tasks.expire_tasks(None, NOW + 9, 60) == []
    assert cases.claim(store, now=NOW + 10) is None
    gone = store.tasks.expire_tasks(None, NOW + 10, 60)
    assert [t.task_id for t in gone] == [tasks[0].task_id, tasks[1].task_id]
    row = store.tasks.find_task(tasks[0].task_id)
    assert (row.task.state, row.error_type) == (TaskState.CANCELLED, 'TaskExpired')
    assert [t.task_id for t in store.tasks.expire_tasks(None, NOW + 60, 60)] == [begun.task.task_id]


def test_purge_forgets_no_running_cooldown_and_no_live_task(store):
    old, recent = time.time() - 90000, time.time() - 60
    done_id, _, _ = cases.save(store, now=old)
    done = cases.claim(store, now=old + 1)
    cases.end(store, done, now=old)
    live_id, (live,), _ = cases.save(store, now=old)
    kept_id, _, _ = cases.save(store, now=old)
    kept = next(row for row in (cases.claim(store, now=old + 1), cases.claim(store, now=old + 1))
                if row.task.plan_id == kept_id)
    cases.end(store, kept, TaskState.FAILED, now=recent, error_type='X', quarantine_seconds=-1)
    assert store.history.purge_records(time.time() + 1e9) == 1
    assert store.plans.find_plan(done_id) is None and store.tasks.list_plan_tasks(done_id) == []
    assert store.plans.find_plan(live_id) is not None and store.plans.find_plan(kept_id) is not None
    history = store.history.read_history('blue', time.time())
    assert kept.task.instance_uuid in history.cooling
    assert kept.task.instance_uuid in history.quarantined
    assert [f.instance_uuid for f in store.tasks.list_in_flight_moves()] == [live.instance_uuid]
    with store.engine.connect() as connection:
        names = set(connection.scalars(sa.select(tables.cooldown.c.name)))
    assert done.task.instance_uuid not in names
    assert store.leases.acquire_lease('blue', 'engine', 30, 'hash').epoch == 1


def test_how_a_task_is_moved_is_kept(store):
    trees = (model.TreeDigest('h1', '0123456789abcdef', 2**40),
             model.TreeDigest('höst', 'f' * 16, 0))
    cases.save(store, [lambda p, s: cases.make_task(
        p, s, method=model.MoveMethod.COLD, trees=trees)])
    found = cases.claim(store).task
    assert (found.method, found.trees) == (model.MoveMethod.COLD, trees)


def test_an_operator_cancels_an_idle_task_with_its_dependents(store):
    plan_id, made, _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, instance_uuid='first'),
        lambda p, s: cases.make_task(p, s, requires=('first',), from_host='h5', to_host='h6')])
    claimed = cases.claim(store)
    assert claimed.task.instance_uuid == 'first'
    how = {'cancelled_by': 'me@here', 'reason': 'why', 'instance_cooldown': 5000.0}
    ended = store.tasks.cancel_task(claimed.task.task_id, NOW, **how)
    assert [t.task_id for t in ended] == [t.task_id for t in made]
    assert {r.task.state for r in store.tasks.list_plan_tasks(plan_id)} == {TaskState.CANCELLED}
    assert store.tasks.find_task(claimed.task.task_id).error == 'Cancelled by me@here: why'
    assert not store.tasks.update_state(claimed.task.task_id, 'w', [TaskState.CLAIMED],
                                        TaskState.SUBMITTING,
                                        NOW), 'who is judging it asks Nova for nothing'
    history = store.history.read_history('blue', NOW)
    assert history.cooling['first'] == 5000.0 and history.quarantined == {}
    assert store.tasks.list_in_flight_moves() == () and cases.claim(store) is None
    _, (task,), _ = cases.save(store)
    assert store.tasks.cancel_task('nobody', NOW, **how) is None
    for state in (TaskState.SUBMITTING, TaskState.SUBMITTED, TaskState.UNKNOWN):
        if state is TaskState.SUBMITTING:
            cases.claim(store)
        store.tasks.update_state(task.task_id, 'w', list(TaskState), state, NOW)
        assert store.tasks.cancel_task(task.task_id, NOW, **how) is None
    assert store.tasks.find_task(task.task_id).task.state is TaskState.UNKNOWN


def test_an_operator_resolves_what_nova_never_finishes(store):
    said = plan_decisions.OperatorDecision('me@here', 'host is lost')
    for state in (TaskState.COMPLETED, TaskState.FAILED):
        plan_id, made, _ = cases.save(store, [
            lambda p, s: cases.make_task(p, s, instance_uuid=f'first-{s}'),
            lambda p, s: cases.make_task(p, s, requires=(f'first-{s}',), from_host='h5',
                                   to_host='h6')], scope=f'to-{state}')
        first, second = made
        learnt = store.history.read_history(first.aggregate, NOW).measured
        claimed = cases.claim(store, scopes={first.aggregate})
        assert claimed.task.task_id == first.task_id
        for live in (TaskState.CLAIMED, TaskState.SUBMITTING):
            store.tasks.update_state(first.task_id, 'w', list(TaskState), live, NOW,
                                     submitted_at=NOW)
            assert store.tasks.resolve_task(first.task_id, state, NOW, said, 5000.0) is None
        assert store.approvals.list_decisions(plan_id) == []
        store.tasks.update_state(first.task_id, 'w', [TaskState.SUBMITTING], TaskState.UNKNOWN, NOW)
        cancelled = store.tasks.resolve_task(first.task_id, state, NOW + 9000, said, 5000.0)
        row = store.tasks.find_task(first.task_id)
        assert row.task.state is state and row.completed_at == NOW + 9000
        failed = state is TaskState.FAILED
        assert [t.task_id for t in cancelled] == [second.task_id] * failed
        assert row.error_type == ('MigrationResolved' if failed else None)
        assert row.error == ('Resolved as failed by me@here: host is lost' if failed else None)
        assert [(a.ended_at, a.phases) for a in row.attempts] == [(NOW + 9000, {})]
        assert [(d.verb, d.decided_by, d.reason)
                for d in store.approvals.list_decisions(plan_id)] == [
                    ('resolved', 'me@here', f'task {first.task_id} as {state}: host is lost')]
        history = store.history.read_history(first.aggregate, NOW + 9000)
        assert history.cooling[first.instance_uuid] == 5000.0 and history.quarantined == {}
        assert history.measured == learnt, 'learned costs do not count it'
        assert store.tasks.resolve_task(first.task_id, state, NOW, said, 5000.0) is None
        assert cases.end(store, row, quarantine_seconds=None) is None, 'executors change it no more'
    assert store.tasks.resolve_task('nobody', TaskState.FAILED, NOW, said, 0.0) is None


def test_a_pause_holds_claims_until_it_ends(store):
    cases.save(store, scope='blue')
    cases.save(store, scope='red')
    for scope, others in (('blue', 1), (None, 0)):
        store.pauses.pause_scope(scope, NOW, seconds=60, paused_by='me', reason='why')
        assert store.pauses.find_pause('blue', NOW + 59) and not store.pauses.find_pause('blue',
                                                                                         NOW + 60)
        row = cases.claim(store, now=NOW + 59)
        assert (row is not None) == bool(others)
        if row is not None:
            assert row.task.aggregate == 'red'
            store.tasks.requeue_task(row.task.task_id, 'w', NOW, not_before=NOW, retry_count=0,
                                     attempt=0)
        assert store.pauses.resume_scope(scope, NOW) and not store.pauses.resume_scope(scope, NOW)
    store.pauses.pause_scope(None, NOW, seconds=None, paused_by='me', reason='why')
    assert cases.claim(store, now=NOW + 3600) is None, 'for ever'
    store.pauses.resume_scope(None, NOW)
    assert cases.claim(store) is not None and cases.claim(store) is not None


def test_a_pause_holds_a_silent_worker_s_claim_too(store):
    cases.save(store)
    assert cases.claim(store)
    store.pauses.pause_scope('blue', NOW, seconds=None, paused_by='me', reason='why')
    assert cases.claim(store, worker='w2', now=NOW + 61) is None
    store.pauses.resume_scope('blue', NOW)
    assert cases.claim(store, worker='w2', now=NOW + 61) is not None


def test_a_pause_is_history_with_who_and_why(store):
    assert store.history.read_history('blue', NOW).paused is None
    store.pauses.pause_scope('blue', NOW, seconds=None, paused_by='me', reason='first')
    store.pauses.pause_scope('blue', NOW, seconds=60, paused_by='you', reason='second')
    assert store.history.read_history('blue', NOW).paused == (
        'scope blue was paused by you until 2023-11-14T22:14+00:00: second '
        '(kronos resume --scope ... ends it)')
    assert store.history.read_history('red', NOW).paused is None
    store.pauses.pause_scope(None, NOW, seconds=30, paused_by='me', reason='all')
    assert [p.scope for p in store.pauses.list_pauses(NOW)] == [None, 'blue']
    assert store.history.read_history('red', NOW).paused == (
        'everything was paused by me until 2023-11-14T22:13+00:00: all (kronos resume ends it)')
    store.pauses.pause_scope(None, NOW, seconds=1e12, paused_by='me', reason='all')
    assert 'until 9999-12-31' in store.history.read_history('red', NOW).paused
    store.pauses.pause_scope(None, NOW, seconds=30, paused_by='me', reason='all')
    assert [p.scope for p in store.pauses.list_pauses(NOW + 30)] == ['blue']
    store.history.purge_records(NOW + 10**9)
    assert not store.pauses.list_pauses(NOW), 'it ended long before the database\'s clock'


def test_the_outcome_of_a_plan_is_stored_beside_its_forecast(store):
    plan_id = cases.spread(store, NOW)
    assert store.outcomes.list_outcomes('blue', 9) == []
    store.outcomes.record_outcome(cases.lease_of(store), 0.3, NOW + 60)
    store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 120)
    assert store.outcomes.list_outcomes('blue', 9) == [breakers.PlanOutcome(plan_id, 0.5, 0.2, 0.3)]
    assert store.outcomes.find_measured_imbalances([plan_id, 'none']) == {plan_id: 0.3}
    assert store.outcomes.list_outcomes('red', 9) == []
    second = cases.spread(store, NOW + 200)
    store.outcomes.record_outcome(cases.lease_of(store), 0.4, NOW + 260)
    assert [o.plan_id for o in store.outcomes.list_outcomes('blue', 9)] == [second, plan_id]
    assert [o.plan_id for o in store.outcomes.list_outcomes('blue', 1)] == [second]


def pack(store, now, load=None, packing=((5, 0.0), (4, 0.25))):
    """Store a pack plan of one move from h1 to h2, which has ended; return its id."""
    plan_id = cases.new_id()
    task = cases.make_task(plan_id, not_before=now, phase=model.Phase.PACK)
    before, after = (model.PackingDensity(*each) for each in packing)
    plan = model.Plan(
        'blue', (model.Move(task.instance_uuid, 'h1', 'h2', model.Phase.PACK),),
        combined_before=0.2, combined_after=0.6, load=load, packing_before=before,
        packing_after=after)
    store.plans.save_plan(
        cases.lease_of(store), plan, [task], plan_id=plan_id, now=now, dry_run=False, cooldown=0,
        instance_cooldown=0)
    cases.end(store, cases.claim(store, now=now), TaskState.COMPLETED, now)
    return plan_id


def test_a_pack_plan_is_judged_by_hosts_in_use_and_overload(store):
    plan_id = pack(store, NOW, load=0.4)
    (row,) = store.plans.list_plans()
    assert row.plan.packing_before == model.PackingDensity(5, 0.0)
    assert row.plan.packing_after == model.PackingDensity(4, 0.25)
    # Overloaded are h2, to which it moved, and h9, with which it has nothing to do. The only
    # instances of h7 came later.
    measured = pack_prediction.ScopeMeasurement(
        {'h1': 0.5, 'h2': 1.5, 'h9': 3.0},
        {**dict.fromkeys(('h2', 'h3', 'h4'), NOW - 60), 'h5': NOW, 'h7': NOW + 1})
    came = store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 60, load=0.3,
                                         measured=measured)
    assert came == breakers.PlanOutcome(plan_id, 0.2, 0.6, 0.9, breakers.PackOutcome(
        model.PackingDensity(5, 0.0), model.PackingDensity(4, 0.25), model.PackingDensity(4, 0.5)))
    assert came.is_worse and store.outcomes.list_outcomes('blue', 9) == [came]
    second = pack(store, NOW + 100, load=0.4)
    came = store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 160, load=0.5,
                                         measured=measured)
    assert came.packing.growth == 1.25
    assert came.packing.realised == model.PackingDensity(5, pytest.approx(1.5 / 1.25 - 1))
    assert not came.is_worse and store.outcomes.list_outcomes('blue',
                                                              1) == [
                                                                  came] and came.plan_id == second
    assert store.outcomes.find_measured_imbalances([plan_id]) == {plan_id: 0.9}


def test_a_pack_plan_is_forgotten_where_its_scope_packs_no_more(store):
    """And a census gives no gain of a plan that was not to lower the imbalance."""
    spread_id = cases.spread(store, NOW)
    store.outcomes.record_outcome(cases.lease_of(store), 0.3, NOW + 60)
    pack(store, NOW + 100)
    assert store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 160) is None
    pack(store, NOW + 200)
    assert store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 260,
                                         measured=pack_prediction.ScopeMeasurement(
                                             {}, {})) is not None
    assert len(store.outcomes.list_outcomes('blue', 9)) == 2
    assert store.statistics.read_census().scopes['blue'].outcome.plan_id == spread_id


def test_a_plan_that_moved_nothing_or_was_overtaken_is_not_judged(store):
    cases.spread(store, NOW, end_as=TaskState.FAILED, error_type='MigrationFailed')
    store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 60)
    cases.spread(store, NOW + 100)
    last = cases.spread(store, NOW + 200)
    store.outcomes.record_outcome(cases.lease_of(store), 0.1, NOW + 300)
    assert [o.plan_id for o in store.outcomes.list_outcomes('blue', 9)] == [last]


def test_load_that_grows_everywhere_is_no_harm_of_a_plan(store):
    """Foreseen and found are compared under the load of when it is judged."""
    for number, (grown, before) in enumerate(((0.8, 1.0), (0.2, 0.5), (None, 0.5))):
        plan_id = cases.spread(store, NOW, load=0.4)
        came = store.outcomes.record_outcome(
            cases.lease_of(store), 0.6, NOW + 60 + number, load=grown)
        assert came == store.outcomes.list_outcomes('blue', 1)[0]
        assert came == breakers.PlanOutcome(plan_id, before, before * 0.4, 0.6)
        assert store.plans.find_plan(plan_id).plan.combined_before == 0.5
        assert came.is_worse == (before == 0.5)
    cases.spread(store, NOW, load=None)
    lease = cases.lease_of(store)
    assert store.outcomes.record_outcome(lease, 0.6, NOW + 60, load=0.9).before == 0.5
    assert store.outcomes.record_outcome(lease, 0.6, NOW + 60, load=0.9) is None


def test_a_plan_after_which_a_drain_moved_is_not_judged(store):
    """Nor one whose scope was repaired; what a drain only tried is nothing."""
    for phase in (model.Phase.EVACUATE, model.Phase.AFFINITY):
        cases.spread(store, NOW)
        cases.spread(store, NOW + 10, phase=phase)
        assert store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 60) is None
    plan_id = cases.spread(store, NOW + 100)
    cases.spread(store, NOW + 110, phase=model.Phase.EVACUATE, end_as=TaskState.FAILED)
    assert store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 160).plan_id == plan_id


def test_a_plan_of_which_a_part_moved_is_judged(store):
    plan_id, tasks = cases.new_id(), []
    tasks = [cases.make_task(plan_id), cases.make_task(plan_id)]
    plan = model.Plan('blue', tuple(model.Move(t.instance_uuid, 'h1', 'h2', t.phase)
                                    for t in tasks), combined_before=0.5, combined_after=0.2)
    store.plans.save_plan(
        cases.lease_of(store), plan, tasks, plan_id=plan_id, now=NOW, dry_run=False, cooldown=0,
        instance_cooldown=0)
    cases.end(store, cases.claim(store))
    cases.end(store, cases.claim(store), TaskState.FAILED, error_type='MigrationFailed')
    assert store.outcomes.record_outcome(cases.lease_of(store), 0.6, NOW + 60).is_worse


def test_a_breaker_shortens_no_pause_of_an_operator(store):
    lease = cases.lease_of(store)
    store.pauses.pause_scope('blue', NOW, seconds=None, paused_by='me', reason='mine')
    store.outcomes.open_breaker(lease, NOW + 5, seconds=60, paused_by='it', reason='why')
    assert store.pauses.find_pause('blue', NOW + 100).reason == 'mine'
    assert store.outcomes.count_failures('blue', 0) == (0, 0)
    store.pauses.resume_scope('blue', NOW)
    store.pauses.pause_scope('blue', NOW, seconds=30, paused_by='me', reason='mine')
    store.outcomes.open_breaker(lease, NOW + 5, seconds=60, paused_by='it', reason='why')
    assert store.pauses.find_pause('blue', NOW + 64).reason == 'why'
    store.pauses.pause_scope('blue', NOW, seconds=60, paused_by='me', reason='mine')
    store.outcomes.open_breaker(lease, NOW + 5, seconds=None, paused_by='it', reason='why')
    assert store.pauses.find_pause('blue', NOW + 10**9).reason == 'why'
    store.pauses.resume_scope('blue', NOW)
    store.pauses.pause_scope('blue', NOW, seconds=30, paused_by='me', reason='mine')
    store.outcomes.open_breaker(lease, NOW + 30, seconds=10, paused_by='it', reason='why')
    assert store.pauses.find_pause('blue', NOW + 31).reason == 'why', 'the other is over'


def test_only_begun_migrations_count_as_failures(store):
    for error_type in ('MigrationFailed', 'MigrationTimeout', 'PreFlightError',
                       'NovaClientError'):
        cases.spread(store, NOW, end_as=TaskState.FAILED, error_type=error_type)
    cases.spread(store, NOW + 10)
    cases.spread(store, NOW + 10, end_as=TaskState.CANCELLED, error_type='MigrationCancelled')
    assert store.outcomes.count_failures('blue', NOW - 1) == (2, 3)
    assert store.outcomes.count_failures('blue', NOW + 1) == (0, 1)
    assert store.outcomes.count_failures('red', 0) == (0, 0)


def test_an_open_breaker_pauses_and_forgives(store):
    cases.spread(store, NOW, end_as=TaskState.FAILED, error_type='MigrationFailed')
    cases.spread(store, NOW)
    store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 5)
    for later in (10, 20):
        store.outcomes.open_breaker(
            cases.lease_of(store), NOW + later, seconds=None, paused_by='it', reason='why')
        assert store.pauses.find_pause('blue', NOW + later).reason == 'why'
        store.pauses.resume_scope('blue', NOW + later)
        assert store.outcomes.list_outcomes('blue', 9) == [] and store.outcomes.count_failures(
            'blue', 0) == (0, 0)
    store.history.purge_records(NOW + 10**9)


def test_a_census_counts_scopes_tasks_and_drains(store):
    census = store.statistics.read_census()
    assert (census.scopes, census.tasks) == ({}, {})
    cases.spread(store, NOW)
    store.outcomes.record_outcome(cases.lease_of(store), 0.9, NOW + 60)
    judged = cases.spread(store, NOW + 100)
    store.outcomes.record_outcome(cases.lease_of(store), 0.3, NOW + 160)
    now = store.now()
    cases.save(store, [cases.make_task, cases.make_task, lambda plan_id, scope: cases.make_task(
        plan_id, scope, phase=model.Phase.EVACUATE, deadline=now - 1)], now=now - 60,
        draining=('h7', 'h8'))
    store.pauses.pause_scope('blue', now, seconds=3600, paused_by='me', reason='mine')
    store.pauses.pause_scope(None, now - 60, seconds=30, paused_by='me', reason='over')
    store.quarantine.record_local_disks('h1', now, 3600, 'told')
    found = store.statistics.read_census()
    assert found.tasks == {('blue', 'spread', 'queued'): 2, ('blue', 'evacuate', 'queued'): 1}
    assert found.ages.keys() == {('blue', 'queued')} and found.ages['blue', 'queued'] >= 60
    assert found.overdue == {'blue': 1} and found.quarantined == {'disks': 1}
    assert [pause.scope for pause in found.pauses] == ['blue']
    scope = found.scopes['blue']
    assert (scope.leased, scope.epoch, scope.draining) == (True, 1, 2)
    assert (scope.outcome.plan_id, scope.outcome.realised) == (judged, 0.3)
    assert scope.realised_at == NOW + 160
    store.leases.release_lease(cases.lease_of(store))
    assert not store.statistics.read_census().scopes['blue'].leased


def test_a_census_has_executors_that_have_spoken_of_late(store):
    store.executors.record_heartbeat('one', None)
    store.executors.record_heartbeat('two', ['blue', 'red'])
    store.executors.record_heartbeat('one', ['blue'])
    store.executors.record_heartbeat('three', [])
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.executor).where(tables.executor.c.name == 'three')
                           .values(seen_at=tables.executor.c.seen_at
                                   - executor_heartbeats.SILENT - 1))
    assert store.statistics.read_census().executors == {
        'one': frozenset({'blue'}), 'two': frozenset({'blue', 'red'})}
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.executor).where(tables.executor.c.name == 'three')
                           .values(seen_at=tables.executor.c.seen_at
                                   - executor_heartbeats.FORGOTTEN))
    store.executors.remove_executor('one')
    store.executors.record_heartbeat('four', None)
    assert store.statistics.read_census().executors == {'two': frozenset({'blue', 'red'}),
                                                        'four': None}
    with store.engine.connect() as connection:
        assert {row.name for row in connection.execute(sa.select(tables.executor))} == {
            'two', 'four'}


def test_a_census_has_what_the_last_cycle_found_and_why_later_ones_failed(store):
    lease = cases.lease_of(store)
    report = model.PolicyReport('cpu', 0.02, 0.02, 0.15, age=3.0)
    for now, imbalance in ((NOW, 0.02), (NOW + 60, 0.1)):
        store.plans.save_plan(
            lease, model.Plan('blue', policies=(dataclasses.replace(
                report, imbalance_before=imbalance, imbalance_after=imbalance),), reason='enough'),
            [], plan_id=cases.new_id(), now=now, dry_run=False, cooldown=0, instance_cooldown=0)
    assert len(store.plans.list_plans()) == 1, 'the second one says nothing new'
    found = store.statistics.read_census().scopes['blue'].cycle
    assert (found.at, found.moves, found.reason, found.error) == (NOW + 60, 0, 'enough', None)
    assert [(p.name, p.imbalance_before, p.age) for p in found.policies] == [('cpu', 0.1, 3.0)]
    store.plans.record_failed_cycle(lease, 'Nova is away', NOW + 120)
    failed = store.statistics.read_census().scopes['blue'].cycle
    assert (failed.error, failed.failed_at) == ('Nova is away', NOW + 120)
    assert dataclasses.replace(failed, error=None, failed_at=None) == found
    store.plans.save_plan(lease, model.Plan('blue', reason='enough'), [], plan_id=cases.new_id(),
                          now=NOW + 180, dry_run=False, cooldown=0, instance_cooldown=0)
    assert store.statistics.read_census().scopes['blue'].cycle.error is None


def test_a_census_tells_of_no_scope_that_is_gone(store):
    """Its lease stays because of the epoch; its drains stay until the scope is planned
    again."""
    now = store.now()
    for scope, tasks, ago in (('here', 0, 2 * 86400), ('away', 0, 3600),
                              ('gone', 0, 2 * 86400), ('stuck', 1, 2 * 86400)):
        cases.save(store, tasks, scope, now=now - ago, draining=[f'host of {scope}'])
        if scope != 'here':
            store.leases.release_lease(cases.lease_of(store, scope))
    store.leases.release_lease(cases.lease_of(store, 'never planned'))
    store.pauses.pause_scope('gone', now, seconds=None, paused_by='me', reason='mine')
    found = store.statistics.read_census()
    assert {scope: told.leased for scope, told in found.scopes.items()} == {
        'here': True, 'away': False, 'stuck': False}
    assert found.overdue == {'stuck': 1} and [p.scope for p in found.pauses] == ['gone']
    assert store.plans.list_draining_hosts() == {'host of here',
                                                 'host of away'}, 'else boots avoid it for ever'
    for scope in ('gone', 'away'):
        cases.lease_of(store, scope)
    assert store.plans.list_draining_hosts() == {'host of here',
                                                 'host of away'}, 'what was wanted long ago is not'
    assert store.history.read_history('gone', now).draining == frozenset()
    assert store.history.read_history('away', now).draining == {'host of away'}


def test_the_newest_plan_of_each_scope_is_found_with_its_tasks(store):
    assert store.plans.list_newest_plans() == {} and store.tasks.list_tasks_of_plans([]) == []
    cases.save(store, 2, now=NOW - 60)
    blue, (task,), _ = cases.save(store, 1, now=NOW)
    dry, _, _ = cases.save(store, 1, 'red', now=NOW, dry_run=True)
    assert {scope: row.plan_id for scope, row in store.plans.list_newest_plans().items()} == {
        'blue': blue, 'red': dry}
    assert [row.task.task_id
            for row in store.tasks.list_tasks_of_plans([blue, dry])] == [task.task_id]
    assert [row.plan_id for row in store.plans.list_plans(1, 'blue')] == [blue]
    assert len(store.plans.list_plans(scope='blue')) == 2 and len(store.plans.list_plans()) == 3
    assert store.outcomes.find_measured_imbalances(
        [blue]) == {} == store.outcomes.find_measured_imbalances([])


def test_moves_of_counted_instances_are_found_by_their_completion(store):
    cases.save(store, 3)
    moved = []
    for at in (NOW, NOW + 100):
        row = cases.claim(store)
        cases.end(store, row, now=at)
        moved.append(row.task.instance_uuid)
    first, second = moved
    failed = cases.claim(store)
    cases.end(store, failed, TaskState.FAILED, now=NOW + 50, error_type='PreFlightError')
    waiting = failed.task.instance_uuid
    read = store.history.read_move_times
    assert read({}, NOW + 200) == {}
    counted = {first: 60, second: 60, waiting: 60, 'other': 60}
    assert read(counted, NOW + 200) == {first: (NOW,), second: (NOW + 100,)}
    assert read({second: 60}, NOW + 200) == {second: (NOW + 100,)}
    later = NOW + 60 + metric_lag.REMEMBERED
    assert read(counted, later) == {second: (NOW + 100,)}
    assert read({first: 61, second: 1}, later) == {first: (NOW,), second: (NOW + 100,)}
    many = counted | {f'{number}': 60 for number in range(statements.BATCH)}
    assert read(many, NOW + 200) == {first: (NOW,), second: (NOW + 100,)}
