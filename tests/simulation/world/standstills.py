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

"""Migrations of which nothing comes any more, requests that come too late, and aborts.

All of it draws of its own chance: what else happens in a run does not hang on it.
"""

import dataclasses
import random
from typing import TYPE_CHECKING

from oslo_utils import uuidutils

from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import plan_decisions
from tests.simulation.world import cloud
from tests.simulation.world import faults
from tests.simulation.world import invariants

if TYPE_CHECKING:
    from tests.simulation.world import processes
    from tests.simulation.world import records
    from tests.simulation.world import run as runs

#: A run has such executors with this chance.
ABORTING = 0.4
BEFORE = 'executor freezes before its POST arrives'
AFTER = 'executor freezes after its POST arrived'
FROZEN = 100.0, 400.0
LOST, ENDLESS = 'Nova loses a request that it accepted', 'migration never ends'
#: Of a cold migration, by the status in which a live one is left.
COLD_STATUS = {'queued': 'pre-migrating', 'preparing': 'migrating', 'running': 'finished'}
#: What nova-compute writes of an abort. Source: nova.virt.libvirt.driver.
ABORTED = 'operation aborted: migration out job: canceled by client'
#: A record that does not change holds a slot for no longer (seconds): an hour, and the looks
#: and passes until an executor acts on it.
SLOT = 3600.0 + 300.0


@dataclasses.dataclass
class Late:
    """A request that came too late."""

    task_id: str
    instance: str
    process: 'processes.Process'
    #: The name of the process: another one after a crash or a restart.
    name: str
    migration: cloud.Migration


class Standstills:
    """Of one run."""

    def __init__(self, run: 'runs.Run', only: frozenset[str] | None) -> None:
        self.run, self.rng = run, random.Random(f'standstills {run.seed}')
        self.aborts = faults.ABORTS in run.faults.present or (
            only is None and self.rng.random() < ABORTING)
        resets = self.rng.random() < 0.5
        for conf in run.confs:
            conf.set_override('abort_at_deadline', self.aborts, 'executor')
            conf.set_override('reset_state_after_abort', resets, 'executor')
        self.late: list[Late] = []
        #: Migrations that came out of an abort, whose instance goes into ERROR then.
        self._errors: list[tuple[float, cloud.Migration]] = []
        #: Instances that wait for a request that Nova has lost, their task and since when.
        self.lost: dict[str, tuple[str, float]] = {}
        #: Migrations that we aborted when their record was old: the tasks may hold no slot.
        self._aborted_old: list[cloud.Migration] = []
        #: When Nova last told an executor of the migrations of each instance.
        self._read_at: dict[str, float] = {}

    # Freezes within a request.

    def freeze(self, process: 'processes.Process', name: str) -> None:
        """The executor stands still while its request is under way."""
        run = self.run
        if run.current is process and run.can_stand_still() and run.faults.hit(name):
            run.stand_still(process, self.rng.uniform(*FROZEN))

    def is_late(self, task: tuple[str, str, int], host: str) -> bool:
        """Return whether no executor will watch the migration that a request begins.

        It has made the move already, or watches an earlier migration.
        """
        record = self.run.tasks.get(task[0])
        return (record is None or bool(self.run.moves[task[0]]) or record.to_host != host
                or record.state not in ('submitting', 'submitted', 'unknown')
                or uuidutils.is_uuid_like(record.reference))

    def note_late(self, task_id: str, process: 'processes.Process',
                  migration: cloud.Migration) -> None:
        migration.late = task_id
        self.run.counts['requests that came too late'] += 1
        self.late.append(Late(task_id, migration.instance_uuid, process, process.name, migration))

    def find_unsaid(self) -> Late | None:
        """Return a request that came too late and whose executor, alive, has not said so."""
        for late in self.late:
            if late.migration.from_host == late.migration.to_host:
                continue  # a successor's request had moved it there, and Nova refuses this one
            if self._has_record(late.migration):
                continue  # an executor watched it for a later task that makes the same move
            if (late.process.name, late.process.starts_at) == (late.name, None) and not (
                    self.run.was_said_late(late.task_id)):
                return late
        return None

    def _has_record(self, migration: cloud.Migration) -> bool:
        """Return whether a task of the instance has recorded the migration as its own."""
        return any(migration.uuid in (task.reference, *(
                       attempt['migration_uuid'] for attempt in task.attempts))
                   for task in self.run.tasks.values()
                   if task.instance == migration.instance_uuid)

    def note_repeated(self, task_id: str, process: 'processes.Process',
                      migration: cloud.Migration) -> None:
        """Note a request for the move of a task that another executor holds by now."""
        task = self.run.tasks.get(task_id)
        if task is not None and task.worker not in (None, process.name):
            migration.repeated = True
            self.run.counts['requests that a successor repeated'] += 1

    # What Nova leaves.

    def loses(self, instance: cloud.Instance, task: tuple[str, str, int]) -> bool:
        """Whether Nova has said 202, and does nothing."""
        if not task[0] or not self.run.faults.hit(LOST):
            return False
        self.lost[instance.uuid] = task[0], self.run.now
        return True

    def strike(self, migration: cloud.Migration, instance: cloud.Instance) -> bool:
        """Whether Nova has just done its last with a migration."""
        hit = self.run.faults.hit
        if not migration.task_id:
            return False
        if hit(ENDLESS):
            migration.endless, migration.ends_at = True, float('inf')
            return True
        for status in faults.LEFT:
            if hit(f'Nova leaves a migration in {status}'):
                self._leave(migration, instance, status)
                return True
        return False

    def _leave(self, migration: cloud.Migration, instance: cloud.Instance, status: str) -> None:
        """Its record stays as it is; the instance is at one end, and sometimes in ERROR."""
        moved = status == 'post-migrating' or self.rng.random() < 0.2
        if migration.type != cloud.LIVE:
            migration.before = instance.status
            status = COLD_STATUS.get(status, status)
        migration.status, migration.changed_at = status, self.run.now
        if moved:
            instance.host = migration.to_host
            self.run.moved(migration)
        if self.rng.random() < 0.15:
            instance.status = 'ERROR'
        self.end(migration, instance)
        self.run.counts[f'left on the {"destination" if moved else "source"}, '
                        f'{instance.status}'] += 1

    def end(self, migration: cloud.Migration, instance: cloud.Instance | None) -> None:
        """Nova works on it no more."""
        migration.left, migration.endless = True, False
        if instance is not None:
            instance.task_state = None

    # Aborts.

    def abort(self, uuid: str, number: int) -> tuple[int, str]:
        """Return Nova's answer to the abort of a live migration."""
        hit = self.run.faults.hit
        migration = next((m for m in self.run.cloud.migrations if m.id == number
                          and m.instance_uuid == uuid), None)
        if migration is None:
            return 404, 'not found'
        if migration.status not in ('queued', 'preparing', 'running') or hit('abort gets 409'):
            return 409, 'it is not running'
        self.run.counts['aborts that Nova accepted'] += 1
        if migration.left or hit('abort has no effect'):
            migration.unheeded = True
            return 202, ''
        if self._was_seen_old(uuid, migration.changed_at):
            self._aborted_old.append(migration)
        migration.aborted, migration.endless = True, False
        migration.end, migration.told = 'cancelled', ABORTED
        migration.ends_at = self.run.now + self.rng.uniform(0, 10)
        if hit('abort puts the instance into ERROR'):
            self._errors.append((migration.ends_at + self.rng.uniform(0, 20), migration))
        return 202, ''

    def advance(self) -> None:
        """Let Nova 34 put the instance into ERROR after an abort."""
        for entry in [e for e in self._errors if e[0] <= self.run.now and e[1].has_ended]:
            self._errors.remove(entry)
            instance = self.run.cloud.instances.get(entry[1].instance_uuid)
            if (instance is not None and instance.host == entry[1].from_host
                    and instance.task_state is None and instance.status == 'ACTIVE'):
                instance.status = 'ERROR'

    # Until an operator looks.

    @property
    def waits(self) -> bool:
        """Whether Nova has yet to write what an abort made of an instance."""
        return bool(self._errors)

    def stuck(self) -> list[tuple['records.Task', float]]:
        """Live tasks whose migration never ends, and since when nothing has changed."""
        changed_at_by_task = {m.task_id: m.changed_at for m in self.run.cloud.migrations
                              if m.endless and not m.has_ended and m.task_id}
        changed_at_by_task.update(self.lost.values())
        return [(task, changed_at_by_task[task.task_id]) for task in self.run.tasks.values()
                if task.task_id in changed_at_by_task and task.state not in invariants.TERMINAL]

    def note_read(self, uuid: str) -> None:
        """Note that an executor learns now which migrations an instance has."""
        self._read_at[uuid] = self.run.now

    def _was_seen_old(self, uuid: str, since: float) -> bool:
        """Return whether an executor has read a record that had long not changed.

        :param since: when the record of the instance last changed.
        """
        return since < self._read_at.get(uuid, float('-inf')) - invariants.OLD

    def find_slotless(self) -> set[str]:
        """Return the tasks that may have lost their slots: executors saw their records unchanged.

        A task whose record is old, but that no executor could look at, holds its slot.

        An abort that Nova accepts does not change the record, and others may hold the slot by
        then. Such a task may have no slot until the attempt of the aborted migration has ended.
        """
        slotless = {task.task_id for task, since in self.stuck()
                    if self._was_seen_old(task.instance, since)}
        for migration in self._aborted_old:
            task = self.run.tasks.get(migration.task_id)
            if task is not None and migration.uuid not in {
                    attempt['migration_uuid'] for attempt in task.attempts}:
                slotless.add(task.task_id)
        return slotless

    def last(self) -> bool:
        """Whether nothing else is to come: all that is live hangs."""
        return bool(self.stuck()) and self.find_held() is None

    def find_held(self) -> 'records.Task | None':
        """Return a live task that neither hangs nor requires one that does."""
        stuck = [task for task, _since in self.stuck()]
        hang = {task.task_id for task in stuck}
        behind = {(task.plan_id, task.instance) for task in stuck}
        return next((t for t in self.run.tasks.values()
                     if t.state not in invariants.TERMINAL and t.task_id not in hang
                     and not (t.state in ('pending', 'queued') and any(
                         (t.plan_id, required) in behind for required in t.requires))), None)

    @property
    def since(self) -> float:
        """When the last record was left that Nova calls under way."""
        return max([m.changed_at for m in self.run.cloud.migrations
                    if not m.has_ended and (m.left or m.endless)]
                   + [at for _task, at in self.lost.values()], default=float('-inf'))

    def resolve(self) -> None:
        """An operator ends what hangs, in Nova and then in the table."""
        for task, _since in self.stuck():
            self.run.counts['tasks that an operator had to end'] += 1
            instance = self.run.cloud.instances.get(task.instance)
            for migration in self.run.cloud.active():
                if migration.task_id == task.task_id:
                    self.end(migration, instance)
            if self.lost.pop(task.instance, None) is not None and instance is not None:
                instance.task_state = None
            if self.rng.random() < 0.5:
                self.run.store.tasks.resolve_task(
                    task.task_id, TaskState.FAILED, self.run.now,
                    plan_decisions.OperatorDecision('operator', 'its nova-compute is gone'),
                    self.run.confs[0].engine.instance_cooldown)
        self.lost.clear()
        self.run.committed(self.run.approver)
