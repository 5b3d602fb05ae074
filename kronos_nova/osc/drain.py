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

"""``openstack rebalance drain``: list, check, start, watch and stop."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
import time
from typing import Any

from kronos_nova.osc import columns
from kronos_nova.osc import command
from kronos_nova.osc import drain_waits
from kronos_nova.osc import host
from kronos_nova.osc import plan_fields
from kronos_nova.osc.columns import Column
from kronos_nova.text import drain_lines
from kronos_nova.text import printable
from kronos_nova.text import times

MODES = ('auto', 'compact', 'scatter')


def _format_blocked(blocked: Mapping[str, Any]) -> str:
    later = 'leaves later' if blocked['leaves_later'] else 'stays'
    return f'{blocked["instance_id"]} {later}: {blocked["reason"]}'


def _format_risk(risk: Mapping[str, Any]) -> str:
    obstacle = risk.get('wait_obstacle')  # An older kronos-api knows none.
    return (f'{risk["instance_id"]} may not converge: {risk["probability"]:.0%}'
            + (f'; it waits for no quieter hour: {obstacle}' if obstacle else ''))


def _format_shutdown(verdict: Mapping[str, Any]) -> str:
    return f'{verdict["instance_id"]}: {verdict["text"]}'


def _format_late(late: Mapping[str, Any]) -> str:
    return f'{late["instance_id"]}: {late["reason"]}'


def _read_deadline(row: Mapping[str, Any], style: columns.Style) -> columns.Cell:
    """Return a cell with the deadline of a drain, and whether it has passed.

    An older kronos-api knows no deadlines.
    """
    at = row.get('deadline')
    text = columns.format_time(at) + (' (late)' if row.get('late') else '')
    return columns.Cell(at, text.replace('T', ' ')).wrap(10)


def _make_optional(field: str, make: columns.Make) -> Column:
    """Return a column of a field that an older kronos-api does not send: it is then empty."""
    return Column(field, lambda row, style: make({field: row.get(field)}, style))


_DEADLINE_FIELDS = (
    _make_optional('deadline', columns.read_time('deadline')),
    _make_optional('arrival_seconds', columns.read_text('arrival_seconds')),
    Column('late_instances', columns.read_lines('late_instances', _format_late)))


class ListDrains(command.ListResources):
    """List the hosts that are disabled or that pack empties, and why instances stay on them."""

    columns = (
        Column('Host', columns.read_name('host', 16)),
        Column('Scope', columns.read_name('scope', 10)),
        Column('Instances', columns.read_text('instance_count')),
        Column('Deadline', _read_deadline),
        Column('Held', columns.read_sentence('held', 18)),
        Column('Remedy', columns.read_sentence('remedy', 17)),
        Column('Disabled Reason', columns.read_text('disabled_reason'), long=True),
        Column('Packed', columns.read_text('packed'), long=True),
        Column('Read At', columns.read_time('read_at'), long=True))

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return list(self.client.send('GET', '/v1/drains')['drains'])


class CheckDrain(command.ShowResource):
    """Check whether a host can be emptied, how, and how long that takes.

    Nothing changes. The exit status is 1 when it cannot, or not by the deadline.
    """

    fields = (
        Column('host', columns.read_text('host')), Column('scope', columns.read_text('scope')),
        Column('can_be_emptied', columns.read_text('can_be_emptied')),
        Column('instance_count', columns.read_text('instance_count')),
        Column('arriving_count', columns.read_text('arriving_count')),
        Column('obstacles', columns.read_lines('obstacles')),
        Column('moves', columns.read_lines('moves', plan_fields.format_move)),
        Column('blocked', columns.read_lines('blocked', _format_blocked)),
        Column('missing', columns.read_counts('missing', command.WIDTH)),
        Column('expected_seconds', columns.read_text('expected_seconds')),
        Column('measured_migration_count', columns.read_text('measured_migration_count')),
        Column('risks', columns.read_lines('risks', _format_risk)),
        Column('shutdowns', columns.read_lines('shutdowns', _format_shutdown)),
        *_DEADLINE_FIELDS,
        Column('read_at', columns.read_time('read_at')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        host.add_host(parser)
        parser.add_argument('--mode', metavar='<mode>', choices=MODES,
                            help='Instead of the mode in which engines drain. auto: for the least '
                                 'imbalance. compact: fill one destination after the other. '
                                 'scatter: as many to each as to any other.')
        parser.add_argument('--overbooking', action='store_true',
                            help='Destinations may be filled above the ceilings of the policies; '
                                 'never above what Placement allows.')
        _add_deadline(parser, 'Name the instances that are not expected to leave in time')
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        check = dict(self.client.send('GET', '/v1/drains/check', query={
            'host': args.host, **({} if args.mode is None else {'mode': args.mode}),
            **({} if args.deadline is None else {'deadline': args.deadline}),
            'overbooking': 'true' if args.overbooking else 'false'}))
        self.status = int(not check['can_be_emptied'] or bool(check.get('late_instances')))
        return check


class StartDrain(command.ShowResource):
    """Check that a host can be emptied, and disable it in Nova, so that engines empty it.

    Nova must allow you to update compute services. Engines begin in their next cycle. Moves for
    balance that wait for approval give way to the drain.
    """

    fields = (
        Column('host', columns.read_text('host')), Column('changed', columns.read_text('changed')),
        Column('instance_count', columns.read_text('instance_count')),
        Column('arriving_count', columns.read_text('arriving_count')),
        Column('expected_seconds', columns.read_text('expected_seconds')),
        Column('shutdowns', columns.read_lines('shutdowns', _format_shutdown)),
        Column('plan_ids', columns.read_lines('plan_ids')),
        Column('approvals_missing', columns.read_text('approvals_missing')),
        Column('approval_problem', columns.read_text('approval_problem')),
        *_DEADLINE_FIELDS,
        _make_optional('deadline_change', columns.read_text('deadline_change')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        host.add_host(parser)
        parser.add_argument('--reason', metavar='<reason>', required=True, type=command.parse_text,
                            help='Why; Nova keeps it with the host, and the audit with your name.')
        parser.add_argument('--force', action='store_true',
                            help='Also when some instances would stay, or the host is disabled for '
                                 'another reason.')
        parser.add_argument('--approve', action='store_true',
                            help='Where plans wait for approval: approve the moves of this drain. '
                                 'Others still have to if several people must.')
        _add_deadline(parser, 'Executors use the steps that their configuration allows early '
                              'enough for it, as far as contracts allow them')
        parser.add_argument('--wait', action='store_true',
                            help='Wait until the host is empty; exit with 1 unless it is.')
        _add_timeout(parser, 'With --wait: give')
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        before = host.find_host(self.client, args.host) if args.wait else None
        drain = dict(self.client.send('POST', '/v1/drains', body={
            'host': args.host, 'reason': args.reason, 'force': args.force,
            'approve': args.approve,
            **({} if args.deadline is None else {'deadline': args.deadline})}))
        if args.approve:
            self.warn(drain_lines.format_approval(
                drain['plan_ids'], drain['approvals_missing'], drain['approval_problem']).strip())
            self.status = int(drain['approval_problem'] is not None)
        if args.wait:
            over, _tasks = drain_waits.wait_for_drain(self.client, args.host, args.timeout,
                                                      self.stderr, before)
            self.warn(_format_end(args.host, over))
            self.status = int(bool(over))
        return drain


class StopDrain(command.ShowResource):
    """Enable a host in Nova, and cancel the moves of its drain that have not begun.

    Nova must allow you to update compute services. Migrations that Nova has begun go on to their
    end; instances that have left do not come back.
    """

    fields = (
        Column('host', columns.read_text('host')), Column('changed', columns.read_text('changed')),
        Column('cancelled_task_ids', columns.read_lines('cancelled_task_ids')),
        Column('running_task_ids', columns.read_lines('running_task_ids')))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        host.add_host(parser)
        command.add_reason(parser, required=False)
        parser.add_argument('--force', action='store_true',
                            help='Also when the host is disabled for a reason for which engines do '
                                 'not empty it.')
        return parser

    def read_resource(self, args: argparse.Namespace) -> Mapping[str, Any]:
        stopped = dict(self.client.send('DELETE', '/v1/drains', query={
            'host': args.host, 'force': 'true' if args.force else 'false',
            **({} if args.reason is None else {'reason': args.reason})}))
        self.warn(drain_lines.format_stop(
            stopped['host'], stopped['changed'], len(stopped['cancelled_task_ids']),
            len(stopped['running_task_ids'])))
        return stopped


class WatchDrain(command.ListResources):
    """Wait until a host is empty, and list the newest task of each instance that was to leave.

    Standard error has a bar on a terminal, and the reason why nothing moves. The exit status is 1
    when the host is enabled before it is empty, and when the time is up.
    """

    has_bar = True
    columns = (
        Column('Instance ID', columns.read_text('instance_id')),
        Column('To', columns.read_name('to_host', 12)),
        Column('State', columns.read_text('state')),
        Column('Error', columns.read_sentence('error', 26)),
        Column('Task', columns.read_text('id'), long=True))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        host.add_host(parser)
        _add_timeout(parser, 'Give')
        return parser

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        over, tasks = drain_waits.wait_for_drain(self.client, args.host, args.timeout, self.stderr)
        self.warn(_format_end(args.host, over))
        self.status = int(bool(over))
        return sorted(tasks, key=lambda task: str(task['instance_id']))


def _add_deadline(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument('--deadline', metavar='<time>', type=_parse_deadline,
                        help='When the host is to be empty: a duration from now on, 2h or 1d12h, '
                             'or a time, 2026-11-01T06:00:00Z (UTC unless it has a zone), from 5 '
                             f'minutes to 30 days away. {text}.')


def _parse_deadline(text: str) -> str:
    """Read a deadline, and return it in ISO 8601."""
    try:
        deadline = times.parse_deadline(text)
        at = deadline if isinstance(deadline, float) else time.time() + deadline.total_seconds()
        return times.format_time(at)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f'{text!r} is no deadline; write a duration with its unit, 2h or 1d12h, or a time, '
            '2026-11-01T06:00:00Z') from None


def _add_timeout(parser: argparse.ArgumentParser, begin: str) -> None:
    parser.add_argument('--timeout', metavar='<duration>', type=command.parse_duration,
                        default=86400.0,
                        help=f'{begin} up after so long, as 90, 30m or 2h (default: 1d). The drain '
                             'goes on.')


def _format_end(name: str, over: str) -> str:
    return f'Host {printable.format_printable(name)} {over or "is empty"}.'
