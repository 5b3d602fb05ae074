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

Order matters, because nothing stands still meanwhile. Migrations are read
before servers: one that starts in between shows in its server's task_state,
one that ends in between is still counted as under way. Services are read
first and last: the pages of the server list silently leave out a cell that
does not answer, the service list names it. Placement is read after the
servers; its usages count whatever else has come since.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import nova_api
from kronos_nova.rebalancer.clients import pins
from kronos_nova.rebalancer.clients import placement_api
from kronos_nova.rebalancer.clients import reading

LOG = logging.getLogger(__name__)

#: Nova's task_state from the acceptance of a live migration to its end.
MIGRATING = 'migrating'
#: As well of a cold migration or resize, to where its host is prepared.
RESIZE_PREP = 'resize_prep'


@dataclasses.dataclass(frozen=True, slots=True)
class Claims:
    """Placement's part: providers and traits by UUID, what each consumer has
    on which provider, and root provider by provider."""

    providers: Mapping[str, model.Provider]
    traits: Mapping[str, frozenset[str]]
    allocations: Mapping[str, Mapping[str, placement_api.Resources]]
    root_of: Mapping[str, str]


class Collector:
    """Reads the whole cloud.

    :param connection: an openstacksdk connection.
    """

    def __init__(self, conf: cfg.ConfigOpts, connection: Any) -> None:
        self._conf = conf
        self._nova = nova_api.NovaApi(connection, pins.opt_out(conf))
        self._placement = placement_api.PlacementApi(connection)
        self._reported: frozenset[str] = frozenset()

    def collect(self, now: float) -> model.Cluster:
        """Everything, as of about ``now``.

        A host whose resource provider Placement does not have gets
        ``provider=None``: with enforce_placement_claims it receives nothing.

        :param now: seconds since the epoch.
        :raises CollectError: any part could not be read, or not in time.
        """
        try:
            with reading.Reading(self._conf.nova.collect_timeout) as reads:
                return self._collect(reads, now)
        except api.ApiError as exc:
            raise exception.CollectError(
                what=exc.what, service=exc.service, problem=exc.problem) from None

    def _collect(self, reads: reading.Reading, now: float) -> model.Cluster:
        versions = 'supported API versions'
        reads.one('Nova', versions, self._nova.negotiate)
        reads.one('Placement', versions, self._placement.negotiate)
        # First and alone: of what an unreachable cell breaks, it says why.
        reads.one('Nova', 'compute services', self._nova.services)
        listed = reads.start(self._nova.hypervisors)
        aggregates = reads.start(self._nova.aggregates)
        groups = reads.start(self._nova.server_groups)
        migrations = reads.one(
            'Nova', 'migrations', lambda: self._nova.migrations_under_way(now))
        servers = reads.one('Nova', 'servers', self._nova.servers)
        services = reads.one('Nova', 'compute services', self._nova.services)
        reads.each('Nova', 'servers', self._check_rights, of_two_projects(servers))
        hypervisors = reads.result(listed, 'Nova', 'hypervisors')
        nodes, notes = planned(hypervisors, self._conf.engine.hypervisor_types, services)
        claims = reading.again(lambda: self._claims(reads, nodes, hypervisors))
        hosts = {name: host_of(node, services[name], claims) for name, node in nodes.items()}
        notes += [f'Host {h.name} has no resource provider {h.uuid} in Placement and receives no '
                  'instance. See the log of its nova-compute.'
                  for h in hosts.values() if h.provider is None]
        on_hosts = {i.uuid: i for i in servers if i.host and i.status != 'DELETED'}
        flights = flights_of(migrations, on_hosts)
        named = reads.result(aggregates, 'Nova', 'aggregates')
        grouped = reads.result(groups, 'Nova', 'server groups')
        notes += not_shown(servers)
        self._report(notes)
        return model.Cluster(
            hosts=hosts, services=services, flights=flights, taken_at=now,
            instances=with_claims(on_hosts, hosts, claims, {f.instance_uuid for f in flights}),
            groups=tuple(grouped), aggregates={n: a.hosts for n, a in named.items()},
            aggregate_metadata={n: a.metadata for n, a in named.items()})

    def _claims(self, reads: reading.Reading, nodes: Mapping[str, nova_api.Hypervisor],
                hypervisors: Iterable[nova_api.Hypervisor]) -> Claims:
        """What Placement has for these hosts.

        Allocations are read from every provider but those of other
        hypervisors, since any can be nested in a host or shared with it.
        """
        listed = reads.one('Placement', 'resource providers', self._placement.providers)
        ours = sorted(n.uuid for n in nodes.values() if n.uuid in listed)
        foreign = {h.uuid for h in hypervisors}.difference(ours)
        relevant = sorted(p.uuid for p in listed.values() if p.root_uuid not in foreign)
        providers = reads.each(
            'Placement', 'resource providers', self._placement.provider, ours)
        on = reads.each(
            'Placement', 'allocations', self._placement.allocations_on, relevant)
        traits: dict[str, frozenset[str]] = {}
        if self._conf.engine.require_cpu_compatibility:
            traits = reads.each('Placement', 'traits', self._placement.traits, ours)
        return Claims(providers, traits, by_consumer(on),
                      {p.uuid: p.root_uuid for p in listed.values()})

    def _check_rights(self, uuid: str) -> None:
        """Nova hides other projects' server groups, without an error, from
        whom it denies their servers."""
        try:
            self._nova.server(uuid)
        except api.ApiError as exc:
            if exc.status != 404:
                raise

    def _report(self, notes: Iterable[str]) -> None:
        """Log what is left out, when it was not so the last time."""
        current = frozenset(notes)
        for note in sorted(current - self._reported):
            LOG.warning('%s', note)
        self._reported = current


def planned(hypervisors: Iterable[nova_api.Hypervisor], types: Collection[str],
            services: Mapping[str, model.Service],
            ) -> tuple[dict[str, nova_api.Hypervisor], list[str]]:
    """The one hypervisor of each host that can be planned, and what to say of
    the rest. Hosts of other types (ironic) are nothing to speak of."""
    by_host: dict[str, list[nova_api.Hypervisor]] = {}
    for hypervisor in hypervisors:
        by_host.setdefault(hypervisor.host, []).append(hypervisor)
    nodes, notes = {}, []
    for host, found in sorted(by_host.items()):
        if not any(h.type in types for h in found):
            LOG.debug('Host %s is not planned: hypervisor type %s', host, found[0].type)
        elif host not in services:
            notes.append(f'Host {host} has a hypervisor but no nova-compute service and is not '
                         'planned. Delete the left-over record or start its nova-compute.')
        elif len(found) > 1:
            notes.append(f'Host {host} has {len(found)} hypervisors and is not planned: only '
                         'hosts with exactly one can be.')
        else:
            nodes[host] = found[0]
    notes += [f'Host {host} has no hypervisor record yet and is not planned.'
              for host in sorted(services.keys() - by_host.keys())]
    return nodes, notes


def not_shown(servers: Iterable[model.Instance]) -> list[str]:
    """What rules about flavors cannot be judged by."""
    if all(s.extra_specs is not None for s in servers):
        return []
    return ['Nova does not show the extra specs of flavors: rules about them are left to Nova, '
            'which then refuses some moves. Give the user of [nova] a role that policy '
            'os_compute_api:servers:show:flavor-extra-specs allows.']


def of_two_projects(servers: Iterable[model.Instance]) -> list[str]:
    """One server of each of two projects: of these, one is not our own."""
    by_project = {s.project_id: s.uuid for s in servers}
    return [uuid for _project, uuid in sorted(by_project.items())[:2]]


def host_of(node: nova_api.Hypervisor, service: model.Service, claims: Claims) -> model.Host:
    return model.Host(
        name=node.host, hypervisor_hostname=node.hostname, uuid=node.uuid,
        hypervisor_type=node.type, zone=service.zone, provider=claims.providers.get(node.uuid),
        traits=claims.traits.get(node.uuid, frozenset()), hypervisor_version=node.version)


def flights_of(migrations: Iterable[nova_api.Migration],
               instances: Mapping[str, model.Instance]) -> tuple[model.Flight, ...]:
    """Who is under way: by record, and by task_state where the record has not
    been written yet. Records of instances that are gone mean nothing."""
    newest = {m.instance_uuid: m for m in sorted(migrations, key=lambda m: m.id)}
    flights = [model.Flight(m.instance_uuid, m.from_host or '', m.to_host)
               for m in newest.values() if m.instance_uuid in instances]
    flights += [model.Flight(i.uuid, i.host, None) for i in instances.values()
                if i.task_state in (MIGRATING, RESIZE_PREP) and i.uuid not in newest]
    return tuple(sorted(flights, key=lambda f: f.instance_uuid))


def by_consumer(allocations: Mapping[str, Mapping[str, placement_api.Resources]],
                ) -> dict[str, dict[str, placement_api.Resources]]:
    """Allocations by consumer and provider, from those by provider."""
    out: dict[str, dict[str, placement_api.Resources]] = {}
    for provider, consumers in allocations.items():
        for consumer, resources in consumers.items():
            out.setdefault(consumer, {})[provider] = resources
    return out


def with_claims(instances: Mapping[str, model.Instance], hosts: Mapping[str, model.Host],
                claims: Claims, in_flight: Collection[str]) -> dict[str, model.Instance]:
    """Instances with what they have allocated; see placement_api.claims_of.

    An instance in flight has its own allocations at its destination while
    the migration holds those at the source: it is not judged here.
    """
    out = {}
    for uuid, instance in instances.items():
        own = claims.allocations.get(uuid, {})
        host = hosts.get(instance.host)
        if host is None:
            out[uuid] = dataclasses.replace(
                instance, pinned='host-not-planned: its host is not planned')
        elif uuid in in_flight:
            amounts = own.get(host.uuid) or next(iter(own.values()), {})
            out[uuid] = dataclasses.replace(instance, claims=dict(amounts))
        else:
            home = host.uuid if host.provider is not None else None
            out[uuid] = placement_api.claims_of(instance, own, home, claims.root_of)
    return out
