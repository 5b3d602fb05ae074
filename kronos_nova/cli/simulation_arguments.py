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

"""Check the arguments of ``kronos simulate``: each error names its option."""

import argparse
from collections.abc import Callable
import dataclasses
import math
import time
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova.conf import engine
from kronos_nova.constraints import disks
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import power
from kronos_nova.rebalancer.backtest import recorded_trace
from kronos_nova.rebalancer.backtest import review
from kronos_nova.rebalancer.backtest import simulated_executor
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.sources import ranges
from kronos_nova.wiring import times

#: A week of minutes is 10,080.
MAX_TIMES = 50_000
STEP = '5m'


def parse_review_options(args: argparse.Namespace,
                         conf: cfg.ConfigOpts) -> tuple[review.ReviewQuestion,
                                                        backtest_run.TimingAssumptions]:
    """Return the question to review, still without scopes, and the assumptions on moves."""
    limits = simulated_executor.ConcurrencyLimits(
        per_scope=conf.executor.max_concurrent_migrations,
        per_source=conf.executor.max_concurrent_per_source,
        per_destination=conf.executor.max_concurrent_per_destination,
        total=conf.executor.max_concurrent_migrations_total,
        bandwidth=parse_number('--bandwidth', args.bandwidth, 1e-3, 1e6),
        copies_disk=disks.has_local_storage(engine.build_options(conf)),
        begin_within=store_rows.BEGIN_WITHIN)
    lag = (float(conf.engine.settle_seconds) if args.lag is None
           else parse_option('--lag', times.parse_duration, args.lag))
    assumptions = backtest_run.TimingAssumptions(
        interval=conf.engine.evaluation_interval, cooldown=conf.engine.cooldown,
        instance_cooldown=conf.engine.instance_cooldown, stagger=conf.executor.stagger_seconds,
        lag=lag, limits=limits)
    question = review.ReviewQuestion(
        scopes=(), ceiling=parse_number('--ceiling', args.ceiling, 0.0, 1.0),
        return_seconds=parse_option('--return-within', times.parse_duration, args.return_within),
        curve=parse_option('--power', lambda text: power.parse(text, args.empty_hosts == 'off'),
                      args.power), limits=limits)
    return question, assumptions


def parse_window(args: argparse.Namespace) -> ranges.QueryWindow:
    """Return the times to query a live source for."""
    if args.start is None:
        raise make_option_error('--from', 'the first time is missing', 'Write for example --from '
                                                                       '-2d')
    now = math.floor(time.time())
    start = math.floor(parse_option('--from', lambda text: times.parse_time(text, now), args.start))
    end = parse_option('--to', lambda text: times.parse_time(text, now), args.end)
    step = parse_option('--step', times.parse_duration, args.step or STEP)
    if step < 1 or step != int(step):
        raise make_option_error('--step', f'{step:g} s is no whole number of seconds above 0',
                                'Write for example 5m')
    if end > now:
        raise make_option_error('--to', 'it lies in the future', 'Write now, or an earlier time')
    return build_window(start, end, step)


def build_window(start: float, end: float, step: float) -> ranges.QueryWindow:
    """Return the window; raise ConfigError if it is empty, too short or has too many times."""
    if end <= start:
        raise make_option_error('--to', f'{times.format_time(end)} is not after --from '
                            f'({times.format_time(start)})', 'Give a later time')
    count = int((end - start) / step + 1e-6) + 1
    if count < 2:
        raise make_option_error('--step', 'it is longer than the time from --from to --to',
                                'Give a shorter one')
    if count > MAX_TIMES:
        raise make_option_error('--step', f'it makes {count} times, more than {MAX_TIMES}',
                                'Give a longer one, or less time')
    return ranges.QueryWindow(start, step, count)


def cut_trace(args: argparse.Namespace,
              trace: recorded_trace.RecordedTrace) -> recorded_trace.RecordedTrace:
    """Return the part of a trace between --from and --to, at the times that --step selects."""
    whole = trace.window
    start, end, every = whole.start, whole.end, 1
    if args.start is not None:
        start = parse_option('--from', lambda text: times.parse_time(text, whole.end), args.start)
    if args.end is not None:
        end = parse_option('--to', lambda text: times.parse_time(text, whole.end), args.end)
    if args.step is not None:
        step = parse_option('--step', times.parse_duration, args.step)
        every = round(step / whole.step)
        if every < 1 or abs(every * whole.step - step) > 1e-6 * whole.step:
            raise make_option_error('--step', f'{step:g} s is no multiple of the trace\'s '
                                  f'{whole.step:g} s', 'Leave it out or give a multiple')
    if end <= start:
        build_window(start, end, whole.step)
    first = max(0, math.ceil((start - whole.start) / whole.step - 1e-6))
    last = min(whole.count - 1, math.floor((end - whole.start) / whole.step + 1e-6))
    if last - first < every:
        raise make_option_error('--from', f'the trace has fewer than two times there; it is from '
                              f'{times.format_time(whole.start)} to {times.format_time(whole.end)}',
                                'Ask for a time within it')
    part = slice(first, last + 1, every)
    found = build_window(whole.at(first), whole.at(last), whole.step * every)
    answers = {question: dataclasses.replace(a, values=a.values[part])
               for question, a in trace.answers.items()}
    return dataclasses.replace(trace, window=found, answers=answers)


def energy_measure(name: str | None, past: pasts.LoadHistory) -> str:
    """Return the measure of that name; without a name cpu, else the first one."""
    names = [m.name for m in past.measures]
    if name is None:
        return 'cpu' if 'cpu' in names else names[0]
    if name not in names:
        raise make_option_error('--power-policy', f'no policy is named {name}',
                                f'Name one of {", ".join(names)}')
    return name


def parse_option(option: str, parse: Callable[[str], Any], text: str) -> Any:
    """Parse an option's text; turn a ValueError into a ConfigError that names the option."""
    try:
        return parse(text)
    except ValueError as e:
        raise make_option_error(option, str(e), 'See kronos simulate --help') from None


def parse_number(option: str, text: str, least: float, most: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not least <= found <= most:
        raise make_option_error(option, f'{text!r} is no number from {least:g} to {most:g}',
                                'Give such a number')
    return found


def make_option_error(option: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='the command line', field=option, problem=problem,
                                 remedy=f'{remedy}.')
