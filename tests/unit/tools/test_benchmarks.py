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


"""Benchmarks are run by hand; that they still run is tested."""

import json
import pathlib
import shlex
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from benchmarks import clusters
from benchmarks import growth
from benchmarks import planner
from kronos_nova.rebalancer.strategies import spread

TOP = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.turns(4)
@pytest.mark.parametrize(('name', 'smallest'), [
    ('planner', '--only "20 x 300" --runs 1'),
    ('quality', '--parts drains --seeds 0'),
    # Two sizes: the second one must not meet what the first one left.
    pytest.param('scheduler', '--hosts 8 10 --rounds 1', marks=pytest.mark.needs_nova)])
def test_a_benchmark_runs_in_its_smallest_form(name, smallest):
    done = subprocess.run([sys.executable, f'benchmarks/{name}.py', '--json',
                           *shlex.split(smallest)],
                          cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.turns(4)
def test_a_size_is_measured_step_by_step():
    row = planner.measure(clusters.Spec('small', 8, 80, grouped=0.2), 3, runs=2, seed=0)
    assert row['found'] > 0 and row['kept'] > 0 and row['rss_mib'] > 0
    for clock in ('wall', 'cpu'):
        assert set(row[clock]) == set(planner.COLUMNS)
        assert all(seconds >= 0 for seconds in row[clock].values())
    assert 'small' in planner.table([row])


@pytest.mark.parametrize('number', range(0, 24, 5))
def test_the_clusters_for_comparison_with_the_ancestor_have_moves(number):
    assert spread.Spread().propose(planner.simulate(planner.request(planner.small(number), 4)), 4)


def test_moves_from_a_second_move_of_an_instance_on_are_not_compared():
    first, second = ['a', 'x', 'y'], ['b', 'x', 'y']
    assert planner.once([first, second]) == [first, second]
    assert planner.once([first, second, ['a', 'y', 'z']]) == [first, second]


def test_the_picture_is_a_picture_of_the_numbers():
    rows = [{'hosts': n, 'instances': 10 * n, 'moves': 1, 'rss_mib': 1,
             'cpu_ms': {key: float(n) for key, _, _ in growth.LINES}} for n in (10, 100)]
    picture = growth.draw({'by_hosts': rows, 'by_instances': rows})
    lines = [e for e in ElementTree.fromstring(picture).iter() if e.tag.endswith('polyline')]
    assert len(lines) == 2 * len(growth.LINES)
