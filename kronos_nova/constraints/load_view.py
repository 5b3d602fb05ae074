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

"""The load of hosts under moves: fills, levels, and the load that no score shows yet."""

from collections import defaultdict
from collections.abc import Mapping
import functools

from kronos_nova import model
from kronos_nova.constraints import metric_lag
from kronos_nova.constraints import placement_overlay


class LoadView:
    """The fills and levels of hosts, policy by policy. Mutable.

    :param placement: the places of the instances; a level counts those that are leaving.
    :param scores: the view adds completed moves that their samples do not show yet.
    :param ceilings: highest fill of a destination by policy name.
    """

    def __init__(self, placement: placement_overlay.PlacementOverlay,
                 options: model.PlanningOptions, history: model.MoveHistory,
                 scores: model.ClusterScores | None, ceilings: Mapping[str, float]) -> None:
        self._placement = placement
        self._cluster = placement.cluster
        self.scores = scores.policies if scores is not None else {}
        #: There are scores and all policies' can be trusted; otherwise claims decide.
        self.has_trusted_scores = bool(self.scores) and not any(
            p.untrusted for p in self.scores.values())
        self._ceilings = dict(ceilings)
        #: Upper bound of each host's fill, by policy.
        self._fill = {name: dict(p.fill) for name, p in self.scores.items()}
        #: Width of the uncertainty below that bound.
        self._doubt: dict[str, dict[str, float]] = {
            name: defaultdict(float) for name in self.scores}
        #: Bounds of the load that the scores do not show yet.
        self._unseen: dict[str, dict[str, metric_lag.UnseenChange]] = {
            name: {} for name in self.scores}
        self._lay_departures()
        if scores is not None:
            self._lay_completed(history, scores.taken_at, options.settle_seconds)

    # Queries of the rules.

    def judge_missing_scores(self, move: model.Move) -> model.Rejection | None:
        """Return why metrics do not support an imbalance move."""
        for name, policy in self.scores.items():
            if policy.untrusted:
                return model.Rejection('policy-untrusted', f'{name}: {policy.untrusted}')
            for host in (move.from_host, move.to_host):
                if not policy.has_imbalance_values(host):
                    return _lacks_score(host, name)
            if move.instance_uuid not in policy.usages:
                return model.Rejection(
                    'no-profile', f'instance {move.instance_uuid} has no usage in {name}')
        return None

    def judge_frozen_host(self, host: str) -> model.Rejection | None:
        """Return why the host receives nothing: it lacks a score that the others have."""
        if not self.has_trusted_scores:
            return None
        return next((_lacks_score(host, name) for name, policy in self.scores.items()
                     if not policy.has_imbalance_values(host)), None)

    def map_projected_fills(self, move: model.Move) -> Mapping[str, tuple[float, float]]:
        """Return (projected fill, ceiling) of the destination by policy."""
        out = {}
        for name, ceiling in self._ceilings.items():
            policy = self.scores.get(name)
            fill = self._fill.get(name, {}).get(move.to_host)
            if policy is None or policy.untrusted or fill is None:
                continue
            out[name] = (fill + self.compute_load_ratio(name, move.instance_uuid, move.to_host),
                         ceiling)
        return out

    def map_known_fills(self, host: str) -> Mapping[str, float]:
        """Return the host's known fills by policy."""
        return {name: fill[host] for name, fill in self._fill.items() if host in fill}

    # Queries of a planner.

    def compute_fullness(self, host: str) -> float:
        """Return the highest fill of a policy; 0 where nothing is known.

        Without trusted scores, return the highest allocation ratio of a resource class.
        """
        if self.has_trusted_scores:
            return max((fill[host] for fill in self._fill.values() if host in fill),
                       default=0.0)
        known = self._cluster.hosts.get(host)
        return 0.0 if known is None else max(
            (self._placement.occupancy.sum_allocated(known, name) / capacity
             for name, capacity in known.sum_capacities().items() if capacity > 0), default=0.0)

    def map_filled_hosts(self, policy: str) -> Mapping[str, float]:
        """Return the known fill of each host under a policy. The caller must not change it."""
        return self._fill[policy]

    def compute_unseen_load(self, policy: str, host: str) -> metric_lag.UnseenChange:
        """Return the bounds of the load that the host's score does not show yet.

        The load comes from moves in flight or just completed.
        """
        return self._unseen[policy].get(host, _NOTHING)

    def compute_level(self, policy: str, host: str) -> float | None:
        """Return the host's score plus the load that it does not show yet.

        Where only bounds are known, return the value nearest to the mean. None: the host is frozen
        or outside the scope.
        """
        return self._levels_by_policy[policy].get(host)

    def map_levels(self, policy: str) -> Mapping[str, float]:
        """Return :meth:`compute_level` of every host that has one.

        The caller must not change it.
        """
        return self._levels_by_policy[policy]

    def compute_fill_doubt(self, policy: str, host: str) -> float:
        """Return by how much the host's fill may be too high.

        The samples show an unknown part of the moves that have just completed.
        """
        return self._doubt[policy].get(host, 0.0)

    def sum_leaving_load(self, policy: str, host: str) -> float:
        """Return the load that moves in flight will take from the host's score.

        The score still contains this load, so no rule counts on it. A strategy that levels loads
        must count it, or it overshoots.
        """
        return sum(self.compute_load_ratio(policy, uuid, host)
                   for uuid, to_host in self._placement.flying.items()
                   if to_host is not None and self._placement.find_host_of(uuid) == host)

    def compute_load_ratio(self, policy: str, uuid: str, host: str) -> float:
        """Return the load that the instance adds to the host's score; 0 when unknown."""
        scores = self.scores[policy]
        capacity = scores.capacity.get(host)
        return scores.usages.get(uuid, 0.0) / capacity if capacity else 0.0

    # Changes by moves.

    def add_instance(self, uuid: str, host: str, factor: float) -> None:
        """Add the instance's load, times the factor, to the host's fills."""
        for name, fill in self._fill.items():
            if host in fill:
                fill[host] += factor * self.compute_load_ratio(name, uuid, host)

    def _lay_departures(self) -> None:
        """Add the moves that are under way already.

        An instance counts at the alternate hosts of our task, except in their levels.
        """
        for uuid, to_host, _, alternates in placement_overlay.list_departures(self._cluster):
            if to_host is None:
                continue
            self.add_instance(uuid, to_host, 1)
            for name in self.scores:
                added = self.compute_load_ratio(name, uuid, to_host)
                self._add_unseen_load(name, to_host, added, added)
            for host in alternates:
                self.add_instance(uuid, host, 1)

    def _lay_completed(self, history: model.MoveHistory, sampled_at: float,
                       settle: float) -> None:
        """Add the completed moves that the samples do not show yet, or show only in part.

        Only moves count that led an instance, one after the other, to its present host.
        """
        place: dict[str, str | None] = {}
        chains: dict[str, list[tuple[model.Move, float]]] = defaultdict(list)
        for move, completed_at in reversed(history.completed):
            uuid = move.instance_uuid
            if place.get(uuid, self._placement.find_host_of(uuid)) != move.to_host:
                place[uuid] = None  # another actor has moved the instance since
                continue
            place[uuid] = move.from_host
            chains[uuid].append((move, completed_at))
        for uuid, moves in chains.items():
            for name, policy in self.scores.items():
                for share in metric_lag.compute_host_shares(moves, policy, policy.fill_look,
                                                            sampled_at, settle):
                    if share.host in policy.fill:
                        usage = self.compute_load_ratio(name, uuid, share.host)
                        self._fill[name][share.host] += usage * share.most
                        self._doubt[name][share.host] += usage * (share.most - share.least)
                for share in metric_lag.compute_host_shares(moves, policy, policy.score_look,
                                                            sampled_at, settle):
                    usage = self.compute_load_ratio(name, uuid, share.host)
                    self._add_unseen_load(name, share.host, usage * share.least, usage * share.most)

    @functools.cached_property
    def _levels_by_policy(self) -> dict[str, dict[str, float]]:
        """Levels by policy and host, computed at the first access.

        Moves laid over the view later do not change them.
        """
        return {name: self._compute_levels(name) for name in self.scores}

    def _compute_levels(self, name: str) -> dict[str, float]:
        """Compute the hosts' levels under a policy.

        An uncertain load makes a host neither hot nor cold.
        """
        policy = self.scores[name]
        known = {h: policy.hosts[h] for h in sorted(self._cluster.scope_hosts)
                 if policy.has_imbalance_values(h)}
        if not self._unseen[name]:
            return known
        bounds = {}
        for host, score in known.items():
            least, most = self.compute_unseen_load(name, host)
            bounds[host] = score + least, score + most
        middle = sum(low + high for low, high in bounds.values()) / max(1, 2 * len(bounds))
        return {h: metric_lag.clamp_to_bounds(middle, low, high)
                for h, (low, high) in bounds.items()}

    def _add_unseen_load(self, policy: str, host: str, least: float, most: float) -> None:
        known = self.compute_unseen_load(policy, host)
        self._unseen[policy][host] = metric_lag.UnseenChange(known.least + least, known.most + most)


_NOTHING = metric_lag.UnseenChange(0.0, 0.0)


def _lacks_score(host: str, policy: str) -> model.Rejection:
    return model.Rejection('host-frozen', f'host {host} has no score of {policy}')
