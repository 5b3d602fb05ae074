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


"""Runner of one executor's hooks: it starts them, polls them, and ends them after the attempt.

The runner commits a pending hook before it calls it, so after a crash a successor knows which
hooks to call. Nothing here waits: the worker's loop polls. One case cannot be fenced, as in the
worker: a process that is frozen inside the call of a hook for longer than ``claim_seconds``.
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import enum

from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import uuidutils

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import secret_mask
from kronos_nova.rebalancer.clients import api as clients
from kronos_nova.rebalancer.executors import hook_catalogue
from kronos_nova.rebalancer.hooks import base
from kronos_nova.rebalancer.store import api
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import pending_hooks as owing
from kronos_nova.rebalancer.store import rows

LOG = logging.getLogger(__name__)

#: Seconds between two polls of running hooks.
POLL = 0.5
#: Seconds until ``after`` is called again: the first time, and at most.
BACKOFF, MAX_BACKOFF = 5.0, 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class HookSettings:
    """Options of [hooks]; their help texts describe them."""

    enabled: tuple[str, ...] = ()
    deadline: float = 60.0
    abort: bool = True
    after_tries: int = 10


def build_settings(conf: cfg.ConfigOpts) -> HookSettings:
    return HookSettings(enabled=tuple(conf.hooks.enabled), deadline=conf.hooks.deadline,
                        abort=conf.hooks.on_failure == 'abort', after_tries=conf.hooks.after_tries)


class HooksResult(enum.Enum):
    """Result of a poll of the hooks before a migration."""

    GOING_ON = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()  # with [hooks] on_failure = abort
    LOST = enum.auto()  # another executor has the task


@dataclasses.dataclass(frozen=True, slots=True)
class HookPoll:
    """Result of a poll, with the row's current marks; ``error``: why a hook failed."""

    result: HooksResult
    marks: attempt_phases.Marks
    error: exception.HookFailed | None = None


@dataclasses.dataclass(slots=True)
class _HooksBefore:
    """State of an attempt's hooks before its migration."""

    waiting: list[model.TaskHook]
    marks: attempt_phases.Marks
    number: int = 0
    call: base.HookCall | None = None
    name: str = ''
    step: base.HookStep | None = None
    until: float = 0.0


@dataclasses.dataclass(slots=True)
class _HooksAfter:
    owed: owing.PendingHook
    call: base.HookCall
    step: base.HookStep
    until: float


class HookRunner:
    """Hooks of one worker.

    :param worker: its name in the database.
    :param scopes: scopes whose hooks it ends when other executors have gone silent; None: all.
    """

    def __init__(self, store: api.Store, catalogue: hook_catalogue.HookCatalogue,
                 chosen: HookSettings, worker: str, *, scopes: frozenset[str] | None,
                 claim_seconds: float, clock: Callable[[], float]) -> None:
        self._store, self._catalogue, self._chosen = store, catalogue, chosen
        self._worker, self._scopes, self._clock = worker, scopes, clock
        self._claim_seconds = claim_seconds
        self._held_at = float('-inf')
        self._before: dict[str, _HooksBefore] = {}
        self._after: dict[str, _HooksAfter] = {}

    def record_ownership(self, at: float) -> None:
        """Record when the database last confirmed that tasks and hooks are ours."""
        self._held_at = at

    def _is_held_up(self) -> bool:
        """Return whether another executor may have our tasks by now; then we call no hook.

        Too much time has passed since the database last confirmed them.
        """
        return self._clock() - self._held_at > self._claim_seconds / 2

    # Before.

    def list_wanted_hooks(self, task: model.Task) -> list[model.TaskHook]:
        """Return the hooks of a task: the enabled ones, then those that the task brings.

        An enabled hook has the parameters that the task gives to it.
        """
        own = {hook.name: hook for hook in task.hooks}
        hooks = [own.get(name) or model.TaskHook(name) for name in self._chosen.enabled]
        return hooks + [hook for hook in own.values() if hook.name not in self._chosen.enabled]

    @staticmethod
    def has_interrupted_hooks(row: rows.TaskRow) -> bool:
        """Return whether hooks began in this claim; the executor that called them has gone."""
        phases = [phase for phase, _at in row.marks]
        since = (len(phases) - phases[::-1].index(attempt_phases.QUEUE)
                 if attempt_phases.QUEUE in phases else 0)
        return attempt_phases.HOOKS in phases[since:]

    def has_running_hooks(self, task_id: str) -> bool:
        return task_id in self._before

    def begin_hooks(self, row: rows.TaskRow) -> bool:
        """Begin the hooks of a task; False: the task has none."""
        wanted = self.list_wanted_hooks(row.task)
        if wanted:
            self._before[row.task.task_id] = _HooksBefore(wanted, row.marks)
        return bool(wanted)

    def poll_hooks(self, row: rows.TaskRow) -> HookPoll:
        """Poll the hooks before a migration; the worker calls this as long as they are going on.

        :raises StoreError: the database is away; the hooks start over.
        """
        before = self._before[row.task.task_id]
        error: exception.HookFailed | None = None
        hooks_result = HooksResult.FAILED
        try:
            hooks_result = self._continue_hooks(row, before)
        except exception.HookFailed as e:
            error = e
        finally:
            if hooks_result is not HooksResult.GOING_ON:
                self._drop_hooks(row.task.task_id)
        return HookPoll(hooks_result, before.marks, error)

    def _continue_hooks(self, row: rows.TaskRow, before: _HooksBefore) -> HooksResult:
        while True:
            if before.step is None:
                if not before.waiting:
                    return HooksResult.DONE
                hook = before.waiting.pop(0)
                try:
                    if not self._call_before(row, before, hook):
                        return HooksResult.LOST
                except exception.StoreError:
                    raise
                except Exception as e:
                    self._handle_failure(row.task, hook.name, e)
                continue
            if self._is_held_up():
                return HooksResult.GOING_ON
            try:
                if not before.step.poll(self._clock()):
                    if self._clock() < before.until:
                        return HooksResult.GOING_ON
                    raise base.StepFailed(problem=f'took longer than {self._chosen.deadline:g} s')
            except Exception as e:
                self._handle_failure(row.task, before.name, e)
            _close(before.step)
            before.step = None

    def _call_before(self, row: rows.TaskRow, before: _HooksBefore, wanted: model.TaskHook) -> bool:
        """Commit the pending hook, then call it; False: another executor has the task."""
        hook = self._catalogue[wanted.name]
        now = self._clock()
        call = base.HookCall(uuidutils.generate_uuid(), row.task, wanted.parameters)
        call = dataclasses.replace(call, marker=hook.marker(call))
        before.marks = attempt_phases.begin_phase(before.marks, attempt_phases.HOOKS, now)
        if not self._store.hooks.record_hook(owing.PendingHook(
                call.key, row.task, before.number, wanted, call.marker, now), self._worker, now,
                before.marks):
            return False
        before.number += 1
        self.record_ownership(now)
        if self._is_held_up():
            # Another executor may have taken the task over and ended the hook already.
            LOG.warning('%s: this executor was held up before it could call hook %s; it starts '
                        'again', model.format_task(row.task), wanted.name)
            return False
        before.name, before.call = wanted.name, call
        before.until = now + self._chosen.deadline
        before.step = hook.before(call)
        return True

    def _handle_failure(self, task: model.Task, name: str, error: Exception) -> None:
        """Log the failure of a hook, or raise it.

        :raises HookFailed: [hooks] on_failure demands it, or the task brings this hook.
        """
        kind = (exception.HookNotAllowed if isinstance(error, base.NotAllowed)
                else exception.HookFailed)
        failure = kind(
            instance_uuid=task.instance_uuid, hook=name, problem=_format_failure(error))
        # A hook that the task requests is never left out silently.
        if self._chosen.abort or any(hook.name == name for hook in task.hooks):
            raise failure
        LOG.warning('%s: %s It goes on ([hooks] on_failure).', model.format_task(task),
                    exception.format_sentence(failure))

    def drop_foreign_hooks(self, mine: Iterable[str]) -> None:
        """Drop the hooks of tasks that are not ours any more."""
        for task_id in self._before.keys() - set(mine):
            self._drop_hooks(task_id)

    def _drop_hooks(self, task_id: str) -> None:
        before = self._before.pop(task_id)
        if before.step is not None:
            _close(before.step)

    # After.

    def run_pending_hooks(self, now: float, any_owed: bool) -> None:
        """Go on with the pending hooks of attempts that have ended.

        Of the hooks of a task the last begun goes first; none waits for a hook that has failed.

        :param any_owed: whether there may be pending hooks; if not, the database is not read.
        :raises StoreError: the database is away; a later call goes on.
        """
        due = {owed.owed_id: owed for owed in self._store.hooks.take_due_hooks(
            self._worker, self._scopes, now, self._claim_seconds)} if any_owed else {}
        for owed_id in self._after.keys() - due.keys():
            _close(self._after.pop(owed_id).step)  # another executor has it now
        self.record_ownership(now)
        waiting = sorted((owed for owed in due.values()
                          if owed.owed_id not in self._after and owed.not_before <= now),
                         key=lambda owed: (owed.tries, -owed.number))
        while True:
            busy = {after.owed.task.task_id for after in self._after.values()}
            for owed in list(waiting):
                if owed.task.task_id not in busy:
                    busy.add(owed.task.task_id)
                    waiting.remove(owed)
                    self._call_after(owed)
            ended = [self._poll_after_hook(after) for after in list(self._after.values())]
            if not waiting or not any(ended):
                return

    def _call_after(self, owed: owing.PendingHook) -> None:
        call = base.HookCall(owed.owed_id, owed.task, owed.hook.parameters, owed.marker,
                             self._find_ended_attempt(owed))
        if self._is_held_up():
            return
        try:
            step = self._catalogue.find_installed_hook(owed.hook.name).after(call)
        except Exception as e:
            self._put_off(owed, call, e)
        else:
            self._after[owed.owed_id] = _HooksAfter(
                owed, call, step, self._clock() + self._chosen.deadline)

    def _find_ended_attempt(self, owed: owing.PendingHook) -> model.Attempt | None:
        row = self._store.tasks.find_task(owed.task.task_id)
        last = row.attempts[-1] if row is not None and row.attempts else None
        return last if last is not None and last.ended_at >= owed.begun_at else None

    def _poll_after_hook(self, after: _HooksAfter) -> bool:
        """Poll a hook after its attempt; return whether it has ended."""
        if self._is_held_up():
            return False
        try:
            if not after.step.poll(self._clock()):
                if self._clock() < after.until:
                    return False
                raise base.StepFailed(problem=f'took longer than {self._chosen.deadline:g} s')
        except Exception as e:
            self._release_hooks(after)
            self._put_off(after.owed, after.call, e)
            return True
        self._release_hooks(after)
        self._store.hooks.delete_hook(after.owed.owed_id, self._worker)
        return True

    def _release_hooks(self, after: _HooksAfter) -> None:
        del self._after[after.owed.owed_id]
        _close(after.step)

    def _put_off(self, owed: owing.PendingHook, call: base.HookCall, error: Exception) -> None:
        """Schedule the hook for a later call or give it up, and log which."""
        tries, problem = owed.tries + 1, _format_failure(error)
        task = model.format_task(owed.task)
        if tries >= self._chosen.after_tries and self._gives_up(owed.hook.name):
            if self._store.hooks.delete_hook(owed.owed_id, self._worker):
                LOG.error('%s: hook %s was called %d times after the migration, and failed: it '
                          '%s. It is given up. %s', task, owed.hook.name, tries, problem,
                          self._format_remedy(owed.hook.name, call))
            return
        wait = min(BACKOFF * 2.0 ** min(tries - 1, 30), MAX_BACKOFF)
        if self._store.hooks.postpone_hook(dataclasses.replace(
                owed, tries=tries, not_before=self._clock() + wait, error=problem), self._worker):
            LOG.warning('%s: hook %s after the migration %s; it is called again in %.0f s (%d of '
                        '%d)', task, owed.hook.name, problem, wait, tries, self._chosen.after_tries)
            if tries == self._chosen.after_tries:
                LOG.error('%s: hook %s is not given up, but has failed %d times: it %s. '
                          '%s', task, owed.hook.name, tries, problem,
                          self._format_remedy(owed.hook.name, call))

    def _gives_up(self, name: str) -> bool:
        try:
            return self._catalogue.find_installed_hook(name).gives_up
        except Exception:
            return True

    def _format_remedy(self, name: str, call: base.HookCall) -> str:
        try:
            return self._catalogue.find_installed_hook(name).remedy(call)
        except Exception:
            return 'Undo its work by hand.'

    @property
    def next_poll_time(self) -> float | None:
        """Time of the next poll in epoch seconds; None: no hook is running."""
        return self._clock() + POLL if self._before or self._after else None

    def close(self) -> None:
        """Close all hooks; the pending ones stay in the database for a successor."""
        self.drop_foreign_hooks(())
        for after in list(self._after.values()):
            self._release_hooks(after)
        self._catalogue.close()


def _close(step: base.HookStep) -> None:
    try:
        step.close()
    except Exception as e:
        LOG.warning('A step of a hook could not be closed: %s', _format_failure(e))


def _format_failure(error: Exception) -> str:
    """Return the failure as a clause about the hook."""
    if isinstance(error, base.StepFailed):
        return clients.format_printable(str(error))
    if isinstance(error, exception.KronosException):
        return clients.format_printable(f'cannot be used: {error}')
    return clients.format_printable(
        f'failed unexpectedly ({type(error).__name__}: {secret_mask.mask_text(str(error))})')
