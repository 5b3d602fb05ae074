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

import numpy as np

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import relevant_cluster
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import coupled_moves
from kronos_nova.rebalancer.planning import pack_prediction
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import waves
from kronos_nova.rebalancer.simulation import arrays
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies import drain_requests

#: Most held-back instances that a plan names; all are counted.
NAMED = 50
#: evacuate -> repair -> relief, spread or pack; others come after these, by name.
ORDER = ('evacuate', 'repair', 'relief', 'spread', 'pack')


@dataclasses.dataclass(frozen=True, slots=True)
class PlanRequest:
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


def plan(request: PlanRequest, expired: Callable[[], bool] = lambda: False,
         stopping: Callable[[], bool] = lambda: False) -> model.Plan:
    """Plan the moves of one cycle for ``request.cluster.scope``.

    A plan that is cut off, also by the count of steps, is marked ``truncated``.

    :param expired: whether ``planning_deadline``, the safety stop, is over.
    :param stopping: whether the engine is being stopped.
    """
    cluster = request.cluster
    request = prepare_request(request)
    simulation = sim.Simulation(cluster, request.scores, request.policies, request.history,
                                request.options, expired, seed=request.seed, now=request.now,
                                stopping=stopping)
    before = InitialImbalances.of(simulation)
    held = scope_hold(request)
    if held is not None:
        simulation.notes.append(held)
    moves = _propose_moves(request, simulation) if held is None else []
    fresh = cluster_view.ClusterView(
        relevant_cluster.reduce_cluster(cluster, moves, request.history), request.options,
        request.history,
        request.scores, simulation.ceilings, draining=simulation.view.draining)
    held_back = _held_back(request, simulation, len(moves)) if held is None else []
    simulation.rejections.update(no.rule for no in held_back)
    ordered, moves = _order_moves(request, simulation, fresh, moves)
    rejections = simulation.rejections + ordered.dropped
    for move in ordered.moves:
        if move.instance_uuid in ordered.parked:
            simulation.undo(ordered.parked[move.instance_uuid])
            simulation.apply(move)
    if ordered.dropped:
        kept = {m.instance_uuid for m in ordered.moves}
        for move in reversed(moves):
            if move.instance_uuid not in kept:
                simulation.undo(move)
        dropped = ordered.dropped.total()
        simulation.warnings.append(
            f'{plurals.count_noun(dropped, "move")} {plurals.choose(dropped, "waits", "wait")} '
            'for the next cycle: no order of this cycle is safe')
    in_waves, swaps = coupled_moves.pair_harmful_moves(simulation, fresh, ordered.moves)
    reports, after = policy_reports(request, before, simulation.imbalances()), simulation.combined()
    known = simulation.trusted and before.comparable
    packing_before, packing_after = before.compare_packing(simulation, in_waves)
    return model.Plan(
        scope=cluster.scope, moves=_with_scores(simulation, in_waves), swaps=swaps,
        policies=reports, combined_before=before.combined if known else None,
        combined_after=after if known else None,
        combined_measured=before.combined_measured if known else None,
        packing_before=packing_before, packing_after=packing_after,
        rejections=dict(sorted((+Counter(rejections)).items())), held=tuple(held_back[:NAMED]),
        warnings=tuple(dict.fromkeys(simulation.warnings)),
        reason=None if ordered.moves else _format_reason(simulation),
        draining=_still_draining(request, simulation), truncated=simulation.truncated,
        undrained=_list_undrained_hosts(request, held))


def prepare_request(request: PlanRequest) -> PlanRequest:
    """Return the request as a plan begins: with those earlier drains that continue."""
    return dataclasses.replace(request, history=dataclasses.replace(
        request.history, draining=_list_continuing_drains(request)))


def drop_moves(request: PlanRequest, plan: model.Plan, dropped: Collection[str],
               why: str) -> model.Plan:
    """Return the plan without the moves of some instances.

    Moves that require these moves or swap with them are left out, too, and so are pack drains that
    the plan begins and could not end any more. The rest is as legal as the plan, which allows any
    of its moves to fail.

    :param why: a warning, and the reason if no move is left.
    """
    request = dataclasses.replace(request, history=dataclasses.replace(
        request.history, draining=_list_continuing_drains(request)))
    gone = set(dropped)
    while True:
        partial = {m.from_host for m in plan.moves if m.phase is model.Phase.PACK
                   and m.instance_uuid in gone} - request.history.draining
        more = {m.instance_uuid for m in plan.moves if not gone.isdisjoint(m.requires)
                or (m.phase is model.Phase.PACK and m.from_host in partial)}
        more |= {s.first for s in plan.swaps if s.second in gone}
        if more <= gone:
            break
        gone |= more
    kept = tuple(m for m in plan.moves if m.instance_uuid not in gone)
    simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                request.history, request.options, seed=request.seed,
                                now=request.now)
    for host in sorted(plan.draining - partial - request.history.draining):
        if host in simulation.host_index:
            simulation.drain(host)
    before = InitialImbalances.of(simulation)
    for move in kept:
        simulation.apply(move)
    reports, after = policy_reports(request, before, simulation.imbalances()), simulation.combined()
    packing_before, packing_after = before.compare_packing(simulation, kept)
    return dataclasses.replace(
        plan, moves=_with_scores(simulation, kept),
        swaps=tuple(s for s in plan.swaps if s.first not in gone),
        policies=tuple(dataclasses.replace(new, imbalance_before=old.imbalance_before)
                       for new, old in zip(reports, plan.policies, strict=True)),
        combined_after=after if simulation.trusted and before.comparable else None,
        packing_before=packing_before, packing_after=packing_after,
        warnings=(*plan.warnings, why), reason=plan.reason if kept else why,
        draining=plan.draining - partial)


def _with_scores(simulation: sim.Simulation,
                 moves: Sequence[model.Move]) -> tuple[model.Move, ...]:
    """Return the moves with their alternates best first, and the improvement of each.

    That is the combined imbalance of the plan without the move less that of the plan
    with the alternate in its place. Spread keeps only alternates that it may choose.
    """
    if not simulation.trusted:
        return tuple(moves)
    found = []
    for move in describe_effects(simulation, moves):
        scores: dict[str, float] = {}
        if move.alternates:
            gains = _alternate_gains(simulation, move, move.alternates)
            # The last bits may not decide between ties.
            scores = {host: round(gain, 12) for host, gain
                      in zip(move.alternates, gains, strict=True)
                      if gain is not None}
        best = sorted(scores, key=lambda host: -scores[host])  # ties: the emptiest first
        found.append(dataclasses.replace(
            move, alternates=tuple(best),
            alternate_improvements=tuple(scores[host] for host in best)))
    return tuple(found)


def describe_effects(simulation: sim.Simulation,
                     moves: Sequence[model.Move]) -> tuple[model.Move, ...]:
    """Return the moves with the gain of each, and with the scores of its hosts.

    :param moves: in the plan's order; applied to ``simulation``, which is left as it was.
    """
    if not simulation.trusted:
        return tuple(moves)
    whole = simulation.combined()
    gains = []
    for move in moves:
        simulation.undo(move)
        # The last bits are rounding errors.
        gains.append(round(simulation.combined() - whole, 12))
        simulation.apply(move)
    # Each was applied again in the plan's order, and so are the changes of scores.
    return tuple(dataclasses.replace(move, gain=gain, changes=_trace_changes(simulation, move))
                 for move, gain in zip(moves, gains, strict=True))


def _trace_changes(simulation: sim.Simulation, move: model.Move) -> tuple[model.ScoreChange, ...]:
    """Return the scores of source and destination, before and after an applied move, by policy."""
    ends = [(host, *simulation.trace_scores(move, host)) for host in (move.from_host, move.to_host)]
    found = []
    for number, policy in enumerate(simulation.policies):
        values: list[float | None] = []
        for host, before, after in ends:
            known = simulation.view.load.level(policy.name, host) is not None
            values += [float(before[number]), float(after[number])] if known else [None, None]
        found.append(model.ScoreChange(policy.name, *values))
    return tuple(found)


def _alternate_gains(simulation: sim.Simulation, move: model.Move,
                     hosts: Sequence[str]) -> list[float | None]:
    """Compute the gain of each host in place of the move's destination, with all other moves.

    :param move: applied to ``simulation``, which is left as it was.
    :returns: the fall of combined imbalance against the plan without the move; None: spread may not
        choose the host, because a policy would rise and end above its threshold, soft groups would
        suffer, or not moving would be as good.
    """
    n = simulation.index[move.instance_uuid]
    columns = arrays.make_int_array(simulation.host_index[host] for host in hosts)
    simulation.undo(move)
    effect = simulation.effects(arrays.make_int_array([n]), columns)
    gains: list[float | None] = list((simulation.combined() - effect.combined[0]).tolist())
    if move.phase is model.Phase.SPREAD:
        refused = effect.refused[0] | (effect.combined[0]
                                       >= simulation.combined() - base.EPSILON)
        if simulation.grouped[n]:
            refused |= simulation.group_changes(n, columns)[1] > 0
        gains = [None if no else gain for gain, no in zip(gains, refused, strict=True)]
    simulation.apply(move)
    return gains


def _make_alternate_test(simulation: sim.Simulation,
                         moves: Sequence[model.Move]) -> Callable[[model.Move, str], bool]:
    """Return the test that a host must pass to become an alternate of a move.

    :param moves: applied to ``simulation``.
    """
    planned = {m.instance_uuid: m for m in moves}
    known: dict[str, frozenset[str]] = {}

    def is_suitable_host(move: model.Move, host: str) -> bool:
        if move.phase is not model.Phase.SPREAD or not simulation.trusted:
            return True
        uuid = move.instance_uuid
        if uuid not in known:
            gains = _alternate_gains(simulation, planned[uuid], simulation.hosts)
            known[uuid] = frozenset(
                name for name, gain in zip(simulation.hosts, gains, strict=True)
                if gain is not None)
        return host in known[uuid]

    return is_suitable_host


def _order_moves(request: PlanRequest, simulation: sim.Simulation, fresh: cluster_view.ClusterView,
                 moves: list[model.Move]) -> tuple[waves.OrderedMoves, list[model.Move]]:
    """Order the moves, without drains that this plan begins and that no order lets end.

    A host is emptied whole or not at all; a drain that began earlier goes on with its host closed
    instead.

    :returns: the moves in order, and the moves that were to be ordered.
    """
    dropped: Counter[str] = Counter()
    while True:
        ordered = waves.order_moves(
            fresh, moves, max_alternates=request.options.max_alternates,
            improves=_make_parking_test(simulation, moves),
            suits=_make_alternate_test(simulation, moves),
            in_use=lambda host: bool(simulation.on_host(host).size))
        kept = {m.instance_uuid for m in ordered.moves}
        begun = simulation.view.draining - request.history.draining
        partial = {m.from_host for m in moves if m.phase is model.Phase.PACK
                   and m.instance_uuid not in kept and m.from_host in begun}
        if not partial:
            return dataclasses.replace(ordered, dropped=ordered.dropped + dropped), moves
        gone = [m for m in moves if m.phase is model.Phase.PACK and m.from_host in partial]
        moves = [m for m in moves if m not in gone]
        for move in reversed(gone):
            simulation.undo(move)
        for host in sorted(partial):
            simulation.reopen(host)
            fresh.draining.discard(host)
        dropped['partial-drain'] += len(gone)


def _held_back(request: PlanRequest, simulation: sim.Simulation,
               moved: int) -> list[model.Rejection]:
    """List the instances of the scope that no imbalance move could take, with the reason.

    The list has only instances that Placement refuses everywhere, unless the budget has moves left
    and there is a reason to move.
    """
    found = {uuid: no for uuid, no in sorted(simulation.held_back.items())
             if uuid in simulation.index}
    if (simulation.held or moved >= request.budget or simulation.truncated
            or (simulation.mode == 'spread' and not simulation.over_threshold())):
        return [no for uuid, no in found.items() if uuid in request.history.refused_everywhere]
    return list(found.values())


def _make_parking_test(simulation: sim.Simulation,
                       moves: Sequence[model.Move]) -> Callable[[model.Move], bool]:
    """Return the test whether another destination than the planned one is better than none.

    A whole-host pack never accepts one: an instance that is left over keeps its host.
    """
    planned = {m.instance_uuid: m for m in moves}

    def is_better_than_none(move: model.Move) -> bool:
        if move.phase in (model.Phase.EVACUATE, model.Phase.PACK):
            return move.phase is model.Phase.EVACUATE
        simulation.undo(planned[move.instance_uuid])
        if move.phase is model.Phase.AFFINITY:
            better = simulation.repairs(move) < 0
        else:
            before = simulation.combined()
            simulation.apply(move)
            better = simulation.combined() < before - base.EPSILON
            simulation.undo(move)
        simulation.apply(planned[move.instance_uuid])
        return better

    return is_better_than_none


def _list_continuing_drains(request: PlanRequest) -> frozenset[str]:
    """Return the drains that began earlier and continue.

    A host that was disabled and is enabled again is no longer drained, unless hosts are packed.
    """
    wanted = request.cluster.scope_hosts
    if request.policies.mode != 'pack':
        wanted = frozenset(_ordered_drains(request))
    return request.history.draining & (wanted | request.cluster.unreadable_hosts)


def _ordered_drains(request: PlanRequest) -> list[str]:
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


def scope_hold(request: PlanRequest) -> str | None:
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


def _list_undrained_hosts(request: PlanRequest, held: str | None) -> tuple[model.Rejection, ...]:
    cooling = request.history.scope_cooling
    if held is None and cooling > 0:
        return drain_requests.explain_undrained_hosts(request.cluster, request.options,
                                                      'the scope cools down for another '
                                                      f'{cooling:.0f} s',
                                                      request.history.draining)
    return drain_requests.explain_undrained_hosts(request.cluster, request.options, held)


def _propose_moves(request: PlanRequest, simulation: sim.Simulation) -> list[model.Move]:
    hold = planning_holds.imbalance_hold(request.cluster, request.scores, request.history,
                                         request.options)
    if hold is None and request.history.scope_cooling > 0:
        simulation.notes.append(f'the scope cools down for another '
                                f'{request.history.scope_cooling:.0f} s')
    if hold is not None:
        simulation.notes.append(hold)
    simulation.held = hold is not None or request.history.scope_cooling > 0
    moves: list[model.Move] = []
    unfinished, unbegun = '', []
    for strategy in request.strategies:
        if not strategy.enabled(request.options, request.policies):
            continue
        if strategy.imbalance and hold is not None:
            continue
        if request.history.scope_cooling > 0 and not strategy.continues:
            continue
        left = request.budget - len(moves)
        if left <= 0:
            break
        name = type(strategy).__name__.lower()
        if simulation.stop():
            unbegun.append(name)
            continue
        moves += strategy.propose(simulation, left)
        if simulation.truncated:
            unfinished = name
    if simulation.truncated:
        simulation.warnings.append(_left_out(request, simulation, unfinished, unbegun,
                                             request.budget - len(moves)))
    return moves


def _left_out(request: PlanRequest, simulation: sim.Simulation, unfinished: str,
              unbegun: Sequence[str], left: int) -> str:
    """Describe the parts that a plan that was cut off lacks."""
    over = simulation.imbalances() > simulation.thresholds
    return planning_holds.cut_off(
        steps=_find_ending_steps(simulation), stopped=simulation.stopped,
        unfinished=unfinished, unbegun=unbegun, left=left,
        hosts=[h for h in _ordered_drains(request) if simulation.on_host(h).size],
        policies=[p.name for p, above in zip(simulation.policies, over, strict=True)
                  if above and simulation.trusted])


@dataclasses.dataclass(frozen=True, slots=True)
class InitialImbalances:
    """Imbalances before a plan by policy and combined, with moves in flight and as measured.

    Not ``comparable``: no host may give, or none may take.
    """

    imbalances: sim.Floats
    combined: float
    measured: Sequence[float]
    combined_measured: float
    comparable: bool
    levels: sim.Floats
    in_use: sim.Bools

    @classmethod
    def of(cls, simulation: sim.Simulation) -> 'InitialImbalances':
        """Record a simulation in which no move has been made yet."""
        measured, combined_measured = simulation.measure()
        return cls(simulation.imbalances(), simulation.combined(), measured, combined_measured,
                   simulation.comparable(), _compute_fill_levels(simulation), _in_use(simulation))

    def compare_packing(self, simulation: sim.Simulation, moves: Sequence[model.Move],
                        ) -> tuple[model.PackingDensity | None, model.PackingDensity | None]:
        """Return how the scope was packed before a plan of mode pack, and is after it.

        :param moves: of the plan, applied to ``simulation``.
        """
        if simulation.mode != 'pack' or not moves or not (simulation.trusted and self.comparable):
            return None, None
        touched = sorted({simulation.host_index[host] for m in moves
                          for host in (m.from_host, m.to_host)})

        def build_packing(levels: sim.Floats, in_use: sim.Bools) -> model.PackingDensity:
            return model.PackingDensity(int(in_use.sum()),
                                        pack_prediction.sum_overload(levels[touched].tolist()))

        return (build_packing(self.levels, self.in_use),
                build_packing(_compute_fill_levels(simulation), _in_use(simulation)))


def _compute_fill_levels(simulation: sim.Simulation) -> sim.Floats:
    """Return by host the fill in parts of the ceiling, for the policy nearest to its ceiling."""
    ceilings = np.array([[pack_prediction.compute_relief_ceiling(policy)]
                         for policy in simulation.policies])
    levels: sim.Floats = (np.nan_to_num(simulation.fill) / ceilings).max(axis=0)
    return levels


def _in_use(simulation: sim.Simulation) -> sim.Bools:
    """Mark the hosts that hold an instance, or expect one that is in flight."""
    found: sim.Bools = np.bincount(simulation.place, minlength=len(simulation.hosts)) > 0
    expected = [simulation.host_index[f.to_host] for f in simulation.cluster.flights
                if f.to_host in simulation.host_index]
    found[expected] = True
    return found


def policy_reports(request: PlanRequest, before: InitialImbalances,
                   after: sim.Floats) -> tuple[model.PolicyReport, ...]:
    """Report each policy's imbalance before and after the plan, None where it is not known."""
    reports = []
    for p, policy in enumerate(request.policies.enabled):
        reason = request.scores.policies[policy.name].untrusted
        if reason is None and not before.comparable:
            reason = _not_computed(request)
        reports.append(model.PolicyReport(
            name=policy.name, threshold=policy.threshold,
            imbalance_before=None if reason else float(before.imbalances[p]),
            imbalance_after=None if reason else float(after[p]),
            skipped=reason is not None, reason=reason,
            age=request.scores.policies[policy.name].age,
            imbalance_measured=None if reason else before.measured[p]))
    return tuple(reports)


def _not_computed(request: PlanRequest) -> str:
    others = sorted(name for name, known in request.scores.policies.items() if known.untrusted)
    if not others:
        return 'not computed: no host of the scope may give load, or none may take any'
    return (f'not computed: {", ".join(others)} '
            f'{"is" if len(others) == 1 else "are"} not trusted, and a host counts only where '
            'every policy has its score')


def _still_draining(request: PlanRequest, simulation: sim.Simulation) -> frozenset[str]:
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
