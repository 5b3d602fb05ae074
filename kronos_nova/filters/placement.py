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


"""Keeps instances off hosts that the rebalancer is working on."""

from typing import Any

from kronos_nova import boot
from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import published
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import server_groups
from kronos_nova.constraints import service_state
from kronos_nova.filters import base


class KronosPlacementFilter(base.KronosFilter):
    """Respects what the engine publishes, judged by the rebalancer's rules.

    A host that is being emptied or has refused moves lately is avoided, and
    all pass when nothing else is left. A host to which a member of the
    instance's anti-affinity group is under way is refused to boots, as Nova
    itself will when the member has arrived. Nothing published: all pass.

    A rule is asked about those hosts alone that it could refuse: in a large
    cloud these are few.
    """

    def judge(self, hosts: list[Any], spec: Any, moving: bool) -> list[Any]:
        notice = boot.door().notices.look()
        if notice is None:
            return hosts
        open_hosts = hosts
        if shut := notice.draining | notice.quarantined:
            suspects = [h for h in hosts if h.host in shut]
            open_hosts = _without(hosts, _refused(
                suspects, _view(notice), spec, service_state.closed_host)) or hosts
        if not notice.flights or (group := _group(spec)) is None:
            return open_hosts
        members = {*group.members, spec.instance_uuid}
        flights = [f for f in notice.flights if f.instance_uuid in members]
        if not flights:
            return open_hosts
        ends = {end for f in flights for end in (f.from_host, f.to_host)}
        suspects = [h for h in hosts
                    if not h.instances.keys().isdisjoint(members) or h.host in ends]
        refused = _refused(suspects, _group_view(suspects, group, members, flights), spec,
                           server_groups.anti_affinity)
        legal = _without(open_hosts, refused) or _without(hosts, refused)
        return hosts if moving and not legal else legal


def _refused(suspects: list[Any], view: cluster_view.ClusterView, spec: Any,
             rule: constraints.Rule) -> set[int]:
    """Which HostState objects a rule refuses to the instance, by id."""
    uuid = spec.instance_uuid
    return {id(h) for h in suspects
            if rule(view, model.Move(uuid, '', h.host, model.Phase.SPREAD)) is not None}


def _without(hosts: list[Any], refused: set[int]) -> list[Any]:
    return [h for h in hosts if id(h) not in refused] if refused else hosts


def _group(spec: Any) -> Any:
    """The request's anti-affinity group, or None."""
    group = spec.instance_group if 'instance_group' in spec else None
    if group is None or group.policy != model.GroupPolicy.ANTI_AFFINITY or 'uuid' not in group:
        return None
    return group


def _view(notice: published.Published) -> cluster_view.ClusterView:
    """What is published of hosts, as the rules want it."""
    cluster = model.Cluster(hosts={}, instances={}, services={})
    return cluster_view.ClusterView(
        cluster, model.Options(), draining=notice.draining,
        history=model.History(quarantined_hosts=notice.quarantined))


def _group_view(suspects: list[Any], group: Any, members: set[str],
                flights: list[model.Flight]) -> cluster_view.ClusterView:
    """A group's members and flights, as the rules want them."""
    instances: dict[str, model.Instance] = {}
    for host in suspects:
        # The dict is shared with the thread that updates it.
        for uuid in members.intersection(tuple(host.instances)):
            instances[uuid] = model.Instance(uuid, host.host)
    for flight in flights:
        instances.setdefault(flight.instance_uuid, model.Instance(
            flight.instance_uuid, flight.from_host))
    limit = (group.rules or {}).get('max_server_per_host', 1)
    groups = (model.ServerGroup(group.uuid, model.GroupPolicy.ANTI_AFFINITY,
                                frozenset(members), int(limit)),)
    cluster = model.Cluster(hosts={}, instances=instances, services={}, groups=groups,
                            flights=tuple(flights))
    return cluster_view.ClusterView(cluster, model.Options())
