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

"""Campaigns as operators see them."""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.store import pages

#: Campaigns that a list has at most, beside those that go on.
MOST = 20


def list_campaigns(session: sessions.DatabaseSession, scope: str | None = None, *,
                   ended: bool = False) -> list[model.Campaign | model.UnreadableCampaign]:
    """Return the campaigns that go on, by scope, then the newest that have ended.

    :param scope: only those of this scope; None: all.
    :param ended: also those that have ended.
    """
    live = session.store.campaigns.list_live_campaigns()
    known = {campaign.campaign_id for campaign in live}
    newest = session.store.campaigns.list_newest_campaigns(MOST + len(live)) if ended else []
    return [campaign for campaign in (*live, *(c for c in newest if c.campaign_id not in known))
            if scope in (None, campaign.scope)]


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignPage:
    """A page of campaigns.

    ``migrations``: those off the hosts of each campaign, by its ID. ``marker``: that of the next
    page, None: it is the last page.
    """

    campaigns: Sequence[model.CampaignOverview]
    unreadable: Sequence[model.UnreadableCampaign]
    migrations: Mapping[str, int]
    marker: str | None


def list_campaign_page(session: sessions.DatabaseSession, page: pages.PageRequest,
                       states: Collection[model.CampaignState] = ()) -> CampaignPage:
    """List a page of campaigns, newest first.

    :raises NotFoundError: no campaign has the UUID of the marker.
    """
    with stored_views.explain_marker(page):
        found = session.store.campaigns.list_overview_page(page.ask_one_more(), states)
    shown = found[:page.limit]
    readable = [row for row in shown if isinstance(row, model.CampaignOverview)]
    return CampaignPage(
        readable, [row for row in shown if isinstance(row, model.UnreadableCampaign)],
        session.store.campaigns.count_migrations([row.campaign_id for row in readable]),
        shown[-1].campaign_id if len(found) > page.limit else None)


def read_campaign(session: sessions.DatabaseSession, campaign_id: str) -> model.Campaign:
    """Read a campaign.

    :raises NotFoundError: it does not exist.
    """
    campaign = session.store.campaigns.find_campaign(campaign_id)
    if campaign is None:
        raise stored_views.make_not_found_error(
            campaign_id, 'no such campaign', 'kronos campaign status --all shows the newest; '
            '[engine] keep_days is how long they are kept')
    return campaign


def read_progress(session: sessions.DatabaseSession,
                  campaign: model.Campaign) -> values.CampaignProgress:
    """Read the progress of a campaign."""
    migrations = session.store.campaigns.count_migrations([campaign.campaign_id])
    return build_progress(model.summarise_campaign(campaign),
                          migrations.get(campaign.campaign_id, 0))


def list_progress(session: sessions.DatabaseSession, scope: str | None = None, *,
                  ended_since: float | None = None,
                  ) -> tuple[values.CampaignProgress | model.UnreadableCampaign, ...]:
    """Return the progress of the campaigns that go on, by scope, then of ended ones.

    :param scope: only those of this scope; None: all.
    :param ended_since: also those that ended at this time or later; None: no ended one.
    """
    campaigns = session.store.campaigns
    found = campaigns.list_live_overviews(scope)
    if ended_since is not None:
        known = {row.campaign_id for row in found}
        found += [row for row in campaigns.list_ended_overviews(ended_since, MOST, scope)
                  if row.campaign_id not in known]
    migrations = campaigns.count_migrations([row.campaign_id for row in found])
    return tuple(row if isinstance(row, model.UnreadableCampaign)
                 else build_progress(row, migrations.get(row.campaign_id, 0)) for row in found)


def build_progress(overview: model.CampaignOverview, migrations: int) -> values.CampaignProgress:
    """Build the progress of a campaign.

    :param migrations: those that have left its hosts.
    """
    states = model.CampaignHostState
    campaign, counts = overview.campaign, overview.counts
    live = not campaign.state.is_terminal
    # No instance leaves a host that is held, or later.
    is_emptying = states.TO_COME in counts or states.EMPTYING in counts
    left = max(0, campaign.migrations - migrations) if live and is_emptying else None
    return values.CampaignProgress(
        campaign.campaign_id, campaign.scope, campaign.state, campaign.created_at,
        campaign.created_by, campaign.ended_at,
        over=sum(number for state, number in counts.items() if state.is_over),
        total=overview.total,
        states=tuple((state.value, number) for state, number in counts.items()),
        next_host=overview.next_host if live else None, held=describe_hold(campaign),
        waits=campaign.waits if live else '', begun=overview.begun, migrations=migrations,
        migrations_left=left,
        seconds_left=None if not left or campaign.seconds is None
        else campaign.seconds * left / campaign.migrations)


def describe_hold(campaign: model.Campaign) -> str:
    """Return who has paused or aborted a campaign, and why; empty: it was neither."""
    if not campaign.held_because:
        return ''
    verb = 'paused' if campaign.state is model.CampaignState.PAUSED else 'aborted'
    return f'{verb} by {campaign.held_by}: {campaign.held_because}'


def describe_campaign(campaign: model.Campaign) -> str:
    """Return how far a campaign is, and why it does not go on."""
    states = ', '.join(f'{number} {state}' for state, number in
                       model.summarise_campaign(campaign).counts.items())
    parts = [f'{campaign.reason}: scope {campaign.scope}, {states} of '
             f'{plurals.count_noun(len(campaign.hosts), "host")}']
    if campaign.windows:
        parts.append('windows ' + ', '.join(map(str, campaign.windows)))
    if hold := describe_hold(campaign):
        parts.append(hold)
    if campaign.waits:
        parts.append(f'waits: {campaign.waits}')
    return '; '.join(parts)
