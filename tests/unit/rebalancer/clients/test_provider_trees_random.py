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


"""Random writes during the reading of trees, and random aborts: content of one generation was
true at one moment, and kept content is never wrong."""

import random

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_trees
from tests.unit.rebalancer.clients import simulated_placement

PARENTS = {'a0': None, 'a1': 'a0', 'a2': 'a1', 'b0': None, 'b1': 'b0', 's': None}
CONSUMERS = ('v', 'w', 'x', 'y')


class Placement(simulated_placement.Placement):
    """Others write between and within requests. Each time that a consumer is given
    something, it is another amount."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(PARENTS)
        self.rng = rng
        self.noise = self.faults = 0.0
        self.writes = 0
        self.before = self._may_write

    def write(self) -> None:
        consumer = self.rng.choice(CONSUMERS)
        self.writes += 1
        match self.rng.randrange(5):
            case 0:
                name = self.rng.choice(list(PARENTS))
                self.totals[name] = self.writes
                self.generations[name] += 1
            case 1:
                self.allocate(consumer, {})
            case _:
                self.allocate(consumer, dict.fromkeys(
                    self.rng.sample(list(PARENTS), self.rng.randint(1, 3)), self.writes))

    def _may_write(self, path: str, _tree: str | None) -> None:
        while self.rng.random() < self.noise:
            self.write()
        if self.rng.random() < self.faults:
            raise api.ApiError('Placement', path, 'a fault', 500)


def of_one_moment(forest: provider_trees.ProviderForest) -> None:
    for root, tree in forest.map_trees().items():
        if root not in forest.unsettled:
            for consumer in CONSUMERS:
                amounts = {forest.contents[uuid].allocations[consumer]['X'] for uuid in tree
                           if consumer in forest.contents[uuid].allocations}
                assert len(amounts) <= 1, 'of two moments'


@pytest.mark.turns(4)
@pytest.mark.parametrize('seed', range(100))
def test_kept_content_equals_the_content_of_placement(seed: int,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_reads, 'CONCURRENCY', 1)  # a seed repeats
    found = Placement(random.Random(seed))
    placement = placement_api.PlacementApi(found)
    remembers = provider_trees.TreeReader(placement, remembers=True)
    for _cycle in range(8):
        found.hidden = {root for root in ('a0', 'b0', 's') if found.rng.random() < 0.3}
        for noise in (found.rng.choice([0.02, 0.05, 0.2]), 0.0):
            found.noise, found.faults = noise, found.rng.choice([0.0, 0.03]) if noise else 0.0
            try:
                with parallel_reads.ReadingContext(60) as reads:
                    forest = remembers.read(reads, placement.read_providers)
            except api.ApiError as error:
                assert error.status == 500 and found.faults
            else:
                of_one_moment(forest)
        assert not forest.unsettled
        assert forest.map_allocations() == {
            consumer: {name: {'X': on[consumer]} for name, on in found.on.items()
                       if consumer in on}
            for consumer in CONSUMERS if any(consumer in on for on in found.on.values())}
        for name, content in forest.contents.items():
            assert (content.generation, content.inventories['X'].total, content.used['X']) == (
                found.generations[name], found.totals[name], sum(found.on[name].values()))
        found.write()
