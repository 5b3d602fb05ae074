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


"""Bases of the subcommands that use the database."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

from cliff import show

from kronos_nova.cli import command
from kronos_nova.rebalancer.operations import sessions

#: Names and values, as cliff shows them.
Shown = tuple[tuple[str, ...], tuple[Any, ...]]


class DatabaseCommand(command.BaseCommand):
    """A command that runs on the database that kronos.conf names."""

    config = 'kronos.conf, for [database] and [engine] aggregates; repeatable.'

    def run_in_session(self, args: argparse.Namespace, act: Callable[[Any], None]) -> None:
        """Call ``act`` with the session, and print an error as one line."""
        def run() -> None:
            with self.open_session(sessions.DatabaseSession, args, live=False,
                                   strict=False) as session:
                act(session)

        self.run_guarded(run)


class DatabaseTable(DatabaseCommand, command.FittedLister):
    """A list of rows from the database; ``columns`` are their heads."""

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[command.Row]]:
        rows: list[command.Row] = []
        self.run_in_session(parsed_args, lambda session: rows.extend(
            command.format_cells(parsed_args, row)
            for row in self.render_rows(session, parsed_args)))
        return self.choose_columns(parsed_args, rows)

    def render_rows(self, session: Any, args: argparse.Namespace) -> Iterable[command.Row]:
        """Return the rows. Text from outside goes through :func:`command.format_printable_row`."""
        raise NotImplementedError


class ShowStored(DatabaseCommand, command.FittedDisplay, show.ShowOne):
    """A command that shows the object with a UUID from the database; ``kind`` names its type."""

    kind: str
    examples = ('UUID', 'UUID -f json')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('uuid', metavar='UUID',
                            help=f'Of the {self.kind}; see kronos {self.kind} list.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Shown:
        shown: list[Shown] = []
        self.run_in_session(parsed_args, lambda session: shown.append(
            self.read_record(session, parsed_args.uuid, command.is_nested_format(parsed_args))))
        names, values = shown[0]
        return names, command.format_cells(parsed_args, values)

    def read_record(self, session: Any, uuid: str, nested: bool) -> Shown:
        """Return the names and values to show.

        :param nested: lists and mappings for programs, else lines of text.
        :raises KronosException: the database has no such object.
        """
        raise NotImplementedError


def parse_limit(text: str) -> int:
    """Read how many rows a list has at most."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is no number of rows; write 50')
    return int(text)
