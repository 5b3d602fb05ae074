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

"""Tasks that executors carry out, their attempts and results."""

from collections.abc import Mapping
import dataclasses
import enum
from typing import Any

from kronos_nova.model import plan


class MoveMethod(enum.StrEnum):
    """The way in which Nova moves an instance.

    ``offline``: a running instance is shut down before it moves, and started after it.
    """

    LIVE = 'live'
    COLD = 'cold'
    OFFLINE = 'offline'

    @property
    def is_cold(self) -> bool:
        """True when Nova migrates the instance cold."""
        return self is not MoveMethod.LIVE


class TaskState(enum.StrEnum):
    """The state of a task; ``unknown`` keeps its slot until it is reconciled."""

    PENDING = 'pending'
    QUEUED = 'queued'
    CLAIMED = 'claimed'
    SUBMITTING = 'submitting'
    SUBMITTED = 'submitted'
    COMPLETED = 'completed'
    FAILED = 'failed'
    CANCELLED = 'cancelled'
    UNKNOWN = 'unknown'

    @property
    def is_terminal(self) -> bool:
        return self in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)


@dataclasses.dataclass(frozen=True, slots=True)
class TreeDigest:
    """The state of a host's provider tree that a plan was made with.

    ``shape`` is a digest of its providers' UUIDs, their parents and the classes of their
    inventories. ``generation`` is the sum of their generations: as long as the shape stays it
    only grows.
    """

    host: str
    shape: str
    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class TaskHook:
    """A hook that a task brings: its name, and parameters of its own (as JSON has them)."""

    name: str
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A move that an executor carries out; field names are Kronos's wire names.

    ``memory_mb`` and ``disk_gb`` are copied at most. ``method``: a stopped instance is moved
    cold. ``trees`` are of its source, destination and alternates, where they were known; they do
    not go over the wire. ``improvement`` is that of ``to_host``, ``alternate_improvements`` as of
    a Move. ``hooks``: beside those of [hooks] enabled, or with parameters for one that is
    enabled; nor do they. ``counts_alternates``: an attempt at an alternate counts as a retry, so
    ``max_retries`` bounds all attempts; nor does that go over the wire. ``authorization``: the
    proof for executors that the move is allowed, as text (``rebalancer.authorization``).
    ``arrive_by``: when the instance is to have left, by the deadline of its drain (epoch); None:
    the drain has no deadline. Nor does that go over the wire.
    """

    task_id: str
    plan_id: str
    aggregate: str
    instance_uuid: str
    from_host: str
    to_host: str
    phase: plan.Phase
    policy_names: tuple[str, ...] = ()
    instance_name: str = ''
    improvement: float = 0.0
    priority: int = 5
    wave: int = 0
    requires: tuple[str, ...] = ()
    alternates: tuple[str, ...] = ()
    max_retries: int = 3
    retry_count: int = 0
    not_before: float = 0.0
    created_at: float = 0.0
    deadline: float | None = None
    state: TaskState = TaskState.QUEUED
    memory_mb: int = 0
    disk_gb: int = 0
    method: MoveMethod = MoveMethod.LIVE
    trees: tuple[TreeDigest, ...] = ()
    alternate_improvements: tuple[float, ...] = ()
    hooks: tuple[TaskHook, ...] = ()
    counts_alternates: bool = False
    authorization: str = ''
    arrive_by: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a task at one destination, from its claim or request on.

    ``error_type`` and ``error`` are None when it succeeded. ``migration_uuid``
    is Nova's, None when there was none, or none is known. ``phases``: seconds by phase
    (``rebalancer.store.attempt_phases``), in their order; empty where an earlier release has
    carried it out.
    """

    to_host: str
    started_at: float
    ended_at: float
    error_type: str | None = None
    error: str | None = None
    migration_uuid: str | None = None
    phases: Mapping[str, float] = dataclasses.field(default_factory=dict)


#: The answers to an escalation step that Nova carries out.
ACCEPTED = 'accepted'
ACCEPTED_POSTCOPY = 'accepted, by post-copy'


class EscalationKind(enum.StrEnum):
    """A step against a live migration that does not converge.

    ``force-complete``: Nova ends the copying, by post-copy where its compute nodes permit it, else
    by a pause of the guest.
    """

    FORCE_COMPLETE = 'force-complete'


@dataclasses.dataclass(frozen=True, slots=True)
class EscalationStep:
    """A step that an executor has decided on; each kind comes once for a task.

    ``at``: when it was stored, before its request. ``reason``: the measured rates. ``answer``:
    Nova's answer, or why Nova was not asked; None: not known. ``seconds``: about the time from the
    request until the instance ran on its destination, by Nova's records; None: not known.
    ``migration_uuid``: Nova's migration against which the step was taken. ``expected_seconds``: the
    time that ``seconds`` measures, as it was expected for a pause of the guest; None: not known.
    """

    kind: EscalationKind
    at: float
    reason: str
    answer: str | None = None
    seconds: float | None = None
    migration_uuid: str | None = None
    expected_seconds: float | None = None

    @property
    def may_be_at_work(self) -> bool:
        """True unless it is known that Nova was not asked, or has refused."""
        return self.answer in (None, ACCEPTED, ACCEPTED_POSTCOPY)


@dataclasses.dataclass(frozen=True, slots=True)
class TaskResult:
    """The outcome of a task; ``error_type`` is one of Kronos's names.

    ``attempts``: all attempts, oldest first; of very many the newest.
    """

    task_id: str
    plan_id: str
    aggregate: str
    instance_uuid: str
    from_host: str
    to_host: str
    success: bool
    error: str | None = None
    error_type: str | None = None
    duration_seconds: float = 0.0
    retry_count: int = 0
    completed_at: float = 0.0
    attempts: tuple[Attempt, ...] = ()


def format_task(task: Task | TaskResult) -> str:
    """Return a task and its instance, as every log line about a task begins."""
    return f'task {task.task_id} (instance {task.instance_uuid})'
