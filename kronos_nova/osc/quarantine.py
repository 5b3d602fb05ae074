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

"""``openstack rebalance quarantine``: list and lift."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc.columns import Column

KINDS = ('instance', 'host', 'disks', 'cells')


class ListQuarantines(command.ListResources):
    """List instances, hosts, hosts with local disks, and pairs of cells that moves leave alone.

    Kind service: Nova, Placement or Keystone is out of order; this ends when it works again.
    """

    columns = (
        Column('Kind', columns.read_text('kind')),
        Column('Name', columns.read_name('name', 36)),
        Column('Until', columns.read_time('until')),
        Column('Reason', columns.read_sentence('reason', 23)),
        Column('Since', columns.read_time('since'), long=True))

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return list(self.client.send('GET', '/v1/quarantines')['quarantines'])


class LiftQuarantine(command.RebalanceCommand):
    """Lift a quarantine: the next cycle may plan with the instance or host again."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('kind', metavar='<kind>', choices=KINDS,
                            help=f'{", ".join(KINDS[:-1])} or {KINDS[-1]}.')
        parser.add_argument('name', metavar='<name>',
                            help='UUID of the instance, or name of the host; of cells both names, '
                                 'as the list shows them.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.send('DELETE', '/v1/quarantines',
                         query={'kind': parsed_args.kind, 'name': parsed_args.name})
