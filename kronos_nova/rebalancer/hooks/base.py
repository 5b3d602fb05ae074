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


"""The contract of a hook, which acts before and after a migration, beside Nova.

The calls for each attempt of a task; the first two come before the request to Nova:

1. ``marker`` once; its text and the task are committed to the database.
2. ``before`` at most once with that key. It may never be called: the executor may crash
   in between.
3. ``after`` at least once, in every case: before was not called, failed or was cut off at
   its deadline; the migration completed, failed, was cancelled, or never began; the executor
   crashed, and another one calls. Never before the attempt has ended, and never while another
   attempt of the instance is under way. The executor calls it again, later, until its step
   ends, and gives it up after ``[hooks] after_tries``, unless the hook never gives up. So it
   must be repeatable, and must succeed when nothing is left to undo.

Both return a step, which the executor's one loop polls a few times a second, beside its other
work: a poll must not wait. :class:`pool.StepPool` makes a step of a function that blocks.
A hook keeps nothing that ``after`` needs but the marker: another process may call it.
"""

import abc
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any, Self

from oslo_config import cfg

from kronos_nova import exception
from kronos_nova import model


class StepFailed(exception.KronosException):
    """The failure of a step; its text is a clause about the hook."""

    msg_fmt = '%(problem)s'
    code = 'kronos.hook'


class NotAllowed(StepFailed):
    """The refusal to call a hook in this executor: another try does not help."""


@dataclasses.dataclass(frozen=True, slots=True)
class HookCall:
    """A call of a hook.

    ``key`` belongs to this hook and attempt, in ``before`` and in every ``after``. ``task`` goes
    to the destination of this attempt; ``parameters`` are those that the task brings for this
    hook. ``marker`` is empty in the call that returns it. ``ended``: how the attempt ended, in
    ``after`` and where it is known; an attempt that never ended, because its claim was lost, has
    none.
    """

    key: str
    task: model.Task
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    marker: str = ''
    ended: model.Attempt | None = None


class HookStep(abc.ABC):
    """A call under way."""

    @abc.abstractmethod
    def poll(self, now: float) -> bool:
        """Go on, without waiting.

        :param now: epoch seconds.
        :returns: whether the step has ended.
        :raises StepFailed: it never will.
        """

    def close(self) -> None:
        """Release the resources of the step, at its end or when its time is over."""
        return None


class FinishedStep(HookStep):
    """A step that has nothing to do."""

    def poll(self, now: float) -> bool:
        return True


class Hook(abc.ABC):
    """A system beside Nova that has to know of a migration.

    ``gives_up``: the executor does not call ``after`` for ever.
    """

    gives_up = True

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        """Build the hook from the configuration, when the executor starts.

        :param connect: returns an openstacksdk connection, for hooks that need one.
        :raises ConfigError: an option cannot be used.
        """
        return cls()

    @classmethod
    def examine(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> str:
        """Check for ``kronos-test-config`` whether the hook could do its work now.

        This notifies no system and changes nothing; a hook whose creation does so overrides it.

        :returns: the finding, as a clause.
        :raises ConfigError: an option cannot be used.
        :raises StepFailed: the system that the hook talks to is not there.
        """
        cls.create(conf, connect).close()
        return 'it can be used'

    def marker(self, call: HookCall) -> str:
        """Return the facts that ``after`` needs; find them without any change.

        :raises StepFailed: the call cannot be made; then no ``after`` is pending.
        """
        return ''

    @abc.abstractmethod
    def before(self, call: HookCall) -> HookStep:
        """Begin the work before the request to Nova.

        :raises StepFailed: it cannot begin.
        """

    @abc.abstractmethod
    def after(self, call: HookCall) -> HookStep:
        """Begin the work after the attempt.

        :raises StepFailed: it cannot begin, for now.
        """

    def remedy(self, call: HookCall) -> str:
        """Return the instruction to people after ``after`` was given up, as a sentence."""
        return 'Undo its work by hand.'

    def close(self) -> None:
        """Release all resources: the executor ends."""
        return None
