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

"""What must hold, whatever fails: one function each, looked at all the time.

A function returns what is wrong, or None. Those of ``AFTER_COMMIT`` see every
change of the database, ``AFTER_PLAN`` those that brought a plan, ``AT_REQUEST`` every
request for a migration, ``AT_ACCEPTANCE`` those that Nova has accepted.
"""

from collections.abc import Callable
import re
from typing import TYPE_CHECKING

from kronos_nova.model import TaskState
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.planning import tasks
from kronos_nova.rebalancer.store import swaps
from tests.simulation.world import cloud
from tests.simulation.world import hooks
from tests.simulation.world import nova
from tests.simulation.world import processes
from tests.simulation.world import records

if TYPE_CHECKING:
    from tests.simulation.world import run as runs

TERMINAL = frozenset(state.value for state in TaskState if state.is_terminal)
IN_FLIGHT = ('claimed', 'submitting', 'submitted', 'unknown')
IMBALANCE = ('spread', 'pack')
#: An executor whose clock is wrong by more begins nothing (seconds).
WRONG_CLOCK = 30.0
#: A record that an executor has seen unchanged for so long (seconds) may have lost its slot. No
#: clock makes it lose the slot earlier: executors count by monotonic time.
OLD = 3000.0
#: Between two clocks.
SKEW = 2 * processes.WRONG
#: The states that may follow one.
NEXT = {
    None: {'queued', 'pending'},
    'pending': {'queued', 'cancelled'},
    'queued': {'claimed', 'cancelled'},
    'claimed': {'claimed', 'submitting', 'queued', 'failed', 'cancelled'},
    'submitting': {'submitted', 'unknown', 'queued', *TERMINAL},
    'submitted': {'unknown', 'queued', *TERMINAL},
    'unknown': {'submitted', 'queued', *TERMINAL},
}

Found = str | None


def _unchanged(run: 'runs.Run', name: str, seen: int | None) -> bool:
    """Whether an invariant can judge: no other hand changed the cloud since a process looked.

    The next look counts again. Each time that an invariant cannot judge is counted.
    """
    if seen == run.cloud.foreign:
        return True
    run.counts[f'{name} did not judge'] += 1
    return False


# After every commit.

def one_live_task(run: 'runs.Run') -> Found:
    """At most one live task per instance."""
    seen = set()
    for task in run.tasks.values():
        if task.state not in TERMINAL:
            if task.instance in seen:
                return f'instance {task.instance} has two live tasks'
            seen.add(task.instance)
    return None


def states_follow(run: 'runs.Run') -> Found:
    """A task's states follow one another; what has ended stays ended."""
    for task_id, (before, after) in run.steps.items():
        if before != after and after not in NEXT.get(before, ()):
            return f'task {task_id} went from {before} to {after}'
    return None


def budget(run: 'runs.Run') -> Found:
    """A cycle orders no more than the budget in force, counting what is under way."""
    if not isinstance(run.writer, processes.EngineProcess):
        return None
    for plan in run.new_plans:
        live = sum(t.scope == plan.scope and t.state not in TERMINAL
                   for t in run.tasks.values())
        if plan.tasks and live > run.writer.budget:
            return f'{live} tasks in {plan.scope}, budget {run.writer.budget}'
    return None


def list_yielding_tasks(run: 'runs.Run') -> list[records.Task]:
    """Return the tasks that an engine has just cancelled because a drain goes first.

    Only moves for balance that wait for approval give way.
    """
    if not isinstance(run.writer, processes.EngineProcess):
        return []
    plans = {run.tasks[task_id].plan_id for task_id in run.steps
             if (run.tasks[task_id].error or '').startswith('Superseded: ')}
    return [task for task in (run.tasks[task_id] for task_id, step in run.steps.items()
                              if step == ('pending', 'cancelled'))
            if task.plan_id in plans and task.phase in IMBALANCE]


def cooldown(run: 'runs.Run') -> Found:
    """What was planned or has moved is left alone for its cooldown, also after
    a crash; and so is a scope after a plan that followed scores. A move that gave way
    to a drain cools nothing."""
    seconds = run.confs[0].engine.instance_cooldown - SKEW
    pause = run.confs[0].engine.cooldown - SKEW
    never = float('-inf')
    for plan in run.new_plans:
        for task in plan.tasks:
            left = max(run.migrated.get(task.instance, never),
                       *run.planned[task.instance].values(), never) + seconds - run.now
            if left > 0:
                return f'instance {task.instance} is planned {left:.0f} s too early'
        if any(t.phase in IMBALANCE for t in plan.tasks):
            left = max(run.balanced[plan.scope].values(), default=never) + pause - run.now
            if left > 0:
                return f'scope {plan.scope} is planned {left:.0f} s too early'
    return None


def fenced(run: 'runs.Run') -> Found:
    """Only the holder of the live lease, in its epoch, writes a plan."""
    for plan in run.new_plans:
        lease = records.lease(run.raw, plan.scope)
        writer = run.writer.name if run.writer is not None else ''
        if lease is None or lease != (writer, plan.epoch, lease[2]) or lease[2] <= run.now:
            return f'{writer} wrote a plan of epoch {plan.epoch} under the lease {lease}'
    return None


def trusted_metrics(run: 'runs.Run') -> Found:
    """Untrusted metrics mean no imbalance moves, and none from or to a host
    of unknown load."""
    for plan in run.new_plans:
        moves = [t for t in plan.tasks if t.phase in IMBALANCE]
        if not moves or not isinstance(run.writer, processes.EngineProcess):
            continue
        assert run.writer.source is not None
        bad = run.writer.source.bad
        hosts = run.writer.scope_hosts.get(plan.scope, ())
        if len(bad & set(hosts)) > 1 and _unchanged(run, 'trusted_metrics', run.writer.saw):
            return f'{plan.scope} is balanced although {sorted(bad)} have no score'
        if any(bad & {t.from_host, t.to_host} for t in moves):
            return f'a move from or to a host without a score: {sorted(bad)}'
    return None


def plan_is_kept(run: 'runs.Run') -> Found:
    """A plan's tasks are its moves, in its order."""
    for plan in run.new_plans:
        moves = [(m['instance_uuid'], m['from_host'], m['to_host'], list(m['requires']))
                 for m in plan.moves]
        tasks = [(t.instance, t.from_host, t.to_host, t.requires) for t in plan.tasks]
        if sorted(moves) != sorted(tasks):
            return f'plan {plan.plan_id} has the moves {moves} and the tasks {tasks}'
    return None


def plan_is_legal(run: 'runs.Run') -> Found:
    """What may begin first worsens no hard group and overfills no host, by what
    the engine was shown."""
    for plan in run.new_plans:
        if not isinstance(run.writer, processes.EngineProcess) or not _unchanged(
                run, 'plan_is_legal', run.writer.saw):
            continue
        for task in plan.tasks:
            instance = run.cloud.instances.get(task.instance)
            if instance is None or task.requires:
                continue
            wrong = run.cloud.wrong(instance, task.to_host)
            movable = {'ACTIVE', 'SHUTOFF'} if task.phase == 'evacuate' and (
                run.cold_migrates) else {'ACTIVE'}
            if wrong is None and (instance.locked or instance.status not in movable):
                wrong = f'it is {instance.status}, locked: {instance.locked}'
            if wrong is not None:
                return f'{task.instance} is to move to {task.to_host}: {wrong}'
    return None


def slots(run: 'runs.Run') -> Found:
    """Whatever may be under way holds a slot of every cap; a record that an executor has seen
    unchanged for about an hour may hold none, also when its migration is then aborted."""
    slotless = run.standstills.find_slotless()
    flying = [t for t in run.tasks.values()
              if t.state in IN_FLIGHT and t.task_id not in slotless]
    return _over(run, [(t.scope, t.from_host, t.to_host) for t in flying], 'tasks')


def unknown_is_said(run: 'runs.Run') -> Found:
    """Each time that a task becomes unknown, a warning has named it since its last state."""
    for task_id, (_before, after) in run.steps.items():
        if after == 'unknown' and not run.is_named(task_id):
            return f'task {task_id} is unknown, and no warning names it'
    return None


def ended_cools(run: 'runs.Run') -> Found:
    """Whatever ends after it was begun leaves a cooldown behind."""
    for task_id, (before, after) in run.steps.items():
        if after in TERMINAL and before in IN_FLIGHT and before != 'claimed':
            task = run.tasks[task_id]
            until = records.cooldown(run.raw, task.instance)
            # Whoever stood still since it looked at its clock counts from then.
            stood = run.writer.stood if run.writer is not None else 0.0
            wanted = run.now - stood + run.confs[0].engine.instance_cooldown - SKEW
            if until < wanted:
                return f'instance {task.instance} cools {wanted - until:.0f} s too short'
    return None


def attempts_are_kept(run: 'runs.Run') -> Found:
    """No attempt is lost or listed twice, whoever has taken over; each ends a
    claim or a request."""
    for task_id, task in run.tasks.items():
        known = run.attempts.get(task_id, [])
        if task.attempts[:len(known)] != known or len(task.attempts) > len(known) + 1:
            return f'task {task_id} lists {task.attempts} after {known}'
        asked = [a['migration_uuid'] for a in task.attempts if a['migration_uuid']]
        if len(set(asked)) < len(asked):
            return f'task {task_id} lists a migration twice: {task.attempts}'
    return None


AFTER_COMMIT: tuple[Callable[['runs.Run'], Found], ...] = (
    one_live_task, states_follow, slots, unknown_is_said, ended_cools, attempts_are_kept)
AFTER_PLAN: tuple[Callable[['runs.Run'], Found], ...] = (
    budget, cooldown, fenced, trusted_metrics, plan_is_kept, plan_is_legal)


# At every request for a migration.

def submitting_first(run: 'runs.Run') -> Found:
    """No POST without its committed ``submitting``, by who holds the task."""
    uuid, host, process = run.request
    task = run.live_task(uuid)
    if (task is None or task.state != 'submitting' or task.worker != process.name
            or task.to_host != host or not task.marker):
        return f'a request for {uuid} to {host} by {process.name} under {task}'
    return None


def right_clock(run: 'runs.Run') -> Found:
    """No executor begins a move while its clock is wrong."""
    uuid, _host, process = run.request
    if abs(process.skew) > WRONG_CLOCK:
        return f'a request for {uuid} by {process.name}, whose clock is {process.skew:.0f} s ahead'
    return None


def approved_first(run: 'runs.Run') -> Found:
    """What was to wait for approval was approved."""
    task = run.live_task(run.request[0])
    if task is not None and task.task_id in run.approver.waited - run.approver.approved:
        return f'{task.instance} moves and nobody has approved it'
    return None


def in_order(run: 'runs.Run') -> Found:
    """What a task requires has completed, and its time has come."""
    task = run.live_task(run.request[0])
    if task is None:
        return None
    for required in task.requires:
        if not any(t.plan_id == task.plan_id and t.instance == required
                   and t.state == 'completed' for t in run.tasks.values()):
            return f'{task.instance} moves before {required}'
    if run.now < task.not_before - SKEW:
        return f'{task.instance} moves {task.not_before - run.now:.0f} s early'
    return None


def wanted_still(run: 'runs.Run') -> Found:
    """Nothing is asked for that was locked, stopped, quarantined or paused when
    it was looked at."""
    uuid = run.request[0]
    task, instance = run.live_task(uuid), run.cloud.instances.get(uuid)
    if instance is None or task is None or not _unchanged(
            run, 'wanted_still', run.looked.get(task.task_id)):
        return None
    if instance.locked or instance.status != run.requested_status or instance.task_state:
        return f'{uuid} is {instance.status}, locked: {instance.locked}'
    if records.quarantined(run.raw, uuid, run.now - SKEW, run.now + SKEW):
        return f'{uuid} is quarantined'
    if records.paused(run.raw, task.scope, run.now + SKEW):
        return f'{uuid}: {task.scope} is paused'
    return None


def settled_first(run: 'runs.Run') -> Found:
    """Nothing is asked for while Placement holds what an earlier try of the
    task had taken, nor after the instance itself was refused."""
    task = run.live_task(run.request[0])
    if task is None:
        return None
    for migration in run.cloud.migrations:
        if migration.task_id != task.task_id:
            continue
        if migration.held_until > run.now:
            return f'{task.instance} is asked for while {migration.uuid} holds allocations'
        if migration.told == nova.NOT_MIGRATABLE and task.instance not in run.untold:
            return f'{task.instance} is asked for again after Nova refused the instance'
    return None


def hooks_come_first(run: 'runs.Run') -> Found:
    """Each hook was called for this attempt, and each of an earlier one after it."""
    task = run.live_task(run.request[0])
    if task is None or not run.hooks.present:
        return None
    called = sorted(run.hooks.open(task.task_id))
    if called != sorted(hooks.HOOKS):
        return f'{task.instance} is asked for after the hooks {called}'
    return None


AT_REQUEST: tuple[Callable[['runs.Run'], Found], ...] = (
    submitting_first, right_clock, approved_first, in_order, wanted_still, settled_first,
    hooks_come_first)


# At every call of a hook.

def owed_first(run: 'runs.Run', when: str, call: base.HookCall, called: hooks.Called,
               process: processes.Process) -> Found:
    """No hook is called that does not stand in the database as owed, once before."""
    if not records.owed(run.raw, call.key):
        return f'{call.key} ({called.hook}) is called {when} and not owed'
    if when == 'before' and called.before > 1:
        return f'{call.key} ({called.hook}) is called before twice'
    return None


def in_its_time(run: 'runs.Run', when: str, call: base.HookCall, called: hooks.Called,
                process: processes.Process) -> Found:
    """Before: the process has claimed the task, and none was called after. After: the attempt has
    ended, and no other one is under way."""
    task = records.tasks(run.raw).get(called.task_id)
    if when == 'before':
        if task is None or (task.state, task.worker) != ('claimed', process.name) or called.after:
            return f'{call.key} ({called.hook}) is called before by {process.name} under {task}'
    elif task is not None and task.state in IN_FLIGHT:
        return f'{call.key} ({called.hook}) is called after, and its task is {task.state}'
    return None


AT_HOOK: tuple[Callable[..., Found], ...] = (owed_first, in_its_time)


# At every notification.

def told_once(run: 'runs.Run') -> Found:
    """At most one notification per task and outcome, and one per outage."""
    for (task_id, event, retry), times in run.broker.told.items():
        if times > 1:
            return f'{event} of task {task_id}, retry {retry}, was told {times} times'
    times = run.outage.count_announcements()
    return f'the outage of {run.outage.service} was told {times} times' if times > 1 else None


# When Nova accepts one.

def caps(run: 'runs.Run') -> Found:
    """Migrations of ours in Nova: by scope, source, destination and cloud. Those whose task
    may hold no slot (see slots) count for none."""
    slotless = run.standstills.find_slotless()
    return _over(run, [(m.scope, m.from_host, m.to_host) for m in run.cloud.ours()
                       if m.task_id not in slotless], 'migrations')


def once_asked(run: 'runs.Run') -> Found:
    """Nova accepts no request of a task again after one that moved the
    instance, or that somebody cancelled."""
    *earlier, newest = run.cloud.migrations
    if run.moves[newest.task_id]:
        return f'task {newest.task_id} is asked for after its instance has moved'
    if any(m.task_id == newest.task_id and m.status == 'cancelled' for m in earlier):
        return f'task {newest.task_id} is asked for after it was cancelled'
    return None


def one_of_a_group(run: 'runs.Run') -> Found:
    """At most one member of any server group is on its way through us."""
    flying = [m.instance_uuid for m in run.cloud.ours()]
    for group, (_policy, members) in run.cloud.groups.items():
        moving = members.intersection(flying)
        if len(moving) > 1:
            return f'{sorted(moving)} of server group {group} migrate at once'
    return None


# Where tenants have contracts.

def contract_is_kept(run: 'runs.Run') -> Found:
    """Nothing is asked for that the contract of its instance forbids, within the cap."""
    task = run.live_task(run.request[0])
    if run.tenants is None or task is None:
        return None
    return run.tenants.find_breach(task.instance, task.phase, SKEW)


AT_ACCEPTANCE: tuple[Callable[['runs.Run'], Found], ...] = (caps, once_asked, one_of_a_group)


# When Nova schedules one.

def destination_is_legal(run: 'runs.Run', migration: cloud.Migration,
                         wrong: str | None) -> Found:
    """No hard group is worsened and no destination overfilled at any
    intermediate state, both ends charged; nothing goes to a host that is
    closed. What others changed after our last look is Nova's to refuse."""
    if wrong is not None and _unchanged(run, 'destination_is_legal', migration.known):
        return f'{migration.instance_uuid} to {migration.to_host}: {wrong}'
    return None


# When an instance has moved.

def once_moved(run: 'runs.Run', migration: cloud.Migration) -> Found:
    """Each instance moves at most once per decision."""
    if run.moves[migration.task_id] > 1:
        return f'instance {migration.instance_uuid} moved twice for task {migration.task_id}'
    return None


# At the end.

def every_task_ends(run: 'runs.Run') -> Found:
    """Nothing is live, in the table or in Nova, and what ended says how."""
    for task in run.tasks.values():
        if task.state not in TERMINAL:
            return f'task {task.task_id} of {task.instance} stays {task.state}: {task.error}'
        if task.state != 'completed' and not task.error:
            return f'task {task.task_id} {task.state} without a word'
    if run.cloud.ours():
        return f'Nova goes on with {run.cloud.ours()}'
    return None


#: What Nova calls the end that a task tells of.
ENDED = {'completed': 'completed', 'cancelled': 'cancelled', 'failed': 'failed'}


def table_tells_the_truth(run: 'runs.Run') -> Found:
    """Completed means that Nova moved it; anything else that it did not. Where
    others asked for the same move, what is told may be what came of theirs."""
    for task in run.tasks.values():
        moved = run.moves[task.task_id] == 1
        if (task.state == 'completed') != moved and task.instance in run.cloud.instances and (
                task.state not in ('failed', 'cancelled') or not run.disturbed(
                    task, 'table_tells_the_truth')) and (
                ENDED.get(task.state) not in run.mistakable(task)) and (
                task.instance not in run.displaced):
            return f'task {task.task_id} {task.state} ({task.error}), but moved: {moved}'
    return None


def error_is_left_alone(run: 'runs.Run') -> Found:
    """An instance that our migration left in ERROR is quarantined for ever.

    Where Nova accepted an abort and did not heed it, this looks like our abort.
    """
    for migration in run.cloud.migrations:
        instance = run.cloud.instances.get(migration.instance_uuid)
        if (instance is not None and instance.status == 'ERROR' and migration.end == 'ERROR'
                and migration.task_id and not migration.unheeded
                and not records.forever(run.raw, instance.uuid)):
            return f'instance {instance.uuid} is in ERROR and not quarantined for ever'
    return None


def own_abort_is_forgiven(run: 'runs.Run') -> Found:
    """No instance is quarantined for ever for an abort of ours."""
    for migration in run.cloud.migrations:
        uuid = migration.instance_uuid
        if migration.aborted and migration.task_id and records.forever(run.raw, uuid) and not any(
                m.instance_uuid == uuid and (m.end == 'ERROR' or m.left)
                for m in run.cloud.migrations):
            return f'instance {uuid} is quarantined for ever after our abort of {migration.uuid}'
    return None


def every_attempt_is_listed(run: 'runs.Run') -> Found:
    """Each migration that Nova began for a task is an attempt of it.

    Where a predecessor that stood still has asked for the same move again, the attempt has the
    newer of both migrations. An operator who resolves a task names no migration.
    """
    repeated = {migration.task_id for migration in run.cloud.migrations if migration.repeated}
    for migration in run.cloud.migrations:
        task = None if migration.task_id in repeated else run.tasks.get(migration.task_id)
        if task is None or task.instance not in run.cloud.instances or run.disturbed(
                task, 'every_attempt_is_listed'):
            continue
        listed = {a['migration_uuid']: a for a in task.attempts}
        unnamed = listed.get(None, {})
        if migration.uuid not in listed and (
                unnamed.get('error_type'), unnamed.get('to_host')) == (
                'MigrationResolved', migration.to_host):
            continue
        if migration.uuid not in listed:
            return f'migration {migration.uuid} of task {task.task_id} is not in {listed}'
        if listed[migration.uuid]['to_host'] != migration.to_host:
            return f'migration {migration.uuid} went to {migration.to_host}, not as in {listed}'
    return None


def every_hook_is_ended(run: 'runs.Run') -> Found:
    """What was called before was called after, at least once, and nothing is owed."""
    for key, called in run.hooks.calls.items():
        if called.before and not called.after:
            return f'hook {called.hook} ({key}) of task {called.task_id} is never called after'
    left = records.owed(run.raw)
    return f'hooks stay owed: {left}' if left else None


def both_or_neither(run: 'runs.Run') -> Found:
    """A swap ends with both or neither, or with an alarm."""
    for plan_id, state, members in records.swaps(run.raw):
        run.counts[f'{state} swaps'] += 1
        if state in swaps.OPEN:
            return f'the swap of plan {plan_id} stays {state}'
        completed = [t.instance for t in run.tasks.values() if t.state == 'completed'
                     and t.plan_id == plan_id]
        moved = [member[0] in completed for member in members]
        if state == swaps.SWAPPED and not all(moved):
            return f'half the swap of plan {plan_id} is {state}'
        if state == swaps.CALLED_OFF and any(moved):
            return f'half the swap of plan {plan_id} was made'
    return None


def no_slot_is_held_for_ever(run: 'runs.Run') -> Found:
    """A record that Nova does not change holds a slot for an hour at most."""
    task = run.standstills.find_held()
    return None if task is None else (
        f'task {task.task_id} of {task.instance} stays {task.state} beside what Nova left: '
        f'{task.error}')


def late_requests_are_said(run: 'runs.Run') -> Found:
    """An executor that stood still in its request says that the request came too late."""
    late = run.standstills.find_unsaid()
    return late and (f'the request of task {late.task_id} of {late.instance} came too late, and '
                     f'{late.name} does not say so')


def ordered_work_is_kept(run: 'runs.Run') -> Found:
    """No task is cancelled as too old before its time."""
    for task_id, in run.raw.execute(
            "SELECT task_id FROM task WHERE error LIKE 'It was not begun in time%'"):
        waited = run.ended[task_id] - run.made[task_id]
        if run.tasks[task_id].phase not in IMBALANCE or waited < tasks.MIN_WAIT / 2:
            return f'task {task_id} was cancelled before its time, after {waited:.0f} s'
    return None


#: What a request says that a service did not answer, or did not work.
_OUTAGE = re.compile(r'could not (read|be asked for).*(HTTP (401|5\d\d)|no answer in time'
                     r'|cannot be reached|Keystone)')


def ordered_work_is_not_lost(run: 'runs.Run') -> Found:
    """A service that does not work ends no task and uses up no retry before Nova was asked."""
    for task in run.tasks.values():
        lost = [a for a in task.attempts
                if a['error_type'] == 'NovaClientError' and _OUTAGE.search(a['error'] or '')]
        if len(lost) > run.requests[task.task_id]:
            return (f'task {task.task_id} {task.state} was asked for '
                    f'{run.requests[task.task_id]} times and lists {lost}')
    return None


AT_END: tuple[Callable[['runs.Run'], Found], ...] = (
    every_task_ends, table_tells_the_truth, error_is_left_alone, every_attempt_is_listed,
    every_hook_is_ended, both_or_neither, ordered_work_is_kept, ordered_work_is_not_lost,
    own_abort_is_forgiven, late_requests_are_said)

#: Judged where they can be seen; see Run.judge.
ELSEWHERE = ('messages_change_nothing', 'no_defect')


def names() -> list[str]:
    return [f.__name__ for f in (
        *AFTER_COMMIT, *AFTER_PLAN, *AT_REQUEST, *AT_HOOK, *AT_ACCEPTANCE,
        told_once, destination_is_legal, once_moved, no_slot_is_held_for_ever,
        *AT_END)] + list(ELSEWHERE)


def _over(run: 'runs.Run', flying: list[tuple[str, str, str]], what: str) -> Found:
    conf = run.confs[0].executor
    if len(flying) > conf.max_concurrent_migrations_total:
        return f'{len(flying)} {what} in the cloud'
    for scope, from_host, to_host in flying:
        for end, limit, name in ((0, conf.max_concurrent_migrations, scope),
                                 (1, conf.max_concurrent_per_source, from_host),
                                 (2, conf.max_concurrent_per_destination, to_host)):
            count = sum(f[end] == name for f in flying)
            if count > limit:
                return f'{count} {what} of {name}, {limit} allowed'
    return None
