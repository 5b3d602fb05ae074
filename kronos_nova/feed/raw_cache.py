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

"""A cache that carries signed JSON text and never unpickles.

The cache backends of dogpile unpickle the answers of a memcached server: an attacker who controls
the server or its network can run code that way. Here pymemcache hands over raw bytes. A record is
accepted when its flags are 0, it is not too large and, with a key, its signature is right for
exactly this cache key. A record that is refused counts as absent.
"""

import hashlib
import hmac
import json
import os
from pathlib import Path
import re
import socket
import ssl
import stat
import time
from typing import Any, ClassVar, Protocol

from oslo_cache import core
from oslo_config import cfg
from oslo_log import log as logging
from pymemcache.client import hash as hash_client

from kronos_nova import conf as groups
from kronos_nova import exception
from kronos_nova.conf import channel

LOG = logging.getLogger(__name__)

#: Start of each record; the signature and a line feed follow.
HEAD = b'kronos-nova 1 '
MIN_KEY_LENGTH = 32
#: Seconds after which a server that failed is tried again, at the latest.
MAX_DEAD_SECONDS = 30
#: [cache] backends whose servers speak memcached's protocol.
MEMCACHED_BACKENDS = frozenset({
    'oslo_cache.memcache_pool', 'dogpile.cache.memcached', 'dogpile.cache.pymemcache',
    'dogpile.cache.bmemcached', 'dogpile.cache.pylibmc'})
#: Our documents are nested less deeply; the parser of Python gives up by RecursionError.
MAX_DEPTH = 8
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
#: Group -> options that are read.
OPTIONS = {
    'cache': ('enabled', 'backend', 'memcache_servers', 'memcache_dead_retry',
              'memcache_sasl_enabled', 'tls_enabled', 'tls_cafile', 'tls_certfile', 'tls_keyfile',
              'tls_allowed_ciphers'),
    channel.GROUP.name: tuple(opt.dest for opt in channel.OPTS)}


class RecordRefused(exception.KronosException):
    """A record in the cache is not one of ours."""

    msg_fmt = 'The record %(key)s in the cache is refused: %(problem)s'
    code = 'kronos.record_refused'


class ByteStore(Protocol):
    """Bytes by key."""

    def get(self, key: str) -> bytes | None: ...

    def set(self, key: str, value: bytes, expire: int = 0) -> None: ...

    def delete(self, key: str) -> None: ...


def register(conf: cfg.ConfigOpts) -> None:
    """Register [kronos_channel] and oslo.cache's own [cache]."""
    core.configure(conf)
    groups.register(conf, channel.GROUP, channel.OPTS)


class RawCache:
    """Signed texts by key. One per thread.

    :param conf: with the options of :func:`register`.
    :raises ConfigError: an option cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        register(conf)
        options = conf.kronos_channel
        self._keys = [key.encode() for key in options.hmac_keys]
        if any(len(key) < MIN_KEY_LENGTH for key in self._keys):
            raise exception.ConfigError(
                path=_find_file(conf), field='[kronos_channel] hmac_keys',
                problem=f'a key has fewer than {MIN_KEY_LENGTH} characters',
                remedy='Make one with: openssl rand -hex 32')
        self._store = open_store(conf)

    def __bool__(self) -> bool:
        """Return True when records are kept at all."""
        return not isinstance(self._store, NoStore)

    def get(self, key: str) -> str | None:
        """Return the text; None without a record.

        :raises RecordRefused: the record is not one of ours.
        """
        record = self._store.get(key)
        if record is None:
            return None
        head, _, body = record.partition(b'\n')
        if not head.startswith(HEAD) or len(head) > len(HEAD) + 64:
            raise RecordRefused(key=key, problem='it is not in our format')
        signature = head.removeprefix(HEAD)
        if self._keys and not any(hmac.compare_digest(sign_record(secret, key, body), signature)
                                  for secret in self._keys):
            raise RecordRefused(
                key=key, problem='its signature is wrong. Give kronos-engine and nova-scheduler '
                                 'the same [kronos_channel] hmac_keys')
        try:
            return body.decode()
        except UnicodeDecodeError as e:
            raise RecordRefused(key=key, problem='it is not in our format') from e

    def set(self, key: str, text: str, expire: int = 0) -> None:
        """Sign a text and keep it; raise the errors of the memcached client.

        :param expire: seconds after which memcached forgets it; 0: never.
        """
        body = text.encode()
        signature = sign_record(self._keys[0], key, body) if self._keys else b''
        self._store.set(key, b'%s%s\n%s' % (HEAD, signature, body), expire)

    def delete(self, key: str) -> None:
        self._store.delete(key)


def sign_record(secret: bytes, key: str, body: bytes) -> bytes:
    """Return the signature (hexadecimal) of a record under a cache key."""
    message = b'%s%s\n%s' % (HEAD, key.encode(), body)
    return hmac.new(secret, message, hashlib.sha256).hexdigest().encode()


def parse_json(text: str) -> Any:
    """Return the value of a JSON text that another process wrote.

    :raises ValueError: it is no JSON, has a number that is not finite, or is nested more
        deeply than MAX_DEPTH.
    """
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        first = found[0][0]
        depth += first in '[{'
        depth -= first in ']}'
        if depth > MAX_DEPTH:
            raise ValueError(f'it is nested more than {MAX_DEPTH} deep')
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f'{name} is no JSON')


def is_configured(conf: cfg.ConfigOpts) -> bool:
    """Return True when the options name a cache that the channel can use."""
    return bool(conf.kronos_channel.directory or conf.kronos_channel.servers
                or (conf.cache.enabled and conf.cache.backend in MEMCACHED_BACKENDS))


def warn_of_unread_backend(conf: cfg.ConfigOpts) -> None:
    """Log that [cache] is enabled with a backend that the channel does not use."""
    if conf.cache.enabled and not is_configured(conf):
        LOG.warning('kronos: [cache] backend %s is not used between kronos-engine and '
                    'nova-scheduler, because it unpickles. Set [kronos_channel] servers or '
                    'directory.', conf.cache.backend)


def open_store(conf: cfg.ConfigOpts) -> ByteStore:
    """Return the store that the options name; without any, one that keeps nothing.

    :raises ConfigError: an option cannot be used.
    """
    if conf.kronos_channel.directory:
        return DirectoryStore(conf)
    servers = list(conf.kronos_channel.servers)
    if not servers and is_configured(conf):
        servers = list(conf.cache.memcache_servers)
    return MemcachedStore(conf, servers) if servers else NoStore()


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
            path=_find_file(conf), field=f'[kronos_channel] directory {self._path}',
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
                path=_find_file(conf), field='[cache] memcache_sasl_enabled',
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
        self._allowance.renew()
        value = self._client.get(key)
        if value is REFUSED:
            raise RecordRefused(key=key, problem='its flags are not 0')
        found: bytes | None = value
        return found

    def set(self, key: str, value: bytes, expire: int = 0) -> None:
        self._allowance.renew()
        self._client.set(key, value, expire=expire)

    def delete(self, key: str) -> None:
        self._allowance.renew()
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
        self.renew()

    def renew(self) -> None:
        self._deadline = time.monotonic() + self.seconds
        # Protocol lines come on top of the record.
        self._left = self._max_bytes + 4096

    def find_time_left(self) -> float:
        """Return the seconds left; raise TimeoutError when there are none."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f'memcached did not answer within {self.seconds:g} s')
        return left

    def count(self, received: int) -> None:
        """Raise ValueError when the server sends more than a record may have."""
        self._left -= received
        if self._left < 0:
            raise ValueError(f'memcached sends more than {self._max_bytes} bytes; see '
                             '[kronos_channel] max_bytes')


class BoundedSocket(socket.socket):
    """A socket whose ``recv`` and ``sendall`` keep to an allowance."""

    allowance: ClassVar[OperationAllowance]

    def recv(self, *arguments: Any) -> bytes:
        self.settimeout(self.allowance.find_time_left())
        data = super().recv(*arguments)
        self.allowance.count(len(data))
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
            path=_find_file(conf), field='[cache] tls_cafile, tls_certfile, tls_keyfile or '
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
            path=_find_file(conf), field='[kronos_channel] servers',
            problem=f'{text!r} is no server', remedy='Write HOST:PORT, [IPV6]:PORT or unix:/PATH.')
    return host.strip('[]'), int(port or 11211)


def _find_file(conf: cfg.ConfigOpts) -> str:
    return ', '.join(conf.config_file or ()) or 'the configuration'
