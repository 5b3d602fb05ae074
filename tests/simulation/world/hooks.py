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


"""Hooks of the executors: they fail, are slow, and their process dies in the middle."""

import dataclasses
import random
from typing import TYPE_CHECKING

from kronos_nova.rebalancer.executors import hook_catalogue
from kronos_nova.rebalancer.executors import hook_runner
from kronos_nova.rebalancer.hooks import base

if TYPE_CHECKING:
    from tests.simulation.world import processes
    from tests.simulation.world import run as runs

#: As a fault in ``only``, for runs that are to have them.
NAME = 'executors have hooks'
#: A run has them with this chance.
PRESENT = 0.3
HOOKS = ('first', 'second')
SETTINGS = hook_runner.HookSettings(enabled=HOOKS, deadline=30.0, after_tries=6)
#: Of each call: its process dies before it or after it, it fails, it takes its time.
DIES, FAILS, WAITS = 0.02, 0.1, 0.2


@dataclasses.dataclass
class Called:
    """A hook of an attempt, by its key."""

    task_id: str
    hook: str
    before: int = 0
    after: int = 0


class Hooks:
    """Of its own chance: what else happens does not hang on it."""

    def __init__(self, run: 'runs.Run', only: frozenset[str] | None) -> None:
        self.run, self.rng = run, random.Random(f'hooks {run.seed}')
        self.present = self.rng.random() < PRESENT if only is None else NAME in only
        self.calls: dict[str, Called] = {}
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return f'00000000-0000-4000-9000-{self._ids:012}'

    def of(self, process: 'processes.Process') -> \
            tuple[hook_catalogue.HookCatalogue, hook_runner.HookSettings] | None:
        """What its worker is given."""
        if not self.present:
            return None
        return hook_catalogue.build_catalogue({name: Hook(self, process, name)
                                            for name in HOOKS}), SETTINGS

    def hit(self, chance: float) -> bool:
        return self.rng.random() < chance and self.run.faults.active

    def open(self, task_id: str) -> list[str]:
        """Hooks of a task that were called before and not yet after."""
        return [c.hook for c in self.calls.values()
                if c.task_id == task_id and c.before and not c.after]


class Hook(base.Hook):
    """One of a process; what it has done it forgets with it."""

    def __init__(self, hooks: Hooks, process: 'processes.Process', name: str) -> None:
        self._hooks, self._process, self._name = hooks, process, name

    def marker(self, call: base.HookCall) -> str:
        return f'{self._name} of {call.task.task_id}'

    def before(self, call: base.HookCall) -> base.HookStep:
        return self._called('before', call)

    def after(self, call: base.HookCall) -> base.HookStep:
        return self._called('after', call)

    def _called(self, when: str, call: base.HookCall) -> base.HookStep:
        hooks = self._hooks
        if hooks.hit(DIES):
            self._process.crash()
        called = hooks.calls.setdefault(call.key, Called(call.task.task_id, self._name))
        setattr(called, when, getattr(called, when) + 1)
        hooks.run.counts[f'hooks called {when}'] += 1
        hooks.run.hook_called(when, call, called, self._process)
        if hooks.hit(DIES):
            self._process.crash()
        if hooks.hit(FAILS):
            hooks.run.counts[f'hooks failed {when}'] += 1
            raise base.StepFailed(problem='said no')
        return _Step(hooks, hooks.rng.randint(1, 4) if hooks.hit(WAITS) else 0)


class _Step(base.HookStep):

    def __init__(self, hooks: Hooks, polls: int) -> None:
        self._hooks, self._left = hooks, polls

    def poll(self, now: float) -> bool:
        if self._hooks.hit(FAILS / 2):
            raise base.StepFailed(problem='failed in the end')
        self._left -= 1
        return self._left < 0
