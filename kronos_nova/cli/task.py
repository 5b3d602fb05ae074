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

"""``kronos task list``, ``show``, ``cancel`` and ``resolve``: tasks and their attempts."""

import argparse
from collections.abc import Iterable
import sys
from typing import Any

from kronos_nova.cli import command
from kronos_nova.cli import database_command
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import migration_uncertainty
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.text import printable
from kronos_nova.text import task_lines
from kronos_nova.text import times
from kronos_nova.wiring import tools


class ListTasks(database_command.DatabaseTable):
    """Tasks that are not over, in the order in which they begin.

    Error also has an executor's doubts about a task that Nova was asked for, and since when. With
    --all, the newest tasks that are over follow, newest first.
    """

    columns = ('Task', 'Scope', 'Instance', 'From', 'To', 'Phase', 'Method', 'State',
               'Not before', 'Error')
    wide = frozenset({'Instance', 'Phase', 'Method', 'Not before'})
    examples = ('', '--all --limit 20')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--all', action='store_true', dest='ended',
                            help='Also the newest tasks that are over.')
        parser.add_argument('--limit', type=database_command.parse_limit, default=100, metavar='N',
                            help='How many tasks to show; 100 by default.')
        return parser

    def render_rows(self, session: Any, args: argparse.Namespace) -> Iterable[command.Row]:
        for row in stored_views.list_tasks(session, args.limit if args.ended else 0):
            task = row.task
            yield command.format_printable_row((
                task.task_id, task.aggregate, task.instance_uuid, task.from_host, task.to_host,
                task.phase, task.method, row.task.state, times.format_time(task.not_before),
                '; '.join(text for text in (row.error, _format_doubt(row)) if text)))


class ShowTask(database_command.ShowStored):
    """A task with its alternates and every attempt, also one that is over."""

    kind = 'task'

    def read_record(self, session: Any, uuid: str, nested: bool) -> database_command.Shown:
        row, owed = stored_views.read_task(session, uuid)
        return _render_task(row, nested, owed)


def _format_doubt(row: Any) -> str:
    doubt = migration_uncertainty.describe_doubt(row)
    return '' if doubt is None else task_lines.format_doubt(
        doubt, times.format_time(row.doubt_since))


def _format_owed_hook(owed_hook: Any) -> str:
    """Return a hook that has begun and has not ended, as a line of text."""
    return task_lines.format_owed_hook(
        owed_hook.hook.name, owed_hook.task.to_host, times.format_time(owed_hook.begun_at),
        owed_hook.tries, owed_hook.error)


def _render_task(row: Any, nested: bool, owed: Iterable[Any] = ()) -> database_command.Shown:
    task = row.task
    scores = list(task.alternate_improvements) + [None] * len(task.alternates)
    alternates: Any = [
        {'host': tools.format_printable(host), 'improvement': score}
        for host, score in zip(task.alternates, scores, strict=False)]
    attempts: Any = [
        {'to_host': tools.format_printable(a.to_host),
         'started_at': times.format_time(a.started_at),
         'ended_at': times.format_time(a.ended_at), 'error_type': a.error_type,
         'error': None if a.error is None else tools.format_printable(a.error),
         'migration_uuid': a.migration_uuid, 'phases': dict(a.phases)} for a in row.attempts]
    steps: Any = [{'kind': str(step.kind), 'at': times.format_time(step.at),
                   'reason': step.reason,
                   'answer': None if step.answer is None else tools.format_printable(step.answer),
                   'seconds': step.seconds, 'expected_seconds': step.expected_seconds}
                  for step in row.escalation]
    hooks: Any = [_format_owed_hook(owed_hook) for owed_hook in owed]
    if not nested:
        hooks = '\n'.join(hooks)
        steps = '\n'.join(map(task_lines.format_step, steps))
        alternates = '\n'.join(map(task_lines.format_alternate, alternates))
        attempts = '\n'.join(map(task_lines.format_attempt, attempts))
    return (
        'Task', 'Plan', 'Scope', 'Instance', 'From', 'To', 'Improvement', 'Alternates', 'Phase',
        'Method', 'State', 'Doubt', 'Nova migration', 'Next step', 'Owed hooks',
        'Escalation', 'Retries', 'Error', 'Attempts'), (
        task.task_id, task.plan_id, tools.format_printable(task.aggregate), task.instance_uuid,
        tools.format_printable(task.from_host), tools.format_printable(task.to_host),
        task.improvement, alternates,
        str(task.phase), str(task.method), str(task.state), _format_doubt(row),
        stored_views.find_migration(row), stored_views.describe_next_step(row), hooks, steps,
        task_lines.format_retries(task.retry_count, task.max_retries),
        tools.format_printable(row.error or ''), attempts)


class CancelTask(database_command.DatabaseCommand):
    """End a task that has not begun, and those that required it.

    The instance cools down, so that the next cycle does not plan the same. What
    Nova has been asked for is aborted in Nova; that is respected, too.
    """

    examples = ('TASK --reason "after the weekend"',)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('task', help='Its UUID; see kronos task list.')
        parser.add_argument('--reason', required=True, metavar='TEXT',
                            help='Why; it is kept with the task.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        def apply_cancellation(session: Any) -> None:
            for task in operator_decisions.cancel_task(
                    session, parsed_args.task,
                    reason=printable.format_single_line(parsed_args.reason)):
                sys.stdout.write(f'Task {task.task_id} of instance {task.instance_uuid} is '
                                 'cancelled.\n')

        self.run_in_session(parsed_args, apply_cancellation)


class ResolveTask(database_command.DatabaseCommand):
    """End a task that Nova was asked for and never finishes.

    First look where the instance is (openstack server show), and make sure that no migration of the
    instance runs. The task ends as you say, its slots are free, and the instance cools down;
    nothing changes in Nova. Tasks that require a failed task are cancelled. The plan keeps who
    resolved the task, when and why.
    """

    examples = ('TASK --as failed --reason "compute-07 is lost, see CHG-17"',)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('task', metavar='TASK', help='Its UUID; see kronos task list.')
        parser.add_argument('--as', dest='state', required=True, choices=('completed', 'failed'),
                            help='completed: the instance is on its destination; failed: it is '
                                 'not.')
        parser.add_argument('--reason', required=True, metavar='TEXT',
                            help='Why; the plan keeps it.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        def apply_resolution(session: Any) -> None:
            cancelled = operator_decisions.resolve_task(
                session, parsed_args.task, TaskState(parsed_args.state),
                reason=printable.format_single_line(parsed_args.reason))
            sys.stdout.write(f'Task {parsed_args.task} is resolved as {parsed_args.state}.\n')
            for task in cancelled:
                sys.stdout.write(f'Task {task.task_id} of instance {task.instance_uuid} is '
                                 'cancelled.\n')

        self.run_in_session(parsed_args, apply_resolution)
