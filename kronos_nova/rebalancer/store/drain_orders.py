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

"""Deadlines that people set for drains, one for each host.

The rows are not signed, so rows that no command writes are as if they were not there.
"""

from collections.abc import Collection
import dataclasses

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from kronos_nova import model
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

#: Latest deadline, in seconds after the order.
LONGEST_SECONDS = 30 * 86400.0
#: The clocks of an operator, of an engine and of the database differ by so many seconds at most.
CLOCK_SECONDS = 60.0

_order = tables.drain_order


@dataclasses.dataclass(frozen=True, slots=True)
class DrainOrder:
    """A row of the table: the deadline that a person has set, and for which drain of the host.

    ``disabled_reason``: that of the host during the drain. Times in epoch seconds.
    """

    host: str
    deadline: float
    disabled_reason: str
    ordered_at: float
    ordered_by: str


def _match_valid(now: float) -> ColumnElement[bool]:
    """Return the condition of rows that a command may have written; NaN never meets it."""
    return sa.and_(
        _order.c.ordered_at >= 0.0, _order.c.ordered_at <= now + CLOCK_SECONDS,
        _order.c.deadline > _order.c.ordered_at,
        _order.c.deadline <= _order.c.ordered_at + (LONGEST_SECONDS + CLOCK_SECONDS))


def map_deadlines(connection: sa.Connection, now: float) -> dict[str, model.DrainDeadline]:
    """Return the deadlines of all drains, by host."""
    return {row.host: model.DrainDeadline(row.deadline, row.disabled_reason)
            for row in connection.execute(
                sa.select(_order).where(_match_valid(now)).order_by(_order.c.host))}


def _find_order(connection: sa.Connection, host: str) -> DrainOrder | None:
    row = connection.execute(sa.select(_order).where(_order.c.host == host)).first()
    return None if row is None else DrainOrder(**row._mapping)


def _cut_texts(order: DrainOrder) -> DrainOrder:
    """Return the order as its row has it."""
    return dataclasses.replace(order, disabled_reason=order.disabled_reason[:tables.NAME_LENGTH],
                               ordered_by=order.ordered_by[:tables.NAME_LENGTH])


def _replace_order(connection: sa.Connection, host: str, order: DrainOrder | None) -> None:
    """Write the order of a host in the place of an earlier one; None: remove it."""
    if order is None:
        connection.execute(sa.delete(_order).where(_order.c.host == host))
        return
    values = dataclasses.asdict(_cut_texts(order))
    del values['host']
    if connection.execute(sa.update(_order).where(_order.c.host == host)
                          .values(values)).rowcount == 0:
        connection.execute(sa.insert(_order).values(host=host, **values))


def purge_passed_orders(connection: sa.Connection, limit: float) -> bool:
    """Delete a batch of deadlines that passed before ``limit``; return whether more are left.

    A host that left the cloud is never seen enabled again.
    """
    return statements.delete_oldest(connection, _order.c.deadline, limit)


class DrainOrderRepository(transactions.Repository):
    """Deadlines of drains."""

    def map_deadlines(self, now: float) -> dict[str, model.DrainDeadline]:
        """Return the deadlines of all drains, by host."""
        return self._runner.run_read(lambda c: map_deadlines(c, now))

    def find_order(self, host: str) -> DrainOrder | None:
        """Return the row of a host, also one that no command has written."""
        return self._runner.run_read(lambda c: _find_order(c, host))

    def replace_order(self, order: DrainOrder) -> None:
        """Write the order of a host in the place of an earlier one."""
        self._runner.run_transaction(lambda c: _replace_order(c, order.host, order))

    def restore_order(self, host: str, written: DrainOrder | None,
                      before: DrainOrder | None) -> None:
        """Undo a change, unless another person has changed the order since then.

        :param written: the order as the change left it; None: it removed the order.
        """
        def restore(connection: sa.Connection) -> None:
            if _find_order(connection, host) == (written and _cut_texts(written)):
                _replace_order(connection, host, before)
        self._runner.run_transaction(restore)

    def end_orders(self, hosts: Collection[str]) -> None:
        """Remove the deadlines of hosts whose drains are over; without any, nothing is written."""
        rows_of_hosts = _order.c.host.in_(sorted(hosts))
        if self._runner.run_read(lambda c: c.scalar(
                sa.select(sa.func.count()).select_from(_order).where(rows_of_hosts))):
            self._runner.run_transaction(lambda c: c.execute(sa.delete(_order).where(
                rows_of_hosts)))

    def has_invalid_orders(self, now: float) -> bool:
        """Return whether there are rows that no command has written."""
        return bool(self._runner.run_read(lambda c: c.scalar(
            sa.select(sa.func.count()).select_from(_order).where(sa.not_(_match_valid(now))))))

    def end_old_orders(self, lease: rows.ScopeLease, hosts: Collection[str], now: float,
                       ordered_before: float) -> None:
        """Remove the deadlines of enabled hosts, except those of drains that just begin.

        Rows that no command has written are removed as well.

        :raises LeaseLost: nothing was written.
        """
        self._runner.run_under_lease(lease, lambda c: c.execute(
            sa.delete(_order).where(sa.or_(sa.not_(_match_valid(now)), sa.and_(
                _order.c.host.in_(sorted(hosts)), _order.c.ordered_at < ordered_before)))))
