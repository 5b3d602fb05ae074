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

"""Read a task, its plan and today's verdict for ``kronos explain move``."""

import argparse
import dataclasses
from typing import Any

from kronos_nova import exception
from kronos_nova.cli import _cloud
from kronos_nova.rebalancer.operations import why_not
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database
from kronos_nova.rebalancer.store import rows as store_rows

PROG = 'kronos explain move'


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A task and its plan.

    ``answer``: the verdict of today's rules. ``elsewhere``: why the rules cannot judge the move
    today. Both are None if the cloud was not read.
    """

    row: store_rows.TaskRow
    plan: store_rows.PlanRow
    answer: why_not.Answer | None = None
    elsewhere: str | None = None


def explain_move(args: argparse.Namespace) -> Found:
    """Read a task and its plan; unless ``--stored``, judge the move by today's rules too.

    :raises KronosException: an input cannot be read, or the task does not exist.
    """
    conf, policy_set = _cloud.read_configuration(
        PROG, args.config_file, 'Says why a move was planned.', live=not args.stored)
    database.must_exist(conf.database.connection)
    store = api.Store(conf)
    try:
        store.check()
        row = store.task(args.task)
        plan = None if row is None else store.plan(row.task.plan_id)
    finally:
        store.close()
    if row is None or plan is None:
        raise exception.ConfigError(
            path='command line', field=args.task, problem='no such task',
            remedy='kronos task list --all shows tasks, kronos instance show those of an instance.')
    found = Found(row, plan)
    return found if args.stored else _judge_move_today(conf, policy_set, found)


def _judge_move_today(conf: Any, policy_set: Any, found: Found) -> Found:
    task = found.row.task
    if task.state.terminal and task.state == 'completed':
        return dataclasses.replace(found, elsewhere='it has been made')
    seen = _cloud.read_live_cloud(conf, policy_set)
    instance = seen.cluster.instances.get(task.instance_uuid)
    if instance is None:
        return dataclasses.replace(found, elsewhere='the instance is not in Nova any more')
    if instance.host != task.from_host:
        return dataclasses.replace(
            found, elsewhere=f'the instance is on {instance.host}, not on {task.from_host}')
    if task.to_host not in seen.cluster.hosts:
        return dataclasses.replace(
            found, elsewhere=f'Nova has no host {task.to_host} any more')
    # The task itself and its cooldowns are no reason against the move.
    cluster = dataclasses.replace(seen.cluster, flights=tuple(
        f for f in seen.cluster.flights
        if f.instance_uuid != task.instance_uuid or f.source != 'task'))
    seen = dataclasses.replace(seen, cluster=cluster)
    request = _cloud.request(conf, policy_set, seen, _cloud.of_instance(seen, instance))
    cooling = {u: s for u, s in request.history.cooling.items() if u != task.instance_uuid}
    request = dataclasses.replace(request, history=dataclasses.replace(
        request.history, cooling=cooling, scope_cooling=0.0))
    return dataclasses.replace(found, answer=why_not.why_not(
        request, task.instance_uuid, task.to_host, task.phase))
