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

"""Decisions on plans, as the database keeps them: who has decided what, when and why."""

from collections.abc import Collection
import dataclasses
import uuid

import sqlalchemy as sa

from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import tables

_decision = tables.decision
APPROVED, REJECTED, CANCELLED = 'approved', 'rejected', 'cancelled'
#: An approval after which more people must approve.
CO_APPROVED = 'co-approved'
RESOLVED = 'resolved'
#: The plan has given way to a drain that a person has ordered.
SUPERSEDED = 'superseded'
#: Verbs of decisions on plans that others have made; the others are requests for a plan.
DECIDING = (APPROVED, CO_APPROVED, REJECTED, CANCELLED, RESOLVED, SUPERSEDED)


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorDecision:
    """The author of a decision or request, and the reason.

    ``instances`` are those whose moves are meant; None: all.
    """

    by: str
    reason: str = ''
    instances: Collection[str] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StoredDecision:
    """A stored decision; ``tasks`` is the number of tasks that it concerned."""

    verb: str
    decided_at: float
    decided_by: str
    tasks: int
    reason: str
    plan_id: str = dataclasses.field(default='', compare=False)
    decision_id: str = dataclasses.field(default='', compare=False)


def record_decision(connection: sa.Connection, plan_id: str, now: float, verb: str,
                    decision: OperatorDecision, number: int) -> None:
    """Write a decision on so many tasks of a plan, and its audit row; none, for no task."""
    if number:
        connection.execute(sa.insert(_decision).values(
            decision_id=str(uuid.uuid4()), plan_id=plan_id, decided_at=now,
            decided_by=decision.by[:tables.NAME_LENGTH], verb=verb, tasks=number,
            reason=decision.reason))
        audits.add_audit(connection,
                         audits.AuditEntry(now, decision.by, verb, f'plan {plan_id}',
                                           decision.reason))


def list_plan_decisions(connection: sa.Connection, plan_id: str) -> list[StoredDecision]:
    """Return all decisions on a plan, oldest first."""
    return _read_decisions(connection, _decision.c.plan_id == plan_id)


def find_requesters(connection: sa.Connection, plan_ids: Collection[str]) -> dict[str, str]:
    """Return who requested each of the plans; plans of engines are left out."""
    return {d.plan_id: d.decided_by for d in _read_decisions(connection, sa.and_(
        _decision.c.plan_id.in_(sorted(plan_ids)),
        _decision.c.verb.not_in(DECIDING)))}


def list_unannounced_decisions(connection: sa.Connection, scope: str) -> list[StoredDecision]:
    """Return decisions on the scope's plans that are not announced yet, oldest first."""
    return _read_decisions(connection, sa.and_(
        _decision.c.told.is_(None), _decision.c.plan_id.in_(
            sa.select(tables.plan.c.plan_id).where(tables.plan.c.scope == scope))))


def pop_unannounced_decisions(connection: sa.Connection, scope: str) -> list[StoredDecision]:
    """Return the decisions that are not announced yet, and mark them as announced."""
    decisions = list_unannounced_decisions(connection, scope)
    if decisions:
        connection.execute(sa.update(_decision).values(told=True).where(
            _decision.c.decision_id.in_([d.decision_id for d in decisions])))
    return decisions


def _read_decisions(connection: sa.Connection,
                    which: sa.ColumnElement[bool]) -> list[StoredDecision]:
    return [StoredDecision(row.verb, row.decided_at, row.decided_by, row.tasks, row.reason,
                           row.plan_id, row.decision_id)
            for row in connection.execute(
                sa.select(_decision).where(which)
                .order_by(_decision.c.decided_at, _decision.c.decision_id))]
