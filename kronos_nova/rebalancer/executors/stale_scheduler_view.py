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

"""Live migrations of which Nova's scheduler may not know yet.

nova-compute does not tell the scheduler of an instance that has left by a live migration, and
names the source as the host of one that has come. Until the next
``scheduler_instance_sync_interval`` the filters that look at a host's instances see their old
hosts. A move that they would refuse for that reason waits: ServerGroupAntiAffinityFilter and
DifferentHostFilter would refuse a destination that an instance has just left, SameHostFilter one
to which an instance has just come.

Source: nova.compute.manager, _post_live_migration, _update_scheduler_instance_info and
_sync_scheduler_instance_info; nova.scheduler.host_manager, update_instance_info.
"""

from collections.abc import Collection

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import hints

#: Clocks differ, and the periodic task takes its time (seconds).
MARGIN = 30.0


def refuse_stale_view(task: model.Task, cluster: model.Cluster, options: model.PlanningOptions,
                      departed: Collection[str], arrived: Collection[str]) -> None:
    """Raise if nova-scheduler may judge the move by the old hosts of other instances.

    :param departed: UUIDs of the instances that lately left the destination by live migration.
    :param arrived: UUIDs of the instances that lately came to it by live migration.
    :raises PreFlightError: the scheduler may see an instance on its old host.
    """
    here = {uuid for uuid, i in cluster.instances.items()
            if i.host == task.to_host} - {task.instance_uuid}
    elsewhere = set(departed) & (cluster.instances.keys() - here) - {task.instance_uuid}
    for group in _list_limiting_groups(task, cluster):
        members = elsewhere & group.members
        if members and len(here & group.members) + len(members) >= group.max_server_per_host:
            raise _wait(task, min(members), 'left', f'apart from it (server group {group.uuid})',
                        rule='just-left')
    for uuid in sorted(elsewhere & _list_hinted_instances(task, cluster, options, hints.DIFFERENT)):
        raise _wait(task, uuid, 'left', 'apart from it (hint different_host)', rule='just-left')
    beside = _list_hinted_instances(task, cluster, options, hints.SAME) & here
    if beside and beside <= set(arrived):
        raise _wait(task, min(beside), 'come to', 'beside it (hint same_host)',
                    rule='just-came')


def _list_limiting_groups(task: model.Task, cluster: model.Cluster) -> list[model.ServerGroup]:
    return [g for g in cluster.groups if g.policy is model.GroupPolicy.ANTI_AFFINITY
            and task.instance_uuid in g.members]


def _list_hinted_instances(task: model.Task, cluster: model.Cluster, options: model.PlanningOptions,
                           filter_: str) -> frozenset[str]:
    """Return the instances that a hint of the instance names, where its filter is enabled."""
    if filter_ not in options.nova_enabled_filters:
        return frozenset()
    hint = {hints.DIFFERENT: 'different_host', hints.SAME: 'same_host'}[filter_]
    return frozenset(cluster.instances[task.instance_uuid].scheduler_hints.get(hint, ()))


def _wait(task: model.Task, uuid: str, what: str, why: str, *,
          rule: str) -> exception.PreFlightError:
    return exception.PreFlightError(
        instance_uuid=task.instance_uuid, rule=rule,
        problem=f'instance {uuid} has just {what} {task.to_host}, and nova-scheduler may not know '
                f'it yet; it is to be {why}')
