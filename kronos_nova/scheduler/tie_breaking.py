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

"""Rankings that keep requests from choosing the same host when they cannot see each other.

Boots that several workers place at the same time are in no HostState until their computes have
claimed: each worker finds the same host to be the best. Hosts whose loads differ by less than such
boots could add are as good as each other, so each request ranks them differently, by its instance.
"""

from collections.abc import Mapping
import math
import zlib

from kronos_nova.scheduler import depletion

#: Number of rankings; two requests share one with a chance of 1 / RANKINGS.
RANKINGS = 8


def compute_width(boot: float, concurrent: int) -> float:
    """Return the difference of loads up to which hosts are as good as each other.

    It is the spread of boots that fall at random, which grows with the square root of their number.
    Simulated with 6 to 50 hosts and 2 to 8 boots at a time, this leaves the hosts more level than
    one or two boots' load does, at any number.

    :param boot: load that an instance adds to a host.
    :param concurrent: boots that are under way at once; 1: nothing is unseen.
    """
    return boot * math.sqrt(concurrent) if concurrent > 1 and boot > 0 else 0.0


def shift_loads(loads: Mapping[str, depletion.HostLoad], by: float,
                ranking: int) -> dict[str, depletion.HostLoad]:
    """Return the loads, each shifted by at most half of ``by`` either way.

    The shifts are the same in every process, so a restarted process ranks as before.
    """
    return {host: load._replace(base=load.base + by * (
        zlib.crc32(b'%d %s' % (ranking, host.encode())) / 2**32 - 0.5))
        for host, load in loads.items()}


def ranking_of(instance_uuid: str) -> int:
    """Return the number of the ranking for the instance's request."""
    return zlib.crc32(instance_uuid.encode()) % RANKINGS
