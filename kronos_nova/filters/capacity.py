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


"""A filter that keeps new instances off hosts that are full.

A host is full by its measured load, or where the instances of a failed host need its free room.
"""

import dataclasses
import math
from typing import Any

from oslo_log import log as logging

from kronos_nova import model
from kronos_nova import plurals
from kronos_nova.filters import base
from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import runtime
from kronos_nova.scheduler import score_cache

LOG = logging.getLogger(__name__)


class KronosCapacityFilter(base.KronosFilter):
    """New boots go to hosts at or below every policy's ``boot_ceiling``.

    The filter compares the ceiling with the sum of three loads: the load that the host
    shows now, the load that its samples do not show yet, and the load that the request is
    expected to add. The last one is the usual load of the flavor, else the request's vCPUs
    (or MiB) times the load of an allocated one on these hosts. When every host is above,
    all pass, unless ``hard_ceiling``. Without fresh scores all pass, unless
    ``fail_closed``. Hosts without a score pass, unless ``unknown_hosts`` excludes them and
    others have one.

    Before that, it leaves out the hosts on which the request would take room that the failover
    certificate needs (:class:`model.BootLimit`). When no other host passes, it admits them, unless
    ``failover_reserve`` is ``keep``. While the engine publishes no limits, it leaves out none.

    It must be the last filter: a later one could refuse the only host that passes it.
    """

    def judge(self, hosts: list[Any], spec: Any, moving: bool) -> list[Any]:
        if moving:
            return hosts
        door = runtime.get_runtime()
        groups = door.list_scored_groups(hosts)
        if door.conf.kronos.unknown_hosts == 'exclude':
            groups = _drop_unscored_hosts(groups)
        reserved = _list_reserved_hosts(door, groups, spec)
        passing = _judge_load(door, _drop_hosts(groups, reserved), spec)
        if reserved and not passing:
            if door.conf.kronos.failover_reserve != 'keep':
                passing = _judge_load(door, groups, spec)
            else:
                LOG.warning('kronos: instance %s is refused %s, because failover_reserve is keep '
                            'and the instances of a failed host would need the room; no other '
                            'host passes', spec.instance_uuid,
                            plurals.count_noun(len(reserved), 'host'))
        if len(passing) == len(hosts):
            return hosts
        passing_ids = {id(h) for h in passing}
        return [h for h in hosts if id(h) in passing_ids]


def _judge_load(door: runtime.SchedulerRuntime, groups: list[score_cache.ScoredHosts],
                spec: Any) -> list[Any]:
    """Return the hosts that pass by their measured load."""
    admitted: list[Any] = []
    passing: list[Any] = []
    for group in groups:
        if group.snapshot is not None:
            admitted += group.hosts
            passing += _filter_by_ceilings(group.hosts, group.snapshot, spec)
        elif group.reason and door.conf.kronos.fail_closed and door.scores.has_queried_source:
            LOG.warning('kronos: instance %s is refused %s, because fail_closed is '
                        'set and there are no scores: %s', spec.instance_uuid,
                        plurals.count_noun(len(group.hosts), 'host'), group.reason)
        else:
            admitted += group.hosts
            passing += group.hosts
    return admitted if not passing and not door.conf.kronos.hard_ceiling else passing


def find_limit_excesses(host: Any, limit: model.BootLimit, spec: Any) -> list[str]:
    """Return what the request would take of the reserve of a host, in words; empty: nothing.

    A class of which it takes nothing is not judged.
    """
    names = ('vCPUs', 'MiB of memory', 'GiB of disk')
    try:
        allocated = (host.vcpus_used, host.total_usable_ram_mb - host.free_ram_mb,
                     host.disk_mb_used / 1024)
        return [f'{used + more:g} {name} would be in use, above {most:g}'
                for used, more, most, name in zip(allocated, _sum_request(spec), limit, names,
                                                  strict=True) if more and used + more > most]
    except (AttributeError, TypeError):
        return []


def _sum_request(spec: Any) -> tuple[float, float, float]:
    """Return the vCPUs, MiB and GiB that Nova asks Placement for."""
    local = spec.ephemeral_gb + math.ceil(spec.swap / 1024)
    is_volume_backed = 'is_bfv' in spec and spec.is_bfv
    return spec.vcpus, spec.memory_mb, local if is_volume_backed else local + spec.root_gb


def _list_reserved_hosts(door: runtime.SchedulerRuntime, groups: list[score_cache.ScoredHosts],
                         spec: Any) -> set[int]:
    """Return the ids of the hosts on which the request would take room of the reserve."""
    limits = door.notices.read_boot_limits()
    if not limits or door.conf.kronos.failover_reserve == 'ignore':
        return set()
    request = _sum_request(spec)
    return {id(host) for group in groups for host in group.hosts
            if (limit := limits.get(host.host)) is not None
            and _exceeds_limit(host, limit, *request)}


def _exceeds_limit(host: Any, limit: model.BootLimit, vcpus: float, memory_mb: float,
             disk_gb: float) -> bool:
    """Return whether the amounts exceed the limit; False if nova-compute has reported nothing.

    An amount of 0 exceeds none, also on a host that is above the limit.
    """
    most_vcpus, most_memory_mb, most_disk_gb = limit
    try:
        return bool(
            vcpus and host.vcpus_used + vcpus > most_vcpus
            or memory_mb and (host.total_usable_ram_mb - host.free_ram_mb + memory_mb
                              > most_memory_mb)
            or disk_gb and host.disk_mb_used / 1024 + disk_gb > most_disk_gb)
    except (AttributeError, TypeError):
        return False


def _drop_hosts(groups: list[score_cache.ScoredHosts],
                dropped: set[int]) -> list[score_cache.ScoredHosts]:
    if not dropped:
        return groups
    return [dataclasses.replace(group, hosts=[h for h in group.hosts if id(h) not in dropped])
            for group in groups]


def _drop_unscored_hosts(groups: list[score_cache.ScoredHosts]) -> list[score_cache.ScoredHosts]:
    """Drop the hosts that have no score, unless no host has one."""
    scored_groups = [group if group.snapshot is None else dataclasses.replace(
        group, hosts=[h for h in group.hosts if h.host in group.snapshot.loads])
        for group in groups]
    return scored_groups if any(group.hosts for group in scored_groups) else groups


def _filter_by_ceilings(hosts: list[Any], snapshot: policy_scores.ScoreReading,
                        spec: Any) -> list[Any]:
    """Return the hosts that no ceiling refuses; hosts without a score pass."""
    for ceiling in snapshot.ceilings:
        loads = depletion.project_loads(hosts, ceiling.loads,
                                        *ceiling.compute_expected_use(spec.vcpus, spec.memory_mb))
        hosts = [host for host, load in zip(hosts, loads, strict=True)
                 if load is None or load <= ceiling.limit]
    return hosts
