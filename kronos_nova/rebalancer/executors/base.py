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

"""The contract of an executor driver: how one move is carried out.

A driver holds no state of its own between the calls: whatever it needs to
find a migration again is in the marker, which the worker stores before the
request is sent. So a successor can go on after a crash.
"""

import abc
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import enum
from typing import Any, Self

from oslo_config import cfg

from kronos_nova import model
from kronos_nova.rebalancer.executors import nova_error_classes


class Stage(enum.StrEnum):
    """What a look at a submitted task found."""

    ABSENT = 'absent'  # no migration of ours: the request never took effect
    WAITING = 'waiting'  # accepted or queued, nothing copied yet
    RUNNING = 'running'
    UNCONFIRMED = 'unconfirmed'  # it has moved, and Nova waits for confirm()
    COMPLETED = 'completed'
    SETTLING = 'settling'  # failed, and Nova has not given back what it had taken
    UNTOLD = 'untold'  # failed, and Nova has not said why yet
    LEFT = 'left'  # Nova works on it no more, and its record says otherwise
    FAILED = 'failed'
    CANCELLED = 'cancelled'  # by an operator, or nova-compute stopped

    @property
    def terminal(self) -> bool:
        return self in (Stage.COMPLETED, Stage.FAILED, Stage.CANCELLED)


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """A look's result; ``detail`` is for people, ``reference`` names the
    migration (its UUID) once it is known. ``rule``: of a failure, the rule of
    ours that Nova has enforced; another try cannot change it. ``broken``: the
    failure has left the instance in ERROR. ``fault``: whose the failure is. ``phase``: how
    far it has come (one of timings.NOVAS), None where that is not told. ``version``: differs
    when Nova has changed anything about the migration; None where that is not known.

    ``place``: the host of an instance that is ``broken``, and ``aborted``: an operator or we
    aborted its migration. ``patience`` of ``CANCELLED``, and of ``FAILED`` where the migration
    was ``aborted``: so many seconds Nova may still put the instance into ERROR.

    Of ``LEFT``: the task ends as ``ending`` when this lasts for ``patience`` seconds;
    ``held`` names what Placement still holds of it."""

    stage: Stage
    detail: str = ''
    reference: str | None = None
    rule: str | None = None
    broken: bool = False
    fault: nova_error_classes.Fault = nova_error_classes.Fault.DESTINATION
    phase: str | None = None
    version: str | None = None
    ending: Stage | None = None
    patience: float = 0.0
    held: str | None = None
    place: str | None = None
    aborted: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What our database knows and Nova does not, read just before pre-flight.

    ``history`` without cooldowns: the task's own planning has set one.
    ``draining`` are hosts being emptied. ``flights`` are the tasks of others
    that have been begun, or are about to be. ``scopes`` are those that some
    engine plans now. ``slotless`` are instances whose task has lost its slots, since Nova
    has long not changed its migration.
    """

    history: model.History = dataclasses.field(default_factory=model.History)
    draining: frozenset[str] = frozenset()
    flights: tuple[model.Flight, ...] = ()
    scopes: frozenset[str] = frozenset()
    slotless: frozenset[str] = frozenset()


class Executor(abc.ABC):
    """Carries out one task, step by step; every step may be repeated."""

    #: Whether anything is migrated: then hooks are called.
    hooked = True

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        """Build a driver from the configuration.

        :param connect: gives an openstacksdk connection, for drivers that
            need one.
        """
        return cls()

    @abc.abstractmethod
    def pre_flight(self, task: model.Task, known: Known) -> str:
        """Check on fresh data that the move is still legal and wanted.

        :returns: a marker (opaque text), stored before :meth:`submit`.
        :raises PreFlightError: it is not; the message says which rule.
        :raises PlacementRejected: the destination has no room.
        :raises ServiceUnavailable: a service does not work; the task waits.
        :raises NovaClientError: the data could not be read.
        """

    def log_in(self, task: model.Task) -> None:
        """Have a valid token, before ``submitting`` is committed: a login may take long.

        :raises ServiceUnavailable: Keystone gives none.
        """
        return None

    @abc.abstractmethod
    def submit(self, task: model.Task,
               may_send: Callable[[], bool] = lambda: True) -> str | None:
        """Ask for the migration, once.

        :param may_send: asked directly before the request is sent; False: it is too late.
        :returns: a reference for the logs (the request id).
        :raises MigrationFailed: the destination is refused, nothing was started.
        :raises InstanceRefused: the instance is, whatever the destination.
        :raises PreFlightError: refused for good (gone, locked).
        :raises ServiceUnavailable: a service does not work, and Nova was not asked.
        :raises HeldUp: it was too late, and Nova was not asked.
        :raises NovaClientError: the request certainly had no effect.
        :raises AmbiguousSubmit: it may have.
        """

    @abc.abstractmethod
    def look(self, task: model.Task, marker: str) -> Progress:
        """What became of the task since the marker was taken. A migration that
        failed is ``FAILED`` only when all that it had taken is given back.

        :raises NovaClientError: could not be read; look again later.
        """

    def bind_marker(self, marker: str, reference: str | None) -> str:
        """Return the marker for later calls, once :meth:`look` has named the migration.

        :param reference: what it named, or what :meth:`submit` gave.
        """
        return marker

    def trace_late_request(self, task: model.Task, marker: str,
                           known: Collection[str]) -> model.Task:
        """Return the task with the source from which Nova carries out its late request: where
        the instance was when the request came.

        :param known: UUIDs of migrations that belong to tasks.
        :raises NovaClientError: could not be read.
        """
        return task

    def confirm(self, task: model.Task, marker: str) -> None:
        """Accept what look() found ``UNCONFIRMED``; it may come twice. Only
        for drivers that find such.

        :raises NovaClientError: not accepted; it is looked at again.
        """
        return None

    def abort(self, task: model.Task, marker: str) -> bool:
        """Ask for the end of our live migration; it may come twice.

        :returns: whether that was accepted; False: there is nothing of ours
            that could be ended, or this driver never does.
        :raises NovaClientError: it is not known; asked again later.
        """
        return False

    def reset_state(self, task: model.Task) -> bool:
        """Make an instance active again whose migration we aborted, and which Nova has put
        into ERROR while its guest runs on its source.

        :returns: whether Nova did so; False: the instance is not as described.
        :raises NovaClientError: it is not known.
        """
        return False

    def measured(self, task: model.Task, reference: str) -> Mapping[str, float]:
        """Seconds of phases (timings.NOVAS) of a migration that has ended, by the clock of
        whoever carried it out; together from our request to its end. Empty: not known.

        :param reference: names the migration, as in :class:`Progress`.
        :raises NovaClientError: could not be read; it is not asked again.
        """
        return {}

    @abc.abstractmethod
    def post_flight(self, task: model.Task) -> None:
        """Verify that the instance is on ``to_host`` and well there.

        :raises MigrationFailed: it is not.
        :raises PreFlightError: it was deleted.
        :raises InstanceInError: it is in ERROR, wherever it is.
        :raises NovaClientError: could not be read; verify again later.
        """
