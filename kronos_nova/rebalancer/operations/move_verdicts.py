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

"""Verdicts of today's rules on one move: a move that was not made, or the move of a task."""

import dataclasses

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.constraints import quiet_hours
from kronos_nova.rebalancer.operations import cloud_lookups
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import why_not
from kronos_nova.rebalancer.operations import write_rates
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.store import rows as store_rows
from kronos_nova.rebalancer.strategies import drain_requests


@dataclasses.dataclass(frozen=True, slots=True)
class TaskAndPlan:
    """A task and its plan.

    ``answer``: the verdict of today's rules. ``elsewhere``: why the rules cannot judge the move
    today. Both are None if the cloud was not read.
    """

    row: store_rows.TaskRow
    plan: store_rows.PlanRow
    answer: why_not.MoveAnswer | None = None
    elsewhere: str | None = None


def judge_move(session: cloud_state.Session, uuid: str, host: str,
               phase: model.Phase | None = None) -> why_not.MoveAnswer:
    """Judge the move of an instance to a host.

    :param phase: the purpose of the move; None: the mode of the policies.
    :raises KronosException: an input cannot be read, or the instance or host does not exist.
    """
    cloud = session.cloud
    instance = cloud_lookups.find_instance(cloud, uuid, 'no host has such an instance')
    cloud_lookups.check_host_exists(cloud, host)
    phase = phase or model.Phase(session.policies.mode)
    request = _build_request(session, cloud, instance, phase)
    return why_not.why_not(request, uuid, host, phase, _make_notes(session, request, uuid, phase))


def explain_move(session: cloud_state.Session, task_id: str, *,
                 stored: bool = False) -> TaskAndPlan:
    """Read a task and its plan, and judge the move by today's rules.

    :param stored: read the database alone, and judge nothing.
    :raises KronosException: an input cannot be read, or the task does not exist.
    """
    store = session.existing_store
    row = store.tasks.find_task(task_id)
    plan = None if row is None else store.plans.find_plan(row.task.plan_id)
    if row is None or plan is None:
        raise exception.ConfigError(
            path='command line', field=task_id, problem='no such task',
            remedy='kronos task list --all shows tasks, kronos instance show those of an instance.')
    task_and_plan = TaskAndPlan(row, plan)
    return task_and_plan if stored else _judge_move_today(session, task_and_plan)


def _judge_move_today(session: cloud_state.Session, task_and_plan: TaskAndPlan) -> TaskAndPlan:
    task = task_and_plan.row.task
    if task.state.is_terminal and task.state == 'completed':
        return dataclasses.replace(task_and_plan, elsewhere='it has been made')
    cloud = session.cloud
    instance = cloud.cluster.instances.get(task.instance_uuid)
    if instance is None:
        return dataclasses.replace(task_and_plan, elsewhere='the instance is not in Nova any more')
    if instance.host != task.from_host:
        return dataclasses.replace(
            task_and_plan, elsewhere=f'the instance is on {instance.host}, not on {task.from_host}')
    if task.to_host not in cloud.cluster.hosts:
        return dataclasses.replace(
            task_and_plan, elsewhere=f'Nova has no host {task.to_host} any more')
    # The task itself and its cooldowns are no reason against the move.
    cloud = dataclasses.replace(cloud, cluster=dataclasses.replace(cloud.cluster, flights=tuple(
        f for f in cloud.cluster.flights
        if f.instance_uuid != task.instance_uuid or f.source != 'task')))
    request = _build_request(session, cloud, instance, task.phase)
    cooling = {u: s for u, s in request.history.cooling.items() if u != task.instance_uuid}
    request = dataclasses.replace(request, history=dataclasses.replace(
        request.history, cooling=cooling, scope_cooling=0.0))
    return dataclasses.replace(task_and_plan, answer=why_not.why_not(
        request, task.instance_uuid, task.to_host, task.phase,
        _make_notes(session, request, task.instance_uuid, task.phase)))


def _build_request(session: cloud_state.Session, cloud: cloud_state.CloudState,
                   instance: model.Instance, phase: model.Phase) -> planner.PlanningInput:
    """Build the request of the scope of an instance; only drains wait for quieter hours."""
    cluster = cloud_lookups.find_instance_cluster(cloud, instance)
    if phase is model.Phase.EVACUATE:
        cloud = write_rates.add_cloud_rates(session, cloud, [cluster])
    return session.build_request(cluster, cloud)


def _make_notes(session: cloud_state.Session, request: planner.PlanningInput, uuid: str,
                phase: model.Phase) -> dict[str, str]:
    """Return the note of the rule that lets drains wait: why the instance has no wait."""
    host = request.cluster.instances[uuid].host
    if phase is not model.Phase.EVACUATE or host not in drain_requests.drained_hosts(
            request.cluster, request.options):
        return {}
    reason = drain_checks.explain_missing_waits(session, request, host).get(uuid)
    return {} if reason is None else {quiet_hours.QUIETER_HOUR_RULE.name: reason}
