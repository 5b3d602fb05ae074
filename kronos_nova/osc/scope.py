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

"""``openstack rebalance scope``: list and show."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from osc_lib import exceptions

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import policy_fields
from kronos_nova.osc.columns import Column
from kronos_nova.text import printable


def _format_failure(scope: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    """Return the cell that says since when and why cycles have failed."""
    cycle = scope['last_cycle']
    return columns.Cell(cycle['error'], '' if cycle['error'] is None else
                        f'{columns.format_time(cycle["failed_at"])}: {cycle["error"]}')


def _format_pause(scope: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    """Return the cell with the pause of the scope: its end and its reason."""
    pause = scope['pause']
    if pause is None:
        return columns.Cell(None, '')
    end = f'until {columns.format_time(pause["until"])}: ' if pause['until'] else ''
    return columns.Cell(pause, f'{end}{pause["reason"]}')


def _mark_paused(scope: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    paused = scope['pause'] is not None
    return columns.Cell(paused, 'yes' if paused else 'no')


def _read_cycle(field: str, make: columns.Make) -> columns.Make:
    """Return a maker of cells with a value of the last cycle."""
    return lambda scope, style: make(scope['last_cycle'], style)


class ListScopes(command.ListResources):
    """List the scopes that engines plan, or have planned within a day."""

    columns = (
        Column('Name', columns.read_name('name', 18)),
        Column('Engine', columns.read_name('engine', 17)),
        Column('Planned At', columns.read_time('planned_at')),
        Column('Tasks', columns.read_counts('task_states', 16)),
        Column('Paused', _mark_paused),
        Column('Dry Run', columns.read_text('dry_run'), long=True),
        Column('Failing', _format_failure, long=True),
        Column('Reason', _read_cycle('reason', columns.read_text('reason')), long=True),
        Column('Policies', _read_cycle('policies', columns.read_lines(
            'policies', policy_fields.format_measured)), long=True),
        Column('Overdue Tasks', columns.read_text('overdue_task_count'), long=True),
        Column('Executors', columns.read_counts('executors', 60), long=True),
        Column('Draining Hosts', columns.read_text('draining_host_count'), long=True))

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return list(self.client.send('GET', '/v1/scopes')['scopes'])


class ShowScope(command.ShowResource):
    """Show a scope with its engine, executors, last cycle and pause."""

    fields = (
        Column('name', columns.read_text('name')), Column('engine', columns.read_text('engine')),
        Column('planned_at', columns.read_time('planned_at')),
        Column('dry_run', columns.read_text('dry_run')),
        Column('last_cycle_at', _read_cycle('at', columns.read_time('at'))),
        Column('failing', _format_failure),
        Column('move_count', _read_cycle('move_count', columns.read_text('move_count'))),
        Column('reason', _read_cycle('reason', columns.read_text('reason'))),
        Column('policies', _read_cycle('policies', columns.read_lines(
            'policies', policy_fields.format_measured))),
        Column('task_states', columns.read_counts('task_states', command.WIDTH)),
        Column('overdue_task_count', columns.read_text('overdue_task_count')),
        Column('executors', columns.read_counts('executors', command.WIDTH)),
        Column('draining_host_count', columns.read_text('draining_host_count')),
        Column('pause', _format_pause))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('scope', metavar='<scope>', type=command.parse_text,
                            help='Name of the scope: an aggregate, or _unassigned_.')
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        wanted = printable.format_printable(args.scope)
        for scope in self.client.send('GET', '/v1/scopes')['scopes']:
            if scope['name'] == wanted:
                return dict(scope)
        raise exceptions.CommandError(
            f'<scope>: no engine has planned a scope {wanted} within a day; see openstack '
            'rebalance scope list')
