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


"""Effects of candidate moves on the measures."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.simulation import arrays

if TYPE_CHECKING:
    from kronos_nova.rebalancer import simulation as simulations


@dataclasses.dataclass(frozen=True, slots=True)
class MoveEffects:
    """Effects of candidate moves: arrays of one shape.

    ``combined``: combined imbalance afterwards. ``excess``: its part above the policies'
    thresholds. ``refused``: a policy's imbalance would rise and end above its threshold.
    ``convex``: change of the strictly convex measure, sum of weight x score squared.
    """

    combined: arrays.Floats
    excess: arrays.Floats
    refused: arrays.Bools
    convex: arrays.Floats


def compute_effects(simulation: 'simulations.Simulation', instances: arrays.Ints,
                    hosts: arrays.Ints) -> MoveEffects:
    """Compute the effect of moving each instance to each host: shape (n, h).

    Exact: see the facts in :mod:`extremes`. The effect of a move to the instance's own host has no
    meaning.
    """
    source = simulation.place[instances]
    shape = (len(instances), len(hosts))
    combined, excess = np.zeros(shape), np.zeros(shape)
    refused = np.zeros(shape, dtype=np.bool_)
    convex = np.zeros(shape)
    gives, takes = simulation.givers[source], simulation.takers[source]
    giver = None if simulation.givers[hosts].all() else simulation.givers[hosts][None, :]
    taker = None if simulation.takers[hosts].all() else simulation.takers[hosts][None, :]
    now = simulation.compute_imbalances()
    for p, weight in enumerate(simulation.weights):
        score, capacity = simulation.score[p], simulation.capacity[p]
        usage = simulation.usage[p, instances]
        here, there = score[source], score[hosts][None, :]
        at_source = here - usage / capacity[source]
        at_destination = there + usage[:, None] / capacity[hosts][None, :]
        high = np.maximum(simulation.extremes.high_but_each(p, source),
                          np.where(gives, at_source, -np.inf))[:, None]
        after = np.maximum(high, at_destination if giver is None
                           else np.where(giver, at_destination, -np.inf))
        low = np.minimum(simulation.extremes.low_but_each(p, hosts)[None, :],
                         at_destination if taker is None
                         else np.where(taker, at_destination, np.inf))
        after -= np.minimum(low, np.where(takes, at_source, np.inf)[:, None])
        np.maximum(after, 0.0, out=after)
        combined += weight * after
        excess += weight * np.maximum(after - simulation.thresholds[p], 0.0)
        refused |= ((after > now[p] + metrics.ROUNDING)
                    & (after > simulation.thresholds[p] + metrics.ROUNDING))
        convex += weight * ((at_destination ** 2 - there ** 2)
                            + (at_source ** 2 - here ** 2)[:, None])
    return MoveEffects(combined, excess, refused, convex)
