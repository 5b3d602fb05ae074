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

"""Typed resources of moves beside stored plans: verdicts, supposed plans, and orders.

``read_at`` is the time at which the engine began to read.
"""

import datetime
from typing import Self

import pydantic

from kronos_nova import model
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import plan_comparisons
from kronos_nova.rebalancer.operations import plan_requests
from kronos_nova.rebalancer.operations import shutdown_verdicts
from kronos_nova.rebalancer.operations import why_not


class RuleVerdict(values.Resource):
    """Verdict of a rule on a move; ``remedy`` belongs to a refusal, null: no remedy is known."""

    rule: str
    passed: bool
    detail: str
    remedy: str | None


class PolicyEffect(values.Resource):
    """Effect of a move on a policy: imbalances of the scope, fills of the destination."""

    policy: str
    threshold: float
    imbalance_before: float
    imbalance_after: float
    fill_before: float | None
    fill_after: float | None
    ceiling: float | None


class ShutdownVerdict(values.Resource):
    """Whether a drain may shut an instance down, move it cold and start it again."""

    instance_id: str
    late: bool = pydantic.Field(
        description='Its live migration was late, and no other one comes before a shutdown; false: '
                    'none was late, or it moves live again, and the verdict counts if that one is '
                    'late.')
    allowed: bool
    obstacle: str | None = pydantic.Field(description='Why it may not; null: it may.')
    remedy: str | None
    waits: bool = pydantic.Field(
        description='The obstacle ends with time, or by a notice that an engine gives; then it may '
                    'shut the instance down.')
    text: str = pydantic.Field(description='The verdict, as the end of a sentence.')

    @classmethod
    def from_model(cls, verdict: shutdown_verdicts.ShutdownVerdict) -> Self:
        return cls(instance_id=verdict.instance_uuid, late=verdict.is_late,
                   allowed=verdict.obstacle is None, obstacle=verdict.obstacle,
                   remedy=verdict.remedy, waits=verdict.waits, text=verdict.text)


class MoveVerdict(values.Resource):
    """Verdict on a move with nothing else planned. Without effects the move was not tried."""

    instance_id: str
    from_host: str
    to_host: str
    phase: model.Phase
    read_at: datetime.datetime
    allowed: bool = pydantic.Field(description='No rule refuses the move.')
    conclusion: str
    holds: list[str] = pydantic.Field(
        description='Why nothing in the scope moves now, or nothing for balance.')
    verdicts: list[RuleVerdict]
    shutdown: ShutdownVerdict | None = pydantic.Field(
        description='What a drain may do after a late live migration; null: the phase is no drain, '
                    'or drain_offline is never and no late live migration holds the instance.')
    effects: list[PolicyEffect]
    imbalance_before: float | None
    imbalance_after: float | None

    @classmethod
    def from_answer(cls, answer: why_not.MoveAnswer, read_at: float) -> Self:
        remedies = dict(answer.changes)
        return cls(
            instance_id=answer.move.instance_uuid, from_host=answer.move.from_host,
            to_host=answer.move.to_host, phase=answer.move.phase,
            read_at=values.make_time(read_at), allowed=not answer.refused,
            conclusion=answer.conclusion, holds=list(answer.holds),
            verdicts=[RuleVerdict(rule=verdict.rule, passed=verdict.passed, detail=verdict.detail,
                                  remedy=None if verdict.passed else remedies.get(verdict.rule))
                      for verdict in answer.verdicts],
            shutdown=(None if answer.shutdown is None
                      else ShutdownVerdict.from_model(answer.shutdown)),
            effects=[PolicyEffect(
                policy=effect.policy, threshold=effect.threshold, imbalance_before=effect.before,
                imbalance_after=effect.after, fill_before=effect.fill_before,
                fill_after=effect.fill_after, ceiling=effect.ceiling)
                for effect in answer.effects],
            imbalance_before=answer.combined_before, imbalance_after=answer.combined_after)


class SupposedPlan(values.Resource):
    """A plan that is not stored."""

    host_count: int
    instance_count: int
    moves: list[resources.Move]
    imbalance_measured: float | None
    imbalance_predicted: float | None
    policies: list[resources.PolicyImbalance]
    reason: str | None = pydantic.Field(description='Why the plan has no moves.')
    held: list[resources.Rejection]
    undrained: list[resources.Rejection]
    warnings: list[str]
    truncated: bool

    @classmethod
    def from_side(cls, side: plan_comparisons.ScopePlan) -> Self:
        plan, hosts = side.plan, side.cluster.scope_hosts
        return cls(
            host_count=len(hosts),
            instance_count=sum(i.host in hosts for i in side.cluster.instances.values()),
            moves=[resources.Move.from_model(move, None, side.methods.get(move.instance_uuid))
                   for move in plan.moves],
            imbalance_measured=plan.measured_imbalance, imbalance_predicted=plan.combined_after,
            policies=[resources.PolicyImbalance.from_model(report) for report in plan.policies],
            reason=plan.reason,
            held=[resources.Rejection.from_model(rejection) for rejection in plan.held],
            undrained=[resources.Rejection.from_model(rejection) for rejection in plan.undrained],
            warnings=list(plan.warnings), truncated=plan.truncated)


class NextPlan(values.Resource):
    """The plan that the next cycle of a scope makes, and why no instance is moved."""

    scope: str
    read_at: datetime.datetime
    conclusion: str = pydantic.Field(
        description='Whether the next cycle moves anything, and why not, for people.')
    causes: list[str] = pydantic.Field(
        description='Why no move is made, also if one is planned: no live engine or executor, or a '
                    'dry run.')
    holds: list[str] = pydantic.Field(description='Why the scope makes no moves now.')
    plan: SupposedPlan | None = pydantic.Field(description='null: the holds make it impossible.')
    rejections: dict[str, int] = pydantic.Field(
        description='Number of refused candidates, by rule.')

    @classmethod
    def from_model(cls, today: plan_comparisons.ScopeComparison, read_at: float) -> Self:
        side = today.today
        return cls(scope=today.name, read_at=values.make_time(read_at),
                   conclusion=today.format_conclusion(), causes=list(today.causes),
                   holds=list(today.holds),
                   plan=None if side is None else SupposedPlan.from_side(side),
                   rejections={} if side is None else dict(sorted(side.plan.rejections.items())))


class ScopeComparison(values.Resource):
    """The next plan of a scope as it is, beside the one under other conditions."""

    scope: str
    read_at: datetime.datetime
    holds: list[str] = pydantic.Field(description='Why the scope makes no moves now.')
    today: SupposedPlan | None
    supposed: SupposedPlan | None

    @classmethod
    def from_model(cls, comparison: plan_comparisons.ScopeComparison, read_at: float) -> Self:
        today, supposed = comparison.today, comparison.supposed
        return cls(scope=comparison.name, read_at=values.make_time(read_at),
                   holds=list(comparison.holds),
                   today=None if today is None else SupposedPlan.from_side(today),
                   supposed=None if supposed is None else SupposedPlan.from_side(supposed))


class OrderedMove(values.Resource):
    """An ordered move and its verdict; ``task_id``: null where no task was made."""

    instance_id: str
    from_host: str | None = pydantic.Field(description='null: the instance is gone.')
    to_host: str = pydantic.Field(description='Or the possible destinations of a refused move.')
    verdict: str
    task_id: str | None


class OrderedPlan(values.Resource):
    """The verdicts on ordered moves; ``plan_id``: null where no plan was stored."""

    plan_id: str | None
    approvals_missing: int = pydantic.Field(
        ge=0, description='Number of other people who must approve the plan before it begins.')
    moves: list[OrderedMove]
    warnings: list[str] = pydantic.Field(
        description='Of the plan, such as one about the failover certificate.')

    @classmethod
    def from_result(cls, result: plan_requests.RepeatResult) -> Self:
        return cls(plan_id=result.plan_id or None, approvals_missing=result.approvals_missing,
                   moves=[OrderedMove(
            instance_id=row.instance_uuid, from_host=row.from_host or None, to_host=row.to_host,
            verdict=row.verdict, task_id=row.task_id or None) for row in result.rows],
                   warnings=list(result.warnings))
