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

"""One pass over one scope: score, plan, check. The engine and replay both run it.

It reads nothing from outside: a Cluster and samples come in, a plan that the checker has passed
comes out.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.constraints import recently_booted
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import failover_checker
from kronos_nova.rebalancer import simulation
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import failover_guard
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import quiet_hours


@dataclasses.dataclass(frozen=True, slots=True)
class PassSettings:
    """Inputs of a pass besides the cloud.

    ``staleness``, ``deadline`` and ``instance_cooldown`` in seconds. ``strategies`` in the order in
    which they run.
    """

    policies: policies.PolicySet
    options: model.PlanningOptions
    strategies: Sequence[Any]
    staleness: float = 300.0
    require_age: bool = False
    deadline: float = 30.0
    instance_cooldown: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class PassOutcome:
    """Findings and decisions of a pass over one scope.

    ``timings`` in seconds by step. ``settled``: the scores are trusted and show every move of the
    scope, none of which is in flight. ``request``: the input of the plan. ``certificate``: whether
    each host may fail today; None with ``failover`` off.
    """

    cluster: model.Cluster
    scores: model.ClusterScores
    plan: model.Plan
    timings: Mapping[str, float]
    request: planner.PlanningInput
    settled: bool = False
    certificate: failover.FailoverCertificate | None = None


def plan_scope(cluster: model.Cluster, samples: Mapping[str, model.PolicySamples],
               history: model.MoveHistory, settings: PassSettings, *, now: float,
               clock: Callable[[], float], busy: int = 0, seed: int = 0,
               stopping: Callable[[], bool] = lambda: False,
               certificate: failover.FailoverCertificate | None = None) -> PassOutcome:
    """Score, plan and check one scope.

    :param cluster: with its scope set.
    :param samples: by name of every enabled policy.
    :param now: seconds since the epoch, the clock of the samples.
    :param clock: monotonic seconds, for timings and the planning deadline.
    :param stopping: true ends planning early: the engine is being stopped.
    :param busy: number of moves in flight that use up the budget.
    :param seed: decides all random choices; the same seed gives the same plan.
    :param certificate: the last one of the scope, which saves searches.
    :raises PlanRefused: the checker found a rule broken; nothing may be done.
    """
    started = clock()
    scores = score_policies(cluster, samples, settings, now)
    scored = clock()
    request = build_planning_input(cluster, scores, history, settings, now=now, busy=busy,
                                   seed=seed)
    history = request.history
    end = started + settings.deadline
    plan = planner.plan(request, expired=lambda: clock() > end, stopping=stopping)
    last = clock() + settings.deadline
    plan, certificate = keep_failover(request, plan, certificate,
                                      expired=lambda: clock() > last or stopping())
    planned = clock()
    plan = dataclasses.replace(plan, load=compute_mean_scores(scores, settings.policies))
    check_plan(plan, request)
    timings = {'score': scored - started, 'plan': planned - scored, 'check': clock() - planned}
    hosts = cluster.scope_hosts
    settled = (not cluster.unreadable_hosts
               and planning_holds.imbalance_hold(cluster, scores, history, settings.options) is None
               and not any(f.from_host in hosts or f.to_host in hosts for f in cluster.flights))
    return PassOutcome(cluster=cluster, scores=scores, plan=plan, timings=timings, settled=settled,
                       request=request, certificate=certificate)


def keep_failover(request: planner.PlanningInput, plan: model.Plan,
                  certificate: failover.FailoverCertificate | None = None, *,
                  expired: Callable[[], bool] = lambda: False, whole: bool = False,
                  ) -> tuple[model.Plan, failover.FailoverCertificate | None]:
    """Return the plan under the rule ``breaks-failover``, and the certificate of today.

    The certificate has the one after the plan.

    :param certificate: the last one of the scope.
    :param expired: true ends the searches.
    :param whole: leave out all moves or none.
    :raises PlanRefused: the checker found a place after the plan that a rule does not allow.
    """
    if request.options.failover == model.FailoverMode.OFF:
        return plan, None
    guarded = failover_guard.guard_plan(request, plan, certificate, expired, whole=whole)
    if request.options.failover == model.FailoverMode.ENFORCE and guarded.plan.moves:
        faults = failover_checker.check_places(
            guarded.list_places(), request.cluster, request.options, request.history,
            request.scores, simulation.compute_ceilings(request.policies, request.options),
            guarded.plan.moves, guarded.list_excused())
        if faults:
            raise exception.PlanRefused(scope=plan.scope,
                                        problem=failover_checker.describe_faults(faults))
    return guarded.plan, dataclasses.replace(
        guarded.today, after_plan=guarded.after if guarded.plan.moves else None)


def build_planning_input(cluster: model.Cluster, scores: model.ClusterScores,
                         history: model.MoveHistory,
                         settings: PassSettings, *, now: float, busy: int = 0,
                         seed: int = 0) -> planner.PlanningInput:
    """Build the request of a plan; parameters as of :func:`plan_scope`."""
    waits = quiet_hours.find_quiet_waits(cluster, scores, history, settings.options, now,
                                         budget=settings.policies.move_budget)
    return planner.PlanningInput(
        cluster=cluster, scores=scores, policies=settings.policies,
        strategies=settings.strategies, options=settings.options,
        history=dataclasses.replace(history, fresh=just_booted(
            cluster, now, settings.instance_cooldown), quiet_waits=waits),
        budget=max(0, settings.policies.move_budget - busy), seed=seed, now=now)


def count_busy_moves(flights: Iterable[model.InFlightMove], cluster: model.Cluster) -> int:
    """Count the migrations in flight that use up the budget of the cluster's scope.

    These are tasks of its plans, also when their hosts have gone to another scope since, and tasks
    that move instances off a host that the scope has now.
    """
    return sum(1 for f in flights if f.source == 'task' and not f.slotless and (
        f.scope == cluster.scope or f.from_host in cluster.scope_hosts))


def drop_moves(outcome: PassOutcome, dropped: Collection[str], why: str) -> PassOutcome:
    """Return the outcome without the moves of some instances, and of all that depend on these.

    :raises PlanRefused: as :func:`plan_scope`.
    """
    plan = planner.drop_moves(outcome.request, outcome.plan, dropped, why)
    plan, certificate = keep_failover(outcome.request, plan, outcome.certificate)
    check_plan(plan, outcome.request)
    return dataclasses.replace(outcome, plan=plan, certificate=certificate)


def check_plan(plan: model.Plan, request: planner.PlanningInput) -> None:
    """Check the plan.

    :raises PlanRefused: the plan breaks a rule; no part may be carried out.
    """
    wrong = checker.check(plan, request.cluster, request.options, request.history,
                          request.scores,
                          simulation.compute_ceilings(request.policies, request.options),
                          request.budget)
    if wrong:
        raise exception.PlanRefused(
            scope=plan.scope, problem='; '.join(f'{problem.rule}: {problem.detail}'
                                                for problem in wrong[:5]))


def compute_mean_scores(scores: model.ClusterScores,
                        policy_set: policies.PolicySet) -> float | None:
    """Compute the weighted mean of the hosts' scores, None: some are not trusted."""
    if scores.untrusted:
        return None
    return scoring.sum_weighted(
        {name: math.fsum(policy_scores.hosts.values()) / max(1, len(policy_scores.hosts))
         for name, policy_scores in scores.policies.items()},
        {p.name: p.weight for p in policy_set.enabled_policies})


def just_booted(cluster: model.Cluster, now: float, cooldown: float) -> dict[str, float]:
    """Return the scope's recently booted instances, with the seconds for which they remain so."""
    hosts, since = cluster.scope_hosts, now - cooldown
    # Most instances are older: the first comparison is for them.
    return {i.uuid: seconds for i in cluster.instances.values()
            if i.launched_at is not None and i.launched_at > since and i.host in hosts
            and (seconds := recently_booted.compute_fresh_seconds(
                i.launched_at, now, cooldown)) > 0}


def score_policies(cluster: model.Cluster, samples: Mapping[str, model.PolicySamples],
                   settings: PassSettings,
                   now: float) -> model.ClusterScores:
    """Compute every enabled policy's scores over the cluster's scope."""
    values = {
        p.name: scoring.score_policy(p, samples[p.name], cluster, now=now,
                                     staleness=settings.staleness, require_age=settings.require_age,
                                     max_missing_hosts=settings.options.max_missing_hosts)
        for p in settings.policies.enabled_policies}
    taken_at = min((s.taken_at for s in samples.values()), default=now)
    return model.ClusterScores(values, taken_at)
