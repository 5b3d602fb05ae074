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


"""Members of server groups, and the group rules that a move breaks less those that it mends."""

from collections.abc import Mapping
import dataclasses

import numpy as np

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer.simulation import arrays


@dataclasses.dataclass(frozen=True, slots=True)
class GroupMembership:
    """Instances in any, in a hard and in a moving group: shape (N,)."""

    grouped: arrays.Bools
    hard: arrays.Bools
    awaiting: arrays.Bools


def mark_grouped_instances(view: cluster_view.ClusterView,
                           index: Mapping[str, int]) -> GroupMembership:
    """Mark the instances in server groups.

    :param index: number of each instance.
    """
    membership = GroupMembership(*(np.zeros(len(index), dtype=np.bool_) for _ in range(3)))
    numbers: dict[bool, list[int]] = {False: [], True: []}
    for group in view.cluster.groups:
        numbers[group.policy.is_hard] += [n for u in group.members
                                          if (n := index.get(u)) is not None]
    membership.grouped[numbers[False] + numbers[True]] = True
    membership.hard[numbers[True]] = True
    for uuid in {f.instance_uuid for f in view.cluster.flights}:
        if view.is_in_flight(uuid):
            membership.awaiting[[index[u] for group in view.list_groups_of(uuid)
                                 for u in group.members if u in index and u != uuid]] = True
    return membership


def count_added_violations(group: model.ServerGroup, here: int, there: int) -> int:
    """Count the violations that a move adds to a group, less those that it takes away.

    A violation is a pair of members that are apart or together against the policy, or a member
    above a hard limit.

    :param here: other members on the source.
    :param there: members on the destination.
    """
    match group.policy:
        case model.GroupPolicy.AFFINITY | model.GroupPolicy.SOFT_AFFINITY:
            return here - there
        case model.GroupPolicy.SOFT_ANTI_AFFINITY:
            return there - here
        case model.GroupPolicy.ANTI_AFFINITY:
            limit = group.max_server_per_host
            return (there >= limit) - (here >= limit)


def sum_added_violations(view: cluster_view.ClusterView, index: Mapping[str, int], uuid: str,
                         source: str) -> tuple[arrays.Ints, arrays.Ints]:
    """Sum the violations over an instance's hard and soft groups for every host: 2 x H.

    :param index: number of each host.
    """
    hard, soft = np.zeros(len(index), dtype=np.intp), np.zeros(len(index), dtype=np.intp)
    for group in view.list_groups_of(uuid):
        here = len(view.list_members_on(group, source)) - 1
        total = hard if group.policy.is_hard else soft
        total += count_added_violations(group, here, 0)
        for host, members in view.placement.map_members_by_host(group).items():
            if host in index:
                total[index[host]] += (count_added_violations(group, here, len(members))
                                       - count_added_violations(group, here, 0))
    return hard, soft
