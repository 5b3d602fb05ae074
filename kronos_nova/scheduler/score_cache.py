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


"""The newest scores of this process, for filters and weighers.

A request reads immutable snapshots, one for each policy file, and does not wait: a background
thread queries, maps and judges.
"""

from collections.abc import Mapping
import dataclasses
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import plugins
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.conf import bindings
from kronos_nova.feed import flavor_usages
from kronos_nova.feed import periodic
from kronos_nova.feed import worker_records
from kronos_nova.scheduler import allocation_history
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import shared_source
from kronos_nova.sources import base

LOG = logging.getLogger(__name__)

#: Headroom of a half-used host, which weighs nothing.
NEUTRAL = 0.5
#: Sets of aggregates, deleted ones too, whose multipliers are remembered.
MAX_HEARD = 4096
MIN_PAUSE = 1.0
#: Hosts that a message names.
MAX_NAMED = 10


@dataclasses.dataclass(frozen=True, slots=True)
class ScoredHosts:
    """Hosts of a request that one policy file scores.

    ``snapshot``: the fresh scores or None; ``reason`` then says why, and is empty when no file is
    for these hosts.
    """

    hosts: list[Any]
    snapshot: policy_scores.ScoreReading | None
    reason: str = ''


class ScoreCache:
    """The scorecards of all policy files; one instance per process.

    :param conf: with the groups [kronos], [prometheus] and [filter_scheduler].
    """

    def __init__(self, conf: cfg.ConfigOpts, faults: periodic.FaultCounters) -> None:
        self._conf = conf
        self._cards = [policy_scores.PolicyScorecard(conf, path)
                       for path in dict.fromkeys(conf.kronos.policies_file)]
        self._bindings = bindings.PolicyBindings({card.path: None for card in self._cards})
        self._bound: Mapping[str, policies.PolicySet | None] = {}
        self._ledger = allocation_history.AllocationLedger(self._correct_readings)
        self._usages: Mapping[str, flavor_usages.FlavorUsages] = {}
        self._answered = False
        self._source: tuple[threading.Thread, base.MetricsSource] | None = None
        self._heard: dict[tuple[int | None, tuple[str, ...]], float] = {}
        self._logged_contradictions: frozenset[object] = frozenset()
        self._unknown: frozenset[str] = frozenset()
        self._refresher = periodic.BackgroundRefresher(
            'kronos-scoreboard', self._compute_pause, self.refresh_scores, faults,
            on_wake=self._update_readings)

    # On the caller's thread: dict look-ups only.

    def group_scored_hosts(self, hosts: list[Any]) -> list[ScoredHosts]:
        """Return the hosts by policy file, each group with its snapshot.

        :param hosts: HostState objects of the request. Labels are mapped to the hosts seen here,
            and the ledger remembers their allocations.
        """
        if self._ledger.record_allocations(hosts, time.monotonic(), time.time()):
            self._refresher.request_wake()
        self._refresher.ensure_running()
        scored_hosts = []
        for index, some in self._bindings.group_hosts_by_index(hosts):
            if index is None:
                # A file that was never valid may be for these hosts.
                scored_hosts.append(ScoredHosts(some, None, '; '.join(
                    card.missing_score_reason for card in self._cards if card.policy_set is None)))
                continue
            card = self._cards[index]
            snapshot = card.snapshot
            if snapshot.is_fresh():
                scored_hosts.append(ScoredHosts(some, snapshot))
            else:
                scored_hosts.append(ScoredHosts(some, None, card.missing_score_reason))
        return scored_hosts

    def _correct_readings(self, host: str, before: allocation_history.HostTrack,
                          after: allocation_history.HostTrack) -> None:
        for card in self._cards:
            card.snapshot.correct_host_loads(host, after)

    def record_multiplier(self, host: Any, multiplier: float, aggregates: tuple[str, ...]) -> None:
        """Remember a host's multiplier, and the aggregates that set it.

        Without aggregates the option sets it.
        """
        if len(self._heard) >= MAX_HEARD:
            self._heard.clear()
        index = self._bindings.group_hosts_by_index([host])[0][0]
        self._heard[index, aggregates] = multiplier

    @property
    def has_queried_source(self) -> bool:
        """True when the first query of the source in this process has ended."""
        return self._answered

    @property
    def missing_score_reason(self) -> str:
        """Reasons why files have no fresh scores, for a message."""
        return '; '.join(card.missing_score_reason for card in self._cards
                         if not card.snapshot.is_fresh())

    def describe_files(self) -> tuple[worker_records.FileState, ...]:
        """Return the state of each policy file; nothing before the source has answered."""
        return tuple(card.describe_state() for card in self._cards) if self._answered else ()

    @property
    def usage_keys(self) -> list[str]:
        """Keys under which the engine publishes its measurements for our policies."""
        return sorted({key for card in self._cards for key in card.usage_keys})

    def replace_usages(self, usages: Mapping[str, flavor_usages.FlavorUsages]) -> None:
        """Replace the usages that the engine has published, by these keys."""
        if usages != self._usages:
            self._usages = usages
            self._refresher.request_wake()

    def stop(self) -> None:
        self._refresher.stop()

    # On the background thread.

    def refresh_scores(self) -> None:
        """Query the source about every enabled policy, and update the snapshots."""
        problem: Exception | None = None
        try:
            for card in self._cards:
                try:
                    card.refresh_scores(self._own_source)
                except Exception as e:  # one file's error does not affect the others
                    problem = e
            self._forget_unseen_hosts()
            self._update_readings()
        finally:
            self._answered = True
        if problem is not None:
            raise problem

    def _compute_pause(self) -> float:
        """Return the seconds to the next refresh.

        An answer is queried again when it is an interval old, also when another worker queried it.
        """
        interval = float(self._conf.kronos.refresh_interval)
        return max(MIN_PAUSE, interval - max(card.asked_ago for card in self._cards))

    def _own_source(self) -> base.MetricsSource:
        """Return the source of this thread: connections do not survive a fork."""
        me = threading.current_thread()
        if self._source is None or self._source[0] is not me:
            source = plugins.load_plugin(plugins.SOURCES, self._conf.kronos.source)(self._conf)
            if self._conf.kronos.share_scores:
                source = shared_source.SharedMetricsSource(self._conf, source)
            self._source = (me, source)
        return self._source[1]

    def _forget_unseen_hosts(self) -> None:
        scored = {host for card in self._cards for host in card.snapshot.headroom}
        self._ledger.forget_missing_hosts(time.monotonic(), scored)

    def _update_readings(self) -> None:
        usages = self._usages
        self._ledger.watch_moves(move for usage in usages.values() for move in usage.moves)
        landed, tracks = self._ledger.landed_moves, self._ledger.copy_tracks()
        problem: Exception | None = None
        for card in self._cards:
            try:
                card.replace_reading(tracks, usages, landed)
            except Exception as e:  # one file's error does not affect the others
                problem = e
        for host, track in self._ledger.copy_tracks().items():
            if track is not tracks.get(host):  # changed meanwhile
                self._correct_readings(host, track, track)
        loaded = {card.path: card.policy_set for card in self._cards}
        if loaded != self._bound:
            self._bindings = bindings.PolicyBindings(loaded)
            self._bound = loaded
            self._heard = {}
        self._log_contradictions()
        self._tell_unknown(tracks)
        if problem is not None:
            raise problem

    def _tell_unknown(self, tracks: Mapping[str, allocation_history.HostTrack]) -> None:
        """Log the hosts that lost their scores or never had any, and those that got one.

        One line names all hosts without a score, while others of their file have some.
        """
        known: set[str] = set()
        unknown: set[str] = set()
        for host, track in tracks.items():
            index = self._bindings.find_file_index(track.aggregates)
            if index is None:
                known.add(host)
            elif (snapshot := self._cards[index].snapshot).is_fresh():
                (known if host in snapshot.loads else unknown).add(host)
            elif host in self._unknown:
                unknown.add(host)  # its file has no scores, and the scorecard logs that
        before = self._unknown
        if lost := sorted(unknown - before):
            LOG.warning('kronos: no score for %s, treated as unknown_hosts = %s says: %s. See '
                        'to the exporters, or to host_label and host_regex.',
                        plurals.count_noun(len(lost), 'host'), self._conf.kronos.unknown_hosts,
                        _format_hosts(lost))
        if recovered := sorted(before & known):
            LOG.info('kronos: scores are back for %s: %s',
                     plurals.count_noun(len(recovered), 'host'), _format_hosts(recovered))
        self._unknown = frozenset(unknown)

    def _log_contradictions(self) -> None:
        """Log each contradiction in the configuration, once while it lasts."""
        bound = self._bindings
        option = float(self._conf.filter_scheduler.kronos_weight_multiplier)
        contradictions: dict[object, str] = {
            pair: bindings.format_overlap(bound, pair, why)
            for pair, why in bound.overlaps.copy().items()}
        for index, card in enumerate(self._cards):
            if bound.is_default(index):
                self._check_multiplier(contradictions, card, (), option)
        for (heard_of, aggregates), multiplier in self._heard.copy().items():
            if heard_of is not None:
                self._check_multiplier(contradictions, self._cards[heard_of], aggregates,
                                       multiplier if aggregates else option)
        for what in contradictions.keys() - self._logged_contradictions:
            LOG.warning('kronos: %s', contradictions[what])
        self._logged_contradictions = frozenset(contradictions)

    @staticmethod
    def _check_multiplier(contradictions: dict[object, str], card: policy_scores.PolicyScorecard,
                          aggregates: tuple[str, ...], multiplier: float) -> None:
        if card.policy_set is None:
            return
        where = 'kronos_weight_multiplier'
        if aggregates:
            where += f' of aggregate {", ".join(aggregates)}'
        if done := bindings.find_contradiction(card.policy_set, multiplier):
            contradictions[card.path, where, multiplier > 0] = bindings.format_mismatch(
                card.path, card.policy_set.mode, where, multiplier, done)


def _format_hosts(hosts: list[str]) -> str:
    more = len(hosts) - MAX_NAMED
    return ', '.join(hosts[:MAX_NAMED]) + (f' and {more} more' if more > 0 else '')
