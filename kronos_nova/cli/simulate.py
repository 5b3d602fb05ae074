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

"""``kronos simulate``: run the planner over days of load, for several policy files."""

import argparse
import re
from typing import Any

from cliff import lister

from kronos_nova.cli import command

#: SPECpower_ssj2008 of an HP ProLiant ML110 G5, the table that CloudSim uses.
WATTS = '93.7,97,101,105,110,116,121,125,129,133,135'
#: Characters of a text that a table shows.
REASON = 36


class SimulatePolicies(command.BaseCommand, lister.Lister):
    """Run the real planner over past load and compare policy files.

    The cloud comes from Nova and Placement, or from a snapshot of
    kronos-record; the load from the policies' own queries over time, or both
    from a trace that an earlier run has recorded. Nothing is changed
    anywhere. The first columns are history as it was and, where history
    moved instances, the same without any move.
    """

    examples = ('--from -2d --policies new.yaml --config-file /etc/kronos/kronos.conf',
                '--trace day.json --policies new.yaml --plot day.svg')
    config = None

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        # "-2d" is a time and no option.
        parser._negative_number_matcher = re.compile(r'-\d')
        add = parser.add_argument_group('simulation').add_argument
        add('--config-file', action='append', default=[], metavar='FILE',
            help='kronos.conf: [prometheus], [engine], [executor]; repeatable.')
        add('--policies', action='append', default=[], metavar='FILE',
            help='A candidate policy file; repeatable. Default: [engine] policies_file.')
        add('--from', dest='start', metavar='TIME',
            help='First time: 2026-11-01T00:00:00Z, epoch seconds, or -2d. Default: the whole '
                 'trace.')
        add('--to', dest='end', default='now', metavar='TIME',
            help='Last time (default: now; of a trace, its last time).')
        add('--step', metavar='DURATION',
            help='Between two looks at the load (default: 5m; of a trace, its own).')
        add('--snapshot', metavar='DIR', help='The cloud, as kronos-record wrote it.')
        add('--trace', metavar='FILE', help='Cloud and load, as --record wrote them.')
        add('--record', metavar='FILE', help='Also write the data read into this trace file.')
        add('--report', metavar='FILE', help='Also write everything as JSON.')
        add('--plot', metavar='FILE', help='Also draw it: .svg, .png or .pdf.')
        add('--ceiling', default='0.8', metavar='SCORE',
            help='A host with a higher score is overloaded (default: 0.8).')
        add('--return-within', default='24h', metavar='DURATION',
            help='An instance that comes back to a host so soon plays ping-pong (default: 24h).')
        add('--lag', metavar='DURATION',
            help='Until metrics show a move whole: the longest range in the queries (default: '
                 '[engine] settle_seconds).')
        add('--bandwidth', default='250', metavar='MIB_PER_SECOND',
            help='What one migration copies (default: 250).')
        add('--power', default=WATTS, metavar='WATTS',
            help='Power of a host: IDLE:MAX, or 11 watts at 0, 10, ... 100 %% of load, comma-'
                 'separated (default: %(default)s, a small server of 2009).')
        add('--power-policy', metavar='NAME',
            help='Whose score is the load that draws power (default: cpu, else the first).')
        add('--empty-hosts', choices=['idle', 'off'], default='idle',
            help='Whether a host without instances draws idle power or none (default: idle).')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        found: list[Any] = []

        def run() -> None:
            from kronos_nova.cli import simulation_run

            with self.open_session(parsed_args, live=False) as session:
                found.append(simulation_run.run(session, parsed_args))

        self.guarded(run)
        names, rows = found[0]
        if parsed_args.formatter == 'table':
            rows = [(label, *(_format_cell(value) for value in values)) for label, *values in rows]
        return ('Measure', *names), rows


def _format_cell(value: Any) -> str:
    if value is None:
        return '-'
    if isinstance(value, float):
        return f'{value:,.1f}' if abs(value) >= 100 else f'{value:.4g}'
    text = str(value)
    return text if len(text) <= REASON else text[:REASON - 3] + '...'
