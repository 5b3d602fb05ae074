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

"""``kronos swap``: exchange the hosts of two instances, both or none."""

import argparse
from typing import Any

from kronos_nova.cli import plan_requests
from kronos_nova.rebalancer.operations import instance_swaps


class SwapInstances(plan_requests.RequestedMoveTable):
    """Have two instances change places, both or none.

    Directly where one has room beside the other; else one instance waits on a third host until the
    other has moved. When one half fails for good the other one goes back. Every move is judged by
    today's rules; cooldowns do not hold it.
    """

    stored_note = 'kronos plan show has how far it is.'
    refused_note = 'the rules refuse it.'
    examples = ('UUID UUID --reason "closer to its users" --dry-run',
                'UUID UUID --parking compute-09 --reason "closer to its users"')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('instances', nargs=2, metavar='INSTANCE', help='Their UUIDs.')
        parser.add_argument('--parking', metavar='HOST',
                            help='The only host where one may wait, if they cannot change places '
                                 'directly; any of the scope unless told.')
        parser.add_argument('--dry-run', action='store_true',
                            help='Say what would be done, and do nothing.')
        parser.add_argument('--reason', required=True, metavar='TEXT',
                            help='Why; it is kept with the plan.')
        return parser

    def request_moves(self, session: Any, args: argparse.Namespace, reason: str) -> Any:
        first, other = args.instances
        return instance_swaps.swap_instances(session, (first, other), reason=reason,
                                            parking=args.parking, dry_run=args.dry_run)

    def is_refused(self, request_result: Any, dry_run: bool) -> bool:
        return not dry_run or not any(row.verdict.startswith('wave') for row in request_result.rows)
