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

A move may start as soon as the moves it requires have completed. Every other move of the plan may
then be waiting, under way or failed: it counts at its source, its destination and all its
alternates. So any order of completion, any failures and any destination that an executor falls back
to stay legal, and a failure cancels only the moves that required it.

The executor decides how many of a host's moves run at once: a limit here would let one failure
cancel moves that have nothing to do with it.

A move is compared only with others that share a host or a server group with it, so that a plan of M
moves is ordered in about M steps in a cloud of any size.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import heapq

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer.planning import move_dependencies as boards

#: Most hosts that are tried for a move's alternates, and for a parking move.
TRIED = 64

Suits = Callable[[model.Move, str], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class OrderedMoves:
    """Moves of a plan in their order.

    ``dropped`` counts moves that no order makes legal, by rule. ``parked`` maps instance UUIDs to
    the original move, where a move leads elsewhere.
    """

    moves: tuple[model.Move, ...]
    dropped: Counter[str]
    parked: Mapping[str, model.Move] = dataclasses.field(default_factory=dict)


def order_moves(view: cluster_view.ClusterView, moves: Sequence[model.Move], *,
                max_alternates: int = 0,
                improves: Callable[[model.Move], bool] | None = None,
                in_use: Callable[[str], bool] = lambda host: True,
                among: Collection[str] | None = None,
                suits: Suits = lambda move, host: True) -> OrderedMoves:
    """Give each move its requirements, wave and alternates.

    A move that is legal only after later ones is placed after them. Moves that wait for each other
    in a circle are broken up by parking: one instance goes to a third host that ``improves``
    accepts; without one its move is dropped.

    :param view: the cluster before the plan; left unchanged.
    :param moves: best each legal after all before it have landed.
    :param in_use: whether a host holds instances.
    :param among: hosts that may be alternates; None: all of the scope.
    :param suits: whether a host may be an alternate of a move, besides the rules.
    """
    with boards.MoveBoard(view, moves).recall_at_end() as board:
        waiting = _place_moves(board, moves)
        parked: dict[str, model.Move] = {}
        if improves is not None:
            for move in [m for m, _ in waiting]:
                if (move.instance_uuid not in board.moves
                        and _park_move(board, move, improves) is not None):
                    parked[move.instance_uuid] = move
                    waiting = _place_moves(board, [m for m, _ in waiting if m is not move])
        if max_alternates:
            _add_alternates(board, max_alternates, in_use, among, suits)
        return OrderedMoves(tuple(sorted(board.moves.values(), key=lambda m: m.wave)),
                            Counter(rejection.rule for _, rejection in waiting), parked)


def _place_moves(board: boards.MoveBoard,
                 moves: Sequence[model.Move]) -> list[tuple[model.Move, model.Rejection]]:
    """Place the moves that can be placed; return the rest, each with its rejection."""
    while True:
        waiting = []
        for move in moves:
            if (move.instance_uuid not in board.moves
                    and (rejection := board.place_move(move)) is not None):
                waiting.append((move, rejection))
        if not waiting or len(waiting) == len(moves):
            return waiting
        moves = [move for move, _ in waiting]


def _park_move(board: boards.MoveBoard, move: model.Move,
               improves: Callable[[model.Move], bool]) -> model.Move | None:
    """Place and return the move to the emptiest third host that is legal and ``improves``."""
    for _, host in heapq.nsmallest(TRIED, board.list_fullness()):
        other = dataclasses.replace(move, to_host=host)
        if (host not in (move.from_host, move.to_host)
                and constraints.judge_move(board.view, other) is None
                and improves(other) and board.place_move(other) is None):
            return other
    return None


def _add_alternates(board: boards.MoveBoard, count: int, in_use: Callable[[str], bool],
                    among: Collection[str] | None, suits: Suits) -> None:
    """Add other destinations, the emptiest first, one for each move before any gets a second.

    Each one fills its host for the next, so that the moves do not all fall back to one host. A plan
    that packs falls back to no empty host.
    """
    packs = any(m.phase is model.Phase.PACK for m in board.moves.values())
    heap = [entry for entry in board.list_fullness() if (not packs or in_use(entry[1]))
            and (among is None or entry[1] in among)]
    heapq.heapify(heap)
    wanting = [m for m in sorted(board.moves.values(), key=lambda m: m.wave)
               if board.may_have_alternates(m)]
    for _ in range(count):
        wanting = [m for m in (_add_next_alternate(board, m, heap, suits) for m in wanting)
                   if m is not None]


def _add_next_alternate(board: boards.MoveBoard, move: model.Move, heap: list[tuple[float, str]],
                        suits: Suits) -> model.Move | None:
    """Return the move with one more alternate, None: no host was found."""
    tried: list[tuple[float, str]] = []
    alternate = None
    board.view.revert_departure(move)
    while heap and alternate is None and len(tried) < TRIED:
        tried.append(heapq.heappop(heap))
        if suits(move, tried[-1][1]) and board.try_alternate(move, tried[-1][1]):
            alternate = tried[-1][1]
    board.view.begin_departure(move)
    if alternate is not None:
        move = board.add_alternate(move, alternate)
        tried[-1] = board.view.load.compute_fullness(alternate), alternate
    for entry in tried:
        heapq.heappush(heap, entry)
    return move if alternate is not None else None
