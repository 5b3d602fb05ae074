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


"""What Placement has left: allocation by resource class and host as arrays."""

from collections.abc import Sequence

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import claims as rule
from kronos_nova.constraints import view as views
from kronos_nova.rebalancer.simulation import arrays


class Room:
    """R resource classes x H hosts, R x N instances.

    ``claims``: R x N, what each instance has allocated. ``used``: R x H, kept
    up to date by :meth:`shift`; whole numbers, so sums are exact. ``limit``:
    Placement's capacity, -inf where a host has no such inventory.

    :param view: says what is used now, moves in flight included.
    :param order: which of ``instances`` is number 0, 1, ...
    """

    def __init__(self, view: views.ClusterView, hosts: Sequence[str],
                 instances: Sequence[model.Instance], order: arrays.Ints) -> None:
        # Instances are many, what they claim are a few flavors.
        kinds: dict[tuple[tuple[str, int], ...], int] = {}
        kind = arrays.whole(kinds.setdefault(tuple(i.claims.items()), len(kinds))
                            for i in instances)
        self.classes = tuple(sorted({name for claim in kinds for name, _ in claim}))
        row = {name: r for r, name in enumerate(self.classes)}
        table = np.zeros((len(self.classes), len(kinds)))
        for number, claim in enumerate(kinds):
            for name, amount in claim:
                table[row[name], number] = amount
        self.claims: arrays.Floats = table[:, kind[order]]
        shape = len(self.classes), len(hosts)
        self.used: arrays.Floats = np.zeros(shape)
        self.limit: arrays.Floats = np.full(shape, -np.inf)
        self._least: arrays.Floats = np.zeros(shape)
        self._most: arrays.Floats = np.full(shape, np.inf)
        self._step: arrays.Floats = np.ones(shape)
        #: Hosts that Placement knows.
        self.provided: arrays.Bools = np.zeros(len(hosts), dtype=np.bool_)
        for h, name in enumerate(hosts):
            self._read(view, h, name)
        options = view.options
        self._counts = options.enforce_placement_claims and view.claims_known()
        self._counted = [r for r, name in enumerate(self.classes)
                         if name != rule.DISK or options.enforce_placement_disk]
        #: Classes of which not every instance can be allocated everywhere in one piece.
        self._odd = [r for r in self._counted if self.claims.shape[1] and (
            (self._step[r] != 1).any() or self._most[r].min() < self.claims[r].max()
            or self._least[r].max() > 1)]

    def _read(self, view: views.ClusterView, h: int, host: str) -> None:
        known = view.cluster.hosts.get(host)
        provider = known.provider if known is not None else None
        if provider is None:
            return
        self.provided[h] = True
        for r, name in enumerate(self.classes):
            self.used[r, h] = view.used(host, name)
            inventory = provider.inventories.get(name)
            if inventory is not None:
                self.limit[r, h] = inventory.capacity
                self._least[r, h] = inventory.min_unit
                self._most[r, h] = inventory.max_unit
                self._step[r, h] = inventory.step_size

    def shift(self, n: int, source: int, destination: int) -> None:
        """The instance's allocation goes from one host to the other."""
        self.used[:, source] -= self.claims[:, n]
        self.used[:, destination] += self.claims[:, n]

    def fits(self, instances: arrays.Ints, hosts: arrays.Ints) -> arrays.Bools:
        """What the rule ``claims`` permits, by its own expressions: shape
        (instances, hosts)."""
        if not self._counts:
            return np.ones((len(instances), len(hosts)), dtype=np.bool_)
        allowed = np.repeat(self.provided[hosts][None, :], len(instances), axis=0)
        for r in self._counted:
            need = self.claims[r, instances][:, None]
            good = self.used[r, hosts][None, :] + need <= self.limit[r, hosts][None, :]
            if r in self._odd:
                good &= ((need >= self._least[r, hosts][None, :])
                         & (need <= self._most[r, hosts][None, :])
                         & (need % self._step[r, hosts][None, :] == 0))
            if not need.all():
                good |= need == 0
            allowed &= good
        return allowed

    def fullest(self, n: int, hosts: arrays.Ints) -> arrays.Floats:
        """Highest allocation ratio of each host with instance n on it."""
        best = np.zeros(len(hosts))
        for r in np.flatnonzero(self.claims[:, n]):
            limit = self.limit[r, hosts]
            known = limit > 0
            ratio = (self.used[r, hosts] + self.claims[r, n]) / np.where(known, limit, 1.0)
            best = np.maximum(best, np.where(known, ratio, 0.0))
        return best
