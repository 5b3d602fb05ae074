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

"""Cached raw weights of hosts that did not change.

Between two snapshots a host's weight depends only on the allocation that its HostState shows, and
few hosts change between two requests.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any, NamedTuple

from kronos_nova.scheduler import depletion

#: Raw weights are rounded to 1 / PLACES: nearer hosts are as good, and Nova
#: formats each weight in every request. Formatting a float of 17 digits takes
#: longer than all work here.
PLACES = 100000


class SeenAllocation(NamedTuple):
    """Fields of a HostState or a Track on which a load depends."""

    host: str
    vcpus_used: Any
    free_ram_mb: Any


class WeightCache:
    """The raw weights of one snapshot, by host and its allocation.

    Many threads use it without a lock: rows are replaced, not changed, and each holds the
    allocation that its weight was computed from.
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Any, Any, float | None]] = {}

    def weigh_hosts(self, hosts: Sequence[Any],
                    loads: Mapping[str, depletion.HostLoad]) -> list[float | None]:
        """Return the raw weight of each host, in [-0.5, 0.5]; None without a load.

        :param hosts: HostState objects.
        :param loads: the snapshot's; the same at each call.
        """
        get = self._rows.get
        weights: list[float | None] = []
        missed: list[int] = []
        try:
            for host in hosts:
                row = get(host.host)
                if (row is not None and row[0] == host.vcpus_used
                        and row[1] == host.free_ram_mb):
                    weights.append(row[2])
                else:
                    missed.append(len(weights))
                    weights.append(None)
        except AttributeError:
            # Some hosts do not show their allocation.
            return compute_raw_weights(depletion.project_loads(hosts, loads))
        if missed:
            some = [hosts[index] for index in missed]
            for index, weight in zip(missed, self.add_weights(some, loads), strict=True):
                weights[index] = weight
        return weights

    def add_weights(self, hosts: Sequence[Any],
                    loads: Mapping[str, depletion.HostLoad]) -> list[float | None]:
        """Compute the weights of some hosts, and remember them.

        :param hosts: HostState objects, or :class:`SeenAllocation`.
        """
        weights = compute_raw_weights(depletion.project_loads(hosts, loads))
        for host, weight in zip(hosts, weights, strict=True):
            try:
                self._rows[host.host] = (host.vcpus_used, host.free_ram_mb, weight)
            except AttributeError:
                continue  # the host does not show its allocation
        return weights


def compute_raw_weights(loads: Iterable[float | None]) -> list[float | None]:
    """Return headroom - 0.5 of each load, in [-0.5, 0.5], to five places."""
    return [None if load is None
            # int() cuts off towards 0, so that it gets a positive number.
            else (int(PLACES * 1.5 - load * PLACES + 0.5) - PLACES) / PLACES
            if 0.0 <= load <= 1.0 else 0.5 if load < 0.0 else -0.5
            for load in loads]
