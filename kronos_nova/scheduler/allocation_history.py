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

"""The history of each host's allocation, as the requests of this process show it.

Times are seconds on one monotonic clock; allocations are vCPUs and MiB.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import math
from typing import Any, NamedTuple

from kronos_nova import labels
from kronos_nova.feed import flavor_usages
from kronos_nova.scheduler import incoming_moves

#: Changes of a host that are closer than GRAIN (seconds) are kept as one, once
#: more than half of MAX_STEPS are kept; beyond MAX_STEPS the older half gets
#: coarser. A change that is kept on its own shows its flavor.
GRAIN = 1.0
MAX_STEPS = 32
#: Seconds after which an unseen host without a score of its own is forgotten;
#: fewer when a host of the same short name has taken its place.
FORGET_AFTER = 86400.0
REPLACED_AFTER = 3600.0


class AllocationStep(NamedTuple):
    """A host's allocation from ``since`` on."""

    since: float
    vcpus: float
    ram_mb: float


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

    Many threads call :meth:`record_allocations`, one calls :meth:`forget_missing_hosts`. No lock is
    needed: tracks are replaced, not changed, and the next request sees a change that a race has
    lost.

    :param changed: called for each host whose allocation has changed.
    """

    def __init__(self, changed: Callable[[str, HostTrack, HostTrack], None] | None = None) -> None:
        self._tracks: dict[str, HostTrack] = {}
        self._shown_hosts: set[str] = set()
        self._last: dict[str, float] = {}
        self._changed = changed or (lambda host, before, after: None)
        self._arrivals = incoming_moves.PublishedMoves()

    def record_allocations(self, hosts: Sequence[Any], now: float, wall: float) -> bool:
        """Remember the allocations that HostState objects show.

        Return True when a host is new, or an expected move has landed.

        :param wall: the epoch time of ``now``, to place ``HostState.updated``.
        """
        tracks = self._tracks
        self._shown_hosts.update([h.host for h in hosts])
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
        if self._arrivals and self._arrivals.find_landings(
                hosts, lambda host: (
                    amounts[2:] if (amounts := _read_host_amounts(host)) else None), now):
            return True
        return new

    def watch_moves(self, moves: Iterable[flavor_usages.IncomingMove]) -> None:
        """Watch for the moves' claims; forget all other moves."""
        self._arrivals.watch_moves(moves)

    @property
    def landed_moves(self) -> frozenset[tuple[str, str, float]]:
        """Keys of the moves that Nova counts at their destination."""
        return self._arrivals.landed_moves

    def copy_tracks(self) -> Mapping[str, HostTrack]:
        """Return a copy of the tracks by host."""
        return dict(self._tracks)

    def forget_missing_hosts(self, now: float, scored: Collection[str]) -> bool:
        """Drop hosts that have left; return True when there were any.

        :param scored: hosts that have a score of their own.
        """
        shown_hosts, self._shown_hosts = self._shown_hosts, set()
        self._last.update(dict.fromkeys(shown_hosts, now))
        last = {host: self._last.get(host, now) for host in self._tracks.copy()}
        gone_hosts = {host for host, at in last.items()
                      if now - at > FORGET_AFTER and host not in scored}
        newest: dict[str, float] = {}
        for host, at in last.items():
            for name in self._list_host_names(host):
                newest[name] = max(newest.get(name, at), at)
        gone_hosts |= {host for host, at in last.items() if now - at > REPLACED_AFTER
                       and any(now - newest[name] <= REPLACED_AFTER
                               for name in self._list_host_names(host))}
        for host in gone_hosts:
            self._tracks.pop(host, None)
        self._last = {host: at for host, at in last.items() if host not in gone_hosts}
        return bool(gone_hosts)

    def _list_host_names(self, host: str) -> set[str]:
        track = self._tracks.get(host)
        return {labels.fold_host_name(name) for name in (host, track.node if track else '') if name}


def _build_track(before: HostTrack | None, host: Any, now: float, wall: float) -> HostTrack:
    """Return the track of a host that is new or has changed."""
    node = getattr(host, 'hypervisor_hostname', None) or ''
    vcpus_used = getattr(host, 'vcpus_used', None)
    free_ram_mb = getattr(host, 'free_ram_mb', None)
    aggregates = tuple(a.name for a in getattr(host, 'aggregates', None) or ())
    amounts = _read_host_amounts(host)
    if amounts is None:
        return HostTrack(node, vcpus_used, free_ram_mb, aggregates=aggregates)
    vcpus_total, ram_total, vcpus, ram_mb = amounts
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
        amounts = (vcpus_total, ram_total, float(host.vcpus_used),
                   ram_total - float(host.free_ram_mb))
    except (AttributeError, TypeError, ValueError):
        return None
    if not all(map(math.isfinite, amounts)) or vcpus_total <= 0 or ram_total <= 0:
        return None
    return amounts


def _compute_record_age(host: Any, wall: float) -> float:
    """Return the seconds since the compute node's record changed; 0 where unknown."""
    updated = getattr(host, 'updated', None)
    if not isinstance(updated, datetime.datetime) or updated.tzinfo is None:
        return 0.0
    return max(0.0, wall - updated.timestamp())


def _append_step(steps: tuple[AllocationStep, ...],
                 step: AllocationStep) -> tuple[AllocationStep, ...]:
    # The first step stays: all later ones are compared with it.
    if len(steps) > MAX_STEPS // 2 and step.since - steps[-1].since < GRAIN:
        return (*steps[:-1], step._replace(since=steps[-1].since))
    steps = (*steps, step)
    if len(steps) <= MAX_STEPS:
        return steps
    half = MAX_STEPS // 2
    return steps[:half:2] + steps[half:]
