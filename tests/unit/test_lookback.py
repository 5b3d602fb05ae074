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

import datetime
import random

import promql_parser
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
    ('max_over_time(sum(rate(x[5m])) by (host)[1h:1m])', 3900),
    ('max_over_time((sum by (host) (rate(x{a="}"}[5m] @ end())))[1h:] offset 1m)', 3960),
    ('{__name__="x"} offset 1m - {"a.b"} offset 2m', 120), ('rate(x[5m]) / y offset 2m', 300),
    ('x offset -5m', 0), ('rate(job:x:rate5m[2m]) > bool 1h', 120),
    ('rate(x[5m]) * on (host) group_left (name) y', 300),
    ('rate((x[5m]', 300), ('x[5m])) + y[1m]', 300), ('rate(x[$__interval])', 0),
])
def test_the_longest_look_back_of_a_query(query, expected):
    assert lookback.compute_reach(query) == pytest.approx(expected)


@pytest.mark.parametrize('text, expected', [('1w2d', 777600), ('1y', 31536000), ('x', 0)])
def test_durations(text, expected):
    assert lookback.parse_duration(text) == expected


def test_a_policys_window_is_that_of_its_load_queries():
    chosen = policy.Policy(
        name='cpu', weight=1.0, imbalance_query='rate(a[5m])', vm_profile_query='rate(b[7m])',
        host_capacity_query='max_over_time(c[1d])', age_query='min_over_time(d[2d])')
    assert chosen.lookback_seconds == 420
    assert chosen.score_look == chosen.fill_look == lookback.LookbackWindow(ramp=300)


def test_scores_and_fills_look_back_as_far_as_their_own_queries():
    chosen = policy.Policy(name='cpu', weight=1.0, imbalance_query='rate(a[5m])',
                           capacity_query='max_over_time(a[1d])')
    assert chosen.score_look == lookback.LookbackWindow(ramp=300)
    assert chosen.fill_look == lookback.LookbackWindow(span=86400)
    assert chosen.lookback_seconds == 86400
    assert policy.PolicySet(policies=(chosen,)).lookback_seconds == 86400


def test_how_a_query_shows_a_change():
    look = lookback.parse_query
    assert look('rate(x[5m])') == lookback.LookbackWindow(ramp=300)
    assert look('avg(x)') == lookback.LookbackWindow()
    assert look('max_over_time(x[1d])') == lookback.LookbackWindow(span=86400)
    assert look('min_over_time(x[1d])') == lookback.LookbackWindow(span=86400, quantile=0.0)
    assert look('max_over_time(sum(rate(x[5m] offset 1m)) by (host)[1h:1m])') == (
        lookback.LookbackWindow(delay=60, ramp=300, span=3600))
    assert look('quantile_over_time(0.95, x[1d])') == lookback.LookbackWindow(span=86400,
                                                                              quantile=0.95)
    assert look('quantile_over_time(scalar(q), x[1d])').quantile == 1.0
    assert look('max_over_time(quantile_over_time(.5, x[5m])[1d:])') == (
        lookback.LookbackWindow(span=86700))
    assert look('quantile_over_time(.5, max_over_time(x[5m])[1d:])').quantile == 0.5
    # They use the newest samples only, wherever in the range these are.
    assert look('irate(x[5m])') == look('last_over_time(x[5m])') == (
        lookback.LookbackWindow(slack=300))
    # Of a sum or a ratio, what looks back farthest decides.
    assert look('max_over_time(a[1h]) / avg_over_time(b[5m])') == lookback.LookbackWindow(span=3600)


@pytest.mark.parametrize('text, since, went, came', [
    ('rate(x[5m])', 0, 1, 1), ('rate(x[5m])', 150, 0.5, 0.5), ('rate(x[5m])', 300, 0, 0),
    ('rate(x[5m] offset 5m)', 450, 0.5, 0.5),
    ('max_over_time(x[1h])', 1, 1, 0), ('max_over_time(x[1h])', 3599, 1, 0),
    ('max_over_time(x[1h])', 3600.001, 0, 0), ('min_over_time(x[1h])', 1, 0, 1),
    ('max_over_time(rate(x[5m])[1h:])', 150, 1, 0.5),
    ('max_over_time(rate(x[5m])[1h:])', 3750, 0.5, 0),
    ('quantile_over_time(0.9, x[1000])', 99, 1, 1),
    ('quantile_over_time(0.9, x[1000])', 101, 1, 0),
    ('quantile_over_time(0.9, x[1000])', 901, 0, 0)])
def test_a_peak_rises_at_once_and_falls_when_its_range_has_passed(text, since, went, came):
    look = lookback.parse_query(text)
    assert look.compute_unseen_part(since, look.ramp, arriving=False) == pytest.approx(went)
    assert look.compute_unseen_part(since, look.ramp, arriving=True) == pytest.approx(came)


def total(node):
    """The same by a parser of PromQL."""
    kind = type(node).__name__
    if kind == 'VectorSelector':
        return back(node.offset)
    if kind == 'MatrixSelector':
        return back(node.range) + back(node.vector_selector.offset)
    if kind == 'SubqueryExpr':
        return back(node.range) + back(node.offset) + total(node.expr)
    parts = [getattr(node, name, None) for name in ('lhs', 'rhs', 'expr', 'param')]
    return max((total(p) for p in [*parts, *getattr(node, 'args', ())] if p is not None),
               default=0.0)


def back(duration):
    return (duration or datetime.timedelta()).total_seconds()


def a_query(rng, depth):
    """A random query that returns an instant vector."""
    some = f'{rng.randint(1, 90)}{rng.choice(["s", "m", "h"])}'
    if depth == 0:
        chosen = rng.choice(['x', 'job:x:sum', 'x{a="[1d]", b=~"}|\\"("}', '{__name__="on"}'])
        return chosen + rng.choice(['', '', f' offset {some}', ' @ 1700000000'])
    inner = a_query(rng, depth - 1)
    return rng.choice([
        f'max_over_time({inner}[{some}:1m])', f'({inner})', f'-{inner}',
        f'sum by (host) ({inner})', f'avg({inner}) without (a, b)', f'clamp({inner}, 0, 1)',
        f'avg_over_time(sum({inner}) by (host)[{some}:] offset 2m)',
        f'quantile_over_time(0.9, y{{a="b"}}[{some}]) + {inner}',
        f'{inner} / on (host) group_left (name) rate(z[{some}])',
        f'{inner} # a comment [9d]\n unless ignoring (a) x'])


def test_a_parser_of_promql_finds_the_same():
    rng = random.Random(1)
    seen = set()
    for _ in range(1500):
        query = a_query(rng, rng.randint(0, 4))
        try:
            expected = total(promql_parser.parse(query))
        except ValueError:
            continue  # such as a subquery of an unparenthesised sum
        assert lookback.compute_reach(query) == pytest.approx(expected), query
        seen.add(expected)
    assert len(seen) > 300
