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

"""The periodic task: lease -> collect -> score -> plan -> check -> store -> cast.

No logic of its own: the modules that it calls decide. It ends every scope's cycle with one line and
a report, also when nothing moves.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import threading
import time
from typing import Any, Protocol

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.conf import policy_watch
from kronos_nova.constraints import metric_lag
from kronos_nova.rebalancer.engine import campaign_conductor
from kronos_nova.rebalancer.engine import host_programs
from kronos_nova.rebalancer.engine import host_services
from kronos_nova.rebalancer.engine import host_work
from kronos_nova.rebalancer.engine import lease_keeper
from kronos_nova.rebalancer.engine import notifications
from kronos_nova.rebalancer.engine import placement_check as confirmation
from kronos_nova.rebalancer.engine import reading_publisher
from kronos_nova.rebalancer.engine import scope_planner
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.planning import cycle_report
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.snapshots import recorder
from kronos_nova.rebalancer.snapshots import writer
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.store import process_identity
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.sources import base as sources

LOG = logging.getLogger(__name__)

#: A cycle that has taken so long (seconds) hangs; its leases are not renewed.
HUNG_SECONDS = 900.0
#: Seconds between two purges of old plans.
FORGET_EVERY = 3600.0
#: Seconds after which a purge begins no further batch: the next cycle waits for it.
FORGET_SECONDS = 30.0

#: Reasons of a cycle that a stop of the engine ended.
STOPPED_BEFORE = 'the engine was stopped before it planned the scope'
STOPPED_WHILE = 'the engine was stopped while it planned the scope; the plan is dropped'


class ClusterCollector(Protocol):
    def collect_cluster(self, now: float) -> model.Cluster:
        """Read the whole cloud.

        :raises CollectError: nothing partial is ever returned.
        """


class Engine:
    """Runs cycles with the parts that it is given.

    :param cast: None when executors poll only.
    :param publish: publishes drains and moves to nova-scheduler, or None.
    :param confirming: confirms chosen moves with Placement, or None.
    :param publish_usage: publishes measured usage to nova-scheduler, or None; also in a dry run.
    :param publish_limits: publishes the limits of boots to nova-scheduler, or None.
    :param listeners: get plans, drains, notices and campaigns.
    :param find_service: returns the nova-compute of a host; None: campaigns are not carried out.
    :param programs: runs the programs of campaigns; None: as processes of this machine.
    :param kept_alive: another thread calls :meth:`keep_leases` all the time; else each cycle may be
        the only one, and waits for past write rates.
    :param tally: counts every cycle.
    """

    def __init__(self, conf: cfg.ConfigOpts, *, collector: ClusterCollector,
                 source: sources.MetricsSource, store: store_api.Store,
                 cast: scope_planner.Cast | None = None,
                 publish: notifications.Publish | None = None,
                 publish_usage: notifications.PublishUsage | None = None,
                 publish_limits: notifications.PublishLimits | None = None,
                 listeners: Sequence[notifications.Listener] = (),
                 confirming: confirmation.PlanConfirmation | None = None,
                 find_service: host_services.FindService | None = None,
                 programs: host_work.ProgramRunner | None = None,
                 owner: str | None = None, kept_alive: bool = False,
                 tally: tallies.DaemonTally | None = None,
                 clock: Callable[[], float] = time.time,
                 monotonic: Callable[[], float] = time.monotonic) -> None:
        self._conf = conf
        self._collector = collector
        self._source = source
        self._store = store
        self._log = notifications.DecisionLog()
        self._scheduler = notifications.SchedulerPublisher(store, publish, publish_usage,
                                                           publish_limits, clock)
        self._owner = owner or process_identity.name_process()
        self._readings = reading_publisher.ReadingPublisher(conf, store, self._owner, monotonic)
        self._clock = clock
        self._monotonic = monotonic
        self._watch = policy_watch.PolicyWatch(conf.engine.policies_file)
        self._cycle_began: float | None = None
        self._troubles: dict[str, str] = {}
        self._kept_alive = kept_alive
        self._tally = tally or tallies.DaemonTally()
        self._leases = lease_keeper.LeaseKeeper(conf, store, self._owner,
                                                self._tally.drop_scope)
        self._forget_at = 0.0
        self._stopping = threading.Event()
        announcer = notifications.PlanAnnouncer(listeners)
        self._campaigns = None if find_service is None else campaign_conductor.CampaignConductor(
            conf, store, find_service, programs or host_programs.HostPrograms(monotonic),
            announcer, self._owner, clock, monotonic)
        self._scopes = scope_planner.ScopePlanner(
            conf, store, announcer, self._tally, self._stopping, cast=cast, confirming=confirming,
            kept_alive=kept_alive, clock=clock, monotonic=monotonic)
        self._tally.expect_scopes(planning_settings.list_planned_scopes(conf, self._watch.current),
                                  conf.engine.dry_run)

    def stop(self) -> None:
        """End the running cycle soon; drop a plan that is not stored yet."""
        self._stopping.set()

    def close(self) -> None:
        """Give the leases back and release connections."""
        for scope in tuple(self._leases.leases):
            self._leases.give_back_lease(scope)
        self._source.close()
        self._store.close()

    def scope_names(self) -> list[str]:
        return planning_settings.list_planned_scopes(self._conf, self._watch.current)

    def write_snapshot(self) -> str | None:
        """Record all that a cycle would see now; record data that cannot be read as unknown.

        :returns: the directory, or None when [engine] snapshot_dir is empty or cannot be written;
            the log says which.
        """
        if not self._conf.engine.snapshot_dir:
            LOG.warning('No snapshot is written: set [engine] snapshot_dir')
            return None
        try:
            path = writer.write_snapshot(self._conf.engine.snapshot_dir, self._make_recording(),
                                         prefix=writer.SIGNALLED)
        except exception.KronosException as e:
            LOG.error('No snapshot is written: %s', e)
            return None
        LOG.info('A snapshot was written to %s', path)
        return path

    def _make_recording(self) -> writer.SnapshotContent:
        policy_set = self._watch.refresh()
        recording = recorder.read_recording(
            self._collector, self._source, self._store, policy_set,
            planning_settings.list_planned_scopes(self._conf, policy_set), self._clock)
        if isinstance(recording.histories, str):
            return recording
        return dataclasses.replace(recording, histories={
            scope: self._scopes.add_remembered(scope, history, recording.cluster, recording.now)
            for scope, history in recording.histories.items()})

    def keep_leases(self) -> bool:
        """Renew the leases, also while a cycle runs; for another thread.

        Called at least every third of lease_keeper.LEASE_SECONDS, so that leases are short and
        pass on soon. A cycle that hangs loses them.

        :returns: whether a scope that another engine had is free now.
        """
        began = self._cycle_began
        if began is not None and self._monotonic() - began > HUNG_SECONDS:
            return False
        return self._leases.renew_leases()

    def run_safe_cycle(self) -> Mapping[str, str]:
        """Run a cycle for a daemon; catch every error, so that the next cycle comes.

        :returns: why it failed, by scope; '' for all scopes. A scope that another engine plans has
            not failed.
        """
        self._cycle_began = self._monotonic()
        try:
            self.run_cycle()
        except exception.KronosException as e:
            LOG.error('%s The next cycle tries again.', e)
            self._troubles[''] = str(e)
            self._tally.record_failed_cycle(None, e.code)
        except Exception as e:
            self._troubles[''] = f'{type(e).__name__}, a defect of ours; see the log'
            self._tally.record_failed_cycle(None, tallies.DEFECT)
            LOG.exception('A cycle failed for a reason that is a defect of ours; nothing more '
                          'moves in it, and the next one tries again.')
        finally:
            self._cycle_began = None
        return dict(self._troubles)

    def run_cycle(self) -> list[dict[str, Any]]:
        """Plan every scope that this engine holds a lease on.

        :returns: a report row per scope (see :mod:`cycle_report`).
        """
        self._troubles.clear()
        self._tally.begin_cycle()
        policy_set = self._watch.refresh()
        rows: list[dict[str, Any]] = []
        ours: list[str] = []
        taken_scopes = []
        planned = planning_settings.list_planned_scopes(self._conf, policy_set)
        self._tally.expect_scopes(planned, self._conf.engine.dry_run)
        for scope in self._leases.leases.keys() - planned:
            self._leases.give_back_lease(scope)
        for scope in planned:
            try:
                self._acquire_lease(scope, policy_set)
            except exception.KronosException as e:
                rows.append(self._report_failure(scope, e))
                if isinstance(e, exception.ScopeTaken):
                    taken_scopes.append(scope)
            else:
                ours.append(scope)
        self._leases.foreign_scopes = frozenset(taken_scopes)
        if ours:
            rows += self._plan(ours, policy_set)
        self._purge_old_plans(policy_set.lookback_seconds)
        return rows

    def _purge_old_plans(self, window: float) -> None:
        """Delete plans and audit records that ended long ago, once an hour."""
        now = self._clock()
        if self._stopping.is_set() or now < self._forget_at:
            return
        self._forget_at = now + FORGET_EVERY
        try:
            count = self._store.history.purge_records(
                self._store.now() - self._conf.engine.keep_days * 86400,
                judged=self._conf.engine.breaker_worse_plans,
                remembered=metric_lag.compute_retention(window), seconds=FORGET_SECONDS,
                audited_before=(self._store.now()
                                - self._conf.engine.keep_audit_days * 86400))
        except exception.StoreError as e:
            LOG.warning('Old plans are not deleted this time: %s', e)
        else:
            LOG.debug('Deleted: %s older than %s', plurals.count_noun(count, 'plan'),
                      plurals.count_noun(self._conf.engine.keep_days, 'day'))

    def _acquire_lease(self, scope: str, policy_set: policies.PolicySet) -> Any:
        """Acquire or extend the scope's lease; a dry run takes none and blocks no engine.

        The lease lasts as long as :meth:`keep_leases` is called; without these calls, until after
        the next cycle, so that no engine with other policies takes the scope between two cycles.

        :raises ScopeTaken: another engine plans this scope.
        """
        conf = self._conf.engine
        if conf.dry_run:
            return None
        alone = 0 if self._kept_alive else conf.planning_deadline + conf.evaluation_interval
        return self._leases.acquire_lease(scope, alone, policy_set)

    def _plan(self, ours: list[str], policy_set: policies.PolicySet) -> list[dict[str, Any]]:
        started = self._monotonic()
        try:
            # Before Nova is read: a move that ends meanwhile still counts at both ends, and
            # for the budget, until the cycle is over.
            live = self._store.tasks.list_in_flight_moves()
            cluster = self._collector.collect_cluster(self._clock())
            leased = self._store.leases.list_leased_scopes()
        except (exception.CollectError, exception.StoreError) as e:
            return [self._report_failure(scope, e) for scope in ours]
        planned = {*planning_settings.list_planned_scopes(self._conf, policy_set), *leased}
        named = [n for n in self._conf.engine.aggregates if n in planned]
        self._log.log_shared_hosts(cluster, named)
        samples = {} if self._stopping.is_set() else self.fetch_samples(policy_set)
        collected = self._monotonic() - started
        rows, outcomes = [], []
        for scope in ours:
            if self._stopping.is_set():
                rows.append(self._report_stop(scope, STOPPED_BEFORE))
                continue
            try:
                outcome = self._plan_scope(scope, cluster, named, live, samples, policy_set)
            except exception.KronosException as e:
                rows.append(self._report_failure(scope, e))
                continue
            if outcome is None:
                rows.append(self._report_stop(scope, STOPPED_WHILE))
                continue
            outcomes.append(outcome)
            row = cycle_report.render_scope(outcome, collected)
            rows.append(row)
            self._tally.record_planned_cycle(
                row, outcome.scores, self._clock(), self._conf.engine.dry_run,
                len(drain_requests.list_waiting_hosts(outcome.cluster, outcome.request.options)),
                outcome.request.options.failover)
            self._log.log_scores(scope, outcome.scores)
            self._log.log_decisions(row)
        if not self._conf.engine.dry_run:
            self._scheduler.publish_limits(outcomes)
            self._scheduler.publish_moves(cluster, leased)
        if not self._stopping.is_set():
            self._scheduler.publish_usage(cluster, samples, policy_set)
            self._readings.publish_cycle(cluster, named, outcomes,
                                         self._list_published(ours, leased), policy_set)
        return rows

    def _list_published(self, ours: Sequence[str], leased: Collection[str]) -> list[str]:
        """Return the scopes whose reading this engine publishes.

        A dry run leaves the scopes to the engine that acts on them.
        """
        return [scope for scope in ours
                if not self._conf.engine.dry_run or scope not in leased]

    def fetch_samples(self, policy_set: policies.PolicySet) -> dict[str, model.PolicySamples]:
        """Return the answers of every enabled policy; a failed one contains its error."""
        return {p.name: self._source.fetch(p) for p in policy_set.enabled_policies}

    def _plan_scope(self, scope: str, cluster: model.Cluster, named: Sequence[str],
                    live: Sequence[model.InFlightMove], samples: Mapping[str, model.PolicySamples],
                    policy_set: policies.PolicySet) -> planning_pipeline.PassOutcome | None:
        """Plan one scope on the present database, under a fresh lease.

        Collecting may have taken longer than the last lease.

        :param named: the aggregates of [engine] aggregates that this engine has policies for or
            another one plans: else a host could belong to an aggregate that no engine plans.
        :returns: None when the engine was stopped, and nothing was stored.
        """
        if scope != model.UNASSIGNED and scope not in cluster.aggregates:
            raise exception.ConfigError(
                path='kronos.conf', field='[engine] aggregates',
                problem=f'Nova has no aggregate {scope}', remedy='Correct the name or create it.')
        lease = self._acquire_lease(scope, policy_set)
        outcome = self._scopes.plan_scope(scope, lease, cluster, named, live, samples, policy_set)
        if outcome is not None and lease is not None and self._campaigns is not None:
            self._campaigns.conduct_campaign(lease, outcome)
        return outcome

    def log_result(self, event: str, result: model.TaskResult) -> None:
        """Log an executor's result.

        The executor sets cooldown and quarantine, in the transaction that ends the task.
        """
        notifications.log_result(result, self._max_retries)

    def _max_retries(self, result: model.TaskResult) -> int:
        """Return the retries that the task of a result is allowed."""
        try:
            row = self._store.tasks.find_task(result.task_id)
        except exception.StoreError:
            row = None
        return int(self._conf.executor.max_retries) if row is None else row.task.max_retries

    def _report_failure(self, scope: str, error: exception.KronosException) -> dict[str, Any]:
        if isinstance(error, exception.ScopeTaken):
            LOG.info('%s', error)
            self._tally.drop_scope(scope)
        else:
            LOG.error('Scope %s: %s', scope, error)
            self._tally.record_failed_cycle(scope, error.code)
            self._troubles[scope] = str(error)
            self._keep_failure(scope, error)
        return cycle_report.render_failed_scope(scope, str(error))

    def _report_stop(self, scope: str, reason: str) -> dict[str, Any]:
        LOG.info('Scope %s: %s', scope, reason)
        self._tally.record_stopped_cycle(scope)
        return cycle_report.render_failed_scope(scope, reason)

    def _keep_failure(self, scope: str, error: exception.KronosException) -> None:
        """Store the failure for kronos status; if the database itself fails, only the log has it.
        """
        lease = self._leases.leases.get(scope)
        if lease is None or isinstance(error, exception.StoreError):
            return
        try:
            self._store.plans.record_failed_cycle(lease, str(error), self._clock())
        except exception.StoreError as e:
            LOG.debug('Scope %s: %s', scope, e)
