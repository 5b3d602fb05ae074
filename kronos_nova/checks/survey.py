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

"""The host or instance of Nova behind each series of an answer."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import math

from kronos_nova import labels
from kronos_nova import model
from kronos_nova import policy as policies

HOST_FIELDS = ('imbalance_query', 'capacity_query', 'host_capacity_query')


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerSurvey:
    """One answer compared with Nova.

    ``names``: label value by Nova's host or instance UUID; ``values`` by the same. ``unknown``:
    label values that match no host and no instance. ``missing``: hosts that are up, or instances
    that are active, without a value. ``twice``: hosts or instances with more than one series.
    ``expected``: the number of hosts or instances that should have a value.
    """

    names: Mapping[str, str]
    values: Mapping[str, float]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    twice: tuple[str, ...]
    expected: int

    @property
    def lowest(self) -> float:
        return min(self.values.values(), default=math.nan)

    @property
    def highest(self) -> float:
        return max(self.values.values(), default=math.nan)

    @property
    def renamed(self) -> dict[str, str]:
        """Nova's name by label value, where the two differ."""
        return {label: name for name, label in sorted(self.names.items()) if label != name}


def compare_hosts(policy: policies.Policy, result: model.QueryResult,
                  cluster: model.Cluster) -> AnswerSurvey:
    """Compare an answer with Nova's hosts.

    A value is expected of each host under plan that is up; other hosts may have one as well.
    """
    host_names = map_host_names(policy, cluster)
    up = {host for host in cluster.scope_hosts if cluster.services[host].up}
    return _compare_series(result, host_names.map_answer, up)


def compare_instances(policy: policies.Policy, result: model.QueryResult,
                      cluster: model.Cluster) -> AnswerSurvey:
    def map_series(series: Mapping[str, float]) -> labels.MappedValues:
        return labels.map_instances(series, cluster.instances.values(),
                                    policy.vm_profile_label_type)

    return _compare_series(result, map_series, {
        uuid for uuid, instance in cluster.instances.items()
        if instance.status == 'ACTIVE' and instance.host in cluster.scope_hosts})


def restrict_scope(cluster: model.Cluster, policy_set: policies.PolicySet | None) -> model.Cluster:
    """Return the cluster with the policy file's hosts alone under plan."""
    named = policy_set.aggregates if policy_set is not None else ()
    hosts = {host for name in named if name == model.UNASSIGNED or name in cluster.aggregates
             for host in cluster.list_hosts_of(name)}
    return dataclasses.replace(cluster, scope_hosts=frozenset(
        hosts if named else filter(cluster.has_planned, cluster.hosts)))


def map_host_names(policy: policies.Policy, cluster: model.Cluster) -> labels.HostNames:
    return labels.HostNames({h.name: h.hypervisor_hostname for h in cluster.hosts.values()},
                            policy.host_regex)


def _compare_series(result: model.QueryResult,
                    find: Callable[[Mapping[str, float]], labels.MappedValues],
                    expected: set[str]) -> AnswerSurvey:
    # Map places in this list instead of values: each place leads back to its label.
    listed = sorted(result.series)
    mapped = find({label: float(place) for place, label in enumerate(listed)})
    names = {name: listed[int(place)] for name, place in mapped.values.items()}
    doubled = find({label: float(place) for place, label in enumerate(result.duplicates)})
    twice = {*mapped.ambiguous, *doubled.values, *doubled.ambiguous}
    # A host with a duplicate series may have a further series under another name.
    names = {name: label for name, label in names.items() if name not in twice}
    return AnswerSurvey(
        names, {name: result.series[label] for name, label in names.items()},
        mapped.unknown, tuple(sorted(expected - set(names))), tuple(sorted(twice)), len(expected))
