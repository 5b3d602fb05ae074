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


"""The choice that drains and repairs share, held to trying every place."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.strategies import base
from kronos_nova.rebalancer.strategies import evacuate
from tests.unit import clouds


def simulate(r):
    return sim.Simulation(r.cluster, r.scores, r.policies, r.history, r.options)


def places(state, n, phase, mends):
    """(first key, move) of every legal place of an instance, tried one by one."""
    for h in range(len(state.hosts)):
        move = state.build_move(n, h, phase)
        if (h == state.place[n] or constraints.judge_move(state.view, move) is not None
                or (state.trusted and state.frozen[h])
            or (mends and state.compute_group_repair(move) >= 0)):
            continue
        if state.trusted:
            state.apply_move(move)
            key = state.compute_combined()
            state.undo_move(move)
        else:
            key = fullest(state, n, h)
        yield key + state.soft_cost(move), move


def fullest(state, n, h):
    """Highest ratio of allocated to allocatable on the host with the instance."""
    provider = state.cluster.hosts[state.hosts[h]].provider
    claims = state.cluster.instances[state.uuids[n]].claims
    return max(((state.view.sum_allocated(state.hosts[h], c) + amount)
                / provider.inventories[c].capacity
                for c, amount in claims.items() if amount and provider
                and c in provider.inventories), default=0.0)


@pytest.mark.parametrize('trusted', [True, False])
@clouds.examples(120)
@hypothesis.given(knobs=clouds.knobs(), mends=st.booleans())
def test_the_best_place_is_the_best_of_all_places(trusted, knobs, mends):
    r = clouds.request(knobs)
    if not trusted:
        r = dataclasses.replace(r, scores=model.ClusterScores({
            name: dataclasses.replace(p, untrusted='old')
            for name, p in r.scores.policies.items()}))
    state = simulate(r)
    movable = np.flatnonzero(state.movable & state.givers[state.place])
    for n in movable[:4]:
        expected = list(places(state, int(n), model.Phase.AFFINITY, mends))
        found = base.best_place(state, np.array([n]), model.Phase.AFFINITY, mends=mends)
        assert (found is None) == (not expected)
        if found is not None:
            key = next(k for k, move in expected if move.to_host == found.to_host)
            assert key == pytest.approx(min(k for k, _ in expected), abs=1e-9)


@clouds.examples(100)
@hypothesis.given(rows=st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 2.0])] * 3), max_size=12))
def test_ranking_is_sorting(rows):
    keys = [np.array([row[k] for row in rows]) for k in range(3)]
    keys.append(np.arange(len(rows)))
    order = sorted(range(len(rows)), key=lambda i: (*rows[i], i))
    assert list(base.sort_positions(keys)) == order


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(clean=False))
def test_the_representatives_show_every_rule_that_refuses(knobs):
    """As long as there are not too many hosts of a kind."""
    state = simulate(clouds.request(knobs))
    hosts = np.arange(len(state.hosts), dtype=np.intp)
    for n in range(len(state.uuids)):
        def rules(pairs, n=n):
            moves = [state.build_move(n, int(h), model.Phase.EVACUATE) for h in pairs]
            return {no.rule for m in moves if (no := constraints.judge_move(state.view, m))}

        _, chosen = base.choose_representatives(state, np.array([n]), hosts,
                                               model.Phase.EVACUATE)
        assert rules(chosen) == rules(h for h in hosts if h != state.place[n])


def test_the_reason_of_a_blocked_drain_is_read_from_few_hosts(monkeypatch):
    """Any number of hosts: the planner reads 16 of each kind for the count and the warning."""
    r = clouds.request(clouds.Knobs(seed=1, hosts=120, instances=120))
    services = dict(r.cluster.services)
    services['h0'] = model.Service('h0', status='disabled', disabled_reason='maintenance')
    instances = {u: dataclasses.replace(i, claims={'VCPU': 10_000})
                 for u, i in r.cluster.instances.items()}
    victim = next(iter(sorted(instances)))
    instances[victim] = dataclasses.replace(instances[victim], host='h0')
    state = simulate(dataclasses.replace(
        r, cluster=dataclasses.replace(r.cluster, services=services, instances=instances)))
    asked = []
    judge = constraints.judge_move
    monkeypatch.setattr(constraints, 'judge_move', lambda view, move, *judges: asked.append(move)
                        or judge(view, move, *judges))
    assert evacuate.Evacuate().propose(state, 5) == []
    count = len(state.list_on_host('h0'))
    assert 0 < len(asked) <= count * 4 * base.SAMPLE < count * len(state.hosts)
    assert all('no-room' in w for w in state.warnings) and len(state.warnings) == count
