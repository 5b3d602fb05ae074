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

"""The planning of one scope: history -> plan -> check with Placement -> store -> cast.

:mod:`planning_pipeline` makes the plan, and :mod:`preconditions` and :mod:`breakers` decide what
holds it; this module reads the scope's history from the database, and writes the plan there.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import threading
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import metric_lag
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.engine import drain_transfers
from kronos_nova.rebalancer.engine import notifications
from kronos_nova.rebalancer.engine import owner_notices
from kronos_nova.rebalancer.engine import placement_check as confirmation
from kronos_nova.rebalancer.engine import preconditions
from kronos_nova.rebalancer.engine import scope_view
from kronos_nova.rebalancer.engine import write_rate_reader
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.operations import beginning_drains
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import breakers
from kronos_nova.rebalancer.planning import drain_precedence
from kronos_nova.rebalancer.planning import failover
from kronos_nova.rebalancer.planning import pack_prediction
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import database_clock
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import rows as store_rows

LOG = logging.getLogger(__name__)
#: Name with which engines sign their tasks.
AUTHOR = 'kronos-engine'

#: Seconds whose failures may open the circuit breaker.
FAILURE_SECONDS = 3600.0
#: A drain reads the cloud between its order and its request to Nova, for so many seconds at most.
ORDER_SECONDS = 180.0

Cast = Callable[[model.Task], None]
PlanView = Callable[[scope_view.ScopeView], planning_pipeline.PassOutcome]


class ScopePlanner:
    """Planner of one scope at a time: from its history to a stored plan.

    :param stopping: set when the engine stops; a plan that is not stored yet is dropped.
    :param kept_alive: the engine is a daemon.
    :param clock: returns this machine's time in epoch seconds.
    """

    def __init__(self, conf: cfg.ConfigOpts, store: store_api.Store,
                 listeners: notifications.PlanAnnouncer, tally: tallies.DaemonTally,
                 stopping: threading.Event, *, cast: Cast | None,
                 confirming: confirmation.PlanConfirmation | None, kept_alive: bool,
                 clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._conf = conf
        self.write_rates = write_rate_reader.WriteRateReader(conf, stopping,
                                                             single_cycle=not kept_alive)
        self._signer = task_authorization.make_signer(conf)
        self._store = store
        self._listeners = listeners
        self._tally = tally
        self._stopping = stopping
        self._cast = cast
        self.confirming = confirming
        self.kept_alive = kept_alive
        self.clock = clock
        self._monotonic = monotonic
        #: The newest failover certificate of each scope.
        self._certificates: dict[str, failover.FailoverCertificate] = {}
        self._notices = owner_notices.OwnerNotices(conf, store, listeners, stopping)

    def plan_scope(self, scope: str, lease: Any, cluster: model.Cluster, named: Sequence[str],
                   live: Sequence[model.InFlightMove], samples: Mapping[str, model.PolicySamples],
                   policy_set: policies.PolicySet) -> planning_pipeline.PassOutcome | None:
        """Plan a scope on the present database, and store its plan.

        :param lease: fresh; None in a dry run.
        :param cluster: the whole cloud.
        :param named: the planned aggregates; see :meth:`model.Cluster.replace_scope`.
        :param live: our moves under way before Nova was read.
        :returns: None when the engine was stopped, and nothing was stored.
        """
        now = self.clock()
        if lease is not None:
            lapsed = self._store.approvals.cancel_lapsed_tasks(lease, self._store.now())
            for task in lapsed:
                LOG.warning('%s: cancelled: no operator approved it in time (plan %s)',
                            model.format_task(task), task.plan_id)
            self._listeners.announce_decisions(lease, self._store, now, lapsed)
        cluster = preconditions.merge_flights(
            cluster, live, tuple(self._store.tasks.list_in_flight_moves())).replace_scope(scope,
                                                                                          named)

        def plan(view: scope_view.ScopeView) -> planning_pipeline.PassOutcome:
            outcome = planning_pipeline.plan_scope(
                view.cluster, samples, view.history,
                planning_settings.build_settings(self._conf, policy_set),
                now=now, clock=self._monotonic, stopping=self._stopping.is_set,
                busy=planning_pipeline.count_busy_moves(view.cluster.flights, view.cluster),
                certificate=self._certificates.get(scope))
            if outcome.certificate is not None and outcome.certificate.hold is None:
                self._certificates[scope] = outcome.certificate
            return outcome

        held = self._read_view(cluster, now, policy_set.lookback_seconds)
        held = held.replace_history(self._add_window_ends(self.write_rates.add_rates(
            held.history, held.cluster, samples, policy_set, now), scope, cluster, now))
        self._end_drain_orders(lease, held)
        drain_transfers.move_drains(self._conf, self._store, lease, cluster, held.history, named)
        overtaking = self._find_overtaking_view(scope, held, now)

        def give_drain_notices(tripped: bool = False) -> None:
            if lease is not None:
                request, all_held = (self._build_planless_input(view, policy_set, now)
                                     for view in (overtaking or held, held))
                self._notices.give_drain_notices(lease, request, all_held, tripped)

        try:
            made = self._make_plan(scope, lease, plan, held, overtaking, policy_set, now)
        except exception.StoreError:
            raise
        except Exception:
            try:
                give_drain_notices()  # They depend on no plan.
            except Exception:
                LOG.exception('Scope %s: the notices of its drains failed as well', scope)
            raise
        if made is None:
            return None
        outcome, view, tripped = made
        give_drain_notices(tripped)
        if lease is not None and not tripped:
            self._notices.give_balance_notices(
                lease, outcome.request, outcome.plan, lambda history: self._plan_confirmed(
                    lease, plan, view.replace_history(history), now)[0].plan)
        return outcome

    def _end_drain_orders(self, lease: Any, view: scope_view.ScopeView) -> None:
        """Remove the deadlines of drains whose hosts are enabled again, and invalid ones."""
        services, orders = view.cluster.services, self._store.drain_orders
        enabled = [host for host in view.history.drain_deadlines
                   if host in services and services[host].enabled]
        now = self._store.now()  # Our clock may be wrong.
        if lease is not None and (enabled or orders.has_invalid_orders(now)):
            age = max(0.0, self.clock() - view.cluster.taken_at)
            orders.end_old_orders(lease, enabled, now, now - age - ORDER_SECONDS
                                  - beginning_drains.count_rival_seconds(self._conf))

    def _make_plan(self, scope: str, lease: Any, plan: PlanView, held: scope_view.ScopeView,
                   overtaking: scope_view.ScopeView | None, policy_set: policies.PolicySet,
                   now: float,
                   ) -> tuple[planning_pipeline.PassOutcome, scope_view.ScopeView, bool] | None:
        """Make the plan of a scope, and store it.

        :returns: the outcome, its view and whether the circuit breaker has tripped; None when the
            engine was stopped, and nothing was stored.
        """
        view = held
        if overtaking is not None and preconditions.list_drained_hosts(plan(overtaking).plan):
            view = overtaking
        confirmed, view = self._plan_confirmed(lease, plan, view, now)
        if self._stopping.is_set():
            return None
        outcome = self._judge_earlier_plans(scope, lease, confirmed, now)
        tripped = outcome is not confirmed
        if view.overtaken:
            if preconditions.list_drained_hosts(outcome.plan):
                self._supersede_tasks(lease, view.overtaken, outcome.plan)
            else:  # Placement refuses the drain: the plan waits on.
                outcome, view = plan(held), held
        self._store_plan(lease, outcome, policy_set, self.clock())
        return outcome, view, tripped

    def _build_planless_input(self, view: scope_view.ScopeView, policy_set: policies.PolicySet,
                              now: float) -> planner.PlanningInput:
        """Build the input of a plan without scores, for what depends on no plan."""
        return planning_pipeline.build_planning_input(
            view.cluster, model.ClusterScores({}, now), view.history,
            planning_settings.build_settings(self._conf, policy_set), now=now,
            busy=planning_pipeline.count_busy_moves(view.cluster.flights, view.cluster))

    def _plan_confirmed(self, lease: Any, plan: PlanView, view: scope_view.ScopeView, now: float,
                        ) -> tuple[planning_pipeline.PassOutcome, scope_view.ScopeView]:
        """Return the plan that ``sustain_for`` and Placement allow, and its view."""
        outcome, view = self._hold_until_sustained(lease, plan, view, now)
        if self.confirming is not None and not self._stopping.is_set():
            outcome = self.confirming.confirm_outcome(
                outcome, now, lambda: plan(view.replace_history(
                    self.add_refusals(view.history, now))))
        return outcome, view

    def _find_overtaking_view(self, scope: str, held: scope_view.ScopeView,
                              now: float) -> scope_view.ScopeView | None:
        """Return the view in which a drain goes before the plan for balance that holds the scope.

        None: no such plan holds it.
        """
        if held.waiting is None:
            return None
        overtaken = preconditions.find_overtaken_tasks(
            held.cluster, engine_conf.build_options(self._conf), [
                row.task for row in self._store.tasks.list_tasks_in_states(
                    (model.TaskState.PENDING,), [scope])])
        if not overtaken:
            return None
        return scope_view.ScopeView(
            drain_precedence.drop_task_moves(held.cluster, {t.instance_uuid for t in overtaken}),
            preconditions.let_drain_overtake(
                held.history, overtaken, cooldown=self._conf.engine.cooldown,
                instance_cooldown=self._conf.engine.instance_cooldown, now=now),
            overtaken=tuple(overtaken))

    def _supersede_tasks(self, lease: Any, overtaken: Sequence[model.Task],
                         plan: model.Plan) -> None:
        """Cancel tasks for balance that wait for approval, because the plan drains hosts."""
        hosts = preconditions.list_drained_hosts(plan)
        reason = (f'an operator has disabled {plurals.choose_form(len(hosts), "host", "hosts")} '
                  f'{", ".join(hosts)}, and the drain goes first')
        ended = self._store.approvals.supersede_tasks(
            lease, [task.task_id for task in overtaken], self._store.now(),
            plan_decisions.OperatorDecision(AUTHOR, reason), cooldown=self._conf.engine.cooldown,
            instance_cooldown=self._conf.engine.instance_cooldown)
        for task in ended:
            LOG.warning('%s: cancelled: %s (plan %s)', model.format_task(task), reason,
                        task.plan_id)

    def _judge_earlier_plans(self, scope: str, lease: Any, outcome: planning_pipeline.PassOutcome,
                             now: float) -> planning_pipeline.PassOutcome:
        """Record the result of earlier plans; remove the moves if the circuit breaker trips."""
        conf = self._conf.engine
        if conf.dry_run:
            return outcome
        if outcome.settled and outcome.plan.combined_before is not None:
            plan_outcome = self._store.outcomes.record_outcome(
                lease, outcome.plan.combined_before, now, load=outcome.plan.load,
                measured=pack_prediction.measure_packing(outcome.cluster, outcome.scores,
                                                         outcome.request.policies))
            if plan_outcome is not None:
                LOG.info('Scope %s: plan %s', scope, breakers.describe_result(plan_outcome))
                self._tally.count_judged_plan(scope, plan_outcome.is_worse)
        failed, ended = self._store.outcomes.count_failures(scope, now - FAILURE_SECONDS)
        why = breakers.find_trip_reason(
            self._store.outcomes.list_outcomes(scope, conf.breaker_worse_plans), failed, ended,
            worse_plans=conf.breaker_worse_plans, failure_rate=conf.breaker_failure_rate)
        if why is None:
            return outcome
        seconds = None if conf.breaker_pause < 0 else float(conf.breaker_pause)
        pause = self._store.outcomes.open_breaker(
            lease, now, seconds=seconds, paused_by=breakers.NAME, reason=why)
        self._tally.count_breaker_trip(scope)
        LOG.error('Scope %s: %s', scope, pause)
        return dataclasses.replace(outcome, plan=breakers.clear_moves(outcome.plan, str(pause)))

    def _hold_until_sustained(self, lease: Any, plan: PlanView, view: scope_view.ScopeView,
                              now: float,
                              ) -> tuple[planning_pipeline.PassOutcome, scope_view.ScopeView]:
        """Return the outcome and its view; hold imbalance moves until ``sustain_for`` is over.

        Until then, drains and repairs are planned without them.
        """
        outcome = plan(view)
        needed = self._conf.engine.sustain_for
        if not needed or self._conf.engine.dry_run or self._stopping.is_set():
            return outcome, view
        if not preconditions.has_imbalance_moves(outcome.plan):
            if preconditions.is_balanced(outcome, view.history):
                self._store.outcomes.clear_imbalance_since(lease)
            return outcome, view
        waiting = preconditions.find_sustain_hold(
            self._store.outcomes.record_imbalance_since(lease, now), needed, now)
        if waiting is None:
            return outcome, view
        view = view.replace_history(dataclasses.replace(view.history, waiting=waiting))
        return plan(view), view

    def _read_view(self, cluster: model.Cluster, now: float, window: float) -> scope_view.ScopeView:
        """Return the scope with its history, and the reason why nothing may move at all.

        :param window: the longest look-back of the queries, in seconds.
        """
        scope = cluster.scope
        history = self._store.history.read_history(
            scope, now, metric_lag.compute_retention(window),
            late_drains=self._conf.engine.drain_offline != model.OfflineDrains.NEVER)
        records = self._store.history.read_contract_records(cluster, now)
        held = (history.paused or engine_conf.find_freeze_reason(self._conf, now)
                or self._find_wrong_clock())
        waiting = None if held else self._find_waiting_plan(scope, now)
        first = self._find_first_cycle_hold(scope, now)
        paused = held or (first if waiting is None else str(waiting))
        return scope_view.ScopeView(cluster, self.add_refusals(
            dataclasses.replace(history, paused=paused, **records._asdict()), now),
            waiting if first is None else None)

    def add_refusals(self, history: model.MoveHistory, now: float) -> model.MoveHistory:
        """Return the history with Placement's refusals."""
        return (history if self.confirming is None
                else self.confirming.refusals.update_history(history, now))

    def add_remembered(self, scope: str, history: model.MoveHistory, cluster: model.Cluster | str,
                       now: float) -> model.MoveHistory:
        """Return the history with what this engine alone remembers, for a snapshot."""
        history = self.write_rates.add_known_rates(history, scope, now)
        return self.add_refusals(history if isinstance(cluster, str) else self._add_window_ends(
            history, scope, cluster, now), now)

    def _add_window_ends(self, history: model.MoveHistory, scope: str, cluster: model.Cluster,
                         now: float) -> model.MoveHistory:
        return write_rates.add_window_ends(self._conf, self._store, history, scope, cluster, now)

    def _find_wrong_clock(self) -> str | None:
        """Return the difference from the database's clock, in words; None where it is small."""
        if self._conf.engine.dry_run:
            return None
        return preconditions.find_wrong_clock(self.clock() - self._store.now(),
                                              database_clock.SKEW_SECONDS)

    def _find_waiting_plan(self, scope: str, now: float) -> plan_approvals.WaitingPlan | None:
        """Return the plan that waits for approval; until the decision no other is made.

        Only a drain that a person has ordered goes before moves for balance.
        """
        if self._conf.engine.dry_run:
            return None
        return next(iter(self._store.approvals.list_waiting_plans(now, scope)), None)

    def _find_first_cycle_hold(self, scope: str, now: float) -> str | None:
        """Return the reason to hold the first cycle after a start or a long silence, or None."""
        if not self.kept_alive or self._conf.engine.dry_run:
            return None
        return preconditions.find_first_cycle_hold(
            self._store.leases.find_planned_at(scope), now, self._conf.engine.evaluation_interval)

    def _store_plan(self, lease: Any, outcome: planning_pipeline.PassOutcome,
                    policy_set: policies.PolicySet,
                    now: float) -> None:
        """Store the plan with its tasks and cooldowns, then wake executors."""
        conf = self._conf
        dry_run = conf.engine.dry_run
        plan_id = uuidutils.generate_uuid()
        needed = engine_conf.count_needed_approvals(conf, outcome.plan.scope)
        waits = needed > 0
        rows = [] if dry_run else tasks.from_plan(
            outcome.plan, outcome.cluster, tuple(p.name for p in policy_set.enabled_policies),
            plan_id=plan_id, now=now, stagger_seconds=conf.executor.stagger_seconds,
            max_retries=conf.executor.max_retries, new_id=uuidutils.generate_uuid,
            cooldown=conf.engine.cooldown, options=engine_conf.build_options(conf),
            history=outcome.request.history,
            approval_seconds=conf.engine.approval_seconds if waits else None)
        rows = self._signer.grant_tasks(rows, outcome.plan.swaps, AUTHOR, now, needed=needed,
                                        begin_within=store_rows.BEGIN_WITHIN)
        draining = self._store.plans.save_plan(
            lease, outcome.plan, rows, plan_id=plan_id, now=now, dry_run=dry_run,
            cooldown=conf.engine.cooldown, instance_cooldown=conf.engine.instance_cooldown)
        self._listeners.announce_stored_plan(
            outcome, plan_id, now, model.TaskState.PENDING if waits else model.TaskState.QUEUED,
            draining)
        if waits and rows:
            LOG.warning('Scope %s: plan %s waits for approval of %s (kronos plan approve)',
                        outcome.plan.scope, plan_id, plurals.count_noun(len(rows), 'move'))
            return
        for task in rows:
            if self._cast is not None:
                self._cast(task)
