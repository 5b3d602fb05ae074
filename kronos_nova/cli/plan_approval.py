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

"""``kronos plan approve``, ``reject`` and ``cancel``: an operator's decisions on a plan."""

import argparse
from collections.abc import Sequence
import sys
from typing import Any

from kronos_nova.cli import command
from kronos_nova.cli import database_command


class DecisionCommand(database_command.DatabaseCommand):
    """A decision on a plan. ``past``: its verb, as a participle."""

    past: str
    reason_help: str | None = 'Why; it is kept with the plan.'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('plan', metavar='PLAN', help='Its UUID; see kronos plan list.')
        parser.add_argument('--move', action='append', default=[], metavar='INSTANCE',
                            help='Only the move of the instance with this UUID; repeatable.')
        parser.add_argument('--reason', required=self.reason_help is not None, default='',
                            metavar='TEXT', help=self.reason_help or 'Why, if it is to be kept.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        def apply_decision(session: Any) -> None:
            for task in self.decide(session, parsed_args.plan,
                                    command.format_single_line(parsed_args.reason),
                                    parsed_args.move):
                sys.stdout.write(f'Task {task.task_id} of instance {task.instance_uuid} is '
                                 f'{self.past}.\n')

        self.run_in_session(parsed_args, apply_decision)

    def decide(self, session: Any, plan: str, reason: str, instances: Sequence[str]) -> list[Any]:
        """Return the tasks that the decision concerned."""
        raise NotImplementedError


class ApprovePlan(DecisionCommand):
    """Let a plan begin that waits for approval, or some of its moves.

    Executors take it up within their poll_interval. Each move is checked against what Nova
    and Placement say then.
    """

    past, reason_help = 'approved', None
    examples = ('PLAN', 'PLAN --move INSTANCE --move INSTANCE')

    def decide(self, session: Any, plan: str, reason: str, instances: Sequence[str]) -> list[Any]:
        from kronos_nova.rebalancer.operations import operator_decisions
        from kronos_nova.rebalancer.operations import scope_liveness
        from kronos_nova.wiring import tools

        tasks, unserved = operator_decisions.approve_plan(session, plan, reason=reason,
                                                          instances=instances)
        if unserved is not None:
            sys.stderr.write(
                f'{self.prog}: warning: '
                f'{scope_liveness.NO_EXECUTOR.format(tools.format_printable(unserved))}.\n')
        return tasks


class RejectPlan(DecisionCommand):
    """Drop a plan that waits for approval, or some of its moves.

    What requires a rejected move goes with it. The instances cool down, so that the next
    cycle does not plan the same.
    """

    past = 'rejected'
    examples = ('PLAN --reason "not in office hours"',
                'PLAN --move INSTANCE --reason "its owner asked"')

    def decide(self, session: Any, plan: str, reason: str, instances: Sequence[str]) -> list[Any]:
        from kronos_nova.rebalancer.operations import operator_decisions

        return operator_decisions.reject_plan(session, plan, reason=reason, instances=instances)


class CancelPlan(DecisionCommand):
    """End all of a plan that Nova has not been asked for, or some of its moves.

    What requires a cancelled move goes with it; the instances cool down. What Nova has been
    asked for is aborted in Nova; that is respected, too.
    """

    past = 'cancelled'
    examples = ('PLAN --reason "the rack is being worked on"',)

    def decide(self, session: Any, plan: str, reason: str, instances: Sequence[str]) -> list[Any]:
        from kronos_nova.rebalancer.operations import operator_decisions

        return operator_decisions.cancel_plan(session, plan, reason=reason, instances=instances)
