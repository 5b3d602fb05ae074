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

"""``kronos failover check``: whether the instances of failed hosts would find places."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from kronos_nova import plurals
from kronos_nova.cli import command
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import failover_checks

#: Number of verdicts whose instances and repairs the table lists.
DETAILED = failover_checks.REPAIRS
#: Largest number of hosts or sets of hosts that a row names.
NAMED = 5
#: Largest number of hosts that fail together.
MOST = 8


class CheckFailover(command.TableCommand):
    """Check if the instances of any failed host would find places on the others.

    Places are judged by the rules that hold when Nova evacuates an instance, by Placement's claims
    and by the ceilings of the policies. The rows name the hosts that are not safe, the instances
    without a place, and moves that would repair it. Reads the cloud as a planning cycle does, or a
    snapshot, and changes nothing. The exit status is 1 unless all are safe, and so if the time was
    over before all were searched.
    """

    columns = ('Scope', 'What', 'Verdict', 'Detail')
    examples = ('', '--hosts 2 --scope ssd --max-seconds 120', '--domain rack')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        command.add_snapshot(parser)
        command.add_scope(parser)
        failing = parser.add_mutually_exclusive_group()
        failing.add_argument('--hosts', type=_parse_count, default=1, metavar='N',
                             help='Any N hosts fail together; 1 unless given. Of too many sets, '
                                  'those of the hosts with the most claimed memory are tried, and '
                                  'the verdict is at best unknown.')
        failing.add_argument('--domain', metavar='KIND',
                             help='All hosts of a failure domain of this kind fail together, such '
                                  'as rack: by the metadata kronos:domain = rack:r12 of '
                                  'aggregates.')
        command.add_max_seconds(parser, failover_checks.MAX_SECONDS,
                                'Time of the search; hosts that it does not reach are unknown.')
        return parser

    def render_rows(self, args: argparse.Namespace) -> Iterable[command.Row]:
        with (self.open_session(cloud_state.Session, args) as session,
              command.open_bar(session) as show_progress):
            checks = failover_checks.check_failover(
                session, count=args.hosts, kind=args.domain, scope=args.scope,
                max_seconds=args.max_seconds, report_progress=show_progress)
        # 1 when any set of hosts is not proven safe: the table says why.
        self.status = int(any(check.state != 'safe' for check in checks))
        return [command.format_printable_row((check.scope, *row))
                for check in checks for row in _render_rows(check, args.max_seconds)]


def describe_verdict(verdict: Any) -> str:
    """Describe a verdict in a sentence."""
    here = len(verdict.places) + len(verdict.unplaced)
    if verdict.state == 'safe':
        return f'safe: {plurals.count_noun(here, "instance")} would find places'
    if verdict.fault is not None:
        return f'unknown: the checker refused the places that were found: {verdict.fault}'
    found = ('no placement exists' if verdict.proven else
             'no placement was found' if verdict.state == 'unsafe' else
             'some cannot be judged')
    return f'{verdict.state}: {len(verdict.places)} of {here} instances would find places; {found}'


def _render_rows(check: Any, max_seconds: float) -> Iterator[tuple[str, str, str]]:
    certificate, unsearched = check.certificate, check.list_unsearched()
    unknown = set(unsearched)
    doubtful = [v for hosts, v in certificate.verdicts.items()
                if v.state != 'safe' and hosts not in unknown]
    for number, verdict in enumerate(doubtful):
        hosts = verdict.hosts
        name = check.names.get(hosts)
        yield (f'domain {name}' if name else
               f'{plurals.choose_form(len(hosts), "host", "hosts")} {", ".join(hosts)}',
               str(verdict.state), describe_verdict(verdict).partition(': ')[2])
        if number >= DETAILED:
            continue
        for uuid, rejection in sorted(verdict.unplaced.items()):
            yield f'instance {uuid}', 'no place', f'{rejection.rule}: {rejection.detail}'
        for move in verdict.repair:
            yield (f'instance {move.instance_uuid}', 'repair',
                   f'{move.from_host} to {move.to_host}')
    if unsearched:
        yield (plurals.count_noun(len(unsearched), *_name_sets(check)), 'unknown',
               f'not known within {max_seconds:g} s (--max-seconds): ' + _join_names([
                   check.names.get(hosts) or ' + '.join(hosts) for hosts in unsearched]))
    if check.uncovered:
        yield (plurals.count_noun(len(check.uncovered), 'host'), 'unknown',
               f'no failure domain: {_join_names(check.uncovered)}')
    yield 'conclusion', str(check.state), _format_conclusion(check)


def _format_conclusion(check: Any) -> str:
    certificate = check.certificate
    if certificate.hold is not None:
        return str(certificate.hold)
    if check.problem is not None:
        return str(check.problem)
    safe = sum(v.state == 'safe' for v in certificate.verdicts.values())
    text = f'{safe:,} of {plurals.count_noun(check.possible, *_name_sets(check))} safe'
    tried = len(certificate.verdicts) - len(check.list_unsearched())
    if check.possible > tried:
        text += f'; {tried:,} were tried'
    if certificate.by_claims_alone:
        text += '; by claims alone, since the metrics are not trusted'
    return text


def _name_sets(check: Any) -> tuple[str, str]:
    """Return the name of the hosts that fail together, and its plural."""
    if check.names:
        return 'failure domain', 'failure domains'
    if all(len(hosts) == 1 for hosts in check.certificate.verdicts):
        return 'host', 'hosts'
    return 'set of hosts', 'sets of hosts'


def _join_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = len(names) - NAMED
    return ', '.join(names[:NAMED]) + (f' and {more:,} more' if more > 0 else '')


def _parse_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f'{text!r} is no number from 1 to {MOST}')
    return int(text)
