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

"""Compact uses the fewest destinations, scatter gives all as many; each move is legal."""

from collections import Counter
import dataclasses
import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.search import bin_packing
from tests.unit import clouds

COMPACT, SCATTER = model.DrainMode.COMPACT, model.DrainMode.SCATTER


def simulate(request, host=None):
    simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                request.history, request.options)
    if host is not None:
        simulation.begin_drain(host)
    return simulation


def fewest(request, host, uuids, hosts):
    """Enumerate the smallest number of hosts that all instances can enter one after the
    other; they fill hosts and free none."""
    simulation = simulate(request, host)

    def fit(left, some):
        if not left:
            return True
        for there in some:
            move = model.Move(left[0], host, there, model.Phase.EVACUATE)
            if constraints.judge_move(simulation.view, move) is None:
                simulation.apply_move(move)
                found = fit(left[1:], some)
                simulation.undo_move(move)
                if found:
                    return True
        return False

    return next(size for size in range(len(hosts) + 1)
                if any(fit(list(uuids), some) for some in itertools.combinations(hosts, size)))


@clouds.examples(200)
@hypothesis.given(clouds.knobs(clean=True, groups=0, tight=True),
                  st.randoms(use_true_random=False))
def test_compact_uses_no_more_destinations_than_any_way_to_place_them(knobs, rng):
    request = clouds.request(dataclasses.replace(
        knobs, hosts=2 + knobs.hosts % 4, instances=1 + knobs.instances % 14))
    host = rng.choice(sorted(request.cluster.hosts))
    simulation = simulate(request, host)
    numbers = np.array(simulation.list_on_host(host)[:6])
    moves = bin_packing.place_by_mode(simulation, numbers, COMPACT, model.Phase.EVACUATE)
    hypothesis.assume(moves)
    others = [h for h in simulation.hosts if h != host]
    assert len({m.to_host for m in moves}) == fewest(
        request, host, [m.instance_uuid for m in moves], others)


@clouds.examples(200)
@hypothesis.given(clouds.knobs(), st.sampled_from([COMPACT, SCATTER]),
                  st.randoms(use_true_random=False))
def test_moves_are_legal_in_their_order_and_go_to_named_hosts_alone(knobs, mode, rng):
    request = clouds.request(knobs)
    host = rng.choice(sorted(request.cluster.scope_hosts))
    simulation = simulate(request, host)
    numbers = np.array([n for n in simulation.list_on_host(host) if simulation.drainable[n]],
                       dtype=np.intp)
    some = sorted(rng.sample(range(len(simulation.hosts)), rng.randint(0, len(simulation.hosts))))
    score = simulation.score.copy()
    moves = bin_packing.place_by_mode(simulation, numbers, mode, model.Phase.EVACUATE,
                                      np.array(some, dtype=np.intp))
    assert {simulation.host_index[m.to_host] for m in moves} <= set(some)
    other = simulate(request, host)
    for move in (moves if mode is SCATTER else ()):
        assert constraints.judge_move(other.view, move) is None
        other.apply_move(move)
    for move in reversed(moves):
        simulation.undo_move(move)
    assert (simulation.score == score).all()


@clouds.examples(200)
@hypothesis.given(clouds.knobs(), st.randoms(use_true_random=False))
def test_scatter_picks_an_allowed_host_with_the_fewest_arrivals(knobs, rng):
    request = clouds.request(knobs)
    host = rng.choice(sorted(request.cluster.scope_hosts))
    simulation = simulate(request, host)
    numbers = np.array([n for n in simulation.list_on_host(host) if simulation.drainable[n]],
                       dtype=np.intp)
    moves = bin_packing.place_by_mode(simulation, numbers, SCATTER, model.Phase.EVACUATE)
    other, come = simulate(request, host), Counter()
    for move in moves:
        least = min(come[h] for h in other.hosts if constraints.judge_move(
            other.view, dataclasses.replace(move, to_host=h)) is None)
        assert come[move.to_host] == least
        come[move.to_host] += 1
        other.apply_move(move)


def cloud(room, claims, used=None, groups=()):
    """Host ``a`` with instances of so many VCPU; others with room for so many.

    :param used: the used VCPU by host.
    """
    instances = {f'i{n}': model.Instance(f'i{n}', 'a', claims={'VCPU': amount})
                 for n, amount in enumerate(claims)}
    sizes = {'a': sum(claims)} | {h: r + (used or {}).get(h, 0) for h, r in room.items()}
    hosts = {name: model.Host(name, uuid=name, provider=model.Provider(
        name, inventories={'VCPU': model.Inventory(size)},
        used={'VCPU': sum(claims) if name == 'a' else (used or {}).get(name, 0)}))
        for name, size in sizes.items()}
    request = clouds.request(clouds.Knobs(seed=1, hosts=2, instances=2))
    cluster = model.Cluster(hosts, instances, {name: model.Service(name) for name in hosts},
                            scope_hosts=frozenset(hosts), groups=groups)
    scores = model.ClusterScores({p.name: model.PolicyScores(
        p.name, dict.fromkeys(hosts, 0.5), dict.fromkeys(hosts, 0.1), dict.fromkeys(hosts, 80.0),
        dict.fromkeys(instances, 1.0)) for p in request.policies.enabled_policies})
    return dataclasses.replace(request, cluster=cluster, scores=scores,
                               options=model.PlanningOptions(),
                               history=model.MoveHistory())


def placed(request, mode):
    simulation = simulate(request, 'a')
    moves = bin_packing.place_by_mode(simulation, np.array(simulation.list_on_host('a')), mode,
                                      model.Phase.EVACUATE)
    return {m.instance_uuid: m.to_host for m in moves}


def test_compact_fills_hosts_that_are_in_use_and_leaves_empty_ones_empty():
    request = cloud({'b': 8, 'c': 8, 'd': 8}, [2, 2, 2], used={'c': 2})
    assert set(placed(request, COMPACT).values()) == {'c'}


def test_compact_prefers_a_host_with_room_for_all_to_a_fuller_one(monkeypatch):
    monkeypatch.setattr(bin_packing, 'TRIED', 0)
    request = cloud({'b': 2, 'c': 8}, [2, 2, 2], used={'b': 6})
    assert set(placed(request, COMPACT).values()) == {'c'}


def test_compact_finds_fewer_hosts_where_first_fit_does_not(monkeypatch):
    """5+3+2 and 4+4+2: first fit decreasing puts 5+4 on one, and needs three."""
    request = cloud({'b': 10, 'c': 10, 'd': 10}, [5, 4, 4, 3, 2, 2])
    assert len(set(placed(request, COMPACT).values())) == 2
    monkeypatch.setattr(bin_packing, 'TRIED', 0)
    found = placed(request, COMPACT)
    assert len(found) == 6 and len(set(found.values())) == 3, 'the search is bounded'


def test_an_instance_without_room_is_left_out_and_others_are_placed():
    request = cloud({'b': 4, 'c': 4}, [9, 2, 2])
    assert placed(request, COMPACT) == {'i1': 'b', 'i2': 'b'}
    assert placed(request, SCATTER) == {'i1': 'b', 'i2': 'c'}


@pytest.mark.parametrize('count', [1, 3, 6, 8, 11])
def test_scatter_gives_each_as_many_give_or_take_one_where_there_is_room(count):
    request = cloud({'b': 99, 'c': 50, 'd': 24}, [1 + n % 2 for n in range(count)],
                    used={'c': 40})
    counts = Counter(placed(request, SCATTER).values())
    assert sum(counts.values()) == count
    assert max(counts.values()) - min(counts[h] for h in 'bcd') <= 1


def test_soft_groups_decide_between_hosts_that_a_mode_has_equal():
    group = model.ServerGroup('g', model.GroupPolicy.SOFT_ANTI_AFFINITY, frozenset({'i0', 'x'}))
    request = cloud({'b': 8, 'c': 8}, [2, 1], groups=(group,))
    cluster = dataclasses.replace(request.cluster, instances={
        **request.cluster.instances, 'x': model.Instance('x', 'b')})
    request = dataclasses.replace(request, cluster=cluster)
    assert placed(request, SCATTER) == {'i0': 'c', 'i1': 'b'}
