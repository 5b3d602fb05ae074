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

"""Possible providers in a tree for each part of an allocation.

Placement gives each class of an allocation to one provider, whole. Any provider of another tree may
serve a class that the instance has on the root of its tree. Nova requested the classes on a nested
provider together (granular request groups, NUMA cells), so they stay together.
"""

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
from typing import NamedTuple

from kronos_nova import model

#: Steps of a search besides one for each piece. A longer search fails.
BOUND = 4096

#: Nova asks for these in the group without a suffix, and a move to a named
#: host sets that group's ``in_tree``: then sharing providers do not serve it.
#: Source: nova.scheduler.utils.resources_from_request_spec and
#: placement.objects.research_context.get_trees_matching_all.
IN_TREE = frozenset({'VCPU', 'PCPU', 'MEMORY_MB', 'DISK_GB'})


class RequestPiece(NamedTuple):
    """Classes and amounts that one provider has to serve together.

    ``shared``: a sharing provider may serve it as well.
    """

    resources: tuple[tuple[str, int], ...]
    shared: bool = False


class ProviderSpace(NamedTuple):
    """A provider, with a key that is unique in the cloud."""

    key: str
    provider: model.Provider


class PieceDemand(NamedTuple):
    """A piece, and the spaces that could hold it, best first."""

    piece: RequestPiece
    spaces: Sequence[ProviderSpace]


#: Returns the allocated amount of a resource class in a space.
Used = Callable[[ProviderSpace, str], float]


def split_allocation(instance: model.Instance, is_root: Callable[[str], bool],
                     sharing: Container[str]) -> tuple[RequestPiece, ...]:
    """Split an instance's allocation into pieces, those of roots first."""
    if not instance.allocations:
        return tuple(RequestPiece(((name, amount),))
                     for name, amount in sorted(instance.claims.items()) if amount)
    roots, nested, shared = [], [], []
    for provider, resources in sorted(instance.allocations.items()):
        amounts = sorted((name, amount) for name, amount in resources.items() if amount)
        if is_root(provider):
            roots += [RequestPiece((resource,)) for resource in amounts]
        elif provider in sharing:
            shared += [RequestPiece((resource,), resource[0] not in IN_TREE)
                       for resource in amounts]
        elif amounts:
            nested.append(RequestPiece(tuple(amounts)))
    return (*roots, *nested, *shared)


def is_allocated_whole(inventory: model.Inventory, amount: int) -> bool:
    """Return True when Placement would allocate this amount in one piece."""
    return (inventory.min_unit <= amount <= inventory.max_unit
            and amount % inventory.step_size == 0)


def find_spaces(demands: Sequence[PieceDemand], used: Used, free: Container[str] = (),
                bound: int = BOUND) -> list[ProviderSpace] | None:
    """Return a space for each demand so that all have room at once, or None.

    First fit with backtracking; equal input gives an equal answer.

    :param free: classes that do not count.
    :param bound: steps before it gives up, besides one for each demand.
    """
    laid: dict[tuple[str, str], int] = {}

    def has_room_for(space: ProviderSpace, piece: RequestPiece) -> bool:
        for name, amount in piece.resources:
            if name in free:
                continue
            inventory = space.provider.inventories.get(name)
            if (inventory is None or not is_allocated_whole(inventory, amount)
                    or used(space, name) + laid.get((space.key, name), 0) + amount
                    > inventory.capacity):
                return False
        return True

    def add_piece_amounts(space: ProviderSpace, piece: RequestPiece, sign: int) -> None:
        for name, amount in piece.resources:
            laid[space.key, name] = laid.get((space.key, name), 0) + sign * amount

    fitting = [[s for s in d.spaces if has_room_for(s, d.piece)] for d in demands]
    # Demands with the fewest fitting spaces first, then the largest.
    order = sorted(range(len(demands)), key=lambda d: (
        len(fitting[d]), [-amount for _, amount in demands[d].piece.resources], d))
    tried = [-1] * len(order)
    depth, steps = 0, 0
    while 0 <= depth < len(order):
        steps += 1
        if steps > bound + len(order):
            return None
        piece, spaces = demands[order[depth]].piece, fitting[order[depth]]
        if tried[depth] >= 0:
            add_piece_amounts(spaces[tried[depth]], piece, -1)
        tried[depth] = next((n for n in range(tried[depth] + 1, len(spaces))
                             if has_room_for(spaces[n], piece)), -1)
        if tried[depth] < 0:
            depth -= 1
        else:
            add_piece_amounts(spaces[tried[depth]], piece, 1)
            depth += 1
    if depth < 0:
        return None
    chosen = {order[n]: fitting[order[n]][tried[n]] for n in range(len(order))}
    return [chosen[d] for d in range(len(demands))]


def choose_fallback_spaces(demands: Sequence[PieceDemand]) -> list[ProviderSpace]:
    """Return the space in which each demand counts when not all have room.

    Choose the first space that has all classes of the piece, else the first of all.
    """
    return [next((s for s in d.spaces
                  if all(name in s.provider.inventories for name, _ in d.piece.resources)),
                 d.spaces[0]) for d in demands]


def sum_demands(
        chosen: Sequence[ProviderSpace], demands: Sequence[PieceDemand]) -> Mapping[tuple[str, str],
                                                                                    int]:
    """Sum the amounts that the demands take from each space, by (key, resource class)."""
    sums: dict[tuple[str, str], int] = {}
    for space, (name, amount) in itertools.chain.from_iterable(
            ((s, resource) for resource in d.piece.resources)
            for s, d in zip(chosen, demands, strict=True)):
        sums[space.key, name] = sums.get((space.key, name), 0) + amount
    return sums
