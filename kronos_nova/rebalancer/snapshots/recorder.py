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


"""Recorder of everything that a cycle would read, with the reasons of failures."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Protocol

from kronos_nova import exception
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.constraints import metric_lag
from kronos_nova.rebalancer.snapshots import writer
from kronos_nova.sources import base


class ClusterCollector(Protocol):
    def collect_cluster(self, now: float) -> model.Cluster:
        """Return the whole cluster.

        :raises CollectError: nothing partial is ever returned.
        """


class HistoryReader(Protocol):
    def read_history(self, scope: str, now: float, remembered: float) -> model.MoveHistory:
        """Return the history of a scope.

        :raises StoreError: the database cannot be used.
        """

    def read_contract_records(self, cluster: model.Cluster,
                              now: float) -> model.ContractRecords:
        """Return the moves and the notices that contracts of instances count.

        :raises StoreError: the database cannot be used.
        """


class MoveReader(Protocol):
    def list_in_flight_moves(self) -> tuple[model.InFlightMove, ...]:
        """Return the moves that may be under way.

        :raises StoreError: the database cannot be used.
        """


class HistoryStore(Protocol):
    @property
    def history(self) -> HistoryReader:
        """The histories of scopes."""

    @property
    def tasks(self) -> MoveReader:
        """The moves that may be under way."""


def read_recording(collector: ClusterCollector, source: base.MetricsSource,
                   store: HistoryStore | str, policy_set: policies.PolicySet, scopes: Sequence[str],
                   clock: Callable[[], float]) -> writer.SnapshotContent:
    """Read the content of a snapshot; a part that cannot be read is a text with the reason.

    :param store: the store, or the reason why it is missing.
    :param clock: seconds since the epoch.
    """
    cluster: model.Cluster | str
    live = () if isinstance(store, str) else _read_flights(store)
    try:
        cluster = collector.collect_cluster(clock())
    except exception.CollectError as e:
        cluster = str(e)
    samples = {p.name: source.fetch(p) for p in policy_set.enabled_policies}
    now = clock()
    histories: dict[str, model.MoveHistory] | str
    if isinstance(store, str):
        histories = store
    else:
        try:
            remembered = metric_lag.compute_retention(policy_set.lookback_seconds)
            histories = {scope: store.history.read_history(scope, now, remembered)
                         for scope in scopes}
            if isinstance(cluster, model.Cluster):
                records = store.history.read_contract_records(cluster, now)
                histories = {scope: dataclasses.replace(history, **records._asdict())
                             for scope, history in histories.items()}
                flights = store.tasks.list_in_flight_moves()
                under_way = {f.instance_uuid for f in flights}
                # A move that ended while Nova was read may have been seen at either end.
                ended = tuple(f for f in live if f.instance_uuid not in under_way)
                cluster = dataclasses.replace(
                    cluster, flights=(*cluster.flights, *flights, *ended))
        except exception.StoreError as e:
            histories = str(e)
    return writer.SnapshotContent(now=now, scopes=tuple(scopes), policies=policy_set,
                                  samples=samples,
                                  cluster=cluster, histories=histories)


def _read_flights(store: HistoryStore) -> tuple[model.InFlightMove, ...]:
    """Return the store's flights, or none if they cannot be read: the next reading reports why."""
    try:
        return store.tasks.list_in_flight_moves()
    except exception.StoreError:
        return ()


def list_unknown_parts(recording: writer.SnapshotContent) -> list[str]:
    """Return the parts that were recorded as unknown, a sentence each."""
    out = []
    if isinstance(recording.cluster, str):
        out.append(f'Nova and Placement: {recording.cluster}')
    if isinstance(recording.histories, str):
        out.append(f'Cooldowns and quarantine: {recording.histories}')
    for name, samples in recording.samples.items():
        for field, result in (('imbalance_query', samples.imbalance),
                              ('vm_profile_query', samples.profile),
                              ('capacity_query', samples.capacity),
                              ('host_capacity_query', samples.host_capacity),
                              ('vm_mean_query', samples.mean),
                              ('vm_deviation_query', samples.deviation),
                              ('vm_dirty_rate_query', samples.dirty_rate)):
            if result is not None and result.error is not None:
                out.append(f'Policy {name}, {field}: {result.error}')
    return out
