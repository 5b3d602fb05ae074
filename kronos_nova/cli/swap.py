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
from collections.abc import Iterable
import sys
from typing import Any

from kronos_nova.cli import _command
from kronos_nova.cli import _database


class Swap(_command.Table):
    """Have two instances change places, both or none.

    Directly where one has room beside the other; else one instance waits on a third host until the
    other has moved. When one half fails for good the other one goes back. Every move is judged by
    today's rules; cooldowns do not hold it.
    """

    columns = ('Instance', 'From', 'To', 'Verdict', 'Task')
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

    def rows(self, args: argparse.Namespace) -> Iterable[_command.Row]:
        from kronos_nova.cli import _swap
        from kronos_nova.rebalancer.store import plan_approvals

        one, other = args.instances
        found = _swap.request_swap(self.prog, args.config_file, _swap.Asked(
            (one, other), args.parking,
            plan_approvals.Said(_database.read_operator_name(),
                                _database.format_single_line(args.reason)),
            carry_out=not args.dry_run))
        self._print_result(found, args.dry_run)
        return [_command.format_printable_row((r.instance_uuid, r.from_host, r.to_host, r.verdict,
                                               r.task_id))
                for r in found.rows]

    def _print_result(self, found: Any, dry_run: bool) -> None:
        """Print the result on standard error: programs read the table on standard output."""
        if found.plan_id:
            sys.stderr.write(
                f'Plan {found.plan_id} is stored; executors begin within their poll_interval. '
                'kronos plan show has how far it is.\n')
        elif not dry_run or not any(r.verdict.startswith('wave') for r in found.rows):
            self.status = 1
            sys.stderr.write('Nothing was stored: the rules refuse it.\n')
