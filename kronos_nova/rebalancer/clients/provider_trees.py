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


"""Whole provider trees of Placement: every part of a provider of one
generation, and every provider of a tree of one moment.

Placement has no call for that. So what changes while it is read is read
again, and what is remembered is only used where it certainly stands. A
generation rises with every change of inventories and traits and with every
allocation that is added. It does not rise when allocations are taken away: by
DELETE /allocations/{consumer}, which is how Nova deletes an instance, and when
a consumer is moved to other providers. But that lessens the usages: where
generation and usages are the same, all the rest is. And it takes a consumer
away from all the providers that its new allocations do not name, while it
raises the generation of those that they do: so of a tree that was whole, one
provider that is the same is witness for its consumers on the others.

Source: placement.objects.allocation, delete_all and _set_allocations, which
raises the generations of the providers in the new allocations alone;
placement.objects.resource_provider for inventories and traits. Aggregates
raise it since microversion 1.19, below not: they are not remembered.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import reading

#: So many times what has changed in between is read again: of a provider, and
#: of the trees.
ATTEMPTS = 10
ROUNDS = 5
_SERVICE, _WHAT = 'Placement', 'resource providers'

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


@dataclasses.dataclass(frozen=True, slots=True)
class Sharing:
    """Who shares with whom: aggregates by the provider that shares with them,
    and members by aggregate; UUIDs all."""

    aggregates: Mapping[str, frozenset[str]]
    members: Mapping[str, frozenset[str]]

    def aggregates_of(self, provider: str) -> frozenset[str]:
        """Those through which anybody shares with the provider, or it does."""
        return self.aggregates.get(provider, frozenset()) | {
            name for name, found in self.members.items() if provider in found}

    def with_tree(self, tree: Collection[str]) -> frozenset[str]:
        """Who shares with a tree without being of it: one aggregate with any
        of its providers is enough.

        Source: placement.objects.research_context,
        anchors_for_sharing_providers.
        """
        ours = {name for name, found in self.members.items() if not found.isdisjoint(tree)}
        return frozenset(uuid for uuid, names in self.aggregates.items()
                         if uuid not in tree and not names.isdisjoint(ours))


@dataclasses.dataclass(frozen=True, slots=True)
class Forest:
    """Providers as they are listed and what is in them, by UUID."""

    listed: Mapping[str, placement_api.Listed]
    contents: Mapping[str, Content]
    sharing: Sharing = Sharing({}, {})

    def provider(self, uuid: str) -> model.Provider:
        """:raises KeyError: there is none."""
        listed, content = self.listed[uuid], self.contents[uuid]
        return model.Provider(
            uuid=uuid, generation=content.generation, inventories=content.inventories,
            used=content.used, name=listed.name, parent_uuid=listed.parent_uuid,
            traits=content.traits, aggregates=self.sharing.aggregates_of(uuid))

    def trees(self) -> dict[str, tuple[str, ...]]:
        """UUIDs by root: parents first, then by UUID."""
        by_root: dict[str, list[str]] = {}
        for uuid in self.contents:
            by_root.setdefault(self.listed[uuid].root_uuid, []).append(uuid)
        return {root: tuple(sorted(found, key=lambda u: (self._depth(u), u)))
                for root, found in by_root.items()}

    def _depth(self, uuid: str) -> int:
        above: list[str] = []
        found = self.listed.get(uuid)
        while (found is not None and found.parent_uuid is not None
               and found.parent_uuid not in above):
            above.append(found.parent_uuid)
            found = self.listed.get(found.parent_uuid)
        return len(above)

    def allocations(self) -> dict[str, dict[str, placement_api.Resources]]:
        """What each consumer has, by provider."""
        out: dict[str, dict[str, placement_api.Resources]] = {}
        for provider, content in self.contents.items():
            for consumer, resources in content.allocations.items():
                out.setdefault(consumer, {})[provider] = resources
        return out


def content_of(placement: placement_api.PlacementApi, uuid: str,
               allocations: bool = True) -> Content:
    """Reads all of one provider until it is of one generation. Without
    inventory there can be nothing else but traits.

    :raises ApiError: with status 409 when it changes all the time.
    """
    read: dict[str, Callable[[str], tuple[Any, int]]] = {
        'inventories': placement.inventories, 'traits': placement.traits,
        'usages': placement.usages}
    if allocations:
        read['allocations'] = placement.allocations_on
    found: dict[str, tuple[Any, int]] = {}
    newest, doubted = -1, False
    for _attempt in range(ATTEMPTS):
        for name in read:
            if name not in found or found[name][1] != newest:
                if name in ('usages', 'allocations') and not found['inventories'][0]:
                    found[name] = {}, newest
                else:
                    found[name] = read[name](uuid)
                newest = found[name][1]
        if any(generation != newest for _value, generation in found.values()):
            continue
        consumers = found['allocations'][0] if allocations else {}
        whole = not allocations or _sums(consumers) == _without_zeros(found['usages'][0])
        if whole or doubted:
            return Content(generation=newest, inventories=found['inventories'][0],
                           used=found['usages'][0], traits=found['traits'][0],
                           allocations=consumers, whole=whole)
        # Something was deleted in between, or has a consumer that Placement
        # does not list; that is then known by its usage alone.
        doubted = True
        del found['usages'], found['allocations']
    raise api.ApiError(_SERVICE, f'resource provider {uuid}',
                       'it changes faster than it can be read', 409)


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


class TreeReader:
    """Reads providers by whole trees.

    :param remembers: what was read the last time is kept, and used where it
        stands. One call of :meth:`read` at a time.
    :param allocations: whether allocations by provider are read at all.
    """

    def __init__(self, placement: placement_api.PlacementApi, *, remembers: bool = False,
                 allocations: bool = True) -> None:
        self._placement = placement
        self._remembers = remembers
        self._allocations = allocations
        self._kept: Mapping[str, Content] = {}

    def read(self, reads: reading.Reading,
             listing: Callable[[], Mapping[str, placement_api.Listed]],
             sharing: Sharing | None = None) -> Forest:
        """What is listed, and trees of several providers as they were at one
        moment: the list is the same before and after.

        :param listing: lists what is to be read; called again and again.
        :raises ApiError: with status 409 when a tree changes all the time.
        """
        listed = reads.one(_SERVICE, _WHAT, listing)
        found = self._contents(reads, listed, listed, self._kept, whole_trees=True)
        for _round in range(ROUNDS):
            if all(p.parent_uuid is None for p in listed.values()):
                break
            newer = reads.one(_SERVICE, _WHAT, listing)
            changed = set(_changed(listed, newer, found))
            found = {uuid: content for uuid, content in found.items() if uuid in newer}
            listed = newer
            if not changed:
                break
            found |= self._contents(reads, listed, sorted(changed), found)
        else:
            raise api.ApiError(_SERVICE, _WHAT, 'a tree changes faster than it can be read', 409)
        if self._remembers:
            self._kept = found
        return Forest(listed, found, sharing or Sharing({}, {}))

    def _contents(self, reads: reading.Reading, listed: Mapping[str, placement_api.Listed],
                  uuids: Iterable[str], before: Mapping[str, Content],
                  whole_trees: bool = False) -> dict[str, Content]:
        """:param before: what was read before.
        :param whole_trees: that is of whole trees, each as at one moment."""
        wanted = list(uuids)
        kept = {uuid: before[uuid] for uuid in wanted if uuid in before and before[uuid].whole
                and before[uuid].generation == listed[uuid].generation}
        trees = {uuid: listed[uuid].root_uuid if whole_trees else uuid for uuid in kept}
        found = {uuid: kept[uuid] for uuid in self._standing(reads, kept, trees)}
        return found | reads.each(
            _SERVICE, _WHAT, lambda uuid: content_of(self._placement, uuid, self._allocations),
            [uuid for uuid in wanted if uuid not in found])

    def _standing(self, reads: reading.Reading, kept: Mapping[str, Content],
                  trees: Mapping[str, str]) -> Iterator[str]:
        """What stands of that whose generation is the same. Only so many
        providers of a tree are asked that each consumer has a witness; of those
        without consumers, none: nothing can go away unnoticed."""
        left = sorted(kept, key=lambda uuid: (-len(kept[uuid].allocations), uuid))
        untouched: set[tuple[str, str]] = set()
        while left:
            asked, covered = [], set(untouched)
            for uuid in left:
                consumers = {(trees[uuid], consumer) for consumer in kept[uuid].allocations}
                if not consumers <= covered:
                    covered |= consumers
                    asked.append(uuid)
            if not asked:
                yield from left
                return
            answers = reads.each(_SERVICE, _WHAT, lambda uuid: stands(
                self._placement, uuid, kept[uuid]), asked)
            for uuid, same in answers.items():
                if same:
                    untouched |= {(trees[uuid], consumer) for consumer in kept[uuid].allocations}
                    yield uuid
            left = [uuid for uuid in left if uuid not in answers]


def _changed(before: Mapping[str, placement_api.Listed],
             after: Mapping[str, placement_api.Listed],
             found: Mapping[str, Content]) -> Iterator[str]:
    """What must be read again: all of a tree of several providers that is not
    what it was, and what is new."""
    moved = {p.root_uuid for uuid, p in after.items()
             if uuid not in before or uuid not in found or before[uuid] != p
             or found[uuid].generation != p.generation}
    moved |= {p.root_uuid for uuid, p in before.items() if uuid not in after}
    several = {p.root_uuid for p in after.values() if p.parent_uuid is not None}
    for uuid, provider in after.items():
        if uuid not in found or provider.root_uuid in moved & several:
            yield uuid


def sharing(reads: reading.Reading, placement: placement_api.PlacementApi) -> Sharing:
    """Who shares with whom now. Where nobody does, this is one request."""
    def of_aggregate(uuid: str) -> frozenset[str]:
        return frozenset(placement.providers(member_of=uuid))

    providers = reads.one(_SERVICE, 'sharing providers', lambda: placement.providers(
        required=placement_api.SHARES))
    aggregates = reads.each(_SERVICE, 'aggregates', placement.aggregates, sorted(providers))
    names = sorted({name for found in aggregates.values() for name in found})
    return Sharing(aggregates, reads.each(_SERVICE, 'aggregates', of_aggregate, names))
