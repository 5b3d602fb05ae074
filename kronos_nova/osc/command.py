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

"""Bases of the commands of ``openstack rebalance``: arguments, tables, errors."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import datetime
import io
import time
from typing import Any, TextIO

from osc_lib import exceptions
from osc_lib.command import command

from kronos_nova import activity
from kronos_nova.osc import client
from kronos_nova.osc import columns
from kronos_nova.text import printable
from kronos_nova.text import state_colours
from kronos_nova.text import times

#: Formats that name the value of each column: they have all columns.
_NESTED = ('json', 'yaml')
#: Cells of a line of a table, with its frame.
WIDTH = 100


class RebalanceCommand(command.Command):
    """A command that asks kronos-api.

    ``status``: its exit status unless it fails. ``has_bar``: it draws on a terminal while it waits.
    """

    status = 0
    has_bar = False

    @property
    def client(self) -> client.RebalanceClient:
        """The client of kronos-api, logged in."""
        # OpenStackClient adds the attribute, by the name of the plug-in.
        manager: Any = self.app.client_manager
        found: client.RebalanceClient = manager.rebalance
        # A shell keeps the client: it may have the line of the command before.
        found.show_work = (lambda what: None) if self.has_bar else self._line.show_work
        return found

    @property
    def stderr(self) -> TextIO:
        """Standard error; a file that is never read if the shell has closed it."""
        return self.app.stderr or io.StringIO()

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._line = activity.ActivityLine(self.app.stderr)
        self.has_bar = self.has_bar or any(
            getattr(parsed_args, option, False) for option in ('wait', 'watch'))
        with self.explain_defects():
            return int(super().run(parsed_args)) or self.status

    @contextlib.contextmanager
    def explain_defects(self) -> Iterator[None]:
        """Turn an answer that lacks a field into one line.

        :raises CommandError: the answer is not that of the API that these commands know.
        """
        try:
            yield
        except (LookupError, TypeError, AttributeError) as e:
            self.log.debug('The answer of kronos-api does not fit', exc_info=True)
            raise exceptions.CommandError(
                f'the answer of kronos-api does not fit this client ({type(e).__name__}: {e}). '
                'Install the same release of kronos-nova here and there, or report the output of '
                'openstack --debug') from None

    def warn(self, text: str) -> None:
        """Write a line for people on standard error."""
        self.stderr.write(f'{text}\n')


class ListResources(RebalanceCommand, state_colours.ColouredDisplay, command.Lister):
    """A list of rows. ``columns``: all columns; those that are long need ``--long``.

    A list without any has no option ``--long``.
    """

    columns: tuple[columns.Column, ...]

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        if any(column.long for column in self.columns):
            parser.add_argument('--long', action='store_true',
                                help='Show all columns, and whole names.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        style = columns.Style(getattr(parsed_args, 'long', False))
        whole = style.full or parsed_args.formatter in _NESTED
        shown = [column for column in self.columns if whole or not column.long]
        return (tuple(column.head for column in shown),
                [columns.render_row(row, shown, style) for row in self.list_rows(parsed_args)])

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        """Return the rows, as the API has them."""
        raise NotImplementedError

    def list_page(self, args: argparse.Namespace, path: str, key: str,
                  query: Mapping[str, Any]) -> list[client.Document]:
        """Return at most ``--limit`` rows.

        Standard error has whether there are more, and the rows that the service could not read.
        """
        def warn_unreadable(row: client.Document) -> None:
            self.warn(f'{describe_unreadable(row)}.')

        rows = list(self.client.list_rows(path, key, query, args.limit + 1,
                                          note_unreadable=warn_unreadable))
        if len(rows) > args.limit and args.formatter == 'table':
            self.warn(f'Only {args.limit} {key} are shown; --limit shows more.')
        return rows[:args.limit]


class ShowResource(RebalanceCommand, state_colours.ColouredDisplay, command.ShowOne):
    """One thing. ``fields``: name and value of each line."""

    fields: tuple[columns.Column, ...]

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        style = columns.Style(full=True)
        row = self.read_resource(parsed_args)
        heads = tuple(field.head for field in self.fields)
        # A line has a frame of seven cells.
        width = WIDTH - 7 - max(map(len, heads))
        return heads, tuple(cell.wrap(width)
                            for cell in columns.render_row(row, self.fields, style))

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        """Return the thing, as the API has it."""
        raise NotImplementedError


def describe_unreadable(row: client.Document) -> str:
    """Return why the service cannot read a row, and what helps."""
    return printable.format_printable(
        f'{row["id"]} cannot be read: {row["field"]}: {row["problem"]}. {row["remedy"]}')


def add_page_options(parser: argparse.ArgumentParser, limit: int) -> None:
    """Add the options of a list that comes in pages.

    :param limit: the most rows by default.
    """
    add_scope(parser)
    add_limit(parser, limit, 'newest first')
    parser.add_argument('--changes-since', metavar='<time>', type=parse_time,
                        help='Only those that have changed since then: 2026-11-01T00:00:00Z, or a '
                             'duration before now, as in --changes-since=-2h.')


def add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--scope', metavar='<scope>', type=parse_text,
                        help='Only of this scope.')


def add_limit(parser: argparse.ArgumentParser, limit: int, order: str) -> None:
    parser.add_argument('--limit', metavar='<limit>', type=parse_limit, default=limit,
                        help=f'Show at most so many, {order} (default: {limit}).')


def add_reason(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument('--reason', metavar='<reason>', required=required, type=parse_text,
                        help='Why; it is kept with your name.')


def add_wait_options(parser: argparse.ArgumentParser, end: str, change: str, patience: str,
                     rest: str) -> None:
    """Add ``--wait``, ``--watch`` and ``--timeout``.

    :param end: completes "Wait until".
    :param change: completes "write each change".
    :param patience: the default of ``--timeout``, as an operator writes it.
    :param rest: a sentence on what happens after that.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument('--wait', action='store_true', help=f'Wait until {end}.')
    group.add_argument('--watch', action='store_true',
                       help=f'As --wait, and write each change{change} on standard error.')
    parser.add_argument('--timeout', metavar='<duration>', type=parse_duration,
                        default=parse_duration(patience),
                        help='With --wait and --watch: give up after so long, as 90, 30m or 2h '
                             f'(default: {patience}). {rest}')


def parse_limit(text: str) -> int:
    """Read how many rows a list has at most."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is no number of rows; write 50')
    return int(text)


def parse_text(text: str) -> str:
    """Read a name or a reason as one line."""
    line = printable.format_single_line(text)
    if not line:
        raise argparse.ArgumentTypeError('it is empty; write a text')
    return line


def parse_time(text: str) -> str:
    """Read a time, and return it in ISO 8601."""
    try:
        seconds = times.parse_time(text, time.time())
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def parse_duration(text: str) -> float:
    """Read a duration in seconds."""
    try:
        seconds = times.parse_duration(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None
    if not seconds:
        raise argparse.ArgumentTypeError('it has to be longer than nothing; write 2h')
    return seconds
