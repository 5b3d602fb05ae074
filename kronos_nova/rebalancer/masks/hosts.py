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


"""Masks of the service rules, of ``identity`` and of what hosts can reach."""

import numpy as np

from kronos_nova.rebalancer import simulation as sim


def receiving(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Available, not closed, and another host than the source."""
    other = simulation.place[instances][:, None] != hosts[None, :]
    return np.asarray(simulation.open[hosts][None, :] & other)


def reachable(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """In the same cell, in a zone that the instance may be in, with the CPU
    features it has now."""
    return simulation.reach.permits(instances, simulation.place[instances], hosts)


def unpinned(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """A hypervisor, traits and aggregates that do for it."""
    return simulation.pins.permits(instances, simulation.place[instances], hosts)


def unrefused(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Placement has not refused the pair."""
    return simulation.refusals.permits(instances, hosts)
