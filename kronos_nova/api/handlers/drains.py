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
"""Drains: hosts that engines empty, and the check whether a host can be emptied."""

from typing import Annotated

import pydantic

from kronos_nova import model
from kronos_nova.api import calls
from kronos_nova.api import cloud_resources
from kronos_nova.api import endpoints
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import published_views


class DrainList(values.Resource):
    """Hosts that are disabled or that pack empties, by scope and name."""

    drains: list[cloud_resources.Drain]


class DrainQuestion(values.RequestModel):
    """A host that an operator wants to empty."""

    host: values.Name
    mode: Annotated[model.DrainMode, pydantic.Field(
        description='Without it the mode in which engines drain.')] | None = None
    overbooking: Annotated[bool, pydantic.Field(
        description='The ceilings of policies do not hold; claims do.')] = False


@endpoints.register_endpoint('GET', '/v1/drains', 'drain:list', endpoints.Access.READER)
def list_drains(call: calls.Call) -> DrainList:
    """List the hosts that are disabled or that pack empties, and why instances stay on them."""
    with call.calculations.take_turn():
        return DrainList(drains=[cloud_resources.Drain.from_listed(drain) for drain
                                 in published_views.list_drains(call.session, call.cloud)])


@endpoints.register_endpoint('GET', '/v1/drains/check', 'drain:check', endpoints.Access.READER)
def check_drain(call: calls.Call, query: DrainQuestion) -> cloud_resources.DrainCheck:
    """Check whether a host can be emptied, with the moves and the expected time.

    Nothing changes. To begin, disable the host in Nova for a reason that [engine]
    drain_reason_regex matches; this API has no account at Nova.
    """
    session = published_views.find_host_session(call.session, call.cloud, query.host)
    with call.calculations.take_turn():
        return cloud_resources.DrainCheck.from_answer(
            query.host, drain_checks.check_drain(
                session, query.host, mode=query.mode, overbooking=query.overbooking),
            session.reading.taken_at)
