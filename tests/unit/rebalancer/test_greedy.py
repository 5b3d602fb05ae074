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


"""The greedy of ``objective = kronos``, held to a brute-force reference.

The reference tries every pair of instance and host, in plain Python, one
addition after the other: no array, no bound, no ``sum`` (it is compensated
from Python 3.12 on). It knows the rules as sentences, not our code for them.
"""

import dataclasses
import random

import numpy as np
import pytest

from kronos_nova import model
from kronos_nova import policy
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies import greedy
from kronos_nova.rebalancer.strategies import spread
from tests.unit import clouds

#: Clusters tried, in so many parts that can run beside each other.
CLUSTERS = clouds.many(10_000)
PARTS = 8


@dataclasses.dataclass
class Small:
    """A cluster as dicts: what the reference sees."""

    hosts: list
    takers: set
    weights: dict
    thresholds: dict
    scores: dict
    capacity: dict
    usage: dict
    place: dict
    fixed: set
    claim: dict
    free: dict
    groups: list
    budget: int
    banned: set = dataclasses.field(default_factory=set)


def small(seed):
    """A random small cluster: ties, zero usages, odd groups, few free cores."""
    rng = random.Random(seed)
    hosts = [f'h{n}' for n in range(rng.randint(2, 5))]
    names = ['cpu', 'memory', 'net'][:rng.randint(1, 3)]
    parts = [rng.randint(1, 5) for _ in names]
    grid = rng.choice([8, 10, 64, 1000, None])
    sizes = rng.choice([(1.0,), (1.0,), (1.0, 2.0, 3.0)])

    def value(most):
        if grid is None:
            return rng.random() * most
        return rng.randint(0, int(grid * most)) / grid

    uuids = [f'i{n:02d}' for n in range(rng.randint(0, 12))]
    place = {u: rng.choice([*hosts * 3, 'outside']) for u in uuids}
    groups = []
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        kind = rng.choice(list(model.GroupPolicy))
        members = frozenset(rng.sample([*uuids, 'deleted'], rng.randint(0, min(4, len(uuids)))))
        groups.append((kind, members, rng.choice([1, 1, 2])
                       if kind is model.GroupPolicy.ANTI_AFFINITY else 1))
    return mix(rng, Small(
        hosts=hosts, takers={h for h in hosts if rng.random() < 0.97},
        weights={p: part / sum(parts) for p, part in zip(names, parts, strict=True)},
        thresholds={p: rng.choice([0.0, 0.05, 0.1, 0.25]) for p in names},
        scores={p: {h: value(1.0) for h in hosts} for p in names},
        capacity={p: {h: rng.choice(sizes) for h in hosts} for p in names},
        usage={p: {u: rng.choice([0.0, value(0.2), value(0.5)]) for u in uuids} for p in names},
        place=place, fixed={u for u in uuids if rng.random() < 0.05},
        claim={u: rng.choice([0, 1, 1, 2]) for u in uuids},
        free={h: rng.choice([0, 2, 9, 9, 9]) for h in hosts}, groups=groups,
        budget=rng.randint(1, 5)))


def mix(rng, c):
    """The cluster with its hosts and instances listed in another order than by name."""
    def shuffled(listed):
        return dict(rng.sample(list(listed.items()), len(listed)))

    return dataclasses.replace(c, place=shuffled(c.place),
                               scores={p: shuffled(row) for p, row in c.scores.items()})


def allowed(c, place, free, uuid, to):
    """May the instance go there: room, hard groups as Nova has them, and
    what seed 000 makes of groups."""
    if (uuid, to) in c.banned:
        return False
    if to not in c.takers or to == place[uuid] or (c.claim[uuid] and free[to] < c.claim[uuid]):
        return False
    for kind, members, most in c.groups:
        if uuid not in members:
            continue
        others = [place[m] for m in members if m != uuid and m in place]
        scoped = [h for h in others if h in c.hosts]
        if kind in ('anti-affinity', 'soft-anti-affinity') and others.count(to) >= most:
            return False
        if kind == 'affinity' and to not in others:
            return False
        if kind in ('affinity', 'soft-affinity') and any(h != to for h in scoped):
            return False
    return True


def imbalances(c, scores):
    out = {}
    for p in scores:
        high = [scores[p][h] for h in c.hosts]
        low = [scores[p][h] for h in c.hosts if h in c.takers]
        out[p] = max(high) - min(low) if low else 0.0
        out[p] = max(out[p], 0.0)
    return out


def combined(c, values):
    total = 0.0
    for p, value in values.items():
        total += c.weights[p] * value
    return total


def brute_force(c):
    """Every move, every time: the first of the largest falls."""
    scores = {p: dict(row) for p, row in c.scores.items()}
    # Of equal falls the first: by scores at the start, then by the order of the lists.
    first = next(iter(scores.values()))
    hosts = sorted(first, key=first.__getitem__, reverse=True)
    place, free, moves = dict(c.place), dict(c.free), []
    fixed = set(c.fixed)
    while len(moves) < c.budget:
        now = imbalances(c, scores)
        if all(now[p] <= c.thresholds[p] for p in now):
            break
        best, chosen = base.EPSILON, None
        for source in hosts:
            for uuid in [u for u in place if place[u] == source and u not in fixed]:
                for to in hosts:
                    if not allowed(c, place, free, uuid, to):
                        continue
                    after = imbalances(c, moved(c, scores, uuid, source, to))
                    if any(after[p] > now[p] and after[p] > c.thresholds[p] for p in now):
                        continue
                    gain = combined(c, now) - combined(c, after)
                    if gain > best:
                        best, chosen = gain, (uuid, source, to)
        if chosen is None:
            break
        uuid, source, to = chosen
        moves.append((*chosen, best))
        scores = moved(c, scores, uuid, source, to)
        place[uuid] = to
        free[source] += c.claim[uuid]
        free[to] -= c.claim[uuid]
        fixed.add(uuid)
    return moves


def moved(c, scores, uuid, source, to):
    out = {p: dict(row) for p, row in scores.items()}
    for p, row in out.items():
        row[source] -= c.usage[p][uuid] / c.capacity[p][source]
        row[to] += c.usage[p][uuid] / c.capacity[p][to]
    return out


def simulation(c):
    """The same cluster as the planner sees it."""
    total = 1000
    instances = {u: model.Instance(u, h, vcpus=1, memory_mb=1, locked=u in c.fixed,
                                   claims={'VCPU': c.claim[u]}) for u, h in c.place.items()}
    hosts = {h: model.Host(h, provider=model.Provider(
        h, inventories={'VCPU': model.Inventory(total)},
        used={'VCPU': total - c.free.get(h, 0)})) for h in [*c.hosts, 'outside']}
    cluster = model.Cluster(
        hosts, instances, {h: model.Service(h) for h in hosts},
        groups=tuple(model.ServerGroup(f'g{n}', kind, members, most)
                     for n, (kind, members, most) in enumerate(c.groups)),
        scope='scope', scope_hosts=frozenset(c.hosts))
    usage = {p: {u: row[u] for u in c.place if c.place[u] in c.hosts}
             for p, row in c.usage.items()}
    # Fills are what ceilings are compared with; none is in the way here.
    scores = model.ClusterScores({p: model.PolicyScores(
        p, hosts=c.scores[p], fill=dict.fromkeys(c.hosts, -100.0), capacity=c.capacity[p],
        usages=usage[p]) for p in c.scores})
    policies = policy.PolicySet(policies=tuple(policy.Policy(
        name=p, mode='spread', weight=c.weights[p], imbalance_query='q',
        threshold=c.thresholds[p]) for p in c.scores))
    history = model.MoveHistory(quarantined_hosts=frozenset(set(c.hosts) - c.takers))
    return sim.Simulation(cluster, scores, policies, history,
                          model.PlanningOptions(objective='kronos'))


def found(state, budget):
    moves = spread.Spread().propose(state, budget)
    assert {m.phase for m in moves} <= {model.Phase.SPREAD}
    return [(m.instance_uuid, m.from_host, m.to_host, m.improvement) for m in moves]


@pytest.mark.parametrize('part', [
    0, 1, 2, *(pytest.param(part, marks=pytest.mark.long) for part in range(3, PARTS))])
def test_the_sequence_is_the_brute_forces_move_for_move(part):
    made = long = 0
    for seed in range(part, CLUSTERS, PARTS):
        cluster = small(seed)
        expected = brute_force(cluster)
        assert found(simulation(cluster), cluster.budget) == expected, seed
        made += len(expected)
        long += len(expected) > 1
    assert made > CLUSTERS / PARTS / 2 and long > CLUSTERS / PARTS / 10, 'nothing to move'


def larger(seed, tied):
    """Enough hosts and instances that batches and bounds decide."""
    rng = random.Random(seed)
    c = small(seed)
    c.hosts = [f'h{n:02d}' for n in range(12)]
    c.takers = set(c.hosts) - {rng.choice(c.hosts)}
    c.place = {f'i{n:03d}': rng.choice(c.hosts) for n in range(60)}
    steps = 16 if tied else 2**40

    def value(most):
        return rng.randint(0, int(steps * most)) / steps

    for p in c.scores:
        c.scores[p] = {h: 0.25 + value(0.5) for h in c.hosts}
        c.capacity[p] = dict.fromkeys(c.hosts, 1.0)
        c.usage[p] = {u: value(0.125) for u in c.place}
    uuids = sorted(c.place)
    c.claim = {u: rng.choice([1, 2, 4]) for u in uuids}
    c.free = {h: rng.choice([0, 2, 8, 99]) for h in c.hosts}
    c.fixed = set(rng.sample(uuids, 6))
    c.groups = [(rng.choice(list(model.GroupPolicy)), frozenset(rng.sample(uuids, 4)), 1)
                for _ in range(8)]
    c.budget = 6
    return c


@pytest.mark.parametrize('tied', [False, True])
def test_batches_and_bounds_lose_nothing(tied):
    for seed in range(clouds.many(25)):
        cluster = larger(seed, tied)
        assert found(simulation(cluster), cluster.budget) == brute_force(cluster), seed


def test_each_bound_holds_and_is_reached():
    """No gain is above its bound, rounding included; some are equal to it."""
    reached = 0
    for seed in range(clouds.many(400)):
        state = simulation(small(seed))
        search = greedy.GreedySearch(state, set())
        rows = search._list_candidates(search._hot)
        others = np.setdiff1d(np.flatnonzero(state.takers), search._cold)
        if rows.size and others.size:
            gains = search._compute_gains(rows, others)
            gains[state.place[rows][:, None] == others[None, :]] = -np.inf
            bound = search._bounds_without(rows)
            assert (gains <= bound[:, None]).all(), seed
            reached += int((gains.max(axis=1) == bound).sum())
        for d in search._cold:
            cluster = small(seed)
            apart = imbalances(dataclasses.replace(cluster, takers=cluster.takers - {
                state.hosts[d]}), cluster.scores)
            limit = combined(cluster, imbalances(cluster, cluster.scores)) - combined(
                cluster, apart)
            assert search._limit_towards(d) == pytest.approx(limit, abs=1e-12), seed
            sources = np.array([h for h in range(len(state.hosts)) if h not in search._hot
                                and h != d and state.givers[h]], dtype=np.intp)
            for s, bound in zip(sources, search._bounds_towards(sources, d), strict=True):
                assert bound <= search._limit_towards(d), seed
                rows = search._list_candidates([int(s)])
                if rows.size:
                    assert (search._compute_gains(rows, np.array([d])) <= bound).all(), seed
    assert reached > clouds.many(100)


def test_bounds_are_no_higher_than_they_need_be():
    """Without a destination: what the instance leaves behind. Towards one: as
    if the largest usage of the source came and left nothing behind."""
    vetoed = compared = 0
    for seed in range(clouds.many(400)):
        c = small(seed)
        search = greedy.GreedySearch(simulation(c), set())
        now, uuids = imbalances(c, c.scores), search._simulation.uuids
        rows = search._list_candidates(search._hot)
        for n, bound in zip(rows, search._bounds_without(rows), strict=True):
            uuid = uuids[n]
            left = {p: {h: v - (h == c.place[uuid]) * c.usage[p][uuid] / c.capacity[p][h]
                        for h, v in row.items()} for p, row in c.scores.items()}
            after = imbalances(c, left)
            if any(after[p] > now[p] and after[p] > c.thresholds[p] for p in now):
                assert bound == -np.inf, seed
                vetoed += 1
            else:
                assert bound == pytest.approx(combined(c, now) - combined(c, after), abs=1e-12)
        for d in search._cold:
            number = search._simulation.host_index
            to = search._simulation.hosts[d]
            sources = [h for h in c.hosts if number[h] not in (*search._hot, d)]
            bounds = search._bounds_towards(np.array([number[h] for h in sources],
                                                     dtype=np.intp), d)
            for source, bound in zip(sources, bounds, strict=True):
                after = 0.0
                for p, row in c.scores.items():
                    most = max((c.usage[p][u] for u, h in c.place.items() if h == source),
                               default=0.0)
                    low = min([row[to] + most / c.capacity[p][to],
                               *(row[h] for h in c.takers if h != to)])
                    after += c.weights[p] * max(max(row[h] for h in c.hosts) - low, 0.0)
                assert bound == pytest.approx(combined(c, now) - after, abs=1e-12), seed
                compared += 1
    assert vetoed > clouds.many(20) and compared > clouds.many(100), (vetoed, compared)


def test_a_policy_may_rise_to_its_threshold_and_no_further():
    """i relieves h0 of cpu; net then spans 0 to 0.25 on any destination."""
    hosts = ['h0', 'h1', 'h2', 'h3']
    cluster = Small(
        hosts=hosts, takers=set(hosts),
        weights={'cpu': 0.9, 'net': 0.1}, thresholds={'cpu': 0.1, 'net': 0.25},
        scores={'cpu': {'h0': 1.0, 'h1': 0.0, 'h2': 0.125, 'h3': 0.5},
                'net': {'h0': 0.25, 'h1': 0.25, 'h2': 0.1875, 'h3': 0.125}},
        capacity={'cpu': dict.fromkeys(hosts, 1.0),
                  'net': {'h0': 1.0, 'h1': 1.0, 'h2': 4.0, 'h3': 1.0}},
        usage={'cpu': {'i': 0.5}, 'net': {'i': 0.25}}, place={'i': 'h0'}, fixed=set(),
        claim={'i': 0}, free=dict.fromkeys(hosts, 9), groups=[], budget=1)
    assert [m[:3] for m in found(simulation(cluster), 1)] == [('i', 'h0', 'h2')]
    assert found(simulation(cluster), 1) == brute_force(cluster)
    lower = dataclasses.replace(cluster, thresholds={'cpu': 0.1, 'net': 0.2})
    assert found(simulation(lower), 1) == brute_force(lower) == []


def looked_at(bounds, best=None):
    """Items 0, 1, ... of such bounds, in the order in which they are looked at."""
    search = greedy.GreedySearch(simulation(small(1)), set())
    search._best = best
    seen = []
    search._by_bound(np.arange(len(bounds)), np.array(bounds), lambda item: (item,),
                     lambda part: seen.extend(part.tolist()))
    return seen


def test_candidates_are_looked_at_by_bound_and_then_in_the_order_of_ties():
    assert looked_at([0.5, 1.0] * 50) == [*range(1, 100, 2), *range(0, 100, 2)]
    assert looked_at([base.EPSILON] * 3) == []


def test_nothing_is_looked_at_that_cannot_win():
    best = greedy._MoveCandidate(1.0, (50, 0, 0))
    assert looked_at([3.0, 2.0, 0.9, 0.8], best) == [0, 1]
    assert looked_at([0.9] * 9, best) == []
    equal = looked_at([1.0] * 300, best)
    assert equal[:51] == list(range(51)) and len(equal) < 300, 'of equals the first wins'


def test_search_counts_its_candidates_as_work_and_vetoes_by_rule():
    vetoed = 0
    for seed in range(clouds.many(400)):
        state = simulation(small(seed))
        search = greedy.GreedySearch(state, set())
        rows, columns = search._list_candidates(search._hot), search._takers
        if not rows.size or not columns.size:
            continue
        state.steps = 100
        permitted = masks.mark_permitted(state, rows, columns, masks.QUICK)
        count = int((permitted & (search._compute_gains(rows, columns) == -np.inf)).sum())
        for times in (1, 2):
            search._judge_block(rows, columns)
            assert state.steps == 100 + times * (1 + rows.size * columns.size // base.PER_STEP)
            assert state.rejections['would-worsen'] == times * count, seed
        vetoed += count
    assert vetoed > clouds.many(100), vetoed


def test_the_larger_a_block_the_more_work_it_is():
    state = simulation(larger(1, tied=False))
    search = greedy.GreedySearch(state, set())
    rows, columns = search._list_candidates(list(range(12))), search._takers
    assert rows.size * columns.size >= 3 * base.PER_STEP
    search._judge_block(rows, columns)
    assert state.steps == 1 + rows.size * columns.size // base.PER_STEP


def test_where_masks_know_every_rule_no_rule_has_to_refuse(monkeypatch):
    monkeypatch.setattr(base, 'count_masked', lambda *a: None)
    made = 0
    for seed in range(clouds.many(400)):
        cluster = small(seed)
        state = simulation(cluster)
        made += len(found(state, cluster.budget))
        assert not set(+state.rejections) - {'would-worsen'}, seed
    assert made > clouds.many(200)


def full():
    """A cluster that would move much if there were room anywhere."""
    c = larger(1, tied=False)
    return dataclasses.replace(c, free=dict.fromkeys(c.hosts, 0), claim=dict.fromkeys(c.claim, 1))


def test_a_move_that_a_rule_alone_refuses_is_left_out(monkeypatch):
    """Masks may permit too much; the rules have the last word."""
    state = simulation(full())
    monkeypatch.setattr(state.room, 'mark_fitting',
                        lambda rows, columns: np.ones((len(rows), len(columns)), dtype=bool))
    assert greedy.best_move(state) is None
    assert state.rejections['no-room'] > 0 and not state.truncated


def test_only_moves_that_a_rule_refuses_are_left_out():
    """The next best is taken, of the same instance to another host too."""
    other_host = 0
    for seed in range(clouds.many(2000)):
        cluster = small(seed)
        first = brute_force(cluster)[:1]
        if not first:
            continue
        uuid, _, to, _ = first[0]
        state = simulation(cluster)

        def check(move, state=state, pair=(uuid, to), judge=state.judge_move):
            if (move.instance_uuid, move.to_host) == pair:
                return model.Rejection('refused', 'a rule that no mask knows')
            return judge(move)
        state.judge_move = check
        expected = brute_force(dataclasses.replace(cluster, banned={(uuid, to)}))
        assert found(state, cluster.budget) == expected, seed
        other_host += expected[:1] != [] and expected[0][0] == uuid
    assert other_host > clouds.many(100), other_host


def test_moves_without_improvement_are_not_counted_as_rejections():
    state = simulation(dataclasses.replace(full(), usage={
        p: dict.fromkeys(row, 0.0) for p, row in full().usage.items()}))
    assert state.extremes.only_highest(0) >= 0
    assert greedy.best_move(state) is None
    assert not +state.rejections


def test_moves_refused_by_masks_are_counted_by_rule():
    state = simulation(full())
    assert greedy.best_move(state) is None
    assert state.rejections['no-room'] > 0


def test_the_count_of_steps_bounds_the_search():
    state = simulation(larger(1, tied=False))
    state.options = dataclasses.replace(state.options, max_steps=1)
    assert len(spread.Spread().propose(state, 6)) <= 1
    assert state.truncated
