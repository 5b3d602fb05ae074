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

"""Simulated hosts: Nova's fake virt driver, and load from a file."""

from collections.abc import Mapping
from collections.abc import Sequence
import sys

from tools.cloud import config
from tools.cloud.client import Cloud
from tools.cloud.hypervisors.base import HostSize
from tools.cloud.run import Run


class SimulatedHypervisor:
    """Every host of one process each, without guests."""

    programs: Mapping[str, str] = {}
    host_memory_mib = 70
    hypervisor_type = 'fake'

    def list_ports(self, hosts: Sequence[str]) -> list[str]:
        return []

    def build_compute_options(self, size: HostSize) -> config.Sections:
        return {
            'DEFAULT': {'compute_driver': 'sandbox.SandboxDriver'},
            'sandbox': {
                'vcpus': size.vcpus,
                'memory_mb': size.memory_mb,
                'disk_gb': size.disk_gb,
                'migration_seconds': size.migration_seconds,
            },
        }

    def build_host_options(self, run: Run, host: str) -> config.Sections:
        return {}

    def start_computes(self, run: Run) -> None:
        run.spawn(
            'nova-computes',
            [sys.executable, '-m', 'tools.cloud.computes', str(run.layout.etc),
             str(run.layout.log), *run.state.hosts],
        )

    def start_exporters(self, run: Run, size: HostSize) -> list[config.ScrapeTarget]:
        run.spawn(
            'exporter',
            [sys.executable, '-m', 'tools.cloud.exporter', str(run.layout.state),
             str(run.layout.load), str(size.vcpus), str(size.memory_mb)],
        )
        return [config.ScrapeTarget(job, host, run.ports['exporter'], f'/{host}/{job}')
                for job in config.EXPORTER_PORTS for host in run.state.hosts]

    def ensure_image(self, cloud: Cloud, run: Run, name: str) -> None:
        cloud.ensure_image(name)
