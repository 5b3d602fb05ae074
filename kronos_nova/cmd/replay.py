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


"""kronos-replay: plan offline from a snapshot."""

from collections.abc import Mapping
from collections.abc import Sequence
import sys
import time
from typing import Any

from kronos_nova import plurals
from kronos_nova.wiring import extras

PROG = 'kronos-replay'

with extras.needs_extra(PROG):
    from oslo_config import cfg

    from kronos_nova.conf import opts
    from kronos_nova.rebalancer.snapshots import replay
    from kronos_nova.text import move_effects
    from kronos_nova.wiring import tools

DESCRIPTION = ('Plans offline from a snapshot, as kronos-engine would have: the same snapshot '
               'and configuration give the same plan.')


@extras.needs_extra(PROG)
def main(argv: Sequence[str] | None = None) -> int:
    """Print the report of every scope.

    :returns: 0 when each scope could be planned, also with no move in the
        plan; 1 otherwise.
    """
    conf = cfg.ConfigOpts()
    opts.register_planning(conf)
    tools.configure_command(conf, PROG, argv, [
        cfg.StrOpt('snapshot', positional=True, required=True,
                   help='Directory that kronos-record, or kronos-engine on SIGUSR1, has '
                        'written.'),
        cfg.StrOpt('format', default='table', choices=['table', 'json', 'yaml'],
                   help='How the result is printed.'),
        cfg.BoolOpt('time', default=False,
                    help='Tell on standard error how long each step took.')], DESCRIPTION)
    return tools.run_guarded(PROG, lambda: _run(conf))


def _run(conf: Any) -> int:
    rows = replay.replay_snapshot(conf, conf.snapshot, time.perf_counter)
    if conf.format == 'table':
        print('\n\n'.join(_render_scope(row) for row in rows))
    else:
        tools.print_document({'aggregates': rows}, conf.format)
    if conf.time:
        sys.stdout.flush()
        for row in rows:
            steps = ', '.join(f'{step} {s:.3f} s' for step, s in row['timings'].items())
            sys.stderr.write(f'{tools.format_printable(row["name"])}: {steps}\n')
    return int(any(row['hosts'] is None for row in rows))


def _format_alternates(move: Mapping[str, Any]) -> str:
    """Return the alternate hosts, each with its expected improvement where known."""
    scores = move['alternate_improvements']
    if len(scores) != len(move['alternates']):
        return ', '.join(move['alternates'])
    return ', '.join(f'{host} ({score:.4f})'
                     for host, score in zip(move['alternates'], scores, strict=True))


def _format_ends(move: Mapping[str, Any]) -> tuple[str, str]:
    """Return source and destination, with their zones where these differ."""
    ends = ((move['from_host'], move['from_zone']), (move['to_host'], move['to_zone']))
    if move['from_zone'] == move['to_zone']:
        return move['from_host'], move['to_host']
    first, second = (f'{host} ({zone})' for host, zone in ends)
    return first, second


def _render_scope(row: Mapping[str, Any]) -> str:
    """Return the report of one scope as text for people."""
    parts = [f'Scope {tools.format_printable(row["name"])}: '
             f'{plurals.count_noun(row["hosts"], "host")}, '
             f'{plurals.count_noun(row["instances"], "instance")}']
    if row['policies']:
        parts.append(tools.format_table(
            ('Policy', 'Imbalance', 'After', 'Threshold', 'Skipped because'),
            [(p['name'], p['imbalance_before'], p['imbalance_after'], p['threshold'],
              p['reason']) for p in row['policies']]))
    if row['combined_before'] is not None:
        parts.append(f'Combined imbalance: {row["combined_before"]:.4f} -> '
                     f'{row["combined_after"]:.4f}')
    if row['moves']:
        parts.append(tools.format_table(
            ('Wave', 'Instance', 'From', 'To', 'Phase', 'Effect', 'Alternates'),
            [(m['wave'], m['instance_uuid'], *_format_ends(m), m['phase'],
              move_effects.describe_effects(m), _format_alternates(m)) for m in row['moves']]))
    else:
        parts.append(f'No moves: {tools.format_printable(row["reason"])}')
    if row['rejections']:
        parts.append('Refused candidates by rule: ' + ', '.join(
            f'{rule} {count}' for rule, count in sorted(row['rejections'].items())))
    parts += [f'Held back ({rejection["rule"]}): {tools.format_printable(rejection["detail"])}'
              for rejection in row['held']]
    parts += [f'Note: {tools.format_printable(text)}' for text in row['undrained']]
    parts += [f'Warning: {tools.format_printable(text)}' for text in row['warnings']]
    if row['truncated']:
        parts.append('The plan was cut off by the limit of steps.')
    return '\n'.join(parts)
