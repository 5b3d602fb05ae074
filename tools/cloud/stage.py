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

"""What every act on the sandbox needs: servers that are there or gone, and their load."""

from collections.abc import Collection
import json

from tools.cloud import errors
from tools.cloud import exporter
from tools.cloud import policies
from tools.cloud import prometheus
from tools.cloud import scenario
from tools.cloud import up
from tools.cloud.client import Cloud
from tools.cloud.client import poll
from tools.cloud.run import Run

#: how near a score must be to what the load amounts to
TOLERANCE = 0.05


class Stage:
    """The cloud of a run.

    :raises TimeoutError: from every method that waits, when it was in vain
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.cloud = Cloud(run.ports)
        self.image = self.cloud.ensure_image(up.IMAGE)

    def flavor(self, flavor: scenario.Flavor) -> str:
        """Its id."""
        return self.cloud.ensure_flavor(flavor.name, flavor.vcpus, flavor.ram_mb, flavor.disk_gb)

    def wait_active(self, uuids: Collection[str]) -> None:
        """:raises errors.ServiceDied: one went to ERROR"""
        for uuid, why in self.ended(uuids).items():
            raise errors.ServiceDied(f'server {uuid} went to ERROR: {why}')

    def ended(self, uuids: Collection[str]) -> dict[str, str]:
        """Wait until none is being built; those that went to ERROR, and why."""
        waiting, failed = set(uuids), dict[str, str]()

        def ready() -> bool:
            self._run.check_alive()
            for server in self.cloud.servers():
                if server['id'] in waiting and server['status'] == 'ERROR':
                    failed[server['id']] = server.get('fault', {}).get(
                        'message', 'no reason given')
                if server['status'] in ('ACTIVE', 'ERROR'):
                    waiting.discard(server['id'])
            return not waiting

        poll(ready, 'every server is ACTIVE')
        return failed

    def delete(self, uuids: Collection[str]) -> None:
        """Delete servers, and wait until they are gone."""
        gone = set(uuids)
        for uuid in gone:
            self.cloud.delete(uuid)
        poll(lambda: not gone & {s['id'] for s in self.cloud.servers()},
             'the servers are deleted')

    def load(self, raw: dict[str, object]) -> dict[str, float]:
        """Let servers use that, and wait for it as ``settled``."""
        new = self._run.layout.load.with_suffix('.new')
        new.write_text(json.dumps(raw))
        new.replace(self._run.layout.load)
        return self.settled()

    def settled(self) -> dict[str, float]:
        """Wait until Prometheus' CPU scores are what the load amounts to; returns them."""
        raw = json.loads(self._run.layout.load.read_text())
        expected = scenario.expected_cpu(
            up.Size.host.vcpus, self._run.state.hosts, exporter.guests(self.cloud.servers()), raw)
        query, label = policies.query(self._run.layout.policies.read_text(), 'cpu')
        seen: dict[str, float] = {}

        def ready() -> bool:
            self._run.check_alive()
            seen.clear()
            seen.update(prometheus.query(self._run, query, label))
            return set(seen) == set(expected) and all(
                abs(seen[host] - expected[host]) < TOLERANCE for host in expected)

        poll(ready, 'Prometheus shows the load')
        return dict(seen)
