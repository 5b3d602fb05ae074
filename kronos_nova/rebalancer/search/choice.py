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


"""The instances and hosts that a search tries."""

import numpy as np

from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.masks import claims

#: The masks that no move of the same plan can lift.
WITHOUT_CLAIMS = tuple(mask for mask in masks.MASKS if mask is not claims.mark_room)
#: Candidates (instance, host) on a board.
CELLS = 150_000
#: A board has at least so many hosts of either end.
ENDS = 16


def may_move(simulation: sim.Simulation) -> sim.Bools:
    """Return which instances an imbalance move may take, judged without a destination."""
    return np.asarray(simulation.movable & simulation.profiled
                      & simulation.givers[simulation.place])


def compute_permitted_mask(simulation: sim.Simulation, rows: sim.Ints,
                           columns: sim.Ints) -> sim.Bools:
    """Return which candidates no mask forbids, as an array of shape (rows, columns).

    The mask of the claims is left out: the claims may lack room now.
    """
    return masks.mark_permitted(simulation, rows, columns, WITHOUT_CLAIMS)


def choose_candidates(simulation: sim.Simulation, budget: int) -> tuple[sim.Ints, sim.Ints]:
    """Choose instance numbers, in order of their hosts, and destination host numbers.

    These are all that may move, if there are few. Else they are the instances of the
    hottest hosts of the policies above their thresholds, two hosts for each move of the
    budget, and as many of the coldest hosts as leave few enough candidates.
    """
    rows, columns = np.flatnonzero(may_move(simulation)), np.flatnonzero(simulation.takers)
    if rows.size * columns.size > CELLS:
        ends = max(ENDS, 2 * budget)
        hot = _sort_extreme_hosts(simulation, simulation.givers, -1.0)[:ends]
        here = np.bincount(simulation.place[rows], minlength=len(simulation.hosts))[hot]
        wide = max(ENDS, min(ends, CELLS // max(1, int(here.sum()))))
        columns = np.sort(_sort_extreme_hosts(simulation, simulation.takers, 1.0)[:wide])
        fitting = max(1, int((np.cumsum(here) * columns.size <= CELLS).sum()))
        rows = rows[np.isin(simulation.place[rows], hot[:fitting])]
    return rows[np.argsort(simulation.place[rows], kind='stable')], columns


def _sort_extreme_hosts(simulation: sim.Simulation, who: sim.Bools, sign: float) -> sim.Ints:
    """Sort hosts by their rank in the policy in which they are most extreme.

    :param who: the hosts to sort.
    :param sign: -1: the hottest first, 1: the coldest first.
    """
    hosts = np.flatnonzero(who)
    over = np.flatnonzero(simulation.compute_imbalances() > simulation.thresholds)
    rank = np.full(hosts.size, hosts.size)
    for p in over:
        order = np.argsort(sign * simulation.score[p, hosts], kind='stable')
        ranks = np.empty_like(order)
        ranks[order] = np.arange(hosts.size)
        rank = np.minimum(rank, ranks)
    return np.asarray(hosts[np.argsort(rank, kind='stable')])
