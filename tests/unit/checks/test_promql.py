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

"""PromQL read offline: the place of an error, and what a syntax tree shows to be wrong;
beside a real Prometheus, so that nothing right is called wrong."""

import random
import time

import promql_parser
import pytest
import requests

from kronos_nova.checks import promql
from kronos_nova.checks import promql_labels
from kronos_nova.checks import promql_tree
from tests.fixtures import prometheus_server

QUERIES_FAULTY = [
    # query, the text that the place begins with
    ('sum(rate(x[5m])', '(rate'), ('x and', ''), ('x y', 'y'), ('1 + (', '('), ('x )', ')'),
    ('a\n  ** 2', '* 2'), ('avg x', 'x'), ('sum by (a (x)', '(x)'), ('x * on a y', 'a y'),
    ('rate(x[5m]) + rate(x)', 'rate(x)'), ('clamp(x, 0, 1) + clamp(x, 0)', 'clamp(x, 0)'),
    ('a + frob(x)', 'frob'), ('rate(x[$__interval])', '[$__'), ('{a="b} + 1', '"b}'),
    ('abs(abs(rate(x)))', 'rate(x)'), ('clamp(clamp(x, 0), 0)', 'clamp(x, 0), 0)'),
    ('sum(x) # rate(\n + )', ')'), ('x{a~"b"}', '~'),
    ('label_replace(x, "a" "b", "c", "d")', '"b"'), ('sum(,)', ',)'), ('héé"é" + )', 'é'),
]


@pytest.mark.parametrize(('query', 'rest'), QUERIES_FAULTY)
def test_the_place_of_an_error_is_found(query, rest):
    fault = promql.find_fault(query)
    assert fault is not None and fault.offset is not None
    assert query[fault.offset:].startswith(rest) and (rest or fault.offset == len(query))


@pytest.mark.parametrize('query', ['', 'avg(x) + "a"', 'x{a=~"("}', '{}'])
def test_an_error_without_a_place_is_an_error(query):
    assert promql.find_fault(query) is not None


def test_a_place_is_shown_by_line_and_column():
    assert promql.format_place('ab\ncd ef', 6) == 'line 2, column 4 of the query, at ef'
    assert promql.format_place('ab', 2) == 'line 1, column 3 of the query, at its end'
    assert promql.format_place('x' * 50, 0).endswith('at ' + 'x' * 30 + '...')


@pytest.mark.parametrize('query', [
    'x+' * 8000 + 'x', '-' * 16000 + 'x', '(x + ' * 3000 + 'x' + ')' * 3000])
def test_a_query_that_would_end_the_parser_is_not_given_to_it(query):
    fault = promql.find_fault(query)
    assert fault is not None and not fault.certain and 'operators' in fault.problem


def test_the_position_of_a_fault_is_within_the_query():
    rng = random.Random(3)
    words = ['x', 'rate', 'sum', 'by', '(', ')', '{', '}', '[5m]', '[', '"a"', '"', ',', '=', '+',
             'offset', 'on', 'group_left', '1', '5m', '#', '\n', 'é', '$', '@', 'and', '\x00']
    for _ in range(5000):
        query = ' '.join(rng.choices(words, k=rng.randint(1, 14)))
        fault = promql.find_fault(query)
        if fault is not None and fault.offset is not None:
            assert 0 <= fault.offset <= len(query)
            assert '\n' not in promql.format_place(query, fault.offset)


def test_a_function_that_the_parser_does_not_know_may_be_one():
    assert not promql.find_fault('frob(x)').certain
    assert promql.find_fault('rate(x').certain


def _findings(query, label='host', unlabelled=False, interval=60):
    return list(promql_tree.list_findings(
        promql.parse_query(query), label, unlabelled=unlabelled, interval=interval))


@pytest.mark.parametrize('query', [
    'x' + ' + x' * 1000, 'x' + ' ^ x' * 1000, 'x' + ' and x' * 1000, '-' * 1000 + 'x',
    '(' * 1000 + 'x' + ')' * 1000, 'x' + ' + on (host) x' * 500, 'x' + ' * (x' * 500 + ')' * 500,
    'max by (host) (' * 500 + 'x' + ')' * 500, 'vector(1)' + ' + vector(1)' * 499,
    'x' + ''.join(f' or max by (host, l{n}) (x)' for n in range(333))])
def test_as_many_operators_as_are_parsed_are_read_in_well_below_a_second(query):
    assert not promql.is_too_large(query)
    tree = promql.parse_query(query)
    started = time.process_time()
    found = list(promql_tree.list_findings(tree, 'host', unlabelled=True, interval=60))
    assert time.process_time() - started < 1.0
    assert found == []


def test_many_joins_on_many_labels_are_read_in_well_below_a_second():
    joins = ''.join(f' * on (host, l{n}) group_left (m{n}) max by (host, l{n}) (x)'
                    for n in range(250))
    tree = promql.parse_query('x' + joins)
    started = time.process_time()
    found = list(promql_tree.list_findings(tree, 'host', unlabelled=False, interval=60))
    assert time.process_time() - started < 1.0
    assert len(found) == 250 and 'it takes m7 from the right side' in ' '.join(
        f.problem for f in found)


@pytest.mark.parametrize('query', [
    'max by (node) (x)', 'max without (host) (x)', 'sum(x)', '1 - max by (host) (sum by (a) (x))',
    'x * on (i) group_left (host) max by (i) (y)', 'x / on (i) y', 'x / ignoring (host) y',
    'avg_over_time((max by (a) (x))[6h:5m])', 'vector(1)'])
def test_a_label_that_is_aggregated_away_is_wrong(query):
    assert [f.wrong for f in _findings(query) if 'aggregated away' in f.problem] == [True]


def test_advice_quotes_a_label_that_is_no_plain_name():
    (found,) = promql_tree.list_findings(
        promql.parse_query('max by (node) (up)'), 'k8s."node', unlabelled=False, interval=60)
    assert r'by ("k8s.\"node")' in found.remedy and r'group_left ("k8s.\"node")' in found.remedy


@pytest.mark.parametrize('query', [
    'x', 'max by (host) (x)', 'max without (a) (x)', 'topk(1, x)', 'count_values("host", x)',
    'label_replace(sum(x), "host", "h", "", "")', 'label_join(sum(x), "host", "", "a")',
    'max by (i) (x) * on (i) group_left (host) y', 'x / on (host) y', 'x or sum by (a) (y)',
    'time() - max by (host) (timestamp(x))', '-x', 'x > bool 1', 'absent(x)'])
def test_a_label_that_may_be_there_is_not_called_gone(query):
    assert _findings(query) == []


def test_an_age_without_the_label_is_one_for_all_hosts():
    assert _findings('time() - max(timestamp(x))', unlabelled=True) == []
    assert _findings('time() - max(timestamp(x))')[0].wrong


@pytest.mark.parametrize(('query', 'kind'), [
    ('rate(x[5m])[30m:1m]', 'matrix'), ('x[5m]', 'matrix'), ('1', 'scalar'), ('"a"', 'string'),
    ('time() - scalar(x)', 'scalar')])
def test_a_query_that_returns_no_vector_is_wrong(query, kind):
    (finding,) = _findings(query)
    assert finding.wrong and f'a {kind}, not' in finding.problem


def test_a_join_on_a_label_that_one_side_has_lost_is_doubted():
    (finding,) = _findings('x * on (domain, i) group_left (host) max by (i, host) (y)')
    assert not finding.wrong and 'joins on domain, which the right side' in finding.problem
    (finding,) = _findings('x * on (i) group_left (host, b) max by (i, host) (y)')
    assert not finding.wrong and 'takes b from the right side' in finding.problem


@pytest.mark.parametrize(('interval', 'doubts'), [(60, 1), (15, 0), (16, 1)])
def test_a_range_with_fewer_than_four_scrapes_is_doubted(interval, doubts):
    found = _findings('max by (host) (rate(x[1m]))', interval=interval)
    assert len(found) == doubts and not any(f.wrong for f in found)


def test_a_range_of_a_gauge_may_be_short():
    assert _findings('max by (host) (avg_over_time(x[1m]))') == []


@pytest.fixture(scope='module')
def ask(tmp_path_factory):
    """A real Prometheus with series of every combination of three labels, and its answer."""
    exporter = prometheus_server.Exporter()
    names = [f'a="{a}",b="{b}",c="{c}"' for a in 'xy' for b in 'xy' for c in 'xy']
    exporter.text = ''.join(f'{metric}{{{labels}}} {number + 1}\n' for metric in ('m', 'n')
                            for number, labels in enumerate(names))
    with (prometheus_server.running(tmp_path_factory.mktemp('prometheus'),
                                    [exporter.address]) as url,
          requests.Session() as session):
        def post(query):
            return session.post(f'{url}/api/v1/query', data={'query': query}, timeout=10)

        for _ in range(200):
            if post('count(m) == 8 and count(n) == 8').json()['data']['result']:
                break
            time.sleep(0.1)
        yield post
    exporter.stop()


def _random_query(rng, depth):
    if depth == 0:
        return rng.choice(['m', 'n', 'm{a="x"}', 'max_over_time(n[5m])', 'vector(1)'])
    inner, other = (_random_query(rng, depth - 1) for _ in range(2))
    some = ', '.join(rng.sample('abc', rng.randint(1, 2)))
    taken = rng.choice(['a', 'b', 'c', 'instance', ''])
    return rng.choice([
        f'sum by ({some}) ({inner})', f'max without ({some}) ({inner})', f'avg({inner})',
        f'topk by ({some}) (1, {inner})', f'count_values("c", {inner})', f'-({inner})',
        f'clamp({inner}, 0, 1)', f'({inner}) * 2', f'({inner}) > 0', f'({inner}) or ({other})',
        f'({inner}) and on ({some}) ({other})', f'({inner}) unless ({other})',
        f'({inner}) / on ({some}) ({other})', f'({inner}) * ignoring ({some}) ({other})',
        f'({inner}) * on ({some}) group_left ({taken}) ({other})',
        f'({inner}) >= on ({some}) group_right ({taken}) ({other})',
        f'({inner}) > ignoring ({some}) ({other})', f'max_over_time(({inner})[10s:1s])',
        f'label_replace({inner}, "b", "z", "", "")', f'label_join({inner}, "c", "-", "a", "b")',
        f'sort({inner})', f'absent({inner})', f'timestamp({inner})'])


def test_no_label_is_called_gone_that_a_real_prometheus_returns(ask):
    rng = random.Random(8)
    gone = 0
    for _ in range(900):
        query = _random_query(rng, rng.randint(1, 3))
        answer = ask(query)
        if answer.status_code != 200:
            continue  # such as many-to-many
        labels = promql_labels.list_nodes(promql_parser.parse(query))[0].labels
        returned = {label for series in answer.json()['data']['result']
                    for label in series['metric']}
        missing = {label for label in ('a', 'b', 'c', 'instance')
                   if label not in labels}
        assert not missing & returned, query
        gone += bool(missing) and bool(returned)
    assert gone > 100


@pytest.mark.parametrize(('query', 'labels'), [
    # The series of set operators are the left side's, whole; of "or" either side's.
    ('m and n', 'abc'), ('sum by (a) (m) and on (a) n', 'a'),
    ('m and on (a) sum by (a) (n)', 'abc'),
    ('sum by (a) (m) and ignoring (b, c, instance, job) n', 'a'), ('sum(m) and on () n', ''),
    ('m unless on (a) sum by (a) (n{a="x"})', 'abc'), ('sum by (a) (m) unless n', 'a'),
    ('sum by (a, b) (m) unless on (a) n{a="x"}', 'ab'), ('sum(m) unless n', ''),
    ('sum by (a) (m) or n', 'abc'), ('n or sum by (a) (m)', 'abc'),
    ('sum by (a) (m) or sum by (c) (n)', 'ac'), ('sum by (a) (m) or on (a) n{b="x"}', 'a'),
    ('sum by (a) (m) or (sum by (b) (m) and on () n)', 'ab')])
def test_set_operators_return_the_labels_that_a_real_prometheus_does(query, labels, ask):
    returned = {label for series in ask(query).json()['data']['result']
                for label in series['metric']}
    assert returned & {*'abc'} == {*labels}
    told = promql_labels.list_nodes(promql.parse_query(query))[0].labels
    # "or on (a)" drops what it has seen: that the metrics decide.
    assert {label for label in 'abc' if label in told} == {*('abc' if 'or on' in query else labels)}


def test_faults_agree_with_a_real_prometheus_in_verdict_and_position(ask):
    rng = random.Random(9)
    agreed = refused = 0
    for _ in range(600):
        query = _random_query(rng, 2)
        # Behind a duration 2.42 takes what it should not.
        position = rng.randrange(len(query))
        if '[' in query[max(0, position - 7):position + 1]:
            continue
        broken = query[:position] + rng.choice(['', ')', '(', ' + ', ' by ', '}', ' x ']) + \
            query[position + rng.randint(0, 1):]
        answer, fault = ask(broken), promql.find_fault(broken)
        if answer.status_code in (200, 422):
            assert fault is None, broken
            continue
        if fault is None:
            continue  # a duplicate label, say: the server will tell
        refused += 1
        _line, column = answer.json()['error'].split('query": ')[1].split(':')[:2]
        agreed += fault.offset == int(column) - 1
    assert refused > 100
    assert agreed > 0.7 * refused, (agreed, refused)
