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

"""Drain checks: whether a host can be emptied, how, and which obstacles it has. Pure.

Operators ask for them before they disable the host.
"""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import blocked_instances
from kronos_nova.rebalancer.operations import what_if
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.text import times

#: Seconds for which a drain may wait for contracts; a longer wait is an obstacle.
LONGEST_WAIT = 7 * 86400.0


@dataclasses.dataclass(frozen=True, slots=True)
class DrainCheck:
    """Result of a drain check.

    ``plan`` has the moves off the host, those that make room for these, and those off hosts that
    are drained already. ``missing``: by resource class, the amounts that hosts lack for instances
    that only capacity keeps, or capacity and load. ``obstacles``: why engines, as configured, would
    not do it, or not now. ``contract_wait``: the seconds until contracts and quieter hours allow
    the last of the moves that wait for them. ``methods``: the method of each move of the plan, by
    instance.
    """

    plan: model.Plan
    blocked: tuple[blocked_instances.BlockedInstance, ...]
    missing: dict[str, int]
    obstacles: tuple[str, ...] = ()
    contract_wait: float = 0.0
    methods: Mapping[str, model.MoveMethod] = dataclasses.field(default_factory=dict)


def plan_drain(request: planner.PlanningInput, host: str, mode: model.DrainMode | None = None, *,
               overbooking: bool = False) -> DrainCheck:
    """Plan the moves that empty the host, as far as the rules allow it.

    :param request: for the host's scope, with ``evacuate`` among its strategies.
    :param mode: None: the mode in which engines drain.
    :param overbooking: the policies' ceilings do not hold; claims do.
    :raises ConfigError: the host does not exist.
    :raises PlanRefused: the checker found a rule broken.
    """
    obstacles = list_obstacles(request, [host])
    request = _build_drain_request(request, host, mode, overbooking)
    hold = planner.scope_hold(planner.prepare_planning_input(request))
    if hold is not None:
        return DrainCheck(model.Plan(request.cluster.scope, reason=hold), (), {}, obstacles)
    plan = planner.plan(request)
    planning_pipeline.check_plan(plan, request)
    blocked, missing = blocked_instances.list_blocked_instances(request, host, plan)
    last = max((b.movable_from for b in blocked if b.movable_from is not None), default=None)
    wait = 0.0 if last is None else last - request.cluster.taken_at
    if last is not None and wait > LONGEST_WAIT:
        obstacles += (f'contracts of instances allow the last move from {times.format_time(last)} '
                      'on',)
    return DrainCheck(plan, blocked, missing, obstacles, wait, tasks.choose_methods(
        plan, request.cluster, request.options, request.history))


def find_failover_obstacle(request: planner.PlanningInput, host: str, plan: model.Plan,
                           mode: model.DrainMode | None = None, *,
                           overbooking: bool = False) -> str | None:
    """Return why engines leave moves of a drain out by the rule ``breaks-failover``; or None.

    :param plan: of :func:`plan_drain` or :func:`select_moves_of_drain`, with the same parameters.
    :raises PlanRefused: the checker found a rule broken.
    """
    if not plan.moves or request.options.failover != model.FailoverMode.ENFORCE:
        return None
    request = _build_drain_request(request, host, mode, overbooking)
    kept, _ = planning_pipeline.keep_failover(request, plan)
    return kept.warnings[-1] if len(kept.moves) < len(plan.moves) else None


def select_moves_of_drain(request: planner.PlanningInput, host: str,
                          plan: model.Plan) -> model.Plan:
    """Return a plan of :func:`plan_drain` with the moves off the host, and those that they require.

    :param request: that of the plan.
    :raises PlanRefused: the checker found a rule broken.
    """
    request = _build_drain_request(request, host, None, overbooking=False)
    requires = {move.instance_uuid: move.requires for move in plan.moves}
    wanted: set[str] = set()
    waiting = [move.instance_uuid for move in plan.moves if move.from_host == host]
    while waiting:
        uuid = waiting.pop()
        if uuid not in wanted:
            wanted.add(uuid)
            waiting += requires[uuid]
    if wanted == requires.keys():
        return plan
    plan = planner.drop_moves(request, plan, requires.keys() - wanted,
                              f'only moves for the drain of host {host} are ordered')
    planning_pipeline.check_plan(plan, request)
    return plan


def has_instances(cluster: model.Cluster, host: str) -> bool:
    """Return whether an instance is on the host."""
    return any(i.host == host for i in cluster.instances.values())


def list_incoming_instances(cluster: model.Cluster, host: str) -> frozenset[str]:
    """Return the instances that are not on the host and may land there.

    They are on their way to it, or have a task that may end there instead.
    """
    return frozenset(
        f.instance_uuid for f in cluster.flights if host in (f.to_host, *f.alternates)
        and ((instance := cluster.instances.get(f.instance_uuid)) is None or instance.host != host))


def is_fully_drained(cluster: model.Cluster, host: str) -> bool:
    """Return whether the host has no instance and expects none: engines need not drain it."""
    return not list_incoming_instances(cluster, host) and not has_instances(cluster, host)


def _build_drain_request(request: planner.PlanningInput, host: str, mode: model.DrainMode | None,
                         overbooking: bool) -> planner.PlanningInput:
    """Return the request that drains the host, and the hosts that are drained already.

    The host is disabled in it, and only drains are planned. Cooldowns end while the drain goes on,
    so the request has none. It has no pauses either: these are obstacles.
    """
    supposed = what_if.SupposedCluster(request.cluster, request.scores).disable_host(
        host, what_if.REASON)
    return build_supposed_request(request, supposed.cluster, dataclasses.replace(
        request.options, drain_reason_regex=what_if.build_reason_regex(request.options),
        overbooking=overbooking, drain_mode=mode or request.options.drain_mode))


def build_supposed_request(request: planner.PlanningInput, cluster: model.Cluster,
                           options: model.PlanningOptions) -> planner.PlanningInput:
    """Return the request that drains the disabled hosts of a supposed cluster, and only drains.

    Cooldowns end while a drain goes on, so the request has none. It has no pauses either. The
    drains wait for quieter hours, as far as the rates of their instances are known.
    """
    options = dataclasses.replace(options, evacuate_disabled_hosts=True, max_drain_fraction=1.0)
    drained = set(drain_requests.drained_hosts(cluster, options))
    leaving = sum(i.host in drained for i in cluster.instances.values())
    waits = quiet_hours.find_quiet_waits(cluster, request.scores, request.history, options,
                                         request.now, _map_deadlines(request, cluster),
                                         budget=request.policies.move_budget)
    return dataclasses.replace(
        request, cluster=cluster, options=options,
        strategies=[s for s in request.strategies if type(s).__name__ == 'Evacuate'],
        budget=max(1, 2 * leaving), history=dataclasses.replace(
            request.history, cooling={}, scope_cooling=0.0, waiting=None, paused=None,
            quiet_waits=waits))


def _map_deadlines(request: planner.PlanningInput, cluster: model.Cluster) -> dict[str, float]:
    """Return the deadlines of drains in a supposed cluster, by host.

    Of a host that is drained already, the supposed service has another reason.
    """
    return (quiet_hours.map_drain_deadlines(request.cluster, request.history)
            | quiet_hours.map_drain_deadlines(cluster, request.history))


def explain_missing_waits(request: planner.PlanningInput, host: str) -> dict[str, str]:
    """Return why instances that may not converge wait for no quieter hour, by instance.

    Empty, where the option is off.
    """
    if request.options.drain_quiet_wait <= 0:
        return {}
    supposed = _build_drain_request(request, host, None, overbooking=False)
    reasons = quiet_hours.explain_missing_waits(
        supposed.cluster, supposed.scores, request.history, supposed.options, request.now,
        _map_deadlines(request, supposed.cluster), budget=request.policies.move_budget)
    return {uuid: reason for uuid, reason in reasons.items()
            if supposed.cluster.instances[uuid].host == host}


def list_obstacles(request: planner.PlanningInput, hosts: Collection[str]) -> tuple[str, ...]:
    """List why engines, as configured, do not empty the hosts, or would not once all are disabled.
    """
    obstacles = []
    if not request.options.evacuate_disabled_hosts:
        obstacles.append('evacuate_disabled_hosts is not set: engines leave disabled hosts alone')
    supposed = what_if.SupposedCluster(request.cluster, request.scores)
    for host in hosts:
        service = request.cluster.services.get(host)
        if service is not None and not service.enabled:
            why = drain_requests.find_drain_refusal(service, request.options)
            if why is not None:
                obstacles.append(f'host {host} is disabled already and not drained: {why}')
        supposed = supposed.disable_host(host, what_if.REASON)
    if request.history.paused is not None and not all(
            is_fully_drained(request.cluster, host) for host in hosts):
        obstacles.append(request.history.paused)
    outage = planning_holds.find_outage_reason(supposed.cluster, request.options)
    if outage is not None:
        these = 'this host' if len(hosts) == 1 else plurals.count_noun(len(hosts), 'host')
        obstacles.append(f'with {these} disabled, {outage}')
    return tuple(obstacles)


def compute_ceilings(request: planner.PlanningInput) -> dict[str, float]:
    return sim.compute_ceilings(request.policies, request.options)
