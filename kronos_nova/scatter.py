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

"""Keeps requests that cannot see each other from choosing the same host.

Boots that several workers place at the same time are in nobody's HostState
until their computes have claimed: each worker finds the same host to be the
best. Hosts whose loads differ by less than such boots could add are as good
as each other, so each request ranks them differently, by its instance.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import zlib

from kronos_nova import depletion

#: Rankings; two requests share one by chance, once in so many.
RANKINGS = 8


def width(loads: Iterable[float], boot: float, concurrent: int) -> float:
    """By how much loads may differ and still be as good: the level to which
    the boots under way would fill the least loaded hosts, less the least; at
    least half an instance's, so that some hosts are within it.

    :param loads: of the hosts.
    :param boot: what an instance adds to a host's load.
    :param concurrent: boots that are under way at once; 1: nothing is unseen.
    """
    levels = sorted(loads)
    if concurrent <= 1 or len(levels) < 2 or boot <= 0:
        return 0.0
    volume, level = concurrent * boot, levels[0]
    for count, above in enumerate(levels[1:], start=1):
        if (above - level) * count >= volume:
            break
        volume -= (above - level) * count
        level = above
    else:
        count = len(levels)
    return max(level + volume / count - levels[0], boot / 2)


def ranked(loads: Mapping[str, depletion.Load], by: float,
           ranking: int) -> dict[str, depletion.Load]:
    """The loads, each shifted by at most half of ``by`` either way; the same
    in every process, so that one that restarts ranks as it did."""
    return {host: load._replace(base=load.base + by * (
        zlib.crc32(b'%d %s' % (ranking, host.encode())) / 2**32 - 0.5))
        for host, load in loads.items()}


def ranking_of(instance_uuid: str) -> int:
    """Which one a request uses."""
    return zlib.crc32(instance_uuid.encode()) % RANKINGS
