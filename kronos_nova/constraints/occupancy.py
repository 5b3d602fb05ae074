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

"""What is allocated on which provider, with moves laid over it. Mutable.

Placement's usages count as they are. An instance that has left its host is
taken from the providers that Placement says it was on. Which providers one
gets that comes to a tree Nova decides when it is asked: here all that come to
a tree are placed together, so that what is found does not depend on the order
in which they came, and any part of them has room where all of them have.
"""

from collections import Counter
from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set

from kronos_nova import model
from kronos_nova.constraints import matching

DISK = 'DISK_GB'


class Occupancy:
    """Keys of spaces: a host's name for its root, else the provider's UUID."""

    def __init__(self, cluster: model.Cluster, options: model.Options) -> None:
        self._cluster = cluster
        #: Classes that are not judged.
        self.free = frozenset({DISK} if options.enforce_placement_disk is False else ())
        self._extra: dict[tuple[str, str], int] = defaultdict(int)
        #: By district, who comes to which host; only where that leaves a choice.
        self._coming: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._placed: dict[str, Mapping[tuple[str, str], int]] = {}
        self._pieces: dict[str, tuple[matching.Piece, ...]] = {}
        self._spaces: dict[str, tuple[matching.Space, ...]] = {}
        self._shared: dict[str, tuple[matching.Space, ...]] = {}
        self._roots: frozenset[str] | None = None
        #: Sharing providers of which something may be used by moves.
        self._usable = {u for u, p in cluster.sharing.items()
                        if not matching.IN_TREE.issuperset(p.inventories)}
        self._districts = _districts(cluster, self._usable) if self._usable else {}

    # What is.

    def flat(self, host: model.Host) -> bool:
        """Its root is all that a move to it can use."""
        return not host.nested and (not self._usable or self._usable.isdisjoint(host.sharing))

    def used(self, host: model.Host, resource_class: str) -> float:
        """Allocated on the providers of the host's tree together."""
        if host.provider is None:
            return 0
        if self.flat(host):
            return (host.provider.used.get(resource_class, 0)
                    + self._extra.get((host.name, resource_class), 0))
        used = self.used_around(host)
        return sum(used(space, resource_class) for space in self._tree(host))

    def limit(self, host: model.Host, resource_class: str) -> float:
        """The capacity of the tree together. What one provider has too much
        takes no room from the others."""
        used = self.used_around(host)
        return sum(max(space.provider.inventories[resource_class].capacity,
                       used(space, resource_class))
                   for space in self._tree(host) if resource_class in space.provider.inventories)

    def used_around(self, host: model.Host) -> matching.Used:
        """Allocated on a provider that serves the host, those included that
        come to it."""
        coming = self._coming_to(self._district(host))
        if not coming:
            return self._certain
        return lambda space, name: self._certain(space, name) + coming.get((space.key, name), 0)

    def pieces(self, uuid: str) -> tuple[matching.Piece, ...]:
        found = self._pieces.get(uuid)
        if found is None:
            instance = self._cluster.instances[uuid]
            home = self._cluster.hosts.get(instance.host)
            own = home.provider.uuid if home is not None and home.provider is not None else ''
            found = self._pieces[uuid] = matching.pieces(
                instance, lambda p: p == own or self._is_root(p), self._cluster.sharing)
        return found

    def demands(self, uuid: str, host: model.Host) -> list[matching.Demand]:
        """What the instance needs of a host, and which providers could serve
        it: the sharing ones it has, the tree's, other sharing ones by UUID."""
        tree = self._tree(host)
        found = []
        for piece in self.pieces(uuid):
            spaces: Sequence[matching.Space] = tree
            if piece.shared:
                own = self._cluster.instances[uuid].allocations
                near = [s for s in self._sharing_of(host) if s.key in own]
                spaces = (*near, *tree, *(s for s in self._sharing_of(host) if s.key not in own))
            found.append(matching.Demand(piece, spaces))
        return found

    def assign(self, uuid: str, host: model.Host) -> list[matching.Space] | None:
        """A provider for each piece if the instance came to the host, beside
        all that come already. None: they do not all have room."""
        demands = self.demands(uuid, host)
        found = matching.search(demands, self.used_around(host), self.free)
        coming = self._coming.get(self._district(host))
        if found is not None or not coming:
            return found
        joint = matching.search([*self._all_of(coming), *demands], self._certain, self.free)
        return joint[-len(demands):] if joint is not None else None

    # What changes.

    def leave_home(self, uuid: str, sign: int = 1) -> None:
        """The instance is no longer where Placement says; -1: it is again."""
        instance = self._cluster.instances[uuid]
        for provider, resources in instance.allocations.items():
            key = self._key(instance, provider)
            for name, amount in resources.items():
                self._extra[key, name] -= sign * amount
        if not instance.allocations:
            for name, amount in instance.claims.items():
                self._extra[instance.host, name] -= sign * amount
        home = self._cluster.hosts.get(instance.host)
        if home is not None:
            self._placed.pop(self._district(home), None)

    def come(self, uuid: str, name: str, sign: int = 1) -> None:
        """The instance comes to a host, one more time; -1: one time less."""
        host = self._cluster.hosts.get(name)
        if host is None or host.provider is None or self.flat(host):
            for resource_class, amount in self._cluster.instances[uuid].claims.items():
                self._extra[name, resource_class] += sign * amount
            return
        district = self._district(host)
        coming = self._coming[district]
        coming[name, uuid] += sign
        if not coming[name, uuid]:
            del coming[name, uuid]
        self._placed.pop(district, None)

    # Inside.

    def _certain(self, space: matching.Space, resource_class: str) -> float:
        return (space.provider.used.get(resource_class, 0)
                + self._extra.get((space.key, resource_class), 0))

    def _coming_to(self, district: str) -> Mapping[tuple[str, str], int]:
        """What those take that come to hosts of a district, by (key, class)."""
        coming = self._coming.get(district)
        if not coming:
            return {}
        found = self._placed.get(district)
        if found is None:
            demands = list(self._all_of(coming))
            chosen = matching.search(demands, self._certain, self.free)
            found = self._placed[district] = (
                matching.total(chosen, demands) if chosen is not None
                else self._one_by_one(demands))
        return found

    def _one_by_one(self, demands: Sequence[matching.Demand]) -> Counter[tuple[str, str]]:
        """Of those that do not all have room: who still finds some has it."""
        found: Counter[tuple[str, str]] = Counter()

        def used(space: matching.Space, name: str) -> float:
            return self._certain(space, name) + found[space.key, name]

        for demand in demands:
            one = [demand]
            found.update(matching.total(
                matching.search(one, used, self.free) or matching.force(one), one))
        return found

    def _all_of(self, coming: Counter[tuple[str, str]]) -> Iterator[matching.Demand]:
        for (host, uuid), times in sorted(coming.items()):
            for _ in range(times):
                yield from self.demands(uuid, self._cluster.hosts[host])

    def _district(self, host: model.Host) -> str:
        """Hosts that share providers with each other are one district."""
        return self._districts.get(host.name, host.name)

    def _tree(self, host: model.Host) -> tuple[matching.Space, ...]:
        found = self._spaces.get(host.name)
        if found is None and host.provider is not None:
            found = self._spaces[host.name] = (
                matching.Space(host.name, host.provider),
                *(matching.Space(p.uuid, p) for p in host.nested))
        return found or ()

    def _sharing_of(self, host: model.Host) -> tuple[matching.Space, ...]:
        found = self._shared.get(host.name)
        if found is None:
            found = self._shared[host.name] = tuple(
                matching.Space(u, self._cluster.sharing[u])
                for u in sorted(self._usable.intersection(host.sharing)))
        return found

    def _key(self, instance: model.Instance, provider: str) -> str:
        home = self._cluster.hosts.get(instance.host)
        if home is not None and home.provider is not None and home.provider.uuid == provider:
            return home.name
        return provider

    def _is_root(self, provider: str) -> bool:
        if self._roots is None:
            self._roots = frozenset(h.provider.uuid for h in self._cluster.hosts.values()
                                    if h.provider is not None)
        return provider in self._roots


def _districts(cluster: model.Cluster, usable: Set[str]) -> dict[str, str]:
    """Of each host that uses one of these sharing providers: one of those that
    it is connected with, the same for all that are."""
    leader = {uuid: uuid for uuid in usable}

    def of(uuid: str) -> str:
        while leader[uuid] != uuid:
            uuid = leader[uuid]
        return uuid

    for host in cluster.hosts.values():
        near = sorted({of(uuid) for uuid in usable.intersection(host.sharing)})
        for uuid in near[1:]:
            leader[uuid] = near[0]
    return {host.name: of(next(iter(usable.intersection(host.sharing))))
            for host in cluster.hosts.values() if not usable.isdisjoint(host.sharing)}
