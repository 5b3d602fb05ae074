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

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import placement_api
from tests.unit.rebalancer.clients import answers

ROOT, OTHER = 'root', 'other'


def inventory(**fields: Any) -> dict[str, Any]:
    return {'total': 8, 'reserved': 1, 'allocation_ratio': 4.0, 'min_unit': 1, 'max_unit': 8,
            'step_size': 1} | fields


def claims(allocations: dict[str, dict[str, int]], provider: str | None = ROOT,
           ) -> model.Instance:
    return placement_api.claims_of(
        model.Instance('vm', 'host1'), allocations, provider, {'nested': ROOT, OTHER: OTHER})


def test_a_simple_allocation_is_the_claim() -> None:
    found = claims({ROOT: {'VCPU': 2}})
    assert (found.claims, found.pinned) == ({'VCPU': 2}, None)


@pytest.mark.parametrize(('allocations', 'provider', 'reason'), [
    ({ROOT: {'VCPU': 1}, 'nested': {'VF': 1}}, ROOT, 'nested-allocations'),
    ({ROOT: {'VCPU': 1}, OTHER: {'DISK_GB': 1}}, ROOT, 'other-allocations'),
    ({OTHER: {'VCPU': 1}}, ROOT, 'other-allocations'),
    ({}, ROOT, 'no-allocations'),
    ({}, None, 'no-provider')])
def test_anything_else_pins_the_instance(
        allocations: dict[str, dict[str, int]], provider: str | None, reason: str) -> None:
    assert str(claims(allocations, provider).pinned).startswith(reason + ': ')


def test_inventories_and_usages_are_of_one_generation_if_possible() -> None:
    placement = answers.Answers('1.39')
    placement.answers['/resource_providers/u/inventories'] = [
        {'inventories': {'VCPU': inventory()}, 'resource_provider_generation': 1},
        {'inventories': {'VCPU': inventory(total=16)}, 'resource_provider_generation': 2}]
    placement.answers['/resource_providers/u/usages'] = [
        {'usages': {'VCPU': 3}, 'resource_provider_generation': 2}]
    found = placement_api.PlacementApi(placement).provider('u')
    assert found == model.Provider(
        'u', 2, {'VCPU': model.Inventory(16, 1, 4.0, 1, 8, 1)}, {'VCPU': 3})


@pytest.mark.parametrize(('usages', 'problem'), [
    ({'VCPU': -1}, 'not a number from 0'), ({'VCPU': 1.5}, 'is not an integer'),
    ({'VCPU': True}, 'is not an integer'), ([], 'is not an object')])
def test_odd_usages_are_an_error(usages: Any, problem: str) -> None:
    placement = answers.Answers('1.39')
    placement.answers['/resource_providers/u/inventories'] = [
        {'inventories': {}, 'resource_provider_generation': 1}]
    placement.answers['/resource_providers/u/usages'] = [
        {'usages': usages, 'resource_provider_generation': 1}]
    with pytest.raises(api.ApiError, match=f'Placement: resource provider u.*{problem}'):
        placement_api.PlacementApi(placement).provider('u')


def test_a_placement_too_old_is_refused() -> None:
    with pytest.raises(api.ApiError, match=r'offers 1\.30, 1\.31 \(Train\)'):
        placement_api.PlacementApi(answers.Answers('1.30')).negotiate()
