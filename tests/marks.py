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

"""Tests that ``tools/test`` leaves to ``tools/test long``, always or in turns.

stestr selects tests by their names alone, so the name of a long test ends with ``[long]``. In
tests that pytest runs, ``pytest.mark.long`` does the same.

Tests that take turns are dealt out to shares, and a commit runs one share: with ``turns(3)`` a
third of the tests. The others are long for this commit, and ``tools/test long`` runs every share
with every commit. ``pytestmark = pytest.mark.turns(2, 1)`` names the share: the tests of this
module, which have a costly fixture in common, are all in it.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
import os
from typing import Any, TypeVar
import zlib

import pytest

#: The turn of this run, as tools/run_tests.py reads it off the commit; 'all' runs every share.
TURN = os.environ.get('KRONOS_TURN', '0')

Marked = TypeVar('Marked')


def is_in_turn(number: int, shares: int) -> bool:
    """Tell whether a test belongs to the share that runs in this turn."""
    return TURN == 'all' or number % shares == int(TURN) % shares


def mark_turns(items: Iterable[pytest.Item]) -> None:
    """Mark as long the collected tests whose turn it is not.

    The tests of a module are dealt out one by one; so one test alone is the first of its module,
    and runs in turn 0, which is that of a run by hand.
    """
    dealt: collections.Counter[tuple[str, int]] = collections.Counter()
    for item in items:
        mark = item.get_closest_marker('turns')
        if mark is not None:
            shares, *named = mark.args
            key = item.nodeid.partition('::')[0], shares
            if not is_in_turn(named[0] if named else dealt[key], shares):
                item.add_marker(pytest.mark.long)
            dealt[key] += 1


def long(marked: Any) -> Any:
    """Leave a test, or all tests of a class and of its subclasses, to the long run."""
    marked.is_long = True
    return marked


def turns(shares: int) -> Callable[[Marked], Marked]:
    """Deal out a functional test, or those of a class and its subclasses, by their names."""
    def mark(marked: Marked) -> Marked:
        marked.shares = shares  # type: ignore[attr-defined]
        return marked

    return mark


class MarkedTestCase:
    """A test case whose name tells whether it is long, or runs in turns."""

    def id(self) -> str:
        name: str = super().id()  # type: ignore[misc]
        test = getattr(self, self._testMethodName)  # type: ignore[attr-defined]
        is_long = getattr(self, 'is_long', False) or getattr(test, 'is_long', False)
        shares = getattr(self, 'shares', 0) or getattr(test, 'shares', 0)
        if not is_long and not shares:
            return name
        in_turn = not is_long and is_in_turn(zlib.crc32(name.encode()), shares)
        return f'{name}[turn]' if in_turn else f'{name}[long]'
