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


"""Hosts that cells, zones and CPU features let an instance reach, as arrays."""

from collections.abc import Collection
from collections.abc import Hashable
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import traits as trait_rule
from kronos_nova.rebalancer.simulation import arrays

T = TypeVar('T', bound=Hashable)

#: Code of a property that a host or an instance does not have.
NONE = -1


class MoveCompatibility:
    """Properties of H hosts and N instances as small whole numbers, to be compared at once.

    :param order: which of ``instances`` is number 0, 1, ...
    :param apart: pairs of hosts, as ``MoveHistory.other_cells``.
    """

    def __init__(self, cluster: model.Cluster, options: model.PlanningOptions, hosts: Sequence[str],
                 instances: Sequence[model.Instance], order: arrays.Ints,
                 apart: Collection[tuple[str, str]] = ()) -> None:
        known = [cluster.hosts.get(h) for h in hosts]
        services = [cluster.services.get(h) for h in hosts]
        self._cell = _number_values([h.cell if h is not None else None for h in known])[0]
        self._apart = _build_apart_matrix(apart, hosts)
        self._zone, zones = _number_values([s.zone if s is not None else None for s in services])
        pinned = {n: i.pinned_zone for n, i in enumerate(instances) if i.pinned_zone is not None}
        self._pinned: arrays.Ints = np.full(len(instances), NONE, dtype=np.intp)
        for n, zone in pinned.items():
            self._pinned[n] = zones.get(zone, len(zones))
        self._pinned = self._pinned[order]
        self._restricted = options.restrict_to_az
        self._traits: arrays.Ints | None = None
        if options.require_cpu_compatibility:
            kinds = [frozenset(t for t in h.traits if t.startswith(trait_rule.PREFIX))
                     if h is not None else frozenset() for h in known]
            self._traits, trait_sets = _number_values(kinds)
            self._compatible: arrays.Bools = np.array(
                [[source <= destination for destination in trait_sets] for source in trait_sets],
                dtype=np.bool_).reshape(len(trait_sets), len(trait_sets))
        #: Every instance reaches every host.
        self.everywhere = (not pinned and self._traits is None
                           and self._apart is None
                           and len(set(self._cell.tolist()) - {NONE}) <= 1
                           and not (self._restricted and len(zones) > 1))

    def mark_permitted(self, instances: arrays.Ints, places: arrays.Ints,
                       hosts: arrays.Ints) -> arrays.Bools:
        """Mark the pairs that the rules ``cell``, ``zone`` and ``cpu_traits`` permit.

        :param places: where the instances are.
        :returns: shape (instances, hosts).
        """
        allowed = np.ones((len(instances), len(hosts)), dtype=np.bool_)
        if self.everywhere:
            return allowed
        source, destination = self._cell[places][:, None], self._cell[hosts][None, :]
        allowed &= (source == destination) | (source == NONE) | (destination == NONE)
        if self._apart is not None:
            allowed &= ~self._apart[places[:, None], hosts[None, :]]
        source, destination = self._zone[places][:, None], self._zone[hosts][None, :]
        pinned = self._pinned[instances][:, None]
        same = (pinned == NONE) | (pinned == destination)
        if self._restricted:
            same &= source == destination
        allowed &= same | (source == NONE) | (destination == NONE)
        if self._traits is not None:
            allowed &= self._compatible[self._traits[places][:, None], self._traits[hosts][None, :]]
        return allowed


def _build_apart_matrix(apart: Collection[tuple[str, str]],
                        hosts: Sequence[str]) -> arrays.Bools | None:
    """Mark the pairs of hosts that Nova has shown to be of different cells: shape (H, H).

    :returns: None without any pair.
    """
    if not apart:
        return None
    index = {host: n for n, host in enumerate(hosts)}
    matrix = np.zeros((len(hosts), len(hosts)), dtype=np.bool_)
    for first, other in apart:
        if first in index and other in index:
            pair = [index[first], index[other]]
            matrix[pair, pair[::-1]] = True
    return matrix


def _number_values(values: Sequence[T | None]) -> tuple[arrays.Ints, dict[T, int]]:
    """Give each different value a number, NONE for None."""
    numbers: dict[T, int] = {}
    codes = [NONE if v is None else numbers.setdefault(v, len(numbers)) for v in values]
    return np.array(codes, dtype=np.intp), numbers
