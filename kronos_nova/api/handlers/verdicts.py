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
"""Questions to the planner: why a move is not made, and plans under other conditions."""

from typing import Annotated

import pydantic

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import move_resources
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import move_verdicts
from kronos_nova.rebalancer.operations import plan_comparisons
from kronos_nova.rebalancer.operations import published_views

#: Hosts that a supposition names, at most.
MAX_HOSTS = 200
HostNames = Annotated[list[values.Name], pydantic.Field(max_length=MAX_HOSTS)]


class MoveQuestion(values.RequestModel):
    """A move to judge."""

    host: Annotated[values.Name, pydantic.Field(description='The destination.')]
    phase: Annotated[model.Phase, pydantic.Field(
        description='The purpose of the move; without it the mode of the policies.')] | None = None


class ScopeQuestion(values.RequestModel):
    """A scope to plan."""

    scope: Annotated[values.Name, pydantic.Field(description='The scope to plan.')]


class AddedHosts(values.RequestModel):
    """Empty hosts that are like one of the cloud."""

    count: Annotated[int, pydantic.Field(ge=1, le=MAX_HOSTS)]
    like: values.Name


class Supposition(values.RequestModel):
    """Conditions that are not those of the cloud."""

    scope: Annotated[values.Name, pydantic.Field(
        description='The scope to plan.')]
    added: Annotated[list[AddedHosts], pydantic.Field(
        max_length=10, description='More hosts.')] = values.list_field()
    removed: Annotated[HostNames, pydantic.Field(
        description='Hosts that are emptied, also if options allow no drain.',
    )] = values.list_field()
    drained: Annotated[HostNames, pydantic.Field(
        description='Hosts that are disabled.')] = values.list_field()
    reason: Annotated[values.Reason, pydantic.Field(
        description='Reason for which the drained hosts are disabled.')] = 'maintenance'
    load_factor: Annotated[float, pydantic.Field(
        gt=0, le=100, allow_inf_nan=False,
        description='Factor for the load of every instance and host.')] | None = None


@endpoints.register_endpoint('GET', '/v1/instances/{instance_id}/why-not', 'instance:why-not',
                             endpoints.Access.READER)
def explain_refused_move(call: calls.Call, instance_id: str,
                         query: MoveQuestion) -> move_resources.MoveVerdict:
    """Judge the move of an instance to a host: each rule, the holds, and the effect on the load."""
    session = published_views.find_instance_session(call.session, call.cloud, instance_id)
    hosts = session.reading.content.cluster.hosts
    if query.host not in hosts:
        raise exception.NotFoundError(path='query', field='host', remedy='See the list of hosts',
                                      problem=f'no compute host {query.host!r}')
    with call.calculations.take_turn():
        return move_resources.MoveVerdict.from_answer(
            move_verdicts.judge_move(session, instance_id, query.host, query.phase),
            session.reading.taken_at)


@endpoints.register_endpoint('GET', '/v1/why-nothing', 'scope:why-nothing',
                             endpoints.Access.READER)
def explain_next_plan(call: calls.Call, query: ScopeQuestion) -> move_resources.NextPlan:
    """Plan a scope as its next cycle does, with all that holds it; nothing is stored."""
    session = call.cloud.find_session(call.session, query.scope)
    with call.calculations.take_turn():
        (today,) = plan_comparisons.plan_scopes_today(session, query.scope)
    return move_resources.NextPlan.from_model(today, session.reading.taken_at)


@endpoints.register_endpoint('POST', '/v1/what-if', 'scope:what-if', endpoints.Access.READER)
def suppose_conditions(call: calls.Call, body: Supposition) -> move_resources.ScopeComparison:
    """Plan a scope as it is, and under other conditions; nothing is stored.

    Cooldowns, pauses and other holds that end with time or by a command hold neither plan.
    """
    session = call.cloud.find_session(call.session, body.scope)
    for host in (*body.removed, *body.drained, *(added.like for added in body.added)):
        if session.reading.scope_by_host.get(host) != body.scope:
            raise exception.NotFoundError(
                path='body', field='host', problem=f'scope {body.scope!r} has no host {host!r}',
                remedy='See the list of hosts')
    with call.calculations.take_turn():
        (comparison,) = plan_comparisons.compare_plans(session, plan_comparisons.Supposition(
            added=[(added.count, added.like) for added in body.added], removed=body.removed,
            drained=body.drained, reason=body.reason, load=body.load_factor), body.scope)
    return move_resources.ScopeComparison.from_model(comparison, session.reading.taken_at)
