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

"""Steps of a worker against live migrations of drains that do not converge.

:mod:`escalation` chooses the step. The worker commits a step before its request, as it does with a
migration: a successor takes it for sent, and does not repeat it. A paused guest waits for an end:
a migration that has not arrived some time after the step is aborted, and Nova resumes the guest on
its source.
"""

import dataclasses

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import claim_keeper
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import in_flight_migrations
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.executors import worker_collaborators
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)


class MigrationEscalation:
    """Steps against the migrations of one worker."""

    def __init__(self, shared: worker_collaborators.WorkerCollaborators, store: api.Store,
                 keeper: claim_keeper.TaskClaimKeeper,
                 deadlines: migration_deadlines.MigrationDeadlines) -> None:
        self._driver, self._settings = shared.driver, shared.settings
        self._outcomes, self._clock = shared.outcomes, shared.clock
        self._monotonic = shared.monotonic
        self._store, self._keeper, self._deadlines = store, keeper, deadlines
        self._handovers = escalation.HandoverHistory()

    def follow_step(self, row: rows.TaskRow, flight: in_flight_migrations.InFlightMigration,
                    progress: base.MigrationProgress) -> rows.TaskRow:
        """Record how Nova carries a step out; have a migration aborted that does not end by it.

        Post-copy pauses no guest, and Nova does not abort it.

        :returns: the row as it is now.
        """
        step = _find_own_step(row)
        if (step is None or step.answer == model.ACCEPTED_POSTCOPY
                or progress.stage is not base.MigrationStage.RUNNING
                or row.error == migration_deadlines.ABORTING_FORCED):
            return row
        try:
            with base.check_contract(row.task):
                sample = self._driver.read_copy(row.task, self._bind_marker(row))
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            _log_unknown(row, e)
            return row
        if sample is not None and sample.is_postcopy:
            return self._record_answer(row, step, model.ACCEPTED_POSTCOPY)
        now = self._monotonic()
        if flight.forced_at is None:  # A predecessor took the step.
            flight.forced_at = now - (0.0 if self._clock.has_jumped() else max(
                0.0, self._clock() - step.at))
        patience = self._settings.escalation_limits.compute_patience(self._settings.look_interval)
        if now - flight.forced_at <= patience:
            return row
        return self._deadlines.begin_abort(row)

    def escalate_migration(self, row: rows.TaskRow,
                           flight: in_flight_migrations.InFlightMigration,
                           progress: base.MigrationProgress) -> None:
        """Measure a migration under way, and take the next step when its time has come.

        :param row: that of a submitted task; its marks have the present phase.
        """
        limits, task = self._settings.escalation_limits, row.task
        began_at = _find_copy_begin(row, progress)
        if (began_at is None or row.reference is None or task.phase is not model.Phase.EVACUATE
                or task.method is not model.MoveMethod.LIVE or not self._settings.begin
                or {step.kind for step in row.escalation}.issuperset(limits.allowed)):
            return
        try:
            with base.check_contract(task):
                sample = self._driver.read_copy(task, self._bind_marker(row))
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            _log_unknown(row, e)
            return
        if sample is not None:
            flight.copies.record_sample(sample, self._monotonic())
        rates = escalation.measure_rates(flight.copies)
        if rates is not None:
            limits = self._share_deadline(task, began_at)
        handover = self._handovers.expect_handover(self._monotonic())
        step = escalation.choose_step(escalation.CopyObservation(
            began_at, rates, flight.copies.measure_age(self._monotonic()),
            self._settings.look_interval, row.escalation, handover),
            limits, self._clock())
        if sample is None or sample.is_postcopy or step is None:
            return
        obstacle = self._find_obstacle(row, step)
        if obstacle is None:
            flight.expected_handover = handover
            self._force_completion(row, flight, dataclasses.replace(
                step, migration_uuid=row.reference))
        elif obstacle != flight.obstacle:
            LOG.warning('%s: no %s now: %s', model.format_task(task), step.kind, obstacle)
        flight.obstacle = obstacle

    def _share_deadline(self, task: model.Task, began_at: float) -> escalation.EscalationLimits:
        """Return the limits of a migration, by the moves that wait if its drain has a deadline."""
        settings = self._settings
        if task.arrive_by is None:
            return settings.escalation_limits
        return escalation.apply_deadline(
            settings.escalation_limits, task.arrive_by, began_at,
            self._store.tasks.count_waiting_moves(task.from_host, model.Phase.EVACUATE),
            min(settings.per_source, settings.per_scope, settings.total))

    def _find_obstacle(self, row: rows.TaskRow, step: model.EscalationStep) -> str | None:
        """Return why the step may not be taken now; it is looked for again at the next look."""
        task = row.task
        hold = (self._store.pauses.find_pause(task.aggregate, step.at)
                or self._settings.frozen(step.at) or self._clock.find_problem())
        if hold is not None:
            return str(hold)
        if task.from_host not in self._store.plans.list_draining_hosts():
            return f'host {task.from_host} is not drained any more'
        try:
            with base.check_contract(task):
                self._driver.log_in(task)
                obstacle = self._driver.find_shutdown_obstacle(task, step.at)
        except exception.MigrationError as e:
            return f'it is not known whether that is allowed: {e}'
        return None if obstacle is None else f'the instance may not be moved {obstacle}'

    def _force_completion(self, row: rows.TaskRow, flight: in_flight_migrations.InFlightMigration,
                          step: model.EscalationStep) -> None:
        """Commit the step, then send its request.

        A request that was certainly not sent leaves no step.
        """
        self._keeper.record_step()
        task, began = row.task, self._monotonic()
        begin = f'{model.format_task(task)}: {step.kind}, since {step.reason}'
        if not self._record_steps(row, *row.escalation, step):
            return
        flight.forced_at = began
        try:
            with base.check_contract(task):
                answer = self._driver.force_completion(
                    task, self._bind_marker(row),
                    lambda: self._monotonic() - began <= self._settings.claim_seconds / 2)
        except exception.HeldUp as e:
            LOG.warning('%s: %s It is tried again.', begin, exception.format_sentence(e))
            flight.forced_at = None
            self._record_steps(row, *row.escalation)
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            LOG.warning('%s: %s It may be at work, and is not repeated.', begin,
                        exception.format_sentence(e))
        else:
            LOG.warning('%s: %s', begin, answer or model.ACCEPTED)
            self._record_steps(row, *row.escalation, dataclasses.replace(
                step, answer=answer or model.ACCEPTED))

    def _record_steps(self, row: rows.TaskRow, *steps: model.EscalationStep) -> bool:
        return self._outcomes.update_task(
            row, row.task.state, [row.task.state],
            escalation=rows.format_escalation(steps, row.later_steps))

    def _record_answer(self, row: rows.TaskRow, step: model.EscalationStep,
                       answer: str) -> rows.TaskRow:
        steps = (*row.escalation[:-1], dataclasses.replace(step, answer=answer))
        self._record_steps(row, *steps)
        return dataclasses.replace(row, escalation=steps)

    def measure_step(self, row: rows.TaskRow,
                     flight: in_flight_migrations.InFlightMigration) -> None:
        """Record how long the completion by force took, once the instance has arrived.

        Learn from it unless Nova chose post-copy, or a predecessor expected the seconds. The clocks
        of Nova's services may differ: no more is learnt than has passed since our request.
        """
        step = _find_own_step(row)
        if step is None or step.answer is None:
            return
        try:
            with base.check_contract(row.task):
                seconds = self._driver.read_forced_seconds(row.task)
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            LOG.debug('%s: the length of its completion by force is not known: %s',
                      model.format_task(row.task), e)
            return
        if seconds is not None:
            self._record_steps(row, *row.escalation[:-1],
                               dataclasses.replace(step, seconds=seconds))
            now = self._monotonic()
            if (step.answer == model.ACCEPTED and step.expected_seconds is not None
                    and flight.expected_handover is not None and flight.forced_at is not None):
                self._handovers.record_arrival(
                    min(seconds, now - flight.forced_at),
                    step.expected_seconds - flight.expected_handover, now)

    def _bind_marker(self, row: rows.TaskRow) -> str:
        return self._driver.bind_marker(row.marker or '', row.reference)


def _log_unknown(row: rows.TaskRow, error: exception.MigrationError) -> None:
    LOG.warning('%s: the progress of its copying is not known: %s', model.format_task(row.task),
                exception.format_sentence(error))


def _find_own_step(row: rows.TaskRow) -> model.EscalationStep | None:
    """Return the step that may be at work against the present migration of the task."""
    step = row.escalation[-1] if row.escalation else None
    return step if (step is not None and step.may_be_at_work and row.reference is not None
                    and step.migration_uuid == row.reference) else None


def _find_copy_begin(row: rows.TaskRow, progress: base.MigrationProgress) -> float | None:
    """Return when the copying of the present attempt began, by our clock; None: it is not on."""
    if progress.phase != attempt_phases.RUNNING:
        return None
    return next((at for phase, at in reversed(row.marks) if phase == attempt_phases.RUNNING), None)
