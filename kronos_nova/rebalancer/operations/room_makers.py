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

"""The instances that could leave a host so that another instance fits there, by claims. Pure.

It narrows a search down and judges nothing: a class that the root provider of a host does not have,
or that the options do not enforce, is no limit here, and the other rules are not read.
"""

from collections.abc import Collection
from collections.abc import Sequence
import copy

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import occupancy
from kronos_nova.rebalancer.simulation import arrays

#: Instances that are named for one that needs room, the smallest first; a search tries fewer.
MOST = 128


class ClaimTable:
    """Claims of all instances, and free room of all hosts, as arrays that follow each move."""

    def __init__(self, cluster: model.Cluster, options: model.PlanningOptions) -> None:
        self._hosts = {host: number for number, host in enumerate(cluster.hosts)}
        instances = [i for i in cluster.instances.values() if i.host in self._hosts]
        self._uuids = [i.uuid for i in instances]
        self._numbers = {uuid: number for number, uuid in enumerate(self._uuids)}
        self._place = arrays.make_int_array(self._hosts[i.host] for i in instances)
        self._size = arrays.make_float_array(i.memory_mb for i in instances)
        classes = sorted({name for host in cluster.hosts.values() if host.provider is not None
                          for name in host.provider.inventories
                          if options.enforce_placement_claims
                          and (name != occupancy.DISK
                               or options.enforce_placement_disk is not False)})
        self._claims = np.array([[i.claims.get(name, 0) for i in instances] for name in classes],
                                dtype=float).reshape(len(classes), len(instances))
        self._free = np.array([[_count_free(host, name) for host in cluster.hosts.values()]
                               for name in classes]).reshape(len(classes), len(self._hosts))
        self._kinds, kind = np.unique(self._claims, axis=1, return_inverse=True)
        self._kind = kind.reshape(-1)

    def copy_table(self) -> 'ClaimTable':
        """Return a table that changes on its own."""
        copied = copy.copy(self)
        copied._place, copied._free = self._place.copy(), self._free.copy()
        return copied

    def move_instance(self, uuid: str, host: str) -> None:
        """Follow a move of an instance."""
        number, there = self._numbers[uuid], self._hosts[host]
        self._free[:, self._place[number]] += self._claims[:, number]
        self._free[:, there] -= self._claims[:, number]
        self._place[number] = there

    def count_fitting_hosts(self, hosts: Sequence[str], closed: Collection[str]) -> int:
        """Return how many of the first hosts the free room would hold, were it in one place.

        No plan empties more hosts together. Hosts other than these and the closed ones count.
        """
        free = np.maximum(self._free[:, self._mark_open({*closed, *hosts})], 0.0).sum(axis=1)
        claims = np.zeros((len(self._free), len(self._hosts)))
        for row, amounts in enumerate(self._claims):
            claims[row] = np.bincount(self._place, amounts, len(self._hosts))
        claims = np.cumsum(claims[:, [self._hosts[host] for host in hosts]], axis=1)
        return int((claims <= free[:, None]).all(axis=0).sum())

    def list_room_makers(self, uuids: Collection[str],
                         closed: Collection[str]) -> dict[str, list[str]]:
        """Return, for each of the instances, others of which one could leave to make room for it.

        Such an instance fits on another host, and where it was there is then enough room. Hosts
        other than the closed ones count.
        """
        is_open = self._mark_open(closed)
        # Kinds x hosts: where an instance with such claims fits.
        fits = (self._free[:, None, :] >= self._kinds[:, :, None]).all(axis=0) & is_open
        elsewhere = (fits.sum(axis=1)[self._kind] - fits[self._kind, self._place]) > 0
        movable = np.flatnonzero(elsewhere & is_open[self._place])
        room = self._free[:, self._place[movable]] + self._claims[:, movable]
        by_kind: dict[int, list[str]] = {}
        for uuid in uuids:
            kind = int(self._kind[self._numbers[uuid]])
            if kind not in by_kind:
                need = self._kinds[:, kind, None]
                enough = movable[((room >= need) | (need == 0.0)).all(axis=0)]
                smallest = enough[np.argsort(self._size[enough], kind='stable')[:MOST]]
                by_kind[kind] = [self._uuids[number] for number in smallest]
        return {uuid: by_kind[int(self._kind[self._numbers[uuid]])] for uuid in uuids}

    def _mark_open(self, closed: Collection[str]) -> arrays.Bools:
        return np.array([host not in closed for host in self._hosts], dtype=np.bool_)


def _count_free(host: model.Host, name: str) -> float:
    """Return what the root provider of the host has left of a class; without limit: infinity."""
    provider = host.provider
    if provider is None or name not in provider.inventories:
        return np.inf
    return float(provider.inventories[name].capacity - provider.used.get(name, 0))
