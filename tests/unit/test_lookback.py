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

"""How far back queries look."""

import pytest

from kronos_nova import lookback
from kronos_nova import policy


@pytest.mark.parametrize('query, expected', [
    ('up', 0), ('node_load1 / 8', 0),
    ('rate(x[5m])', 300), ('rate(x[ 90s ])', 90), ('rate(x[1h30m])', 5400), ('rate(x[300])', 300),
    ('rate(x[500ms])', 0.5), ('rate(a[5m]) / rate(b[10m])', 600),
    ('max_over_time(rate(x[5m])[30m:1m])', 2100),
    ('max_over_time((rate(a[5m]) + sum(rate(b[2m])))[30m:])', 2100),
    ('rate(x[5m] offset 10m)', 900), ('x offset 1d', 86400),
    ('rate(a[5m] offset 10m) + rate(b[12m])', 900),
    ('x{job="[7d]", other=\'[8d] offset 9d\'} # [6d]', 0),
    ('x{job="a\\"[7d]"} + rate(x{path=`[6d]`}[2m])', 120),
    ('quantile_over_time(0.95, max_over_time(x[10m])[1d:5m]) / on (host) y', 87000),
    ('rate((x[5m]', 300), ('x[5m])) + y[1m]', 300), ('rate(x[$__interval])', 0),
])
def test_the_longest_look_back_of_a_query(query, expected):
    assert lookback.longest(query) == pytest.approx(expected)


@pytest.mark.parametrize('text, expected', [('1w2d', 777600), ('1y', 31536000), ('x', 0)])
def test_durations(text, expected):
    assert lookback.seconds(text) == expected


def test_a_policys_window_is_that_of_its_load_queries():
    chosen = policy.Policy(
        name='cpu', weight=1.0, imbalance_query='rate(a[5m])', vm_profile_query='rate(b[7m])',
        host_capacity_query='max_over_time(c[1d])', age_query='min_over_time(d[2d])')
    assert chosen.window == 420
    assert chosen.score_window == chosen.fill_window == 300


def test_scores_and_fills_look_back_as_far_as_their_own_queries():
    chosen = policy.Policy(name='cpu', weight=1.0, imbalance_query='rate(a[5m])',
                           capacity_query='max_over_time(a[1d])')
    assert (chosen.score_window, chosen.fill_window, chosen.window) == (300, 86400, 86400)
