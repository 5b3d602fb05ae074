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

"""``kronos plan list`` and ``show``, and decisions: ``approve``, ``reject`` and ``cancel``."""

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import sys
from typing import Any

from kronos_nova import plurals
from kronos_nova.cli import command
from kronos_nova.cli import database_command
from kronos_nova.cli import plan_text
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.text import plan_lines
from kronos_nova.text import printable
from kronos_nova.text import times
from kronos_nova.wiring import tools

SHOWN = 20


class ListPlans(database_command.DatabaseTable):
    """The newest plans, newest first.

    Empty plans are kept only if they gave a new reason. Asked by names the operator who requested
    the plan; it is empty for plans of engines.
    """

    columns = ('Plan', 'Scope', 'Created at', 'Dry run', 'Moves', 'Tasks', 'Imbalance before',
               'Imbalance after', 'Reason', 'Asked by')
    wide = frozenset({'Dry run', 'Imbalance before', 'Imbalance after', 'Asked by'})
    examples = ('', '--scope ssd --limit 5 -f json')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--scope', metavar='NAME', help='Of this scope alone.')
        parser.add_argument('--limit', type=database_command.parse_limit, default=SHOWN,
                            metavar='N', help=f'At most so many; {SHOWN} unless told.')
        return parser

    def render_rows(self, session: Any, args: argparse.Namespace) -> Iterable[command.Row]:
        for listed_plan in stored_views.list_plans(session, args.scope, args.limit):
            row, plan = listed_plan.row, listed_plan.row.plan
            yield (row.plan_id, tools.format_printable(plan.scope),
                   times.format_time(row.created_at), row.dry_run, len(plan.moves),
                   'dry run' if row.dry_run and args.formatter == 'table' else
                   listed_plan.task_states, plan.measured_imbalance, plan.combined_after,
                   tools.format_printable(plan.reason or ''),
                   tools.format_printable(listed_plan.asked_by))


class ShowPlan(database_command.ShowStored):
    """A plan with its moves, the state of each, and the rejected candidates, by rule."""

    kind = 'plan'

    def read_record(self, session: Any, uuid: str, nested: bool) -> database_command.Shown:
        return _render_plan(stored_views.read_plan(session, uuid), nested)


def _render_plan(stored_plan: Any, nested: bool) -> database_command.Shown:
    row, plan = stored_plan.row, stored_plan.row.plan
    of = {t.task.instance_uuid: t for t in stored_plan.tasks}
    moves: Any = [_render_move(m, of.get(m.instance_uuid)) for m in plan.moves]
    rejections: Any = dict(sorted(plan.rejections.items()))
    if not nested:
        moves = '\n'.join(map(plan_lines.format_move, moves))
        rejections = plan_lines.format_rejections(rejections)
    return (
        'Plan', 'Scope', 'Created at', 'Dry run', 'Reason', 'Imbalance before',
        'Imbalance foreseen', 'Imbalance realised', 'Policies', 'Moves', 'Rejections', 'Held',
        'Draining', 'Undrained', 'Warnings', 'Truncated', 'Decisions', 'Swaps'), (
        row.plan_id, tools.format_printable(plan.scope), times.format_time(row.created_at),
        row.dry_run, tools.format_printable(plan.reason or ''), plan.measured_imbalance,
        plan.combined_after, stored_plan.realised,
        plan_text.format_policies(plan.policies, nested), moves, rejections,
        plan_text.format_texts([rejection.detail for rejection in plan.held], nested),
        plan_text.format_texts(sorted(plan.draining), nested),
        plan_text.format_texts([rejection.detail for rejection in plan.undrained], nested),
        plan_text.format_texts(plan.warnings, nested), plan.truncated,
        [_render_decision(d) for d in stored_plan.decisions] if nested else '\n'.join(
            plan_lines.format_decision(_render_decision(d)) for d in stored_plan.decisions),
        _format_swaps(plan, stored_plan.swaps, nested))


def _format_swaps(plan: Any, swaps: Sequence[Any], nested: bool) -> Any:
    """Return the state of each swap, and the plans that undo it.

    A dry run has only the planned swaps.
    """
    swap_states = [{'instances': [m.instance_uuid for m in swap.members], 'state': swap.state,
                    'undos': list(swap.undos)} for swap in swaps]
    swap_states = swap_states or [{'instances': [swap.first, swap.second], 'state': 'planned',
                                   'undos': []}
                                  for swap in plan.swaps]
    return swap_states if nested else '\n'.join(map(plan_lines.format_swap, swap_states))


def _render_decision(decision: Any) -> dict[str, Any]:
    """Return an operator's decision on the plan, as printable fields."""
    return {'verb': decision.verb, 'tasks': decision.tasks,
            'decided_at': times.format_time(decision.decided_at),
            'decided_by': tools.format_printable(decision.decided_by),
            'reason': tools.format_printable(decision.reason)}


def _render_move(move: Any, task: Any) -> dict[str, Any]:
    """Return a move and the state of its task; a dry run has no tasks."""
    return {
        **plan_text.build_move_effects(move), 'instance_uuid': move.instance_uuid,
        'phase': str(move.phase),
        'wave': move.wave, 'improvement': move.improvement, 'requires': list(move.requires),
        'alternates': [tools.format_printable(host) for host in move.alternates],
        'task_id': None if task is None else task.task.task_id,
        'state': None if task is None else str(task.task.state),
        'method': None if task is None else str(task.task.method)}


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
            for task in self.record_decision(session, parsed_args.plan,
                                             printable.format_single_line(parsed_args.reason),
                                             parsed_args.move):
                sys.stdout.write(f'Task {task.task_id} of instance {task.instance_uuid} is '
                                 f'{self.past}.\n')

        self.run_in_session(parsed_args, apply_decision)

    def record_decision(self, session: Any, plan: str, reason: str,
                        instances: Sequence[str]) -> list[Any]:
        """Return the tasks that the decision concerned."""
        raise NotImplementedError


class ApprovePlan(DecisionCommand):
    """Let a plan begin that waits for approval, or some of its moves.

    Executors take it up within their poll_interval. Each move is checked against what Nova
    and Placement say then.
    """

    past, reason_help = 'approved', None
    examples = ('PLAN', 'PLAN --move INSTANCE --move INSTANCE')

    def record_decision(self, session: Any, plan: str, reason: str,
                        instances: Sequence[str]) -> list[Any]:
        result = operator_decisions.approve_plan(session, plan, reason=reason,
                                                 instances=instances)
        for task in result.waiting:
            sys.stdout.write(
                f'Task {task.task_id} of instance {task.instance_uuid} has your approval and waits '
                f'for that of {plurals.count_noun(result.missing, "other person", "other people")}'
                '.\n')
        if result.scope_without_executor is not None:
            scope = tools.format_printable(result.scope_without_executor)
            sys.stderr.write(f'{self.prog}: warning: '
                             f'{plan_lines.NO_EXECUTOR.format(scope)}.\n')
        return result.tasks


class RejectPlan(DecisionCommand):
    """Drop a plan that waits for approval, or some of its moves.

    What requires a rejected move goes with it. The instances cool down, so that the next
    cycle does not plan the same.
    """

    past = 'rejected'
    examples = ('PLAN --reason "not in office hours"',
                'PLAN --move INSTANCE --reason "its owner asked"')

    def record_decision(self, session: Any, plan: str, reason: str,
                        instances: Sequence[str]) -> list[Any]:
        return operator_decisions.reject_plan(session, plan, reason=reason, instances=instances)


class CancelPlan(DecisionCommand):
    """End all of a plan that Nova has not been asked for, or some of its moves.

    What requires a cancelled move goes with it; the instances cool down. What Nova has been
    asked for is aborted in Nova; that is respected, too.
    """

    past = 'cancelled'
    examples = ('PLAN --reason "the rack is being worked on"',)

    def record_decision(self, session: Any, plan: str, reason: str,
                        instances: Sequence[str]) -> list[Any]:
        return operator_decisions.cancel_plan(session, plan, reason=reason, instances=instances)
