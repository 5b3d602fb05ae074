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


"""Scores from the Prometheus HTTP API (Thanos, Mimir and VictoriaMetrics too).

A result has the complete answer, or says why not; nothing in between. :mod:`prometheus_http` sends
the queries.
"""

from collections.abc import Mapping
import dataclasses
import statistics
import time

from oslo_config import cfg

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.sources import answer
from kronos_nova.sources import base
from kronos_nova.sources import prometheus_http
from kronos_nova.sources import ranges


class PrometheusSource(base.MetricsSource):
    """A source that asks instant queries at the server's own time.

    :param conf: with the group [prometheus].
    :raises ConfigError: the URL or a credential cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf.prometheus
        self._connection = prometheus_http.PrometheusConnection(conf)
        self._shown = self._connection.shown
        self._hide_credentials = self._connection.hide_credentials

    # The contract.

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        """Ask every query of one policy; see the base class.

        ``age`` is the median age, by ``age_query``, of the hosts that are not stale. A host whose
        own samples are older than ``staleness_threshold``, or of unknown age, is left out of
        ``imbalance`` as if it had not answered: one dead exporter must not make the others stale.
        An ``age_query`` that returns one series without ``host_label`` gives the age of all hosts
        together.
        """
        taken_at = time.time()
        imbalance = self.fetch_query(policy.imbalance_query, policy.host_label)
        results: dict[str, model.QueryResult | None] = {}
        for name, query, label in (
                ('profile', policy.vm_profile_query if profile else None,
                 policy.vm_profile_label),
                ('capacity', policy.capacity_query if profile or policy.boot_ceiling is not None
                 else None, policy.host_label),
                ('host_capacity', policy.host_capacity_query if profile else None,
                 policy.host_label),
                ('mean', policy.vm_mean_query if profile else None, policy.vm_profile_label),
                ('deviation', policy.vm_deviation_query if profile else None,
                 policy.vm_profile_label),
                ('dirty_rate', policy.vm_dirty_rate_query if profile else None,
                 policy.vm_profile_label),
                ('ages', policy.age_query, policy.host_label)):
            if query is None:
                results[name] = None
            elif imbalance.health is model.SourceHealth.UNREACHABLE:
                results[name] = model.QueryResult(query, imbalance.health, error=imbalance.error)
            else:
                results[name] = self.fetch_query(query, label, sole=name == 'ages')
        age = None
        if (ages := results.pop('ages')) is not None and imbalance.error is None:
            imbalance, age = apply_ages(imbalance, ages, self._conf.staleness_threshold)
        return model.PolicySamples(
            policy=policy.name, imbalance=imbalance, age=age, taken_at=taken_at, asked_ago=0.0,
            **results)

    def health(self) -> tuple[model.SourceHealth, str]:
        try:
            body = self._fetch_answer('GET', '/api/v1/status/runtimeinfo', None)
        except prometheus_http.ServerUnreachable as e:
            return e.health, str(e)
        except prometheus_http.AttemptFailed:
            # Thanos, Mimir and VictoriaMetrics have no such page.
            result = self.fetch_query('vector(1)', '')
            if result.error is None:
                return model.SourceHealth.HEALTHY, f'{self._shown} answers queries'
            return result.health, result.error
        try:
            data = answer.parse_success_data(body)
        except answer.MalformedAnswer as e:
            return model.SourceHealth.PARTIAL, self._hide_credentials(f'{self._shown}: {e}')
        text = f'{self._shown} answers'
        if isinstance(data, dict) and data.get('reloadConfigSuccess') is False:
            text += ', but its last configuration reload failed'
        return model.SourceHealth.HEALTHY, text

    def close(self) -> None:
        self._connection.close()

    # One query.

    def fetch_query(self, query: str, label: str, sole: bool = False,
                    at: float | None = None) -> model.QueryResult:
        """Ask one instant query; faults of the server raise nothing.

        :param label: the label whose value becomes the key; '' keeps no series and only checks
            that the server answers.
        :param sole: one series without the label is allowed; its key is ''.
        :param at: epoch seconds; None: the server's own time.
        """
        try:
            body = self._fetch_answer('POST', '/api/v1/query', {
                'query': query, **({} if at is None else {'time': f'{at:.3f}'})})
        except prometheus_http.AttemptFailed as e:
            return model.QueryResult(query, e.health, error=str(e))
        try:
            return self._hide_in_result(
                answer.parse_vector(query, label, body, self._conf.max_series, sole))
        except answer.MalformedAnswer as e:
            return model.QueryResult(query, model.SourceHealth.PARTIAL,
                                     error=self._hide_credentials(str(e)))

    def check_syntax(self, query: str) -> model.QueryResult:
        """Evaluate one query at the beginning of time, where no samples are; see the base class.

        Not every server has another way to parse a query.
        """
        return self.fetch_query(query, '', at=0.0)

    # One query over time.

    def query_range(self, query: str, label: str, mark: str, window: ranges.QueryWindow,
                    progress: ranges.Progress = ranges.ignore_progress) -> ranges.RangeResult:
        """Ask one query over time, in parts; see the base class.

        Each part keeps the limits of one query (time, retries, bytes, series). A part that
        exceeds them is halved.
        """
        def fetch_part(part: ranges.QueryWindow) -> bytes:
            return self._fetch_answer('POST', '/api/v1/query_range', {
                'query': query, 'start': f'{part.start:.3f}', 'end': f'{part.end:.3f}',
                'step': f'{part.step:.3f}'})

        collected = ranges.RangeCollector(query, label, mark, window, self._conf.max_series)
        try:
            for part, body in ranges.fetch_parts(
                    window, fetch_part, self._conf.max_body_bytes,
                    (prometheus_http.TooMuch, prometheus_http.AnswerLate,
                     prometheus_http.ServerBusy), progress):
                collected.add_part(answer.parse_matrix(body, self._conf.max_series))
                progress(part.count)
        except (prometheus_http.AttemptFailed, answer.MalformedAnswer) as e:
            return ranges.RangeResult(query, window, error=self._hide_credentials(str(e)))
        except ranges.TooManySeries:
            return ranges.RangeResult(query, window, error=(
                f'it has more than max_series ({self._conf.max_series}) series from first to '
                'last; aggregate the query, raise the option or ask for less time'))
        return collected.build_result()

    def _fetch_answer(self, method: str, path: str, form: dict[str, str] | None) -> bytes:
        """Return the body of a successful answer.

        :raises AttemptFailed: says why, fit for an operator.
        """
        return self._connection.fetch_answer(method, path, form)

    def _hide_in_result(self, result: model.QueryResult) -> model.QueryResult:
        return dataclasses.replace(
            result, error=None if result.error is None else self._hide_credentials(result.error),
            warnings=tuple(map(self._hide_credentials, result.warnings)),
            missing_labels=tuple(map(self._hide_credentials, result.missing_labels)))


def apply_ages(imbalance: model.QueryResult, ages: model.QueryResult,
               staleness: float) -> tuple[model.QueryResult, float | None]:
    """Leave stale hosts out, and compute the age of the others.

    :returns: ``imbalance`` without hosts older than ``staleness`` seconds or of unknown age (an
        error when the ages themselves are not known), and the median age of the hosts that stay.
        When none would stay, all stay and the age is the youngest host's: the policy is stale.
    """
    def make_failure(why: str, health: model.SourceHealth) -> tuple[model.QueryResult, None]:
        return model.QueryResult(imbalance.query, health, error=f'age_query: {why}',
                                 warnings=imbalance.warnings), None

    if ages.error is not None:
        return make_failure(ages.error, ages.health)
    if set(ages.series) == {''}:
        ages = dataclasses.replace(ages, series=dict.fromkeys(imbalance.series, ages.series['']))
    known = {label: max(0.0, age) for label, age in ages.series.items()
             if label in imbalance.series}
    if not known:
        if not imbalance.series:
            return imbalance, None
        return make_failure('it names no host of imbalance_query; both must return the same label',
                            model.SourceHealth.PARTIAL)
    fresh = {label: age for label, age in known.items() if age <= staleness}
    if not fresh:
        youngest = min(known.values())
        return _replace_series(imbalance, imbalance.series, model.SourceHealth.STALE,
                               f'every host\'s samples are older than {staleness:g} s'), youngest
    left_out = sorted(label for label in imbalance.series if label not in fresh)
    if left_out:
        shown = ', '.join(answer.clean_text(label, 64) for label in left_out[:5])
        imbalance = _replace_series(
            imbalance, {k: v for k, v in imbalance.series.items() if k in fresh},
            model.SourceHealth.PARTIAL,
            f'{plurals.count_noun(len(left_out), "host")} with stale samples, or none of known '
            f'age, treated as missing: {shown}')
    return imbalance, statistics.median(fresh.values())


def _replace_series(result: model.QueryResult, series: Mapping[str, float],
                    health: model.SourceHealth,
                    warning: str) -> model.QueryResult:
    return dataclasses.replace(result, series=series, health=health,
                               warnings=(*result.warnings, warning))
