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
the server or its network can run code that way. Here :mod:`byte_stores` hands over raw bytes. A
record is accepted when its flags are 0, it is not too large and, with a key, its signature is right
for exactly this cache key. A record that is refused counts as absent.
"""

import hashlib
import hmac
import json
import re
from typing import Any

from oslo_cache import core
from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import conf as groups
from kronos_nova import exception
from kronos_nova.conf import channel
from kronos_nova.feed import byte_stores

LOG = logging.getLogger(__name__)

#: Start of each record; the signature and a line feed follow.
HEAD = b'kronos-nova 1 '
MIN_KEY_LENGTH = 32
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
                path=byte_stores.find_file(conf), field='[kronos_channel] hmac_keys',
                problem=f'a key has fewer than {MIN_KEY_LENGTH} characters',
                remedy='Make one with: openssl rand -hex 32')
        self._store = open_store(conf)

    def __bool__(self) -> bool:
        """Return True when records are kept at all."""
        return not isinstance(self._store, byte_stores.NoStore)

    def get(self, key: str) -> str | None:
        """Return the text; None without a record.

        :raises RecordRefused: the record is not one of ours.
        """
        record = self._store.get(key)
        if record is None:
            return None
        head, _, body = record.partition(b'\n')
        if not head.startswith(HEAD) or len(head) > len(HEAD) + 64:
            raise byte_stores.RecordRefused(key=key, problem='it is not in our format')
        signature = head.removeprefix(HEAD)
        if self._keys and not any(hmac.compare_digest(sign_record(secret, key, body), signature)
                                  for secret in self._keys):
            raise byte_stores.RecordRefused(
                key=key, problem='its signature is wrong. Give kronos-engine and nova-scheduler '
                                 'the same [kronos_channel] hmac_keys')
        try:
            return body.decode()
        except UnicodeDecodeError as e:
            raise byte_stores.RecordRefused(key=key, problem='it is not in our format') from e

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
    for match in _STRING_OR_BRACKET.finditer(text):
        first = match[0][0]
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


def open_store(conf: cfg.ConfigOpts) -> byte_stores.ByteStore:
    """Return the store that the options name; without any, one that keeps nothing.

    :raises ConfigError: an option cannot be used.
    """
    if conf.kronos_channel.directory:
        return byte_stores.DirectoryStore(conf)
    servers = list(conf.kronos_channel.servers)
    if not servers and is_configured(conf):
        servers = list(conf.cache.memcache_servers)
    return byte_stores.MemcachedStore(conf, servers) if servers else byte_stores.NoStore()
