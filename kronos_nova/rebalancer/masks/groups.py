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


def mark_hard_groups(simulation: sim.Simulation, instances: sim.Ints, hosts: sim.Ints) -> sim.Bools:
    """Permit hosts that the hard server groups of the instance permit.

    Only rows of grouped instances can have a refusal; only moves of a group's own members change
    the view's members by host.
    """
    allowed = np.ones((len(instances), len(hosts)), dtype=np.bool_)
    grouped = np.flatnonzero(simulation.hard_grouped[instances])
    if not grouped.size:
        return allowed
    column = list_columns(simulation, hosts)
    for row in grouped:
        uuid = simulation.uuids[instances[row]]
        for group in simulation.view.list_groups_of(uuid):
            spread = simulation.view.placement.map_members_by_host(group)
            if group.policy is model.GroupPolicy.ANTI_AFFINITY:
                full = [h for h, members in spread.items()
                        if len(members) - (uuid in members) >= group.max_server_per_host]
                allowed[row, list_known_columns(simulation, column, full)] = False
            elif group.policy is model.GroupPolicy.AFFINITY:
                holding = [h for h, members in spread.items()
                           if len(members) > (uuid in members)]
                holding_columns = list_known_columns(simulation, column, holding)
                legal = allowed[row, holding_columns]
                allowed[row] = False
                allowed[row, holding_columns] = legal
    return allowed


def list_columns(simulation: sim.Simulation, hosts: sim.Ints) -> sim.Ints:
    """Return the column of each host of the scope in ``hosts``, -1: it has none."""
    column = np.full(len(simulation.hosts), -1, dtype=np.intp)
    column[hosts] = np.arange(len(hosts))
    return column


def list_known_columns(simulation: sim.Simulation, column: sim.Ints, names: list[str]) -> list[int]:
    """Return the columns of the named hosts that have one."""
    columns = (int(column[simulation.host_index[h]]) for h in names if h in simulation.host_index)
    return [c for c in columns if c >= 0]


def mark_still_groups(simulation: sim.Simulation, instances: sim.Ints,
                      hosts: sim.Ints) -> sim.Bools:
    """Permit instances of whose groups no other member is in flight; planning starts no flight."""
    return np.repeat(~simulation.awaiting[instances][:, None], len(hosts), axis=1)
