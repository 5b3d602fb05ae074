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

"""Hosts and instances as a cycle sees them."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import pytest

from kronos_nova import constraints
from kronos_nova import model
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.operations import views
from kronos_nova.rebalancer.planning import planner
from tests.unit import clouds


@clouds.examples(100)
@hypothesis.given(clouds.knobs())
def test_the_usage_of_instances_and_the_base_add_up_to_the_score(knobs):
    request = clouds.request(knobs)
    found = views.list_host_portraits(request)
    assert [h.name for h in found] == sorted(request.cluster.scope_hosts)
    for host in found:
        here = [i for i in request.cluster.instances.values() if i.host == host.name]
        assert host.instances == len(here)
        for load in host.loads:
            scores = request.scores.policies[load.policy]
            assert load.score == scores.hosts.get(host.name)
            if load.base:
                used = sum(scores.usages.get(i.uuid, 0.0) for i in here)
                assert load.base + used / scores.capacity[host.name] == pytest.approx(load.score)
            if load.score is None:
                assert load.base is None


#: By their own names: of an instance, wherever it might go.
OWN = {'locked', 'not-active', 'task-state', 'opted-out', 'pinned', 'in-flight', 'devices',
       'cooling', 'quarantined', 'placement-refuses-everywhere', 'just-booted', 'copies-disk',
       'no-profile'}


def aged(request, seconds):
    """What history forbids, so much later."""
    def left(of):
        return {uuid: s if s < 0 else s - seconds for uuid, s in of.items()
                if s < 0 or s > seconds}

    history = request.history
    return dataclasses.replace(request, cluster=dataclasses.replace(
        request.cluster, taken_at=request.cluster.taken_at + seconds), history=dataclasses.replace(
        history, cooling=left(history.cooling), quarantined=left(history.quarantined),
        fresh=left(history.fresh)))


@clouds.examples(200)
@hypothesis.given(clouds.knobs(), st.randoms(use_true_random=False))
def test_an_instance_is_held_by_the_rules_for_which_all_hosts_refuse_it(knobs, rng):
    request = planner.prepare_planning_input(clouds.request(knobs))
    uuids = sorted(i.uuid for i in request.cluster.instances.values()
                   if i.host in request.cluster.scope_hosts)
    hypothesis.assume(uuids)
    uuid = rng.choice(uuids)
    some = {u: rng.choice((-1.0, 50.0, 400.0)) for u in uuids if rng.random() < 0.4}
    request = dataclasses.replace(request, history=dataclasses.replace(
        request.history,
        quarantined={u: s for u, s in some.items() if rng.random() < 0.5},
        cooling={u: abs(s) for u, s in some.items() if rng.random() < 0.8},
        fresh={u: rng.choice((10.0, 600.0)) for u in uuids if rng.random() < 0.3}))
    found = views.build_instance_portrait(request, uuid)
    rules = {no.rule for no in found.held}
    simulation = sim.Simulation(request.cluster, request.scores, request.policies,
                                request.history, request.options)
    of = request.cluster.instances[uuid]
    told = set()
    for there in sorted(request.cluster.scope_hosts - {of.host}):
        told |= {no.rule for no in constraints.list_rejections(simulation.view, model.Move(
            uuid, of.host, there, model.Phase(request.policies.mode)))}
    # Of two reasons in history a rule tells the first.
    assert told & OWN <= rules
    assert rules - {'cooling', 'placement-refuses-everywhere', 'no-profile'} <= told | (
        set() if request.cluster.scope_hosts - {of.host} else rules)
    if found.wait is None:
        later = views.build_instance_portrait(aged(request, 1e6), uuid)
        assert later.held, 'something does not end'
    else:
        assert not views.build_instance_portrait(aged(request, found.wait), uuid).held
        if found.wait:
            assert views.build_instance_portrait(aged(request, found.wait - 1), uuid).held
    for group, (policy, places) in found.groups.items():
        of = next(g for g in request.cluster.groups if g.uuid == group)
        assert policy == of.policy and sum(places.values()) == len(
            of.members & request.cluster.instances.keys())


def free():
    """A cloud where nothing holds anything, and one of its instances."""
    request = clouds.request(clouds.Knobs(7))
    return request, min(request.cluster.instances)


@pytest.mark.parametrize(('change', 'told'), [
    ({}, ()),
    ({'paused': 'paused by somebody'}, ('paused by somebody',)),
    ({'scope_cooling': 60.0}, ('the scope cools down for another 60 s',)),
    ({'waiting': 'it has to last'}, ('it has to last',)),
    ({'paused': 'paused', 'waiting': 'it has to last'}, ('paused', 'it has to last'))])
def test_a_hold_of_the_scope_is_shown_beside_the_instances_own(change, told):
    request, uuid = free()
    found = views.build_instance_portrait(dataclasses.replace(
        request, history=model.MoveHistory(**change)), uuid)
    assert found.holds == told
    assert (found.held, found.wait) == ((), 0.0)


def test_quarantine_and_cooldown_of_an_instance_are_both_shown():
    request, uuid = free()
    found = views.build_instance_portrait(dataclasses.replace(request, history=model.MoveHistory(
        quarantined={uuid: 30.0}, cooling={uuid: 70.0})), uuid)
    assert [no.rule for no in found.held] == ['quarantined', 'cooling']
    assert found.wait == 70.0


@pytest.mark.parametrize(('service', 'state'), [
    (model.Service('a'), ('up',)), (None, ('no nova-compute',)),
    (model.Service('a', state='down'), ('down',)),
    (model.Service('a', forced_down=True), ('forced down',)),
    (model.Service('a', status='disabled', disabled_reason='a change'),
     ('up', 'disabled: a change', 'draining', 'quarantined')),
    (model.Service('a', status='disabled'), ('up', 'disabled'))])
def test_the_state_of_a_host_is_described_in_words(service, state):
    history = model.MoveHistory(draining=frozenset('a'), quarantined_hosts=frozenset('a')) if (
        'draining' in state) else model.MoveHistory()
    cluster = model.Cluster({'a': model.Host('a')}, {}, {} if service is None else {'a': service})
    assert views._describe_host_state(cluster, history, 'a') == state


def test_a_share_that_is_not_known_is_not_made_up():
    scores = model.PolicyScores('cpu', {'a': 0.5}, {'a': 0.5}, {'a': 8.0}, {'i': 2.0})
    assert views._compute_share(scores, 'i', 'a') == views.InstanceShare('cpu', 2.0, 0.25)
    assert views._compute_share(scores, 'i', 'b') == views.InstanceShare('cpu', 2.0, None)
    assert views._compute_share(scores, 'j', 'a') == views.InstanceShare('cpu', None, None)
    lost = dataclasses.replace(scores, capacity={})
    assert views._load(lost, 'a', ['i']).base is None
