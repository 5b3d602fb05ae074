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

"""The contract of a strategy, and the choice they share.

To add one: a class with ``propose`` in one file, a line in setup.cfg under
``kronos_nova.strategies``, a test and a release note.
"""

import abc
from collections.abc import Callable
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim

#: Differences below this are rounding, not improvement.
EPSILON = 1e-9


class Strategy(abc.ABC):
    """Proposes moves by applying them to the simulation, in order."""

    #: Runs only with trusted metrics, and not before scores have settled.
    imbalance: ClassVar[bool] = False
    #: While the scope cools down it may finish drains that have begun.
    continues: ClassVar[bool] = False

    @abc.abstractmethod
    def enabled(self, options: model.Options, policy_set: policies.PolicySet) -> bool:
        """Whether the configuration asks for this strategy."""

    @abc.abstractmethod
    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        """At most ``budget`` legal moves, applied to the simulation.

        What cannot be done goes to ``simulation.warnings``; why there is
        nothing to do goes to ``simulation.notes``.
        """


def best_place(simulation: sim.Simulation, uuids: Iterable[str], phase: model.Phase,
               hosts: Iterable[str] | None = None,
               wanted: Callable[[model.Move], bool] = lambda move: True) -> model.Move | None:
    """The legal move of one of the instances that leaves the cloud best.

    Ordered by combined imbalance with the soft groups' cost, then the convex
    measure, then memory, then UUID and host. Without trusted scores, by the
    fullest resource class of the destination.

    :param wanted: what the strategy demands beyond the rules.
    """
    rows = np.array([simulation.index[u] for u in uuids], dtype=np.intp)
    names = simulation.hosts if hosts is None else tuple(sorted(hosts))
    columns = np.array([simulation.host_index[h] for h in names], dtype=np.intp)
    if not rows.size or not columns.size:
        return None
    before = simulation.combined()
    effect = simulation.effects(rows, columns)
    allowed = masks.permitted(simulation, rows, columns)
    if simulation.trusted:
        allowed &= ~simulation.frozen[columns][None, :]
    keys = []
    for r, c in zip(*np.nonzero(allowed), strict=True):
        n, h = int(rows[r]), int(columns[c])
        move = simulation.move(n, h, phase)
        if not wanted(move):
            continue
        soft = simulation.soft_cost(move)
        first = float(effect.combined[r, c]) if simulation.trusted else _fullest(simulation, n, h)
        second = float(effect.convex[r, c]) if simulation.trusted else 0.0
        keys.append((round(first + soft, 12), round(second, 12), float(simulation.cost[n]), n, h,
                     before - float(effect.combined[r, c]) if simulation.trusted else 0.0))
    gains = {(n, h): gain for *_, n, h, gain in keys}
    best = sim.first_legal(simulation, [(n, h) for *_, n, h, _ in sorted(keys)], phase,
                           lambda n, h: gains[n, h])
    if best is None and not keys:
        count_masked(simulation, rows.repeat(columns.size), np.tile(columns, rows.size), phase)
    return best


def count_masked(simulation: sim.Simulation, rows: sim.Ints, columns: sim.Ints,
                 phase: model.Phase) -> None:
    """Name the rules behind the masks' noes to (instance, host) pairs."""
    for n, h in zip(rows, columns, strict=True):
        if simulation.stop():
            return
        if simulation.place[n] != h:
            simulation.check(simulation.move(int(n), int(h), phase))


def _fullest(simulation: sim.Simulation, n: int, h: int) -> float:
    """Highest allocation ratio of the host with the instance on it."""
    host = simulation.hosts[h]
    provider = simulation.cluster.hosts[host].provider
    if provider is None:
        return 0.0
    claims = simulation.cluster.instances[simulation.uuids[n]].claims
    return max(((simulation.view.used(host, c) + amount) / provider.inventories[c].capacity
                for c, amount in claims.items()
                if c in provider.inventories and provider.inventories[c].capacity > 0),
               default=0.0)
