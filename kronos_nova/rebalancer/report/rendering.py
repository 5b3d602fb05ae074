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

"""The templates, with the functions that they call, and the style sheet."""

import functools
import pathlib
from typing import Any

import jinja2

from kronos_nova import plurals
from kronos_nova.rebalancer.report import arrows
from kronos_nova.rebalancer.report import heat
from kronos_nova.rebalancer.report import meanings
from kronos_nova.rebalancer.report import palette
from kronos_nova.rebalancer.report import words
from kronos_nova.text import plan_lines

#: Most names of a list that are written; the others are counted.
NAMED = 50
_HERE = pathlib.Path(__file__).parent / 'templates'


@functools.cache
def build_environment() -> jinja2.Environment:
    """Return the templates; each value that they write is escaped, and printable."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        finalize=words.format_value, trim_blocks=True, lstrip_blocks=True)
    helpers: dict[str, Any] = {
        'band': heat.compute_band, 'bands': heat.BANDS, 'clipped': words.clip_text,
        'count': plurals.count_noun,
        'fine': words.format_fine_number, 'label': arrows.format_host_label,
        'meaning': meanings.explain_rule, 'method': plan_lines.format_method,
        'moment': words.format_moment,
        'most_arrows': arrows.MOST_DRAWN,
        'named': NAMED, 'number': words.format_number, 'offset': words.format_offset,
        'shut_down': plan_lines.SHUT_DOWN, 'span': words.format_span,
        'stamp': words.format_timestamp}
    environment.globals.update(helpers)
    return environment


@functools.cache
def render_style() -> str:
    """Render the style sheet, colours first; on paper they are always the light ones."""
    light, dark = (''.join(f'--{name}:{value};' for name,
                           value in palette.list_css_variables(theme).items())
                   for theme in ('light', 'dark'))
    bands = ''.join(f'.h{n}{{background:var(--h{n});color:var(--t{n})}}.q{n}{{fill:var(--h{n})}}'
                    for n in range(heat.BANDS))
    return (f':root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n'
            f'{(_HERE / "style.css").read_text(encoding="utf-8")}{bands}')
