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

"""The nova-computes that campaigns disable and enable."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Protocol

from oslo_log import log as logging

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.store import api as store_api

LOG = logging.getLogger(__name__)


class HostService(Protocol):
    """The nova-compute of one host, as Nova shows it now."""

    def read_service(self) -> tuple[str, model.Service]:
        """Return the UUID of the service, and the service.

        :raises ApiError: Nova cannot be read.
        """

    def list_left_servers(self) -> Sequence[str]:
        """Return the UUIDs of the servers on the host.

        :raises ApiError: Nova cannot be read.
        """

    def disable(self, uuid: str, reason: str) -> None:
        """Disable the service.

        :raises ApiError: Nova refused, or did not answer.
        """

    def enable(self, uuid: str) -> None:
        """Enable the service; see :meth:`disable`."""


FindService = Callable[[str], HostService]


class HostServices:
    """Disables and enables hosts for campaigns.

    :param find_service: returns the nova-compute of a host, for the user of [nova].
    """

    def __init__(self, store: store_api.Store, find_service: FindService) -> None:
        self._store = store
        self.find_service = find_service

    def change_service(self, campaign_id: str, reason: str, host: str, disables: bool) -> None:
        """Disable or enable a host, unless another user has done so since the cloud was read.

        :raises ApiError: Nova refused, or did not answer.
        """
        service = self.find_service(host)
        uuid, present = service.read_service()
        if present.enabled is not disables or not (
                disables or present.disabled_reason == reason):
            LOG.warning('Campaign %s: host %s is not %s: another user has changed it meanwhile',
                        campaign_id, host, 'disabled' if disables else 'enabled')
            return
        if disables:
            service.disable(uuid, reason)
        else:
            service.enable(uuid)
        LOG.info('Campaign %s: %s host %s', campaign_id,
                 'disabled' if disables else 'enabled', host)

    def enable_left_hosts(self, cluster: model.Cluster) -> None:
        """Enable hosts that a late request has disabled for a campaign that is over for them."""
        reasons = {host: service.disabled_reason for host, service in cluster.services.items()
                   if not service.enabled and service.disabled_reason is not None
                   and model.CAMPAIGN_MARK in service.disabled_reason}
        self._enable_late_hosts(
            self._store.campaigns.list_left_hosts(reasons) if reasons else (),
            'which is over for it: a late request of an engine came after its end')

    def enable_returned_hosts(self, campaign: model.Campaign, cluster: model.Cluster) -> None:
        """Enable hosts to come that a late request has disabled for the campaign."""
        self._enable_late_hosts(
            [(host, campaign.campaign_id, campaign.reason)
             for host in campaign.select_hosts(model.CampaignHostState.TO_COME)
             if (service := cluster.services.get(host)) is not None and not service.enabled
             and service.disabled_reason == campaign.reason],
            'where it is to come: a late request of an engine came after its step had given way')

    def _enable_late_hosts(self, hosts: Iterable[tuple[str, str, str]], why: str) -> None:
        for host, campaign_id, reason in hosts:
            LOG.warning('Host %s is disabled for campaign %s, %s', host, campaign_id, why)
            try:
                self.change_service(campaign_id, reason, host, disables=False)
            except api.ApiError as e:
                LOG.warning('Campaign %s: host %s: %s. The next cycle tries again.',
                            campaign_id, host, e)
