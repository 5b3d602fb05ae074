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

"""The hosts and instances of a generated region: names and identities that all parts compute alike.

Hosts have the numbers 1 to H; host 1 is the sandbox's own, from whose rows the others are made.
Instances have the numbers 0 to I - 1, instance N is on host 2 + N mod (H - 1).
"""

from collections.abc import Iterator
import dataclasses
import hashlib

from tools.cloud import load

#: Host 1: the real one.
TEMPLATE_HOST = 'compute-01'
#: Flavor, vCPUs, MiB, and how many of 26 instances of a host have it.
FLAVORS = (('small', 1, 2048, 13), ('medium', 2, 4096, 9), ('large', 4, 8192, 4))
SLOTS = sum(share for *_, share in FLAVORS)


@dataclasses.dataclass(frozen=True)
class Shape:
    """Numbers of a region.

    :ivar children: nested providers of each host, which have VGPUs.
    """

    hosts: int
    instances: int
    children: int

    def list_hosts(self) -> list[str]:
        return [TEMPLATE_HOST, *(name_host(n) for n in range(2, self.hosts + 1))]

    def list_guests(self, host: int) -> Iterator[load.Guest]:
        """Yield the instances of a host, which has a number of at least 2."""
        for n in range(host - 2, self.instances, self.hosts - 1):
            flavor, vcpus, memory_mb = _choose_flavor(n // (self.hosts - 1) % SLOTS)
            yield load.Guest(
                uuid=make_uuid('instance', n), host=name_host(host), domain=f'instance-{n:08x}',
                name=f'vm-{n}', flavor=flavor, vcpus=vcpus, memory_mb=memory_mb,
                project_id='', user_id='')


def _choose_flavor(slot: int) -> tuple[str, int, int]:
    """Return name, vCPUs and MiB of the instance in a slot of a host."""
    end = 0
    for flavor, vcpus, memory_mb, share in FLAVORS:
        end += share
        if slot < end:
            return flavor, vcpus, memory_mb
    raise ValueError(f'slot {slot} is not below {SLOTS}')


def name_host(number: int) -> str:
    return f'compute-{number:04d}'


def make_uuid(kind: str, number: int) -> str:
    """Return the UUID of a generated record; ``rows`` computes the same in SQL."""
    digest = hashlib.md5(f'{kind} {number}'.encode(), usedforsecurity=False).hexdigest()
    return f'{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:]}'


def choose_use(guest: load.Guest, host: int) -> dict[str, float]:
    """Return what an instance uses; every tenth host is busy, so that a plan has work."""
    share = 0.33 if host % 10 == 0 else 0.08 + 0.01 * (host % 9)
    return {'cpu': share * guest.vcpus, 'memory': 0.6 * guest.memory_mb * load.MIB}
