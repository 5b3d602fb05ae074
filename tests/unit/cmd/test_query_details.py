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

"""Results of a policy's queries compared with Nova: names, gaps, range and units."""

import dataclasses
import time

from oslo_config import cfg
import pytest

from kronos_nova import model
from kronos_nova import policy as policies
from kronos_nova.checks import base
from kronos_nova.checks import details
from kronos_nova.checks import queries
from kronos_nova.checks import units
from kronos_nova.conf import opts
from kronos_nova.rebalancer.planning import planning_pipeline
from kronos_nova.rebalancer.planning import planning_settings

GIB = 2**30
CORES, MEMORY_MB = 32, 128 * 1024


def host(name, cores=CORES):
    return model.Host(name, f'{name}.example.org', provider=model.Provider(
        uuid=name, inventories={'VCPU': model.Inventory(cores),
                                'MEMORY_MB': model.Inventory(MEMORY_MB)}))


def cloud(hosts=('h1', 'h2'), per_host=4, vcpus=8):
    instances = {}
    for name in hosts:
        for number in range(per_host):
            uuid = f'{name}-{number}'
            instances[uuid] = model.Instance(uuid=uuid, name='same', host=name, vcpus=vcpus,
                                             internal_name=f'instance-{uuid}')
    return model.Cluster(
        hosts={name: host(name) for name in hosts}, instances=instances,
        services={name: model.Service(name) for name in hosts}, scope_hosts=frozenset(hosts))


def result(series, **fields):
    return model.QueryResult('q', model.SourceHealth.HEALTHY, series=series, **fields)


def policy(**fields):
    entry = {'name': 'cpu', 'weight': 1, 'imbalance_query': 'cpu', 'vm_profile_query': 'vm',
             'vm_profile_label_type': 'nova_instance_uuid', 'age_query': 'age', **fields}
    return policies.parse_policies({'policies': [entry]}).policies[0]


class Source:
    """Return the given answers."""

    def __init__(self, imbalance, profile=None, **fields):
        self.samples = model.PolicySamples(
            'cpu', result(imbalance) if isinstance(imbalance, dict) else imbalance,
            profile=result(profile) if isinstance(profile, dict) else profile,
            **{'age': 12.0, 'taken_at': time.time(), **fields})

    def fetch(self, policy):
        return self.samples


def context(source, cluster, chosen):
    conf = cfg.ConfigOpts()
    opts.register(conf)
    conf([], project='kronos', default_config_files=[], default_config_dirs=[])
    return base.CheckContext(conf, policies.PolicySet(policies=(chosen,)), source, None, cluster)


def look(source, cluster=None, chosen=None, every=False):
    """Items by (query, check)."""
    chosen = chosen or policy()
    cluster = cluster if cluster is not None else cloud()
    return {(row.field, row.item.name): row.item
            for row in details.examine_queries(context(source, cluster, chosen), [chosen], every)}


def states(found):
    return {key: str(item.status) for key, item in found.items() if item.status != 'ok'}


LOAD = {'h1': 0.8, 'h2': 0.4}
#: Cores; together 70 % of each host's load.
USED = {f'{h}-{n}': 0.7 * score * CORES / 4 for h, score in LOAD.items() for n in range(4)}
ABSOLUTE = {'vm_profile_unit': 'absolute', 'host_capacity': 'VCPU'}


def test_successful_checks_report_their_findings():
    found = look(Source(LOAD, USED), chosen=policy(**ABSOLUTE))
    assert states(found) == {}
    text = {key: item.text for key, item in found.items()}
    assert text['imbalance_query', 'series'] == '2 by host'
    assert text['imbalance_query', 'labels'] == '2 are hosts of Nova\'s'
    assert text['imbalance_query', 'missing'] == 'none of 2 hosts'
    assert text['imbalance_query', 'duplicates'] == 'none'
    assert text['imbalance_query', 'range'] == '0.4 to 0.8'
    assert text['vm_profile_query', 'missing'] == 'none of 8 instances'
    assert text['age_query', 'sample age'] == 'the samples are 12 s old'
    assert text['vm_profile_query', 'coverage'] == (
        'instances explain 70.00% of their hosts\' load (70.00% on h1 to 70.00% on h1)')
    assert text['', '_unassigned_'] == 'imbalance 0.4000, threshold 0.1500'


def changed(cluster, host, **fields):
    return dataclasses.replace(cluster, services={
        **cluster.services, host: dataclasses.replace(cluster.services[host], **fields)})


UNEVEN = {'h1': 0.8, 'h2': 0.4, 'h3': 0.0, 'h4': 0.9, 'h5': 0.5}


@pytest.mark.parametrize('fields', [
    {'status': 'disabled'}, {'state': 'down'}, {'forced_down': True}])
def test_a_host_that_gets_nothing_by_load_is_no_part_of_the_imbalance(fields):
    cluster = changed(changed(cloud(tuple(UNEVEN)), 'h3', **fields), 'h4', **fields)
    item = look(Source(UNEVEN), cluster)['', '_unassigned_']
    assert item.text == 'imbalance 0.4000 of 3 of 5 hosts, threshold 0.1500'
    items = queries.check(context(Source(UNEVEN), cluster, policy()))
    assert [i.text for i in items if i.name.endswith('in _unassigned_')] == [item.text]


def test_a_host_without_a_score_is_no_part_of_the_imbalance():
    load = {h: v for h, v in UNEVEN.items() if h != 'h3'}
    item = look(Source(load), cloud(tuple(UNEVEN)))['', '_unassigned_']
    assert item.text == 'imbalance 0.5000 of 4 of 5 hosts, threshold 0.1500'


@pytest.mark.parametrize('fields', [{'status': 'disabled'}, {'state': 'down'}, {}])
@pytest.mark.parametrize('missing', ['', 'h1'])
def test_the_imbalance_is_the_one_that_an_engine_plans_with(fields, missing):
    cluster = changed(cloud(tuple(UNEVEN)), 'h4', **fields)
    source = Source({h: v for h, v in UNEVEN.items() if h != missing})
    chosen = policy()
    there = context(source, cluster, chosen)
    (scope,) = queries.check_scores(there, chosen, source.samples)
    outcome = planning_pipeline.plan_scope(
        cluster.replace_scope(model.UNASSIGNED, []), {'cpu': source.samples}, model.MoveHistory(),
        planning_settings.build_settings(there.conf, there.policy_set), now=time.time(),
        clock=time.monotonic)
    (report,) = outcome.plan.policies
    assert scope.text.startswith(f'imbalance {report.imbalance_before:.3f}')


def test_a_policy_that_is_disabled_is_judged_as_if_it_were_enabled():
    chosen = policy(enabled=True).model_copy(update={'enabled': False, 'weight': 0.25})
    there = context(Source(LOAD), cloud(), policy())
    found = [d.item.text for d in details.examine_queries(there, [chosen], False) if d.field == '']
    assert found == ['imbalance 0.4000, threshold 0.1500']


def test_the_mapping_of_labels_is_reported():
    load = {'h1.example.org': 0.8, 'stranger:9100': 0.1, **{f's{n}': 0.1 for n in range(8)}}
    found = look(Source(load))
    item = found['imbalance_query', 'labels']
    assert item.text == ('1 are hosts of Nova\'s, by another name 1: h1.example.org -> h1; '
                         '9 are unknown to Nova: s0, s1, s2, s3, s4 and 4 more')
    missing = found['imbalance_query', 'missing']
    assert missing.status == 'warning' and missing.text == '1 of 2 hosts have no value: h2'
    every = look(Source(load), every=True)['imbalance_query', 'labels']
    assert every.text.endswith('s6, s7, stranger:9100')
    every = look(Source({**load, 'h2': 0.1}), every=True)['imbalance_query', 'labels']
    assert ', by another name 1: h1.example.org -> h1, h2 -> h2; ' in every.text


def test_a_label_value_is_shown_on_one_line_and_not_without_end():
    item = look(Source({'h1': 0.5, 'a\nb' + 'x' * 10_000: 0.1}))['imbalance_query', 'labels']
    assert 'a bxxx' in item.text and len(item.text) < 300


def test_only_hosts_that_the_file_is_for_are_missed():
    cluster = dataclasses.replace(
        cloud(), aggregates={'fast': ('h1',), 'slow': ('h2',)}, scope_hosts=frozenset())
    chosen = policy(**ABSOLUTE)
    there = context(Source({'h1': 0.5}, {f'h1-{n}': 3.0 for n in range(4)}), cluster, chosen)
    there.policy_set = policies.PolicySet(policies=(chosen,), aggregates=('fast', 'gone'))
    found = {(d.field, d.item.name): d.item
             for d in details.examine_queries(there, [chosen], False)}
    assert found['imbalance_query', 'missing'].text == 'none of 1 hosts'
    assert found['vm_profile_query', 'missing'].text == 'none of 4 instances'
    (item, *_) = queries.check(there)
    assert item.status == 'ok' and item.text.startswith('1 of 1 hosts have a value')


def test_labels_that_are_no_host_fail_with_the_label_to_correct():
    item = look(Source({'10.0.0.1:9100': 0.5}))['imbalance_query', 'labels']
    assert item.status == 'failed' and 'host_label (host)' in item.remedy
    item = look(Source(LOAD, {'web': 1.0}))['vm_profile_query', 'labels']
    assert item.status == 'failed' and 'vm_profile_label_type (nova_instance_uuid)' in item.remedy


def test_a_host_that_is_down_is_not_missing():
    cluster = cloud()
    cluster = dataclasses.replace(cluster, services={
        **cluster.services, 'h2': dataclasses.replace(cluster.services['h2'], state='down')})
    assert look(Source({'h1': 0.5}), cluster)['imbalance_query', 'missing'].status == 'ok'


@pytest.mark.parametrize('answer', [
    result({'h1': 0.5, 'h1.example.org': 0.6, 'h2': 0.2}), result({'h2': 0.2}, duplicates=('h1',)),
    result({'h1': 0.5, 'h2': 0.2}, duplicates=('h1.example.org',))])
def test_two_series_of_one_host_fail(answer):
    found = look(Source(answer))
    item = found['imbalance_query', 'duplicates']
    assert item.status == 'failed' and item.text == '1 have more than one series: h1'
    assert found['imbalance_query', 'missing'].text.endswith('no value: h1')
    assert 'by (host)' in item.remedy


def test_duplicates_of_unknown_labels_are_ignored():
    answer = result(LOAD, duplicates=('stranger',))
    assert look(Source(answer))['imbalance_query', 'duplicates'].status == 'ok'


def test_two_series_of_an_instance_are_doubted():
    found = look(Source(LOAD, result(USED, duplicates=('h1-0',))))
    assert found['vm_profile_query', 'duplicates'].status == 'warning'


def test_names_that_tenants_share_are_no_usage():
    chosen = policy(vm_profile_label_type='nova_display_name')
    found = look(Source(LOAD, {'same': 1.0}), chosen=chosen)
    assert found['vm_profile_query', 'duplicates'].text.startswith('8 have more than one series')


def test_values_that_are_not_finite_are_reported_by_label():
    answer = result(LOAD, warnings=('1 values are not finite and left out: host h3',))
    item = look(Source(answer))['imbalance_query', 'series']
    assert item.status == 'warning' and 'not finite' in item.text


@pytest.mark.parametrize(('load', 'said', 'remedy'), [
    ({'h1': 80.0, 'h2': 40.0}, 'percent', 'by 100'),
    ({'h1': 1.2, 'h2': 0.4}, 'the right unit, of a load that exceeds the capacity, as that of '
     'overcommitted hosts and a load average do', 'clamp_max'),
    ({'h1': 25.0, 'h2': 4.0}, 'percent, or the number of busy CPUs', 'number of CPUs'),
    ({'h1': 64.0 * GIB, 'h2': 1.0}, 'bytes', 'capacity'),
    ({'h1': 64_000.0, 'h2': 1.0}, 'an absolute amount', 'capacity')])
def test_a_score_that_is_no_ratio_fails_with_its_likely_unit(load, said, remedy):
    for item in (look(Source(load))['imbalance_query', 'range'], one_line(load)):
        assert item.status == 'failed'
        assert item.text.endswith(f': it is probably in {said}') and remedy in item.remedy


@pytest.mark.parametrize(('load', 'said'), [
    # A ratio of load to capacity may be above 1 where that is overcommitted.
    ([1.2, 0.4], 'right unit'), ([1.01], 'right unit'), ([2.0, 2.0], 'right unit'),
    ([3.0, 0.5, 0.6], 'right unit'), ([16.0, 0.1, 0.2], 'right unit'),
    # No ratio is that high, or that high on most hosts.
    ([2.1, 2.1], 'percent'), ([16.1, 0.1, 0.2], 'percent'), ([3.0, 2.5, 0.2], 'percent'),
    ([100.0, 0.0, 0.1], 'percent'), ([100.1, 60.0], 'an absolute amount'),
    ([100.1, 0.1, 0.1], 'an absolute amount')])
def test_a_score_above_1_is_called_percent_only_beyond_any_ratio(load, said):
    mistake = units.guess_score_unit(load, None)
    assert said in mistake.unit
    assert ('clamp_max' in mistake.remedy) is (said == 'right unit')


def test_a_score_within_bounds_is_in_no_wrong_unit():
    assert units.guess_score_unit([], None) is None
    assert units.guess_score_unit([0.0, 1.0], 32) is None


def test_the_number_of_busy_cpus_is_thought_of_up_to_the_number_there_are():
    assert 'busy CPUs' in units.guess_score_unit([32.0, 20.0], 32).unit
    assert units.guess_score_unit([32.1, 20.0], 32).unit == 'percent'


def one_line(load):
    """As kronos-test-config says it."""
    chosen = policy()
    items = queries.check(context(Source(load), cloud(), chosen))
    return next(i for i in items if i.name == 'query: cpu imbalance_query')


def test_a_negative_score_fails_without_a_guess():
    item = look(Source({'h1': -0.2, 'h2': 0.1}))['imbalance_query', 'range']
    assert item.status == 'failed' and 'not negative' in item.text
    assert look(Source({'h1': -1e-12, 'h2': 1 + 1e-12}))['imbalance_query', 'range'].status == 'ok'


def test_values_that_are_nobodys_do_not_make_the_range():
    assert look(Source({**LOAD, 'stranger': 75.0}))['imbalance_query', 'range'].status == 'ok'


MEMORY = {'imbalance_query': 'node_memory', 'vm_profile_unit': 'absolute'}
NETWORK = {'imbalance_query': 'node_network', 'vm_profile_unit': 'absolute'}


@pytest.mark.parametrize(('factor', 'said', 'fields', 'size'), [
    # How much too large the usages are; in cores when they are right.
    (100, 'percent', ABSOLUTE, None),
    (1000, 'milliseconds a second, which are millicores', ABSOLUTE, None),
    (1e6, 'microseconds a second', ABSOLUTE, None),
    (1e9, 'nanoseconds a second', ABSOLUTE, None),
    (1 / CORES, 'a ratio of the host, not an absolute amount', ABSOLUTE, None),
    (1 / 8, 'a ratio of the instance\'s own vCPUs', ABSOLUTE, None),
    (CORES, 'cores, not a ratio of the host', {}, None),
    (100, 'percent', {}, None),
    (MEMORY_MB, 'MiB, not a ratio of the host', {'imbalance_query': 'node_memory'}, None),
    (MEMORY_MB * 2**20, 'bytes, not a ratio of the host', {'imbalance_query': 'node_memory'},
     None),
    (2**20, 'bytes beside a capacity in MiB',
     {**MEMORY, 'host_capacity': 'MEMORY_MB'}, None),
    (2**10, 'bytes beside a capacity in KiB',
     {**MEMORY, 'host_capacity_query': 'c'}, MEMORY_MB * 2**10),
    (2**-10, 'KiB beside a capacity in bytes',
     {**MEMORY, 'host_capacity_query': 'c'}, MEMORY_MB * 2**20),
    (2**-20, 'MiB beside a capacity in bytes',
     {**MEMORY, 'host_capacity_query': 'c'}, MEMORY_MB * 2**20),
    (8, 'bits beside a capacity in bytes', {**NETWORK, 'host_capacity_query': 'c'}, 1.25e9),
])
@pytest.mark.parametrize('share', [0.5, 0.7, 0.9])
def test_a_usage_in_another_unit_is_named(factor, said, fields, size, share):
    chosen = policy(**fields)
    # What is little, and may be right, is not doubted.
    share = min(share, 0.75 * 0.1 / factor) if factor == 1 / 8 else share
    if size is None and chosen.vm_profile_unit == 'absolute':
        size = MEMORY_MB if chosen.host_capacity == 'MEMORY_MB' else CORES
    usage = {f'{h}-{n}': share * score * (size or 1) / 4 * factor
             for h, score in LOAD.items() for n in range(4)}
    capacity = result(dict.fromkeys(LOAD, size)) if chosen.host_capacity_query else None
    source = Source(LOAD, usage, host_capacity=capacity)
    item = look(source, chosen=chosen)['vm_profile_query', 'coverage']
    assert item.text.endswith(f': vm_profile_query is probably in {said}'), item.text
    assert item.status == ('failed' if factor > 4 else 'warning') and item.remedy
    # kronos-test-config says the same.
    items = queries.check(context(source, cloud(), chosen))
    assert item.text in [i.text for i in items if i.name == 'coverage: cpu']


def test_a_counter_without_rate_is_named():
    usage = dict.fromkeys(USED, 900_000.0)
    for query, said in (('max by (u) (x_seconds_total)', True), ('rate(x_total[5m])', False)):
        item = look(Source(LOAD, usage), chosen=policy(vm_profile_query=query, **ABSOLUTE))[
            'vm_profile_query', 'coverage']
        assert ('rate()' in item.remedy) is said


@pytest.mark.parametrize('share', [0.15, 0.5, 1.0, 1.4])
@pytest.mark.parametrize('fields', [ABSOLUTE, {}])
def test_a_usage_that_is_right_is_not_doubted(share, fields):
    size = CORES if fields else 1.0
    usage = {f'{h}-{n}': share * score * size / 4 for h, score in LOAD.items() for n in range(4)}
    found = look(Source(LOAD, usage), chosen=policy(**fields))
    assert found['vm_profile_query', 'coverage'].status == 'ok'
    items = queries.check(context(Source(LOAD, usage), cloud(), policy(**fields)))
    assert not [i for i in items if i.name == 'coverage: cpu']


def test_a_fallback_does_not_hide_that_little_is_measured():
    chosen = policy(vm_profile_fallback='host_average', **ABSOLUTE)
    found = look(Source(LOAD, {'h1-0': 0.001}), chosen=chosen)
    assert '100.00%' not in found['vm_profile_query', 'coverage'].text


def test_next_to_idle_hosts_tell_nothing():
    item = look(Source({'h1': 0.001, 'h2': 0.002}, USED))['vm_profile_query', 'coverage']
    assert item.status == 'skipped'


def test_without_instances_no_series_is_right():
    found = look(Source(LOAD, {}), cloud(per_host=0))
    assert found['vm_profile_query', 'series'].status == 'ok'


def test_without_nova_series_are_counted_and_not_compared():
    chosen = policy()
    found = {(d.field, d.item.name): d.item for d in details.examine_queries(
        context(Source(LOAD, USED), None, chosen), [chosen], False)}
    assert found['imbalance_query', 'series'].text == '2 by host'
    assert found['imbalance_query', 'labels'].status == 'skipped'


def test_a_query_that_fails_says_why():
    broken = model.QueryResult('q', model.SourceHealth.PARTIAL, error='parse error')
    found = look(Source(broken, USED))
    assert found['imbalance_query', 'series'].text == 'parse error'
    assert found['imbalance_query', 'series'].status == 'failed'
    assert look(Source({}))['imbalance_query', 'series'].status == 'failed'


class Hanging(Source):
    """Answer no queries; ``health`` is the reported state of the source."""

    def __init__(self, health):
        super().__init__(model.QueryResult('q', model.SourceHealth.UNREACHABLE, error='no answer'))
        self.state, self.fetched = health, 0

    def fetch(self, policy):
        self.fetched += 1
        return super().fetch(policy)

    def health(self):
        return self.state, 'it does not answer'


@pytest.mark.parametrize(('health', 'asked'), [
    (model.SourceHealth.UNREACHABLE, 1), (model.SourceHealth.HEALTHY, 3)])
def test_a_source_that_answers_no_more_is_not_asked_for_the_other_policies(health, asked):
    """A query that takes too long is no reason: others may not."""
    chosen = [policy().model_copy(update={'name': name, 'weight': 1 / 3}) for name in 'abc']
    source = Hanging(health)
    there = context(source, cloud(), policy())
    found = list(details.examine_queries(there, chosen, False))
    assert source.fetched == asked
    told = [d.policy for d in found if d.item.text == 'not asked: it does not answer']
    assert told == ['b', 'c'][:3 - asked] and {d.policy for d in found} == {*'abc'}
    there.policy_set = policies.PolicySet(policies=tuple(chosen))
    source.fetched = 0
    names = [i.name for i in queries.check(there) if i.status is base.CheckStatus.SKIPPED]
    assert names == ['queries: b', 'queries: c'][:3 - asked] and source.fetched == asked


def test_old_samples_fail():
    assert look(Source(LOAD, age=900.0))['age_query', 'sample age'].status == 'failed'


def test_a_capacity_that_is_not_positive_is_doubted():
    chosen = policy(vm_profile_unit='absolute', host_capacity_query='c')
    found = look(Source(LOAD, USED, host_capacity=result({'h1': 0.0, 'h2': 32.0})),
                 chosen=chosen)
    assert found['host_capacity_query', 'range'].status == 'warning'
    assert look(Source(LOAD, {**USED, 'h1-0': -1.0}))['vm_profile_query', 'range'].status \
        == 'warning'
