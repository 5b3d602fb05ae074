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

"""Recent refusals of Placement, as an array: built once, read often."""

from collections.abc import Collection
from collections.abc import Mapping

import numpy as np

from kronos_nova.rebalancer.simulation import arrays


class MoveRefusals:
    """Refusals of N instances on H hosts; most instances were refused nowhere.

    :param refused: hosts by instance, as ``MoveHistory.refused``.
    :param index: numbers of the instances by UUID.
    :param host_index: numbers of the hosts by name.
    """

    def __init__(self, refused: Mapping[str, Collection[str]], index: Mapping[str, int],
                 host_index: Mapping[str, int]) -> None:
        refused_hosts = {index[uuid]: [host_index[h] for h in there if h in host_index]
                         for uuid, there in refused.items() if uuid in index}
        #: Row of ``_allowed`` by instance; the first row permits everything.
        self._row = np.zeros(len(index), dtype=np.intp)
        self._allowed = np.ones((1 + len(refused_hosts), len(host_index)), dtype=np.bool_)
        for row, (n, hosts) in enumerate(refused_hosts.items(), start=1):
            self._row[n] = row
            self._allowed[row, hosts] = False

    def mark_permitted(self, instances: arrays.Ints, hosts: arrays.Ints) -> arrays.Bools:
        """Mark the pairs that Placement has not refused: shape (instances, hosts).

        The array must not be written to.
        """
        if len(self._allowed) == 1:
            return np.broadcast_to(np.bool_(True), (len(instances), len(hosts)))
        return np.asarray(self._allowed[self._row[instances][:, None], hosts])
