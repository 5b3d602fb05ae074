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
"""Resources of the cloud as an engine has read it: hosts, instances and policies.

``read_at`` is the time at which the engine began to read.
"""

import datetime
from typing import Self

import pydantic

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.api import resources
from kronos_nova.api import values
from kronos_nova.rebalancer.operations import published_cloud
from kronos_nova.rebalancer.operations import published_views
from kronos_nova.rebalancer.operations import views


class HostLoad(values.Resource):
    """Load of a host under a policy, in [0, 1]; null: not known."""

    policy: str
    score: float | None
    fill: float | None = pydantic.Field(description='Value that ceilings are compared with.')
    base: float | None = pydantic.Field(description='Part of the score that no instance explains.')
    coverage: float | None = pydantic.Field(description='Share that instances explain.')

    @classmethod
    def from_model(cls, load: views.HostLoad) -> Self:
        return cls(policy=load.policy, score=load.score, fill=load.fill, base=load.base,
                   coverage=load.coverage)


class ResourceUse(values.Resource):
    """Amounts of a resource class in the host's tree of providers, in units of the class."""

    resource_class: str
    capacity: float = pydantic.Field(description='Amount that Placement lets consumers allocate.')
    used: int


class Host(values.Resource):
    """A host of a scope."""

    name: str
    scope: str
    read_at: datetime.datetime
    zone: str | None
    cell: str | None
    is_up: bool | None = pydantic.Field(description='null: it has no nova-compute.')
    is_enabled: bool | None
    disabled_reason: str | None
    draining: bool = pydantic.Field(description='A pack drain of the host goes on.')
    quarantined: bool
    instance_count: int
    resources: list[ResourceUse]
    loads: list[HostLoad]

    @classmethod
    def from_listed(cls, listed: published_views.ListedHost) -> Self:
        service, host = listed.service, listed.host
        used: dict[str, int] = {}
        for provider in host.tree:
            for name, amount in provider.used.items():
                used[name] = used.get(name, 0) + amount
        return cls(
            name=host.name, scope=listed.scope, read_at=values.make_time(listed.read_at),
            zone=(host.zone if service is None else service.zone) or None, cell=host.cell,
            is_up=None if service is None else service.up,
            is_enabled=None if service is None else service.enabled,
            disabled_reason=None if service is None else service.disabled_reason,
            draining=listed.draining, quarantined=listed.quarantined,
            instance_count=listed.portrait.instances,
            resources=[ResourceUse(resource_class=name, capacity=capacity, used=used.get(name, 0))
                       for name, capacity in sorted(host.sum_capacities().items())],
            loads=[HostLoad.from_model(load) for load in listed.portrait.loads])


class ContractStatement(values.Resource):
    """What one source states about an instance; null: it does not say."""

    source: model.ContractSource
    disruption: model.Disruption | None
    hours: str | None = pydantic.Field(
        description='A cron expression: it may begin to move in each minute that matches.')
    max_moves: str | None = pydantic.Field(description='Most moves and a time, such as 2/7d.')
    notify: str | None = pydantic.Field(
        description='Time between a notice to its owner and a move, such as 24h.')
    released_until: datetime.datetime | None = pydantic.Field(
        description='Until then its owner waives notices.')
    unreadable: list[str] = pydantic.Field(
        description='Keys whose values cannot be read: the most careful meaning counts.')

    @classmethod
    def from_model(cls, stated: model.Contract) -> Self:
        return cls(source=stated.source, disruption=stated.disruption,
                   hours=None if stated.hours is None else str(stated.hours),
                   max_moves=None if stated.max_moves is None else str(stated.max_moves),
                   notify=None if stated.notify is None else str(stated.notify),
                   released_until=values.make_optional_time(stated.release),
                   unreadable=list(stated.unreadable))


class InstanceSummary(values.Resource):
    """An instance. Its name comes from its owner, and several may have one."""

    id: str
    name: str
    host: str
    scope: str | None = pydantic.Field(description='null: no engine plans the host.')
    read_at: datetime.datetime
    project_id: str
    status: str
    task_state: str | None
    locked: bool
    vcpus: int
    memory_mib: int
    disk_gib: int
    local_disk_gib: int | None = pydantic.Field(
        description='Its disks besides volumes; null: not known.')
    launched_at: datetime.datetime | None
    pinned: str | None = pydantic.Field(description='Why Kronos must never move it.')
    opted_out: str | None = pydantic.Field(description='Where its owner has opted out of moves.')
    contracts: list[ContractStatement] = pydantic.Field(
        description='What its metadata, its tags, its flavor and the operator state.')

    @classmethod
    def from_listed(cls, listed: published_views.ListedInstance) -> Self:
        instance = listed.instance
        return cls(
            id=instance.uuid, name=instance.name, host=instance.host, scope=listed.scope,
            read_at=values.make_time(listed.read_at), project_id=instance.project_id,
            status=instance.status, task_state=instance.task_state, locked=instance.locked,
            vcpus=instance.vcpus, memory_mib=instance.memory_mb, disk_gib=instance.disk_gb,
            local_disk_gib=instance.local_disk_gb,
            launched_at=values.make_optional_time(instance.launched_at), pinned=instance.pinned,
            opted_out=instance.opted_out,
            contracts=[ContractStatement.from_model(stated) for stated in instance.contracts])


class InstanceShare(values.Resource):
    """Share of an instance in its host's load under a policy; null: not known."""

    policy: str
    usage: float | None = pydantic.Field(description='In the unit of the policy.')
    host_ratio: float | None = pydantic.Field(description="Ratio of the host's capacity.")


class GroupPlacement(values.Resource):
    """A server group of an instance, with the number of its members by host."""

    id: str
    policy: str
    member_counts: dict[str, int]


class Instance(InstanceSummary):
    """An instance with its holds as of now, its server groups, and its newest tasks."""

    shares: list[InstanceShare]
    rejections: list[resources.Rejection] = pydantic.Field(
        description='Rules that keep it on its host, for every destination.')
    holds: list[str] = pydantic.Field(
        description='Why nothing in its scope moves now, or nothing for balance.')
    held_for_seconds: float | None = pydantic.Field(
        description='Until the last rejection ends; null: one does not end, or it is not known.')
    server_groups: list[GroupPlacement]
    tasks: list[resources.TaskSummary]

    @classmethod
    def from_shown(cls, shown: published_views.ShownInstance) -> Self:
        listed, state = shown.listed, shown.state
        summary = dict(InstanceSummary.from_listed(listed))
        if state is None:
            hold = f'host {listed.instance.host} belongs to no scope that engines plan'
            return cls(**summary, shares=[], rejections=[], holds=[hold], held_for_seconds=None,
                       server_groups=[], tasks=[])
        portrait = state.portrait
        return cls(
            **summary,
            shares=[InstanceShare(policy=share.policy, usage=share.usage, host_ratio=share.ratio)
                    for share in portrait.shares],
            rejections=[resources.Rejection.from_model(rejection) for rejection in portrait.held],
            holds=list(portrait.holds), held_for_seconds=portrait.wait,
            server_groups=[GroupPlacement(id=uuid, policy=policy, member_counts=dict(counts))
                           for uuid, (policy, counts) in portrait.groups.items()],
            tasks=[resources.TaskSummary.from_row(row) for row in state.tasks])


class Policy(values.Resource):
    """A policy: queries that score hosts, its weight, and its thresholds in [0, 1]."""

    name: str
    enabled: bool
    weight: float
    threshold: float = pydantic.Field(description='Imbalance above which instances are moved.')
    max_moves_per_cycle: int
    imbalance_query: str
    capacity_query: str | None
    instance_query: str | None
    age_query: str | None
    boot_ceiling: float | None
    fill_target: float | None

    @classmethod
    def from_model(cls, configured: policy.Policy) -> Self:
        return cls(
            name=configured.name, enabled=configured.enabled, weight=configured.weight,
            threshold=configured.threshold,
            max_moves_per_cycle=configured.max_migrations_per_cycle,
            imbalance_query=configured.imbalance_query, capacity_query=configured.capacity_query,
            instance_query=configured.vm_profile_query, age_query=configured.age_query,
            boot_ceiling=configured.boot_ceiling, fill_target=configured.fill_target)


class UntrustedPolicy(values.Resource):
    """A policy whose scores a scope does not use, and why."""

    scope: str
    policy: str
    reason: str


class PolicySet(values.Resource):
    """The policies of an engine, with the scopes that it plans."""

    scopes: list[str]
    read_at: datetime.datetime
    mode: str
    policies: list[Policy]
    untrusted: list[UntrustedPolicy]

    @classmethod
    def from_reading(cls, reading: published_cloud.PublishedReading) -> Self:
        policy_set = reading.content.policies
        return cls(
            scopes=list(reading.scopes), read_at=values.make_time(reading.taken_at),
            mode=policy_set.mode,
            policies=[Policy.from_model(configured) for configured in policy_set.policies],
            untrusted=[UntrustedPolicy(scope=scope, policy=name, reason=scores.untrusted)
                       for scope in reading.scopes for name, scores
                       in sorted(reading.content.scopes[scope].scores.policies.items())
                       if scores.untrusted])
