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

"""What a migration takes, as measured ones teach it."""

import dataclasses
import itertools
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from kronos_nova import model
from kronos_nova.constraints import disks
from kronos_nova.rebalancer import simulation as sim
from kronos_nova.rebalancer.simulation import migration_costs
from kronos_nova.rebalancer.strategies import spread
from tests.unit import clouds
from tests.unit.rebalancer.operations import test_drains

MIB = 1024 * 1024


def measured(*running, uuid='other', memory_mb=1000, **fields):
    return [model.MeasuredAttempt(uuid, memory_mb, 0, float(seconds), **fields)
            for seconds in running]


def of(*found, copies_disk=False):
    return migration_costs.MigrationCosts(list(itertools.chain(*found)), copies_disk)


def test_without_measurements_memory_is_all_that_counts():
    known = of()
    copied = np.array([512.0, 0.1 + 0.2])
    dirty = np.array([1e12, 0.0])
    assert known.compute_expected_mib({'a': 0, 'b': 1}, copied,
                                      dirty).tolist() == copied.tolist(), 'exactly'
    assert known.expect_migration('a', 512, 0, 1e12) is None and known.rate is None


def test_expected_time_is_copying_at_the_median_rate_plus_other_phases():
    known = of(measured(10, 20, 1000, other=3.0))
    assert (known.rate, known.overhead) == (50.0, 3.0)
    assert known.expect_migration('a', 4000, 0, 0.0) == migration_costs.MigrationExpectation(83.0,
                                                                                             0.0)


def test_memory_written_during_a_migration_is_copied_again():
    known = of(measured(10, 10, 10))
    one = known.expect_migration('a', 1000, 0, 50 * MIB)
    assert one.seconds == pytest.approx(20.0), '1 / (1 - 50 / 100)'
    assert known.expect_migration('a', 1000, 0,
                                  99e9).seconds == pytest.approx(10 * migration_costs.MOST_TIMES)


def test_a_dirty_rate_above_measured_rates_is_a_risk():
    known = of(measured(*[10] * 4, *[5] * 4))  # 100 and 200 MiB/s
    risks = [known.expect_migration('a', 1000, 0, mib * MIB).risk for mib in (0, 99, 100, 199, 200)]
    assert risks == pytest.approx([0, 0, 0.4, 0.4, 0.8])


def test_repeated_slow_migrations_raise_expected_duration():
    cloud = measured(*[10] * 9)
    found = [of(cloud, measured(*[40] * times, uuid='a')).expect_migration('a', 1000, 0,
                                                                           0.0).seconds
             for times in (0, 1, 2, 4)]
    assert found[0] == pytest.approx(10.0) and found == sorted(found) and found[-1] < 40
    assert of(cloud, measured(40, uuid='a')).expect_migration('b', 1000, 0, 0.0).seconds == 10.0


def test_idle_instances_are_sent_faster_and_no_faster_than_a_limit():
    cloud = measured(*[100] * 9)
    assert of(cloud, measured(50, 50, uuid='a')).expect_migration('a', 1000, 0, 0.0).seconds < 75
    many = measured(*[100] * 99)
    assert of(many, measured(*[1] * 50, uuid='a')).expect_migration('a', 1000, 0, 0.0).seconds == (
        pytest.approx(100 * migration_costs.LEAST_TIMES))


@pytest.mark.parametrize(('attempt', 'risk'), [
    ({'running': 40.0, 'arrived': False, 'late': False}, 1 / 3),
    ({'running': 20.0, 'arrived': False, 'late': True}, 1 / 3),
    ({'running': 20.0, 'arrived': False, 'late': False}, 0.0),
    ({'running': 0.0, 'arrived': False, 'late': True}, 0.0),
    ({'running': 40.0, 'arrived': True}, 0.0)])
def test_only_an_unusually_long_timeout_counts_as_not_converging(attempt, risk):
    """Another that fails, or that an operator cancels, says nothing about its memory."""
    own = [dataclasses.replace(one, **attempt) for one in measured(1, uuid='a')]
    assert of(measured(*[10] * 9), own).expect_migration('a', 1000, 0,
                                                         0.0).risk == pytest.approx(risk)


def test_the_fixed_time_of_each_migration_is_not_part_of_the_rate():
    """Most are small; a large one is copied at what the network gives."""
    small, large = measured(*[8] * 20, memory_mb=1024), measured(39, 71, memory_mb=32 * 1024)
    found = of(small, large, measured(263, memory_mb=256 * 1024))
    assert found.rate == pytest.approx(1024, rel=0.1) and found.overhead == pytest.approx(7, abs=1)
    assert found.expect_migration('a', 64 * 1024, 0, 0.0).seconds == pytest.approx(71, rel=0.1)
    assert found.expect_migration('a', 64 * 1024, 0,
                                  150.0 * MIB).risk < 0.1, 'the small ones were not slow'


def test_where_larger_ones_took_no_longer_the_median_rate_is_taken():
    found = of(measured(*[10] * 5, memory_mb=1000), measured(1, memory_mb=10**6))
    assert (found.rate, found.overhead) == (100.0, 0.0)


def test_migrations_without_copied_memory_are_not_measured():
    own = measured(60, 60, uuid='a', memory_mb=0), measured(60, uuid='a', memory_mb=0,
                                                            arrived=False)
    found = of(measured(*[10] * 9), *own)
    assert found.expect_migration('a', 1000, 0, 0.0) == migration_costs.MigrationExpectation(10.0,
                                                                                             0.0)


def test_disks_count_where_they_are_copied():
    found = [model.MeasuredAttempt('a', 1024, 1, 20.0)]
    assert of(found).rate == pytest.approx(51.2)
    assert of(found, copies_disk=True).rate == pytest.approx(102.4)


seconds = st.floats(0, 1e6)
attempts = st.lists(st.builds(
    model.MeasuredAttempt, st.sampled_from('abcd'), st.integers(0, 2**40), st.integers(0, 2**40),
    seconds, seconds, st.booleans(), st.booleans()), max_size=12)


@hypothesis.given(attempts, st.lists(st.floats(0, 1e15), min_size=3, max_size=3), st.booleans())
def test_costs_are_finite_and_bounded_for_any_measurements(found, dirty, copies_disk):
    known = migration_costs.MigrationCosts(found, copies_disk)
    index, rates = {'a': 0, 'b': 1, 'x': 2}, np.array(dirty)
    times, risks = known.compute_copy_factors(index, rates), known.compute_risks(index, rates)
    assert ((times >= migration_costs.LEAST_TIMES) & (times <= migration_costs.MOST_TIMES)).all()
    assert ((risks >= 0) & (risks <= migration_costs.MOST_RISK)).all()
    expected = known.compute_expected_mib(index, np.array([1.0, 1e6, 0.0]), rates)
    assert np.isfinite(expected).all() and expected[2] == 0.0
    again = migration_costs.MigrationCosts(found[::-1],
                                           copies_disk).compute_expected_mib(
                                               index, np.array([1.0, 1e6, 0.0]),
                                               rates)
    assert again.tolist() == pytest.approx(expected.tolist()), 'the order says nothing'


@hypothesis.given(st.floats(0, 1e9), st.floats(0, 1e9), attempts)
def test_more_writing_never_costs_less(one, other, found):
    known = migration_costs.MigrationCosts(found, False)
    less, more = (known.compute_expected_mib({}, np.ones(1), np.array([rate]))[0]
                  for rate in sorted((one, other)))
    assert less <= more or math.isclose(less, more)


def test_of_several_policies_the_highest_rate_counts():
    def scores(rates):
        return model.PolicyScores('p', dirty_rates=rates)

    assert migration_costs.dirty_rates(model.ClusterScores(
        {'a': scores({'u': 2.0, 'v': 1.0}), 'b': scores({'u': 1.0, 'w': 3.0})})) == {
        'u': 2.0, 'v': 1.0, 'w': 3.0}


def calm_and_busy(**history):
    """Two that do the same good off host a: i1 writes to its memory all the time."""
    request = test_drains.cloud(1024, 1024)
    policy = request.policies.enabled_policies[0].name
    known = request.scores.policies[policy]
    scores = {policy: dataclasses.replace(
        known, hosts={'a': 0.9, 'b': 0.1, 'c': 0.6}, fill={'a': 0.9, 'b': 0.1, 'c': 0.6},
        dirty_rates={'i0': 90.0 * MIB})}
    return dataclasses.replace(
        request, scores=model.ClusterScores(scores), history=model.MoveHistory(**history), budget=1,
        options=model.PlanningOptions(minimum_gain=0.0001), strategies=[spread.Spread()])


def test_of_two_that_gain_the_same_the_calmer_one_is_moved():
    from kronos_nova.rebalancer.planning import planner

    def moved(request):
        return [m.instance_uuid for m in planner.plan(request, lambda: False).moves]

    assert moved(calm_and_busy()) == ['i0'], 'the first of two that are alike'
    assert moved(calm_and_busy(measured=tuple(measured(*[10] * 9)))) == ['i1']
    gave_up = measured(100, 100, uuid='i1', arrived=False)
    assert moved(calm_and_busy(measured=(*measured(1, 1, memory_mb=10**6), *gave_up))) == ['i0']


@clouds.examples(40)
@hypothesis.given(knobs=clouds.knobs(), local=st.booleans())
def test_without_measurements_a_migration_costs_its_copied_size(knobs, local):
    r = clouds.request(knobs)
    options = dataclasses.replace(r.options, instance_storage='local' if local else 'shared')
    found = sim.Simulation(r.cluster, r.scores, r.policies, r.history, options)
    for uuid, cost, size in zip(found.uuids, found.cost, found.size, strict=True):
        one = r.cluster.instances[uuid]
        disk = disks.sum_local_gb(one, r.cluster.sharing) * 1024 if local else 0
        assert cost == size == one.memory_mb + disk


@pytest.mark.parametrize('local', [True, False])
def test_copied_disks_count_in_the_measured_size(local):
    request = test_drains.cloud(1024)
    one = dataclasses.replace(request.cluster.instances['i0'], disk_gb=1, local_disk_gb=1)
    cluster = dataclasses.replace(request.cluster, instances={'i0': one})
    history = model.MoveHistory(measured=tuple([model.MeasuredAttempt('x', 1024, 9, 10.0)] * 3
                                               + [model.MeasuredAttempt('i0', 1024, 9, 20.0)] * 2))
    options = model.PlanningOptions(instance_storage='local' if local else 'shared')
    found = sim.Simulation(cluster, request.scores, request.policies, history, options)
    assert found.size.tolist() == [2048.0 if local else 1024.0]
    assert found.cost[0] == pytest.approx(found.size[0] * 2 ** 0.5), 'half way to its own'


@pytest.mark.parametrize('mode', list(model.DrainMode))
def test_drains_begin_with_the_largest_at_any_dirty_rate(mode):
    from kronos_nova.rebalancer.operations import drains

    request = test_drains.cloud(4096, 2048, 1024)
    name = request.policies.enabled_policies[0].name
    scores = model.ClusterScores({name: dataclasses.replace(
        request.scores.policies[name], dirty_rates={'i2': 500.0 * MIB})})
    options = dataclasses.replace(request.options, evacuate_disabled_hosts=True)
    request = dataclasses.replace(
        request, scores=scores, options=options, budget=3,
        history=model.MoveHistory(measured=tuple(measured(*[10] * 9))))
    found = drains.plan_drain(request, 'a', mode)
    assert [m.instance_uuid for m in found.plan.moves] == ['i0', 'i1', 'i2']
