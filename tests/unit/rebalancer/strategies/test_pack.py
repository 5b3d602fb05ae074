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

"""Pack on any cloud: the invariants of its arrays and plans."""

import dataclasses
import math
import random

import hypothesis
import numpy as np
import pytest

from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.planning import pack_prediction
from kronos_nova.rebalancer.planning import planner
from kronos_nova.rebalancer.strategies.pack import fill_forecast as outlooks
from tests.scenarios import loader
from tests.unit import clouds


def foreseeing(request, seed):
    """The request with means and deviations of most instances."""
    rng = random.Random(seed)
    policies = {}
    for name, scores in request.scores.policies.items():
        known = [u for u in sorted(scores.usages) if rng.random() < 0.9]
        policies[name] = dataclasses.replace(
            scores, means={u: scores.usages[u] * rng.uniform(0.5, 1.2) for u in known},
            deviations={u: scores.usages[u] * rng.uniform(0.0, 0.5) for u in known})
    return dataclasses.replace(request, scores=dataclasses.replace(
        request.scores, policies=policies))


def simulation_of(request):
    return sim.Simulation(request.cluster, request.scores, request.policies, request.history,
                          request.options)


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(mode='pack', clean=True))
def test_the_outlook_after_moves_is_the_outlook_of_where_they_lead(knobs):
    request = foreseeing(clouds.request(knobs), knobs.seed)
    outlook = outlooks.FillForecast(simulation_of(request))
    rng = random.Random(knobs.seed)
    simulation = outlook.simulation
    before, expected = levels(outlook), outlook.expected.copy()
    moves = []
    for n in rng.sample(range(len(simulation.uuids)), min(5, len(simulation.uuids))):
        h = rng.choice([h for h in range(len(simulation.hosts)) if h != simulation.place[n]])
        moves.append(outlook.apply_move(simulation.build_move(n, h, model.Phase.PACK)))
    plan = model.Plan('scope', moves=tuple(moves))
    fresh = outlooks.FillForecast(simulation_of(clouds.moved(request, plan)))
    assert np.allclose(levels(outlook), levels(fresh), atol=1e-6)
    assert (outlook.counts == fresh.counts).all()
    for move in rng.sample(moves, len(moves)):
        outlook.undo_move(move)
    assert np.allclose(levels(outlook), before, atol=1e-6)
    assert expected.tolist() == outlook.expected.tolist(), 'undone moves leave no rounding behind'


def levels(outlook):
    """What each host would be at with each instance on it, and without its own."""
    hosts = np.arange(len(outlook.simulation.hosts))
    return np.array([[*outlook.compute_loaded_levels(n, hosts), outlook.compute_unloaded_level(n)]
                     for n in range(len(outlook.simulation.uuids))])


@clouds.examples(200)
@hypothesis.given(knobs=clouds.knobs(mode='pack', drains=False, hard_repairs=False,
                                     soft_repairs=False))
def test_a_host_is_relieved_or_emptied_or_left_alone(knobs):
    request = foreseeing(clouds.request(knobs), knobs.seed)
    outlook = outlooks.FillForecast(simulation_of(request))
    plan = planner.plan(request)
    gone = {m.instance_uuid for m in plan.moves}
    for host in {m.from_host for m in plan.moves}:
        over = outlook.compute_excess(outlook.simulation.host_index[host]).max() > 0
        left = [i for i in request.cluster.instances.values()
                if i.host == host and i.uuid not in gone]
        assert over or host in plan.draining or not left, (host, plan)
        assert over or all(m.to_host != host for m in plan.moves), (host, plan)


@clouds.examples(150)
@hypothesis.given(knobs=clouds.knobs(mode='pack', drains=False, hard_repairs=False,
                                     soft_repairs=False, clean=True))
def test_packing_settles_and_moves_nothing_to_and_fro(knobs):
    """With scores that follow the moves, drains end, and no drained host is
    filled again."""
    request = foreseeing(clouds.request(knobs), knobs.seed)
    emptied = set()
    for _cycle in range(len(request.cluster.instances) + 2):
        plan = planner.plan(request)
        if not plan.moves:
            return
        relief = {m.from_host for m in plan.moves
                  if any(i.host == m.from_host and i.uuid not in {
                      x.instance_uuid for x in plan.moves}
                      for i in request.cluster.instances.values())} - plan.draining
        if not relief:
            assert not emptied & {m.to_host for m in plan.moves}, plan
        emptied |= {m.from_host for m in plan.moves} - plan.draining - relief
        request = clouds.moved(request, plan)
    raise AssertionError('it does not settle')


@clouds.examples(100)
@hypothesis.given(knobs=clouds.knobs(mode='pack', drains=False, hard_repairs=False,
                                     soft_repairs=False, clean=True))
def test_no_drain_fills_a_host_above_its_ceiling_at_the_foreseen_peak(knobs):
    request = foreseeing(clouds.request(knobs), knobs.seed)
    outlook = outlooks.FillForecast(simulation_of(request))
    if any(outlook.compute_excess(h).max() > 0 for h in range(len(outlook.simulation.hosts))):
        return  # relief may, where nothing else helps
    plan = planner.plan(request)
    after = outlooks.FillForecast(simulation_of(clouds.moved(request, plan)))
    simulation = after.simulation
    for host in {m.to_host for m in plan.moves}:
        n = int(simulation.list_on_host(host)[0])
        h = simulation.place[n]
        share = after.compute_unloaded_level(n), after.compute_loaded_levels(n, np.array([h]))[0]
        spread = np.sqrt(after._variances[:, h])
        peak = (after.expected[:, h] + after._deviations[:, 0] * spread) / simulation.capacity[:, h]
        assert (peak <= after._ceilings[:, 0] + 1e-9).all(), (host, share, plan)


@pytest.mark.parametrize('calls', range(1, 12))
def test_a_drain_in_which_planning_is_cut_off_is_not_called_off(calls):
    scenario = loader.load(loader.HERE / 'pack_drain_goes_on_while_the_scope_cools.yaml')
    left = iter(range(calls))
    plan = planner.plan(scenario.request, expired=lambda: next(left, None) is None)
    assert plan.draining >= scenario.request.history.draining
    assert not any('called off' in text for text in plan.warnings)


@pytest.mark.parametrize('calls', range(1, 12))
def test_a_relief_in_which_planning_is_cut_off_is_not_called_impossible(calls):
    scenario = loader.load(loader.HERE / 'pack_relieves_an_overfull_host.yaml')
    left = iter(range(calls))
    plan = planner.plan(scenario.request, expired=lambda: next(left, None) is None)
    assert plan.moves or not any('over its ceiling' in text for text in plan.warnings)


@clouds.examples(60)
@hypothesis.given(knobs=clouds.knobs(mode='pack', clean=True))
def test_a_plan_predicts_the_later_hosts_in_use_and_overload(knobs):
    """If its moves do what usages say: added up here move by move."""
    request = clouds.request(knobs)
    plan = planner.plan(request)
    if not any(m.phase is model.Phase.PACK for m in plan.moves):
        assert plan.packing_before is None or plan.moves
        return
    cluster = request.cluster
    touched = {host for m in plan.moves for host in (m.from_host, m.to_host)}
    measured = pack_prediction.measure_packing(cluster, request.scores, request.policies)
    found = measured.select_packing(touched, math.inf, 1.0)
    assert found.hosts_in_use == plan.packing_before.hosts_in_use
    assert found.overload == pytest.approx(plan.packing_before.overload)
    policies = {}
    for name, scores in request.scores.policies.items():
        fill = dict(scores.fill)
        for move in plan.moves:
            usage = scores.usages.get(move.instance_uuid, 0.0)
            for host, sign in ((move.from_host, -1), (move.to_host, 1)):
                if scores.capacity.get(host) and host in fill:
                    fill[host] += sign * usage / scores.capacity[host]
        policies[name] = dataclasses.replace(scores, fill=fill)
    goals = {m.instance_uuid: m.to_host for m in plan.moves}
    later = dataclasses.replace(cluster, instances={
        uuid: dataclasses.replace(each, host=goals.get(uuid, each.host))
        for uuid, each in cluster.instances.items()})
    found = pack_prediction.measure_packing(
        later, dataclasses.replace(request.scores, policies=policies),
        request.policies).select_packing(
            touched, math.inf, 1.0)
    assert found.hosts_in_use == plan.packing_after.hosts_in_use
    assert found.overload == pytest.approx(plan.packing_after.overload, abs=1e-9)
