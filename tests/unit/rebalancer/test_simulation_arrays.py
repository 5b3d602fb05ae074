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


"""The arrays that follow each move equal those of a new simulation."""

import math
import random

import hypothesis
from hypothesis import strategies as st
import numpy as np

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.simulation import extremes
from kronos_nova.rebalancer.simulation import group_membership
from kronos_nova.rebalancer.simulation import residents
from tests.unit import clouds

#: Few different values: ties are what goes wrong.
VALUES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
COLUMNS = st.lists(st.tuples(VALUES, VALUES, st.booleans(), st.booleans()), max_size=7)


@clouds.examples(300)
@hypothesis.given(columns=COLUMNS)
def test_extremes_without_any_two_hosts_are_what_a_scan_finds(columns):
    score = np.array([[c[0] for c in columns], [c[1] for c in columns]])
    givers = np.array([c[2] for c in columns], dtype=bool)
    takers = np.array([c[3] for c in columns], dtype=bool)
    found = extremes.ImbalanceExtremes(score, givers, takers)
    hosts = range(len(columns))
    for p, row in enumerate(score.tolist()):
        for s in [-5, *hosts]:
            for d in [-5, *hosts]:
                high = [row[h] for h in hosts if givers[h] and h not in (s, d)]
                low = [row[h] for h in hosts if takers[h] and h not in (s, d)]
                assert found.find_highest_without(p, s, d) == max(high, default=-math.inf)
                assert found.find_lowest_without(p, s, d) == min(low, default=math.inf)
        every = np.arange(len(columns))
        assert found.high_but_each(p, every).tolist() == [found.find_highest_without(p, h)
                                                          for h in hosts]
        assert found.low_but_each(p, every).tolist() == [found.find_lowest_without(p, h)
                                                         for h in hosts]
        top = [h for h in hosts if givers[h] and row[h] == found.find_highest_without(p)]
        bottom = [h for h in hosts if takers[h] and row[h] == found.find_lowest_without(p)]
        assert found.only_highest(p) == (top[0] if len(top) == 1 else -1)
        assert found.only_lowest(p) == (bottom[0] if len(bottom) == 1 else -1)


def test_extremes_are_found_again_after_a_change():
    score = np.array([[0.1, 0.9]])
    every = np.ones(2, dtype=bool)
    found = extremes.ImbalanceExtremes(score, every, every)
    assert found.only_highest(0) == 1
    score[0] = [0.9, 0.1]
    found.drop_extremes()
    assert (found.only_highest(0), found.only_lowest(0)) == (0, 1)


@clouds.examples(100)
@hypothesis.given(seed=st.integers(0, 2**20), hosts=st.integers(1, 6), count=st.integers(0, 20))
def test_residents_equal_the_instances_on_each_host(seed, hosts, count):
    rng = random.Random(seed)
    place = np.array([rng.randrange(hosts) for _ in range(count)], dtype=np.intp)
    found = residents.HostResidents(place.copy(), hosts)
    usage = np.array([[rng.random() for _ in range(count)] for _ in range(2)]).reshape(2, count)
    peaks = found.compute_peaks(usage)
    for h in range(hosts):
        here = np.flatnonzero(place == h)
        for p in range(2):
            assert peaks[p, h] == (usage[p, here].max() if here.size else 0.0)
    for _ in range(10 if count else 0):
        n, to = rng.randrange(count), rng.randrange(hosts)
        if to != place[n]:
            found.shift_instance(n, int(place[n]), to)
            place[n] = to
    for h in range(hosts):
        assert found.list_on_host(h).tolist() == np.flatnonzero(place == h).tolist()


@clouds.examples(80)
@hypothesis.given(knobs=clouds.knobs())
def test_after_moves_the_arrays_are_what_the_view_says(knobs):
    """Room, fills and who is where; also who may take, while hosts drain."""
    r = clouds.request(knobs)
    state = sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)
    rng = random.Random(knobs.seed)
    numbers = [int(n) for n in np.flatnonzero(state.movable)]
    for n in rng.sample(numbers, min(len(numbers), 5)):
        to = rng.choice([h for h in range(len(state.hosts)) if h != state.place[n]])
        state.apply_move(state.build_move(n, to, model.Phase.SPREAD))
    drained = rng.choice(state.hosts)
    state.begin_drain(drained)
    for h, host in enumerate(state.hosts):
        for c, name in enumerate(state.classes):
            if r.cluster.hosts[host].provider is not None:
                assert state.room.used[c, h] == state.view.sum_allocated(host, name)
        fills = state.view.map_known_fills(host)
        for p, policy in enumerate(state.policies):
            if r.scores.policies[policy.name].untrusted is None:
                assert math.isnan(state.fill[p, h]) == (policy.name not in fills)
                assert math.isnan(state.fill[p, h]) or state.fill[p, h] == fills[policy.name]
        on_host = {u for u in r.cluster.instances if state.view.find_host_of(u) == host}
        assert {state.uuids[n] for n in state.list_on_host(host)} == on_host
        assert state.open[h] == (state.available[h] and state.view.judge_closed_host(host) is None)
    assert not state.takers[state.host_index[drained]]


def test_extremes_follow_moves_and_drains():
    r = clouds.request(clouds.Knobs(seed=4, hosts=5, instances=20, policies=2))
    state = sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)
    rng = random.Random(1)
    for n in range(10):
        to = rng.choice([h for h in range(5) if h != state.place[n]])
        state.apply_move(state.build_move(n, to, model.Phase.SPREAD))
        expected = state.score.max(axis=1) - state.score.min(axis=1)
        assert state.compute_imbalances().tolist() == expected.tolist()
    lowest = int(state.score[0].argmin())
    state.begin_drain(state.hosts[lowest])
    assert state.extremes.find_lowest_without(0) == np.delete(state.score[0], lowest).min()
    state.undo_drain(state.hosts[lowest])
    assert state.extremes.find_lowest_without(0) == state.score[0].min()


@clouds.examples(150)
@hypothesis.given(knobs=clouds.knobs(), steps=st.integers(1, 40))
def test_reverted_moves_leave_no_trace(knobs, steps):
    """After random moves, reverts in any order, drains and reopened hosts the arrays
    equal those of a new simulation with the remaining moves."""
    r = clouds.request(knobs)
    rng = random.Random(knobs.seed)
    state, fresh = (sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)
                    for _ in range(2))
    begun = state.view.draining.copy()
    done: list[model.Move] = []
    drained: set[str] = set()
    for _ in range(steps):
        match rng.randrange(5):
            case 0 | 1:
                free = [int(n) for n in np.flatnonzero(state.movable)]
                if free:
                    n = rng.choice(free)
                    to = rng.choice([h for h in range(len(state.hosts)) if h != state.place[n]])
                    done.append(state.build_move(n, to, model.Phase.SPREAD))
                    state.apply_move(done[-1])
            case 2 | 3:
                if done:
                    state.undo_move(done.pop(rng.choice([-1, rng.randrange(len(done))])))
            case _:
                host = rng.choice(state.hosts)
                if host in drained:
                    state.undo_drain(host)
                    drained.discard(host)
                elif host not in begun:
                    state.begin_drain(host)
                    drained.add(host)
    for move in done:
        fresh.apply_move(move)
    for host in drained:
        fresh.begin_drain(host)
    for name in ('score', 'place', 'movable', 'open', 'takers', 'givers'):
        assert getattr(state, name).tolist() == getattr(fresh, name).tolist(), name
    assert state.room.used.tolist() == fresh.room.used.tolist()
    assert np.allclose(state.fill, fresh.fill, rtol=0, atol=1e-12, equal_nan=True)
    assert state.compute_imbalances().tolist() == fresh.compute_imbalances().tolist()
    assert state.view.draining == fresh.view.draining
    for p in range(len(state.policies)):
        assert state.extremes.list_highest(p) == fresh.extremes.list_highest(p)
        assert state.extremes.list_lowest(p) == fresh.extremes.list_lowest(p)
    for h, host in enumerate(state.hosts):
        assert state.list_on_host(host).tolist() == fresh.list_on_host(host).tolist()
        for p, policy in enumerate(state.policies):
            if not math.isnan(state.fill[p, h]):
                assert state.fill[p, h] == state.view.map_known_fills(host)[policy.name]
    for group in r.cluster.groups:
        assert state.view.placement.map_members_by_host(
            group) == fresh.view.placement.map_members_by_host(group)
    for uuid in state.uuids:
        assert state.view.find_host_of(uuid) == fresh.view.find_host_of(uuid)
        assert state.view.find_host_of(uuid) == state.hosts[state.place[state.index[uuid]]]


def test_arrays_mark_grouped_hard_grouped_and_waiting_instances():
    def group(uuid, policy, *members):
        return model.ServerGroup(uuid, policy, frozenset(members))

    uuids = ['hard', 'soft', 'both', 'none', 'away']
    cluster = model.Cluster(
        {h: model.Host(h) for h in 'ab'}, {u: model.Instance(u, 'a') for u in uuids},
        {h: model.Service(h) for h in 'ab'}, scope_hosts=frozenset('ab'),
        flights=(model.InFlightMove('away', 'a', 'b'),),
        groups=(group('g', model.GroupPolicy.ANTI_AFFINITY, 'hard', 'both', 'gone'),
                group('h', model.GroupPolicy.SOFT_AFFINITY, 'soft', 'both', 'away'),
                group('i', model.GroupPolicy.AFFINITY, 'gone')))
    marks = group_membership.mark_grouped_instances(
        cluster_view.ClusterView(cluster, model.PlanningOptions()),
        {u: n for n, u in enumerate(uuids)})

    def named(marked):
        return {u for u, there in zip(uuids, marked.tolist(), strict=True) if there}

    assert named(marks.grouped) == {'hard', 'soft', 'both', 'away'}
    assert named(marks.hard) == {'hard', 'both'}
    assert named(marks.awaiting) == {'soft', 'both'}
