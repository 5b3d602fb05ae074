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

"""Memory of one executor about the migrations that it watches, one record for each task.

The database does not have this: a successor begins without it.
"""

from collections.abc import Collection
import dataclasses

from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import executor_clock
from kronos_nova.rebalancer.executors import migration_uncertainty
from kronos_nova.rebalancer.executors import unchanged_records
from kronos_nova.rebalancer.store import rows


@dataclasses.dataclass(slots=True)
class InFlightMigration:
    """Memory about the migration of one task, since its latest request.

    ``next_look``: when the watch looks at the migration again, by the database's clock; None: at
    once. ``unverified_since``: since when the instance looks wrong although Nova says completed,
    by monotonic time. ``has_been_aborted``: Nova has accepted our abort. ``seen``: the version of
    Nova's record. ``doubt``: the latest one of the row; ``doubt_began``: its begin by monotonic
    time. ``copies``: the amounts that Nova wrote. ``forced_at``: since when a step against the
    migration may be at work, by monotonic time; ``expected_handover``: the part of its expected
    seconds beside the request and the sending. ``obstacle``: why the last step was not taken.
    """

    next_look: float | None = None
    unverified_since: float | None = None
    has_been_aborted: bool = False
    seen: unchanged_records.SeenVersion | None = None
    doubt: str | None = None
    doubt_began: float = 0.0
    copies: escalation.CopyHistory = dataclasses.field(default_factory=escalation.CopyHistory)
    forced_at: float | None = None
    expected_handover: float | None = None
    obstacle: str | None = None

    def is_due(self, now: float) -> bool:
        """Return whether the time of the next look has come."""
        return self.next_look is None or self.next_look <= now

    def measure_doubt(self, row: rows.TaskRow, stage: base.MigrationStage, now: float,
                      clock: executor_clock.ExecutorClock, monotonic: float) -> float | None:
        """Return for how long this doubt has lasted; None: it begins now, and the row lacks it.

        Only monotonic time counts within an executor: the database's clock may step. The time
        before a successor's first look counts by that clock, unless it may be wrong.

        :param now: the time by ``clock``, with which a doubt that begins is to be recorded.
        :param monotonic: the present monotonic time.
        """
        since = migration_uncertainty.find_doubt_since(row, stage)
        if since is None:
            self.doubt, self.doubt_began = migration_uncertainty.encode_doubt(stage, now), monotonic
            return None
        if row.doubt != self.doubt:
            before = 0.0 if clock.has_jumped() else max(0.0, now - since)
            self.doubt, self.doubt_began = row.doubt, monotonic - before
        return monotonic - self.doubt_began


class InFlightMigrations:
    """Records by the id of the task."""

    def __init__(self) -> None:
        self._by_task: dict[str, InFlightMigration] = {}

    def begin_migration(self, task_id: str, next_look: float) -> None:
        """Begin the record of a new request.

        It replaces that of the previous attempt: a task may be claimed again within the same pass.
        """
        self._by_task[task_id] = InFlightMigration(next_look)

    def find_migration(self, task_id: str) -> InFlightMigration:
        """Return the record of a task; that of a predecessor's migration begins now."""
        return self._by_task.setdefault(task_id, InFlightMigration())

    def forget_all_but(self, task_ids: Collection[str]) -> None:
        """Drop the records of all other tasks."""
        for task_id in self._by_task.keys() - task_ids:
            del self._by_task[task_id]

    def forget_times(self) -> None:
        """Drop the times by the database's clock, which has jumped: they may be far ahead."""
        for flight in self._by_task.values():
            flight.next_look = None

    def find_next_look(self) -> float:
        """Return when the next look is due; infinity: no look is planned."""
        return min((flight.next_look for flight in self._by_task.values()
                    if flight.next_look is not None), default=float('inf'))
