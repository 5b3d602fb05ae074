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

"""Trace files: a reader gets the written data and refuses other content."""

import json
import random
import zipfile

import numpy as np
import pytest

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.backtest import trace
from tests.unit.rebalancer.backtest import made


def recorded():
    cloud = made.cluster({'a': 'h1', 'b': 'h2'}, groups=(model.ServerGroup(
        'g', model.GroupPolicy.ANTI_AFFINITY, frozenset('ab')),))
    return made.trace(cloud, {'h1': [0.5, 0.6], 'h2': [None, 0.1]},
                      [('a', 'h1', [1, 2]), ('b', '', [None, 0.25])])


@pytest.fixture
def path(tmp_path):
    written = str(tmp_path / 'trace.npz')
    trace.write_trace(written, recorded(), made.policy_set())
    return written


def test_a_written_trace_is_read_unchanged(path):
    found, wanted = trace.read_trace(path), recorded()
    assert (found.window, found.scopes) == (wanted.window, wanted.scopes)
    assert found.cluster.groups == wanted.cluster.groups
    assert {u: (i.host, dict(i.claims)) for u, i in found.cluster.instances.items()} == {
        u: (i.host, dict(i.claims)) for u, i in wanted.cluster.instances.items()}
    assert found.cluster.taken_at == wanted.cluster.taken_at
    assert sorted(found.answers) == sorted(wanted.answers)
    for question, answer in wanted.answers.items():
        assert (found.answers[question].keys, found.answers[question].marks) == (
            answer.keys, answer.marks)
        assert np.array_equal(found.answers[question].values, answer.values, equal_nan=True)


def test_the_same_trace_is_the_same_file(path, tmp_path):
    again = tmp_path / 'again.npz'
    trace.write_trace(str(again), recorded(), made.policy_set())
    assert [p.name for p in sorted(tmp_path.iterdir())] == ['again.npz', 'trace.npz']
    with zipfile.ZipFile(path) as one, zipfile.ZipFile(again) as other:
        assert {n: one.read(n) for n in one.namelist()} == {
            n: other.read(n) for n in other.namelist()}


def changed(path, **fields):
    with np.load(path) as found:
        contents = dict(found)
    for name, value in fields.items():
        if value is None:
            del contents[name]
        else:
            contents[name] = value
    with open(path, 'wb') as f:
        np.savez(f, **contents)
    return path


def text(document):
    return np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)


@pytest.mark.parametrize(('fields', 'told'), [
    ({'format': np.array('other')}, 'format: it is not kronos-trace-1'),
    ({'format': None}, 'format: it is missing'),
    ({'times': np.array([1.0])}, 'times: it is no list of at least two numbers'),
    ({'times': np.array([1.0, 1.0])}, 'times: they do not rise'),
    ({'times': np.array([3.0, np.nan])}, 'times: they do not rise'),
    ({'times': np.array([-2.0, -1.0])}, 'no epoch seconds'),
    ({'times': np.array([1e18, 2e18])}, 'no epoch seconds'),
    ({'times': np.array([1.0, 2.0, 4.0])}, 'times: they do not rise'),
    ({'times': np.array(['a', 'b'])}, 'times: it is no list'),
    ({'times': np.array([1.0, 2.0, 3.0])}, 'values_0: it is float32 of shape'),
    ({'questions': text({})}, 'questions: it is no list'),
    ({'questions': text([['a', 'b']])}, r'questions: \[0\] is no list of query'),
    ({'questions': np.array('x')}, 'questions: it is no text'),
    ({'questions': np.frombuffer(b'{', dtype=np.uint8)}, 'questions: it is not JSON'),
    ({'series_0': text([['a']])}, 'series_0: it is no list of pairs'),
    ({'series_1': None}, 'series_1: it is missing'),
    ({'values_0': np.zeros((2, 2), dtype=int)}, 'values_0: it is int64'),
    ({'values_0': np.full((2, 2), np.inf)}, 'values_0: it holds an infinite number'),
    ({'values_0': np.array([[object()]], dtype=object)}, 'values_0: it cannot be unpacked'),
    ({'cloud': text([])}, 'cloud: it is no object'),
    ({'cloud': text({})}, 'cloud: meta.json: it cannot be read'),
    ({'cloud': text({'../x': 1, 'meta.json': 5})}, 'cloud: meta.json')])
def test_a_wrong_field_is_named(path, fields, told):
    with pytest.raises(exception.TraceError, match=told) as caught:
        trace.read_trace(changed(path, **fields))
    assert path in str(caught.value) and 'Record the trace again' in str(caught.value)


def test_a_wrong_file_of_the_cloud_is_named(path):
    with np.load(path) as found:
        cloud = json.loads(found['cloud'].tobytes())
    cloud['nova/instances.json']['h1'][0]['flavor_vcpus'] = 'many'
    with pytest.raises(exception.TraceError, match=r'instances.json: .*flavor_vcpus'):
        trace.read_trace(changed(path, cloud=text(cloud)))


@pytest.mark.parametrize('content', [b'', b'no archive', b'PK\x03\x04 broken'])
def test_a_file_that_is_not_an_archive_is_refused(tmp_path, content):
    path = tmp_path / 'x.npz'
    path.write_bytes(content)
    with pytest.raises(exception.TraceError, match='it is no .npz file'):
        trace.read_trace(str(path))


def test_a_damaged_archive_is_refused_or_read_and_nothing_else(path):
    with open(path, 'rb') as f:
        whole = f.read()
    rng = random.Random(3)
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 40)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with open(path, 'wb') as f:
            f.write(data[:rng.choice([len(data), len(data), rng.randrange(len(data))])])
        try:
            trace.read_trace(path)
        except exception.TraceError:
            refused += 1
    assert refused > 250


def test_a_small_file_cannot_stand_for_more_than_the_limit(path, monkeypatch):
    monkeypatch.setattr(trace, 'MAX_BYTES', 1000)
    with pytest.raises(exception.TraceError, match='it unpacks to'):
        trace.read_trace(path)


def test_a_file_that_is_not_there_or_cannot_be_written(tmp_path):
    with pytest.raises(exception.TraceError, match='No such file'):
        trace.read_trace(str(tmp_path / 'none.npz'))
    with pytest.raises(exception.TraceError, match='cannot be written'):
        trace.write_trace(str(tmp_path / 'none' / 'x.npz'), recorded(), made.policy_set())
