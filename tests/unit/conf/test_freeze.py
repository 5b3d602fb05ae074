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


"""Freeze windows: when they are open, and invalid windows."""

import datetime
import itertools
import math
import zoneinfo

from oslo_config import cfg
import pytest

from kronos_nova.conf import engine
from kronos_nova.conf import freeze
from kronos_nova.conf import opts

BERLIN = zoneinfo.ZoneInfo('Europe/Berlin')


def at(text, zone=datetime.UTC):
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


@pytest.mark.parametrize(('time', 'frozen'), [
    ('2026-11-20T07:59:59', False), ('2026-11-20T08:00:00', True),
    ('2026-11-20T17:59:59', True), ('2026-11-20T18:00:00', False),
    ('2026-11-21T12:00:00', False), ('2026-11-23T12:00:00', True)])
def test_office_hours_begin_and_end_to_the_second(time, frozen):
    window = freeze.WindowType()('0 8 * * mon-fri 10h')
    assert (window.find_window_end(at(time), datetime.UTC) is not None) == frozen


@pytest.mark.parametrize('texts', [
    ['0 10,11 * * * 1h'], ['0 10 * * * 1h', '0 11 * * * 1h'], ['0 * * * * 1h']])
@pytest.mark.parametrize('fraction', [0.0, 0.001, 0.5, 0.999])
def test_windows_that_touch_leave_no_gap(texts, fraction):
    windows = [freeze.WindowType()(text) for text in texts]
    last_second = at('2026-11-23T10:59:59')
    for now in (last_second + fraction, last_second + 1.0 + fraction):
        assert freeze.find_open_window(windows, datetime.UTC, now) is not None


@pytest.mark.parametrize('fraction', [0.001, 0.5, 0.999])
def test_window_begins_and_ends_at_whole_seconds(fraction):
    window = freeze.WindowType()('0 10 * * * 1h')
    begun = at('2026-11-23T10:00:00')
    assert window.find_window_end(begun - 1.0 + fraction, datetime.UTC) is None
    assert window.find_window_end(begun + fraction, datetime.UTC) == begun + 3600
    assert window.find_window_end(begun + 3599 + fraction, datetime.UTC) == begun + 3600
    assert window.find_window_end(begun + 3600 + fraction, datetime.UTC) is None


def test_a_window_reaches_over_midnight_and_over_several_days():
    weekend = freeze.WindowType()('0 20 * * fri 58h')
    assert weekend.find_window_end(at('2026-11-23T05:59:59'),
                                   datetime.UTC) == at('2026-11-23T06:00:00')
    assert weekend.find_window_end(at('2026-11-23T06:00:00'), datetime.UTC) is None


@pytest.mark.parametrize('day', ['2026-03-29', '2026-10-25'])
def test_where_clocks_change_a_window_is_as_long_as_ever(day):
    window = freeze.WindowType()('30 0 * * sun 6h')
    begun = at(f'{day}T00:30:00', BERLIN)
    assert window.find_window_end(begun - 1, BERLIN) is None
    assert window.find_window_end(begun + 6 * 3600 - 1, BERLIN) == begun + 6 * 3600
    assert window.find_window_end(begun + 6 * 3600, BERLIN) is None


def opened(text, day, zone=BERLIN):
    """When the windows of a day open and close, as the clocks on the wall say."""
    window = freeze.WindowType()(text)
    midnight = at(f'{day}T00:00:00', zone)
    ends = [(minute, window.find_window_end(midnight + 60 * minute, zone))
            for minute in range(12 * 60)]
    changes = [(minute, now is not None) for (_, before), (minute, now)
               in itertools.pairwise([(0, None), *ends]) if (before is None) != (now is None)]
    return [(datetime.datetime.fromtimestamp(midnight + 60 * minute, zone).strftime('%H:%M%z'),
             is_open) for minute, is_open in changes]


@pytest.mark.parametrize(('text', 'expected'), [
    # 02:30 is skipped: it begins when the clocks go on.
    ('30 2 * * * 1h', [('03:00+0200', True), ('04:00+0200', False)]),
    ('0 2 * * * 30m', [('03:00+0200', True), ('03:30+0200', False)]),
    ('0 3 * * * 1h', [('03:00+0200', True), ('04:00+0200', False)]),
    ('30 0 * * * 3h', [('00:30+0100', True), ('04:30+0200', False)])])
def test_a_beginning_that_the_clocks_skip_is_not_missed(text, expected):
    assert opened(text, '2026-03-29') == expected


@pytest.mark.parametrize(('text', 'expected'), [
    # 02:00 to 03:00 comes twice, and so does what begins in it.
    ('0 2 * * * 30m', [('02:00+0200', True), ('02:30+0200', False),
                       ('02:00+0100', True), ('02:30+0100', False)]),
    ('30 2 * * * 1h', [('02:30+0200', True), ('03:30+0100', False)]),
    ('0 3 * * * 1h', [('03:00+0100', True), ('04:00+0100', False)]),
    ('30 0 * * * 3h', [('00:30+0200', True), ('02:30+0100', False)])])
def test_a_beginning_that_the_clocks_show_twice_holds_twice(text, expected):
    assert opened(text, '2026-10-25') == expected


def test_of_several_open_windows_the_last_to_end_is_named():
    windows = [freeze.WindowType()(text) for text in (
        '0 8 * * * 2h', '0 7 * * * 4h', '0 20 * * * 1h')]
    assert freeze.find_open_window(windows, datetime.UTC, at('2026-11-20T09:00:00')) == (
        'freeze window "0 7 * * * 4h" lasts until 2026-11-20T11:00+00:00')
    assert freeze.find_open_window(windows, datetime.UTC, at('2026-11-20T12:00:00')) is None
    assert freeze.find_open_window((), datetime.UTC, 0.0) is None


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / 'kronos.conf'
        path.write_text(f'[engine]\n{text}\n')
        conf = cfg.ConfigOpts()
        opts.register(conf)
        conf([], default_config_files=[str(path)])
        return conf
    return read


@pytest.mark.parametrize('value', [
    'always', '0 8 * * mon-fri', '0 8 * * 10h', '0 25 * * * 1h', '0 8 * * * 0h',
    '0 0 30 2 * 1h', '0 8 * * mon-fri 10', '* 0 8 * * mon-fri 10h'])
def test_an_invalid_window_is_refused_with_file_and_option(read, value):
    problem, = opts.wrong_values(read(f'freeze_windows = {value}'))
    assert 'freeze_windows' in str(problem) and 'kronos.conf' in str(problem)


def test_an_unknown_time_zone_is_refused_with_what_to_do(read):
    problem, = opts.wrong_values(read('freeze_timezone = Europe/Berlyn'))
    assert 'Europe/Berlin' in str(problem) and 'freeze_timezone' in str(problem)


def test_windows_of_the_file_hold_by_the_clocks_of_its_zone(read):
    conf = read('freeze_windows = 0 8 * * * 1h\nfreeze_windows = 0  12 * * *  30m\n'
                'freeze_timezone = Europe/Berlin')
    assert not opts.wrong_values(conf)
    assert engine.find_freeze_reason(conf, at('2026-07-01T06:30:00')) == (
        'freeze window "0 8 * * * 1h" lasts until 2026-07-01T09:00+02:00')
    assert '0 12 * * * 30m' in engine.find_freeze_reason(conf, at('2026-07-01T10:29:59'))
    assert engine.find_freeze_reason(conf, at('2026-07-01T10:30:00')) is None
    assert engine.find_freeze_reason(read(''), 0.0) is None


def test_next_freeze_is_the_first_to_begin_and_the_last_to_end_counts():
    windows = [freeze.WindowType()(text) for text in ('0 8 * * * 2h', '30 8 * * * 4h')]
    assert freeze.find_next_freeze(windows, datetime.UTC, at('2026-07-01T09:00')) == at(
        '2026-07-02T08:00')
    assert freeze.find_next_freeze(windows, datetime.UTC, at('2026-07-01T08:00')) == at(
        '2026-07-01T08:30')
    assert freeze.find_freeze_end(windows, datetime.UTC, at('2026-07-01T09:00')) == at(
        '2026-07-01T12:30')
    assert freeze.find_freeze_end(windows, datetime.UTC, at('2026-07-01T07:59')) is None
    assert freeze.find_next_freeze([], datetime.UTC, 0.0) == math.inf


def test_freezes_are_listed_from_now_on_and_merged():
    windows = [freeze.WindowType()(text) for text in (
        '0 8 * * * 2h', '0 9 * * * 90m', '30 10 * * * 30m', '0 12 * * * 1h')]
    begin, day = at('2026-11-20T08:30:00'), at('2026-11-20T00:00:00')
    assert freeze.list_freezes(windows, datetime.UTC, begin, begin + 86400) == (
        (begin, day + 11 * 3600), (day + 12 * 3600, day + 13 * 3600),
        (day + 32 * 3600, day + 34 * 3600)), 'later ones do not matter'
    assert freeze.list_freezes([], datetime.UTC, begin, begin + 86400) == ()


def test_of_many_freezes_the_rest_counts_as_one(monkeypatch):
    monkeypatch.setattr(freeze, 'MOST_FREEZES', 3)
    windows, begin = [freeze.WindowType()('*/10 * * * * 1m')], at('2026-11-20T08:00:00')
    assert freeze.list_freezes(windows, datetime.UTC, begin, begin + 7200) == (
        (begin, begin + 60), (begin + 600, begin + 660), (begin + 1200, begin + 1260),
        (begin + 1260, begin + 7200))
