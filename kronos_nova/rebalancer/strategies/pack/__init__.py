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

"""Pack: empty whole hosts, or leave them alone; relieve the overfull.

A policy's ``capacity_query`` measures the fill, and ``capacity_threshold`` is its ceiling;
with ``vm_mean_query`` and ``vm_deviation_query`` the ceiling also holds for the foreseen
peak. A drain is a transaction: either every instance of the host finds a place on a host in
use, or no instance moves.
"""

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies.pack import fill_forecast as outlooks
from kronos_nova.rebalancer.strategies.pack import host_clearance
from kronos_nova.rebalancer.strategies.pack import relief


class Pack(base.Strategy):
    imbalance = True
    continues = True

    def enabled(self, options: model.PlanningOptions, policy_set: policies.PolicySet) -> bool:
        return policy_set.mode == 'pack'

    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        outlook = outlooks.FillForecast(simulation)
        cooling = simulation.history.scope_cooling > 0
        moves = [] if cooling else relief.relieve_hosts(outlook, budget)
        moves += host_clearance.empty_hosts(outlook, budget - len(moves))
        if not moves:
            simulation.notes.append('no host is over its ceiling or can be emptied')
        return moves
