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

"""Migrations that Nova began by a request that came too late: nobody wants them any more.

An executor that stands still inside its request loses the task. Another one finds no
migration, and ends the task or goes on with another destination. ``os-migrateLive`` names no
source, so Nova carries out the late request from wherever the instance is by then. Whoever
sent it aborts it.
"""

from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)

#: States in which the executor that holds the task watches the migration.
_WATCHED = (TaskState.SUBMITTING, TaskState.SUBMITTED, TaskState.UNKNOWN)


class StrayMigrations:
    """Those of one executor, until they have ended.

    :param seconds: a request without a migration for so long has begun none.
    """

    def __init__(self, store: api.Store, driver: base.Executor, seconds: float) -> None:
        self._store = store
        self._driver = driver
        self._seconds = seconds
        self._since: dict[str, tuple[rows.TaskRow, float]] = {}
        self._aborted: set[str] = set()

    def examine(self, row: rows.TaskRow, now: float) -> bool:
        """Read a task again that was lost during its request; True: what Nova may have begun
        is to be aborted.

        :param row: as it was when it was asked for, with its marker.
        """
        current = self._find_unwanted(row)
        if current is None:
            return False
        LOG.error('Instance %s: task %s: the request to migrate it to %s came too late: the task '
                  '%s meanwhile. Its migration is aborted, if Nova has begun it.',
                  row.task.instance_uuid, row.task.task_id, row.task.to_host, current)
        self._since[row.task.task_id] = row, now
        return True

    def pursue(self, now: float) -> None:
        """Look at each and abort it, until it has ended."""
        for task_id, (row, since) in list(self._since.items()):
            if self._find_unwanted(row) is None or self._has_ended(row, since, now):
                del self._since[task_id]
                self._aborted.discard(task_id)

    def _find_unwanted(self, row: rows.TaskRow) -> str | None:
        """Tell what became of the task, a verb phrase; None: another executor watches the
        same move."""
        current = self._store.task(row.task.task_id)
        if current is None:
            return 'was deleted'
        if current.task.state in _WATCHED:
            if current.task.to_host == row.task.to_host:
                return None
            return f'went on to {current.task.to_host}'
        return f'became {current.task.state}'

    def _has_ended(self, row: rows.TaskRow, since: float, now: float) -> bool:
        task, marker = row.task, row.marker or ''
        try:
            progress = self._driver.look(task, marker)
            if progress.stage is base.Stage.ABSENT:
                return now - since > self._seconds
            if progress.stage in (base.Stage.WAITING, base.Stage.RUNNING):
                self._abort(row)
                return False
        except exception.MigrationError as e:
            LOG.warning('Task %s: its late migration: %s It is tried again.', task.task_id,
                        exception.sentence(e))
            return False
        if progress.reference in self._find_known(row):
            return True
        if progress.stage is base.Stage.COMPLETED:
            LOG.error('Instance %s: task %s: its late migration %s has moved it to %s before it '
                      'could be aborted. Look where the instance belongs.', task.instance_uuid,
                      task.task_id, progress.reference, task.to_host)
        elif progress.stage is base.Stage.UNCONFIRMED:
            LOG.error('Instance %s: task %s: its late cold migration %s waits on %s and cannot be '
                      'aborted. Revert it: openstack server resize revert %s', task.instance_uuid,
                      task.task_id, progress.reference, task.to_host, task.instance_uuid)
        else:
            LOG.warning('Instance %s: task %s: its late migration %s has ended: %s',
                        task.instance_uuid, task.task_id, progress.reference,
                        progress.detail or progress.stage)
        return True

    def _find_known(self, row: rows.TaskRow) -> set[str | None]:
        """Migrations that the task itself tells of."""
        current = self._store.task(row.task.task_id)
        if current is None:
            return {None}
        return {None, current.reference, *(a.migration_uuid for a in current.attempts)}

    def _abort(self, row: rows.TaskRow) -> None:
        task = row.task
        if task.task_id in self._aborted or not self._driver.abort(task, row.marker or ''):
            return
        self._aborted.add(task.task_id)
        LOG.warning('Instance %s: task %s: its late migration to %s is being aborted',
                    task.instance_uuid, task.task_id, task.to_host)
