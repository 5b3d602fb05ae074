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

"""Relief while spreading: an overfull host gives at once.

Levelling uses smoothed scores; a burst is over before they show it. A policy with
``relief_threshold`` watches the current fill of hosts.
"""

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies.pack import fill_forecast as outlooks
from kronos_nova.rebalancer.strategies.pack import relief


class Relief(base.Strategy):
    """Relief for the mode spread. Pack does the same on its own, with its ceilings."""

    imbalance = True

    def enabled(self, options: model.PlanningOptions, policy_set: policies.PolicySet) -> bool:
        return policy_set.mode == 'spread' and any(
            p.relief_threshold is not None for p in policy_set.enabled_policies)

    def propose(self, simulation: sim.Simulation, budget: int) -> list[model.Move]:
        return relief.relieve_hosts(outlooks.FillForecast(simulation), budget)
