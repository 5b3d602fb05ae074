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
"""Events."""

import datetime
import enum
from typing import Annotated, Self

import pydantic

from kronos_nova import model
from kronos_nova.api import calls
from kronos_nova.api import endpoints
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.api.handlers import paging
from kronos_nova.rebalancer.operations import events

#: Longest wait of a request, in seconds.
MAX_WAIT = 30


class EventKind(enum.StrEnum):
    """A kind of event."""

    PLAN = 'plan'
    TASK = 'task'
    COMMAND = 'command'
    NOTICE = 'notice'


class PlanEvent(values.Resource):
    """A plan that was stored."""

    id: str
    scope: str
    dry_run: bool
    move_count: int
    reason: str | None


class CommandEvent(values.Resource):
    """A command of an operator: a decision, a pause, or another change."""

    command: str
    given_by: str
    target: str
    reason: str


class NoticeEvent(values.Resource):
    """A notice to the owner of an instance: Kronos is about to move it off its host."""

    scope: str
    instance_id: str
    project_id: str
    from_host: str
    reason: model.NoticeReason
    movable_from: datetime.datetime = pydantic.Field(
        description='The move begins then at the earliest, as far as contracts say today.')
    valid_until: datetime.datetime = pydantic.Field(
        description='The move begins before, or needs a new notice.')
    may_shut_down: bool = pydantic.Field(
        description='A drain shuts the instance down, moves it cold and starts it again, if its '
                    'live migration is late.')


class Event(values.Resource):
    """An event: a plan was stored, a task has changed, an operator gave a command, or a notice.

    Of two events with one ID, the second one says nothing new.
    """

    id: str
    at: datetime.datetime
    kind: EventKind
    plan: PlanEvent | None
    task: resources.TaskSummary | None
    command: CommandEvent | None
    notice: NoticeEvent | None

    @classmethod
    def from_event(cls, event: events.Event) -> Self:
        plan, task, command, given = event.plan, event.task, event.command, event.notice
        return cls(
            id=event.id, at=values.make_time(event.at),
            kind=EventKind.PLAN if plan is not None else EventKind.TASK if task is not None
            else EventKind.COMMAND if command is not None else EventKind.NOTICE,
            plan=None if plan is None else PlanEvent(
                id=plan.plan_id, scope=plan.plan.scope, dry_run=plan.dry_run,
                move_count=len(plan.plan.moves), reason=plan.plan.reason),
            task=None if task is None else resources.TaskSummary.from_row(task),
            command=None if command is None else CommandEvent(
                command=command.command, given_by=command.by, target=command.target,
                reason=command.reason),
            notice=None if given is None else NoticeEvent(
                scope=given.scope, instance_id=given.notice.instance_uuid,
                project_id=given.notice.project_id, from_host=given.notice.host,
                reason=given.notice.reason,
                movable_from=values.make_time(given.notice.movable_from),
                valid_until=values.make_time(given.notice.valid_until),
                may_shut_down=given.notice.may_shut_down))


class EventQuery(paging.BoundedQuery):
    """The events after those that the client has."""

    since: Annotated[str, pydantic.StringConstraints(
        pattern=events.MARKER_PATTERN), pydantic.Field(
        description='Marker of the answer before; without it and changes-since there are no '
                    'events.')] | None = None
    changes_since: Annotated[pydantic.AwareDatetime, pydantic.Field(
        description='Instead of a marker: events since this time; ISO 8601 with its zone.',
    )] | None = pydantic.Field(default=None, alias='changes-since')
    wait_seconds: Annotated[float, pydantic.Field(
        ge=0, le=MAX_WAIT, allow_inf_nan=False,
        description='How long the answer may wait for an event.')] = 0

    def choose_marker(self) -> str | None:
        """Return the marker after which events are listed; None: no event is wanted."""
        if self.since is not None or self.changes_since is None:
            return self.since
        return events.make_marker(max(0.0, self.changes_since.timestamp()))


class EventList(values.Resource):
    """Events, oldest first."""

    events: list[Event]
    marker: str = pydantic.Field(description='The value of since for the next request.')
    waited: bool = pydantic.Field(
        description='false: so many requests wait that this one was answered at once.')


@endpoints.register_endpoint('GET', '/v1/events', 'event:list', endpoints.Access.READER)
def list_events(call: calls.Call, query: EventQuery) -> EventList:
    """List plans, changes of tasks, commands and notices since a marker; wait for the first one.

    A task that changes twice between two requests is listed once. A request that waits takes a
    thread of the service, so [kronos_api] max_waiting of each process wait at a time.
    """
    limit = query.choose_limit(call)
    with call.waits.take_place(query.wait_seconds > 0) as waits:
        page = events.wait_for_events(call.session, query.choose_marker(), limit,
                                      query.wait_seconds if waits else 0)
    return EventList(events=[Event.from_event(event) for event in page.events],
                     marker=page.marker, waited=waits or not query.wait_seconds)
