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

"""Imbalance over time, as the scope's plans found, foresaw and realised it."""

from collections.abc import Sequence
import dataclasses

from kronos_nova.rebalancer.report import scale as scales
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.report import words

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 920, 190, 44, 26, 12


@dataclasses.dataclass(frozen=True, slots=True)
class CurveDot:
    """``kind`` is foreseen, realised or shown (the plan that the report is about)."""

    x: float
    y: float
    kind: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ImbalanceCurve:
    """``lines`` are points of polylines: broken where an imbalance is not known."""

    title: str
    lines: tuple[str, ...]
    dots: tuple[CurveDot, ...]
    xs: tuple[tuple[float, str], ...]
    ys: tuple[tuple[float, str], ...]
    threshold: float | None
    width: int = WIDTH
    height: int = HEIGHT


def draw_curves(section: values.ScopeSection) -> tuple[ImbalanceCurve, ...]:
    """Draw the combined imbalance, then that of each policy; nothing for fewer than two plans."""
    points = sorted(section.points, key=lambda p: p.at)
    if len(points) < 2:
        return ()
    curves = [_draw_combined(points)]
    for policy in section.policies:
        curve = _of_policy(points, policy)
        if curve is not None:
            curves.append(curve)
    return tuple(curves)


def _draw_combined(points: Sequence[values.PlanPoint]) -> ImbalanceCurve:
    known = [v for p in points for v in (p.before, p.after, p.realised) if v is not None]
    x, y = _build_scales(points, known)
    dots = []
    for p in points:
        if p.after is not None and p.moves:
            dots.append(CurveDot(x.at(p.at), y.at(p.after), 'foreseen',
                                 f'{words.format_moment(p.at)}: foreseen '
                                 f'{words.format_fine_number(p.after)}'))
        if p.realised is not None:
            dots.append(CurveDot(x.at(p.at), y.at(p.realised), 'realised',
                                 f'{words.format_moment(p.at)}: realised '
                                 f'{words.format_fine_number(p.realised)}'))
        if p.shown and p.before is not None:
            dots.append(CurveDot(x.at(p.at), y.at(p.before), 'shown',
                                 f'{words.format_moment(p.at)}: this plan found '
                                 f'{words.format_fine_number(p.before)}'))
    return _draw_curve('Combined', [(p.at, p.before) for p in points], x, y, dots, None)


def _of_policy(points: Sequence[values.PlanPoint],
               policy: values.PolicyLine) -> ImbalanceCurve | None:
    """Draw the imbalance of a policy, None: no plan knew it."""
    series = [(p.at, dict(p.policies).get(policy.name)) for p in points]
    known = [v for _, v in series if v is not None]
    if not known:
        return None
    x, y = _build_scales(points, [*known, policy.threshold])
    dots = [CurveDot(x.at(p.at), y.at(v), 'shown', f'{words.format_moment(p.at)}: this plan found '
                                              f'{words.format_fine_number(v)}')
            for p, (_, v) in zip(points, series, strict=True) if p.shown and v is not None]
    return _draw_curve(policy.name, series, x, y, dots, y.at(policy.threshold))


def _build_scales(points: Sequence[values.PlanPoint],
                  known: Sequence[float]) -> tuple[scales.LinearScale, scales.LinearScale]:
    return (scales.LinearScale(points[0].at, points[-1].at, LEFT + 8, WIDTH - 16),
            scales.LinearScale(0.0, scales.round_axis_top(max(known, default=0.0)), HEIGHT - BOTTOM,
                               TOP))


def _draw_curve(title: str, series: Sequence[tuple[float, float | None]], x: scales.LinearScale,
                y: scales.LinearScale, dots: Sequence[CurveDot],
                threshold: float | None) -> ImbalanceCurve:
    lines: list[list[str]] = [[]]
    for at, value in series:
        if value is None:
            lines.append([])
        else:
            lines[-1].append(f'{x.at(at):g},{y.at(value):g}')
    # A point alone is a line of no length, which round ends make a dot.
    texts = tuple(' '.join(line * 2 if len(line) == 1 else line) for line in lines if line)
    days = x.high - x.low > 86400
    return ImbalanceCurve(title, texts, tuple(dots),
                          tuple((m.place, words.format_clock_time(m.value, days))
                                for m in scales.list_time_ticks(x, 6)),
                          tuple((m.place, f'{m.value:g}') for m in scales.list_number_ticks(y, 4)),
                          threshold)
