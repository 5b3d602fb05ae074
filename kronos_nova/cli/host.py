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

"""``kronos host list`` and ``kronos instance show``: the cloud as a cycle sees it."""

import argparse
from collections.abc import Iterable
import sys
from typing import Any

from cliff import show

from kronos_nova.cli import command
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import cloud_views
from kronos_nova.text import times
from kronos_nova.wiring import tools


class ListHosts(command.TableCommand):
    """Hosts with their scores by policy, the part that no instance explains, and their state.

    Reads the cloud as a planning cycle does, or a snapshot. Standard error says why scores are
    missing or not trusted; the exit status is 1 then.
    """

    columns = ('Host', 'Scope', 'State', 'Instances', 'Policies')
    examples = ('', '--scope ssd -f json')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        command.add_snapshot(parser)
        command.add_scope(parser)
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        nested = command.is_nested_format(args)
        with self.open_session(cloud_state.Session, args) as session:
            scopes = cloud_views.list_hosts(session, args.scope)
        for scope_hosts in scopes:
            for reason in scope_hosts.untrusted:
                self.status = 1
                sys.stderr.write(tools.format_printable(
                    f'kronos host list: scope {scope_hosts.scope}: scores are not trusted: '
                    f'{reason}') + '\n')
            for host in scope_hosts.hosts:
                state = [tools.format_printable(text) for text in host.state]
                yield (tools.format_printable(host.name), tools.format_printable(scope_hosts.scope),
                       state if nested else ', '.join(state), host.instances,
                       _format_loads(host.loads, nested))


class ShowInstance(command.BaseCommand, command.FittedDisplay, show.ShowOne):
    """An instance with its share of its host, what holds it, its server groups and its tasks.

    Reads the cloud as a planning cycle does, or a snapshot, which has no tasks.
    """

    examples = ('UUID',)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('instance', metavar='UUID', help='Of the instance.')
        command.add_snapshot(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], command.Row]:
        shown: list[tuple[str, Any]] = []

        def read_fields() -> None:
            with self.open_session(cloud_state.Session, parsed_args) as session:
                instance_state = cloud_views.read_instance(session, parsed_args.instance)
            shown.extend(_render_fields(instance_state, command.is_nested_format(parsed_args)))

        self.run_guarded(read_fields)
        return tuple(name for name, _ in shown), command.format_cells(
            parsed_args, (value for _, value in shown))


def _format_loads(loads: Iterable[Any], nested: bool) -> Any:
    if nested:
        return [{'name': tools.format_printable(of.policy), 'score': of.score, 'fill': of.fill,
                 'base': of.base, 'coverage': of.coverage} for of in loads]
    return '\n'.join(
        f'{tools.format_printable(of.policy)}: ' + (
            'no score' if of.score is None else
            f'{of.score:.4f}' + ('' if of.base is None else f', base {of.base:.4f}')
            + ('' if of.coverage is None else f', explained {100 * of.coverage:.0f} %'))
        for of in loads)


def _format_usage(usage: float) -> str:
    """Write a usage in the unit of its query, with no exponent."""
    return f'{usage:,.0f}'.replace(',', ' ') if abs(usage) >= 1000 else f'{usage:.4g}'


def _render_fields(instance_state: Any, nested: bool) -> Iterable[tuple[str, Any]]:
    portrait, of = instance_state.portrait, instance_state.portrait.instance
    yield 'Instance', of.uuid
    yield 'Scope', tools.format_printable(instance_state.scope)
    yield 'Host', tools.format_printable(of.host)
    yield 'Status', of.status
    yield 'Memory MB', of.memory_mb
    yield 'VCPUs', of.vcpus
    yield 'Usage', [{'name': tools.format_printable(s.policy), 'usage': s.usage, 'ratio': s.ratio}
                    for s in portrait.shares] if nested else '\n'.join(
        f'{tools.format_printable(s.policy)}: ' + (
            'not known' if s.usage is None else _format_usage(s.usage)
            + ('' if s.ratio is None else f', {s.ratio:.4f} of the host'))
        for s in portrait.shares)
    yield 'Held', [{'rule': rejection.rule, 'detail': tools.format_printable(rejection.detail)}
                   for rejection in portrait.held
                   ] if nested else '\n'.join(
        f'{rejection.rule}: {tools.format_printable(rejection.detail)}'
        for rejection in portrait.held)
    yield 'Scope held', ([tools.format_printable(text) for text in portrait.holds] if nested else
                         '\n'.join(map(tools.format_printable, portrait.holds)))
    yield 'Next move', _format_next_move(portrait, instance_state.now)
    yield 'Server groups', [
        {'uuid': uuid, 'policy': policy,
         'members': {tools.format_printable(host): n for host, n in places.items()}}
        for uuid, (policy, places) in portrait.groups.items()] if nested else '\n'.join(
        f'{uuid} ({policy}): ' + ', '.join(f'{n} on {tools.format_printable(host)}'
                                           for host, n in places.items())
        for uuid, (policy, places) in portrait.groups.items())
    yield 'Tasks', [_render_task(row) for row in instance_state.tasks] if nested else '\n'.join(
        '{at} {from_host} to {to_host}: {phase}, {state}, task {task_id}'.format_map(
            _render_task(row))
        for row in instance_state.tasks)


def _format_next_move(portrait: Any, now: float) -> str:
    """Return when the instance may be moved for balance.

    Only the holds of the instance and of its scope count.
    """
    if portrait.wait is None:
        ends = {rejection.rule for rejection in portrait.held} <= {
            'in-flight', 'cooling', 'just-booted', 'placement-refuses-everywhere'}
        return ('not before that is over' if ends else 'not before that is changed')
    if portrait.wait:
        at = times.format_time(now + portrait.wait)
        return f'{at}, if its scope is not held then' if portrait.holds else at
    return 'when its scope is not held' if portrait.holds else 'now'


def _render_task(row: Any) -> dict[str, Any]:
    task = row.task
    return {'task_id': task.task_id, 'plan_id': task.plan_id, 'phase': str(task.phase),
            'state': str(task.state), 'from_host': tools.format_printable(task.from_host),
            'to_host': tools.format_printable(task.to_host),
            'at': times.format_time(row.completed_at or task.created_at),
            'error': None if row.error is None else tools.format_printable(row.error)}
