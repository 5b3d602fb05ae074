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

"""A migration that Nova was asked for, as both kinds read its progress."""

import abc
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.executors import allocation_cleanup
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import endings
from kronos_nova.rebalancer.executors import nova_responses
from kronos_nova.rebalancer.store import attempt_phases


class SubmittedMigration(abc.ABC):
    """Steps of a migration after its submission.

    ``RECORD_TYPE``: the type of Nova's migration record. ``ACTION``: the instance action that
    begins such a migration.
    """

    RECORD_TYPE: str
    ACTION: str

    def __init__(self, nova: nova_api.NovaApi, placement: placement_api.PlacementApi) -> None:
        self._nova = nova
        self._placement = placement

    def read_progress(self, task: model.Task, after: int,
                      known: str | None = None) -> base.MigrationProgress:
        """Return the progress of the task's migration.

        :param after: the id of the instance's newest migration before ours.
        :param known: the UUID of our migration, once an earlier call has found it.
        :raises ApiError: Nova or Placement could not be read.
        """
        migrations = self._nova.list_migrations(task.instance_uuid)
        migration = self._find_own_migration(migrations, task, after, known)
        server = nova_responses.find_instance(self._nova, task)
        if migration is None and (server is None or not self._is_under_way(server)):
            # The migration may have begun and ended between the two reads.
            migrations = self._nova.list_migrations(task.instance_uuid)
            migration = self._find_own_migration(migrations, task, after, known)
        if migration is None and known is None:
            migration = nova_responses.find_migration_from_elsewhere(
                self._nova, migrations, task, after, self.RECORD_TYPE, self.ACTION)
        if migration is None:
            return self._judge_absence(migrations, task, server, after)
        task, source = nova_responses.adopt_source_host(task, migration)
        return dataclasses.replace(self._judge_migration(task, migration, server, migrations),
                                   source=source)

    @abc.abstractmethod
    def post_flight(self, task: model.Task) -> None:
        """Verify that the instance is well on ``to_host``: see :class:`base.Executor`."""

    @abc.abstractmethod
    def _is_under_way(self, server: model.Instance) -> bool:
        """Return whether the instance migrates in this way."""

    @abc.abstractmethod
    def _find_own_migration(self, migrations: list[nova_api.Migration], task: model.Task,
                            after: int, known: str | None = None) -> nova_api.Migration | None:
        """Find our migration among those of the instance."""

    @abc.abstractmethod
    def _judge_absence(self, migrations: list[nova_api.Migration], task: model.Task,
                       server: model.Instance | None, after: int) -> base.MigrationProgress:
        """Return the progress of a task without a migration of ours."""

    @abc.abstractmethod
    def _judge_migration(self, task: model.Task, migration: nova_api.Migration,
                         server: model.Instance | None,
                         migrations: list[nova_api.Migration]) -> base.MigrationProgress:
        """Return the progress of our migration.

        :param task: with the source of the migration.
        :raises ApiError: Nova or Placement could not be read.
        """

    def _judge_left_record(self, task: model.Task, migration: nova_api.Migration,
                           server: model.Instance) -> base.MigrationProgress:
        """Return the progress of a record that Nova has left: its instance migrates no longer."""
        progress = endings.judge_record(task, migration, server)
        if progress.ending is not base.MigrationStage.FAILED:
            return progress
        return dataclasses.replace(progress, held=allocation_cleanup.find_held_allocation(
            self._nova, self._placement, task, migration))

    @staticmethod
    def _describe_running(migration: nova_api.Migration) -> base.MigrationProgress:
        stage = (base.MigrationStage.WAITING if migration.status in nova_responses.WAITING
                 else base.MigrationStage.RUNNING)
        return base.MigrationProgress(stage, api.format_printable(migration.status), migration.uuid,
                                      phase=attempt_phases.OF_STATUS.get(migration.status),
                                      version=nova_responses.find_version(migration))
