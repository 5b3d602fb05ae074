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
import dataclasses
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import service_state
from kronos_nova.rebalancer import masks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.masks import domains
from kronos_nova.rebalancer.planning import planner
from tests.unit import clouds
from tests.unit.rebalancer import spread_judge
from tests.unit.rebalancer import test_plan_properties


@clouds.examples(400)
@hypothesis.given(knobs=clouds.knobs(domains=True, clean=True), order=st.integers(0, 2**20))
def test_no_order_of_a_plan_worsens_a_spread(knobs, order):
    request = clouds.request(knobs)
    plan = planner.plan(request)
    assert test_plan_properties.refusals(request, plan) == ()
    for n in range(3):
        assert spread_judge.list_worsening_moves(
            request.cluster, plan, random.Random(order + n)) == []


@clouds.examples(300)
@hypothesis.given(knobs=clouds.knobs(domains=True))
def test_every_plan_over_domains_passes_the_checker(knobs):
    request = clouds.request(knobs)
    plan = planner.plan(request)
    assert test_plan_properties.refusals(request, plan) == ()


@pytest.mark.turns(3)
def test_plans_move_spread_instances_and_the_rule_refuses_some():
    """Or the tests above would show nothing."""
    moved, refused, repaired = 0, 0, 0
    for seed in range(150):
        request = clouds.request(clouds.Knobs(seed, hosts=6, instances=20, domains=True,
                                              soft_repairs=seed % 2 == 0, budget=5))
        plan = planner.plan(request)
        moved += sum(bool(request.cluster.instances[m.instance_uuid].spread) for m in plan.moves)
        repaired += sum(m.phase is model.Phase.AFFINITY for m in plan.moves)
        refused += 'worsens-spread' in plan.rejections
    assert moved > 100 and refused > 20 and repaired > 50


@clouds.examples(150)
@hypothesis.given(knobs=clouds.knobs(domains=True, drains=False), order=st.integers(0, 2**20))
def test_the_checker_refuses_a_move_that_worsens_a_spread(knobs, order):
    """A plan of one random move for balance; the judge and the checker agree."""
    request = clouds.request(knobs)
    rng = random.Random(order)
    uuid = rng.choice(sorted(request.cluster.instances))
    source = request.cluster.instances[uuid].host
    move = model.Move(uuid, source, rng.choice(sorted(request.cluster.hosts)), model.Phase.SPREAD)
    plan = dataclasses.replace(planner.plan(request), moves=(move,), swaps=())
    known = spread_judge.map_domains(request.cluster)
    kinds = {r.kind for r in request.cluster.instances[uuid].spread}
    hypothesis.assume(not request.cluster.flights and move.to_host != source and all(
        (kind, host) in known for kind in kinds for host in request.cluster.hosts))
    hypothesis.assume(all(len({h for h in request.cluster.hosts if (k, h) in known})
                          == len(request.cluster.hosts) for k in ('rack', 'pdu')))
    found = {r.rule for r in test_plan_properties.refusals(request, plan)}
    worse = spread_judge.list_worsening_moves(request.cluster, plan, rng, fails=0.0)
    assert ('worsens-spread' in found) == bool(worse)


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(domains=True))
def test_the_mask_is_the_rule(knobs):
    request = clouds.request(knobs)
    state = sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                           request.options)
    rng = random.Random(knobs.seed)
    for n in rng.sample(range(len(state.uuids)), min(4, len(state.uuids))):
        target = rng.choice([h for h in range(len(state.hosts)) if h != state.place[n]])
        state.apply_move(state.build_move(n, target, model.Phase.EVACUATE))
    rows, columns = list(range(len(state.uuids))), list(range(len(state.hosts)))
    allowed = domains.mark_spread_kept(state, sim.arrays.make_int_array(rows),
                                       sim.arrays.make_int_array(columns))
    rule = constraints.domain_spread.WORSENS_SPREAD_RULE
    for n in rows:
        for h in columns:
            move = state.build_move(n, h, model.Phase.SPREAD)
            if (h != state.place[n]
                    and request.cluster.instances[state.uuids[n]].host != move.to_host):
                assert allowed[n, h] == (rule.judge(state.view, move) is None), move
    assert domains.mark_spread_kept in masks.MASKS
    for phase in model.Phase:
        assert (domains.mark_spread_kept in masks.choose_filling_masks(phase)) == (
            phase not in service_state.LEAVING), phase  # drains may worsen a spread


@pytest.mark.turns(3)
def test_a_drain_is_the_same_number_of_moves_with_and_without_requests():
    drained = 0
    for seed in range(60):
        request = clouds.request(clouds.Knobs(seed, hosts=6, instances=20, domains=True,
                                              drains=True, budget=8))
        bare = dataclasses.replace(request, cluster=dataclasses.replace(
            request.cluster, instances={u: dataclasses.replace(i, spread=())
                                        for u, i in request.cluster.instances.items()}))
        leaving = [{m.instance_uuid for m in planner.plan(r).moves
                    if m.phase is model.Phase.EVACUATE} for r in (request, bare)]
        assert len(leaving[0]) == len(leaving[1]), seed
        drained += len(leaving[0])
    assert drained > 30


@pytest.mark.turns(3)
def test_repairs_end():
    """Plan after plan, a scope with repairs comes to rest."""
    rested = 0
    for seed in range(40):
        request = clouds.request(clouds.Knobs(seed, hosts=6, instances=16, domains=True, groups=2,
                                              soft_repairs=True, hard_repairs=True, budget=8))
        for _cycle in range(12):
            moves = [m for m in planner.plan(request).moves if m.phase is model.Phase.AFFINITY]
            if not moves:
                rested += 1
                break
            view = cluster_view.ClusterView(request.cluster, request.options)
            for move in moves:
                view.land_move(move)
            places = {m.instance_uuid: m.to_host for m in moves}
            request = dataclasses.replace(request, cluster=dataclasses.replace(
                request.cluster, instances={
                    u: dataclasses.replace(i, host=places.get(u, i.host))
                    for u, i in request.cluster.instances.items()}))
    assert rested == 40
