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

from collections.abc import Mapping
import math
import zlib

from kronos_nova.scheduler import depletion

#: Rankings; two requests share one by chance, once in so many.
RANKINGS = 8


def width(boot: float, concurrent: int) -> float:
    """By how much loads may differ and still be as good as each other.

    As boots that fall at random differ: by the square root of their number.
    Simulated with 6 to 50 hosts and 2 to 8 boots at a time, this leaves the
    hosts more level than one or two boots' load does, whatever the number.

    :param boot: what an instance adds to a host's load.
    :param concurrent: boots that are under way at once; 1: nothing is unseen.
    """
    return boot * math.sqrt(concurrent) if concurrent > 1 and boot > 0 else 0.0


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
