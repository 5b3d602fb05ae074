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

"""``openstack rebalance event list``: plans, changes of tasks, and commands of operators."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
import time
from typing import Any

from kronos_nova import plurals
from kronos_nova.osc import client
from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import event_feed
from kronos_nova.osc.columns import Column
from kronos_nova.text import widths

_DAY = 86400.0


def _find_target(event: Mapping[str, Any]) -> str:
    if event['command'] is not None:
        return str(event['command']['target'])
    if event.get('notice') is not None:
        return str(event['notice']['instance_id'])
    return str((event['plan'] or event['task'])['id'])


def _format_target(event: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    target = _find_target(event)
    return columns.Cell(target, target if style.full else widths.cut_text(target, 36))


def describe_event(event: Mapping[str, Any]) -> str:
    """Return the change of a plan or task, the command of an operator, or the notice."""
    plan, task, given = event['plan'], event['task'], event['command']
    notice = event.get('notice')
    if notice is not None:
        return (f'leaves {notice["from_host"]} for {notice["reason"]} from '
                f'{columns.format_time(notice["movable_from"])} on'
                + (', may be shut down' if notice.get('may_shut_down') else ''))
    if plan is not None:
        reason = '' if plan['reason'] is None else f': {plan["reason"]}'
        dry_run = 'dry run, ' if plan['dry_run'] else ''
        return (f'scope {plan["scope"]}, {dry_run}'
                f'{plurals.count_noun(plan["move_count"], "move")}{reason}')
    if task is not None:
        error = '' if task['error'] is None else f': {task["error"]}'
        return f'{task["state"]}, {task["from_host"]} to {task["to_host"]}{error}'
    reason = f': {given["reason"]}' if given['reason'] else ''
    return f'{given["command"]} by {given["given_by"]}{reason}'


def _format_event(event: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    text = describe_event(event)
    return columns.Cell(text, text if style.full else widths.wrap_text(text, 24))


def _read_part(field: str) -> columns.Make:
    """Return a maker of cells with the whole plan, task and so on, which ``--long`` names only."""
    return lambda event, style: columns.Cell(
        event.get(field), '' if event.get(field) is None else _find_target(event))


class ListEvents(command.ListResources):
    """List stored plans, changes of tasks, commands of operators, and notices to owners.

    Oldest first. A task that changes twice between two requests is listed once.
    """

    columns = (
        Column('At', columns.read_time('at')),
        Column('Kind', columns.read_text('kind')),
        Column('Of', _format_target),
        Column('What', _format_event),
        Column('ID', columns.read_text('id'), long=True),
        Column('Plan', _read_part('plan'), long=True),
        Column('Task', _read_part('task'), long=True),
        Column('Command', _read_part('command'), long=True),
        Column('Notice', _read_part('notice'), long=True))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--changes-since', metavar='<time>', type=command.parse_time,
                            help='Since then: 2026-11-01T00:00:00Z, or a duration before now, as '
                                 'in --changes-since=-2h. Default: an hour before now; with '
                                 '--watch: now.')
        command.add_limit(parser, 1000, 'oldest first')
        parser.add_argument('--watch', action='store_true',
                            help='Wait for more events, and write each on standard error, until '
                                 'Ctrl-C, --timeout or --limit; then list them.')
        parser.add_argument('--timeout', metavar='<duration>', type=command.parse_duration,
                            default=_DAY,
                            help='With --watch: end after so long, as 90, 30m or 2h (default: 1d).')
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        feed = event_feed.EventFeed(
            self.client, args.changes_since if args.watch or args.changes_since else
            command.parse_time('-1h'))
        found: list[client.Document] = []
        end = time.monotonic() + (args.timeout if args.watch else 0.0)
        known: set[str] = set()
        try:
            while len(found) < args.limit:
                left = end - time.monotonic()
                page = feed.read(left if args.watch else 0.0, args.limit - len(found))
                new = [event for event in page if event['id'] not in known]
                known.update(event['id'] for event in new)
                found += new
                if args.watch:
                    for event in new:
                        self.warn(f'{columns.format_time(event["at"])} {event["kind"]} '
                                  f'{_find_target(event)}: {describe_event(event)}')
                    self.stderr.flush()
                if not page and left <= 0:
                    return found
        except KeyboardInterrupt:
            return found
        if not args.watch and args.formatter == 'table' and feed.read(0.0, 1):
            self.warn(f'Only {args.limit} events are shown; --limit shows more.')
        return found
