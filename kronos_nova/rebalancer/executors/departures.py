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

"""Who has just left the destination, which Nova's scheduler may not know yet.

After a live migration nova-compute tells the scheduler that the instance has come,
not that it has gone: for up to ``[compute] scheduler_instance_sync_interval`` the
filters that look at a host's instances (ServerGroupAntiAffinityFilter,
DifferentHostFilter) take it for one that is on both. What they would refuse for
that waits. Source: nova.compute.manager, _update_scheduler_instance_info and
_sync_scheduler_instance_info; nova.scheduler.host_manager, update_instance_info.
"""

from collections.abc import Iterable

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import hints

#: Clocks differ, and the periodic task takes its time (seconds).
MARGIN = 30.0


def matters(task: model.Task, cluster: model.Cluster, options: model.Options) -> bool:
    """Whether any of these filters decides about the instance."""
    return bool(_limited(task, cluster) or _apart(task, cluster, options))


def check(task: model.Task, cluster: model.Cluster, options: model.Options,
          left: Iterable[str]) -> None:
    """:param left: the instances that lately left the destination by live migration.
    :raises PreFlightError: the scheduler may take one for being there still.
    """
    gone = {uuid for uuid in left if uuid in cluster.instances
            and cluster.instances[uuid].host != task.to_host} - {task.instance_uuid}
    for group in _limited(task, cluster):
        members = gone & set(group.members)
        there = sum(1 for u in group.members if u != task.instance_uuid
                    and u in cluster.instances and cluster.instances[u].host == task.to_host)
        if members and there + len(members) >= group.max_server_per_host:
            raise _wait(task, min(members), f'server group {group.uuid}')
    for uuid in sorted(gone & _apart(task, cluster, options)):
        raise _wait(task, uuid, 'the hint different_host')


def _limited(task: model.Task, cluster: model.Cluster) -> list[model.ServerGroup]:
    return [g for g in cluster.groups if g.policy is model.GroupPolicy.ANTI_AFFINITY
            and task.instance_uuid in g.members]


def _apart(task: model.Task, cluster: model.Cluster, options: model.Options) -> frozenset[str]:
    if hints.DIFFERENT not in options.nova_enabled_filters:
        return frozenset()
    found = cluster.instances[task.instance_uuid].scheduler_hints
    return frozenset(found.get('different_host', ()))


def _wait(task: model.Task, uuid: str, why: str) -> exception.PreFlightError:
    return exception.PreFlightError(
        instance_uuid=task.instance_uuid, rule='just-left',
        problem=f'instance {uuid} has just left {task.to_host}, and nova-scheduler may not know '
                f'it yet; it is to be apart from it ({why})')
