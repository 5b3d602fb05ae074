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

"""The scoring of samples, which nova-scheduler and the rebalancer share.

Plain Python: it runs inside nova-scheduler as well as in the rebalancer.
"""

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math

from kronos_nova import labels
from kronos_nova import model
from kronos_nova import plurals
from kronos_nova import policy as policies

#: A ratio computed from counters may leave [0, 1] by rounding.
ROUNDING = 1e-9
#: Instance usages that explain more than this much of their hosts' scores
#: are worth a warning; above the second, they are in the wrong unit.
HIGH_COVERAGE = 1.5
MAX_COVERAGE = 3.0
#: Placement's class that stands for a host's size when a policy names none.
DEFAULT_CAPACITY = 'VCPU'


def sum_weighted(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Compute the sum of weight x value over the policies (seed 000, Combined scoring)."""
    return math.fsum(weights[name] * value for name, value in values.items())


def compute_headroom(scores: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Compute 1 - weighted score of one host, in [0, 1]: the weigher's value + 0.5."""
    return min(1.0, max(0.0, 1.0 - sum_weighted(scores, weights)))


def usage_per_unit(hosts: Iterable[tuple[float, float, float]]) -> float:
    """Compute the part that is really used of one allocated unit of a host's resource.

    This is the sum of score x total over the sum of the allocated units, at most 1. The scores
    contain the hosts' base load, so the result errs on the high side. A cloud without any
    allocation gives 0.

    :param hosts: (score, total, allocated) of each host, in units such as vCPUs or MiB.
    """
    used = allocated = 0.0
    for score, total, allocated_units in hosts:
        used += score * total
        allocated += allocated_units
    return min(1.0, used / allocated) if allocated > 0 else 0.0


def host_scores(policy: policies.Policy, result: model.QueryResult,
                names: labels.HostNames) -> tuple[dict[str, float], str | None, list[str]]:
    """Map and check one answer of a policy's host query.

    :returns: score by host in [0, 1]; why the policy must not be used, or
        None; warnings.
    """
    if result.error is not None:
        return {}, result.error, list(result.warnings)
    warnings = list(result.warnings)
    mapped = names.map_answer(result.series)
    scores = {}
    for host, value in mapped.values.items():
        if not math.isfinite(value):
            warnings.append(f'host {host}: {value} is not a number; treated as missing')
        elif not -ROUNDING <= value <= 1.0 + ROUNDING:
            return {}, (f'host {host} has the value {value:g}, outside [0, 1]; '
                        f'make {policy.name}\'s query return a ratio'), warnings
        else:
            scores[host] = min(1.0, max(0.0, value))
    twice = {*mapped.ambiguous,
             *(h for d in result.duplicates if (h := names.find_service_host(d)))}
    if twice:
        return {}, (f'more than one series for host {", ".join(sorted(twice))}; aggregate the '
                    f'query by ({policies.quote_label(policy.host_label)})'), warnings
    if not result.series:
        return {}, '; '.join(warnings) or ('the query returns no series; a join on a label '
                                           'that is not there does that'), warnings
    if not scores and mapped.values:
        return {}, '; '.join(warnings), warnings
    if not scores:
        shown = ', '.join(repr(label[:64]) for label in sorted(result.series)[:3])
        return {}, (f'no series of label {policy.host_label} is a Nova host (first: {shown}); '
                    'correct host_label or set host_regex'), warnings
    return scores, None, warnings


def find_stale_reason(samples: model.PolicySamples, now: float, staleness: float,
                      require_age: bool) -> str | None:
    """Return why samples are too old to be used, or None.

    :param staleness: seconds; [prometheus] staleness_threshold.
    """
    since = max(0.0, now - samples.taken_at)
    # max() would turn NaN into 0.
    age = None if samples.age is None else (0.0 if samples.age < 0 else samples.age) + since
    return too_old(age, since, staleness, require_age)


def too_old(age: float | None, since: float, staleness: float,
            require_age: bool) -> str | None:
    """Return why samples of a known age are too old to be used, or None.

    :param age: seconds; None when the policy has no ``age_query``.
    :param since: seconds since the query, which stand in for the age.
    """
    if age is None and require_age:
        return 'age: unverified, and require_age is set; give the policy an age_query'
    known = since if age is None else age
    if not known <= staleness:
        return f'samples are {known:.0f} s old, more than staleness_threshold ({staleness:.0f} s)'
    return None


def missing_limit(expected: int, configured: int | None) -> int:
    """Return the number of hosts that may lack a score: max(1, 5 %) unless configured."""
    return configured if configured is not None else max(1, expected * 5 // 100)


def score_policy(policy: policies.Policy, samples: model.PolicySamples, cluster: model.Cluster, *,
                 now: float, staleness: float, require_age: bool = False,
                 max_missing_hosts: int | None = None) -> model.PolicyScores:
    """Compute one policy's scores over the cluster's scope.

    A score is expected of the scope's hosts whose service is up. Those without a score (or
    capacity) are ``missing`` and frozen, and too many missing hosts make the policy untrusted.
    """
    names = labels.HostNames({h.name: h.hypervisor_hostname for h in cluster.hosts.values()},
                             policy.host_regex)
    hosts, problem, warnings = host_scores(policy, samples.imbalance, names)
    problem = problem or find_stale_reason(samples, now, staleness, require_age)
    if samples.age is None:
        warnings.append('age: unverified')
    fill = hosts
    if samples.capacity is not None:
        fill, fill_problem, more = host_scores(policy, samples.capacity, names)
        problem, warnings = problem or _prefix_problem('capacity_query',
                                                       fill_problem), warnings + more
    capacity, capacity_problem, more = _compute_capacities(policy, samples, cluster, names)
    problem = problem or _prefix_problem('host_capacity_query', capacity_problem)
    warnings += more
    if samples.profile is not None:
        problem = problem or _prefix_problem('vm_profile_query', samples.profile.error)
    usages, more = _compute_usages(policy, samples.profile, cluster, hosts, capacity)
    warnings += more
    long_term: dict[str, dict[str, float]] = {'vm_mean_query': {}, 'vm_deviation_query': {}}
    for field, result in (('vm_mean_query', samples.mean),
                          ('vm_deviation_query', samples.deviation)):
        if result is not None:
            problem = problem or _prefix_problem(field, result.error)
            long_term[field], more = _map_instance_values(policy, result, cluster, capacity)
            warnings += more
    dirty_rates, more = map_dirty_rates(policy, samples.dirty_rate, cluster)
    warnings += more
    expected = {h for h in cluster.scope_hosts
                if h in cluster.services and cluster.services[h].up}
    missing = frozenset(h for h in expected
                        if h not in hosts or h not in fill or h not in capacity)
    if problem is None and len(missing) > missing_limit(len(expected), max_missing_hosts):
        problem = (f'{len(missing)} of {len(expected)} hosts have no score: '
                   f'{", ".join(sorted(missing)[:5])}')
    coverage = _compute_coverage(cluster, hosts, capacity, usages)
    share = compute_explained_share(hosts, coverage)
    if share is not None and share > HIGH_COVERAGE:
        warnings.append(f'instances explain {share:.0%} of their hosts\' load: '
                        f'vm_profile_query is not in the unit of vm_profile_unit '
                        f'({policy.vm_profile_unit})')
        if share > MAX_COVERAGE:
            problem = problem or warnings[-1]
    return model.PolicyScores(
        policy=policy.name, hosts=hosts, fill=fill, capacity=capacity, usages=usages,
        means=long_term['vm_mean_query'], deviations=long_term['vm_deviation_query'],
        dirty_rates=dirty_rates, coverage=coverage, missing=missing, untrusted=problem,
        age=samples.age, warnings=tuple(dict.fromkeys(warnings)), window=policy.lookback_seconds,
        score_look=policy.score_look, fill_look=policy.fill_look, staleness=staleness)


def map_dirty_rates(policy: policies.Policy, result: model.QueryResult | None,
                    cluster: model.Cluster) -> tuple[dict[str, float], list[str]]:
    """Return bytes a second by instance UUID, and warnings.

    They affect costs alone: a query that fails does not make the policy untrusted.
    """
    if result is None:
        return {}, []
    if result.error is not None:
        return {}, [f'vm_dirty_rate_query: {result.error}; what a migration costs is taken from '
                    'memory and past migrations alone']
    mapped = labels.map_instances(result.series, cluster.instances.values(),
                                  policy.vm_profile_label_type)
    return {uuid: value for uuid, value in mapped.values.items()
            if uuid in cluster.instances and math.isfinite(value) and value >= 0}, []


def compute_measured_usages(policy: policies.Policy, samples: model.PolicySamples,
                            cluster: model.Cluster) -> tuple[dict[str, float], dict[str, float]]:
    """Return the measured usages of the whole cloud's instances, and the hosts' capacity.

    Both are in the unit of the capacity, without fallbacks, and empty when they are not known.

    :returns: usage by instance UUID; capacity by host.
    """
    if samples.profile is None or samples.profile.error is not None:
        return {}, {}
    whole = dataclasses.replace(cluster, scope_hosts=frozenset(cluster.hosts))
    names = labels.HostNames({h.name: h.hypervisor_hostname for h in cluster.hosts.values()},
                             policy.host_regex)
    capacity, problem, _ = _compute_capacities(policy, samples, whole, names)
    if problem is not None:
        return {}, {}
    return _map_instance_values(policy, samples.profile, whole, capacity)[0], capacity


def _prefix_problem(query: str, problem: str | None) -> str | None:
    return f'{query}: {problem}' if problem else None


def _compute_capacities(policy: policies.Policy, samples: model.PolicySamples,
                        cluster: model.Cluster,
                        names: labels.HostNames) -> tuple[dict[str, float], str | None, list[str]]:
    """Return the capacity by host in the unit of the policy's usages, a problem, and warnings."""
    if policy.host_capacity_query is not None:
        result = samples.host_capacity
        if result is None or result.error is not None:
            return {}, (result.error if result else None) or 'it was not asked', []
        mapped = names.map_answer(result.series)
        if mapped.ambiguous:
            return {}, f'more than one series for host {", ".join(mapped.ambiguous)}', []
        good = {h: v for h, v in mapped.values.items() if math.isfinite(v) and v > 0}
        bad = sorted(set(mapped.values) - set(good))
        return good, None, [f'host {h}: its capacity is not positive; treated as missing'
                            for h in bad]
    resource_class = policy.host_capacity or DEFAULT_CAPACITY
    totals = {}
    for host in cluster.hosts.values():
        total = host.sum_inventories(resource_class)
        if total > 0:
            totals[host.name] = float(total)
    if policy.host_capacity is not None:
        return totals, None, []
    if any(h not in totals for h in cluster.scope_hosts):
        return dict.fromkeys(cluster.hosts, 1.0), None, []
    warnings = []
    if len({totals[h] for h in cluster.scope_hosts}) > 1:
        warnings.append('hosts differ in size and the policy names no capacity: instance ratios '
                        f'are rescaled by {resource_class}; set host_capacity')
    return totals, None, warnings


def _compute_usages(policy: policies.Policy, result: model.QueryResult | None,
                    cluster: model.Cluster,
                    hosts: Mapping[str, float],
                    capacity: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Return the usage by instance UUID, in the unit of ``capacity``, and warnings."""
    usages, warnings = ({}, []) if result is None else _map_instance_values(
        policy, result, cluster, capacity)
    if policy.vm_profile_fallback != 'skip':
        here = [i for i in cluster.instances.values() if i.host in cluster.scope_hosts]
        _fall_back(policy, here, hosts, capacity, usages)
    return usages, warnings


def _map_instance_values(policy: policies.Policy, result: model.QueryResult, cluster: model.Cluster,
                         capacity: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Return the value of a query by instance UUID, in the unit of ``capacity``, and warnings."""
    usages: dict[str, float] = {}
    warnings: list[str] = []
    mapped = labels.map_instances(result.series, cluster.instances.values(),
                                  policy.vm_profile_label_type)
    if mapped.ambiguous:
        warnings.append('Not profiled: '
                        f'{plurals.count_noun(len(mapped.ambiguous), "instance")} that another one '
                        f'shares {policy.vm_profile_label} with, or with several series '
                        f'(first: {mapped.ambiguous[0]})')
    for instance in cluster.instances.values():
        value = mapped.values.get(instance.uuid)
        if value is None or instance.host not in cluster.scope_hosts:
            continue
        if not math.isfinite(value) or value < 0:
            warnings.append(f'instance {instance.uuid}: usage {value} is not usable')
        elif policy.vm_profile_unit == 'absolute':
            usages[instance.uuid] = value
        elif instance.host in capacity:
            usages[instance.uuid] = value * capacity[instance.host]
    return usages, warnings


def _fall_back(policy: policies.Policy, here: list[model.Instance], hosts: Mapping[str, float],
               capacity: Mapping[str, float], usages: dict[str, float]) -> None:
    """Estimate the usage of each instance without a profile from its host's score (seed 000)."""
    by_host: dict[str, list[model.Instance]] = defaultdict(list)
    for instance in here:
        by_host[instance.host].append(instance)
    for host, instances in by_host.items():
        if host not in hosts or host not in capacity:
            continue
        absolute = hosts[host] * capacity[host]
        vcpus = sum(i.vcpus for i in instances)
        for instance in instances:
            if policy.vm_profile_fallback == 'flavor_vcpu_ratio' and vcpus:
                share = instance.vcpus / vcpus
            else:
                share = 1.0 / len(instances)
            usages.setdefault(instance.uuid, absolute * share)


def _compute_coverage(cluster: model.Cluster, hosts: Mapping[str, float],
                      capacity: Mapping[str, float],
                      usages: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each host's score that its instances explain."""
    sums: dict[str, float] = defaultdict(float)
    for uuid, usage in usages.items():
        sums[cluster.instances[uuid].host] += usage
    return {h: sums[h] / capacity[h] / hosts[h] for h in sorted(cluster.scope_hosts)
            if h in sums and h in capacity and hosts.get(h, 0.0) > 0.0}


def compute_explained_share(hosts: Mapping[str, float],
                            coverage: Mapping[str, float]) -> float | None:
    """Compute the coverage over all hosts together, weighted by their scores.

    Return None when these are next to idle.
    """
    total = math.fsum(hosts[h] for h in coverage)
    if total < 0.05 * max(1, len(coverage)):
        return None
    return math.fsum(coverage[h] * hosts[h] for h in coverage) / total
