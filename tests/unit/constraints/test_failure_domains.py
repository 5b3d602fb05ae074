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

import dataclasses

import pytest

from kronos_nova import model
from kronos_nova.constraints import cluster_view
from kronos_nova.constraints import domain_spread
from kronos_nova.constraints import failure_domains
from kronos_nova.constraints import spread_sets
from kronos_nova.model import spread_requests

KEY = failure_domains.KEY
HOSTS = {'r12': ('h1', 'h2'), 'r13': ('h3', 'h4'), 'feed a': ('h1', 'h3')}


def test_hosts_have_several_kinds_by_several_aggregates():
    domains = failure_domains.map_hosts_by_domain(HOSTS, {
        'r12': {KEY: 'rack:r12'}, 'r13': {KEY: 'rack:r13', 'ssd': 'true'},
        'feed a': {KEY: 'pdu:a'}})
    assert domains == {'rack': {'r12': {'h1', 'h2'}, 'r13': {'h3', 'h4'}},
                       'pdu': {'a': {'h1', 'h3'}}}


def test_one_value_names_several_kinds():
    domains = failure_domains.map_hosts_by_domain(
        HOSTS, {'r12': {KEY: 'Rack: r12 ,room:Cellar'}, 'r13': {KEY: 'rack:r13, room:Cellar'}})
    assert domains['room'] == {'Cellar': {'h1', 'h2', 'h3', 'h4'}}
    assert domains['rack'].keys() == {'r12', 'r13'}


def test_one_domain_of_several_aggregates_has_the_hosts_of_all():
    domains = failure_domains.FailureDomains(
        HOSTS, {'r12': {KEY: 'rack:r12'}, 'r13': {KEY: 'rack:r12'}})
    assert domains.map_hosts('rack') == {'r12': {'h1', 'h2', 'h3', 'h4'}}
    assert domains.problems == ()


def test_a_host_in_two_domains_of_one_kind_is_named_with_its_aggregates():
    domains = failure_domains.FailureDomains(HOSTS, {
        'r12': {KEY: 'rack:r12'}, 'feed a': {KEY: 'rack:r99'}, 'r13': {KEY: 'pdu:a'}})
    assert domains.problems == (
        'host h1: two domains of the kind rack (r12 by aggregate r12; r99 by aggregate feed a). '
        f'Take the host out of one aggregate, or correct {KEY} of an aggregate',)
    assert domains.is_unclear('rack', 'h1') and not domains.is_unclear('pdu', 'h1')
    assert not domains.is_unclear('rack', 'h2')
    assert domains.list_unclear('rack') == {'h1'}
    assert domains.list_unclear('pdu') == frozenset()


@pytest.mark.parametrize('text', [
    'rack', 'rack:', ':r12', 'rack:r12,', '', 'rack:r 12', '1rack:r', 'r' * 33 + ':a',
    'rack:' + 'a' * 65, 'rack:r12:3', 'räck:a', 'rack:a\n'[:-1] + '\x00'])
def test_a_value_that_cannot_be_read_hides_all_kinds_of_its_hosts(text):
    domains = failure_domains.FailureDomains(
        HOSTS, {'r12': {KEY: text}, 'feed a': {KEY: 'pdu:a'}})
    problem, = domains.problems
    assert problem.startswith(f'aggregate r12: {KEY} = {text[:64]!r} cannot be read')
    assert 'Write KIND:NAME' in problem
    assert domains.is_unclear('pdu', 'h1') and domains.is_unclear('rack', 'h2')
    assert not domains.is_unclear('pdu', 'h3')


def test_an_error_of_many_hosts_is_one_sentence():
    hosts = [f'h{n:03}' for n in range(200)]
    domains = failure_domains.FailureDomains(
        {'a': hosts, 'b': hosts}, {'a': {KEY: 'rack:a'}, 'b': {KEY: 'rack:b'}})
    problem, = domains.problems
    assert problem.startswith('host h000, h001, h002 and 197 more: two domains')


def test_a_request_names_kinds_and_sets():
    request = spread_requests.SpreadRequest
    assert spread_requests.parse_spread('rack:web, PDU,rack:web') == (
        request('pdu'), request('rack', 'web'))
    assert str(request('rack', 'web')) == 'rack:web' and str(request('pdu')) == 'pdu'


@pytest.mark.parametrize('text', ['', 'rack:', ':web', 'rack,', 'rack:we b', 'rack:a:b', '{}',
                                  'rack:' + 'a' * 65, ','.join(f'k{n}' for n in range(9))])
def test_a_request_that_cannot_be_read_is_an_error_without_its_text(text):
    with pytest.raises(ValueError) as error:
        spread_requests.parse_spread(text)
    assert not text or text not in str(error.value)


def test_aggregate_that_only_names_a_domain_takes_no_host_out_of_the_pool():
    cluster = model.Cluster(
        {h: model.Host(h, uuid=h) for h in 'abcd'}, {}, {h: model.Service(h) for h in 'abcd'},
        aggregates={'r1': ('a', 'b'), 'ssd': ('c',), 'r2': ('d',)}, aggregate_metadata={
            'r1': {'kronos:domain': 'rack:r1'},
            'r2': {'kronos:domain': 'rack:r2', 'availability_zone': 'nova'}})
    assert cluster.list_hosts_of(model.UNASSIGNED) == ('a', 'b')
    # An aggregate that is planned itself is a scope of its own.
    assert cluster.replace_scope(model.UNASSIGNED, ['r1']).scope_hosts == frozenset()
    silent = dataclasses.replace(cluster, services={
        h: model.Service(h, status=model.UNKNOWN) for h in 'abcd'})
    assert silent.replace_scope(model.UNASSIGNED).unreadable_hosts == {'a', 'b'}


def make_cluster(metadata, hosts=('a', 'b', 'c'), text='rack', aggregates=None):
    """An instance on each host asks for a spread; aggregates have one host each."""
    return model.Cluster(
        {h: model.Host(h) for h in hosts},
        {f'vm-{h}': model.Instance(f'vm-{h}', h, project_id='p',
                                   spread=spread_requests.parse_spread(text)) for h in hosts},
        {h: model.Service(h) for h in hosts}, scope='all', scope_hosts=frozenset(hosts),
        aggregates={'all': tuple(hosts), **(aggregates or {f'of {h}': (h,) for h in hosts})},
        aggregate_metadata={name: {KEY: value} for name, value in metadata.items()})


def judge(cluster, source, destination):
    view = cluster_view.ClusterView(cluster, model.PlanningOptions())
    return domain_spread.worsens_spread(
        view, model.Move(f'vm-{source}', source, destination, model.Phase.SPREAD))


def test_the_rule_holds_while_no_aggregate_can_be_read():
    cluster = make_cluster({'of a': 'rack r1', 'of b': 'rack=r2'})
    assert judge(cluster, 'c', 'a').rule == 'unclear-domain'
    source = judge(cluster, 'a', 'c')
    assert source.rule == 'unclear-source-domain' and 'kronos:domain' in source.detail
    domains = failure_domains.FailureDomains(cluster.aggregates, cluster.aggregate_metadata)
    assert not domains.kinds
    assert not any('counts for nothing' in w
                   for w in spread_sets.describe_unclear(cluster, domains))


def test_a_kind_that_no_aggregate_names_asks_for_nothing_where_all_can_be_read():
    assert judge(make_cluster({'of a': 'pdu:1'}), 'a', 'b') is None


def test_the_code_tells_the_end_of_the_move_whose_domain_is_unclear():
    cluster = make_cluster({'of a': 'rack:r1', 'more': 'rack:r2', 'of b': 'rack:r3'},
                           aggregates={'of a': ('a',), 'more': ('a',), 'of b': ('b',)})
    assert judge(cluster, 'b', 'a') == model.Rejection(
        'unclear-domain', 'host a has 2 domains of the kind rack: r1, r2')
    assert judge(cluster, 'a', 'b').rule == 'unclear-source-domain'


def test_likely_slips_in_the_names_are_warnings_where_an_instance_asks():
    metadata = {'of a': 'rack:r12', 'of b': 'rack:R12'}
    hosts = 'abcd'
    cluster = make_cluster(metadata, hosts)
    domains = failure_domains.FailureDomains(cluster.aggregates, cluster.aggregate_metadata)
    case, missing = spread_sets.describe_unclear(cluster, domains)
    assert case.startswith('rack:R12 and rack:r12 are two domains')
    assert missing.startswith('2 hosts of the scope have no domain of the kind rack')
    assert 'the first is c' in missing
    bare = dataclasses.replace(cluster, instances={})
    assert spread_sets.describe_unclear(bare, domains) == []
    # No host of the scope has a domain: a scope without racks.
    assert spread_sets.describe_unclear(dataclasses.replace(
        cluster, scope_hosts=frozenset('cd')), domains) == [case]
