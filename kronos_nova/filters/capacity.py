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


"""A filter that keeps new instances off hosts that are full by measured load."""

import dataclasses
from typing import Any

from oslo_log import log as logging

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
    """

    def judge(self, hosts: list[Any], spec: Any, moving: bool) -> list[Any]:
        if moving:
            return hosts
        door = runtime.get_runtime()
        admitted: list[Any] = []
        passing: list[Any] = []
        groups = door.list_scored_groups(hosts)
        if door.conf.kronos.unknown_hosts == 'exclude':
            groups = _drop_unscored_hosts(groups)
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
        if not passing and not door.conf.kronos.hard_ceiling:
            passing = admitted
        if len(passing) == len(hosts):
            return hosts
        passing_ids = {id(h) for h in passing}
        return [h for h in hosts if id(h) in passing_ids]


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
