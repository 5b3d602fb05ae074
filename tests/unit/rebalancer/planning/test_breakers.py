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

from kronos_nova import model
from kronos_nova.rebalancer.planning import breakers


def outcome(realised, before=0.5):
    return breakers.PlanOutcome('p', before, 0.2, realised)


@pytest.mark.parametrize(('realised', 'opens'), [
    ((0.6, 0.6, 0.6), True), ((0.6, 0.6, 0.6, 0.3), True), ((0.6, 0.6), False),
    ((0.6, 0.3, 0.6), False), ((0.3, 0.6, 0.6, 0.6), False),
    ((0.505, 0.6, 0.6), False), ((0.511, 0.6, 0.6), True)])
def test_so_many_worse_plans_in_a_row_open_it_and_noise_does_not(realised, opens):
    why = breakers.find_trip_reason([outcome(r) for r in realised], 0, 0, worse_plans=3,
                                    failure_rate=0.5)
    assert (why is not None) == opens
    assert not opens or '0.500 -> 0.600 (foreseen 0.200)' in why


def packed(hosts=4, overload=0.0, before=(5, 0.0), foreseen=(4, 0.0), growth=1.0):
    return breakers.PlanOutcome('p', 0.5, 0.8, 0.9, breakers.PackOutcome(
        model.PackingDensity(*before), model.PackingDensity(*foreseen),
        model.PackingDensity(hosts, overload), growth))


@pytest.mark.parametrize(('outcome', 'worse'), [
    (packed(), False), (packed(hosts=5), False), (packed(hosts=6), True),
    (packed(hosts=6, growth=1.01), False), (packed(hosts=7, growth=1.2), True),
    (packed(overload=0.1), False), (packed(overload=0.11), True),
    (packed(overload=0.4, before=(5, 0.3)), False), (packed(overload=0.41, before=(5, 0.3)), True),
    # Relief wakes a host, as foreseen.
    (packed(hosts=6, before=(5, 0.3), foreseen=(6, 0.0)), False),
    (packed(hosts=7, before=(5, 0.3), foreseen=(6, 0.0)), True),
    (packed(overload=0.2, foreseen=(4, 0.2)), False)])
def test_a_pack_plan_is_judged_by_hosts_in_use_and_overload(outcome, worse):
    """Never by the imbalance, which packing raises."""
    assert outcome.is_worse == worse
    why = breakers.find_trip_reason([outcome] * 3, 0, 0, worse_plans=3, failure_rate=0.5)
    assert (why is not None) == worse
    if worse:
        assert 'left more hosts in use or more overload than they found and foresaw: p ' in why
        assert f'{outcome.packing.before.hosts_in_use} -> ' in why


def test_a_row_of_bad_plans_may_be_of_both_modes():
    why = breakers.find_trip_reason([packed(hosts=9), outcome(0.9), packed(hosts=9)], 0, 0,
                                    worse_plans=3,
                                    failure_rate=0.5)
    assert 'left the scope in a worse state' in why and '0.500 -> 0.900' in why


@pytest.mark.parametrize(('failed', 'ended', 'rate', 'opens'), [
    (3, 5, 0.5, True), (3, 6, 0.5, False), (2, 2, 0.5, False), (4, 4, 1.0, False),
    (3, 100, 0.0, True), (0, 0, 0.0, False)])
def test_a_rate_of_failures_above_the_limit_opens_it(failed, ended, rate, opens):
    why = breakers.find_trip_reason([], failed, ended, worse_plans=3, failure_rate=rate)
    assert (why is not None) == opens


def test_it_can_be_switched_off():
    worse = [outcome(0.9)] * 9
    assert breakers.find_trip_reason(worse, 9, 9, worse_plans=0, failure_rate=1.0) is None
