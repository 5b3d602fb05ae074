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

"""The aggregates whose metadata gives a host its multiplier."""

from collections.abc import Sequence
import copy
from typing import Any


class MultiplierKeys:
    """The metadata keys under which each weigher looks for a multiplier.

    A weigher does not reveal them. So this class asks it for the multiplier of a host in an
    aggregate that records the keys that the weigher looks up.
    """

    def __init__(self, weighers: Sequence[Any]) -> None:
        self._weighers = list(weighers)
        self._keys: dict[int, frozenset[str]] = {}

    def list_aggregates(self, weigher: Any, host: Any, multiplier: float) -> tuple[str, ...]:
        """Return the names of the aggregates that set the multiplier; empty when nova.conf does.
        """
        if id(weigher) not in self._keys:
            self._keys[id(weigher)] = _keys(weigher, host)
        keys = self._keys[id(weigher)]
        return tuple(sorted(
            a.name for a in host.aggregates
            for key in keys if key in a.metadata and _parse_number(a.metadata[key]) == multiplier))


def _keys(weigher: Any, host: Any) -> frozenset[str]:
    probe = copy.copy(host)
    recording_aggregate = _RecordingAggregate()
    probe.aggregates = [recording_aggregate]
    try:
        weigher.weight_multiplier(probe)
    except Exception:
        # A foreign weigher may need more of a host than a probe has.
        return frozenset()
    return frozenset(recording_aggregate.keys)


class _RecordingAggregate:
    """An aggregate without metadata that records the keys that a weigher looks up."""

    name = ''
    hosts: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.metadata = self

    def __contains__(self, key: str) -> bool:
        self.keys.append(key)
        return False

    def get(self, key: str, default: Any = None) -> Any:
        self.keys.append(key)
        return default


def _parse_number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
