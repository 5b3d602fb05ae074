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



"""PromQL of policy files: ``kronos policy lint`` has an answer for any text."""

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova.checks import base
from kronos_nova.checks import policy_lint
from kronos_nova.checks import promql
from tests.unit.fuzz import junk

LITERALS = st.sampled_from([
    '1', '-1', '1e400', '0x1f', '0xfffffffffffffffffff', 'Inf', 'NaN', '5m', '1h30m', '.5', '5.',
    '99999999999y', '18446744073709551615ms', '9223372036854775807s', '"a"', "'b'", '`c`',
    '"\\xff"', '"\\ud800"', '"\\U00110000"', '"\\777"', '"'])
SUFFIXES = st.sampled_from([
    '', '[5m]', '[5m:1m]', '[1w:]', '[0s]', '[5m:0s]', '[300000y]', '[99999999999999y:1m]',
    '[1.5m]', ' offset 5m', ' offset -5m', ' offset Inf', ' offset NaN', ' offset 1e400',
    ' offset 292278025y', ' @ 1e19', ' @ -1e30', ' @ NaN', ' @ end()', '{a="b"}', '{a=~"("}', '{'])
FUNCTIONS = st.sampled_from([
    'rate', 'absent', 'label_replace', 'label_join', 'clamp', 'vector', 'scalar', 'time', 'hour',
    'histogram_quantile', 'info', 'frob', 'sum', 'sum by (a)', 'max without (é, )', 'topk',
    'count_values', 'quantile by (host)', 'limitk', ''])
OPERATORS = st.sampled_from([
    '+', '-', '*', '^', '%', 'atan2', '==', '> bool', 'and', 'or', 'unless', '/ on (a, host)',
    '/ ignoring ()', '* on (a) group_left (host)', '< on () group_right', 'and on (host)',
    'or on ()', '+ bool', '=~', '** on', '$', '#', '\n', '@', ','])
QUERIES = st.recursive(
    st.builds(str.__add__, st.sampled_from(['x', 'and', '{"x"}', 'é', '']) | LITERALS, SUFFIXES),
    lambda inner: st.builds('{} {} {}'.format, inner, OPERATORS, inner) | st.builds(
        '{}({}){}'.format, FUNCTIONS, st.lists(inner, max_size=4).map(', '.join), SUFFIXES),
    max_leaves=8)


class UnusableServer:
    """A server that accepts no requests."""

    away, remedy = 'nobody is there', 'Ask again.'

    def check(self, query):
        return None


def check(query):
    found = policy_lint._lint_query('policies[0].age_query', query, {'host_label': 'host'},
                                        UnusableServer(), 60.0)
    for item in found:
        assert item.status is not base.CheckStatus.OK and item.text and item.remedy
        assert len(item.text) < 2000 + len(query) and '\n' not in item.text
    return found


@junk.examples(400)
@hypothesis.given(query=QUERIES | junk.texts | st.lists(
    LITERALS | SUFFIXES | FUNCTIONS | OPERATORS | st.sampled_from('x(){}[],="'), max_size=12).map(
        ' '.join))
def test_no_query_causes_an_error(query):
    check(query)


@pytest.mark.parametrize('query', [
    'x offset Inf', 'x offset NaN', 'sum by (host) (x offset 1e400)', 'x + x offset +Inf'])
def test_a_query_that_the_parser_panics_on_is_not_called_right_or_wrong(query, capfd):
    with pytest.raises(promql.ParserFailed, match=r'failed on it \(cannot convert'):
        promql.parse_query(query)
    (item,) = check(query)
    assert item.status is base.CheckStatus.SKIPPED and 'promql-parser failed on it' in item.text
    assert capfd.readouterr() == ('', '')


def test_a_panic_on_a_prefix_does_not_hide_the_fault_of_the_whole_query():
    (item,) = check('x offset +Inf [5m')
    assert item.status is base.CheckStatus.FAILED and 'at [5m' in item.text


def test_without_a_standard_error_a_query_is_parsed(monkeypatch):
    def closed(number):
        raise OSError(9, 'Bad file descriptor')

    monkeypatch.setattr(promql.os, 'dup', closed)
    assert check('max by (host) (x)') == []


def test_an_interruption_is_no_failure_of_the_parser(monkeypatch):
    def interrupted(query):
        raise KeyboardInterrupt

    monkeypatch.setattr(promql.promql_parser, 'parse', interrupted)
    with pytest.raises(KeyboardInterrupt):
        promql.parse_query('x')
