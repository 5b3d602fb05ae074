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


"""Prefers hosts with headroom, by the same scores as the rebalancer."""

import math
from typing import Any

from nova.scheduler import utils
from nova.scheduler import weights

from kronos_nova import boot
from kronos_nova import scoreboard

OPTION = 'kronos_weight_multiplier'


class KronosWeigher(weights.BaseHostWeigher):
    """headroom - 0.5, in [-0.5, 0.5]; an unknown host gets the mean of the known.

    With ``minval`` 0 and ``maxval`` 1 Nova's normalisation changes nothing,
    so that a difference of 1 % stays 1 %, and no opinion is exactly 0 under
    every multiplier, whichever aggregate sets it.
    """

    minval = 0
    maxval = 1

    def weight_multiplier(self, host_state: Any) -> float:
        """The option, or the metadata of the aggregate; NaN and infinity are 0."""
        default = boot.CONF.filter_scheduler.kronos_weight_multiplier
        try:
            value = float(utils.get_weight_multiplier(host_state, OPTION, default))
        except Exception as e:
            boot.door().faults.swallow(type(self).__name__, e)
            return 0.0
        return value if math.isfinite(value) else 0.0

    def weigh_objects(self, weighed_obj_list: Any, weight_properties: Any) -> list[float]:
        hosts = [weighed.obj for weighed in weighed_obj_list]
        try:
            snapshot = boot.door().look(hosts)
            return relative([h.host for h in hosts], snapshot)
        except Exception as e:
            boot.door().faults.swallow(type(self).__name__, e)
            return [0.0] * len(hosts)

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        """For callers that weigh one host: no other host, no opinion."""
        return 0.0


def relative(hosts: list[str], snapshot: scoreboard.Snapshot | None) -> list[float]:
    """Raw weights of the hosts of a request, in their order."""
    if snapshot is None:
        return [0.0] * len(hosts)
    headroom = [snapshot.headroom.get(host) for host in hosts]
    known = [value for value in headroom if value is not None]
    if not known:
        return [0.0] * len(hosts)
    mean = math.fsum(known) / len(known)
    return [(mean if value is None else value) - scoreboard.NEUTRAL for value in headroom]
