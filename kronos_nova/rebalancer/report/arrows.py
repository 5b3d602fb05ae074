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

"""Moves as arrows, from the hosts that give on the left to those that take on the right."""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.report import words

#: Between two hosts, from the top, and for a name; width of the drawing.
STEP, TOP, NAMES, WIDTH = 26, 30, 250, 920
#: Widest arrow, and the longest name in characters.
WIDEST, LONGEST = 9.0, 30
#: Most arrows that a reader can follow; with more, a table of hosts stands in their place.
MOST_DRAWN = 24
#: Arrows beyond these are in the table only.
MOST = 400


@dataclasses.dataclass(frozen=True, slots=True)
class GivingHost:
    """A host that gives; ``takers`` with the number of moves to each, most first."""

    name: str
    moves: int
    takers: tuple[tuple[str, int], ...]


def group_by_source(moves: Sequence[values.MoveLine],
                    lines: Sequence[values.HostLine] = ()) -> tuple[GivingHost, ...]:
    """Return the hosts that give, hottest first where scores are known, else by moves."""
    loads = {line.name: line.load.before or 0.0 for line in lines}
    takers: dict[str, Counter[str]] = {}
    for move in moves:
        takers.setdefault(move.from_host, Counter())[move.to_host] += 1
    giving_hosts = [GivingHost(name, count.total(), tuple(sorted(
        count.items(), key=lambda item: (-item[1], item[0])))) for name, count in takers.items()]
    return tuple(sorted(giving_hosts,
                        key=lambda giver: (-loads.get(giver.name, 0.0), -giver.moves, giver.name)))


@dataclasses.dataclass(frozen=True, slots=True)
class HostEnd:
    """A host at one side: where its name stands, how many moves it has there."""

    name: str
    y: float
    moves: int
    load: values.HostLevel | None


@dataclasses.dataclass(frozen=True, slots=True)
class MoveArrow:
    """All moves of a phase between two hosts."""

    path: str
    width: float
    phase: str
    numbers: tuple[int, ...]
    from_host: str
    to_host: str


@dataclasses.dataclass(frozen=True, slots=True)
class ArrowDrawing:
    width: int
    names: int
    height: int
    left: tuple[HostEnd, ...]
    right: tuple[HostEnd, ...]
    arrows: tuple[MoveArrow, ...]
    phases: tuple[str, ...]
    left_out: int = 0


def draw_arrows(moves: Sequence[values.MoveLine],
                lines: Sequence[values.HostLine] = ()) -> ArrowDrawing:
    """Draw both sides, hottest first where scores are known, else in the order of the moves."""
    loads = {line.name: line.load for line in lines}
    grouped: dict[tuple[str, str, str], list[int]] = {}
    for move in moves:
        grouped.setdefault((move.from_host, move.to_host, move.phase), []).append(move.number)
    drawn_keys = sorted(grouped, key=lambda key: -len(grouped[key]))[:MOST]
    drawn_keys = [key for key in grouped if key in set(drawn_keys)]
    left = _draw_side([(key[0], len(grouped[key])) for key in drawn_keys], loads)
    right = _draw_side([(key[1], len(grouped[key])) for key in drawn_keys], loads)
    ys = [{end.name: end.y for end in side} for side in (left, right)]
    arrows = tuple(
        MoveArrow(_format_path(ys[0][key[0]], ys[1][key[1]]), _compute_width(len(grouped[key])),
                  key[2],
                  tuple(grouped[key]), key[0], key[1]) for key in drawn_keys)
    return ArrowDrawing(
        WIDTH, NAMES, TOP + max(len(left), len(right), 1) * STEP + 6, left, right, arrows,
        tuple(dict.fromkeys(key[2] for key in drawn_keys)),
        sum(len(numbers) for key, numbers in grouped.items() if key not in set(drawn_keys)))


def _draw_side(ends: Sequence[tuple[str, int]],
               loads: Mapping[str, values.HostLevel]) -> tuple[HostEnd, ...]:
    moves: dict[str, int] = {}
    for name, number in ends:
        moves[name] = moves.get(name, 0) + number

    def compute_heat_key(name: str) -> float:
        level = loads.get(name)
        return -level.before if level is not None and level.before is not None else 0.0

    return tuple(HostEnd(name, TOP + row * STEP + STEP / 2, moves[name], loads.get(name))
                 for row, name in enumerate(sorted(moves, key=compute_heat_key)))


def _compute_width(moves: int) -> float:
    return min(WIDEST, 1.5 + 0.75 * (moves - 1))


def _format_path(start: float, end: float) -> str:
    begin, stop = NAMES + 8, WIDTH - NAMES - 18
    bend = (begin + stop) / 2
    return f'M{begin} {start:g}C{bend:g} {start:g} {bend:g} {end:g} {stop} {end:g}'


def format_host_label(name: str) -> str:
    return words.clip_text(name, LONGEST)
