# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Plain tables for a terminal."""

from collections.abc import Iterable
from collections.abc import Sequence


def printable(value: object) -> str:
    """Text without control characters: names of servers are their owners' choice."""
    return ''.join(c if c.isprintable() else '?' for c in str(value))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], indent: str = '  ') -> str:
    """Columns under a header, numbers to the right; an empty table is its header."""
    body = [list(row) for row in rows]
    cells = [list(header)] + [[printable(value) for value in row] for row in body]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    numeric = [
        bool(body) and all(isinstance(row[i], (int, float)) for row in body)
        for i in range(len(header))
    ]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return (indent + '  '.join(padded)).rstrip()

    rule = ['-' * width for width in widths]
    return '\n'.join(line(row) for row in [cells[0], rule, *cells[1:]])


def bar(ratio: float, width: int = 20) -> str:
    """A ratio within [0, 1] as a bar."""
    filled = round(max(0.0, min(1.0, ratio)) * width)
    return '#' * filled + '.' * (width - filled)
