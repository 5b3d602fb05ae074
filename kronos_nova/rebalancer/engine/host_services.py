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
from collections.abc import Sequence
from typing import Protocol

from oslo_log import log as logging

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import campaign_rows
from kronos_nova.rebalancer.store import rows as store_rows

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
    :param late_seconds: for so long a request may be on its way.
    """

    def __init__(self, store: store_api.Store, find_service: FindService,
                 late_seconds: float) -> None:
        self._store = store
        self.find_service = find_service
        self._late_seconds = late_seconds
        self._may_disable = True

    def begin_cycle(self) -> None:
        """Let hosts be disabled again, which ends with the first request that has no answer."""
        self._may_disable = True

    def disable_host(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                     host: str) -> None:
        """Disable a host that is being emptied; see :meth:`_change_service`.

        Each request without an answer may take minutes, so one ends the step for this cycle.
        """
        if self._may_disable:
            self._change_service(lease, campaign_rows.LeftHost(
                host, campaign.campaign_id, campaign.reason,
                model.CampaignHostState.EMPTYING), disables=True)

    def enable_host(self, lease: store_rows.ScopeLease, campaign: model.Campaign,
                    host: model.CampaignHost) -> None:
        """Enable a host; see :meth:`_change_service`."""
        self._change_service(lease, campaign_rows.LeftHost(
            host.host, campaign.campaign_id, campaign.reason, host.state), disables=False)

    def enable_left_hosts(self, lease: store_rows.ScopeLease, cluster: model.Cluster) -> None:
        """Enable hosts that a late request has disabled for a campaign.

        The campaign is over for these hosts, or they are to come again, by its rows: no signature
        is needed to enable a host.
        """
        reasons = {host: service.disabled_reason for host, service in cluster.services.items()
                   if not service.enabled and service.disabled_reason is not None
                   and model.CAMPAIGN_MARK in service.disabled_reason}
        for left in (self._store.campaigns.list_left_hosts(reasons, lease.scope)
                     if reasons else ()):
            LOG.warning('Host %s is disabled for campaign %s, where it is %s: a late request of '
                        'an engine came after that', left.host, left.campaign_id, left.state)
            try:
                self._change_service(lease, left, disables=False)
            except api.ApiError as e:
                LOG.warning('Campaign %s: host %s: %s. The next cycle tries again.',
                            left.campaign_id, left.host, e)

    def _change_service(self, lease: store_rows.ScopeLease, host: campaign_rows.LeftHost, *,
                        disables: bool) -> None:
        """Disable or enable a host, unless another user has done so since the cloud was read.

        The database knows of the request before Nova does. Until it can come no longer, the host
        does not begin again, and counts for ``max_drain_fraction`` if it may be disabled.

        :raises ApiError: Nova refused, or did not answer.
        :raises LeaseLost: nothing was sent.
        """
        try:
            service = self.find_service(host.host)
            uuid, present = service.read_service()
            if present.enabled is not disables or not (
                    disables or present.disabled_reason == host.reason):
                LOG.warning('Campaign %s: host %s is not %s: another user has changed it meanwhile',
                            host.campaign_id, host.host, 'disabled' if disables else 'enabled')
                return
            if not self._store.campaigns.ask_host(
                    lease, host.campaign_id, host.host, [host.state], self._late_seconds,
                    disables=disables):
                LOG.warning('Campaign %s: host %s is not %s: an order came before, or a request '
                            'for another campaign may be on its way', host.campaign_id, host.host,
                            'disabled' if disables else 'enabled')
                return
            if disables:
                service.disable(uuid, host.reason)
            else:
                service.enable(uuid)
        except api.ApiError as e:
            self._may_disable = self._may_disable and not e.sent and e.status is not None
            raise
        LOG.info('Campaign %s: %s host %s', host.campaign_id,
                 'disabled' if disables else 'enabled', host.host)
