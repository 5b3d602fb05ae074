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

from collections.abc import Callable
import math
import typing
from typing import Any

from nova.scheduler import utils
from nova.scheduler import weights

from kronos_nova import boot
from kronos_nova import depletion
from kronos_nova import scoreboard
from kronos_nova.weighers import normalisation

OPTION = 'kronos_weight_multiplier'
PLACES = 100000


class KronosWeigher(weights.BaseHostWeigher):
    """headroom - 0.5, in [-0.5, 0.5]; an unknown host gets the mean of the known.

    Headroom is what the samples show less what has been allocated since. With
    ``minval`` 0 and ``maxval`` 1 Nova's normalisation changes nothing, so
    that a difference of 1 % stays 1 %, and no opinion is exactly 0 under
    every multiplier, whichever aggregate sets it.
    """

    minval = 0
    maxval = 1

    def __init__(self) -> None:
        self._multipliers = _Multipliers()

    def weight_multiplier(self, host_state: Any) -> float:
        """The option, or the metadata of the aggregate; NaN and infinity are 0."""
        try:
            known = self._multipliers.known.get(tuple(map(id, host_state.aggregates)))
            return known[1] if known is not None else self._multipliers.learn(host_state)
        except Exception as e:
            boot.door().faults.swallow(type(self).__name__, e)
            return 0.0

    def weigh_objects(self, weighed_obj_list: Any, weight_properties: Any) -> list[float]:
        hosts = [weighed.obj for weighed in weighed_obj_list]
        try:
            # Nova asks for every host's multiplier right after; what another
            # thread's request has put here by then is as good.
            self._multipliers = _Multipliers()
            groups = boot.door().look(hosts)
            weigh = chosen(weight_properties)
            if len(groups) == 1:
                return weigh(groups[0])
            found = {id(host): weight for group in groups
                     for host, weight in zip(group.hosts, weigh(group), strict=True)}
            return [found[id(host)] for host in hosts]
        except Exception as e:
            boot.door().faults.swallow(type(self).__name__, e)
            return [0.0] * len(hosts)

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        """For callers that weigh one host: no other host, no opinion."""
        return 0.0


class _Multipliers:
    """Multipliers of one request: each set of aggregates is looked up once.

    ``known``: by the ids of the aggregates, which are kept beside it so that
    no other object gets their ids.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], tuple[Any, float]] = {}

    def learn(self, host_state: Any) -> float:
        aggregates = list(host_state.aggregates)
        option = boot.CONF.filter_scheduler.kronos_weight_multiplier
        value = float(utils.get_weight_multiplier(host_state, OPTION, option))
        if not math.isfinite(value):
            value = 0.0
        self.known[tuple(map(id, aggregates))] = (aggregates, value)
        boot.door().scores.hear(host_state, value, tuple(
            sorted(a.name for a in aggregates if OPTION in a.metadata)))
        return value


def relative(group: scoreboard.Group) -> list[float]:
    """Raw weights of the hosts that one policy file scores, in their order.

    To five places: nearer hosts are as good, and Nova formats each weight in
    every request, for which a float of 17 digits takes longer than all of
    this.
    """
    hosts, snapshot = group.hosts, group.snapshot
    if snapshot is None:
        return [0.0] * len(hosts)
    loads = depletion.projected(hosts, snapshot.loads)
    weights = [None if load is None
               # int() cuts off towards 0, so that it gets a positive number.
               else (int(PLACES * 1.5 - load * PLACES + 0.5) - PLACES) / PLACES
               if 0.0 <= load <= 1.0 else math.copysign(scoreboard.NEUTRAL, -load)
               for load in loads]
    if None not in weights:
        return typing.cast(list[float], weights)
    known = [weight for weight in weights if weight is not None]
    mean = round(math.fsum(known) / len(known), 5) if known else 0.0
    return [mean if weight is None else weight for weight in weights]


def chosen(spec: Any) -> Callable[[scoreboard.Group], list[float]]:
    """What [kronos] makes of a group's hosts: :func:`relative`, or what costs more.

    :param spec: the RequestSpec.
    """
    kronos = boot.CONF.kronos
    if kronos.normalisation == normalisation.FIXED and not kronos.weigh_request:
        return relative

    def scaled(group: scoreboard.Group) -> list[float]:
        if group.snapshot is None:
            return [0.0] * len(group.hosts)
        weights = expected(group, spec) if kronos.weigh_request else relative(group)
        return normalisation.normalised(
            weights, kronos.normalisation, kronos.normalisation_scale)

    return scaled


def expected(group: scoreboard.Group, spec: Any) -> list[float]:
    """Like :func:`relative`, with what the request is expected to add itself.

    Of two hosts that are equally full the larger one has more headroom then;
    hosts of one size keep their order.
    """
    hosts, snapshot = group.hosts, group.snapshot
    if snapshot is None:
        return [0.0] * len(hosts)
    loads = depletion.projected(hosts, snapshot.loads, spec.vcpus, spec.memory_mb)
    known = [load for load in loads if load is not None]
    mean = math.fsum(min(1.0, max(0.0, load)) for load in known) / len(known) if known else 0.5
    return [round(0.5 - min(1.0, max(0.0, mean if load is None else load)), 5) for load in loads]
