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

"""One simulated cloud: history's load in other places.

An instance uses as much at a time as it did then in history, on any host. A host's score is
history's, plus the usage of instances that are there and were not, less the usage of instances that
were there and are not; so load that no instance explains stays with the host.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any, Protocol

import numpy as np

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer.backtest import allocations
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import recorded_trace


@dataclasses.dataclass(frozen=True, slots=True)
class CompletedMove:
    """A completed move; hosts and instance by number, ``at`` in seconds."""

    instance: int
    from_host: int
    to_host: int
    at: float


class BootChooser(Protocol):
    """Places where instances boot, instead of history's places."""

    def begin_boots(self, world: 'InstancePlaces', k: int) -> None:
        """Prepare for the instances that boot at time k; the world is as it was before."""

    def choose_host(self, world: 'InstancePlaces', k: int, n: int) -> int:
        """Return the host of instance n, by number; the instances before it are placed already."""


class InstancePlaces:
    """Places of instances now. Mutable.

    :param lag: seconds that metrics need to fully show a move; the rate window of the queries.
    :param boots: places instances that come after the first time; default: history.
    """

    def __init__(self, past: pasts.LoadHistory, lag: float,
                 boots: BootChooser | None = None) -> None:
        self.past = past
        self._lag = lag
        self._boots = boots
        self.place: pasts.Places = np.full(len(past.uuids), pasts.ABSENT, dtype=np.int32)
        self.moved: list[CompletedMove] = []
        self._recent: list[CompletedMove] = []
        self._index = {uuid: n for n, uuid in enumerate(past.uuids)}
        self._host_index = {name: h for h, name in enumerate(past.hosts)}
        self._outside = {u: i for u, i in past.cluster.instances.items() if u not in self._index}
        self._instances: dict[str, model.Instance] = {}
        self._holdings = allocations.ProviderHoldings(past.cluster)

    def find_number(self, uuid: str) -> int:
        return self._index[uuid]

    # Changes.

    def enter_time(self, k: int) -> list[str]:
        """Enter time k: remove instances that go, and place instances that come.

        They come to where they came in history or to where they boot instead.

        :returns: UUIDs of the instances that have gone.
        """
        home = self.past.home[k]
        departing = np.flatnonzero((home < 0) & (self.place >= 0))
        come = np.flatnonzero((home >= 0) & (self.place < 0))
        boots = self._boots if k else None
        if boots is not None and come.size:
            boots.begin_boots(self, k)
        for n in departing:
            self._set_place(int(n), pasts.ABSENT)
        for n in come:
            self._set_place(int(n),
                            int(home[n]) if boots is None else boots.choose_host(self, k, int(n)))
        return [self.past.uuids[n] for n in departing]

    def follow_history(self, k: int) -> None:
        """Follow history to time k, with its own moves."""
        self.enter_time(k)
        home = self.past.home[k]
        for n in np.flatnonzero(home != self.place):
            self._complete_move(int(n), int(home[n]), self.past.window.compute_time(k))

    def complete_move(self, uuid: str, host: str, at: float) -> None:
        """Complete a move."""
        self._complete_move(self._index[uuid], self._host_index[host], at)

    def _complete_move(self, n: int, host: int, at: float) -> None:
        done = CompletedMove(n, int(self.place[n]), host, at)
        self.moved.append(done)
        self._recent.append(done)
        self._set_place(n, host)

    def _set_place(self, n: int, host: int) -> None:
        """Put an instance on a host, or on ABSENT."""
        uuid = self.past.uuids[n]
        known = self.past.cluster.instances[uuid]
        self.place[n] = host
        if host < 0:
            self._holdings.remove_instance(uuid)
            del self._instances[uuid]
        else:
            self._holdings.place_instance(uuid, self.past.hosts[host])
            self._instances[uuid] = dataclasses.replace(
                known, host=self.past.hosts[host], allocations=self._holdings.map_allocations(uuid),
                task_state=None if known.task_state == 'migrating' else known.task_state)

    # The present.

    def compute_true_scores(self, k: int, flights: Sequence[tuple[str, str]] = ()) -> pasts.Floats:
        """Return the true scores at time k, M x H; NaN where history has none.

        :param flights: (instance, destination) of moves under way: they count at both ends.
        """
        return self._apply_change(self.past.score[:, k], self._compute_change(k, [
            (self._index[uuid], self._host_index[host], 1.0) for uuid, host in flights]))

    def compute_shown_change(self, k: int, now: float) -> pasts.Floats:
        """Return the change that metrics show, M x H.

        Of a move that completed t seconds ago they show t / lag.
        """
        self._recent = [m for m in self._recent if now - m.at < self._lag]
        shares = []
        for m in self._recent:
            unseen = 1.0 - (now - m.at) / self._lag
            shares += [(m.instance, m.from_host, unseen), (m.instance, m.to_host, -unseen)]
        return self._compute_change(k, shares)

    @staticmethod
    def _apply_change(values: pasts.Floats, change: pasts.Floats) -> pasts.Floats:
        changed: pasts.Floats = np.where(change == 0.0, values, np.maximum(0.0, values + change))
        return changed

    def _compute_change(self, k: int, shares: Sequence[tuple[int, int, float]]) -> pasts.Floats:
        """Return by how much scores differ from history's: M x H.

        :param shares: (instance, host, part of its usage) to add.
        """
        usage = self.past.compute_true_usage(k)
        home, hosts = self.past.home[k], len(self.past.hosts)
        was, here = home >= 0, self.place >= 0
        out = np.empty((len(usage), hosts))
        for m in range(len(usage)):
            # Without any instance bincount returns whole numbers.
            then = np.bincount(home[was], usage[m, was], hosts).astype(np.float64)
            now = np.bincount(self.place[here], usage[m, here], hosts).astype(np.float64)
            for n, host, share in shares:
                now[host] += share * usage[m, n]
            # Where nothing differs the sums are equal to the last bit, and the
            # capacity need not be known.
            more = now - then
            out[m] = np.divide(more, self.past.capacity[m, k], out=more, where=more != 0.0)
        return out

    def count_residents(self, k: int) -> pasts.Places:
        """Count the instances on each host, also those that the cloud does not have: H."""
        here = self.place >= 0
        ours = np.bincount(self.place[here], minlength=len(self.past.hosts))
        residents: pasts.Places = (ours + self.past.others[k]).astype(np.int32)
        return residents

    def sum_allocated(self, host: int) -> Mapping[str, int]:
        """Return the present allocations of a host's tree, by resource class."""
        return self._holdings.sum_allocated(self.past.hosts[host])

    # What an engine would see.

    def build_cluster(self, now: float, flights: tuple[model.InFlightMove, ...]) -> model.Cluster:
        """Build the present cloud. Services, groups and sizes are the recorded ones."""
        cloud = self.past.cluster
        shown = self._holdings.show_allocations
        hosts = {name: host if host.provider is None else dataclasses.replace(
            host, provider=shown(host.provider), nested=tuple(map(shown, host.nested)))
            for name, host in cloud.hosts.items()}
        return dataclasses.replace(
            cloud, hosts=hosts, sharing={u: shown(p) for u, p in cloud.sharing.items()},
            instances={**self._outside, **self._instances},
            flights=flights, taken_at=now)

    def build_samples(self, policy_set: policies.PolicySet, numbers: Mapping[str, int], k: int,
                      now: float) -> dict[str, model.PolicySamples]:
        """Return the samples that a source would answer, by host name and instance UUID.

        :param numbers: the number of the measure of each policy.
        """
        change = self.compute_shown_change(k, now)
        there = self.place >= 0
        out = {}
        for policy in policy_set.enabled_policies:
            m = numbers[policy.name]

            def clip_ratios(values: pasts.Floats, m: int = m) -> pasts.Floats:
                # A query for ratios shows a host as full at most; values that were no
                # ratio in history itself stay, so that scoring refuses them.
                wrong = (values < 0.0) | (values > 1.0)
                return np.where(wrong, values,
                                np.minimum(1.0, self._apply_change(values, change[m])))

            filled = recorded_trace.list_questions(policy).get('capacity_query')
            profiled = policy.vm_profile_query, policy.vm_profile_fallback
            out[policy.name] = model.PolicySamples(
                policy.name,
                _build_query_result(policy.imbalance_query, self.past.hosts,
                                    clip_ratios(self.past.score[m, k])),
                profile=None if profiled == (None, 'skip') else _build_query_result(
                    policy.vm_profile_query or '', self.past.uuids,
                    np.where(there, self.past.usage[m, k], np.nan)),
                capacity=None if filled is None else _build_query_result(
                    filled[0], self.past.hosts, clip_ratios(self.past.fills[filled][k])),
                host_capacity=None if policy.host_capacity_query is None else _build_query_result(
                    policy.host_capacity_query, self.past.hosts, self.past.capacity[m, k]),
                mean=self._over_hours(policy, 'vm_mean_query', m, k),
                deviation=self._over_hours(policy, 'vm_deviation_query', m, k),
                age=0.0, taken_at=now)
        return out

    def _over_hours(self, policy: policies.Policy, field: str, m: int,
                    k: int) -> model.QueryResult | None:
        """Return the usage over hours, until time k, of instances that are on any host now."""
        question = recorded_trace.list_questions(policy).get(field)
        if question is None:
            return None
        values = self.past.long_term[m, question][k]
        return _build_query_result(question[0], self.past.uuids,
                                   np.where(self.place >= 0, values, np.nan))


def make_runnable_policies(policy_set: policies.PolicySet) -> policies.PolicySet:
    """Return the policies for samples that are mapped and in absolute units."""
    return policy_set.model_copy(update={'policies': tuple(
        p.model_copy(update={'vm_profile_label_type': 'nova_instance_uuid', 'host_regex': None,
                             'vm_profile_unit': 'absolute', 'vm_profile_fallback': 'skip'})
        for p in policy_set.policies)})


def _build_query_result(query: str, keys: Sequence[str], values: Any) -> model.QueryResult:
    known = np.flatnonzero(~np.isnan(values))
    return model.QueryResult(query, model.SourceHealth.HEALTHY, {
        keys[n]: value for n, value in zip(known.tolist(), values[known].tolist(), strict=True)})
