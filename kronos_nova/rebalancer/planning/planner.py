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

"""The planner of one scope: holds, strategies in order, waves, and a report.

Pure: the same request gives the same plan.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import contracts
from kronos_nova.constraints import relevant_cluster
from kronos_nova.constraints import spread_sets
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import coupled_moves
from kronos_nova.rebalancer.planning import move_gains
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import policy_reports
from kronos_nova.rebalancer.planning import waves
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies import drain_requests

#: Most held-back instances that a plan names; all are counted.
NAMED = 50
#: evacuate -> repair -> relief, spread or pack; others come after these, by name.
ORDER = ('evacuate', 'repair', 'relief', 'spread', 'pack')


@dataclasses.dataclass(frozen=True, slots=True)
class PlanningInput:
    """All inputs of a plan.

    ``strategies`` run in the given order and share ``budget`` (moves). ``seed`` decides all random
    choices; ``now`` is in seconds since the epoch.
    """

    cluster: model.Cluster
    scores: model.ClusterScores
    policies: policies.PolicySet
    strategies: Sequence[base.Strategy]
    history: model.MoveHistory
    options: model.PlanningOptions
    budget: int
    seed: int = 0
    now: float = 0.0


def plan(request: PlanningInput, expired: Callable[[], bool] = lambda: False,
         stopping: Callable[[], bool] = lambda: False) -> model.Plan:
    """Plan the moves of one cycle for ``request.cluster.scope``.

    A plan that is cut off, also by the count of steps, is marked ``truncated``.

    :param expired: whether ``planning_deadline``, the safety stop, is over.
    :param stopping: whether the engine is being stopped.
    """
    cluster = request.cluster
    request = prepare_planning_input(request)
    simulation = sim.Simulation(cluster, request.scores, request.policies, request.history,
                                request.options, expired, seed=request.seed, now=request.now,
                                stopping=stopping)
    before = policy_reports.InitialImbalances.measure_simulation(simulation)
    hold = scope_hold(request)
    if hold is not None:
        simulation.notes.append(hold)
    moves = _propose_moves(request, simulation) if hold is None else []
    fresh = cluster_view.ClusterView(
        relevant_cluster.reduce_cluster(cluster, moves, request.history), request.options,
        request.history,
        request.scores, simulation.ceilings, draining=simulation.view.draining)
    held_back = _held_back(request, simulation, len(moves)) if hold is None else []
    simulation.rejections.update(rejection.rule for rejection in held_back)
    ordered, moves, gains = _order_moves(request, simulation, fresh, moves)
    rejections = simulation.rejections + ordered.dropped
    for move in ordered.moves:
        if move.instance_uuid in ordered.parked:
            simulation.undo_move(ordered.parked[move.instance_uuid])
            simulation.apply_move(move)
    if ordered.dropped:
        ordered_uuids = {m.instance_uuid for m in ordered.moves}
        for move in reversed(moves):
            if move.instance_uuid not in ordered_uuids:
                simulation.undo_move(move)
        dropped = ordered.dropped.total()
        simulation.warnings.append(
            f'{plurals.count_noun(dropped, "move")} '
            f'{plurals.choose_form(dropped, "waits", "wait")} '
            'for the next cycle: no order of this cycle is safe')
    in_waves, swaps = coupled_moves.pair_harmful_moves(simulation, fresh, ordered.moves)
    reports = policy_reports.report_policies(request.policies, request.scores, before,
                                             simulation.compute_imbalances())
    after = simulation.compute_combined()
    known = simulation.trusted and before.comparable
    packing_before, packing_after = before.compare_packing(simulation, in_waves)
    return model.Plan(
        scope=cluster.scope, swaps=swaps,
        moves=move_gains.rank_alternates(
            simulation, in_waves, None if ordered.dropped or ordered.parked else gains),
        policies=reports, combined_before=before.combined if known else None,
        combined_after=after if known else None,
        combined_measured=before.combined_measured if known else None,
        packing_before=packing_before, packing_after=packing_after,
        rejections=dict(sorted((+Counter(rejections)).items())), held=tuple(held_back[:NAMED]),
        warnings=tuple(dict.fromkeys(simulation.warnings)),
        reason=None if ordered.moves else _format_reason(simulation),
        draining=_still_draining(request, simulation), truncated=simulation.truncated,
        undrained=_list_undrained_hosts(request, hold))


def prepare_planning_input(request: PlanningInput) -> PlanningInput:
    """Return the request as a plan begins: with those earlier drains that continue."""
    return dataclasses.replace(request, history=dataclasses.replace(
        request.history, draining=_list_continuing_drains(request)))


def drop_moves(request: PlanningInput, plan: model.Plan, dropped: Collection[str],
               why: str) -> model.Plan:
    """Return the plan without the moves of some instances.

    Moves that require these moves or swap with them are left out, too, and so are pack drains that
    the plan begins and could not end any more. The rest is as legal as the plan, which allows any
    of its moves to fail.

    :param why: a warning, and the reason if no move is left.
    """
    request = dataclasses.replace(request, history=dataclasses.replace(
        request.history, draining=_list_continuing_drains(request)))
    dropped_uuids = set(dropped)
    while True:
        partial = {m.from_host for m in plan.moves if m.phase is model.Phase.PACK
                   and m.instance_uuid in dropped_uuids} - request.history.draining
        more = {m.instance_uuid for m in plan.moves if not dropped_uuids.isdisjoint(m.requires)
                or (m.phase is model.Phase.PACK and m.from_host in partial)}
        more |= {s.first for s in plan.swaps if s.second in dropped_uuids}
        if more <= dropped_uuids:
            break
        dropped_uuids |= more
    remaining_moves = tuple(m for m in plan.moves if m.instance_uuid not in dropped_uuids)
    simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                request.history, request.options, seed=request.seed,
                                now=request.now)
    for host in sorted(plan.draining - partial - request.history.draining):
        if host in simulation.host_index:
            simulation.begin_drain(host)
    before = policy_reports.InitialImbalances.measure_simulation(simulation)
    for move in remaining_moves:
        simulation.apply_move(move)
    reports = policy_reports.report_policies(request.policies, request.scores, before,
                                             simulation.compute_imbalances())
    after = simulation.compute_combined()
    packing_before, packing_after = before.compare_packing(simulation, remaining_moves)
    return dataclasses.replace(
        plan, moves=move_gains.rank_alternates(simulation, remaining_moves),
        swaps=tuple(s for s in plan.swaps if s.first not in dropped_uuids),
        policies=tuple(dataclasses.replace(new, imbalance_before=old.imbalance_before)
                       for new, old in zip(reports, plan.policies, strict=True)),
        combined_after=after if simulation.trusted and before.comparable else None,
        packing_before=packing_before, packing_after=packing_after,
        warnings=(*plan.warnings, why), reason=plan.reason if remaining_moves else why,
        draining=plan.draining - partial)


def _order_moves(request: PlanningInput, simulation: sim.Simulation,
                 fresh: cluster_view.ClusterView,
                 moves: list[model.Move],
                 ) -> tuple[waves.OrderedMoves, list[model.Move], move_gains.MoveGains]:
    """Order the moves, without drains that this plan begins and that no order lets end.

    A host is emptied whole or not at all; a drain that began earlier goes on with its host closed
    instead.

    :returns: the moves in order, and the moves that were to be ordered, with their gains.
    """
    dropped: Counter[str] = Counter()
    while True:
        gains = move_gains.MoveGains(simulation, moves)
        ordered = waves.order_moves(
            fresh, moves, max_alternates=request.options.max_alternates,
            improves=move_gains.make_parking_test(simulation, moves),
            suits=gains.is_suitable_alternate,
            in_use=lambda host: bool(simulation.list_on_host(host).size))
        ordered_uuids = {m.instance_uuid for m in ordered.moves}
        begun = simulation.view.draining - request.history.draining
        partial = {m.from_host for m in moves if m.phase is model.Phase.PACK
                   and m.instance_uuid not in ordered_uuids and m.from_host in begun}
        if not partial:
            return dataclasses.replace(ordered, dropped=ordered.dropped + dropped), moves, gains
        partial_moves = [m for m in moves if m.phase is model.Phase.PACK and m.from_host in partial]
        moves = [m for m in moves if m not in partial_moves]
        for move in reversed(partial_moves):
            simulation.undo_move(move)
        for host in sorted(partial):
            simulation.undo_drain(host)
            fresh.draining.discard(host)
        dropped['partial-drain'] += len(partial_moves)


def _held_back(request: PlanningInput, simulation: sim.Simulation,
               moved: int) -> list[model.Rejection]:
    """List the instances of the scope that no imbalance move could take, with the reason.

    The list has only instances that Placement refuses everywhere, unless the budget has moves left
    and there is a reason to move.
    """
    rejection_by_uuid = {uuid: rejection for uuid, rejection in sorted(simulation.held_back.items())
                         if uuid in simulation.index}
    if (simulation.held or moved >= request.budget or simulation.truncated
            or (simulation.mode == 'spread' and not simulation.over_threshold())):
        return [rejection for uuid, rejection in rejection_by_uuid.items()
                if uuid in request.history.refused_everywhere]
    return list(rejection_by_uuid.values())


def _list_continuing_drains(request: PlanningInput) -> frozenset[str]:
    """Return the drains that began earlier and continue.

    A host that was disabled and is enabled again is no longer drained, unless hosts are packed.
    A drain whose nova-compute is down goes on when it is up again.
    """
    wanted = request.cluster.scope_hosts
    if request.policies.mode != 'pack':
        wanted = frozenset(_ordered_drains(request))
        if request.options.evacuate_disabled_hosts:
            wanted |= set(drain_requests.list_interrupted_hosts(request.cluster, request.options))
    return request.history.draining & (wanted | request.cluster.unreadable_hosts)


def _ordered_drains(request: PlanningInput) -> list[str]:
    if not request.options.evacuate_disabled_hosts:
        return []
    return drain_requests.drained_hosts(request.cluster, request.options)


def _format_reason(simulation: sim.Simulation) -> str:
    """Format the reasons why nothing moves."""
    notes = list(dict.fromkeys(simulation.notes))
    if simulation.truncated:
        notes.append(planning_holds.describe_cut_off(
            _find_ending_steps(simulation), simulation.stopped))
    if simulation.warnings:
        notes.append('see the warnings')
    return '; '.join(notes) or 'no enabled strategy has anything to do'


def _find_ending_steps(simulation: sim.Simulation) -> int | None:
    """Return the count of steps that cut planning off; None: the time or a stop did."""
    if simulation.stopped or simulation.steps < simulation.options.max_steps:
        return None
    return simulation.steps


def scope_hold(request: PlanningInput) -> str | None:
    """Return why the whole scope is left alone, None: it is not."""
    silent = request.cluster.unreadable_hosts
    if silent:
        return planning_holds.silent_cell(silent)
    if not request.cluster.scope_hosts:
        zone = request.cluster.planned_zone
        return f'scope {request.cluster.scope} has no hosts' + (
            '' if zone is None else f' in availability zone {zone} ([engine] availability_zone)')
    if request.history.paused is not None:
        return request.history.paused
    outage = planning_holds.find_outage_reason(request.cluster, request.options)
    if outage is not None:
        return outage
    if request.history.scope_cooling > 0 and not request.history.draining:
        return f'the scope cools down for another {request.history.scope_cooling:.0f} s'
    if request.budget <= 0:
        return 'the budget is used up by moves that are under way or have just ended'
    return None


def find_remedy(request: PlanningInput) -> str:
    """Return the operator's way to end the hold of :func:`scope_hold`."""
    if request.cluster.unreadable_hosts:
        return 'Repair the database of the cell that does not answer'
    if request.history.paused is not None:
        return 'Delete the pause'
    if planning_holds.find_outage_reason(request.cluster, request.options) is not None:
        return 'Start or enable hosts until fewer are down or disabled'
    if request.history.scope_cooling > 0:
        return 'Wait until the scope has cooled down'
    return 'Wait until these moves have ended'


def _list_undrained_hosts(request: PlanningInput, hold: str | None) -> tuple[model.Rejection, ...]:
    cooling = request.history.scope_cooling
    if hold is None and cooling > 0:
        return drain_requests.explain_undrained_hosts(request.cluster, request.options,
                                                      'the scope cools down for another '
                                                      f'{cooling:.0f} s',
                                                      request.history.draining)
    return drain_requests.explain_undrained_hosts(request.cluster, request.options, hold)


def _propose_moves(request: PlanningInput, simulation: sim.Simulation) -> list[model.Move]:
    hold = planning_holds.imbalance_hold(request.cluster, request.scores, request.history,
                                         request.options)
    if hold is None and request.history.scope_cooling > 0:
        simulation.notes.append(f'the scope cools down for another '
                                f'{request.history.scope_cooling:.0f} s')
    if hold is not None:
        simulation.notes.append(hold)
    simulation.held = hold is not None or request.history.scope_cooling > 0
    simulation.warnings += contracts.describe_unreadable(request.cluster)
    simulation.warnings += spread_sets.describe_unclear(request.cluster, simulation.view.domains)
    moves: list[model.Move] = []
    unfinished, unbegun = '', []
    for strategy in request.strategies:
        if not strategy.enabled(request.options, request.policies):
            continue
        if strategy.imbalance and hold is not None:
            continue
        if request.history.scope_cooling > 0 and not strategy.continues:
            continue
        moves_left = request.budget - len(moves)
        if moves_left <= 0:
            break
        name = type(strategy).__name__.lower()
        if simulation.is_cut_off():
            unbegun.append(name)
            continue
        moves += strategy.propose(simulation, moves_left)
        if simulation.truncated:
            unfinished = name
    if simulation.truncated:
        simulation.warnings.append(_left_out(request, simulation, unfinished, unbegun,
                                             request.budget - len(moves)))
    return moves


def _left_out(request: PlanningInput, simulation: sim.Simulation, unfinished: str,
              unbegun: Sequence[str], moves_left: int) -> str:
    """Describe the parts that a plan that was cut off lacks."""
    over = simulation.compute_imbalances() > simulation.thresholds
    return planning_holds.describe_remainder(
        steps=_find_ending_steps(simulation), stopped=simulation.stopped,
        unfinished=unfinished, unbegun=unbegun, unused_moves=moves_left,
        hosts=[h for h in _ordered_drains(request) if simulation.list_on_host(h).size],
        policies=[p.name for p, above in zip(simulation.policies, over, strict=True)
                  if above and simulation.trusted])


def _still_draining(request: PlanningInput, simulation: sim.Simulation) -> frozenset[str]:
    """Return the hosts being emptied that hold instances now.

    Until the last instance has arrived elsewhere no other may come to them, planned or booted.
    """
    wanted = set(simulation.view.draining)
    if request.history.scope_cooling <= 0:  # else new drains wait
        wanted |= set(_ordered_drains(request))
    if not wanted:
        return frozenset()
    return frozenset(wanted & {i.host for i in request.cluster.instances.values()}
                     | wanted & request.cluster.unreadable_hosts)
