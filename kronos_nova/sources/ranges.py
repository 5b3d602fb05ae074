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

"""Answers of a source over a stretch of time.

Plain arrays hold single floats, so that days of thousands of series fit; a time without a sample
is NaN.
"""

import array
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import math

#: Maximum number of points of one series in one answer; Prometheus refuses more.
MAX_POINTS = 11_000
#: Points asked for first, while the size of an answer is not known.
FIRST = 30
#: Number of times that a part may be halved and tried again.
HALVINGS = 6
#: Part of max_body_bytes that an answer should fill.
FILL = 0.5
#: Maximum length of a Nova name or UUID; a longer label value is not Nova's.
MAX_LABEL = 255
#: The largest single float.
LARGEST = 3.4028234663852886e38


@dataclasses.dataclass(frozen=True, slots=True)
class QueryWindow:
    """A window of ``count`` times, ``step`` seconds apart, from ``start`` (epoch)."""

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        return self.compute_time(self.count - 1)

    def compute_time(self, index: int) -> float:
        return self.start + index * self.step

    def select_part(self, first: int, count: int) -> 'QueryWindow':
        return QueryWindow(self.compute_time(first), self.step, count)


@dataclasses.dataclass(frozen=True, slots=True)
class RangeResult:
    """A source's answers to one query at every time of a window.

    ``keys``: the asked label's value, by series. ``marks``: the value of the second label, ''
    where the series has none; a key may come more than once. ``values``: ``window.count`` single
    floats by series, NaN without a sample. ``error`` says why the answer is missing; then it has
    no series.
    """

    query: str
    window: QueryWindow
    keys: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    values: tuple['array.array[float]', ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()


class TooManySeries(Exception):
    """More series than the cap, over the whole window."""


class RangeCollector:
    """A collector of parts, which become a RangeResult.

    :param label: the label whose value becomes the key.
    :param mark: the second label; may be the same.
    :param max_series: cap on series over the whole window.
    """

    def __init__(self, query: str, label: str, mark: str, window: QueryWindow,
                 max_series: int) -> None:
        self._query = query
        self._label = label
        self._mark = mark
        self._window = window
        self._max_series = max_series
        self._empty = array.array('f', [math.nan]) * window.count
        self._series: dict[tuple[tuple[str, str], ...], array.array[float]] = {}
        self._unlabelled = 0
        self._not_finite = 0

    def add_part(self,
                 series: Iterable[tuple[Mapping[str, str], Iterable[tuple[float, float]]]]) -> None:
        """Add the series of one part, as (metric, samples).

        :raises TooManySeries: the series exceed the cap.
        """
        window = self._window
        for metric, samples in series:
            key = metric.get(self._label)
            if not key or len(key) > MAX_LABEL:
                self._unlabelled += 1
                continue
            identity = tuple(sorted(metric.items()))
            values = self._series.get(identity)
            if values is None:
                if len(self._series) >= self._max_series:
                    raise TooManySeries
                values = self._series[identity] = self._empty[:]
            for at, value in samples:
                index = round((at - window.start) / window.step)
                if not 0 <= index < window.count:
                    continue
                if abs(value) <= LARGEST:
                    values[index] = value
                else:  # NaN too
                    self._not_finite += 1

    def build_result(self) -> RangeResult:
        """Build the result, sorted by label values, so that equal answers are equal."""
        warnings = []
        if self._unlabelled:
            warnings.append(f'{self._unlabelled} series have no usable label {self._label}')
        if self._not_finite:
            warnings.append(f'{self._not_finite} samples are not finite and left out')
        metrics = sorted(self._series)
        return RangeResult(
            self._query, self._window,
            keys=tuple(dict(m)[self._label] for m in metrics),
            marks=tuple(_read_second_label(dict(m), self._mark) for m in metrics),
            values=tuple(self._series[m] for m in metrics), warnings=tuple(warnings))


def _read_second_label(metric: Mapping[str, str], label: str) -> str:
    value = metric.get(label, '')
    return value if len(value) <= MAX_LABEL else ''


#: A callback for the number of points that have come.
Progress = Callable[[int], None]


def ignore_progress(points: int) -> None:
    """Ignore the progress."""


def fetch_parts(window: QueryWindow, ask: Callable[[QueryWindow], bytes], max_bytes: int,
                too_much: tuple[type[Exception], ...],
                progress: Progress) -> Iterator[tuple[QueryWindow, bytes]]:
    """Yield each part of the window with the body of its answer.

    A part that is too much is halved, and no later one is larger then.

    :param ask: raises one of ``too_much`` when less time may help.
    :param progress: called with 0 before a query for a smaller part.
    """
    first, points, halvings, most = 0, FIRST, HALVINGS, MAX_POINTS
    while first < window.count:
        part = window.select_part(first, min(points, window.count - first))
        try:
            body = ask(part)
        except too_much:
            if part.count == 1 or halvings == 0:
                raise
            points = most = part.count // 2
            halvings -= 1
            progress(0)
            continue
        yield part, body
        first += part.count
        points = min(most, next_points(part.count, len(body), max_bytes))


def next_points(points: int, size: int, max_size: int) -> int:
    """Return the number of points to ask for, after ``points`` points made ``size`` bytes.

    Aim at half of ``max_size`` and grow fourfold at most: the next part may have more series.
    """
    fitting = int(points * max_size * FILL / max(1, size))
    return max(1, min(fitting, 4 * points, MAX_POINTS - 1))
