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

"""The section of a pass, from its findings and decisions: every host with its scores."""

from collections import Counter
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import math

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.report import coverage_gaps
from kronos_nova.rebalancer.report import values


def build_section(outcome: planning_pipeline.PassOutcome, policy_set: policies.PolicySet, *,
                  stagger: float,
                  planned: Mapping[str, str], warnings: Sequence[str] = (),
                  past: Sequence[values.PlanPoint] = (), no_points: str = '',
                  waiting: Mapping[str, str] | None = None) -> values.ScopeSection:
    """Build the section of one scope.

    :param stagger: seconds between the starts of two moves of a wave.
    :param planned: the scope of each host that is planned anywhere.
    :param warnings: warnings about the data, before those of the plan.
    :param past: the scope's stored plans, in any order.
    :param waiting: the plan of each instance whose move waits for approval.
    """
    cluster, plan, waiting = outcome.cluster, outcome.plan, waiting or {}
    lines = _build_host_lines(outcome)
    here = values.PlanPoint(outcome.request.now, plan.measured_imbalance, plan.combined_after,
                            moves=len(plan.moves), shown=True, policies=list_imbalances(plan))
    return values.ScopeSection(
        scope=cluster.scope, at=outcome.request.now, seen=outcome.request.now,
        hosts=len(cluster.scope_hosts), instances=sum(line.instances for line in lines),
        policies=policy_lines(plan, {p.name: p.weight for p in policy_set.enabled_policies}),
        before=plan.measured_imbalance, after=plan.combined_after, lines=lines,
        moves=build_move_lines(plan, {u: cluster.instances[u].name for u in
                                      (m.instance_uuid for m in plan.moves)}, stagger,
                               tasks.choose_methods(plan, cluster, outcome.request.options,
                                                    outcome.request.history)),
        points=(*past, here), no_points=no_points, reason=plan.reason,
        refusals=list_refusals(plan), held=tuple(rejection.detail for rejection in plan.held),
        gaps=coverage_gaps.of_outcome(outcome, policy_set, planned, warnings, waiting),
        waiting=len(waiting), no_moves=_describe_no_moves(outcome, waiting))


def _describe_no_moves(outcome: planning_pipeline.PassOutcome, waiting: Mapping[str, str]) -> str:
    """Say why no move is new while others wait or are under way."""
    if waiting:
        number = plurals.count_noun(len(waiting), 'move')
        return (f'None is new: {number} of plan {", ".join(sorted(set(waiting.values())))} '
                f'{plurals.choose_form(len(waiting), "waits", "wait")} for approval, see below.')
    under_way = len(outcome.cluster.flights)
    return 'None.' if not under_way else (
        f'None is new: {plurals.count_noun(under_way, "migration")} under way in the cloud.')


def build_move_lines(plan: model.Plan, names: Mapping[str, str], stagger: float,
                     methods: Mapping[str, model.MoveMethod]) -> tuple[values.MoveLine, ...]:
    """List the moves as planned, each with its staggered begin in its wave.

    :param methods: by instance, as far as they are known.
    """
    numbers = {move.instance_uuid: n for n, move in enumerate(plan.moves, 1)}
    in_wave: Counter[int] = Counter()
    move_lines = []
    for move in plan.moves:
        move_lines.append(values.MoveLine(
            number=numbers[move.instance_uuid], uuid=move.instance_uuid,
            name=names.get(move.instance_uuid, ''), from_host=move.from_host,
            to_host=move.to_host, phase=str(move.phase), wave=move.wave,
            improvement=move.improvement, begins=in_wave[move.wave] * stagger,
            requires=tuple(sorted(numbers[u] for u in move.requires if u in numbers)),
            alternates=move.alternates, gain=move.gain, method=methods.get(move.instance_uuid),
            changes=tuple(
                values.HostChange(c.policy, values.HostLevel(c.from_before, c.from_after),
                                  values.HostLevel(c.to_before, c.to_after))
                                  for c in move.changes)))
        in_wave[move.wave] += 1
    return tuple(move_lines)


def policy_lines(plan: model.Plan,
                 weights: Mapping[str, float]) -> tuple[values.PolicyLine, ...]:
    return tuple(values.PolicyLine(
        p.name, p.threshold, p.measured_imbalance, p.imbalance_after,
        left_out=(p.reason or 'left out') if p.skipped else None,
        weight=weights.get(p.name)) for p in plan.policies)


def list_imbalances(plan: model.Plan) -> tuple[tuple[str, float | None], ...]:
    return tuple((p.name, p.measured_imbalance) for p in plan.policies)


def list_refusals(plan: model.Plan) -> tuple[values.RefusalCount, ...]:
    """List the refusals by rule, most first."""
    return tuple(values.RefusalCount(rule, count) for rule, count in sorted(
        plan.rejections.items(), key=lambda item: (-item[1], item[0])))


def _build_host_lines(outcome: planning_pipeline.PassOutcome) -> tuple[values.HostLine, ...]:
    """List the hosts with their scores, as measured and as expected after the plan.

    The latter count the plan and all moves under way as done.
    """
    request = planner.prepare_planning_input(outcome.request)
    simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                request.history, request.options, seed=request.seed,
                                now=request.now)
    instances = Counter(simulation.place.tolist())
    known = {(p, h): simulation.view.load.compute_level(policy.name, host) is not None
             for p, policy in enumerate(simulation.policies)
             for h, host in enumerate(simulation.hosts)}
    for move in outcome.plan.moves:
        simulation.apply_move(move)
    after = simulation.score
    gives = Counter(m.from_host for m in outcome.plan.moves)
    takes = Counter(m.to_host for m in outcome.plan.moves)
    chosen = request.policies.enabled_policies
    host_lines = []
    for h, host in enumerate(simulation.hosts):
        levels = []
        for p, policy in enumerate(chosen):
            levels.append(values.HostLevel(
                request.scores.policies[policy.name].hosts.get(host),
                float(after[p, h]) if known[p, h] else None))
        weights = [p.weight for p in chosen]
        host_lines.append(values.HostLine(
            host, tuple(levels), values.HostLevel(
                sum_weighted_scores(weights, [level.before for level in levels]),
                sum_weighted_scores(weights, [level.after for level in levels])),
            zone=find_zone(request.cluster, host), instances=instances[h], gives=gives[host],
            takes=takes[host], notes=list_host_notes(
                outcome.request, host, outcome.plan.draining)))
    return tuple(host_lines)


def sum_weighted_scores(weights: Sequence[float], scores: Sequence[float | None]) -> float | None:
    """Return the load of a host; None: a score is not known."""
    known = [score for score in scores if score is not None]
    if len(known) < len(scores):
        return None
    return math.fsum(w * score for w, score in zip(weights, known, strict=True))


def find_zone(cluster: model.Cluster, host: str) -> str:
    """Return the availability zone of a host; '' without a nova-compute."""
    service = cluster.services.get(host)
    return service.zone if service is not None else ''


def list_host_notes(request: planner.PlanningInput, host: str,
                    emptied: Collection[str]) -> tuple[str, ...]:
    """List the special states of a host.

    :param emptied: hosts that a plan empties, besides those of the history.
    """
    frozen = any(known.untrusted is None and host in known.missing
                 for known in request.scores.policies.values())
    service = request.cluster.services.get(host)
    history = request.history
    notes = [
        (service is None, 'no nova-compute service'),
        (service is not None and not service.up, 'down'),
        (service is not None and not service.enabled, 'disabled'),
        (host in emptied or host in history.draining, 'being emptied'),
        (host in history.quarantined_hosts, 'in quarantine'),
        (frozen, 'frozen')]
    return tuple(text for true, text in notes if true)
