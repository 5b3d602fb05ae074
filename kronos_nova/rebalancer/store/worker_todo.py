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


"""Work that an executor finds: one query for all kinds, for most passes find nothing."""

from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import task_claims
from kronos_nova.rebalancer.store import task_endings


class WorkerTodo(NamedTuple):
    """The kinds of work at that moment; an executor that takes one looks again.

    ``late``: tasks that were not begun in time. ``swaps``: pairs to settle or to log.
    ``abandoned``: tasks of silent executors that may have reached Nova. ``mine``: tasks in flight
    that the worker holds. ``owed``: hooks of attempts that have ended, of the worker or of no live
    worker. ``claimable``: tasks that may begin, if their turn has come.
    """

    late: bool
    swaps: bool
    abandoned: bool
    mine: bool
    owed: bool
    claimable: bool


def read_todo(connection: sa.Connection, worker: str, scopes: Collection[str] | None, now: float,
              claim_seconds: float) -> WorkerTodo:
    served = None if scopes is None else tuple(sorted(scopes))
    todo_row = connection.execute(
        *_select_work_kinds(worker, served, now, now - claim_seconds)).one()
    return WorkerTodo(**{name: bool(any_) for name, any_ in todo_row._mapping.items()})


@statements.build_once
def _select_work_kinds(worker: str, scopes: tuple[str, ...] | None, now: float,
                       silent_since: float) -> sa.Select[Any]:
    conditions = {
        'late': task_endings.match_late_tasks(scopes, now, silent_since),
        'swaps': swaps.match_waiting_swaps(),
        'abandoned': task_claims.match_abandoned_tasks(scopes, silent_since),
        'mine': task_claims.held_by(worker),
        'owed': pending_hooks.match_takable_hooks(worker, scopes, silent_since),
        'claimable': task_claims.match_claimable_tasks(scopes, now, silent_since)}
    return sa.Select(*(sa.exists().where(condition).label(name)
                       for name, condition in conditions.items()))
