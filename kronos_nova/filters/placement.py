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


"""A filter that keeps instances off hosts that the rebalancer is working on."""

from collections.abc import Collection
from collections.abc import Iterable
from typing import Any

from oslo_config import cfg

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import hints
from kronos_nova.constraints import rules
from kronos_nova.constraints import server_groups
from kronos_nova.constraints import service_state
from kronos_nova.feed import feed_channel
from kronos_nova.filters import base
from kronos_nova.scheduler import runtime

HARD_POLICIES = frozenset({model.GroupPolicy.AFFINITY, model.GroupPolicy.ANTI_AFFINITY})


class KronosPlacementFilter(base.KronosFilter):
    """Respects what the engine publishes, judged by the rebalancer's rules.

    The filter avoids a host that the engine is draining or that has refused moves lately;
    when no other host is left, all pass. For a boot, it refuses each host that the request's
    server group or scheduler hints forbid once the members and partners under way have
    arrived. For anti-affinity and ``different_host`` both ends of a migration count, for
    affinity the destination, and for ``same_host`` neither. While the engine publishes
    nothing, all hosts pass.

    The filter checks a rule only on the hosts that this rule could refuse: in a large cloud
    these are few. Nova's own filters judge the others.
    """

    def judge(self, hosts: list[Any], spec: Any, moving: bool) -> list[Any]:
        door = runtime.get_runtime()
        notice = door.notices.read_publication()
        if notice is None:
            return hosts
        open_hosts = hosts
        if shut := notice.draining | notice.quarantined:
            suspects = [h for h in hosts if h.host in shut]
            open_hosts = _drop_refused_hosts(hosts, _list_refused_hosts(
                suspects, _build_notice_view(notice), spec, service_state.closed_host)) or hosts
        if not notice.flights:
            return open_hosts
        refused = find_rejections(hosts, spec, notice.flights, door.conf)
        if not refused:
            return open_hosts
        legal = _drop_refused_hosts(open_hosts, refused) or _drop_refused_hosts(hosts, refused)
        return hosts if moving and not legal else legal


def find_rejections(hosts: list[Any], spec: Any, flights: Iterable[model.InFlightMove],
                    conf: cfg.ConfigOpts) -> dict[int, tuple[model.Rejection, ...]]:
    """Return, by id, the hosts that the request's server group or hints forbid, and why."""
    rejections_by_host_id: dict[int, tuple[model.Rejection, ...]] = {}
    for refused in (_find_group_refusals(hosts, spec, flights),
                    _find_hint_refusals(hosts, spec, flights, conf)):
        for host_id, rejection in refused.items():
            rejections_by_host_id[host_id] = (*rejections_by_host_id.get(host_id, ()), rejection)
    return rejections_by_host_id


def _list_refused_hosts(suspects: list[Any], view: cluster_view.ClusterView, spec: Any,
                        judge: rules.Judge) -> dict[int, model.Rejection]:
    """Return the ids of the HostState objects that a judge refuses to the instance, and why."""
    uuid = spec.instance_uuid
    return {id(h): rejection for h in suspects if (rejection := judge(
        view, model.Move(uuid, '', h.host, model.Phase.SPREAD))) is not None}


def _drop_refused_hosts(hosts: list[Any], refused: Collection[int]) -> list[Any]:
    return [h for h in hosts if id(h) not in refused] if refused else hosts


def _find_group_refusals(hosts: list[Any], spec: Any,
                         flights: Iterable[model.InFlightMove]) -> dict[int, model.Rejection]:
    """Return the hosts that the request's server group forbids, by id."""
    group = _find_hard_group(spec)
    if group is None:
        return {}
    members = {*group.members, spec.instance_uuid}
    flying = [f for f in flights if f.instance_uuid in members]
    if group.policy == model.GroupPolicy.AFFINITY:
        # The rule ignores the instance itself.
        flying = [f for f in flying if f.instance_uuid != spec.instance_uuid]
    if not flying:
        return {}
    suspects = _find_suspects(hosts, members, flying)
    limit = (group.rules or {}).get('max_server_per_host', 1)
    groups = (model.ServerGroup(group.uuid, model.GroupPolicy(group.policy),
                                frozenset(members), int(limit)),)
    instances = _find_instances(suspects, members, flying)
    if group.policy == model.GroupPolicy.ANTI_AFFINITY:
        return _list_refused_hosts(suspects, _view_of(instances, flying, groups=groups), spec,
                                   server_groups.anti_affinity)
    # A host that a member only leaves holds none when it has arrived.
    for flight in flying:
        if flight.to_host is not None:
            instances[flight.instance_uuid] = model.Instance(
                flight.instance_uuid, flight.to_host)
    return _list_refused_hosts(suspects, _view_of(instances, (), groups=groups), spec,
                               server_groups.affinity)


def _find_hint_refusals(hosts: list[Any], spec: Any, flights: Iterable[model.InFlightMove],
                        conf: cfg.ConfigOpts) -> dict[int, model.Rejection]:
    """Return the hosts that the request's scheduler hints forbid, by id."""
    wishes = _read_hints(spec)
    partners = {uuid for uuids in wishes.values() for uuid in uuids}
    flying = [f for f in flights if f.instance_uuid in partners]
    if not flying:
        return {}
    suspects = _find_suspects(hosts, partners, flying)
    instances = _find_instances(suspects, partners, flying)
    uuid = spec.instance_uuid
    instances[uuid] = model.Instance(uuid, '', scheduler_hints=wishes)
    options = model.PlanningOptions(
        nova_enabled_filters=frozenset(conf.filter_scheduler.enabled_filters))
    return _list_refused_hosts(suspects, _view_of(instances, flying, options), spec, hints.hints)


def _read_hints(spec: Any) -> dict[str, tuple[str, ...]]:
    """Return the instances that the request's hints name, without the request's own instance."""
    scheduler_hints = (spec.scheduler_hints if 'scheduler_hints' in spec else None) or {}
    instances_by_hint = {}
    for name in ('different_host', 'same_host'):
        value = scheduler_hints.get(name) or ()
        uuids = [value] if isinstance(value, str) else value
        instances_by_hint[name] = tuple(u for u in uuids if u != spec.instance_uuid)
    return instances_by_hint


def _find_hard_group(spec: Any) -> Any:
    """Return the request's server group if its policy is hard, or None."""
    group = spec.instance_group if 'instance_group' in spec else None
    if group is None or group.policy not in HARD_POLICIES or 'uuid' not in group:
        return None
    return group


def _build_notice_view(notice: feed_channel.PublishedState) -> cluster_view.ClusterView:
    """Return a view of the published draining and quarantined hosts for the rules."""
    cluster = model.Cluster(hosts={}, instances={}, services={})
    return cluster_view.ClusterView(
        cluster, model.PlanningOptions(), draining=notice.draining,
        history=model.MoveHistory(quarantined_hosts=notice.quarantined))


def _find_suspects(hosts: list[Any], uuids: set[str],
                   flights: list[model.InFlightMove]) -> list[Any]:
    """Return the hosts that hold one of the instances, or are an end of a flight."""
    ends = {end for f in flights for end in (f.from_host, f.to_host)}
    return [h for h in hosts if not h.instances.keys().isdisjoint(uuids) or h.host in ends]


def _find_instances(suspects: list[Any], uuids: set[str],
                    flights: list[model.InFlightMove]) -> dict[str, model.Instance]:
    """Return the instances by UUID, each on the host where Nova has it."""
    instances: dict[str, model.Instance] = {}
    for host in suspects:
        # The dict is shared with the thread that updates it.
        for uuid in uuids.intersection(tuple(host.instances)):
            instances[uuid] = model.Instance(uuid, host.host)
    for flight in flights:
        instances.setdefault(flight.instance_uuid, model.Instance(
            flight.instance_uuid, flight.from_host))
    return instances


def _view_of(instances: dict[str, model.Instance], flights: Iterable[model.InFlightMove],
             options: model.PlanningOptions | None = None,
             groups: tuple[model.ServerGroup, ...] = ()) -> cluster_view.ClusterView:
    """Return a view of the instances and flights for the rules."""
    cluster = model.Cluster(hosts={}, instances=instances, services={}, groups=groups,
                            flights=tuple(flights))
    return cluster_view.ClusterView(cluster, options or model.PlanningOptions())
