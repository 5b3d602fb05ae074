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

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import math
from typing import Any, NamedTuple

from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.feed import flavor_usages
from kronos_nova.scheduler import allocation_history

#: Assumed use of an allocated unit while nothing is allocated at all: the
#: limit of the measured use, which is load / allocated and at most 1.
UNMEASURED = 1.0
#: Usage where the engine has published nothing.
NO_USAGE = flavor_usages.FlavorUsages()


class HostLoad(NamedTuple):
    """A host's load as a function of its HostState now, 0 to 1 when in bounds.

    load = ``base`` + ``per_vcpu`` x vcpus_used - ``per_mib`` x free_ram_mb; ``score``: the load
    that the samples alone show.
    """

    score: float
    base: float
    per_vcpu: float = 0.0
    per_mib: float = 0.0


def compute_shown_mean(
        steps: Sequence[allocation_history.AllocationStep], sampled_at: float,
        window: float) -> tuple[float, float]:
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

    def map_corrections(self) -> flavor_usages.UsageCorrections:
        """Return the corrections to the mean use, by flavor."""
        return flavor_usages.build_extras([(1.0, self.use, self.memory, self.shapes)])


def compute_outlook(scores: Mapping[str, float],
                    tracks: Mapping[str, allocation_history.HostTrack], *,
                    sampled_at: float, window: float, memory: bool, unmeasured: float,
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
    corrections = flavor_usages.build_extras([(1.0, use, memory, usage.shapes)])
    loads = {}
    for host, score in scores.items():
        if host not in rows:
            loads[host] = HostLoad(score, score)
            continue
        total, allocated = rows[host][1:]
        steps = tracks[host].steps
        if corrections and len(steps) > 1:
            allocated = _at_mean_use(steps, corrections, sampled_at, window)[memory]
        unit = use / total
        if memory:
            loads[host] = HostLoad(score, score + unit * (total - allocated), 0.0, unit)
        else:
            loads[host] = HostLoad(score, score - unit * allocated, unit, 0.0)
    for move in usage.moves:
        if move.to_host in rows and move.key not in landed:
            expected = move.use if move.use is not None else usage.shapes.get(
                move.shape, use * move.shape[memory])
            load = loads[move.to_host]
            loads[move.to_host] = load._replace(
                base=load.base + expected / rows[move.to_host][1])
    return LoadOutlook(loads, use, memory, usage.shapes)


def compute_loads(scores: Mapping[str, float],
                  tracks: Mapping[str, allocation_history.HostTrack], *,
                  sampled_at: float, window: float, memory: bool,
                  unmeasured: float) -> dict[str, HostLoad]:
    """Return each host's load by the mean use alone; see :func:`compute_outlook`."""
    return compute_outlook(scores, tracks, sampled_at=sampled_at, window=window, memory=memory,
                           unmeasured=unmeasured).loads


def _at_mean_use(steps: Sequence[allocation_history.AllocationStep],
                 corrections: flavor_usages.UsageCorrections, sampled_at: float,
                 window: float) -> tuple[float, float]:
    """Return the (vCPUs, MiB) that a sample shows, converted to the mean use.

    The present allocation less the result counts as the flavors do that came and left since.
    """
    vcpus = ram_mb = 0.0
    counted = [steps[0]]
    for before, after in itertools.pairwise(steps):
        more = corrections.sum_corrections(after.vcpus - before.vcpus, after.ram_mb - before.ram_mb)
        vcpus, ram_mb = vcpus + more[0], ram_mb + more[1]
        counted.append(allocation_history.AllocationStep(
            after.since, after.vcpus + vcpus, after.ram_mb + ram_mb))
    shown = compute_shown_mean(counted, sampled_at, window)
    return shown[0] - vcpus, shown[1] - ram_mb


def correct_load(load: HostLoad, before: allocation_history.HostTrack,
                 after: allocation_history.HostTrack,
                 corrections: flavor_usages.UsageCorrections) -> HostLoad:
    """Return a host's load after a change of its allocation, by its flavor's use."""
    was, now = before.steps[-1], after.steps[-1]
    vcpus, ram_mb = corrections.sum_corrections(now.vcpus - was.vcpus, now.ram_mb - was.ram_mb)
    return load._replace(base=load.base + load.per_vcpu * vcpus + load.per_mib * ram_mb)


def _compute_unit_use(rows: Collection[tuple[float, float, float]], unmeasured: float) -> float:
    if not any(allocated > 0 for _, _, allocated in rows):
        return unmeasured
    return scoring.usage_per_unit(rows)


def usual_changes(tracks: Mapping[str, allocation_history.HostTrack],
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
    weighted_loads = list(parts)
    return HostLoad(*(math.fsum(weight * load[i] for weight, load in weighted_loads)
                      for i in range(4)))


def project_loads(hosts: Iterable[Any], loads: Mapping[str, HostLoad], vcpus: float = 0.0,
                  ram_mb: float = 0.0) -> list[float | None]:
    """Return each host's load now, with ``vcpus`` and ``ram_mb`` added; None without a load.

    :param hosts: HostState objects; one that does not show its allocation has its score.
    """
    projected: list[float | None] = []
    for host in hosts:
        load = loads.get(host.host)
        if load is None:
            projected.append(None)
            continue
        score, base, per_vcpu, per_mib = load
        try:
            projected.append(base + per_vcpu * (host.vcpus_used + vcpus)
                             - per_mib * (host.free_ram_mb - ram_mb))
        except (AttributeError, TypeError):
            projected.append(score)
    return projected
