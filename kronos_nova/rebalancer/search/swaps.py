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


"""Two moves in opposite directions, where no single move helps.

Hosts e and b trade instances i and j. Scores of other hosts stay, so max - min of a policy
falls only if e or b is its one maximum or its one minimum: this looks at all pairs with e
at such an extreme, and judges them exactly.
"""

from collections.abc import Iterator

import numpy as np

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import choice
from kronos_nova.rebalancer.search import measure
from kronos_nova.rebalancer.search import replay

#: Largest number of pairs that the rules check.
TRIED = 200
#: Pairs judged in one step.
BLOCK = 500_000
#: A smaller fall is rounding.
EPSILON = 1e-9


def best_swap(simulation: sim.Simulation) -> list[model.Move] | None:
    """Apply the legal pair of moves with the largest fall of combined imbalance beyond its price.

    :returns: the two moves, or None when no pair improves.
    """
    may = choice.may_move(simulation) & simulation.takers[simulation.place]
    pairs: list[tuple[float, int, int]] = []
    for host in _list_extreme_hosts(simulation):
        mine = np.flatnonzero(may & (simulation.place == host))
        others = np.flatnonzero(may & (simulation.place != host))
        block = max(1, BLOCK // max(1, mine.size))
        for first in range(0, others.size, block):
            if simulation.is_cut_off():
                return None
            pairs += _list_best_pairs(simulation, mine, others[first:first + block], host)
    for _, i, j in sorted(pairs)[:TRIED]:
        here, there = int(simulation.place[i]), int(simulation.place[j])
        wanted = [(i, there), (j, here)]
        moves = replay.apply_in_order(simulation, wanted)
        if len(moves) == len(wanted):
            return moves
        for move in reversed(moves):
            simulation.undo_move(move)
    return None


def _list_extreme_hosts(simulation: sim.Simulation) -> list[int]:
    extreme_hosts = set()
    for p in range(len(simulation.policies)):
        extreme_hosts |= {simulation.extremes.only_highest(p), simulation.extremes.only_lowest(p)}
    return sorted(h for h in extreme_hosts if h >= 0 and simulation.takers[h])


def _list_best_pairs(simulation: sim.Simulation, mine: sim.Ints, others: sim.Ints,
                     host: int) -> Iterator[tuple[float, int, int]]:
    """Yield (-gain, i, j), best first, at most :data:`TRIED`."""
    if not mine.size or not others.size:
        return
    simulation.steps += mine.size * others.size // 64
    place = simulation.place[others]
    hosts, which = np.unique(place, return_inverse=True)
    allowed = (choice.compute_permitted_mask(simulation, mine, hosts)[:, which]
               & choice.compute_permitted_mask(simulation, others, np.array([host]))[:, 0])
    combined, excess = np.zeros(allowed.shape), np.zeros(allowed.shape)
    convex = np.zeros(allowed.shape)
    limits = np.maximum(simulation.compute_imbalances(), simulation.thresholds) + EPSILON
    for p, weight in enumerate(simulation.weights):
        score, capacity = simulation.score[p], simulation.capacity[p]
        outgoing = simulation.usage[p, mine][:, None]
        come = simulation.usage[p, others][None, :]
        here = score[host] + (come - outgoing) / capacity[host]
        there = score[place] + (outgoing - come) / capacity[place]
        rest = np.array([(simulation.extremes.find_highest_without(p, host, int(b)),
                          simulation.extremes.find_lowest_without(p, host, int(b)))
                         for b in hosts])[which]
        high = np.maximum(rest[:, 0], np.maximum(here, there))
        low = np.minimum(rest[:, 1], np.minimum(here, there))
        after = np.maximum(high - low, 0.0)
        combined += weight * after
        excess += weight * np.maximum(after - simulation.thresholds[p], 0.0)
        convex += weight * (here ** 2 - score[host] ** 2 + there ** 2 - score[place] ** 2)
        allowed &= after <= limits[p]
    price = (measure.compute_price(simulation.options, simulation.cost[mine])[:, None]
             + measure.compute_price(simulation.options, simulation.cost[others])[None, :])
    gain = simulation.compute_combined() - combined - price
    allowed &= (excess < simulation.compute_excess() - EPSILON) & (gain > EPSILON)
    i, j = np.nonzero(allowed)
    order = np.argsort(-gain[i, j], kind='stable')[:TRIED]
    yield from ((-float(gain[a, b]), int(mine[a]), int(others[b]))
                for a, b in zip(i[order], j[order], strict=True))
