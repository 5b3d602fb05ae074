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

"""The history of scopes, and the deletion of old records."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import functools
import time
from typing import Any

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.constraints import contracts
from kronos_nova.constraints import metric_lag
from kronos_nova.rebalancer.store import audits
from kronos_nova.rebalancer.store import campaign_stats
from kronos_nova.rebalancer.store import drain_orders
from kronos_nova.rebalancer.store import notices
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import requests
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import transactions

#: The longest rest between two batches of a purge (seconds).
PURGE_REST = 1.0


class HistoryRepository(transactions.Repository):
    """The history of scopes: it is read for a plan, and purged when it is old."""

    def read_history(self, scope: str, now: float,
                     remembered: float = metric_lag.REMEMBERED, *,
                     late_drains: bool = True) -> model.MoveHistory:
        """Return the scope's history; cooldowns, quarantine and completed moves are cloud-wide.

        :param remembered: seconds that completed moves go back.
        :param late_drains: read them, too: the ends of a week have to be looked through.
        """
        return self._runner.run_read(
            lambda c: plans.read_history(c, scope, now, remembered, late_drains))

    def read_contract_records(self, cluster: model.Cluster, now: float) -> model.ContractRecords:
        """Return the moves and the notices that contracts of instances count.

        :param cluster: with a scope, instances on other hosts are left out.
        :param now: seconds since the epoch. The cloud may have been read a while before.
        """
        notified = contracts.list_notified_instances(cluster)
        given = self._runner.run_read(
            lambda c: notices.list_live_notices(c, now, notified)) if notified else {}
        return model.ContractRecords(
            self.read_move_times(contracts.map_counted_seconds(cluster), now),
            given)

    def read_move_times(self, counted: Mapping[str, int],
                        now: float) -> dict[str, tuple[float, ...]]:
        """Return when moves of the instances completed, oldest first; without a move: no entry.

        :param counted: by instance UUID, the seconds for which its contracts count moves.
        :param now: seconds since the epoch. The cloud may have been read a while before.
        """
        if not counted:
            return {}
        since = now - max(counted.values()) - metric_lag.REMEMBERED
        return self._runner.run_read(lambda c: _read_move_times(c, counted.keys(), since))

    def purge_records(self, older_than: float, *, judged: int = 3,
                      remembered: float = metric_lag.REMEMBERED, counted: float = 0.0,
                      seconds: float | None = None, audited_before: float = 0.0) -> int:
        """Delete records that ended before ``older_than``; return the number of plans deleted.

        Always kept: live tasks, running cooldowns, quarantines and pauses, completions of the last
        hours, and the plans that circuit breakers need. Each batch is a transaction; after it,
        other writers have as long as it took.

        :param judged: number of plans of a scope by which its breaker decides.
        :param remembered: seconds that completed moves go back, as in :meth:`read_history`.
        :param counted: seconds for which contracts of instances count moves: plans with a move that
            completed since stay.
        :param audited_before: delete audit rows that are older.
        :param seconds: begin no batch after so long; the next purge continues. None: purge all.
        """
        with self._runner.open_long_runner() as run:
            return self._purge_batches(run, older_than, judged, remembered, counted, seconds,
                                       audited_before)

    def _purge_batches(self, run: Callable[..., Any], older_than: float, judged: int,
                       remembered: float, counted: float, seconds: float | None,
                       audited_before: float) -> int:
        started = time.monotonic()
        now = self._runner.now()
        limit = min(older_than, now - remembered, now - metric_lag.REMEMBERED)
        count, after = 0, plans.PlanPosition(-1.0, '')
        steps: list[Callable[[sa.Connection], bool]] = [
            functools.partial(requests.purge_requests, older_than=older_than, now=now),
            *(functools.partial(plans.purge_lapsed, table=table, limit=limit)
              for table in plans.LAPSING),
            functools.partial(notices.purge_lapsed_notices, limit=limit),
            functools.partial(campaign_stats.purge_ended_campaigns, limit=limit),
            functools.partial(drain_orders.purge_passed_orders, limit=limit),
            lambda c: statements.delete_oldest(c, audits.get_purge_column(), audited_before)]
        while seconds is None or time.monotonic() < started + seconds:
            began = time.monotonic()
            batch = run(functools.partial(plans.list_oldest_plans, limit=limit, after=after),
                        begin='')
            if batch:
                after = batch[-1]
                count += run(functools.partial(
                    plans.purge_plans, batch=[plan.plan_id for plan in batch], limit=limit,
                    counted_since=now - counted, judged=judged))
            elif not steps:
                break
            elif not run(steps[0]):
                steps.pop(0)
            time.sleep(min(PURGE_REST, time.monotonic() - began))
        return count


def _read_move_times(connection: sa.Connection, uuids: Collection[str],
                     since: float) -> dict[str, tuple[float, ...]]:
    task = tables.task
    # As for the completed moves of a history: an index serves the bare time alone.
    query = sa.select(task.c.instance_uuid, task.c.completed_at).where(
        task.c.completed_at > since,
        sa.func.lower(task.c.state) == model.TaskState.COMPLETED.value)
    if len(uuids) <= statements.BATCH:
        query = query.where(task.c.instance_uuid.in_(sorted(uuids)))
    times: dict[str, list[float]] = {}
    for row in connection.execute(query.order_by(task.c.completed_at, task.c.task_id)):
        if row.instance_uuid in uuids:
            times.setdefault(row.instance_uuid, []).append(row.completed_at)
    return {uuid: tuple(completed) for uuid, completed in times.items()}
