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

"""Allocations by provider, with moves laid over them. Mutable.

Placement's usages count as they are. When an instance leaves its host, the providers that Placement
names lose its allocation. Nova chooses the providers of an arriving instance only when it schedules
the move. So all arrivals at a tree are placed together here: the result does not depend on their
order, and any part of the arrivals has room where all have room.

Sharing providers connect hosts that have nothing else in common, so no order of moves can rely on
the room that a move leaves there: an instance's allocation on a sharing provider counts until the
next plan, at any destination.
"""

from collections import Counter
from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from kronos_nova import model
from kronos_nova.constraints import provider_assignment

DISK = 'DISK_GB'

#: Number of arrivals by (host, instance).
Coming = Counter[tuple[str, str]]


class ProviderOccupancy:
    """The allocations on a cluster's providers, and the moves that change them.

    The key of a space is the host's name for its root, else the provider's UUID. A district holds
    the providers that are assigned together: the tree of a host, or the sharing providers that
    hosts connect.
    """

    def __init__(self, cluster: model.Cluster, options: model.PlanningOptions) -> None:
        self._cluster = cluster
        #: Classes that no rule judges.
        self.free = frozenset({DISK} if options.enforce_placement_disk is False else ())
        self._extra: dict[tuple[str, str], int] = defaultdict(int)
        #: Arrivals by district; only where they have a choice of providers.
        self._coming: dict[str, Coming] = defaultdict(Counter)
        self._placed: dict[str, Mapping[tuple[str, str], int] | None] = {}
        self._pieces: dict[str, tuple[provider_assignment.RequestPiece, ...]] = {}
        self._spaces: dict[str, tuple[provider_assignment.ProviderSpace, ...]] = {}
        self._roots: frozenset[str] | None = None
        #: Sharing providers with a class that moves may use.
        self._usable = {u for u, p in cluster.sharing.items()
                        if not provider_assignment.IN_TREE.issuperset(p.inventories)}
        self._pools = _build_districts(cluster, self._usable) if self._usable else {}

    # Queries.

    def has_root_alone(self, host: model.Host) -> bool:
        """Return True when a move to the host can use nothing but its root."""
        return not host.nested and host.name not in self._pools

    def sum_allocated(self, host: model.Host, resource_class: str) -> float:
        """Return the amount allocated on all providers of the host's tree."""
        if host.provider is None:
            return 0
        if self.has_root_alone(host):
            return (host.provider.used.get(resource_class, 0)
                    + self._extra.get((host.name, resource_class), 0))
        return sum(self.sum_allocated_of(host, space, resource_class)
                   for space in self.list_tree_providers(host))

    def sum_capacity(self, host: model.Host, resource_class: str) -> float:
        """Return the capacity of the whole tree.

        A provider's excess over its capacity takes no room from the others.
        """
        return sum(max(space.provider.inventories[resource_class].capacity,
                       self.sum_allocated_of(host, space, resource_class))
                   for space in self.list_tree_providers(host)
                   if resource_class in space.provider.inventories)

    def sum_allocated_of(self, host: model.Host, space: provider_assignment.ProviderSpace,
                         resource_class: str) -> float:
        """Return the amount allocated on a provider that serves the host, arrivals included.

        Where the arrivals do not all have room, each counts where it still finds room, else in a
        space without room.
        """
        district = self._pools[host.name] if space.key in self._usable else host.name
        coming = self._sum_arrivals(district)
        if coming is None:
            coming = self._place_arrivals_singly(district)
        return self._sum_certain_use(space,
                                     resource_class) + coming.get((space.key, resource_class), 0)

    def list_tree_providers(self, host: model.Host) -> tuple[provider_assignment.ProviderSpace,
                                                             ...]:
        """Return the providers of the host's tree, the root first."""
        providers = self._spaces.get(host.name)
        if providers is None and host.provider is not None:
            providers = self._spaces[host.name] = (
                provider_assignment.ProviderSpace(host.name, host.provider),
                *(provider_assignment.ProviderSpace(p.uuid, p) for p in host.nested))
        return providers or ()

    def list_sharing_providers(self, host: model.Host, uuid: str,
                               name: str) -> tuple[provider_assignment.ProviderSpace, ...]:
        """Return the sharing providers that may serve a class.

        Those that the instance is on come first; then by UUID.
        """
        if host.name not in self._pools:
            return ()
        own = self._cluster.instances[uuid].allocations
        provider_uuids = [u for u in self._usable.intersection(host.sharing)
                          if name in self._cluster.sharing[u].inventories]
        return tuple(provider_assignment.ProviderSpace(u, self._cluster.sharing[u])
                     for u in sorted(provider_uuids, key=lambda u: (u not in own, u)))

    def build_demands(self, uuid: str, host: model.Host) -> list[provider_assignment.PieceDemand]:
        """Return the instance's demands on a host, with the providers that could serve each.

        Where the host has sharing providers with a class, these serve the amount that the instance
        has on sharing providers. The tree serves everything else.
        """
        return [provider_assignment.PieceDemand(piece,
                                                (piece.shared and self.list_sharing_providers(
                                                    host, uuid, piece.resources[0][0]))
                                                or self.list_tree_providers(host))
            for piece in self._list_pieces(uuid)]

    def has_room_for(self, uuid: str, host: model.Host) -> bool:
        """Return True when the host has room for the instance beside all arrivals."""
        by_district: dict[str, list[provider_assignment.PieceDemand]] = {}
        for demand in self.build_demands(uuid, host):
            by_district.setdefault(self._find_district(host, demand), []).append(demand)
        return all(self._has_room_for(district, demands) for district,
                   demands in by_district.items())

    def needs_sharing_provider(self, uuid: str) -> bool:
        """Return True when a sharing provider may have to serve a part of the instance."""
        return bool(self._pools) and any(piece.shared for piece in self._list_pieces(uuid))

    # Changes.

    def remove_home_allocation(self, uuid: str, sign: int = 1) -> None:
        """Take the instance from the providers that Placement names; -1: put it back."""
        instance = self._cluster.instances[uuid]
        home = self._cluster.hosts.get(instance.host)
        root = home.provider.uuid if home is not None and home.provider is not None else None
        for provider, resources in instance.allocations.items():
            if provider not in self._usable:
                key = instance.host if provider == root else provider
                for name, amount in resources.items():
                    self._extra[key, name] -= sign * amount
        if not instance.allocations:
            for name, amount in instance.claims.items():
                self._extra[instance.host, name] -= sign * amount
        self._placed.pop(instance.host, None)

    def add_arrival(self, uuid: str, name: str, sign: int = 1) -> None:
        """Add one arrival of the instance at a host; -1: remove one."""
        host = self._cluster.hosts.get(name)
        if host is None or host.provider is None or self.has_root_alone(host):
            for resource_class, amount in self._cluster.instances[uuid].claims.items():
                self._extra[name, resource_class] += sign * amount
            return
        for district in {self._find_district(host, d) for d in self.build_demands(uuid, host)}:
            coming = self._coming[district]
            coming[name, uuid] += sign
            if not coming[name, uuid]:
                del coming[name, uuid]
            self._placed.pop(district, None)

    # Internals.

    def _sum_certain_use(self, space: provider_assignment.ProviderSpace,
                         resource_class: str) -> float:
        return (space.provider.used.get(resource_class, 0)
                + self._extra.get((space.key, resource_class), 0))

    def _has_room_for(self, district: str,
                      demands: Sequence[provider_assignment.PieceDemand]) -> bool:
        coming = self._sum_arrivals(district)
        if coming is None:
            return False  # an earlier arrival lacks room: a further one waits

        def sum_used_with_arrivals(space: provider_assignment.ProviderSpace, name: str) -> float:
            return self._sum_certain_use(space, name) + coming.get((space.key, name), 0)

        if provider_assignment.find_spaces(demands, sum_used_with_arrivals, self.free) is not None:
            return True
        return bool(coming) and provider_assignment.find_spaces(
            [*self._list_demands_in(district), *demands], self._sum_certain_use,
            self.free) is not None

    def _sum_arrivals(self, district: str) -> Mapping[tuple[str, str], int] | None:
        """Return the amounts that a district's arrivals take, by (key, class).

        None: they do not all have room.
        """
        if not self._coming.get(district):
            return {}
        if district not in self._placed:
            demands = list(self._list_demands_in(district))
            chosen = provider_assignment.find_spaces(demands, self._sum_certain_use, self.free)
            self._placed[district] = (
                None if chosen is None else provider_assignment.sum_demands(chosen, demands))
        return self._placed[district]

    def _place_arrivals_singly(self, district: str) -> Counter[tuple[str, str]]:
        """Place arrivals singly: where each still finds room, else in a space without room."""
        placed_amounts: Counter[tuple[str, str]] = Counter()

        def sum_used_so_far(space: provider_assignment.ProviderSpace, name: str) -> float:
            return self._sum_certain_use(space, name) + placed_amounts[space.key, name]

        for demand in self._list_demands_in(district):
            demands = [demand]
            placed_amounts.update(provider_assignment.sum_demands(
                provider_assignment.find_spaces(demands, sum_used_so_far, self.free)
                or provider_assignment.choose_fallback_spaces(demands), demands))
        return placed_amounts

    def _list_demands_in(self, district: str) -> Iterator[provider_assignment.PieceDemand]:
        for (name, uuid), times in sorted(self._coming[district].items()):
            host = self._cluster.hosts[name]
            own = [d for d in self.build_demands(uuid, host) if self._find_district(host, d)
                   == district]
            for _ in range(times):
                yield from own

    def _find_district(self, host: model.Host, demand: provider_assignment.PieceDemand) -> str:
        pooled = bool(demand.spaces) and demand.spaces[0].key in self._usable
        return self._pools[host.name] if pooled else host.name

    def _list_pieces(self, uuid: str) -> tuple[provider_assignment.RequestPiece, ...]:
        pieces = self._pieces.get(uuid)
        if pieces is None:
            instance = self._cluster.instances[uuid]
            home = self._cluster.hosts.get(instance.host)
            own = home.provider.uuid if home is not None and home.provider is not None else ''
            pieces = self._pieces[uuid] = provider_assignment.split_allocation(
                instance, lambda p: p == own or self._is_root(p), self._cluster.sharing)
        return pieces

    def _is_root(self, provider: str) -> bool:
        if self._roots is None:
            self._roots = frozenset(h.provider.uuid for h in self._cluster.hosts.values()
                                    if h.provider is not None)
        return provider in self._roots


def _build_districts(cluster: model.Cluster, usable: set[str]) -> dict[str, str]:
    """Return, by host, the sharing provider that stands for its district.

    It is the same for all hosts that these providers connect.
    """
    leader = {uuid: uuid for uuid in usable}

    def find_leader(uuid: str) -> str:
        while leader[uuid] != uuid:
            uuid = leader[uuid]
        return uuid

    for host in cluster.hosts.values():
        near = sorted({find_leader(uuid) for uuid in usable.intersection(host.sharing)})
        for uuid in near[1:]:
            leader[uuid] = near[0]
    return {host.name: find_leader(next(iter(usable.intersection(host.sharing))))
            for host in cluster.hosts.values() if not usable.isdisjoint(host.sharing)}
