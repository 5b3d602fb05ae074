# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The samples of a soak as an SVG. Pure."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from xml.sax import saxutils

WIDTH, HEIGHT, LEFT, GAP = 760, 130, 90, 60
COLOURS = ('#1f6feb', '#8250df', '#2da44e', '#bf8700', '#cf222e', '#57606a')
Points = Sequence[tuple[float, float]]


def list_panels(samples: Sequence[dict[str, Any]]) -> dict[str, dict[str, list[Any]]]:
    """Return title -> line's name -> points (hours, value) of everything that is drawn."""
    began = samples[0]['at']
    panels: dict[str, dict[str, list[Any]]] = {}

    def add(title: str, name: str, sample: dict[str, Any], value: float) -> None:
        panels.setdefault(title, {}).setdefault(name, []).append(
            ((sample['at'] - began) / 3600, value))

    for sample in samples:
        for name, measured in sample['processes'].items():
            add('resident memory, MiB', name, sample, measured['rss_kib'] / 1024)
            add('threads', name, sample, measured['threads'])
            add('descriptors', name, sample, measured['descriptors'])
        if 'database_bytes' in sample:
            add('database, MiB', 'kronos', sample, sample['database_bytes'] / 2 ** 20)
            for state, count in sorted(sample['tasks'].items()):
                add('tasks', state, sample, count)
    return panels


def draw(samples: Sequence[dict[str, Any]], faults: Sequence[tuple[float, str]]) -> str:
    """Return the picture.

    :param faults: epoch seconds and name of each; a grey line marks it.
    """
    panels = list_panels(samples)
    hours = max(0.01, (samples[-1]['at'] - samples[0]['at']) / 3600)
    marks = [((at - samples[0]['at']) / 3600, name) for at, name in faults]
    body = []
    for number, (title, lines) in enumerate(panels.items()):
        body += _draw_panel(title, lines, marks, hours, GAP + number * (HEIGHT + GAP))
    width, height = LEFT + WIDTH + 190, GAP + len(panels) * (HEIGHT + GAP)
    return '\n'.join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>', *body, '</svg>', ''])


def _draw_panel(title: str, lines: Mapping[str, Points], marks: Sequence[tuple[float, str]],
                hours: float, top: float) -> list[str]:
    highest = max(value for points in lines.values() for _, value in points) * 1.05 or 1.0

    def x(at: float) -> float:
        return LEFT + at / hours * WIDTH

    def y(value: float) -> float:
        return top + HEIGHT - value / highest * HEIGHT

    body = [f'<text x="{LEFT}" y="{top - 8}" font-weight="bold">{saxutils.escape(title)}</text>']
    for part in (0.0, 0.5, 1.0):
        at = y(part * highest)
        body += [f'<line x1="{LEFT}" y1="{at:.1f}" x2="{LEFT + WIDTH}" y2="{at:.1f}" '
                 'stroke="#dddddd"/>',
                 f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">'
                 f'{part * highest:,.1f}</text>']
    body += [f'<line x1="{x(at):.1f}" y1="{top}" x2="{x(at):.1f}" y2="{top + HEIGHT}" '
             f'stroke="#eeeeee"><title>{saxutils.escape(str(name))}</title></line>'
             for at, name in marks]
    body.append(f'<text x="{LEFT + WIDTH}" y="{top + HEIGHT + 16}" text-anchor="end">'
                f'{hours:.2f} h</text>')
    for number, (name, points) in enumerate(sorted(lines.items())):
        colour = COLOURS[number % len(COLOURS)]
        body.append(f'<polyline fill="none" stroke="{colour}" points="' + ' '.join(
            f'{x(at):.1f},{y(value):.1f}' for at, value in points) + '"/>')
        body += [f'<rect x="{LEFT + WIDTH + 12}" y="{top + number * 17}" width="12" height="9" '
                 f'fill="{colour}"/>',
                 f'<text x="{LEFT + WIDTH + 30}" y="{top + number * 17 + 9}">'
                 f'{saxutils.escape(name)}</text>']
    return body
