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

import pytest

from kronos_nova import exception
from tests.unit.rebalancer.store import cases
from tests.unit.rebalancer.store.cases import NOW


def test_a_later_deadline_takes_the_place_of_the_first(store):
    store.drain_orders.replace_deadline('h1', NOW + 60, NOW, 'ann')
    store.drain_orders.replace_deadline('H1', NOW + 70, NOW, 'x' * 300)
    store.drain_orders.replace_deadline('h1', NOW + 80, NOW, 'bob')
    assert store.drain_orders.map_deadlines() == {'h1': NOW + 80, 'H1': NOW + 70}
    assert store.history.read_history('blue', NOW).drain_deadlines == {
        'h1': NOW + 80, 'H1': NOW + 70}
    store.drain_orders.replace_deadline('h1', None, NOW, 'bob')
    store.drain_orders.end_orders(['none'])
    assert store.drain_orders.map_deadlines() == {'H1': NOW + 70}
    store.drain_orders.end_orders(['H1', 'h1'])
    assert store.drain_orders.map_deadlines() == {}


def test_an_engine_ends_old_orders_under_its_lease_alone(store):
    lease = cases.lease_of(store)
    for host, at in ('h1', NOW - 61), ('h2', NOW - 59), ('h3', NOW - 61):
        store.drain_orders.replace_deadline(host, NOW, at, 'ann')
    store.drain_orders.end_old_orders(lease, ['h1', 'h2'], NOW - 60)
    assert set(store.drain_orders.map_deadlines()) == {'h2', 'h3'}
    with pytest.raises(exception.LeaseLost):
        store.drain_orders.end_old_orders(type(lease)(lease.scope, 'another', 99), ['h3'], NOW)
    assert 'h3' in store.drain_orders.map_deadlines()


def test_a_task_keeps_the_time_by_which_its_instance_is_to_have_left(store):
    _plan_id, (task,), _ = cases.save(store, [
        lambda p, s: cases.make_task(p, s, arrive_by=NOW + 0.25)])
    assert store.tasks.find_task(task.task_id).task.arrive_by == NOW + 0.25
