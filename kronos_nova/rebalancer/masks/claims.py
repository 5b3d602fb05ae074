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

"""Mask of the rule ``claims``: room for each resource class."""

import numpy as np

from kronos_nova.constraints import claims as rule
from kronos_nova.rebalancer import simulation as sim


def room(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """capacity - used >= claim, for every class that the rule counts."""
    allowed = np.ones((len(instances), len(hosts)), dtype=np.bool_)
    view = simulation.view
    if not simulation.options.enforce_placement_claims or not view.claims_known():
        return allowed
    for r, resource_class in enumerate(simulation.classes):
        if resource_class == rule.DISK and not simulation.options.enforce_placement_disk:
            continue
        need = simulation.claims[r, instances]
        left = np.array([_left(simulation, simulation.hosts[h], resource_class) for h in hosts])
        allowed &= (need[:, None] <= left[None, :]) | (need[:, None] == 0)
    return allowed


def _left(simulation: sim.Simulation, host: str, resource_class: str) -> float:
    provider = simulation.cluster.hosts[host].provider
    inventory = provider.inventories.get(resource_class) if provider else None
    if inventory is None:
        return -1.0
    return inventory.capacity - simulation.view.used(host, resource_class)
