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

"""Colours of states in tables, for people at a terminal. The word of the state always stays.

Columns of names have no colours: an instance may be called "failed".
"""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import io
import os
import re
from typing import Any, TextIO

_RED, _GREEN, _YELLOW, _CYAN = '31', '32', '33', '36'
_STATES = {
    _RED: ('failed', 'unknown', 'down', 'no nova-compute', 'in-doubt', 'unreadable', 'ERROR',
           'unsafe', 'no place', 'blocked', 'stays', 'missing', 'late', 'refuse', 'refused',
           'impossible', 'worse', 'False'),
    _YELLOW: ('pending', 'paused', 'aborting', 'quarantined', 'disabled', 'held', 'waits', 'later',
              'if late', 'may not converge', 'shortens', 'not forecast', 'incomplete', 'not known',
              'warning'),
    _CYAN: ('claimed', 'submitting', 'submitted', 'running', 'draining', 'emptying', 'working',
            'returning', 'withdrawn', 'repair'),
    _GREEN: ('completed', 'done', 'safe', 'possible', 'empty', 'passed', 'ok', 'better', 'ACTIVE',
             'True')}
_COLOURS = {word: colour for colour, words in _STATES.items() for word in words}
#: Columns and fields whose parts, between commas and ends of lines, are states.
_STATE_COLUMNS = frozenset({'state', 'status', 'verdict', 'tasks', 'task_states', 'hosts_by_state',
                            'can_be_emptied', 'allowed'})
#: Columns and fields of which any text but "no" needs a look.
_ALERTS = {'failing': _RED, 'paused': _YELLOW, 'pause': _YELLOW}
_PART = re.compile(r'(?:(?<=,)|^)( *)((?:\d+ )?)([^,:\n]+)([^,\n]*)', re.MULTILINE)
_COLOUR = re.compile(r'\x1b\[\d+m')


def wants_colours(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return True if the stream is a terminal, and its user has not asked for plain text."""
    return (stream.isatty() and not environment.get('NO_COLOR')
            and environment.get('TERM') != 'dumb')


def colour_text(column: str, text: str) -> str:
    """Return the text of a cell with colours, each of which ends on its line.

    :param column: the head of the column, or the name of the field.
    """
    name = column.lower().replace(' ', '_')
    if name in _STATE_COLUMNS:
        return _PART.sub(_colour_part, text)
    colour = _ALERTS.get(name)
    if colour is None or text == 'no':
        return text
    return '\n'.join(_paint(line, colour) for line in text.split('\n'))


def _colour_part(match: re.Match[str]) -> str:
    """Return ``failed``, ``2 failed`` and ``disabled: reason`` with the colour of the state."""
    blanks, number, state, reason = match.groups()
    colour = _COLOURS.get(state.rstrip())
    return match[0] if colour is None else (
        f'{blanks}{_paint(number + state.rstrip(), colour)}{state[len(state.rstrip()):]}{reason}')


def _paint(text: str, colour: str) -> str:
    return f'\x1b[{colour}m{text}\x1b[0m' if text else ''


class ColouredTable:
    """Cliff's formatter of tables, with colours.

    Where the formatter breaks the lines of a cell, it may count a colour as text or cut it. Such a
    table has no colours: a table with colours differs from the plain one in nothing else.
    """

    def __init__(self, formatter: Any) -> None:
        self._formatter = formatter

    def emit_list(self, column_names: Sequence[str], data: Iterable[Sequence[Any]],
                  stdout: TextIO, parsed_args: argparse.Namespace) -> None:
        rows = [tuple(row) for row in data]
        stdout.write(self._choose(
            self._formatter.emit_list, column_names, rows,
            [tuple(map(_colour_cell, column_names, row)) for row in rows], parsed_args))

    def emit_one(self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO,
                 parsed_args: argparse.Namespace) -> None:
        values = tuple(data)
        stdout.write(self._choose(
            self._formatter.emit_one, column_names, values,
            tuple(map(_colour_cell, column_names, values)), parsed_args))

    @staticmethod
    def _choose(emit: Any, column_names: Sequence[str], plain: Any, coloured: Any,
                parsed_args: argparse.Namespace) -> str:
        """Return the table with colours if it is the plain one beside them, else the plain one."""
        texts = []
        for cells in (plain, coloured):
            stream = io.StringIO()
            emit(column_names, cells, stream, parsed_args)
            texts.append(stream.getvalue())
        return texts[1] if _COLOUR.sub('', texts[1]) == texts[0] else texts[0]


def _colour_cell(column: str, cell: Any) -> Any:
    """Return a cell's text with colours; the cell itself if it has none."""
    text = str(cell)
    coloured = colour_text(column, text)
    return cell if coloured == text else coloured


class ColouredDisplay:
    """The part of a command that colours its table. It stands before cliff's base."""

    app: Any
    formatter: Any

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str],
                       data: Any) -> int:
        if parsed_args.formatter == 'table':
            if wants_colours(self.app.stdout, os.environ):
                self.formatter = ColouredTable(self.formatter)
            self.formatter = self.fit_formatter(self.formatter, parsed_args)
        return int(super().produce_output(  # type: ignore[misc]
            parsed_args, column_names, data))

    def fit_formatter(self, formatter: Any, args: argparse.Namespace) -> Any:
        """Return the formatter for the width of the table; it gets cells without colours."""
        return formatter
