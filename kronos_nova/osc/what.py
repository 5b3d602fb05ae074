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

"""``openstack rebalance what if``: the next plan of a scope beside one under other conditions."""

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from kronos_nova import plurals
from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import instance
from kronos_nova.osc import plan_fields
from kronos_nova.osc import policy_fields
from kronos_nova.osc.columns import Column
from kronos_nova.text import printable


def _describe_plan(plan: Mapping[str, Any]) -> Iterator[str]:
    yield (f'{plurals.count_noun(plan["host_count"], "host")}, '
           f'{plurals.count_noun(plan["instance_count"], "instance")}, '
           f'{plurals.count_noun(len(plan["moves"]), "move")}')
    yield (f'imbalance {printable.format_printable(plan["imbalance_measured"])} to '
           f'{printable.format_printable(plan["imbalance_predicted"])}')
    yield from map(policy_fields.format_change, plan['policies'])
    if plan['reason'] is not None:
        yield f'no moves: {plan["reason"]}'
    yield from map(plan_fields.format_move, plan['moves'])
    yield from (f'held: {instance.format_rejection(part)}' for part in plan['held'])
    yield from (f'not drained: {part["detail"]}' for part in plan['undrained'])
    yield from (f'warning: {text}' for text in plan['warnings'])
    if plan['truncated']:
        yield 'planning was cut off'


def read_plan(field: str) -> columns.Make:
    """Return a maker of cells with a plan; null where a hold makes it impossible."""
    return lambda row, style: columns.Cell(
        row[field], '' if row[field] is None else '\n'.join(_describe_plan(row[field])))


class SupposeConditions(command.ShowResource):
    """Plan a scope as it is, and with other hosts or another load; nothing is stored.

    Cooldowns, pauses and other holds that end with time or by a command hold neither plan.
    """

    fields = (
        Column('scope', columns.read_text('scope')),
        Column('holds', columns.read_lines('holds')),
        Column('today', read_plan('today')), Column('supposed', read_plan('supposed')),
        Column('read_at', columns.read_time('read_at')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('scope', metavar='<scope>', type=command.parse_text,
                            help='Name of the scope: an aggregate, or _unassigned_.')
        parser.add_argument('--add', metavar='<number>:<host>', type=_parse_added, default=[],
                            action='append',
                            help='With so many more hosts like this one, without instances; '
                                 'repeatable.')
        parser.add_argument('--remove', metavar='<host>', type=command.parse_text, default=[],
                            action='append',
                            help='Without this host, which is emptied also if options allow no '
                                 'drain; repeatable.')
        parser.add_argument('--drain', metavar='<host>', type=command.parse_text, default=[],
                            action='append', help='With this host disabled; repeatable.')
        parser.add_argument('--reason', metavar='<reason>', type=command.parse_text,
                            help='The reason for which hosts of --drain are disabled (default: '
                                 'maintenance).')
        parser.add_argument('--load-factor', metavar='<factor>', type=_parse_factor,
                            help='With the load of every instance and host times this factor.')
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        body = {'scope': args.scope, 'added': args.add, 'removed': args.remove,
                'drained': args.drain, 'load_factor': args.load_factor}
        return dict(self.client.send('POST', '/v1/what-if', body=body if args.reason is None else
                                     {**body, 'reason': args.reason}))


def _parse_added(text: str) -> dict[str, Any]:
    count, _colon, host = text.partition(':')
    if not count.isdecimal() or not 1 <= int(count) <= 200 or not host:
        raise argparse.ArgumentTypeError(f'{text!r}: write a number from 1 to 200 and a host, as '
                                         '2:compute-07')
    return {'count': int(count), 'like': command.parse_text(host)}


def _parse_factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 100:
        raise argparse.ArgumentTypeError(f'{text!r} is no factor up to 100; write 1.2')
    return factor
