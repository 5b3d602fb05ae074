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


"""Keeps new instances off hosts that are full by measured load."""

from collections.abc import Callable
from typing import Any

from oslo_log import log as logging

from kronos_nova import boot
from kronos_nova import scoreboard
from kronos_nova import scoring
from kronos_nova.filters import base

LOG = logging.getLogger(__name__)


class KronosCapacityFilter(base.KronosFilter):
    """New boots go to hosts at or below every policy's ``boot_ceiling``.

    Compared is what the host shows now and what the request is expected to
    add: its vCPUs (or MiB) times what an allocated one uses on these hosts.
    When every host is above, all pass, unless ``hard_ceiling``. Without fresh
    scores all pass, unless ``fail_closed``.
    """

    def judge(self, hosts: list[Any], spec: Any, moving: bool) -> list[Any]:
        if moving:
            return hosts
        door = boot.door()
        snapshot = door.look(hosts)
        if snapshot is None:
            if door.conf.kronos.fail_closed and door.scores.answered:
                LOG.warning('kronos: instance %s is refused every host, because fail_closed is '
                            'set and there are no scores: %s', spec.instance_uuid,
                            door.scores.reason)
                return []
            return hosts
        passing = hosts
        for ceiling in snapshot.ceilings:
            added = _expected(ceiling, hosts, spec)
            fill, limit = ceiling.fill, ceiling.limit
            passing = [h for h in passing
                       if h.host not in fill or fill[h.host] + added(h) <= limit]
        if passing or door.conf.kronos.hard_ceiling:
            return passing
        return hosts


def _expected(ceiling: scoreboard.Ceiling, hosts: list[Any],
              spec: Any) -> Callable[[Any], float]:
    """What the requested instance adds to a host's fill."""
    size = _memory if ceiling.memory else _vcpus
    asked = spec.memory_mb if ceiling.memory else spec.vcpus
    rows = [(ceiling.fill[h.host], *size(h)) for h in hosts if h.host in ceiling.fill]
    usage = scoring.usage_per_unit(rows) * asked

    def added(host: Any) -> float:
        total = size(host)[0]
        return float(usage / total) if total > 0 else 0.0

    return added


def _vcpus(host: Any) -> tuple[float, float]:
    """(total, allocated); fields that no compute has reported yet are None."""
    return host.vcpus_total or 0, host.vcpus_used or 0


def _memory(host: Any) -> tuple[float, float]:
    total = host.total_usable_ram_mb or 0
    return total, total - (host.free_ram_mb or 0)
