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

"""Cold migration of a stopped instance: its request, its progress and its confirmation.

Nova moves the instance and then waits (VERIFY_RESIZE) for a confirmation or a revert. Only then it
releases the source's disks and allocations. We confirm our own migrations only. Nova refuses a
second confirmation, so a repetition after a crash is harmless. With Nova's resize_confirm_window
Nova may have confirmed the migration already.
"""

import dataclasses

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.executors import allocation_cleanup
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import nova_responses
from kronos_nova.rebalancer.executors import overcommitment
from kronos_nova.rebalancer.executors import submitted_migration
from kronos_nova.rebalancer.store import attempt_phases

POLICY = 'os_compute_api:os-migrate-server:migrate:host'
CONFIRM_POLICY = 'os_compute_api:servers:confirm_resize'

#: Task states of the instance during the migration, in Nova's order.
RESIZING = frozenset({
    collector.RESIZE_PREP, 'resize_migrating', 'resize_migrated', 'resize_finish',
    'resize_reverting'})


def is_under_way(instance: model.Instance) -> bool:
    """Return whether the instance has a cold migration or resize that is not confirmed."""
    return instance.task_state in RESIZING or instance.status == statuses.UNCONFIRMED


class ColdMigration(submitted_migration.SubmittedMigration):
    """Steps of a cold migration after its submission."""

    RECORD_TYPE = nova_api.MIGRATION
    ACTION = nova_api.MIGRATE

    def _is_under_way(self, server: model.Instance) -> bool:
        return is_under_way(server)

    def _judge_migration(self, task: model.Task, migration: nova_api.Migration,
                         server: model.Instance | None,
                         migrations: list[nova_api.Migration]) -> base.MigrationProgress:
        reference = migration.uuid
        match migration.status:
            case 'confirmed':
                return base.MigrationProgress(base.MigrationStage.COMPLETED, reference=reference)
            case 'reverted' | 'cancelled':
                return base.MigrationProgress(base.MigrationStage.CANCELLED,
                                              f'it was {migration.status} in Nova', reference)
        if server is None:
            return base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted',
                                          reference)
        if server.task_state is None and (migration.has_ended or server.status
                                          == nova_responses.ERROR):
            return self._judge_failure(task, migration, server, migrations)
        if (migration.status == 'finished' and server.task_state is None
                and server.status == statuses.UNCONFIRMED):
            return self._judge_finished(task, migration)
        # The instance has no task state while Nova confirms.
        if server.task_state not in RESIZING and migration.status != 'confirming':
            return self._judge_left_record(task, migration, server)
        return self._describe_running(migration)

    def _find_own_migration(self, migrations: list[nova_api.Migration], task: model.Task,
                            after: int, known: str | None = None) -> nova_api.Migration | None:
        return nova_responses.find_own_migration(migrations, task, after, nova_api.MIGRATION, known)

    def _judge_absence(self, migrations: list[nova_api.Migration], task: model.Task,
                       server: model.Instance | None, after: int) -> base.MigrationProgress:
        if server is None:
            return base.MigrationProgress(base.MigrationStage.CANCELLED, 'the instance was deleted')
        foreign = [m for m in migrations if m.id > after and not m.has_ended]
        if foreign:
            return base.MigrationProgress(base.MigrationStage.ABSENT,
                                          'Nova carries out another migration of this '
                                                    f'instance, {foreign[-1].uuid}')
        if server.task_state == collector.RESIZE_PREP:
            return base.MigrationProgress(base.MigrationStage.WAITING, 'accepted, not yet recorded',
                                          version='not recorded')
        return base.MigrationProgress(base.MigrationStage.ABSENT, 'Nova has no migration of ours')

    def _judge_finished(self, task: model.Task,
                        migration: nova_api.Migration) -> base.MigrationProgress:
        other = nova_responses.asked_by_another(self._nova, task.instance_uuid, nova_api.MIGRATE)
        if other is not None:
            return base.MigrationProgress(
                base.MigrationStage.ABSENT,
                f'its migration {migration.uuid} was asked for by user {other}; '
                                   'it is left to them')
        return base.MigrationProgress(base.MigrationStage.UNCONFIRMED, 'finished, not confirmed',
                                      migration.uuid,
                                      phase=attempt_phases.POST_MIGRATING,
                                      version=nova_responses.find_version(migration))

    def _judge_failure(self, task: model.Task, migration: nova_api.Migration,
                       server: model.Instance,
                       migrations: list[nova_api.Migration]) -> base.MigrationProgress:
        if server.host == task.to_host and server.status != nova_responses.ERROR:
            return base.MigrationProgress(
                base.MigrationStage.COMPLETED,
                f'the migration ended as {migration.status}, but the '
                                      f'instance is on {task.to_host}', migration.uuid)
        details = nova_responses.read_action_errors(self._nova, task.instance_uuid,
                                                    nova_api.MIGRATE)
        failure = nova_responses.build_failure(task, migration, details)
        if server.status == nova_responses.ERROR:
            return dataclasses.replace(failure, broken=True)
        if allocation_cleanup.is_superseded(migration, migrations):
            return nova_responses.defer_unexplained(failure, details)
        settling_reason = allocation_cleanup.find_held_allocation(
            self._nova, self._placement, task, migration)
        full = overcommitment.find_problem(self._placement, task, details or ())
        if settling_reason is None and full is not None:
            return dataclasses.replace(failure, detail=full, rule='source-overcommitted')
        if settling_reason is not None:
            return base.MigrationProgress(base.MigrationStage.SETTLING, settling_reason,
                                          migration.uuid)
        return nova_responses.defer_unexplained(failure, details)

    def confirm_migration(self, task: model.Task) -> None:
        """Confirm our migration.

        :raises NovaClientError: Nova did not accept; the worker looks again.
        """
        uuid = task.instance_uuid
        try:
            response = self._nova.confirm_resize(uuid)
        except api.ApiError as exc:
            raise exception.NovaClientError(
                instance_uuid=uuid,
                problem=f'its migration could not be confirmed: {exc.problem}') from None
        if not 200 <= response.status_code < 300:
            raise exception.NovaClientError(
                instance_uuid=uuid, problem='Nova did not confirm its migration: '
                                            + self._nova.api.describe_refusal(response,
                                                                              CONFIRM_POLICY))

    def post_flight(self, task: model.Task) -> None:
        """Verify that the instance is on its destination and that its source holds nothing.

        It is stopped as before, unless its owner has started it since.
        """
        uuid = task.instance_uuid
        server = nova_responses.read_moved_instance(self._nova, task)
        if server.host != task.to_host:
            # It came, and its user or an operator has moved it on.
            return
        if server.status not in (statuses.STOPPED, statuses.ACTIVE):
            raise exception.MigrationFailed(
                instance_uuid=uuid, problem=f'it is on {task.to_host} but {server.status}')
        try:
            migration = self._find_own_migration(self._nova.list_migrations(uuid), task, 0)
            holders = [uuid] if migration is None else [uuid, migration.uuid]
            holder_allocations = [self._placement.allocations_of(holder) for holder in holders]
        except api.ApiError as exc:
            raise nova_responses.build_read_error(task, exc) from None
        if len(holder_allocations[0]) > 1 or any(holder_allocations[1:]):
            raise exception.MigrationFailed(
                instance_uuid=uuid, problem=(
                    f'it is on {task.to_host}, but Placement still has an allocation for it on '
                    f'{task.from_host}; see nova-manage placement audit'))
