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


"""Masks of the service rules, of ``identity`` and of the hosts that an instance can reach."""

import numpy as np

from kronos_nova.rebalancer import simulation as sim


def mark_receiving(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Permit hosts that are available, not closed, and not the source."""
    other = simulation.place[instances][:, None] != hosts[None, :]
    return np.asarray(simulation.open[hosts][None, :] & other)


def mark_reachable(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Permit hosts in the same cell, in a permitted zone, with the CPU features of the source."""
    return simulation.host_fit.mark_permitted(instances, simulation.place[instances], hosts)


def mark_compatible(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Permit hosts whose hypervisor, traits and aggregates fit the instance."""
    return simulation.flavor_fit.mark_permitted(instances, simulation.place[instances], hosts)


def mark_unrefused(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Permit hosts that Placement has not refused for the instance."""
    return simulation.refusals.mark_permitted(instances, hosts)
