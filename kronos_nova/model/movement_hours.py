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

"""Hours in which an instance may begin to move, written as cron writes times.

A cron expression matches minutes; an instance may begin to move in each minute that matches.
Tenants write expressions: their length is bounded, each is parsed once, and a match looks at five
numbers.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import datetime
import functools
import re
import zoneinfo

#: Most characters of an expression.
LONGEST = 128
#: Seconds between a plan and the begin of its moves; a plan uses no hours that end before.
BEGIN_WITHIN = 240.0
#: The shortest time for which hours open, in minutes.
SHORTEST = 5
#: Days in which :func:`find_opening` searches.
_HORIZON = 366
#: Begin of a leap year, in UTC: each day of a year follows.
_LEAP_YEAR = 1830297600.0
_DAY_MINUTES = 24 * 60
_DAY = (1 << _DAY_MINUTES) - 1
_MONTHS = ('jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec')
_WEEKDAYS = ('sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat')
#: Values of each field: minute, hour, day of the month, month, weekday.
_FIELDS = (range(60), range(24), range(1, 32), range(1, 13), range(7))
_NAMES: tuple[tuple[str, ...], ...] = ((), (), (), _MONTHS, _WEEKDAYS)
_WEEKDAY = 4
_ITEM = re.compile(r'(?:\*|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?')


@dataclasses.dataclass(frozen=True, slots=True)
class MovementHours:
    """The minutes that a cron expression matches, as a bit mask of values for each field.

    ``expression``: its five fields in lower case, with single spaces. ``either_day``: a day matches
    by its number or by its weekday, since the expression limits both (crontab(5)).
    """

    expression: str
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    either_day: bool

    def __str__(self) -> str:
        return self.expression

    def includes_time(self, local: datetime.datetime) -> bool:
        """Return whether the minute of a local time matches."""
        return (bool(self.minutes >> local.minute & self.hours >> local.hour & 1)
                and self.includes_day(local))

    def is_open(self, now: float, zone: str, seconds: float = 0.0) -> bool:
        """Return whether an instance with these hours may begin to move now.

        :param now: seconds since the epoch.
        :param zone: name of the time zone whose clocks count.
        :param seconds: for so long they must stay open.
        """
        clocks = _find_zone(zone)
        return all(self.includes_time(datetime.datetime.fromtimestamp(now + later, clocks))
                   for later in range(0, int(seconds) + 1, 60))

    def find_opening(self, now: float, zone: str, seconds: float = 0.0) -> float | None:
        """Return when they are open next, at ``now`` or at the begin of a later minute.

        Parameters as of :meth:`is_open`.

        :returns: epoch seconds; None: not within a year.
        """
        return find_opening((self,), now, zone, seconds)

    def opens_long_enough(self) -> bool:
        """Return whether they open for :data:`SHORTEST` minutes at a time on some day of a year."""
        return _find_on_days((self,), datetime.datetime.fromtimestamp(
            _LEAP_YEAR, datetime.UTC).toordinal(), 'UTC', SHORTEST) is not None

    def includes_day(self, day: datetime.date) -> bool:
        """Return whether a day has hours that match, if there are any."""
        by_number = self.days >> day.day & 1
        by_weekday = self.weekdays >> day.isoweekday() % 7 & 1
        matches = by_number | by_weekday if self.either_day else by_number & by_weekday
        return bool(matches & self.months >> day.month & 1)


def parse_hours(text: str) -> MovementHours:
    """Read a cron expression of five fields.

    :raises ValueError: the text is no such expression. The message does not repeat the text.
    """
    if len(text) > LONGEST:
        raise ValueError(f'it has more than {LONGEST} characters')
    fields = text.lower().split()
    if len(fields) != len(_FIELDS):
        raise ValueError('it does not have the five fields of cron')
    minutes, hours, days, months, weekdays = (
        functools.reduce(lambda mask, value: mask | 1 << value, (
            value for item in field.split(',') for value in _parse_item(item, number)), 0)
        for number, field in enumerate(fields))
    return MovementHours(' '.join(fields), minutes, hours, days, months, weekdays,
                         either_day='*' not in (fields[2][0], fields[_WEEKDAY][0]))


def _parse_item(item: str, number: int) -> Iterable[int]:
    """Return the values of an item; refuse what programs read in different ways.

    Such are a range from a value to itself, which croniter takes for all values, and a step in a
    range past the end of the field.

    :raises ValueError: the item is no number, name, range or step.
    """
    match = _ITEM.fullmatch(item)
    if match is None:
        raise ValueError(f'field {number + 1} has an item that is no number, range or step')
    values, step = _FIELDS[number], int(match[3] or 1)
    if not step:
        raise ValueError(f'field {number + 1} has the step 0')
    if match[1] is None or item in ('0-7', '7-0') and number == _WEEKDAY:
        return values[::step]
    first = _read_value(match[1], number)
    if match[2] is None:
        return range(first, values.stop if match[3] else first + 1, step)
    last = _read_value(match[2], number)
    if first == last:
        raise ValueError(f'field {number + 1} has a range from a value to itself')
    if number == _WEEKDAY and last == 0:  # Sunday ends the week as well
        return [value % 7 for value in range(first, 8, step)]
    if first < last:
        return range(first, last + 1, step)
    if match[3]:
        raise ValueError(f'field {number + 1} has a step in a range past its end')
    return [*range(first, values.stop), *range(values.start, last + 1)]


def _read_value(text: str, number: int) -> int:
    """Return the value of a number or a name in a field.

    :raises ValueError: the field does not have it.
    """
    if text.isalpha():
        if text not in _NAMES[number]:
            raise ValueError(f'field {number + 1} has a name that cron does not know there')
        return _NAMES[number].index(text) + _FIELDS[number].start
    value = 0 if number == _WEEKDAY and int(text) == 7 else int(text)
    if value not in _FIELDS[number]:
        raise ValueError(f'field {number + 1} has a value that cron does not know')
    return value


def find_opening(hours: tuple[MovementHours, ...], now: float, zone: str,
                 seconds: float = 0.0) -> float | None:
    """Return when all the hours are open next, at ``now`` or at the begin of a later minute.

    Other parameters as of :meth:`MovementHours.is_open`. A tenant may write hours that open rarely,
    or never together: the search takes one step for each day.

    :returns: epoch seconds; None: not within a year.
    """
    if all(each.is_open(now, zone, seconds) for each in hours):
        return now
    minutes = int(seconds) // 60 + 1
    today = datetime.datetime.fromtimestamp(now, _find_zone(zone)).toordinal()
    for opening in _list_on_day(hours, today, zone, minutes):
        if opening > now:
            return opening
    return _find_on_days(hours, today + 1, zone, minutes)


@functools.lru_cache(maxsize=4096)
def _find_on_days(hours: tuple[MovementHours, ...], first: int, zone: str,
                  minutes: int) -> float | None:
    """Return the first opening from a day on (its ordinal), for so many minutes at least."""
    return next((opening for day in range(first, first + _HORIZON)
                 for opening in _list_on_day(hours, day, zone, minutes)), None)


def _list_on_day(hours: tuple[MovementHours, ...], ordinal: int, zone: str,
                 minutes: int) -> Iterator[float]:
    """Yield the minutes of a day, as epoch seconds, from which all the hours are open so long."""
    day = datetime.date.fromordinal(ordinal)
    if not all(each.includes_day(day) for each in hours):
        return
    clocks = _find_zone(zone)
    begin = datetime.datetime(day.year, day.month, day.day, tzinfo=clocks)
    later = datetime.timedelta(days=1, minutes=minutes)
    if begin.utcoffset() != (begin + later).utcoffset():
        # The clocks are set: the day has more or fewer minutes than others.
        start = begin.timestamp()
        for minute in range(_DAY_MINUTES + 180):
            at = start + 60 * minute
            if datetime.datetime.fromtimestamp(at, clocks).toordinal() == ordinal and all(
                    each.is_open(at, zone, 60 * (minutes - 1)) for each in hours):
                yield at
        return
    tomorrow = day + datetime.timedelta(days=1)
    open_now = _join_masks(hours) | (
        _join_masks(hours) << _DAY_MINUTES
        if all(each.includes_day(tomorrow) for each in hours) else 0)
    starts = open_now
    for later_minute in range(1, minutes):
        starts &= open_now >> later_minute
    starts &= _DAY
    while starts:
        lowest = starts & -starts
        yield begin.timestamp() + 60 * (lowest.bit_length() - 1)
        starts ^= lowest


@functools.lru_cache(maxsize=1024)
def _join_masks(hours: tuple[MovementHours, ...]) -> int:
    """Return the minutes of a day that all the hours match, as a bit mask."""
    joined = _DAY
    for each in hours:
        joined &= sum(each.minutes << 60 * hour for hour in range(24) if each.hours >> hour & 1)
    return joined


@functools.lru_cache(maxsize=16)
def _find_zone(name: str) -> datetime.tzinfo:
    return datetime.UTC if name == 'UTC' else zoneinfo.ZoneInfo(name)
