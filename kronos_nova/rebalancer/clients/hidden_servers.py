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

"""Servers that Nova's list lacks, although they exist.

A query that fails in one cell, for one moment, takes the servers of that cell out of
``/servers/detail``: Nova answers 200, shows their UUIDs with the status UNKNOWN, or none at all,
and the list of services shows every service as before. An empty list then looks like an empty host.
Placement has a database of its own: consumers that Nova has not listed are looked up one by one.
"""

from collections.abc import Collection
from collections.abc import Iterable

from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import nova_records
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api

#: Consumers to look up in one reading, at most. A failed query hides all servers of a cell, so
#: the first ones show it.
MOST_LOOKUPS = 10
#: A server that was launched so many seconds before the list was read, or earlier, belongs in it.
#: Clocks of Nova's hosts and of this one may differ by as much.
YOUNG_SECONDS = 60.0


class HiddenServers:
    """Looks consumers up that Nova has not listed, and remembers those that are no servers."""

    def __init__(self, nova: nova_api.NovaApi) -> None:
        self._nova = nova
        self._no_servers: set[str] = set()

    def refuse_incomplete_list(self, reads: parallel_reads.ReadingContext,
                               consumers: Iterable[str], began: float) -> None:
        """Check that Nova's list of servers was complete.

        :param consumers: UUIDs with allocations in Placement that are neither listed servers nor
            migrations under way.
        :param began: when the list was read, epoch seconds.
        :raises ApiError: it lacks a server; or a consumer could not be looked up.
        """
        strangers = set(consumers)
        self._no_servers &= strangers
        hidden = reads.read_each('Nova', 'servers', lambda uuid: self._find_hidden(uuid, began),
                                 sorted(strangers - self._no_servers)[:MOST_LOOKUPS])
        for uuid, host in hidden.items():
            if host is not None:
                raise make_hidden_error(uuid, host)

    def _find_hidden(self, uuid: str, began: float) -> str | None:
        """Return the host of a server that belongs in the list, or None."""
        try:
            instance = self._nova.read_server(uuid).instance
        except api.ApiError as exc:
            if exc.status != 404:
                raise
            self._no_servers.add(uuid)
            return None
        launched = instance.launched_at
        if instance.status in nova_records.DELETED or not instance.host:
            return None
        if launched is None or launched > began - YOUNG_SECONDS:
            return None
        return instance.host


def refuse_hidden_servers(nova: nova_api.NovaApi, placement: placement_api.PlacementApi,
                          host: str, providers: Collection[str]) -> None:
    """Check that a host that has no servers by Nova's list has none by Placement either.

    :param providers: roots of the host's provider trees.
    :raises ApiError: a server is there that the list lacks; or it could not be looked up.
    """
    for root in providers:
        for provider in placement.read_providers(in_tree=root):
            for consumer in placement.allocations_on(provider)[0]:
                try:
                    instance = nova.read_server(consumer).instance
                except api.ApiError as exc:
                    if exc.status != 404:  # Else a migration, or left over.
                        raise
                    continue
                if instance.host == host and instance.status not in nova_records.DELETED:
                    raise make_hidden_error(consumer, host)


def make_hidden_error(uuid: str, host: str) -> api.ApiError:
    return api.ApiError(
        'Nova', 'servers', f'its list lacks server {uuid}, which is on '
                           f'{api.format_printable(host)} and has allocations in Placement: a '
                           'query has failed in its cell (see the log of nova-api)')
