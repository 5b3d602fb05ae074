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

"""Swaps: the next step when a task of a swap ends, in the same transaction.

Both instances end on their targets, or both on their homes, or the swap is ``stuck`` and
announced. No worker has to remember anything: tasks and the swap's row decide the next step.
"""

from collections.abc import Sequence
import dataclasses
import json
from typing import Any
import uuid

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import tables

_swap = tables.swap
_task = tables.task
_decision = tables.decision
GOING, UNDOING = 'going', 'undoing'
#: Final states: both have moved; both are on their homes, after no move or some; or one is
#: where it should not stay.
SWAPPED, CALLED_OFF, UNDONE, STUCK = 'swapped', 'called-off', 'undone', 'stuck'
OPEN = plans.UNSETTLED
#: States that the log reports to operators.
LOGGED = (UNDOING, UNDONE, STUCK)
#: Author of the decisions that are kept with the plan, and announced to listeners.
BY = 'kronos'
#: Seconds between two decisions of one pass: a Double tells them apart until the year 2242.
DECISION_SPACING = 1e-6
#: Before all moves that balance.
PRIORITY = 0


@dataclasses.dataclass(frozen=True, slots=True)
class SwapMember:
    """An instance of a swap: ``home`` is its host before, ``target`` its host after the swap."""

    instance_uuid: str
    home: str
    target: str


@dataclasses.dataclass(frozen=True, slots=True)
class StoredSwap:
    """A swap and its tasks.

    ``where``: the host of each member by the tasks that have completed, by instance UUID.
    """

    swap_id: str
    plan_id: str
    scope: str
    state: str
    members: tuple[SwapMember, ...]
    undos: tuple[str, ...] = ()
    where: dict[str, str] = dataclasses.field(default_factory=dict)
    tasks: tuple[rows.TaskRow, ...] = ()

    @property
    def noun(self) -> str:
        """The word that operators read: spread makes pairs of other moves as well."""
        first, other = self.members
        return 'swap' if (first.home, first.target) == (other.target, other.home) else 'pair'

    @property
    def members_away(self) -> list[SwapMember]:
        """The members that are not on their homes, the last moved first."""
        last = {row.task.instance_uuid: n for n, row in enumerate(self.tasks)
                if row.task.state is TaskState.COMPLETED}
        return sorted((m for m in self.members if self.where[m.instance_uuid] != m.home),
                      key=lambda m: -last[m.instance_uuid])


def _match_states(states: Sequence[str]) -> sa.ColumnElement[bool]:
    return _swap.c.state.in_([sa.literal(state) for state in states])


def record_swaps(connection: sa.Connection, plan: model.Plan, plan_id: str, now: float) -> None:
    """Write the swaps of a plan whose tasks are stored already."""
    moves = {move.instance_uuid: move for move in plan.moves}
    for swap in plan.swaps:
        first, second = moves[swap.first], moves[swap.second]
        swap_id = str(uuid.uuid4())
        target = first.to_host if swap.parking is None else second.from_host
        members = [[swap.first, first.from_host, target],
                   [swap.second, second.from_host, second.to_host]]
        connection.execute(sa.insert(_swap).values(
            swap_id=swap_id, plan_id=plan_id, scope=plan.scope, created_at=now, state=GOING,
            members=json.dumps(members), undos='[]', passes=0))
        connection.execute(sa.update(_task).values(swap_id=swap_id).where(
            _task.c.plan_id == plan_id,
            _task.c.instance_uuid.in_([swap.first, swap.second])))


def settle_swap(connection: sa.Connection, swap_id: str, now: float) -> list[model.Task]:
    """Do the next step of a swap: nothing, a move, or the end.

    :returns: tasks that were cancelled, because they may not begin any more.
    """
    # First, so that of two executors that end the halves at once the later one sees both ends.
    connection.execute(sa.update(_swap).where(_swap.c.swap_id == swap_id)
                       .values(passes=_swap.c.passes + 1))
    swap = find_swap(connection, swap_id)
    if swap is None or swap.state not in OPEN:
        return []
    failed = [row for row in swap.tasks if row.task.state in (
        TaskState.FAILED, TaskState.CANCELLED)]
    live = [row for row in swap.tasks if not row.task.state.is_terminal]
    cancelled = []
    if swap.state == GOING and failed:
        cancelled = _call_off(connection, swap, live, now)
        live = [row for row in live if row.task not in cancelled]
    if live or _has_busy_member(connection, swap):
        return cancelled
    if swap.state == GOING and not failed:
        _go_on(connection, swap, now)
    else:
        _undo(connection, swap, [*failed, *(
            row for row in swap.tasks if row.task in cancelled)], now)
    return cancelled


def _call_off(connection: sa.Connection, swap: StoredSwap, live: Sequence[rows.TaskRow],
              now: float) -> list[model.Task]:
    """Cancel those tasks of the other half that Nova has not been asked for."""
    unbegun = _task.c.state.in_([TaskState.PENDING.value, TaskState.QUEUED.value])
    return [row.task for row in live if connection.execute(
        sa.update(_task).where(_task.c.task_id == row.task.task_id, unbegun).values(
            state=TaskState.CANCELLED.value, active_instance=None, updated_at=now,
            completed_at=now, error_type='RequirementFailed',
            error=f'The other half of its {swap.noun} did not succeed.')).rowcount == 1]


def _has_busy_member(connection: sa.Connection, swap: StoredSwap) -> bool:
    """Return whether a member has a live task, also of another plan.

    The next step waits for its end.
    """
    return connection.execute(sa.select(_task.c.task_id).where(
        _task.c.active_instance.in_([m.instance_uuid for m in swap.members])
        ).limit(1)).first() is not None


def _go_on(connection: sa.Connection, swap: StoredSwap, now: float) -> None:
    """Move the instance on from the parking host to its target, or end the swap as done."""
    for member in swap.members:
        if swap.where[member.instance_uuid] != member.target:
            _save_move_plan(connection, swap, member, member.target, now,
                            f'goes on from its parking host in the swap of plan {swap.plan_id}')
            return
    _update_state(connection, swap, SWAPPED)


def _undo(connection: sa.Connection, swap: StoredSwap, failed: Sequence[rows.TaskRow],
          now: float) -> None:
    """Do the next step of an undo, or end the swap.

    The last one that moved goes back first: the others may need its room.
    """
    if any(row.task.plan_id in swap.undos for row in failed):
        uuids = ', '.join(f'{m.instance_uuid} is on {swap.where[m.instance_uuid]}, was on '
                          f'{m.home}' for m in swap.members_away)
        _update_state(connection, swap, STUCK)
        _record_decision(connection, swap, STUCK, now,
                         f'the {swap.noun} failed, and so did its undo: {uuids}')
    elif not swap.members_away:
        _update_state(connection, swap, UNDONE if swap.undos else CALLED_OFF)
        if swap.undos:
            _record_decision(connection, swap, UNDONE, now, 'all are back where they were')
    else:
        member = swap.members_away[0]
        plan_id = _save_move_plan(connection, swap, member, member.home, now,
                                  f'undoes the {swap.noun} of plan {swap.plan_id}')
        _update_state(connection, swap, UNDOING, undos=json.dumps([*swap.undos, plan_id]))
        _record_decision(connection, swap, UNDOING, now,
                         f'the {swap.noun} failed; plan {plan_id} moves instance '
                         f'{member.instance_uuid} back to {member.home}')


def _save_move_plan(connection: sa.Connection, swap: StoredSwap, member: SwapMember, to_host: str,
                    now: float,
                    why: str) -> str:
    """Write a plan of its own with the one move, which waits for nothing.

    Pre-flight judges it as any other, but neither hours nor counted moves hold a way back. A
    quarantine for the move of the swap that failed would keep the instance where it should not
    stay, and ends.
    """
    last = next(row for row in reversed(swap.tasks)
                if row.task.instance_uuid == member.instance_uuid)
    plan_id, uuid_ = str(uuid.uuid4()), member.instance_uuid
    task = dataclasses.replace(
        last.task, task_id=str(uuid.uuid4()), plan_id=plan_id, from_host=swap.where[uuid_],
        to_host=to_host, alternates=(), alternate_improvements=(), improvement=0.0,
        phase=model.Phase.REQUESTED, priority=PRIORITY, wave=0, requires=(), retry_count=0,
        not_before=0.0, created_at=now, deadline=None, state=TaskState.QUEUED, trees=())
    move = model.Move(uuid_, task.from_host, to_host, task.phase)
    plans.save_follow_up_plan(connection, model.Plan(
        swap.scope, (move,), warnings=(f'instance {uuid_} {why}',)), task, now)
    connection.execute(sa.update(_task).values(swap_id=swap.swap_id).where(
        _task.c.task_id == task.task_id))
    if last.task.state is not TaskState.COMPLETED:
        quarantine.lift_quarantine(connection, plans.INSTANCE, uuid_)
    return plan_id


def _update_state(connection: sa.Connection, swap: StoredSwap, state: str, **values: Any) -> None:
    connection.execute(sa.update(_swap).where(_swap.c.swap_id == swap.swap_id).values(
        state=state, logged=None, **values))


def _record_decision(connection: sa.Connection, swap: StoredSwap, verb: str, now: float,
                     reason: str) -> None:
    """Record a decision on the plan; engines announce it like those of operators.

    A pass has one time, and a swap may change twice in a pass: the later decision gets a time of
    its own, so that readers find them in their order.
    """
    last = connection.execute(sa.select(sa.func.max(_decision.c.decided_at)).where(
        _decision.c.plan_id == swap.plan_id)).scalar()
    decided_at = now if last is None else max(now, last + DECISION_SPACING)
    connection.execute(sa.insert(_decision).values(
        decision_id=str(uuid.uuid4()), plan_id=swap.plan_id, decided_at=decided_at, decided_by=BY,
        verb=verb, tasks=len(swap.members), reason=reason))


def find_swap(connection: sa.Connection, swap_id: str) -> StoredSwap | None:
    stored_swaps = list_swaps(connection, _swap.c.swap_id == swap_id)
    return stored_swaps[0] if stored_swaps else None


def is_undo(connection: sa.Connection, swap_id: str | None, plan_id: str) -> bool:
    """Return whether the plan is a way back of the swap."""
    undos = connection.scalar(sa.select(_swap.c.undos).where(_swap.c.swap_id == swap_id))
    return undos is not None and plan_id in json.loads(undos)


def list_swaps(connection: sa.Connection, which: sa.ColumnElement[bool]) -> list[StoredSwap]:
    """Return swaps with their tasks, in the order in which these ended; live tasks come last."""
    swap_rows = connection.execute(
        sa.select(_swap).where(which).order_by(_swap.c.created_at, _swap.c.swap_id)).all()
    of_swap: dict[str, list[rows.TaskRow]] = {row.swap_id: [] for row in swap_rows}
    for start in range(0, len(swap_rows), 500):
        for mapping in connection.execute(sa.select(_task).where(_task.c.swap_id.in_(
                [row.swap_id for row in swap_rows[start:start + 500]]))).mappings():
            of_swap[mapping['swap_id']].append(rows.task_row(mapping))
    return [_with_tasks(row, of_swap[row.swap_id]) for row in swap_rows]


def _with_tasks(row: Any, task_rows: list[rows.TaskRow]) -> StoredSwap:
    members = tuple(SwapMember(*member) for member in json.loads(row.members))
    tasks = sorted(task_rows, key=lambda r: (r.completed_at is None, r.completed_at or 0.0,
                                             r.task.created_at, r.task.wave))
    where = {m.instance_uuid: m.home for m in members}
    for task in (r.task for r in tasks if r.task.state is TaskState.COMPLETED):
        where[task.instance_uuid] = task.to_host
    return StoredSwap(row.swap_id, row.plan_id, row.scope, row.state, members,
                      tuple(json.loads(row.undos)), where, tuple(tasks))


def list_unsettled_swaps(connection: sa.Connection) -> list[str]:
    """Return open swaps without a live task, which the end of the last task did not settle."""
    return list(connection.scalars(*_select_unsettled_swaps()))


@statements.build_once
def _select_unsettled_swaps() -> sa.Select[Any]:
    return sa.select(_swap.c.swap_id).where(_match_idle_swaps()).order_by(_swap.c.swap_id)


def _match_idle_swaps() -> sa.ColumnElement[bool]:
    live = sa.select(_task.c.task_id).where(
        _task.c.swap_id == _swap.c.swap_id, _task.c.active_instance.is_not(None))
    return sa.and_(_match_states(OPEN), ~sa.exists(live))


def match_waiting_swaps() -> sa.ColumnElement[bool]:
    """Match swaps that must be settled or logged."""
    return sa.or_(_match_idle_swaps(), _match_unlogged_swaps())


def _match_unlogged_swaps() -> sa.ColumnElement[bool]:
    return sa.and_(_match_states(LOGGED), _swap.c.logged.is_(None))


def pop_unlogged_swaps(connection: sa.Connection) -> list[StoredSwap]:
    """Return the swaps whose undo has begun or ended and is not logged, and mark them as logged.
    """
    return [swap for swap in list_swaps(connection, _match_unlogged_swaps()) if connection.execute(
        sa.update(_swap).values(logged=True).where(
            _swap.c.swap_id == swap.swap_id, _swap.c.state == swap.state,
            _match_unlogged_swaps())).rowcount == 1]


def add_held_hosts(connection: sa.Connection,
                   flights: Sequence[model.InFlightMove]) -> tuple[model.InFlightMove, ...]:
    """Return the flights, with the hosts where open swaps keep capacity free.

    Until the swap ends, each member may end on its home and on its target.

    :param flights: those of live tasks.
    """
    flights_by_uuid = {flight.instance_uuid: flight for flight in flights}
    for swap in list_swaps(connection, _match_states(OPEN)):
        for member in swap.members:
            uuid_, here = member.instance_uuid, swap.where[member.instance_uuid]
            flight = flights_by_uuid.get(uuid_)
            ends = [h for h in (member.target, member.home) if h != here]
            if flight is not None:
                more = [h for h in ends if h not in (
                    flight.from_host, flight.to_host, *flight.alternates)]
                flights_by_uuid[uuid_] = dataclasses.replace(
                    flight, alternates=(*flight.alternates, *more))
            elif here != member.home:
                flights_by_uuid[uuid_] = model.InFlightMove(uuid_, here, ends[0], 'task',
                                                            tuple(ends[1:]), swap.scope)
    return tuple(flights_by_uuid.values())
