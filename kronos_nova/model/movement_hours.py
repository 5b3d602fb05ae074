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
Tenants write expressions: their length is bounded, and a match looks at five sets.
"""

import dataclasses
import datetime
import functools
import re
import zoneinfo

#: Most characters of an expression.
LONGEST = 128
_MONTHS = ('jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec')
_WEEKDAYS = ('sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat')
#: Values of each field: minute, hour, day of the month, month, weekday.
_FIELDS = (range(60), range(24), range(1, 32), range(1, 13), range(7))
_NAMES: tuple[tuple[str, ...], ...] = ((), (), (), _MONTHS, _WEEKDAYS)
_ITEM = re.compile(r'(?:\*|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/[0-9]{1,2})?')


@dataclasses.dataclass(frozen=True, slots=True)
class MovementHours:
    """The minutes that a cron expression matches, as a set of values for each field.

    ``either_day``: a day matches by its number or by its weekday, since the expression limits both
    (crontab(5)).
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def includes_time(self, local: datetime.datetime) -> bool:
        """Return whether the minute of a local time matches."""
        by_number = local.day in self.days
        by_weekday = local.isoweekday() % 7 in self.weekdays
        day = by_number or by_weekday if self.either_day else by_number and by_weekday
        return (day and local.minute in self.minutes and local.hour in self.hours
                and local.month in self.months)


def normalise_expression(text: str) -> str:
    """Return the five fields of a cron expression in lower case, with single spaces.

    :raises ValueError: the text is no such expression. The message does not repeat the text.
    """
    if len(text) > LONGEST:
        raise ValueError(f'it has more than {LONGEST} characters')
    expression = ' '.join(text.lower().split())
    parse_expression(expression)
    return expression


@functools.lru_cache(maxsize=1024)
def parse_expression(expression: str) -> MovementHours:
    """Return the minutes that a normalised expression matches.

    :raises ValueError: it is no cron expression of five fields.
    """
    import croniter  # noqa: PLC0415 (nova-scheduler may lack the extra "rebalancer")

    fields = expression.split(' ')
    if len(fields) != len(_FIELDS):
        raise ValueError('it does not have the five fields of cron')
    for number, field in enumerate(fields):
        for item in field.split(','):
            _check_item(item, number)
    try:
        expanded, _nth = croniter.croniter.expand(expression)
    except (croniter.CroniterError, ValueError, LookupError):
        raise ValueError('a field has a value that cron does not know') from None
    minutes, hours, days, months, weekdays = (
        frozenset(possible) if '*' in chosen else frozenset(map(int, chosen))
        for chosen, possible in zip(expanded, _FIELDS, strict=True))
    return MovementHours(minutes, hours, days, months, weekdays,
                         either_day='*' not in (fields[2][0], fields[4][0]))


def _check_item(item: str, number: int) -> None:
    """Refuse what only some programs know, and a range from a value to itself.

    croniter takes such a range for all values.

    :raises ValueError: the item is no number, name, range or step.
    """
    match = _ITEM.fullmatch(item)
    if match is None:
        raise ValueError(f'field {number + 1} has an item that is no number, range or step')
    for end in match.groups():
        if end is not None and end.isalpha() and end not in _NAMES[number]:
            raise ValueError(f'field {number + 1} has a name that cron does not know there')
    first, last = (None if end is None else _read_value(end, number) for end in match.groups())
    if last is not None and first == last and item not in ('0-7', '7-0'):
        raise ValueError(f'field {number + 1} has a range from a value to itself')


def _read_value(text: str, number: int) -> int:
    if text.isalpha():
        return _NAMES[number].index(text) + _FIELDS[number].start
    return int(text) % 7 if number == 4 else int(text)


@functools.lru_cache(maxsize=16)
def _find_zone(name: str) -> datetime.tzinfo:
    return datetime.UTC if name == 'UTC' else zoneinfo.ZoneInfo(name)


def is_open(expression: str, now: float, zone: str) -> bool:
    """Return whether an instance with these hours may begin to move now.

    :param expression: normalised.
    :param now: seconds since the epoch.
    :param zone: name of the time zone whose clocks count.
    """
    return parse_expression(expression).includes_time(
        datetime.datetime.fromtimestamp(now, _find_zone(zone)))
