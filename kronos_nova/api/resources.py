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

"""Resources: what the answers hold, and how it is made of rows and records.

Times are UTC, an imbalance is in [0, 1], and sizes have their unit in the name.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import datetime
from typing import Self

import pydantic

from kronos_nova import model
from kronos_nova.api import attempt_resources
from kronos_nova.api import values
from kronos_nova.rebalancer.executors import migration_uncertainty
from kronos_nova.rebalancer.operations import stored_views
from kronos_nova.rebalancer.store import pauses
from kronos_nova.rebalancer.store import pending_hooks as hook_rows
from kronos_nova.rebalancer.store import plan_decisions
from kronos_nova.rebalancer.store import quarantine
from kronos_nova.rebalancer.store import rows
from kronos_nova.text import plan_lines


class Rejection(values.Resource):
    """A refusal by a rule."""

    rule: str = pydantic.Field(description='Stable name of the rule.')
    detail: str

    @classmethod
    def from_model(cls, rejection: model.Rejection) -> Self:
        return cls(rule=rejection.rule, detail=rejection.detail)


class PolicyImbalance(values.Resource):
    """Imbalance of a scope under one policy; null where scores are not trusted."""

    policy: str
    imbalance_measured: float | None
    imbalance_predicted: float | None
    threshold: float
    skipped: bool
    reason: str | None = pydantic.Field(description='Why the policy was skipped.')
    sample_age_seconds: float | None

    @classmethod
    def from_model(cls, report: model.PolicyReport) -> Self:
        return cls(policy=report.name, imbalance_measured=report.measured_imbalance,
                   imbalance_predicted=report.imbalance_after, threshold=report.threshold,
                   skipped=report.skipped, reason=report.reason, sample_age_seconds=report.age)


class ScoreChange(values.Resource):
    """Scores of both hosts of a move under one policy, before and after."""

    policy: str
    from_before: float | None
    from_after: float | None
    to_before: float | None
    to_after: float | None


class TaskReference(values.Resource):
    """A task, by its instance and hosts."""

    id: str
    plan_id: str
    instance_id: str
    from_host: str
    to_host: str
    state: model.TaskState

    @classmethod
    def from_task(cls, task: model.Task, state: model.TaskState | None = None) -> Self:
        """Return the reference.

        :param state: the state after a change; None: that of the task.
        """
        return cls(id=task.task_id, plan_id=task.plan_id, instance_id=task.instance_uuid,
                   from_host=task.from_host, to_host=task.to_host, state=state or task.state)


class Move(values.Resource):
    """A planned move. Tasks of a dry run do not exist."""

    instance_id: str
    from_host: str
    to_host: str
    phase: model.Phase
    wave: int
    requires: list[str] = pydantic.Field(
        description='Instances whose moves must have completed before.')
    alternates: list[str]
    gain: float | None = pydantic.Field(
        description='Fall in combined imbalance that this move alone adds to the plan.')
    changes: list[ScoreChange]
    method: model.MoveMethod | None = pydantic.Field(
        description=f'offline: the instance is {plan_lines.SHUT_DOWN}. null: not '
                    'known, as in a stored dry run.')
    task: TaskReference | None

    @classmethod
    def from_model(cls, move: model.Move, task: model.Task | None,
                   method: model.MoveMethod | None = None) -> Self:
        """Return the resource.

        :param method: that of a move without a task; None: it is not known.
        """
        return cls(
            instance_id=move.instance_uuid, from_host=move.from_host, to_host=move.to_host,
            phase=move.phase, wave=move.wave, requires=list(move.requires),
            alternates=list(move.alternates), gain=move.gain,
            changes=[ScoreChange(
                policy=change.policy, from_before=change.from_before, from_after=change.from_after,
                to_before=change.to_before, to_after=change.to_after) for change in move.changes],
            method=method if task is None else task.method,
            task=None if task is None else TaskReference.from_task(task))


class Decision(values.Resource):
    """A decision of an operator on a plan."""

    verb: str
    decided_at: datetime.datetime
    decided_by: str
    task_count: int
    reason: str

    @classmethod
    def from_stored(cls, decision: plan_decisions.StoredDecision) -> Self:
        return cls(verb=decision.verb, decided_at=values.make_time(decision.decided_at),
                   decided_by=decision.decided_by, task_count=decision.tasks,
                   reason=decision.reason)


class Swap(values.Resource):
    """Two instances that both move, or neither does."""

    instance_ids: list[str]
    state: str
    undo_plan_ids: list[str]


class PlanSummary(values.Resource):
    """A plan without its moves."""

    id: str
    scope: str
    created_at: datetime.datetime
    dry_run: bool
    move_count: int
    task_states: dict[model.TaskState, int]
    imbalance_measured: float | None
    imbalance_predicted: float | None
    reason: str | None = pydantic.Field(description='Why the plan has no moves.')
    requested_by: str | None = pydantic.Field(
        description='The operator who ordered the plan; null: an engine made it.')

    @classmethod
    def from_listed(cls, listed: stored_views.ListedPlan) -> Self:
        row, plan = listed.row, listed.row.plan
        return cls(
            id=row.plan_id, scope=plan.scope, created_at=values.make_time(row.created_at),
            dry_run=row.dry_run, move_count=len(plan.moves), task_states=dict(listed.tasks),
            imbalance_measured=plan.measured_imbalance, imbalance_predicted=plan.combined_after,
            reason=plan.reason, requested_by=listed.asked_by or None)


class Plan(PlanSummary):
    """A plan with its moves, the task of each, and the operators' decisions."""

    imbalance_realised: float | None
    moves: list[Move]
    policies: list[PolicyImbalance]
    rejections: dict[str, int] = pydantic.Field(description='Refused candidate moves, by rule.')
    held: list[Rejection]
    draining: list[str]
    undrained: list[Rejection]
    warnings: list[str]
    truncated: bool
    decisions: list[Decision]
    swaps: list[Swap]

    @classmethod
    def from_stored(cls, stored: stored_views.StoredPlan) -> Self:
        plan = stored.row.plan
        tasks = {row.task.instance_uuid: row.task for row in stored.tasks}
        swaps = [Swap(instance_ids=[member.instance_uuid for member in swap.members],
                      state=str(swap.state), undo_plan_ids=list(swap.undos))
                 for swap in stored.swaps]
        summary = PlanSummary.from_listed(stored.make_listed_plan())
        return cls(
            **dict(summary), imbalance_realised=stored.realised,
            moves=[Move.from_model(move, tasks.get(move.instance_uuid)) for move in plan.moves],
            policies=[PolicyImbalance.from_model(report) for report in plan.policies],
            rejections=dict(sorted(plan.rejections.items())),
            held=[Rejection.from_model(rejection) for rejection in plan.held],
            draining=sorted(plan.draining),
            undrained=[Rejection.from_model(rejection) for rejection in plan.undrained],
            warnings=list(plan.warnings), truncated=plan.truncated,
            decisions=[Decision.from_stored(decision) for decision in stored.decisions],
            swaps=swaps or [Swap(instance_ids=[swap.first, swap.second], state='planned',
                                 undo_plan_ids=[]) for swap in plan.swaps])


class Alternate(values.Resource):
    """A destination for a further attempt."""

    host: str
    improvement: float | None


class TaskSummary(TaskReference):
    """A task and its progress."""

    scope: str
    instance_name: str
    phase: model.Phase
    method: model.MoveMethod
    wave: int
    memory_mib: int
    disk_gib: int
    created_at: datetime.datetime
    updated_at: datetime.datetime
    not_before: datetime.datetime
    submitted_at: datetime.datetime | None
    completed_at: datetime.datetime | None
    retry_count: int
    max_retries: int
    error_type: str | None
    error: str | None
    doubt: str | None = pydantic.Field(
        description="Why Nova's records do not fit the task's state; null: they do.")
    doubt_since: datetime.datetime | None

    @classmethod
    def from_row(cls, row: rows.TaskRow) -> Self:
        task = row.task
        doubt = migration_uncertainty.describe_doubt(row)
        return cls(
            **dict(TaskReference.from_task(task)), scope=task.aggregate,
            instance_name=task.instance_name, phase=task.phase, method=task.method,
            wave=task.wave, memory_mib=task.memory_mb, disk_gib=task.disk_gb,
            created_at=values.make_time(task.created_at),
            updated_at=values.make_time(row.updated_at),
            not_before=values.make_time(task.not_before),
            submitted_at=values.make_optional_time(row.submitted_at),
            completed_at=values.make_optional_time(row.completed_at),
            retry_count=task.retry_count, max_retries=task.max_retries,
            error_type=row.error_type, error=row.error, doubt=doubt,
            doubt_since=None if doubt is None else values.make_optional_time(row.doubt_since))


class PendingHook(values.Resource):
    """A hook that has begun and has not ended."""

    hook: str
    to_host: str
    begun_at: datetime.datetime
    tries: int
    error: str | None


class Task(TaskSummary):
    """A task with its alternates, attempts and hooks."""

    improvement: float
    policies: list[str]
    requires: list[str] = pydantic.Field(
        description='Instances whose moves must have completed before.')
    alternates: list[Alternate]
    migration_id: str | None = pydantic.Field(
        description="UUID of Nova's migration, of this attempt or of the last one.")
    attempts: list[attempt_resources.Attempt]
    escalation: list[attempt_resources.EscalationStep] = pydantic.Field(
        description='Steps against live migrations that did not converge, oldest first.')
    pending_hooks: list[PendingHook]

    @classmethod
    def from_stored(cls, row: rows.TaskRow, hooks: Iterable[hook_rows.PendingHook]) -> Self:
        task = row.task
        improvements: Sequence[float | None] = (*task.alternate_improvements,
                                                *[None] * len(task.alternates))
        return cls(
            **dict(TaskSummary.from_row(row)), improvement=task.improvement,
            policies=list(task.policy_names), requires=list(task.requires),
            alternates=[Alternate(host=host, improvement=improvement) for host, improvement
                        in zip(task.alternates, improvements, strict=False)],
            migration_id=stored_views.find_migration(row) or None,
            attempts=[attempt_resources.Attempt.from_model(attempt) for attempt in row.attempts],
            escalation=[attempt_resources.EscalationStep.from_model(step)
                        for step in row.escalation],
            pending_hooks=[PendingHook(
                hook=hook.hook.name, to_host=hook.task.to_host,
                begun_at=values.make_time(hook.begun_at), tries=hook.tries, error=hook.error)
                for hook in hooks])


class Pause(values.Resource):
    """A pause: engines plan nothing there, and no task begins."""

    scope: str | None = pydantic.Field(description='null: everywhere.')
    since: datetime.datetime
    until: datetime.datetime | None = pydantic.Field(description='null: until it is ended.')
    paused_by: str
    reason: str

    @classmethod
    def from_record(cls, pause: pauses.PauseRecord) -> Self:
        return cls(scope=pause.scope, since=values.make_time(pause.since),
                   until=values.make_optional_time(pause.until), paused_by=pause.paused_by,
                   reason=pause.reason)


class Quarantine(values.Resource):
    """An instance, host, host with disks of its own, or pair of cells that moves leave alone."""

    kind: str
    name: str
    since: datetime.datetime
    until: datetime.datetime | None = pydantic.Field(description='null: until it is lifted.')
    reason: str

    @classmethod
    def from_entry(cls, entry: quarantine.QuarantineEntry) -> Self:
        return cls(kind=entry.kind, name=entry.name, since=values.make_time(entry.since),
                   until=values.make_optional_time(entry.until), reason=entry.reason)


class Cycle(values.Resource):
    """The last cycle of a scope that came to a plan, and why later ones failed."""

    at: datetime.datetime | None
    move_count: int
    reason: str | None = pydantic.Field(description='Why the cycle planned no move.')
    policies: list[PolicyImbalance]
    error: str | None
    failed_at: datetime.datetime | None

    @classmethod
    def from_record(cls, cycle: rows.CycleRecord) -> Self:
        return cls(at=values.make_optional_time(cycle.at), move_count=cycle.moves,
                   reason=cycle.reason,
                   policies=[PolicyImbalance.from_model(report) for report in cycle.policies],
                   error=cycle.error, failed_at=values.make_optional_time(cycle.failed_at))


class Scope(values.Resource):
    """A scope that engines plan, or have planned within a day."""

    name: str
    engine: str | None = pydantic.Field(description='The engine that plans it; null: none does.')
    planned_at: datetime.datetime | None
    dry_run: bool | None = pydantic.Field(description='Of the newest plan.')
    last_cycle: Cycle
    task_states: dict[model.TaskState, int]
    overdue_task_count: int
    executors: dict[str, int] = pydantic.Field(
        description='Executors that serve the scope, with their numbers of its tasks.')
    draining_host_count: int
    pause: Pause | None

    @classmethod
    def from_state(cls, state: stored_views.ScopeState) -> Self:
        return cls(
            name=state.scope, engine=state.owner,
            planned_at=values.make_optional_time(state.planned_at), dry_run=state.dry_run,
            last_cycle=Cycle.from_record(state.cycle),
            task_states={model.TaskState(name): number for name, number in state.tasks.items()},
            overdue_task_count=state.overdue, executors=dict(state.executors),
            draining_host_count=state.draining,
            pause=None if state.pause is None else Pause.from_record(state.pause))
