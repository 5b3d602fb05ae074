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


"""What pins an instance: each rule's noes by stable name, and its yeses."""

import dataclasses

import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import aggregate_metadata
from kronos_nova.constraints import aggregates
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import hints
from kronos_nova.constraints import live
from kronos_nova.constraints import prefilters
from kronos_nova.constraints import relevant_cluster
from tests.unit import clouds
from tests.unit.constraints import test_rules as rules

OTHER = clouds.uuid_of('other')
host, phase = rules.host, rules.phase


def in_aggregate(**metadata):
    """The destination is in one."""
    return {'aggregates': {'g': ('b',)}, 'aggregate_metadata': {'g': metadata}}


def judge(other=None, **case):
    """As in test_rules; ``other`` is where another instance is."""
    if other is None:
        return rules.judge(**case)
    hosts = {h: host(h) for h in 'abc'}
    instances = {rules.UUID: model.Instance(rules.UUID, 'a', **case['instance']),
                 OTHER: model.Instance(OTHER, other)}
    view = cluster_view.ClusterView(
        model.Cluster(hosts, instances, {h: model.Service(h) for h in hosts},
                      scope_hosts=frozenset(hosts)),
                      model.PlanningOptions(**case.get('options', {})))
    rejection = constraints.judge_move(view, phase('evacuate'), constraints.PRE_FLIGHT[:-1])
    return rejection.rule if rejection else None


def pci_device(*traits):
    return model.Provider('n', inventories={'CUSTOM_PCI_1': model.Inventory(total=1)},
                          traits=frozenset({'COMPUTE_MANAGED_PCI_DEVICE', *traits}))


CASES = {
    'owner-opted-out': {'instance': {'opted_out': 'tag stay'}, 'move': phase('affinity')},
    'project-opted-out': {'instance': {'project_id': 'p'}, 'move': phase('affinity'),
                          'options': {'opted_out_projects': frozenset('p')}},
    'accelerators': {'instance': {'extra_specs': {'accel:device_profile': 'fpga'}}},
    'power-state': {'instance': {'power_state': 4}},
    'memory-encryption': {'instance': {'image_properties': {'hw_mem_encryption': 'yes'}}},
    'vtpm': {'instance': {'extra_specs': {'hw:tpm_version': '2.0',
                                          'hw:tpm_secret_security': 'deployment'}}},
    'pci-passthrough': {'instance': {'extra_specs': {'pci_passthrough:alias': 'ok:1, gpu:2'}},
                        'options': {'live_migratable_pci_aliases': frozenset({'ok'})}},
    'one-time-use': {
        'instance': {'claims': {'CUSTOM_PCI_1': 1}},
        'hosts': {'a': host('a', nested=(model.Provider(
            'n', inventories={'CUSTOM_PCI_1': model.Inventory(total=1)},
            used={'CUSTOM_PCI_1': 1}, traits=frozenset({'HW_PCI_ONE_TIME_USE'})),))}},
    'post-copy': {'instance': {'extra_specs': {'pci_passthrough:alias': 'ok:1'}},
                  'options': {'live_migratable_pci_aliases': frozenset({'ok'}),
                              'live_migration_permit_post_copy': True}},
    'hypervisor-type': {'hosts': {'b': host('b', hypervisor_type='KVM')}},
    'hypervisor-older': {'hosts': {'a': host('a', hypervisor_version=8002001),
                                   'b': host('b', hypervisor_version=8002000)}},
    'vgpu-hypervisor': {'hosts': {'b': host('b', hypervisor_version=8000000)},
                        'instance': {'extra_specs': {'resources1:VGPU': '1'}}},
    'aggregate-extra-specs': {
        'instance': {'extra_specs': {'aggregate_instance_extra_specs:ssd': 'true'}},
        'options': {'nova_enabled_filters': frozenset({aggregates.EXTRA_SPECS})}},
    'aggregate-tenant': {
        'instance': {'project_id': 'p'}, **in_aggregate(filter_tenant_id='q, r'),
        'options': {'nova_enabled_filters': frozenset({aggregates.TENANTS})}},
    'aggregate-image': {
        'instance': {'image_properties': {'os_distro': 'debian'}},
        **in_aggregate(os_distro='windows'),
        'options': {'nova_enabled_filters': frozenset({aggregates.IMAGES})}},
    'tenant-aggregate': {
        'instance': {'project_id': 'p'}, 'aggregates': {'g': ('a',)},
        'aggregate_metadata': {'g': {'filter_tenant_id': 'p'}},
        'options': {'nova_prefilters': frozenset({prefilters.TENANTS})}},
    'tenant-without-aggregate': {
        'instance': {'project_id': 'p'}, **in_aggregate(filter_tenant_id='q'),
        'options': {'nova_prefilters': frozenset({prefilters.TENANTS,
                                                  prefilters.TENANTS_REQUIRED})}},
    'isolated-aggregate': {
        'instance': {'extra_specs': {}}, **in_aggregate(**{'trait:CUSTOM_X': 'required'}),
        'options': {'nova_prefilters': frozenset({prefilters.ISOLATED})}},
    'required-traits': {'instance': {'extra_specs': {'trait:CUSTOM_X': 'required'}},
                        'hosts': {'b': host('b', traits=frozenset({'CUSTOM_Y'}))}},
    'pci-destination': {
        'instance': {'claims': {'CUSTOM_PCI_1': 1},
                     'extra_specs': {'pci_passthrough:alias': 'ok:1'}},
        'options': {'live_migratable_pci_aliases': frozenset({'ok'})},
        'hosts': {'a': host('a', nested=(pci_device('HW_PCI_LIVE_MIGRATABLE'),)),
                  'b': host('b', nested=(pci_device(),))}},
    'different-host': {
        'instance': {'scheduler_hints': {'different_host': (OTHER,)}}, 'other': 'b',
        'options': {'nova_enabled_filters': frozenset({hints.DIFFERENT})}},
    'same-host-hint': {
        'instance': {'scheduler_hints': {'same_host': (OTHER,)}}, 'other': 'a',
        'options': {'nova_enabled_filters': frozenset({hints.SAME})}},
}


@pytest.mark.parametrize('rule', CASES)
def test_a_rule_says_no_by_its_name(rule):
    assert judge(**CASES[rule]) == rule


@pytest.mark.parametrize('case', [
    {'instance': {'power_state': 1}}, {'instance': {'power_state': 3}},
    {'instance': {'extra_specs': {'hw:mem_encryption': 'false', 'hw:cpu_policy': 'dedicated',
                                  'hw:numa_nodes': '2', 'hw:mem_page_size': 'large',
                                  'hw:pmem': '4GB', 'resources:VGPU': '1'}}},
    {'instance': {'extra_specs': {'hw:tpm_version': '2.0', 'hw:tpm_secret_security': 'host'}}},
    {'instance': {'extra_specs': {'pci_passthrough:alias': 'ok:1'}},
     'options': {'live_migratable_pci_aliases': frozenset({'ok', 'other'})}},
    {'instance': {'extra_specs': {'hw:pmem': '4GB'}},
     'options': {'live_migration_permit_post_copy': True}},
    {'instance': {'status': 'SHUTOFF', 'extra_specs': {'pci_passthrough:alias': 'ok:1'}},
     'services': {'a': model.Service('a', status='disabled', zone='az1')},
     'move': phase('evacuate'),
     'options': {'live_migration_permit_post_copy': True, 'cold_migrate_stopped': True}},
    {'hosts': {'a': host('a', hypervisor_version=8002000),
               'b': host('b', hypervisor_version=8002001)}},
    {'hosts': {'a': host('a', hypervisor_version=8002001)}},
    {'hosts': {'a': host('a', hypervisor_version=8002001),
               'b': host('b', hypervisor_version=8002000)},
     'options': {'skip_hypervisor_version_check_on_lm': True}},
    {'hosts': {'b': host('b', hypervisor_version=8001000)},
     'instance': {'claims': {'VGPU': 0}, 'extra_specs': {'resources:VGPU': '1'}}},
    {'instance': {'status': 'SHUTOFF', 'power_state': 4, 'extra_specs': {
        'hw:tpm_version': '2.0', 'pci_passthrough:alias': 'gpu:1', 'resources:VGPU': '1'}},
     'hosts': {'a': host('a', hypervisor_version=8002001),
               'b': host('b', hypervisor_version=7000000, hypervisor_type='KVM')},
     'services': {'a': model.Service('a', status='disabled', zone='az1')},
     'move': phase('evacuate'), 'options': {'cold_migrate_stopped': True}},
    {'instance': {'extra_specs': {'ssd': 'true'}}, **in_aggregate(filter_tenant_id='q')},
    {'instance': {'extra_specs': {'hw:ssd': '1'}, 'image_properties': {'os_distro': 'debian'}},
     'options': {'nova_enabled_filters': frozenset({
         aggregates.EXTRA_SPECS, aggregates.IMAGES, aggregates.TENANTS})}},
    {**in_aggregate(os_distro='windows'),
     'options': {'nova_enabled_filters': frozenset({
         aggregates.EXTRA_SPECS, aggregates.IMAGES})}},
    {'instance': {'project_id': 'p'}, **in_aggregate(filter_tenant_id='p'),
     'options': {'nova_prefilters': frozenset({
         prefilters.TENANTS, prefilters.TENANTS_REQUIRED}),
         'nova_enabled_filters': frozenset({aggregates.TENANTS})}},
    {'instance': {'extra_specs': {}}, 'aggregates': {'g': ('a', 'b')},
     'aggregate_metadata': {'g': {'trait:CUSTOM_X': 'required'}},
     'options': {'nova_prefilters': frozenset({prefilters.ISOLATED})}},
    {**in_aggregate(**{'trait:CUSTOM_X': 'required'}),
     'options': {'nova_prefilters': frozenset({prefilters.ISOLATED})}},
    {'instance': {'extra_specs': {'trait:CUSTOM_X': 'required'}}},
    {'instance': {'extra_specs': {'trait:CUSTOM_X': 'required'}},
     'hosts': {'b': host('b', traits=frozenset({'CUSTOM_X'}))}},
    {'instance': {'scheduler_hints': {'different_host': (OTHER,), 'same_host': (OTHER,)}},
     'other': 'c'},
    {'instance': {'scheduler_hints': {'same_host': (OTHER,)}}, 'other': 'b',
     'options': {'nova_enabled_filters': frozenset({hints.SAME, hints.DIFFERENT})}},
], ids=lambda case: ' '.join(case))
def test_moves_that_nova_allows_stay_allowed(case):
    assert judge(**case) is None


@pytest.mark.parametrize('rule', CASES)
def test_unknown_data_refuses_no_move(rule):
    """Nova judges the move then. Opt-outs and tenant aggregates are never unknown: they are
    set or not."""
    if rule in ('owner-opted-out', 'project-opted-out', 'aggregate-tenant', 'tenant-aggregate',
                'tenant-without-aggregate'):
        return
    case = CASES[rule] | {'instance': {'extra_specs': None, 'image_properties': None}}
    if rule.startswith('hypervisor') or rule == 'vgpu-hypervisor':
        case['hosts'] = {}
    assert judge(**case) is None



def nested(*of_each, shared=None):
    """Host b with these traits on its root and children, each with a GPU."""
    root, *children = of_each
    gpu = {'VGPU': model.Inventory(4)}
    sharing = {} if shared is None else {'s': model.Provider(
        's', inventories={'DISK_GB': model.Inventory(9)}, traits=frozenset(shared))}
    found = {'b': model.Host('b', provider=model.Provider(
        'b', inventories=rules.INVENTORIES, traits=frozenset(root)), nested=tuple(
            model.Provider(f'b{n}', inventories=gpu, traits=frozenset(t), parent_uuid='b')
            for n, t in enumerate(children)), sharing=frozenset(sharing))}
    return {'hosts': found, 'sharing': sharing}


@pytest.mark.parametrize(('tree', 'extra_specs', 'allowed'), [
    (nested('R', 'A', 'B'), {'trait:A': 'required', 'trait:B': 'required'}, True),
    (nested('R', 'A', 'B'), {'trait:A': 'required', 'trait:C': 'required'}, False),
    (nested('R', 'A', 'B'), {'resources1:VGPU': '1', 'trait1:A': 'required'}, True),
    (nested('R', 'A', 'B'), {'resources1:VGPU': '1', 'trait1:A': 'required',
                             'trait1:B': 'required'}, False),
    (nested('R', 'A', 'B'), {'resources1:VGPU': '1', 'trait1:R': 'required'}, False),
    (nested('R', 'A', 'B'), {'resources1:VGPU': '1', 'trait1:A': 'forbidden'}, True),
    (nested('R', 'A', 'A'), {'resources1:VGPU': '1', 'trait1:A': 'forbidden'}, False),
    (nested('R', 'A'), {'trait:A': 'forbidden'}, True),
    (nested('R', 'A'), {'trait:R': 'forbidden'}, False),
    (nested('R', 'A'), {'trait1:A': 'required'}, True),
    (nested('R', shared='S'), {'trait:S': 'required'}, True),
    (nested('R', shared='S'), {'trait:S': 'forbidden'}, True),
    (nested('', 'A'), {'trait:X': 'required'}, True),
])
def test_traits_are_looked_for_in_the_whole_tree_and_what_shares_with_it(
        tree, extra_specs, allowed):
    verdict = judge(instance={'extra_specs': extra_specs}, **tree)
    assert verdict == (None if allowed else 'required-traits')


def test_an_owner_can_keep_an_instance_and_free_none():
    """The owner's value never removes the refusal of another rule."""
    assert judge(instance={'locked': True, 'opted_out': None}) == 'locked'
    assert judge(instance={'opted_out': 'tag x'}, move=phase('evacuate'), services={
        'a': model.Service('a', status='disabled', zone='az1')}) == 'owner-opted-out'


def test_metadata_of_aggregates_is_split_as_nova_splits_it():
    found = aggregate_metadata.HostAggregates(
        {'one': ('h',), 'two': ('h', 'x'), 'bare': ('h',)},
        {'one': {'k': 'a, b'}, 'two': {'k': 'c', 'filter_tenant_id_2': 'p,q'}})
    assert found.map_metadata_values('h') == {'k': {'a', 'b', 'c'},
                                              'filter_tenant_id_2': {'p', 'q'}}
    assert found.list_tenants('x') == {'p', 'q'} and found.list_tenants('nowhere') == frozenset()
    assert set(found.list_with_metadata('h')) == {'one', 'two'}


def test_an_instance_named_by_a_hint_is_in_the_reduced_cluster():
    instances = {u: model.Instance(u, 'a') for u in (OTHER, 'x')} | {
        rules.UUID: model.Instance(rules.UUID, 'a', scheduler_hints={'same_host': (OTHER,)})}
    part = relevant_cluster.reduce_cluster(model.Cluster({}, instances, {}), [rules.MOVE],
                                           model.MoveHistory())
    assert set(part.instances) == {rules.UUID, OTHER}


def test_a_hint_holds_in_any_order_of_the_moves():
    """The other instance leaves b by the same plan and may still be there."""
    case = CASES['different-host']
    instances = {rules.UUID: model.Instance(rules.UUID, 'a', **case['instance']),
                 OTHER: model.Instance(OTHER, 'b')}
    view = cluster_view.ClusterView(model.Cluster({h: host(h) for h in 'abc'}, instances, {}),
                                    model.PlanningOptions(**case['options']))
    assert hints.hints(view, rules.MOVE) is not None
    view.land_move(model.Move(OTHER, 'b', 'c', model.Phase.SPREAD))
    assert hints.hints(view, rules.MOVE) is not None


@pytest.mark.parametrize('flight', [
    model.InFlightMove(OTHER, 'c', 'b'), model.InFlightMove(OTHER, 'c', 'b', 'task'),
    model.InFlightMove(OTHER, 'c', 'd', 'task', ('b',))])
def test_an_instance_named_by_a_hint_counts_at_all_its_destinations(flight):
    """As an executor's pre-flight sees it: from c by a move of Nova's, a task, its alternate."""
    case = CASES['different-host']
    instances = {rules.UUID: model.Instance(rules.UUID, 'a', **case['instance']),
                 OTHER: model.Instance(OTHER, 'c')}
    cluster = model.Cluster({h: host(h) for h in 'abcd'}, instances, {}, flights=(flight,))
    view = cluster_view.ClusterView(cluster, model.PlanningOptions(**case['options']))
    assert hints.hints(view, rules.MOVE) is not None
    assert set(view.list_possible_hosts(OTHER)) == {'c', flight.to_host, *flight.alternates}
    apart = dataclasses.replace(cluster, flights=())
    assert hints.hints(cluster_view.ClusterView(apart, view.options), rules.MOVE) is None


def test_a_moved_instance_named_by_a_hint_counts_at_both_ends():
    case = CASES['different-host']
    instances = {rules.UUID: model.Instance(rules.UUID, 'a', **case['instance']),
                 OTHER: model.Instance(OTHER, 'c')}
    view = cluster_view.ClusterView(model.Cluster({h: host(h) for h in 'abc'}, instances, {}),
                                    model.PlanningOptions(**case['options']))
    away = model.Move(OTHER, 'c', 'b', model.Phase.SPREAD)
    view.begin_departure(away)
    assert hints.hints(view, rules.MOVE) is not None
    view.revert_departure(away)
    assert hints.hints(view, rules.MOVE) is None and set(view.list_possible_hosts(OTHER)) == {'c'}


def test_an_unknown_instance_has_no_places():
    view = cluster_view.ClusterView(model.Cluster({}, {}, {}), model.PlanningOptions())
    assert not view.list_possible_hosts(OTHER)


@pytest.mark.parametrize('instance', [
    {'claims': {'VGPU': 1}}, {'extra_specs': {'resources:VGPU': '1'}},
    {'extra_specs': {'resources1:VGPU': '1'}}])
def test_vgpu_is_not_moved_live_while_post_copy_is_permitted(instance):
    options = {'live_migration_permit_post_copy': True}
    assert judge(instance=instance, options=options) == 'post-copy'
    assert judge(instance=instance) != 'post-copy'
    shown = model.Instance(rules.UUID, 'a', **instance)
    assert live.needs_device_check(shown), 'the simulation shows it to the rule'


@pytest.mark.parametrize(('status', 'used', 'traits', 'rule'), [
    ('ACTIVE', 1, {'HW_PCI_ONE_TIME_USE'}, 'one-time-use'),
    ('SHUTOFF', 1, {'HW_PCI_ONE_TIME_USE'}, 'one-time-use'),
    ('ACTIVE', 0, {'HW_PCI_ONE_TIME_USE'}, None), ('ACTIVE', 1, {'HW_PCI_LIVE_MIGRATABLE'}, None)])
def test_device_for_one_use_pins_its_instance_however_it_would_move(status, used, traits, rule):
    device = model.Provider('n', inventories={'CUSTOM_PCI_1': model.Inventory(total=1)},
                            used={'CUSTOM_PCI_1': used}, traits=frozenset(traits))
    instance = model.Instance(rules.UUID, 'a', status=status, claims={'CUSTOM_PCI_1': 1})
    hosts = {'a': host('a', nested=(device,)), 'b': host('b')}
    view = cluster_view.ClusterView(
        model.Cluster(hosts, {rules.UUID: instance}, {h: model.Service(h) for h in hosts},
                      scope_hosts=frozenset(hosts)),
                      model.PlanningOptions(cold_migrate_stopped=True))
    found = live.devices(view, phase('evacuate'))
    assert (found.rule if found else None) == rule
    assert live.needs_device_check(instance), 'the simulation shows it to the rule'
