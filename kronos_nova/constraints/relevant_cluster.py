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

"""The part of a cloud that decides about some moves.

Allocations are sums already (``Provider.used``), so that rules read few instances: the movers, the
members of their server groups, spread sets and hints, instances in flight, and instances that have
just arrived. A view of this part answers as a view of the whole cloud does, but is built in
milliseconds at any size.
"""

from collections.abc import Iterable
import dataclasses

from kronos_nova import model
from kronos_nova.constraints import failure_domains
from kronos_nova.constraints import spread_sets


def reduce_cluster(cluster: model.Cluster, moves: Iterable[model.Move],
                   history: model.MoveHistory) -> model.Cluster:
    """Return the cluster with every host, and the instances and groups that matter to moves."""
    movers = {m.instance_uuid for m in moves}
    domains = failure_domains.FailureDomains(cluster.aggregates, cluster.aggregate_metadata)
    wanted = movers.union(
        (f.instance_uuid for f in cluster.flights),
        (m.instance_uuid for m, _ in history.completed),
        *(g.members for g in cluster.groups if not movers.isdisjoint(g.members)),
        *(s.members for s in spread_sets.build_spread_sets(cluster, domains)
          if not movers.isdisjoint(s.members)),
        (other for uuid in movers if uuid in cluster.instances
         for others in cluster.instances[uuid].scheduler_hints.values() for other in others))
    # The spread set of an instance depends on whether it has a server group.
    known = movers.union(u for u in wanted
                         if u in cluster.instances and cluster.instances[u].spread)
    groups = tuple(g for g in cluster.groups if not known.isdisjoint(g.members))
    return dataclasses.replace(
        cluster, groups=groups,
        instances={u: cluster.instances[u] for u in wanted if u in cluster.instances})
