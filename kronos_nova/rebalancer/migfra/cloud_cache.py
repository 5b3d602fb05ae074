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

"""Looks at the cloud that are shared by requests which come in one go.

Reading a large cloud takes half a minute; a scheduler that moves a job sends a request for each of
its instances. The answers of Nova, Placement and the source are kept for ``[migfra] look_seconds``,
and until any task ends; the database, with all moves under way, is read each time.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import time
from typing import NamedTuple

from oslo_config import cfg

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.rebalancer.clients import collector as collectors
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.sources import base


class CloudGlance(NamedTuple):
    """The cloud as one look shows it.

    ``old``: an earlier look read it. An old look may show that something can be done: executors and
    Placement judge claims, groups and hosts again, and loads are as old as in a long look. It may
    not show that something cannot be done: take a new look then.
    """

    state: cloud_state.CloudState
    old: bool


class CloudCache:
    """Looks at the cloud that may reuse the last reading.

    :param clock: monotonic seconds.
    """

    def __init__(self, conf: cfg.ConfigOpts, store: store_api.Store,
                 collector: collectors.CloudCollector, source: base.MetricsSource,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._conf = conf
        self._store = store
        self._cached_answers = _CachedAnswers(collector, source)
        self._clock = clock
        self._until = clock()
        self._ended: tuple[int, float] | None = None

    def read_cloud(self, policy_set: policies.PolicySet, *, new: bool = False) -> CloudGlance:
        """Return the cloud, read now or kept from an earlier look.

        :param new: read the cloud in any case.
        :raises KronosException: a part cannot be read.
        """
        ended = self._store.tasks.count_newest_ended()
        if new or ended != self._ended or self._clock() >= self._until:
            self._cached_answers.forget()
        old = self._cached_answers.cluster is not None
        cloud = cloud_state.read_cloud(self._conf, policy_set, self._store, self._cached_answers,
                                       self._cached_answers)
        if old and self._store.tasks.count_newest_ended() != ended:
            # A move has ended, but the kept cloud does not show its instance there yet.
            return self.read_cloud(policy_set, new=True)
        if not old:
            self._ended = ended
            self._until = self._clock() + self._conf.migfra.look_seconds
        return CloudGlance(cloud, old)

    def drop_old_reading(self) -> None:
        """Drop a reading that is too old; called while no request is open."""
        if self._clock() >= self._until:
            self._cached_answers.forget()


def list_query_results(samples: model.PolicySamples) -> Iterator[model.QueryResult]:
    """Yield all query results of the samples."""
    for field in dataclasses.fields(samples):
        answer = getattr(samples, field.name)
        if isinstance(answer, model.QueryResult):
            yield answer


class _CachedAnswers(base.MetricsSource):
    """A collector and a source that keep their answers."""

    def __init__(self, collector: collectors.CloudCollector, source: base.MetricsSource) -> None:
        self._collector = collector
        self._source = source
        self.forget()

    def forget(self) -> None:
        self.cluster: model.Cluster | None = None
        self._samples: dict[str, tuple[policies.Policy, model.PolicySamples]] = {}

    def collect_cluster(self, now: float) -> model.Cluster:
        if self.cluster is None:
            self.cluster = self._collector.collect_cluster(now)
        return self.cluster

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        sampled_policy, samples = self._samples.get(policy.name, (None, None))
        if samples is None or sampled_policy != policy:
            samples = self._source.fetch(policy, profile=profile)
            if all(answer.error is None for answer in list_query_results(samples)):
                self._samples[policy.name] = policy, samples
        return samples

    def health(self) -> tuple[model.SourceHealth, str]:
        return self._source.health()
