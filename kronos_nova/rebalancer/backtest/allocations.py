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

"""Allocations of a simulated cloud, provider by provider. Mutable.

An instance on its recorded host holds the allocations that Placement had there. On another host it
gets providers with room, as the rule ``claims`` searches them. History may have crowded hosts more
than the rule permits: without room it gets any providers of that kind.
"""

from collections.abc import Mapping
import copy
import dataclasses

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import provider_assignment

Amounts = dict[str, int]


class ProviderHoldings:
    """Allocations by provider UUID; a host without a tree has only its root."""

    def __init__(self, cluster: model.Cluster) -> None:
        self._cluster = cluster
        #: Demands of instances and spaces of providers: nothing is laid over this view.
        self._spaces = cluster_view.ClusterView(
            dataclasses.replace(cluster, flights=(), groups=()), model.PlanningOptions()).occupancy
        providers = [*cluster.sharing.values(), *(p for h in cluster.hosts.values()
                                                  for p in h.tree)]
        #: Allocations by provider, at first only of consumers that are no instances of the cloud.
        self._used: dict[str, Amounts] = {p.uuid: dict(p.used) for p in providers}
        self._allocations: dict[str, Mapping[str, Mapping[str, int]]] = {}
        for instance in cluster.instances.values():
            if instance.host in cluster.hosts:
                self._charge_providers(self._at_home(instance), -1)

    def copy_holdings(self) -> 'ProviderHoldings':
        """Return holdings of the same cloud that change on their own."""
        copied = copy.copy(self)
        copied._used = {uuid: dict(amounts) for uuid, amounts in self._used.items()}
        copied._allocations = dict(self._allocations)
        return copied

    def place_instance(self, uuid: str, host: str) -> None:
        """Put the instance on a host, and on no other."""
        self.remove_instance(uuid)
        instance = self._cluster.instances[uuid]
        known = self._cluster.hosts[host]
        if host == instance.host:
            allocations = self._at_home(instance)
        elif known.provider is None:
            allocations = {}
        elif self._spaces.has_root_alone(known):
            allocations = {known.provider.uuid: instance.claims}
        else:
            allocations = self._choose_providers(uuid, known)
        self._allocations[uuid] = allocations
        self._charge_providers(allocations, 1)

    def remove_instance(self, uuid: str) -> None:
        """Remove the instance from its host."""
        self._charge_providers(self._allocations.pop(uuid, {}), -1)

    def map_allocations(self, uuid: str) -> Mapping[str, Mapping[str, int]]:
        """Return the instance's allocations by provider; empty where history has none."""
        return self._allocations[uuid] if self._cluster.instances[uuid].allocations else {}

    def sum_allocated(self, host: str) -> Amounts:
        """Sum the allocations of the host's tree, by resource class."""
        allocated: Amounts = {}
        for provider in self._cluster.hosts[host].tree:
            for name, amount in self._used[provider.uuid].items():
                allocated[name] = allocated.get(name, 0) + amount
        return allocated

    def show_allocations(self, provider: model.Provider) -> model.Provider:
        return dataclasses.replace(provider, used={
            name: max(0, amount) for name, amount in self._used[provider.uuid].items()})

    def _at_home(self, instance: model.Instance) -> Mapping[str, Mapping[str, int]]:
        if instance.allocations:
            return instance.allocations
        root = self._cluster.hosts[instance.host].provider
        return {} if root is None else {root.uuid: instance.claims}

    def _choose_providers(self, uuid: str, host: model.Host) -> dict[str, Amounts]:
        demands = self._spaces.build_demands(uuid, host)
        chosen = (provider_assignment.find_spaces(demands, lambda space, name: self._used[
            space.provider.uuid].get(name, 0))
                  or provider_assignment.choose_fallback_spaces(demands))
        allocations: dict[str, Amounts] = {}
        for space, demand in zip(chosen, demands, strict=True):
            here = allocations.setdefault(space.provider.uuid, {})
            for name, amount in demand.piece.resources:
                here[name] = here.get(name, 0) + amount
        return allocations

    def _charge_providers(self, allocations: Mapping[str, Mapping[str, int]], sign: int) -> None:
        for provider, resources in allocations.items():
            used = self._used.setdefault(provider, {})
            for name, amount in resources.items():
                used[name] = used.get(name, 0) + sign * amount
