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
"""Resources of drains: hosts that are emptied, checks, starts and stops.

``read_at`` is the time at which the engine began to read.
"""

import datetime
from typing import Self, TYPE_CHECKING

import pydantic

from kronos_nova.api import error_documents
from kronos_nova.api import move_resources
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import drain_approvals
from kronos_nova.rebalancer.operations import drain_checks
from kronos_nova.rebalancer.operations import drain_lists
from kronos_nova.rebalancer.operations import shutdown_verdicts
from kronos_nova.text import drain_lines

if TYPE_CHECKING:
    # They load the client of Nova, which most processes never need.
    from kronos_nova.rebalancer.operations import drain_starts
    from kronos_nova.rebalancer.operations import drain_stops


_ARRIVAL = ('Seconds that executors with drain_escalation give each live migration to arrive, if '
            'the deadline leaves less than [executor] drain_arrival_seconds; null: it does not.')


class Drain(values.Resource):
    """A host that is disabled or that pack empties."""

    host: str
    scope: str
    read_at: datetime.datetime
    disabled_reason: str | None = pydantic.Field(description='null: the host is enabled.')
    packed: bool = pydantic.Field(description='A plan of mode pack empties the host.')
    instance_count: int
    held: str | None = pydantic.Field(
        description='Why engines leave its instances there now; null: they do not.')
    remedy: str | None = pydantic.Field(
        description='How an operator ends that; null where held is null.')
    deadline: datetime.datetime | None = pydantic.Field(
        description='When the host is to be empty; null: its drain has no deadline.')
    late: bool = pydantic.Field(
        description='The deadline has passed, and instances are on the host.')

    @classmethod
    def from_listed(cls, drain: drain_lists.ListedDrain) -> Self:
        return cls(host=drain.host, scope=drain.scope, read_at=values.make_time(drain.read_at),
                   disabled_reason=drain.reason, packed=drain.packed,
                   instance_count=drain.instances, held=drain.held, remedy=drain.remedy,
                   deadline=values.make_optional_time(drain.deadline), late=drain.late)


class BlockedInstance(values.Resource):
    """An instance that stays on the host."""

    instance_id: str
    reason: str
    leaves_later: bool = pydantic.Field(
        description='It leaves in a later cycle, when other migrations have ended, its contract '
                    'allows it or its quieter hour has come.')
    movable_from: datetime.datetime | None = pydantic.Field(
        description='When its contract allows that, as far as contracts say today, or when its '
                    'quieter hour begins; null: it waits for neither.')


class LateInstance(values.Resource):
    """An instance that is not expected to leave by the deadline of a drain."""

    instance_id: str
    reason: str

    @classmethod
    def list_all(cls, answer: drain_checks.DrainAnswer) -> list[Self]:
        return [cls(instance_id=late.instance_uuid, reason=late.reason) for late in answer.late]


class MigrationRisk(values.Resource):
    """The chance that the migration of an instance does not converge."""

    instance_id: str
    probability: float
    wait_obstacle: str | None = pydantic.Field(
        description='Why the drain waits for no quieter hour of the instance; null: it waits, or '
                    'drain_quiet_wait is 0.')


class DrainCheck(values.Resource):
    """Whether a host can be emptied, how, and how long it takes."""

    host: str
    scope: str
    read_at: datetime.datetime
    instance_count: int
    arriving_count: int = pydantic.Field(description='Instances that may still land there.')
    can_be_emptied: bool
    obstacles: list[str] = pydantic.Field(
        description='Why engines, as configured, would not empty the host, or not now.')
    moves: list[resources.Move]
    blocked: list[BlockedInstance]
    missing: dict[str, int] = pydantic.Field(
        description='Amounts that other hosts lack, by resource class.')
    expected_seconds: float | None = pydantic.Field(
        description='null: no migration has been measured.')
    measured_migration_count: int
    risks: list[MigrationRisk]
    shutdowns: list[move_resources.ShutdownVerdict] = pydantic.Field(
        description='Verdicts on instances whose live migration was late or may be late.')
    shutdown_summary: str | None = pydantic.Field(
        description='How many instances are shut down, or may be, as sentences; null: none.')
    deadline: datetime.datetime | None = pydantic.Field(
        description='The deadline in question; null: the request has no deadline.')
    arrival_seconds: float | None = pydantic.Field(description=_ARRIVAL)
    late_instances: list[LateInstance] = pydantic.Field(
        description='Instances that are not expected to leave by the deadline.')

    @classmethod
    def from_answer(cls, host: str, answer: drain_checks.DrainAnswer, read_at: float) -> Self:
        check = answer.check
        staying = [blocked for blocked in check.blocked if not blocked.later]
        return cls(
            host=host, scope=check.plan.scope, read_at=values.make_time(read_at),
            instance_count=answer.here, arriving_count=answer.coming,
            can_be_emptied=not staying and not answer.in_the_way,
            obstacles=list(answer.in_the_way),
            moves=[resources.Move.from_model(move, None, check.methods.get(move.instance_uuid))
                   for move in check.plan.moves],
            blocked=[BlockedInstance(instance_id=blocked.instance_uuid, reason=blocked.reason,
                                     leaves_later=blocked.later,
                                     movable_from=values.make_optional_time(
                                         blocked.movable_from)) for blocked in check.blocked],
            missing=dict(check.missing), expected_seconds=answer.seconds,
            measured_migration_count=answer.measured,
            risks=[MigrationRisk(instance_id=uuid, probability=probability,
                                 wait_obstacle=answer.wait_obstacles.get(uuid))
                   for uuid, probability in sorted(answer.risky.items())],
            shutdowns=[move_resources.ShutdownVerdict.from_model(verdict)
                       for verdict in answer.shutdowns],
            shutdown_summary=drain_lines.format_shutdowns(
                *shutdown_verdicts.count_shutdowns(answer.shutdowns)).strip() or None,
            deadline=values.make_optional_time(answer.deadline),
            arrival_seconds=answer.arrival_seconds,
            late_instances=LateInstance.list_all(answer))


class StartedDrain(values.Resource):
    """The effect of an order to empty a host."""

    host: str
    changed: bool = pydantic.Field(
        description='This request disabled the host; else it was disabled for that reason before.')
    instance_count: int = pydantic.Field(description='Instances on the host.')
    arriving_count: int = pydantic.Field(description='Instances that may still arrive there.')
    expected_seconds: float | None
    shutdowns: list[move_resources.ShutdownVerdict] = pydantic.Field(
        description='Verdicts on instances whose live migration was late or may be late.')
    plan_ids: list[str] = pydantic.Field(
        description='The plans with moves of the drain that this request has approved.')
    approvals_missing: int = pydantic.Field(
        ge=0, description='Number of other people who must approve these plans.')
    approval_problem: str | None = pydantic.Field(
        description='Why moves of the drain wait for approval although approve was set.')
    deadline: datetime.datetime | None = pydantic.Field(
        description='The deadline that this request has set; null: none.')
    deadline_change: str | None = pydantic.Field(
        description='What becomes of a deadline that the host had before, as a sentence; null: it '
                    'had none.')
    arrival_seconds: float | None = pydantic.Field(description=_ARRIVAL)
    late_instances: list[LateInstance] = pydantic.Field(
        description='Instances that are not expected to leave by the deadline.')

    @classmethod
    def from_model(cls, host: str, started: 'drain_starts.StartedDrain') -> Self:
        check, approval = started.check, started.approval or drain_approvals.DrainApproval()
        return cls(host=host, changed=started.changed, instance_count=check.here,
                   arriving_count=check.coming, expected_seconds=check.seconds,
                   shutdowns=[move_resources.ShutdownVerdict.from_model(verdict)
                              for verdict in check.shutdowns],
                   plan_ids=list(approval.plan_ids), approvals_missing=approval.missing,
                   approval_problem=approval.describe_problem(error_documents.describe_for_client),
                   deadline=values.make_optional_time(check.deadline),
                   deadline_change=started.deadline_change or None,
                   arrival_seconds=check.arrival_seconds,
                   late_instances=LateInstance.list_all(check))


class StoppedDrain(values.Resource):
    """The effect of an order to empty a host no more."""

    host: str
    changed: bool = pydantic.Field(
        description='This request enabled the host; else it was enabled before.')
    cancelled_task_ids: list[str] = pydantic.Field(
        description='Tasks of the drain that had not begun, and those that required them.')
    running_task_ids: list[str] = pydantic.Field(
        description='Tasks of the drain that Nova was asked for: they go on to their end.')

    @classmethod
    def from_model(cls, host: str, stopped: 'drain_stops.StoppedDrain') -> Self:
        return cls(host=host, changed=stopped.changed,
                   cancelled_task_ids=[task.task_id for task in stopped.cancelled],
                   running_task_ids=[task.task_id for task in stopped.running])
