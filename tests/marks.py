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


"""Tests that ``tools/test`` leaves to ``tools/test long``.

stestr selects tests by their names alone, so the name of a long test ends with ``[long]``. In
tests that pytest runs, ``pytest.mark.long`` does the same.
"""

from typing import Any


def long(marked: Any) -> Any:
    """Leave a test, or all tests of a class and of its subclasses, to the long run."""
    marked.is_long = True
    return marked


class MarkedTestCase:
    """A test case whose name tells whether it is long."""

    def id(self) -> str:
        name: str = super().id()  # type: ignore[misc]
        test = getattr(self, self._testMethodName)  # type: ignore[attr-defined]
        is_long = getattr(self, 'is_long', False) or getattr(test, 'is_long', False)
        return f'{name}[long]' if is_long else name
