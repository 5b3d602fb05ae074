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

"""Nova and Placement -> Cluster: complete, or an exception; never partial.

Order matters, because the cloud changes meanwhile, so the steps of a reading stay in one module.
Migrations are read before servers: one that
starts in between shows in its server's task_state, one that ends in between is still counted as
under way. Services are read first and last: the pages of the server list silently leave out a cell
that does not answer, the service list names it. Where all cells are named, scopes in other cells
are planned meanwhile. Servers that have not changed are remembered (see :mod:`server_list`).
Placement is read after the servers; its usages count every consumer that has come since, also
consumers that Nova does not know, which are a load that stays. A server among them shows that the
list was not complete (see :mod:`hidden_servers`), and a server without allocations on its host that
a change was missed.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.conf import engine as engine_conf
from kronos_nova.rebalancer.clients import allocations
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import cells
from kronos_nova.rebalancer.clients import hidden_servers
from kronos_nova.rebalancer.clients import hypervisors as hypervisors_reading
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import provider_trees
from kronos_nova.rebalancer.clients import server_constraints
from kronos_nova.rebalancer.clients import server_list

LOG = logging.getLogger(__name__)

#: Nova's task_state from the acceptance of a live migration to its end.
MIGRATING = 'migrating'
#: The task_state of a cold migration or resize until its host is prepared.
RESIZE_PREP = 'resize_prep'


class CloudCollector:
    """Reads the whole cloud; from Placement only changes (see :mod:`provider_trees`).

    :param connection: an openstacksdk connection.
    """

    def __init__(self, conf: cfg.ConfigOpts, connection: Any) -> None:
        self._conf = conf
        self._nova = nova_api.NovaApi(connection, server_constraints.make_disruption_settings(conf))
        self._placement = placement_api.PlacementApi(connection)
        self._trees = provider_trees.TreeReader(self._placement, remembers=True)
        self._hypervisors = hypervisors_reading.HypervisorReader(self._nova)
        self._servers = server_list.ServerListReader(self._nova, conf.nova.full_list_interval)
        self._hidden = hidden_servers.HiddenServers(self._nova)
        self._reported: frozenset[str] = frozenset()
        #: By instance, the UUIDs of its server groups, while a cell does not answer.
        self._groups_of: dict[str, tuple[str, ...]] = {}

    def collect_cluster(self, now: float) -> model.Cluster:
        """Read the whole cloud, as of about ``now``.

        A host whose resource provider Placement does not have, or whose tree changes all the time,
        gets ``provider=None``: with enforce_placement_claims it receives nothing.

        :param now: seconds since the epoch.
        :raises CollectError: a part could not be read, or not in time.
        """
        try:
            with parallel_reads.ReadingContext(self._conf.nova.collect_timeout) as reads:
                return self._read_cloud(reads, now)
        except api.ApiError as exc:
            raise exception.CollectError(
                what=exc.what, service=exc.service, problem=exc.problem) from None

    def _read_cloud(self, reads: parallel_reads.ReadingContext, now: float) -> model.Cluster:
        versions = 'supported API versions'
        reads.read_one('Nova', versions, self._nova.negotiate_microversions)
        reads.read_one('Placement', versions, self._placement.negotiate_microversions)
        # First and alone: an unreachable cell breaks other reads; this one says why.
        first = reads.read_one('Nova', 'compute services', self._nova.services_of_all_cells)
        away = has_silent_cell(first)
        named = reads.read_one('Nova', 'aggregates', self._nova.read_aggregates) if away else {}
        key = self._conf.engine.cell_metadata_key
        cells.find_unreadable_hosts((first,), named, key)
        listed = reads.start(lambda: self._hypervisors.read_again(
            first, now, self._conf.nova.full_list_interval))
        aggregates = reads.start(self._nova.read_aggregates)
        groups = None if away else reads.start(self._nova.server_groups)
        migrations = reads.read_one(
            'Nova', 'migrations', lambda: self._nova.migrations_under_way(now))
        servers, later = self._read_servers(reads, away, now)
        services = later[-1]
        reads.read_each('Nova', 'servers', self._check_rights,
                        of_two_projects(servers.instances.values()))
        hypervisors = reads.collect_result(listed, 'Nova', 'hypervisors')
        named = reads.collect_result(aggregates, 'Nova', 'aggregates')
        unreadable = cells.find_unreadable_hosts((first, *later), named, key)
        services = cells.hide_services(services, unreadable)
        nodes, notes = choose_hypervisors(hypervisors, self._conf.engine.hypervisor_types, services)
        if notes:
            self._hypervisors.forget_list()
        notes += cells.warn_about_unreadable_hosts(unreadable)
        forest = parallel_reads.read_with_retry(
            lambda: self._read_forest(reads, nodes, hypervisors))
        resources_by_consumer = forest.map_allocations()
        hosts = build_hosts(nodes, services, forest, cells.map_cells(named, key, nodes))
        if not unreadable:
            servers = self._compare_with_placement(
                reads, servers, hosts, resources_by_consumer, migrations, now)
        if any(host.provider is None for host in hosts.values()):
            # A compute node that was deleted and created again has another UUID.
            self._hypervisors.forget_list()
        frozen = frozenset(list_changing_hosts(nodes, forest))
        notes += without_provider(hosts, frozen, self._conf.engine.enforce_placement_claims)
        notes += cells.list_cell_warnings(hosts.values(), key)
        on_hosts = {uuid: i for uuid, i in servers.instances.items() if i.host}
        flights = list_flights(migrations, on_hosts, now)
        instances = with_claims(on_hosts, hosts, resources_by_consumer, {
            f.instance_uuid for f in flights}, migrations, frozen)
        if unreadable:
            grouped, instances, missing = self._groups_beside_a_silent_cell(
                reads, instances, servers.instances.keys() | servers.deleted)
            notes += missing
        else:
            self._groups_of.clear()
            grouped = (reads.read_one('Nova', 'server groups', self._nova.server_groups)
                       if groups is None else reads.collect_result(groups, 'Nova', 'server groups'))
        notes += warn_about_extra_specs(servers.instances.values())
        self._log_new_notes(notes)
        return model.Cluster(
            hosts=hosts, services=services, flights=flights, taken_at=now,
            instances=instances,
            groups=tuple(grouped), aggregates={n: a.hosts for n, a in named.items()},
            aggregate_metadata={n: a.metadata for n, a in named.items()},
            sharing=list_sharing_providers(hosts, forest),
            planned_zone=engine_conf.planned_zone(self._conf))

    def _read_servers(self, reads: parallel_reads.ReadingContext, away: bool, now: float,
                      ) -> tuple[server_list.ServerList, list[dict[str, model.Service]]]:
        """Read the servers, and then the services; read all servers where a cell is silent.

        :param away: a cell did not answer before.
        :returns: also the services as they were listed, one time after the other.
        """
        def read_services() -> dict[str, model.Service]:
            return reads.read_one('Nova', 'compute services', self._nova.services_of_all_cells)

        read = self._servers.read_all_servers if away else self._servers.read_servers
        servers = reads.read_one('Nova', 'servers', lambda: read(now))
        listed_services = [read_services()]
        if has_silent_cell(listed_services[0]) and not away:
            # The servers of the cell are remembered ones.
            servers = reads.read_one('Nova', 'servers', lambda: self._servers.read_all_servers(now))
            listed_services.append(read_services())
        if away or len(listed_services) > 1:
            # Servers of the cell may be missing.
            self._servers.forget_servers()
        return servers, listed_services

    def _compare_with_placement(
            self, reads: parallel_reads.ReadingContext, servers: server_list.ServerList,
            hosts: Mapping[str, model.Host], by_consumer: Mapping[str, allocations.Allocations],
            migrations: Sequence[nova_api.Migration], now: float) -> server_list.ServerList:
        """Return the servers after a look at those whose allocations say something else.

        :raises ApiError: the list lacks a server; or one could not be looked up.
        """
        displaced = allocations.list_displaced(
            servers.instances, hosts, by_consumer, {m.instance_uuid for m in migrations})
        servers = self._servers.look_up_doubtful(reads, servers, displaced, now)
        try:
            self._hidden.refuse_incomplete_list(
                reads, by_consumer.keys() - servers.instances.keys() - servers.deleted
                - {migration.uuid for migration in migrations}, now)
        except api.ApiError:
            self._servers.forget_servers()
            raise
        return servers

    def _read_forest(self, reads: parallel_reads.ReadingContext,
                     nodes: Mapping[str, nova_api.Hypervisor],
                     hypervisors: Iterable[nova_api.Hypervisor]) -> provider_trees.ProviderForest:
        """Read the providers of the hosts from Placement.

        Every provider is read except those of other hypervisors: an instance may have allocations
        on any. Providers that share are read in any case, for the allocations that are only there.
        """
        sharing = provider_trees.read_sharing(reads, self._placement)
        foreign = {h.uuid for h in hypervisors}.difference(n.uuid for n in nodes.values())

        def is_wanted_provider(provider: placement_api.ListedProvider) -> bool:
            return provider.root_uuid not in foreign or provider.uuid in sharing.aggregates

        def list_wanted_providers() -> dict[str, placement_api.ListedProvider]:
            return {uuid: p for uuid,
                    p in self._placement.read_providers().items() if is_wanted_provider(p)}

        return self._trees.read(reads, list_wanted_providers, sharing, is_wanted_provider)

    def _groups_beside_a_silent_cell(
            self, reads: parallel_reads.ReadingContext, instances: Mapping[str, model.Instance],
            listed: Collection[str],
            ) -> tuple[list[model.ServerGroup], dict[str, model.Instance], list[str]]:
        """Read the server groups; pin the members of groups that are not fully known.

        Nova does not say which groups it cannot show. So the group of each server that is in no
        other group is read from the server. The answer is remembered, because a server keeps its
        group.

        :param listed: UUIDs of all servers that Nova has listed.
        """
        listed_groups = reads.read_one('Nova', 'server groups', self._nova.readable_server_groups)
        hidden = {uuid for group in listed_groups.groups if not group.members <= set(listed)
                  for uuid in group.members & instances.keys()}
        known = {uuid for group in listed_groups.groups for uuid in group.members}
        self._groups_of = {u: g for u, g in self._groups_of.items() if u in instances}
        if listed_groups.unreadable:
            reads.read_each('Nova', 'servers', self._ask_groups,
                            [uuid for uuid in sorted(instances)
                             if uuid not in known and uuid not in self._groups_of])
            hidden |= {uuid for uuid, groups in self._groups_of.items()
                       if uuid not in known and not listed_groups.uuids.issuperset(groups)}
        if not hidden:
            return listed_groups.groups, dict(instances), []
        return listed_groups.groups, {
            uuid: dataclasses.replace(instance, pinned=instance.pinned or (
                'group-unreadable: its server group has a member in a cell that does not answer '
                'Nova')) if uuid in hidden else instance
            for uuid, instance in instances.items()}, [
                f'Nova does not show all members of some server groups while a cell does not '
                f'answer: the {len(hidden)} members that it shows do not move.']

    def _ask_groups(self, uuid: str) -> None:
        try:
            self._groups_of[uuid] = self._nova.read_server(uuid).group_uuids
        except api.ApiError as exc:
            if exc.status != 404:  # it is gone
                raise

    def _check_rights(self, uuid: str) -> None:
        """Raise ApiError if Nova denies a server.

        Nova hides other projects' server groups, without an error, from a user who may not see
        their servers.
        """
        try:
            self._nova.read_server(uuid)
        except api.ApiError as exc:
            if exc.status != 404:
                raise

    def _log_new_notes(self, notes: Iterable[str]) -> None:
        """Log each omission that the last reading did not have."""
        current = frozenset(notes)
        for note in sorted(current - self._reported):
            LOG.warning('%s', note)
        self._reported = current


def has_silent_cell(services: Mapping[str, model.Service]) -> bool:
    """Return whether a cell does not answer Nova, by the list of services."""
    return any(service.status == model.UNKNOWN for service in services.values())


def choose_hypervisors(hypervisors: Iterable[nova_api.Hypervisor], types: Collection[str],
                       services: Mapping[str, model.Service],
                       ) -> tuple[dict[str, nova_api.Hypervisor], list[str]]:
    """Return the hypervisor of each host that can be planned, and warnings about others.

    Hosts of other types (ironic) get no warning.
    """
    by_host: dict[str, list[nova_api.Hypervisor]] = {}
    for hypervisor in hypervisors:
        by_host.setdefault(hypervisor.host, []).append(hypervisor)
    nodes, notes = {}, []
    for host, own_hypervisors in sorted(by_host.items()):
        if not any(h.type in types for h in own_hypervisors):
            LOG.debug('Host %s is not planned: hypervisor type %s', host, own_hypervisors[0].type)
        elif host in services and services[host].status == model.UNKNOWN:
            LOG.debug('Host %s is not planned: its cell does not answer', host)
        elif host not in services:
            notes.append(f'Host {host} has a hypervisor but no nova-compute service and is not '
                         'planned. Delete the left-over record or start its nova-compute.')
        elif len(own_hypervisors) > 1:
            notes.append(f'Host {host} has {len(own_hypervisors)} hypervisors and is not planned: '
                         'only hosts with exactly one can be.')
        else:
            nodes[host] = own_hypervisors[0]
    notes += [f'Host {host} has no hypervisor record yet and is not planned.'
              for host in sorted(services.keys() - by_host.keys())
              if services[host].status != model.UNKNOWN]
    return nodes, notes


def warn_about_extra_specs(servers: Iterable[model.Instance]) -> list[str]:
    """Return the warning for the case that Nova hides the extra specs of flavors."""
    if all(s.extra_specs is not None for s in servers):
        return []
    return ['Nova does not show the extra specs of flavors: rules about them are left to Nova, '
            'which then refuses some moves, and contracts of flavors (kronos:disruption, '
            'kronos:hours, kronos:max_moves, kronos:notify) have no effect. Give the user of '
            '[nova] a role that '
            'policy os_compute_api:servers:show:flavor-extra-specs allows.']


def of_two_projects(servers: Iterable[model.Instance]) -> list[str]:
    """Return servers of two projects: at least one is of another project than ours."""
    by_project = {s.project_id: s.uuid for s in servers}
    return [uuid for _project, uuid in sorted(by_project.items())[:2]]


def build_hosts(nodes: Mapping[str, nova_api.Hypervisor], services: Mapping[str, model.Service],
                forest: provider_trees.ProviderForest,
                cells_of: Mapping[str, str]) -> dict[str, model.Host]:
    """Return the hosts by name.

    Their providers are found by the UUID of the compute node, never by a name; those
    :func:`list_changing_hosts` have none.

    :param cells_of: by host, where a cell is named.
    """
    trees = forest.map_trees()
    frozen = set(list_changing_hosts(nodes, forest))
    out = {}
    for name, node in nodes.items():
        uuids = () if name in frozen else trees.get(node.uuid, ())
        tree = tuple(forest.find_provider(uuid) for uuid in uuids)
        out[name] = model.Host(
            name=node.host, hypervisor_hostname=node.hostname, uuid=node.uuid,
            hypervisor_type=node.type, zone=services[name].zone, cell=cells_of.get(name),
            provider=tree[0] if tree else None, nested=tree[1:],
            traits=tree[0].traits if tree else frozenset(),
            hypervisor_version=node.version,
            sharing=forest.sharing.list_sharing_with_tree(uuids) & forest.contents.keys())
    return out


def list_changing_hosts(nodes: Mapping[str, nova_api.Hypervisor],
                        forest: provider_trees.ProviderForest) -> list[str]:
    """Return names of the hosts whose providers are not known as of one moment."""
    trees = forest.map_trees()
    return [name for name, node in nodes.items()
            if forest.is_changing(node.uuid, trees.get(node.uuid, ()))]


def without_provider(hosts: Mapping[str, model.Host], frozen: Collection[str],
                     enforced: bool = True) -> list[str]:
    """Return the warnings about hosts without a provider.

    :param frozen: names of the hosts that are :func:`list_changing_hosts`.
    :param enforced: enforce_placement_claims.
    """
    consequence = 'no instance leaves it' + (', and it receives none' if enforced else '')
    closed = ('receives no instance' if enforced else
              'is planned all the same, as enforce_placement_claims is false; Nova refuses '
              'moves to it')
    return [f'The resource providers of host {h.name} ({h.uuid}) change faster than they can be '
            f'read. Until they rest it is taken for one without: {consequence}. See what writes to '
            'Placement: the log of its nova-compute.'
            if h.name in frozen else
            f'Host {h.name} has no resource provider {h.uuid} in Placement and {closed}. See the '
            'log of its nova-compute.'
            for h in hosts.values() if h.provider is None]


def list_sharing_providers(hosts: Mapping[str, model.Host],
                           forest: provider_trees.ProviderForest) -> dict[str, model.Provider]:
    """Return the providers that share with any of the hosts, by UUID."""
    return {uuid: forest.find_provider(uuid)
            for uuid in sorted({uuid for host in hosts.values() for uuid in host.sharing})}


def list_flights(migrations: Iterable[nova_api.Migration],
                 instances: Mapping[str, model.Instance], now: float) -> tuple[model.InFlightMove,
                                                                               ...]:
    """Return moves under way: by record, or by task_state while Nova has not written a record.

    Ignore records of instances that are gone, and of live migrations that Nova left behind.
    """
    newest = {m.instance_uuid: m for m in sorted(migrations, key=lambda m: m.id)}
    flights = [model.InFlightMove(m.instance_uuid, m.from_host or '', m.to_host)
               for m in newest.values() if m.instance_uuid in instances
               and not _is_left_behind(m, instances[m.instance_uuid], now)]
    flights += [model.InFlightMove(i.uuid, i.host, None) for i in instances.values()
                if i.task_state in (MIGRATING, RESIZE_PREP) and i.uuid not in newest]
    return tuple(sorted(flights, key=lambda f: f.instance_uuid))


def _is_left_behind(migration: nova_api.Migration, instance: model.Instance,
                    now: float) -> bool:
    return (migration.type == nova_api.LIVE_MIGRATION and instance.task_state is None
            and migration.is_unchanged(now))


def with_claims(instances: Mapping[str, model.Instance], hosts: Mapping[str, model.Host],
                by_consumer: Mapping[str, allocations.Allocations], in_flight: Collection[str],
                migrations: Iterable[nova_api.Migration],
                frozen: Collection[str] = ()) -> dict[str, model.Instance]:
    """Return instances with their allocations (see :mod:`allocations`); skip those in flight.

    :param migrations: those under way, which hold allocations themselves.
    :param frozen: names of hosts whose providers are not known.
    """
    held: dict[str, list[allocations.Allocations]] = {}
    for migration in migrations:
        held.setdefault(migration.instance_uuid, []).append(by_consumer.get(migration.uuid, {}))
    out = {}
    for uuid, instance in instances.items():
        own = by_consumer.get(uuid, {})
        host = hosts.get(instance.host)
        if host is None:
            out[uuid] = dataclasses.replace(
                instance, pinned='host-not-planned: its host is not planned')
        elif host.name in frozen and uuid not in in_flight:
            out[uuid] = dataclasses.replace(
                instance, pinned=instance.pinned or 'providers-changing: the resource providers of '
                'its host change faster than they can be read')
        elif uuid in in_flight:
            out[uuid] = allocations.find_flight_claims(instance, own, held.get(uuid, ()), host)
        else:
            out[uuid] = allocations.attach_claims(instance, own, host)
    return out
