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

"""A provider of the source uses more than it may, and Placement before 14 keeps its instances."""

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.executors import overcommitment
from tests.unit.rebalancer.store import cases

REFUSED = f'Nova: {overcommitment.NOT_REPLACED} host'


class Placement:
    """An instance's allocation on provider 'p', and on 'gone', which exists no more."""

    def __init__(self, used, error=404):
        self.used, self.error = used, error

    def allocations_of(self, instance):
        return {'gone': {'VCPU': 1}, 'p': {'VCPU': 1, 'MEMORY_MB': 512, 'CUSTOM_A': 1}}

    def read_usages(self, provider):
        if provider == 'gone':
            raise api.ApiError('Placement', 'usages', 'no', self.error)
        return self.used, 1

    def read_inventories(self, provider):
        return {'VCPU': model.Inventory(4, allocation_ratio=2.0),
                'MEMORY_MB': model.Inventory(1024)}, 1


def found(used, details=(REFUSED,), **kw):
    return overcommitment.find_problem(Placement(used, **kw), cases.make_task('p'), details)


def test_error_names_the_overcommitted_resource_and_the_remedy():
    text = found({'VCPU': 9, 'MEMORY_MB': 1024})
    assert text.startswith('resource provider p of h1 uses 9 VCPU of 8, ')
    assert 'Raise its allocation ratio, or upgrade Placement.' in text


@pytest.mark.parametrize('used', [{'VCPU': 8, 'MEMORY_MB': 1024}, {'CUSTOM_A': 9}, {}])
def test_providers_within_their_capacity_are_no_cause(used):
    assert found(used) is None


def test_another_error_of_nova_reads_nothing_from_placement():
    assert overcommitment.find_problem(None, cases.make_task('p'), ['No valid host']) is None


def test_unreadable_provider_is_an_error_unless_it_is_gone():
    with pytest.raises(api.ApiError):
        found({'VCPU': 9}, error=503)
