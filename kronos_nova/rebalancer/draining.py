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

"""Whether a host can be emptied, how, and what is in the way: asked before it is disabled. Pure."""

from collections import Counter
import dataclasses
import enum

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import involved
from kronos_nova.constraints import view as views
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import ordering
from kronos_nova.rebalancer import planner
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer import supposing

#: The rule's name by which a destination lacks capacity for claims.
NO_ROOM = 'no-room'

LATER = 'later'
#: The rule by which members of a server group leave one after the other.
IN_TURN = 'group-in-flight'
#: Rules whose reasons end by themselves.
WAITING = frozenset({'in-flight', 'task-state', 'cooling'})


class Mode(enum.StrEnum):
    """Where instances go: ``auto`` as engines drain, for the least imbalance; ``compact``
    fills one destination after the other; ``scatter`` takes the emptiest each time."""

    AUTO = 'auto'
    COMPACT = 'compact'
    SCATTER = 'scatter'


@dataclasses.dataclass(frozen=True, slots=True)
class Blocked:
    """An instance that stays, and why: its own reason, or of each host one. ``later``: it
    leaves when what is planned or under way has ended, in a cycle after this plan's."""

    instance_uuid: str
    reason: str
    later: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """``plan`` has the moves off the host and what makes room for them; ``missing``: the
    sum of the claims, by resource class, of those for whom some host would do if it had room."""

    plan: model.Plan
    blocked: tuple[Blocked, ...]
    missing: dict[str, int]


def empty(request: planner.Request, host: str, mode: Mode = Mode.AUTO, *,
          overbooking: bool = False) -> Check:
    """The plan that empties the host, as far as the rules allow it.

    :param request: of the host's scope; with the strategy ``evacuate`` among its strategies.
    :param overbooking: ceilings of the policies do not hold; claims do.
    :raises ConfigError: there is no such host.
    :raises PlanRefused: the checker found a rule broken.
    """
    request = _ordered(request, host, overbooking)
    held = planner.scope_hold(planner.begun(request))
    if held is not None:
        return Check(model.Plan(request.cluster.scope, reason=held), (), {})
    plan = planner.plan(request) if mode is Mode.AUTO else _placed(request, host, mode)
    found = checker.check(plan, request.cluster, request.options, request.history,
                          request.scores, ceilings(request), request.budget)
    if found:
        raise exception.PlanRefused(
            scope=plan.scope, problem='; '.join(f'{no.rule}: {no.detail}' for no in found[:5]))
    return Check(plan, *_left(request, host, plan))


def _ordered(request: planner.Request, host: str, overbooking: bool) -> planner.Request:
    """The host is disabled and drained, and no other; nothing else is planned."""
    supposed = supposing.Supposed(request.cluster, request.scores).drained(host)
    options = dataclasses.replace(
        request.options, evacuate_disabled_hosts=True, max_drain_fraction=1.0,
        drain_reason_regex=f'^{supposing.REASON}$', overbooking=overbooking)
    here = sum(i.host == host for i in request.cluster.instances.values())
    return dataclasses.replace(
        request, cluster=supposed.cluster, options=options,
        strategies=[s for s in request.strategies if type(s).__name__ == 'Evacuate'],
        budget=max(1, 2 * here), history=dataclasses.replace(
            request.history, scope_cooling=0.0, waiting=None))


def ceilings(request: planner.Request) -> dict[str, float]:
    return sim.ceilings(request.policies, request.options)


def _simulation(request: planner.Request) -> sim.Simulation:
    return sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                          request.options, seed=request.seed, now=request.now)


def _placed(request: planner.Request, host: str, mode: Mode) -> model.Plan:
    """The largest first, each where the mode has it of all hosts that the rules allow."""
    simulation = _simulation(request)
    before, combined = simulation.imbalances(), simulation.combined()
    sign = -1 if mode is Mode.COMPACT else 1
    moves: list[model.Move] = []
    for n in sorted(map(int, simulation.on_host(host)), key=lambda n: (-simulation.cost[n], n)):
        by_fill = sorted(simulation.hosts,
                         key=lambda h: (sign * simulation.view.fullness(h), h))
        for there in by_fill:
            move = model.Move(simulation.uuids[n], host, there, model.Phase.EVACUATE)
            if constraints.check(simulation.view, move) is None:
                simulation.apply(move)
                moves.append(move)
                break
    view = views.ClusterView(
        involved.involved(request.cluster, moves, request.history), request.options,
        request.history, request.scores, simulation.ceilings,
        draining=request.history.draining | {host})
    ordered = ordering.order(view, moves)
    kept = {m.instance_uuid for m in ordered.moves}
    for move in reversed(moves):
        if move.instance_uuid not in kept:
            simulation.undo(move)
    return model.Plan(
        scope=request.cluster.scope, moves=ordered.moves,
        policies=planner.policy_reports(request, before, simulation.imbalances()),
        combined_before=combined if simulation.trusted else None,
        combined_after=simulation.combined() if simulation.trusted else None,
        draining=request.history.draining | {host})


def _left(request: planner.Request, host: str,
          plan: model.Plan) -> tuple[tuple[Blocked, ...], dict[str, int]]:
    """Who stays on the host when all that is planned has moved, and why."""
    simulation = _simulation(request)
    for move in sorted(plan.moves, key=lambda m: m.wave):
        simulation.apply(move)
    blocked, missing = [], Counter[str]()
    for n in sorted(map(int, simulation.on_host(host))):
        uuid = simulation.uuids[n]
        own = constraints.check_alone(
            simulation.view, model.Move(uuid, host, '', model.Phase.EVACUATE))
        if own is not None:
            # One that is on its way will have left, or says later why it has not.
            blocked.append(Blocked(uuid, f'{own.rule}: {own.detail}',
                                   later=own.rule in WAITING))
            continue
        reasons = _reasons(simulation, uuid, host)
        if LATER in reasons or IN_TURN in reasons:
            blocked.append(Blocked(uuid, 'it waits for other moves to land; then it leaves',
                                   later=True))
            continue
        if NO_ROOM in reasons:
            missing.update(request.cluster.instances[uuid].claims)
        blocked.append(Blocked(uuid, 'no host may take it: ' + ', '.join(
            f'{rule} ({number} hosts)' for rule, number in sorted(reasons.items()))))
    return tuple(blocked), {name: amount for name, amount in sorted(missing.items()) if amount}


def _reasons(simulation: sim.Simulation, uuid: str, host: str) -> Counter[str]:
    """The first rule that refuses, by how many hosts of the scope."""
    found: Counter[str] = Counter()
    for there in simulation.hosts:
        if there == host:
            continue
        no = constraints.check(simulation.view,
                               model.Move(uuid, host, there, model.Phase.EVACUATE))
        found[no.rule if no is not None else LATER] += 1
    return found
