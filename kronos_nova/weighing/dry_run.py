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

"""The decision of nova-scheduler, made by its own code and not carried out.

The manager is Nova's: it asks Placement, makes host states, filters, weighs, chooses,
consumes and repeats this for the next instance. This module replaces the parts that write
(it counts claims against Placement's answer) and those that send notifications, and records
the results of the filters and weighers.
"""

from collections.abc import Iterable
import dataclasses
from typing import Any

from keystoneauth1 import exceptions as ks_exc
from nova import exception as nova_exception
from nova import weights as base_weights
from nova.scheduler import host_manager
from nova.scheduler import manager
from nova.scheduler.client import report
import oslo_messaging as messaging

from kronos_nova import exception
from kronos_nova.weighing import reasons


@dataclasses.dataclass(slots=True)
class FilterPass:
    """Results of the filters for the hosts of one instance.

    ``refused``: (filter, why) by id of the HostState; ``considered``: the hosts that
    reached the first filter.
    """

    considered: list[Any]
    refused: dict[int, tuple[str, str]]


@dataclasses.dataclass(slots=True)
class WeigherOpinion:
    """Weights that one weigher gave the hosts, in their order."""

    weigher: Any
    raw: list[float]
    normalised: list[float]
    multipliers: list[float] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class WeighPass:
    """The hosts of one instance as they were weighed, and as they were ranked.

    ``hollow``: ids of hosts whose candidates the filters have all removed, which Nova
    skips.
    """

    hosts: list[Any]
    opinions: list[WeigherOpinion] = dataclasses.field(default_factory=list)
    ranked: list[tuple[Any, float]] = dataclasses.field(default_factory=list)
    hollow: set[int] = dataclasses.field(default_factory=set)


class ClaimsInMemory:
    """A stand-in for Placement's client: reads through it, claims in memory."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.requests: list[Any] = []
        self.summaries: dict[str, Any] = {}

    def get_allocation_candidates(self, ctxt: Any, resources: Any) -> Any:
        """Return Placement's answer.

        :raises WeighError: Placement gave no answer.
        """
        answer = self._client.get_allocation_candidates(ctxt, resources)
        if answer is None or answer[0] is None:
            raise exception.WeighError(
                what='Placement', problem='it gave no allocation candidates; the line of '
                'nova.scheduler.client.report above says why',
                remedy='Correct [placement] in nova.conf, or have Placement running')
        self.requests.append(resources)
        for uuid, summary in answer[1].items():
            self.summaries.setdefault(uuid, {
                name: dict(amounts) for name, amounts in summary['resources'].items()})
        return answer

    def claim_resources(self, ctxt: Any, consumer_uuid: str, alloc_request: Any,
                        *args: Any, **kwargs: Any) -> bool:
        """Claim in memory; return whether the providers have enough left."""
        wanted = [(self.summaries[uuid][name], amount)
                  for uuid, allocation in alloc_request['allocations'].items()
                  for name, amount in allocation['resources'].items()]
        if any(has['used'] + amount > has['capacity'] for has, amount in wanted):
            return False
        for has, amount in wanted:
            has['used'] += amount
        return True


class QuietHostManager(host_manager.HostManager):
    """Nova's HostManager, without the background thread that reads every instance.

    It reads each host's instances when it needs them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.filter_handler: Any = _RecordingFilters(self.filter_handler)
        self.weight_handler: Any = _RecordingWeights(self.weight_handler)

    def _init_instance_info(self, computes_by_cell: Any = None) -> None:
        self._instance_info: dict[str, Any] = {}

    @property
    def filter_passes(self) -> list[FilterPass]:
        passes: list[FilterPass] = self.filter_handler.passes
        return passes

    @property
    def weigh_passes(self) -> list[WeighPass]:
        passes: list[WeighPass] = self.weight_handler.passes
        return passes


class RehearsalManager(manager.SchedulerManager):
    """A SchedulerManager that chooses hosts as nova-scheduler does, and stops there.

    ``host_manager`` has recorded the filters and weighers; ``claims`` holds Placement's
    answer, and ``placement`` its client; ``chosen``: the HostState objects, one for each
    instance that found one.
    """

    def __init__(self) -> None:
        # No part of a service: no RPC, no notifier, no periodic tasks.
        self.host_manager = QuietHostManager()
        self.placement = _make_placement_client()
        self.claims = ClaimsInMemory(self.placement)
        self.chosen: list[Any] = []

    @property
    def placement_client(self) -> Any:
        return self.claims

    def run(self, ctxt: Any, spec: Any, uuids: list[str]) -> str | None:
        """Choose a host for each instance.

        :returns: the reason if Nova finds no valid host at all, or None.
        """
        try:
            self.select_destinations(ctxt, spec_obj=spec, instance_uuids=uuids,
                                     return_objects=True)
        except messaging.ExpectedException as e:
            error = e.exc_info[1]
            if not isinstance(error, nova_exception.NoValidHost):
                raise error from e
            return ' '.join(str(error).split())
        return None

    def _select_destinations(self, *args: Any, **kwargs: Any) -> Any:
        # Nova's sends notifications around this.
        return self._schedule(*args, **kwargs)

    def _ensure_sufficient_hosts(self, context: Any, hosts: list[Any], required_count: int,
                                 claimed_uuids: Any = None) -> None:
        # Nova's gives claims back and fails when a host is missing.
        self.chosen = list(hosts)


def _make_placement_client() -> Any:
    try:
        return report.report_client_singleton()
    except (ks_exc.ClientException, nova_exception.NovaException) as e:
        raise exception.WeighError(
            what='Placement', problem=f'no client can be made: {" ".join(str(e).split())}',
            remedy='Correct [placement] in nova.conf, or have Keystone running') from e


class _RecordingFilters:
    """Nova's filter handler; records the filters of the first instance."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self.passes: list[FilterPass] = []

    def get_filtered_objects(self, filters: Iterable[Any], objs: Iterable[Any], spec_obj: Any,
                             index: int = 0) -> Any:
        hosts = list(objs)
        if self.passes:
            # Later instances: the report shows only their hosts.
            return self._handler.get_filtered_objects(filters, hosts, spec_obj, index)
        filter_pass = FilterPass(hosts, {})
        self.passes.append(filter_pass)
        return self._handler.get_filtered_objects(
            [_make_named_class(_WatchedFilter, f)(f, filter_pass) for f in filters], hosts,
            spec_obj, index)


class _WatchedFilter:

    def __init__(self, inner: Any, filter_pass: FilterPass) -> None:
        self._inner = inner
        self._filter_pass = filter_pass

    def run_filter_for_index(self, index: int) -> bool:
        return bool(self._inner.run_filter_for_index(index))

    def filter_all(self, hosts: list[Any], spec: Any) -> list[Any] | None:
        passed, why = reasons.apply_filter(self._inner, hosts, spec)
        passed_ids = {id(host) for host in passed or ()}
        for host in hosts:
            if id(host) not in passed_ids:
                self._filter_pass.refused[id(host)] = (type(self._inner).__name__,
                                                       why.get(id(host), ''))
        return passed


class _RecordingWeights:
    """Nova's weight handler; records the weighers of the first instance."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self.passes: list[WeighPass] = []

    def get_weighed_objects(self, weighers: Iterable[Any], obj_list: Iterable[Any],
                            weighing_properties: Any) -> Any:
        hosts = list(obj_list)
        if self.passes:
            return self._handler.get_weighed_objects(weighers, hosts, weighing_properties)
        weigh_pass = WeighPass(hosts, hollow={id(h) for h in hosts if not h.allocation_candidates})
        self.passes.append(weigh_pass)
        weighed_hosts = self._handler.get_weighed_objects(
            [_make_named_class(_WatchedWeigher, w)(w, weigh_pass) for w in weighers], hosts,
            weighing_properties)
        weigh_pass.ranked = [(weighed.obj, float(weighed.weight)) for weighed in weighed_hosts]
        return weighed_hosts


class _WatchedWeigher:

    def __init__(self, inner: Any, weigh_pass: WeighPass) -> None:
        self._inner = inner
        self._weigh_pass = weigh_pass

    @property
    def minval(self) -> Any:
        return self._inner.minval

    @property
    def maxval(self) -> Any:
        return self._inner.maxval

    def weigh_objects(self, weighed: list[Any], properties: Any) -> list[float]:
        raw = list(self._inner.weigh_objects(weighed, properties))
        # Read the bounds afterwards, as Nova's handler does.
        self._weigh_pass.opinions.append(WeigherOpinion(
            self._inner, raw, list(base_weights.normalize(
                raw, minval=self._inner.minval, maxval=self._inner.maxval))))
        return raw

    def weight_multiplier(self, host: Any) -> Any:
        multiplier = self._inner.weight_multiplier(host)
        self._weigh_pass.opinions[-1].multipliers.append(float(multiplier))
        return multiplier


def _make_named_class(kind: type, inner: Any) -> type:
    """Make a subclass with the name of the recorded class, which Nova writes into its log."""
    return type(type(inner).__name__, (kind,), {})
