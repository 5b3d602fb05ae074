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

from kronos_nova.rebalancer import simulation as sim


def mark_room(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Permit hosts where used + claim <= capacity, in pieces that the host allocates."""
    return simulation.room.mark_fitting(instances, hosts)
