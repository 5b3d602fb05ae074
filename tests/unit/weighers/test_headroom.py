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


"""Raw weights are headroom - 0.5: exact, comparable, and 0 when nothing is known."""

import math
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from nova.scheduler import weights as nova_weights
import pytest

from kronos_nova.scheduler import depletion
from kronos_nova.scheduler import policy_scores
from kronos_nova.scheduler import runtime
from kronos_nova.scheduler import score_cache
from kronos_nova.scheduler import tie_breaking
from kronos_nova.scheduler import weight_cache
from kronos_nova.weighers import all_weighers
from kronos_nova.weighers import headroom
from tests.unit import nova_fakes

HOSTS = tuple('abcdef')


def snapshot_of(values):
    return policy_scores.ScoreReading(headroom=values, loads={
        host: depletion.HostLoad(1.0 - value, 1.0 - value) for host, value in values.items()})


def final(values, multipliers=None, default=1.0, hosts=HOSTS):
    """Each host's weight as Nova's own handler computes it."""
    states = nova_fakes.hosts(*hosts)
    for state in states:
        if state.host in (multipliers or {}):
            state.aggregates = [mock.Mock(metadata={
                'kronos_weight_multiplier': multipliers[state.host]})]
    door = nova_fakes.FakeDoor(None if values is None else snapshot_of(values))
    runtime.CONF.set_override('kronos_weight_multiplier', default, 'filter_scheduler')
    try:
        with door.opened():
            weighed = nova_weights.HostWeightHandler().get_weighed_objects(
                [headroom.KronosWeigher()], states, nova_fakes.spec())
    finally:
        runtime.CONF.clear_override('kronos_weight_multiplier', 'filter_scheduler')
    assert not door.faults.counts
    return {w.obj.host: w.weight for w in weighed}


def relative(values, hosts=HOSTS):
    return headroom.compute_raw_weights(score_cache.ScoredHosts(
        nova_fakes.hosts(*hosts), None if values is None else snapshot_of(values)))


known = st.dictionaries(st.sampled_from(HOSTS), st.floats(0, 1))


@given(known)
def test_weights_are_finite_bounded_and_exact_to_five_places(values):
    found = dict(zip(HOSTS, relative(values), strict=True))
    assert all(math.isfinite(w) and -0.5 <= w <= 0.5 + 1e-12 for w in found.values())
    for host, value in values.items():
        assert found[host] == pytest.approx(value - 0.5, abs=1e-5)
    if values:
        mean = sum(values.values()) / len(values)
        for host in set(HOSTS) - set(values):
            assert found[host] == pytest.approx(mean - 0.5, abs=2e-5)


@pytest.mark.parametrize('values', [None, {}, {'z': 0.9}])
def test_nothing_known_weighs_exactly_0(values):
    assert relative(values) == [0.0] * len(HOSTS)


def test_nova_s_normalisation_keeps_one_percent_one_percent():
    found = final({'a': 0.51, 'b': 0.50}, hosts=('a', 'b'))
    assert found['a'] - found['b'] == pytest.approx(0.01)
    assert found['b'] == 0.0


@pytest.mark.parametrize('default', [1.0, -1.0, 1e6, 0.0])
def test_no_opinion_is_0_under_multipliers_of_both_signs(default):
    found = final(None, {'a': '1000', 'b': '-1000'}, default)
    assert set(found.values()) == {0.0}


def test_a_negative_multiplier_of_an_aggregate_packs_its_hosts():
    values = {'a': 0.1, 'b': 0.9}
    spread = final(values, hosts=('a', 'b'))
    assert max(spread, key=spread.get) == 'b'
    packed = final(values, {'a': '-1', 'b': '-1'}, hosts=('a', 'b'))
    assert max(packed, key=packed.get) == 'a'
    assert final(values, {'a': '0', 'b': '0'}, hosts=('a', 'b')) == {'a': 0.0, 'b': 0.0}


@pytest.mark.parametrize('value', ['nan', 'inf', '-inf'])
def test_a_multiplier_that_is_no_number_never_breaks_the_order(value):
    found = final({'a': 0.1, 'b': 0.9}, {'a': value}, hosts=('a', 'b'))
    assert found == {'a': 0.0, 'b': pytest.approx(0.4)}


def test_a_multiplier_that_is_text_is_the_option():
    found = final({'a': 1.0, 'b': 0.5}, {'a': 'much'}, default=2.0, hosts=('a', 'b'))
    assert found == {'a': 1.0, 'b': 0.0}


def test_allocations_since_the_sample_lower_headroom():
    snapshot = policy_scores.ScoreReading({'a': 0.7, 'b': 0.6}, {
        'a': depletion.HostLoad(0.3, 0.3 - 0.05 * 4, 0.05),
        'b': depletion.HostLoad(0.4, 0.4 + 0.001 * 500, 0.0, 0.001)})
    states = [nova_fakes.HostState('a', vcpus_used=used) for used in (4, 6, 2, 400)]
    states += [nova_fakes.HostState('b', free_ram_mb=free) for free in (500, 300, None)]
    assert headroom.compute_raw_weights(score_cache.ScoredHosts(states, snapshot)) == pytest.approx(
        [0.2, 0.1, 0.3, -0.5, 0.1, -0.1, 0.1], abs=1e-5)


@given(st.floats(-10, 10), st.floats(0, 1), st.floats(0, 1), st.integers(0, 5000),
       st.integers(-5000, 5000))
def test_no_allocation_leaves_the_bounds(base, per_vcpu, per_mib, vcpus, free):
    snapshot = policy_scores.ScoreReading({'a': 0.5},
                                          {'a': depletion.HostLoad(0.5, base, per_vcpu, per_mib)})
    [weight] = headroom.compute_raw_weights(score_cache.ScoredHosts(
        [nova_fakes.HostState('a', vcpus_used=vcpus, free_ram_mb=free)], snapshot))
    load = base + per_vcpu * vcpus - per_mib * free
    assert weight == pytest.approx(0.5 - min(1.0, max(0.0, load)), abs=1e-5)


def test_hosts_of_two_files_are_weighed_by_their_own_scores_in_order():
    class TwoFiles(nova_fakes.FakeDoor):
        def list_scored_groups(self, hosts):
            def some(names):
                return [h for h in hosts if h.host in names]

            return [score_cache.ScoredHosts(some('ace'), snapshot_of({'a': 0.9, 'c': 0.7})),
                    score_cache.ScoredHosts(some('b'), snapshot_of({'b': 0.2})),
                    score_cache.ScoredHosts(some('df'), None, 'a reason')]

    weighed = [mock.Mock(obj=state) for state in nova_fakes.hosts(*HOSTS)]
    with TwoFiles().opened():
        found = headroom.KronosWeigher().weigh_objects(weighed, None)
    # e is not known and gets the mean of its own file's hosts.
    assert found == pytest.approx([0.4, -0.3, 0.2, 0.0, 0.3, 0.0], abs=1e-5)


def aggregate(name, **metadata):
    found = mock.Mock(metadata=metadata)
    found.name = name
    return found


def test_multipliers_are_read_once_per_request_and_reported():
    plain, heavy = aggregate('plain'), aggregate('heavy', kronos_weight_multiplier='3')
    states = nova_fakes.hosts('a', 'b', 'c', 'd')
    for state, aggregates in zip(states, ([plain], [plain, heavy], [heavy], []), strict=True):
        state.aggregates = aggregates
    weigher, door = headroom.KronosWeigher(), nova_fakes.FakeDoor()
    weighed = [mock.Mock(obj=state) for state in states]
    with door.opened(), mock.patch.object(
            headroom.utils, 'get_weight_multiplier', autospec=True,
            side_effect=headroom.utils.get_weight_multiplier) as looked_up:
        for _ in range(3):
            assert [weigher.weight_multiplier(s) for s in states] == [1.0, 3.0, 3.0, 1.0]
        assert looked_up.call_count == 4
        # The next request sees what has changed since.
        heavy.metadata['kronos_weight_multiplier'] = '-2'
        weigher.weigh_objects(weighed, None)
        assert [weigher.weight_multiplier(s) for s in states] == [1.0, -2.0, -2.0, 1.0]
    told = {(call.args[0].host, *call.args[1:])
            for call in door.scores.record_multiplier.call_args_list}
    assert told == {('a', 1.0, ()), ('b', 3.0, ('heavy',)), ('c', 3.0, ('heavy',)),
                    ('d', 1.0, ()), ('b', -2.0, ('heavy',)), ('c', -2.0, ('heavy',))}


def test_a_multiplier_that_cannot_be_looked_up_is_0_and_counted():
    state = nova_fakes.HostState('a')
    state.aggregates = None
    door = nova_fakes.FakeDoor()
    with door.opened():
        assert headroom.KronosWeigher().weight_multiplier(state) == 0.0
    assert door.faults.counts == {'KronosWeigher: TypeError': 1}


def test_an_error_weighs_0_and_is_counted():
    door = nova_fakes.FakeDoor()
    weighed = [mock.Mock(obj=state) for state in nova_fakes.hosts('a', 'b')]
    broken = mock.patch.object(door, 'list_scored_groups', autospec=True,
                               side_effect=RuntimeError('boom'))
    with door.opened(), broken:
        assert headroom.KronosWeigher().weigh_objects(weighed, None) == [0.0, 0.0]
    assert door.faults.counts == {'KronosWeigher: RuntimeError': 1}


@pytest.mark.parametrize('debug', [True, False])
def test_a_request_is_one_line_in_the_debug_log_and_costs_nothing_without(debug):
    states = nova_fakes.hosts(*HOSTS)
    with nova_fakes.FakeDoor(snapshot_of({'a': 0.9, 'b': 0.2})).opened(), \
            mock.patch.object(headroom.LOG, 'isEnabledFor', autospec=True, return_value=debug), \
            mock.patch.object(headroom.LOG, 'debug', autospec=True) as said:
        headroom.KronosWeigher().weigh_objects(
            [mock.Mock(obj=state) for state in states], nova_fakes.spec())
    assert [call.args[0] % call.args[1:] for call in said.call_args_list] == debug * [
        'kronos: instance u-new: raw weights (hosts: 6) are -0.3 to 0.4, the largest is of a']


@pytest.mark.parametrize(('fields', 'plain'), [
    ({}, False), ({'num_instances': 1}, False), ({'num_instances': 2}, False),
    ({'num_instances': 3}, True), ({'num_instances': 100}, True)])
def test_as_many_instances_as_hosts_see_each_other_and_need_no_ranking(fields, plain):
    """Rankings would turn the hosts' order round."""
    loads = {h: depletion.HostLoad(v, v) for h, v in zip('abc', (0.2, 0.4, 0.6), strict=True)}
    turned = {h: depletion.HostLoad(v, v) for h, v in zip('abc', (0.6, 0.4, 0.2), strict=True)}
    snapshot = policy_scores.ScoreReading(dict.fromkeys(loads, 0.5), loads, rankings=tuple(
        (turned, weight_cache.WeightCache()) for _ in range(tie_breaking.RANKINGS)))
    with nova_fakes.FakeDoor(snapshot).opened():
        found = headroom.KronosWeigher().weigh_objects(
            [nova_fakes.Fields(obj=s) for s in nova_fakes.hosts(*'abc')],
            nova_fakes.spec(**fields))
    assert found == ([0.3, 0.1, -0.1] if plain else [-0.1, 0.1, 0.3])


def test_one_host_and_one_instance_is_a_request_like_others():
    assert headroom.ranking_of(nova_fakes.spec(num_instances=1), 1) is not None


def test_no_hosts_and_no_request_are_nothing_to_tell():
    with mock.patch.object(headroom.LOG, 'debug', autospec=True) as said:
        headroom.log_raw_weights([], [], nova_fakes.spec())
        assert not said.called
        headroom.log_raw_weights(nova_fakes.hosts('a'), [0.0], None)
    assert said.call_args.args[1] is None


def test_the_entry_point_names_it():
    assert headroom.KronosWeigher in all_weighers()
