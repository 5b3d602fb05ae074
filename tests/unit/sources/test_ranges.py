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

"""Answers over time, and servers that cannot give them whole; see
tests/integration for a real Prometheus."""

import math

from oslo_config import cfg
import pytest

from kronos_nova.conf import prometheus as prometheus_conf
from kronos_nova.sources import base
from kronos_nova.sources import prometheus
from kronos_nova.sources import ranges
from tests.fixtures import prometheus_api

WINDOW = ranges.QueryWindow(1000.0, 60.0, 100)


@pytest.fixture
def api():
    with prometheus_api.running() as found:
        found.respond = Answers(found)
        yield found


class Answers:
    """``value(series, time)`` at every time asked; refuses as a server does."""

    def __init__(self, api):
        self.api = api
        self.metrics = [{'host': 'cn1'}, {'host': 'cn2'}]
        self.asked = []
        self.refuse = lambda points: None

    def __call__(self, handler, form):
        start, end, step = float(form['start']), float(form['end']), float(form['step'])
        points = round((end - start) / step) + 1
        self.asked.append(points)
        refused = self.refuse(points)
        if refused is not None:
            return self.api.send(handler, *refused)
        times = [start + n * step for n in range(points)]
        return self.api.send(handler, 200, {'status': 'success', **self.api.extra, 'data': {
            'resultType': 'matrix', 'result': [
                {'metric': m, 'values': [[t, str(t + n)] for t in times]}
                for n, m in enumerate(self.metrics)]}})


def source_of(api, **options):
    conf = cfg.ConfigOpts()
    conf.register_opts(prometheus_conf.OPTS, group='prometheus')
    conf([])
    for name, value in {'timeout': 20.0, 'max_retries': 0, 'retry_backoff': 0.01,
                        'url': api.url, **options}.items():
        conf.set_override(name, value, 'prometheus')
    return prometheus.PrometheusSource(conf)


def ask(api, window=WINDOW, label='host', mark='host', progress=ranges.ignore_progress, **options):
    return source_of(api, **options).query_range('load', label, mark, window, progress)


def test_every_time_has_its_value_for_any_partition(api):
    done = []
    found = ask(api, progress=done.append)
    assert found.error is None and found.keys == found.marks == ('cn1', 'cn2')
    assert list(found.values[0]) == [WINDOW.compute_time(k) for k in range(100)]
    assert list(found.values[1]) == [WINDOW.compute_time(k) + 1 for k in range(100)]
    assert done == api.respond.asked and sum(done) == 100 and len(done) > 1
    method, path, _headers, form = api.requests[0]
    assert (method, path) == ('POST', '/api/v1/query_range')
    assert form['query'] == 'load' and form['step'] == '60.000' and form['timeout']


def test_parts_grow_to_what_fits_and_no_further(api):
    window = ranges.QueryWindow(0.0, 60.0, 30_000)
    found = ask(api, window, max_body_bytes=200_000)
    assert found.error is None and not math.isnan(found.values[0][-1])
    assert max(api.respond.asked) > 10 * api.respond.asked[0]
    assert max(api.respond.asked) < ranges.MAX_POINTS


@pytest.mark.parametrize('refusal', [
    (422, {'status': 'error', 'error': 'query processing would load too many samples into '
                                       'memory in query execution'}),
    (503, {'status': 'error', 'error': 'query timed out in expression evaluation'})])
def test_a_part_that_is_too_much_is_halved(api, refusal):
    api.respond.refuse = lambda points: refusal if points > 10 else None
    found = ask(api)
    assert found.error is None and not any(math.isnan(v) for v in found.values[1])
    assert api.respond.asked[:3] == [30, 15, 7]


def test_a_caller_may_end_a_query_before_a_part_is_halved(api):
    class Ended(Exception):
        pass

    def end(points):
        assert points == 0
        raise Ended

    api.respond.refuse = lambda points: (422, {'status': 'error', 'error': 'too many samples'})
    with pytest.raises(Ended):
        ask(api, progress=end)
    assert api.respond.asked == [30]


def test_an_answer_over_the_limit_of_bytes_is_halved(api):
    api.respond.metrics = [{'host': f'cn{n}'} for n in range(40)]
    found = ask(api, max_body_bytes=20_000)
    assert found.error is None and len(found.keys) == 40
    assert not any(math.isnan(v) for v in found.values[39])


def test_one_time_that_is_too_much_is_an_error_that_names_the_limit(api):
    api.respond.metrics = [{'host': 'x' * 200 + str(n)} for n in range(40)]
    found = ask(api, max_body_bytes=2000)
    assert 'max_body_bytes' in found.error and not found.values


def test_ranges_that_never_fit_end_with_an_error(api):
    api.respond.refuse = lambda points: (422, {'status': 'error', 'error': 'too many samples'})
    found = ask(api)
    assert 'too many samples' in found.error
    assert len(api.respond.asked) <= 1 + ranges.HALVINGS


def test_a_query_that_is_wrong_is_not_tried_over_less_time(api):
    api.respond.refuse = lambda points: (400, {'status': 'error', 'error': 'parse error'})
    assert 'parse error' in ask(api).error
    assert len(api.respond.asked) == 1


def test_a_passing_fault_is_retried(api):
    api.respond.refuse = lambda points: (500, b'') if len(api.respond.asked) == 1 else None
    assert 'answers 500' in ask(api).error
    api.respond.asked.clear()
    assert ask(api, max_retries=1).error is None


def test_series_are_counted_over_the_whole_time(api):
    """Instances that come and go are new series in every part."""
    answers = api.respond

    def respond(handler, form):
        answers.metrics = [{'host': f'{form["start"]}-{n}'} for n in range(3)]
        answers(handler, form)

    api.respond = respond
    found = ask(api, max_series=4)
    assert 'max_series (4)' in found.error and len(answers.asked) == 2


def test_a_degraded_answer_is_refused(api):
    api.extra = {'warnings': ['a store is missing']}
    assert 'degraded answer: a store is missing' in ask(api).error


@pytest.mark.parametrize(('data', 'told'), [
    ({'resultType': 'vector', 'result': []}, 'returns a vector, not series over time'),
    ({'resultType': 'matrix'}, 'no list of series'),
    ({'resultType': 'matrix', 'result': [5]}, 'something that is no series'),
    ({'resultType': 'matrix', 'result': [{'metric': {'host': 5}, 'values': []}]}, 'no series'),
    ({'resultType': 'matrix', 'result': [{'metric': {}}]}, 'without plain values'),
    ({'resultType': 'matrix', 'result': [{'metric': {}, 'values': [[1]]}]}, 'no pair'),
    ({'resultType': 'matrix', 'result': [{'metric': {}, 'values': [[1, 'x']]}]}, 'no pair')])
def test_an_answer_without_a_matrix_is_refused(api, data, told):
    api.respond.refuse = lambda points: (200, {'status': 'success', 'data': data})
    assert told in ask(api).error


def test_no_server_is_one_error(api):
    api.stop()
    assert 'cannot be reached' in ask(api).error


def test_unusable_labels_and_values_are_left_out_with_a_warning():
    found = ranges.RangeCollector('q', 'uuid', 'host', WINDOW, 10)
    found.add_part([({'uuid': 'a', 'host': 'h1', 'job': 'x'}, [(1000.0, 1.0), (1060.0, math.nan)]),
                    ({'uuid': 'a', 'host': 'h2'}, [(1120.0, 2.0), (5.0, 3.0), (10.0**9, 4.0)]),
                    ({'host': 'h1'}, [(1000.0, 1.0)]), ({'uuid': 'u' * 300}, [(1000.0, 1.0)]),
                    ({'uuid': 'b', 'host': 'h' * 300}, [(1000.0, math.inf)])])
    result = found.build_result()
    assert (result.keys, result.marks) == (('a', 'a', 'b'), ('h1', 'h2', ''))
    assert [v for v in result.values[0] if not math.isnan(v)] == [1.0]
    assert result.values[1][2] == 2.0 and sum(not math.isnan(v) for v in result.values[1]) == 1
    assert result.warnings == ('2 series have no usable label uuid',
                               '2 samples are not finite and left out')


def test_parts_of_one_series_become_one():
    found = ranges.RangeCollector('q', 'uuid', 'host', WINDOW, 1)
    found.add_part([({'uuid': 'a'}, [(1000.0, 1.0)])])
    found.add_part([({'uuid': 'a'}, [(1060.0, 2.0)])])
    assert list(found.build_result().values[0])[:2] == [1.0, 2.0]


def test_the_next_part_aims_at_half_of_the_limit():
    assert ranges.next_points(30, 1000, 8_000_000) == 120
    assert ranges.next_points(100, 4_000_000, 8_000_000) == 100
    assert ranges.next_points(100, 8_000_000, 8_000_000) == 50
    assert ranges.next_points(9000, 1, 8_000_000) == ranges.MAX_POINTS - 1
    assert ranges.next_points(1, 8_000_000, 1000) == 1


def test_a_source_without_a_past_says_so():
    class Live(base.MetricsSource):
        def fetch(self, policy, *, profile=True):
            raise AssertionError

        def health(self):
            raise AssertionError

    assert Live().query_range('q', 'a', 'b', WINDOW).error == 'Live keeps no history'
