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


"""Instances on each host, as arrays that follow each move."""

import numpy as np

from kronos_nova.rebalancer.simulation import arrays


class HostResidents:
    """N instances by host: compressed rows, and separately those of changed hosts.

    ``order`` lists the instances by host as they were, those of host h in
    ``order[start[h]:start[h + 1]]``.
    """

    def __init__(self, place: arrays.Ints, hosts: int) -> None:
        # NumPy sorts small numbers by their digits, in O(N).
        small = place.astype(np.uint16) if hosts <= np.iinfo(np.uint16).max else place
        self.order: arrays.Ints = np.argsort(small, kind='stable')
        self.start: arrays.Ints = np.concatenate(
            [[0], np.cumsum(np.bincount(place, minlength=hosts))]).astype(np.intp)
        self._changed: dict[int, arrays.Ints] = {}

    def list_on_host(self, h: int) -> arrays.Ints:
        """Return the numbers of the instances on host number h, ascending."""
        changed = self._changed.get(h)
        return self.order[self.start[h]:self.start[h + 1]] if changed is None else changed

    def compute_peaks(self, usage: arrays.Floats) -> arrays.Floats:
        """Return the highest usage of an instance on each host at the beginning: P x N to P x H.

        An empty host has 0.
        """
        peaks = np.zeros((len(usage), len(self.start) - 1))
        occupied = np.flatnonzero(np.diff(self.start))
        if occupied.size:
            peaks[:, occupied] = np.maximum.reduceat(usage[:, self.order], self.start[occupied],
                                                     axis=1)
        return peaks

    def shift_instance(self, n: int, source: int, destination: int) -> None:
        """Move instance n from one host to the other: O(instances on them)."""
        residents = self.list_on_host(source)
        self._changed[source] = residents[residents != n]
        there = self.list_on_host(destination)
        at = int(there.searchsorted(n))
        self._changed[destination] = np.concatenate([there[:at], [n], there[at:]])
