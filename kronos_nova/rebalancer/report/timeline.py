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

"""Waves on a time line: as tasks went, or, without tasks, as they are planned."""

from collections.abc import Sequence
import dataclasses

from kronos_nova.rebalancer.report import scale as scales
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.report import words

#: Height of a row, of the head of a wave and of the axis; width of names and of all.
ROW, HEAD, AXIS, NAMES, WIDTH = 20, 24, 28, 250, 920
#: Moves beyond these are in the table only.
MOST = 300
#: Narrowest bar, so that short attempts are seen, too.
NARROWEST = 3.0


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptBar:
    """An attempt; ``kind`` is done, failed or running."""

    x: float
    width: float
    kind: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class MoveRow:
    """A move; it does not begin before ``x``."""

    number: int
    label: str
    y: float
    x: float
    text: str
    bars: tuple[AttemptBar, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TimeTick:
    x: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class WaveSpan:
    """A wave; its moves may begin in the time from ``x`` over ``width``.

    ``ticks`` are its own where waves have no common clock.
    """

    number: int
    y: float
    height: float
    x: float
    width: float
    rows: tuple[MoveRow, ...]
    ticks: tuple[TimeTick, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TimelineDrawing:
    width: int
    height: float
    waves: tuple[WaveSpan, ...]
    ticks: tuple[TimeTick, ...]
    known: bool
    left_out: int = 0


def draw_timeline(section: values.ScopeSection) -> TimelineDrawing:
    moves = sorted(section.moves, key=lambda m: (m.wave, m.begins, m.number))
    shown = moves[:MOST]
    known = section.started is not None
    drawing = _as_it_went(section, shown) if known else _draw_planned_waves(shown)
    return dataclasses.replace(drawing, left_out=len(moves) - len(shown))


def _group_by_wave(moves: Sequence[values.MoveLine]) -> list[list[values.MoveLine]]:
    return [[m for m in moves if m.wave == wave] for wave in sorted({m.wave for m in moves})]


def _as_it_went(section: values.ScopeSection, moves: Sequence[values.MoveLine]) -> TimelineDrawing:
    """Draw all waves on one clock, up to the last time that is known."""
    start = section.started or 0.0
    ends = [s.end or section.seen for m in moves for s in m.spans]
    scale = scales.LinearScale(start, max([start + 60, *ends, *(m.begins for m in moves)]),
                               NAMES + 10, WIDTH - 20)
    days = scale.high - scale.low > 86400
    waves, y = [], float(AXIS)
    for group in _group_by_wave(moves):
        rows = tuple(_draw_row(m, y + HEAD + n * ROW, scale, section.seen)
                     for n, m in enumerate(group))
        height = HEAD + len(group) * ROW
        waves.append(WaveSpan(group[0].wave, y, height, scale.begin, scale.end - scale.begin,
                              rows))
        y += height + 6
    ticks = tuple(TimeTick(mark.place, words.format_clock_time(mark.value, days))
                  for mark in scales.list_time_ticks(scale, 6))
    return TimelineDrawing(WIDTH, y, tuple(waves), ticks, True)


def _draw_row(move: values.MoveLine, y: float, scale: scales.LinearScale, now: float) -> MoveRow:
    bars = []
    for span in move.spans:
        kind = 'failed' if span.error else 'running' if span.end is None else 'done'
        end = now if span.end is None else span.end
        x = scale.at(span.start)
        bars.append(AttemptBar(x, max(NARROWEST, round(scale.at(end) - x, 1)), kind,
                               f'to {span.to_host}, {words.format_moment(span.start)}, '
                               + ('still under way' if span.end is None
                                  else f'{max(0.0, end - span.start):.0f} s')
                               + (f': {span.error}' if span.error else '')))
    return MoveRow(move.number, format_move_label(move), y, scale.at(move.begins),
                   f'not before {words.format_moment(move.begins)}', tuple(bars))


def _draw_planned_waves(moves: Sequence[values.MoveLine]) -> TimelineDrawing:
    """Draw the waves side by side: the start of the next wave is not known yet."""
    groups = _group_by_wave(moves)
    spans = [max((m.begins for m in group), default=0.0) for group in groups]
    room = WIDTH - NAMES - 20 - 14 * (len(groups) - 1)
    share = [room * (span + 15.0) / sum(s + 15.0 for s in spans) for span in spans]
    waves, y, x = [], float(AXIS), float(NAMES + 10)
    for group, span, width in zip(groups, spans, share, strict=True):
        scale = scales.LinearScale(0.0, span or 1.0, x + 8, x + max(9.0, width - 8))
        rows = tuple(MoveRow(m.number, format_move_label(m), y + HEAD + n * ROW, scale.at(m.begins),
                             f'{words.format_offset(m.begins)} after wave {m.wave} begins')
                     for n, m in enumerate(group))
        height = HEAD + len(group) * ROW
        marks = scales.list_time_ticks(scale, max(1, int(width // 90))) if span else (
            scales.ScaleMark(scale.begin, 0.0),)
        waves.append(WaveSpan(group[0].wave, y, height, round(x, 1), round(width, 1), rows,
                              tuple(TimeTick(m.place, words.format_offset(m.value))
                                    for m in marks)))
        x, y = x + width + 14, y + height + 6
    return TimelineDrawing(WIDTH, y, tuple(waves), (), False)


def format_move_label(move: values.MoveLine) -> str:
    ends = f'{words.clip_text(move.from_host, 14)} \N{RIGHTWARDS ARROW} '
    return f'{move.number}  {ends}{words.clip_text(move.to_host, 14)}'
