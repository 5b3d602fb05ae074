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


"""Causes of Nova's failed migrations, judged by Nova's error texts.

Nova's API gives the text of an exception and not its class, so KNOWN lists texts. An unknown text
blames the destination: the executor tries the next one, and sets the instance aside only when all
have refused.
Source: nova.conductor.tasks, live_migrate and migrate, nova.compute.manager and
nova.virt.libvirt.driver: the exceptions of the checks before a migration; nova.compute.api,
live_migrate: the immediate refusals.
"""

from collections.abc import Sequence
import enum
import re


class FaultyPart(enum.StrEnum):
    """The part that must change before another try can end otherwise."""

    DESTINATION = 'destination'
    INSTANCE = 'instance'  # or its source: no destination differs
    API = 'api'  # a service of the cloud: the same again, later


#: Nova's error texts, in the order of the search.
KNOWN: tuple[tuple[FaultyPart, str], ...] = (
    # Properties of the instance.
    (FaultyPart.INSTANCE, r'Feature not supported (with|until|because)'),
    (FaultyPart.INSTANCE, r'This feature is not supported when remote-managed ports'),
    (FaultyPart.INSTANCE, r"Operation '[^']*' not supported for "),
    (FaultyPart.INSTANCE, r'is not supported by old nova.compute service'),
    (FaultyPart.INSTANCE, r'Cannot [\w -]+ while the instance is in this state'),
    (FaultyPart.INSTANCE, r'Instance \S+ is locked'),
    (FaultyPart.INSTANCE, r'Instance \S+ could not be found'),
    (FaultyPart.INSTANCE, r'does not explicitly request live-migratable devices'),
    (FaultyPart.INSTANCE, r'Cannot live migrate with virtual persistent memory'),
    (FaultyPart.INSTANCE, r'as the instance NUMA topology, .* cannot be recalculated'),
    (FaultyPart.INSTANCE, r'Unable to determine in which cell instance'),
    (FaultyPart.INSTANCE, r'TPM encryption secret for instance'),
    # QEMU's own words, through libvirt.
    (FaultyPart.INSTANCE, r'VFIO migration is not supported with postcopy migration'),
    (FaultyPart.INSTANCE, r'Unable to migrate instance \(\S+\) to current host'),
    (FaultyPart.INSTANCE, r'Image \S+ is unacceptable'),
    # Properties of its source, or of the whole cloud.
    (FaultyPart.INSTANCE, r'version for compute service source are too old'),
    (FaultyPart.INSTANCE, r'Neutron does not support required port binding extension'),
    (FaultyPart.INSTANCE, r'Migration is not supported for LVM backed instances'),
    (FaultyPart.INSTANCE, r'No live migration URI configured'),
    # Services.
    (FaultyPart.API, r'Migration select destinations error'),
    (FaultyPart.API, r'Unable to communicate with the Placement API'),
    (FaultyPart.API, r'Failed to (update|retrieve|move) allocations (for|from) consumer'),
    # Nova reports "no valid host" without a search: the allocations have changed meanwhile.
    (FaultyPart.API, r'Unable to replace instance claim on source'),
    (FaultyPart.API, r'attempting to invoke the placement API'),
    (FaultyPart.API, r'Connection to (keystone|cinder|glance|neutron) (host )?(\S+ )?failed'),
)
_KNOWN = tuple((fault, re.compile(text)) for fault, text in KNOWN)
_UNAVAILABLE = re.compile(r'Compute service of (\S+) is unavailable')
#: The scheduler's texts for every destination; another event may be more precise.
_VAGUE = re.compile(r'No valid host was found|Exceeded maximum number of retries')


def judge_fault(details: Sequence[str], from_host: str) -> tuple[FaultyPart, str]:
    """Return the fault that caused a failure, and the text that names it (empty without any).

    :param details: texts of the events of one action; of several faults, one that no other
        destination avoids comes first.
    :param from_host: the source; when its compute service is unavailable, it comes back.
    """
    text_by_part: dict[FaultyPart, str] = {}
    for text in details:
        fault = _find_fault(text, from_host)
        if fault is not None:
            text_by_part.setdefault(fault, text)
    for fault in (FaultyPart.INSTANCE, FaultyPart.API):
        if fault in text_by_part:
            return fault, text_by_part[fault]
    telling = [text for text in details if not _VAGUE.search(text)]
    return FaultyPart.DESTINATION, (telling or list(details) or [''])[-1]


def _find_fault(text: str, from_host: str) -> FaultyPart | None:
    unavailable = _UNAVAILABLE.search(text)
    if unavailable and unavailable[1] == from_host:
        return FaultyPart.API
    return next((fault for fault, known in _KNOWN if known.search(text)), None)
