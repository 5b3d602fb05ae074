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


"""A check looks at one thing and says what it found, item by item."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import enum
import re
from typing import Any

from oslo_config import cfg

from kronos_nova import model
from kronos_nova import policy as policies


class Status(enum.StrEnum):
    """``warning`` and ``skipped`` do not make the whole fail."""

    OK = 'ok'
    WARNING = 'warning'
    FAILED = 'failed'
    SKIPPED = 'skipped'


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One line of the result: what was looked at, what is wrong with it (or
    what was found), and what to do."""

    name: str
    status: Status
    text: str = ''
    remedy: str = ''


@dataclasses.dataclass
class Context:
    """What earlier checks leave to later ones; the one mutable thing here.

    None: it could not be had, and the check that failed has said so.
    """

    conf: cfg.ConfigOpts
    policy_set: policies.PolicySet | None = None
    source: Any = None
    connection: Any = None
    cluster: model.Cluster | None = None


Check = Callable[[Context], Iterator[Item]]


def ok(name: str, text: str = '') -> Item:
    return Item(name, Status.OK, text)


def failed(name: str, text: str, remedy: str) -> Item:
    return Item(name, Status.FAILED, text, remedy)


def warning(name: str, text: str, remedy: str) -> Item:
    return Item(name, Status.WARNING, text, remedy)


def skipped(name: str, text: str) -> Item:
    return Item(name, Status.SKIPPED, text)


class Mask:
    """Takes secrets out of what is printed: the login of every URL, and
    every value of an option that is marked secret."""

    _LOGIN = re.compile(r'(\w+://)\S*@')

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._secrets = sorted(_secrets(conf), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        text = self._LOGIN.sub(r'\1***@', text)
        for secret in self._secrets:
            text = text.replace(secret, '***')
        return text

    def item(self, item: Item) -> Item:
        return dataclasses.replace(item, text=self(item.text), remedy=self(item.remedy))


def _secrets(conf: cfg.ConfigOpts) -> set[str]:
    """Short ones are left: masking every ``a`` helps nobody."""
    found = set()
    for group in ('messaging', 'prometheus', 'nova', 'database'):
        for name in conf[group] if group in conf else ():
            if any(word in name for word in ('password', 'secret', 'token', 'passcode')):
                try:
                    value = getattr(conf[group], name)
                except cfg.Error:
                    continue
                if isinstance(value, str) and len(value) >= 4 and not name.endswith('_file'):
                    found.add(value)
    return found
