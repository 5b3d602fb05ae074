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

"""The served hosts, the scope of each, and the server that a name means."""

from collections.abc import Mapping
from collections.abc import Sequence
import threading
import types
from typing import Any
import uuid as uuid_lib

from oslo_utils import strutils
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api


class NotMeant(exception.KronosException):
    """The name means no server, or several."""

    msg_fmt = '%(problem)s'
    code = 'kronos.migfra.not_meant'


class ScopesByHost:
    """Scopes by host, as of the last look; for several threads.

    :param zone: the availability zone whose hosts are planned; None: all zones.
    """

    def __init__(self, nova: nova_api.NovaApi, scopes: Sequence[str],
                 zone: str | None = None) -> None:
        self._nova = nova
        self._zone = zone
        self._scopes = tuple(scopes)
        self._lock = threading.Lock()
        self._scope_by_host: Mapping[str, str] | None = None

    def refresh_hosts(self) -> Mapping[str, str]:
        """Read the hosts and their scopes again.

        :raises ApiError: Nova did not answer; the previous hosts stay.
        """
        services, aggregates = self._nova.read_services(), self._nova.read_aggregates()
        scope_by_host: dict[str, str] = {}
        aggregate_hosts = {host for aggregate in aggregates.values() for host in aggregate.hosts}
        for scope in self._scopes:
            # As an engine: a host in two aggregates belongs to the first.
            hosts = (set(services) - aggregate_hosts if scope == model.UNASSIGNED
                     else set(aggregates[scope].hosts) & services.keys()
                     if scope in aggregates else set())
            for host in hosts:
                if self._zone is not None and services[host].zone != self._zone:
                    continue
                scope_by_host.setdefault(host, scope)
        with self._lock:
            self._scope_by_host = scope_by_host
        return scope_by_host

    def find_scope(self, host: str) -> str | None:
        """Return the scope of a host; None when it is in none of ours.

        :raises ApiError: the hosts have not been read yet.
        """
        with self._lock:
            if self._scope_by_host is None:
                raise api.ApiError('Nova', 'hosts', 'which there are is not known yet')
            return self._scope_by_host.get(host)


def resolve_server(nova: nova_api.NovaApi, name: str, projects: frozenset[str] | None, host: str,
                   here: Mapping[str,
                                 nova_api.Server] = types.MappingProxyType({})) -> nova_api.Server:
    """Return the server with this UUID, else the only one with this name.

    :param projects: the permitted projects; None: all projects. Servers of other projects are not
        mentioned, not even their existence.
    :param host: the host where the server has to be.
    :param here: servers by UUID that a list has shown a moment ago; they are not read again.
    :raises NotMeant: no server or several match, or it is on another host.
    :raises ApiError: Nova did not answer.
    """
    server = _by_uuid(nova, name, here) if uuidutils.is_uuid_like(name) else None
    server = server or _by_name(nova, name, projects, here)
    if server is None or (projects is not None and server.instance.project_id not in projects):
        raise NotMeant(problem='no such server in a project that may be asked for')
    if server.instance.host != host:
        raise NotMeant(problem='it is on '
                               f'{api.format_printable(server.instance.host) or "no host"}, not '
                               f'on {host}')
    return server


def _by_uuid(nova: nova_api.NovaApi, uuid: str,
             here: Mapping[str, nova_api.Server]) -> nova_api.Server | None:
    uuid = str(uuid_lib.UUID(uuid))
    if uuid in here:
        return here[uuid]
    try:
        return nova.read_server(uuid)
    except api.ApiError as e:
        if e.status == 404:
            return None
        raise


def _by_name(nova: nova_api.NovaApi, name: str, projects: frozenset[str] | None,
             here: Mapping[str, nova_api.Server]) -> nova_api.Server | None:
    named_servers = [i for i in nova.servers_named(name)
                     if projects is None or i.project_id in projects]
    if len(named_servers) > 1:
        raise NotMeant(problem=f'{len(named_servers)} servers bear the name; give the UUID of one')
    return _by_uuid(nova, named_servers[0].uuid, here) if named_servers else None


def list_pci_devices(instance: model.Instance, aliases: Mapping[str, tuple[int, int]],
                     ) -> set[tuple[int, int]] | None:
    """Return vendor and device of the flavor's PCI devices; None where a name is unknown."""
    wanted = str((instance.extra_specs or {}).get('pci_passthrough:alias', ''))
    names = [part.partition(':')[0].strip() for part in wanted.split(',') if part.strip()]
    if any(name not in aliases for name in names):
        return None
    return {aliases[name] for name in names}


def parse_pci_aliases(options: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Parse ``NAME=VENDOR/DEVICE``, both hexadecimal.

    :raises ConfigError: an option has another form.
    """
    devices_by_alias: dict[str, tuple[int, int]] = {}
    for option in options:
        name, _, pair = option.partition('=')
        vendor, _, device = pair.partition('/')
        try:
            devices_by_alias[name.strip()] = (int(vendor, 16), int(device, 16))
        except ValueError:
            raise exception.ConfigError(
                path='kronos.conf', field='[migfra] pci_aliases',
                problem=f'{option!r} names no device',
                remedy='Write NAME=VENDOR/DEVICE, such as ib=15b3/1004.') from None
    return devices_by_alias


def read_host_aliases(options: Sequence[str]) -> dict[str, str]:
    """Return Nova's names of hosts by their aliases, from ``ALIAS=HOST``.

    :raises ConfigError: one cannot be used.
    """
    hosts_by_alias: dict[str, str] = {}
    for option in options:
        alias, _, host = (part.strip() for part in option.partition('='))
        problem = None
        if not alias or not host or any(character in alias for character in '/+# '):
            problem = f'{option!r} names no host'
        elif alias in hosts_by_alias or host in hosts_by_alias.values():
            problem = f'{option!r}: the alias or the host is there already'
        if problem is not None:
            raise exception.ConfigError(
                path='kronos.conf', field='[migfra] host_aliases', problem=problem,
                remedy='Write ALIAS=HOST, such as node1=node1.example.org; each once.')
        hosts_by_alias[alias] = host
    return hosts_by_alias


def has_rdma_hosts(instance: model.Instance, extra_spec: str) -> bool:
    """Return whether the flavor says that its hosts migrate by RDMA.

    :param extra_spec: the extra spec that says it; empty: no flavor does.
    """
    value: Any = (instance.extra_specs or {}).get(extra_spec) if extra_spec else None
    return bool(strutils.bool_from_string(value))
