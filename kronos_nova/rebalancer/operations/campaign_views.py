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

from collections import Counter
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
                   ended: bool = False) -> list[model.Campaign]:
    """Return the campaigns that go on, by scope, then the newest that have ended.

    :param scope: only those of this scope; None: all.
    :param ended: also those that have ended.
    """
    live = session.store.campaigns.list_live_campaigns()
    newest = session.store.campaigns.list_newest_campaigns(MOST + len(live)) if ended else []
    return [campaign for campaign in (*live, *(c for c in newest if c.state.is_terminal))
            if scope in (None, campaign.scope)]


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignPage:
    """A page of campaigns, with the migrations off the hosts of each by its ID.

    ``marker``: that of the next page, None: it is the last page.
    """

    campaigns: Sequence[model.Campaign]
    migrations: Mapping[str, int]
    marker: str | None


def list_campaign_page(session: sessions.DatabaseSession, page: pages.PageRequest,
                       states: Collection[model.CampaignState] = ()) -> CampaignPage:
    """List a page of campaigns, newest first.

    :raises NotFoundError: no campaign has the UUID of the marker.
    """
    with stored_views.explain_marker(page):
        found = session.store.campaigns.list_campaign_page(page.ask_one_more(), states)
    shown = found[:page.limit]
    return CampaignPage(
        shown, session.store.campaigns.count_migrations([c.campaign_id for c in shown]),
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
    return build_progress(campaign, migrations.get(campaign.campaign_id, 0))


def list_progress(session: sessions.DatabaseSession, scope: str | None = None, *,
                  ended_since: float | None = None) -> tuple[values.CampaignProgress, ...]:
    """Return the progress of the campaigns that go on, by scope, then of ended ones.

    :param scope: only those of this scope; None: all.
    :param ended_since: also those that ended at this time or later; None: no ended one.
    """
    campaigns = session.store.campaigns
    found = [campaign for campaign in campaigns.list_live_campaigns()
             if scope in (None, campaign.scope)]
    if ended_since is not None:
        found += campaigns.list_ended_campaigns(ended_since, MOST, scope)
    migrations = campaigns.count_migrations([campaign.campaign_id for campaign in found])
    return tuple(build_progress(campaign, migrations.get(campaign.campaign_id, 0))
                 for campaign in found)


def build_progress(campaign: model.Campaign, migrations: int) -> values.CampaignProgress:
    """Build the progress of a campaign.

    :param migrations: those that have left its hosts.
    """
    states = model.CampaignHostState
    to_come = campaign.select_hosts(states.TO_COME)
    live = not campaign.state.is_terminal
    # No instance leaves a host that is held, or later.
    emptying = campaign.select_hosts(states.TO_COME, states.EMPTYING)
    left = max(0, campaign.migrations - migrations) if live and emptying else None
    return values.CampaignProgress(
        campaign.campaign_id, campaign.scope, campaign.state, campaign.created_at,
        campaign.created_by, campaign.ended_at,
        over=sum(host.state.is_over for host in campaign.hosts), total=len(campaign.hosts),
        states=tuple((state.value, number) for state, number in count_states(campaign).items()),
        next_host=to_come[0] if to_come and live else None, held=describe_hold(campaign),
        waits=campaign.waits if live else '', begun=campaign.begun_hosts, migrations=migrations,
        migrations_left=left,
        seconds_left=None if not left or campaign.seconds is None
        else campaign.seconds * left / campaign.migrations)


def count_states(campaign: model.Campaign) -> dict[model.CampaignHostState, int]:
    """Count the hosts of a campaign by state, in the order of the states."""
    counts = Counter(host.state for host in campaign.hosts)
    return {state: counts[state] for state in model.CampaignHostState if counts[state]}


def describe_hold(campaign: model.Campaign) -> str:
    """Return who has paused or aborted a campaign, and why; empty: it was neither."""
    if not campaign.held_because:
        return ''
    verb = 'paused' if campaign.state is model.CampaignState.PAUSED else 'aborted'
    return f'{verb} by {campaign.held_by}: {campaign.held_because}'


def describe_campaign(campaign: model.Campaign) -> str:
    """Return how far a campaign is, and why it does not go on."""
    states = ', '.join(f'{number} {state}' for state, number in count_states(campaign).items())
    parts = [f'{campaign.reason}: scope {campaign.scope}, {states} of '
             f'{plurals.count_noun(len(campaign.hosts), "host")}']
    if campaign.windows:
        parts.append('windows ' + ', '.join(map(str, campaign.windows)))
    if hold := describe_hold(campaign):
        parts.append(hold)
    if campaign.waits:
        parts.append(f'waits: {campaign.waits}')
    return '; '.join(parts)
