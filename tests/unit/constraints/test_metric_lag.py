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

from kronos_nova import lookback
from kronos_nova import model
from kronos_nova.constraints import metric_lag


def policy(**fields):
    return model.PolicyScores('cpu', **fields)


RATE = lookback.LookbackWindow(ramp=300.0)


def unseen(known, look, ago, settle=300.0, arriving=True):
    return metric_lag.compute_unseen_part(known, look, 1000.0, 1000.0 - ago, settle,
                                          arriving=arriving)


@pytest.mark.parametrize('ago, expected', [
    (0, 1.0), (60, 1.0), (120, 1.0), (270, 0.5), (420, 0.0), (1000, 0.0), (-5, 1.0)])
@pytest.mark.parametrize('arriving', [True, False])
def test_samples_that_are_two_minutes_old_show_a_move_two_minutes_later(ago, expected, arriving):
    seen = unseen(policy(age=120.0), RATE, ago, arriving=arriving)
    assert seen == pytest.approx((expected, expected))


def test_a_range_that_may_be_hidden_leaves_bounds():
    """A query without a range shows everything at once, unless it reads a
    recording rule over settle_seconds."""
    assert unseen(policy(age=0.0), lookback.LookbackWindow(), 150.0) == (0.0, 0.5)
    assert unseen(policy(age=0.0), lookback.LookbackWindow(ramp=600.0), 300.0) == (0.5, 0.5)
    assert unseen(policy(age=0.0), lookback.LookbackWindow(ramp=60.0), 30.0) == (0.5, 0.9)
    assert unseen(policy(age=0.0), lookback.LookbackWindow(slack=300.0), 75.0, 60.0) == (0.0, 0.75)


def test_an_age_that_is_not_measured_leaves_bounds():
    assert unseen(policy(age=None, staleness=100.0), RATE, 200.0) == pytest.approx((1/3, 2/3))


def test_clamping_moves_a_value_to_the_nearest_bound():
    assert metric_lag.clamp_to_bounds(0.5, 0.6, 0.8) == 0.6
    assert metric_lag.clamp_to_bounds(0.5, 0.1, 0.2) == 0.2
    assert metric_lag.clamp_to_bounds(0.5, 0.4, 0.7) == 0.5
    assert metric_lag.clamp_to_bounds(0.5, 0.3, 0.3) == 0.3


def test_an_age_that_is_not_measured_may_be_anything_that_would_be_used():
    assert metric_lag.compute_sample_age(policy(age=None, staleness=300.0)) == 300.0
    assert metric_lag.compute_sample_age(policy(age=20.0, staleness=300.0)) == 20.0
    assert metric_lag.compute_sample_age(policy(age=-1.0)) == 0.0


def test_the_slowest_policy_decides_how_long_to_wait():
    scores = model.ClusterScores({'cpu': policy(age=10.0, window=600.0), 'net': policy(age=400.0)},
                                 taken_at=1000.0)
    assert metric_lag.seconds_left(scores, 900.0, 300.0) == 600.0
    assert metric_lag.seconds_left(model.ClusterScores({}, 1000.0), 900.0, 300.0) == 200.0


def test_the_peak_of_a_week_is_laid_over_but_not_waited_for():
    peak = lookback.LookbackWindow(span=604800.0)
    week = policy(age=0.0, window=604800.0, fill_look=peak)
    scores = model.ClusterScores({'cpu': week}, taken_at=10_000.0)
    assert metric_lag.seconds_left(scores, 6400.0, 300.0) == 0.0
    assert unseen(week, peak, 500_000.0, arriving=False) == (1.0, 1.0)
    assert unseen(week, peak, 604801.0, arriving=False) == pytest.approx((0.0, 0.997), abs=1e-3)
    assert metric_lag.compute_retention(604800.0) > 604800.0 + 300.0


def test_zero_switches_waiting_off():
    scores = model.ClusterScores({'cpu': policy(age=100.0, window=600.0)}, taken_at=1000.0)
    assert metric_lag.seconds_left(scores, 1000.0, 0.0) == 0.0
    assert unseen(scores.policies['cpu'], RATE, 0.0, 0.0) == (0.0, 0.0)


@pytest.mark.parametrize('phase, waits', [
    (model.Phase.SPREAD, True), (model.Phase.PACK, True), (model.Phase.EVACUATE, False),
    (model.Phase.AFFINITY, False)])
def test_imbalance_moves_wait_for_imbalance_moves_only(phase, waits):
    done = (model.Move('i', 'a', 'b', phase), 100.0)
    history = model.MoveHistory(completed=(done,))
    assert metric_lag.find_awaited_move(history, frozenset('bc')) == (done if waits else None)
    assert metric_lag.find_awaited_move(history, frozenset('c')) is None
