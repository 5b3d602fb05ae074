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


"""Loop of an executor: it claims tasks, starts them, and looks at each when its time has come.

One loop and no thread per migration. The table is the truth; a message only wakes the loop.
:mod:`submission` takes a claimed task to Nova, :mod:`migration_watch` a submitted one to its end.
A slow step loses no claim: :mod:`claim_keeper` renews it from another thread.
"""

from collections.abc import Callable
import functools
import threading
import time

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import claim_keeper
from kronos_nova.rebalancer.executors import executor_clock
from kronos_nova.rebalancer.executors import hook_catalogue
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.executors import in_flight_migrations
from kronos_nova.rebalancer.executors import migration_watch
from kronos_nova.rebalancer.executors import outcomes
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import service_breakers
from kronos_nova.rebalancer.executors import stray_migrations
from kronos_nova.rebalancer.executors import submission
from kronos_nova.rebalancer.executors import worker_collaborators
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database_clock
from kronos_nova.rebalancer.store import executor_heartbeats
from kronos_nova.rebalancer.store import process_identity
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import worker_todo

LOG = logging.getLogger(__name__)

#: A pass that has taken so long (seconds) hangs: it waits for Nova about each of
#: its tasks, never longer than [nova] collect_timeout.
HUNG_SECONDS = claim_keeper.HUNG_SECONDS


class Worker:
    """Worker that serves the task table until :meth:`stop`.

    :param wake: an event that makes the worker read the table now.
    :param clock: returns epoch seconds; None: the database's clock, see :mod:`database_clock`.
    :param tally: counts the outcomes of tasks.
    :param present: records in the database that this executor runs, and with False that it ends.
    :param hooks: the hooks to call before and after migrations, with their settings; None: no hook
        is installed.
    :param announce: publishes the begin of an outage of Nova, Placement or Keystone.
    """

    def __init__(self, store: api.Store, driver: base.Executor, settings: retry.RetrySettings,
                 notify: outcomes.Notify | None = None, *,
                 clock: Callable[[], float] | None = None,
                 monotonic: Callable[[], float] = time.monotonic,
                 wake: threading.Event | None = None, name: str | None = None,
                 tally: tallies.DaemonTally | None = None,
                 present: Callable[[bool], None] | None = None,
                 hooks: tuple[hook_catalogue.HookCatalogue, hook_runner.HookSettings] | None = None,
                 announce: service_breakers.Announce | None = None) -> None:
        self.name = name or process_identity.name_process()
        self.wake = wake or threading.Event()
        self._store = store
        self._settings = settings
        self._clock = clock = executor_clock.ExecutorClock(
            clock or database_clock.DatabaseClock(store.now))
        tally = tally or tallies.DaemonTally()
        tally.begin_executor_counts({kind.wire_type
                                     for kind in exception.MigrationError.__subclasses__()})
        self._outcomes = outcomes.OutcomeWriter(
            store, settings, notify, self.name, clock, tally,
            functools.partial(migration_watch.read_phase_seconds, driver))
        catalogue, chosen = hooks or (hook_catalogue.build_catalogue({}),
                                      hook_runner.HookSettings())
        self._hooks = hook_runner.HookRunner(
            store, catalogue, chosen, self.name, scopes=settings.scopes,
            claim_seconds=settings.claim_seconds, clock=clock)
        #: Renews the claims; :meth:`run` starts its thread.
        self.keeper = claim_keeper.TaskClaimKeeper(
            store, self.name, settings.claim_seconds, clock, monotonic)
        self._strays = stray_migrations.StrayMigrations(
            store, driver, settings.absent_seconds, monotonic, settings.reset_state_after_abort)
        self._services = service_breakers.ServiceBreakers(store, announce, settings.retry_backoff)
        self._stopping = threading.Event()
        self._flights = in_flight_migrations.InFlightMigrations()
        shared = worker_collaborators.WorkerCollaborators(
            driver, settings, self._outcomes, self._services, clock, monotonic)
        self._submission = submission.TaskSubmission(
            shared, store, hooks=self._hooks, strays=self._strays, flights=self._flights,
            keeper=self.keeper, tally=tally, stopping=self._stopping)
        self._watch = migration_watch.MigrationWatch(shared, store, self.keeper)
        self._hold: str | None = None
        self._health: healths.DaemonHealth | None = None
        self._pulse: healths.LoopPulse | None = None
        self._present = present
        self._said_at = float('-inf')

    def set_health_registry(self, health: healths.DaemonHealth) -> None:
        """Set the health registry to which :meth:`run` reports each pass."""
        health.expect_part('pass')
        self._pulse = health.add_pulse('passes', self._settings.poll_interval + HUNG_SECONDS)
        self._health = health

    def run(self) -> None:
        """Work until :meth:`stop`; wait for a database that is away."""
        self.keeper.start(self._health)
        while not self._stopping.is_set():
            begun, problem = False, ''
            self._record_heartbeat(True)
            if self._pulse is not None:
                self._pulse.record_beat()
            try:
                begun = self.run_once(self.read_clock())
            except exception.StoreError as e:
                problem = str(e)
                LOG.error('Executor %s: %s It is tried again.', self.name, e)
            except Exception as e:
                # A dead loop would leave a process that looks alive.
                problem = f'{type(e).__name__}, a defect of ours; see the log'
                LOG.exception('Executor %s: a pass failed for a reason that is a defect of ours; '
                              'the next one tries again.', self.name)
            if self._health is not None:
                self._health.record_part('pass', {'': problem} if problem else {})
                self._health.record_part('services', self._services.list_outages())
            if not begun:
                self.wake.wait(self._compute_pause())
                self.wake.clear()

        self.close()
        self._record_heartbeat(False)

    def close(self) -> None:
        """Release the claims, so that a successor goes on at once."""
        self.keeper.stop()
        self._hooks.close()
        try:
            self._store.tasks.release_task_claims(self.name)
        except exception.StoreError as e:
            LOG.warning('Executor %s: its claims are not given back and run out after %g s: %s',
                        self.name, self._settings.claim_seconds, e)
        try:
            self._strays.close()
        except exception.StoreError as e:
            LOG.warning('Executor %s: %s', self.name, e)

    def _record_heartbeat(self, there: bool) -> None:
        """Record in the database, from time to time, that this executor runs."""
        now = self._clock()
        if self._present is None or there and 0 <= now - self._said_at < executor_heartbeats.BEAT:
            return
        self._said_at = now
        try:
            self._present(there)
        except exception.StoreError as e:
            LOG.debug('Executor %s: %s', self.name, e)

    def stop(self) -> None:
        """Claim no more tasks; a request that has begun is finished and committed.

        Do not call this from a signal handler in the thread of :meth:`run`: it takes locks.
        """
        self._stopping.set()
        self.wake.set()

    def read_clock(self) -> float:
        """Return the database's time, for :meth:`run_once`.

        :raises StoreError: the database is away.
        """
        if self._clock.synchronise_clock():
            self._flights.forget_times()
        if self._health is not None:
            problem = self._clock.find_problem()
            self._health.record_part('clock', {'': problem} if problem else {})
        return self._clock()

    def run_once(self, now: float) -> bool:
        """Run one pass: watch the tasks in flight, then begin at most one task.

        :returns: whether a task was begun; then there may be more to do.
        :raises StoreError: the database is away; nothing is lost by it.
        """
        self.keeper.record_step()
        agenda = self._store.executors.read_todo(self.name, self._settings.scopes, now,
                                                 self._settings.claim_seconds)
        self._end_late_tasks(agenda, now)
        mine = self._take_tasks(agenda, now)
        task_ids = {row.task.task_id for row in mine}
        self._flights.forget_all_but(task_ids)
        self._hooks.drop_foreign_hooks(task_ids)
        self._hooks.run_pending_hooks(now, agenda.owed or agenda.late)
        self._strays.abort_late_migrations()
        for row in mine:
            if self._stopping.is_set():
                return False
            self.keeper.record_step()
            if row.task.state is TaskState.CLAIMED:
                self._run_step(row, self._submission.continue_task)
                continue
            flight = self._flights.find_migration(row.task.task_id)
            if flight.is_due(now):
                flight.next_look = now + self._settings.look_interval
                self._run_step(row, functools.partial(self._watch.watch_task, flight=flight))
        # Tasks that ended above may have let others begin.
        return not self._stopping.is_set() and self._begin_task(any(agenda))

    def _run_step(self, row: rows.TaskRow, step: Callable[[rows.TaskRow], None]) -> None:
        """Run a step of one task; a defect of ours in it does not end the pass of the others.

        A task for which Nova may have been asked is looked at again.
        """
        try:
            step(row)
        except exception.StoreError:
            raise
        except Exception as e:
            error = base.report_unexpected_error(row.task, e)
            current_row = self._store.tasks.find_task(row.task.task_id)
            if current_row is not None and (current_row.task.state, current_row.worker) == (
                    TaskState.CLAIMED, self.name):
                self._outcomes.record_failure(current_row, error)

    def _end_late_tasks(self, agenda: worker_todo.WorkerTodo, now: float) -> None:
        """End the tasks that were not begun in time.

        That may leave a swap to undo, and hooks to end.
        """
        if agenda.late and not self._clock.has_jumped():
            for task in self._store.tasks.expire_tasks(self._settings.scopes, now,
                                                       self._settings.claim_seconds):
                self._outcomes.report_cancelled_task(task, now)
        if agenda.swaps or agenda.late:
            for swap in self._store.tasks.settle_swaps(now):
                self._outcomes.log_swap_undo(swap)

    def _take_tasks(self, agenda: worker_todo.WorkerTodo, now: float) -> list[rows.TaskRow]:
        """Take over the tasks of silent executors; return all that are ours, claimed again."""
        if agenda.abandoned:
            for row in self._store.tasks.adopt_tasks(self.name, self._settings.scopes, now,
                                                     self._settings.claim_seconds):
                LOG.warning('%s: %s, it is taken over from an executor that went silent',
                            model.format_task(row.task), row.task.state)
        mine: list[rows.TaskRow] = []
        if agenda.mine or agenda.abandoned:
            mine = self._store.tasks.list_tasks_in_states(rows.IN_FLIGHT, worker=self.name)
        if mine:
            self._store.tasks.renew_task_claim(self.name, now)
            self._hooks.record_ownership(now)
        return mine

    def _compute_pause(self) -> float:
        due = min([self._flights.find_next_look(), *filter(None, [self._hooks.next_poll_time])])
        return max(0.05, min(self._settings.poll_interval, due - self._clock()))

    def _begin_task(self, anything: bool) -> bool:
        """Claim a task and start it; False: no task was claimed.

        :param anything: whether there may be work; if not, the database is not asked.
        """
        if not self._settings.begin or self._is_held() or not anything:
            return False
        if self._services.find_open(service_breakers.ALL, self._clock()) is not None:
            return False
        row = self._store.tasks.claim_task(
            self.name, self._settings.scopes, self._clock(), per_scope=self._settings.per_scope,
            total=self._settings.total, claim_seconds=self._settings.claim_seconds,
            per_source=self._settings.per_source,
            per_destination=self._settings.per_destination)
        if row is None:
            return False
        self.keeper.record_step()
        self._run_step(row, self._submission.start_task)
        return True

    def _is_held(self) -> bool:
        """Return whether no migration may begin; log when this begins and when it ends."""
        hold = self._submission.find_hold(self._clock())
        if hold != self._hold:
            LOG.info('Executor %s: %s', self.name, 'migrations begin again' if hold is None
                     else f'{hold}; no migration begins')
            self._hold = hold
        return hold is not None
