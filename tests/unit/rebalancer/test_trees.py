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

"""Planning on hosts with nested and sharing providers."""

import dataclasses
import json
import pathlib
import random

import hypothesis
import numpy as np
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import claims
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.backtest import allocations
from kronos_nova.rebalancer.masks import claims as mask
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.simulation import capacity as rooms
from kronos_nova.rebalancer.snapshots import anonymiser
from kronos_nova.rebalancer.snapshots import reader
from kronos_nova.rebalancer.snapshots import writer
from tests.unit import clouds
from tests.unit import trees


def simulate(knobs):
    r = clouds.request(knobs)
    options = dataclasses.replace(r.options, enforce_placement_disk=None)
    return sim.Simulation(r.cluster, r.scores, r.policies, r.history, options)


@clouds.examples(80)
@hypothesis.given(knobs=clouds.knobs(trees=True, devices=True))
def test_the_mask_equals_the_rule_and_tracks_the_holdings_of_a_tree(knobs):
    simulation = simulate(knobs)
    rng = random.Random(knobs.seed)
    rows = np.arange(len(simulation.uuids), dtype=np.intp)
    columns = np.arange(len(simulation.hosts), dtype=np.intp)
    for _ in range(4):
        allowed = mask.mark_room(simulation, rows, columns)
        legal = []
        for n in rows:
            for h in columns:
                move = simulation.build_move(int(n), int(h), model.Phase.EVACUATE)
                if h != simulation.place[n] and claims.claims(simulation.view, move) is None:
                    assert allowed[n, h], move
                    legal.append(move)
        free = [m for m in legal if simulation.movable[simulation.index[m.instance_uuid]]]
        if not free:
            break
        simulation.apply_move(rng.choice(free))


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(trees=True, devices=True, hosts=5, instances=20))
def test_plans_on_trees_are_legal_move_by_move_and_in_any_order(knobs):
    """The checker replays them with every move under way at once."""
    r = clouds.request(knobs)
    plan = planner.plan(r)
    found = sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)
    assert checker.check(plan, r.cluster, r.options, r.history, r.scores, found.ceilings,
                         r.budget) == ()
    assert plan == planner.plan(r)


def test_plans_for_the_random_clouds_move_nested_allocations():
    """Without such moves the test above would prove little."""
    moved = nested = 0
    for seed in range(clouds.many(25)):
        r = clouds.request(clouds.Knobs(seed, hosts=5, instances=20, budget=8, trees=True))
        for move in planner.plan(r).moves:
            roots = {h.provider.uuid for h in r.cluster.hosts.values() if h.provider}
            moved += 1
            nested += not roots.issuperset(
                r.cluster.instances[move.instance_uuid].allocations)
    assert nested >= 10 and moved > nested


def test_flat_trees_leave_plans_unchanged():
    """Trees without children, and allocations that say what claims say."""
    for seed in range(clouds.many(15)):
        r = clouds.request(clouds.Knobs(seed, hosts=5, instances=20, budget=5, groups=2))
        same = dataclasses.replace(r.cluster, instances={
            u: dataclasses.replace(i, allocations={
                r.cluster.hosts[i.host].provider.uuid: i.claims})
            for u, i in r.cluster.instances.items()})
        assert planner.plan(dataclasses.replace(r, cluster=same)) == planner.plan(r)


def test_room_is_summed_over_a_tree_and_endless_where_a_pool_may_serve():
    pool = model.Provider('pool', inventories={trees.POOL: model.Inventory(4)}, used={
        trees.POOL: 4})
    root = model.Provider('root', inventories={'VCPU': model.Inventory(8)}, used={'VCPU': 1})
    cards = tuple(model.Provider(f'card{n}', parent_uuid='root', used={'VGPU': n}, inventories={
        'VGPU': model.Inventory(4, max_unit=1 + n)}) for n in range(2))
    host = model.Host('h0', provider=root, nested=cards, sharing=frozenset({'pool'}))
    claim = {'VCPU': 1, 'VGPU': 2, trees.POOL: 1}
    cluster = model.Cluster(
        {'h0': host, 'h1': model.Host('h1', provider=model.Provider('other'))},
        {'i': model.Instance('i', 'h1', claims=claim, allocations={
            'other': {'VCPU': 1}, 'other-card': {'VGPU': 2}, 'pool': {trees.POOL: 1}})},
        {h: model.Service(h) for h in ('h0', 'h1')}, scope_hosts=frozenset({'h0', 'h1'}),
        sharing={'pool': pool})
    room = rooms.CapacityRoom(cluster_view.ClusterView(cluster, model.PlanningOptions()),
                              ['h0', 'h1'],
                              [cluster.instances['i']], np.array([0]))
    row = {name: n for n, name in enumerate(room.classes)}
    assert room.limit[:, 0].tolist() == [
        {'VCPU': 8.0, 'VGPU': 8.0, trees.POOL: np.inf}[c] for c in room.classes]
    assert room.limit[row['VGPU'], 1] == -np.inf
    assert (room.used[row['VCPU'], 0], room.used[row['VGPU'], 0]) == (1, 1)
    assert room.mark_fitting(np.array([0]), np.array([0, 1])).tolist() == [[True, False]]


@pytest.mark.parametrize(('parts', 'fits'), [
    (((2, 1), (2, 0)), True), (((1, 3), (2, 0)), False), (((3, 1), (1, 0)), False),
    (((1, 0), (1, 0)), True), (((3, 0), (0, 1)), False)])
def test_the_largest_part_of_a_class_must_fit_into_one_provider(parts, fits):
    """Parts are (VGPU, VCPU) per provider; the destination accepts at most 2 per piece."""
    claim = {'VGPU': sum(gpu for gpu, _ in parts), 'VCPU': sum(cpu for _, cpu in parts)}
    there = model.Provider('there', inventories={
        name: model.Inventory(9, max_unit=2) for name in claim})
    cluster = model.Cluster(
        {'h0': model.Host('h0', provider=model.Provider('here')),
         'h1': model.Host('h1', provider=there)},
        {'i': model.Instance('i', 'h0', claims=claim, allocations={
            f'p{n}': {'VGPU': gpu, 'VCPU': cpu} for n, (gpu, cpu) in enumerate(parts)})},
        {h: model.Service(h) for h in ('h0', 'h1')}, scope_hosts=frozenset({'h0', 'h1'}))
    room = rooms.CapacityRoom(cluster_view.ClusterView(cluster, model.PlanningOptions()),
                              ['h0', 'h1'],
                              [cluster.instances['i']], np.array([0]))
    assert room.mark_fitting(np.array([0]), np.array([1])).tolist() == [[fits]]


@clouds.examples(15)
@hypothesis.given(knobs=clouds.knobs(trees=True, clean=True))
def test_all_masks_together_permit_every_legal_move_of_a_cloud_with_trees(knobs):
    simulation = simulate(knobs)
    rows = np.arange(len(simulation.uuids), dtype=np.intp)
    columns = np.arange(len(simulation.hosts), dtype=np.intp)
    allowed = masks.mark_permitted(simulation, rows, columns)
    for n in rows:
        for h in columns:
            move = simulation.build_move(int(n), int(h), model.Phase.AFFINITY)
            if constraints.judge_move(simulation.view, move) is None:
                assert allowed[n, h], move


# Snapshots.

def recorded(tmp_path, name, r, cluster):
    return writer.write_snapshot(str(tmp_path / name), writer.SnapshotContent(
        now=clouds.NOW, scopes=('scope',), policies=r.policies, cluster=cluster,
        histories={'scope': r.history}, samples={p.name: model.PolicySamples(
            p.name, model.QueryResult('q', model.SourceHealth.HEALTHY))
                                                 for p in r.policies.enabled_policies}))


def contents(directory):
    """Return the documents by file. The order of a mapping means nothing in them."""
    return {p.relative_to(directory): json.loads(p.read_text())
            for p in pathlib.Path(directory).rglob('*') if p.is_file()}


def renamed(scores, hosts, uuids):
    def keys(values, names):
        return {names[k]: v for k, v in values.items()}
    return model.ClusterScores({n: dataclasses.replace(
        p, hosts=keys(p.hosts, hosts), fill=keys(p.fill, hosts), usages=keys(p.usages, uuids),
        capacity=keys(p.capacity, hosts)) for n, p in scores.policies.items()}, scores.taken_at)


def test_a_cloud_with_trees_replays_from_snapshot_and_anonymous_copy(tmp_path):
    moved = 0
    for seed in range(clouds.many(6)):
        r = clouds.request(clouds.Knobs(seed, hosts=6, instances=24, budget=6, groups=2,
                                        trees=True))
        plan = planner.plan(r)
        moved += len(plan.moves)
        first = recorded(tmp_path, f'{seed} first', r, r.cluster)
        read = reader.read_snapshot(first).cluster
        assert read.replace_scope('scope') == r.cluster
        again = recorded(tmp_path, f'{seed} again', r, read)
        assert contents(first) == contents(again)
        assert planner.plan(dataclasses.replace(r, cluster=read.replace_scope('scope'))) == plan

        found = anonymiser.anonymise_snapshot(first, b'x' * 32, keep_order=True)
        copy = reader.read_snapshot(writer.publish_directory(str(tmp_path / f'{seed} copy'),
                                                             found.documents, 'copy')).cluster
        hosts = dict(zip(sorted(r.cluster.hosts), sorted(copy.hosts), strict=True))
        uuids = dict(zip(sorted(r.cluster.instances), sorted(copy.instances), strict=True))
        scope = next(s for s in copy.aggregates if s != model.UNASSIGNED)
        same = planner.plan(dataclasses.replace(
            r, cluster=copy.replace_scope(scope), scores=renamed(r.scores, hosts, uuids)))
        assert [(m.instance_uuid, m.to_host, m.wave) for m in same.moves] == [
            (uuids[m.instance_uuid], hosts[m.to_host], m.wave) for m in plan.moves]
        assert [sorted(p.used.values()) for _, p in sorted(copy.sharing.items())] == [
            sorted(p.used.values()) for _, p in sorted(r.cluster.sharing.items())]
    assert moved > 5


# A simulated past.

@clouds.examples(30)
@hypothesis.given(knobs=clouds.knobs(trees=True, clean=True))
def test_holdings_equal_placements_and_moves_lose_no_unit(knobs):
    cluster = clouds.request(knobs).cluster
    rng = random.Random(knobs.seed)
    found = allocations.ProviderHoldings(cluster)
    for uuid, instance in sorted(cluster.instances.items()):
        found.place_instance(uuid, instance.host)
        assert found.map_allocations(uuid) == instance.allocations
    known = trees.providers(cluster)

    def shown():
        return {p: {c: n for c, n in found.show_allocations(known[p]).used.items() if n}
                for p in known}

    before = shown()
    assert before == {p: {c: n for c, n in known[p].used.items() if n} for p in known}
    wandered = rng.sample(sorted(cluster.instances), min(5, len(cluster.instances)))
    for uuid in wandered:
        to = rng.choice(sorted(cluster.hosts))
        found.place_instance(uuid, to)
        held = found.map_allocations(uuid)
        instance = cluster.instances[uuid]
        assert {c: sum(h.get(c, 0) for h in held.values()) for c in instance.claims} == (
            instance.claims)
        reachable = {p.uuid for p in cluster.hosts[to].tree} | cluster.hosts[to].sharing
        assert to == instance.host or reachable.issuperset(held)
    for uuid in wandered:
        found.place_instance(uuid, cluster.instances[uuid].host)
    assert shown() == before
    found.remove_instance(wandered[0])
    assert shown() != before or not any(cluster.instances[wandered[0]].claims.values())
