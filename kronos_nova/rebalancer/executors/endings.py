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

"""Pure rules for the end of a task whose migration record Nova never finishes.

While Nova carries out a migration, the server has a task state of the migration. A record
that is not over while the server has none was left behind: nova-compute was killed (Nova
repairs records in ``running`` only), the instance was evacuated, or an administrator reset its
state. The place of the instance decides how such a task ends:

==================  ===========================  ==================================
Server is on        Server is                    Task ends
==================  ===========================  ==================================
the destination     ACTIVE, PAUSED, (cold)       ``completed``
                    SHUTOFF
the destination     VERIFY_RESIZE, other         ``failed``
either end          ERROR                        ``failed``, quarantined
the source          anything else                ``failed``, not quarantined
another host, none  anything                     ``cancelled``: others moved it
either end          SOFT_DELETED, DELETED        ``cancelled``
==================  ===========================  ==================================

The same holds for a record that is over while the server is still migrating on the
destination. A server that stays in the task state of a migration keeps its task; the
record then does not change, and an operator ends the task (``kronos task resolve``).

Source: nova.compute.manager, _init_instance and _reset_live_migration (32 to 34).
"""

from collections.abc import Callable
import dataclasses
import re
import time

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.store import rows

ERROR = 'ERROR'
DELETED = frozenset({'DELETED', 'SOFT_DELETED'})
#: Seconds that a contradiction must last before we believe it: Nova writes the server first
#: and the record next.
PATIENCE = 300.0
#: The same while the server has another task state, for example during an evacuation.
BUSY_PATIENCE = 600.0
#: Seconds for which Nova may still put the instance into ERROR after ``cancelled``, once the
#: events of its action have ended. Before that: PATIENCE.
ERROR_PATIENCE = 30.0
#: libvirt's texts about an aborted job, as Nova records them.
_ABORTED = re.compile(r'operation aborted|job:? cancell?ed|cancell?ed by client', re.IGNORECASE)
#: Seconds that a record must stay unchanged before we note that.
NOTED_AFTER = 60.0


def judge_record(task: model.Task, migration: nova_api.Migration,
                 server: model.Instance) -> base.MigrationProgress:
    """Return how the task ends if this contradiction lasts.

    :param migration: a record of ours that is not over, or that is over too early.
    :param server: has no task state of a migration, unless the record is over.
    """
    ending, broken = _judge_place(task, server), server.status == ERROR
    where = f'the instance is {server.status} on {server.host or "no host"}'
    return base.MigrationProgress(
        base.MigrationStage.LEFT, f'Nova left migration {migration.uuid} in status '
                                  f'{api.format_printable(migration.status)}, and {where}',
        migration.uuid, broken=broken and ending is base.MigrationStage.FAILED, ending=ending,
        patience=PATIENCE if server.task_state is None else BUSY_PATIENCE)


def _judge_place(task: model.Task, server: model.Instance) -> base.MigrationStage:
    if server.status in DELETED or server.host not in (task.from_host, task.to_host):
        return base.MigrationStage.CANCELLED
    well = {statuses.ACTIVE, statuses.STOPPED} if task.method.cold else {
        statuses.ACTIVE, statuses.PAUSED}
    if server.host == task.to_host and server.status in well:
        return base.MigrationStage.COMPLETED
    return base.MigrationStage.FAILED


def build_error(row: rows.TaskRow, progress: base.MigrationProgress) -> exception.MigrationError:
    """Build the error of a task whose migration record Nova left behind."""
    uuid = row.task.instance_uuid
    if progress.broken:
        return exception.InstanceInError(instance_uuid=uuid, problem=progress.detail)
    if progress.held is not None:
        return exception.AllocationsLeft(
            instance_uuid=uuid, problem=f'{progress.detail}; {progress.held}')
    return exception.MigrationAbandoned(instance_uuid=uuid, problem=progress.detail)


def is_own_abort(row: rows.TaskRow, progress: base.MigrationProgress, accepted: bool) -> bool:
    """Return whether Nova puts the instance into ERROR because we aborted its migration.

    Nova raises libvirt's "job canceled" again after its rollback, and then writes ERROR,
    while the guest runs on its source (32.2.1, 33.0.2, 34.0.0).
    Source: nova.compute.manager, _do_live_migration.

    :param accepted: this executor asked for the abort, and Nova accepted it.
    """
    return ((progress.broken or progress.patience > 0.0)
            and progress.place == row.task.from_host
            and (accepted or (progress.aborted_by is None and (
                progress.aborted or _ABORTED.search(progress.detail) is not None))))


def is_foreign_abort(row: rows.TaskRow, progress: base.MigrationProgress) -> bool:
    """Return whether Nova puts the instance into ERROR because an operator aborted its migration.

    An abort that is not our own (:func:`is_own_abort`) is an operator's.
    """
    return ((progress.broken or progress.patience > 0.0) and progress.aborted
            and progress.place == row.task.from_host)


def describe_foreign_abort(row: rows.TaskRow, progress: base.MigrationProgress) -> str:
    """Describe an operator's abort, which cancelled the task, and the remedy."""
    if not progress.broken:
        return 'Its migration was aborted in Nova, by an operator.'
    return (f'Its migration was aborted in Nova, by an operator. Nova put the instance into '
            f'ERROR, and the guest runs on {progress.place}. {_find_remedy(row)}')


def _find_remedy(row: rows.TaskRow) -> str:
    return f'Make it active again: openstack server set --state active {row.task.instance_uuid}'


def build_abort_error(row: rows.TaskRow, progress: base.MigrationProgress,
                      reset: bool) -> exception.MigrationTimeout:
    """Build the error of a task whose migration we aborted at its deadline.

    :param reset: the state of the instance was reset to active.
    """
    uuid = row.task.instance_uuid
    problem = 'its migration took longer than its deadline and was aborted'
    if reset:
        problem += f'; the guest runs on {progress.place}, and its state was reset to active'
    elif progress.broken:
        problem += (f'. This was our own abort: Nova put the instance into ERROR, and the guest '
                    f'runs on {progress.place}. {_find_remedy(row)}')
    return exception.MigrationTimeout(instance_uuid=uuid, problem=problem)


@dataclasses.dataclass(slots=True)
class _SeenVersion:
    """A version of a record that executors have seen since ``began``, by monotonic time.

    ``note``: the newest note about this version, written at this age in minutes.
    """

    version: str
    began: float
    minutes: int = 0
    note: tuple[float, str] | None = None


class UnchangedRecords:
    """Versions of the migrations' records, and for how long executors have seen each.

    Only monotonic time counts within an executor: the database's clock may jump. Nova's own time
    of a record only tells one version from another, since our clock and Nova's may differ.

    :param monotonic: returns seconds that no change of a clock affects.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, _SeenVersion] = {}

    def find_note(self, row: rows.TaskRow, version: str | None, now: float,
                  read_at: float) -> tuple[float, str] | None:
        """Return ``doubt_since`` and ``doubt`` of a record that has not changed for NOTED_AFTER.

        The note is another one each minute, until the task has lost its slots. None: the record
        has changed since, or its version is unknown.

        :param now: time by the database's clock.
        :param read_at: monotonic time before the look: Nova may have changed the record since.
        """
        task_id, monotonic = row.task.task_id, self._monotonic()
        if version is None:
            self.forget(task_id)
            return None
        read_when = now - (monotonic - read_at)
        seen = self._seen.get(task_id)
        if seen is None:
            seen = self._adopt_note(row, version, read_when, read_at) or _SeenVersion(
                version, monotonic)
        elif seen.version != version:
            seen = _SeenVersion(version, monotonic)
        self._seen[task_id] = seen
        seconds = read_at - seen.began
        minutes = int(min(seconds, rows.SLOT_SECONDS) // 60)
        if seconds >= NOTED_AFTER and minutes != seen.minutes:
            since = read_when - seconds
            seen.minutes, seen.note = minutes, (
                since, rows.note_unchanged(since, version, seconds))
        return seen.note

    @staticmethod
    def _adopt_note(row: rows.TaskRow, version: str, read_when: float,
                    read_at: float) -> _SeenVersion | None:
        """Return the version of a predecessor's note; None: it noted none, or another one."""
        since = rows.find_unchanged_since(row.doubt, row.doubt_since, version)
        if since is None or row.doubt is None:
            return None
        seen = _SeenVersion(version, read_at - rows.count_unchanged_seconds(
            row.doubt, since, version, read_when))
        if rows.has_lost_slots(row.doubt, since):
            seen.minutes, seen.note = int(rows.SLOT_SECONDS // 60), (since, row.doubt)
        return seen

    def forget(self, task_id: str) -> None:
        """Drop the record of a task: a new attempt has another one."""
        self._seen.pop(task_id, None)

    def forget_all_but(self, task_ids: set[str]) -> None:
        """Drop the records of all other tasks."""
        for task_id in self._seen.keys() - task_ids:
            del self._seen[task_id]
