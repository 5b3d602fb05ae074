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

"""Ceilings of hosts' fills, and the load that they leave room for."""

import math
from typing import TYPE_CHECKING

import numpy as np

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.simulation import arrays

if TYPE_CHECKING:
    from kronos_nova.rebalancer import simulation as simulations


def compute_ceilings(policy_set: policies.PolicySet, options: model.PlanningOptions) -> dict[str,
                                                                                             float]:
    """Return the highest fill of a destination by policy.

    That is ``capacity_threshold`` when packing, else a full host, and infinite when it may be
    overbooked.
    """
    if options.overbooking:
        return {p.name: math.inf for p in policy_set.enabled_policies}
    return {p.name: p.capacity_threshold if policy_set.mode == 'pack' else 1.0
            for p in policy_set.enabled_policies}


def mark_overfills(simulation: 'simulations.Simulation', instances: arrays.Ints,
                   hosts: arrays.Ints) -> arrays.Bools:
    """Mark where an instance would lift a host's fill above a ceiling: shape (n, h).

    The expressions are those of the rule ``ceiling``.
    """
    over = np.zeros((len(instances), len(hosts)), dtype=np.bool_)
    for p, policy in enumerate(simulation.policies):
        ratio = simulation.usage[p, instances][:, None] / simulation.divisor[p, hosts][None, :]
        over |= (simulation.fill[p, hosts][None, :] + ratio
                 > simulation.ceilings[policy.name] + metrics.ROUNDING)
    return over


def compute_headroom(simulation: 'simulations.Simulation', hosts: arrays.Ints) -> arrays.Floats:
    """Return the load that may still come to each host: P x H, in the unit of ``usage``.

    With more the rule ``ceiling`` refuses it from every one of ``hosts``; infinite where it
    never does.
    """
    limits = np.array([simulation.ceilings[policy.name] for policy in simulation.policies])
    worst = np.fmax.reduce(simulation.fill[:, hosts], axis=1, initial=-np.inf)
    room = np.fmax(limits, worst)[:, None] + metrics.ROUNDING - simulation.fill
    divisor = simulation.divisor
    # Nothing counts where the divisor is infinite, nor where the fill is not known.
    return np.asarray(np.where(np.isfinite(room) & np.isfinite(divisor),
                               room * np.where(np.isfinite(divisor), divisor, 1.0),
                               np.inf))
