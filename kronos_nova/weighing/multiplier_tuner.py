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


"""Trials of several multipliers on the same past: overload, and later moves."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import tempfile
from typing import Any

from nova.scheduler import weights
import numpy as np
from oslo_config import cfg
import yaml

from kronos_nova import exception
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.filters import capacity
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import review
from kronos_nova.rebalancer.backtest import world as worlds
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import past_loads
from kronos_nova.rebalancer.operations import simulations
from kronos_nova.scheduler import runtime
from kronos_nova.weighers import headroom
from kronos_nova.weighing import boot_replay
from kronos_nova.weighing import settings

#: The multipliers to try unless others are given.
SPREAD = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
#: Results of fewer boots than these are weak.
FEW = 30
#: An overload counts as the best when it differs by at most this part of stock's.
NEAR = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class MultiplierTrial:
    """Results of one multiplier; None: history's own placement.

    ``overload``: host-minutes above the ceiling without any move; ``spread``: mean of max -
    min by measure; ``empty_hosts``: mean. ``moves`` and ``overload_moved`` are those with
    the rebalancer; None when it was left out.
    """

    multiplier: float | None
    overload: float
    spread: dict[str, float | None]
    empty_hosts: float
    moves: int | None
    overload_moved: float | None
    count: boot_replay.BootCounts


@dataclasses.dataclass(frozen=True, slots=True)
class MultiplierAdvice:
    """The recommended multiplier, and a sentence with the reason."""

    multiplier: float
    why: str


def count_boots(past: pasts.LoadHistory) -> int:
    """Return how many instances come after the first time."""
    here = past.home >= 0
    return int((here[1:] & ~here[:-1]).sum())


def make_weighers(conf: cfg.ConfigOpts) -> list[Any]:
    """Make the weighers that nova.conf enables, and KronosWeigher if it is not among them."""
    classes = weights.HostWeightHandler().get_matching_classes(
        conf.filter_scheduler.weight_classes)
    if headroom.KronosWeigher not in classes:
        classes = [*classes, headroom.KronosWeigher]
    return [kind() for kind in classes]


def ceiling_filter(conf: cfg.ConfigOpts) -> Any:
    """Return the filter that keeps boot_ceiling, None where nova.conf does not enable it."""
    name = capacity.KronosCapacityFilter.__name__
    if name not in conf.filter_scheduler.enabled_filters:
        return None
    return capacity.KronosCapacityFilter()


@dataclasses.dataclass(frozen=True, slots=True)
class TunedMultipliers:
    """Trials of history and of each multiplier, and the recommended one.

    ``measures`` are the names of the policies whose spread a trial has.
    """

    trials: list[MultiplierTrial]
    advice: MultiplierAdvice
    measures: list[str]
    warnings: tuple[str, ...]


def tune_multipliers(session: cloud_state.Session, nova: cfg.ConfigOpts,
                     source: past_loads.PastSource, multipliers: Sequence[float] = (), *,
                     policies_files: Sequence[str] = (), settings_texts: Sequence[str] = (),
                     of_aggregates: Mapping[str, float] | None = None, ceiling: float = 0.8,
                     lag: float | None = None, bandwidth: float = 250.0, rebalanced: bool = True,
                     progress: past_loads.Progress = simulations.ignore_progress,
                     ) -> TunedMultipliers:
    """Replay the boots of a past with several multipliers, and recommend one.

    :param nova: Nova's global configuration, as ``nova_setup.configure_offline`` returns it.
    :param source: the past: a trace, or the source of metrics over a period.
    :param multipliers: tried beside 0; empty: :data:`SPREAD`, negative where policies pack.
    :param policies_files: one for each set of scopes; empty: [engine] policies_file.
    :param settings_texts: ``NAME=VALUE`` of nova.conf for every trial.
    :param of_aggregates: multipliers in the metadata of aggregates.
    :param ceiling: a host with a higher score is overloaded.
    :param lag: seconds until metrics show a move whole; None: [engine] settle_seconds.
    :param bandwidth: MiB/s that one migration copies.
    :param rebalanced: also count the moves that the rebalancer makes later.
    :raises KronosException: an input cannot be read, or does not fit the others.
    """
    others = settings.parse_setting(nova, settings_texts)
    sets = past_loads.load_policy_sets(
        list(policies_files) or [session.conf.engine.policies_file])
    policy_sets = list(sets.values())
    mode = policy_sets[0].mode
    assumptions = past_loads.build_assumptions(session.conf, lag, bandwidth)
    former_options: settings.Taken = []
    try:
        past_load = past_loads.read_past_load(session, sets, source, progress)
        former_options = settings.apply_settings(nova, others)
        first, *rest = past_load.candidates
        tuner = MultiplierTuner(
            past_load.history, policy_sets, nova,
            dataclasses.replace(first, others=tuple(rest)) if rebalanced else None, assumptions,
            review.ReviewQuestion(scopes=past_load.scopes, ceiling=ceiling,
                                  limits=assumptions.limits), progress, of_aggregates)
        sign = -1.0 if mode == 'pack' else 1.0
        trials = [tuner.try_history(), *tuner.try_multipliers(list(dict.fromkeys(
            [0.0, *(multipliers or (sign * m for m in SPREAD))])))]
    finally:
        settings.restore_options(nova, former_options)
    return TunedMultipliers(trials, choose_multiplier(trials[1:], mode),
                            [m.name for m in past_load.history.measures],
                            tuple(past_load.history.warnings))


class MultiplierTuner:
    """Runner of trials over one past.

    :param policy_sets: one of each policy file, in the order of [kronos] policies_file.
    :param conf: Nova's global configuration, which weighers read.
    :param of_aggregates: kronos_weight_multiplier by the name of an aggregate, as if its
        metadata said so.
    :param candidate: the rebalancer's; None leaves it out.
    """

    def __init__(self, past: pasts.LoadHistory, policy_sets: Sequence[policies.PolicySet],
                 conf: cfg.ConfigOpts, candidate: backtest_run.PolicyCandidate | None,
                 assumptions: backtest_run.TimingAssumptions, question: review.ReviewQuestion,
                 progress: past_loads.Progress,
                 of_aggregates: Mapping[str, float] | None = None) -> None:
        unknown = sorted((of_aggregates or {}).keys() - past.cluster.aggregates.keys())
        if unknown:
            raise exception.ConfigError(
                path='the command line', field='--aggregate',
                problem=f'the cloud has no aggregate {unknown[0]}', remedy='Correct the name.')
        if not np.isfinite(past.usage).any():
            raise exception.HistoryError(
                what='vm_profile_query', problem='no policy says what instances use, so that '
                'their load cannot be placed elsewhere', remedy='Set it in the policy file.')
        self._past = past
        self._policies = list(policy_sets)
        self._of_aggregates = of_aggregates or {}
        self._conf = conf
        self._candidate = candidate
        self._assumptions = assumptions
        self._question = question
        self._progress = progress

    def try_history(self) -> MultiplierTrial:
        """Run a trial of the placement in history, without history's own moves."""
        return self._measure_trial(None, 'history', lambda: None)

    def try_multipliers(self, multipliers: Sequence[float]) -> list[MultiplierTrial]:
        """Run a trial of each multiplier."""
        with tempfile.TemporaryDirectory(prefix='kronos-tune-') as directory:
            files = {}
            for number, policy_set in enumerate(self._policies):
                path = f'{directory}/{number}.yaml'
                with open(path, 'w') as f:
                    yaml.safe_dump(worlds.make_runnable_policies(policy_set).model_dump(
                        mode='json', exclude_unset=True), f)
                files[path] = policy_set
            return [self._run_trial(multiplier, files) for multiplier in multipliers]

    def _build_metadata(self, multiplier: float) -> dict[str, dict[str, str]]:
        """Return the metadata of the aggregates.

        Under 0, which stands for Nova alone, it has no multiplier of KronosWeigher.
        """
        metadata_by_aggregate = {name: dict(self._past.cluster.aggregate_metadata.get(name, {}))
                                 for name in self._past.cluster.aggregates}
        for name, own in self._of_aggregates.items():
            metadata_by_aggregate[name][headroom.OPTION] = repr(own)
        if multiplier == 0:
            for metadata in metadata_by_aggregate.values():
                metadata.pop(headroom.OPTION, None)
        return metadata_by_aggregate

    def _run_trial(self, multiplier: float,
                   files: Mapping[str, policies.PolicySet]) -> MultiplierTrial:
        # Samples of a replay show the true load: no settling time is needed. Boots
        # come one after the other: a boot sees all earlier ones.
        former_options = settings.apply_settings(self._conf, [
            ('filter_scheduler', headroom.OPTION, repr(multiplier)),
            ('kronos', 'settle_seconds', '0'), ('kronos', 'concurrent_boots', '1'),
            *(('kronos', 'policies_file', path) for path in files)])

        def make_placer() -> boot_replay.BootReplay:
            door = boot_replay.ReplayDoor(self._conf, files)
            runtime.replace_runtime(door)
            return boot_replay.BootReplay(
                self._past, files, make_weighers(self._conf), door,
                self._build_metadata(multiplier),
                ceiling_filter(self._conf) if multiplier else None)

        try:
            return self._measure_trial(multiplier, f'multiplier {multiplier:g}', make_placer)
        finally:
            runtime.close()
            settings.restore_options(self._conf, former_options)

    def _measure_trial(self, multiplier: float | None, name: str,
                       placer: Callable[[], boot_replay.BootReplay | None]) -> MultiplierTrial:
        past, times = self._past, self._past.window.count
        placed = placer()
        still = backtest_run.run_without_moves(
            past, lambda k: self._progress(name, (k + 1) / times), placed)
        moved = None
        if self._candidate is not None:
            moved = backtest_run.run_candidate(
                past, self._candidate, self._assumptions,
                lambda k: self._progress(f'{name}, rebalanced', (k + 1) / times), placer())
        return MultiplierTrial(
            multiplier, self._sum_overload_minutes(still), self._compute_mean_spread(still),
            self._count_empty_hosts(still),
            None if moved is None else len(moved.moved),
            None if moved is None else self._sum_overload_minutes(moved),
            placed.count if placed is not None else boot_replay.BootCounts(count_boots(past)))

    def _sum_overload_minutes(self, backtest_result: backtest_run.BacktestResult) -> float:
        over = review.mark_overloaded(backtest_result.score, self._question.ceiling)
        return review.count_host_minutes(over.any(axis=0), self._past.window.step)

    def _compute_mean_spread(
            self, backtest_result: backtest_run.BacktestResult) -> dict[str, float | None]:
        by_scope = [review.compute_imbalances(self._past, backtest_result.score, scope)
                    for scope in self._question.scopes]
        values = np.stack(by_scope)
        return {m.name: review.compute_statistics(values[:, i])['mean']
                for i, m in enumerate(self._past.measures)}

    def _count_empty_hosts(self, backtest_result: backtest_run.BacktestResult) -> float:
        return float((backtest_result.counts == 0).sum(axis=1).mean())


def choose_multiplier(trials: Sequence[MultiplierTrial], mode: str) -> MultiplierAdvice:
    """Choose the best multiplier; among equals, the one nearest to 0.

    Spread: least overload, then fewest moves later, then least spread. Pack: no more
    overload than Nova's own weighers give, then most empty hosts.

    :param trials: of multipliers, one of which is 0.
    """
    stock = next(t for t in trials if t.multiplier == 0)
    if stock.count.booted == 0:
        return MultiplierAdvice(0.0, 'nothing has booted in this time, so that every multiplier is '
                                     'as good')
    allowed = stock.overload * NEAR
    if mode == 'pack':
        fit = [t for t in trials if t.overload <= stock.overload + allowed]
        best = max(fit, key=lambda t: (round(t.empty_hosts, 2), -(t.moves or 0),
                                       -abs(t.multiplier or 0)))
    else:
        least = min(t.overload for t in trials)
        fit = [t for t in trials if t.overload <= least + allowed]
        best = min(fit, key=lambda t: (t.moves or 0, round(_compute_spread_mean(t), 3),
                                       abs(t.multiplier or 0)))
    return MultiplierAdvice(best.multiplier or 0.0, _format_reason(best, stock, mode))


def _compute_spread_mean(trial: MultiplierTrial) -> float:
    known = [value for value in trial.spread.values() if value is not None]
    return math.fsum(known) / len(known) if known else 0.0


def _format_reason(best: MultiplierTrial, stock: MultiplierTrial, mode: str) -> str:
    few = (f' Only {plurals.count_noun(stock.count.booted, "instance")} booted in this time: '
           'try a longer one.'
           if stock.count.booted < FEW else '')
    if best is stock:
        return f'no other multiplier does better than Nova\'s own weighers.{few}'
    advantages = [f'overload {best.overload:g} host-minutes instead of {stock.overload:g} with '
                  'Nova\'s own weighers']
    if best.moves is not None:
        advantages.append(
            f'{plurals.count_noun(best.moves, "move")} later instead of {stock.moves}')
    if mode == 'pack':
        advantages.append(f'{best.empty_hosts:.2f} empty hosts instead of {stock.empty_hosts:.2f}')
    else:
        advantages.append(f'mean max - min {_compute_spread_mean(best):.3f} instead of '
                          f'{_compute_spread_mean(stock):.3f}')
    return f'{", ".join(advantages)}.{few}'
