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
from kronos_nova.constraints import spread_tally
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
        #: By key of a set: the version of its numbers, and the members by host.
        self._counted: dict[str, tuple[int, arrays.Ints]] = {}
        self.spread: arrays.Bools = np.zeros(len(index), dtype=np.bool_)
        self.spread[[index[u] for spread_set in view.placement.spread_sets
                     for u in spread_set.members if u in index]] = True

    def compute_changes(self, uuid: str) -> tuple[arrays.Ints, arrays.Bools]:
        """Return how many sets the instance makes worse on each host, and where it makes any worse.

        A set that becomes better counts -1, so that sets with many members weigh no more than
        others: shape (H,). A host with an unclear domain counts as worse. From such a host all
        others are worse alike, and 0.
        """
        total = np.zeros(len(self._hosts), dtype=np.intp)
        worse = np.zeros(len(self._hosts), dtype=np.bool_)
        for spread_set in self._view.list_spread_sets_of(uuid):
            if self.is_unclear_source(spread_set, uuid):
                worse[:] = True
                continue
            change = self.compute_set_change(spread_set, uuid)
            unclear = self.mark_unclear(spread_set)
            total += np.where(unclear, 1, np.sign(change))
            worse |= (change > 0) | unclear
        return total, worse

    def compute_set_change(self, spread_set: spread_requests.SpreadSet, uuid: str) -> arrays.Ints:
        """Return ``domain_spread.count_change`` of one set for each host, shape (H,).

        Numbers of hosts with an unclear domain mean nothing.
        """
        known = self._find_domains(spread_set.kind)
        tally = self._view.placement.tally_set(spread_set)
        source = self._view.domains.list_domains(spread_set.kind, self._find_source(uuid))
        here = tally.count_certain(source, uuid)
        if tally.is_certain(uuid):
            by_host = self._count_by_host(spread_set, tally)
        else:  # the instance itself is counted in several domains
            by_host = arrays.make_int_array(
                tally.count_possible(names, uuid) for names in known.names)[known.codes]
        change = by_host - here
        if source in known.names:
            change[known.codes == known.names.index(source)] = 0
        return change

    def is_unclear_source(self, spread_set: spread_requests.SpreadSet, uuid: str) -> bool:
        """Return whether the domain of the instance's own host is unclear."""
        return self._view.domains.is_unclear(spread_set.kind, self._find_source(uuid))

    def mark_unclear(self, spread_set: spread_requests.SpreadSet) -> arrays.Bools:
        """Mark the hosts whose domain is unclear, shape (H,); the array is not written to."""
        return self._find_domains(spread_set.kind).unclear

    def _count_by_host(self, spread_set: spread_requests.SpreadSet,
                       tally: spread_tally.SpreadTally) -> arrays.Ints:
        """Return the possible members in the domain of each host; the array is not written to."""
        counted = self._counted.get(spread_set.key)
        if counted is None or counted[0] != tally.version:
            known = self._find_domains(spread_set.kind)
            counted = tally.version, arrays.make_int_array(
                tally.count_possible(names, '') for names in known.names)[known.codes]
            self._counted[spread_set.key] = counted
        return counted[1]

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
