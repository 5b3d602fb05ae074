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


"""Snapshots and traces from any source: a valid cloud or one clear error."""

import json
import math
import os

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.backtest import trace
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import schema
from kronos_nova.rebalancer.snapshots import writer
from kronos_nova.sources import snapshot_files
from tests.unit.fuzz import junk
from tests.unit.fuzz import test_nova
from tests.unit.rebalancer import test_snapshots
from tests.unit.rebalancer.backtest import made

FILES = ['meta.json', schema.NODES, schema.AGGREGATES, schema.INSTANCES, schema.GROUPS,
         schema.SERVICES, schema.MIGRATIONS, schema.PROVIDERS, schema.ALLOCATIONS, schema.TRAITS,
         schema.SHARING, schema.BY_PROVIDER, schema.COOLDOWNS]


@pytest.fixture(scope='module')
def snapshot(tmp_path_factory):
    return writer.write_snapshot(str(tmp_path_factory.mktemp('s')), test_snapshots.recording())


def read(directory):
    try:
        found = reader.read_snapshot(directory)
    except exception.SnapshotError as e:
        assert len(str(e)) < 2000 and '\n' not in str(e)
        return
    for value in (*found.cluster.hosts.values(), *found.cluster.instances.values(),
                  *found.cluster.groups):
        for plain in test_nova.walk(value):
            assert not isinstance(plain, int | float) or (math.isfinite(plain)
                                                          and 0 <= plain < 2**63)
    assert 0 <= found.recorded_at < math.inf


def spoil(directory, name, data):
    """Read with one file replaced."""
    path = os.path.join(directory, name)
    with open(path, 'rb') as f:
        kept = f.read()
    try:
        with open(path, 'wb') as f:
            f.write(data)
        read(directory)
    finally:
        with open(path, 'wb') as f:
            f.write(kept)


@junk.examples(150)
@hypothesis.given(data=st.data())
def test_no_file_of_a_snapshot_causes_another_error(snapshot, data):
    name = data.draw(st.sampled_from(
        [f for f in FILES if os.path.exists(os.path.join(snapshot, f))]))
    with open(os.path.join(snapshot, name)) as f:
        document = json.load(f)
    body = data.draw(junk.spoiled(document).map(lambda d: json.dumps(d).encode())
                     | st.binary(max_size=40))
    spoil(snapshot, name, body)


@pytest.mark.parametrize('depth', [300, 900, 990, 1000, junk.DEEP])
@pytest.mark.parametrize('name', [schema.GROUPS, schema.COOLDOWNS, 'meta.json'])
def test_no_depth_causes_another_error(snapshot, name, depth):
    spoil(snapshot, name, junk.nested(depth).encode())
    spoil(snapshot, name, ('[{"id": "g", "policy": "affinity", "rules": {"x": '
                           + junk.nested(depth) + '}}]').encode())


def test_a_key_that_comes_twice_among_many_is_found_at_once(tmp_path):
    """Looking for it took the square of their number."""
    pairs = [f'"{n}": 0' for n in range(100_000)] + ['"99999": 0']
    (tmp_path / 'x').write_text('{' + ', '.join(pairs) + '}')
    with pytest.raises(exception.SnapshotError, match="'99999' is written twice"):
        snapshot_files.load_document(str(tmp_path), 'x')


@pytest.fixture(scope='module')
def recorded(tmp_path_factory):
    path = str(tmp_path_factory.mktemp('t') / 'trace.npz')
    trace.write_trace(path, made.trace(made.cluster({'a': 'h1', 'b': 'h2'}), {'h1': [0.5, 0.6]},
                                       [('a', 'h1', [1, 2])]), made.policy_set())
    return path


@junk.examples(150)
@hypothesis.given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)),
                                   min_size=1, max_size=6), cut=st.integers(0, 10**6))
def test_no_damage_to_a_trace_causes_another_error(recorded, changes, cut):
    with open(recorded, 'rb') as f:
        body = bytearray(f.read())
    for place, value in changes:
        body[place % len(body)] = value
    if cut % 4 == 0:
        del body[cut % len(body):]
    damaged = recorded + '.damaged'
    with open(damaged, 'wb') as f:
        f.write(body)
    try:
        trace.read_trace(damaged)
    except exception.TraceError as e:
        assert len(str(e)) < 2000


@junk.examples(100)
@hypothesis.given(body=st.binary(max_size=200))
def test_no_bytes_are_taken_for_a_trace(recorded, body):
    path = recorded + '.bytes'
    with open(path, 'wb') as f:
        f.write(body)
    with pytest.raises(exception.TraceError):
        trace.read_trace(path)
