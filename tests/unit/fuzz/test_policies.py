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


"""Policy files: a sound policy set, or one PolicyFileError."""

import copy
import math

import hypothesis
from hypothesis import strategies as st
import pytest
import yaml

from kronos_nova import exception
from kronos_nova import lookback
from kronos_nova import policy
from kronos_nova import presets
from kronos_nova.checks import base
from kronos_nova.checks import policy_lint
from kronos_nova.conf import config_sessions
from kronos_nova.conf import policies
from tests.unit.fuzz import junk

GOOD = {'policies': [{
    'name': 'cpu', 'mode': 'spread', 'weight': 1.0, 'imbalance_query': 'avg(rate(x[5m]))',
    'vm_profile_query': 'vm', 'vm_profile_unit': 'absolute', 'host_capacity': 'VCPU',
    'host_regex': '(.*)', 'threshold': 0.15, 'capacity_query': 'x', 'capacity_threshold': 0.8,
    'max_migrations_per_cycle': 3, 'boot_ceiling': 0.9, 'peak_deviations': 2.0,
    'fill_hysteresis': 0.05, 'enabled': True}], 'aggregates': ['a']}
SESSION = config_sessions.ConfigSession()

#: YAML's own words, between other text.
WORDS = st.sampled_from([
    'policies:', '- name: cpu', '\n', '\n  ', ': ', '- ', '? ', '[', ']', '{', '}', ',', '&a ',
    '*a', '!!int ', '!!float ', '!!bool ', '!!timestamp ', '!!set ', '!!omap ', '!!binary ',
    '!!python/object:os.system ', '!x ', '<<: ', '=', "''", '""', '|\n', '>\n', '---\n', '...\n',
    '%YAML 9.9\n', '#', '0x', '0b_', '1:1:1', '1:1:1.5', '.nan', '.inf', '2001-99-99', '~', '\t'])


def load(directory, data):
    path = directory / 'p.yaml'
    path.write_bytes(data)
    try:
        return sound(policies.load_policies(str(path)))
    except exception.PolicyFileError as e:
        assert len(str(e)) < 4000 and '\n' not in str(e)
        return None


def sound(found):
    """It means something: every number can be counted with."""
    assert abs(math.fsum(p.weight for p in found.enabled_policies) - 1) <= policy.WEIGHT_TOLERANCE
    for one in found.policies:
        for value in (one.weight, one.threshold, one.capacity_threshold, one.fill_hysteresis):
            assert isinstance(value, float) and 0 <= value <= 1
        assert 1 <= one.max_migrations_per_cycle <= 10_000
        assert 0 <= one.peak_deviations <= 10
        assert one.lookback_seconds >= 0 and math.isfinite(one.lookback_seconds)
    return found


@pytest.fixture(scope='module')
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp('policies')


@junk.examples(100)
@hypothesis.given(data=st.binary(max_size=60)
                  | st.lists(WORDS | st.text(max_size=4), max_size=12).map(
                      lambda parts: ''.join(parts).encode('utf-8', 'replace')))
def test_no_bytes_cause_another_error(directory, data):
    load(directory, data)
    load(directory, b'policies: [{name: cpu, weight: ' + data + b', imbalance_query: x}]\n')


@junk.examples(60)
@hypothesis.given(document=junk.spoiled(GOOD) | junk.values)
def test_no_structure_causes_another_error(directory, document):
    try:
        sound(policy.parse_policies(document))
    except exception.PolicyFileError as e:
        assert len(str(e)) < 4000
    try:
        text = yaml.safe_dump(document, allow_unicode=True).encode()
    except (yaml.YAMLError, UnicodeEncodeError, ValueError):
        return
    load(directory, text)


PRESETS = {name: yaml.safe_load(presets.read_preset(name)) for name in presets.list_presets()}


def places(node, above=()):
    """The keys that lead to each value of a document."""
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*above, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*above, key))


@st.composite
def with_one_value_replaced(draw):
    document = copy.deepcopy(PRESETS[draw(st.sampled_from(sorted(PRESETS)))])
    first = ('policies', 0)
    *above, last = draw(st.sampled_from([
        *places(document), (*first, 'host_label'), (*first, 'vm_profile_label'),
        (*first, 'age_query')]))
    node = document
    for key in above:
        node = node[key]
    node[last] = draw(junk.values)
    return document


def linted(directory, document):
    path = directory / 'p.yaml'
    path.write_text(yaml.safe_dump(document), encoding='utf-8')
    rows = policy_lint.lint_policy_files(SESSION, [str(path)], 60.0)
    assert rows
    for row in rows:
        assert row.item.text and (row.item.remedy or row.item.status is base.CheckStatus.OK)
    return {row.item.name for row in rows if row.item.status is base.CheckStatus.FAILED}


@junk.examples(150)
@hypothesis.given(document=with_one_value_replaced())
def test_lint_has_rows_for_any_replacement_of_a_value(directory, document):
    linted(directory, document)


@pytest.mark.parametrize('value', [['a'], {'a': 1}, None, 7, True, [], ''])
@pytest.mark.parametrize('label', ['host_label', 'vm_profile_label'])
def test_lint_tells_of_a_label_that_is_no_name_and_of_all_else(directory, label, value):
    document = copy.deepcopy(PRESETS['spread-inovex'])
    document['policies'][0] |= {label: value, 'imbalance_query': 'x[5m]'}
    name = f'policies[0] ({document["policies"][0]["name"]})'
    assert {f'{name}.{label}', f'{name}.imbalance_query'} <= linted(directory, document)


@pytest.mark.parametrize('value', [
    "!!int ''", "!!float ''", "!!bool x", '!!timestamp x', '!!null x', '!x 1', '!!set {a, b}',
    '!!set [a]', '!!omap {a: b}', '!!omap [a]', '!!pairs [a: 1]', '!!binary "@"', '!!binary /w==',
    '!!set {? [a]}',
    '1:' * 300 + '1.5', '1:' * 300 + '1', '0x' + 'f' * 5000, '-0x' + 'f' * 5000,
    '9' * 5000, '1.' + '0' * 9000 + 'e9999', '2001-99-99', '2001-01-01 00:00:00 +99:99'])
def test_numbers_that_are_none_are_refused(directory, value):
    for field in ('weight', 'max_migrations_per_cycle', 'name', 'imbalance_query', value):
        text = f'policies: [{{name: cpu, weight: 1, imbalance_query: x, {field}: {value}}}]'
        load(directory, text.encode())
    load(directory, f'{value}: 1'.encode())
    load(directory, f'? {value}\n'.encode())


@pytest.mark.parametrize('value', [
    '!x 1', '!!python/object:os.system {}', '!!python/tuple [a]', '!!merge x', '!!yaml x'])
def test_tags_are_refused_wherever_they_stand(directory, value):
    with pytest.raises(exception.PolicyFileError, match='the tag .* is not allowed'):
        (directory / 'p.yaml').write_text(f'policies: {value}')
        policies.load_policies(str(directory / 'p.yaml'))


@pytest.mark.parametrize('regex', [
    'x{4294967295}(y)', '(x{999999999999})', '(' * 500 + ')' * 500, '(?P<a>', '(' * 1024,
    '(?P<a>(?i)x)'])
def test_no_regular_expression_causes_another_error(regex):
    with pytest.raises(exception.PolicyFileError, match='host_regex'):
        policy.parse_policies({'policies': [{**GOOD['policies'][0], 'host_regex': regex}]})


@pytest.mark.parametrize('text', [
    'a: &a [x, x]\nb: &b [*a, *a]\npolicies: [*b, *b]', '[' * 100_000, '{a: ' * 100_000,
    '- ' * 100_000, '? ' * 100_000, 'x' * 50_000, '"' + '\\' * 50_000, '&a ' * 200_000,
    '\n'.join(f'k{n}: {n}' for n in range(15_000))], ids=range(9))
def test_no_file_takes_more_than_its_share_of_memory(directory, text):
    with junk.within(60):
        load(directory, text.encode())


PROMQL = st.lists(st.sampled_from([
    '(', ')', '[5m]', '[1.2.3m]', '[5m:1m]', '[', ']', 'offset 5m', 'offset -1.2.3d', 'rate(',
    'avg by (x) (', 'quantile_over_time(', '0.9', '1e999', '.', '-', '+', ' ', 'x', '{a="b"}', '{',
    '"', "'", '`', '@ 5', '@ end()', '#', '\n', ',', '[99999999999999999999y]', 'max_over_time(',
    '1.2.3', 'nan', '0x1f', '[' + '9' * 400 + 'y]'])
                  | st.text(max_size=3), max_size=14).map(''.join)


@junk.examples(300)
@hypothesis.given(query=PROMQL)
def test_the_lookback_of_any_query_is_finite(query):
    look = lookback.parse_query(query)
    for seconds in (look.ramp, look.slack, look.span, look.quantile, lookback.compute_reach(query)):
        assert 0 <= seconds < math.inf
    assert math.isfinite(look.delay)
