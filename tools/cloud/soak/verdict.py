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

"""The verdict of a soak: what must hold, and the numbers. Pure."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from tools.cloud.soak import statistics
from tools.cloud.soak.takeovers import Takeover

#: Most that the resident memory of a daemon may grow, MiB an hour, and most seconds that 99 of
#: 100 takeovers may take.
MOST_GROWTH, MOST_TAKEOVER = 1.0, 60.0
#: Samples over so many hours decide on the growth; fewer are only shown.
HOURS_TO_JUDGE = 2.0


@dataclasses.dataclass(frozen=True)
class Verdict:
    """``failures`` in words, none where all is well; ``numbers`` for the report."""

    failures: tuple[str, ...]
    numbers: dict[str, Any]


def judge(samples: Sequence[dict[str, Any]], takeovers: Sequence[Takeover],
          drains: Sequence[tuple[str, int, float | None]], wrong: Sequence[str],
          tracebacks: Sequence[str]) -> Verdict:
    """Judge a soak.

    :param wrong: moves and places that are not as they should be, in words.
    :param tracebacks: logs of our daemons that have one.
    """
    failures = [*wrong, *(f'the log of {name} has a traceback' for name in tracebacks)]
    slopes = statistics.compute_slopes(samples)
    failures += [
        f'{slope.daemon} grows by {slope.mib_per_hour:.2f} MiB/h (at least '
        f'{slope.mib_per_hour - slope.margin:.2f})' for slope in slopes
        if slope.hours >= HOURS_TO_JUDGE and slope.mib_per_hour - slope.margin > MOST_GROWTH]
    failures += [f'{one.kind} {one.item} was never taken over from {one.owner}'
                 for one in takeovers if one.seconds is None]
    times = {kind: sorted(one.seconds for one in takeovers
                          if one.kind == kind and one.seconds is not None)
             for kind in ('lease', 'task')}
    percentiles = {kind: {
        'number': len(found), 'median': statistics.compute_percentile(found, 50),
        'p99': statistics.compute_percentile(found, 99)} for kind, found in times.items()}
    failures += [f'takeovers of a {kind}: p99 is {found["p99"]:.1f} s'
                 for kind, found in percentiles.items()
                 if found['p99'] is not None and found['p99'] > MOST_TAKEOVER]
    last: dict[str, Any] = next((s for s in reversed(samples) if 'database_bytes' in s), {})
    return Verdict(tuple(failures), {
        'hours': (samples[-1]['at'] - samples[0]['at']) / 3600,
        'growth_mib_per_hour': {slope.daemon: {
            'slope': round(slope.mib_per_hour, 3), 'margin': round(slope.margin, 3),
            'hours': round(slope.hours, 2)} for slope in slopes},
        'takeover_seconds': percentiles,
        'drains': [list(drain) for drain in drains],
        'steps': {labels: {'mean': round(seconds, 3), 'number': number} for labels,
                  (seconds, number) in statistics.compute_step_seconds(samples).items()},
        'database_bytes': last.get('database_bytes'),
        'rows': last.get('rows'),
        'tasks': last.get('tasks'),
    })
