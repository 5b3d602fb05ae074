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

"""Views of a host or an instance as a cycle sees it: scores, shares, state and holds. Pure."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.constraints import disks
from kronos_nova.constraints import history_holds
from kronos_nova.constraints import instance as instances
from kronos_nova.constraints import metrics
from kronos_nova.constraints import recently_booted
from kronos_nova.constraints import rules
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds

#: Rules about an instance alone, each reason separately; the last three hold only moves for
#: balance.
OWN: tuple[rules.Rule, ...] = (
    *(rule for rule in constraints.ALONE if rule is not instances.HISTORY_RULE),
    recently_booted.JUST_BOOTED_RULE, disks.COPIES_DISK_RULE, metrics.SCORED_RULE)
UNTRUSTED = 'policy-untrusted'


@dataclasses.dataclass(frozen=True, slots=True)
class HostLoad:
    """Load of a host under a policy; None: not known.

    ``score`` and ``fill`` are in [0, 1], ``base`` is the part of the score that no instance
    explains, ``coverage`` the share that instances explain.
    """

    policy: str
    score: float | None
    fill: float | None
    base: float | None
    coverage: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class HostPortrait:
    """A host: its ``state`` in words, its number of ``instances``, and its loads."""

    name: str
    state: tuple[str, ...]
    instances: int
    loads: tuple[HostLoad, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceShare:
    """Share of an instance in its host's load under a policy; None: not known.

    ``usage`` is in the policy's unit, ``ratio`` is a ratio of the host's capacity.
    """

    policy: str
    usage: float | None
    ratio: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class InstancePortrait:
    """An instance with its shares, holds and server groups.

    ``held``: rejections that keep it on its host for every destination; ``wait``: seconds until the
    last such reason ends, None: one does not end, or its end is not known. ``holds``: why nothing
    in its scope moves now, or nothing for balance. ``groups``: by server group its policy, and the
    number of members by host.
    """

    instance: model.Instance
    shares: tuple[InstanceShare, ...]
    held: tuple[model.Rejection, ...]
    holds: tuple[str, ...]
    wait: float | None
    groups: Mapping[str, tuple[str, Mapping[str, int]]]


def list_host_portraits(request: planner.PlanningInput) -> list[HostPortrait]:
    """List the hosts of the request's scope, by name."""
    there = map_instances_by_host(request.cluster)
    return [build_host_portrait(request, name, there.get(name, ()))
            for name in sorted(request.cluster.scope_hosts)]


def map_instances_by_host(cluster: model.Cluster) -> dict[str, list[str]]:
    """Return the UUIDs of the instances of each host that has any."""
    there: dict[str, list[str]] = {}
    for of in cluster.instances.values():
        there.setdefault(of.host, []).append(of.uuid)
    return there


def build_host_portrait(request: planner.PlanningInput, name: str,
                        here: Sequence[str]) -> HostPortrait:
    """Return a host of the request's scope.

    :param here: the UUIDs of its instances.
    """
    return HostPortrait(
        name, _describe_host_state(request.cluster, request.history, name), len(here),
        tuple(_load(request.scores.policies[p.name], name, here)
              for p in request.policies.enabled_policies))


def _describe_host_state(
        cluster: model.Cluster, history: model.MoveHistory, name: str) -> tuple[str, ...]:
    service = cluster.services.get(name)
    if service is None:
        return ('no nova-compute',)
    states = ['up' if service.up else 'forced down' if service.forced_down else 'down']
    if not service.enabled:
        reason = f': {service.disabled_reason}' if service.disabled_reason else ''
        states.append(f'disabled{reason}')
    if name in history.draining:
        states.append('draining')
    if name in history.quarantined_hosts:
        states.append('quarantined')
    return tuple(states)


def _load(scores: model.PolicyScores, host: str, here: Sequence[str]) -> HostLoad:
    score, capacity = scores.hosts.get(host), scores.capacity.get(host)
    base = None
    if score is not None and capacity:
        base = max(0.0, score - sum(scores.usages.get(u, 0.0) for u in here) / capacity)
    return HostLoad(scores.policy, score, scores.fill.get(host), base, scores.coverage.get(host))


def build_instance_portrait(request: planner.PlanningInput, uuid: str) -> InstancePortrait:
    """Return an instance with its shares, holds and server groups.

    :param uuid: an instance of the request's scope.
    """
    cluster = request.cluster
    of = cluster.instances[uuid]
    view = cluster_view.ClusterView(cluster, request.options, request.history, request.scores,
                                    sim.compute_ceilings(request.policies, request.options),
                                    draining=request.history.draining)
    # A move to its own host: only rules about the instance alone judge it.
    probe = model.Move(uuid, of.host, of.host, model.Phase(request.policies.mode))
    rejections = tuple(_list_own_rejections(request, view, probe))
    holds = (planner.scope_hold(request), planning_holds.imbalance_hold(
        cluster, request.scores, request.history, request.options))
    return InstancePortrait(
        of, tuple(_compute_share(request.scores.policies[p.name], uuid, of.host)
                  for p in request.policies.enabled_policies),
        rejections, tuple(text for text in holds if text is not None),
        _find_wait(request.history, view, probe, rejections),
        {g.uuid: (g.policy.value, _count_members_by_host(cluster, g)) for g in cluster.groups
         if uuid in g.members})


def _compute_share(scores: model.PolicyScores, uuid: str, host: str) -> InstanceShare:
    usage, capacity = scores.usages.get(uuid), scores.capacity.get(host)
    return InstanceShare(scores.policy, usage, usage / capacity if usage is not None and capacity
                         else None)


def _list_own_rejections(request: planner.PlanningInput, view: cluster_view.ClusterView,
                         probe: model.Move) -> Iterator[model.Rejection]:
    for rule in OWN:
        rejection = rule.judge(view, probe)
        # The scope's holds report untrusted policies.
        if rejection is not None and rejection.rule != UNTRUSTED:
            yield rejection
    yield from history_holds.list_hold_reasons(request.history, probe.instance_uuid)


def _find_wait(history: model.MoveHistory, view: cluster_view.ClusterView, probe: model.Move,
               rejections: tuple[model.Rejection, ...]) -> float | None:
    """Return the seconds until nothing holds the instance; None: not known.

    Contracts count from the end of the other holds, as their hours may end before. Without a
    notice to the owner no one knows when notice is given.
    """
    uuid = probe.instance_uuid
    waits = {'cooling': history.cooling.get(uuid), 'quarantined': history.quarantined.get(uuid),
             'just-booted': history.fresh.get(uuid), **dict.fromkeys(contracts.PASSING, 0.0)}
    seconds_left = [waits.get(rejection.rule) for rejection in rejections]
    known = [seconds for seconds in seconds_left if seconds is not None and seconds >= 0]
    if len(known) < len(rejections) or (
            contracts.find_needed_notice(view, probe) is not None
            and not contracts.has_notice(view, uuid)):
        return None
    movable_from = contracts.find_movable_from(view, probe, view.taken_at + max(known, default=0.0))
    return None if movable_from is None else movable_from - view.taken_at


def _count_members_by_host(cluster: model.Cluster, group: model.ServerGroup) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in group.members:
        if member in cluster.instances:
            host = cluster.instances[member].host
            counts[host] = counts.get(host, 0) + 1
    return dict(sorted(counts.items()))
