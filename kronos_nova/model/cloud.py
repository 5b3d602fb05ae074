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

"""The cloud as Nova and Placement show it: hosts, providers, instances and server groups."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import itertools
import math
from typing import NamedTuple

from kronos_nova.model import campaigns
from kronos_nova.model import contracts as agreements
from kronos_nova.model import spread_requests

#: Scope name of the hosts that are in no aggregate, as Kronos spells it.
UNASSIGNED = '_unassigned_'
#: Key of the metadata of an aggregate that names the failure domain of its hosts.
DOMAIN_KEY = 'kronos:domain'
#: Status of a service whose cell does not answer: Nova knows only its name.
UNKNOWN = 'UNKNOWN'


class GroupPolicy(enum.StrEnum):
    """Nova's server group policies."""

    AFFINITY = 'affinity'
    ANTI_AFFINITY = 'anti-affinity'
    SOFT_AFFINITY = 'soft-affinity'
    SOFT_ANTI_AFFINITY = 'soft-anti-affinity'

    @property
    def is_hard(self) -> bool:
        return self in (GroupPolicy.AFFINITY, GroupPolicy.ANTI_AFFINITY)


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """A nova-compute service record of os-services.

    ``reported_at``: when Nova wrote the record last, as at each report of the service (epoch).
    None: not known. Snapshots do not have it, and services that differ in it alone are equal.
    """

    host: str
    status: str = 'enabled'
    state: str = 'up'
    forced_down: bool = False
    disabled_reason: str | None = None
    zone: str = ''
    binary: str = 'nova-compute'
    reported_at: float | None = dataclasses.field(default=None, compare=False)

    @property
    def up(self) -> bool:
        """True when Nova can talk to the service."""
        return self.state == 'up' and not self.forced_down

    @property
    def enabled(self) -> bool:
        return self.status == 'enabled'

    @property
    def drained(self) -> bool:
        """True when the host counts for max_drain_fraction: disabled, and up or to be so soon.

        A host of a campaign is down while it reboots, and then comes back disabled.
        """
        return not self.enabled and (
            self.up or campaigns.CAMPAIGN_MARK in (self.disabled_reason or ''))

    @property
    def available(self) -> bool:
        """True when the host may receive instances."""
        return self.up and self.enabled


@dataclasses.dataclass(frozen=True, slots=True)
class Inventory:
    """One resource class of a provider, with Placement's field names."""

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0
    min_unit: int = 1
    max_unit: int = 2**31 - 1
    step_size: int = 1

    @property
    def capacity(self) -> float:
        """The amount that Placement lets consumers allocate in sum.

        Source: placement.objects.allocation, (total - reserved) * ratio.
        """
        return (self.total - self.reserved) * self.allocation_ratio


@dataclasses.dataclass(frozen=True, slots=True)
class Provider:
    """A resource provider: its inventories, traits and allocated amounts.

    ``parent_uuid``: None for a root. ``aggregates`` are Placement's, by UUID: those through which
    a provider shares.
    """

    uuid: str
    generation: int = 0
    inventories: Mapping[str, Inventory] = dataclasses.field(default_factory=dict)
    used: Mapping[str, int] = dataclasses.field(default_factory=dict)
    name: str = ''
    parent_uuid: str | None = None
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """A compute service host with its one hypervisor.

    ``name`` is the service host; ``hypervisor_hostname`` may differ from it. ``provider``: the
    root of its tree, None when Placement was not read (an old snapshot). ``nested`` is the rest
    of the tree, parents first, then by UUID. ``sharing`` are the UUIDs of providers, in
    ``Cluster.sharing``, that share with the tree. ``hypervisor_version`` is os-hypervisors'
    number, 0 unknown.
    """

    name: str
    hypervisor_hostname: str = ''
    uuid: str = ''
    hypervisor_type: str = 'QEMU'
    zone: str = ''
    cell: str | None = None
    provider: Provider | None = None
    traits: frozenset[str] = frozenset()
    nested: tuple[Provider, ...] = ()
    sharing: frozenset[str] = frozenset()
    hypervisor_version: int = 0

    @property
    def tree(self) -> tuple[Provider, ...]:
        """The providers of the tree, root first; empty without a root."""
        return () if self.provider is None else (self.provider, *self.nested)

    def sum_inventories(self, resource_class: str) -> int:
        """Return the sum of the inventories of a class in the tree; 0 without any."""
        return sum(p.inventories[resource_class].total for p in self.tree
                   if resource_class in p.inventories)

    def sum_capacities(self) -> dict[str, float]:
        """Return the amount that Placement lets consumers allocate of the tree, by class."""
        capacities: dict[str, float] = {}
        for provider in self.tree:
            for name, inventory in provider.inventories.items():
                capacities[name] = capacities.get(name, 0.0) + inventory.capacity
        return capacities


class BootLimit(NamedTuple):
    """The amounts up to which boots may fill a host; infinite: no limit.

    They are amounts as nova-compute reports them: all that its instances have, and all that it
    keeps for the host itself.
    """

    vcpus: float = math.inf
    memory_mb: float = math.inf
    disk_gb: float = math.inf


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """An instance on the host that Nova records.

    ``claims`` are its allocations by resource class, over all providers, ``allocations`` the same
    by provider UUID; empty where only the sums are known (an old snapshot): then all are on its
    host's root. ``pinned`` is a reason why we must never move it (None: movable).
    ``local_disk_gb``: its disks besides volumes, which a migration between hosts without shared
    storage copies; 0 is certain, None is unknown (an old snapshot). ``launched_at``: when it was
    booted, unshelved or resized to its host, seconds since the epoch. ``extra_specs`` of its
    flavor and ``image_properties`` are None where Nova does not show them, ``scheduler_hints``
    those that rules look at: instance UUIDs by hint. ``power_state`` is Nova's number, None
    unknown. ``opted_out`` names where its owner has opted out of moves, in the operator's words.
    ``contracts``: each source that states what may be done to it, with its statements.
    ``spread``: the kinds of failure domains over which it is to be spread, of all sources.
    """

    uuid: str
    host: str
    name: str = ''
    internal_name: str = ''
    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    status: str = 'ACTIVE'
    task_state: str | None = None
    locked: bool = False
    claims: Mapping[str, int] = dataclasses.field(default_factory=dict)
    pinned: str | None = None
    pinned_zone: str | None = None
    project_id: str = ''
    local_disk_gb: int | None = None
    launched_at: float | None = None
    allocations: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    extra_specs: Mapping[str, str] | None = None
    image_properties: Mapping[str, str] | None = None
    scheduler_hints: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    power_state: int | None = None
    opted_out: str | None = None
    contracts: tuple[agreements.Contract, ...] = ()
    spread: tuple[spread_requests.SpreadRequest, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ServerGroup:
    """A server group; ``members`` are instance UUIDs, on any host."""

    uuid: str
    policy: GroupPolicy
    members: frozenset[str] = frozenset()
    max_server_per_host: int = 1
    name: str = ''


@dataclasses.dataclass(frozen=True, slots=True)
class InFlightMove:
    """A migration that Nova or one of our tasks is carrying out.

    ``to_host``: None until the scheduler has chosen. The instance counts at both ends, and at the
    ``alternates`` where a task may end instead. ``scope``: that of the task's plan; None for
    migrations that are not ours, and where it is not known (an old snapshot). ``slotless``: Nova
    has long not changed the migration of this task, which uses up no budget any more.
    """

    instance_uuid: str
    from_host: str
    to_host: str | None
    source: str = 'nova'
    alternates: tuple[str, ...] = ()
    scope: str | None = None
    slotless: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """The whole cloud at one time, and the part that is planned.

    ``scope_hosts`` are the hosts that may give and take; every other host still counts for groups
    and claims. ``sharing`` are the sharing providers by UUID. ``placement_known`` is False only
    for snapshots that carry no Placement data. ``aggregate_metadata`` by the name of the
    aggregate, as in ``aggregates``. ``planned_zone``: hosts of other availability zones belong to
    no scope; None: hosts of every zone do. ``unreadable_hosts`` are hosts of the scope whose cell
    did not answer Nova: only their names are known, and they are not in ``hosts``.
    """

    hosts: Mapping[str, Host]
    instances: Mapping[str, Instance]
    services: Mapping[str, Service]
    groups: tuple[ServerGroup, ...] = ()
    flights: tuple[InFlightMove, ...] = ()
    aggregates: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    scope: str = UNASSIGNED
    scope_hosts: frozenset[str] = frozenset()
    placement_known: bool = True
    taken_at: float = 0.0
    sharing: Mapping[str, Provider] = dataclasses.field(default_factory=dict)
    aggregate_metadata: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    planned_zone: str | None = None
    unreadable_hosts: frozenset[str] = frozenset()

    def replace_scope(self, scope: str, named: Sequence[str] = ()) -> 'Cluster':
        """Return the same cloud with another scope under plan.

        :param named: the aggregates that are planned, in order: a host in several aggregates
            belongs to the first.
        :raises KeyError: no such aggregate.
        """
        hosts, unreadable = set(self.list_hosts_of(scope)), self._unreadable_hosts_of(scope)
        for earlier in itertools.takewhile(lambda name: name != scope, named):
            hosts.difference_update(self.aggregates.get(earlier, ()))
            unreadable.difference_update(self.aggregates.get(earlier, ()))
        return dataclasses.replace(self, scope=scope, scope_hosts=frozenset(hosts),
                                   unreadable_hosts=frozenset(unreadable))

    def replace_services(self, services: Mapping[str, Service]) -> 'Cluster':
        """Return the same cloud with the states of services that were read later.

        :param services: by host; those of other hosts stay as they are.
        """
        if not services:
            return self
        return dataclasses.replace(self, services={
            host: before if (now := services.get(host)) is None else dataclasses.replace(
                before, status=now.status, state=now.state, forced_down=now.forced_down,
                disabled_reason=now.disabled_reason)
            for host, before in self.services.items()})

    def _unreadable_hosts_of(self, scope: str) -> set[str]:
        """Return the hosts that may belong to the scope and whose cell did not answer.

        Their zone is that of the metadata of their aggregates; without any it may be the planned
        one.
        """
        unreadable = {h for h, service in self.services.items() if service.status == UNKNOWN}
        if scope == UNASSIGNED:
            unreadable -= self._list_assigned_hosts()
        else:
            unreadable.intersection_update(self.aggregates.get(scope, ()))
        return {h for h in unreadable if self.planned_zone is None
                or self._zones_named(h) <= {self.planned_zone}}

    def _zones_named(self, host: str) -> set[str]:
        return {metadata['availability_zone'] for name, metadata
                in self.aggregate_metadata.items()
                if host in self.aggregates.get(name, ()) and 'availability_zone' in metadata}

    def shared_hosts(self, named: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the hosts in several of the named aggregates, with these in their order.

        The first aggregate is the scope that the host belongs to.
        """
        aggregates_by_host: dict[str, list[str]] = {}
        for name in dict.fromkeys(named):
            for host in self.aggregates.get(name, ()):
                aggregates_by_host.setdefault(host, []).append(name)
        return {host: tuple(names) for host, names in sorted(aggregates_by_host.items())
                if len(names) > 1 and self.has_planned(host)}

    def list_hosts_of(self, scope: str) -> tuple[str, ...]:
        """Return the hosts of a scope in the planned zone, sorted.

        The scope is an aggregate, or UNASSIGNED, the pool of hosts in no aggregate but those that
        only name a failure domain.

        :raises KeyError: no such aggregate.
        """
        if scope == UNASSIGNED:
            host_names: Iterable[str] = self.hosts.keys() - self._list_assigned_hosts()
        else:
            host_names = self.aggregates[scope]
        return tuple(sorted(h for h in host_names if self.has_planned(h)))

    def _list_assigned_hosts(self) -> set[str]:
        """Return the hosts of aggregates; an aggregate that only names a domain assigns none."""
        return {host for name, hosts in self.aggregates.items()
                if set(self.aggregate_metadata.get(name, ())) != {DOMAIN_KEY} for host in hosts}

    def has_planned(self, host: str) -> bool:
        """Return whether the host exists and its zone is planned.

        A host without a zone stands only in snapshots of early releases of
        Kronos, which planned it.
        """
        return host in self.hosts and (
            self.planned_zone is None or self.find_zone_of(host) in (self.planned_zone, ''))

    def find_zone_of(self, host: str) -> str:
        service = self.services.get(host)
        return self.hosts[host].zone if service is None else service.zone
