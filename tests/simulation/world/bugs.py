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

"""Seeded bugs: changes of the real code that some run must notice.

Each has the faults under which it shows; ``CAUGHT`` names a seed that catches it
and the invariant that says so first (see ``tools/simulate_faults.py --bugs``).
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import functools
import json
import sys
import types
from typing import Any
import weakref

import pytest
import sqlalchemy as sa

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import policy
from kronos_nova.conf import policy_watch
from kronos_nova.constraints import claims
from kronos_nova.constraints import instance
from kronos_nova.constraints import server_groups
from kronos_nova.constraints import service_state
from kronos_nova.model import TaskState
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation
from kronos_nova.rebalancer.clients import api as clients_api
from kronos_nova.rebalancer.clients import hidden_servers
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.engine import engine
from kronos_nova.rebalancer.executors import allocation_cleanup
from kronos_nova.rebalancer.executors import base
from kronos_nova.rebalancer.executors import cold
from kronos_nova.rebalancer.executors import endings
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.executors import live
from kronos_nova.rebalancer.executors import migration_deadlines
from kronos_nova.rebalancer.executors import migration_watch
from kronos_nova.rebalancer.executors import nova as nova_executor
from kronos_nova.rebalancer.executors import nova_error_classes as faults_of
from kronos_nova.rebalancer.executors import outcomes
from kronos_nova.rebalancer.executors import preflight_check
from kronos_nova.rebalancer.executors import preflight_reader
from kronos_nova.rebalancer.executors import retry
from kronos_nova.rebalancer.executors import stale_scheduler_view
from kronos_nova.rebalancer.executors import stray_migrations
from kronos_nova.rebalancer.executors import submission
from kronos_nova.rebalancer.executors import unchanged_records
from kronos_nova.rebalancer.executors import worker
from kronos_nova.rebalancer.planning import move_dependencies
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import database_clock
from kronos_nova.rebalancer.store import leases
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import pending_hooks
from kronos_nova.rebalancer.store import plan_approvals
from kronos_nova.rebalancer.store import plans
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import rows
from kronos_nova.rebalancer.store import statements
from kronos_nova.rebalancer.store import swaps
from kronos_nova.rebalancer.store import tables
from kronos_nova.rebalancer.store import task_claims
from kronos_nova.rebalancer.store import task_endings
from kronos_nova.rebalancer.store import task_repository
from kronos_nova.rebalancer.store import tasks
from kronos_nova.rebalancer.store import worker_todo
from kronos_nova.sources import answer
from kronos_nova.sources import prometheus
from tests.simulation.world import approval
from tests.simulation.world import faults
from tests.simulation.world import hooks
from tests.simulation.world import standstills

Patch = pytest.MonkeyPatch
BUGS: dict[str, 'Bug'] = {}
EVERYTHING = frozenset(faults.FAULTS)


@dataclasses.dataclass(frozen=True)
class Bug:
    """``only`` are the faults of the run that notices it."""

    name: str
    apply: Callable[[Patch], None]
    only: frozenset[str]


def bug(*only: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        made = make_bug(apply, only)
        BUGS[made.name] = made
        return apply
    return register


def make_bug(apply: Callable[[Patch], None], only: Iterable[str]) -> Bug:
    """Return the bug of a function, which names it."""
    def apply_anew(patch: Patch) -> None:
        # No statement of before is kept, and none with the bug afterwards.
        patch.setattr(statements, '_build_statement',
                      functools.cache(statements._build_statement.__wrapped__))
        apply(patch)
    return Bug((apply.__doc__ or '').rstrip('.'), apply_anew, frozenset(only))


def _altered(real: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    return lambda *args, **kw: real(*args, **{**kw, **fixed})


# Transactions and budgets.

@bug('transactions overlap', 'Nova does not answer', 'database is away')
def claims_side_by_side(patch: Patch) -> None:
    """Two executors claim at the same moment."""
    real = api.Store._run
    patch.setattr(api.Store, '_run', lambda self, step, *, begin='': real(self, step, begin=''))
    patch.setattr(task_claims, 'build_gate_update', lambda: (sa.select(sa.literal(1)),))
    patch.setitem(faults.FAULTS, 'transactions overlap', 0.5)


@bug('operator changes the policies')
def budget_of_the_past(patch: Patch) -> None:
    """A budget that operators have lowered stays in force."""
    real = policy_watch.PolicyWatch.refresh
    largest: weakref.WeakKeyDictionary[policy_watch.PolicyWatch, int] = weakref.WeakKeyDictionary()

    def refresh(self: policy_watch.PolicyWatch) -> policy.PolicySet:
        policy_set = real(self)
        largest[self] = max(largest.get(self, 0), policy_set.move_budget)
        return policy.PolicySet(aggregates=policy_set.aggregates, policies=tuple(
            each.model_copy(update={'max_migrations_per_cycle': largest[self]})
            for each in policy_set.policies))
    patch.setattr(policy_watch.PolicyWatch, 'refresh', refresh)
    patch.setitem(faults.FAULTS, 'operator changes the policies', 0.1)


# Leases, plans and what they leave behind.

@bug('engine freezes beyond its lease')
def no_fence(patch: Patch) -> None:
    """The fence is dropped."""
    patch.setattr(leases, 'fence_lease', lambda *args: None)


@bug('engine freezes beyond its lease')
def expired_lease(patch: Patch) -> None:
    """A lease that is over is as good as a live one."""
    lease = tables.lease
    patch.setattr(leases, '_match_held_lease', lambda scope, *_rest: (
        lease.c.scope == scope, lease.c.epoch >= 0))


@bug()
def no_lease(patch: Patch) -> None:
    """Planning without a lease."""
    patch.setattr(engine.Engine, '_acquire_lease',
                  lambda self, scope, policy_set: rows.ScopeLease(scope, self._owner, 1))
    patch.setattr(leases, 'fence_lease', lambda *args: None)


@bug('engine crashes after a commit')
def no_cooldown(patch: Patch) -> None:
    """Nothing is cooled."""
    patch.setattr(plans, 'extend_cooldown', lambda *args: None)


@bug()
def forgetful(patch: Patch) -> None:
    """Cooldowns are not read back."""
    real = plans.read_history
    patch.setattr(plans, 'read_history', lambda *args: dataclasses.replace(
        real(*args), cooling={}))


@bug()
def no_scope_cooldown(patch: Patch) -> None:
    """A scope neither cools nor waits for scores that show its last move."""
    real = plans.read_history
    patch.setattr(plans, 'read_history', lambda *args: dataclasses.replace(
        real(*args), scope_cooling=0.0, completed=()))


@bug()
def cooled_at_planning_only(patch: Patch) -> None:
    """Completion leaves no cooldown."""
    real = task_endings.finish_task
    patch.setattr(task_endings, 'finish_task', _altered(real, instance_cooldown=0.0))


@bug()
def two_tasks(patch: Patch) -> None:
    """Live tasks are not seen, and not unique."""
    real = rows.task_columns
    patch.setattr(rows, 'task_columns', lambda task, now: {
        **real(task, now), 'active_instance': task.task_id})
    patch.setattr(plans, '_refuse_busy', lambda *args: None)
    patch.setattr(plans, 'extend_cooldown', lambda *args: None)
    patch.setattr(task_repository.TaskRepository, 'list_in_flight_moves', lambda self: ())


@bug()
def no_budget(patch: Patch) -> None:
    """A policy's budget is not heeded."""
    patch.setattr(policy.PolicySet, 'move_budget', property(lambda self: 99))


@bug()
def requires_lost(patch: Patch) -> None:
    """A task's requirements are not stored."""
    real = rows.task_columns
    patch.setattr(rows, 'task_columns', lambda task, now: {
        **real(task, now), 'requires': '[]'})


@bug()
def wrong_way(patch: Patch) -> None:
    """The first alternate is stored as the destination."""
    real = rows.task_columns

    def columns(task: Any, now: float) -> dict[str, Any]:
        row_values = real(task, now)
        to_hosts = json.loads(row_values['destinations'])
        return {**row_values, 'to_host': to_hosts[-1]}
    patch.setattr(rows, 'task_columns', columns)


# Caps and claims.

def _cap(name: str) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        patch.setattr(task_claims, 'claim_task', _altered(task_claims.claim_task, **{name: 99}))
    return apply


for _name, _what in (('per_scope', 'a scope'), ('total', 'the cloud'),
                     ('per_source', 'a source'), ('per_destination', 'a destination')):
    _apply = _cap(_name)
    _apply.__doc__ = f'The cap of {_what} is not heeded.'
    bug('migration is slow')(_apply)


@bug('migration is slow')
def only_submitted(patch: Patch) -> None:
    """Only submitted tasks hold a slot."""
    patch.setattr(rows, 'IN_FLIGHT', (TaskState.SUBMITTED,))


@bug('migration is slow')
def unknown_is_free(patch: Patch) -> None:
    """Unknown tasks hold no slot."""
    patch.setattr(rows, 'IN_FLIGHT', tuple(
        s for s in rows.IN_FLIGHT if s is not TaskState.UNKNOWN))


@bug()
def out_of_order(patch: Patch) -> None:
    """A task does not wait for its requirements."""
    patch.setattr(task_claims, 'json', types.SimpleNamespace(loads=lambda text: []))
    patch.setattr(tasks, 'requeue_task', lambda *args, **kw: False)


@bug()
def no_stagger(patch: Patch) -> None:
    """A task does not wait for its not_before."""
    real, due = task_claims._choose_queued_task, task_claims.has_claimable
    read = worker_todo.read_todo
    patch.setattr(task_claims, '_choose_queued_task', lambda c, allowed, now, *rest: real(
        c, allowed, now + 600, *rest))
    patch.setattr(task_claims, 'has_claimable', lambda c, scopes, now, seconds: due(
        c, scopes, now + 600, seconds))
    patch.setattr(worker_todo, 'read_todo', lambda *args: read(*args)._replace(claimable=True))


@bug('operator pauses a scope')
def no_pause(patch: Patch) -> None:
    """A pause is not heeded."""
    patch.setattr(pauses, 'list_pauses', lambda *args: [])


@bug(approval.NAME)
def unapproved(patch: Patch) -> None:
    """Executors begin tasks that wait for approval."""
    real = tasks.match_states
    patch.setattr(tasks, 'match_states', lambda states: real(
        [*states, TaskState.PENDING] if list(states) == [TaskState.QUEUED] else states))


@bug(approval.NAME)
def never_lapses(patch: Patch) -> None:
    """A plan without approval waits for ever."""
    patch.setattr(plan_approvals, 'cancel_lapsed_tasks', lambda *args: [])
    patch.setattr(task_endings, 'expire_tasks', lambda *args: [])


@bug('executor freezes beyond its claim')
def anybodys(patch: Patch) -> None:
    """An executor may write on after another one took its task over."""
    task = tables.task

    def mark(connection: Any, task_id: str, worker: str, states: Any, to_state: Any,
             now: float, **fields: Any) -> bool:
        connection.execute(task.update().where(task.c.task_id == task_id).values(
            state=to_state.value, heartbeat_at=now, updated_at=now, **fields))
        return True
    patch.setattr(tasks, 'update_state', mark)


@bug('executor crashes after a POST')
def orphans(patch: Patch) -> None:
    """No executor takes over from a crashed one."""
    patch.setattr(task_claims, 'adopt_tasks', lambda *args: [])


@bug('executor crashes after a POST')
def begun_again(patch: Patch) -> None:
    """A successor begins again without a look."""
    real = task_claims.adopt_tasks

    def adopt(connection: Any, *args: Any) -> Any:
        adopted = real(connection, *args)
        for row in adopted:
            connection.execute(tables.task.update().where(
                tables.task.c.task_id == row.task.task_id).values(state='claimed'))
        return adopted
    patch.setattr(task_claims, 'adopt_tasks', adopt)


@bug('migration fails')
def dependents_stay(patch: Patch) -> None:
    """Tasks that required a failed move stay queued."""
    patch.setattr(task_endings, '_cancel_dependents', lambda *args: [])


# The executor.

@bug()
def post_first(patch: Patch) -> None:
    """An executor sends the request before it commits submitting."""
    def start(self: Any, row: rows.TaskRow) -> None:
        marker = self._driver.pre_flight(row.task, self._read_known_facts(row))
        self._driver.submit(row.task)
        now = self._clock()
        self._outcomes.update_task(row, TaskState.SUBMITTING, [TaskState.CLAIMED], marker=marker,
                                   submitted_at=now,
                                   deadline=retry.compute_deadline(row.task, now, self._settings))
    patch.setattr(submission.TaskSubmission, 'start_task', start)


@bug('POST is lost on its way back')
def again_when_in_doubt(patch: Patch) -> None:
    """An ambiguous answer is taken for a refusal."""
    real = nova_executor.NovaExecutor.submit

    def submit(self: Any, task: Any, *may_send: Any) -> Any:
        try:
            return real(self, task, *may_send)
        except exception.AmbiguousSubmit as e:
            raise exception.NovaClientError(
                instance_uuid=task.instance_uuid, problem=str(e)) from None
    patch.setattr(nova_executor.NovaExecutor, 'submit', submit)


@bug('executor crashes after a POST', 'migration is slow')
def not_looked_up(patch: Patch) -> None:
    """os-migrations is not read again."""
    patch.setattr(nova_executor.NovaExecutor, 'read_progress',
                  lambda *args: base.MigrationProgress(base.MigrationStage.ABSENT))


@bug('POST arrives late')
def impatient(patch: Patch) -> None:
    """A migration that does not show at once was never begun."""
    patch.setattr(retry.RetrySettings, 'absent_seconds', 0.0)


@bug(*sorted(f for f in EVERYTHING - faults.ALONE if f.startswith(('operator', 'user'))))
def no_pre_flight(patch: Patch) -> None:
    """The rules are not judged again on fresh data."""
    patch.setattr(preflight_check, '_check_rules', lambda *args: None)


@bug('migration is slow')
def late_is_failed(patch: Patch) -> None:
    """A task past its deadline has failed and frees its slot."""
    def check(self: Any, row: rows.TaskRow) -> bool:
        if row.task.deadline is None or self._clock() < row.task.deadline:
            return False
        self._outcomes.end_task(row, TaskState.FAILED, 'MigrationTimeout', 'too late')
        return True
    patch.setattr(migration_deadlines.MigrationDeadlines, 'check_deadline', check)


@bug('operator cancels a migration', 'migration is slow')
def cancel_is_retried(patch: Patch) -> None:
    """A migration that an operator cancelled is tried again."""
    real = nova_executor.NovaExecutor.read_progress

    def look(self: Any, task: Any, marker: str) -> base.MigrationProgress:
        progress = real(self, task, marker)
        if progress.stage is base.MigrationStage.CANCELLED:
            return dataclasses.replace(progress, stage=base.MigrationStage.FAILED)
        return progress
    patch.setattr(nova_executor.NovaExecutor, 'read_progress', look)


@bug('migration ends with the instance in ERROR')
def error_is_nothing(patch: Patch) -> None:
    """An instance in ERROR is not quarantined."""
    patch.setattr(quarantine, 'begin_quarantine', lambda *args: None)


@bug('migration ends in error after the instance had moved')
def error_is_failure(patch: Patch) -> None:
    """An end in error is not compared with where the instance is."""
    patch.setattr(live.LiveMigration, '_judge_failure',
                  lambda self, task, migration, server, migrations: base.MigrationProgress(
                      base.MigrationStage.FAILED, 'error'))


@bug('database fails over after the commit')
def silent_doubt(patch: Patch) -> None:
    """No warning names a task in doubt."""
    for module in (worker, submission, migration_watch, migration_deadlines, outcomes):
        patch.setattr(module.LOG, 'warning', lambda *args: None)


# Rules.

def _without(patch: Patch, *dropped: Any) -> None:
    """Rules, and the masks of the same name, are dropped wherever they are kept."""
    assert any(one in constraints.RULES for one in dropped)

    def kept(rules: Any) -> Any:
        return tuple(r for r in rules if r not in dropped)

    for module, name in ((constraints, 'RULES'), (constraints, 'PRE_FLIGHT'),
                         (checker, '_RULES'), (move_dependencies, '_RULES'), (masks, 'QUICK'),
                         (masks, 'MASKS'), (masks, 'FILLING'), (masks, 'KEEPING')):
        patch.setattr(module, name, kept(getattr(module, name)))
    for function in (constraints.judge_move, constraints.list_rejections, masks.mark_permitted,
                     simulation.Simulation.__init__):
        patch.setattr(function, '__defaults__', tuple(
            kept(d) if isinstance(d, tuple) else d for d in function.__defaults__ or ()))


def _rule(*dropped: Any) -> Callable[[Patch], None]:
    return lambda patch: _without(patch, *dropped)


for _dropped, _what, _only in (
        ((server_groups.ANTI_AFFINITY_RULE, masks.groups.mark_hard_groups),
         'Anti-affinity is not judged', ()),
        ((server_groups.AFFINITY_RULE, masks.groups.mark_hard_groups), 'Affinity is not judged',
         ()),
        ((claims.CLAIMS_RULE, masks.claims.mark_room), 'Claims are not judged', ()),
        ((instance.STATE_RULE,), 'Locks and states are not judged',
         ('user locks an instance', 'user stops an instance')),
        ((service_state.SERVICE_STATE_RULE, masks.hosts.mark_receiving),
         'Services are not judged', ('host goes down', 'operator disables a host'))):
    _apply = _rule(*_dropped)
    _apply.__doc__ = f'{_what}.'
    bug(*_only)(_apply)


# What is read.

@bug('Prometheus gives stale samples')
def stale(patch: Patch) -> None:
    """Stale metrics are trusted."""
    patch.setattr(prometheus, 'apply_ages', lambda imbalance, ages, staleness: (imbalance, 5.0))


@bug('Prometheus gives a degraded answer')
def degraded(patch: Patch) -> None:
    """A degraded answer is trusted."""
    patch.setattr(answer, '_find_degradation', lambda document: '')


@bug('Nova cannot read server groups')
def no_groups(patch: Patch) -> None:
    """Server groups that cannot be read are none."""
    real = nova_api.NovaApi.server_groups

    def server_groups_(self: Any) -> Any:
        try:
            return real(self)
        except clients_api.ApiError:
            return []
    patch.setattr(nova_api.NovaApi, 'server_groups', server_groups_)


@bug()
def first_page(patch: Patch) -> None:
    """Only the first page is read, and no look at Placement shows it."""
    patch.setattr(clients_api, '_parse_next_link', lambda links: None)
    patch.setattr(hidden_servers.HiddenServers, 'refuse_incomplete_list', lambda *_args: None)


@bug()
def unchecked(patch: Patch) -> None:
    """The planner ignores server groups, and no checker runs."""
    _without(patch, server_groups.ANTI_AFFINITY_RULE, server_groups.AFFINITY_RULE,
             masks.groups.mark_hard_groups)
    patch.setattr(checker, 'check', lambda *args: [])


# Alternates.

@bug('migration fails', 'migration leaves its allocations for a while')
def unsettled(patch: Patch) -> None:
    """No executor looks for the allocations of a failed migration."""
    patch.setattr(allocation_cleanup, 'find_held_allocation', lambda *args: None)
    # Pre-flight would notice that the instance's allocations are elsewhere.
    patch.setattr(preflight_reader.FreshReader, '_with_claims', lambda self, reads, instance,
                  host: instance)


@bug('migration is refused for what the instance is')
def nobodys_fault(patch: Patch) -> None:
    """Every refusal of Nova is the fault of the destination."""
    patch.setattr(faults_of, 'judge_fault', lambda details, host: (
        faults_of.FaultyPart.DESTINATION, ''.join(details)))


@bug('migration fails')
def forgotten_attempts(patch: Patch) -> None:
    """Only the last attempt is kept."""
    real = rows.attempts_text
    patch.setattr(rows, 'attempts_text', lambda known: real(known[-1:]))


@bug('migration fails', 'executor crashes after a commit')
def unnamed_attempts(patch: Patch) -> None:
    """Attempts do not name their migrations."""
    real = outcomes._build_attempt
    patch.setattr(outcomes, '_build_attempt', lambda row, *args: dataclasses.replace(
        real(row, *args), migration_uuid=None))


@bug()
def nobody_left(patch: Patch) -> None:
    """No rule knows the instances that have just left the destination."""
    patch.setattr(stale_scheduler_view, 'refuse_stale_view', lambda *args, **kw: None)


# Hooks.

@bug(hooks.NAME)
def not_owed(patch: Patch) -> None:
    """An executor calls hooks before it owes them."""
    patch.setattr(pending_hooks.HookRepository, 'record_hook', lambda *args: True)


@bug(hooks.NAME)
def ended_early(patch: Patch) -> None:
    """Hooks are ended while their attempt is under way."""
    patch.setattr(pending_hooks, '_match_due_hooks', sa.true)


@bug(hooks.NAME, 'executor crashes after a commit')
def forgotten_hooks(patch: Patch) -> None:
    """A successor goes on beside the hooks that have begun."""
    patch.setattr(hook_runner.HookRunner, 'has_interrupted_hooks', staticmethod(lambda row: False))


@bug(hooks.NAME, 'migration fails')
def begun_beside(patch: Patch) -> None:
    """An attempt begins while a hook of the one before is owed."""
    patch.setattr(pending_hooks, 'match_tasks_without_hook', sa.true)


@bug('migration fails', 'user locks an instance', 'migration is cancelled')
def half_of_a_pair_stays(patch: Patch) -> None:
    """Half of a pair stays where it is when the other half fails."""
    patch.setattr(swaps, '_undo', lambda connection, swap, *args: swaps._update_state(
        connection, swap, swaps.CALLED_OFF))


@bug(hooks.NAME, 'executor crashes after a commit')
def died_with_them(patch: Patch) -> None:
    """No executor ends the hooks of a dead one."""
    patch.setattr(pending_hooks, 'match_takable_hooks', lambda worker, *args: sa.and_(
        pending_hooks._match_due_hooks(), tables.owed_hook.c.worker == worker))


@bug('Nova answers 503 for an hour')
def outage_is_failure(patch: Patch) -> None:
    """An outage uses up retries."""
    patch.setattr(retry, 'is_waiting_error',
                  lambda error: error.kwargs.get('rule') in retry.WAITING)


@bug('Nova answers 503 for an hour')
def announced_again(patch: Patch) -> None:
    """Each failure of a service is announced."""
    real = quarantine.record_outage
    patch.setattr(quarantine, 'record_outage', lambda *args: real(*args) or True)


@bug('clock of an executor steps far')
def own_clock(patch: Patch) -> None:
    """Executors use the clock of their machine."""
    patch.setattr(database_clock.DatabaseClock, '__call__', lambda self: self._wall())


@bug('clock of an executor steps far')
def wrong_clock(patch: Patch) -> None:
    """An executor begins with a wrong clock."""
    patch.setattr(database_clock.DatabaseClock, 'find_problem', lambda self: None)


# What Nova leaves, requests that come too late, and aborts.

@bug('migration never ends')
def slot_for_ever(patch: Patch) -> None:
    """A record that does not change holds its slot for ever."""
    patch.setattr(rows, 'has_lost_slots', lambda *args: False)


@bug(faults.DRAIN, faults.STOPPED, 'migration never ends', 'Nova answers 503 for an hour')
def slot_by_clock(patch: Patch) -> None:
    """A task loses its slot by the clock alone."""
    real = task_claims._choose_queued_task

    def choose_queued_task(connection: Any, served: Any, now: float, *limits: int) -> Any:
        patch.setattr(rows, 'has_lost_slots', lambda doubt, doubt_since: (
            rows.find_unchanged_since(doubt, doubt_since) or now) <= now - rows.SLOT_SECONDS)
        return real(connection, served, now, *limits)
    patch.setattr(task_claims, '_choose_queued_task', choose_queued_task)
    patch.setattr(unchanged_records, 'NOTED_AFTER', 5.0)  # Noted before the outage begins.


@bug(faults.DRAIN, faults.STOPPED, standstills.LOST)
def cold_for_ever(patch: Patch) -> None:
    """A cold migration that Nova never recorded holds its slot for ever."""
    real = cold.ColdMigration._judge_absence
    patch.setattr(cold.ColdMigration, '_judge_absence',
                  lambda *args: dataclasses.replace(real(*args), version=None))


@bug(*(f'Nova leaves a migration in {status}' for status in faults.LEFT))
def left_for_ever(patch: Patch) -> None:
    """A record that Nova left behind is watched for ever."""
    patch.setattr(endings, 'PATIENCE', float('inf'))
    patch.setattr(endings, 'BUSY_PATIENCE', float('inf'))


@bug(standstills.BEFORE)
def late_and_silent(patch: Patch) -> None:
    """A request that came too late is not looked after."""
    patch.setattr(stray_migrations.StrayMigrations, 'reread_lost_task', lambda *args: False)


@bug(standstills.BEFORE, 'database is read-only', 'database fails over within a transaction')
def late_and_forgotten(patch: Patch) -> None:
    """A request that came too late is forgotten when the database fails."""
    real = stray_migrations.StrayMigrations.keep_lost_request

    def remember(self: Any, *args: Any) -> None:
        if not isinstance(sys.exception(), exception.StoreError):
            real(self, *args)
    patch.setattr(stray_migrations.StrayMigrations, 'keep_lost_request', remember)
    patch.setitem(faults.FAULTS, 'database is read-only', 0.15)


@bug(faults.ABORTS, 'migration never ends', 'abort puts the instance into ERROR')
def own_abort_is_not_known(patch: Patch) -> None:
    """ERROR after our own abort is taken for a fault of the instance."""
    patch.setattr(endings, 'is_own_abort', lambda *args: False)
    patch.setattr(endings, 'is_foreign_abort', lambda *args: False)


@bug('executor freezes beyond its claim', 'executor crashes after a commit')
def told_by_both(patch: Patch) -> None:
    """An executor announces an end that another one has written."""
    real = outcomes.OutcomeWriter.record_loss

    def lost(self: Any, task: Any) -> None:
        real(self, task)
        row = self._store.tasks.find_task(task.task_id)
        if row is not None and row.task.state.is_terminal:
            self.report_cancelled_task(row.task, self._clock())
    patch.setattr(outcomes.OutcomeWriter, 'record_loss', lost)


#: Bug -> (a seed that catches it, the invariant that is broken first).
CAUGHT: dict[str, tuple[int, str]] = {
    'The fence is dropped': (2, 'fenced'),
    'A lease that is over is as good as a live one': (2, 'fenced'),
    'Planning without a lease': (0, 'fenced'),
    'Nothing is cooled': (0, 'ended_cools'),
    'Cooldowns are not read back': (0, 'cooldown'),
    'A scope neither cools nor waits for scores that show its last move': (5, 'cooldown'),
    'Completion leaves no cooldown': (0, 'ended_cools'),
    'Live tasks are not seen, and not unique': (0, 'ended_cools'),
    "A policy's budget is not heeded": (17, 'budget'),
    'A budget that operators have lowered stays in force': (3, 'budget'),
    'Two executors claim at the same moment': (43, 'fenced'),
    "A task's requirements are not stored": (1, 'plan_is_kept'),
    'The first alternate is stored as the destination': (5, 'plan_is_kept'),
    'The cap of a scope is not heeded': (15, 'slots'),
    'The cap of the cloud is not heeded': (4, 'slots'),
    'The cap of a source is not heeded': (7, 'slots'),
    'The cap of a destination is not heeded': (14, 'slots'),
    'Only submitted tasks hold a slot': (0, 'every_task_ends'),
    'Unknown tasks hold no slot': (0, 'every_task_ends'),
    'A task does not wait for its requirements': (1, 'in_order'),
    'A task does not wait for its not_before': (103, 'in_order'),
    'A pause is not heeded': (35, 'wanted_still'),
    'Executors begin tasks that wait for approval': (1, 'states_follow'),
    'A plan without approval waits for ever': (2, 'every_task_ends'),
    'An executor may write on after another one took its task over': (7, 'states_follow'),
    'No executor takes over from a crashed one': (0, 'every_task_ends'),
    'A successor begins again without a look': (0, 'states_follow'),
    'Tasks that required a failed move stay queued': (23, 'every_task_ends'),
    'An executor sends the request before it commits submitting': (0, 'submitting_first'),
    'An ambiguous answer is taken for a refusal': (5, 'table_tells_the_truth'),
    'os-migrations is not read again': (0, 'table_tells_the_truth'),
    'A migration that does not show at once was never begun': (52, 'caps'),
    'The rules are not judged again on fresh data': (0, 'wanted_still'),
    'A task past its deadline has failed and frees its slot': (0, 'table_tells_the_truth'),
    'A migration that an operator cancelled is tried again': (0, 'once_asked'),
    'An instance in ERROR is not quarantined': (0, 'error_is_left_alone'),
    'An end in error is not compared with where the instance is': (0, 'table_tells_the_truth'),
    'No warning names a task in doubt': (2, 'unknown_is_said'),
    'Anti-affinity is not judged': (0, 'plan_is_legal'),
    'Affinity is not judged': (2, 'plan_is_legal'),
    'Claims are not judged': (7, 'plan_is_legal'),
    'Locks and states are not judged': (25, 'wanted_still'),
    'Services are not judged': (2, 'destination_is_legal'),
    'Stale metrics are trusted': (4, 'trusted_metrics'),
    'A degraded answer is trusted': (4, 'trusted_metrics'),
    'Server groups that cannot be read are none': (0, 'plan_is_legal'),
    'Only the first page is read, and no look at Placement shows it': (0, 'plan_is_legal'),
    'The planner ignores server groups, and no checker runs': (0, 'plan_is_legal'),
    'No executor looks for the allocations of a failed migration': (9, 'settled_first'),
    'Every refusal of Nova is the fault of the destination': (8, 'settled_first'),
    'Only the last attempt is kept': (0, 'attempts_are_kept'),
    'Attempts do not name their migrations': (0, 'every_attempt_is_listed'),
    'No rule knows the instances that have just left the destination': (10, 'destination_is_legal'),
    'An executor calls hooks before it owes them': (0, 'owed_first'),
    'Hooks are ended while their attempt is under way': (0, 'in_its_time'),
    'A successor goes on beside the hooks that have begun': (15, 'hooks_come_first'),
    'An attempt begins while a hook of the one before is owed': (18, 'hooks_come_first'),
    "No executor ends the hooks of a dead one": (0, 'every_hook_is_ended'),
    'Half of a pair stays where it is when the other half fails': (574, 'both_or_neither'),
    'Executors use the clock of their machine': (0, 'ordered_work_is_kept'),
    'An executor begins with a wrong clock': (0, 'right_clock'),
    'An outage uses up retries': (10, 'ordered_work_is_not_lost'),
    'Each failure of a service is announced': (1, 'told_once'),
    'A record that does not change holds its slot for ever': (4, 'no_slot_is_held_for_ever'),
    'A task loses its slot by the clock alone': (56, 'slots'),
    'A cold migration that Nova never recorded holds its slot for ever': (
        0, 'no_slot_is_held_for_ever'),
    'A record that Nova left behind is watched for ever': (0, 'no_slot_is_held_for_ever'),
    'A request that came too late is not looked after': (1, 'late_requests_are_said'),
    'A request that came too late is forgotten when the database fails': (
        18, 'late_requests_are_said'),
    'ERROR after our own abort is taken for a fault of the instance': (
        14, 'own_abort_is_forgiven'),
    'An executor announces an end that another one has written': (16, 'told_once'),
}
