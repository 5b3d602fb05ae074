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
"""The members of one spread set, counted by failure domain."""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from kronos_nova.constraints import failure_domains


class _Footprint(NamedTuple):
    """Where a member may be or come to be: domains, or ``anywhere``."""

    domains: frozenset[frozenset[str]]
    anywhere: bool

    def is_certain(self) -> bool:
        return not self.anywhere and len(self.domains) == 1


class SpreadTally:
    """Numbers of members by domain, kept while members move. Mutable.

    A domain is the names of :meth:`FailureDomains.list_domains`; without names, the hosts without a
    domain. A member on a host whose domain is unclear, or on its way to an unknown host, may be
    anywhere.
    """

    def __init__(self, kind: str, domains: failure_domains.FailureDomains) -> None:
        self._names = domains.map_domains(kind)
        self._unclear = domains.list_unclear(kind)
        self._footprints: dict[str, _Footprint] = {}
        self._possible: Counter[frozenset[str]] = Counter()
        self._certain: Counter[frozenset[str]] = Counter()
        self._anywhere = 0
        #: Changes with each change of the numbers.
        self.version = 0

    def place_member(self, uuid: str, hosts: Collection[str], unknown: bool) -> None:
        """Count the member where it may be, and no longer where it was.

        :param hosts: where it is or may end.
        :param unknown: it is on its way to a host that is not known.
        """
        before = self._footprints.get(uuid)
        now = _Footprint(frozenset(self._names.get(h, frozenset()) for h in hosts),
                         unknown or not self._unclear.isdisjoint(hosts))
        if now == before:
            return
        if before is not None:
            self._add(before, -1)
        self._footprints[uuid] = now
        self._add(now, 1)
        self.version += 1

    def count_possible(self, names: frozenset[str], but: str) -> int:
        """Return how many members, but one, may be or come to be in the domain."""
        own = self._footprints.get(but)
        return self._possible[names] + self._anywhere - (
            own is not None and (own.anywhere or names in own.domains))

    def count_certain(self, names: frozenset[str], but: str) -> int:
        """Return how many members, but one, are and stay in the domain."""
        own = self._footprints.get(but)
        return self._certain[names] - (
            own is not None and own.is_certain() and names in own.domains)

    def is_certain(self, uuid: str) -> bool:
        """Return whether the member is and stays in one domain."""
        own = self._footprints.get(uuid)
        return own is not None and own.is_certain()

    def _add(self, footprint: _Footprint, sign: int) -> None:
        if footprint.anywhere:
            self._anywhere += sign
            return
        for names in footprint.domains:
            self._possible[names] += sign
            if len(footprint.domains) == 1:
                self._certain[names] += sign
