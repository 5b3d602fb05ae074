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

"""Start, stop, pause and unpause a server for a client of kronos-migfra."""

from collections.abc import Sequence
import dataclasses
import ipaddress
import socket
from typing import Any

from kronos_nova import exception
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
VERSION = '.'.join(map(str, nova_api.BASE))
SSH_PORT = 22
#: Addresses that a translator makes an IPv4 address from (RFC 6052).
NAT64 = ipaddress.IPv6Network('64:ff9b::/96')


@dataclasses.dataclass(frozen=True, slots=True)
class PowerAction:
    """A server action of Nova, the statuses that admit it, and the resulting status."""

    name: str
    policy: str
    admitted: frozenset[str]
    wanted: str


START = PowerAction('os-start', 'os_compute_api:servers:start', frozenset({statuses.STOPPED}),
                    statuses.ACTIVE)
STOP = PowerAction('os-stop', 'os_compute_api:servers:stop', frozenset({statuses.ACTIVE, 'ERROR'}),
                   statuses.STOPPED)
PAUSE = PowerAction('pause', 'os_compute_api:os-pause-server:pause', frozenset({statuses.ACTIVE}),
                    statuses.PAUSED)
UNPAUSE = PowerAction('unpause', 'os_compute_api:os-pause-server:unpause',
                      frozenset({statuses.PAUSED}), statuses.ACTIVE)


class PowerRefused(exception.KronosException):
    """Nova refuses the action, now or for ever."""

    msg_fmt = 'Instance %(instance_uuid)s: Nova refuses %(action)s: %(problem)s'
    code = 'kronos.power_refused'


def request_action(nova: nova_api.NovaApi, uuid: str, action: PowerAction) -> bool:
    """Request an action once.

    :returns: whether Nova has accepted it; False: the server is busy, or its status has changed.
    :raises PowerRefused: Nova refuses it for good.
    :raises ApiError: not known, or not possible now: look, and try again.
    """
    response: Any = nova.api.post(f'/servers/{uuid}/action', f'{action.name} of {uuid}', VERSION,
                                  {action.name: None})
    status = response.status_code
    if 200 <= status < 300:
        return True
    if status == 409:
        return False
    problem = nova.api.describe_refusal(response, action.policy)
    if status >= 500 or status in (408, 429):
        raise api.ApiError('Nova', f'{action.name} of {uuid}', problem, status)
    raise PowerRefused(instance_uuid=uuid, action=action.name, problem=problem)


def find_probe_address(address: str, allowed: Sequence[Network]) -> str | None:
    """Return the address to connect to; None when the probe may not go there.

    A tenant chooses the addresses of an instance, so IPv6 forms that carry an IPv4 address
    (IPv4-mapped, 6to4, Teredo, NAT64) are judged by that address as well: it has to be in an
    allowed network, too. A mapped one is connected to by IPv4, as the kernel would.

    :param allowed: the networks that an operator has opened to the probe.
    """
    try:
        parsed: Address = ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    for judged in (parsed, *_find_embedded(parsed)):
        if _is_local(judged) or not any(judged in network for network in allowed):
            return None
    return str(parsed)


def _find_embedded(address: Address) -> list[Address]:
    """Return IPv4 addresses that a relay would unpack from an IPv6 address."""
    if not isinstance(address, ipaddress.IPv6Address):
        return []
    nat64 = (ipaddress.IPv4Address(int(address) & 0xffffffff) if address in NAT64 else None)
    carried = (address.sixtofour, nat64, *(address.teredo or ()))
    return [ipv4 for ipv4 in carried if ipv4 is not None]


def _is_local(address: Address) -> bool:
    """Return whether an address means this machine or its links."""
    return (address.is_loopback or address.is_link_local or address.is_multicast
            or address.is_unspecified)


def answers_ssh(address: str, port: int = SSH_PORT, seconds: float = 1.0) -> bool:
    """Return whether an SSH server sends its banner there, within twice the time."""
    try:
        with socket.create_connection((address, port), timeout=seconds) as ssh_socket:
            return ssh_socket.recv(4) == b'SSH-'
    except OSError:
        return False
