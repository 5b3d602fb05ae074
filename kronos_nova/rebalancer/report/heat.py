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

"""The heat map: the hosts that are shown first, and every host as a square."""

from collections.abc import Sequence
import dataclasses

from kronos_nova.rebalancer.report import palette
from kronos_nova.rebalancer.report import values

BANDS = len(palette.HEAT['light'])
#: Number of hosts that are shown at once, and of hosts in each part that can be opened.
FIRST = 30
PART = 200
#: A scope with more hosts is shown as squares, too; side and gap of a square, squares in a row.
FEW = 60
SIDE, GAP, ROW = 9, 1, 50


@dataclasses.dataclass(frozen=True, slots=True)
class FoldedHosts:
    """Hosts that are folded away together; ``first`` is the rank of the hottest."""

    first: int
    lines: tuple[values.HostLine, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class HeatMap:
    """Hosts of the map: ``hottest`` are shown, and so are the other ``moving`` ones."""

    hottest: tuple[values.HostLine, ...]
    moving: tuple[values.HostLine, ...]
    parts: tuple[FoldedHosts, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PolicySquares:
    """Squares of a policy, before or after: a path for each band, by its number."""

    paths: tuple[tuple[int, str], ...]
    counts: tuple[int, ...]
    unknown: int


@dataclasses.dataclass(frozen=True, slots=True)
class Flight:
    """A move under way as a line between two squares; ``number`` is that of the move."""

    number: int
    path: str


def compute_band(score: float) -> int:
    return min(BANDS - 1, max(0, int(score * BANDS + 1e-9)))


def sort_by_load(lines: Sequence[values.HostLine]) -> tuple[values.HostLine, ...]:
    """Sort hosts by load, hottest first and unknown loads last, then by name."""
    return tuple(sorted(lines, key=lambda line: (
        line.load.before is None, -(line.load.before or 0.0), line.name)))


def arrange_hosts(ranking: Sequence[values.HostLine]) -> HeatMap:
    """Split the hosts into shown and folded ones; few hosts are all shown."""
    if len(ranking) <= FEW:
        return HeatMap(tuple(ranking), (), ())
    rest = ranking[FIRST:]
    return HeatMap(
        tuple(ranking[:FIRST]), tuple(line for line in rest if line.gives or line.takes),
        tuple(FoldedHosts(FIRST + start + 1, tuple(rest[start:start + PART]))
              for start in range(0, len(rest), PART)))


def draw_squares(scores: Sequence[float | None]) -> PolicySquares:
    """Draw a square for each host, in rows of :data:`ROW`; unknown scores are left out."""
    paths: list[list[str]] = [[] for _ in range(BANDS)]
    for place, score in enumerate(scores):
        if score is not None:
            y, x = divmod(place, ROW)
            paths[compute_band(score)].append(f'M{x * (SIDE + GAP)} '
                                              f'{y * (SIDE + GAP)}h{SIDE}v{SIDE}h-{SIDE}z')
    counts = tuple(len(path) for path in paths)
    return PolicySquares(tuple((n, ''.join(path)) for n, path in enumerate(paths) if path), counts,
                         len(scores) - sum(counts))


def compute_squares_size(hosts: int) -> tuple[int, int]:
    """Return the width and height of so many squares."""
    return (min(hosts, ROW) * (SIDE + GAP), (hosts + ROW - 1) // ROW * (SIDE + GAP))


def draw_flights(moves: Sequence[values.MoveLine], hosts: Sequence[str]) -> tuple[Flight, ...]:
    """Draw a bent line for each move between two hosts that have squares.

    :param hosts: names in the order of the squares.
    """
    places = {host: place for place, host in enumerate(hosts)}
    flights = []
    for move in moves:
        if move.from_host in places and move.to_host in places:
            x, y = _find_centre(places[move.from_host])
            end_x, end_y = _find_centre(places[move.to_host])
            # The bend keeps lines between neighbours in a row apart from the squares.
            bend = 0.2 * (abs(end_x - x) + abs(end_y - y))
            flights.append(Flight(move.number, f'M{x:g} {y:g}Q{(x + end_x) / 2:g} '
                                               f'{(y + end_y) / 2 - bend:g} {end_x:g} {end_y:g}'))
    return tuple(flights)


def _find_centre(place: int) -> tuple[float, float]:
    row, column = divmod(place, ROW)
    return column * (SIDE + GAP) + SIDE / 2, row * (SIDE + GAP) + SIDE / 2


def choose_zoom(hosts: int) -> int:
    """Return the pixels of a unit of the squares: few hosts have large ones."""
    return 4 if hosts <= 12 else 2 if hosts <= 500 else 1
