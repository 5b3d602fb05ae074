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

"""Campaigns: list, start and direct the maintenance of many hosts."""

from collections.abc import Callable
import time
from typing import Annotated

import pydantic

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.api import calls
from kronos_nova.api import campaign_resources
from kronos_nova.api import endpoints
from kronos_nova.api import values
from kronos_nova.api.handlers import paging
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import campaign_orders
from kronos_nova.rebalancer.operations import campaign_views
from kronos_nova.rebalancer.operations import nova_users
from kronos_nova.rebalancer.operations import published_views

#: Name of all nova-computes, in errors.
SERVICES = 'compute services'
MOST_HOSTS = 10000
#: Clients and proxies wait 60 s for an answer. What follows the forecast, and the plan that a
#: forecast with smaller batches is busy with at the end, must fit into the rest.
FORECAST_SECONDS = 45.0
#: Forecasts with smaller batches take no longer: other calculations wait for their end.
REPEAT_SECONDS = 10.0


class CampaignQuery(paging.PageQuery):
    """A page of campaigns, newest first."""

    state: Annotated[list[model.CampaignState], pydantic.Field(
        max_length=len(model.CampaignState))] = values.list_field(
        description='Only campaigns in this state; repeatable.')


class CampaignPage(values.Resource):
    """A page of campaigns."""

    campaigns: list[campaign_resources.CampaignSummary]
    unreadable: list[campaign_resources.UnreadableCampaign] = pydantic.Field(
        description='Campaigns of the page whose rows in the database are damaged.')
    next: str | None = pydantic.Field(description='Address of the next page; null: no more.')


class CampaignOrder(values.RequestModel):
    """Hosts to empty one after the other."""

    hosts: Annotated[list[values.Name], pydantic.Field(max_length=MOST_HOSTS)] = (
        values.list_field(description='Names of compute services.'))
    aggregate: Annotated[values.Name, pydantic.Field(
        description='All compute hosts of this aggregate take part.')] | None = None
    reason: Annotated[values.Reason, pydantic.Field(
        max_length=campaign_orders.REASON_LENGTH,
        description='Why; Nova keeps it in disabled_reason of each host.')]
    together: Annotated[int, pydantic.Field(
        ge=1, le=MOST_HOSTS, description='Most hosts that are emptied at a time.')] | None = None
    windows: Annotated[list[values.Name], pydantic.Field(
        max_length=maintenance_windows.MOST)] = values.list_field(
        description='When a host may begin, and the work, as Sat 22:00-04:00.')
    force: Annotated[bool, pydantic.Field(
        description='Also when instances would stay, or engines would not carry it out now.'
    )] = False


class CampaignReason(values.RequestModel):
    """The reason of an order for a campaign."""

    reason: values.Reason


class OptionalCampaignReason(values.RequestModel):
    """The reason of an order for a campaign, which may be missing."""

    reason: values.Reason | None = None


class HostOrder(values.RequestModel):
    """A host of a campaign."""

    host: values.Name
    reason: values.Reason | None = None


@endpoints.register_endpoint('GET', '/v1/campaigns', 'campaign:list', endpoints.Access.READER)
def list_campaigns(call: calls.Call, query: CampaignQuery) -> CampaignPage:
    """List campaigns, newest first."""
    page = campaign_views.list_campaign_page(call.session, query.make_page_request(call),
                                             query.state)
    return CampaignPage(
        campaigns=[campaign_resources.CampaignSummary.from_overview(
            overview, page.migrations.get(overview.campaign_id, 0))
            for overview in page.campaigns],
        unreadable=[campaign_resources.UnreadableCampaign.from_model(campaign)
                    for campaign in page.unreadable],
        next=query.make_next_url(call, page.marker))


@endpoints.register_endpoint('GET', '/v1/campaigns/{campaign_id}', 'campaign:show',
                             endpoints.Access.READER)
def show_campaign(call: calls.Call, campaign_id: str) -> campaign_resources.Campaign:
    """Show a campaign with its hosts."""
    campaign = campaign_views.read_campaign(call.session, campaign_id)
    return campaign_resources.Campaign.from_model(
        campaign, campaign_views.read_progress(call.session, campaign).migrations)


@endpoints.register_endpoint('POST', '/v1/campaigns', 'campaign:start', endpoints.Access.MANAGER)
def start_campaign(call: calls.Call, body: CampaignOrder) -> campaign_resources.StartedCampaign:
    """Forecast a campaign and start it: engines begin in their next cycle.

    The API asks Nova with the token of the user whether this user may update compute services
    (os_compute_api:os-services:update), as engines will: a refusal of Nova is 403. Refused while
    the last reading of the cloud is older than [kronos_api] max_reading_age, and where the forecast
    takes so long that clients and proxies no longer wait for the answer. Forecasts with fewer hosts
    at a time, which are made where hosts would keep instances, end at that time, and after 10 s;
    then the best one before counts.
    """
    time_limit = _TimeLimit()
    session = published_views.find_campaign_session(call.session, call.cloud, body.hosts,
                                                    body.aggregate)
    with nova_users.open_service(call.conf, call.access, SERVICES) as service:
        return campaign_resources.StartedCampaign.from_model(*campaign_orders.start_campaign(
            session, campaign_orders.CampaignRequest(
                body.hosts, body.aggregate, ' '.join(body.reason.split()), body.together,
                body.windows, body.force), time_limit.check_time,
            service=service, take_turn=call.calculations.take_turn,
            repeats_expired=time_limit.are_repeats_over))


@endpoints.register_endpoint('POST', '/v1/campaigns/{campaign_id}/pause', 'campaign:pause',
                             endpoints.Access.MANAGER)
def pause_campaign(call: calls.Call, campaign_id: str,
                   body: CampaignReason) -> campaign_resources.Campaign:
    """Pause a campaign: no further host begins, and no work does.

    Hosts that are being emptied are emptied to the end; hosts that come back are enabled.
    """
    campaign_orders.pause_campaign(call.session, None, body.reason, campaign_id)
    return show_campaign(call, campaign_id)


@endpoints.register_endpoint('POST', '/v1/campaigns/{campaign_id}/resume', 'campaign:resume',
                             endpoints.Access.MANAGER)
def resume_campaign(call: calls.Call, campaign_id: str,
                    body: OptionalCampaignReason) -> campaign_resources.Campaign:
    """Let a campaign that pauses go on.

    A host that another user has enabled while the campaign emptied it is disabled again. Nova must
    let the user update compute services.
    """
    return _give_order(call, campaign_id, lambda: campaign_orders.resume_campaign(
        call.session, None, body.reason or '', campaign_id))


@endpoints.register_endpoint('POST', '/v1/campaigns/{campaign_id}/abort', 'campaign:abort',
                             endpoints.Access.MANAGER)
def abort_campaign(call: calls.Call, campaign_id: str,
                   body: CampaignReason) -> campaign_resources.Campaign:
    """End a campaign: hosts that are being emptied are enabled.

    Those that are held for the work, or where it has begun, are enabled once it is done, or the
    host is left out. Nova must let the user update compute services.
    """
    return _give_order(call, campaign_id, lambda: campaign_orders.abort_campaign(
        call.session, None, body.reason, campaign_id))


@endpoints.register_endpoint('POST', '/v1/campaigns/{campaign_id}/done', 'campaign:done',
                             endpoints.Access.MANAGER)
def end_work(call: calls.Call, campaign_id: str, body: HostOrder) -> campaign_resources.Campaign:
    """Say that the work at a host is done.

    Engines enable the host once its nova-compute reports and the check succeeds. Nova must let the
    user update compute services.
    """
    return _order_host(call, campaign_id, body, campaign_orders.DONE)


@endpoints.register_endpoint('POST', '/v1/campaigns/{campaign_id}/repeat', 'campaign:repeat',
                             endpoints.Access.MANAGER)
def repeat_work(call: calls.Call, campaign_id: str,
                body: HostOrder) -> campaign_resources.Campaign:
    """Run the command for a host again, after it failed or its end is not known.

    Nova must let the user update compute services.
    """
    return _order_host(call, campaign_id, body, campaign_orders.REPEAT)


@endpoints.register_endpoint('POST', '/v1/campaigns/{campaign_id}/skip', 'campaign:skip',
                             endpoints.Access.MANAGER)
def skip_host(call: calls.Call, campaign_id: str, body: HostOrder) -> campaign_resources.Campaign:
    """Leave a host out of its campaign; engines enable it at once, without the work.

    Nova must let the user update compute services.
    """
    return _order_host(call, campaign_id, body, campaign_orders.SKIP)


class _TimeLimit:
    """The end of a forecast for which no client waits any more.

    A campaign must not start after its client has heard of a failure.
    """

    def __init__(self) -> None:
        self._end = time.monotonic() + FORECAST_SECONDS
        self._repeats_end: float | None = None

    def is_over(self) -> bool:
        return time.monotonic() > self._end

    def are_repeats_over(self) -> bool:
        """Return whether forecasts with smaller batches must end; the first call begins them."""
        now = time.monotonic()
        if self._repeats_end is None:
            self._repeats_end = min(self._end, now + REPEAT_SECONDS)
        return now > self._repeats_end

    def check_time(self, what: str, part: float) -> None:
        """Refuse the start once the time is over; the parameters are not used."""
        if self.is_over():
            raise exception.ConflictError(
                path='kronos-api', field='hosts',
                problem=f'the forecast takes longer than {FORECAST_SECONDS:.0f} s',
                remedy='Start a campaign over fewer hosts, or start it on a controller')


def _order_host(call: calls.Call, campaign_id: str, body: HostOrder,
                order: campaign_orders.HostOrder) -> campaign_resources.Campaign:
    return _give_order(call, campaign_id, lambda: campaign_orders.order_host(
        call.session, body.host, order, body.reason or '', campaign_id))


def _give_order(call: calls.Call, campaign_id: str,
                give: Callable[[], model.Campaign]) -> campaign_resources.Campaign:
    """Give an order after which engines disable or enable hosts; return the campaign.

    :raises KronosException: Nova does not let the user update compute services, or the campaign
        does not admit the order. Nothing is changed then.
    """
    campaign_views.read_campaign(call.session, campaign_id)
    with nova_users.open_service(call.conf, call.access, SERVICES) as service:
        nova_users.require_update_right(service)
    give()
    return show_campaign(call, campaign_id)
