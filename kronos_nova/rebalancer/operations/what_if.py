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

"""Supposed clouds: more hosts, fewer, a drain, another load. Pure.

They contain only data of the real cloud: a new host is a copy of an existing one, empty except for
the part of its load that no instance explains.
"""

from collections.abc import Mapping
import dataclasses
import re
import uuid

from kronos_nova import exception
from kronos_nova import model

#: Disabled reason of a host that is disabled only in a supposed cloud.
REASON = 'what if'
_NAMES = uuid.UUID('6d1f8a3e-7a55-4d0e-9b0a-2f6c3a1c9e44')


@dataclasses.dataclass(frozen=True, slots=True)
class SupposedCluster:
    """A cluster with its scope set, and its scores."""

    cluster: model.Cluster
    scores: model.ClusterScores

    def add_hosts(self, like: str, count: int) -> 'SupposedCluster':
        """Add ``count`` empty hosts like an existing one, in its aggregates.

        :raises ConfigError: the host does not exist.
        """
        _check_host_exists(self.cluster, like)
        cluster, scores = self.cluster, self.scores
        names = _free_names(cluster, like, count)
        hosts, services = dict(cluster.hosts), dict(cluster.services)
        for name in names:
            hosts[name] = _copy_empty_host(cluster.hosts[like], name)
            services[name] = dataclasses.replace(
                cluster.services[like], host=name, status='enabled', state='up',
                forced_down=False, disabled_reason=None)
        scoped = like in cluster.scope_hosts
        return SupposedCluster(
            dataclasses.replace(
                cluster, hosts=hosts, services=services, aggregates={
                    name: (*host_names, *names) if like in host_names else host_names
                    for name, host_names in cluster.aggregates.items()},
                scope_hosts=cluster.scope_hosts | set(names) if scoped else cluster.scope_hosts),
            model.ClusterScores({name: _with_idle(policy_scores, cluster, like, names)
                                 for name, policy_scores in scores.policies.items()},
                                scores.taken_at))

    def disable_host(self, host: str, reason: str) -> 'SupposedCluster':
        """Disable the host, as an operator does to empty it.

        A host that is disabled already keeps its reason, unless the new one is :data:`REASON`.

        :raises ConfigError: the host does not exist.
        """
        _check_host_exists(self.cluster, host)
        service = self.cluster.services[host]
        if not service.enabled and reason != REASON:
            return self
        services = {**self.cluster.services, host: dataclasses.replace(
            service, status='disabled', disabled_reason=reason)}
        return dataclasses.replace(
            self, cluster=dataclasses.replace(self.cluster, services=services))

    def multiply_load(self, times: float) -> 'SupposedCluster':
        """Multiply the load of every instance and host.

        Load above 1 is demand that its host cannot serve.
        """
        def multiply_values(values: Mapping[str, float]) -> dict[str, float]:
            return {name: value * times for name, value in values.items()}

        return dataclasses.replace(self, scores=model.ClusterScores({
            name: dataclasses.replace(
                policy_scores, hosts=multiply_values(policy_scores.hosts),
                fill=multiply_values(policy_scores.fill),
                usages=multiply_values(policy_scores.usages),
                means=multiply_values(policy_scores.means),
                deviations=multiply_values(policy_scores.deviations))
            for name, policy_scores in self.scores.policies.items()}, self.scores.taken_at))


def build_reason_regex(options: model.PlanningOptions) -> str:
    """Return a drain_reason_regex that matches the supposed drains and the configured ones.

    The reason of the former is :data:`REASON`. The latter count only if the options drain disabled
    hosts.
    """
    ours = f'^{REASON}$'
    if not options.evacuate_disabled_hosts:
        return ours
    both = f'{ours}|(?:{options.drain_reason_regex})'
    try:
        re.compile(both)
    except re.error:  # flags that may only stand first
        return ours
    return both


def _check_host_exists(cluster: model.Cluster, host: str) -> None:
    if host not in cluster.hosts or host not in cluster.services:
        raise exception.ConfigError(
            path='command line', field='HOST', problem=f'{host}: no such compute host',
            remedy='Give the name of its compute service\'s host.')


def _free_names(cluster: model.Cluster, like: str, count: int) -> list[str]:
    free_names: list[str] = []
    number = 0
    while len(free_names) < count:
        number += 1
        name = f'{like}+{number}'
        if name not in cluster.hosts:
            free_names.append(name)
    return free_names


def _copy_empty_host(host: model.Host, name: str) -> model.Host:
    """Copy the host under another name, with nothing allocated."""
    def copy_empty_provider(provider: model.Provider) -> model.Provider:
        return dataclasses.replace(
            provider, uuid=_derive_uuid(name, provider.uuid), used={},
            name=f'{name} {provider.name}',
            parent_uuid=provider.parent_uuid and _derive_uuid(name, provider.parent_uuid))

    return dataclasses.replace(
        host, name=name, hypervisor_hostname=name, uuid=_derive_uuid(name, host.uuid),
        provider=None if host.provider is None else copy_empty_provider(host.provider),
        nested=tuple(copy_empty_provider(provider) for provider in host.nested))


def _derive_uuid(name: str, of: str) -> str:
    return str(uuid.uuid5(_NAMES, f'{name} {of}'))


def _with_idle(scores: model.PolicyScores, cluster: model.Cluster, like: str,
               names: list[str]) -> model.PolicyScores:
    """Add hosts to the scores, with the load that no instance of ``like`` explains."""
    if not scores.has_imbalance_values(like):
        return scores
    capacity = scores.capacity[like]
    used = sum(scores.usages.get(i.uuid, 0.0) for i in cluster.instances.values()
               if i.host == like) / capacity if capacity else 0.0
    idle, full = max(0.0, scores.hosts[like] - used), max(0.0, scores.fill[like] - used)
    return dataclasses.replace(
        scores, hosts={**scores.hosts, **dict.fromkeys(names, idle)},
        fill={**scores.fill, **dict.fromkeys(names, full)},
        capacity={**scores.capacity, **dict.fromkeys(names, capacity)})
