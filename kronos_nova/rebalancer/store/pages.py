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

"""Pages of plans and tasks, newest plan first, for programs that read all plans or tasks."""

from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova.model import CampaignState
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_plan, _task = tables.plan, tables.task
_FIRST_ID = '00000000-0000-0000-0000-000000000000'
_LAST_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff'


@dataclasses.dataclass(frozen=True, slots=True)
class PageRequest:
    """The wanted page: at most ``limit`` rows after the row that ``marker`` names.

    ``marker``: the UUID of the last row of the page before; None: the first page. ``changed_since``
    in epoch seconds. ``id_prefix``: the beginning of a UUID. None or empty filters match all rows.
    """

    limit: int
    marker: str | None = None
    changed_since: float | None = None
    scope: str | None = None
    id_prefix: str | None = None

    def ask_one_more(self) -> 'PageRequest':
        """Return the request with one more row, which shows whether another page follows."""
        return dataclasses.replace(self, limit=self.limit + 1)


@dataclasses.dataclass(frozen=True, slots=True)
class TaskFilter:
    """Wanted tasks. ``instance``: a UUID, or a name, which several instances may have."""

    states: Collection[TaskState] = ()
    plan_id: str | None = None
    instance: str | None = None


class UnknownMarker(LookupError):
    """No row has the UUID of the marker; it may have been purged."""


def match_changed_tasks(since: float) -> ColumnElement[bool]:
    """Match tasks that have changed since; two indexes find them, as those that ended do not."""
    return sa.and_(sa.or_(rows.is_live(), _task.c.completed_at >= since),
                   _task.c.updated_at >= since)


def match_id_prefix(column: ColumnElement[str], prefix: str) -> ColumnElement[bool]:
    """Match the UUIDs that begin with a text, by a range of whole UUIDs.

    Both ends have their hyphens where UUIDs have them: so each collation gives the same rows, also
    one that skips hyphens, and the index of the column serves the range. LIKE has no index on
    PostgreSQL unless the collation is C.

    :param prefix: at most 36 characters, in lower case.
    """
    return column.between(f'{prefix}{_FIRST_ID[len(prefix):]}', f'{prefix}{_LAST_ID[len(prefix):]}')


def list_plan_page(connection: sa.Connection, page: PageRequest) -> list[rows.PlanRow]:
    """Return plans, newest first.

    A plan has changed when it was made or one of its tasks has changed, as by each decision.

    :raises UnknownMarker: no plan has the UUID.
    """
    wanted: list[ColumnElement[bool]] = []
    if page.scope is not None:
        wanted.append(_plan.c.scope == page.scope)
    if page.id_prefix is not None:
        wanted.append(match_id_prefix(_plan.c.plan_id, page.id_prefix))
    if page.changed_since is not None:
        wanted.append(sa.or_(
            _plan.c.created_at >= page.changed_since,
            _plan.c.plan_id.in_(sa.select(_task.c.plan_id).where(
                match_changed_tasks(page.changed_since)))))
    if page.marker is not None:
        marker = _find_marker(connection, sa.select(_plan.c.created_at).where(
            _plan.c.plan_id == page.marker))
        wanted.append(_match_after(((_plan.c.created_at, marker.created_at, False),
                                    (_plan.c.plan_id, page.marker, False))))
    return [rows.plan_row(row) for row in connection.execute(
        sa.select(_plan).where(*wanted)
        .order_by(_plan.c.created_at.desc(), _plan.c.plan_id.desc())
        .limit(page.limit)).mappings()]


def list_task_page(connection: sa.Connection, page: PageRequest,
                   task_filter: TaskFilter) -> list[rows.TaskRow]:
    """Return tasks, those of the newest plan first, and of one plan in the order of their waves.

    :raises UnknownMarker: no task has the UUID.
    """
    wanted: list[ColumnElement[bool]] = []
    if page.scope is not None:
        wanted.append(_task.c.scope == page.scope)
    if page.id_prefix is not None:
        wanted.append(match_id_prefix(_task.c.task_id, page.id_prefix))
    if page.changed_since is not None:
        wanted.append(match_changed_tasks(page.changed_since))
    if task_filter.states:
        wanted.append(_task.c.state.in_(sorted(state.value for state in task_filter.states)))
    if task_filter.plan_id is not None:
        wanted.append(_task.c.plan_id == task_filter.plan_id)
    if task_filter.instance is not None:
        wanted.append(sa.or_(_task.c.instance_uuid == task_filter.instance,
                             _task.c.instance_name == task_filter.instance))
    if page.marker is not None:
        marker = _find_marker(
            connection, sa.select(_plan.c.created_at, _plan.c.plan_id, _task.c.wave)
            .join_from(_task, _plan).where(_task.c.task_id == page.marker))
        wanted.append(_match_after(((_plan.c.created_at, marker.created_at, False),
                                    (_plan.c.plan_id, marker.plan_id, False),
                                    (_task.c.wave, marker.wave, True),
                                    (_task.c.task_id, page.marker, True))))
    return [rows.task_row(row) for row in connection.execute(
        sa.select(_task).join_from(_plan, _task).where(*wanted)
        .order_by(_plan.c.created_at.desc(), _plan.c.plan_id.desc(), _task.c.wave,
                  _task.c.task_id)
        .limit(page.limit)).mappings()]


def select_campaigns(connection: sa.Connection, page: PageRequest,
                     states: Collection[CampaignState]) -> sa.Select[Any]:
    """Return the query of a page of campaigns, newest first.

    :param states: only campaigns in such a state, and those whose state cannot be read; empty: all.
    :raises UnknownMarker: no campaign has the UUID.
    """
    campaign = tables.campaign
    wanted: list[ColumnElement[bool]] = []
    if page.scope is not None:
        wanted.append(campaign.c.scope == page.scope)
    if page.id_prefix is not None:
        wanted.append(match_id_prefix(campaign.c.campaign_id, page.id_prefix))
    if page.changed_since is not None:
        wanted.append(sa.func.coalesce(campaign.c.changed_at, campaign.c.created_at)
                      >= page.changed_since)
    if states:
        passing = [state.value for state in CampaignState if state not in states]
        wanted.append(campaign.c.state.not_in(passing))
    if page.marker is not None:
        marker = _find_marker(connection, sa.select(campaign.c.created_at).where(
            campaign.c.campaign_id == page.marker))
        wanted.append(_match_after(((campaign.c.created_at, marker.created_at, False),
                                    (campaign.c.campaign_id, page.marker, False))))
    return sa.select(campaign).where(*wanted).order_by(
        campaign.c.created_at.desc(), campaign.c.campaign_id.desc()).limit(page.limit)


def _find_marker(connection: sa.Connection, query: sa.Select[Any]) -> sa.Row[Any]:
    row = connection.execute(query).first()
    if row is None:
        raise UnknownMarker
    return row


def _match_after(keys: Sequence[tuple[ColumnElement[Any], Any, bool]]) -> ColumnElement[bool]:
    """Match rows after the given one.

    :param keys: columns of the order, the row's values, and whether the column ascends.
    """
    after: list[ColumnElement[bool]] = []
    for index, (column, value, ascends) in enumerate(keys):
        same = [earlier == known for earlier, known, _ascends in keys[:index]]
        after.append(sa.and_(*same, column > value if ascends else column < value))
    return sa.or_(*after)


class PageRepository(transactions.Repository):
    """Pages of plans and tasks."""

    def list_plan_page(self, page: PageRequest) -> list[rows.PlanRow]:
        """Return plans, newest first.

        :raises UnknownMarker: no plan has the UUID.
        """
        return self._runner.run_read(lambda c: list_plan_page(c, page))

    def list_task_page(self, page: PageRequest, task_filter: TaskFilter) -> list[rows.TaskRow]:
        """Return tasks, those of the newest plan first.

        :raises UnknownMarker: no task has the UUID.
        """
        return self._runner.run_read(lambda c: list_task_page(c, page, task_filter))
