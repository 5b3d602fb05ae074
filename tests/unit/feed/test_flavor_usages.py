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


"""Arrivals on a host are recognised by their flavor and count with its measured usage."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova.feed import flavor_usages

SMALL, LARGE = flavor_usages.FlavorShape(1, 512), flavor_usages.FlavorShape(4, 8192)
SHAPES = (SMALL, LARGE)


@pytest.mark.parametrize(('change', 'expected'), [
    ((1, 512), ((SMALL, 1),)), ((4, 8192), ((LARGE, 1),)), ((-4, -8192), ((LARGE, -1),)),
    ((3, 1536), ((SMALL, 3),)), ((-2, -1024), ((SMALL, -2),)),
    ((6, 9216), ((SMALL, 2), (LARGE, 1))), ((-5, -8704), ((SMALL, -1), (LARGE, -1))),
    ((2, 512), None), ((1, 8192), None), ((0, 512), None), ((0, -512), None), ((0, 0), None),
    ((3, -512), None), ((1.5, 768), None)])
def test_a_change_is_explained_by_one_or_two_flavors_or_none(change, expected):
    assert flavor_usages.explain_change(*change, SHAPES) == expected


def test_the_fewest_instances_that_explain_it():
    twice = flavor_usages.FlavorShape(2, 1024)
    assert flavor_usages.explain_change(2, 1024, (SMALL, twice)) == ((twice, 1),)
    assert flavor_usages.explain_change(3, 1536, (SMALL, twice)) == ((SMALL, 3),)


@given(st.integers(0, 20), st.integers(0, 20), st.sampled_from([1, -1]))
def test_an_explanation_adds_up_to_the_change(small, large, sign):
    change = (sign * (small + 4 * large), sign * (512 * small + 8192 * large))
    found = flavor_usages.explain_change(*change, SHAPES)
    if small or large:
        assert sum(shape.vcpus * n for shape, n in found) == change[0]
        assert sum(shape.memory_mb * n for shape, n in found) == change[1]


def test_extras_are_what_a_flavor_uses_beyond_the_mean():
    # A vCPU uses 0.5 in the mean, a small one's 0.1, a large one's 0.75.
    found = flavor_usages.build_extras([(1.0, 0.5, False, {SMALL: 0.1, LARGE: 3.0})])
    assert found.sum_corrections(1, 512) == pytest.approx(((0.1 - 0.5) / 0.5, 0.0))
    assert found.sum_corrections(4, 8192) == pytest.approx(((3.0 - 2.0) / 0.5, 0.0))
    assert found.sum_corrections(5, 8704) == pytest.approx((2.0 - 0.8, 0.0))
    assert found.sum_corrections(3, 512) == (0, 0)


def test_extras_combine_policies_by_weight_and_unit():
    parts = [(0.75, 0.5, False, {SMALL: 1.0}), (0.25, 0.25, False, {}),
             (0.5, 0.5, True, {SMALL: 512.0})]
    vcpus, ram_mb = flavor_usages.build_extras(parts).sum_corrections(1, 512)
    # The load of one more is 0.75 x 1.0 + 0.25 x 0.25, over what a vCPU weighs.
    assert (1 + vcpus) * (0.75 * 0.5 + 0.25 * 0.25) == pytest.approx(0.75 + 0.25 * 0.25)
    assert 512 + ram_mb == pytest.approx(1024)


def test_nothing_known_is_nothing_extra():
    assert not flavor_usages.build_extras([(1.0, 0.5, False, {})])
    assert not flavor_usages.build_extras([(1.0, 0.0, False, {SMALL: 1.0})])
    assert flavor_usages.compute_typical_use({}, False) == 0.0
    assert flavor_usages.compute_typical_use({SMALL: 1.0, LARGE: 1.5}, False) == pytest.approx(0.5)


def test_known_extras_are_bounded():
    found = flavor_usages.build_extras([(1.0, 0.5, False, {SMALL: 1.0})])
    for count in range(flavor_usages.MAX_KNOWN + 10):
        found.sum_corrections(count, 0)
    assert 0 < len(found._known) <= flavor_usages.MAX_KNOWN
