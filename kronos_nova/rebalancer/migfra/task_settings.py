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

"""Settings of a request, given to the tasks of its plan: method, retries and hooks."""

from collections.abc import Callable
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.hooks import pause
from kronos_nova.rebalancer.hooks import pscom
from kronos_nova.rebalancer.migfra import protocol


def _list_task_hooks(way: protocol.MigrationParameter | protocol.NodeParameter, processes: int,
                     method: model.MoveMethod) -> tuple[model.TaskHook, ...]:
    """Return the hooks around a migration: pscom first, as it needs the instance to run."""
    hooks = []
    if processes and not method.is_cold:
        hooks.append(model.TaskHook('pscom', {pscom.PROCESSES: processes}))
    if way.migration_type is protocol.MigrationType.WARM and not method.is_cold:
        hooks.append(model.TaskHook(pause.NAME))
    return tuple(hooks)


def make_adjuster(task: protocol.MigrateVm | protocol.EvacuateNode, partner: str | None,
                  ) -> Callable[[model.Task], model.Task]:
    """Return a function that gives a plan's tasks the settings of the request.

    :param partner: the instance that comes in exchange, or None.
    """
    way = task.parameter

    def adjust_task(planned_task: model.Task) -> model.Task:
        if way.migration_type is protocol.MigrationType.OFFLINE and not planned_task.method.is_cold:
            planned_task = dataclasses.replace(planned_task, method=model.MoveMethod.OFFLINE)
        if way.retry_counter is not None:
            planned_task = dataclasses.replace(planned_task, max_retries=way.retry_counter,
                                               counts_alternates=True)
        processes = way.pscom_hook_procs
        if planned_task.instance_uuid == partner and isinstance(way, protocol.MigrationParameter):
            processes = way.swap_with.pscom_hook_procs if way.swap_with is not None else 0
        return dataclasses.replace(planned_task,
                                   hooks=_list_task_hooks(way, processes, planned_task.method))

    return adjust_task
