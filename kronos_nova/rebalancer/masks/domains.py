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
"""Mask of the rule ``worsens-spread``, for the phases that it binds."""

import numpy as np

from kronos_nova.rebalancer import simulation as sim


def mark_spread_kept(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Permit hosts where no spread set of the instance becomes worse."""
    allowed = np.ones((len(instances), len(hosts)), dtype=np.bool_)
    for row in np.flatnonzero(simulation.domains.spread[instances]):
        uuid = simulation.uuids[instances[row]]
        allowed[row] = ~simulation.domains.compute_changes(uuid)[1][hosts]
    return allowed
