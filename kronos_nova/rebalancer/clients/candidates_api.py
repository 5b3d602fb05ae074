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


"""Whether Placement has an allocation candidate for a request."""

from collections.abc import Sequence
from typing import Any
from urllib import parse

from kronos_nova.rebalancer.clients import api

#: Groups with any suffix (1.33), traits of the root (1.35).
VERSION = '1.36'
POLICY = 'placement:allocation_candidates:list'
WHAT = 'allocation candidates'


class CandidatesApi:
    """:param connection: an openstacksdk connection."""

    def __init__(self, connection: Any) -> None:
        self._api = api.Api(connection, 'Placement', 'placement')

    def any(self, query: Sequence[tuple[str, str]]) -> bool:
        """Whether there is one. A request that Placement does not understand has
        none, as Nova takes it, too: a trait or class that it does not know.

        :param query: parameters; a name may come more than once.
        :raises ApiError: it is not known.
        """
        try:
            body = self._api.get(f'/allocation_candidates?{parse.urlencode(query)}', WHAT, POLICY,
                                 VERSION)
        except api.ApiError as exc:
            if exc.status == 400:
                return False
            raise
        return bool(self._api.records(body, 'allocation_requests', WHAT))
