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


"""What every backend must survive: faults inside of transactions, zombies, clocks
that are wrong, upgrades of the schema.

Each function takes a store with an upgraded, empty database, as in :mod:`cases`.
"""

import contextlib
import inspect
import json
import re
import time
import unittest.mock

from alembic import migration
from alembic import script
import pytest
import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import schema
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions
from tests.fixtures import schemas
from tests.fixtures import stores
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW


class Pulled(Exception):
    """The plug, at a statement."""


@contextlib.contextmanager
def pulled_at(store, number):
    """The statement of this number never reaches the database; yields the count."""
    seen = []

    def before(cursor, statement, *rest):
        if statement.startswith('BEGIN'):
            return
        seen.append(statement)
        if len(seen) == number:
            raise Pulled(statement)

    # SQLAlchemy 2.0 takes no error of before_cursor_execute for one of the database.
    events = ('do_execute', 'do_execute_no_params', 'do_executemany')
    for event in events:
        sa.event.listen(store.engine, event, before)
    try:
        yield seen
    finally:
        for event in events:
            sa.event.remove(store.engine, event, before)


def whole_or_nothing(store, action):
    """Fails ``action`` at each of its statements in turn, then lets it through.

    :returns: how many statements it has.
    """
    before = cases.dump(store)
    for number in range(1, 200):
        with pulled_at(store, number) as seen:
            try:
                action()
            except exception.StoreError as e:
                assert 'refused a statement' in str(e)
                assert cases.dump(store) == before, seen
                continue
        assert cases.dump(store) != before
        return len(seen)
    raise AssertionError('it never came through')


def test_a_plan_is_stored_wholly_or_not_at_all(store):
    """Plan, tasks, cooldowns, drains, foreseen outcome, the lease's mark."""
    lease = cases.lease_of(store)
    plan_id = cases.new_id()
    made = [cases.make_task(plan_id), cases.make_task(plan_id)]
    plan = model.Plan(
        'blue', tuple(model.Move(t.instance_uuid, 'h1', 'h2', t.phase) for t in made),
        combined_before=0.5, combined_after=0.2, draining=frozenset({'h9'}))
    empty = cases.dump(store)
    count = whole_or_nothing(store, lambda: store.plans.save_plan(
        lease, plan, made, plan_id=plan_id, now=NOW, dry_run=False, cooldown=600,
        instance_cooldown=900))
    full = cases.dump(store)
    assert count >= 12
    changed = {name for name in full if full[name] != empty[name]}
    assert changed == {'plan', 'task', 'outcome', 'cooldown', 'drain', 'lease'}


def test_an_end_is_written_wholly_or_not_at_all(store):
    """Task, cooldown, quarantine, and the dependents that can no longer happen."""
    first = cases.new_id()
    _, tasks, _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, instance_uuid=first),
        lambda p, s: cases.make_task(p, s, requires=(first,), wave=1)])
    row = cases.claim(store)
    whole_or_nothing(store, lambda: cases.end(
        store, row, TaskState.FAILED, error_type='MigrationFailed', quarantine_seconds=60))
    assert store.tasks.find_task(tasks[1].task_id).task.state is TaskState.CANCELLED
    assert store.tasks.list_in_flight_moves() == ()


def test_every_other_step_is_whole_too(store):
    first = cases.new_id()
    cases.save(store, [
        lambda p, s: cases.make_task(p, s, instance_uuid=first),
        lambda p, s: cases.make_task(p, s, requires=(first,), wave=1)])
    held = {}
    whole_or_nothing(store, lambda: held.update(row=cases.claim(store)))
    task_id = held['row'].task.task_id
    whole_or_nothing(store, lambda: store.tasks.requeue_task(
        task_id, 'w', NOW, not_before=NOW, retry_count=1, attempt=1))
    whole_or_nothing(
        store, lambda: store.tasks.expire_tasks(None, NOW + 10 * rows.BEGIN_WITHIN, 60))
    whole_or_nothing(
        store, lambda: store.quarantine.count_refusal('h2', NOW, limit=3, seconds=60, reason='no'))
    first, said = cases.new_id(), plan_decisions.OperatorDecision('me', 'why')
    for verb in ('approve', 'reject'):
        plan_id, _, _ = cases.save(store, [
            lambda p, s: cases.make_task(p, s, instance_uuid=first, state=TaskState.PENDING,
                                         deadline=NOW + 3600),
            lambda p, s: cases.make_task(p, s, requires=(first,), wave=1, deadline=NOW + 3600,
                                         state=TaskState.PENDING)])
        if verb == 'approve':
            whole_or_nothing(store, lambda i=plan_id: store.approvals.approve_plan(
                i, NOW, said, begin_within={}, cooldown=60, instance_cooldown=60,
        approve_task=cases.count_one_approval))
            store.approvals.cancel_plan(plan_id, NOW, said, 60)
        else:
            whole_or_nothing(store, lambda i=plan_id: store.approvals.reject_plan(i, NOW, said, 60))
    lease = cases.lease_of(store)
    whole_or_nothing(
        store, lambda: store.outcomes.open_breaker(lease, NOW, seconds=60, paused_by='it',
                                                   reason='why'))


def test_plans_are_purged_wholly_or_not_at_all(store):
    """A purge that fails at any statement leaves no rows without their plan."""
    plan_ids = [cases.save(store, 2, scope=scope, now=NOW + n)[0]
                for n, scope in enumerate(('blue', 'green', 'red'))]
    with store.engine.begin() as connection:  # as an engine of the previous release
        connection.execute(sa.insert(tables.budget), [
            {'plan_id': plan_id, 'scope': 'blue', 'spent_at': NOW, 'moves': 2}
            for plan_id in plan_ids])
    for _ in range(6):
        cases.end(store, cases.claim(store, per_scope=9))
    parts = (tables.task, tables.budget, tables.plan)
    rows_of = {table.name: 2 if table is tables.task else 1 for table in parts}
    for number in range(1, 200):
        with pulled_at(store, number) as seen:
            try:
                store.history.purge_records(0.0 + 2**31)
            except exception.StoreError as e:
                assert 'refused a statement' in str(e)
            else:
                break
        with store.engine.connect() as connection:
            left = {table.name: list(connection.scalars(sa.select(table.c.plan_id)))
                    for table in parts}
        for plan_id in plan_ids:
            assert {name: found.count(plan_id) for name, found in left.items()} in (
                rows_of, dict.fromkeys(rows_of, 0)), (number, seen)
    assert number > 10 and store.plans.list_plans() == []


@contextlib.contextmanager
def deletions(store):
    """Yields the number of rows that each transaction has deleted."""
    found = []

    def begin(connection):
        found.append(0)

    def after(connection, cursor, statement, *rest):
        if statement.startswith('DELETE'):
            found[-1] += cursor.rowcount

    sa.event.listen(store.engine, 'begin', begin)
    sa.event.listen(store.engine, 'after_cursor_execute', after)
    try:
        yield found
    finally:
        sa.event.remove(store.engine, 'begin', begin)
        sa.event.remove(store.engine, 'after_cursor_execute', after)


def test_a_purge_forgets_a_part_at_a_time(store):
    """No transaction deletes much more than a batch, and all goes in the end."""
    for n in range(30):
        cases.save(store, 3, now=NOW + n)
        for _ in range(3):
            cases.end(store, cases.claim(store, now=NOW + n, per_scope=9), now=NOW + n)
    with unittest.mock.patch.object(statements, 'BATCH', 10), deletions(store) as deleted:
        assert store.history.purge_records(0.0 + 2**31) == 30
    # A batch: two plans, each with three tasks; or as many cooldowns, and those
    # of the same second.
    assert max(deleted) <= 14 and sum(deleted) >= 30 * 4 + 90
    assert store.plans.list_plans() == [] and store.history.read_history('blue', NOW).cooling == {}


def test_the_database_itself_refuses_a_second_live_task(store):
    """Not only the question that comes before: the constraint."""
    _, (task,), _ = cases.save(store)
    twin = rows.task_columns(cases.make_task(
        task.plan_id, instance_uuid=task.instance_uuid), NOW)
    with pytest.raises(Exception, match='(?i)unique|duplicate'), store.engine.begin() as c:
        c.execute(sa.insert(tables.task).values(twin))
    with store.engine.begin() as connection:
        for _ in range(2):
            twin.update(task_id=cases.new_id(), active_instance=None)
            connection.execute(sa.insert(tables.task).values(twin))


@contextlib.contextmanager
def process_clock(hours):
    """The process believes that it is so many hours later."""
    real = time.time
    with unittest.mock.patch('time.time', lambda: real() + hours * 3600.0):
        yield


def test_leases_ignore_the_clock_of_a_process(store):
    with process_clock(-6):
        first = store.leases.acquire_lease('blue', 'e1', 30, 'hash')
    with process_clock(6):
        assert store.leases.acquire_lease('blue', 'e2', 30, 'hash') is None
        assert not store.leases.has_free_scope(['blue'])
        assert store.leases.renew_lease(first, 30)
        cases.save(store, lease=first)
    with process_clock(-6):
        assert store.leases.renew_lease(first, 0.0)
    with process_clock(-6):
        with pytest.raises(exception.LeaseLost):
            cases.save(store, lease=first)
        assert store.leases.acquire_lease('blue', 'e2', 30, 'hash').epoch == first.epoch + 1


# Each method that writes, and what keeps a zombie from it.

def _result(row):
    task = row.task
    return model.TaskResult(task.task_id, task.plan_id, task.aggregate, task.instance_uuid,
                            task.from_host, task.to_host, True)


NOTICE = model.MoveNotice(cases.new_id(), 'p', 'a', model.NoticeReason.DRAIN, NOW, NOW + 60,
                          NOW + 90)
CAMPAIGN = model.Campaign(cases.new_id(), 'blue', 'why', 1, NOW, 'me', hosts=(
    model.CampaignHost('a', 0, since=NOW),
    model.CampaignHost('held', 1, model.CampaignHostState.HELD, NOW)))
UNDER_A_LEASE = {
    'plans.save_plan': lambda store, lease: cases.save(store, lease=lease, draining=['h9']),
    'plans.move_drains': lambda store, lease: store.plans.move_drains(lease, {'h9': 'red'}),
    'outcomes.record_outcome': lambda store, lease: store.outcomes.record_outcome(lease, 0.9, NOW),
    'outcomes.record_imbalance_since': lambda store, lease: store.outcomes.record_imbalance_since(
        lease, NOW),
    'outcomes.clear_imbalance_since': lambda store, lease: store.outcomes.clear_imbalance_since(
        lease),
    'approvals.pop_unannounced_decisions': lambda store, lease:
        store.approvals.pop_unannounced_decisions(lease),
    'plans.record_failed_cycle': lambda store, lease: store.plans.record_failed_cycle(lease, 'why',
                                                                                      NOW),
    'approvals.cancel_lapsed_tasks': lambda store, lease:
        store.approvals.cancel_lapsed_tasks(lease, NOW + 3600),
    'approvals.supersede_tasks': lambda store, lease: store.approvals.supersede_tasks(
        lease, [cases.new_id()], NOW, plan_decisions.OperatorDecision('me', 'a drain'),
        cooldown=600, instance_cooldown=900),
    'outcomes.open_breaker': lambda store, lease: store.outcomes.open_breaker(lease, NOW,
                                                                              seconds=None,
                                                             paused_by='it',
                                                             reason='why'),
    'notices.record_notices': lambda store, lease: store.notices.record_notices(lease, [NOTICE]),
    'notices.record_announcements': lambda store, lease: store.notices.record_announcements(
        lease, [NOTICE]),
    'campaigns.begin_step': lambda store, lease: store.campaigns.begin_step(
        lease, CAMPAIGN.campaign_id, ['a'], opened=False, now=NOW),
    'campaigns.return_hosts': lambda store, lease: store.campaigns.return_hosts(
        lease, CAMPAIGN.campaign_id, ['a'], NOW),
    'campaigns.ask_host': lambda store, lease: store.campaigns.ask_host(
        lease, CAMPAIGN.campaign_id, 'a', [model.CampaignHostState.TO_COME], 120.0,
        disables=False),
    'campaigns.begin_work': lambda store, lease: store.campaigns.begin_work(
        lease, CAMPAIGN.campaign_id, 'held', 'zombie', NOW),
    'campaigns.change_host': lambda store, lease: store.campaigns.change_host(
        lease, CAMPAIGN.campaign_id, CAMPAIGN.hosts[0], detail='x'),
    'campaigns.pause_campaign': lambda store, lease: store.campaigns.pause_campaign(
        lease, CAMPAIGN.campaign_id, 'zombie', 'why'),
    'campaigns.record_waits': lambda store, lease: store.campaigns.record_waits(
        lease, CAMPAIGN.campaign_id, 'why'),
    'campaigns.record_refusals': lambda store, lease: store.campaigns.record_refusals(
        lease, CAMPAIGN.campaign_id, 1),
    'campaigns.renew_authorization': lambda store, lease: store.campaigns.renew_authorization(
        lease, CAMPAIGN, 'token'),
    'campaigns.end_campaign': lambda store, lease: store.campaigns.end_campaign(
        lease, CAMPAIGN, NOW),
    'drain_orders.end_old_orders': lambda store, lease: store.drain_orders.end_old_orders(
        lease, ['h9'], NOW, NOW),
    'leases.renew_lease': lambda store, lease: store.leases.renew_lease(lease, 30),
    'leases.release_lease': lambda store, lease: store.leases.release_lease(lease)}
UNDER_A_CLAIM = {
    'tasks.renew_task_claim': lambda store, row: store.tasks.renew_task_claim('zombie', NOW + 99),
    'tasks.release_task_claims': lambda store, row: store.tasks.release_task_claims('zombie'),
    'tasks.update_state': lambda store, row: store.tasks.update_state(
        row.task.task_id, 'zombie', list(TaskState), TaskState.SUBMITTED, NOW, error='x'),
    'tasks.requeue_task': lambda store, row: store.tasks.requeue_task(
        row.task.task_id, 'zombie', NOW, not_before=NOW, retry_count=1, attempt=0),
    'tasks.finish_task': lambda store, row: store.tasks.finish_task(
        row.task, _result(row), TaskState.COMPLETED, NOW, worker='zombie',
        instance_cooldown=900, quarantine_seconds=-1),
    'hooks.record_hook': lambda store, row: store.hooks.record_hook(pending_hooks.PendingHook(
        cases.new_id(), row.task, 0, model.TaskHook('x'), '', NOW), 'zombie', NOW, ()),
    'hooks.postpone_hook': lambda store, row: store.hooks.postpone_hook(pending_hooks.PendingHook(
        OWED, row.task, 0, model.TaskHook('x'), '', NOW, tries=9), 'zombie'),
    'hooks.delete_hook': lambda store, row: store.hooks.delete_hook(OWED, 'zombie')}
#: A hook that is owed; by the zombie until somebody else has taken it.
OWED = '0b7c4d1e-5f2a-4c86-9d3b-7e1a2c4f6b80'
#: These take what is free or silent, by compare-and-swap; whoever comes late gets none.
TAKING = {'leases.acquire_lease', 'leases.retake_lease', 'tasks.claim_task', 'tasks.adopt_tasks',
          'tasks.expire_tasks', 'tasks.settle_swaps', 'hooks.take_due_hooks'}
#: What people say, and the deletion of what has ended: nobody's turn.
NOBODYS = {'pauses.pause_scope', 'pauses.resume_scope', 'quarantine.lift_quarantine',
           'tasks.cancel_task', 'tasks.resolve_task', 'approvals.approve_plan',
           'approvals.reject_plan', 'approvals.cancel_plan', 'plans.save_requested_plan',
           'history.purge_records', 'upgrade', 'audit.record_command',
           'campaigns.create_campaign', 'campaigns.order_state', 'campaigns.order_host',
           'drain_orders.replace_order', 'drain_orders.restore_order',
           'drain_orders.end_orders'}
#: Of itself, for those who look.
ITS_OWN = {'executors.record_heartbeat', 'executors.remove_executor', 'quarantine.record_outage',
           'quarantine.end_outage', 'readings.publish_reading'}
#: Steps of other modules, which say themselves what fences them.
OTHERS = {'run_transaction', 'run_under_lease', 'open_long_runner'}
#: News about a host, told after a step that is fenced (Outcomes.failed).
AFTER_A_FENCED_STEP = {'quarantine.count_refusal', 'quarantine.record_local_disks',
                       'quarantine.record_other_cells'}


def writing_methods():
    """Names of the store's methods, and of its repositories' as `repository.method`."""
    return _list_writing_methods('', api.Store).union(*(
        _list_writing_methods(f'{name}.', type(repository))
        for name, repository in vars(api.Store(engine=stores.engine())).items()
        if isinstance(repository, transactions.Repository)))


def _list_writing_methods(prefix, owner):
    return {prefix + name for name, method in inspect.getmembers(owner, inspect.isfunction)
            if not name.startswith('_') and re.search(
                r'self\._run(_on)?\b(?!\(step, begin=)|\brun_(transaction|under_lease)\('
                r'|\bopen_long_runner\(|schema\.upgrade_schema\b', inspect.getsource(method))}


def test_each_writing_method_has_a_fence_in_these_lists(store):
    known = (UNDER_A_LEASE.keys() | UNDER_A_CLAIM.keys() | TAKING | NOBODYS
             | AFTER_A_FENCED_STEP | ITS_OWN | OTHERS)
    assert writing_methods() == known


def test_a_zombie_writes_nothing(store):
    old = store.leases.acquire_lease('blue', 'zombie', 30, 'hash')
    store.campaigns.create_campaign(CAMPAIGN, '')
    cases.spread(store, NOW, lease=old)
    store.outcomes.record_imbalance_since(old, NOW)
    cases.save(store, [lambda p, s: cases.make_task(
        p, s, state=TaskState.PENDING, deadline=NOW + 3600)], lease=old)
    cases.save(store, lease=old)
    store.approvals.cancel_plan(cases.save(store, lease=old)[0], NOW,
                                plan_decisions.OperatorDecision('me'),
                                900)
    cases.claim(store, 'zombie', now=NOW)
    store.leases.release_lease(old)
    store.leases.acquire_lease('blue', 'engine', 30, 'hash')
    row = cases.claim(store, 'w2', now=NOW + 60)
    cases.save(store)
    with store.engine.begin() as connection:
        connection.execute(sa.insert(tables.drain).values(scope='blue', host='h9', since=NOW))
    other = cases.claim(store, 'zombie', now=NOW + 60, per_scope=9, total=9)
    assert store.hooks.record_hook(
        pending_hooks.PendingHook(OWED, other.task, 0, model.TaskHook('x'), '', NOW),
                                   'zombie',
                                   NOW, ())
    cases.end(store, other, worker='zombie')
    assert [one.owed_id for one in store.hooks.take_due_hooks('w2', None, NOW + 60, 60)] == [OWED]
    before = cases.dump(store)
    for name, write in UNDER_A_LEASE.items():
        with contextlib.suppress(exception.LeaseLost):
            assert not write(store, old), name
        assert cases.dump(store) == before, name
    for name, write in UNDER_A_CLAIM.items():
        assert not write(store, row), name
        assert cases.dump(store) == before, name
    assert store.leases.acquire_lease('blue', 'zombie', 30, 'hash') is None
    assert cases.claim(store, 'zombie', now=NOW + 60) is None
    assert store.tasks.adopt_tasks('zombie', None, NOW + 60, 60) == []
    assert store.tasks.expire_tasks(None, NOW + 60, 60) == []
    after = cases.dump(store)
    after['gate'] = before['gate']
    assert after == before


def test_a_released_lease_writes_nothing_before_another_engine_takes_it(store):
    old = store.leases.acquire_lease('blue', 'engine', 30, 'hash')
    cases.spread(store, NOW, lease=old)
    store.leases.release_lease(old)
    before = cases.dump(store)
    for name, write in UNDER_A_LEASE.items():
        with contextlib.suppress(exception.LeaseLost):
            assert not write(store, old), name
        assert cases.dump(store) == before, name


# Upgrades of the schema.

DOCUMENT = json.dumps({
    'moves': [], 'policies': [], 'combined_before': 0.5, 'combined_after': 0.2,
    'rejections': {}, 'warnings': [], 'draining': [], 'truncated': False})
TASKS = {'method': 'live', 'trees': None, 'destinations': '["h2", "h3"]',
         'policy_names': '["cpu"]', 'requires': '[]', 'state': 'queued', 'phase': 'spread',
         'improvements': '[0.25]', 'attempts': None, 'attempt': 0, 'worker': None,
         'heartbeat_at': None, 'expires_at': None, 'not_before': NOW, 'from_host': 'h1',
         'to_host': 'h2', 'timings': None, 'hooks': None, 'swap_id': None,
         'escalation': '[{"kind": "cold", "at": 1.5, "reason": "it writes"}]'}
KNOWN = {
    'plan': {'document': DOCUMENT}, 'task': TASKS, 'cooldown': {'until': 4e9},
    'quarantine': {'until': None}, 'lease': {'until': 0.0, 'epoch': 7},
    'pause': {'kind': 'scope', 'until': None},
    # Of another instance, which it keeps from moving.
    'owed_hook': {'instance_uuid': 'ffffffff-0000-4000-8000-000000000000'},
    'outcome': {'combined_realised': None, 'realised_at': None,
                'hosts_before': None}}  # of a plan that spreads
KEYS = {'plan_id', 'task_id', 'instance_uuid', 'active_instance'}


def filler(column):
    """A value that a column keeps as it is, on every backend."""
    if column.name in KEYS:
        return f'{sorted(KEYS).index(column.name):08d}-0000-4000-8000-000000000000'
    kind = column.type
    if isinstance(kind, sa.Boolean) or column.name == 'dry_run':
        return False
    if isinstance(kind, sa.Integer):
        return 3
    if isinstance(kind, sa.Numeric | sa.Float):
        return 1_600_000_000.25
    if kind.python_type is bytes:
        return b'\x00\xff'
    return 'instance' if column.name == 'kind' else 'Größe 1'


def stored(store):
    """Return the database at any revision: table -> rows by column."""
    found = sa.MetaData()
    with store.engine.connect() as connection:
        found.reflect(connection)
        return {table.name: [dict(row) for row in connection.execute(sa.select(table)).mappings()]
                for table in found.sorted_tables if table.name != 'alembic_version'}


def fill(store):
    """A row in every table that the database has, by what its columns are."""
    found = sa.MetaData()
    with store.engine.begin() as connection:
        found.reflect(connection)
        for table in found.sorted_tables:
            if table.name in ('alembic_version', 'gate'):
                continue
            row = {column.name: filler(column) for column in table.columns}
            known = {name: value for name, value in KNOWN.get(table.name, {}).items()
                     if name in row}
            connection.execute(sa.insert(table).values({**row, **known}))


def test_an_upgrade_keeps_every_row_and_its_meaning(store):
    """A row in every table is carried over to the schema of the next release."""
    fill(store)
    before = stored(store)
    with schemas.run_as_next_release() as revision:
        with pytest.raises(exception.StoreError, match=f'{revision}. Upgrade.*kronos-manage db'):
            store.check()
        store.upgrade()
        store.check()
        after = stored(store)
        assert [row.pop('added') for row in after['task']] == [7]
        assert after == before
        _used(store, before)
    # The present release still works on it.
    store.check()
    store.upgrade()
    assert schema.read_current_revision(store.engine) == revision


def test_a_revision_that_does_not_admit_this_release_is_refused(store):
    with schemas.run_as_next_release(admits=False) as revision:
        store.upgrade()
    for step in (store.check, store.upgrade):
        with pytest.raises(exception.StoreError, match=f'{revision}.*Install the release'):
            step()


def test_rows_of_this_release_are_complete_on_the_next_schema(store):
    with schemas.run_as_next_release():
        store.upgrade()
    cases.save(store)
    assert {row['added'] for row in stored(store)['task']} == {7}
    cases.end(store, cases.claim(store))


def _used(store, before):
    """Check that migrated rows exist and keep their meaning."""
    scope = 'Größe 1'
    found = store.history.read_history(scope, NOW)
    assert found.cooling == {scope: 4e9 - NOW} and found.quarantined == {scope: -1}
    assert found.draining == {scope} and found.paused is not None
    row, = store.plans.list_plans()
    assert (row.plan.scope, row.plan.combined_before) == (scope, 0.5)
    flight, = store.tasks.list_in_flight_moves()
    assert (flight.from_host, flight.to_host, flight.alternates) == ('h1', 'h2', ('h3',))
    lease = store.leases.acquire_lease(scope, 'e2', 30, 'hash')
    assert lease.epoch == 8
    store.pauses.resume_scope(scope, NOW)
    mine = cases.claim(store)
    assert mine.task.method is model.MoveMethod.LIVE and mine.task.trees == ()
    assert mine.task.instance_uuid == before['task'][0]['instance_uuid']
    cases.end(store, mine)
    assert store.outcomes.record_outcome(lease, 0.1, NOW + 60, load=0.5) is not None


def test_revisions_are_those_that_alembic_finds(store):
    """It is not asked for them whenever a command starts."""
    found = script.ScriptDirectory.from_config(schema._make_alembic_config())
    assert schema.list_revisions() == [r.revision for r in found.walk_revisions()][::-1]
    assert schema.get_head_revision() == found.get_current_head()
    with store.engine.connect() as connection:
        assert migration.MigrationContext.configure(
            connection).get_current_revision() == schema.read_current_revision(
                store.engine) == schema.get_head_revision()
