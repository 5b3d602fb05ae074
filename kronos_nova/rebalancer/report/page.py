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

"""A report as one HTML file: without scripts and external resources, with its own style."""

import base64
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import pathlib
from typing import Any

import jinja2

from kronos_nova import plurals
from kronos_nova.rebalancer.report import arrows
from kronos_nova.rebalancer.report import curve
from kronos_nova.rebalancer.report import heat
from kronos_nova.rebalancer.report import meanings
from kronos_nova.rebalancer.report import palette
from kronos_nova.rebalancer.report import scale
from kronos_nova.rebalancer.report import summary
from kronos_nova.rebalancer.report import timeline
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.report import words

#: Most names of a list that are written; the others are counted.
NAMED = 50
#: Content of the meta element by which a report of Kronos is known.
GENERATOR = 'kronos report'
_HERE = pathlib.Path(__file__).parent / 'templates'


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyStrip:
    """A policy's hosts as squares."""

    name: str
    before: heat.PolicySquares
    after: heat.PolicySquares


@dataclasses.dataclass(frozen=True, slots=True)
class SectionView:
    """A section with all its drawings."""

    section: values.ScopeSection
    sentences: tuple[str, ...]
    heat: heat.HeatMap
    strips: tuple[PolicyStrip, ...]
    squares: tuple[int, int]
    givers: tuple[arrows.GivingHost, ...]
    arrows: arrows.ArrowDrawing
    timeline: timeline.TimelineDrawing
    curves: tuple[curve.ImbalanceCurve, ...]
    bars: scale.LinearScale


def render_page(report: values.WholeReport) -> str:
    """Render the whole file; the same report gives the same text."""
    style = _render_style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return str(_build_environment().get_template('page.html').render(
        report=report, views=[_build_view(section) for section in report.sections],
        style=style, generator=GENERATOR,
        csp=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'"))


def _build_view(section: values.ScopeSection) -> SectionView:
    ranking = heat.sort_by_load(section.lines)
    strips: Sequence[PolicyStrip] = ()
    if len(ranking) > heat.FEW:
        strips = [PolicyStrip(policy.name,
                              heat.draw_squares([line.levels[n].before for line in ranking]),
                              heat.draw_squares([line.levels[n].after for line in ranking]))
                  for n, policy in enumerate(section.policies)]
    known = [v for p in section.policies for v in (p.before, p.after, p.threshold)
             if v is not None]
    return SectionView(
        section, summary.list_sentences(section), heat.arrange_hosts(ranking), tuple(strips),
        heat.compute_squares_size(len(ranking)),
        arrows.group_by_source(section.moves, section.lines),
        arrows.draw_arrows(section.moves, section.lines),
        timeline.draw_timeline(section), curve.draw_curves(section),
        scale.LinearScale(0.0, scale.round_axis_top(max(known, default=0.0)), 6.0, 174.0))


@functools.cache
def _build_environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        finalize=words.format_value, trim_blocks=True, lstrip_blocks=True)
    helpers: dict[str, Any] = {
        'band': heat.compute_band, 'bands': heat.BANDS, 'clipped': words.clip_text,
        'count': plurals.count_noun,
        'fine': words.format_fine_number, 'label': arrows.format_host_label,
        'meaning': meanings.explain_rule, 'moment': words.format_moment,
        'most_arrows': arrows.MOST_DRAWN,
        'named': NAMED, 'number': words.format_number, 'offset': words.format_offset,
        'stamp': words.format_timestamp}
    environment.globals.update(helpers)
    return environment


@functools.cache
def _render_style() -> str:
    """Render the style sheet, colours first; on paper they are always the light ones."""
    light, dark = (''.join(f'--{name}:{value};' for name,
                           value in palette.list_css_variables(theme).items())
                   for theme in ('light', 'dark'))
    bands = ''.join(f'.h{n}{{background:var(--h{n});color:var(--t{n})}}.q{n}{{fill:var(--h{n})}}'
                    for n in range(heat.BANDS))
    return (f':root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n'
            f'{(_HERE / "style.css").read_text(encoding="utf-8")}{bands}')
