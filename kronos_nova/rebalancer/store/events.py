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
"""Changes of plans and tasks, and commands of operators, since a time."""

import dataclasses

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import notices
from kronos_nova.rebalancer.store import pages
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_plan, _task, _audit = tables.plan, tables.task, tables.audit


@dataclasses.dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows that changed, oldest first; ``now`` is the time of the database.

    ``commands``: the number of each audit row with the row. ``notices``: each with its scope.
    """

    now: float
    plans: list[rows.PlanRow]
    tasks: list[rows.TaskRow]
    commands: list[tuple[int, audits.AuditEntry]]
    notices: list[tuple[str, model.MoveNotice]]


def list_changes(connection: sa.Connection, now: float, since: float, limit: int) -> ChangedRows:
    """Return the oldest changes at the time or later, at most ``limit`` of each kind."""
    plans = connection.execute(
        sa.select(_plan).where(_plan.c.created_at >= since)
        .order_by(_plan.c.created_at, _plan.c.plan_id).limit(limit)).mappings()
    tasks = connection.execute(
        sa.select(_task).where(pages.match_changed_tasks(since))
        .order_by(_task.c.updated_at, _task.c.task_id).limit(limit)).mappings()
    commands = connection.execute(
        sa.select(_audit).where(_audit.c.at >= since)
        .order_by(_audit.c.at, _audit.c.number).limit(limit))
    return ChangedRows(
        now, [rows.plan_row(row) for row in plans], [rows.task_row(row) for row in tasks],
        [(row.number, audits.AuditEntry(row.at, row.by_name, row.command, row.target, row.reason))
         for row in commands],
        notices.list_given_notices(connection, since, limit))


class EventRepository(transactions.Repository):
    """Changes of plans and tasks, commands of operators, and notices to owners."""

    def list_changes(self, since: float | None, limit: int) -> ChangedRows:
        """Return the oldest changes at the time or later.

        :param since: epoch seconds; None: return no change, but the time of the database.
        :param limit: of each kind.
        """
        def read(connection: sa.Connection) -> ChangedRows:
            now = float(connection.execute(sa.select(self._runner.build_now_clause())).scalar_one())
            if since is None:
                return ChangedRows(now, [], [], [], [])
            return list_changes(connection, now, since, limit)
        return self._runner.run_read(read)
