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

"""The newest attempts at live migrations, which costs are learned from."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer import timings
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables

#: Of so many tasks.
TASKS = 200

_task = tables.task
_NEWEST = (
    sa.select(_task.c.instance_uuid, _task.c.memory_mb, _task.c.disk_gb, _task.c.state,
              _task.c.submitted_at, _task.c.completed_at, _task.c.attempts)
    .where(_task.c.completed_at.is_not(None), _task.c.submitted_at.is_not(None),
           _task.c.method == model.Method.LIVE.value,
           _task.c.state.in_([s.value for s in (TaskState.COMPLETED, TaskState.FAILED,
                                                TaskState.CANCELLED)]))
    .order_by(_task.c.completed_at.desc(), _task.c.task_id).limit(TASKS))
#: Of an attempt, what is neither waiting nor copying.
_OTHER = (timings.PRE_CHECK, timings.PREPARING, timings.POST_MIGRATING, timings.POST_FLIGHT)


def newest(connection: sa.Connection) -> tuple[model.Measured, ...]:
    """Newest first; attempts that Nova has not begun to carry out are none."""
    return tuple(found for row in connection.execute(_NEWEST) for found in _of_task(row))


def _of_task(row: Any) -> Iterator[model.Measured]:
    attempts = rows.attempts(row.attempts)
    for attempt in reversed(attempts):
        arrived = attempt.error_type is None and row.state == TaskState.COMPLETED.value
        running = attempt.phases.get(timings.RUNNING, 0.0)
        if arrived and not attempt.phases:
            break
        if arrived or running > 0:
            yield model.Measured(
                row.instance_uuid, row.memory_mb, row.disk_gb, running=running,
                other=sum(attempt.phases.get(phase, 0.0) for phase in _OTHER), arrived=arrived,
                late=attempt.error_type == exception.MigrationTimeout.wire_type)
    if row.state == TaskState.COMPLETED.value and not (attempts and attempts[-1].phases):
        # Of an earlier release: from its request until an executor saw its end.
        yield model.Measured(row.instance_uuid, row.memory_mb, row.disk_gb,
                             running=max(0.0, row.completed_at - row.submitted_at))
