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

"""The contract of an executor driver, which carries out one move.

A driver holds no state between the calls. The marker, which the worker stores before it sends the
request, has all that the driver needs to find the migration again. So a successor can go on after
a crash.
"""

import abc
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import enum
from typing import Any, Self

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import secret_mask
from kronos_nova.rebalancer.executors import escalation
from kronos_nova.rebalancer.executors import nova_error_classes

LOG = logging.getLogger(__name__)


def report_unexpected_error(task: model.Task, error: Exception) -> exception.UnexpectedError:
    """Log an exception with its traceback; return the error that the task's row gets for it."""
    unexpected = exception.UnexpectedError(
        instance_uuid=task.instance_uuid,
        problem=f'{type(error).__name__}: {secret_mask.mask_text(str(error))}')
    LOG.error('%s: %s: %s', model.format_task(task), unexpected.wire_type, unexpected,
              exc_info=error)
    return unexpected


@contextlib.contextmanager
def check_contract(task: model.Task) -> Iterator[None]:
    """Hold calls of a driver to the errors of its contract.

    :raises UnexpectedError: for every other exception, which is logged.
    """
    try:
        yield
    except (exception.MigrationError, exception.StoreError):
        raise
    except Exception as e:
        raise report_unexpected_error(task, e) from e


class MigrationStage(enum.StrEnum):
    """Stage of a submitted task, as the driver finds it in Nova."""

    ABSENT = 'absent'  # no migration of ours: the request never took effect
    WAITING = 'waiting'  # accepted or queued, nothing copied yet
    RUNNING = 'running'
    UNCONFIRMED = 'unconfirmed'  # the instance has moved, and Nova waits for confirm()
    COMPLETED = 'completed'
    SETTLING = 'settling'  # failed, and Nova has not released its claims yet
    UNTOLD = 'untold'  # failed, and Nova has not recorded the reason yet
    LEFT = 'left'  # Nova no longer works on it, and its record says otherwise
    FAILED = 'failed'
    CANCELLED = 'cancelled'  # by an operator, or nova-compute stopped

    @property
    def is_terminal(self) -> bool:
        return self in (MigrationStage.COMPLETED, MigrationStage.FAILED, MigrationStage.CANCELLED)


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationProgress:
    """Progress of a task's migration, as the driver reads it from Nova.

    ``detail`` is a text for people. ``reference`` is the UUID of the migration, once it is known.
    ``rule``, of a failure: the rule of ours that Nova has enforced; another try cannot change it.
    ``broken``: the failure has left the instance in ERROR. ``fault``: the cause of the failure.
    ``phase``: the phase that the migration has reached (one of attempt_phases.NOVAS), None where
    Nova does not tell it. ``version``: differs when Nova has changed anything about the migration;
    None where that is unknown.

    ``place``: the host of an instance that is ``broken``, or whose migration was ``aborted``.
    ``aborted``: an operator or we aborted the migration, None where Nova does not let us read
    that. ``aborted_by``: the user who did, if Nova
    names one that is not ours. ``patience`` of ``CANCELLED``, and of
    ``FAILED`` where the migration was ``aborted``: seconds for which Nova may still put the
    instance into ERROR.

    ``LEFT``: the task ends as ``ending`` when the contradiction lasts for ``patience`` seconds;
    ``held`` names an allocation that Placement still holds.

    ``source``: the host that the migration leaves, where it is not the task's source.
    """

    stage: MigrationStage
    detail: str = ''
    reference: str | None = None
    rule: str | None = None
    broken: bool = False
    fault: nova_error_classes.FaultyPart = nova_error_classes.FaultyPart.DESTINATION
    phase: str | None = None
    version: str | None = None
    ending: MigrationStage | None = None
    patience: float = 0.0
    held: str | None = None
    place: str | None = None
    aborted: bool | None = False
    aborted_by: str | None = None
    source: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StoredFacts:
    """Facts from our database that Nova does not know, read just before pre-flight.

    ``now``: epoch seconds by the executor's clock; a driver reads no other one. ``history`` has no
    cooldowns: the task's own planning has set one. ``draining``: hosts that are being emptied.
    ``flights``: other tasks that have begun or are about to. ``scopes``: those that an engine plans
    now. ``slotless``: instances whose task has lost its slots, because Nova has not changed its
    migration for a long time. ``returning``: the task takes its instance back in a swap that
    failed.
    """

    now: float
    history: model.MoveHistory = dataclasses.field(default_factory=model.MoveHistory)
    draining: frozenset[str] = frozenset()
    flights: tuple[model.InFlightMove, ...] = ()
    scopes: frozenset[str] = frozenset()
    slotless: frozenset[str] = frozenset()
    returning: bool = False


class Executor(abc.ABC):
    """Driver that carries out one task, step by step; the worker may repeat every step."""

    #: True for drivers that migrate instances: the worker calls hooks.
    hooked = True

    @classmethod
    def create(cls, conf: cfg.ConfigOpts, connect: Callable[[], Any]) -> Self:
        """Build a driver from the configuration.

        :param connect: returns an openstacksdk connection, for drivers that need one.
        """
        return cls()

    @abc.abstractmethod
    def pre_flight(self, task: model.Task, known: StoredFacts) -> str:
        """Check on fresh data that the move is still legal and wanted.

        :returns: a marker (opaque text), stored before :meth:`submit`.
        :raises PreFlightError: the move is not; the message says which rule.
        :raises PlacementRejected: the destination has no room.
        :raises ServiceUnavailable: a service does not work; the task waits.
        :raises NovaClientError: the data could not be read.
        """

    def log_in(self, task: model.Task) -> None:
        """Get a valid token before the worker commits ``submitting``: a login may take long.

        :raises ServiceUnavailable: Keystone issues none.
        """
        return None

    @abc.abstractmethod
    def submit(self, task: model.Task,
               may_send: Callable[[], bool] = lambda: True) -> str | None:
        """Ask Nova for the migration, once.

        :param may_send: called directly before the request is sent; False: it is too late.
        :returns: a reference for the logs (the request id).
        :raises MigrationFailed: Nova refuses the destination and has started nothing.
        :raises InstanceRefused: Nova refuses the instance, for every destination.
        :raises PreFlightError: refused for good (gone, locked).
        :raises ServiceUnavailable: a service does not work, and the request was not sent.
        :raises HeldUp: it was too late, and the request was not sent.
        :raises NovaClientError: the request certainly had no effect.
        :raises AmbiguousSubmit: the request may have had an effect.
        """

    @abc.abstractmethod
    def read_progress(self, task: model.Task, marker: str) -> MigrationProgress:
        """Return the progress of the task since the marker was taken.

        A failed migration is ``FAILED`` only once Nova has released everything that it had
        claimed.

        :raises NovaClientError: Nova could not be read; look again later.
        """

    def bind_marker(self, marker: str, reference: str | None) -> str:
        """Return the marker for later calls, once :meth:`read_progress` has named the migration.

        :param reference: the reference that :meth:`read_progress` or :meth:`submit` returned.
        """
        return marker

    def trace_late_request(self, task: model.Task, marker: str,
                           known: Collection[str]) -> model.Task:
        """Return the task with the source from which Nova carries out its late request.

        That is the host of the instance when the request came.

        :param known: UUIDs of migrations that belong to tasks.
        :raises NovaClientError: Nova could not be read.
        """
        return task

    def confirm(self, task: model.Task, marker: str) -> None:
        """Confirm a migration in stage ``UNCONFIRMED``; the worker may repeat this.

        Only for drivers that report this stage.

        :raises NovaClientError: Nova did not accept; the worker looks again.
        """
        return None

    def abort(self, task: model.Task, marker: str) -> bool:
        """Ask Nova to abort our live migration; the worker may repeat this.

        :returns: whether Nova accepted; False: Nova can abort no migration of ours, or this driver
            never aborts.
        :raises NovaClientError: the result is unknown; the worker asks again later.
        """
        return False

    def read_copy(self, task: model.Task, marker: str) -> escalation.CopySample | None:
        """Return the amounts of our live migration, while it copies.

        None: it does not, or the amounts are not known.

        :raises NovaClientError: Nova could not be read; look again later.
        """
        return None

    def force_completion(self, task: model.Task, marker: str,
                         may_send: Callable[[], bool]) -> str | None:
        """Ask Nova, once, to complete our live migration by post-copy or a pause of the guest.

        :param may_send: called directly before the request is sent; False: it is too late.
        :returns: None: Nova accepted; else why it was not asked, or refused.
        :raises HeldUp: the request was certainly not sent.
        :raises NovaClientError: the result is unknown.
        """
        return 'this driver completes no migration by force'

    def find_shutdown_obstacle(self, task: model.Task, now: float) -> str | None:
        """Return why the instance may not be shut down or paused for its move; None: it may.

        :param now: epoch seconds, by which contracts are judged.
        :raises NovaClientError: Nova could not be read; look again later.
        """
        return None

    def read_forced_seconds(self, task: model.Task) -> float | None:
        """Return the seconds from our request by force until the instance had arrived, or None.

        :raises NovaClientError: Nova could not be read; the worker does not ask again.
        """
        return None

    def reset_state(self, task: model.Task) -> bool:
        """Reset an instance to active that Nova has put into ERROR after we aborted its migration.

        Its guest runs on its source.

        :returns: whether Nova did so; False: the instance is not as described.
        :raises NovaClientError: the result is unknown.
        """
        return False

    def read_phase_seconds(self, task: model.Task, reference: str) -> Mapping[str, float]:
        """Return the seconds of phases (attempt_phases.NOVAS) of a migration that has ended.

        They follow the clock of the service that migrated the instance; their sum is the time from
        our request to the end. Empty: unknown.

        :param reference: names the migration, as in :class:`MigrationProgress`.
        :raises NovaClientError: Nova could not be read; the worker does not ask again.
        """
        return {}

    @abc.abstractmethod
    def post_flight(self, task: model.Task) -> None:
        """Verify that the instance is on ``to_host`` and well there.

        :raises MigrationFailed: it is not.
        :raises PreFlightError: it was deleted.
        :raises InstanceInError: it is in ERROR, on any host.
        :raises NovaClientError: Nova could not be read; verify again later.
        """
