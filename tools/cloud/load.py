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

"""Simulated load: what instances use, and the counters of the hosts they use it on. Pure."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math
from typing import Any

MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Use:
    """A demand: cores, bytes of memory, and the share of time a disk is kept busy (0-1)."""

    cpu: float = 0.0
    memory: float = 0.0
    disk: float = 0.0


@dataclasses.dataclass(frozen=True)
class Loads:
    """The control file: demands by server UUID, base demands by host; others use defaults."""

    instances: Mapping[str, Use] = dataclasses.field(default_factory=dict)
    hosts: Mapping[str, Use] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Guest:
    """A running instance as Nova knows it."""

    uuid: str
    host: str
    domain: str
    name: str
    flavor: str
    vcpus: int
    memory_mb: int
    project_id: str
    user_id: str


#: what a guest uses of each vCPU and of its memory when the control file does not name it
IDLE_CPU_PER_VCPU = 0.05
IDLE_MEMORY_RATIO = 0.25
#: what a host uses without guests
BASE = Use(cpu=0.4, memory=2048.0 * MIB, disk=0.01)


def parse(raw: Any) -> Loads:
    """Validate the control file's content.

    ``{"instances": {UUID: {"cpu": cores, "memory": bytes, "disk": ratio}}, "hosts": {...}}``,
    every part optional.

    :raises ValueError: names the entry and its fault
    """
    if not isinstance(raw, dict) or not set(raw) <= {'instances', 'hosts'}:
        raise ValueError('load: an object with the keys instances and hosts is needed')
    return Loads(*(_uses(kind, raw.get(kind, {})) for kind in ('instances', 'hosts')))


def _uses(kind: str, raw: Any) -> dict[str, Use]:
    if not isinstance(raw, dict):
        raise ValueError(f'{kind}: an object is needed')
    uses = {}
    for key, entry in raw.items():
        if not isinstance(entry, dict) or not set(entry) <= {'cpu', 'memory', 'disk'}:
            raise ValueError(f'{kind}.{key}: an object with cpu, memory and disk is needed')
        for field, value in entry.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f'{kind}.{key}.{field}: {value!r} is not a number')
            if not math.isfinite(value) or value < 0:
                raise ValueError(f'{kind}.{key}.{field}: {value!r} is not finite and >= 0')
        uses[key] = Use(**entry)
    return uses


def demand(guest: Guest, loads: Loads) -> Use:
    """What a guest asks for, within its flavor."""
    use = loads.instances.get(guest.uuid)
    memory = guest.memory_mb * MIB
    if use is None:
        return Use(IDLE_CPU_PER_VCPU * guest.vcpus, IDLE_MEMORY_RATIO * memory)
    return Use(min(use.cpu, guest.vcpus), min(use.memory, memory), use.disk)


@dataclasses.dataclass
class HostCounters:
    """A host's counters, in seconds since it was first seen, and its memory now, in bytes."""

    cores: int
    memory_total: float
    boot_time: float
    busy: float = 0.0
    idle: float = 0.0
    disk_busy: float = 0.0
    cpu_waiting: float = 0.0
    io_waiting: float = 0.0
    memory_stalled: float = 0.0
    memory_used: float = 0.0


@dataclasses.dataclass
class GuestCounters:
    """A guest's counters since it came to its host: a migration starts a new QEMU process."""

    guest: Guest
    cpu_time: float = 0.0
    memory: float = 0.0


class Integrator:
    """Turns demands into counters by integrating them over time. The one mutable thing here."""

    def __init__(
        self, hosts: Iterable[str], cores: int, memory_bytes: float, now: float
    ) -> None:
        self.hosts = {name: HostCounters(cores, memory_bytes, now) for name in hosts}
        #: by (host, server UUID)
        self.guests: dict[tuple[str, str], GuestCounters] = {}
        self._loads = Loads()
        self._now = now

    def advance(self, now: float) -> None:
        """Let the present demands run until ``now`` (epoch seconds; never back)."""
        seconds = max(0.0, now - self._now)
        self._now += seconds
        for name, host in self.hosts.items():
            self._run(name, host, seconds)

    def set(self, guests: Iterable[Guest], loads: Loads, now: float) -> None:
        """From ``now`` on these guests run with these loads; hosts not ours are ignored."""
        self.advance(now)
        before, self.guests = self.guests, {}
        for guest in guests:
            if guest.host in self.hosts:
                key = guest.host, guest.uuid
                counters = before.get(key) or GuestCounters(guest)
                counters.guest = guest
                self.guests[key] = counters
        self._loads = loads
        self.advance(now)

    def _run(self, name: str, host: HostCounters, seconds: float) -> None:
        base = self._loads.hosts.get(name, BASE)
        local = [c for (h, _), c in self.guests.items() if h == name]
        demands = [demand(c.guest, self._loads) for c in local]
        cpu = base.cpu + sum(d.cpu for d in demands)
        # an overloaded host gives each guest the same share of its demand
        granted = min(1.0, host.cores / cpu) if cpu else 1.0
        for counters, use in zip(local, demands, strict=True):
            counters.cpu_time += use.cpu * granted * seconds
            counters.memory = use.memory
        host.busy += cpu * granted * seconds
        host.idle += (host.cores - cpu * granted) * seconds
        host.cpu_waiting += (1.0 - granted) * seconds
        disk = base.disk + sum(d.disk for d in demands)
        host.disk_busy += min(1.0, disk) * seconds
        host.io_waiting += min(1.0, max(0.0, disk - 1.0)) * seconds
        memory = base.memory + sum(d.memory for d in demands)
        host.memory_used = min(memory, host.memory_total)
        excess = max(0.0, memory / host.memory_total - 1.0)
        host.memory_stalled += min(1.0, excess) * seconds
