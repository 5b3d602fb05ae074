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

"""Repair of spreads: its part of a cycle, its work and its warnings."""

from collections import Counter
import random

import hypothesis
from hypothesis import strategies as st

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import domain_spread
from kronos_nova.constraints import failure_domains
from kronos_nova.model import spread_requests
from kronos_nova.rebalancer import checker
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import repair
from tests.unit import clouds

POLICIES = policy.PolicySet(policies=[{
    'name': 'cpu', 'weight': 1.0, 'threshold': 0.01, 'imbalance_query': 'x',
    'vm_profile_query': 'x'}])
OPTIONS = {'enforce_domain_spread': True, 'dry_run': False}


def make_cluster(places, racks=4, hosts=8, unclear=(), groups=(), free=8):
    """Hosts h0, h1, ... in racks by turns.

    :param places: hosts by project: an instance for each, of one set of the project.
    """
    names = [f'h{n}' for n in range(hosts)]
    aggregates = {f'rack{n}': tuple(names[n::racks]) for n in range(racks)}
    aggregates['odd'] = tuple(unclear)
    instances = {}
    for project, of_project in places.items():
        for number, host in enumerate(of_project):
            uuid = f'{project}-{number:05}'
            instances[uuid] = model.Instance(
                uuid, host, project_id=project, memory_mb=512, vcpus=1,
                claims={'VCPU': 1}, spread=spread_requests.parse_spread('rack:web'))
    used = Counter(i.host for i in instances.values())
    return model.Cluster(
        {h: model.Host(h, uuid=h, provider=model.Provider(
            h, inventories={'VCPU': model.Inventory(used[h] + free)}, used={'VCPU': used[h]}))
         for h in names},
        instances, {h: model.Service(h) for h in names}, groups=groups, scope='all',
        scope_hosts=frozenset(names), aggregates={'all': tuple(names), **aggregates},
        aggregate_metadata={
            'odd': {failure_domains.KEY: 'rack r9'},
            **{f'rack{n}': {failure_domains.KEY: f'rack:r{n}'} for n in range(racks)}},
        placement_known=True, taken_at=clouds.NOW)


def simulate(cluster, seed=0, **options):
    return sim.Simulation(
        cluster, model.ClusterScores({'cpu': model.PolicyScores(
            'cpu', hosts=dict.fromkeys(cluster.hosts, 0.5),
            fill=dict.fromkeys(cluster.hosts, 0.5), capacity=dict.fromkeys(cluster.hosts, 8.0),
            usages=dict.fromkeys(cluster.instances, 0.0))}, cluster.taken_at),
        POLICIES, model.MoveHistory(), model.PlanningOptions(**{**OPTIONS, **options}),
        seed=seed, now=clouds.NOW)


def test_repairs_of_spreads_take_a_part_of_the_moves_and_each_project_has_its_turn():
    cluster = make_cluster({project: ['h0'] * 12 for project in 'pqrs'})
    simulation = simulate(cluster)
    moves = repair.Repair().propose(simulation, 16)
    assert sorted(cluster.instances[m.instance_uuid].project_id for m in moves) == list('pqrs')


def test_of_few_moves_repairs_of_spreads_get_their_part_in_some_cycles():
    cluster = make_cluster({project: ['h0'] * 12 for project in 'pqrs'})
    first = [repair.Repair().propose(simulate(cluster, seed), 1) for seed in range(100)]
    assert {len(moves) for moves in first} == {0, 1}
    assert 10 < sum(map(len, first)) < 40
    # No project is always the first.
    assert len({m.instance_uuid[0] for moves in first for m in moves}) == 4


def test_a_large_set_ends_its_repair_and_not_the_plan():
    # No host has room, so each member is tried with each host.
    cluster = make_cluster({'p': ['h0'] * 3000, 'q': ['h0'] * 9}, hosts=40, free=0)
    simulation = simulate(cluster, max_steps=4000)
    assert repair.Repair().propose(simulation, 50) == []
    assert not simulation.truncated and simulation.steps < 2000
    assert any('their part of the steps of work' in w for w in simulation.warnings)


def test_a_set_that_stays_uneven_is_named_by_a_member():
    simulation = simulate(make_cluster({'p': ['h0'] * 3}, free=0))
    assert repair.Repair().propose(simulation, 50) == []
    warning, = (w for w in simulation.warnings if 'unevenly' in w)
    assert 'none of its 3 members' in warning and 'instance p-00000' in warning


def test_no_repair_begins_or_ends_on_a_host_whose_domain_is_unclear():
    cluster = make_cluster({'p': ['h0'] * 4 + ['h4'] * 2}, hosts=6, racks=2, unclear=('h4', 'h1'))
    moves = repair.Repair().propose(simulate(cluster), 100)
    assert moves and {m.from_host for m in moves} == {'h0'}
    assert {m.to_host for m in moves} <= {'h3', 'h5'}


def test_a_group_that_a_spread_keeps_from_repair_says_so():
    # Both racks have as many members, and only the host of the other rack is free of the group.
    group = model.ServerGroup('g', model.GroupPolicy.ANTI_AFFINITY,
                              frozenset(['p-00000', 'p-00001']))
    cluster = make_cluster({'p': ['h0', 'h0', 'h1', 'h1']}, hosts=2, racks=2, groups=(group,))
    options = {'enforce_hard_affinity': True, 'enforce_domain_spread': False}
    simulation = simulate(cluster, **options)
    assert repair.Repair().propose(simulation, 4) == []
    warning, = (w for w in simulation.warnings if w.startswith('server group g'))
    assert 'worsens-spread' in warning
    full = simulate(make_cluster({'p': ['h0', 'h0']}, hosts=2, racks=2, groups=(group,), free=0),
                    **options)
    repair.Repair().propose(full, 4)
    warning, = (w for w in full.warnings if w.startswith('server group g'))
    assert 'worsens-spread' not in warning


def check_move(cluster, uuid, to_host):
    move = model.Move(uuid, cluster.instances[uuid].host, to_host, model.Phase.AFFINITY)
    options = model.PlanningOptions(**OPTIONS)
    return {r.rule for r in checker.check(model.Plan('all', (move,)), cluster, options,
                                          model.MoveHistory(), None, {}, 5)}


def test_the_checker_takes_only_repairs_that_may_improve_a_spread():
    cluster = make_cluster({'p': ['h0', 'h0', 'h1']}, hosts=8)
    assert check_move(cluster, 'p-00000', 'h2') == set()
    assert check_move(cluster, 'p-00000', 'h4') == {'no-repair'}  # the same rack
    assert check_move(cluster, 'p-00002', 'h2') == {'no-repair'}  # as uneven as before


def test_a_large_set_weighs_no_more_than_a_small_one_in_a_drain():
    counts = [simulate(make_cluster({'p': ['h0'] * large + ['h1']})).count_broken_preferences
              for large in (3, 300)]
    every = sim.arrays.make_int_array(range(8))
    changes = [count(0, every).tolist() for count in counts]
    assert changes[0] == changes[1] == [0, -1, -1, -1, 0, -1, -1, -1]


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(domains=True), order=st.integers(0, 2**20))
def test_counts_that_follow_moves_are_those_of_a_new_view(knobs, order):
    request = clouds.request(knobs)
    rng = random.Random(order)
    view = cluster_view.ClusterView(request.cluster, request.options)
    uuids = sorted(request.cluster.instances)

    def list_counts(seen):
        return [domain_spread.count_change(seen, model.Move(
            u, seen.find_host_of(u), h, model.Phase.SPREAD), s)
            for u in uuids for s in seen.list_spread_sets_of(u)
            for h in sorted(request.cluster.hosts)]

    list_counts(view)
    made = []
    for _step in range(6):
        uuid = rng.choice(uuids)
        move = model.Move(uuid, view.find_host_of(uuid), rng.choice(sorted(request.cluster.hosts)),
                          model.Phase.SPREAD)
        if move.from_host == move.to_host or view.is_in_flight(uuid):
            continue
        change = rng.choice(['land_move', 'begin_departure'])
        getattr(view, change)(move)
        made.append((change, move))
        fresh = cluster_view.ClusterView(request.cluster, request.options)
        for name, earlier in made:
            getattr(fresh, name)(earlier)
        assert list_counts(view) == list_counts(fresh)
    for change, move in reversed(made):
        getattr(view, 'undo_landing' if change == 'land_move' else 'revert_departure')(move)
    assert list_counts(view) == list_counts(
        cluster_view.ClusterView(request.cluster, request.options))
