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

"""Drains whose hosts go to another scope."""

import pytest

from kronos_nova import exception
from tests.unit.rebalancer.store import cases

NOW = cases.NOW


def list_begins(store, *scopes):
    return [dict(store.history.read_history(scope, NOW).drain_begins) for scope in scopes]


def test_a_drain_goes_on_in_another_scope_from_its_earlier_begin(store):
    cases.save(store, 0, 'blue', now=NOW - 60, draining=['h1', 'h2', 'h3'])
    cases.save(store, 0, 'red', now=NOW - 30, draining=['h2'])
    cases.save(store, 0, 'red', now=NOW - 90, draining=['h2', 'h4'])
    blue = cases.lease_of(store, 'blue')
    store.plans.move_drains(blue, {'h1': 'red', 'h2': 'red', 'h4': 'red', 'h9': 'green'})
    expected = [{'h3': NOW - 60}, {'h1': NOW - 60, 'h2': NOW - 60, 'h4': NOW - 90}, {}]
    assert list_begins(store, 'blue', 'red', 'green') == expected
    store.plans.move_drains(blue, {'h1': 'red'})
    assert list_begins(store, 'blue', 'red', 'green') == expected, 'a repetition changes nothing'


def test_an_engine_without_the_lease_moves_no_drain(store):
    cases.save(store, 0, 'blue', now=NOW, draining=['h1'])
    old = cases.lease_of(store, 'blue')
    store.leases.release_lease(old)
    with pytest.raises(exception.LeaseLost):
        store.plans.move_drains(old, {'h1': 'red'})
    assert list_begins(store, 'blue', 'red') == [{'h1': NOW}, {}]
