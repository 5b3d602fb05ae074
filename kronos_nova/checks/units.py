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

"""Guesses of the actual unit of a query whose values are in a wrong unit.

A guess uses sizes alone. Instances explain a part of their hosts' scores; when their sum is off
by about a known factor, this factor is the probable reason.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import math
import re
import statistics

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring
from kronos_nova.scheduler import depletion

#: Share of the load that instances explain in the right unit; busy instances on hosts with
#: little other load explain about 0.7.
LEAST, USUAL, MOST = 0.1, 0.7, 1.3
KIB, MIB = 2.0**10, 2.0**20
#: Highest plausible ratio to an overcommitted capacity, on most hosts and on a single host:
#: Nova's own cpu_allocation_ratio was 16.
OFTEN, ONCE = 2.0, 16.0
_COUNTER = re.compile(r'\w_total\b|\bceilometer_cpu\b')
_CHANGE = re.compile(r'\b(?:i?rate|increase|i?delta|deriv)\s*\(')


@dataclasses.dataclass(frozen=True, slots=True)
class UnitMistake:
    """A wrong unit; ``factor`` says how many times too large its values are."""

    factor: float
    unit: str
    remedy: str


def guess_score_unit(values: Iterable[float], cpus: float | None) -> UnitMistake | None:
    """Guess the unit of host scores above 1; None when no score is above 1.

    :param cpus: number of CPUs of the host that has the most.
    """
    scores = list(values)
    highest = max(scores, default=0.0)
    if highest <= 1.0:
        return None
    if highest <= ONCE and statistics.median(scores) <= OFTEN:
        return UnitMistake(1.0, 'the right unit, of a load that exceeds the capacity, as that of '
                            'overcommitted hosts and a load average do',
                           'Bound the query with clamp_max(..., 1), or divide it by the highest '
                           'value that you allow. If it is percent, divide it by 100.')
    if highest <= 100.0:
        if cpus is not None and highest <= cpus:
            return UnitMistake(100.0, 'percent, or the number of busy CPUs',
                               'Divide the query by 100, or by the number of CPUs of each host.')
        return UnitMistake(100.0, 'percent', 'Divide the query by 100.')
    what = 'bytes' if highest >= MIB else 'an absolute amount'
    return UnitMistake(highest, what, 'Divide the query by the capacity of each host.')


def is_implausible(explained: float) -> bool:
    """Return whether instances explain too much, or next to nothing, of their hosts' scores."""
    return explained > scoring.HIGH_COVERAGE or explained < LEAST


def guess_usage_unit(policy: policies.Policy, explained: float, cluster: model.Cluster,
                     capacity: Iterable[float]) -> UnitMistake | None:
    """Guess the unit of usages that explain too much or too little of the hosts' scores.

    :param explained: the sum of the usages over that of the scores.
    :param capacity: capacity of each host, in the unit that usages should be in.
    """
    query = policy.vm_profile_query or ''
    if explained > scoring.HIGH_COVERAGE and _COUNTER.search(query) and not _CHANGE.search(query):
        return UnitMistake(math.nan, 'the sum since an instance was started, not its rate',
                           'Apply rate() to the counter.')
    fitting = [(abs(math.log(explained / m.factor / USUAL)), m)
               for m in _list_known_mistakes(policy, cluster, list(capacity))
               if explained > 0 and m.factor > 0 and LEAST <= explained / m.factor <= MOST]
    return min(fitting, key=lambda fit: fit[0])[1] if fitting else None


def _list_known_mistakes(policy: policies.Policy, cluster: model.Cluster,
                         capacity: list[float]) -> Iterator[UnitMistake]:
    """Yield units that queries were seen in, as factors of the right unit."""
    yield _make_factor_mistake(100.0, 'percent')
    memory = depletion.goes_by_memory(policy)
    vcpus = _compute_median(i.vcpus for i in cluster.instances.values())
    if policy.vm_profile_unit == 'host_ratio':
        yield from _list_absolute_units(memory, cluster)
    else:
        size = _compute_median(capacity)
        yield UnitMistake(1 / size if size else 0.0, 'a ratio of the host, not an absolute amount',
                          'Set vm_profile_unit: host_ratio, or multiply by the host\'s capacity.')
        if memory:
            for factor, unit in ((KIB, 'bytes beside a capacity in KiB'),
                                 (MIB, 'bytes beside a capacity in MiB'),
                                 (1 / KIB, 'KiB beside a capacity in bytes'),
                                 (1 / MIB, 'MiB beside a capacity in bytes'),
                                 (1 / KIB**3, 'GiB beside a capacity in bytes')):
                yield _make_factor_mistake(factor, unit)
        elif 'network' in policy.imbalance_query or 'interface' in policy.imbalance_query:
            yield _make_factor_mistake(8.0, 'bits beside a capacity in bytes')
            yield _make_factor_mistake(1 / 8, 'bytes beside a capacity in bits')
    if not memory:
        for factor, unit in ((1e3, 'milliseconds a second, which are millicores'),
                             (1e6, 'microseconds a second'), (1e9, 'nanoseconds a second')):
            yield _make_factor_mistake(factor, unit)
        if policy.vm_profile_unit == 'absolute' and vcpus > 1:
            yield UnitMistake(1 / vcpus, 'a ratio of the instance\'s own vCPUs',
                              'Multiply the query by the instance\'s number of vCPUs.')


def _list_absolute_units(memory: bool, cluster: model.Cluster) -> Iterator[UnitMistake]:
    remedy = 'Set vm_profile_unit: absolute with a host capacity, or divide by the capacity.'
    if memory:
        size = _compute_median(h.sum_inventories('MEMORY_MB') for h in cluster.hosts.values())
        for factor, unit in ((1.0, 'MiB'), (KIB, 'KiB'), (MIB, 'bytes')):
            yield UnitMistake(size * factor, f'{unit}, not a ratio of the host', remedy)
    else:
        yield UnitMistake(_compute_median(h.sum_inventories('VCPU')
                                          for h in cluster.hosts.values()),
                          'cores, not a ratio of the host', remedy)


def _make_factor_mistake(factor: float, unit: str) -> UnitMistake:
    verb, by = ('Divide', factor) if factor > 1 else ('Multiply', 1 / factor)
    return UnitMistake(factor, unit, f'{verb} the query by {by:.10g}.')


def _compute_median(values: Iterable[float]) -> float:
    return float(statistics.median([v for v in values if v > 0] or [0.0]))
