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


"""Freeze windows: times at which nothing may begin to move."""

from collections.abc import Iterable
import dataclasses
import datetime
import math
import re
from typing import Any
import zoneinfo

from kronos_nova.conf import value_type

#: Seconds by unit. A window of seconds would end before a cycle.
UNITS = {'m': 60, 'h': 3600, 'd': 86400}
#: Windows that :func:`list_freezes` looks at, at most.
MOST_FREEZES = 1000
_DURATION = re.compile(r'(\d+)([mhd])')


@dataclasses.dataclass(frozen=True, slots=True)
class FreezeWindow:
    """A freeze window, which begins at the times of ``cron`` and lasts ``seconds``."""

    cron: str
    seconds: int
    text: str

    def __str__(self) -> str:
        return self.text

    def find_window_end(self, now: float, zone: datetime.tzinfo) -> float | None:
        """Return when the window that is open now ends (epoch), or None.

        ``cron`` follows the clocks of ``zone``. The window keeps its length when these are put
        forward or back.
        """
        import croniter  # noqa: PLC0415 (nova-scheduler may lack the extra "rebalancer")

        # Include a window that begins in this second. Leave out a window that begins in the
        # next second: the window before it may still be open.
        begun = croniter.croniter(
            self.cron, datetime.datetime.fromtimestamp(math.floor(now) + 1, zone)
        ).get_prev(datetime.datetime).timestamp()
        end = begun + self.seconds
        return end if begun <= now < end else None

    def find_next_begin(self, now: float, zone: datetime.tzinfo) -> float:
        """Return when the window begins next after now (epoch); infinity: never."""
        import croniter  # noqa: PLC0415 (nova-scheduler may lack the extra "rebalancer")

        try:
            return float(croniter.croniter(
                self.cron, datetime.datetime.fromtimestamp(now, zone)
            ).get_next(datetime.datetime).timestamp())
        except croniter.CroniterBadDateError:
            return math.inf


class WindowType(value_type.ValueType):
    """``MINUTE HOUR DAY MONTH WEEKDAY DURATION``, such as ``0 8 * * mon-fri 10h``."""

    NAME = 'freeze window'

    def __call__(self, value: Any) -> FreezeWindow:
        if isinstance(value, FreezeWindow):
            return value
        cron, _, last = ' '.join(str(value).split()).rpartition(' ')
        duration = _DURATION.fullmatch(last)
        if duration is None or len(cron.split()) != 5:
            raise ValueError(f'{value!r} is no freeze window; write five fields of cron and a '
                             'duration, such as 0 8 * * mon-fri 10h')
        window = FreezeWindow(cron, int(duration[1]) * UNITS[duration[2]], f'{cron} {last}')
        if not window.seconds:
            raise ValueError(f'{value!r}: the window has no length')
        try:
            window.find_window_end(0.0, datetime.UTC)
        except ImportError:
            pass  # replay ignores windows and needs no extra
        except (ValueError, KeyError) as e:
            raise ValueError(f'{value!r}: {e}') from None
        return window


class ZoneType(value_type.ValueType):
    """A time zone, by its name in the IANA database."""

    NAME = 'time zone'

    def __call__(self, value: Any) -> datetime.tzinfo:
        if isinstance(value, datetime.tzinfo):
            return value
        if value == 'UTC':
            return datetime.UTC
        try:
            return zoneinfo.ZoneInfo(str(value))
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f'{value!r} is no time zone that this host knows; write a name '
                             'such as Europe/Berlin, and install tzdata') from None


def find_open_window(windows: Iterable[FreezeWindow], zone: datetime.tzinfo,
                     now: float) -> str | None:
    """Return a sentence on the open freeze window that ends last, or None."""
    open_windows = [(end, window) for window in windows
                    if (end := window.find_window_end(now, zone)) is not None]
    if not open_windows:
        return None
    end, window = max(open_windows, key=lambda pair: pair[0])
    until = datetime.datetime.fromtimestamp(end, zone).isoformat(timespec='minutes')
    return f'freeze window "{window.text}" lasts until {until}'


def find_freeze_end(windows: Iterable[FreezeWindow], zone: datetime.tzinfo,
                    now: float) -> float | None:
    """Return when the open freeze window that ends last ends (epoch); None: none is open."""
    return max((end for window in windows
                if (end := window.find_window_end(now, zone)) is not None), default=None)


def find_next_freeze(windows: Iterable[FreezeWindow], zone: datetime.tzinfo, now: float) -> float:
    """Return when the next freeze window begins (epoch); infinity: none does."""
    return min((window.find_next_begin(now, zone) for window in windows), default=math.inf)


def list_freezes(windows: Iterable[FreezeWindow], zone: datetime.tzinfo, now: float,
                 until: float) -> tuple[tuple[float, float], ...]:
    """List the times from now on in which a window is open: begin and end (epoch), disjoint.

    After :data:`MOST_FREEZES` windows the rest counts as one freeze.
    """
    opening = tuple(windows)
    freezes: list[tuple[float, float]] = []
    at, left = now, MOST_FREEZES
    while at < until and left > 0:
        end = find_freeze_end(opening, zone, at)
        if end is None:
            at = find_next_freeze(opening, zone, at)
            continue
        if freezes and freezes[-1][1] == at:
            at = freezes.pop()[0]
        freezes.append((at, end))
        at, left = end, left - 1
    return tuple(freezes) if at >= until else (*freezes, (at, until))
