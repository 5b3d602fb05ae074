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

"""The state of the simulated cloud: hosts, instances, groups, migrations."""

from collections.abc import Callable
import dataclasses
import random
import uuid

#: The pool of hosts in no aggregate is the other scope.
AGGREGATE = 'blue'
CORES = 10
MEMORY_MB = 16384
#: What an instance uses, in cores.
LOADS = 0.3, 3.0
#: Nova's statuses of a migration that is over.
ENDED = frozenset({'completed', 'failed', 'error', 'cancelled', 'confirmed', 'reverted',
                   'done'})
LIVE, COLD, RESIZE, EVACUATION = 'live-migration', 'migration', 'resize', 'evacuation'
#: So many seconds after a live migration Nova's scheduler learns what has gone.
SYNC = 15.0
#: A host more, empty at first, of runs with campaigns.
SPARE = 'spare'


@dataclasses.dataclass
class Host:
    name: str
    uuid: str
    enabled: bool = True
    up: bool = True
    reason: str | None = None
    generation: int = 1
    #: The allocations at this generation, by consumer; None: they were not read yet.
    allocations: dict[str, dict[str, int]] | None = None


@dataclasses.dataclass
class Instance:
    uuid: str
    #: None: shelved, and on no host.
    host: str | None
    vcpus: int
    memory_mb: int
    #: Cores in use.
    load: float
    status: str = 'ACTIVE'
    task_state: str | None = None
    locked: bool = False
    group: str | None = None
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Returns the time, for ``changed_at``.
    clock: Callable[[], float] = dataclasses.field(default=float, compare=False, repr=False)
    #: When Nova last wrote its record.
    changed_at: float = 0.0

    def __setattr__(self, name: str, value: object) -> None:
        changes = name != 'changed_at' and getattr(self, name, None) != value
        super().__setattr__(name, value)
        if changes:
            super().__setattr__('changed_at', self.clock())

    @property
    def claims(self) -> dict[str, int]:
        return {'VCPU': self.vcpus, 'MEMORY_MB': self.memory_mb, 'DISK_GB': 1}


@dataclasses.dataclass
class Migration:
    """``task_id`` is empty when the operator asked for it."""

    id: int
    uuid: str
    instance_uuid: str
    from_host: str
    to_host: str
    task_id: str
    scope: str
    #: Asked for at this change of the cloud by other hands than ours.
    known: int
    status: str = 'accepted'
    ends_at: float = 0.0
    end: str = 'completed'
    #: When Nova last wrote of it.
    changed_at: float = 0.0
    #: What Nova says of its end.
    told: str = ''
    #: It has failed, and until then Placement holds what it had taken.
    held_until: float = 0.0
    type: str = LIVE
    #: The instance's status before a cold migration or resize.
    before: str = 'ACTIVE'
    #: The task whose executor stood still in its request, which came too late.
    late: str = ''
    #: An executor that stood still in its request asked for a move that its successor watches.
    repeated: bool = False
    #: Nova goes on with it, and will for ever.
    endless: bool = False
    #: Nova works on it no more, and does not say so.
    left: bool = False
    #: Nova has accepted an abort by us.
    aborted: bool = False
    #: It has, and does nothing about it.
    unheeded: bool = False

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


class Cloud:
    """Two scopes of two or three hosts, a handful of instances, three groups."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.hosts: dict[str, Host] = {}
        self.instances: dict[str, Instance] = {}
        #: Deleted ones, whose ``changed_at`` is the time of their deletion.
        self.deleted: dict[str, Instance] = {}
        self.migrations: list[Migration] = []
        self.groups: dict[str, tuple[str, set[str]]] = {}
        self.now = 0.0
        #: How often others than we changed what rules judge; and when an
        #: instance was locked, stopped or deleted.
        self.foreign = 0
        self._build()

    def add_spare_host(self) -> None:
        """Add an empty host to the aggregate, and let the affinity group keep nothing in place."""
        for policy, members in self.groups.values():
            if policy == 'affinity':
                for member in members:
                    self.instances[member].group = None
                members.clear()
        self.hosts[SPARE] = Host(SPARE, self.uuid())
        self.aggregates[AGGREGATE].append(SPARE)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def _build(self) -> None:
        names = [f'h{n}' for n in range(self.rng.choice([4, 4, 5]))]
        self.hosts = {n: Host(n, self.uuid()) for n in names}
        self.aggregates = {AGGREGATE: names[:2] if len(names) == 4 else names[:3]}
        for members in self.scopes().values():
            crowded = self.rng.choice(members)
            for _ in range(self.rng.randint(4, 5)):
                host = crowded if self.rng.random() < 0.6 else self.rng.choice(members)
                self._boot(host)
            # Destinations that are nearly full show whether both ends are charged.
            if self.rng.random() < 0.3:
                self._boot(self.rng.choice(members), vcpus=6, load=0.2)
        for policy in ('anti-affinity', 'affinity'):
            free = [i for i in self.instances.values() if i.group is None]
            apart: dict[str, Instance] = {}
            for instance in free:
                if policy == 'affinity' and apart and instance.host not in apart:
                    continue
                apart.setdefault(instance.host if policy == 'anti-affinity'
                                 else instance.uuid, instance)
                if policy == 'affinity':
                    break
            group = self.uuid()
            members = {i.uuid for i in apart.values()}
            self.groups[group] = (policy, members)
            for member in members:
                self.instances[member].group = group
        # Members of one that may share a host still move one after the other.
        together = [i for i in self.instances.values() if i.group is None]
        crowded = self.rng.choice(list(self.hosts))
        together.sort(key=lambda i: i.host != crowded)
        group = self.uuid()
        self.groups[group] = ('soft-anti-affinity', {i.uuid for i in together[:3]})
        for instance in together[:3]:
            instance.group = group

    def _boot(self, host: str, vcpus: int = 2, load: float | None = None) -> None:
        if self.used(host)['VCPU'] + vcpus > CORES:
            return
        instance = Instance(self.uuid(), host, vcpus, 1024 * vcpus,
                            self.rng.uniform(*LOADS) if load is None else load,
                            clock=lambda: self.now)
        self.instances[instance.uuid] = instance

    def delete(self, uuid: str) -> None:
        """Delete an instance: Nova writes its record before."""
        self.deleted[uuid] = instance = self.instances.pop(uuid)
        instance.changed_at = self.now

    # Questions.

    def scopes(self) -> dict[str, list[str]]:
        inside = self.aggregates[AGGREGATE]
        return {AGGREGATE: list(inside),
                '_unassigned_': [h for h in self.hosts if h not in inside]}

    def active(self) -> list[Migration]:
        return [m for m in self.migrations if not m.has_ended and not m.left]

    def ours(self) -> list[Migration]:
        return [m for m in self.active() if m.task_id]

    def flight(self, instance: str) -> Migration | None:
        return next((m for m in self.active() if m.instance_uuid == instance), None)

    def held(self, instance: str) -> Migration | None:
        """A migration that has failed and has not given back its allocations."""
        return next((m for m in self.migrations if m.instance_uuid == instance
                     and m.held_until > self.now), None)

    def consumers(self, host: str) -> dict[str, dict[str, int]]:
        """Placement's allocations on a host: while a migration runs, its own
        UUID holds the source and the instance holds the destination."""
        out = {}
        for instance in self.instances.values():
            migration = self.flight(instance.uuid) or self.held(instance.uuid)
            if migration is None or migration.status == 'accepted':
                if instance.host == host:
                    out[instance.uuid] = instance.claims
                continue
            if migration.from_host == host:
                out[migration.uuid] = instance.claims
            if migration.to_host == host:
                out[instance.uuid] = instance.claims
        return out

    def used(self, host: str) -> dict[str, int]:
        total = {'VCPU': 0, 'MEMORY_MB': 0, 'DISK_GB': 0}
        for claims in self.consumers(host).values():
            for name, amount in claims.items():
                total[name] += amount
        return total

    def count_generation(self, host: Host) -> int:
        """Return the generation of a host's provider.

        Placement raises it when it adds an allocation, not when it takes one away; see
        kronos_nova.rebalancer.clients.provider_trees. Two changes between two reads count once.
        """
        allocations, before = self.consumers(host.name), host.allocations
        if before is not None and any(
                before.get(consumer) != claims for consumer, claims in allocations.items()):
            host.generation += 1
        host.allocations = allocations
        return host.generation

    def members_on(self, group: str, host: str, but: str = '') -> int:
        """Members of a group that are on a host, or come to it."""
        count = 0
        for uuid_ in self.groups[group][1]:
            instance = self.instances.get(uuid_)
            if instance is None or uuid_ == but:
                continue
            migration = self.flight(uuid_)
            ends = {instance.host} | ({migration.to_host} if migration is not None else set())
            count += host in ends
        return count

    def wrong(self, instance: Instance, to_host: str) -> str | None:
        """What Nova's scheduler, its late group check and Placement would
        refuse; counted here without any code of ours."""
        destination = self.hosts[to_host]
        if not (destination.enabled and destination.up):
            return 'the destination is disabled or down'
        used = self.used(to_host)
        if used['VCPU'] + instance.vcpus > CORES or (
                used['MEMORY_MB'] + instance.memory_mb > MEMORY_MB):
            return 'the destination is overfilled'
        if instance.group is not None:
            policy, _members = self.groups[instance.group]
            there = self.members_on(instance.group, to_host, but=instance.uuid)
            if policy == 'anti-affinity' and there:
                return 'a hard server group is worsened'
            if policy == 'affinity' and not there:
                return 'a hard server group is worsened'
        return None

    def unlearnt(self, instance: Instance, to_host: str) -> str | None:
        """What Nova's scheduler would refuse since it has not heard who has gone."""
        if instance.group is None or self.groups[instance.group][0] != 'anti-affinity':
            return None
        for m in self.migrations:
            # The source of a resize or cold migration tells it when that is confirmed.
            if (m.type == LIVE and m.from_host == to_host and m.has_ended
                    and m.instance_uuid != instance.uuid
                    and m.instance_uuid in self.groups[instance.group][1]
                    and m.instance_uuid in self.instances
                    and self.instances[m.instance_uuid].host != to_host
                    and self.now - m.changed_at < SYNC):
                return f'the scheduler takes {m.instance_uuid} for being there still'
        return None

    # Changes by other hands.

    def shift(self) -> None:
        """What instances use is another thing tomorrow."""
        for instance in self.instances.values():
            instance.load = self.rng.uniform(*LOADS)

    def changed(self) -> None:
        self.foreign += 1

    def one(self, having: Callable[[Instance], bool]) -> Instance | None:
        matching = [i for i in self.instances.values() if having(i)]
        return self.rng.choice(matching) if matching else None
