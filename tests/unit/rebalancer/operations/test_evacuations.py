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

"""Requested evacuations: all instances of a host, onto the named hosts, by every rule."""

from collections import Counter
import dataclasses

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import exception
from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import evacuations
from kronos_nova.rebalancer.operations import requested_moves
from tests.unit import clouds
from tests.unit.rebalancer import brute
from tests.unit.rebalancer.search import test_bin_packing
from tests.unit.rebalancer.strategies import test_drains

COMPACT, SCATTER = model.DrainMode.COMPACT, model.DrainMode.SCATTER


@clouds.examples(300)
@hypothesis.given(clouds.knobs(), st.sampled_from(model.DrainMode), st.booleans(),
                  st.randoms(use_true_random=False))
def test_all_of_the_host_leave_for_the_named_hosts_or_have_a_reason(
        knobs, mode, overbooking, rng):
    """evacuating.plan checks its own plan: an illegal one raises."""
    request = clouds.request(knobs)
    hosts = sorted(request.cluster.scope_hosts)
    host = rng.choice(hosts)
    named = rng.choice([None, rng.sample(hosts, rng.randint(0, len(hosts)))])
    answer = evacuations.plan_evacuation(request, host, named, mode, overbooking=overbooking)
    here = {i.uuid for i in request.cluster.instances.values() if i.host == host}
    had = {m.instance_uuid for m in answer.plan.moves}
    assert had.isdisjoint(answer.refused) and had | answer.refused.keys() == here
    for move in answer.plan.moves:
        assert move.from_host == host and move.phase is model.Phase.REQUESTED
        assert {move.to_host, *move.alternates} <= set(hosts if named is None else named) - {host}
        assert len(move.alternates) <= request.options.max_alternates
    hypothesis.assume(answer.plan.reason is None)
    asked = requested_moves.remove_delays(dataclasses.replace(request, options=dataclasses.replace(
        request.options, overbooking=overbooking)), 1)
    simulation = sim.Simulation(asked.cluster, asked.scores, asked.policies, asked.history,
                                asked.options)
    for move in sorted(answer.plan.moves, key=lambda m: m.wave):
        simulation.apply_move(move)
    if simulation.trusted and simulation.has_comparable_hosts():
        assert answer.plan.combined_after == pytest.approx(simulation.compute_combined(), abs=1e-12)
    if any(no.rule == 'no-order' for no in answer.refused.values()):
        return
    for uuid in answer.refused:
        for there in hosts if named is None else named:
            assert constraints.judge_move(simulation.view, model.Move(
                uuid, host, there, model.Phase.REQUESTED)) is not None, 'it could have left'


@pytest.mark.parametrize('seed', range(clouds.many(60)))
def test_no_order_of_events_breaks_a_rule(seed):
    request = brute.crowded(seed)
    counts = Counter(i.host for i in request.cluster.instances.values()
                     if i.host in request.cluster.scope_hosts)
    host = min(counts, key=lambda h: (abs(counts[h] - 4), h))
    mode = list(model.DrainMode)[seed % 3]
    answer = evacuations.plan_evacuation(request, host, None, mode)
    enumerated = brute.Brute(request, answer.plan, brute.ceilings_of(request))
    if enumerated.combinations() > 20_000:
        pytest.skip('too many states')
    assert enumerated.violation() is None


def targets(answer):
    return {m.instance_uuid: m.to_host for m in answer.plan.moves}


def test_compact_uses_one_host_and_scatter_as_many_as_there_are():
    request = test_bin_packing.cloud({'b': 8, 'c': 8, 'd': 8}, [2, 2, 2])
    assert len(set(targets(evacuations.plan_evacuation(request, 'a', None, COMPACT)).values())) == 1
    assert sorted(targets(evacuations.plan_evacuation(request, 'a', None, SCATTER)).values()) == [
        'b', 'c', 'd']
    assert sorted(targets(evacuations.plan_evacuation(request, 'a', ['b', 'd'],
                                                      SCATTER)).values()) in (
                                                          ['b', 'b', 'd'], ['b', 'd', 'd'])


def test_auto_picks_the_destination_with_the_lowest_imbalance():
    request = test_bin_packing.cloud({'b': 8, 'c': 8, 'd': 8}, [2])
    hot = {'a': 0.1, 'b': 0.9, 'c': 0.2, 'd': 0.5}
    request = dataclasses.replace(request, scores=model.ClusterScores({
        name: dataclasses.replace(found, hosts=hot)
        for name, found in request.scores.policies.items()}))
    answer = evacuations.plan_evacuation(request, 'a')
    assert targets(answer) == {'i0': 'c'} and answer.plan.moves[0].improvement > 0


@pytest.mark.parametrize('mode', model.DrainMode)
def test_an_evacuation_places_all_instances_when_all_fit(mode):
    request = test_bin_packing.cloud({'b': 10, 'c': 10}, [5, 4, 4, 3, 2, 2])
    answer = evacuations.plan_evacuation(request, 'a', None, mode)
    assert len(answer.plan.moves) == 6 and not answer.refused
    crowded = test_drains.packing(3, drained=1, slack=0.0)
    asked = dataclasses.replace(test_drains.request(crowded), options=model.PlanningOptions(
        max_drain_fraction=0.9))
    assert not evacuations.plan_evacuation(asked, 'd0', None, mode).refused


def test_overbooking_lifts_ceilings_and_leaves_claims():
    request = test_bin_packing.cloud({'b': 8, 'c': 8}, [2, 9])
    full = dict.fromkeys('abc', 1.0)
    request = dataclasses.replace(request, scores=model.ClusterScores({
        name: dataclasses.replace(found, fill=full)
        for name, found in request.scores.policies.items()}))
    answer = evacuations.plan_evacuation(request, 'a')
    assert 'ceiling (2 hosts)' in answer.refused['i0'].detail and not answer.plan.moves
    answer = evacuations.plan_evacuation(request, 'a', overbooking=True)
    assert set(targets(answer)) == {'i0'}
    assert answer.refused['i1'].detail == 'instance i1: no host may take it: no-room (2 hosts)'


def test_a_refusal_names_the_reason_of_the_destination_or_the_instance():
    request = test_bin_packing.cloud({'b': 1, 'c': 8}, [2, 1])
    locked = dataclasses.replace(request.cluster.instances['i1'], locked=True)
    request = dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, instances={**request.cluster.instances, 'i1': locked}))
    refused = evacuations.plan_evacuation(request, 'a', ['b']).refused
    assert (refused['i0'].rule, refused['i1'].rule) == ('no-room', 'locked')
    nobody = evacuations.plan_evacuation(request, 'a', ()).refused
    assert nobody['i0'].detail == 'instance i0: no host may take it: no other host is named'


def test_a_pause_holds_it_and_cooldowns_do_not():
    request = test_bin_packing.cloud({'b': 8}, [2])
    held = dataclasses.replace(request, history=model.MoveHistory(paused='a change'))
    answer = evacuations.plan_evacuation(held, 'a')
    assert answer.plan.reason == 'a change' and answer.refused['i0'].rule == 'held'
    cooling = dataclasses.replace(request, history=model.MoveHistory(
        cooling={'i0': 600.0}, scope_cooling=300.0))
    assert targets(evacuations.plan_evacuation(cooling, 'a')) == {'i0': 'b'}


@pytest.mark.parametrize(('host', 'named', 'field'), [
    ('nowhere', None, 'host'), ('a', ['b', 'nowhere'], 'destinations')])
def test_error_about_a_host_outside_the_scope_names_the_field(host, named, field):
    request = test_bin_packing.cloud({'b': 8}, [2])
    with pytest.raises(exception.ConfigError, match=f"{field}: host 'nowhere' is not in scope"):
        evacuations.plan_evacuation(request, host, named)


def test_a_host_that_is_drained_already_stays_closed():
    request = test_bin_packing.cloud({'b': 8, 'c': 8}, [2])
    request = dataclasses.replace(
        request, options=model.PlanningOptions(evacuate_disabled_hosts=True),
        history=model.MoveHistory(draining=frozenset({'a'})),
        cluster=dataclasses.replace(request.cluster, services={
            **request.cluster.services,
            'a': model.Service('a', status='disabled', disabled_reason='repair')}))
    answer = evacuations.plan_evacuation(request, 'a', None, COMPACT)
    assert answer.plan.draining == {'a'} and len(answer.plan.moves) == 1


def test_a_host_drained_by_pack_is_no_destination_in_the_prediction():
    request = test_bin_packing.cloud({'b': 8, 'c': 8}, [2])
    packs = clouds.request(clouds.Knobs(seed=1, hosts=2, instances=2, mode='pack')).policies
    request = dataclasses.replace(request, policies=packs, history=model.MoveHistory(
        draining=frozenset({'a'})))
    answer = evacuations.plan_evacuation(request, 'a')
    simulation = sim.Simulation(request.cluster, request.scores, packs, request.history,
                                request.options)
    for move in answer.plan.moves:
        simulation.apply_move(move)
    assert len(answer.plan.moves) == 1
    assert answer.plan.combined_after == pytest.approx(simulation.compute_combined(), abs=1e-12)
