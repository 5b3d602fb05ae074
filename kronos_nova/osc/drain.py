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

"""``openstack rebalance drain``: list and check.

Compute services are disabled and enabled by Nova, so nothing here begins or ends a drain.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import host
from kronos_nova.osc import plan_fields
from kronos_nova.osc.columns import Column

MODES = ('auto', 'compact', 'scatter')


def _format_blocked(blocked: Mapping[str, Any]) -> str:
    later = 'leaves later' if blocked['leaves_later'] else 'stays'
    return f'{blocked["instance_id"]} {later}: {blocked["reason"]}'


def _format_risk(risk: Mapping[str, Any]) -> str:
    return f'{risk["instance_id"]} may not converge: {risk["probability"]:.0%}'


class ListDrains(command.ListResources):
    """List the hosts that are disabled or that pack empties, and why instances stay on them."""

    columns = (
        Column('Host', columns.read_name('host', 16)),
        Column('Scope', columns.read_name('scope', 10)),
        Column('Instances', columns.read_text('instance_count')),
        Column('Held', columns.read_sentence('held', 26)),
        Column('Remedy', columns.read_sentence('remedy', 22)),
        Column('Disabled Reason', columns.read_text('disabled_reason'), long=True),
        Column('Packed', columns.read_text('packed'), long=True),
        Column('Read At', columns.read_time('read_at'), long=True))

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return list(self.client.send('GET', '/v1/drains')['drains'])


class CheckDrain(command.ShowResource):
    """Check whether a host can be emptied, how, and how long that takes.

    Nothing changes. The exit status is 1 when it cannot. To begin, disable the host in Nova
    (openstack compute service set --disable) for a reason that [engine] drain_reason_regex matches.
    """

    fields = (
        Column('host', columns.read_text('host')), Column('scope', columns.read_text('scope')),
        Column('can_be_emptied', columns.read_text('can_be_emptied')),
        Column('instance_count', columns.read_text('instance_count')),
        Column('arriving_count', columns.read_text('arriving_count')),
        Column('obstacles', columns.read_lines('obstacles')),
        Column('moves', columns.read_lines('moves', plan_fields.format_move)),
        Column('blocked', columns.read_lines('blocked', _format_blocked)),
        Column('missing', columns.read_counts('missing', command.WIDTH)),
        Column('expected_seconds', columns.read_text('expected_seconds')),
        Column('measured_migration_count', columns.read_text('measured_migration_count')),
        Column('risks', columns.read_lines('risks', _format_risk)),
        Column('read_at', columns.read_time('read_at')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        host.add_host(parser)
        parser.add_argument('--mode', metavar='<mode>', choices=MODES,
                            help='Instead of the mode in which engines drain. auto: for the least '
                                 'imbalance. compact: fill one destination after the other. '
                                 'scatter: as many to each as to any other.')
        parser.add_argument('--overbooking', action='store_true',
                            help='Destinations may be filled above the ceilings of the policies; '
                                 'never above what Placement allows.')
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        check = dict(self.client.send('GET', '/v1/drains/check', query={
            'host': args.host, **({} if args.mode is None else {'mode': args.mode}),
            'overbooking': 'true' if args.overbooking else 'false'}))
        self.status = int(not check['can_be_emptied'])
        return check
