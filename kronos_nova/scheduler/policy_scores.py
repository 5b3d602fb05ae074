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

"""The newest scores of one policy file, for filters and weighers.

The scoreboard's background thread runs all code here; requests read the snapshot, which does not
change. A snapshot shows no scores that cannot be trusted: then schedulers decide as if our plug-ins
were not there.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import math
import statistics
import time

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import labels
from kronos_nova import lookback
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.conf import policy_watch
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.feed import feed_channel
from kronos_nova.feed import flavor_usages
from kronos_nova.feed import worker_records
from kronos_nova.scheduler import allocation_history
from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import tie_breaking
from kronos_nova.scheduler import weight_cache
from kronos_nova.sources import base

LOG = logging.getLogger(__name__)


#: Extras where no flavor's use is known.
NO_EXTRAS = flavor_usages.UsageCorrections({})
#: Usages where the engine has published nothing.
NO_USAGES: Mapping[str, flavor_usages.FlavorUsages] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class BootCeiling:
    """A policy's ``boot_ceiling`` in [0, 1], and each host's fill."""

    policy: str
    limit: float
    loads: dict[str, depletion.HostLoad]
    extras: flavor_usages.UsageCorrections = NO_EXTRAS

    def compute_expected_use(self, vcpus: float, ram_mb: float) -> tuple[float, float]:
        """Return the vCPUs and MiB at the mean use that match this flavor's use."""
        more = self.extras.sum_corrections(vcpus, ram_mb)
        return vcpus + more[0], ram_mb + more[1]


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreReading:
    """Scores by Nova host at one time.

    ``headroom``: 1 - weighted score in [0, 1], of the hosts that have a score under every enabled
    policy; ``loads``: the weighted score, plus the load that samples do not show; ``scores``: by
    policy, the scores of the samples alone. ``expires_at`` is on the monotonic clock. ``reason``
    says why scores are missing. ``weights``: the raw weights computed so far. ``rankings``: loads
    and weights for requests that may not see each other.

    Loads of a host are replaced in place when it has changed and its change is a flavor's:
    ``extras`` are the flavors' corrections, ``tracks`` the host's track when its loads were
    computed.
    """

    headroom: Mapping[str, float] = dataclasses.field(default_factory=dict)
    loads: dict[str, depletion.HostLoad] = dataclasses.field(default_factory=dict)
    ceilings: tuple[BootCeiling, ...] = ()
    expires_at: float = -math.inf
    reason: str | None = None
    scores: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    weights: weight_cache.WeightCache = dataclasses.field(default_factory=weight_cache.WeightCache,
                                                          compare=False,
                                                          repr=False)
    rankings: tuple[tuple[dict[str, depletion.HostLoad], weight_cache.WeightCache], ...] = ()
    extras: flavor_usages.UsageCorrections = NO_EXTRAS
    tracks: dict[str, allocation_history.HostTrack] = dataclasses.field(
        default_factory=dict, compare=False, repr=False)

    def choose_ranking(self, number: int | None) -> tuple[dict[str, depletion.HostLoad],
                                                          weight_cache.WeightCache]:
        """Return loads and raw weights for a request.

        See :mod:`kronos_nova.scheduler.tie_breaking`.

        :param number: the ranking; None: loads without shifts.
        """
        return (self.rankings[number] if self.rankings and number is not None
                else (self.loads, self.weights))

    def correct_host_loads(self, host: str, after: allocation_history.HostTrack) -> None:
        """Count a change of a host's allocation with the use of its flavor."""
        before = self.tracks.get(host)
        if before is None or before is after or not before.steps or not after.steps:
            return
        self.tracks[host] = after
        tables = [(self.loads, self.extras), *((loads, self.extras) for loads, _ in self.rankings),
                  *((ceiling.loads, ceiling.extras) for ceiling in self.ceilings)]
        for loads, extras in tables:
            if extras and host in loads:
                loads[host] = depletion.correct_load(loads[host], before, after, extras)

    def is_fresh(self) -> bool:
        return self.reason is None and time.monotonic() < self.expires_at


@dataclasses.dataclass(frozen=True, slots=True)
class _HeldSamples:
    """A policy's newest usable samples; ``since`` is on the monotonic clock."""

    policy: policies.Policy
    samples: model.PolicySamples
    since: float

    @property
    def key(self) -> str:
        return feed_channel.usage_key(self.policy)

    @property
    def sampled_at(self) -> float:
        return self.since - (self.samples.age or 0.0)


class PolicyScorecard:
    """The refreshed snapshot of one policy file.

    :param conf: with the groups [kronos] and [prometheus].
    :param path: the policy file; its last good version holds.
    :param clock: the monotonic clock; a simulation has its own.
    """

    def __init__(self, conf: cfg.ConfigOpts, path: str,
                 clock: Callable[[], float] | None = None) -> None:
        self.path = path
        # Looked up at each call, as by Snapshot.fresh: one clock for both.
        self._clock = clock or (lambda: time.monotonic())
        self.snapshot = ScoreReading(reason='nothing was asked yet')
        self.policy_set: policies.PolicySet | None = None
        #: Age (s) of the oldest answer of the last refresh, at that refresh.
        self.asked_ago = 0.0
        self._conf = conf
        self._watch: policy_watch.PolicyWatch | None = None
        self._refused: str | None = None
        self._samples_by_policy: dict[str, _HeldSamples] = {}
        self._logged_state: object = None

    @property
    def missing_score_reason(self) -> str:
        """Reason why fresh scores are missing, for a message."""
        return self.snapshot.reason or 'the scores are too old'

    def describe_state(self) -> worker_records.FileState:
        """Return how many hosts have scores that requests use now, their age or the reason."""
        snapshot, samples_by_policy = self.snapshot, self._samples_by_policy
        known = len(snapshot.headroom) if snapshot.is_fresh() else 0
        sampled_at = min((policy.sampled_at for policy in samples_by_policy.values()), default=None)
        return worker_records.FileState(
            self.path, known, None if sampled_at is None else max(
                0.0, self._clock() - sampled_at),
            '' if known else snapshot.reason or (
                'no host has a score under every policy'
                if snapshot.is_fresh() else self.missing_score_reason))

    def refresh_scores(self, source: Callable[[], base.MetricsSource]) -> None:
        """Read the file again if it changed, and query its policies."""
        if self._watch is None:
            try:
                self._watch = policy_watch.PolicyWatch(self.path)
            except exception.PolicyFileError as e:
                if e.message != self._refused:
                    LOG.error('%s Until then it scores no host.', e)
                self._refused = e.message
                return
        self.policy_set = self._watch.refresh()
        self._fetch_samples(self.policy_set, source())

    def _fetch_samples(self, wanted: policies.PolicySet, source: base.MetricsSource) -> None:
        samples_by_policy = {}
        self.asked_ago = 0.0
        for policy in wanted.enabled_policies:
            since = self._clock()
            samples = source.fetch(policy, profile=False)
            before = self._samples_by_policy.get(policy.name)
            unreachable = any(
                result is not None and result.health is model.SourceHealth.UNREACHABLE
                for result in (samples.imbalance, samples.capacity))
            if (unreachable and before is not None and before.policy == policy
                    and before.samples.imbalance.error is None):
                # The last answer holds until it is too old.
                samples_by_policy[policy.name] = before
            else:
                samples_by_policy[policy.name] = _HeldSamples(policy, samples,
                                                              since - samples.asked_ago)
            self.asked_ago = max(self.asked_ago, samples.asked_ago)
        self._samples_by_policy = samples_by_policy

    def replace_reading(self, tracks: Mapping[str, allocation_history.HostTrack],
                        usages: Mapping[str, flavor_usages.FlavorUsages] = NO_USAGES,
                        landed: Collection[tuple[str, str, float]] = ()) -> None:
        """Map and judge the held samples, and replace the snapshot.

        :param usages: the engine's measurements, by :func:`feed_channel.usage_key`.
        :param landed: keys of the engine's moves that Nova counts.
        """
        snapshot, problems = self._build_reading(tracks, lambda held_samples: usages.get(
            held_samples.key, depletion.NO_USAGE), landed)
        self.snapshot = snapshot
        self._log_state_change(snapshot, problems)

    @property
    def usage_keys(self) -> list[str]:
        """Keys under which the engine publishes its measurements for the held policies."""
        return [held_samples.key for held_samples in self._samples_by_policy.values()]

    def _build_reading(self, tracks: Mapping[str, allocation_history.HostTrack],
                       usage_of: Callable[['_HeldSamples'], flavor_usages.FlavorUsages],
                       landed: Collection[tuple[str, str, float]],
                       ) -> tuple[ScoreReading, frozenset[str]]:
        if self.policy_set is None:
            return ScoreReading(reason=f'no valid {self.path}'), frozenset({'policies_file'})
        if not self._samples_by_policy:
            return ScoreReading(reason='nothing was heard yet'), frozenset()
        if not tracks:
            return ScoreReading(reason='no host was seen yet'), frozenset()
        known = {host: track.node for host, track in tracks.items()}
        scores: dict[str, Mapping[str, float]] = {}
        problems: dict[str, str] = {}
        ceilings = []
        expires_at = math.inf
        staleness = float(self._conf.prometheus.staleness_threshold)
        for held_samples in self._samples_by_policy.values():
            policy, samples = held_samples.policy, held_samples.samples
            names = labels.HostNames(known, policy.host_regex)
            hosts, problem, _ = scoring.host_scores(policy, samples.imbalance, names)
            age = (samples.age or 0.0) + self._clock() - held_samples.since
            problem = problem or scoring.too_old(
                None if samples.age is None else age, age, staleness,
                self._conf.kronos.require_age)
            if policy.boot_ceiling is not None and problem is None:
                fill = hosts
                if samples.capacity is not None:
                    fill, problem, _ = scoring.host_scores(policy, samples.capacity, names)
                # A cloud without any instance shows no use of a unit.
                outlook = self._compute_outlook(held_samples, fill, tracks, usage_of(held_samples),
                                                landed, policy.fill_look, unmeasured=0.0)
                ceilings.append(BootCeiling(policy.name, policy.boot_ceiling, outlook.loads,
                                            outlook.map_corrections()))
            if problem is not None:
                problems[policy.name] = problem
            scores[policy.name] = hosts
            expires_at = min(expires_at, held_samples.sampled_at + staleness)
        if problems:
            reason = '; '.join(f'{name}: {why}' for name, why in sorted(problems.items()))
            return ScoreReading(reason=reason), frozenset(problems)
        weights = {held_samples.policy.name: held_samples.policy.weight
                   for held_samples in self._samples_by_policy.values()}
        whole = set.intersection(*(set(hosts) for hosts in scores.values()))
        headroom = {host: scoring.compute_headroom({name: s[host] for name, s in scores.items()},
                                                   weights) for host in whole}
        parts = [(held_samples.policy.weight, self._compute_outlook(
            held_samples, scores[held_samples.policy.name], tracks, usage_of(held_samples), landed,
            held_samples.policy.score_look, unmeasured=depletion.UNMEASURED))
            for held_samples in self._samples_by_policy.values()]
        loads = {host: depletion.combine_loads((weight, part_outlook.loads[host]) for weight,
                                               part_outlook in parts)
                 for host in whole}
        extras = flavor_usages.build_extras((weight, part_outlook.use, part_outlook.memory,
                                             part_outlook.shapes)
                                            for weight, part_outlook in parts)
        # Computed here rather than in the next request.
        seen_allocations = [weight_cache.SeenAllocation(host, track.vcpus_used, track.free_ram_mb)
                            for host, track in tracks.items()]
        shapes = {shape for _, part_outlook in parts for shape in part_outlook.shapes}
        rankings = self._build_rankings(loads, extras, depletion.usual_changes(tracks, shapes),
                                        seen_allocations)
        snapshot = ScoreReading(headroom, loads, tuple(ceilings), expires_at, rankings=rankings,
                                extras=extras, tracks=dict(tracks), scores=scores)
        snapshot.weights.add_weights(seen_allocations, loads)
        return snapshot, frozenset()

    def _build_rankings(self, loads: Mapping[str, depletion.HostLoad],
                        extras: flavor_usages.UsageCorrections,
                        changes: list[tuple[float, float]],
                        seen_allocations: list[weight_cache.SeenAllocation],
                        ) -> tuple[tuple[dict[str, depletion.HostLoad], weight_cache.WeightCache],
                                   ...]:
        """Return the rankings for requests that may not see each other.

        Return none when packing, which fills one host at a time.
        """
        concurrent = scheduler_conf.concurrent_boots(self._conf)
        if concurrent <= 1 or not loads or (self.policy_set and self.policy_set.mode == 'pack'):
            return ()
        per_vcpu = statistics.median(load.per_vcpu for load in loads.values())
        per_mib = statistics.median(load.per_mib for load in loads.values())
        boots = []
        for vcpus, ram_mb in changes:
            more = extras.sum_corrections(vcpus, ram_mb)
            boots.append(per_vcpu * (vcpus + more[0]) + per_mib * (ram_mb + more[1]))
        boot = statistics.mean(boots)
        by = tie_breaking.compute_width(boot, concurrent)
        if not by:
            return ()
        rankings = []
        for number in range(tie_breaking.RANKINGS):
            ranked, weights = tie_breaking.shift_loads(loads, by,
                                                       number), weight_cache.WeightCache()
            weights.add_weights(seen_allocations, ranked)
            rankings.append((ranked, weights))
        return tuple(rankings)

    def _compute_outlook(self, held_samples: _HeldSamples, scores: Mapping[str, float],
                         tracks: Mapping[str, allocation_history.HostTrack],
                         usage: flavor_usages.FlavorUsages,
                         landed: Collection[tuple[str, str, float]], look: lookback.LookbackWindow,
                         unmeasured: float) -> depletion.LoadOutlook:
        """Compute the hosts' loads under one policy.

        :param look: lookback of the query, whose mean may cover a longer time than
            ``settle_seconds``.
        """
        settle = float(self._conf.kronos.settle_seconds)
        return depletion.compute_outlook(
            scores, tracks, sampled_at=held_samples.sampled_at - (look.delay if settle else 0.0),
            window=max(settle, look.ramp) if settle else 0.0,
            memory=depletion.goes_by_memory(held_samples.policy), unmeasured=unmeasured,
            usage=usage, landed=landed)

    def _log_state_change(self, snapshot: ScoreReading, problems: frozenset[str]) -> None:
        """Log one line when scores are lost, and one when they are back."""
        if not snapshot.reason:
            state: object = 'scores'
            if self._logged_state != state:
                LOG.info('kronos: scores of %s by %s are in use',
                         plurals.count_noun(len(snapshot.headroom), 'host'), self.path)
        elif problems:
            state = problems
            if self._logged_state != state:
                LOG.warning('kronos: no scores by %s are in use, Nova decides alone: %s',
                            self.path, snapshot.reason)
        else:
            return
        self._logged_state = state
