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

"""The search for the hosts with which a campaign goes on, in a bounded time of each cycle."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.operations import campaign_forecasts
from kronos_nova.rebalancer.operations import supposed_clouds
from kronos_nova.rebalancer.planning import campaign_steps
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import planning_pipeline

#: Seconds that the search may take in one cycle.
SEARCH_SECONDS = 10.0
#: Hosts whose instances are looked at when no host can be emptied: each costs a plan.
EXPLAINED = 4


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenHosts:
    """Hosts that begin together; ``opened``: their instances may move onto hosts to come."""

    hosts: tuple[str, ...]
    opened: bool = False


def find_returned_host(campaign: model.Campaign,
                       before: Iterable[model.CampaignHost]) -> model.CampaignHost | None:
    """Return the first host that had begun and is to come again; None: no host is.

    :param before: the hosts that had begun.
    """
    names = {host.host for host in before}
    return next((host for host in campaign.hosts if host.host in names
                 and host.state is model.CampaignHostState.TO_COME), None)


class StepSearch:
    """Searches of the campaigns of one engine; a search that was cut off goes on later.

    :param monotonic: returns seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: By campaign: how many searches in a row were cut off.
        self._cut_off: dict[str, int] = {}

    def choose_hosts(self, campaign: model.Campaign, to_come: Sequence[str],
                     outcome: planning_pipeline.PassOutcome,
                     asked_since: float) -> ChosenHosts | str:
        """Return the hosts that begin next, or why none can.

        A host whose instances only wait begins as well if no other one can: owners of instances get
        their notices from its drain.

        :param to_come: in the order of the campaign. Those that Nova has not disabled come last.
        :param asked_since: requests from then on may still reach Nova; their hosts do not begin.
        """
        cluster, options = outcome.cluster, outcome.request.options
        ready = [host for host in to_come if host in cluster.scope_hosts
                 and (service := cluster.services.get(host)) is not None and service.available]
        if not ready:
            return f'{to_come[0]} is down, disabled for another reason, or not in the scope'
        rows = {host.host: host for host in campaign.hosts}
        unasked = [host for host in ready if (rows[host].asked_at or 0.0) < asked_since]
        if not unasked:
            return f'an earlier request for host {ready[0]} may still reach Nova'
        ready = sorted(unasked, key=lambda host: campaign_steps.is_refused(rows[host]))
        # Moves that were planned a moment ago would fail, and their instances would cool down.
        planned = {host for move in outcome.plan.moves for host in (move.from_host, move.to_host)}
        ready = [host for host in ready if host not in planned]
        if not ready:
            return 'the moves of the last plan come first'
        together = min(campaign.together, planning_holds.count_drainable_hosts(cluster, options))
        if together < 1:
            return planning_holds.TOO_MANY_DISABLED
        tries = self._cut_off.pop(campaign.campaign_id, 0)
        # Smaller steps, and other hosts first, than the search that was cut off.
        together = max(1, together >> tries)
        first = tries % len(ready)
        ends_at = self._monotonic() + SEARCH_SECONDS
        cloud = supposed_clouds.SupposedCloud(outcome.request, outcome.certificate)
        found = campaign_forecasts.find_step(
            cloud, [*ready[first:], *ready[:first]], to_come, together,
            lambda: self._monotonic() >= ends_at)
        if found is not None:
            _cloud, hosts, plans = found
            return ChosenHosts(hosts, any(
                move.to_host in to_come for plan, _request in plans for move in plan.moves))
        if self._monotonic() >= ends_at:
            self._cut_off[campaign.campaign_id] = tries + 1
            return (f'the search for the next hosts was cut off after {SEARCH_SECONDS:.0f} s, and '
                    'goes on in the next cycle')
        return _choose_waiting_host(cloud, ready)


def _choose_waiting_host(cloud: supposed_clouds.SupposedCloud,
                         ready: Sequence[str]) -> ChosenHosts | str:
    """Return the first host whose instances all leave later, or why the first host keeps some."""
    reasons, is_known = [], True
    for host in ready[:EXPLAINED]:
        blocked = cloud.explain_host(host)
        if blocked and all(i.later and not i.is_cut_off for i in blocked):
            return ChosenHosts((host,))
        reasons += [f'{host}: {i.reason}' for i in blocked if i.is_cut_off or not i.later][:1]
        is_known = is_known and not any(i.is_cut_off for i in blocked)
    found = 'no host can be emptied now' if is_known else 'no plan was found that empties a host'
    return f'{found}; {reasons[0] if reasons else f"{ready[0]}: no plan was found"}'
