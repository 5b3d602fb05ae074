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


"""Prometheus's answers: finite numbers by label, or a reason why not."""

import json
import math

import hypothesis
from hypothesis import strategies as st
from oslo_config import cfg
import pytest

from kronos_nova import policy
from kronos_nova.conf import opts
from kronos_nova.sources import answer
from kronos_nova.sources import prometheus
from kronos_nova.sources import ranges
from tests.fixtures import prometheus_api
from tests.unit.fuzz import junk

VECTOR = {'status': 'success', 'data': {'resultType': 'vector', 'result': [
    {'metric': {'host': 'h1'}, 'value': [1700000000.5, '0.25']},
    {'metric': {'host': 'h2', 'x': 'y'}, 'value': [1700000000.5, '0.5']}]}}
MATRIX = {'status': 'success', 'data': {'resultType': 'matrix', 'result': [
    {'metric': {'host': 'h1'}, 'values': [[0, '0.25'], [60, '0.5']]}]}}
WINDOW = ranges.QueryWindow(0.0, 60.0, 3)
POLICY = policy.parse_policies({'policies': [{
    'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'cpu', 'vm_profile_query': 'vm',
    'capacity_query': 'capacity', 'host_capacity_query': 'cores', 'vm_profile_unit': 'absolute',
    'age_query': 'age', 'vm_mean_query': 'mean', 'vm_deviation_query': 'deviation',
    'vm_dirty_rate_query': 'dirty'}]}).policies[0]


def finite(values):
    return all(isinstance(v, float) and math.isfinite(v) for v in values)


def read(body):
    """The body as either kind of answer."""
    try:
        found = answer.parse_vector('q', 'host', body, 50)
        assert finite(found.series.values()) and all(found.series)
        assert all(isinstance(name, str) for name in (*found.series, *found.duplicates))
        assert sum(map(len, found.warnings)) < 4000
    except answer.MalformedAnswer as e:
        assert len(str(e)) < 1000
    collected = ranges.RangeCollector('q', 'host', 'x', WINDOW, 50)
    try:
        collected.add_part(answer.parse_matrix(body, 50))
    except (answer.MalformedAnswer, ranges.TooManySeries):
        return
    for values in collected.build_result().values:
        assert len(values) == WINDOW.count and not any(map(math.isinf, values))
    answer.find_error_text(body)


@junk.examples(150)
@hypothesis.given(st.binary(max_size=60))
def test_no_bytes_cause_another_error(body):
    read(body)
    read(b'{"status": "success", "data": {"resultType": "vector", "result": [' + body + b']}}')


@junk.examples(250)
@hypothesis.given(junk.spoiled(VECTOR) | junk.spoiled(MATRIX) | junk.values)
def test_no_structure_causes_another_error(document):
    read(json.dumps(document).encode())


@pytest.mark.parametrize('value', ['NaN', '1e999', '-1e999', '"nan"', '"inf"', '"1e999"', '"x"',
                                   '1e300', '"1e300"', 'true', 'null', '9' * 5000, '[]'])
@pytest.mark.parametrize('place', ['"values": [[%s, "1"]]', '"values": [[0, %s]]',
                                   '"value": [0, %s]', '"values": [%s]', '"values": %s'])
def test_no_number_causes_another_error(value, place):
    for kind in ('vector', 'matrix'):
        series = '{"metric": {"host": "h"}, ' + place % value + '}'
        read(('{"status": "success", "data": {"resultType": "' + kind + '", "result": ['
              + series + ']}}').encode())


@junk.examples(40)
@hypothesis.given(junk.DEPTHS, st.sampled_from([
    '%s', '{"status": %s}', '{"status": "error", "error": %s}', '{"status": "success", "data": %s}',
    '{"status": "success", "warnings": [%s]}',
    '{"status": "success", "data": {"resultType": %s}}',
    '{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"a": %s}, '
    '"value": [0, "1"]}]}}']))
def test_no_depth_causes_another_error(depth, place):
    read((place % junk.nested(depth)).encode())


def test_the_largest_answer_takes_a_bounded_part_of_memory():
    """A body of max_body_bytes with the content that needs most memory."""
    for text in ('[' + '[],' * (2**16) + '[]]', '{"a":' * 2**16, '"' + '\\u1234' * 2**16 + '"'):
        with junk.within(60 * len(text) / 2**20 + 1):
            read(text.encode())


@pytest.fixture(scope='module')
def source():
    with prometheus_api.running() as api:
        conf = cfg.ConfigOpts()
        opts.register_planning(conf)
        conf([], default_config_files=[])
        for name, value in (('url', api.url), ('max_retries', 0), ('timeout', 10)):
            conf.set_override(name, value, 'prometheus')
        found = prometheus.PrometheusSource(conf)
        yield api, found
        found.close()


@junk.examples(25)
@hypothesis.given(body=st.binary(max_size=40) | junk.spoiled(VECTOR).map(
                      lambda document: json.dumps(document).encode()),
                  status=st.sampled_from([200, 200, 200, 204, 400, 422, 500, 503]),
                  kind=st.sampled_from(['application/json', 'text/html', '', 'application/json;x']))
def test_no_answer_makes_the_source_raise(source, body, status, kind):
    api, found = source
    api.respond = lambda handler, form: api.send(handler, status, body, kind)
    samples = found.fetch(POLICY)
    assert samples.age is None or samples.age >= 0
    for result in (samples.imbalance, samples.profile, samples.capacity, samples.host_capacity,
                   samples.mean, samples.deviation, samples.dirty_rate):
        assert finite(result.series.values())
        assert result.error is None or len(result.error) < 1000
    found.health()
    found.query_range('q', 'host', 'x', WINDOW)
