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

"""The approval of a drain by the person who orders it.

Moves of the drain that wait for approval are approved. The others become a plan that this person
has ordered: an engine would plan them in its next cycle, and that plan would wait for approval.
"""

from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import drains
from kronos_nova.rebalancer.operations import operator_decisions
from kronos_nova.rebalancer.operations import plan_requests
from kronos_nova.rebalancer.planning import drain_precedence
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plan_decisions

#: Tries to store a plan while engines store theirs.
TRIES = 3
#: The last sentence of a problem.
NEXT_STEP = ('The host is disabled: order the approval of its drain again, or approve the plan of '
             'the drain when an engine has stored it.')
#: Returns a context in which a whole scope is calculated.
TakeTurn = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class DrainApproval:
    """The effect of an approval of a drain.

    ``plan_ids``: the plans with its moves. ``missing``: the number of other people who must approve
    them. ``problems``: why some moves wait for another approval; empty: they do not.
    """

    plan_ids: tuple[str, ...] = ()
    missing: int = 0
    problems: tuple[exception.KronosException, ...] = ()

    def describe_problem(self, describe: Callable[[exception.KronosException], str] = str,
                         ) -> str | None:
        """Return why some moves wait for another approval, and the next step; None: they do not.

        :param describe: returns the text of an error for the reader.
        """
        if not self.problems:
            return None
        sentences = dict.fromkeys(exception.format_sentence(describe(error))
                                  for error in self.problems)
        return ' '.join((*sentences, NEXT_STEP))


def approve_drain(session: cloud_state.Session, host: str, *, reason: str,
                  take_turn: TakeTurn) -> DrainApproval:
    """Approve the moves of a host's drain, where plans of its scope wait for approval.

    The host is disabled: so an error is a part of the result. Moves for balance that wait for
    approval give way to the drain.

    :param reason: kept with the person's name.
    :param take_turn: returns a context in which the drain is calculated.
    """
    missing: dict[str, int] = {}
    problems: list[exception.KronosException] = []
    try:
        for left in reversed(range(TRIES)):
            session.forget_cloud()
            cluster = drain_checks.find_host_cluster(session.cloud_for_requests, host)
            if not session.count_needed_approvals(cluster.scope):
                return DrainApproval()
            problems.clear()
            for plan_id, instances in _list_waiting_moves(session, cluster.scope, host):
                try:
                    missing[plan_id] = _approve_moves(session, plan_id, instances, host, reason)
                except exception.KronosException as e:
                    problems.append(e)
            try:
                tasks = _order_moves(session, host, reason, take_turn)
            except exception.PlanConflict:
                if not left:
                    raise
                continue
            missing.update({task.plan_id: plan_requests.count_missing(tasks) for task in tasks})
            break
    except exception.KronosException as e:
        problems.append(e)
    return DrainApproval(tuple(missing), max(missing.values(), default=0), tuple(problems))


def _list_waiting_moves(session: cloud_state.Session, scope: str,
                        host: str) -> list[tuple[str, frozenset[str]]]:
    """Return the plans with moves of the drain that wait for approval.

    :returns: the UUID of each plan, with the instances that the drain moves and those whose moves
        it requires.
    """
    plans: dict[str, list[model.Task]] = {}
    for row in session.existing_store.tasks.list_tasks_in_states(
            (model.TaskState.PENDING,), [scope]):
        plans.setdefault(row.task.plan_id, []).append(row.task)
    waiting_moves = []
    for plan_id, tasks in plans.items():
        leaving = {task.instance_uuid for task in tasks
                   if task.phase is model.Phase.EVACUATE and task.from_host == host}
        waiting = {task.instance_uuid for task in tasks}
        meant = leaving | drain_precedence.list_required_instances(tasks, leaving) & waiting
        if meant:
            waiting_moves.append((plan_id, frozenset(meant)))
    return waiting_moves


def _approve_moves(session: cloud_state.Session, plan_id: str, instances: frozenset[str],
                   host: str, reason: str) -> int:
    """Approve the moves of some instances; return how many other people must do the same.

    Moves that this person has approved before stay as they are.

    :raises KronosException: nothing was approved.
    """
    with contextlib.suppress(plan_approvals.ApprovedAlready):
        operator_decisions.approve_plan(session, plan_id, reason=f'drain of host {host}: {reason}',
                                        instances=sorted(instances))
    return plan_requests.count_missing([
        row.task for row in session.existing_store.tasks.list_plan_tasks(plan_id)
        if row.task.instance_uuid in instances and row.task.state is model.TaskState.PENDING])


def _order_moves(session: cloud_state.Session, host: str, reason: str,
                 take_turn: TakeTurn) -> list[model.Task]:
    """Store a plan with the moves off the host that no task makes, and return its tasks.

    :raises ConflictError: the scope is held.
    :raises PlanConflict: another plan was stored meanwhile.
    """
    store = session.existing_store
    mark = store.plans.read_live_work()
    session.forget_cloud()
    cloud = session.cloud_for_requests
    cluster = drain_checks.find_host_cluster(cloud, host)
    request = session.build_request(cluster, cloud)
    with take_turn():
        check = drains.plan_drain(request, host)
        plan = drains.select_moves_of_drain(request, host, check.plan)
        broken = drains.find_failover_obstacle(request, host, plan)
    held = None if check.plan.moves or check.blocked else check.plan.reason
    problems = [*check.obstacles, *(text for text in (held, broken) if text is not None)]
    if problems and drains.has_instances(cluster, host):
        raise exception.ConflictError(
            path='request', field=host, problem='; '.join(problems),
            remedy='No more moves are ordered')
    if not plan.moves:
        return []
    decision = plan_decisions.OperatorDecision(session.operator, f'drain of host {host}: {reason}')
    yielding = cloud.yielding.get(cluster.scope, ())

    def supersede_tasks(connection: sa.Connection) -> None:
        ended = plan_approvals.supersede_tasks(
            connection, [task.task_id for task in yielding], store.now(),
            dataclasses.replace(decision, reason=f'the drain of host {host} goes first'),
            cooldown=session.conf.engine.cooldown,
            instance_cooldown=session.conf.engine.instance_cooldown)
        if len(ended) < len(yielding):
            raise exception.PlanConflict(
                problem='has decisions that were made while the drain was judged',
                remedy='Nothing was written; ask again.')

    return plan_requests.store_requested_plan(
        session.conf, session.policies, store, plan, cluster, mark, decision, 'drained',
        signer=session.signer, person=session.person,
        needed=session.count_needed_approvals(cluster.scope), history=request.history,
        before=supersede_tasks)
