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
"""Views for the live page, from the database and the newest readings of the cloud."""

from collections.abc import Callable
import dataclasses
import threading
import time
import typing

from kronos_nova import exception
from kronos_nova import plurals
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.operations import campaign_views
from kronos_nova.rebalancer.operations import plan_sections
from kronos_nova.rebalancer.operations import reading_cache
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.rebalancer.report import live_page
from kronos_nova.rebalancer.report import live_section
from kronos_nova.rebalancer.report import live_values
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.store import pages
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import rows

#: Seconds after their end during which tasks are shown, and failed ones.
ENDED_SECONDS, FAILED_HOURS = 3600.0, 24
#: Tasks that are looked through for those, at most; failed tasks that are shown.
ENDED, FAILED = 500, 50
#: Moves that are shown at most.
MOVES = 1000
#: Plans that make up the imbalance over time.
PLANS = 60
#: Seconds for which all requests of a process get the same rendering.
FRESH_SECONDS = 1.0
Rendered = typing.TypeVar('Rendered')


class RenderedViews:
    """Views that are rendered once a second at most, for all clients of a process.

    One thread renders a view; others wait for it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = 64) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[object, tuple[float, typing.Any]] = {}
        self._rendering: dict[object, _RenderingLock] = {}

    def render(self, key: object, make: Callable[[], Rendered]) -> Rendered:
        """Return the value of a key whose making has begun within the last second, or make it."""
        with self._lock:
            rendering = self._rendering.setdefault(key, _RenderingLock())
            rendering.users += 1
        try:
            with rendering.lock:
                begun = self._clock()
                kept = self._kept.get(key)
                if kept is not None and begun - kept[0] < FRESH_SECONDS:
                    return typing.cast(Rendered, kept[1])
                value = make()
                with self._lock:
                    self._kept[key] = begun, value
                    while len(self._kept) > self._most:
                        del self._kept[min(self._kept, key=lambda other: self._kept[other][0])]
                return value
        finally:
            with self._lock:
                rendering.users -= 1
                if not rendering.users:
                    del self._rendering[key]


@dataclasses.dataclass
class _RenderingLock:
    """A lock for one key, with the number of threads that hold it or wait for it."""

    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    users: int = 0


def read_overview(session: sessions.DatabaseSession) -> live_values.Overview:
    """Read all scopes, the plans that wait, the pauses and the tasks that failed lately."""
    store = session.store
    now = store.now()
    states = stored_views.list_scope_states(session)
    failed = store.pages.list_task_page(
        pages.PageRequest(FAILED, changed_since=now - FAILED_HOURS * 3600.0),
        pages.TaskFilter(states=(TaskState.FAILED,)))
    return live_values.Overview(
        now, tuple(_build_card(state) for state in states), _list_waiting_plans(session, now),
        tuple(live_values.PauseLine(pause.scope, pause.since, pause.until, pause.paused_by,
                                    pause.reason) for pause in store.pauses.list_pauses(now)),
        tuple(live_values.FailedMove(
            live_section.build_failed_line(row), row.task.aggregate, row.task.plan_id,
            row.completed_at or row.updated_at, stored_views.describe_next_step(row))
            for row in failed), FAILED_HOURS, campaign_views.list_progress(session))


def _build_card(state: stored_views.ScopeState) -> live_values.ScopeCard:
    tasks, cycle = state.tasks, state.cycle
    problems = []
    if state.owner is None:
        problems.append('No engine plans this scope now.')
    if not state.executors:
        problems.append('No executor serves this scope.')
    if cycle.error is not None:
        problems.append(f'The last cycle failed: {cycle.error}')
    if state.overdue:
        problems.append(f'{plurals.count_with_verb(state.overdue, "task")} overdue.')
    return live_values.ScopeCard(
        state.scope, tuple(values.PolicyLine(
            report.name, report.threshold, report.measured_imbalance, report.imbalance_after,
            left_out=(report.reason or 'left out') if report.skipped else None)
            for report in cycle.policies),
        cycle.at, bool(state.dry_run),
        running=sum(tasks.get(name, 0) for name in rows.IN_FLIGHT),
        queued=tasks.get(TaskState.QUEUED, 0), waiting=tasks.get(TaskState.PENDING, 0),
        reason=cycle.reason, problems=tuple(problems))


def _list_waiting_plans(session: sessions.DatabaseSession,
                        now: float) -> tuple[live_values.WaitingPlan, ...]:
    store = session.store
    waiting = []
    for plan in store.approvals.list_waiting_plans(now):
        row = store.plans.find_plan(plan.plan_id)
        if row is not None:
            waiting.append(live_values.WaitingPlan(
                plan.plan_id, plan.scope, plan.since, plan.until, plan.moves,
                row.plan.measured_imbalance, row.plan.combined_after, tuple(
                    (decision.decided_by, decision.decided_at, decision.tasks)
                    for decision in store.approvals.list_decisions(plan.plan_id)
                    if decision.verb == plan_decisions.CO_APPROVED), plan.shutdowns))
    return tuple(waiting)


def read_scope(session: sessions.DatabaseSession, cache: reading_cache.ReadingCache,
               scope: str) -> live_values.LiveScope:
    """Read a scope: its hosts in the newest reading, its tasks, and its imbalance over time.

    :raises NotFoundError: no engine has planned the scope.
    :raises StoreError: the database cannot be read.
    """
    stored_views.check_scope(session, scope)
    store = session.store
    now = store.now()
    state = next((state for state in stored_views.list_scope_states(session)
                  if state.scope == scope), None)
    if state is None:
        raise stored_views.make_not_found_error('scope', f'{scope!r} has no state',
                                                'Its engine has not planned it for a day')
    tasks = [*store.tasks.list_tasks_in_states(rows.LIVE, [scope]),
             *(row for row in store.tasks.list_ended_tasks(ENDED)
               if row.task.aggregate == scope
               and (row.completed_at or 0.0) >= now - ENDED_SECONDS)][:MOVES]
    past = store.plans.list_plans(PLANS, scope)
    plans = {row.plan_id: row for row in past}
    for plan_id in {row.task.plan_id for row in tasks} - plans.keys():
        row = store.plans.find_plan(plan_id)
        if row is not None:
            plans[plan_id] = row
    return live_section.build_scope(
        _build_card(state), _find_reading(session, cache, scope), tasks, plans,
        plan_sections.build_points(store, past), now)


def _find_reading(session: sessions.DatabaseSession, cache: reading_cache.ReadingCache,
                  scope: str) -> live_section.ScopeReading | None:
    try:
        readings = cache.list_readings(session.store, scope)
    except exception.ReadingMissingError:
        return None
    for reading in readings:
        if scope in reading.requests:
            return live_section.ScopeReading(reading.requests[scope], {
                host: len(there) for host, there in reading.instances_by_host.items()},
                reading.taken_at)
    return None


def render_plan(session: sessions.DatabaseSession, plan_id: str) -> str:
    """Render a stored plan with its moves and their tasks.

    :raises NotFoundError: the plan does not exist.
    """
    stored = stored_views.read_plan(session, plan_id)
    return live_page.render_plan(plan_sections.build_section(
        session.store, stored.row, session.conf.executor.stagger_seconds, PLANS))
