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

"""Load that metrics cannot show yet: from allocations that changed after the samples.

A sample over a range of W seconds shows the mean of that range: of an instance that booted t
seconds before the sample it shows t / W, as the rebalancer counts a move that has completed. So a
sample shows the mean of a host's allocation over the W seconds before the sample. The host's
present allocation less that mean is the part that the sample does not show. That part counts with
the measured use of its flavor, else of an allocated vCPU or MiB. Instances that left count
negatively, by the same formula. An instance that the rebalancer is moving to a host counts there
until Nova counts it.

Times are seconds on one monotonic clock; allocations are vCPUs and MiB.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import itertools
import math
from typing import Any, NamedTuple

from kronos_nova import labels
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.feed import flavor_usages
from kronos_nova.scheduler import incoming_moves

#: Changes of a host that are closer than GRAIN (seconds) are kept as one, once
#: more than half of MAX_STEPS are kept; beyond MAX_STEPS the older half gets
#: coarser. A change that is kept on its own shows its flavor.
GRAIN = 1.0
MAX_STEPS = 32
#: Assumed use of an allocated unit while nothing is allocated at all: the
#: limit of the measured use, which is load / allocated and at most 1.
UNMEASURED = 1.0
#: Seconds after which an unseen host without a score of its own is forgotten;
#: fewer when a host of the same short name has taken its place.
FORGET_AFTER = 86400.0
REPLACED_AFTER = 3600.0


#: Usage where the engine has published nothing.
NO_USAGE = flavor_usages.FlavorUsages()


class AllocationStep(NamedTuple):
    """A host's allocation from ``since`` on."""

    since: float
    vcpus: float
    ram_mb: float


class HostLoad(NamedTuple):
    """A host's load as a function of its HostState now, 0 to 1 when in bounds.

    load = ``base`` + ``per_vcpu`` x vcpus_used - ``per_mib`` x free_ram_mb; ``score``: the load
    that the samples alone show.
    """

    score: float
    base: float
    per_vcpu: float = 0.0
    per_mib: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class HostTrack:
    """A host as the requests of this process have seen it.

    ``vcpus_used`` and ``free_ram_mb`` are the HostState's last values. ``steps`` is empty when the
    HostState lacked a needed field. ``aggregates`` are the names of the host's aggregates at its
    last change.
    """

    node: str = ''
    vcpus_used: Any = None
    free_ram_mb: Any = None
    vcpus_total: float = 0.0
    ram_total: float = 0.0
    steps: tuple[AllocationStep, ...] = ()
    aggregates: tuple[str, ...] = ()


class AllocationLedger:
    """The history of each host's allocation. Bounded by hosts x MAX_STEPS.

    Many threads call :meth:`note`, one calls :meth:`forget`. No lock is needed: tracks are
    replaced, not changed, and the next request sees a change that a race has lost.

    :param changed: called for each host whose allocation has changed.
    """

    def __init__(self, changed: Callable[[str, HostTrack, HostTrack], None] | None = None) -> None:
        self._tracks: dict[str, HostTrack] = {}
        self._seen: set[str] = set()
        self._last: dict[str, float] = {}
        self._changed = changed or (lambda host, before, after: None)
        self._arrivals = incoming_moves.PublishedMoves()

    def note(self, hosts: Sequence[Any], now: float, wall: float) -> bool:
        """Remember the allocations that HostState objects show.

        Return True when a host is new, or an expected move has landed.

        :param wall: the epoch time of ``now``, to place ``HostState.updated``.
        """
        tracks = self._tracks
        self._seen.update([h.host for h in hosts])
        try:
            changed = [h for h in hosts
                       if (track := tracks.get(h.host)) is None
                       or track.vcpus_used != h.vcpus_used
                       or track.free_ram_mb != h.free_ram_mb]
        except AttributeError:
            changed = list(hosts)
        new = False
        for host in changed:
            before = tracks.get(host.host)
            track = _build_track(before, host, now, wall)
            tracks[host.host] = track
            if before is not None and before.steps and track.steps:
                self._changed(host.host, before, track)
            new = new or before is None or (track.node != before.node and not before.node)
        if self._arrivals and self._arrivals.watch(
                hosts, lambda host: told[2:] if (told := _read_host_amounts(host)) else None, now):
            return True
        return new

    def expect(self, moves: Iterable[flavor_usages.IncomingMove]) -> None:
        """Watch for the moves' claims; forget all other moves."""
        self._arrivals.expect(moves)

    @property
    def landed(self) -> frozenset[tuple[str, str, float]]:
        """Keys of the moves that Nova counts at their destination."""
        return self._arrivals.landed

    def tracks(self) -> Mapping[str, HostTrack]:
        """Return a copy of the tracks by host."""
        return dict(self._tracks)

    def forget(self, now: float, scored: Collection[str]) -> bool:
        """Drop hosts that have left; return True when there were any.

        :param scored: hosts that have a score of their own.
        """
        seen, self._seen = self._seen, set()
        self._last.update(dict.fromkeys(seen, now))
        last = {host: self._last.get(host, now) for host in self._tracks.copy()}
        gone = {host for host, at in last.items()
                if now - at > FORGET_AFTER and host not in scored}
        newest: dict[str, float] = {}
        for host, at in last.items():
            for name in self._list_host_names(host):
                newest[name] = max(newest.get(name, at), at)
        gone |= {host for host, at in last.items() if now - at > REPLACED_AFTER
                 and any(now - newest[name] <= REPLACED_AFTER
                         for name in self._list_host_names(host))}
        for host in gone:
            self._tracks.pop(host, None)
        self._last = {host: at for host, at in last.items() if host not in gone}
        return bool(gone)

    def _list_host_names(self, host: str) -> set[str]:
        track = self._tracks.get(host)
        return {labels.fold_host_name(name) for name in (host, track.node if track else '') if name}


def _build_track(before: HostTrack | None, host: Any, now: float, wall: float) -> HostTrack:
    """Return the track of a host that is new or has changed."""
    node = getattr(host, 'hypervisor_hostname', None) or ''
    vcpus_used = getattr(host, 'vcpus_used', None)
    free_ram_mb = getattr(host, 'free_ram_mb', None)
    aggregates = tuple(a.name for a in getattr(host, 'aggregates', None) or ())
    told = _read_host_amounts(host)
    if told is None:
        return HostTrack(node, vcpus_used, free_ram_mb, aggregates=aggregates)
    vcpus_total, ram_total, vcpus, ram_mb = told
    if before is None or not before.steps:
        # The samples are assumed to show the allocation before our first request.
        steps: tuple[AllocationStep, ...] = (AllocationStep(now, vcpus, ram_mb),)
    else:
        since = max(before.steps[-1].since, now - _compute_record_age(host, wall))
        steps = _append_step(before.steps, AllocationStep(since, vcpus, ram_mb))
    return HostTrack(node, vcpus_used, free_ram_mb, vcpus_total, ram_total, steps, aggregates)


def _read_host_amounts(host: Any) -> tuple[float, float, float, float] | None:
    """Return a host's vCPUs and MiB in all, and its allocated vCPUs and MiB.

    None unless all are known. Fields that no compute has reported yet are None or 0.
    """
    try:
        vcpus_total, ram_total = float(host.vcpus_total), float(host.total_usable_ram_mb)
        told = (vcpus_total, ram_total, float(host.vcpus_used),
                ram_total - float(host.free_ram_mb))
    except (AttributeError, TypeError, ValueError):
        return None
    if not all(map(math.isfinite, told)) or vcpus_total <= 0 or ram_total <= 0:
        return None
    return told


def _compute_record_age(host: Any, wall: float) -> float:
    """Return the seconds since the compute node's record changed; 0 where unknown."""
    updated = getattr(host, 'updated', None)
    if not isinstance(updated, datetime.datetime) or updated.tzinfo is None:
        return 0.0
    return max(0.0, wall - updated.timestamp())


def _append_step(steps: tuple[AllocationStep, ...], step: AllocationStep) -> tuple[AllocationStep,
                                                                                   ...]:
    # The first step stays: all later ones are compared with it.
    if len(steps) > MAX_STEPS // 2 and step.since - steps[-1].since < GRAIN:
        return (*steps[:-1], step._replace(since=steps[-1].since))
    steps = (*steps, step)
    if len(steps) <= MAX_STEPS:
        return steps
    half = MAX_STEPS // 2
    return steps[:half:2] + steps[half:]


def compute_shown_mean(
        steps: Sequence[AllocationStep], sampled_at: float, window: float) -> tuple[float, float]:
    """Return the (vCPUs, MiB) that a sample shows: the mean over the window before it.

    The first step is assumed to have held before, too. Without a window, return the allocation at
    the time of the sample.
    """
    if window <= 0:
        at = next((s for s in reversed(steps) if s.since <= sampled_at), steps[0])
        return at.vcpus, at.ram_mb
    begin, until = sampled_at - window, sampled_at
    vcpus = ram_mb = 0.0
    for step in reversed(steps):
        since = begin if step is steps[0] else max(begin, step.since)
        if since < until:
            vcpus += step.vcpus * (until - since)
            ram_mb += step.ram_mb * (until - since)
            until = since
    return vcpus / window, ram_mb / window


class LoadOutlook(NamedTuple):
    """Each host's load under one policy, and the values that it was computed with.

    ``use``: of an allocated unit, a vCPU or (``memory``) a MiB. ``shapes``: of an instance of a
    flavor, in the same unit.
    """

    loads: dict[str, HostLoad]
    use: float
    memory: bool
    shapes: Mapping[flavor_usages.FlavorShape, float]

    def extras(self) -> flavor_usages.UsageCorrections:
        """Return the corrections to the mean use, by flavor."""
        return flavor_usages.build_extras([(1.0, self.use, self.memory, self.shapes)])


def compute_outlook(scores: Mapping[str, float], tracks: Mapping[str, HostTrack], *,
                    sampled_at: float,
                    window: float, memory: bool, unmeasured: float,
                    usage: flavor_usages.FlavorUsages = NO_USAGE,
                    landed: Collection[tuple[str, str, float]] = ()) -> LoadOutlook:
    """Return each host's load under one policy, with the part that samples do not show.

    :param scores: score by host, in [0, 1].
    :param memory: load follows allocated memory, not vCPUs.
    :param unmeasured: use of a unit when no host has any allocated and no flavor is known.
    :param usage: the engine's measurements.
    :param landed: keys of the engine's moves that Nova counts.
    """
    rows = {}
    for host, score in scores.items():
        track = tracks.get(host)
        if track is not None and track.steps:
            allocated = compute_shown_mean(track.steps, sampled_at, window)[memory]
            rows[host] = (score, track.ram_total if memory else track.vcpus_total, allocated)
    typical = flavor_usages.compute_typical_use(usage.shapes, memory)
    use = _compute_unit_use(rows.values(), typical if usage.shapes else unmeasured) or typical
    told = flavor_usages.build_extras([(1.0, use, memory, usage.shapes)])
    found = {}
    for host, score in scores.items():
        if host not in rows:
            found[host] = HostLoad(score, score)
            continue
        total, allocated = rows[host][1:]
        steps = tracks[host].steps
        if told and len(steps) > 1:
            allocated = _at_mean_use(steps, told, sampled_at, window)[memory]
        unit = use / total
        if memory:
            found[host] = HostLoad(score, score + unit * (total - allocated), 0.0, unit)
        else:
            found[host] = HostLoad(score, score - unit * allocated, unit, 0.0)
    for move in usage.moves:
        if move.to_host in rows and move.key not in landed:
            expected = move.use if move.use is not None else usage.shapes.get(
                move.shape, use * move.shape[memory])
            load = found[move.to_host]
            found[move.to_host] = load._replace(
                base=load.base + expected / rows[move.to_host][1])
    return LoadOutlook(found, use, memory, usage.shapes)


def compute_loads(scores: Mapping[str, float], tracks: Mapping[str, HostTrack], *,
                  sampled_at: float,
                  window: float, memory: bool, unmeasured: float) -> dict[str, HostLoad]:
    """Return each host's load by the mean use alone; see :func:`compute_outlook`."""
    return compute_outlook(scores, tracks, sampled_at=sampled_at, window=window, memory=memory,
                           unmeasured=unmeasured).loads


def _at_mean_use(steps: Sequence[AllocationStep], told: flavor_usages.UsageCorrections,
                 sampled_at: float,
                 window: float) -> tuple[float, float]:
    """Return the (vCPUs, MiB) that a sample shows, converted to the mean use.

    The present allocation less the result counts as the flavors do that came and left since.
    """
    vcpus = ram_mb = 0.0
    counted = [steps[0]]
    for before, after in itertools.pairwise(steps):
        more = told.of(after.vcpus - before.vcpus, after.ram_mb - before.ram_mb)
        vcpus, ram_mb = vcpus + more[0], ram_mb + more[1]
        counted.append(AllocationStep(after.since, after.vcpus + vcpus, after.ram_mb + ram_mb))
    seen = compute_shown_mean(counted, sampled_at, window)
    return seen[0] - vcpus, seen[1] - ram_mb


def correct_load(load: HostLoad, before: HostTrack, after: HostTrack,
                 told: flavor_usages.UsageCorrections) -> HostLoad:
    """Return a host's load after a change of its allocation, by its flavor's use."""
    was, now = before.steps[-1], after.steps[-1]
    vcpus, ram_mb = told.of(now.vcpus - was.vcpus, now.ram_mb - was.ram_mb)
    return load._replace(base=load.base + load.per_vcpu * vcpus + load.per_mib * ram_mb)


def _compute_unit_use(rows: Collection[tuple[float, float, float]], unmeasured: float) -> float:
    if not any(allocated > 0 for _, _, allocated in rows):
        return unmeasured
    return scoring.usage_per_unit(rows)


def usual_changes(tracks: Mapping[str, HostTrack],
                  shapes: Collection[flavor_usages.FlavorShape]) -> list[tuple[float, float]]:
    """Return vCPUs and MiB of usual instances.

    These are the flavors, else the median of the instances that came to hosts, else one vCPU with
    its share of memory.
    """
    if shapes:
        return [(float(shape.vcpus), float(shape.memory_mb)) for shape in shapes]
    grown = [(after.vcpus - before.vcpus, after.ram_mb - before.ram_mb)
             for track in tracks.values()
             for before, after in itertools.pairwise(track.steps) if after.vcpus > before.vcpus]
    if grown:
        return [sorted(grown)[len(grown) // 2]]
    per_vcpu = [track.ram_total / track.vcpus_total for track in tracks.values() if track.steps]
    return [(1.0, sum(per_vcpu) / len(per_vcpu) if per_vcpu else 0.0)]


def goes_by_memory(policy: policies.Policy) -> bool:
    """Return True when an instance's share follows its memory, not its vCPUs.

    ``host_capacity`` decides. Where it is not set, the share follows memory if the query reads a
    metric with ``memory`` in its name, as node_exporter's have.
    """
    if policy.host_capacity is not None:
        return policy.host_capacity == 'MEMORY_MB'
    return 'memory' in policy.imbalance_query.lower()


def combine_loads(parts: Iterable[tuple[float, HostLoad]]) -> HostLoad:
    """Return the weighted sum of a host's loads under several policies."""
    found = list(parts)
    return HostLoad(*(math.fsum(weight * load[i] for weight, load in found) for i in range(4)))


def project_loads(hosts: Iterable[Any], loads: Mapping[str, HostLoad], vcpus: float = 0.0,
                  ram_mb: float = 0.0) -> list[float | None]:
    """Return each host's load now, with ``vcpus`` and ``ram_mb`` added; None without a load.

    :param hosts: HostState objects; one that does not show its allocation has its score.
    """
    found: list[float | None] = []
    for host in hosts:
        load = loads.get(host.host)
        if load is None:
            found.append(None)
            continue
        score, base, per_vcpu, per_mib = load
        try:
            found.append(base + per_vcpu * (host.vcpus_used + vcpus)
                         - per_mib * (host.free_ram_mb - ram_mb))
        except (AttributeError, TypeError):
            found.append(score)
    return found
