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


"""Bases of all subcommands: their help, ``--config-file``, errors, exit status."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import shutil
import sys
from typing import Any, TypeVar

from cliff import _argparse
from cliff import command as cliff_command
from cliff import lister

from kronos_nova import activity
from kronos_nova.text import printable
from kronos_nova.text import progress
from kronos_nova.text import state_colours
from kronos_nova.text import table_layout
from kronos_nova.text import times
from kronos_nova.wiring import tools

Row = tuple[Any, ...]
SomeSession = TypeVar('SomeSession')
_EXAMPLES = 'Example'
#: Metavars that stand for the name of a file.
PATHS = frozenset({'FILE', 'DIR', 'OUTPUT_DIR', 'SNAPSHOT'})


class _ExampleFormatter(_argparse.SmartHelpFormatter):
    """A help formatter that keeps the lines of examples.

    The reference has them as reStructuredText.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith(_EXAMPLES):
            return super()._fill_text(text, width, indent)
        return text.replace('::\n\n', ':\n', 1)


class BaseCommand(cliff_command.Command):
    """A subcommand of ``kronos``.

    ``examples``: each follows the command's name. ``config``: the help of ``--config-file``, None
    for commands without that option. ``status``: the exit status of a command that has not failed.
    """

    examples: tuple[str, ...]
    config: str | None = 'kronos.conf; repeatable.'
    status = 0

    @property
    def prog(self) -> str:
        """The full name of the command."""
        return f'kronos {self.cmd_name}'

    def get_epilog(self) -> str:
        """Return '' instead of cliff's epilog, which names the command's package.

        For that, cliff searches all installed packages.
        """
        return ''

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.formatter_class = _ExampleFormatter
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

    def _check(self, action: argparse.Action, value: object) -> None:
        """Fail on an argument with a surrogate: neither databases nor Nova take it.

        A file's name may have one.
        """
        for text in _list_argument_texts(value):
            if not text.isascii() and any('\ud800' <= c <= '\udfff' for c in text):
                tools.exit_with_error(self.prog,
                                      f'{action.metavar or action.dest}: {text} is no UTF-8')

    def open_session(self, kind: Callable[..., SomeSession], args: argparse.Namespace, *,
                     live: bool | None = None, strict: bool = True) -> SomeSession:
        """Return the session of the command, for a ``with`` statement.

        :param kind: its class, a :class:`sessions.DatabaseSession`.
        :param live: whether the command asks Nova; None: unless it reads a snapshot.
        :param strict: whether every value of kronos.conf must be in its bounds.
        """
        snapshot = getattr(args, 'snapshot', None)

        def configure(conf: Any, files: Sequence[str]) -> None:
            if not snapshot if live is None else live:
                tools.native_threads()  # before the log is set up, as it logs its choice
            tools.configure_command(
                conf, self.prog, [part for path in files for part in ('--config-file', path)], [],
                self.get_description(), strict=strict)

        line = activity.ActivityLine(sys.stderr)
        more = {'snapshot': snapshot} if snapshot else {}
        return kind(*args.config_file, configure=configure, show_work=line.show_work,
                    notify=lambda text: line.write_message(tools.format_printable(text)), **more)

    def run_guarded(self, act: Callable[[], Any]) -> None:
        """Run ``act``, and print an error as one line on standard error.

        :raises SystemExit: ``act`` failed.
        """
        def run() -> int:
            act()
            return 0

        status = tools.run_guarded(self.prog, run)
        if sys.stderr is not None:  # it may be closed
            sys.stderr.flush()
        if status:
            raise SystemExit(status)


def _list_argument_texts(value: object) -> Iterator[str]:
    """Yield the texts of an argument, also from nested lists and tuples that our types return."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _list_argument_texts(part)


class FittedDisplay(state_colours.ColouredDisplay):
    """The part of a command that shows a table of a bounded width. It stands before cliff's base.

    ``shows_one_vertically``: a single row is names and values, one below the other.
    """

    shows_one_vertically = False

    def fit_formatter(self, formatter: Any, args: argparse.Namespace) -> Any:
        if getattr(args, 'wide', False) or args.columns:
            return formatter
        fits_itself = args.max_width > 0 or args.fit_width
        return table_layout.FittedTable(formatter, None if fits_itself else self.read_width(args),
                                        self.shows_one_vertically)

    def read_width(self, args: argparse.Namespace) -> int:
        """Return the width that a table may have."""
        if args.max_width > 0:
            return int(args.max_width)
        return (shutil.get_terminal_size((table_layout.WIDTH, 0)).columns
                if self.app.stdout.isatty() else table_layout.WIDTH)


class FittedLister(FittedDisplay, lister.Lister):
    """A list of rows.

    ``columns``: their heads. ``wide``: those that a table has with --wide, or where it has room.
    """

    columns: tuple[str, ...]
    wide: frozenset[str] = frozenset()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        self._formatter_group.add_argument(
            '--wide', action='store_true',
            help='A table with all columns and long lines; without it a table has the width of '
                 f'the terminal, {table_layout.WIDTH} columns elsewhere.')
        return parser

    def choose_columns(self, args: argparse.Namespace,
                       rows: list[Row]) -> tuple[tuple[str, ...], list[Row]]:
        """Return the heads and rows to show."""
        if (not self.wide or args.formatter != 'table' or args.wide or args.columns
                or self.shows_one_vertically and len(rows) == 1
                or table_layout.measure_table(self.columns, rows) <= self.read_width(args)):
            return self.columns, rows
        sorts = {_fold_head(head) for head in args.sort_columns}
        shown = [number for number, head in enumerate(self.columns)
                 if head not in self.wide or _fold_head(head) in sorts]
        return (tuple(self.columns[number] for number in shown),
                [tuple(row[number] for number in shown) for row in rows])


def _fold_head(head: str) -> str:
    """Return the head of a column as cliff compares it."""
    return head.lower().strip().replace(' ', '_')


class TableCommand(BaseCommand, FittedLister):
    """A list of rows; ``columns`` are their heads."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Row]]:
        rows: list[Row] = []
        self.run_guarded(lambda: rows.extend(
            format_cells(parsed_args, row) for row in self.render_rows(parsed_args)))
        return self.choose_columns(parsed_args, rows)

    def render_rows(self, args: argparse.Namespace) -> Iterable[Row]:
        """Return the rows. Text from outside goes through :func:`format_printable_row`."""
        raise NotImplementedError


@contextlib.contextmanager
def open_bar(session: Any) -> Iterator[Callable[[str, float], None]]:
    """Return a function that draws a bar on standard error in place of the session's line."""
    with progress.ProgressLine(sys.stderr) as line:
        def show_progress(what: str, part: float) -> None:
            session.show_work('')
            line.show_progress(what, part)

        yield show_progress


def format_printable_row(row: Iterable[object]) -> Row:
    """Return the cells as printable text, for values from outside."""
    return tuple(map(tools.format_printable, row))


def format_cells(args: argparse.Namespace, row: Iterable[Any]) -> Row:
    """Return cells for people: empty for None, and floats in tables with four digits.

    No cell has a control character but the end of a line: a name could begin a sequence by which
    terminals take orders.
    """
    if is_nested_format(args):
        return tuple(row)
    return tuple(
        '' if cell is None else f'{cell:.4f}' if isinstance(cell, float)
        and args.formatter == 'table' else printable.format_lines(cell)
        if isinstance(cell, str) else cell for cell in row)


def is_nested_format(args: argparse.Namespace) -> bool:
    """Return True if cells may be lists and mappings, for programs, not lines of text."""
    return args.formatter in ('json', 'yaml')


def add_snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--snapshot', metavar='DIR',
                        help='Of this one, not the cloud: as kronos-record or SIGUSR1 to '
                             'kronos-engine wrote it.')


def add_max_seconds(parser: argparse.ArgumentParser, default: float, text: str) -> None:
    """Add ``--max-seconds``, the time of a search; the text is its help."""
    parser.add_argument('--max-seconds', type=parse_duration, default=default, metavar='SECONDS',
                        help=f'{text} Default: {default:.0f}.')


def parse_duration(text: str) -> float:
    """Read a duration in seconds."""
    try:
        return times.parse_duration(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--scope', metavar='NAME',
                        help='An aggregate, or _unassigned_. Default: all.')
