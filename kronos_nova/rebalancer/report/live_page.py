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
"""Parts of the live page as HTML, and its style sheet."""

import functools
import pathlib

from kronos_nova.rebalancer.report import live_values
from kronos_nova.rebalancer.report import rendering
from kronos_nova.rebalancer.report import scale
from kronos_nova.rebalancer.report import section_view
from kronos_nova.rebalancer.report import values

_STYLE = pathlib.Path(__file__).parent / 'templates' / 'live.css'


def render_overview(overview: live_values.Overview) -> str:
    """Render all scopes in few words, the plans that wait and the pauses."""
    known = [v for card in overview.cards for p in card.policies
             for v in (p.before, p.after, p.threshold) if v is not None]
    bars = scale.LinearScale(0.0, scale.round_axis_top(max(known, default=0.0)), 6.0, 174.0)
    return _render('live_overview.html', overview=overview, bars=bars)


def render_failures(overview: live_values.Overview) -> str:
    """Render the tasks that failed lately, with an operator's next step."""
    return _render('live_failures.html', overview=overview)


def render_scope(scope: live_values.LiveScope) -> str:
    """Render a scope: its hosts as squares, its moves, and its imbalance over time."""
    view = section_view.build_live_view(
        scope.section, scope.sentences,
        live=[move.line for move in scope.moves if not move.ended],
        flying=[move.line for move in scope.moves if move.under_way])
    return _render('live_scope.html', scope=scope, view=view, s=scope.section, id='scope')


def render_plan(section: values.ScopeSection) -> str:
    """Render a stored plan with its moves, as the report does."""
    return _render('live_plan.html', view=section_view.build_view(section), s=section, id='plan')


@functools.cache
def render_style() -> str:
    """Render the style sheet of the report, and the rules for the live page alone."""
    return rendering.render_style() + _STYLE.read_text(encoding='utf-8')


def _render(name: str, **context: object) -> str:
    return str(rendering.build_environment().get_template(name).render(**context))
