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
from kronos_nova.rebalancer.backtest import recorded
from kronos_nova.rebalancer.backtest import review
from kronos_nova.rebalancer.backtest import simulated_executor
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.sources import ranges
from kronos_nova.wiring import times

#: A week of minutes is 10,080.
MAX_TIMES = 50_000
STEP = '5m'


def assumed(args: argparse.Namespace,
            conf: cfg.ConfigOpts) -> tuple[review.Question, backtest_run.Assumptions]:
    """Return the question to review, still without scopes, and the assumptions on moves."""
    limits = simulated_executor.Limits(
        per_scope=conf.executor.max_concurrent_migrations,
        per_source=conf.executor.max_concurrent_per_source,
        per_destination=conf.executor.max_concurrent_per_destination,
        total=conf.executor.max_concurrent_migrations_total,
        bandwidth=number('--bandwidth', args.bandwidth, 1e-3, 1e6),
        copies_disk=disks.local(engine.options(conf)), begin_within=store_rows.BEGIN_WITHIN)
    lag = (float(conf.engine.settle_seconds) if args.lag is None
           else parsed('--lag', times.seconds, args.lag))
    assumptions = backtest_run.Assumptions(
        interval=conf.engine.evaluation_interval, cooldown=conf.engine.cooldown,
        instance_cooldown=conf.engine.instance_cooldown, stagger=conf.executor.stagger_seconds,
        lag=lag, limits=limits)
    question = review.Question(
        scopes=(), ceiling=number('--ceiling', args.ceiling, 0.0, 1.0),
        return_seconds=parsed('--return-within', times.seconds, args.return_within),
        curve=parsed('--power', lambda text: power.parse(text, args.empty_hosts == 'off'),
                      args.power), limits=limits)
    return question, assumptions


def window(args: argparse.Namespace) -> ranges.Window:
    """Return the times to query a live source for."""
    if args.start is None:
        raise wrong('--from', 'there is no first time', 'Write for example --from -2d')
    now = math.floor(time.time())
    start = math.floor(parsed('--from', lambda text: times.moment(text, now), args.start))
    end = parsed('--to', lambda text: times.moment(text, now), args.end)
    step = parsed('--step', times.seconds, args.step or STEP)
    if step < 1 or step != int(step):
        raise wrong('--step', f'{step:g} s is no whole number of seconds above 0',
                    'Write for example 5m')
    if end > now:
        raise wrong('--to', 'it lies in the future', 'Write now, or an earlier time')
    return checked(start, end, step)


def checked(start: float, end: float, step: float) -> ranges.Window:
    """Return the window; raise ConfigError if it is empty, too short or has too many times."""
    if end <= start:
        raise wrong('--to', f'{times.shown(end)} is not after --from '
                            f'({times.shown(start)})', 'Give a later time')
    count = int((end - start) / step + 1e-6) + 1
    if count < 2:
        raise wrong('--step', 'it is longer than the time from --from to --to',
                    'Give a shorter one')
    if count > MAX_TIMES:
        raise wrong('--step', f'it makes {count} times of it, more than {MAX_TIMES}',
                    'Give a longer one, or less time')
    return ranges.Window(start, step, count)


def cut(args: argparse.Namespace, trace: recorded.Trace) -> recorded.Trace:
    """Return the part of a trace between --from and --to, at the times that --step selects."""
    whole = trace.window
    start, end, every = whole.start, whole.end, 1
    if args.start is not None:
        start = parsed('--from', lambda text: times.moment(text, whole.end), args.start)
    if args.end is not None:
        end = parsed('--to', lambda text: times.moment(text, whole.end), args.end)
    if args.step is not None:
        step = parsed('--step', times.seconds, args.step)
        every = round(step / whole.step)
        if every < 1 or abs(every * whole.step - step) > 1e-6 * whole.step:
            raise wrong('--step', f'{step:g} s is no multiple of the trace\'s '
                                  f'{whole.step:g} s', 'Leave it out or give a multiple')
    if end <= start:
        checked(start, end, whole.step)
    first = max(0, math.ceil((start - whole.start) / whole.step - 1e-6))
    last = min(whole.count - 1, math.floor((end - whole.start) / whole.step + 1e-6))
    if last - first < every:
        raise wrong('--from', f'the trace has fewer than two times there; it is from '
                              f'{times.shown(whole.start)} to {times.shown(whole.end)}',
                    'Ask for a time within it')
    part = slice(first, last + 1, every)
    found = checked(whole.at(first), whole.at(last), whole.step * every)
    answers = {question: dataclasses.replace(a, values=a.values[part])
               for question, a in trace.answers.items()}
    return dataclasses.replace(trace, window=found, answers=answers)


def energy_measure(name: str | None, past: pasts.Past) -> str:
    """Return the measure of that name; without a name cpu, else the first one."""
    names = [m.name for m in past.measures]
    if name is None:
        return 'cpu' if 'cpu' in names else names[0]
    if name not in names:
        raise wrong('--power-policy', f'no policy is named {name}',
                    f'Name one of {", ".join(names)}')
    return name


def parsed(option: str, parse: Callable[[str], Any], text: str) -> Any:
    """Parse an option's text; turn a ValueError into a ConfigError that names the option."""
    try:
        return parse(text)
    except ValueError as e:
        raise wrong(option, str(e), 'See kronos simulate --help') from None


def number(option: str, text: str, least: float, most: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not least <= found <= most:
        raise wrong(option, f'{text!r} is no number from {least:g} to {most:g}',
                    'Give such a number')
    return found


def wrong(option: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='the command line', field=option, problem=problem,
                                 remedy=f'{remedy}.')
