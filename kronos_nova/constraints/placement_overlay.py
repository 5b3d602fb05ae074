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

"""The places of instances while moves are laid over a Cluster."""

from collections import defaultdict
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from typing import NamedTuple

from kronos_nova import model
from kronos_nova.constraints import failure_domains
from kronos_nova.constraints import occupancy
from kronos_nova.constraints import spread_sets
from kronos_nova.constraints import spread_tally
from kronos_nova.model import spread_requests


class Departure(NamedTuple):
    """An instance whose migration is under way when the view is made.

    ``to_host`` is None where the destination is not known. ``charged``: Placement counts the
    instance at its destination already. ``alternates``: other hosts where our task may end.
    """

    uuid: str
    to_host: str | None
    charged: bool
    alternates: tuple[str, ...]


def list_departures(cluster: model.Cluster) -> Iterator[Departure]:
    """Yield the instances whose migrations the cluster shows as under way."""
    scheduled = {f.instance_uuid: f.to_host for f in cluster.flights
                 if f.source == 'nova' and f.to_host is not None}
    planned = {f.instance_uuid: f.to_host for f in cluster.flights
               if f.to_host is not None}
    alternates = {f.instance_uuid: f.alternates for f in cluster.flights
                  if f.alternates}
    for uuid in dict.fromkeys(f.instance_uuid for f in cluster.flights):
        if uuid not in cluster.instances:
            continue
        home = cluster.instances[uuid].host
        to_host = scheduled.get(uuid, planned.get(uuid))
        if to_host == home:
            to_host = None  # the instance has arrived, its record is still open
        yield Departure(uuid, to_host, uuid in scheduled, () if to_host is None else tuple(
            host for host in alternates.get(uuid, ())
            if host not in (to_host, home) and host in cluster.hosts))


class PlacementOverlay:
    """Where each instance is, may come to be, and which providers it takes room from. Mutable.

    An instance is on one host. While it is in flight it also counts at the ends of its move.
    """

    def __init__(self, cluster: model.Cluster, options: model.PlanningOptions) -> None:
        self.cluster = cluster
        self.occupancy = occupancy.ProviderOccupancy(cluster, options)
        #: Destination of each instance in flight; None: not known.
        self.flying: dict[str, str | None] = {}
        #: Hosts that differ from the cluster's: instances are many, moves are few.
        self._moved: dict[str, str] = {}
        self._groups: dict[str, list[model.ServerGroup]] = defaultdict(list)
        #: Members of the groups in use, by host: groups are many, moves are few.
        self._members: dict[str, dict[str, set[str]]] = {}
        for group in cluster.groups:
            for uuid in group.members:
                self._groups[uuid].append(group)
        self.domains = failure_domains.FailureDomains(cluster.aggregates,
                                                      cluster.aggregate_metadata)
        self.spread_sets = spread_sets.build_spread_sets(cluster, self.domains)
        self._sets: dict[str, list[spread_requests.SpreadSet]] = defaultdict(list)
        for spread_set in self.spread_sets:
            for uuid in spread_set.members:
                self._sets[uuid].append(spread_set)
        #: Of the spread sets in use, by key.
        self._tallies: dict[str, spread_tally.SpreadTally] = {}
        #: Hosts where instances in flight may end, alternates of tasks too.
        self._ends: dict[str, set[str]] = defaultdict(set)
        for departure in list_departures(cluster):
            self._lay_departure(departure)

    # Queries.

    def find_host_of(self, uuid: str) -> str | None:
        """Return the instance's host; an instance in flight is still on its source."""
        moved = self._moved.get(uuid)
        if moved is not None:
            return moved
        instance = self.cluster.instances.get(uuid)
        return instance.host if instance is not None else None

    def list_possible_hosts(self, uuid: str) -> Collection[str]:
        """Return every host where the instance is, was at first, or may come to be."""
        now = self.find_host_of(uuid)
        if now is None:
            return ()
        return {self.cluster.instances[uuid].host, now, *self._ends.get(uuid, ())}

    def is_in_flight(self, uuid: str) -> bool:
        return uuid in self.flying

    def has_unknown_destination(self, uuid: str) -> bool:
        """Return True when the instance is in flight to an unknown destination."""
        return uuid in self.flying and self.flying[uuid] is None

    def list_groups_of(self, uuid: str) -> Collection[model.ServerGroup]:
        return self._groups.get(uuid, ())

    def list_members_on(self, group: model.ServerGroup, host: str) -> Collection[str]:
        """Return the UUIDs of members on the host, coming to it or leaving it."""
        return self._map_members(group).get(host, ())

    def map_members_by_host(self, group: model.ServerGroup) -> Mapping[str, Collection[str]]:
        """Return the members by host; hosts without one are left out."""
        return {h: m for h, m in self._map_members(group).items() if m}

    def list_spread_sets_of(self, uuid: str) -> Collection[spread_requests.SpreadSet]:
        return self._sets.get(uuid, ())

    def tally_set(self, spread_set: spread_requests.SpreadSet) -> spread_tally.SpreadTally:
        """Return the members of a set by domain. Moves of members change it."""
        tally = self._tallies.get(spread_set.key)
        if tally is None:
            tally = self._tallies[spread_set.key] = spread_tally.SpreadTally(spread_set.kind,
                                                                             self.domains)
            for uuid in spread_set.members:
                self._tally_member(tally, uuid)
        return tally

    def _tally_member(self, tally: spread_tally.SpreadTally, uuid: str) -> None:
        host = self.find_host_of(uuid)
        if host is not None:
            tally.place_member(uuid, {host, *self._ends.get(uuid, ())},
                               self.has_unknown_destination(uuid))

    def _map_members(self, group: model.ServerGroup) -> dict[str, set[str]]:
        """Return the members by host, at first those of the cluster.

        Each method that moves a member changes this mapping, so that no move is missed.
        """
        members_by_host = self._members.get(group.uuid)
        if members_by_host is None:
            members_by_host = self._members[group.uuid] = defaultdict(set)
            for uuid in group.members:
                instance = self.cluster.instances.get(uuid)
                if instance is not None:
                    members_by_host[instance.host].add(uuid)
        return members_by_host

    # Changes by a planner or checker.

    def move_instance(self, uuid: str, from_host: str, to_host: str) -> None:
        """Take the instance from one host to another at once."""
        self._moved[uuid] = to_host
        self._discard_group_member(uuid, from_host)
        self._add_group_member(uuid, to_host)
        home = self.cluster.instances[uuid].host
        for host, sign in ((from_host, -1), (to_host, 1)):
            if host != home:
                self.occupancy.add_arrival(uuid, host, sign)
            else:
                self.occupancy.remove_home_allocation(uuid, -sign)

    def add_departure(self, uuid: str, to_host: str) -> None:
        """Record that the instance is in flight, and count it at its destination, too."""
        self.flying[uuid] = to_host
        self._add_flight_end(uuid, to_host)

    def remove_departure(self, uuid: str, to_host: str) -> None:
        """Record that the instance is not in flight, and count it at its source only."""
        self.flying.pop(uuid, None)
        self._ends[uuid].discard(to_host)
        self.occupancy.add_arrival(uuid, to_host, -1)
        self._discard_group_member(uuid, to_host)

    def _add_flight_end(self, uuid: str, host: str, charged: bool = False) -> None:
        self._ends[uuid].add(host)
        if not charged:
            self.occupancy.add_arrival(uuid, host, 1)
        self._add_group_member(uuid, host)

    def _add_group_member(self, uuid: str, host: str) -> None:
        for group in self._groups.get(uuid, ()):
            self._map_members(group)[host].add(uuid)
        self._follow_member(uuid)

    def _discard_group_member(self, uuid: str, host: str) -> None:
        for group in self._groups.get(uuid, ()):
            self._map_members(group)[host].discard(uuid)
        self._follow_member(uuid)

    def _follow_member(self, uuid: str) -> None:
        """Count the instance in its spread sets where it may be by now."""
        for spread_set in self._sets.get(uuid, ()):
            tally = self._tallies.get(spread_set.key)
            if tally is not None:
                self._tally_member(tally, uuid)

    # Moves that were under way at first.

    def _lay_departure(self, departure: Departure) -> None:
        """Count an instance at each host where it may end.

        Placement charges both ends of a move that Nova has scheduled. For a task that Nova has not
        scheduled, the overlay charges the destination.
        """
        uuid, to_host, charged, alternates = departure
        self.flying[uuid] = to_host
        if to_host is not None:
            self._add_flight_end(uuid, to_host, charged)
            for host in alternates:
                self._add_flight_end(uuid, host)
