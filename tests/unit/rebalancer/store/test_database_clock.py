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

"""The database's clock, when the machine's clock or its own one steps."""

import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.store import database_clock
from tests.unit.rebalancer.store import cases

JUMP = database_clock.JUMP_SECONDS


class Times:
    """A database's clock, a machine's and monotonic time; all advance alike."""

    def __init__(self):
        self.database, self.wall, self.monotonic = cases.NOW, cases.NOW, 500.0
        self.delay = 0.0
        self.clock = database_clock.DatabaseClock(
            self.read, lambda: self.wall, lambda: self.monotonic)

    def read(self):
        if self.database is None:
            raise exception.StoreError(problem='is away', remedy='Start it.')
        self.advance(self.delay / 2)
        found = self.database
        self.advance(self.delay / 2)
        return found

    def synchronise(self):
        """After a while."""
        self.advance(database_clock.READ_SECONDS)
        return self.clock.synchronise_clock()

    def advance(self, seconds):
        self.database += seconds
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def times():
    found = Times()
    assert found.clock() == cases.NOW
    assert found.clock.synchronise_clock() is False and found.clock.find_problem() is None
    return found


def test_before_the_first_reading_it_is_the_machines():
    times = Times()
    times.wall += 70
    assert times.clock() == cases.NOW + 70
    times.clock.synchronise_clock()
    assert times.clock() == cases.NOW


@pytest.mark.parametrize('seconds', [-86400, -3600, 3600, 7 * 3600, 86400])
def test_a_step_of_the_machines_clock_is_reported_and_has_no_effect(times, seconds):
    times.wall += seconds
    times.advance(5)
    assert times.clock() == cases.NOW + 5
    assert not times.clock.synchronise_clock()
    assert times.clock() == cases.NOW + 5 and times.clock.clock_jump is None
    word = 'ahead of' if seconds > 0 else 'behind'
    assert times.clock.find_problem() == (
        f'the clock of this machine is {abs(seconds)} s {word} the database\'s: set both by NTP')
    times.wall -= seconds
    times.synchronise()
    assert times.clock.find_problem() is None


@pytest.mark.parametrize(('seconds', 'is_wrong'), [(30, False), (31, True), (-30, False),
                                                   (-31, True)])
def test_thirty_seconds_are_tolerated(times, seconds, is_wrong):
    times.wall += seconds
    times.synchronise()
    assert (times.clock.find_problem() is not None) is is_wrong
    times.wall = times.database = times.database + seconds
    times.synchronise()
    assert (times.clock.clock_jump is not None) is is_wrong


def test_small_corrections_of_the_database_are_followed(times):
    times.database += 2
    times.clock.synchronise_clock()
    assert times.clock() == cases.NOW, 'it was read a moment ago'
    times.synchronise()
    assert times.clock() == times.database == cases.NOW + 7


def test_an_answer_that_took_long_is_of_its_middle(times):
    times.delay = 20
    times.synchronise()
    assert times.clock() == times.database == times.wall
    assert times.clock.find_problem() is None


@pytest.mark.parametrize('seconds', [-3600, 3600])
def test_a_jump_of_the_database_is_believed_when_it_lasts(times, seconds, caplog):
    times.database += seconds
    times.wall += seconds  # SQLite: one clock for both
    assert times.synchronise() is False
    assert times.clock() == cases.NOW + 5 and times.clock.clock_jump == seconds
    assert f'jumped by {seconds:+d} s' in times.clock.find_problem()
    times.advance(JUMP - 6)
    assert times.synchronise() is False
    assert times.clock() == cases.NOW + 5 + JUMP - 1
    times.advance(1)
    assert times.synchronise() is True
    assert times.clock() == times.database and times.clock.clock_jump is None
    assert times.clock.find_problem() is None and times.clock.may_end()
    assert f'jumped by {seconds:+d} s' in caplog.text


@pytest.mark.parametrize('clock', ['database', 'wall'])
def test_clocks_that_differ_at_a_start_end_nothing_before_that_has_lasted(clock):
    """A process that starts while the database's clock is wrong has seen no jump."""
    times = Times()
    setattr(times, clock, cases.NOW + 3600)
    times.clock.synchronise_clock()
    assert times.clock.clock_jump is None and not times.clock.may_end()
    times.advance(JUMP - 1)
    assert not times.synchronise() and times.clock.may_end()
    assert times.clock.find_problem() is not None, 'nothing begins'


def test_clocks_that_agree_again_restart_the_count(times):
    times.wall += 3600
    times.synchronise()
    times.advance(JUMP - 10)
    times.wall -= 3600
    times.synchronise()
    assert times.clock.may_end()
    times.wall += 3600
    times.synchronise()
    assert not times.clock.may_end()


def test_a_jump_that_is_taken_back_leaves_no_trace(times):
    times.database += 3600
    times.synchronise()
    times.advance(JUMP - 6)
    times.database -= 3600
    assert times.synchronise() is False
    assert times.clock() == times.database and times.clock.find_problem() is None


def test_another_jump_restarts_the_wait(times):
    times.database += 3600
    times.synchronise()
    times.advance(JUMP - 6)
    times.database += 3600
    times.synchronise()
    times.advance(JUMP - 6)
    assert times.synchronise() is False and times.clock.clock_jump == 7200
    times.advance(1)
    assert times.synchronise() is True


def test_without_the_database_time_goes_on(times):
    times.database = None
    times.monotonic += 40
    with pytest.raises(exception.StoreError):
        times.clock.synchronise_clock()
    assert times.clock() == cases.NOW + 40
