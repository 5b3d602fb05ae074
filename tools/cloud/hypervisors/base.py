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

"""The kinds of hypervisor that a sandbox can have, behind one interface."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Protocol

from tools.cloud import config
from tools.cloud.client import Cloud
from tools.cloud.run import Run


@dataclasses.dataclass(frozen=True)
class HostSize:
    """What a simulated host has; a real one has what the machine has."""

    vcpus: int = 16
    memory_mb: int = 65536
    disk_gb: int = 1000
    migration_seconds: float = 2.0


class Hypervisor(Protocol):
    """What differs between simulated hosts and real ones."""

    #: Debian package of each needed program.
    programs: Mapping[str, str]
    host_memory_mib: int
    #: As Nova's API names it; for [engine] hypervisor_types.
    hypervisor_type: str

    def list_ports(self, hosts: Sequence[str]) -> list[str]:
        """Return names of the ports that the hosts' own services need."""

    def build_compute_options(self, size: HostSize) -> config.Sections:
        """Return options of every nova-compute beside the common ones."""

    def build_host_options(self, run: Run, host: str) -> config.Sections:
        """Return options of one nova-compute beside the common ones."""

    def start_computes(self, run: Run) -> None:
        """Start hosts and nova-computes."""

    def start_exporters(self, run: Run, size: HostSize) -> list[config.ScrapeTarget]:
        """Start the exporters and return what Prometheus scrapes: two targets per host."""

    def ensure_image(self, cloud: Cloud, run: Run, name: str) -> None:
        """Make the image that every guest boots from."""
