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


"""Fields of a snapshot's files: Kronos 0.2.0's, and ours.

Fields with a default may be missing; unknown fields of a record are ignored. Hosts and instances
are named by Nova's service host and by UUID.
"""

from typing import Annotated, Literal

import pydantic

from kronos_nova.sources import snapshot_files as files

NODES = 'nova/hypervisors.json'
AGGREGATES = 'nova/aggregates.json'
AGGREGATE_METADATA = 'nova/aggregate_metadata.json'
INSTANCES = 'nova/instances.json'
GROUPS = 'nova/server_groups.json'
SERVICES = 'nova/services.json'
MIGRATIONS = 'nova/migrations.json'
PROVIDERS = 'placement/providers.json'
SHARING = 'placement/sharing.json'
ALLOCATIONS = 'placement/allocations.json'
BY_PROVIDER = 'placement/allocations_by_provider.json'
TRAITS = 'placement/cpu_traits.json'
COOLDOWNS = 'cooldowns.json'

Name = Annotated[str, files.Name]
#: Written by tenants or by people: shown after cleaning, never used.
Text = Annotated[str, pydantic.StringConstraints(max_length=65536)]
Count = Annotated[int, pydantic.Field(ge=0, le=2**63 - 1)]
Units = Annotated[int, pydantic.Field(ge=1, le=2**63 - 1)]
Seconds = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Amounts = dict[Name, Count]
Texts = dict[Text, Text]


class _SnapshotRecord(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)


class ContractRecord(_SnapshotRecord):
    """What one source states about an instance, as its keys are written."""

    source: Literal['metadata', 'tag', 'flavor', 'project']
    disruption: Literal['poweroff-ok', 'cold-ok', 'live', 'drain-only', 'never'] | None = None
    hours: Text | None = None
    max_moves: Text | None = None
    notify: Text | None = None
    release: Seconds | None = None
    ineffective: Count = 0
    unreadable: list[Literal['disruption', 'hours', 'max_moves', 'notify']] = []


class InstanceRecord(_SnapshotRecord):
    """An instance; the fields from ``task_state`` on are ours. ``local_disk_gb`` may be unknown.
    """

    uuid: Annotated[str, pydantic.StringConstraints(pattern=r'^[!-~]{1,255}$')]
    name: Text = ''
    internal_name: Text = ''
    host: Name | None = None
    flavor_vcpus: Count = 0
    flavor_ram_mb: Count = 0
    flavor_disk_gb: Count = 0
    status: Text = 'ACTIVE'
    task_state: Text | None = None
    locked: bool = False
    pinned: Text | None = None
    pinned_zone: Text | None = None
    project_id: Text = ''
    local_disk_gb: Count | None = None
    launched_at: Seconds | None = None
    extra_specs: Texts | None = None
    image_properties: Texts | None = None
    scheduler_hints: dict[Text, list[Name]] = {}
    power_state: Count | None = None
    opted_out: Text | None = None
    contracts: list[ContractRecord] = []
    spread: list[Text] = []


class GroupRecord(_SnapshotRecord):
    """A server group: ``policy``, or ``policies`` with one entry (Nova before 2.64)."""

    id: Name
    name: Text = ''
    policy: str | None = None
    policies: list[str] = []
    members: list[Name] = []
    rules: dict[str, object] | None = None


class ServiceRecord(_SnapshotRecord):
    host: Name
    binary: Text = 'nova-compute'
    state: Text
    status: Text
    zone: Text | None = ''
    disabled_reason: Text | None = None
    forced_down: bool = False


class NodeRecord(_SnapshotRecord):
    host: Name
    hypervisor_hostname: Text = ''
    uuid: Text = ''
    hypervisor_type: Text = 'QEMU'
    zone: Text = ''
    cell: Text | None = None
    hypervisor_version: Count = 0


class MigrationRecord(_SnapshotRecord):
    instance_uuid: Name
    from_host: Text
    to_host: Name | None = None
    source: Literal['nova', 'task'] = 'nova'
    alternates: list[Name] = []
    scope: Name | None = None
    slotless: bool = False


class InventoryRecord(_SnapshotRecord):
    total: Count
    reserved: Count = 0
    allocation_ratio: Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)] = 1.0
    min_unit: Units = 1
    max_unit: Units = 2**31 - 1
    step_size: Units = 1


class ProviderRecord(_SnapshotRecord):
    """A resource provider of a tree, or a sharing one; a root has no ``parent_uuid``."""

    uuid: Text
    generation: Count = 0
    inventories: dict[Name, InventoryRecord] = {}
    used: Amounts = {}
    name: Text = ''
    parent_uuid: Name | None = None
    traits: list[Name] = []
    aggregates: list[Name] = []


class RootProviderRecord(ProviderRecord):
    """A host's root provider, with the rest of its tree, parents first.

    ``sharing``: the UUIDs of the providers that share with it.
    """

    nested: list[ProviderRecord] = []
    sharing: list[Name] = []


class CompletedRecord(_SnapshotRecord):
    instance_uuid: Name
    from_host: Name
    to_host: Name
    phase: Literal['evacuate', 'affinity', 'spread', 'pack', 'requested']
    completed_at: Seconds


class MeasuredRecord(_SnapshotRecord):
    instance_uuid: Name
    memory_mb: Count
    disk_gb: Count
    running: Seconds
    other: Seconds = 0.0
    arrived: bool = True
    late: bool = False


class NoticeRecord(_SnapshotRecord):
    """A notice to the owner of an instance, as of model.MoveNotice."""

    instance_uuid: Name
    project_id: Text
    host: Name
    reason: Literal['drain', 'balance']
    noticed_at: Seconds
    movable_from: Seconds
    valid_until: Seconds
    may_shut_down: bool = False


class DrainDeadlineRecord(_SnapshotRecord):
    """A deadline of a drain, as of model.DrainDeadline."""

    at: Seconds
    disabled_reason: Text


_Pair = Annotated[list[Seconds], pydantic.Field(min_length=2, max_length=2)]


class QuietHoursRecord(_SnapshotRecord):
    """What decides which instances of drains wait for a quieter hour, as of model.MoveHistory.

    ``hourly_write_rates``: by instance, the begin of each hour and its rate. ``freezes``: begin and
    end of each.
    """

    hourly_write_rates: dict[Name, list[_Pair]] = {}
    awaited_write_rates: dict[Name, Seconds] = {}
    last_write_rates: dict[Name, Seconds] = {}
    freezes: list[_Pair] = []
    drain_begins: dict[Name, Seconds] = {}
    window_ends: dict[Name, Seconds] = {}
    drain_deadlines: dict[Name, DrainDeadlineRecord] = {}


class CooldownsRecord(_SnapshotRecord):
    """Cooldowns and other history: seconds remaining; -1 of a quarantine is for ever.

    The last fifteen fields are ours: hosts in quarantine, hosts whose disks are their own, pairs
    of hosts of different cells, hosts that Placement has refused by instance, instances that it has
    refused wherever tried, hosts being drained by scope, who has paused a scope and why, why its
    imbalance moves wait, ended moves, durations of attempts, times of moves that contracts count,
    notices to owners, hosts that a campaign still has to empty by scope, hosts that
    instances did not leave live in time, quieter hours of instances. The file may be written by
    hand, so a misspelt field is refused.
    """

    model_config = pydantic.ConfigDict(strict=True, extra='forbid')

    aggregate_cooldowns: dict[Name, Seconds] = {}
    instance_cooldowns: dict[Name, Seconds] = {}
    instance_quarantines: dict[Name, Seconds | Annotated[float, pydantic.Field(
        ge=-1, le=-1)]] = {}
    host_quarantines: list[Name] = []
    local_disk_hosts: list[Name] = []
    other_cells: list[Annotated[list[Name], pydantic.Field(
        min_length=2, max_length=2)]] = []
    placement_refused: dict[Name, list[Name]] = {}
    placement_refused_everywhere: list[Name] = []
    draining: dict[Name, list[Name]] = {}
    paused: dict[Name, Text] = {}
    waiting: dict[Name, Text] = {}
    completed: list[CompletedRecord] = []
    measured: list[MeasuredRecord] = []
    move_times: dict[Name, list[Seconds]] = {}
    notices: list[NoticeRecord] = []
    campaign_hosts: dict[Name, list[Name]] = {}
    late_drains: dict[Name, Name] = {}
    quiet_hours: QuietHoursRecord = QuietHoursRecord()


Aggregates = dict[Name, list[Name]]
Instances = dict[Name, list[InstanceRecord]]
