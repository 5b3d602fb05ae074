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
"""Hosts."""

from typing import Annotated

import pydantic

from kronos_nova.api import calls
from kronos_nova.api import cloud_resources
from kronos_nova.api import endpoints
from kronos_nova.api import values
from kronos_nova.api.handlers import paging
from kronos_nova.rebalancer.operations import published_views


class HostQuery(paging.BoundedQuery):
    """A page of hosts, by name."""

    scope: values.Name | None = None
    name: Annotated[values.Name, pydantic.Field(
        description='The whole name of one host.')] | None = None
    marker: Annotated[values.Name, pydantic.Field(
        description='Name of the last host of the page before.')] | None = None


class HostPage(values.Resource):
    """A page of hosts."""

    hosts: list[cloud_resources.Host]
    next: str | None = pydantic.Field(description='Address of the next page; null: no more.')


@endpoints.register_endpoint('GET', '/v1/hosts', 'host:list', endpoints.Access.READER)
def list_hosts(call: calls.Call, query: HostQuery) -> HostPage:
    """List the hosts of all scopes, by name, as an engine has read them last."""
    page = published_views.list_host_page(call.readings, query.choose_limit(call),
                                          scope=query.scope, name=query.name,
                                          marker=query.marker)
    return HostPage(hosts=[cloud_resources.Host.from_listed(host) for host in page.hosts],
                    next=query.make_next_url(call, page.marker))
