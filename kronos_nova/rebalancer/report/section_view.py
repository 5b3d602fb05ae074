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

"""A section with its drawings, for the templates of the report and of the live page."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova.rebalancer.report import arrows
from kronos_nova.rebalancer.report import curve
from kronos_nova.rebalancer.report import heat as heat_maps
from kronos_nova.rebalancer.report import scale
from kronos_nova.rebalancer.report import summary
from kronos_nova.rebalancer.report import timeline
from kronos_nova.rebalancer.report import values


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyStrip:
    """A policy's hosts as squares."""

    name: str
    before: heat_maps.PolicySquares
    after: heat_maps.PolicySquares


@dataclasses.dataclass(frozen=True, slots=True)
class SectionView:
    """A section with all its drawings.

    ``squares``: width and height of a drawing of squares, in units of its own; a unit is ``zoom``
    pixels wide. ``flights``: moves under way, from square to square. ``places``: the place of each
    host among the squares; empty where nothing follows the pointer.
    """

    section: values.ScopeSection
    sentences: tuple[str, ...]
    heat: heat_maps.HeatMap
    strips: tuple[PolicyStrip, ...]
    squares: tuple[int, int]
    givers: tuple[arrows.GivingHost, ...]
    arrows: arrows.ArrowDrawing
    timeline: timeline.TimelineDrawing
    curves: tuple[curve.ImbalanceCurve, ...]
    bars: scale.LinearScale
    flights: tuple[heat_maps.Flight, ...] = ()
    zoom: int = 1
    places: Mapping[str, int] = dataclasses.field(default_factory=dict)


def build_view(section: values.ScopeSection) -> SectionView:
    """Draw a section of the report; a small scope has no squares."""
    ranking = heat_maps.sort_by_load(section.lines)
    return _draw_section(section, summary.list_sentences(section), ranking,
                         len(ranking) > heat_maps.FEW)


def build_live_view(section: values.ScopeSection, sentences: Sequence[str], *,
                    live: Sequence[values.MoveLine],
                    flying: Sequence[values.MoveLine]) -> SectionView:
    """Draw a section of the live page: each host is a square, and few hosts are large ones.

    :param section: ``lines`` in the order of the squares.
    :param live: moves that are not over.
    :param flying: moves under way.
    """
    view = _draw_section(section, sentences, section.lines, bool(section.lines))
    return dataclasses.replace(
        view, heat=dataclasses.replace(view.heat, parts=()),
        givers=arrows.group_by_source(live, section.lines),
        arrows=arrows.draw_arrows(live, section.lines),
        flights=heat_maps.draw_flights(flying, [line.name for line in section.lines]),
        zoom=heat_maps.choose_zoom(len(section.lines)),
        places={line.name: place for place, line in enumerate(section.lines)})


def _draw_section(section: values.ScopeSection, sentences: Sequence[str],
                  ranking: Sequence[values.HostLine], squares: bool) -> SectionView:
    strips = [PolicyStrip(policy.name,
                          heat_maps.draw_squares([line.levels[n].before for line in ranking]),
                          heat_maps.draw_squares([line.levels[n].after for line in ranking]))
              for n, policy in enumerate(section.policies)] if squares else []
    known = [v for p in section.policies for v in (p.before, p.after, p.threshold)
             if v is not None]
    return SectionView(
        section, tuple(sentences), heat_maps.arrange_hosts(ranking), tuple(strips),
        heat_maps.compute_squares_size(len(ranking)),
        arrows.group_by_source(section.moves, section.lines),
        arrows.draw_arrows(section.moves, section.lines),
        timeline.draw_timeline(section), curve.draw_curves(section),
        scale.LinearScale(0.0, scale.round_axis_top(max(known, default=0.0)), 6.0, 174.0))
