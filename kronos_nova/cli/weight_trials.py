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


"""Run ``kronos weigh tune``: a past, nova.conf, trials, a recommendation."""

import argparse
import dataclasses
import math
import sys
from typing import Any

from kronos_nova import exception
from kronos_nova.cli import progress as bars
from kronos_nova.weighing import nova_setup
from kronos_nova.wiring import tools

PROG = 'kronos weigh tune'
SPREAD = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def run(session: Any, args: argparse.Namespace, debug: bool,
        configure: Any = nova_setup.configure_offline,
        ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Try each multiplier on the past, and print the recommended one.

    :param configure: reads nova.conf; a process that has read it passes its own function.
    :returns: column names, and a row for history and each multiplier.
    :raises KronosException: bad input, or an input cannot be read.
    """
    wanted = [_parse_multiplier(text) for text in args.multiplier]
    nova_setup.native_threads()
    # Import after native_threads(): these modules load packages that need the choice.
    from kronos_nova.cli import simulation_arguments as arguments
    from kronos_nova.cli import simulation_run as simulation
    from kronos_nova.rebalancer.backtest import history as pasts
    from kronos_nova.weighing import multiplier_tuner
    from kronos_nova.weighing import settings

    conf = session.conf
    # The later configuration sets up the log.
    nova = configure(args.nova_conf, debug)
    others = settings.parse(nova, args.settings)
    of_aggregates = dict(_of_aggregate(text) for text in args.aggregate)
    sets = simulation.policy_sets(args.policies or [conf.engine.policies_file])
    policy_set = next(iter(sets.values()))
    sign = -1.0 if policy_set.mode == 'pack' else 1.0
    multipliers = list(dict.fromkeys([0.0, *(wanted or (sign * m for m in SPREAD))]))
    args.power, args.empty_hosts, args.return_within = '0:1', 'idle', '24h'
    asked, assumptions = arguments.parse_review_options(args, conf)
    bar = bars.ProgressLine(sys.stderr)
    taken: settings.Taken = []
    try:
        trace = simulation.read_trace(session, args, list(sets.values()), bar)
        candidates = simulation.candidates_of(
            conf, sets, trace, live=args.trace is None and args.snapshot is None)
        candidate = dataclasses.replace(candidates[0], others=tuple(candidates[1:]))
        scopes = tuple(dict.fromkeys(s for each in candidates for s in each.scopes))
        if not scopes:
            raise exception.ConfigError(
                path='kronos.conf', field='[engine] aggregates',
                problem='none of the planned scopes has a host in this cloud',
                remedy='Name another aggregate or set include_unassigned_hosts.')
        past = pasts.build_past(trace, list(sets.values()), scopes)
        taken = settings.apply(nova, others)
        tuner = multiplier_tuner.MultiplierTuner(
            past, list(sets.values()), nova, None if args.without_moves else candidate, assumptions,
            dataclasses.replace(asked, scopes=scopes), bar.show, of_aggregates)
        trials = [tuner.history(), *tuner.run(multipliers)]
    finally:
        settings.restore_options(nova, taken)
        bar.clear()
    for text in past.warnings:
        _print_message(text)
    advice = multiplier_tuner.choose_multiplier(trials[1:], policy_set.mode)
    _print_message(f'Recommended: kronos_weight_multiplier = {advice.multiplier:g}: {advice.why}')
    return _build_table(args.formatter, [m.name for m in past.measures], trials, advice)


def _build_table(form: str, measures: list[str], trials: list[Any],
                 advice: Any) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return the trials as rows; nested where the format allows it."""
    nested = form in ('json', 'yaml')
    names = (
        ('multiplier', 'recommended', 'booted', 'elsewhere', 'without_room',
         'overload_host_minutes', 'spread', 'empty_hosts', 'moves',
         'overload_host_minutes_with_moves') if nested else
        ('Multiplier', 'Recommended', 'Booted', 'Elsewhere', 'Without room',
         'Overload, host-minutes', *(f'Mean max - min {name}' for name in measures),
         'Empty hosts', 'Moves later', 'Overload with moves'))
    rows = []
    for trial in trials:
        recommended = trial.multiplier is not None and trial.multiplier == advice.multiplier
        if nested:
            rows.append((
                trial.multiplier, recommended, trial.count.booted, trial.count.elsewhere,
                trial.count.without_room, trial.overload, trial.spread, trial.empty_hosts,
                trial.moves, trial.overload_moved))
            continue
        label = ('history' if trial.multiplier is None
                 else '0 (Nova alone)' if trial.multiplier == 0 else f'{trial.multiplier:g}')
        cells = (label, '*' if recommended else '', trial.count.booted, trial.count.elsewhere,
                 trial.count.without_room, trial.overload,
                 *(trial.spread[name] for name in measures), trial.empty_hosts, trial.moves,
                 trial.overload_moved)
        rows.append(tuple(_format_cell(cell) for cell in cells) if form == 'table' else cells)
    return names, rows


def _format_cell(value: Any) -> Any:
    if value is None:
        return '-'
    if isinstance(value, float):
        return f'{value:,.0f}' if abs(value) >= 100 else f'{value:.4g}'
    return value


def _parse_multiplier(text: str, option: str = '--multiplier') -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise exception.ConfigError(
            path='the command line', field=option, problem=f'{text!r} is no number',
            remedy='Give such as 2 or -0.5.')
    return found + 0.0


def _of_aggregate(text: str) -> tuple[str, float]:
    """Return the name and the multiplier of ``--aggregate NAME=X``."""
    name, sign, value = text.rpartition('=')
    if not sign or not name:
        raise exception.ConfigError(
            path='the command line', field='--aggregate', problem=f'{text!r} is not NAME=X',
            remedy='Give such as gpu=-2.')
    return name, _parse_multiplier(value, '--aggregate')


def _print_message(text: str) -> None:
    sys.stderr.write(f'{PROG}: {tools.format_printable(text)}\n')
