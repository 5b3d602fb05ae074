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


"""What no real Placement does at a chosen moment; see tests/functional for the rest."""

from typing import Any

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_contents
from kronos_nova.rebalancer.clients import provider_trees
from tests.unit.rebalancer.clients import answers

INVENTORY = {'total': 8, 'reserved': 0, 'allocation_ratio': 1.0, 'min_unit': 1, 'max_unit': 8,
             'step_size': 1}


EVERYTHING = ['inventories', 'traits', 'usages', 'allocations']


def of(generation: int, **fields: Any) -> dict[str, Any]:
    return {'resource_provider_generation': generation, **fields}


class Placement(answers.Answers):
    """Provider ``u`` with VCPU, and what its parts say in turn."""

    def __init__(self, **parts: list[dict[str, Any]]) -> None:
        super().__init__('1.39')
        usual = {'inventories': [of(3, inventories={'VCPU': INVENTORY})],
                 'traits': [of(3, traits=[])], 'usages': [of(3, usages={'VCPU': 2})],
                 'allocations': [of(3, allocations={'vm': {'resources': {'VCPU': 2}}})]}
        self.answers = {f'/resource_providers/u/{part}': found
                        for part, found in (usual | parts).items()}
        self.answers['/allocation_candidates'] = [{'provider_summaries': {}}]
        self.api = placement_api.PlacementApi(self)

    def content(self) -> provider_contents.ProviderContent:
        return provider_contents.read_provider(self.api, 'u')

    @property
    def parts(self) -> list[str]:
        return [path.rsplit('/')[-1] for path, _params, _version in self.asked
                if path != '/allocation_candidates']


def test_only_parts_of_an_older_generation_are_read_again() -> None:
    placement = Placement(
        inventories=[of(3, inventories={'VCPU': INVENTORY}),
                     of(4, inventories={'VCPU': INVENTORY | {'total': 16}})],
        traits=[of(3, traits=[]), of(4, traits=['CUSTOM_T'])], usages=[of(4, usages={'VCPU': 2})],
        allocations=[of(4, allocations={'vm': {'resources': {'VCPU': 2}}})])
    found = placement.content()
    assert (found.generation, found.inventories['VCPU'].total) == (4, 16)
    assert found.traits == {'CUSTOM_T'} and found.whole
    assert placement.parts == ['inventories', 'traits', 'usages', 'allocations', 'inventories',
                               'traits']


def test_a_provider_without_inventory_is_read_with_its_traits_alone() -> None:
    placement = Placement(inventories=[of(3, inventories={})])
    assert placement.content() == provider_contents.ProviderContent(3, {}, {}, frozenset(), {})
    assert placement.parts == ['inventories', 'traits']


def test_one_that_never_rests_is_an_error_and_not_a_mixture() -> None:
    placement = Placement(usages=[of(n, usages={'VCPU': 2}) for n in range(99)],
                          traits=[of(100 + n, traits=[]) for n in range(99)])
    with pytest.raises(api.ApiError, match='changes faster') as error:
        placement.content()
    assert error.value.status == 409


def test_a_deletion_between_two_reads_causes_another_read() -> None:
    placement = Placement(usages=[of(3, usages={'VCPU': 2}), of(3, usages={'VCPU': 0})],
                          allocations=[of(3, allocations={})])
    found = placement.content()
    assert (found.used, found.allocations, found.whole) == ({'VCPU': 0}, {}, True)


def test_a_load_without_a_consumer_counts_and_is_never_taken_for_unchanged() -> None:
    placement = Placement(usages=[of(3, usages={'VCPU': 5})])
    found = placement.content()
    assert (found.used, found.whole) == ({'VCPU': 5}, False)


@pytest.mark.parametrize(('listed', 'usages', 'again'), [
    (3, of(3, usages={'VCPU': 2}), ['usages']), (4, of(4, usages={'VCPU': 2}), EVERYTHING),
    (3, of(3, usages={'VCPU': 0}), ['usages', *EVERYTHING]),
    (3, of(4, usages={'VCPU': 2}), ['usages', *EVERYTHING])])
@pytest.mark.parametrize('whole', [True, False])
def test_kept_content_stands_while_generation_and_usages_are_equal(
        whole: bool, listed: int, usages: dict[str, Any], again: list[str]) -> None:
    placement = Placement()
    if not whole:
        placement.answers['/resource_providers/u/usages'] = [of(3, usages={'VCPU': 5})]
        again = EVERYTHING
    generation = 3

    def listing() -> dict[str, placement_api.ListedProvider]:
        return {'u': placement_api.ListedProvider('u', 'u', 'u', None, generation)}

    reader = provider_trees.TreeReader(placement.api, remembers=True)
    with parallel_reads.ReadingContext(30) as reads:
        reader.read(reads, listing)
        placement.asked.clear()
        generation = listed
        placement.answers['/resource_providers/u/usages'] = [usages]
        for part in ('inventories', 'traits', 'allocations'):
            placement.answers[f'/resource_providers/u/{part}'][0].update(
                resource_provider_generation=usages['resource_provider_generation'])
        if usages['usages']['VCPU'] == 0:
            placement.answers['/resource_providers/u/allocations'][0].update(allocations={})
        found = reader.read(reads, listing).contents['u']
    assert placement.parts == again
    assert (found.used, found.whole) == (usages['usages'], True)


def test_a_cloud_without_sharing_providers_takes_one_request() -> None:
    placement = Placement()
    placement.answers['/resource_providers'] = [{'resource_providers': []}]
    with parallel_reads.ReadingContext(30) as reads:
        assert provider_trees.read_sharing(reads,
                                           placement.api) == provider_trees.ProviderSharing({}, {})
    assert placement.asked == [('/resource_providers', {'required': placement_api.SHARES},
                                placement_api.VERSION)]


def test_one_common_aggregate_with_any_provider_of_a_tree_is_enough() -> None:
    sharing = provider_trees.ProviderSharing(
        {'nfs': frozenset('ab'), 'own': frozenset('c')},
        {'a': frozenset({'nfs', 'child'}), 'b': frozenset({'nfs'}), 'c': frozenset({'own'})})
    assert sharing.list_sharing_with_tree({'root', 'child'}) == {'nfs'}
    assert sharing.list_sharing_with_tree({'root'}) == frozenset()
    assert sharing.list_sharing_with_tree({'nfs',
                                           'child'}) == frozenset(), 'nobody shares with itself'
    assert sharing.aggregates_of('child') == {'a'} and sharing.aggregates_of('nfs') == {'a', 'b'}
