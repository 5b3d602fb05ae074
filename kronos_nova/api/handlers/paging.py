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

"""The query of a list that comes in pages."""

from typing import Annotated
import urllib.parse

import pydantic

from kronos_nova.api import calls
from kronos_nova.api import values
from kronos_nova.rebalancer.store import pages

#: Number of rows of an answer unless the request says otherwise.
DEFAULT_LIMIT = 100


class BoundedQuery(values.RequestModel):
    """The bound of a page."""

    limit: Annotated[int, pydantic.Field(
        ge=1, description='Most rows of the answer; the service may send fewer.')] | None = None

    def choose_limit(self, call: calls.Call) -> int:
        """Return the number of rows; max_limit bounds it, as in Nova."""
        return min(self.limit or DEFAULT_LIMIT, int(call.conf.kronos_api.max_limit))

    def make_next_url(self, call: calls.Call, marker: str | None) -> str | None:
        """Return the address of the next page; None: this is the last page."""
        if marker is None:
            return None
        query = self.model_dump(mode='json', by_alias=True, exclude_none=True)
        return f'{call.url}?{urllib.parse.urlencode({**query, "marker": marker}, doseq=True)}'


class PageQuery(BoundedQuery):
    """A page of a list, newest first."""

    scope: values.Name | None = None
    id_prefix: Annotated[values.UuidPrefix, pydantic.Field(
        description='Only rows whose ID begins so: 4 to 36 characters.')] | None = None
    marker: Annotated[values.Uuid, pydantic.Field(
        description='Last ID of the page before.')] | None = None
    changes_since: Annotated[pydantic.AwareDatetime, pydantic.Field(
        description='Rows that changed at this time or later; ISO 8601 with its zone.')] | None = (
        pydantic.Field(default=None, alias='changes-since'))

    def make_page_request(self, call: calls.Call) -> pages.PageRequest:
        """Return the request to the database."""
        since = None if self.changes_since is None else self.changes_since.timestamp()
        return pages.PageRequest(self.choose_limit(call), self.marker, since, self.scope,
                                 self.id_prefix)
