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


"""The contract of a hook: what is done before and after a migration, beside Nova.

How often, and when. For each attempt of a task, before Nova is asked:

1. ``marker`` once; its text and the task are committed to the database.
2. ``before`` at most once with that key. It may never be called: the executor may crash
   in between.
3. ``after`` at least once, whatever happened: before was not called, failed or was cut off
   at its deadline; the migration completed, failed, was cancelled, or never began; the
   executor crashed, and another one calls. Never before the attempt has ended, and never
   while another attempt of the instance is under way. It is called again, later, until its
   step comes to an end, and given up after ``[hooks] after_tries``, unless the hook never
   gives up: so it must be
   repeatable, and must succeed when there is nothing (left) to undo.

Both give a step, which the executor's one loop polls, a few times a second, beside all else
that it does: a poll must not wait. What blocks is made a step by :class:`pool.Pool`.
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


class Failed(exception.KronosException):
    """A step cannot come to its end; a clause about the hook."""

    msg_fmt = '%(problem)s'
    code = 'kronos.hook'


class NotAllowed(Failed):
    """The hook may not be called by this executor: trying again does not help."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """What a hook is called about.

    ``key`` is of this hook and attempt, in ``before`` and in every ``after``. ``task`` goes
    to the destination of this attempt; ``parameters`` are those that the task brings for
    this hook. ``marker`` is empty when it is asked for. ``ended``: how the attempt ended, in
    ``after`` and where it is known: one that never came to an end, as its claim was lost, has
    none.
    """

    key: str
    task: model.Task
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    marker: str = ''
    ended: model.Attempt | None = None


class Step(abc.ABC):
    """A call under way."""

    @abc.abstractmethod
    def poll(self, now: float) -> bool:
        """Go on, without waiting.

        :param now: epoch seconds.
        :returns: whether it has come to its end.
        :raises Failed: it never will.
        """

    def close(self) -> None:
        """Let go of it, at its end, or when its time is over."""
        return None


class Done(Step):
    """There is nothing to do."""

    def poll(self, now: float) -> bool:
        return True


class Hook(abc.ABC):
    """Something beside Nova that has to know of a migration.

    ``gives_up``: ``after`` is not called for ever.
    """

    gives_up = True

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        """Build it from the configuration, when the executor starts.

        :param connect: gives an openstacksdk connection, for hooks that need one.
        :raises ConfigError: an option cannot be used.
        """
        return cls()

    @classmethod
    def examine(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> str:
        """For ``kronos-test-config``: whether it could do its work now. It tells nobody anything
        and changes nothing; a hook whose creation does has one of its own.

        :returns: what was found, as a clause.
        :raises ConfigError: an option cannot be used.
        :raises Failed: whom it talks to is not there.
        """
        cls.create(conf, connect).close()
        return 'it can be used'

    def marker(self, call: Call) -> str:
        """What ``after`` needs to know, found out without doing anything.

        :raises Failed: the call cannot be made; nothing is owed then.
        """
        return ''

    @abc.abstractmethod
    def before(self, call: Call) -> Step:
        """Before Nova is asked. :raises Failed: it cannot begin."""

    @abc.abstractmethod
    def after(self, call: Call) -> Step:
        """After the attempt. :raises Failed: it cannot begin, for now."""

    def remedy(self, call: Call) -> str:
        """What people have to do when ``after`` was given up, as a sentence."""
        return 'Undo by hand what it has done.'

    def close(self) -> None:
        """The executor ends."""
        return None
