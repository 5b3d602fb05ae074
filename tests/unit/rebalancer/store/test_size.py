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


"""Frequent queries cost the same for any number of ended tasks."""

import pytest
import sqlalchemy as sa

from benchmarks import store as benchmark
from tests.fixtures import stores

NOW = 1_700_000_000.0


class Filled:
    """A store with so many tasks, made at the same pace."""

    def __init__(self, path, tasks):
        self.store = stores.in_file(path)
        self.content = benchmark.Content(tasks, NOW, days=tasks / 500)
        benchmark.fill(self.store, self.content)
        self.queries = benchmark.queries(self.store, self.content)
        self._preparations = benchmark.preparations(self.store, self.content)
        self._steps = 0
        sa.event.listen(self.store.engine, 'checkout', self._watch)

    def _watch(self, connection, *rest):
        connection.set_progress_handler(self._step, 1)

    def _step(self):
        self._steps += 1
        return 0

    def count(self, name):
        """Virtual machine instructions of one call."""
        prepare = self._preparations.get(name, lambda: None)
        prepare()
        self.queries[name]()
        prepare()
        self._steps = 0
        self.queries[name]()
        return self._steps


@pytest.fixture(scope='module')
def sizes(tmp_path_factory):
    path = tmp_path_factory.mktemp('size')
    found = [Filled(path / f'{tasks}.sqlite', tasks) for tasks in (2_000, 12_000)]
    yield found
    for each in found:
        each.store.close()


def names():
    class Any:
        scopes = hosts = instances = plan_ids = judged = range(9)
        now = NOW

        def acquire_lease(self, *arguments):
            return arguments

        def __getattr__(self, name):
            return self

        def __call__(self, *arguments):
            return self
    return sorted(benchmark.queries(Any(), Any()))


@pytest.mark.parametrize('name', names())
def test_a_hot_query_reads_no_more_of_a_database_six_times_as_large(sizes, name):
    small, large = (filled.count(name) for filled in sizes)
    assert 0 < large <= 1.5 * small + 1_000, (small, large)


def test_the_benchmark_measures(tmp_path):
    found = benchmark.measure(f'sqlite:///{tmp_path}/k.sqlite', 1_000, runs=2, purge_days=30)
    assert set(found['milliseconds']) == set(names())
    assert all(0 < row['least'] <= row['median'] <= row['longest']
               for row in found['milliseconds'].values())
    purge = found['purge']
    assert purge['plans'] > 50 and purge['claims'] > 0 and purge['transactions'] > 1
    assert 0 < purge['longest'] <= purge['seconds']
