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

"""The rates at which instances of drains wrote memory in the last day, from the source of metrics.

:mod:`kronos_nova.rebalancer.planning.quiet_hours` decides by them. A day has each hour once, also
for an instance that is a day old, and is seven times cheaper to ask for than a week.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import re
import time

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import labels
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.conf import engine as engine_conf
from kronos_nova.conf import freeze
from kronos_nova.model import maintenance_windows
from kronos_nova.rebalancer.operations import cloud_state
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.rebalancer.simulation import migration_costs
from kronos_nova.rebalancer.snapshots import writer
from kronos_nova.rebalancer.store import api as store_api
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.sources import base
from kronos_nova.sources import deadline
from kronos_nova.sources import ranges

LOG = logging.getLogger(__name__)
#: Instances that a query names, at most: 100 UUIDs make a query of 8,400 characters, and servers
#: refuse those above 16,384.
MOST_NAMES = 100
#: Seconds after which an answer to all queries of a question comes too late.
ANSWER_SECONDS = 30.0
#: Seconds between two samples; the highest one of an hour counts.
STEP = 900.0
_HOURS = 24
_DAY = _HOURS * quiet_hours.HOUR
#: Names that may stand in a query: UUIDs, and names that Nova itself gives.
_SAFE = re.compile(r'[A-Za-z0-9_.-]{1,255}')
_BY_NAME = {'nova_instance_uuid': 'uuid', 'nova_internal_name': 'internal_name'}

HourlyRates = tuple[tuple[float, float], ...]


class _AnswerLate(Exception):
    """The time of a question is over."""


@dataclasses.dataclass(slots=True)
class RateAnswer:
    """The hourly rates of each instance that was asked for; () where none is known.

    ``error``: why instances are missing.
    """

    rates: dict[str, HourlyRates] = dataclasses.field(default_factory=dict)
    error: str | None = None


def list_waiting_hosts(conf: cfg.ConfigOpts, cluster: model.Cluster) -> list[str]:
    """List the drained hosts whose instances may wait for a quieter hour.

    None, where plans wait for approval: people may give it when the quiet hour is over.

    :param cluster: with its scope set.
    """
    if conf.engine.drain_quiet_wait <= 0 or engine_conf.count_needed_approvals(conf, cluster.scope):
        return []
    return drain_requests.list_waiting_hosts(cluster, engine_conf.build_options(conf))


def map_present_rates(policy_set: policies.PolicySet, cluster: model.Cluster,
                      samples: Mapping[str, model.PolicySamples]) -> dict[str, float]:
    """Return the bytes a second that instances write now; of several policies the highest."""
    highest: dict[str, float] = {}
    for policy in policy_set.enabled_policies:
        rates, _warnings = scoring.map_dirty_rates(policy, samples[policy.name].dirty_rate, cluster)
        for uuid, rate in rates.items():
            highest[uuid] = max(rate, highest.get(uuid, 0.0))
    return highest


def list_risky_instances(conf: cfg.ConfigOpts, cluster: model.Cluster, rates: Mapping[str, float],
                         history: model.MoveHistory, hosts: Sequence[str]) -> list[str]:
    """List the instances of the hosts that are not expected to converge, highest risk first.

    :param rates: the bytes a second that instances write now.
    """
    return quiet_hours.list_risky_instances(cluster, rates, history,
                                            engine_conf.build_options(conf), hosts)


def read_rates(source: base.MetricsSource, policy_set: policies.PolicySet, cluster: model.Cluster,
               uuids: Sequence[str], now: float, *, calls: deadline.BoundedCalls | None = None,
               is_stopping: Callable[[], bool] = lambda: False,
               seconds: float | None = None) -> RateAnswer:
    """Ask for the rates of instances.

    :param seconds: the time of all queries; None: :data:`ANSWER_SECONDS`. Without any it asks none.
    :param calls: remembers the questions that hang.
    :param is_stopping: returns whether the answer is not needed any more.
    """
    seconds = ANSWER_SECONDS if seconds is None else seconds
    end = time.monotonic() + seconds
    answer, late = RateAnswer(), f'no answer within {ANSWER_SECONDS:g} s'
    if seconds <= 0:
        return RateAnswer(error=late)

    def end_late_question(_points: int) -> None:
        if is_stopping() or time.monotonic() > end:
            raise _AnswerLate

    def ask() -> None:
        for first in range(0, len(uuids), MOST_NAMES):
            batch = uuids[first:first + MOST_NAMES]
            rates, error = _read_batch(source, policy_set, cluster, batch, now, end_late_question)
            if error is not None:
                answer.error = error
                return
            answer.rates |= {uuid: rates.get(uuid, ()) for uuid in batch}

    try:
        (calls or deadline.BoundedCalls()).run_bounded(ask, seconds)
    except (_AnswerLate, deadline.DeadlineExceeded):
        # The question that was left behind may still write to its answer.
        return RateAnswer(dict(answer.rates), late)
    except deadline.TooManyHanging as e:
        answer.error = str(e)
    return answer


class RateQuestions:
    """The questions of a command, all within :data:`ANSWER_SECONDS`; each waits for its answer."""

    def __init__(self, conf: cfg.ConfigOpts, source: base.MetricsSource, store: store_api.Store,
                 policy_set: policies.PolicySet, now: float) -> None:
        self._conf, self._source, self._store = conf, source, store
        self._policies, self._now = policy_set, now
        self._end = time.monotonic() + ANSWER_SECONDS

    def add_scope_rates(self, cluster: model.Cluster, samples: Mapping[str, model.PolicySamples],
                        history: model.MoveHistory) -> model.MoveHistory:
        """Return the history of a scope with the rates of its drains.

        :param cluster: with its scope set.
        """
        hosts = list_waiting_hosts(self._conf, cluster)
        return history if not hosts else self.add_rates(cluster, list_risky_instances(
            self._conf, cluster, map_present_rates(self._policies, cluster, samples), history,
            hosts), history)

    def add_rates(self, cluster: model.Cluster, risky: Sequence[str],
                  history: model.MoveHistory) -> model.MoveHistory:
        """Return the history with the rates of instances that it does not have yet.

        :param risky: by :func:`list_risky_instances`.
        """
        unknown = [uuid for uuid in risky if uuid not in history.hourly_write_rates]
        if unknown:
            answer = read_rates(self._source, self._policies, cluster, unknown, self._now,
                                seconds=max(0.0, self._end - time.monotonic()))
            if answer.error is not None:
                LOG.warning('Instances of drains are shown as if they waited for no quieter hour: '
                            'vm_dirty_rate_query over the last day: %s', answer.error)
            history = replace_rates(self._conf, history, {
                **history.hourly_write_rates, **answer.rates}, self._now)
        return add_window_ends(self._conf, self._store, history, cluster.scope, cluster, self._now)


def add_cloud_rates(session: cloud_state.Session, cloud: cloud_state.CloudState,
                    clusters: Iterable[model.Cluster]) -> cloud_state.CloudState:
    """Return the cloud with the rates of the drains of some scopes, as engines know them.

    Only what judges a drain needs them: each scope with a risky instance is a question.

    :param clusters: each with its scope set.
    """
    if not session.asks_metrics or session.conf.engine.drain_quiet_wait <= 0:
        return cloud
    questions = _begin_questions(session, cloud.now)
    return dataclasses.replace(cloud, histories=dict(cloud.histories) | {
        cluster.scope: questions.add_scope_rates(cluster, cloud.samples,
                                                 cloud.histories[cluster.scope])
        for cluster in clusters})


def add_host_rates(session: cloud_state.Session, request: planner.PlanningInput,
                   host: str) -> planner.PlanningInput:
    """Return the request with the rates of a host, which need not be drained yet."""
    if (not session.asks_metrics or session.conf.engine.drain_quiet_wait <= 0
            or session.count_needed_approvals(request.cluster.scope) > 0):
        return request
    risky = quiet_hours.list_risky_instances(
        request.cluster, migration_costs.dirty_rates(request.scores), request.history,
        request.options, [host])
    return dataclasses.replace(request, history=_begin_questions(session, request.now).add_rates(
        request.cluster, risky, request.history))


def _begin_questions(session: cloud_state.Session, now: float) -> RateQuestions:
    return RateQuestions(session.conf, session.metrics_source, session.store, session.policies, now)


def add_window_ends(conf: cfg.ConfigOpts, store: store_api.Store, history: model.MoveHistory,
                    scope: str, cluster: model.Cluster, now: float) -> model.MoveHistory:
    """Return the history with the end of the campaign's window, where a drain may wait.

    :raises StoreError: the database cannot be read.
    """
    if not history.hourly_write_rates and not history.awaited_write_rates:
        return history
    try:
        campaign = store.campaigns.find_live_campaign(scope)
    except exception.UnreadableRowError:  # no engine carries it on
        return history
    if campaign is None:
        return history
    end = maintenance_windows.find_closing(campaign.windows, now, conf.engine.freeze_timezone)
    return history if end == math.inf else dataclasses.replace(history, window_ends={
        host.host: end for host in campaign.begun_hosts
        if (service := cluster.services.get(host.host)) is not None
        and not service.enabled and service.disabled_reason == campaign.reason})


def replace_rates(conf: cfg.ConfigOpts, history: model.MoveHistory,
                  rates: Mapping[str, HourlyRates], now: float) -> model.MoveHistory:
    """Return the history with rates of the last day."""
    return dataclasses.replace(
        history, hourly_write_rates={uuid: rates[uuid] for uuid in sorted(rates) if rates[uuid]},
        freezes=freeze.list_freezes(
            conf.engine.freeze_windows or (), conf.engine.freeze_timezone, now,
            now + conf.engine.drain_quiet_wait + _DAY))


def add_recorded_rates(conf: cfg.ConfigOpts, source: base.MetricsSource,
                       store: store_api.Store | str,
                       recording: writer.SnapshotContent) -> writer.SnapshotContent:
    """Return the content of a snapshot with the rates of the drains that go on.

    :param store: the database, or why it cannot be read.
    """
    cluster, histories = recording.cluster, recording.histories
    if (not conf.engine.drain_quiet_wait or isinstance(cluster, str)
            or isinstance(histories, str) or isinstance(store, str)):
        return recording
    named = [scope for scope in recording.scopes if scope != model.UNASSIGNED]
    questions = RateQuestions(conf, source, store, recording.policies, recording.now)
    return dataclasses.replace(recording, histories=dict(histories) | {
        scope: questions.add_scope_rates(cluster.replace_scope(scope, named), recording.samples,
                                         history)
        for scope, history in histories.items()
        if scope == model.UNASSIGNED or scope in cluster.aggregates})


def _read_batch(source: base.MetricsSource, policy_set: policies.PolicySet,
                cluster: model.Cluster, uuids: Sequence[str], now: float,
                progress: ranges.Progress) -> tuple[dict[str, HourlyRates], str | None]:
    """Return the highest rate of each hour, of several policies and series the highest.

    An instance that migrated has a series for each host.

    :returns: the rates, and why there are none: with one answer missing, all are.
    """
    hour = quiet_hours.begin_hour(now)
    window = ranges.QueryWindow(hour - _DAY, STEP, int(_DAY / STEP))
    highest: dict[str, dict[float, float]] = {}
    for policy, query in _list_queries(policy_set, cluster, uuids):
        progress(0)
        answer = source.query_range(query, policy.vm_profile_label, policy.vm_profile_label, window,
                                    progress)
        if answer.error is not None:
            return {}, answer.error
        places = {key: float(n) for n, key in enumerate(dict.fromkeys(answer.keys))}
        mapped = labels.map_instances(places, cluster.instances.values(),
                                      policy.vm_profile_label_type).values
        wanted = {mapped[uuid]: uuid for uuid in mapped.keys() & set(uuids)}
        for key, values in zip(answer.keys, answer.values, strict=True):
            if (uuid := wanted.get(places[key])) is not None:
                _keep_highest(highest.setdefault(uuid, {}), window, values)
    return {uuid: tuple(sorted(hours.items())) for uuid, hours in highest.items()}, None


def _keep_highest(hours: dict[float, float], window: ranges.QueryWindow,
                  values: Sequence[float]) -> None:
    """Keep the highest rate of each hour."""
    for index, rate in enumerate(values):
        if math.isfinite(rate) and rate >= 0:
            at = quiet_hours.begin_hour(window.compute_time(index))
            hours[at] = max(rate, hours.get(at, 0.0))


def _list_queries(policy_set: policies.PolicySet, cluster: model.Cluster,
                  uuids: Sequence[str]) -> Iterator[tuple[policies.Policy, str]]:
    """Yield each different query once; where names allow it, for the given instances alone."""
    asked = set()
    for policy in policy_set.enabled_policies:
        if policy.vm_dirty_rate_query is None:
            continue
        query = policy.vm_dirty_rate_query
        attribute = _BY_NAME.get(policy.vm_profile_label_type)
        # A display name is text of a tenant: it never stands in a query.
        if attribute is not None:
            query = _select_instances(query, policy.vm_profile_label, [
                name for uuid in uuids
                if _SAFE.fullmatch(name := getattr(cluster.instances[uuid], attribute))])
        if query and (query, policy.vm_profile_label) not in asked:
            asked.add((query, policy.vm_profile_label))
            yield policy, query


def _select_instances(query: str, label: str, names: Sequence[str]) -> str:
    """Return the query for the series of the names alone; '': without names."""
    if not names:
        return ''
    wanted = ' or '.join(f'label_replace(vector(1), "{label}", "{name}", "", "")'
                         for name in names)
    return f'({query}\n) and on ({label}) ({wanted})'
