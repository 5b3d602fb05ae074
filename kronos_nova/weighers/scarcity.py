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


"""A weigher that keeps scarce traits and resource classes for requests that ask for them."""

from collections.abc import Set
from typing import Any

from nova.scheduler import utils

from kronos_nova.scheduler import runtime
from kronos_nova.weighers import optional
from kronos_nova.weighers import scarce_traits


class KronosScarcityWeigher(optional.OptionalWeigher):
    """Charges hosts for scarce traits and resource classes that the request does not ask for.

    The cost of a host is 1 - product of (1 - scarcity) over all that its provider tree has
    and the request does not ask for; see
    :func:`kronos_nova.weighers.scarce_traits.compute_scarcity`. A plain instance on a special host
    costs up to 1, on a plain host 0, and a special instance on the host that has the wanted
    traits costs 0. Without Placement's answers all hosts cost 0.
    """

    OPTION = 'kronos_scarcity_weight_multiplier'

    def costs(self, hosts: list[Any], spec: Any) -> list[float]:
        board = runtime.get_runtime().get_shared_state(scarce_traits.ScarcityBoard)
        traits = board.read_scarce_traits()
        if traits is None or not traits.by_provider:
            return [0.0] * len(hosts)
        requested = asked_for(spec)
        costs: dict[Set[str], float] = {frozenset(): 0.0}
        result = []
        for host in hosts:
            names = traits.by_provider.get(host.uuid, frozenset())
            cost = costs.get(names)
            if cost is None:
                cost = costs[names] = traits.compute_cost(names - requested)
            result.append(cost)
        return result


def asked_for(spec: Any) -> set[str]:
    """Return the traits and resource classes that a RequestSpec asks for.

    Nova itself reads flavor, image, ports and devices here, as for its request to
    Placement: extra specs of every group, dedicated CPUs as PCPU and so on.
    """
    request = utils.ResourceRequest.from_request_spec(spec)
    return {*request.merged_resources(), *request.all_required_traits, *spec.root_required}
