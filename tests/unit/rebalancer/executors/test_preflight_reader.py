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


"""The reader before a move: it reads every input of the rules, and nothing else."""

import dataclasses
from typing import Any

from oslo_config import cfg
import pytest

from kronos_nova import model
from kronos_nova.conf import opts
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import placement
from kronos_nova.rebalancer.clients import api
from kronos_nova.rebalancer.clients import parallel_reads
from kronos_nova.rebalancer.executors import preflight_reader
from tests.unit.rebalancer.clients import answers
from tests.unit.rebalancer.executors import novas

NOW = 1000.0
BESIDE = '5e1d0c5b-7c2f-4f0e-9a86-3d1f2b4c6a70'
HOSTS = ('host1', 'host2', 'host3')
SHARES = 'MISC_SHARES_VIA_AGGREGATE'


def members(*uuids: str) -> dict[str, Any]:
    return {'server_group': {
        'id': 'g', 'name': 'g', 'policy': 'anti-affinity', 'policies': ['anti-affinity'],
        'rules': {}, 'members': list(uuids), 'project_id': 'p'}}


class Cloud(answers.Answers):
    """Three hosts with a node each, and storage that host1 and host2 share. Records path and
    parameters of each request. ``errors``: HTTP statuses by path."""

    def __init__(self) -> None:
        super().__init__()
        self.servers = {'vm': answers.server('vm', server_groups=['g1', 'g2'])}
        self.groups = {'g1': members('vm', 'near', 'deleted', 'shelved')}
        self.servers['near'] = answers.server('near', 'host2')
        self.servers['shelved'] = answers.server('shelved', None, status='SHELVED_OFFLOADED')
        self.migrations = {
            'vm': [answers.migration(3, status='completed'), answers.migration(4, status='error')],
            'near': [answers.migration(9, instance_uuid='near', source_compute='host2',
                                       dest_compute='host3')]}
        self.errors: dict[str, int] = {}
        self.generations = dict.fromkeys(('node1', 'node2', 'node3', 'nfs'), 1)
        self.restless: set[str] = set()

    def get(self, path: str, params: dict[str, Any], microversion: str,
            **_rest: Any) -> answers.Response:
        wanted = {k: v for k, v in params.items() if k not in ('limit', 'sort_key', 'sort_dir')}
        self.asked.append((path, wanted, microversion))
        if path in self.errors:
            return answers.Response({}, self.errors[path])
        found = self.found(path, wanted)
        return answers.Response({}, 404) if found is None else answers.Response(found)

    def found(self, path: str, params: dict[str, Any]) -> Any:
        match path.split('/')[1:]:
            case ['servers', 'detail']:
                return {'servers': [s for s in self.servers.values()
                                    if s.get('tenant_id') == params.get('project_id', '-')]}
            case ['servers', uuid]:
                return {'server': self.servers[uuid]} if uuid in self.servers else None
            case ['os-server-groups']:
                offset = int(params.get('offset', 0))
                return {'server_groups': [g['server_group'] for g in self.groups.values()][offset:]}
            case ['os-server-groups', uuid]:
                return self.groups.get(uuid)
            case ['os-migrations']:
                return {'migrations': self.migrations.get(params['instance_uuid'], [])}
            case ['os-services']:
                if 'host' not in params:
                    return {'services': []}  # no cell is away
                return {'services': [{
                    'host': params['host'], 'binary': 'nova-compute', 'status': 'enabled',
                    'state': 'up', 'forced_down': False, 'disabled_reason': None, 'zone': 'az1'}]}
            case ['os-hypervisors', 'detail']:
                names = ([params['hypervisor_hostname_pattern']]
                         if 'hypervisor_hostname_pattern' in params else ['host1', 'host2'])
                return {'hypervisors': [{
                    'id': f'node{name[-1]}', 'hypervisor_hostname': f'{name}.example.org',
                    'hypervisor_type': 'QEMU', 'service': {'host': name}} for name in names]}
            case ['os-aggregates']:
                return {'aggregates': [
                    {'id': 1, 'name': 'rack', 'hosts': ['host1', 'host2'],
                     'metadata': {'kronos:cell': 'cell1', 'ssd': 'true'}}]}
            case ['resource_providers']:
                return {'resource_providers': [
                    self.provider(name) for name in self.generations
                    if params.get('in_tree') in (None, name) and (
                        'required' not in params or name == 'nfs')]}
            case ['resource_providers', name, part]:
                return self.part(name, part)
            case ['allocations', 'vm']:
                return {'allocations': {'node1': {'resources': {'VCPU': 2, 'MEMORY_MB': 1024}}}}
        raise AssertionError(path)

    def provider(self, name: str) -> dict[str, Any]:
        return {'uuid': name, 'name': name, 'root_provider_uuid': name,
                'parent_provider_uuid': None, 'generation': self.generations[name]}

    def part(self, name: str, part: str) -> dict[str, Any]:
        if name in self.restless:
            self.generations[name] += 1
        of_part: dict[str, Any] = {
            'inventories': {
                resource: {'total': 8, 'reserved': 0, 'allocation_ratio': 1.0, 'min_unit': 1,
                           'max_unit': 8, 'step_size': 1}
                for resource in (['DISK_GB'] if name == 'nfs' else ['VCPU', 'MEMORY_MB'])},
            'usages': {'DISK_GB': 3} if name == 'nfs' else {'VCPU': 2},
            'traits': [SHARES] if name == 'nfs' else [],
            'aggregates': [] if name == 'node3' else ['shared']}
        return {'resource_provider_generation': self.generations[name], part: of_part[part]}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


def read(cloud: Cloud, **engine: Any) -> preflight_reader.PreflightView:
    conf = cfg.ConfigOpts()
    opts.register(conf)
    for name, value in {'cell_metadata_key': 'kronos:cell', **engine}.items():
        conf.set_override(name, value, 'engine')
    return preflight_reader.FreshReader(conf, cloud).read(novas.TASK, NOW)


def test_the_rules_are_given_the_move_s_part_of_the_cloud(cloud: Cloud) -> None:
    found = read(cloud)
    cluster = found.cluster
    assert found.newest == 4 and cluster.taken_at == NOW
    assert {name: (host.uuid, host.cell, sorted(host.sharing), host.provider.used)
            for name, host in cluster.hosts.items() if host.provider} == {
        'host1': ('node1', 'cell1', ['nfs'], {'VCPU': 2}),
        'host2': ('node2', 'cell1', ['nfs'], {'VCPU': 2})}
    assert {name: (s.zone, s.status) for name, s in cluster.services.items()} == {
        'host1': ('az1', 'enabled'), 'host2': ('az1', 'enabled')}
    assert {uuid: (i.host, i.claims) for uuid, i in cluster.instances.items()} == {
        'vm': ('host1', {'VCPU': 2, 'MEMORY_MB': 1024}), 'near': ('host2', {})}
    assert [(g.uuid, g.policy, g.members) for g in cluster.groups] == [
        ('g', 'anti-affinity', {'vm', 'near', 'deleted', 'shelved'})]
    assert cluster.flights == (model.InFlightMove('near', 'host2', 'host3'),)
    assert cluster.aggregates == {'rack': ('host1', 'host2')}
    assert cluster.aggregate_metadata == {'rack': {'kronos:cell': 'cell1', 'ssd': 'true'}}
    assert {uuid: p.aggregates for uuid, p in cluster.sharing.items()} == {'nfs': {'shared'}}


def test_hosts_of_another_zone_are_out_of_the_scope(cloud: Cloud) -> None:
    for zone, inside in ((None, {'host1', 'host2'}), ('', {'host1', 'host2'}),
                         ('az1', {'host1', 'host2'}), ('az2', set())):
        cluster = read(cloud, availability_zone=zone).cluster.replace_scope('rack')
        assert cluster.scope_hosts == inside, zone
    refusal = placement.scope(
        cluster_view.ClusterView(cluster, model.PlanningOptions()),
        model.Move('vm', 'host1', 'host2', model.Phase.SPREAD))
    assert refusal == model.Rejection(
        'out-of-scope', 'host host1 is not in this scope: it is in availability zone az1')


def test_the_reader_sends_only_the_requests_that_the_rules_need(cloud: Cloud) -> None:
    read(cloud)
    asked = {(path, *sorted(params.items())) for path, params, _ in cloud.asked}
    assert {each for each in asked if not each[0].startswith('/resource_providers')} == {
        ('/servers/vm',), ('/servers/near',), ('/servers/deleted',), ('/servers/shelved',),
        ('/servers/detail', ('all_tenants', '1'), ('uuid', 'deleted')),
        ('/os-server-groups/g1',), ('/os-server-groups/g2',),
        ('/os-migrations', ('instance_uuid', 'vm')),
        ('/os-migrations', ('instance_uuid', 'near')),
        ('/os-services', ('binary', 'nova-compute'), ('host', 'host1')),
        ('/os-services', ('binary', 'nova-compute'), ('host', 'host2')),
        ('/os-hypervisors/detail',),  # all of them, once
        ('/os-hypervisors/detail', ('hypervisor_hostname_pattern', 'host1')),
        ('/os-hypervisors/detail', ('hypervisor_hostname_pattern', 'host2')),
        ('/os-aggregates',), ('/allocations/vm',)}
    parts = {each[0] for each in asked if each[0].startswith('/resource_providers/')}
    assert not any('node3' in path or 'allocations' in path for path in parts)
    assert {f'/resource_providers/{name}/inventories' for name in ('node1', 'node2', 'nfs')} < parts


def spread(uuid: str, request: str, project: str = 'p', host: str = 'host3',
           **fields: Any) -> dict[str, Any]:
    return answers.server(uuid, host, tenant_id=project,
                          metadata={'kronos:spread': request}, **fields)


def test_a_spread_over_racks_is_judged_with_its_other_members(cloud: Cloud) -> None:
    cloud.servers |= {
        'vm': spread('vm', 'rack:web', host='host1'), 'far': spread('far', 'rack:web'),
        'going': spread('going', 'rack:web', **{'OS-EXT-STS:task_state': 'migrating'}),
        'waiting': spread('waiting', 'rack:web', status='VERIFY_RESIZE'),
        'bare': answers.server('bare', 'host3', tenant_id='p'),
        'foreign': spread('foreign', 'rack:web', 'q')}
    cloud.migrations['going'] = [answers.migration(
        7, instance_uuid='going', source_compute='host3', dest_compute='host2')]
    cloud.migrations['waiting'] = [answers.migration(
        8, instance_uuid='waiting', source_compute='host1', dest_compute='host3',
        status='finished', migration_type='migration')]
    cluster = read(cloud).cluster
    assert cluster.instances.keys() == {'vm', 'far', 'going', 'waiting'}
    assert {f.instance_uuid: (f.from_host, f.to_host) for f in cluster.flights} == {
        'going': ('host3', 'host2'), 'waiting': ('host1', 'host3')}
    asked = {(path, *sorted(params.items())) for path, params, _ in cloud.asked}
    assert ('/servers/detail', ('all_tenants', '1'), ('project_id', 'p')) in asked
    assert ('/os-migrations', ('instance_uuid', 'far')) not in asked


def test_the_mates_of_a_set_of_a_project_come_with_their_server_groups(cloud: Cloud) -> None:
    cloud.servers |= {'vm': spread('vm', 'rack', host='host1'), 'far': spread('far', 'rack'),
                      'near': spread('near', 'rack')}
    cluster = read(cloud).cluster
    assert cluster.instances.keys() == {'vm', 'far', 'near'}
    assert [g.members for g in cluster.groups] == [{'vm', 'near', 'deleted', 'shelved'}]


def test_a_drain_reads_no_mates(cloud: Cloud) -> None:
    cloud.servers |= {'vm': spread('vm', 'rack:web', host='host1'), 'far': spread('far', 'rack')}
    conf = cfg.ConfigOpts()
    opts.register(conf)
    reader = preflight_reader.FreshReader(conf, cloud)
    for phase, mates in ((model.Phase.EVACUATE, False), (model.Phase.SPREAD, True)):
        cloud.asked.clear()
        reader.read(dataclasses.replace(novas.TASK, phase=phase), NOW)
        assert any('project_id' in params for _, params, _ in cloud.asked) is mates


def test_each_read_has_a_name_for_when_time_is_up(
        cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    told, result = [], parallel_reads.ReadingContext.collect_result

    def telling(self: Any, future: Any, service: str, what: str) -> Any:
        told.append((service, what))
        return result(self, future, service, what)

    monkeypatch.setattr(parallel_reads.ReadingContext, 'collect_result', telling)
    read(cloud)
    assert told[:3] == [('Nova', what) for what in (
        'supported API versions', 'migrations', 'servers')]
    assert set(told[3:]) == {
        *(('Nova', what) for what in ('compute services', 'hypervisors', 'server groups',
                                      'group members', 'migrations', 'aggregates')),
        *(('Placement', what) for what in ('allocations', 'resource providers',
                                           'sharing providers', 'aggregates'))}


def test_it_may_take_as_long_as_collecting(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, made = [], parallel_reads.ReadingContext.__init__

    def init(self: Any, seconds: float, *rest: Any) -> None:
        limits.append(seconds)
        made(self, seconds, *rest)

    monkeypatch.setattr(parallel_reads.ReadingContext, '__init__', init)
    read(cloud)
    assert limits == [cfg_default('nova', 'collect_timeout')]


def cfg_default(group: str, name: str) -> Any:
    conf = cfg.ConfigOpts()
    opts.register(conf)
    return conf[group][name]


@pytest.mark.parametrize(('filters', 'looked_for'), [
    (['SameHostFilter'], True), (['DifferentHostFilter'], True), (['ComputeFilter'], False)])
def test_instances_named_by_hints_are_read_if_a_filter_uses_the_hint(
        cloud: Cloud, filters: list[str], looked_for: bool) -> None:
    cloud.servers['vm']['scheduler_hints'] = {'same_host': [BESIDE]}
    cloud.servers[BESIDE] = answers.server(BESIDE, 'host1')
    found = read(cloud, nova_enabled_filters=filters).cluster
    assert found.instances['vm'].scheduler_hints == {'same_host': (BESIDE,)}
    assert (BESIDE in found.instances) is looked_for


def test_an_instance_on_another_host_is_read_without_allocations(cloud: Cloud) -> None:
    cloud.servers['vm'] = answers.server('vm', 'host3', server_groups=['g1'])
    found = read(cloud).cluster
    assert found.instances['vm'].host == 'host3' and found.instances['vm'].claims == {}
    assert len(found.groups) == 1
    assert not any(path.startswith('/allocations') for path, *_ in cloud.asked)


def test_whose_owner_has_opted_out_since_is_seen(cloud: Cloud) -> None:
    for server in cloud.servers.values():
        server |= {'metadata': {}, 'tags': []}
    cloud.servers['vm'] |= {'metadata': {'stay': 'yes'}, 'tags': ['pet']}
    assert read(cloud).cluster.instances['vm'].opted_out is None, 'nobody looks'
    for option, value in (('opt_out_metadata_key', 'stay'), ('opt_out_tag', 'pet')):
        assert read(cloud, **{option: value}).cluster.instances['vm'].opted_out, option


def test_the_first_migration_has_none_before_it(cloud: Cloud) -> None:
    cloud.migrations = {}
    assert read(cloud).newest == 0


@pytest.mark.parametrize('path', [
    '/servers/near', '/os-server-groups/g1', '/os-migrations', '/os-services', '/os-aggregates',
    '/os-hypervisors/detail', '/allocations/vm', '/resource_providers',
    '/resource_providers/node2/inventories'])
def test_an_unreadable_part_raises(cloud: Cloud, path: str) -> None:
    cloud.errors[path] = 503
    with pytest.raises(api.ApiError) as error:
        read(cloud)
    assert error.value.status == 503


def test_an_instance_that_is_gone_is_named(cloud: Cloud) -> None:
    del cloud.servers['vm']
    with pytest.raises(api.ApiError) as error:
        read(cloud)
    assert (error.value.service, error.value.what, error.value.status) == (
        'Nova', 'server vm', 404)


def test_a_tree_that_never_holds_still_is_named(cloud: Cloud) -> None:
    cloud.restless = {'node2'}
    with pytest.raises(api.ApiError) as error:
        read(cloud)
    assert (error.value.service, error.value.what, error.value.status, error.value.problem) == (
        'Placement', 'resource provider node2', 409,
        'its tree changes faster than it can be read')
