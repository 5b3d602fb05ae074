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
from typing import Any

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.store import attempt_phases
from tests.simulation import executor_world

MIB = 1024 * 1024
FORCE, COLD = model.EscalationKind
#: Seconds after which Nova ends a live migration that does not converge.
NOVAS_TIMEOUT = 400.0


class Nova(executor_world.Nova):
    """Every second live migration does not converge."""

    def __init__(self, run: 'Run') -> None:
        super().__init__(run)
        self.writing: set[int] = set()

    def request(self, task: model.Task) -> None:
        super().request(task)
        migration = self.migrations[-1]
        if task.method is model.MoveMethod.LIVE and self.run.rng.random() < 0.5:
            self.writing.add(migration.number)
            migration.end = base.MigrationStage.FAILED
            migration.ends_at = self.run.now + NOVAS_TIMEOUT


class Driver(executor_world.Driver):
    """The network sends 100 MiB/s; a guest writes 120 MiB/s, or nothing."""

    run: 'Run'

    def _find_live(self, task: model.Task, marker: str) -> executor_world.Migration | None:
        own = [m for m in self.run.nova.active() if m.task.instance_uuid == task.instance_uuid
               and m.number > int(marker) and m.task.method is model.MoveMethod.LIVE]
        return own[-1] if own else None

    def read_progress(self, task: model.Task, marker: str) -> base.MigrationProgress:
        progress = super().read_progress(task, marker)
        if progress.stage is base.MigrationStage.RUNNING:
            return dataclasses.replace(progress, phase=attempt_phases.RUNNING)
        return progress

    def read_copy(self, task: model.Task, marker: str) -> escalation.CopySample | None:
        self._network(task)
        migration = self._find_live(task, marker)
        if migration is None or self.run.chance(0.1, 'no amounts'):
            return None
        left = 20 if migration.number in self.run.nova.writing else -100
        seconds = self.run.now - 1_000_000.0
        return escalation.CopySample(
            self.run.now, int(100 * MIB * seconds), int(max(0.0, 1e5 + left * seconds) * MIB / 50))

    def force_completion(self, task: model.Task, marker: str, now: float) -> str | None:
        row = self.run.store.tasks.find_task(task.task_id)
        assert row is not None
        if row.worker == self.name:
            self.run.must([s.kind for s in row.escalation] == [FORCE],
                          'a force without its committed step')
        self.run.forced.append(task.task_id)
        self.run.must(self.run.forced.count(task.task_id) == 1, 'forced twice')
        self._network(task)
        if self.run.chance(0.1, 'force refused'):
            return 'Nova refused: HTTP 409'
        migration = self._find_live(task, marker)
        if migration is not None and not self.run.chance(0.2, 'force without effect'):
            migration.ends_at, migration.end = self.run.now + 5, base.MigrationStage.COMPLETED
        if self.run.chance(0.1, 'force unanswered'):
            raise executor_world.exception.NovaClientError(
                instance_uuid=task.instance_uuid, problem='timeout')
        return None

    def find_shutdown_obstacle(self, task: model.Task, now: float) -> str | None:
        self._network(task)
        return 'offline: live' if self.run.chance(0.1, 'contract') else None

    def abort(self, task: model.Task, marker: str) -> bool:
        row = self.run.store.tasks.find_task(task.task_id)
        assert row is not None
        if row.worker == self.name:
            self.run.must(row.error == migration_deadlines.ABORTING
                          and COLD in [s.kind for s in row.escalation],
                          'an abort without its committed step')
        self._network(task)
        migration = self._find_live(task, marker)
        if migration is None:
            return False
        self.run.count('abort')
        migration.ends_at, migration.end = self.run.now + 3, base.MigrationStage.CANCELLED
        return True

    def submit(self, task: model.Task, *may_send: Any) -> str | None:
        if task.method is model.MoveMethod.OFFLINE:
            self.run.count('cold')
        return super().submit(task, *may_send)


class Run(executor_world.Run):
    """A run whose executors may take each step."""

    settings = dataclasses.replace(
        executor_world.SETTINGS, reset_state_after_abort=True,
        migration_timeout=300.0, escalation_limits=escalation.EscalationLimits(
            (FORCE, COLD), arrival_seconds=60.0, longest_pause=25.0))
    phase = model.Phase.EVACUATE
    nova_class, driver_class = Nova, Driver
    nova: Nova

    def __init__(self, seed: int) -> None:
        self.forced: list[str] = []
        super().__init__(seed)

    def check_end(self) -> None:
        super().check_end()
        for row in self.rows():
            kinds = [step.kind for step in row.escalation]
            assert len(kinds) == len(set(kinds)), 'a step came twice'
            if row.task.method is model.MoveMethod.OFFLINE:
                assert COLD in kinds
            if row.task.state is TaskState.COMPLETED and kinds == [FORCE]:
                self.count('completed by force')
            if row.task.state is TaskState.COMPLETED and COLD in kinds:
                self.count('completed cold')
