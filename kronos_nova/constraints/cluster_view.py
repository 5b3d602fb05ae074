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

"""The view of a Cluster and its moves that answers the rules' questions.

The checker and the planner's simulation use :class:`ClusterView`. An executor's pre-flight uses it,
too, on freshly read data: one truth, three users.
"""

from collections import defaultdict
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import functools

from kronos_nova import model
from kronos_nova.constraints import aggregate_metadata
from kronos_nova.constraints import hints
from kronos_nova.constraints import history_holds
from kronos_nova.constraints import metric_lag
from kronos_nova.constraints import occupancy


class ClusterView:
    """A Cluster with moves laid over it. Mutable; one user at a time.

    A move either lands at once (``land``, ``undo``: planning is sequential) or departs (``depart``,
    ``recall``: while under way it counts at both ends).

    :param scores: the view adds completed moves that their samples do not show yet.
    :param ceilings: highest fill of a destination by policy name.
    """

    def __init__(self, cluster: model.Cluster, options: model.PlanningOptions,
                 history: model.MoveHistory | None = None,
                 scores: model.ClusterScores | None = None,
                 ceilings: Mapping[str, float] | None = None,
                 draining: Collection[str] = ()) -> None:
        self.cluster = cluster
        self.options = options
        self.history = history or model.MoveHistory()
        self.draining = set(draining)
        self._scores = scores.policies if scores is not None else {}
        self._ceilings = dict(ceilings or {})
        #: Hosts that differ from the cluster's: instances are many, moves are few.
        self._moved: dict[str, str] = {}
        self._on: dict[str, set[str]] | None = None
        self._groups: dict[str, list[model.ServerGroup]] = defaultdict(list)
        #: Members of the groups in use, by host: groups are many, moves are few.
        self._members: dict[str, dict[str, set[str]]] = {}
        for group in cluster.groups:
            for uuid in group.members:
                self._groups[uuid].append(group)
        self.occupancy = occupancy.ProviderOccupancy(cluster, options)
        #: Upper bound of each host's fill, by policy.
        self._fill = {name: dict(p.fill) for name, p in self._scores.items()}
        #: Width of the uncertainty below that bound.
        self._doubt: dict[str, dict[str, float]] = {
            name: defaultdict(float) for name in self._scores}
        #: Bounds of the load that the scores do not show yet.
        self._unseen: dict[str, dict[str, metric_lag.UnseenChange]] = {
            name: {} for name in self._scores}
        self._flying: dict[str, str | None] = {}
        self._tied: dict[str, set[str]] | None = None
        #: Hosts where instances in flight may end, alternates of tasks too.
        self._ends: dict[str, set[str]] = defaultdict(set)
        self._lay_flights()
        if scores is not None:
            self._lay_completed(scores.taken_at)

    # Queries of the rules.

    def instance(self, uuid: str) -> model.Instance | None:
        return self.cluster.instances.get(uuid)

    def host(self, name: str) -> model.Host | None:
        return self.cluster.hosts.get(name)

    def service(self, host: str) -> model.Service | None:
        return self.cluster.services.get(host)

    def in_scope(self, host: str) -> bool:
        return host in self.cluster.scope_hosts

    def other_zone(self, host: str) -> str | None:
        """Return the zone that keeps the host out of every scope; None: no zone does."""
        if host not in self.cluster.hosts or self.cluster.has_planned(host):
            return None
        return self.cluster.zone_of(host)

    @functools.cached_property
    def aggregates(self) -> aggregate_metadata.HostAggregates:
        return aggregate_metadata.HostAggregates(
            self.cluster.aggregates, self.cluster.aggregate_metadata)

    def sharing(self, host: str) -> Collection[model.Provider]:
        return [self.cluster.sharing[uuid] for uuid in sorted(self.cluster.hosts[host].sharing)
                if uuid in self.cluster.sharing]

    def host_of(self, uuid: str) -> str | None:
        moved = self._moved.get(uuid)
        if moved is not None:
            return moved
        instance = self.cluster.instances.get(uuid)
        return instance.host if instance is not None else None

    def places(self, uuid: str) -> Collection[str]:
        now = self.host_of(uuid)
        if now is None:
            return ()
        return {self.cluster.instances[uuid].host, now, *self._ends.get(uuid, ())}

    def instances_on(self, host: str) -> Collection[str]:
        if self._on is None:
            self._on = defaultdict(set)
            for uuid, instance in self.cluster.instances.items():
                self._on[self._moved.get(uuid, instance.host)].add(uuid)
        return self._on.get(host, ())

    def in_flight(self, uuid: str) -> bool:
        return uuid in self._flying

    def unscheduled(self, uuid: str) -> bool:
        return uuid in self._flying and self._flying[uuid] is None

    def tied(self, uuid: str) -> Collection[str]:
        if self._tied is None:
            self._tied = hints.build_hint_ties(self.cluster.instances,
                                               self.options.nova_enabled_filters)
        return self._tied.get(uuid, ())

    def groups_of(self, uuid: str) -> Collection[model.ServerGroup]:
        return self._groups.get(uuid, ())

    def members_on(self, group: model.ServerGroup, host: str) -> Collection[str]:
        return self._members_of(group).get(host, ())

    def spread_of(self, group: model.ServerGroup) -> Mapping[str, Collection[str]]:
        """Return the members by host; hosts without one are left out."""
        return {h: m for h, m in self._members_of(group).items() if m}

    def _members_of(self, group: model.ServerGroup) -> dict[str, set[str]]:
        """Return the members by host, at first those of the cluster.

        Each method that moves a member changes this mapping, so that no move is missed.
        """
        found = self._members.get(group.uuid)
        if found is None:
            found = self._members[group.uuid] = defaultdict(set)
            for uuid in group.members:
                instance = self.cluster.instances.get(uuid)
                if instance is not None:
                    found[instance.host].add(uuid)
        return found

    def used(self, host: str, resource_class: str) -> float:
        return self.occupancy.used(self.cluster.hosts[host], resource_class)

    def claims_known(self) -> bool:
        return self.cluster.placement_known

    def held(self, uuid: str) -> model.Rejection | None:
        return next(history_holds.list_hold_reasons(self.history, uuid), None)

    def fresh(self, uuid: str) -> float:
        return self.history.fresh.get(uuid, 0.0)

    def refused(self, uuid: str, host: str) -> bool:
        return host in self.history.refused.get(uuid, ())

    def closed(self, host: str) -> model.Rejection | None:
        if host in self.draining:
            return model.Rejection('host-draining', f'host {host} is being emptied')
        if host in self.history.quarantined_hosts:
            return model.Rejection('host-quarantined', f'host {host} refused moves lately')
        return None

    def keeps_disks(self, host: str) -> bool:
        return host in self.history.local_disk_hosts

    def apart(self, one: str, other: str) -> bool:
        return (min(one, other), max(one, other)) in self.history.other_cells

    def unscored(self, move: model.Move) -> model.Rejection | None:
        for name, policy in self._scores.items():
            if policy.untrusted:
                return model.Rejection('policy-untrusted', f'{name}: {policy.untrusted}')
            for host in (move.from_host, move.to_host):
                if not policy.knows(host):
                    return _lacks_score(host, name)
            if move.instance_uuid not in policy.usages:
                return model.Rejection(
                    'no-profile', f'instance {move.instance_uuid} has no usage in {name}')
        return None

    def frozen(self, host: str) -> model.Rejection | None:
        if not self.trusted:
            return None
        return next((_lacks_score(host, name) for name, policy in self._scores.items()
                     if not policy.knows(host)), None)

    @property
    def trusted(self) -> bool:
        """True when there are scores and all policies' can be trusted; otherwise claims decide."""
        return bool(self._scores) and not any(p.untrusted for p in self._scores.values())

    def fullness(self, host: str) -> float:
        """Return the highest fill of a policy; 0 where nothing is known.

        Without trusted scores, return the highest allocation ratio of a resource class.
        """
        if self.trusted:
            return max((fill[host] for fill in self._fill.values() if host in fill),
                       default=0.0)
        known = self.cluster.hosts.get(host)
        return 0.0 if known is None else max(
            (self.used(host, name) / capacity for name, capacity in known.capacities().items()
             if capacity > 0), default=0.0)

    def ceilings(self, move: model.Move) -> Mapping[str, tuple[float, float]]:
        out = {}
        for name, ceiling in self._ceilings.items():
            policy = self._scores.get(name)
            fill = self._fill.get(name, {}).get(move.to_host)
            if policy is None or policy.untrusted or fill is None:
                continue
            out[name] = (fill + self.ratio(name, move.instance_uuid, move.to_host), ceiling)
        return out

    def fills(self, host: str) -> Mapping[str, float]:
        """Return the host's known fills by policy."""
        return {name: fill[host] for name, fill in self._fill.items() if host in fill}

    def filled(self, policy: str) -> Mapping[str, float]:
        """Return the known fill of each host under a policy. The caller must not change it."""
        return self._fill[policy]

    def unseen(self, policy: str, host: str) -> metric_lag.UnseenChange:
        """Return the bounds of the load that the host's score does not show yet.

        The load comes from moves in flight or just completed.
        """
        return self._unseen[policy].get(host, _NOTHING)

    def level(self, policy: str, host: str) -> float | None:
        """Return the host's score plus the load that it does not show yet.

        Where only bounds are known, return the value nearest to the mean. None: the host is frozen
        or outside the scope.
        """
        return self._levels_by_policy[policy].get(host)

    def levels(self, policy: str) -> Mapping[str, float]:
        """Return :meth:`level` of every host that has one. The caller must not change it."""
        return self._levels_by_policy[policy]

    def doubt(self, policy: str, host: str) -> float:
        """Return by how much the host's fill may be too high.

        The samples show an unknown part of the moves that have just completed.
        """
        return self._doubt[policy].get(host, 0.0)

    def leaving(self, policy: str, host: str) -> float:
        """Return the load that moves in flight will take from the host's score.

        The score still contains this load, so no rule counts on it. A strategy that levels loads
        must count it, or it overshoots.
        """
        return sum(self.ratio(policy, uuid, host) for uuid, to_host in self._flying.items()
                   if to_host is not None and self.host_of(uuid) == host)

    def ratio(self, policy: str, uuid: str, host: str) -> float:
        """Return the load that the instance adds to the host's score; 0 when unknown."""
        scores = self._scores[policy]
        capacity = scores.capacity.get(host)
        return scores.usages.get(uuid, 0.0) / capacity if capacity else 0.0

    # Changes by a planner or checker.

    def land(self, move: model.Move) -> None:
        """Move the instance from its source to its destination."""
        self._move_instance(move.instance_uuid, move.from_host, move.to_host)

    def undo(self, move: model.Move) -> None:
        """Revert the last ``land`` of this move."""
        self._move_instance(move.instance_uuid, move.to_host, move.from_host)

    def depart(self, move: model.Move) -> None:
        """Count the instance at both ends from now on.

        One move may end at any of several hosts: depart to each, and the instance counts at each.
        """
        self._add_departure(move.instance_uuid, move.to_host)

    def recall(self, move: model.Move) -> None:
        """Revert ``depart``, once for each host departed to.

        Afterwards the instance is at its source only.
        """
        uuid = move.instance_uuid
        self._flying.pop(uuid, None)
        self._ends[uuid].discard(move.to_host)
        self._add_arrival(uuid, move.to_host, -1)
        self._discard_group_member(uuid, move.to_host)

    def _add_departure(self, uuid: str, to_host: str | None, charged: bool = False) -> None:
        """Record that the instance is in flight, and count it at its destination.

        :param to_host: None: the destination is not known.
        :param charged: Placement counts the instance at its destination already.
        """
        self._flying[uuid] = to_host
        if to_host is not None:
            self._ends[uuid].add(to_host)
            if charged:
                self._load(uuid, to_host, 1)
            else:
                self._add_arrival(uuid, to_host, 1)
            for group in self._groups.get(uuid, ()):
                self._members_of(group)[to_host].add(uuid)

    def _discard_group_member(self, uuid: str, host: str) -> None:
        for group in self._groups.get(uuid, ()):
            self._members_of(group)[host].discard(uuid)

    def _move_instance(self, uuid: str, from_host: str, to_host: str) -> None:
        self._moved[uuid] = to_host
        if self._on is not None:
            self._on[from_host].discard(uuid)
            self._on[to_host].add(uuid)
        self._discard_group_member(uuid, from_host)
        for group in self._groups.get(uuid, ()):
            self._members_of(group)[to_host].add(uuid)
        home = self.cluster.instances[uuid].host
        for host, sign in ((from_host, -1), (to_host, 1)):
            if host != home:
                self._add_arrival(uuid, host, sign)
            else:
                self.occupancy.leave_home(uuid, -sign)
                self._load(uuid, host, sign)

    def _add_arrival(self, uuid: str, host: str, sign: int) -> None:
        self.occupancy.come(uuid, host, sign)
        self._load(uuid, host, sign)

    def _load(self, uuid: str, host: str, factor: float) -> None:
        for name, fill in self._fill.items():
            if host in fill:
                fill[host] += factor * self.ratio(name, uuid, host)

    def _lay_flights(self) -> None:
        """Add the moves that are under way already.

        Placement charges both ends of a move that Nova has scheduled. For a task that Nova has not
        scheduled, the view charges the destination.
        """
        scheduled = {f.instance_uuid: f.to_host for f in self.cluster.flights
                     if f.source == 'nova' and f.to_host is not None}
        planned = {f.instance_uuid: f.to_host for f in self.cluster.flights
                   if f.to_host is not None}
        alternates = {f.instance_uuid: f.alternates for f in self.cluster.flights
                      if f.alternates}
        for uuid in dict.fromkeys(f.instance_uuid for f in self.cluster.flights):
            if uuid not in self.cluster.instances:
                continue
            to_host = scheduled.get(uuid, planned.get(uuid))
            if to_host == self.cluster.instances[uuid].host:
                to_host = None  # the instance has arrived, its record is still open
            self._add_departure(uuid, to_host, charged=uuid in scheduled)
            if to_host is not None:
                for name in self._scores:
                    added = self.ratio(name, uuid, to_host)
                    self._add_unseen(name, to_host, added, added)
            if to_host is not None:
                self._lay_alternates(uuid, to_host, alternates.get(uuid, ()))

    def _lay_alternates(self, uuid: str, to_host: str, hosts: Collection[str]) -> None:
        """Count the instance at the alternate hosts of our task, except in their levels."""
        ends = {to_host, self.cluster.instances[uuid].host}
        for host in hosts:
            if host not in ends and host in self.cluster.hosts:
                self._ends[uuid].add(host)
                self._add_arrival(uuid, host, 1)
                for group in self._groups.get(uuid, ()):
                    self._members_of(group)[host].add(uuid)

    def _lay_completed(self, sampled_at: float) -> None:
        """Add the completed moves that the samples do not show yet, or show only in part.

        Only moves count that led an instance, one after the other, to its present host.
        """
        place: dict[str, str | None] = {}
        chains: dict[str, list[tuple[model.Move, float]]] = defaultdict(list)
        for move, completed_at in reversed(self.history.completed):
            uuid = move.instance_uuid
            if place.get(uuid, self.host_of(uuid)) != move.to_host:
                place[uuid] = None  # another actor has moved the instance since
                continue
            place[uuid] = move.from_host
            chains[uuid].append((move, completed_at))
        settle = self.options.settle_seconds
        for uuid, moves in chains.items():
            for name, policy in self._scores.items():
                for share in metric_lag.compute_host_shares(moves, policy, policy.fill_look,
                                                            sampled_at, settle):
                    if share.host in policy.fill:
                        usage = self.ratio(name, uuid, share.host)
                        self._fill[name][share.host] += usage * share.most
                        self._doubt[name][share.host] += usage * (share.most - share.least)
                for share in metric_lag.compute_host_shares(moves, policy, policy.score_look,
                                                            sampled_at,
                                                            settle):
                    usage = self.ratio(name, uuid, share.host)
                    self._add_unseen(name, share.host, usage * share.least, usage * share.most)

    @functools.cached_property
    def _levels_by_policy(self) -> dict[str, dict[str, float]]:
        """Levels by policy and host, computed at the first access.

        Moves laid over the view later do not change them.
        """
        return {name: self._compute_levels(name) for name in self._scores}

    def _compute_levels(self, name: str) -> dict[str, float]:
        """Compute the hosts' levels under a policy.

        An uncertain load makes a host neither hot nor cold.
        """
        policy = self._scores[name]
        known = {h: policy.hosts[h] for h in sorted(self.cluster.scope_hosts) if policy.knows(h)}
        if not self._unseen[name]:
            return known
        bounds = {}
        for host, score in known.items():
            least, most = self.unseen(name, host)
            bounds[host] = score + least, score + most
        middle = sum(low + high for low, high in bounds.values()) / max(1, 2 * len(bounds))
        return {h: metric_lag.clamp_to_bounds(middle, low, high) for h,
                (low, high) in bounds.items()}

    def _add_unseen(self, policy: str, host: str, least: float, most: float) -> None:
        known = self.unseen(policy, host)
        self._unseen[policy][host] = metric_lag.UnseenChange(known.least + least, known.most + most)


_NOTHING = metric_lag.UnseenChange(0.0, 0.0)


def _lacks_score(host: str, policy: str) -> model.Rejection:
    return model.Rejection('host-frozen', f'host {host} has no score of {policy}')


@contextlib.contextmanager
def apply_moves(view: ClusterView, landed: Sequence[model.Move],
                flying: Sequence[model.Move]) -> Iterator[ClusterView]:
    """Yield the view with some moves landed and others in flight; restore it afterwards."""
    for move in landed:
        view.land(move)
    for move in flying:
        view.depart(move)
    try:
        yield view
    finally:
        for move in reversed(flying):
            view.recall(move)
        for move in reversed(landed):
            view.undo(move)
