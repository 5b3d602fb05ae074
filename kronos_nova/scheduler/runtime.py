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


"""The runtime that our plug-ins share in a nova-scheduler process, with its one scoreboard.

Nova makes filters and weighers before nova-scheduler forks its workers, and many threads use them
afterwards: background threads start at the first request of a process.
"""

from collections.abc import Mapping
import threading
import time
from typing import Any, Protocol, TypeVar

import nova.conf
from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plugins
from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.feed import feed_channel
from kronos_nova.feed import flavor_usages
from kronos_nova.feed import periodic
from kronos_nova.feed import raw_cache
from kronos_nova.feed import worker_records
from kronos_nova.scheduler import guard
from kronos_nova.scheduler import score_cache

CONF = nova.conf.CONF
scheduler_conf.register(CONF)

#: Seconds after which a runtime that could not be built is tried again.
RETRY_SECONDS = 60.0
#: Seconds between two reads of the engine's publications from the cache.
NOTICE_INTERVAL = 5.0
#: Seconds between two records of this worker for kronos-engine.
RECORD_INTERVAL = 15.0


class NoticeBoard:
    """The engine's newest publication, and the publisher of this worker's record.

    Both work in the background.

    :param scores: receives the measured usages of its policies.
    """

    def __init__(self, conf: cfg.ConfigOpts, faults: periodic.FaultCounters,
                 scores: score_cache.ScoreCache) -> None:
        self._conf = conf
        self._faults = faults
        self._scores = scores
        self._channel: tuple[threading.Thread, feed_channel.FeedChannel] | None = None
        self._identity = worker_records.WorkerIdentity()
        self._slot: worker_records.RecordSlot | None = None
        self._record_due = 0.0
        self._newest: feed_channel.PublishedState | None = None
        self._usage: dict[str, tuple[flavor_usages.FlavorUsages, float]] = {}
        self._scope_limits: dict[str, tuple[dict[str, model.BootLimit], float]] = {}
        #: The limits of all scopes together, and the first expiry.
        self._limits: tuple[Mapping[str, model.BootLimit], float] = {}, 0.0
        self._refresher = periodic.BackgroundRefresher(
            'kronos-noticeboard', lambda: NOTICE_INTERVAL, self.refresh_publication, faults)

    def ensure_refreshing(self) -> None:
        """Start the background refresh unless it runs."""
        self._refresher.ensure_running()

    def read_publication(self) -> feed_channel.PublishedState | None:
        """Return the engine's publication that holds now, or None."""
        self._refresher.ensure_running()
        newest = self._newest
        return newest if newest is not None and time.time() < newest.expires_at else None

    def read_boot_limits(self) -> Mapping[str, model.BootLimit]:
        """Return the limits that keep the failover certificates, by host; empty without any."""
        limits, expires_at = self._limits
        return limits if time.time() < expires_at else {}

    def refresh_publication(self) -> None:
        me = threading.current_thread()
        if self._channel is None or self._channel[0] is not me:
            # A channel of this thread: connections do not survive a fork.
            channel = feed_channel.FeedChannel(self._conf)
            self._channel, self._record_due = (me, channel), 0.0
            self._slot = worker_records.RecordSlot(channel.cache) if channel.cache else None
        try:
            self._newest = self._channel[1].read()
        finally:
            try:
                self._limits = self._merge_limits(self._channel[1])
            finally:
                try:
                    self._scores.replace_usages(self._read_usages(self._channel[1]))
                finally:
                    self._publish_record(time.monotonic())

    def _publish_record(self, now: float) -> None:
        """Publish this worker's record when it is due; a failure costs the record alone."""
        if self._slot is None or now < self._record_due:
            return
        self._record_due = now + RECORD_INTERVAL
        try:
            self._slot.write(self._identity.make_record(
                files=self._scores.describe_files(), plugins=guard.ACTIVITY.describe_counters(),
                faults=self._faults.describe_counts()))
        except Exception as e:  # a cache backend raises any kind
            self._faults.count_swallowed_error('the record for kronos-engine', e)

    def _read_usages(self, channel: feed_channel.FeedChannel) -> dict[str,
                                                                      flavor_usages.FlavorUsages]:
        """Return the usages by key of the policy.

        A usage that cannot be read affects its policy alone, and the previous one holds until it
        expires: a cache may be unavailable for a moment.
        """
        usages, now = self._usage, time.time()
        for key in self._scores.usage_keys:
            try:
                usage = channel.read_usage(key)
            except Exception as e:  # a cache backend raises any kind
                self._faults.count_swallowed_error('what the engine has measured', e)
            else:
                if usage is not None:
                    usages[key] = usage
        self._usage = {key: (usage, until) for key, (usage, until) in usages.items()
                       if now < until and key in self._scores.usage_keys}
        return {key: usage for key, (usage, _) in self._usage.items()}

    def _merge_limits(self, channel: feed_channel.FeedChannel,
                      ) -> tuple[Mapping[str, model.BootLimit], float]:
        """Return the limits of all scopes together, and until when none has expired.

        The earlier limits of a scope hold until they expire, also where the publication does not
        name it and where it has no record: a cache may lose one, and the engine of another scope
        may know no limits. An empty record ends them.
        """
        scopes = frozenset() if self._newest is None else self._newest.scopes
        kept, now = self._scope_limits, time.time()
        held: dict[str, tuple[dict[str, model.BootLimit], float]] = {}
        for scope in sorted(scopes | kept.keys())[:feed_channel.MAX_SCOPES]:
            found = None
            try:
                found = channel.read_boot_limits(scope)
            except Exception as e:  # a cache backend raises any kind
                self._faults.count_swallowed_error('limits of the failover certificates', e)
            found = found or kept.get(scope)
            if found is not None and found[0] and now < found[1]:
                held[scope] = found
        self._scope_limits = held
        return ({host: limit for limits, _ in held.values() for host, limit in limits.items()},
                min((until for _, until in held.values()), default=0.0))

    def stop(self) -> None:
        self._refresher.stop()


class BackgroundState(Protocol):
    """An object that a plug-in keeps from request to request, with a thread of its own."""

    def __init__(self, conf: cfg.ConfigOpts, faults: periodic.FaultCounters) -> None: ...

    def stop(self) -> None: ...


K = TypeVar('K', bound=BackgroundState)


class SchedulerRuntime:
    """The state that our filters and weighers share in a process."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        self.faults = guard.FAULTS
        self.scores = score_cache.ScoreCache(conf, self.faults)
        self.notices = NoticeBoard(conf, self.faults, self.scores)
        raw_cache.register(conf)
        self._has_feed = raw_cache.is_configured(conf)
        self._shared_states: dict[type, Any] = {}

    def get_shared_state(self, kind: type[K]) -> K:
        """Return this process's object of a class, made at the first call.

        :param kind: called with the configuration and :attr:`faults`; nothing may run before a
            request uses the object.
        """
        state = self._shared_states.get(kind)
        if state is None:
            # Two threads that come first get the same object.
            state = self._shared_states.setdefault(kind, kind(self.conf, self.faults))
        shared_state: K = state
        return shared_state

    def list_scored_groups(self, hosts: list[Any]) -> list[score_cache.ScoredHosts]:
        """Return the request's HostState objects by policy file, with fresh scores or none."""
        if self._has_feed:
            self.notices.ensure_refreshing()
        return self.scores.group_scored_hosts(hosts)

    def stop(self) -> None:
        self.scores.stop()
        self.notices.stop()
        for shared_state in tuple(self._shared_states.values()):
            shared_state.stop()


class RuntimeUnavailable(Exception):
    """Error: the runtime could not be built lately, so our plug-ins have no opinion."""


_door: SchedulerRuntime | None = None
#: The runtime that filters and weighers agreed on; at most one.
_made: dict[str, SchedulerRuntime] = {}
#: The error of the last failed build, and the time until which no request tries again.
_failure: tuple[str, float] | None = None


def check_options() -> None:
    """Read every option that our plug-ins use in nova-scheduler.

    Filters and weighers call it when Nova creates them, before the first request.

    :raises ConfigError: an option cannot be used; the text names it and the remedy.
    """
    raw_cache.register(CONF)
    scheduler_conf.check_options(CONF, raw_cache.OPTIONS)
    raw_cache.RawCache(CONF)
    raw_cache.warn_of_unread_backend(CONF)
    known = plugins.list_names(plugins.SOURCES)
    if CONF.kronos.source not in known:
        raise exception.ConfigError(
            path=', '.join(CONF.config_file or ()) or 'nova.conf', field='[kronos] source',
            problem=f'no score source is named {CONF.kronos.source!r}',
            remedy=f'Use one of: {", ".join(known)}.')


def get_runtime() -> SchedulerRuntime:
    """Return this process's runtime; a forked worker inherits it without its threads.

    :raises RuntimeUnavailable: it cannot be built; a request tries again after RETRY_SECONDS.
    """
    current_runtime = _door
    return current_runtime if current_runtime is not None else _build_runtime()


def _build_runtime() -> SchedulerRuntime:
    """Build the runtime without a lock, which a request could wait for.

    Of requests that come first at the same time each may build one. All use the one that was
    published first; another has started nothing yet and is dropped.
    """
    global _door, _failure
    if _failure is not None and time.monotonic() < _failure[1]:
        raise RuntimeUnavailable(_failure[0])
    try:
        _door = _made.setdefault('runtime', SchedulerRuntime(CONF))
    except Exception as e:
        _failure = f'{type(e).__name__}: {e}', time.monotonic() + RETRY_SECONDS
        raise RuntimeUnavailable(_failure[0]) from e
    return _door


def replace_runtime(other: SchedulerRuntime) -> None:
    """Make filters and weighers use another runtime from now on: that of a replay."""
    global _door
    _door = other


def close() -> None:
    """Stop the threads and forget everything; the next request builds a new runtime."""
    global _door, _failure
    if _door is not None:
        _door.stop()
    _door = _failure = None
    _made.clear()
    guard.FAULTS.clear()
    guard.ACTIVITY.clear()
