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

"""``kronos drain check``, ``start``, ``watch`` and ``stop``: the drain of a host."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
import datetime
import sys
from typing import Any

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.cli import command
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import drain_lists
from kronos_nova.rebalancer.operations import drain_starts
from kronos_nova.rebalancer.operations import drain_stops
from kronos_nova.rebalancer.operations import drain_watches
from kronos_nova.rebalancer.operations import shutdown_verdicts
from kronos_nova.text import drain_lines
from kronos_nova.text import plan_lines
from kronos_nova.text import progress
from kronos_nova.text import times
from kronos_nova.wiring import tools

MODES = ('auto', 'compact', 'scatter')
#: Seconds that contracts may delay a drain that is possible.
SOON = 4 * 3600.0


class CheckDrain(command.TableCommand):
    """Check if a host can be emptied, in which order, and which obstacles there are.

    Reads the cloud as a planning cycle does, or a snapshot, and changes nothing. The exit status is
    1 when an instance would stay on the host, engines would not empty it now, contracts let an
    instance leave in more than four hours only, or one is not expected to leave by --deadline.
    """

    columns = ('What', 'Verdict', 'Detail')
    examples = ('compute-07', 'compute-07 --mode compact', 'compute-07 --deadline 2h')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='HOST', help='Its name as a compute service.')
        command.add_snapshot(parser)
        parser.add_argument('--mode', choices=MODES,
                            help='Instead of [engine] drain_mode, which engines follow. auto: for '
                                 'the least imbalance. compact: fill one destination after the '
                                 'other. scatter: as many to each as to any other.')
        parser.add_argument('--overbooking', action='store_true',
                            help='Destinations may be filled above the ceilings of the policies; '
                                 'never above what Placement allows.')
        _add_deadline(parser, 'Name the instances that are not expected to leave in time')
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(cloud_state.Session, args) as session:
            answer = drain_checks.check_drain(
                session, args.host, mode=model.DrainMode(args.mode) if args.mode else None,
                overbooking=args.overbooking, deadline=args.deadline)
        rows = [command.format_printable_row(row) for row in _render_rows(answer, args.host)]
        # 1 when the host would not become empty: the table says why.
        self.status = int(rows[-1][1] in ('blocked', 'waits', 'late'))
        return rows


def _render_rows(answer: Any, host: str) -> Iterator[tuple[str, str, str]]:
    check = answer.check
    for text in check.obstacles:
        yield 'engines', 'refuse', text
    for move in check.plan.moves:
        yield (f'instance {move.instance_uuid}', 'moves' if move.from_host == host else
               'moves as well', f'{move.from_host} to {move.to_host}, wave {move.wave}'
               + plan_lines.format_method(check.methods.get(move.instance_uuid)))
    for blocked in check.blocked:
        yield (f'instance {blocked.instance_uuid}', 'later' if blocked.later else 'stays',
               blocked.reason)
    for name, amount in check.missing.items():
        yield f'class {name}', 'missing', str(amount)
    for report in check.plan.policies:
        if not report.skipped:
            yield f'policy {report.name}', 'imbalance', (
                f'{report.imbalance_before:.4f} to {report.imbalance_after:.4f} (threshold '
                f'{report.threshold:.4f})')
    for uuid, risk in answer.risky.items():
        obstacle = answer.wait_obstacles.get(uuid)
        yield (f'instance {uuid}', 'may not converge',
               f'a risk of {risk:.0%}, by its memory writes and its past attempts'
               + ('' if obstacle is None else f'; it waits for no quieter hour: {obstacle}'))
    for verdict in answer.shutdowns:
        yield f'instance {verdict.instance_uuid}', 'shutdown', verdict.text
    if answer.arrival_seconds is not None:
        yield 'deadline', 'shortens', drain_lines.format_arrival(answer.arrival_seconds)
    for late in answer.late:
        yield f'instance {late.instance_uuid}', 'late', late.reason
    if answer.seconds is not None:
        yield 'time', 'about', (
            f'{answer.seconds:.0f} s, by '
            f'{plurals.count_noun(answer.measured, "measured migration")} '
            f'({answer.bandwidth:.0f} MiB/s); waiting for cycles and approval not counted')
    else:
        yield 'time', 'not known', 'no migration is on record'
    yield 'conclusion', *_format_conclusion(answer, host)


def _format_conclusion(answer: Any, host: str) -> tuple[str, str]:
    verdict, text = _judge_drain(answer, host)
    return verdict, f'{text}; {answer.arriving}' if answer.here and answer.arriving else text


def _judge_drain(answer: Any, host: str) -> tuple[str, str]:
    check = answer.check
    if not answer.here:
        text = f'host {host} has no instances'
        return (('waits', f'{text}, but ' + '; '.join(answer.in_the_way)) if answer.in_the_way
                else ('empty', text))
    if answer.is_held:
        return 'waits', check.plan.reason
    staying = [b for b in check.blocked if not b.later]
    if staying:
        return 'blocked', (f'{answer.here - len(staying)} of {answer.here} instances can leave '
                           f'host {host}, {len(staying)} stay')
    if check.obstacles:
        return 'waits', 'all instances can leave, but ' + '; '.join(check.obstacles)
    text = f'all {plurals.count_noun(answer.here, "instance")} can leave host {host}'
    waiting = _format_wait(check)
    text = text if waiting is None else f'{text}; {waiting}'
    if check.contract_wait > SOON or not answer.late:
        return 'waits' if check.contract_wait > SOON else 'possible', text
    return 'late', (f'{text}, but {plurals.count_with_verb(len(answer.late), "instance")} not '
                    f'expected to leave by {times.format_time(answer.deadline)}')


def _format_wait(check: Any) -> str | None:
    """Return how many instances wait, for what and until when; None: none does."""
    waiting = [b for b in check.blocked if b.movable_from is not None]
    reasons = [text for text, quiet in (('contracts', False), ('quieter hours', True))
               if any(b.waits_for_quiet_hour is quiet for b in waiting)]
    return None if not waiting else (
        f'{plurals.count_noun(len(waiting), "instance")} '
        f'{plurals.choose_form(len(waiting), "waits", "wait")} until '
        f'{times.format_time(max(b.movable_from for b in waiting))} at most, as '
        f'{" and ".join(reasons)} say')


class ListDrains(command.TableCommand):
    """List the hosts that are disabled or that pack empties, and why instances stay on them.

    Reads the cloud as a planning cycle does, or a snapshot, and changes nothing.
    """

    columns = ('Host', 'Scope', 'Instances', 'Deadline', 'Held', 'Remedy', 'Reason', 'Late',
               'Packed')
    wide = frozenset({'Reason', 'Late', 'Packed'})
    examples = ('', '-f json')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        command.add_snapshot(parser)
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(cloud_state.Session, args) as session:
            drains = drain_lists.list_drains(session)
        late = ' (late)' if args.formatter == 'table' else ''
        for drain in drains:
            deadline = None if drain.deadline is None else (
                times.format_time(drain.deadline) + (late if drain.late else ''))
            yield (*command.format_printable_row((drain.host, drain.scope)), drain.instances,
                   deadline, *(None if text is None else tools.format_printable(text)
                               for text in (drain.held, drain.remedy, drain.reason)),
                   drain.late, drain.packed)


class StartDrain(command.BaseCommand):
    """Check that a host can be emptied, and disable it, so that engines do.

    The reason stands in Nova. Engines begin in their next cycle, where
    evacuate_disabled_hosts is set; stopped instances are moved cold where
    cold_migrate_stopped is. Moves for balance that wait for approval give way to the drain. The
    user of [nova] needs the right to update services.
    """

    examples = ('compute-07 --reason "new memory"', 'compute-07 --reason "new memory" --approve',
                'compute-07 --reason "new memory" --deadline 6h')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='HOST', help='Its name as a compute service.')
        parser.add_argument('--reason', required=True, type=_parse_reason, metavar='TEXT',
                            help='Why; Nova keeps it as disabled_reason.')
        parser.add_argument('--force', action='store_true',
                            help='Also when some instances would stay, contracts let one leave '
                                 'in more than a week only, or the host is disabled for another '
                                 'reason.')
        parser.add_argument('--approve', action='store_true',
                            help='Where plans wait for approval: approve the moves of this '
                                 'drain. Others still have to if several people must.')
        _add_deadline(parser, 'Executors use the steps that [executor] drain_escalation allows '
                              'early enough for it, as far as contracts allow them. Later moves '
                              'of a drain that goes on get it, too')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.run_guarded(lambda: self._start(parsed_args))

    def _start(self, args: argparse.Namespace) -> None:
        with self.open_session(cloud_state.Session, args) as session:
            started = drain_starts.start_drain(session, args.host, reason=args.reason,
                                               force=args.force, approve=args.approve,
                                               deadline=args.deadline)
        sys.stdout.write(tools.format_printable(_format_start_message(args.host, started)) + '\n')


def _format_start_message(host: str, started: drain_starts.StartedDrain) -> str:
    check, approval = started.check, started.approval
    time = ('' if check.seconds is None else
            f' It takes about {check.seconds:.0f} s at rates measured lately.')
    done = ('is disabled' if started.changed else 'was disabled already for this reason, and '
            + ('nothing' if check.deadline is None else 'only its deadline') + ' was written')
    leaving = plurals.count_with_verb(check.here, 'instance')
    waiting = _format_wait(check.check)
    return (f'Host {host} {done}; {leaving} to leave it.{time}'
            + ('' if waiting is None else f' {waiting[0].upper()}{waiting[1:]}.')
            + drain_lines.format_shutdowns(*shutdown_verdicts.count_shutdowns(check.shutdowns))
            + ('' if check.deadline is None else drain_lines.format_late_count(
                times.format_time(check.deadline), len(check.late), check.arrival_seconds))
            + (f' {started.deadline_change}' if started.deadline_change else '')
            + ('' if approval is None else drain_lines.format_approval(
                approval.plan_ids, approval.missing, approval.describe_problem()))
            + ' kronos drain watch shows how far it is.')


class StopDrain(command.BaseCommand):
    """End the drain of a host: enable it, and cancel its moves that have not begun.

    Migrations that Nova has begun go on to their end; instances that have left do not come back.
    The user of [nova] needs the right to update services.
    """

    examples = ('compute-07', 'compute-07 --reason "the memory came late"')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='HOST', help='Its name as a compute service.')
        parser.add_argument('--reason', type=_parse_reason, metavar='TEXT',
                            help='Why; it is kept with your name.')
        parser.add_argument('--force', action='store_true',
                            help='Enable the host also when it is disabled for a reason for which '
                                 'engines do not empty it.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.run_guarded(lambda: self._stop(parsed_args))

    def _stop(self, args: argparse.Namespace) -> None:
        with self.open_session(cloud_state.Session, args) as session:
            stopped = drain_stops.stop_drain(session, session.find_service(args.host),
                                             reason=args.reason or '', force=args.force)
        sys.stdout.write(tools.format_printable(drain_lines.format_stop(
            args.host, stopped.changed, len(stopped.cancelled), len(stopped.running))) + '\n')


def _add_deadline(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument('--deadline', type=_parse_deadline, metavar='TIME',
                        help='When the host is to be empty: a duration from now on, 2h or 1d12h, '
                             'or a time, 2026-11-01T06:00:00Z (UTC unless it has a zone), from 5 '
                             f'minutes to 30 days away. {text}.')


def _parse_deadline(text: str) -> float | datetime.timedelta:
    try:
        return times.parse_deadline(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def _parse_reason(text: str) -> str:
    """Check a disabled_reason as Nova does: 1 to 255 printable characters."""
    reason = ' '.join(text.split())
    if not reason or len(reason) > 255 or not reason.isprintable():
        raise argparse.ArgumentTypeError('write 1 to 255 printable characters')
    return reason


class WatchDrain(command.TableCommand):
    """Look at a host until it is empty, and show the state of each instance.

    Standard error says why no move begins: a pause, a plan that waits for approval, an outage, a
    dry run, no engine that plans the host, or the reasons in the newest plan that name the host or
    its instances. It also has the deadline of the drain, and says when the drain is late.
    The command goes on for five minutes while Nova or the database does not answer.
    The exit status is 1 when the host is not empty after --timeout seconds, and at once when the
    host is enabled again.
    """

    columns = ('Instance', 'To', 'State', 'Seconds', 'Error')
    examples = ('compute-07 --timeout 7200',)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='HOST', help='Its name as a compute service.')
        parser.add_argument('--interval', type=_parse_seconds, default=10.0, metavar='SECONDS',
                            help='Between two looks; 10 unless told.')
        parser.add_argument('--timeout', type=_parse_seconds, default=float(86400),
                            metavar='SECONDS',
                            help='Stop after so long; a day unless told.')
        parser.add_argument('--since', type=_parse_seconds, default=3600.0, metavar='SECONDS',
                            help='List also tasks of this drain that ended so many seconds '
                                 'before; 3600 unless given.')
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        line = progress.ProgressLine(sys.stderr)

        def show_progress(rows: list[Any]) -> None:
            completed = sum(row.state == 'completed' for row in rows)
            line.show_progress(f'{completed} of {len(rows)} have left',
                               completed / len(rows) if rows else 1.0)

        def print_message(text: str) -> None:
            line.erase_line()
            sys.stderr.write(tools.format_printable(text) + '\n')

        with self.open_session(cloud_state.Session, args) as session:
            why, watch_rows = drain_watches.watch_drain(
                session, args.host, show_progress, print_message,
                drain_watches.WatchTimes(args.interval, args.timeout, args.since))
        self.status = int(why is not None)
        print_message(f'Host {args.host} ' + (why or 'is empty.'))
        return [(r.instance_uuid, tools.format_printable(r.to_host), r.state,
                 None if r.seconds is None else round(r.seconds, 1),
                 tools.format_printable(r.error))
                for r in watch_rows]


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.1 <= seconds <= 1e7:
        raise argparse.ArgumentTypeError(f'{text!r} is no number of seconds from 0.1 to 1e7')
    return seconds
