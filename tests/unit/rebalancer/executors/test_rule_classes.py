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


"""Each rejection that an executor meets has one consequence."""

from kronos_nova import constraints
from kronos_nova.constraints import rules
from kronos_nova.rebalancer.executors import preflight_check
from kronos_nova.rebalancer.executors import retry
from tests.unit import rule_names

CLASSES = (retry.NOT_THE_INSTANCE, retry.FINAL, retry.PASSING, retry.WAITING, {retry.GONE},
           preflight_check.NO_ROOM, constraints.select_codes(rules.RetryClass.QUARANTINE))


def test_every_rule_that_an_executor_can_meet_is_in_one_class():
    judged_before_a_move = {name for rule in constraints.PRE_FLIGHT for name in rule.codes}
    classified = [name for names in CLASSES for name in names]
    assert sorted(classified) == sorted(
        judged_before_a_move | rule_names.produced('rebalancer/executors'))
