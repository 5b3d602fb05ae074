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

from collections import Counter
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import re

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import labels
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies
from kronos_nova.conf import engine as engine_conf
from kronos_nova.conf import freeze
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import planning_settings
from kronos_nova.rebalancer.planning import quiet_hours
from kronos_nova.rebalancer.snapshots import writer
from kronos_nova.rebalancer.strategies import drain_requests
from kronos_nova.sources import base
from kronos_nova.sources import ranges

LOG = logging.getLogger(__name__)
#: Instances that a query names, at most; those with the highest risk come first.
MOST_INSTANCES = 200
#: Seconds between two samples; the highest one of an hour counts.
STEP = 900.0
_HOURS = 24
#: Names that may stand in a query: UUIDs, and names that Nova itself gives.
_SAFE = re.compile(r'[A-Za-z0-9_.-]{1,255}')
_BY_NAME = {'nova_instance_uuid': 'uuid', 'nova_internal_name': 'internal_name'}

Rates = Mapping[str, tuple[tuple[float, float], ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class _KnownRates:
    """An answer, for the hour and the hosts for which it was asked."""

    hour: float
    hosts: frozenset[str]
    history: model.MoveHistory


class WriteRateReader:
    """The engine's reader: it asks for a scope once an hour, and when a further host is drained.

    It asks only while an instance of a drain is not expected to converge.
    """

    def __init__(self, conf: cfg.ConfigOpts, source: base.MetricsSource) -> None:
        self._conf = conf
        self._source = source
        self._known: dict[str, _KnownRates] = {}

    def add_rates(self, history: model.MoveHistory, cluster: model.Cluster,
                  samples: Mapping[str, model.PolicySamples], policy_set: policies.PolicySet,
                  now: float) -> model.MoveHistory:
        """Return the history with what decides which instances wait for a quieter hour.

        :param cluster: with its scope set.
        """
        options, scope = engine_conf.build_options(self._conf), cluster.scope
        hosts = frozenset(drain_requests.list_waiting_hosts(cluster, options)
                          if options.drain_quiet_wait > 0 else ())
        known, hour = self._known.get(scope), quiet_hours.begin_hour(now)
        if known is not None and known.hour == hour and hosts <= known.hosts:
            return self.add_known_rates(scope, history)
        self._known.pop(scope, None)
        if not hosts:
            return history
        scores = planning_pipeline.score_policies(
            cluster, samples, planning_settings.build_settings(self._conf, policy_set), now)
        answered = add_write_rates(self._conf, self._source, policy_set, cluster, scores, history,
                                   hosts, now)
        if answered is not None:
            self._known[scope] = _KnownRates(hour, hosts, answered)
        return self.add_known_rates(scope, history)

    def add_known_rates(self, scope: str, history: model.MoveHistory) -> model.MoveHistory:
        """Return the history with the last answer for the scope, if there is one."""
        known = self._known.get(scope)
        return history if known is None else dataclasses.replace(
            history, hourly_write_rates=known.history.hourly_write_rates,
            frozen_hours=known.history.frozen_hours)


def add_recorded_rates(conf: cfg.ConfigOpts, source: base.MetricsSource,
                       recording: writer.SnapshotContent) -> writer.SnapshotContent:
    """Return what a cycle would see, with the rates of the drains that go on."""
    cluster, histories = recording.cluster, recording.histories
    if (not conf.engine.drain_quiet_wait or isinstance(cluster, str)
            or isinstance(histories, str)):
        return recording
    reader = WriteRateReader(conf, source)
    named = [scope for scope in recording.scopes if scope != model.UNASSIGNED]
    return dataclasses.replace(recording, histories={
        scope: history if scope in named and scope not in cluster.aggregates else reader.add_rates(
            history, cluster.replace_scope(scope, named), recording.samples, recording.policies,
            recording.now)
        for scope, history in histories.items()})


def add_write_rates(conf: cfg.ConfigOpts, source: base.MetricsSource,
                    policy_set: policies.PolicySet, cluster: model.Cluster,
                    scores: model.ClusterScores, history: model.MoveHistory,
                    hosts: Collection[str], now: float) -> model.MoveHistory | None:
    """Ask for the instances of the hosts that are not expected to converge now.

    :returns: the history with the rates, without new ones where the source does not answer; None:
        the history has all that the decision needs.
    """
    options = engine_conf.build_options(conf)
    risky = [uuid for uuid in quiet_hours.list_risky_instances(cluster, scores, history, options,
                                                               hosts)
             if uuid not in history.hourly_write_rates]
    if options.drain_quiet_wait <= 0 or not risky:
        return None
    rates, problem = _read_rates(source, policy_set, cluster, risky[:MOST_INSTANCES], now)
    if problem is not None:
        LOG.warning('No instance of a drain waits for a quieter hour in this hour: '
                    'vm_dirty_rate_query over the last day: %s', problem)
    if len(risky) > MOST_INSTANCES:
        LOG.warning('%s of drains wait for no quieter hour: a query names %d at most',
                    plurals.count_noun(len(risky) - MOST_INSTANCES, 'instance'), MOST_INSTANCES)
    return dataclasses.replace(
        history, hourly_write_rates={**history.hourly_write_rates, **rates},
        frozen_hours=freeze.list_frozen_hours(
            conf.engine.freeze_windows or (), conf.engine.freeze_timezone, now,
            options.drain_quiet_wait))


def _read_rates(source: base.MetricsSource, policy_set: policies.PolicySet,
                cluster: model.Cluster, uuids: Sequence[str],
                now: float) -> tuple[Rates, str | None]:
    """Return the highest rate of each hour, of several policies the highest.

    :returns: the rates, and why there are none: with one answer missing, all are.
    """
    hour = quiet_hours.begin_hour(now)
    window = ranges.QueryWindow(hour - _HOURS * quiet_hours.HOUR, STEP,
                                int(_HOURS * quiet_hours.HOUR / STEP))
    highest: dict[str, dict[float, float]] = {}
    for policy, query in _list_queries(policy_set, cluster, uuids):
        answer = source.query_range(query, policy.vm_profile_label, policy.vm_profile_label, window)
        if answer.error is not None:
            return {}, answer.error
        numbers = Counter(answer.keys)
        mapped = labels.map_instances(
            {key: float(n) for n, key in enumerate(answer.keys) if numbers[key] == 1},
            cluster.instances.values(), policy.vm_profile_label_type).values
        for uuid in mapped.keys() & set(uuids):
            hours = highest.setdefault(uuid, {})
            for index, rate in enumerate(answer.values[int(mapped[uuid])]):
                if math.isfinite(rate) and rate >= 0:
                    at = quiet_hours.begin_hour(window.compute_time(index))
                    hours[at] = max(rate, hours.get(at, 0.0))
    return {uuid: tuple(sorted(hours.items())) for uuid, hours in sorted(highest.items())
            if hours}, None


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
