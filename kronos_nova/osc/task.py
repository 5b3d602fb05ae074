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

"""``openstack rebalance task``: list, show, cancel and resolve."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import references
from kronos_nova.osc import waits
from kronos_nova.osc.columns import Column
from kronos_nova.text import task_lines

#: States of a task that is not over.
OPEN = ('pending', 'queued', 'claimed', 'submitting', 'submitted', 'unknown')
STATES = (*OPEN, *waits.TERMINAL)


def format_doubt(task: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    """Return the cell with the doubt about a task, and since when."""
    doubt = task['doubt']
    return columns.Cell(doubt, '' if doubt is None else task_lines.format_doubt(
        doubt, columns.format_time(task['doubt_since'])))


def format_retries(task: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    """Return the cell with the number of repeated attempts."""
    return columns.Cell(task['retry_count'], task_lines.format_retries(
        task['retry_count'], task['max_retries']))


def _format_attempt(attempt: Mapping[str, Any]) -> str:
    return task_lines.format_attempt({
        **attempt, 'started_at': columns.format_time(attempt['started_at']),
        'ended_at': columns.format_time(attempt['ended_at']),
        'migration_uuid': attempt['migration_id'], 'phases': attempt['phase_seconds']})


def _format_step(step: Mapping[str, Any]) -> str:
    return task_lines.format_step({**step, 'at': columns.format_time(step['at'])})


def _format_hook(hook: Mapping[str, Any]) -> str:
    return task_lines.format_owed_hook(hook['hook'], hook['to_host'],
                                       columns.format_time(hook['begun_at']), hook['tries'],
                                       hook['error'])


class ListTasks(command.ListResources):
    """List tasks that are not over, those of the newest plan first."""

    columns = (
        Column('ID', columns.read_text('id')),
        Column('Instance', columns.read_name('instance_name', 12)),
        Column('From', columns.read_name('from_host', 12)),
        Column('To', columns.read_name('to_host', 12)),
        Column('State', columns.read_text('state')),
        Column('Instance ID', columns.read_text('instance_id'), long=True),
        Column('Scope', columns.read_name('scope', 12), long=True),
        Column('Plan', columns.read_text('plan_id'), long=True),
        Column('Phase', columns.read_text('phase'), long=True),
        Column('Method', columns.read_text('method'), long=True),
        Column('Wave', columns.read_text('wave'), long=True),
        Column('Not Before', columns.read_time('not_before'), long=True),
        Column('Submitted At', columns.read_time('submitted_at'), long=True),
        Column('Completed At', columns.read_time('completed_at'), long=True),
        Column('Retries', format_retries, long=True),
        Column('Doubt', format_doubt, long=True),
        Column('Error', columns.read_text('error'), long=True))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--plan', metavar='<plan>',
                            help='Only of this plan: its UUID, or the beginning that no other plan '
                                 'has.')
        parser.add_argument('--instance', metavar='<instance>', type=command.parse_text,
                            help='Only of the instance with this UUID, or of instances with this '
                                 'name.')
        group = parser.add_mutually_exclusive_group()
        group.add_argument('--state', metavar='<state>', choices=STATES, action='append',
                           help=f'Only in this state: {", ".join(STATES)}; repeatable.')
        group.add_argument('--all', action='store_true', help='Also tasks that are over.')
        command.add_page_options(parser, 100)
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        plan = None if args.plan is None else references.find_id(self.client, 'plan', args.plan)
        return self.list_page(args, '/v1/tasks', 'tasks', {
            'scope': args.scope, 'plan': plan, 'instance': args.instance,
            'state': None if args.all else args.state or OPEN,
            'changes-since': args.changes_since})


class ShowTask(command.ShowResource):
    """Show a task with its alternates and every attempt."""

    fields = (
        Column('id', columns.read_text('id')), Column('plan_id', columns.read_text('plan_id')),
        Column('scope', columns.read_text('scope')),
        Column('instance_id', columns.read_text('instance_id')),
        Column('instance_name', columns.read_text('instance_name')),
        Column('from_host', columns.read_text('from_host')),
        Column('to_host', columns.read_text('to_host')),
        Column('state', columns.read_text('state')),
        Column('phase', columns.read_text('phase')), Column('method', columns.read_text('method')),
        Column('wave', columns.read_text('wave')),
        Column('memory_mib', columns.read_text('memory_mib')),
        Column('disk_gib', columns.read_text('disk_gib')),
        Column('created_at', columns.read_time('created_at')),
        Column('updated_at', columns.read_time('updated_at')),
        Column('not_before', columns.read_time('not_before')),
        Column('submitted_at', columns.read_time('submitted_at')),
        Column('completed_at', columns.read_time('completed_at')),
        Column('retries', format_retries),
        Column('error_type', columns.read_text('error_type')),
        Column('error', columns.read_text('error')), Column('doubt', format_doubt),
        Column('improvement', columns.read_text('improvement')),
        Column('policies', columns.read_lines('policies')),
        Column('requires', columns.read_lines('requires')),
        Column('alternates', columns.read_lines('alternates', task_lines.format_alternate)),
        Column('migration_id', columns.read_text('migration_id')),
        Column('attempts', columns.read_lines('attempts', _format_attempt)),
        Column('escalation', columns.read_lines('escalation', _format_step)),
        Column('pending_hooks', columns.read_lines('pending_hooks', _format_hook)))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_task(parser)
        waits.add_options(parser)
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        task_id = references.find_id(self.client, 'task', args.task)

        def read_task() -> Any:
            return self.client.send('GET', f'/v1/tasks/{task_id}')

        if not (args.wait or args.watch):
            return dict(read_task())
        (task,) = waits.wait_for_tasks(self.client, lambda: [read_task()], args, self.stderr)
        self.status = int(waits.have_failed([task]))
        return task


class EndedTasks(command.ListResources):
    """A list of the tasks that a decision has changed."""

    columns = (
        Column('ID', columns.read_text('id')),
        Column('Instance ID', columns.read_text('instance_id')),
        Column('State', columns.read_text('state')),
        Column('Plan', columns.read_text('plan_id'), long=True),
        Column('From', columns.read_name('from_host', 12), long=True),
        Column('To', columns.read_name('to_host', 12), long=True))


class CancelTask(EndedTasks):
    """Cancel a task that has not begun, and the tasks that require it.

    Nova aborts what Nova was asked for (openstack server migration abort); executors respect
    that.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_task(parser)
        command.add_reason(parser)
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        task_id = references.find_id(self.client, 'task', args.task)
        answer = self.client.send('POST', f'/v1/tasks/{task_id}/cancel',
                                  body={'reason': args.reason})
        return list(answer['tasks'])


class ResolveTask(EndedTasks):
    """End a task that Nova was asked for and never finishes.

    First look where the instance is (openstack server show), and make sure that no migration of
    it runs. Nothing changes in Nova. The list has the tasks that are cancelled as they required
    this one.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_task(parser)
        parser.add_argument('--state', metavar='<state>', required=True,
                            choices=('completed', 'failed'),
                            help='completed: the instance is on its destination; failed: it is '
                                 'not.')
        command.add_reason(parser)
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        task_id = references.find_id(self.client, 'task', args.task)
        answer = self.client.send('POST', f'/v1/tasks/{task_id}/resolve',
                                  body={'state': args.state, 'reason': args.reason})
        return list(answer['tasks'])


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('task', metavar='<task>',
                        help='UUID of the task, or the beginning that no other task has.')
