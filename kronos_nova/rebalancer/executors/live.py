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

"""Live migration of a running instance: its progress, its abort and its verification."""

import dataclasses

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import metrics
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.executors import allocation_cleanup
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import endings
from kronos_nova.rebalancer.executors import nova_responses
from kronos_nova.rebalancer.executors import overcommitment
from kronos_nova.rebalancer.executors import submitted_migration

#: Text of Nova's InvalidSharedStorage: the request excludes disk copies, and the instance
#: has disks to copy.
NOT_SHARED = 'is not on shared storage'

ABORT_POLICY = 'os_compute_api:servers:migrations:delete'

#: Nova aborts a live migration in these statuses. Source: nova.compute.api,
#: live_migrate_abort, since 2.65.
ABORTABLE = frozenset({'queued', 'preparing', 'running'})


class LiveMigration(submitted_migration.SubmittedMigration):
    """Steps of a live migration after its submission."""

    RECORD_TYPE = ACTION = nova_api.LIVE_MIGRATION

    def _is_under_way(self, server: model.Instance) -> bool:
        return server.task_state == collector.MIGRATING

    def _find_own_migration(self, migrations: list[nova_api.Migration], task: model.Task,
                            after: int, known: str | None = None) -> nova_api.Migration | None:
        """Find our live migration.

        Until a read has found it, the requesting user tells it from one that an operator began by
        hand between the same hosts: Nova names the user of the newest.
        """
        migration = nova_responses.find_own_migration(migrations, task, after, reference=known)
        if migration is None or known is not None or any(
                m.id > migration.id and m.type == nova_api.LIVE_MIGRATION for m in migrations):
            return migration
        try:
            other = nova_responses.asked_by_another(
                self._nova, task.instance_uuid, nova_api.LIVE_MIGRATION)
        except api.ApiError:
            if not migration.has_ended:
                raise
            other = None  # An ended migration does not wait for its user's name.
        if other is None:
            return migration
        return nova_responses.find_own_migration([m for m in migrations if m.id < migration.id],
                                                 task, after)

    def _judge_migration(self, task: model.Task, migration: nova_api.Migration,
                         server: model.Instance | None,
                         migrations: list[nova_api.Migration]) -> base.MigrationProgress:
        reference = migration.uuid
        match migration.status:
            case 'completed' | 'failed' | 'error' if (
                    server is not None and server.host == task.to_host
                    and server.task_state == collector.MIGRATING):
                return endings.judge_record(task, migration, server)
            case 'completed':
                return base.MigrationProgress(base.MigrationStage.COMPLETED, reference=reference)
            case 'cancelled' if server is None or server.status != nova_responses.ERROR:
                progress = base.MigrationProgress(
                    base.MigrationStage.CANCELLED, 'aborted, or the nova-compute of its source was '
                                          'stopped', reference)
                if server is None:
                    return progress
                aborted, user = nova_responses.read_abort(self._nova, task.instance_uuid)
                return dataclasses.replace(progress, patience=self._find_patience(task),
                                           aborted=aborted, aborted_by=user)
        if server is None:
            return base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted',
                                          reference)
        if migration.has_ended:
            return self._judge_failure(task, migration, server, migrations)
        if server.task_state != collector.MIGRATING:
            return self._judge_left_record(task, migration, server)
        return self._describe_running(migration)

    def _find_patience(self, task: model.Task) -> float:
        """Return the seconds for which Nova may still write ERROR after it wrote ``cancelled``."""
        error_texts = nova_responses.read_action_errors(self._nova, task.instance_uuid,
                                                        nova_api.LIVE_MIGRATION)
        return endings.PATIENCE if error_texts is None else endings.ERROR_PATIENCE

    @staticmethod
    def _find_foreign(migrations: list[nova_api.Migration], task: model.Task,
                      server: model.Instance | None, after: int) -> base.MigrationProgress | None:
        """Return the end of a task whose move an operator made by hand; None: no operator did."""
        migration = nova_responses.find_own_migration(migrations, task, after)
        if (migration is None or migration.status != 'completed' or server is None
                or endings.judge_record(task, migration,
                                        server).ending is not base.MigrationStage.COMPLETED):
            return None
        return base.MigrationProgress(
            base.MigrationStage.LEFT, f'an operator has moved it to {task.to_host} by migration '
                                      f'{migration.uuid}, and Nova has no migration of ours',
            ending=base.MigrationStage.COMPLETED)

    def _judge_absence(self, migrations: list[nova_api.Migration], task: model.Task,
                       server: model.Instance | None, after: int) -> base.MigrationProgress:
        moved = self._find_foreign(migrations, task, server, after)
        if moved is not None:
            return moved
        if server is None:
            return base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted')
        if server.task_state != collector.MIGRATING:
            return base.MigrationProgress(base.MigrationStage.ABSENT,
                                          'Nova has no migration of ours')
        foreign = [m for m in migrations if m.id > after and not m.has_ended]
        if foreign:
            return base.MigrationProgress(base.MigrationStage.ABSENT,
                                          'Nova carries out another migration of this '
                                          f'instance, {foreign[-1].uuid}')
        return base.MigrationProgress(base.MigrationStage.WAITING, 'accepted, not yet recorded',
                                      version='not recorded')

    def _judge_failure(self, task: model.Task, migration: nova_api.Migration,
                       server: model.Instance,
                       migrations: list[nova_api.Migration]) -> base.MigrationProgress:
        """Judge a migration that ended in error, perhaps after the instance had moved.

        :raises ApiError: Nova or Placement could not be read.
        """
        if server.host == task.to_host:
            return base.MigrationProgress(
                base.MigrationStage.COMPLETED,
                f'the migration ended as {migration.status}, but the '
                f'instance is on {task.to_host}', migration.uuid)
        details = nova_responses.read_action_errors(self._nova, task.instance_uuid,
                                                    nova_api.LIVE_MIGRATION)
        shared = next((text for text in details or () if NOT_SHARED in text), None)
        if shared is not None and task.phase in metrics.IMBALANCE:
            return base.MigrationProgress(
                base.MigrationStage.FAILED,
                f'it has disks on {task.from_host} itself, which imbalance moves do not copy. '
                'Allow it with [engine] allow_disk_copy, or set instance_storage = local. '
                f'Nova: migration {migration.status}: {api.format_printable(shared)}',
                migration.uuid,
                'copies-disk')
        failure = nova_responses.build_failure(task, migration, details)
        if server.status == nova_responses.ERROR:
            aborted, user = nova_responses.read_abort(self._nova, task.instance_uuid)
            return dataclasses.replace(failure, broken=True, place=server.host, aborted=aborted,
                                       aborted_by=user)
        if allocation_cleanup.is_superseded(migration, migrations):
            return nova_responses.defer_unexplained(failure, details)
        settling_reason = allocation_cleanup.find_held_allocation(self._nova, self._placement, task,
                                                                  migration)
        full = overcommitment.find_problem(self._placement, task, details or ())
        if settling_reason is None and full is not None:
            return dataclasses.replace(failure, detail=full, rule='source-overcommitted')
        if settling_reason is None and server.task_state == collector.MIGRATING:
            settling_reason = 'Nova still calls the instance migrating'
        if settling_reason is not None:
            return base.MigrationProgress(base.MigrationStage.SETTLING, settling_reason,
                                          migration.uuid)
        aborted, user = (False, None) if details is None else nova_responses.read_abort(
            self._nova, task.instance_uuid)
        if aborted:
            # Nova ends the record before it puts the instance into ERROR.
            return dataclasses.replace(failure, place=server.host, aborted=True, aborted_by=user,
                                       patience=endings.ERROR_PATIENCE)
        return nova_responses.defer_unexplained(failure, details)

    def abort(self, task: model.Task, marker: str) -> bool:
        """Ask Nova to abort our migration: see :class:`base.Executor`."""
        uuid = task.instance_uuid
        try:
            migration = nova_responses.find_own_migration(
                self._nova.list_migrations(uuid), task, nova_responses.newest_before(task, marker),
                reference=nova_responses.find_reference(marker))
            if migration is None or migration.status not in ABORTABLE:
                return False
            response = self._nova.abort_live_migration(uuid, migration.id)
        except api.ApiError as exc:
            raise exception.NovaClientError(
                instance_uuid=uuid,
                problem=f'its live migration could not be aborted: {exc.problem}') from None
        if 200 <= response.status_code < 300:
            return True
        if response.status_code in (400, 404, 409):
            return False  # it has just ended, or cannot be stopped any more
        raise exception.NovaClientError(
            instance_uuid=uuid, problem='Nova refused to abort its live migration: '
                                        + self._nova.api.describe_refusal(response, ABORT_POLICY))

    def post_flight(self, task: model.Task) -> None:
        server = nova_responses.read_moved_instance(self._nova, task)
        if server.host != task.to_host:
            # It came, and its user or an operator has moved it on.
            return
        if server.task_state == collector.MIGRATING:
            raise exception.NovaClientError(
                instance_uuid=task.instance_uuid,
                problem='Nova has not finished its migration yet')
        if server.status not in (statuses.ACTIVE, statuses.PAUSED):
            raise exception.MigrationFailed(
                instance_uuid=task.instance_uuid,
                problem=f'it is on {task.to_host} but {server.status}')
