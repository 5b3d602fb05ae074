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

"""The measured usage that the engine publishes to nova-scheduler: by flavor, and of moves.

nova-scheduler sees allocations and the usage of hosts; the usage of instances is measured here.
"""

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Sequence
import math

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.feed import flavor_usages
from kronos_nova.scheduler import depletion

#: Fewer measured instances say little about the next one of their flavor.
MIN_INSTANCES = 5


def compute_usage(policy: policies.Policy, samples: model.PolicySamples, cluster: model.Cluster,
                  tasks: Sequence[model.Task], now: float) -> flavor_usages.FlavorUsages:
    """Return the usage measured by one policy, over the whole cloud.

    :param cluster: with Nova's own migrations as flights.
    :param tasks: live ones of the store.
    :param now: seconds since the epoch.
    """
    memory = depletion.goes_by_memory(policy)
    used = _in_host_units(policy, samples, cluster, memory)
    return flavor_usages.FlavorUsages(_by_shape(cluster, used),
                                      _list_incoming_moves(cluster, tasks, used, now))


def _in_host_units(policy: policies.Policy, samples: model.PolicySamples,
                   cluster: model.Cluster, memory: bool) -> dict[str, float]:
    """Compute each instance's share of its host's capacity x the host's vCPUs (MiB)."""
    usages, capacity = scoring.compute_measured_usages(policy, samples, cluster)
    resource_class = 'MEMORY_MB' if memory else 'VCPU'
    totals = {h.name: float(h.sum_inventories(resource_class)) for h in cluster.hosts.values()
              if any(resource_class in p.inventories for p in h.tree)}
    shares = {}
    for uuid, value in usages.items():
        host = cluster.instances[uuid].host
        if host in capacity and host in totals:
            shares[uuid] = value / capacity[host] * totals[host]
    return shares


def _by_shape(
        cluster: model.Cluster, used: Mapping[str, float]) -> dict[flavor_usages.FlavorShape,
                                                                   float]:
    """Compute the mean of each flavor that enough instances have, the most common first."""
    values: dict[flavor_usages.FlavorShape, list[float]] = defaultdict(list)
    for uuid, value in used.items():
        instance = cluster.instances[uuid]
        if instance.status == 'ACTIVE' and instance.vcpus > 0 and instance.memory_mb > 0:
            values[flavor_usages.FlavorShape(instance.vcpus, instance.memory_mb)].append(value)
    common = sorted(((shape, some) for shape, some in values.items()
                     if len(some) >= MIN_INSTANCES), key=lambda row: (-len(row[1]), row[0]))
    return {shape: math.fsum(some) / len(some) for shape, some in common[:flavor_usages.MAX_SHAPES]}


def _list_incoming_moves(cluster: model.Cluster, tasks: Sequence[model.Task],
                         used: Mapping[str, float],
                         now: float) -> tuple[flavor_usages.IncomingMove, ...]:
    """List moves that are decided and not over: Nova's own, then our tasks.

    A pending task may never be approved, and a task past its deadline does not begin. Where Nova
    names another destination than the task, Nova knows.
    """
    ends = {f.instance_uuid: (f.to_host, 0.0) for f in cluster.flights if f.to_host is not None}
    for task in tasks:
        late = task.deadline is not None and task.deadline <= now and task.state in (
            model.TaskState.QUEUED, model.TaskState.CLAIMED)
        if task.state is model.TaskState.PENDING or task.state.is_terminal or late:
            continue
        to_host, _ = ends.get(task.instance_uuid, (task.to_host, 0.0))
        ends[task.instance_uuid] = (to_host, task.created_at)
    incoming = []
    for uuid, (to_host, since) in sorted(ends.items()):
        instance = cluster.instances.get(uuid)
        if instance is not None and instance.host != to_host and instance.vcpus > 0 \
                and instance.memory_mb > 0:
            incoming.append(flavor_usages.IncomingMove(
                uuid, to_host, flavor_usages.FlavorShape(instance.vcpus, instance.memory_mb), since,
                used.get(uuid)))
    return tuple(incoming)
