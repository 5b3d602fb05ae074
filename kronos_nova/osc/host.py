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

"""``openstack rebalance host``: list and show."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from osc_lib import exceptions

from kronos_nova.osc import client
from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc.columns import Column
from kronos_nova.text import printable
from kronos_nova.text import widths

_POLICY_WIDTH = 12


def _list_states(host: Mapping[str, Any]) -> Iterator[str]:
    if host['is_up'] is None:
        yield 'no nova-compute'
    elif not host['is_up']:
        yield 'down'
    if host['is_enabled'] is not None:
        yield 'enabled' if host['is_enabled'] else 'disabled'
    if host['draining']:
        yield 'draining'
    if host['quarantined']:
        yield 'quarantined'


def _format_state(host: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    states = list(_list_states(host))
    return columns.Cell(states, widths.wrap_text(', '.join(states), 17))


def format_load(load: Mapping[str, Any]) -> str:
    """Return the load of a host under a policy, without values that are not known."""
    if load['score'] is None:
        return f'{load["policy"]}: no score'
    more = ''.join(f', {name} {load[name]:.4f}' for name in ('fill', 'base', 'coverage')
                   if load[name] is not None)
    return f'{load["policy"]}: {load["score"]:.4f}{more}'


def _format_loads(host: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    loads = host['loads']
    return columns.Cell(loads, '\n'.join(
        format_load(load) if style.full else
        f'{widths.cut_text(load["policy"], _POLICY_WIDTH)}: '
        f'{"none" if load["score"] is None else format(load["score"], ".2f")}' for load in loads))


def _format_use(use: Mapping[str, Any]) -> str:
    return f'{use["resource_class"]}: {use["used"]} of {use["capacity"]:.0f}'


class ListHosts(command.ListResources):
    """List the hosts of all scopes with their loads, as an engine has read them last."""

    columns = (
        Column('Name', columns.read_name('name', 22)),
        Column('Scope', columns.read_name('scope', 14)),
        Column('State', _format_state),
        Column('Instances', columns.read_text('instance_count')),
        Column('Loads', _format_loads),
        Column('Up', columns.read_text('is_up'), long=True),
        Column('Enabled', columns.read_text('is_enabled'), long=True),
        Column('Disabled Reason', columns.read_text('disabled_reason'), long=True),
        Column('Draining', columns.read_text('draining'), long=True),
        Column('Quarantined', columns.read_text('quarantined'), long=True),
        Column('Zone', columns.read_text('zone'), long=True),
        Column('Cell', columns.read_text('cell'), long=True),
        Column('Resources', columns.read_lines('resources', _format_use), long=True),
        Column('Read At', columns.read_time('read_at'), long=True))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        command.add_scope(parser)
        command.add_limit(parser, 1000, 'by name')
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return self.list_page(args, '/v1/hosts', 'hosts', {'scope': args.scope})


class ShowHost(command.ShowResource):
    """Show a host with its loads and its resources, as an engine has read them last."""

    fields = (
        Column('name', columns.read_text('name')), Column('scope', columns.read_text('scope')),
        Column('zone', columns.read_text('zone')), Column('cell', columns.read_text('cell')),
        Column('is_up', columns.read_text('is_up')),
        Column('is_enabled', columns.read_text('is_enabled')),
        Column('disabled_reason', columns.read_text('disabled_reason')),
        Column('draining', columns.read_text('draining')),
        Column('quarantined', columns.read_text('quarantined')),
        Column('instance_count', columns.read_text('instance_count')),
        Column('loads', columns.read_lines('loads', format_load)),
        Column('resources', columns.read_lines('resources', _format_use)),
        Column('read_at', columns.read_time('read_at')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_host(parser)
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        return find_host(self.client, args.host)


def find_host(rebalance: client.RebalanceClient, name: str) -> client.Document:
    """Return the host as an engine has read it last.

    :raises CommandError: no scope has it.
    """
    for host in rebalance.list_rows('/v1/hosts', 'hosts', {'name': name}, 1):
        return host
    raise exceptions.CommandError(
        f'<host>: no scope that engines plan has a host {printable.format_printable(name)}; see '
        'openstack rebalance host list')


def add_host(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('host', metavar='<host>', type=command.parse_text,
                        help='Name of the host, as a compute service.')
