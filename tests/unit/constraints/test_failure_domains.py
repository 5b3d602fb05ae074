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
from kronos_nova.constraints import failure_domains
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
