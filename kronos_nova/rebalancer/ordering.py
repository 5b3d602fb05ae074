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

"""A plan's moves in an order that stays legal however they end.

A move may start as soon as the moves it requires have completed. Every other
move of the plan may then be waiting, under way or failed: it counts at its
source, its destination and all its alternates. So any order of completion,
any failures and any destination that an executor falls back to stay legal,
and a failure cancels only what required it.

How many of a host's moves run at once is the executor's to decide: binding
it here would let one failure cancel moves that have nothing to do with it.

A move looks only at others that share a host or a server group with it, so
that a plan of M moves is ordered in about M steps in a cloud of any size.
"""

from collections import Counter
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import heapq

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.constraints import server_groups
from kronos_nova.constraints import view as views

#: So many hosts are tried for a move's alternates, and for a parking move.
TRIED = 64
#: For alternates: whether members are in flight does not depend on the host.
_RULES = tuple(r for r in constraints.RULES if r is not server_groups.group_in_flight)


@dataclasses.dataclass(frozen=True, slots=True)
class Ordered:
    """``dropped`` counts moves that no order makes legal, by rule. ``parked``
    maps instance UUIDs to what was asked for, where a move leads elsewhere."""

    moves: tuple[model.Move, ...]
    dropped: Counter[str]
    parked: Mapping[str, model.Move] = dataclasses.field(default_factory=dict)


def order(view: views.ClusterView, moves: Sequence[model.Move], *, max_alternates: int = 0,
          improves: Callable[[model.Move], bool] | None = None) -> Ordered:
    """Give each move its requirements, wave and alternates.

    A move that is legal only after later ones is placed after them. Moves
    that wait for each other in a circle are broken up by parking: one of them
    goes to a third host that ``improves`` welcomes; without one it is dropped.

    :param view: the cluster before the plan; it is left as it was.
    :param moves: best each legal after all before it have landed.
    """
    with _Board(view, moves).closing() as board:
        waiting = _place(board, moves)
        parked: dict[str, model.Move] = {}
        if improves is not None:
            for move in [m for m, _ in waiting]:
                other = _park(board, move, improves)
                if other is not None:
                    parked[move.instance_uuid] = move
                    waiting = _place(board, [m for m, _ in waiting if m is not move])
                    if not waiting:
                        break
        if max_alternates:
            _alternates(board, max_alternates)
        return Ordered(tuple(sorted(board.moves.values(), key=lambda m: m.wave)),
                       Counter(no.rule for _, no in waiting), parked)


def _place(board: '_Board',
           moves: Sequence[model.Move]) -> list[tuple[model.Move, model.Rejection]]:
    """Place what can be placed; the rest, each with its rejection."""
    while True:
        waiting = []
        for move in moves:
            if move.instance_uuid not in board.moves and (no := board.place(move)) is not None:
                waiting.append((move, no))
        if not waiting or len(waiting) == len(moves):
            return waiting
        moves = [move for move, _ in waiting]


def _park(board: '_Board', move: model.Move,
          improves: Callable[[model.Move], bool]) -> model.Move | None:
    """The move to the emptiest third host where it may go and is welcome."""
    for _, host in heapq.nsmallest(TRIED, board.emptiness()):
        other = dataclasses.replace(move, to_host=host)
        if (host not in (move.from_host, move.to_host)
                and constraints.check(board.view, other) is None
                and improves(other) and board.place(other) is None):
            return other
    return None


class _Board:
    """The view with every placed move under way, and what each requires.

    ``needs``: by instance UUID, all that must have completed, to the end of
    the chain.
    """

    def __init__(self, view: views.ClusterView, moves: Iterable[model.Move]) -> None:
        self.view = view
        self.moves: dict[str, model.Move] = {}
        self.needs: dict[str, set[str]] = {}
        self.groups: dict[str, frozenset[str]] = {}
        self._before = {h: view.fills(h) for h in {m.from_host for m in moves}}
        self._members: dict[str, list[str]] = defaultdict(list)
        self._leaving: dict[str, list[str]] = defaultdict(list)
        self._coming: dict[str, list[str]] = defaultdict(list)

    @contextlib.contextmanager
    def closing(self) -> Iterator['_Board']:
        try:
            yield self
        finally:
            for move in self.moves.values():
                self._recall(move)

    def emptiness(self) -> list[tuple[float, str]]:
        """(highest fill, host) of every host of the scope."""
        return [(max(self.view.fills(h).values(), default=0.0), h)
                for h in sorted(self.view.cluster.scope_hosts)]

    def place(self, move: model.Move) -> model.Rejection | None:
        """Find the fewest moves that must have completed: those of the same
        groups, then of those that free the destination as many as it takes,
        then those that this one would stand in the way of.

        :returns: why no order makes it legal; then nothing has changed.
        """
        uuid = move.instance_uuid
        self.groups[uuid] = frozenset(g.uuid for g in self.view.groups_of(uuid))
        mates = {u for group in self.groups[uuid] for u in self._members[group]}
        required = self._with_needs(mates)
        freeing = sorted((u for u in self._leaving[move.to_host] if u not in required),
                         key=lambda u: self.moves[u].wave)
        with self._started(move, required) as land:
            rejection = self._judge(move)
            for other in freeing:
                if rejection is None:
                    break
                required |= land(self._with_needs([other]) - required)
                rejection = self._judge(move)
        if rejection is not None:
            return rejection
        self._add(move, required)
        late = self._hindered(move, required) - required
        if late:
            with self._started(move, required | late):
                rejection = self._judge(move)
            self._remove(move)
            if rejection is not None:
                return rejection
            self._add(move, required | late)
        return None

    def _hindered(self, move: model.Move, required: set[str]) -> set[str]:
        """Earlier moves to the same host that would not be legal any more once
        this one has begun, and all that they require: this one goes into room
        that another one freed for it, and they may start before that."""
        total = self.view.fills(move.to_host)
        if (not any(self.moves[u].from_host == move.to_host for u in required)
                and all(total.get(name, 0.0) <= limit
                        for name, (_, limit) in self.view.ceilings(move).items())):
            return set()
        found: set[str] = set()
        for uuid in reversed(self._coming[move.to_host]):  # the last may require the others
            if uuid not in required and uuid not in found and uuid != move.instance_uuid:
                other = self.moves[uuid]
                with self._started(other, self.needs[uuid]):
                    if self._judge(other) is not None:
                        found |= self._with_needs([uuid])
        return found

    @contextlib.contextmanager
    def _started(self, move: model.Move,
                 required: set[str]) -> Iterator[Callable[[set[str]], set[str]]]:
        """When ``move`` starts: what it requires has landed, what waits for
        it has not begun, all others are under way. Others than those at its
        ends and in its groups make no difference and stay as they are.

        Yields a function that lands more of them, and returns them.
        """
        uuid, ends = move.instance_uuid, (move.from_host, move.to_host)
        mine = self.groups[uuid]
        landed: list[model.Move] = []
        absent: list[model.Move] = []

        def land(uuids: set[str]) -> set[str]:
            for need in sorted(uuids):
                other = self.moves[need]
                if other.from_host in ends or not mine.isdisjoint(self.groups[need]):
                    self.view.recall(other)
                    self.view.land(other)
                    landed.append(other)
            return uuids

        if uuid in self.moves:
            absent = [m for u, m in self.moves.items() if u == uuid or uuid in self.needs[u]]
        for other in absent:
            self.view.recall(other)
        land(required)
        try:
            yield land
        finally:
            for other in reversed(landed):
                self.view.undo(other)
                self.view.depart(other)
            for other in reversed(absent):
                self.view.depart(other)

    def _judge(self, move: model.Move) -> model.Rejection | None:
        rejection = constraints.check(self.view, move)
        if rejection is None and move.phase is model.Phase.SPREAD:
            return crowded(self.view, move, self._before[move.from_host])
        return rejection

    def _with_needs(self, uuids: Iterable[str]) -> set[str]:
        return {need for u in uuids for need in (u, *self.needs[u])}

    def _add(self, move: model.Move, required: set[str]) -> None:
        uuid = move.instance_uuid
        waves = [self.moves[u].wave for u in required]
        self.moves[uuid] = move = dataclasses.replace(
            move, requires=tuple(sorted(required)), wave=max(waves) + 1 if waves else 0)
        self.needs[uuid] = required
        for group in self.groups[uuid]:
            self._members[group].append(uuid)
        self._leaving[move.from_host].append(uuid)
        self._coming[move.to_host].append(uuid)
        self.view.depart(move)

    def _remove(self, move: model.Move) -> None:
        """Takes back the last ``_add``."""
        uuid = move.instance_uuid
        self.view.recall(self.moves.pop(uuid))
        del self.needs[uuid]
        for group in self.groups[uuid]:
            self._members[group].pop()
        self._leaving[move.from_host].pop()
        self._coming[move.to_host].pop()

    def _recall(self, move: model.Move) -> None:
        for host in (move.to_host, *move.alternates):
            self.view.recall(dataclasses.replace(move, to_host=host))

    # Alternates.

    def may_have_alternates(self, move: model.Move) -> bool:
        """Not where others of the plan count on where it lands: members of a
        hard affinity group; and a repair of soft groups is done at its
        destination only."""
        for group in self.view.groups_of(move.instance_uuid):
            if group.policy is model.GroupPolicy.AFFINITY and len(self._members[group.uuid]) > 1:
                return False
            if move.phase is model.Phase.AFFINITY and not group.policy.hard:
                return False
        return True

    def try_alternate(self, move: model.Move, host: str) -> bool:
        """With every move at its source and at every host where it may end,
        nothing having freed any room: then no move can stand in another's
        way. ``move`` itself is recalled."""
        other = dataclasses.replace(move, to_host=host)
        if host in (move.from_host, move.to_host) or any(
                self.moves[u].from_host == host for u in self.needs[move.instance_uuid]):
            return False
        if any(fill > limit + metrics.ROUNDING
               for fill, limit in self.view.ceilings(other).values()):
            return False
        return constraints.check(self.view, other, _RULES) is None

    def set_alternates(self, move: model.Move, hosts: Sequence[str]) -> None:
        self.moves[move.instance_uuid] = dataclasses.replace(move, alternates=tuple(hosts))
        for host in hosts:
            self.view.depart(dataclasses.replace(move, to_host=host))


def crowded(view: views.ClusterView, move: model.Move,
            before: Mapping[str, float]) -> model.Rejection | None:
    """A spread lifts no host above its ceiling on the way either, unless its
    source was worse off when the plan was made.

    :param before: the source's fill then, by policy.
    """
    for name, (fill, limit) in view.ceilings(move).items():
        if fill > max(limit, before.get(name, limit)) + metrics.ROUNDING:
            return model.Rejection('ceiling', f'host {move.to_host} would reach {fill:.2f} of '
                                              f'{name} while others are on their way')
    return None


def _alternates(board: _Board, count: int) -> None:
    """Other destinations, the emptiest first; each one taken fills its host
    for the next, so that no host is everybody's way out. A pack wakes no
    empty host."""
    heap = board.emptiness()
    heapq.heapify(heap)
    for move in sorted(board.moves.values(), key=lambda m: m.wave):
        if not board.may_have_alternates(move):
            continue
        board.view.recall(move)
        found: list[str] = []
        seen = [heapq.heappop(heap) for _ in range(min(TRIED, len(heap)))]
        for _, host in seen:
            if len(found) == count:
                break
            if move.phase is model.Phase.PACK and not board.view.instances_on(host):
                continue
            if board.try_alternate(move, host):
                found.append(host)
        board.view.depart(move)
        board.set_alternates(move, found)
        for fill, host in seen:
            taken = host in found
            heapq.heappush(heap, (max(board.view.fills(host).values(), default=0.0)
                                  if taken else fill, host))
