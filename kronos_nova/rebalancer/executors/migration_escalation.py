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
migration: a successor takes it for sent, and does not repeat it. A step whose request was lost
leaves the migration as it was, and the deadline of the task counts on.
"""

import dataclasses

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import in_flight_migrations
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.executors import worker_collaborators
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)



class MigrationEscalation:
    """Steps against the migrations of one worker."""

    def __init__(self, shared: worker_collaborators.WorkerCollaborators) -> None:
        self._driver, self._settings = shared.driver, shared.settings
        self._outcomes, self._clock = shared.outcomes, shared.clock

    def escalate_migration(self, row: rows.TaskRow,
                           flight: in_flight_migrations.InFlightMigration,
                           progress: base.MigrationProgress) -> None:
        """Measure a migration under way, and take the next step when its time has come.

        :param row: that of a submitted task; its marks have the present phase.
        """
        limits, task = self._settings.escalation_limits, row.task
        began_at = _find_copy_begin(row, progress)
        if (began_at is None or task.deadline is None or task.phase is not model.Phase.EVACUATE
                or {step.kind for step in row.escalation}.issuperset(limits.allowed)
                or self._clock.has_jumped()):
            return
        marker = self._driver.bind_marker(row.marker or '', row.reference)
        try:
            with base.check_contract(task):
                sample = self._driver.read_copy(task, marker)
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            LOG.warning('%s: the progress of its copying is not known: %s',
                        model.format_task(task), exception.format_sentence(e))
            return
        if sample is None:
            return
        flight.record_copy(sample)
        step = escalation.choose_step(escalation.CopyObservation(
            began_at, task.deadline, tuple(flight.copies), self._settings.look_interval,
            row.escalation), limits, self._clock())
        if step is None:
            return
        match step.kind:
            case model.EscalationKind.FORCE_COMPLETE:
                self._force_completion(row, step, marker)
            case model.EscalationKind.COLD:
                self._begin_cold_migration(row, step)

    def _force_completion(self, row: rows.TaskRow, step: model.EscalationStep,
                          marker: str) -> None:
        if self._record_steps(row, *row.escalation, step):
            answer = self._send_step(row, step, marker)
            if answer is not None:
                self._record_steps(row, *row.escalation, dataclasses.replace(step, answer=answer))

    def _begin_cold_migration(self, row: rows.TaskRow, step: model.EscalationStep) -> None:
        """Commit that the live migration is to be aborted; the deadline's looks abort it.

        The task goes back to the queue once the abort has ended: see :mod:`migration_deadlines`.
        """
        task = row.task
        try:
            with base.check_contract(task):
                obstacle = self._driver.find_shutdown_obstacle(task, step.at)
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            LOG.warning('%s: whether it may be moved cold is not known: %s',
                        model.format_task(task), exception.format_sentence(e))
            return
        if obstacle is not None:
            LOG.warning('%s: it may not be moved cold: %s', model.format_task(task), obstacle)
            self._record_steps(row, *row.escalation, dataclasses.replace(
                step, answer=f'it may not be moved {obstacle}'))
        elif self._outcomes.update_task(
                row, TaskState.UNKNOWN, [TaskState.SUBMITTED],
                error=migration_deadlines.ABORTING,
                error_type=exception.MigrationTimeout.wire_type,
                escalation=rows.format_escalation((*row.escalation, step))):
            LOG.warning('%s: its live migration is being aborted, and it is moved cold, since %s',
                        model.format_task(task), step.reason)

    def _send_step(self, row: rows.TaskRow, step: model.EscalationStep,
                   marker: str) -> str | None:
        """Send the request of a step; return Nova's answer, None where it is not known."""
        task, begin = row.task, f'{model.format_task(row.task)}: {step.kind}, since {step.reason}'
        try:
            with base.check_contract(task):
                answer = self._driver.force_completion(task, marker, step.at) or model.ACCEPTED
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            LOG.warning('%s: %s It may be at work, and is not repeated.', begin,
                        exception.format_sentence(e))
            return None
        LOG.warning('%s: %s', begin, answer)
        return answer

    def _record_steps(self, row: rows.TaskRow, *steps: model.EscalationStep) -> bool:
        return self._outcomes.update_task(row, TaskState.SUBMITTED, [TaskState.SUBMITTED],
                                          escalation=rows.format_escalation(steps))

    def measure_step(self, row: rows.TaskRow) -> None:
        """Record how long the completion by force took, once the instance has arrived."""
        if not row.escalation or row.escalation[-1].answer != model.ACCEPTED:
            return
        try:
            seconds = self._driver.read_forced_seconds(row.task)
        except Exception as e:
            LOG.debug('%s: the length of its completion by force is not known: %s',
                      model.format_task(row.task), e)
            return
        if seconds is not None:
            last = dataclasses.replace(row.escalation[-1], seconds=seconds)
            self._outcomes.update_task(row, row.task.state, [row.task.state],
                                       escalation=rows.format_escalation(
                                           (*row.escalation[:-1], last)))


def _find_copy_begin(row: rows.TaskRow, progress: base.MigrationProgress) -> float | None:
    """Return when the copying of the present attempt began, by our clock; None: it is not on."""
    if progress.phase != attempt_phases.RUNNING:
        return None
    return next((at for phase, at in reversed(row.marks) if phase == attempt_phases.RUNNING), None)
