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

"""Tasks."""

import enum
from typing import Annotated

import pydantic

from kronos_nova import model
from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.api.handlers import paging
from kronos_nova.api.handlers import plans
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.rebalancer.store import pages


class TaskQuery(paging.PageQuery):
    """A page of tasks, those of the newest plan first."""

    state: Annotated[list[model.TaskState], pydantic.Field(
        max_length=len(model.TaskState))] = values.list_field(
        description='Only tasks in this state; repeatable.')
    plan: values.Uuid | None = None
    instance: Annotated[values.Name, pydantic.Field(
        description='UUID of an instance, or a name, which several may have.')] | None = None


class TaskPage(values.Resource):
    """A page of tasks."""

    tasks: list[resources.TaskSummary]
    next: str | None = pydantic.Field(description='Address of the next page; null: no more.')


class Cancellation(values.RequestModel):
    """A cancellation of a task."""

    reason: values.Reason


class Ending(enum.StrEnum):
    """The end of a task that an operator states."""

    COMPLETED = 'completed'
    FAILED = 'failed'


class Resolution(values.RequestModel):
    """The end of a task that Nova was asked for and never finishes."""

    state: Annotated[Ending, pydantic.Field(
        description='completed: the instance is on its destination; failed: it is not.')]
    reason: values.Reason


@endpoints.register_endpoint('GET', '/v1/tasks', 'task:list', endpoints.Access.READER)
def list_tasks(call: calls.Call, query: TaskQuery) -> TaskPage:
    """List tasks, those of the newest plan first."""
    page = stored_views.list_task_page(
        call.session, query.make_page_request(call),
        pages.TaskFilter(query.state, query.plan, query.instance))
    return TaskPage(tasks=[resources.TaskSummary.from_row(row) for row in page.tasks],
                    next=query.make_next_url(call, page.marker))


@endpoints.register_endpoint('GET', '/v1/tasks/{task_id}', 'task:show', endpoints.Access.READER)
def show_task(call: calls.Call, task_id: str) -> resources.Task:
    """Show a task with its alternates and every attempt."""
    return resources.Task.from_stored(*stored_views.read_task(call.session, task_id))


@endpoints.register_endpoint('POST', '/v1/tasks/{task_id}/cancel', 'task:cancel',
                             endpoints.Access.MANAGER)
def cancel_task(call: calls.Call, task_id: str, body: Cancellation) -> plans.EndedTasks:
    """Cancel a task that has not begun, and the tasks that require it."""
    return plans.list_cancelled(operator_decisions.cancel_task(call.session, task_id,
                                                               reason=body.reason))


@endpoints.register_endpoint('POST', '/v1/tasks/{task_id}/resolve', 'task:resolve',
                             endpoints.Access.ADMIN)
def resolve_task(call: calls.Call, task_id: str, body: Resolution) -> plans.EndedTasks:
    """End a task that Nova was asked for and never finishes.

    The answer lists the tasks that are cancelled because they required it. Nothing changes in Nova:
    first look where the instance is, and that Nova migrates it no more.
    """
    return plans.list_cancelled(operator_decisions.resolve_task(
        call.session, task_id, model.TaskState(body.state), reason=body.reason))
