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

"""Use of resources by instances of a flavor, as the engine has measured it.

A flavor is known here by its shape, vCPUs and MiB, because a HostState shows no more of an instance
that came or left. Use is in vCPUs of the host (MiB, if its policy follows memory): the instance's
share of the host times the host's amount, so that it counts on a host of any size.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import NamedTuple

#: Flavors of a policy; the most common are kept.
MAX_SHAPES = 64
#: Most common flavors, two of which may explain a change of a host.
MAX_PAIRED = 24
#: Number of changes that are remembered.
MAX_KNOWN = 4096


class FlavorShape(NamedTuple):
    """The allocation of an instance of a flavor."""

    vcpus: int
    memory_mb: int


class IncomingMove(NamedTuple):
    """A move to a host, of an instance that metrics show elsewhere.

    ``since``: time of planning (epoch), which tells it from an earlier move. ``use``: the
    instance's use; None if that is not measured.
    """

    instance_uuid: str
    to_host: str
    shape: FlavorShape
    since: float = 0.0
    use: float | None = None

    @property
    def key(self) -> tuple[str, str, float]:
        return self.instance_uuid, self.to_host, self.since


@dataclasses.dataclass(frozen=True, slots=True)
class FlavorUsages:
    """Measured use under one policy by flavor, the most common first."""

    shapes: Mapping[FlavorShape, float] = dataclasses.field(default_factory=dict)
    moves: tuple[IncomingMove, ...] = ()


def compute_typical_use(shapes: Mapping[FlavorShape, float], memory: bool) -> float:
    """Return the use of an allocated vCPU (MiB), each flavor counted alike; 0 if unknown."""
    allocated = sum(shape[memory] for shape in shapes)
    return sum(shapes.values()) / allocated if allocated > 0 else 0.0


def explain_change(vcpus: float, memory_mb: float,
                   shapes: Sequence[FlavorShape]) -> tuple[tuple[FlavorShape, int], ...] | None:
    """Return the instances that came (or left, if negative) when a host changed by this.

    Return the fewest that explain the change: of one flavor, or of two. None: no two do.
    """
    sign = -1 if vcpus < 0 or (vcpus == 0 and memory_mb < 0) else 1
    vcpus, memory_mb = sign * vcpus, sign * memory_mb
    if memory_mb < 0:
        return None
    matches = []
    for shape in shapes:
        count = round(vcpus / shape.vcpus)
        if count >= 1 and (count * shape.vcpus, count * shape.memory_mb) == (vcpus, memory_mb):
            matches.append(((shape, sign * count),))
    if matches:
        return min(matches, key=_count_instances)
    pairs = []
    for one_shape, other in itertools.combinations(shapes[:MAX_PAIRED], 2):
        # Two equations for the counts of the two flavors.
        determinant = one_shape.vcpus * other.memory_mb - other.vcpus * one_shape.memory_mb
        if determinant == 0:
            continue
        first = (vcpus * other.memory_mb - other.vcpus * memory_mb) / determinant
        second = (one_shape.vcpus * memory_mb - vcpus * one_shape.memory_mb) / determinant
        if first >= 1 and second >= 1 and first.is_integer() and second.is_integer():
            pairs.append(((one_shape, sign * int(first)), (other, sign * int(second))))
    return min(pairs, key=_count_instances) if pairs else None


def _count_instances(parts: Iterable[tuple[FlavorShape, int]]) -> int:
    return sum(abs(count) for _, count in parts)


class UsageCorrections:
    """Corrections by flavor: how much more a change counts than its amounts at the mean use.

    Many threads use an instance; a remembered result is the same for all threads.

    :param extras: by shape, in vCPUs and MiB of the mean use; negative for a flavor that uses less
        than others.
    """

    def __init__(self, extras: Mapping[FlavorShape, tuple[float, float]]) -> None:
        self._extras = {shape: extra for shape, extra in extras.items() if shape.vcpus > 0}
        self._shapes = tuple(self._extras)
        self._known: dict[tuple[float, float], tuple[float, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._extras)

    def sum_corrections(self, vcpus: float, memory_mb: float) -> tuple[float, float]:
        """Return the (vCPUs, MiB) to add to this change; 0 when no flavors explain it."""
        known = self._known.get((vcpus, memory_mb))
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            parts = explain_change(vcpus, memory_mb, self._shapes) or ()
            known = (sum(self._extras[shape][0] * count for shape, count in parts),
                     sum(self._extras[shape][1] * count for shape, count in parts))
            self._known[vcpus, memory_mb] = known
        return known


def build_extras(parts: Iterable[tuple[float, float, bool,
                                       Mapping[FlavorShape, float]]]) -> UsageCorrections:
    """Return the corrections for a load that is the weighted sum of several policies' loads.

    :param parts: of each policy its weight, the use of an allocated unit, whether that unit is a
        MiB, and the use of each flavor.
    """
    parts = [part for part in parts if part[0] > 0 and part[1] > 0]
    whole = [sum(weight * use for weight, use, memory, _ in parts if memory == kind)
             for kind in (False, True)]
    extras: dict[FlavorShape, list[float]] = {}
    for weight, use, memory, shapes in parts:
        for shape, used in shapes.items():
            extras.setdefault(shape, [0.0, 0.0])[memory] += (
                weight * (used - use * shape[memory]) / whole[memory])
    return UsageCorrections({shape: (extra[0], extra[1]) for shape, extra in extras.items()})
