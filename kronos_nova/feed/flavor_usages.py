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

"""What instances of a flavor really use, as the engine has measured it.

A flavor is known here by its shape, vCPUs and MiB, because that is what a
HostState shows of an instance that came or left. What one uses is in vCPUs of
the host (MiB, if its policy goes by memory): its share of the host times what
the host has, so that it counts on a host of any size.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import NamedTuple

#: Flavors of a policy; the most common are kept.
MAX_SHAPES = 64
#: Of these many, a change of a host may be the sum of two.
MAX_PAIRED = 24
#: Different changes that are remembered.
MAX_KNOWN = 4096


class Shape(NamedTuple):
    """What an instance of a flavor has allocated."""

    vcpus: int
    memory_mb: int


class Incoming(NamedTuple):
    """A move to a host, of an instance that metrics show elsewhere.

    ``since``: when it was planned (epoch), which tells it from an earlier one.
    ``use``: what the instance uses; None if that is not measured.
    """

    instance_uuid: str
    to_host: str
    shape: Shape
    since: float = 0.0
    use: float | None = None

    @property
    def key(self) -> tuple[str, str, float]:
        return self.instance_uuid, self.to_host, self.since


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """What is measured under one policy: by flavor, the most common first."""

    shapes: Mapping[Shape, float] = dataclasses.field(default_factory=dict)
    moves: tuple[Incoming, ...] = ()


def typical(shapes: Mapping[Shape, float], memory: bool) -> float:
    """What an allocated vCPU (MiB) uses, each flavor counted alike; 0 if unknown."""
    allocated = sum(shape[memory] for shape in shapes)
    return sum(shapes.values()) / allocated if allocated > 0 else 0.0


def came(vcpus: float, memory_mb: float,
         shapes: Sequence[Shape]) -> tuple[tuple[Shape, int], ...] | None:
    """Which instances came (or left, if negative) when a host changed by this.

    The fewest that explain it: of one flavor, or of two. None: no two do.
    """
    sign = -1 if vcpus < 0 or (vcpus == 0 and memory_mb < 0) else 1
    vcpus, memory_mb = sign * vcpus, sign * memory_mb
    if memory_mb < 0:
        return None
    found = []
    for shape in shapes:
        count = round(vcpus / shape.vcpus)
        if count >= 1 and (count * shape.vcpus, count * shape.memory_mb) == (vcpus, memory_mb):
            found.append(((shape, sign * count),))
    if found:
        return min(found, key=_size)
    pairs = []
    for one, other in itertools.combinations(shapes[:MAX_PAIRED], 2):
        # Two equations: so many of the one and of the other.
        determinant = one.vcpus * other.memory_mb - other.vcpus * one.memory_mb
        if determinant == 0:
            continue
        first = (vcpus * other.memory_mb - other.vcpus * memory_mb) / determinant
        second = (one.vcpus * memory_mb - vcpus * one.memory_mb) / determinant
        if first >= 1 and second >= 1 and first.is_integer() and second.is_integer():
            pairs.append(((one, sign * int(first)), (other, sign * int(second))))
    return min(pairs, key=_size) if pairs else None


def _size(parts: Iterable[tuple[Shape, int]]) -> int:
    return sum(abs(count) for _, count in parts)


class Extras:
    """How much more a change counts than its vCPUs and MiB at the mean use.

    Many threads use it; what is remembered is the same for all of them.

    :param extras: by shape, in vCPUs and MiB of the mean use; negative for a
        flavor that uses less than others.
    """

    def __init__(self, extras: Mapping[Shape, tuple[float, float]]) -> None:
        self._extras = {shape: extra for shape, extra in extras.items() if shape.vcpus > 0}
        self._shapes = tuple(self._extras)
        self._known: dict[tuple[float, float], tuple[float, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._extras)

    def of(self, vcpus: float, memory_mb: float) -> tuple[float, float]:
        """(vCPUs, MiB) to be added to this change; 0 when it is no flavor's."""
        known = self._known.get((vcpus, memory_mb))
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            parts = came(vcpus, memory_mb, self._shapes) or ()
            known = (sum(self._extras[shape][0] * count for shape, count in parts),
                     sum(self._extras[shape][1] * count for shape, count in parts))
            self._known[vcpus, memory_mb] = known
        return known


def extras(parts: Iterable[tuple[float, float, bool, Mapping[Shape, float]]]) -> Extras:
    """Those of a load that is the weighted sum of several policies'.

    :param parts: of each policy its weight, what an allocated unit uses, if
        that unit is a MiB, and what each flavor uses.
    """
    parts = [part for part in parts if part[0] > 0 and part[1] > 0]
    whole = [sum(weight * use for weight, use, memory, _ in parts if memory == kind)
             for kind in (False, True)]
    found: dict[Shape, list[float]] = {}
    for weight, use, memory, shapes in parts:
        for shape, used in shapes.items():
            found.setdefault(shape, [0.0, 0.0])[memory] += (
                weight * (used - use * shape[memory]) / whole[memory])
    return Extras({shape: (extra[0], extra[1]) for shape, extra in found.items()})
