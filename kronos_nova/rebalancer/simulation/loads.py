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

"""Loads of hosts and instances from their scores, as arrays.

Shapes: P policies, H hosts, N instances, as in the simulation.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools

import numpy as np

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer.simulation import arrays


@dataclasses.dataclass(frozen=True, slots=True)
class LoadArrays:
    """Loads and capacities as arrays.

    ``score``, ``capacity`` and ``fill``: P x H. ``fill`` is compared with ceilings, NaN where it is
    not known. ``divisor``: as ``capacity``, infinite where it is not known, so that no load counts
    there. ``usage``: P x N in the unit of ``capacity``, 0 where it is not known; only ``profiled``
    instances have one in every policy. ``frozen`` hosts lack a score.
    """

    score: arrays.Floats
    capacity: arrays.Floats
    fill: arrays.Floats
    divisor: arrays.Floats
    usage: arrays.Floats
    profiled: arrays.Bools
    frozen: arrays.Bools


def read_loads(view: cluster_view.ClusterView, scores: model.ClusterScores,
               chosen: Sequence[policies.Policy],
               hosts: Sequence[str], uuids: Sequence[str], order: arrays.Ints) -> LoadArrays:
    """Read the scores, with the moves that they do not show yet laid over them.

    :param uuids: of the instances, in any order.
    :param order: that puts them in order.
    """
    count = len(chosen), len(hosts)
    loads = LoadArrays(
        score=np.zeros(count), capacity=np.ones(count), fill=np.full(count, np.nan),
        divisor=np.full(count, np.inf), usage=np.zeros((len(chosen), len(uuids))),
        profiled=np.ones(len(uuids), dtype=np.bool_), frozen=np.zeros(len(hosts), dtype=np.bool_))
    leaves = {view.cluster.instances[f.instance_uuid].host for f in view.cluster.flights
              if f.instance_uuid in view.cluster.instances}
    for p, policy in enumerate(chosen):
        known = scores.policies[policy.name]
        level = _build_value_array(view.load.map_levels(policy.name), hosts)
        lacking = np.isnan(level)
        loads.frozen[lacking] = True
        loads.score[p] = np.where(lacking, 0.0, level)
        for h in [h for h, host in enumerate(hosts) if leaves and host in leaves]:
            if not lacking[h]:
                loads.score[p, h] -= view.load.sum_leaving_load(policy.name, hosts[h])
        capacity = _build_value_array(known.capacity, hosts)
        loads.capacity[p] = np.where(lacking, 1.0, capacity)
        loads.divisor[p] = np.where(np.isnan(capacity) | (capacity == 0.0), np.inf, capacity)
        if known.untrusted is None:
            loads.fill[p] = _build_value_array(view.load.map_filled_hosts(policy.name), hosts)
        usage = _build_value_array(known.usages, uuids)[order]
        lacking = np.isnan(usage)
        loads.profiled[lacking] = False
        loads.usage[p] = np.where(lacking, 0.0, usage)
    return loads


def _build_value_array(known: Mapping[str, float], names: Sequence[str]) -> arrays.Floats:
    """Return the value of each name, NaN where it has no value."""
    return arrays.make_float_array(map(known.get, names, itertools.repeat(np.nan)))
