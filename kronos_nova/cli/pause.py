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


"""``kronos pause``, ``kronos pause list``, ``kronos resume``: stop and go on."""

import argparse
import sys
import time
from typing import Any

from cliff import lister

from kronos_nova.cli import _database


class Pause(_database.DatabaseCommand):
    """Plan and begin nothing more, in one scope or anywhere.

    Migrations that Nova has been asked for go on and are watched to their
    end. Engines go on looking and say why nothing moves.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--scope', metavar='NAME',
                            help='An aggregate, or _unassigned_. Default: everything.')
        parser.add_argument('--for', dest='duration', metavar='DURATION',
                            help='30m, 2h, 1d. Default: until kronos resume.')
        parser.add_argument('--reason', required=True, metavar='TEXT',
                            help='Why; engines, reports and kronos pause list say it.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        prog = 'kronos pause'

        def act(conf: Any, store: Any) -> None:
            seconds = _duration(prog, parsed_args.duration)
            if parsed_args.scope is not None:
                _database.check_scope(prog, conf, store, parsed_args.scope)
            found = store.pause(
                parsed_args.scope, time.time(), seconds=seconds,
                paused_by=_database.who()[:255],
                reason=_database.plain(parsed_args.reason))
            sys.stdout.write(f'{_what(found.scope)} is paused {_end(found.until)}.\n')

        self._run(prog, parsed_args, act)


class Resume(_database.DatabaseCommand):
    """End a pause. What was queued before it goes on, unless it is too old."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--scope', metavar='NAME',
                            help='An aggregate, or _unassigned_. Default: the pause of '
                                 'everything; those of single scopes stay.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        prog = 'kronos resume'

        def act(conf: Any, store: Any) -> None:
            from kronos_nova import exception

            scope, now = parsed_args.scope, time.time()
            if not store.resume(scope, now):
                paused = ', '.join(_what(p.scope) for p in store.pauses(now)) or 'nothing'
                raise exception.ConfigError(
                    path='command line', field='--scope', problem=f'{_what(scope)} is not paused',
                    remedy=f'Paused is: {paused}')
            left = [p for p in store.pauses(now)
                    if p.scope is None or scope is None]
            sys.stdout.write(f'{_what(scope)} goes on.\n' + ''.join(
                f'{_what(p.scope)} is still paused by {p.paused_by}: {p.reason}\n' for p in left))

        self._run(prog, parsed_args, act)


class ListPauses(_database.DatabaseCommand, lister.Lister):
    """What is paused, by whom, why, and until when."""

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        from kronos_nova.cli import moments
        from kronos_nova.cmd import _tool

        rows: list[tuple[str, ...]] = []

        def act(conf: Any, store: Any) -> None:
            rows.extend(
                (_tool.shown('everything' if p.scope is None else p.scope),
                 moments.shown(p.since), '' if p.until is None else moments.shown(p.until),
                 _tool.shown(p.paused_by), _tool.shown(p.reason))
                for p in store.pauses(time.time()))

        self._run('kronos pause list', parsed_args, act)
        return ('Scope', 'Since', 'Until', 'By', 'Reason'), rows


def _duration(prog: str, text: str | None) -> float | None:
    from kronos_nova import exception
    from kronos_nova.cli import moments

    if text is None:
        return None
    try:
        return moments.seconds(text)
    except ValueError as e:
        raise exception.ConfigError(path='command line', field='--for', problem=str(e),
                                    remedy='Leave it out to pause until kronos resume') from None


def _what(scope: str | None) -> str:
    return 'Everything' if scope is None else f'Scope {scope}'


def _end(until: float | None) -> str:
    from kronos_nova.cli import moments

    return 'until kronos resume' if until is None else f'until {moments.shown(until)}'
