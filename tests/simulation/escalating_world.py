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

"""Drains whose guests write faster than the network, beside all faults of :mod:`executor_world`."""

import dataclasses
import functools
import pathlib
import random
import tempfile
from typing import Any

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.authorization import key_repository
from kronos_nova.rebalancer.authorization import task_authorization
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.store import attempt_phases
from tests.simulation import executor_world
from tests.unit.rebalancer.executors import copied_guests

(FORCE,) = model.EscalationKind
#: The directory of keys is removed when the process ends.
KEYS = tempfile.TemporaryDirectory()
#: Seconds after which Nova ends a live migration that does not converge.
NOVAS_TIMEOUT = 600.0


@functools.cache
def make_keys() -> key_repository.KeyRepository:
    """Return keys that sign the tasks of all runs."""
    path = str(pathlib.Path(KEYS.name) / 'keys')
    key_repository.create_keys(path)
    return key_repository.KeyRepository(path)


@dataclasses.dataclass
class Copy:
    """The copying of a guest that writes faster than the network sends."""

    guest: copied_guests.Guest
    copied_at: float
    sample: escalation.CopySample
    is_paused: bool = False
    in_postcopy: bool = False


class Nova(executor_world.Nova):
    """Every second live migration does not converge."""

    def __init__(self, run: 'Run') -> None:
        super().__init__(run)
        self.copies: dict[int, Copy] = {}

    def request(self, task: model.Task) -> None:
        super().request(task)
        migration = self.migrations[-1]
        if self.run.rng.random() < 0.5:
            guest = copied_guests.Guest(1000.0, 500.0, 1000.0, 100.0)
            self.copies[migration.number] = Copy(
                guest, self.run.now, guest.sample(self.run.now))
            migration.end = base.MigrationStage.FAILED
            migration.ends_at = self.run.now + NOVAS_TIMEOUT

    def advance(self) -> None:
        for copy in filter(None, (self.copies.get(m.number) for m in self.active())):
            while copy.copied_at + 1 <= self.run.now and not copy.is_paused:
                copy.guest.pass_second(parts=4)
                copy.copied_at += 1.0
                copy.sample = copy.guest.sample(copy.copied_at)
        super().advance()


class Driver(executor_world.Driver):
    """Reads copies, forces and aborts migrations."""

    run: 'Run'

    def _find_live(self, task: model.Task, marker: str) -> executor_world.Migration | None:
        own = [m for m in self.run.nova.active() if m.task.instance_uuid == task.instance_uuid
               and m.number > int(marker)]
        return own[-1] if own else None

    def submit(self, task: model.Task, *may_send: Any) -> str | None:
        self.run.check_signature(task)
        return super().submit(task, *may_send)

    def read_progress(self, task: model.Task, marker: str) -> base.MigrationProgress:
        progress = super().read_progress(task, marker)
        if progress.stage is base.MigrationStage.RUNNING:
            migration = self._find_live(task, marker)
            return dataclasses.replace(progress, phase=attempt_phases.RUNNING,
                                       reference=f'migration {migration and migration.number}')
        return progress

    def read_copy(self, task: model.Task, marker: str) -> escalation.CopySample | None:
        self._network(task)
        migration = self._find_live(task, marker)
        copy = migration and self.run.nova.copies.get(migration.number)
        if not copy or self.run.chance(0.1, 'no amounts'):
            return None
        if copy.in_postcopy:
            return escalation.CopySample(0.0, 0, 0, is_postcopy=True)
        return copy.sample

    def force_completion(self, task: model.Task, marker: str, may_send: object) -> str | None:
        row = self.run.store.tasks.find_task(task.task_id)
        assert row is not None
        if row.worker == self.name:
            self.run.must([s.kind for s in row.escalation] == [FORCE],
                          'a force without its committed step')
        if self.run.chance(0.2, 'force held up'):
            raise exception.HeldUp(instance_uuid=task.instance_uuid, problem='no connection')
        self.run.check_signature(task)
        self.run.forced.append(task.task_id)
        self.run.must(self.run.forced.count(task.task_id) == 1, 'forced twice')
        self._network(task)
        if self.run.chance(0.2, 'force refused'):
            return 'Nova refused: HTTP 409'
        migration = self._find_live(task, marker)
        copy = migration and self.run.nova.copies.get(migration.number)
        if migration is not None and copy:
            self.run.must(copy.guest.pause_seconds <= self.run.settings.escalation_limits
                          .longest_pause, 'a longer pause than allowed')
            if self.run.chance(0.3, 'postcopy'):
                copy.in_postcopy = True
                migration.ends_at, migration.end = (
                    self.run.now + 200, base.MigrationStage.COMPLETED)
            elif self.run.chance(0.4, 'pause without end'):
                copy.is_paused = True
            else:
                migration.ends_at, migration.end = (
                    self.run.now + copy.guest.pause_seconds, base.MigrationStage.COMPLETED)
        if self.run.chance(0.2, 'force unanswered'):
            raise exception.NovaClientError(
                instance_uuid=task.instance_uuid, problem='timeout')
        return None

    def find_shutdown_obstacle(self, task: model.Task, now: float) -> str | None:
        self._network(task)
        return 'offline: live' if self.run.chance(0.2, 'contract') else None

    def abort(self, task: model.Task, marker: str) -> bool:
        row = self.run.store.tasks.find_task(task.task_id)
        assert row is not None
        if row.worker == self.name:
            self.run.must(row.error == migration_deadlines.ABORTING_FORCED
                          and bool(row.escalation), 'an abort without its reason')
        self._network(task)
        migration = self._find_live(task, marker)
        copy = migration and self.run.nova.copies.get(migration.number)
        if migration is None or copy and copy.in_postcopy:
            return False
        self.run.count('abort')
        migration.ends_at, migration.end = self.run.now + 3, base.MigrationStage.CANCELLED
        return True


class Run(executor_world.Run):
    """A run whose executors may take each step."""

    settings = dataclasses.replace(
        executor_world.SETTINGS, reset_state_after_abort=True,
        migration_timeout=1000.0, escalation_limits=escalation.EscalationLimits(
            (FORCE,), arrival_seconds=60.0, longest_pause=90.0))
    phase = model.Phase.EVACUATE
    draining = frozenset(executor_world.HOSTS)
    nova_class, driver_class = Nova, Driver
    nova: Nova

    def __init__(self, seed: int) -> None:
        self.forced: list[str] = []
        #: What else happens does not depend on it.
        self.deadline_chance = random.Random(f'deadline {seed}')
        self.signer = task_authorization.TaskSigner(make_keys())
        self.verifier = task_authorization.TaskVerifier(make_keys())
        super().__init__(seed)

    def complete_task(self, task: model.Task) -> model.Task:
        """Give half of the drains a deadline, which may have passed, and sign the task."""
        due = self.now + self.deadline_chance.choice([-60.0, 30.0, 300.0, 3000.0])
        arrive_by = due if self.deadline_chance.random() < 0.5 else None
        (signed,) = self.signer.grant_tasks(
            [dataclasses.replace(task, arrive_by=arrive_by)], (), 'engine', self.now, needed=0,
            begin_within=executor_world.DAY)
        return signed

    def check_signature(self, task: model.Task) -> None:
        try:
            self.verifier.check_task(task, self.now)
        except exception.TaskNotAuthorized as e:
            self.must(False, f'a request that nobody signed: {e}')
        self.count('deadline' if task.arrive_by is not None else 'no deadline')

    def check_end(self) -> None:
        super().check_end()
        for row in self.rows():
            assert len(row.escalation) <= 1, 'a step came twice'
            if row.task.state is TaskState.COMPLETED and row.escalation:
                self.count('completed by force')
            if row.error_type == exception.MigrationTimeout.wire_type and row.escalation:
                self.count('ended by the abort of a force')
