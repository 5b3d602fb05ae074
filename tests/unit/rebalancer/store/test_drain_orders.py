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

"""The store keeps the deadlines of drains until they are over."""

import dataclasses

import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import drain_orders
from kronos_nova.text import times
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW

DAY = 86400.0


def test_a_later_deadline_takes_the_place_of_the_first(store):
    cases.order_drain(store, 'h1', NOW + 60, 'one', NOW)
    cases.order_drain(store, 'H1', NOW + 70, 'y' * 300, NOW, by='x' * 300)
    cases.order_drain(store, 'h1', NOW + 80, 'two', NOW, by='bob')
    expected = {'h1': model.DrainDeadline(NOW + 80, 'two'),
                'H1': model.DrainDeadline(NOW + 70, 'y' * 255)}
    assert store.drain_orders.map_deadlines(NOW) == expected
    assert store.history.read_history('blue', NOW).drain_deadlines == expected
    assert store.drain_orders.find_order('h1') == drain_orders.DrainOrder(
        'h1', NOW + 80, 'two', NOW, 'bob')
    store.drain_orders.end_orders(['none'])
    store.drain_orders.end_orders(['h1'])
    assert list(store.drain_orders.map_deadlines(NOW)) == ['H1']
    assert store.drain_orders.find_order('h1') is None


@pytest.mark.parametrize(('before', 'written'), [(True, True), (True, False), (False, True)])
def test_a_change_is_undone_unless_another_came_after_it(store, before, written):
    first, second, third = (drain_orders.DrainOrder('h1', NOW + at, 'x' * 300, NOW, 'ann')
                            for at in (60, 70, 80))
    before, written = first if before else None, second if written else None
    for change, expected in (written, before), (third, third):
        store.drain_orders.end_orders(['h1'])
        if change is not None:
            store.drain_orders.replace_order(change)
        store.drain_orders.restore_order('h1', written, before)
        found = store.drain_orders.find_order('h1')
        assert (found and found.deadline) == (expected and expected.deadline)


def test_the_same_deadline_of_another_person_is_not_undone(store):
    first, second = (drain_orders.DrainOrder('h1', NOW + 60, 'disks', NOW + at, by)
                     for at, by in ((0.25, 'ann' * 100), (0.5, 'bob')))
    store.drain_orders.replace_order(first)
    store.drain_orders.replace_order(second)
    store.drain_orders.restore_order('h1', first, None)
    assert store.drain_orders.find_order('h1') == second, 'that of another time'
    store.drain_orders.replace_order(first)
    store.drain_orders.restore_order('h1', dataclasses.replace(first, ordered_by='bob'), None)
    assert store.drain_orders.find_order('h1') is not None, 'that of another person'
    store.drain_orders.restore_order('h1', first, None)
    assert store.drain_orders.find_order('h1') is None


def test_deadlines_that_passed_long_ago_are_purged(store):
    for host, at in ('h1', NOW), ('h2', NOW + 10):
        cases.order_drain(store, host, at, 'x')
    store.history.purge_records(NOW + 5)
    assert set(cases.map_deadlines(store)) == {'h2'}


@pytest.mark.parametrize(('deadline', 'ordered_at'), [
    (NOW, NOW), (NOW - 1, NOW), (NOW + 30 * DAY + 61, NOW), (NOW + 600, NOW + 61), (1e300, NOW),
    (-1e12 + 5, -1e12), (1e300, 1e300), (float('inf'), NOW), (float('nan'), NOW),
    (NOW, float('nan')), (NOW, float('-inf'))])
def test_rows_that_no_command_writes_do_not_count_and_engines_remove_them(
        store, deadline, ordered_at):
    cases.order_drain(store, 'h1', NOW + 60, 'x', NOW)
    assert not store.drain_orders.has_invalid_orders(NOW)
    try:
        cases.order_drain(store, 'h2', deadline, 'x', ordered_at)
    except exception.StoreError:
        return  # Not all databases have NaN and infinity.
    assert set(store.drain_orders.map_deadlines(NOW)) == {'h1'}
    assert store.drain_orders.has_invalid_orders(NOW)
    store.drain_orders.end_old_orders(cases.lease_of(store), [], NOW, NOW)
    assert not store.drain_orders.has_invalid_orders(NOW)
    assert store.drain_orders.find_order('h1') and not store.drain_orders.find_order('h2')


def test_an_engine_ends_old_orders_under_its_lease_alone(store):
    lease = cases.lease_of(store)
    for host, at in ('h1', NOW - 61), ('h2', NOW - 59), ('h3', NOW - 61):
        cases.order_drain(store, host, NOW, 'x', at)
    store.drain_orders.end_old_orders(lease, ['h1', 'h2'], NOW, NOW - 60)
    assert set(cases.map_deadlines(store, NOW)) == {'h2', 'h3'}
    with pytest.raises(exception.LeaseLost):
        store.drain_orders.end_old_orders(type(lease)(lease.scope, 'another', 99), ['h3'], NOW,
                                          NOW)
    assert 'h3' in cases.map_deadlines(store, NOW)


@pytest.mark.parametrize(('at', 'expected'), [
    (NOW + 0.25, NOW + 0.25), (1e300, times.LAST), (-1e300, 0.0)])
def test_a_task_keeps_the_time_by_which_its_instance_is_to_have_left(store, at, expected):
    _plan_id, (task,), _ = cases.save(store, [lambda p, s: cases.make_task(p, s, arrive_by=at)])
    found = store.tasks.find_task(task.task_id).task.arrive_by
    assert found == expected and times.format_time(found)


def test_moves_that_wait_are_those_of_the_host_and_the_phase_that_are_allowed(store):
    drain = {'phase': model.Phase.EVACUATE}
    cases.save(store, [
        lambda p, s, more=more: cases.make_task(p, s, **drain | more) for more in (
            {}, {}, {'from_host': 'h7'}, {'phase': model.Phase.REQUESTED},
            {'state': TaskState.PENDING})])
    assert store.tasks.count_waiting_moves('h1', model.Phase.EVACUATE) == 2
    cases.claim(store, now=NOW + 600)
    assert store.tasks.count_waiting_moves('h1', model.Phase.EVACUATE) == 2, 'claimed'
