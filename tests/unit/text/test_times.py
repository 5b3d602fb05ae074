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

"""Times and durations on a command line."""

import datetime

import pytest

from kronos_nova.text import times

NOW = 1_793_577_600.0


@pytest.mark.parametrize(('text', 'expected'), [
    ('300', 300.0), ('5m', 300.0), ('1h30m', 5400.0), ('2d', 172800.0), ('1w', 604800.0),
    ('1.5h', 5400.0), ('0s', 0.0)])
def test_durations(text, expected):
    assert times.parse_duration(text) == expected


@pytest.mark.parametrize('text', ['', '5x', 'm', '-5m', '5m 3', '1e3', 'nan', 'm5'])
def test_an_invalid_duration_is_refused(text):
    with pytest.raises(ValueError, match='write 300, 5m, 1h30m or 2d'):
        times.parse_duration(text)


@pytest.mark.parametrize(('text', 'expected'), [
    ('now', NOW), ('-2d', NOW - 172800), ('-90', NOW - 90), ('1793577600', NOW),
    ('1793577600.5', NOW + 0.5), ('2026-11-02T00:00:00Z', NOW),
    ('2026-11-02T01:00:00+01:00', NOW), ('2026-11-02T00:00:00', NOW), ('2026-11-02', NOW)])
def test_moments(text, expected):
    assert times.parse_time(text, NOW) == expected


@pytest.mark.parametrize('text', ['', 'yesterday', '-', '-x', '2026-13-01', '1e400', '9' * 30,
                                  '1900-01-01', 'NaN', '-99999w'])
def test_an_invalid_time_is_refused(text):
    with pytest.raises(ValueError, match='is no time; write'):
        times.parse_time(text, NOW)


def test_a_moment_is_shown_in_utc():
    assert times.format_time(NOW) == '2026-11-02T00:00:00+00:00'


@pytest.mark.parametrize(('text', 'expected'), [
    ('2h', datetime.timedelta(hours=2)), ('1d12h', datetime.timedelta(hours=36)),
    ('2026-11-02T01:00:00+01:00', NOW),
    ('2026-11-02T00:00:00', NOW), ('2026-11-02', NOW)])
def test_deadlines(text, expected):
    assert times.parse_deadline(text) == expected


@pytest.mark.parametrize('text', ['', 'now', '-2h', '90', '1.5', 'soon', '2x', '9' * 400,
                                  '2026-13-01'])
def test_an_invalid_deadline_is_refused(text):
    with pytest.raises(ValueError, match='is no deadline; write a duration with its unit, 2h'):
        times.parse_deadline(text)


def test_times_that_no_calendar_shows_become_its_first_or_last():
    assert [times.clamp_time(at) for at in (NOW, -1.0, 1e300, float('nan'), float('-inf'))] == [
        NOW, 0.0, times.LAST, 0.0, 0.0]
