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

"""Colours of the light and the dark theme, and the contrast between them."""

from collections.abc import Mapping

#: Smallest contrast of a text on a surface: WCAG 2, level AA, requires 4.5.
CONTRAST = 4.5
#: Ten bands of a score, cold to hot; in the dark theme hot bands shine.
HEAT = {
    'light': ('#fbf8f1', '#fbf0d9', '#fae3b8', '#f8d394', '#f5bf70', '#efa54f', '#e58a3c',
              '#b5491c', '#96361a', '#742417'),
    'dark': ('#1d2125', '#292722', '#3a2f22', '#4d3820', '#63411c', '#7a4a18', '#d98a3d',
             '#e89f52', '#f4b66d', '#fccf93')}
INK = {
    'light': {
        'page': '#ffffff', 'panel': '#f6f7f8', 'line': '#d5d9de', 'ink': '#1c2127',
        'soft': '#555e69', 'link': '#0b57a4', 'mark': '#0b57a4', 'good': '#19693f',
        'bad': '#a3231d'},
    'dark': {
        'page': '#15181b', 'panel': '#1d2125', 'line': '#3a4149', 'ink': '#e7eaee',
        'soft': '#a9b2bd', 'link': '#86b9f5', 'mark': '#86b9f5', 'good': '#7ccb9a',
        'bad': '#ff9b92'}}
#: Colours of texts, and of the surfaces on which they stand.
TEXTS = ('ink', 'soft', 'link', 'mark', 'good', 'bad')
SURFACES = ('page', 'panel')


def compute_contrast(colour: str, other: str) -> float:
    """Compute the contrast of two colours, in [1, 21] (WCAG 2.2, contrast ratio)."""
    high, low = sorted((_compute_luminance(colour), _compute_luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _compute_luminance(colour: str) -> float:
    """Compute the relative luminance of an sRGB colour (WCAG 2.2)."""
    parts = [int(colour[n:n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def on_heat(theme: str) -> tuple[str, ...]:
    """Return the colour of a number on each band: ink or page, the one with more contrast."""
    choice = (INK[theme]['ink'], INK[theme]['page'])
    return tuple(max(choice, key=lambda ink: compute_contrast(ink, band)) for band in HEAT[theme])


def list_css_variables(theme: str) -> Mapping[str, str]:
    """Return the colours as properties of a style sheet, without their dashes."""
    variables = dict(INK[theme])
    for band, (surface, ink) in enumerate(zip(HEAT[theme], on_heat(theme), strict=True)):
        variables |= {f'h{band}': surface, f't{band}': ink}
    return variables
