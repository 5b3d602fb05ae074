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

"""Samples of live migrations: the newest attempts, from which costs are learned."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import json
import math
from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import tables

#: Number of tasks that are read.
TASKS = 200

_task = tables.task
_NEWEST = (
    sa.select(_task.c.instance_uuid, _task.c.memory_mb, _task.c.disk_gb, _task.c.state,
              _task.c.submitted_at, _task.c.completed_at, _task.c.attempts, _task.c.hooks)
    .where(_task.c.completed_at.is_not(None), _task.c.method == model.MoveMethod.LIVE.value)
    # Both descending: MariaDB reads an index in one direction only.
    .order_by(_task.c.completed_at.desc(), _task.c.task_id.desc()).limit(sa.bindparam('tasks')))
#: Phases before the copying; where no look at Nova saw that, it took place in these.
_BEFORE = (attempt_phases.PRE_CHECK, attempt_phases.PREPARING)
_AFTER = (attempt_phases.POST_MIGRATING, attempt_phases.POST_FLIGHT)
#: The hook that pauses an instance: it then writes nothing, and is no sample for running ones.
_PAUSES = 'pause'


def list_newest_samples(connection: sa.Connection) -> tuple[model.MeasuredAttempt, ...]:
    """Return the newest attempts first; attempts that Nova did not begin are left out."""
    return tuple(sample for row in connection.execute(
        _NEWEST, {'tasks': TASKS}) for sample in _of_task(row))


def _of_task(row: Any) -> Iterator[model.MeasuredAttempt]:
    if row.hooks and any(hook[0] == _PAUSES for hook in json.loads(row.hooks)):
        return
    completed = row.state == TaskState.COMPLETED.value
    attempts = json.loads(row.attempts or '[]')
    if completed and not (attempts and attempts[-1].get('phases')):
        # An attempt with empty phases ended by no look at Nova: its length says nothing.
        if row.submitted_at is not None and not (attempts and 'phases' in attempts[-1]):
            # A row of an earlier release: from its request until an executor saw its end.
            yield model.MeasuredAttempt(row.instance_uuid, row.memory_mb, row.disk_gb,
                                        running=max(0.0, row.completed_at - row.submitted_at))
        attempts = attempts[:-1]
    for attempt in reversed(attempts):
        phases = attempt.get('phases') or {}
        arrived = completed and attempt['error_type'] is None
        running = _sum_phases(phases, (attempt_phases.RUNNING,))
        before = _sum_phases(phases, _BEFORE)
        if arrived and not running:
            running, before = before, 0.0
        if running > 0 or arrived:
            yield model.MeasuredAttempt(
                row.instance_uuid, row.memory_mb, row.disk_gb, running=running,
                other=before + _sum_phases(phases, _AFTER), arrived=arrived,
                late=attempt['error_type'] == exception.MigrationTimeout.wire_type)


def _sum_phases(phases: Mapping[str, float], names: Iterable[str]) -> float:
    return math.fsum(phases.get(name, 0.0) for name in names)
