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

"""The list of servers: complete now and then, and in between the servers that have changed.

Nova spends milliseconds on each server that it lists, and most servers do not change from one
cycle to the next. So the reader remembers them, and queries Nova for the changes since.

Such a query may miss a change. Nova compares ``instances.updated_at``, which a tag and a deletion
of metadata do not touch, and which stays as it was when the row is deleted
(oslo_db.sqlalchemy.orm, soft_delete); ``archive_deleted_rows`` takes the row away; and a query that
fails in one cell leaves its servers out without an error. Three measures answer this. Each change
is queried in two readings one after the other. Placement has a database of its own: a remembered
server whose allocations do not fit its host is looked up alone. And all servers are listed again
after an interval. A list of all servers may be incomplete in the same way: remembered servers that
it lacks are looked up. Executors read an instance before they move it, opt-out included.
"""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import hidden_servers
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import server_constraints

#: The clocks of Nova's hosts and of this one may differ by so many seconds.
CLOCK_SECONDS = 60.0
#: Servers to look up alone in one reading, at most; where more are doubtful, all are listed.
MOST_LOOKUPS = 10
#: Remembered servers to look up that a list of all servers lacks, at most: as many are deleted in a
#: cycle of a busy cloud.
MOST_MISSING = 100


@dataclasses.dataclass(frozen=True, slots=True)
class ServerList:
    """The servers of all projects, also those on no host.

    :ivar instances: by UUID.
    :ivar remembered: UUIDs of servers that Nova did not list in this reading.
    :ivar deleted: UUIDs of servers that Nova listed as deleted in this reading.
    :ivar missing: UUIDs of remembered servers that a list of all servers lacks.
    """

    instances: Mapping[str, model.Instance]
    remembered: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class _Memory:
    """Servers of complete readings.

    :ivar listed_at: when the reading of all servers began, epoch seconds.
    :ivar latest: when the last two readings began, the older one first.
    :ivar displaced: UUIDs of servers whose allocations were not on their host alone when they were
        read.
    :ivar missing: UUIDs of servers that the list of all servers lacked; they were not looked up.
    """

    instances: Mapping[str, model.Instance]
    listed_at: float
    latest: tuple[float, float]
    shared: server_constraints.SharedMappings
    displaced: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()


class ServerListReader:
    """Reads the list of servers, with a memory.

    The memory is replaced as a whole: a reading that was given up, and ends later, leaves an older
    memory with its older time, from which the next reading goes on.

    :param interval: seconds after which all servers are listed again; 0: in each reading.
    """

    def __init__(self, nova: nova_api.NovaApi, interval: float) -> None:
        self._nova = nova
        self._interval = interval
        self._memory: _Memory | None = None

    def read_servers(self, now: float) -> ServerList:
        """Read the servers, from the memory where it holds.

        :param now: before this reading began, epoch seconds.
        :raises ApiError: a page could not be read.
        """
        memory = self._memory
        if memory is None or not 0.0 <= now - memory.listed_at < self._interval or (
                now < memory.latest[1]):
            return self.read_all_servers(now)
        changes = self._nova.list_servers(memory.latest[0] - CLOCK_SECONDS, memory.shared)
        instances = {uuid: instance for uuid, instance in memory.instances.items()
                     if uuid not in changes.deleted}
        instances.update(changes.instances)
        self._memory = dataclasses.replace(
            memory, instances=instances, latest=(memory.latest[1], now),
            displaced=memory.displaced - changes.instances.keys())
        return ServerList(instances, frozenset(instances.keys() - changes.instances.keys()),
                          changes.deleted, memory.missing - instances.keys() - changes.deleted)

    def read_all_servers(self, now: float) -> ServerList:
        """Read all servers; leave out those in cells that do not answer, and do not remember then.

        :param now: before this reading began, epoch seconds.
        :raises ApiError: a page could not be read.
        """
        shared = server_constraints.SharedMappings()
        listed = self._nova.list_servers(shared=shared)
        before = self._memory
        missing: frozenset[str] = frozenset()
        if before is not None:
            missing = frozenset((before.instances.keys() | before.missing)
                                - listed.instances.keys() - listed.deleted)
        self._memory = None if listed.has_unknown else _Memory(
            listed.instances, now, (now, now), shared, missing=missing)
        return ServerList(listed.instances, deleted=listed.deleted, missing=missing)

    def forget_servers(self) -> None:
        """Let the next reading list all servers."""
        self._memory = None

    def look_up_doubtful(self, reads: parallel_reads.ReadingContext, servers: ServerList,
                         displaced: Collection[str], now: float) -> ServerList:
        """Look up remembered servers that have newly other allocations than their host's.

        Nova has moved or deleted them, and did not list the change; or their allocations alone have
        changed, which is remembered. Look up remembered servers, too, that a list of all servers
        lacks: they were deleted since, or the list is incomplete.

        :param servers: of this reading.
        :param displaced: UUIDs of all servers whose allocations are not on their host alone.
        :param now: when this reading began, epoch seconds.
        :returns: the servers as they are.
        :raises ApiError: one could not be read, or the list of all servers lacks one.
        """
        self._refuse_incomplete_list(reads, servers.missing)
        memory = self._memory
        if memory is None:
            return servers
        doubtful = sorted(set(displaced).intersection(servers.remembered) - memory.displaced)
        if len(doubtful) > MOST_LOOKUPS:
            servers = reads.read_one('Nova', 'servers', lambda: self.read_all_servers(now))
        elif doubtful:
            looked_up = reads.read_each('Nova', 'servers', self._find_server, doubtful)
            instances = dict(servers.instances)
            for uuid, instance in looked_up.items():
                if instance is None:
                    del instances[uuid]
                else:
                    instances[uuid] = instance
            servers = dataclasses.replace(servers, instances=instances)
        memory = self._memory
        if memory is not None:
            self._memory = dataclasses.replace(
                memory, instances=servers.instances, missing=frozenset(),
                displaced=frozenset(servers.instances.keys() & displaced))
        return servers

    def _refuse_incomplete_list(self, reads: parallel_reads.ReadingContext,
                                missing: Collection[str]) -> None:
        """Check that servers that were remembered, and are not listed, are gone.

        :raises ApiError: one is not.
        """
        if len(missing) > MOST_MISSING:
            self.forget_servers()
            return
        looked_up = reads.read_each('Nova', 'servers', self._find_server, sorted(missing))
        for uuid, instance in looked_up.items():
            if instance is not None:
                self.forget_servers()
                raise hidden_servers.make_hidden_error(uuid, instance.host)

    def _find_server(self, uuid: str) -> model.Instance | None:
        """Return a server; None when Nova has none."""
        try:
            instance = self._nova.read_server(uuid).instance
        except api.ApiError as exc:
            if exc.status != 404:
                raise
            return None
        return None if instance.status in nova_records.DELETED else instance
