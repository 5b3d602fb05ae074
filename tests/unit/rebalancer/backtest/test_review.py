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

"""Every number of the report, against one worked out by hand."""

import json

import numpy as np
import pytest

from kronos_nova import model
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import power
from kronos_nova.rebalancer.backtest import review
from kronos_nova.rebalancer.backtest import world
from tests.unit.rebalancer.backtest import made

HOUR = 3600.0


def past(hosts, services=()):
    count = len(hosts['h1'])
    return made.built(made.cluster({'a': 'h1', 'b': 'h2'}, services=services), hosts,
                      {'a': [1] * count, 'b': [1] * count})


def reviewed(found, moved=(), **asked):
    was = backtest_run.run_history(found, lambda k: None)
    return review.review_journey(found,
                                 backtest_run.BacktestResult('x', was.score, was.counts,
                                                             tuple(moved)),
                                 review.ReviewQuestion(made.SCOPES, **asked))


HOSTS = {'h1': [0.9, 0.9, 0.5], 'h2': [0.81, 0.2, 0.8], 'h3': [0.1, None, 0.3]}


def test_overload_is_counted_in_host_minutes_above_the_ceiling():
    # h1 twice, h2 once (0.8 is not above 0.8), 5 minutes each.
    assert reviewed(past(HOSTS))['overload_host_minutes'] == 15.0
    assert reviewed(past(HOSTS), ceiling=0.85)['overload_host_minutes'] == 10.0
    assert reviewed(past(HOSTS))['over_time']['overloaded_hosts'] == [2, 1, 0]


def test_a_host_over_two_ceilings_is_one_overloaded_host():
    score = np.array([[[0.9, 0.1]], [[0.9, 0.9]]])
    over = review.mark_overloaded(score, 0.8)
    assert review.count_host_minutes(over.any(axis=0), 60.0) == 2.0
    assert [review.count_host_minutes(over[m], 60.0) for m in (0, 1)] == [1.0, 2.0]


def test_unknown_host_minutes_are_counted_apart_from_overload():
    assert reviewed(past(HOSTS))['unknown_host_minutes'] == 5.0


def test_imbalance_is_highest_less_lowest_of_the_known():
    row = reviewed(past(HOSTS))
    found = row['imbalance'][model.UNASSIGNED]['cpu']
    assert row['over_time']['imbalance'][model.UNASSIGNED]['cpu'] == [0.8, 0.7, 0.5]
    assert found['mean'] == pytest.approx(2.0 / 3) and found['max'] == pytest.approx(0.8)
    assert found['p95'] == pytest.approx(0.79)


def test_imbalance_is_over_hosts_that_may_give_and_take():
    row = reviewed(past(HOSTS, [model.Service('h1', status='disabled')]))
    assert row['over_time']['imbalance'][model.UNASSIGNED]['cpu'] == [0.71, None, 0.5]


def move(instance, source, target, hours):
    return world.CompletedMove(instance, source, target, made.START + hours * HOUR)


def test_ping_pong_is_a_return_within_the_time():
    there_and_back = [move(0, 0, 1, 0), move(0, 1, 0, 5)]
    assert review.count_ping_pongs(there_and_back, 5 * HOUR) == 1
    assert review.count_ping_pongs(there_and_back, 5 * HOUR - 1) == 0
    assert review.count_ping_pongs([move(0, 0, 1, 0), move(1, 1, 0, 1)], 24 * HOUR) == 0
    assert review.count_ping_pongs([move(0, 0, 1, 0), move(0, 1, 2, 1)], 24 * HOUR) == 0
    round_about = [move(0, 0, 1, 0), move(0, 1, 2, 1), move(0, 2, 0, 2), move(0, 0, 1, 3)]
    assert review.count_ping_pongs(round_about, 24 * HOUR) == 2


def test_the_time_runs_from_the_last_departure():
    often = [move(0, 0, 1, 0), move(0, 1, 0, 10), move(0, 0, 1, 11), move(0, 1, 0, 12)]
    assert review.count_ping_pongs(often, 2 * HOUR) == 2


def test_moves_per_day_and_copied_gib_are_counted():
    found = past({h: [0.5] * 288 for h in ('h1', 'h2', 'h3')})
    row = reviewed(found, [move(0, 0, 1, 1), move(1, 1, 2, 2), move(0, 1, 0, 23.9)])
    assert (row['moves'], row['moves_per_day'], row['ping_pongs']) == (3, 3.0, 1)
    assert row['moved_gib'] == pytest.approx(3000 / 1024)
    assert row['over_time']['moves'][11:13] == [0, 1] and row['over_time']['moves'][-1] == 3
    assert [m['instance_uuid'] for m in row['move_list']] == ['a', 'b', 'a']


def test_energy_of_a_linear_curve():
    # Each of 3 times stands for 300 s; 100 W idle, 200 W at full load:
    # h1 190 + 190 + 150, h2 181 + 120 + 180, h3 110 + 100 (unknown: idle) + 130.
    curve = power.parse_power_curve('100:200')
    row = reviewed(past(HOSTS), curve=curve, energy_measure='cpu')
    assert row['energy_kwh'] == pytest.approx((530 + 481 + 340) * 300 / 3_600_000)


def test_an_empty_host_may_be_off_and_a_host_that_is_down_is():
    curve = power.parse_power_curve('100:200', empty_is_off=True)
    row = reviewed(past(HOSTS), curve=curve, energy_measure='cpu')
    assert row['energy_kwh'] == pytest.approx((530 + 481) * 300 / 3_600_000)
    down = past(HOSTS, [model.Service('h2', state='down')])
    row = reviewed(down, curve=curve, energy_measure='cpu')
    assert row['energy_kwh'] == pytest.approx(530 * 300 / 3_600_000)


def test_energy_without_a_curve_is_not_known():
    assert reviewed(past(HOSTS))['energy_kwh'] is None


def test_a_table_of_eleven_watts_is_linear_between_its_points():
    curve = power.parse_power_curve('10,20,30,40,50,60,70,80,90,100,200')
    found = curve.compute_watts(np.array([0.0, 0.05, 0.95, 1.0, 1.7, np.nan]))
    assert found.tolist() == pytest.approx([10, 15, 150, 200, 200, 10])


def test_a_host_may_draw_nothing_when_idle():
    assert power.parse_power_curve('0:100').compute_watts(np.array([0.0, 0.5])).tolist() == [0.0,
                                                                                             50.0]


@pytest.mark.parametrize('text', ['', '100', '100:', '1:2:3', '100:x', 'nan:1', '-1:5', 'inf:5',
                                  '1,2,3', '1,2,3,4,5,6,7,8,9,10,x'])
def test_an_invalid_power_curve_is_refused(text):
    with pytest.raises(ValueError, match='IDLE:MAX|no number|negative'):
        power.parse_power_curve(text)


def test_empty_hosts_are_those_that_are_up_and_hold_nothing():
    row = reviewed(past(HOSTS))
    assert row['empty_hosts'] == {'mean': 1.0, 'max': 1, 'last': 1}
    row = reviewed(past(HOSTS, [model.Service('h3', state='down')]))
    assert row['empty_hosts']['max'] == 0


def test_a_review_is_plain_json():
    json.dumps(reviewed(past(HOSTS), curve=power.parse_power_curve('1:2'), energy_measure='cpu'),
               allow_nan=False)


def test_nothing_known_has_no_statistics():
    assert review.compute_statistics(np.array([np.nan])) == {'mean': None, 'p95': None, 'max': None}
    assert pasts.ABSENT < 0
