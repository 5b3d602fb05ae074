# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Tasks of the database beside migrations of Nova: no move is lost or happens twice."""

import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from tools.cloud import mariadb
from tools.cloud.client import Cloud
from tools.cloud.run import Run
from tools.cloud.soak.daemons import ACCOUNT

#: An executor looks at a migration at least once in so many seconds.
SOON = 60
#: Statuses of Nova's migrations that have moved their instance.
MOVED = ('completed', 'confirmed')


@dataclasses.dataclass(frozen=True)
class TaskRecord:
    """A task as the database has it; ``migrations`` are UUIDs, one for each attempt."""

    task_id: str
    instance: str
    to_host: str
    state: str
    worker: str | None
    error_type: str | None
    migrations: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class MigrationRecord:
    """A migration as Nova's database has it.

    ``deleted``: a user has deleted its instance at most SOON seconds after its end.
    """

    uuid: str
    instance: str
    to_host: str
    status: str
    deleted: bool = False


def judge_moves(tasks: Iterable[TaskRecord], migrations: Iterable[MigrationRecord]) -> list[str]:
    """Return the moves that were lost, doubled or misjudged, in words.

    Nova's API hides the migrations of a deleted instance. So a task whose instance a user deletes
    between two looks is cancelled, also where its migration has moved the instance; and it names no
    migration where the executor had not seen one before.

    :param migrations: those that the account of the daemons asked for.
    """
    by_uuid = {migration.uuid: migration for migration in migrations}
    owners: dict[str, list[TaskRecord]] = {}
    nameless: collections.Counter[tuple[str, str]] = collections.Counter()
    found = []
    for task in tasks:
        if task.state == 'cancelled' and not by_uuid.keys() & task.migrations:
            nameless[task.instance, task.to_host] += 1
        for uuid in task.migrations:
            owners.setdefault(uuid, []).append(task)
        moved = [uuid for uuid in task.migrations
                 if uuid in by_uuid and by_uuid[uuid].status in MOVED]
        if task.state not in ('completed', 'failed', 'cancelled'):
            found.append(f'task {task.task_id} never ended: it is {task.state}')
        elif task.state == 'completed' and len(moved) != 1:
            found.append(f'task {task.task_id} is completed and has {len(moved)} migrations that '
                         f'moved instance {task.instance}')
        elif task.state != 'completed' and moved and not (
                task.state == 'cancelled' and by_uuid[moved[0]].deleted):
            found.append(f'task {task.task_id} is {task.state} ({task.error_type}), but migration '
                         f'{moved[0]} has moved instance {task.instance}')
    for migration in by_uuid.values():
        names = owners.get(migration.uuid, [])
        move = migration.instance, migration.to_host
        if migration.deleted and not names and nameless[move]:
            nameless[move] -= 1
        elif migration.status in MOVED and len(names) != 1:
            found.append(f'migration {migration.uuid} of instance {migration.instance} to '
                         f'{migration.to_host} belongs to {len(names)} tasks')
    return found


def read_tasks(run: Run) -> list[TaskRecord]:
    """Read every task of the database ``kronos``."""
    rows = mariadb.execute(run, [
        'SELECT task_id, instance_uuid, to_host, state, worker, error_type, reference, attempts '
        'FROM kronos.task'])
    return [TaskRecord(
        task_id, instance, to_host, state, worker, error_type, tuple(dict.fromkeys(
            uuid for uuid in (*(attempt.get('migration_uuid') for attempt in
                                json.loads(attempts or '[]')), reference) if uuid)))
        for task_id, instance, to_host, state, worker, error_type, reference, attempts in rows]


def read_migrations(run: Run, user: str | None) -> list[MigrationRecord]:
    """Read the migrations that a user asked for, from Nova's database: its API pages them."""
    rows = mariadb.execute(run, [
        'SELECT m.uuid, m.instance_uuid, m.dest_compute, m.status, i.deleted AND '
        f'TIMESTAMPDIFF(SECOND, m.updated_at, i.deleted_at) <= {SOON} '
        'FROM nova.migrations m JOIN nova.instances i ON i.uuid = m.instance_uuid '
        f"WHERE m.user_id = '{user}'"])
    return [MigrationRecord(str(uuid), str(instance), str(to_host), str(status), bool(deleted))
            for uuid, instance, to_host, status, deleted in rows]


def find_account(cloud: Cloud, name: str = ACCOUNT) -> str:
    """Return the ID of the user as which the daemons speak.

    :param name: that of the user; it is the soak's by default.
    """
    [user] = cloud.call('GET', 'keystone', f'/v3/users?name={name}')['users']
    return str(user['id'])


def judge_places(servers: Iterable[Mapping[str, Any]], allocations: Mapping[str, frozenset[str]],
                 failed_for_users: Collection[str] = ()) -> list[str]:
    """Return instances that Nova and Placement do not have in one and the same place, in words.

    :param allocations: hosts on which Placement has something for each instance.
    :param failed_for_users: instances in ERROR by a request of a user, which prove nothing.
    """
    found = []
    for server in servers:
        uuid, host = str(server['id']), server['OS-EXT-SRV-ATTR:host']
        if host is None:
            # A request to build it was lost with a dead service of Nova.
            continue
        places = allocations.get(uuid, frozenset())
        if uuid in failed_for_users:
            continue
        if server['status'] == 'ERROR':
            found.append(f'instance {uuid} is in ERROR: '
                         f'{server.get("fault", {}).get("message", "no reason given")}')
        elif server['OS-EXT-STS:task_state'] is not None:
            found.append(f'instance {uuid} has the task state {server["OS-EXT-STS:task_state"]}')
        elif places != {host}:
            found.append(f'instance {uuid} is on {host} and has allocations on '
                         f'{", ".join(sorted(places)) or "no host"}')
    return found


def list_failed_for_users(cloud: Cloud, servers: Iterable[Mapping[str, Any]],
                          account: str) -> list[str]:
    """Return instances in ERROR whose newest request to Nova did not come from our daemons.

    :param account: ID of the user as which the daemons speak.
    """
    failed = []
    for server in servers:
        if server['status'] == 'ERROR':
            actions = cloud.call('GET', 'nova',
                                 f'/v2.1/servers/{server["id"]}/os-instance-actions')
            newest = max(actions['instanceActions'], key=lambda action: action['start_time'])
            if newest['user_id'] != account:
                failed.append(str(server['id']))
    return failed


def read_allocations(cloud: Cloud) -> dict[str, frozenset[str]]:
    """Read from Placement on which hosts each consumer has allocations."""
    found: dict[str, set[str]] = {}
    for provider in cloud.resource_providers():
        held = cloud.call('GET', 'placement',
                          f'/resource_providers/{provider["uuid"]}/allocations')['allocations']
        for consumer in held:
            found.setdefault(consumer, set()).add(str(provider['name']))
    return {consumer: frozenset(hosts) for consumer, hosts in found.items()}


def count_open_tasks(run: Run) -> int:
    """Return how many tasks have not ended."""
    [[count]] = mariadb.execute(
        run, ['SELECT COUNT(*) FROM kronos.task WHERE active_instance IS NOT NULL'])
    return int(count)
