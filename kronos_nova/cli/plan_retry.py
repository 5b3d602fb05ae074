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

"""``kronos plan revert`` and ``retry``: undo or repeat moves of a plan."""

import argparse
from collections.abc import Iterable
import sys
from typing import Any

from kronos_nova.cli import _command
from kronos_nova.cli import _database


class Again(_command.Table):
    """A request for moves of a stored plan. ``past``: its verb, as a participle."""

    past: str
    columns = ('Instance', 'From', 'To', 'Verdict', 'Task')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('plan', metavar='PLAN', help='Its UUID; see kronos plan list.')
        parser.add_argument('--move', action='append', default=[], metavar='INSTANCE',
                            help='Only the move of the instance with this UUID; repeatable.')
        parser.add_argument('--partly', action='store_true',
                            help='Make those that the rules allow, when they refuse others.')
        parser.add_argument('--dry-run', action='store_true',
                            help='Say what would be done, and do nothing.')
        parser.add_argument('--reason', required=True, metavar='TEXT',
                            help='Why; it is kept with the new plan.')
        return parser

    def rows(self, args: argparse.Namespace) -> Iterable[_command.Row]:
        from kronos_nova.cli import _again
        from kronos_nova.rebalancer.store import plan_approvals

        found = _again.request_moves(self.prog, args.config_file, _again.Asked(
            args.plan, args.move,
            plan_approvals.Said(_database.read_operator_name(),
                                _database.format_single_line(args.reason)),
            carry_out=not args.dry_run, partly=args.partly), self.wish(_again), self.past)
        self._print_result(found, args.dry_run)
        return [_command.format_printable_row((r.instance_uuid, r.from_host, r.to_host, r.verdict,
                                               r.task_id))
                for r in found.rows]

    def _print_result(self, found: Any, dry_run: bool) -> None:
        """Print the result on standard error: programs read the table on standard output."""
        if found.plan_id:
            sys.stderr.write(
                f'Plan {found.plan_id} is stored; executors begin within their poll_interval. Its '
                'instances cool down afterwards; then the engine may plan them again (kronos '
                'pause, [engine] pinned_instances).\n')
        elif not dry_run:
            self.status = 1
            sys.stderr.write('Nothing was stored: the rules refuse some of the moves. With '
                             '--partly the rest is done.\n')

    def wish(self, again: Any) -> Any:
        raise NotImplementedError


class RevertPlan(Again):
    """Move what a plan has moved back to where it was.

    Every move is judged by today's rules: a host that has been disabled or filled since
    refuses. Cooldowns do not hold it. Without --partly it is all or nothing.
    """

    past = 'reverted'
    examples = ('PLAN --reason "slower since" --dry-run',
                'PLAN --move INSTANCE --reason "slower since"')

    def wish(self, again: Any) -> Any:
        return again.build_revert_move


class RetryPlan(Again):
    """Try those moves of a plan again that failed or were cancelled.

    Each goes to the first of its destinations that today's rules allow, those that were
    tried last. Cooldowns do not hold it, a quarantine does.
    """

    past = 'retried'
    examples = ('PLAN --reason "the network is repaired"',)

    def wish(self, again: Any) -> Any:
        return again.once_more
