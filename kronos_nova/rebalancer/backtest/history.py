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

"""The history of hosts and instances that a trace describes.

Shapes: M measures, T times, H hosts and N instances of the cloud, in order of name and UUID. An
instance is where its series' second label says, else where the cloud has it. It exists from its
first to its last sample; the time when the cloud was read extends this span if necessary. Series of
instances that the cloud does not have stay in their hosts' base load.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from kronos_nova import exception
from kronos_nova import labels
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.rebalancer.backtest import profiles
from kronos_nova.rebalancer.backtest import recorded_trace
from kronos_nova.sources import ranges

Floats = npt.NDArray[np.float64]
Places = profiles.Places

ABSENT = profiles.ABSENT


@dataclasses.dataclass(frozen=True, slots=True)
class SharedScoring:
    """A scoring that policies share: all inputs of scores and usages."""

    name: str
    policy: policies.Policy


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LoadHistory:
    """History as arrays over a window.

    ``score``: M x T x H, as measured. ``fills``: T x H, by the question that a policy's
    capacity_query is. ``capacity``: M x T x H, in the unit of ``usage``: M x T x N, as measured.
    ``long_term``: T x N in the same unit, means and deviations, by measure and question. All are
    NaN where not known. ``scale``: M x T x H in [0, 1], the factor for usages measured on a host,
    with which its instances explain no more than the host's score. ``home``: T x N, where instances
    were, ABSENT if nowhere. ``others``: T x H, the number of instances that the cloud does not
    have.
    """

    cluster: model.Cluster
    window: ranges.QueryWindow
    hosts: tuple[str, ...]
    uuids: tuple[str, ...]
    measures: tuple[SharedScoring, ...]
    score: Floats
    fills: Mapping[recorded_trace.Question, Floats]
    capacity: Floats
    usage: recorded_trace.Singles
    long_term: Mapping[tuple[int, recorded_trace.Question], recorded_trace.Singles]
    scale: Floats
    home: Places
    others: Places
    warnings: tuple[str, ...] = ()

    def compute_true_usage(self, k: int) -> Floats:
        """Return M x N: the usage of each instance at time k; 0 where not known."""
        home = self.home[k]
        scale = np.where(home >= 0, self.scale[:, k, home], 0.0)
        return np.nan_to_num(self.usage[:, k]).astype(np.float64) * scale


def measures_of(policy_sets: Iterable[policies.PolicySet]) -> tuple[SharedScoring, ...]:
    """List each scoring once; one with another's name gets a number."""
    policy_by_key: dict[tuple[Any, ...], policies.Policy] = {}
    for policy_set in policy_sets:
        for policy in policy_set.enabled_policies:
            policy_by_key.setdefault(make_score_key(policy), policy)
    name_counts: dict[str, int] = {}
    out = []
    for policy in policy_by_key.values():
        name_counts[policy.name] = name_counts.get(policy.name, 0) + 1
        count = name_counts[policy.name]
        out.append(SharedScoring(policy.name if count == 1 else f'{policy.name}#{count}', policy))
    return tuple(out)


def make_score_key(policy: policies.Policy) -> tuple[Any, ...]:
    """Return the key of a policy's scores: equal keys mean equal scores."""
    questions = tuple(sorted((field, question) for field,
                             question in recorded_trace.list_questions(policy).items()
                             if field not in ('capacity_query', *recorded_trace.LONG_TERM)))
    return (questions, policy.host_regex,
            policy.vm_profile_label_type, policy.vm_profile_fallback, policy.vm_profile_unit,
            policy.host_capacity)


def build_past(trace: recorded_trace.RecordedTrace, policy_sets: Sequence[policies.PolicySet],
               scopes: Iterable[str]) -> LoadHistory:
    """Build the history of a trace.

    :raises HistoryError: a question was not recorded, or names no host.
    """
    return _HistoryBuilder(trace, policy_sets, tuple(scopes)).build_history()


class _HistoryBuilder:
    def __init__(self, trace: recorded_trace.RecordedTrace,
                 policy_sets: Sequence[policies.PolicySet],
                 scopes: tuple[str, ...]) -> None:
        self._trace = trace
        self._cluster = trace.cluster
        self._measures = measures_of(policy_sets)
        self._policies = [p for policy_set in policy_sets for p in policy_set.enabled_policies]
        self._scopes = scopes
        self.hosts = tuple(sorted(trace.cluster.hosts))
        self.uuids = tuple(sorted(
            u for u, i in trace.cluster.instances.items() if i.host in trace.cluster.hosts))
        self._host_index = {name: i for i, name in enumerate(self.hosts)}
        self._index = {uuid: i for i, uuid in enumerate(self.uuids)}
        self._times = trace.window.count
        self._warnings: list[str] = []

    def build_history(self) -> LoadHistory:
        names = [m.name for m in self._measures]
        instance_profiles = [self._build_profile(m) for m in self._measures]
        home = self._locate_instances([p for p in instance_profiles if p is not None])
        others = next((p.others for p in instance_profiles if p is not None),
                      np.zeros((self._times, len(self.hosts)), dtype=np.int32))
        score = np.stack([self._map_host_answers(m.policy, 'imbalance_query')
                          for m in self._measures])
        fills = {recorded_trace.list_questions(p)['capacity_query']:
                 self._map_host_answers(p, 'capacity_query')
                 for p in self._policies if p.capacity_query is not None}
        capacity = np.stack([self._build_capacity(m) for m in self._measures])
        usage = np.full((len(names), self._times, len(self.uuids)), np.nan, dtype=np.float32)
        for i, (measure, profile) in enumerate(zip(self._measures, instance_profiles, strict=True)):
            if profile is not None:
                usage[i] = _convert_to_absolute(measure.policy, profile, capacity[i], home)
            self._fall_back(measure.policy, usage[i], home, score[i], capacity[i])
        scale = self._compute_scale(usage, home, score, capacity)
        return LoadHistory(self._cluster, self._trace.window, self.hosts, self.uuids,
                           self._measures,
                           score, fills, capacity, usage, self._compute_long_usage(capacity, home),
                           scale, home,
                           others,
                           tuple(dict.fromkeys([*self._trace.warnings, *self._warnings])))

    # Answers.

    def _get_answer(self, policy: policies.Policy, field: str) -> recorded_trace.RecordedSeries:
        answer = self._trace.answers.get(recorded_trace.list_questions(policy)[field])
        if answer is None:
            raise exception.HistoryError(
                what=f'{field} of policy {policy.name}',
                problem='the trace has no answer to this query, which it knows by its exact '
                        'text and labels',
                remedy='Record a trace with this policy file, or keep the query as it was '
                       'recorded.')
        return answer

    def _map_host_answers(self, policy: policies.Policy, field: str) -> Floats:
        """Return the answers by the Nova hosts that the label means: T x H."""
        answer = self._get_answer(policy, field)
        out = np.full((self._times, len(self.hosts)), np.nan)
        find = self._build_host_names(policy).find_service_host
        strangers = set()
        for key, columns in profiles.list_columns(answer.keys).items():
            host = find(key)
            if host is None:
                strangers.add(key)
                continue
            for column in columns:
                self._merge_series(policy, field, host, out[:, self._host_index[host]],
                                   answer.values[:, column])
        if np.isnan(out).all():
            shown = ', '.join(repr(key[:64]) for key in sorted(strangers)[:3])
            raise exception.HistoryError(
                what=f'{field} of policy {policy.name}',
                problem=f'no series of label {policy.host_label} is a Nova host '
                        f'(first: {shown})', remedy='Correct host_label or set host_regex.')
        return out

    def _merge_series(self, policy: policies.Policy, field: str, host: str, row: Floats,
                      more: Any) -> None:
        both = ~np.isnan(row) & ~np.isnan(more)
        if both.any():
            at = self._trace.window.compute_time(int(np.flatnonzero(both)[0]))
            raise exception.HistoryError(
                what=f'{field} of policy {policy.name}',
                problem=f'more than one series for host {host} (first at {at:.0f})',
                remedy=f'Aggregate the query by ({policies.quote_label(policy.host_label)}).')
        known = ~np.isnan(more)
        row[known] = more[known]

    def _build_host_names(self, policy: policies.Policy) -> labels.HostNames:
        return labels.HostNames({h.name: h.hypervisor_hostname
                                 for h in self._cluster.hosts.values()}, policy.host_regex)

    def _build_capacity(self, measure: SharedScoring) -> Floats:
        """Return capacities, T x H: over time, or Placement's, which the cloud has at one time."""
        if measure.policy.host_capacity_query is not None:
            capacities = self._map_host_answers(measure.policy, 'host_capacity_query')
            return np.where(capacities > 0, capacities, np.nan)
        unasked = model.PolicySamples(measure.policy.name, model.QueryResult(
            measure.policy.imbalance_query, model.SourceHealth.HEALTHY))
        row = np.full(len(self.hosts), np.nan)
        for scope in self._scopes:
            cluster = self._cluster.replace_scope(scope, self._scopes)
            known = scoring.score_policy(measure.policy, unasked, cluster, now=0.0,
                                         staleness=0.0).capacity
            for host in cluster.scope_hosts:
                row[self._host_index[host]] = known.get(host, np.nan)
        return np.broadcast_to(row, (self._times, len(self.hosts)))

    # Instances.

    def _build_profile(self, measure: SharedScoring) -> profiles.InstanceProfile | None:
        if measure.policy.vm_profile_query is None:
            return None
        profile = self._map_series(measure.policy, 'vm_profile_query', f'policy {measure.name}')
        if profile.strangers:
            self._warnings.append(
                f'policy {measure.name}: {profile.strangers} series belong to no instance that the '
                'cloud has; their load stays with its host')
        return profile

    def _compute_long_usage(self, capacity: Floats, home: Places,
                            ) -> dict[tuple[int, recorded_trace.Question], recorded_trace.Singles]:
        """Return the usage of instances over hours, which follows them to other hosts."""
        known = [make_score_key(m.policy) for m in self._measures]
        long_usage = {}
        for policy in self._policies:
            m = known.index(make_score_key(policy))
            for field, question in recorded_trace.list_questions(policy).items():
                if field in recorded_trace.LONG_TERM and (m, question) not in long_usage:
                    series = self._map_series(policy, field, f'{field} of policy {policy.name}')
                    long_usage[m, question] = _convert_to_absolute(policy, series, capacity[m],
                                                                   home)
        return long_usage

    def _map_series(self, policy: policies.Policy, field: str,
                    what: str) -> profiles.InstanceProfile:
        """Map the answer to instances; ``what`` begins its warnings."""
        answer = self._get_answer(policy, field)
        columns = profiles.list_columns(answer.keys)
        numbers = {key: float(n) for n, key in enumerate(columns)}
        mapped = labels.map_instances(numbers, self._cluster.instances.values(),
                                      policy.vm_profile_label_type)
        keys = list(columns)
        ours = {keys[int(n)]: self._index[uuid] for uuid, n in mapped.values.items()
                if uuid in self._index}
        return profiles.InstanceProfile(answer, columns, ours,
                                        self._build_host_names(policy).find_service_host,
                                        self._host_index,
                                         len(self.uuids),
                                         lambda text: self._warnings.append(f'{what}: {text}'))

    def _locate_instances(self, known_by: Sequence[profiles.InstanceProfile]) -> Places:
        """Return where instances were, T x N, from the first profile that has their host."""
        taken_at = self._trace.cluster.taken_at
        window = self._trace.window
        mark = round((taken_at - window.start) / window.step)
        rest = np.array([self._host_index[self._cluster.instances[u].host] for u in self.uuids],
                        dtype=np.int32)
        measured = np.zeros((self._times, len(self.uuids)), dtype=np.bool_)
        where = np.full((self._times, len(self.uuids)), ABSENT, dtype=np.int32)
        for profile in known_by:
            measured |= ~np.isnan(profile.usage)
            where = np.where(where == ABSENT, profile.where, where)
        known = measured.any(axis=0)
        first = np.where(known, measured.argmax(axis=0), 0)
        last = np.where(known, self._times - 1 - measured[::-1].argmax(axis=0), self._times - 1)
        first, last = np.minimum(first, mark), np.maximum(last, mark)
        times = np.arange(self._times)[:, None]
        there = (times >= first) & (times <= last)
        return np.where(there, _fill_place_gaps(where, rest), ABSENT).astype(np.int32)

    def _fall_back(self, policy: policies.Policy, usage: Any, home: Places, score: Floats,
                   capacity: Floats) -> None:
        """Give instances without a sample their share of the host's score (seed 000)."""
        if policy.vm_profile_fallback == 'skip':
            return
        share = np.ones(len(self.uuids))
        if policy.vm_profile_fallback == 'flavor_vcpu_ratio':
            share = np.array([float(self._cluster.instances[u].vcpus) for u in self.uuids])
        for k in range(self._times):
            there = home[k] >= 0
            total = np.bincount(home[k][there], share[there], len(self.hosts))
            count = np.bincount(home[k][there], minlength=len(self.hosts))
            at = np.where(there, home[k], 0)
            part = np.where(total[at] > 0, share / np.where(total[at] > 0, total[at], 1.0),
                            1.0 / np.maximum(1, count[at]))
            lacking = there & np.isnan(usage[k])
            usage[k][lacking] = (score[k] * capacity[k])[at][lacking] * part[lacking]

    def _compute_scale(self, usage: Any, home: Places, score: Floats, capacity: Floats) -> Floats:
        """Return min(1, score / load that instances explain), by host."""
        scale = np.ones(score.shape)
        for m in range(len(self._measures)):
            for k in range(self._times):
                there = home[k] >= 0
                used = np.nan_to_num(usage[m, k][there]).astype(np.float64)
                explained = np.bincount(home[k][there], used, len(self.hosts)) / capacity[m, k]
                over = (explained > score[m, k]) & (explained > 0)
                scale[m, k, over] = np.maximum(0.0, score[m, k, over]) / explained[over]
        share = float((scale < 0.9).mean()) if scale.size else 0.0
        if share > 0.05:
            self._warnings.append(
                f'at {share:.0%} of the times instances explain more than their host\'s score '
                'and are scaled down to it; check vm_profile_unit')
        return scale


def _fill_place_gaps(where: Places, rest: Places) -> Places:
    """Fill the gaps in the places of instances.

    Each instance stays where it was last seen; before that, where it is seen first; at ``rest``
    when never.
    """
    known = where != ABSENT
    index = np.where(known, np.arange(len(where))[:, None], -1)
    index = np.maximum.accumulate(index, axis=0)
    first = np.where(known.any(axis=0), known.argmax(axis=0), 0)
    filled = np.take_along_axis(where, np.where(index < 0, first, index), axis=0)
    return np.where(filled == ABSENT, rest, filled)


def _convert_to_absolute(policy: policies.Policy, series: profiles.InstanceProfile,
                         capacity: Floats,
                         home: Places) -> recorded_trace.Singles:
    """Return usages in absolute units, T x N; a ratio is of the host that the instance was on."""
    usages = series.usage
    if policy.vm_profile_unit == 'host_ratio':
        usages = (usages * _at_home(capacity, home)).astype(np.float32)
    usages[(home < 0) | (usages < 0)] = np.nan
    return usages


def _at_home(capacity: Floats, home: Places) -> Floats:
    """Return the capacity of the host that each instance is on: T x N."""
    return np.take_along_axis(capacity, np.maximum(home, 0).astype(np.intp), axis=1)
