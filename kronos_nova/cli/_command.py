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


"""What all subcommands have in common: their help, ``--config-file``, errors, exit status."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import sys
from typing import Any

from cliff import _argparse
from cliff import command
from cliff import lister

from kronos_nova import plurals

Row = tuple[Any, ...]
_EXAMPLES = 'Example'
#: What stands for the name of a file.
PATHS = frozenset({'FILE', 'DIR', 'OUTPUT_DIR', 'SNAPSHOT'})


class _Formatter(_argparse.SmartHelpFormatter):
    """Leaves the lines of examples as they are. The reference has them as reStructuredText."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith(_EXAMPLES):
            return super()._fill_text(text, width, indent)
        return text.replace('::\n\n', ':\n', 1)


class Command(command.Command):
    """A subcommand of ``kronos``.

    ``examples``: each follows the command's name. ``config``: what of kronos.conf is read, None
    for none of it. ``status``: what the exit status is when the command itself has not failed.
    """

    examples: tuple[str, ...]
    config: str | None = 'kronos.conf; repeatable.'
    status = 0

    @property
    def prog(self) -> str:
        """How it is called."""
        return f'kronos {self.cmd_name}'

    def get_epilog(self) -> str:
        """Not cliff's, which says what package a command is of, and for that looks at each that
        is installed."""
        return ''

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.formatter_class = _Formatter
        self._parser = parser
        name = self.cmd_name or prog_name.partition(' ')[2]
        parser.epilog = f'{_EXAMPLES}{"s" * (len(self.examples) > 1)}::\n\n' + '\n'.join(
            f'  kronos {name} {example}'.rstrip() for example in self.examples)
        if self.config is not None:
            parser.add_argument('--config-file', action='append', default=[], metavar='FILE',
                                help=self.config)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        for action in self._parser._actions:
            if action.metavar not in PATHS:
                self._check(action, getattr(parsed_args, action.dest, None))
        return int(super().run(parsed_args)) or self.status

    def _check(self, action: argparse.Action, given: object) -> None:
        """Neither databases nor Nova take what is no Unicode; a file's name may be."""
        from kronos_nova.wiring import tools

        for text in _texts(given):
            if not text.isascii() and any('\ud800' <= c <= '\udfff' for c in text):
                tools.fail(self.prog, f'{action.metavar or action.dest}: {text} is no UTF-8')

    def guarded(self, act: Callable[[], Any]) -> None:
        """:raises SystemExit: it failed, and standard error has one line of why."""
        from kronos_nova.wiring import tools

        def run() -> int:
            act()
            return 0

        status = tools.guarded(self.prog, run)
        if sys.stderr is not None:  # it may be closed
            sys.stderr.flush()
        if status:
            raise SystemExit(status)


def _texts(given: object) -> Iterator[str]:
    """What an argument has of text; a type of ours may have made it a part of a tuple."""
    if isinstance(given, str):
        yield given
    elif isinstance(given, list | tuple):
        for part in given:
            yield from _texts(part)


class Table(Command, lister.Lister):
    """Lists rows: ``columns`` are their heads."""

    columns: tuple[str, ...]

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Row, list[Row]]:
        found: list[Row] = []
        self.guarded(lambda: found.extend(
            cells(parsed_args, row) for row in self.rows(parsed_args)))
        return self.columns, found

    def rows(self, args: argparse.Namespace) -> Iterable[Row]:
        """What is not ours in a cell goes through :func:`shown`."""
        raise NotImplementedError


def shown(row: Iterable[object]) -> Row:
    """Cells of text, of what may hold anything."""
    from kronos_nova.wiring import tools

    return tuple(map(tools.shown, row))


def cells(args: argparse.Namespace, row: Iterable[Any]) -> Row:
    """For people: nothing for what is not there, and no more digits than anybody reads."""
    if nested(args):
        return tuple(row)
    return tuple(
        '' if cell is None else f'{cell:.4f}' if isinstance(cell, float)
        and args.formatter == 'table' else cell for cell in row)


def nested(args: argparse.Namespace) -> bool:
    """Whether cells may be lists and mappings, for programs, or are lines of text."""
    return args.formatter in ('json', 'yaml')


def counted_with_verb(number: int, what: str) -> str:
    """Return ``1 instance is`` or ``2 instances are``."""
    return f'{plurals.count_noun(number, what)} {plurals.choose(number, "is", "are")}'


def add_snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--snapshot', metavar='DIR',
                        help='Of this one, not the cloud: as kronos-record or SIGUSR1 to '
                             'kronos-engine wrote it.')


def add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--scope', metavar='NAME',
                        help='An aggregate, or _unassigned_. Default: all.')
