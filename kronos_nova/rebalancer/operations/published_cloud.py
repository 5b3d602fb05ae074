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
"""The cloud as engines have published it, for a process that reads the database alone.

A process keeps the newest version of each reading in memory, decoded once for all threads. What the
database knows (moves under way, cooldowns, quarantines, pauses, decisions) is read for each
verdict and each order of moves: so a reading may be as old as a cycle. Requests that order moves
refuse an older one, and executors check each move again before they ask Nova.
"""

import array
import bisect
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import gc
import threading
from typing import Any
import zlib

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy
from kronos_nova.constraints import metric_lag
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import views
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.snapshots import readings
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import database_clock

#: Seconds for which a process asks the database neither for a new version again, nor, for views,
#: for moves under way and holds.
CHECK_SECONDS = 1.0


class PublishedReading:
    """A decoded version of a reading.

    ``scopes``: the scopes of which it is the newest reading. ``requests``: by scope, the request
    from which its cycle planned, for views; the database has changed since.
    """

    def __init__(self, conf: cfg.ConfigOpts, content: readings.CloudReading,
                 scopes: Sequence[str]) -> None:
        self.content = content
        self.taken_at = content.taken_at
        self.scopes = tuple(scope for scope in scopes if scope in content.scopes)
        cloud = self.make_cloud({scope: content.scopes[scope].history for scope in self.scopes},
                                content.taken_at)
        self.requests: dict[str, planner.PlanningInput] = {
            scope: cloud_state.build_planning_input(conf, content.policies, cloud, cluster)
            for scope, cluster in cloud.map_clusters().items()}
        #: The scope of each host that has one.
        self.scope_by_host: Mapping[str, str] = {
            host: scope for scope, request in self.requests.items()
            for host in request.cluster.scope_hosts}
        #: The UUIDs of the instances of each host that has any, sorted.
        self.instances_by_host: Mapping[str, Sequence[str]] = {
            host: sorted(uuids)
            for host, uuids in views.map_instances_by_host(content.cluster).items()}
        #: The UUIDs of all instances, sorted.
        self.instance_uuids: Sequence[str] = sorted(content.cluster.instances)
        #: Of each instance, a digest of its name and its place in instance_uuids; sorted.
        self._names = array.array('Q', sorted(
            _digest_name(content.cluster.instances[uuid].name) << 32 | place
            for place, uuid in enumerate(self.instance_uuids)))
        self._portraits: dict[str, views.HostPortrait] = {}
        self._refreshing = threading.Lock()
        self._recent: tuple[float, dict[str, planner.PlanningInput]] | None = None

    def list_instances_named(self, name: str) -> list[str]:
        """Return the UUIDs of the instances of that name, sorted."""
        digest, instances = _digest_name(name), self.content.cluster.instances
        begin = bisect.bisect_left(self._names, digest << 32)
        end = bisect.bisect_left(self._names, digest + 1 << 32)
        uuids = [self.instance_uuids[place & 0xffffffff] for place in self._names[begin:end]]
        return [uuid for uuid in uuids if instances[uuid].name == name]

    def find_portrait(self, scope: str, host: str) -> views.HostPortrait:
        """Return the portrait of a host of a scope; it is made at its first use."""
        portrait = self._portraits.get(host)
        if portrait is None:
            portrait = self._portraits[host] = views.build_host_portrait(
                self.requests[scope], host, self.instances_by_host.get(host, ()))
        return portrait

    def make_cloud(self, histories: dict[str, model.MoveHistory], now: float,
                   flights: Sequence[model.InFlightMove] = ()) -> cloud_state.CloudState:
        """Return the cloud of the reading with histories of its scopes.

        :param flights: moves besides those that Nova has shown.
        """
        content = self.content
        return cloud_state.CloudState(
            dataclasses.replace(content.cluster, flights=(*content.cluster.flights, *flights)),
            {}, self.scopes, histories, now, named=content.named, options=content.options,
            scores={scope: content.scopes[scope].scores for scope in self.scopes})

    def find_recent_request(self, conf: cfg.ConfigOpts, store: store_api.Store, scope: str,
                            now: float) -> planner.PlanningInput:
        """Return the request of a scope with the state of the database of about now, for a view.

        One thread reads the database; others take the state before meanwhile.

        :param now: seconds since the epoch.
        :raises StoreError: the database cannot be read.
        """
        recent = self._recent
        if recent is None or now - recent[0] >= CHECK_SECONDS:
            if not self._refreshing.acquire(blocking=recent is None):
                assert recent is not None
                return recent[1][scope]
            try:
                if self._recent is recent:
                    cloud = read_published_cloud(conf, store, self, now).hold_for_approval()
                    self._recent = now, {
                        name: cloud_state.build_planning_input(
                            conf, self.content.policies, cloud, cluster)
                        for name, cluster in cloud.map_clusters().items()}
                recent = self._recent
            finally:
                self._refreshing.release()
        assert recent is not None
        return recent[1][scope]


def _digest_name(name: str) -> int:
    return zlib.crc32(name.encode('utf-8', 'surrogatepass'))


def read_published_cloud(conf: cfg.ConfigOpts, store: store_api.Store, reading: PublishedReading,
                         now: float) -> cloud_state.CloudState:
    """Return the cloud of a reading with the present state of the database.

    A move that has ended since the cloud was read counts as under way, at both ends.

    :param now: seconds since the epoch.
    :raises StoreError: the database cannot be read.
    """
    content = reading.content
    remembered = max(metric_lag.compute_retention(content.policies.lookback_seconds),
                     now - content.taken_at + database_clock.SKEW_SECONDS)
    # In this order: a move that ends in between is in both lists.
    flights = store.tasks.list_in_flight_moves()
    histories = {}
    records = store.history.read_contract_records(content.cluster, now)
    for scope in reading.scopes:
        published = content.scopes[scope].history
        histories[scope] = dataclasses.replace(
            store.history.read_history(scope, now, remembered),
            # Only the engine that asked Placement knows them.
            refused=published.refused, refused_everywhere=published.refused_everywhere,
            # Only the engine asks the source of metrics.
            hourly_write_rates=published.hourly_write_rates, freezes=published.freezes,
            awaited_write_rates=published.awaited_write_rates,
            last_write_rates=published.last_write_rates, window_ends=published.window_ends,
            **records._asdict())
    under_way = {flight.instance_uuid for flight in flights}
    ended = {move.instance_uuid: model.InFlightMove(
        move.instance_uuid, move.from_host, move.to_host, 'task', scope=scope)
        for scope, history in histories.items() for move, at in history.completed
        if at >= content.taken_at and move.instance_uuid not in under_way}
    return cloud_state.add_stored_state(
        conf, store, reading.make_cloud(histories, now, (*flights, *ended.values())))


class PublishedSession(cloud_state.Session):
    """A session whose cloud is a published reading; made by :meth:`.ReadingCache.make_session`."""

    def __init__(self, reading: PublishedReading, clock: Callable[[], float],
                 **more: Any) -> None:
        super().__init__(**more)
        self.reading = reading
        self.asks_metrics = False
        self._clock = clock

    def forget_cloud(self) -> None:
        """Read the database again; refuse a reading that is too old for an order of moves.

        :raises ReadingTooOldError: the cloud was read too long ago.
        """
        age = self._clock() - self.reading.taken_at
        limit = self.conf.kronos_api.max_reading_age
        if age > limit:
            raise exception.ReadingTooOldError(
                path='database', field=', '.join(self.reading.scopes),
                problem=f'an engine read the cloud {age:.0f} s ago, and an order of moves needs a '
                        f'reading of the last {limit} s',
                remedy='See that kronos-engine runs and that its cycles succeed')
        super().forget_cloud()

    def read_cloud(self, policies: policy.PolicySet) -> cloud_state.CloudState:
        """Return the cloud of the reading with the present state of the database.

        :raises StoreError: the database cannot be read.
        """
        cloud = read_published_cloud(self.conf, self.store, self.reading, self._clock())
        return dataclasses.replace(cloud, cluster=cloud.cluster.replace_services(
            self.present_services))

    def count_needed_approvals(self, scope: str) -> int:
        """Return the number of the engine; without one in the reading, that of kronos.conf."""
        published = self.reading.content.scopes.get(scope)
        needed = None if published is None else published.needed_approvals
        return super().count_needed_approvals(scope) if needed is None else needed


def keep_from_collector() -> None:
    """Make the garbage collector leave alone all objects of this time.

    A collection that looks at each instance would hold up all threads. Readings have no cycles.
    """
    gc.collect()
    gc.freeze()
