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
"""When scores show a move that has completed."""

import pytest

from kronos_nova import model
from kronos_nova.constraints import settling


def policy(**fields):
    return model.PolicyScores('cpu', **fields)


@pytest.mark.parametrize('ago, expected', [
    (0, 1.0), (60, 1.0), (120, 1.0), (270, 0.5), (420, 0.0), (1000, 0.0), (-5, 1.0)])
def test_samples_that_are_two_minutes_old_show_a_move_two_minutes_later(ago, expected):
    seen = settling.unseen(policy(age=120.0), 0.0, 1000.0, 1000.0 - ago, 300.0)
    assert seen == pytest.approx(expected)


def test_a_longer_range_in_the_queries_counts_instead_of_settle_seconds():
    assert settling.unseen(policy(age=0.0), 600.0, 1000.0, 700.0, 300.0) == 0.5
    assert settling.unseen(policy(age=0.0), 60.0, 1000.0, 700.0, 300.0) == 0.0


def test_an_age_that_is_not_measured_may_be_anything_that_would_be_used():
    assert settling.age(policy(age=None, staleness=300.0)) == 300.0
    assert settling.age(policy(age=20.0, staleness=300.0)) == 20.0
    assert settling.age(policy(age=-1.0)) == 0.0


def test_the_slowest_policy_decides_how_long_to_wait():
    scores = model.Scores({'cpu': policy(age=10.0, window=600.0), 'net': policy(age=400.0)},
                          taken_at=1000.0)
    assert settling.seconds_left(scores, 900.0, 300.0) == 600.0
    assert settling.seconds_left(model.Scores({}, 1000.0), 900.0, 300.0) == 200.0


def test_the_peak_of_a_week_is_laid_over_but_not_waited_for():
    week = policy(age=0.0, window=604800.0)
    scores = model.Scores({'cpu': week}, taken_at=10_000.0)
    assert settling.seconds_left(scores, 6400.0, 300.0) == 0.0
    assert settling.unseen(week, week.window, 10_000.0, 6400.0, 300.0) > 0.99


def test_zero_switches_waiting_off():
    scores = model.Scores({'cpu': policy(age=100.0, window=600.0)}, taken_at=1000.0)
    assert settling.seconds_left(scores, 1000.0, 0.0) == 0.0
    assert settling.unseen(scores.policies['cpu'], 600.0, 1000.0, 1000.0, 0.0) == 0.0
