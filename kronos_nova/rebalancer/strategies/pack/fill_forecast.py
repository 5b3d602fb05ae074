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

"""The current fill of hosts, and their fill at a foreseen peak.

The foreseen peak of a host is the load that no instance explains, plus the sum of its
instances' means, plus ``peak_deviations`` times the root of the sum of their squared
deviations: peaks do not coincide, so their sum would be too much (variances of independent
loads add up; central limit theorem).

A full host cannot show more than 1, but the demand of its instances can be higher in sum;
the higher of the two is the current fill.

Everything is relative to the policy's ceiling: a *level* of 1 is a host at its ceiling in
the policy that is nearest to it. P policies, H hosts, N instances, as in the simulation.
"""

import collections
from collections.abc import Sequence
import dataclasses

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim

#: No ceiling is smaller: levels divide by it.
LEAST_CEILING = 1e-6


class FillForecast:
    """The fill forecast of a simulation; moves must go through :meth:`apply_move` here.

    ``counts``: instances by host. ``mean``: P x N, in the unit of the simulation's
    ``usage``. ``expected``: P x H, the mean load of the host, in the same unit. ``base``:
    the part of this load that no instance explains and that no move takes away.
    """

    def __init__(self, simulation: sim.Simulation) -> None:
        self.simulation = simulation
        self._phase = model.Phase.PACK if simulation.mode == 'pack' else model.Phase.SPREAD
        self.counts = np.bincount(simulation.place, minlength=len(simulation.hosts))
        self._ceilings = np.array([[max(LEAST_CEILING, simulation.ceilings[p.name])]
                                   for p in simulation.policies])
        self._deviations = np.array([[p.peak_deviations] for p in simulation.policies])
        self._targets = np.array([p.target for p in simulation.policies])
        self._limits = np.array([p.relieved_above for p in simulation.policies])
        self.hysteresis = max(p.fill_hysteresis for p in simulation.policies)
        self.mean: sim.Floats = simulation.usage.copy()
        self._variance: sim.Floats = np.zeros_like(simulation.usage)
        for p, policy in enumerate(simulation.policies):
            known = simulation.scores.policies[policy.name]
            for n, uuid in enumerate(simulation.uuids):
                self.mean[p, n] = known.means.get(uuid, self.mean[p, n])
                self._variance[p, n] = known.deviations.get(uuid, 0.0) ** 2
        #: Whether peaks can be foreseen; if not, only the current load is known.
        self.foresees = bool(self._variance.any())
        self._usage_by_host = self._by_host(simulation.usage)
        self.expected = self._by_host(self.mean)
        self._variances = self._by_host(self._variance)
        fill = np.nan_to_num(simulation.fill)
        #: The part of ``expected`` that comes only if the destination refuses it.
        self._possible: sim.Floats = np.zeros_like(self.expected)
        self._coming: dict[int, list[int]] = collections.defaultdict(list)
        for n, h, surely in self._list_arrivals():
            self._coming[h].append(n)
            if not surely:
                self._possible[:, h] += self.mean[:, n]
        for h in self._coming:
            self._sum_host_loads(h)
        self.base: sim.Floats = np.maximum(fill * simulation.capacity - self._usage_by_host, 0.0)
        self.expected += self.base

    def _sum_host_loads(self, h: int) -> None:
        """Sum up the instances on the host and on their way to it.

        The order is always the same: a move that is taken back leaves no rounding behind.
        """
        here = [*self.simulation.list_on_host(self.simulation.hosts[h]).tolist(), *self._coming[h]]
        for sums, values in ((self._usage_by_host, self.simulation.usage),
                             (self.expected, self.mean), (self._variances, self._variance)):
            sums[:, h] = values[:, here].cumsum(axis=1)[:, -1] if here else 0.0

    def _by_host(self, values: sim.Floats) -> sim.Floats:
        """Sum P x N up to P x H."""
        hosts = len(self.simulation.hosts)
        return np.array([np.bincount(self.simulation.place, row, hosts) for row in values],
                        dtype=np.float64)

    def _list_arrivals(self) -> list[tuple[int, int, bool]]:
        """Return the moves in flight into the scope: (instance, host, surely).

        ``surely``: the host is the destination and not an alternate.
        """
        s = self.simulation
        goals: dict[str, str] = {}
        others: dict[str, tuple[str, ...]] = {}
        for flight in sorted(s.cluster.flights, key=lambda f: f.source == 'nova'):
            if flight.to_host is not None:  # Nova's destination replaces ours
                goals[flight.instance_uuid] = flight.to_host
            others[flight.instance_uuid] = flight.alternates or others.get(
                flight.instance_uuid, ())
        return sorted(
            (s.index[uuid], s.host_index[host], host == goal) for uuid, goal in goals.items()
            for host in {goal, *others[uuid]}
            if uuid in s.index and host in s.host_index
            and s.host_index[host] != s.place[s.index[uuid]])

    # Levels.

    def compute_loaded_levels(self, n: int, hosts: sim.Ints) -> sim.Floats:
        """Return the level of each host with instance n added; not for the instance's own host."""
        return self._compute_levels(hosts, self.simulation.usage[:, n:n + 1], self.mean[:, n:n + 1],
                                    self._variance[:, n:n + 1])

    def compute_unloaded_level(self, n: int) -> float:
        """Return the level of the instance's host without the instance."""
        host = self.simulation.place[n:n + 1]
        return float(self._compute_levels(host, -self.simulation.usage[:, n:n + 1],
                                          -self.mean[:, n:n + 1], -self._variance[:, n:n + 1])[0])

    def _compute_levels(self, hosts: sim.Ints, usage: sim.Floats, mean: sim.Floats,
                        variance: sim.Floats) -> sim.Floats:
        capacity = self.simulation.capacity[:, hosts]
        spread = np.sqrt(np.maximum(self._variances[:, hosts] + variance, 0.0))
        peak = (self.expected[:, hosts] + mean + self._deviations * spread) / capacity
        now = self._compute_current_fill(hosts) + usage / capacity
        level: sim.Floats = (np.maximum(peak, now) / self._ceilings).max(axis=0)
        return level

    def _compute_current_fill(self, hosts: sim.Ints) -> sim.Floats:
        return np.maximum(np.nan_to_num(self.simulation.fill[:, hosts]),
                          self._usage_by_host[:, hosts] / self.simulation.capacity[:, hosts])

    def compute_size(self, n: int) -> float:
        """Return the instance's own peak as a part of its host's ceilings."""
        capacity = self.simulation.capacity[:, self.simulation.place[n]]
        peak = self.mean[:, n] + self._deviations[:, 0] * np.sqrt(self._variance[:, n])
        return float((np.maximum(peak, self.simulation.usage[:, n]) / capacity
                      / self._ceilings[:, 0]).max())

    def compute_excess(self, h: int) -> sim.Floats:
        """Return by policy how far the host is surely above its limit; <= 0: not above.

        The load that is already leaving the host does not count.
        """
        view, host = self.simulation.view, self.simulation.hosts[h]
        less = [view.load.sum_leaving_load(p.name, host)
                + view.load.compute_fill_doubt(p.name, host)
                for p in self.simulation.policies]
        now = self._compute_current_fill(np.array([h], dtype=np.intp))[:, 0]
        return np.asarray(now - less - self._limits)

    def compute_shares(self, n: int) -> sim.Floats:
        """Return by policy the instance's part of its host's current load."""
        return np.asarray(self.simulation.usage[:, n]
                          / self.simulation.capacity[:, self.simulation.place[n]])

    def in_use(self) -> sim.Bools:
        """Return which hosts may take instances and hold one already."""
        return np.asarray(self.simulation.takers & (self.counts > 0))

    def instances_per_host(self, among: sim.Bools) -> float:
        """Return the number of instances that a host of the largest size holds at its target."""
        need = self.expected[:, among].sum(axis=1)
        largest = self.simulation.capacity[:, among].max(axis=1, initial=LEAST_CEILING)
        hosts = (need / (largest * np.maximum(self._targets, LEAST_CEILING))).max()
        return max(1.0, float(self.counts[among].sum()) / max(1.0, float(hosts)))

    def can_take_all(self, emptied: sim.Bools, among: sim.Bools, part: float) -> bool:
        """Return whether ``among`` can take all from ``emptied`` within their fill targets.

        :param part: the part of the mean fill targets that counts.
        """
        stay = among & ~emptied
        need = (self.base[:, stay].sum(axis=1)
                + (self.expected - self.base - self._possible)[:, among].sum(axis=1))
        room = self.simulation.capacity[:, stay].sum(axis=1) * self._targets * part
        return bool((need <= room + metrics.ROUNDING).all())

    # Moves.

    def first_legal(self, n: int, hosts: Sequence[int]) -> model.Move | None:
        """Return the move to the first of the hosts that breaks no rule."""
        return sim.first_legal(self.simulation, [(n, h) for h in hosts], self._phase,
                               lambda n, h: 0.0)

    def list_permitted(self, n: int, hosts: sim.Ints) -> sim.Ints:
        """Return the hosts that no mask forbids to the instance."""
        rows = np.array([n], dtype=np.intp)
        permitted: sim.Ints = hosts[masks.mark_permitted(self.simulation, rows, hosts)[0]]
        return permitted

    def apply_move(self, move: model.Move) -> model.Move:
        """Apply the move; return it with the fall in combined imbalance."""
        before = self.simulation.compute_combined()
        self.simulation.apply_move(move)
        self._update_hosts(move.from_host, move.to_host)
        return dataclasses.replace(move, improvement=before - self.simulation.compute_combined())

    def undo_move(self, move: model.Move) -> None:
        """Take back the last :meth:`apply_move` of this move."""
        self.simulation.undo_move(move)
        self._update_hosts(move.to_host, move.from_host)

    def _update_hosts(self, source: str, destination: str) -> None:
        for host, sign in ((source, -1), (destination, 1)):
            h = self.simulation.host_index[host]
            self.counts[h] += sign
            self._sum_host_loads(h)
            self.expected[:, h] += self.base[:, h]
