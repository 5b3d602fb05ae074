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
"""Changes of the spread over failure domains by moves, for many destinations at once."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import numpy as np

from kronos_nova.constraints import cluster_view
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer.simulation import arrays


@dataclasses.dataclass(frozen=True, slots=True)
class _HostDomains:
    """Different domains of the hosts: ``names[codes[h]]`` are those of host number h."""

    names: tuple[frozenset[str], ...]
    codes: arrays.Ints
    unclear: arrays.Bools


class DomainMembership:
    """Spread sets on the H hosts of a simulation.

    ``spread``: instances in a set, shape (N,).

    :param index: number of each instance.
    """

    def __init__(self, view: cluster_view.ClusterView, hosts: Sequence[str],
                 index: Mapping[str, int]) -> None:
        self._view = view
        self._hosts = hosts
        self._known: dict[str, _HostDomains] = {}
        self.spread: arrays.Bools = np.zeros(len(index), dtype=np.bool_)
        self.spread[[index[u] for spread_set in view.placement.spread_sets
                     for u in spread_set.members if u in index]] = True

    def compute_changes(self, uuid: str) -> tuple[arrays.Ints, arrays.Bools]:
        """Return the change of an instance's sets for each host, and where a set becomes worse.

        The change is the sum of ``domain_spread.count_change`` over the sets, shape (H,).
        """
        total = np.zeros(len(self._hosts), dtype=np.intp)
        worse = np.zeros(len(self._hosts), dtype=np.bool_)
        for spread_set in self._view.list_spread_sets_of(uuid):
            change = self.compute_set_change(spread_set, uuid)
            total += change
            worse |= change > 0
            worse |= self.mark_unclear(spread_set, uuid)
        return total, worse

    def compute_set_change(self, spread_set: spread_requests.SpreadSet, uuid: str) -> arrays.Ints:
        """Return ``domain_spread.count_change`` of one set for each host, shape (H,)."""
        known = self._find_domains(spread_set.kind)
        source = self._view.domains.list_domains(spread_set.kind, self._find_source(uuid))
        here = self._view.count_certain_members(spread_set, source, uuid)
        by_code = arrays.make_int_array(
            0 if names == source
            else self._view.count_possible_members(spread_set, names, uuid) - here
            for names in known.names)
        return by_code[known.codes]

    def mark_unclear(self, spread_set: spread_requests.SpreadSet, uuid: str) -> arrays.Bools:
        """Mark the hosts where the domain of either end is unclear, shape (H,)."""
        if self._view.domains.is_unclear(spread_set.kind, self._find_source(uuid)):
            return np.ones(len(self._hosts), dtype=np.bool_)
        return self._find_domains(spread_set.kind).unclear

    def _find_source(self, uuid: str) -> str:
        source = self._view.find_host_of(uuid)
        assert source is not None
        return source

    def _find_domains(self, kind: str) -> _HostDomains:
        if kind not in self._known:
            names = [self._view.domains.list_domains(kind, h) for h in self._hosts]
            numbers = {found: number for number, found in enumerate(dict.fromkeys(names))}
            self._known[kind] = _HostDomains(
                tuple(numbers), arrays.make_int_array(numbers[found] for found in names),
                np.array([self._view.domains.is_unclear(kind, h) for h in self._hosts],
                         dtype=np.bool_))
        return self._known[kind]
