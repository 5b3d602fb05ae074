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

"""The section of a stored plan, from the plan and its tasks in the database."""

from collections import Counter
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova.rebalancer.report import coverage_gaps
from kronos_nova.rebalancer.report import planned_section
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.store import rows

NO_SCORES = ('A plan stores the scores of hosts that give or take, as planning expected '
             'them. A snapshot has all: kronos-record writes one, and kronos report --snapshot '
             'shows it.')
#: Text for a plan of an earlier release, or for one without trusted scores.
UNKNOWN_SCORES = ('This plan has no scores of hosts: an earlier release made it, it has no moves, '
                  'or scores were not trusted. A snapshot has them: kronos-record writes one, and '
                  'kronos report --snapshot shows it.')


def build_section(row: rows.PlanRow, tasks: Sequence[rows.TaskRow], *, realised: float | None,
                  past: Sequence[values.PlanPoint], now: float, stagger: float,
                  decisions: Sequence[str] = ()) -> values.ScopeSection:
    """Build the section of a plan with the results of its moves.

    :param past: the scope's plans, this one among them.
    :param stagger: as configured now; used for a plan without tasks.
    :param decisions: a sentence for each decision of an operator.
    """
    plan = row.plan
    names = {t.task.instance_uuid: t.task.instance_name for t in tasks}
    of = {t.task.instance_uuid: t for t in tasks}
    moves = planned_section.build_move_lines(
        plan, names, stagger, {uuid: t.task.method for uuid, t in of.items()})
    lines = _host_lines(plan)
    no_lines = NO_SCORES if lines else UNKNOWN_SCORES
    return values.ScopeSection(
        scope=plan.scope, at=row.created_at, plan_id=row.plan_id, dry_run=row.dry_run,
        policies=planned_section.policy_lines(plan, {}), before=plan.measured_imbalance,
        after=plan.combined_after, realised=realised, lines=lines, no_lines=no_lines,
        decisions=tuple(decisions),
        moves=tuple(_with_task(move, of[move.uuid]) if move.uuid in of else move
                    for move in moves),
        started=row.created_at if tasks else None, seen=now, points=tuple(past),
        refusals=planned_section.list_refusals(plan),
        held=tuple(rejection.detail for rejection in plan.held),
        gaps=(values.DataGap(no_lines), *coverage_gaps.of_plan(plan)), reason=plan.reason)


def _host_lines(plan: model.Plan) -> tuple[values.HostLine, ...]:
    """List the hosts that give or take, with their scores before the first and after the last move.

    A plan stores no weights, so the sum of the scores is not known.
    """
    scores: dict[str, dict[str, values.HostLevel]] = {}
    for move in plan.moves:
        for change in move.changes:
            for host, before, after in (
                    (move.from_host, change.from_before, change.from_after),
                    (move.to_host, change.to_before, change.to_after)):
                of = scores.setdefault(host, {})
                first = of.get(change.policy)
                of[change.policy] = values.HostLevel(before if first is None else first.before,
                                                     after)
    unknown = values.HostLevel(None, None)
    gives = Counter(m.from_host for m in plan.moves)
    takes = Counter(m.to_host for m in plan.moves)
    return tuple(values.HostLine(
        host, tuple(of.get(p.name, unknown) for p in plan.policies), unknown,
        gives=gives[host], takes=takes[host]) for host, of in sorted(scores.items()))


def build_point(row: rows.PlanRow, realised: float | None, shown: bool = False,
                dropped: bool = False) -> values.PlanPoint:
    """Make the point of a plan on the curve.

    :param dropped: no move of the plan began, so the imbalance it foresaw never came.
    """
    return values.PlanPoint(row.created_at, row.plan.measured_imbalance,
                            None if dropped else row.plan.combined_after,
                            realised, len(row.plan.moves), row.dry_run, shown,
                            planned_section.list_imbalances(row.plan))


def build_points(plans: Sequence[rows.PlanRow], realised: Mapping[str, float | None],
                 shown: str | None = None,
                 dropped: Collection[str] = frozenset()) -> tuple[values.PlanPoint, ...]:
    """Make the points of all plans on the curve.

    :param shown: the plan that the report is about.
    :param dropped: plans of which all tasks were cancelled.
    """
    return tuple(build_point(row, realised.get(row.plan_id), row.plan_id == shown,
                             row.plan_id in dropped) for row in plans)


def list_dropped_plans(tasks: Sequence[rows.TaskRow]) -> frozenset[str]:
    """Return the plans of which every task was cancelled, as by a rejection."""
    states: dict[str, set[model.TaskState]] = {}
    for row in tasks:
        states.setdefault(row.task.plan_id, set()).add(row.task.state)
    return frozenset(plan_id for plan_id, plan_states in states.items()
                     if plan_states == {model.TaskState.CANCELLED})


def _with_task(move: values.MoveLine, row: rows.TaskRow) -> values.MoveLine:
    task = row.task
    return dataclasses.replace(
        move, begins=task.not_before, task_id=task.task_id,
        state=describe_state(task, move.to_host), spans=list_attempt_spans(row),
        error=row.error)


def describe_state(task: model.Task, planned: str) -> str:
    """Return the state of a task, with the destination where another than the planned one took it.
    """
    if task.state is model.TaskState.COMPLETED and task.to_host != planned:
        return f'{task.state} on {task.to_host}'
    return str(task.state)


def list_attempt_spans(row: rows.TaskRow) -> tuple[values.AttemptSpan, ...]:
    """List the ended attempts of a task, and the one under way.

    A task of an earlier release has no attempts: only its submission and its end are known.
    """
    spans = [values.AttemptSpan(a.to_host, a.started_at, a.ended_at,
                                f'{a.error_type}: {a.error}' if a.error_type else None)
             for a in row.attempts]
    if row.task.state in rows.IN_FLIGHT:
        begun = row.submitted_at or row.updated_at
        spans.append(values.AttemptSpan(row.task.to_host, begun, None))
    elif not spans and row.completed_at is not None and row.submitted_at is not None:
        spans.append(values.AttemptSpan(row.task.to_host, row.submitted_at, row.completed_at,
                                        row.error_type))
    return tuple(spans)
