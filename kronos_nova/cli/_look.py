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

"""Read the hosts of ``kronos host list`` and the instance of ``kronos instance show``."""

import argparse
from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova.cli import _cloud
from kronos_nova.rebalancer.operations import views

#: Number of tasks shown of an instance, the newest ones.
TASKS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
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


def read_hosts(args: argparse.Namespace) -> list[ScopeHosts]:
    """Read the hosts of each scope.

    :raises KronosException: an input cannot be read, or the scope is not planned.
    """
    conf, policy_set = _cloud.read_configuration(
        'kronos host list', args.config_file, 'Lists hosts.', live=not args.snapshot)
    seen = (_cloud.read_snapshot(conf, policy_set, args.snapshot) if args.snapshot
            else _cloud.read_live_cloud(conf, policy_set))
    clusters = _cloud.list_clusters(seen, args.scope)
    requests = [_cloud.request(conf, policy_set, seen, cluster) for cluster in clusters]
    return [ScopeHosts(asked.cluster.scope, views.list_host_portraits(asked),
                       asked.scores.untrusted)
            for asked in requests]


def read_instance(args: argparse.Namespace) -> Seen:
    """Read an instance and its newest tasks.

    :raises KronosException: an input cannot be read, or no host has the instance.
    """
    conf, policy_set = _cloud.read_configuration(
        'kronos instance show', args.config_file, 'Shows an instance.', live=not args.snapshot)
    tasks: list[Any] = []

    def read_tasks(store: Any, scopes: Sequence[str]) -> None:
        tasks.extend(store.tasks_of_instance(args.instance, TASKS))

    seen = (_cloud.read_snapshot(conf, policy_set, args.snapshot) if args.snapshot
            else _cloud.read_live_cloud(conf, policy_set, also=read_tasks))
    found = seen.cluster.instances.get(args.instance)
    if found is None:
        raise _cloud.make_not_found_error('UUID', args.instance, seen.cluster.instances,
                                          'no host has such an instance')
    cluster = _cloud.of_instance(seen, found)
    request = _cloud.request(conf, policy_set, seen, cluster)
    return Seen(views.build_instance_portrait(request, args.instance), cluster.scope, seen.now,
                tasks)
