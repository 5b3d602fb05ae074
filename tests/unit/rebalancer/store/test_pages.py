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

"""Pages of plans and tasks: each row comes once, in one order, for each size of a page."""

import itertools

import pytest
import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import pages
from kronos_nova.rebalancer.store import plan_decisions
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW

DECISION = plan_decisions.OperatorDecision('me@here', 'why not')


def save_plans(store):
    """Store five plans with 0 to 3 tasks, two plans in one second; return their UUIDs."""
    def task(wave, **fields):
        return lambda plan_id, scope: cases.make_task(plan_id, scope, wave=wave, **fields)

    return [cases.save(store, tasks, scope, now, reason=None if tasks else 'balanced')[0]
            for now, scope, tasks in (
                (NOW, 'blue', [task(0), task(1), task(0)]),
                (NOW + 1, 'red', [task(0, instance_name='web')]),
                (NOW + 1, 'blue', [task(2), task(0)]),
                (NOW + 2, 'red', [task(0, instance_name='web'), task(0)]),
                (NOW + 3, 'blue', []))]


def read_pages(read, name, limit, **filters):
    """Return the UUIDs of all pages, and fail where a page is too long or follows an empty one."""
    uuids, marker = [], None
    for _page in range(20):
        rows = read(pages.PageRequest(limit, marker, **filters))
        assert len(rows) <= limit
        uuids += [name(row) for row in rows]
        if len(rows) < limit:
            return uuids
        marker = uuids[-1]
    raise AssertionError('the pages do not end')


def read_plans(store, limit, **filters):
    return read_pages(store.pages.list_plan_page, lambda row: row.plan_id, limit, **filters)


def read_tasks(store, limit, task_filter=None, **filters):
    wanted = task_filter or pages.TaskFilter()
    return read_pages(lambda page: store.pages.list_task_page(page, wanted),
                      lambda row: row.task.task_id, limit, **filters)


@pytest.mark.parametrize('limit', [1, 2, 3, 50])
def test_pages_of_every_size_show_each_row_once_in_one_order(store, limit):
    plans = save_plans(store)
    listed = read_plans(store, limit)
    assert sorted(listed) == sorted(plans)
    assert listed[0] == plans[4] and listed[1] == plans[3] and listed[4] == plans[0]
    assert listed[2:4] == sorted(plans[1:3], reverse=True), 'of one time, by UUID'
    expected = []
    for plan_id in listed:
        tasks = sorted(store.tasks.list_plan_tasks(plan_id),
                       key=lambda row: (row.task.wave, row.task.task_id))
        expected += [row.task.task_id for row in tasks]
    assert read_tasks(store, limit) == expected and len(expected) == 8


def test_filters_of_plans_and_tasks_hold_on_every_page(store):
    plans = save_plans(store)
    assert read_plans(store, 1, scope='red') == [plans[3], plans[1]]
    of_red = [row.task for plan_id in (plans[3], plans[1])
              for row in store.tasks.list_plan_tasks(plan_id)]
    assert sorted(read_tasks(store, 2, scope='red')) == sorted(task.task_id for task in of_red)
    named = sorted(task.task_id for task in of_red if task.instance_name == 'web')
    assert sorted(read_tasks(store, 1, pages.TaskFilter(instance='web'))) == named
    one = of_red[0]
    assert read_tasks(store, 5, pages.TaskFilter(instance=one.instance_uuid)) == [one.task_id]
    assert len(read_tasks(store, 2, pages.TaskFilter(plan_id=plans[0]))) == 3
    claimed = cases.claim(store, now=NOW + 10)
    assert read_tasks(store, 5, pages.TaskFilter(states={TaskState.CLAIMED})) == [
        claimed.task.task_id]
    assert len(read_tasks(store, 3, pages.TaskFilter(
        states={TaskState.CLAIMED, TaskState.QUEUED}))) == 8


def test_changes_are_new_plans_decisions_and_tasks_that_changed(store):
    plans = save_plans(store)
    assert read_plans(store, 10, changed_since=NOW + 2) == [plans[4], plans[3]]
    assert not read_plans(store, 10, changed_since=NOW + 10)
    claimed = cases.claim(store, now=NOW + 20)
    assert read_plans(store, 10, changed_since=NOW + 20) == [claimed.task.plan_id]
    assert read_tasks(store, 10, changed_since=NOW + 20) == [claimed.task.task_id]
    cases.end(store, claimed, now=NOW + 30)
    assert read_plans(store, 10, changed_since=NOW + 30) == [claimed.task.plan_id]
    assert read_tasks(store, 10, changed_since=NOW + 30) == [claimed.task.task_id]
    assert not read_tasks(store, 10, changed_since=NOW + 31)
    other = next(plan_id for plan_id in plans[:4] if plan_id != claimed.task.plan_id)
    cancelled = store.approvals.cancel_plan(other, NOW + 40, DECISION, 900)
    assert read_plans(store, 10, changed_since=NOW + 40) == [other]
    assert sorted(read_tasks(store, 10, changed_since=NOW + 40)) == sorted(
        task.task_id for task in cancelled)


#: Hyphens stand among digits of different order: a collation that skips them must not matter.
NUMBERED = ('abcd1234-0000-4000-8000-00000000000', 'abcd1234-9fff-4000-8000-00000000000',
            'abcd1235-0000-4000-8000-00000000000', 'abcd9000-0000-4000-8000-00000000000',
            '00000000-0000-0000-0000-00000000000', 'ffffffff-ffff-ffff-ffff-fffffffffff')


PREFIXES = ('abcd', 'abcd1', 'abcd123', 'abcd1234', 'abcd1234-', 'abcd1234-9',
            'abcd1234-0000-4000-8000-', f'{NUMBERED[2]}0', f'{NUMBERED[2]}1', 'abce', '0000',
            'ffff', f'{NUMBERED[5]}f')


def save_numbered(store):
    """Store a plan with a task for each number; return their UUIDs, newest first."""
    plans, tasks = [], []
    for number, begin in enumerate(NUMBERED):
        last = begin[-1]
        plan_id, task_id = f'{begin}{last}', f'{begin}{1 if last == "0" else "f"}'
        task = cases.make_task(plan_id, task_id=task_id)
        store.plans.save_plan(
            cases.lease_of(store), model.Plan('blue', (model.Move(
                task.instance_uuid, 'h1', 'h2', task.phase),)), [task], plan_id=plan_id,
            now=NOW + number, dry_run=False, cooldown=0, instance_cooldown=0)
        plans.insert(0, plan_id)
        tasks.insert(0, task_id)
    return plans, tasks


def test_prefix_finds_the_ids_that_begin_so_on_every_page(store):
    plans, tasks = save_numbered(store)
    for prefix in PREFIXES:
        for limit in (1, 50):
            assert read_plans(store, limit, id_prefix=prefix) == [
                plan_id for plan_id in plans if plan_id.startswith(prefix)]
            assert read_tasks(store, limit, id_prefix=prefix) == [
                task_id for task_id in tasks if task_id.startswith(prefix)]
    assert read_plans(store, 50, id_prefix='abcd', scope='red') == []
    assert read_tasks(store, 50, pages.TaskFilter(plan_id=plans[2]), id_prefix='abcd') == [tasks[2]]


def test_prefix_is_found_by_the_index_of_the_ids(store):
    save_numbered(store)
    for column in (pages._plan.c.plan_id, pages._task.c.task_id):
        table = column.table.name
        query = str(sa.select(column).where(pages.match_id_prefix(column, 'abcd1234')).compile(
            store.engine, compile_kwargs={'literal_binds': True}))
        with store.engine.begin() as connection:
            if store.engine.dialect.name == 'postgresql':  # It reads small tables as a whole.
                connection.exec_driver_sql('SET LOCAL enable_seqscan = off')
                connection.exec_driver_sql('SET LOCAL enable_bitmapscan = off')
            found = connection.exec_driver_sql({
                'sqlite': 'EXPLAIN QUERY PLAN ', 'postgresql': 'EXPLAIN '}.get(
                    store.engine.dialect.name, 'EXPLAIN FORMAT=JSON ') + query)
            explained = ' '.join(str(part) for row in found for part in row)
        words = {'sqlite': ('SEARCH', f'sqlite_autoindex_{table}_1'),
                 'postgresql': ('Index Cond', f'{table}_pkey')}.get(
                     store.engine.dialect.name, ('"access_type": "range"', '"key": "PRIMARY"'))
        assert all(word in explained for word in words), explained


def test_a_marker_without_a_row_is_refused(store):
    save_plans(store)
    unknown = pages.PageRequest(5, cases.new_id())
    for read in (store.pages.list_plan_page,
                 lambda page: store.pages.list_task_page(page, pages.TaskFilter())):
        with pytest.raises(pages.UnknownMarker):
            read(unknown)


def test_a_plan_that_appears_between_two_pages_moves_no_row(store):
    plans = save_plans(store)
    first = [row.plan_id for row in store.pages.list_plan_page(pages.PageRequest(2))]
    cases.save(store, 1, 'blue', NOW + 99)
    rest = [row.plan_id for row in store.pages.list_plan_page(pages.PageRequest(9, first[-1]))]
    assert sorted(itertools.chain(first, rest)) == sorted(plans)
