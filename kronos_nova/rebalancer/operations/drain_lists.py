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


"""The hosts that are emptied, and why instances stay on them."""

from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.strategies import drain_requests


@dataclasses.dataclass(frozen=True, slots=True)
class ListedDrain:
    """A host that is disabled, or that pack empties.

    ``held``: why engines leave its instances there now; None: they do not, or it has none.
    ``remedy``: the operator's way to end that; None where ``held`` is. ``deadline``: when the host
    is to be empty; None: at no time. ``late``: it is not empty, and the deadline has passed.
    """

    host: str
    scope: str
    reason: str | None
    packed: bool
    instances: int
    held: str | None
    remedy: str | None
    read_at: float
    deadline: float | None = None
    late: bool = False


def list_drains(session: cloud_state.Session) -> list[ListedDrain]:
    """List the hosts of the cloud that are disabled or that pack empties, by scope and name.

    :raises KronosException: an input cannot be read.
    """
    counts = Counter(i.host for i in session.cloud.cluster.instances.values())
    return sort_drains(find_drains(session, counts.__getitem__, session.cloud.now))


def sort_drains(drains: Iterable[ListedDrain]) -> list[ListedDrain]:
    """Return the drains by scope and name."""
    return sorted(drains, key=lambda drain: (drain.scope, drain.host))


def find_drains(session: cloud_state.Session, count_instances: Callable[[str], int],
                read_at: float) -> Iterator[ListedDrain]:
    """Yield the hosts that are disabled or that pack empties.

    Disabled hosts are those of the cloud; holds and pack's hosts are those of now.

    :param count_instances: returns the number of instances on a host.
    :param read_at: when the cloud was read.
    """
    for cluster in session.cloud.map_clusters().values():
        # A drain goes before a plan for balance that waits for approval.
        request = session.build_request(cluster, session.cloud_for_requests if (
            session.cloud.yielding.get(cluster.scope)) else session.cloud)
        hold = planner.scope_hold(planner.prepare_planning_input(request))
        undrained = drain_requests.map_undrained_hosts(cluster, request.options, hold)
        packed = session.cloud.histories[cluster.scope].draining
        disabled = {host: service.disabled_reason or ''
                    for host in cluster.scope_hosts
                    if (service := cluster.services.get(host)) is not None
                    and not service.enabled}
        for host in disabled.keys() | packed:
            instances = count_instances(host)
            deadline = model.find_drain_deadline(request.history.drain_deadlines,
                                                 cluster.services.get(host))
            yield ListedDrain(
                host, cluster.scope, disabled.get(host), host in packed, instances,
                undrained.get(host),
                None if host not in undrained else drain_requests.find_remedy(
                    cluster.services[host], request.options) or planner.find_remedy(request),
                read_at, deadline,
                bool(instances) and deadline is not None and request.now > deadline)
