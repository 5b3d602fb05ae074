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

"""Differences between two readings of a scope that may end the places of a failover certificate.

Room and load are left out: they are compared as numbers (:mod:`failover`).
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.constraints import hints
from kronos_nova.rebalancer.planning import planner

#: A fill that falls by less makes no room worth a search.
RELIEF = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class CloudChanges:
    """The instances and hosts for which a rule may judge otherwise than before.

    ``everything``: rules may judge otherwise for all.
    """

    instances: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    everything: bool = False


def compare_requests(before: planner.PlanningInput, now: planner.PlanningInput) -> CloudChanges:
    """Compare the inputs of two certificates of one scope."""
    old, new = before.cluster, now.cluster
    if (before.options != now.options or before.policies.mode != now.policies.mode
            or old.scope != new.scope or old.aggregates != new.aggregates
            or old.aggregate_metadata != new.aggregate_metadata
            or old.planned_zone != new.planned_zone
            or _select_pools(old) != _select_pools(new)
            or before.history.other_cells != now.history.other_cells):
        return CloudChanges(everything=True)
    instances = _list_different(old.instances, new.instances)
    flights = set(old.flights) ^ set(new.flights)
    instances.update(f.instance_uuid for f in flights)
    instances.update(_list_different(before.history.refused, now.history.refused))
    groups = _list_different({g.uuid: g for g in old.groups}, {g.uuid: g for g in new.groups})
    for group in (*old.groups, *new.groups):
        if group.uuid in groups or not instances.isdisjoint(group.members):
            groups.add(group.uuid)
    touched = instances.union(*(g.members for g in (*old.groups, *new.groups) if g.uuid in groups))
    for cluster, options in ((old, before.options), (new, now.options)):
        ties = hints.build_hint_ties(cluster.instances, options.nova_enabled_filters)
        touched.update(other for uuid in instances for other in ties.get(uuid, ()))
    hosts = {h for h in old.scope_hosts | new.scope_hosts
             if not _is_alike(old.hosts.get(h), new.hosts.get(h))
             or _describe_service(old.services.get(h)) != _describe_service(new.services.get(h))}
    hosts |= old.scope_hosts ^ new.scope_hosts
    hosts |= before.history.quarantined_hosts ^ now.history.quarantined_hosts
    hosts |= before.history.draining ^ now.history.draining
    hosts |= list_connected_hosts(new, set(_list_flight_ends(flights)))
    return CloudChanges(frozenset(touched), frozenset(hosts))


def list_connected_hosts(cluster: model.Cluster, ends: Collection[str]) -> frozenset[str]:
    """List the hosts whose room off their roots moves between the ends may take.

    These are the ends that have such room, and all hosts that share a provider with an end.
    """
    pools = frozenset[str]().union(*(cluster.hosts[h].sharing for h in ends if h in cluster.hosts))
    found = {h for h in ends if h in cluster.hosts and is_complex(cluster.hosts[h])}
    if pools:
        found.update(name for name, host in cluster.hosts.items()
                     if not pools.isdisjoint(host.sharing))
    return frozenset(found)


def list_relieved_hosts(before: planner.PlanningInput,
                        now: planner.PlanningInput) -> frozenset[str]:
    """List the hosts of the scope that may have more room or less load than before."""
    old, new = before.cluster, now.cluster
    fills = [(before.scores.policies[name].fill, policy.fill)
             for name, policy in now.scores.policies.items() if name in before.scores.policies]
    return frozenset(
        h for h in new.scope_hosts
        if _has_more_room(old.hosts.get(h), new.hosts.get(h))
        or _describe_service(old.services.get(h)) != _describe_service(new.services.get(h))
        or any(later.get(h, 0.0) + RELIEF < earlier.get(h, 0.0) for earlier, later in fills))


def _has_more_room(old: model.Host | None, new: model.Host | None) -> bool:
    if old is new or new is None:
        return False
    if (old is None or old.provider is None or new.provider is None or is_complex(old)
            or is_complex(new) or old.provider.inventories != new.provider.inventories):
        return old != new
    return any(new.provider.used.get(name, 0) < amount
               for name, amount in old.provider.used.items())


def is_complex(host: model.Host) -> bool:
    """Return whether an allocation on the host may be on another provider than its root."""
    return bool(host.nested or host.sharing)


def _list_different(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """Return the keys whose values differ, or that one side lacks."""
    different = {key for key, value in new.items()
                 if (earlier := old.get(key)) is not value and earlier != value}
    different.update(old.keys() - new.keys())
    return different


def _is_alike(old: model.Host | None, new: model.Host | None) -> bool:
    """Return whether rules judge both hosts alike, apart from room on a root alone."""
    if old is new:
        return True
    if old is None or new is None:
        return False
    if is_complex(old) or is_complex(new) or old.provider is None or new.provider is None:
        return old == new
    return (dataclasses.replace(old, provider=None) == dataclasses.replace(new, provider=None)
            and old.provider.inventories == new.provider.inventories
            and old.provider.uuid == new.provider.uuid
            and old.provider.traits == new.provider.traits)


def _describe_service(service: model.Service | None) -> tuple[Any, ...]:
    return () if service is None else (service.available, service.zone)


def _select_pools(cluster: model.Cluster) -> dict[str, Any]:
    """Return the sharing providers without their generations."""
    return {uuid: (p.inventories, p.used, p.traits, p.aggregates)
            for uuid, p in cluster.sharing.items()}


def _list_flight_ends(flights: Iterable[model.InFlightMove]) -> Iterable[str]:
    return (h for f in flights for h in (f.from_host, f.to_host, *f.alternates) if h is not None)
