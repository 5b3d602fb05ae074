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


"""The few attributes of Nova's objects that our plug-ins read.

The tests in tests/functional hold them against the real ones.
"""

import dataclasses
from typing import Any
from unittest import mock

from kronos_nova.feed import feed_channel
from kronos_nova.scheduler import guard
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import runtime
from kronos_nova.scheduler import score_cache


class Fields:
    """Like a versioned object: ``name in obj`` says whether a field is set."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__


@dataclasses.dataclass
class HostState:
    host: str
    hypervisor_hostname: str | None = None
    nodename: str = 'node'
    instances: dict[str, Any] = dataclasses.field(default_factory=dict)
    aggregates: list[Any] = dataclasses.field(default_factory=list)
    vcpus_total: int | None = 0
    vcpus_used: int | None = 0
    total_usable_ram_mb: int | None = 0
    free_ram_mb: int | None = 0
    disk_mb_used: int | None = 0
    updated: Any = None
    num_instances: int = 0
    uuid: str | None = None


def hosts(*names: str) -> list[HostState]:
    return [HostState(name, name) for name in names]


def spec(**fields: Any) -> Fields:
    return Fields(**{'instance_uuid': 'u-new', 'instance_group': None, 'scheduler_hints': {},
                     'requested_destination': None, 'vcpus': 1, 'memory_mb': 1024,
                     'root_gb': 0, 'ephemeral_gb': 0, 'swap': 0,
                     **fields})


class FakeDoor:
    """A door that shows what a test puts there; errors are counted."""

    def __init__(self, snapshot: policy_scores.ScoreReading | None = None,
                 notice: feed_channel.PublishedState | None = None, **options: Any) -> None:
        self.snapshot = snapshot
        self.faults = guard.FAULTS
        self.faults.clear()
        self.notices = mock.Mock(read_publication=mock.Mock(return_value=notice),
                                 read_boot_limits=mock.Mock(
                                     return_value=options.get('limits', {})))
        self.scores = mock.Mock(has_queried_source=True, missing_score_reason='a reason')
        self.conf = mock.Mock()
        self.conf.kronos.hard_ceiling = options.get('hard_ceiling', False)
        self.conf.kronos.unknown_hosts = options.get('unknown_hosts', 'mean')
        self.conf.kronos.failover_reserve = options.get('failover_reserve', 'prefer')
        self.conf.kronos.fail_closed = options.get('fail_closed', False)
        self.conf.filter_scheduler.enabled_filters = options.get(
            'enabled_filters', ['DifferentHostFilter', 'SameHostFilter'])
        self.kept: dict[type, Any] = {}

    def list_scored_groups(self, hosts: Any) -> list[score_cache.ScoredHosts]:
        return [score_cache.ScoredHosts(hosts, self.snapshot, '' if self.snapshot else 'a reason')]

    def get_shared_state(self, kind: type) -> Any:
        return self.kept[kind]

    def opened(self) -> Any:
        return mock.patch.object(runtime, '_door', self)
