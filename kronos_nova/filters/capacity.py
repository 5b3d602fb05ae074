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

from typing import Any

from oslo_log import log as logging

from kronos_nova import boot
from kronos_nova.filters import base

LOG = logging.getLogger(__name__)


class KronosCapacityFilter(base.KronosFilter):
    """New boots go to hosts at or below every policy's ``boot_ceiling``.

    Compared is what the host shows now: nothing is known of how much a new
    instance will use. When every host is above, all pass, unless
    ``hard_ceiling``. Without fresh scores all pass, unless ``fail_closed``.
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
            fill, limit = ceiling.fill, ceiling.limit
            passing = [h for h in passing if fill.get(h.host, 0.0) <= limit]
        if passing or door.conf.kronos.hard_ceiling:
            return passing
        return hosts
