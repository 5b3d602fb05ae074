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

"""Plans of the next cycle: as the cloud is, and beside them under other conditions."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import time
from typing import Any

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.conf import policies as policy_files
from kronos_nova.constraints import metrics
from kronos_nova.rebalancer.operations import cloud_lookups
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import failover_checks
from kronos_nova.rebalancer.operations import scope_liveness
from kronos_nova.rebalancer.operations import what_if
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_holds
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.text import plan_lines


@dataclasses.dataclass(frozen=True, slots=True)
class ScopePlan:
    """A scope, real or hypothetical, and the plan of its next cycle.

    ``methods``: the method of each move, by instance.
    """

    cluster: model.Cluster
    plan: model.Plan
    methods: Mapping[str, model.MoveMethod] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeComparison:
    """A scope with its plan of today, and with the hypothetical one for what-if.

    ``holds``: why the scope makes no moves now, or no imbalance moves. ``today``: None for a scope
    that the cloud does not have. ``waits``: a plan of the scope waits for approval, and counts as
    under way. ``causes``: why no move is made, independent of the next plan. ``failure``: the
    places of the instances of hosts that fail in the hypothetical state.
    """

    name: str
    today: ScopePlan | None
    holds: tuple[str, ...] = ()
    waits: bool = False
    causes: tuple[str, ...] = ()
    supposed: ScopePlan | None = None
    failure: failover.FailoverCertificate | None = None

    def format_conclusion(self) -> str:
        """Return whether the next cycle moves anything, and why not."""
        plan = None if self.today is None else self.today.plan
        return plan_lines.format_conclusion(
            self.causes, self.holds, None if plan is None else len(plan.moves),
            None if plan is None else plan.reason)


@dataclasses.dataclass(frozen=True, slots=True)
class Supposition:
    """Conditions that are not those of the cloud.

    ``added``: pairs of a number of empty hosts and the host that they are like. ``removed``: hosts
    that are taken away even if the options allow no drain. ``drained``: hosts that are disabled
    for ``reason``. ``policies_file``: other policies; None: those of the configuration. ``load``:
    a factor for the load of every instance and host. ``failed``: hosts that fail together.
    """

    added: Sequence[tuple[int, str]] = ()
    removed: Sequence[str] = ()
    drained: Sequence[str] = ()
    reason: str = 'maintenance'
    policies_file: str | None = None
    load: float | None = None
    failed: Sequence[str] = ()


def plan_scopes_today(session: cloud_state.Session,
                      scope: str | None = None) -> list[ScopeComparison]:
    """Return the next cycle's plan for each scope, or for the given one, and what holds it.

    :raises KronosException: an input cannot be read, or the scope is not planned.
    """
    cloud = session.cloud
    causes = {} if session.snapshot is not None else scope_liveness.list_causes(
        session.conf, session.store, cloud.scopes)
    there = cloud.map_clusters()
    lost = [ScopeComparison(name, None,
                            (f'Nova has no aggregate {name}: correct [engine] aggregates, or '
                                         'create it',))
            for name in cloud.scopes if name not in there and scope in (None, name)]
    if scope in [comparison.name for comparison in lost]:
        return lost
    clusters = cloud_lookups.list_clusters(cloud, scope)
    cloud = write_rates.add_cloud_rates(session, cloud, clusters)
    return lost + [dataclasses.replace(_plan_scope_today(session, cloud, cluster),
                                       causes=causes.get(cluster.scope, ()))
                   for cluster in clusters]


def compare_plans(session: cloud_state.Session, supposed: Supposition,
                  scope: str | None = None) -> list[ScopeComparison]:
    """Return each scope, or the given one, as it is beside its hypothetical state.

    Holds that end with time or by a command hold neither plan.

    :raises KronosException: an input cannot be read, or the scope or a host does not exist.
    """
    cloud = session.cloud.drop_undecided_plans()
    clusters = cloud_lookups.list_clusters(cloud, scope)
    other, other_set = cloud, session.policies
    if supposed.policies_file is not None:
        other_set = policy_files.load_policies(supposed.policies_file)
        other = _read_other_samples(session, other_set, cloud)
    named = {*supposed.drained, *supposed.removed, *supposed.failed,
             *(like for _, like in supposed.added)}
    for host in sorted(named):
        cloud_lookups.check_host_exists(cloud, host)
    comparisons = []
    for cluster in clusters:
        request = session.build_request(cluster, cloud)
        other_request = _build_supposed_request(session.conf, supposed, other_set, other,
                                                cluster.scope)
        comparisons.append(ScopeComparison(
            cluster.scope, _plan_side(session.conf, _at_once(request)), _list_holds(request),
            supposed=None if other_request is None else _plan_supposed_side(
                session.conf, other_request, supposed),
            failure=None if other_request is None else _certify_failed_hosts(
                other_request, supposed.failed)))
    return comparisons


def _certify_failed_hosts(request: planner.PlanningInput,
                          failed: Sequence[str]) -> failover.FailoverCertificate | None:
    """Certify the failed hosts of the scope together; None without any."""
    hosts = tuple(sorted(request.cluster.scope_hosts.intersection(failed)))
    return failover_checks.certify(request, [hosts], repairs=0) if hosts else None


def _read_other_samples(session: cloud_state.Session, policy_set: policy.PolicySet,
                        cloud: cloud_state.CloudState) -> cloud_state.CloudState:
    """Return the same cloud with the samples of other policies."""
    if session.snapshot is not None:
        return session.read_cloud(policy_set)
    return dataclasses.replace(cloud, samples={
        p.name: session.metrics_source.fetch(p) for p in policy_set.enabled_policies})


def _plan_scope_today(session: cloud_state.Session, cloud: cloud_state.CloudState,
                      cluster: model.Cluster) -> ScopeComparison:
    """Plan the scope as the next cycle does, with all holds of an engine.

    Only the hold after an engine's own start is left out.
    """
    request = session.build_request(cluster, cloud)
    side = _plan_side(session.conf, request)
    waits = cloud_state.find_new_wait(cloud, side.plan)
    if waits is not None:
        request = dataclasses.replace(request, history=dataclasses.replace(
            request.history, waiting=waits))
        side = _plan_side(session.conf, request)
    return ScopeComparison(cluster.scope, side, _list_holds(request),
                           cluster.scope in cloud.waiting)


def _list_holds(request: planner.PlanningInput) -> tuple[str, ...]:
    holds = (planner.scope_hold(planner.prepare_planning_input(request)),
             planning_holds.imbalance_hold(
                 request.cluster, request.scores, request.history, request.options))
    return tuple(text for text in holds if text is not None)


def _at_once(request: planner.PlanningInput) -> planner.PlanningInput:
    """Return the request without the holds that end with time or by a command.

    A what-if does not ask about this moment.
    """
    return dataclasses.replace(request, history=dataclasses.replace(
        request.history, cooling={}, fresh={}, scope_cooling=0.0, paused=None, waiting=None,
        quiet_waits={}))


def _build_supposed_request(conf: Any, supposed: Supposition, policy_set: policy.PolicySet,
                            cloud: cloud_state.CloudState,
                            scope: str) -> planner.PlanningInput | None:
    """Return the hypothetical request; None if the other policies do not plan the scope."""
    cluster = cloud.map_clusters().get(scope)
    if cluster is None:
        return None
    request = _at_once(cloud_state.build_planning_input(conf, policy_set, cloud, cluster))
    supposed_cluster = what_if.SupposedCluster(cluster, request.scores)
    if supposed.load is not None:
        supposed_cluster = supposed_cluster.multiply_load(supposed.load)
    for count, like in supposed.added:
        supposed_cluster = supposed_cluster.add_hosts(like, count)
    options = request.options
    for host in supposed.drained:
        supposed_cluster = supposed_cluster.disable_host(host, supposed.reason)
    for host in supposed.removed:
        supposed_cluster = supposed_cluster.disable_host(host, what_if.REASON)
    if supposed.removed:
        # A host is taken away even if drains are switched off; other hosts are drained as
        # configured.
        options = dataclasses.replace(
            options, evacuate_disabled_hosts=True, max_drain_fraction=1.0,
            drain_reason_regex=what_if.build_reason_regex(options))
    return dataclasses.replace(
        request, cluster=supposed_cluster.cluster, scores=supposed_cluster.scores, options=options)


def _plan_supposed_side(conf: Any, request: planner.PlanningInput,
                        supposed: Supposition) -> ScopePlan:
    """Return the hypothetical side, with as many more moves as its drains need."""
    cluster = request.cluster
    drained: list[str] = []
    if cluster.scope_hosts.intersection((*supposed.drained, *supposed.removed)):
        drained = drain_requests.drained_hosts(cluster, request.options)
    moving = sum(i.host in drained for i in cluster.instances.values())
    if not moving:
        return _plan_side(conf, request)
    # Allow as many more moves as the drains take, and no more imbalance moves.
    whole = _plan_side(conf, dataclasses.replace(
        request, budget=request.budget + 2 * moving))
    others = sum(m.phase not in metrics.IMBALANCE for m in whole.plan.moves)
    if len(whole.plan.moves) - others <= request.budget:
        return whole
    return _plan_side(conf, dataclasses.replace(
        request, budget=request.budget + others))


def _plan_side(conf: Any, request: planner.PlanningInput) -> ScopePlan:
    """Plan and check the request as a cycle does.

    :raises PlanRefused: the checker found a broken rule.
    """
    end = time.monotonic() + conf.engine.planning_deadline
    plan, _ = planning_pipeline.keep_failover(
        request, planner.plan(request, expired=lambda: time.monotonic() > end),
        expired=lambda: time.monotonic() > end + conf.engine.planning_deadline)
    planning_pipeline.check_plan(plan, request)
    return ScopePlan(request.cluster, plan, tasks.choose_methods(
        plan, request.cluster, request.options, request.history))
