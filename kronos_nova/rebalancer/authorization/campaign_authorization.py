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

"""Authorizations of campaigns: the person who starts or resumes one signs it.

The signature fixes the hosts, the scope, Nova's disabled_reason, the windows, and how many hosts
are emptied together. Engines verify it before they disable a host or run a command. So a row that
is written by hand reboots nothing. A signature ends soon, and the engine that carries the campaign
on renews it: the states of hosts are not signed, and a thief of the database's password could
otherwise repeat a campaign that is long over.
"""

from collections.abc import Mapping
import hashlib
import json
from typing import Any

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import signatures

CAMPAIGN = 'kronos-campaign'
#: Seconds after its last renewal for which engines carry a campaign on.
LASTING = 2 * 86400.0
#: Seconds after which an engine renews a signature.
RENEWED = 3600.0


class CampaignAuthorization:
    """Signer and verifier of campaigns.

    :param keys: None: nothing is signed, and every campaign passes.
    """

    def __init__(self, keys: key_repository.KeyRepository | None) -> None:
        self._keys = keys

    def sign_campaign(self, campaign: model.Campaign, person: str, now: float) -> str:
        """Return the authorization of a campaign; empty without keys.

        :param person: the person who starts or resumes it.
        :param now: epoch seconds.
        :raises SigningKeyError: no key can sign.
        """
        return '' if self._keys is None else _sign_claims(self._keys, {
            'sub': person, 'campaign': _digest_campaign(campaign)}, now)

    def sign_again(self, campaign: model.Campaign, person: str, now: float) -> str | None:
        """Return a new authorization of a campaign that a key has signed before.

        None without keys: the one that the campaign has stays.

        A signature that has ended is good enough: the person answers for the campaign.

        :raises ConflictError: no key has signed it so.
        :raises SigningKeyError: no key can sign, or the one that has signed is lacking.
        """
        if self._keys is None:
            return None
        try:
            _read_claims(self._keys, campaign)
        except signatures.SignatureError as e:
            raise exception.ConflictError(
                path='request', field=f'campaign {campaign.campaign_id}',
                problem=f'it is not authorized: {e}',
                remedy='Abort it and start another one. Find out who can write to the '
                       'database') from None
        return self.sign_campaign(campaign, person, now)

    def find_problem(self, campaign: model.Campaign, now: float) -> str | None:
        """Return why the campaign must not be carried out; None: it is authorized.

        :param now: epoch seconds.
        :raises SigningKeyError: the keys cannot be read, or lack the one that has signed.
        """
        if self._keys is None:
            return None
        try:
            claims = _read_claims(self._keys, campaign)
        except signatures.SignatureError as e:
            return str(e)
        if now > claims['exp'] + signatures.CLOCK_SECONDS:
            return ('its signature has ended: no engine has carried it on for '
                    + plurals.count_noun(round(LASTING / 86400), 'day'))
        return None

    def renew_signature(self, campaign: model.Campaign, now: float) -> str | None:
        """Return a new authorization for a campaign that is authorized; None: it needs none yet.

        :raises SigningKeyError: no key can sign.
        """
        if self._keys is None:
            return None
        claims = _read_claims(self._keys, campaign)
        return _sign_claims(self._keys, claims, now) if now >= claims['iat'] + RENEWED else None


def make_authorization(conf: cfg.ConfigOpts) -> CampaignAuthorization:
    """Return the authorization of campaigns by [signing] key_repository."""
    return CampaignAuthorization(signatures.open_keys(conf))


def _sign_claims(keys: key_repository.KeyRepository, claims: Mapping[str, Any],
                 now: float) -> str:
    return signatures.sign_claims(keys, CAMPAIGN, {**claims, 'iat': now, 'exp': now + LASTING})


def _read_claims(keys: key_repository.KeyRepository, campaign: model.Campaign) -> dict[str, Any]:
    """Return the claims of a campaign's signature, which may have ended.

    :raises SignatureError: the campaign has none that is valid for it.
    :raises SigningKeyError: the keys cannot be read, or lack the one that has signed.
    """
    claims = signatures.verify_token(keys, CAMPAIGN, campaign.authorization)
    if claims['campaign'] != _digest_campaign(campaign):
        raise signatures.SignatureError('its row differs from the campaign that was signed')
    return claims


def _digest_campaign(campaign: model.Campaign) -> str:
    text = json.dumps([
        campaign.campaign_id, campaign.scope, campaign.reason, campaign.together,
        [window.text for window in campaign.windows],
        sorted(host.host for host in campaign.hosts)])
    return hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()
