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

"""``GET /v1/instances/{instance_id}/tasks``: the tasks of an instance, newest plan first."""

from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.api.handlers import paging
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.rebalancer.store import pages


class InstanceTasks(values.Resource):
    """The newest tasks of an instance."""

    tasks: list[resources.TaskSummary]


@endpoints.register_endpoint('GET', '/v1/instances/{instance_id}/tasks', 'instance:list_tasks',
                             endpoints.Access.READER)
def list_instance_tasks(call: calls.Call, instance_id: str,
                        query: paging.PageQuery) -> InstanceTasks:
    """List the tasks of an instance, those of the newest plan first."""
    page = stored_views.list_task_page(call.session, query.make_page_request(call),
                                       pages.TaskFilter(instance=instance_id))
    return InstanceTasks(tasks=[resources.TaskSummary.from_row(row) for row in page.tasks])
