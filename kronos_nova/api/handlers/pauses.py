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

"""Pauses."""

from typing import Annotated

import pydantic

from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import stored_views

TEN_YEARS = 10 * 365 * 86400


class PauseRequest(values.RequestModel):
    """A pause of a scope, or of everything."""

    scope: values.Name | None = pydantic.Field(description='null: everywhere.')
    reason: values.Reason
    duration_seconds: Annotated[float, pydantic.Field(
        gt=0, le=TEN_YEARS, allow_inf_nan=False,
        description='null: until it is ended.')] | None = None


class EndedPause(values.RequestModel):
    """The pause to end."""

    scope: Annotated[values.Name, pydantic.Field(
        description='Without it the pause of everything ends, and those of scopes go on.'
    )] | None = None


class PauseList(values.Resource):
    """The pauses in force; that of everything first."""

    pauses: list[resources.Pause]


@endpoints.register_endpoint('GET', '/v1/pauses', 'pause:list', endpoints.Access.READER)
def list_pauses(call: calls.Call) -> PauseList:
    """List the pauses in force."""
    return PauseList(pauses=[resources.Pause.from_record(pause)
                             for pause in stored_views.list_pauses(call.session)])


@endpoints.register_endpoint('POST', '/v1/pauses', 'pause:create', endpoints.Access.MANAGER)
def pause_scope(call: calls.Call, body: PauseRequest) -> resources.Pause:
    """Pause a scope or everything: engines plan nothing there, and no task begins.

    It takes the place of an earlier pause of the same scope.
    """
    return resources.Pause.from_record(operator_decisions.pause_scope(
        call.session, body.scope, reason=body.reason, seconds=body.duration_seconds))


@endpoints.register_endpoint('DELETE', '/v1/pauses', 'pause:delete', endpoints.Access.MANAGER)
def resume_scope(call: calls.Call, query: EndedPause) -> PauseList:
    """End the pause of a scope, or that of everything.

    The answer lists the pauses that still hold.
    """
    return PauseList(pauses=[
        resources.Pause.from_record(pause)
        for pause in operator_decisions.resume_scope(call.session, query.scope)])
