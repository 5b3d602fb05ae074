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


"""``kronos pause``, ``kronos pause list``, ``kronos resume``: stop all moves, and resume."""

import argparse
from collections.abc import Iterable
import sys
from typing import Any

from kronos_nova import exception
from kronos_nova.cli import command
from kronos_nova.cli import database_command
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.text import printable
from kronos_nova.text import times
from kronos_nova.wiring import tools


class PauseScope(database_command.DatabaseCommand):
    """Plan and begin nothing more, in one scope or anywhere.

    Migrations that Nova has been asked for go on and are watched to their
    end. Engines go on looking and say why nothing moves.
    """

    examples = ('--reason "network upgrade" --for 2h', '--scope ssd --reason "being moved"')

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
        def pause_scope(session: Any) -> None:
            pause = operator_decisions.pause_scope(
                session, parsed_args.scope,
                seconds=_parse_duration(parsed_args.duration, session.existing_store.now()),
                reason=printable.format_single_line(parsed_args.reason))
            sys.stdout.write(f'{operator_decisions.format_paused(pause.scope)} is paused '
                             f'{_format_end(pause.until)}.\n')

        self.run_in_session(parsed_args, pause_scope)


class ResumeScope(database_command.DatabaseCommand):
    """End a pause. Tasks that were queued before it go on, unless they are too old."""

    examples = ('', '--scope ssd')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--scope', metavar='NAME',
                            help='An aggregate, or _unassigned_. Default: the pause of '
                                 'everything; those of single scopes stay.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        def resume_scope(session: Any) -> None:
            remaining_pauses = operator_decisions.resume_scope(session, parsed_args.scope)
            sys.stdout.write(
                f'{operator_decisions.format_paused(parsed_args.scope)} goes on.\n' + ''.join(
                    tools.format_printable(
                        f'{operator_decisions.format_paused(p.scope)} is still paused by '
                        f'{p.paused_by}: {p.reason}') + '\n' for p in remaining_pauses))

        self.run_in_session(parsed_args, resume_scope)


class ListPauses(database_command.DatabaseTable):
    """List the pauses: scope, operator, reason, begin and end."""

    columns = ('Scope', 'Since', 'Until', 'By', 'Reason')
    examples = ('',)

    def render_rows(self, session: Any, args: argparse.Namespace) -> Iterable[command.Row]:
        for p in stored_views.list_pauses(session):
            yield command.format_printable_row((
                'everything' if p.scope is None else p.scope, times.format_time(p.since),
                '' if p.until is None else times.format_time(p.until), p.paused_by, p.reason))


def _parse_duration(text: str | None, now: float) -> float | None:
    if text is None:
        return None
    try:
        seconds = times.parse_duration(text)
        if now + seconds > times.LAST:
            raise ValueError(f'{text} from now is in no calendar')
        return seconds
    except ValueError as e:
        raise exception.ConfigError(path='command line', field='--for', problem=str(e),
                                    remedy='Leave it out to pause until kronos resume') from None


def _format_end(until: float | None) -> str:
    return 'until kronos resume' if until is None else f'until {times.format_time(until)}'
