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


"""Why our own filters refuse a host, in the words of kronos weigh explain."""

import pytest

from kronos_nova import model
from kronos_nova.feed import feed_channel
from kronos_nova.filters import capacity
from kronos_nova.filters import placement
from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import policy_scores
from kronos_nova.weighing import reasons
from tests.unit import nova_fakes


@pytest.mark.parametrize(('what', 'expected'), [
    ('exclude', 'it has no score, and unknown_hosts is exclude'), ('penalty', '')])
def test_reason_for_an_excluded_host_names_its_missing_score(what, expected):
    snapshot = policy_scores.ScoreReading({'a': 0.5}, {'a': depletion.HostLoad(0.5, 0.5)})
    states = nova_fakes.hosts('a', 'b')
    with nova_fakes.FakeDoor(snapshot, unknown_hosts=what).opened():
        passed, why = reasons.apply_filter(capacity.KronosCapacityFilter(), states,
                                           nova_fakes.spec())
    assert why.get(id(states[1]), '') == expected
    assert [state.host for state in passed] == (['a'] if expected else ['a', 'b'])


@pytest.mark.parametrize(('choice', 'expected'), [
    ('keep', {'a': 'instances of a failed host need its room: 17 vCPUs would be in use, above 16'}),
    ('ignore', {})])
def test_reason_of_a_reserved_host_names_the_amount(choice, expected):
    states = nova_fakes.hosts('a', 'b')
    states[0].vcpus_used = 16
    with nova_fakes.FakeDoor(limits={'a': model.BootLimit(16.0)},
                             failover_reserve=choice).opened():
        _, why = reasons.apply_filter(capacity.KronosCapacityFilter(), states, nova_fakes.spec())
    assert {state.host: why[id(state)] for state in states if id(state) in why} == expected


def explain_placement(draining='', quarantined='', **fields):
    """Explain the placement filter while u1 moves from a to b and u2 is on c."""
    notice = feed_channel.PublishedState(
        frozenset(draining), frozenset(quarantined),
        (model.InFlightMove('u1', 'a', 'b', source='kronos'),))
    states = nova_fakes.hosts('a', 'b', 'c', 'd')
    states[0].instances = {'u1': None}
    states[2].instances = {'u2': None}
    with nova_fakes.FakeDoor(notice=notice).opened():
        passed, why = reasons.apply_filter(placement.KronosPlacementFilter(), states,
                                           nova_fakes.spec(**fields))
    assert {id(state) for state in states} == {id(state) for state in passed} | why.keys()
    return {state.host: why[id(state)] for state in states if id(state) in why}


def group_of(policy, *members):
    return nova_fakes.Fields(uuid='g', policy=policy, members=[*members, 'u-new'], rules={})


APART = ('an instance that its scheduler hint different_host names is there, or moves there or '
         'away')
BESIDE = 'the instances that its scheduler hint same_host names are not there, or move away'
SPREAD = ('members of its server group with policy anti-affinity are there, or move there or '
          'away')
TOGETHER = 'no member of its server group with policy affinity is there once all moves have ended'


@pytest.mark.parametrize(('fields', 'expected'), [
    ({'scheduler_hints': {'different_host': ['u1']}}, {'a': APART, 'b': APART}),
    ({'scheduler_hints': {'same_host': ['u1', 'u2']}}, {'a': BESIDE, 'b': BESIDE}),
    ({'instance_group': group_of('anti-affinity', 'u1')}, {'a': SPREAD, 'b': SPREAD}),
    ({'instance_group': group_of('affinity', 'u1', 'u2')}, {'a': TOGETHER}),
    # Hosts that both refuse; one of them is drained as well.
    ({'instance_group': group_of('anti-affinity', 'u1'), 'draining': 'b',
      'scheduler_hints': {'different_host': ['u1', 'u2']}},
     {'a': f'{SPREAD}; {APART}', 'b': f'{SPREAD}; {APART}', 'c': APART}),
    ({'scheduler_hints': {'different_host': ['u1']}, 'draining': 'bd'}, {
        'a': APART, 'b': APART, 'd': 'the rebalancer is draining it'}),
    ({'draining': 'a', 'quarantined': 'b'}, {
        'a': 'the rebalancer is draining it',
        'b': 'the rebalancer has it in quarantine: it refused moves lately'})])
def test_refusal_of_the_placement_filter_names_its_own_cause(fields, expected):
    assert explain_placement(**fields) == expected
