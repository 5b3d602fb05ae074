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

"""Users and operators in a soak: boots, deletes, resizes and what else they ask of Nova.

Each action is a generator that yields the seconds until it goes on. A request that Nova refuses,
or that meets a dead service, is counted and given up; what must be undone is tried again.
"""

from collections.abc import Callable
from collections.abc import Iterator
import json
import random
import time
from typing import Any

from tools.cloud import rebalancer
from tools.cloud.client import ApiError
from tools.cloud.client import Cloud
from tools.cloud.run import Run
from tools.cloud.stage import Stage

Actor = Iterator[float]

#: name, vCPUs, MiB, GiB
FLAVORS = (('soak-small', 1, 2048, 5), ('soak-medium', 2, 4096, 5), ('soak-large', 4, 8192, 5))
#: Seconds between two tries of a request that must succeed in the end.
RETRY_SECONDS = 10.0
#: Seconds between two looks whether a host is empty.
LOOK_SECONDS = 15.0
PREFIX = 'soak-'
#: Nova refuses, does not answer, or leaves fields out while it cannot read its cell.
REFUSALS = (ApiError, KeyError)
REASON = 'a drain of the soak'
#: Instances of the beginning that are built at a time.
BOOTED_TOGETHER = 30


class People:
    """Acts for users and operators by the names of their actions."""

    def __init__(self, run: Run, instances: int, seed: int) -> None:
        self._run, self._instances = run, instances
        self._stage = Stage(run)
        self.cloud: Cloud = self._stage.cloud
        self._draws = random.Random(seed)
        self._flavors = [self.cloud.ensure_flavor(*flavor) for flavor in FLAVORS]
        self._number = 0
        self._actions: dict[str, Callable[[], Actor]] = {
            'user boots instances': self._boot_missing,
            'user deletes an instance': self._delete_one,
            'user deletes a moving instance': lambda: self._delete_one(is_moving=True),
            'user resizes an instance': self._resize_one,
            'user resizes a moving instance': lambda: self._resize_one(is_moving=True),
            'user stops an instance': self._stop_one,
            'user locks an instance': self._lock_one,
            'operator migrates an instance': self._migrate_one,
            'operator cancels a migration': self._cancel_migration,
            'operator repairs instances in ERROR': self.repair_instances,
        }
        self.actions = tuple(self._actions)
        #: Drains: host, number of instances, seconds until it was empty (None: it never was).
        self.drains: list[tuple[str, int, float | None]] = []
        #: Nova's message for each instance that was in ERROR and that an operator has repaired.
        self.repaired: dict[str, str] = {}

    def begin(self, name: str) -> Actor:
        """Return the actor of an action."""
        return self._actions[name]()

    # -- the cloud ---------------------------------------------------------------

    def fill(self) -> None:
        """Boot every instance of the beginning, a few at a time, and wait until all are ACTIVE."""
        for booted in range(0, self._instances, BOOTED_TOGETHER):
            self._stage.wait_active([
                self._boot() for _ in range(min(BOOTED_TOGETHER, self._instances - booted))])

    def list_servers(self) -> list[dict[str, Any]]:
        return self.cloud.servers()

    def _boot(self) -> str:
        self._number += 1
        flavor = self._flavors[self._number % len(self._flavors)]
        return self.cloud.boot(f'{PREFIX}{self._number}', flavor, self._stage.image)

    def _act(self, uuid: str, action: dict[str, Any]) -> None:
        self.cloud.call('POST', 'nova', f'/v2.1/servers/{uuid}/action', action)

    def _choose(self, is_moving: bool = False, status: str = 'ACTIVE') -> dict[str, Any] | None:
        found = [s for s in self.cloud.servers() if not s.get('locked') and (
            s['OS-EXT-STS:task_state'] == 'migrating' if is_moving
            else s['status'] == status and s['OS-EXT-STS:task_state'] is None)]
        return self._draws.choice(found) if found else None

    def insist(self, request: Callable[[], object]) -> Actor:
        """Repeat a request until its service accepts it."""
        while True:
            try:
                request()
            except REFUSALS:
                yield RETRY_SECONDS
            else:
                return

    # -- users -------------------------------------------------------------------

    def _boot_missing(self) -> Actor:
        missing = self._instances - len(self.cloud.servers())
        for _ in range(min(missing, 10)):
            self._boot()
        yield from ()

    def _delete_one(self, is_moving: bool = False) -> Actor:
        if server := self._choose(is_moving):
            self.cloud.delete(server['id'])
        yield from ()

    def _resize_one(self, is_moving: bool = False) -> Actor:
        server = self._choose(is_moving)
        if server is None:
            return
        wanted = [flavor for flavor, (name, *_) in zip(self._flavors, FLAVORS, strict=True)
                  if name != server['flavor']['original_name']]
        self._act(server['id'], {'resize': {'flavorRef': self._draws.choice(wanted)}})
        for _ in range(12):
            yield 10.0
            found = self.cloud.server(server['id'])
            if found['status'] == 'VERIFY_RESIZE':
                yield from self.insist(
                    lambda: self._act(server['id'], {'confirmResize': None}))
                return

    def _stop_one(self) -> Actor:
        server = self._choose()
        if server is None:
            return
        self._act(server['id'], {'os-stop': None})
        yield 120.0
        if self.cloud.server(server['id'])['status'] == 'SHUTOFF':
            self._act(server['id'], {'os-start': None})

    def _lock_one(self) -> Actor:
        server = self._choose()
        if server is None:
            return
        self._act(server['id'], {'lock': None})
        yield 180.0
        self._act(server['id'], {'unlock': None})

    # -- operators -----------------------------------------------------------------

    def _migrate_one(self) -> Actor:
        if server := self._choose():
            self.cloud.live_migrate(server['id'], None)
        yield from ()

    def _cancel_migration(self) -> Actor:
        running = [m for m in self.cloud.migrations()
                   if m['status'] in ('running', 'preparing', 'queued')
                   and m['migration_type'] == 'live-migration']
        if running:
            migration = self._draws.choice(running)
            path = f'/servers/{migration["instance_uuid"]}/migrations/{migration["id"]}'
            self.cloud.call('DELETE', 'nova', f'/v2.1{path}')
        yield from ()

    def repair_instances(self) -> Actor:
        """Make instances ACTIVE again that are in ERROR, as far as a quarantine names them.

        Nova puts an instance into ERROR when Placement or Keystone dies under its migration, and
        its guest runs on. An instance in ERROR that no quarantine names is repaired by no operator.
        """
        status, output = rebalancer.ask(self._run, 'quarantine', 'list', '-f', 'json')
        named = {row['Name'] for row in json.loads(output) if row['Kind'] == 'instance'
                 } if status == 0 else set()
        for server in self.cloud.servers():
            uuid = str(server['id'])
            if uuid in named and server['status'] == 'ERROR':
                self._act(uuid, {'os-resetState': {'state': 'active'}})
                self.repaired[uuid] = str(server.get('fault', {}).get('message', 'no reason given'))
            if uuid in named and uuid in self.repaired:
                # If the database is away, the next repair lifts it.
                rebalancer.ask(self._run, 'quarantine', 'lift', 'instance', uuid)
        yield from ()

    def drain(self, longest: float) -> Actor:
        """Disable the fullest host, wait until it is empty, and enable it again.

        :param longest: seconds after which it is enabled in any case.
        """
        counts: dict[str, int] = dict.fromkeys(self._run.state.hosts, 0)
        for server in self.cloud.servers():
            if server['OS-EXT-SRV-ATTR:host'] in counts:
                counts[server['OS-EXT-SRV-ATTR:host']] += 1
        host = max(counts, key=lambda one: counts[one])
        yield from self.insist(lambda: self.cloud.set_service(host, 'disabled', REASON))
        began, is_empty = time.monotonic(), False
        while not is_empty and time.monotonic() - began < longest:
            yield LOOK_SECONDS
            try:
                servers = self.cloud.servers()
                # Nova may answer with an empty list while a query fails in its cell.
                is_empty = bool(servers) and not any(
                    s['OS-EXT-SRV-ATTR:host'] == host for s in servers)
            except REFUSALS:
                continue
        self.drains.append(
            (host, counts[host], time.monotonic() - began if is_empty else None))
        yield from self.insist(lambda: self.cloud.set_service(host, 'enabled'))
