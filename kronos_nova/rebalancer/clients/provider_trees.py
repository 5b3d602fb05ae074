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


"""Whole provider trees of Placement: each provider of one generation, each tree of one moment.

Placement has no call for that. So a tree that changes while it is read is read again, each tree for
itself, and remembered contents are only used where they certainly still hold. A generation rises
with every change of inventories and traits and with every allocation that is added. It does not
rise when allocations are taken away: by DELETE /allocations/{consumer}, which is how Nova deletes
an instance, and when a consumer is moved to other providers. But that lessens the usages: where
generation and usages are the same, all the rest is.

One search for allocation candidates shows the usages and traits of nearly all providers. It shows
no generations: they are listed before and after. A provider whose generation is the same both times
had its usages and traits at that generation, if the nodes of Placement's database agree; where one
lags, the next search shows the difference. Trees that the search leaves out, because they have no
memory free or because Placement caps the candidates, are read provider by provider.

Source: placement.objects.allocation, delete_all and _set_allocations, which raises the generations
of the providers in the new allocations alone; placement.objects.resource_provider for inventories
and traits. Aggregates raise it since microversion 1.19, below not: they are not remembered.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any

from oslo_log import log as logging

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_contents
from kronos_nova.rebalancer.clients.provider_contents import ProviderContent

LOG = logging.getLogger(__name__)

#: Most readings of a tree that changes in between.
ROUNDS = 5
_SERVICE, _WHAT = 'Placement', 'resource providers'

#: Providers as they are listed, by UUID.
Listing = Mapping[str, placement_api.ListedProvider]


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderSharing:
    """The sharing of providers through aggregates.

    ``aggregates`` by the provider that shares through them, and ``members`` by aggregate; all are
    UUIDs.
    """

    aggregates: Mapping[str, frozenset[str]]
    members: Mapping[str, frozenset[str]]

    def aggregates_of(self, provider: str) -> frozenset[str]:
        """Return the aggregates through which the provider shares, or another shares with it."""
        return self.aggregates.get(provider, frozenset()) | {
            name for name, members in self.members.items() if provider in members}

    def list_sharing_with_tree(self, tree: Collection[str]) -> frozenset[str]:
        """Return the outside providers that share with a tree: one common aggregate is enough.

        Source: placement.objects.research_context, anchors_for_sharing_providers.
        """
        ours = {name for name, members in self.members.items() if not members.isdisjoint(tree)}
        return frozenset(uuid for uuid, names in self.aggregates.items()
                         if uuid not in tree and not names.isdisjoint(ours))


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderForest:
    """Listed providers and their contents, by UUID.

    ``unsettled``: roots of trees that changed faster than they could be read; their contents may be
    of several moments.
    """

    listed: Listing
    contents: Mapping[str, ProviderContent]
    sharing: ProviderSharing = ProviderSharing({}, {})
    unsettled: frozenset[str] = frozenset()

    def is_changing(self, root: str, tree: Collection[str]) -> bool:
        """Return whether a tree is not known as of one moment, or one that shares is unknown.

        :param tree: UUIDs of the tree's providers in :meth:`map_trees`.
        """
        return root in self.unsettled or any(
            uuid in self.listed for uuid in self.sharing.list_sharing_with_tree(tree)
            - self.contents.keys())

    def find_provider(self, uuid: str) -> model.Provider:
        """Return a provider.

        :raises KeyError: it is not in the forest.
        """
        listed, content = self.listed[uuid], self.contents[uuid]
        return model.Provider(
            uuid=uuid, generation=content.generation, inventories=content.inventories,
            used=content.used, name=listed.name, parent_uuid=listed.parent_uuid,
            traits=content.traits, aggregates=self.sharing.aggregates_of(uuid))

    def map_trees(self) -> dict[str, tuple[str, ...]]:
        """Return UUIDs by root: parents first, then by UUID."""
        by_root: dict[str, list[str]] = {}
        for uuid in self.contents:
            by_root.setdefault(self.listed[uuid].root_uuid, []).append(uuid)
        return {root: tuple(sorted(uuids, key=lambda u: (self._count_ancestors(u), u)))
                for root, uuids in by_root.items()}

    def _count_ancestors(self, uuid: str) -> int:
        above: list[str] = []
        listed_provider = self.listed.get(uuid)
        while (listed_provider is not None and listed_provider.parent_uuid is not None
               and listed_provider.parent_uuid not in above):
            above.append(listed_provider.parent_uuid)
            listed_provider = self.listed.get(listed_provider.parent_uuid)
        return len(above)

    def map_allocations(self) -> dict[str, dict[str, placement_api.Resources]]:
        """Return the resources of each consumer, by provider."""
        out: dict[str, dict[str, placement_api.Resources]] = {}
        for provider, content in self.contents.items():
            for consumer, resources in content.allocations.items():
                out.setdefault(consumer, {})[provider] = resources
        return out


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderTree:
    """Providers of one tree; ``settled``: as they were at one moment."""

    listed: Listing
    contents: Mapping[str, ProviderContent]
    settled: bool


class TreeReader:
    """Reads providers by whole trees.

    :param remembers: contents are kept, also those of a reading that did not end, and used while
        they hold; and summaries are read first, for a reading of the whole cloud. One call of
        :meth:`read` at a time.
    :param allocations: whether allocations by provider are read at all.
    """

    def __init__(self, placement: placement_api.PlacementApi, *, remembers: bool = False,
                 allocations: bool = True) -> None:
        self._placement = placement
        self._remembers = remembers
        self._allocations = allocations
        self._remembered: dict[str, ProviderContent] = {}
        self._refusals = 0

    def read(self, reads: parallel_reads.ReadingContext, listing: Callable[[], Listing],
             sharing: ProviderSharing | None = None,
             wanted: Callable[[placement_api.ListedProvider],
                              bool] = lambda _provider: True) -> ProviderForest:
        """Read the listed providers, and trees of several providers as they were at one moment.

        The list of a tree is the same before and after; so is the generation of a provider of which
        a summary alone was read. A tree that has changed is listed and read again, independently of
        the others; one that changes all the time is named in ``unsettled``.

        :param listing: lists the providers to read; called again.
        :param wanted: whether a provider of a tree belongs to the providers to read.
        """
        sharing = sharing or ProviderSharing({}, {})
        # A copy: an earlier reading that was given up may still write to its own.
        remembered = self._remembered = dict(self._remembered) if self._remembers else {}
        reading = _OneReading(self._placement, self._allocations, sharing, wanted, remembered)
        listed = reads.read_one(_SERVICE, _WHAT, listing)
        summaries = self._read_summaries(reads) if self._remembers else {}
        contents = reading.read_contents(reads, listed, summaries)
        trees = before = _by_root(listed)
        if reading.unproven or any(len(tree) > 1 for tree in trees.values()):
            trees = _by_root(reads.read_one(_SERVICE, _WHAT, listing))
        again = reads.read_each(
            _SERVICE, _WHAT, lambda root: reading.read_settled_tree(root, trees[root], contents),
            sorted(_list_changed_roots(before, trees, contents, reading.unproven)))
        unsettled = frozenset(root for root, tree in again.items() if not tree.settled)
        listed = {uuid: provider for root, tree in trees.items()
                  for uuid, provider in (again[root].listed if root in again else tree).items()}
        contents = {uuid: content for uuid, content in contents.items() if uuid in listed}
        for tree in again.values():
            contents |= tree.contents
        if self._remembers:
            self._remembered = {
                uuid: content for uuid, content in contents.items() if content.whole}
        return ProviderForest(listed, contents, sharing, unsettled)

    def _read_summaries(self, reads: parallel_reads.ReadingContext,
                        ) -> dict[str, placement_api.ProviderSummary]:
        """Return the summaries of providers; none where Placement refuses the search.

        Warn at the second refusal in a row: a command reads once, and its user need not know.
        """
        try:
            summaries = reads.read_one(
                _SERVICE, 'allocation candidates', self._placement.read_summaries)
        except api.ApiError as exc:
            if exc.unreachable:
                raise
            refusal = exc.problem
        else:
            self._refusals = 0
            return summaries
        self._refusals += 1
        if self._refusals == 2:
            LOG.warning('Placement answers no search for allocation candidates: %s. The usages of '
                        'each provider are read alone, by many more requests.', refusal)
        return {}


class _OneReading:
    """One reading of a :class:`TreeReader`.

    :param remembered: known contents by UUID. New content is added at once: it is known next time
        even when this reading does not end.
    """

    def __init__(self, placement: placement_api.PlacementApi, allocations: bool,
                 sharing: ProviderSharing, wanted: Callable[[placement_api.ListedProvider], bool],
                 remembered: dict[str, ProviderContent]) -> None:
        self._placement = placement
        self._allocations = allocations
        self._sharing = sharing
        self._wanted = wanted
        self._remembered = remembered
        #: Providers whose generation was not read after, or with, the other parts.
        self.unproven: set[str] = set()

    def read_contents(self, reads: parallel_reads.ReadingContext, listed: Listing,
                      summaries: Mapping[str, placement_api.ProviderSummary],
                      ) -> dict[str, ProviderContent]:
        """Return contents by UUID, without providers that are gone or change all the time.

        :param summaries: by UUID, read after ``listed``.
        """
        known = {uuid: self._remembered[uuid] for uuid, provider in listed.items()
                 if uuid in self._remembered
                 and self._remembered[uuid].generation == provider.generation}
        current = {uuid: known[uuid]
                   for uuid in self._list_current_providers(reads, known, summaries)}

        def read(uuid: str) -> ProviderContent | None:
            if uuid not in summaries:
                return self._read(uuid)
            if not summaries[uuid].used:
                self.unproven.add(uuid)
            return self._read(uuid, provider_contents.take_parts(
                summaries[uuid], listed[uuid].generation))

        new = reads.read_each(_SERVICE, _WHAT, read,
                              [uuid for uuid in listed if uuid not in current])
        return current | {uuid: content for uuid, content in new.items() if content is not None}

    def read_settled_tree(self, root: str, listed: Listing,
                          before: Mapping[str, ProviderContent]) -> ProviderTree:
        """Read a tree until its list is the same before and after.

        A provider without others in its tree is always of one moment.
        """
        contents = {uuid: before[uuid] for uuid in listed if uuid in before}
        for _round in range(ROUNDS):
            now = {uuid: self._read_if_changed(provider, contents.get(uuid)) for uuid,
                   provider in listed.items()}
            contents = {uuid: content for uuid, content in now.items() if content is not None}
            newer = {uuid: p for uuid, p in self._placement.read_providers(in_tree=root).items()
                     if p.root_uuid == root and self._wanted(p)}
            complete = newer.keys() == listed.keys() == contents.keys()
            if complete and (len(newer) == 1 or newer == listed):
                return ProviderTree(newer, contents, True)
            listed = newer
        return ProviderTree(listed, {uuid: contents[uuid] for uuid in listed if uuid in contents},
                            False)

    def _read_if_changed(self, provider: placement_api.ListedProvider,
                         known: ProviderContent | None) -> ProviderContent | None:
        """Return the content of one provider, independently of any other's."""
        if known is not None and known.whole and known.generation == provider.generation and (
                not any(known.used.values()) or self._is_content_current(provider.uuid, known)):
            return known
        return self._read(provider.uuid)

    def _read(self, uuid: str,
              parts: Mapping[str, tuple[Any, int]] | None = None) -> ProviderContent | None:
        """Read a provider; None when it is gone, or changes all the time.

        :param parts: those that were read already.
        """
        try:
            content = provider_contents.read_provider(
                self._placement, uuid, self._allocations, uuid in self._sharing.aggregates, parts)
        except api.ApiError as exc:
            if exc.status not in (404, 409):
                raise
            return None
        if content.whole:
            # Parts of a later generation than the content's do no harm: the next list names it.
            self._remembered[uuid] = content
        return content

    def _is_content_current(self, uuid: str, known: ProviderContent) -> bool:
        try:
            return provider_contents.is_content_current(self._placement, uuid, known)
        except api.ApiError as exc:
            if exc.status != 404:
                raise
            return False

    def _list_current_providers(self, reads: parallel_reads.ReadingContext,
                                known: Mapping[str, ProviderContent],
                                summaries: Mapping[str, placement_api.ProviderSummary],
                                ) -> Iterator[str]:
        """Yield the providers whose remembered content still holds.

        :param known: remembered contents of the same generation.
        """
        unseen = []
        for uuid, content in known.items():
            summary = summaries.get(uuid)
            if summary is not None:
                # What an earlier search said wrongly, of a database that lagged, ends here.
                if (summary.used, summary.traits) == (content.used, content.traits):
                    self.unproven.add(uuid)
                    yield uuid
            elif any(content.used.values()):
                unseen.append(uuid)
            else:
                # No allocation could go away.
                yield uuid
        answers = reads.read_each(_SERVICE, _WHAT, lambda uuid: self._is_content_current(
            uuid, known[uuid]), unseen)
        yield from (uuid for uuid, is_current in answers.items() if is_current)


def _by_root(listed: Listing) -> dict[str, dict[str, placement_api.ListedProvider]]:
    out: dict[str, dict[str, placement_api.ListedProvider]] = {}
    for uuid, provider in listed.items():
        out.setdefault(provider.root_uuid, {})[uuid] = provider
    return out


def _list_changed_roots(before: Mapping[str, Listing], after: Mapping[str, Listing],
                        contents: Mapping[str, ProviderContent],
                        unproven: Collection[str]) -> Iterator[str]:
    """Yield the roots of trees to read again: unknown ones, and changed ones.

    A generation equal to the content's is not enough for a tree of several providers: the list must
    be the same since the first one was read, because a removed allocation raises no generation. Nor
    is it enough where a summary alone was read: it names no generation.

    :param unproven: UUIDs of providers of which a summary alone was read.
    """
    for root, tree in after.items():
        compared = len(tree) > 1 or len(before.get(root, tree)) > 1 or (
            not tree.keys().isdisjoint(unproven))
        if not tree.keys() <= contents.keys() or compared and tree != before.get(root):
            yield root


def read_sharing(reads: parallel_reads.ReadingContext,
                 placement: placement_api.PlacementApi) -> ProviderSharing:
    """Read which providers share with which; without sharing providers, this is one request."""
    def of_aggregate(uuid: str) -> frozenset[str]:
        return frozenset(placement.read_providers(member_of=uuid))

    providers = reads.read_one(_SERVICE, 'sharing providers', lambda: placement.read_providers(
        required=placement_api.SHARES))
    aggregates = reads.read_each(_SERVICE, 'aggregates', placement.read_aggregates,
                                 sorted(providers))
    names = sorted({name for aggregate_names in aggregates.values() for name in aggregate_names})
    return ProviderSharing(aggregates, reads.read_each(_SERVICE, 'aggregates', of_aggregate, names))
