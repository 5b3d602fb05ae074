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

"""Reader of the part of the cloud that decides about one move, right now.

It reads as little as possible: the instance, both hosts, the instance's server groups and spread
sets with their members, and the migrations under way among these. The rules judge it as they judge
a whole Cluster.
"""

from collections.abc import Callable
import dataclasses
from typing import Any, TypeVar

from oslo_config import cfg

from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.constraints import hints
from kronos_nova.constraints import service_state
from kronos_nova.constraints import statuses
from kronos_nova.rebalancer.clients import allocations
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import cells
from kronos_nova.rebalancer.clients import collector
from kronos_nova.rebalancer.clients import hypervisors
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_trees
from kronos_nova.rebalancer.clients import server_constraints

T = TypeVar('T')

#: Statuses in which an instance has a migration that has not ended, also without a task.
_RESIZING = ('RESIZE', statuses.UNCONFIRMED, 'REVERT_RESIZE')


@dataclasses.dataclass(frozen=True, slots=True)
class PreflightView:
    """A fresh view; ``newest`` is the highest id of the instance's migrations, 0 without."""

    cluster: model.Cluster
    newest: int


class FreshReader:
    """Reader of the facts that a move's rules need; ApiError: they could not be read.

    :param connection: an openstacksdk connection.
    """

    def __init__(self, conf: cfg.ConfigOpts, connection: Any) -> None:
        self._conf = conf
        self.nova = nova_api.NovaApi(connection, server_constraints.make_disruption_settings(conf))
        self.placement = placement_api.PlacementApi(connection)
        self._trees = provider_trees.TreeReader(self.placement, allocations=False)
        self._hypervisors = hypervisors.HypervisorReader(self.nova)

    def read(self, task: model.Task, now: float) -> PreflightView:
        """Read the facts about one move.

        :raises ApiError: with status 404 and ``what`` naming the server when the instance is gone.
        """
        with parallel_reads.ReadingContext(self._conf.nova.collect_timeout) as reads:
            reads.read_one('Nova', 'supported API versions', self.nova.negotiate_microversions)
            migrations = reads.read_one('Nova', 'migrations',
                                        lambda: self.nova.list_migrations(task.instance_uuid))
            server = reads.read_one('Nova', 'servers',
                                    lambda: self.nova.read_server(task.instance_uuid))
            return PreflightView(self._read_cluster(reads, task, server, migrations, now),
                                 max((m.id for m in migrations), default=0))

    def _read_cluster(self, reads: parallel_reads.ReadingContext, task: model.Task,
                      server: nova_api.Server,
                      migrations: list[nova_api.Migration], now: float) -> model.Cluster:
        ends = sorted({task.from_host, task.to_host})
        aggregates = reads.start(self.nova.read_aggregates)
        by_end = reads.read_each('Nova', 'compute services', self.nova.read_services, ends)
        listed = reads.read_each('Nova', 'hypervisors', self._hypervisors.read_host_hypervisors,
                                 ends)
        services = {name: s for host_services in by_end.values()
                    for name, s in host_services.items()}
        groups = reads.read_each('Nova', 'server groups', self._read_group, server.group_uuids)
        found_groups = tuple(g for g in groups.values() if g is not None)
        hinted = self._list_hinted_instances(server.instance)
        uuids = sorted({u for g in found_groups for u in g.members}.union(hinted)
                       - {task.instance_uuid})
        members = reads.read_each('Nova', 'group members', self._read_member, uuids)
        others = {u: i for u, i in members.items() if i is not None and i.host}
        spread, more_groups = self._read_spread_mates(reads, task, server)
        others |= {u: i for u, i in spread.items() if u not in others}
        # Of spread mates, which may be many, only those that may be or come to be elsewhere.
        migrating = [u for u, i in others.items() if u not in spread or i.task_state is not None
                     or i.status in _RESIZING]
        for member_migrations in reads.read_each('Nova', 'migrations', self.nova.list_migrations,
                                                 migrating).values():
            migrations = migrations + member_migrations
        nodes, _notes = collector.choose_hypervisors(
            [h for host_hypervisors in listed.values() for h in host_hypervisors],
            self._conf.engine.hypervisor_types, services)
        forest = parallel_reads.read_with_retry(
            lambda: self._read_forest(reads, [n.uuid for n in nodes.values()]))
        named = reads.collect_result(aggregates, 'Nova', 'aggregates')
        hosts = collector.build_hosts(nodes, services, forest, cells.map_cells(
            named, self._conf.engine.cell_metadata_key, nodes))
        instance = server.instance
        if instance.host in hosts:
            instance = self._with_claims(reads, instance, hosts[instance.host])
        instances = {instance.uuid: instance, **others}
        return model.Cluster(
            hosts=hosts, services=services, instances=instances,
            groups=(*found_groups, *more_groups),
            flights=collector.list_flights([m for m in migrations if not m.has_ended], instances,
                                           now),
            aggregates={n: a.hosts for n, a in named.items()},
            aggregate_metadata={n: a.metadata for n, a in named.items()}, taken_at=now,
            sharing=collector.list_sharing_providers(hosts, forest),
            planned_zone=engine_conf.planned_zone(self._conf))

    def _read_spread_mates(self, reads: parallel_reads.ReadingContext, task: model.Task,
                           server: nova_api.Server,
                           ) -> tuple[dict[str, model.Instance], tuple[model.ServerGroup, ...]]:
        """Read the instances with which the rule of spreads compares, and their server groups.

        Only a set by a name, or of a whole project, has other instances than server groups.
        """
        asked, project = server.instance.spread, server.instance.project_id
        if task.phase in service_state.LEAVING or not any(
                request.name or not server.group_uuids for request in asked):
            return {}, ()
        listed = reads.read_one('Nova', 'servers',
                                lambda: self.nova.list_servers_of_project(project))
        mates = {u: i for u, i in listed.items()
                 if i.spread and i.host and u != task.instance_uuid}
        if all(request.name for request in asked):
            return mates, ()
        groups = reads.read_one('Nova', 'server groups', self.nova.server_groups)
        return mates, tuple(g for g in groups if not g.members.isdisjoint(mates)
                            and g.uuid not in server.group_uuids)

    def _read_forest(self, reads: parallel_reads.ReadingContext,
                     roots: list[str]) -> provider_trees.ProviderForest:
        """Read the provider trees of both hosts, and the providers that share with them.

        :raises ApiError: with status 409 when a tree changes all the time.
        """
        sharing = provider_trees.read_sharing(reads, self.placement)

        def list_providers() -> dict[str, placement_api.ListedProvider]:
            providers: dict[str, placement_api.ListedProvider] = {}
            for root in sorted(roots):
                providers |= self.placement.read_providers(in_tree=root)
            for uuid in sorted(sharing.list_sharing_with_tree(providers) - providers.keys()):
                providers |= {u: p for u, p in self.placement.read_providers(in_tree=uuid).items()
                              if u == uuid}
            return providers

        def is_relevant_provider(provider: placement_api.ListedProvider) -> bool:
            return provider.root_uuid in roots or provider.uuid in sharing.aggregates

        forest = self._trees.read(reads, list_providers, sharing, is_relevant_provider)
        trees = forest.map_trees()
        for root in sorted(roots):
            if forest.is_changing(root, trees.get(root, ())):
                raise api.ApiError('Placement', f'resource provider {root}',
                                   'its tree changes faster than it can be read', 409)
        return forest

    def _with_claims(self, reads: parallel_reads.ReadingContext, instance: model.Instance,
                     host: model.Host) -> model.Instance:
        own = reads.read_one('Placement', 'allocations',
                             lambda: self.placement.allocations_of(instance.uuid))
        return allocations.attach_claims(instance, own, host)

    def _list_hinted_instances(self, instance: model.Instance) -> set[str]:
        """Return the instances that the instance's hints name, where a filter looks at hints."""
        if {hints.SAME, hints.DIFFERENT}.isdisjoint(self._conf.engine.nova_enabled_filters):
            return set()
        return {uuid for uuids in instance.scheduler_hints.values() for uuid in uuids}

    def _read_group(self, uuid: str) -> model.ServerGroup | None:
        """Read a server group; None: it was deleted.

        :raises ApiError: this is no outage of Nova where a member's cell does not answer: tasks in
            other cells go on.
        """
        try:
            return _unless_gone(lambda: self.nova.server_group(uuid))
        except api.ApiError as exc:
            if (exc.status is None or exc.status < 500
                    or not hypervisors.misses_cell(self.nova)):
                raise
            raise api.ApiError('Nova', exc.what, 'a member may be in a cell that does not answer '
                                                 'Nova') from None

    def _read_member(self, uuid: str) -> model.Instance | None:
        server = _unless_gone(lambda: self.nova.read_server(uuid))
        return None if server is None else server.instance


def _unless_gone(read: Callable[[], T]) -> T | None:
    """Return the result of a read; None: the object was deleted meanwhile."""
    try:
        return read()
    except api.ApiError as exc:
        if exc.status == 404:
            return None
        raise
