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
"""Views for the live page: HTML that other pages can show as well, and the rights of a token."""

import datetime
from typing import Self

import pydantic

from kronos_nova import version
from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import live_views
from kronos_nova.rebalancer.report import live_page
from kronos_nova.rebalancer.report import live_values
from kronos_nova.rebalancer.report import words


class View(values.Resource):
    """A part of the live page."""

    html: str = pydantic.Field(description='A fragment of HTML: no script, no style, no address.')


class ShownMove(values.Resource):
    """A move of a view; the fragment has it as data-move, by its number from 1."""

    number: int
    instance_id: str
    instance_name: str
    from_host: str
    to_host: str
    phase: str
    state: str
    under_way: bool = pydantic.Field(description='An executor has begun the task.')
    memory_mib: int
    plan_id: str

    @classmethod
    def from_live(cls, move: live_values.LiveMove) -> Self:
        line = move.line
        return cls(number=line.number, instance_id=line.uuid,
                   instance_name=str(words.format_value(line.name)), from_host=line.from_host,
                   to_host=line.to_host, phase=line.phase,
                   state=line.state or '', under_way=move.under_way, memory_mib=move.memory_mib,
                   plan_id=move.plan_id)


class ShownHost(values.Resource):
    """A host of a view, with its scores in [0, 1] in the order of the policies; null: not known."""

    name: str
    instance_count: int
    notes: list[str]
    scores_now: list[float | None]
    scores_planned: list[float | None]


class ScopeView(View):
    """A scope on the live page, with the data behind its drawings."""

    scope: str
    policies: list[str]
    hosts: list[ShownHost] = pydantic.Field(
        description='In the order of the squares; the fragment has their places as data-host.')
    moves: list[ShownMove]

    @classmethod
    def from_live(cls, live: live_values.LiveScope) -> Self:
        """Render a scope."""
        section = live.section
        return cls(
            html=live_page.render_scope(live), scope=section.scope,
            policies=[policy.name for policy in section.policies],
            hosts=[ShownHost(
                name=line.name, instance_count=line.instances, notes=list(line.notes),
                scores_now=[level.before for level in line.levels],
                scores_planned=[level.after for level in line.levels])
                for line in section.lines],
            moves=[ShownMove.from_live(move) for move in live.moves])


class OverviewView(View):
    """All scopes on the live page, in the order of data-show-scope."""

    failures_html: str = pydantic.Field(description='As html: the tasks that failed lately.')
    scopes: list[str]
    worst_scope: str | None = pydantic.Field(
        description='The scope with an imbalance farthest above its threshold.')
    read_at: datetime.datetime
    release: str = pydantic.Field(
        description='Changes when an upgrade has changed the page or the views.')


class ScopeQuestion(values.RequestModel):
    """A scope."""

    scope: values.Name


class PlanQuestion(values.RequestModel):
    """A plan."""

    plan_id: values.Uuid


class Rights(values.Resource):
    """What a token may do."""

    rules: list[str] = pydantic.Field(
        description='Names of the policy rules that admit the token, sorted.')
    user_name: str | None
    project_name: str | None


@endpoints.register_endpoint('GET', '/v1/rights', 'right:list', endpoints.Access.READER)
def list_rights(call: calls.Call) -> Rights:
    """List the policy rules that admit the token."""
    return Rights(rules=sorted({endpoint.rule for endpoint in endpoints.ENDPOINTS
                                if call.is_admitted(endpoint.rule)}),
                  user_name=call.identity.user_name, project_name=call.identity.project_name)


@endpoints.register_endpoint('GET', '/v1/views/overview', 'view:overview', endpoints.Access.READER)
def show_overview(call: calls.Call) -> OverviewView:
    """Show all scopes, the plans that wait, the pauses, and the tasks that failed lately.

    The answer is at most a second old, as are those of the other views. A view needs the rights
    for its data as well, here those to list scopes, plans, tasks and pauses.
    """
    call.check_rules('scope:list', 'plan:list', 'task:list', 'pause:list')

    def render() -> OverviewView:
        overview = live_views.read_overview(call.session)
        return OverviewView(html=live_page.render_overview(overview),
                            failures_html=live_page.render_failures(overview),
                            scopes=[card.name for card in overview.cards],
                            worst_scope=overview.find_worst_scope(),
                            read_at=values.make_time(overview.at), release=version.read_release())

    return call.views.render('overview', render)


@endpoints.register_endpoint('GET', '/v1/views/scope', 'view:scope', endpoints.Access.READER)
def show_scope(call: calls.Call, query: ScopeQuestion) -> ScopeView:
    """Show a scope: its hosts as squares, its moves, and its imbalance over time.

    It needs the rights to list scopes, hosts, plans and tasks as well.
    """
    call.check_rules('scope:list', 'host:list', 'plan:list', 'task:list')
    return call.views.render(
        ('scope', query.scope), lambda: ScopeView.from_live(
            live_views.read_scope(call.session, call.cloud, query.scope)))


@endpoints.register_endpoint('GET', '/v1/views/plan', 'view:plan', endpoints.Access.READER)
def show_plan_view(call: calls.Call, query: PlanQuestion) -> View:
    """Show a stored plan with its moves and their tasks, as kronos report does.

    It needs the rights to show plans and to list tasks as well.
    """
    call.check_rules('plan:show', 'task:list')
    return call.views.render(
        ('plan', query.plan_id), lambda: View(
            html=live_views.render_plan(call.session, query.plan_id)))
