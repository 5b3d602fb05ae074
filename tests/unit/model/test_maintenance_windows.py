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

"""Maintenance windows: which minutes they hold, and which texts are none."""

import datetime
import math
import zoneinfo

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from kronos_nova.model import maintenance_windows as windows

BERLIN = zoneinfo.ZoneInfo('Europe/Berlin')
UTC = datetime.UTC
DAYS = ('mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun')
MINUTES = st.integers(0, 24 * 60 - 1)


def seconds(text, clocks=UTC):
    """Return the epoch of a local time; of one that comes twice, the first."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=clocks).timestamp()


def is_open(text, moment, clocks=UTC):
    return windows.parse_window(text).is_open(seconds(moment, clocks), clocks)


# 2026-11-28 is a Saturday.

@pytest.mark.parametrize(('text', 'moment', 'expected'), [
    ('Sat 22:00-23:00', '2026-11-28T21:59:59', False),
    ('Sat 22:00-23:00', '2026-11-28T22:00', True),
    ('Sat 22:00-23:00', '2026-11-28T22:59:59', True),
    ('Sat 22:00-23:00', '2026-11-28T23:00', False),
    ('Sat 22:00-23:00', '2026-11-27T22:30', False),
    ('sat 22:00-04:00', '2026-11-29T03:59:59', True),
    ('sat 22:00-04:00', '2026-11-29T04:00', False),
    ('sat 22:00-04:00', '2026-11-28T03:00', False),  # the night of Friday
    ('sun 0:00-24:00', '2026-11-29T00:00', True),
    ('sun 22:00-24:00', '2026-11-29T23:59:59', True),
    ('sun 22:00-24:00', '2026-11-30T00:00', False),
    ('22:00-06:00', '2026-11-25T05:00', True),
    ('22:00-06:00', '2026-11-25T12:00', False),
    ('mon-fri 1:30-5:00', '2026-11-27T02:00', True),
    ('mon-fri 1:30-5:00', '2026-11-28T02:00', False),
    ('fri-mon 1:30-5:00', '2026-11-30T02:00', True),
    ('fri-mon 1:30-5:00', '2026-11-26T02:00', False),
    ('mon,wed-thu 1:30-5:00', '2026-11-26T02:00', True),
    ('mon,wed-thu 1:30-5:00', '2026-11-24T02:00', False)])
def test_a_window_holds_the_minutes_of_its_days(text, moment, expected):
    assert is_open(text, moment) is expected


def test_a_window_past_midnight_follows_the_clocks_of_its_zone():
    assert is_open('sat 22:00-04:00', '2026-11-28T22:30', BERLIN)
    assert not windows.parse_window('sat 22:00-04:00').is_open(
        seconds('2026-11-28T22:30', UTC), datetime.timezone(datetime.timedelta(hours=-5)))


@pytest.mark.parametrize(('text', 'opens', 'hours'), [
    ('sun 1:00-5:00', '2026-10-25T01:00', 5.0),  # the clocks show 2:00 to 3:00 twice
    ('sat 22:00-4:00', '2026-10-24T22:00', 7.0),
    ('sun 1:00-5:00', '2026-03-29T01:00', 3.0),  # they skip 2:00 to 3:00
    ('sat 22:00-4:00', '2026-03-28T22:00', 5.0)])
def test_a_window_ends_by_the_clocks_on_the_days_that_change_them(text, opens, hours):
    window, begin = windows.parse_window(text), seconds(opens, BERLIN)
    end = begin + hours * 3600
    assert not window.is_open(begin - 1, BERLIN) and window.is_open(begin, BERLIN)
    assert window.is_open(end - 1, BERLIN) and not window.is_open(end, BERLIN)


def test_a_window_that_the_clocks_skip_opens_a_week_later():
    window = windows.parse_window('sun 2:10-3:05')
    before = seconds('2026-03-29T00:00', BERLIN)
    assert window.find_opening(before, BERLIN) == seconds('2026-04-05T02:10', BERLIN)


def test_a_window_whose_end_the_clocks_skip_lasts_as_long_as_on_other_days():
    window, begin = windows.parse_window('sun 1:00-2:30'), seconds('2026-03-29T01:00', BERLIN)
    assert window.is_open(begin + 5399, BERLIN) and not window.is_open(begin + 5400, BERLIN)


@pytest.mark.parametrize(('text', 'problem'), [
    ('', 'no window'), ('always', 'no window'), ('22:00', 'no window'), ('22-23', 'no window'),
    ('sat 22:00 - 23:00', 'no window'), ('sat  22:00-23:00 x', 'no window'),
    ('sat 22:00-23:00 Europe/Berlin', 'no window'), ('22:0-23:00', 'no window'),
    ('sat ' * 20 + '22:00-23:00', 'no window'), ('1' * 70, 'no window'),
    ('٢٢:٠٠-23:00', 'no window'),
    ('sat 24:00-4:00', 'begins at 24:00'),
    ('sat 22:00-22:00', 'same minute'), ('0:00-0:00', 'same minute'),
    ('24:30-25:00', '24:30 is no time of a day'), ('22:60-23:00', '22:60 is no time of a day'),
    ('99:00-23:00', '99:00 is no time'), ('-sat 22:00-23:00', 'no weekday'),
    ('saturday 22:00-23:00', "'saturday' is no weekday"), ('sat, 22:00-23:00', "'' is no weekday"),
    ('mon-wed-fri 22:00-23:00', "'mon-wed-fri' is no weekday")])
def test_a_text_that_is_no_window_is_refused(text, problem):
    with pytest.raises(ValueError, match=problem):
        windows.parse_window(text)


def test_a_window_is_stored_in_a_text_that_reads_as_the_same_window():
    window = windows.parse_window('  SAT,Mon-Tue   22:00-4:00 ')
    assert str(window) == 'sat,mon-tue 22:00-4:00'
    assert windows.parse_window(str(window)) == window
    assert window.days == {5, 0, 1} and (window.begin, window.minutes) == (22 * 60, 360)


def test_one_of_several_windows_is_enough_and_without_any_it_is_open():
    found = [windows.parse_window('sat 22:00-23:00'), windows.parse_window('fri 22:00-23:00')]
    friday = seconds('2026-11-27T12:00')
    assert windows.find_opening(found, friday, UTC) == seconds('2026-11-27T22:00')
    inside = seconds('2026-11-28T22:15')
    assert windows.find_opening(found, inside, UTC) == inside
    assert windows.find_opening([], friday, UTC) == friday


@st.composite
def _draw_windows(draw):
    begin = draw(MINUTES)
    end = draw(MINUTES.filter(lambda end: end != begin))
    days = draw(st.sets(st.sampled_from(DAYS), min_size=1))
    return windows.parse_window('{} {}:{:02}-{}:{:02}'.format(
        ','.join(sorted(days)), *divmod(begin, 60), *divmod(end, 60)))


#: Days around the changes of the clocks, and others.
MOMENTS = st.sampled_from(['2026-03-22', '2026-03-28', '2026-03-29', '2026-10-18', '2026-10-24',
                           '2026-10-25', '2026-12-30'])


@settings(max_examples=60, deadline=None)
@given(_draw_windows(), MOMENTS, MINUTES)
def test_find_opening_is_the_first_minute_at_which_the_window_is_open(window, day, minute):
    now = seconds(day, BERLIN) + 60 * minute
    opening = window.find_opening(now, BERLIN)
    assert opening == next(moment for moment in range(int(now), int(now) + 15 * 86400, 60)
                           if window.is_open(moment, BERLIN))


def test_windows_close_when_no_window_is_open_any_more():
    found = [windows.parse_window(text) for text in ('sat 22:00-23:00', 'sat 22:30-0:30')]
    inside = seconds('2026-11-28T22:15')
    assert windows.find_closing(found, inside, UTC) == seconds('2026-11-29T00:30')
    before = seconds('2026-11-28T12:00')
    assert windows.find_closing(found, before, UTC) == before
    assert windows.find_closing([], before, UTC) == math.inf
    assert windows.find_closing([windows.parse_window('0:00-24:00')], before, UTC) == math.inf
