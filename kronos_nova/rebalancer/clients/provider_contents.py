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

"""All of one resource provider, of one generation.

Placement answers each part by a request of its own, with the generation that the provider
had then. What is older than the newest is read again.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import placement_api

#: So many times what has changed in between is read again; of a provider that
#: shares with many, whose consumers come and go all the time, fewer.
ATTEMPTS = 10
SHARING_ATTEMPTS = 3

Consumers = Mapping[str, placement_api.Resources]


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """A provider's own part, all of one generation. ``allocations`` by
    consumer; ``whole`` says that they add up to ``used``."""

    generation: int
    inventories: Mapping[str, model.Inventory]
    used: Mapping[str, int]
    traits: frozenset[str]
    allocations: Consumers
    whole: bool = True


def content_of(placement: placement_api.PlacementApi, uuid: str,
               allocations: bool = True, shares: bool = False) -> Content:
    """Reads all of one provider until it is of one generation. Without
    inventory there can be nothing else but traits.

    :param shares: it shares with other providers, and consumers of all of them
        may come faster than they can be listed. What is in it and what is used
        of it is then taken as it was read last: not whole.
    :raises ApiError: with status 409 when it changes all the time, 404 when it
        is gone.
    """
    read: dict[str, Callable[[str], tuple[Any, int]]] = {
        'inventories': placement.inventories, 'traits': placement.traits,
        'usages': placement.usages}
    if allocations:
        read['allocations'] = placement.allocations_on
    found: dict[str, tuple[Any, int]] = {}
    newest, doubted = -1, False
    for attempt in range(1, ATTEMPTS + 1):
        for name in read:
            if name not in found or found[name][1] != newest:
                if name in ('usages', 'allocations') and not found['inventories'][0]:
                    found[name] = {}, newest
                else:
                    found[name] = read[name](uuid)
                newest = found[name][1]
        if any(generation != newest for _value, generation in found.values()):
            if (shares and attempt >= SHARING_ATTEMPTS
                    and found['usages'][0].keys() <= found['inventories'][0].keys()):
                return _content(newest, found, whole=False)
            continue
        consumers = found['allocations'][0] if allocations else {}
        whole = not allocations or _sums(consumers) == _without_zeros(found['usages'][0])
        if whole or doubted:
            return _content(newest, found, whole)
        # Something was deleted in between, or has a consumer that Placement
        # does not list; that is then known by its usage alone.
        doubted = True
        del found['usages'], found['allocations']
    raise api.ApiError('Placement', f'resource provider {uuid}',
                       'it changes faster than it can be read', 409)


def _content(generation: int, found: Mapping[str, tuple[Any, int]], whole: bool) -> Content:
    return Content(
        generation=generation, inventories=found['inventories'][0], used=found['usages'][0],
        traits=found['traits'][0], whole=whole,
        allocations=found['allocations'][0] if 'allocations' in found else {})


def stands(placement: placement_api.PlacementApi, uuid: str, kept: Content) -> bool:
    """Whether what was read before, and is whole, is what would be read now."""
    return placement.usages(uuid) == (kept.used, kept.generation)


def _sums(consumers: Consumers) -> dict[str, int]:
    out: Counter[str] = Counter()
    for resources in consumers.values():
        out.update(resources)
    return _without_zeros(out)


def _without_zeros(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}
