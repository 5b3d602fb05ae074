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

"""What a rule may ask: rules read a :class:`View`.

Who answers is in :mod:`kronos_nova.constraints.cluster_view`.
"""

from collections.abc import Collection
from collections.abc import Mapping
from typing import Protocol

from kronos_nova import model
from kronos_nova.constraints import aggregate_metadata
from kronos_nova.constraints import occupancy


class View(Protocol):
    """A state of the cloud that rules are judged on. Read-only."""

    options: model.Options
    #: What is allocated on which provider, for the rule ``claims``.
    occupancy: occupancy.Occupancy

    def instance(self, uuid: str) -> model.Instance | None: ...

    def host(self, name: str) -> model.Host | None: ...

    def service(self, host: str) -> model.Service | None: ...

    def in_scope(self, host: str) -> bool: ...

    def other_zone(self, host: str) -> str | None: ...

    @property
    def aggregates(self) -> aggregate_metadata.Aggregates:
        """What the aggregates of hosts say."""

    def sharing(self, host: str) -> Collection[model.Provider]:
        """The providers that share with the host's tree."""

    def host_of(self, uuid: str) -> str | None:
        """Where the instance is; a departed one is still on its source."""

    def places(self, uuid: str) -> Collection[str]:
        """Every host where the instance is, was before this plan, or may come
        to be by a move under way. Empty: it is not known."""

    def in_flight(self, uuid: str) -> bool: ...

    def unscheduled(self, uuid: str) -> bool:
        """It is in flight, and nobody knows where to."""

    def tied(self, uuid: str) -> Collection[str]:
        """Whom its scheduler hints name, and whose hints name it, where their
        filters are enabled."""

    def groups_of(self, uuid: str) -> Collection[model.ServerGroup]: ...

    def members_on(self, group: model.ServerGroup, host: str) -> Collection[str]:
        """UUIDs of members on the host, coming to it or leaving it."""

    def used(self, host: str, resource_class: str) -> float:
        """Allocated on the providers of the host's tree together, moves in
        flight at both ends."""

    def claims_known(self) -> bool:
        """False only for snapshots without Placement data."""

    def held(self, uuid: str) -> model.Rejection | None:
        """Why history forbids moving the instance (cooling, quarantine, what
        Placement said)."""

    def fresh(self, uuid: str) -> float:
        """Seconds during which it is left where it was booted; 0: it is not."""

    def refused(self, uuid: str, host: str) -> bool:
        """Placement lately had no allocation candidate for it on the host, or
        did not answer."""

    def closed(self, host: str) -> model.Rejection | None:
        """Why the host may not receive although its service is available."""

    def keeps_disks(self, host: str) -> bool:
        """Nova said lately that the disks of its instances are its own."""

    def apart(self, one: str, other: str) -> bool:
        """Nova lately did not find the one host from the other."""

    def unscored(self, move: model.Move) -> model.Rejection | None:
        """Why metrics do not carry an imbalance move."""

    def frozen(self, host: str) -> model.Rejection | None:
        """Why the host, whose load alone is not known, receives nothing."""

    def ceilings(self, move: model.Move) -> Mapping[str, tuple[float, float]]:
        """(projected fill, ceiling) of the destination by policy."""

    def fills(self, host: str) -> Mapping[str, float]:
        """The host's fill by policy, where it is known."""
