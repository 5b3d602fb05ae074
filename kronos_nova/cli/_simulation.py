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

"""Wires ``kronos simulate``: configuration, cloud, load, candidates, output."""

import argparse
from collections.abc import Callable
import contextlib
import dataclasses
import json
import math
import os
import sys
import time
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.cli import moments
from kronos_nova.cli import progress as bars
from kronos_nova.cmd import _entry
from kronos_nova.cmd import _tool
from kronos_nova.cmd import _wiring
from kronos_nova.conf import opts
from kronos_nova.conf import policies as policy_files
from kronos_nova.rebalancer import engine
from kronos_nova.rebalancer import replay
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.rebalancer.timetravel import carrying
from kronos_nova.rebalancer.timetravel import compare
from kronos_nova.rebalancer.timetravel import gather
from kronos_nova.rebalancer.timetravel import journey
from kronos_nova.rebalancer.timetravel import past as pasts
from kronos_nova.rebalancer.timetravel import power
from kronos_nova.rebalancer.timetravel import recorded
from kronos_nova.rebalancer.timetravel import review
from kronos_nova.rebalancer.timetravel import trace as traces
from kronos_nova.sources import ranges

PROG = 'kronos simulate'
DESCRIPTION = 'Runs the planner over past load.'
#: A week of minutes is 10,080.
MAX_TIMES = 50_000
STEP = '5m'


def run(args: argparse.Namespace) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Do all of it.

    :returns: the candidates' names, and the rows of the comparison.
    :raises KronosException: bad input, or something cannot be read.
    """
    plot = _plotter(args.plot)
    conf = _configure(args)
    sets = _policy_sets(args.policies or [conf.engine.policies_file])
    asked, assumptions = _numbers(args, conf)
    bar = bars.Progress(sys.stderr)
    try:
        trace = _trace(args, conf, list(sets.values()), bar)
        candidates = _candidates(conf, sets, trace, live=args.trace is None
                                 and args.snapshot is None)
        scopes = tuple(dict.fromkeys(s for c in candidates for s in c.scopes))
        if not scopes:
            raise exception.ConfigError(
                path='kronos.conf', field='[engine] aggregates',
                problem='none of the planned scopes has a host in this cloud',
                remedy='Name another aggregate or set include_unassigned_hosts.')
        past = pasts.build(trace, list(sets.values()), scopes)
        asked = dataclasses.replace(
            asked, scopes=scopes, energy_measure=_energy_measure(args.power_policy, past))
        reviews = [review.review(past, found, asked)
                   for found in _journeys(past, candidates, assumptions, bar)]
    finally:
        bar.clear()
    for text in past.warnings:
        sys.stderr.write(f'{PROG}: {_tool.shown(text)}\n')
    if args.report:
        _write(args.report, json.dumps(compare.document(past, reviews, asked, assumptions),
                                       indent=1, allow_nan=False) + '\n')
    if plot is not None:
        with _writing(args.plot):
            plot(args.plot, past.window, reviews)
    return [r['name'] for r in reviews], compare.rows(past, reviews)


# What is asked.

def _configure(args: argparse.Namespace) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    opts.register(conf)
    files = [part for path in args.config_file for part in ('--config-file', path)]
    _tool.configure(conf, PROG, files, [], DESCRIPTION)
    return conf


def _policy_sets(paths: list[str]) -> dict[str, policies.PolicySet]:
    """By a name for the column: the file's own, its path when that is taken."""
    out: dict[str, policies.PolicySet] = {}
    for path in paths:
        loaded = policy_files.load(path)
        name = os.path.basename(path)
        if name in out or name in ('history', 'nothing', 'Measure'):
            name = path
        if name in out:
            raise _wrong('--policies', f'{path} is given twice', 'Name each file once')
        out[name] = loaded
    return out


def _numbers(args: argparse.Namespace,
             conf: cfg.ConfigOpts) -> tuple[review.Question, journey.Assumptions]:
    limits = carrying.Limits(
        per_scope=conf.executor.max_concurrent_migrations,
        total=conf.executor.max_concurrent_migrations_total,
        bandwidth=_number('--bandwidth', args.bandwidth, 1e-3, 1e6),
        copies_disk=conf.engine.enforce_placement_disk, begin_within=store_rows.BEGIN_WITHIN)
    lag = (float(conf.engine.settle_seconds) if args.lag is None
           else _parsed('--lag', moments.seconds, args.lag))
    assumptions = journey.Assumptions(
        interval=conf.engine.evaluation_interval, cooldown=conf.engine.cooldown,
        instance_cooldown=conf.engine.instance_cooldown, stagger=conf.executor.stagger_seconds,
        lag=lag, limits=limits)
    question = review.Question(
        scopes=(), ceiling=_number('--ceiling', args.ceiling, 0.0, 1.0),
        return_seconds=_parsed('--return-within', moments.seconds, args.return_within),
        curve=_parsed('--power', lambda text: power.parse(text, args.empty_hosts == 'off'),
                      args.power), limits=limits)
    return question, assumptions


def _window(args: argparse.Namespace) -> ranges.Window:
    """The times to ask a live source for."""
    if args.start is None:
        raise _wrong('--from', 'there is no first time', 'Write for example --from -2d')
    now = math.floor(time.time())
    start = math.floor(_parsed('--from', lambda text: moments.moment(text, now), args.start))
    end = _parsed('--to', lambda text: moments.moment(text, now), args.end)
    step = _parsed('--step', moments.seconds, args.step or STEP)
    if step < 1 or step != int(step):
        raise _wrong('--step', f'{step:g} s is no whole number of seconds above 0',
                     'Write for example 5m')
    if end > now:
        raise _wrong('--to', 'it lies in the future', 'Write now, or an earlier time')
    return _checked(start, end, step)


def _checked(start: float, end: float, step: float) -> ranges.Window:
    if end <= start:
        raise _wrong('--to', f'{moments.shown(end)} is not after --from '
                             f'({moments.shown(start)})', 'Give a later time')
    count = int((end - start) / step + 1e-6) + 1
    if count < 2:
        raise _wrong('--step', 'it is longer than the time from --from to --to',
                     'Give a shorter one')
    if count > MAX_TIMES:
        raise _wrong('--step', f'it makes {count} times of it, more than {MAX_TIMES}',
                     'Give a longer one, or less time')
    return ranges.Window(start, step, count)


def _energy_measure(name: str | None, past: pasts.Past) -> str:
    names = [m.name for m in past.measures]
    if name is None:
        return 'cpu' if 'cpu' in names else names[0]
    if name not in names:
        raise _wrong('--power-policy', f'no policy is named {name}',
                     f'Name one of {", ".join(names)}')
    return name


def _parsed(option: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as e:
        raise _wrong(option, str(e), 'See kronos simulate --help') from None


def _number(option: str, text: str, least: float, most: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not least <= found <= most:
        raise _wrong(option, f'{text!r} is no number from {least:g} to {most:g}',
                     'Give such a number')
    return found


def _wrong(option: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='the command line', field=option, problem=problem,
                                 remedy=f'{remedy}.')


# The cloud and its load.

def _trace(args: argparse.Namespace, conf: cfg.ConfigOpts, sets: list[policies.PolicySet],
           bar: bars.Progress) -> recorded.Trace:
    if args.trace is not None:
        for other, given in (('--snapshot', args.snapshot), ('--record', args.record)):
            if given is not None:
                raise _wrong(other, 'it does not go with --trace', 'Leave one of them out')
        return _cut(args, traces.read(args.trace))
    window = _window(args)
    source = _wiring.source(conf)
    try:
        health, text = source.health()
        if health is model.Health.UNREACHABLE:
            raise exception.HistoryError(what='[prometheus] url', problem=text,
                                         remedy='Correct it, or simulate a --trace.')
        cluster, scopes, told = _cloud(args, conf, sets)
        bar.show('reading the load', 0.0)
        found = gather.gather(source, sets, window, cluster, scopes,
                              lambda part: bar.show('reading the load', part))
    finally:
        source.close()
    found = dataclasses.replace(found, warnings=(*told, *found.warnings))
    if args.record is not None:
        traces.write(args.record, found, sets[0])
    return found


def _cloud(args: argparse.Namespace, conf: cfg.ConfigOpts, sets: list[policies.PolicySet],
           ) -> tuple[model.Cluster, tuple[str, ...], tuple[str, ...]]:
    """The cloud, its planned scopes, and what to say of it."""
    if args.snapshot is not None:
        found = reader.read(args.snapshot)
        return found.cluster, found.scopes, ()
    cluster = _wiring.collector(conf).collect(time.time())
    return cluster, tuple(dict.fromkeys(
        s for policy_set in sets for s in engine.scopes(conf, policy_set))), ()


def _cut(args: argparse.Namespace, trace: recorded.Trace) -> recorded.Trace:
    """The part of a trace that is asked for, and every how many of its times."""
    whole = trace.window
    start, end, every = whole.start, whole.end, 1
    if args.start is not None:
        start = _parsed('--from', lambda text: moments.moment(text, whole.end), args.start)
    if args.end is not None:
        end = _parsed('--to', lambda text: moments.moment(text, whole.end), args.end)
    if args.step is not None:
        step = _parsed('--step', moments.seconds, args.step)
        every = round(step / whole.step)
        if every < 1 or abs(every * whole.step - step) > 1e-6 * whole.step:
            raise _wrong('--step', f'{step:g} s is no multiple of the trace\'s '
                                   f'{whole.step:g} s', 'Leave it out or give a multiple')
    if end <= start:
        _checked(start, end, whole.step)
    first = max(0, math.ceil((start - whole.start) / whole.step - 1e-6))
    last = min(whole.count - 1, math.floor((end - whole.start) / whole.step + 1e-6))
    if last - first < every:
        raise _wrong('--from', f'the trace has fewer than two times there; it is from '
                               f'{moments.shown(whole.start)} to {moments.shown(whole.end)}',
                     'Ask for a time within it')
    part = slice(first, last + 1, every)
    window = _checked(whole.at(first), whole.at(last), whole.step * every)
    answers = {question: dataclasses.replace(a, values=a.values[part])
               for question, a in trace.answers.items()}
    return dataclasses.replace(trace, window=window, answers=answers)


def _candidates(conf: cfg.ConfigOpts, sets: dict[str, policies.PolicySet],
                trace: recorded.Trace, live: bool) -> list[journey.Candidate]:
    traits = any(h.traits for h in trace.cluster.hosts.values())
    if conf.engine.require_cpu_compatibility and not traits:
        raise exception.ConfigError(
            path='kronos.conf', field='[engine] require_cpu_compatibility',
            problem='the CPU traits of the hosts are not known',
            remedy='Record the cloud with the option, or simulate without it.')
    taken = reader.Recorded(
        cluster=trace.cluster, histories={'': model.History()}, policy_names=(),
        scopes=trace.scopes, recorded_at=trace.cluster.taken_at, traits_known=traits)
    out = []
    for name, policy_set in sets.items():
        scopes = (engine.scopes(conf, policy_set) if live
                  else replay.scopes(conf, policy_set, taken))
        missing = [s for s in scopes
                   if s != model.UNASSIGNED and s not in trace.cluster.aggregates]
        if missing:
            raise exception.ConfigError(
                path='kronos.conf', field='[engine] aggregates',
                problem=f'the cloud has no aggregate {missing[0]}', remedy='Correct the name.')
        # An engine plans the hosts there are; an empty pool is no news.
        scopes = [s for s in scopes if trace.cluster.hosts_of(s)]
        settings = dataclasses.replace(engine.settings(conf, policy_set), deadline=math.inf)
        out.append(journey.Candidate(name, settings, tuple(scopes)))
    return out


# Running and writing.

def _journeys(past: pasts.Past, candidates: list[journey.Candidate],
              assumptions: journey.Assumptions, bar: bars.Progress) -> list[journey.Journey]:
    def shown(name: str) -> Callable[[int], None]:
        return lambda k: bar.show(name, (k + 1) / past.window.count)

    found = [journey.as_it_was(past, shown('history'))]
    if found[0].moved:
        found.append(journey.unmoved(past, shown('nothing')))
    return found + [journey.travel(past, c, assumptions, shown(c.name)) for c in candidates]


def _plotter(path: str | None) -> Callable[..., None] | None:
    """What draws, before hours are spent on what cannot be drawn."""
    if path is None:
        return None
    with _entry.needs_extra('kronos simulate --plot', 'plot'):
        from kronos_nova.rebalancer.timetravel import plot
    if path.rpartition('.')[2].lower() not in plot.FORMATS:
        raise _wrong('--plot', f'{path} ends in none of .{", .".join(plot.FORMATS)}',
                     'Name such a file')
    return plot.write


def _write(path: str, text: str) -> None:
    with _writing(path), open(path, 'w', encoding='utf-8') as f:
        f.write(text)


@contextlib.contextmanager
def _writing(path: str) -> Any:
    try:
        yield
    except OSError as e:
        raise exception.ConfigError(
            path='the command line', field=path,
            problem=f'it cannot be written ({os.strerror(e.errno or 0)})',
            remedy='Name a file in a directory that you may write to.') from None
