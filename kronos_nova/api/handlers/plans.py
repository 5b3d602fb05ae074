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

"""Plans, and the decisions of operators on them."""

from typing import Annotated

import pydantic

from kronos_nova import model
from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.api.handlers import paging
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import stored_views


class PlanPage(values.Resource):
    """A page of plans."""

    plans: list[resources.PlanSummary]
    next: str | None = pydantic.Field(description='Address of the next page; null: no more.')


Instances = Annotated[list[values.Uuid], pydantic.Field(
    max_length=1000, description='Instances whose moves are meant; empty: all.')]


class Approval(values.RequestModel):
    """An approval of a plan, or of some moves."""

    instances: Instances = values.list_field()
    reason: values.Reason | None = None


class Refusal(values.RequestModel):
    """A rejection or cancellation of a plan, or of some moves."""

    instances: Instances = values.list_field()
    reason: values.Reason


class ApprovedTasks(values.Resource):
    """Tasks that may begin now, and tasks that more people must approve."""

    tasks: list[resources.TaskReference]
    waiting_tasks: list[resources.TaskReference]
    approvals_missing: Annotated[int, pydantic.Field(
        ge=0, description='Number of other people who must approve the waiting tasks.')]
    scope_without_executor: str | None = pydantic.Field(
        description='The scope of the tasks if no live executor serves it; null: one does.')


class EndedTasks(values.Resource):
    """Tasks that the request has ended."""

    tasks: list[resources.TaskReference]


def list_cancelled(tasks: list[model.Task]) -> EndedTasks:
    return EndedTasks(tasks=[resources.TaskReference.from_task(task, model.TaskState.CANCELLED)
                             for task in tasks])


@endpoints.register_endpoint('GET', '/v1/plans', 'plan:list', endpoints.Access.READER)
def list_plans(call: calls.Call, query: paging.PageQuery) -> PlanPage:
    """List plans, newest first.

    A plan changes when it is made and when one of its tasks changes, as by each decision.
    """
    page = stored_views.list_plan_page(call.session, query.make_page_request(call))
    return PlanPage(plans=[resources.PlanSummary.from_listed(plan) for plan in page.plans],
                    next=query.make_next_url(call, page.marker))


@endpoints.register_endpoint('GET', '/v1/plans/{plan_id}', 'plan:show', endpoints.Access.READER)
def show_plan(call: calls.Call, plan_id: str) -> resources.Plan:
    """Show a plan with its moves, their tasks, and its decisions."""
    return resources.Plan.from_stored(stored_views.read_plan(call.session, plan_id))


@endpoints.register_endpoint('POST', '/v1/plans/{plan_id}/approve', 'plan:approve',
                             endpoints.Access.MANAGER)
def approve_plan(call: calls.Call, plan_id: str, body: Approval) -> ApprovedTasks:
    """Approve a plan that waits, or only the moves of some instances.

    Where the scope wants several approvals, the moves wait until enough other people have approved
    them as well.
    """
    result = operator_decisions.approve_plan(
        call.session, plan_id, reason=body.reason or '', instances=body.instances)
    return ApprovedTasks(
        tasks=[resources.TaskReference.from_task(task, model.TaskState.QUEUED)
               for task in result.tasks],
        waiting_tasks=[resources.TaskReference.from_task(task, model.TaskState.PENDING)
                       for task in result.waiting],
        approvals_missing=result.missing,
        scope_without_executor=result.scope_without_executor)


@endpoints.register_endpoint('POST', '/v1/plans/{plan_id}/reject', 'plan:reject',
                             endpoints.Access.MANAGER)
def reject_plan(call: calls.Call, plan_id: str, body: Refusal) -> EndedTasks:
    """Reject a plan that waits, or only the moves of some instances."""
    return list_cancelled(operator_decisions.reject_plan(
        call.session, plan_id, reason=body.reason, instances=body.instances))


@endpoints.register_endpoint('POST', '/v1/plans/{plan_id}/cancel', 'plan:cancel',
                             endpoints.Access.MANAGER)
def cancel_plan(call: calls.Call, plan_id: str, body: Refusal) -> EndedTasks:
    """Cancel the tasks of a plan that have not begun, or only those of some instances."""
    return list_cancelled(operator_decisions.cancel_plan(
        call.session, plan_id, reason=body.reason, instances=body.instances))
