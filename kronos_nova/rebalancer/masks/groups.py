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

"""Masks of the server group rules."""

import numpy as np

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim


def hard_groups(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Only rows of grouped instances can have a no."""
    allowed = np.ones((len(instances), len(hosts)), dtype=np.bool_)
    grouped = np.flatnonzero(simulation.hard_grouped[instances])
    if not grouped.size:
        return allowed
    columns = {simulation.hosts[h]: column for column, h in enumerate(hosts)}
    for row in grouped:
        uuid = simulation.uuids[instances[row]]
        for group in simulation.view.groups_of(uuid):
            spread = simulation.view.spread_of(group)
            if group.policy is model.GroupPolicy.ANTI_AFFINITY:
                for host, members in spread.items():
                    others = len(members) - (uuid in members)
                    if host in columns and others >= group.max_server_per_host:
                        allowed[row, columns[host]] = False
            elif group.policy is model.GroupPolicy.AFFINITY:
                holding = {h for h, members in spread.items() if set(members) - {uuid}}
                allowed[row, [c for h, c in columns.items() if h not in holding]] = False
    return allowed


def still(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """No other member of its groups is in flight; planning starts none."""
    return np.repeat(~simulation.awaiting[instances][:, None], len(hosts), axis=1)
