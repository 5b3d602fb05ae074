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


"""How planning time grows with hosts and with instances: measured, and drawn.

Writes ``growth.json`` and ``growth.svg`` into a directory; ``--draw`` makes the
picture again from the numbers that are there. Processor time, minimum of
``--runs``, of 100 moves with ``objective = kronos`` (see planner.py)::

    python benchmarks/growth.py doc/source/contributor
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
from typing import Any

if __name__ == '__main__':
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import clusters
from benchmarks import planner

HOSTS = (225, 450, 900, 1_800, 3_600, 7_200)
INSTANCES = (6_000, 12_000, 24_000, 48_000, 96_000, 192_000)
#: What the other one is meanwhile.
FIXED_HOSTS, FIXED_INSTANCES = 1_800, 48_000
BUDGET = 100

#: Key of a measured step, how it is called, and its colour.
LINES = (('parse', 'parsing the answers', '#777777'),
         ('plan', 'Cluster to ordered Plan', '#1f6feb'),
         ('ingest', 'building the Simulation', '#2da44e'), ('moves', '100 moves', '#cf222e'))

WIDTH, HEIGHT, MARGIN, GAP = 420, 300, 60, 90


def measure(hosts: int, instances: int, runs: int) -> dict[str, Any]:
    """In a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, '.', '--one', str(hosts), str(instances), '--runs', str(runs)],
        check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def one(hosts: int, instances: int, runs: int) -> dict[str, Any]:
    spec = clusters.Spec(f'{hosts} x {instances}', hosts, instances, grouped=0.1)
    row = planner.measure(spec, BUDGET, runs, seed=0)
    return {'hosts': hosts, 'instances': instances, 'moves': row['found'],
            'rss_mib': round(row['rss_mib']),
            'cpu_ms': {key: round(row['cpu'][key] * 1e3, 2) for key, _, _ in LINES}}


def panel(rows: list[dict[str, Any]], axis: str, title: str, left: float) -> list[str]:
    """One log-log diagram: milliseconds over hosts or instances."""
    values = [v for row in rows for v in row['cpu_ms'].values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    first, last = math.log10(rows[0][axis]), math.log10(rows[-1][axis])

    def x(value: float) -> float:
        return left + (math.log10(value) - first) / (last - first) * WIDTH

    def y(value: float) -> float:
        return MARGIN + (high - math.log10(value)) / (high - low) * HEIGHT

    out = [f'<text x="{left + WIDTH / 2}" y="{MARGIN - 28}" text-anchor="middle" '
           f'font-weight="bold">{title}</text>']
    for power in range(low, high + 1):
        at = y(10.0 ** power)
        out += [f'<line x1="{left}" y1="{at:.1f}" x2="{left + WIDTH}" y2="{at:.1f}" '
                'stroke="#dddddd"/>',
                f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0 ** power:g} ms'
                '</text>']
    out += [f'<text x="{x(row[axis]):.1f}" y="{MARGIN + HEIGHT + 20}" text-anchor="middle">'
            f'{row[axis]:,}</text>' for row in rows]
    for key, _, colour in LINES:
        points = [(x(row[axis]), y(row['cpu_ms'][key])) for row in rows]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                   + ' '.join(f'{a:.1f},{b:.1f}' for a, b in points) + '"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
    return out


def draw(data: dict[str, Any]) -> str:
    """The picture as SVG."""
    width, height = 2 * (WIDTH + GAP) + MARGIN, HEIGHT + 2 * MARGIN + 40
    body = panel(data['by_hosts'], 'hosts', f'hosts, with {FIXED_INSTANCES:,} instances', GAP)
    body += panel(data['by_instances'], 'instances', f'instances, on {FIXED_HOSTS:,} hosts',
                  WIDTH + 2 * GAP)
    for n, (_, name, colour) in enumerate(LINES):
        at, below = GAP + n * 240, HEIGHT + MARGIN + 60
        body += [f'<rect x="{at}" y="{below - 10}" width="14" height="10" fill="{colour}"/>',
                 f'<text x="{at + 20}" y="{below}">{name}</text>']
    return '\n'.join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>', *body, '</svg>', ''])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('directory', type=pathlib.Path)
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--draw', action='store_true', help='measure nothing')
    parser.add_argument('--one', type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one, options.runs)))
        return
    numbers = options.directory / 'growth.json'
    if not options.draw:
        numbers.write_text(json.dumps({
            'by_hosts': [measure(h, FIXED_INSTANCES, options.runs) for h in HOSTS],
            'by_instances': [measure(FIXED_HOSTS, n, options.runs) for n in INSTANCES]},
            indent=1) + '\n')
    (options.directory / 'growth.svg').write_text(draw(json.loads(numbers.read_text())))


if __name__ == '__main__':
    main()
