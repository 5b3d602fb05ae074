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

"""What the demo does to the cloud: which servers, with which loads. Pure.

The first half of the hosts is busy at first with one small server each; the
others have two large ones, nearly idle. To Nova's own weighers, which see
reserved resources only, the busy half looks emptier. Then the load flips.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from tools.cloud import load

GIB = 1024 ** 3
PREFIX = 'demo-'
#: boots with and without our weigher
BOOTS = 4


@dataclasses.dataclass(frozen=True)
class Flavor:
    name: str
    vcpus: int
    ram_mb: int
    disk_gb: int


BUSY = Flavor('demo-busy', 8, 4096, 5)
LARGE = Flavor('demo-large', 8, 16384, 5)
WEB = Flavor('demo-web', 1, 2048, 5)

#: core use at first and after the flip
FIRST = {BUSY: load.Use(8.0, 3.0 * GIB), LARGE: load.Use(0.2, 2.0 * GIB)}
FLIPPED = {BUSY: load.Use(0.2, 3.0 * GIB), LARGE: load.Use(6.0, 2.0 * GIB)}


@dataclasses.dataclass(frozen=True)
class Server:
    """A server that is placed by name of its host."""

    name: str
    host: str
    flavor: Flavor


def halves(hosts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Hosts that are busy at first, and the others."""
    middle = len(hosts) // 2
    return list(hosts[:middle]), list(hosts[middle:middle * 2])


def servers(hosts: Sequence[str]) -> list[Server]:
    """What runs before the first boot that the scheduler decides."""
    busy, idle = halves(hosts)
    return [Server(f'{PREFIX}busy-{host}', host, BUSY) for host in busy] + [
        Server(f'{PREFIX}large-{host}-{i}', host, LARGE) for host in idle for i in (1, 2)
    ]


def loads(uuids: Mapping[str, Flavor], uses: Mapping[Flavor, load.Use]) -> dict[str, object]:
    """The control file's content: each server's load by its flavor."""
    return {
        'instances': {uuid: dataclasses.asdict(uses[flavor])
                      for uuid, flavor in uuids.items() if flavor in uses}
    }


def expected_cpu(
    cores: int, hosts: Sequence[str], guests: Sequence[load.Guest], raw: object
) -> dict[str, float]:
    """The CPU score that each host will have once the metrics show these loads."""
    demands = load.parse(raw)
    used = dict.fromkeys(hosts, load.BASE.cpu)
    for guest in guests:
        if guest.host in used:
            used[guest.host] += load.demand(guest, demands).cpu
    return {host: min(1.0, cpu / cores) for host, cpu in used.items()}


def imbalance(scores: Mapping[str, float]) -> float:
    """Highest minus lowest score."""
    return max(scores.values()) - min(scores.values())
