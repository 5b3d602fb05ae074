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

"""``kronos plan revert`` and ``retry``, and the base of all commands that request moves."""

import argparse
from collections.abc import Iterable
import dataclasses
import sys
from typing import Any

from kronos_nova import plurals
from kronos_nova.cli import command
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import plan_requests
from kronos_nova.text import printable


class RequestedMoveTable(command.TableCommand):
    """A table of requested moves.

    ``stored_note`` and ``refused_note``: what standard error says after a plan was stored, or not.
    """

    columns = ('Instance', 'From', 'To', 'Verdict', 'Task')
    wide = frozenset({'Task'})
    stored_note: str
    refused_note: str

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(cloud_state.Session, args) as session:
            request_result = self.request_moves(session, args,
                                                printable.format_single_line(args.reason))
        # Programs read the table on standard output.
        for warning in request_result.warnings:
            sys.stderr.write(f'Warning: {printable.format_single_line(warning)}\n')
        if request_result.plan_id:
            missing = plurals.count_noun(request_result.approvals_missing, 'other person',
                                         'other people')
            sys.stderr.write(
                f'Plan {request_result.plan_id} is stored; '
                + (f'it waits for the approval of {missing} (kronos plan approve). '
                   if request_result.approvals_missing else
                   'executors begin within their poll_interval. ') + f'{self.stored_note}\n')
        elif self.is_refused(request_result, args.dry_run):
            self.status = 1
            sys.stderr.write(f'Nothing was stored: {self.refused_note}\n')
        return [command.format_printable_row(dataclasses.astuple(row))
                for row in request_result.rows]

    def request_moves(self, session: Any, args: argparse.Namespace, reason: str) -> Any:
        """Return the plan_requests.RepeatResult; store the plan unless it is a dry run."""
        raise NotImplementedError

    def is_refused(self, request_result: Any, dry_run: bool) -> bool:
        """Return whether the exit status is 1 although no error is raised."""
        return not dry_run


class RepeatCommand(RequestedMoveTable):
    """A request for moves of a stored plan."""

    stored_note = ('Its instances cool down afterwards; then the engine may plan them again '
                   '(kronos pause, [engine] pinned_instances).')
    refused_note = 'the rules refuse some of the moves. With --partly the rest is done.'

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


class RevertPlan(RepeatCommand):
    """Move what a plan has moved back to where it was.

    Every move is judged by today's rules: a host that has been disabled or filled since
    refuses. Cooldowns do not hold it. Without --partly it is all or nothing.
    """

    examples = ('PLAN --reason "slower since" --dry-run',
                'PLAN --move INSTANCE --reason "slower since"')

    def request_moves(self, session: Any, args: argparse.Namespace, reason: str) -> Any:
        return plan_requests.revert_plan(session, args.plan, reason=reason, instances=args.move,
                                         partly=args.partly, dry_run=args.dry_run)


class RetryPlan(RepeatCommand):
    """Try those moves of a plan again that failed or were cancelled.

    Each goes to the first of its destinations that today's rules allow, those that were
    tried last. Cooldowns do not hold it, a quarantine does.
    """

    examples = ('PLAN --reason "the network is repaired"',)

    def request_moves(self, session: Any, args: argparse.Namespace, reason: str) -> Any:
        return plan_requests.retry_plan(session, args.plan, reason=reason, instances=args.move,
                                        partly=args.partly, dry_run=args.dry_run)
