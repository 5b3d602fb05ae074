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

from kronos_nova import model
from kronos_nova.rebalancer import planner
from kronos_nova.rebalancer import portraits
from tests.unit import clouds


@clouds.examples(100)
@hypothesis.given(clouds.knobs())
def test_what_instances_use_and_the_base_make_the_score(knobs):
    request = clouds.request(knobs)
    found = portraits.hosts(request)
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


@clouds.examples(100)
@hypothesis.given(clouds.knobs(), st.randoms(use_true_random=False))
def test_an_instance_is_held_by_each_of_its_own_reasons_and_waits_for_the_last(knobs, rng):
    request = planner.begun(clouds.request(knobs))
    uuids = sorted(i.uuid for i in request.cluster.instances.values()
                   if i.host in request.cluster.scope_hosts)
    hypothesis.assume(uuids)
    uuid = rng.choice(uuids)
    found = portraits.instance(request, uuid)
    rules = [no.rule for no in found.held]
    history = request.history
    if not rules:
        assert found.wait == 0.0
    elif set(rules) == {'cooling'}:
        assert found.wait == history.cooling[uuid]
    elif set(rules) == {'quarantined'}:
        assert found.wait == (None if history.quarantined[uuid] < 0 else
                              history.quarantined[uuid])
    else:
        assert found.wait is None
    for group, (policy, places) in found.groups.items():
        of = next(g for g in request.cluster.groups if g.uuid == group)
        assert policy == of.policy and sum(places.values()) == len(
            of.members & request.cluster.instances.keys())


@pytest.mark.parametrize(('service', 'state'), [
    (model.Service('a'), ('up',)), (None, ('no nova-compute',)),
    (model.Service('a', state='down'), ('down',)),
    (model.Service('a', forced_down=True), ('forced down',)),
    (model.Service('a', status='disabled', disabled_reason='a change'),
     ('up', 'disabled: a change', 'draining', 'quarantined')),
    (model.Service('a', status='disabled'), ('up', 'disabled'))])
def test_a_host_s_state_is_told_in_words(service, state):
    history = model.History(draining=frozenset('a'), quarantined_hosts=frozenset('a')) if (
        'draining' in state) else model.History()
    cluster = model.Cluster({'a': model.Host('a')}, {}, {} if service is None else {'a': service})
    assert portraits._state(cluster, history, 'a') == state


def test_a_share_that_is_not_known_is_not_made_up():
    scores = model.PolicyScores('cpu', {'a': 0.5}, {'a': 0.5}, {'a': 8.0}, {'i': 2.0})
    assert portraits._share(scores, 'i', 'a') == portraits.Share('cpu', 2.0, 0.25)
    assert portraits._share(scores, 'i', 'b') == portraits.Share('cpu', 2.0, None)
    assert portraits._share(scores, 'j', 'a') == portraits.Share('cpu', None, None)
    lost = dataclasses.replace(scores, capacity={})
    assert portraits._load(lost, 'a', ['i']).base is None
