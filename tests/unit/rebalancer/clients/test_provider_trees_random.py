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


"""Whatever is written while trees are read: what is remembered is never wrong.

The model of Placement below raises generations where the real one does; that it
does is tested in tests/functional/test_provider_trees.py.
"""

import random
from typing import Any

import pytest

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_trees
from kronos_nova.rebalancer.clients import reading
from tests.unit.rebalancer.clients import answers

PARENTS = {'a0': None, 'a1': 'a0', 'a2': 'a1', 'b0': None, 'b1': 'b0', 's': None}
CONSUMERS = ('v', 'w', 'x', 'y')


class Placement:
    """Stands for a connection's proxy; others write between and within requests."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.noise = 0.0
        self.generations = dict.fromkeys(PARENTS, 0)
        self.totals = dict.fromkeys(PARENTS, 10)
        self.on: dict[str, dict[str, int]] = {name: {} for name in PARENTS}
        self.placement = self

    def write(self) -> None:
        consumer = self.rng.choice(CONSUMERS)
        match self.rng.randrange(5):
            case 0:
                name = self.rng.choice(list(PARENTS))
                self.totals[name] = self.rng.randrange(10)
                self.generations[name] += 1
            case 1:
                self._remove(consumer)
            case _:
                self._remove(consumer)
                for name in self.rng.sample(list(PARENTS), self.rng.randint(1, 3)):
                    self.on[name][consumer] = self.rng.randint(1, 2)
                    self.generations[name] += 1

    def _remove(self, consumer: str) -> None:
        for found in self.on.values():
            found.pop(consumer, None)

    def _may_write(self) -> None:
        while self.rng.random() < self.noise:
            self.write()

    def get(self, path: str, **_rest: Any) -> answers.Response:
        self._may_write()
        if path == '/resource_providers':
            return answers.Response({'resource_providers': [
                {'uuid': name, 'name': name, 'root_provider_uuid': f'{name[0]}0'[:len(name)],
                 'parent_provider_uuid': parent, 'generation': self.generations[name]}
                for name, parent in PARENTS.items()]})
        _, _, name, part = path.split('/')
        generation = {'resource_provider_generation': self.generations[name]}
        self._may_write()  # Placement reads its generation first
        return answers.Response({**generation, part: self._part(name, part)})

    def _part(self, name: str, part: str) -> Any:
        match part:
            case 'inventories':
                return {'X': {'total': self.totals[name], 'reserved': 0, 'allocation_ratio': 1.0,
                              'min_unit': 1, 'max_unit': 9, 'step_size': 1}}
            case 'usages':
                return {'X': sum(self.on[name].values())}
            case 'allocations':
                return {consumer: {'resources': {'X': amount}}
                        for consumer, amount in self.on[name].items()}
        return []


@pytest.mark.parametrize('seed', range(100))
def test_what_is_remembered_is_what_is_there(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, 'CONCURRENCY', 1)  # a seed repeats
    found = Placement(random.Random(seed))
    placement = placement_api.PlacementApi(found)
    remembers = provider_trees.TreeReader(placement, remembers=True)
    for _cycle in range(8):
        for noise in (found.rng.choice([0.02, 0.05, 0.2]), 0.0):
            found.noise = noise
            try:
                with reading.Reading(60) as reads:
                    forest = remembers.read(reads, placement.providers)
            except api.ApiError as error:
                assert error.status == 409 and noise
        assert forest.allocations() == {
            consumer: {name: {'X': on[consumer]} for name, on in found.on.items()
                       if consumer in on}
            for consumer in CONSUMERS if any(consumer in on for on in found.on.values())}
        for name, content in forest.contents.items():
            assert (content.generation, content.inventories['X'].total, content.used['X']) == (
                found.generations[name], found.totals[name], sum(found.on[name].values()))
        found.write()
