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

"""The order of hosts: of equal ones the first wins."""

from collections.abc import Sequence

from kronos_nova import model
from kronos_nova import policy as policies


def breaks_ties_by_lists(mode: str, options: model.PlanningOptions) -> bool:
    """Return whether ties are broken by the order of lists, as in Kronos 0.2.0."""
    return mode == 'spread' and options.objective == 'kronos'


def order_hosts(cluster: model.Cluster, scores: model.ClusterScores,
                enabled: Sequence[policies.Policy], mode: str,
                options: model.PlanningOptions) -> tuple[str, ...]:
    """Order the hosts of the scope by name.

    With ``objective = kronos`` the order is that of 0.2.0: by the scores of the first policy,
    the highest first, and equal ones as Prometheus lists them. Instances are then in the order
    in which Nova lists them.
    """
    names = sorted(cluster.scope_hosts)
    if not breaks_ties_by_lists(mode, options):
        return tuple(names)
    policy_scores = scores.policies.get(enabled[0].name)
    listed = [] if policy_scores is None else [host for host in policy_scores.hosts
                                               if host in cluster.scope_hosts]
    if policy_scores is not None:
        listed.sort(key=policy_scores.hosts.__getitem__, reverse=True)
    known = set(listed)
    return (*listed, *(host for host in names if host not in known))
