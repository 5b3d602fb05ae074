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

from hypothesis import given
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
    expression = movement_hours.normalise_expression('  '.join(text for text, _ in parts).upper())
    (_, minutes), (_, hours), (days_text, days), (_, months), (weekdays_text, weekdays) = parts
    local = datetime.datetime.fromtimestamp(now, datetime.UTC)
    by_number, by_weekday = local.day in days, (local.weekday() + 1) % 7 in weekdays
    day = (by_number and by_weekday if '*' in (days_text[0], weekdays_text[0])
           else by_number or by_weekday)
    assert movement_hours.is_open(expression, now, 'UTC') == (
        day and local.minute in minutes and local.hour in hours and local.month in months)


@pytest.mark.parametrize('text', [
    '', '* * * *', '* * * * * *', '@daily', '60 * * * *', '* 24 * * *', '* * 0 * *', '* * * 13 *',
    '* * L * *', '* * * * 1#2', 'H * * * *', 'r * * * *', '5-5 * * * *', '* * * * mon-mon',
    '* * * * 0-7/1,sun-7', '* * * jan jan', '*/0 * * * *', '{0} %s * * *', '<b> * * * *',
    '* * * * ?', '* * * * *' + ' ' * 200, '1,' * 60 + '1 * * * *', '\x00 * * * *', '٣ * * * *'])
def test_other_texts_are_refused_without_being_repeated(text):
    with pytest.raises(ValueError, match='^[a-z]') as error:
        movement_hours.normalise_expression(text)
    assert not text.strip() or text not in str(error.value)


@given(st.text(max_size=200))
def test_any_text_is_an_expression_or_refused(text):
    try:
        expression = movement_hours.normalise_expression(text)
    except ValueError:
        return
    assert expression.isascii() and len(expression) <= movement_hours.LONGEST
    movement_hours.is_open(expression, 0.0, 'UTC')


def test_a_range_may_go_past_midnight():
    expression = movement_hours.normalise_expression('* 22-4 * * fri-mon')
    assert movement_hours.parse_expression(expression).hours == {22, 23, 0, 1, 2, 3, 4}
    assert movement_hours.parse_expression(expression).weekdays == {5, 6, 0, 1}


def test_hours_follow_the_clocks_of_the_zone():
    # 2026-07-01 was summer time in Berlin: 20:30 UTC is 22:30 there.
    now = datetime.datetime(2026, 7, 1, 20, 30, tzinfo=datetime.UTC).timestamp()
    assert movement_hours.is_open('* 22 * * *', now, 'Europe/Berlin')
    assert not movement_hours.is_open('* 22 * * *', now, 'UTC')
