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
"""Parts of the live page. Times in epoch seconds; None is not known."""

import dataclasses
import math

from kronos_nova import model
from kronos_nova.rebalancer.report import values


@dataclasses.dataclass(frozen=True, slots=True)
class LiveMove:
    """A move whose task is not over, or ended lately; ``line.number`` counts from 1.

    ``memory_mib``: of the instance. ``under_way``: an executor has begun the task, and it is not
    over. ``ended``: the task is over.
    """

    line: values.MoveLine
    plan_id: str
    memory_mib: int
    under_way: bool
    ended: bool


@dataclasses.dataclass(frozen=True, slots=True)
class WaitingPlan:
    """A plan that waits for approval until a time; ``moves``: those that wait.

    ``before`` and ``after``: the combined imbalance that the plan found and foresees.
    ``approvals``: who has approved the plan, when, and how many moves; more people must.
    ``shutdowns``: moves that shut an instance down, move it cold and start it again.
    """

    plan_id: str
    scope: str
    since: float
    until: float
    moves: int
    before: float | None
    after: float | None
    approvals: tuple[tuple[str, float, int], ...] = ()
    shutdowns: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class FailedMove:
    """A task that failed, and the operator's next step."""

    line: values.MoveLine
    scope: str
    plan_id: str
    at: float
    remedy: str


@dataclasses.dataclass(frozen=True, slots=True)
class PauseLine:
    """A pause of a scope, None: of everything; ``until`` None: an operator ends it."""

    scope: str | None
    since: float
    until: float | None
    paused_by: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeCard:
    """A scope in few words.

    ``policies``: as the last cycle measured and foresaw them. ``problems``: sentences on why
    nothing is planned there or moves. ``running``, ``queued`` and ``waiting`` count tasks.
    """

    name: str
    policies: tuple[values.PolicyLine, ...]
    planned_at: float | None
    dry_run: bool
    running: int
    queued: int
    waiting: int
    reason: str | None
    problems: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Overview:
    """All scopes, the plans that wait, the pauses, the tasks that failed lately, the campaigns."""

    at: float
    cards: tuple[ScopeCard, ...]
    plans: tuple[WaitingPlan, ...]
    pauses: tuple[PauseLine, ...]
    failures: tuple[FailedMove, ...]
    failed_hours: int
    campaigns: tuple[values.CampaignProgress | model.UnreadableCampaign, ...] = ()

    def find_worst_scope(self) -> str | None:
        """Return the scope with an imbalance farthest above its threshold; None: no scope."""
        def measure_excess(card: ScopeCard) -> float:
            return max((policy.before - policy.threshold for policy in card.policies
                        if policy.before is not None), default=-math.inf)

        return max(self.cards, key=measure_excess).name if self.cards else None


@dataclasses.dataclass(frozen=True, slots=True)
class LiveScope:
    """A scope as it is, and as it is planned.

    ``section.lines`` have all hosts, the hottest first: as the reading of ``section.at`` has them,
    and as the moves that are not over leave them. ``section.moves`` are those of ``moves``.
    """

    card: ScopeCard
    section: values.ScopeSection
    moves: tuple[LiveMove, ...]
    sentences: tuple[str, ...]
