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

"""``python -m tools.cloud.region.exporter PORT HOSTS INSTANCES VCPUS MEMORY_MB``: all exporters.

The instances are computed, not read from Nova, and each host is advanced when it is scraped.
"""

from http import server as http_server
import sys
import threading
import time

from tools.cloud import exporter
from tools.cloud import exposition
from tools.cloud import load
from tools.cloud.region import shape


class RegionExporter:
    """The exporters of every host of a region."""

    ready = True

    def __init__(self, region: shape.Shape, vcpus: int, memory_mb: int) -> None:
        self._region = region
        self._numbers = {name: n for n, name in enumerate(region.list_hosts(), 1)}
        self._host = vcpus, memory_mb * load.MIB
        self._integrators: dict[str, load.Integrator] = {}
        self._lock = threading.Lock()

    def _find_integrator(self, host: str, now: float) -> load.Integrator:
        if host not in self._integrators:
            number = self._numbers[host]
            guests = list(self._region.list_guests(number)) if number > 1 else []
            found = load.Integrator([host], *self._host, now)
            found.set(guests, load.parse({'instances': {
                guest.uuid: shape.choose_use(guest, number) for guest in guests}}), now)
            self._integrators[host] = found
        return self._integrators[host]

    def scrape(self, path: str) -> bytes | None:
        """Return the exposition text of a target; None for an unknown one."""
        host, _, kind = path.strip('/').partition('/')
        if host not in self._numbers or kind not in ('node', 'libvirt'):
            return None
        with self._lock:
            now = time.time()
            integrator = self._find_integrator(host, now)
            integrator.advance(now)
            if kind == 'node':
                return exposition.node(host, integrator.hosts[host], now)
            return exposition.libvirt(integrator.guests.values())


def main() -> None:
    port, hosts, instances, vcpus, memory_mb = map(int, sys.argv[1:])
    region = RegionExporter(shape.Shape(hosts, instances, 0), vcpus, memory_mb)
    http_server.ThreadingHTTPServer(
        ('127.0.0.1', port), exporter.handler(region)).serve_forever()


if __name__ == '__main__':
    main()
