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

"""Stores that keep bytes by key: a directory, or memcached.

pymemcache hands over raw bytes. An operation is bounded in time and size.
"""

import hashlib
import os
from pathlib import Path
import socket
import ssl
import stat
import time
from typing import Any, ClassVar, Protocol

from oslo_config import cfg
from pymemcache.client import hash as hash_client

from kronos_nova import exception

#: Seconds after which a server that failed is tried again, at the latest.
MAX_DEAD_SECONDS = 30


class RecordRefused(exception.KronosException):
    """A record in the cache is not one of ours."""

    msg_fmt = 'The record %(key)s in the cache is refused: %(problem)s'
    code = 'kronos.record_refused'


class ByteStore(Protocol):
    """Bytes by key."""

    def get(self, key: str) -> bytes | None: ...

    def set(self, key: str, value: bytes, expire: int = 0) -> None: ...

    def delete(self, key: str) -> None: ...


class NoStore:
    """A store that keeps nothing, because no cache is configured."""

    def get(self, key: str) -> bytes | None:
        return None

    def set(self, key: str, value: bytes, expire: int = 0) -> None:
        return None

    def delete(self, key: str) -> None:
        return None


class DirectoryStore:
    """A file for each key; for engine and nova-scheduler on one host."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._path = Path(conf.kronos_channel.directory)
        self._max_bytes = int(conf.kronos_channel.max_bytes)
        try:
            status = self._path.stat()
        except OSError as e:
            raise self._build_config_error(conf, f'it cannot be used: {e.strerror}') from e
        if not stat.S_ISDIR(status.st_mode) or status.st_mode & stat.S_IWOTH:
            raise self._build_config_error(conf,
                                           'it is no directory, or every user may write into it')

    def _build_config_error(self, conf: cfg.ConfigOpts, problem: str) -> exception.ConfigError:
        return exception.ConfigError(
            path=find_file(conf), field=f'[kronos_channel] directory {self._path}',
            problem=problem, remedy='Make a directory that only the users of kronos-engine and '
                                    'nova-scheduler may write into.')

    def _build_file_path(self, key: str) -> Path:
        return self._path / hashlib.sha256(key.encode()).hexdigest()

    def get(self, key: str) -> bytes | None:
        try:
            with self._build_file_path(key).open('rb') as file:
                value = file.read(self._max_bytes + 1)
        except FileNotFoundError:
            return None
        if len(value) > self._max_bytes:
            raise RecordRefused(key=key, problem=f'it has more than {self._max_bytes} bytes')
        return value

    def set(self, key: str, value: bytes, expire: int = 0) -> None:
        file = self._build_file_path(key)
        draft = file.with_name(f'{file.name}.{os.getpid()}')
        draft.write_bytes(value)
        draft.replace(file)

    def delete(self, key: str) -> None:
        self._build_file_path(key).unlink(missing_ok=True)


class MemcachedStore:
    """Raw bytes in memcached, by pymemcache; an operation is bounded in time and size."""

    def __init__(self, conf: cfg.ConfigOpts, servers: list[str]) -> None:
        if conf.cache.memcache_sasl_enabled:
            raise exception.ConfigError(
                path=find_file(conf), field='[cache] memcache_sasl_enabled',
                problem='the channel does not speak SASL',
                remedy='Set [kronos_channel] servers to a memcached without SASL, with TLS or on '
                       'a network of its own, and [kronos_channel] hmac_keys.')
        self._allowance = OperationAllowance(
            float(conf.kronos_channel.timeout), int(conf.kronos_channel.max_bytes))
        self._client = hash_client.HashClient(
            [parse_server(conf, server) for server in servers], serde=RawBytes(),
            connect_timeout=self._allowance.seconds, timeout=self._allowance.seconds,
            no_delay=True, default_noreply=False, retry_attempts=0,
            dead_timeout=min(conf.cache.memcache_dead_retry, MAX_DEAD_SECONDS),
            socket_module=BoundedSockets(self._allowance),
            tls_context=_make_tls(conf, self._allowance))

    def get(self, key: str) -> bytes | None:
        self._allowance.renew_allowance()
        value = self._client.get(key)
        if value is REFUSED:
            raise RecordRefused(key=key, problem='its flags are not 0')
        content: bytes | None = value
        return content

    def set(self, key: str, value: bytes, expire: int = 0) -> None:
        self._allowance.renew_allowance()
        self._client.set(key, value, expire=expire)

    def delete(self, key: str) -> None:
        self._allowance.renew_allowance()
        self._client.delete(key)


#: Stands for a record that a client with another serializer has written.
REFUSED = object()


class RawBytes:
    """Serializer for pymemcache that leaves bytes as they are."""

    def serialize(self, key: Any, value: bytes) -> tuple[bytes, int]:
        return value, 0

    def deserialize(self, key: Any, value: bytes, flags: int) -> Any:
        return value if flags == 0 else REFUSED


class OperationAllowance:
    """The time and the number of bytes that the current operation may still take."""

    def __init__(self, seconds: float, max_bytes: int) -> None:
        self.seconds = seconds
        self._max_bytes = max_bytes
        self.renew_allowance()

    def renew_allowance(self) -> None:
        self._deadline = time.monotonic() + self.seconds
        # Protocol lines come on top of the record.
        self._bytes_left = self._max_bytes + 4096

    def find_time_left(self) -> float:
        """Return the seconds left; raise TimeoutError when there are none."""
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError(f'memcached did not answer within {self.seconds:g} s')
        return seconds

    def count_operations(self, received: int) -> None:
        """Raise ValueError when the server sends more than a record may have."""
        self._bytes_left -= received
        if self._bytes_left < 0:
            raise ValueError(f'memcached sends more than {self._max_bytes} bytes; see '
                             '[kronos_channel] max_bytes')


class BoundedSocket(socket.socket):
    """A socket whose ``recv`` and ``sendall`` keep to an allowance."""

    allowance: ClassVar[OperationAllowance]

    def recv(self, *arguments: Any) -> bytes:
        self.settimeout(self.allowance.find_time_left())
        data = super().recv(*arguments)
        self.allowance.count_operations(len(data))
        return data

    def sendall(self, *arguments: Any) -> None:
        self.settimeout(self.allowance.find_time_left())
        super().sendall(*arguments)


class BoundedSockets:
    """The module ``socket`` as pymemcache uses it, with bounded sockets."""

    def __init__(self, allowance: OperationAllowance) -> None:
        self.socket = type('PlainSocket', (BoundedSocket,), {'allowance': allowance})

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


def _make_tls(conf: cfg.ConfigOpts, allowance: OperationAllowance) -> ssl.SSLContext | None:
    """Return a context by the tls_* options of [cache], as oslo.cache reads them."""
    options = conf.cache
    if not options.tls_enabled:
        return None
    try:
        context = ssl.create_default_context(cafile=options.tls_cafile)
        if options.tls_certfile:
            context.load_cert_chain(options.tls_certfile, options.tls_keyfile)
        if options.tls_allowed_ciphers:
            context.set_ciphers(options.tls_allowed_ciphers)
    except (OSError, ssl.SSLError) as e:
        raise exception.ConfigError(
            path=find_file(conf), field='[cache] tls_cafile, tls_certfile, tls_keyfile or '
                                         'tls_allowed_ciphers', problem=str(e),
            remedy='Correct the option, or set tls_enabled = false.') from e
    context.sslsocket_class = type(
        'TLSSocket', (BoundedSocket, ssl.SSLSocket), {'allowance': allowance})
    return context


def parse_server(conf: cfg.ConfigOpts, text: str) -> tuple[str, int] | str:
    """Return (host, port) of HOST:PORT, or the path of a Unix socket.

    The forms of python-memcached (``inet:``, ``inet6:``) are understood as well.

    :raises ConfigError: it is neither.
    """
    server = text.strip()
    if server.startswith(('unix:', '/')):
        return server.removeprefix('unix:')
    for prefix in ('inet6:', 'inet:'):
        server = server.removeprefix(prefix)
    host, _, port = server.rpartition(':') if not server.endswith(']') else (server, '', '')
    if not host and ':' not in server:
        host, port = server, '11211'
    if not host.strip('[]') or not (port or '11211').isdigit():
        raise exception.ConfigError(
            path=find_file(conf), field='[kronos_channel] servers',
            problem=f'{text!r} is no server', remedy='Write HOST:PORT, [IPV6]:PORT or unix:/PATH.')
    return host.strip('[]'), int(port or 11211)


def find_file(conf: cfg.ConfigOpts) -> str:
    """Return the configuration files, for errors."""
    return ', '.join(conf.config_file or ()) or 'the configuration'
