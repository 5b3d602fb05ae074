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

"""The campaign of a scope, if its signature lets engines carry it on."""

from collections.abc import Callable
import dataclasses

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.authorization import campaign_authorization
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import rows as store_rows

#: Beginning of the reason for which a campaign waits for keys.
_UNVERIFIED = 'its signature cannot be verified now: '
#: States in which engines begin nothing at a host, and only enable it.
_GOING_BACK = frozenset({model.CampaignHostState.RETURNING, model.CampaignHostState.WITHDRAWN})


class CampaignVerifier:
    """Verifies the signatures of campaigns, and renews those of campaigns that go on.

    :param clock: epoch seconds.
    """

    def __init__(self, conf: cfg.ConfigOpts, store: store_api.Store,
                 clock: Callable[[], float]) -> None:
        self._campaigns = store.campaigns
        self._authorization = campaign_authorization.make_authorization(conf)
        self._clock = clock

    def find_campaign(self,
                      lease: store_rows.ScopeLease) -> tuple[model.Campaign | None, str | None]:
        """Return the live campaign of a scope, and why engines must not carry it on.

        The problem is None if they may. An aborted campaign needs no signature: engines only enable
        hosts whose disabled_reason in Nova has the ID of the campaign.

        :raises SigningKeyError: the signature cannot be verified now.
        """
        campaign = self._campaigns.find_live_campaign(lease.scope)
        if campaign is None:
            return None, None
        if not campaign.has_own_reason:
            return campaign, 'its reason does not end with its ID'
        if campaign.scope != lease.scope:
            return campaign, f'it is one of scope {campaign.scope}'
        if campaign.state is model.CampaignState.ABORTING:
            return campaign, None
        now = self._clock()
        try:
            problem = self._authorization.find_problem(campaign, now)
        except exception.SigningKeyError as e:
            self._record_waits(lease, campaign, f'{_UNVERIFIED}{e}')
            raise
        if campaign.waits.startswith(_UNVERIFIED):
            self._record_waits(lease, campaign, '')
        if problem is not None:
            return campaign, problem
        renewed = (None if campaign.state.is_terminal
                   else self._authorization.renew_signature(campaign, now))
        if renewed is not None and self._campaigns.renew_authorization(lease, campaign, renewed):
            campaign = dataclasses.replace(campaign, authorization=renewed)
        return campaign, None

    def _record_waits(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                      waits: str) -> None:
        if waits != campaign.waits:
            self._campaigns.record_waits(lease, campaign.campaign_id, waits)


def select_way_back(campaign: model.Campaign, scope: str) -> model.Campaign | None:
    """Return a campaign that is not authorized with its hosts that are on their way back.

    Engines enable them: they look for the ID of the campaign in Nova's disabled_reason. One that
    began, and that no engine has seen disabled, is to come again: it holds drains of people.

    :param scope: that of the engine.
    :returns: None if the campaign has no such hosts, or is not one of the scope.
    """
    left = tuple(host for host in campaign.hosts if host.state in _GOING_BACK or (
        host.state is model.CampaignHostState.EMPTYING and host.disabled_at is None))
    if not left or not campaign.has_own_reason or campaign.scope != scope:
        return None
    return dataclasses.replace(campaign, state=model.CampaignState.PAUSED, hosts=left)
