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

"""Times of the steps of a campaign: windows, freezes, cycles and work."""

import datetime

from kronos_nova.conf import freeze
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import campaign_calendars

HOUR = 3600.0
#: A Saturday.
DAY = '2026-11-28'


def at(clock, day=DAY):
    return datetime.datetime.fromisoformat(f'{day}T{clock}:00+00:00').timestamp()


def schedule(seconds, *windows, begin='12:00', frozen=(), **settings):
    """The times of the steps: when each begins, when its work does, and when it ends."""
    frozen = [freeze.WindowType()(text) for text in frozen]
    calendar = campaign_calendars.CampaignCalendar(
        [maintenance_windows.parse_window(text) for text in windows], datetime.UTC,
        lambda now: freeze.find_freeze_end(frozen, datetime.UTC, now),
        lambda now: freeze.find_next_freeze(frozen, datetime.UTC, now), **settings)
    return [tuple(datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime('%d %H:%M')
                  for moment in (step.begins_at, step.work_at, step.ends_at))
            for step in campaign_calendars.schedule_steps(seconds, calendar, at(begin))]


def test_without_windows_steps_follow_each_other():
    assert schedule([HOUR, 0.0, HOUR / 2], work_seconds=HOUR / 4) == [
        ('28 12:00', '28 13:00', '28 13:15'), ('28 13:15', '28 13:15', '28 13:30'),
        ('28 13:30', '28 14:00', '28 14:15')]


def test_steps_outside_a_window_wait_for_the_next_one():
    """The third drain ends at 5:00, out of the window: its work waits for the next night."""
    assert schedule([3 * HOUR, HOUR, 3 * HOUR, HOUR], '22:00-04:00') == [
        ('28 22:00', '29 01:00', '29 01:00'), ('29 01:00', '29 02:00', '29 02:00'),
        ('29 02:00', '29 22:00', '29 22:00'), ('29 22:00', '29 23:00', '29 23:00')]
    assert schedule([HOUR], 'Sat 22:00-04:00', begin='23:30') == [('28 23:30',) + ('29 00:30',) * 2]


def test_no_migration_begins_in_a_freeze_and_no_step_does():
    """A freeze from 13:00 to 17:00 falls into the first drain, one from 18:00 on the next step."""
    assert schedule([2 * HOUR, HOUR], frozen=('0 13 * * * 4h', '0 18 * * * 2h')) == [
        ('28 12:00', '28 20:00', '28 20:00'), ('28 20:00', '28 21:00', '28 21:00')]
    assert schedule([HOUR / 2, HOUR], frozen=('30 12 * * * 4h',)) == [
        ('28 12:00', '28 16:30', '28 16:30'), ('28 16:30', '28 17:30', '28 17:30')]


def test_freeze_that_leaves_no_time_of_a_window_leaves_the_end_open():
    assert schedule([HOUR], '22:00-04:00', frozen=('0 20 * * * 10h',)) == []


def test_each_look_of_the_engine_is_a_cycle():
    """Disabled at 12:00, drained from 12:05, seen empty at 12:20, back at 12:35, enabled, seen."""
    assert schedule([12 * 60], cycle_seconds=300.0, work_seconds=11 * 60) == [
        ('28 12:00', '28 12:20', '28 12:45')]
    assert schedule([0.0], cycle_seconds=300.0) == [('28 12:00', '28 12:05', '28 12:20')]


def test_times_end_before_a_step_whose_time_is_not_known():
    assert len(schedule([HOUR, None, HOUR])) == 1
