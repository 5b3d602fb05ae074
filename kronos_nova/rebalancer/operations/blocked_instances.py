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

"""Instances that a plan leaves on a host, and why each one stays. Pure."""

from collections import Counter
from collections.abc import Sequence
import dataclasses

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.constraints import contracts
from kronos_nova.constraints import history_holds
from kronos_nova.constraints import offline_drains
from kronos_nova.constraints import quiet_hours
from kronos_nova.constraints import view as views
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import shortfall
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.text import times

#: Rule that refuses a destination without capacity for the claims.
NO_ROOM = 'no-room'
#: Rule that refuses a destination whose load would exceed a ceiling.
CEILING = 'ceiling'
#: Rule that refuses an instance that is migrating already.
IN_FLIGHT = 'in-flight'
#: Rules whose reasons end without any action.
WAITING = frozenset({IN_FLIGHT, 'task-state', 'group-in-flight', 'hint-in-flight',
                     *quiet_hours.QUIETER_HOUR_RULE.codes})
#: Rules that do not count where an instance is placed for later.
_ENDING = WAITING | contracts.PASSING | {history_holds.QUARANTINED}


@dataclasses.dataclass(frozen=True, slots=True)
class BlockedInstance:
    """An instance that stays on the host, with the reason.

    The reason is the instance's own, or the first one of each host, counted. ``later``: the
    instance leaves in a later cycle, when planned and running migrations have ended, or when its
    contract allows it, or in a quieter hour. ``movable_from``: when that is, as far as contracts
    and quieter hours say today (epoch seconds); where its owner has no notice yet, it counts from
    now. ``waits_for_quiet_hour``: a quieter hour is a reason of that. ``is_cut_off``: planning was
    cut off before it was known whether the instance stays; no rule about destinations is named.
    """

    instance_uuid: str
    reason: str
    later: bool = False
    movable_from: float | None = None
    waits_for_quiet_hour: bool = False
    is_cut_off: bool = False


def build_simulation(request: planner.PlanningInput) -> sim.Simulation:
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
    simulation = build_simulation(request)
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
        blocked.append(_add_quiet_wait(_add_contracts(instance, stated, movable_from),
                                       simulation.view, own))
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


def _add_quiet_wait(blocked: BlockedInstance, view: views.CloudView,
                    own: Sequence[model.Rejection]) -> BlockedInstance:
    """Return the instance with the begin of the quieter hour that it waits for."""
    wait = view.find_quiet_wait(blocked.instance_uuid)
    if wait is None or not blocked.later or not any(
            rejection.rule in quiet_hours.QUIETER_HOUR_RULE.codes for rejection in own):
        return blocked
    return dataclasses.replace(blocked, waits_for_quiet_hour=True,
                               movable_from=max(wait.until, blocked.movable_from or 0.0))


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
