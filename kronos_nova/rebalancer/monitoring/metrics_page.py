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

"""The page /metrics: all metrics in the format of Prometheus."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import itertools
from typing import Any

import prometheus_client
from prometheus_client import core
from prometheus_client import exposition
from prometheus_client import registry

from kronos_nova import version
from kronos_nova.feed import worker_records
from kronos_nova.rebalancer.monitoring import bounded_query
from kronos_nova.rebalancer.monitoring import catalogue
from kronos_nova.rebalancer.monitoring import health as healths
from kronos_nova.rebalancer.monitoring import samples
from kronos_nova.rebalancer.monitoring import stats as tallies
from kronos_nova.rebalancer.store import store_stats as censuses


class MetricsCollector(registry.Collector):
    """A collector without state: each scrape reads the sources."""

    def __init__(self, sources: Iterable[Callable[[], Iterable[samples.Sample]]]) -> None:
        self._sources = tuple(sources)

    def collect(self) -> Iterator[core.Metric]:
        families: dict[str, core.Metric] = {}
        for name, key, value in itertools.chain.from_iterable(ask() for ask in self._sources):
            if name not in families:
                families[name] = _build_family(catalogue.METRICS[name])
            _add(families[name], key, value)
        yield from (families[name] for name in catalogue.METRICS if name in families)


def _build_family(metric: catalogue.MetricEntry) -> core.Metric:
    kinds = {catalogue.MetricKind.GAUGE: core.GaugeMetricFamily,
             catalogue.MetricKind.COUNTER: core.CounterMetricFamily,
             catalogue.MetricKind.HISTOGRAM: core.HistogramMetricFamily}
    family: core.Metric = kinds[metric.kind](metric.name, metric.text, labels=metric.labels)
    return family


def _add(family: core.Metric, key: tuple[str, ...],
         value: float | tallies.ValueDistribution) -> None:
    if isinstance(value, tallies.ValueDistribution):
        assert isinstance(family, core.HistogramMetricFamily)
        ends = (*map(str, value.bounds), '+Inf')
        family.add_metric(key, list(zip(ends, itertools.accumulate(value.counts), strict=True)),
                          value.total)
    else:
        assert isinstance(family, core.GaugeMetricFamily | core.CounterMetricFamily)
        family.add_metric(key, value)


class MetricsPage:
    """The page of one daemon, with a registry of its own.

    :param census: queries the database.
    :param renew: makes the next query use other connections.
    :param driver: the driver that carries tasks out.
    :param host_scores: also each host's score under each policy.
    :param workers: reads the records of nova-scheduler's workers; None without a channel.
    """

    def __init__(self, health: healths.DaemonHealth, tally: tallies.DaemonTally,
                 census: Callable[[], censuses.RowCensus], *, driver: str = '',
                 interval: float | None = None, host_scores: bool = True,
                 renew: Callable[[], object] = lambda: None,
                 workers: worker_records.RecordReader | None = None) -> None:
        census_query = bounded_query.BoundedQuery(census, renew=renew)
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        questions: list[bounded_query.BoundedQuery[Any]] = [census_query]

        def begin_queries() -> Iterable[samples.Sample]:
            # All at once: a scrape waits for the slowest alone.
            for question in questions:
                question.begin_query()
            return ()

        sources: list[Callable[[], Iterable[samples.Sample]]] = [
            begin_queries,
            lambda: samples.list_health_samples(health, version.read_release()),
            lambda: samples.of_interval(interval),
            lambda: samples.list_tally_samples(tally.copy_tally(), driver, host_scores),
            lambda: samples.list_database_samples(census_query.read_answer())]
        if workers is not None:
            read = bounded_query.BoundedQuery(workers.read, renew=workers.renew_connection,
                                              subject='the cache of [kronos_channel]')
            questions.append(read)
            sources.append(lambda: samples.list_worker_samples(read.read_answer()))
        self.registry.register(MetricsCollector(sources))

    def __call__(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and the text.

        :param accept: the header of the request.
        """
        encoder, kind = exposition.choose_encoder(accept)
        return kind, encoder(self.registry)
