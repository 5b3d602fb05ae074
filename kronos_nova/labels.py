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

"""The mapping from metric labels to Nova's names, without guesses.

A label value is a Nova host if it is one exactly; else by the operator's regular expression; else
by its hypervisor hostname; else by folding short name and FQDN into each other, when exactly one
host fits. Two different FQDNs are two hosts, even with the same short name. Instances are found
by UUID, or by a name that exactly one instance has.
"""

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import re

from kronos_nova import model


@dataclasses.dataclass(frozen=True, slots=True)
class MappedValues:
    """Values by Nova identity, and the identities and labels that could not be mapped.

    ``ambiguous`` holds identities that more than one series claims; they are not in ``values``.
    ``unknown`` holds label values that match no identity.
    """

    values: Mapping[str, float]
    ambiguous: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class HostNames:
    """An index of hosts, which finds the Nova host of a label value.

    :param hosts: service host -> hypervisor hostname (may be empty).
    :param regex: the operator's; group 1 is the service host.
    """

    def __init__(self, hosts: Mapping[str, str], regex: str | None = None) -> None:
        self._exact = {name: name for name in hosts}
        self._regex = re.compile(regex) if regex else None
        self._full: dict[str, set[str]] = defaultdict(set)
        self._short: dict[str, set[str]] = defaultdict(set)
        for name, hypervisor in hosts.items():
            aliases = {alias.lower() for alias in (name, hypervisor) if alias}
            qualified = [alias for alias in aliases if fold_host_name(alias) != alias]
            for alias in aliases:
                self._full[alias].add(name)
            for alias in qualified:
                self._full[fold_host_name(alias)].add(name)
            if not qualified:
                # The domain of the host is not known: accept any domain.
                for alias in aliases:
                    self._short[alias].add(name)

    def find_service_host(self, label: str) -> str | None:
        """Return the service host, or None when no host or more than one fits."""
        if label in self._exact:
            return label
        if self._regex is not None:
            match = self._regex.search(label)
            if match is not None and match.group(1) in self._exact:
                return match.group(1)
        candidates = self._full.get(label.lower(), set())
        if not candidates:
            short = fold_host_name(label)
            # Only if no host of another domain has the same short name.
            candidates = self._short.get(short, set())
            candidates = candidates if candidates == self._full.get(short) else set()
        return next(iter(candidates)) if len(candidates) == 1 else None

    def map_answer(self, series: Mapping[str, float]) -> MappedValues:
        """Map a whole answer; two labels for one host leave it out."""
        return _map_identities(series, self.find_service_host)


def fold_host_name(name: str) -> str:
    """Return the short host name: the part before the first dot, in lower case.

    An address folds to itself: 10.0.0.1 and 10.0.0.2 are not both ``10``.
    """
    lowered = name.lower()
    if re.fullmatch(r'[0-9.]+(:[0-9]+)?', lowered) or ':' in lowered:
        return lowered
    return lowered.split('.', 1)[0]


def map_instances(series: Mapping[str, float], instances: Iterable[model.Instance],
                  label_type: str) -> MappedValues:
    """Map a whole answer to values by instance UUID.

    :param label_type: ``nova_instance_uuid``, ``nova_internal_name`` or ``nova_display_name``. A
        name that two instances share maps to neither: internal names are unique per cell only,
        display names are the tenants' choice.
    """
    if label_type == 'nova_instance_uuid':
        uuids = {i.uuid for i in instances}
        return _map_identities(series, lambda label: label if label in uuids else None)
    attribute = 'internal_name' if label_type == 'nova_internal_name' else 'name'
    by_name: dict[str, list[str]] = defaultdict(list)
    for instance in instances:
        by_name[getattr(instance, attribute)].append(instance.uuid)
    shared = [uuid for name, uuids in by_name.items() if len(uuids) > 1 and name in series
              for uuid in uuids]
    single = {name: uuids[0] for name, uuids in by_name.items() if name and len(uuids) == 1}
    mapped = _map_identities(series, single.get)
    return dataclasses.replace(mapped, ambiguous=tuple(sorted({*mapped.ambiguous, *shared})))


def _map_identities(series: Mapping[str, float], find: Callable[[str], str | None]) -> MappedValues:
    values: dict[str, float] = {}
    ambiguous: set[str] = set()
    unknown: list[str] = []
    for label, value in series.items():
        identity = find(label)
        if identity is None:
            unknown.append(label)
        elif identity in values or identity in ambiguous:
            ambiguous.add(identity)
            values.pop(identity, None)
        else:
            values[identity] = value
    return MappedValues(values, tuple(sorted(ambiguous)), tuple(sorted(unknown)))
