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

"""The database as it is, read without any code of ours."""

import dataclasses
import json
import sqlite3
from typing import Any


@dataclasses.dataclass
class Task:
    task_id: str
    plan_id: str
    scope: str
    instance: str
    from_host: str
    to_host: str
    phase: str
    state: str
    worker: str | None
    requires: list[str]
    not_before: float
    marker: str | None
    error: str | None
    attempts: list[dict[str, Any]]
    #: The UUID of the migration that its executor watches; before, Nova's request ID.
    reference: str | None


@dataclasses.dataclass
class Plan:
    plan_id: str
    scope: str
    epoch: int
    moves: list[dict[str, Any]]
    tasks: list[Task]


@dataclasses.dataclass(frozen=True)
class Campaign:
    """The only campaign; ``hosts``: their state and worker."""

    campaign_id: str
    scope: str
    reason: str
    state: str
    opened: bool
    held_by: str
    held_because: str
    waits: str
    hosts: dict[str, tuple[str, str | None]]
    #: When each host got its state, and what the database says of it.
    since: dict[str, float]
    details: dict[str, str]

    @property
    def is_over(self) -> bool:
        return self.state in ('done', 'aborted')

    @property
    def closed_hosts(self) -> list[str]:
        """Hosts that are to come, and to which nothing may move while another has begun."""
        begun = any(state not in ('to-come', 'done', 'skipped')
                    for state, _worker in self.hosts.values())
        return [] if self.opened or not begun or self.state not in ('running', 'paused') else [
            host for host, (state, _worker) in self.hosts.items() if state == 'to-come']

    @property
    def progress(self) -> tuple[Any, ...]:
        """What changes when the campaign goes on."""
        return self.state, tuple(self.hosts.items()), tuple(self.since.items())


def tasks(connection: sqlite3.Connection) -> dict[str, Task]:
    task_by_id = {}
    for row in connection.execute(
            'SELECT task_id, plan_id, scope, instance_uuid, from_host, to_host, phase, state, '
            'worker, requires, not_before, marker, error, attempts, reference FROM task '
            'ORDER BY task_id'):
        task_by_id[row[0]] = Task(*row[:9], json.loads(row[9]), *row[10:13],
                                  json.loads(row[13] or '[]'), row[14])
    return task_by_id


def plans(connection: sqlite3.Connection, after: int,
          known: dict[str, Task]) -> tuple[int, list[Plan]]:
    """The plans that came after a row, and the last row."""
    rows = connection.execute(
        'SELECT rowid, plan_id, scope, epoch, document FROM plan WHERE rowid > ? '
        'AND NOT dry_run ORDER BY rowid', (after,)).fetchall()
    return (rows[-1][0] if rows else after), [
        Plan(plan_id, scope, epoch, json.loads(document)['moves'],
             [t for t in known.values() if t.plan_id == plan_id])
        for _row, plan_id, scope, epoch, document in rows]


def swaps(connection: sqlite3.Connection) -> list[tuple[str, str, list[list[str]]]]:
    """(plan, state, members: instance, where it was, where it is to go) of each."""
    return [(plan_id, state, json.loads(members)) for plan_id, state, members in
            connection.execute('SELECT plan_id, state, members FROM swap ORDER BY rowid')]


def campaign(connection: sqlite3.Connection) -> Campaign | None:
    row = connection.execute(
        'SELECT campaign_id, scope, reason, state, opened, held_by, held_because, waits '
        'FROM campaign').fetchone()
    if row is None:
        return None
    hosts = connection.execute(
        'SELECT host, state, worker, since, detail FROM campaign_host '
        'ORDER BY position').fetchall()
    return Campaign(*row[:4], bool(row[4]), *row[5:],
                    {host: (state, worker) for host, state, worker, *_rest in hosts},
                    {row[0]: row[3] for row in hosts}, {row[0]: row[4] for row in hosts})


def lease(connection: sqlite3.Connection, scope: str) -> tuple[str, int, float] | None:
    row: tuple[str, int, float] | None = connection.execute(
        'SELECT owner, epoch, until FROM lease WHERE scope = ?', (scope,)).fetchone()
    return row


def cooldown(connection: sqlite3.Connection, instance: str) -> float:
    row = connection.execute(
        "SELECT until FROM cooldown WHERE kind = 'instance' AND name = ?",
        (instance,)).fetchone()
    return float('-inf') if row is None else float(row[0])


def quarantined(connection: sqlite3.Connection, instance: str, since: float,
                until: float) -> bool:
    """From long enough ago, for long enough."""
    return connection.execute(
        "SELECT 1 FROM quarantine WHERE kind = 'instance' AND name = ? AND since < ? "
        'AND (until IS NULL OR until > ?)', (instance, since, until)).fetchone() is not None


def forever(connection: sqlite3.Connection, instance: str) -> bool:
    return connection.execute(
        "SELECT 1 FROM quarantine WHERE kind = 'instance' AND name = ? AND until IS NULL",
        (instance,)).fetchone() is not None


def paused(connection: sqlite3.Connection, scope: str, until: float) -> bool:
    return connection.execute(
        "SELECT 1 FROM pause WHERE (kind = 'cloud' OR name = ?) "
        'AND (until IS NULL OR until > ?)', (scope, until)).fetchone() is not None


def owed(connection: sqlite3.Connection, key: str | None = None) -> list[tuple[str, str]]:
    """(key, task) of the hooks that are owed, or of one."""
    return connection.execute('SELECT owed_id, task_id FROM owed_hook '
                              'WHERE ?1 IS NULL OR owed_id = ?1', (key,)).fetchall()
