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

"""Maintenance windows: the times in which a campaign begins with another host."""

from collections.abc import Sequence
import dataclasses
import datetime
import math
import re

#: Most characters of a window.
LONGEST = 64
#: Most windows of a campaign.
MOST = 16
_DAYS = ('mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun')
_WINDOW = re.compile(r'(?:(?P<days>[a-z,-]+) )?(?P<begin>[0-9]{1,2}:[0-9]{2})-'
                     r'(?P<end>[0-9]{1,2}:[0-9]{2})')
_WEEK = 7 * 86400.0
_MINUTES = 24 * 60


@dataclasses.dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A window of each week: it begins on ``days`` (0: Monday), and may last past midnight.

    ``begin`` is the minute of the day, ``minutes`` the length by the clocks of a wall.
    """

    text: str
    days: frozenset[int]
    begin: int
    minutes: int

    def __str__(self) -> str:
        return self.text

    def is_open(self, now: float, clocks: datetime.tzinfo) -> bool:
        """Return whether the window is open.

        :param now: epoch seconds.
        :param clocks: the time zone whose clocks count.
        """
        return self.find_end(now, clocks) is not None

    def find_end(self, now: float, clocks: datetime.tzinfo) -> float | None:
        """Return when the window that is open now ends; None: it is not open. As above."""
        today = datetime.datetime.fromtimestamp(now, clocks).date()
        return max((end for begin, end in (
            self._find_times(today - datetime.timedelta(days=ago), clocks) for ago in (0, 1))
            if begin is not None and begin <= now < end), default=None)

    def find_opening(self, now: float, clocks: datetime.tzinfo) -> float:
        """Return when the window opens next, or ``now`` while it is open; parameters as above."""
        if self.is_open(now, clocks):
            return now
        today = datetime.datetime.fromtimestamp(now, clocks).date()
        return min(begin for begin, end in (
            self._find_times(today + datetime.timedelta(days=ahead), clocks)
            for ahead in range(16)) if begin is not None and now < begin < end)

    def _find_times(self, day: datetime.date,
                    clocks: datetime.tzinfo) -> tuple[float | None, float]:
        """Return when the window of a day begins and ends; None: the day has none."""
        if day.weekday() not in self.days:
            return None, 0.0
        midnight = datetime.datetime(day.year, day.month, day.day)
        begin, end = (
            (midnight + datetime.timedelta(minutes=minute)).replace(tzinfo=clocks).timestamp()
            for minute in (self.begin, self.begin + self.minutes))
        return begin, end


def parse_window(text: str) -> MaintenanceWindow:
    """Read a window such as ``Sat 22:00-04:00``, ``Mon-Fri,Sun 1:30-5:00`` or ``22:00-06:00``.

    :raises ValueError: the text is no window.
    """
    plain = ' '.join(text.lower().split())
    match = _WINDOW.fullmatch(plain) if len(plain) <= LONGEST else None
    if match is None:
        raise ValueError('it is no window; write "Sat 22:00-04:00", "Mon-Fri 1:30-5:00" or, for '
                         'each day, "22:00-06:00"')
    begin, end = (_parse_minute(match[name]) for name in ('begin', 'end'))
    if begin == _MINUTES:
        raise ValueError('it begins at 24:00; write 0:00 of the next day')
    if begin == end:
        raise ValueError('it begins and ends at the same minute')
    days = frozenset(range(7)) if match['days'] is None else frozenset(
        day for part in match['days'].split(',') for day in _parse_days(part))
    return MaintenanceWindow(plain, days, begin, (end - begin) % _MINUTES or _MINUTES)


def find_opening(windows: Sequence[MaintenanceWindow], now: float,
                 clocks: datetime.tzinfo) -> float:
    """Return when one of the windows opens next; ``now`` while one is open, or without windows."""
    return min((window.find_opening(now, clocks) for window in windows), default=now)


def find_closing(windows: Sequence[MaintenanceWindow], now: float,
                 clocks: datetime.tzinfo) -> float:
    """Return when none of the windows is open any more; ``now``: none is, infinity: never."""
    at = now
    while at < now + _WEEK:
        end = max((end for window in windows
                   if (end := window.find_end(at, clocks)) is not None), default=None)
        if end is None:
            return at if windows else math.inf
        at = end
    return math.inf


def _parse_minute(text: str) -> int:
    """Return the minute of the day.

    :raises ValueError: a clock does not show the time.
    """
    hour, minute = map(int, text.split(':'))
    if minute >= 60 or hour * 60 + minute > _MINUTES:
        raise ValueError(f'{text} is no time of a day')
    return hour * 60 + minute


def _parse_days(text: str) -> Sequence[int]:
    """Return the days of a name or a range.

    :raises ValueError: a name is no weekday.
    """
    names = text.split('-')
    if len(names) > 2 or not set(names) <= set(_DAYS):
        raise ValueError(f'{text!r} is no weekday and no range of weekdays (mon to sun)')
    first, last = _DAYS.index(names[0]), _DAYS.index(names[-1])
    return [day % 7 for day in range(first, last + 1 + 7 * (last < first))]
