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

"""The run of one candidate's planner through a past, from the first time to the last."""

from collections import Counter
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import re

import numpy as np

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import metric_lag
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import simulated_executor
from kronos_nova.rebalancer.backtest import world as worlds
from kronos_nova.rebalancer.planning import move_notices
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import tasks

#: Seconds for which a notice counts, as by default.
NOTICE_VALID_FOR = 86400.0
#: Numbers in reasons: reasons that differ only in these are counted together.
NUMBER = re.compile(r'\d+(?:\.\d+)?')


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyCandidate:
    """A policy file under trial; ``scopes`` are the scopes that it plans.

    ``others``: policy files of other scopes, whose engines run beside this one.
    """

    name: str
    settings: planning_pipeline.PassSettings
    scopes: tuple[str, ...]
    others: 'tuple[PolicyCandidate, ...]' = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _EngineInputs:
    """Inputs of the engine of one policy file."""

    settings: planning_pipeline.PassSettings
    measures: Mapping[str, int]
    scopes: tuple[str, ...]

    @classmethod
    def build_inputs(cls, past: pasts.LoadHistory, candidate: PolicyCandidate) -> '_EngineInputs':
        chosen = candidate.settings.policies
        return cls(dataclasses.replace(candidate.settings,
                                       policies=worlds.make_runnable_policies(chosen)),
                   map_policy_measures(past, chosen), candidate.scopes)


@dataclasses.dataclass(frozen=True, slots=True)
class TimingAssumptions:
    """Timing of the simulated engine and executors, in seconds.

    ``lag``: until metrics fully show a completed move.
    """

    interval: float = 60.0
    cooldown: float = 600.0
    instance_cooldown: float = 900.0
    stagger: float = 30.0
    lag: float = 300.0
    limits: simulated_executor.ConcurrencyLimits = dataclasses.field(
        default_factory=simulated_executor.ConcurrencyLimits)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class BacktestResult:
    """Results of a run.

    ``score`` M x T x H (true ones), ``counts`` T x H instances, ``moved`` completed moves in order.
    ``idle`` counts why cycles planned nothing, ``rejections`` refused candidate moves by rule.
    """

    name: str
    score: pasts.Floats
    counts: pasts.Places
    moved: tuple[worlds.CompletedMove, ...]
    cycles: int = 0
    idle: Mapping[str, int] = dataclasses.field(default_factory=dict)
    rejections: Mapping[str, int] = dataclasses.field(default_factory=dict)
    cancelled: Mapping[str, int] = dataclasses.field(default_factory=dict)


def run_history(past: pasts.LoadHistory, progress: Callable[[int], None]) -> BacktestResult:
    """Run through history itself, with its own moves."""
    world = worlds.InstancePlaces(past, 0.0)
    score, counts = _make_empty_arrays(past)
    for k in range(past.window.count):
        world.follow_history(k)
        score[:, k], counts[k] = world.compute_true_scores(k), world.count_residents(k)
        progress(k)
    return BacktestResult('history', score, counts, tuple(world.moved))


def run_without_moves(past: pasts.LoadHistory, progress: Callable[[int], None],
                      boots: worlds.BootChooser | None = None) -> BacktestResult:
    """Run through the past without any move.

    :param boots: places booting instances; default: history.
    """
    world = worlds.InstancePlaces(past, 0.0, boots)
    score, counts = _make_empty_arrays(past)
    for k in range(past.window.count):
        world.enter_time(k)
        score[:, k], counts[k] = world.compute_true_scores(k), world.count_residents(k)
        progress(k)
    return BacktestResult('nothing', score, counts, ())


def run_candidate(past: pasts.LoadHistory, candidate: PolicyCandidate,
                  assumptions: TimingAssumptions,
                  progress: Callable[[int], None],
                  boots: worlds.BootChooser | None = None) -> BacktestResult:
    """Run the candidate's planner over the past.

    :param boots: places booting instances; default: history.
    """
    return _EngineMemory(past, candidate, assumptions, boots).run(progress)


def _make_empty_arrays(past: pasts.LoadHistory) -> tuple[pasts.Floats, pasts.Places]:
    hosts, times = len(past.hosts), past.window.count
    return np.empty((len(past.measures), times, hosts)), np.empty((times, hosts), dtype=np.int32)


class _EngineMemory:
    """The memory of engines in simulated time."""

    def __init__(self, past: pasts.LoadHistory, candidate: PolicyCandidate,
                 assumptions: TimingAssumptions,
                 boots: worlds.BootChooser | None) -> None:
        self._past = past
        self._candidate = candidate
        self._assumptions = assumptions
        self._engines = [_EngineInputs.build_inputs(past, engine_candidate)
                         for engine_candidate in (candidate, *candidate.others)]
        self._scopes = tuple(dict.fromkeys(s for e in self._engines for s in e.scopes))
        self._world = worlds.InstancePlaces(past, assumptions.lag, boots)
        self._carrier = simulated_executor.SimulatedExecutor(assumptions.limits)
        self._instance_until: dict[str, float] = {}
        self._scope_until: dict[str, float] = {}
        self._draining: dict[str, frozenset[str]] = {}
        self._completed: list[tuple[model.Move, float]] = []
        self._move_times: dict[str, tuple[float, ...]] = {}
        self._notices: dict[str, model.MoveNotice] = {}
        self._remembered = metric_lag.compute_retention(
            max(e.settings.policies.lookback_seconds for e in self._engines))
        self._ids = itertools.count()
        self._cycles = 0
        self._idle: Counter[str] = Counter()
        self._rejections: Counter[str] = Counter()

    def run(self, progress: Callable[[int], None]) -> BacktestResult:
        past, world, window = self._past, self._world, self._past.window
        score, counts = _make_empty_arrays(past)
        planned = -np.inf
        for k in range(window.count):
            now = window.compute_time(k)
            self._advance_time(now - window.step, now)
            self._carrier.cancel_gone_instances(set(world.enter_time(k)))
            if now - planned >= self._assumptions.interval:
                planned = now
                self._plan(k, now)
            flights = [(t.instance_uuid, t.to_host) for t in self._carrier.running_tasks]
            score[:, k], counts[k] = world.compute_true_scores(k, flights), world.count_residents(k)
            progress(k)
        return BacktestResult(
            self._candidate.name, score, counts, tuple(world.moved), self._cycles,
            dict(self._idle), dict(self._rejections), dict(self._carrier.cancelled))

    def _advance_time(self, since: float, now: float) -> None:
        for task, at in self._carrier.advance_time(since, now):
            self._world.complete_move(task.instance_uuid, task.to_host, at)
            self._start_cooldown(task.instance_uuid, at + self._assumptions.instance_cooldown)
            self._move_times[task.instance_uuid] = (
                *self._move_times.get(task.instance_uuid, ()), at)
            self._notices.pop(task.instance_uuid, None)
            self._completed.append((model.Move(
                task.instance_uuid, task.from_host, task.to_host, task.phase,
                improvement=task.improvement, wave=task.wave, requires=task.requires), at))
        self._completed = [(m, at) for m, at in self._completed if at > now - self._remembered]

    def _start_cooldown(self, uuid: str, until: float) -> None:
        self._instance_until[uuid] = max(until, self._instance_until.get(uuid, until))

    def _plan(self, k: int, now: float) -> None:
        """Run a cycle of each engine: every scope on one reading of the cloud."""
        for engine in self._engines:
            self._plan_scopes(engine, k, now)

    def _plan_scopes(self, engine: _EngineInputs, k: int, now: float) -> None:
        samples = self._world.build_samples(engine.settings.policies, engine.measures, k, now)
        for scope in engine.scopes:
            live = self._carrier.open_tasks
            flights = tuple(model.InFlightMove(t.instance_uuid, t.from_host, t.to_host, 'task',
                                               t.alternates, t.aggregate)
                            for t in live)
            cluster = self._world.build_cluster(now, flights).replace_scope(scope, self._scopes)
            busy = planning_pipeline.count_busy_moves(flights, cluster)
            self._cycles += 1
            plan_scope = functools.partial(
                planning_pipeline.plan_scope, cluster, samples, settings=engine.settings, now=now,
                clock=_no_clock, busy=busy)
            try:
                outcome = plan_scope(self._build_history(scope, now))
            except exception.PlanRefused:
                self._idle['the checker refused the plan'] += 1
                continue
            try:
                self._give_notices(outcome, plan_scope)
            except exception.PlanRefused:
                self._idle['the checker refused the plan for notices'] += 1
            self._rejections.update(outcome.plan.rejections)
            self._queue_plan(engine, outcome.plan, cluster, now)

    def _give_notices(self, outcome: planning_pipeline.PassOutcome,
                      plan_scope: Callable[[model.MoveHistory],
                                           planning_pipeline.PassOutcome]) -> None:
        """Give the owners of instances notice, as an engine does."""
        request = outcome.request
        given = move_notices.make_notices(request, [
            *move_notices.list_drain_notices(request),
            *move_notices.list_balance_notices(
                request, outcome.plan, lambda history: plan_scope(history).plan)],
            request.now, NOTICE_VALID_FOR)
        self._notices |= {notice.instance_uuid: notice for notice in (
            *given, *move_notices.list_extended_notices(request, NOTICE_VALID_FOR))}

    def _build_history(self, scope: str, now: float) -> model.MoveHistory:
        return model.MoveHistory(
            cooling={u: until - now for u, until in self._instance_until.items() if until > now},
            scope_cooling=max(0.0, self._scope_until.get(scope, now) - now),
            draining=self._draining.get(scope, frozenset()), completed=tuple(self._completed),
            move_times=self._move_times, notices=self._notices)

    def _queue_plan(self, engine: _EngineInputs, plan: model.Plan, cluster: model.Cluster,
                    now: float) -> None:
        self._draining[plan.scope] = plan.draining
        if not plan.moves:
            self._idle[NUMBER.sub('N', plan.reason or 'no reason')] += 1
            return
        rows = tasks.from_plan(
            plan, cluster, tuple(p.name for p in engine.settings.policies.enabled_policies),
            plan_id=f'{next(self._ids):09}', now=now, stagger_seconds=self._assumptions.stagger,
            max_retries=0, new_id=lambda: f'{next(self._ids):09}',
            cooldown=self._assumptions.cooldown)
        self._carrier.add(rows)
        # Tasks that are due at once have begun when the load is read.
        self._advance_time(now, now)
        self._scope_until[plan.scope] = max(now + self._assumptions.cooldown,
                                            self._scope_until.get(plan.scope, now))
        for task in rows:
            self._start_cooldown(task.instance_uuid, now + self._assumptions.instance_cooldown)


def _no_clock() -> float:
    """Return 0, because a plan must not depend on the machine."""
    return 0.0


def map_policy_measures(past: pasts.LoadHistory, policy_set: policies.PolicySet) -> dict[str, int]:
    """Return the number of the measure of each policy."""
    known: Sequence[tuple[object, ...]] = [pasts.make_score_key(m.policy) for m in past.measures]
    return {p.name: known.index(pasts.make_score_key(p)) for p in policy_set.enabled_policies}
