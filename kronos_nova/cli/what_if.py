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

"""``kronos what-if`` and ``kronos why-nothing``: the next cycle's plan, real and hypothetical."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
import math
from typing import Any

from kronos_nova import plurals
from kronos_nova.cli import command
from kronos_nova.cli import failover as failover_rows
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import plan_comparisons
from kronos_nova.text import plan_lines

Row = tuple[str, ...]


class _PlanningCommand(command.TableCommand):
    """A command that plans each scope and changes nothing."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        command.add_snapshot(parser)
        command.add_scope(parser)
        return parser


class WhyNothing(_PlanningCommand):
    """Show why no instance is moved, or the moves of the next cycle.

    The rows have the holds of each scope, each policy's imbalance beside its threshold, how often
    each rule refused, the instances and hosts that are held back on their own, and the warnings.
    The last row of a scope sums it up.
    """

    columns = ('Scope', 'What', 'Detail')
    examples = ('', '--scope ssd')

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(cloud_state.Session, args) as session:
            scopes = plan_comparisons.plan_scopes_today(session, args.scope)
        for scope in scopes:
            for row in _render_reason_rows(scope):
                yield command.format_printable_row((scope.name, *row))


class WhatIf(_PlanningCommand):
    """Show the plan and the imbalance under other conditions, beside those of today.

    On both sides no cooldown, sustain_for, pause or plan that waits for approval holds the plan;
    moves under way, quarantines and scores that do not show the last move yet do. The row waits has
    the present holds of the scope. Drains and hosts that are taken away have as many moves as they
    need.
    """

    columns = ('Scope', 'What', 'Today', 'What if')
    examples = ('--add-host 2=compute-01 --drain compute-07', '--multiplier 1.3 --policy new.yaml',
                '--fail compute-03 --add-host 1=compute-01')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--add-host', action='append', default=[], type=_parse_added_hosts,
                            metavar='N=HOST', help='N more hosts as HOST, empty; repeatable.')
        parser.add_argument('--remove-host', action='append', default=[], metavar='HOST',
                            help='Without this host: other hosts take its instances, '
                                 'regardless of evacuate_disabled_hosts and max_drain_fraction; '
                                 'repeatable.')
        parser.add_argument('--drain', action='append', default=[], metavar='HOST',
                            help='With this host disabled, as the configuration has it; '
                                 'repeatable.')
        parser.add_argument('--fail', action='append', default=[], metavar='HOST',
                            help='With this host failed: where Nova could evacuate its instances '
                                 'to, beside the other conditions; repeatable, for hosts that fail '
                                 'together.')
        parser.add_argument('--reason', default='maintenance', metavar='TEXT',
                            help='For which --drain disables hosts, as drain_reason_regex sees '
                                 'it; maintenance unless told.')
        parser.add_argument('--policy', metavar='FILE',
                            help='By this policy file. A snapshot answers the queries that were '
                                 'recorded alone.')
        parser.add_argument('--multiplier', type=_parse_multiplier, metavar='X',
                            help='X times the load of every instance and host: 1.3 is 30 percent '
                                 'more.')
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with self.open_session(cloud_state.Session, args) as session:
            scopes = plan_comparisons.compare_plans(session, plan_comparisons.Supposition(
                added=args.add_host, removed=args.remove_host, drained=args.drain,
                reason=args.reason, policies_file=args.policy, load=args.multiplier,
                failed=args.fail), args.scope)
        for scope in scopes:
            for row in _render_compared_rows(scope):
                yield command.format_printable_row((scope.name, *row))


def _parse_added_hosts(text: str) -> tuple[int, str]:
    count, equals, host = text.partition('=')
    if not equals or not host or not count.isdecimal() or not 1 <= int(count) <= 1000:
        raise argparse.ArgumentTypeError(
            f'{text!r}: write how many (1 to 1000), =, and a host: 2=compute-01')
    return int(count), host


def _parse_multiplier(text: str) -> float:
    try:
        multiplier = float(text)
    except ValueError:
        multiplier = math.nan
    if not 0.0 < multiplier <= 1000.0:
        raise argparse.ArgumentTypeError(f'{text!r} is no number above 0 and up to 1000')
    return multiplier


def _render_reason_rows(scope: Any) -> Iterator[tuple[str, str]]:
    for text in scope.causes:
        yield 'cause', text
    for text in scope.holds:
        yield 'waits', text
    if scope.today is None:
        yield 'conclusion', scope.format_conclusion()
        return
    plan = scope.today.plan
    for report in plan.policies:
        yield f'policy {report.name}', report.reason or (
            f'imbalance {report.measured_imbalance:.4f}, threshold {report.threshold:.4f}: '
            + ('above it' if report.measured_imbalance > report.threshold else 'not above it')
            + (f'; {report.imbalance_before:.4f} once the plan that waits is done'
               if scope.waits else
               f'; {report.imbalance_before:.4f} once the moves under way are done'
               if abs(report.imbalance_before - report.measured_imbalance) > 5e-5 else ''))
    for rule, number in plan.rejections.items():
        yield f'rule {rule}', f'refused {plurals.count_noun(number, "move")}'
    for kind, rejections in (('held', plan.held), ('undrained', plan.undrained)):
        for rejection in rejections:
            yield kind, rejection.detail
    for text in plan.warnings:
        yield 'warning', text
    for uuid in sorted(scope.today.methods):
        method = plan_lines.format_method(scope.today.methods[uuid])
        if method:
            yield f'move {uuid}', method.removeprefix(', ')
    yield 'conclusion', scope.format_conclusion()


def _render_compared_rows(scope: Any) -> Iterator[Row]:
    """Yield the rows with today's and the hypothetical values."""
    if scope.holds:
        yield 'waits', '; '.join(scope.holds), ''
    if scope.supposed is None:
        yield 'policies', '', 'the file is not for this scope'
        return
    sides = (scope.today, scope.supposed)
    yield 'hosts', *(str(len(side.cluster.scope_hosts)) for side in sides)
    for number, report in enumerate(scope.supposed.plan.policies):
        named = [side.plan.policies for side in sides]
        of_today = next((p for p in named[0] if p.name == report.name), None)
        yield f'policy {report.name}', _format_policy(of_today), _format_policy(named[1][number])
    yield 'combined', *(_format_change(side.plan.combined_before, side.plan.combined_after)
                        for side in sides)
    for what, texts in (('reason', [side.plan.reason or '' for side in sides]),
                        ('warnings', ['; '.join(side.plan.warnings) for side in sides]),
                        ('undrained',
                         ['; '.join(rejection.detail for rejection in side.plan.undrained)
                          for side in sides])):
        if any(texts):
            yield what, *texts
    yield 'moves', *(str(len(side.plan.moves)) for side in sides)
    moves = [{m.instance_uuid: m for m in side.plan.moves} for side in sides]
    for uuid in sorted(moves[0].keys() | moves[1].keys()):
        yield f'move {uuid}', *(_format_move(side, of.get(uuid))
                                for side, of in zip(sides, moves, strict=True))
    if scope.failure is not None:
        yield from _render_failure(scope.failure, scope.supposed.cluster)


def _render_failure(certificate: Any, cluster: Any) -> Iterator[Row]:
    """Yield the place of each instance of the failed hosts, and the verdict."""
    if certificate.hold is not None:
        yield 'failure', '', f'unknown: {certificate.hold}'
        return
    for verdict in certificate.verdicts.values():
        for uuid in sorted({**verdict.places, **verdict.unplaced}):
            rejection = verdict.unplaced.get(uuid)
            yield f'evacuation {uuid}', cluster.instances[uuid].host, (
                verdict.places[uuid] if rejection is None
                else f'{rejection.rule}: {rejection.detail}')
        yield 'failure', ', '.join(verdict.hosts), failover_rows.describe_verdict(verdict)


def _format_policy(report: Any) -> str:
    if report is None:
        return ''
    return str(report.reason or _format_change(report.imbalance_before, report.imbalance_after))


def _format_change(before: float | None, after: float | None) -> str:
    return 'not known' if before is None or after is None else f'{before:.4f} to {after:.4f}'


def _format_move(side: Any, move: Any) -> str:
    if move is None:
        return ''
    return (f'{move.from_host} to {move.to_host}, {move.phase}, wave {move.wave}'
            + plan_lines.format_method(side.methods.get(move.instance_uuid)))
