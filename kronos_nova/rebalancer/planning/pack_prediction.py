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

"""Measurements of a scope in mode pack, by which its plans are judged."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math

from kronos_nova import model
from kronos_nova import policy as policies

#: Smallest ceiling, because levels are divided by it.
LEAST_CEILING = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeMeasurement:
    """Levels and residents of the hosts of a scope, as scores and Nova show them.

    ``levels``: fill by host in parts of the ceiling, of the policy that is nearest to its
    own. ``launched_at``: by host in use, when its oldest instance was launched.
    """

    levels: Mapping[str, float]
    launched_at: Mapping[str, float]

    def select_packing(self, hosts: Collection[str], since: float,
                       growth: float) -> model.PackingDensity:
        """Return the part of this measurement that a plan answers for.

        A host whose instances were all launched after the plan is in use through no move;
        load that has grown everywhere fills hosts through none either.

        :param hosts: those that the plan moved from or to.
        :param since: when it was made.
        :param growth: the scope's load, in parts of the load that the plan was made on.
        """
        return model.PackingDensity(
            sum(1 for launched_at in self.launched_at.values() if launched_at <= since),
            sum_overload(self.levels.get(host, 0.0) / growth for host in hosts))


def measure_packing(cluster: model.Cluster, scores: model.ClusterScores,
                    policy_set: policies.PolicySet) -> ScopeMeasurement | None:
    """Measure the cluster's scope; None: its mode is not pack, or scores are not trusted."""
    if policy_set.mode != 'pack' or scores.untrusted:
        return None
    launched_at: dict[str, float] = {}
    for instance in cluster.instances.values():
        if instance.host in cluster.scope_hosts:
            launched_at[instance.host] = min(
                launched_at.get(instance.host, math.inf),
                -math.inf if instance.launched_at is None else instance.launched_at)
    return ScopeMeasurement(
        {host: max((scores.policies[p.name].fill.get(host, 0.0) / compute_relief_ceiling(p)
                    for p in policy_set.enabled_policies), default=0.0)
         for host in cluster.scope_hosts}, launched_at)


def compute_relief_ceiling(policy: policies.Policy) -> float:
    """Return the fill above which a host is relieved, as a divisor."""
    return max(LEAST_CEILING, policy.relieved_above)


def sum_overload(levels: Iterable[float]) -> float:
    """Sum the parts of the levels above 1."""
    return math.fsum(max(0.0, level - 1.0) for level in levels)
