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

"""Moves and plans, and the history that a plan is made with."""

from collections.abc import Mapping
import dataclasses
import enum

from kronos_nova.model import cloud
from kronos_nova.model import contracts


class Phase(enum.StrEnum):
    """The reason for a move; all but ``requested`` are Kronos's wire values."""

    EVACUATE = 'evacuate'
    AFFINITY = 'affinity'
    SPREAD = 'spread'
    PACK = 'pack'
    #: A user asked for this very move.
    REQUESTED = 'requested'


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
class DrainDeadline:
    """The deadline of one drain of a host.

    ``at``: when the host is to be empty (epoch). ``disabled_reason``: that of the host during this
    drain; an earlier or later drain has another.
    """

    at: float
    disabled_reason: str


def find_drain_deadline(deadlines: Mapping[str, DrainDeadline],
                        service: cloud.Service | None) -> float | None:
    """Return the deadline of the present drain of a host (epoch); None: it has none.

    :param deadlines: those that people have ordered, by host; a drain may be over.
    :param service: the host's nova-compute; None: not known.
    """
    if service is None or service.enabled or service.host not in deadlines:
        return None
    deadline = deadlines[service.host]
    return deadline.at if deadline.disabled_reason == service.disabled_reason else None


@dataclasses.dataclass(frozen=True, slots=True)
class QuietWait:
    """The wait of a drain for an hour in which an instance writes less memory.

    ``until``: when the instance may move (epoch). Both rates in bytes a second: ``rate_now``, and
    ``quiet_rate``, the highest one that was measured in that hour a day before; None: the
    drain waits for the past rates.
    """

    until: float
    rate_now: float
    quiet_rate: float | None


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
    ``measured`` are the attempts that costs are learned from, newest first. ``move_times``: when
    moves of instances whose contracts count them completed (epoch), oldest first. ``notices``: the
    newest notice of each instance, unless it is used up. ``campaign_hosts``: hosts that a campaign
    still has to empty, so that nothing moves onto them. ``late_drains``: instances whose newest
    migration was a live one of a drain and ended too late, with the host that it did not leave.
    ``drain_deadlines``: the deadlines that people have ordered, by host; see
    :func:`find_drain_deadline`. ``drain_begins``: when the drains of ``draining`` began (epoch), by
    host. ``hourly_write_rates``: by instance, the hours of the last day, oldest first: the begin
    (epoch) and the highest rate at which the instance wrote memory, in bytes a second.
    ``freezes``: times to come in which nothing may move: begin and end (epoch), disjoint, earliest
    first. ``awaited_write_rates``: by instance, until when its drain waits for its rates (epoch).
    ``last_write_rates``: by instance, the bytes a second that it wrote when this was last known,
    some minutes ago at most. ``window_ends``: when the window of a campaign closes in which a host
    is drained (epoch), by host. ``quiet_waits``: instances of drains that wait for a quieter hour.
    """

    cooling: Mapping[str, float] = dataclasses.field(default_factory=dict)
    fresh: Mapping[str, float] = dataclasses.field(default_factory=dict)
    quarantined: Mapping[str, float] = dataclasses.field(default_factory=dict)
    quarantined_hosts: frozenset[str] = frozenset()
    scope_cooling: float = 0.0
    draining: frozenset[str] = frozenset()
    completed: tuple[tuple[Move, float], ...] = ()
    local_disk_hosts: frozenset[str] = frozenset()
    other_cells: frozenset[tuple[str, str]] = frozenset()
    paused: str | None = None
    waiting: str | None = None
    refused: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    refused_everywhere: frozenset[str] = frozenset()
    measured: tuple[MeasuredAttempt, ...] = ()
    move_times: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    notices: Mapping[str, contracts.MoveNotice] = dataclasses.field(default_factory=dict)
    campaign_hosts: frozenset[str] = frozenset()
    late_drains: Mapping[str, str] = dataclasses.field(default_factory=dict)
    drain_deadlines: Mapping[str, DrainDeadline] = dataclasses.field(default_factory=dict)
    drain_begins: Mapping[str, float] = dataclasses.field(default_factory=dict)
    hourly_write_rates: Mapping[str, tuple[tuple[float, float], ...]] = dataclasses.field(
        default_factory=dict)
    freezes: tuple[tuple[float, float], ...] = ()
    awaited_write_rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    last_write_rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    window_ends: Mapping[str, float] = dataclasses.field(default_factory=dict)
    quiet_waits: Mapping[str, QuietWait] = dataclasses.field(default_factory=dict)


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
    def measured_imbalance(self) -> float | None:
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
    rejections: Mapping[str, int] = dataclasses.field(default_factory=dict)
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
    def measured_imbalance(self) -> float | None:
        """The combined imbalance of the scores as they came from the metrics source."""
        return self.combined_before if self.combined_measured is None else self.combined_measured
