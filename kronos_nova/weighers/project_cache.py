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


"""The project of each instance, as far as this process knows.

HostState.instances contains UUIDs; whether it contains projects depends on how Nova read
the instances. A thread reads the missing projects from the instance mappings of the API
database, once for each instance: an instance never changes its project.
"""

from collections.abc import Iterable
from collections.abc import Set
import time
from typing import Any

from nova import context
from nova import objects
from oslo_config import cfg

from kronos_nova.feed import periodic

#: Seconds between two looks at the hosts of the newest request.
INTERVAL = 10.0
#: Instances in one query, and in one pass.
BATCH = 500
MAX_PER_PASS = 20000
#: Seconds after which the cache forgets an instance that no host holds, at the latest
#: after twice this; also how long it does not look up an instance without a mapping again.
GENERATION = 3600.0


class ProjectBook:
    """Projects by instance UUID; refreshed in the background.

    Requests call :meth:`record_project` and :meth:`list_project_instances`, which read dicts and
    never wait. The thread replaces the sets that they read, and does not change them.
    """

    def __init__(self, conf: cfg.ConfigOpts, faults: periodic.FaultCounters) -> None:
        self._projects: dict[str, str | None] = {}
        self._by_project: dict[str, frozenset[str]] = {}
        self._noted: dict[str, str] = {}
        self._hosts: list[Any] = []
        self._held_instances: set[str] = set()
        self._turned = time.monotonic()
        self._refresher = periodic.BackgroundRefresher(
            'kronos-owners', lambda: INTERVAL, self.refresh_projects, faults)

    # On the caller's thread.

    def record_project(self, instance_uuid: str, project: str) -> None:
        """Record the project of the request's own instance."""
        self._noted[instance_uuid] = project

    def list_project_instances(self, hosts: list[Any], project: str) -> Set[str]:
        """Return the instances known to be the project's.

        :param hosts: HostState objects of the request; the thread reads their instances
            next.
        """
        self._hosts = hosts
        self._refresher.ensure_running()
        noted = {u for u, p in tuple(self._noted.items()) if p == project}
        return self._by_project.get(project, frozenset()) | noted

    # On the background thread.

    def refresh_projects(self) -> None:
        """Learn the projects of the newest request's instances."""
        hosts, self._hosts = self._hosts, []
        noted = dict(tuple(self._noted.items()))
        known: dict[str, str | None] = {**self._projects, **noted}
        here: set[str] = set(noted)
        for host in hosts:
            # The dict is shared with the thread that updates it.
            for uuid, instance in tuple(host.instances.items()):
                here.add(uuid)
                if known.get(uuid) is None and 'project_id' in instance:
                    known[uuid] = instance.project_id
        self._held_instances |= here
        unknown = [uuid for uuid in here if uuid not in known][:MAX_PER_PASS]
        try:
            known.update(_read_project_mappings(unknown))
        finally:
            self._replace_projects(self._forget_old_instances(known))
            for uuid in noted:
                self._noted.pop(uuid, None)

    def _forget_old_instances(self, known: dict[str, str | None]) -> dict[str, str | None]:
        """Forget the instances that no host has held for a generation."""
        if time.monotonic() - self._turned < GENERATION:
            return known
        self._turned, held_instances, self._held_instances = (
            time.monotonic(), self._held_instances, set())
        return {uuid: project for uuid, project in known.items()
                if uuid in held_instances and project is not None}

    def _replace_projects(self, known: dict[str, str | None]) -> None:
        sets: dict[str, set[str]] = {}
        for uuid, project in known.items():
            if project is not None:
                sets.setdefault(project, set()).add(uuid)
        self._projects = known
        self._by_project = {project: frozenset(uuids) for project, uuids in sets.items()}

    def stop(self) -> None:
        self._refresher.stop()


def _read_project_mappings(uuids: Iterable[str]) -> dict[str, str | None]:
    """Return the projects from the API database; None for an instance without a mapping."""
    wanted = list(uuids)
    project_by_uuid: dict[str, str | None] = dict.fromkeys(wanted)
    admin = context.get_admin_context()
    for start in range(0, len(wanted), BATCH):
        for mapping in objects.InstanceMappingList.get_by_instance_uuids(
                admin, wanted[start:start + BATCH]):
            project_by_uuid[mapping.instance_uuid] = mapping.project_id
    return project_by_uuid
