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


"""Free capacity in Placement: allocation by resource class and host as arrays."""

from collections.abc import Sequence

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import provider_assignment
from kronos_nova.rebalancer.simulation import arrays


class CapacityRoom:
    """Claims and capacities: R resource classes x H hosts, R x N instances.

    ``claims``: R x N, the allocations of each instance. ``used``: R x H, of each host's tree
    together, kept up to date by :meth:`shift_allocation`; whole numbers, so sums are exact.
    ``limit``: Placement's capacity of the tree together, -inf where it has no such inventory, inf
    where a sharing provider may serve. ``counted``: the rows that the rule ``claims`` looks at. A
    class may be in a few parts, and a claim that fits into a tree may still fit into none of its
    providers: for trees this permits too much.

    :param view: has the current use, moves in flight included.
    :param order: which of ``instances`` is number 0, 1, ...
    """

    def __init__(self, view: cluster_view.ClusterView, hosts: Sequence[str],
                 instances: Sequence[model.Instance], order: arrays.Ints) -> None:
        claims = [i.claims for i in instances]
        self.classes = tuple(sorted(set[str]().union(*claims)))
        table = np.empty((len(self.classes), len(instances)))
        for r, name in enumerate(self.classes):
            table[r] = arrays.make_float_array(c.get(name, 0) for c in claims)
        self.claims: arrays.Floats = table.take(order, axis=1)
        #: R x N, of each class the largest part that is on one provider.
        self._part: arrays.Floats = self.claims
        split = [n for n, i in enumerate(instances) if len(i.allocations) > 1]
        if split:
            self._part = _find_largest_parts(
                table, self.classes, instances, split).take(order, axis=1)
        shape = len(self.classes), len(hosts)
        self.used: arrays.Floats = np.zeros(shape)
        self.limit: arrays.Floats = np.full(shape, -np.inf)
        self._least: arrays.Floats = np.zeros(shape)
        self._most: arrays.Floats = np.full(shape, np.inf)
        self._step: arrays.Floats = np.ones(shape)
        #: Hosts that Placement knows.
        self.provided: arrays.Bools = np.zeros(len(hosts), dtype=np.bool_)
        for h, name in enumerate(hosts):
            self._read(view, h, name)
        options = view.options
        self._counts = options.enforce_placement_claims and view.has_known_claims()
        self.counted = [r for r, name in enumerate(self.classes)
                        if self._counts and name not in view.occupancy.free]
        #: Classes of which not every instance can be allocated everywhere in one piece.
        self._odd = [r for r in self.counted if self.claims.shape[1] and (
            (self._step[r] != 1).any() or self._most[r].min() < self._part[r].max()
            or self._least[r].max() > 1)]

    def _read(self, view: cluster_view.ClusterView, h: int, name: str) -> None:
        host = view.cluster.hosts.get(name)
        if host is None or host.provider is None:
            return
        self.provided[h] = True
        if view.occupancy.has_root_alone(host):
            self._read_root(view, h, host, host.provider)
            return
        shared = {c for u in host.sharing if u in view.cluster.sharing
                  for c in view.cluster.sharing[u].inventories
                  if c not in provider_assignment.IN_TREE}
        for r, resource_class in enumerate(self.classes):
            self.used[r, h] = view.occupancy.sum_allocated(host, resource_class)
            if resource_class in shared:
                self.limit[r, h] = np.inf
                continue
            inventories = [p.inventories[resource_class] for p in host.tree
                           if resource_class in p.inventories]
            if inventories:
                self.limit[r, h] = (inventories[0].capacity if len(inventories) == 1
                                    else view.occupancy.sum_capacity(host, resource_class))
                self._least[r, h] = min(i.min_unit for i in inventories)
                self._most[r, h] = max(i.max_unit for i in inventories)
                if len({i.step_size for i in inventories}) == 1:
                    self._step[r, h] = inventories[0].step_size

    def _read_root(self, view: cluster_view.ClusterView, h: int, host: model.Host,
                   root: model.Provider) -> None:
        """Read a host that is one provider, as most are."""
        for r, resource_class in enumerate(self.classes):
            self.used[r, h] = view.occupancy.sum_allocated(host, resource_class)
            inventory = root.inventories.get(resource_class)
            if inventory is not None:
                self.limit[r, h] = inventory.capacity
                self._least[r, h] = inventory.min_unit
                self._most[r, h] = inventory.max_unit
                self._step[r, h] = inventory.step_size

    def shift_allocation(self, n: int, source: int, destination: int) -> None:
        """Move the instance's allocation from one host to the other."""
        self.used[:, source] -= self.claims[:, n]
        self.used[:, destination] += self.claims[:, n]

    def mark_fitting(self, instances: arrays.Ints, hosts: arrays.Ints) -> arrays.Bools:
        """Mark the pairs that the rule ``claims`` permits: shape (instances, hosts).

        The expressions are those of the rule.
        """
        if not self._counts:
            return np.ones((len(instances), len(hosts)), dtype=np.bool_)
        allowed = np.repeat(self.provided[hosts][None, :], len(instances), axis=0)
        for r in self.counted:
            need = self.claims[r, instances][:, None]
            good = self.used[r, hosts][None, :] + need <= self.limit[r, hosts][None, :]
            if r in self._odd:
                part = self._part[r, instances][:, None]
                good &= ((part >= self._least[r, hosts][None, :])
                         & (part <= self._most[r, hosts][None, :])
                         & (part % self._step[r, hosts][None, :] == 0))
            if not need.all():
                good |= need == 0
            allowed &= good
        return allowed

    def compute_fullest(self, n: int, hosts: arrays.Ints) -> arrays.Floats:
        """Compute the highest allocation ratio of each host with instance n on it."""
        best = np.zeros(len(hosts))
        for r in np.flatnonzero(self.claims[:, n]):
            limit = self.limit[r, hosts]
            known = limit > 0
            ratio = (self.used[r, hosts] + self.claims[r, n]) / np.where(known, limit, 1.0)
            best = np.maximum(best, np.where(known, ratio, 0.0))
        return best


def _find_largest_parts(claims: arrays.Floats, classes: Sequence[str],
                        instances: Sequence[model.Instance],
                        split: Sequence[int]) -> arrays.Floats:
    """Return the claims, with the largest part of a class that is on several providers.

    :param split: numbers of the instances that have claims on several providers.
    """
    row = {name: r for r, name in enumerate(classes)}
    parts = claims.copy()
    for n in split:
        largest_parts: dict[str, int] = {}
        for resources in instances[n].allocations.values():
            for name, amount in resources.items():
                largest_parts[name] = max(largest_parts.get(name, 0), amount)
        for name, amount in largest_parts.items():
            parts[row[name], n] = amount
    return parts
