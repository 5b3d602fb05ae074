# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The load of instances from a recorded trace: pure but for the file."""

from collections.abc import Iterable
import zlib

import numpy as np

from kronos_nova.rebalancer.backtest import trace
from tools.cloud import load
from tools.cloud.layout import CHECKOUT

TRACE = CHECKOUT / 'doc/examples/simulate/trace.npz'
#: Begins the queries of the trace that measure cores and resident bytes of each instance.
CORES = 'sum by (instance_id) ( rate('
BYTES = 'sum by (instance_id) ( libvirt_domain_memory'


class TraceLoad:
    """What each instance uses at a time, by a row of the trace that its UUID chooses."""

    def __init__(self, path: str = str(TRACE)) -> None:
        recorded = trace.read_trace(path)
        self._window = recorded.window
        instances = recorded.cluster.instances
        shares = {}
        for beginning in (CORES, BYTES):
            [series] = [series for (query, *_), series in recorded.answers.items()
                        if ' '.join(query.split()).startswith(beginning)]
            sizes = [instances[key].vcpus if beginning == CORES
                     else instances[key].memory_mb * load.MIB for key in series.keys]
            shares[beginning] = np.nan_to_num(
                np.clip(series.values / np.array(sizes, dtype=float), 0.0, 1.0))
        self._cores, self._bytes = shares[CORES], shares[BYTES]

    def compute_use(self, uuid: str, vcpus: int, memory_mb: int, seconds: float) -> load.Use:
        """Return what an instance uses.

        :param seconds: of the trace since its beginning; after its end it begins again.
        """
        step = int(seconds / self._window.step) % len(self._cores)
        row = zlib.crc32(uuid.encode()) % self._cores.shape[1]
        return load.Use(float(self._cores[step, row]) * vcpus,
                        float(self._bytes[step, row]) * memory_mb * load.MIB)

    def build_document(self, guests: Iterable[load.Guest], seconds: float) -> dict[str, object]:
        """Return the content of the sandbox's load file."""
        return {'instances': {
            guest.uuid: {'cpu': use.cpu, 'memory': use.memory}
            for guest in guests
            for use in [self.compute_use(guest.uuid, guest.vcpus, guest.memory_mb, seconds)]}}
