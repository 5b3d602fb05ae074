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

"""The list of Nova's server groups, read in pages.

Nova pages this list by offset without saying so.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_records

#: Server groups of a page while a cell does not answer: a power of two.
GROUP_PAGE = 64
#: No list has so many records.
BEYOND = 2**31 - 1

#: Reads a page at an offset, with at most so many records; None: as many as Nova gives.
ReadPage = Callable[[int, int | None], Sequence[Mapping[str, Any]]]
#: A UUID and its record; both None for a group that Nova cannot show.
_Entry = tuple[str | None, Mapping[str, Any] | None]


@dataclasses.dataclass(frozen=True, slots=True)
class ReadableGroups:
    """Server groups while a cell does not answer.

    ``groups`` bind their members; ``uuids`` are all groups that Nova shows; ``unreadable`` counts
    the groups that Nova cannot show.
    """

    groups: list[model.ServerGroup]
    uuids: frozenset[str]
    unreadable: int


def list_groups(read_page: ReadPage) -> list[model.ServerGroup]:
    """List the server groups.

    Each page begins with the last record of the page before, so that a group deleted meanwhile
    cannot hide another.

    :raises ApiError: with status 409 when the list changed while it was read.
    """
    entries: list[tuple[str, Mapping[str, Any]]] = []
    while True:
        page = [(nova_records.parse_group_uuid(r), r)
                for r in read_page(max(len(entries) - 1, 0), None)]
        if entries:
            if not page or page[0][0] != entries[-1][0]:
                raise _build_change_error()
            page = page[1:]
        if not page:
            return [group for _uuid, r in entries
                    if (group := nova_records.parse_server_group(r)) is not None]
        entries.extend(page)


def list_readable_groups(read_page: ReadPage) -> ReadableGroups:
    """List the server groups while a cell does not answer.

    Nova fails a whole page for one group that has a member in such a cell. So a page that fails
    is read again in two halves, down to single groups. As pages cannot overlap here, the list
    is read twice.

    :raises ApiError: with status 409 when the list changed while it was read.
    """
    entries = _list_entries(read_page)
    if [uuid for uuid, _ in entries] != [uuid for uuid, _ in _list_entries(read_page)]:
        raise _build_change_error()
    return ReadableGroups(
        [group for _, r in entries
         if r is not None and (group := nova_records.parse_server_group(r)) is not None],
        frozenset(uuid for uuid, _ in entries if uuid is not None),
        sum(1 for uuid, _ in entries if uuid is None))


def _build_change_error() -> api.ApiError:
    return api.ApiError('Nova', 'server groups', 'the list changed while it was read', 409)


def _list_entries(read_page: ReadPage) -> list[_Entry]:
    """List groups by UUID, in Nova's order; None for one that Nova cannot show."""
    entries: list[_Entry] = []
    while True:
        page, ended = _read_entries(read_page, len(entries), GROUP_PAGE)
        entries.extend(page)
        if ended:
            return entries
        if all(uuid is None for uuid, _ in page):
            # With a Nova that fails every request the list would not end.
            read_page(BEYOND, 1)


def _read_entries(read_page: ReadPage, offset: int, limit: int) -> tuple[list[_Entry], bool]:
    """Read one page; return its groups, and whether the list ends with it."""
    try:
        read = read_page(offset, limit)
    except api.ApiError as exc:
        if exc.status is None or exc.status < 500:
            raise
        if limit == 1:
            return [(None, None)], False
    else:
        page: list[_Entry] = [(nova_records.parse_group_uuid(r), r) for r in read]
        return page, len(page) < limit
    half = limit // 2
    first, ended = _read_entries(read_page, offset, half)
    if ended:
        return first, True
    second, ended = _read_entries(read_page, offset + len(first), limit - half)
    return first + second, ended
