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

"""Cron expressions of hours: read as crontab(5) describes them, or refused."""

import datetime

import croniter
from hypothesis import assume
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from kronos_nova.model import movement_hours

NAMES = ({}, {}, {}, {'jan': 1, 'jun': 6, 'dec': 12}, {'sun': 0, 'wed': 3, 'sat': 6})
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def items(number):
    least, most = BOUNDS[number]
    value = st.integers(least, most).map(lambda v: (str(v), v))
    if NAMES[number]:
        value |= st.sampled_from(sorted(NAMES[number].items()))

    def span(pair):
        (first, low), (last, high) = pair
        return f'{first}-{last}', set(range(low, high + 1))

    return (value.map(lambda v: (v[0], {v[1]}))
            | st.tuples(value, value).filter(lambda p: p[0][1] < p[1][1]).map(span)
            | st.just(('*', set(range(least, most + 1))))
            | st.integers(1, 20).map(lambda s: (f'*/{s}', set(range(least, most + 1, s)))))


def fields(number):
    return st.lists(items(number), min_size=1, max_size=3).map(lambda chosen: (
        ','.join(text for text, _values in chosen), set().union(*(v for _text, v in chosen))))


@given(st.tuples(*map(fields, range(5))), st.integers(0, 2**32))
def test_expressions_match_as_cron_matches(parts, now):
    read = movement_hours.parse_hours('  '.join(text for text, _ in parts).upper())
    (_, minutes), (_, hours), (days_text, days), (_, months), (weekdays_text, weekdays) = parts
    local = datetime.datetime.fromtimestamp(now, datetime.UTC)
    by_number, by_weekday = local.day in days, (local.weekday() + 1) % 7 in weekdays
    day = (by_number and by_weekday if '*' in (days_text[0], weekdays_text[0])
           else by_number or by_weekday)
    assert read.is_open(now, 'UTC') == (
        day and local.minute in minutes and local.hour in hours and local.month in months)


def list_bits(mask):
    return {value for value in range(60) if mask >> value & 1}


def valid_items(number):
    """Draw items of every kind that both programs read alike, with their own spelling."""
    least, most = BOUNDS[number]
    names = sorted(NAMES[number])
    value = st.integers(least, most + (number == 4)).map(str)
    if names:
        value |= st.sampled_from(names)
    step = st.just('') | st.integers(1, 30).map('/{}'.format)
    return st.builds('{}{}'.format, (
        st.just('*') | value | st.builds('{}-{}'.format, value, value)), step)


def is_readable(text):
    try:
        movement_hours.parse_hours(text)
    except ValueError:
        return False
    return True


#: A field is often free: else hardly a time matches.
FREE = st.just('*')
expressions = st.tuples(*(FREE | st.lists(valid_items(n), min_size=1, max_size=3).map(','.join)
                          for n in range(5))).map(' '.join).filter(is_readable)


@settings(max_examples=100, deadline=None)
@given(expressions, st.integers(0, 2**32))
def test_verdicts_are_those_of_croniter(text, now):
    """croniter's ``implement_cron_bug`` treats days and weekdays as crontab(5) describes them.

    But it takes a list of all days for a star, where only a star that comes first is one.
    """
    expanded = croniter.croniter.expand(text)[0]
    assume(all(text.split()[n].startswith('*') or '*' not in expanded[n] for n in (2, 4)))
    minute = now // 60 * 60
    cron = croniter.croniter(text, minute - 1, implement_cron_bug=True,
                             max_years_between_matches=1)
    try:
        following = cron.get_next(float)
    except croniter.CroniterBadDateError:
        following = None
    hours = movement_hours.parse_hours(text)
    assert hours.is_open(now, 'UTC') == (following == minute)
    if following is not None:
        assert hours.is_open(following, 'UTC')
    sets = (hours.minutes, hours.hours, hours.days, hours.months, hours.weekdays)
    for mask, chosen, possible in zip(sets, expanded, BOUNDS, strict=True):
        assert list_bits(mask) == (set(range(possible[0], possible[1] + 1)) if '*' in chosen
                                   else set(chosen))


@pytest.mark.parametrize('text', [
     '* * * *', '* * * * * *', '@daily', '60 * * * *', '* 24 * * *', '* * 0 * *', '* * * 13 *',
    '* * L * *', '* * * * 1#2', 'H * * * *', 'r * * * *', '5-5 * * * *', '* * * * mon-mon',
    '* * * * 0-7/1,sun-7', '* * * jan jan', '*/0 * * * *', '{0} %s * * *', '<b> * * * *',
    '* * * * ?', '* 22-4/2 * * *',
    '* * * * *' + ' ' * 200, '1,' * 60 + '1 * * * *', '\x00 * * * *', '٣ * * * *'])
def test_other_texts_are_refused_without_being_repeated(text):
    with pytest.raises(ValueError, match='^[a-z]') as error:
        movement_hours.parse_hours(text)
    assert not text.strip() or text not in str(error.value)


@given(st.text(max_size=200))
def test_any_text_is_an_expression_or_refused(text):
    try:
        hours = movement_hours.parse_hours(text)
    except ValueError:
        return
    assert str(hours).isascii() and len(str(hours)) <= movement_hours.LONGEST
    hours.is_open(0.0, 'UTC')


def test_a_range_may_go_past_midnight():
    hours = movement_hours.parse_hours('* 22-4 * * fri-mon')
    assert list_bits(hours.hours) == {22, 23, 0, 1, 2, 3, 4}
    assert list_bits(hours.weekdays) == {5, 6, 0, 1}


def test_hours_follow_the_clocks_of_the_zone():
    # 2026-07-01 was summer time in Berlin: 20:30 UTC is 22:30 there.
    now = datetime.datetime(2026, 7, 1, 20, 30, tzinfo=datetime.UTC).timestamp()
    ten = movement_hours.parse_hours('* 22 * * *')
    assert ten.is_open(now, 'Europe/Berlin')
    assert not ten.is_open(now, 'UTC')
