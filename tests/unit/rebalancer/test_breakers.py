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


"""When a circuit breaker opens."""

import pytest

from kronos_nova.rebalancer import breakers


def outcome(realised, before=0.5):
    return breakers.Outcome('p', before, 0.2, realised)


@pytest.mark.parametrize(('realised', 'opens'), [
    ((0.6, 0.6, 0.6), True), ((0.6, 0.6, 0.6, 0.3), True), ((0.6, 0.6), False),
    ((0.6, 0.3, 0.6), False), ((0.3, 0.6, 0.6, 0.6), False),
    ((0.505, 0.6, 0.6), False), ((0.511, 0.6, 0.6), True)])
def test_so_many_worse_plans_in_a_row_open_it_and_noise_does_not(realised, opens):
    why = breakers.tripped([outcome(r) for r in realised], 0, 0, worse_plans=3,
                           failure_rate=0.5)
    assert (why is not None) == opens
    assert not opens or '0.500 -> 0.600 (foreseen 0.200)' in why


@pytest.mark.parametrize(('failed', 'ended', 'rate', 'opens'), [
    (3, 5, 0.5, True), (3, 6, 0.5, False), (2, 2, 0.5, False), (4, 4, 1.0, False),
    (3, 100, 0.0, True), (0, 0, 0.0, False)])
def test_a_rate_of_failures_above_the_limit_opens_it(failed, ended, rate, opens):
    why = breakers.tripped([], failed, ended, worse_plans=3, failure_rate=rate)
    assert (why is not None) == opens


def test_it_can_be_switched_off():
    worse = [outcome(0.9)] * 9
    assert breakers.tripped(worse, 9, 9, worse_plans=0, failure_rate=1.0) is None
