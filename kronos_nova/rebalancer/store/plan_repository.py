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

"""Plans in the database: one transaction stores a whole plan, with its tasks, or nothing."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.rebalancer.store import drain_scopes
from kronos_nova.rebalancer.store import leases
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions


class PlanRepository(transactions.Repository):
    """Plans, the hosts that they drain, and the moves that they have ordered."""

    def save_plan(self, lease: rows.ScopeLease | None, plan: model.Plan,
                  tasks: Sequence[model.Task], *, plan_id: str, now: float, dry_run: bool,
                  cooldown: float, instance_cooldown: float) -> frozenset[str]:
        """Write a plan with its tasks, cooldowns and draining hosts, under the lease.

        A plan without moves is stored only when its reason differs from that of the scope's newest
        plan. Its draining hosts are always stored; but while a plan of the scope waits for
        approval, new ones are stored only with the approval. A dry run writes only the plan's row,
        and needs no lease. A task's ``deadline`` is the time by which it must have begun (None:
        rows.BEGIN_WITHIN from now).

        :returns: the hosts of the scope that are drained from now on.
        :raises LeaseLost: nothing was written.
        :raises StoreError: an instance has a live task already, or a task does not belong to this
            plan and scope; nothing was written.
        """
        def write_plan(connection: sa.Connection) -> frozenset[str]:
            if not dry_run:
                if lease is None:
                    raise TypeError('a plan that is carried out needs a lease')
                leases.fence_lease(connection, self._runner.build_now_clause(), lease)
            drained = plans.save_plan(connection, lease, plan, tasks, plan_id=plan_id, now=now,
                                      dry_run=dry_run, cooldown=cooldown,
                                      instance_cooldown=instance_cooldown)
            if tasks and not dry_run:
                swaps.record_swaps(connection, plan, plan_id, now)
            return drained
        return self._runner.run_transaction(write_plan)

    def read_live_work(self) -> plans.LiveWork:
        """Return the live tasks and drains, which :meth:`save_requested_plan` compares.

        Call this before anything else is read.
        """
        return self._runner.run_read(plans.read_activity)

    def record_failed_cycle(self, lease: rows.ScopeLease, error: str, now: float) -> None:
        """Record that a cycle of the scope has failed.

        :raises LeaseLost: nothing was written.
        """
        self._runner.run_under_lease(
            lease, lambda c: plans.record_failed_cycle(c, lease.scope, error, now))

    def save_requested_plan(self, mark: plans.LiveWork, plan: model.Plan,
                            tasks: Sequence[model.Task], *, plan_id: str, now: float,
                            instance_cooldown: float, decision: plan_decisions.OperatorDecision,
                            verb: str, also: Callable[[sa.Connection], None]
                            = lambda connection: None,
                            before: Callable[[sa.Connection], None]
                            = lambda connection: None) -> None:
        """Write a plan that an operator or ``migfra`` requested.

        Plans of the scope's engine stay. The lease's epoch rises: the engine's current cycle does
        not know this plan, and must not write its own decision.

        :param decision: the requester and the reason; kept with the plan as ``verb``.
        :param also: writes more, in the same transaction.
        :param before: the same, before the plan is written.

        :raises StoreError: others have planned since ``mark``, or an instance has a live task;
            nothing was written.
        """
        def write_requested_plan(connection: sa.Connection) -> None:
            lease = leases.raise_epoch(connection, plan.scope)
            plans.refuse_overtaken(connection, mark)
            before(connection)
            plans.save_wanted(connection, lease, plan, tasks, plan_id=plan_id, now=now,
                              instance_cooldown=instance_cooldown)
            swaps.record_swaps(connection, plan, plan_id, now)
            plan_decisions.record_decision(connection, plan_id, now, verb, decision, len(tasks))
            also(connection)
        self._runner.run_transaction(write_requested_plan)

    def list_draining_hosts(self) -> frozenset[str]:
        """Return the draining hosts of every scope that engines plan or planned lately."""
        drain, lease = tables.drain, tables.lease
        return self._runner.run_read(lambda c: frozenset(c.scalars(
            sa.select(drain.c.host).join(lease, lease.c.scope == drain.c.scope)
            .where(leases.of_late(self._runner.build_now_clause())))))

    def move_drains(self, lease: rows.ScopeLease, targets: Mapping[str, str]) -> None:
        """Let drains of the lease's scope go on in other scopes, from their begin.

        :param targets: the new scope of each host.
        :raises LeaseLost: nothing was written.
        """
        self._runner.run_under_lease(
            lease, lambda c: drain_scopes.move_drains(c, lease.scope, targets))

    def find_plan(self, plan_id: str) -> rows.PlanRow | None:
        plan_rows = self._read_plan_rows(
            sa.select(tables.plan).where(tables.plan.c.plan_id == plan_id))
        return plan_rows[0] if plan_rows else None

    def list_plans(self, limit: int = 20, scope: str | None = None) -> list[rows.PlanRow]:
        """Return the newest plans, of one scope or of all, newest first."""
        wanted = sa.true() if scope is None else tables.plan.c.scope == scope
        return self._read_plan_rows(sa.select(tables.plan).where(wanted).order_by(
            tables.plan.c.created_at.desc(), tables.plan.c.plan_id.desc()).limit(limit))

    def list_newest_plans(self) -> dict[str, rows.PlanRow]:
        """Return the newest plan of each scope, also of a dry run."""
        return {row.plan.scope: row for row in self._runner.run_read(
            lambda c: [rows.plan_row(mapping) for mapping in plans.list_newest_plans(c)])}

    def _read_plan_rows(self, query: sa.Select[Any]) -> list[rows.PlanRow]:
        return self._runner.run_read(lambda c: [
            rows.plan_row(row) for row in c.execute(query).mappings()])

