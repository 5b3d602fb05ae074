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

"""A place is found exactly when there is one."""

import itertools

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import model
from kronos_nova.constraints import provider_assignment
from tests.unit import clouds

CLASSES = ('A', 'B')
INVENTORIES = st.builds(
    model.Inventory, st.integers(0, 6), reserved=st.integers(0, 1),
    allocation_ratio=st.sampled_from([1.0, 1.5]), min_unit=st.integers(1, 2),
    max_unit=st.integers(1, 6), step_size=st.integers(1, 2))
PROVIDERS = st.lists(st.tuples(
    st.dictionaries(st.sampled_from(CLASSES), INVENTORIES), st.integers(0, 2)),
    min_size=1, max_size=4)
PIECES = st.lists(st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 3), min_size=1),
                  max_size=4)


def spaces_of(providers):
    return [provider_assignment.ProviderSpace(str(n), model.Provider(
        str(n), inventories=inventories, used=dict.fromkeys(CLASSES, used)))
        for n, (inventories, used) in enumerate(providers)]


def used(space, name):
    return space.provider.used.get(name, 0)


def good(pieces, chosen, free=()):
    """Placement would take it, counted provider by provider."""
    for space in chosen:
        for name in set(CLASSES) - set(free):
            amounts = [p[name] for p, s in zip(pieces, chosen, strict=True)
                       if s is space and name in p]
            inventory = space.provider.inventories.get(name)
            if amounts and (inventory is None or any(
                    not inventory.min_unit <= a <= inventory.max_unit
                    or a % inventory.step_size for a in amounts)
                    or space.provider.used[name] + sum(amounts) > inventory.capacity):
                return False
    return True


@clouds.examples(400)
@hypothesis.given(providers=PROVIDERS, pieces=PIECES, free=st.sampled_from([(), (), ('A',)]),
                  seed=st.integers(0, 3))
def test_an_assignment_is_found_if_and_only_if_there_is_one(providers, pieces, free, seed):
    spaces = spaces_of(providers)
    allowed = [[s for n, s in enumerate(spaces) if (n + d + seed) % 4] or spaces[:1]
               for d in range(len(pieces))]
    demands = [provider_assignment.PieceDemand(
        provider_assignment.RequestPiece(tuple(sorted(p.items()))), tuple(a))
               for p, a in zip(pieces, allowed, strict=True)]
    found = provider_assignment.find_spaces(demands, used, free)
    exists = any(good(pieces, chosen, free) for chosen in itertools.product(*allowed))
    assert (found is not None) == exists
    if found is not None:
        assert good(pieces, found, free)
        assert all(s in a for s, a in zip(found, allowed, strict=True))
        assert found == provider_assignment.find_spaces(demands, used, free)


def test_a_search_gives_up_when_it_has_looked_long_enough():
    """Nine pieces of 2 in nine providers of 3 and one too many: the sum fits."""
    spaces = spaces_of([({'A': model.Inventory(3)}, 0)] * 9)
    demands = [provider_assignment.PieceDemand(provider_assignment.RequestPiece((('A', 2),)),
                                               spaces)] * 10
    assert provider_assignment.find_spaces(demands, used, bound=100) is None
    assert provider_assignment.find_spaces(demands[:9], used, bound=0) == spaces


ROOT, CHILD, POOL = 'root', 'child', 'pool'


@pytest.mark.parametrize(('allocations', 'expected'), [
    ({}, [('DISK_GB', 5), ('VCPU', 2)]),
    ({ROOT: {'VCPU': 2, 'DISK_GB': 5}}, [('DISK_GB', 5), ('VCPU', 2)]),
    ({CHILD: {'VCPU': 2, 'MEMORY_MB': 64}, ROOT: {'DISK_GB': 5, 'X': 0}},
     [('DISK_GB', 5), ('MEMORY_MB', 64, 'VCPU', 2)]),
    ({POOL: {'DISK_GB': 5, 'CUSTOM_IP': 1}, ROOT: {'VCPU': 2}},
     [('VCPU', 2), ('CUSTOM_IP', 1, True), ('DISK_GB', 5)]),
])
def test_pieces(allocations, expected):
    """Allocations of a nested provider stay together; Nova requests no classes of its own
    from a sharing provider."""
    instance = model.Instance('i', 'h', claims={'VCPU': 2, 'DISK_GB': 5, 'PCPU': 0},
                              allocations=allocations)
    found = provider_assignment.split_allocation(instance, lambda p: p == ROOT, {POOL})
    flat = [(*itertools.chain.from_iterable(p.resources), *([True] if p.shared else []))
            for p in found]
    assert flat == expected
