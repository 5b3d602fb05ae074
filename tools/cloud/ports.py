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

"""Free TCP ports of 127.0.0.1."""

from collections.abc import Sequence
import random
import socket

from tools.cloud import errors

#: below Linux' range for outgoing connections (32768-60999), above the well-known services
LOWEST, HIGHEST = 20000, 32000
NAMES = (
    'rabbitmq',
    'rabbitmq_dist',
    'epmd',
    'mariadb',
    'memcached',
    'keystone',
    'placement',
    'glance',
    'nova',
    'neutron',
    'kronos',
    'exporter',
    'prometheus',
)


def is_free(port: int) -> bool:
    """Whether nothing listens on the port, neither on 127.0.0.1 nor on every address."""
    for address in ('127.0.0.1', '0.0.0.0'):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def choose(names: Sequence[str] = NAMES, base: int | None = None) -> dict[str, int]:
    """Give each name a port: consecutive ones from ``base``, or any that are free.

    :raises errors.NotPossibleHere: a port from ``base`` on is taken, or none is free
    """
    if base is not None:
        if not 1024 <= base <= 65536 - len(names):
            raise errors.NotPossibleHere(
                f'--base-port {base}: {len(names)} ports from there are not within 1024-65535'
            )
        wanted = dict(zip(names, range(base, base + len(names)), strict=True))
        for name, port in wanted.items():
            if not is_free(port):
                raise errors.NotPossibleHere(
                    f'port {port} (for {name}) is taken: choose another --base-port, '
                    'or leave it out and free ports are found'
                )
        return wanted
    candidates = iter(random.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST))
    found = {}
    for name in names:
        free = next((p for p in candidates if is_free(p)), None)
        if free is None:
            raise errors.NotPossibleHere(f'no free port between {LOWEST} and {HIGHEST}')
        found[name] = free
    return found
