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

"""Watch over running migrations: submitted -> looks -> post-flight -> the end of the task.

Each look asks the driver for the progress of one migration, and writes what follows to the row:
the phase, a doubt, or the end. A contradiction ends a task only once it has lasted; the row has its
start, so that a successor goes on with it.
"""

from collections.abc import Mapping
import dataclasses

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import claim_keeper
from kronos_nova.rebalancer.executors import endings
from kronos_nova.rebalancer.executors import in_flight_migrations
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.executors import migration_escalation
from kronos_nova.rebalancer.executors import outcomes
from kronos_nova.rebalancer.executors import service_breakers
from kronos_nova.rebalancer.executors import unchanged_records
from kronos_nova.rebalancer.executors import worker_collaborators
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)

#: Stages in which Nova has done its part.
_OVER = (base.MigrationStage.COMPLETED, base.MigrationStage.FAILED, base.MigrationStage.CANCELLED,
         base.MigrationStage.SETTLING,
         base.MigrationStage.UNTOLD)


def read_phase_seconds(driver: base.Executor, row: rows.TaskRow) -> Mapping[str, float]:
    """Return the phase times of the driver, which are better than those of looks.

    Looks come every look_interval.
    """
    if row.reference is None or all(p != attempt_phases.PRE_CHECK for p, _at in row.marks):
        return {}
    try:
        return driver.read_phase_seconds(row.task, row.reference)
    except Exception as e:
        LOG.debug('%s: its phase durations come from polling alone: %s',
                  model.format_task(row.task), e)
        return {}


class MigrationWatch:
    """Watch of one worker over the migrations of its tasks."""

    def __init__(self, shared: worker_collaborators.WorkerCollaborators, store: api.Store,
                 keeper: claim_keeper.TaskClaimKeeper) -> None:
        self._driver, self._settings = shared.driver, shared.settings
        self._outcomes, self._services = shared.outcomes, shared.services
        self._clock, self._monotonic = shared.clock, shared.monotonic
        self._deadlines = migration_deadlines.MigrationDeadlines(shared)
        self._escalation = migration_escalation.MigrationEscalation(
            shared, store, keeper, self._deadlines)

    def watch_task(self, row: rows.TaskRow,
                   flight: in_flight_migrations.InFlightMigration) -> None:
        """Look at the migration of a task; while Nova does not work, only the deadline counts.

        :raises StoreError: the database is away; a later look goes on.
        """
        if self._services.find_open(service_breakers.WATCHING, self._clock()) is not None:
            self._deadlines.check_deadline(row)
            return
        task, read_at = row.task, self._monotonic()
        progress: base.MigrationProgress | None = None
        try:
            with base.check_contract(task):
                progress = self._driver.read_progress(task, self._bind_marker(row))
            if progress.source is not None:
                # Nova carries our request out from where it found the instance.
                task = dataclasses.replace(task, from_host=progress.source)
                row = dataclasses.replace(row, task=task)
            if progress.stage.is_terminal:
                row = dataclasses.replace(row, reference=progress.reference or row.reference)
            if progress.stage is base.MigrationStage.COMPLETED:
                with base.check_contract(task):
                    self._driver.post_flight(task)
        except exception.UnexpectedError:
            self._deadlines.check_deadline(row)
        except exception.NovaClientError as e:
            LOG.warning('%s: %s It is looked at again.', model.format_task(task),
                        exception.format_sentence(e))
            if isinstance(e, exception.ServiceUnavailable):
                self._services.record_failure(e, task, self._clock())
            self._deadlines.check_deadline(self._record_phase(row, progress))
        except (exception.InstanceInError, exception.PreFlightError) as e:
            self._outcomes.record_failure(row, e)
        except exception.MigrationError as e:
            self._handle_unverified(self._record_phase(row, progress), flight, e)
        else:
            self._services.record_success(service_breakers.WATCHING, self._clock())
            self._handle_progress(self._record_phase(row, progress), flight, progress, read_at)

    def _handle_progress(self, row: rows.TaskRow, flight: in_flight_migrations.InFlightMigration,
                         progress: base.MigrationProgress, read_at: float) -> None:
        """End the task, or write what the progress means for it.

        :param read_at: monotonic time before the look.
        """
        match progress.stage:
            case base.MigrationStage.COMPLETED:
                self._escalation.measure_step(row, flight)
                self._outcomes.end_task(row, TaskState.COMPLETED)
            case base.MigrationStage.FAILED | base.MigrationStage.CANCELLED if (
                    self._deadlines.is_own_abort(row, progress, flight)):
                self._deadlines.end_aborted_task(row, progress, flight)
            case base.MigrationStage.FAILED if endings.is_foreign_abort(row, progress):
                if self._deadlines.has_abort_ended(row, progress, flight):
                    self._outcomes.end_task(row, TaskState.CANCELLED, outcomes.CANCELLED_TYPE,
                                            endings.describe_foreign_abort(row, progress))
            case base.MigrationStage.FAILED:
                self._outcomes.record_failure(row, endings.build_failure_error(row, progress))
            case base.MigrationStage.CANCELLED:
                self._outcomes.end_task(row, TaskState.CANCELLED, outcomes.CANCELLED_TYPE,
                                        progress.detail or 'The migration was cancelled in Nova.')
            case base.MigrationStage.SETTLING | base.MigrationStage.UNTOLD:
                self._handle_settling(row, progress, flight)
            case base.MigrationStage.LEFT:
                self._handle_left_record(row, progress, flight)
            case base.MigrationStage.ABSENT:
                self._handle_absence(row, flight)
            case base.MigrationStage.UNCONFIRMED:
                self._follow_migration(row, flight, progress, read_at)
                self._confirm_migration(row)
            case _:
                self._follow_migration(row, flight, progress, read_at)

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
            self._outcomes.update_task(row, row.task.state, [row.task.state],
                                       timings=attempt_phases.format_phase_starts(row.marks))
        return row

    def _follow_migration(self, row: rows.TaskRow,
                          flight: in_flight_migrations.InFlightMigration,
                          progress: base.MigrationProgress, read_at: float) -> None:
        """Write that the migration is under way; past its deadline, have it aborted."""
        reference = progress.reference or row.reference
        flight.seen = unchanged_records.follow_version(
            row, flight.seen, progress.version, now=self._clock(), read_at=read_at,
            monotonic=self._monotonic())
        since, doubt = (flight.seen and flight.seen.note) or (None, None)
        changed = (reference, since, doubt) != (row.reference, row.doubt_since, row.doubt)
        row = self._escalation.follow_step(
            dataclasses.replace(row, reference=reference), flight, progress)
        if self._deadlines.is_late(row):
            still_ours = self._deadlines.check_deadline(row)
            if still_ours and changed:
                still_ours = self._outcomes.update_task(
                    row, TaskState.UNKNOWN, [TaskState.UNKNOWN],
                    doubt_since=since, doubt=doubt, reference=reference)
            if still_ours:
                self._deadlines.abort_migration(row, flight)
            return
        state = row.task.state
        if state is not TaskState.SUBMITTED:
            LOG.info('%s: its migration is found in Nova (%s)', model.format_task(row.task),
                     progress.stage)
            state = TaskState.SUBMITTED
        if changed or state is not row.task.state:
            self._outcomes.update_task(
                row, state, [row.task.state], reference=reference, doubt_since=since,
                doubt=doubt, error=None, error_type=None)
        if row.task.state is TaskState.SUBMITTED:
            self._escalation.escalate_migration(row, flight, progress)

    def _measure_doubt(self, row: rows.TaskRow, flight: in_flight_migrations.InFlightMigration,
                       stage: base.MigrationStage, now: float) -> float | None:
        return flight.measure_doubt(row, stage, now, self._clock, self._monotonic())

    def _handle_left_record(self, row: rows.TaskRow, progress: base.MigrationProgress,
                            flight: in_flight_migrations.InFlightMigration) -> None:
        """End the task by the place of its instance, once the contradiction has lasted.

        The attempt has no phases: its duration is unknown.
        """
        task, now = row.task, self._clock()
        lasted = self._measure_doubt(row, flight, progress.stage, now)
        if lasted is None:
            LOG.info('%s: %s; the task ends by where the instance is unless that changes within '
                     '%.0f s', model.format_task(task), progress.detail, progress.patience)
            self._outcomes.record_doubt(row, progress.stage, now, reference=progress.reference)
            return
        if lasted <= progress.patience:
            return
        row = dataclasses.replace(row, marks=())
        match progress.ending:
            case base.MigrationStage.COMPLETED:
                LOG.warning('%s: completed: %s. See nova-manage placement audit',
                            model.format_task(task), progress.detail)
                self._outcomes.end_task(row, TaskState.COMPLETED)
            case base.MigrationStage.CANCELLED:
                self._outcomes.end_task(row, TaskState.CANCELLED, outcomes.CANCELLED_TYPE,
                                        progress.detail)
            case _:
                self._outcomes.record_failure(row, endings.build_error(row, progress))

    def _confirm_migration(self, row: rows.TaskRow) -> None:
        """Confirm a cold migration.

        Nova refuses a second confirmation, so a repetition by a successor is harmless.
        """
        try:
            with base.check_contract(row.task):
                self._driver.confirm(row.task, self._bind_marker(row))
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            LOG.warning('%s: %s It is looked at again.', model.format_task(row.task),
                        exception.format_sentence(e))
            return
        LOG.info('%s: its cold migration to %s is confirmed', model.format_task(row.task),
                 row.task.to_host)

    def _handle_absence(self, row: rows.TaskRow,
                        flight: in_flight_migrations.InFlightMigration) -> None:
        now = self._clock()
        lasted = self._measure_doubt(row, flight, base.MigrationStage.ABSENT, now)
        if lasted is None:
            state = row.task.state
            if state is TaskState.SUBMITTING:
                state = TaskState.UNKNOWN
                LOG.warning('%s: it is not known whether its migration was asked for, and Nova '
                            'shows none; it is watched for %.0f s', model.format_task(row.task),
                            self._settings.absent_seconds)
            self._outcomes.record_doubt(row, base.MigrationStage.ABSENT, now, state)
        elif lasted > self._settings.absent_seconds:
            self._outcomes.record_failure(row, exception.NovaClientError(
                instance_uuid=row.task.instance_uuid,
                problem='Nova shows no migration for our request'))

    def _handle_settling(self, row: rows.TaskRow, progress: base.MigrationProgress,
                         flight: in_flight_migrations.InFlightMigration) -> None:
        """Wait until Nova has released the claims of a failed migration and recorded the reason.

        The wait is limited.
        """
        now = self._clock()
        lasted = self._measure_doubt(row, flight, progress.stage, now)
        if lasted is None:
            self._log_settling(row.task, progress)
            self._outcomes.record_doubt(row, progress.stage, now, reference=progress.reference)
        elif lasted > self._settings.settling_seconds:
            row = dataclasses.replace(row, reference=progress.reference or row.reference)
            if progress.stage is base.MigrationStage.UNTOLD:
                self._outcomes.record_failure(
                    row, endings.build_unexplained_error(row, progress, lasted))
                return
            self._outcomes.record_failure(row, exception.AllocationsLeft(
                instance_uuid=row.task.instance_uuid,
                problem=f'its migration to {row.task.to_host} failed, and '
                        f'{lasted:.0f} s later {progress.detail}'))

    def _log_settling(self, task: model.Task, progress: base.MigrationProgress) -> None:
        if progress.stage is base.MigrationStage.UNTOLD:
            LOG.info('%s: its migration to %s failed (%s), and Nova has not said why yet; '
                     'repeating the question for up to %.0f s', model.format_task(task),
                     task.to_host, progress.detail, self._settings.settling_seconds)
        else:
            LOG.info('%s: its migration to %s failed; before anything else, %s',
                     model.format_task(task), task.to_host, progress.detail)

    def _handle_unverified(self, row: rows.TaskRow, flight: in_flight_migrations.InFlightMigration,
                           error: exception.MigrationError) -> None:
        """Fail a task whose instance looks wrong for a while although Nova says completed."""
        now = self._monotonic()
        if flight.unverified_since is None:
            flight.unverified_since = now
        if now - flight.unverified_since > self._settings.absent_seconds:
            self._outcomes.end_task(row, TaskState.FAILED, error.wire_type, str(error),
                                    quarantine=True)
