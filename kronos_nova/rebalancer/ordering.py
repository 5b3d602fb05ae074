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
from collections.abc import Sequence
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import server_groups
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
        placed = [dataclasses.replace(m, alternates=_alternates(view, placed, m, max_alternates))
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
            return required, None
    return set(), rejection


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


def _alternates(view: views.ClusterView, moves: Sequence[model.Move], move: model.Move,
                count: int) -> tuple[str, ...]:
    """Other destinations that stay legal whatever the other moves do, the
    emptiest first."""
    rules = tuple(r for r in constraints.RULES if r is not server_groups.group_in_flight)
    required = closure(moves, set(move.requires))
    landed = [m for m in moves if m.instance_uuid in required]
    flying = [m for m in moves if m.instance_uuid not in required
              and m.instance_uuid != move.instance_uuid]
    found: list[tuple[float, str]] = []
    with views.laid(view, landed, flying):
        for host in sorted(view.cluster.scope_hosts):
            if host in (move.from_host, move.to_host):
                continue
            other = dataclasses.replace(move, to_host=host)
            if constraints.check(view, other, rules) is None:
                found.append((max(view.fills(host).values(), default=0.0), host))
    return tuple(host for _, host in sorted(found)[:count])
