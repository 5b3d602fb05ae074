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
from kronos_nova.constraints import server_groups
from kronos_nova.constraints import service_state
from kronos_nova.constraints import view as views
from kronos_nova.filters import base


class KronosPlacementFilter(base.KronosFilter):
    """Respects what the engine publishes, judged by the rebalancer's rules.

    A host that is being emptied or has refused moves lately is avoided, and
    all pass when nothing else is left. A host to which a member of the
    instance's anti-affinity group is under way is refused to boots, as Nova
    itself will when the member has arrived. Nothing published: all pass.
    """

    def judge(self, hosts: list[Any], spec: Any, moving: bool) -> list[Any]:
        notice = boot.door().notices.look()
        if notice is None:
            return hosts
        open_hosts = hosts
        if notice.draining or notice.quarantined:
            open_hosts = self._passing(hosts, spec, notice, service_state.closed_host) or hosts
        if not notice.flights or _group(spec) is None:
            return open_hosts
        legal = self._passing(open_hosts, spec, notice, server_groups.anti_affinity)
        if not legal and open_hosts is not hosts:
            legal = self._passing(hosts, spec, notice, server_groups.anti_affinity)
        return hosts if moving and not legal else legal

    def _passing(self, hosts: list[Any], spec: Any, notice: published.Published,
                 rule: constraints.Rule) -> list[Any]:
        view = _view(hosts, spec, notice)
        uuid = spec.instance_uuid
        return [h for h in hosts
                if rule(view, model.Move(uuid, '', h.host, model.Phase.SPREAD)) is None]


def _group(spec: Any) -> Any:
    """The request's anti-affinity group, or None."""
    group = spec.instance_group if 'instance_group' in spec else None
    if group is None or group.policy != model.GroupPolicy.ANTI_AFFINITY or 'uuid' not in group:
        return None
    return group


def _view(hosts: list[Any], spec: Any, notice: published.Published) -> views.ClusterView:
    """The request as the rules want it: the group's members and flights."""
    instances: dict[str, model.Instance] = {}
    groups: tuple[model.ServerGroup, ...] = ()
    group = _group(spec)
    if group is not None:
        members = {*group.members, spec.instance_uuid}
        for host in hosts:
            # The dict is shared with the thread that updates it.
            for uuid in members.intersection(tuple(host.instances)):
                instances[uuid] = model.Instance(uuid, host.host)
        for flight in notice.flights:
            if flight.instance_uuid in members:
                instances.setdefault(flight.instance_uuid, model.Instance(
                    flight.instance_uuid, flight.from_host))
        limit = (group.rules or {}).get('max_server_per_host', 1)
        groups = (model.ServerGroup(group.uuid, model.GroupPolicy.ANTI_AFFINITY,
                                    frozenset(members), int(limit)),)
    flights = tuple(f for f in notice.flights if f.instance_uuid in instances)
    cluster = model.Cluster(hosts={}, instances=instances, services={}, groups=groups,
                            flights=flights)
    return views.ClusterView(
        cluster, model.Options(), draining=notice.draining,
        history=model.History(quarantined_hosts=notice.quarantined))
