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

"""The check of a drain: whether a host can be emptied, and how long it takes."""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import disks
from kronos_nova.rebalancer.backtest import simulated_executor
from kronos_nova.rebalancer.operations import cloud_lookups
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_deadlines
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.operations import shutdown_verdicts
from kronos_nova.rebalancer.operations import what_if
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import drain_precedence
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.planning import time_shares
from kronos_nova.rebalancer.simulation import migration_costs


@dataclasses.dataclass(frozen=True, slots=True)
class DrainAnswer:
    """The result of a drain check.

    ``here``: instances on the host. ``coming``: instances that are not there yet and may land
    there. ``seconds``: the expected time to empty the host, from ``measured`` migrations, with
    ``bandwidth`` as their usual MiB/s; both None without such migrations. ``risky``: the chance
    that an instance does not converge, by instance. ``shutdowns``: whether the drain may shut these
    down, and those whose live migration was late; without a measured migration, each one that
    leaves live. ``late``: instances that are not expected to leave by ``deadline``.
    ``arrival_seconds``: those that each live migration has until executors may take a step, where
    the deadline leaves less than [executor] drain_arrival_seconds. ``wait_obstacles``: why risky
    instances wait for no quieter hour, by instance.
    """

    check: drains.DrainCheck
    here: int
    coming: int = 0
    measured: int = 0
    bandwidth: float | None = None
    seconds: float | None = None
    risky: Mapping[str, float] = dataclasses.field(default_factory=dict)
    shutdowns: tuple[shutdown_verdicts.ShutdownVerdict, ...] = ()
    deadline: float | None = None
    late: tuple[drain_deadlines.LateInstance, ...] = ()
    arrival_seconds: float | None = None
    wait_obstacles: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_held(self) -> bool:
        """True if engines drain nothing at all now; the plan's reason says why."""
        plan = self.check.plan
        return bool(self.here and plan.reason is not None and not plan.moves
                    and not self.check.blocked)

    @property
    def arriving(self) -> str | None:
        """A clause on the instances that are coming; None without any."""
        if not self.coming:
            return None
        return ('1 is on its way to it' if self.coming == 1 else
                f'{self.coming} are on their way to it')

    @property
    def in_the_way(self) -> tuple[str, ...]:
        """Reasons why the host would not become empty now, apart from instances that stay."""
        arriving = None if self.here else self.arriving
        obstacles = (*self.check.obstacles, *([] if arriving is None else [arriving]))
        return obstacles or ((str(self.check.plan.reason),) if self.is_held else ())


def check_drain(session: cloud_state.Session, host: str, *, mode: model.DrainMode | None = None,
                overbooking: bool = False, beside_plans: bool = False,
                deadline: drain_deadlines.Deadline = None) -> DrainAnswer:
    """Check whether the host can be emptied, and estimate how long it takes.

    :param mode: None: the mode in which engines drain.
    :param overbooking: the policies' ceilings do not hold; claims do.
    :param beside_plans: a plan that waits for approval is no obstacle.
    :param deadline: when the host is to be empty; None: the answer names no late instances.
    :raises KronosException: an input cannot be read, or the host does not exist.
    """
    cloud = session.cloud_for_requests
    cluster = find_host_cluster(cloud, host)
    request = session.build_request(cluster, cloud)
    due = drain_deadlines.resolve_deadline(deadline, request.now)
    request = _suppose_deadline(write_rates.add_host_rates(session, request, host), host, due)
    check = drains.plan_drain(request, host, mode, overbooking=overbooking)
    broken = drains.find_failover_obstacle(request, host, check.plan, mode,
                                           overbooking=overbooking)
    if broken is not None:
        check = dataclasses.replace(check, obstacles=(*check.obstacles, broken))
    if not (beside_plans or cloud.yielding.get(cluster.scope)):
        check = _add_waiting_plan(check, cluster, host, cloud.waiting.get(cluster.scope))
    here = sum(i.host == host for i in cluster.instances.values())
    coming = len(drains.list_incoming_instances(cluster, host))
    answer = _add_estimate(session.conf, DrainAnswer(check, here, coming, deadline=due), request,
                           host)
    answer = _add_shutdowns(answer, request, host)
    return dataclasses.replace(answer, wait_obstacles=explain_missing_waits(
        session, request, host))


def explain_missing_waits(session: cloud_state.Session, request: planner.PlanningInput,
                          host: str) -> dict[str, str]:
    """Return why instances that may not converge wait for no quieter hour, by instance.

    Empty, where the option is off.
    """
    reasons = drains.explain_missing_waits(request, host)
    return reasons if not session.count_needed_approvals(request.cluster.scope) else dict.fromkeys(
        reasons, 'plans of its scope wait for approval')


def _suppose_deadline(request: planner.PlanningInput, host: str,
                      due: float | None) -> planner.PlanningInput:
    """Return the request with the deadline that the drain of the host is to get."""
    return request if due is None else dataclasses.replace(
        request, history=dataclasses.replace(request.history, drain_deadlines={
            **request.history.drain_deadlines, host: model.DrainDeadline(due, what_if.REASON)}))


def find_host_cluster(cloud: cloud_state.CloudState, host: str) -> model.Cluster:
    """Return the host's scope as a drain sees it: without moves for balance that give way to it.

    :raises ConfigError: the host does not exist, or no scope plans it.
    """
    cloud_lookups.check_host_exists(cloud, host)
    cluster = next((c for c in cloud.map_clusters().values() if host in c.scope_hosts), None)
    if cluster is None:
        raise exception.ConfigError(
            path='kronos.conf', field='[engine] aggregates',
            problem=f'host {host} belongs to no scope that is planned',
            remedy='Name one of its aggregates, or set include_unassigned_hosts.')
    return drain_precedence.drop_task_moves(cluster, {
        task.instance_uuid for task in cloud.yielding.get(cluster.scope, ())})


def _add_waiting_plan(check: drains.DrainCheck, cluster: model.Cluster, host: str,
                      plan: str | None) -> drains.DrainCheck:
    """Add the plan that waits for approval as an obstacle, unless the host has nothing to drain."""
    if plan is None or drains.is_fully_drained(cluster, host):
        return check
    return dataclasses.replace(check, obstacles=(*check.obstacles, plan))


@dataclasses.dataclass(frozen=True, slots=True)
class PlanEstimate:
    """The expected time of a plan, from ``measured`` migrations at ``bandwidth`` (MiB/s).

    ``ends``: seconds until each migration of the plan ends, by instance. ``expected``: seconds of
    each migration alone, also of instances that leave later.
    """

    measured: int
    bandwidth: float
    risky: Mapping[str, float]
    ends: Mapping[str, float]
    expected: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Seconds until the last migration ends."""
        return max(self.ends.values(), default=0.0)


def estimate_plan(conf: Any, plan: model.Plan, request: planner.PlanningInput,
                  later: Collection[str] = ()) -> PlanEstimate | None:
    """Estimate time and risks of a plan by the planner's cost model.

    :param later: instances that leave after the plan, for the risks.
    :returns: None without a measured migration.
    """
    copies = disks.has_local_storage(engine_conf.build_options(conf))
    model_ = migration_costs.MigrationCosts(request.history.measured, copies)
    if model_.rate is None:
        return None
    rates = migration_costs.dirty_rates(request.scores)
    expected = {}
    for uuid in dict.fromkeys([*(move.instance_uuid for move in plan.moves), *later]):
        instance = request.cluster.instances[uuid]
        expected[uuid] = model_.expect_migration(
            instance.uuid, instance.memory_mb,
            disks.sum_local_gb(instance, request.cluster.sharing), rates.get(instance.uuid, 0.0))
    risky = {uuid: estimate.risk for uuid, estimate in expected.items()
             if estimate is not None and estimate.risk >= migration_costs.RISKY}
    seconds = {uuid: estimate.seconds for uuid, estimate in expected.items()
               if estimate is not None}
    return PlanEstimate(model_.count, model_.rate, risky,
                        _compute_ends(conf, plan, request, seconds), seconds)


def _add_estimate(conf: Any, answer: DrainAnswer, request: planner.PlanningInput,
                  host: str) -> DrainAnswer:
    """Add the expected time and the risks, also of instances that leave later, and late ones."""
    estimate = estimate_plan(conf, answer.check.plan, request, [
        blocked.instance_uuid for blocked in answer.check.blocked if blocked.later])
    ends, expected = ({}, {}) if estimate is None else (estimate.ends, estimate.expected)
    if estimate is not None:
        answer = dataclasses.replace(
            answer, measured=estimate.measured, bandwidth=estimate.bandwidth,
            seconds=estimate.seconds, risky={
                uuid: risk for uuid, risk in estimate.risky.items()
                if answer.check.methods.get(uuid) is not model.MoveMethod.OFFLINE})
    return answer if answer.deadline is None else dataclasses.replace(
        answer, late=drain_deadlines.list_late_instances(
            answer.check, host, answer.deadline, request.now, ends, expected, answer.risky),
        arrival_seconds=_find_shorter_arrival(conf.executor, answer.check, host,
                                              answer.deadline - request.now))


def _find_shorter_arrival(executor: Any, check: drains.DrainCheck, host: str,
                          left: float) -> float | None:
    """Return the seconds of each migration off the host, if the deadline shortens them.

    :param executor: the options of [executor].
    :param left: seconds until the deadline.
    """
    leaving = (sum(move.from_host == host for move in check.plan.moves)
               + sum(blocked.later for blocked in check.blocked))
    parallel = min(executor.max_concurrent_per_source, executor.max_concurrent_migrations,
                   executor.max_concurrent_migrations_total)
    seconds = time_shares.compute_time_share(left, max(0, leaving - parallel), parallel)
    return seconds if leaving and seconds < executor.drain_arrival_seconds else None


def _add_shutdowns(answer: DrainAnswer, request: planner.PlanningInput, host: str) -> DrainAnswer:
    """Add the verdicts on shutdowns; without a measured migration each risk counts.

    An instance that is shut down later has no risk of a live migration.
    """
    verdicts = shutdown_verdicts.judge_shutdowns(
        request, host, answer.check, None if answer.seconds is None else answer.risky)
    next_ = {verdict.instance_uuid for verdict in verdicts if verdict.is_next}
    return dataclasses.replace(answer, shutdowns=verdicts, risky={
        uuid: risk for uuid, risk in answer.risky.items() if uuid not in next_})


def _compute_ends(conf: Any, plan: model.Plan, request: planner.PlanningInput,
                  expected: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds until each migration ends, by instance, as executors carry tasks out.

    :param expected: seconds of each migration, by instance.
    """
    numbers = iter(range(len(plan.moves)))
    plan_tasks = tasks.from_plan(
        plan, request.cluster, (), plan_id='', now=0.0,
        stagger_seconds=conf.executor.stagger_seconds, max_retries=0,
        new_id=lambda: f'{next(numbers):06d}', options=request.options)
    limits = conf.executor
    carrier = simulated_executor.SimulatedExecutor(simulated_executor.ConcurrencyLimits(
        per_scope=limits.max_concurrent_migrations, per_source=limits.max_concurrent_per_source,
        per_destination=limits.max_concurrent_per_destination,
        total=limits.max_concurrent_migrations_total, begin_within=float('inf'),
        expected=lambda task: expected[task.instance_uuid]))
    carrier.add(plan_tasks)
    return {task.instance_uuid: at for task, at in carrier.advance_time(0.0, 1e9)}
