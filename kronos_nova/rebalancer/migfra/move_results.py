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

"""Results of migrate vm and evacuate node, rendered from their tasks."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from kronos_nova import model
from kronos_nova.rebalancer.migfra import protocol
from kronos_nova.rebalancer.migfra import replies
from kronos_nova.rebalancer.migfra import request_handler
from kronos_nova.rebalancer.migfra.protocol import MigfraRequestKind
from kronos_nova.rebalancer.store import requests
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import swaps


def render_result(scheduler: str, request: requests.MigfraRequest,
                  task: protocol.MigrateVm | protocol.EvacuateNode,
                  tasks: Mapping[str, rows.TaskRow], progress: Mapping[str, Any],
                  unpinned: Mapping[str, str]) -> request_handler.MigfraRequestResult:
    """Render the result of a request from its tasks.

    :param scheduler: [migfra] scheduler, which results bear.
    :param progress: names the instances, and why some were not planned.
    :param unpinned: by UUID why its processors could not be pinned.
    """
    instance_results = []
    for uuid, name in progress['named'].items():
        if uuid in tasks:
            instance_results.append(_add_pin_problem(_make_instance_result(name, tasks[uuid],
                                                                           task.time_measurement),
                                                     unpinned.get(uuid)))
        else:
            instance_results.append(replies.InstanceResult(
                name, replies.ERROR, progress['refused'].get(uuid, 'it was not planned'),
                {} if task.time_measurement else None))
    failed = any(result.failed for result in instance_results)
    kind = MigfraRequestKind(task.task)
    if isinstance(task, protocol.MigrateVm):
        return request_handler.MigfraRequestResult(
            replies.build_single_result(kind, task.id, scheduler, instance_results[0]), failed)
    whole = {'total': max([row.completed_at or 0.0 for row in tasks.values()],
                          default=request.received_at) - request.received_at}
    return request_handler.MigfraRequestResult(replies.build_list_result(
        kind, task.id, scheduler, instance_results,
        whole if task.time_measurement else None), failed)


def render_swap(scheduler: str, task: protocol.Task, swap: swaps.StoredSwap,
                unpinned: Mapping[str, str]) -> request_handler.MigfraRequestResult:
    """Render the result of a swap: a success only if both instances have changed places."""
    assert isinstance(task, protocol.MigrateVm)
    mine = [row for row in swap.tasks
            if row.task.instance_uuid == swap.members[0].instance_uuid]
    seconds = _sum_phase_seconds(swap.tasks) if task.time_measurement else None
    if swap.state == swaps.SWAPPED:
        retries = sum(max(0, len(row.attempts) - 1) for row in mine)
        result = replies.InstanceResult(task.vm_name, replies.SUCCESS, str(retries), seconds)
        for problem in unpinned.values():
            result = _add_pin_problem(result, problem)
    else:
        errors = [row.error for row in swap.tasks if row.error]
        result = replies.InstanceResult(task.vm_name, replies.ERROR, '; '.join(
            [f'the swap is {swap.state}', *errors[:1]]), seconds)
    return request_handler.MigfraRequestResult(replies.build_single_result(
        MigfraRequestKind(task.task), task.id, scheduler, result), result.failed)


def _add_pin_problem(result: replies.InstanceResult, problem: str | None) -> replies.InstanceResult:
    """Return the result of an instance that was migrated, and perhaps not pinned."""
    if result.failed or problem is None:
        return result
    return dataclasses.replace(result, status=replies.ERROR,
                               details=f'it was migrated; vcpu-map: {problem}')


def _make_instance_result(name: str, row: rows.TaskRow, measured: bool) -> replies.InstanceResult:
    seconds = _sum_phase_seconds([row]) if measured else None
    if row.task.state is model.TaskState.COMPLETED:
        return replies.InstanceResult(name, replies.SUCCESS, str(max(0, len(row.attempts) - 1)),
                                      seconds)
    return replies.InstanceResult(name, replies.ERROR,
                                  row.error
                                  or f'its move from {row.task.from_host} was {row.task.state}',
                                  seconds)


def _sum_phase_seconds(tasks: Sequence[rows.TaskRow]) -> dict[str, float]:
    """Sum the seconds by phase over all attempts, and from the first to the last moment."""
    phase_seconds: dict[str, float] = {}
    for attempt in (attempt for row in tasks for attempt in row.attempts):
        for phase, seconds in attempt.phases.items():
            phase_seconds[phase] = phase_seconds.get(phase, 0.0) + seconds
    ends = [row.completed_at for row in tasks if row.completed_at is not None]
    if ends:
        phase_seconds['total'] = max(ends) - min(row.task.created_at for row in tasks)
    return phase_seconds
