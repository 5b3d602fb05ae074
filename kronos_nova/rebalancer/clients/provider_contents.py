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

"""The content of one resource provider, of one generation.

Placement returns each part by a request of its own, with the generation that the provider had then.
Parts that are older than the newest are read again.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import placement_api

#: Most readings of a provider that changes in between; fewer for a provider that
#: shares with many, whose consumers come and go all the time.
ATTEMPTS = 10
SHARING_ATTEMPTS = 3

Consumers = Mapping[str, placement_api.Resources]


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderContent:
    """A provider's own part, all of one generation.

    ``allocations`` are by consumer; ``whole`` says that they add up to ``used``.
    """

    generation: int
    inventories: Mapping[str, model.Inventory]
    used: Mapping[str, int]
    traits: frozenset[str]
    allocations: Consumers
    whole: bool = True


def read_provider(placement: placement_api.PlacementApi, uuid: str,
                  allocations: bool = True, shares: bool = False,
                  known: Mapping[str, tuple[Any, int]] | None = None) -> ProviderContent:
    """Read all parts of one provider until they are of one generation.

    A provider without inventory can have nothing else but traits.

    :param known: parts that were read already, each with a generation that it may not be older
        than; see :func:`take_parts`.
    :param shares: it shares with other providers, and consumers of all these may come faster than
        they can be listed. Then its inventories and usages are taken from the last reading: not
        whole.
    :raises ApiError: with status 409 when it changes all the time, 404 when it is gone.
    """
    read: dict[str, Callable[[str], tuple[Any, int]]] = {
        'inventories': placement.read_inventories, 'traits': placement.read_traits,
        'usages': placement.read_usages}
    if allocations:
        read['allocations'] = placement.allocations_on
    part_readings = {name: part for name, part in (known or {}).items() if name in read}
    newest = max((generation for _value, generation in part_readings.values()), default=-1)
    doubted = False
    for attempt in range(1, ATTEMPTS + 1):
        for name in read:
            if name not in part_readings or part_readings[name][1] != newest:
                if name in ('usages', 'allocations') and not part_readings['inventories'][0]:
                    part_readings[name] = {}, newest
                else:
                    part_readings[name] = read[name](uuid)
                newest = part_readings[name][1]
        if any(generation != newest for _value, generation in part_readings.values()):
            if (shares and attempt >= SHARING_ATTEMPTS
                    and part_readings['usages'][0].keys()
                    <= part_readings['inventories'][0].keys()):
                return _build_content(newest, part_readings, whole=False)
            continue
        consumers = part_readings['allocations'][0] if allocations else {}
        whole = not allocations or (
            _sum_by_class(consumers) == _without_zeros(part_readings['usages'][0]))
        if whole or doubted:
            return _build_content(newest, part_readings, whole)
        # Something was deleted in between, or has a consumer that Placement
        # does not list; only its usage is known then.
        doubted = True
        del part_readings['usages'], part_readings['allocations']
    raise api.ApiError('Placement', f'resource provider {uuid}',
                       'it changes faster than it can be read', 409)


def _build_content(generation: int, part_readings: Mapping[str, tuple[Any, int]],
                   whole: bool) -> ProviderContent:
    return ProviderContent(
        generation=generation, inventories=part_readings['inventories'][0],
        used=part_readings['usages'][0], traits=part_readings['traits'][0], whole=whole,
        allocations=part_readings['allocations'][0] if 'allocations' in part_readings else {})


def take_parts(summary: placement_api.ProviderSummary,
               generation: int) -> dict[str, tuple[Any, int]]:
    """Return the parts of a provider that its summary tells, as :func:`read_provider` takes them.

    :param generation: the provider's, read before the summary.
    """
    parts: dict[str, Any] = {'usages': summary.used, 'traits': summary.traits}
    if not summary.used:
        parts['inventories'] = {}
    if not any(summary.used.values()):
        parts['allocations'] = {}
    return {name: (part, generation) for name, part in parts.items()}


def is_content_current(placement: placement_api.PlacementApi, uuid: str,
                       remembered: ProviderContent) -> bool:
    """Return whether content that was read earlier, and is whole, still holds."""
    return placement.read_usages(uuid) == (remembered.used, remembered.generation)


def _sum_by_class(consumers: Consumers) -> dict[str, int]:
    out: Counter[str] = Counter()
    for resources in consumers.values():
        out.update(resources)
    return _without_zeros(out)


def _without_zeros(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}
