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


"""Groups of resources and traits that a flavor's extra specs request from Placement.

Source: nova.scheduler.utils, ResourceRequest; a parity test compares both.
"""

from collections.abc import Mapping
import dataclasses
import re

#: Extra spec of the PCI devices that a flavor asks for.
PCI_ALIAS = 'pci_passthrough:alias'
#: Nova's trait of PCI devices that may be moved live.
#: Source: nova.compute.pci_placement_translator.
LIVE_MIGRATABLE = 'HW_PCI_LIVE_MIGRATABLE'
_KEY = re.compile(r'(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)')


@dataclasses.dataclass(slots=True)
class RequestGroup:
    """A request group: of one provider, unless it is the group without a suffix."""

    resources: set[str] = dataclasses.field(default_factory=set)
    required: set[str] = dataclasses.field(default_factory=set)
    forbidden: set[str] = dataclasses.field(default_factory=set)


def parse_groups(extra_specs: Mapping[str, str]) -> dict[str, RequestGroup]:
    """Return the request groups by suffix; '' for the group without one."""
    groups: dict[str, RequestGroup] = {}
    for key, value in extra_specs.items():
        match = _KEY.fullmatch(key)
        if match is None:
            continue
        kind, suffix, name = match.groups()
        group = groups.setdefault(suffix or '', RequestGroup())
        if kind == 'resources':
            if value.strip() != '0':
                group.resources.add(name)
        elif value == 'required':
            group.required.add(name)
        elif value == 'forbidden':
            group.forbidden.add(name)
    return groups


def list_required_traits(extra_specs: Mapping[str, str]) -> frozenset[str]:
    """Return every trait that any group requires."""
    return frozenset(t for group in parse_groups(extra_specs).values() for t in group.required)


def list_compared_traits(extra_specs: Mapping[str, str]) -> frozenset[str]:
    """Return all traits by which the flavor tells hosts apart."""
    named = {t for group in parse_groups(extra_specs).values() for t in group.required
             | group.forbidden}
    return frozenset(named | {LIVE_MIGRATABLE} if PCI_ALIAS in extra_specs else named)
