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

from typing import Any

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import placement_api
from tests.unit.rebalancer.clients import answers


def test_the_list_tells_places_in_trees_and_generations() -> None:
    placement = answers.Answers('1.39')
    placement.answers['/resource_providers'] = [{'resource_providers': [
        {'uuid': 'r', 'name': 'h1', 'root_provider_uuid': 'r', 'parent_provider_uuid': None,
         'generation': 4},
        {'uuid': 'c', 'name': 'h1_gpu', 'root_provider_uuid': 'r', 'parent_provider_uuid': 'r',
         'generation': 0}]}]
    found = placement_api.PlacementApi(placement).read_providers(in_tree='r')
    assert found == {'r': placement_api.ListedProvider('r', 'h1', 'r', None, 4),
                     'c': placement_api.ListedProvider('c', 'h1_gpu', 'r', 'r', 0)}
    assert placement.asked[0][1] == {'in_tree': 'r'}


@pytest.mark.parametrize(('usages', 'problem'), [
    ({'VCPU': -1}, 'not a number from 0'), ({'VCPU': 1.5}, 'is not an integer'),
    ({'VCPU': True}, 'is not an integer'), ([], 'is not an object')])
def test_odd_usages_are_an_error(usages: Any, problem: str) -> None:
    placement = answers.Answers('1.39')
    placement.answers['/resource_providers/u/usages'] = [
        {'usages': usages, 'resource_provider_generation': 1}]
    with pytest.raises(api.ApiError, match=f'Placement: resource provider u.*{problem}'):
        placement_api.PlacementApi(placement).read_usages('u')


def test_a_placement_too_old_is_refused() -> None:
    with pytest.raises(api.ApiError, match=r'offers 1\.30, 1\.31 \(Train\)'):
        placement_api.PlacementApi(answers.Answers('1.30')).negotiate_microversions()
