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

"""A model of Placement that raises generations where the real one does; that it
does is tested in tests/functional/test_provider_trees.py."""

from collections.abc import Callable
import types
from typing import Any

from tests.unit.rebalancer.clients import answers


class Placement:
    """Stands for a connection and for its proxy. ``on``: what consumers have by
    provider, of the one class X. ``parents``: of each provider. ``before``, if
    given, is called with the path, and the tree asked for, before an answer is
    made, and again within it: Placement reads a provider's generation first."""

    def __init__(self, parents: dict[str, str | None], shares: frozenset[str] = frozenset(),
                 ) -> None:
        self.parents = dict(parents)
        self.shares = shares
        self.generations = dict.fromkeys(parents, 0)
        self.totals = dict.fromkeys(parents, 10)
        self.hidden: set[str] = set()
        self.refused: int | None = None
        self.traits: dict[str, list[str]] = {}
        #: Answers of a database that lags: an earlier one to the search.
        self.lags: answers.Response | None = None
        self.on: dict[str, dict[str, int]] = {name: {} for name in parents}
        self.before: Callable[[str, str | None], None] = lambda _path, _tree: None
        self.asked: list[str] = []
        self.placement = self
        self.session = types.SimpleNamespace(get_auth_headers=dict)

    def allocate(self, consumer: str, on: dict[str, int]) -> None:
        for consumers in self.on.values():
            consumers.pop(consumer, None)
        for name, amount in on.items():
            self.on[name][consumer] = amount
            self.generations[name] += 1

    def delete(self, name: str) -> None:
        for by_name in (self.parents, self.generations, self.totals, self.on):
            by_name.pop(name)

    def root(self, name: str) -> str:
        parent = self.parents[name]
        return name if parent is None else self.root(parent)

    def get(self, path: str, params: dict[str, Any], **_rest: Any) -> answers.Response:
        tree = params.get('in_tree')
        self.asked.append(path if tree is None else f'{path}?{tree}')
        self.before(path, tree)
        if path == '/resource_providers':
            return answers.Response({'resource_providers': [
                {'uuid': name, 'name': name, 'root_provider_uuid': self.root(name),
                 'parent_provider_uuid': parent, 'generation': self.generations[name]}
                for name, parent in self.parents.items()
                if ('required' not in params or name in self.shares)
                and tree in (None, self.root(name))]})
        if path == '/allocation_candidates':
            if self.refused is not None:
                return answers.Response({}, self.refused)
            if self.lags is not None:
                return self.lags
            return answers.Response({'allocation_requests': [], 'provider_summaries': {
                name: {'resources': {} if name not in self.totals else {'X': {
                           'capacity': self.totals[name], 'used': sum(self.on[name].values())}},
                       'traits': self.traits.get(name, []), 'root_provider_uuid': self.root(name),
                       'parent_provider_uuid': parent}
                for name, parent in self.parents.items() if self.root(name) not in self.hidden}})
        _, _, name, part = path.split('/')
        if name not in self.parents:
            return answers.Response({}, 404)
        generation = {'resource_provider_generation': self.generations[name]}
        self.before(path, tree)
        if name not in self.parents:
            return answers.Response({}, 404)
        return answers.Response({**generation, part: self._part(name, part)})

    def _part(self, name: str, part: str) -> Any:
        match part:
            case 'inventories':
                return {} if name not in self.totals else {'X': {
                    'total': self.totals[name], 'reserved': 0, 'allocation_ratio': 1.0,
                    'min_unit': 1, 'max_unit': 9, 'step_size': 1}}
            case 'usages':
                return {'X': sum(self.on[name].values())}
            case 'allocations':
                return {consumer: {'resources': {'X': amount}}
                        for consumer, amount in self.on[name].items()}
        return self.traits.get(name, [])
