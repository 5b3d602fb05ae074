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

"""Seconds of phases from the marks of their beginnings."""

import pytest

from kronos_nova.rebalancer.store import attempt_phases

MARKS = (('queue', 0.0), ('pre_flight', 10.0), ('hooks', 12.0), ('pre_flight', 20.0),
         ('pre_check', 21.0), ('running', 30.0))


def test_a_phase_that_comes_twice_is_added_up():
    assert attempt_phases.compute_phase_seconds(MARKS, 60.0) == {
        'queue': 10, 'pre_flight': 3, 'hooks': 8, 'pre_check': 9, 'running': 30}


def test_measured_phases_replace_seen_ones_and_the_rest_is_post_flight():
    found = attempt_phases.compute_phase_seconds(MARKS, 60.0,
                                                 {'pre_check': 2.0, 'preparing': 3.0,
                                                  'running': 20.0})
    assert found == {'queue': 10, 'pre_flight': 3, 'hooks': 8, 'pre_check': 2, 'preparing': 3,
                     'running': 20, 'post_flight': 14}
    seconds = attempt_phases.compute_phase_seconds(MARKS, 60.0, {'running': 50.0})
    assert seconds['post_flight'] == 0, 'never negative'


def test_a_clock_that_steps_back_gives_nothing_negative():
    assert attempt_phases.compute_phase_seconds((('queue', 10.0), ('pre_flight', 5.0)), 4.0) == {
        'queue': 0, 'pre_flight': 0}


def test_marks_survive_their_column_and_an_old_row_has_none():
    assert attempt_phases.parse_phase_starts(attempt_phases.format_phase_starts(MARKS)) == MARKS
    assert attempt_phases.parse_phase_starts(None) == ()
    assert attempt_phases.compute_phase_seconds((), 5.0) == {}


def test_a_phase_that_lasts_does_not_begin_again():
    assert attempt_phases.begin_phase(MARKS, 'running', 99.0) == MARKS
    assert attempt_phases.begin_phase(MARKS, 'queue', 99.0)[-1] == ('queue', 99.0)


@pytest.mark.parametrize(('phase', 'expected'), [
    ('post_migrating', True), ('running', False), ('preparing', False), (None, False)])
def test_a_phase_is_later_only_after_the_last_mark(phase, expected):
    assert attempt_phases.is_later_phase(MARKS, phase) is expected
    assert not attempt_phases.is_later_phase((), phase)


@pytest.mark.parametrize(('times', 'expected'), [
    ((('a', 1.0), ('b', 3.0), ('end', 7.0)), {'a': 2, 'b': 4}),
    ((('a', 1.0), ('b', None), ('end', 7.0)), {'a': 6}),
    ((('a', 1.0), ('b', 9.0), ('end', 7.0)), {})])
def test_a_beginning_that_is_not_known_is_in_the_phase_before(times, expected):
    assert attempt_phases.compute_intervals(times) == expected
