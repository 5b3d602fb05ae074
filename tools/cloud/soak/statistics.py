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

"""Slopes and percentiles of samples. Pure."""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

#: Seconds of a process's beginning that say nothing about its growth: it fills its caches.
WARM_UP = 900.0
#: A slope needs samples over so many seconds, after the beginning.
SHORTEST = 1800.0


@dataclasses.dataclass(frozen=True)
class Slope:
    """Growth of a daemon's resident memory, over ``hours`` of all its processes that counted.

    ``margin`` is two standard errors of the slope.
    """

    daemon: str
    mib_per_hour: float
    margin: float
    hours: float


def compute_slopes(samples: Iterable[dict[str, Any]], warm_up: float = WARM_UP,
                   shortest: float = SHORTEST) -> list[Slope]:
    """Return the slope of each daemon whose processes lived long enough.

    Least squares with one slope for all processes of a daemon and a constant for each. An engine
    fills its caches when it begins to plan, perhaps long after its start: it counts as another
    process from then on.
    """
    planned: set[tuple[str, int]] = set()
    by_process: dict[tuple[str, int, bool], list[tuple[float, float]]] = {}
    for sample in samples:
        for name, measured in sample['processes'].items():
            process = name, measured['pid']
            if sample['steps'].get(name):
                planned.add(process)
            by_process.setdefault((*process, process in planned), []).append(
                (sample['at'], measured['rss_kib'] / 1024))
    by_daemon: dict[str, list[tuple[Any, Any]]] = {}
    for (name, *_), points in by_process.items():
        began = points[0][0]
        counted = [(at, mib) for at, mib in points if at - began >= warm_up]
        if len(counted) > 2 and counted[-1][0] - counted[0][0] >= shortest:
            times, sizes = np.array(counted).T
            by_daemon.setdefault(name, []).append(
                (times - times.mean(), sizes - sizes.mean()))
    slopes = []
    for name, parts in sorted(by_daemon.items()):
        times = np.concatenate([part[0] for part in parts]) / 3600
        sizes = np.concatenate([part[1] for part in parts])
        spread = float((times ** 2).sum())
        slope = float((times * sizes).sum() / spread)
        freedom = max(1, len(times) - len(parts) - 1)
        error = float(np.sqrt(((sizes - slope * times) ** 2).sum() / freedom / spread))
        hours = sum(float(np.ptp(part[0])) for part in parts) / 3600
        slopes.append(Slope(name, slope, 2 * error, hours))
    return slopes


def compute_percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile: a value of the list, the next one above; None of an empty list."""
    if not values:
        return None
    return float(np.percentile(values, percent, method='higher'))


def compute_step_seconds(samples: Sequence[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """Return the mean seconds of each step of a cycle and how many there were.

    A counter that falls is that of a new process.
    """
    totals: dict[str, list[float]] = {}
    before: dict[tuple[str, str], list[float]] = {}
    for sample in samples:
        for daemon, steps in sample['steps'].items():
            for labels, (seconds, count) in steps.items():
                last = before.get((daemon, labels), [0.0, 0.0])
                if count < last[1]:
                    last = [0.0, 0.0]
                total = totals.setdefault(labels, [0.0, 0.0])
                total[0] += seconds - last[0]
                total[1] += count - last[1]
                before[daemon, labels] = [seconds, count]
    return {labels: (seconds / count, int(count))
            for labels, (seconds, count) in sorted(totals.items()) if count}
