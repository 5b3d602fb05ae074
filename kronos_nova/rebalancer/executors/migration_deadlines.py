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

"""Deadlines of migrations: a task past its own is unknown, and the worker may abort its migration.

The worker still watches the task, and the task keeps its slot.
"""

import dataclasses

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import endings
from kronos_nova.rebalancer.executors import in_flight_migrations
from kronos_nova.rebalancer.executors import worker_collaborators
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)

LATE = 'The migration took longer than its deadline.'
ABORTING = 'The migration took longer than its deadline and is being aborted.'
#: The guest may be paused: every executor aborts such a migration, with any options.
ABORTING_FORCED = ('The migration did not arrive in time after its completion by force and is '
                   'being aborted.')
_ABORTS = (ABORTING, ABORTING_FORCED)


def describe_delay(row: rows.TaskRow) -> str:
    """Describe why the migration is aborted, as a clause after its subject."""
    return ('did not arrive in time after its completion by force'
            if row.error == ABORTING_FORCED else 'took longer than its deadline')


class MigrationDeadlines:
    """Deadlines of one worker's migrations, and the aborts after them."""

    def __init__(self, shared: worker_collaborators.WorkerCollaborators) -> None:
        self._driver, self._settings = shared.driver, shared.settings
        self._outcomes, self._clock = shared.outcomes, shared.clock
        self._monotonic = shared.monotonic

    def check_deadline(self, row: rows.TaskRow) -> bool:
        """Set a task to unknown once it is past its deadline.

        A row that says that it is being aborted keeps saying so: a predecessor, with another
        ``abort_at_deadline``, may have asked.

        :returns: False: the task is not late, or this executor has lost it.
        """
        if not self.is_late(row):
            return False
        wanted = LATE
        if row.error in _ABORTS:
            wanted = row.error
        elif self._may_abort(row):
            wanted = ABORTING
        if (row.error_type, row.task.state) != (
                exception.MigrationTimeout.wire_type, TaskState.UNKNOWN):
            LOG.warning('%s: %s: it is past its deadline; it keeps its slot and is watched until '
                        'Nova says how it ended. See its migration in Nova.',
                        model.format_task(row.task), exception.MigrationTimeout.wire_type)
        if (row.error, row.task.state) == (wanted, TaskState.UNKNOWN):
            return True
        return self._outcomes.update_task(row, TaskState.UNKNOWN, [row.task.state], error=wanted,
                                          error_type=exception.MigrationTimeout.wire_type)

    def begin_abort(self, row: rows.TaskRow) -> rows.TaskRow:
        """Commit that a migration is to be aborted that its completion by force has not ended.

        :returns: the row as it is now; unchanged, if this executor has lost the task.
        """
        LOG.warning('%s: its live migration has not arrived in time after its completion by force; '
                    'it is to be aborted', model.format_task(row.task))
        if not self._outcomes.update_task(row, TaskState.UNKNOWN, [row.task.state],
                                          error=ABORTING_FORCED,
                                          error_type=exception.MigrationTimeout.wire_type):
            return row
        return dataclasses.replace(
            row, task=dataclasses.replace(row.task, state=TaskState.UNKNOWN),
            error=ABORTING_FORCED, error_type=exception.MigrationTimeout.wire_type)

    def is_late(self, row: rows.TaskRow) -> bool:
        """Return whether the task is past its deadline, or its migration is being aborted.

        An abort is not undone: the database's clock may have been set back since.
        """
        return row.error in _ABORTS or self._is_past_deadline(row)

    def _is_past_deadline(self, row: rows.TaskRow) -> bool:
        return row.task.deadline is not None and self._clock() >= row.task.deadline

    def _may_abort(self, row: rows.TaskRow) -> bool:
        return row.task.method is model.MoveMethod.LIVE and (
            self._settings.abort_at_deadline or row.error == ABORTING_FORCED)

    def abort_migration(self, row: rows.TaskRow,
                        flight: in_flight_migrations.InFlightMigration) -> None:
        """Ask Nova to abort a live migration that takes too long, until Nova accepts.

        The row says so before the request, as with ``submitting``: a successor then knows who
        ended the migration. An executor that cannot write this has lost the task and does not
        abort.
        """
        task = row.task
        if not self._may_abort(row) or flight.has_been_aborted:
            return
        if row.error != ABORTING_FORCED and (
                self._clock.has_jumped() or not self._is_past_deadline(row)):
            return
        try:
            with base.check_contract(task):
                accepted = self._driver.abort(
                    task, self._driver.bind_marker(row.marker or '', row.reference))
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            LOG.warning('%s: %s It is tried again.', model.format_task(task),
                        exception.format_sentence(e))
            return
        if accepted:
            flight.has_been_aborted = True
            LOG.warning('%s: its live migration %s and is being aborted', model.format_task(task),
                        describe_delay(row))

    def is_own_abort(self, row: rows.TaskRow, progress: base.MigrationProgress,
                     flight: in_flight_migrations.InFlightMigration) -> bool:
        """Return whether the migration has ended because we aborted it."""
        if row.error not in _ABORTS:
            return False
        if progress.stage is base.MigrationStage.CANCELLED:
            return flight.has_been_aborted or progress.aborted_by is None
        return endings.is_own_abort(row, progress, flight.has_been_aborted)

    def has_abort_ended(self, row: rows.TaskRow, progress: base.MigrationProgress,
                        flight: in_flight_migrations.InFlightMigration) -> bool:
        """Return whether Nova no longer puts the instance of an aborted migration into ERROR."""
        now = self._clock()
        lasted = flight.measure_doubt(row, base.MigrationStage.CANCELLED, now, self._clock,
                                      self._monotonic())
        if progress.patience and lasted is None:
            self._outcomes.record_doubt(row, base.MigrationStage.CANCELLED, now,
                                        reference=row.reference)
            return False
        return lasted is None or lasted > progress.patience

    def end_aborted_task(self, row: rows.TaskRow, progress: base.MigrationProgress,
                         flight: in_flight_migrations.InFlightMigration) -> None:
        """End a task whose migration we aborted, once Nova has done with the instance."""
        if self.has_abort_ended(row, progress, flight):
            # Where Nova does not tell of aborts, a successor does not know that it accepted ours.
            known = flight.has_been_aborted or progress.aborted is not None
            reset = progress.broken and known and self._reset_state(row.task)
            self._outcomes.record_failure(row, endings.build_abort_error(
                row, progress, reset, describe_delay(row)))

    def _reset_state(self, task: model.Task) -> bool:
        if not self._settings.reset_state_after_abort:
            return False
        try:
            with base.check_contract(task):
                return self._driver.reset_state(task)
        except (exception.NovaClientError, exception.UnexpectedError) as e:
            LOG.warning('%s: %s', model.format_task(task), exception.format_sentence(e))
            return False
