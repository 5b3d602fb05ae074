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

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer.operations import sessions

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


def describe_campaign(campaign: model.Campaign) -> str:
    """Return how far a campaign is, and why it does not go on."""
    counts = Counter(host.state for host in campaign.hosts)
    states = ', '.join(f'{counts[state]} {state}' for state in model.CampaignHostState
                       if counts[state])
    parts = [f'{campaign.reason}: scope {campaign.scope}, {states} of '
             f'{plurals.count_noun(len(campaign.hosts), "host")}']
    if campaign.windows:
        parts.append('windows ' + ', '.join(map(str, campaign.windows)))
    if campaign.held_because:
        verb = 'paused' if campaign.state is model.CampaignState.PAUSED else 'aborted'
        parts.append(f'{verb} by {campaign.held_by}: {campaign.held_because}')
    if campaign.waits:
        parts.append(f'waits: {campaign.waits}')
    return '; '.join(parts)
