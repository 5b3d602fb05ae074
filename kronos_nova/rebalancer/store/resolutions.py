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

"""Resolutions: an operator ends a task by hand, because Nova never reports its end."""

import dataclasses

from oslo_utils import uuidutils
import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import task_endings
from kronos_nova.rebalancer.store import tasks

#: ``error_type`` of a task that an operator ended as failed.
RESOLVED_TYPE = 'MigrationResolved'
#: States that only Nova could end. A task in ``submitting`` has an executor that is asking
#: Nova right now, or enters one of the states below when another executor takes the task.
RESOLVABLE = (TaskState.SUBMITTED, TaskState.UNKNOWN)


def resolve_task(connection: sa.Connection, task_id: str, state: TaskState, now: float,
                 decision: plan_decisions.OperatorDecision,
                 instance_cooldown: float) -> list[model.Task] | None:
    """End a task that Nova was asked for, in the state that an operator vouches for.

    The attempt has no phases, so that learned costs do not count it.

    :returns: the tasks cancelled because they required it; None: the task does not exist or is in
        no state that can be resolved, and nothing was written.
    """
    row = tasks.find_task(connection, task_id)
    if row is None or row.task.state not in RESOLVABLE:
        return None
    error = (None if state is TaskState.COMPLETED
             else f'Resolved as {state} by {decision.by}: {decision.reason}')
    result = _find_result(row, error, now)
    cancelled = task_endings.finish_task(
        connection, row.task, result, state, now, worker=row.worker or '',
        instance_cooldown=instance_cooldown, quarantine_seconds=None)
    if cancelled is not None:
        plan_decisions.record_decision(connection, row.task.plan_id, now, plan_decisions.RESOLVED,
                                       dataclasses.replace(
            decision, reason=f'task {task_id} as {state}: {decision.reason}'), 1)
    return cancelled


def _find_result(row: rows.TaskRow, error: str | None, now: float) -> model.TaskResult:
    task = row.task
    error_type = None if error is None else RESOLVED_TYPE
    since = row.updated_at if row.submitted_at is None else row.submitted_at
    reference = row.reference or ''
    attempt = model.Attempt(
        to_host=task.to_host, started_at=since, ended_at=now, error_type=error_type,
        error=error, phases={},
        migration_uuid=reference if uuidutils.is_uuid_like(reference) else None)
    return model.TaskResult(
        task_id=task.task_id, plan_id=task.plan_id, aggregate=task.aggregate,
        instance_uuid=task.instance_uuid, from_host=task.from_host, to_host=task.to_host,
        success=error is None, error=error, error_type=error_type,
        duration_seconds=max(0.0, now - since), retry_count=task.retry_count,
        completed_at=now, attempts=(*row.attempts, attempt))
