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

"""Deadlines that people set for drains, one for each host."""

from collections.abc import Collection

import sqlalchemy as sa

from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

_order = tables.drain_order


def map_deadlines(connection: sa.Connection) -> dict[str, float]:
    """Return the deadlines of all drains, by host."""
    return {row.host: row.deadline for row in connection.execute(
        sa.select(_order.c.host, _order.c.deadline).order_by(_order.c.host))}


def set_deadline(connection: sa.Connection, host: str, deadline: float, now: float,
                 by: str) -> None:
    """Write the deadline of a host's drain in the place of an earlier one."""
    values = {'deadline': deadline, 'ordered_at': now, 'ordered_by': by[:255]}
    if connection.execute(sa.update(_order).where(_order.c.host == host)
                          .values(values)).rowcount == 0:
        connection.execute(sa.insert(_order).values(host=host, **values))


class DrainOrderRepository(transactions.Repository):
    """Deadlines of drains."""

    def map_deadlines(self) -> dict[str, float]:
        """Return the deadlines of all drains, by host."""
        return self._runner.run_read(map_deadlines)

    def replace_deadline(self, host: str, deadline: float | None, now: float, by: str) -> None:
        """Set the deadline of a host's drain; None: remove it."""
        if deadline is None:
            self.end_orders([host])
            return
        at = deadline
        self._runner.run_transaction(lambda c: set_deadline(c, host, at, now, by))

    def end_orders(self, hosts: Collection[str]) -> None:
        """Remove the deadlines of hosts whose drains are over."""
        self._runner.run_transaction(lambda c: c.execute(
            sa.delete(_order).where(_order.c.host.in_(sorted(hosts)))))

    def end_old_orders(self, lease: rows.ScopeLease, hosts: Collection[str],
                       ordered_before: float) -> None:
        """Remove the deadlines of enabled hosts, except those of drains that just begin.

        :raises LeaseLost: nothing was written.
        """
        self._runner.run_under_lease(lease, lambda c: c.execute(
            sa.delete(_order).where(_order.c.host.in_(sorted(hosts)),
                                    _order.c.ordered_at < ordered_before)))
