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

"""Even: no host holds far more instances than another, for when one fails."""

import numpy as np

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base

#: So many instances more than the destination, or nobody moves.
DIFFERENCE = 4


class Even(base.Strategy):
    """The host with the most instances gives, as long as the load gets no less even."""

    imbalance = True

    def enabled(self, options: model.PlanningOptions, policy_set: policies.PolicySet) -> bool:
        return policy_set.mode == 'spread'

    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        moves: list[model.Move] = []
        while len(moves) < budget and not simulation.is_cut_off():
            move = _next(simulation)
            if move is None or move.improvement < 0:
                break
            simulation.apply_move(move)
            moves.append(move)
        if not moves:
            simulation.notes.append('no host can give one of its many instances')
        return moves


def _next(simulation: sim.Simulation) -> model.Move | None:
    """Off the fullest host that may give, to one with ``DIFFERENCE`` fewer at least."""
    counts = np.array([simulation.list_on_host(host).size for host in simulation.hosts])
    source = int(np.argmax(np.where(simulation.givers, counts, -1)))
    takers = np.flatnonzero(simulation.takers & (counts <= counts[source] - DIFFERENCE))
    here = simulation.list_on_host(simulation.hosts[source])
    return base.best_place(simulation, here[simulation.movable[here]], model.Phase.SPREAD, takers)
