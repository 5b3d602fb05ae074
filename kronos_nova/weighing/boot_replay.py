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


"""Past boots, placed by Nova's weighers and ours in simulated time."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from nova import objects
from nova.scheduler import host_manager
from nova.scheduler import weights
from oslo_config import cfg

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.conf import bindings
from kronos_nova.constraints import claims
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import server_groups
from kronos_nova.rebalancer.backtest import backtest_run
from kronos_nova.rebalancer.backtest import history as pasts
from kronos_nova.rebalancer.backtest import world as worlds
from kronos_nova.scheduler import allocation_history
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import runtime
from kronos_nova.scheduler import score_cache

#: A boot counts its disk, unlike a migration over shared storage.
OPTIONS = model.PlanningOptions(enforce_placement_disk=True)
SOFT = (model.GroupPolicy.SOFT_AFFINITY, model.GroupPolicy.SOFT_ANTI_AFFINITY)


class ReplayDoor(runtime.SchedulerRuntime):
    """A Door that answers weighers from simulated samples; starts no thread.

    :param files: by path, policies for queries by host name.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 files: Mapping[str, policies.PolicySet]) -> None:
        super().__init__(conf)
        self._now = 0.0
        self._samples: dict[str, model.PolicySamples] = {}
        self._ledger = allocation_history.AllocationLedger()
        self._cards = {path: policy_scores.PolicyScorecard(conf, path, clock=lambda: self._now)
                       for path in files}
        self._bindings = bindings.PolicyBindings(files)

    def read_samples(self, hosts: list[Any], samples: Mapping[str, dict[str, model.PolicySamples]],
                     at: float) -> None:
        """Take the newest samples, and the allocation, of this time.

        :param samples: of each policy, by the path of its file.
        """
        self._now = at
        self._ledger.record_allocations(hosts, at, at)
        for path, card in self._cards.items():
            self._samples = samples[path]
            card.refresh_scores(lambda: self)  # type: ignore[arg-type,return-value]
            card.replace_reading(self._ledger.copy_tracks())

    def advance_time(self, now: float) -> None:
        """Set the time at which requests come."""
        self._now = now

    def fetch(self, policy: policies.Policy, *, profile: bool = True) -> model.PolicySamples:
        """Return the simulated samples of a policy, in place of a metrics source."""
        return self._samples[policy.name]

    def list_scored_groups(self, hosts: list[Any]) -> list[score_cache.ScoredHosts]:
        self._ledger.record_allocations(hosts, self._now, self._now)
        groups = []
        for index, some in self._bindings.group_hosts_by_index(hosts):
            if index is None:
                groups.append(score_cache.ScoredHosts(some, None))
                continue
            snapshot = self._cards[self._bindings.paths[index]].snapshot
            groups.append(score_cache.ScoredHosts(some, snapshot) if snapshot.reason is None else
                          score_cache.ScoredHosts(some, None, snapshot.reason))
        return groups


@dataclasses.dataclass(slots=True)
class BootCounts:
    """Numbers of instances: booted, placed elsewhere than in history, and without room.

    An instance without room goes to its host in history.
    """

    booted: int = 0
    elsewhere: int = 0
    without_room: int = 0


class BootReplay:
    """A chooser of hosts like nova-scheduler: rules admit hosts, weighers rank them.

    An instance goes to a host that is up and enabled, has room for it by Placement's
    inventories, keeps its server groups' hard rules and its zone, and is in the same
    aggregates and has the same hypervisor type as the instance's host in history.

    :param files: policies by the path of their file.
    :param weighers: objects of weigher classes, as nova.conf enables them.
    :param door: already given to :func:`runtime.replace_runtime`.
    :param metadata: of each aggregate; default: as recorded.
    :param ceiling: KronosCapacityFilter, where nova.conf enables it.
    """

    def __init__(self, past: pasts.LoadHistory, files: Mapping[str, policies.PolicySet],
                 weighers: Sequence[Any], door: ReplayDoor,
                 metadata: Mapping[str, Mapping[str, str]] | None = None,
                 ceiling: Any = None) -> None:
        self._past = past
        self._files = {path: (worlds.make_runnable_policies(policy_set),
                              backtest_run.map_policy_measures(past, policy_set))
                       for path, policy_set in files.items()}
        self._ceiling = ceiling
        cluster = past.cluster
        known = cluster.aggregate_metadata if metadata is None else metadata
        #: One object each: weighers remember them by identity.
        self._aggregates = [
            objects.Aggregate(id=number, name=name, hosts=list(hosts),
                              metadata=dict(known.get(name, {})))
            for number, (name, hosts) in enumerate(sorted(cluster.aggregates.items()), 1)]
        self._weighers = list(weighers)
        self._door = door
        self._handler = weights.HostWeightHandler()
        self._kind = [_build_host_kind(past.cluster, name) for name in past.hosts]
        self._groups: dict[str, list[model.ServerGroup]] = {}
        for group in past.cluster.groups:
            for uuid in group.members:
                self._groups.setdefault(uuid, []).append(group)
        self._states: list[Any] = []
        self.count = BootCounts()

    def begin_boots(self, world: worlds.InstancePlaces, k: int) -> None:
        """Give the door the samples of the time before ``k``."""
        at = self._past.window.compute_time(k - 1)
        self._states = [self._build_host_state(world, h) for h in range(len(self._past.hosts))]
        samples = {path: world.build_samples(policy_set, numbers, k - 1, at)
                   for path, (policy_set, numbers) in self._files.items()}
        self._door.read_samples(self._states, samples, at)
        self._door.advance_time(self._past.window.compute_time(k))

    def choose_host(self, world: worlds.InstancePlaces, k: int, n: int) -> int:
        home = int(self._past.home[k, n])
        cluster = self._past.cluster
        known = cluster.instances[self._past.uuids[n]]
        self.count.booted += 1
        legal = self._list_legal_hosts(world, known, home)
        if not legal:
            self.count.without_room += 1
            return home
        for h in legal:
            self._set_host_usage(self._states[h], world, h)
        spec, states = self._build_request_spec(known), [self._states[h] for h in legal]
        if self._ceiling is not None:
            states = list(self._ceiling.filter_all(states, spec))
        if not states:
            self.count.without_room += 1
            return home
        weighed = self._handler.get_weighed_objects(self._weighers, states, spec)
        chosen = self._states.index(weighed[0].obj)
        self.count.elsewhere += chosen != home
        return chosen

    def _list_legal_hosts(self, world: worlds.InstancePlaces, known: model.Instance,
                          home: int) -> list[int]:
        """Return the numbers of the hosts that may take the instance."""
        now = world.build_cluster(0.0, ())
        # The instance has no host yet.
        view = cluster_view.ClusterView(dataclasses.replace(now, instances={
            **now.instances, known.uuid: dataclasses.replace(known, host='')}), OPTIONS)
        return [h for h, name in enumerate(self._past.hosts)
                if self._kind[h] == self._kind[home] and self._is_legal_host(view, known, name)]

    @staticmethod
    def _is_legal_host(view: cluster_view.ClusterView, known: model.Instance, name: str) -> bool:
        service = view.find_service(name)
        if service is None or not service.available:
            return False
        if known.pinned_zone is not None and service.zone != known.pinned_zone:
            return False
        rejection = constraints.judge_move(
            view, model.Move(known.uuid, '', name, model.Phase.SPREAD),
            (claims.CLAIMS_RULE, server_groups.ANTI_AFFINITY_RULE, server_groups.AFFINITY_RULE))
        # The first member of a group goes anywhere.
        return rejection is None or rejection.rule == 'affinity-unmovable'

    def _build_host_state(self, world: worlds.InstancePlaces, h: int) -> Any:
        name = self._past.hosts[h]
        host = self._past.cluster.hosts[name]
        state = host_manager.HostState(name, host.hypervisor_hostname or name, '')
        state.hypervisor_hostname = host.hypervisor_hostname
        state.aggregates = [aggregate for aggregate in self._aggregates if name in aggregate.hosts]
        for ratio, resource_class in (('cpu', 'VCPU'), ('ram', 'MEMORY_MB'), ('disk', 'DISK_GB')):
            inventory = next((p.inventories[resource_class] for p in host.tree
                              if resource_class in p.inventories), None)
            setattr(state, f'{ratio}_allocation_ratio',
                    inventory.allocation_ratio if inventory is not None else 1.0)
        state.vcpus_total = host.sum_inventories('VCPU')
        state.total_usable_ram_mb = host.sum_inventories('MEMORY_MB')
        state.total_usable_disk_gb = host.sum_inventories('DISK_GB')
        self._set_host_usage(state, world, h)
        return state

    def _set_host_usage(self, state: Any, world: worlds.InstancePlaces, h: int) -> None:
        """Set the host state's usage and instances from the simulated world."""
        used = world.sum_allocated(h)
        state.vcpus_used = used.get('VCPU', 0)
        state.free_ram_mb = state.total_usable_ram_mb - used.get('MEMORY_MB', 0)
        state.free_disk_mb = (state.total_usable_disk_gb - used.get('DISK_GB', 0)) * 1024
        here = (self._past.uuids[n] for n in (world.place == h).nonzero()[0].tolist())
        state.instances = {uuid: self._past.cluster.instances[uuid] for uuid in here}
        state.num_instances = len(state.instances)

    def _build_request_spec(self, known: model.Instance) -> Any:
        group = next((g for g in self._groups.get(known.uuid, ()) if g.policy in SOFT), None)
        spec = objects.RequestSpec(
            flavor=objects.Flavor(
                vcpus=known.vcpus, memory_mb=known.memory_mb, root_gb=known.disk_gb,
                ephemeral_gb=0, swap=0, extra_specs={}),
            image=objects.ImageMeta(properties=objects.ImageMetaProps()),
            instance_uuid=known.uuid, project_id=known.project_id or None, num_instances=1,
            requested_destination=None, scheduler_hints={}, pci_requests=None,
            numa_topology=None, instance_group=None)
        if group is not None:
            spec.instance_group = objects.InstanceGroup(
                uuid=group.uuid, policy=group.policy.value, members=sorted(group.members))
        return spec


def _build_host_kind(cluster: model.Cluster, host: str) -> tuple[object, ...]:
    """Return the host properties that a flavor or an image may demand."""
    return (frozenset(name for name, hosts in cluster.aggregates.items() if host in hosts),
            cluster.hosts[host].hypervisor_type)
