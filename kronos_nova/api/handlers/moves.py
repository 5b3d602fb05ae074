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
"""Orders of moves: retry or revert those of a plan."""

from collections.abc import Callable
from typing import Annotated

import pydantic

from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import move_resources
from kronos_nova.api import values
from kronos_nova.api.handlers import plans
from kronos_nova.rebalancer.operations import plan_requests
from kronos_nova.rebalancer.operations import stored_views


class MoveOrder(values.RequestModel):
    """An order to repeat or revert moves of a plan."""

    instances: plans.Instances = values.list_field()
    reason: values.Reason
    partly: Annotated[bool, pydantic.Field(
        description='Order the allowed moves even if the rules refuse others.')] = False
    dry_run: Annotated[bool, pydantic.Field(
        description='Judge the moves, and order none.')] = False


@endpoints.register_endpoint('POST', '/v1/plans/{plan_id}/retry', 'plan:retry',
                             endpoints.Access.MANAGER)
def retry_plan(call: calls.Call, plan_id: str, body: MoveOrder) -> move_resources.OrderedPlan:
    """Try the moves of a plan again that failed or were cancelled, by the rules of now.

    Refused while the last reading of the cloud is older than [kronos_api] max_reading_age.
    """
    return _order_moves(plan_requests.retry_plan, call, plan_id, body)


@endpoints.register_endpoint('POST', '/v1/plans/{plan_id}/revert', 'plan:revert',
                             endpoints.Access.MANAGER)
def revert_plan(call: calls.Call, plan_id: str, body: MoveOrder) -> move_resources.OrderedPlan:
    """Move back the instances that a plan has moved, by the rules of now.

    Refused while the last reading of the cloud is older than [kronos_api] max_reading_age.
    """
    return _order_moves(plan_requests.revert_plan, call, plan_id, body)


def _order_moves(order: Callable[..., plan_requests.RepeatResult], call: calls.Call, plan_id: str,
                 body: MoveOrder) -> move_resources.OrderedPlan:
    scope = stored_views.read_plan(call.session, plan_id).row.plan.scope
    session = call.cloud.find_session(call.session, scope)
    with call.calculations.take_turn():
        return move_resources.OrderedPlan.from_result(order(
            session, plan_id, reason=body.reason, instances=body.instances, partly=body.partly,
            dry_run=body.dry_run))
