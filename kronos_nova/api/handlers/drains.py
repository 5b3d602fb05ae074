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
"""Drains: hosts that engines empty; check whether a host can be emptied, start and stop that."""

import datetime
from typing import Annotated

import pydantic

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.api import calls
from kronos_nova.api import drain_resources
from kronos_nova.api import endpoints
from kronos_nova.api import values
from kronos_nova.rebalancer import operations
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import nova_users
from kronos_nova.rebalancer.operations import published_views


class DrainList(values.Resource):
    """Hosts that are disabled or that pack empties, by scope and name."""

    drains: list[drain_resources.Drain]


#: When a host is to be empty.
Deadline = Annotated[datetime.datetime, pydantic.Field(
    description='When the host is to be empty, in ISO 8601; UTC unless it has a zone. From 5 '
                'minutes to 30 days away.')]


class DrainQuestion(values.RequestModel):
    """A host that an operator wants to empty."""

    host: values.Name
    mode: Annotated[model.DrainMode, pydantic.Field(
        description='Without it the mode in which engines drain.')] | None = None
    overbooking: Annotated[bool, pydantic.Field(
        description='The ceilings of policies do not hold; claims do.')] = False
    deadline: Deadline | None = None


class DrainOrder(values.RequestModel):
    """A host to empty."""

    host: values.Name
    reason: Annotated[values.DisabledReason, pydantic.Field(
        description='Why; Nova keeps it as disabled_reason of the host.')]
    force: Annotated[bool, pydantic.Field(
        description='Also when instances would stay, or the host is disabled for another '
                    'reason.')] = False
    approve: Annotated[bool, pydantic.Field(
        description='Where plans wait for approval: approve the moves of this drain.')] = False
    deadline: Deadline | None = None


class DrainEnd(values.RequestModel):
    """A host whose drain is to end."""

    host: values.Name
    reason: values.Reason | None = None
    force: Annotated[bool, pydantic.Field(
        description='Also when the host is disabled for a reason for which engines do not empty '
                    'it.')] = False


@endpoints.register_endpoint('GET', '/v1/drains', 'drain:list', endpoints.Access.READER)
def list_drains(call: calls.Call) -> DrainList:
    """List the hosts that are disabled or that pack empties, and why instances stay on them."""
    with call.calculations.take_turn():
        return DrainList(drains=[drain_resources.Drain.from_listed(drain) for drain
                                 in published_views.list_drains(call.session, call.cloud)])


@endpoints.register_endpoint('GET', '/v1/drains/check', 'drain:check', endpoints.Access.READER)
def check_drain(call: calls.Call, query: DrainQuestion) -> drain_resources.DrainCheck:
    """Check whether a host can be emptied, with the moves and the expected time.

    Nothing changes.
    """
    session = published_views.find_host_session(call.session, call.cloud, query.host)
    with call.calculations.take_turn():
        return drain_resources.DrainCheck.from_answer(
            query.host, drain_checks.check_drain(
                session, query.host, mode=query.mode, overbooking=query.overbooking,
                deadline=values.read_time(query.deadline)),
            session.reading.taken_at)


@endpoints.register_endpoint('POST', '/v1/drains', 'drain:start', endpoints.Access.MANAGER)
def start_drain(call: calls.Call, body: DrainOrder) -> drain_resources.StartedDrain:
    """Check that a host can be emptied, and disable it in Nova, so that engines empty it.

    The API asks Nova with the token of the user, and Nova's policy decides
    (os_compute_api:os-services:update): a refusal of Nova is 403. Refused while the last reading of
    the cloud is older than [kronos_api] max_reading_age. Moves for balance that wait for approval
    give way to the drain. With approve, policy rule kronos:plan:approve must admit the user, too.
    """
    if body.approve:
        call.require_rule('kronos:plan:approve')
    session = published_views.find_host_session(call.session, call.cloud, body.host)
    with nova_users.open_service(call.conf, call.access, body.host) as service:
        return drain_resources.StartedDrain.from_model(body.host, operations.start_drain(
            session, body.host, reason=body.reason, force=body.force, approve=body.approve,
            deadline=values.read_time(body.deadline), service=service,
            take_turn=call.calculations.take_turn))


@endpoints.register_endpoint('DELETE', '/v1/drains', 'drain:stop', endpoints.Access.MANAGER)
def stop_drain(call: calls.Call, query: DrainEnd) -> drain_resources.StoppedDrain:
    """Enable a host in Nova, and cancel the moves of its drain that have not begun.

    The API asks Nova with the token of the user, as for the start of a drain. Migrations that Nova
    has begun go on to their end; instances that have left do not come back. Policy rule
    kronos:plan:cancel must admit the user, too.
    """
    call.require_rule('kronos:plan:cancel')
    with nova_users.open_service(call.conf, call.access, query.host) as service:
        return drain_resources.StoppedDrain.from_model(query.host, operations.stop_drain(
            call.session, service, reason=query.reason or '', force=query.force,
            options=_find_engine_options(call, query.host)))


def _find_engine_options(call: calls.Call, host: str) -> model.PlanningOptions | None:
    """Return the options of the engine that plans the host; None: no reading has them."""
    try:
        return published_views.find_host_session(call.session, call.cloud,
                                                 host).reading.content.options
    except exception.KronosException:
        return None
