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


"""Rows of the store as Python values, and their conversion from and to columns."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
from typing import Any, NamedTuple, Self
import zlib

import sqlalchemy as sa

from kronos_nova import model
from kronos_nova.model import TaskState
from kronos_nova.rebalancer.store import attempt_phases
from kronos_nova.rebalancer.store import tables
from kronos_nova.text import times

#: States that hold a slot of the concurrency caps.
IN_FLIGHT = (TaskState.CLAIMED, TaskState.SUBMITTING, TaskState.SUBMITTED, TaskState.UNKNOWN)
#: States in which a request may have reached Nova: look before anything else.
MAYBE_IN_NOVA = (TaskState.SUBMITTING, TaskState.SUBMITTED, TaskState.UNKNOWN)
#: States in which Nova has certainly not been asked.
NOT_IN_NOVA = (TaskState.PENDING, TaskState.QUEUED, TaskState.CLAIMED)
#: A task that did not begin within this time (seconds) of its planning is out of date.
BEGIN_WITHIN = 6 * 3600.0
#: ``error_type`` of a task that an operator ended, here or in Nova.
CANCELLED_TYPE = 'MigrationCancelled'
#: A task loses its slots when an executor sees that Nova has not changed its migration for so
#: long (seconds). Less than an hour, since executors look only from time to time.
SLOT_SECONDS = 3000.0
#: Seconds between two executors of a task that count as seen, at most: by the database's clock,
#: which may jump.
HANDOVER_SECONDS = 300.0
_UNCHANGED, _SLOTLESS = 'unchanged', 'slotless'
LIVE = tuple(state for state in TaskState if not state.is_terminal)
#: Number of attempts of a task that are kept, the newest.
KEPT_ATTEMPTS = 50


def is_live() -> sa.ColumnElement[bool]:
    """Match live tasks by their states: SQLite uses no index for ``IS NOT NULL``."""
    return tables.task.c.state.in_([sa.literal(state.value) for state in LIVE])


def note_unchanged(since: float, version: str, seconds: float) -> str:
    """Return the ``doubt`` of a task whose migration Nova does not change.

    The note proves nothing about the time after the look that wrote it. It therefore names the
    version of the record, and for how many minutes executors have seen it. A note of a task that
    has lost its slots names no minutes.

    :param since: the present time by the database's clock, less ``seconds``. So the age was that
        number of minutes at ``since`` plus these minutes, by the same clock.
    :param seconds: for how long executors have seen this version, by monotonic time.
    """
    if seconds >= SLOT_SECONDS:
        return f'{_SLOTLESS}@{since:.0f} {_digest(version)}'
    return f'{_UNCHANGED}@{since:.0f} {_digest(version)} {seconds // 60:.0f}'


def _digest(version: str) -> str:
    return f'{zlib.crc32(version.encode()):08x}'


def _split_note(doubt: str | None, doubt_since: float | None) -> tuple[str, str] | None:
    """Return the kind of a note and the digest of its version; None: it is another doubt."""
    kind, _, rest = (doubt or '').partition('@')
    noted, digest = (*rest.split(' '), '')[:2]
    if (doubt_since is None or kind not in (_UNCHANGED, _SLOTLESS)
            or noted != f'{doubt_since:.0f}'):
        return None
    return kind, digest


def find_unchanged_since(doubt: str | None, doubt_since: float | None,
                         version: str | None = None) -> float | None:
    """Return since when Nova has not changed the migration, None: it does.

    :param version: the version that the record has now; None: it is not known.
    """
    note = _split_note(doubt, doubt_since)
    if note is None or version is not None and note[1] != _digest(version):
        return None
    return doubt_since


def count_unchanged_seconds(doubt: str | None, doubt_since: float | None, version: str,
                            now: float) -> float:
    """Return for how long executors have seen this version; 0: the note has another.

    The time since the note counts up to HANDOVER_SECONDS: the version is the same at both ends, and
    executors that take over a task from each other would free no slot within an hour.

    :param now: when the record was read, by the database's clock.
    """
    note = _split_note(doubt, doubt_since)
    if note is None or doubt_since is None or note[1] != _digest(version):
        return 0.0
    if note[0] == _SLOTLESS:
        return SLOT_SECONDS
    minutes = (doubt or '').split(' ')[2:]
    seconds = 60.0 * int(minutes[0]) if minutes and minutes[0].isdecimal() else 0.0
    return seconds + min(max(0.0, now - doubt_since - seconds), HANDOVER_SECONDS)


def has_lost_slots(doubt: str | None, doubt_since: float | None) -> bool:
    """Return whether a task in flight counts no more for any limit of concurrency."""
    note = _split_note(doubt, doubt_since)
    return note is not None and note[0] == _SLOTLESS


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeLease:
    """The right to plan a scope; a higher epoch ends a lower one."""

    scope: str
    owner: str
    epoch: int


class EngineSettings(NamedTuple):
    """Digests of settings that daemons of one scope must have alike, each of 64 hex digits.

    ``contracts``: of what executors judge by as well; empty in a lease of an older engine.
    """

    policies: str
    contracts: str

    def format_digest(self) -> str:
        return ''.join(self)

    @classmethod
    def parse_digest(cls, text: str) -> Self:
        return cls(text[:64], text[64:])


@dataclasses.dataclass(frozen=True, slots=True)
class TaskRow:
    """A task and its progress.

    ``task.to_host`` is the destination of the current attempt and ``task.alternates`` the ones
    left after it. ``doubt_since`` is when a look at Nova first contradicted the task's state, and
    ``doubt`` in which way. ``attempts`` are those that have ended, and ``marks`` when each phase
    of the current one has begun (:mod:`attempt_phases`). ``swap_id`` is that of the swap to which
    the task belongs. ``escalation`` are the steps of all attempts, oldest first; ``later_steps``
    those whose kind a later release has added.
    """

    task: model.Task
    attempt: int = 0
    worker: str | None = None
    heartbeat_at: float | None = None
    marker: str | None = None
    reference: str | None = None
    submitted_at: float | None = None
    doubt_since: float | None = None
    doubt: str | None = None
    updated_at: float = 0.0
    completed_at: float | None = None
    error: str | None = None
    error_type: str | None = None
    attempts: tuple[model.Attempt, ...] = ()
    marks: attempt_phases.Marks = ()
    swap_id: str | None = None
    escalation: tuple[model.EscalationStep, ...] = ()
    later_steps: tuple[Mapping[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PlanRow:
    """A stored plan."""

    plan_id: str
    created_at: float
    dry_run: bool
    epoch: int
    plan: model.Plan


def task_columns(task: model.Task, now: float) -> dict[str, Any]:
    """Return the columns of a new task; its deadline is when it must have begun."""
    return {
        'task_id': task.task_id, 'plan_id': task.plan_id, 'scope': task.aggregate,
        'instance_uuid': task.instance_uuid, 'active_instance': task.instance_uuid,
        'instance_name': task.instance_name[:255], 'from_host': task.from_host,
        'to_host': task.to_host, 'destinations': json.dumps([task.to_host, *task.alternates]),
        'attempt': 0, 'phase': task.phase.value, 'policy_names': json.dumps(task.policy_names),
        'improvement': task.improvement, 'priority': task.priority, 'wave': task.wave,
        'requires': json.dumps(task.requires), 'max_retries': task.max_retries,
        'retry_count': task.retry_count, 'not_before': task.not_before,
        'created_at': task.created_at or now, 'updated_at': now,
        'expires_at': now + BEGIN_WITHIN if task.deadline is None else task.deadline,
        'state': task.state.value, 'memory_mb': task.memory_mb, 'disk_gb': task.disk_gb,
        'method': task.method.value,
        'trees': json.dumps([[t.host, t.shape, t.generation] for t in task.trees]),
        'improvements': json.dumps(task.alternate_improvements),
        'hooks': json.dumps([[hook.name, dict(hook.parameters)] for hook in task.hooks])
                 if task.hooks else None,
        'counts_alternates': task.counts_alternates,
        'authorization': task.authorization or None, 'arrive_by': task.arrive_by}


def parse_attempts(text: str | None) -> tuple[model.Attempt, ...]:
    """Parse the column of ended attempts; a task of an earlier release has none."""
    return tuple(model.Attempt(**_keep_known_fields(model.Attempt, attempt))
                 for attempt in json.loads(text or '[]'))


def attempts_text(known: Sequence[model.Attempt]) -> str:
    """Format attempts for their column; of too many the oldest are left out."""
    return json.dumps([dataclasses.asdict(a) for a in known[-KEPT_ATTEMPTS:]])


def parse_escalation(text: str | None) -> tuple[model.EscalationStep, ...]:
    """Parse the column of escalation steps; a task of an earlier release has none.

    Kinds that a later release has added are left out: see :func:`parse_later_steps`.
    """
    return tuple(model.EscalationStep(**_keep_known_fields(model.EscalationStep, {
        **step, 'kind': model.EscalationKind(step['kind'])})) for step in json.loads(text or '[]')
        if step['kind'] in list(model.EscalationKind))


def parse_later_steps(text: str | None) -> tuple[Mapping[str, Any], ...]:
    """Parse the escalation steps of kinds that a later release has added."""
    return tuple(step for step in json.loads(text or '[]')
                 if step['kind'] not in list(model.EscalationKind))


def format_escalation(steps: Sequence[model.EscalationStep],
                      later: Sequence[Mapping[str, Any]] = ()) -> str:
    """Format escalation steps for their column.

    :param later: steps of a later release, which stay as they are.
    """
    return json.dumps([*later, *(dataclasses.asdict(step) for step in steps)])


def find_improvement(first: float, others: str | None, attempt: int) -> float:
    """Return the improvement by the destination of this attempt.

    For a task without scores, or of an earlier release, only that of its first destination is
    known.
    """
    known = [first, *json.loads(others or '[]')] if attempt else [first]
    return float(known[attempt]) if attempt < len(known) else first


def task_row(row: sa.RowMapping) -> TaskRow:
    destinations = json.loads(row['destinations'])
    now = row['attempt']
    improvements = [row['improvement'], *json.loads(row['improvements'] or '[]')]
    task = model.Task(
        task_id=row['task_id'], plan_id=row['plan_id'], aggregate=row['scope'],
        instance_uuid=row['instance_uuid'], instance_name=row['instance_name'],
        from_host=row['from_host'], to_host=row['to_host'],
        alternates=tuple(destinations[now + 1:]), phase=model.Phase(row['phase']),
        policy_names=tuple(json.loads(row['policy_names'])),
        improvement=find_improvement(row['improvement'], row['improvements'], now),
        alternate_improvements=tuple(improvements[now + 1:]),
        priority=row['priority'], wave=row['wave'], requires=tuple(json.loads(row['requires'])),
        max_retries=row['max_retries'], retry_count=row['retry_count'],
        not_before=row['not_before'], created_at=row['created_at'],
        deadline=row['expires_at'] if row['deadline'] is None else row['deadline'],
        state=TaskState(row['state']), memory_mb=row['memory_mb'], disk_gb=row['disk_gb'],
        method=model.MoveMethod(row['method']),
        trees=tuple(model.TreeDigest(*mark) for mark in json.loads(row['trees'] or '[]')),
        hooks=tuple(model.TaskHook(*hook) for hook in json.loads(row['hooks'] or '[]')),
        counts_alternates=bool(row['counts_alternates']),
        authorization=row['authorization'] or '',
        arrive_by=None if row['arrive_by'] is None else times.clamp_time(row['arrive_by']))
    return TaskRow(task=task, attempts=parse_attempts(row['attempts']),
                   marks=attempt_phases.parse_phase_starts(row['timings']),
                   escalation=parse_escalation(row['escalation']),
                   later_steps=parse_later_steps(row['escalation']), **{
        name: row[name] for name in (
            'attempt', 'worker', 'heartbeat_at', 'marker', 'reference', 'submitted_at',
            'doubt_since', 'doubt', 'updated_at', 'completed_at', 'error', 'error_type',
            'swap_id')})


@dataclasses.dataclass(frozen=True, slots=True)
class CycleRecord:
    """The last cycle of a scope that made a plan, at ``at``.

    It keeps the number of moves, or why there are none, and each policy's imbalance. ``error``:
    why the cycles since then have failed, the last at ``failed_at``.
    """

    at: float | None = None
    moves: int = 0
    reason: str | None = None
    policies: tuple[model.PolicyReport, ...] = ()
    error: str | None = None
    failed_at: float | None = None


def cycle_document(cycle: CycleRecord) -> str:
    """Format a cycle as JSON text."""
    return json.dumps(dataclasses.asdict(cycle))


def parse_cycle(document: str | None) -> CycleRecord:
    """Parse a cycle from JSON text."""
    data = json.loads(document or '{}')
    policies = tuple(model.PolicyReport(**_keep_known_fields(model.PolicyReport, policy))
                     for policy in data.pop('policies', ()))
    return CycleRecord(policies=policies, **_keep_known_fields(CycleRecord, data))


_PACKING = ('packing_before', 'packing_after')


def plan_document(plan: model.Plan) -> str:
    """Format a plan as JSON text."""
    return json.dumps({
        'moves': [dataclasses.asdict(move) for move in plan.moves],
        'policies': [dataclasses.asdict(policy) for policy in plan.policies],
        'combined_before': plan.combined_before, 'combined_after': plan.combined_after,
        'combined_measured': plan.combined_measured,
        'rejections': dict(plan.rejections), 'warnings': plan.warnings,
        'held': [dataclasses.asdict(rejection) for rejection in plan.held],
        'undrained': [dataclasses.asdict(rejection) for rejection in plan.undrained],
        'draining': sorted(plan.draining), 'truncated': plan.truncated, 'load': plan.load,
        'swaps': [dataclasses.asdict(swap) for swap in plan.swaps],
        **{name: dataclasses.asdict(density) for name in _PACKING
           if (density := getattr(plan, name)) is not None}})


def plan_row(row: sa.RowMapping) -> PlanRow:
    """Parse the plan of a row.

    Fields that a later release has added to its document are ignored, and fields that an earlier
    one did not know have their defaults.
    """
    data = json.loads(row['document'])
    moves = tuple(
        model.Move(**_keep_known_fields(model.Move, {
            **move, 'phase': model.Phase(move['phase']),
            'changes': tuple(model.ScoreChange(**_keep_known_fields(model.ScoreChange, change))
                             for change in move.get('changes', ())),
            **{name: tuple(move.get(name, ()))
               for name in ('requires', 'alternates', 'alternate_improvements')}}))
        for move in data.pop('moves'))
    held, undrained = (
        tuple(model.Rejection(**_keep_known_fields(model.Rejection, rejection))
              for rejection in data.pop(name, ()))
        for name in ('held', 'undrained'))
    packing = {name: model.PackingDensity(**_keep_known_fields(model.PackingDensity, density))
               for name in _PACKING
               if (density := data.pop(name, None)) is not None}
    plan = model.Plan(
        scope=row['scope'], reason=row['reason'], moves=moves, held=held, undrained=undrained,
        packing_before=packing.get('packing_before'), packing_after=packing.get('packing_after'),
        policies=tuple(model.PolicyReport(**_keep_known_fields(model.PolicyReport, policy))
                       for policy in data.pop('policies', ())),
        warnings=tuple(data.pop('warnings', ())),
        draining=frozenset(data.pop('draining', ())),
        swaps=tuple(model.Swap(**_keep_known_fields(model.Swap, swap))
                    for swap in data.pop('swaps', ())),
        **_keep_known_fields(model.Plan, {name: value for name, value in data.items()
                                          if name not in ('scope', 'reason')}))
    return PlanRow(plan_id=row['plan_id'], created_at=row['created_at'],
                   dry_run=bool(row['dry_run']), epoch=row['epoch'], plan=plan)


def _keep_known_fields(kind: type[Any], data: dict[str, Any]) -> dict[str, Any]:
    """Return the written fields that this release's dataclass has."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in data.items() if name in names}
