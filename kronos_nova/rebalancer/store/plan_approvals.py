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

"""Operators' decisions on plans: approve, reject, cancel; and the plans that wait for one."""

from collections import Counter
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import datetime
import json
from typing import Any

import sqlalchemy as sa

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.constraints import metric_lag
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import leases
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import task_claims
from kronos_nova.rebalancer.store import task_endings
from kronos_nova.rebalancer.store import tasks
from kronos_nova.rebalancer.store import transactions

_task = tables.task


class ApprovedAlready(exception.DecisionRefused):
    """This person has approved all named moves before: they wait for other people."""


@dataclasses.dataclass(frozen=True, slots=True)
class TaskApproval:
    """The effect of an approval on a task: its new authorization, and how many are ``missing``."""

    authorization: str
    missing: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PlanApproval:
    """The effect of an approval: ``tasks`` may begin, ``waiting`` ones need ``missing`` more."""

    tasks: list[model.Task] = dataclasses.field(default_factory=list)
    waiting: list[model.Task] = dataclasses.field(default_factory=list)
    missing: int = 0


#: Returns the effect of the approval on a task that must begin by a time (epoch seconds).
#: None: the person has approved it already.
ApproveTask = Callable[[model.Task, float], TaskApproval | None]


@dataclasses.dataclass(frozen=True, slots=True)
class WaitingPlan:
    """A plan with ``moves`` tasks that wait for approval, the first until ``until``.

    ``shutdowns``: those that shut an instance down, move it cold and start it again.
    """

    plan_id: str
    scope: str
    since: float
    until: float
    moves: int
    shutdowns: int = 0

    def __str__(self) -> str:
        lapses = datetime.datetime.fromtimestamp(self.until, datetime.UTC)
        return (f'plan {self.plan_id} waits for approval of '
                f'{plurals.count_noun(self.moves, "move")}'
                + ('' if not self.shutdowns else f', {self.shutdowns} with a shutdown')
                + ' (kronos plan approve, or '
                f'reject); it lapses at {lapses.isoformat(timespec="minutes")}')


def list_waiting_plans(connection: sa.Connection, now: float,
                       scope: str | None = None) -> list[WaitingPlan]:
    """Return plans that may still be approved, oldest first.

    :param scope: plans of this scope alone; None: of all.
    """
    return [WaitingPlan(row.plan_id, row.scope, row.since, row.until, int(row.moves),
                        int(row.shutdowns))
            for row in connection.execute(*_select_waiting_plans(now, scope))]


@statements.build_once
def _select_waiting_plans(now: float, scope: str | None) -> sa.Select[Any]:
    of = sa.true() if scope is None else _task.c.scope == scope
    return (sa.select(_task.c.plan_id, _task.c.scope,
                      sa.func.min(_task.c.created_at).label('since'),
                      sa.func.min(_task.c.expires_at).label('until'),
                      sa.func.count().label('moves'),
                      sa.func.count(sa.case((sa.func.lower(_task.c.method)
                                             == model.MoveMethod.OFFLINE.value, 1)),
                                    ).label('shutdowns'))
            .where(_task.c.state == TaskState.PENDING.value, _task.c.expires_at > now, of)
            .group_by(_task.c.plan_id, _task.c.scope)
            .order_by(sa.func.min(_task.c.created_at), _task.c.plan_id))


def cancel_lapsed_tasks(connection: sa.Connection, scope: str, now: float) -> list[model.Task]:
    """Cancel tasks that were not approved in time, and the tasks that require them."""
    late = sa.and_(_task.c.state == TaskState.PENDING.value, _task.c.scope == scope,
                   _task.c.expires_at <= now)
    return task_endings.cancel_where(connection, late, now, task_endings.EXPIRED_TYPE,
                                     task_endings.LAPSED)


def approve_plan(connection: sa.Connection, plan_id: str, now: float,
                 decision: plan_decisions.OperatorDecision, *,
                 begin_within: Mapping[model.Phase, float], cooldown: float,
                 instance_cooldown: float, approve_task: ApproveTask) -> PlanApproval:
    """Queue pending tasks, staggered from now on as they were planned.

    Tasks that more people must approve wait on.

    Cooldowns begin again, and hosts that the plan drains are drained from now on.

    :param begin_within: seconds, by phase; others, and second halves of swaps, have
        rows.BEGIN_WITHIN.
    :raises DecisionRefused: a move requires one that still waits, or its swap has another that
        still waits; nothing was written.
    :raises ApprovedAlready: the person has approved all moves before; nothing was written.
    """
    # First of all: of two people who approve at once, the later one counts the earlier one.
    connection.execute(*task_claims.build_gate_update())
    decided_rows = _list_decided_tasks(connection, plan_id, {TaskState.PENDING}, decision, now)
    meant = {row.task.instance_uuid for row in decided_rows}
    others = {row.task.instance_uuid for row in tasks.list_tasks(
        connection, _task.c.plan_id == plan_id, _task.c.state == TaskState.PENDING.value)} - meant
    for row in decided_rows:
        if missing := others.intersection(row.task.requires):
            raise exception.DecisionRefused(
                problem=f'says that the move of instance {row.task.instance_uuid} requires those '
                        f'of {", ".join(sorted(missing))} first',
                remedy='Nothing was approved; approve these, too.')
    swapped = {row.swap_id for row in decided_rows if row.swap_id is not None}
    if apart := sorted(row.task.instance_uuid for row in tasks.list_tasks(
            connection, _task.c.plan_id == plan_id, _task.c.swap_id.in_(sorted(swapped)),
            _task.c.state == TaskState.PENDING.value) if row.task.instance_uuid not in meant):
        raise exception.DecisionRefused(
            problem=f'says that instances {", ".join(apart)} move together with some others, or '
                    'not at all',
            remedy='Nothing was approved; approve these, too.')
    following = {swap.members[-1].instance_uuid
                 for swap in swaps.list_swaps(connection, tables.swap.c.plan_id == plan_id)}
    approved, waiting, needed, repeated = [], [], 0, []
    for row in decided_rows:
        task = row.task
        within = (rows.BEGIN_WITHIN if task.instance_uuid in following
                  else begin_within.get(task.phase, rows.BEGIN_WITHIN))
        approval = approve_task(task, now + within)
        if approval is None:
            repeated.append(task)
            continue
        of_task = sa.update(_task).where(_task.c.task_id == task.task_id,
                                         _task.c.state == TaskState.PENDING.value)
        if approval.missing:
            if connection.execute(of_task.values(authorization=approval.authorization,
                                                 updated_at=now)).rowcount == 1:
                waiting.append(task)
                needed = max(needed, approval.missing)
            continue
        done = connection.execute(of_task.values(
            state=TaskState.QUEUED.value, updated_at=now,
            authorization=approval.authorization or None,
            not_before=now + max(0.0, task.not_before - task.created_at),
            expires_at=now + within))
        if done.rowcount == 1:
            approved.append(task)
            plans.extend_cooldown(connection, plans.INSTANCE, task.instance_uuid,
                                  now + instance_cooldown)
    if repeated and not (approved or waiting):
        raise ApprovedAlready(
            problem=f'has your approval of {plurals.count_noun(len(repeated), "move")} already',
            remedy='Nothing was written. Another person must approve; all local users of '
                   'controllers count as one person.')
    if approved:
        # An engine's current cycle does not know the approval, and would write other drains.
        leases.raise_epoch(connection, approved[0].aggregate)
        _start_cooldown_and_drains(connection, approved, now, cooldown)
    for verb, concerned in ((plan_decisions.APPROVED, approved),
                            (plan_decisions.CO_APPROVED, waiting)):
        plan_decisions.record_decision(connection, plan_id, now, verb, decision, len(concerned))
    return PlanApproval(approved, waiting, needed)


def _start_cooldown_and_drains(connection: sa.Connection, approved: list[model.Task], now: float,
                               cooldown: float) -> None:
    scope = approved[0].aggregate
    if any(task.phase in metric_lag.FOLLOWING for task in approved):
        plans.extend_cooldown(connection, plans.SCOPE, scope, now + cooldown)
    hosts = _read_drained_hosts(connection,
                                approved[0].plan_id) & {task.from_host for task in approved}
    plans.set_draining(connection, scope, hosts | plans.list_draining_hosts(connection, scope), now)


def _read_drained_hosts(connection: sa.Connection, plan_id: str) -> set[str]:
    """Return the hosts that the plan drains."""
    document = connection.scalar(
        sa.select(tables.plan.c.document).where(tables.plan.c.plan_id == plan_id))
    return set(json.loads(document or '{}').get('draining', ()))


def cancel_plan_tasks(connection: sa.Connection, plan_id: str, now: float,
                      decision: plan_decisions.OperatorDecision, verb: str,
                      instance_cooldown: float) -> list[model.Task]:
    """Cancel the plan's tasks that Nova has not been asked for.

    ``rejected`` cancels only the pending ones. The tasks that require these end as well.

    :returns: the tasks that ended.
    """
    # First of all: a rejection sees what an approval at the same time has queued, and leaves it.
    connection.execute(*task_claims.build_gate_update())
    states = {TaskState.PENDING} if verb == plan_decisions.REJECTED else set(rows.NOT_IN_NOVA)
    ended: list[model.Task] = []
    # Tasks that require others first: each instance cools, also where another would end it.
    for row in sorted(_list_decided_tasks(connection, plan_id, states, decision, None),
                      key=lambda row: -row.task.wave):
        ended += task_endings.cancel_task(
            connection, row.task.task_id, now, error_type=rows.CANCELLED_TYPE,
            error=f'{verb.capitalize()} by {decision.by}: {decision.reason}',
            instance_cooldown=instance_cooldown) or []
    if ended and verb == plan_decisions.CANCELLED and decision.instances is None:
        # No later plan continues the drains that this one began; each orders a disabled host's
        # drain again. Drains of other plans go on.
        scope = ended[0].aggregate
        leases.raise_epoch(connection, scope)
        hosts_without_tasks = {task.from_host for task in ended} - set(connection.scalars(
            sa.select(_task.c.from_host).where(rows.is_live())))
        plans.set_draining(connection, scope, plans.list_draining_hosts(connection, scope)
                           - (hosts_without_tasks & _read_drained_hosts(connection, plan_id)), now)
    plan_decisions.record_decision(connection, plan_id, now, verb, decision, len(ended))
    return ended


def supersede_tasks(connection: sa.Connection, task_ids: Collection[str], now: float,
                    decision: plan_decisions.OperatorDecision, *, cooldown: float,
                    instance_cooldown: float) -> list[model.Task]:
    """Cancel tasks that still wait for approval, because a drain goes first.

    The cooldowns that began with them end: the tasks have moved nothing.

    :param cooldown: seconds, of a scope; ``instance_cooldown``: of an instance.
    :returns: the tasks that ended.
    """
    ended = task_endings.cancel_where(
        connection, sa.and_(_task.c.task_id.in_(sorted(task_ids)),
                            _task.c.state == TaskState.PENDING.value),
        now, rows.CANCELLED_TYPE, f'Superseded: {decision.reason}') if task_ids else []
    for plan_id, number in Counter(task.plan_id for task in ended).items():
        plan_decisions.record_decision(connection, plan_id, now, plan_decisions.SUPERSEDED,
                                       decision, number)
    _end_cooldowns(connection, ended, cooldown, instance_cooldown)
    return ended


def _end_cooldowns(connection: sa.Connection, ended: Collection[model.Task], cooldown: float,
                   instance_cooldown: float) -> None:
    """End the cooldowns that began with the planning of tasks, and that nothing has lengthened."""
    begun: dict[tuple[str, str, float], float] = {}
    for task in ended:
        for key in ((plans.INSTANCE, task.instance_uuid, instance_cooldown),
                    (plans.SCOPE, task.aggregate, cooldown)):
            begun[key] = max(task.created_at, begun.get(key, task.created_at))
    table = tables.cooldown
    for (kind, name, seconds), at in sorted(begun.items()):
        connection.execute(sa.update(table).where(
            table.c.kind == kind, table.c.name == name, table.c.until > at,
            table.c.until <= at + seconds).values(until=at))


def _list_decided_tasks(connection: sa.Connection, plan_id: str, states: Collection[TaskState],
                        decision: plan_decisions.OperatorDecision,
                        now: float | None) -> list[rows.TaskRow]:
    """Return the tasks that a decision concerns.

    :param now: leave out tasks that have lapsed at this time; None: include them, too.
    :raises DecisionRefused: only a part of the named instances has such a task.
    """
    of = (sa.true() if decision.instances is None
          else _task.c.instance_uuid.in_(sorted(decision.instances)))
    lasting = sa.true() if now is None else _task.c.expires_at > now
    decided_rows = tasks.list_tasks(connection, _task.c.plan_id == plan_id, of, lasting,
                                    _task.c.state.in_([state.value for state in states]))
    others = set(decision.instances or ()) - {row.task.instance_uuid for row in decided_rows}
    if others and decided_rows:
        raise exception.DecisionRefused(
            problem=f'has nothing to decide of the moves of {", ".join(sorted(others))}',
            remedy='Nothing was written; leave them out. kronos plan show has their states.')
    return decided_rows


class ApprovalRepository(transactions.Repository):
    """Plans that wait for approval, and operators' decisions on plans."""

    def list_waiting_plans(self, now: float, scope: str | None = None) -> list[WaitingPlan]:
        """Return plans that wait for approval, of one scope or of all, oldest first."""
        return self._runner.run_read(lambda c: list_waiting_plans(c, now, scope))

    def cancel_lapsed_tasks(self, lease: rows.ScopeLease, now: float) -> list[model.Task]:
        """Cancel tasks of the scope that were not approved in time.

        :raises LeaseLost: nothing was written.
        """
        late = self._runner.run_read(lambda c: c.execute(
            sa.select(tables.task.c.task_id)
            .where(tables.task.c.scope == lease.scope, tables.task.c.expires_at <= now,
                   tables.task.c.state == TaskState.PENDING.value).limit(1)).first())
        if late is None:
            return []
        return self._runner.run_under_lease(
            lease, lambda c: cancel_lapsed_tasks(c, lease.scope, now))

    def approve_plan(self, plan_id: str, now: float, decision: plan_decisions.OperatorDecision, *,
                     begin_within: Mapping[model.Phase, float], cooldown: float,
                     instance_cooldown: float, approve_task: ApproveTask) -> PlanApproval:
        """Queue tasks of a plan that wait for approval. See :mod:`plan_approvals`.

        :param approve_task: adds the approval to the authorization of a task.

        :raises DecisionRefused: one requires another that still waits; nothing was written.
        """
        return self._runner.run_transaction(lambda c: approve_plan(
            c, plan_id, now, decision, begin_within=begin_within, cooldown=cooldown,
            instance_cooldown=instance_cooldown, approve_task=approve_task))

    def reject_plan(self, plan_id: str, now: float, decision: plan_decisions.OperatorDecision,
                    instance_cooldown: float) -> list[model.Task]:
        """Cancel pending tasks, and the tasks that require them; the instances cool."""
        return self._runner.run_transaction(lambda c: cancel_plan_tasks(
            c, plan_id, now, decision, plan_decisions.REJECTED, instance_cooldown))

    def cancel_plan(self, plan_id: str, now: float, decision: plan_decisions.OperatorDecision,
                    instance_cooldown: float) -> list[model.Task]:
        """Cancel all tasks of a plan that Nova has not been asked for; the instances cool."""
        return self._runner.run_transaction(lambda c: cancel_plan_tasks(
            c, plan_id, now, decision, plan_decisions.CANCELLED, instance_cooldown))

    def supersede_tasks(self, lease: rows.ScopeLease, task_ids: Collection[str], now: float,
                        decision: plan_decisions.OperatorDecision, *, cooldown: float,
                        instance_cooldown: float) -> list[model.Task]:
        """Cancel tasks that wait for approval, because a drain goes first; end their cooldowns.

        :raises LeaseLost: an operator has decided meanwhile, say; nothing was written.
        """
        return self._runner.run_under_lease(
            lease, lambda c: supersede_tasks(c, task_ids, now, decision, cooldown=cooldown,
                                             instance_cooldown=instance_cooldown))

    def pop_unannounced_decisions(self,
                                  lease: rows.ScopeLease) -> list[plan_decisions.StoredDecision]:
        """Return decisions on the scope's plans that are not announced yet, oldest first.

        They are marked as announced: the caller must announce them.

        :raises LeaseLost: nothing was written.
        """
        if not self._runner.run_read(
                lambda c: plan_decisions.list_unannounced_decisions(c, lease.scope)):
            return []
        return self._runner.run_under_lease(
            lease, lambda c: plan_decisions.pop_unannounced_decisions(c, lease.scope))

    def list_decisions(self, plan_id: str) -> list[plan_decisions.StoredDecision]:
        """Return the operators' decisions on a plan, oldest first."""
        return self._runner.run_read(lambda c: plan_decisions.list_plan_decisions(c, plan_id))

    def find_requesters(self, plan_ids: Collection[str]) -> dict[str, str]:
        """Return who requested each plan (an operator or ``migfra``); omit plans of engines."""
        return self._runner.run_read(lambda c: plan_decisions.find_requesters(c, plan_ids))
