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

"""Each text colour has enough contrast with its background, in light and dark mode."""

import itertools
import re

import pytest

from kronos_nova.rebalancer.report import palette
from kronos_nova.rebalancer.report import rendering


@pytest.mark.parametrize(('one', 'other', 'ratio'), [
    ('#000000', '#ffffff', 21.0), ('#777777', '#ffffff', 4.48), ('#336699', '#336699', 1.0)])
def test_contrast_is_that_of_the_guidelines(one, other, ratio):
    assert palette.compute_contrast(one, other) == pytest.approx(ratio, abs=0.01)
    assert palette.compute_contrast(other, one) == palette.compute_contrast(one, other)


@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_every_text_stands_out_from_every_surface(theme):
    ink = palette.INK[theme]
    for text, surface in itertools.product(palette.TEXTS, palette.SURFACES):
        assert palette.compute_contrast(
            ink[text], ink[surface]) >= palette.CONTRAST, (text, surface)


@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_every_number_stands_out_from_its_band(theme):
    for band, ink in zip(palette.HEAT[theme], palette.on_heat(theme), strict=True):
        assert palette.compute_contrast(ink, band) >= palette.CONTRAST, band


@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_bands_go_one_way_so_that_colours_are_not_all_there_is(theme):
    """From band to band the page is farther away, also without any hue."""
    ways = [palette.compute_contrast(band, palette.INK[theme]['page'])
            for band in palette.HEAT[theme]]
    assert ways == sorted(ways) and len(set(ways)) == len(ways)


def test_the_style_uses_no_colour_but_these():
    style = rendering.render_style()
    own = {colour for theme in ('light', 'dark')
           for colour in palette.list_css_variables(theme).values()}
    assert set(re.findall('#[0-9a-f]{6}', style)) == own
    assert not re.search(r':\s*(white|black|red|rgb)', style)
    used = set(re.findall(r'var\(--(\w+)\)', style))
    assert used <= set(palette.list_css_variables('light'))
    texts = set(re.findall(r'[ {;]color: ?var\(--([a-z]+)\)', style))
    assert texts <= set(palette.TEXTS), 'what is not measured above is no text'


def test_dark_mode_applies_to_screens_alone():
    style = rendering.render_style()
    assert style.count('prefers-color-scheme') == 1
    assert '@media screen and (prefers-color-scheme:dark)' in style
