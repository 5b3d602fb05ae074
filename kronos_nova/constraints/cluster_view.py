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

from collections.abc import Collection
from collections.abc import Mapping
import functools
import math

from kronos_nova import model
from kronos_nova.constraints import aggregate_metadata
from kronos_nova.constraints import failure_domains
from kronos_nova.constraints import hints
from kronos_nova.constraints import history_holds
from kronos_nova.constraints import load_view
from kronos_nova.constraints import placement_overlay
from kronos_nova.model import spread_requests


class ClusterView:
    """A Cluster with moves laid over it. Mutable; one user at a time.

    A move either lands at once (``land_move``, ``undo_landing``: planning is sequential) or departs
    (``begin_departure``, ``revert_departure``: while under way it counts at both ends).

    :param scores: the view adds completed moves that their samples do not show yet.
    :param ceilings: highest fill of a destination by policy name.
    """

    def __init__(self, cluster: model.Cluster, options: model.PlanningOptions,
                 history: model.MoveHistory | None = None,
                 scores: model.ClusterScores | None = None,
                 ceilings: Mapping[str, float] | None = None,
                 draining: Collection[str] = (), returning: Collection[str] = ()) -> None:
        self.cluster = cluster
        self.options = options
        self.history = history or model.MoveHistory()
        self.draining = set(draining)
        self.returning = frozenset(returning)
        self.placement = placement_overlay.PlacementOverlay(cluster, options)
        self.load = load_view.LoadView(self.placement, options, self.history, scores,
                                       ceilings or {})
        self.occupancy = self.placement.occupancy
        self._tied: dict[str, set[str]] | None = None
        # Rules ask these very often: bound here, each costs one call.
        self.find_host_of = self.placement.find_host_of
        self.list_possible_hosts = self.placement.list_possible_hosts
        self.is_in_flight = self.placement.is_in_flight
        self.has_unknown_destination = self.placement.has_unknown_destination
        self.list_groups_of = self.placement.list_groups_of
        self.list_members_on = self.placement.list_members_on
        self.list_spread_sets_of = self.placement.list_spread_sets_of
        self.judge_missing_scores = self.load.judge_missing_scores
        self.judge_frozen_host = self.load.judge_frozen_host
        self.map_projected_fills = self.load.map_projected_fills
        self.map_known_fills = self.load.map_known_fills

    # Queries of the rules.

    def find_instance(self, uuid: str) -> model.Instance | None:
        return self.cluster.instances.get(uuid)

    def find_host(self, name: str) -> model.Host | None:
        return self.cluster.hosts.get(name)

    def find_service(self, host: str) -> model.Service | None:
        return self.cluster.services.get(host)

    def is_in_scope(self, host: str) -> bool:
        return host in self.cluster.scope_hosts

    def find_other_zone(self, host: str) -> str | None:
        """Return the zone that keeps the host out of every scope; None: no zone does."""
        if host not in self.cluster.hosts or self.cluster.has_planned(host):
            return None
        return self.cluster.find_zone_of(host)

    @functools.cached_property
    def aggregates(self) -> aggregate_metadata.HostAggregates:
        return aggregate_metadata.HostAggregates(
            self.cluster.aggregates, self.cluster.aggregate_metadata)

    @property
    def domains(self) -> failure_domains.FailureDomains:
        return self.placement.domains

    def list_sharing_providers(self, host: str) -> Collection[model.Provider]:
        return [self.cluster.sharing[uuid] for uuid in sorted(self.cluster.hosts[host].sharing)
                if uuid in self.cluster.sharing]

    def list_hinted_instances(self, uuid: str) -> Collection[str]:
        if self._tied is None:
            self._tied = hints.build_hint_ties(self.cluster.instances,
                                               self.options.nova_enabled_filters)
        return self._tied.get(uuid, ())

    def count_possible_members(self, spread_set: spread_requests.SpreadSet,
                               names: frozenset[str], but: str) -> int:
        return self.placement.tally_set(spread_set).count_possible(names, but)

    def count_certain_members(self, spread_set: spread_requests.SpreadSet,
                              names: frozenset[str], but: str) -> int:
        return self.placement.tally_set(spread_set).count_certain(names, but)

    def sum_allocated(self, host: str, resource_class: str) -> float:
        return self.occupancy.sum_allocated(self.cluster.hosts[host], resource_class)

    def has_known_claims(self) -> bool:
        return self.cluster.placement_known

    @property
    def taken_at(self) -> float:
        return self.cluster.taken_at

    def list_move_times(self, uuid: str) -> Collection[float]:
        return self.history.move_times.get(uuid, ())

    def find_notice(self, uuid: str) -> model.MoveNotice | None:
        return self.history.notices.get(uuid)

    def is_returning(self, uuid: str) -> bool:
        return uuid in self.returning

    def judge_history(self, uuid: str, *,
                      is_late_drain: bool = False) -> model.Rejection | None:
        return next((reason for reason in history_holds.list_hold_reasons(self.history, uuid)
                     if not is_late_drain or reason.rule != history_holds.QUARANTINED), None)

    def find_late_drain(self, uuid: str) -> str | None:
        return self.history.late_drains.get(uuid)

    def find_quiet_wait(self, uuid: str) -> model.QuietWait | None:
        return self.history.quiet_waits.get(uuid)

    def find_quarantine_end(self, uuid: str) -> float | None:
        seconds = self.history.quarantined.get(uuid)
        if seconds is None:
            return None
        return math.inf if seconds < 0 else self.taken_at + seconds

    def compute_fresh_seconds(self, uuid: str) -> float:
        return self.history.fresh.get(uuid, 0.0)

    def is_refused_by_placement(self, uuid: str, host: str) -> bool:
        return host in self.history.refused.get(uuid, ())

    def judge_closed_host(self, host: str) -> model.Rejection | None:
        if host in self.draining:
            return model.Rejection('host-draining', f'host {host} is being emptied')
        if host in self.history.quarantined_hosts:
            return model.Rejection('host-quarantined', f'host {host} refused moves lately')
        if host in self.history.campaign_hosts:
            return model.Rejection('host-to-come', f'host {host} is still to be emptied by a '
                                                   'campaign')
        return None

    def has_local_disks(self, host: str) -> bool:
        return host in self.history.local_disk_hosts

    def are_hosts_apart(self, host: str, other: str) -> bool:
        return (min(host, other), max(host, other)) in self.history.other_cells

    # Changes by a planner or checker.

    def land_move(self, move: model.Move) -> None:
        """Move the instance from its source to its destination."""
        self._move_instance(move.instance_uuid, move.from_host, move.to_host)

    def undo_landing(self, move: model.Move) -> None:
        """Revert the last ``land_move`` of this move."""
        self._move_instance(move.instance_uuid, move.to_host, move.from_host)

    def begin_departure(self, move: model.Move, host: str | None = None) -> None:
        """Count the instance at both ends from now on.

        One move may end at any of several hosts: depart to each, and the instance counts at each.

        :param host: in place of the move's destination.
        """
        host = host or move.to_host
        self.placement.add_departure(move.instance_uuid, host)
        self.load.add_instance(move.instance_uuid, host, 1)

    def revert_departure(self, move: model.Move, host: str | None = None) -> None:
        """Revert ``begin_departure``, once for each host departed to.

        Afterwards the instance is at its source only.
        """
        host = host or move.to_host
        self.placement.remove_departure(move.instance_uuid, host)
        self.load.add_instance(move.instance_uuid, host, -1)

    def _move_instance(self, uuid: str, from_host: str, to_host: str) -> None:
        self.placement.move_instance(uuid, from_host, to_host)
        self.load.add_instance(uuid, from_host, -1)
        self.load.add_instance(uuid, to_host, 1)
