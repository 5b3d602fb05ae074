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


"""The context that checks share, and the items that they yield."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import enum
from typing import Any

from oslo_config import cfg

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.conf import secret_mask


class CheckStatus(enum.StrEnum):
    """The status of an item; only ``failed`` makes the whole result fail."""

    OK = 'ok'
    WARNING = 'warning'
    FAILED = 'failed'
    SKIPPED = 'skipped'


@dataclasses.dataclass(frozen=True, slots=True)
class CheckItem:
    """One line of the result: its subject, the fault or the observation, and a remedy."""

    name: str
    status: CheckStatus
    text: str = ''
    remedy: str = ''


@dataclasses.dataclass
class CheckContext:
    """The state that earlier checks leave to later ones; the only mutable value here.

    A field stays None when a check could not obtain it; that check has yielded an item.
    """

    conf: cfg.ConfigOpts
    policy_set: policies.PolicySet | None = None
    source: Any = None
    connection: Any = None
    cluster: model.Cluster | None = None

    def close(self) -> None:
        """Close the source and the connection; an error of one does not keep the other open."""
        for opened in (self.source, self.connection):
            if opened is not None:
                with contextlib.suppress(Exception):
                    opened.close()


Check = Callable[[CheckContext], Iterator[CheckItem]]


def report_ok(name: str, text: str = '') -> CheckItem:
    return CheckItem(name, CheckStatus.OK, text)


def report_failure(name: str, text: str, remedy: str) -> CheckItem:
    return CheckItem(name, CheckStatus.FAILED, text, remedy)


def report_warning(name: str, text: str, remedy: str) -> CheckItem:
    return CheckItem(name, CheckStatus.WARNING, text, remedy)


def report_skip(name: str, text: str) -> CheckItem:
    return CheckItem(name, CheckStatus.SKIPPED, text)


def mask_item(item: CheckItem) -> CheckItem:
    """Return the item without secrets."""
    return dataclasses.replace(item, text=secret_mask.mask_text(item.text),
                               remedy=secret_mask.mask_text(item.remedy))
