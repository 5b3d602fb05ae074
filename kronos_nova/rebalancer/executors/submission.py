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

"""Submission of tasks to Nova: claim -> pre-flight -> hooks -> pre-flight again -> submit.

Before the submission asks Nova, it commits ``submitting`` with all that is needed to find the
migration again. So a successor looks first, and asks again only when it is sure that no migration
was begun.

One case cannot be fenced: a process that is frozen inside the request itself for longer than
``claim_seconds``. Nova refuses a late request only while the instance migrates: the request names
a destination and no source. So the submission reads the row again after the request, and aborts a
migration that is no longer wanted (:mod:`stray_migrations`).
"""

from collections.abc import Callable
import dataclasses
import threading

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import claim_keeper
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.executors import in_flight_migrations
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import service_breakers
from kronos_nova.rebalancer.executors import stray_migrations
from kronos_nova.rebalancer.executors import worker_collaborators
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)

#: Error types of attempts that cannot end before Nova was asked.
_NOVA_ANSWERED = frozenset(kind.wire_type for kind in (
    exception.MigrationFailed, exception.MigrationTimeout, exception.InstanceRefused,
    exception.AllocationsLeft))


class TaskSubmission:
    """Submission of one worker's tasks.

    :param flights: gets a record for each request.
    :param stopping: set when the worker stops: then no request is sent.
    """

    def __init__(self, shared: worker_collaborators.WorkerCollaborators, store: api.Store, *,
                 hooks: hook_runner.HookRunner, strays: stray_migrations.StrayMigrations,
                 flights: in_flight_migrations.InFlightMigrations,
                 keeper: claim_keeper.TaskClaimKeeper, tally: tallies.DaemonTally,
                 stopping: threading.Event) -> None:
        self._driver, self._settings = shared.driver, shared.settings
        self._outcomes, self._services = shared.outcomes, shared.services
        self._clock, self._monotonic = shared.clock, shared.monotonic
        self._store, self._hooks, self._strays = store, hooks, strays
        self._flights, self._keeper, self._tally = flights, keeper, tally
        self._stopping = stopping

    def find_hold(self, now: float) -> str | None:
        """Return why no migration may begin, beside pauses in the database; None: it may."""
        return self._settings.frozen(now) or self._clock.find_problem()

    def continue_task(self, row: rows.TaskRow) -> None:
        """Go on with a claimed task: poll its hooks, or start it again."""
        if self._hooks.has_running_hooks(row.task.task_id):
            self._poll_hooks(row)
        else:
            self.start_task(row)

    def start_task(self, row: rows.TaskRow) -> None:
        """Run pre-flight, then begin the hooks; a task without hooks is submitted."""
        if self._hooks.has_interrupted_hooks(row):
            LOG.warning('%s: it goes back to the queue: the executor that ran its '
                        'pre-migration hooks did not request the migration; running the '
                        'post-migration hooks first', model.format_task(row.task))
            self._outcomes.return_task(row)
            return
        marker = self._run_pre_flight(row)
        if marker is None:
            return
        if self._driver.hooked and self._hooks.begin_hooks(row):
            self._poll_hooks(row)
            return
        self._request_migration(row, marker)

    def _poll_hooks(self, row: rows.TaskRow) -> None:
        """Poll the hooks before the migration.

        They take time, so pre-flight is repeated after them.
        """
        look = self._hooks.poll_hooks(row)
        row = dataclasses.replace(row, marks=look.marks)
        if look.error is not None:
            self._outcomes.record_failure(row, look.error)
        elif look.result is hook_runner.HooksResult.LOST:
            self._outcomes.record_loss(row.task)
        if look.result is not hook_runner.HooksResult.DONE:
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
        known = self._read_known_facts(row)
        try:
            with base.check_contract(task):
                marker = self._driver.pre_flight(task, known)
        except exception.MigrationError as e:
            self._handle_failure(row, e)
            return None
        now = self._clock()
        # Only a request shows whether Nova takes requests, too.
        self._services.record_success((service_breakers.PLACEMENT,), now)
        pause = self._store.pauses.find_pause(task.aggregate, now) or self.find_hold(now)
        if pause is not None:
            LOG.info('%s: it goes back to the queue: %s', model.format_task(task), pause)
        if self._stopping.is_set() or pause is not None:
            self._outcomes.return_task(row)
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
        self._outcomes.record_failure(row, error)

    def _read_known_facts(self, row: rows.TaskRow) -> base.StoredFacts:
        """Read our database before Nova: a migration that ends in between still counts."""
        task = row.task
        other_rows = [row for row in self._store.tasks.list_tasks_in_states(rows.IN_FLIGHT)
                      if row.task.task_id != task.task_id]
        others, now = [row.task for row in other_rows], self._clock()
        return base.StoredFacts(
            now=now,
            slotless=frozenset(row.task.instance_uuid for row in other_rows if rows.has_lost_slots(
                row.doubt, row.doubt_since)),
            history=dataclasses.replace(
                self._store.history.read_history(
                    task.aggregate, now, late_drains=task.phase is model.Phase.EVACUATE),
                cooling={},
                # All its moves: the contract is not read yet.
                move_times=self._store.history.read_move_times(
                    {task.instance_uuid: int(now)}, now),
                notices=self._store.notices.read_notices(now, [task.instance_uuid])),
            draining=self._store.plans.list_draining_hosts(),
            flights=tuple(
                model.InFlightMove(t.instance_uuid, t.from_host, t.to_host, 'task', t.alternates,
                                   t.aggregate)
                for t in others),
            scopes=self._store.leases.list_leased_scopes(),
            returning=self._store.tasks.is_way_back(row))

    def _request_migration(self, row: rows.TaskRow, marker: str) -> None:
        """Commit ``submitting``, then request the migration from Nova."""
        task = row.task
        self._keeper.record_step()
        try:
            with base.check_contract(task):
                self._driver.log_in(task)
        except exception.MigrationError as e:
            return self._handle_failure(row, e)
        now, began = self._clock(), self._monotonic()
        row = dataclasses.replace(
            row, marker=marker,
            marks=attempt_phases.begin_phase(row.marks, attempt_phases.PRE_CHECK, now))
        if not self._outcomes.update_task(
                row, TaskState.SUBMITTING, [TaskState.CLAIMED],
                marker=marker, submitted_at=now, doubt_since=None, doubt=None,
                timings=attempt_phases.format_phase_starts(row.marks),
                deadline=retry.compute_deadline(task, now, self._settings)):
            return None
        if not any(_has_asked_nova(attempt) for attempt in row.attempts):
            self._tally.record_submission(task, now - task.created_at)
        self._flights.begin_migration(task.task_id, now + self._settings.look_interval)
        return self._submit_task(
            row, lambda: self._monotonic() - began <= self._settings.claim_seconds / 2)

    def _submit_task(self, row: rows.TaskRow, may_send: Callable[[], bool]) -> None:
        task = row.task
        try:
            if not may_send():
                raise exception.HeldUp(
                    instance_uuid=task.instance_uuid,
                    problem='this executor stood still before it could ask for the migration')
            with base.check_contract(task):
                reference = self._driver.submit(task, may_send)
        except (exception.AmbiguousSubmit, exception.UnexpectedError) as e:
            if isinstance(e, exception.AmbiguousSubmit):
                LOG.warning('%s: %s: %s', model.format_task(task), e.wire_type, e)
            return self._keep_request(row, TaskState.UNKNOWN, error=str(e), error_type=e.wire_type)
        except exception.MigrationError as e:
            return self._handle_failure(row, e)
        LOG.info('%s: %s migration from %s to %s requested (%s, request %s)',
                 model.format_task(task), task.method, task.from_host, task.to_host, task.phase,
                 reference)
        self._keep_request(row, TaskState.SUBMITTED, reference=reference)
        return self._services.record_success(service_breakers.WATCHING, self._clock())

    def _keep_request(self, row: rows.TaskRow, state: TaskState, **fields: str | None) -> None:
        """Commit that Nova was asked.

        While the database is away, the worker cannot know whether the task is still its own: it
        reads the row again later.
        """
        try:
            if not self._outcomes.update_task(row, state, [TaskState.SUBMITTING], **fields):
                self._strays.reread_lost_task(row)
        except exception.StoreError:
            self._strays.keep_lost_request(row)
            raise


def _has_asked_nova(attempt: model.Attempt) -> bool:
    """Return whether Nova was certainly asked in this attempt."""
    return attempt.migration_uuid is not None or attempt.error_type in _NOVA_ANSWERED
