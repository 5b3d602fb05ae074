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


"""Masking of secrets in everything that leaves the process: logs, errors, results.

Our own messages are written without secrets. Masking serves the messages of others: drivers, HTTP
clients, and servers that repeat a request.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import re
from typing import Any, cast
import urllib.parse

from oslo_config import cfg
from oslo_log import log as logging

HIDDEN = '***'

#: Length of the shortest secret that is masked: masking every ``a`` makes text unreadable.
SHORTEST = 4

_LOGIN = re.compile(r'(\w+://)[^\s\'"<>]*@')
_HEADER = re.compile(
    r'((?:authorization|x-auth-token|x-subject-token)[\'"]?\s*[:=]\s*[\'"]?'
    r'(?:(?:bearer|basic|digest)\s+)?)[^\s\'",]+', re.IGNORECASE)
#: Credentials without a header's name, as in ('Authorization', 'Bearer x'); not plain words.
_SCHEME = re.compile(r'\b((?:bearer|basic)\s+)(?=[\w.~+/-]*[\d=])[\w.~+/=-]{6,}', re.IGNORECASE)
#: Keystone's tokens: Fernet, JWS.
_TOKEN = re.compile(r'gAAAAA[\w-]{20,}={0,2}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+')
#: Ends of the names of options that hold a secret, as memcache_secret_key; service_token_roles of
#: keystonemiddleware, for one, holds none, and its default is the word service.
_NAMES = re.compile(r'(password|secret|token|passcode)(_key)?$')


class SecretMask:
    """A mask for logins in URLs, credentials in HTTP headers, tokens and secret options."""

    def __init__(self, conf: cfg.ConfigOpts | None = None) -> None:
        self._conf = conf
        self._size = -1
        self._secrets: list[str] = []

    def __call__(self, text: str) -> str:
        text = hide_secrets(text, self._read_secrets())
        text = _LOGIN.sub(rf'\g<1>{HIDDEN}@', text)
        for pattern in (_HEADER, _SCHEME):
            text = pattern.sub(rf'\g<1>{HIDDEN}', text)
        return _TOKEN.sub(HIDDEN, text)

    def _read_secrets(self) -> list[str]:
        """Return the secrets; read them again after further options were registered.

        keystoneauth registers its options late.
        """
        if self._conf is None:
            return []
        size = sum(len(self._conf[name]) if isinstance(self._conf[name], cfg.ConfigOpts.GroupAttr)
                   else 1 for name in ('nova', 'database') if name in self._conf)
        if size != self._size:
            self._size = size
            self._secrets = list(find_secrets(self._conf))
        return self._secrets


class MaskingFormatter:
    """A log formatter that masks secrets in the output of another formatter."""

    def __init__(self, inner: Any, mask: SecretMask) -> None:
        self._inner = inner
        self._mask = mask

    def format(self, record: Any) -> str:
        text = self._mask(self._inner.format(record))
        if record.exc_text:
            record.exc_text = self._mask(record.exc_text)
        return text

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


_active = SecretMask()


def install_mask(conf: cfg.ConfigOpts) -> None:
    """Mask the secrets of ``conf`` in the log and in :func:`mask_text`, in this process.

    Call it after every ``logging.setup``, which makes new handlers.
    """
    global _active
    _active = SecretMask(conf)
    for handler in logging.getLogger(None).logger.handlers:
        if handler.formatter is not None and not isinstance(handler.formatter, MaskingFormatter):
            handler.setFormatter(cast(Any, MaskingFormatter(handler.formatter, _active)))


def mask_text(text: str) -> str:
    """Return the text without the secrets of the configuration given to :func:`install_mask`."""
    return _active(text)


def hide_secrets(text: str, known: Iterable[str]) -> str:
    """Return the text without these secrets.

    A beginning of a secret before ``...``, where a long text was cut, is hidden too.
    """
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) < SHORTEST:
            continue
        text = text.replace(secret, HIDDEN)
        for length in range(len(secret) - 1, SHORTEST - 1, -1):
            text = text.replace(f'{secret[:length]}...', f'{HIDDEN}...')
    return text


def find_secrets(conf: cfg.ConfigOpts) -> set[str]:
    """Return the values of secret options, and the passwords in URLs of all options."""
    secrets: set[str] = set()
    for group in conf:
        holder = conf[group] if _is_group(conf, group) else None
        for name in holder if holder is not None else (group,):
            try:
                value = getattr(conf if holder is None else holder, name)
            except (cfg.Error, ValueError):
                continue
            for text in _list_texts(value):
                if _NAMES.search(name):
                    secrets.add(text)
                secrets.update(find_passwords(text))
    return {text for text in secrets if len(text) >= SHORTEST}


def find_passwords(text: str) -> Iterator[str]:
    """Yield the passwords in a URL, or in several with commas between, as written and decoded."""
    _scheme, separator, rest = text.partition('://')
    if not separator or '@' not in rest:
        return
    before = rest[:rest.rindex('@')]
    for part in (before, *before.split(',')):
        _user, _colon, password = (part if part is before else
                                   part.rpartition('@')[0] or part).partition(':')
        if password:
            yield password
            yield urllib.parse.unquote(password)


def _is_group(conf: cfg.ConfigOpts, name: str) -> bool:
    try:
        return isinstance(conf[name], cfg.ConfigOpts.GroupAttr)
    except (cfg.Error, ValueError):
        return False


def _list_texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple):
        return (item for item in value if isinstance(item, str))
    return ()
