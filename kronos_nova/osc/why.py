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

"""``openstack rebalance why not`` and ``why nothing``: what holds a move, and a scope."""

import argparse
from collections.abc import Mapping
from typing import Any

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import references
from kronos_nova.osc import what
from kronos_nova.osc.columns import Column
from kronos_nova.text import plan_lines

PHASES = ('evacuate', 'affinity', 'spread', 'pack', 'requested')


def _format_verdict(verdict: Mapping[str, Any]) -> str:
    if verdict['passed']:
        return f'{verdict["rule"]}: passed'
    remedy = verdict['remedy']
    return (f'{verdict["rule"]}: refused: {verdict["detail"]}'
            + ('' if remedy is None else f'\n  remedy: {remedy}'))


def _format_verdicts(answer: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    """Return the cell with the verdicts, refusals first."""
    return columns.Cell(answer['verdicts'], '\n'.join(
        _format_verdict(verdict) for verdict in sorted(
            answer['verdicts'], key=lambda verdict: bool(verdict['passed']))))


def _format_rejections(answer: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    return columns.Cell(answer['rejections'], plan_lines.format_rejections(answer['rejections']))


def _format_shutdown(answer: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    """Return the cell with what a drain may do after a late live migration."""
    verdict = answer.get('shutdown')
    return columns.Cell(verdict, '' if verdict is None else verdict['text'])


def _format_effect(effect: Mapping[str, Any]) -> str:
    fills = (f', fill of the destination {effect["fill_before"]:.4f} to {effect["fill_after"]:.4f}'
             if None not in (effect['fill_before'], effect['fill_after']) else '')
    ceiling = '' if effect['ceiling'] is None else f' (ceiling {effect["ceiling"]:.4f})'
    return (f'{effect["policy"]}: imbalance {effect["imbalance_before"]:.4f} to '
            f'{effect["imbalance_after"]:.4f} (threshold {effect["threshold"]:.4f})'
            f'{fills}{ceiling}')


class ExplainNextPlan(command.ShowResource):
    """Show why no instance of a scope is moved, or the moves of its next cycle.

    The exit status is 0 also where nothing is moved.
    """

    fields = (
        Column('scope', columns.read_text('scope')),
        Column('conclusion', columns.read_text('conclusion')),
        Column('causes', columns.read_lines('causes')),
        Column('holds', columns.read_lines('holds')),
        Column('plan', what.read_plan('plan')),
        Column('rejections', _format_rejections),
        Column('read_at', columns.read_time('read_at')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('scope', metavar='<scope>', type=command.parse_text,
                            help='Name of the scope: an aggregate, or _unassigned_.')
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        return dict(self.client.send('GET', '/v1/why-nothing', query={'scope': args.scope}))


class ExplainRefusedMove(command.ShowResource):
    """Show why an instance is not moved to a host: each rule, the holds, the effect on the load.

    The move is judged with nothing else planned. The exit status is 0 also where rules refuse it.
    """

    fields = (
        Column('instance_id', columns.read_text('instance_id')),
        Column('from_host', columns.read_text('from_host')),
        Column('to_host', columns.read_text('to_host')),
        Column('phase', columns.read_text('phase')),
        Column('allowed', columns.read_text('allowed')),
        Column('conclusion', columns.read_text('conclusion')),
        Column('holds', columns.read_lines('holds')),
        Column('verdicts', _format_verdicts),
        Column('shutdown', _format_shutdown),
        Column('effects', columns.read_lines('effects', _format_effect)),
        Column('imbalance_before', columns.read_text('imbalance_before')),
        Column('imbalance_after', columns.read_text('imbalance_after')),
        Column('read_at', columns.read_time('read_at')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        references.add_instance(parser)
        parser.add_argument('host', metavar='<host>', type=command.parse_text,
                            help='The destination.')
        parser.add_argument('--phase', metavar='<phase>', choices=PHASES,
                            help=f'Purpose of the move: {", ".join(PHASES)}. Default: the mode of '
                                 'the policies.')
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        instance_id = references.find_instance(self.client, args.instance)
        return dict(self.client.send('GET', f'/v1/instances/{instance_id}/why-not', query={
            'host': args.host, **({} if args.phase is None else {'phase': args.phase})}))
