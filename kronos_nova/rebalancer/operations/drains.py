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

from collections import Counter
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.constraints import contracts
from kronos_nova.constraints import history_holds
from kronos_nova.constraints import offline_drains
from kronos_nova.constraints import view as views
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import shortfall
from kronos_nova.rebalancer.operations import what_if
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.text import times

#: Rule that refuses a destination without capacity for the claims.
NO_ROOM = 'no-room'
#: Rule that refuses a destination whose load would exceed a ceiling.
CEILING = 'ceiling'
#: Rule that refuses an instance that is migrating already.
IN_FLIGHT = 'in-flight'
#: Seconds for which a drain may wait for contracts; a longer wait is an obstacle.
LONGEST_WAIT = 7 * 86400.0
#: Rules whose reasons end without any action.
WAITING = frozenset({IN_FLIGHT, 'task-state', 'group-in-flight', 'hint-in-flight'})
#: Rules that do not count where an instance is placed for later.
_ENDING = WAITING | contracts.PASSING | {history_holds.QUARANTINED}


@dataclasses.dataclass(frozen=True, slots=True)
class BlockedInstance:
    """An instance that stays on the host, with the reason.

    The reason is the instance's own, or the first one of each host, counted. ``later``: the
    instance leaves in a later cycle, when planned and running migrations have ended, or when its
    contract allows it. ``movable_from``: when that is, as far as contracts say today (epoch
    seconds); where its owner has no notice yet, it counts from now. ``is_cut_off``: planning was
    cut off before it was known whether the instance stays; no rule about destinations is named.
    """

    instance_uuid: str
    reason: str
    later: bool = False
    movable_from: float | None = None
    is_cut_off: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DrainCheck:
    """Result of a drain check.

    ``plan`` has the moves off the host, those that make room for these, and those off hosts that
    are drained already. ``missing``: by resource class, the amounts that hosts lack for instances
    that only capacity keeps, or capacity and load. ``obstacles``: why engines, as configured, would
    not do it, or not now. ``contract_wait``: the seconds until contracts allow the last of the
    moves that wait for them. ``methods``: the method of each move of the plan, by instance.
    """

    plan: model.Plan
    blocked: tuple[BlockedInstance, ...]
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
    blocked, missing = list_blocked_instances(request, host, plan)
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

    Cooldowns end while a drain goes on, so the request has none. It has no pauses either.
    """
    options = dataclasses.replace(options, evacuate_disabled_hosts=True, max_drain_fraction=1.0)
    drained = set(drain_requests.drained_hosts(cluster, options))
    leaving = sum(i.host in drained for i in cluster.instances.values())
    return dataclasses.replace(
        request, cluster=cluster, options=options,
        strategies=[s for s in request.strategies if type(s).__name__ == 'Evacuate'],
        budget=max(1, 2 * leaving), history=dataclasses.replace(
            request.history, cooling={}, scope_cooling=0.0, waiting=None, paused=None))


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


def _build_simulation(request: planner.PlanningInput) -> sim.Simulation:
    return sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                          request.options, seed=request.seed, now=request.now)


def list_blocked_instances(request: planner.PlanningInput, host: str, plan: model.Plan,
                           cut_off: str | None = None,
                           ) -> tuple[tuple[BlockedInstance, ...], dict[str, int]]:
    """List the instances that stay on the host after the plan, and the amounts that hosts lack.

    An instance that only waits for reasons that end is placed where the other rules allow it, one
    instance after the other. So is one that is quarantined until it can be shut down.

    :param cut_off: how planning was cut off; None: only the count of steps of the plan counts.
    """
    if cut_off is None and plan.truncated:
        cut_off = planning_holds.describe_cut_off(request.options.max_steps)
    simulation = _build_simulation(request)
    for move in sorted(plan.moves, key=lambda m: m.wave):
        simulation.apply_move(move)
    blocked, missing = [], Counter[str]()
    for n in sorted(map(int, simulation.list_on_host(host))):
        probe = model.Move(simulation.uuids[n], host, '', model.Phase.EVACUATE)
        shutdown = _find_waiting_shutdown(simulation.view, probe)
        own = _list_own_reasons(simulation.view, probe, shutdown)
        # All contracts are named: their owners may be others than who locked the instance.
        stated = [limit.rejection for limit in contracts.list_forbidding_limits(
            simulation.view, probe) if limit.holds]
        movable_from = contracts.find_movable_from(simulation.view, probe) if stated else None
        lasting = [rejection for rejection in own if rejection.rule not in WAITING][:1]
        short: dict[str, int] = {}
        if lasting or (stated and movable_from is None):
            instance = BlockedInstance(probe.instance_uuid, '; '.join(
                f'{rejection.rule}: {rejection.detail}' for rejection in lasting))
        elif any(rejection.rule == IN_FLIGHT for rejection in own):
            instance = BlockedInstance(probe.instance_uuid, own[0].detail, later=True)
        else:
            waits = [rejection.detail for rejection in own]
            if shutdown is not None and not stated:
                waits.append(f'its shutdown waits: {shutdown.detail}')
            instance, short = _place_or_explain(simulation, probe, waits, stated, cut_off)
        blocked.append(_add_contracts(instance, stated, movable_from))
        missing.update(short)
    return tuple(blocked), {name: amount for name, amount in sorted(missing.items()) if amount}


def _find_waiting_shutdown(view: views.CloudView,
                           probe: model.Move) -> offline_drains.ShutdownObstacle | None:
    """Return why a quarantined instance is shut down later; None: its quarantine keeps it."""
    if not offline_drains.is_quarantined(view, probe.instance_uuid):
        return None
    obstacle = offline_drains.find_obstacle(view, probe)
    return obstacle if obstacle is not None and obstacle.passes else None


def _list_own_reasons(view: views.CloudView, probe: model.Move,
                      shutdown: offline_drains.ShutdownObstacle | None) -> list[model.Rejection]:
    """List the rejections of the instance alone, without contracts.

    :param shutdown: why its shutdown waits; a quarantine does not keep the instance then.
    """
    own = [rejection for rejection in constraints.list_rejections(view, probe, constraints.ALONE)
           if rejection.rule not in contracts.CONTRACT_RULE.codes]
    if shutdown is None:
        return own
    other = view.judge_history(probe.instance_uuid, is_late_drain=True)
    return [*(rejection for rejection in own if rejection.rule != history_holds.QUARANTINED),
            *([] if other is None else [other])]


def _add_contracts(blocked: BlockedInstance, stated: Sequence[model.Rejection],
                   movable_from: float | None) -> BlockedInstance:
    """Return the instance with the contracts that keep it now, and when they end."""
    if not stated:
        return blocked
    reasons = [*([blocked.reason] if blocked.reason else ()),
               *(f'{rejection.rule}: {rejection.detail}' for rejection in stated)]
    if not blocked.later or movable_from is None:
        return dataclasses.replace(blocked, reason='; '.join(reasons))
    reasons.append(f'it may leave from {times.format_time(movable_from)} on')
    return dataclasses.replace(blocked, reason='; '.join(reasons), movable_from=movable_from)


def _place_or_explain(simulation: sim.Simulation, probe: model.Move, waits: Sequence[str],
                      stated: Sequence[model.Rejection],
                      cut_off: str | None) -> tuple[BlockedInstance, dict[str, int]]:
    """Place the instance on the first host that only waiting rules refuse, else explain why not.

    A quarantine does not count: an instance that it keeps is not placed.

    :param waits: reasons of the instance alone that end, ``stated`` those of contracts.
    :param cut_off: how planning was cut off, so that no refusal is known to last; None: it was not.
    :returns: the instance, and the amounts that the host with the smallest shortage lacks.
    """
    uuid = probe.instance_uuid
    unknown = None if cut_off is None else BlockedInstance(
        uuid, f'whether it can leave is not known: {cut_off}', is_cut_off=True)
    reasons: Counter[str] = Counter()
    short: list[dict[str, int]] = []
    for there in simulation.hosts:
        if there == probe.from_host:
            continue
        move = dataclasses.replace(probe, to_host=there)
        rejections = [rejection for rejection in constraints.list_rejections(simulation.view, move)
                      if rejection.rule not in _ENDING]
        if not rejections:
            simulation.apply_move(move)
            if waits or stated:
                return BlockedInstance(uuid, waits[0] if waits else '', later=True), {}
            return (BlockedInstance(uuid, f'instance {uuid} waits for others to land', later=True)
                    if unknown is None else dataclasses.replace(unknown, later=True)), {}
        reasons[rejections[0].rule] += 1
        rules = {rejection.rule for rejection in rejections}
        if NO_ROOM in rules and rules <= {NO_ROOM, CEILING}:
            short.append(shortfall.compute_shortage(simulation, uuid, there))
    if unknown is not None:
        return unknown, {}
    return BlockedInstance(uuid, 'no host may take it: ' + ', '.join(
        f'{rule} ({plurals.count_noun(number, "host")})'
        for rule, number in sorted(reasons.items()))), min(
        short, key=lambda s: sum(s.values()), default={})
