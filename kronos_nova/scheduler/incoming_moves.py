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

"""Moves of the rebalancer that Nova does not count at their destination yet."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from kronos_nova.feed import flavor_usages

#: Seconds within which a compute's periodic task counts an instance that has come.
CLAIM_GRACE = 120.0


class PublishedMoves:
    """The published moves, by destination.

    One thread calls :meth:`watch_moves`, many call :meth:`find_landings`. No lock is needed: the
    next request repeats an observation that a race has lost.
    """

    def __init__(self) -> None:
        self._by_host: dict[str, tuple[_PublishedMove, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_host)

    def watch_moves(self, moves: Iterable[flavor_usages.IncomingMove]) -> None:
        """Watch for these moves; forget all others."""
        known = {a.move.key: a for some in self._by_host.values() for a in some}
        wanted: dict[str, tuple[_PublishedMove, ...]] = {}
        for move in {m.key: m for m in moves}.values():
            arrival = known.get(move.key) or _PublishedMove(move)
            wanted[move.to_host] = (*wanted.get(move.to_host, ()), arrival)
        self._by_host = wanted

    @property
    def landed_moves(self) -> frozenset[tuple[str, str, float]]:
        """Keys of the moves that Nova counts."""
        return frozenset(a.move.key for some in self._by_host.values() for a in some
                         if a.landed)

    def find_landings(self, hosts: Sequence[Any],
                      allocated: Callable[[Any], tuple[float, float] | None], now: float) -> bool:
        """Look for moves that have landed; return True when one is new.

        :param hosts: HostState objects of a request.
        :param allocated: returns vCPUs and MiB that a host has allocated, or None.
        """
        by_host, has_new = self._by_host, False
        for host in [h for h in hosts if h.host in by_host]:
            amounts = allocated(host)
            if amounts is None:
                continue
            room = None
            for arrival in by_host[host.host]:
                if not arrival.landed:
                    room = arrival.observe_destination(host, amounts, now, room)
                    has_new = has_new or arrival.landed
        return has_new


class _PublishedMove:
    """A move, and whether Nova counts it at its destination.

    Nova does when the host has grown by the instance without one more instance (a compute claims
    for a migration so), or has grown by it since our first observation and holds it. An instance
    that the host holds, and that Nova counted before our first observation, counts after
    ``CLAIM_GRACE``. A race of two requests loses an observation, which the next request repeats.
    """

    def __init__(self, move: flavor_usages.IncomingMove) -> None:
        self.move = move
        self.landed = False
        self._first: tuple[float, float] | None = None
        self._last: tuple[float, float, int] | None = None
        self._held_since: float | None = None

    def observe_destination(self, host: Any, amounts: tuple[float, float], now: float,
                            room: tuple[float, float] | None) -> tuple[float, float]:
        """Observe the destination, and record whether the move has landed.

        :param told: vCPUs and MiB that the host has allocated.
        :param room: growth that no other move has explained; None: all growth.
        :returns: the growth that this move does not explain either.
        """
        vcpus, ram_mb = amounts
        instances = int(getattr(host, 'num_instances', 0) or 0)
        shape = self.move.shape
        first, last = self._first, self._last
        self._last = (vcpus, ram_mb, instances)
        if first is None or last is None:
            self._first = first = amounts
            last = self._last
        if room is None:
            room = (vcpus - last[0], ram_mb - last[1]) if instances <= last[2] else (0.0, 0.0)
        claimed = room[0] >= shape.vcpus and room[1] >= shape.memory_mb
        if claimed:
            room = (room[0] - shape.vcpus, room[1] - shape.memory_mb)
        if self.move.instance_uuid in host.instances:
            since = self._held_since = now if self._held_since is None else self._held_since
            claimed = claimed or now - since > CLAIM_GRACE or (
                vcpus - first[0] >= shape.vcpus and ram_mb - first[1] >= shape.memory_mb)
        # Another request may have seen it land meanwhile.
        self.landed = self.landed or claimed
        return room
