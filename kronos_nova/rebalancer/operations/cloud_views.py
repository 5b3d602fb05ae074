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

"""Views of the cloud for operators: the hosts of its scopes, or one instance."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova.rebalancer.operations import cloud_lookups
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import views

#: Number of tasks shown of an instance, the newest ones.
TASKS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceState:
    """An instance; ``tasks`` are its newest tasks, ``now`` is the time when the cloud was read."""

    portrait: views.InstancePortrait
    scope: str
    now: float
    tasks: Sequence[Any] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeHosts:
    """The hosts of a scope; ``untrusted``: ``policy: reason`` of scores that planning ignores."""

    scope: str
    hosts: Sequence[views.HostPortrait]
    untrusted: tuple[str, ...] = ()


def list_hosts(session: cloud_state.Session, scope: str | None = None) -> list[ScopeHosts]:
    """Read the hosts of each scope, or of the given one.

    :raises KronosException: an input cannot be read, or the scope is not planned.
    """
    requests = [session.build_request(cluster)
                for cluster in cloud_lookups.list_clusters(session.cloud, scope)]
    return [ScopeHosts(request.cluster.scope, views.list_host_portraits(request),
                       request.scores.untrusted)
            for request in requests]


def read_instance(session: cloud_state.Session, uuid: str) -> InstanceState:
    """Read an instance and its newest tasks; a snapshot has no tasks.

    :raises KronosException: an input cannot be read, or no host has the instance.
    """
    cloud = session.cloud
    tasks = ([] if session.snapshot is not None
             else session.store.tasks.list_instance_tasks(uuid, TASKS))
    instance = cloud_lookups.find_instance(cloud, uuid, 'no host has such an instance', 'UUID')
    cluster = cloud_lookups.find_instance_cluster(cloud, instance)
    return InstanceState(views.build_instance_portrait(session.build_request(cluster), uuid),
                         cluster.scope, cloud.now, tasks)
