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
from typing import Any

from cliff import lister
from cliff import show

Row = tuple[Any, ...]


class ListHosts(lister.Lister):
    """Hosts with their scores by policy, the part that no instance explains, and their state.

    Reads the cloud as a planning cycle does, or a snapshot.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _parser(super().get_parser(prog_name))
        parser.add_argument('--scope', metavar='NAME',
                            help='An aggregate, or _unassigned_. Default: all.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Row, list[Row]]:
        from kronos_nova.cmd import _tool

        nested = parsed_args.formatter in ('json', 'yaml')
        rows: list[Row] = []

        def run() -> int:
            from kronos_nova.cli import _look

            for scope, found in _look.hosts(parsed_args):
                for host in found:
                    state = [_tool.shown(text) for text in host.state]
                    rows.append((_tool.shown(host.name), _tool.shown(scope),
                                 state if nested else ', '.join(state), host.instances,
                                 _loads(host.loads, nested)))
            return 0

        if status := _tool.guarded('kronos host list', run):
            raise SystemExit(status)
        return ('Host', 'Scope', 'State', 'Instances', 'Policies'), rows


class ShowInstance(show.ShowOne):
    """An instance with its share of its host, what holds it, its server groups and its tasks.

    Reads the cloud as a planning cycle does, or a snapshot, which has no tasks.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _parser(super().get_parser(prog_name))
        parser.add_argument('instance', metavar='UUID', help='Of the instance.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Row, Row]:
        from kronos_nova.cmd import _tool

        nested = parsed_args.formatter in ('json', 'yaml')
        shown: list[tuple[str, Any]] = []

        def run() -> int:
            from kronos_nova.cli import _look

            shown.extend(_fields(_look.instance(parsed_args), nested))
            return 0

        if status := _tool.guarded('kronos instance show', run):
            raise SystemExit(status)
        return tuple(name for name, _ in shown), tuple(value for _, value in shown)


def _parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument('--config-file', action='append', default=[], metavar='FILE',
                        help='kronos.conf; repeatable.')
    parser.add_argument('--snapshot', metavar='DIR',
                        help='Of this one, not the cloud: as kronos-record or SIGUSR1 to '
                             'kronos-engine wrote it.')
    return parser


def _loads(loads: Iterable[Any], nested: bool) -> Any:
    from kronos_nova.cmd import _tool

    if nested:
        return [{'name': _tool.shown(of.policy), 'score': of.score, 'fill': of.fill,
                 'base': of.base, 'coverage': of.coverage} for of in loads]
    return '\n'.join(
        f'{_tool.shown(of.policy)}: ' + (
            'no score' if of.score is None else
            f'{of.score:.4f}' + ('' if of.base is None else f', base {of.base:.4f}')
            + ('' if of.coverage is None else f', explained {100 * of.coverage:.0f} %'))
        for of in loads)


def _fields(found: Any, nested: bool) -> Iterable[tuple[str, Any]]:
    from kronos_nova.cli import moments
    from kronos_nova.cmd import _tool

    portrait, of = found.portrait, found.portrait.instance
    yield 'Instance', of.uuid
    yield 'Scope', _tool.shown(found.scope)
    yield 'Host', _tool.shown(of.host)
    yield 'Status', of.status
    yield 'Memory MB', of.memory_mb
    yield 'VCPUs', of.vcpus
    yield 'Usage', [{'name': _tool.shown(s.policy), 'usage': s.usage, 'ratio': s.ratio}
                    for s in portrait.shares] if nested else '\n'.join(
        f'{_tool.shown(s.policy)}: ' + (
            'not known' if s.usage is None else f'{s.usage:g}'
            + ('' if s.ratio is None else f', {s.ratio:.4f} of the host'))
        for s in portrait.shares)
    yield 'Held', [{'rule': no.rule, 'detail': _tool.shown(no.detail)} for no in portrait.held
                   ] if nested else '\n'.join(
        f'{no.rule}: {_tool.shown(no.detail)}' for no in portrait.held)
    yield 'Next move', ('not before that is changed' if portrait.wait is None else
                        moments.shown(found.now + portrait.wait) if portrait.wait else 'now')
    yield 'Server groups', [
        {'uuid': uuid, 'policy': policy,
         'members': {_tool.shown(host): n for host, n in places.items()}}
        for uuid, (policy, places) in portrait.groups.items()] if nested else '\n'.join(
        f'{uuid} ({policy}): ' + ', '.join(f'{n} on {_tool.shown(host)}'
                                           for host, n in places.items())
        for uuid, (policy, places) in portrait.groups.items())
    yield 'Tasks', [_task(row) for row in found.tasks] if nested else '\n'.join(
        '{at} {from_host} to {to_host}: {phase}, {state}, task {task_id}'.format_map(_task(row))
        for row in found.tasks)


def _task(row: Any) -> dict[str, Any]:
    from kronos_nova.cli import moments
    from kronos_nova.cmd import _tool

    task = row.task
    return {'task_id': task.task_id, 'plan_id': task.plan_id, 'phase': str(task.phase),
            'state': str(task.state), 'from_host': _tool.shown(task.from_host),
            'to_host': _tool.shown(task.to_host),
            'at': moments.shown(row.completed_at or task.created_at),
            'error': None if row.error is None else _tool.shown(row.error)}
