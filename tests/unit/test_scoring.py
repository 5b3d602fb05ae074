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


"""From samples to scores: refused at the border, with a reason, or exact."""

import math

from hypothesis import given
from hypothesis import strategies as st
import pytest

from kronos_nova import labels
from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova import scoring

HEALTHY = model.SourceHealth.HEALTHY


def policy_of(**fields):
    return policies.Policy(**{'name': 'cpu', 'weight': 1.0, 'imbalance_query': 'q', **fields})


def result_of(series, **fields):
    return model.QueryResult('q', HEALTHY, series=series, **fields)


def cluster_of(hosts, instances=(), services=None, vcpus=None):
    made = {}
    for host in hosts:
        total = (vcpus or {}).get(host)
        provider = model.Provider(f'rp-{host}', inventories={'VCPU': model.Inventory(total)}) \
            if total is not None else None
        made[host] = model.Host(host, provider=provider)
    return model.Cluster(
        hosts=made, instances={i.uuid: i for i in instances},
        services=services or {host: model.Service(host) for host in hosts},
        scope_hosts=frozenset(hosts))


def instance_of(uuid, host, vcpus=1):
    return model.Instance(uuid, host, vcpus=vcpus, internal_name=f'name-{uuid}')


def score(series, hosts=('a', 'b'), policy=None, now=0.0, instances=(), vcpus=None, services=None,
          **samples):
    made = model.PolicySamples('cpu', result_of(series), **samples)
    return scoring.score_policy(policy or policy_of(), made,
                                cluster_of(hosts, instances, services, vcpus), now=now,
                                staleness=300.0)


def host_scores(series, hosts=('a', 'b'), **fields):
    return scoring.host_scores(policy_of(), result_of(series, **fields),
                               labels.HostNames(dict.fromkeys(hosts, '')))


# imbalance, combine, headroom

@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 1)), min_size=1, max_size=6))
def test_headroom_stays_in_its_range_and_falls_with_any_score(rows):
    total = math.fsum(weight for _, weight in rows)
    weights = {str(n): weight / total for n, (_, weight) in enumerate(rows)}
    scores = {str(n): value for n, (value, _) in enumerate(rows)}
    before = scoring.compute_headroom(scores, weights)
    assert 0.0 <= before <= 1.0
    assert scoring.compute_headroom({**scores, '0': 1.0}, weights) <= before


# host_scores

def test_a_nan_is_a_missing_host_and_never_a_score():
    scores, problem, warnings = host_scores({'a': math.nan, 'b': 0.5})
    assert scores == {'b': 0.5} and problem is None and 'host a' in warnings[0]


def test_only_nan_is_no_answer():
    scores, problem, _ = host_scores({'a': math.nan, 'b': math.inf})
    assert not scores and 'not a number' in problem


@pytest.mark.parametrize('value', [-0.01, 1.01, 50.0])
def test_a_value_outside_0_to_1_refuses_the_policy(value):
    scores, problem, _ = host_scores({'a': value, 'b': 0.5})
    assert not scores and 'outside [0, 1]' in problem and 'host a' in problem


def test_rounding_is_not_outside():
    scores, problem, _ = host_scores({'a': -1e-12, 'b': 1 + 1e-12})
    assert scores == {'a': 0.0, 'b': 1.0} and problem is None


def test_two_series_for_a_host_refuse_the_policy():
    for series, fields in (({'a': 0.1, 'a.x.org': 0.2}, {}), ({'b': 0.1}, {'duplicates': ('a',)})):
        scores, problem, _ = host_scores(series, **fields)
        assert not scores and 'more than one series for host a' in problem


def test_two_series_of_a_host_that_is_not_nova_s_change_nothing():
    scores, problem, _ = host_scores({'a': 0.1, 'b': 0.2}, duplicates=('web1',))
    assert scores == {'a': 0.1, 'b': 0.2} and problem is None


def test_an_empty_answer_is_a_named_reason():
    scores, problem, _ = host_scores({})
    assert not scores and 'no series' in problem


def test_an_answer_about_other_hosts_is_a_named_reason():
    scores, problem, _ = host_scores({'web1': 0.1})
    assert not scores and 'host_label' in problem and 'web1' in problem


def test_a_failed_query_says_why():
    scores, problem, warnings = host_scores({}, error='boom', warnings=('w',))
    assert (scores, problem, warnings) == ({}, 'boom', ['w'])


# freshness

@pytest.mark.parametrize(('age', 'asked', 'old'), [
    (None, 0, False), (None, 300, False), (None, 301, True), (299, 0, False), (299, 2, True),
    (301, 0, True), (0, -50, False), (math.nan, 0, True), (math.inf, 0, True), (-500, 301, True)])
def test_the_age_of_samples_is_theirs_and_the_time_since(age, asked, old):
    samples = model.PolicySamples('cpu', result_of({}), age=age, taken_at=1000.0)
    reason = scoring.find_stale_reason(samples, 1000.0 + asked, 300.0, False)
    assert (reason is not None) == old
    if old:
        assert 'staleness_threshold' in reason


def test_require_age_refuses_samples_without_an_age():
    samples = model.PolicySamples('cpu', result_of({}), taken_at=0.0)
    assert 'age_query' in scoring.find_stale_reason(samples, 0.0, 300.0, True)


# score

def test_an_unverified_age_is_a_warning():
    assert 'age: unverified' in score({'a': 0.1, 'b': 0.2}).warnings
    assert 'age: unverified' not in score({'a': 0.1, 'b': 0.2}, age=1.0).warnings


@pytest.mark.parametrize(('hosts', 'configured', 'limit'), [
    (3, None, 1), (19, None, 1), (40, None, 2), (100, None, 5), (100, 0, 0), (3, 2, 2)])
def test_how_many_hosts_may_be_missing(hosts, configured, limit):
    assert scoring.missing_limit(hosts, configured) == limit


def test_one_missing_host_is_frozen_and_two_hold_the_policy():
    hosts = ('a', 'b', 'c')
    one = score({'a': 0.1, 'b': 0.2}, hosts)
    assert one.missing == {'c'} and one.untrusted is None
    two = score({'a': 0.1}, hosts)
    assert two.missing == {'b', 'c'} and '2 of 3 hosts have no score' in two.untrusted


def test_a_host_that_is_down_is_not_missing():
    services = {'a': model.Service('a'), 'b': model.Service('b', state='down'),
                'c': model.Service('c', forced_down=True)}
    found = score({'a': 0.1}, ('a', 'b', 'c'), services=services)
    assert not found.missing and found.untrusted is None


def test_defect_10_stale_samples_are_untrusted():
    assert '400 s old' in score({'a': 0.1, 'b': 0.2}, age=400.0).untrusted


def test_a_pack_policy_fills_by_its_capacity_query():
    policy = policy_of(mode='pack', capacity_query='c')
    found = score({'a': 0.1, 'b': 0.2}, policy=policy, capacity=result_of({'a': 0.8, 'b': 0.9}))
    assert found.hosts == {'a': 0.1, 'b': 0.2} and found.fill == {'a': 0.8, 'b': 0.9}
    bad = score({'a': 0.1, 'b': 0.2}, policy=policy, capacity=result_of({'a': 8, 'b': 0.9}))
    assert bad.untrusted.startswith('capacity_query: ')


def test_absolute_usages_need_and_get_the_capacity_of_hosts():
    policy = policy_of(vm_profile_query='p', vm_profile_unit='absolute', host_capacity_query='h',
                       vm_profile_label_type='nova_instance_uuid')
    found = score({'a': 0.5, 'b': 0.5}, policy=policy,
                  instances=[instance_of('u1', 'a'), instance_of('u2', 'b')],
                  profile=result_of({'u1': 4.0, 'u2': 4.0}),
                  host_capacity=result_of({'a': 8.0, 'b': 16.0}))
    assert found.usages == {'u1': 4.0, 'u2': 4.0}
    assert found.coverage == {'a': 1.0, 'b': 0.5}


def test_a_host_without_a_capacity_is_missing():
    policy = policy_of(host_capacity_query='h')
    found = score({'a': 0.5, 'b': 0.5}, policy=policy,
                  host_capacity=result_of({'a': 8.0, 'b': 0.0}))
    assert found.missing == {'b'}
    unasked = score({'a': 0.5, 'b': 0.5}, policy=policy)
    assert 'host_capacity_query' in unasked.untrusted


def test_a_ratio_is_the_part_of_the_instance_s_own_host():
    policy = policy_of(vm_profile_query='p', vm_profile_label_type='nova_instance_uuid')
    found = score({'a': 0.5, 'b': 0.5}, policy=policy, vcpus={'a': 8, 'b': 16},
                  instances=[instance_of('u1', 'a'), instance_of('u2', 'b')],
                  profile=result_of({'u1': 0.25, 'u2': 0.25}))
    assert found.usages == {'u1': 2.0, 'u2': 4.0}
    assert any('differ in size' in warning for warning in found.warnings)


def test_a_profile_in_the_wrong_unit_is_found_by_its_coverage():
    policy = policy_of(vm_profile_query='p', vm_profile_label_type='nova_instance_uuid')
    for value, trusted in ((0.5, True), (0.9, True), (2.0, False)):
        found = score({'a': 0.5, 'b': 0.5}, policy=policy,
                      instances=[instance_of('u1', 'a'), instance_of('u2', 'b')],
                      profile=result_of({'u1': value, 'u2': value}))
        assert (found.untrusted is None) == trusted
        assert any('vm_profile_unit' in w for w in found.warnings) == (value > 0.75)


def test_a_usage_that_is_no_number_is_no_usage():
    policy = policy_of(vm_profile_query='p', vm_profile_label_type='nova_instance_uuid')
    found = score({'a': 0.5, 'b': 0.5}, policy=policy,
                  instances=[instance_of('u1', 'a'), instance_of('u2', 'b')],
                  profile=result_of({'u1': math.nan, 'u2': -1.0}))
    assert not found.usages and len([w for w in found.warnings if 'not usable' in w]) == 2


def test_fallbacks_share_the_host_s_score_and_skip_does_not():
    instances = [instance_of('u1', 'a', 1), instance_of('u2', 'a', 3)]
    for fallback, expected in (('skip', {}), ('flavor_vcpu_ratio', {'u1': 0.2, 'u2': 0.6}),
                               ('host_average', {'u1': 0.4, 'u2': 0.4})):
        found = score({'a': 0.8, 'b': 0.1}, policy=policy_of(vm_profile_fallback=fallback),
                      instances=instances)
        assert found.usages == pytest.approx(expected)


def test_means_and_deviations_are_in_the_unit_of_the_capacity():
    policy = policy_of(host_capacity='VCPU', vm_profile_query='p', vm_mean_query='m',
                       vm_deviation_query='d')
    found = score({'a': 0.5, 'b': 0.5}, policy=policy, vcpus={'a': 8, 'b': 16},
                  instances=[instance_of('u', 'a'), instance_of('v', 'b')],
                  profile=result_of({'name-u': 0.25}), mean=result_of({'name-u': 0.5, 'x': 1.0}),
                  deviation=result_of({'name-u': 0.125, 'name-v': 0.25}))
    assert found.usages == {'u': 2.0}
    assert found.means == {'u': 4.0} and found.deviations == {'u': 1.0, 'v': 4.0}
    assert found.untrusted is None


def test_dirty_rates_are_in_bytes_for_any_unit_of_the_profile():
    policy = policy_of(host_capacity='VCPU', vm_profile_query='p', vm_dirty_rate_query='w')
    found = score({'a': 0.5, 'b': 0.5}, policy=policy, vcpus={'a': 8, 'b': 16},
                  instances=[instance_of('u', 'a'), instance_of('v', 'b'), instance_of('w', 'b')],
                  profile=result_of({}), dirty_rate=result_of(
                      {'name-u': 2048.0, 'name-v': -1.0, 'gone': 5.0, 'name-w': 0.0}))
    assert found.dirty_rates == {'u': 2048.0, 'w': 0.0} and found.untrusted is None


def test_a_policy_without_dirty_rates_is_trusted_with_a_warning():
    policy = policy_of(vm_dirty_rate_query='w')
    failed = model.QueryResult('w', model.SourceHealth.UNREACHABLE, error='timed out')
    found = score({'a': 0.5, 'b': 0.5}, policy=policy, dirty_rate=failed)
    assert found.untrusted is None and found.dirty_rates == {}
    assert any('vm_dirty_rate_query: timed out' in text for text in found.warnings)


@pytest.mark.parametrize('field', ['mean', 'deviation'])
def test_a_failed_mean_or_deviation_holds_the_policy(field):
    policy = policy_of(vm_profile_query='p', vm_mean_query='m', vm_deviation_query='d')
    answers = {'mean': result_of({}), 'deviation': result_of({})}
    answers[field] = model.QueryResult('q', model.SourceHealth.UNREACHABLE, error='timed out')
    found = score({'a': 0.5, 'b': 0.5}, policy=policy, profile=result_of({}), **answers)
    assert found.untrusted == f'vm_{field}_query: timed out'


def test_a_failed_profile_holds_the_policy():
    policy = policy_of(vm_profile_query='p')
    failed = model.QueryResult('p', model.SourceHealth.PARTIAL, error='boom')
    assert score({'a': 0.1, 'b': 0.2}, policy=policy, profile=failed).untrusted \
        == 'vm_profile_query: boom'


@given(st.dictionaries(st.sampled_from('abcdef'), st.floats(0, 1), min_size=1))
def test_trusted_scores_are_the_samples(series):
    found = score(series, hosts=tuple('abcdef'))
    if found.untrusted is None:
        assert found.hosts == series
        assert found.missing == set('abcdef') - set(series)
    else:
        assert len(series) < 5


def test_usage_per_unit_is_busy_capacity_by_allocation():
    assert scoring.usage_per_unit([(0.5, 64, 64), (0.25, 64, 64)]) == 0.375
    assert scoring.usage_per_unit([(0.9, 64, 10)]) == 1.0, 'base load is no instance'
    assert scoring.usage_per_unit([(0.5, 64, 0)]) == 0.0
    assert scoring.usage_per_unit([]) == 0.0
