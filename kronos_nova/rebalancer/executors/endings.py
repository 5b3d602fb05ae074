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

"""Pure rules for the end of a task: how it ends, and with which error.

Nova never finishes some records. While Nova carries out a migration, the server has a task state
of the migration. A record that is not over while the server has none was left behind: nova-compute
was killed (Nova repairs records in ``running`` only), the instance was evacuated, or an
administrator reset its state. The place of the instance decides how such a task ends:

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

import re

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import nova_error_classes
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

_ERROR_CLASSES = {nova_error_classes.FaultyPart.DESTINATION: exception.MigrationFailed,
                  nova_error_classes.FaultyPart.INSTANCE: exception.InstanceRefused,
                  nova_error_classes.FaultyPart.API: exception.NovaClientError}


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
    well = {statuses.ACTIVE, statuses.STOPPED} if task.method.is_cold else {
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
    while the guest runs on its source (32.2.1, 33.0.2, 34.0.0). Where Nova does not tell of aborts,
    that we asked for one is enough.
    Source: nova.compute.manager, _do_live_migration.

    :param row: that of a task whose migration an executor asked Nova to abort.
    :param accepted: this executor asked for the abort, and Nova accepted it.
    """
    return ((progress.broken or progress.patience > 0.0)
            and progress.place == row.task.from_host
            and (accepted or (progress.aborted_by is None and (
                progress.aborted is not False
                or _ABORTED.search(progress.detail) is not None))))


def is_foreign_abort(row: rows.TaskRow, progress: base.MigrationProgress) -> bool:
    """Return whether Nova puts the instance into ERROR because an operator aborted its migration.

    An abort that is not our own (:func:`is_own_abort`) is an operator's.
    """
    return ((progress.broken or progress.patience > 0.0) and progress.aborted is True
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
                      reset: bool, delay: str) -> exception.MigrationTimeout:
    """Build the error of a task whose migration we aborted.

    :param reset: the state of the instance was reset to active.
    :param delay: why it was aborted, as a clause after its subject.
    """
    uuid = row.task.instance_uuid
    problem = f'its migration {delay} and was aborted'
    if reset:
        problem += f'; the guest runs on {progress.place}, and its state was reset to active'
    elif progress.broken:
        problem += (f'. This was our own abort: Nova put the instance into ERROR, and the guest '
                    f'runs on {progress.place}. {_find_remedy(row)}')
    return exception.MigrationTimeout(instance_uuid=uuid, problem=problem)


def build_failure_error(row: rows.TaskRow,
                        progress: base.MigrationProgress) -> exception.MigrationError:
    """Build the error of a failed migration.

    A failure found after the deadline is a timeout, and final. A failure by a rule of ours is the
    error that pre-flight would have raised.
    """
    if progress.rule is not None:
        return exception.PreFlightError(instance_uuid=row.task.instance_uuid,
                                        rule=progress.rule, problem=progress.detail)
    if progress.broken:
        error = (exception.AbortSuspected if progress.aborted is None
                 and progress.place == row.task.from_host else exception.InstanceInError)
        return error(
            instance_uuid=row.task.instance_uuid,
            problem=f'its migration from {row.task.from_host} to {row.task.to_host} failed '
                    f'({progress.detail})')
    kind: type[exception.MigrationError] = _ERROR_CLASSES[progress.fault]
    if row.error_type == exception.MigrationTimeout.wire_type:
        kind = exception.MigrationTimeout
    return kind(instance_uuid=row.task.instance_uuid,
                problem=progress.detail or 'the migration failed in Nova')


def build_unexplained_error(row: rows.TaskRow, progress: base.MigrationProgress,
                            seconds: float) -> exception.MigrationError:
    """Build the error of a failure that Nova has not explained for so long.

    After the deadline it is a timeout.
    """
    if row.error_type == exception.MigrationTimeout.wire_type:
        return build_failure_error(row, progress)
    return exception.FailureUntold(
        instance_uuid=row.task.instance_uuid, to_host=row.task.to_host, seconds=f'{seconds:.0f}',
        problem=progress.detail)
