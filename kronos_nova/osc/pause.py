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

"""``openstack rebalance pause``: create, delete and list.

OpenStack's commands ``set`` and ``unset`` change properties of a thing that stays. A pause begins
and ends, and the API has POST and DELETE for it: so it is created and deleted.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc.columns import Column


def _add_place(parser: argparse.ArgumentParser, everything: str) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument('--scope', metavar='<scope>', type=command.parse_text,
                       help='Of this scope: an aggregate, or _unassigned_.')
    group.add_argument('--all', action='store_true', help=everything)


def _name_scope(pause: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    shown = {**pause, 'scope': 'everything'} if pause['scope'] is None else pause
    return columns.Cell(pause['scope'], str(columns.read_name('scope', 16)(shown, style)))


class ListPauses(command.ListResources):
    """List the pauses in force; that of everything first."""

    columns = (
        Column('Scope', _name_scope),
        Column('Since', columns.read_time('since')),
        Column('Until', columns.read_time('until')),
        Column('Reason', columns.read_sentence('reason', 31)),
        Column('Paused By', columns.read_text('paused_by'), long=True))

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return list(self.client.send('GET', '/v1/pauses')['pauses'])


class CreatePause(command.ShowResource):
    """Pause a scope or everything: engines plan nothing there, and no task begins.

    Migrations that Nova was asked for go on. The pause takes the place of an earlier one of the
    same scope.
    """

    fields = (
        Column('scope', _name_scope),
        Column('since', columns.read_time('since')), Column('until', columns.read_time('until')),
        Column('reason', columns.read_text('reason')),
        Column('paused_by', columns.read_text('paused_by')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_place(parser, 'Everywhere.')
        parser.add_argument('--duration', metavar='<duration>', type=command.parse_duration,
                            help='The pause ends after so long, as 30m, 2h or 1d. Default: when it '
                                 'is deleted.')
        command.add_reason(parser)
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        return dict(self.client.send('POST', '/v1/pauses', body={
            'scope': args.scope, 'reason': args.reason, 'duration_seconds': args.duration}))


class DeletePause(command.RebalanceCommand):
    """End a pause. Tasks that were queued before it go on, unless they are too old."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_place(parser, 'The pause of everything; those of single scopes go on.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        query = {} if parsed_args.scope is None else {'scope': parsed_args.scope}
        for pause in self.client.send('DELETE', '/v1/pauses', query=query)['pauses']:
            place = 'Everything' if pause['scope'] is None else f'Scope {pause["scope"]}'
            self.warn(f'{place} is still paused by {pause["paused_by"]}: {pause["reason"]}')
