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


"""Hostile values for every reader of foreign data.

``tools/test long`` sets KRONOS_TEST_EXAMPLES for more examples.
"""

import contextlib
import copy
import math
import tracemalloc
from typing import Any

from hypothesis import strategies as st

from tests.unit import clouds

DEEP = 100_000
#: A nest that the JSON parser of Python just takes, or just does not.
DEPTHS = st.sampled_from([5, 300, 900, 960, 990, 1000, 5000, DEEP])


def examples(count: int = 100) -> Any:
    """The same in every run, without a deadline."""
    return clouds.examples(count)


def nested(depth: int, inner: str = '1') -> str:
    return '[' * depth + inner + ']' * depth


texts = st.text(max_size=12) | st.sampled_from([
    '', ' ', '\0', '\ud800', '\u202e', '../../etc/passwd', '%s%n', '{0}', 'NaN', '1e999', '-1',
    'a' * 5000, '9' * 5000])
numbers = (st.integers() | st.floats() | st.booleans() | st.sampled_from(
    [-1, 0, 2**31, 2**63, 2**64, 10**400, -10**400, 1e308, -0.0, math.nan, math.inf, -math.inf]))
values = st.recursive(
    st.none() | texts | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6)


@st.composite
def spoiled(draw: Any, document: Any) -> Any:
    """The document with one to three places changed, left out or doubled."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        node, steps = changed, []
        while isinstance(node, dict | list) and node and draw(st.integers(0, 4)):
            key = draw(st.sampled_from(sorted(node) if isinstance(node, dict)
                                       else range(len(node))))
            steps.append((node, key))
            node = node[key]
        if not steps:
            continue
        parent, key = steps[-1]
        match draw(st.integers(0, 5)):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
            case 2 if isinstance(parent, dict):
                parent[draw(texts)] = parent.pop(key)
            case _:
                parent[key] = draw(values)
    return changed


@contextlib.contextmanager
def within(mebibytes: float) -> Any:
    """No more memory than that at any time meanwhile."""
    tracemalloc.start()
    try:
        yield
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * 2**20, f'{peak / 2**20:.1f} MiB were taken'
