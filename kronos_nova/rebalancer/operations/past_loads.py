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

"""A past cloud and its load: from a trace, or from a source of metrics over time."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import math
import os
import time

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.conf import engine as engine_conf
from kronos_nova.conf import policies as policy_files
from kronos_nova.constraints import disks
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import history
from kronos_nova.rebalancer.backtest import record_trace
from kronos_nova.rebalancer.backtest import recorded_trace
from kronos_nova.rebalancer.backtest import simulated_executor
from kronos_nova.rebalancer.backtest import trace as trace_files
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import replay
from kronos_nova.rebalancer.store import rows
from kronos_nova.sources import ranges

#: A week of minutes is 10,080.
MAX_TIMES = 50_000
#: Seconds between two looks at a live source.
STEP = 300.0

Moment = float | datetime.timedelta
Progress = Callable[[str, float], None]


@dataclasses.dataclass(frozen=True, slots=True)
class LoadPeriod:
    """A part of the past.

    ``start`` and ``end`` are epoch seconds, or so long before now; of a trace, before its last
    time. ``start`` None is the whole trace. ``step`` is the seconds between two looks at the load;
    None: those of the trace, else five minutes.
    """

    start: Moment | None = None
    end: Moment = datetime.timedelta()
    step: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PastSource:
    """The origin of a past: a live source over a period, or a period of a trace file.

    ``trace``: the file; None: the cloud of the session, and its source of metrics. ``record``: the
    trace file to write of what a live source says.
    """

    period: LoadPeriod
    trace: str | None = None
    record: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PastLoad:
    """A past for several policy files, and the candidate that each file makes.

    ``sets`` are the policies by the name of the candidate.
    """

    sets: Mapping[str, policy.PolicySet]
    candidates: Sequence[backtest_run.PolicyCandidate]
    scopes: tuple[str, ...]
    history: history.LoadHistory


def load_policy_sets(paths: Sequence[str]) -> dict[str, policy.PolicySet]:
    """Load policy files, by the name of their candidate.

    The name is the file's own; its path when another candidate has that name.

    :raises ConfigError: a file cannot be used, or is given twice.
    """
    policy_sets: dict[str, policy.PolicySet] = {}
    for path in paths:
        loaded = policy_files.load_policies(path)
        name = os.path.basename(path)
        if name in policy_sets or name in ('history', 'nothing', 'Measure'):
            name = path
        if name in policy_sets:
            raise make_option_error('--policies', f'{path} is given twice', 'Name each file once')
        policy_sets[name] = loaded
    return policy_sets


def read_past_load(session: cloud_state.Session, sets: Mapping[str, policy.PolicySet],
                   source: PastSource, progress: Progress) -> PastLoad:
    """Read the past of the hosts that engines with this configuration would plan.

    :param sets: policies by the name of their candidate.
    :raises KronosException: an input cannot be read, or does not fit the others.
    """
    conf = session.conf
    trace = _read_trace(session, list(sets.values()), source, progress)
    trace = dataclasses.replace(trace, cluster=dataclasses.replace(
        trace.cluster, planned_zone=engine_conf.planned_zone(conf)))
    candidates = _list_candidates(conf, sets, trace,
                                  live=source.trace is None and session.snapshot is None)
    scopes = tuple(dict.fromkeys(s for c in candidates for s in c.scopes))
    if not scopes:
        raise exception.ConfigError(
            path='kronos.conf', field='[engine] aggregates',
            problem='none of the planned scopes has a host in this cloud',
            remedy='Name another aggregate or set include_unassigned_hosts.')
    return PastLoad(sets, candidates, scopes,
                    history.build_past(trace, list(sets.values()), scopes))


def build_assumptions(conf: cfg.ConfigOpts, lag: float | None,
                      bandwidth: float) -> backtest_run.TimingAssumptions:
    """Build the assumptions on the times of moves.

    :param lag: seconds until metrics show a move whole; None: [engine] settle_seconds.
    :param bandwidth: MiB/s that one migration copies.
    """
    return backtest_run.TimingAssumptions(
        interval=conf.engine.evaluation_interval, cooldown=conf.engine.cooldown,
        instance_cooldown=conf.engine.instance_cooldown, stagger=conf.executor.stagger_seconds,
        lag=float(conf.engine.settle_seconds) if lag is None else lag,
        limits=simulated_executor.ConcurrencyLimits(
            per_scope=conf.executor.max_concurrent_migrations,
            per_source=conf.executor.max_concurrent_per_source,
            per_destination=conf.executor.max_concurrent_per_destination,
            total=conf.executor.max_concurrent_migrations_total, bandwidth=bandwidth,
            copies_disk=disks.has_local_storage(engine_conf.build_options(conf)),
            begin_within=rows.BEGIN_WITHIN))


def _read_trace(session: cloud_state.Session, sets: Sequence[policy.PolicySet], source: PastSource,
                progress: Progress) -> recorded_trace.RecordedTrace:
    if source.trace is not None:
        for other, path in (('--snapshot', session.snapshot), ('--record', source.record)):
            if path is not None:
                raise make_option_error(other, 'it does not go with --trace', 'Leave one out')
        return _cut_trace(source.period, trace_files.read_trace(source.trace))
    window = _build_live_window(source.period)
    metrics = session.metrics_source
    health, text = metrics.health()
    if health is model.SourceHealth.UNREACHABLE:
        raise exception.HistoryError(what='[prometheus] url', problem=text,
                                     remedy='Correct it, or simulate a --trace.')
    cluster, scopes = _read_cloud(session, sets)
    progress('reading the load', 0.0)
    trace = record_trace.gather_trace(metrics, sets, window, cluster, scopes,
                                      lambda part: progress('reading the load', part))
    if source.record is not None:
        trace_files.write_trace(source.record, trace, sets[0])
    return trace


def _read_cloud(session: cloud_state.Session, sets: Sequence[policy.PolicySet],
                ) -> tuple[model.Cluster, tuple[str, ...]]:
    """Read the cloud and its planned scopes."""
    if session.snapshot is not None:
        snapshot = reader.read_snapshot(session.snapshot)
        return snapshot.cluster, snapshot.scopes
    cluster = session.collector.collect_cluster(time.time())
    return cluster, tuple(dict.fromkeys(
        s for policy_set in sets
        for s in planning_settings.list_planned_scopes(session.conf, policy_set)))


def _list_candidates(conf: cfg.ConfigOpts, sets: Mapping[str, policy.PolicySet],
                     trace: recorded_trace.RecordedTrace,
                     live: bool) -> list[backtest_run.PolicyCandidate]:
    traits = any(h.traits for h in trace.cluster.hosts.values())
    if conf.engine.require_cpu_compatibility and not traits:
        raise exception.ConfigError(
            path='kronos.conf', field='[engine] require_cpu_compatibility',
            problem='the CPU traits of the hosts are not known',
            remedy='Record the cloud with the option, or simulate without it.')
    snapshot = reader.RecordedSnapshot(
        cluster=trace.cluster, histories={'': model.MoveHistory()}, policy_names=(),
        scopes=trace.scopes, recorded_at=trace.cluster.taken_at, traits_known=traits)
    candidates = []
    for name, policy_set in sets.items():
        scopes = (planning_settings.list_planned_scopes(conf, policy_set) if live
                  else replay.choose_scopes(conf, policy_set, snapshot))
        missing = [s for s in scopes
                   if s != model.UNASSIGNED and s not in trace.cluster.aggregates]
        if missing:
            raise exception.ConfigError(
                path='kronos.conf', field='[engine] aggregates',
                problem=f'the cloud has no aggregate {missing[0]}', remedy='Correct the name.')
        # An engine plans the existing hosts; an empty pool needs no message.
        scopes = [s for s in scopes if trace.cluster.list_hosts_of(s)]
        settings = dataclasses.replace(planning_settings.build_settings(conf, policy_set),
                                       deadline=math.inf)
        candidates.append(backtest_run.PolicyCandidate(name, settings, tuple(scopes)))
    return candidates


# Times.

def _build_live_window(period: LoadPeriod) -> ranges.QueryWindow:
    """Build the times to query a live source for."""
    if period.start is None:
        raise make_option_error('--from', 'the first time is missing',
                                'Write for example --from -2d')
    now = math.floor(time.time())
    start = math.floor(_resolve_moment('--from', period.start, now))
    end = _resolve_moment('--to', period.end, now)
    step = STEP if period.step is None else period.step
    if step < 1 or step != int(step):
        raise make_option_error('--step', f'{step:g} s is no whole number of seconds above 0',
                                'Write for example 5m')
    if end > now:
        raise make_option_error('--to', 'it lies in the future', 'Write now, or an earlier time')
    return _build_window(start, end, step)


def _resolve_moment(option: str, moment: Moment, now: float) -> float:
    """Return a moment in epoch seconds."""
    seconds = now - moment.total_seconds() if isinstance(moment, datetime.timedelta) else moment
    if seconds < 0.0:
        raise make_option_error(option, 'it lies before 1970', 'Write a later time')
    return seconds


def _build_window(start: float, end: float, step: float) -> ranges.QueryWindow:
    """Return the window; raise ConfigError if it is empty, too short or has too many times."""
    if end <= start:
        raise make_option_error('--to', f'{_format_time(end)} is not after --from '
                                        f'({_format_time(start)})', 'Give a later time')
    count = int((end - start) / step + 1e-6) + 1
    if count < 2:
        raise make_option_error('--step', 'it is longer than the time from --from to --to',
                                'Give a shorter one')
    if count > MAX_TIMES:
        raise make_option_error('--step', f'it makes {count} times, more than {MAX_TIMES}',
                                'Give a longer one, or less time')
    return ranges.QueryWindow(start, step, count)


def _cut_trace(period: LoadPeriod,
               trace: recorded_trace.RecordedTrace) -> recorded_trace.RecordedTrace:
    """Return the part of a trace in a period, at the times that its step selects."""
    whole = trace.window
    start = (whole.start if period.start is None
             else _resolve_moment('--from', period.start, whole.end))
    end, every = _resolve_moment('--to', period.end, whole.end), 1
    if period.step is not None:
        every = round(period.step / whole.step)
        if every < 1 or abs(every * whole.step - period.step) > 1e-6 * whole.step:
            raise make_option_error('--step', f'{period.step:g} s is no multiple of the trace\'s '
                                              f'{whole.step:g} s',
                                    'Leave it out or give a multiple')
    if end <= start:
        _build_window(start, end, whole.step)
    first = max(0, math.ceil((start - whole.start) / whole.step - 1e-6))
    last = min(whole.count - 1, math.floor((end - whole.start) / whole.step + 1e-6))
    if last - first < every:
        raise make_option_error('--from', 'the trace has fewer than two times there; it is from '
                                          f'{_format_time(whole.start)} to '
                                          f'{_format_time(whole.end)}',
                                'Ask for a time within it')
    part = slice(first, last + 1, every)
    window = _build_window(whole.compute_time(first), whole.compute_time(last), whole.step * every)
    answers = {question: dataclasses.replace(a, values=a.values[part])
               for question, a in trace.answers.items()}
    return dataclasses.replace(trace, window=window, answers=answers)


def _format_time(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec='seconds')


def make_option_error(option: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='the command line', field=option, problem=problem,
                                 remedy=f'{remedy}.')
