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


"""The base class of the optional weighers: they are off until a multiplier is set."""

import abc
import math
from typing import Any, ClassVar

from nova.scheduler import utils
from nova.scheduler import weights

from kronos_nova.scheduler import guard
from kronos_nova.scheduler import runtime

_BEFORE = '_kronos_instances_before'


class OptionalWeigher(weights.BaseHostWeigher, abc.ABC):
    """A cost in [0, 1] that counts against a host; 0 is no opinion.

    The multiplier is 0 by default. While neither the option nor an aggregate of the
    request's hosts sets another one, every host weighs exactly 0, and the weigher asks no
    service and starts no thread. With ``minval`` 0 and ``maxval`` 1 Nova's normalisation
    changes nothing, so that costs mean the same in every request and 0 stays 0 under
    multipliers of both signs.
    """

    minval = 0
    maxval = 1

    #: Name of the multiplier, in [filter_scheduler] and in aggregates' metadata.
    OPTION: ClassVar[str]

    def __init__(self) -> None:
        runtime.check_options()

    @abc.abstractmethod
    def costs(self, hosts: list[Any], spec: Any) -> list[float]:
        """Return each host's cost, in [0, 1]; without any I/O.

        :param hosts: HostState objects.
        :param spec: the RequestSpec.
        """

    @guard.multiply_by_0_on_error
    def weight_multiplier(self, host_state: Any) -> float:
        """Return the option, or the metadata of the aggregate; NaN and infinity become 0."""
        value = float(utils.get_weight_multiplier(host_state, self.OPTION,
                                                  self._read_option_value()))
        return value if math.isfinite(value) else 0.0

    @guard.weigh_nothing_on_error
    def weigh_objects(self, weighed_obj_list: list[Any], weight_properties: Any) -> list[float]:
        hosts = [weighed.obj for weighed in weighed_obj_list]
        if not self._is_on(hosts):
            return [0.0] * len(hosts)
        # To five places: Nova formats each weight in every request.
        return [0.0 - round(cost, 5) for cost in self.costs(hosts, weight_properties)]

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        """Return 0 (no opinion) to callers that weigh one host without any other."""
        return 0.0

    def _read_option_value(self) -> float:
        return float(runtime.CONF.filter_scheduler[self.OPTION])

    def _is_on(self, hosts: list[Any]) -> bool:
        if self._read_option_value():
            return True
        aggregates = {id(a): a for host in hosts for a in host.aggregates}
        return any(self.OPTION in a.metadata for a in aggregates.values())


def count_request_siblings(host: Any) -> int:
    """Return how many instances this request has already put on the host.

    HostState.instances does not contain these instances, but num_instances counts them; and
    Nova makes new HostState objects for each request.
    """
    now = int(host.num_instances)
    before: int = host.__dict__.setdefault(_BEFORE, now)
    return max(0, now - before)
