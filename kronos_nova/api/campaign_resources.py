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

"""Typed resources of campaigns, which empty hosts one after the other."""

import datetime
from typing import Any, Self

import pydantic

from kronos_nova import model
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import campaign_views


class HostCount(values.Resource):
    """The number of hosts in a state."""

    state: model.CampaignHostState
    count: int


class CampaignHost(values.Resource):
    """A host of a campaign; ``since``: when its state began."""

    host: str
    state: model.CampaignHostState
    since: datetime.datetime
    detail: str = pydantic.Field(description='Why it is as it is, for people.')

    @classmethod
    def from_model(cls, host: model.CampaignHost) -> Self:
        return cls(host=host.host, state=host.state, since=values.make_time(host.since),
                   detail=host.detail)


class CampaignSummary(values.Resource):
    """A campaign without its hosts."""

    id: str
    scope: str
    state: model.CampaignState
    reason: str = pydantic.Field(description='disabled_reason of its hosts in Nova.')
    created_at: datetime.datetime
    created_by: str
    changed_at: datetime.datetime
    ended_at: datetime.datetime | None
    windows: list[str] = pydantic.Field(
        description='When a host may begin, and the work; empty: at any time.')
    hosts_together: int = pydantic.Field(description='Most hosts that are emptied at a time.')
    host_count: int
    host_over_count: int = pydantic.Field(description='Hosts that are done or left out.')
    hosts_by_state: list[HostCount]
    next_host: str | None = pydantic.Field(description='The first host to come.')
    held_by: str | None = pydantic.Field(description='Who has paused or aborted it.')
    held_because: str | None
    waits: str | None = pydantic.Field(description='Why no further host begins at the moment.')
    migration_count: int = pydantic.Field(description='Migrations off its hosts so far.')
    migrations_left: int | None = pydantic.Field(
        description='Rest of the forecast of its start; null: no host is left to empty.')
    expected_seconds_left: float | None

    @classmethod
    def from_overview(cls, overview: model.CampaignOverview, migrations: int) -> Self:
        return cls(**_describe_campaign(overview, migrations))


class UnreadableCampaign(values.Resource):
    """A campaign with a value in the database that Kronos does not write."""

    id: str
    scope: str
    field: str = pydantic.Field(description='The column of the value.')
    problem: str
    remedy: str

    @classmethod
    def from_model(cls, campaign: model.UnreadableCampaign) -> Self:
        return cls(id=campaign.campaign_id, scope=campaign.scope, field=campaign.field,
                   problem=campaign.problem, remedy=campaign.remedy)


class Campaign(CampaignSummary):
    """A campaign with its hosts, in the order in which they are emptied."""

    hosts: list[CampaignHost]

    @classmethod
    def from_model(cls, campaign: model.Campaign, migrations: int) -> Self:
        return cls(**_describe_campaign(model.summarise_campaign(campaign), migrations),
                   hosts=[CampaignHost.from_model(host) for host in campaign.hosts])


class StayingInstance(values.Resource):
    """An instance that would keep a host from becoming empty, or may: its reason says which."""

    host: str
    instance_id: str
    reason: str
    leaves_later: bool


class StartedCampaign(values.Resource):
    """A campaign that has started, with its forecast."""

    campaign: Campaign
    hosts_together_reason: str | None = pydantic.Field(
        description='Why hosts_together is smaller than asked for, or why a smaller number was not '
                    'tried to the end.')
    step_count: int
    migration_count: int
    instance_count: int = pydantic.Field(
        description='Instances on the hosts that become empty.')
    expected_seconds: float | None
    staying: list[StayingInstance] = pydantic.Field(
        description='Empty unless force was set, or instances leave later.')
    obstacles: list[str] = pydantic.Field(description='Why engines wait; with force.')

    @classmethod
    def from_model(cls, campaign: model.Campaign,
                   forecast: campaign_forecasts.CampaignForecast) -> Self:
        return cls(
            campaign=Campaign.from_model(campaign, 0),
            hosts_together_reason=forecast.together_reason or None,
            step_count=len(forecast.steps),
            migration_count=forecast.migrations, instance_count=forecast.instances,
            expected_seconds=campaign.seconds, obstacles=list(forecast.obstacles),
            staying=[StayingInstance(host=host, instance_id=instance.instance_uuid,
                                     reason=instance.reason, leaves_later=instance.later)
                     for host, blocked in forecast.staying.items() for instance in blocked])


def _describe_campaign(overview: model.CampaignOverview, migrations: int) -> dict[str, Any]:
    """Return the fields of a campaign without its hosts."""
    campaign = overview.campaign
    progress = campaign_views.build_progress(overview, migrations)
    return {
        'id': campaign.campaign_id, 'scope': campaign.scope, 'state': campaign.state,
        'reason': campaign.reason, 'created_at': values.make_time(campaign.created_at),
        'created_by': campaign.created_by,
        'changed_at': values.make_time(campaign.changed_at or campaign.created_at),
        'ended_at': values.make_optional_time(campaign.ended_at),
        'windows': [window.text for window in campaign.windows],
        'hosts_together': campaign.together, 'host_count': progress.total,
        'host_over_count': progress.over,
        'hosts_by_state': [HostCount(state=model.CampaignHostState(state), count=number)
                           for state, number in progress.states],
        'next_host': progress.next_host, 'held_by': campaign.held_by or None,
        'held_because': campaign.held_because or None, 'waits': progress.waits or None,
        'migration_count': migrations, 'migrations_left': progress.migrations_left,
        'expected_seconds_left': progress.seconds_left}
