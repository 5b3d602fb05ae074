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

"""Unwanted migrations, which Nova began by a request that came too late.

An executor that stands still inside its request loses the task. Another executor finds no
migration, and ends the task or goes on with another destination. ``os-migrateLive`` names no
source, so Nova carries out the late request from the instance's current host. The executor that
sent the request aborts its migration.
"""

from collections.abc import Callable
import dataclasses

from oslo_log import log as logging
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)

#: States in which the executor that holds the task watches the migration.
_WATCHED = (TaskState.SUBMITTING, TaskState.SUBMITTED, TaskState.UNKNOWN)
#: Number of an instance's newest tasks that may own a migration.
_NEWEST_TASKS = 20


@dataclasses.dataclass(slots=True)
class _LostRequest:
    """A request whose task was lost.

    ``row``: the task's row at the time of the request. ``ends_since``: when the driver first found
    that the migration is no longer under way. Both times are monotonic.
    """

    row: rows.TaskRow
    since: float
    has_been_told: bool = False
    has_been_aborted: bool = False
    ends_since: float | None = None


def _may_adopt(watchers: list[rows.TaskRow]) -> bool:
    """Return whether an executor may still take our migration for that of its task.

    It takes the newest migration, until a look has found one and the row has its UUID.
    """
    return not all(uuidutils.is_uuid_like(row.reference) for row in watchers)


class StrayMigrations:
    """Late migrations of one executor, until they have ended.

    A migration is late when no executor watches it: the task of its request ended, went on to
    another host, or followed an earlier migration.

    :param seconds: a request without a migration for so long has begun none.
    :param monotonic: returns seconds that no change of a clock affects.
    :param resets_state: make an instance active again that Nova puts into ERROR because its late
        migration was aborted.
    """

    def __init__(self, store: api.Store, driver: base.Executor, seconds: float,
                 monotonic: Callable[[], float], resets_state: bool = False) -> None:
        self._store = store
        self._driver = driver
        self._seconds = seconds
        self._monotonic = monotonic
        self._resets_state = resets_state
        self._requests: dict[str, _LostRequest] = {}

    def reread_lost_task(self, row: rows.TaskRow) -> None:
        """Read a task again that was lost during its request.

        :param row: the row at the time of the request, with its marker.
        :raises StoreError: the database is away.
        """
        self.keep_lost_request(row)
        if not self._list_watchers(row):
            self._log_late_request(self._requests[row.task.task_id])

    def keep_lost_request(self, row: rows.TaskRow) -> None:
        """Keep the request for :meth:`abort_late_migrations`: the database cannot be read now."""
        self._requests[row.task.task_id] = _LostRequest(row, self._monotonic())

    def abort_late_migrations(self) -> None:
        """Look at each late migration and abort it, until it has ended.

        :raises StoreError: the database is away.
        """
        for task_id, request in list(self._requests.items()):
            watchers = self._list_watchers(request.row)
            if _may_adopt(watchers):
                continue
            if not watchers:
                self._log_late_request(request)
            if self._has_ended(request):
                del self._requests[task_id]

    def close(self) -> None:
        """Look at each for the last time, and log those that an operator has to abort.

        :raises StoreError: the database is away.
        """
        try:
            self.abort_late_migrations()
        finally:
            for task in (request.row.task for request in self._requests.values()
                         if request.has_been_told and not request.has_been_aborted):
                LOG.error('%s: this executor stops before it could abort a late migration to %s. '
                          'See openstack server migration list --server %s, and abort it.',
                          model.format_task(task), task.to_host, task.instance_uuid)

    def _log_late_request(self, request: _LostRequest) -> None:
        """Log once that the request came too late."""
        if not request.has_been_told:
            task, request.has_been_told = request.row.task, True
            LOG.error('%s: the request to migrate the instance to %s came too late: the task %s '
                      'meanwhile. Its migration is aborted, if Nova has begun it.',
                      model.format_task(task), task.to_host, self._describe_course(request.row))

    def _list_watchers(self, row: rows.TaskRow) -> list[rows.TaskRow]:
        """Return the tasks whose executors watch the same move: this task or another one."""
        return [other_row for other_row in self._store.tasks.list_instance_tasks(
                    row.task.instance_uuid, _NEWEST_TASKS)
                if other_row.task.state in _WATCHED and other_row.task.to_host == row.task.to_host]

    def _describe_course(self, row: rows.TaskRow) -> str:
        """Return how the task went on, as a verb phrase."""
        current = self._store.tasks.find_task(row.task.task_id)
        if current is None:
            return 'was deleted'
        if current.task.state not in _WATCHED:
            return f'became {current.task.state}'
        if current.task.to_host != row.task.to_host:
            return f'went on to {current.task.to_host}'
        return f'followed migration {current.reference}'

    def _has_ended(self, request: _LostRequest) -> bool:
        task, marker, now = request.row.task, request.row.marker or '', self._monotonic()
        try:
            known = self._find_known(request.row)
            # Nova carries the request out from the instance's current host.
            task = self._driver.trace_late_request(task, marker, known)
            progress = self._driver.read_progress(task, marker)
            if progress.stage is base.MigrationStage.ABSENT:
                return now - request.since > self._seconds
            if progress.reference in self._find_known(request.row):
                return True
            if _may_adopt(self._list_watchers(request.row)):
                return False
            self._log_late_request(request)
            if progress.stage in (base.MigrationStage.WAITING, base.MigrationStage.RUNNING):
                self._abort(request, task, progress)
                return False
            if request.ends_since is None:
                request.ends_since = now
            if now - request.ends_since < self._find_patience(progress):
                return False
            self._log_end(task, progress)
        except exception.MigrationError as e:
            LOG.warning('%s: its late migration: %s It is tried again.', model.format_task(task),
                        exception.format_sentence(e))
            return False
        except exception.StoreError:
            raise
        except Exception:
            LOG.exception('%s: unexpected error; please report it. Its late migration to %s is '
                          'not watched any more: look at the migrations of the instance.',
                          model.format_task(task), task.to_host)
        return True

    def _find_patience(self, progress: base.MigrationProgress) -> float:
        """Return the seconds for which this progress may still change."""
        if progress.stage.is_terminal or progress.stage is base.MigrationStage.UNCONFIRMED:
            return progress.patience
        return progress.patience or self._seconds

    def _log_end(self, task: model.Task, progress: base.MigrationProgress) -> None:
        if progress.stage is base.MigrationStage.COMPLETED:
            LOG.error('%s: its late migration %s has moved the instance to %s before it could be '
                      'aborted. Look where the instance belongs.', model.format_task(task),
                      progress.reference, task.to_host)
        elif progress.stage is base.MigrationStage.UNCONFIRMED:
            LOG.error('%s: its late cold migration %s waits on %s and cannot be aborted. Revert '
                      'it: openstack server resize revert %s', model.format_task(task),
                      progress.reference, task.to_host, task.instance_uuid)
        elif progress.broken and not (self._resets_state and self._driver.reset_state(task)):
            LOG.error('%s: Nova put the instance into ERROR when its late migration %s was '
                      'aborted, and the guest runs on %s. Make it active again: openstack server '
                      'set --state active %s', model.format_task(task), progress.reference,
                      progress.place or task.from_host, task.instance_uuid)
        else:
            LOG.warning('%s: its late migration %s has ended: %s', model.format_task(task),
                        progress.reference, progress.detail or progress.stage)

    def _find_known(self, row: rows.TaskRow) -> set[str]:
        """Return the UUIDs of the migrations that the instance's tasks name."""
        known: set[str | None] = set()
        for other_row in self._store.tasks.list_instance_tasks(row.task.instance_uuid,
                                                               _NEWEST_TASKS):
            known |= {other_row.reference, *(a.migration_uuid for a in other_row.attempts)}
        return {uuid for uuid in known if uuid is not None}

    def _abort(self, request: _LostRequest, task: model.Task,
               progress: base.MigrationProgress) -> None:
        marker = self._driver.bind_marker(request.row.marker or '', progress.reference)
        if request.has_been_aborted or progress.reference is None:
            return
        if not self._driver.abort(task, marker):
            return
        request.has_been_aborted = True
        LOG.warning('%s: its late migration to %s is being aborted', model.format_task(task),
                    task.to_host)
