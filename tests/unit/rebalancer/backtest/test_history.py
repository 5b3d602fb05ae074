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

"""What series mean for hosts and instances."""

import dataclasses
import math

import numpy as np
import pytest

from kronos_nova import exception
from kronos_nova.rebalancer.backtest import history
from tests.unit.rebalancer.backtest import made

ABSENT = history.ABSENT
EVEN = {'h1': [0.5] * 4, 'h2': [0.5] * 4, 'h3': [0.5] * 4}


def test_labels_are_mapped_as_the_engine_maps_them():
    found = made.built(made.cluster({'a': 'h1'}),
                       {'h1.example.org': [0.5, 0.6], 'h2': [0.1, None]}, {'a': [1, 2]})
    assert found.score[0, :, 0] == pytest.approx([0.5, 0.6])
    assert math.isnan(found.score[0, 1, 1]) and np.isnan(found.score[0, :, 2]).all()
    assert found.capacity[0].tolist() == [[10.0] * 3] * 2


@pytest.mark.parametrize(('hosts', 'told'), [
    ({'cn1': [0.5, 0.5]}, 'no series of label host is a Nova host'),
    ([('h1', '', [0.5, 0.5]), ('h1', '', [0.4, None])], 'more than one series for host h1')])
def test_hosts_that_cannot_be_known_are_an_error(hosts, told):
    with pytest.raises(exception.HistoryError, match=told):
        made.built(made.cluster({'a': 'h1'}), hosts, {'a': [1, 1]})


def test_two_series_of_a_host_one_after_the_other_are_one():
    found = made.built(made.cluster({'a': 'h1'}),
                       [('h1', '', [0.5, None]), ('h1.example.org', '', [None, 0.25])],
                       {'a': [1, 1]})
    assert found.score[0, :, 0].tolist() == [0.5, 0.25]


def test_a_query_that_was_not_recorded_is_an_error_that_names_it():
    recorded = made.trace(made.cluster({'a': 'h1'}), EVEN, {'a': [1] * 4})
    other = made.policy_set(vm_profile_query='other')
    with pytest.raises(exception.HistoryError, match='vm_profile_query of policy cpu'):
        history.build_past(recorded, [other], made.SCOPES)


def test_a_ratio_becomes_absolute_by_the_host_it_was_measured_on():
    chosen = made.policy_set(vm_profile_unit='host_ratio')
    found = made.built(made.cluster({'a': 'h1'}), EVEN, {'a': [0.25] * 4}, policies=chosen)
    assert found.usage[0, :, 0].tolist() == [2.5] * 4


def test_an_instance_was_where_its_second_label_says():
    """Held through a gap, and from the start where it is seen first."""
    found = made.built(made.cluster({'a': 'h3'}), EVEN,
                       [('a', 'h1', [1, None, None, None]), ('a', 'h2', [None, None, 1, 1])])
    assert [found.hosts[h] for h in found.home[:, 0]] == ['h1', 'h1', 'h2', 'h2']
    found = made.built(made.cluster({'a': 'h3'}), EVEN, [('a', 'h2', [None, 1, 1, 1])])
    assert [found.hosts[h] for h in found.home[:, 0]] == ['h2'] * 4


def test_without_that_label_it_was_where_the_cloud_has_it():
    found = made.built(made.cluster({'a': 'h3'}), EVEN, {'a': [1] * 4})
    assert [found.hosts[h] for h in found.home[:, 0]] == ['h3'] * 4


def test_of_two_hosts_at_once_the_later_series_counts():
    """A rate window shows a migrated instance at both ends for a while."""
    found = made.built(made.cluster({'a': 'h2'}), EVEN,
                       [('a', 'h1', [3, 3, 3, None]), ('a', 'h2', [None, None, 1, 1])])
    assert [found.hosts[h] for h in found.home[:, 0]] == ['h1', 'h1', 'h2', 'h2']
    assert found.usage[0, :, 0].tolist() == [3, 3, 1, 1]


def test_two_series_of_an_instance_in_one_place_are_left_out_there():
    found = made.built(made.cluster({'a': 'h1'}), EVEN,
                       [('a', 'h1', [3, 3, 3, 3]), ('a', 'h1', [None, None, 1, 1])])
    assert found.usage[0, :2, 0].tolist() == [3, 3]
    assert np.isnan(found.usage[0, 2:, 0]).all()
    assert any('several series' in text for text in found.warnings)


@pytest.mark.parametrize(('taken_at', 'there'), [
    (made.START, [True, True, True, False]),
    (made.START + 2 * made.STEP, [False, True, True, False]),
    (made.START + 90 * made.STEP, [False, True, True, True]),
    (made.START - 90 * made.STEP, [True, True, True, False])])
def test_an_instance_exists_between_its_samples_and_at_the_reading(taken_at, there):
    found = made.built(made.cluster({'a': 'h1'}, taken_at=taken_at), EVEN,
                       {'a': [None, 1, 1, None]})
    assert (found.home[:, 0] != ABSENT).tolist() == there


def test_an_instance_without_series_is_there_and_its_load_is_the_hosts_own():
    found = made.built(made.cluster({'a': 'h1', 'b': 'h1'}), EVEN, {'a': [1] * 4})
    assert found.home[:, 1].tolist() == [0] * 4
    assert found.compute_true_usage(0).tolist() == [[1.0, 0.0]]


def test_series_without_an_instance_are_counted_on_their_host():
    found = made.built(made.cluster({'a': 'h1'}), EVEN,
                       [('a', 'h1', [1] * 4), ('gone', 'h2', [1, 1, None, None])])
    assert found.others[:, 1].tolist() == [1, 1, 0, 0]
    assert any('1 series belong to no instance' in text for text in found.warnings)


def test_instances_that_explain_more_than_their_host_are_scaled_down_to_it():
    found = made.built(made.cluster({'a': 'h1', 'b': 'h1'}), EVEN,
                       {'a': [6] * 4, 'b': [4] * 4})
    assert found.scale[0, 0].tolist() == pytest.approx([0.5, 1.0, 1.0])
    assert found.compute_true_usage(0)[0].tolist() == pytest.approx([3.0, 2.0])
    assert found.usage[0, 0].tolist() == [6.0, 4.0], 'the planner sees what was measured'
    assert any('explain more' in text for text in found.warnings)


@pytest.mark.parametrize(('fallback', 'expected'), [
    ('skip', [2.0, None]), ('host_average', [2.0, 2.5]), ('flavor_vcpu_ratio', [2.0, 2.5])])
def test_fallbacks_share_the_hosts_score(fallback, expected):
    found = made.built(made.cluster({'a': 'h1', 'b': 'h1'}), EVEN, {'a': [2] * 4},
                       policies=made.policy_set(vm_profile_fallback=fallback))
    assert [None if np.isnan(v) else v for v in found.usage[0, 0].tolist()] == expected


def test_instances_without_vcpus_share_alike():
    cloud = made.cluster({'a': 'h1', 'b': 'h1'})
    for uuid, known in cloud.instances.items():
        cloud.instances[uuid] = dataclasses.replace(known, vcpus=0)
    found = made.built(cloud, EVEN, {'c': [1] * 4},
                       policies=made.policy_set(vm_profile_fallback='flavor_vcpu_ratio'))
    assert found.usage[0, 0].tolist() == [2.5, 2.5]


def test_capacity_over_time_comes_from_its_query():
    chosen = made.policy_set(host_capacity=None, host_capacity_query='cores')
    found = made.built(made.cluster({'a': 'h1'}), EVEN, {'a': [2] * 4}, policies=chosen,
                       host_capacity_query={'h1': [20] * 4, 'h2': [0] * 4})
    assert found.capacity[0, 0, 0] == 20.0 and np.isnan(found.capacity[0, :, 1]).all()


def test_policies_that_score_alike_are_one_measure_and_others_get_a_number():
    calm, eager = made.policy_set(), made.policy_set(threshold=0.05)
    packing = made.policy_set(mode='pack', capacity_query='peak')
    other = made.policy_set(imbalance_query='different')
    assert [m.name for m in history.measures_of([calm, eager, packing, other])] == ['cpu', 'cpu#2']


def test_forecast_queries_of_pack_add_no_measure():
    found = [made.policy_set(mode='pack', capacity_query='peak', **more)
             for more in ({}, {'vm_mean_query': 'mean', 'vm_deviation_query': 'deviation'},
                          {'vm_mean_query': 'another mean'})]
    assert [m.name for m in history.measures_of(found)] == ['cpu']


def long_term(found, query):
    """T x N of the one measure, by the query's text."""
    return next(v for (_m, question), v in found.long_term.items() if question[0] == query)


def test_a_mean_ratio_becomes_absolute_by_the_host_it_was_measured_on():
    chosen = made.policy_set(vm_profile_unit='host_ratio', vm_mean_query='mean')
    found = made.built(made.cluster({'a': 'h1'}), EVEN, {'a': [0.25] * 4}, policies=chosen,
                       vm_mean_query={'a': [0.125, None, -1.0, 0.5]})
    assert long_term(found, 'mean')[:, 0].tolist() == pytest.approx(
        [1.25, math.nan, math.nan, 5.0], nan_ok=True)


def test_a_mean_is_found_by_the_label_of_instances():
    chosen = made.policy_set(vm_mean_query='mean', vm_profile_label='uuid', host_label='nodename')
    recorded = made.trace(made.cluster({'a': 'h1'}), EVEN, {'a': [1] * 4}, policies=chosen,
                          vm_mean_query={'a': [1] * 4})
    assert ('mean', 'uuid', 'nodename') in recorded.answers


def test_a_mean_that_was_not_recorded_is_an_error_that_names_it():
    recorded = made.trace(made.cluster({'a': 'h1'}), EVEN, {'a': [1] * 4})
    chosen = made.policy_set(vm_mean_query='mean')
    with pytest.raises(exception.HistoryError, match='vm_mean_query of policy cpu'):
        history.build_past(recorded, [chosen], made.SCOPES)


def test_unknown_series_of_a_mean_give_no_second_warning():
    chosen = made.policy_set(vm_mean_query='mean')
    found = made.built(made.cluster({'a': 'h1'}), EVEN, {'a': [1] * 4}, policies=chosen,
                       vm_mean_query={'a': [1] * 4, 'gone': [1] * 4})
    assert found.warnings == ()
    assert found.others.sum() == 0
