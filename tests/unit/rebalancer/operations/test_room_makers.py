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

"""Claims tell which hosts fit elsewhere, and which instances could make room."""

import pytest

from kronos_nova import model
from kronos_nova.constraints import occupancy
from kronos_nova.rebalancer.operations import room_makers
from tests.unit.rebalancer.planning import test_failover


def table_of(instances, hosts=3, capacity=4, **options):
    request = test_failover.small(hosts, instances, capacity=capacity, **options)
    return room_makers.ClaimTable(request.cluster, request.options)


def test_hosts_fit_as_long_as_the_open_hosts_have_room_for_their_claims():
    table = table_of([('a', 'h0', 3), ('b', 'h1', 2), ('c', 'h2', 1), ('d', 'h3', 1)], hosts=4)
    assert table.count_fitting_hosts(['h0', 'h1'], ()) == 2
    assert table.count_fitting_hosts(['h0', 'h1'], ['h3']) == 1, '3 of 4 are left on h2'
    table.move_instance('c', 'h3')
    assert table.count_fitting_hosts(['h0', 'h1'], ['h3']) == 1
    assert table.count_fitting_hosts(['h0'], ['h3', 'h2']) == 0


def test_copy_of_a_table_changes_on_its_own():
    table = table_of([('a', 'h0', 4), ('b', 'h1', 1)], hosts=2)
    copied = table.copy_table()
    copied.move_instance('b', 'h0')
    assert table.count_fitting_hosts(['h0'], ()) == 0
    assert copied.count_fitting_hosts(['h0'], ()) == 0
    assert copied.count_fitting_hosts(['h1'], ()) == 1, 'nothing is on h1'


def test_instance_makes_room_if_it_fits_elsewhere_and_leaves_enough():
    table = table_of([('big', 'h0', 3), ('b', 'h1', 2), ('c', 'h2', 2), ('d', 'h2', 1)])
    assert table.list_room_makers(['big'], ()) == {'big': ['c']}, 'b fits nowhere, d is too small'
    assert table.list_room_makers(['big'], ['h1']) == {'big': []}, 'c fits nowhere else'


@pytest.mark.parametrize('options, fitting', [
    ({}, 0), ({'enforce_placement_disk': True}, 0), ({'enforce_placement_disk': False}, 1),
    ({'enforce_placement_claims': False}, 1)])
def test_classes_that_are_not_enforced_are_no_limit(options, fitting):
    hosts = {name: model.Host(name, provider=model.Provider(
        f'rp-{name}', inventories={occupancy.DISK: model.Inventory(10)},
        used={occupancy.DISK: 8})) for name in ('h0', 'h1')}
    cluster = model.Cluster(hosts, {'a': model.Instance('a', 'h0', claims={occupancy.DISK: 8})},
                            {})
    table = room_makers.ClaimTable(cluster, model.PlanningOptions(**options))
    assert table.count_fitting_hosts(['h0'], ()) == fitting
    assert table.list_room_makers(['a'], ()) == {'a': ['a'] if fitting else []}
