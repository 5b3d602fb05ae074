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
#: Seconds in which :meth:`MovementHours.find_opening` searches.
_HORIZON = 366 * 86400
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
        return bool(self.minutes >> local.minute & 1) and self.includes_hour(local)

    def includes_hour(self, local: datetime.datetime) -> bool:
        """Return whether the hour of a local time, on its day, has minutes that match."""
        by_number = self.days >> local.day & 1
        by_weekday = self.weekdays >> local.isoweekday() % 7 & 1
        day = by_number | by_weekday if self.either_day else by_number & by_weekday
        return bool(day & self.hours >> local.hour & self.months >> local.month & 1)

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
        if self.is_open(now, zone, seconds):
            return now
        return _find_opening(self, now // 60 * 60 + 60, zone, seconds)

    def opens_long_enough(self) -> bool:
        """Return whether they open for :data:`SHORTEST` minutes at a time on some day."""
        run = longest = 0
        for minute in range(24 * 60 + SHORTEST):
            hour = minute // 60 % 24
            run = run + 1 if self.hours >> hour & self.minutes >> minute % 60 & 1 else 0
            longest = max(longest, run)
        return longest >= SHORTEST


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


@functools.lru_cache(maxsize=1024)
def _find_opening(hours: MovementHours, minute: float, zone: str, seconds: float) -> float | None:
    """Return the first minute from ``minute`` on, as :meth:`MovementHours.find_opening`."""
    clocks = _find_zone(zone)
    end = minute + _HORIZON
    while minute < end:
        local = datetime.datetime.fromtimestamp(minute, clocks)
        if not hours.includes_hour(local):
            # Whole hours are skipped: all zones of today differ from UTC by whole minutes.
            minute += 60 * (60 - local.minute)
        elif hours.is_open(minute, zone, seconds):
            return minute
        else:
            minute += 60
    return None


@functools.lru_cache(maxsize=16)
def _find_zone(name: str) -> datetime.tzinfo:
    return datetime.UTC if name == 'UTC' else zoneinfo.ZoneInfo(name)
