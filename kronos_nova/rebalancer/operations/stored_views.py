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

"""Views of the database for operators: plans, tasks, pauses and quarantines."""

from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses

from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.operations import sessions
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import pages
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import resolutions
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import swaps


@dataclasses.dataclass(frozen=True, slots=True)
class ListedPlan:
    """A plan of a list; ``tasks`` counts its tasks by state.

    ``asked_by``: the operator who ordered the plan, '' for a plan of an engine.
    """

    row: rows.PlanRow
    tasks: Mapping[TaskState, int]
    asked_by: str

    @property
    def task_states(self) -> str:
        """The numbers of tasks by state, as text."""
        return format_task_states(self.tasks)


def list_plans(session: sessions.DatabaseSession, scope: str | None = None,
               limit: int = 50) -> list[ListedPlan]:
    """List the newest plans, newest first, of all scopes or of the given one.

    :raises KronosException: no engine has planned the scope.
    """
    store = session.store
    plans = store.plans.list_plans(limit, scope)
    if not plans and scope is not None:
        check_scope(session, scope)
    return _list_plans_with_tasks(store, plans)


def _list_plans_with_tasks(store: api.Store, plans: Sequence[rows.PlanRow]) -> list[ListedPlan]:
    uuids = [plan.plan_id for plan in plans]
    counts, requesters = count_plan_tasks(
        store.tasks.list_tasks_of_plans(uuids)), store.approvals.find_requesters(uuids)
    return [ListedPlan(plan, counts.get(plan.plan_id, {}), requesters.get(plan.plan_id, ''))
            for plan in plans]


@dataclasses.dataclass(frozen=True, slots=True)
class PlanPage:
    """A page of plans; ``marker``: that of the next page, None: it is the last page."""

    plans: Sequence[ListedPlan]
    marker: str | None


def list_plan_page(session: sessions.DatabaseSession, page: pages.PageRequest) -> PlanPage:
    """List a page of plans, newest first.

    :raises NotFoundError: no plan has the UUID of the marker.
    """
    store = session.store
    with explain_marker(page):
        plans = store.pages.list_plan_page(page.ask_one_more())
    return PlanPage(_list_plans_with_tasks(store, plans[:page.limit]),
                    plans[page.limit - 1].plan_id if len(plans) > page.limit else None)


@dataclasses.dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of tasks; ``marker``: that of the next page, None: it is the last page."""

    tasks: Sequence[rows.TaskRow]
    marker: str | None


def list_task_page(session: sessions.DatabaseSession, page: pages.PageRequest,
                   task_filter: pages.TaskFilter) -> TaskPage:
    """List a page of tasks, those of the newest plan first.

    :raises NotFoundError: no task has the UUID of the marker.
    """
    with explain_marker(page):
        tasks = session.store.pages.list_task_page(page.ask_one_more(), task_filter)
    return TaskPage(tasks[:page.limit],
                    tasks[page.limit - 1].task.task_id if len(tasks) > page.limit else None)


@contextlib.contextmanager
def explain_marker(page: pages.PageRequest) -> Iterator[None]:
    """Raise NotFoundError for a marker that no row has."""
    try:
        yield
    except pages.UnknownMarker:
        raise make_not_found_error('marker', f'{page.marker} is not known',
                                   'It may have been purged: begin with the first page') from None


@dataclasses.dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan with its tasks, its decisions and its swaps.

    ``realised``: the measured imbalance after the plan; None: not known.
    """

    row: rows.PlanRow
    tasks: Sequence[rows.TaskRow]
    realised: float | None
    decisions: Sequence[plan_decisions.StoredDecision]
    swaps: Sequence[swaps.StoredSwap]
    asked_by: str

    def make_listed_plan(self) -> ListedPlan:
        """Return the plan as a list shows it."""
        return ListedPlan(self.row, count_plan_tasks(self.tasks).get(self.row.plan_id, {}),
                          self.asked_by)


def read_plan(session: sessions.DatabaseSession, plan_id: str) -> StoredPlan:
    """Read a plan.

    :raises KronosException: the plan does not exist.
    """
    store = session.store
    row = store.plans.find_plan(plan_id)
    if row is None:
        raise make_not_found_error(plan_id, 'no such plan',
                                 'kronos plan list shows the newest; [engine] keep_days is how '
                                 'long they are kept')
    return StoredPlan(row, store.tasks.list_tasks_of_plans([plan_id]),
                      store.outcomes.find_measured_imbalances([plan_id]).get(plan_id),
                      store.approvals.list_decisions(plan_id), store.tasks.list_swaps(plan_id),
                      store.approvals.find_requesters([plan_id]).get(plan_id, ''))


def list_tasks(session: sessions.DatabaseSession, ended: int = 0) -> list[rows.TaskRow]:
    """List the tasks that are not over, in the order in which they begin.

    :param ended: how many of the newest tasks that are over follow.
    """
    store = session.store
    return [*store.tasks.list_tasks_in_states(rows.LIVE),
            *(store.tasks.list_ended_tasks(ended) if ended else ())]


def read_task(session: sessions.DatabaseSession,
              task_id: str) -> tuple[rows.TaskRow, Sequence[pending_hooks.PendingHook]]:
    """Read a task, and its hooks that have begun and not ended.

    :raises KronosException: the task does not exist.
    """
    store = session.store
    row = store.tasks.find_task(task_id)
    if row is None:
        raise make_not_found_error(task_id, 'no such task',
                                 'kronos task list --all shows tasks, kronos instance show those '
                                 'of an instance')
    return row, store.hooks.list_task_hooks(task_id)


def find_migration(row: rows.TaskRow) -> str:
    """Return the UUID of Nova's migration, of this attempt or of the last one."""
    if uuidutils.is_uuid_like(row.reference):
        return str(row.reference)
    return next((a.migration_uuid for a in reversed(row.attempts) if a.migration_uuid), '')


def describe_next_step(row: rows.TaskRow) -> str:
    """Describe an operator's next step for a task that failed, is late or does not change."""
    task, migration = row.task, find_migration(row)
    if task.state is TaskState.FAILED:
        where = (f'openstack server event list {task.instance_uuid}'
                 if row.error_type != exception.UnexpectedError.wire_type else
                 'the traceback in the log of kronos-executor; report it')
        return (f'{where}; when the cause is gone: kronos quarantine list, and kronos plan retry '
                f'{task.plan_id} --move {task.instance_uuid} --reason TEXT')
    if task.state not in resolutions.RESOLVABLE:
        return ''
    resolve = (f'kronos task resolve {task.task_id} --as completed (or failed) --reason TEXT, once '
               'you know where the instance is')
    if rows.find_unchanged_since(row.doubt, row.doubt_since) is not None:
        return f'Nova does not change the migration: {resolve}'
    if row.error_type != exception.MigrationTimeout.wire_type:
        return ''
    if not migration:
        return f'openstack server migration list --server {task.instance_uuid}, or {resolve}'
    return (f'wait, or openstack server migration abort {task.instance_uuid} {migration}; if Nova '
            f'refuses that, {resolve}')


def list_pauses(session: sessions.DatabaseSession) -> list[pauses.PauseRecord]:
    """List the pauses that hold a scope, or everything, now."""
    return session.store.pauses.list_pauses(session.store.now())


def list_quarantines(session: sessions.DatabaseSession) -> list[quarantine.QuarantineEntry]:
    """List the instances, hosts, pairs of cells and services in quarantine."""
    return session.store.quarantine.list_quarantines(session.store.now())


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeState:
    """A scope that engines plan, or have planned within a day.

    ``owner``: the engine that holds the scope's lease; None: no engine. ``planned_at``: epoch
    seconds of the last plan. ``dry_run``: of the newest plan. ``cycle``: the last cycle that came
    to a plan, in a dry run the newest plan with a new reason. ``tasks``: numbers by state.
    ``executors``: by name, the number of the scope's tasks that an executor has begun. ``now``: the
    time of the database.
    """

    scope: str
    owner: str | None
    planned_at: float | None
    dry_run: bool | None
    cycle: rows.CycleRecord
    tasks: Mapping[str, int]
    overdue: int
    executors: Mapping[str, int]
    draining: int
    pause: pauses.PauseRecord | None
    now: float


def list_scope_states(session: sessions.DatabaseSession) -> list[ScopeState]:
    """List the state of each scope, by name."""
    conf, store = session.conf, session.store
    census, plans = store.statistics.read_census(), store.plans.list_newest_plans()
    tasks: dict[str, Counter[str]] = {}
    for (scope, _phase, state), number in census.tasks.items():
        tasks.setdefault(scope, Counter())[state] += number
    executors: dict[str, Counter[str]] = {}
    for row in store.tasks.list_tasks_in_states(rows.IN_FLIGHT):
        executors.setdefault(row.task.aggregate, Counter())[row.worker or ''] += 1
    for scope in {*conf.engine.aggregates, model.UNASSIGNED, *census.scopes}:
        for name, served in census.executors.items():
            if served is None or scope in served:
                executors.setdefault(scope, Counter())[name] += 0
    configured = [*conf.engine.aggregates,
                  *[model.UNASSIGNED] * conf.engine.include_unassigned_hosts]
    now = store.now()
    # A scope that was removed long ago has no row; only its plans remain.
    scope_states = []
    for scope in sorted({*configured, *census.scopes}):
        scope_stats, plan = census.scopes.get(scope), plans.get(scope)
        scope_states.append(ScopeState(
            scope, scope_stats.owner if scope_stats is not None and scope_stats.leased else None,
            scope_stats.planned_at if scope_stats is not None and scope_stats.planned_at is not None
            else plan.created_at if plan is not None else None,
            None if plan is None else plan.dry_run,
            _choose_last_cycle(rows.CycleRecord() if scope_stats is None else scope_stats.cycle,
                               plan),
            tasks.get(scope, {}), census.overdue.get(scope, 0), executors.get(scope, {}),
            0 if scope_stats is None else scope_stats.draining,
            next((p for p in census.pauses if p.scope in (None, scope)), None), now))
    return scope_states


def _choose_last_cycle(cycle: rows.CycleRecord, plan: rows.PlanRow | None) -> rows.CycleRecord:
    """Return the last cycle; where the newest plan is newer, a cycle with its fields.

    The plan is newer in a dry run, and after an upgrade from an earlier release.
    """
    if plan is None or (cycle.at is not None and cycle.at >= plan.created_at):
        return cycle
    return dataclasses.replace(
        cycle, at=plan.created_at, moves=len(plan.plan.moves), reason=plan.plan.reason,
        policies=plan.plan.policies)


def count_plan_tasks(tasks: Sequence[rows.TaskRow]) -> dict[str, Counter[TaskState]]:
    """Count each plan's tasks by state, by plan."""
    counts: dict[str, Counter[TaskState]] = {}
    for row in tasks:
        counts.setdefault(row.task.plan_id, Counter())[row.task.state] += 1
    return counts


def format_task_states(counts: Mapping[TaskState, int]) -> str:
    """Format numbers of tasks by state, as in ``2 completed, 1 failed``."""
    return ', '.join(f'{number} {state}' for state, number in sorted(counts.items()))


def check_scope(session: sessions.DatabaseSession, scope: str) -> None:
    """Refuse an unknown scope.

    A pause of a misspelt scope would hold nothing, and its lists would be empty.

    :raises NotFoundError: no engine has planned the scope, and the configuration does not name it;
        the text names the known ones.
    """
    known = {*session.conf.engine.aggregates, *session.store.leases.list_scopes(), model.UNASSIGNED}
    if scope not in known:
        raise make_not_found_error('--scope', f'no engine has planned {scope!r}',
                                   f'Known are: {", ".join(sorted(known))}')


def make_not_found_error(field: str, problem: str, remedy: str) -> exception.NotFoundError:
    """Return the error for a record that does not exist."""
    return exception.NotFoundError(path='command line', field=field, problem=problem,
                                   remedy=remedy)


def make_conflict_error(field: str, problem: str, remedy: str) -> exception.ConflictError:
    """Return the error for a record whose state does not allow the request."""
    return exception.ConflictError(path='command line', field=field, problem=problem,
                                   remedy=remedy)
