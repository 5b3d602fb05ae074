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

"""The values that all other modules use: frozen, complete, free of I/O.

Units: memory in MiB, disk in GiB, time in seconds since the epoch (UTC), a score is a host's
utilisation ratio in [0, 1], a usage is an instance's share in the unit of the policy's capacity
(cores, bytes, bytes/s). Every identity is a UUID or a Nova service host name; names that tenants
choose are carried for people to read and are never keys.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import itertools
from typing import Any

from kronos_nova import lookback

#: Scope name of the hosts that are in no aggregate, as Kronos spells it.
UNASSIGNED = '_unassigned_'


def _make_mapping_field() -> Any:
    return dataclasses.field(default_factory=dict)


class Phase(enum.StrEnum):
    """The reason for a move; all but ``requested`` are Kronos's wire values."""

    EVACUATE = 'evacuate'
    AFFINITY = 'affinity'
    SPREAD = 'spread'
    PACK = 'pack'
    #: A user asked for this very move.
    REQUESTED = 'requested'


class DrainMode(enum.StrEnum):
    """The destinations of a drained host's instances.

    ``auto``: those of the least imbalance; ``compact``: the fewest hosts; ``scatter``: as many
    instances to each host as to any other.
    """

    AUTO = 'auto'
    COMPACT = 'compact'
    SCATTER = 'scatter'


class MoveMethod(enum.StrEnum):
    """The way in which Nova moves an instance.

    ``offline``: a running instance is shut down, moved cold and started again, on request.
    """

    LIVE = 'live'
    COLD = 'cold'
    OFFLINE = 'offline'

    @property
    def cold(self) -> bool:
        """True when Nova migrates the instance cold."""
        return self is not MoveMethod.LIVE


class GroupPolicy(enum.StrEnum):
    """Nova's server group policies."""

    AFFINITY = 'affinity'
    ANTI_AFFINITY = 'anti-affinity'
    SOFT_AFFINITY = 'soft-affinity'
    SOFT_ANTI_AFFINITY = 'soft-anti-affinity'

    @property
    def hard(self) -> bool:
        return self in (GroupPolicy.AFFINITY, GroupPolicy.ANTI_AFFINITY)


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """A nova-compute service record of os-services."""

    host: str
    status: str = 'enabled'
    state: str = 'up'
    forced_down: bool = False
    disabled_reason: str | None = None
    zone: str = ''
    binary: str = 'nova-compute'

    @property
    def up(self) -> bool:
        """True when Nova can talk to the service."""
        return self.state == 'up' and not self.forced_down

    @property
    def enabled(self) -> bool:
        return self.status == 'enabled'

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
    inventories: Mapping[str, Inventory] = _make_mapping_field()
    used: Mapping[str, int] = _make_mapping_field()
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

    def total(self, resource_class: str) -> int:
        """Return the sum of the inventories of a class in the tree; 0 without any."""
        return sum(p.inventories[resource_class].total for p in self.tree
                   if resource_class in p.inventories)

    def capacities(self) -> dict[str, float]:
        """Return the amount that Placement lets consumers allocate of the tree, by class."""
        found: dict[str, float] = {}
        for provider in self.tree:
            for name, inventory in provider.inventories.items():
                found[name] = found.get(name, 0.0) + inventory.capacity
        return found


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
    claims: Mapping[str, int] = _make_mapping_field()
    pinned: str | None = None
    pinned_zone: str | None = None
    project_id: str = ''
    local_disk_gb: int | None = None
    launched_at: float | None = None
    allocations: Mapping[str, Mapping[str, int]] = _make_mapping_field()
    extra_specs: Mapping[str, str] | None = None
    image_properties: Mapping[str, str] | None = None
    scheduler_hints: Mapping[str, tuple[str, ...]] = _make_mapping_field()
    power_state: int | None = None
    opted_out: str | None = None


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


#: Status of a service whose cell does not answer: Nova knows only its name.
UNKNOWN = 'UNKNOWN'


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
    aggregates: Mapping[str, tuple[str, ...]] = _make_mapping_field()
    scope: str = UNASSIGNED
    scope_hosts: frozenset[str] = frozenset()
    placement_known: bool = True
    taken_at: float = 0.0
    sharing: Mapping[str, Provider] = _make_mapping_field()
    aggregate_metadata: Mapping[str, Mapping[str, str]] = _make_mapping_field()
    planned_zone: str | None = None
    unreadable_hosts: frozenset[str] = frozenset()

    def scoped(self, scope: str, named: Sequence[str] = ()) -> 'Cluster':
        """Return the same cloud with another scope under plan.

        :param named: the aggregates that are planned, in order: a host in several aggregates
            belongs to the first.
        :raises KeyError: no such aggregate.
        """
        hosts, unreadable = set(self.hosts_of(scope)), self._unreadable_hosts_of(scope)
        for earlier in itertools.takewhile(lambda name: name != scope, named):
            hosts.difference_update(self.aggregates.get(earlier, ()))
            unreadable.difference_update(self.aggregates.get(earlier, ()))
        return dataclasses.replace(self, scope=scope, scope_hosts=frozenset(hosts),
                                   unreadable_hosts=frozenset(unreadable))

    def _unreadable_hosts_of(self, scope: str) -> set[str]:
        """Return the hosts that may belong to the scope and whose cell did not answer.

        Their zone is that of the metadata of their aggregates; without any it may be the planned
        one.
        """
        unreadable = {h for h, service in self.services.items() if service.status == UNKNOWN}
        if scope == UNASSIGNED:
            unreadable.difference_update(*self.aggregates.values())
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
        found: dict[str, list[str]] = {}
        for name in dict.fromkeys(named):
            for host in self.aggregates.get(name, ()):
                found.setdefault(host, []).append(name)
        return {host: tuple(names) for host, names in sorted(found.items())
                if len(names) > 1 and self.has_planned(host)}

    def hosts_of(self, scope: str) -> tuple[str, ...]:
        """Return the hosts of a scope in the planned zone, sorted.

        The scope is an aggregate, or UNASSIGNED, the pool of hosts in no aggregate.

        :raises KeyError: no such aggregate.
        """
        if scope == UNASSIGNED:
            held = {h for hosts in self.aggregates.values() for h in hosts}
            found: Iterable[str] = self.hosts.keys() - held
        else:
            found = self.aggregates[scope]
        return tuple(sorted(h for h in found if self.has_planned(h)))

    def has_planned(self, host: str) -> bool:
        """Return whether the host exists and its zone is planned.

        A host without a zone stands only in snapshots of early releases of
        Kronos, which planned it.
        """
        return host in self.hosts and (
            self.planned_zone is None or self.zone_of(host) in (self.planned_zone, ''))

    def zone_of(self, host: str) -> str:
        service = self.services.get(host)
        return self.hosts[host].zone if service is None else service.zone


class SourceHealth(enum.StrEnum):
    """The reliability of a source's answer."""

    HEALTHY = 'HEALTHY'
    STALE = 'STALE'
    PARTIAL = 'PARTIAL'
    UNREACHABLE = 'UNREACHABLE'


@dataclasses.dataclass(frozen=True, slots=True)
class QueryResult:
    """A source's answer to one query: values by label, or a named reason.

    ``series`` maps the value of the asked label to the sample; it holds only finite numbers.
    ``error`` says why the answer must not be used; then ``series`` is empty. ``duplicates`` are
    label values that came more than once: ``series`` has no value for them.
    """

    query: str
    health: SourceHealth
    series: Mapping[str, float] = _make_mapping_field()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    missing_labels: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PolicySamples:
    """All samples that a source has of one policy at one time.

    ``age`` is the age in seconds of the samples behind ``imbalance``, the median of its hosts (a
    source leaves out hosts that are too old); None means that the policy has no ``age_query``:
    unverified. ``asked_ago``: seconds before the call at which the source really was asked, when
    another process has done it; ``age`` is as of then.
    """

    policy: str
    imbalance: QueryResult
    profile: QueryResult | None = None
    capacity: QueryResult | None = None
    host_capacity: QueryResult | None = None
    age: float | None = None
    taken_at: float = 0.0
    mean: QueryResult | None = None
    deviation: QueryResult | None = None
    dirty_rate: QueryResult | None = None
    asked_ago: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyScores:
    """The scores of one policy, mapped to Nova's hosts and instances.

    ``hosts``: score in [0, 1] by host. ``fill``: the values that ceilings are compared with, by
    host (a pack policy's ``capacity_query``, else the score). ``capacity``: by host, in the unit
    of ``usages``. ``usages``: by instance UUID, only of instances that have a profile or a
    fallback. ``means`` and ``deviations``: the usage of an instance over hours, in the unit of
    ``usages``; an instance without them is steady. ``dirty_rates``: bytes a second that instances
    write to their memory, by UUID, where it is measured. ``untrusted``: why imbalance moves must
    not use the policy; None: they may. ``coverage``: by host, the share of the score that its
    instances' usages explain. ``window``: seconds over which its queries look back at most,
    ``score_look`` and ``fill_look``: the lookback of the queries of ``hosts`` and ``fill``.
    ``staleness``: how old samples may be, in seconds, when ``age`` is not known.
    """

    policy: str
    hosts: Mapping[str, float] = _make_mapping_field()
    fill: Mapping[str, float] = _make_mapping_field()
    capacity: Mapping[str, float] = _make_mapping_field()
    usages: Mapping[str, float] = _make_mapping_field()
    coverage: Mapping[str, float] = _make_mapping_field()
    missing: frozenset[str] = frozenset()
    untrusted: str | None = None
    age: float | None = None
    warnings: tuple[str, ...] = ()
    window: float = 0.0
    score_look: lookback.LookbackWindow = lookback.LookbackWindow()
    fill_look: lookback.LookbackWindow = lookback.LookbackWindow()
    staleness: float = 0.0
    means: Mapping[str, float] = _make_mapping_field()
    deviations: Mapping[str, float] = _make_mapping_field()
    dirty_rates: Mapping[str, float] = _make_mapping_field()

    def knows(self, host: str) -> bool:
        """Return whether the host has all values for imbalance moves; else it is frozen."""
        return host in self.hosts and host in self.fill and host in self.capacity


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterScores:
    """Every enabled policy's scores at one time."""

    policies: Mapping[str, PolicyScores]
    taken_at: float = 0.0

    @property
    def untrusted(self) -> tuple[str, ...]:
        """``policy: reason`` of each policy that must not be used."""
        return tuple(f'{name}: {p.untrusted}' for name, p in sorted(self.policies.items())
                     if p.untrusted)


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreChange:
    """The scores of both hosts under one policy, before and after a move of a plan.

    The moves before it in the plan's order, and all moves under way, count as done. None: the
    host is frozen under the policy.
    """

    policy: str
    from_before: float | None
    from_after: float | None
    to_before: float | None
    to_after: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """One instance, one source, one destination.

    ``improvement`` is the fall in combined imbalance. ``wave`` counts from
    0. ``requires`` are instance UUIDs of this plan whose moves must have
    completed before. ``alternate_improvements``: of each of ``alternates``, the
    combined imbalance of the plan without the move less that of the plan with the
    alternate; empty where scores are not trusted. ``gain``: the combined imbalance of the
    plan without this move alone less that of the plan; None where scores are not trusted.
    ``changes`` in the order of the policies; empty where scores are not trusted.
    """

    instance_uuid: str
    from_host: str
    to_host: str
    phase: Phase
    improvement: float = 0.0
    wave: int = 0
    requires: tuple[str, ...] = ()
    alternates: tuple[str, ...] = ()
    alternate_improvements: tuple[float, ...] = ()
    gain: float | None = None
    changes: tuple[ScoreChange, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Swap:
    """Two instances of a plan that both move, or neither does; ``second`` requires ``first``.

    They change places; or spread moves them, and either move alone would do harm. With
    ``parking`` the first one moves there, and on to the place of the second one when that has
    moved.
    """

    first: str
    second: str
    parking: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Rejection:
    """A refusal by a rule: ``rule`` is its stable name, ``detail`` is for people."""

    rule: str
    detail: str


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredAttempt:
    """One attempt at a live migration that Nova has begun.

    ``memory_mb``: the memory that is copied; ``disk_gb``: the disks that are copied at most.
    ``running``: seconds in which they were copied, ``other``: seconds of Nova's other phases and
    of ours after them. ``arrived``: the migration succeeded; ``late``: it ended after its
    deadline.
    """

    instance_uuid: str
    memory_mb: int
    disk_gb: int
    running: float
    other: float = 0.0
    arrived: bool = True
    late: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class MoveHistory:
    """Past events that still matter, as of the plan's ``now``.

    ``cooling`` and ``quarantined`` map instance UUIDs to seconds remaining (-1: for ever).
    ``fresh`` are seconds during which an instance that has just booted stays where the scheduler
    has put it. ``scope_cooling`` is in seconds. ``draining`` are hosts whose pack drain began in
    an earlier cycle. ``completed`` are moves with their completion times, newest last.
    ``local_disk_hosts`` are hosts off which Nova lately refused to move an instance without
    copying its disks. ``other_cells`` are pairs of hosts, each sorted, of which Nova lately did
    not find the one from the other. ``paused``: who has paused the scope and why; None: it is
    active. ``waiting`` says why imbalance moves alone have to wait. ``refused`` are hosts, by
    instance UUID, on which Placement lately had no allocation candidate for it, or did not
    answer; ``refused_everywhere`` are instances for which it was so on each host that was tried.
    ``measured`` are the attempts that costs are learned from, newest first.
    """

    cooling: Mapping[str, float] = _make_mapping_field()
    fresh: Mapping[str, float] = _make_mapping_field()
    quarantined: Mapping[str, float] = _make_mapping_field()
    quarantined_hosts: frozenset[str] = frozenset()
    scope_cooling: float = 0.0
    draining: frozenset[str] = frozenset()
    completed: tuple[tuple[Move, float], ...] = ()
    local_disk_hosts: frozenset[str] = frozenset()
    other_cells: frozenset[tuple[str, str]] = frozenset()
    paused: str | None = None
    waiting: str | None = None
    refused: Mapping[str, frozenset[str]] = _make_mapping_field()
    refused_everywhere: frozenset[str] = frozenset()
    measured: tuple[MeasuredAttempt, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyReport:
    """A policy's imbalance before and after a plan.

    ``age``: that of its samples then, in seconds; None: not known. ``imbalance_before`` counts
    moves in flight and those that wait for approval as done; ``imbalance_measured`` counts
    neither; None where an early release did not record it.
    """

    name: str
    imbalance_before: float | None
    imbalance_after: float | None
    threshold: float
    skipped: bool = False
    reason: str | None = None
    age: float | None = None
    imbalance_measured: float | None = None

    @property
    def measured(self) -> float | None:
        """The imbalance of the scores as they came from the metrics source."""
        return self.imbalance_before if self.imbalance_measured is None else self.imbalance_measured


@dataclasses.dataclass(frozen=True, slots=True)
class PackingDensity:
    """The density of the instances in a scope.

    ``hosts_in_use``: hosts that hold an instance or expect one. ``overload``: the sum, over the
    hosts that the plan moves from or to, of the excess of their fill over the ceiling of the
    policy that is nearest to its own, in parts of that ceiling.
    """

    hosts_in_use: int
    overload: float


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The decision of one cycle for one scope.

    ``reason`` says why a plan has no moves; None when it has some. ``rejections`` counts
    candidate moves refused, by rule, and instances for which no move was possible. ``held`` names
    the first of the latter. ``draining`` are hosts whose drain goes on in the next cycle.
    ``undrained`` are disabled hosts that keep their instances, each with the reason. ``load`` is
    the weighted mean of the scores that it was made on: an imbalance is compared with it later.
    Both instances of each of ``swaps`` have a move here. ``combined_measured`` counts no move in
    flight, ``combined_before`` counts them as done. ``packing_before`` and ``packing_after`` are
    of plans of mode pack with moves: the state before the plan, and its prediction.
    """

    scope: str
    moves: tuple[Move, ...] = ()
    policies: tuple[PolicyReport, ...] = ()
    combined_before: float | None = None
    combined_after: float | None = None
    rejections: Mapping[str, int] = _make_mapping_field()
    held: tuple[Rejection, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    draining: frozenset[str] = frozenset()
    truncated: bool = False
    load: float | None = None
    undrained: tuple[Rejection, ...] = ()
    swaps: tuple[Swap, ...] = ()
    combined_measured: float | None = None
    packing_before: PackingDensity | None = None
    packing_after: PackingDensity | None = None

    @property
    def measured(self) -> float | None:
        """The combined imbalance of the scores as they came from the metrics source."""
        return self.combined_before if self.combined_measured is None else self.combined_measured


class TaskState(enum.StrEnum):
    """The state of a task; ``unknown`` keeps its slot until it is reconciled."""

    PENDING = 'pending'
    QUEUED = 'queued'
    CLAIMED = 'claimed'
    SUBMITTING = 'submitting'
    SUBMITTED = 'submitted'
    COMPLETED = 'completed'
    FAILED = 'failed'
    CANCELLED = 'cancelled'
    UNKNOWN = 'unknown'

    @property
    def terminal(self) -> bool:
        return self in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)


@dataclasses.dataclass(frozen=True, slots=True)
class TreeDigest:
    """The state of a host's provider tree that a plan was made with.

    ``shape`` is a digest of its providers' UUIDs, their parents and the classes of their
    inventories. ``generation`` is the sum of their generations: as long as the shape stays it
    only grows.
    """

    host: str
    shape: str
    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class TaskHook:
    """A hook that a task brings: its name, and parameters of its own (as JSON has them)."""

    name: str
    parameters: Mapping[str, Any] = _make_mapping_field()


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A move that an executor carries out; field names are Kronos's wire names.

    ``memory_mb`` and ``disk_gb`` are copied at most. ``method``: a stopped instance is moved
    cold. ``trees`` are of its source, destination and alternates, where they were known; they do
    not go over the wire. ``improvement`` is that of ``to_host``, ``alternate_improvements`` as of
    a Move. ``hooks``: beside those of [hooks] enabled, or with parameters for one that is
    enabled; nor do they. ``counts_alternates``: an attempt at an alternate counts as a retry, so
    ``max_retries`` bounds all attempts; nor does that go over the wire.
    """

    task_id: str
    plan_id: str
    aggregate: str
    instance_uuid: str
    from_host: str
    to_host: str
    phase: Phase
    policy_names: tuple[str, ...] = ()
    instance_name: str = ''
    improvement: float = 0.0
    priority: int = 5
    wave: int = 0
    requires: tuple[str, ...] = ()
    alternates: tuple[str, ...] = ()
    max_retries: int = 3
    retry_count: int = 0
    not_before: float = 0.0
    created_at: float = 0.0
    deadline: float | None = None
    state: TaskState = TaskState.QUEUED
    memory_mb: int = 0
    disk_gb: int = 0
    method: MoveMethod = MoveMethod.LIVE
    trees: tuple[TreeDigest, ...] = ()
    alternate_improvements: tuple[float, ...] = ()
    hooks: tuple[TaskHook, ...] = ()
    counts_alternates: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a task at one destination, from its claim or request on.

    ``error_type`` and ``error`` are None when it succeeded. ``migration_uuid``
    is Nova's, None when there was none, or none is known. ``phases``: seconds by phase
    (rebalancer.timings), in their order; empty where an earlier release has carried it out.
    """

    to_host: str
    started_at: float
    ended_at: float
    error_type: str | None = None
    error: str | None = None
    migration_uuid: str | None = None
    phases: Mapping[str, float] = _make_mapping_field()


@dataclasses.dataclass(frozen=True, slots=True)
class TaskResult:
    """The outcome of a task; ``error_type`` is one of Kronos's names.

    ``attempts``: all attempts, oldest first; of very many the newest.
    """

    task_id: str
    plan_id: str
    aggregate: str
    instance_uuid: str
    from_host: str
    to_host: str
    success: bool
    error: str | None = None
    error_type: str | None = None
    duration_seconds: float = 0.0
    retry_count: int = 0
    completed_at: float = 0.0
    attempts: tuple[Attempt, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PlanningOptions:
    """The options of planning that an operator may set; names are the options' names.

    ``max_missing_hosts`` None means max(1, 5 % of the scope's hosts). ``instance_storage`` is
    auto, shared or local. ``enforce_placement_disk`` False leaves DISK_GB out of the claims; None
    counts it, True also takes disks to be local where ``instance_storage`` is auto.
    ``nova_enabled_filters`` and ``nova_prefilters`` name what nova-scheduler enforces. With
    ``overbooking``, no option of a daemon, a destination may be filled above the policies'
    ceilings.
    """

    dry_run: bool = True
    evacuate_disabled_hosts: bool = False
    cold_migrate_stopped: bool = False
    drain_reason_regex: str = ''
    drain_mode: DrainMode = DrainMode.AUTO
    enforce_hard_affinity: bool = False
    enforce_soft_affinity: bool = False
    enforce_placement_claims: bool = True
    enforce_placement_disk: bool | None = None
    require_cpu_compatibility: bool = False
    restrict_to_az: bool = False
    allow_disk_copy: bool = False
    instance_storage: str = 'auto'
    max_down_fraction: float = 0.3
    max_drain_fraction: float = 0.3
    max_missing_hosts: int | None = None
    objective: str = 'balanced'
    soft_affinity_weight: float = 0.05
    minimum_gain: float = 0.0001
    max_alternates: int = 2
    pinned_instances: frozenset[str] = frozenset()
    opted_out_projects: frozenset[str] = frozenset()
    nova_enabled_filters: frozenset[str] = frozenset()
    nova_prefilters: frozenset[str] = frozenset()
    live_migratable_pci_aliases: frozenset[str] = frozenset()
    live_migration_permit_post_copy: bool = False
    skip_hypervisor_version_check_on_lm: bool = False
    settle_seconds: float = 300.0
    overbooking: bool = False
    max_steps: int = 2_000_000
