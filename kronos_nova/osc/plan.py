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

"""``openstack rebalance plan``: list, show, approve, reject, cancel, retry and revert."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from osc_lib import exceptions

from kronos_nova import plurals
from kronos_nova.osc import client
from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import plan_fields
from kronos_nova.osc import policy_fields
from kronos_nova.osc import references
from kronos_nova.osc import task
from kronos_nova.osc import waits
from kronos_nova.osc.columns import Column
from kronos_nova.text import plan_lines
from kronos_nova.text import widths

_NEWEST = 'The newest plan.'


def _count_tasks(plan: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    """Return the cell with the numbers of tasks by state; a dry run has none."""
    states, moves = plan['task_states'], plan['move_count']
    text = columns.format_counts(states) or (
        f'dry run, {plurals.count_noun(moves, "move")}' if plan['dry_run'] and moves else
        plurals.count_noun(moves, 'move') if moves else 'no moves')
    return columns.Cell(states, widths.wrap_text(text, 19))


def _format_decision(decision: Mapping[str, Any]) -> str:
    return plan_lines.format_decision({
        **decision, 'tasks': decision['task_count'],
        'decided_at': columns.format_time(decision['decided_at'])})


def _format_swap(swap: Mapping[str, Any]) -> str:
    return plan_lines.format_swap({**swap, 'instances': swap['instance_ids'],
                                   'undos': swap['undo_plan_ids']})


def _format_rejection(rejection: Mapping[str, Any]) -> str:
    return str(rejection['detail'])


def _format_rejections(plan: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    return columns.Cell(plan['rejections'], plan_lines.format_rejections(plan['rejections']))


class ListPlans(command.ListResources):
    """List plans, newest first."""

    columns = (
        Column('ID', columns.read_text('id')),
        Column('Scope', columns.read_name('scope', 12)),
        Column('Created At', columns.read_time('created_at')),
        Column('Tasks', _count_tasks),
        Column('Moves', columns.read_text('move_count'), long=True),
        Column('Dry Run', columns.read_text('dry_run'), long=True),
        Column('Imbalance Measured', columns.read_text('imbalance_measured'), long=True),
        Column('Imbalance Predicted', columns.read_text('imbalance_predicted'), long=True),
        Column('Requested By', columns.read_text('requested_by'), long=True),
        Column('Reason', columns.read_text('reason'), long=True))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        command.add_page_options(parser, 20)
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return self.list_page(args, '/v1/plans', 'plans', {
            'scope': args.scope, 'changes-since': args.changes_since})


class ShowPlan(command.ShowResource):
    """Show a plan with its moves, the task of each, and the decisions of operators."""

    fields = (
        Column('id', columns.read_text('id')), Column('scope', columns.read_text('scope')),
        Column('created_at', columns.read_time('created_at')),
        Column('requested_by', columns.read_text('requested_by')),
        Column('dry_run', columns.read_text('dry_run')),
        Column('reason', columns.read_text('reason')),
        Column('imbalance_measured', columns.read_text('imbalance_measured')),
        Column('imbalance_predicted', columns.read_text('imbalance_predicted')),
        Column('imbalance_realised', columns.read_text('imbalance_realised')),
        Column('policies', columns.read_lines('policies', policy_fields.format_change)),
        Column('task_states', columns.read_counts('task_states', command.WIDTH)),
        Column('moves', columns.read_lines('moves', plan_fields.format_move)),
        Column('rejections', _format_rejections),
        Column('held', columns.read_lines('held', _format_rejection)),
        Column('draining', columns.read_lines('draining')),
        Column('undrained', columns.read_lines('undrained', _format_rejection)),
        Column('warnings', columns.read_lines('warnings')),
        Column('truncated', columns.read_text('truncated')),
        Column('decisions', columns.read_lines('decisions', _format_decision)),
        Column('swaps', columns.read_lines('swaps', _format_swap)))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        references.add_plan(parser, _NEWEST)
        waits.add_options(parser)
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        plan_id = references.find_plan(self.client, args)
        if args.wait or args.watch:
            tasks = waits.wait_for_tasks(
                self.client, lambda: read_tasks(self.client, plan_id), args, self.stderr)
            self.status = int(waits.have_failed(tasks))
        return dict(self.client.send('GET', f'/v1/plans/{plan_id}'))


class PlanDecision(task.EndedTasks):
    """A decision on a plan.

    ``verb``: the end of its address. ``states``: of the tasks that it can concern, by which
    ``--latest`` chooses the plan.
    """

    verb: str
    states: tuple[str, ...]
    reason_required = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        references.add_plan(
            parser, f'The newest plan with a task that is {" or ".join(self.states)}. An engine '
                    'may have made it after you looked: name the plan to be sure.')
        parser.add_argument('--instance', metavar='<instance>', action='append', default=[],
                            help='Only the move of the instance with this UUID, or the beginning '
                                 'that no other instance of the plan has; repeatable.')
        command.add_reason(parser, self.reason_required)
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        plan_id = references.find_plan(self.client, args, self.states)
        answer = self.client.send('POST', f'/v1/plans/{plan_id}/{self.verb}', body={
            'instances': find_instances(self.client, plan_id, args.instance),
            'reason': args.reason})
        return self.follow_up(args, plan_id, answer)

    def follow_up(self, args: argparse.Namespace, plan_id: str,
                  answer: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """Return the tasks to list after the decision."""
        return list(answer['tasks'])


class ApprovePlan(PlanDecision):
    """Let a plan that waits for approval begin, or some of its moves.

    Executors begin within their poll_interval. Each move is checked against what Nova and
    Placement say then.
    """

    verb, states, reason_required = 'approve', ('pending',), False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        waits.add_options(parser)
        return parser

    def follow_up(self, args: argparse.Namespace, plan_id: str,
                  answer: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        waiting, missing = answer['waiting_tasks'], answer['approvals_missing']
        tasks: Sequence[client.Document] = [*answer['tasks'], *waiting]
        if waiting:
            self.warn(f'{plurals.count_noun(len(waiting), "task")} '
                      f'{plurals.choose_form(len(waiting), "has", "have")} your approval and '
                      f'{plurals.choose_form(len(waiting), "waits", "wait")} for that of '
                      f'{plurals.count_noun(missing, "other person", "other people")}.')
        if answer['scope_without_executor'] is not None:
            self.warn('warning: '
                      f'{plan_lines.NO_EXECUTOR.format(answer["scope_without_executor"])}.')
        if args.wait or args.watch:
            concerned = {row['id'] for row in tasks}
            tasks = waits.wait_for_tasks(
                self.client, lambda: [row for row in read_tasks(self.client, plan_id)
                                      if row['id'] in concerned], args, self.stderr)
            self.status = int(waits.have_failed(tasks))
        return tasks


class RejectPlan(PlanDecision):
    """Reject a plan that waits for approval, or some of its moves.

    Moves that require a rejected move are rejected, too. The instances cool down, so that the next
    cycle does not plan the same.
    """

    verb, states = 'reject', ('pending',)


class CancelPlan(PlanDecision):
    """Cancel all tasks of a plan that have not begun, or those of some instances.

    Tasks that require a cancelled task are cancelled, too; the instances cool down. Nova aborts
    what Nova was asked for (openstack server migration abort); executors respect that.
    """

    verb, states = 'cancel', ('pending', 'queued')


class OrderMoves(command.ListResources):
    """An order of moves that a plan has made or tried.

    ``verb``: the end of its address. ``states``: of the tasks that it can concern, by which
    ``--latest`` chooses the plan.
    """

    verb: str
    states: tuple[str, ...]
    columns = (
        Column('Instance ID', columns.read_text('instance_id')),
        Column('From', columns.read_name('from_host', 11)),
        Column('To', columns.read_name('to_host', 11)),
        Column('Verdict', columns.read_sentence('verdict', 26)),
        Column('Task', columns.read_text('task_id'), long=True),
        Column('Plan', columns.read_text('plan_id'), long=True))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        references.add_plan(
            parser, f'The newest plan with a task that is {" or ".join(self.states)}. An engine '
                    'may have made it after you looked: name the plan to be sure.')
        parser.add_argument('--instance', metavar='<instance>', action='append', default=[],
                            help='Only the move of the instance with this UUID, or the beginning '
                                 'that no other instance of the plan has; repeatable.')
        parser.add_argument('--partly', action='store_true',
                            help='Order the allowed moves also if the rules refuse others.')
        parser.add_argument('--dry-run', action='store_true',
                            help='Show the verdicts, and order nothing.')
        command.add_reason(parser)
        waits.add_options(parser)
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        if args.dry_run and (args.wait or args.watch):
            raise exceptions.CommandError('--dry-run: it orders no task to wait for; leave --wait '
                                          'and --watch out')
        plan_id = references.find_plan(self.client, args, self.states)
        answer = self.client.send('POST', f'/v1/plans/{plan_id}/{self.verb}', body={
            'instances': find_instances(self.client, plan_id, args.instance),
            'reason': args.reason, 'partly': args.partly, 'dry_run': args.dry_run})
        for warning in answer['warnings']:
            self.warn(f'warning: {warning}')
        ordered = answer['plan_id']
        if ordered is not None:
            missing = answer['approvals_missing']
            self.warn(f'Plan {ordered} is stored' + (
                ', and waits for the approval of '
                f'{plurals.count_noun(missing, "other person", "other people")}.'
                if missing else '.'))
            if args.wait or args.watch:
                tasks = waits.wait_for_tasks(
                    self.client, lambda: read_tasks(self.client, ordered), args, self.stderr)
                self.status = int(waits.have_failed(tasks))
        elif not args.dry_run:
            self.status = 1
            self.warn('Nothing is ordered: the rules refuse moves, as the verdicts say. --partly '
                      'orders those that they allow.')
        return [{**move, 'plan_id': ordered} for move in answer['moves']]


class RetryPlan(OrderMoves):
    """Try the moves of a plan again that failed or were cancelled, by the rules of now.

    Each goes to the first of its destinations that the rules allow, those that were tried last.
    Without --partly all are ordered or none. The exit status is 1 when nothing is ordered.
    """

    verb, states = 'retry', ('failed', 'cancelled')


class RevertPlan(OrderMoves):
    """Move back the instances that a plan has moved, by the rules of now.

    Without --partly all are ordered or none. The exit status is 1 when nothing is ordered.
    """

    verb, states = 'revert', ('completed',)


def read_tasks(rebalance: client.RebalanceClient, plan_id: str) -> list[client.Document]:
    """Return all tasks of a plan."""
    return list(rebalance.list_rows('/v1/tasks', 'tasks', {'plan': plan_id}))


def find_instances(rebalance: client.RebalanceClient, plan_id: str,
                   wanted: Sequence[str]) -> list[str]:
    """Return the UUIDs of instances of a plan, which the operator may have shortened."""
    if not wanted:
        return []
    plan = rebalance.send('GET', f'/v1/plans/{plan_id}')
    ids = [move['instance_id'] for move in plan['moves']]
    for text in wanted:
        references.check_beginning('instance', text.lower()[:35])
    return [references.choose_id('instance', text.lower(), ids,
                                 f'openstack rebalance plan show {plan_id}') for text in wanted]
