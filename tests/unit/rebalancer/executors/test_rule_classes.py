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


"""What follows from each rule's no at pre-flight is decided for each."""

from kronos_nova.rebalancer.executors import nova
from kronos_nova.rebalancer.executors import retry
from tests.unit import rule_names

#: Something is wrong with the instance, and it is quarantined: it is not what
#: the plan was made for.
QUARANTINED = frozenset({
    'moved-away', 'same-host', 'not-active', 'task-state', 'pinned', 'in-flight', 'cooling',
    'just-booted'})
#: Of scores: not judged again before a move.
OF_METRICS = frozenset({'ceiling', 'host-frozen', 'no-profile', 'policy-untrusted'})
CLASSES = (retry.NOT_THE_INSTANCE, retry.FINAL, retry.PASSING, retry.WAITING, {retry.GONE},
           nova.NO_ROOM, QUARANTINED)


def test_every_rule_that_an_executor_can_meet_is_in_one_class():
    met = rule_names.produced('constraints') | rule_names.produced('rebalancer/executors')
    classified = [name for names in CLASSES for name in names]
    assert sorted(classified) == sorted(met - OF_METRICS)
