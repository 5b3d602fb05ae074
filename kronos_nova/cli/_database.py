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
from collections.abc import Iterator
import contextlib
from typing import Any

from cliff import lister
from cliff import show

from kronos_nova.cli import _command

#: Names and values, as cliff shows them.
Shown = tuple[tuple[str, ...], tuple[Any, ...]]


class DatabaseCommand(_command.Command):
    """A command that runs on the database that kronos.conf names."""

    config = 'kronos.conf, for [database] and [engine] aggregates; repeatable.'

    reads_only = False

    def _run(self, args: argparse.Namespace, act: Callable[[Any, Any], None]) -> None:
        def run() -> None:
            with _open_database(self.prog, args.config_file, self.reads_only) as (conf, store):
                act(conf, store)

        self.guarded(run)


class DatabaseTable(DatabaseCommand, lister.Lister):
    """A list of rows from the database; ``columns`` are their heads."""

    columns: tuple[str, ...]
    reads_only = True

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[_command.Row]]:
        found: list[_command.Row] = []
        self._run(parsed_args, lambda conf, store: found.extend(
            _command.format_cells(parsed_args, row) for row in self.rows(conf, store, parsed_args)))
        return self.columns, found

    def rows(self, conf: Any, store: Any, args: argparse.Namespace) -> Iterable[_command.Row]:
        """Return the rows. Text from outside goes through :func:`_command.format_printable_row`."""
        raise NotImplementedError


class ShowStored(DatabaseCommand, show.ShowOne):
    """A command that shows the object with a UUID from the database.

    ``kind`` names the type of object, ``remedy`` the next step when the database has no such
    object.
    """

    reads_only = True
    kind: str
    remedy: str
    examples = ('UUID --config-file /etc/kronos/kronos.conf', 'UUID -f json')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('uuid', metavar='UUID',
                            help=f'Of the {self.kind}; see kronos {self.kind} list.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Shown:
        from kronos_nova import exception

        found: list[Shown] = []

        def read_stored_object(conf: Any, store: Any) -> None:
            shown = self.look(store, parsed_args.uuid, _command.is_nested_format(parsed_args))
            if shown is None:
                raise exception.ConfigError(
                    path='command line', field=parsed_args.uuid,
                    problem=f'no such {self.kind}', remedy=self.remedy)
            found.append(shown)

        self._run(parsed_args, read_stored_object)
        names, values = found[0]
        return names, _command.format_cells(parsed_args, values)

    def look(self, store: Any, uuid: str, nested: bool) -> Shown | None:
        """Return the names and values to show; None if the database has no such object.

        :param nested: lists and mappings for programs, else lines of text.
        """
        raise NotImplementedError


@contextlib.contextmanager
def _open_database(prog: str, files: list[str], reads_only: bool) -> Iterator[tuple[Any, Any]]:
    """Open the configuration and the database; close the database at the end."""
    from oslo_config import cfg

    from kronos_nova.conf import opts
    from kronos_nova.wiring import tools

    conf = cfg.ConfigOpts()
    opts.register(conf)
    tools.configure_command(conf, prog, [part for f in files for part in ('--config-file', f)], [],
                            'Stop and go on.', strict=False)
    # Import after the log is set up: its packages log the plug-ins that they load.
    from kronos_nova.cli import _stores

    store = _stores.open_store(conf, reads_only=reads_only)
    try:
        yield conf, store
    finally:
        store.close()


def format_single_line(text: str) -> str:
    """Return an argument, which may hold any bytes, as one line of Unicode."""
    return ' '.join(text.encode('utf-8', 'replace').decode().split())


def read_operator_name() -> str:
    """Return the name of the operator, to store with the command."""
    from kronos_nova.rebalancer.store import process_identity

    return process_identity.name_operator()


def check_scope(conf: Any, store: Any, scope: str) -> None:
    """Refuse an unknown scope.

    A pause of a misspelt scope would hold nothing, and its lists would be empty.

    :raises ConfigError: no engine has planned the scope, and the configuration does not name it;
        the text names the known ones.
    """
    from kronos_nova import exception
    from kronos_nova import model

    known = {*conf.engine.aggregates, *store.scopes(), model.UNASSIGNED}
    if scope not in known:
        raise exception.ConfigError(
            path='command line', field='--scope', problem=f'no engine has planned {scope!r}',
            remedy=f'Known are: {", ".join(sorted(known))}')


def parse_limit(text: str) -> int:
    """Read how many rows a list has at most."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is no number of rows; write 50')
    return int(text)
