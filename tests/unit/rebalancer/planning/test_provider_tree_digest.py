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


"""When a provider tree is still the one that a plan knew."""

import dataclasses

import pytest

from kronos_nova import model
from kronos_nova.rebalancer.planning import provider_tree_digest

ONE = model.Inventory(1)
ROOT = model.Provider('root', 5, {'VCPU': ONE, 'VGPU': ONE}, {'VCPU': 1})
CHILD = model.Provider('child', 2, {}, parent_uuid='root')
HOST = model.Host('h1', uuid='root', provider=ROOT, nested=(CHILD,))


def with_root(**fields):
    return dataclasses.replace(HOST, provider=dataclasses.replace(ROOT, **fields))


def with_child(**fields):
    return dataclasses.replace(HOST, nested=(dataclasses.replace(CHILD, **fields),))


def test_a_mark_is_small_and_its_generation_grows_with_any_change():
    mark = provider_tree_digest.compute_tree_digest(HOST)
    assert (mark.host, len(mark.shape), mark.generation) == ('h1', 16, 7)
    assert provider_tree_digest.compute_tree_digest(with_child(generation=3)).generation == 8


@pytest.mark.parametrize('other', [
    with_root(generation=9, used={'VCPU': 4}),
    with_root(inventories={'VGPU': ONE, 'VCPU': model.Inventory(64, allocation_ratio=4.0)}),
    with_child(name='renamed', traits=frozenset({'CUSTOM_T'})),
    dataclasses.replace(HOST, sharing=frozenset({'nfs'})),
    model.Host('h1', uuid='root')])
def test_amounts_traits_and_sharing_do_not_reshape_a_tree(other):
    assert not provider_tree_digest.is_tree_reshaped(provider_tree_digest.compute_tree_digest(HOST),
                                                     other)


@pytest.mark.parametrize('other', [
    with_root(inventories={'VCPU': ONE}), with_child(inventories={'VGPU': ONE}),
    with_root(inventories={'VCPU': ONE, 'CUSTOM_X': ONE}), with_child(uuid='new'),
    with_child(parent_uuid='other'), dataclasses.replace(HOST, nested=()),
    dataclasses.replace(HOST, nested=(CHILD, dataclasses.replace(CHILD, uuid='new')))])
def test_providers_parents_and_classes_are(other):
    assert provider_tree_digest.is_tree_reshaped(provider_tree_digest.compute_tree_digest(HOST),
                                                 other)


def test_a_host_without_a_provider_has_no_mark():
    assert provider_tree_digest.compute_tree_digest(model.Host('h1', uuid='root')) is None
