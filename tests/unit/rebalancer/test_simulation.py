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

"""The simulation's arithmetic, held to plain Python done from scratch."""

import dataclasses
import random

import hypothesis
import numpy as np
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies import spread
from tests.unit import clouds


def simulate(knobs):
    r = clouds.request(knobs)
    return sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)


def imbalances(simulation, score):
    """max over givers - min over takers, never below 0; ``score`` is P x H."""
    out = []
    for row in score:
        high = [v for v, giver in zip(row, simulation.givers, strict=True) if giver]
        low = [v for v, taker in zip(row, simulation.takers, strict=True) if taker]
        out.append(max(0.0, max(high) - min(low)) if high and low else 0.0)
    return out


def after(simulation, n, h):
    """P x H lists: the scores with instance n on host h."""
    score = [list(row) for row in simulation.score]
    s = simulation.place[n]
    for p, row in enumerate(score):
        if s != h:
            row[s] -= simulation.usage[p, n] / simulation.capacity[p, s]
            row[h] += simulation.usage[p, n] / simulation.capacity[p, h]
    return score


@clouds.examples(80)
@hypothesis.given(knobs=clouds.knobs())
def test_effects_are_what_brute_force_finds(knobs):
    simulation = simulate(knobs)
    rows = np.arange(len(simulation.uuids), dtype=np.intp)
    columns = np.arange(len(simulation.hosts), dtype=np.intp)
    if not simulation.givers.any() or not simulation.takers.any():
        return
    effect = simulation.compute_effects(rows, columns)
    before = imbalances(simulation, simulation.score)
    assert simulation.compute_imbalances() == pytest.approx(before)
    for n in rows:
        for h in columns:
            if simulation.place[n] == h:
                continue
            score = after(simulation, n, h)
            now = imbalances(simulation, score)
            assert effect.combined[n, h] == pytest.approx(
                sum(w * i for w, i in zip(simulation.weights, now, strict=True)), abs=1e-9)
            rise = [(i - b, i - t) for i, b, t in
                    zip(now, before, simulation.thresholds, strict=True)]
            if not any(abs(x) < 1e-7 for pair in rise for x in pair):
                assert effect.refused[n, h] == any(a > 0 and b > 0 for a, b in rise)
            excess = [w * max(0.0, i - t) for w, i, t in
                      zip(simulation.weights, now, simulation.thresholds, strict=True)]
            assert effect.excess[n, h] == pytest.approx(sum(excess), abs=1e-9)
            squares = [w * (sum(x * x for x in new) - sum(x * x for x in old))
                       for w, new, old in zip(simulation.weights, score, simulation.score,
                                              strict=True)]
            assert effect.convex[n, h] == pytest.approx(sum(squares), abs=1e-9)


def improving_moves(simulation):
    """(value, move) of every legal move that is worth it by the definition."""
    before = simulation.compute_combined()
    now = imbalances(simulation, simulation.score)

    def above(values):
        return weighted(simulation, [max(0.0, v - t) for v, t in
                                     zip(values, simulation.thresholds, strict=True)])

    for n in np.flatnonzero(simulation.movable & simulation.profiled):
        if not simulation.givers[simulation.place[n]]:
            continue
        for h in np.flatnonzero(simulation.takers):
            move = simulation.build_move(int(n), int(h), model.Phase.SPREAD)
            if h == simulation.place[n]:
                continue
            score = after(simulation, n, h)
            new = imbalances(simulation, score)
            gain = before - weighted(simulation, new)
            worse = any(i > b + 1e-9 and i > t + 1e-9 for i, b, t in
                        zip(new, now, simulation.thresholds, strict=True))
            down = weighted(simulation, [sum(x * x for x in old) - sum(x * x for x in row)
                                         for old, row in zip(simulation.score, score,
                                                             strict=True)])
            if above(new) < above(now) - 1e-9:
                down = float('inf')
            value = min(gain, down) - simulation.soft_cost(move)
            price = simulation.options.minimum_gain * simulation.cost[n] / 1024
            if (gain - price > spread.NOISE + 1e-7 and down > spread.CONVEX_GAIN + 1e-7
                    and value > 1e-7
                    and not worse and simulation.compute_group_repair(move) <= 0
                    and constraints.judge_move(simulation.view, move) is None):
                yield value, move


def weighted(simulation, values):
    return float(sum(w * v for w, v in zip(simulation.weights, values, strict=True)))


@clouds.examples(120)
@hypothesis.given(knobs=clouds.knobs(mode='spread', objective='balanced'))
def test_the_best_improving_move_lies_at_an_extreme_host(knobs):
    """Looking only at moves from a maximum or to a minimum misses nothing."""
    simulation = simulate(knobs)
    expected = list(improving_moves(simulation))
    found = spread._find_improving_move(simulation, spread.NOISE)
    assert bool(expected) == (found is not None)
    if found is not None:
        values = {(m.instance_uuid, m.to_host): value for value, m in expected}
        assert values[found.instance_uuid, found.to_host] == pytest.approx(
            max(values.values()), abs=1e-9)


def picture(view, cluster):
    """All that rules can see of a view; exact but for floating sums."""
    exact = (
        {u: view.find_host_of(u) for u in cluster.instances},
        {(g.uuid, h): set(view.list_members_on(g, h)) for g in cluster.groups
         for h in cluster.hosts},
        {u for u in cluster.instances if view.is_in_flight(u)}, set(view.draining))
    rounded = {(h, c): view.sum_allocated(h, c) for h in cluster.hosts
               for c in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
    rounded |= {(h, n): v for h in cluster.hosts for n, v in view.map_known_fills(h).items()}
    return exact, rounded


def assert_same(one, two):
    assert one[0] == two[0]
    assert one[1] == pytest.approx(two[1], abs=1e-9)


def some_moves(rng, simulation, count):
    """Moves of different movable instances to any other host."""
    numbers = [int(n) for n in np.flatnonzero(simulation.movable)]
    for n in rng.sample(numbers, min(count, len(numbers))):
        h = rng.choice([h for h in range(len(simulation.hosts)) if h != simulation.place[n]])
        yield simulation.build_move(n, h, model.Phase.SPREAD)


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs())
def test_undo_restores_the_simulation(knobs):
    simulation = simulate(knobs)
    before = picture(simulation.view, simulation.cluster)
    arrays = [a.copy() for a in (simulation.score, simulation.place, simulation.movable,
                                 simulation.takers)]
    done = []
    for move in some_moves(random.Random(knobs.seed), simulation, 6):
        simulation.apply_move(move)
        done.append(move)
    host = simulation.hosts[0]
    if host not in simulation.view.draining:
        simulation.begin_drain(host)
        assert not simulation.takers[0]
        simulation.undo_drain(host)
    for move in reversed(done):
        simulation.undo_move(move)
    assert_same(picture(simulation.view, simulation.cluster), before)
    for array, old in zip((simulation.score, simulation.place, simulation.movable,
                           simulation.takers), arrays, strict=True):
        assert array == pytest.approx(old, abs=1e-9)


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs())
def test_recall_restores_the_view(knobs):
    simulation = simulate(knobs)
    view = simulation.view
    before = picture(view, simulation.cluster)
    moves = list(some_moves(random.Random(knobs.seed), simulation, 6))
    for move in moves[:3]:
        view.land_move(move)
    for move in moves[3:]:
        view.begin_departure(move)
    for move in moves[:3]:
        assert view.find_host_of(move.instance_uuid) == move.to_host
        assert not view.is_in_flight(move.instance_uuid)
    for move in moves[3:]:
        assert view.find_host_of(move.instance_uuid) == move.from_host
        assert view.is_in_flight(move.instance_uuid)
    for move in reversed(moves[3:]):
        view.revert_departure(move)
    for move in reversed(moves[:3]):
        view.undo_landing(move)
    assert_same(picture(view, simulation.cluster), before)


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs())
def test_a_view_with_landed_moves_is_a_view_of_the_moved_cluster(knobs):
    """Overlay and fresh data are one truth: the executor's pre-flight agrees."""
    request = clouds.request(dataclasses.replace(knobs, clean=True))
    # The other objective orders hosts by their scores, which differ here.
    request = dataclasses.replace(request, options=dataclasses.replace(
        request.options, objective='balanced'))
    simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                request.history, request.options)
    moves = list(some_moves(random.Random(knobs.seed), simulation, 6))
    for move in moves:
        simulation.apply_move(move)
    later = clouds.moved(request, model.Plan('scope', tuple(moves)))
    fresh = sim.Simulation(later.cluster, later.scores, later.policies, later.history,
                           later.options)
    assert_same(picture(simulation.view, request.cluster), picture(fresh.view, later.cluster))
    assert simulation.score == pytest.approx(fresh.score, abs=1e-9)
    assert (simulation.place == fresh.place).all()
    assert (simulation.room.used == fresh.room.used).all()
    every = np.arange(len(simulation.uuids)), np.arange(len(simulation.hosts))
    for mask in masks.FILLING:
        assert (mask(simulation, *every) == mask(fresh, *every)).all(), mask.__name__


def test_an_applied_instance_is_not_movable_again_until_undone():
    simulation = simulate(clouds.Knobs(seed=1))
    move = simulation.build_move(0, int(simulation.place[0] + 1) % len(simulation.hosts),
                                 model.Phase.SPREAD)
    simulation.apply_move(move)
    assert not simulation.movable[0]
    simulation.undo_move(move)
    assert simulation.movable[0]


def test_a_move_in_flight_fills_both_ends_and_levels_as_if_it_had_landed():
    quiet = clouds.request(clouds.Knobs(seed=3))
    uuid = max(quiet.scores.policies['cpu'].usages,
               key=lambda u: quiet.scores.policies['cpu'].usages[u])
    source = quiet.cluster.instances[uuid].host
    target = next(h for h in sorted(quiet.cluster.scope_hosts) if h != source)
    flight = model.InFlightMove(uuid, source, target, 'task')
    cluster = dataclasses.replace(quiet.cluster, flights=(flight,))
    before, now = (sim.Simulation(c, quiet.scores, quiet.policies, quiet.history, quiet.options)
                   for c in (quiet.cluster, cluster))
    usage = quiet.scores.policies['cpu'].usages[uuid]
    change = now.score - before.score
    h = now.host_index[target]
    assert change[0, h] == pytest.approx(usage / now.capacity[0, h])
    assert change[0, now.host_index[source]] == pytest.approx(
        -usage / now.capacity[0, now.host_index[source]])
    assert now.view.map_known_fills(source) == before.view.map_known_fills(source)
    assert now.view.map_known_fills(target)['cpu'] > before.view.map_known_fills(target)['cpu']


def test_a_host_whose_fill_is_unknown_is_frozen():
    request = clouds.request(clouds.Knobs(seed=1, mode='pack'))
    cpu = request.scores.policies['cpu']
    cpu = dataclasses.replace(cpu, fill={h: v for h, v in cpu.fill.items() if h != 'h1'})
    simulation = sim.Simulation(request.cluster, model.ClusterScores({'cpu': cpu}),
                                request.policies,
                                request.history, request.options)
    assert [h for h, f in zip(simulation.hosts, simulation.frozen, strict=True) if f] == ['h1']
    move = model.Move(simulation.uuids[0], simulation.cluster.instances[simulation.uuids[0]].host,
                      'h1', model.Phase.PACK)
    assert simulation.view.judge_missing_scores(move).rule == 'host-frozen'


def test_work_is_bounded_by_a_count_and_by_the_safety_stop():
    request = clouds.request(clouds.Knobs(seed=1))
    few = dataclasses.replace(request.options, max_steps=1)
    counted = sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                             few)
    assert not counted.is_cut_off()
    counted.steps = 1
    assert counted.is_cut_off() and counted.truncated
    late = sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                          request.options, expired=lambda: True)
    assert late.is_cut_off() and late.truncated


def test_epsilon_is_far_above_rounding():
    assert base.EPSILON > 1000 * np.finfo(float).eps


@clouds.examples(80)
@hypothesis.given(knobs=clouds.knobs())
def test_group_changes_of_all_hosts_are_those_of_each_move(knobs):
    simulation = simulate(knobs)
    hosts = np.arange(len(simulation.hosts), dtype=np.intp)
    for n in range(len(simulation.uuids)):
        hard, soft = simulation.group_changes(n, hosts)
        mends = simulation.mark_repairing(hard, soft)
        for h in hosts:
            if h != simulation.place[n]:
                move = simulation.build_move(n, int(h), model.Phase.AFFINITY)
                assert (hard[h], soft[h]) == simulation.group_change(move)
                assert mends[h] == (simulation.compute_group_repair(move) < 0)
