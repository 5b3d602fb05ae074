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

"""Drains that begin: a person or a campaign has ordered them, and a reading does not show it yet.

Each program that disables a host writes so into the database first, and then looks here: of two
that begin at once, at least one sees the other. So neither two drains nor a drain and a step of a
campaign pass ``max_drain_fraction`` together.
"""

from collections.abc import Mapping

from kronos_nova import model
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.store import api as store_api

#: A drain that began at most so long before the services were read may be in no service yet.
RIVAL_SECONDS = 60.0


def find_beginning_drain(store: store_api.Store, cluster: model.Cluster, read_at: float, *,
                         host: str | None = None, campaign_id: str | None = None) -> str | None:
    """Return a drain of a host that the cluster shows as enabled, as a clause; None: none begins.

    :param read_at: when the services of the cluster were read, by the database's clock.
    :param host: the host of the caller, whose drain an audit row names already.
    :param campaign_id: the campaign of the caller.
    """
    since = read_at - RIVAL_SECONDS

    def is_shown_enabled(name: str) -> bool:
        service = cluster.services.get(name)
        return name in cluster.scope_hosts and service is not None and service.enabled

    for started in sorted(store.audit.list_started_drains(since)):
        if started != host and is_shown_enabled(started):
            return (f'the drain of {started} starts at the same time (kronos-manage db audit '
                    'names the person)')
    for name, (owner, _scope) in sorted(store.campaigns.map_beginning_hosts(since).items()):
        if owner != campaign_id and is_shown_enabled(name):
            return f'campaign {owner} begins with host {name} at the same time'
    return None


def map_disabling_holds(store: store_api.Store, campaign: model.Campaign, cluster: model.Cluster,
                        options: model.PlanningOptions, read_at: float) -> Mapping[str, str]:
    """Return why hosts that have begun must not be disabled now, by host.

    :param read_at: see :func:`find_beginning_drain`.
    """
    emptying = model.CampaignHostState.EMPTYING
    waiting = [host.host for host in campaign.begun_hosts
               if host.state is emptying and host.disabled_at is None
               and (service := cluster.services.get(host.host)) is not None and service.enabled]
    if not waiting:
        return {}
    rival = find_beginning_drain(store, cluster, read_at, campaign_id=campaign.campaign_id)
    if rival is not None:
        return dict.fromkeys(waiting, rival)
    room = max(0, planning_holds.count_drainable_hosts(cluster, options))
    return dict.fromkeys(waiting[room:], planning_holds.TOO_MANY_DISABLED)
