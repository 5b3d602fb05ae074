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


"""A Prometheus answer is a vector of finite numbers, or a reason why not."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova import model
from kronos_nova.sources import answer


def body_of(result, **fields):
    return json.dumps({'status': 'success', 'data': {'resultType': 'vector', 'result': result},
                       **fields}).encode()


def series_of(*rows):
    return [{'metric': {'host': name}, 'value': [0, value]} for name, value in rows]


def vector(body, label='host', max_series=10, **kwargs):
    return answer.parse_vector('q', label, body, max_series, **kwargs)


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.floats(), max_size=9))
def test_finite_values_are_kept_exactly_and_no_other(values):
    result = vector(body_of(series_of(*((k, repr(v)) for k, v in values.items()))))
    assert result.series == {k: v for k, v in values.items() if math.isfinite(v)}
    odd = len(values) - len(result.series)
    assert (result.health is model.SourceHealth.HEALTHY) == (odd == 0)
    assert bool(result.warnings) == (odd > 0)


@pytest.mark.parametrize('value', ['NaN', '+Inf', '-Inf'])
def test_prometheus_s_words_for_no_number(value):
    result = vector(body_of(series_of(('cn1', value), ('cn2', '0.5'))))
    assert result.series == {'cn2': 0.5} and 'cn1' in result.warnings[0]


def test_a_repeated_label_is_a_duplicate_even_thrice_or_as_nan():
    rows = [('a', '1'), ('a', '2'), ('a', '3'), ('b', 'NaN'), ('b', '1'), ('c', '1')]
    result = vector(body_of(series_of(*rows)))
    assert result.duplicates == ('a', 'b') and result.series == {'c': 1.0}


def test_series_without_the_label_are_counted_and_shown():
    rows = [*series_of(('a', '1')), {'metric': {'x': 'evil\n\x1b[31m'}, 'value': [0, '1']},
            {'metric': {'host': ''}, 'value': [0, '1']}]
    result = vector(body_of(rows))
    assert result.series == {'a': 1.0} and len(result.missing_labels) == 2
    assert '\n' not in result.warnings[0] and '\x1b' not in result.warnings[0]


def test_no_series_with_the_label_is_an_error():
    result = vector(body_of(series_of(('a', '1'))), label='nodename')
    assert 'no series has the label nodename' in result.error


def test_one_series_without_the_label_is_taken_when_allowed():
    rows = [{'metric': {}, 'value': [0, '7']}]
    assert vector(body_of(rows), sole=True).series == {'': 7.0}
    assert vector(body_of(rows)).error
    assert vector(body_of(rows * 2), sole=True).error


def test_an_empty_vector_is_healthy():
    result = vector(body_of([]))
    assert (result.series, result.error, result.health) == ({}, None, model.SourceHealth.HEALTHY)


@pytest.mark.parametrize(('body', 'words'), [
    (body_of([], warnings=['store 10.0.0.1 is gone']), 'degraded answer: store 10.0.0.1 is gone'),
    (body_of([], isPartial=True), 'isPartial'),
    (b'<html>', 'not JSON'),
    (b'\xff\xfe', 'not JSON'),
    (b'[]', 'not a JSON object'),
    (b'[' * 100000, 'not JSON'),
    (b'{"status": "success", "data": {"resultType": "vector", "result": [NaN]}}', 'not JSON'),
    (json.dumps({'status': 'error', 'error': 'bad'}).encode(), 'error (bad)'),
    (json.dumps({'status': 'success'}).encode(), 'not an instant vector'),
    (json.dumps({'status': 'success', 'data': {'resultType': 'matrix', 'result': []}}).encode(),
     'a matrix, not an instant vector'),
    (json.dumps({'status': 'success', 'data': {'resultType': 'vector'}}).encode(), 'no list'),
    (body_of([{'metric': {}, 'histogram': [0, {}]}]), 'without a plain value'),
    (body_of([{'metric': {}, 'value': [0, 1.5]}]), 'without a plain value'),
    (body_of([{'metric': {}, 'value': [0, 'many']}]), "'many'"),
    (body_of([7]), 'no series'),
    (body_of(series_of(*((str(n), '1') for n in range(11)))), 'more than max_series'),
])
def test_anything_else_is_refused_with_its_reason(body, words):
    with pytest.raises(answer.MalformedAnswer) as caught:
        vector(body)
    assert words in str(caught.value)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(['status', 'data', 'resultType', 'result', 'metric',
                                         'value', 'warnings', 'host']), inner, max_size=4)))
def test_no_document_does_anything_but_be_taken_or_refused(document):
    try:
        vector(json.dumps(document).encode())
    except answer.MalformedAnswer as e:
        assert str(e)


def test_foreign_text_is_one_short_printable_line():
    assert answer.clean_text('a\n\tb\x00\x1b' + 'c' * 500, 20) == 'a b??' + 'c' * 12 + '...'
    assert answer.find_error_text(json.dumps({'error': 'x' * 999}).encode()).endswith('...)')
    assert answer.find_error_text(b'nothing') == ''
