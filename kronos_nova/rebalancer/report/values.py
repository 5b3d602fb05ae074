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

"""Parts of a report. Times in epoch seconds, scores in [0, 1]; None is not known."""

import dataclasses

from kronos_nova import model


@dataclasses.dataclass(frozen=True, slots=True)
class HostLevel:
    """A host's score under one policy."""

    before: float | None
    after: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class HostLine:
    """A host of the scope; ``levels`` in the order of the section's policies.

    ``load`` is the weighted sum of its scores. ``notes`` name its special states.
    """

    name: str
    levels: tuple[HostLevel, ...]
    load: HostLevel
    zone: str = ''
    notes: tuple[str, ...] = ()
    instances: int = 0
    gives: int = 0
    takes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyLine:
    """A policy's imbalance.

    ``left_out`` says why it is not used; ``weight`` None: not known.
    """

    name: str
    threshold: float
    before: float | None
    after: float | None
    left_out: str | None = None
    weight: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptSpan:
    """An attempt at one destination; ``end`` None: it is under way.

    ``error`` None: it succeeded, as far as is known.
    """

    to_host: str
    start: float
    end: float | None
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class HostChange:
    """The scores of a move's source and destination under one policy."""

    policy: str
    source: HostLevel
    destination: HostLevel


@dataclasses.dataclass(frozen=True, slots=True)
class MoveLine:
    """A move: ``number`` counts from 1, ``requires`` are such numbers.

    ``gain``: the combined imbalance of the plan without this move alone, less that of the plan.

    ``begins``: seconds after its wave's start before which it does not begin, or, with a task, such
    a time. ``state`` is the task's. ``method``: None: it is not known.
    """

    number: int
    uuid: str
    from_host: str
    to_host: str
    phase: str
    wave: int
    improvement: float
    begins: float
    name: str = ''
    requires: tuple[int, ...] = ()
    alternates: tuple[str, ...] = ()
    task_id: str | None = None
    state: str | None = None
    spans: tuple[AttemptSpan, ...] = ()
    error: str | None = None
    gain: float | None = None
    changes: tuple[HostChange, ...] = ()
    method: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PlanPoint:
    """A plan of the scope: combined imbalance found, foreseen and realised.

    ``policies`` is the imbalance found, by policy.
    """

    at: float
    before: float | None
    after: float | None
    realised: float | None = None
    moves: int = 0
    dry_run: bool = False
    shown: bool = False
    policies: tuple[tuple[str, float | None], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class RefusalCount:
    """Number of candidate moves or instances that a rule refused."""

    rule: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class DataGap:
    """Data that a plan did not look at, or did not use, with their names."""

    title: str
    items: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ScopeSection:
    """The section of one scope.

    ``failed`` says why it has no plan at all. ``hosts`` and ``instances`` count the scope.
    ``no_lines`` says why ``lines`` is empty, or which hosts it lacks; ``no_moves`` why ``moves`` is
    empty. ``waiting``: number of moves of earlier plans that wait for approval. ``no_points`` says
    which ``points`` are lacking. ``decisions`` are sentences about operators' decisions.
    ``started`` is the time at which tasks were written; None: the plan has none, and times are the
    planned ones. ``columns`` name the two scores of a host and the two imbalances of a policy.
    """

    scope: str
    at: float
    failed: str | None = None
    plan_id: str | None = None
    dry_run: bool = False
    hosts: int | None = None
    instances: int | None = None
    policies: tuple[PolicyLine, ...] = ()
    before: float | None = None
    after: float | None = None
    realised: float | None = None
    lines: tuple[HostLine, ...] = ()
    no_lines: str = ''
    no_moves: str = 'None.'
    waiting: int = 0
    moves: tuple[MoveLine, ...] = ()
    started: float | None = None
    seen: float = 0.0
    points: tuple[PlanPoint, ...] = ()
    no_points: str = ''
    decisions: tuple[str, ...] = ()
    refusals: tuple[RefusalCount, ...] = ()
    held: tuple[str, ...] = ()
    gaps: tuple[DataGap, ...] = ()
    reason: str | None = None
    columns: tuple[str, str] = ('before', 'after')


@dataclasses.dataclass(frozen=True, slots=True)
class CampaignProgress:
    """The progress of a campaign.

    ``states``: the number of its hosts by state, in the order of the states. ``next_host``: the
    first host to come; None: no further host begins. ``held``: who has paused or aborted it, and
    why; ``waits``: why no further host begins; both are empty if nothing holds it. ``migrations``:
    those that have left its hosts. ``migrations_left`` and ``seconds_left``: what the forecast at
    its start has beyond these; None: not known, or over.
    """

    campaign_id: str
    scope: str
    state: model.CampaignState
    created_at: float
    created_by: str
    ended_at: float | None
    over: int
    total: int
    states: tuple[tuple[str, int], ...]
    next_host: str | None
    held: str
    waits: str
    begun: tuple[model.CampaignHost, ...]
    migrations: int
    migrations_left: int | None
    seconds_left: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class WholeReport:
    """The whole report.

    ``source`` is a sentence about its origin, ``at`` the time that it describes, ``made_at`` the
    time at which it was written. ``campaigns``: those that go on, and those that have ended in its
    period.
    """

    source: str
    at: float
    made_at: float
    version: str
    sections: tuple[ScopeSection, ...]
    campaigns: tuple[CampaignProgress | model.UnreadableCampaign, ...] = ()
