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

"""An executor that never fails, in simulated time, with its moves in flight.

It chooses the next task as the store does: by ``not_before``, then priority, then age; as many at
once as the configuration allows; after all requirements of a task have completed. A task that did
not begin in time is cancelled, and so are the tasks that require it.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses

from kronos_nova import model


@dataclasses.dataclass(frozen=True, slots=True)
class ConcurrencyLimits:
    """Limits of concurrent tasks: of a scope, off a host, to a host and of the cloud.

    ``bandwidth`` in MiB/s: speed at which one migration copies. ``copies_disk``: the disk is copied
    too. ``begin_within``: seconds in which a task without a deadline must begin. ``expected``:
    returns the seconds that a task takes, in place of all that.
    """

    per_scope: int = 2
    per_source: int = 1
    per_destination: int = 2
    total: int = 8
    bandwidth: float = 250.0
    copies_disk: bool = False
    begin_within: float = 6 * 3600.0
    expected: Callable[[model.Task], float] | None = None

    def compute_copied_mib(self, memory_mb: int, disk_gb: int) -> float:
        """Return the MiB that a migration copies, each page once."""
        return memory_mb + (disk_gb * 1024.0 if self.copies_disk else 0.0)

    def compute_copy_seconds(self, task: model.Task) -> float:
        if self.expected is not None:
            return self.expected(task)
        return max(1.0, self.compute_copied_mib(task.memory_mb, task.disk_gb) / self.bandwidth)


class SimulatedExecutor:
    """Tasks from their plan to their end. Mutable; time only goes forward."""

    def __init__(self, limits: ConcurrencyLimits) -> None:
        self._limits = limits
        self._queued: list[model.Task] = []
        self._running: dict[str, tuple[model.Task, float]] = {}
        self._completed: set[tuple[str, str]] = set()
        self.cancelled: Counter[str] = Counter()

    @property
    def open_tasks(self) -> list[model.Task]:
        """Queued and running tasks."""
        return [*self._queued, *self.running_tasks]

    @property
    def running_tasks(self) -> list[model.Task]:
        return [task for task, _end in self._running.values()]

    def add(self, tasks: Iterable[model.Task]) -> None:
        self._queued += tasks
        self._queued.sort(key=lambda t: (t.not_before, t.priority, t.task_id))

    def cancel_gone_instances(self, uuids: Collection[str]) -> None:
        """Cancel the tasks of instances that are gone."""
        for task in [t for t in self.running_tasks if t.instance_uuid in uuids]:
            del self._running[task.task_id]
            self._cancel_task(task, 'the instance is gone')
        while gone_tasks := [t for t in self._queued if t.instance_uuid in uuids]:
            self._cancel_task(gone_tasks[0], 'the instance is gone')

    def advance_time(self, since: float, until: float) -> list[tuple[model.Task, float]]:
        """Begin and end the tasks that are due up to ``until``.

        :returns: completed tasks with their times, in order.
        """
        ended: list[tuple[model.Task, float]] = []
        now = since
        while True:
            self._cancel_late_tasks(now)
            self._begin_due_tasks(now)
            event = min([*(end for _task, end in self._running.values()),
                         *(t.not_before for t in self._queued if t.not_before > now),
                         *(e for t in self._queued
                           if (e := self._compute_begin_deadline(t)) > now)],
                        default=until + 1.0)
            if event > until:
                return ended
            now = event
            for task, end in list(self._running.values()):
                if end <= now:
                    del self._running[task.task_id]
                    self._completed.add((task.plan_id, task.instance_uuid))
                    ended.append((task, end))

    def _begin_due_tasks(self, now: float) -> None:
        for task in list(self._queued):
            if len(self._running) >= self._limits.total:
                return
            if (task.not_before <= now and self._has_slot(task)
                    and all((task.plan_id, u) in self._completed for u in task.requires)):
                self._queued.remove(task)
                self._running[task.task_id] = (task, now + self._limits.compute_copy_seconds(task))

    def _has_slot(self, task: model.Task) -> bool:
        running, limits = self.running_tasks, self._limits
        return (sum(t.aggregate == task.aggregate for t in running) < limits.per_scope
                and sum(t.from_host == task.from_host for t in running) < limits.per_source
                and sum(t.to_host == task.to_host for t in running) < limits.per_destination)

    def _compute_begin_deadline(self, task: model.Task) -> float:
        """Return the time by which the task must have begun."""
        return (task.created_at + self._limits.begin_within if task.deadline is None
                else task.deadline)

    def _cancel_late_tasks(self, now: float) -> None:
        while late := [t for t in self._queued if self._compute_begin_deadline(t) <= now]:
            self._cancel_task(late[0], 'it did not begin in time')

    def _cancel_task(self, task: model.Task, why: str) -> None:
        if task in self._queued:
            self._queued.remove(task)
        self.cancelled[why] += 1
        while waiting := [t for t in self._queued
                          if t.plan_id == task.plan_id and task.instance_uuid in t.requires]:
            self._cancel_task(waiting[0], 'a move that it requires was cancelled')
