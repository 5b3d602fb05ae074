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
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import json
import math
import os
import re
import sys
from typing import Any

from cliff import lister

from kronos_nova import exception
from kronos_nova.cli import command
from kronos_nova.rebalancer.backtest import power
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import past_loads
from kronos_nova.rebalancer.operations import simulations
from kronos_nova.text import times
from kronos_nova.wiring import extras
from kronos_nova.wiring import tools

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

    examples = ('--from -2d --policies new.yaml',
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
        comparisons: list[simulations.PolicyComparison] = []
        self.run_guarded(lambda: comparisons.append(self._simulate(parsed_args)))
        rows = comparisons[0].list_rows()
        if parsed_args.formatter == 'table':
            rows = [(label, *(_format_cell(value) for value in values)) for label, *values in rows]
        return ('Measure', *comparisons[0].list_names()), rows

    def _simulate(self, args: argparse.Namespace) -> simulations.PolicyComparison:
        plot = _load_plotter(args.plot)
        with self.open_session(cloud_state.Session, args, live=False) as session, \
                command.open_bar(session) as show_progress:
            comparison = simulations.simulate_policies(
                session, parse_source(args), args.policies, _parse_question(args),
                progress=show_progress)
        for text in comparison.past.warnings:
            sys.stderr.write(f'{self.prog}: {tools.format_printable(text)}\n')
        if args.report:
            with _convert_os_errors(args.report), open(args.report, 'w', encoding='utf-8') as f:
                f.write(json.dumps(comparison.build_document(), indent=1, allow_nan=False) + '\n')
        if plot is not None:
            with _convert_os_errors(args.plot):
                plot(args.plot, comparison.past.window, comparison.reviews)
        return comparison


def parse_source(args: argparse.Namespace) -> past_loads.PastSource:
    """Return the past that --from, --to, --step, --trace and --record name."""
    return past_loads.PastSource(past_loads.LoadPeriod(
        None if args.start is None else parse_option('--from', times.parse_moment, args.start),
        parse_option('--to', times.parse_moment, args.end),
        None if args.step is None else parse_option('--step', times.parse_duration, args.step)),
        args.trace, args.record)


def _parse_question(args: argparse.Namespace) -> simulations.SimulationQuestion:
    return simulations.SimulationQuestion(
        ceiling=parse_number('--ceiling', args.ceiling, 0.0, 1.0),
        return_seconds=parse_option('--return-within', times.parse_duration, args.return_within),
        lag=parse_lag(args.lag), bandwidth=parse_bandwidth(args.bandwidth),
        curve=parse_option('--power',
                           lambda text: power.parse_power_curve(text, args.empty_hosts == 'off'),
                           args.power), power_policy=args.power_policy)


def parse_lag(text: str | None) -> float | None:
    """Read --lag."""
    return None if text is None else float(parse_option('--lag', times.parse_duration, text))


def parse_bandwidth(text: str) -> float:
    """Read --bandwidth."""
    return parse_number('--bandwidth', text, 1e-3, 1e6)


def parse_option(option: str, parse: Callable[[str], Any], text: str) -> Any:
    """Parse an option's text; turn a ValueError into a ConfigError that names the option."""
    try:
        return parse(text)
    except ValueError as e:
        raise past_loads.make_option_error(option, str(e), 'See kronos simulate --help') from None


def parse_number(option: str, text: str, least: float, most: float) -> float:
    """Parse a number within its bounds.

    :raises ConfigError: it is no such number; the error names the option.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise past_loads.make_option_error(
            option, f'{text!r} is no number from {least:g} to {most:g}', 'Give such a number')
    return number


def _load_plotter(path: str | None) -> Callable[..., None] | None:
    """Return the function that draws; check the format before hours of simulation."""
    if path is None:
        return None
    with extras.needs_extra('kronos simulate --plot', 'plot'):
        # matplotlib, the extra "plot", may be missing.
        from kronos_nova.rebalancer.backtest import plot  # noqa: PLC0415
    if path.rpartition('.')[2].lower() not in plot.FORMATS:
        raise past_loads.make_option_error(
            '--plot', f'{path} ends in none of .{", .".join(plot.FORMATS)}', 'Name such a file')
    return plot.write_plot


@contextlib.contextmanager
def _convert_os_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise exception.ConfigError(
            path='the command line', field=path,
            problem=f'it cannot be written ({os.strerror(e.errno or 0)})',
            remedy='Name a file in a directory that you may write to.') from None


def _format_cell(value: Any) -> str:
    if value is None:
        return '-'
    if isinstance(value, float):
        return f'{value:,.1f}' if abs(value) >= 100 else f'{value:.4g}'
    text = tools.format_printable(value)
    return text if len(text) <= REASON else text[:REASON - 3] + '...'
