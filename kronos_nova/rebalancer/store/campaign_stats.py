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

"""Numbers of campaigns, the hosts that they close, and the end of old ones."""

from collections.abc import Collection
import dataclasses
from typing import Any

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables

_campaign, _host = tables.campaign, tables.campaign_host
#: States in which the hosts that are to come take no instances.
_CLOSING = (model.CampaignState.RUNNING.value, model.CampaignState.PAUSED.value)
_TERMINAL = [state.value for state in model.CampaignState if state.is_terminal]
_BEGUN = [state.value for state in model.CampaignHostState if state.is_begun]


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignNumbers:
    """Whether the campaign of a scope pauses, and the number of its hosts by state."""

    is_paused: bool
    hosts: dict[str, int] = dataclasses.field(default_factory=dict)


def list_closed_hosts(connection: sa.Connection, scope: str) -> frozenset[str]:
    """Return the hosts of a scope's campaign that take no instance though they are enabled.

    Those to come while others have begun, unless a step is opened: then they take instances. And
    those that have begun and are not known to be disabled.
    """
    return frozenset(connection.scalars(*_select_closed_hosts(scope)))


def count_campaign_hosts(connection: sa.Connection) -> dict[str, CampaignNumbers]:
    """Count the hosts of campaigns that go on, by scope."""
    found: dict[str, CampaignNumbers] = {}
    for row in connection.execute(
            sa.select(_campaign.c.scope, _campaign.c.state.label('campaign_state'), _host.c.state,
                      sa.func.count().label('number'))
            .join(_host, _host.c.campaign_id == _campaign.c.campaign_id)
            .where(_campaign.c.live_scope.is_not(None))
            .group_by(_campaign.c.scope, _campaign.c.state, _host.c.state)):
        found.setdefault(row.scope, CampaignNumbers(
            row.campaign_state == model.CampaignState.PAUSED.value)).hosts[row.state] = row.number
    return found


def count_hosts_by_state(connection: sa.Connection,
                         campaign_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Count the hosts of campaigns, by campaign and state."""
    counts: dict[str, dict[str, int]] = {}
    for row in connection.execute(
            sa.select(_host.c.campaign_id, _host.c.state, sa.func.count().label('number'))
            .where(_host.c.campaign_id.in_(sorted(campaign_ids)))
            .group_by(_host.c.campaign_id, _host.c.state)) if campaign_ids else ():
        counts.setdefault(row.campaign_id, {})[row.state] = row.number
    return counts


def map_next_hosts(connection: sa.Connection, campaign_ids: Collection[str]) -> dict[str, str]:
    """Return the first host that is to come, by campaign."""
    if not campaign_ids:
        return {}
    to_come = _host.c.state == model.CampaignHostState.TO_COME.value
    first = (sa.select(_host.c.campaign_id, sa.func.min(_host.c.position).label('position'))
             .where(_host.c.campaign_id.in_(sorted(campaign_ids)), to_come)
             .group_by(_host.c.campaign_id).subquery())
    return {row.campaign_id: row.host for row in connection.execute(
        sa.select(_host.c.campaign_id, _host.c.host).join(first, sa.and_(
            first.c.campaign_id == _host.c.campaign_id, first.c.position == _host.c.position))
        .where(to_come).order_by(_host.c.host.desc()))}


def purge_ended_campaigns(connection: sa.Connection, limit: float) -> bool:
    """Delete a batch of campaigns that ended before ``limit``; return whether more are left.

    One that goes on is kept, also if its row has the time of an end.
    """
    ended = list(connection.scalars(sa.select(_campaign.c.campaign_id).where(
        _campaign.c.ended_at < limit, _campaign.c.state.in_(_TERMINAL)
    ).limit(statements.BATCH // 10)))
    connection.execute(sa.delete(_host).where(_host.c.campaign_id.in_(ended)))
    connection.execute(sa.delete(_campaign).where(_campaign.c.campaign_id.in_(ended)))
    return len(ended) == statements.BATCH // 10


def select_migrations() -> sa.Select[Any]:
    """Return the query of the number of migrations off the hosts of campaigns, by campaign."""
    task = tables.task
    return (
        sa.select(_campaign.c.campaign_id, sa.func.count().label('number'))
        .join(_host, _host.c.campaign_id == _campaign.c.campaign_id)
        .join(task, task.c.from_host == _host.c.host)
        .where(task.c.scope == _campaign.c.scope,
               task.c.phase == model.Phase.EVACUATE.value,
               task.c.state == model.TaskState.COMPLETED.value,
               task.c.completed_at >= _campaign.c.created_at,
               sa.or_(_campaign.c.ended_at.is_(None),
                      task.c.completed_at <= _campaign.c.ended_at))
        .group_by(_campaign.c.campaign_id))


@statements.build_once
def _select_closed_hosts(scope: str) -> sa.Select[Any]:
    begun = _host.alias('begun')
    to_come = sa.and_(
        _campaign.c.opened.is_(False), _host.c.state == model.CampaignHostState.TO_COME.value,
        sa.exists().where(begun.c.campaign_id == _campaign.c.campaign_id,
                          begun.c.state.in_(_BEGUN)))
    beginning = sa.and_(_host.c.state == model.CampaignHostState.EMPTYING.value,
                        _host.c.disabled_at.is_(None))
    return sa.select(_host.c.host).join(
        _campaign, _campaign.c.campaign_id == _host.c.campaign_id).where(
        _campaign.c.live_scope == scope, _campaign.c.state.in_(_CLOSING),
        sa.or_(to_come, beginning))
