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

"""Run ``kronos simulate``: configuration, cloud, load, candidates, output."""

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
from kronos_nova.cli import progress as bars
from kronos_nova.cli import simulation_arguments as arguments
from kronos_nova.conf import engine as engine_conf
from kronos_nova.conf import policies as policy_files
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import compare
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import record_trace
from kronos_nova.rebalancer.backtest import recorded_trace
from kronos_nova.rebalancer.backtest import review
from kronos_nova.rebalancer.backtest import trace as traces
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import replay
from kronos_nova.wiring import extras
from kronos_nova.wiring import tools

PROG = 'kronos simulate'


def run(session: sessions.Session,
        args: argparse.Namespace) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run the simulation, and write its report and plot.

    :returns: the candidates' names, and the rows of the comparison.
    :raises KronosException: bad input, or an input cannot be read.
    """
    plot = _load_plotter(args.plot)
    conf = session.conf
    sets = policy_sets(args.policies or [conf.engine.policies_file])
    asked, assumptions = arguments.parse_review_options(args, conf)
    bar = bars.ProgressLine(sys.stderr)
    try:
        trace = read_trace(session, args, list(sets.values()), bar)
        trace = dataclasses.replace(trace, cluster=dataclasses.replace(
            trace.cluster, planned_zone=engine_conf.planned_zone(conf)))
        candidates = candidates_of(conf, sets, trace, live=args.trace is None
                                 and args.snapshot is None)
        scopes = tuple(dict.fromkeys(s for c in candidates for s in c.scopes))
        if not scopes:
            raise exception.ConfigError(
                path='kronos.conf', field='[engine] aggregates',
                problem='none of the planned scopes has a host in this cloud',
                remedy='Name another aggregate or set include_unassigned_hosts.')
        past = pasts.build_past(trace, list(sets.values()), scopes)
        asked = dataclasses.replace(
            asked, scopes=scopes,
            energy_measure=arguments.energy_measure(args.power_policy, past))
        reviews = [review.review_journey(past, found, asked)
                   for found in _run_journeys(past, candidates, assumptions, bar)]
    finally:
        bar.clear()
    for text in past.warnings:
        sys.stderr.write(f'{PROG}: {tools.format_printable(text)}\n')
    if args.report:
        _write(args.report, json.dumps(compare.build_document(past, reviews, asked, assumptions),
                                       indent=1, allow_nan=False) + '\n')
    if plot is not None:
        with _convert_os_errors(args.plot):
            plot(args.plot, past.window, reviews)
    return [r['name'] for r in reviews], compare.build_comparison_rows(past, reviews)


# Arguments.

def policy_sets(paths: list[str]) -> dict[str, policies.PolicySet]:
    """Load the policy files, by the name of their column.

    The name is the file's own; its path when another column has that name.
    """
    out: dict[str, policies.PolicySet] = {}
    for path in paths:
        loaded = policy_files.load(path)
        name = os.path.basename(path)
        if name in out or name in ('history', 'nothing', 'Measure'):
            name = path
        if name in out:
            raise arguments.make_option_error('--policies', f'{path} is given twice',
                                              'Name each file once')
        out[name] = loaded
    return out


# The cloud and its load.

def read_trace(session: sessions.Session, args: argparse.Namespace,
               sets: list[policies.PolicySet],
               bar: bars.ProgressLine) -> recorded_trace.RecordedTrace:
    if args.trace is not None:
        for other, given in (('--snapshot', args.snapshot), ('--record', args.record)):
            if given is not None:
                raise arguments.make_option_error(other, 'it does not go with --trace',
                                                  'Leave one out')
        return arguments.cut_trace(args, traces.read(args.trace))
    window = arguments.parse_window(args)
    source = session.source
    health, text = source.health()
    if health is model.SourceHealth.UNREACHABLE:
        raise exception.HistoryError(what='[prometheus] url', problem=text,
                                     remedy='Correct it, or simulate a --trace.')
    cluster, scopes, told = _read_cloud(session, args, sets)
    bar.show('reading the load', 0.0)
    found = record_trace.gather_trace(source, sets, window, cluster, scopes,
                                      lambda part: bar.show('reading the load', part))
    found = dataclasses.replace(found, warnings=(*told, *found.warnings))
    if args.record is not None:
        traces.write(args.record, found, sets[0])
    return found


def _read_cloud(session: sessions.Session, args: argparse.Namespace,
                sets: list[policies.PolicySet],
                ) -> tuple[model.Cluster, tuple[str, ...], tuple[str, ...]]:
    """Return the cloud, its planned scopes, and warnings."""
    if args.snapshot is not None:
        found = reader.read(args.snapshot)
        return found.cluster, found.scopes, ()
    cluster = session.collector.collect(time.time())
    return cluster, tuple(dict.fromkeys(
        s for policy_set in sets
        for s in planning_settings.list_planned_scopes(session.conf, policy_set))), ()


def candidates_of(conf: cfg.ConfigOpts, sets: dict[str, policies.PolicySet],
                trace: recorded_trace.RecordedTrace,
                  live: bool) -> list[backtest_run.PolicyCandidate]:
    traits = any(h.traits for h in trace.cluster.hosts.values())
    if conf.engine.require_cpu_compatibility and not traits:
        raise exception.ConfigError(
            path='kronos.conf', field='[engine] require_cpu_compatibility',
            problem='the CPU traits of the hosts are not known',
            remedy='Record the cloud with the option, or simulate without it.')
    taken = reader.RecordedSnapshot(
        cluster=trace.cluster, histories={'': model.MoveHistory()}, policy_names=(),
        scopes=trace.scopes, recorded_at=trace.cluster.taken_at, traits_known=traits)
    out = []
    for name, policy_set in sets.items():
        scopes = (planning_settings.list_planned_scopes(conf, policy_set) if live
                  else replay.choose_scopes(conf, policy_set, taken))
        missing = [s for s in scopes
                   if s != model.UNASSIGNED and s not in trace.cluster.aggregates]
        if missing:
            raise exception.ConfigError(
                path='kronos.conf', field='[engine] aggregates',
                problem=f'the cloud has no aggregate {missing[0]}', remedy='Correct the name.')
        # An engine plans the existing hosts; an empty pool needs no message.
        scopes = [s for s in scopes if trace.cluster.hosts_of(s)]
        settings = dataclasses.replace(planning_settings.build_settings(conf, policy_set),
                                       deadline=math.inf)
        out.append(backtest_run.PolicyCandidate(name, settings, tuple(scopes)))
    return out


# Running and writing.

def _run_journeys(past: pasts.LoadHistory, candidates: list[backtest_run.PolicyCandidate],
                  assumptions: backtest_run.TimingAssumptions,
                  bar: bars.ProgressLine) -> list[backtest_run.BacktestResult]:
    def make_step_callback(name: str) -> Callable[[int], None]:
        return lambda k: bar.show(name, (k + 1) / past.window.count)

    found = [backtest_run.as_it_was(past, make_step_callback('history'))]
    if found[0].moved:
        found.append(backtest_run.run_without_moves(past, make_step_callback('nothing')))
    return found + [backtest_run.run_candidate(past, c, assumptions, make_step_callback(c.name))
                    for c in candidates]


def _load_plotter(path: str | None) -> Callable[..., None] | None:
    """Return the function that draws; check the format before hours of simulation."""
    if path is None:
        return None
    with extras.needs_extra('kronos simulate --plot', 'plot'):
        from kronos_nova.rebalancer.backtest import plot
    if path.rpartition('.')[2].lower() not in plot.FORMATS:
        raise arguments.make_option_error('--plot',
                                          f'{path} ends in none of .{", .".join(plot.FORMATS)}',
                                          'Name such a file')
    return plot.write


def _write(path: str, text: str) -> None:
    with _convert_os_errors(path), open(path, 'w', encoding='utf-8') as f:
        f.write(text)


@contextlib.contextmanager
def _convert_os_errors(path: str) -> Any:
    try:
        yield
    except OSError as e:
        raise exception.ConfigError(
            path='the command line', field=path,
            problem=f'it cannot be written ({os.strerror(e.errno or 0)})',
            remedy='Name a file in a directory that you may write to.') from None
