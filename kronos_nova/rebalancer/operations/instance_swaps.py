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

"""Operators' requests that two instances exchange their hosts."""

from collections.abc import Sequence

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import cloud_lookups
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import plan_requests
from kronos_nova.rebalancer.operations import swap_requests
from kronos_nova.rebalancer.store import plan_decisions


def swap_instances(session: cloud_state.Session, uuids: tuple[str, str], *, reason: str,
                   parking: str | None = None,
                   dry_run: bool = False) -> plan_requests.RepeatResult:
    """Have two instances exchange their hosts, both or none.

    :param reason: stored with the new plan, as the operator's name is.
    :param parking: the only host where one instance may wait; None: any host of the scope.
    :param dry_run: store nothing.
    :raises KronosException: an input cannot be read, or the instances cannot change places at all.
    """
    if len(set(uuids)) == 1:
        raise _make_config_error('INSTANCE', f'{uuids[0]} is named twice',
                                 'Give the UUIDs of two instances that are to change places.')
    if not dry_run:
        plan_requests.refuse_dry_run(session, 'kronos.conf')
        session.forget_cloud()
    store = session.existing_store
    mark, cloud = store.plans.read_live_work(), session.cloud_for_requests
    instances = [cloud_lookups.find_instance(cloud, uuid, 'no such instance')
                 for uuid in uuids]
    cluster = cloud_lookups.find_instance_cluster(cloud, instances[0])
    answer = swap_requests.plan_swap(session.build_request(cluster, cloud), uuids, parking)
    plan = answer.plan
    if plan.reason is not None:
        raise _make_config_error(cluster.scope, plan.reason, 'Ask again when that is over.')
    if not plan.moves:
        ends = [i.host for i in instances]
        return plan_requests.RepeatResult(tuple(
            plan_requests.RepeatRow(uuid, ends[n], ends[1 - n],
                      f'{answer.refused[uuid].rule}: {answer.refused[uuid].detail}')
            for n, uuid in enumerate(uuids)))
    tasks = [] if dry_run else plan_requests.store_requested_plan(
        session.conf, session.policies, store, plan, cluster, mark,
        plan_decisions.OperatorDecision(session.operator, reason), 'swapped',
        signer=session.signer, person=session.person,
        needed=session.count_needed_approvals(cluster.scope))
    return plan_requests.RepeatResult(_build_swap_rows(plan, tasks),
                                      tasks[0].plan_id if tasks else '',
                                      plan_requests.count_missing(tasks), plan.warnings)


def _build_swap_rows(plan: model.Plan,
                     tasks: Sequence[model.Task]) -> tuple[plan_requests.RepeatRow, ...]:
    """Return the rows in the order of moves; the move from the parking host has no task yet."""
    swap, = plan.swaps
    of = {task.instance_uuid: task.task_id for task in tasks}
    rows = [plan_requests.RepeatRow(m.instance_uuid, m.from_host, m.to_host, f'wave {m.wave}',
                      of.get(m.instance_uuid, '')) for m in plan.moves]
    if swap.parking is not None:
        rows.append(plan_requests.RepeatRow(swap.first, swap.parking, plan.moves[1].from_host,
                              'when the other one has moved'))
    return tuple(rows)


def _make_config_error(field: str, problem: str, remedy: str) -> exception.ConfigError:
    return exception.ConfigError(path='command line', field=field, problem=problem, remedy=remedy)
