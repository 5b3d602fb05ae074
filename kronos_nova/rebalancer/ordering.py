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

A move may start as soon as the moves it requires have completed; every other
move of the plan may then be waiting, under way (it counts at both ends) or
failed. So any order of completion and any failures stay legal, and a failure
cancels only what required it.
"""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import view as views


@dataclasses.dataclass(frozen=True, slots=True)
class Ordered:
    """``dropped`` counts moves that no order makes legal, by rule."""

    moves: tuple[model.Move, ...]
    dropped: Counter[str]


def order(view: views.ClusterView, moves: Sequence[model.Move], *,
          max_alternates: int = 0) -> Ordered:
    """Give each move its requirements, wave and alternates.

    :param view: the cluster before the plan; it is left as it was.
    :param moves: each legal after all before it have landed.
    """
    placed: list[model.Move] = []
    dropped: Counter[str] = Counter()
    for move in moves:
        required, rejection = _requirements(view, placed, move)
        if rejection is not None:
            dropped[rejection.rule] += 1
            continue
        waves = [m.wave for m in placed if m.instance_uuid in required]
        placed.append(dataclasses.replace(
            move, requires=tuple(sorted(required)), wave=max(waves) + 1 if waves else 0))
    placed.sort(key=lambda m: m.wave)
    if max_alternates:
        needs = _closures(placed)
        placed = [dataclasses.replace(m, alternates=_alternates(view, placed, needs, m,
                                                                max_alternates))
                  for m in placed]
    return Ordered(tuple(placed), dropped)


def _requirements(view: views.ClusterView, placed: list[model.Move],
                  move: model.Move) -> tuple[set[str], model.Rejection | None]:
    """The fewest earlier moves that must have completed: none; else those
    that free the destination or belong to the same group; else all."""
    mine = {g.uuid for g in view.groups_of(move.instance_uuid)}
    related = {m.instance_uuid for m in placed
               if m.from_host == move.to_host
               or mine & {g.uuid for g in view.groups_of(m.instance_uuid)}}
    rejection = None
    for wanted in (set(), related, {m.instance_uuid for m in placed}):
        required = closure(placed, wanted)
        rejection = _judge(view, placed, required, move)
        if rejection is None:
            return _protect(view, placed, required, move, mine), None
    return set(), rejection


def _protect(view: views.ClusterView, placed: list[model.Move], required: set[str],
             move: model.Move, groups: set[str]) -> set[str]:
    """``required``, and the earlier moves that this one could stand in the way
    of: it may go into room that another one frees, and they may not."""
    late = dataclasses.replace(move, requires=tuple(sorted(required)))
    moves = [*placed, late]
    needs = _closures(moves)
    for earlier in placed:
        if earlier.instance_uuid in required:
            continue
        if earlier.to_host == move.to_host or groups & {
                g.uuid for g in view.groups_of(earlier.instance_uuid)}:
            with _beside(view, moves, needs, earlier):
                if constraints.check(view, earlier) is not None:
                    required = required | closure(placed, {earlier.instance_uuid})
    return required


def _closures(moves: Sequence[model.Move]) -> dict[str, set[str]]:
    """By instance UUID of each move: itself and all that it requires."""
    found: dict[str, set[str]] = {}
    for move in moves:  # what a move requires comes before it
        found[move.instance_uuid] = {move.instance_uuid}.union(
            *(found[uuid] for uuid in move.requires))
    return found


def _beside(view: views.ClusterView, moves: Sequence[model.Move],
            needs: Mapping[str, set[str]],
            move: model.Move) -> AbstractContextManager[views.ClusterView]:
    """When ``move`` starts: what it requires has landed, all others that do
    not wait for it are under way."""
    mine = needs[move.instance_uuid]
    return views.laid(
        view, [m for m in moves if m is not move and m.instance_uuid in mine],
        [m for m in moves if m.instance_uuid not in mine
         and move.instance_uuid not in needs[m.instance_uuid]])


def closure(moves: Sequence[model.Move], wanted: set[str]) -> set[str]:
    """``wanted`` and all that it requires in turn (instance UUIDs)."""
    needs = {m.instance_uuid: m.requires for m in moves}
    found: set[str] = set()
    pending = list(wanted)
    while pending:
        uuid = pending.pop()
        if uuid not in found:
            found.add(uuid)
            pending += needs.get(uuid, ())
    return found


def _judge(view: views.ClusterView, placed: Sequence[model.Move], required: set[str],
           move: model.Move) -> model.Rejection | None:
    """Required moves have landed, all others count at both ends."""
    with views.laid(view, [m for m in placed if m.instance_uuid in required],
                    [m for m in placed if m.instance_uuid not in required]):
        return constraints.check(view, move)


def _alternates(view: views.ClusterView, moves: Sequence[model.Move],
                needs: Mapping[str, set[str]], move: model.Move, count: int) -> tuple[str, ...]:
    """Other destinations that stay legal whatever the other moves do, the
    emptiest first; not where a move goes that waits for this one."""
    taken = {m.to_host for m in moves if move.instance_uuid in needs[m.instance_uuid]}
    found: list[tuple[float, str]] = []
    with _beside(view, moves, needs, move):
        for host in sorted(view.cluster.scope_hosts - taken):
            if host == move.from_host:
                continue
            other = dataclasses.replace(move, to_host=host)
            if constraints.check(view, other) is None:
                found.append((max(view.fills(host).values(), default=0.0), host))
    return tuple(host for _, host in sorted(found)[:count])
