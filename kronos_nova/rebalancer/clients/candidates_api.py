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


"""Search for an allocation candidate in Placement."""

from collections.abc import Collection
from collections.abc import Sequence
import re
from typing import Any
from urllib import parse

from kronos_nova.rebalancer.clients import api

#: Groups with any suffix (1.33), traits of the root (1.35).
VERSION = '1.36'
POLICY = 'placement:allocation_candidates:list'
WHAT = 'allocation candidates'
#: The refusal for an answer without candidates.
NONE = 'no allocation candidate'
_NO_SUCH_TRAIT = 'No such trait'


class CandidatesApi:
    """Reads of allocation candidates.

    :param connection: an openstacksdk connection.
    """

    def __init__(self, connection: Any) -> None:
        self._api = api.ServiceApi(connection, 'Placement', 'placement')

    def find_refusal(self, query: Sequence[tuple[str, str]],
                     own: Collection[str] = ()) -> str | None:
        """Return why Placement has no candidate, in words; None when it has one.

        A request with a trait or class that Placement does not know has no candidate, as in Nova.
        But an unknown trait that the flavor does not name is left out of a second request: a Nova
        of the same age requires no trait that its Placement does not know.

        :param query: parameters; a name may occur more than once.
        :param own: traits that the flavor names itself.
        :raises ApiError: Placement did not say.
        """
        why = self._read_refusal(query)
        less = list(query) if why is None else _remove_unknown_traits(query, why, own)
        return why if less == list(query) else self._read_refusal(less)

    def _read_refusal(self, query: Sequence[tuple[str, str]]) -> str | None:
        try:
            body = self._api.get(f'/allocation_candidates?{parse.urlencode(query)}', WHAT, POLICY,
                                 VERSION)
        except api.ApiError as exc:
            if exc.status != 400:
                raise
            return exc.problem
        return None if self._api.read_records(body, 'allocation_requests', WHAT) else NONE


def _remove_unknown_traits(query: Sequence[tuple[str, str]], problem: str,
                           own: Collection[str]) -> list[tuple[str, str]]:
    """Return the query less the traits that Placement does not know, except the flavor's own."""
    if _NO_SUCH_TRAIT not in problem:
        return list(query)
    unknown = set(re.findall(r'[A-Z][A-Z0-9_]+', problem)) - set(own)
    remaining_query = []
    for name, value in query:
        if name == 'root_required' or name.startswith('required'):
            value = ','.join(t for t in value.split(',') if t.removeprefix('!') not in unknown)
        if value:
            remaining_query.append((name, value))
    return remaining_query
