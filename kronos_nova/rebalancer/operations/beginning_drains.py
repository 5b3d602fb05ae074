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
import dataclasses

from oslo_config import cfg

from kronos_nova import model
from kronos_nova.conf import nova as nova_conf
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.store import api as store_api

#: Waits of one request, of [nova] timeout each: for the connection, and for the answer.
_WAITS = 2


@dataclasses.dataclass(frozen=True, slots=True)
class BeginningDrain:
    """A drain that begins beside another one, as a clause, and what helps."""

    clause: str
    remedy: str = 'Repeat the command in a minute'

    def __str__(self) -> str:
        return self.clause


def count_rival_seconds(conf: cfg.ConfigOpts) -> float:
    """Return how long before a reading of the services a drain may begin that it does not show.

    The row of a drain is written after Nova's services were read, so the login and the address of
    Nova are known. Then the request may wait ``[nova] timeout`` for a connection, and as long for
    its answer; both are 60 s unless the option is set, and requests for users of kronos-api wait 15
    s each. Nova's database has the change before Nova answers. No request that changes something is
    repeated: ``connect_retries`` and ``status_code_retries`` are for reads. Other controllers may
    have another ``timeout``: it counts as no less than its default.

    A program that stands still for longer between its row and its request is not covered.
    """
    return float(_WAITS * max(conf.nova.timeout or 0, nova_conf.REQUEST_TIMEOUT))


def find_beginning_drain(store: store_api.Store, cluster: model.Cluster, read_at: float,
                         rival_seconds: float, *, host: str | None = None,
                         campaign_id: str | None = None) -> BeginningDrain | None:
    """Return a drain of a host that the cluster shows as enabled; None: none begins.

    :param read_at: when the services of the cluster were read, by the database's clock.
    :param rival_seconds: see :func:`count_rival_seconds`.
    :param host: the host of the caller, whose drain an audit row names already.
    :param campaign_id: the campaign of the caller.
    """
    since = read_at - rival_seconds

    def is_shown_enabled(name: str) -> bool:
        service = cluster.services.get(name)
        return name in cluster.scope_hosts and service is not None and service.enabled

    for started in sorted(store.audit.list_started_drains(since)):
        if started != host and is_shown_enabled(started):
            return BeginningDrain(f'the drain of {started} starts at the same time (kronos-manage '
                                  'db audit names the person)')
    for name, (owner, scope) in sorted(store.campaigns.map_beginning_hosts(since).items()):
        if owner != campaign_id and is_shown_enabled(name):
            return BeginningDrain(
                f'campaign {owner} begins with host {name} at the same time',
                'Repeat the command in a minute. If the campaign still begins with the host after '
                'some minutes, no engine carries it on: the order campaign abort, with --scope '
                f'{scope}, frees this drain two minutes later')
    return None


def map_disabling_holds(store: store_api.Store, campaign: model.Campaign, cluster: model.Cluster,
                        options: model.PlanningOptions, read_at: float,
                        rival_seconds: float) -> Mapping[str, str]:
    """Return why hosts that have begun must not be disabled now, by host.

    :param read_at: see :func:`find_beginning_drain`.
    """
    emptying = model.CampaignHostState.EMPTYING
    waiting = [host.host for host in campaign.begun_hosts
               if host.state is emptying and host.disabled_at is None
               and (service := cluster.services.get(host.host)) is not None and service.enabled]
    if not waiting:
        return {}
    rival = find_beginning_drain(store, cluster, read_at, rival_seconds,
                                 campaign_id=campaign.campaign_id)
    if rival is not None:
        return dict.fromkeys(waiting, rival.clause)
    room = max(0, planning_holds.count_drainable_hosts(cluster, options))
    return dict.fromkeys(waiting[room:], planning_holds.TOO_MANY_DISABLED)
