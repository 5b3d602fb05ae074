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

"""Tasks of plans beside a drain: those that give way to it, and those that make room for it."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova.constraints import metrics


def list_yielding_tasks(pending: Iterable[model.Task]) -> list[model.Task]:
    """Return the tasks that give way to a drain that a person has ordered.

    These are the moves for balance. A drain or a repair may require such a move, which makes room
    for it: then it stays.

    :param pending: all tasks that wait for approval.
    """
    plans: dict[str, list[model.Task]] = {}
    for task in pending:
        plans.setdefault(task.plan_id, []).append(task)
    yielding = []
    for tasks in plans.values():
        staying = {task.instance_uuid for task in tasks if task.phase not in metrics.IMBALANCE}
        staying |= list_required_instances(tasks, staying)
        yielding += [task for task in tasks if task.instance_uuid not in staying]
    return yielding


def list_drain_tasks(live: Sequence[model.Task], host: str) -> list[model.Task]:
    """Return the tasks of a host's drain, and those that only make room for them.

    :param live: all tasks of one plan that are not over.
    """
    draining = {task.instance_uuid for task in live
                if task.phase is model.Phase.EVACUATE and task.from_host == host}
    others = {task.instance_uuid for task in live
              if task.instance_uuid not in draining and task.phase not in metrics.IMBALANCE}
    helping = (list_required_instances(live, draining) - others
               - list_required_instances(live, others))
    return [task for task in live if task.instance_uuid in draining | helping]


def list_required_instances(tasks: Collection[model.Task],
                            instances: Collection[str]) -> set[str]:
    """Return the instances whose moves those of ``instances`` require, also indirectly.

    :param tasks: of one plan.
    """
    requires = {task.instance_uuid: task.requires for task in tasks}
    required: set[str] = set()
    waiting = list(instances)
    while waiting:
        more = set(requires.get(waiting.pop(), ())) - required
        required |= more
        waiting += more
    return required


def drop_task_moves(cluster: model.Cluster, instances: Collection[str]) -> model.Cluster:
    """Return the cluster without the moves of our tasks of some instances."""
    return dataclasses.replace(cluster, flights=tuple(
        flight for flight in cluster.flights
        if flight.source != 'task' or flight.instance_uuid not in instances))
