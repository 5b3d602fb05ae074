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

from kronos_nova.filters import capacity
from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import policy_scores
from kronos_nova.weighing import reasons
from tests.unit import nova_fakes


@pytest.mark.parametrize(('what', 'expected'), [
    ('exclude', 'it has no score, and unknown_hosts is exclude'), ('penalty', '')])
def test_a_host_without_a_score_is_told_so_when_it_is_excluded(what, expected):
    snapshot = policy_scores.Snapshot({'a': 0.5}, {'a': depletion.Load(0.5, 0.5)})
    states = nova_fakes.hosts('a', 'b')
    with nova_fakes.FakeDoor(snapshot, unknown_hosts=what).opened():
        passed, why = reasons.apply(capacity.KronosCapacityFilter(), states, nova_fakes.spec())
    assert why.get(id(states[1]), '') == expected
    assert [state.host for state in passed] == (['a'] if expected else ['a', 'b'])
