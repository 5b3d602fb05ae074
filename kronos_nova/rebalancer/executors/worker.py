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


"""Worker that carries out tasks: claim -> pre-flight -> hooks -> submit -> watch -> post-flight.

One loop and no thread per migration: the worker looks at each task in flight when its time has
come. The table is the truth; a message only wakes the loop. Before the worker asks Nova, it
commits ``submitting`` with all that is needed to find the migration again. So a successor looks
first, and asks again only when it is sure that no migration was begun.

A slow step loses no claim: :mod:`claim_keeper` renews it from another thread. One case cannot be
fenced: a process that is frozen inside the request itself for longer than ``claim_seconds``. Nova
refuses a late request only while the instance migrates: the request names a destination and no
source. So the worker reads the row again after the request, and aborts a migration that is no
longer wanted (:mod:`stray_migrations`).
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import threading
import time

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import secret_mask
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import claim_keeper
from kronos_nova.rebalancer.executors import endings
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.executors import migration_uncertainty
from kronos_nova.rebalancer.executors import nova_error_classes
from kronos_nova.rebalancer.executors import outcomes
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import service_breakers
from kronos_nova.rebalancer.executors import stray_migrations
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import database_clock
from kronos_nova.rebalancer.store import executor_heartbeats
from kronos_nova.rebalancer.store import process_identity
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)

#: A pass that has taken so long (seconds) hangs: it waits for Nova about each of
#: its tasks, never longer than [nova] collect_timeout.
HUNG_SECONDS = claim_keeper.HUNG_SECONDS

LATE = 'The migration took longer than its deadline.'
ABORTING = 'The migration took longer than its deadline and is being aborted.'


_OF = {nova_error_classes.FaultyPart.DESTINATION: exception.MigrationFailed,
       nova_error_classes.FaultyPart.INSTANCE: exception.InstanceRefused,
       nova_error_classes.FaultyPart.API: exception.NovaClientError}


#: Stages in which Nova has done its part.
_OVER = (base.MigrationStage.COMPLETED, base.MigrationStage.FAILED, base.MigrationStage.CANCELLED,
         base.MigrationStage.SETTLING,
         base.MigrationStage.UNTOLD)

#: Error types of attempts that cannot end before Nova was asked.
_NOVA_ANSWERED = frozenset(kind.wire_type for kind in (
    exception.MigrationFailed, exception.MigrationTimeout, exception.InstanceRefused,
    exception.AllocationsLeft))


class UnexpectedError(exception.MigrationError):
    """An exception outside the contract of the driver: a fault of the driver."""

    code = 'kronos.migration.unexpected'
    wire_type = 'UnexpectedError'


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
                 hooks: tuple[hook_runner.HookCatalogue, hook_runner.HookSettings] | None = None,
                 announce: service_breakers.Announce | None = None) -> None:
        self.name = name or process_identity.name_process()
        self.wake = wake or threading.Event()
        self._store = store
        self._driver = driver
        self._settings = settings
        self._clock = clock = clock or database_clock.DatabaseClock(store.now)
        self._database_clock = (clock if isinstance(clock, database_clock.DatabaseClock)
                                else None)
        self._tally = tally or tallies.DaemonTally()
        self._tally.serve({kind.wire_type for kind in exception.MigrationError.__subclasses__()})
        self._outcomes = outcomes.OutcomeWriter(store, settings, notify, self.name, clock,
                                                self._tally, self._read_phase_seconds)
        catalogue, chosen = hooks or (hook_runner.build_catalogue({}), hook_runner.HookSettings())
        self._hooks = hook_runner.HookRunner(
            store, catalogue, chosen, self.name, scopes=settings.scopes,
            claim_seconds=settings.claim_seconds, clock=clock)
        #: Renews the claims; :meth:`run` starts its thread.
        self.keeper = claim_keeper.ClaimKeeper(
            store, self.name, settings.claim_seconds, clock, monotonic)
        self._strays = stray_migrations.StrayMigrations(
            store, driver, settings.absent_seconds, settings.reset_state_after_abort)
        self._monotonic = monotonic
        self._services = service_breakers.ServiceBreakers(store, announce, settings.retry_backoff)
        self._stopping = threading.Event()
        self._next_look: dict[str, float] = {}
        self._unverified: dict[str, float] = {}
        self._aborted: set[str] = set()
        self._unchanged = endings.UnchangedRecords(monotonic)
        self._frozen: str | None = None
        self._health: healths.DaemonHealth | None = None
        self._pulse: healths.LoopPulse | None = None
        self._present = present
        self._said_at = float('-inf')

    # The loop.

    def tell(self, health: healths.DaemonHealth) -> None:
        """Set the health registry to which :meth:`run` reports each pass."""
        health.expect('pass')
        self._pulse = health.pulse('passes', self._settings.poll_interval + HUNG_SECONDS)
        self._health = health

    def run(self) -> None:
        """Work until :meth:`stop`; wait for a database that is away."""
        self.keeper.start(self._health)
        while not self._stopping.is_set():
            begun, problem = False, ''
            self._record_heartbeat(True)
            if self._pulse is not None:
                self._pulse.beat()
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
                self._health.note('pass', {'': problem} if problem else {})
                self._health.note('services', self._services.list_outages())
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
            self._store.tasks.release_claims(self.name)
        except exception.StoreError as e:
            LOG.warning('Executor %s: its claims are not given back and run out after %g s: %s',
                        self.name, self._settings.claim_seconds, e)
        try:
            self._strays.close(self._clock())
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
        if self._database_clock is not None:
            if self._database_clock.synchronise():
                # Times by the old clock may be far ahead, or over.
                self._next_look.clear()
                self._unverified.clear()
            if self._health is not None:
                problem = self._database_clock.find_problem()
                self._health.note('clock', {'': problem} if problem else {})
        return self._clock()

    def _has_clock_jumped(self) -> bool:
        """Return whether the database's clock may have just jumped: nothing ends by it then."""
        return self._database_clock is not None and not self._database_clock.may_end()

    def _find_hold(self, now: float) -> str | None:
        """Return why no migration may begin, beside pauses in the database; None: it may."""
        return self._settings.frozen(now) or (
            None if self._database_clock is None else self._database_clock.find_problem())

    def run_once(self, now: float) -> bool:
        """Run one pass: watch the tasks in flight, then begin at most one task.

        :returns: whether a task was begun; then there may be more to do.
        :raises StoreError: the database is away; nothing is lost by it.
        """
        self.keeper.note_step()
        scopes, patience = self._settings.scopes, self._settings.claim_seconds
        agenda = self._store.executors.read_todo(self.name, scopes, now, patience)
        ends = agenda.late and not self._has_clock_jumped()
        for task in self._store.tasks.expire_tasks(scopes, now, patience) if ends else ():
            self._outcomes.cancelled(task, now)
        # The end of late tasks may leave a swap to undo, and hooks to end.
        for swap in self._store.tasks.settle_swaps(now) if agenda.swaps or agenda.late else ():
            self._outcomes.swapped(swap)
        for row in (self._store.tasks.adopt_tasks(self.name, scopes, now, patience)
                    if agenda.abandoned else ()):
            LOG.warning('Instance %s: task %s (%s) is taken over from an executor that went '
                        'silent', row.task.instance_uuid, row.task.task_id, row.task.state)
        mine: list[rows.TaskRow] = []
        if agenda.mine or agenda.abandoned:
            mine = self._store.tasks.list_tasks_in_states(rows.IN_FLIGHT, worker=self.name)
        if mine:
            self._store.tasks.renew_claim(self.name, now)
            self._hooks.held(now)
        self._forget_lost_tasks({row.task.task_id for row in mine})
        self._hooks.settle(now, agenda.owed or agenda.late)
        self._strays.pursue(now)
        for row in mine:
            if self._stopping.is_set():
                return False
            self.keeper.note_step()
            if row.task.state is TaskState.CLAIMED:
                if self._hooks.under_way(row.task.task_id):
                    self._poll_hooks(row)
                else:
                    self._start(row)
            elif self._next_look.get(row.task.task_id, now) <= now:
                self._next_look[row.task.task_id] = now + self._settings.look_interval
                if self._services.find_open(service_breakers.WATCHING, self._clock()) is None:
                    self._watch_task(row)
                else:
                    self._check_deadline(row)
        # Tasks that ended above may have let others begin.
        return not self._stopping.is_set() and self._begin_task(any(agenda))

    def _compute_pause(self) -> float:
        times = [*self._next_look.values(), *filter(None, [self._hooks.due])]
        due = min(times, default=float('inf')) - self._clock()
        return max(0.05, min(self._settings.poll_interval, due))

    def _forget_lost_tasks(self, mine: set[str]) -> None:
        for memory in (self._next_look, self._unverified):
            for task_id in memory.keys() - mine:
                del memory[task_id]
        self._aborted &= mine
        self._unchanged.forget_all_but(mine)
        self._hooks.forget(mine)

    def _forget_attempt(self, task_id: str) -> None:
        """Forget the previous attempt: a task may be claimed again within the same pass."""
        self._unverified.pop(task_id, None)
        self._aborted.discard(task_id)
        self._unchanged.forget(task_id)

    # From claimed to submitted.

    def _begin_task(self, anything: bool) -> bool:
        """Claim a task and start it; False: no task was claimed.

        :param anything: whether there may be work; if not, the database is not asked.
        """
        if not self._settings.begin or self._is_frozen() or not anything:
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
        self.keeper.note_step()
        self._start(row)
        return True

    def _is_frozen(self) -> bool:
        """Return whether no migration may begin; log when this begins and when it ends."""
        frozen = self._find_hold(self._clock())
        if frozen != self._frozen:
            LOG.info('Executor %s: %s', self.name, 'migrations begin again' if frozen is None
                     else f'{frozen}; no migration begins')
            self._frozen = frozen
        return frozen is not None

    def _start(self, row: rows.TaskRow) -> None:
        if self._hooks.interrupted(row):
            LOG.warning('Instance %s: task %s goes back to the queue: the executor that ran its '
                        'pre-migration hooks did not request the migration; running the '
                        'post-migration hooks first',
                        row.task.instance_uuid, row.task.task_id)
            self._give_back(row)
            return
        marker = self._run_pre_flight(row)
        if marker is None:
            return
        if self._driver.hooked and self._hooks.begin(row):
            self._poll_hooks(row)
            return
        self._request_migration(row, marker)

    def _poll_hooks(self, row: rows.TaskRow) -> None:
        """Poll the hooks before the migration.

        They take time, so pre-flight is repeated after them.
        """
        look = self._hooks.look(row)
        row = dataclasses.replace(row, marks=look.marks)
        if look.error is not None:
            self._outcomes.failed(row, look.error)
        elif look.found is hook_runner.HooksResult.LOST:
            self._outcomes.lost(row.task)
        if look.found is not hook_runner.HooksResult.DONE:
            return
        row = dataclasses.replace(
            row,
            marks=attempt_phases.begin_phase(look.marks, attempt_phases.PRE_FLIGHT, self._clock()))
        marker = self._run_pre_flight(row)
        if marker is not None:
            self._request_migration(row, marker)

    def _run_pre_flight(self, row: rows.TaskRow) -> str | None:
        """Run pre-flight; return the marker of a move that may begin.

        None: the move may not begin, and the row says so.
        """
        task = row.task
        known = self._read_known_facts(task)
        try:
            marker = self._driver.pre_flight(task, known)
        except exception.MigrationError as e:
            self._handle_failure(row, e)
            return None
        except Exception as e:
            self._outcomes.failed(row, _build_unexpected_error(task, e))
            return None
        now = self._clock()
        # Only a request shows whether Nova takes requests, too.
        self._services.record_success((service_breakers.PLACEMENT,), now)
        pause = self._store.pauses.find_pause(task.aggregate, now) or self._find_hold(now)
        if pause is not None:
            LOG.info('Instance %s: task %s goes back to the queue: %s', task.instance_uuid,
                     task.task_id, pause)
        if self._stopping.is_set() or pause is not None:
            self._give_back(row)
            return None
        return marker

    def _handle_failure(self, row: rows.TaskRow, error: exception.MigrationError) -> None:
        """End an attempt, or let the task wait until a service works again."""
        if isinstance(error, exception.ServiceUnavailable):
            self._services.record_failure(error, row.task, self._clock())
        elif error.kwargs.get('rule') == retry.GONE or isinstance(
                error, exception.MigrationFailed | exception.InstanceRefused):
            # Placement was not asked.
            self._services.record_success(service_breakers.WATCHING, self._clock())
        elif isinstance(error, exception.PreFlightError | exception.PlacementRejected):
            self._services.record_success(service_breakers.ALL, self._clock())
        self._outcomes.failed(row, error)

    def _give_back(self, row: rows.TaskRow) -> None:
        """Return the task to the queue, unchanged."""
        task, now = row.task, self._clock()
        self._store.tasks.requeue_task(task.task_id, self.name, now, not_before=task.not_before,
                                       retry_count=task.retry_count, attempt=row.attempt,
                                       marks=attempt_phases.begin_phase(row.marks,
                                                                        attempt_phases.QUEUE, now))

    def _request_migration(self, row: rows.TaskRow, marker: str) -> None:
        """Commit ``submitting``, then request the migration from Nova."""
        task = row.task
        self.keeper.note_step()
        try:
            self._driver.log_in(task)
        except exception.MigrationError as e:
            return self._handle_failure(row, e)
        now, began = self._clock(), self._monotonic()
        row = dataclasses.replace(
            row, marker=marker,
            marks=attempt_phases.begin_phase(row.marks, attempt_phases.PRE_CHECK, now))
        if not self._store.tasks.update_state(
                task.task_id, self.name, [TaskState.CLAIMED], TaskState.SUBMITTING, now,
                marker=marker, submitted_at=now, doubt_since=None, doubt=None,
                timings=attempt_phases.format_phase_starts(row.marks),
                deadline=retry.compute_deadline(task, now, self._settings)):
            return self._outcomes.lost(task)
        if not any(_has_asked_nova(attempt) for attempt in row.attempts):
            self._tally.submitted(task, now - task.created_at)
        self._forget_attempt(task.task_id)
        self._next_look[task.task_id] = now + self._settings.look_interval
        return self._submit(
            row, lambda: self._monotonic() - began <= self._settings.claim_seconds / 2)

    def _read_known_facts(self, task: model.Task) -> base.StoredFacts:
        """Read our database before Nova: a migration that ends in between still counts."""
        found = [row for row in self._store.tasks.list_tasks_in_states(rows.IN_FLIGHT)
                 if row.task.task_id != task.task_id]
        others = [row.task for row in found]
        return base.StoredFacts(
            slotless=frozenset(row.task.instance_uuid for row in found if rows.has_lost_slots(
                row.doubt, row.doubt_since)),
            history=dataclasses.replace(
                self._store.history.read_history(task.aggregate, self._clock()), cooling={}),
            draining=self._store.plans.list_draining_hosts(),
            flights=tuple(
                model.InFlightMove(t.instance_uuid, t.from_host, t.to_host, 'task', t.alternates,
                                   t.aggregate)
                for t in others),
            scopes=self._store.leases.list_leased_scopes())

    def _submit(self, row: rows.TaskRow, may_send: Callable[[], bool]) -> None:
        task = row.task
        problem: Exception | None = None
        try:
            if not may_send():
                raise exception.HeldUp(
                    instance_uuid=task.instance_uuid,
                    problem='this executor stood still before it could ask for the migration')
            reference: str | None = self._driver.submit(task, may_send)
        except exception.AmbiguousSubmit as e:
            problem = e
        except exception.MigrationError as e:
            return self._handle_failure(row, e)
        except Exception as e:
            problem = _build_unexpected_error(task, e)
        else:
            LOG.info('Instance %s: %s migration from %s to %s requested (%s, task %s, request '
                     '%s)', task.instance_uuid, task.method, task.from_host, task.to_host,
                     task.phase, task.task_id, reference)
        if problem is not None:
            LOG.warning('Task %s: %s', task.task_id, problem)
            fields = {'error': str(problem), 'error_type': getattr(problem, 'wire_type', None)}
            return self._keep_request(row, TaskState.UNKNOWN, **fields)
        self._keep_request(row, TaskState.SUBMITTED, reference=reference)
        return self._services.record_success(service_breakers.WATCHING, self._clock())

    def _keep_request(self, row: rows.TaskRow, state: TaskState, **fields: str | None) -> None:
        """Commit that Nova was asked.

        While the database is away, the worker cannot know whether the task is still its own: it
        reads the row again later.
        """
        try:
            if not self._update_task(row, state, [TaskState.SUBMITTING], **fields):
                self._strays.examine(row, self._clock())
        except exception.StoreError:
            self._strays.remember(row, self._clock())
            raise

    def _update_task(self, row: rows.TaskRow, state: TaskState, states: list[TaskState],
                     **fields: str | float | None) -> bool:
        kept = self._store.tasks.update_state(
            row.task.task_id, self.name, states, state, self._clock(), **fields)
        if not kept:
            self._outcomes.lost(row.task)
        return kept

    # From submitted to the end.

    def _watch_task(self, row: rows.TaskRow) -> None:
        task, read_at = row.task, self._monotonic()
        progress: base.MigrationProgress | None = None
        try:
            progress = self._driver.look(task, self._bind_marker(row))
            if progress.source is not None:
                # Nova carries our request out from where it found the instance.
                task = dataclasses.replace(task, from_host=progress.source)
                row = dataclasses.replace(row, task=task)
            if progress.stage.terminal:
                row = dataclasses.replace(row, reference=progress.reference or row.reference)
            if progress.stage is base.MigrationStage.COMPLETED:
                self._driver.post_flight(task)
        except exception.NovaClientError as e:
            LOG.warning('Task %s: %s It is looked at again.', task.task_id,
                        exception.format_sentence(e))
            if isinstance(e, exception.ServiceUnavailable):
                self._services.record_failure(e, task, self._clock())
            self._check_deadline(self._record_phase(row, progress))
            return
        except (exception.InstanceInError, exception.PreFlightError) as e:
            self._outcomes.failed(row, e)
            return
        except exception.MigrationError as e:
            self._handle_unverified(self._record_phase(row, progress), e)
            return
        except Exception as e:
            LOG.error('Task %s: %s', task.task_id, _build_unexpected_error(task, e))
            self._check_deadline(row)
            return
        self._services.record_success(service_breakers.WATCHING, self._clock())
        row = self._record_phase(row, progress)
        match progress.stage:
            case base.MigrationStage.COMPLETED:
                self._outcomes.end(row, TaskState.COMPLETED)
            case base.MigrationStage.FAILED if row.error == ABORTING and endings.is_own_abort(
                    row, progress, task.task_id in self._aborted):
                self._end_aborted(row, progress)
            case base.MigrationStage.FAILED if endings.is_foreign_abort(row, progress):
                if self._has_abort_ended(row, progress):
                    self._outcomes.end(row, TaskState.CANCELLED, outcomes.CANCELLED_TYPE,
                                       endings.describe_foreign_abort(row, progress))
            case base.MigrationStage.FAILED:
                self._outcomes.failed(row, _build_failure_error(row, progress))
            case base.MigrationStage.CANCELLED if row.error == ABORTING and (
                    task.task_id in self._aborted or progress.aborted_by is None):
                self._end_aborted(row, progress)
            case base.MigrationStage.CANCELLED:
                self._outcomes.end(row, TaskState.CANCELLED, outcomes.CANCELLED_TYPE,
                                   progress.detail or 'The migration was cancelled in Nova.')
            case base.MigrationStage.SETTLING | base.MigrationStage.UNTOLD:
                self._handle_settling(row, progress)
            case base.MigrationStage.LEFT:
                self._handle_left_record(row, progress)
            case base.MigrationStage.ABSENT:
                self._handle_absence(row)
            case base.MigrationStage.UNCONFIRMED:
                self._under_way(row, progress, read_at)
                self._confirm_migration(row)
            case _:
                self._under_way(row, progress, read_at)

    def _bind_marker(self, row: rows.TaskRow) -> str:
        return self._driver.bind_marker(row.marker or '', row.reference)

    def _record_phase(self, row: rows.TaskRow,
                      progress: base.MigrationProgress | None) -> rows.TaskRow:
        """Record the phase that the driver found, when it comes after the known phase.

        The phase is committed, so that a successor goes on with it.
        """
        if progress is None:
            return row
        phase = attempt_phases.POST_FLIGHT if progress.stage in _OVER else progress.phase
        if not attempt_phases.is_later_phase(row.marks, phase):
            return row
        row = dataclasses.replace(
            row, marks=attempt_phases.begin_phase(row.marks, str(phase), self._clock()))
        if progress.stage not in (base.MigrationStage.FAILED, base.MigrationStage.CANCELLED):
            self._update_task(row, row.task.state, [row.task.state],
                              timings=attempt_phases.format_phase_starts(row.marks))
        return row

    def _read_phase_seconds(self, row: rows.TaskRow) -> Mapping[str, float]:
        """Return the phase times of the driver, which are better than those of looks.

        Looks come every look_interval.
        """
        if row.reference is None or all(p != attempt_phases.PRE_CHECK for p, _at in row.marks):
            return {}
        try:
            return self._driver.measured(row.task, row.reference)
        except Exception as e:
            LOG.debug('Task %s: its phase durations come from polling alone: %s',
                      row.task.task_id, e)
            return {}

    def _under_way(self, row: rows.TaskRow, progress: base.MigrationProgress,
                   read_at: float) -> None:
        reference = progress.reference or row.reference
        now = self._clock()
        since, doubt = self._unchanged.find_note(
            row, progress.version, now, read_at) or (None, None)
        changed = (reference, since, doubt) != (row.reference, row.doubt_since, row.doubt)
        row = dataclasses.replace(row, reference=reference)
        if self._is_late(row):
            kept = self._check_deadline(row)
            if kept and changed:
                kept = self._update_task(row, TaskState.UNKNOWN, [TaskState.UNKNOWN],
                                         doubt_since=since, doubt=doubt, reference=reference)
            if kept:
                self._abort(row)
            return
        state = row.task.state
        if state is not TaskState.SUBMITTED:
            LOG.info('Instance %s: task %s: its migration is found in Nova (%s)',
                     row.task.instance_uuid, row.task.task_id, progress.stage)
            state = TaskState.SUBMITTED
        if changed or state is not row.task.state:
            self._update_task(row, state, [row.task.state], reference=reference, doubt_since=since,
                              doubt=doubt, error=None, error_type=None)

    def _handle_left_record(self, row: rows.TaskRow, progress: base.MigrationProgress) -> None:
        """End the task by the place of its instance, once the contradiction has lasted.

        The attempt has no phases: its duration is unknown.
        """
        task, now = row.task, self._clock()
        since = migration_uncertainty.find_doubt_since(row, progress.stage)
        if since is None:
            LOG.info('Instance %s: task %s: %s; the task ends by where the instance is unless '
                     'that changes within %.0f s', task.instance_uuid, task.task_id,
                     progress.detail, progress.patience)
            self._update_task(row, task.state, [task.state], doubt_since=now,
                              doubt=migration_uncertainty.encode_doubt(progress.stage, now),
                              reference=progress.reference)
            return
        if now - since <= progress.patience:
            return
        row = dataclasses.replace(row, marks=())
        match progress.ending:
            case base.MigrationStage.COMPLETED:
                LOG.warning('Instance %s: task %s is completed: %s. See nova-manage placement '
                            'audit', task.instance_uuid, task.task_id, progress.detail)
                self._outcomes.end(row, TaskState.COMPLETED)
            case base.MigrationStage.CANCELLED:
                self._outcomes.end(row, TaskState.CANCELLED, outcomes.CANCELLED_TYPE,
                                   progress.detail)
            case _:
                self._outcomes.failed(row, endings.build_error(row, progress))

    def _check_deadline(self, row: rows.TaskRow) -> bool:
        """Set a task to unknown once it is past its deadline.

        The worker still watches the task, and the task keeps its slot. A row that says ABORTING
        keeps saying so: a predecessor, with another ``abort_at_deadline``, may have asked.

        :returns: False: the task is not late, or this executor has lost it.
        """
        if not self._is_late(row):
            return False
        wanted = ABORTING if row.error == ABORTING or self._may_abort(row.task) else LATE
        if row.error_type != exception.MigrationTimeout.wire_type:
            LOG.warning('Instance %s: task %s is past its deadline; it keeps its slot and is '
                        'watched until Nova says how it ended. See its migration in Nova.',
                        row.task.instance_uuid, row.task.task_id)
        if (row.error, row.task.state) == (wanted, TaskState.UNKNOWN):
            return True
        return self._update_task(row, TaskState.UNKNOWN, [row.task.state], error=wanted,
                                 error_type=exception.MigrationTimeout.wire_type)

    def _is_past_deadline(self, row: rows.TaskRow) -> bool:
        return row.task.deadline is not None and self._clock() >= row.task.deadline

    def _is_late(self, row: rows.TaskRow) -> bool:
        """Return whether the task is past its deadline, or we abort it since it was.

        An abort is not undone: the database's clock may have been set back since.
        """
        return row.error == ABORTING or self._is_past_deadline(row)

    def _may_abort(self, task: model.Task) -> bool:
        return self._settings.abort_at_deadline and task.method is model.MoveMethod.LIVE

    def _abort(self, row: rows.TaskRow) -> None:
        """Ask Nova to abort a live migration past its deadline, until Nova accepts.

        The row says so before the request, as with ``submitting``: a successor then knows who
        ended the migration. An executor that cannot write this has lost the task and does not
        abort.
        """
        task = row.task
        if (not self._may_abort(task) or task.task_id in self._aborted
                or self._has_clock_jumped() or not self._is_past_deadline(row)):
            return
        try:
            accepted = self._driver.abort(task, self._bind_marker(row))
        except exception.NovaClientError as e:
            LOG.warning('Task %s: %s It is tried again.', task.task_id,
                        exception.format_sentence(e))
            return
        if accepted:
            self._aborted.add(task.task_id)
            LOG.warning('Instance %s: task %s: its live migration is past its deadline and is '
                        'being aborted', task.instance_uuid, task.task_id)

    def _has_abort_ended(self, row: rows.TaskRow, progress: base.MigrationProgress) -> bool:
        """Return whether Nova no longer puts the instance of an aborted migration into ERROR."""
        now, since = self._clock(), migration_uncertainty.find_doubt_since(
            row, base.MigrationStage.CANCELLED)
        if progress.patience and since is None:
            self._update_task(row, row.task.state, [row.task.state], doubt_since=now,
                              doubt=migration_uncertainty.encode_doubt(
                                  base.MigrationStage.CANCELLED, now),
                              reference=row.reference)
            return False
        return since is None or now - since > progress.patience

    def _end_aborted(self, row: rows.TaskRow, progress: base.MigrationProgress) -> None:
        """End a task whose migration we aborted, once Nova has done with the instance."""
        if self._has_abort_ended(row, progress):
            reset = progress.broken and self._reset_state(row.task)
            self._outcomes.failed(row, endings.build_abort_error(row, progress, reset))

    def _reset_state(self, task: model.Task) -> bool:
        if not self._settings.reset_state_after_abort:
            return False
        try:
            return self._driver.reset_state(task)
        except exception.NovaClientError as e:
            LOG.warning('Task %s: %s', task.task_id, exception.format_sentence(e))
            return False

    def _confirm_migration(self, row: rows.TaskRow) -> None:
        """Confirm a cold migration.

        Nova refuses a second confirmation, so a repetition by a successor is harmless.
        """
        try:
            self._driver.confirm(row.task, self._bind_marker(row))
        except exception.NovaClientError as e:
            LOG.warning('Task %s: %s It is looked at again.', row.task.task_id,
                        exception.format_sentence(e))
            return
        LOG.info('Instance %s: task %s: its cold migration to %s is confirmed',
                 row.task.instance_uuid, row.task.task_id, row.task.to_host)

    def _handle_absence(self, row: rows.TaskRow) -> None:
        now = self._clock()
        since = migration_uncertainty.find_doubt_since(row, base.MigrationStage.ABSENT)
        if since is None:
            state = row.task.state
            if state is TaskState.SUBMITTING:
                state = TaskState.UNKNOWN
                LOG.warning('Instance %s: task %s: it is not known whether its migration was '
                            'asked for, and Nova shows none; it is watched for %.0f s',
                            row.task.instance_uuid, row.task.task_id,
                            self._settings.absent_seconds)
            self._update_task(row, state, [row.task.state], doubt_since=now,
                              doubt=migration_uncertainty.encode_doubt(base.MigrationStage.ABSENT,
                                                                       now))
        elif now - since > self._settings.absent_seconds:
            self._outcomes.failed(row, exception.NovaClientError(
                instance_uuid=row.task.instance_uuid,
                problem='Nova shows no migration for our request'))

    def _handle_settling(self, row: rows.TaskRow, progress: base.MigrationProgress) -> None:
        """Wait until Nova has released the claims of a failed migration and recorded the reason.

        The wait is limited. A successor goes on with it, since the row has its start.
        """
        now, since = self._clock(), migration_uncertainty.find_doubt_since(row, progress.stage)
        if since is None:
            self._tell_settling(row.task, progress)
            self._update_task(row, row.task.state, [row.task.state], doubt_since=now,
                              doubt=migration_uncertainty.encode_doubt(progress.stage, now),
                              reference=progress.reference)
        elif now - since > self._settings.settling_seconds:
            row = dataclasses.replace(row, reference=progress.reference or row.reference)
            if progress.stage is base.MigrationStage.UNTOLD:
                self._outcomes.failed(row, _build_unexplained_error(row, progress, now - since))
                return
            self._outcomes.failed(row, exception.AllocationsLeft(
                instance_uuid=row.task.instance_uuid,
                problem=f'its migration to {row.task.to_host} failed, and '
                        f'{now - since:.0f} s later {progress.detail}'))

    def _tell_settling(self, task: model.Task, progress: base.MigrationProgress) -> None:
        if progress.stage is base.MigrationStage.UNTOLD:
            LOG.info('Instance %s: task %s: its migration to %s failed (%s), and Nova has not said '
                     'why yet; repeating the question for up to %.0f s', task.instance_uuid,
                     task.task_id, task.to_host, progress.detail, self._settings.settling_seconds)
        else:
            LOG.info('Instance %s: task %s: its migration to %s failed; before anything else, %s',
                     task.instance_uuid, task.task_id, task.to_host, progress.detail)

    def _handle_unverified(self, row: rows.TaskRow, error: exception.MigrationError) -> None:
        """Fail a task whose instance looks wrong for a while although Nova says completed."""
        now = self._clock()
        since = self._unverified.setdefault(row.task.task_id, now)
        if now - since > self._settings.absent_seconds:
            self._outcomes.end(row, TaskState.FAILED, error.wire_type, str(error),
                               quarantine=True)


def _has_asked_nova(attempt: model.Attempt) -> bool:
    """Return whether Nova was certainly asked in this attempt."""
    return attempt.migration_uuid is not None or attempt.error_type in _NOVA_ANSWERED


def _build_unexpected_error(task: model.Task, error: Exception) -> UnexpectedError:
    return UnexpectedError(instance_uuid=task.instance_uuid, problem=(
        f'the executor driver failed unexpectedly ({type(error).__name__}: '
        f'{secret_mask.mask_text(str(error))}); '
        'report this with the log'))


def _build_failure_error(row: rows.TaskRow,
                         progress: base.MigrationProgress) -> exception.MigrationError:
    """Build the error of a failed migration.

    A failure found after the deadline is a timeout, and final. A failure by a rule of ours is the
    error that pre-flight would have raised.
    """
    if progress.rule is not None:
        return exception.PreFlightError(instance_uuid=row.task.instance_uuid,
                                        rule=progress.rule, problem=progress.detail)
    if progress.broken:
        return exception.InstanceInError(
            instance_uuid=row.task.instance_uuid,
            problem=f'its migration from {row.task.from_host} to {row.task.to_host} failed '
                    f'({progress.detail})')
    kind: type[exception.MigrationError] = _OF[progress.fault]
    if row.error_type == exception.MigrationTimeout.wire_type:
        kind = exception.MigrationTimeout
    return kind(instance_uuid=row.task.instance_uuid,
                problem=progress.detail or 'the migration failed in Nova')


def _build_unexplained_error(row: rows.TaskRow, progress: base.MigrationProgress,
                             seconds: float) -> exception.MigrationError:
    """Build the error of a failure that Nova has not explained for so long.

    After the deadline it is a timeout.
    """
    if row.error_type == exception.MigrationTimeout.wire_type:
        return _build_failure_error(row, progress)
    return exception.FailureUntold(
        instance_uuid=row.task.instance_uuid, to_host=row.task.to_host, seconds=f'{seconds:.0f}',
        problem=progress.detail)
