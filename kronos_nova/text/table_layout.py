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


"""Tables that fit a width: the widest columns of text get shorter lines. Pure."""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import re
from typing import Any, TextIO

from kronos_nova.text import widths

#: Cells of a table outside a terminal, with its frame.
WIDTH = 100
#: Cells around each column, and before the first one.
_FRAME, _EDGE = 3, 1
_UUID = re.compile(r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')
#: A UUID, or one word and a UUID, as the whole cell.
_ALONE = re.compile(rf'^(?:\w+ )?({_UUID.pattern})$')
_TIME = re.compile(r'\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?)(?!\w)')
#: Longest word that keeps its line as long as other columns have room.
_WORD = 20
#: Fewest cells of a column of text.
_LEAST = 8


def measure_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    """Return the cells of a line of the table, with its frame, if no text is wrapped."""
    return _EDGE + sum(_FRAME + size for size in _measure_columns(heads, rows))


def fit_rows(heads: Sequence[str], rows: Sequence[Sequence[Any]], width: int,
             ) -> list[tuple[Any, ...]]:
    """Return the rows with text that is wrapped, so that the table fits if it can.

    A UUID is broken only inside a sentence, and a time between date and time of day. The table is
    wider where heads, UUIDs, times and numbers need more.
    """
    columns = [[str(row[number]) for row in rows] for number in range(len(heads))]
    sizes = _measure_columns(heads, rows)
    for measure in (_measure_parts, _measure_words, _measure_values):
        floors = [min(size, max(len(head), *map(measure, cells), 0))
                  for head, cells, size in zip(heads, columns, sizes, strict=True)]
        _shrink(sizes, floors, width - _EDGE - _FRAME * len(heads))
    return [tuple(_wrap_cell(cell, size) for cell, size in zip(row, sizes, strict=True))
            for row in rows]


def _measure_columns(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[int]:
    return [max(map(_measure_lines, (head, *(str(row[number]) for row in rows))))
            for number, head in enumerate(heads)]


def _shrink(sizes: list[int], floors: Sequence[int], total: int) -> None:
    """Take cells from the widest columns, but none below its floor, until the sum fits."""
    excess = sum(sizes) - total
    while excess > 0:
        spare = [number for number, size in enumerate(sizes) if size > floors[number]]
        if not spare:
            return
        sizes[max(spare, key=sizes.__getitem__)] -= 1
        excess -= 1


def _wrap_cell(cell: Any, size: int) -> Any:
    if not isinstance(cell, str) or _measure_lines(cell) <= size:
        return cell
    return widths.wrap_text(_TIME.sub(r'\1 \2', cell), size)


def _measure_lines(text: str) -> int:
    return max(map(widths.measure_width, text.split('\n')))


def _measure_parts(text: str) -> int:
    """Return the cells of a column in which all UUIDs stay whole, and words of usual length."""
    return max(_measure_words(text), *map(len, _UUID.findall(text)), 0)


def _measure_words(text: str) -> int:
    """Return the cells of a column in which words of usual length stay whole."""
    return max(_measure_values(text), *(
        min(widths.measure_width(word), _WORD) for word in text.split()), 0)


def _measure_values(text: str) -> int:
    """Return the fewest cells of a column: operators copy a UUID that stands alone."""
    uuid = _ALONE.match(text)
    parts = _TIME.fullmatch(text)
    return max(_LEAST, len(uuid[1]) if uuid else 0,
               max(map(len, parts.groups())) if parts else 0)


class FittedTable:
    """A formatter of tables that gives cliff's formatter rows of a bounded width.

    :param width: None: no bound.
    :param vertical: a single row is shown as names and values.
    """

    def __init__(self, formatter: Any, width: int | None, vertical: bool = False) -> None:
        self._formatter = formatter
        self._width = width
        self._vertical = vertical

    def emit_list(self, column_names: Sequence[str], data: Iterable[Sequence[Any]],
                  stdout: TextIO, parsed_args: argparse.Namespace) -> None:
        rows = [tuple(row) for row in data]
        if self._vertical and len(rows) == 1:
            self.emit_one(column_names, rows[0], stdout, parsed_args)
        else:
            self._formatter.emit_list(
                column_names, rows if self._width is None else
                fit_rows(column_names, rows, self._width), stdout, parsed_args)

    def emit_one(self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO,
                 parsed_args: argparse.Namespace) -> None:
        values = list(data)
        if self._width is not None:
            values = [value for _, value in fit_rows(
                ('Field', 'Value'), list(zip(column_names, values, strict=True)), self._width)]
        self._formatter.emit_one(column_names, values, stdout, parsed_args)
