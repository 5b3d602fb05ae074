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


"""A request and the findings about its hosts, as values; needs no Nova."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class BootOrder:
    """A user's request to nova-api: ``count`` instances of one flavor, image and group."""

    flavor: str
    image: str | None = None
    group: str | None = None
    project: str | None = None
    availability_zone: str | None = None
    hints: tuple[tuple[str, str], ...] = ()
    boot_from_volume: bool = False
    count: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class HostScores:
    """Scores of a host by policy, in [0, 1], and its headroom: 1 - its load now.

    A host that lacks a score under every policy has no headroom (None).
    """

    policies: dict[str, float]
    headroom: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class WeigherShare:
    """Part of one weigher in a host's sum: ``normalised`` x ``multiplier``.

    ``aggregates`` are those whose metadata set the multiplier; none: nova.conf.
    """

    raw: float
    normalised: float
    multiplier: float
    aggregates: tuple[str, ...]

    @property
    def weighted_share(self) -> float:
        return self.multiplier * self.normalised


@dataclasses.dataclass(frozen=True, slots=True)
class HostLine:
    """Result of a host: ranked (1 is Nova's choice), or ``filtered_by`` and ``why``."""

    host: str
    node: str
    aggregates: tuple[str, ...]
    rank: int | None
    total: float | None
    filtered_by: str
    why: str
    scores: HostScores | None
    weights: dict[str, WeigherShare]


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExplanation:
    """Result of one request; ``chosen`` has (host, node) of each instance, in its order."""

    lines: tuple[HostLine, ...]
    weighers: tuple[str, ...]
    chosen: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ExplainedChoice:
    """Results of a request before and after a change of settings; ``after`` None: no change.

    ``hosts``: the hosts that the question was about; None: all.
    """

    before: ChoiceExplanation
    after: ChoiceExplanation | None
    hosts: frozenset[str] | None
