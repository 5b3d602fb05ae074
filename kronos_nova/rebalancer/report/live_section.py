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
"""The section of a scope on the live page: as engines read it last, and as its tasks leave it.

Pure: all inputs come as arguments.
"""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.report import heat
from kronos_nova.rebalancer.report import live_values
from kronos_nova.rebalancer.report import planned_section
from kronos_nova.rebalancer.report import stored_section
from kronos_nova.rebalancer.report import values
from kronos_nova.rebalancer.report import words
from kronos_nova.rebalancer.store import rows

#: Names of the two scores of a host.
COLUMNS = ('now', 'planned')
NO_MOVES = 'No task is waiting, under way, or has ended within the last hour.'


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeReading:
    """A scope as an engine has read it; ``counts``: instances by host."""

    request: planner.PlanningInput
    counts: Mapping[str, int]
    read_at: float


def build_scope(card: live_values.ScopeCard, reading: ScopeReading | None,
                tasks: Sequence[rows.TaskRow], plans: Mapping[str, rows.PlanRow],
                points: Sequence[values.PlanPoint], now: float) -> live_values.LiveScope:
    """Build the section of a scope.

    :param reading: None: no engine has published one.
    :param tasks: of the scope, in the order in which they are shown.
    :param plans: the plans of the tasks.
    :param now: epoch seconds.
    """
    moves = tuple(_build_move(number, row, plans.get(row.task.plan_id))
                  for number, row in enumerate(tasks, 1))
    lines = () if reading is None else _build_host_lines(reading, tasks, plans)
    newest = max(points, key=lambda point: point.at, default=None)
    section = values.ScopeSection(
        card.name, now if reading is None else reading.read_at,
        policies=card.policies if reading is None else _align_policies(card, reading),
        hosts=len(lines), instances=sum(line.instances for line in lines),
        before=None if newest is None else newest.before,
        after=None if newest is None else newest.after,
        realised=next((point.realised for point in sorted(
            points, key=lambda point: -point.at) if point.realised is not None), None),
        lines=heat.sort_by_load(lines), moves=tuple(move.line for move in moves),
        no_lines='' if reading is not None else 'No engine has published a reading of this scope.',
        no_moves=NO_MOVES, started=now, seen=now, points=tuple(points), reason=card.reason,
        waiting=card.waiting, columns=COLUMNS)
    return live_values.LiveScope(card, section, moves, tuple(_list_sentences(card)))


def _align_policies(card: live_values.ScopeCard,
                    reading: ScopeReading) -> tuple[values.PolicyLine, ...]:
    """Return the policies of the reading, whose scores the hosts have, with figures of the cycle.

    The cycle may be older or newer than the reading.
    """
    known = {policy.name: policy for policy in card.policies}
    return tuple(dataclasses.replace(
        known.get(policy.name, values.PolicyLine(policy.name, policy.threshold, None, None)),
        weight=policy.weight)
        for policy in reading.request.policies.enabled_policies)


def build_failed_line(row: rows.TaskRow) -> values.MoveLine:
    """Return the line of a task that failed."""
    return _build_line(1, row, None)


def _build_move(number: int, row: rows.TaskRow, plan: rows.PlanRow | None) -> live_values.LiveMove:
    return live_values.LiveMove(_build_line(number, row, _find_move(row, plan)), row.task.plan_id,
                                row.task.memory_mb, row.task.state in rows.IN_FLIGHT,
                                row.task.state.is_terminal)


def _build_line(number: int, row: rows.TaskRow, move: model.Move | None) -> values.MoveLine:
    task = row.task
    planned = task.to_host if move is None else move.to_host
    return values.MoveLine(
        number, task.instance_uuid, task.from_host, task.to_host, str(task.phase), task.wave,
        task.improvement, task.not_before, name=task.instance_name,
        alternates=task.alternates, task_id=task.task_id,
        state=stored_section.describe_state(task, planned),
        spans=stored_section.list_attempt_spans(row), error=row.error,
        gain=None if move is None else move.gain, method=task.method)


def _find_move(row: rows.TaskRow, plan: rows.PlanRow | None) -> model.Move | None:
    if plan is None:
        return None
    return next((move for move in plan.plan.moves
                 if move.instance_uuid == row.task.instance_uuid), None)


def _build_host_lines(reading: ScopeReading, tasks: Sequence[rows.TaskRow],
                      plans: Mapping[str, rows.PlanRow]) -> tuple[values.HostLine, ...]:
    request = reading.request
    live = [row for row in tasks if not row.task.state.is_terminal]
    planned = _map_planned_scores(live, plans)
    gives = Counter(row.task.from_host for row in live)
    takes = Counter(row.task.to_host for row in live)
    chosen = request.policies.enabled_policies
    weights = [policy.weight for policy in chosen]
    lines = []
    for host in sorted(request.cluster.scope_hosts):
        levels = []
        for policy in chosen:
            score = request.scores.policies[policy.name].hosts.get(host)
            levels.append(values.HostLevel(score, planned.get((host, policy.name), score)))
        lines.append(values.HostLine(
            host, tuple(levels), values.HostLevel(
                planned_section.sum_weighted_scores(weights, [lv.before for lv in levels]),
                planned_section.sum_weighted_scores(weights, [lv.after for lv in levels])),
            zone=planned_section.find_zone(request.cluster, host),
            instances=reading.counts.get(host, 0), gives=gives[host], takes=takes[host],
            notes=planned_section.list_host_notes(request, host, ())))
    return tuple(lines)


def _map_planned_scores(live: Sequence[rows.TaskRow],
                        plans: Mapping[str, rows.PlanRow]) -> dict[tuple[str, str], float | None]:
    """Return the score of each host and policy after the tasks that are not over.

    The scores of a plan are those that its planner expected, move after move; the last ones hold. A
    task that goes to an alternate tells nothing about the planned destination.
    """
    by_plan: dict[str, dict[str, rows.TaskRow]] = {}
    for row in live:
        by_plan.setdefault(row.task.plan_id, {})[row.task.instance_uuid] = row
    scores: dict[tuple[str, str], float | None] = {}
    for plan in sorted((plans[plan_id] for plan_id in by_plan if plan_id in plans),
                       key=lambda plan: plan.created_at):
        for move in plan.plan.moves:
            task_row = by_plan[plan.plan_id].get(move.instance_uuid)
            if task_row is None:
                continue
            for change in move.changes:
                scores[move.from_host, change.policy] = change.from_after
                if task_row.task.to_host == move.to_host:
                    scores[move.to_host, change.policy] = change.to_after
    return scores


def _list_sentences(card: live_values.ScopeCard) -> Sequence[str]:
    sentences = list(card.problems)
    if card.running or card.queued or card.waiting:
        counts = ((card.running, 'under way'), (card.queued, 'queued'),
                  (card.waiting, 'waiting for approval'))
        parts = [f'{plurals.count_noun(number, "move")} {what}'
                 for number, what in counts if number]
        sentences.append(f'{", ".join(parts)}.')
    else:
        sentences.append('No move waits or is under way.')
        if card.reason is not None and card.planned_at is not None:
            sentences.append(f'The cycle of {words.format_moment(card.planned_at)} planned no '
                             f'move: {card.reason}.')
    if card.dry_run:
        sentences.append('Engines make a dry run: no move is carried out.')
    return sentences
