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


"""The part of the time until a drain's deadline that each migration off its host gets. Pure.

Source: R. L. Graham, Bounds on multiprocessing timing anomalies, 1969: list scheduling takes
``ceil(n / m)`` rounds for n equal jobs on m machines.
"""

import math

#: Smallest part in seconds, as of [executor] drain_arrival_seconds: a migration needs some looks
#: before its rates are known.
SHORTEST_SECONDS = 60.0


def compute_time_share(left: float, waiting: int, parallel: int) -> float:
    """Return the seconds of one migration, at least 60 unless fewer remain until the deadline.

    The moves that wait on the host need the time, too: ``parallel`` migrations run at a time, so
    those that wait are ``ceil(waiting / parallel)`` rounds after this one. Each round gets the same
    part, since the seconds of the moves that wait are not known. Past the deadline no time is left.

    :param left: seconds from the begin of the copying until the deadline.
    :param waiting: number of moves off the host that have not begun.
    :param parallel: number of migrations that may leave the host at a time.
    """
    share = left / (1 + math.ceil(waiting / parallel))
    return max(0.0, share, min(SHORTEST_SECONDS, left))
