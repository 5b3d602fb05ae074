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

"""The contract of a strategy, and the choice that strategies share.

To add one: a class with ``propose`` in one file, a line in setup.cfg under
``kronos_nova.strategies``, a test and a release note.
"""

import abc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim

#: Differences below this are rounding, not improvement.
EPSILON = 1e-9
#: Number of candidates, judged by arrays, that count as one step of work.
PER_STEP = 64
#: Number of candidates to rank one by one before the rest is sorted.
EASY = 4
#: Largest number of candidates of each kind that the rules check to name the refusals.
SAMPLE = 16


class Strategy(abc.ABC):
    """A proposer of moves, which it applies to the simulation, in order."""

    #: Runs only with trusted metrics, and not before scores have settled.
    imbalance: ClassVar[bool] = False
    #: While the scope cools down it may finish drains that have begun.
    continues: ClassVar[bool] = False

    @abc.abstractmethod
    def enabled(self, options: model.PlanningOptions, policy_set: policies.PolicySet) -> bool:
        """Return whether the configuration asks for this strategy."""

    @abc.abstractmethod
    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        """Apply at most ``budget`` legal moves to the simulation; return them.

        Add failures to ``simulation.warnings``, and the reasons for an empty plan to
        ``simulation.notes``.
        """


def best_place(simulation: sim.Simulation, instances: sim.Ints, phase: model.Phase,
               hosts: sim.Ints | None = None, *, mends: bool = False,
               permitted: Callable[[int, sim.Ints], sim.Bools] | None = None,
               ) -> model.Move | None:
    """Return the legal move of one of the instances that leaves the cloud best.

    Moves are ordered by combined imbalance with the cost of soft groups and spread sets, then the
    convex measure, then memory, then UUID and host. Without trusted scores, the fullest resource
    class of the destination decides first.

    :param hosts: destinations, ascending; None: any.
    :param mends: only moves that mend a violated group.
    :param permitted: marks the hosts to which an instance may go, besides the rules.
    """
    if hosts is None:
        hosts = np.arange(len(simulation.hosts), dtype=np.intp)
    if not instances.size or not hosts.size:
        return None
    simulation.steps += len(instances) * len(hosts) // PER_STEP
    allowed = masks.mark_permitted(simulation, instances, hosts,
                                   masks.choose_filling_masks(phase))
    if simulation.trusted:
        allowed &= ~simulation.frozen[hosts][None, :]
    some, any_of = allowed.any(axis=1), allowed.any(axis=0)
    if not some.any():
        count_refused(simulation, instances, hosts, phase)
        return None
    rows, columns = instances[some], hosts[any_of]
    allowed = allowed[some][:, any_of]
    if simulation.trusted:
        effect = simulation.compute_effects(rows, columns)
        gain = simulation.compute_combined() - effect.combined
        first, second = effect.combined, effect.convex
    else:
        first = np.stack([simulation.room.compute_fullest(int(n), columns) for n in rows])
        gain = second = np.zeros(first.shape)
    if mends:
        allowed[~simulation.grouped[rows]] = False
    for row in np.flatnonzero(simulation.grouped[rows]):
        first[row] += (simulation.count_broken_preferences(int(rows[row]), columns)
                       * simulation.options.soft_affinity_weight)
        if mends:
            allowed[row] &= simulation.mark_repairing(
                *simulation.group_changes(int(rows[row]), columns))
    if permitted is not None:
        for number, n in enumerate(rows.tolist()):
            allowed[number] &= permitted(n, columns)
    r, c = np.nonzero(allowed)
    keys = (np.round(first[r, c], 12), np.round(second[r, c], 12), simulation.cost[rows[r]],
            rows[r], columns[c])
    for i in sort_positions(keys):
        if simulation.is_cut_off():
            return None
        move = simulation.build_move(int(rows[r[i]]), int(columns[c[i]]), phase,
                                     float(gain[r[i], c[i]]))
        if simulation.judge_move(move) is None:
            return move
    if not r.size:
        count_refused(simulation, instances, hosts, phase)
    return None


def sort_positions(keys: Sequence[npt.NDArray[Any]]) -> Iterator[int]:
    """Yield positions by ascending keys, the first key first.

    It finds the first few without sorting all: most callers need no more.
    """
    positions = np.arange(len(keys[0]))
    for _ in range(EASY):
        if not positions.size:
            return
        best = positions
        for key in keys:
            best = best[key[best] == key[best].min()]
            if best.size == 1:
                break
        yield int(best[0])
        positions = positions[positions != best[0]]
    for i in np.lexsort([key[positions] for key in reversed(keys)]):
        yield int(positions[i])


def count_refused(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints,
                  phase: model.Phase) -> None:
    """Name the rules that refuse the pairs of instances and hosts."""
    rows, columns = choose_representatives(simulation, instances, hosts, phase)
    count_masked(simulation, rows, columns, phase)


def count_masked(simulation: sim.Simulation, rows: sim.Ints, columns: sim.Ints,
                 phase: model.Phase) -> None:
    """Name the rules behind the masks' refusals of (instance, host) pairs."""
    for n, h in zip(rows, columns, strict=True):
        if simulation.is_cut_off():
            return
        if simulation.place[n] != h:
            simulation.judge_move(simulation.build_move(int(n), int(h), phase))


def choose_representatives(simulation: sim.Simulation, instances: sim.Ints,
                           hosts: sim.Ints, phase: model.Phase) -> tuple[sim.Ints, sim.Ints]:
    """Return pairs of instance and another host that stand for all such pairs.

    They are the first few that each different set of masks refuses. To check every rule on
    every pair would take the longest where no move is possible.
    """
    refused = np.zeros((len(instances), len(hosts)), dtype=np.intp)
    for bit, mask in enumerate(masks.choose_filling_masks(phase)):
        refused |= ~mask(simulation, instances, hosts) * np.intp(1 << bit)
    r, c = np.nonzero(simulation.place[instances][:, None] != hosts[None, :])
    kinds = refused[r, c]
    chosen = np.sort(np.concatenate(
        [np.flatnonzero(kinds == kind)[:SAMPLE] for kind in np.unique(kinds)]
        or [np.zeros(0, dtype=np.intp)]))
    return instances[r[chosen]], hosts[c[chosen]]
