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


"""A weigher that prefers hosts with headroom, by the same scores as the rebalancer."""

from collections.abc import Callable
import math
import typing
from typing import Any

from nova.scheduler import utils
from nova.scheduler import weights
from oslo_log import log as logging

from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import guard
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import runtime
from kronos_nova.scheduler import score_cache
from kronos_nova.scheduler import tie_breaking
from kronos_nova.scheduler import weight_cache
from kronos_nova.weighers import normalisation

LOG = logging.getLogger(__name__)

OPTION = 'kronos_weight_multiplier'


class KronosWeigher(weights.BaseHostWeigher):
    """A weight of headroom - 0.5, in [-0.5, 0.5].

    A host without a score gets the mean of the scored hosts, or the value that
    ``unknown_hosts`` sets.

    Headroom is 1 - the load that the samples show, less the load that Nova has allocated
    since. With ``minval`` 0 and ``maxval`` 1 Nova's normalisation changes nothing: a
    difference of 1 % stays 1 %, and a weight of 0 (no opinion) stays exactly 0 under every
    multiplier, whichever aggregate sets it.
    """

    minval = 0
    maxval = 1

    def __init__(self) -> None:
        runtime.check_options()
        # Multipliers of one request, by the aggregates that a host is in. An
        # aggregate equals itself only: a new object of the same is looked up.
        self._multipliers: dict[tuple[Any, ...], float] = {}

    @guard.multiply_by_0_on_error
    def weight_multiplier(self, host_state: Any) -> float:
        """Return the option, or the metadata of the aggregate; NaN and infinity become 0."""
        try:
            return self._multipliers[tuple(host_state.aggregates)]
        except KeyError:
            return self._read_multiplier(host_state)

    def _read_multiplier(self, host_state: Any) -> float:
        aggregates = tuple(host_state.aggregates)
        option = runtime.CONF.filter_scheduler.kronos_weight_multiplier
        value = float(utils.get_weight_multiplier(host_state, OPTION, option))
        if not math.isfinite(value):
            value = 0.0
        self._multipliers[aggregates] = value
        runtime.get_runtime().scores.record_multiplier(host_state, value, tuple(
            sorted(a.name for a in aggregates if OPTION in a.metadata)))
        return value

    @guard.weigh_nothing_on_error
    def weigh_objects(self, weighed_obj_list: list[Any], weight_properties: Any) -> list[float]:
        hosts = [weighed.obj for weighed in weighed_obj_list]
        # Nova asks for every host's multiplier right afterwards. Another thread's
        # request may fill the new dict first: its values are as good.
        self._multipliers = {}
        door = runtime.get_runtime()
        number = ranking_of(weight_properties, len(hosts))
        unknown = None if door.conf.kronos.unknown_hosts == 'mean' else self._compute_worst_weight
        raw_weights = compute_group_weights(door.list_scored_groups(hosts), hosts,
                                            choose_weigh_function(weight_properties), number,
                                            unknown)
        if LOG.isEnabledFor(logging.DEBUG):
            log_raw_weights(hosts, raw_weights, weight_properties)
        return raw_weights

    def _compute_worst_weight(self, host_state: Any) -> float:
        """Return the raw weight that Nova likes least, by the sign of the multiplier."""
        return math.copysign(score_cache.NEUTRAL, -self.weight_multiplier(host_state))

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        """Return 0 (no opinion) to callers that weigh one host without any other."""
        return 0.0


def ranking_of(spec: Any, hosts: int) -> int | None:
    """Return the number of the ranking that a request uses; None: the plain ranking.

    Instances of one request see each other. A request with at least as many instances as
    hosts fills these evenly, independently of concurrent requests.
    """
    if spec is not None and 'num_instances' in spec and spec.num_instances >= max(2, hosts):
        return None
    return tie_breaking.ranking_of(str(getattr(spec, 'instance_uuid', '')))


#: Returns the weight of a host without a score when others have one; None: their mean.
Unknown = Callable[[Any], float] | None


#: Raw weights of a group, of one of its rankings.
Weigh = Callable[[score_cache.ScoredHosts, int | None, Unknown], list[float]]


def compute_group_weights(groups: list[score_cache.ScoredHosts], hosts: list[Any], kind: Weigh,
                          ranking: int | None = 0,
                          unknown: Unknown = None) -> list[float]:
    """Return the raw weights of all groups, in the order of the request's hosts."""
    if len(groups) == 1:
        return kind(groups[0], ranking, unknown)
    weight_by_id = {id(host): weight for group in groups for host, weight in zip(
        group.hosts, kind(group, ranking, unknown), strict=True)}
    return [weight_by_id[id(host)] for host in hosts]


def log_raw_weights(hosts: list[Any], weights: list[float], spec: Any) -> None:
    """Log one debug line with the range of the request's raw weights."""
    if not hosts:
        return
    most = max(weights)
    LOG.debug('kronos: instance %s: raw weights (hosts: %d) are %g to %g, the largest is of %s',
              getattr(spec, 'instance_uuid', None), len(hosts), min(weights), most,
              hosts[weights.index(most)].host)


def compute_raw_weights(group: score_cache.ScoredHosts, ranking: int | None = 0,
                        unknown: Unknown = None) -> list[float]:
    """Return the raw weights of the hosts that one policy file scores, in their order.

    :param ranking: number of the snapshot's ranking, if it has several.
    """
    if group.snapshot is None:
        return [0.0] * len(group.hosts)
    return _fill_missing_weights(group.hosts, _compute_current_weights(group.hosts, group.snapshot,
                                                                       ranking), unknown)


def _compute_current_weights(hosts: list[Any], snapshot: policy_scores.ScoreReading,
                             ranking: int | None) -> list[float | None]:
    loads, memory = snapshot.choose_ranking(ranking)
    return memory.weigh_hosts(hosts, loads)


def _fill_missing_weights(hosts: list[Any], weights: list[float | None],
                          unknown: Unknown) -> list[float]:
    """Replace the missing weights of hosts without a score."""
    if None not in weights:
        return typing.cast(list[float], weights)
    known = [weight for weight in weights if weight is not None]
    if not known:
        return [0.0] * len(hosts)
    if unknown is not None:
        return [unknown(host) if weight is None else weight
                for host, weight in zip(hosts, weights, strict=True)]
    mean = round(math.fsum(known) / len(known), 5)
    return [mean if weight is None else weight for weight in weights]


def choose_weigh_function(spec: Any) -> Weigh:
    """Return the function that weighs a group under the options of [kronos].

    This is :func:`compute_raw_weights`, unless the options ask for normalisation or for the
    request's own load, which take more time.

    :param spec: the RequestSpec.
    """
    kronos = runtime.CONF.kronos
    if kronos.normalisation == normalisation.FIXED and not kronos.weigh_request:
        return compute_raw_weights

    def compute_scaled_weights(group: score_cache.ScoredHosts, ranking: int | None,
                               unknown: Unknown) -> list[float]:
        hosts, snapshot = group.hosts, group.snapshot
        if snapshot is None:
            return [0.0] * len(hosts)
        weights = (_compute_expected_weights(hosts, snapshot, spec, ranking) if kronos.weigh_request
                   else _compute_current_weights(hosts, snapshot, ranking))
        # Normalise the known weights only: a substitute for an unknown host
        # does not show how far the known hosts are apart.
        known = iter(normalisation.normalise_weights(
            [weight for weight in weights if weight is not None],
            kronos.normalisation, kronos.normalisation_scale))
        return _fill_missing_weights(hosts, [None if weight is None else next(known)
                                             for weight in weights],
                                     unknown)

    return compute_scaled_weights


def compute_request_weights(group: score_cache.ScoredHosts, spec: Any, ranking: int | None = 0,
                            unknown: Unknown = None) -> list[float]:
    """Return raw weights as :func:`compute_raw_weights`, with the request's expected load.

    This load is the usual load of the flavor, else the request's vCPUs (or MiB) at the mean
    use. Of two hosts that are equally full the larger one then has more headroom; hosts of
    one size keep their order.
    """
    if group.snapshot is None:
        return [0.0] * len(group.hosts)
    return _fill_missing_weights(
        group.hosts, _compute_expected_weights(group.hosts, group.snapshot, spec, ranking), unknown)


def _compute_expected_weights(hosts: list[Any], snapshot: policy_scores.ScoreReading, spec: Any,
                              ranking: int | None) -> list[float | None]:
    loads, _ = snapshot.choose_ranking(ranking)
    more = snapshot.extras.sum_corrections(spec.vcpus, spec.memory_mb)
    return weight_cache.compute_raw_weights(depletion.project_loads(
        hosts, loads, spec.vcpus + more[0], spec.memory_mb + more[1]))
