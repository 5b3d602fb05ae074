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

"""Reads of campaigns. A list has unreadable campaigns as such, so that one hides no other."""

from collections.abc import Collection
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.rebalancer.store import campaign_rows
from kronos_nova.rebalancer.store import campaign_stats
from kronos_nova.rebalancer.store import pages
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_campaign, _host = tables.campaign, tables.campaign_host
_OVER = [state.value for state in model.CampaignHostState if state.is_over]
_BEGUN = [state.value for state in model.CampaignHostState if state.is_begun]


class CampaignReader(transactions.Repository):
    """Reads of campaigns with their hosts, and of overviews, which count these."""

    def list_live_campaigns(self) -> list[campaign_rows.Found]:
        """Return the campaigns that have not ended, by scope."""
        return self._runner.run_read(
            lambda c: campaign_rows.read_campaigns(c, _select_live_campaigns()))

    def find_live_campaign(self, scope: str) -> model.Campaign | None:
        """Return the campaign of a scope that has not ended.

        :raises UnreadableRowError: it is unreadable.
        """
        return self._find_campaign(sa.select(_campaign).where(_campaign.c.live_scope == scope))

    def find_campaign(self, campaign_id: str) -> model.Campaign | None:
        """Return a campaign; None: it does not exist.

        :raises UnreadableRowError: it is unreadable.
        """
        return self._find_campaign(
            sa.select(_campaign).where(_campaign.c.campaign_id == campaign_id))

    def _find_campaign(self, query: sa.Select[Any]) -> model.Campaign | None:
        found = self._runner.run_read(
            lambda c: next(iter(campaign_rows.read_campaigns(c, query)), None))
        return None if found is None else campaign_rows.require_readable(found)

    def list_newest_campaigns(self, limit: int) -> list[campaign_rows.Found]:
        """Return the campaigns that began last, the newest first."""
        return self._runner.run_read(lambda c: campaign_rows.read_campaigns(
            c, sa.select(_campaign).order_by(
                _campaign.c.created_at.desc(), _campaign.c.campaign_id).limit(limit)))

    def list_overview_page(self, page: pages.PageRequest, states: Collection[model.CampaignState],
                           ) -> list[campaign_rows.FoundOverview]:
        """Return campaigns, newest first, without the rows of any host.

        :param states: only campaigns in such a state; empty: all.
        :raises UnknownMarker: no campaign has the UUID of the marker.
        """
        return self._runner.run_read(lambda c: campaign_rows.read_overviews(
            c, pages.select_campaigns(c, page, states), with_begun=False))

    def list_live_overviews(self, scope: str | None = None) -> list[campaign_rows.FoundOverview]:
        """Return the campaigns that have not ended, by scope.

        :param scope: only that of this scope; None: all.
        """
        live = _select_live_campaigns()
        return self._runner.run_read(lambda c: campaign_rows.read_overviews(
            c, live if scope is None else live.where(_campaign.c.scope == scope),
            with_begun=True))

    def list_ended_overviews(self, since: float, limit: int,
                             scope: str | None = None) -> list[campaign_rows.FoundOverview]:
        """Return the campaigns that ended at a time or later, the last to end first.

        :param scope: only those of this scope; None: all.
        """
        ended = sa.select(_campaign).where(_campaign.c.ended_at >= since).order_by(
            _campaign.c.ended_at.desc(), _campaign.c.campaign_id).limit(limit)
        return self._runner.run_read(lambda c: campaign_rows.read_overviews(
            c, ended if scope is None else ended.where(_campaign.c.scope == scope),
            with_begun=True))

    def count_migrations(self, campaign_ids: Collection[str]) -> dict[str, int]:
        """Count the migrations off the hosts of campaigns while these went on, by campaign.

        Purged tasks are not counted.
        """
        named = _campaign.c.campaign_id.in_(sorted(campaign_ids))
        return self._runner.run_read(lambda c: {
            row.campaign_id: row.number
            for row in c.execute(campaign_stats.select_migrations().where(named))
        } if campaign_ids else {})

    def list_left_hosts(self, reasons: Mapping[str, str],
                        scope: str) -> list[campaign_rows.LeftHost]:
        """Return the hosts that Nova shows disabled for a campaign which is not at work there.

        It is over for them, or they are to come. Campaigns that cannot be read count as well.

        :param reasons: Nova's disabled_reason, by host.
        :param scope: only in its campaign, hosts that are to come.
        """
        query = (sa.select(_host.c.host, _campaign.c.campaign_id, _campaign.c.reason,
                           _host.c.state)
                 .join(_campaign, _campaign.c.campaign_id == _host.c.campaign_id)
                 .where(_campaign.c.reason.in_(sorted(set(reasons.values()))), sa.or_(
                     _host.c.state.in_(_OVER), sa.and_(
                         _host.c.state == model.CampaignHostState.TO_COME.value,
                         _campaign.c.scope == scope))))
        return self._runner.run_read(lambda c: sorted(
            campaign_rows.LeftHost(row.host, row.campaign_id, row.reason,
                                   model.CampaignHostState(row.state))
            for row in c.execute(query) if reasons.get(row.host) == row.reason))

    def map_beginning_hosts(self, since: float) -> dict[str, tuple[str, str]]:
        """Return the hosts that campaigns have begun with, and the ID and scope of each campaign.

        Readings of the cloud may show them as enabled: no engine had seen them disabled before
        ``since``. They may be held, or left out, meanwhile.
        """
        states = model.CampaignHostState
        unseen = sa.and_(_host.c.disabled_at.is_(None), sa.or_(
            _host.c.state == states.EMPTYING.value,
            # A request that disables it may be on its way.
            sa.and_(_host.c.state == states.WITHDRAWN.value, _host.c.since >= since)))
        query = (sa.select(_host.c.host, _host.c.campaign_id, _campaign.c.scope)
                 .join(_campaign, _campaign.c.campaign_id == _host.c.campaign_id)
                 .where(_campaign.c.live_scope.is_not(None), sa.or_(unseen, sa.and_(
                     _host.c.state.in_(_BEGUN), _host.c.disabled_at >= since))))
        return self._runner.run_read(
            lambda c: {row.host: (row.campaign_id, row.scope) for row in c.execute(query)})


def _select_live_campaigns() -> sa.Select[Any]:
    return sa.select(_campaign).where(_campaign.c.live_scope.is_not(None)).order_by(
        _campaign.c.scope)
