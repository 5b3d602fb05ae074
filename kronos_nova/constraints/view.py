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

"""The questions that a rule may ask: rules read a :class:`CloudView`.

:mod:`kronos_nova.constraints.cluster_view` answers them.
"""

from collections.abc import Collection
from collections.abc import Mapping
from typing import Protocol

from kronos_nova import model
from kronos_nova.constraints import aggregate_metadata
from kronos_nova.constraints import failure_domains
from kronos_nova.constraints import occupancy
from kronos_nova.model import spread_requests


class CloudView(Protocol):
    """A state of the cloud in which rules judge moves. Read-only."""

    options: model.PlanningOptions
    #: Allocations by provider, for the rule ``claims``.
    occupancy: occupancy.ProviderOccupancy

    def find_instance(self, uuid: str) -> model.Instance | None: ...

    def find_host(self, name: str) -> model.Host | None: ...

    def find_service(self, host: str) -> model.Service | None: ...

    def is_in_scope(self, host: str) -> bool: ...

    def find_other_zone(self, host: str) -> str | None: ...

    @property
    def aggregates(self) -> aggregate_metadata.HostAggregates:
        """Metadata of the hosts' aggregates."""

    @property
    def domains(self) -> failure_domains.FailureDomains:
        """Failure domains of the hosts."""

    def list_sharing_providers(self, host: str) -> Collection[model.Provider]:
        """Return the providers that share with the host's tree."""

    def find_host_of(self, uuid: str) -> str | None:
        """Return the instance's host; a departed instance is still on its source."""

    def list_possible_hosts(self, uuid: str) -> Collection[str]:
        """Return every host where the instance is, was before this plan, or may come to be.

        A move under way may end on several hosts. Empty: the instance is not known.
        """

    def is_in_flight(self, uuid: str) -> bool: ...

    def has_unknown_destination(self, uuid: str) -> bool:
        """Return True when the instance is in flight to an unknown destination."""

    def list_hinted_instances(self, uuid: str) -> Collection[str]:
        """Return the instances that its scheduler hints name, or whose hints name it.

        Only hints of enabled filters count.
        """

    def list_groups_of(self, uuid: str) -> Collection[model.ServerGroup]: ...

    def list_members_on(self, group: model.ServerGroup, host: str) -> Collection[str]:
        """Return the UUIDs of members on the host, coming to it or leaving it."""

    def list_spread_sets_of(self, uuid: str) -> Collection[spread_requests.SpreadSet]: ...

    def count_possible_members(self, spread_set: spread_requests.SpreadSet,
                               names: frozenset[str], but: str) -> int:
        """Return how many members of the set, but one, may be or come to be in these domains.

        Without names: on hosts that have no domain of the set's kind.
        """

    def count_certain_members(self, spread_set: spread_requests.SpreadSet,
                              names: frozenset[str], but: str) -> int:
        """Return how many members of the set, but one, are and stay in these domains."""

    def sum_allocated(self, host: str, resource_class: str) -> float:
        """Return the amount allocated on all providers of the host's tree.

        Moves in flight count at both ends.
        """

    def has_known_claims(self) -> bool:
        """Return False only for snapshots without Placement data."""

    @property
    def taken_at(self) -> float:
        """When the state was read (epoch seconds): rules that follow the clock count from it."""

    def list_move_times(self, uuid: str) -> Collection[float]:
        """Return when moves of the instance completed; counted where a contract limits them."""

    def find_notice(self, uuid: str) -> model.MoveNotice | None:
        """Return the newest notice of a move of the instance, which may have lapsed."""

    def is_returning(self, uuid: str) -> bool:
        """Return True for the way back of a swap, to a state that contracts accepted before."""

    def judge_history(self, uuid: str, *,
                      is_late_drain: bool = False) -> model.Rejection | None:
        """Return the reason in the history that forbids moving the instance.

        Reasons are cooling, quarantine, and answers of Placement.

        :param is_late_drain: the quarantine is that of a late drain, and does not count.
        """

    def find_late_drain(self, uuid: str) -> str | None:
        """Return the host that the instance did not leave live in time; None: it was not late."""

    def find_quiet_wait(self, uuid: str) -> model.QuietWait | None:
        """Return the wait of a drain for a quieter hour of the instance; None: it waits for none.
        """

    def find_quarantine_end(self, uuid: str) -> float | None:
        """Return when the instance's quarantine ends (epoch seconds); None: it has none."""

    def compute_fresh_seconds(self, uuid: str) -> float:
        """Return the seconds for which a booted instance stays on its host; 0: it may move."""

    def is_refused_by_placement(self, uuid: str, host: str) -> bool:
        """Return True when Placement lately had no allocation candidate, or no answer.

        Both count for this instance on this host.
        """

    def judge_closed_host(self, host: str) -> model.Rejection | None:
        """Return why the host may not receive although its service is available."""

    def has_local_disks(self, host: str) -> bool:
        """Return True when Nova lately said that instances' disks are the host's own."""

    def are_hosts_apart(self, host: str, other: str) -> bool:
        """Return True when Nova lately did not find one host from the other."""

    def judge_missing_scores(self, move: model.Move) -> model.Rejection | None:
        """Return why metrics do not support an imbalance move."""

    def judge_frozen_host(self, host: str) -> model.Rejection | None:
        """Return why the host receives nothing: it lacks a score that the others have."""

    def map_projected_fills(self, move: model.Move) -> Mapping[str, tuple[float, float]]:
        """Return (projected fill, ceiling) of the destination by policy."""

    def map_known_fills(self, host: str) -> Mapping[str, float]:
        """Return the host's known fills by policy."""
