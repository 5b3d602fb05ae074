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

"""Allocations per provider while moves are made and reverted."""

import dataclasses
import random

import hypothesis
import pytest

from kronos_nova import model
from kronos_nova.constraints import claims
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer.executors import preflight_check
from tests.unit import clouds
from tests.unit import trees


def overlay(knobs, flights=True):
    r = clouds.request(knobs)
    cluster = r.cluster if flights else dataclasses.replace(r.cluster, flights=())
    return cluster_view.ClusterView(cluster, dataclasses.replace(
        r.options, enforce_placement_disk=None), r.history)


def state(view):
    """Return the usage of every provider of a tree and of every sharing provider."""
    found, some = {}, min(view.cluster.instances)
    for name, host in sorted(view.cluster.hosts.items()):
        occupancy = view.occupancy
        for c in ('VCPU', 'MEMORY_MB', 'DISK_GB', trees.GPU, trees.POOL):
            found['tree', name, c] = occupancy.sum_allocated(host, c)
            for space in (*occupancy.list_tree_providers(host),
                          *occupancy.list_sharing_providers(host, some, c)):
                found['provider', space.key, c] = occupancy.sum_allocated_of(host, space, c)
    return found


def some_move(view, rng, moved=()):
    uuid = rng.choice(sorted(view.cluster.instances))
    source = view.find_host_of(uuid)
    others = sorted(set(view.cluster.hosts) - {source})
    return None if uuid in moved else model.Move(uuid, source, rng.choice(others),
                                                 model.Phase.EVACUATE)


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(trees=True))
def test_reverted_moves_leave_no_trace_in_any_order(knobs):
    view, other = overlay(knobs), overlay(knobs)
    rng = random.Random(knobs.seed)
    before = state(view)
    done = {}
    for _ in range(8):
        move = some_move(view, rng, done)
        if move is not None:
            land = rng.random() < 0.5
            (view.land_move if land else view.begin_departure)(move)
            done[move.instance_uuid] = land, move
            state(view)  # what it remembers must not outlive its truth
    after = state(view)
    for _, (land, move) in sorted(done.items(), key=lambda _: rng.random()):
        (other.land_move if land else other.begin_departure)(move)
    assert state(other) == after
    for _, (land, move) in sorted(done.items(), key=lambda _: rng.random()):
        (view.undo_landing if land else view.revert_departure)(move)
        state(view)
    assert state(view) == before


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(trees=True))
def test_legal_moves_fill_no_provider_above_its_capacity(knobs):
    """The test counts the assigned resources provider by provider."""
    view = overlay(knobs, flights=False)  # those of clouds.py need not be legal
    rng = random.Random(knobs.seed)
    if not view.has_known_claims():
        return
    limits = {}
    for host in view.cluster.hosts.values():
        for provider in (*host.tree, *view.cluster.sharing.values()):
            key = host.name if provider is host.provider else provider.uuid
            for c, inventory in provider.inventories.items():
                limits['provider', key, c] = inventory.capacity
    before = state(view)
    for _ in range(15):
        move = some_move(view, rng, view.placement.flying)
        if move is None or claims.claims(view, move) is not None:
            continue
        (view.land_move if rng.random() < 0.6 else view.begin_departure)(move)
        now = state(view)
        for key, used in now.items():
            if key[0] == 'provider' and used > before[key]:
                assert used <= limits[key], (key, move)
        before = now


#: A host with CPUs on its root and GPUs on children, as libvirt reports them.
def host(name, *gpus, root_gpus=None, vcpus=8, sharing=()):
    inventories = {'VCPU': model.Inventory(vcpus)}
    if root_gpus is not None:
        inventories['VGPU'] = model.Inventory(root_gpus)
    return model.Host(name, provider=model.Provider(f'{name}-root', inventories=inventories),
                      nested=tuple(model.Provider(
                          f'{name}-gpu{n}', parent_uuid=f'{name}-root',
                          inventories={'VGPU': model.Inventory(count)})
                          for n, count in enumerate(gpus)), sharing=frozenset(sharing))


def cloud(*hosts, sharing=(), **instances):
    """``instances``: name -> allocations by provider, all on host a."""
    found = {}
    for uuid, allocations in instances.items():
        total = {}
        for resources in allocations.values():
            for c, amount in resources.items():
                total[c] = total.get(c, 0) + amount
        found[uuid] = model.Instance(uuid, 'a', claims=total, allocations=allocations)
    used = {}
    for i in found.values():
        trees._charge(used, i.allocations)

    def holding(provider):
        return dataclasses.replace(provider, used={
            **provider.used, **used.get(provider.uuid, {})})
    known = {h.name: dataclasses.replace(
        h, provider=holding(h.provider), nested=tuple(map(holding, h.nested))) for h in hosts}
    cluster = model.Cluster(
        known, found, {h: model.Service(h) for h in known}, scope_hosts=frozenset(known),
        sharing={p.uuid: holding(p) for p in sharing})
    return cluster_view.ClusterView(cluster, model.PlanningOptions())


def judge(view, uuid, to='b'):
    return claims.claims(view, model.Move(uuid, 'a', to, model.Phase.SPREAD))


GPU = {'a-root': {'VCPU': 2}, 'a-gpu0': {'VGPU': 1}}
TWO = {'a-root': {'VCPU': 2}, 'a-gpu0': {'VGPU': 2}}
EACH = {'a-root': {'VCPU': 2}, 'a-gpu0': {'VGPU': 1}, 'a-gpu1': {'VGPU': 1}}


@pytest.mark.parametrize(('allocations', 'destination', 'rule', 'said'), [
    (GPU, host('b', 1), None, ''),
    (GPU, host('b'), 'no-inventory', 'b-root of host b has no VGPU, instance i needs 1'),
    (GPU, dataclasses.replace(host('b', 1), nested=(model.Provider('x'),)), 'no-inventory',
     'no resource provider of host b has VGPU'),
    (GPU, host('b', root_gpus=1), None, ''),
    ({'a-root': {'VCPU': 2, 'VGPU': 1}}, host('b', 0, 1), None, ''),
    (GPU, host('b', 0, 0), 'no-room', 'b-gpu0 of host b has 0 VGPU left'),
    (TWO, host('b', 1, 1), 'no-room', 'has 1 VGPU left, instance i needs 2; 1 others'),
    (TWO, host('b', 1, 2), None, ''),
    (EACH, host('b', 2), None, ''),
    (EACH, host('b', 1), 'no-room', 'but not for all at once'),
    (EACH, host('b', root_gpus=2), None, ''),
    (EACH, host('b', root_gpus=1), 'no-room', 'b-root of host b has 1 VGPU left'),
    (GPU, host('b', 4, vcpus=1), 'no-room', 'b-root of host b has 1 VCPU left'),
], ids=range(13))
def test_a_tree_has_room_or_says_why_not(allocations, destination, rule, said):
    no = judge(cloud(host('a', 2, 2), destination, i=allocations), 'i')
    assert (no.rule if no else None) == rule
    assert said in (no.detail if no else '')
    if no:
        assert 'instance i' in no.detail and 'host b' in no.detail


def test_cpus_and_memory_of_one_numa_cell_stay_on_one():
    def cells(name, *sizes):
        return model.Host(name, provider=model.Provider(f'{name}-root', inventories={
            'DISK_GB': model.Inventory(100)}), nested=tuple(
                model.Provider(f'{name}-{n}', parent_uuid=f'{name}-root', inventories={
                'VCPU': model.Inventory(v), 'MEMORY_MB': model.Inventory(m)})
            for n, (v, m) in enumerate(sizes)))
    claim = {'a-root': {'DISK_GB': 1}, 'a-0': {'VCPU': 2, 'MEMORY_MB': 1024}}
    apart = cells('b', (2, 512), (1, 1024))
    assert judge(cloud(cells('a', (4, 4096)), apart, i=claim), 'i').rule == 'no-room'
    assert judge(cloud(cells('a', (4, 4096)), cells('b', (1, 512), (2, 1024)), i=claim),
                 'i') is None
    # Those that were on a root may part.
    root = model.Host('a', provider=model.Provider('a-root', inventories={
        'VCPU': model.Inventory(8), 'MEMORY_MB': model.Inventory(8192),
        'DISK_GB': model.Inventory(100)}))
    whole = {'a-root': {'VCPU': 2, 'MEMORY_MB': 1024, 'DISK_GB': 1}}
    assert judge(cloud(root, apart, i=whole), 'i') is None
    # Nova finds no host by an allocation that has nothing on its root.
    no = judge(cloud(root, apart, i={'a-root': {'VCPU': 2, 'MEMORY_MB': 1024}}), 'i')
    assert (no.rule, 'on its root' in no.detail) == ('no-inventory', True)


def test_a_unit_that_no_provider_allocates_is_named():
    step = model.Host('b', provider=model.Provider('b-root', inventories={
        'VCPU': model.Inventory(8)}), nested=(model.Provider(
            'b-gpu', inventories={'VGPU': model.Inventory(8, min_unit=2, step_size=2)}),))
    no = judge(cloud(host('a', 2), step, i=GPU), 'i')
    assert (no.rule, '1 VGPU cannot be allocated on resource provider b-gpu' in no.detail) == (
        'claim-unit', True)


def pool(total, name='pool', resource_class='CUSTOM_ADDRESS'):
    return model.Provider(name, inventories={resource_class: model.Inventory(total)})


SHARED = {'a-root': {'VCPU': 2}, 'pool': {'CUSTOM_ADDRESS': 3}}


@pytest.mark.parametrize(('total', 'shares', 'other', 'rule'), [
    (6, ('pool',), 0, None),
    (5, ('pool',), 0, 'no-room'),  # both ends are charged while it runs
    (5, ('pool', 'other'), 3, None),
    (5, ('pool', 'other'), 2, 'no-room'),
    (9, (), 0, 'no-inventory'),
], ids=range(5))
def test_a_sharing_provider_serves_both_ends_or_another_one_does(total, shares, other, rule):
    view = cloud(host('a', sharing=('pool',)), host('b', sharing=shares),
                 sharing=(pool(total), pool(other, 'other')), i=SHARED)
    no = judge(view, 'i')
    assert (no.rule if no else None) == rule


def test_two_that_are_on_their_way_share_what_a_sharing_provider_has_left():
    view = cloud(host('a', sharing=('pool',)), host('b', sharing=('pool',)),
                 host('c', sharing=('pool',)), sharing=(pool(10),), i=SHARED, j=SHARED)
    assert judge(view, 'j', 'c') is None
    move = model.Move('i', 'a', 'b', model.Phase.SPREAD)
    view.begin_departure(move)
    assert judge(view, 'j', 'c').rule == 'no-room'
    view.revert_departure(move)
    assert judge(view, 'j', 'c') is None
    # No order of moves builds on what one leaves on a sharing provider.
    view.land_move(move)
    assert judge(view, 'j', 'c').rule == 'no-room'


def test_nova_asks_for_its_own_classes_in_the_tree_of_the_destination():
    """Placement leaves sharing providers out then: in_tree."""
    store = pool(100, 'store', 'DISK_GB')
    claim = {'a-root': {'VCPU': 1}, 'store': {'DISK_GB': 5}}
    without = host('b', sharing=('store',))
    no = judge(cloud(host('a', sharing=('store',)), without, sharing=(store,), i=claim), 'i')
    assert no.rule == 'no-inventory'
    of_its_own = dataclasses.replace(without, provider=dataclasses.replace(
        without.provider, inventories={**without.provider.inventories,
                                       'DISK_GB': model.Inventory(5)}))
    assert judge(cloud(host('a', sharing=('store',)), of_its_own, sharing=(store,), i=claim),
                 'i') is None


def test_those_that_come_are_placed_together():
    """In either order of arrival both fit: 1 on the small provider, 2 on the other."""
    for order in (('small', 'large'), ('large', 'small')):
        view = cloud(host('a', 8), host('b', 2, 1), small=GPU, large=TWO)
        for uuid in order:
            assert judge(view, uuid) is None
            view.land_move(model.Move(uuid, 'a', 'b', model.Phase.SPREAD))
        assert view.sum_allocated('b', 'VGPU') == 3 and view.sum_allocated('a', 'VGPU') == 0
        assert judge(cloud(host('a', 8), host('b', 2, 0), small=GPU, large=TWO), 'large') is None


def test_an_executor_blames_the_destination_for_each_refusal_of_this_rule():
    said = {judge(cloud(host('a', 2), to, i=GPU), 'i').rule for to in (
        host('b', 0), host('b'), host('b', vcpus=0))}
    assert said <= preflight_check.NO_ROOM
