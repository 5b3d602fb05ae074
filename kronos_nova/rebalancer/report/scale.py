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

"""Places of values on an axis, and the marks of an axis."""

import dataclasses
import math

#: Steps between marks of a time, in seconds.
TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200,
         86400, 172800, 604800, 1209600, 2592000)


@dataclasses.dataclass(frozen=True, slots=True)
class LinearScale:
    """A linear map of values in [low, high] to places in [begin, end]."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        part = min(1.0, max(0.0, (value - self.low) / span))
        return round(self.begin + part * (self.end - self.begin), 1)


@dataclasses.dataclass(frozen=True, slots=True)
class ScaleMark:
    place: float
    value: float


def list_time_ticks(scale: LinearScale, most: int) -> tuple[ScaleMark, ...]:
    """Return marks at whole steps of time, at most ``most`` and one."""
    wanted = (scale.high - scale.low) / most
    step = next((s for s in TIMES if s >= wanted), None)
    if step is None:
        step = TIMES[-1] * math.ceil(wanted / TIMES[-1])
    return _build_ticks(scale, float(step))


def list_number_ticks(scale: LinearScale, most: int) -> tuple[ScaleMark, ...]:
    """Return marks at 1, 2 or 5 times a power of ten."""
    wanted = (scale.high - scale.low) / most or 1.0
    power = 10.0 ** math.floor(math.log10(wanted))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= wanted * (1 - 1e-9))
    return _build_ticks(scale, step)


def round_axis_top(value: float) -> float:
    """Round the value up to a round number, for the top of an axis; never 0."""
    if value <= 0:
        return 0.1
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * n for n in (1, 2, 3, 4, 5, 6, 8, 10) if power * n >= value * (1 - 1e-9))


def _build_ticks(scale: LinearScale, step: float) -> tuple[ScaleMark, ...]:
    first = math.ceil(scale.low / step - 1e-9)
    last = math.floor(scale.high / step + 1e-9)
    return tuple(ScaleMark(scale.at(n * step), n * step) for n in range(first, last + 1))
