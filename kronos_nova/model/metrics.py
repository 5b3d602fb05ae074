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

"""Answers of a metrics source, and the scores that they become."""

from collections.abc import Mapping
import dataclasses
import enum

from kronos_nova import lookback


class SourceHealth(enum.StrEnum):
    """The reliability of a source's answer."""

    HEALTHY = 'HEALTHY'
    STALE = 'STALE'
    PARTIAL = 'PARTIAL'
    UNREACHABLE = 'UNREACHABLE'


@dataclasses.dataclass(frozen=True, slots=True)
class QueryResult:
    """A source's answer to one query: values by label, or a named reason.

    ``series`` maps the value of the asked label to the sample; it holds only finite numbers.
    ``error`` says why the answer must not be used; then ``series`` is empty. ``duplicates`` are
    label values that came more than once: ``series`` has no value for them.
    """

    query: str
    health: SourceHealth
    series: Mapping[str, float] = dataclasses.field(default_factory=dict)
    error: str | None = None
    warnings: tuple[str, ...] = ()
    missing_labels: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PolicySamples:
    """All samples that a source has of one policy at one time.

    ``age`` is the age in seconds of the samples behind ``imbalance``, the median of its hosts (a
    source leaves out hosts that are too old); None means that the policy has no ``age_query``:
    unverified. ``asked_ago``: seconds before the call at which the source really was asked, when
    another process has done it; ``age`` is as of then.
    """

    policy: str
    imbalance: QueryResult
    profile: QueryResult | None = None
    capacity: QueryResult | None = None
    host_capacity: QueryResult | None = None
    age: float | None = None
    taken_at: float = 0.0
    mean: QueryResult | None = None
    deviation: QueryResult | None = None
    dirty_rate: QueryResult | None = None
    asked_ago: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyScores:
    """The scores of one policy, mapped to Nova's hosts and instances.

    ``hosts``: score in [0, 1] by host. ``fill``: the values that ceilings are compared with, by
    host (a pack policy's ``capacity_query``, else the score). ``capacity``: by host, in the unit
    of ``usages``. ``usages``: by instance UUID, only of instances that have a profile or a
    fallback. ``means`` and ``deviations``: the usage of an instance over hours, in the unit of
    ``usages``; an instance without them is steady. ``dirty_rates``: bytes a second that instances
    write to their memory, by UUID, where it is measured. ``untrusted``: why imbalance moves must
    not use the policy; None: they may. ``coverage``: by host, the share of the score that its
    instances' usages explain. ``window``: seconds over which its queries look back at most,
    ``score_look`` and ``fill_look``: the lookback of the queries of ``hosts`` and ``fill``.
    ``staleness``: how old samples may be, in seconds, when ``age`` is not known.
    """

    policy: str
    hosts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    fill: Mapping[str, float] = dataclasses.field(default_factory=dict)
    capacity: Mapping[str, float] = dataclasses.field(default_factory=dict)
    usages: Mapping[str, float] = dataclasses.field(default_factory=dict)
    coverage: Mapping[str, float] = dataclasses.field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    untrusted: str | None = None
    age: float | None = None
    warnings: tuple[str, ...] = ()
    window: float = 0.0
    score_look: lookback.LookbackWindow = lookback.LookbackWindow()
    fill_look: lookback.LookbackWindow = lookback.LookbackWindow()
    staleness: float = 0.0
    means: Mapping[str, float] = dataclasses.field(default_factory=dict)
    deviations: Mapping[str, float] = dataclasses.field(default_factory=dict)
    dirty_rates: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def has_imbalance_values(self, host: str) -> bool:
        """Return whether the host has all values for imbalance moves; else it is frozen."""
        return host in self.hosts and host in self.fill and host in self.capacity


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterScores:
    """Every enabled policy's scores at one time."""

    policies: Mapping[str, PolicyScores]
    taken_at: float = 0.0

    @property
    def untrusted(self) -> tuple[str, ...]:
        """``policy: reason`` of each policy that must not be used."""
        return tuple(f'{name}: {p.untrusted}' for name, p in sorted(self.policies.items())
                     if p.untrusted)
