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


"""The newest scores of this process, for whoever schedules.

A request reads one immutable snapshot and waits for nothing; asking, mapping
and judging happen on a thread of their own. What cannot be believed is not
shown: then there are no scores, and schedulers do as if we were not there.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math
import threading
import time

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import background
from kronos_nova import exception
from kronos_nova import labels
from kronos_nova import model
from kronos_nova import plugins
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.conf import policy_watch
from kronos_nova.sources import base

LOG = logging.getLogger(__name__)

#: Half used: the headroom that weighs nothing.
NEUTRAL = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Ceiling:
    """A policy's ``boot_ceiling`` and each host's fill, both in [0, 1].

    ``memory``: an instance's share goes by its memory, not by its vCPUs.
    """

    policy: str
    limit: float
    fill: Mapping[str, float]
    memory: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """Scores by Nova host at one time.

    ``headroom``: 1 - weighted score in [0, 1], of the hosts that have a score
    under every enabled policy. ``expires_at`` is on the monotonic clock.
    ``reason`` says why there are no scores.
    """

    headroom: Mapping[str, float] = dataclasses.field(default_factory=dict)
    ceilings: tuple[Ceiling, ...] = ()
    expires_at: float = -math.inf
    reason: str | None = None

    def fresh(self) -> bool:
        return self.reason is None and time.monotonic() < self.expires_at


@dataclasses.dataclass(frozen=True, slots=True)
class _Held:
    """A policy's newest usable samples; ``since`` is on the monotonic clock."""

    policy: policies.Policy
    samples: model.PolicySamples
    since: float


class Scoreboard:
    """Keeps the snapshot; one per process.

    :param conf: with the groups [kronos], [prometheus] and [filter_scheduler].
    """

    def __init__(self, conf: cfg.ConfigOpts, faults: background.Faults) -> None:
        self._conf = conf
        self._snapshot = Snapshot(reason='nothing was asked yet')
        self._answered = False
        self._known: dict[str, str] = {}
        self._watch: policy_watch.PolicyWatch | None = None
        self._refused: str | None = None
        self._source: tuple[threading.Thread, base.Source] | None = None
        self._held: dict[str, _Held] = {}
        self._said: object = None
        self._loaded: policies.PolicySet | None = None
        self._refresher = background.Refresher(
            'kronos-scoreboard', lambda: float(conf.kronos.refresh_interval), self.refresh,
            faults, on_wake=self._show)

    # On the caller's thread: dict look-ups only.

    def look(self, hosts: Iterable[tuple[str, str | None]]) -> Snapshot | None:
        """The snapshot, or None when there are no fresh scores.

        :param hosts: (service host, hypervisor hostname) of each host of the
            request; labels are mapped to the hosts seen here.
        """
        known = self._known
        unseen = {host: node or '' for host, node in hosts if host not in known}
        if unseen:
            self._learn(unseen)
        self._refresher.ensure()
        snapshot = self._snapshot
        return snapshot if snapshot.fresh() else None

    @property
    def answered(self) -> bool:
        """Whether the first look at the source of this process has ended."""
        return self._answered

    @property
    def reason(self) -> str:
        """Why there are no scores, for a message."""
        return self._snapshot.reason or 'the scores are too old'

    def stop(self) -> None:
        self._refresher.stop()

    def _learn(self, unseen: dict[str, str]) -> None:
        # Copied, so that readers need no lock; who loses a race learns it
        # from the next request.
        self._known = {**self._known, **unseen}
        self._refresher.wake()

    # On the background thread.

    def refresh(self) -> None:
        """Ask the source about every enabled policy, and show the answer."""
        try:
            wanted = self._policies()
            if wanted is not None:
                self._ask(wanted)
            self._show()
        finally:
            self._answered = True

    def _policies(self) -> policies.PolicySet | None:
        if self._watch is None:
            try:
                self._watch = policy_watch.PolicyWatch(self._conf.kronos.policies_file)
            except exception.PolicyFileError as e:
                if e.message != self._refused:
                    LOG.error('%s Until then Nova decides alone.', e)
                self._refused = e.message
                return None
        loaded = self._watch.refresh()
        if loaded is not self._loaded:
            self._loaded = loaded
            multiplier = self._conf.filter_scheduler.kronos_weight_multiplier
            if multiplier and (multiplier < 0) != (loaded.mode == 'pack'):
                LOG.warning('kronos: %s says mode: %s, but kronos_weight_multiplier is %s: new '
                            'instances are %s. Negate it unless aggregates override it.',
                            self._conf.kronos.policies_file, loaded.mode, multiplier,
                            'packed' if multiplier < 0 else 'spread')
        return loaded

    def _ask(self, wanted: policies.PolicySet) -> None:
        source = self._own_source()
        held = {}
        for policy in wanted.enabled:
            since = time.monotonic()
            samples = source.fetch(policy, profile=False)
            before = self._held.get(policy.name)
            unreachable = any(
                result is not None and result.health is model.Health.UNREACHABLE
                for result in (samples.imbalance, samples.capacity))
            if (unreachable and before is not None and before.policy == policy
                    and before.samples.imbalance.error is None):
                # What was heard last holds until it is too old.
                held[policy.name] = before
            else:
                held[policy.name] = _Held(policy, samples, since)
        self._held = held

    def _own_source(self) -> base.Source:
        """A source of this thread: connections do not survive a fork."""
        me = threading.current_thread()
        if self._source is None or self._source[0] is not me:
            self._source = (me, plugins.load(plugins.SOURCES, self._conf.kronos.source)(
                self._conf))
        return self._source[1]

    def _show(self) -> None:
        """Map and judge what is held, and swap the snapshot."""
        snapshot, problems = self._judge()
        self._snapshot = snapshot
        self._say(snapshot, problems)

    def _judge(self) -> tuple[Snapshot, frozenset[str]]:
        if self._loaded is None:
            return Snapshot(reason=f'there is no valid {self._conf.kronos.policies_file}'), \
                frozenset({'policies_file'})
        if not self._held:
            return Snapshot(reason='nothing was heard yet'), frozenset()
        if not self._known:
            return Snapshot(reason='no host was seen yet'), frozenset()
        scores: dict[str, Mapping[str, float]] = {}
        problems: dict[str, str] = {}
        ceilings = []
        expires_at = math.inf
        staleness = float(self._conf.prometheus.staleness_threshold)
        for held in self._held.values():
            policy, samples = held.policy, held.samples
            names = labels.HostNames(self._known, policy.host_regex)
            hosts, problem, _ = scoring.host_scores(policy, samples.imbalance, names)
            age = (samples.age or 0.0) + time.monotonic() - held.since
            problem = problem or scoring.too_old(
                None if samples.age is None else age, age, staleness,
                self._conf.kronos.require_age)
            if policy.boot_ceiling is not None and problem is None:
                fill = hosts
                if samples.capacity is not None:
                    fill, problem, _ = scoring.host_scores(policy, samples.capacity, names)
                ceilings.append(Ceiling(policy.name, policy.boot_ceiling, fill,
                                        policy.host_capacity == 'MEMORY_MB'))
            if problem is not None:
                problems[policy.name] = problem
            scores[policy.name] = hosts
            expires_at = min(expires_at, held.since + staleness - (samples.age or 0.0))
        if problems:
            reason = '; '.join(f'{name}: {why}' for name, why in sorted(problems.items()))
            return Snapshot(reason=reason), frozenset(problems)
        weights = {held.policy.name: held.policy.weight for held in self._held.values()}
        whole = set.intersection(*(set(hosts) for hosts in scores.values()))
        headroom = {host: scoring.headroom({name: s[host] for name, s in scores.items()},
                                           weights) for host in whole}
        return Snapshot(headroom, tuple(ceilings), expires_at), frozenset()

    def _say(self, snapshot: Snapshot, problems: frozenset[str]) -> None:
        """One line when scores are lost, and one when they are back."""
        if not snapshot.reason:
            state: object = 'scores'
            if self._said != state:
                LOG.info('kronos: scores of %d hosts are in use', len(snapshot.headroom))
        elif problems:
            state = problems
            if self._said != state:
                LOG.warning('kronos: no scores are in use, Nova decides alone: %s',
                            snapshot.reason)
        else:
            return
        self._said = state
