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

"""Hypervisors, also while a cell does not answer.

Nova then fails every list of hypervisors, because it reads its cells one after the other. A
hypervisor's fields do not change, so the last good answer serves meanwhile. It also serves while
the hosts with a nova-compute are the same, for a time: Nova spends about 5 ms on each hypervisor.
"""

from collections.abc import Collection
import threading

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api


class HypervisorReader:
    """Reads hypervisors and remembers them."""

    def __init__(self, nova: nova_api.NovaApi) -> None:
        self._nova = nova
        self._by_host: dict[str, list[nova_api.Hypervisor]] = {}
        self._lock = threading.Lock()
        self._has_all = False
        #: The hosts that the services named before the last list, and when it was read.
        self._listed_for: tuple[frozenset[str], float] | None = None

    def read_again(self, hosts: Collection[str], now: float,
                   interval: float) -> list[nova_api.Hypervisor]:
        """Return all hypervisors; list them only for other hosts, or after an interval.

        :param hosts: names of the hosts with a nova-compute.
        :param now: epoch seconds.
        :param interval: seconds; 0: list them always.
        :raises ApiError: as :meth:`read`.
        """
        known = self._listed_for
        if known is not None and known[0] == set(hosts) and 0.0 <= now - known[1] < interval:
            return self._list_remembered()
        hypervisors = self.read()
        self._listed_for = frozenset(hosts), now
        return hypervisors

    def forget_list(self) -> None:
        """Let the next :meth:`read_again` list the hypervisors."""
        self._listed_for = None

    def read(self) -> list[nova_api.Hypervisor]:
        """Return all hypervisors.

        :raises ApiError: also while a cell does not answer, unless an earlier call has read them.
        """
        try:
            hypervisors = self._nova.read_hypervisors()
        except api.ApiError as exc:
            if not self._by_host or not self._misses_cell(exc):
                raise
            return self._list_remembered()
        self._remember_by_host(hypervisors)
        return hypervisors

    def _list_remembered(self) -> list[nova_api.Hypervisor]:
        return [h for of_host in self._by_host.values() for h in of_host]

    def read_host_hypervisors(self, host: str) -> list[nova_api.Hypervisor]:
        """Return the hypervisors of a host; read all others as well unless that has been done.

        :raises ApiError: also while a cell does not answer, unless an earlier call has read the
            host's.
        """
        self._read_all_once()
        try:
            hypervisors = self._nova.hypervisors_of(host)
        except api.ApiError as exc:
            if host not in self._by_host or not self._misses_cell(exc):
                raise
            return self._by_host[host]
        self._by_host[host] = hypervisors
        return hypervisors

    def _read_all_once(self) -> None:
        """Read all until that has worked once, so that none is missing while a cell is silent."""
        with self._lock:  # Both ends of a move are read at once.
            if self._has_all:
                return
            try:
                self._remember_by_host(self._nova.read_hypervisors())
            except api.ApiError:
                return  # The read of the host raises the cause; the next one tries all again.

    def _remember_by_host(self, hypervisors: list[nova_api.Hypervisor]) -> None:
        """Remember the list of all hypervisors."""
        by_host: dict[str, list[nova_api.Hypervisor]] = {}
        for hypervisor in hypervisors:
            by_host.setdefault(hypervisor.host, []).append(hypervisor)
        self._by_host = by_host
        self._has_all = True

    def _misses_cell(self, error: api.ApiError) -> bool:
        return error.status is not None and error.status >= 500 and misses_cell(self._nova)


def misses_cell(nova: nova_api.NovaApi) -> bool:
    """Return whether a cell does not answer Nova; False also where Nova itself does not."""
    try:
        services = nova.services_of_all_cells()
    except api.ApiError:
        return False
    return any(service.status == model.UNKNOWN for service in services.values())
