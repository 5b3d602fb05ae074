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

"""Columns of tables: where a value comes from, and how people and programs read it."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import re
from typing import Any

from cliff import columns

from kronos_nova.text import printable
from kronos_nova.text import widths


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """The way a table is shown. ``full``: nothing is cut."""

    full: bool = False


# Older versions of cliff have no type parameter.
class Cell(columns.FormattableColumn):  # type: ignore[type-arg]
    """A value for programs, and its text for people."""

    def __init__(self, value: Any, text: str) -> None:
        super().__init__(value)
        self._text = text

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Cell):
            return False
        mine, theirs = self._value, other._value
        return theirs is not None and (mine is None or bool(mine < theirs))

    def human_readable(self) -> str:
        return self._text

    def wrap(self, width: int) -> 'Cell':
        """Return the cell with lines of at most ``width``."""
        return Cell(self._value, widths.wrap_text(self._text, width))


Make = Callable[[Mapping[str, Any], Style], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a list, or a field of one thing.

    ``make`` returns the cell of a row. ``long``: only ``--long`` shows the column.
    """

    head: str
    make: Make
    long: bool = False


def read_text(field: str) -> Make:
    """Return a maker of cells with a short text, as an ID."""
    return lambda row, style: Cell(row[field], _format_value(row[field]))


def read_name(field: str, width: int) -> Make:
    """Return a maker of cells with a name of any length; a table cuts it."""
    def make_cell(row: Mapping[str, Any], style: Style) -> Cell:
        shown = _format_value(row[field])
        return Cell(row[field], shown if style.full else widths.cut_text(shown, width))

    return make_cell


def read_sentence(field: str, width: int) -> Make:
    """Return a maker of cells with a sentence; a table wraps it."""
    return lambda row, style: Cell(row[field], widths.wrap_text(_format_value(row[field]), width))


def read_time(field: str) -> Make:
    """Return a maker of cells with a time in ISO 8601; people need no fractions."""
    return lambda row, style: Cell(row[field], format_time(row[field]))


def read_counts(field: str, width: int) -> Make:
    """Return a maker of cells with numbers by name, as ``2 queued, 1 failed``."""
    return lambda row, style: Cell(row[field], widths.wrap_text(
        format_counts(row[field]), width))


def read_lines(field: str, format_line: Callable[[Any], str] = str) -> Make:
    """Return a maker of cells with a list, one line for each part.

    An older kronos-api does not send each field: the cell is then empty.
    """
    return lambda row, style: Cell(row.get(field), '\n'.join(
        map(format_line, row.get(field) or ())))


def format_counts(numbers: Mapping[str, int]) -> str:
    """Return numbers by name."""
    return ', '.join(f'{number} {what}' for what, number in numbers.items())


def format_time(at: str | None) -> str:
    """Return a time without its fractions of a second."""
    return '' if at is None else re.sub(r'\.\d+', '', at)


def render_row(row: Mapping[str, Any], shown: Iterable[Column], style: Style) -> tuple[Any, ...]:
    """Return the cells of a row."""
    return tuple(column.make(row, style) for column in shown)


def _format_value(value: Any) -> str:
    """Return a value for people: nothing for null."""
    return '' if value is None else printable.format_printable(value)
