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
"""Instances."""

from typing import Annotated

import pydantic

from kronos_nova.api import calls
from kronos_nova.api import cloud_resources
from kronos_nova.api import endpoints
from kronos_nova.api import values
from kronos_nova.api.handlers import paging
from kronos_nova.rebalancer.operations import published_views


class InstanceQuery(paging.BoundedQuery):
    """A page of instances, by UUID."""

    scope: values.Name | None = None
    host: values.Name | None = None
    project_id: values.Name | None = None
    name: Annotated[values.Name, pydantic.Field(
        description='The whole name, which several instances may have.')] | None = None
    marker: Annotated[values.Uuid, pydantic.Field(
        description='UUID of the last instance of the page before.')] | None = None


class InstancePage(values.Resource):
    """A page of instances."""

    instances: list[cloud_resources.InstanceSummary]
    next: str | None = pydantic.Field(description='Address of the next page; null: no more.')


@endpoints.register_endpoint('GET', '/v1/instances', 'instance:list', endpoints.Access.READER)
def list_instances(call: calls.Call, query: InstanceQuery) -> InstancePage:
    """List instances, by UUID, as an engine has read them last."""
    page = published_views.list_instance_page(
        call.readings, query.choose_limit(call), published_views.InstanceFilter(
            query.scope, query.host, query.project_id, query.name), marker=query.marker)
    return InstancePage(
        instances=[cloud_resources.InstanceSummary.from_listed(listed)
                   for listed in page.instances],
        next=query.make_next_url(call, page.marker))


@endpoints.register_endpoint('GET', '/v1/instances/{instance_id}', 'instance:show',
                             endpoints.Access.READER)
def show_instance(call: calls.Call, instance_id: str) -> cloud_resources.Instance:
    """Show an instance: its share in the load, what keeps it on its host, and its newest tasks.

    Cooldowns, quarantines, pauses and moves under way are those of now.
    """
    return cloud_resources.Instance.from_shown(published_views.read_published_instance(
        call.session, call.cloud, instance_id))
