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

"""On any scale weights are finite, bounded and in order, and equal hosts weigh exactly 0."""

import math

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova.conf import scheduler as scheduler_conf
from kronos_nova.feed import flavor_usages
from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import runtime
from kronos_nova.scheduler import score_cache
from kronos_nova.weighers import headroom
from kronos_nova.weighers import normalisation
from tests.unit import nova_fakes

weights = st.lists(st.floats(-0.5, 0.5), max_size=8)
kinds = st.sampled_from(normalisation.KINDS)
scales = st.floats(0.001, 10)


@given(weights, kinds, scales)
def test_values_are_finite_and_bounded_and_keep_the_order(values, kind, scale):
    found = normalisation.normalise_weights(values, kind, scale)
    assert len(found) == len(values)
    assert all(math.isfinite(f) and -0.5 <= f <= 0.5 for f in found)
    for (a, x), (b, y) in zip(zip(values, found, strict=True),
                              zip(values[1:], found[1:], strict=True), strict=False):
        assert (a < b) <= (x <= y) and (a == b) <= (x == y)


@given(st.floats(-0.5, 0.5), st.integers(1, 5), scales,
       st.sampled_from(['min-max', 'tanh']))
def test_equal_hosts_and_a_single_one_weigh_exactly_0(value, count, scale, kind):
    assert normalisation.normalise_weights([value] * count, kind, scale) == [0.0] * count


@given(weights, scales)
def test_fixed_changes_nothing(values, scale):
    assert normalisation.normalise_weights(values, 'fixed', scale) == values


def test_min_max_stretches_to_the_ends():
    assert normalisation.normalise_weights([0.10, 0.11, 0.12], 'min-max', 1.0) == [-0.5, 0.0, 0.5]


def test_tanh_counts_in_units_of_its_scale_from_the_mean():
    assert normalisation.normalise_weights([0.0, 0.2], 'tanh', 0.1) == pytest.approx(
        [-math.tanh(1) / 2, math.tanh(1) / 2], abs=1e-5)


def test_an_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match='rank is no normalisation'):
        normalisation.normalise_weights([0.1], 'rank', 1.0)


def test_the_options_choices_are_the_kinds():
    [option] = [o for o in scheduler_conf.OPTS if o.name == 'normalisation']
    assert tuple(option.type.choices) == normalisation.KINDS


def weighed(kind, snapshot, states, spec=None, **options):
    """Raw weights of KronosWeigher under [kronos] options."""
    options = {'normalisation': kind, 'unknown_hosts': 'mean', **options}
    for name, value in options.items():
        runtime.CONF.set_override(name, value, 'kronos')
    door = nova_fakes.FakeDoor(snapshot, unknown_hosts=options['unknown_hosts'])
    try:
        with door.opened():
            found = headroom.KronosWeigher().weigh_objects(
                [nova_fakes.Fields(obj=s) for s in states], spec or nova_fakes.spec())
    finally:
        for name in options:
            runtime.CONF.clear_override(name, 'kronos')
    assert not door.faults.counts
    return found


def snapshot_of(**loads):
    return policy_scores.ScoreReading({h: 1 - v for h, v in loads.items()},
                                      {h: depletion.HostLoad(v, v) for h, v in loads.items()})


@pytest.mark.parametrize('kind', normalisation.KINDS)
@pytest.mark.parametrize('counted', [False, True])
def test_without_scores_every_host_weighs_exactly_0(kind, counted):
    states = nova_fakes.hosts('a', 'b')
    assert weighed(kind, None, states, weigh_request=counted) == [0.0, 0.0]


@pytest.mark.parametrize('kind', ['min-max', 'tanh'])
@pytest.mark.parametrize('counted', [False, True])
def test_an_unknown_host_is_between_the_known(kind, counted):
    low, middle, high = weighed(kind, snapshot_of(a=0.9, c=0.5), nova_fakes.hosts('a', 'b', 'c'),
                                weigh_request=counted)
    assert low < middle < high and middle == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize('kind', ['min-max', 'tanh'])
@pytest.mark.parametrize('counted', [False, True])
@pytest.mark.parametrize('what', ['penalty', 'exclude'])
def test_an_unknown_host_does_not_bring_the_known_nearer_to_each_other(kind, counted, what):
    snapshot = snapshot_of(a=0.51, c=0.50)
    alone = weighed(kind, snapshot, nova_fakes.hosts('a', 'c'), weigh_request=counted)
    low, unknown, high = weighed(kind, snapshot, nova_fakes.hosts('a', 'b', 'c'),
                                 weigh_request=counted, unknown_hosts=what)
    assert [low, high] == alone and low < high
    assert unknown == -0.5


@pytest.mark.parametrize('kind', normalisation.KINDS)
def test_known_hosts_that_are_equal_stay_0_beside_an_unknown_one(kind):
    weights = weighed(kind, snapshot_of(a=0.5, c=0.5), nova_fakes.hosts('a', 'b', 'c'),
                      unknown_hosts='penalty')
    assert weights == [0.0, -0.5, 0.0]


def test_with_the_request_counted_its_flavor_s_use_counts():
    """A flavor of 2 vCPUs that uses 4 cores, where others use 1 for each vCPU."""
    snapshot = policy_scores.ScoreReading(
        {'s': 0.5}, {'s': depletion.HostLoad(0.5, 0.5 - 4 / 16, 1 / 16)},
        extras=flavor_usages.UsageCorrections({flavor_usages.FlavorShape(2, 1024): (2.0, 0.0)}))
    states = [nova_fakes.HostState('s', vcpus_used=4)]
    assert weighed('fixed', snapshot, states, nova_fakes.spec(vcpus=2, memory_mb=1024),
                   weigh_request=True) == [-0.25]
    assert weighed('fixed', snapshot, states, nova_fakes.spec(vcpus=2, memory_mb=512),
                   weigh_request=True) == [-0.125]


def test_the_headroom_is_scaled_as_configured():
    snapshot, states = snapshot_of(a=0.51, b=0.49), nova_fakes.hosts('a', 'b')
    assert weighed('fixed', snapshot, states) == pytest.approx([-0.01, 0.01])
    assert weighed('min-max', snapshot, states) == [-0.5, 0.5]
    assert weighed('tanh', snapshot, states, normalisation_scale=0.01) == pytest.approx(
        [-math.tanh(1) / 2, math.tanh(1) / 2], abs=1e-5)


def test_files_are_scaled_apart_and_one_without_scores_stays_0():
    class TwoFiles(nova_fakes.FakeDoor):
        def list_scored_groups(self, hosts):
            return [score_cache.ScoredHosts(hosts[:2], snapshot_of(a=0.2, b=0.4)),
                    score_cache.ScoredHosts(hosts[2:], None, 'a reason')]

    runtime.CONF.set_override('normalisation', 'min-max', 'kronos')
    try:
        with TwoFiles().opened():
            found = headroom.KronosWeigher().weigh_objects(
                [nova_fakes.Fields(obj=s) for s in nova_fakes.hosts('a', 'b', 'c')],
                nova_fakes.spec())
    finally:
        runtime.CONF.clear_override('normalisation', 'kronos')
    assert found == [0.5, -0.5, 0.0]


def test_the_larger_of_two_equally_full_hosts_wins_with_the_request():
    """4 of 8 and 8 of 16 cores are busy; a busy core for each of 2 more vCPUs."""
    snapshot = policy_scores.ScoreReading({'s': 0.5, 'l': 0.5}, {
        's': depletion.HostLoad(0.5, 0.5 - 4 / 8, 1 / 8),
        'l': depletion.HostLoad(0.5, 0.0, 1 / 16)})
    states = [nova_fakes.HostState('s', vcpus_used=4), nova_fakes.HostState('l', vcpus_used=8)]
    spec = nova_fakes.spec(vcpus=2)
    assert weighed('fixed', snapshot, states, spec) == [0.0, 0.0]
    assert weighed('fixed', snapshot, states, spec, weigh_request=True) == [-0.25, -0.125]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(0, 64))
def test_with_the_request_counted_hosts_of_one_size_keep_their_order(loads, vcpus):
    names = 'abcd'[:len(loads)]
    snapshot = policy_scores.ScoreReading(dict.fromkeys(names, 0.5), {
        n: depletion.HostLoad(v, v, 0.01) for n, v in zip(names, loads, strict=True)})
    group = score_cache.ScoredHosts(nova_fakes.hosts(*names), snapshot)
    plain = headroom.compute_raw_weights(group)
    found = headroom.compute_request_weights(group, nova_fakes.spec(vcpus=vcpus))
    assert all(-0.5 <= f <= 0.5 for f in found)
    for i, x in enumerate(plain):
        for j, y in enumerate(plain):
            assert x + 2e-5 >= y or found[i] <= found[j]
